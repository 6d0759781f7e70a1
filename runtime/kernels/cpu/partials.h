/* partials.h - the gradient of a vector from the partial sums of chunks of rows.
 *
 * Partial sums are fp32 and are added in double, in order: threads do not matter.
 * Use: pl_cpu_rows(dev, partials.cols, PL_CHUNK, pl_sum_partials, &partials); */
#ifndef PL_RUNTIME_KERNELS_CPU_PARTIALS_H
#define PL_RUNTIME_KERNELS_CPU_PARTIALS_H

#include "runtime/kernels/cpu/chunk.h"

struct pl_partials {
    const float *sums; /* [chunks,cols] */
    uint64_t chunks, cols;
    struct pl_view out; /* [cols] */
    bool adds;          /* to what out holds */
};

/* Columns [col0, col1) of out, at most PL_CHUNK; arg is a struct pl_partials. */
static void pl_sum_partials(void *arg, uint64_t col0, uint64_t col1, uint32_t worker) {
    const struct pl_partials *t = arg;
    const uint64_t n = col1 - col0;
    double sum[PL_CHUNK] = {0};
    float x[PL_CHUNK] = {0};
    void *out = pl_at(&t->out, col0, 0);
    (void)worker;
    if (t->adds) pl_widen(x, out, t->out.dtype, n);
    for (uint64_t k = 0; k < t->chunks; k++)
        for (uint64_t i = 0; i < n; i++)
            sum[i] += (double)t->sums[k * t->cols + col0 + i];
    for (uint64_t i = 0; i < n; i++)
        x[i] = (float)((double)x[i] + sum[i]);
    pl_narrow(out, t->out.dtype, x, n);
}

#endif
