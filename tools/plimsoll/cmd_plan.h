/* cmd_plan.h - the forms of `plimsoll plan` in other files: --diff, --longest, and several GPUs. */
#ifndef PL_TOOLS_PLIMSOLL_CMD_PLAN_H
#define PL_TOOLS_PLIMSOLL_CMD_PLAN_H

#include "estimator/advice/fleet.h"
#include "estimator/advice/recommend.h"
#include "tools/plimsoll/cli.h"

/* --- plan --diff OLD.json NEW.json: two receipts, without a model, a plan or a device -------- */

/* True for --diff, or a flag that is only valid together with it. */
bool pl_plan_diff_asked(const struct pl_cli *cli);
/* Returns the exit status, 3 if the growth is above --allow. */
int pl_cmd_plan_diff(const struct pl_cli *cli);

/* --- plan --longest: the longest samples on this card ---------------------------------------- */

/* Returns the exit status, 3 if not even the shortest samples fit. */
int pl_cmd_plan_longest(const struct pl_cli *cli);

/* --- plan over several GPUs ------------------------------------------------------------------ */

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
