/* ref_linear.c - products and their derivatives, written out. */
#include "tests/kernels/ref_linear.h"

#include <math.h>
#include <stddef.h>

static void add_term(double *sum, double *magnitude, uint64_t at, double term) {
    sum[at] += term;
    if (magnitude) magnitude[at] += fabs(term);
}

void ref_linear(struct ref_shape s, double alpha, const double *x, const double *w, double *y,
                double *magnitude) {
    for (uint64_t i = 0; i < s.m; i++)
        for (uint64_t o = 0; o < s.n; o++)
            for (uint64_t c = 0; c < s.k; c++)
                add_term(y, magnitude, i * s.n + o, alpha * x[i * s.k + c] * w[o * s.k + c]);
}

void ref_linear_dx(struct ref_shape s, double alpha, const double *dy, const double *w, double *dx,
                   double *magnitude) {
    for (uint64_t i = 0; i < s.m; i++)
        for (uint64_t o = 0; o < s.n; o++)
            for (uint64_t c = 0; c < s.k; c++)
                add_term(dx, magnitude, i * s.k + c, alpha * dy[i * s.n + o] * w[o * s.k + c]);
}

void ref_linear_dw(struct ref_shape s, double alpha, const double *dy, const double *x, double *dw,
                   double *magnitude) {
    for (uint64_t i = 0; i < s.m; i++)
        for (uint64_t o = 0; o < s.n; o++)
            for (uint64_t c = 0; c < s.k; c++)
                add_term(dw, magnitude, o * s.k + c, alpha * dy[i * s.n + o] * x[i * s.k + c]);
}

void ref_embed(uint64_t m, uint64_t k, double scale, const double *ids, const double *w,
               double *x) {
    for (uint64_t i = 0; i < m; i++)
        for (uint64_t c = 0; c < k; c++)
            x[i * k + c] = scale * w[(uint64_t)ids[i] * k + c];
}

void ref_embed_bwd(uint64_t m, uint64_t k, double scale, const double *ids, int64_t padding_idx,
                   const double *dx, double *dw, double *magnitude) {
    for (uint64_t i = 0; i < m; i++)
        for (uint64_t c = 0; c < k && (int64_t)ids[i] != padding_idx; c++)
            add_term(dw, magnitude, (uint64_t)ids[i] * k + c, scale * dx[i * k + c]);
}
