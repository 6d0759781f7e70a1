/* copy.c - COPY_IN, COPY_OUT: on the CPU both sides are the same memory, so a copy is a copy. */
#include "runtime/kernels/cpu/simd.h"

struct rows {
    struct pl_view from, to;
};

static void copy_rows(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    const struct rows *r = arg;
    uint64_t bytes = pl_dtype_bytes(r->to.dtype), width = r->to.cols * bytes;
    (void)worker;
    for (uint64_t i = row0; i < row1; i++)
        memcpy((char *)r->to.p + i * r->to.ld * bytes, (char *)r->from.p + i * r->from.ld * bytes,
               width);
}

/* A vector has rows of one element: as one row it is one copy. */
static struct pl_view in_one_piece(struct pl_view v) {
    if (v.ld != v.cols) return v;
    v.cols = v.ld = v.rows * v.cols;
    v.rows = 1;
    return v;
}

/* in: src[..]; out: dst[..]. */
static pl_err copy(struct pl_device *dev, const struct pl_call *c) {
    struct rows r = {.from = c->in[PL_COPY_IN_SRC], .to = c->out[PL_COPY_IN_OUT_DST]};
    if (c->attr->not_first && c->batch->first) return PL_ERR_OK;
    if (r.from.rows != r.to.rows || r.from.cols != r.to.cols || r.from.dtype != r.to.dtype)
        return PL_ERR_PLAN_BROKEN;
    if (r.from.ld == r.from.cols && r.to.ld == r.to.cols && r.to.cols == 1) {
        r.from = in_one_piece(r.from);
        r.to = in_one_piece(r.to);
    }
    pl_cpu_rows(dev, r.to.rows, pl_cpu_grain(r.to.cols), copy_rows, &r);
    return PL_ERR_OK;
}

pl_err PL_CPU(copy_in)(struct pl_device *dev, const struct pl_call *c) {
    return copy(dev, c);
}

pl_err PL_CPU(copy_out)(struct pl_device *dev, const struct pl_call *c) {
    return copy(dev, c);
}
