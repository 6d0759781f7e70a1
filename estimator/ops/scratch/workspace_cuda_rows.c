/* workspace_cuda_rows.c - scratch of the CUDA kernels of norms, loss and gradient norm. */
#include "estimator/ops/scratch/workspace_cuda_rows.h"

#include "estimator/base/checked.h"
#include "estimator/ops/scratch/workspace_internal.h"

/* fp32 partial sums [blocks, dim] over `norms` norms. */
static uint64_t norm_partials(uint64_t norms, uint64_t dim) {
    return pl_u64_min(norms, PL_CUDA_NORM_BLOCKS) * dim * sizeof(float);
}

uint64_t pl_ws_cuda_rmsnorm_bwd(const struct pl_traits *t, const struct pl_attr *attr,
                                uint64_t rows, uint64_t cols) {
    (void)t, (void)attr;
    return norm_partials(rows, cols);
}

/* Every head of every row is a norm; heads = cols / D. */
uint64_t pl_ws_cuda_qk_norm_bwd(const struct pl_traits *t, const struct pl_attr *attr,
                                uint64_t rows, uint64_t cols) {
    uint64_t norms;
    (void)t;
    if (!pl_u64_mul(rows, cols / attr->head_dim, &norms)) norms = UINT64_MAX;
    return norm_partials(norms, attr->head_dim);
}

/* The loss of every row as a double. */
uint64_t pl_ws_cuda_cross_entropy(const struct pl_traits *t, const struct pl_attr *attr,
                                  uint64_t rows, uint64_t cols) {
    (void)t, (void)attr, (void)cols;
    return rows * sizeof(double);
}

uint64_t pl_ws_cuda_square_sum(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                               uint64_t cols) {
    uint64_t elements;
    const uint64_t block = attr->block_rows ? pl_u64_min(attr->block_rows, rows) : rows;
    (void)t;
    if (!pl_u64_mul(block, cols, &elements)) elements = UINT64_MAX;
    const uint64_t sums = pl_u64_div_up(elements, PL_CUDA_SQUARE_ELEMENTS);
    const uint64_t blocks = block ? pl_u64_div_up(rows, block) : 1;
    return blocks * pl_u64_min(sums, PL_CUDA_SQUARE_BLOCKS) * sizeof(double);
}
