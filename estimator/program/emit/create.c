/* create.c - a program from the facts of a model and the shape of a job. */
#include "estimator/program/emit/brief.h"
#include "estimator/program/emit/exchange.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/program/emit/merge_program.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Automatic chunk of the loss: logits of about this size keep the products of the head efficient
 * while they stay small compared with one layer's activations. It follows from the model and the
 * job alone, since the last bits of a run depend on it. */
#define AUTO_LOGITS_BYTES (UINT64_C(64) << 20)
#define AUTO_CHUNK_MIN    128
#define AUTO_CHUNK_STEP   64
#define AUTO_CHUNK_MOST   (UINT64_C(1) << 24) /* of the key */
/* Every chunk reads and writes the gradient of a trained head, and rounds it where it is narrow: so
 * many rows are worth their logits, as far as these are no larger than the head. */
#define AUTO_CHUNK_OF_TRAINED_HEAD 1024
/* Very long batches have larger chunks rather than endless programs. */
#define AUTO_PL_CHUNKS_MAX 512

/* First capacities of the lists. They are ample: memory that is never touched takes no room, and a
 * list that doubles is in memory twice for a moment. */
#define TENSORS_PER_LAYER 256
#define OPS_PER_LAYER     256
#define OPERANDS_PER_OP   6

/* A tied head is the embedding, unless one of the two is trained whole. */
static bool trains_head(const struct pl_job_shape *s, const struct pl_model *m) {
    if (s->inference) return false;
    if (s->mode != PL_MODE_FULL) return pl_shape_is_whole(s, m, PL_SLOT_HEAD);
    return !m->tied || s->freeze_layers == 0;
}

static uint64_t auto_chunk(const struct pl_job_shape *s, const struct pl_model *m,
                           uint64_t tokens) {
    uint64_t want = AUTO_LOGITS_BYTES / (m->vocab * pl_dtype_bytes(s->dtype));
    if (trains_head(s, m))
        want = pl_u64_max(want, pl_u64_min(AUTO_CHUNK_OF_TRAINED_HEAD, m->hidden));
    want = pl_u64_max(want - want % AUTO_CHUNK_STEP, AUTO_CHUNK_MIN);
    return pl_u64_max(want, pl_u64_div_up(tokens, AUTO_PL_CHUNKS_MAX));
}

uint64_t pl_program_chunk_tokens(const struct pl_job_shape *s, const struct pl_model *m,
                                 uint64_t n) {
    uint64_t want = s->loss_chunk_tokens;
    if (want == PL_AUTO) want = auto_chunk(s, m, n);
    return want == 0 ? n : pl_u64_min(want, n);
}

uint64_t pl_program_chunk_of_any(const struct pl_program *p) {
    const uint64_t own = p->shape.loss_chunk_tokens;
    if (own != PL_AUTO) return own;
    return pl_u64_min(auto_chunk(&p->shape, p->model, p->tokens), AUTO_CHUNK_MOST);
}

uint64_t pl_program_mlp_chunk_tokens(const struct pl_job_shape *s, uint64_t n) {
    return s->mlp_chunk_tokens ? pl_u64_min(s->mlp_chunk_tokens, n) : n;
}

static pl_err refuse_chunks(const char *key, uint64_t chunk, uint64_t tokens, uint32_t most,
                            struct pl_diag *d) {
    pl_diag_set(d, PL_ERR_CONFIG_RANGE,
                "`%s` %" PRIu64 " cuts %" PRIu64 " tokens into more than %u chunks", key, chunk,
                tokens, most);
    pl_diag_hint(d, "raise `%s`, or leave it at `auto`", key);
    return PL_ERR_CONFIG_RANGE;
}

pl_err pl_program_count_tokens(const struct pl_job_shape *s, uint64_t *tokens, struct pl_diag *d) {
    if (!pl_u64_mul(s->batch_size, s->max_seq_length, tokens) || *tokens > INT32_MAX) {
        pl_diag_set(d, PL_ERR_OVERFLOW,
                    "batch_size x max_seq_length = %" PRIu64 " x %" PRIu64
                    " tokens is more than 2^31",
                    s->batch_size, s->max_seq_length);
        pl_diag_hint(d, "lower `batch_size` or `max_seq_length`");
        return PL_ERR_OVERFLOW;
    }
    if (s->inference) *tokens = pl_build_generate_tokens(s, s->batch_size);
    if (s->batch_size == 0 || s->max_seq_length == 0)
        return pl_diag_set(d, PL_ERR_CONFIG_RANGE, "batch_size and max_seq_length must be above 0");
    const uint64_t chunk = s->loss_chunk_tokens, mlp = s->mlp_chunk_tokens;
    if (chunk && chunk != PL_AUTO && *tokens / chunk > PL_CHUNKS_MAX)
        return refuse_chunks("loss_chunk_tokens", chunk, *tokens, PL_CHUNKS_MAX, d);
    if (mlp && *tokens / mlp > PL_MLP_CHUNKS_MAX)
        return refuse_chunks("mlp_chunk_tokens", mlp, *tokens, PL_MLP_CHUNKS_MAX, d);
    return PL_ERR_OK;
}

/* A packed sample that trains has two tokens at least: one to read, one to predict. */
uint64_t pl_program_seqs(const struct pl_job_shape *s) {
    return s->batch_size * (s->packing ? pl_u64_max(s->max_seq_length / 2, 1) : 1);
}

static uint32_t built_layers(const struct pl_program *p) {
    uint32_t n = 0;
    for (uint64_t l = 0; l < p->model->layers; l++)
        n += !pl_program_skips(p, l);
    return n;
}

/* Clears the slots of the layers that are built. */
static void clear_slots(struct pl_builder *b) {
    for (uint64_t l = 0; l < b->m->layers; l++) {
        const size_t at = pl_build_slot_index((uint32_t)l, 0);
        if (pl_program_skips(b->p, l)) continue;
        if (b->adapter) memset(b->adapter + at, 0, PL_SLOT_COUNT * sizeof *b->adapter);
        if (b->quant) memset(b->quant + at, 0, PL_SLOT_COUNT * sizeof *b->quant);
    }
}

static bool builder_init(struct pl_builder *b, uint64_t layers) {
    struct pl_program *p = b->p;
    const uint32_t built = built_layers(p);
    b->cap_tensors = 64 + built * TENSORS_PER_LAYER;
    b->cap_ops = 64 + built * OPS_PER_LAYER;
    b->cap_operands = b->cap_ops * OPERANDS_PER_OP;
    p->tensors = pl_malloc(b->cap_tensors * sizeof *p->tensors);
    p->ops = pl_malloc(b->cap_ops * sizeof *p->ops);
    p->operands = pl_malloc(b->cap_operands * sizeof *p->operands);
    b->version = pl_malloc(b->cap_tensors * sizeof *b->version);
    b->grad = pl_malloc(b->cap_tensors * sizeof *b->grad);
    b->grad_begun = pl_malloc(b->cap_tensors * sizeof *b->grad_begun);
    b->weight = pl_malloc(layers * PL_SLOT_COUNT * sizeof *b->weight);
    const bool folds = pl_shape_exchanges_each_micro(b->s) || b->s->folds_gradients;
    if (folds) b->micro_grad = pl_malloc(b->cap_tensors * sizeof *b->micro_grad);
    bool adapts = pl_mode_adapts(b->s->mode), quantises = b->s->mode == PL_MODE_QLORA;
    if (adapts) b->adapter = pl_malloc(layers * PL_SLOT_COUNT * sizeof *b->adapter);
    if (quantises) b->quant = pl_malloc(layers * PL_SLOT_COUNT * sizeof *b->quant);
    clear_slots(b);
    b->lent = pl_calloc(layers, sizeof *b->lent);
    if (b->s->inference) b->kv = pl_malloc(layers * 2 * sizeof *b->kv);
    return p->tensors && p->ops && p->operands && b->version && b->grad && b->grad_begun &&
           b->weight && b->lent && (b->micro_grad || !folds) && (b->adapter || !adapts) &&
           (b->quant || !quantises) && (b->kv || !b->s->inference);
}

static void builder_finish(struct pl_builder *b) {
    free(b->version);
    free(b->grad);
    free(b->grad_begun);
    free(b->micro_grad);
    free(b->weight);
    free(b->adapter);
    free(b->quant);
    free(b->kv);
    free(b->lent);
    pl_build_end_updates(b);
}

static void build_run(struct pl_builder *b) {
    pl_build_job_tensors(b);
    pl_build_place_tensors(b);
    pl_build_phases(b);
    if (b->s->sharding == PL_SHARDING_WEIGHTS) pl_build_cut_weights(b);
}

/* The first sweep ends where the norm of all gradients is known. */
static uint32_t find_second_sweep(const struct pl_program *p) {
    const struct pl_phase_range *micro = &p->phases[PL_PHASE_MICRO];
    uint32_t op = micro->first_op;
    if (!pl_shape_sweeps_twice(&p->shape)) return p->n_ops;
    while (op < micro->first_op + micro->n_ops && p->ops[op].kind != PL_OP_CLIP_SCALE)
        op++;
    return op;
}

static pl_err create(const struct pl_model *m, const struct pl_job_shape *shape,
                     const struct pl_traits *traits, uint64_t tokens,
                     void (*build)(struct pl_builder *b), bool brief, struct pl_program **out,
                     struct pl_diag *d) {
    *out = NULL;
    struct pl_program *p = pl_calloc(1, sizeof *p);
    if (!p) return pl_host_oom(d, "the plan");
    p->shape = *shape;
    p->traits = *traits;
    p->model = m;
    p->tokens = tokens;
    p->facts = PL_NONE;
    p->brief = brief;
    p->seqs = pl_program_seqs(shape);
    p->chunk_tokens = pl_program_chunk_tokens(shape, m, tokens);
    p->mlp_chunk_tokens = pl_program_mlp_chunk_tokens(shape, tokens);
    struct pl_builder b = {.p = p,
                           .m = m,
                           .s = &p->shape,
                           .d = d,
                           .layer = PL_NONE,
                           .n = tokens,
                           .n_targets = shape->inference ? shape->batch_size : tokens,
                           .seqs = p->seqs};
    pl_brief_choose_layers(&b);
    if (b.err == PL_ERR_OK && !builder_init(&b, m->layers)) b.err = pl_host_oom(d, "the plan");
    if (b.err == PL_ERR_OK) {
        build(&b);
        pl_build_link_operands(p);
        p->second_sweep = find_second_sweep(p);
    }
    builder_finish(&b);
    if (b.err != PL_ERR_OK) pl_program_destroy(&p);
    *out = p;
    return b.err;
}

/* True if a matrix, or the A or the B of its adapter, is no whole number of blocks of states. */
static bool has_rest(const struct pl_job_shape *s, const struct pl_param_row *row, bool adapted) {
    if (s->mode == PL_MODE_FULL) return row->rows * row->cols % PL_STATE8_BLOCK != 0;
    return adapted && (s->lora_r * row->rows % PL_STATE8_BLOCK != 0 ||
                       s->lora_r * row->cols % PL_STATE8_BLOCK != 0);
}

/* True if a block of states would be of two experts that files hold apart. */
static bool splits_blocks(const struct pl_job_shape *s, const struct pl_model *m) {
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    const uint32_t n = pl_model_modules(m, rows);
    bool splits = false;
    for (uint32_t i = 0; i < n && !s->inference; i++)
        splits |= rows[i].split && has_rest(s, &rows[i], pl_row_set_has(s->lora_targets.rows, i));
    return splits && pl_optimizer_is_in_blocks(s->optimizer);
}

/* Refuses what no operation is there for. */
static pl_err check_experts(const struct pl_job_shape *s, const struct pl_model *m,
                            struct pl_diag *d) {
    if (!(m->kinds >> PL_LAYER_EXPERTS & 1)) return PL_ERR_OK;
    if (!splits_blocks(s, m)) return PL_ERR_OK;
    pl_diag_set(d, PL_ERR_CONFIG_CONFLICT,
                "`optimizer`: the experts of this model have no whole number of blocks of states");
    pl_diag_hint(d, "`adamw` has a state for each number");
    return PL_ERR_CONFIG_CONFLICT;
}

static pl_err create_run(const struct pl_model *m, const struct pl_job_shape *shape,
                         const struct pl_traits *traits, bool brief, struct pl_program **out,
                         struct pl_diag *d) {
    uint64_t tokens = 0;
    *out = NULL;
    PL_TRY(check_experts(shape, m, d));
    PL_TRY(pl_program_count_tokens(shape, &tokens, d));
    return create(m, shape, traits, tokens, build_run, brief, out, d);
}

pl_err pl_program_create(const struct pl_model *m, const struct pl_job_shape *shape,
                         const struct pl_traits *traits, struct pl_program **out,
                         struct pl_diag *d) {
    return create_run(m, shape, traits, false, out, d);
}

pl_err pl_program_create_brief(const struct pl_model *m, const struct pl_job_shape *shape,
                               const struct pl_traits *traits, struct pl_program **out,
                               struct pl_diag *d) {
    return create_run(m, shape, traits, true, out, d);
}

pl_err pl_program_create_merge(const struct pl_model *m, const struct pl_job_shape *shape,
                               const struct pl_traits *traits, struct pl_program **out,
                               struct pl_diag *d) {
    return create(m, shape, traits, 0, pl_build_merge, false, out, d);
}

pl_err pl_program_create_adapter_export(const struct pl_model *m, const struct pl_job_shape *shape,
                                        const struct pl_traits *traits, struct pl_program **out,
                                        struct pl_diag *d) {
    return create(m, shape, traits, 0, pl_build_adapter_export, false, out, d);
}
