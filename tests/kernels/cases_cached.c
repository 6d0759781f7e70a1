/* cases_cached.c - KV_APPEND and ATTENTION_CACHED: pieces of sequences at any position of a cache.
 */
#include "tests/kernels/cases.h"
#include "tests/kernels/ref_attention.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct shape {
    uint32_t heads, kv_heads, dim, window, context;
    uint32_t n_seqs, first[4], lengths[4];
};

/* Single tokens at the start, around the blocks of 128 keys and at the end of the cache, pieces
 * that cross them, sequences that take no part, groups of one and of many heads. */
static struct shape draw_shape(struct trial *t) {
    static const struct shape edges[] = {
        {2, 1, 16, 0, 1, 1, {0}, {1}},
        {9, 3, 64, 0, 300, 3, {0, 127, 299}, {1, 1, 1}},
        {4, 4, 24, 0, 256, 2, {128, 0}, {1, 0}},
        {8, 2, 32, 40, 400, 3, {39, 40, 399}, {1, 1, 1}},
        {6, 2, 64, 1, 70, 2, {69, 5}, {1, 3}},
        {70, 1, 8, 0, 150, 2, {149, 10}, {1, 2}},
        {3, 1, 64, 0, 260, 2, {0, 100}, {130, 160}},
        {2, 2, 128, 66, 200, 2, {130, 199}, {70, 1}},
        {1, 1, 7, 0, 90, 4, {0, 3, 89, 40}, {90, 1, 1, 50}},
        {2, 1, 250, 0, 70, 1, {64}, {2}},
        {4, 2, 256, 20, 64, 2, {0, 63}, {64, 1}},
        {3, 3, 80, 500, 600, 1, {599}, {1}},
        {4, 2, 512, 30, 70, 2, {0, 50}, {65, 1}},
    };
    static const uint32_t dims[] = {1, 8, 16, 24, 32, 64, 96, 128}, windows[] = {0, 1, 8, 100};
    if (t->round / 2 < sizeof edges / sizeof *edges) return edges[t->round / 2];
    struct shape s = {.kv_heads = (uint32_t)draw(t, 1, 3), .context = (uint32_t)draw(t, 1, 300)};
    s.heads = s.kv_heads * (uint32_t)draw(t, 1, 3);
    s.dim = dims[draw(t, 0, sizeof dims / sizeof *dims - 1)];
    s.window = windows[draw(t, 0, sizeof windows / sizeof *windows - 1)];
    s.n_seqs = (uint32_t)draw(t, 1, 4);
    for (uint32_t i = 0; i < s.n_seqs; i++) {
        s.lengths[i] = draw(t, 0, 1) ? 1 : (uint32_t)draw(t, 0, s.context);
        s.first[i] = (uint32_t)draw(t, 0, s.context - s.lengths[i]);
    }
    return s;
}

static uint64_t start(struct trial *t, const struct shape *s) {
    uint64_t rows = 0;
    t->attr.heads = s->heads;
    t->attr.kv_heads = s->kv_heads;
    t->attr.head_dim = s->dim;
    t->attr.window = s->window;
    t->attr.context = s->context;
    t->attr.scale = (float)(1 / sqrt((double)s->dim));
    for (uint32_t i = 0; i < s->n_seqs; i++) {
        rows += s->lengths[i];
        if (s->first[i] + s->lengths[i] > t->batch.max_len)
            t->batch.max_len = s->first[i] + s->lengths[i];
    }
    t->batch.n_seqs = s->n_seqs;
    t->batch.n_tokens = rows;
    return rows;
}

static void add_places(struct trial *t, uint32_t slot, const struct shape *s, uint64_t rows) {
    struct operand *pos = add_vector_in(t, slot, rows, PL_DTYPE_I32);
    struct operand *offsets = add_vector_in(t, slot + 1, s->n_seqs + 1, PL_DTYPE_I32);
    uint64_t row = 0;
    for (uint32_t i = 0; i < s->n_seqs; i++) {
        for (uint32_t j = 0; j < s->lengths[i]; j++)
            set_value(pos, row++, 0, s->first[i] + j);
        set_value(offsets, i + 1, 0, (double)row);
    }
}

static void build_append(struct trial *t) {
    const struct shape s = draw_shape(t);
    const uint64_t rows = start(t, &s), kv = (uint64_t)s.kv_heads * s.dim;
    add_in(t, 0, rows, kv, draw_float(t));
    add_in(t, 1, rows, kv, draw_float(t));
    add_places(t, 2, &s, rows);
    const enum pl_dtype dtype = draw_float(t);
    for (uint32_t i = 0; i < 2; i++)
        also_out(t, add_in(t, 4 + i, (uint64_t)s.n_seqs * s.context, kv, dtype), i);
}

/* Every other row of the cache keeps what it held. */
static void reference_append(struct trial *t) {
    const double *pos = t->in[2]->x, *offsets = t->in[3]->x;
    for (uint32_t kv = 0; kv < 2; kv++) {
        const struct operand *from = t->in[kv];
        struct operand *to = t->out[kv];
        for (uint64_t s = 0; s < t->batch.n_seqs; s++)
            for (uint64_t i = (uint64_t)offsets[s]; i < (uint64_t)offsets[s + 1]; i++)
                for (uint64_t c = 0; c < from->view.cols; c++)
                    *value_at(to, to->want, s * t->attr.context + (uint64_t)pos[i], c) =
                        *value_at(from, from->x, i, c);
    }
}

static void build_attention(struct trial *t) {
    const struct shape s = draw_shape(t);
    const uint64_t rows = start(t, &s), q = (uint64_t)s.heads * s.dim;
    const uint64_t kv = (uint64_t)s.kv_heads * s.dim, cache = (uint64_t)s.n_seqs * s.context;
    add_in(t, 0, rows, q, draw_float(t));
    add_in(t, 1, cache, kv, draw_float(t));
    add_in(t, 2, cache, kv, draw_float(t));
    add_places(t, 3, &s, rows);
    add_ws(t, 5, rows, q);
    add_out(t, 0, rows, q, draw_float(t));
    if (draw(t, 0, 1)) return;
    struct operand *sinks = add_vector_in(t, PL_ATTENTION_CACHED_SINKS, s.heads, draw_float(t));
    for (uint32_t h = 0; h < s.heads; h++)
        set_value(sinks, h, 0, 4 * draw_normal(t));
}

static double *zeros(uint64_t n) {
    double *x = calloc(n ? n : 1, sizeof *x);
    ck_assert_ptr_nonnull(x);
    return x;
}

/* The piece is the end of a sequence whose earlier queries are zeros: causal attention of that. */
static void reference_piece(struct trial *t, uint64_t s, uint64_t row, uint64_t first, uint64_t n) {
    const uint64_t q_cols = t->in[0]->view.cols, kv_cols = t->in[1]->view.cols, all = first + n;
    double *q = zeros(all * q_cols), *o = zeros(all * q_cols), *scale = zeros(all * q_cols);
    double *lse = zeros(all * t->attr.heads), offsets[2] = {0, (double)all};
    memcpy(q + first * q_cols, t->in[0]->x + row * q_cols, n * q_cols * sizeof *q);
    const struct operand *sinks = t->in[PL_ATTENTION_CACHED_SINKS];
    const struct ref_attention a = {.n_seqs = 1,
                                    .sinks = sinks ? sinks->x : NULL,
                                    .heads = t->attr.heads,
                                    .kv_heads = t->attr.kv_heads,
                                    .dim = t->attr.head_dim,
                                    .window = t->attr.window,
                                    .scale = (double)t->attr.scale,
                                    .offsets = offsets,
                                    .q = q,
                                    .k = t->in[1]->x + s * t->attr.context * kv_cols,
                                    .v = t->in[2]->x + s * t->attr.context * kv_cols};
    ref_attention(&a, o, scale, lse);
    memcpy(t->out[0]->want + row * q_cols, o + first * q_cols, n * q_cols * sizeof *o);
    memcpy(t->out[0]->scale + row * q_cols, scale + first * q_cols, n * q_cols * sizeof *o);
    free(q);
    free(o);
    free(scale);
    free(lse);
}

/* Tensor cores round probabilities, as in cases_attention.c. */
static void allow_rounded_weights(const struct trial *t, struct operand *o) {
    bool is_rounded = t->machine->runners[0].dev->traits.backend == PL_BACKEND_CUDA;
    for (uint32_t i = 0; i < 3; i++)
        is_rounded = is_rounded && t->in[i]->view.dtype == narrow_type(t);
    const double rounding = narrow_type(t) == PL_DTYPE_F16 ? 0x1p-11 : 0x1p-8;
    for (uint64_t i = 0; is_rounded && i < o->view.rows * o->view.cols; i++)
        o->scale[i] *= 1 + rounding / t->test->tolerance;
}

static void reference_attention(struct trial *t) {
    const double *pos = t->in[3]->x, *offsets = t->in[4]->x;
    for (uint64_t s = 0; s < t->batch.n_seqs; s++) {
        const uint64_t row = (uint64_t)offsets[s], n = (uint64_t)offsets[s + 1] - row;
        if (n) reference_piece(t, s, row, (uint64_t)pos[row], n);
    }
    allow_rounded_weights(t, t->out[0]);
}

/* A cache row is a copy, rounded to its storage at most. The tolerance of attention is that of
 * cases_attention.c: the same sums. */
const struct kernel_case cases_cached[] = {
    {"kv_append", PL_OP_KV_APPEND, 30, 0, build_append, reference_append},
    {"attention_cached", PL_OP_ATTENTION_CACHED, 40, 5e-6, build_attention, reference_attention},
    {0},
};
