/* workspace_cuda_products.c - scratch of the CUDA products and of the bias gradient. */
#include "estimator/base/checked.h"
#include "estimator/ops/scratch/workspace_internal.h"

/* cuBLASLt multiplies matrices of one type, and a narrow output wants inputs like it; fp32 inputs
 * of such a product (LoRA matrices and what comes out of them) are rounded first, as PyTorch's
 * autocast does. A product of fp32 alone stays fp32. */
enum pl_dtype pl_ws_cuda_product_type(const struct pl_product_matrix m[3]) {
    uint32_t i = 0;
    while (i < 2 && m[i].dtype == PL_DTYPE_F32)
        i++;
    return m[i].dtype;
}

bool pl_ws_cuda_narrows(const struct pl_product_matrix m[3], uint32_t i) {
    return pl_ws_cuda_product_type(m) != PL_DTYPE_F32 && m[i].dtype == PL_DTYPE_F32;
}

/* A copy is half the size of a tensor whose bytes were counted with checks: no overflow here. */
uint64_t pl_ws_cuda_narrowed(const struct pl_product_matrix m[3], uint32_t n) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        if (pl_ws_cuda_narrows(m, i))
            bytes += pl_u64_div_up(m[i].rows * m[i].cols * 2, PL_WS_CUDA_ALIGN) * PL_WS_CUDA_ALIGN;
    return bytes;
}

/* Partial sums of db[O], one row per chunk of tokens. */
uint64_t pl_ws_cuda_bias_grad(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                              uint64_t cols) {
    (void)t, (void)attr;
    return pl_u64_div_up(rows, PL_CUDA_BIAS_ROWS) * cols * sizeof(float);
}
