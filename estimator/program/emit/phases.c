/* phases.c - load, micro-step, optimizer, evaluation, save: the whole program in order. inference.c
 * has what inference does instead, and what samples of a model in training add. */
#include "estimator/base/alloc.h"
#include "estimator/program/emit/exchange.h"
#include "estimator/program/emit/tape.h"

#include "estimator/base/checked.h"

#include <stdlib.h>
#include <string.h>

/* Staging moves a tensor in pieces of whole rows; more than this buys no speed. */
#define STAGING_BYTES (UINT64_C(8) << 20)
#define ROW_ALIGN     64

void pl_build_begin_phase(struct pl_builder *b, enum pl_phase phase) {
    b->phase = phase;
    b->layer = PL_NONE;
    b->backward = b->recompute = false;
    b->training = phase == PL_PHASE_MICRO;
    b->drops = (b->training || phase == PL_PHASE_SCORE) && b->s->lora_dropout > 0;
    b->logp = PL_NO_VAL;
    b->logits = PL_NONE;
    b->route_stats = PL_NONE;
    b->p->phases[phase].first_op = b->p->n_ops;
}

void pl_build_end_phase(struct pl_builder *b) {
    struct pl_phase_range *r = &b->p->phases[b->phase];
    pl_build_offload(b);
    r->n_ops = b->p->n_ops - r->first_op;
}

static struct pl_val input(struct pl_builder *b, const char *name, enum pl_role role,
                           enum pl_rows rows, uint64_t n, enum pl_dtype dtype) {
    uint32_t id = pl_build_step(b, name, rows, n, 1, dtype, PL_CATEGORY_BATCH);
    if (b->err == PL_ERR_OK) b->p->tensors[id].role = role;
    return pl_build_now(b, id);
}

void pl_build_inputs(struct pl_builder *b) {
    struct pl_inputs *in = &b->in;
    const uint64_t seqs = b->seqs;
    in->weights = PL_NO_VAL;
    in->ids = input(b, "ids", PL_ROLE_IDS, PL_ROWS_TOKENS, 0, PL_DTYPE_I32);
    if (b->training && pl_build_embedding_trains(b))
        in->order = input(b, "order", PL_ROLE_ORDER, PL_ROWS_TOKENS, 0, PL_DTYPE_I32);
    in->positions = input(b, "positions", PL_ROLE_POSITIONS, PL_ROWS_TOKENS, 0, PL_DTYPE_I32);
    in->offsets = input(b, "offsets", PL_ROLE_OFFSETS, PL_ROWS_FIXED, seqs + 1, PL_DTYPE_I32);
    in->target_rows =
        input(b, "target_rows", PL_ROLE_TARGET_ROWS, PL_ROWS_TARGETS, 0, PL_DTYPE_I32);
    if (b->phase == PL_PHASE_GENERATE) return;
    in->targets = input(b, "targets", PL_ROLE_TARGETS, PL_ROWS_TARGETS, 0, PL_DTYPE_I32);
    if (b->training && (b->s->scored || b->s->weighs_rows))
        in->weights =
            input(b, "weights", PL_ROLE_WEIGHTS_OF_TARGETS, PL_ROWS_TARGETS, 0, PL_DTYPE_F32);
    if (b->drops)
        in->samples = input(b, "samples", PL_ROLE_SAMPLES, PL_ROWS_FIXED, seqs, PL_DTYPE_U64);
}

/* The embedding, the layers, and the head with the loss. */
static uint64_t n_tapes(const struct pl_builder *b) {
    return b->m->layers + 2;
}

struct pl_val pl_build_forward(struct pl_builder *b, struct pl_val *trunk, struct pl_tape *tapes) {
    struct pl_tape scratch;
    struct pl_tape *t = tapes ? tapes : &scratch;
    const uint64_t lowest = pl_build_lowest_layer(b);
    *trunk = pl_tape_value(t, pl_tape_embed(t, b));
    struct pl_val pending = PL_NO_VAL;
    for (uint64_t l = 0; l < b->m->layers && b->err == PL_ERR_OK; l++) {
        if (pl_program_skips(b->p, l)) continue;
        pl_build_enter_layer(b, l);
        pl_build_copy_adapters(b);
        t = tapes ? &tapes[1 + l] : &scratch;
        const bool need_dx = l > lowest || pl_build_embedding_trains(b);
        pending = pl_build_layer(b, trunk, pending, need_dx, t);
    }
    b->layer = PL_NONE;
    return pending;
}

/* Gradients to which several layers add, or each its columns. */
static void begin_shared_gradients(struct pl_builder *b) {
    for (uint64_t l = 0; l < b->m->layers; l++)
        b->lent[l].grad = PL_NONE;
    b->layer_input_grad = PL_NONE;
    if (b->m->layer_input && pl_build_embedding_trains(b))
        b->layer_input_grad =
            pl_build_activation(b, "dinput", PL_ROWS_TOKENS, b->m->layers * b->m->layer_input);
}

/* Appends the backward pass, from the loss down to the lowest tensor that is trained. */
static void backward(struct pl_builder *b, struct pl_tape *tapes, uint32_t dx) {
    const uint64_t head = n_tapes(b) - 1, lowest = pl_build_lowest_layer(b);
    b->backward = true;
    begin_shared_gradients(b);
    pl_tape_backward(&tapes[head], dx);
    for (uint64_t l = b->m->layers; l-- > lowest && b->err == PL_ERR_OK;) {
        if (pl_program_skips(b->p, l)) continue;
        pl_build_enter_layer(b, l);
        pl_build_copy_adapters(b);
        pl_tape_backward(&tapes[1 + l], dx);
    }
    b->layer = PL_NONE;
    if (pl_build_embedding_trains(b) && b->err == PL_ERR_OK) pl_tape_backward(&tapes[0], dx);
    pl_build_exchange(b, true);
    b->backward = false;
}

/* Everything again that the backward pass does, now that the norm is known. */
static void second_sweep(struct pl_builder *b, struct pl_tape *tapes, uint32_t dx) {
    pl_build_clip(b);
    b->settling = PL_SETTLE_UPDATE;
    b->again = b->backward = true;
    b->loss = b->loss_again;
    pl_build_step_gradients(b);
    pl_build_head_again(b, &tapes[n_tapes(b) - 1]);
    if (b->err == PL_ERR_OK) backward(b, tapes, dx);
    b->again = false;
}

/* The gradients of what the tapes have recorded, and the updates that belong to this phase. */
static void gradients(struct pl_builder *b, struct pl_tape *tapes, uint32_t dx) {
    const uint64_t n = n_tapes(b);
    const bool twice = pl_shape_sweeps_twice(b->s);
    if (twice) memcpy(&tapes[n], tapes, n * sizeof *tapes);
    backward(b, tapes, dx);
    if (twice) second_sweep(b, &tapes[n], dx);
    if (b->s->gradients == PL_GRADIENTS_OF_STEP) pl_build_updates(b);
}

static void begin_gradients(struct pl_builder *b) {
    pl_build_step_gradients(b);
    const bool folds = b->s->folds_gradients && !pl_shape_exchanges_each_micro(b->s);
    b->settling = folds ? PL_SETTLE_FOLD : PL_SETTLE_LATER;
    if (b->s->gradients != PL_GRADIENTS_OF_UPDATE) return;
    b->settling = pl_shape_sweeps_twice(b->s) ? PL_SETTLE_NORM : PL_SETTLE_BOTH;
    pl_build_begin_updates(b);
}

/* The log-probabilities of a forward pass, from which the host makes weights. */
static void begin_scores(struct pl_builder *b) {
    const uint32_t id =
        pl_build_step(b, "logp", PL_ROWS_TARGETS, 0, 1, PL_DTYPE_F64, PL_CATEGORY_BATCH);
    if (b->err == PL_ERR_OK) b->p->tensors[id].role = PL_ROLE_LOGP;
    b->logp = pl_build_now(b, id);
}

static void micro_phase(struct pl_builder *b) {
    pl_build_begin_phase(b, PL_PHASE_MICRO);
    const uint64_t n = n_tapes(b);
    struct pl_tape *tapes = pl_calloc(pl_shape_sweeps_twice(b->s) ? 2 * n : n, sizeof *tapes);
    if (!tapes) {
        b->err = pl_host_oom(b->d, "the plan");
        return;
    }
    pl_build_inputs(b);
    begin_gradients(b);
    if (b->s->keeps_first_pass) begin_scores(b);
    pl_build_begin_loss(b);
    pl_build_begin_routing(b);
    struct pl_val trunk, pending = pl_build_forward(b, &trunk, tapes);
    pl_build_end_routing(b);
    uint32_t dx = PL_NONE;
    if (pl_build_lowest_layer(b) < b->m->layers || pl_build_embedding_trains(b))
        dx = pl_build_activation(b, "dx", PL_ROWS_TOKENS, b->m->hidden);
    pl_build_head(b, trunk, pending, dx != PL_NONE, &tapes[n - 1]);
    if (b->s->keeps_first_pass) pl_build_loss_again(b, &tapes[n - 1]);
    pl_build_end_loss(b);
    if (b->err == PL_ERR_OK) gradients(b, tapes, dx);
    b->settling = PL_SETTLE_LATER;
    pl_build_end_updates(b);
    free(tapes);
    pl_build_end_phase(b);
}

/* The forward pass alone. */
static void forward_phase(struct pl_builder *b, enum pl_phase phase) {
    pl_build_begin_phase(b, phase);
    b->bare = phase == PL_PHASE_REFERENCE;
    pl_build_inputs(b);
    if (b->s->scored) begin_scores(b);
    pl_build_begin_loss(b);
    struct pl_tape head;
    struct pl_val trunk, pending = pl_build_forward(b, &trunk, NULL);
    pl_build_head(b, trunk, pending, false, &head);
    pl_build_end_loss(b);
    pl_build_end_phase(b);
    b->bare = false;
}

static uint64_t staging_bytes(const struct pl_builder *b) {
    uint64_t largest = 0, row = 0;
    for (uint32_t i = 0; i < b->p->n_tensors; i++) {
        const struct pl_tensor *t = &b->p->tensors[i];
        if (t->scope != PL_SCOPE_JOB || t->category == PL_CATEGORY_KV_CACHE) continue;
        /* files may be wider than storage: 4 bytes an element */
        largest = pl_u64_max(largest, pl_u64_max(t->bytes, t->dims[0] * t->dims[1] * 4));
        row = pl_u64_max(row, t->dims[1] * 4);
    }
    uint64_t n = pl_u64_max(pl_u64_min(largest, STAGING_BYTES), pl_u64_max(row, PL_STAGING_MIN));
    if (b->quant) n = pl_u64_max(n, PL_QUANT_STAGING);
    return pl_u64_round_up(n, ROW_ALIGN);
}

/* Tensors pass through the buffer one after another; one op gives it its place. */
static void staging_phase(struct pl_builder *b, enum pl_phase phase) {
    pl_build_begin_phase(b, phase);
    uint32_t staging = pl_build_step(b, "staging", PL_ROWS_FIXED, staging_bytes(b), 1, PL_DTYPE_U8,
                                     PL_CATEGORY_WORKSPACE);
    if (b->err != PL_ERR_OK) return;
    b->p->tensors[staging].role = PL_ROLE_STAGING;
    struct pl_operand s = pl_arg(pl_build_now(b, staging));
    pl_build_op(b, phase == PL_PHASE_LOAD ? PL_OP_STAGE_IN : PL_OP_STAGE_OUT, (struct pl_attr){0},
                &s, 1, NULL, 0);
    pl_build_end_phase(b);
}

/* If files are staged in pinned host memory, loading and saving take no device bytes. */
void pl_build_phases(struct pl_builder *b) {
    bool staged = b->p->traits.pinned_bytes == 0;
    if (staged && b->s->load && b->err == PL_ERR_OK) staging_phase(b, PL_PHASE_LOAD);
    if (b->s->inference) {
        if (b->err == PL_ERR_OK) pl_build_generate_phase(b);
        return;
    }
    if (b->err == PL_ERR_OK) micro_phase(b);
    if (b->s->gradients == PL_GRADIENTS_OF_JOB && b->err == PL_ERR_OK) {
        pl_build_begin_phase(b, PL_PHASE_OPTIMIZER);
        pl_build_updates(b);
        pl_build_end_phase(b);
    }
    if (b->s->eval && b->err == PL_ERR_OK) forward_phase(b, PL_PHASE_EVAL);
    const bool scores_alone = b->s->scored && pl_shape_scoring_phase(b->s) == PL_PHASE_SCORE;
    if (scores_alone && b->err == PL_ERR_OK) forward_phase(b, PL_PHASE_SCORE);
    if (b->s->reference && b->err == PL_ERR_OK) forward_phase(b, PL_PHASE_REFERENCE);
    if (staged && b->s->save && b->err == PL_ERR_OK) staging_phase(b, PL_PHASE_SAVE);
    if (b->s->samples && b->err == PL_ERR_OK) pl_build_generate_phase(b);
}
