/* cases_delta.c - GATED_DELTA and GATED_DELTA_BWD on ragged batches, with a state and without. */
#include "tests/kernels/cases.h"
#include "tests/kernels/ref_delta.h"

#include "estimator/ops/scratch/workspace_delta.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

struct shape {
    uint64_t heads, key_heads, key_dim, dim;
    uint32_t n_seqs, lengths[4];
};

/* Lengths around chunks of 64 tokens and the stages of a GPU, columns around slices of 32; every
 * shape has two rounds, one of them in one storage. */
static struct shape draw_shape(struct trial *t) {
    static const struct shape edges[] = {
        {2, 1, 16, 16, 1, {0}},      {1, 1, 8, 8, 1, {1}},      {2, 2, 16, 32, 3, {5, 0, 70}},
        {3, 1, 24, 40, 2, {64, 65}}, {2, 1, 128, 64, 1, {130}}, {4, 2, 32, 8, 2, {3, 129}},
        {1, 1, 7, 5, 1, {66}},       {1, 1, 200, 34, 1, {20}},  {3, 3, 64, 128, 4, {63, 1, 0, 16}},
    };
    if (t->round / 2 < sizeof edges / sizeof *edges) return edges[t->round / 2];
    struct shape s = {.key_heads = draw(t, 1, 2)};
    s.heads = s.key_heads * draw(t, 1, 3);
    s.key_dim = draw(t, 1, 40);
    s.dim = 2 * draw(t, 1, 20);
    s.n_seqs = (uint32_t)draw(t, 0, 4); /* a rank may have none */
    for (uint32_t i = 0; i < s.n_seqs; i++)
        s.lengths[i] = (uint32_t)draw(t, 0, 80);
    return s;
}

static double *doubles(uint64_t n) {
    double *x = calloc(n ? n : 1, sizeof *x);
    ck_assert_ptr_nonnull(x);
    return x;
}

/* In some rounds the first head forgets within a few tokens: decays of a chunk underflow. */
static uint64_t start(struct trial *t, const struct shape *s) {
    uint64_t rows = 0;
    double sum = 0;
    t->attr.heads = (uint32_t)s->heads;
    t->attr.kv_heads = (uint32_t)s->key_heads;
    t->attr.key_dim = (uint32_t)s->key_dim;
    t->attr.head_dim = (uint32_t)s->dim;
    for (uint32_t i = 0; i < s->n_seqs; i++)
        rows += s->lengths[i];
    t->batch.n_seqs = s->n_seqs;
    t->batch.n_tokens = rows;
    add_in(t, PL_GATED_DELTA_QKV, rows, 2 * s->key_heads * s->key_dim + s->heads * s->dim,
           draw_float(t));
    add_in(t, PL_GATED_DELTA_BA, rows, 2 * s->heads, draw_float(t));
    struct operand *a_log = add_vector_in(t, PL_GATED_DELTA_A_LOG, s->heads, draw_float(t));
    add_vector_in(t, PL_GATED_DELTA_DT_BIAS, s->heads, draw_float(t));
    struct operand *o = add_vector_in(t, PL_GATED_DELTA_OFFSETS, s->n_seqs + 1, PL_DTYPE_I32);
    for (uint32_t i = 0; i < s->n_seqs; i++)
        set_value(o, i + 1, 0, sum += s->lengths[i]);
    set_value(a_log, 0, 0, draw(t, 0, 1) ? 3 : -3);
    return rows;
}

static struct ref_delta reference_of(const struct trial *t) {
    return (struct ref_delta){.n_seqs = t->batch.n_seqs,
                              .heads = t->attr.heads,
                              .key_heads = t->attr.kv_heads,
                              .key_dim = t->attr.key_dim,
                              .dim = t->attr.head_dim,
                              .offsets = t->in[PL_GATED_DELTA_OFFSETS]->x,
                              .qkv = t->in[PL_GATED_DELTA_QKV]->x,
                              .ba = t->in[PL_GATED_DELTA_BA]->x,
                              .a_log = t->in[PL_GATED_DELTA_A_LOG]->x,
                              .dt_bias = t->in[PL_GATED_DELTA_DT_BIAS]->x};
}

/* A recurrence rounds with the size of what it is made of: the scale of columns [col0, col1) is the
 * largest number there, or the largest scale that there was. */
static void scale_by_largest(struct operand *o, uint64_t col0, uint64_t col1) {
    double most = 0;
    for (uint64_t i = 0; i < o->view.rows; i++)
        for (uint64_t j = col0; j < col1; j++) {
            most = fmax(most, fabs(*value_at(o, o->want, i, j)));
            most = fmax(most, *value_at(o, o->scale, i, j));
        }
    for (uint64_t i = 0; i < o->view.rows; i++)
        for (uint64_t j = col0; j < col1; j++)
            *value_at(o, o->scale, i, j) = most;
}

/* ---- forward ---- */

/* Sequences that begin, and that continue. */
static void add_state(struct trial *t, const struct shape *s, uint64_t rows, uint64_t cols) {
    struct operand *pos = add_vector_in(t, PL_GATED_DELTA_POS, rows, PL_DTYPE_I32);
    for (uint64_t i = 0, row = 0; i < s->n_seqs; i++) {
        const uint64_t first = draw(t, 0, 1) ? draw(t, 0, 9) : 0;
        for (uint64_t k = 0; k < s->lengths[i]; k++)
            set_value(pos, row++, 0, (double)(first + k));
    }
    also_out(t, add_in(t, PL_GATED_DELTA_STATE, s->n_seqs, cols, PL_DTYPE_F32),
             PL_GATED_DELTA_OUT_STATE);
}

static void build_forward(struct trial *t) {
    const struct shape s = draw_shape(t);
    const uint64_t rows = start(t, &s), cols = s.heads * s.key_dim * s.dim, way = draw(t, 0, 2);
    add_ws(t, PL_GATED_DELTA_WS, rows, t->in[0]->view.cols);
    if (way == 1) add_state(t, &s, rows, cols);
    add_out(t, PL_GATED_DELTA_OUT_O, rows, s.heads * s.dim, draw_float(t));
    if (way == 2)
        add_out(t, PL_GATED_DELTA_OUT_STATES, pl_delta_rows(rows, s.n_seqs), cols, PL_DTYPE_F32);
}

static void reference_forward(struct trial *t) {
    struct ref_delta d = reference_of(t);
    struct operand *o = t->out[PL_GATED_DELTA_OUT_O], *kept = t->out[PL_GATED_DELTA_OUT_STATES];
    struct operand *state = t->out[PL_GATED_DELTA_OUT_STATE];
    const uint64_t cols = d.heads * d.key_dim * d.dim;
    double *before = doubles(d.n_seqs * cols);
    for (uint64_t s = 0; state && s < d.n_seqs; s++) {
        const uint64_t first = (uint64_t)d.offsets[s];
        if (d.offsets[s + 1] <= d.offsets[s] || t->in[PL_GATED_DELTA_POS]->x[first] <= 0) continue;
        for (uint64_t i = 0; i < cols; i++)
            before[s * cols + i] = state->x[s * cols + i];
    }
    if (state) d.before = before;
    for (uint64_t i = 0; kept && i < kept->view.rows * cols; i++)
        kept->want[i] = NAN; /* rows of no chunk are left alone */
    ref_gated_delta(&d, o->want, kept ? kept->want : NULL, state ? state->want : NULL);
    scale_by_largest(o, 0, o->view.cols);
    if (kept) scale_by_largest(kept, 0, cols);
    if (state) scale_by_largest(state, 0, cols);
    free(before);
}

/* ---- backward ---- */

static void add_vector_gradient(struct trial *t, uint32_t in, uint32_t out, uint64_t n) {
    const struct pl_call c = {.attr = &t->attr, .batch = &t->batch};
    if (pl_call_adds(&c))
        also_out(t, add_vector_in(t, in, n, draw_float(t)), out);
    else
        also_in(t, add_vector_out(t, out, n, draw_float(t)), in);
}

static void build_backward(struct trial *t) {
    const struct shape s = draw_shape(t);
    const uint64_t rows = start(t, &s), cols = s.heads * s.key_dim * s.dim;
    t->attr.accumulate = (enum pl_accumulate)draw(t, 0, 2);
    t->batch.first = draw(t, 0, 1);
    struct operand *kept =
        add_in(t, PL_GATED_DELTA_BWD_STATES, pl_delta_rows(rows, s.n_seqs), cols, PL_DTYPE_F32);
    const struct ref_delta d = reference_of(t);
    double *o = doubles(rows * s.heads * s.dim), *states = doubles(kept->view.rows * cols);
    ref_gated_delta(&d, o, states, NULL);
    for (uint64_t i = 0; i < kept->view.rows * cols; i++)
        set_value(kept, i / cols, i % cols, states[i]);
    free(o);
    free(states);
    add_in(t, PL_GATED_DELTA_BWD_DO, rows, s.heads * s.dim, draw_float(t));
    add_ws(t, PL_GATED_DELTA_BWD_WS, rows, t->in[0]->view.cols);
    add_out(t, PL_GATED_DELTA_BWD_OUT_DQKV, rows, t->in[0]->view.cols, draw_float(t));
    add_out(t, PL_GATED_DELTA_BWD_OUT_DBA, rows, 2 * s.heads, draw_float(t));
    const uint64_t way = draw(t, 0, 3);
    if (way != 0)
        add_vector_gradient(t, PL_GATED_DELTA_BWD_DA_LOG, PL_GATED_DELTA_BWD_OUT_DA_LOG, s.heads);
    if (way > 1)
        add_vector_gradient(t, PL_GATED_DELTA_BWD_DDT_BIAS, PL_GATED_DELTA_BWD_OUT_DDT_BIAS,
                            s.heads);
}

static void reference_backward(struct trial *t) {
    const struct ref_delta d = reference_of(t);
    const struct pl_call c = {.attr = &t->attr, .batch = &t->batch};
    struct operand *dqkv = t->out[PL_GATED_DELTA_BWD_OUT_DQKV];
    struct operand *dba = t->out[PL_GATED_DELTA_BWD_OUT_DBA];
    struct operand *of_heads[] = {t->out[PL_GATED_DELTA_BWD_OUT_DA_LOG],
                                  t->out[PL_GATED_DELTA_BWD_OUT_DDT_BIAS]};
    for (int k = 0; k < 2; k++)
        for (uint64_t h = 0; of_heads[k] && h < d.heads; h++) {
            if (!pl_call_adds(&c)) of_heads[k]->want[h] = 0;
            of_heads[k]->scale[h] = fabs(of_heads[k]->want[h]);
        }
    double *da_log = doubles(d.heads), *ddt_bias = doubles(d.heads);
    double *sizes[] = {doubles(d.heads), doubles(d.heads)};
    const uint64_t keys = d.key_heads * d.key_dim;
    double *of_keys = doubles(dqkv->view.rows * 2 * keys);
    ref_gated_delta_bwd(&d, t->in[PL_GATED_DELTA_BWD_DO]->x,
                        &(struct ref_delta_bwd){dqkv->want, dba->want, da_log, ddt_bias, sizes[0],
                                                sizes[1], of_keys});
    const double *sums[] = {da_log, ddt_bias};
    for (uint64_t i = 0; i < dqkv->view.rows * 2 * keys; i++)
        *value_at(dqkv, dqkv->scale, i / (2 * keys), i % (2 * keys)) = of_keys[i];
    scale_by_largest(dqkv, 0, keys);
    scale_by_largest(dqkv, keys, 2 * keys);
    scale_by_largest(dqkv, 2 * keys, dqkv->view.cols);
    scale_by_largest(dba, 0, d.heads);
    scale_by_largest(dba, d.heads, 2 * d.heads);
    for (int k = 0; k < 2; k++)
        for (uint64_t h = 0; of_heads[k] && h < d.heads; h++) {
            of_heads[k]->want[h] += sums[k][h];
            of_heads[k]->scale[h] += sizes[k][h];
        }
    free(of_keys);
    free(da_log);
    free(ddt_bias);
    free(sizes[0]);
    free(sizes[1]);
}

/* Sums of at most 200 products that are carried over at most 130 tokens. */
const struct kernel_case cases_delta[] = {
    {"gated_delta", PL_OP_GATED_DELTA, 30, 3e-6, build_forward, reference_forward},
    {"gated_delta_bwd", PL_OP_GATED_DELTA_BWD, 30, 1e-5, build_backward, reference_backward},
    {0},
};
