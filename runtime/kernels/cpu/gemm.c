/* gemm.c - products, by OpenBLAS on single-threaded parts. */
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

/* ---- any operand in bf16 ---- */

/* Tasks that let threads even out; smaller tiles than 64 widen too much for each multiply. */
#define ENOUGH_TILES  8
#define SMALLEST_TILE 128

/* By shape alone, so that results do not depend on the thread count. */
static void split_widening(struct product *p) {
    uint64_t limit_m = PL_GEMM_ROWS, limit_n = PL_GEMM_COLS;
    p->depth = even_part(p->k, PL_GEMM_DEPTH);
    for (;;) {
        p->part_m = even_part(p->m, limit_m);
        p->part_n = even_part(p->n, limit_n);
        uint64_t tiles = pl_u64_div_up(p->m, p->part_m) * pl_u64_div_up(p->n, p->part_n);
        if (tiles >= ENOUGH_TILES || (p->part_m <= SMALLEST_TILE && p->part_n <= SMALLEST_TILE))
            return;
        if (p->part_n >= p->part_m)
            limit_n = p->part_n / 2;
        else
            limit_m = p->part_m / 2;
    }
}

struct block { /* an fp32 matrix as sgemm takes it */
    const float *p;
    uint64_t ld;
};

/* Rows [row0, +rows) x columns [col0, +cols) of v: itself when fp32, else widened into panel. */
static struct block widen_block(const struct pl_view *v, uint64_t row0, uint64_t rows,
                                uint64_t col0, uint64_t cols, float *panel) {
    if (v->dtype == PL_DTYPE_F32) return (struct block){pl_at(v, row0, col0), v->ld};
    uint64_t ld = cols + PL_GEMM_PAD;
    for (uint64_t i = 0; i < rows; i++)
        pl_widen(panel + i * ld, pl_at(v, row0 + i, col0), v->dtype, cols);
    return (struct block){panel, ld};
}

/* The stored block of op(X)[side0 : side0+side, k0 : k0+depth]. */
static struct block operand_block(const struct pl_view *v, bool k_first, uint64_t side0,
                                  uint64_t side, uint64_t k0, uint64_t depth, float *panel) {
    return k_first ? widen_block(v, k0, depth, side0, side, panel)
                   : widen_block(v, side0, side, k0, depth, panel);
}

/* row of C = sums (+ C) (+ bias), rounded once. */
static void finish_row(const struct pl_gemm *g, uint64_t row, const struct part *t, float *sums) {
    float buf[PL_GEMM_COLS];
    void *c = pl_at(&g->c, row, t->n0);
    if (g->adds) {
        pl_widen(buf, c, g->c.dtype, t->cols);
        for (uint64_t j = 0; j < t->cols; j++)
            sums[j] += buf[j];
    }
    if (g->bias.p) {
        pl_widen(buf, pl_vector_at(&g->bias, t->n0), g->bias.dtype, t->cols);
        for (uint64_t j = 0; j < t->cols; j++)
            sums[j] += buf[j];
    }
    pl_narrow(c, g->c.dtype, sums, t->cols);
}

static void part_widening(void *arg, uint32_t task, uint32_t worker) {
    const struct product *p = arg;
    const struct pl_gemm *g = p->g;
    struct part t = part_of(p, task);
    float *panel_a = (float *)((char *)g->ws.p + worker * PL_GEMM_WORKER_BYTES);
    float *panel_b = panel_a + PL_GEMM_PANEL_ELEMENTS(PL_GEMM_ROWS);
    float *sums = panel_b + PL_GEMM_PANEL_ELEMENTS(PL_GEMM_COLS);
    const uint64_t ld = PL_GEMM_COLS + PL_GEMM_PAD;
    for (uint64_t k0 = 0; k0 < p->k; k0 += p->depth) {
        uint64_t depth = pl_u64_min(p->depth, p->k - k0);
        struct block a = operand_block(&g->a, g->trans_a, t.m0, t.rows, k0, depth, panel_a);
        struct block b = operand_block(&g->b, !g->trans_b, t.n0, t.cols, k0, depth, panel_b);
        p->sgemm(g->trans_a, g->trans_b, (int)t.rows, (int)t.cols, (int)depth, g->alpha, a.p,
                 (int)a.ld, b.p, (int)b.ld, k0 ? 1.0f : 0.0f, sums, (int)ld);
    }
    for (uint64_t i = 0; i < t.rows; i++)
        finish_row(g, t.m0 + i, &t, sums + i * ld);
}

/* ---- both ---- */

/* No terms to sum: C = bias, or C stays. */
static void no_depth(const struct pl_gemm *g) {
    struct part t = {.rows = g->c.rows};
    float sums[PL_GEMM_COLS];
    for (t.n0 = 0; t.n0 < g->c.cols; t.n0 += PL_GEMM_COLS) {
        t.cols = pl_u64_min(PL_GEMM_COLS, g->c.cols - t.n0);
        for (uint64_t i = 0; i < g->c.rows; i++) {
            memset(sums, 0, sizeof sums);
            finish_row(g, i, &t, sums);
        }
    }
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
    uint32_t threads = pl_pool_threads(cpu->pool);
    p.k = g->trans_a ? g->a.rows : g->a.cols;
    if (p.m == 0 || p.n == 0) return PL_ERR_OK;
    if (!fits_blas(&g->a) || !fits_blas(&g->b) || !fits_blas(&g->c)) return PL_ERR_OVERFLOW;
    if (p.k == 0) {
        no_depth(g);
        return PL_ERR_OK;
    }
    if (PL_LEVEL_NAME(pl_cpu_has_few_rows)(g)) {
        PL_LEVEL_NAME(pl_cpu_few_rows)(dev, g);
        return PL_ERR_OK;
    }
    bool fp32 = is_fp32(g);
    if (!fp32 && !pl_ws_holds(&g->ws, threads * PL_GEMM_WORKER_BYTES)) return PL_ERR_PLAN_BROKEN;
    if (fp32)
        split_fp32(&p, threads);
    else
        split_widening(&p);
    p.parts_n = pl_u64_div_up(p.n, p.part_n);
    pl_pool_run(cpu->pool, n_parts(&p), fp32 ? part_fp32 : part_widening, &p);
    return PL_ERR_OK;
}
