/* emit.c - appending tensors and ops. */
#include "estimator/program/emit/emit.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/program/cost.h"

#include <stdlib.h>
#include <string.h>

static void fail_build(struct pl_builder *b, pl_err err, const char *what) {
    if (b->err != PL_ERR_OK) return;
    b->err = pl_diag_set(b->d, err, "planning %s", what);
}

/* Doubles an array of `n` of `cap` elements when it is full. */
static bool grow(struct pl_builder *b, void **array, uint32_t cap, size_t size) {
    void *bigger = pl_realloc(*array, (size_t)cap * size);
    if (!bigger) {
        fail_build(b, PL_ERR_HOST_OOM, "no memory for the plan");
        return false;
    }
    *array = bigger;
    return true;
}

bool pl_build_tensor_bytes(struct pl_tensor *t) {
    uint64_t n = pl_dtype_bytes(t->dtype);
    return pl_u64_mul(n, t->dims[0], &n) && pl_u64_mul(n, t->dims[1], &n) &&
           pl_u64_mul(n, t->dims[2], &t->bytes);
}

uint32_t pl_build_tensor(struct pl_builder *b, struct pl_tensor t) {
    struct pl_program *p = b->p;
    if (b->err != PL_ERR_OK) return 0;
    if (p->n_tensors == b->cap_tensors) {
        uint32_t cap = b->cap_tensors * 2;
        if (!grow(b, (void **)&p->tensors, cap, sizeof *p->tensors) ||
            !grow(b, (void **)&b->version, cap, sizeof *b->version) ||
            !grow(b, (void **)&b->grad, cap, sizeof *b->grad) ||
            !grow(b, (void **)&b->grad_begun, cap, sizeof *b->grad_begun) ||
            (b->micro_grad && !grow(b, (void **)&b->micro_grad, cap, sizeof *b->micro_grad)))
            return 0;
        b->cap_tensors = cap;
    }
    for (int i = 0; i < 3; i++)
        if (t.dims[i] == 0) t.dims[i] = 1;
    if (!pl_build_tensor_bytes(&t))
        fail_build(b, PL_ERR_OVERFLOW, "found a tensor larger than 64 bits can count");
    uint32_t id = p->n_tensors++;
    p->tensors[id] = t;
    p->tensors[id].loop = b->loop || !b->panel ? b->loop : b->panels;
    p->tensors[id].piece = b->panel ? b->panel : b->piece;
    b->version[id] = 0;
    b->grad[id] = PL_NONE;
    if (b->micro_grad) b->micro_grad[id] = PL_NONE;
    b->grad_begun[id] = false;
    return id;
}

static uint64_t capacity_of(const struct pl_builder *b, enum pl_rows rows, uint64_t n) {
    if (rows == PL_ROWS_TOKENS) return b->chunk.n ? b->p->mlp_chunk_tokens : b->n;
    if (rows == PL_ROWS_ROUTED) return b->n * b->m->experts.per_token;
    return rows == PL_ROWS_FIXED ? n : b->n_targets;
}

uint32_t pl_build_step(struct pl_builder *b, const char *name, enum pl_rows rows, uint64_t n,
                       uint64_t cols, enum pl_dtype dtype, enum pl_category category) {
    return pl_build_tensor(b, (struct pl_tensor){.name = name,
                                                 .layer = b->layer,
                                                 .dims = {capacity_of(b, rows, n), cols, 1},
                                                 .rows = rows,
                                                 .dtype = dtype,
                                                 .category = category,
                                                 .scope = PL_SCOPE_STEP,
                                                 .phase = b->phase,
                                                 .of = PL_NONE});
}

uint32_t pl_build_activation(struct pl_builder *b, const char *name, enum pl_rows rows,
                             uint64_t cols) {
    return pl_build_step(b, name, rows, 0, cols, b->s->dtype, PL_CATEGORY_ACTIVATIONS);
}

struct pl_val pl_build_now(const struct pl_builder *b, uint32_t id) {
    return (struct pl_val){id, b->err == PL_ERR_OK ? b->version[id] : 0};
}

const struct pl_operand pl_arg_none = {.id = PL_NONE};

struct pl_operand pl_arg(struct pl_val v) {
    return (struct pl_operand){.id = v.id, .version = v.version};
}

struct pl_operand pl_arg_now(const struct pl_builder *b, uint32_t id) {
    return pl_arg(pl_build_now(b, id));
}

struct pl_operand pl_arg_cols(struct pl_val v, uint64_t col, uint64_t cols) {
    return (struct pl_operand){
        .id = v.id, .version = v.version, .col = (uint32_t)col, .cols = (uint32_t)cols};
}

struct pl_operand pl_arg_rows(struct pl_val v, uint64_t row0, uint64_t nrows) {
    return (struct pl_operand){.id = v.id,
                               .version = v.version,
                               .row0 = (uint32_t)row0,
                               .nrows = (uint32_t)nrows,
                               .batch_row = (uint32_t)row0};
}

struct pl_operand pl_build_tokens(const struct pl_builder *b, struct pl_val v) {
    if (!b->chunk.n || b->err != PL_ERR_OK) return pl_arg(v);
    struct pl_operand o = pl_arg_rows(v, b->chunk.row0, b->chunk.n);
    if (b->p->tensors[v.id].dims[0] != b->n) o.row0 = 0;
    return o;
}

struct pl_operand pl_build_token_cols(const struct pl_builder *b, struct pl_val v, uint64_t col,
                                      uint64_t cols) {
    struct pl_operand o = pl_build_tokens(b, v);
    o.col = (uint32_t)col;
    o.cols = (uint32_t)cols;
    return o;
}

static void operand_shape(const struct pl_builder *b, const struct pl_operand *o, uint64_t *rows,
                          uint64_t *cols) {
    const struct pl_tensor *t = &b->p->tensors[o->id];
    *rows = o->nrows ? o->nrows : t->dims[0];
    *cols = o->cols ? o->cols : t->dims[1];
}

static bool reserve_op(struct pl_builder *b, uint32_t n_operands) {
    struct pl_program *p = b->p;
    if (p->n_ops == b->cap_ops) {
        if (!grow(b, (void **)&p->ops, b->cap_ops * 2, sizeof *p->ops)) return false;
        b->cap_ops *= 2;
    }
    if (p->n_operands + n_operands > b->cap_operands) {
        if (!grow(b, (void **)&p->operands, b->cap_operands * 2, sizeof *p->operands)) return false;
        b->cap_operands *= 2;
    }
    return true;
}

void pl_build_op(struct pl_builder *b, enum pl_op_kind kind, struct pl_attr attr,
                 const struct pl_operand *in, uint32_t n_in, const struct pl_operand *out,
                 uint32_t n_out) {
    struct pl_program *p = b->p;
    if (b->err != PL_ERR_OK || !reserve_op(b, n_in + n_out)) return;
    struct pl_operand *list = &p->operands[p->n_operands];
    struct pl_op *op = &p->ops[p->n_ops++];
    if (n_in) memcpy(list, in, n_in * sizeof *in);
    if (n_out) memcpy(list + n_in, out, n_out * sizeof *out);
    p->n_operands += n_in + n_out;
    *op = (struct pl_op){.kind = kind,
                         .phase = b->phase,
                         .layer = b->layer,
                         .backward = b->backward,
                         .recompute = b->recompute,
                         .host = b->host,
                         .n_in = (uint8_t)n_in,
                         .n_out = (uint8_t)n_out,
                         .in = list,
                         .out = list + n_in,
                         .attr = attr,
                         .left_out = b->left_out,
                         .panels_left_out = b->panels_left_out};
    for (uint32_t i = n_in; i < n_in + n_out; i++)
        if (list[i].id != PL_NONE) list[i].version = ++b->version[list[i].id];
    const struct pl_load full = pl_load_full(p);
    op->flops = (float)pl_op_flops(p, op, &full);
}

void pl_build_link_operands(struct pl_program *p) {
    const struct pl_operand *next = p->operands;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        struct pl_op *op = &p->ops[i];
        op->in = next;
        op->out = next + op->n_in;
        next += op->n_in + op->n_out;
    }
}

static struct pl_operand workspace(struct pl_builder *b, uint64_t bytes) {
    if (bytes == 0 || b->err != PL_ERR_OK) return pl_arg_none;
    uint32_t id =
        pl_build_step(b, "workspace", PL_ROWS_FIXED, bytes, 1, PL_DTYPE_U8, PL_CATEGORY_WORKSPACE);
    return pl_arg(pl_build_now(b, id));
}

struct pl_operand pl_build_workspace(struct pl_builder *b, enum pl_op_kind kind,
                                     const struct pl_attr *attr, uint64_t rows, uint64_t cols) {
    return workspace(b, pl_op_workspace_bytes(&b->p->traits, kind, attr, rows, cols));
}

struct pl_operand pl_build_product_workspace(struct pl_builder *b, enum pl_op_kind kind,
                                             const struct pl_attr *attr, struct pl_operand x,
                                             struct pl_operand w, struct pl_operand y) {
    if (b->err != PL_ERR_OK) return pl_arg_none;
    const struct pl_operand *const operands[] = {&x, &w, &y};
    struct pl_product_matrix m[3];
    for (int i = 0; i < 3; i++) {
        operand_shape(b, operands[i], &m[i].rows, &m[i].cols);
        m[i].dtype = b->p->tensors[operands[i]->id].dtype;
    }
    return workspace(b, pl_product_workspace_bytes(&b->p->traits, kind, attr, m));
}

void pl_build_enter_layer(struct pl_builder *b, uint64_t layer) {
    const struct pl_layer *l = &b->m->layer[layer];
    b->layer = (uint32_t)layer;
    b->q = b->m->heads * l->head_dim;
    b->k = pl_layer_kv_columns(l);
    b->key_col = pl_model_query_rows(b->m, layer);
    b->n_kept = 0;
}

bool pl_build_trains(const struct pl_builder *b, uint32_t tensor) {
    return b->training && b->err == PL_ERR_OK && tensor != PL_NONE &&
           b->p->tensors[tensor].trainable;
}

size_t pl_build_slot_index(uint32_t layer, enum pl_slot slot) {
    return (size_t)(layer == PL_NONE ? 0 : layer) * PL_SLOT_COUNT + slot;
}

uint32_t pl_build_weight(const struct pl_builder *b, enum pl_slot slot) {
    return b->weight[pl_build_slot_index(b->layer, slot)];
}

const struct pl_adapter_slot *pl_build_adapter(const struct pl_builder *b, enum pl_slot slot) {
    if (!b->adapter || b->bare) return NULL;
    const struct pl_adapter_slot *a = &b->adapter[pl_build_slot_index(b->layer, slot)];
    return a->n_parts ? a : NULL;
}
