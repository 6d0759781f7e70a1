/* listed.c - see listed.h. */
#include "tests/program/listed.h"

#include "tests/plan/planning.h"

#include <string.h>

/* --- a digest of a plan, by names where there are names ------------------------------------------
 */

static void add_number(struct pl_digest *h, uint64_t v) {
    pl_digest_add(h, &v, sizeof v);
}

static void add_real(struct pl_digest *h, double v) {
    pl_digest_add(h, &v, sizeof v);
}

static void add_text(struct pl_digest *h, const char *s) {
    pl_digest_add(h, s, strlen(s) + 1);
}

static void add_tensor(struct pl_digest *h, const struct pl_plan *plan, uint32_t id) {
    const struct pl_tensor *t = &plan->program->tensors[id];
    const struct pl_place_row *place = &plan->places[id];
    const uint64_t numbers[] = {t->dims[0], t->dims[1],    t->dims[2],      t->bytes,
                                t->layer,   t->row,        t->of,           (uint64_t)t->rows,
                                t->dtype,   t->scope,      t->place,        t->trainable,
                                t->decay,   place->offset, place->first_op, place->last_op};
    char name[96];
    pl_tensor_name(plan->program, id, name);
    add_text(h, name);
    add_text(h, pl_category_name(t->category));
    add_text(h, t->scope == PL_SCOPE_STEP ? pl_phase_name(t->phase) : "");
    pl_digest_add(h, numbers, sizeof numbers);
}

static void add_attr(struct pl_digest *h, const struct pl_attr *a) {
    const double reals[] = {a->alpha,    a->eps,    a->scale, a->dropout,
                            a->max_norm, a->spread, a->offset};
    const uint64_t numbers[] = {
        a->accumulate, a->add_dx,   a->inverse, a->gradient,      a->decay,
        a->not_first,  a->joins,    a->quant,   a->start,         a->heads,
        a->kv_heads,   a->head_dim, a->rot_dim, a->window,        a->long_from,
        a->context,    a->site,     a->stream,  a->first_element, (uint64_t)a->padding_idx};
    pl_digest_add(h, reals, sizeof reals);
    pl_digest_add(h, numbers, sizeof numbers);
    if (a->unit_offset) add_number(h, a->unit_offset); /* as if it had always been there */
}

static void add_operands(struct pl_digest *h, const struct pl_operand *list, uint32_t n) {
    add_number(h, n);
    for (uint32_t i = 0; i < n; i++) {
        const struct pl_operand *o = &list[i];
        const uint32_t numbers[] = {o->id,   o->version, o->col,      o->cols,
                                    o->row0, o->nrows,   o->batch_row};
        pl_digest_add(h, numbers, sizeof numbers);
    }
}

static void add_op(struct pl_digest *h, const struct pl_op *op) {
    add_text(h, pl_op_name(op->kind));
    add_text(h, pl_phase_name(op->phase));
    add_number(h, op->layer);
    add_number(h, op->backward * 4u + op->recompute * 2u + op->host);
    add_attr(h, &op->attr);
    add_operands(h, op->in, op->n_in);
    add_operands(h, op->out, op->n_out);
    add_real(h, op->flops);
}

void pl_test_digest_plan(struct pl_digest *h, const struct pl_plan *plan) {
    const struct pl_program *p = plan->program;
    add_number(h, p->n_tensors);
    for (uint32_t i = 0; i < p->n_tensors; i++)
        add_tensor(h, plan, i);
    add_number(h, p->n_ops);
    for (uint32_t i = 0; i < p->n_ops; i++)
        add_op(h, &p->ops[i]);
    add_number(h, plan->job_bytes);
    add_number(h, plan->batch_bytes);
}

/* --- shapes --------------------------------------------------------------------------------------
 */

const char *const pl_test_modes[] = {"full", "lora", "qlora", "inference"};
static const uint32_t modes[PL_TEST_MODES] = {PL_MODE_FULL, PL_MODE_LORA, PL_MODE_QLORA,
                                              PL_MODE_LORA};

struct pl_job_shape pl_test_listed_shape(const struct pl_model *m, int mode) {
    struct pl_job_shape s = pl_test_shape(m, modes[mode], PL_RECOMPUTE_NONE, 2, 1024);
    s.inference = strcmp(pl_test_modes[mode], "inference") == 0;
    if (s.inference) s.eval = s.save = s.master_weights = false;
    return s;
}

/* What makes a variant of the shape; what a mode does not know changes nothing there. */
static const struct variant {
    uint32_t recompute, optimizer, offload;
    bool embedding_on_host, update_on_host, exact_gradients, drops, freezes, packs, head4, in_fp32,
        base_bf16;
} variants[] = {
    {.exact_gradients = true},
    {.recompute = PL_RECOMPUTE_FULL, .exact_gradients = true},
    {.recompute = PL_RECOMPUTE_EVERY_N(2)},
    {.recompute = PL_RECOMPUTE_MIX(PL_RECOMPUTE_FULL, 3, PL_RECOMPUTE_LIGHT)},
    {.optimizer = PL_OPTIMIZER_ADAMW_8BIT},
    {.optimizer = PL_OPTIMIZER_SGD},
    {.recompute = PL_RECOMPUTE_FULL, .offload = PL_OFFLOAD_OPTIMIZER},
    {.recompute = PL_RECOMPUTE_FULL, .offload = PL_OFFLOAD_GRADIENTS, .exact_gradients = true},
    {.recompute = PL_RECOMPUTE_FULL, .offload = PL_OFFLOAD_GRADIENTS, .update_on_host = true},
    {.recompute = PL_RECOMPUTE_OFFLOAD, .offload = PL_OFFLOAD_WEIGHTS},
    {.recompute = PL_RECOMPUTE_LIGHT, .offload = PL_OFFLOAD_WEIGHTS, .embedding_on_host = true},
    {.offload = PL_OFFLOAD_WEIGHTS, .update_on_host = true, .optimizer = PL_OPTIMIZER_ADAMW_8BIT},
    {.recompute = PL_RECOMPUTE_FULL, .drops = true},
    {.recompute = PL_RECOMPUTE_ATTENTION, .drops = true, .in_fp32 = true},
    {.freezes = true},
    {.recompute = PL_RECOMPUTE_MLP, .packs = true, .head4 = true},
    {.in_fp32 = true, .base_bf16 = true},
};

_Static_assert(sizeof variants / sizeof *variants == PL_TEST_VARIANTS, "all of them");

void pl_test_vary(struct pl_job_shape *s, int variant) {
    const struct variant *v = &variants[variant];
    if (!s->inference) { /* which nothing of this is asked about */
        s->recompute = v->recompute;
        s->optimizer = v->optimizer ? v->optimizer : s->optimizer;
        s->offload = v->offload;
        s->update_on_host = v->update_on_host;
        s->embedding_on_host = v->embedding_on_host && s->mode != PL_MODE_FULL;
        s->packing = v->packs;
        s->freeze_layers = v->freezes ? 2 : 0;
        s->lora_dropout = v->drops && pl_mode_adapts(s->mode) ? 0.05 : 0;
    }
    s->quantize_head = v->head4 && s->mode == PL_MODE_QLORA;
    if (v->in_fp32) {
        s->dtype = s->gradient_dtype = PL_DTYPE_F32;
        s->master_weights = false;
        s->base_bf16 = v->base_bf16 && s->mode == PL_MODE_LORA;
    }
    if (v->exact_gradients) s->gradient_dtype = PL_DTYPE_F32;
}
