/* workspace_cuda.c - the scratch of the CUDA kernels. */
#include "estimator/program/workspace_internal.h"

#define MIB (UINT64_C(1) << 20)

/* What cuBLASLt is told it may use; NVIDIA's documentation of cublasSetWorkspace() recommends
 * 32 MiB on Hopper and later, 4 MiB before. */
uint64_t pl_ws_cuda_product(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                            uint64_t cols) {
    (void)attr, (void)rows, (void)cols;
    return t->sm >= 90 ? 32 * MIB : 4 * MIB;
}

const pl_ws_rule pl_ws_cuda_rules[PL_OP_COUNT] = {
    [PL_OP_LINEAR] = pl_ws_cuda_product,
    [PL_OP_LINEAR_DX] = pl_ws_cuda_product,
    [PL_OP_LINEAR_DW] = pl_ws_cuda_product,
    [PL_OP_BIAS_GRAD] = pl_ws_cuda_bias_grad,
    [PL_OP_ATTENTION_BWD] = pl_ws_cuda_attention_bwd,
    [PL_OP_RMSNORM_BWD] = pl_ws_cuda_rmsnorm_bwd,
    [PL_OP_QK_NORM_BWD] = pl_ws_cuda_qk_norm_bwd,
    [PL_OP_CROSS_ENTROPY] = pl_ws_cuda_cross_entropy,
    [PL_OP_SQUARE_SUM] = pl_ws_cuda_square_sum,
};
