/* table.h - what table.c finds in every file of this folder.
 *
 * A file defines pl_err pl_cuda_<op>(dev, call) with C linkage for each op of op_rows.h it serves,
 * and one list of everything it launches, so that all of it is loaded when the device opens: a
 * kernel that the driver loads at its first launch would take device memory in the middle of a run.
 *   T1  every __global__ function (every instance of a template) that a file can launch stands in
 *       its list
 * Use, at the end of norms.cu:
 *      PL_CUDA_PRELOAD(norms) = {PL_CUDA_KERNEL(scale), PL_CUDA_KERNEL(sum<float, 4>), NULL}; */
#ifndef PL_RUNTIME_KERNELS_CUDA_TABLE_H
#define PL_RUNTIME_KERNELS_CUDA_TABLE_H

#include "estimator/base/diag.h"
#include "estimator/ops/call.h"

/* Every file with kernels, by its name. X(file) */
#define PL_CUDA_FILES(X)                                                                           \
    X(adamw8)                                                                                      \
    X(attention_bwd)                                                                               \
    X(attention_fwd)                                                                               \
    X(bias)                                                                                        \
    X(conv_silu)                                                                                   \
    X(cross_entropy)                                                                               \
    X(dequant4)                                                                                    \
    X(dropout)                                                                                     \
    X(embed)                                                                                       \
    X(experts)                                                                                     \
    X(fold)                                                                                        \
    X(gated_delta)                                                                                 \
    X(gated_delta_bwd)                                                                             \
    X(gated_norm)                                                                                  \
    X(gather)                                                                                      \
    X(glu)                                                                                         \
    X(glu_clamped)                                                                                 \
    X(grouped)                                                                                     \
    X(kv_append)                                                                                   \
    X(linear)                                                                                      \
    X(narrow)                                                                                      \
    X(norms)                                                                                       \
    X(optim)                                                                                       \
    X(quant4)                                                                                      \
    X(rope)                                                                                        \
    X(route)                                                                                       \
    X(scaled)                                                                                      \
    X(set_rows)                                                                                    \
    X(sigmoid_gate)                                                                                \
    X(sink_bwd)                                                                                    \
    X(start)

#ifdef __cplusplus
extern "C" {
#endif

/* An op that may run TOGETHER has a function for many calls at a time as well. */
#define PL_OP(KIND, name, COST, RUNS, what, INPUTS, OUTPUTS)                                       \
    PL_WITH_KERNEL_##RUNS(pl_err pl_cuda_##name(struct pl_device *dev, const struct pl_call *c);)  \
        PL_WITH_GROUP_##RUNS(pl_err pl_cuda_##name##_group(                                        \
                                 struct pl_device *dev, const struct pl_call *calls, uint32_t n);)
#include "estimator/ops/op_rows.h"

/* The kernels by op kind. */
extern const pl_kernel_fn pl_cuda_kernels[PL_OP_COUNT];
extern const pl_group_fn pl_cuda_groups[PL_OP_COUNT];

/* Loads every kernel and opts into large shared memory, so that nothing is loaded lazily later and
 * the context has its final size. */
struct pl_cuda;
pl_err pl_cuda_preload(const struct pl_cuda *cuda, struct pl_diag *d);

/* Ends with NULL. */
#define PL_CUDA_PRELOAD(file) const void *const pl_cuda_preload_##file[]
#define PL_CUDA_KERNEL(...)   ((const void *)(__VA_ARGS__))

#define X(file) extern PL_CUDA_PRELOAD(file);
PL_CUDA_FILES(X)
#undef X

#ifdef __cplusplus
}
#endif

#endif
