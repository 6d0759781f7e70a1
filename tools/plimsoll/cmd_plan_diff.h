/* cmd_plan_diff.h - `plimsoll plan --diff OLD.json NEW.json`: compares two receipts.
 *
 * In: struct pl_cli.  Out: an answer on stdout; exit 3 if the growth is above --allow.
 * Needs: estimator/api. No model, no plan, no device.
 * Use: if (pl_plan_diff_asked(cli)) return pl_cmd_plan_diff(cli); */
#ifndef PL_TOOLS_PLIMSOLL_CMD_PLAN_DIFF_H
#define PL_TOOLS_PLIMSOLL_CMD_PLAN_DIFF_H

#include "tools/plimsoll/cli.h"

/* True for --diff, or a flag that is only valid together with it. */
bool pl_plan_diff_asked(const struct pl_cli *cli);
int pl_cmd_plan_diff(const struct pl_cli *cli);

#endif
