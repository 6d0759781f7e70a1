/* workspace_delta.c - scratch of linear attention. */
#include "estimator/ops/scratch/workspace_delta.h"

#include "estimator/base/checked.h"
#include "estimator/ops/scratch/workspace_attention.h"
#include "estimator/ops/scratch/workspace_internal.h"

/* Partial sums of dw [taps,CH], one for each chunk of tokens; the same on a GPU. */
uint64_t pl_ws_conv_silu_bwd(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                             uint64_t cols) {
    (void)t;
    return pl_u64_div_up(rows, PL_PARTIAL_ROWS) * cols * attr->taps * sizeof(float);
}

/* Every worker has one walk. */
uint64_t pl_ws_gated_delta(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                           uint64_t cols) {
    (void)rows, (void)cols;
    return t->threads * pl_delta_walk_floats(attr->key_dim) * sizeof(float);
}

#define ADD_PART(name, floats) +PL_DELTA_ROOM(floats)

static uint64_t group_of(const struct pl_attr *attr) {
    return attr->kv_heads ? attr->heads / attr->kv_heads : 0;
}

/* The numbers that tokens leave, then the parts of every worker. */
uint64_t pl_ws_gated_delta_bwd(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                               uint64_t cols) {
    const uint64_t dk = attr->key_dim, dim = attr->head_dim;
    const uint64_t parts = 0 PL_DELTA_BWD_PARTS(ADD_PART, dk, dim, group_of(attr));
    (void)cols;
    return (pl_delta_token_floats(rows, attr->heads) + t->threads * parts) * sizeof(float);
}

/* The same, and the parts of every block. */
uint64_t pl_ws_cuda_gated_delta_bwd(const struct pl_traits *t, const struct pl_attr *attr,
                                    uint64_t rows, uint64_t cols) {
    const uint64_t dk = attr->key_dim, dim = attr->head_dim;
    const uint64_t parts = 0 PL_CUDA_DELTA_PARTS(ADD_PART, dk, dim, group_of(attr));
    const uint64_t blocks = (uint64_t)attr->kv_heads * PL_CUDA_DELTA_BLOCKS;
    (void)t, (void)cols;
    return (pl_delta_token_floats(rows, attr->heads) + blocks * parts) * sizeof(float);
}
