/* table.c - the kernels of one level, by op kind. */
#include "runtime/kernels/cpu/cpu_tables.h"
#include "runtime/kernels/cpu/level.h"

#if defined(PL_EXTENDS)
/* The operations that a level which extends another one has kernels of its own for. */
#define PL_OWN_LINEAR            ~, PL_LEVEL
#define PL_OWN_LINEAR_DX         ~, PL_LEVEL
#define PL_OWN_LINEAR_DW         ~, PL_LEVEL
#define PL_OWN_GROUPED_LINEAR    ~, PL_LEVEL
#define PL_OWN_GROUPED_LINEAR_DX ~, PL_LEVEL
#define PL_OWN_GROUPED_LINEAR_DW ~, PL_LEVEL
#define PL_OWN_ATTENTION         ~, PL_LEVEL
#define PL_OWN_ATTENTION_BWD     ~, PL_LEVEL
#define PL_OWN_ATTENTION_CACHED  ~, PL_LEVEL
/* The second argument: PL_EXTENDS where PL_OWN_KIND is no macro, and so is the first itself. */
#define PL_SECOND(first, second, ...) second
#define PL_LEVEL_OF(own)              PL_SECOND(own, PL_EXTENDS, )
#define PL_EXTENDED(op)               PL_PASTE(PL_PASTE(pl_cpu, op), PL_EXTENDS)
#define PL_OP(KIND, name, COST, RUNS, what, INPUTS, OUTPUTS)                                       \
    PL_WITH_KERNEL_##RUNS(                                                                         \
        pl_err PL_EXTENDED(name)(struct pl_device * dev, const struct pl_call *c);)
#include "estimator/ops/op_rows.h"
#define PL_KERNEL(KIND, name) PL_PASTE(PL_PASTE(pl_cpu, name), PL_LEVEL_OF(PL_OWN_##KIND))
#else
#define PL_KERNEL(KIND, name) PL_CPU(name)
#endif

/* An op without a kernel stays NULL: the checkpoint room does its copying. */
const pl_kernel_fn PL_LEVEL_NAME(pl_cpu_kernels)[PL_OP_COUNT] = {
#define PL_OP(KIND, name, COST, RUNS, what, INPUTS, OUTPUTS)                                       \
    PL_WITH_KERNEL_##RUNS([PL_OP_##KIND] = PL_KERNEL(KIND, name), )
#include "estimator/ops/op_rows.h"
};
