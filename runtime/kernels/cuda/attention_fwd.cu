/* attention_fwd.cu - ATTENTION: causal, variable length, no [S,S] buffer.
 *
 * A block owns a tile of queries of one head and walks the blocks of keys they see, from the
 * diagonal back, with a running maximum and sum per query (Milakov and Gimelshein, "Online
 * normalizer calculation for softmax", 2018; Dao, "FlashAttention-2", 2023). Scores carry a factor
 * log2(e), so that the exponential is a power of two. Blocks are numbered so that the last tiles of
 * a sequence, which see most keys, start first.
 *
 * The tensor kernel has four warps of 16 M queries. While scores are multiplied the block of values
 * is on its way, while values are added the next block of keys is. The arithmetic that chose the
 * tiles, for a thread: 16 M x D sums take M D / 2 registers, scores M KEYS / 2. M = 2 reads every
 * fragment of keys and values once for 32 queries, 128 bytes of shared memory a product, which is
 * what lets tensor cores and not shared memory decide the speed; at D = 256 the sums leave room for
 * M = 1 only. Shared bytes are (64 M + 2 KEYS) (2 D + 16): 68 KiB at D = 128 and 66 at 256, so two
 * blocks fit a multiprocessor of 164 KiB, one of 100. Registers (nvcc 13.0, sm_80 / sm_90): D = 32
 * 154 / 160, 64 212 / 208, 96 243 / 252, 128 255 / 255, 256 233 / 241, none spilled but 16 of D =
 * 128 on sm_90; two blocks of 128 threads have 256 each. */
#include "runtime/kernels/cuda/attention.cuh"

#include <math.h>

struct online {
    float max, sum; /* of scores times log2(e); of the exponentials this thread holds */
};

/* Lowers what was summed to a new maximum; the factor for what was summed with it. A query that has
 * seen nothing keeps -infinity, and 0 is subtracted in its place. */
static __device__ __forceinline__ float raise_maximum(struct online *o, float max, float *base) {
    const float old = o->max;
    o->max = fmaxf(old, max);
    *base = o->max == -INFINITY ? 0.0f : o->max;
    const float keep = pl_ptx_exp2(old - *base);
    o->sum *= keep;
    return keep;
}

/* ---- tensor cores ---- */

template <int M, int KEYS>
static __device__ __forceinline__ void hide(float (&s)[M][KEYS / 8][4], uint32_t query,
                                            uint32_t key, uint32_t reach) {
    query += pl_lane() / 4;
    key += pl_lane() % 4 * 2;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (!pl_sees(query + m * 16 + i / 2 * 8, key + n * 8 + i % 2, reach))
                    s[m][n][i] = -INFINITY;
}

/* Scores become exponentials; the sums so far are scaled to the new maximum. The four lanes of a
 * quad hold a row between them. `factor` = attr.scale * log2(e). */
template <int D, int M, int KEYS>
static __device__ __forceinline__ void soften(float (&s)[M][KEYS / 8][4],
                                              float (&sums)[M][D / 8][4],
                                              struct online (&state)[M][2], float factor) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float max = -INFINITY, base, sum = 0.0f;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
                max = fmaxf(max, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
            max = pl_warp_reduce<pl_max>(max, 4) * factor;
            const float keep = raise_maximum(&state[m][half], max, &base);
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                sums[m][n][2 * half] *= keep;
                sums[m][n][2 * half + 1] *= keep;
            }
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    s[m][n][i] = pl_ptx_exp2(fmaf(s[m][n][i], factor, -base));
                    sum += s[m][n][i];
                }
            state[m][half].sum += sum;
        }
}

template <int D, int M>
static __device__ __forceinline__ void finish(const struct pl_attention &a, const struct pl_tile &t,
                                              uint32_t head, const float (&sums)[M][D / 8][4],
                                              const struct online (&state)[M][2]) {
    const uint32_t query = t.first + pl_warp() * 16 * M + pl_lane() / 4;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float sum = pl_warp_reduce<pl_add>(state[m][half].sum, 4);
            const uint32_t i = query + m * 16 + half * 8;
            if (i >= t.length) continue;
            pl_store_part<D>(a.o, t.row0 + i, head * a.dim, a.dim, sums[m], half, 1.0f / sum);
            if (pl_lane() % 4 == 0)
                a.lse[(t.row0 + i) * a.lse_ld + head] = state[m][half].max * PL_LN_2 + logf(sum);
        }
}

template <int D, int M, int KEYS>
static __global__ void __launch_bounds__(PL_TENSOR_THREADS, 2)
    forward_tensor(const struct pl_attention a) {
    constexpr uint32_t QUERIES = 64 * M;
    PL_SHARED(__nv_bfloat16, memory);
    __nv_bfloat16 *q = memory, *k = q + QUERIES * pl_pitch<D>::N, *v = k + KEYS * pl_pitch<D>::N;
    const uint32_t head = blockIdx.x % a.heads;
    const uint32_t col = head * a.dim, kv_col = head / a.group * a.dim;
    struct pl_tile t;
    if (!pl_tile_find(a, (gridDim.x - 1 - blockIdx.x) / a.heads, QUERIES, &t)) return;
    const struct pl_range keys = pl_keys_seen(a, t, QUERIES, KEYS);
    const uint32_t query = t.first + pl_warp() * 16 * M;
    const float factor = a.scale * PL_LOG2_E;

    pl_rows_a<D, false> rows[M];
    float sums[M][D / 8][4] = {};
    struct online state[M][2];
#pragma unroll
    for (int m = 0; m < M; m++) {
        rows[m].take(q + (pl_warp() * M + m) * 16 * pl_pitch<D>::N);
        state[m][0] = state[m][1] = {-INFINITY, 0.0f};
    }
    uint32_t key = (keys.end - 1) / KEYS * KEYS;
    pl_tile_copy<D, QUERIES>(q, a.q, t, t.first, col, a.dim);
    pl_tile_copy<D, KEYS>(k, a.k, t, key, kv_col, a.dim);
    pl_ptx_copy_commit();
    for (;; key -= KEYS) {
        float s[M][KEYS / 8][4];
        pl_ptx_copy_wait<0>();
        __syncthreads(); /* keys are here, the values before them are used */
        pl_tile_copy<D, KEYS>(v, a.v, t, key, kv_col, a.dim);
        pl_ptx_copy_commit();
        pl_multiply_rows<D, M, KEYS>(s, rows, k);
        if (!pl_all_see(query, 16 * M, key, KEYS, a.reach)) hide<M, KEYS>(s, query, key, a.reach);
        pl_ptx_copy_wait<0>();
        __syncthreads(); /* values are here, the keys are used */
        if (key > keys.first) pl_tile_copy<D, KEYS>(k, a.k, t, key - KEYS, kv_col, a.dim);
        pl_ptx_copy_commit();
        soften<D, M, KEYS>(s, sums, state, factor);
        pl_add_weighted<D, M, KEYS>(sums, s, v);
        if (key <= keys.first) break;
    }
    finish<D, M>(a, t, head, sums, state);
}

#define TENSOR(D, M, KEYS)                                                                         \
    {                                                                                              \
        forward_tensor<D, M, KEYS>, D, 64 * M, PL_TENSOR_THREADS,                                  \
            (64 * M + 2 * KEYS) * pl_pitch<D>::N * sizeof(__nv_bfloat16)                           \
    }

static const struct pl_attention_instance tensor_instances[] = {
    TENSOR(32, 2, 64), TENSOR(64, 2, 64), TENSOR(96, 2, 64), TENSOR(128, 2, 64), TENSOR(256, 1, 32),
};

/* ---- fp32 ---- */

/* A lane holds the score of one key with each query of its warp; exponentials pass through `p` to
 * where a lane holds columns. */
template <int CHUNKS>
static __device__ __forceinline__ void
soften_plain(float (&s)[pl_plain<CHUNKS>::OWN], float (&sums)[pl_plain<CHUNKS>::OWN][CHUNKS],
             struct online (&state)[pl_plain<CHUNKS>::OWN], float *p) {
#pragma unroll
    for (int r = 0; r < pl_plain<CHUNKS>::OWN; r++) {
        float base;
        const float keep = raise_maximum(&state[r], pl_warp_reduce<pl_max>(s[r]), &base);
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
            sums[r][c] *= keep;
        s[r] = exp2f(s[r] - base);
        state[r].sum += s[r];
        p[r * PL_PLAIN_TILE + pl_lane()] = s[r];
    }
}

template <int CHUNKS>
static __global__ void __launch_bounds__(PL_TENSOR_THREADS)
    forward_plain(const struct pl_attention a) {
    constexpr int OWN = pl_plain<CHUNKS>::OWN, PITCH = pl_plain<CHUNKS>::PITCH;
    constexpr uint32_t QUERIES = PL_TENSOR_WARPS * OWN;
    PL_SHARED(float, memory);
    float *q = memory, *kv = q + QUERIES * PITCH;
    float *p = kv + PL_PLAIN_TILE * PITCH + pl_warp() * OWN * PL_PLAIN_TILE;
    const uint32_t head = blockIdx.x % a.heads;
    const uint32_t col = head * a.dim, kv_col = head / a.group * a.dim;
    struct pl_tile t;
    if (!pl_tile_find(a, (gridDim.x - 1 - blockIdx.x) / a.heads, QUERIES, &t)) return;
    const struct pl_range keys = pl_keys_seen(a, t, QUERIES, PL_PLAIN_TILE);
    const uint32_t query = t.first + pl_warp() * OWN;

    float sums[OWN][CHUNKS] = {}, s[OWN];
    struct online state[OWN];
#pragma unroll
    for (int r = 0; r < OWN; r++)
        state[r] = {-INFINITY, 0.0f};
    pl_plain_load<CHUNKS>(q, a.q, t, t.first, QUERIES, col, a.dim);
    for (uint32_t key = keys.first; key < keys.end; key += PL_PLAIN_TILE) {
        __syncthreads();
        pl_plain_load<CHUNKS>(kv, a.k, t, key, PL_PLAIN_TILE, kv_col, a.dim);
        __syncthreads();
        pl_plain_dot<CHUNKS>(s, q + pl_warp() * OWN * PITCH, kv, (a.dim + 3) / 4 * 4);
#pragma unroll
        for (int r = 0; r < OWN; r++)
            s[r] = pl_sees(query + r, key + pl_lane(), a.reach) ? s[r] * (a.scale * PL_LOG2_E)
                                                                : -INFINITY;
        soften_plain<CHUNKS>(s, sums, state, p);
        __syncthreads();
        pl_plain_load<CHUNKS>(kv, a.v, t, key, PL_PLAIN_TILE, kv_col, a.dim);
        __syncthreads();
        pl_plain_add_weighted<CHUNKS>(sums, p, kv);
    }
#pragma unroll
    for (int r = 0; r < OWN; r++) {
        const float sum = pl_warp_reduce<pl_add>(state[r].sum);
        if (query + r >= t.length) continue;
        const uint64_t row = t.row0 + query + r;
        pl_plain_store<CHUNKS>(a.o, row, col, a.dim, sums[r], 1.0f / sum);
        if (pl_lane() == 0) a.lse[row * a.lse_ld + head] = state[r].max * PL_LN_2 + logf(sum);
    }
}

#define PLAIN(CHUNKS)                                                                              \
    {                                                                                              \
        forward_plain<CHUNKS>, CHUNKS *PL_WARP, PL_TENSOR_WARPS *pl_plain<CHUNKS>::OWN,            \
            PL_TENSOR_THREADS,                                                                     \
            ((PL_TENSOR_WARPS * pl_plain<CHUNKS>::OWN + PL_PLAIN_TILE) * pl_plain<CHUNKS>::PITCH + \
             PL_TENSOR_WARPS * pl_plain<CHUNKS>::OWN * PL_PLAIN_TILE) *                            \
                sizeof(float)                                                                      \
    }

static const struct pl_attention_instance plain_instances[] = {PLAIN(1), PLAIN(2), PLAIN(4),
                                                               PLAIN(8)};

/* in: q[N,H*D] k[N,G*D] v[N,G*D] offsets[B+1]i32 ws?; out: o[N,H*D] lse[N,H]f32. */
extern "C" pl_err pl_cuda_attention(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *in = c->in, *o = &c->out[0];
    struct pl_attention a = {};
    if (!pl_attention_of(c, &c->out[1], &in[3], &a) || !pl_is_float(o)) return PL_ERR_PLAN_BROKEN;
    if (!a.n_tokens || !a.n_seqs) return PL_ERR_OK;
    a.o = pl_mat_of<pl_either>(*o);
    const bool tensor_cores = a.dim % 8 == 0 && pl_tensor_reads(&in[0]) &&
                              pl_tensor_reads(&in[1]) && pl_tensor_reads(&in[2]) &&
                              pl_tensor_writes(o);
    const struct pl_attention_instance *of =
        pl_attention_pick(tensor_cores ? tensor_instances : plain_instances, a.dim);
    return pl_attention_launch(dev, &a, of, a.heads);
}

PL_CUDA_PRELOAD(attention_fwd) = {
    PL_CUDA_KERNEL(forward_tensor<32, 2, 64>),  PL_CUDA_KERNEL(forward_tensor<64, 2, 64>),
    PL_CUDA_KERNEL(forward_tensor<96, 2, 64>),  PL_CUDA_KERNEL(forward_tensor<128, 2, 64>),
    PL_CUDA_KERNEL(forward_tensor<256, 1, 32>), PL_CUDA_KERNEL(forward_plain<1>),
    PL_CUDA_KERNEL(forward_plain<2>),           PL_CUDA_KERNEL(forward_plain<4>),
    PL_CUDA_KERNEL(forward_plain<8>),           NULL};
