/* ranks.c - ZERO, SPREAD, FETCH, SHARE, FOLD: what ranks send each other, and the sum of it. */
#include "runtime/kernels/cpu/simd.h"
#include "runtime/kernels/cpu/update.h"

#include "estimator/ops/shard_rows.h"
#include "runtime/kernels/between.h"

/* out: x[..]. */
pl_err PL_CPU(zero)(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *x = &c->out[PL_ZERO_OUT_X];
    (void)dev;
    if (x->ld != x->cols) return PL_ERR_PLAN_BROKEN;
    memset(x->p, 0, x->rows * x->cols * pl_dtype_bytes(x->dtype));
    return PL_ERR_OK;
}

/* in: g[O,K]; out: parts[(ranks-1)*own,K]. */
pl_err PL_CPU(spread)(struct pl_device *dev, const struct pl_call *c) {
    return pl_ranks_spread(dev, c, NULL);
}

/* in: part[own,K]; out: x[O,K]. */
pl_err PL_CPU(fetch)(struct pl_device *dev, const struct pl_call *c) {
    struct pl_own_copy own;
    PL_TRY(pl_ranks_fetch(dev, c, NULL, &own));
    if (own.bytes) memcpy(own.to, own.from, own.bytes);
    return PL_ERR_OK;
}

/* in, out: x[O,K]. */
pl_err PL_CPU(share)(struct pl_device *dev, const struct pl_call *c) {
    return pl_ranks_share(dev, c, NULL);
}

struct fold {
    const struct pl_call *call;
    const struct pl_view *g;
    uint64_t n; /* parts that are added */
    bool adds, rounds;
};

/* S1 holds for each addition: what is stored in between is what one more rank would find there. */
#define FOLD(T, type, widen, narrow)                                                               \
    static void fold_##T(const struct fold *f, uint64_t first, uint64_t end) {                     \
        type *g = f->g->p;                                                                         \
        for (uint64_t part = 0; part < f->n; part++) {                                             \
            const type *x = pl_fold_part(f->call, part);                                           \
            if (part == 0 && !f->adds) {                                                           \
                memcpy(g + first, x + first, (end - first) * sizeof *g);                           \
                continue;                                                                          \
            }                                                                                      \
            for (uint64_t i = first; i < end; i++)                                                 \
                g[i] = narrow(widen(g[i]) + widen(x[i]));                                          \
        }                                                                                          \
    }
#define FOLD_FLOAT(T) FOLD(T, pl_stored_##T, pl_get_##T, pl_put_##T)
PL_FLOAT_MAP(FOLD_FLOAT)
FOLD(F64, double, , )

/* The numbers that round what a part leaves. */
static struct pl_rng numbers_of(const struct fold *f, uint64_t part) {
    const struct pl_batch *b = f->call->batch;
    const uint32_t micro_batch = b->micro_batch + (uint32_t)part;
    return pl_rng_init(b->seed, b->step, pl_rng_sum_site(f->call->attr->site, micro_batch));
}

/* Elements [i, i + n), n <= PL_UPDATE_STRETCH, of parts in fp32 into a narrow sum. */
static void fold_stretch(const struct fold *f, uint64_t i, uint64_t n) {
    uint16_t *g = (uint16_t *)f->g->p + i;
    float sum[PL_UPDATE_STRETCH];
    for (uint64_t part = 0; part < f->n; part++) {
        const float *x = (const float *)pl_fold_part(f->call, part) + i;
        const struct pl_rng rng = numbers_of(f, part);
        if (part || f->adds) {
            pl_widen(sum, g, f->g->dtype, n);
            for (uint64_t j = 0; j < n; j++)
                sum[j] += x[j];
        }
        pl_store_rounded(g, &rng, f->call->attr->first_element + i, n, part || f->adds ? sum : x);
    }
}

static void fold_rounded(const struct fold *f, uint64_t first, uint64_t end) {
    for (uint64_t i = first; i < end; i += PL_UPDATE_STRETCH)
        fold_stretch(f, i, pl_u64_min(end - i, PL_UPDATE_STRETCH));
}

static void fold_chunk(void *arg, uint64_t first, uint64_t end, uint32_t worker) {
    const struct fold *f = arg;
    (void)worker;
    if (f->rounds) {
        fold_rounded(f, first, end);
        return;
    }
#define FOLD_CASE(T)                                                                               \
    case PL_DTYPE_##T:                                                                             \
        fold_##T(f, first, end);                                                                   \
        break;
    switch (f->g->dtype) {
        PL_FLOAT_MAP(FOLD_CASE)
        FOLD_CASE(F64)
    default:
        break;
    }
#undef FOLD_CASE
}

/* Elements of a task: they stay in the second cache while all parts are added. */
#define FOLD_CHUNK UINT64_C(16384)

/* in: parts[ranks*O,K], g[O,K], own[O,K] of one of them; out: g[O,K]. */
pl_err PL_CPU(fold)(struct pl_device *dev, const struct pl_call *c) {
    struct fold f = {.call = c, .g = &c->out[PL_FOLD_OUT_G]};
    if (!pl_fold_fits(c)) return PL_ERR_PLAN_BROKEN;
    f.n = pl_fold_parts(c);
    f.adds = pl_call_adds(c);
    f.rounds = pl_fold_rounds(c);
    pl_cpu_rows(dev, f.g->rows * f.g->cols, FOLD_CHUNK, fold_chunk, &f);
    return PL_ERR_OK;
}
