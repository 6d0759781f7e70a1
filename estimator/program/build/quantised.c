/* quantised.c - base weights in 4 bits: their tensors, and the ops that make a matrix of them.
 *
 * Every module keeps codes and scales of its own, since blocks run over the module's flattened
 * weight as the files have it. A product needs the fused matrix in a type it can multiply: one
 * DEQUANT4 a module writes it into a transient tensor right before the product reads it, so the
 * packer gives all of them the same place. Source: QLoRA, arXiv 2305.14314, section 3. */
#include "estimator/program/build/build.h"

#include "estimator/base/checked.h"

/* A head that is the embedding is held in the codes of the embedding. */
static enum pl_slot holder_of(const struct pl_builder *b, enum pl_slot slot) {
    const bool shared = slot == PL_SLOT_HEAD && b->m->tied && !pl_shape_unties(b->s, b->m);
    return shared ? PL_SLOT_EMBED : slot;
}

/* Decoder linears, and a head and an embedding where asked for; norms and biases keep 16 bits or
 * more. */
bool pl_build_is_quantised(const struct pl_builder *b, enum pl_slot slot) {
    struct pl_slot_shape shape;
    slot = holder_of(b, slot);
    pl_model_slot(b->m, slot, &shape);
    if (!b->quant || !shape.present || shape.vector) return false;
    return shape.per_layer ||
           (slot == PL_SLOT_HEAD ? b->s->quantize_head : b->s->quantize_embedding);
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
    if (r->per_layer) b->largest_module = pl_u64_max(b->largest_module, n);
    q->row0[p] = (uint32_t)r->row0;
    q->rows[p] = (uint32_t)r->rows;
    q->codes[p] = add_tensor(b, "codes", PL_ROLE_CODES, r->slot, layer, row, PL_NONE,
                             pl_quant_codes_bytes(n), PL_DTYPE_U8);
    q->absmax8[p] = PL_NONE;
    scales = pl_quant_blocks(n);
    if (b->s->double_quant) {
        q->absmax8[p] = add_tensor(b, "absmax8", PL_ROLE_ABSMAX8, r->slot, layer, row, q->codes[p],
                                   scales, PL_DTYPE_U8);
        scales = pl_quant_nests(n) + 1; /* the offset comes after them */
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

/* Elements [at, at + n) of module p: codes, absmax, absmax8 and offset, as DEQUANT4 has them. `at`
 * is where a nest begins. */
static void codes_of(const struct pl_builder *b, const struct pl_quant_slot *q, uint32_t p,
                     uint64_t at, uint64_t n, struct pl_operand in[PL_DEQUANT4_N_IN]) {
    struct pl_val codes = pl_build_now(b, q->codes[p]), absmax = pl_build_now(b, q->absmax[p]);
    in[PL_DEQUANT4_CODES] = pl_arg_rows(codes, at / 2, pl_quant_codes_bytes(n));
    in[PL_DEQUANT4_ABSMAX] = pl_arg_rows(absmax, at / PL_QUANT_BLOCK, pl_quant_blocks(n));
    in[PL_DEQUANT4_ABSMAX8] = in[PL_DEQUANT4_OFFSET] = pl_arg_none;
    if (q->absmax8[p] == PL_NONE) return;
    const uint64_t offset = b->p->tensors[absmax.id].dims[0] - 1;
    in[PL_DEQUANT4_ABSMAX] = pl_arg_rows(absmax, at / PL_QUANT_GROUP, pl_quant_nests(n));
    in[PL_DEQUANT4_ABSMAX8] =
        pl_arg_rows(pl_build_now(b, q->absmax8[p]), at / PL_QUANT_BLOCK, pl_quant_blocks(n));
    in[PL_DEQUANT4_OFFSET] = pl_arg_rows(absmax, offset, 1);
}

/* Of the current layer, or of a slot that the model has once. */
static const struct pl_quant_slot *codes_of_slot(const struct pl_builder *b, enum pl_slot slot) {
    return &b->quant[pl_build_slot_index(b->layer, slot)];
}

/* `rows` rows of module p, from row `first` on, into the window `w`. Windows of part of a module
 * begin where a nest begins (pl_build_head_piece). */
static void dequantise(struct pl_builder *b, const struct pl_quant_slot *q, uint32_t p,
                       uint64_t first, uint64_t rows, struct pl_operand w) {
    if (b->err != PL_ERR_OK) return;
    const uint64_t cols = b->p->tensors[w.id].dims[1];
    struct pl_operand in[PL_DEQUANT4_N_IN], out[] = {w};
    codes_of(b, q, p, first * cols, rows * cols, in);
    PL_EMIT(b, DEQUANT4, (struct pl_attr){.quant = b->s->quant}, in, out);
}

void pl_build_look_up_codes(struct pl_builder *b, uint32_t x, float scale) {
    if (b->err != PL_ERR_OK) return;
    struct pl_operand in[PL_EMBED4_N_IN] = {pl_arg(b->in.ids)},
                      out[] = {pl_arg(pl_build_now(b, x))};
    codes_of(b, codes_of_slot(b, PL_SLOT_EMBED), 0, 0, b->m->vocab * b->m->hidden,
             &in[PL_EMBED4_CODES]);
    PL_EMIT(b, EMBED4, ((struct pl_attr){.quant = b->s->quant, .scale = scale}), in, out);
}

static uint32_t add_scratch(struct pl_builder *b, uint64_t rows, uint64_t cols) {
    return pl_build_step(b, "dequantised", PL_ROWS_FIXED, rows, cols, b->s->compute_dtype,
                         PL_CATEGORY_WORKSPACE);
}

/* gate and up together are the largest matrix by far, and their copy the peak of many a step. */
uint32_t pl_build_n_pieces(const struct pl_builder *b, enum pl_slot slot) {
    struct pl_slot_shape shape;
    if (!pl_build_is_quantised(b, slot)) return 1;
    pl_model_slot(b->m, slot, &shape);
    return shape.rows * shape.cols > b->largest_module ? codes_of_slot(b, slot)->n_parts : 1;
}

static struct pl_val unpack(struct pl_builder *b, const struct pl_quant_slot *q, uint32_t first,
                            uint32_t end, uint64_t rows, uint64_t cols) {
    const uint32_t w = add_scratch(b, rows, cols);
    for (uint32_t p = first; p < end; p++)
        dequantise(b, q, p, 0, q->rows[p],
                   pl_arg_rows(pl_build_now(b, w), q->row0[p] - q->row0[first], q->rows[p]));
    return pl_build_now(b, w);
}

struct pl_piece pl_build_piece(struct pl_builder *b, enum pl_slot slot, uint32_t i) {
    struct pl_slot_shape shape;
    pl_model_slot(b->m, slot, &shape);
    struct pl_piece piece = {.rows = shape.rows, .whole = true};
    if (!pl_build_is_quantised(b, slot)) {
        piece.w = pl_build_now(b, pl_build_weight(b, slot));
        return piece;
    }
    const struct pl_quant_slot *q = codes_of_slot(b, slot);
    if (pl_build_n_pieces(b, slot) == 1) {
        piece.w = unpack(b, q, 0, q->n_parts, shape.rows, shape.cols);
        return piece;
    }
    piece = (struct pl_piece){.row0 = q->row0[i], .rows = q->rows[i]};
    piece.w = unpack(b, q, i, i + 1, piece.rows, shape.cols);
    return piece;
}

/* The scratch of a piece is no larger than that of a layer's modules, so no vocabulary needs
 * scratch of its own, whatever its size. */
uint64_t pl_build_head_piece(const struct pl_builder *b) {
    const uint64_t cols = b->m->hidden, lowest_bit = cols & -cols;
    const uint64_t unit = PL_QUANT_GROUP / pl_u64_min(lowest_bit, PL_QUANT_GROUP);
    if (!pl_build_is_quantised(b, PL_SLOT_HEAD)) return b->m->vocab;
    return pl_u64_max(b->largest_module / cols / unit, 1) * unit;
}

struct pl_val pl_build_head_matrix(struct pl_builder *b, uint64_t row0, uint64_t rows) {
    if (!pl_build_is_quantised(b, PL_SLOT_HEAD))
        return pl_build_now(b, pl_build_weight(b, PL_SLOT_HEAD));
    uint32_t w = add_scratch(b, rows, b->m->hidden);
    dequantise(b, codes_of_slot(b, holder_of(b, PL_SLOT_HEAD)), 0, row0, rows,
               pl_arg(pl_build_now(b, w)));
    return pl_build_now(b, w);
}
