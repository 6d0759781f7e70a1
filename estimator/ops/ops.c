/* ops.c - the rows of op_rows.h at run time. */
#include "estimator/ops/ops.h"

#include "estimator/base/checked.h"
#include "estimator/base/text.h"

#define LAST                                                                                       \
    { .name = NULL }
const struct pl_op_row pl_op_rows[PL_OP_COUNT] = {
#define PL_OPERAND(name, TYPE, USE, ROWS, COLS)                                                    \
    {name, PL_TYPE_##TYPE, PL_USE_##USE, PL_DIM_##ROWS, PL_DIM_##COLS},
#define PL_IN(KIND, ID, name, TYPE, USE, ROWS, COLS)  PL_OPERAND(name, TYPE, USE, ROWS, COLS)
#define PL_OUT(KIND, ID, name, TYPE, USE, ROWS, COLS) PL_OPERAND(name, TYPE, USE, ROWS, COLS)
#define PL_OP(KIND, name, COST, RUNS, what, INPUTS, OUTPUTS)                                       \
    [PL_OP_##KIND] = {#name,                                                                       \
                      what,                                                                        \
                      PL_COST_##COST,                                                              \
                      PL_RUNS_##RUNS,                                                              \
                      PL_##KIND##_N_IN,                                                            \
                      PL_##KIND##_N_OUT,                                                           \
                      {INPUTS LAST},                                                               \
                      {OUTPUTS LAST}},
#include "estimator/ops/op_rows.h"
#undef LAST
#undef PL_OPERAND
};

/* Code that serves several kinds reads their operands by the names of one of them. */
#define SAME(a, b) _Static_assert((a) == (b), #a " and " #b " are read as one")
SAME(PL_QK_NORM_BWD_DY, PL_RMSNORM_BWD_DY);
SAME(PL_QK_NORM_BWD_X, PL_RMSNORM_BWD_X);
SAME(PL_QK_NORM_BWD_W, PL_RMSNORM_BWD_W);
SAME(PL_QK_NORM_BWD_RSTD, PL_RMSNORM_BWD_RSTD);
SAME(PL_QK_NORM_BWD_WS, PL_RMSNORM_BWD_WS);
SAME(PL_ATTENTION_CACHED_Q, PL_ATTENTION_Q);
SAME(PL_ATTENTION_CACHED_KC, PL_ATTENTION_K);
SAME(PL_ATTENTION_CACHED_VC, PL_ATTENTION_V);
SAME(PL_ATTENTION_CACHED_OUT_O, PL_ATTENTION_OUT_O);
SAME(PL_ATTENTION_BWD_Q, PL_ATTENTION_Q);
SAME(PL_ATTENTION_BWD_K, PL_ATTENTION_K);
SAME(PL_ATTENTION_BWD_V, PL_ATTENTION_V);
SAME(PL_EMBED4_ABSMAX - PL_EMBED4_CODES, PL_DEQUANT4_ABSMAX - PL_DEQUANT4_CODES);
SAME(PL_EMBED4_ABSMAX8 - PL_EMBED4_CODES, PL_DEQUANT4_ABSMAX8 - PL_DEQUANT4_CODES);
SAME(PL_EMBED4_OFFSET - PL_EMBED4_CODES, PL_DEQUANT4_OFFSET - PL_DEQUANT4_CODES);
SAME(PL_GROUPED_LINEAR_DX_W, PL_GROUPED_LINEAR_W);
SAME(PL_GROUPED_LINEAR_DX_OFFSETS, PL_GROUPED_LINEAR_OFFSETS);
SAME(PL_GROUPED_LINEAR_DW_OFFSETS, PL_GROUPED_LINEAR_OFFSETS);
SAME(PL_GROUPED_LINEAR_DX_BIAS, PL_GROUPED_LINEAR_BIAS);
SAME(PL_GROUPED_LINEAR_DX_WS, PL_GROUPED_LINEAR_WS);
SAME(PL_CONV_SILU_BWD_Y, PL_CONV_SILU_Y);
SAME(PL_CONV_SILU_BWD_W, PL_CONV_SILU_W);
SAME(PL_CONV_SILU_BWD_OFFSETS, PL_CONV_SILU_OFFSETS);
SAME(PL_GATED_DELTA_BWD_QKV, PL_GATED_DELTA_QKV);
SAME(PL_GATED_DELTA_BWD_BA, PL_GATED_DELTA_BA);
SAME(PL_GATED_DELTA_BWD_A_LOG, PL_GATED_DELTA_A_LOG);
SAME(PL_GATED_DELTA_BWD_DT_BIAS, PL_GATED_DELTA_DT_BIAS);
SAME(PL_GATED_DELTA_BWD_OFFSETS, PL_GATED_DELTA_OFFSETS);
SAME(PL_COPY_OUT_SRC, PL_COPY_IN_SRC);
SAME(PL_COPY_OUT_OUT_DST, PL_COPY_IN_OUT_DST);
#undef SAME

static const struct {
    uint32_t types;
    const char *text;
} types[] = {
#define X(type, types, text) {types, text},
    PL_OPERAND_TYPE_MAP(X)
#undef X
};

static const struct dim {
    const char *text;
    enum pl_dim base;
    uint64_t times, per, plus;
} dims_of_ops[] = {
#define X(dim, text, base, times, per, plus) {text, PL_DIM_##base, times, per, plus},
    PL_DIM_MAP(X)
#undef X
};

static const struct gradient {
    enum pl_op_kind of, by;
} gradients[] = {
#define PL_GRADIENT(KIND, BY) {PL_OP_##KIND, PL_OP_##BY},
#include "estimator/ops/op_rows.h"
};
#define N_GRADIENTS (sizeof gradients / sizeof *gradients)

enum pl_op_kind pl_op_gradient(enum pl_op_kind of) {
    for (size_t i = 0; i < N_GRADIENTS; i++)
        if (gradients[i].of == of) return gradients[i].by;
    return PL_OP_COUNT;
}

bool pl_op_is_gradient(enum pl_op_kind kind, enum pl_op_kind of) {
    for (size_t i = 0; i < N_GRADIENTS; i++)
        if (gradients[i].of == of && gradients[i].by == kind) return true;
    return false;
}

bool pl_operand_takes(const struct pl_operand_row *o, enum pl_dtype t) {
    return types[o->type].types >> t & 1;
}

void pl_operand_describe(const struct pl_operand_row *o, struct pl_text *out) {
    pl_text_addf(out, "%s%s[%s", o->name, pl_operand_may_be_absent(o) ? "?" : "",
                 dims_of_ops[o->rows].text);
    if (o->cols != PL_DIM_ONE) pl_text_addf(out, ",%s", dims_of_ops[o->cols].text);
    pl_text_addf(out, "]%s%s", types[o->type].text, pl_operand_in_place(o) ? "!" : "");
}

static bool dim_fits(struct pl_dims *dims, enum pl_dim dim, uint64_t size) {
    const struct dim *row = &dims_of_ops[dim];
    if (dim == PL_DIM_ANY) return true;
    if (row->times == 0) return size == row->plus;
    if (row->base == PL_DIM_ELEMENTS &&
        !pl_u64_mul(dims->of[PL_DIM_O], dims->of[PL_DIM_K], &dims->of[PL_DIM_ELEMENTS]))
        return false;
    uint64_t *base = &dims->of[row->base];
    if (row->base == dim && *base == 0) *base = size;
    return *base == 0 || size == pl_u64_div_up(*base * row->times, row->per) + row->plus;
}

bool pl_dims_fit(struct pl_dims *dims, const struct pl_operand_row *o, uint64_t rows,
                 uint64_t cols) {
    return dim_fits(dims, o->rows, rows) && dim_fits(dims, o->cols, cols);
}
