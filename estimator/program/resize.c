#include "estimator/program/resize.h"

#include "estimator/base/checked.h"
#include "estimator/base/digest.h"
#include "estimator/ops/scratch/workspace_cuda_attention.h"
#include "estimator/ops/scratch/workspace_delta.h"
#include "estimator/program/cost.h"
#include "estimator/program/emit/brief.h"

#include <string.h>

struct chunked { /* chunks of the rows of a micro-batch */
    uint64_t chunk, chunks;
};

struct sizes { /* the sizes that a batch and a chunk decide */
    uint64_t tokens, seqs;
    struct chunked loss, mlp;
};

static struct chunked chunks_of(uint64_t tokens, uint64_t chunk) {
    return (struct chunked){chunk, pl_u64_div_up(tokens, chunk)};
}

static bool sizes_of(const struct pl_job_shape *s, const struct pl_model *m, struct sizes *out) {
    if (pl_program_count_tokens(s, &out->tokens, NULL) != PL_ERR_OK) return false;
    out->seqs = pl_program_seqs(s);
    out->loss = chunks_of(out->tokens, pl_program_chunk_tokens(s, m, out->tokens));
    out->mlp = chunks_of(out->tokens, pl_program_mlp_chunk_tokens(s, out->tokens));
    return true;
}

static bool same_but_for_sizes(const struct pl_job_shape *a, const struct pl_job_shape *b) {
    struct pl_job_shape x = *a;
    x.batch_size = b->batch_size;
    x.loss_chunk_tokens = b->loss_chunk_tokens;
    return memcmp(&x, b, sizeof x) == 0; /* no byte of a shape is left to chance */
}

/* True if both leave chunks out, or have the same number of them. */
static bool same_pieces(const struct chunked *from, const struct chunked *to) {
    return from->chunks == to->chunks ||
           (from->chunks > 2 * PL_BRIEF_ENDS && to->chunks > 2 * PL_BRIEF_ENDS);
}

/* Returns the chunks that split rows of a kind: target rows for the loss, tokens for the MLP. */
static const struct chunked *chunks_by(const struct sizes *s, enum pl_rows rows) {
    return rows == PL_ROWS_TARGETS ? &s->loss : &s->mlp;
}

/* --- operands -------------------------------------------------------------------------------- */

/* Rows of a chunk: those of the batch, or the same at the top of a buffer. */
static void move_window(struct pl_operand *o, const struct chunked *from, const struct chunked *to,
                        uint64_t tokens) {
    uint64_t chunk = o->batch_row / from->chunk;
    if (chunk >= PL_BRIEF_ENDS) chunk += to->chunks - from->chunks; /* counted from the end */
    const uint64_t row = chunk * to->chunk;
    if (o->row0) o->row0 = (uint32_t)row;
    o->batch_row = (uint32_t)row;
    o->nrows = (uint32_t)pl_u64_min(to->chunk, tokens - row);
}

static void move_windows(struct pl_program *p, const struct pl_op *op, const struct sizes *from,
                         const struct sizes *to) {
    struct pl_operand *list = p->operands + (op->in - p->operands);
    for (int i = 0; i < op->n_in + op->n_out; i++) {
        if (list[i].id == PL_NONE || !list[i].nrows) continue;
        const enum pl_rows rows = p->tensors[list[i].id].rows;
        if (rows != PL_ROWS_FIXED)
            move_window(&list[i], chunks_by(from, rows), chunks_by(to, rows), to->tokens);
    }
}

/* --- tensors --------------------------------------------------------------------------------- */

/* Copies to and from host memory have the rows of what they copy. */
static uint64_t rows_at(const struct pl_tensor *t, const struct sizes *from,
                        const struct sizes *to) {
    if (t->rows == PL_ROWS_ROUTED) return t->dims[0] / from->tokens * to->tokens;
    if (t->rows != PL_ROWS_FIXED)
        return t->dims[0] == from->tokens ? to->tokens : chunks_by(to, t->rows)->chunk;
    if (t->role == PL_ROLE_OFFSETS) return to->seqs + 1;
    if (t->role == PL_ROLE_DELTA_STATES) return pl_delta_rows(to->tokens, to->seqs);
    return t->role == PL_ROLE_SAMPLES ? to->seqs : t->dims[0];
}

static bool resize_tensors(struct pl_program *p, const struct sizes *from, const struct sizes *to) {
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        struct pl_tensor *t = &p->tensors[i];
        if (t->scope != PL_SCOPE_STEP || t->phase == PL_PHASE_GENERATE) continue;
        t->dims[0] = rows_at(t, from, to);
        if (!pl_build_tensor_bytes(t)) return false;
    }
    return true;
}

static struct pl_product_matrix matrix_of(const struct pl_program *p, const struct pl_operand *o) {
    const struct pl_tensor *t = &p->tensors[o->id];
    return (struct pl_product_matrix){.rows = o->nrows ? o->nrows : t->dims[0],
                                      .cols = o->cols ? o->cols : t->dims[1],
                                      .dtype = t->dtype};
}

static int scratch_of(enum pl_op_kind kind) {
    const struct pl_op_row *row = &pl_op_rows[kind];
    for (int i = 0; i < row->n_in; i++)
        if (row->in[i].use == PL_USE_SCRATCH) return i;
    return -1;
}

static uint64_t scratch_bytes(const struct pl_program *p, const struct pl_op *op) {
    const struct pl_product_matrix x = matrix_of(p, &op->in[0]);
    if (pl_op_rows[op->kind].cost != PL_COST_PRODUCT)
        return pl_op_workspace_bytes(&p->traits, op->kind, &op->attr, x.rows, x.cols);
    const struct pl_product_matrix m[3] = {x, matrix_of(p, &op->in[1]), matrix_of(p, &op->out[0])};
    return pl_product_workspace_bytes(&p->traits, op->kind, &op->attr, m);
}

/* False: the op loses the operand, since scratch of no bytes is absent. */
static bool resize_scratch(struct pl_program *p, const struct pl_op *op) {
    const int at = scratch_of(op->kind);
    if (at < 0 || op->in[at].id == PL_NONE) return true;
    struct pl_tensor *t = &p->tensors[op->in[at].id];
    t->dims[0] = t->bytes = scratch_bytes(p, op);
    return t->bytes > 0;
}

/* Returns a digest of the ops without scratch: some need no byte of it, and others never have a
 * workspace. */
static uint64_t ops_without_scratch(const struct pl_program *p) {
    struct pl_digest h;
    pl_digest_init(&h, 0);
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct pl_op *op = &p->ops[i];
        const int at = scratch_of(op->kind);
        if (at >= 0 && op->in[at].id == PL_NONE && scratch_bytes(p, op) == 0)
            pl_digest_add(&h, &i, sizeof i);
    }
    return pl_digest_value(&h);
}

/* --- all of it ------------------------------------------------------------------------------- */

static bool resize_op(struct pl_program *p, struct pl_op *op, const struct sizes *from,
                      const struct sizes *to) {
    const struct pl_load full = pl_load_full(p);
    move_windows(p, op, from, to);
    if (op->kind == PL_OP_ATTENTION_BWD)
        op->attr.key_parts = pl_attention_key_parts(&p->traits, &op->attr, to->tokens);
    if (!resize_scratch(p, op)) return false;
    op->flops = (float)pl_op_flops(p, op, &full);
    if (op->attr.first_element && p->tensors[op->out[0].id].rows != PL_ROWS_FIXED)
        op->attr.first_element = op->out[0].batch_row * p->tensors[op->out[0].id].dims[1];
    /* Ops are repeated for the chunks of the MLP in layers, for those of the loss outside. */
    const struct chunked *around = op->layer == PL_NONE ? &to->loss : &to->mlp;
    if (op->left_out) op->left_out = (uint32_t)(around->chunks - 2 * PL_BRIEF_ENDS);
    return true;
}

bool pl_program_resize(struct pl_program *p, const struct pl_job_shape *shape) {
    struct sizes from, to;
    const bool windows = shape->gradients != PL_GRADIENTS_OF_JOB && shape->offload;
    if (!p->brief || shape->inference || windows || !same_but_for_sizes(&p->shape, shape) ||
        !sizes_of(&p->shape, p->model, &from) || !sizes_of(shape, p->model, &to) ||
        !same_pieces(&from.loss, &to.loss) || !same_pieces(&from.mlp, &to.mlp))
        return false;
    const uint64_t without = ops_without_scratch(p);
    if (!resize_tensors(p, &from, &to)) return false;
    p->shape = *shape;
    p->tokens = to.tokens;
    p->seqs = to.seqs;
    p->chunk_tokens = to.loss.chunk;
    p->mlp_chunk_tokens = to.mlp.chunk;
    for (int phase = 0; phase < PL_PHASE_COUNT; phase++) {
        const struct pl_phase_range *r = &p->phases[phase];
        if (phase != PL_PHASE_MICRO && !pl_phase_is_forward(phase)) continue;
        for (uint32_t i = r->first_op; i < r->first_op + r->n_ops; i++)
            if (!resize_op(p, &p->ops[i], &from, &to)) return false;
    }
    return ops_without_scratch(p) == without;
}
