/* generate.h - continues prompts by tokens, with the program of inference.
 *
 * In: a job with `inference` set, prompts as ids, settings of the sampler.  Out: the ids that
 * follow.
 * Needs: admit, session, sampler.
 *   N1  the plan is judged before a device is opened, as training's is; planned == allocated
 *   N2  after the first run the device's allocation counter stands still
 *   N3  a sequence's tokens do not depend on the others but for the last bits of products, whose
 *       order of sums may depend on how many rows they have
 *   N4  a sequence ends with an end token of the model, with the last token asked for, or with the
 *       signal; what was generated until then is valid
 *   N5  a generator that answers again computes only what follows the longest common start of the
 *       new prompt and of what its cache holds
 * Use: pl_preflight_init_generate(&pf, &job, &d); pl_generate(&pf, &opt, prompts, n, &out, &d);
 *      ... pl_generated_finish(&out); pl_preflight_finish(&pf); */
#ifndef PL_RUNTIME_GENERATE_GENERATE_H
#define PL_RUNTIME_GENERATE_GENERATE_H

#include "runtime/admit/preflight.h"
#include "runtime/generate/sampler.h"

#include <signal.h>
#include <stdio.h>

struct pl_prompt {
    const int32_t *ids; /* [n], borrowed; below the vocabulary */
    uint64_t n;         /* above 0 */
};

struct pl_generate_options {
    FILE *messages;          /* never NULL */
    bool quiet, colour;      /* about `messages` */
    uint64_t max_new_tokens; /* limit of each sequence; with its prompt at most
                                job->max_seq_length */
    bool ignore_eos;
    const int32_t *turn_end; /* nullable; an id that ends an answer, as the model's own end tokens
                                do */
    struct pl_sampling sampling;
    volatile sig_atomic_t *stop; /* nullable; non-zero: stop between two tokens */
    /* Both are nullable. logits: row [vocab] after `position` tokens of a sequence; token: the id
     * that was chosen from it. */
    void (*logits)(void *ctx, uint32_t sequence, uint64_t position, const float *row);
    void (*token)(void *ctx, uint32_t sequence, int32_t id);
    void *ctx;
};

enum pl_generate_end { PL_END_LENGTH, PL_END_EOS, PL_END_SIGNAL };
const char *pl_generate_end_name(enum pl_generate_end end); /* "length", "eos" or "signal" */

struct pl_generated_sequence {
    int32_t *ids; /* owned; prompt and answer */
    uint64_t prompt, n;
    enum pl_generate_end end; /* PL_END_EOS: the last id is the end token */
};

struct pl_generated {
    struct pl_generated_sequence *sequences; /* [n], owned; one for each prompt */
    uint32_t n;
    uint64_t planned_bytes, allocated_bytes, measured_bytes;
    uint64_t prompt_tokens, new_tokens; /* computed in runs that hold a prompt; and in the others */
    double prompt_seconds, new_seconds;
};

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
void pl_generated_finish(struct pl_generated *g); /* leaves {0} */

#endif
