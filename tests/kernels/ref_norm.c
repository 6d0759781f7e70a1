/* ref_norm.c - norms, rotary positions, gated units and the loss, written out. */
#include "tests/kernels/ref_norm.h"

#include <math.h>
#include <stddef.h>

void ref_norm_rstd(struct ref_norm s, const double *x, double *rstd) {
    for (uint64_t i = 0; i < s.rows * s.heads; i++) {
        double sum = 0;
        for (uint64_t c = 0; c < s.dim; c++)
            sum += x[i * s.dim + c] * x[i * s.dim + c];
        rstd[i] = 1 / sqrt(sum / (double)s.dim + s.eps);
    }
}

void ref_norm_scale(struct ref_norm s, const double *x, const double *w, const double *rstd,
                    double *y) {
    for (uint64_t i = 0; i < s.rows * s.heads * s.dim; i++)
        y[i] = x[i] * rstd[i / s.dim] * w[i % s.dim];
}

/* y_c = x_c r w_c with r = (sum x^2/D + eps)^(-1/2), so dr/dx_c = -r^3 x_c / D. */
static void norm_head_bwd(struct ref_norm s, const double *dy, const double *x, const double *w,
                          double r, double *dx, double *magnitude) {
    double dot = 0, size = 0;
    for (uint64_t c = 0; c < s.dim; c++) {
        dot += dy[c] * w[c] * x[c];
        size += fabs(dy[c] * w[c] * x[c]);
    }
    for (uint64_t c = 0; c < s.dim; c++) {
        const double slope = r * r * r * x[c] / (double)s.dim;
        dx[c] += r * dy[c] * w[c] - slope * dot;
        if (magnitude) magnitude[c] += fabs(r * dy[c] * w[c]) + fabs(slope) * size;
    }
}

void ref_norm_bwd(struct ref_norm s, const double *dy, const double *x, const double *w,
                  const double *rstd, double *dx, double *dx_magnitude, double *dw,
                  double *dw_magnitude) {
    for (uint64_t i = 0; i < s.rows * s.heads; i++) {
        const uint64_t at = i * s.dim;
        for (uint64_t c = 0; dw && c < s.dim; c++) {
            const double term = dy[at + c] * x[at + c] * rstd[i];
            dw[c] += term;
            if (dw_magnitude) dw_magnitude[c] += fabs(term);
        }
        if (dx)
            norm_head_bwd(s, dy + at, x + at, w, rstd[i], dx + at,
                          dx_magnitude ? dx_magnitude + at : NULL);
    }
}

void ref_rope(struct ref_rope s, const double *pos, const double *table, double *x,
              double *magnitude) {
    for (uint64_t i = 0; i < s.rows * s.heads; i++) {
        double *head = x + i * s.dim;
        const double *angle = table + (uint64_t)pos[i / s.heads] * s.pairs * 2;
        for (uint64_t k = 0; k < s.pairs; k++) {
            const double a = head[k], b = head[k + s.pairs];
            const double cosine = angle[2 * k], sine = s.sign * angle[2 * k + 1];
            head[k] = a * cosine - b * sine;
            head[k + s.pairs] = b * cosine + a * sine;
            if (!magnitude) continue;
            magnitude[i * s.dim + k] = fabs(a * cosine) + fabs(b * sine);
            magnitude[i * s.dim + k + s.pairs] = fabs(b * cosine) + fabs(a * sine);
        }
    }
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

static double silu(double x) {
    return x * sigmoid(x);
}
static double silu_slope(double x) {
    const double s = sigmoid(x);
    return s + x * s * (1 - s);
}

static double silu_size(double x) {
    return fabs(silu(x));
}
static double silu_slope_size(double x) {
    return (1 + fabs(x)) * sigmoid(x);
}

#define GELU_K 0.79788456080286535588 /* sqrt(2 / pi) */

static double gelu(double x) {
    return 0.5 * x * (1 + tanh(GELU_K * (x + 0.044715 * x * x * x)));
}
static double gelu_slope(double x) {
    const double t = tanh(GELU_K * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * GELU_K * (1 + 3 * 0.044715 * x * x);
}

/* 1 + tanh, the published form, is 1 minus nearly 1 where x is far below 0. */
static double gelu_slope_size(double x) {
    return 1 + fabs(x);
}

const struct ref_act ref_silu = {silu, silu_slope, silu_size, silu_slope_size};
const struct ref_act ref_gelu = {gelu, gelu_slope, fabs, gelu_slope_size};

void ref_glu(const struct ref_act *act, uint64_t rows, uint64_t ffn, const double *gu, double *m,
             double *magnitude) {
    for (uint64_t i = 0; i < rows; i++)
        for (uint64_t c = 0; c < ffn; c++) {
            const double gate = gu[i * 2 * ffn + c], up = gu[i * 2 * ffn + ffn + c];
            m[i * ffn + c] = act->value(gate) * up;
            if (magnitude) magnitude[i * ffn + c] = act->value_size(gate) * fabs(up);
        }
}

void ref_glu_bwd(const struct ref_act *act, uint64_t rows, uint64_t ffn, const double *gu,
                 const double *dm, double *dgu, double *magnitude) {
    for (uint64_t i = 0; i < rows; i++)
        for (uint64_t c = 0; c < ffn; c++) {
            const uint64_t g = i * 2 * ffn + c, u = g + ffn;
            const double d = dm[i * ffn + c], up = gu[u], gate = gu[g];
            dgu[g] = d * up * act->slope(gate);
            dgu[u] = d * act->value(gate);
            if (!magnitude) continue;
            magnitude[g] = fabs(d * up) * act->slope_size(gate);
            magnitude[u] = fabs(d) * act->value_size(gate);
        }
}

static double log_sum_exp(const double *x, uint64_t n) {
    double max = x[0], sum = 0;
    for (uint64_t i = 1; i < n; i++)
        max = fmax(max, x[i]);
    for (uint64_t i = 0; i < n; i++)
        sum += exp(x[i] - max);
    return max + log(sum);
}

double ref_cross_entropy(uint64_t rows, uint64_t vocab, const double *logits,
                         const double *targets) {
    double loss = 0;
    for (uint64_t i = 0; i < rows; i++)
        loss += log_sum_exp(logits + i * vocab, vocab) - logits[i * vocab + (uint64_t)targets[i]];
    return loss;
}

void ref_cross_entropy_bwd(uint64_t rows, uint64_t vocab, double scale, const double *logits,
                           const double *targets, double *gradient, double *magnitude) {
    for (uint64_t i = 0; i < rows; i++) {
        const double lse = log_sum_exp(logits + i * vocab, vocab);
        for (uint64_t c = 0; c < vocab; c++) {
            const uint64_t at = i * vocab + c;
            const double p = exp(logits[at] - lse), hot = c == (uint64_t)targets[i];
            gradient[at] = scale * (p - hot);
            if (magnitude) magnitude[at] = scale * (p + hot);
        }
    }
}
