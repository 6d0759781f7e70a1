/* rule_args.h - `plimsoll estimate-vram` without a model: its arguments, which are inputs of the
 * rule of thumb, and its answers: calculator, tables, tiers. Every answer says `approximate`.
 *
 * In: struct pl_cli of `estimate-vram`.  Out: struct pl_rule_question, an answer on stdout.
 * Needs: rule_of_thumb, card, NVML through runtime/device.
 *   A1  keys (batch_size, lora_r, ...) go through the parser of the configuration: the same types,
 *       ranges and synonyms; a key that no formula uses is refused, not ignored
 *   A2  arguments that name a model are not such a question
 * Use: if (pl_rule_asked(cli)) return pl_cmd_rule(cli); */
#ifndef PL_TOOLS_PLIMSOLL_RULE_ARGS_H
#define PL_TOOLS_PLIMSOLL_RULE_ARGS_H

#include "estimator/rule_of_thumb/rule_tables.h"
#include "tools/plimsoll/cli.h"

struct pl_rule_question {
    struct pl_rule_inputs in;
    const struct pl_rule_table_info *table; /* --table */
    bool calculator;                        /* --rule-of-thumb without --table */
    const char *card_source;                /* source of in.vram_gb, NULL = none */
};

/* True for --rule-of-thumb or --table, or if there is neither a model nor anything to plan for. */
bool pl_rule_asked(const struct pl_cli *cli);
/* Sets neither table nor calculator if only a card, or nothing, was named. */
pl_err pl_rule_read_args(const struct pl_cli *cli, struct pl_rule_question *q, struct pl_diag *d);
/* Refuses, for a question about a model, flags that only a rule of thumb knows, and those that no
 * plan covers yet. */
pl_err pl_rule_refuse_misplaced(const struct pl_cli *cli, struct pl_diag *d);
/* Answers; returns the exit status. */
int pl_cmd_rule(const struct pl_cli *cli);

#endif
