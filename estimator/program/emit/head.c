/* head.c - the steps above the layers: from the trunk to the loss.
 *
 * Only supervised rows go through the head. Logits exist a chunk at a time; cross entropy turns
 * them into their own gradient in place, and d h overwrites h chunk by chunk, so the head needs two
 * [T,C] buffers and one [chunk,V] whatever the vocabulary. */
#include "estimator/program/emit/tape.h"

#include "estimator/base/checked.h"
#include "estimator/program/emit/brief.h"
#include "estimator/program/emit/exchange.h"

/* A buffer that every chunk uses again. */
static uint32_t add_chunk(struct pl_builder *b, const char *name, uint64_t rows, uint64_t cols,
                          enum pl_dtype dtype, enum pl_category category) {
    return pl_build_tensor(b, (struct pl_tensor){.name = name,
                                                 .layer = PL_NONE,
                                                 .dims = {rows, cols, 1},
                                                 .rows = PL_ROWS_TARGETS,
                                                 .dtype = dtype,
                                                 .category = category,
                                                 .scope = PL_SCOPE_STEP,
                                                 .phase = b->phase,
                                                 .of = PL_NONE});
}

/* The chunk's rows at the top of such a buffer. */
static struct pl_operand chunk_window(const struct pl_builder *b, uint32_t id, uint64_t row0,
                                      uint64_t nrows) {
    struct pl_operand w = pl_arg_rows(pl_build_now(b, id), 0, nrows);
    w.batch_row = (uint32_t)row0;
    return w;
}

/* Rows of logits begin at multiples of so many elements, of 128 bytes or more, whatever the
 * vocabulary: kernels and matrix products read whole packs of them. */
#define LOGITS_UNIT 64

static uint32_t add_logits(struct pl_builder *b, uint64_t rows) {
    return add_chunk(b, "logits", rows, pl_u64_round_up(b->m->vocab, LOGITS_UNIT), b->s->dtype,
                     PL_CATEGORY_LOGITS);
}

/* The chunk's logits, without what fills their rows up. */
static struct pl_operand logits_window(const struct pl_builder *b, uint32_t id, uint64_t row0,
                                       uint64_t nrows) {
    struct pl_operand w = chunk_window(b, id, row0, nrows);
    if (b->m->vocab % LOGITS_UNIT) w.cols = (uint32_t)b->m->vocab;
    return w;
}

/* An operand as it is after the ops that were appended meanwhile. */
static struct pl_operand renewed(const struct pl_builder *b, struct pl_operand o) {
    o.version = pl_build_now(b, o.id).version;
    return o;
}

/* Appends a tensor with as many rows as the logits: a = h A^T in the forward pass, da = s dlogits B
 * in the backward pass. */
static uint32_t add_adapter_rows(struct pl_builder *b, const char *name,
                                 const struct pl_operand *logits) {
    const uint64_t rows = b->p->tensors[logits->id].dims[0];
    return add_chunk(b, name, rows, b->s->lora_r, b->s->adapter_dtype, PL_CATEGORY_ACTIVATIONS);
}

/* The rows of `id` that belong to the logits of a window. */
static struct pl_operand beside(const struct pl_builder *b, uint32_t id,
                                const struct pl_operand *logits) {
    return logits->nrows ? chunk_window(b, id, logits->batch_row, logits->nrows)
                         : pl_arg(pl_build_now(b, id));
}

/* logits += s (h A^T) B^T; the rows of h A^T, or nothing. */
static struct pl_operand adapter_logits(struct pl_builder *b, struct pl_operand h,
                                        struct pl_operand logits) {
    const struct pl_adapter_slot *ad = pl_build_adapter(b, PL_SLOT_HEAD);
    if (!ad || b->err != PL_ERR_OK) return pl_arg_none;
    const uint32_t a = add_adapter_rows(b, "lora_a_out", &logits);
    pl_build_product(b, h, pl_arg_now(b, ad->a), pl_arg_none, beside(b, a, &logits), 1.0f, false);
    pl_build_product(b, beside(b, a, &logits), pl_arg_now(b, ad->b[0]), pl_arg_none,
                     renewed(b, logits), (float)b->s->lora_scale, true);
    return beside(b, a, &logits);
}

/* Gradients of A and B, which read h before dh overwrites it. Returns da, which dh reads. */
static struct pl_operand adapter_logits_bwd(struct pl_builder *b, struct pl_operand h,
                                            struct pl_operand dl, struct pl_operand a) {
    const struct pl_adapter_slot *ad = pl_build_adapter(b, PL_SLOT_HEAD);
    const float scale = (float)b->s->lora_scale;
    if (!ad || b->err != PL_ERR_OK) return pl_arg_none;
    const uint32_t da = add_adapter_rows(b, "d_lora_a_out", &dl);
    pl_build_product_dw(b, dl, a, ad->b[0], scale);
    pl_build_product_dx(b, dl, pl_arg_now(b, ad->b[0]), beside(b, da, &dl), scale, false);
    pl_build_product_dw(b, beside(b, da, &dl), h, ad->a, 1.0f);
    return beside(b, da, &dl);
}

static struct pl_operand columns_of(struct pl_operand x, uint64_t col, uint64_t cols) {
    x.col = (uint32_t)col;
    x.cols = (uint32_t)cols;
    return x;
}

static void cap_logits(struct pl_builder *b, struct pl_operand logits) {
    if (b->m->softcap <= 0 || b->err != PL_ERR_OK) return;
    struct pl_operand in[] = {renewed(b, logits)}, out[] = {in[0]};
    PL_EMIT(b, SOFTCAP, (struct pl_attr){.limit = (float)b->m->softcap}, in, out);
}

struct pl_operand pl_build_logits(struct pl_builder *b, struct pl_operand h,
                                  struct pl_operand logits) {
    struct pl_piece piece = {0};
    while (pl_build_next_piece(b, PL_SLOT_HEAD, PL_PANEL_ROWS, &piece)) {
        struct pl_attr attr = {.alpha = 1.0f, .accumulate = PL_ACC_WRITE};
        struct pl_operand out[] = {columns_of(logits, piece.row0, piece.rows)};
        struct pl_operand w = pl_arg(piece.w);
        struct pl_operand ws = pl_build_product_workspace(b, PL_OP_LINEAR, &attr, h, w, out[0]);
        struct pl_operand in[] = {h, w, pl_arg_none, ws, pl_arg_none};
        PL_EMIT(b, LINEAR, attr, in, out);
    }
    const struct pl_operand a = adapter_logits(b, h, logits);
    cap_logits(b, logits);
    return a;
}

/* Rows of a tensor of targets that only some losses have. */
static struct pl_operand chunk_of(struct pl_val v, uint64_t row0, uint64_t nrows) {
    return v.id == PL_NONE ? pl_arg_none : pl_arg_rows(v, row0, nrows);
}

/* True if the loss that is being appended is turned into its gradient. */
static bool learns(const struct pl_builder *b) {
    return b->training && b->logp.id == PL_NONE;
}

static void chunk_loss(struct pl_builder *b, uint32_t logits, uint64_t row0, uint64_t nrows) {
    if (b->err != PL_ERR_OK) return;
    const struct pl_val weights = learns(b) ? b->in.weights : PL_NO_VAL;
    struct pl_attr attr = {
        .gradient = learns(b), .accumulate = PL_ACC_ADD, .limit = (float)b->m->softcap};
    struct pl_operand ws = pl_build_workspace(b, PL_OP_CROSS_ENTROPY, &attr, nrows, b->m->vocab);
    struct pl_operand l = logits_window(b, logits, row0, nrows);
    struct pl_operand loss = pl_build_loss(b);
    struct pl_operand in[] = {l, pl_arg_rows(b->in.targets, row0, nrows), loss, ws,
                              chunk_of(weights, row0, nrows)};
    struct pl_operand out[] = {l, loss, chunk_of(b->logp, row0, nrows)};
    PL_EMIT(b, CROSS_ENTROPY, attr, in, out);
}

/* d h = d logits W + da A, over h: the sum over pieces of the vocabulary and of the adapter. */
static void chunk_dh(struct pl_builder *b, struct pl_operand h, struct pl_operand dl,
                     struct pl_operand da) {
    struct pl_piece piece = {0};
    while (pl_build_next_piece(b, PL_SLOT_HEAD, PL_PANEL_COLS, &piece)) {
        const bool add = piece.row0 > 0;
        struct pl_attr attr = {.alpha = 1.0f, .accumulate = add ? PL_ACC_ADD : PL_ACC_WRITE};
        struct pl_operand w = pl_arg(piece.w), part = columns_of(dl, piece.row0, piece.rows);
        struct pl_operand dh = renewed(b, h);
        if (piece.cols < b->m->hidden) dh = columns_of(dh, piece.col0, piece.cols);
        struct pl_operand ws = pl_build_product_workspace(b, PL_OP_LINEAR_DX, &attr, part, w, dh);
        struct pl_operand in[] = {part, w, ws, add ? dh : pl_arg_none}, out[] = {dh};
        PL_EMIT(b, LINEAR_DX, attr, in, out);
    }
    if (da.id == PL_NONE || b->err != PL_ERR_OK) return;
    pl_build_product_dx(b, da, pl_arg_now(b, pl_build_adapter(b, PL_SLOT_HEAD)->a), renewed(b, h),
                        1.0f, true);
}

static void chunk_bwd(struct pl_builder *b, struct pl_operand h, uint32_t logits,
                      struct pl_operand a, bool need_dh) {
    if (b->err != PL_ERR_OK) return;
    uint32_t w = pl_build_weight(b, PL_SLOT_HEAD);
    struct pl_operand dl = logits_window(b, logits, h.row0, h.nrows);
    if (pl_build_trains(b, w)) {
        struct pl_attr attr = {.alpha = 1.0f};
        struct pl_operand g = pl_build_grad(b, w, &attr);
        struct pl_operand ws = pl_build_product_workspace(b, PL_OP_LINEAR_DW, &attr, dl, h, g);
        struct pl_operand in[] = {dl, h, ws, g}, out[] = {g};
        PL_EMIT(b, LINEAR_DW, attr, in, out);
    }
    struct pl_operand da = adapter_logits_bwd(b, h, dl, a);
    if (need_dh) chunk_dh(b, h, dl, da);
}

/* --- rows of the trunk that are supervised ---------------------------------------------------- */

void pl_step_gather(struct pl_tape *t, const struct pl_step *s, pl_var_set missing) {
    struct pl_builder *b = t->b;
    struct pl_value *xs = &t->values[s->out[0]];
    (void)missing;
    const uint32_t id = pl_build_activation(b, xs->name, PL_ROWS_TARGETS, b->m->hidden);
    struct pl_operand in[] = {pl_arg(t->values[s->in[0]].val),
                              s->in[1] == PL_NO_VAR ? pl_arg_none : pl_arg(t->values[s->in[1]].val),
                              pl_arg(b->in.target_rows)};
    struct pl_operand out[] = {pl_arg(pl_build_now(b, id))};
    PL_EMIT(b, GATHER_ADD, (struct pl_attr){0}, in, out);
    xs->val = pl_build_now(b, id);
}

bool pl_step_gather_wants(const struct pl_tape *t, const struct pl_step *s) {
    return t->values[s->in[0]].wants;
}

void pl_step_gather_gradient(struct pl_tape *t, const struct pl_step *s) {
    struct pl_builder *b = t->b;
    const struct pl_value *xs = &t->values[s->out[0]];
    if (!xs->wants) return;
    struct pl_operand in[] = {pl_arg(pl_build_now(b, xs->grad)), pl_arg(b->in.target_rows)};
    struct pl_operand out[] = {pl_arg(pl_build_now(b, t->trunk_grad))};
    PL_EMIT(b, SCATTER_ROWS, (struct pl_attr){0}, in, out);
}

/* --- the last norm ---------------------------------------------------------------------------- */

void pl_step_last_norm(struct pl_tape *t, const struct pl_step *s, pl_var_set missing) {
    struct pl_builder *b = t->b;
    struct pl_value *h = &t->values[s->out[0]], *rstd = &t->values[s->out[1]];
    (void)missing;
    const uint32_t y = pl_build_activation(b, h->name, PL_ROWS_TARGETS, b->m->hidden);
    const uint32_t r =
        pl_build_step(b, rstd->name, PL_ROWS_TARGETS, 0, 1, PL_DTYPE_F32, PL_CATEGORY_ACTIVATIONS);
    struct pl_operand in[] = {pl_arg(t->values[s->in[0]].val),
                              pl_arg(pl_build_now(b, pl_build_weight(b, s->slot)))};
    struct pl_operand out[] = {pl_arg(pl_build_now(b, y)), pl_arg(pl_build_now(b, r))};
    PL_EMIT(b, RMSNORM, pl_build_norm_attr(b), in, out);
    h->val = pl_build_now(b, y);
    rstd->val = pl_build_now(b, r);
}

pl_var_set pl_step_last_norm_needs(const struct pl_tape *t, const struct pl_step *s) {
    return t->values[s->out[0]].wants ? pl_var_bit(s->in[0]) | pl_var_bit(s->out[1]) : 0;
}

/* Takes the place of the gradient of h. */
void pl_step_last_norm_gradient(struct pl_tape *t, const struct pl_step *s) {
    struct pl_value *xs = &t->values[s->in[0]];
    const struct pl_value *h = &t->values[s->out[0]];
    if (!h->wants) return;
    const struct pl_operand dh = pl_arg(pl_build_now(t->b, h->grad));
    xs->grad = h->grad;
    pl_build_norm_bwd(t->b, s->slot, dh, xs->val, t->values[s->out[1]].val,
                      xs->wants ? dh : pl_arg_none, false);
}

/* --- the loss --------------------------------------------------------------------------------- */

/* A chunk is finished, its gradient included, before the next one begins (see the top). Where one
 * chunk is all of them, log-probabilities leave the logits as they are: a loss that is appended
 * again for the gradient begins with these. */
void pl_step_loss(struct pl_tape *t, const struct pl_step *s, pl_var_set missing) {
    struct pl_builder *b = t->b;
    const struct pl_value *h = &t->values[s->in[0]];
    const uint64_t chunk = b->p->chunk_tokens, chunks = pl_u64_div_up(b->n, chunk);
    const bool are_there = b->logits != PL_NONE;
    const uint32_t logits = are_there ? b->logits : add_logits(b, chunk);
    (void)missing;
    pl_brief_begin_loop(b);
    for (uint64_t i = 0; i < chunks && b->err == PL_ERR_OK; i = pl_brief_next(b->p, i, chunks, 1)) {
        const uint64_t row = i * chunk, nrows = pl_u64_min(chunk, b->n - row);
        pl_brief_begin_piece(b, i, chunks);
        struct pl_operand hc = pl_arg_rows(pl_build_now(b, h->val.id), row, nrows);
        if (!are_there) b->logits_a = pl_build_logits(b, hc, logits_window(b, logits, row, nrows));
        chunk_loss(b, logits, row, nrows);
        if (learns(b)) chunk_bwd(b, hc, logits, b->logits_a, h->wants);
    }
    pl_brief_end_loop(b);
    b->logits = b->training && !learns(b) && chunks == 1 ? logits : PL_NONE;
}

void pl_step_loss_gradient(struct pl_tape *t, const struct pl_step *s) {
    t->values[s->in[0]].grad = t->values[s->in[0]].val.id;
}

/* Normalises the gathered rows, which were kept, again; the forward pass's h has become its
 * gradient. */
static void renorm(struct pl_tape *t, const struct pl_step *s) {
    struct pl_builder *b = t->b;
    struct pl_value *h = &t->values[s->out[0]];
    const uint32_t y = pl_build_activation(b, h->name, PL_ROWS_TARGETS, b->m->hidden);
    struct pl_operand in[] = {pl_arg(t->values[s->in[0]].val),
                              pl_arg(pl_build_now(b, pl_build_weight(b, s->slot))),
                              pl_arg(t->values[s->out[1]].val)};
    struct pl_operand out[] = {pl_arg(pl_build_now(b, y))};
    PL_EMIT(b, RENORM, ((struct pl_attr){.unit_offset = b->m->unit_offset}), in, out);
    h->val = pl_build_now(b, y);
}

/* Appends what `run` does for the step of a kind. */
static void run_again(struct pl_tape *t, enum pl_step_kind kind,
                      void (*run)(struct pl_tape *t, const struct pl_step *s)) {
    struct pl_builder *b = t->b;
    b->layer = PL_NONE;
    b->recompute = true;
    for (int i = 0; i < t->n_steps && b->err == PL_ERR_OK; i++)
        if (t->steps[i].kind == kind) run(t, &t->steps[i]);
    b->recompute = false;
}

static void reloss(struct pl_tape *t, const struct pl_step *s) {
    pl_step_loss(t, s, 0);
}

void pl_build_loss_again(struct pl_builder *b, struct pl_tape *t) {
    b->logp = PL_NO_VAL;
    run_again(t, PL_STEP_LOSS, reloss);
}

void pl_build_head_again(struct pl_builder *b, struct pl_tape *t) {
    run_again(t, PL_STEP_LAST_NORM, renorm);
    if (b->err == PL_ERR_OK) run_again(t, PL_STEP_LOSS, reloss);
}

/* --- the tape --------------------------------------------------------------------------------- */

static pl_var tape_gather(struct pl_tape *t, pl_var x, pl_var r) {
    const pl_var xs = pl_tape_add_value(t, PL_PART_INPUT, "xs", NULL);
    pl_tape_record(
        t, (struct pl_step){PL_STEP_GATHER, PL_SLOT_NORMF, {x, r}, {xs, PL_NO_VAR, PL_NO_VAR}});
    return xs;
}

static pl_var tape_last_norm(struct pl_tape *t, pl_var xs) {
    const pl_var h = pl_tape_add_value(t, PL_PART_INPUT, "h", NULL);
    const pl_var rstd = pl_tape_add_value(t, PL_PART_INPUT, "rstd", NULL);
    pl_tape_record(t, (struct pl_step){
                          PL_STEP_LAST_NORM, PL_SLOT_NORMF, {xs, PL_NO_VAR}, {h, rstd, PL_NO_VAR}});
    return h;
}

pl_var pl_build_head_rows(struct pl_builder *b, struct pl_val trunk, struct pl_val pending,
                          bool need_dx, struct pl_tape *t) {
    pl_var below;
    b->layer = PL_NONE;
    const pl_var x = pl_tape_begin(t, b, trunk, pending, need_dx, &below);
    return tape_last_norm(t, tape_gather(t, x, below));
}

void pl_build_head(struct pl_builder *b, struct pl_val trunk, struct pl_val pending, bool need_dx,
                   struct pl_tape *t) {
    const pl_var h = pl_build_head_rows(b, trunk, pending, need_dx, t);
    pl_tape_record(
        t, (struct pl_step){
               PL_STEP_LOSS, PL_SLOT_HEAD, {h, PL_NO_VAR}, {PL_NO_VAR, PL_NO_VAR, PL_NO_VAR}});
}
