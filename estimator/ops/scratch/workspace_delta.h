/* workspace_delta.h - layouts that the planner and the kernels of the gated delta rule share.
 *
 * Counts are in floats and multiples of 16, so every part keeps the alignment of the workspace. */
#ifndef PL_ESTIMATOR_OPS_SCRATCH_WORKSPACE_DELTA_H
#define PL_ESTIMATOR_OPS_SCRATCH_WORKSPACE_DELTA_H

#include "estimator/base/checked.h"

#include <stdint.h>

#define PL_DELTA_CHUNK 64 /* tokens from one kept state to the next */
#define PL_DELTA_COLS  32 /* columns of a state that a walk of the CPU has */
#define PL_DELTA_EPS   1e-6f

/* Blocks of a GPU that share the sequences of a head of keys in the backward pass. */
#define PL_CUDA_DELTA_BLOCKS 8

/* The row of the state before a chunk of a sequence that begins at row `start`. It is a macro, as
 * the next one is, since code of a GPU calls no functions of the host. */
#define PL_DELTA_ROW_OF(start, seq, chunk) ((start) / PL_DELTA_CHUNK + (seq) + (chunk))

/* The room of a part: floats, rounded up to a multiple of 16. */
#define PL_DELTA_ROOM(floats) (((uint64_t)(floats) + 15) / 16 * 16)

/* Returns the rows of states that any lengths of so many sequences can need: the parts of sequences
 * that are no whole chunks add a row each. */
static inline uint64_t pl_delta_rows(uint64_t tokens, uint64_t seqs) {
    return tokens / PL_DELTA_CHUNK + seqs;
}

/* Returns the floats of a walk of the forward pass: its columns of the state, a query, two keys. */
static inline uint64_t pl_delta_walk_floats(uint64_t key_dim) {
    return pl_u64_round_up(key_dim * (PL_DELTA_COLS + 3), 16);
}

/* Parts of a worker of the CPU in the backward pass. X(name, floats) */
#define PL_DELTA_BWD_PARTS(X, dk, dim, group)                                                      \
    X(history, (PL_DELTA_CHUNK + 1) * (dk)*PL_DELTA_COLS)                                          \
    X(ds, (group) * (dk)*pl_u64_round_up(dim, PL_DELTA_COLS))                                      \
    X(q, PL_DELTA_CHUNK *(dk))                                                                     \
    X(k, PL_DELTA_CHUNK *(dk))                                                                     \
    X(gq, PL_DELTA_CHUNK *(dk))                                                                    \
    X(gk, PL_DELTA_CHUNK *(dk))                                                                    \
    X(rest, PL_DELTA_CHUNK *PL_DELTA_COLS)

/* Parts of a block of a GPU in the backward pass. */
#define PL_CUDA_DELTA_PARTS(X, dk, dim, group)                                                     \
    X(ds, (group) * (dk) * (dim))                                                                  \
    X(q, PL_DELTA_CHUNK *(dk))                                                                     \
    X(k, PL_DELTA_CHUNK *(dk))                                                                     \
    X(gq, PL_DELTA_CHUNK *(dk))                                                                    \
    X(gk, PL_DELTA_CHUNK *(dk))                                                                    \
    X(first, PL_DELTA_CHUNK *(dk))                                                                 \
    X(last, PL_DELTA_CHUNK *(dk))                                                                  \
    X(rest, PL_DELTA_CHUNK *(dim))                                                                 \
    X(du, PL_DELTA_CHUNK *(dim))                                                                   \
    X(kk, PL_DELTA_CHUNK *PL_DELTA_CHUNK)                                                          \
    X(qk, PL_DELTA_CHUNK *PL_DELTA_CHUNK)                                                          \
    X(p, PL_DELTA_CHUNK *PL_DELTA_CHUNK)                                                           \
    X(e, PL_DELTA_CHUNK *PL_DELTA_CHUNK)

/* Returns the floats of what every token leaves for dA_log and ddt_bias: two numbers a head. */
static inline uint64_t pl_delta_token_floats(uint64_t tokens, uint64_t heads) {
    return pl_u64_round_up(2 * tokens * heads, 16);
}

#endif
