/* Bits are moved with memcpy: staging buffers promise no alignment. */
#include "runtime/checkpoint/convert.h"

#include <string.h>

static uint32_t f16_to_f32_bits(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 31u, mantissa = h & 1023u;
    if (exponent == 31) return sign | 0x7f800000u | mantissa << 13;
    if (exponent != 0) return sign | (exponent + 112) << 23 | mantissa << 13;
    if (mantissa == 0) return sign;
    /* Subnormal: shift the leading one into the implicit place; each step halves the exponent. */
    for (exponent = 113; !(mantissa & 1024u); exponent--)
        mantissa <<= 1;
    return sign | exponent << 23 | (mantissa & 1023u) << 13;
}

static uint16_t f32_to_bf16(uint32_t u) {
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 64u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

/* IEEE 754 binary16, to nearest even. A value below the smallest normal is rounded by adding the
 * number whose last place is that of the subnormals: the sum's own rounding does it. */
static uint16_t f32_to_f16(uint32_t u) {
    uint32_t sign = u >> 16 & 0x8000u, magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x47800000u) return (uint16_t)(sign | 0x7c00u); /* 2^16 and above */
    if (magnitude < 0x38800000u) {                                   /* below 2^-14 */
        float v, half = 0.5f;
        memcpy(&v, &magnitude, sizeof v);
        v += half;
        memcpy(&u, &v, sizeof u);
        return (uint16_t)(sign | (u - 0x3f000000u));
    }
    /* 65520 and above carry into the exponent of infinity, as they should */
    uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return (uint16_t)(sign | (rounded - 0x38000000u) >> 13);
}

static uint16_t load16(const unsigned char *p, uint64_t i) {
    uint16_t v;
    memcpy(&v, p + 2 * i, sizeof v);
    return v;
}

static void f16_to_f32(float *dst, const void *src, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        uint32_t u = f16_to_f32_bits(load16(src, i));
        memcpy(dst + i, &u, sizeof u);
    }
}

static void bf16_to_f32(float *dst, const void *src, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        uint32_t u = (uint32_t)load16(src, i) << 16;
        memcpy(dst + i, &u, sizeof u);
    }
}

static void f32_to_f32(float *dst, const void *src, uint64_t n) {
    memcpy(dst, src, (size_t)n * sizeof *dst);
}

static void (*const to_f32[PL_DTYPE_COUNT])(float *, const void *, uint64_t) = {
    [PL_DTYPE_F32] = f32_to_f32,
    [PL_DTYPE_BF16] = bf16_to_f32,
    [PL_DTYPE_F16] = f16_to_f32,
};

bool pl_convert_reads(enum pl_dtype t) {
    return t < PL_DTYPE_COUNT && to_f32[t] != NULL;
}

void pl_convert_to_f32(float *dst, const void *src, enum pl_dtype from, uint64_t n) {
    to_f32[from](dst, src, n);
}

void pl_convert_from_f32(void *dst, const float *src, enum pl_dtype to, uint64_t n) {
    if (to == PL_DTYPE_F32) {
        memcpy(dst, src, (size_t)n * sizeof *src);
        return;
    }
    unsigned char *out = dst;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, src + i, sizeof u);
        uint16_t h = to == PL_DTYPE_F16 ? f32_to_f16(u) : f32_to_bf16(u);
        memcpy(out + 2 * i, &h, sizeof h);
    }
}
