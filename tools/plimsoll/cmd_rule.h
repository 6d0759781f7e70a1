/* cmd_rule.h - `plimsoll estimate-vram` without a model: calculator, tables, tiers.
 *
 * In: struct pl_cli.  Out: an answer on stdout, an exit status.  Needs: rule_args.h, NVML through
 * runtime/device. Every answer says `approximate`.
 * Use: if (pl_rule_asked(cli)) return pl_cmd_rule(cli); */
#ifndef PL_TOOLS_PLIMSOLL_CMD_RULE_H
#define PL_TOOLS_PLIMSOLL_CMD_RULE_H

#include "tools/plimsoll/cli.h"

int pl_cmd_rule(const struct pl_cli *cli);

#endif
