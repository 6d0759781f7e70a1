/* rule_args.h - reads the arguments of a question without a model: inputs of the rule of thumb.
 *
 * In: struct pl_cli of `estimate-vram`.  Out: struct pl_rule_question.  Needs: rule_of_thumb, card.
 *   A1  keys (batch_size, lora_r, ...) go through the parser of the configuration: the same types,
 *       ranges and synonyms; a key that no formula uses is refused, not ignored
 *   A2  arguments that name a model are not such a question
 * Use: if (pl_rule_asked(&cli)) err = pl_rule_read_args(&cli, &question, &d); */
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

#endif
