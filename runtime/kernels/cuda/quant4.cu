/* quant4.cu - QUANT4 and NEST4: values to 4-bit codes, their absmax to 8-bit ones, with the bits of
 * cpu/quant4.c.
 *
 * A thread has eight values, eight threads a block of 64: they agree on its absmax and each writes
 * four bytes of codes. Values are read once, so that x may as well be pinned memory of the host,
 * which the device reads over its link; values of a rule are made in registers. */
#include "runtime/kernels/cuda/values.cuh"

#include "estimator/base/checked.h"
#include "runtime/kernels/quant.h"
#include "runtime/kernels/quant_call.h"

namespace {

#define BLOCK 256
#define V     8                    /* values of a thread */
#define TEAM  (PL_QUANT_BLOCK / V) /* threads of a block of values */

static_assert(BLOCK == PL_QUANT_NEST && BLOCK == PL_QUANT_MAP_SIZE,
              "a thread of NEST4 has one absmax, and brings one entry of the map");

/* Storage of values that are made. */
struct made {};

template <typename T> struct source {
    pl_mat<T> x; /* one row */
    __device__ __forceinline__ void load(uint64_t i, uint64_t n, float (&f)[V]) const {
        pl_floats(pl_load<T, V>(x, 0, i, n), f);
    }
};

template <> struct source<pl_either> {
    pl_mat<pl_either> x;
    __device__ __forceinline__ void load(uint64_t i, uint64_t n, float (&f)[V]) const {
#pragma unroll
        for (int k = 0; k < V; k++)
            f[k] = i + k < n ? x.get(0, i + k) : 0.0f;
    }
};

template <> struct source<made> {
    struct pl_start_rule rule;
    uint64_t first;
    __device__ __forceinline__ void load(uint64_t i, uint64_t n, float (&f)[V]) const {
        pl_values_fill<V>(rule, first + i, f);
#pragma unroll
        for (int k = 0; k < V; k++)
            if (i + k >= n) f[k] = 0.0f;
    }
};

template <typename T> struct quant {
    source<T> from;
    uint64_t n;
    uint8_t *codes;
    float *absmax;
    bool in_words; /* codes lie at a multiple of 4 bytes */
    struct pl_quant_coder coder;
};

/* NaN is passed over. */
__device__ __forceinline__ float largest(const float (&f)[V]) {
    float most = 0;
#pragma unroll
    for (int k = 0; k < V; k++)
        most = fabsf(f[k]) > most ? fabsf(f[k]) : most;
    return most;
}

/* The first value of two is the high half of a byte. */
__device__ __forceinline__ uint32_t codes_of(const struct pl_quant_coder &c, const float (&f)[V],
                                             float scale) {
    uint32_t word = 0;
#pragma unroll
    for (int k = 0; k < V; k++) {
        const float y = f[k] * scale;
        const int32_t code =
            c.type == PL_QUANT_NF4 ? pl_quant_code_nf4(&c, y) : pl_quant_code_fp4(&c, y);
        word |= (uint32_t)code << (k / 2 * 8 + (k % 2 ? 0 : 4));
    }
    return word;
}

__device__ __forceinline__ void store_codes(uint8_t *codes, uint64_t at, uint64_t end,
                                            bool in_words, uint32_t word) {
    if (in_words && at + V / 2 <= end) {
        *reinterpret_cast<uint32_t *>(codes + at) = word;
        return;
    }
#pragma unroll
    for (int k = 0; k < V / 2; k++)
        if (at + k < end) codes[at + k] = (uint8_t)(word >> 8 * k);
}

/* Threads past the end stay: a team agrees by shuffles of the whole warp. */
template <typename T> __global__ void __launch_bounds__(BLOCK) quantise(const quant<T> q) {
    const uint64_t i = ((uint64_t)blockIdx.x * BLOCK + threadIdx.x) * V;
    float f[V] = {};
    if (i < q.n) q.from.load(i, q.n, f);
    const float absmax = pl_warp_reduce<pl_max>(largest(f), TEAM);
    if (i >= q.n) return;
    store_codes(q.codes, i / 2, q.n / 2 + q.n % 2, q.in_words,
                codes_of(q.coder, f, pl_quant_scale(absmax)));
    if (threadIdx.x % TEAM == 0) q.absmax[i / PL_QUANT_BLOCK] = absmax;
}

template <typename T>
pl_err launch_from(const struct pl_call *c, const source<T> &from, cudaStream_t stream) {
    quant<T> q = {from,
                  pl_quant_elements(&c->in[PL_QUANT4_X]),
                  (uint8_t *)c->out[PL_QUANT4_OUT_CODES].p,
                  (float *)c->out[PL_QUANT4_OUT_ABSMAX].p,
                  (uintptr_t)c->out[PL_QUANT4_OUT_CODES].p % 4 == 0,
                  {}};
    const uint64_t blocks = pl_u64_div_up(q.n, BLOCK * V);
    if (blocks > PL_GRID_MAX) return PL_ERR_PLAN_BROKEN;
    pl_quant_coder_init(&q.coder, c->attr->quant);
    if (blocks) PL_LAUNCH((quantise<T>), dim3((unsigned)blocks), dim3(BLOCK), 0, stream, q);
    return pl_cuda_launched();
}

template <typename T> pl_err launch(const struct pl_call *c, cudaStream_t stream) {
    return launch_from<T>(c, source<T>{pl_mat_of<T>(c->in[PL_QUANT4_X])}, stream);
}

pl_err launch_made(const struct pl_call *c, cudaStream_t stream) {
    const source<made> from = {pl_start_rule_of(c->attr, c->batch->seed), c->attr->first_element};
    return launch_from<made>(c, from, stream);
}

struct nest {
    const float *absmax;
    uint8_t *absmax8;
    float *nested;
    uint64_t blocks;
    float offset;
    float map[PL_QUANT_MAP_SIZE];
};

/* A thread block has a nest. NaN is passed over. */
__global__ void __launch_bounds__(BLOCK) nest_absmax(const struct nest t) {
    PL_SHARED(float, map); /* the map, and a number of each warp */
    const uint64_t b = (uint64_t)blockIdx.x * BLOCK + threadIdx.x;
    const float own = b < t.blocks ? t.absmax[b] - t.offset : 0.0f;
    const float distance = fabsf(own) > 0.0f ? fabsf(own) : 0.0f;
    map[threadIdx.x] = t.map[threadIdx.x];
    __syncthreads();
    const float most = pl_team_reduce<pl_max>(distance, map + PL_QUANT_MAP_SIZE);
    if (b < t.blocks) t.absmax8[b] = pl_quant_nearest(map, own * pl_quant_scale(most));
    if (threadIdx.x == 0) t.nested[blockIdx.x] = most;
}

} // namespace

/* in: x?[..]; out: codes[n/2]u8, absmax[n/64]f32. */
extern "C" pl_err pl_cuda_quant4(struct pl_device *dev, const struct pl_call *c) {
    static pl_err (*const by_form[PL_FORMS])(const struct pl_call *, cudaStream_t) =
        PL_TYPE_TABLE(launch);
    cudaStream_t stream = pl_cuda_of(dev)->stream;
    struct pl_view run = c->in[PL_QUANT4_X];
    if (!pl_quant4_is_sound(c)) return PL_ERR_PLAN_BROKEN;
    if (!run.p) return launch_made(c, stream);
    run.rows = 1;
    const struct pl_view *const views[] = {&run};
    return by_form[pl_form_of(views, 1)](c, stream);
}

/* in: absmax[n/64]f32; out: absmax8[n/64]u8, nested[n/16384]f32. */
extern "C" pl_err pl_cuda_nest4(struct pl_device *dev, const struct pl_call *c) {
    struct nest t = {(const float *)c->in[PL_NEST4_ABSMAX].p,
                     (uint8_t *)c->out[PL_NEST4_OUT_ABSMAX8].p,
                     (float *)c->out[PL_NEST4_OUT_NESTED].p,
                     pl_quant_elements(&c->in[PL_NEST4_ABSMAX]),
                     c->attr->offset,
                     {}};
    const uint64_t nests = pl_u64_div_up(t.blocks, PL_QUANT_NEST);
    const size_t shared = (PL_QUANT_MAP_SIZE + BLOCK / PL_WARP) * sizeof(float);
    if (!pl_nest4_is_sound(c) || nests > PL_GRID_MAX) return PL_ERR_PLAN_BROKEN;
    pl_quant_map_values(true, t.map);
    if (nests)
        PL_LAUNCH(nest_absmax, dim3((unsigned)nests), dim3(BLOCK), shared, pl_cuda_of(dev)->stream,
                  t);
    return pl_cuda_launched();
}

PL_CUDA_PRELOAD(quant4) = {PL_TYPE_KERNELS(quantise), PL_CUDA_KERNEL(quantise<made>),
                           PL_CUDA_KERNEL(nest_absmax), NULL};
