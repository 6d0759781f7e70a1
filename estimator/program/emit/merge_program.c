/* merge_program.c - the programs that put an adapter into its base, or into a file of its own.
 *
 * Nothing lives for a whole job here: base and adapter stay in their files, and every matrix passes
 * through the same few buffers, some rows at a time. One group of ops gives the buffers of a kind
 * of matrix their places and holds its product; the runtime runs the group once per stretch.
 *   W' = W + s B A (Hu et al., LoRA, arXiv 2106.09685, section 4.1), in fp32. */
#include "estimator/program/emit/merge_program.h"

#include "estimator/base/checked.h"
#include "estimator/program/emit/emit.h"

static uint32_t buffer(struct pl_builder *b, const char *name, enum pl_role role, uint32_t row,
                       enum pl_rows rows, uint64_t n, uint64_t cols, enum pl_dtype dtype) {
    return pl_build_tensor(b, (struct pl_tensor){.name = name,
                                                 .layer = PL_NONE,
                                                 .row = row,
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
    uint32_t raw =
        buffer(b, "raw", PL_ROLE_MERGE_RAW, PL_NONE, PL_ROWS_FIXED, elements, 1, PL_DTYPE_F32);
    uint32_t values = buffer(b, "values", PL_ROLE_MERGE_VALUES, PL_NONE, PL_ROWS_FIXED, elements, 1,
                             PL_DTYPE_F32);
    stage(b, PL_OP_STAGE_IN, raw);
    stage(b, PL_OP_STAGE_OUT, values);
    stage(b, PL_OP_STAGE_OUT, raw);
}

/* values[n,K] += s b[n,r] a[r,K], for n rows of a matrix at a time. */
static void merging(struct pl_builder *b, uint32_t index, const struct pl_param_row *row) {
    uint64_t r = b->s->lora_r;
    uint64_t n = pl_u64_min(pl_u64_max(b->s->stretch / row->cols, 1), row->rows);
    uint32_t raw =
        buffer(b, "raw", PL_ROLE_MERGE_RAW, index, PL_ROWS_FIXED, n, row->cols, PL_DTYPE_F32);
    uint32_t values = buffer(b, "values", PL_ROLE_MERGE_VALUES, index, PL_ROWS_TOKENS, n, row->cols,
                             PL_DTYPE_F32);
    uint32_t a =
        buffer(b, "lora_a", PL_ROLE_MERGE_A, index, PL_ROWS_FIXED, r, row->cols, PL_DTYPE_F32);
    uint32_t bm = buffer(b, "lora_b", PL_ROLE_MERGE_B, index, PL_ROWS_TOKENS, n, r, PL_DTYPE_F32);
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
        if (is_targeted(b, rows, n_rows, i) && !is_in_parts(&rows[i])) merging(b, i, &rows[i]);
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

uint32_t pl_program_find_merge(const struct pl_program *p, enum pl_role role, uint32_t row) {
    for (uint32_t i = 0; i < p->n_tensors; i++)
        if (p->tensors[i].role == role && p->tensors[i].row == row) return i;
    return PL_NONE;
}
