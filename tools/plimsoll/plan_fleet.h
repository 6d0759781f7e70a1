/* plan_fleet.h - `plimsoll plan` over several GPUs: whether that is asked, and over which link. */
#ifndef PL_TOOLS_PLIMSOLL_PLAN_FLEET_H
#define PL_TOOLS_PLIMSOLL_PLAN_FLEET_H

#include "estimator/advice/fleet.h"
#include "estimator/advice/recommend.h"
#include "tools/plimsoll/cli.h"

struct pl_plan_fleet { /* not to be copied */
    bool made;         /* else there is nothing to tell */
    bool is_answer;    /* several GPUs were asked about and hold the job as it is given */
    struct pl_fleet fleet;
};

/* Whether --devices, --link or the file asks about several GPUs. USAGE: no link is called so, or
 * the job is not one for GPUs of a known size. */
pl_err pl_plan_fleet_check(const struct pl_cli *cli, const struct pl_question *q,
                           struct pl_diag *d);
/* Where it is asked. */
pl_err pl_plan_fleet_asked(const struct pl_cli *cli, struct pl_advice *a, struct pl_plan_fleet *out,
                           struct pl_diag *d);
/* Where it is not, and nothing fits on one GPU without host memory: the fewest that hold it. */
pl_err pl_plan_fleet_fewest(const struct pl_cli *cli, struct pl_advice *a,
                            const struct pl_recommendation *r, struct pl_plan_fleet *out,
                            struct pl_diag *d);

#endif
