#include "estimator/ops/scratch/workspace_cuda_attention.h"

#include "estimator/base/checked.h"
#include "estimator/ops/scratch/workspace_internal.h"

uint32_t pl_attention_part_heads(uint32_t group, uint32_t parts) {
    return parts ? (uint32_t)pl_u64_div_up(group, parts) : group;
}

uint32_t pl_attention_key_parts(const struct pl_traits *t, const struct pl_attr *attr,
                                uint64_t tokens) {
    const uint32_t group = attr->kv_heads ? attr->heads / attr->kv_heads : 0;
    if (t->backend != PL_BACKEND_CUDA || !group) return 0;
    const uint64_t tiles = pl_u64_div_up(tokens, PL_CUDA_KEY_TILE);
    const uint64_t blocks = pl_u64_max(tiles * attr->kv_heads, 1);
    const uint64_t wanted = pl_u64_min(pl_u64_div_up(PL_CUDA_KEY_BLOCKS, blocks), group);
    const uint32_t heads = pl_attention_part_heads(group, (uint32_t)wanted);
    return heads < group ? (uint32_t)pl_u64_div_up(group, heads) : 0;
}

/* The stats of a query and head are the log-sum-exp times log2(e) and delta, both fp32. Heads come
 * first: that is the order in which a tile of queries reads them. */
static uint64_t stats_bytes(uint64_t tokens, uint64_t heads) {
    uint64_t bytes;
    if (!pl_u64_mul(tokens, heads, &bytes) || !pl_u64_mul(bytes, 2 * sizeof(float), &bytes))
        return UINT64_MAX;
    return bytes;
}

uint64_t pl_attention_sums_at(uint64_t tokens, uint64_t heads) {
    uint64_t at;
    return pl_u64_align(stats_bytes(tokens, heads), PL_WS_CUDA_ALIGN, &at) ? at : UINT64_MAX;
}

/* The forward kernels need nothing. */
uint64_t pl_ws_cuda_attention_bwd(const struct pl_traits *t, const struct pl_attr *attr,
                                  uint64_t rows, uint64_t cols) {
    const uint64_t kv_cols = (uint64_t)attr->kv_heads * attr->head_dim;
    uint64_t bytes;
    (void)t, (void)cols;
    if (!attr->key_parts) return stats_bytes(rows, attr->heads);
    if (!pl_u64_mul(rows, kv_cols, &bytes) ||
        !pl_u64_mul(bytes, 2 * sizeof(float) * attr->key_parts, &bytes) ||
        !pl_u64_add(bytes, pl_attention_sums_at(rows, attr->heads), &bytes))
        return UINT64_MAX;
    return bytes;
}
