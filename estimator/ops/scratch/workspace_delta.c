/* workspace_delta.c - scratch of linear attention. */
#include "estimator/base/checked.h"
#include "estimator/ops/scratch/workspace_attention.h"
#include "estimator/ops/scratch/workspace_internal.h"

/* Partial sums of dw [taps,CH], one for each chunk of tokens; the same on a GPU. */
uint64_t pl_ws_conv_silu_bwd(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                             uint64_t cols) {
    (void)t;
    return pl_u64_div_up(rows, PL_PARTIAL_ROWS) * cols * attr->taps * sizeof(float);
}
