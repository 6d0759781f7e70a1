#include "estimator/plan/plan_digest.h"

#include <string.h>

static void add_number(struct pl_digest *h, uint64_t v) {
    pl_digest_add(h, &v, sizeof v);
}

static void add_real(struct pl_digest *h, double v) {
    pl_digest_add(h, &v, sizeof v);
}

static void add_text(struct pl_digest *h, const char *s) {
    pl_digest_add(h, s, strlen(s) + 1);
}

/* `place` is {0} where the program alone counts. */
static void add_tensor(struct pl_digest *h, const struct pl_program *p, uint32_t id,
                       const struct pl_place_row *place) {
    const struct pl_tensor *t = &p->tensors[id];
    const uint64_t numbers[] = {t->dims[0], t->dims[1],    t->dims[2],      t->bytes,
                                t->layer,   t->row,        t->of,           (uint64_t)t->rows,
                                t->dtype,   t->scope,      t->place,        t->trainable,
                                t->decay,   place->offset, place->first_op, place->last_op};
    char name[96];
    pl_tensor_name(p, id, name);
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
    /* as if these had always been there */
    if (a->unit_offset) add_number(h, a->unit_offset);
    if (a->columns) add_number(h, a->columns);
    if (a->softmax_first || a->normalise) add_number(h, 2u * a->softmax_first + a->normalise);
    if (a->limit != 0) add_real(h, a->limit);
    if (a->aux_coef != 0) add_real(h, a->aux_coef);
    if (a->aux_layers) add_number(h, a->aux_layers);
    const uint64_t later[] = {a->first_expert,  a->expert_rows, a->matrices, a->matrix_elements,
                              a->matrix_stride, a->taps,        a->key_dim,  a->key_parts};
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        if (later[i]) {
            add_number(h, i);
            add_number(h, later[i]);
        }
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

/* The operands that an op has always had; those that it got later count where they are there, as if
 * a row had never been shorter. */
static uint32_t count_operands(const struct pl_operand *list, uint32_t n, uint32_t always) {
    while (n > always && list[n - 1].id == PL_NONE)
        n--;
    return n;
}

static void add_all_operands(struct pl_digest *h, const struct pl_op *op) {
    uint32_t n_in = op->n_in, n_out = op->n_out;
    if (op->kind == PL_OP_CROSS_ENTROPY) {
        n_in = count_operands(op->in, n_in, PL_CROSS_ENTROPY_WEIGHTS);
        n_out = count_operands(op->out, n_out, PL_CROSS_ENTROPY_OUT_LOGP);
    }
    if (op->kind == PL_OP_ATTENTION) n_in = count_operands(op->in, n_in, PL_ATTENTION_SINKS);
    if (op->kind == PL_OP_ATTENTION_CACHED)
        n_in = count_operands(op->in, n_in, PL_ATTENTION_CACHED_SINKS);
    add_operands(h, op->in, n_in);
    add_operands(h, op->out, n_out);
}

static void add_op(struct pl_digest *h, const struct pl_op *op) {
    add_text(h, pl_op_name(op->kind));
    add_text(h, pl_phase_name(op->phase));
    add_number(h, op->layer);
    add_number(h, op->backward * 4u + op->recompute * 2u + op->host);
    add_attr(h, &op->attr);
    add_all_operands(h, op);
    add_real(h, op->flops);
}

static void add_all(struct pl_digest *h, const struct pl_program *p,
                    const struct pl_place_row *places) {
    static const struct pl_place_row nowhere = {0};
    add_number(h, p->n_tensors);
    for (uint32_t i = 0; i < p->n_tensors; i++)
        add_tensor(h, p, i, places ? &places[i] : &nowhere);
    add_number(h, p->n_ops);
    for (uint32_t i = 0; i < p->n_ops; i++)
        add_op(h, &p->ops[i]);
}

void pl_digest_add_program(struct pl_digest *h, const struct pl_program *p) {
    add_all(h, p, NULL);
}

void pl_digest_add_plan(struct pl_digest *h, const struct pl_plan *plan) {
    add_all(h, plan->program, plan->places);
    add_number(h, plan->job_bytes);
    add_number(h, plan->batch_bytes);
}
