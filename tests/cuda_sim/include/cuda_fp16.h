/* cuda_fp16.h - stands in for NVIDIA's header of this name: storage and conversions of binary16.
 *
 * Rounding is to nearest even and a NaN becomes 0x7FFF, as cvt.rn.f16.f32 of the PTX manual. There
 * is no arithmetic on binary16: the kernels compute in fp32. */
#ifndef PL_TESTS_CUDA_SIM_CUDA_FP16_H
#define PL_TESTS_CUDA_SIM_CUDA_FP16_H

#include "estimator/ops/half.h"

#include <cuda_runtime.h>

#ifdef __cplusplus

static inline unsigned short plsim_f16_of(float f) {
    return f != f ? 0x7FFF : pl_half_narrow(f);
}

struct __align__(2) __half {
    unsigned short __x;
    __half() = default;
    __half(float f) : __x(plsim_f16_of(f)) {}
    operator float() const {
        return pl_half_widen(__x);
    }
};
struct __align__(4) __half2 {
    __half x, y;
    __half2() = default;
    __half2(const __half &low, const __half &high) : x(low), y(high) {}
};

static inline __half __float2half_rn(float f) {
    return __half(f);
}
static inline float __half2float(__half h) {
    return pl_half_widen(h.__x);
}
static inline __half2 __floats2half2_rn(float x, float y) {
    return __half2(__half(x), __half(y));
}
static inline float __low2float(__half2 v) {
    return __half2float(v.x);
}
static inline float __high2float(__half2 v) {
    return __half2float(v.y);
}

#endif
#endif
