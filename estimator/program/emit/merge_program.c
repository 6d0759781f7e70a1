/* merge_program.c - the programs that put an adapter into its base, or into a file of its own.
 *
 * Nothing lives for a whole job here: base and adapter stay in their files, and every matrix passes
 * through the same few buffers, some rows at a time. One group of ops gives the buffers of a kind
 * of matrix their places and holds its product; the runtime runs the group once per stretch.
 *   W' = W + s B A (Hu et al., LoRA, arXiv 2106.09685, section 4.1), in fp32. */
#include "estimator/program/emit/merge_program.h"

#include "estimator/base/checked.h"
#include "estimator/program/emit/emit.h"

/* A kind of matrix: a row of the files and, where its columns differ between layers, the first
 * layer with as many. PL_NONE is the layer of the others, and the row of what only passes. */
struct kind {
    uint32_t row, layer;
};

static uint32_t buffer(struct pl_builder *b, const char *name, enum pl_role role, struct kind kind,
                       enum pl_rows rows, uint64_t n, uint64_t cols, enum pl_dtype dtype) {
    return pl_build_tensor(b, (struct pl_tensor){.name = name,
                                                 .layer = kind.layer,
                                                 .row = kind.row,
                                                 .dims = {n, cols, 1},
                                                 .rows = rows,
                                                 .dtype = dtype,
                                                 .category = PL_CATEGORY_WORKSPACE,
                                                 .scope = PL_SCOPE_STEP,
                                                 .phase = b->phase,
                                                 .role = role,
                                                 .of = PL_NONE});
}

static void stage(struct pl_builder *b, enum pl_op_kind kind, uint32_t id) {
    if (b->err != PL_ERR_OK) return;
    struct pl_operand in[] = {pl_arg(pl_build_now(b, id))};
    pl_build_op(b, kind, (struct pl_attr){0}, in, 1, NULL, 0);
}

/* Appends the data as read, in any type that a file may have, and its values in fp32; both are
 * alive together. */
static void passing(struct pl_builder *b, uint64_t elements) {
    const struct kind none = {PL_NONE, PL_NONE};
    uint32_t raw =
        buffer(b, "raw", PL_ROLE_MERGE_RAW, none, PL_ROWS_FIXED, elements, 1, PL_DTYPE_F32);
    uint32_t values =
        buffer(b, "values", PL_ROLE_MERGE_VALUES, none, PL_ROWS_FIXED, elements, 1, PL_DTYPE_F32);
    stage(b, PL_OP_STAGE_IN, raw);
    stage(b, PL_OP_STAGE_OUT, values);
    stage(b, PL_OP_STAGE_OUT, raw);
}

/* values[n,K] += s b[n,r] a[r,K], for n rows of a matrix at a time. */
static void merging(struct pl_builder *b, struct kind kind, const struct pl_param_row *row) {
    uint64_t r = b->s->lora_r;
    uint64_t n = pl_u64_min(pl_u64_max(b->s->stretch / row->cols, 1), row->rows);
    uint32_t raw =
        buffer(b, "raw", PL_ROLE_MERGE_RAW, kind, PL_ROWS_FIXED, n, row->cols, PL_DTYPE_F32);
    uint32_t values =
        buffer(b, "values", PL_ROLE_MERGE_VALUES, kind, PL_ROWS_TOKENS, n, row->cols, PL_DTYPE_F32);
    uint32_t a =
        buffer(b, "lora_a", PL_ROLE_MERGE_A, kind, PL_ROWS_FIXED, r, row->cols, PL_DTYPE_F32);
    uint32_t bm = buffer(b, "lora_b", PL_ROLE_MERGE_B, kind, PL_ROWS_TOKENS, n, r, PL_DTYPE_F32);
    if (b->err != PL_ERR_OK) return;
    struct pl_attr attr = {.alpha = (float)b->s->lora_scale, .accumulate = PL_ACC_ADD};
    struct pl_operand x = pl_arg(pl_build_now(b, bm)), w = pl_arg(pl_build_now(b, a));
    struct pl_operand y = pl_arg(pl_build_now(b, values));
    struct pl_operand ws = pl_build_product_workspace(b, PL_OP_LINEAR_DX, &attr, x, w, y);
    struct pl_operand in[] = {x, w, ws, y}, out[] = {y};
    stage(b, PL_OP_STAGE_IN, raw);
    PL_EMIT(b, LINEAR_DX, attr, in, out);
    stage(b, PL_OP_STAGE_OUT, raw);
    b->p->tokens = pl_u64_max(b->p->tokens, n);
}

/* Programs of this kind have one phase and nothing else. */
static void finish(struct pl_builder *b) {
    b->p->phases[PL_PHASE_SAVE] = (struct pl_phase_range){.n_ops = b->p->n_ops};
}

/* True if a row of the files has an adapter, or is a part of a parameter that has one. */
static bool is_targeted(const struct pl_builder *b, const struct pl_param_row *rows, uint32_t n,
                        uint32_t row) {
    const pl_row_set set = b->s->lora_targets.rows | b->s->lora_targets.once;
    return pl_model_adapted_by(rows, n, set, row) < n;
}

/* True for a parameter whose parts are rows of the files. */
static bool is_in_parts(const struct pl_param_row *row) {
    return row->module_only && pl_row_is_parameter(row);
}

/* True if a layer before this one has the row with as many columns. */
static bool is_known(const struct pl_builder *b, const struct pl_param_row *row, uint64_t layer) {
    struct pl_param_row before = *row;
    for (uint64_t l = 0; l < layer; l++)
        if (pl_model_row_in(b->m, &before, l) && before.cols == row->cols) return true;
    return false;
}

/* One group of buffers for every number of columns that a row of the files has. */
static void merging_in_layers(struct pl_builder *b, uint32_t index,
                              const struct pl_param_row *row) {
    struct pl_param_row own = *row;
    merging(b, (struct kind){index, PL_NONE}, row);
    for (uint64_t l = 0; row->per_layer && l < b->m->layers; l++)
        if (pl_model_row_in(b->m, &own, l) && own.cols != row->cols && !is_known(b, &own, l))
            merging(b, (struct kind){index, (uint32_t)l}, &own);
}

void pl_build_merge(struct pl_builder *b) {
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    uint32_t n_rows = pl_model_modules(b->m, rows);
    uint64_t largest = 0;
    b->phase = PL_PHASE_SAVE;
    for (uint32_t i = 0; i < n_rows; i++)
        if (!is_targeted(b, rows, n_rows, i))
            largest = pl_u64_max(largest, rows[i].rows * rows[i].cols);
    passing(b, pl_u64_min(largest, b->s->stretch));
    for (uint32_t i = 0; i < n_rows; i++)
        if (is_targeted(b, rows, n_rows, i) && !is_in_parts(&rows[i]))
            merging_in_layers(b, i, &rows[i]);
    finish(b);
}

/* Matrices of an adapter are small, and their rows may change places, so they pass whole. */
void pl_build_adapter_export(struct pl_builder *b) {
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    uint32_t n_rows = pl_model_modules(b->m, rows);
    uint64_t largest = 0;
    b->phase = PL_PHASE_SAVE;
    for (uint32_t i = 0; i < n_rows; i++)
        if (is_targeted(b, rows, n_rows, i))
            largest = pl_u64_max(largest, pl_u64_max(rows[i].rows, rows[i].cols) * b->s->lora_r);
    passing(b, largest);
    finish(b);
}

static uint32_t find_values(const struct pl_program *p, uint32_t row, uint64_t cols) {
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct pl_tensor *t = &p->tensors[i];
        if (t->role == PL_ROLE_MERGE_VALUES && t->row == row &&
            (row == PL_NONE || t->dims[1] == cols))
            return i;
    }
    return PL_NONE;
}

uint32_t pl_program_find_merge(const struct pl_program *p, enum pl_role role, uint32_t row,
                               uint64_t cols) {
    const uint32_t values = find_values(p, row, cols);
    for (uint32_t i = 0; values != PL_NONE && i < p->n_tensors; i++) {
        const struct pl_tensor *t = &p->tensors[i];
        if (t->role == role && t->row == row && t->layer == p->tensors[values].layer) return i;
    }
    return PL_NONE;
}
