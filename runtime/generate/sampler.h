/* sampler.h - from a row of logits to a token.
 *
 * In: logits of one position, the ids of the sequence so far, settings.  Out: an id.
 * Needs: base, kernels/rng.h. Runs on the host; allocates once.
 *   S1  greedy is the largest logit, the lowest id among equals
 *   S2  a drawn token is a function of the logits, the settings and (seed, sequence, position)
 *       alone: the same call gives the same id, whatever was drawn before
 *   S3  filters apply in the order of transformers: repetition penalty, temperature, top_k, top_p,
 *       min_p; each keeps one token at least
 * Sources: top_p Holtzman et al. 1904.09751, min_p Nguyen et al. 2407.01082, repetition penalty
 * Keskar et al. 1909.05858 section 4.1.
 * Use: pl_sampler_init(&s, &settings, vocab, &d); id = pl_sampler_choose(&s, row, &place); ...
 *      pl_sampler_finish(&s); */
#ifndef PL_RUNTIME_GENERATE_SAMPLER_H
#define PL_RUNTIME_GENERATE_SAMPLER_H

#include "estimator/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

struct pl_sampling {
    double temperature;        /* 0: greedy; of the following only the penalty then has an effect */
    uint32_t top_k;            /* 0: all */
    double top_p, min_p;       /* 1 and 0: all */
    double repetition_penalty; /* 1: none */
    uint64_t seed;
};

struct pl_candidate {
    float logit;
    int32_t id;
};

struct pl_sampler {
    struct pl_sampling how;
    uint64_t vocab;
    struct pl_candidate *heap; /* [vocab], owned; candidates that were taken stand after the
                                  others */
    double *weights;           /* [vocab], owned: exp((logit - best) / temperature), as taken */
    uint64_t taken;
    bool *seen; /* [vocab], owned: ids of the sequence, while the penalty applies to them */
};

struct pl_sampler_position {
    uint64_t sequence, position; /* position of the token to choose */
    const int32_t *ids;          /* [n] ids before it */
    uint64_t n;
};

pl_err pl_sampler_init(struct pl_sampler *s, const struct pl_sampling *how, uint64_t vocab,
                       struct pl_diag *d);
void pl_sampler_finish(struct pl_sampler *s); /* leaves {0} */
/* logits: [vocab]; changed if a penalty applies. Returns the id. */
int32_t pl_sampler_choose(struct pl_sampler *s, float *logits,
                          const struct pl_sampler_position *at);

#endif
