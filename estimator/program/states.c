/* states.c - what the optimizer keeps for each trainable tensor, and the ops that use it.
 *
 * With states in 8 bits each part of a tensor (pl_tensor_parts) has states of its own and is
 * updated by an op of its own; parts below PL_STATE8_MIN elements keep fp32 moments (Dettmers
 * et al., 8-bit Optimizers via Block-wise Quantization, arXiv 2110.02861). So do the embedding and
 * the head, of which a step sees few rows: a second moment that is small beside the largest of its
 * block becomes 0 as a code while the first moment does not, and m / (sqrt(0) + eps) moves a weight
 * by a thousand learning rates. The paper recommends it for embeddings (section 2.3), and
 * transformers' Trainer registers fp32 states for every nn.Embedding. */
#include "estimator/base/alloc.h"
#include "estimator/program/build.h"

#include "estimator/base/checked.h"

#include <stdlib.h>

/* The kinds of states, in the order they are laid out: each kind is one flat range. */
static const struct {
    enum pl_role role;
    const char *name;
} kinds[] = {
    {PL_ROLE_MOMENT1, "exp_avg"},
    {PL_ROLE_MOMENT2, "exp_avg_sq"},
    {PL_ROLE_MOMENT1_ABSMAX, "exp_avg.absmax"},
    {PL_ROLE_MOMENT2_ABSMAX, "exp_avg_sq.absmax"},
    {PL_ROLE_MASTER, "master"},
};
#define N_KINDS (sizeof kinds / sizeof *kinds)

static bool in_blocks(const struct pl_builder *b) {
    return b->s->optimizer == PL_OPTIMIZER_ADAMW_8BIT;
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

/* A state in 8 bits, or its absmax, of one part. */
static void add_part_state(struct pl_builder *b, uint32_t of, size_t kind,
                           const struct pl_part *part) {
    const struct pl_tensor *w = &b->p->tensors[of];
    bool absmax = pl_role_is_moment_absmax(kinds[kind].role);
    uint64_t n = part->rows * w->dims[1];
    bool exact = n < PL_STATE8_MIN || w->slot == PL_SLOT_EMBED || w->slot == PL_SLOT_HEAD;
    if (absmax && exact) return;
    struct pl_tensor t = {
        .name = kinds[kind].name,
        .layer = w->layer,
        .row = part->row,
        .of = of,
        .dims = {absmax ? pl_state8_blocks(n) : part->rows, absmax ? 1 : w->dims[1], 1},
        .dtype = absmax || exact ? PL_DTYPE_F32 : PL_DTYPE_U8,
        .category = PL_CATEGORY_OPTIMIZER,
        .scope = PL_SCOPE_JOB,
        .role = kinds[kind].role,
        .slot = w->slot,
        .decay = w->decay};
    pl_build_tensor(b, t);
}

static void add_state(struct pl_builder *b, uint32_t of, size_t kind) {
    struct pl_part parts[PL_MAX_PARTS];
    bool master = kinds[kind].role == PL_ROLE_MASTER;
    if (master ? !b->s->master_weights || b->p->tensors[of].dtype != PL_DTYPE_BF16
               : b->s->optimizer == PL_OPTIMIZER_SGD)
        return;
    if (pl_state_is_of_part(b->s, kinds[kind].role)) {
        uint32_t n = pl_tensor_parts(b->p, of, parts);
        for (uint32_t i = 0; i < n; i++)
            add_part_state(b, of, kind, &parts[i]);
    } else if (!pl_role_is_moment_absmax(kinds[kind].role)) {
        add_companion(b, of, kinds[kind].role, kinds[kind].name, PL_DTYPE_F32,
                      PL_CATEGORY_OPTIMIZER);
    }
}

void pl_build_states(struct pl_builder *b) {
    uint32_t n = b->p->n_tensors;
    for (uint32_t i = 0; i < n && b->err == PL_ERR_OK; i++)
        if (b->p->tensors[i].trainable) add_gradient(b, i);
    for (size_t k = 0; k < N_KINDS; k++)
        for (uint32_t i = 0; i < n && b->err == PL_ERR_OK; i++)
            if (b->p->tensors[i].trainable) add_state(b, i, k);
}

/* Where the states of the parts of every tensor stand: [tensor][part][role - MOMENT1]. */
struct state_index {
    uint32_t (*id)[PL_MAX_PARTS][PL_ROLE_MASTER - PL_ROLE_MOMENT1 + 1];
};

static uint32_t part_of_state(const struct pl_builder *b, const struct pl_tensor *state) {
    struct pl_part parts[PL_MAX_PARTS];
    if (!pl_state_is_of_part(b->s, state->role)) return 0;
    uint32_t n = pl_tensor_parts(b->p, state->of, parts);
    for (uint32_t i = 0; i < n; i++)
        if (parts[i].row == state->row) return i;
    return 0;
}

static bool index_states(struct pl_builder *b, struct state_index *index) {
    uint32_t n = b->p->n_tensors;
    size_t per_tensor = sizeof *index->id / sizeof(uint32_t);
    index->id = pl_malloc(n * sizeof *index->id);
    if (!index->id) {
        b->err = pl_host_oom(b->d, "the plan");
        return false;
    }
    uint32_t *flat = (uint32_t *)index->id;
    for (size_t i = 0; i < n * per_tensor; i++)
        flat[i] = PL_NONE;
    for (uint32_t i = 0; i < n; i++) {
        const struct pl_tensor *t = &b->p->tensors[i];
        if (t->role >= PL_ROLE_MOMENT1 && t->role <= PL_ROLE_MASTER)
            index->id[t->of][part_of_state(b, t)][t->role - PL_ROLE_MOMENT1] = i;
    }
    return true;
}

static struct pl_operand state(const struct pl_builder *b, const struct state_index *index,
                               uint32_t of, uint32_t part, enum pl_role role) {
    uint32_t id = index->id[of][part][role - PL_ROLE_MOMENT1];
    return id == PL_NONE ? pl_arg_none : pl_arg(pl_build_now(b, id));
}

/* A launch costs a GPU about as much as the update of a small tensor: its kernels take many tensors
 * at a time. */
static bool joins(const struct pl_builder *b) {
    return b->p->traits.backend == PL_BACKEND_CUDA;
}

static void update_parts(struct pl_builder *b, uint32_t id, struct pl_attr attr,
                         const struct state_index *index) {
    struct pl_part parts[PL_MAX_PARTS];
    uint32_t n = pl_tensor_parts(b->p, id, parts);
    for (uint32_t i = 0; i < n && b->err == PL_ERR_OK; i++) {
        uint64_t row0 = parts[i].row0, rows = parts[i].rows;
        struct pl_operand w = pl_arg_rows(pl_build_now(b, id), row0, rows);
        struct pl_operand g = pl_arg_rows(pl_build_now(b, b->grad[id]), row0, rows);
        struct pl_operand m = state(b, index, id, i, PL_ROLE_MOMENT1);
        struct pl_operand v = state(b, index, id, i, PL_ROLE_MOMENT2);
        struct pl_operand ma = state(b, index, id, i, PL_ROLE_MOMENT1_ABSMAX);
        struct pl_operand va = state(b, index, id, i, PL_ROLE_MOMENT2_ABSMAX);
        struct pl_operand master = state(b, index, id, 0, PL_ROLE_MASTER);
        if (master.id != PL_NONE) master = pl_arg_rows(pl_build_now(b, master.id), row0, rows);
        struct pl_operand in[] = {w, g, m, v, pl_arg(pl_build_now(b, b->p->clip)), ma, va, master};
        struct pl_operand out[] = {w, m, v, ma, va, master};
        attr.site = id * PL_MAX_PARTS + i; /* one stream of roundings a part */
        PL_EMIT(b, ADAMW_8BIT, attr, in, out);
    }
}

static void update(struct pl_builder *b, uint32_t id, const struct state_index *index) {
    struct pl_attr attr = {.decay = b->p->tensors[id].decay, .joins = joins(b), .site = id};
    if (in_blocks(b)) {
        update_parts(b, id, attr, index);
        return;
    }
    struct pl_operand w = pl_arg(pl_build_now(b, id)), g = pl_arg(pl_build_now(b, b->grad[id]));
    struct pl_operand clip = pl_arg(pl_build_now(b, b->p->clip));
    struct pl_operand master = state(b, index, id, 0, PL_ROLE_MASTER);
    if (b->s->optimizer == PL_OPTIMIZER_SGD) {
        struct pl_operand in[] = {w, g, clip, master}, out[] = {w, master};
        PL_EMIT(b, SGD, attr, in, out);
        return;
    }
    struct pl_operand m = state(b, index, id, 0, PL_ROLE_MOMENT1);
    struct pl_operand v = state(b, index, id, 0, PL_ROLE_MOMENT2);
    struct pl_operand in[] = {w, g, m, v, clip, master}, out[] = {w, m, v, master};
    PL_EMIT(b, ADAMW, attr, in, out);
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
    struct state_index states;
    uint32_t n = b->p->n_tensors, index = 0;
    if (!index_states(b, &states)) return;
    for (uint32_t i = 0; i < n && b->err == PL_ERR_OK; i++)
        if (b->p->tensors[i].trainable) square_sum(b, i, index++);
    struct pl_operand clip = pl_arg(pl_build_now(b, b->p->clip));
    struct pl_operand in[] = {pl_arg(pl_build_now(b, b->partials)),
                              pl_arg(pl_build_now(b, b->p->loss)), clip};
    struct pl_operand out[] = {clip};
    PL_EMIT(b, CLIP_SCALE, (struct pl_attr){.max_norm = (float)b->s->max_grad_norm}, in, out);
    for (uint32_t i = 0; i < n && b->err == PL_ERR_OK; i++)
        if (b->p->tensors[i].trainable) update(b, i, &states);
    free(states.id);
}
