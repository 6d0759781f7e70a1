/* traits.h - what a back-end is, as far as bytes are concerned. Plain numbers, no device needed. */
#ifndef PL_ESTIMATOR_CARD_TRAITS_H
#define PL_ESTIMATOR_CARD_TRAITS_H

#include <stdbool.h>
#include <stdint.h>

enum pl_backend { PL_BACKEND_CPU, PL_BACKEND_NULL, PL_BACKEND_CUDA };

struct pl_traits {
    enum pl_backend backend;
    uint64_t align_bytes;  /* alignment of every tensor */
    uint32_t threads;      /* CPU: workers that need scratch of their own; 1 elsewhere */
    uint32_t sm;           /* CUDA: compute capability times ten, 90 = 9.0; 0 elsewhere */
    uint64_t pinned_bytes; /* host memory that copies pass through; 0 = they need none, and files
                            * are staged in the arena, which the host can write */
};

/* The two halves of pinned_bytes: one where files are converted, one where uploads wait. */
#define PL_CUDA_STAGING_BYTES (UINT64_C(8) << 20)
#define PL_CUDA_RING_BYTES    (UINT64_C(8) << 20)

/* Returns the traits of a CPU with this many threads (at least 1). */
struct pl_traits pl_traits_cpu(uint32_t threads);
/* Returns the number of cores that this process may run on, >= 1. */
uint32_t pl_cpu_count(void);
/* Returns the traits of a GPU of this compute capability times ten. */
struct pl_traits pl_traits_cuda(uint32_t sm);
/* True if kernels exist for it; false for a GPU older than PL_CARD_OLDEST_SM (cards.h). */
bool pl_traits_run(const struct pl_traits *t);

/* Block sizes the CPU kernels work in; the workspace rule and the kernels both use them. */
enum {
    PL_GEMM_ROWS = 432,  /* products: rows of a block of the left matrix, whole tiles of them */
    PL_GEMM_COLS = 768,  /* products: columns of a block of sums that are rounded at the end */
    PL_GEMM_PANEL = 48,  /* columns of the right matrix that are multiplied at a time, at most */
    PL_GEMM_DEPTH = 256, /* products: depth of a block of both matrices */
    PL_GEMM_DEEP = 512,  /* the same where rows of the left matrix are fp32 numbers along k, */
    PL_GEMM_DEEP_ROWS = 288, /* and rows of such a block */
    PL_GEMM_PAD = 16, /* elements between rows of a block, so that they spread over cache sets */
    PL_ATTENTION_QUERIES = 64, /* query rows of a tile */
    PL_ATTENTION_KEYS = 128    /* key rows of a tile */
};

/* The elements of a gradient whose squares one task sums. */
#define PL_SQUARE_SUM_CHUNK UINT64_C(65536)

#endif
