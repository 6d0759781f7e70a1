/* cases_conv.c - CONV_SILU and CONV_SILU_BWD on ragged batches, with a cache and without. */
#include "tests/kernels/cases.h"
#include "tests/kernels/ref_delta.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

struct shape {
    uint64_t channels, taps;
    uint32_t n_seqs, lengths[4];
};

/* Lengths around the taps and around chunks of 64 rows; every shape has two rounds, one of them in
 * one storage. */
static struct shape draw_shape(struct trial *t) {
    static const struct shape edges[] = {
        {16, 4, 1, {0}},         {1, 1, 1, {1}},           {64, 4, 3, {1, 0, 2}},
        {65, 2, 2, {64, 3}},     {130, 8, 2, {65, 130}},   {200, 4, 4, {63, 1, 64, 5}},
        {24, 4, 3, {128, 3, 0}}, {8, 3, 4, {0, 0, 70, 0}}, {8, 8, 4, {3, 5, 2, 1}},
    };
    if (t->round / 2 < sizeof edges / sizeof *edges) return edges[t->round / 2];
    struct shape s = {.channels = draw(t, 1, 200), .taps = draw(t, 1, 5)};
    s.n_seqs = (uint32_t)draw(t, 0, 4); /* a rank may have none */
    for (uint32_t i = 0; i < s.n_seqs; i++)
        s.lengths[i] = (uint32_t)draw(t, 0, 100);
    return s;
}

static uint64_t start(struct trial *t, const struct shape *s) {
    uint64_t rows = 0;
    t->attr.taps = (uint32_t)s->taps;
    for (uint32_t i = 0; i < s->n_seqs; i++)
        rows += s->lengths[i];
    t->batch.n_seqs = s->n_seqs;
    t->batch.n_tokens = rows;
    add_in(t, PL_CONV_SILU_Y, rows, s->channels, draw_float(t));
    add_in(t, PL_CONV_SILU_W, s->channels, s->taps, draw_float(t));
    struct operand *o = add_vector_in(t, PL_CONV_SILU_OFFSETS, s->n_seqs + 1, PL_DTYPE_I32);
    double sum = 0;
    for (uint32_t i = 0; i < s->n_seqs; i++)
        set_value(o, i + 1, 0, sum += s->lengths[i]);
    return rows;
}

static double *doubles(uint64_t n) {
    double *x = calloc(n ? n : 1, sizeof *x);
    ck_assert_ptr_nonnull(x);
    return x;
}

/* Sequences that begin, and that continue at any position. */
static void add_cache(struct trial *t, const struct shape *s, uint64_t rows) {
    struct operand *pos = add_vector_in(t, PL_CONV_SILU_POS, rows, PL_DTYPE_I32);
    for (uint64_t i = 0, row = 0; i < s->n_seqs; i++) {
        const uint64_t first = draw(t, 0, 1) ? draw(t, 0, 9) : 0;
        for (uint64_t k = 0; k < s->lengths[i]; k++)
            set_value(pos, row++, 0, (double)(first + k));
    }
    also_out(t,
             add_in(t, PL_CONV_SILU_CACHE, s->n_seqs * (s->taps - 1), s->channels, draw_float(t)),
             PL_CONV_SILU_OUT_CACHE);
}

static void build_forward(struct trial *t) {
    const struct shape s = draw_shape(t);
    const uint64_t rows = start(t, &s);
    if (s.taps > 1 && draw(t, 0, 1)) add_cache(t, &s, rows);
    add_out(t, PL_CONV_SILU_OUT_C, rows, s.channels, draw_float(t));
}

static struct ref_conv reference_of(const struct trial *t) {
    return (struct ref_conv){.n_seqs = t->batch.n_seqs,
                             .channels = t->in[0]->view.cols,
                             .taps = t->attr.taps,
                             .offsets = t->in[PL_CONV_SILU_OFFSETS]->x,
                             .y = t->in[PL_CONV_SILU_Y]->x,
                             .w = t->in[PL_CONV_SILU_W]->x};
}

/* The rows of the cache become `before`, and the last rows take its place. */
static void walk_cache(const struct trial *t, struct ref_conv *c, double *before, double *known) {
    struct operand *cache = t->out[PL_CONV_SILU_OUT_CACHE];
    const double *pos = t->in[PL_CONV_SILU_POS]->x;
    const uint64_t kept = c->taps - 1;
    for (uint64_t s = 0; s < c->n_seqs; s++) {
        const uint64_t start = (uint64_t)c->offsets[s], end = (uint64_t)c->offsets[s + 1];
        if (start == end) continue;
        known[s] = pos[start];
        for (uint64_t k = 0; k < kept && k < (uint64_t)known[s]; k++)
            for (uint64_t ch = 0; ch < c->channels; ch++)
                before[(s * kept + k) * c->channels + ch] = *value_at(
                    cache, cache->x, s * kept + ((uint64_t)pos[start] - 1 - k) % kept, ch);
        for (uint64_t row = start; row < end; row++)
            for (uint64_t ch = 0; ch < c->channels; ch++)
                *value_at(cache, cache->want, s * kept + (uint64_t)pos[row] % kept, ch) =
                    c->y[row * c->channels + ch];
    }
    c->before = before;
    c->known = known;
}

static void reference_forward(struct trial *t) {
    struct ref_conv c = reference_of(t);
    struct operand *out = t->out[PL_CONV_SILU_OUT_C];
    double *before = doubles(c.n_seqs * c.taps * c.channels), *known = doubles(c.n_seqs);
    if (t->out[PL_CONV_SILU_OUT_CACHE]) walk_cache(t, &c, before, known);
    ref_conv(&c, out->want, out->scale);
    for (uint64_t i = 0; i < out->view.rows * out->view.cols; i++)
        out->want[i] *= ref_sigmoid(out->want[i]);
    free(before);
    free(known);
}

static void build_backward(struct trial *t) {
    const struct shape s = draw_shape(t);
    const uint64_t rows = start(t, &s);
    t->attr.accumulate = (enum pl_accumulate)draw(t, 0, 2);
    t->batch.first = draw(t, 0, 1);
    const struct pl_call c = {.attr = &t->attr, .batch = &t->batch};
    add_in(t, PL_CONV_SILU_BWD_DC, rows, s.channels, draw_float(t));
    add_out(t, PL_CONV_SILU_BWD_OUT_DY, rows, s.channels, draw_float(t));
    if (draw(t, 0, 3) == 0) return;
    add_ws(t, PL_CONV_SILU_BWD_WS, rows, s.channels);
    if (pl_call_adds(&c))
        also_out(t, add_in(t, PL_CONV_SILU_BWD_DW, s.channels, s.taps, draw_float(t)), 1);
    else
        also_in(t, add_out(t, 1, s.channels, s.taps, draw_float(t)), PL_CONV_SILU_BWD_DW);
}

static void reference_backward(struct trial *t) {
    const struct ref_conv c = reference_of(t);
    const struct pl_call call = {.attr = &t->attr, .batch = &t->batch};
    struct operand *dy = t->out[0], *dw = t->out[1];
    for (uint64_t i = 0; dw && i < c.channels * c.taps; i++) {
        if (!pl_call_adds(&call)) dw->want[i] = 0;
        dw->scale[i] = fabs(dw->want[i]);
    }
    ref_conv_silu_bwd(&c, t->in[PL_CONV_SILU_BWD_DC]->x, dy->want, dy->scale, dw ? dw->want : NULL,
                      dw ? dw->scale : NULL);
}

/* A few products, and the relative error of an exponential. */
const struct kernel_case cases_conv[] = {
    {"conv_silu", PL_OP_CONV_SILU, 40, 1e-6, build_forward, reference_forward},
    {"conv_silu_bwd", PL_OP_CONV_SILU_BWD, 40, 1e-6, build_backward, reference_backward},
    {0},
};
