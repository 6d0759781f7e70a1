/* cases_attention.c - ATTENTION, ATTENTION_BWD on ragged batches. */
#include "tests/kernels/cases.h"
#include "tests/kernels/ref_attention.h"

#include <math.h>

struct shape {
    uint32_t heads, kv_heads, dim, window;
    uint32_t n_seqs, lengths[4];
};

/* Lengths around the tiles of 64 queries and 128 keys; windows below, at and above them. Every
 * shape has two rounds, the second of them with one storage for all: by turns fp32, and bf16, which
 * tensor cores multiply. */
static struct shape draw_shape(struct trial *t) {
    static const struct shape edges[] = {
        {2, 1, 16, 0, 1, {0}},           {1, 1, 24, 0, 1, {1}},
        {3, 1, 64, 0, 3, {5, 0, 130}},   {9, 3, 16, 1, 2, {65, 7}},
        {4, 4, 24, 8, 2, {129, 40}},     {5, 5, 96, 0, 1, {64}},
        {1, 1, 7, 0, 1, {257}},          {2, 2, 128, 66, 1, {200}},
        {2, 1, 512, 0, 2, {70, 1}},      {2, 2, 16, 64, 3, {192, 193, 2}},
        {1, 1, 256, 999, 2, {66, 3}},    {2, 1, 128, 0, 4, {1, 64, 63, 65}},
        {6, 2, 64, 128, 1, {300}},       {1, 1, 250, 0, 1, {100}},
        {2, 1, 80, 50, 2, {150, 33}},    {2, 1, 256, 33, 1, {90}},
        {4, 1, 160, 0, 3, {1, 130, 40}},
    };
    static const uint32_t dims[] = {1, 8, 16, 24, 32, 64, 96, 128}, windows[] = {0, 1, 8, 100, 500};
    if (t->round / 2 < sizeof edges / sizeof *edges) return edges[t->round / 2];
    struct shape s = {.kv_heads = (uint32_t)draw(t, 1, 3)};
    s.heads = s.kv_heads * (uint32_t)draw(t, 1, 3);
    s.dim = dims[draw(t, 0, sizeof dims / sizeof *dims - 1)];
    s.window = windows[draw(t, 0, sizeof windows / sizeof *windows - 1)];
    s.n_seqs = (uint32_t)draw(t, 1, 4);
    for (uint32_t i = 0; i < s.n_seqs; i++)
        s.lengths[i] = (uint32_t)draw(t, 0, 160);
    return s;
}

static uint64_t start(struct trial *t, const struct shape *s) {
    uint64_t rows = 0;
    t->attr.heads = s->heads;
    t->attr.kv_heads = s->kv_heads;
    t->attr.head_dim = s->dim;
    t->attr.window = s->window;
    t->attr.scale = (float)(1 / sqrt((double)s->dim));
    for (uint32_t i = 0; i < s->n_seqs; i++) {
        rows += s->lengths[i];
        t->batch.max_len = s->lengths[i] > t->batch.max_len ? s->lengths[i] : t->batch.max_len;
    }
    t->batch.n_seqs = s->n_seqs;
    t->batch.n_tokens = rows;
    return rows;
}

static void add_offsets(struct trial *t, uint32_t slot, const struct shape *s) {
    struct operand *o = add_vector_in(t, slot, s->n_seqs + 1, PL_DTYPE_I32);
    double sum = 0;
    for (uint32_t i = 0; i < s->n_seqs; i++)
        set_value(o, i + 1, 0, sum += s->lengths[i]);
}

static struct ref_attention reference_of(const struct trial *t, uint32_t offsets_slot) {
    return (struct ref_attention){.n_seqs = t->batch.n_seqs,
                                  .heads = t->attr.heads,
                                  .kv_heads = t->attr.kv_heads,
                                  .dim = t->attr.head_dim,
                                  .window = t->attr.window,
                                  .scale = (double)t->attr.scale,
                                  .offsets = t->in[offsets_slot]->x,
                                  .q = t->in[0]->x,
                                  .k = t->in[1]->x,
                                  .v = t->in[2]->x};
}

/* In half of the rounds every head has a sink, whose score may be above and below all others. */
static void draw_sinks(struct trial *t, uint32_t slot, uint32_t heads) {
    if (draw(t, 0, 1)) return;
    struct operand *sinks = add_vector_in(t, slot, heads, draw_float(t));
    for (uint32_t h = 0; h < heads; h++)
        set_value(sinks, h, 0, 4 * draw_normal(t));
}

static void build_forward(struct trial *t) {
    const struct shape s = draw_shape(t);
    const uint64_t rows = start(t, &s), q = s.heads * s.dim, kv = s.kv_heads * s.dim;
    const enum pl_dtype dtype = draw_float(t);
    add_in(t, 0, rows, q, dtype);
    add_in(t, 1, rows, kv, dtype);
    add_in(t, 2, rows, kv, draw_float(t));
    add_offsets(t, 3, &s);
    add_ws(t, 4, rows, q);
    add_out(t, 0, rows, q, draw_float(t));
    add_out(t, 1, rows, s.heads, PL_DTYPE_F32);
    draw_sinks(t, PL_ATTENTION_SINKS, s.heads);
}

/* A back-end that multiplies narrow operands on tensor cores rounds what it multiplies them with,
 * the probabilities or their gradients, to their type: of bf16 8 significant bits, so by at most
 * 2^-8 of each, of fp16 11. */
static void allow_rounded_weights(const struct trial *t, struct operand *o) {
    const bool is_rounded = t->machine->runners[0].dev->traits.backend == PL_BACKEND_CUDA &&
                            t->in[0]->view.dtype == narrow_type(t) &&
                            t->in[1]->view.dtype == narrow_type(t) &&
                            t->in[2]->view.dtype == narrow_type(t);
    const double rounding = narrow_type(t) == PL_DTYPE_F16 ? 0x1p-11 : 0x1p-8;
    for (uint64_t i = 0; is_rounded && i < o->view.rows * o->view.cols; i++)
        o->scale[i] *= 1 + rounding / t->test->tolerance;
}

static void reference_forward(struct trial *t) {
    struct ref_attention a = reference_of(t, 3);
    if (t->in[PL_ATTENTION_SINKS]) a.sinks = t->in[PL_ATTENTION_SINKS]->x;
    struct operand *o = t->out[0], *lse = t->out[1];
    ref_attention(&a, o->want, o->scale, lse->want);
    for (uint64_t i = 0; i < lse->view.rows * lse->view.cols; i++)
        lse->scale[i] = 1 + fabs(lse->want[i]);
    allow_rounded_weights(t, o);
}

static void store_all(struct operand *o, const double *values) {
    for (uint64_t i = 0; i < o->view.rows * o->view.cols; i++)
        set_value(o, i / o->view.cols, i % o->view.cols, values[i]);
}

/* Divides the heads of a group as a plan of any number of tokens may, in whole parts. */
static uint32_t draw_key_parts(struct trial *t, const struct shape *s) {
    const uint32_t group = s->heads / s->kv_heads;
    const uint32_t heads = (uint32_t)draw(t, 1, group);
    return heads < group ? (group + heads - 1) / heads : 0;
}

static void build_backward(struct trial *t) {
    const struct shape s = draw_shape(t);
    const uint64_t rows = start(t, &s), q = s.heads * s.dim, kv = s.kv_heads * s.dim;
    t->attr.key_parts = draw_key_parts(t, &s);
    add_in(t, 0, rows, q, draw_float(t));
    add_in(t, 1, rows, kv, draw_float(t));
    add_in(t, 2, rows, kv, draw_float(t));
    struct operand *o = add_in(t, 3, rows, q, draw_float(t));
    struct operand *lse = add_in(t, 4, rows, s.heads, PL_DTYPE_F32);
    add_in(t, 5, rows, q, draw_float(t));
    add_offsets(t, 6, &s);
    add_ws(t, 7, rows, q);
    add_out(t, 0, rows, q, draw_float(t));
    add_out(t, 1, rows, kv, draw_float(t));
    add_out(t, 2, rows, kv, draw_float(t));
    const struct ref_attention a = reference_of(t, 6);
    ref_attention(&a, o->want, NULL, lse->want);
    store_all(o, o->want);
    store_all(lse, lse->want);
}

static void reference_backward(struct trial *t) {
    const struct ref_attention a = reference_of(t, 6);
    const struct ref_attention_bwd g = {.o = t->in[3]->x,
                                        .lse = t->in[4]->x,
                                        .go = t->in[5]->x,
                                        .dq = t->out[0]->want,
                                        .dk = t->out[1]->want,
                                        .dv = t->out[2]->want,
                                        .dq_magnitude = t->out[0]->scale,
                                        .dk_magnitude = t->out[1]->scale,
                                        .dv_magnitude = t->out[2]->scale};
    ref_attention_bwd(&a, &g);
    if (t->in[5]->view.dtype != narrow_type(t)) return;
    for (uint32_t i = 0; i < 3; i++)
        allow_rounded_weights(t, t->out[i]);
}

static void build_sink_bwd(struct trial *t) {
    const struct shape s = draw_shape(t);
    const uint64_t rows = start(t, &s), q = s.heads * s.dim;
    t->attr.accumulate = (enum pl_accumulate)draw(t, 0, 2);
    t->batch.first = draw(t, 0, 1);
    const bool adds = t->attr.accumulate == PL_ACC_ADD ||
                      (t->attr.accumulate == PL_ACC_FIRST_WRITES && !t->batch.first);
    add_in(t, PL_SINK_BWD_O, rows, q, draw_float(t));
    add_in(t, PL_SINK_BWD_DO, rows, q, draw_float(t));
    struct operand *lse = add_in(t, PL_SINK_BWD_LSE, rows, s.heads, PL_DTYPE_F32);
    add_vector_in(t, PL_SINK_BWD_SINKS, s.heads, draw_float(t));
    add_ws(t, PL_SINK_BWD_WS, rows, q);
    if (adds)
        also_out(t, add_vector_in(t, PL_SINK_BWD_DSINKS, s.heads, draw_float(t)), 0);
    else
        also_in(t, add_vector_out(t, 0, s.heads, draw_float(t)), PL_SINK_BWD_DSINKS);
    for (uint64_t i = 0; i < rows * s.heads; i++)
        set_value(lse, i / s.heads, i % s.heads, 3 + fabs(lse->x[i]));
}

static void reference_sink_bwd(struct trial *t) {
    struct operand *dsinks = t->out[0];
    const double offsets[2] = {0, (double)t->in[PL_SINK_BWD_O]->view.rows};
    const struct ref_attention a = {.n_seqs = 1,
                                    .heads = t->attr.heads,
                                    .kv_heads = t->attr.heads,
                                    .dim = t->attr.head_dim,
                                    .offsets = offsets,
                                    .sinks = t->in[PL_SINK_BWD_SINKS]->x};
    const struct ref_attention_bwd g = {.o = t->in[PL_SINK_BWD_O]->x,
                                        .lse = t->in[PL_SINK_BWD_LSE]->x,
                                        .go = t->in[PL_SINK_BWD_DO]->x};
    for (uint64_t h = 0; h < a.heads; h++)
        dsinks->scale[h] = fabs(dsinks->want[h]);
    ref_sink_bwd(&a, &g, dsinks->want, dsinks->scale);
}

/* A probability carries the absolute error of its score, a sum of up to 256 products of normal
 * numbers over sqrt(256): a few units of 2^-24 times 16. */
const struct kernel_case cases_attention[] = {
    {"attention", PL_OP_ATTENTION, 40, 5e-6, build_forward, reference_forward},
    {"attention_bwd", PL_OP_ATTENTION_BWD, 40, 5e-6, build_backward, reference_backward},
    {"sink_bwd", PL_OP_SINK_BWD, 40, 1e-6, build_sink_bwd, reference_sink_bwd},
    {0},
};
