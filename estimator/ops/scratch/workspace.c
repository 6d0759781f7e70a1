/* workspace.c - the scratch of every kernel as a table: op kind -> rule. */
#include "estimator/ops/scratch/workspace_internal.h"

#include "estimator/base/checked.h"
#include "estimator/ops/scratch/workspace_gemm.h"

#include <stddef.h>

/* One double per chunk of the gradient, or of each of its blocks. */
uint64_t pl_ws_square_sum(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                          uint64_t cols) {
    uint64_t elements;
    const uint64_t block = attr->block_rows ? pl_u64_min(attr->block_rows, rows) : rows;
    (void)t;
    if (!pl_u64_mul(block, cols, &elements)) elements = UINT64_MAX;
    const uint64_t blocks = block ? pl_u64_div_up(rows, block) : 1;
    return blocks * pl_u64_div_up(elements, PL_SQUARE_SUM_CHUNK) * sizeof(double);
}

static const struct {
    pl_ws_rule cpu, cuda;
} rules[PL_OP_COUNT] = {
#define PL_SCRATCH(KIND, cpu, cuda) [PL_OP_##KIND] = {cpu, cuda},
#include "estimator/ops/op_rows.h"
};

uint64_t pl_op_workspace_bytes(const struct pl_traits *t, enum pl_op_kind kind,
                               const struct pl_attr *attr, uint64_t rows, uint64_t cols) {
    const pl_ws_rule rule = t->backend == PL_BACKEND_CUDA ? rules[kind].cuda : rules[kind].cpu;
    return rule ? rule(t, attr, rows, cols) : 0;
}

static bool is_grouped(enum pl_op_kind kind) {
    return kind == PL_OP_GROUPED_LINEAR || kind == PL_OP_GROUPED_LINEAR_DX ||
           kind == PL_OP_GROUPED_LINEAR_DW;
}

/* One set of blocks per worker. Of a grouped product as if one expert had all rows, since the room
 * grows with them. */
static uint64_t ws_product(const struct pl_traits *t, enum pl_op_kind kind,
                           const struct pl_attr *attr, const struct pl_product_matrix m[3]) {
    const bool dw = kind == PL_OP_LINEAR_DW || kind == PL_OP_GROUPED_LINEAR_DW;
    struct pl_gemm_shape s = {.m = dw && is_grouped(kind) ? attr->expert_rows : m[2].rows,
                              .n = m[2].cols,
                              .k = dw ? m[0].rows : m[0].cols,
                              .trans_a = dw,
                              .trans_b = kind == PL_OP_LINEAR || kind == PL_OP_GROUPED_LINEAR,
                              .a_fp32 = m[0].dtype == PL_DTYPE_F32,
                              .b_fp32 = m[1].dtype == PL_DTYPE_F32,
                              .c_fp32 = m[2].dtype == PL_DTYPE_F32};
    if (is_grouped(kind)) {
        const uint64_t of_experts = dw ? m[2].rows : m[1].rows;
        const uint64_t experts = attr->expert_rows ? of_experts / attr->expert_rows : 0;
        return pl_grouped_list_bytes(experts) + t->threads * pl_gemm_part_bytes(&s);
    }
    const struct pl_gemm_room room = pl_gemm_room(&s);
    return pl_u64_max(t->threads * pl_gemm_worker_bytes(&room), pl_few_rows_bytes(&s));
}

uint64_t pl_product_workspace_bytes(const struct pl_traits *t, enum pl_op_kind kind,
                                    const struct pl_attr *attr,
                                    const struct pl_product_matrix m[3]) {
    if (t->backend != PL_BACKEND_CUDA) return ws_product(t, kind, attr, m);
    return pl_op_workspace_bytes(t, kind, attr, m[0].rows, m[0].cols) + pl_ws_cuda_narrowed(m, 2);
}
