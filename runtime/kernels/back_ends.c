/* back_ends.c - the back-ends that every build has. */
#include "runtime/kernels/back_ends.h"

#include "runtime/kernels/cpu/cpu_tables.h"

static const pl_kernel_fn *const cpu_tables[] = {
#define X(level, name, in_bf16) pl_cpu_kernels_##level,
    PL_CPU_LEVELS(X)
#undef X
};
static const struct pl_kernel_set cpu_kernels = {.tables = cpu_tables};
static const struct pl_kernel_set cpu_fp32_kernels = {.tables = cpu_tables, .only_fp32 = true};

const struct pl_back_end pl_back_end_cpu = {.ops = &pl_device_cpu, .kernels = &cpu_kernels};
const struct pl_back_end pl_back_end_cpu_fp32 = {.ops = &pl_device_cpu,
                                                 .kernels = &cpu_fp32_kernels};
const struct pl_back_end pl_back_end_null = {.ops = &pl_device_null, .kernels = NULL};
