/* plsim_device.h - the built-ins of device code in CUDA C++, on the host.
 *
 * Included by cuda_runtime.h in C++. Collective operations (barriers, shuffles, votes and the PTX
 * twins of sim_ptx.c) end in sim_block.c, where the fibres of a block or of a warp meet. */
#ifndef PL_TESTS_CUDA_SIM_PLSIM_DEVICE_H
#define PL_TESTS_CUDA_SIM_PLSIM_DEVICE_H

#include <plsim_core.h>

#include <cmath>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tuple>
#include <type_traits>
#include <utility>

#define __host__
#define __device__
#define __global__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

/* ---- vectors ---- */

#define PLSIM_VECTOR(name, element, align)                                                         \
    struct __align__(align) name##2 {                                                              \
        element x, y;                                                                              \
    };                                                                                             \
    struct __align__((align)*2 > 16 ? 16 : (align)*2) name##4 {                                    \
        element x, y, z, w;                                                                        \
    };                                                                                             \
    static inline name##2 make_##name##2(element x, element y) {                                   \
        return name##2 {x, y};                                                                     \
    }                                                                                              \
    static inline name##4 make_##name##4(element x, element y, element z, element w) {             \
        return name##4 {x, y, z, w};                                                               \
    }
PLSIM_VECTOR(char, signed char, 2)
PLSIM_VECTOR(uchar, unsigned char, 2)
PLSIM_VECTOR(short, short, 4)
PLSIM_VECTOR(ushort, unsigned short, 4)
PLSIM_VECTOR(int, int, 8)
PLSIM_VECTOR(uint, unsigned, 8)
PLSIM_VECTOR(float, float, 8)
PLSIM_VECTOR(longlong, long long, 16)
PLSIM_VECTOR(ulonglong, unsigned long long, 16)
PLSIM_VECTOR(double, double, 16)
#undef PLSIM_VECTOR

struct uint3 {
    unsigned x, y, z;
};
struct int3 {
    int x, y, z;
};
struct float3 {
    float x, y, z;
};
static inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) {
    return uint3{x, y, z};
}
static inline int3 make_int3(int x, int y, int z) {
    return int3{x, y, z};
}
static inline float3 make_float3(float x, float y, float z) {
    return float3{x, y, z};
}

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1) : x(vx), y(vy), z(vz) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

/* ---- where a thread is ---- */

#define threadIdx (uint3{plsim_here.thread[0], plsim_here.thread[1], plsim_here.thread[2]})
#define blockIdx  (uint3{plsim_here.block[0], plsim_here.block[1], plsim_here.block[2]})
#define blockDim  (uint3{plsim_here.block_dim[0], plsim_here.block_dim[1], plsim_here.block_dim[2]})
#define gridDim   (uint3{plsim_here.grid_dim[0], plsim_here.grid_dim[1], plsim_here.grid_dim[2]})
static const int warpSize = 32;

/* ---- launches ---- */

/* C1 of cuda.h: a source with `<<<` or __shared__ of its own does not compile here. */
#define PL_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                  \
    plsim_start(#kernel, (kernel), (grid), (block), (shared_bytes), (stream), __VA_ARGS__)
#define PL_SHARED(type, name) type *name = reinterpret_cast<type *>(plsim_here.shared)

template <class... P> struct plsim_bound {
    void (*kernel)(P...);
    std::tuple<P...> values;
    static void body(void *self) {
        const plsim_bound *bound = static_cast<const plsim_bound *>(self);
        std::apply(bound->kernel, bound->values);
    }
};

template <class... P, class... A>
void plsim_start(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
                 cudaStream_t stream, A &&...arguments) {
    static_assert((std::is_trivially_copyable<P>::value && ...), "arguments are copied as bytes");
    static_assert((sizeof(P) + ... + 0) <= 32764, "arguments have 32,764 bytes");
    plsim_bound<P...> bound{kernel, std::tuple<P...>(std::forward<A>(arguments)...)};
    const plsim_launch launch = {name,
                                 reinterpret_cast<const void *>(kernel),
                                 {grid.x, grid.y, grid.z},
                                 {block.x, block.y, block.z},
                                 shared_bytes,
                                 stream,
                                 plsim_bound<P...>::body,
                                 &bound,
                                 sizeof bound};
    plsim_run(&launch);
}

template <class R, class... P>
cudaError_t cudaFuncSetAttribute(R (*kernel)(P...), cudaFuncAttribute attribute, int value) {
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), attribute, value);
}

template <class R, class... P>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *out, R (*kernel)(P...)) {
    return cudaFuncGetAttributes(out, reinterpret_cast<const void *>(kernel));
}

template <class T> cudaError_t cudaMalloc(T **out, size_t bytes) {
    return cudaMalloc(reinterpret_cast<void **>(out), bytes);
}

/* ---- barriers, shuffles, votes ---- */

static inline void __syncthreads() {
    plsim_meet_block();
}

static inline int __syncthreads_or(int predicate) {
    return plsim_meet_block_any(predicate != 0);
}

static inline void __syncwarp(uint32_t mask = 0xFFFFFFFFu) {
    plsim_meet_warp(&plsim_warp_barrier, mask, &mask);
}

template <class T>
T plsim_shuffle(const plsim_collective *how, uint32_t mask, T value, uint32_t lane, int width) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "4 or 8 bytes travel");
    plsim_exchange e = {0, lane, static_cast<uint32_t>(width)};
    memcpy(&e.value, &value, sizeof value);
    plsim_meet_warp(how, mask, &e);
    memcpy(&value, &e.value, sizeof value);
    return value;
}

template <class T> T __shfl_sync(uint32_t mask, T value, int lane, int width = 32) {
    return plsim_shuffle(&plsim_shfl_idx, mask, value, static_cast<uint32_t>(lane), width);
}
template <class T> T __shfl_up_sync(uint32_t mask, T value, unsigned distance, int width = 32) {
    return plsim_shuffle(&plsim_shfl_up, mask, value, distance, width);
}
template <class T> T __shfl_down_sync(uint32_t mask, T value, unsigned distance, int width = 32) {
    return plsim_shuffle(&plsim_shfl_down, mask, value, distance, width);
}
template <class T> T __shfl_xor_sync(uint32_t mask, T value, int lanes, int width = 32) {
    return plsim_shuffle(&plsim_shfl_xor, mask, value, static_cast<uint32_t>(lanes), width);
}

static inline unsigned __ballot_sync(uint32_t mask, int predicate) {
    plsim_exchange e = {static_cast<uint64_t>(predicate != 0), 0, 32};
    plsim_meet_warp(&plsim_ballot, mask, &e);
    return static_cast<unsigned>(e.value);
}
static inline int __any_sync(uint32_t mask, int predicate) {
    return __ballot_sync(mask, predicate) != 0;
}
static inline int __all_sync(uint32_t mask, int predicate) {
    return __ballot_sync(mask, !predicate) == 0;
}

/* One fibre runs at a time, so an access is atomic, and memory is always in order. */
template <class T> __attribute__((no_sanitize_thread, noinline)) T plsim_atomic_add(T *p, T value) {
    T old = *p;
    *p = old + value;
    return old;
}
static inline int atomicAdd(int *p, int value) {
    return plsim_atomic_add(p, value);
}
static inline unsigned atomicAdd(unsigned *p, unsigned value) {
    return plsim_atomic_add(p, value);
}
static inline void __threadfence() {}
static inline void __threadfence_block() {}

/* ---- loads and stores with a hint ---- */

template <class T> T __ldg(const T *p) {
    return *p;
}
template <class T> T __ldcs(const T *p) {
    return *p;
}
template <class T> T __ldcg(const T *p) {
    return *p;
}
template <class T> T __ldca(const T *p) {
    return *p;
}
template <class T> void __stcs(T *p, T value) {
    *p = value;
}
template <class T> void __stcg(T *p, T value) {
    *p = value;
}
template <class T> void __stwb(T *p, T value) {
    *p = value;
}

/* ---- arithmetic: the fast forms are exact here, the rounding ones round to nearest ---- */

/* These are macros, because some C libraries have functions of these names. */
static inline float plsim_rsqrtf(float x) {
    return 1.0f / sqrtf(x);
}
static inline double plsim_rsqrt(double x) {
    return 1.0 / sqrt(x);
}
#define rsqrtf(x)    plsim_rsqrtf(x)
#define rsqrt(x)     plsim_rsqrt(x)
#define __expf(x)    expf(x)
#define __exp10f(x)  powf(10.0f, (x))
#define __logf(x)    logf(x)
#define __log2f(x)   log2f(x)
#define __sinf(x)    sinf(x)
#define __cosf(x)    cosf(x)
#define __powf(x, y) powf((x), (y))
static inline float __fdividef(float x, float y) {
    return x / y;
}
static inline float __fmaf_rn(float x, float y, float z) {
    return fmaf(x, y, z);
}
static inline float __fadd_rn(float x, float y) {
    return x + y;
}
static inline float __fsub_rn(float x, float y) {
    return x - y;
}
static inline float __fmul_rn(float x, float y) {
    return x * y;
}
static inline float __fdiv_rn(float x, float y) {
    return x / y;
}
static inline float __frcp_rn(float x) {
    return 1.0f / x;
}
static inline float __fsqrt_rn(float x) {
    return sqrtf(x);
}
static inline float __frsqrt_rn(float x) {
    return 1.0f / sqrtf(x);
}
static inline double __fma_rn(double x, double y, double z) {
    return fma(x, y, z);
}
static inline double __dadd_rn(double x, double y) {
    return x + y;
}
static inline double __dmul_rn(double x, double y) {
    return x * y;
}
static inline double __ddiv_rn(double x, double y) {
    return x / y;
}
static inline double __dsqrt_rn(double x) {
    return sqrt(x);
}
static inline float __saturatef(float x) {
    return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}
static inline int __float2int_rn(float x) {
    return static_cast<int>(rintf(x));
}
static inline float __int2float_rn(int x) {
    return static_cast<float>(x);
}
static inline float __uint2float_rn(unsigned x) {
    return static_cast<float>(x);
}
static inline float __double2float_rn(double x) {
    return static_cast<float>(x);
}
static inline float __ull2float_rn(unsigned long long x) {
    return static_cast<float>(x);
}

template <class To, class From> To plsim_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "bits keep their number");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline int __float_as_int(float x) {
    return plsim_bits<int>(x);
}
static inline unsigned __float_as_uint(float x) {
    return plsim_bits<unsigned>(x);
}
static inline float __int_as_float(int x) {
    return plsim_bits<float>(x);
}
static inline float __uint_as_float(unsigned x) {
    return plsim_bits<float>(x);
}
static inline long long __double_as_longlong(double x) {
    return plsim_bits<long long>(x);
}
static inline double __longlong_as_double(long long x) {
    return plsim_bits<double>(x);
}

static inline unsigned __umulhi(unsigned x, unsigned y) {
    return static_cast<unsigned>((static_cast<uint64_t>(x) * y) >> 32);
}
static inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
static inline int __popcll(unsigned long long x) {
    return __builtin_popcountll(x);
}
static inline int __clz(int x) {
    return x ? __builtin_clz(static_cast<unsigned>(x)) : 32;
}
static inline int __ffs(int x) {
    return __builtin_ffs(x);
}

#define PLSIM_MIN_MAX(type)                                                                        \
    static inline type min(type x, type y) {                                                       \
        return y < x ? y : x;                                                                      \
    }                                                                                              \
    static inline type max(type x, type y) {                                                       \
        return x < y ? y : x;                                                                      \
    }
PLSIM_MIN_MAX(int)
PLSIM_MIN_MAX(unsigned)
PLSIM_MIN_MAX(long)
PLSIM_MIN_MAX(unsigned long)
PLSIM_MIN_MAX(long long)
PLSIM_MIN_MAX(unsigned long long)
#undef PLSIM_MIN_MAX
static inline float min(float x, float y) {
    return fminf(x, y);
}
static inline float max(float x, float y) {
    return fmaxf(x, y);
}
static inline double min(double x, double y) {
    return fmin(x, y);
}
static inline double max(double x, double y) {
    return fmax(x, y);
}

#endif
