/* workspace_cuda_attention.c - scratch of the CUDA attention kernels. */
#include "estimator/base/checked.h"
#include "estimator/ops/scratch/workspace_internal.h"

/* The backward pass stores for every query and head the log-sum-exp times log2(e) and delta, both
 * fp32, heads first: that is the order in which a tile of queries reads them. The forward kernels
 * need nothing. */
uint64_t pl_ws_cuda_attention_bwd(const struct pl_traits *t, const struct pl_attr *attr,
                                  uint64_t rows, uint64_t cols) {
    uint64_t bytes;
    (void)t, (void)cols;
    if (!pl_u64_mul(rows, attr->heads, &bytes) || !pl_u64_mul(bytes, 2 * sizeof(float), &bytes))
        return UINT64_MAX;
    return bytes;
}
