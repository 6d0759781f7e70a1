/* workspace_attention.h - scratch layout that the planner and the attention kernels share.
 *
 * Both sides add up the same rows, so a kernel cannot need more than the plan gave it. Counts are
 * in floats and multiples of 16, so every part keeps the alignment of the workspace. */
#ifndef PL_ESTIMATOR_OPS_SCRATCH_WORKSPACE_ATTENTION_H
#define PL_ESTIMATOR_OPS_SCRATCH_WORKSPACE_ATTENTION_H

#include "estimator/base/checked.h"
#include "estimator/card/traits.h"

#include <stdint.h>

#define PL_ATTENTION_PAD 16 /* columns of a packed head: one 512-bit vector of fp32 */

/* Rows of a norm, a loss or a router that form one partial sum, whatever the number of threads. */
#define PL_PARTIAL_ROWS 64

static inline uint64_t pl_attention_padded(uint64_t head_dim) {
    return pl_u64_round_up(head_dim, PL_ATTENTION_PAD);
}

/* Returns the floats of delta[N,H] in the backward pass. */
static inline uint64_t pl_attention_delta_floats(uint64_t tokens, uint64_t heads) {
    return pl_u64_round_up(tokens * heads, PL_ATTENTION_PAD);
}

/* Parts of one worker's scratch. Dp = padded head size. X(name, floats) */
#define PL_ATTENTION_FWD_PARTS(X, Dp)                                                              \
    X(qt, PL_ATTENTION_QUERIES *(Dp))                                                              \
    X(k, PL_ATTENTION_KEYS *(Dp))                                                                  \
    X(v, PL_ATTENTION_KEYS *(Dp))                                                                  \
    X(scores, PL_ATTENTION_KEYS *PL_ATTENTION_QUERIES)                                             \
    X(o, PL_ATTENTION_QUERIES *(Dp))                                                               \
    X(max, PL_ATTENTION_QUERIES)                                                                   \
    X(sum, PL_ATTENTION_QUERIES)                                                                   \
    X(keep, PL_ATTENTION_QUERIES)

#define PL_ATTENTION_BWD_PARTS(X, Dp)                                                              \
    X(q, PL_ATTENTION_QUERIES *(Dp))                                                               \
    X(qt, PL_ATTENTION_QUERIES *(Dp))                                                              \
    X(go, PL_ATTENTION_QUERIES *(Dp))                                                              \
    X(got, PL_ATTENTION_QUERIES *(Dp))                                                             \
    X(k, PL_ATTENTION_KEYS *(Dp))                                                                  \
    X(v, PL_ATTENTION_KEYS *(Dp))                                                                  \
    X(p, PL_ATTENTION_KEYS *PL_ATTENTION_QUERIES)                                                  \
    X(ds, PL_ATTENTION_KEYS *PL_ATTENTION_QUERIES)                                                 \
    X(dq, PL_ATTENTION_QUERIES *(Dp))                                                              \
    X(dq_sum, PL_ATTENTION_QUERIES *(Dp))                                                          \
    X(dk, PL_ATTENTION_KEYS *(Dp))                                                                 \
    X(dv, PL_ATTENTION_KEYS *(Dp))                                                                 \
    X(lse, PL_ATTENTION_QUERIES)                                                                   \
    X(delta, PL_ATTENTION_QUERIES)

#endif
