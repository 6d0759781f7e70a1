/* Bits are moved with memcpy: staging buffers promise no alignment. */
#include "runtime/checkpoint/convert.h"

#include "estimator/ops/half.h"

#include <string.h>

static uint16_t f32_to_bf16(uint32_t u) {
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 64u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

static uint16_t load16(const unsigned char *p, uint64_t i) {
    uint16_t v;
    memcpy(&v, p + 2 * i, sizeof v);
    return v;
}

static void f16_to_f32(float *dst, const void *src, uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        dst[i] = pl_half_widen(load16(src, i));
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
        uint16_t h = to == PL_DTYPE_F16 ? pl_half_narrow(src[i]) : f32_to_bf16(u);
        memcpy(out + 2 * i, &h, sizeof h);
    }
}
