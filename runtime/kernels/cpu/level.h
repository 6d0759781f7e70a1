/* level.h - one source, several instruction sets.
 *
 * Every file of this folder is compiled once per x86-64 level (once in all on other machines) with
 * -DPL_LEVEL=v2, v3, v4; so every symbol that is not static must be spelled PL_LEVEL_NAME(x).
 * A kernel is `pl_err PL_CPU(rope)(struct pl_device *dev, const struct pl_call *c)` and has one row
 * in PL_CPU_KERNELS, from which its declaration and its place in the table follow. */
#ifndef PL_RUNTIME_KERNELS_CPU_LEVEL_H
#define PL_RUNTIME_KERNELS_CPU_LEVEL_H

#include "runtime/device/cpu/cpu.h"
#include "runtime/kernels/kernels.h"

#ifndef PL_LEVEL
#error "files of runtime/kernels/cpu are compiled per level: -DPL_LEVEL=..."
#endif

#define PL_PASTE_(a, b) a##_##b
#define PL_PASTE(a, b) PL_PASTE_(a, b)
#define PL_LEVEL_NAME(name) PL_PASTE(name, PL_LEVEL)
#define PL_CPU(op) PL_PASTE(PL_PASTE(pl_cpu, op), PL_LEVEL)

/* X(op kind, function) */
#define PL_CPU_KERNELS(X)                                                                          \
    X(EMBED, embed)                                                                                \
    X(EMBED_BWD, embed_bwd)                                                                        \
    X(DEQUANT4, dequant4)                                                                          \
    X(LINEAR, linear)                                                                              \
    X(LINEAR_DX, linear_dx)                                                                        \
    X(LINEAR_DW, linear_dw)                                                                        \
    X(GATHER_ADD, gather_add)                                                                      \
    X(SCATTER_ROWS, scatter_rows)                                                                  \
    X(BIAS_GRAD, bias_grad)                                                                        \
    X(SQUARE_SUM, square_sum)                                                                      \
    X(CLIP_SCALE, clip_scale)                                                                      \
    X(ADAMW, adamw)                                                                                \
    X(ADAMW_8BIT, adamw_8bit)                                                                      \
    X(SGD, sgd)                                                                                    \
    X(ATTENTION, attention)                                                                        \
    X(ATTENTION_BWD, attention_bwd)                                                                \
    X(KV_APPEND, kv_append)                                                                        \
    X(ATTENTION_CACHED, attention_cached)                                                          \
    X(RMSNORM, rmsnorm)                                                                            \
    X(ADD_RMSNORM, add_rmsnorm)                                                                    \
    X(RENORM, renorm)                                                                              \
    X(RMSNORM_BWD, rmsnorm_bwd)                                                                    \
    X(QK_NORM, qk_norm)                                                                            \
    X(QK_NORM_BWD, qk_norm_bwd)                                                                    \
    X(ROPE, rope)                                                                                  \
    X(SWIGLU, swiglu)                                                                              \
    X(SWIGLU_BWD, swiglu_bwd)                                                                      \
    X(CROSS_ENTROPY, cross_entropy)                                                                \
    X(DROPOUT, dropout)                                                                            \
    X(DROPOUT_BWD, dropout_bwd)                                                                    \
    X(START, start)                                                                                \
    X(QUANT4, quant4)                                                                              \
    X(NEST4, nest4)                                                                                \
    X(COPY_IN, copy_in)                                                                            \
    X(COPY_OUT, copy_out)

#define X(kind, op) pl_err PL_CPU(op)(struct pl_device *dev, const struct pl_call *c);
PL_CPU_KERNELS(X)
#undef X

#endif
