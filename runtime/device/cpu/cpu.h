/* cpu.h - what the CPU kernels find in struct pl_device.state, and the levels of processors. */
#ifndef PL_RUNTIME_DEVICE_CPU_CPU_H
#define PL_RUNTIME_DEVICE_CPU_CPU_H

#include "runtime/device/cpu/pool.h"
#include "runtime/device/device.h"

/* The instruction sets that kernels are compiled for, best first: whether they multiply bf16 as it
 * is, where both operands of a product are bf16. X(suffix, name, in_bf16) */
#if defined(__x86_64__)
#define PL_CPU_LEVELS(X)                                                                           \
    X(v4amx, "x86-64-v4+amx", true)                                                                \
    X(v4bf16, "x86-64-v4+bf16", true)                                                              \
    X(v4, "x86-64-v4", false)                                                                      \
    X(v3, "x86-64-v3", false)                                                                      \
    X(v2, "x86-64-v2", false)
#else
#define PL_CPU_LEVELS(X) X(base, "base", false)
#endif

struct pl_cpu_level {
    const char *name;
    uint32_t number; /* of its row above: its place in pl_kernel_set.tables */
    bool in_bf16;
};
#define PL_CPU_MAX_LEVELS 5
/* The levels this machine can run, best first; returns how many of `cap` were written. */
uint32_t pl_cpu_levels(struct pl_cpu_level *out, uint32_t cap);
/* The level of this process: the one that PLIMSOLL_CPU_LEVEL in the environment names, by which a
 * machine gives the bits of a lesser one; else the fastest. Unless in_bf16, it is the best below
 * that which multiplies in fp32 alone. NO_DEVICE: the machine cannot run it. */
pl_err pl_cpu_level(bool in_bf16, struct pl_cpu_level *out, struct pl_diag *d);

struct pl_cpu {
    struct pl_pool *pool;
    const char *level; /* name of the kernels in use */
};

static inline struct pl_cpu *pl_cpu_of(struct pl_device *dev) {
    return dev->state;
}

#endif
