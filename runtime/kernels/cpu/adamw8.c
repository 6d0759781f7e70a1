/* adamw8.c - ADAMW_8BIT: AdamW with moments of one byte.
 *
 * Blocks of 256 elements are decoded, updated in fp32, and encoded again with the largest magnitude
 * of the new moments (Dettmers et al., "8-bit optimizers via block-wise quantization", arXiv
 * 2110.02861, section 2). The weights move by the moments as they were before encoding. */
#include "runtime/kernels/cpu/update.h"

#include "runtime/kernels/quant.h"
#include "runtime/kernels/quant_call.h"

#define BLOCK PL_STATE8_BLOCK

/* A moment of the tensor: codes with an absmax a block, or fp32. */
struct moment {
    void *p;
    float *absmax; /* NULL = fp32 */
    const struct pl_quant_map *map;
};

struct update {
    struct pl_weight_store store;
    struct pl_view g;
    struct moment m, v;
    uint64_t n;
    float clip, decay;
    float beta1, rest1, beta2, rest2; /* rest = 1 - beta, rounded from double */
    float step_size, epsilon;
};

static void decode(const struct moment *s, uint64_t i, uint64_t n, float *restrict x) {
    if (!s->absmax) {
        memcpy(x, (const float *)s->p + i, n * sizeof *x);
        return;
    }
    const uint8_t *code = (const uint8_t *)s->p + i;
    const float *value = s->map->value, absmax = s->absmax[i / BLOCK];
    for (uint64_t j = 0; j < n; j++)
        x[j] = value[code[j]] * absmax;
}

#define LANES 64

/* NaN is passed over. */
static float largest(const float *x, uint64_t n) {
    float lane[LANES] = {0};
    uint64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] = fabsf(x[i + l]) > lane[l] ? fabsf(x[i + l]) : lane[l];
    for (; i < n; i++)
        lane[0] = fabsf(x[i]) > lane[0] ? fabsf(x[i]) : lane[0];
    for (int l = 1; l < LANES; l++)
        lane[0] = lane[l] > lane[0] ? lane[l] : lane[0];
    return lane[0];
}

typedef uint32_t (*nearest_fn)(const float *midpoint, float x);

static inline void encode(const struct moment *s, uint64_t i, uint64_t n, const float *restrict x,
                          nearest_fn nearest) {
    if (!s->absmax) {
        memcpy((float *)s->p + i, x, n * sizeof *x);
        return;
    }
    uint8_t *restrict code = (uint8_t *)s->p + i;
    const float absmax = largest(x, n);
    s->absmax[i / BLOCK] = absmax;
    if (absmax == 0) {
        memset(code, 0, n);
        return;
    }
    for (uint64_t j = 0; j < n; j++)
        code[j] = (uint8_t)nearest(s->map->midpoint, x[j] / absmax);
}

/* epsilon and step_size hold the bias corrections c1 = 1-b1^t and c2 = sqrt(1-b2^t):
 * p -= lr c2/c1 * m / (sqrt(v) + c2 eps), and only then p *= 1 - lr*wd. */
static void update_moments(const struct update *u, uint64_t n, const float *restrict g,
                           float *restrict m, float *restrict v, float *restrict p) {
    for (uint64_t j = 0; j < n; j++) {
        const float x = g[j] * u->clip;
        m[j] = u->beta1 * m[j] + u->rest1 * x;
        v[j] = u->beta2 * v[j] + u->rest2 * x * x;
        p[j] = (p[j] - u->step_size * (m[j] / (sqrtf(v[j]) + u->epsilon))) * u->decay;
    }
}

static void update_blocks(void *arg, uint64_t first, uint64_t end, uint32_t worker) {
    const struct update *u = arg;
    const struct pl_view *source = pl_weight_source(&u->store);
    float p[BLOCK], g[BLOCK], m[BLOCK], v[BLOCK];
    (void)worker;
    for (uint64_t b = first; b < end; b++) {
        const uint64_t i = b * BLOCK, n = pl_u64_min(u->n - i, BLOCK);
        pl_widen(p, pl_element(source, i), source->dtype, n);
        pl_widen(g, pl_element(&u->g, i), u->g.dtype, n);
        decode(&u->m, i, n, m);
        decode(&u->v, i, n, v);
        update_moments(u, n, g, m, v, p);
        encode(&u->m, i, n, m, pl_quant_nearest_signed);
        encode(&u->v, i, n, v, pl_quant_nearest_unsigned);
        pl_store_weight(&u->store, i, n, p);
    }
}

static struct update begin_update(const struct pl_call *c) {
    const struct pl_batch *batch = c->batch;
    const double t = (double)batch->step, lr = batch->learning_rate;
    const double c1 = 1.0 - pow(batch->beta1, t), c2 = sqrt(1.0 - pow(batch->beta2, t));
    return (struct update){.store = pl_weight_store_of(c, &c->in[7]),
                           .g = c->in[1],
                           .m = {.p = c->in[2].p, .absmax = c->in[5].p},
                           .v = {.p = c->in[3].p, .absmax = c->in[6].p},
                           .n = pl_quant_elements(&c->in[0]),
                           .clip = (float)((const double *)c->in[4].p)[1],
                           .decay = (float)(1.0 - (c->attr->decay ? lr * batch->weight_decay : 0)),
                           .beta1 = (float)batch->beta1,
                           .rest1 = (float)(1.0 - batch->beta1),
                           .beta2 = (float)batch->beta2,
                           .rest2 = (float)(1.0 - batch->beta2),
                           .step_size = (float)(lr * c2 / c1),
                           .epsilon = (float)(c2 * batch->epsilon)};
}

#define GRAIN UINT64_C(64) /* blocks */

/* in: w, g, m, v, clip[2]f64, m_absmax?, v_absmax?, master? f32; out: w, m, v, m_absmax?,
 * v_absmax?, master?. */
pl_err PL_CPU(adamw_8bit)(struct pl_device *dev, const struct pl_call *c) {
    struct pl_quant_map signed_map, unsigned_map;
    struct update u = begin_update(c);
    if (!pl_adamw8_is_sound(c)) return PL_ERR_PLAN_BROKEN;
    if (isnan(u.clip)) return PL_ERR_OK;
    pl_quant_map_init(&signed_map, true);
    pl_quant_map_init(&unsigned_map, false);
    u.m.map = &signed_map;
    u.v.map = &unsigned_map;
    pl_cpu_rows(dev, pl_state8_blocks(u.n), GRAIN, update_blocks, &u);
    return PL_ERR_OK;
}
