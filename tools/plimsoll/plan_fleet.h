/* plan_fleet.h - `plimsoll plan` over several GPUs. */
#ifndef PL_TOOLS_PLIMSOLL_PLAN_FLEET_H
#define PL_TOOLS_PLIMSOLL_PLAN_FLEET_H

#include "estimator/advice/fleet.h"
#include "estimator/advice/recommend.h"
#include "tools/plimsoll/cli.h"

struct pl_plan_fleet { /* must not be copied */
    bool made;         /* false: there is nothing to tell */
    bool is_answer;    /* several GPUs were asked about and hold the job as given */
    struct pl_fleet fleet;
};

/* Decides if --devices, --link or the file asks about several GPUs. USAGE: there is no such link,
 * or the job is not one for GPUs of a known size. */
pl_err pl_plan_fleet_check(const struct pl_cli *cli, const struct pl_question *q,
                           struct pl_diag *d);
/* Called if it is asked. */
pl_err pl_plan_fleet_asked(const struct pl_cli *cli, struct pl_advice *a, struct pl_plan_fleet *out,
                           struct pl_diag *d);
/* Called if it is not asked, and nothing fits on one GPU without host memory: finds the fewest GPUs
 * that hold it. */
pl_err pl_plan_fleet_fewest(const struct pl_cli *cli, struct pl_advice *a,
                            const struct pl_recommendation *r, struct pl_plan_fleet *out,
                            struct pl_diag *d);

#endif
