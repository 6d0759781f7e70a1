/* generate_args.h - arguments of `generate` -> a job to infer with, a prompt, how to choose.
 *
 * In: struct pl_cli.  Out: struct pl_generate_question.  Needs: config, runtime/generate.
 *   A1  a key of the configuration that generating does not read is refused, not ignored
 * Use: pl_generate_read_args(&q, cli, &d); ... pl_generate_question_finish(&q); */
#ifndef PL_TOOLS_PLIMSOLL_GENERATE_ARGS_H
#define PL_TOOLS_PLIMSOLL_GENERATE_ARGS_H

#include "runtime/generate/generate.h"
#include "tools/plimsoll/cli.h"
#include "tools/plimsoll/generate_text.h"

struct pl_generate_question {
    struct pl_job job;
    int32_t *ids; /* [n], owned: the prompt */
    uint64_t n;
    struct pl_generate_text text; /* closed when only ids were given, and no tokenizer */
    uint64_t max_new_tokens;
    bool ignore_eos;
    struct pl_sampling sampling;
};

/* *q may be finished whatever the outcome. */
pl_err pl_generate_read_args(struct pl_generate_question *q, const struct pl_cli *cli,
                             struct pl_diag *d);
/* What follows from the prompt: batch and context of the job. */
void pl_generate_settle(struct pl_generate_question *q);
void pl_generate_question_finish(struct pl_generate_question *q); /* leaves {0} */

#endif
