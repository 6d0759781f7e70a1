/* gemm_part.h - a product, how it is computed, and the part of it that a task computes.
 *
 * gemm.c cuts a product into parts; gemm_blocks.c computes a part by vectors, gemm_amx.c by AMX. */
#ifndef PL_RUNTIME_KERNELS_CPU_GEMM_PART_H
#define PL_RUNTIME_KERNELS_CPU_GEMM_PART_H

#include "estimator/ops/scratch/workspace_gemm.h"
#include "runtime/kernels/cpu/simd.h"

/* C[m,n] = alpha * op(A)[m,k] op(B)[k,n] + (adds ? C : 0) + bias[n], where op transposes when
 * trans_* is set. m and n are C's rows and cols, k the other dimension of A. bias may be absent.
 * Operands are of any float types; sums are fp32 over the whole of k, rounded once. Products of two
 * bf16 numbers are exact in fp32, so a level that multiplies them as they are (PL_HAS_PAIRS) only
 * adds them in another order.
 * streams: C is much larger than the caches, so it is written past them where that can be done.
 * ws: pl_product_workspace_bytes().
 * The bits depend on the shape and the level only, never on threads. */
struct pl_gemm {
    bool trans_a, trans_b, adds, streams;
    float alpha;
    struct pl_view a, b, c, bias, ws;
};

/* Returns what the rooms of a product are computed from, as in the plan. */
static inline struct pl_gemm_shape pl_gemm_shape_of(const struct pl_gemm *g) {
    return (struct pl_gemm_shape){.m = g->c.rows,
                                  .n = g->c.cols,
                                  .k = g->trans_a ? g->a.rows : g->a.cols,
                                  .trans_a = g->trans_a,
                                  .trans_b = g->trans_b,
                                  .a_fp32 = g->a.dtype == PL_DTYPE_F32,
                                  .b_fp32 = g->b.dtype == PL_DTYPE_F32,
                                  .c_fp32 = g->c.dtype == PL_DTYPE_F32};
}

struct pl_product {
    const struct pl_gemm *g;
    uint64_t m, n, k;
    uint64_t part_m, part_n; /* of one task */
    uint64_t parts_n;        /* tasks along n */
    uint64_t depth;          /* of a block, in elements */
    struct pl_gemm_room room;
    bool turned;  /* computes the transpose of C */
    bool direct;  /* tiles write to C */
    bool rounds;  /* tiles round to C, which is bf16 */
    bool streams; /* whole lines of C past the caches */
    bool pairs;   /* of bf16 */
    bool amx;     /* multiplies them */
    bool copied;  /* rows of A are, wherever they lie, for vectors */
};

/* Rows and columns of one task: C[m0:m0+rows, n0:n0+cols]. */
struct pl_part {
    uint64_t m0, rows, n0, cols;
};

struct pl_gemm_scratch { /* of a worker */
    float *left, *right, *sums;
};

/* ---- AMX ----
 *
 * A panel of the most numbers along k leaves a quarter of a first cache of 48 KiB to others. */
enum {
    PL_AMX_STEP = 32,   /* numbers along k of a multiplication */
    PL_AMX_COLS = 32,   /* of a panel */
    PL_AMX_ROWS = 32,   /* that pass over it together */
    PL_AMX_DEPTH = 576, /* numbers along k of a block, at most */
    PL_AMX_PANELS = 8,  /* of a group, at most */
};

/* True if copies of the rows of A are multiplied: they are used where they lie if k runs along them
 * in whole steps, and unless too many of them lie in one set of the first cache. */
static inline bool pl_amx_copies(const struct pl_product *p) {
    enum { FEW_SETS = 2048 }; /* bytes between rows of which a set has more than it can hold */
    return p->g->trans_a || p->k % PL_AMX_STEP || p->g->a.ld * sizeof(uint16_t) % FEW_SETS == 0;
}
/* Numbers of the scratch that a copy of a row and a panel take. */
static inline uint64_t pl_amx_row_size(uint64_t depth) {
    return pl_u64_round_up(depth, PL_AMX_STEP) / 2 + PL_GEMM_PAD;
}
static inline uint64_t pl_amx_panel_size(uint64_t depth) {
    return pl_u64_round_up(depth, PL_AMX_STEP) / 2 * PL_AMX_COLS;
}
/* The most rows of a part whose copies leave room for groups of half as many panels, at least 16:
 * so many have room next to two panels whatever the product. */
static inline uint64_t pl_amx_rows(const struct pl_product *p) {
    const uint64_t panels = pl_u64_min(pl_u64_div_up(p->n, PL_AMX_COLS), PL_AMX_PANELS / 2);
    const uint64_t room = p->room.left + p->room.right, size = pl_amx_panel_size(p->depth);
    const uint64_t rows = (room - pl_u64_min(room, 2 * panels * size)) / pl_amx_row_size(p->depth);
    return rows < PL_AMX_ROWS ? PL_AMX_ROWS / 2 : rows / PL_AMX_ROWS * PL_AMX_ROWS;
}

/* C[row, col:col+n] = sums (+ C) (+ bias), rounded once. */
void PL_LEVEL_NAME(pl_gemm_finish_row)(const struct pl_gemm *g, uint64_t row, uint64_t col,
                                       uint64_t n, float *sums);

/* Both compute a part but for the bias of a direct product, and what is left to do for the
 * transpose of C. */
void PL_LEVEL_NAME(pl_gemm_blocks)(const struct pl_product *p, const struct pl_part *t,
                                   const struct pl_gemm_scratch *s);
void PL_LEVEL_NAME(pl_gemm_amx)(const struct pl_product *p, const struct pl_part *t,
                                const struct pl_gemm_scratch *s);

#endif
