/* gemm.c - products of fp32, by OpenBLAS on single-threaded parts; the others have kernels of their
 * own. */
#include "runtime/kernels/cpu/gemm_parts.h"

#include <limits.h>

struct product {
    const struct pl_gemm *g;
    pl_sgemm_fn sgemm;
    struct pl_gemm_cut cut;
};

/* Size of the equal parts that `whole` splits into when none may exceed `limit`; multiples of 16
 * keep every part but the last on whole vectors. */
static uint64_t even_part(uint64_t whole, uint64_t limit) {
    uint64_t parts = pl_u64_div_up(whole, limit);
    return (pl_u64_div_up(whole, parts) + 15) & ~UINT64_C(15);
}

/* ---- fp32 ---- */

/* With few rows of x, copying the weights into its own layout is most of what OpenBLAS does. It
 * leaves that out for small products (on AVX-512 below 8e5 multiply-adds): twice as fast at 8
 * rows. */
#define FEW_ROWS         16
#define UNPACKED_PRODUCT UINT64_C(500000)

static void split_fp32(struct pl_gemm_cut *p, bool trans_b, uint32_t threads) {
    p->part_m = p->m;
    p->part_n = p->n;
    if (pl_gemm_is_serial(p)) return;
    if (p->m <= FEW_ROWS && trans_b)
        p->part_n = pl_u64_max(UNPACKED_PRODUCT / (p->m * p->k) & ~UINT64_C(15), 16);
    else if (p->n >= p->m)
        p->part_n = even_part(p->n, pl_u64_div_up(p->n, threads));
    else
        p->part_m = even_part(p->m, pl_u64_div_up(p->m, threads));
}

static void part_fp32(void *arg, uint32_t task, uint32_t worker) {
    const struct product *p = arg;
    const struct pl_gemm *g = p->g;
    const struct pl_gemm_part t = pl_gemm_part_of(&p->cut, task);
    const float *a = pl_at(&g->a, g->trans_a ? 0 : t.m0, g->trans_a ? t.m0 : 0);
    const float *b = pl_at(&g->b, g->trans_b ? t.n0 : 0, g->trans_b ? 0 : t.n0);
    float *c = pl_at(&g->c, t.m0, t.n0);
    (void)worker;
    if (g->bias.p) pl_gemm_begin_with_bias(g, &t);
    p->sgemm(g->trans_a, g->trans_b, (int)t.rows, (int)t.cols, (int)p->cut.k, g->alpha, a,
             (int)g->a.ld, b, (int)g->b.ld, g->adds || g->bias.p ? 1.0f : 0.0f, c, (int)g->c.ld);
}

static bool is_fp32(const struct pl_gemm *g) {
    return g->a.dtype == PL_DTYPE_F32 && g->b.dtype == PL_DTYPE_F32 && g->c.dtype == PL_DTYPE_F32 &&
           (!g->bias.p || g->bias.dtype == PL_DTYPE_F32);
}

static bool fits_blas(const struct pl_view *v) {
    return v->rows <= INT_MAX && v->cols <= INT_MAX && v->ld <= INT_MAX;
}

pl_err PL_LEVEL_NAME(pl_cpu_gemm)(struct pl_device *dev, const struct pl_gemm *g) {
    const struct pl_cpu *cpu = pl_cpu_of(dev);
    struct product p = {
        .g = g,
        .sgemm = cpu->sgemm,
        .cut = {.m = g->c.rows, .n = g->c.cols, .k = g->trans_a ? g->a.rows : g->a.cols}};
    if (p.cut.m == 0 || p.cut.n == 0) return PL_ERR_OK;
    if (!fits_blas(&g->a) || !fits_blas(&g->b) || !fits_blas(&g->c)) return PL_ERR_OVERFLOW;
    if (p.cut.k > 0 && PL_LEVEL_NAME(pl_cpu_has_few_rows)(g)) {
        PL_LEVEL_NAME(pl_cpu_few_rows)(dev, g);
        return PL_ERR_OK;
    }
    if (p.cut.k == 0 || !is_fp32(g)) return PL_LEVEL_NAME(pl_cpu_gemm_mixed)(dev, g);
    split_fp32(&p.cut, g->trans_b, pl_pool_threads(cpu->pool));
    pl_pool_run(cpu->pool, pl_gemm_parts(&p.cut), part_fp32, &p);
    return PL_ERR_OK;
}
