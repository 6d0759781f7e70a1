/* level.h - one source, several instruction sets.
 *
 * Every file of this folder is compiled once per x86-64 level (once in all on other machines) with
 * -DPL_LEVEL=v2, v3, v4; those of products also for v4bf16 and v4amx, which have the other kernels
 * of v4 (-DPL_EXTENDS=v4). So every symbol that is not static must be spelled PL_LEVEL_NAME(x).
 * The kernel of an op is `pl_err PL_CPU(rope)(struct pl_device *dev, const struct pl_call *c)`, by
 * the name of its row in op_rows.h; its declaration and its place in the table follow from it. */
#ifndef PL_RUNTIME_KERNELS_CPU_LEVEL_H
#define PL_RUNTIME_KERNELS_CPU_LEVEL_H

#include "estimator/ops/call.h"
#include "runtime/device/cpu/cpu.h"

#ifndef PL_LEVEL
#error "files of runtime/kernels/cpu are compiled per level: -DPL_LEVEL=..."
#endif

#define PL_PASTE_(a, b) a##_##b
#define PL_PASTE(a, b) PL_PASTE_(a, b)
#define PL_LEVEL_NAME(name) PL_PASTE(name, PL_LEVEL)
#define PL_CPU(op) PL_PASTE(PL_PASTE(pl_cpu, op), PL_LEVEL)

#define PL_OP(KIND, name, COST, RUNS, what, INPUTS, OUTPUTS)                                       \
    PL_WITH_KERNEL_##RUNS(pl_err PL_CPU(name)(struct pl_device * dev, const struct pl_call *c);)
#include "estimator/ops/op_rows.h"

#endif
