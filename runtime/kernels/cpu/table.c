/* table.c - the kernels of one level, by op kind. */
#include "runtime/kernels/cpu/level.h"

extern const pl_kernel_fn PL_LEVEL_NAME(pl_cpu_kernels)[PL_OP_COUNT];

/* STAGE_IN and STAGE_OUT stay NULL: the checkpoint room does that copying. */
const pl_kernel_fn PL_LEVEL_NAME(pl_cpu_kernels)[PL_OP_COUNT] = {
#define X(kind, op) [PL_OP_##kind] = PL_CPU(op),
    PL_CPU_KERNELS(X)
#undef X
};
