/* cpu_tables.h - the CPU kernels of each instruction set by op kind, as table.c defines them. */
#ifndef PL_RUNTIME_KERNELS_CPU_CPU_TABLES_H
#define PL_RUNTIME_KERNELS_CPU_CPU_TABLES_H

#include "runtime/device/cpu/cpu.h"

#define X(level, name, in_bf16) extern const pl_kernel_fn pl_cpu_kernels_##level[PL_OP_COUNT];
PL_CPU_LEVELS(X)
#undef X

#endif
