/* rule_args.h - the arguments of a question without a model -> inputs of the rule of thumb.
 *
 * In: struct pl_cli of `estimate-vram`.  Out: struct pl_rule_question.  Needs: rule_of_thumb, card.
 *   A1  keys (batch_size, lora_r, ...) go through the parser of the configuration: the same types,
 *       ranges and synonyms; a key that no formula uses is refused, not ignored
 *   A2  whatever names a model is no question of this kind
 * Use: if (pl_rule_asked(&cli)) err = pl_rule_read_args(&cli, &question, &d); */
#ifndef PL_TOOLS_PLIMSOLL_RULE_ARGS_H
#define PL_TOOLS_PLIMSOLL_RULE_ARGS_H

#include "estimator/rule_of_thumb/rule_tables.h"
#include "tools/plimsoll/cli.h"

struct pl_rule_question {
    struct pl_rule_inputs in;
    const struct pl_rule_table_info *table; /* --table */
    bool calculator;                        /* --rule-of-thumb without --table */
    const char *card_source;                /* where in.vram_gb is from, NULL: from nowhere */
};

/* --rule-of-thumb or --table, or neither a model nor anything to plan for. */
bool pl_rule_asked(const struct pl_cli *cli);
/* Neither table nor calculator is set when only a card, or nothing, was named. */
pl_err pl_rule_read_args(const struct pl_cli *cli, struct pl_rule_question *q, struct pl_diag *d);
/* For a question about a model: what only a rule of thumb knows, and what no plan covers yet. */
pl_err pl_rule_refuse_misplaced(const struct pl_cli *cli, struct pl_diag *d);

#endif
