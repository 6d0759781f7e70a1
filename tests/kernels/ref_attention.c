/* ref_attention.c - causal attention, one query at a time. */
#include "tests/kernels/ref_attention.h"

#include <math.h>
#include <string.h>

static double dot(const double *x, const double *y, uint64_t n) {
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

static double dot_magnitude(const double *x, const double *y, uint64_t n) {
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += fabs(x[i] * y[i]);
    return sum;
}

/* The begin of a query's vectors, and the rows [first, last] of the keys it sees. */
struct query {
    uint64_t row, head, first;
    uint64_t q, kv; /* offsets of its head in a row of q, in a row of k */
};

static const double *key(const struct ref_attention *a, const struct query *t, uint64_t row) {
    return a->k + row * a->kv_heads * a->dim + t->kv;
}

static const double *value(const struct ref_attention *a, const struct query *t, uint64_t row) {
    return a->v + row * a->kv_heads * a->dim + t->kv;
}

static double score(const struct ref_attention *a, const struct query *t, uint64_t row) {
    return a->scale * dot(a->q + t->q, key(a, t, row), a->dim);
}

static void for_queries(const struct ref_attention *a,
                        void (*fn)(const struct ref_attention *, const struct query *, void *),
                        void *ctx) {
    for (uint64_t s = 0; s < a->n_seqs; s++) {
        const uint64_t start = (uint64_t)a->offsets[s], end = (uint64_t)a->offsets[s + 1];
        for (uint64_t i = start; i < end; i++)
            for (uint64_t h = 0; h < a->heads; h++) {
                struct query t = {.row = i, .head = h, .first = start};
                if (a->window && i - start + 1 > a->window) t.first = i + 1 - a->window;
                t.q = (i * a->heads + h) * a->dim;
                t.kv = h / (a->heads / a->kv_heads) * a->dim;
                fn(a, &t, ctx);
            }
    }
}

struct forward {
    double *o, *magnitude, *lse;
};

static void forward_query(const struct ref_attention *a, const struct query *t, void *ctx) {
    const struct forward *f = ctx;
    double *o = f->o + t->q, *lse = f->lse + t->row * a->heads + t->head;
    double max = a->sinks ? a->sinks[t->head] : -INFINITY, sum = 0;
    for (uint64_t j = t->first; j <= t->row; j++)
        max = fmax(max, score(a, t, j));
    if (a->sinks) sum = exp(a->sinks[t->head] - max);
    for (uint64_t j = t->first; j <= t->row; j++)
        sum += exp(score(a, t, j) - max);
    *lse = max + log(sum);
    for (uint64_t d = 0; d < a->dim; d++) {
        o[d] = 0;
        if (f->magnitude) f->magnitude[t->q + d] = 0;
    }
    for (uint64_t j = t->first; j <= t->row; j++) {
        const double p = exp(score(a, t, j) - *lse);
        for (uint64_t d = 0; d < a->dim; d++) {
            o[d] += p * value(a, t, j)[d];
            if (f->magnitude) f->magnitude[t->q + d] += p * fabs(value(a, t, j)[d]);
        }
    }
}

void ref_attention(const struct ref_attention *a, double *o, double *o_magnitude, double *lse) {
    struct forward f = {o, o_magnitude, lse};
    for_queries(a, forward_query, &f);
}

static void add_term(double *sum, double *magnitude, uint64_t at, double factor, double size,
                     double x) {
    sum[at] += factor * x;
    if (magnitude) magnitude[at] += size * fabs(x);
}

/* Softmax's Jacobian: ds = p (dp - sum p dp), and sum p dp = do . o. */
static void backward_query(const struct ref_attention *a, const struct query *t, void *ctx) {
    const struct ref_attention_bwd *g = ctx;
    const double *go = g->go + t->q;
    const double lse = g->lse[t->row * a->heads + t->head];
    const double delta = dot(go, g->o + t->q, a->dim);
    const double delta_size = dot_magnitude(go, g->o + t->q, a->dim);
    for (uint64_t j = t->first; j <= t->row; j++) {
        const double p = exp(score(a, t, j) - lse);
        const double ds = a->scale * p * (dot(go, value(a, t, j), a->dim) - delta);
        const double size = a->scale * p * (dot_magnitude(go, value(a, t, j), a->dim) + delta_size);
        const uint64_t kv = j * a->kv_heads * a->dim + t->kv;
        for (uint64_t d = 0; d < a->dim; d++) {
            add_term(g->dq, g->dq_magnitude, t->q + d, ds, size, key(a, t, j)[d]);
            add_term(g->dk, g->dk_magnitude, kv + d, ds, size, a->q[t->q + d]);
            add_term(g->dv, g->dv_magnitude, kv + d, p, p, go[d]);
        }
    }
}

void ref_attention_bwd(const struct ref_attention *a, const struct ref_attention_bwd *g) {
    const uint64_t rows = (uint64_t)a->offsets[a->n_seqs];
    memset(g->dq, 0, rows * a->heads * a->dim * sizeof(double));
    memset(g->dk, 0, rows * a->kv_heads * a->dim * sizeof(double));
    memset(g->dv, 0, rows * a->kv_heads * a->dim * sizeof(double));
    for_queries(a, backward_query, (void *)(uintptr_t)g);
}

struct sink_sums {
    const struct ref_attention_bwd *g;
    double *sum, *magnitude;
};

/* The sink's probability times the part of softmax's Jacobian that it has without a value. */
static void add_sink(const struct ref_attention *a, const struct query *t, void *ctx) {
    const struct sink_sums *s = ctx;
    const double *o = s->g->o + t->q, *go = s->g->go + t->q;
    const double p = exp(a->sinks[t->head] - s->g->lse[t->row * a->heads + t->head]);
    s->sum[t->head] -= p * dot(go, o, a->dim);
    if (s->magnitude) s->magnitude[t->head] += p * dot_magnitude(go, o, a->dim);
}

void ref_sink_bwd(const struct ref_attention *a, const struct ref_attention_bwd *g, double *dsinks,
                  double *magnitude) {
    struct sink_sums s = {g, dsinks, magnitude};
    for_queries(a, add_sink, &s);
}
