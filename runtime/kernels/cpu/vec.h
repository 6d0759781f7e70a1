/* vec.h - the vector of the level at hand, for loops whose order of additions must be written down.
 *
 * Needs: the instruction set of the file's level. */
#ifndef PL_RUNTIME_KERNELS_CPU_VEC_H
#define PL_RUNTIME_KERNELS_CPU_VEC_H

#include "estimator/ops/half.h"

#include <stdint.h>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define PL_LANES 16
#elif defined(__AVX__)
#define PL_LANES 8
#else
#define PL_LANES 4
#endif

/* True if the level multiplies bf16 in tiles of AMX (amx.h). */
#if defined(__AMX_BF16__) || defined(PL_AMX_EMULATED)
#define PL_HAS_AMX 1
#else
#define PL_HAS_AMX 0
#endif

/* True if vectors multiply pairs of bf16: a lane then holds two of them. */
#if defined(__AVX512BF16__) && !PL_HAS_AMX
#define PL_HAS_PAIRS 1
#else
#define PL_HAS_PAIRS 0
#endif

typedef float pl_vec __attribute__((vector_size(PL_LANES * sizeof(float))));
typedef float pl_vec_unaligned
    __attribute__((vector_size(PL_LANES * sizeof(float)), aligned(sizeof(float)), may_alias));
typedef uint32_t pl_vec_bits __attribute__((vector_size(PL_LANES * sizeof(uint32_t))));
typedef uint32_t pl_vec_bits_unaligned
    __attribute__((vector_size(PL_LANES * sizeof(uint32_t)), aligned(sizeof(uint16_t)), may_alias));
typedef uint16_t pl_vec_halves __attribute__((vector_size(PL_LANES * sizeof(uint16_t))));
typedef uint16_t pl_vec_halves_unaligned
    __attribute__((vector_size(PL_LANES * sizeof(uint16_t)), aligned(sizeof(uint16_t)), may_alias));

static inline pl_vec pl_vec_load(const float *p) {
    return *(const pl_vec_unaligned *)p;
}

#if PL_HAS_PAIRS
/* Pairs of the numbers at the same place of two rows of PL_LANES in bf16. */
static inline pl_vec pl_vec_join(__m256i first, __m256i second) {
    const __m512i order =
        _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                         37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    return (pl_vec)_mm512_permutex2var_epi16(_mm512_castsi256_si512(first), order,
                                             _mm512_castsi256_si512(second));
}

/* sum + the products of two pairs, in each lane. VDPBF16PS is two fused multiply-adds, the second
 * numbers of the pairs first, each rounded to nearest; denormal operands and results are zeros. */
static inline pl_vec pl_vec_add_pairs(pl_vec sum, pl_vec x, pl_vec y) {
    return (pl_vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)y);
}
#endif

/* x, rounded before it is used: a compiler must not fuse the product that made it with a sum. An
 * empty instruction, since PL_FENCE of a vector makes GCC take it apart lane by lane. */
static inline pl_vec pl_vec_rounded(pl_vec x) {
#if defined(__x86_64__)
    __asm__("" : "+v"(x));
#elif defined(__aarch64__)
    __asm__("" : "+w"(x));
#else
    __asm__("" : "+m"(x));
#endif
    return x;
}

/* 2 x PL_LANES numbers in bf16, the even ones and the odd ones: a shift and a mask, where widening
 * them in order would move every second one to another lane. */
static inline void pl_vec_load_bf16(const uint16_t *p, pl_vec *even, pl_vec *odd) {
    const pl_vec_bits both = *(const pl_vec_bits_unaligned *)p;
    *even = (pl_vec)(both << 16);
    *odd = (pl_vec)(both & 0xFFFF0000u);
}

/* pl_vec_get_T: PL_LANES stored numbers in order, for every T of PL_FLOAT_MAP. */
static inline pl_vec pl_vec_get_F32(const void *p) {
    return pl_vec_load(p);
}

static inline pl_vec pl_vec_get_BF16(const void *p) {
    const pl_vec_halves h = *(const pl_vec_halves_unaligned *)p;
    return (pl_vec)(__builtin_convertvector(h, pl_vec_bits) << 16);
}

/* Rounds as pl_put_BF16 does. */
#if defined(__AVX512F__)
static inline void pl_vec_put_BF16(void *p, pl_vec x) {
    const __m512i u = (__m512i)x, odd = _mm512_set1_epi32(1);
    const __m512i half = _mm512_set1_epi32(0x7FFF), quiet = _mm512_set1_epi32(0x400000);
    const __mmask16 is_nan = _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q);
    const __m512i even = _mm512_and_si512(_mm512_srli_epi32(u, 16), odd);
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(u, half), even);
    const __m512i all = _mm512_mask_or_epi32(rounded, is_nan, u, quiet);
    _mm256_storeu_si256(p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(all, 16)));
}
#else
static inline void pl_vec_put_BF16(void *p, pl_vec x) {
    const pl_vec_bits u = (pl_vec_bits)x;
    const pl_vec_bits rounded = u + 0x7FFFu + (u >> 16 & 1);
    const pl_vec_bits is_nan = (pl_vec_bits)((u & 0x7FFFFFFFu) > 0x7F800000u);
    const pl_vec_bits all = (rounded & ~is_nan) | ((u | 0x400000u) & is_nan);
    *(pl_vec_halves_unaligned *)p = __builtin_convertvector(all >> 16, pl_vec_halves);
}
#endif

#if defined(__AVX512F__)
static inline pl_vec pl_vec_get_F16(const void *p) {
    return (pl_vec)_mm512_cvtph_ps(_mm256_loadu_si256(p));
}
static inline void pl_vec_put_F16(void *p, pl_vec x) {
    _mm256_storeu_si256(p, _mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT));
}
#elif defined(__F16C__)
static inline pl_vec pl_vec_get_F16(const void *p) {
    return (pl_vec)_mm256_cvtph_ps(_mm_loadu_si128(p));
}
static inline void pl_vec_put_F16(void *p, pl_vec x) {
    _mm_storeu_si128(p, _mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT));
}
#else
static inline pl_vec pl_vec_get_F16(const void *p) {
    const pl_vec_halves h = *(const pl_vec_halves_unaligned *)p;
    pl_vec x;
    for (int i = 0; i < PL_LANES; i++)
        x[i] = pl_half_widen(h[i]);
    return x;
}
#endif

/* Lanes added as a tree: halves, quarters, ... */
static inline float pl_vec_sum(pl_vec v) {
#if PL_LANES == 16
    v += __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
    v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
    v += __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    v += __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
#elif PL_LANES == 8
    v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3);
    v += __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5);
    v += __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6);
#else
    v += __builtin_shufflevector(v, v, 2, 3, 0, 1);
    v += __builtin_shufflevector(v, v, 1, 0, 3, 2);
#endif
    return v[0];
}

#endif
