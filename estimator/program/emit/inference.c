/* inference.c - inference: the KV cache, attention over it, and the one phase that serves prompts
 * and single tokens alike.
 *
 * A run of GENERATE holds a piece of every sequence that has tokens to compute: up to `tokens` of
 * prompts, or one each, in a prefix of the same rows. Only rows from which a token is wanted go
 * through the head, at most one per sequence.
 *
 * A job that trains has the phase for its samples, with a sequence at a time. Their cache is a
 * tensor of the phase, so that it takes the place of what a micro-batch keeps, not a place of its
 * own. */
#include "estimator/program/emit/tape.h"

#include "estimator/base/checked.h"

#include <string.h>

/* Prompt tokens computed at once. Products reach the speed of the machine with fewer; more would
 * only enlarge the activations. */
#define PROMPT_TOKENS 512

/* Room for one token of every sequence at least. */
uint64_t pl_build_generate_tokens(const struct pl_job_shape *s, uint64_t seqs) {
    const uint64_t all = seqs * s->max_seq_length; /* check_sizes: below 2^31 */
    return pl_u64_max(seqs, pl_u64_min(all, PROMPT_TOKENS));
}

static uint32_t add_cache(struct pl_builder *b, const char *name, enum pl_role role,
                          uint64_t layer) {
    return pl_build_tensor(b,
                           (struct pl_tensor){.name = name,
                                              .layer = (uint32_t)layer,
                                              .dims = {b->s->batch_size * b->s->max_seq_length,
                                                       pl_layer_kv_columns(&b->m->layer[layer]), 1},
                                              .dtype = b->s->dtype,
                                              .category = PL_CATEGORY_KV_CACHE,
                                              .scope = PL_SCOPE_JOB,
                                              .role = role,
                                              .of = PL_NONE});
}

/* --- what linear attention keeps: whatever the length of a sequence, the same bytes --- */

static bool is_delta(const struct pl_builder *b, uint64_t layer) {
    return b->m->layer[layer].kind == PL_LAYER_GATED_DELTA;
}

/* The number of layers before this one that keep the same. */
static uint64_t place_of(const struct pl_builder *b, uint64_t layer) {
    uint64_t n = 0;
    for (uint64_t i = 0; i < layer; i++)
        n += is_delta(b, i) == is_delta(b, layer);
    return n;
}

static uint64_t layers_of(const struct pl_builder *b, bool delta) {
    uint64_t n = 0;
    for (uint64_t i = 0; i < b->m->layers; i++)
        n += is_delta(b, i) == delta;
    return n;
}

/* Rows of a sequence that a convolution looks back to; a tensor has one at least. */
static uint64_t rows_kept(const struct pl_builder *b) {
    return pl_u64_max(b->m->delta.taps - 1, 1);
}

static uint64_t state_columns(const struct pl_builder *b) {
    return pl_delta_values(&b->m->delta) * b->m->delta.key_dim;
}

static uint32_t add_delta_cache(struct pl_builder *b, const char *name, uint64_t layer,
                                uint64_t rows, uint64_t cols, enum pl_dtype dtype) {
    return pl_build_tensor(b, (struct pl_tensor){.name = name,
                                                 .layer = (uint32_t)layer,
                                                 .dims = {b->s->batch_size * rows, cols, 1},
                                                 .dtype = dtype,
                                                 .category = PL_CATEGORY_KV_CACHE,
                                                 .scope = PL_SCOPE_JOB,
                                                 .of = PL_NONE});
}

static void add_sample_states(struct pl_builder *b) {
    const uint64_t n = layers_of(b, true);
    if (!n) return;
    b->sample_delta[0] =
        pl_build_step(b, "last_channels", PL_ROWS_FIXED, n * rows_kept(b),
                      pl_delta_channels(&b->m->delta), b->s->dtype, PL_CATEGORY_KV_CACHE);
    b->sample_delta[1] = pl_build_step(b, "delta_state", PL_ROWS_FIXED, n, state_columns(b),
                                       PL_DTYPE_F32, PL_CATEGORY_KV_CACHE);
}

struct pl_operand pl_build_last_channels(const struct pl_builder *b) {
    const uint64_t rows = rows_kept(b);
    if (b->s->inference) return pl_arg(pl_build_now(b, b->kv[2 * b->layer]));
    return pl_arg_rows(pl_build_now(b, b->sample_delta[0]), place_of(b, b->layer) * rows, rows);
}

struct pl_operand pl_build_delta_state(const struct pl_builder *b) {
    if (b->s->inference) return pl_arg(pl_build_now(b, b->kv[2 * b->layer + 1]));
    return pl_arg_rows(pl_build_now(b, b->sample_delta[1]), place_of(b, b->layer), 1);
}

/* --- keys and values --- */

/* The layer whose keys and values a layer reads: itself, or an earlier one. */
static uint64_t holder_of(const struct pl_builder *b, uint64_t layer) {
    const uint16_t shared = b->m->layer[layer].kv_layer;
    return shared ? shared - 1u : layer;
}

void pl_build_kv_cache(struct pl_builder *b) {
    for (uint64_t l = 0; l < b->m->layers; l++) {
        const uint64_t holder = holder_of(b, l);
        const bool delta = is_delta(b, l);
        uint32_t *kept = &b->kv[2 * l];
        if (holder != l) {
            memcpy(kept, &b->kv[2 * holder], 2 * sizeof *b->kv);
            continue;
        }
        kept[0] = delta ? add_delta_cache(b, "last_channels", l, rows_kept(b),
                                          pl_delta_channels(&b->m->delta), b->s->dtype)
                        : add_cache(b, "k_cache", PL_ROLE_KEYS, l);
        kept[1] = delta ? add_delta_cache(b, "delta_state", l, 1, state_columns(b), PL_DTYPE_F32)
                        : add_cache(b, "v_cache", PL_ROLE_VALUES, l);
    }
}

/* One tensor for all layers with attention; a layer with fewer columns uses the first ones. */
static uint32_t add_sample_cache(struct pl_builder *b, const char *name, enum pl_role role) {
    uint64_t rows, columns = 0;
    for (uint32_t i = 0; i < b->m->layers; i++)
        columns = pl_u64_max(columns, pl_layer_kv_columns(&b->m->layer[i]));
    if (!pl_u64_mul(layers_of(b, false), b->s->max_seq_length, &rows) || rows > UINT32_MAX) {
        b->err = pl_diag_set(b->d, PL_ERR_OVERFLOW,
                             "the cache of samples has more rows than 32 bits can count");
        return PL_NONE;
    }
    const uint32_t id =
        pl_build_step(b, name, PL_ROWS_FIXED, rows, columns, b->s->dtype, PL_CATEGORY_KV_CACHE);
    if (b->err == PL_ERR_OK) b->p->tensors[id].role = role;
    return id;
}

/* Keys (0) or values (1) that the current layer has in the cache. */
static struct pl_operand cache_of_layer(const struct pl_builder *b, int which) {
    const uint64_t rows = b->s->max_seq_length;
    if (b->s->inference) return pl_arg(pl_build_now(b, b->kv[2 * b->layer + which]));
    struct pl_operand cache = pl_arg_rows(pl_build_now(b, b->sample_kv[which]),
                                          place_of(b, holder_of(b, b->layer)) * rows, rows);
    if (b->k < b->p->tensors[cache.id].dims[1]) cache.cols = (uint32_t)b->k;
    return cache;
}

/* Keys and values of this run come into the cache, unless they are those of an earlier layer. */
static void append_kv(struct pl_builder *b, struct pl_attr attr, const struct pl_operand qkv[3]) {
    struct pl_operand kc = cache_of_layer(b, 0), vc = cache_of_layer(b, 1);
    struct pl_operand in[] = {qkv[1], qkv[2], pl_arg(b->in.positions), pl_arg(b->in.offsets),
                              kc,     vc};
    struct pl_operand out[] = {kc, vc};
    if (holder_of(b, b->layer) == b->layer) PL_EMIT(b, KV_APPEND, attr, in, out);
}

struct pl_val pl_build_cached_attention(struct pl_builder *b, struct pl_attr attr,
                                        const struct pl_operand qkv[3], struct pl_operand sinks) {
    attr.context = (uint32_t)b->s->max_seq_length;
    append_kv(b, attr, qkv);
    uint32_t o = pl_build_activation(b, "o", PL_ROWS_TOKENS, b->q);
    struct pl_operand ws = pl_build_workspace(b, PL_OP_ATTENTION_CACHED, &attr, b->n, b->q);
    struct pl_operand in[] = {qkv[0],
                              cache_of_layer(b, 0),
                              cache_of_layer(b, 1),
                              pl_arg(b->in.positions),
                              pl_arg(b->in.offsets),
                              ws,
                              sinks};
    struct pl_operand out[] = {pl_arg(pl_build_now(b, o))};
    PL_EMIT(b, ATTENTION_CACHED, attr, in, out);
    return pl_build_now(b, o);
}

/* Logits are fp32 in every storage of weights: tokens are chosen by differences of logits, and the
 * buffer is a row a sequence. */
static void last_logits(struct pl_builder *b, struct pl_val h) {
    if (b->err != PL_ERR_OK) return;
    uint32_t logits = pl_build_step(b, "logits", PL_ROWS_TARGETS, 0, b->m->vocab, PL_DTYPE_F32,
                                    PL_CATEGORY_LOGITS);
    if (b->err != PL_ERR_OK) return;
    b->p->tensors[logits].role = PL_ROLE_LOGITS;
    pl_build_logits(b, pl_arg(h), pl_arg(pl_build_now(b, logits)));
}

static void forward(struct pl_builder *b) {
    pl_build_inputs(b);
    struct pl_tape head;
    struct pl_val trunk, pending = pl_build_forward(b, &trunk, NULL);
    const pl_var h = pl_build_head_rows(b, trunk, pending, false, &head);
    last_logits(b, pl_tape_value(&head, h));
}

/* Rows of the phase are those of one sequence, whatever a micro-batch has. */
static void forward_sample(struct pl_builder *b) {
    const uint64_t n = b->n, n_targets = b->n_targets, seqs = b->seqs;
    b->n_targets = b->seqs = 1;
    b->n = pl_build_generate_tokens(b->s, b->seqs);
    b->sample_kv[0] = add_sample_cache(b, "k_cache", PL_ROLE_KEYS);
    if (b->err == PL_ERR_OK) b->sample_kv[1] = add_sample_cache(b, "v_cache", PL_ROLE_VALUES);
    if (b->err == PL_ERR_OK) add_sample_states(b);
    if (b->err == PL_ERR_OK) forward(b);
    b->n = n;
    b->n_targets = n_targets;
    b->seqs = seqs;
}

void pl_build_generate_phase(struct pl_builder *b) {
    pl_build_begin_phase(b, PL_PHASE_GENERATE);
    if (b->s->inference)
        forward(b);
    else
        forward_sample(b);
    pl_build_end_phase(b);
}
