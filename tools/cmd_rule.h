/* cmd_rule.h - `plimsoll estimate-vram` without a model: calculator, tables, tiers.
 *
 * In: struct pl_cli.  Out: an answer on stdout, an exit status.  Needs: rule_args.h, NVML through
 * runtime/device. Every answer says `approximate`.
 * Use: if (pl_rule_asked(cli)) return pl_cmd_rule(cli); */
#ifndef PL_TOOLS_CMD_RULE_H
#define PL_TOOLS_CMD_RULE_H

#include "tools/cli.h"

int pl_cmd_rule(const struct pl_cli *cli);

/* Of a planned answer: the closed formula beside the plan, as listed. NULL when out of memory. */
struct pl_estimate;
json_t *pl_rule_quick_json(const struct pl_estimate *e);
/* "the tier table, which knows no model, says 4 for 24 GB"; nothing without a budget. */
void pl_rule_tier_note(const struct pl_estimate *e, struct pl_text *notes);

#endif
