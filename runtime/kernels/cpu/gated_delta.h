/* gated_delta.h - what GATED_DELTA and its gradient read: normalised keys, and gates.
 *
 * The columns of a state do not depend on each other: a walk over the tokens of a sequence has
 * PL_DELTA_COLS columns of the state of one value head, which stay in the first cache. */
#ifndef PL_RUNTIME_KERNELS_CPU_GATED_DELTA_H
#define PL_RUNTIME_KERNELS_CPU_GATED_DELTA_H

#include "estimator/ops/scratch/workspace_delta.h"
#include "runtime/kernels/cpu/simd.h"

#define PL_DELTA_VECTORS (PL_DELTA_COLS / PL_LANES)

struct pl_delta {
    struct pl_view qkv, ba, a_log, dt_bias;
    const int32_t *offsets;
    uint64_t n_seqs, heads, key_heads, key_dim, dim;
};

static inline bool pl_delta_init(struct pl_delta *t, const struct pl_call *c, uint64_t outputs) {
    const struct pl_attr *a = c->attr;
    const struct pl_view *offsets = &c->in[PL_GATED_DELTA_OFFSETS];
    *t = (struct pl_delta){.qkv = c->in[PL_GATED_DELTA_QKV],
                           .ba = c->in[PL_GATED_DELTA_BA],
                           .a_log = c->in[PL_GATED_DELTA_A_LOG],
                           .dt_bias = c->in[PL_GATED_DELTA_DT_BIAS],
                           .offsets = offsets->p,
                           .n_seqs = c->batch->n_seqs,
                           .heads = a->heads,
                           .key_heads = a->kv_heads,
                           .key_dim = a->key_dim,
                           .dim = a->head_dim};
    const uint64_t rows = t->qkv.rows;
    return t->key_heads && t->heads && t->heads % t->key_heads == 0 && t->key_dim &&
           t->key_dim <= PL_DELTA_MAX_KEY && t->dim &&
           t->qkv.cols == 2 * t->key_heads * t->key_dim + t->heads * t->dim && t->ba.rows == rows &&
           t->ba.cols == 2 * t->heads && t->a_log.rows == t->heads && t->dt_bias.rows == t->heads &&
           outputs == rows && offsets->rows > t->n_seqs &&
           pl_ends_are_ordered(t->offsets, t->n_seqs, rows);
}

/* x = a head of keys or queries of a row, times its norm's reciprocal, which is returned. */
static inline float pl_delta_key(const struct pl_delta *t, uint64_t row, uint64_t head,
                                 float *restrict x) {
    float sum = 0.0f;
    pl_widen(x, pl_at(&t->qkv, row, head * t->key_dim), t->qkv.dtype, t->key_dim);
    for (uint64_t i = 0; i < t->key_dim; i++)
        sum += x[i] * x[i];
    const float norm = 1.0f / sqrtf(sum + PL_DELTA_EPS);
    for (uint64_t i = 0; i < t->key_dim; i++)
        x[i] *= norm;
    return norm;
}

/* The same of a query, which is scaled as well. */
static inline float pl_delta_query(const struct pl_delta *t, uint64_t row, uint64_t head,
                                   float *restrict x) {
    const float norm = pl_delta_key(t, row, head, x), scale = 1.0f / sqrtf((float)t->key_dim);
    for (uint64_t i = 0; i < t->key_dim; i++)
        x[i] *= scale;
    return norm;
}

static inline float pl_delta_number(const struct pl_view *v, uint64_t row, uint64_t col) {
    float x = 0.0f;
    pl_widen(&x, pl_at(v, row, col), v->dtype, 1);
    return x;
}

struct pl_delta_gates {
    float beta, decay; /* alpha */
    float log_decay;
    float slope; /* d log_decay / d a */
};

static inline struct pl_delta_gates pl_delta_gates(const struct pl_delta *t, uint64_t row,
                                                   uint64_t head) {
    const float b = pl_delta_number(&t->ba, row, head);
    const float rate = expf(pl_delta_number(&t->a_log, head, 0));
    const float x =
        pl_delta_number(&t->ba, row, t->heads + head) + pl_delta_number(&t->dt_bias, head, 0);
    const float log_decay = -rate * (x > 20.0f ? x : log1pf(expf(x)));
    return (struct pl_delta_gates){1.0f / (1.0f + expf(-b)), expf(log_decay), log_decay,
                                   -rate / (1.0f + expf(-x))};
}

/* Columns [col, col + n) of a head's values of a row, and zeros up to PL_DELTA_COLS. */
static inline void pl_delta_load(const struct pl_view *v, uint64_t row, uint64_t col, uint64_t n,
                                 float *x) {
    memset(x, 0, PL_DELTA_COLS * sizeof *x);
    pl_widen(x, pl_at(v, row, col), v->dtype, n);
}

static inline uint64_t pl_delta_value_col(const struct pl_delta *t, uint64_t head) {
    return 2 * t->key_heads * t->key_dim + head * t->dim;
}

/* A slice [dk,PL_DELTA_COLS] of a head's state, from a row of states and back. */
static inline void pl_delta_load_state(const struct pl_delta *t, const struct pl_view *states,
                                       uint64_t row, uint64_t head, uint64_t col, uint64_t n,
                                       float *state) {
    for (uint64_t i = 0; i < t->key_dim; i++)
        pl_delta_load(states, row, (head * t->key_dim + i) * t->dim + col, n,
                      state + i * PL_DELTA_COLS);
}

static inline void pl_delta_store_state(const struct pl_delta *t, const struct pl_view *states,
                                        uint64_t row, uint64_t head, uint64_t col, uint64_t n,
                                        const float *state) {
    for (uint64_t i = 0; i < t->key_dim; i++)
        memcpy(pl_at(states, row, (head * t->key_dim + i) * t->dim + col),
               state + i * PL_DELTA_COLS, n * sizeof *state);
}

#endif
