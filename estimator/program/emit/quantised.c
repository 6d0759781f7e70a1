/* quantised.c - base weights in 4 bits: their tensors, and the ops that make a matrix of them.
 *
 * Every module keeps codes and scales of its own, since blocks run over the module's flattened
 * weight as the files have it. A product needs the fused matrix in a type it can multiply: one
 * DEQUANT4 a module writes it into a transient tensor right before the product reads it, so the
 * packer gives all of them the same place. Source: QLoRA, arXiv 2305.14314, section 3.
 *
 * Where unpack_bytes says how large such a tensor may be, larger matrices come in panels: forward
 * in panels of rows, each of which makes columns of y; backward in panels of columns, each of which
 * makes columns of dx. So every element of either is one sum, as it is of the whole matrix.
 * The matrices of experts are unpacked some experts at a time, in either direction: a row of y, or
 * of dx, is of one expert.
 *
 * With keeps_unpacked a copy that the recomputation of a layer has made is there for the product of
 * its gradient as well. That takes memory for the copies of a layer, and changes no bit. */
#include "estimator/program/emit/brief.h"

#include "estimator/base/checked.h"

/* A head that is the embedding is held in the codes of the embedding. */
static enum pl_slot holder_of(const struct pl_builder *b, enum pl_slot slot) {
    const bool shared = slot == PL_SLOT_HEAD && b->m->tied && !pl_shape_unties(b->s, b->m);
    return shared ? PL_SLOT_EMBED : slot;
}

/* Decoder linears, and a head and an embedding where asked for; routers, convolutions, norms and
 * biases keep 16 bits or more. Codes that cannot be made here are those of experts. */
bool pl_build_is_quantised(const struct pl_builder *b, uint64_t layer, enum pl_slot slot) {
    struct pl_slot_shape shape;
    slot = holder_of(b, slot);
    pl_model_slot(b->m, layer, slot, &shape);
    if (!b->quant || !shape.present || shape.vector || slot == PL_SLOT_ROUTER ||
        slot == PL_SLOT_DELTA_CONV)
        return false;
    if (!pl_quant_has_absmax(b->s->quant)) return shape.experts > 0;
    return shape.per_layer || (slot == PL_SLOT_HEAD && b->s->quantize_head) ||
           (slot == PL_SLOT_EMBED && b->s->quantize_embedding);
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

/* Every expert has a matrix of its own: their codes lie one after another, and so do their scales.
 */
static void add_module(struct pl_builder *b, struct pl_quant_slot *q, uint64_t layer, uint32_t row,
                       const struct pl_param_row *r) {
    const uint64_t matrices = r->experts ? r->experts : 1;
    const bool nested = b->s->double_quant;
    uint64_t n;
    uint32_t p = q->n_parts++;
    if (!pl_u64_mul(r->rows, r->cols, &n)) n = 0; /* pl_model_read has checked the product (M2) */
    if (r->per_layer) b->largest_module = pl_u64_max(b->largest_module, n);
    q->row0[p] = (uint32_t)r->row0;
    q->rows[p] = (uint32_t)r->rows;
    q->codes[p] = add_tensor(b, "codes", PL_ROLE_CODES, r->slot, layer, row, PL_NONE,
                             matrices * pl_quant_codes_bytes(n), PL_DTYPE_U8);
    q->absmax8[p] = PL_NONE;
    if (nested)
        q->absmax8[p] = add_tensor(b, "absmax8", PL_ROLE_ABSMAX8, r->slot, layer, row, q->codes[p],
                                   matrices * pl_quant_scales(b->s->quant, n), PL_DTYPE_U8);
    q->absmax[p] = add_tensor(b, "absmax", PL_ROLE_ABSMAX, r->slot, layer, row, q->codes[p],
                              matrices * pl_quant_count_absmax(b->s->quant, n, nested),
                              pl_quant_scale_type(b->s->quant));
}

void pl_build_quantised_weight(struct pl_builder *b, enum pl_slot slot, uint64_t layer) {
    struct pl_param_row rows[PL_MODEL_SLOT_ROWS];
    uint32_t index[PL_MODEL_SLOT_ROWS];
    const uint32_t n_rows = pl_model_slot_rows(b->m, layer, slot, rows, index);
    struct pl_quant_slot *q = &b->quant[layer * PL_SLOT_COUNT + slot];
    for (uint32_t r = 0; r < n_rows; r++)
        if (!rows[r].module_only) add_module(b, q, layer, index[r], &rows[r]);
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

/* Returns the codes of a slot of the current layer, or of a slot that the model has once. */
static const struct pl_quant_slot *codes_of_slot(const struct pl_builder *b, enum pl_slot slot) {
    return &b->quant[pl_build_slot_index(b->layer, slot)];
}

/* The rows [first, first + rows) of module p of a piece, in `cols` columns altogether, into the
 * window `w`. A GPU unpacks the modules of a piece as one. */
static void dequantise(struct pl_builder *b, const struct pl_quant_slot *q, uint32_t p,
                       uint64_t first, uint64_t rows, const struct pl_piece *piece, uint64_t cols,
                       struct pl_operand w) {
    if (b->err != PL_ERR_OK) return;
    const uint64_t begin = first * cols, over = begin % PL_QUANT_GROUP;
    struct pl_operand in[PL_DEQUANT4_N_IN], out[] = {w};
    codes_of(b, q, p, begin - over, over + rows * cols, in);
    const struct pl_attr attr = {.quant = b->s->quant,
                                 .first_element = over + piece->col0,
                                 .columns = piece->cols < cols ? (uint32_t)cols : 0,
                                 .joins = b->p->traits.backend == PL_BACKEND_CUDA && w.row0 > 0};
    PL_EMIT(b, DEQUANT4, attr, in, out);
}

/* The matrices of module p of the experts of a piece into their rows of tensor `id`. The offset of
 * each comes after its nests. */
static void dequantise_experts(struct pl_builder *b, const struct pl_quant_slot *q, uint32_t p,
                               const struct pl_piece *piece, const struct pl_slot_shape *shape,
                               uint32_t id) {
    if (b->err != PL_ERR_OK) return;
    const uint64_t own = shape->rows / shape->experts, elements = q->rows[p] * shape->cols;
    const uint64_t first = piece->row0 / own, n = piece->rows / own;
    const uint64_t codes = pl_quant_codes_bytes(elements), blocks = pl_quant_blocks(elements);
    const bool nested = q->absmax8[p] != PL_NONE;
    const uint64_t scales = pl_quant_count_absmax(b->s->quant, elements, nested);
    struct pl_operand in[PL_DEQUANT4_N_IN] = {
        [PL_DEQUANT4_CODES] = pl_arg_rows(pl_build_now(b, q->codes[p]), first * codes, n * codes),
        [PL_DEQUANT4_ABSMAX] =
            pl_arg_rows(pl_build_now(b, q->absmax[p]), first * scales, n * scales),
        [PL_DEQUANT4_ABSMAX8] = pl_arg_none,
        [PL_DEQUANT4_OFFSET] = pl_arg_none};
    struct pl_operand out[] = {
        pl_arg_rows(pl_build_now(b, id), q->row0[p], (n - 1) * own + q->rows[p])};
    if (nested)
        in[PL_DEQUANT4_ABSMAX8] =
            pl_arg_rows(pl_build_now(b, q->absmax8[p]), first * blocks, n * blocks);
    const struct pl_attr attr = {.quant = b->s->quant,
                                 .matrices = (uint32_t)n,
                                 .matrix_elements = elements,
                                 .matrix_stride = own};
    PL_EMIT(b, DEQUANT4, attr, in, out);
}

void pl_build_look_up_codes(struct pl_builder *b, uint32_t x, float scale) {
    if (b->err != PL_ERR_OK) return;
    struct pl_operand in[PL_EMBED4_N_IN] = {pl_arg(b->in.ids)},
                      out[] = {pl_arg(pl_build_now(b, x))};
    codes_of(b, codes_of_slot(b, PL_SLOT_EMBED), 0, 0, b->m->vocab * b->m->hidden,
             &in[PL_EMBED4_CODES]);
    PL_EMIT(b, EMBED4, ((struct pl_attr){.quant = b->s->quant, .scale = scale}), in, out);
}

/* --- pieces ---------------------------------------------------------------------------------- */

static uint64_t head_piece(const struct pl_builder *b) {
    const uint64_t cols = b->m->hidden, lowest_bit = cols & -cols;
    const uint64_t unit = PL_QUANT_GROUP / pl_u64_min(lowest_bit, PL_QUANT_GROUP);
    return pl_u64_max(b->largest_module / cols / unit, 1) * unit;
}

/* Rows from `row0` on, of which a sum in the backward pass is one sum. gate and up together are the
 * largest matrix by far, and come one after the other. The head comes in as many rows as the
 * largest module of a layer has room for, so no vocabulary needs a copy of its own, whatever its
 * size. */
static uint64_t rows_at_once(const struct pl_builder *b, enum pl_slot slot, uint64_t row0,
                             const struct pl_slot_shape *shape) {
    const struct pl_quant_slot *q = codes_of_slot(b, slot);
    if (!shape->per_layer) return pl_u64_min(head_piece(b), shape->rows - row0);
    if (shape->rows * shape->cols <= b->largest_module) return shape->rows;
    uint32_t p = 0;
    while (q->row0[p] < row0)
        p++;
    return q->rows[p];
}

/* Panels are cut at multiples of this many rows, which keeps the columns of y aligned, or of a
 * block of columns. */
#define PANEL_ROWS 16

static uint64_t unit_of(enum pl_panel_axis axis) {
    return axis == PL_PANEL_ROWS ? PANEL_ROWS : PL_QUANT_BLOCK;
}

/* Returns the panels of `length` rows or columns that have `across` elements each. Rows that begin
 * inside a block are not split. */
static uint64_t panels_of(const struct pl_builder *b, enum pl_panel_axis axis, uint64_t length,
                          uint64_t across, uint64_t cols) {
    const uint64_t unit = unit_of(axis), units = length / unit;
    const uint64_t room = b->s->unpack_bytes / pl_dtype_bytes(b->s->compute_dtype);
    if (!b->s->unpack_bytes || length * across <= room || !units || cols % PL_QUANT_BLOCK) return 1;
    const uint64_t most = room / (unit * across), over = length % unit != 0;
    const uint64_t n = pl_u64_div_up(units, most > over ? most - over : 1);
    return pl_u64_min(n, pl_u64_min(units, PL_PANELS_MAX));
}

/* Rows or columns of all panels but the last, which has the rest. */
static uint64_t panel_size(enum pl_panel_axis axis, uint64_t length, uint64_t n) {
    const uint64_t unit = unit_of(axis);
    return n > 1 ? pl_u64_div_up(length / unit, n) * unit : length;
}

/* Experts are unpacked in about this many pieces, unless a piece would be smaller than the largest
 * module of a layer. */
#define EXPERT_PIECES 16

static uint64_t experts_at_once(const struct pl_builder *b, const struct pl_slot_shape *shape) {
    const uint64_t all = shape->experts, own = shape->rows / all * shape->cols;
    const uint64_t room = b->s->unpack_bytes / pl_dtype_bytes(b->s->compute_dtype);
    const uint64_t least = pl_u64_div_up(all, PL_PANELS_MAX);
    uint64_t n = pl_u64_max(pl_u64_div_up(all, EXPERT_PIECES), b->largest_module / own);
    if (b->s->unpack_bytes) n = pl_u64_min(n, room / own);
    return pl_u64_min(pl_u64_max(n, least), all);
}

static void set_panel(struct pl_piece *p, enum pl_panel_axis axis,
                      const struct pl_slot_shape *shape) {
    const uint64_t length = axis == PL_PANEL_ROWS ? p->together : shape->cols;
    const uint64_t at = p->panel * p->size;
    const uint64_t n = p->panel + 1 == p->panels ? length - at : p->size;
    p->row0 = axis == PL_PANEL_ROWS ? p->first + at : p->first;
    p->rows = axis == PL_PANEL_ROWS ? n : p->together;
    p->col0 = axis == PL_PANEL_ROWS ? 0 : at;
    p->cols = axis == PL_PANEL_ROWS ? shape->cols : n;
}

/* Panels that a brief program leaves out after this one. Panels of columns are alike, the last one
 * excepted, and so are those of experts, and panels of rows that are of the same module. */
static uint64_t panels_left_out(const struct pl_builder *b, const struct pl_quant_slot *q,
                                enum pl_panel_axis axis, const struct pl_slot_shape *shape,
                                const struct pl_piece *p) {
    if (axis == PL_PANEL_COLS || shape->experts)
        return pl_brief_left_out(b->p, p->panel, p->panels, 1);
    uint32_t module = 0;
    while (q->row0[module] + q->rows[module] <= p->row0)
        module++;
    const uint64_t above = pl_u64_max(q->row0[module], p->first) - p->first;
    const uint64_t from = pl_u64_div_up(above, p->size);
    const uint64_t end =
        pl_u64_min((q->row0[module] + q->rows[module] - p->first) / p->size, p->panels);
    const bool inside = from <= p->panel && p->panel < end;
    return inside ? pl_brief_left_out(b->p, p->panel - from, end - from, 1) : 0;
}

static struct pl_val unpack_piece(struct pl_builder *b, enum pl_slot slot,
                                  const struct pl_piece *piece, const struct pl_slot_shape *shape) {
    const struct pl_quant_slot *q = codes_of_slot(b, holder_of(b, slot));
    const uint32_t id = pl_build_step(b, "dequantised", PL_ROWS_FIXED, piece->rows, piece->cols,
                                      b->s->compute_dtype, PL_CATEGORY_WORKSPACE);
    for (uint32_t p = 0; p < q->n_parts && b->err == PL_ERR_OK; p++) {
        if (shape->experts) {
            dequantise_experts(b, q, p, piece, shape, id);
            continue;
        }
        const uint64_t first = pl_u64_max(q->row0[p], piece->row0);
        const uint64_t end = pl_u64_min(q->row0[p] + q->rows[p], piece->row0 + piece->rows);
        if (first >= end) continue;
        struct pl_operand w = pl_arg(pl_build_now(b, id));
        if (shape->per_layer)
            w = pl_arg_rows(pl_build_now(b, id), first - piece->row0, end - first);
        dequantise(b, q, p, first - q->row0[p], end - first, piece, shape->cols, w);
    }
    return pl_build_now(b, id);
}

/* Panels are never kept: those of rows are not those of columns, and they are there to save
 * memory. */
static struct pl_val unpack(struct pl_builder *b, enum pl_slot slot, const struct pl_piece *piece,
                            const struct pl_slot_shape *shape) {
    const bool may_keep = b->s->keeps_unpacked && b->backward && shape->per_layer;
    if (!may_keep || piece->panels > 1) return unpack_piece(b, slot, piece, shape);
    for (uint32_t i = 0; i < b->n_kept; i++)
        if (b->kept[i].slot == slot && b->kept[i].row0 == piece->row0) return b->kept[i].w;
    const struct pl_val w = unpack_piece(b, slot, piece, shape);
    if (b->recompute && b->n_kept < PL_MAX_KEPT)
        b->kept[b->n_kept++] = (struct pl_kept_copy){slot, piece->row0, w};
    return w;
}

/* All experts, some in each panel. */
static struct pl_piece split_experts(const struct pl_builder *b,
                                     const struct pl_slot_shape *shape) {
    const uint64_t n = experts_at_once(b, shape);
    return (struct pl_piece){.together = shape->rows,
                             .size = n * (shape->rows / shape->experts),
                             .panels = pl_u64_div_up(shape->experts, n)};
}

/* The rows that come next are cut into panels; false where there are no more. */
static bool next_rows(struct pl_builder *b, enum pl_slot slot, enum pl_panel_axis axis,
                      const struct pl_slot_shape *shape, struct pl_piece *p) {
    const bool codes = pl_build_is_quantised(b, b->layer, slot);
    const uint64_t row = p->first + p->together;
    if (row >= shape->rows) return false;
    const uint64_t rows = codes ? rows_at_once(b, slot, row, shape) : shape->rows;
    const uint64_t length = axis == PL_PANEL_ROWS ? rows : shape->cols;
    const uint64_t across = axis == PL_PANEL_ROWS ? shape->cols : rows;
    const uint64_t n = codes ? panels_of(b, axis, length, across, shape->cols) : 1;
    const uint64_t size = panel_size(axis, length, n);
    *p = (struct pl_piece){
        .first = row,
        .together = rows,
        .size = size,
        .panels = n > 1 ? pl_u64_div_up(length / unit_of(axis) * unit_of(axis), size) : 1};
    if (codes && shape->experts) *p = split_experts(b, shape);
    b->panels = pl_brief_number(b);
    return true;
}

bool pl_build_next_piece(struct pl_builder *b, enum pl_slot slot, enum pl_panel_axis axis,
                         struct pl_piece *p) {
    struct pl_slot_shape shape;
    if (b->err != PL_ERR_OK) return false;
    pl_model_slot(b->m, b->layer, slot, &shape);
    if (shape.experts) axis = PL_PANEL_ROWS;
    const bool codes = pl_build_is_quantised(b, b->layer, slot);
    p->panel += 1 + b->panels_left_out;
    b->panels_left_out = 0;
    b->panel = 0;
    if (p->panel >= p->panels && !next_rows(b, slot, axis, &shape, p)) return false;
    set_panel(p, axis, &shape);
    if (p->panels > 1) {
        b->panel = pl_brief_number(b);
        const struct pl_quant_slot *q = codes_of_slot(b, holder_of(b, slot));
        b->panels_left_out = (uint16_t)panels_left_out(b, q, axis, &shape, p);
        b->p->shortened |= b->panels_left_out > 0;
    }
    p->w = codes ? unpack(b, slot, p, &shape) : pl_build_now(b, pl_build_weight(b, slot));
    return b->err == PL_ERR_OK;
}
