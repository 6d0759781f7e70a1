/* program.c - what a program has, by name and by role. */
#include "estimator/program/program.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const category_names[] = {
#define X(c, name) name,
    PL_CATEGORY_MAP(X)
#undef X
};
static const char *const phase_names[] = {"load",  "step",      "optimizer", "eval",
                                          "score", "reference", "save",      "generate"};
static const char *const place_names[PL_PLACE_COUNT] = {"device", "pinned", "host"};
_Static_assert(sizeof phase_names / sizeof *phase_names == PL_PHASE_COUNT, "one name a phase");

const char *pl_category_name(enum pl_category c) {
    return category_names[c];
}
const char *pl_phase_name(enum pl_phase p) {
    return phase_names[p];
}
const char *pl_place_name(enum pl_tensor_place p) {
    return place_names[p];
}

void pl_program_destroy(struct pl_program **p) {
    if (!*p) return;
    free((*p)->tensors);
    free((*p)->ops);
    free((*p)->operands);
    free((*p)->layers_equal);
    free(*p);
    *p = NULL;
}

/* The module a tensor belongs to, for its name: "q_proj." or, of a stack of several, "qkv.". */
static void module_name(const struct pl_program *p, const struct pl_tensor *t, char buf[32]) {
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    struct pl_slot_shape shape;
    buf[0] = 0;
    if (t->role == PL_ROLE_LORA_A) {
        pl_model_slot(p->model, t->layer, t->slot, &shape);
        snprintf(buf, 32, "%s.", shape.name);
    } else if (t->role == PL_ROLE_LORA_B || t->role == PL_ROLE_CODES) {
        pl_model_modules(p->model, rows);
        snprintf(buf, 32, "%s.", rows[t->row].module);
    }
}

/* ".exp_avg"; of a state that only one part of a tensor has, ".q_proj.exp_avg". */
static void suffix_name(const struct pl_program *p, const struct pl_tensor *t, char buf[48]) {
    struct pl_part parts[PL_MAX_PARTS];
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    const char *module = NULL;
    if (pl_state_is_of_part(&p->shape, t->role) && pl_tensor_parts(p, t->of, parts) > 1) {
        pl_model_rows(p->model, rows);
        module = rows[t->row].module;
    }
    snprintf(buf, 48, ".%s%s%s", module ? module : "", module ? "." : "", t->name);
}

void pl_tensor_name(const struct pl_program *p, uint32_t id, char buf[96]) {
    const struct pl_tensor *t = &p->tensors[id];
    if (t->role == PL_ROLE_COPY) {
        pl_tensor_name(p, t->of, buf);
        size_t n = strlen(buf);
        snprintf(buf + n, 96 - n, ".%s", t->name);
        return;
    }
    char module[32], suffix[48] = "";
    if (t->of != PL_NONE) {
        suffix_name(p, t, suffix);
        t = &p->tensors[t->of];
    }
    module_name(p, t, module);
    if (t->layer == PL_NONE)
        snprintf(buf, 96, "%s%s%s", module, t->name, suffix);
    else
        snprintf(buf, 96, "layers.%u.%s%s%s", t->layer, module, t->name, suffix);
}

static uint32_t add_part(struct pl_part *out, uint32_t n, struct pl_part part) {
    out[n] = part;
    return n + 1;
}

_Static_assert(PL_MODEL_SLOT_ROWS <= PL_MAX_PARTS, "room for the rows of a slot");

uint32_t pl_tensor_parts(const struct pl_program *p, uint32_t id,
                         struct pl_part out[PL_MAX_PARTS]) {
    const struct pl_tensor *t = &p->tensors[id];
    struct pl_param_row rows[PL_MODEL_SLOT_ROWS];
    uint32_t index[PL_MODEL_SLOT_ROWS];
    if (t->role == PL_ROLE_LORA_B || t->role == PL_ROLE_CODES)
        return add_part(out, 0, (struct pl_part){t->row, 0, t->dims[0]});
    uint32_t n = 0, n_rows = pl_model_slot_rows(p->model, t->layer, t->slot, rows, index);
    if (n_rows && rows[0].experts)
        return add_part(
            out, 0, (struct pl_part){t->role == PL_ROLE_WEIGHT ? index[0] : t->row, 0, t->dims[0]});
    for (uint32_t i = 0; i < n_rows; i++) {
        const uint32_t r = index[i];
        if (t->role == PL_ROLE_WEIGHT)
            n = add_part(out, n, (struct pl_part){r, rows[i].row0, rows[i].rows});
        else if (t->slot == PL_SLOT_EMBED)
            n = add_part(out, n, (struct pl_part){r, 0, t->dims[0]});
        else if (pl_row_set_has(pl_shape_adapted_rows(&p->shape, t->layer),
                                r)) /* stacked in row order */
            n = add_part(out, n, (struct pl_part){r, n * p->shape.lora_r, p->shape.lora_r});
    }
    return n;
}

uint32_t pl_program_together(const struct pl_program *p, uint32_t first, uint32_t end) {
    const struct pl_op *a = &p->ops[first];
    uint32_t n = 1;
    for (; first + n < end; n++) {
        const struct pl_op *op = &p->ops[first + n];
        if (!op->attr.joins || op->kind != a->kind || op->phase != a->phase || op->host != a->host)
            break;
    }
    return n;
}

/* The first op of a kind in [op, end), or end. */
static uint32_t find_kind(const struct pl_program *p, uint32_t op, uint32_t end,
                          enum pl_op_kind kind) {
    while (op < end && p->ops[op].kind != kind)
        op++;
    return op;
}

static uint32_t find_update(const struct pl_program *p, uint32_t op, uint32_t end) {
    while (op < end && !pl_optimizer_updates_by(p->shape.optimizer, p->ops[op].kind))
        op++;
    return op;
}

/* Cuts the ops of a micro-batch where its weights have to be there. */
static void cut_at_weights(const struct pl_program *p, struct pl_step_ops *s) {
    const uint32_t first = s->micro.first_op, end = first + s->micro.n_ops;
    uint32_t at = first;
    if (!p->shape.keeps_first_pass) return;
    while (at < end && !(p->ops[at].kind == PL_OP_CROSS_ENTROPY && p->ops[at].attr.gradient))
        at++;
    s->score = (struct pl_phase_range){first, at - first};
    s->learn = (struct pl_phase_range){at, end - at};
}

struct pl_step_ops pl_program_step_ops(const struct pl_program *p) {
    const struct pl_phase_range *micro = &p->phases[PL_PHASE_MICRO];
    const struct pl_phase_range *last = &p->phases[PL_PHASE_OPTIMIZER];
    struct pl_step_ops s = {.micro = *micro};
    uint32_t first = last->first_op, end = first + last->n_ops;
    if (p->shape.gradients != PL_GRADIENTS_OF_JOB) {
        const bool held = p->shape.gradients == PL_GRADIENTS_OF_STEP;
        end = micro->first_op + micro->n_ops;
        first = held ? find_kind(p, micro->first_op, end, PL_OP_SQUARE_SUM)
                     : find_update(p, micro->first_op, end);
        s.micro.n_ops = first - micro->first_op;
    }
    uint32_t commit = first;
    if (p->shape.gradients != PL_GRADIENTS_OF_UPDATE)
        commit = find_kind(p, first, end, PL_OP_CLIP_SCALE) + 1;
    s.norm = (struct pl_phase_range){first, commit - first};
    s.commit = (struct pl_phase_range){commit, end - commit};
    cut_at_weights(p, &s);
    return s;
}

uint32_t pl_program_find(const struct pl_program *p, enum pl_role role, enum pl_slot slot,
                         uint32_t layer) {
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct pl_tensor *t = &p->tensors[i];
        if (t->role == role && t->layer == layer &&
            (role > PL_ROLE_CODES || role == PL_ROLE_NONE || t->slot == slot))
            return i;
    }
    return PL_NONE;
}
