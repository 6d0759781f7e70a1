/* rope_table.h - cos and sin of every position, computed once in double precision.
 * Sources: Su et al. 2104.09864 (default), linear interpolation 2306.15595, llama3 scaling as in
 * Meta's Llama 3.1 reference, YaRN 2309.00071 and LongRoPE 2402.13753 as transformers applies
 * them. */
#ifndef PL_RUNTIME_TRAIN_ROPE_TABLE_H
#define PL_RUNTIME_TRAIN_ROPE_TABLE_H

#include "estimator/model/model.h"

#include <stdbool.h>

/* Frequencies of the dim/2 pairs, radians a position. */
void pl_rope_frequencies(const struct pl_rope *r, bool long_factors, double *out);
/* Rows [first, first+n) of the table: out[n, dim/2, 2] = cos, sin. freq: [dim/2]. */
void pl_rope_rows(const struct pl_rope *r, const double *freq, uint64_t first, uint64_t n,
                  float *out);

#endif
