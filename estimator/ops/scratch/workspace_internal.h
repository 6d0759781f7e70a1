/* workspace_internal.h - scratch rules of single ops, which op_rows.h names.
 *
 * rows, cols: dimensions of the op's first matrix operand; bytes: the size of the kernel's layout,
 * 0 = none. The kernels size their layout by the same functions, with the rows of the call, so a
 * rule must never shrink when rows grow. */
#ifndef PL_ESTIMATOR_OPS_SCRATCH_WORKSPACE_INTERNAL_H
#define PL_ESTIMATOR_OPS_SCRATCH_WORKSPACE_INTERNAL_H

#include "estimator/ops/scratch/workspace_cuda.h"

typedef uint64_t (*pl_ws_rule)(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                               uint64_t cols);

/* workspace.c */
uint64_t pl_ws_square_sum(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                          uint64_t cols);

/* workspace_attention.c */
uint64_t pl_ws_attention(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                         uint64_t cols);
uint64_t pl_ws_attention_bwd(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                             uint64_t cols);
uint64_t pl_ws_rmsnorm_bwd(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                           uint64_t cols);
uint64_t pl_ws_qk_norm_bwd(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                           uint64_t cols);
uint64_t pl_ws_sink_bwd(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                        uint64_t cols);
uint64_t pl_ws_route(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                     uint64_t cols);
uint64_t pl_ws_cross_entropy(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                             uint64_t cols);

/* workspace_delta.c */
uint64_t pl_ws_conv_silu_bwd(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                             uint64_t cols);

uint64_t pl_ws_gated_delta(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                           uint64_t cols);
uint64_t pl_ws_gated_delta_bwd(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                               uint64_t cols);
uint64_t pl_ws_cuda_gated_delta_bwd(const struct pl_traits *t, const struct pl_attr *attr,
                                    uint64_t rows, uint64_t cols);

/* workspace_cuda_attention.c */
uint64_t pl_ws_cuda_attention_bwd(const struct pl_traits *t, const struct pl_attr *attr,
                                  uint64_t rows, uint64_t cols);

/* workspace_cuda_products.c */
uint64_t pl_ws_cuda_bias_grad(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                              uint64_t cols);

/* workspace_cuda_rows.c */
uint64_t pl_ws_cuda_rmsnorm_bwd(const struct pl_traits *t, const struct pl_attr *attr,
                                uint64_t rows, uint64_t cols);
uint64_t pl_ws_cuda_qk_norm_bwd(const struct pl_traits *t, const struct pl_attr *attr,
                                uint64_t rows, uint64_t cols);
uint64_t pl_ws_cuda_cross_entropy(const struct pl_traits *t, const struct pl_attr *attr,
                                  uint64_t rows, uint64_t cols);
uint64_t pl_ws_cuda_square_sum(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                               uint64_t cols);

#endif
