/* generate.h - a model that is opened to continue prompts, with the program of inference.
 *
 * In: a job with `inference` set, prompts as ids, settings of the sampler.  Out: the ids that
 * follow.
 * Needs: admit, session, decode.
 *   N1  the plan is judged before a device is opened, as training's is; planned == allocated
 *   N2  after the first run the device's allocation counter stands still
 * Use: pl_preflight_init_generate(&pf, &job, &d); pl_generate(&pf, &opt, prompts, n, &out, &d);
 *      ... pl_generated_finish(&out); pl_preflight_finish(&pf); */
#ifndef PL_RUNTIME_GENERATE_GENERATE_H
#define PL_RUNTIME_GENERATE_GENERATE_H

#include "runtime/admit/preflight.h"
#include "runtime/generate/decode.h"

/* PL_ERR_USAGE: the prompt has an id that the model does not know, or with so many more it does not
 * fit job->max_seq_length. */
pl_err pl_generate_check_prompt(const struct pl_preflight *pf, const struct pl_prompt *prompt,
                                uint64_t more, struct pl_diag *d);
struct pl_generator; /* a model that is loaded, with the cache of its sequences */
/* n = job->batch_size sequences. opt is borrowed, and may change between two answers but for
 * `sampling`. *out is NULL after a failure. */
pl_err pl_generator_open(struct pl_preflight *pf, const struct pl_generate_options *opt, uint32_t n,
                         struct pl_generator **out, struct pl_diag *d);
/* Continues one prompt a sequence. PL_ERR_INTERRUPTED after a signal, with *out valid. *out must be
 * finished in every case. */
pl_err pl_generator_answer(struct pl_generator *g, const struct pl_prompt *prompts,
                           struct pl_generated *out, struct pl_diag *d);
void pl_generator_close(struct pl_generator **g); /* NULL-safe; sets *g to NULL */
/* Opens, answers once and closes. */
pl_err pl_generate(struct pl_preflight *pf, const struct pl_generate_options *opt,
                   const struct pl_prompt *prompts, uint32_t n, struct pl_generated *out,
                   struct pl_diag *d);

#endif
