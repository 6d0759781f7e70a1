/* rope_table.h - cos and sin of every position, computed once in double precision.
 * Sources: Su et al. 2104.09864 (default), linear interpolation 2306.15595, llama3 scaling as in
 * Meta's Llama 3.1 reference, YaRN 2309.00071 and LongRoPE 2402.13753 as transformers applies
 * them; dynamic: NTK-aware scaling, the base grown with the sequence; queries that grow with their
 * position: Ministral3Attention of transformers. */
#ifndef PL_RUNTIME_SESSION_ROPE_TABLE_H
#define PL_RUNTIME_SESSION_ROPE_TABLE_H

#include "estimator/model/model.h"

#include <stdbool.h>

/* Returns the length whose frequencies turn a micro-batch with a sequence so long; 0: those that
 * are the same for every length, of the first table. */
uint64_t pl_rope_length(const struct pl_rope *r, uint64_t longest);
/* Writes the frequencies of the dim/2 pairs for such a length, radians a position. */
void pl_rope_frequencies(const struct pl_rope *r, uint64_t length, double *out);
/* Writes rows [first, first+n) of the table: out[n, dim/2, 2] = cos, sin. freq: [dim/2].
 * of_queries: times what queries grow by. */
void pl_rope_rows(const struct pl_rope *r, const double *freq, bool of_queries, uint64_t first,
                  uint64_t n, float *out);

#endif
