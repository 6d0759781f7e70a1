/* lengths.h - how long the samples of a data set are, in tokens.
 *
 * In: one length per sample, or the three numbers a user knows.  Out: counts and shares.
 * Needs: base.
 * A sample takes four bytes.
 *   N1  after pl_lengths_sort every answer is exact; a described set has bounds only, and says so
 * Use: struct pl_lengths l = {0}; pl_lengths_add(&l, n, &d) ...; pl_lengths_sort(&l);
 *      pl_lengths_over(&l, 1024); pl_lengths_finish(&l); */
#ifndef PL_ESTIMATOR_ADVICE_LENGTHS_H
#define PL_ESTIMATOR_ADVICE_LENGTHS_H

#include "estimator/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

struct pl_lengths {
    uint32_t *of; /* [rows], owned, ascending after pl_lengths_sort; NULL when described */
    uint64_t rows, cap, tokens;
    uint32_t longest;
    bool described; /* rows, mean and longest are all that is known */
};

pl_err pl_lengths_add(struct pl_lengths *l, uint32_t tokens, struct pl_diag *d);
void pl_lengths_sort(struct pl_lengths *l);
/* From a description; PL_ERR_USAGE when the three contradict each other. */
pl_err pl_lengths_describe(struct pl_lengths *l, uint64_t rows, uint32_t mean, uint32_t longest,
                           struct pl_diag *d);
void pl_lengths_finish(struct pl_lengths *l); /* leaves {0} */

/* Samples longer than `tokens`. Described: the most there can be (Markov's inequality). */
uint64_t pl_lengths_over(const struct pl_lengths *l, uint32_t tokens);
/* Tokens that cutting at `tokens` would lose. Described: the most there can be. */
uint64_t pl_lengths_lost(const struct pl_lengths *l, uint32_t tokens);
/* Returns what a slot of so many tokens holds on average, in steps of so many slots: one sample, or
 * as many as a run with `packing` puts there (runtime/data/packing.h), of the samples in an order
 * that does not follow their lengths. length: of the sample that a token stands in, on average. {0}
 * where the lengths are described, or none. */
struct pl_slot_load {
    double samples, tokens, length;
};
struct pl_slot_load pl_lengths_slot(const struct pl_lengths *l, uint32_t tokens);
struct pl_slot_load pl_lengths_packed(const struct pl_lengths *l, uint32_t tokens, uint32_t slots);
/* The smallest length that is enough for `percent` of the samples; 0 when described or empty. */
uint32_t pl_lengths_percentile(const struct pl_lengths *l, unsigned percent);

#endif
