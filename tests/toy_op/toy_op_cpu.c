/* toy_op_cpu.c - its kernels on the CPU: the arithmetic of the real gate, so that runs compare. */
#include "runtime/kernels/cpu/level.h"

pl_err PL_CPU(toyglu)(struct pl_device *dev, const struct pl_call *c) {
    return PL_CPU(swiglu)(dev, c);
}

pl_err PL_CPU(toyglu_bwd)(struct pl_device *dev, const struct pl_call *c) {
    return PL_CPU(swiglu_bwd)(dev, c);
}
