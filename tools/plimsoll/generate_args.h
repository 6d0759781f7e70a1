/* generate_args.h - reads the arguments of `generate`: a job for inference, prompts, settings of
 * the sampler.
 *
 * In: struct pl_cli.  Out: struct pl_generate_question.  Needs: config, runtime/generate.
 *   A1  a key of the configuration that generating does not read is refused, not ignored
 * Use: pl_generate_read_args(&q, cli, &d); ... pl_generate_question_finish(&q); */
#ifndef PL_TOOLS_PLIMSOLL_GENERATE_ARGS_H
#define PL_TOOLS_PLIMSOLL_GENERATE_ARGS_H

#include "runtime/generate/generate.h"
#include "tools/plimsoll/cli.h"
#include "runtime/data/prompt_text.h"

struct pl_generate_question {
    struct pl_job job;
    struct pl_question_prompt {
        int32_t *ids; /* [n], owned */
        uint64_t n;
    } * prompts; /* [n_prompts], owned */
    uint64_t n_prompts;
    bool converses;             /* on a terminal: no prompt was given */
    struct pl_prompt_text text; /* closed if only ids were given, and no tokenizer */
    uint64_t max_new_tokens;
    bool ignore_eos;
    struct pl_sampling sampling;
};

/* *q may be finished in every case. */
pl_err pl_generate_read_args(struct pl_generate_question *q, const struct pl_cli *cli,
                             struct pl_diag *d);
/* Sets batch and context of the job: from the longest prompt, or for a conversation. */
void pl_generate_size_job(struct pl_generate_question *q);
void pl_generate_question_finish(struct pl_generate_question *q); /* leaves {0} */

#endif
