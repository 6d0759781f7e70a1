/* exponentials.h - e^x of a run of numbers, faster than a compiler's vectors of pl_expf.
 *
 * A level of 512 bits has instructions for what takes pl_expf several: maxima and minima that let
 * NaN through, and SCALEF, which multiplies by 2^n and overflows as it should. On other levels the
 * loop over pl_expf is what there is.
 *   X1  the bits are those of pl_expf, in whatever lane a number stands
 * Use: for (...) e[i] = x[i] - max; pl_exp_all(e, n); */
#ifndef PL_RUNTIME_KERNELS_CPU_EXPONENTIALS_H
#define PL_RUNTIME_KERNELS_CPU_EXPONENTIALS_H

#include "runtime/kernels/cpu/simd.h"

#if defined(__AVX512F__)
/* The reduction and the polynomial of pl_expf, step by step (X1). */
static inline pl_vec pl_vec_exp(pl_vec v) {
#define TERM(c) c,
    static const float others[] = {PL_EXP_TERMS(TERM)};
#undef TERM
    const __m512 x = (__m512)v, least = _mm512_set1_ps(-87.33f);
    const __m512 clamped = _mm512_min_ps(_mm512_set1_ps(89.0f), _mm512_max_ps(least, x));
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(clamped, _mm512_set1_ps(1.44269504f)),
                                          _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 high = _mm512_fmadd_ps(n, _mm512_set1_ps(-0.693359375f), clamped);
    const __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(2.12194440e-4f), high);
    __m512 p = _mm512_set1_ps(PL_EXP_FIRST);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(others[i]));
    return (pl_vec)_mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, least, _CMP_NLT_UQ), p, n);
}
#endif

/* x[i] = e^x[i] */
static inline void pl_exp_all(float *x, uint64_t n) {
#if defined(__AVX512F__)
    const uint64_t whole = n - n % PL_LANES;
    for (uint64_t i = 0; i < whole; i += PL_LANES)
        *(pl_vec_unaligned *)(x + i) = pl_vec_exp(pl_vec_load(x + i));
#else
    const uint64_t whole = 0;
#endif
    for (uint64_t i = whole; i < n; i++)
        x[i] = pl_expf(x[i]);
}

#endif
