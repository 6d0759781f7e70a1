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

/* The kernels of one instruction set. Defined beside them, in runtime/kernels. */
struct pl_cpu_level {
    const char *name;            /* "x86-64-v4", ... */
    const pl_kernel_fn *kernels; /* [PL_OP_COUNT] */
};
#define PL_CPU_MAX_LEVELS 4
/* The levels this machine can run, best first; returns how many of `cap` were written. */
uint32_t pl_cpu_levels(struct pl_cpu_level *out, uint32_t cap);

struct pl_cpu {
    struct pl_pool *pool;
    pl_sgemm_fn sgemm;
    void *blas_handle;
    const char *level; /* name of the kernels in use */
};

/* Loads OpenBLAS for cpu->level and fills sgemm and blas_handle; RUNTIME_NO_DEVICE when it is not
 * installed. Sets environment variables, so call it before other threads read them. */
pl_err pl_blas_load(struct pl_cpu *cpu, struct pl_diag *d);
void pl_blas_unload(struct pl_cpu *cpu); /* safe when nothing was loaded */

static inline struct pl_cpu *pl_cpu_of(struct pl_device *dev) { return dev->state; }

#endif
