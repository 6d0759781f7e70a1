/* states.c - what the optimizer keeps for each trainable tensor, and the ops that use it.
 *
 * Which states, how they are stored and which op updates with them is the row of the optimizer
 * (optimizers.h). With states in blocks each part of a tensor (pl_tensor_parts) has states of its
 * own and is updated by an op of its own; parts too small to be worth it, and the embedding and the
 * head, keep fp32 ones. */
#include "estimator/base/alloc.h"
#include "estimator/program/build/build.h"

#include "estimator/base/checked.h"

#include <stdlib.h>
#include <string.h>

static const struct pl_optimizer *optimizer_of(const struct pl_builder *b) {
    return pl_optimizer_row(b->s->optimizer);
}

static uint32_t add_companion(struct pl_builder *b, uint32_t of, enum pl_role role,
                              const char *name, enum pl_dtype dtype, enum pl_category category) {
    struct pl_tensor t = b->p->tensors[of];
    t.name = name;
    t.dtype = dtype;
    t.category = category;
    t.role = role;
    t.of = of;
    t.trainable = false;
    return pl_build_tensor(b, t);
}

static void add_gradient(struct pl_builder *b, uint32_t of) {
    const struct pl_tensor *w = &b->p->tensors[of];
    enum pl_dtype dtype = w->category == PL_CATEGORY_ADAPTER ? w->dtype : b->s->gradient_dtype;
    b->grad[of] = add_companion(b, of, PL_ROLE_GRAD, "grad", dtype, PL_CATEGORY_GRADIENTS);
    b->n_trainable++;
}

static void add_master(struct pl_builder *b, uint32_t of) {
    const struct pl_tensor *t = &b->p->tensors[of];
    bool asked = t->role == PL_ROLE_WEIGHT ? b->s->master_weights : b->s->adapter_masters;
    if (asked && t->dtype == PL_DTYPE_BF16)
        add_companion(b, of, PL_ROLE_MASTER, PL_MASTER_NAME, PL_DTYPE_F32, PL_CATEGORY_OPTIMIZER);
}

/* State k, or its scales, of one part. */
static void add_part_state(struct pl_builder *b, uint32_t of, uint8_t k, bool scales,
                           const struct pl_part *part) {
    const struct pl_tensor *w = &b->p->tensors[of];
    const struct pl_state *state = &optimizer_of(b)->states[k];
    const struct pl_state_form *form = state->form;
    const bool vocabulary = w->slot == PL_SLOT_EMBED || w->slot == PL_SLOT_HEAD;
    const uint64_t n = part->rows * w->dims[1];
    const bool exact = n < form->least || (vocabulary && form->exact_vocabulary);
    if (scales && (exact || !form->block)) return;
    struct pl_tensor t = {
        .name = scales ? state->scales : state->name,
        .layer = w->layer,
        .row = part->row,
        .of = of,
        .dims = {scales ? pl_u64_div_up(n, form->block) : part->rows, scales ? 1 : w->dims[1], 1},
        .dtype = scales || exact ? PL_DTYPE_F32 : form->dtype,
        .category = PL_CATEGORY_OPTIMIZER,
        .scope = PL_SCOPE_JOB,
        .role = scales ? PL_ROLE_STATE_ABSMAX : PL_ROLE_STATE,
        .slot = w->slot,
        .decay = w->decay,
        .state = k};
    pl_build_tensor(b, t);
}

static enum pl_dtype dtype_of_state(const struct pl_builder *b, const struct pl_state *state) {
    return state->form->dtype == PL_DTYPE_F32 ? b->s->moment_dtype : state->form->dtype;
}

static void add_state(struct pl_builder *b, uint32_t of, uint8_t k, bool scales) {
    struct pl_part parts[PL_MAX_PARTS];
    if (pl_optimizer_is_in_blocks(b->s->optimizer)) {
        uint32_t n = pl_tensor_parts(b->p, of, parts);
        for (uint32_t i = 0; i < n; i++)
            add_part_state(b, of, k, scales, &parts[i]);
    } else if (!scales) {
        const struct pl_state *state = &optimizer_of(b)->states[k];
        uint32_t id = add_companion(b, of, PL_ROLE_STATE, state->name, dtype_of_state(b, state),
                                    PL_CATEGORY_OPTIMIZER);
        if (b->err == PL_ERR_OK) b->p->tensors[id].state = k;
    }
}

static bool is_trained(const struct pl_builder *b, uint32_t id) {
    return b->err == PL_ERR_OK && b->p->tensors[id].trainable;
}

/* Each kind is one flat range: gradients, the states one after another, their scales, masters. */
void pl_build_states(struct pl_builder *b) {
    const struct pl_state *states = optimizer_of(b)->states;
    const uint32_t n = b->p->n_tensors;
    for (uint32_t i = 0; i < n; i++)
        if (is_trained(b, i)) add_gradient(b, i);
    for (int scales = 0; scales < 2; scales++)
        for (uint8_t k = 0; states[k].name; k++)
            for (uint32_t i = 0; i < n; i++)
                if (is_trained(b, i)) add_state(b, i, k, scales);
    for (uint32_t i = 0; i < n; i++)
        if (is_trained(b, i)) add_master(b, i);
}

/* What is kept for a part of a tensor; PL_NONE where there is none of it. */
struct kept {
    uint32_t state[PL_STATES_MAX], scales[PL_STATES_MAX];
    uint32_t master; /* of the whole tensor; kept with its first part */
};

/* Of the parts of a tensor. */
struct parts_kept {
    struct kept of[PL_MAX_PARTS];
};

static uint32_t part_of_state(const struct pl_builder *b, const struct pl_tensor *state) {
    struct pl_part parts[PL_MAX_PARTS];
    if (!pl_state_is_of_part(b->s, state->role)) return 0;
    uint32_t n = pl_tensor_parts(b->p, state->of, parts);
    for (uint32_t i = 0; i < n; i++)
        if (parts[i].row == state->row) return i;
    return 0;
}

static void index_state(const struct pl_builder *b, uint32_t id, struct parts_kept *index) {
    const struct pl_tensor *t = &b->p->tensors[id];
    if (t->role < PL_ROLE_STATE || t->role > PL_ROLE_MASTER) return;
    struct kept *kept = &index[t->of].of[part_of_state(b, t)];
    if (t->role == PL_ROLE_MASTER)
        kept->master = id;
    else
        (t->role == PL_ROLE_STATE ? kept->state : kept->scales)[t->state] = id;
}

/* Those of the job stand before those of its steps. */
static uint32_t count_job_tensors(const struct pl_program *p) {
    uint32_t n = 0;
    while (n < p->n_tensors && p->tensors[n].scope == PL_SCOPE_JOB)
        n++;
    return n;
}

/* By tensor; NULL: no memory. */
static struct parts_kept *index_states(struct pl_builder *b, uint32_t n) {
    struct parts_kept *index = pl_malloc(n * sizeof *index);
    if (!index) {
        b->err = pl_host_oom(b->d, "the plan");
        return NULL;
    }
    memset(index, 0xff, n * sizeof *index); /* PL_NONE */
    for (uint32_t i = 0; i < n; i++)
        index_state(b, i, index);
    return index;
}

/* A launch costs a GPU about as much as the update of a small tensor: its kernels take many tensors
 * at a time. */
static bool joins(const struct pl_builder *b) {
    return b->p->traits.backend == PL_BACKEND_CUDA;
}

struct update { /* an op under construction */
    struct pl_operand in[PL_OP_MAX_IN], out[PL_OP_MAX_OUT];
    uint32_t n_in, n_out;
};

static void reads(struct update *u, struct pl_operand o) {
    u->in[u->n_in++] = o;
}

static void changes(struct update *u, struct pl_operand o) {
    reads(u, o);
    u->out[u->n_out++] = o;
}

static struct pl_operand whole(const struct pl_builder *b, uint32_t id) {
    return id == PL_NONE ? pl_arg_none : pl_arg(pl_build_now(b, id));
}

/* The rows of a part; part NULL: all. */
static struct pl_operand rows_of(const struct pl_builder *b, uint32_t id,
                                 const struct pl_part *part) {
    if (!part || id == PL_NONE) return whole(b, id);
    return pl_arg_rows(pl_build_now(b, id), part->row0, part->rows);
}

/* The operands in the order of estimator/config/optimizers.h. */
static void update(struct pl_builder *b, uint32_t id, const struct pl_part *part,
                   const struct kept *kept, uint32_t master, uint32_t site) {
    const struct pl_optimizer *optimizer = optimizer_of(b);
    const struct pl_attr attr = {.decay = b->p->tensors[id].decay, .joins = joins(b), .site = site};
    struct update u = {.n_in = 0};
    changes(&u, rows_of(b, id, part));
    reads(&u, rows_of(b, b->grad[id], part));
    for (int k = 0; optimizer->states[k].name; k++)
        changes(&u, whole(b, kept->state[k]));
    reads(&u, whole(b, b->p->clip));
    for (int k = 0; optimizer->states[k].name; k++)
        if (optimizer->states[k].form->block) changes(&u, whole(b, kept->scales[k]));
    changes(&u, rows_of(b, master, part));
    pl_build_op(b, optimizer->op, attr, u.in, u.n_in, u.out, u.n_out);
}

/* One stream of roundings a tensor, or a part of it where parts have states of their own. */
static void update_tensor(struct pl_builder *b, uint32_t id, const struct kept *kept) {
    struct pl_part parts[PL_MAX_PARTS];
    if (!pl_optimizer_is_in_blocks(b->s->optimizer)) {
        update(b, id, NULL, kept, kept->master, id);
        return;
    }
    uint32_t n = pl_tensor_parts(b->p, id, parts);
    for (uint32_t i = 0; i < n && b->err == PL_ERR_OK; i++)
        update(b, id, &parts[i], &kept[i], kept->master, id * PL_MAX_PARTS + i);
}

static void square_sum(struct pl_builder *b, uint32_t id, uint32_t index) {
    const struct pl_tensor *g = &b->p->tensors[b->grad[id]];
    struct pl_attr attr = {.joins = joins(b)};
    struct pl_operand ws = pl_build_workspace(b, PL_OP_SQUARE_SUM, &attr, g->dims[0], g->dims[1]);
    struct pl_operand partial = pl_arg_rows(pl_build_now(b, b->partials), index, 1);
    struct pl_operand in[] = {pl_arg(pl_build_now(b, b->grad[id])), partial, ws};
    struct pl_operand out[] = {partial};
    PL_EMIT(b, SQUARE_SUM, attr, in, out);
}

void pl_build_updates(struct pl_builder *b) {
    const uint32_t n = count_job_tensors(b->p);
    uint32_t index = 0;
    struct parts_kept *states = index_states(b, n);
    if (!states) return;
    for (uint32_t i = 0; i < n && b->err == PL_ERR_OK; i++)
        if (b->p->tensors[i].trainable) square_sum(b, i, index++);
    struct pl_operand clip = pl_arg(pl_build_now(b, b->p->clip));
    struct pl_operand in[] = {pl_arg(pl_build_now(b, b->partials)),
                              pl_arg(pl_build_now(b, b->p->loss)), clip};
    struct pl_operand out[] = {clip};
    PL_EMIT(b, CLIP_SCALE, (struct pl_attr){.max_norm = (float)b->s->max_grad_norm}, in, out);
    for (uint32_t i = 0; i < n && b->err == PL_ERR_OK; i++)
        if (b->p->tensors[i].trainable) update_tensor(b, i, states[i].of);
    free(states);
}
