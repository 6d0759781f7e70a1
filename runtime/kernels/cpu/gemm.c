/* gemm.c - products of fp32, by OpenBLAS on single-threaded parts; the others have kernels of their
 * own. */
#include "runtime/kernels/cpu/gemm.h"

#include <limits.h>

struct product {
    const struct pl_gemm *g;
    pl_sgemm_fn sgemm;
    uint64_t m, n, k;
    uint64_t part_m, part_n; /* of one task */
    uint64_t parts_n;        /* tasks along n */
    uint64_t depth;          /* of the panels */
};

/* Rows and columns of one task: C[m0:m0+rows, n0:n0+cols]. */
struct part {
    uint64_t m0, rows, n0, cols;
};

static struct part part_of(const struct product *p, uint32_t task) {
    struct part t = {.m0 = task / p->parts_n * p->part_m, .n0 = task % p->parts_n * p->part_n};
    t.rows = pl_u64_min(p->part_m, p->m - t.m0);
    t.cols = pl_u64_min(p->part_n, p->n - t.n0);
    return t;
}

static uint32_t n_parts(const struct product *p) {
    return (uint32_t)(pl_u64_div_up(p->m, p->part_m) * p->parts_n);
}

/* Size of the equal parts that `whole` splits into when none may exceed `limit`; multiples of 16
 * keep every part but the last on whole vectors. */
static uint64_t even_part(uint64_t whole, uint64_t limit) {
    uint64_t parts = pl_u64_div_up(whole, limit);
    return (pl_u64_div_up(whole, parts) + 15) & ~UINT64_C(15);
}

/* ---- fp32 ---- */

/* Below this many multiply-adds waking a thread costs more than it brings. */
#define SERIAL_PRODUCT (UINT64_C(1) << 17)

/* With few rows of x, copying the weights into its own layout is most of what OpenBLAS does. It
 * leaves that out for small products (on AVX-512 below 8e5 multiply-adds): twice as fast at 8
 * rows. */
#define FEW_ROWS         16
#define UNPACKED_PRODUCT UINT64_C(500000)

static void split_fp32(struct product *p, uint32_t threads) {
    bool serial = p->m * p->n < SERIAL_PRODUCT / (p->k + 1);
    p->part_m = p->m;
    p->part_n = p->n;
    if (serial) return;
    if (p->m <= FEW_ROWS && p->g->trans_b)
        p->part_n = pl_u64_max(UNPACKED_PRODUCT / (p->m * p->k) & ~UINT64_C(15), 16);
    else if (p->n >= p->m)
        p->part_n = even_part(p->n, pl_u64_div_up(p->n, threads));
    else
        p->part_m = even_part(p->m, pl_u64_div_up(p->m, threads));
}

/* c = bias, or c += bias: the product then adds to it. */
static void begin_with_bias(float *c, const float *bias, uint64_t n, bool adds) {
    if (!adds)
        memcpy(c, bias, n * sizeof *c);
    else
        for (uint64_t j = 0; j < n; j++)
            c[j] += bias[j];
}

static void part_fp32(void *arg, uint32_t task, uint32_t worker) {
    const struct product *p = arg;
    const struct pl_gemm *g = p->g;
    struct part t = part_of(p, task);
    const float *a = pl_at(&g->a, g->trans_a ? 0 : t.m0, g->trans_a ? t.m0 : 0);
    const float *b = pl_at(&g->b, g->trans_b ? t.n0 : 0, g->trans_b ? 0 : t.n0);
    float *c = pl_at(&g->c, t.m0, t.n0);
    (void)worker;
    if (g->bias.p)
        for (uint64_t i = 0; i < t.rows; i++)
            begin_with_bias(c + i * g->c.ld, pl_vector_at(&g->bias, t.n0), t.cols, g->adds);
    p->sgemm(g->trans_a, g->trans_b, (int)t.rows, (int)t.cols, (int)p->k, g->alpha, a, (int)g->a.ld,
             b, (int)g->b.ld, g->adds || g->bias.p ? 1.0f : 0.0f, c, (int)g->c.ld);
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
    struct product p = {.g = g, .sgemm = cpu->sgemm, .m = g->c.rows, .n = g->c.cols};
    p.k = g->trans_a ? g->a.rows : g->a.cols;
    if (p.m == 0 || p.n == 0) return PL_ERR_OK;
    if (!fits_blas(&g->a) || !fits_blas(&g->b) || !fits_blas(&g->c)) return PL_ERR_OVERFLOW;
    if (p.k > 0 && PL_LEVEL_NAME(pl_cpu_has_few_rows)(g)) {
        PL_LEVEL_NAME(pl_cpu_few_rows)(dev, g);
        return PL_ERR_OK;
    }
    if (p.k == 0 || !is_fp32(g)) return PL_LEVEL_NAME(pl_cpu_gemm_mixed)(dev, g);
    split_fp32(&p, pl_pool_threads(cpu->pool));
    p.parts_n = pl_u64_div_up(p.n, p.part_n);
    pl_pool_run(cpu->pool, n_parts(&p), part_fp32, &p);
    return PL_ERR_OK;
}
