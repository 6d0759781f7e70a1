/* hopper.cuh - the matrix instructions of sm_90a, one function each.
 *
 * nvcc sees inline PTX (PTX ISA 8.0, sections "wgmma.mma_async", "Matrix-Descriptor", "Strides and
 * swizzling", "fence.proxy.async"); the emulation defines the pl_sim_* twins declared at the end.
 *   W1  a product is a collective of a warpgroup, four warps whose first has a number that is a
 *       multiple of 4: warp w of them has rows [16 w, 16 w + 16) of the 64
 *   W2  its operands in shared memory are tiles of 64 columns of 16 bits: rows of 128 bytes from an
 *       address that is a multiple of 1024, in which unit u of 16 bytes of row r lies at u ^ r % 8
 *   W3  what a thread wrote to shared memory, or copied there, is read by a product after the
 *       thread's pl_ptx_proxy_fence and the barrier that follows
 *   W4  the registers of a product belong to it from pl_ptx_wgmma_fence to pl_ptx_wgmma_wait
 * Fragments: those of mma m16n8k16 (ptx.cuh), of the 16 rows of a warp; c[n] has columns [8 n,
 * 8 n + 8). */
#ifndef PL_RUNTIME_KERNELS_CUDA_HOPPER_CUH
#define PL_RUNTIME_KERNELS_CUDA_HOPPER_CUH

#include "runtime/kernels/cuda/ptx.cuh"

enum { PL_WARPGROUP = 128, PL_PANEL_COLS = 64, PL_PANEL_ALIGN = 1024 };

#ifndef __CUDACC__
extern "C" {
uint32_t pl_sim_shared_address(const void *p);
void pl_sim_wgmma(float *c, uint32_t columns, const uint32_t *a, uint64_t a_tile, uint64_t b_tile,
                  bool adds, bool is_bf16);
void pl_sim_wgmma_fence(void);
void pl_sim_wgmma_commit(void);
void pl_sim_wgmma_wait(void);
void pl_sim_proxy_fence(void);
}
static inline uint32_t pl_ptx_shared_address(const void *p) {
    return pl_sim_shared_address(p);
}
#endif

/* Returns the first place of a tile (W2) from p on. */
static __device__ __forceinline__ uint16_t *pl_panel_align(uint16_t *p) {
    return p + (0u - pl_ptx_shared_address(p)) % PL_PANEL_ALIGN / sizeof *p;
}

/* The place of unit `unit` of 8 elements of row `row` in a tile of `rows` rows and any number of
 * panels of 64 columns, one after the other. */
static __device__ __forceinline__ uint32_t pl_panel_at(uint32_t rows, uint32_t row, uint32_t unit) {
    const uint32_t panel = unit / 8;
    return (panel * rows + row) * PL_PANEL_COLS + (unit % 8 ^ row % 8) * 8;
}

/* Describes a tile with rows of 128 bytes, swizzled by these. Its groups of eight rows follow each
 * other; panels are `panel_bytes` apart, which counts where the rows of the tile are the inner
 * dimension of a product. */
static __device__ __forceinline__ uint64_t pl_panel(const uint16_t *p, uint32_t panel_bytes) {
    const uint64_t swizzled = UINT64_C(1) << 62, group = UINT64_C(1024) / 16 << 32;
    const uint64_t address = (pl_ptx_shared_address(p) & 0x3FFFF) / 16;
    return swizzled | group | (uint64_t)(panel_bytes / 16) << 16 | address;
}

#ifdef __CUDACC__

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define PL_PTX_IS_HOPPER 1
#else
#define PL_PTX_IS_HOPPER 0
#endif

#if PL_PTX_IS_HOPPER

#define PL_C4(c, n)  "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define PL_C16(c, n) PL_C4(c, n), PL_C4(c, (n) + 1), PL_C4(c, (n) + 2), PL_C4(c, (n) + 3)
#define PL_C32(c, n) PL_C16(c, n), PL_C16(c, (n) + 4)
#define PL_R32_0                                                                                   \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "   \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PL_R32_32                                                                                  \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "   \
    "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

/* c[64,64] (+)= a[64,16] b[64,16]^T, both in shared memory; without `adds`, c is overwritten. */
template <typename T>
static __device__ __forceinline__ void pl_ptx_wgmma_tiles(float (&c)[8][4], uint64_t a, uint64_t b,
                                                          bool adds);
/* c[64,8 N] += a[64,16] b[16,8 N], a in registers. */
template <typename T>
static __device__ __forceinline__ void pl_ptx_wgmma_rows(float (&c)[8][4], const uint32_t (&a)[4],
                                                         uint64_t b);
template <typename T>
static __device__ __forceinline__ void pl_ptx_wgmma_rows(float (&c)[16][4], const uint32_t (&a)[4],
                                                         uint64_t b);
#define PL_PTX_WGMMA(T, NAME)                                                                      \
    template <>                                                                                    \
    __device__ __forceinline__ void pl_ptx_wgmma_tiles<T>(float(&c)[8][4], uint64_t a, uint64_t b, \
                                                          bool adds) {                             \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                  \
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32." NAME "." NAME " {" PL_R32_0     \
                     "}, %32, %33, p, 1, 1, 0, 0;\n}\n"                                            \
                     : PL_C32(c, 0)                                                                \
                     : "l"(a), "l"(b), "r"((int)adds));                                            \
    }                                                                                              \
    template <>                                                                                    \
    __device__ __forceinline__ void pl_ptx_wgmma_rows<T>(float(&c)[8][4], const uint32_t(&a)[4],   \
                                                         uint64_t b) {                             \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"                                  \
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32." NAME "." NAME " {" PL_R32_0     \
                     "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}\n"                              \
                     : PL_C32(c, 0)                                                                \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));                \
    }                                                                                              \
    template <>                                                                                    \
    __device__ __forceinline__ void pl_ptx_wgmma_rows<T>(float(&c)[16][4], const uint32_t(&a)[4],  \
                                                         uint64_t b) {                             \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"                                  \
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32." NAME "." NAME " {" PL_R32_0    \
                     ", " PL_R32_32 "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n}\n"               \
                     : PL_C32(c, 0), PL_C32(c, 8)                                                  \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));                \
    }
PL_PTX_WGMMA(__nv_bfloat16, "bf16")
PL_PTX_WGMMA(__half, "f16")
#undef PL_PTX_WGMMA

static __device__ __forceinline__ void pl_ptx_wgmma_fence(void) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void pl_ptx_wgmma_commit(void) {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits for all products that were committed. */
static __device__ __forceinline__ void pl_ptx_wgmma_wait(void) {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
static __device__ __forceinline__ void pl_ptx_proxy_fence(void) {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#endif

#else

#define PL_PTX_IS_HOPPER 1

template <typename T>
static inline void pl_ptx_wgmma_tiles(float (&c)[8][4], uint64_t a, uint64_t b, bool adds) {
    pl_sim_wgmma(c[0], 64, nullptr, a, b, adds, std::is_same<T, __nv_bfloat16>::value);
}
template <typename T, size_t N>
static inline void pl_ptx_wgmma_rows(float (&c)[N][4], const uint32_t (&a)[4], uint64_t b) {
    pl_sim_wgmma(c[0], 8 * N, a, 0, b, true, std::is_same<T, __nv_bfloat16>::value);
}
static inline void pl_ptx_wgmma_fence(void) {
    pl_sim_wgmma_fence();
}
static inline void pl_ptx_wgmma_commit(void) {
    pl_sim_wgmma_commit();
}
static inline void pl_ptx_wgmma_wait(void) {
    pl_sim_wgmma_wait();
}
static inline void pl_ptx_proxy_fence(void) {
    pl_sim_proxy_fence();
}

#endif

#endif
