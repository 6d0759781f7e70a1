/* gemm_parts.h - the parts of a product that threads compute apart, and the bias they begin with.
 *
 * In: C[m,n] and the size of a part.  Out: how many there are, and rows and columns of each; the
 * last of a row or column is what is left.  Needs: gemm.h. */
#ifndef PL_RUNTIME_KERNELS_CPU_GEMM_PARTS_H
#define PL_RUNTIME_KERNELS_CPU_GEMM_PARTS_H

#include "runtime/kernels/cpu/gemm.h"

struct pl_gemm_cut {
    uint64_t m, n, k;
    uint64_t part_m, part_n; /* of one task */
};

/* Rows and columns of one task: C[m0:m0+rows, n0:n0+cols]. */
struct pl_gemm_part {
    uint64_t m0, rows, n0, cols;
};

static inline uint32_t pl_gemm_parts(const struct pl_gemm_cut *p) {
    return (uint32_t)(pl_u64_div_up(p->m, p->part_m) * pl_u64_div_up(p->n, p->part_n));
}

static inline struct pl_gemm_part pl_gemm_part_of(const struct pl_gemm_cut *p, uint32_t task) {
    const uint64_t parts_n = pl_u64_div_up(p->n, p->part_n);
    struct pl_gemm_part t = {.m0 = task / parts_n * p->part_m, .n0 = task % parts_n * p->part_n};
    t.rows = pl_u64_min(p->part_m, p->m - t.m0);
    t.cols = pl_u64_min(p->part_n, p->n - t.n0);
    return t;
}

/* Below this many multiply-adds waking a thread costs more than it brings. */
#define PL_GEMM_SERIAL (UINT64_C(1) << 17)

static inline bool pl_gemm_is_serial(const struct pl_gemm_cut *p) {
    return p->m * p->n < PL_GEMM_SERIAL / (p->k + 1);
}

/* C = bias, or C += bias, both fp32: the product then adds to it. */
static inline void pl_gemm_begin_with_bias(const struct pl_gemm *g, const struct pl_gemm_part *t) {
    const float *bias = pl_vector_at(&g->bias, t->n0);
    for (uint64_t i = 0; i < t->rows; i++) {
        float *restrict c = pl_at(&g->c, t->m0 + i, t->n0);
        if (!g->adds)
            memcpy(c, bias, t->cols * sizeof *c);
        else
            for (uint64_t j = 0; j < t->cols; j++)
                c[j] += bias[j];
    }
}

#endif
