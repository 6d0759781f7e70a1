/* squares.h - a SQUARE_SUM of several blocks as one of each block, the same on every back-end.
 *
 * In: a call.  Out: its blocks, as calls with one partial each and scratch of their own. */
#ifndef PL_RUNTIME_KERNELS_SQUARES_H
#define PL_RUNTIME_KERNELS_SQUARES_H

#include "estimator/base/checked.h"
#include "estimator/ops/call.h"

/* 0 of a matrix without rows, whose one block has the sum 0. */
static inline uint64_t pl_square_block_rows(const struct pl_call *c) {
    const uint64_t rows = c->in[PL_SQUARE_SUM_G].rows;
    return c->attr->block_rows ? pl_u64_min(c->attr->block_rows, rows) : rows;
}

static inline uint64_t pl_square_blocks(const struct pl_call *c) {
    const uint64_t rows = c->in[PL_SQUARE_SUM_G].rows;
    return rows ? pl_u64_div_up(rows, pl_square_block_rows(c)) : 1;
}

/* Block i; scratch_bytes: of one block at most. attr must outlive the result. */
static inline struct pl_call pl_square_block(const struct pl_call *c, uint64_t i,
                                             uint64_t scratch_bytes, const struct pl_attr *attr) {
    struct pl_call one = *c;
    struct pl_view *g = &one.in[PL_SQUARE_SUM_G], *ws = &one.in[PL_SQUARE_SUM_WS];
    struct pl_view *partial = &one.out[PL_SQUARE_SUM_OUT_PARTIAL];
    const uint64_t block = pl_square_block_rows(c);
    g->p = (char *)g->p + i * block * g->ld * pl_dtype_bytes(g->dtype);
    g->rows = pl_u64_min(block, g->rows - i * block);
    ws->p = (char *)ws->p + i * scratch_bytes;
    ws->rows = scratch_bytes;
    partial->p = (double *)partial->p + i;
    partial->rows = 1;
    one.in[PL_SQUARE_SUM_PARTIAL] = *partial;
    one.attr = attr;
    return one;
}

#endif
