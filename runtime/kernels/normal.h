/* normal.h - two standard normal numbers from two random words, with the same bits everywhere.
 *
 * Box and Muller, "A note on the generation of random normal deviates", 1958: a radius
 * sqrt(-2 ln u) at a uniform angle. In: two words of 32 random bits. Out: two independent normals.
 *   M1  integers and fp32 additions, products and roots, each rounded by itself and none fused: a
 *       number is the same with and without FMA, in vectors of any length and on a GPU
 *   M2  a number is within 1e-6 of what u and the angle give in exact arithmetic
 *   M3  u has 31 random bits, of which an fp32 keeps 24: near 0 it goes down to 2^-32, which bounds
 *       magnitudes by 6.67; near 1 its steps are 2^-24, which moves the distribution function by
 *       less than 1e-7
 * Needs: -ffp-contract=off and no reordering of sums, in every file that includes this; nvcc gets
 * functions that are never fused. A file that has vectors first defines PL_NORMAL_VECTORS, the
 * types and the four functions on them; the text of the formula is the same. */
#ifndef PL_RUNTIME_KERNELS_NORMAL_H
#define PL_RUNTIME_KERNELS_NORMAL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define PL_NORMAL_FN static inline __host__ __device__
#else
#define PL_NORMAL_FN static inline
#endif

#ifdef __CUDA_ARCH__ /* nvcc fuses what is written with operators */
#define PL_NORMAL_ADD(a, b) __fadd_rn((a), (b))
#define PL_NORMAL_MUL(a, b) __fmul_rn((a), (b))
#else
#define PL_NORMAL_ADD(a, b) ((a) + (b))
#define PL_NORMAL_MUL(a, b) ((a) * (b))
#endif

#ifndef PL_NORMAL_VECTORS
typedef float pl_normal_float;
typedef uint32_t pl_normal_bits;
typedef int32_t pl_normal_int;

PL_NORMAL_FN float pl_normal_of_int(int32_t i) {
    return (float)i;
}

PL_NORMAL_FN uint32_t pl_normal_bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

PL_NORMAL_FN float pl_normal_of_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

PL_NORMAL_FN float pl_normal_root(float x) {
#ifdef __CUDA_ARCH__
    return __fsqrt_rn(x);
#else
    return sqrtf(x);
#endif
}
#endif

/* p x + c, the step of Horner's scheme. */
#define PL_NORMAL_STEP(p, x, c) PL_NORMAL_ADD(PL_NORMAL_MUL(p, x), c)

/* -2 ln u for u = (i + 1/2) / 2^31, i the upper 31 bits of the word. 2^31 u = 2^e m with m within a
 * factor of sqrt 2 of 1, and -2 ln m / (m - 1) is a polynomial with relative error 1.7e-7 (minimax,
 * as the others here). */
PL_NORMAL_FN pl_normal_float pl_normal_square(pl_normal_bits word) {
    const pl_normal_float v = PL_NORMAL_ADD(pl_normal_of_int((pl_normal_int)(word >> 1)), 0.5f);
    const pl_normal_bits bits = pl_normal_bits_of(v);
    const pl_normal_int e = (pl_normal_int)(bits - 0x3F3504F3u) >> 23; /* fp32 of sqrt 1/2 */
    const pl_normal_float f =
        PL_NORMAL_ADD(pl_normal_of_bits(bits - ((pl_normal_bits)e << 23)), -1.0f);
    pl_normal_float p = PL_NORMAL_STEP(f, 0.20213787f, -0.32445157f);
    p = PL_NORMAL_STEP(p, f, 0.3450166f);
    p = PL_NORMAL_STEP(p, f, -0.3980033f);
    p = PL_NORMAL_STEP(p, f, 0.49939817f);
    p = PL_NORMAL_STEP(p, f, -0.6667012f);
    p = PL_NORMAL_STEP(p, f, 1.0000073f);
    p = PL_NORMAL_STEP(p, f, -1.9999999f);
    const pl_normal_float whole =
        PL_NORMAL_MUL(pl_normal_of_int(e - 31), -1.3862944f); /* -2 ln 2 */
    return PL_NORMAL_STEP(p, f, whole);
}

/* Cosine and sine of t quarters of a turn, |t| <= 1/2: errors 3e-8 and 3e-9. */
PL_NORMAL_FN pl_normal_float pl_normal_cosine(pl_normal_float square) {
    pl_normal_float p = PL_NORMAL_STEP(square, -0.020408353f, 0.25359863f);
    p = PL_NORMAL_STEP(p, square, -1.233697f);
    return PL_NORMAL_STEP(p, square, 1.0f);
}

PL_NORMAL_FN pl_normal_float pl_normal_sine(pl_normal_float t, pl_normal_float square) {
    pl_normal_float p = PL_NORMAL_STEP(square, -0.004601658f, 0.07968003f);
    p = PL_NORMAL_STEP(p, square, -0.6459635f);
    p = PL_NORMAL_STEP(p, square, 1.5707964f);
    return PL_NORMAL_MUL(p, t);
}

/* Thirty bits of the second word are an angle within an eighth of a turn of 0; one more mirrors it
 * at the diagonal, the last at the origin. */
PL_NORMAL_FN void pl_normal_pair(pl_normal_bits first, pl_normal_bits second, pl_normal_float *x,
                                 pl_normal_float *y) {
    const pl_normal_float radius = pl_normal_root(pl_normal_square(first));
    const pl_normal_float t = PL_NORMAL_MUL(pl_normal_of_int((pl_normal_int)(second << 2) >> 2),
                                            9.3132257e-10f); /* 2^-30 */
    const pl_normal_float square = PL_NORMAL_MUL(t, t);
    const pl_normal_bits c = pl_normal_bits_of(pl_normal_cosine(square));
    const pl_normal_bits s = pl_normal_bits_of(pl_normal_sine(t, square));
    const pl_normal_bits swap = (c ^ s) & (0u - (second >> 30 & 1u));
    const pl_normal_float turned =
        pl_normal_of_bits(pl_normal_bits_of(radius) ^ (second & 0x80000000u));
    *x = PL_NORMAL_MUL(turned, pl_normal_of_bits(c ^ swap));
    *y = PL_NORMAL_MUL(turned, pl_normal_of_bits(s ^ swap));
}

#endif
