/* grouped_call.h - which calls of GROUPED_* are sound, the same for every back-end, and the experts
 * of a call.
 *
 * In: the operands. Out: whether the kernels may run; a call that is not sound is a broken plan.
 *   C1  matrices are whole experts, attr.expert_rows rows each, and offsets has an end for each
 *   C2  both sides of a product agree on P, O and K
 * Where the rows of an expert lie, offsets says at run time, in the memory of the device. */
#ifndef PL_RUNTIME_KERNELS_GROUPED_CALL_H
#define PL_RUNTIME_KERNELS_GROUPED_CALL_H

#include "estimator/ops/call.h"

#include <stddef.h>

/* The experts of a call: n of them from number `first` on, with `rows` rows of W each. */
struct pl_experts {
    uint64_t first, n, rows;
};

/* of_rows: a matrix or a vector with attr.expert_rows rows for each expert. */
static inline struct pl_experts pl_experts_of(const struct pl_call *c,
                                              const struct pl_view *of_rows) {
    const uint64_t rows = c->attr->expert_rows;
    struct pl_experts e = {c->attr->first_expert, rows ? of_rows->rows / rows : 0, rows};
    return e;
}

/* C1. */
static inline bool pl_experts_are_sound(const struct pl_experts *e, const struct pl_view *of_rows,
                                        const struct pl_view *offsets) {
    return of_rows->rows == e->n * e->rows && offsets->dtype == PL_DTYPE_I32 &&
           offsets->rows > e->first && offsets->rows - e->first > e->n;
}

static inline bool pl_grouped_are_floats(const struct pl_view *a, const struct pl_view *b,
                                         const struct pl_view *c, const struct pl_view *bias) {
    return pl_dtype_is_float(a->dtype) && pl_dtype_is_float(b->dtype) &&
           pl_dtype_is_float(c->dtype) && (!bias || !bias->p || pl_dtype_is_float(bias->dtype));
}

/* in: x[P,K], W[E*O,K], offsets[E+1]i32, bias?[E*O]; out: y[P,O]. */
static inline bool pl_grouped_linear_is_sound(const struct pl_call *c) {
    const struct pl_view *x = &c->in[PL_GROUPED_LINEAR_X], *w = &c->in[PL_GROUPED_LINEAR_W];
    const struct pl_view *bias = &c->in[PL_GROUPED_LINEAR_BIAS];
    const struct pl_view *y = &c->out[PL_GROUPED_LINEAR_OUT_Y];
    const struct pl_experts e = pl_experts_of(c, w);
    return pl_experts_are_sound(&e, w, &c->in[PL_GROUPED_LINEAR_OFFSETS]) &&
           pl_grouped_are_floats(x, w, y, bias) && x->cols == w->cols && y->cols == e.rows &&
           x->rows == y->rows && (!bias->p || bias->rows == w->rows);
}

/* in: dy[P,O], W[E*O,K], offsets[E+1]i32, bias?[E*K]; out: dx[P,K]. */
static inline bool pl_grouped_linear_dx_is_sound(const struct pl_call *c) {
    const struct pl_view *dy = &c->in[PL_GROUPED_LINEAR_DX_DY], *w = &c->in[PL_GROUPED_LINEAR_DX_W];
    const struct pl_view *bias = &c->in[PL_GROUPED_LINEAR_DX_BIAS];
    const struct pl_view *dx = &c->out[PL_GROUPED_LINEAR_DX_OUT_DX];
    const struct pl_experts e = pl_experts_of(c, w);
    return pl_experts_are_sound(&e, w, &c->in[PL_GROUPED_LINEAR_DX_OFFSETS]) &&
           pl_grouped_are_floats(dy, w, dx, bias) && dy->cols == e.rows && dx->cols == w->cols &&
           dy->rows == dx->rows && (!bias->p || bias->rows == e.n * w->cols);
}

/* in: dy[P,O], x[P,K], offsets[E+1]i32; out: dW[E*O,K]. */
static inline bool pl_grouped_linear_dw_is_sound(const struct pl_call *c) {
    const struct pl_view *dy = &c->in[PL_GROUPED_LINEAR_DW_DY], *x = &c->in[PL_GROUPED_LINEAR_DW_X];
    const struct pl_view *dw = &c->out[PL_GROUPED_LINEAR_DW_OUT_DW];
    const struct pl_experts e = pl_experts_of(c, dw);
    return pl_experts_are_sound(&e, dw, &c->in[PL_GROUPED_LINEAR_DW_OFFSETS]) &&
           pl_grouped_are_floats(dy, x, dw, NULL) && dy->cols == e.rows && dw->cols == x->cols &&
           dy->rows == x->rows;
}

/* in: dy[P,O], offsets[E+1]i32; out: db[E*O]. */
static inline bool pl_grouped_bias_grad_is_sound(const struct pl_call *c) {
    const struct pl_view *dy = &c->in[PL_GROUPED_BIAS_GRAD_DY];
    const struct pl_view *db = &c->out[PL_GROUPED_BIAS_GRAD_OUT_DB];
    const struct pl_experts e = pl_experts_of(c, db);
    return pl_experts_are_sound(&e, db, &c->in[PL_GROUPED_BIAS_GRAD_OFFSETS]) &&
           pl_dtype_is_float(dy->dtype) && pl_dtype_is_float(db->dtype) && dy->cols == e.rows;
}

#endif
