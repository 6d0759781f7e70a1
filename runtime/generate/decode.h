/* decode.h - continues prompts by tokens, by the GENERATE phase of a session's plan.
 *
 * In: a session whose plan has the phase, and whose weights are loaded; prompts as ids; settings of
 * the sampler.  Out: the ids that follow.  Needs: session, sampler.
 *   D1  nothing is allocated on the device
 *   D2  a sequence's tokens do not depend on the others but for the last bits of products, whose
 *       order of sums may depend on how many rows they have
 *   D3  a sequence ends with an end token of the model, with the last token asked for, or with the
 *       signal; what was generated until then is valid
 *   D4  an answer computes only what follows the longest common start of the new prompt and of what
 *       the cache holds, as long as nothing but answers has used the batch arena
 *   D5  ranks answer together, and take the tokens that rank 0 has chosen
 * Use: pl_decoder_create(&session, &opt, 1, &decoder, &d);
 *      pl_decoder_answer(decoder, &prompt, &out, &d); ... pl_generated_finish(&out);
 *      pl_decoder_destroy(&decoder); */
#ifndef PL_RUNTIME_GENERATE_DECODE_H
#define PL_RUNTIME_GENERATE_DECODE_H

#include "runtime/generate/sampler.h"
#include "runtime/session/session.h"

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
    /* Nullable: runs the operations of the phase. */
    pl_err (*run)(void *ctx, struct pl_diag *d);
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

void pl_generated_finish(struct pl_generated *g); /* leaves {0} */

struct pl_decoder; /* sequences that are continued, with what the cache holds of them */
/* n sequences, as many as the phase has. Session and opt are borrowed; opt may change between two
 * answers but for `sampling`. */
pl_err pl_decoder_create(struct pl_session *s, const struct pl_generate_options *opt, uint32_t n,
                         struct pl_decoder **out, struct pl_diag *d);
void pl_decoder_destroy(struct pl_decoder **decoder); /* NULL-safe; sets *decoder to NULL */
/* Continues one prompt a sequence. PL_ERR_INTERRUPTED after a signal, with *out valid. *out must be
 * finished in every case. */
pl_err pl_decoder_answer(struct pl_decoder *g, const struct pl_prompt *prompts,
                         struct pl_generated *out, struct pl_diag *d);
/* Called when the weights have changed, or other phases have used the batch arena: the cache holds
 * nothing. */
void pl_decoder_forget(struct pl_decoder *g);

#endif
