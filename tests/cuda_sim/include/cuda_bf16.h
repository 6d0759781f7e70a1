/* cuda_bf16.h - stands in for NVIDIA's header of this name: storage and conversions of bfloat16.
 *
 * Rounding is to nearest even and a NaN becomes 0x7FFF, as cvt.rn.bf16.f32 of the PTX manual. There
 * is no arithmetic on bfloat16: the kernels compute in fp32. */
#ifndef PL_TESTS_CUDA_SIM_CUDA_BF16_H
#define PL_TESTS_CUDA_SIM_CUDA_BF16_H

#include <cuda_runtime.h>

#ifdef __cplusplus

struct __align__(2) __nv_bfloat16_raw {
    unsigned short x;
};
struct __align__(4) __nv_bfloat162_raw {
    unsigned short x, y;
};

static inline unsigned short plsim_bf16_of(float f) {
    uint32_t u = __float_as_uint(f);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FFF;
    return static_cast<unsigned short>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}
static inline float plsim_of_bf16(unsigned short h) {
    return __uint_as_float(static_cast<uint32_t>(h) << 16);
}

struct __align__(2) __nv_bfloat16 {
    unsigned short __x;
    __nv_bfloat16() = default;
    __nv_bfloat16(float f) : __x(plsim_bf16_of(f)) {}
    __nv_bfloat16(const __nv_bfloat16_raw &raw) : __x(raw.x) {}
    operator float() const {
        return plsim_of_bf16(__x);
    }
    operator __nv_bfloat16_raw() const {
        return __nv_bfloat16_raw{__x};
    }
};
struct __align__(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
    __nv_bfloat162() = default;
    __nv_bfloat162(const __nv_bfloat16 &low, const __nv_bfloat16 &high) : x(low), y(high) {}
    __nv_bfloat162(const __nv_bfloat162_raw &raw)
        : x(__nv_bfloat16_raw{raw.x}), y(__nv_bfloat16_raw{raw.y}) {}
    operator __nv_bfloat162_raw() const {
        return __nv_bfloat162_raw{x.__x, y.__x};
    }
};
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

static inline __nv_bfloat16 __float2bfloat16(float f) {
    return __nv_bfloat16(f);
}
static inline __nv_bfloat16 __float2bfloat16_rn(float f) {
    return __nv_bfloat16(f);
}
static inline float __bfloat162float(__nv_bfloat16 h) {
    return plsim_of_bf16(h.__x);
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
    return __nv_bfloat162(__nv_bfloat16(x), __nv_bfloat16(y));
}
static inline __nv_bfloat162 __float22bfloat162_rn(float2 v) {
    return __floats2bfloat162_rn(v.x, v.y);
}
static inline __nv_bfloat162 __float2bfloat162_rn(float f) {
    return __floats2bfloat162_rn(f, f);
}
static inline float2 __bfloat1622float2(__nv_bfloat162 v) {
    return make_float2(__bfloat162float(v.x), __bfloat162float(v.y));
}
static inline float __low2float(__nv_bfloat162 v) {
    return __bfloat162float(v.x);
}
static inline float __high2float(__nv_bfloat162 v) {
    return __bfloat162float(v.y);
}
static inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) {
    return v.x;
}
static inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) {
    return v.y;
}
static inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 low, __nv_bfloat16 high) {
    return __nv_bfloat162(low, high);
}
static inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 h) {
    return __nv_bfloat162(h, h);
}
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h) {
    return h.__x;
}
static inline short __bfloat16_as_short(__nv_bfloat16 h) {
    return static_cast<short>(h.__x);
}
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short u) {
    return __nv_bfloat16(__nv_bfloat16_raw{u});
}

#endif
#endif
