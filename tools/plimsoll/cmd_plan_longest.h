/* cmd_plan_longest.h - `plimsoll plan --longest`: the longest samples on this card.
 *
 * In: struct pl_cli.  Out: an answer on stdout; exit 3 if not even the shortest samples fit.
 * Needs: advice, inquiry. No data, no device.
 * Use: if (pl_cli_has(cli, PL_FLAG_LONGEST)) return pl_cmd_plan_longest(cli); */
#ifndef PL_TOOLS_PLIMSOLL_CMD_PLAN_LONGEST_H
#define PL_TOOLS_PLIMSOLL_CMD_PLAN_LONGEST_H

#include "tools/plimsoll/cli.h"

int pl_cmd_plan_longest(const struct pl_cli *cli);

#endif
