/* half.h - IEEE 754 binary16 by integers, for where no instruction converts it.
 *
 * In: a number in one type.  Out: the number in the other.  Needs: nothing.
 *   H1  widening is exact, subnormals and NaN payloads included
 *   H2  narrowing rounds to nearest, ties to even; 65,520 and above become infinity; a NaN is made
 *       quiet and keeps the upper bits of its payload, as F16C has it
 * There is no branch, so that a compiler makes vectors of a loop over either. */
#ifndef PL_ESTIMATOR_OPS_HALF_H
#define PL_ESTIMATOR_OPS_HALF_H

#include <stdint.h>
#include <string.h>

static inline float pl_half_widen(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, magnitude = (uint32_t)(h & 0x7fffu) << 13;
    const uint32_t exponent = magnitude & 0x0f800000u, normal = magnitude + 0x38000000u;
    const uint32_t next = normal + 0x00800000u;
    float below; /* a subnormal is what stands above the smallest normal number, 2^-14 */
    uint32_t tiny, u;
    memcpy(&below, &next, sizeof below);
    below -= 0x1p-14f;
    memcpy(&tiny, &below, sizeof tiny);
    u = exponent == 0x0f800000u ? normal + 0x38000000u : normal;
    u = (exponent ? u : tiny) | sign;
    memcpy(&below, &u, sizeof below);
    return below;
}

/* A number below the smallest normal one is rounded by adding a number whose last place is that of
 * the subnormals: the sum's own rounding does it. */
static inline uint16_t pl_half_narrow(float x) {
    uint32_t u, sum;
    memcpy(&u, &x, sizeof u);
    const uint32_t magnitude = u & 0x7fffffffu;
    float small;
    memcpy(&small, &magnitude, sizeof small);
    small += 0.5f;
    memcpy(&sum, &small, sizeof sum);
    const uint32_t tiny = sum - 0x3f000000u;
    /* 65,520 and above carry into the exponent of infinity, as they should. */
    const uint32_t normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13;
    const uint32_t nan = 0x7e00u | (magnitude >> 13 & 1023u);
    uint32_t h = magnitude < 0x38800000u ? tiny : normal; /* 2^-14 */
    h = magnitude < 0x47800000u ? h : 0x7c00u;            /* 2^16 */
    h = magnitude > 0x7f800000u ? nan : h;
    return (uint16_t)(h | (u >> 16 & 0x8000u));
}

#endif
