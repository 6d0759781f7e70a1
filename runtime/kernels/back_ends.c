/* back_ends.c - the back-ends that every build has. */
#include "runtime/kernels/back_ends.h"

#include "runtime/kernels/cpu/cpu_tables.h"

static const pl_kernel_fn *const cpu_tables[] = {
#define X(level, name) pl_cpu_kernels_##level,
    PL_CPU_LEVELS(X)
#undef X
};
static const struct pl_kernel_set cpu_kernels = {.tables = cpu_tables};

const struct pl_back_end pl_back_end_cpu = {.ops = &pl_device_cpu, .kernels = &cpu_kernels};
const struct pl_back_end pl_back_end_null = {.ops = &pl_device_null, .kernels = NULL};
