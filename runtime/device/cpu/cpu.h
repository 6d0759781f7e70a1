/* cpu.h - what the CPU kernels find behind struct pl_device.state. */
#ifndef PL_RUNTIME_DEVICE_CPU_CPU_H
#define PL_RUNTIME_DEVICE_CPU_CPU_H

#include "runtime/device/cpu/pool.h"
#include "runtime/device/device.h"

/* cblas_sgemm of a library loaded at open(), so that a question about memory never pays for BLAS.
 * Row-major, single-threaded, safe to call from every worker at once. trans: 0 = no, 1 = yes. */
typedef void (*pl_sgemm_fn)(int trans_a, int trans_b, int m, int n, int k, float alpha,
                            const float *a, int lda, const float *b, int ldb, float beta, float *c,
                            int ldc);

struct pl_cpu {
    struct pl_pool *pool;
    pl_sgemm_fn sgemm;
    void *blas_handle;
    const char *level; /* instruction set of the kernels in use: "x86-64-v4", ... */
};

static inline struct pl_cpu *pl_cpu_of(struct pl_device *dev) { return dev->state; }

#endif
