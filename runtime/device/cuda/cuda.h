/* cuda.h - what the CUDA kernels find in struct pl_device.state, and how they are launched.
 *
 * Everything runs on one stream, in order, but for what runs on the copy stream
 * (cuda_copy_stream.c). No kernel allocates, synchronises or reads back; scratch is the op's
 * planned `ws` operand. The same files are compiled by nvcc and, for machines without a GPU, by the
 * host compiler against the emulation of tests/cuda_sim: whatever the two say differently goes
 * through the macros below. After its launches a kernel function returns pl_cuda_launched().
 *   C1  a kernel is started by PL_LAUNCH and nothing else, and its dynamic shared memory is taken
 *       by PL_SHARED; there are no static __shared__ arrays
 *   C2  no cuBLAS handle, descriptor or algorithm is made inside a step after the first one that
 *       ran: pl_cuda.products keeps them */
#ifndef PL_RUNTIME_DEVICE_CUDA_CUDA_H
#define PL_RUNTIME_DEVICE_CUDA_CUDA_H

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "runtime/device/device.h"

struct pl_lt;       /* functions of cuBLASLt, found at open: lt.h */
struct pl_products; /* of the kernels: kernels/cuda/products.h */

#define PL_CUDA_RING_SLOTS 4

/* Pinned memory that uploads pass through, so that a source may be reused at once while its copy
 * still waits in the stream. A slot is filled front to back by several uploads; `done` marks the
 * place in the stream where the last of them has been read. */
struct pl_cuda_ring {
    char *base;          /* NULL until pl_staging_reserve() */
    uint64_t slot_bytes; /* of one slot */
    uint64_t used;       /* of the slot in use */
    uint32_t slot;
    bool in_flight[PL_CUDA_RING_SLOTS];
    cudaEvent_t done[PL_CUDA_RING_SLOTS];
};

/* Pinned memory for values on their way to a host that does not wait: device.h, post. */
struct pl_cuda_mail {
    char *base; /* [PL_MAIL_PLACES * PL_MAIL_BYTES]; NULL until pl_staging_reserve() */
    cudaEvent_t done[PL_MAIL_PLACES];
};

#define PL_CUDA_COPY_EVENTS 32

/* A second stream, of what runs on the copy stream: cuda_copy_stream.c. */
struct pl_cuda_copy_stream {
    cudaStream_t stream;
    cudaStream_t main;                     /* pl_cuda.stream, while that is this one; NULL */
    cudaEvent_t before;                    /* all that was queued when it began */
    cudaEvent_t done[PL_CUDA_COPY_EVENTS]; /* by number; the later of two stands for both */
};

struct pl_cuda {
    cudaStream_t stream; /* that kernels are queued on */
    const struct pl_lt *lt;
    struct pl_products *products; /* descriptors and algorithms by shape */
    int ordinal;                  /* of the device */
    uint32_t sm;                  /* compute capability times ten */
    uint32_t sm_count;            /* multiprocessors */
    uint32_t shared_max;          /* dynamic shared bytes a block may opt into */
    bool is_integrated;           /* its memory is that of the host */
    struct pl_cuda_ring ring;
    struct pl_cuda_mail mail;
    struct pl_cuda_copy_stream copy_stream;
};

static inline struct pl_cuda *pl_cuda_of(struct pl_device *dev) {
    return (struct pl_cuda *)dev->state;
}

/* The meaning of an error of the CUDA runtime: OK, DEVICE_OOM (cudaErrorMemoryAllocation),
 * NO_DEVICE, PLAN_BROKEN for a launch or an argument that can only be our own mistake, and
 * DEVICE_LOST for everything else: an error that spoils the context (700, 719, ...) and one that is
 * not known are treated alike, because neither may be tried again. */
pl_err pl_cuda_classify(cudaError_t e);
/* The same, and the runtime's last error is cleared, so that the next launch does not report it. */
static inline pl_err pl_cuda_error(cudaError_t e) {
    if (e != cudaSuccess) (void)cudaGetLastError();
    return pl_cuda_classify(e);
}

/* Returns OK if the launches since the last call were accepted. Does not wait for them. */
static inline pl_err pl_cuda_launched(void) {
    return pl_cuda_error(cudaPeekAtLastError());
}

/* The functions of struct pl_device_ops that graph.c has. */
pl_err pl_cuda_record_begin(struct pl_device *dev);
pl_err pl_cuda_record_end(struct pl_device *dev, bool keep, struct pl_graph **out);
pl_err pl_cuda_replay(struct pl_device *dev, const struct pl_graph *g);
void pl_cuda_forget(struct pl_device *dev, struct pl_graph **g);

/* The functions of it that cuda_copy_stream.c has. The stream is opened once, with the device, and
 * close takes what was opened in part. */
pl_err pl_cuda_copy_stream_open(struct pl_device *dev);
pl_err pl_cuda_copy_stream_begin(struct pl_device *dev);
pl_err pl_cuda_copy_stream_end(struct pl_device *dev, uint32_t number);
pl_err pl_cuda_copy_stream_await(struct pl_device *dev, uint32_t number);
void pl_cuda_copy_stream_close(struct pl_device *dev);

#ifdef __cplusplus
}
#endif

/* PL_LAUNCH(kernel, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t, arguments...)
 * PL_SHARED(type, name): `type *name` is the block's dynamic shared memory, 16-byte aligned. A
 * kernel takes it once and divides it itself. The emulation defines both in cuda_runtime.h. */
#ifdef __CUDACC__
#define PL_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                  \
    kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)
#define PL_SHARED(type, name)                                                                      \
    extern __shared__ __align__(16) unsigned char pl_shared_memory[];                              \
    type *name = reinterpret_cast<type *>(pl_shared_memory)
#endif

#endif
