/* ptx.cuh - the machine instructions that CUDA C++ has no spelling for, one function each.
 *
 * nvcc sees inline PTX (PTX ISA, sections "mma", "ldmatrix", "cp.async"; sm_75, and what sm_80 has
 * more). The emulation of tests/cuda_sim defines the pl_sim_* twins declared at the end; nothing
 * else knows which of the two it runs on.
 *   X1  mma and ldmatrix are collectives of a whole warp: all 32 lanes call them together
 *   X2  shared and global addresses of a copy are aligned to its size
 *   X3  a copy is complete for the thread that started it after pl_ptx_copy_wait, and for other
 *       threads after the barrier that follows
 * Fragments of mma m16n8k16, lane = 4 g + t: a[4] holds A[g][2t..], A[g+8][2t..], A[g][2t+8..],
 * A[g+8][2t+8..]; b[2] holds B[2t..][g], B[2t+8..][g]; c[4] holds C[g][2t..], C[g+8][2t..], where
 * "2t.." is two consecutive elements, of 16 bits in one register, the first in the low half. */
#ifndef PL_RUNTIME_KERNELS_CUDA_PTX_CUH
#define PL_RUNTIME_KERNELS_CUDA_PTX_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>

/* Also in the pass for the host, which compiles no instruction, and in the emulation. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define PL_PTX_IS_AMPERE 1
#else
#define PL_PTX_IS_AMPERE 0
#endif

#ifdef __CUDACC__

static __device__ __forceinline__ uint32_t pl_ptx_shared_address(const void *p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/* c[16,8] += a[16,16] b[16,8]: T in, fp32 sums. */
template <typename T>
static __device__ __forceinline__ void pl_ptx_mma(float c[4], const uint32_t a[4],
                                                  const uint32_t b[2]);
#if PL_PTX_IS_AMPERE
#define PL_PTX_MMA(T, NAME)                                                                        \
    template <>                                                                                    \
    __device__ __forceinline__ void pl_ptx_mma<T>(float c[4], const uint32_t a[4],                 \
                                                  const uint32_t b[2]) {                           \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." NAME "." NAME ".f32 "                \
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"             \
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                              \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));          \
    }
PL_PTX_MMA(__nv_bfloat16, "bf16")
PL_PTX_MMA(__half, "f16")
#undef PL_PTX_MMA
#else
/* Turing multiplies fp16 alone, eight columns of a at a time: the fragments of m16n8k8 are the
 * halves of those of m16n8k16. */
static __device__ __forceinline__ void pl_ptx_mma_k8(float c[4], uint32_t a0, uint32_t a1,
                                                     uint32_t b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(b));
}
template <>
__device__ __forceinline__ void pl_ptx_mma<__half>(float c[4], const uint32_t a[4],
                                                   const uint32_t b[2]) {
    pl_ptx_mma_k8(c, a[0], a[1], b[0]);
    pl_ptx_mma_k8(c, a[2], a[3], b[1]);
}
template <>
__device__ __forceinline__ void pl_ptx_mma<__nv_bfloat16>(float[4], const uint32_t[4],
                                                          const uint32_t[2]) {
    __trap();
}
#endif

/* Four 8x8 matrices of 16-bit elements; lane l gives the address of row l%8 of matrix l/8. Lane
 * 4 g + t receives elements 2t, 2t+1 of row g of matrix i in r[i]. */
static __device__ __forceinline__ void pl_ptx_ldmatrix_x4(uint32_t r[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(pl_ptx_shared_address(row))
                 : "memory");
}

/* The same of the transposed matrices: elements [2t][g], [2t+1][g]. */
static __device__ __forceinline__ void pl_ptx_ldmatrix_x4_trans(uint32_t r[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(pl_ptx_shared_address(row))
                 : "memory");
}

#if PL_PTX_IS_AMPERE

/* Starts a copy of 16 bytes from global to shared memory, past the first-level cache; 16 zero bytes
 * where !valid, and src is then not read. */
static __device__ __forceinline__ void pl_ptx_copy_16(void *dst, const void *src, bool valid) {
    const int bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(pl_ptx_shared_address(dst)),
                 "l"(__cvta_generic_to_global(src)), "r"(bytes)
                 : "memory");
}

/* The same of 8 bytes, through the first-level cache. */
static __device__ __forceinline__ void pl_ptx_copy_8(void *dst, const void *src, bool valid) {
    const int bytes = valid ? 8 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(pl_ptx_shared_address(dst)),
                 "l"(__cvta_generic_to_global(src)), "r"(bytes)
                 : "memory");
}

/* Closes the group of the copies started since the last commit; a group may be empty. */
static __device__ __forceinline__ void pl_ptx_copy_commit(void) {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most `pending` of this thread's latest groups are incomplete. */
template <int pending> static __device__ __forceinline__ void pl_ptx_copy_wait(void) {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

#else

/* Turing copies through registers: a copy is complete for its thread when it returns. */
static __device__ __forceinline__ void pl_ptx_copy_16(void *dst, const void *src, bool valid) {
    *(uint4 *)dst = valid ? *(const uint4 *)src : make_uint4(0, 0, 0, 0);
}
static __device__ __forceinline__ void pl_ptx_copy_8(void *dst, const void *src, bool valid) {
    *(uint2 *)dst = valid ? *(const uint2 *)src : make_uint2(0, 0);
}
static __device__ __forceinline__ void pl_ptx_copy_commit(void) {}
template <int pending> static __device__ __forceinline__ void pl_ptx_copy_wait(void) {}

#endif

/* 2^x to about 22 bits, 0 for -infinity; denormals become 0. */
static __device__ __forceinline__ float pl_ptx_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#else

extern "C" {
void pl_sim_mma(float c[4], const uint32_t a[4], const uint32_t b[2], bool is_bf16);
void pl_sim_ldmatrix_x4(uint32_t r[4], const void *row, bool trans);
void pl_sim_copy(void *dst, const void *src, int bytes, bool valid); /* bytes: 8 or 16 */
void pl_sim_copy_commit(void);
void pl_sim_copy_wait(int pending);
}

template <typename T>
static inline void pl_ptx_mma(float c[4], const uint32_t a[4], const uint32_t b[2]);
template <>
inline void pl_ptx_mma<__nv_bfloat16>(float c[4], const uint32_t a[4], const uint32_t b[2]) {
    pl_sim_mma(c, a, b, true);
}
template <>
inline void pl_ptx_mma<__half>(float c[4], const uint32_t a[4], const uint32_t b[2]) {
    pl_sim_mma(c, a, b, false);
}
static inline void pl_ptx_ldmatrix_x4(uint32_t r[4], const void *row) {
    pl_sim_ldmatrix_x4(r, row, false);
}
static inline void pl_ptx_ldmatrix_x4_trans(uint32_t r[4], const void *row) {
    pl_sim_ldmatrix_x4(r, row, true);
}
static inline void pl_ptx_copy_16(void *dst, const void *src, bool valid) {
    pl_sim_copy(dst, src, 16, valid);
}
static inline void pl_ptx_copy_8(void *dst, const void *src, bool valid) {
    pl_sim_copy(dst, src, 8, valid);
}
static inline void pl_ptx_copy_commit(void) {
    pl_sim_copy_commit();
}
template <int pending> static inline void pl_ptx_copy_wait(void) {
    pl_sim_copy_wait(pending);
}
static inline float pl_ptx_exp2(float x) {
    return exp2f(x);
}

#endif

#endif
