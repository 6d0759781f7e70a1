/* ref_delta.c - the references of ref_delta.h, as plain loops. */
#include "tests/kernels/ref_delta.h"

#include <math.h>
#include <stddef.h>

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
