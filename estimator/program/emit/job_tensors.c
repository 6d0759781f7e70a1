/* job_tensors.c - what lives for the whole run: weights, adapters, gradients, optimizer states. */
#include "estimator/program/emit/exchange.h"

#include "estimator/base/checked.h"

#include <string.h>

static bool trains_whole(const struct pl_builder *b, enum pl_slot slot) {
    return !b->s->inference && pl_shape_is_whole(b->s, b->m, slot);
}

static bool needs_embedding_gradient(const struct pl_builder *b) {
    return trains_whole(b, PL_SLOT_EMBED) ||
           (!b->s->inference && (pl_shape_adapts(b->s, b->m, PL_SLOT_EMBED) ||
                                 pl_shape_adapts(b->s, b->m, PL_SLOT_INPUT_MODEL)));
}

bool pl_build_embedding_trains(const struct pl_builder *b) {
    if (needs_embedding_gradient(b)) return true;
    return b->s->mode == PL_MODE_FULL && b->s->freeze_layers == 0;
}

/* The gradient of the embedding comes through every layer. */
uint64_t pl_build_lowest_layer(const struct pl_builder *b) {
    if (needs_embedding_gradient(b)) return 0;
    uint64_t lowest = pl_u64_min(b->s->freeze_layers, b->m->layers);
    if (!pl_mode_adapts(b->s->mode)) return lowest;
    while (lowest < b->m->layers && !pl_shape_adapted_rows(b->s, lowest))
        lowest++;
    return lowest;
}

/* A tied head is the embedding, so it is frozen together with it, unless it is trained whole. */
static bool slot_trains(const struct pl_builder *b, enum pl_slot slot, uint64_t layer) {
    if (trains_whole(b, slot)) return true;
    if (b->s->mode != PL_MODE_FULL || b->s->inference) return false;
    if (slot == PL_SLOT_EMBED || slot == PL_SLOT_INPUT_EMBED || slot == PL_SLOT_INPUT_MODEL ||
        slot == PL_SLOT_INPUT_NORM)
        return pl_build_embedding_trains(b);
    struct pl_slot_shape shape;
    pl_model_slot(b->m, layer, slot, &shape);
    return !shape.buffer && (!shape.per_layer || layer >= b->s->freeze_layers);
}

/* A weight that is trained is no part of the base. */
static enum pl_dtype weight_dtype(const struct pl_builder *b, enum pl_slot slot) {
    return pl_shape_is_whole(b->s, b->m, slot) ? b->s->dtype : pl_shape_base_dtype(b->s);
}

static void add_weight(struct pl_builder *b, enum pl_slot slot, uint64_t layer) {
    struct pl_slot_shape shape;
    pl_model_slot(b->m, layer, slot, &shape);
    uint32_t *id = &b->weight[layer * PL_SLOT_COUNT + slot];
    *id = PL_NONE;
    const bool copy = slot == PL_SLOT_HEAD && pl_shape_unties(b->s, b->m);
    if (!shape.present && !copy) return;
    if (pl_build_is_quantised(b, layer, slot)) {
        pl_build_quantised_weight(b, slot, layer);
        return;
    }
    *id =
        pl_build_tensor(b, (struct pl_tensor){.name = shape.name,
                                              .layer = shape.per_layer ? (uint32_t)layer : PL_NONE,
                                              .dims = {shape.rows, shape.cols, 1},
                                              .dtype = weight_dtype(b, slot),
                                              .category = PL_CATEGORY_WEIGHTS,
                                              .scope = PL_SCOPE_JOB,
                                              .role = PL_ROLE_WEIGHT,
                                              .slot = slot,
                                              .of = PL_NONE,
                                              .trainable = slot_trains(b, slot, layer),
                                              .decay = !shape.vector});
}

static void add_weights(struct pl_builder *b) {
    for (uint64_t l = 0; l < b->m->layers; l++) {
        if (pl_program_skips(b->p, l)) continue;
        for (uint32_t s = 0; s < PL_SLOT_COUNT; s++) {
            struct pl_slot_shape shape;
            pl_model_slot(b->m, l, s, &shape);
            if (shape.per_layer || l == 0) add_weight(b, s, l);
        }
    }
    if (b->m->tied && !pl_shape_unties(b->s, b->m))
        b->weight[PL_SLOT_HEAD] = b->weight[PL_SLOT_EMBED];
}

static uint32_t add_adapter_matrix(struct pl_builder *b, enum pl_role role, enum pl_slot slot,
                                   uint32_t layer, uint32_t row, uint64_t rows, uint64_t cols) {
    return pl_build_tensor(b,
                           (struct pl_tensor){.name = role == PL_ROLE_LORA_A ? "lora_a" : "lora_b",
                                              .layer = layer,
                                              .dims = {rows, cols, 1},
                                              .dtype = b->s->adapter_dtype,
                                              .category = PL_CATEGORY_ADAPTER,
                                              .scope = PL_SCOPE_JOB,
                                              .role = role,
                                              .slot = slot,
                                              .row = row,
                                              .of = PL_NONE,
                                              .trainable = !b->s->inference,
                                              .decay = true});
}

static void read_as_kept(struct pl_adapter_slot *a) {
    a->read_a = a->a;
    memcpy(a->read_b, a->b, sizeof a->read_b);
    a->read_all_b = PL_NONE;
}

/* layer PL_NONE: of a slot that the model has once, which is in layer 0 of the list. */
static void add_slot_adapter(struct pl_builder *b, enum pl_slot slot, uint32_t layer) {
    struct pl_adapter_slot *a = &b->adapter[pl_build_slot_index(layer, slot)];
    struct pl_param_row rows[PL_MODEL_SLOT_ROWS];
    uint32_t index[PL_MODEL_SLOT_ROWS], row_of_part[PL_MAX_PARTS];
    struct pl_slot_shape shape;
    pl_model_slot(b->m, layer, slot, &shape);
    const pl_row_set adapted = pl_shape_adapted_rows(b->s, layer);
    const uint32_t n_rows = adapted ? pl_model_slot_rows(b->m, layer, slot, rows, index) : 0;
    for (uint32_t i = 0; i < n_rows; i++) {
        if (!pl_row_set_has(adapted, index[i])) continue;
        row_of_part[a->n_parts] = index[i];
        a->row0[a->n_parts] = (uint32_t)rows[i].row0;
        a->rows[a->n_parts++] = (uint32_t)(shape.turned ? rows[i].cols : rows[i].rows);
    }
    if (!a->n_parts) return;
    const uint64_t r = b->s->lora_r, experts = shape.experts ? shape.experts : 1;
    a->a =
        add_adapter_matrix(b, PL_ROLE_LORA_A, slot, layer, row_of_part[0], experts * a->n_parts * r,
                           shape.turned ? shape.rows / experts : shape.cols);
    for (uint32_t p = 0; p < a->n_parts; p++)
        a->b[p] = add_adapter_matrix(b, PL_ROLE_LORA_B, slot, layer, row_of_part[p],
                                     experts * a->rows[p], r);
    read_as_kept(a);
}

/* Rows of A are looked up by token: it is held as PEFT's [r,V] turned round. */
static void add_embedding_adapter(struct pl_builder *b, const struct pl_param_row *rows,
                                  uint32_t n_rows) {
    struct pl_adapter_slot *a = &b->adapter[pl_build_slot_index(PL_NONE, PL_SLOT_EMBED)];
    for (uint32_t i = 0; i < n_rows; i++) {
        if (rows[i].slot != PL_SLOT_EMBED || !pl_row_set_has(b->s->lora_targets.once, i)) continue;
        *a = (struct pl_adapter_slot){.n_parts = 1, .rows = {(uint32_t)rows[i].cols}};
        a->a = add_adapter_matrix(b, PL_ROLE_LORA_A, PL_SLOT_EMBED, PL_NONE, i, rows[i].rows,
                                  b->s->lora_r);
        a->b[0] = add_adapter_matrix(b, PL_ROLE_LORA_B, PL_SLOT_EMBED, PL_NONE, i, rows[i].cols,
                                     b->s->lora_r);
        read_as_kept(a);
    }
}

static bool is_of_layers(const struct pl_builder *b, enum pl_slot slot) {
    struct pl_slot_shape shape;
    pl_model_slot(b->m, 0, slot, &shape);
    return shape.per_layer;
}

static void add_adapters(struct pl_builder *b) {
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    uint32_t n_rows = pl_model_modules(b->m, rows);
    for (uint64_t l = pl_build_lowest_layer(b); l < b->m->layers; l++)
        for (uint32_t s = 0; s < PL_SLOT_COUNT && !pl_program_skips(b->p, l); s++)
            if (is_of_layers(b, s)) add_slot_adapter(b, s, (uint32_t)l);
    add_slot_adapter(b, PL_SLOT_HEAD, PL_NONE);
    add_slot_adapter(b, PL_SLOT_INPUT_MODEL, PL_NONE);
    add_embedding_adapter(b, rows, n_rows);
}

static uint32_t add_scalar_row(struct pl_builder *b, const char *name, enum pl_role role,
                               enum pl_dtype dtype, uint64_t n) {
    return pl_build_tensor(b, (struct pl_tensor){.name = name,
                                                 .layer = PL_NONE,
                                                 .dims = {n, 1, 1},
                                                 .dtype = dtype,
                                                 .category = PL_CATEGORY_BATCH,
                                                 .scope = PL_SCOPE_JOB,
                                                 .role = role,
                                                 .of = PL_NONE});
}

static uint32_t add_table(struct pl_builder *b, const struct pl_rope *rope, uint32_t which,
                          uint64_t rows) {
    return pl_build_tensor(b, (struct pl_tensor){.name = "rope",
                                                 .layer = which,
                                                 .dims = {rows, rope->dim / 2, 2},
                                                 .dtype = PL_DTYPE_F32,
                                                 .category = PL_CATEGORY_WEIGHTS,
                                                 .scope = PL_SCOPE_JOB,
                                                 .role = PL_ROLE_ROPE,
                                                 .of = PL_NONE});
}

static void add_tables(struct pl_builder *b) {
    b->rope[0] = b->rope[1] = b->query_rope = b->second_rope = PL_NONE;
    const struct pl_rope *rope = &b->m->rope[0];
    const bool far =
        pl_rope_follows_length(rope) && b->s->max_seq_length > rope->original_max_positions;
    const bool joined = far && b->s->long_by_sample;
    const uint64_t rows = b->s->max_seq_length * (joined ? 2 : 1);
    const uint32_t n = far && !joined ? 2 : 1;
    for (uint32_t i = 0; i < n; i++)
        b->rope[i] = add_table(b, rope, i, rows);
    if (pl_rope_grows_queries(rope, b->s->max_seq_length))
        b->query_rope = add_table(b, rope, PL_ROPE_OF_QUERIES, rows);
    if (b->m->n_ropes > 1)
        b->second_rope = add_table(b, &b->m->rope[1], PL_ROPE_SECOND, b->s->max_seq_length);
}

/* Kernels of a GPU read from its memory what differs between micro-batches of one shape, so that a
 * graph that was captured for one of them can be replayed for another. */
static void add_scalars(struct pl_builder *b) {
    b->p->loss = b->p->clip = b->p->facts = PL_NONE;
    if (b->p->traits.backend == PL_BACKEND_CUDA)
        b->p->facts = add_scalar_row(b, "facts", PL_ROLE_FACTS, PL_DTYPE_U64, PL_FACTS_WORDS);
    if (b->s->inference) return;
    b->p->loss = add_scalar_row(b, "loss", PL_ROLE_LOSS, PL_DTYPE_F64, 2);
    b->p->clip = add_scalar_row(b, "clip", PL_ROLE_NORM, PL_DTYPE_F64, 2);
    if (b->s->gradients != PL_GRADIENTS_OF_JOB) /* P4: of smaller micro-batches, too */
        b->loss_again = add_scalar_row(b, "loss_again", PL_ROLE_NONE, PL_DTYPE_F64, 2);
}

/* Returns the number of partial sums of squares of gradients: one a tensor, or one a block if ranks
 * share the sum. */
static uint64_t count_partials(const struct pl_builder *b) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < b->p->n_tensors && b->err == PL_ERR_OK; i++)
        if (b->p->tensors[i].trainable)
            n += (pl_shape_is_of_ranks(b->s) ? pl_build_blocks(b, i) : 1) *
                 (1 + pl_tensor_left_out(b->p, &b->p->tensors[i]));
    return n;
}

void pl_build_job_tensors(struct pl_builder *b) {
    add_weights(b);
    if (pl_mode_adapts(b->s->mode)) add_adapters(b);
    pl_build_states(b);
    add_tables(b);
    add_scalars(b);
    if (b->s->inference) {
        pl_build_kv_cache(b);
        return;
    }
    b->partials = add_scalar_row(b, "norm_partials", PL_ROLE_NONE, PL_DTYPE_F64,
                                 pl_u64_max(count_partials(b), 1));
    b->n_job_tensors = b->p->n_tensors;
}
