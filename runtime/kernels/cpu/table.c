/* table.c - the kernels of one level, by op kind. */
#include "runtime/kernels/cpu/cpu_tables.h"
#include "runtime/kernels/cpu/level.h"

/* An op without a kernel stays NULL: the checkpoint room does its copying. */
const pl_kernel_fn PL_LEVEL_NAME(pl_cpu_kernels)[PL_OP_COUNT] = {
#define PL_OP(KIND, name, COST, RUNS, what, INPUTS, OUTPUTS)                                       \
    PL_WITH_KERNEL_##RUNS([PL_OP_##KIND] = PL_CPU(name), )
#include "estimator/ops/op_rows.h"
};
