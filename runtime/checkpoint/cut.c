#include "runtime/checkpoint/cut.h"

#include "estimator/base/alloc.h"
#include "estimator/program/shard.h"

#include <stdlib.h>

static bool is_state(enum pl_role role) {
    return role >= PL_ROLE_STATE && role <= PL_ROLE_MASTER;
}

static uint32_t find_own(const struct pl_cut *c, const struct pl_program *held, uint32_t id) {
    const struct pl_tensor *t = &c->whole->tensors[id];
    if (!is_state(t->role)) return id;
    for (uint32_t i = 0; i < held->n_tensors; i++) {
        const struct pl_tensor *o = &held->tensors[i];
        if (o->role == t->role && o->of == t->of && o->state == t->state && o->row == t->row)
            return i;
    }
    return PL_NONE;
}

/* Weights and adapters come first in both programs, in the same order. */
static pl_err find_all(struct pl_cut *c, const struct pl_program *held, struct pl_diag *d) {
    c->own = pl_malloc(((size_t)c->whole->n_tensors + 1) * sizeof *c->own);
    if (!c->own) return pl_host_oom(d, "the list of tensors");
    for (uint32_t i = 0; i < c->whole->n_tensors; i++) {
        const struct pl_tensor *t = &c->whole->tensors[i];
        c->own[i] = t->scope == PL_SCOPE_JOB ? find_own(c, held, i) : PL_NONE;
    }
    return PL_ERR_OK;
}

pl_err pl_cut_init(struct pl_cut *c, const struct pl_program *held, struct pl_diag *d) {
    struct pl_job_shape shape = held->shape;
    shape.ranks = 1;
    shape.rank = 0;
    shape.sharding = PL_SHARDING_NONE;
    *c = (struct pl_cut){.shape = held->shape};
    PL_TRY(pl_program_create(held->model, &shape, &held->traits, &c->whole, d));
    pl_err err = find_all(c, held, d);
    if (err != PL_ERR_OK) pl_cut_finish(c);
    return err;
}

void pl_cut_finish(struct pl_cut *c) {
    pl_program_destroy(&c->whole);
    free(c->own);
    *c = (struct pl_cut){0};
}

bool pl_cut_is_scattered(const struct pl_cut *c) {
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    bool adapts = false;
    if (!c->whole) return false;
    const uint32_t n = pl_model_modules(c->whole->model, rows);
    for (uint32_t i = 0; i < n; i++)
        adapts |= pl_row_is_parameter(&rows[i]) && pl_row_set_has(c->shape.lora_targets.rows, i);
    return adapts;
}

bool pl_cut_is_cut(const struct pl_cut *c, uint32_t tensor) {
    const struct pl_tensor *t = &c->whole->tensors[tensor];
    if (is_state(t->role)) return c->shape.sharding >= PL_SHARDING_OPTIMIZER;
    return pl_tensor_is_cut(&c->shape, t);
}

/* Rows of a part as elements of the tensor: of a state of it, as many, or scales of them. */
static uint64_t elements_of(const struct pl_cut *c, uint32_t tensor, uint64_t rows) {
    const struct pl_tensor *t = &c->whole->tensors[tensor];
    const uint32_t of = is_state(t->role) ? t->of : tensor;
    const uint64_t n = rows * c->whole->tensors[of].dims[1];
    return t->role == PL_ROLE_STATE_ABSMAX ? pl_u64_div_up(n, PL_STATE8_BLOCK) : n;
}

uint32_t pl_cut_ranges(const struct pl_cut *c, uint32_t tensor, uint32_t rank,
                       struct pl_cut_range out[PL_MAX_PARTS]) {
    const struct pl_tensor *t = &c->whole->tensors[tensor];
    const bool of_part = pl_state_is_of_part(&c->whole->shape, t->role);
    struct pl_owned shards[PL_MAX_PARTS];
    const uint32_t n = pl_tensor_shards(c->whole, is_state(t->role) ? t->of : tensor,
                                        pl_shape_ranks(&c->shape), rank, shards);
    uint32_t ranges = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct pl_owned *s = &shards[i];
        if (of_part && s->part.row != t->row) continue;
        const uint64_t row0 = (of_part ? 0 : s->part.row0) + s->own.row0;
        out[ranges++] =
            (struct pl_cut_range){elements_of(c, tensor, row0), elements_of(c, tensor, s->own.rows),
                                  elements_of(c, tensor, of_part ? 0 : s->at)};
    }
    return ranges;
}
