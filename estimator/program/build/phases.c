/* phases.c - load, micro-step, optimizer, evaluation, save: the whole program in order. What stands
 * in their place for inference is inference.c. */
#include "estimator/base/alloc.h"
#include "estimator/program/build/tape.h"

#include "estimator/base/checked.h"

#include <stdlib.h>

/* Staging moves a tensor in pieces of whole rows; more than this buys no speed. */
#define STAGING_BYTES (UINT64_C(8) << 20)
#define ROW_ALIGN     64

void pl_build_begin_phase(struct pl_builder *b, enum pl_phase phase) {
    b->phase = phase;
    b->layer = PL_NONE;
    b->backward = b->recompute = false;
    b->training = phase == PL_PHASE_MICRO;
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
    uint64_t seqs = b->p->seqs;
    in->ids = input(b, "ids", PL_ROLE_IDS, PL_ROWS_TOKENS, 0, PL_DTYPE_I32);
    if (b->training && pl_build_embedding_trains(b))
        in->order = input(b, "order", PL_ROLE_ORDER, PL_ROWS_TOKENS, 0, PL_DTYPE_I32);
    in->positions = input(b, "positions", PL_ROLE_POSITIONS, PL_ROWS_TOKENS, 0, PL_DTYPE_I32);
    in->offsets = input(b, "offsets", PL_ROLE_OFFSETS, PL_ROWS_FIXED, seqs + 1, PL_DTYPE_I32);
    in->target_rows =
        input(b, "target_rows", PL_ROLE_TARGET_ROWS, PL_ROWS_TARGETS, 0, PL_DTYPE_I32);
    if (b->phase == PL_PHASE_GENERATE) return;
    in->targets = input(b, "targets", PL_ROLE_TARGETS, PL_ROWS_TARGETS, 0, PL_DTYPE_I32);
    if (b->training && b->s->lora_dropout > 0)
        in->samples = input(b, "samples", PL_ROLE_SAMPLES, PL_ROWS_FIXED, seqs, PL_DTYPE_U64);
}

/* What rows of the embedding are multiplied by, in the type of activations, as a module's buffer
 * has it in transformers; 0: by nothing. */
static float embed_scale(const struct pl_builder *b) {
    if (b->m->embed_scale == 1) return 0;
    return pl_dtype_round(b->s->dtype, (float)b->m->embed_scale);
}

static void look_up(struct pl_builder *b, uint32_t table, uint32_t x, float scale) {
    if (b->err != PL_ERR_OK) return;
    struct pl_operand in[] = {pl_arg(b->in.ids), pl_arg(pl_build_now(b, table))};
    struct pl_operand out[] = {pl_arg(pl_build_now(b, x))};
    PL_EMIT(b, EMBED, (struct pl_attr){.scale = scale}, in, out);
}

/* Of s B a[id], which an embedding that is scaled scales as well. */
static float adapter_scale(const struct pl_builder *b) {
    const float scale = embed_scale(b);
    return (float)b->s->lora_scale * (scale != 0 ? scale : 1.0f);
}

/* x[i] = W[id] + s B a[id]: PEFT's lora.Embedding, which drops nothing out. */
static struct pl_val embed(struct pl_builder *b) {
    if (b->err != PL_ERR_OK) return PL_NO_VAL;
    uint32_t x = pl_build_activation(b, "x0", PL_ROWS_TOKENS, b->m->hidden);
    look_up(b, pl_build_weight(b, PL_SLOT_EMBED), x, embed_scale(b));
    const struct pl_adapter_slot *ad = pl_build_adapter(b, PL_SLOT_EMBED);
    if (ad && b->err == PL_ERR_OK) {
        uint32_t a = pl_build_adapter_rows(b, "lora_a_out", 1);
        look_up(b, ad->a, a, 0);
        pl_build_product(b, pl_arg(pl_build_now(b, a)), pl_build_now(b, ad->b[0]), PL_NONE,
                         pl_arg(pl_build_now(b, x)), adapter_scale(b), true);
    }
    return pl_build_now(b, x);
}

static void embed_bwd(struct pl_builder *b, uint32_t w, uint32_t dx, float scale) {
    if (!pl_build_trains(b, w)) return;
    struct pl_attr attr = {.padding_idx = b->m->pad, .scale = scale};
    struct pl_operand g = pl_build_grad(b, w, &attr);
    struct pl_operand in[] = {pl_arg(b->in.ids), pl_arg(b->in.order), pl_arg(pl_build_now(b, dx)),
                              g};
    struct pl_operand out[] = {g};
    PL_EMIT(b, EMBED_BWD, attr, in, out);
}

/* The rows of A are looked up again: they are cheaper to read than to keep. */
static void adapter_bwd(struct pl_builder *b, uint32_t dx) {
    const struct pl_adapter_slot *ad = pl_build_adapter(b, PL_SLOT_EMBED);
    const float scale = adapter_scale(b);
    if (!ad || b->err != PL_ERR_OK) return;
    uint32_t a = pl_build_adapter_rows(b, "lora_a_out", 1);
    uint32_t da = pl_build_adapter_rows(b, "d_lora_a_out", 1);
    b->recompute = true;
    look_up(b, ad->a, a, 0);
    b->recompute = false;
    struct pl_operand dy = pl_arg(pl_build_now(b, dx));
    pl_build_product_dw(b, dy, pl_arg(pl_build_now(b, a)), ad->b[0], scale);
    pl_build_product_dx(b, dy, pl_build_now(b, ad->b[0]), pl_arg(pl_build_now(b, da)), scale,
                        false);
    embed_bwd(b, ad->a, da, 0);
}

struct pl_val pl_build_forward(struct pl_builder *b, struct pl_val *trunk, struct pl_tape *tapes) {
    *trunk = embed(b);
    struct pl_val pending = PL_NO_VAL;
    for (uint64_t l = 0; l < b->m->layers && b->err == PL_ERR_OK; l++) {
        struct pl_tape scratch;
        b->layer = (uint32_t)l;
        pending = pl_build_layer(b, trunk, pending, tapes ? &tapes[l] : &scratch);
    }
    b->layer = PL_NONE;
    return pending;
}

static void backward(struct pl_builder *b, struct pl_tape *tapes, uint32_t dx) {
    uint64_t lowest = pl_build_lowest_layer(b);
    bool embedding = pl_build_embedding_trains(b);
    b->backward = true;
    for (uint64_t l = b->m->layers; l-- > lowest && b->err == PL_ERR_OK;) {
        b->layer = (uint32_t)l;
        pl_tape_backward(&tapes[l], dx, l > lowest || embedding);
    }
    b->layer = PL_NONE;
    if (embedding && b->err == PL_ERR_OK)
        embed_bwd(b, pl_build_weight(b, PL_SLOT_EMBED), dx, embed_scale(b));
    if (embedding) adapter_bwd(b, dx);
    b->backward = false;
}

static void micro_phase(struct pl_builder *b) {
    pl_build_begin_phase(b, PL_PHASE_MICRO);
    struct pl_tape *tapes = pl_calloc(b->m->layers, sizeof *tapes);
    if (!tapes) {
        b->err = pl_host_oom(b->d, "the plan");
        return;
    }
    pl_build_inputs(b);
    struct pl_val trunk, pending = pl_build_forward(b, &trunk, tapes);
    uint32_t dx = PL_NONE;
    if (pl_build_lowest_layer(b) < b->m->layers || pl_build_embedding_trains(b))
        dx = pl_build_activation(b, "dx", PL_ROWS_TOKENS, b->m->hidden);
    pl_build_head(b, trunk, pending, dx);
    if (dx != PL_NONE) backward(b, tapes, dx);
    free(tapes);
    pl_build_end_phase(b);
}

static void eval_phase(struct pl_builder *b) {
    pl_build_begin_phase(b, PL_PHASE_EVAL);
    pl_build_inputs(b);
    struct pl_val trunk, pending = pl_build_forward(b, &trunk, NULL);
    pl_build_head(b, trunk, pending, PL_NONE);
    pl_build_end_phase(b);
}

static void optimizer_phase(struct pl_builder *b) {
    pl_build_begin_phase(b, PL_PHASE_OPTIMIZER);
    pl_build_updates(b);
    pl_build_end_phase(b);
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

/* Where files are staged in pinned host memory, loading and saving take no device bytes. */
void pl_build_phases(struct pl_builder *b) {
    bool staged = b->p->traits.pinned_bytes == 0;
    if (staged && b->s->load && b->err == PL_ERR_OK) staging_phase(b, PL_PHASE_LOAD);
    if (b->s->inference) {
        if (b->err == PL_ERR_OK) pl_build_generate_phase(b);
        return;
    }
    if (b->err == PL_ERR_OK) micro_phase(b);
    if (b->err == PL_ERR_OK) optimizer_phase(b);
    if (b->s->eval && b->err == PL_ERR_OK) eval_phase(b);
    if (staged && b->s->save && b->err == PL_ERR_OK) staging_phase(b, PL_PHASE_SAVE);
}
