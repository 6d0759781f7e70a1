/* adamw8.c - ADAMW_8BIT: AdamW with moments of one byte.
 *
 * Blocks of 256 elements are decoded, updated in fp32, and encoded again with the largest magnitude
 * of the new moments (Dettmers et al., "8-bit optimizers via block-wise quantization", arXiv
 * 2110.02861, section 2). The weights move by the moments as they were before encoding. */
#include "runtime/kernels/cpu/update.h"

#include "runtime/kernels/quant.h"
#include "runtime/kernels/quant_call.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

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
    struct pl_moment_rates rates;
    float step_size, epsilon;
};

/* ---- tables of 256 floats ---- */

/* x[j] = table[index[j]] for a block. A compiler that tunes for every processor at once does not
 * use the gather instruction, and leaves the whole loop around it scalar. */
static inline void look_up(const float *table, const int32_t *restrict index, float *restrict x) {
#if defined(__AVX512F__)
    for (int j = 0; j < BLOCK; j += 16)
        _mm512_storeu_ps(x + j, _mm512_i32gather_ps(_mm512_loadu_si512(index + j), table, 4));
#elif defined(__AVX2__)
    for (int j = 0; j < BLOCK; j += 8) {
        const __m256i i = _mm256_loadu_si256((const __m256i *)(const void *)(index + j));
        _mm256_storeu_ps(x + j, _mm256_i32gather_ps(table, i, 4));
    }
#else
    for (int j = 0; j < BLOCK; j++)
        x[j] = table[index[j]];
#endif
}

/* ---- a block of a moment ----
 * Loops run over whole blocks, whose ends the compiler knows; a shorter last one is copied and
 * followed by zeros. */

static void decode(const struct moment *s, uint64_t i, uint64_t n, float x[BLOCK]) {
    if (!s->absmax) {
        memcpy(x, (const float *)s->p + i, n * sizeof *x);
        return;
    }
    uint8_t padded[BLOCK];
    const uint8_t *code = (const uint8_t *)s->p + i;
    const float absmax = s->absmax[i / BLOCK];
    int32_t index[BLOCK];
    if (n < BLOCK) {
        memset(padded, s->map->value[0] < 0 ? PL_QUANT_SIGNED_ZERO : PL_QUANT_UNSIGNED_ZERO, BLOCK);
        code = memcpy(padded, code, n);
    }
    for (int j = 0; j < BLOCK; j++)
        index[j] = code[j];
    look_up(s->map->value, index, x);
    for (int j = 0; j < BLOCK; j++)
        x[j] *= absmax;
}

/* Compared as integers, which is a reduction that vectorises; NaN is larger than anything. */
static float largest(const float x[BLOCK]) {
    int32_t most = 0;
    for (int j = 0; j < BLOCK; j++) {
        const int32_t magnitude = (int32_t)(pl_f32_bits(x[j]) & 0x7FFFFFFFu);
        most = magnitude > most ? magnitude : most;
    }
    return pl_f32_from_bits((uint32_t)most);
}

typedef int32_t (*choose_fn)(float x, int32_t lower, float middle);

/* The result of encoding so far: the scale of a block, and the codes below its elements. */
struct lower {
    int32_t index[BLOCK];
    float scale;
};

static void begin_encoding(const struct moment *s, uint64_t i, const float x[BLOCK],
                           struct lower *l) {
    const float absmax = largest(x);
    if (s->absmax) s->absmax[i / BLOCK] = absmax;
    l->scale = pl_quant_scale(absmax);
}

/* Inlined with the function known, so that the loop vectorises. */
static inline __attribute__((always_inline)) void encode(const struct moment *s, uint64_t i,
                                                         uint64_t n, const float x[BLOCK],
                                                         const struct lower *l, choose_fn choose) {
    if (!s->absmax) {
        memcpy((float *)s->p + i, x, n * sizeof *x);
        return;
    }
    uint8_t padded[BLOCK], *own = (uint8_t *)s->p + i, *restrict code = n < BLOCK ? padded : own;
    float middle[BLOCK];
    look_up(s->map->midpoint, l->index, middle);
    for (int j = 0; j < BLOCK; j++)
        code[j] = (uint8_t)choose(x[j] * l->scale, l->index[j], middle[j]);
    if (s->absmax[i / BLOCK] == 0) memset(code, 0, BLOCK);
    if (n < BLOCK) memcpy(own, padded, n);
}

/* ---- the update ---- */

static void update_moments(const struct update *u, const float *restrict g, float *restrict m,
                           float *restrict v) {
    for (int j = 0; j < BLOCK; j++) {
        const float x = g[j] * u->clip;
        m[j] = u->rates.beta1 * m[j] + u->rates.rest1 * x;
        v[j] = u->rates.beta2 * v[j] + u->rates.rest2 * x * x;
    }
}

/* epsilon and step_size hold the bias corrections c1 = 1-b1^t and c2 = sqrt(1-b2^t):
 * p -= lr c2/c1 * m / (sqrt(v) + c2 eps), and only then p *= 1 - lr*wd.
 * The root and the quotient keep one unit of the processor busy, the search for codes all
 * others. */
static void update_weights(const struct update *u, const float *restrict m, const float *restrict v,
                           float *restrict p, struct lower *restrict lm,
                           struct lower *restrict lv) {
    for (int j = 0; j < BLOCK; j++) {
        p[j] = (p[j] - u->step_size * (m[j] / (sqrtf(v[j]) + u->epsilon))) * u->decay;
        lm->index[j] = pl_quant_lower_signed(m[j] * lm->scale);
        lv->index[j] = pl_quant_lower_unsigned(v[j] * lv->scale);
    }
}

/* Elements [i, i + n) of a matrix: in their place where they are a whole block of fp32, else
 * widened into buf followed by zeros. */
static float *block_of(const struct pl_view *x, uint64_t i, uint64_t n, float buf[BLOCK]) {
    if (n == BLOCK && x->dtype == PL_DTYPE_F32) return pl_element(x, i);
    if (n < BLOCK) memset(buf, 0, BLOCK * sizeof *buf);
    pl_widen(buf, pl_element(x, i), x->dtype, n);
    return buf;
}

static void update_blocks(void *arg, uint64_t first, uint64_t end, uint32_t worker) {
    const struct update *u = arg;
    float weights[BLOCK], gradients[BLOCK], m[BLOCK] = {0}, v[BLOCK] = {0};
    struct lower lm, lv;
    (void)worker;
    for (uint64_t b = first; b < end; b++) {
        const uint64_t i = b * BLOCK, n = pl_u64_min(u->n - i, BLOCK);
        float *p = block_of(pl_weight_source(&u->store), i, n, weights);
        decode(&u->m, i, n, m);
        decode(&u->v, i, n, v);
        update_moments(u, block_of(&u->g, i, n, gradients), m, v);
        begin_encoding(&u->m, i, m, &lm);
        begin_encoding(&u->v, i, v, &lv);
        update_weights(u, m, v, p, &lm, &lv);
        encode(&u->m, i, n, m, &lm, pl_quant_choose_signed);
        encode(&u->v, i, n, v, &lv, pl_quant_choose_unsigned);
        pl_store_weight(&u->store, i, n, p);
    }
}

static struct update begin_update(const struct pl_call *c) {
    struct pl_facts now;
    pl_facts_fill(c->batch, &now);
    return (struct update){.store = pl_weight_store_of(c, &c->in[7]),
                           .g = c->in[1],
                           .m = {.p = c->in[2].p, .absmax = c->in[5].p},
                           .v = {.p = c->in[3].p, .absmax = c->in[6].p},
                           .n = pl_quant_elements(&c->in[0]),
                           .clip = (float)((const double *)c->in[4].p)[1],
                           .decay = c->attr->decay ? now.kept : 1.0f,
                           .rates = pl_moment_rates_of(c->batch),
                           .step_size = now.adam8_step,
                           .epsilon = now.adam8_epsilon};
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
