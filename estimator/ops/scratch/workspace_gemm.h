/* workspace_gemm.h - scratch of a product that the planner and the CPU kernels share.
 *
 * The kernel asks with the rows of the call, the planner with the most rows possible: the room
 * grows with the dimension that they are (m, or with A transposed k), so a kernel cannot need more
 * than the plan gave it. It holds for a product and for its transpose, since the kernel chooses
 * between them. */
#ifndef PL_ESTIMATOR_OPS_SCRATCH_WORKSPACE_GEMM_H
#define PL_ESTIMATOR_OPS_SCRATCH_WORKSPACE_GEMM_H

#include "estimator/base/checked.h"
#include "estimator/card/traits.h"

#include <stdbool.h>

#define PL_GEMM_UNIT 48 /* rows and columns of a part: whole tiles of every level */
#define PL_GEMM_LINE 16 /* elements of a vector, of a cache line, and between blocks of k */

/* The kernel computes the transpose if C has few columns (with A transposed) or few rows. */
#define PL_GEMM_NARROW_COLS 32
#define PL_GEMM_FEW_ROWS    64

#define PL_FEW_ROWS 8 /* up to so many rows of A times B^T are not packed; A is laid out in fp32 */

/* C[m,n] = op(A)[m,k] op(B)[k,n], and which of the matrices are stored in fp32. */
struct pl_gemm_shape {
    uint64_t m, n, k;
    bool trans_a, trans_b, a_fp32, b_fp32, c_fp32;
};

/* Sizes in fp32 elements for one worker: a block of the left matrix, a panel of the right one, and
 * the sums of a part that tiles do not add to C. */
struct pl_gemm_room {
    uint64_t left, right, sums;
};

static inline uint64_t pl_gemm_whole(uint64_t x, uint64_t unit, uint64_t most) {
    return x < most ? pl_u64_round_up(x, unit) : most;
}

static inline uint64_t pl_gemm_sums(const struct pl_gemm_shape *s) {
    const uint64_t m = pl_gemm_whole(s->m, PL_GEMM_UNIT, PL_GEMM_ROWS);
    const uint64_t n = pl_gemm_whole(s->n, PL_GEMM_UNIT, PL_GEMM_ROWS);
    if (!s->c_fp32 || s->n % PL_GEMM_LINE)
        return pl_u64_max(m * pl_gemm_whole(s->n, PL_GEMM_UNIT, PL_GEMM_COLS),
                          n * pl_gemm_whole(s->m, PL_GEMM_UNIT, PL_GEMM_COLS));
    /* Only a transpose needs them. */
    if (s->trans_a)
        return s->n > PL_GEMM_NARROW_COLS ? 0 : n * pl_gemm_whole(s->m, PL_GEMM_UNIT, PL_GEMM_COLS);
    return s->trans_b ? n * pl_gemm_whole(PL_GEMM_FEW_ROWS, PL_GEMM_UNIT, PL_GEMM_COLS) : 0;
}

/* True if rows of the left matrix are numbers in fp32 with k along them: blocks of them are deeper,
 * so that they are read in longer stretches. The type of the other matrix has no say in it, as a
 * weight gives the same bits from bf16 and from fp32. */
static inline bool pl_gemm_is_deep(const struct pl_gemm_shape *s) {
    return !s->trans_a && s->a_fp32;
}

/* Returns the most numbers along k of a block, and rows of it where they are copied. */
static inline uint64_t pl_gemm_depth(const struct pl_gemm_shape *s) {
    return pl_gemm_is_deep(s) ? PL_GEMM_DEEP : PL_GEMM_DEPTH;
}
static inline uint64_t pl_gemm_rows(const struct pl_gemm_shape *s) {
    return pl_gemm_is_deep(s) ? PL_GEMM_DEEP_ROWS : PL_GEMM_ROWS;
}

/* True if rows of fp32 numbers lie whole pages apart. They then meet in a few sets of the caches
 * and are copied although they could be used in place: the products of a model 2,048 wide run 1.2
 * times as fast (bench_gemm). */
static inline bool pl_gemm_collides(const struct pl_gemm_shape *s) {
    return pl_gemm_is_deep(s) && s->k * sizeof(float) % 4096 == 0;
}

/* True if rows of the left matrix are copied. They are used in place if they are fp32 and k runs
 * along them; in the transpose of A times B^T that matrix is B. */
static inline bool pl_gemm_copies_left(const struct pl_gemm_shape *s) {
    return !pl_gemm_is_deep(s) || (s->trans_b && !s->b_fp32) || pl_gemm_collides(s);
}

static inline struct pl_gemm_room pl_gemm_room(const struct pl_gemm_shape *s) {
    const uint64_t depth = pl_gemm_whole(s->k, PL_GEMM_LINE, pl_gemm_depth(s));
    const uint64_t side = pl_gemm_whole(pl_u64_max(s->m, s->n), PL_GEMM_UNIT, pl_gemm_rows(s));
    return (struct pl_gemm_room){.left = pl_gemm_copies_left(s) ? side * (depth + PL_GEMM_PAD) : 0,
                                 .right = PL_GEMM_PANEL * depth,
                                 .sums = pl_gemm_sums(s)};
}

/* Returns the bytes for a few rows, for all workers together: the maximum over the vector lengths
 * of all levels. */
static inline uint64_t pl_few_rows_bytes(const struct pl_gemm_shape *s) {
    if (s->a_fp32 || !s->trans_b) return 0;
    return PL_FEW_ROWS * pl_gemm_whole(s->k, 64, UINT64_MAX) * sizeof(float);
}

static inline uint64_t pl_gemm_worker_bytes(const struct pl_gemm_room *r) {
    return sizeof(float) * (r->left + r->right + r->sums);
}

/* Returns the bytes of a worker for a part of any product of this shape or of a smaller one. */
static inline uint64_t pl_gemm_part_bytes(const struct pl_gemm_shape *s) {
    const struct pl_gemm_room room = pl_gemm_room(s);
    const uint64_t most = pl_u64_max(pl_gemm_worker_bytes(&room), pl_few_rows_bytes(s));
    return pl_u64_round_up(most, PL_GEMM_LINE * sizeof(float));
}

/* Returns the bytes of the list of tasks of a grouped product: the first task of every expert, and
 * the end. */
static inline uint64_t pl_grouped_list_bytes(uint64_t experts) {
    return pl_u64_round_up((experts + 1) * sizeof(uint32_t), PL_GEMM_LINE * sizeof(float));
}

#endif
