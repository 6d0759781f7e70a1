/* adamw8.cu - ADAMW_8BIT: AdamW with moments of one byte.
 *
 * A warp has one block of 256 elements at a time, eight a lane, so that the largest moment of a
 * block is found without leaving the warp. A thread block works on many of them, of all tensors of
 * a launch, and reads the two maps into shared memory once. Arithmetic as in the CPU's adamw8.c. */
#include "runtime/kernels/cuda/update.cuh"

#include "estimator/base/checked.h"
#include "runtime/kernels/quant.h"
#include "runtime/kernels/quant_call.h"

#include <math.h>

namespace {

#define BLOCK  256
#define WARPS  (BLOCK / PL_WARP)
#define V      PL_UPDATE_PACK /* elements of a lane */
#define ROUNDS 64             /* thread blocks of a multiprocessor, about a fifth of them at once */

static_assert(V * PL_WARP == PL_STATE8_BLOCK, "a warp has a block of moments");
static_assert(BLOCK == PL_QUANT_MAP_SIZE, "a thread brings one entry of each map");

/* Codes with an absmax a block, or fp32 where absmax is NULL. */
template <typename S> struct moment {
    uint8_t *code;
    float *absmax;
    pl_mat<S> floats;
};

struct rule {
    const struct pl_facts *facts;
    struct pl_moment_rates rates;
    float signed_map[PL_QUANT_MAP_SIZE], unsigned_map[PL_QUANT_MAP_SIZE];
};

/* S: float where everything is read in packs, pl_either where nothing is. */
template <typename W, typename G, typename S> struct update {
    pl_mat<W> w; /* each one row of n elements */
    pl_mat<G> g;
    pl_mat<S> master;
    struct moment<S> m, v;
    const double *clip;
    uint64_t n;
    uint64_t first; /* element of the tensor where w begins */
    bool decays;
    struct pl_rounding rounding;
};

/* ---- eight elements of a lane; zeros stand for those past the end ---- */

template <typename T>
__device__ __forceinline__ void load(const pl_mat<T> &m, uint64_t i, uint64_t n, float (&x)[V]) {
    pl_floats(pl_load<T, V>(m, 0, i, n), x);
}

__device__ __forceinline__ void load(const pl_mat<pl_either> &m, uint64_t i, uint64_t n,
                                     float (&x)[V]) {
#pragma unroll
    for (int k = 0; k < V; k++)
        x[k] = i + k < n ? m.get(0, i + k) : 0.0f;
}

template <typename T>
__device__ __forceinline__ void store(const pl_mat<T> &m, uint64_t i, uint64_t n,
                                      const float (&x)[V]) {
    pl_store(m, 0, i, n, pl_packed(m, x));
}

__device__ __forceinline__ void store(const pl_mat<pl_either> &m, uint64_t i, uint64_t n,
                                      const float (&x)[V]) {
#pragma unroll
    for (int k = 0; k < V; k++)
        if (i + k < n) m.put(0, i + k, x[k]);
}

/* ---- moments ---- */

struct map {
    const float *value, *midpoint; /* in shared memory */
};

template <typename S> constexpr bool in_packs = pl_lanes<S>::N > 1;

template <typename S>
__device__ __forceinline__ uint2 load_codes(const uint8_t *code, uint64_t i, uint64_t n) {
    if (in_packs<S> && i + V <= n) return *reinterpret_cast<const uint2 *>(code + i);
    uint32_t word[2] = {0, 0};
#pragma unroll
    for (int k = 0; k < V; k++)
        if (i + k < n) word[k / 4] |= (uint32_t)code[i + k] << k % 4 * 8;
    return make_uint2(word[0], word[1]);
}

template <typename S>
__device__ __forceinline__ void store_codes(uint8_t *code, uint64_t i, uint64_t n, uint2 words) {
    if (in_packs<S> && i + V <= n) {
        *reinterpret_cast<uint2 *>(code + i) = words;
        return;
    }
#pragma unroll
    for (int k = 0; k < V; k++)
        if (i + k < n) code[i + k] = (uint8_t)((k < 4 ? words.x : words.y) >> k % 4 * 8);
}

template <typename S>
__device__ __forceinline__ void decode(const struct moment<S> &s, const struct map &map, uint64_t i,
                                       uint64_t n, float (&x)[V]) {
    if (!s.absmax) {
        load(s.floats, i, n, x);
        return;
    }
    const uint2 words = load_codes<S>(s.code, i, n);
    const float absmax = s.absmax[i / PL_STATE8_BLOCK];
#pragma unroll
    for (int k = 0; k < V; k++)
        x[k] =
            i + k < n ? map.value[(k < 4 ? words.x : words.y) >> k % 4 * 8 & 255u] * absmax : 0.0f;
}

/* Every lane of the warp comes here; i may lie past the end. */
template <typename S>
__device__ __forceinline__ void encode(const struct moment<S> &s, const struct map &map,
                                       bool is_signed, uint64_t i, uint64_t n,
                                       const float (&x)[V]) {
    uint32_t word[2] = {0, 0};
    float most = 0;
#pragma unroll
    for (int k = 0; k < V; k++)
        most = fmaxf(most, fabsf(x[k]));
    most = pl_warp_reduce<pl_max>(most);
    const float scale = pl_quant_scale(most);
    __syncwarp(); /* all lanes have read the absmax before: shuffles order no memory */
    if (i >= n) return;
    if (i % PL_STATE8_BLOCK == 0) s.absmax[i / PL_STATE8_BLOCK] = most;
#pragma unroll
    for (int k = 0; k < V; k++) {
        const float unit = x[k] * scale;
        const int32_t lower =
            is_signed ? pl_quant_lower_signed(unit) : pl_quant_lower_unsigned(unit);
        const float middle = map.midpoint[lower];
        const int32_t code = is_signed ? pl_quant_choose_signed(unit, lower, middle)
                                       : pl_quant_choose_unsigned(unit, lower, middle);
        word[k / 4] |= (uint32_t)code << k % 4 * 8;
    }
    if (most == 0) word[0] = word[1] = 0;
    store_codes<S>(s.code, i, n, make_uint2(word[0], word[1]));
}

template <typename S>
__device__ __forceinline__ void keep(const struct moment<S> &s, const struct map &map,
                                     bool is_signed, uint64_t i, uint64_t n, const float (&x)[V]) {
    if (s.absmax)
        encode<S>(s, map, is_signed, i, n, x);
    else
        store(s.floats, i, n, x);
}

/* ---- a block of 256 ---- */

/* p -= lr c2/c1 * m / (sqrt(v) + c2 eps) with the moments as they are before encoding, and only
 * then p *= 1 - lr*wd. */
__device__ __forceinline__ void move(const struct rule &u, bool decays, float clip,
                                     const float (&g)[V], float (&m)[V], float (&v)[V],
                                     float (&p)[V]) {
    const struct pl_facts now = *u.facts;
    const float kept = decays ? now.kept : 1.0f;
#pragma unroll
    for (int k = 0; k < V; k++) {
        const float x = g[k] * clip;
        m[k] = u.rates.beta1 * m[k] + u.rates.rest1 * x;
        v[k] = u.rates.beta2 * v[k] + u.rates.rest2 * x * x;
        p[k] = (p[k] - now.adam8_step * (m[k] / (sqrtf(v[k]) + now.adam8_epsilon))) * kept;
    }
}

template <typename W, typename G, typename S>
__device__ __forceinline__ void update_lane(const update<W, G, S> &t, const struct rule &u,
                                            const struct map &m_map, const struct map &v_map,
                                            const struct pl_rng &random, uint64_t i) {
    float p[V] = {}, g[V] = {}, m[V] = {}, v[V] = {};
    if (i < t.n) {
        if (t.master.p)
            load(t.master, i, t.n, p);
        else
            load(t.w, i, t.n, p);
        load(t.g, i, t.n, g);
        decode<S>(t.m, m_map, i, t.n, m);
        decode<S>(t.v, v_map, i, t.n, v);
        move(u, t.decays, (float)t.clip[1], g, m, v, p);
        if (t.master.p) store(t.master, i, t.n, p);
        if (t.rounding.is_on) pl_round_by(random, t.first + i, p);
        store(t.w, i, t.n, p);
    }
    keep<S>(t.m, m_map, true, i, t.n, m);
    keep<S>(t.v, v_map, false, i, t.n, v);
}

/* value and midpoint of a map, a thread an entry; the last midpoint is not used. */
__device__ __forceinline__ struct map bring(const float *value, float *shared) {
    const unsigned i = threadIdx.x, next = i + 1 < PL_QUANT_MAP_SIZE ? i + 1 : i;
    shared[i] = value[i];
    shared[PL_QUANT_MAP_SIZE + i] = (value[i] + value[next]) * 0.5f;
    return {shared, shared + PL_QUANT_MAP_SIZE};
}

/* A unit of a part is a block of moments. */
template <typename W, typename G, typename S>
__global__ void __launch_bounds__(BLOCK)
    update_blocks(const __grid_constant__ pl_parts<update<W, G, S>> parts,
                  const __grid_constant__ struct rule u) {
    PL_SHARED(float, shared); /* two maps with their midpoints */
    const struct map m_map = bring(u.signed_map, shared);
    const struct map v_map = bring(u.unsigned_map, shared + 2 * PL_QUANT_MAP_SIZE);
    __syncthreads();
    const uint64_t units = parts.begin[parts.n], step = (uint64_t)gridDim.x * WARPS;
    uint64_t unit = (uint64_t)blockIdx.x * WARPS + threadIdx.x / PL_WARP;
    struct pl_rng random; /* of part `last` */
    for (uint32_t of = 0, last = PL_PARTS; unit < units; unit += step) {
        while (unit >= parts.begin[of + 1])
            of++;
        const update<W, G, S> &t = parts.part[of];
        if (of != last && t.rounding.is_on) random = pl_rounding_stream(t.rounding, u.facts->step);
        last = of;
        const uint64_t i = (unit - parts.begin[of]) * PL_STATE8_BLOCK + threadIdx.x % PL_WARP * V;
        if (!isnan(t.clip[1])) update_lane<W, G, S>(t, u, m_map, v_map, random, i);
    }
}

/* ---- launching ---- */

template <typename S>
struct moment<S> moment_of(const struct pl_view *s, const struct pl_view *absmax) {
    const struct pl_view f = pl_flat(s);
    return {(uint8_t *)s->p, (float *)absmax->p, pl_mat_of<S>(f)};
}

template <typename W, typename G, typename S>
update<W, G, S> update_of(const struct pl_call *c) {
    const struct pl_view w = pl_flat(&c->in[0]);
    update<W, G, S> t;
    t.w = pl_mat_of<W>(w);
    t.g = pl_mat_of<G>(pl_flat(&c->in[1]));
    t.master = pl_mat_of<S>(pl_flat(&c->in[7]));
    t.m = moment_of<S>(&c->in[2], &c->in[5]);
    t.v = moment_of<S>(&c->in[3], &c->in[6]);
    t.clip = (const double *)c->in[4].p;
    t.n = w.rows * w.cols;
    t.first = c->attr->first_element;
    t.decays = c->attr->decay;
    t.rounding = pl_rounding_of(c, &c->in[7]);
    return t;
}

struct rule rule_of(const struct pl_batch *b) {
    struct rule r = {};
    r.facts = b->facts;
    r.rates = pl_moment_rates_of(b);
    pl_quant_map_values(true, r.signed_map);
    pl_quant_map_values(false, r.unsigned_map);
    return r;
}

/* Packs are 16 bytes of floats, eight of codes; absent operands lie at 0. */
bool is_in_packs(const struct pl_call *c) {
    static const int views[] = {0, 1, 2, 3, 7};
    bool aligned = true;
    for (int i : views)
        aligned = aligned && (uintptr_t)c->in[i].p % (c->in[i].dtype == PL_DTYPE_U8 ? V : 16) == 0;
    return aligned;
}

enum {
#define FORM(W, G, arg) FORM_##W##_##G, /* in packs */
    PL_UPDATE_LIST(FORM, ) FORM_EITHER,
    FORMS
};

int form_of(const struct pl_call *c) {
    const enum pl_dtype w = c->in[0].dtype, g = c->in[1].dtype;
#define IS(W, G, packs)                                                                            \
    if (packs && w == PL_DTYPE_##W && g == PL_DTYPE_##G) return FORM_##W##_##G;
    PL_UPDATE_LIST(IS, is_in_packs(c))
    return FORM_EITHER;
}

/* The calls among n that have this form. */
template <typename W, typename G, typename S>
pl_err launch(struct pl_device *dev, const struct pl_call *calls, uint32_t n, int form) {
    const struct pl_cuda *cuda = pl_cuda_of(dev);
    pl_parts<update<W, G, S>> parts;
    pl_parts_clear(&parts);
    for (uint32_t i = 0; i < n; i++) {
        if (form_of(&calls[i]) != form) continue;
        const update<W, G, S> t = update_of<W, G, S>(&calls[i]);
        if (!pl_parts_add(&parts, t, pl_state8_blocks(t.n))) return PL_ERR_PLAN_BROKEN;
    }
    const uint64_t blocks = pl_u64_div_up(pl_parts_units(&parts), WARPS);
    const uint64_t grid = pl_u64_min(blocks, (uint64_t)cuda->sm_count * ROUNDS);
    if (grid)
        PL_LAUNCH((update_blocks<W, G, S>), dim3((unsigned)grid), dim3(BLOCK),
                  4 * PL_QUANT_MAP_SIZE * sizeof(float), cuda->stream, parts,
                  rule_of(calls[0].batch));
    return pl_cuda_launched();
}

typedef pl_err (*launch_fn)(struct pl_device *dev, const struct pl_call *calls, uint32_t n,
                            int form);

#define LAUNCH(W, G, arg) launch<pl_stored_##W, pl_stored_##G, float>,
const launch_fn launches[FORMS] = {PL_UPDATE_LIST(LAUNCH, )
                                       launch<pl_either, pl_either, pl_either>};

/* Takes at most PL_PARTS calls. */
pl_err run_updates(struct pl_device *dev, const struct pl_call *calls, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (!calls[i].batch->facts || !pl_adamw8_is_sound(&calls[i]) ||
            !pl_is_float(&calls[i].in[0]) || !pl_is_float(&calls[i].in[1]))
            return PL_ERR_PLAN_BROKEN;
    for (int form = 0; form < FORMS; form++)
        PL_TRY(launches[form](dev, calls, n, form));
    return PL_ERR_OK;
}

} // namespace

/* in: w, g, m, v, clip[2]f64, m_absmax?, v_absmax?, master? f32; out: w, m, v, m_absmax?,
 * v_absmax?, master?. */
extern "C" pl_err pl_cuda_adamw_8bit_group(struct pl_device *dev, const struct pl_call *calls,
                                           uint32_t n) {
    return pl_in_parts(run_updates, dev, calls, n);
}

extern "C" pl_err pl_cuda_adamw_8bit(struct pl_device *dev, const struct pl_call *c) {
    return run_updates(dev, c, 1);
}

#define KERNEL(W, G, arg) PL_CUDA_KERNEL(update_blocks<pl_stored_##W, pl_stored_##G, float>),
PL_CUDA_PRELOAD(adamw8) = {
    PL_UPDATE_LIST(KERNEL, ) PL_CUDA_KERNEL(update_blocks<pl_either, pl_either, pl_either>), NULL};
