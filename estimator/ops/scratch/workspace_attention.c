/* workspace_attention.c - scratch of attention, and partial sums of norms, routers and the loss.
 */
#include "estimator/base/checked.h"
#include "estimator/ops/scratch/workspace_attention.h"
#include "estimator/ops/scratch/workspace_internal.h"

#define ADD_PART(name, floats) +(uint64_t)(floats)

/* Every worker owns one set of tiles; they do not depend on the batch. */
uint64_t pl_ws_attention(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                         uint64_t cols) {
    const uint64_t padded = pl_attention_padded(attr->head_dim);
    (void)rows, (void)cols;
    return t->threads * (0 PL_ATTENTION_FWD_PARTS(ADD_PART, padded)) * sizeof(float);
}

/* The same, after delta[N,H]. */
uint64_t pl_ws_attention_bwd(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                             uint64_t cols) {
    const uint64_t padded = pl_attention_padded(attr->head_dim);
    (void)cols;
    return (pl_attention_delta_floats(rows, attr->heads) +
            t->threads * (0 PL_ATTENTION_BWD_PARTS(ADD_PART, padded))) *
           sizeof(float);
}

/* Partial sums of dw[C], one row per chunk of tokens. */
uint64_t pl_ws_rmsnorm_bwd(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                           uint64_t cols) {
    (void)t, (void)attr;
    return pl_u64_div_up(rows, PL_PARTIAL_ROWS) * cols * sizeof(float);
}

uint64_t pl_ws_qk_norm_bwd(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                           uint64_t cols) {
    (void)t, (void)cols;
    return pl_u64_div_up(rows, PL_PARTIAL_ROWS) * attr->head_dim * sizeof(float);
}

/* A sum for each chunk of tokens and head; the same on a GPU. */
uint64_t pl_ws_sink_bwd(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                        uint64_t cols) {
    (void)t, (void)cols;
    return pl_u64_div_up(rows, PL_PARTIAL_ROWS) * attr->heads * sizeof(double);
}

/* Counts and sums [2E] of each chunk of tokens, where there are stats; the same on a GPU. */
uint64_t pl_ws_route(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                     uint64_t cols) {
    (void)t;
    if (attr->aux_coef == 0) return 0;
    return pl_u64_div_up(rows, PL_PARTIAL_ROWS) * 2 * cols * sizeof(double);
}

/* The loss of every row. */
uint64_t pl_ws_cross_entropy(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                             uint64_t cols) {
    (void)t, (void)attr, (void)cols;
    return rows * sizeof(double);
}
