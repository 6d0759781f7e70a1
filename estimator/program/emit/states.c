/* states.c - what the optimizer keeps for each trainable tensor, and the ops that use it.
 *
 * The row of the optimizer (optimizers.h) says which states there are, how they are stored and
 * which op updates with them. With states in blocks each part of a tensor (pl_tensor_parts) has
 * states of its own and is updated by an op of its own; parts that are too small for blocks to be
 * worth it, the embedding and the head keep states in `moment_dtype`. */
#include "estimator/base/alloc.h"
#include "estimator/program/emit/exchange.h"

#include "estimator/base/checked.h"

#include <stdlib.h>
#include <string.h>

static const struct pl_optimizer *optimizer_of(const struct pl_builder *b) {
    return pl_optimizer_row(b->s->optimizer);
}

/* True if a rank holds only its own rows of states, and updates only them. */
static bool is_cut(const struct pl_builder *b) {
    return b->s->sharding >= PL_SHARDING_OPTIMIZER;
}

/* PL_NONE: none of its rows are this rank's. */
static uint32_t add_companion(struct pl_builder *b, uint32_t of, enum pl_role role,
                              const char *name, enum pl_dtype dtype, enum pl_category category) {
    struct pl_tensor t = b->p->tensors[of];
    const bool cut = role == PL_ROLE_GRAD ? pl_shape_cuts_gradients(b->s) : is_cut(b);
    if (cut) t.dims[0] = pl_build_owned_rows(b, of);
    if (t.dims[0] == 0) return PL_NONE;
    t.name = name;
    t.dtype = dtype;
    t.category = category;
    t.role = role;
    t.of = of;
    t.trainable = false;
    return pl_build_tensor(b, t);
}

enum pl_dtype pl_build_gradient_dtype(const struct pl_builder *b, uint32_t tensor) {
    const struct pl_tensor *w = &b->p->tensors[tensor];
    return w->category == PL_CATEGORY_ADAPTER ? w->dtype : b->s->gradient_dtype;
}

static void add_gradient(struct pl_builder *b, uint32_t of) {
    if (b->s->gradients != PL_GRADIENTS_OF_JOB) return; /* in_backward.c */
    b->grad[of] = add_companion(b, of, PL_ROLE_GRAD, "grad", pl_build_gradient_dtype(b, of),
                                PL_CATEGORY_GRADIENTS);
}

static void add_master(struct pl_builder *b, uint32_t of) {
    const struct pl_tensor *t = &b->p->tensors[of];
    bool asked = t->role == PL_ROLE_WEIGHT ? b->s->master_weights : b->s->adapter_masters;
    if (asked && pl_dtype_is_narrow(t->dtype))
        add_companion(b, of, PL_ROLE_MASTER, PL_MASTER_NAME, PL_DTYPE_F32, PL_CATEGORY_OPTIMIZER);
}

/* State k, or its scales, of the rows of one part that this rank has. How they are stored follows
 * from the whole part, so that it does not depend on the number of ranks. */
static void add_part_state(struct pl_builder *b, uint32_t of, uint8_t k, bool scales,
                           const struct pl_part *part, uint64_t rows) {
    const struct pl_tensor *w = &b->p->tensors[of];
    const struct pl_state *state = &optimizer_of(b)->states[k];
    const struct pl_state_form *form = state->form;
    const bool vocabulary = w->slot == PL_SLOT_EMBED || w->slot == PL_SLOT_HEAD;
    const uint64_t n = part->rows * w->dims[1];
    const bool exact = n < form->least || (vocabulary && form->exact_vocabulary);
    if (rows == 0 || (scales && (exact || !form->block))) return;
    struct pl_tensor t = {.name = scales ? state->scales : state->name,
                          .layer = w->layer,
                          .row = part->row,
                          .of = of,
                          .dims = {scales ? pl_u64_div_up(rows * w->dims[1], form->block) : rows,
                                   scales ? 1 : w->dims[1], 1},
                          .dtype = scales  ? PL_DTYPE_F32
                                   : exact ? b->s->moment_dtype
                                           : form->dtype,
                          .category = PL_CATEGORY_OPTIMIZER,
                          .scope = PL_SCOPE_JOB,
                          .role = scales ? PL_ROLE_STATE_ABSMAX : PL_ROLE_STATE,
                          .slot = w->slot,
                          .decay = w->decay,
                          .state = k};
    pl_build_tensor(b, t);
}

static void add_state(struct pl_builder *b, uint32_t of, uint8_t k, bool scales) {
    struct pl_owned parts[PL_MAX_PARTS];
    if (pl_optimizer_is_in_blocks(b->s->optimizer)) {
        uint32_t n = pl_build_shards(b, of, parts);
        for (uint32_t i = 0; i < n; i++)
            add_part_state(b, of, k, scales, &parts[i].part,
                           is_cut(b) ? parts[i].own.rows : parts[i].part.rows);
    } else if (!scales) {
        const struct pl_state *state = &optimizer_of(b)->states[k];
        const enum pl_dtype form = state->form->dtype;
        const enum pl_dtype dtype = form == PL_DTYPE_F32 ? b->s->moment_dtype : form;
        uint32_t id =
            add_companion(b, of, PL_ROLE_STATE, state->name, dtype, PL_CATEGORY_OPTIMIZER);
        if (b->err == PL_ERR_OK && id != PL_NONE) b->p->tensors[id].state = k;
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

/* The states of a part of a tensor; PL_NONE for those that it has not. */
struct kept {
    uint32_t state[PL_STATES_MAX], scales[PL_STATES_MAX];
    uint32_t master; /* master of the whole tensor, stored with its first part */
};

/* The states of all parts of a tensor. */
struct pl_parts_kept {
    struct kept of[PL_MAX_PARTS];
    uint32_t norm_row; /* index among the partial sums of the norm, one for each trained tensor */
};

static uint32_t part_of_state(const struct pl_builder *b, const struct pl_tensor *state) {
    struct pl_part parts[PL_MAX_PARTS];
    if (!pl_state_is_of_part(b->s, state->role)) return 0;
    uint32_t n = pl_tensor_parts(b->p, state->of, parts);
    for (uint32_t i = 0; i < n; i++)
        if (parts[i].row == state->row) return i;
    return 0;
}

static void index_state(const struct pl_builder *b, uint32_t id, struct pl_parts_kept *index) {
    const struct pl_tensor *t = &b->p->tensors[id];
    if (t->role < PL_ROLE_STATE || t->role > PL_ROLE_MASTER) return;
    struct kept *kept = &index[t->of].of[part_of_state(b, t)];
    if (t->role == PL_ROLE_MASTER)
        kept->master = id;
    else
        (t->role == PL_ROLE_STATE ? kept->state : kept->scales)[t->state] = id;
}

void pl_build_begin_updates(struct pl_builder *b) {
    const uint32_t n = b->n_job_tensors;
    uint32_t row = 0;
    if (b->err != PL_ERR_OK) return;
    struct pl_parts_kept *index = pl_malloc(n * sizeof *index);
    if (!index) {
        b->err = pl_host_oom(b->d, "the plan");
        return;
    }
    memset(index, 0xff, n * sizeof *index); /* PL_NONE */
    for (uint32_t i = 0; i < n; i++) {
        index_state(b, i, index);
        if (b->p->tensors[i].trainable) index[i].norm_row = row++;
    }
    b->updates = index;
}

void pl_build_end_updates(struct pl_builder *b) {
    free(b->updates);
    b->updates = NULL;
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

/* The rows of a tensor that an update is for: in the weight, in tensors that hold as many rows as
 * the weight or only this rank's, and in states of a part. */
struct stretch {
    uint64_t row0, n; /* rows of the weight; n 0: all rows of every tensor */
    uint64_t at;      /* in master, and in states that are of the whole weight */
    uint64_t grad_at; /* in the gradient */
    uint64_t first;   /* element, of what random numbers are counted by */
    uint32_t site;
};

static struct pl_operand rows_of(const struct pl_builder *b, uint32_t id, uint64_t row0,
                                 uint64_t n) {
    return n == 0 || id == PL_NONE ? whole(b, id) : pl_arg_rows(pl_build_now(b, id), row0, n);
}

/* States of a part hold the rows of the stretch alone. */
static struct pl_operand state_rows(const struct pl_builder *b, uint32_t id,
                                    const struct stretch *s) {
    return pl_optimizer_is_in_blocks(b->s->optimizer) ? whole(b, id) : rows_of(b, id, s->at, s->n);
}

/* The operands in the order of estimator/config/optimizers.h. */
static void update(struct pl_builder *b, uint32_t id, const struct stretch *s,
                   const struct kept *kept, uint32_t master) {
    const struct pl_optimizer *optimizer = optimizer_of(b);
    const uint32_t first = kept->state[0];
    const enum pl_dtype states = first == PL_NONE ? PL_DTYPE_F32 : b->p->tensors[first].dtype;
    const enum pl_op_kind op = pl_optimizer_op(b->s->optimizer, states);
    const struct pl_attr attr = {.decay = b->p->tensors[id].decay,
                                 .joins = joins(b),
                                 .site = s->site,
                                 .first_element = s->first};
    struct update u = {.n_in = 0};
    changes(&u, rows_of(b, id, s->row0, s->n));
    reads(&u, rows_of(b, b->grad[id], s->grad_at, s->n));
    for (int k = 0; optimizer->states[k].name; k++)
        changes(&u, state_rows(b, kept->state[k], s));
    reads(&u, whole(b, b->p->clip));
    for (int k = 0; optimizer->states[k].name; k++)
        if (op == optimizer->op && optimizer->states[k].form->block)
            changes(&u, whole(b, kept->scales[k]));
    changes(&u, rows_of(b, master, s->at, s->n));
    pl_build_op(b, op, attr, u.in, u.n_in, u.out, u.n_out);
}

/* The stream of random numbers of a part that has states of its own. Runs that resume rely on those
 * of the first three parts; a fourth one's are counted from the other end. */
static uint32_t site_of_part(uint32_t id, uint32_t part) {
    enum { PARTS = 3 };
    return part < PARTS ? id * PARTS + part : UINT32_MAX - id;
}

/* The rows of a part that are this rank's to update. Random numbers are counted from where its
 * states begin: a part with states of its own has a stream of its own. */
static struct stretch stretch_of(const struct pl_builder *b, uint32_t id, uint32_t part,
                                 const struct pl_owned *p) {
    const bool cut = is_cut(b), own_states = pl_optimizer_is_in_blocks(b->s->optimizer);
    const uint64_t skipped = cut ? p->own.row0 : 0, cols = b->p->tensors[id].dims[1];
    const uint64_t row0 = p->part.row0 + skipped;
    const bool part_alone = pl_tensor_is_cut(b->s, &b->p->tensors[id]);
    return (struct stretch){.row0 = part_alone ? p->at : row0,
                            .n = cut ? p->own.rows : p->part.rows,
                            .at = cut ? p->at : row0,
                            .grad_at = pl_shape_cuts_gradients(b->s) ? p->at : row0,
                            .first = (own_states ? skipped : row0) * cols,
                            .site = own_states ? site_of_part(id, part) : id};
}

void pl_build_update(struct pl_builder *b, uint32_t id) {
    struct pl_owned parts[PL_MAX_PARTS];
    if (b->err != PL_ERR_OK) return;
    const struct kept *kept = b->updates[id].of;
    const bool own_states = pl_optimizer_is_in_blocks(b->s->optimizer);
    if (!own_states && !is_cut(b)) {
        update(b, id, &(struct stretch){.site = id}, kept, kept->master);
        return;
    }
    const uint32_t n = pl_build_shards(b, id, parts);
    for (uint32_t i = 0; i < n && b->err == PL_ERR_OK; i++) {
        const struct stretch s = stretch_of(b, id, i, &parts[i]);
        if (s.n) update(b, id, &s, &kept[own_states ? i : 0], kept->master);
    }
}

void pl_build_square_sum(struct pl_builder *b, struct pl_operand g, uint64_t block,
                         struct pl_operand partial) {
    if (b->err != PL_ERR_OK) return;
    const struct pl_tensor *t = &b->p->tensors[g.id];
    const uint64_t n = g.nrows ? g.nrows : t->dims[0];
    struct pl_attr attr = {.joins = joins(b), .block_rows = (uint32_t)block};
    struct pl_operand ws = pl_build_workspace(b, PL_OP_SQUARE_SUM, &attr, n, t->dims[1]);
    struct pl_operand in[] = {g, partial, ws};
    struct pl_operand out[] = {partial};
    PL_EMIT(b, SQUARE_SUM, attr, in, out);
}

bool pl_build_trained(struct pl_builder *b, uint32_t *i) {
    while (*i < b->n_job_tensors && !b->p->tensors[*i].trainable)
        ++*i;
    const bool more = *i < b->n_job_tensors && b->err == PL_ERR_OK;
    b->layer = more ? b->p->tensors[*i].layer : PL_NONE;
    return more;
}

void pl_build_norm_of(struct pl_builder *b, uint32_t id) {
    if (b->err != PL_ERR_OK) return;
    const uint32_t row = b->updates[id].norm_row;
    pl_build_square_sum(b, whole(b, b->grad[id]), 0,
                        pl_arg_rows(pl_build_now(b, b->partials), row, 1));
}

void pl_build_clip(struct pl_builder *b) {
    if (b->err != PL_ERR_OK) return;
    struct pl_operand clip = whole(b, b->p->clip);
    struct pl_operand in[] = {whole(b, b->partials), whole(b, b->p->loss), clip};
    struct pl_operand out[] = {clip};
    PL_EMIT(b, CLIP_SCALE, (struct pl_attr){.max_norm = (float)b->s->max_grad_norm}, in, out);
}

void pl_build_updates(struct pl_builder *b) {
    const bool of_ranks = pl_shape_is_of_ranks(b->s);
    pl_build_begin_updates(b);
    if (pl_shape_exchanges_once(b->s)) pl_build_exchange_step(b);
    if (of_ranks)
        pl_build_norm_of_ranks(b);
    else
        for (uint32_t i = 0; pl_build_trained(b, &i); i++)
            pl_build_norm_of(b, i);
    pl_build_clip(b);
    if (of_ranks && !is_cut(b)) pl_build_share_all(b, true);
    for (uint32_t i = 0; pl_build_trained(b, &i); i++)
        pl_build_update(b, i);
    if (is_cut(b)) pl_build_share_all(b, false);
    pl_build_end_updates(b);
}
