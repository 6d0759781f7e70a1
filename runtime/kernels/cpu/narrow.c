/* narrow.c - NARROW: a matrix in another type, in some of the columns of a wider one. */
#include "runtime/kernels/cpu/chunk.h"

struct copy {
    struct pl_view x, y;
    uint64_t from; /* column of y at which x begins */
};

/* Elements [c, c + n) of a row of y. */
static void fill_chunk(const struct copy *t, uint64_t row, uint64_t c, uint64_t n, float *y) {
    const uint64_t first = pl_u64_max(c, t->from);
    const uint64_t end = pl_u64_min(c + n, t->from + t->x.cols);
    memset(y, 0, n * sizeof *y);
    if (first < end)
        pl_widen(y + (first - c), pl_at(&t->x, row, first - t->from), t->x.dtype, end - first);
}

static void copy_rows(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    const struct copy *t = arg;
    float buf[PL_CHUNK];
    (void)worker;
    for (uint64_t row = row0; row < row1; row++)
        for (uint64_t c = 0, n; c < t->y.cols; c += n) {
            n = pl_chunk_size(t->y.cols, c);
            float *y = pl_chunk_out(&t->y, row, c, buf);
            fill_chunk(t, row, c, n, y);
            pl_chunk_store(&t->y, row, c, n, y);
        }
}

/* in: x[O,K]; out: y[O,C]. */
pl_err PL_CPU(narrow)(struct pl_device *dev, const struct pl_call *c) {
    struct copy t = {c->in[PL_NARROW_X], c->out[PL_NARROW_OUT_Y], c->attr->first_element};
    if (t.x.rows != t.y.rows || t.from > t.y.cols || t.x.cols > t.y.cols - t.from)
        return PL_ERR_PLAN_BROKEN;
    pl_cpu_rows(dev, t.y.rows, pl_cpu_grain(t.y.cols), copy_rows, &t);
    return PL_ERR_OK;
}
