/* quantised.c - base weights in 4 bits: their tensors, and the ops that make a matrix of them.
 *
 * Every module keeps codes and scales of its own, since blocks run over the module's flattened
 * weight as the files have it. A product needs the fused matrix in a type it can multiply: one
 * DEQUANT4 a module writes it into a transient tensor right before the product reads it, so the
 * packer gives all of them the same place. Source: QLoRA, arXiv 2305.14314, section 3. */
#include "estimator/program/build.h"

#include "estimator/base/checked.h"

/* Decoder linears; embedding, head, norms and biases keep 16 bits or more. */
bool pl_build_is_quantised(const struct pl_builder *b, enum pl_slot slot) {
    struct pl_slot_shape shape;
    pl_model_slot(b->m, slot, &shape);
    return b->quant && shape.per_layer && !shape.vector;
}

static uint32_t add_tensor(struct pl_builder *b, const char *name, enum pl_role role,
                           enum pl_slot slot, uint64_t layer, uint32_t row, uint32_t of, uint64_t n,
                           enum pl_dtype dtype) {
    return pl_build_tensor(b, (struct pl_tensor){.name = name,
                                                 .layer = (uint32_t)layer,
                                                 .row = row,
                                                 .of = of,
                                                 .dims = {n, 1, 1},
                                                 .dtype = dtype,
                                                 .category = PL_CATEGORY_WEIGHTS,
                                                 .scope = PL_SCOPE_JOB,
                                                 .role = role,
                                                 .slot = slot});
}

static void add_module(struct pl_builder *b, struct pl_quant_slot *q, uint64_t layer, uint32_t row,
                       const struct pl_param_row *r) {
    uint64_t n, scales;
    uint32_t p = q->n_parts++;
    if (!pl_u64_mul(r->rows, r->cols, &n)) n = 0; /* pl_model_read has checked the product (M2) */
    q->row0[p] = (uint32_t)r->row0;
    q->rows[p] = (uint32_t)r->rows;
    q->codes[p] = add_tensor(b, "codes", PL_ROLE_CODES, r->slot, layer, row, PL_NONE,
                             pl_quant_codes_bytes(n), PL_DTYPE_U8);
    q->absmax8[p] = PL_NONE;
    scales = pl_quant_blocks(n);
    if (b->s->double_quant) {
        q->absmax8[p] = add_tensor(b, "absmax8", PL_ROLE_ABSMAX8, r->slot, layer, row, q->codes[p],
                                   scales, PL_DTYPE_U8);
        scales = pl_quant_nests(n) + 1; /* the offset stands behind them */
    }
    q->absmax[p] = add_tensor(b, "absmax", PL_ROLE_ABSMAX, r->slot, layer, row, q->codes[p], scales,
                              PL_DTYPE_F32);
}

void pl_build_quantised_weight(struct pl_builder *b, enum pl_slot slot, uint64_t layer) {
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    uint32_t n_rows = pl_model_rows(b->m, rows);
    struct pl_quant_slot *q = &b->quant[layer * PL_SLOT_COUNT + slot];
    for (uint32_t r = 0; r < n_rows; r++)
        if (rows[r].slot == slot && q->n_parts < PL_MAX_PARTS) add_module(b, q, layer, r, &rows[r]);
}

static void dequantise(struct pl_builder *b, const struct pl_quant_slot *q, uint32_t p,
                       uint32_t w) {
    if (b->err != PL_ERR_OK) return;
    struct pl_operand absmax8 =
        q->absmax8[p] == PL_NONE ? pl_arg_none : pl_arg(pl_build_now(b, q->absmax8[p]));
    struct pl_operand in[] = {pl_arg(pl_build_now(b, q->codes[p])),
                              pl_arg(pl_build_now(b, q->absmax[p])), absmax8};
    struct pl_operand out[] = {pl_arg_rows(pl_build_now(b, w), q->row0[p], q->rows[p])};
    PL_OP(b, PL_OP_DEQUANT4, (struct pl_attr){.quant = b->s->quant}, in, out);
}

struct pl_val pl_build_matrix(struct pl_builder *b, enum pl_slot slot) {
    if (b->layer == PL_NONE || !pl_build_is_quantised(b, slot))
        return pl_build_now(b, pl_build_weight(b, slot));
    const struct pl_quant_slot *q = &b->quant[(size_t)b->layer * PL_SLOT_COUNT + slot];
    struct pl_slot_shape shape;
    pl_model_slot(b->m, slot, &shape);
    uint32_t w = pl_build_step(b, "dequantised", PL_ROWS_FIXED, shape.rows, shape.cols,
                               b->s->compute_dtype, PL_CATEGORY_WORKSPACE);
    for (uint32_t p = 0; p < q->n_parts; p++)
        dequantise(b, q, p, w);
    return pl_build_now(b, w);
}
