/* ref_delta.c - the references of ref_delta.h, as plain loops. */
#include "tests/kernels/ref_delta.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double ref_sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* y at a position that may lie before its sequence. */
static double input_at(const struct ref_conv *c, uint64_t seq, uint64_t row, uint64_t back,
                       uint64_t ch) {
    const uint64_t start = (uint64_t)c->offsets[seq];
    if (row >= start + back) return c->y[(row - back) * c->channels + ch];
    const uint64_t k = start + back - row - 1;
    if (!c->before || k >= (uint64_t)c->known[seq]) return 0;
    return c->before[(seq * (c->taps - 1) + k) * c->channels + ch];
}

static uint64_t sequence_of(const struct ref_conv *c, uint64_t row) {
    uint64_t s = 0;
    while (c->offsets[s + 1] <= (double)row)
        s++;
    return s;
}

static double convolved(const struct ref_conv *c, uint64_t row, uint64_t ch, double *magnitude) {
    double u = 0;
    for (uint64_t j = 0; j < c->taps; j++) {
        const double x = input_at(c, sequence_of(c, row), row, c->taps - 1 - j, ch);
        const double term = c->w[ch * c->taps + j] * x;
        u += term;
        if (magnitude) *magnitude += fabs(term);
    }
    return u;
}

void ref_conv(const struct ref_conv *c, double *u, double *magnitude) {
    for (uint64_t i = 0; i < (uint64_t)c->offsets[c->n_seqs] * c->channels; i++)
        u[i] = convolved(c, i / c->channels, i % c->channels, magnitude ? &magnitude[i] : NULL);
}

void ref_conv_silu_bwd(const struct ref_conv *c, const double *dc, double *dy, double *dy_magnitude,
                       double *dw, double *dw_magnitude) {
    for (uint64_t i = 0; i < (uint64_t)c->offsets[c->n_seqs] * c->channels; i++) {
        const uint64_t row = i / c->channels, ch = i % c->channels, seq = sequence_of(c, row);
        double size = 0;
        const double u = convolved(c, row, ch, &size), s = ref_sigmoid(u);
        const double g = dc[i] * (s + u * s * (1 - s)), g_size = fabs(dc[i]) * (1 + size);
        for (uint64_t j = 0; j < c->taps; j++) {
            const uint64_t back = c->taps - 1 - j, at = ch * c->taps + j;
            const double x = input_at(c, seq, row, back, ch);
            if (dw) dw[at] += g * x;
            if (dw_magnitude) dw_magnitude[at] += g_size * fabs(x);
            if (row < (uint64_t)c->offsets[seq] + back) continue;
            dy[i - back * c->channels] += c->w[at] * g;
            if (dy_magnitude) dy_magnitude[i - back * c->channels] += fabs(c->w[at]) * g_size;
        }
    }
}

void ref_gated_norm(struct ref_gated s, const double *o, const double *z, const double *w,
                    double *y, double *rstd) {
    for (uint64_t n = 0; n < s.norms; n++) {
        const double *x = o + n * s.dim;
        double sum = 0;
        for (uint64_t k = 0; k < s.dim; k++)
            sum += x[k] * x[k];
        rstd[n] = 1 / sqrt(sum / (double)s.dim + s.eps);
        for (uint64_t k = 0; k < s.dim; k++) {
            const double gate = z[n * s.dim + k];
            y[n * s.dim + k] = x[k] * rstd[n] * w[k] * gate * ref_sigmoid(gate);
        }
    }
}

static void add_term(double *sum, double *magnitude, double term, double size) {
    *sum += term;
    if (magnitude) *magnitude += size;
}

void ref_gated_norm_bwd(struct ref_gated s, const double *o, const double *z, const double *w,
                        const struct ref_gated_bwd *g) {
    for (uint64_t i = 0; i < s.norms * s.dim; i++) {
        const uint64_t n = i / s.dim, k = i % s.dim;
        const double sig = ref_sigmoid(z[i]), silu = z[i] * sig, oh = o[i] * g->rstd[n];
        double dot = 0, dot_size = 0;
        for (uint64_t j = 0; j < s.dim; j++) {
            const uint64_t at = n * s.dim + j;
            const double term = g->dy[at] * z[at] * ref_sigmoid(z[at]) * w[j] * o[at] * g->rstd[n];
            dot += term;
            dot_size += fabs(term);
        }
        const double own = g->dy[i] * silu * w[k], d = (double)s.dim, r = g->rstd[n];
        add_term(&g->go[i], g->go_magnitude ? &g->go_magnitude[i] : NULL, r * (own - oh * dot / d),
                 r * (fabs(own) + fabs(oh) * dot_size / d));
        const double to_gate = g->dy[i] * oh * w[k];
        add_term(&g->gz[i], g->gz_magnitude ? &g->gz_magnitude[i] : NULL,
                 to_gate * (sig + silu * (1 - sig)), fabs(to_gate) * (sig + fabs(silu)));
        if (g->dw)
            add_term(&g->dw[k], g->dw_magnitude ? &g->dw_magnitude[k] : NULL, g->dy[i] * silu * oh,
                     fabs(g->dy[i] * silu * oh));
    }
}

/* ---- gated delta rule ---- */

struct token { /* of a value head */
    const struct ref_delta *d;
    uint64_t row, head;
    double q[256], k[256], q_norm, k_norm; /* normalised, and the norms */
    double beta, decay, log_decay, slope;  /* slope: d log_decay / d a */
};

static double normalise(const struct ref_delta *d, uint64_t row, uint64_t head, double *x) {
    const uint64_t cols = 2 * d->key_heads * d->key_dim + d->heads * d->dim;
    const double *from = d->qkv + row * cols + head * d->key_dim;
    double sum = 1e-6;
    for (uint64_t i = 0; i < d->key_dim; i++)
        sum += from[i] * from[i];
    for (uint64_t i = 0; i < d->key_dim; i++)
        x[i] = from[i] / sqrt(sum);
    return sqrt(sum);
}

static struct token token_at(const struct ref_delta *d, uint64_t row, uint64_t head) {
    struct token t = {.d = d, .row = row, .head = head};
    const uint64_t key_head = head / (d->heads / d->key_heads);
    const double x = d->ba[row * 2 * d->heads + d->heads + head] + d->dt_bias[head];
    t.q_norm = normalise(d, row, key_head, t.q);
    t.k_norm = normalise(d, row, d->key_heads + key_head, t.k);
    for (uint64_t i = 0; i < d->key_dim; i++)
        t.q[i] /= sqrt((double)d->key_dim);
    t.beta = ref_sigmoid(d->ba[row * 2 * d->heads + head]);
    t.log_decay = -exp(d->a_log[head]) * log1p(exp(x));
    t.slope = -exp(d->a_log[head]) * ref_sigmoid(x);
    t.decay = exp(t.log_decay);
    return t;
}

static double value_of(const struct token *t, uint64_t j) {
    const struct ref_delta *d = t->d;
    const uint64_t keys = 2 * d->key_heads * d->key_dim;
    return d->qkv[t->row * (keys + d->heads * d->dim) + keys + t->head * d->dim + j];
}

/* s[dk,dim] becomes the state after the token; rest[dim] = v - decay * S^T k. */
static void step(const struct token *t, double *s, double *rest) {
    const uint64_t dk = t->d->key_dim, dim = t->d->dim;
    for (uint64_t j = 0; j < dim; j++) {
        rest[j] = value_of(t, j);
        for (uint64_t i = 0; i < dk; i++)
            rest[j] -= (s[i * dim + j] *= t->decay) * t->k[i];
        for (uint64_t i = 0; i < dk; i++)
            s[i * dim + j] += t->k[i] * t->beta * rest[j];
    }
}

static void *room(uint64_t doubles) {
    void *p = calloc(doubles ? doubles : 1, sizeof(double));
    if (!p) abort();
    return p;
}

static void forward_head(const struct ref_delta *d, uint64_t seq, uint64_t head, double *o,
                         double *states, double *last) {
    const uint64_t size = d->key_dim * d->dim, all = d->heads * size;
    const uint64_t start = (uint64_t)d->offsets[seq], end = (uint64_t)d->offsets[seq + 1];
    double *s = room(size), *rest = room(d->dim);
    if (d->before) memcpy(s, d->before + seq * all + head * size, size * sizeof *s);
    for (uint64_t row = start; row < end; row++) {
        const struct token t = token_at(d, row, head);
        if (states && (row - start) % 64 == 0)
            memcpy(states + (start / 64 + seq + (row - start) / 64) * all + head * size, s,
                   size * sizeof *s);
        step(&t, s, rest);
        for (uint64_t j = 0; j < d->dim; j++) {
            double *out = &o[(row * d->heads + head) * d->dim + j];
            *out = 0;
            for (uint64_t i = 0; i < d->key_dim; i++)
                *out += s[i * d->dim + j] * t.q[i];
        }
    }
    if (last && end > start) memcpy(last + seq * all + head * size, s, size * sizeof *s);
    free(s);
    free(rest);
}

void ref_gated_delta(const struct ref_delta *d, double *o, double *states, double *last) {
    for (uint64_t i = 0; i < d->n_seqs * d->heads; i++)
        forward_head(d, i / d->heads, i % d->heads, o, states, last);
}

/* The gradient of x, from that of x / norm; magnitude is nullable. */
static void add_unnormalised(const double *unit, const double *g, double norm, uint64_t n,
                             double *dx, double *magnitude) {
    double dot = 0, size = 0;
    for (uint64_t i = 0; i < n; i++) {
        dot += unit[i] * g[i];
        size += fabs(unit[i] * g[i]);
    }
    for (uint64_t i = 0; i < n; i++)
        add_term(&dx[i], magnitude ? &magnitude[i] : NULL, (g[i] - unit[i] * dot) / norm,
                 (fabs(g[i]) + fabs(unit[i]) * size) / norm);
}

/* A token's part of the gradient: g[dk,dim] becomes that of the state `before` the token. */
static void token_bwd(const struct token *t, const double *before, const double *go, double *g,
                      const struct ref_delta_bwd *out) {
    const struct ref_delta *d = t->d;
    const uint64_t dk = d->key_dim, dim = d->dim, keys = d->key_heads * dk;
    const uint64_t key_head = t->head / (d->heads / d->key_heads);
    double *s = room(dk * dim), *rest = room(dim), *dd = room(dim);
    double dq[256] = {0}, dk_[256] = {0}, unit[256], dbeta = 0, dlog = 0;
    double *dqkv = out->dqkv + t->row * (2 * keys + d->heads * dim);
    memcpy(s, before, dk * dim * sizeof *s);
    step(t, s, rest);
    for (uint64_t i = 0; i < dk; i++)
        for (uint64_t j = 0; j < dim; j++) {
            dq[i] += s[i * dim + j] * go[j] / sqrt((double)dk);
            g[i * dim + j] += t->q[i] * go[j];
            dd[j] += g[i * dim + j] * t->k[i];
        }
    for (uint64_t j = 0; j < dim; j++) {
        dbeta += dd[j] * rest[j];
        dqkv[2 * keys + t->head * dim + j] += t->beta * dd[j];
    }
    for (uint64_t i = 0; i < dk; i++)
        for (uint64_t j = 0; j < dim; j++) {
            const double decayed = t->decay * before[i * dim + j];
            dk_[i] += g[i * dim + j] * t->beta * rest[j] - decayed * t->beta * dd[j];
            g[i * dim + j] -= t->k[i] * t->beta * dd[j];
            dlog += g[i * dim + j] * decayed;
            g[i * dim + j] *= t->decay;
        }
    for (uint64_t i = 0; i < dk; i++)
        unit[i] = t->q[i] * sqrt((double)dk);
    double *sizes = out->key_magnitude ? out->key_magnitude + t->row * 2 * keys : NULL;
    add_unnormalised(unit, dq, t->q_norm, dk, dqkv + key_head * dk,
                     sizes ? sizes + key_head * dk : NULL);
    add_unnormalised(t->k, dk_, t->k_norm, dk, dqkv + keys + key_head * dk,
                     sizes ? sizes + keys + key_head * dk : NULL);
    out->dba[t->row * 2 * d->heads + t->head] += dbeta * t->beta * (1 - t->beta);
    out->dba[t->row * 2 * d->heads + d->heads + t->head] += dlog * t->slope;
    add_term(&out->da_log[t->head], out->da_log_magnitude ? &out->da_log_magnitude[t->head] : NULL,
             dlog * t->log_decay, fabs(dlog * t->log_decay));
    add_term(&out->ddt_bias[t->head],
             out->ddt_bias_magnitude ? &out->ddt_bias_magnitude[t->head] : NULL, dlog * t->slope,
             fabs(dlog * t->slope));
    free(s);
    free(rest);
    free(dd);
}

void ref_gated_delta_bwd(const struct ref_delta *d, const double *go,
                         const struct ref_delta_bwd *out) {
    const uint64_t size = d->key_dim * d->dim;
    for (uint64_t n = 0; n < d->n_seqs * d->heads; n++) {
        const uint64_t seq = n / d->heads, head = n % d->heads;
        const uint64_t start = (uint64_t)d->offsets[seq];
        const uint64_t length = (uint64_t)d->offsets[seq + 1] - start;
        double *history = room((length + 1) * size), *g = room(size), *rest = room(d->dim);
        for (uint64_t i = 0; i < length; i++) {
            const struct token t = token_at(d, start + i, head);
            memcpy(history + (i + 1) * size, history + i * size, size * sizeof *g);
            step(&t, history + (i + 1) * size, rest);
        }
        for (uint64_t i = length; i-- > 0;) {
            const struct token t = token_at(d, start + i, head);
            token_bwd(&t, history + i * size, go + ((start + i) * d->heads + head) * d->dim, g,
                      out);
        }
        free(history);
        free(g);
        free(rest);
    }
}
