/* simd.h - what CPU kernels share: storage types, rows, sums, fast functions, loops over the pool.
 *
 * Everything is plain C that the compiler turns into vectors of the level at hand.
 *   S1  arithmetic is fp32 or wider whatever the storage; a stored value is rounded once
 *   S2  a sum depends on its length alone, never on threads
 *   S3  NaN and infinity propagate
 * Use: float *x = ...; pl_load_row(&view, i, x); ... pl_store_row(&view, i, x); */
#ifndef PL_RUNTIME_KERNELS_CPU_SIMD_H
#define PL_RUNTIME_KERNELS_CPU_SIMD_H

#include "estimator/base/checked.h"
#include "estimator/ops/half.h"
#include "runtime/kernels/cpu/level.h"
#include "runtime/kernels/cpu/vec.h"

#include <math.h>
#include <string.h>

/* Keeps -fassociative-math from moving terms across the parentheses, so that two loops with the
 * same expression round alike. GCC 12 ignores it in vectorised loops, so accuracy must not depend
 * on it. */
#if defined(__has_builtin)
#if __has_builtin(__builtin_assoc_barrier)
#define PL_FENCE(x) __builtin_assoc_barrier(x)
#elif __has_builtin(__arithmetic_fence)
#define PL_FENCE(x) __arithmetic_fence(x)
#endif
#endif
#ifndef PL_FENCE
#define PL_FENCE(x) (x)
#endif

/* ---- rows by index ----
 *
 * Indices come from the data room, which refused those out of range; a kernel that trusted that
 * would turn a defect elsewhere into a wild read. */
static inline bool pl_indices_below(const struct pl_view *indices, uint64_t rows) {
    for (uint64_t i = 0; i < indices->rows; i++) {
        const int32_t *index = (const int32_t *)indices->p + i * indices->ld;
        for (uint64_t j = 0; j < indices->cols; j++)
            if (index[j] < 0 || (uint64_t)index[j] >= rows) return false;
    }
    return true;
}

/* True if n runs of rows, each from its end to the next, follow each other within `rows`. */
static inline bool pl_ends_are_ordered(const int32_t *ends, uint64_t n, uint64_t rows) {
    for (uint64_t i = 0; i < n; i++)
        if (ends[i] > ends[i + 1]) return false;
    return ends[0] >= 0 && (uint64_t)ends[n] <= rows;
}

/* ---- bits of fp32 ---- */

static inline uint32_t pl_f32_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float pl_f32_from_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* ---- storage: how a number of each type is read and written ----
 *
 * pl_get_T, pl_put_T for every T of PL_FLOAT_MAP; loops over many follow from them. */

typedef float pl_stored_F32;
typedef uint16_t pl_stored_BF16;
typedef uint16_t pl_stored_F16;

static inline float pl_get_F32(float x) {
    return x;
}
static inline float pl_put_F32(float x) {
    return x;
}

static inline float pl_get_BF16(uint16_t h) {
    return pl_f32_from_bits((uint32_t)h << 16);
}

/* Round to nearest even. Rounding would carry a NaN with low bits only into infinity, so NaNs are
 * made quiet instead. */
static inline uint16_t pl_put_BF16(float x) {
    uint32_t u = pl_f32_bits(x), rounded = u + 0x7FFFu + (u >> 16 & 1);
    return (uint16_t)(((u & 0x7FFFFFFFu) > 0x7F800000u ? u | 0x400000u : rounded) >> 16);
}

static inline float pl_get_F16(uint16_t h) {
    return pl_half_widen(h);
}
static inline uint16_t pl_put_F16(float x) {
    return pl_half_narrow(x);
}

/* Elements that vectors of the level convert, at the beginning of n; the compiler makes vectors of
 * the loop over the others, which for fp16 are the slower ones. */
static inline uint64_t pl_widened_F32(float *dst, const float *src, uint64_t n) {
    (void)dst, (void)src, (void)n;
    return 0;
}
static inline uint64_t pl_narrowed_F32(float *dst, const float *src, uint64_t n) {
    return pl_widened_F32(dst, src, n);
}
static inline uint64_t pl_widened_BF16(float *dst, const uint16_t *src, uint64_t n) {
    (void)dst, (void)src, (void)n;
    return 0;
}
static inline uint64_t pl_narrowed_BF16(uint16_t *dst, const float *src, uint64_t n) {
    (void)dst, (void)src, (void)n;
    return 0;
}

#if defined(__F16C__)
static inline uint64_t pl_widened_F16(float *dst, const uint16_t *src, uint64_t n) {
    uint64_t i = 0;
    for (; i + PL_LANES <= n; i += PL_LANES)
        *(pl_vec_unaligned *)(dst + i) = pl_vec_get_F16(src + i);
    return i;
}
static inline uint64_t pl_narrowed_F16(uint16_t *dst, const float *src, uint64_t n) {
    uint64_t i = 0;
    for (; i + PL_LANES <= n; i += PL_LANES)
        pl_vec_put_F16(dst + i, pl_vec_load(src + i));
    return i;
}
#else
static inline uint64_t pl_widened_F16(float *dst, const uint16_t *src, uint64_t n) {
    return pl_widened_BF16(dst, src, n);
}
static inline uint64_t pl_narrowed_F16(uint16_t *dst, const float *src, uint64_t n) {
    return pl_narrowed_BF16(dst, src, n);
}
#endif

#define PL_STORAGE(T)                                                                              \
    static inline void pl_widen_##T(float *restrict dst, const void *restrict src, uint64_t n) {   \
        const pl_stored_##T *from = src;                                                           \
        for (uint64_t i = pl_widened_##T(dst, from, n); i < n; i++)                                \
            dst[i] = pl_get_##T(from[i]);                                                          \
    }                                                                                              \
    static inline void pl_narrow_##T(void *restrict dst, const float *restrict src, uint64_t n) {  \
        pl_stored_##T *to = dst;                                                                   \
        for (uint64_t i = pl_narrowed_##T(to, src, n); i < n; i++)                                 \
            to[i] = pl_put_##T(src[i]);                                                            \
    }
PL_FLOAT_MAP(PL_STORAGE)
#undef PL_STORAGE

#define PL_WIDEN_CASE(T)                                                                           \
    case PL_DTYPE_##T:                                                                             \
        pl_widen_##T(dst, src, n);                                                                 \
        break;
#define PL_NARROW_CASE(T)                                                                          \
    case PL_DTYPE_##T:                                                                             \
        pl_narrow_##T(dst, src, n);                                                                \
        break;

/* Widens n elements of a float type. */
static inline void pl_widen(float *restrict dst, const void *restrict src, enum pl_dtype t,
                            uint64_t n) {
    switch (t) {
        PL_FLOAT_MAP(PL_WIDEN_CASE)
    default:
        break;
    }
}

/* Stores n floats as a float type. */
static inline void pl_narrow(void *restrict dst, enum pl_dtype t, const float *restrict src,
                             uint64_t n) {
    switch (t) {
        PL_FLOAT_MAP(PL_NARROW_CASE)
    default:
        break;
    }
}
#undef PL_WIDEN_CASE
#undef PL_NARROW_CASE

/* ---- rows and windows of a view ---- */

/* Prefetches bytes, which will soon be read, into the second-level cache. No address does harm. */
#define PL_CACHE_LINE 64
static inline void pl_ask_for(uintptr_t at, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i += PL_CACHE_LINE)
        __builtin_prefetch((const void *)(at + i), 0, 2);
}

static inline uint64_t pl_float_bytes(enum pl_dtype t) {
    return pl_dtype_is_narrow(t) ? sizeof(uint16_t) : sizeof(float);
}

/* Address of element (row, col) of a float view. */
static inline void *pl_at(const struct pl_view *v, uint64_t row, uint64_t col) {
    return (char *)v->p + (row * v->ld + col) * pl_float_bytes(v->dtype);
}

/* Address of element i of a vector view: [n,1], contiguous. */
static inline void *pl_vector_at(const struct pl_view *v, uint64_t i) {
    return (char *)v->p + i * pl_float_bytes(v->dtype);
}

/* dst[v->cols] = row of v. */
static inline void pl_load_row(const struct pl_view *v, uint64_t row, float *restrict dst) {
    pl_widen(dst, pl_at(v, row, 0), v->dtype, v->cols);
}

/* The row itself when it is fp32, else a copy in buf[v->cols]. */
static inline const float *pl_row(const struct pl_view *v, uint64_t row, float *buf) {
    if (v->dtype == PL_DTYPE_F32) return pl_at(v, row, 0);
    pl_load_row(v, row, buf);
    return buf;
}

static inline void pl_store_row(const struct pl_view *v, uint64_t row, const float *restrict src) {
    pl_narrow(pl_at(v, row, 0), v->dtype, src, v->cols);
}

/* Rows [row0, row0+rows), columns [col0, col0+cols). */
static inline struct pl_view pl_window(const struct pl_view *v, uint64_t row0, uint64_t rows,
                                       uint64_t col0, uint64_t cols) {
    struct pl_view w = *v;
    w.p = pl_at(v, row0, col0);
    w.rows = rows;
    w.cols = cols;
    return w;
}

/* A workspace view is U8[bytes]; one that is smaller than the rule says is a broken plan. */
static inline bool pl_ws_holds(const struct pl_view *ws, uint64_t bytes) {
    return bytes == 0 || (ws->p && ws->rows * ws->cols >= bytes);
}

/* ---- sums: fp32 within blocks that the compiler vectorises, double across them ---- */

#define PL_SUM_BLOCK 512

static inline double pl_sum(const float *x, uint64_t n) {
    double total = 0;
    for (uint64_t i = 0; i < n; i += PL_SUM_BLOCK) {
        uint64_t end = i + PL_SUM_BLOCK < n ? i + PL_SUM_BLOCK : n;
        float s = 0;
        for (uint64_t j = i; j < end; j++)
            s += x[j];
        total += s;
    }
    return total;
}

static inline double pl_dot(const float *x, const float *y, uint64_t n) {
    double total = 0;
    for (uint64_t i = 0; i < n; i += PL_SUM_BLOCK) {
        uint64_t end = i + PL_SUM_BLOCK < n ? i + PL_SUM_BLOCK : n;
        float s = 0;
        for (uint64_t j = i; j < end; j++)
            s += x[j] * y[j];
        total += s;
    }
    return total;
}

/* ---- functions that vectorise ---- */

/* r = x - n ln2 to full precision. -fassociative-math would merge the two products of Cody and
 * Waite into one with a rounded ln2, so they are explicit fused operations, or a double. */
static inline float pl_reduce_ln2(float x, float n) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return __builtin_fmaf(n, 2.12194440e-4f, __builtin_fmaf(n, -0.693359375f, x));
#else
    return (float)((double)x - (double)n * 0.69314718055994531);
#endif
}

/* Coefficients of e^r from r^6 down, after that of r^7. */
#define PL_EXP_FIRST 1.98412698e-4f
#define PL_EXP_TERMS(X)                                                                            \
    X(1.38888889e-3f)                                                                              \
    X(8.33333333e-3f) X(4.16666667e-2f) X(0.16666667f) X(0.5f) X(1.0f) X(1.0f)

/* e^x: reduction to |r| <= ln2/2, then Taylor's polynomial of degree 7, whose remainder r^8/8! is
 * 5e-9 there. Relative error below 1e-7; below -87.33 the result is 0 (denormals are not worth
 * their cost, which the arithmetic after the clamp would pay as well), above 88.7 infinity; NaN
 * stays NaN. */
static inline float pl_expf(float x) {
    float clamped = x > -87.33f ? (x < 89.0f ? x : 89.0f) : -87.33f;
    float n = __builtin_rintf(clamped * 1.44269504f);
    float r = pl_reduce_ln2(clamped, n);
    float p = PL_EXP_FIRST;
#define TERM(c) p = p * r + c;
    PL_EXP_TERMS(TERM)
#undef TERM
    /* n = 128 has no fp32 of its own, so it is added to the exponent: p is below 1 there. */
    float e = pl_f32_from_bits(pl_f32_bits(p) + ((uint32_t)(int32_t)n << 23));
    e = x < -87.33f ? 0.0f : x > 88.722839f ? INFINITY : e;
    return x != x ? x : e;
}

/* ---- loops over the pool ---- */

/* Rows [row0, row1) by worker `worker` (below pl_pool_threads). */
typedef void (*pl_rows_fn)(void *ctx, uint64_t row0, uint64_t row1, uint32_t worker);

struct pl_rows_task {
    pl_rows_fn fn;
    void *ctx;
    uint64_t rows, grain;
};

static inline void pl_rows_run(void *arg, uint32_t task, uint32_t worker) {
    const struct pl_rows_task *t = arg;
    uint64_t row0 = task * t->grain, row1 = row0 + t->grain;
    t->fn(t->ctx, row0, row1 < t->rows ? row1 : t->rows, worker);
}

/* Calls fn for consecutive ranges of `grain` rows, in any order, by any worker. The ranges depend
 * on rows and grain alone: a result that depends on the range alone has the same bits on any
 * machine with the same level. */
static inline void pl_cpu_rows(struct pl_device *dev, uint64_t rows, uint64_t grain, pl_rows_fn fn,
                               void *ctx) {
    struct pl_rows_task t = {.fn = fn, .ctx = ctx, .rows = rows, .grain = grain ? grain : 1};
    while (rows / t.grain >= UINT32_MAX)
        t.grain *= 2;
    pl_pool_run(pl_cpu_of(dev)->pool, (uint32_t)((rows + t.grain - 1) / t.grain), pl_rows_run, &t);
}

/* Rows of `cols` elements that make a task worth handing out: about 16k elements. */
static inline uint64_t pl_cpu_grain(uint64_t cols) {
    return cols >= 16384 ? 1 : 16384 / (cols ? cols : 1);
}

#endif
