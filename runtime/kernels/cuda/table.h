/* table.h - what table.c finds in every file of this folder.
 *
 * A file defines, for each op kind it serves, pl_err pl_cuda_<op>(dev, call) with C linkage, and
 * one list of everything it launches, so that all of it is loaded when the device opens: a kernel
 * that the driver loads at its first launch would take device memory in the middle of a run.
 *   T1  every __global__ function (every instance of a template) that a file can launch stands in
 *       its list
 * Use, at the end of norms.cu:
 *      PL_CUDA_PRELOAD(norms) = {PL_CUDA_KERNEL(scale), PL_CUDA_KERNEL(sum<float, 4>), NULL}; */
#ifndef PL_RUNTIME_KERNELS_CUDA_TABLE_H
#define PL_RUNTIME_KERNELS_CUDA_TABLE_H

#include "runtime/kernels/kernels.h"

/* X(op kind, function) */
#define PL_CUDA_OPS(X)                                                                             \
    X(EMBED, embed)                                                                                \
    X(RMSNORM, rmsnorm)                                                                            \
    X(ADD_RMSNORM, add_rmsnorm)                                                                    \
    X(RENORM, renorm)                                                                              \
    X(DEQUANT4, dequant4)                                                                          \
    X(LINEAR, linear)                                                                              \
    X(QK_NORM, qk_norm)                                                                            \
    X(ROPE, rope)                                                                                  \
    X(ATTENTION, attention)                                                                        \
    X(KV_APPEND, kv_append)                                                                        \
    X(ATTENTION_CACHED, attention_cached)                                                          \
    X(SWIGLU, swiglu)                                                                              \
    X(DROPOUT, dropout)                                                                            \
    X(GATHER_ADD, gather_add)                                                                      \
    X(CROSS_ENTROPY, cross_entropy)                                                                \
    X(SCATTER_ROWS, scatter_rows)                                                                  \
    X(LINEAR_DX, linear_dx)                                                                        \
    X(LINEAR_DW, linear_dw)                                                                        \
    X(BIAS_GRAD, bias_grad)                                                                        \
    X(RMSNORM_BWD, rmsnorm_bwd)                                                                    \
    X(QK_NORM_BWD, qk_norm_bwd)                                                                    \
    X(ATTENTION_BWD, attention_bwd)                                                                \
    X(SWIGLU_BWD, swiglu_bwd)                                                                      \
    X(DROPOUT_BWD, dropout_bwd)                                                                    \
    X(EMBED_BWD, embed_bwd)                                                                        \
    X(SQUARE_SUM, square_sum)                                                                      \
    X(CLIP_SCALE, clip_scale)                                                                      \
    X(ADAMW, adamw)                                                                                \
    X(ADAMW_8BIT, adamw_8bit)                                                                      \
    X(SGD, sgd)                                                                                    \
    X(START, start)                                                                                \
    X(QUANT4, quant4)                                                                              \
    X(NEST4, nest4)                                                                                \
    X(COPY_IN, copy_in)                                                                            \
    X(COPY_OUT, copy_out)

/* Those of them that take many calls at a time, in pl_cuda_<op>_group(). X(op kind, function) */
#define PL_CUDA_GROUPS(X)                                                                          \
    X(SQUARE_SUM, square_sum)                                                                      \
    X(ADAMW, adamw)                                                                                \
    X(ADAMW_8BIT, adamw_8bit)                                                                      \
    X(SGD, sgd)

/* Every file with kernels, by its name. X(file) */
#define PL_CUDA_FILES(X)                                                                           \
    X(adamw8)                                                                                      \
    X(attention_bwd)                                                                               \
    X(attention_fwd)                                                                               \
    X(bias)                                                                                        \
    X(cross_entropy)                                                                               \
    X(dequant4)                                                                                    \
    X(dropout)                                                                                     \
    X(embed)                                                                                       \
    X(gather)                                                                                      \
    X(kv_append)                                                                                   \
    X(linear)                                                                                      \
    X(norms)                                                                                       \
    X(optim)                                                                                       \
    X(quant4)                                                                                      \
    X(rope)                                                                                        \
    X(start)                                                                                       \
    X(swiglu)

#ifdef __cplusplus
extern "C" {
#endif

#define X(kind, op) pl_err pl_cuda_##op(struct pl_device *dev, const struct pl_call *c);
PL_CUDA_OPS(X)
#undef X
#define X(kind, op)                                                                                \
    pl_err pl_cuda_##op##_group(struct pl_device *dev, const struct pl_call *calls, uint32_t n);
PL_CUDA_GROUPS(X)
#undef X

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
