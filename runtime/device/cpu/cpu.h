/* cpu.h - what the CPU kernels find behind struct pl_device.state. */
#ifndef PL_RUNTIME_DEVICE_CPU_CPU_H
#define PL_RUNTIME_DEVICE_CPU_CPU_H

#include "runtime/device/cpu/pool.h"
#include "runtime/device/device.h"

/* The kernels of one instruction set. Defined beside them, in runtime/kernels. */
struct pl_cpu_level {
    const char *name;            /* "x86-64-v4", ... */
    const pl_kernel_fn *kernels; /* [PL_OP_COUNT] */
};
#define PL_CPU_MAX_LEVELS 4
/* The levels this machine can run, best first; returns how many of `cap` were written. */
uint32_t pl_cpu_levels(struct pl_cpu_level *out, uint32_t cap);
/* The level of this process: the one that PLIMSOLL_CPU_LEVEL in the environment names, by which a
 * machine gives the bits of a lesser one; else the best. NO_DEVICE: the machine cannot run it. */
pl_err pl_cpu_level(struct pl_cpu_level *out, struct pl_diag *d);

struct pl_cpu {
    struct pl_pool *pool;
    const char *level; /* name of the kernels in use */
};

static inline struct pl_cpu *pl_cpu_of(struct pl_device *dev) {
    return dev->state;
}

#endif
