/* gemm_part.c - how a row of sums becomes one of C. */
#include "runtime/kernels/cpu/gemm_part.h"

void PL_LEVEL_NAME(pl_gemm_finish_row)(const struct pl_gemm *g, uint64_t row, uint64_t col,
                                       uint64_t n, float *sums) {
    float buf[PL_GEMM_COLS];
    void *c = pl_at(&g->c, row, col);
    if (g->adds) {
        pl_widen(buf, c, g->c.dtype, n);
        for (uint64_t j = 0; j < n; j++)
            sums[j] += buf[j];
    }
    if (g->bias.p) {
        pl_widen(buf, pl_vector_at(&g->bias, col), g->bias.dtype, n);
        for (uint64_t j = 0; j < n; j++)
            sums[j] += buf[j];
    }
    pl_narrow(c, g->c.dtype, sums, n);
}
