/* common.cuh - what CUDA kernels share: elements of any storage, 16-byte packs, sums in a fixed
 * order, launch shapes, and the choice of a kernel's instance at run time.
 *
 * A kernel is a template over the storage of its operands and the elements of a pack. It has a form
 * for each type of PL_FLOAT_MAP, all operands being of it, in packs of 16 bytes; and one for
 * everything else (mixed storage, windows that start or stride off 16 bytes), element by element.
 * What the builder emits runs in the former, so the last is there to be right, not to be fast.
 *   G1  arithmetic is fp32 or wider; a stored value is rounded once, to nearest even
 *   G2  a sum depends on shapes alone: lanes, warps and blocks are added in a fixed order, and
 *       there are no float atomics
 *   G3  every thread of a block reaches every team and block sum
 *   G4  a block has a multiple of 32 threads wherever it shuffles
 * Use: static void (*const kernels[PL_FORMS])(pl_args) = PL_FORM_TABLE(kernel);
 *      PL_LAUNCH(kernels[pl_form_of(views, n)], ...); and in the kernel, x and y being pl_mat<T>:
 *      float f[V]; pl_floats(pl_load<T, V>(x, row, col, cols), f); ...
 *      pl_store(y, row, col, cols, pl_packed(y, f)); */
#ifndef PL_RUNTIME_KERNELS_CUDA_COMMON_CUH
#define PL_RUNTIME_KERNELS_CUDA_COMMON_CUH

#include "runtime/device/cuda/cuda.h"
#include "runtime/kernels/cuda/table.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <float.h>
#include <stdint.h>
#include <string.h>

#define PL_WARP      32
#define PL_ALL_LANES 0xffffffffu

/* ---- bits ---- */

__device__ __forceinline__ float pl_f32_of_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

__device__ __forceinline__ uint32_t pl_bits_of_f32(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

/* ---- elements ----
 *
 * Of each type of PL_FLOAT_MAP the type in C++, pl_get and pl_put; of each narrow one pl_halves. */

typedef float pl_stored_F32;
typedef __nv_bfloat16 pl_stored_BF16;
typedef __half pl_stored_F16;

/* Storage known at run time only. */
struct pl_either {};

__device__ __forceinline__ float pl_get(const float *p) {
    return *p;
}
__device__ __forceinline__ float pl_get(const __nv_bfloat16 *p) {
    return __bfloat162float(*p);
}
__device__ __forceinline__ float pl_get(const __half *p) {
    return __half2float(*p);
}
__device__ __forceinline__ void pl_put(float *p, float x) {
    *p = x;
}
__device__ __forceinline__ void pl_put(__nv_bfloat16 *p, float x) {
    *p = __float2bfloat16_rn(x);
}
__device__ __forceinline__ void pl_put(__half *p, float x) {
    *p = __float2half_rn(x);
}

/* Two narrow numbers in one word, the first in the low half. */
template <typename T> struct pl_halves;
template <> struct pl_halves<__nv_bfloat16> {
    static __device__ __forceinline__ uint32_t pack(float low, float high) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        uint32_t u;
        memcpy(&u, &pair, sizeof u);
        return u;
    }
    static __device__ __forceinline__ void unpack(uint32_t u, float *low, float *high) {
        *low = pl_f32_of_bits(u << 16);
        *high = pl_f32_of_bits(u & 0xffff0000u);
    }
};
template <> struct pl_halves<__half> {
    static __device__ __forceinline__ uint32_t pack(float low, float high) {
        const __half2 pair = __floats2half2_rn(low, high);
        uint32_t u;
        memcpy(&u, &pair, sizeof u);
        return u;
    }
    static __device__ __forceinline__ void unpack(uint32_t u, float *low, float *high) {
        __half2 pair;
        memcpy(&pair, &u, sizeof pair);
        *low = __low2float(pair);
        *high = __high2float(pair);
    }
};

/* Element i of storage of this type. */
__device__ __forceinline__ float pl_get_as(enum pl_dtype t, const void *p, uint64_t i) {
#define PL_GET_CASE(T)                                                                             \
    case PL_DTYPE_##T:                                                                             \
        return pl_get((const pl_stored_##T *)p + i);
    switch (t) {
        PL_FLOAT_MAP(PL_GET_CASE)
    default:
        return 0.0f;
    }
#undef PL_GET_CASE
}

__device__ __forceinline__ void pl_put_as(enum pl_dtype t, void *p, uint64_t i, float x) {
#define PL_PUT_CASE(T)                                                                             \
    case PL_DTYPE_##T:                                                                             \
        pl_put((pl_stored_##T *)p + i, x);                                                         \
        break;
    switch (t) {
        PL_FLOAT_MAP(PL_PUT_CASE)
    default:
        break;
    }
#undef PL_PUT_CASE
}

/* Bytes of an element of this type. */
__device__ __forceinline__ uint32_t pl_bytes_as(enum pl_dtype t) {
    return t == PL_DTYPE_F32 ? 4 : 2;
}

/* x as it is read again where it was stored as this type. */
__device__ __forceinline__ float pl_round_as(enum pl_dtype t, float x) {
    float stored;
    pl_put_as(t, &stored, 0, x);
    return pl_get_as(t, &stored, 0);
}

/* A matrix in device memory: what a kernel sees of a view. */
template <typename T> struct pl_mat {
    T *p;
    uint64_t ld;
    __device__ __forceinline__ T *at(uint64_t row, uint64_t col) const {
        return p + row * ld + col;
    }
    __device__ __forceinline__ float get(uint64_t row, uint64_t col) const {
        return pl_get(at(row, col));
    }
    __device__ __forceinline__ void put(uint64_t row, uint64_t col, float x) const {
        pl_put(at(row, col), x);
    }
};

template <> struct pl_mat<pl_either> {
    void *p;
    uint64_t ld;
    enum pl_dtype dtype;
    __device__ __forceinline__ float get(uint64_t row, uint64_t col) const {
        return pl_get_as(dtype, p, row * ld + col);
    }
    __device__ __forceinline__ void put(uint64_t row, uint64_t col, float x) const {
        pl_put_as(dtype, p, row * ld + col, x);
    }
};

/* An absent view gives p NULL. A vector [n,1] is read as one row, so its elements are columns. */
template <typename T> static inline pl_mat<T> pl_mat_of(const struct pl_view &v) {
    return pl_mat<T>{(T *)v.p, v.ld};
}
template <> inline pl_mat<pl_either> pl_mat_of<pl_either>(const struct pl_view &v) {
    return pl_mat<pl_either>{v.p, v.ld, v.dtype};
}

/* ---- packs: V elements as stored, in registers ---- */

/* Elements of a 16-byte pack; one where the storage is not known. */
template <typename T> struct pl_lanes { static constexpr int N = 16 / sizeof(T); };
template <> struct pl_lanes<pl_either> { static constexpr int N = 1; };

template <typename T, int V> struct pl_pack {
    static_assert(V * sizeof(T) % 16 == 0, "a pack is whole words of 16 bytes");
    static constexpr int WORDS = V * sizeof(T) / 16;
    uint4 words[WORDS];
};
template <int V> struct pl_pack<pl_either, V> { float x[V]; };

__device__ __forceinline__ void pl_floats(const pl_pack<pl_either, 1> &p, float (&f)[1]) {
    f[0] = p.x[0];
}

template <int V>
__device__ __forceinline__ void pl_floats(const pl_pack<float, V> &p, float (&f)[V]) {
#pragma unroll
    for (int i = 0; i < V / 4; i++) {
        f[4 * i] = pl_f32_of_bits(p.words[i].x);
        f[4 * i + 1] = pl_f32_of_bits(p.words[i].y);
        f[4 * i + 2] = pl_f32_of_bits(p.words[i].z);
        f[4 * i + 3] = pl_f32_of_bits(p.words[i].w);
    }
}

template <typename T, int V>
__device__ __forceinline__ void pl_floats(const pl_pack<T, V> &p, float (&f)[V]) {
#pragma unroll
    for (int i = 0; i < V / 8; i++) {
        const uint32_t w[4] = {p.words[i].x, p.words[i].y, p.words[i].z, p.words[i].w};
#pragma unroll
        for (int k = 0; k < 4; k++)
            pl_halves<T>::unpack(w[k], &f[8 * i + 2 * k], &f[8 * i + 2 * k + 1]);
    }
}

/* The pack that storing f in m leaves there. */
__device__ __forceinline__ pl_pack<pl_either, 1> pl_packed(const pl_mat<pl_either> &m,
                                                           const float (&f)[1]) {
    return {{pl_round_as(m.dtype, f[0])}};
}

template <int V>
__device__ __forceinline__ pl_pack<float, V> pl_packed(const pl_mat<float> &, const float (&f)[V]) {
    pl_pack<float, V> p;
#pragma unroll
    for (int i = 0; i < V / 4; i++)
        p.words[i] = make_uint4(pl_bits_of_f32(f[4 * i]), pl_bits_of_f32(f[4 * i + 1]),
                                pl_bits_of_f32(f[4 * i + 2]), pl_bits_of_f32(f[4 * i + 3]));
    return p;
}

template <typename T, int V>
__device__ __forceinline__ pl_pack<T, V> pl_packed(const pl_mat<T> &, const float (&f)[V]) {
    typedef pl_halves<T> halves;
    pl_pack<T, V> p;
#pragma unroll
    for (int i = 0; i < V / 8; i++)
        p.words[i] = make_uint4(
            halves::pack(f[8 * i], f[8 * i + 1]), halves::pack(f[8 * i + 2], f[8 * i + 3]),
            halves::pack(f[8 * i + 4], f[8 * i + 5]), halves::pack(f[8 * i + 6], f[8 * i + 7]));
    return p;
}

/* Elements [col, col + V) of a row that has `cols`; zeros stand for those past its end. col < cols,
 * and at(row, col) is 16-byte aligned. Widening and rounding again gives the bits as stored, so a
 * tail may pass through floats. */
template <typename T, int V>
__device__ __forceinline__ pl_pack<T, V> pl_load(const pl_mat<T> &m, uint64_t row, uint64_t col,
                                                 uint64_t cols) {
    if (col + V > cols) {
        float f[V];
#pragma unroll
        for (int i = 0; i < V; i++)
            f[i] = col + i < cols ? m.get(row, col + i) : 0.0f;
        return pl_packed(m, f);
    }
    pl_pack<T, V> p;
    const uint4 *src = reinterpret_cast<const uint4 *>(m.at(row, col));
#pragma unroll
    for (int i = 0; i < pl_pack<T, V>::WORDS; i++)
        p.words[i] = src[i];
    return p;
}

template <>
__device__ __forceinline__ pl_pack<pl_either, 1>
pl_load<pl_either, 1>(const pl_mat<pl_either> &m, uint64_t row, uint64_t col, uint64_t) {
    return {{m.get(row, col)}};
}

/* Stores what lies before `cols`. */
template <typename T, int V>
__device__ __forceinline__ void pl_store(const pl_mat<T> &m, uint64_t row, uint64_t col,
                                         uint64_t cols, const pl_pack<T, V> &p) {
    if (col + V > cols) {
        float f[V];
        pl_floats(p, f);
#pragma unroll
        for (int i = 0; i < V; i++)
            if (col + i < cols) m.put(row, col + i, f[i]);
        return;
    }
    uint4 *dst = reinterpret_cast<uint4 *>(m.at(row, col));
#pragma unroll
    for (int i = 0; i < pl_pack<T, V>::WORDS; i++)
        dst[i] = p.words[i];
}

template <>
__device__ __forceinline__ void pl_store<pl_either, 1>(const pl_mat<pl_either> &m, uint64_t row,
                                                       uint64_t col, uint64_t,
                                                       const pl_pack<pl_either, 1> &p) {
    m.put(row, col, p.x[0]);
}

/* ---- sums ---- */

struct pl_add {
    template <typename T> __device__ __forceinline__ T operator()(T a, T b) const { return a + b; }
};
struct pl_max {
    __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/* A reduction over the `width` (a power of two, at most 32) lanes that share their upper lane bits;
 * all of them get the result. A butterfly of a commutative operation gives every lane the same
 * bits. */
template <typename Op, typename T>
__device__ __forceinline__ T pl_warp_reduce(T v, unsigned width = PL_WARP) {
    for (unsigned o = width / 2; o; o /= 2)
        v = Op()(v, __shfl_xor_sync(PL_ALL_LANES, v, o));
    return v;
}

/* A team is a line of threads along x: a power of two up to 32, or a multiple of 32; a block holds
 * blockDim.y of them. Reduces over each team; all its threads get the result. `shared` holds one T
 * per warp of the block and may be used again at once. */
template <typename Op, typename T> __device__ __forceinline__ T pl_team_reduce(T v, T *shared) {
    if (blockDim.x <= PL_WARP) return pl_warp_reduce<Op>(v, blockDim.x);
    v = pl_warp_reduce<Op>(v);
    const unsigned warps = blockDim.x / PL_WARP, first = threadIdx.y * warps;
    if (threadIdx.x % PL_WARP == 0) shared[first + threadIdx.x / PL_WARP] = v;
    __syncthreads();
    v = shared[first];
    for (unsigned i = 1; i < warps; i++)
        v = Op()(v, shared[first + i]);
    __syncthreads();
    return v;
}

/* ---- forms ---- */

enum {
#define PL_FORM(T) PL_FORM_##T,
    PL_FLOAT_MAP(PL_FORM) PL_FORM_EITHER,
#undef PL_FORM
    PL_FORMS
};

/* The instances of `template <typename T, int V> kernel` with packs of 16 bytes, and of
 * `template <typename T> kernel`. */
#define PL_FORM_INSTANCE(T, kernel) kernel<pl_stored_##T, pl_lanes<pl_stored_##T>::N>,
#define PL_FORM_TABLE(kernel)                                                                      \
    { PL_FLOAT_LIST(PL_FORM_INSTANCE, kernel) kernel<pl_either, 1> }
#define PL_TYPE_INSTANCE(T, kernel) kernel<pl_stored_##T>,
#define PL_TYPE_TABLE(kernel)                                                                      \
    { PL_FLOAT_LIST(PL_TYPE_INSTANCE, kernel) kernel<pl_either> }

/* The same instances of a __global__ function, for PL_CUDA_PRELOAD. */
#define PL_FORM_KERNEL(T, kernel) PL_CUDA_KERNEL(kernel<pl_stored_##T, pl_lanes<pl_stored_##T>::N>),
#define PL_FORM_KERNELS(kernel)                                                                    \
    PL_FLOAT_LIST(PL_FORM_KERNEL, kernel) PL_CUDA_KERNEL(kernel<pl_either, 1>)
#define PL_TYPE_KERNEL(T, kernel) PL_CUDA_KERNEL(kernel<pl_stored_##T>),
#define PL_TYPE_KERNELS(kernel)                                                                    \
    PL_FLOAT_LIST(PL_TYPE_KERNEL, kernel) PL_CUDA_KERNEL(kernel<pl_either>)

/* True if packs of 16 bytes can be read at columns that are multiples of one. */
static inline bool pl_is_aligned(const struct pl_view *v) {
    const uint64_t size = pl_dtype_is_narrow(v->dtype) ? 2 : 4;
    return (uintptr_t)v->p % 16 == 0 && (v->rows <= 1 || v->ld * size % 16 == 0);
}

static inline int pl_form_of_type(enum pl_dtype t) {
#define PL_FORM_CASE(T)                                                                            \
    case PL_DTYPE_##T:                                                                             \
        return PL_FORM_##T;
    switch (t) {
        PL_FLOAT_MAP(PL_FORM_CASE)
    default:
        return PL_FORM_EITHER;
    }
#undef PL_FORM_CASE
}

/* The form that serves all of n views; absent ones are passed over. */
static inline int pl_form_of(const struct pl_view *const *views, int n) {
    int form = -1;
    for (int i = 0; i < n; i++) {
        if (!views[i]->p) continue;
        const int own = pl_form_of_type(views[i]->dtype);
        if (!pl_is_aligned(views[i]) || (form >= 0 && form != own)) return PL_FORM_EITHER;
        form = own;
    }
    return form < 0 ? PL_FORM_EITHER : form;
}

/* Elements of a pack in this form. */
static inline unsigned pl_form_lanes(int form) {
#define PL_LANES_OF(T) pl_lanes<pl_stored_##T>::N,
    static const unsigned lanes[PL_FORMS] = {PL_FLOAT_MAP(PL_LANES_OF) pl_lanes<pl_either>::N};
#undef PL_LANES_OF
    return lanes[form];
}

static inline bool pl_is_float(const struct pl_view *v) {
    return pl_dtype_is_float(v->dtype);
}

/* A vector [n,1] as one row of n columns. */
static inline struct pl_view pl_as_row(const struct pl_view *v) {
    struct pl_view row = *v;
    row.cols = v->rows;
    row.ld = v->rows;
    row.rows = 1;
    return row;
}

/* A workspace view is U8[bytes]; one that is smaller than the rule says is a broken plan. */
static inline bool pl_ws_holds(const struct pl_view *ws, uint64_t bytes) {
    return bytes == 0 || (ws->p && ws->rows * ws->cols >= bytes);
}

/* ---- launch shapes ---- */

/* The largest gridDim.x. */
#define PL_GRID_MAX UINT64_C(0x7fffffff)

/* A team for a row of `packs` packs: about `each` packs a thread, at most `most` threads (a
 * multiple of 32). */
static inline unsigned pl_team_threads(uint64_t packs, unsigned each, unsigned most) {
    const uint64_t wanted = (packs + each - 1) / each;
    unsigned team = 1;
    if (wanted > PL_WARP)
        return wanted >= most ? most : (unsigned)((wanted + PL_WARP - 1) / PL_WARP * PL_WARP);
    while (team < wanted)
        team *= 2;
    return team;
}

/* Teams side by side in a block of about `threads`; a team that is no multiple of 32 divides it. */
static inline unsigned pl_teams_of_block(unsigned team, unsigned threads) {
    return team >= threads ? 1 : threads / team;
}

#endif
