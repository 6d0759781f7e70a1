/* quant.h - 4-bit matrices and 8-bit codes on the host: their tables, and to and from fp32.
 *
 * In: fp32 values (bf16 widened). Out: codes, absmax and their nested form as
 * estimator/ops/quant_layout.h lays them out. Needs: nothing of a device; no state, no
 * allocation, safe from any thread.
 *   Q1  a value takes the nearest entry of its table: the number of midpoints strictly below it,
 *       where a midpoint is (a + b)/2 in fp32
 *   Q2  values are scaled by the fp32 reciprocal of their absmax, as the kernels of bitsandbytes do
 *   Q3  every function works on pieces of a matrix that start at a multiple of PL_QUANT_GROUP
 *       elements (of one absmax2), and the pieces give the bits of the whole
 *   Q4  same bits on every machine: no contraction, no reordered sums
 * Use, for a matrix that comes in pieces of x[n], first to learn the offset, then to keep it:
 *      pl_quant_absmax(x, n, absmax); sum += pl_quant_sum(absmax, blocks); ...
 *      offset = (float)(sum / all_blocks);
 *      pl_quant_absmax(x, n, absmax); pl_quant_codes(PL_QUANT_NF4, x, n, absmax, codes); -- and
 *      pl_quant_nest(absmax, blocks, offset, absmax8, absmax2); pl_quant_unnest(...) is its inverse
 * Codes are made with absmax as it was and read with absmax as it is stored, as in bitsandbytes. */
#ifndef PL_RUNTIME_KERNELS_QUANT_H
#define PL_RUNTIME_KERNELS_QUANT_H

#include "estimator/ops/quant_layout.h"
#include "runtime/kernels/quant_coder.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* absmax[blocks of n]: the largest magnitude of each block of x[n]; NaN is passed over. */
void pl_quant_absmax(const float *x, uint64_t n, float *absmax);

/* Sum of absmax[blocks] in double, one after another. */
double pl_quant_sum(const float *absmax, uint64_t blocks);

/* codes[pl_quant_codes_bytes(n)]. A block whose absmax is 0 has the code of 0, as does the half
 * byte after an odd count. */
void pl_quant_codes(enum pl_quant t, const float *x, uint64_t n, const float *absmax,
                    uint8_t *codes);

/* x[n] = table[code] * absmax of its block. */
void pl_quant_values(enum pl_quant t, const uint8_t *codes, uint64_t n, const float *absmax,
                     float *x);

/* Double quantisation: absmax2[blocks / 256 up] is the largest |absmax - offset| of each nest,
 * absmax8[blocks] the entry of the signed map nearest to (absmax - offset) / absmax2. */
void pl_quant_nest(const float *absmax, uint64_t blocks, float offset, uint8_t *absmax8,
                   float *absmax2);

/* absmax[blocks] = map[absmax8] * absmax2 + offset, each operation rounded to fp32. */
void pl_quant_unnest(const uint8_t *absmax8, const float *absmax2, float offset, uint64_t blocks,
                     float *absmax);
/* The same with the signed map at hand, for callers that need it often. */
void pl_quant_unnest_by(const float map[256], const uint8_t *absmax8, const float *absmax2,
                        float offset, uint64_t blocks, float *absmax);

/* ---- 8-bit codes: the dynamic maps ---- */

#define PL_QUANT_MAP_SIZE 256

/* value[256], ascending. Decade k = 1..7 below 1 is cut into 2^(7-k) equal steps (signed; twice as
 * many unsigned) whose middles are values; 0 and 1 complete the map, and the signed map has the
 * negatives of all but 1 (Dettmers et al., "8-bit optimizers via block-wise quantization", arXiv
 * 2110.02861, section 1.3, dynamic tree quantization with the steps of bitsandbytes'
 * create_dynamic_map, in whose fp32 arithmetic they are computed). */
void pl_quant_map_values(bool is_signed, float value[PL_QUANT_MAP_SIZE]);

/* Q1 by bisection; -0 is 0. */
PL_QUANT_FN uint8_t pl_quant_nearest(const float value[PL_QUANT_MAP_SIZE], float x) {
    unsigned below = 0;
    for (unsigned step = PL_QUANT_MAP_SIZE / 2; step; step /= 2)
        if (x > pl_quant_midpoint(value[below + step - 1], value[below + step])) below += step;
    return (uint8_t)below;
}

/* The code of zero. */
#define PL_QUANT_SIGNED_ZERO   127
#define PL_QUANT_UNSIGNED_ZERO 0

/* A map and its midpoints; midpoint[i] lies between values i and i + 1, the last is not used. */
struct pl_quant_map {
    float value[PL_QUANT_MAP_SIZE], midpoint[PL_QUANT_MAP_SIZE];
};
void pl_quant_map_init(struct pl_quant_map *m, bool is_signed);

/* The lesser, and b where a is NaN; b is none. nvcc makes one instruction of fminf, which compilers
 * for the host call as a function, and two of the other form. */
PL_QUANT_FN float pl_quant_lesser(float a, float b) {
#ifdef __CUDA_ARCH__
    return fminf(a, b);
#else
    return a < b ? a : b;
#endif
}

/* The place of a magnitude among the values of a map that are above 0, with one step in the lowest
 * decade: value number k, from 1, stands at k + 1/2. Linear within a decade and continuous, with
 * slopes that fall by 5 from decade to decade (ten times as wide, twice as many steps), this is a
 * concave function: the least of its seven lines. No more than `most`, which is also for NaN. */
PL_QUANT_FN float pl_quant_place(float magnitude, float most) {
    float place = pl_quant_lesser(magnitude * 1111111.1f + 0.88888889f, most);
    place = pl_quant_lesser(magnitude * 222222.22f + 1.7777778f, place);
    place = pl_quant_lesser(magnitude * 44444.444f + 3.5555556f, place);
    place = pl_quant_lesser(magnitude * 8888.8889f + 7.1111111f, place);
    place = pl_quant_lesser(magnitude * 1777.7778f + 14.222222f, place);
    place = pl_quant_lesser(magnitude * 355.55556f + 28.444444f, place);
    return pl_quant_lesser(magnitude * 71.111111f + 56.888889f, place);
}

/* The code nearest to x, |x| <= 1, by Q1 is `lower` or the one after it, and the midpoint between
 * the two, midpoint[lower], decides. Rounding of the place does not matter: at a value it chooses
 * between two pairs of neighbours, and both contain the nearest. NaN, and values not within 1, give
 * some code. */
PL_QUANT_FN int32_t pl_quant_lower_unsigned(float x) {
    return (int32_t)(2 * pl_quant_place(fabsf(x), 127.75f) - 1.5f);
}

PL_QUANT_FN int32_t pl_quant_choose_unsigned(float x, int32_t lower, float middle) {
    return lower + (fabsf(x) > middle);
}

/* The same for the signed map and the magnitude of x. */
PL_QUANT_FN int32_t pl_quant_lower_signed(float x) {
    return PL_QUANT_SIGNED_ZERO + (int32_t)(pl_quant_place(fabsf(x), 127.5f) - 0.5f);
}

/* Chooses among the values with the sign bit of x, so that a negative x never becomes 0. The map
 * has no -1, so its negative side ends one value earlier. */
PL_QUANT_FN int32_t pl_quant_choose_signed(float x, int32_t lower, float middle) {
    uint32_t bits; /* signbit() means x < 0 to a compiler that may ignore the sign of zeros */
    memcpy(&bits, &x, sizeof bits);
    const int32_t up = lower + (fabsf(x) > middle);
    int32_t down = 2 * PL_QUANT_SIGNED_ZERO - lower - (fabsf(x) >= middle);
    down = down < PL_QUANT_SIGNED_ZERO ? down : PL_QUANT_SIGNED_ZERO - 1;
    return bits >> 31 ? (down > 0 ? down : 0) : up;
}

#ifdef __cplusplus
}
#endif

#endif
