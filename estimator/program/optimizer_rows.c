/* optimizer_rows.c - the rows of the optimizers, and how their states are stored. */
#include "estimator/program/optimizer_rows.h"

#include "estimator/config/optimizers.h"
#include "estimator/ops/quant_layout.h"

/* A float: its type is `moment_dtype`. */
static const struct pl_state_form F32 = {.dtype = PL_DTYPE_F32};

/* Dettmers et al., 8-bit Optimizers via Block-wise Quantization, arXiv 2110.02861. The embedding
 * and the head keep floats, since a step sees few of their rows: a second moment that is small
 * compared with the largest of its block becomes 0 as a code while the first moment does not, and
 * m / (sqrt(0) + eps) moves a weight by a thousand learning rates. The paper recommends it for
 * embeddings (section 2.3), and transformers' Trainer registers fp32 states for every
 * nn.Embedding. */
static const struct pl_state_form CODES8 = {.dtype = PL_DTYPE_U8,
                                            .block = PL_STATE8_BLOCK,
                                            .least = PL_STATE8_MIN,
                                            .exact_vocabulary = true};

static const struct pl_optimizer rows[] = {
#define STATE(name, form) {name, name ".absmax", &form},
#define ROW(id, name, op, lighter, states, words, note)                                            \
    {name, PL_OP_##op, PL_OPTIMIZER_##lighter, {states{0}}},
    PL_OPTIMIZERS(ROW, STATE, PL_OPTIMIZER_SKIP)
#undef ROW
#undef STATE
};
#define N_ROWS (sizeof rows / sizeof *rows)
_Static_assert(N_ROWS <= PL_OPTIMIZERS_MAX, "room for every row");

/* The operands w, g, clip and the master are not states; a state in blocks has its scales too. */
#define OPERANDS_OF_F32    1
#define OPERANDS_OF_CODES8 2
#define STATE(name, form)  +OPERANDS_OF_##form
#define ROW(id, name, op, lighter, states, words, note)                                            \
    _Static_assert(PL_##op##_N_IN == 4 states && PL_##op##_N_OUT == 2 states, name);
PL_OPTIMIZERS(ROW, STATE, PL_OPTIMIZER_SKIP)
#undef ROW
#undef STATE

const struct pl_optimizer *pl_optimizer_table(uint32_t *n) {
    *n = N_ROWS;
    return rows;
}

const struct pl_optimizer *pl_optimizer_row(uint32_t optimizer) {
    return &rows[optimizer];
}

bool pl_optimizer_is_in_blocks(uint32_t optimizer) {
    for (const struct pl_state *s = rows[optimizer].states; s->name; s++)
        if (s->form->block) return true;
    return false;
}

/* The same rule with states that are not in blocks. */
static uint32_t exact_row(uint32_t optimizer) {
    for (uint32_t i = 0; i < N_ROWS; i++)
        if (rows[i].lighter == optimizer && !pl_optimizer_is_in_blocks(i)) return i;
    return optimizer;
}

enum pl_op_kind pl_optimizer_op(uint32_t optimizer, enum pl_dtype states) {
    return rows[pl_dtype_is_narrow(states) ? exact_row(optimizer) : optimizer].op;
}

bool pl_optimizer_updates_by(uint32_t optimizer, enum pl_op_kind kind) {
    return kind == rows[optimizer].op || kind == rows[exact_row(optimizer)].op;
}
