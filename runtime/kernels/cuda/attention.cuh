/* attention.cuh - what both directions of attention share: the call as kernels see it, tiles of
 * packed sequences, the mask, and products of tiles.
 *
 * Two kinds of kernel exist. Tensor kernels ("FlashAttention-2", Dao 2023, arXiv 2307.08691) want
 * every matrix they multiply in one type T of 16 bits that the GPU multiplies, at addresses and
 * strides of whole 16 bytes, and a head size that is a multiple of 8. Plain kernels take any mixture
 * of storage, any window and any head size up to 512, and multiply in fp32; parity runs, odd shapes
 * and heads of more than 256 go there. Of each kind there are instances for the head sizes, and more for GPUs whose
 * blocks have less shared memory.
 *   A1  a block owns its outputs: nothing is added through memory, so every order of blocks gives
 *       the same bits
 *   A2  rows of a tile past the end of its sequence, and columns past the head size, are zeros in
 *       shared memory: what they contribute is finite, and multiplied by zero or not stored
 *   A3  query i sees key j of its sequence where 0 <= i - j < reach
 *   A4  rows of a 16-bit tile are D + 8 elements apart, an odd number of 16-byte units, so the eight
 *       rows of an ldmatrix lie in different banks and addresses stay base + constant
 * Needs: common.cuh (elements, sums), ptx.cuh (tensor cores, asynchronous copies).
 * Use: struct pl_attention a; if (!pl_attention_of(dev, c, &a)) return PL_ERR_PLAN_BROKEN; ...
 *      pl_attention_launch(kernel, dev, blocks, threads, shared bytes, a); */
#ifndef PL_RUNTIME_KERNELS_CUDA_ATTENTION_CUH
#define PL_RUNTIME_KERNELS_CUDA_ATTENTION_CUH

#include "estimator/card/cards.h"
#include "runtime/kernels/cuda/common.cuh"
#include "runtime/kernels/cuda/ptx.cuh"
#include "runtime/kernels/cuda/table.h"

#define PL_LOG2_E 1.44269504088896340736f
#define PL_LN_2   0.69314718055994530942f

enum {
    PL_ATTENTION_MAX_DIM = 512,
    PL_TENSOR_WARPS = 4,
    PL_TENSOR_THREADS = PL_TENSOR_WARPS * PL_WARP,
    PL_PLAIN_TILE = 32 /* rows of the walked side of a plain tile: one a lane */
};

struct pl_attention {
    pl_mat<pl_either> q, k, v, o, go, dq, dk, dv;
    pl_mat<pl_either> sinks; /* [H] as a row; p NULL: none; forward */
    float *lse; /* [N,H], lse_ld */
    uint64_t lse_ld;
    float2 *stats; /* [H][N]: lse * log2(e), and delta = sum(do * o); backward */
    const int32_t *offsets;
    const int32_t *positions; /* of every query; ATTENTION_CACHED */
    uint32_t context;         /* rows of k and v that a sequence owns; ATTENTION_CACHED */
    uint32_t n_seqs, n_tokens;
    uint32_t heads, kv_heads, group; /* group = query heads of a kv head */
    uint32_t parts, part_heads;      /* of a group, and the heads of one; backward */
    uint32_t dim, reach;
    float scale;
};

/* ---- tiles of packed sequences ---- */

/* `rows` rows from `first` of a sequence that starts at batch row `row0`. */
struct pl_tile {
    uint32_t row0, first, length;
    uint32_t seq; /* its number */
};

/* Sequence s owns the tile numbers from offsets[s] / rows + s to that of s + 1: at least as many as
 * it has tiles, at most one more, and no table is needed to find them. */
static inline uint64_t pl_tile_count(const struct pl_attention *a, uint32_t rows) {
    return (uint64_t)a->n_tokens / rows + a->n_seqs;
}

/* True if there is a tile of this number. Every thread of a block gets the same answer. */
static __device__ __forceinline__ bool pl_tile_find(const struct pl_attention &a, uint32_t number,
                                                    uint32_t rows, struct pl_tile *t) {
    uint32_t low = 0, high = a.n_seqs; /* the sequence lies in [low, high) */
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if ((uint32_t)a.offsets[middle] / rows + middle <= number)
            low = middle;
        else
            high = middle;
    }
    const uint32_t start = (uint32_t)a.offsets[low];
    t->seq = low;
    t->row0 = start;
    t->length = (uint32_t)a.offsets[low + 1] - start;
    t->first = (number - (start / rows + low)) * rows;
    return t->first < t->length;
}

/* [first, end): keys seen by the queries [first, first + rows) of t, the first rounded down to
 * whole blocks; and queries that see the keys [first, first + rows) of t. */
struct pl_range {
    uint32_t first, end;
};

static __device__ __forceinline__ struct pl_range
pl_keys_seen(const struct pl_attention &a, const struct pl_tile &t, uint32_t rows, uint32_t block) {
    const uint32_t lowest = t.first + 1 > a.reach ? t.first + 1 - a.reach : 0;
    const uint32_t end = t.first + rows;
    const struct pl_range r = {lowest / block * block, end < t.length ? end : t.length};
    return r;
}

static __device__ __forceinline__ struct pl_range
pl_queries_seeing(const struct pl_attention &a, const struct pl_tile &t, uint32_t rows) {
    const uint32_t end = t.first + rows - 1 + a.reach; /* below 2^32: both are at most 2^31 */
    const struct pl_range r = {t.first, end < t.length ? end : t.length};
    return r;
}

/* The facts of a block that it needs once a step. From Ampere on they lie in shared memory: in
 * registers they would be spilled, since the products of D = 128 take them all. One thread writes
 * them before a barrier, and they never change; `volatile` makes every step read them again. On
 * Turing the loads would be spilled instead (nvcc 13.0: 208 bytes in place of 72). */
struct pl_kept {
    uint32_t row0, length; /* as in pl_tile, of the side that is walked */
    uint32_t first, end;   /* of the walk */
    uint32_t own;          /* first row of the own tile */
    uint32_t col;          /* of the walked side */
    uint32_t heads_end;    /* of the group that shares a head of keys */
    float factor;          /* attr.scale * log2(e) */
    __device__ __forceinline__ struct pl_tile walked(void) const volatile {
        const struct pl_tile t = {row0, 0, length, 0};
        return t;
    }
};

#if PL_PTX_IS_AMPERE
typedef volatile struct pl_kept pl_kept_place;
#else
typedef struct pl_kept pl_kept_place;
#endif

/* Returns where they lie: in `shared`, or in `own`, which each thread has for itself. *writes: this
 * thread fills it. */
static __device__ __forceinline__ pl_kept_place *pl_keep(void *shared, struct pl_kept *own,
                                                         bool *writes) {
#if PL_PTX_IS_AMPERE
    (void)own;
    *writes = threadIdx.x == 0;
    return (pl_kept_place *)shared;
#else
    (void)shared;
    *writes = true;
    return own;
#endif
}

/* A3. A key after its query wraps to a distance above every reach. */
static __device__ __forceinline__ bool pl_sees(uint32_t query, uint32_t key, uint32_t reach) {
    return query - key < reach;
}

/* True if all of `queries` from q see all of `keys` from k. */
static __device__ __forceinline__ bool pl_all_see(uint32_t q, uint32_t queries, uint32_t k,
                                                  uint32_t keys, uint32_t reach) {
    return k + keys <= q + 1 && q + queries - 1 - k < reach;
}

/* ---- 16-bit tiles in shared memory, and products of them ---- */

template <int D> struct pl_pitch { static constexpr int N = D + 8; /* A4 */ };

static __device__ __forceinline__ uint32_t pl_lane(void) {
    return threadIdx.x % PL_WARP;
}
static __device__ __forceinline__ uint32_t pl_warp(void) {
    return threadIdx.x / PL_WARP;
}

/* Starts copying rows [first, first + ROWS) of a sequence, columns [col, col + dim), to a tile. A
 * thread keeps its column and walks down the rows: one address and one stride. */
template <int D, uint32_t ROWS>
static __device__ __forceinline__ void pl_tile_copy(uint16_t *dst, const pl_mat<pl_either> &m,
                                                    const struct pl_tile &t, uint32_t first,
                                                    uint32_t col, uint32_t dim) {
    constexpr uint32_t PER_ROW = D / 8, STEP = PL_TENSOR_THREADS / PER_ROW;
    const uint32_t row = threadIdx.x / PER_ROW, c = threadIdx.x % PER_ROW * 8;
    if (PL_TENSOR_THREADS % PER_ROW && row == STEP) return;
    const uint16_t *src =
        (const uint16_t *)m.p + (uint64_t)(t.row0 + first + row) * m.ld + col + c;
    const uint32_t rows = c < dim ? t.length - first : 0;
    dst += row * pl_pitch<D>::N + c;
#pragma unroll
    for (uint32_t r = 0; r < ROWS; r += STEP) {
        if (ROWS % STEP && r + row >= ROWS) break;
        pl_ptx_copy_16(dst + r * pl_pitch<D>::N, src, r + row < rows);
        src += STEP * m.ld;
    }
}

/* The address of a lane for the 16 x 16 block at the start of `tile`, whatever the fragment. */
template <int D>
static __device__ __forceinline__ const uint16_t *pl_lane_row(const uint16_t *tile) {
    return tile + pl_lane() % 16 * pl_pitch<D>::N + pl_lane() / 16 * 8;
}

/* Fragments (ptx.cuh) of the 16 x 16 block at (row, col): as A; as B of two column blocks of 8,
 * columns being rows of the tile; and as B whose columns are those of the tile. */
template <int D>
static __device__ __forceinline__ void pl_fragment_a(uint32_t (&a)[4], const uint16_t *lane,
                                                     int row, int col) {
    pl_ptx_ldmatrix_x4(a, lane + row * pl_pitch<D>::N + col);
}

template <int D>
static __device__ __forceinline__ void pl_fragment_b(uint32_t (&b)[4], const uint16_t *lane,
                                                     int row, int col) {
    uint32_t r[4];
    pl_ptx_ldmatrix_x4(r, lane + row * pl_pitch<D>::N + col);
    b[0] = r[0], b[1] = r[2], b[2] = r[1], b[3] = r[3];
}

template <int D>
static __device__ __forceinline__ void
pl_fragment_b_trans(uint32_t (&b)[4], const uint16_t *lane, int row, int col) {
    pl_ptx_ldmatrix_x4_trans(b, lane + row * pl_pitch<D>::N + col);
}

/* The 16 x D rows of a warp as A fragments: kept in registers, or read where they are needed. */
template <int D, bool KEPT> struct pl_rows_a {
    uint32_t f[D / 16][4];
    __device__ __forceinline__ void take(const uint16_t *rows) {
#pragma unroll
        for (int k = 0; k < D / 16; k++)
            pl_fragment_a<D>(f[k], pl_lane_row<D>(rows), 0, k * 16);
    }
    __device__ __forceinline__ void get(uint32_t (&a)[4], int k) const {
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[i] = f[k][i];
    }
};
template <int D> struct pl_rows_a<D, false> {
    const uint16_t *lane;
    __device__ __forceinline__ void take(const uint16_t *rows) { lane = pl_lane_row<D>(rows); }
    __device__ __forceinline__ void get(uint32_t (&a)[4], int k) const {
        pl_fragment_a<D>(a, lane, 0, k * 16);
    }
};

/* c[16 M, N] = rows[16 M, D] tile[N, D]^T. */
template <typename T, int D, int M, int N, bool KEPT>
static __device__ __forceinline__ void pl_multiply_rows(float (&c)[M][N / 8][4],
                                                        const pl_rows_a<D, KEPT> (&rows)[M],
                                                        const uint16_t *tile) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                c[m][n][i] = 0.0f;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t a[M][4], b[4];
#pragma unroll
        for (int m = 0; m < M; m++)
            rows[m].get(a[m], k);
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            pl_fragment_b<D>(b, pl_lane_row<D>(tile), n * 16, k * 16);
#pragma unroll
            for (int m = 0; m < M; m++) {
                pl_ptx_mma<T>(c[m][2 * n], a[m], b);
                pl_ptx_mma<T>(c[m][2 * n + 1], a[m], b + 2);
            }
        }
    }
}

/* c[16 M, D] += w[16 M, N] tile[N, D]. Sums of one product are the A fragments of the next: the
 * weights are rounded to T and never leave their registers. */
template <typename T, int D, int M, int N>
static __device__ __forceinline__ void
pl_add_weighted(float (&c)[M][D / 8][4], const float (&w)[M][N / 8][4], const uint16_t *tile) {
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        uint32_t a[M][4], b[4];
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[m][i] = pl_halves<T>::pack(w[m][2 * k + i / 2][i % 2 * 2],
                                             w[m][2 * k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            pl_fragment_b_trans<D>(b, pl_lane_row<D>(tile), k * 16, n * 16);
#pragma unroll
            for (int m = 0; m < M; m++) {
                pl_ptx_mma<T>(c[m][2 * n], a[m], b);
                pl_ptx_mma<T>(c[m][2 * n + 1], a[m], b + 2);
            }
        }
    }
}

static __device__ __forceinline__ void pl_put_pair(float *p, float a, float b) {
    *(float2 *)p = make_float2(a, b);
}
template <typename T> static __device__ __forceinline__ void pl_put_pair(T *p, float a, float b) {
    *(uint32_t *)p = pl_halves<T>::pack(a, b);
}

template <int D, typename T>
static __device__ __forceinline__ void
pl_store_pairs(T *p, uint32_t dim, const float (&x)[D / 8][4], int half, float factor) {
#pragma unroll
    for (int n = 0; n < D / 8; n++)
        if ((uint32_t)n * 8 < dim)
            pl_put_pair(p + n * 8, x[n][2 * half] * factor, x[n][2 * half + 1] * factor);
}

/* Stores factor * x, a thread's part of row g (half 0) or g + 8 (half 1) of a 16 x D block. */
template <int D>
static __device__ __forceinline__ void
pl_store_part(const pl_mat<pl_either> &m, uint64_t row, uint32_t col, uint32_t dim,
              const float (&x)[D / 8][4], int half, float factor) {
    const uint64_t at = row * m.ld + col + pl_lane() % 4 * 2;
#define STORE_PAIRS(T)                                                                             \
    case PL_DTYPE_##T:                                                                             \
        pl_store_pairs<D>((pl_stored_##T *)m.p + at, dim, x, half, factor);                        \
        break;
    switch (m.dtype) {
        PL_FLOAT_MAP(STORE_PAIRS)
    default:
        break;
    }
#undef STORE_PAIRS
}

/* ---- fp32 tiles of the plain kernels ---- */

/* CHUNKS vectors of 32 columns; the pitch is an odd number of 16-byte units, so that eight rows
 * read together lie in different banks. */
template <int CHUNKS> struct pl_plain {
    static constexpr int PITCH = CHUNKS * PL_WARP + 4;
    static constexpr int OWN = CHUNKS > 4 ? 4 : 8; /* rows a warp owns, for at most 64 sums */
};

/* Rows [first, first + n) of a sequence, columns [col, col + dim), as fp32. */
template <int CHUNKS>
static __device__ __forceinline__ void pl_plain_load(float *dst, const pl_mat<pl_either> &m,
                                                     const struct pl_tile &t, uint32_t first,
                                                     uint32_t n, uint32_t col, uint32_t dim) {
    for (uint32_t i = threadIdx.x; i < n * CHUNKS * PL_WARP; i += blockDim.x) {
        const uint32_t row = i / (CHUNKS * PL_WARP), c = i % (CHUNKS * PL_WARP);
        const bool valid = first + row < t.length && c < dim;
        dst[row * pl_plain<CHUNKS>::PITCH + c] =
            valid ? m.get(t.row0 + first + row, col + c) : 0.0f;
    }
}

/* c[r] = own row r . the lane's row of the walked tile. dim4 = head size rounded up to 4. */
template <int CHUNKS>
static __device__ __forceinline__ void pl_plain_dot(float (&c)[pl_plain<CHUNKS>::OWN],
                                                    const float *own, const float *walked,
                                                    uint32_t dim4) {
    constexpr int PITCH = pl_plain<CHUNKS>::PITCH;
    const float *row = walked + pl_lane() * PITCH;
#pragma unroll
    for (int r = 0; r < pl_plain<CHUNKS>::OWN; r++)
        c[r] = 0.0f;
    for (uint32_t d = 0; d < dim4; d += 4) {
        const float4 y = *(const float4 *)(row + d);
#pragma unroll
        for (int r = 0; r < pl_plain<CHUNKS>::OWN; r++) {
            const float4 x = *(const float4 *)(own + r * PITCH + d);
            c[r] = fmaf(x.w, y.w, fmaf(x.z, y.z, fmaf(x.y, y.y, fmaf(x.x, y.x, c[r]))));
        }
    }
}

/* sum[r][columns of the lane] += weights[r] of the rows of the walked tile. */
template <int CHUNKS>
static __device__ __forceinline__ void
pl_plain_add_weighted(float (&sum)[pl_plain<CHUNKS>::OWN][CHUNKS], const float *weights,
                      const float *walked) {
#pragma unroll 4
    for (uint32_t j = 0; j < PL_PLAIN_TILE; j++) {
        float x[CHUNKS];
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
            x[c] = walked[j * pl_plain<CHUNKS>::PITCH + c * PL_WARP + pl_lane()];
#pragma unroll
        for (int r = 0; r < pl_plain<CHUNKS>::OWN; r++)
#pragma unroll
            for (int c = 0; c < CHUNKS; c++)
                sum[r][c] = fmaf(weights[r * PL_PLAIN_TILE + j], x[c], sum[r][c]);
    }
}

template <int CHUNKS>
static __device__ __forceinline__ void pl_plain_store(const pl_mat<pl_either> &m, uint64_t row,
                                                      uint32_t col, uint32_t dim,
                                                      const float (&x)[CHUNKS], float factor) {
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
        if (c * PL_WARP + pl_lane() < dim) m.put(row, col + c * PL_WARP + pl_lane(), x[c] * factor);
}

/* ---- the call ---- */

/* Fills what both directions have in common; false = the operands contradict each other. With
 * a->context set, k and v are a cache of rows of their own. */
static inline bool pl_attention_of(const struct pl_call *c, const struct pl_view *lse,
                                   const struct pl_view *offsets, struct pl_attention *a) {
    const struct pl_attr *attr = c->attr;
    const uint64_t q_cols = (uint64_t)attr->heads * attr->head_dim;
    const uint64_t kv_cols = (uint64_t)attr->kv_heads * attr->head_dim;
    if (!attr->kv_heads || attr->heads % attr->kv_heads || !attr->head_dim ||
        attr->head_dim > PL_ATTENTION_MAX_DIM || c->in[PL_ATTENTION_Q].rows > INT32_MAX ||
        c->in[PL_ATTENTION_Q].cols != q_cols || c->in[PL_ATTENTION_K].cols != kv_cols ||
        c->in[PL_ATTENTION_V].cols != kv_cols || lse->dtype != PL_DTYPE_F32 ||
        offsets->dtype != PL_DTYPE_I32 || c->batch->n_seqs >= offsets->rows)
        return false;
    for (int i = 0; i < 3; i++)
        if (!pl_is_float(&c->in[i]) || (!a->context && c->in[i].rows != c->in[PL_ATTENTION_Q].rows))
            return false;
    a->q = pl_mat_of<pl_either>(c->in[PL_ATTENTION_Q]);
    a->k = pl_mat_of<pl_either>(c->in[PL_ATTENTION_K]);
    a->v = pl_mat_of<pl_either>(c->in[PL_ATTENTION_V]);
    a->lse = (float *)lse->p;
    a->lse_ld = lse->ld;
    a->offsets = (const int32_t *)offsets->p;
    a->n_seqs = (uint32_t)c->batch->n_seqs;
    a->n_tokens = (uint32_t)c->in[PL_ATTENTION_Q].rows;
    a->heads = attr->heads;
    a->kv_heads = attr->kv_heads;
    a->group = attr->heads / attr->kv_heads;
    a->dim = attr->head_dim;
    a->reach = attr->window && attr->window < UINT32_C(1) << 31 ? attr->window : UINT32_C(1) << 31;
    a->scale = attr->scale;
    return true;
}

/* True if the GPU multiplies numbers of a narrow type: Turing has no bf16. */
static inline bool pl_cuda_multiplies(struct pl_device *dev, enum pl_dtype t) {
    return t != PL_DTYPE_BF16 || pl_cuda_of(dev)->sm >= PL_CARD_OLDEST_BF16_SM;
}

/* True if a tensor kernel of type t may read this matrix, and if it may write it. */
static inline bool pl_tensor_reads(const struct pl_view *v, enum pl_dtype t) {
    return v->dtype == t && pl_is_aligned(v);
}
static inline bool pl_tensor_writes(const struct pl_view *v) {
    return pl_is_aligned(v);
}

typedef void (*pl_attention_kernel)(struct pl_attention);

/* One instance of a kernel, and what a block of it takes. */
struct pl_attention_instance {
    pl_attention_kernel kernel;
    uint32_t dim;  /* largest head size */
    uint32_t rows; /* of the tile a block owns */
    uint32_t threads, shared_bytes;
};

/* Returns the first instance that takes the head size and fits a block of the GPU, so that the
 * choice depends on these two alone; NULL: there is none. Instances are sorted by head size, the
 * faster first, and end with one without a kernel. */
static inline const struct pl_attention_instance *
pl_attention_pick(struct pl_device *dev, const struct pl_attention_instance *instances,
                  uint32_t dim) {
    const uint32_t most = pl_cuda_of(dev)->shared_max;
    while (instances->kernel && (instances->dim < dim || instances->shared_bytes > most))
        instances++;
    return instances->kernel ? instances : NULL;
}

/* One block per tile of the sequences and head. */
static inline pl_err pl_attention_launch(struct pl_device *dev, const struct pl_attention *a,
                                         const struct pl_attention_instance *of, uint32_t heads) {
    const struct pl_cuda *cuda = pl_cuda_of(dev);
    if (!of) return PL_ERR_PLAN_BROKEN;
    const uint64_t blocks = pl_tile_count(a, of->rows) * heads;
    if (blocks > PL_GRID_MAX) return PL_ERR_PLAN_BROKEN;
    PL_LAUNCH(of->kernel, dim3((unsigned)blocks), dim3(of->threads), of->shared_bytes, cuda->stream,
              *a);
    return pl_cuda_launched();
}

#endif
