/* hopper.cuh - the matrix instructions of sm_90a, and the loads of their operands, one function
 * each.
 *
 * nvcc sees inline PTX (PTX ISA 8.0, sections "wgmma.mma_async", "Matrix-Descriptor", "Strides and
 * swizzling", "fence.proxy.async", "mbarrier", "cp.async.bulk.tensor"); the emulation defines the
 * pl_sim_* twins declared below.
 *   W1  a product is a collective of a warpgroup, four warps whose first has a number that is a
 *       multiple of 4: warp w of them has rows [16 w, 16 w + 16) of the 64
 *   W2  its operands in shared memory are tiles of 64 columns of 16 bits: rows of 128 bytes from an
 *       address that is a multiple of 1024, in which unit u of 16 bytes of row r lies at u ^ r % 8
 *   W3  what a thread wrote to shared memory is read by a product after the thread's
 *       pl_ptx_proxy_fence and the __syncthreads that follows
 *   W4  the registers of a product belong to it from pl_ptx_wgmma_fence to pl_ptx_wgmma_wait
 *   W5  one thread makes a barrier (pl_barrier), and others use it after that thread's
 *       pl_ptx_proxy_fence and the __syncthreads that follows
 *   W6  one thread loads a box of a tensor (CUtensorMap) to shared memory, where no product reads
 *       any more, and says to the barrier of the load how many bytes come. The bytes are there for
 *       the threads that waited for this phase of the barrier, and for all after a __syncthreads
 *   W7  a box is 64 columns of 16 bits of the rows of one head, and is stored as a tile (W2); what
 *       lies outside the tensor is zeros, and counts as bytes that come
 * Fragments: those of mma m16n8k16 (ptx.cuh), of the 16 rows of a warp; c[n] has columns [8 n,
 * 8 n + 8). */
#ifndef PL_RUNTIME_KERNELS_CUDA_HOPPER_CUH
#define PL_RUNTIME_KERNELS_CUDA_HOPPER_CUH

#include "runtime/kernels/cuda/ptx.cuh"

#include <cudaTypedefs.h>

enum { PL_WARPGROUP = 128, PL_PANEL_COLS = 64, PL_PANEL_ALIGN = 1024 };

/* An mbarrier. Its phases are numbered from 0, and a wait names one by the parity of its number. */
struct pl_barrier {
    uint64_t state;
};

#ifndef __CUDACC__
extern "C" {
uint32_t pl_sim_shared_address(const void *p);
void pl_sim_wgmma(float *c, uint32_t columns, const uint32_t *a, uint64_t a_tile, uint64_t b_tile,
                  bool adds, bool is_bf16);
void pl_sim_wgmma_fence(void);
void pl_sim_wgmma_commit(void);
void pl_sim_wgmma_wait(void);
void pl_sim_proxy_fence(void);
void pl_sim_clear(void *p);
void pl_sim_barrier_make(struct pl_barrier *b, uint32_t arrivals);
void pl_sim_barrier_expect(struct pl_barrier *b, uint32_t bytes);
void pl_sim_barrier_wait(struct pl_barrier *b, uint32_t parity);
void pl_sim_load_box(void *dst, const CUtensorMap *map, uint32_t col, uint32_t head, uint32_t row,
                     struct pl_barrier *b);
}
static inline uint32_t pl_ptx_shared_address(const void *p) {
    return pl_sim_shared_address(p);
}
#endif

/* Returns the first place of a tile (W2) from p on. */
static __device__ __forceinline__ uint16_t *pl_panel_align(uint16_t *p) {
    return p + (0u - pl_ptx_shared_address(p)) % PL_PANEL_ALIGN / sizeof *p;
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

/* Writes zeros to 16 bytes of shared memory that products read (W3). */
static __device__ __forceinline__ void pl_ptx_clear_16(void *p) {
    *(uint4 *)p = make_uint4(0, 0, 0, 0);
}

/* Makes a barrier whose phases end after so many arrivals and the bytes that were expected. */
static __device__ __forceinline__ void pl_ptx_barrier_make(struct pl_barrier *b,
                                                           uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(pl_ptx_shared_address(b)),
                 "r"(arrivals)
                 : "memory");
}
/* Arrives, and has the phase last until so many bytes more have come. */
static __device__ __forceinline__ void pl_ptx_barrier_expect(struct pl_barrier *b, uint32_t bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(pl_ptx_shared_address(b)),
        "r"(bytes)
        : "memory");
}
/* Waits for the end of the phase of this parity, which is the current one or the one before it. The
 * lanes of a warp leave the loop together, as products want them. */
static __device__ __forceinline__ void pl_ptx_barrier_wait(struct pl_barrier *b, uint32_t parity) {
    uint32_t ended;
    do
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.b32 %0, 1, 0, p;\n}\n"
                     : "=r"(ended)
                     : "r"(pl_ptx_shared_address(b)), "r"(parity)
                     : "memory");
    while (!ended);
    __syncwarp();
}
/* Starts to load the box (W7) at this column of a head and this row. */
static __device__ __forceinline__ void pl_ptx_load_box(void *dst, const CUtensorMap *map,
                                                       uint32_t col, uint32_t head, uint32_t row,
                                                       struct pl_barrier *b) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(pl_ptx_shared_address(dst)),
                 "l"(map), "r"(col), "r"(head), "r"(row), "r"(pl_ptx_shared_address(b))
                 : "memory");
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
static inline void pl_ptx_clear_16(void *p) {
    pl_sim_clear(p);
}
static inline void pl_ptx_barrier_make(struct pl_barrier *b, uint32_t arrivals) {
    pl_sim_barrier_make(b, arrivals);
}
static inline void pl_ptx_barrier_expect(struct pl_barrier *b, uint32_t bytes) {
    pl_sim_barrier_expect(b, bytes);
}
static inline void pl_ptx_barrier_wait(struct pl_barrier *b, uint32_t parity) {
    pl_sim_barrier_wait(b, parity);
    __syncwarp();
}
static inline void pl_ptx_load_box(void *dst, const CUtensorMap *map, uint32_t col, uint32_t head,
                                   uint32_t row, struct pl_barrier *b) {
    pl_sim_load_box(dst, map, col, head, row, b);
}

#endif

#endif
