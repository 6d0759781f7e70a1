/* ref_experts.c - routers and the clamped gated unit, one number at a time. */
#include "tests/kernels/ref_experts.h"

#include <math.h>
#include <stddef.h>

static void softmax(const double *x, uint64_t n, double *p) {
    double max = -INFINITY, sum = 0;
    for (uint64_t i = 0; i < n; i++)
        max = fmax(max, x[i]);
    for (uint64_t i = 0; i < n; i++)
        sum += exp(x[i] - max);
    for (uint64_t i = 0; i < n; i++)
        p[i] = exp(x[i] - max) / sum;
}

/* The number of experts that stand before expert e in the order of their probabilities. */
static uint64_t place_of(const double *logits, uint64_t n, uint64_t e) {
    uint64_t place = 0;
    for (uint64_t i = 0; i < n; i++)
        place += logits[i] > logits[e] || (logits[i] == logits[e] && i < e);
    return place;
}

static bool divides(const struct ref_router *r) {
    return !r->softmax_first || r->normalise;
}

void ref_route(const struct ref_router *r, double *weight, double *choice, double *p) {
    for (uint64_t t = 0; t < r->n; t++) {
        const double *x = r->logits + t * r->experts;
        double *own = p + t * r->experts, sum = 0;
        softmax(x, r->experts, own);
        for (uint64_t e = 0; e < r->experts; e++) {
            const uint64_t j = place_of(x, r->experts, e);
            if (j >= r->k) continue;
            choice[t * r->k + j] = (double)e;
            weight[t * r->k + j] = own[e];
            sum += own[e];
        }
        for (uint64_t j = 0; j < r->k && divides(r); j++)
            weight[t * r->k + j] /= sum;
    }
}

/* d logits = softmax's Jacobian times d p, over the n numbers of a softmax. */
static void through_softmax(const double *p, const double *dp, uint64_t n, double *dx,
                            double *magnitude) {
    double mean = 0, size = 0;
    for (uint64_t i = 0; i < n; i++) {
        mean += p[i] * dp[i];
        size += p[i] * fabs(dp[i]);
    }
    for (uint64_t i = 0; i < n; i++) {
        dx[i] += p[i] * (dp[i] - mean);
        if (magnitude) magnitude[i] += p[i] * (fabs(dp[i]) + size);
    }
}

enum { MOST = 1024 };

static void backward_row(const struct ref_router *r, uint64_t t, const double *weight,
                         const double *choice, const double *dweight, const double *dp, double *dx,
                         double *magnitude) {
    double p[MOST], d[MOST] = {0}, part[MOST] = {0}, size[MOST] = {0};
    const uint64_t n = divides(r) ? r->k : r->experts;
    softmax(r->logits + t * r->experts, r->experts, p);
    for (uint64_t e = 0; e < r->experts; e++)
        dx[e] = 0, d[e] = dp ? dp[e] : 0;
    if (dp) through_softmax(p, d, r->experts, dx, magnitude);
    for (uint64_t e = 0; e < r->experts; e++)
        d[e] = 0;
    for (uint64_t j = 0; j < r->k; j++)
        d[divides(r) ? j : (uint64_t)choice[j]] = dweight[j];
    through_softmax(divides(r) ? weight : p, d, n, part, size);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t e = divides(r) ? (uint64_t)choice[i] : i;
        dx[e] += part[i];
        if (magnitude) magnitude[e] += size[i];
    }
}

void ref_route_bwd(const struct ref_router *r, const double *weight, const double *choice,
                   const double *dweight, const double *dp, double *dlogits, double *magnitude) {
    for (uint64_t t = 0; t < r->n; t++)
        backward_row(r, t, weight + t * r->k, choice + t * r->k, dweight + t * r->k, dp,
                     dlogits + t * r->experts, magnitude ? magnitude + t * r->experts : NULL);
}

static double sigmoid(double z) {
    return 1 / (1 + exp(-z));
}

void ref_clamped(uint64_t n, uint64_t cols, double limit, double alpha, const double *gu,
                 double *m) {
    for (uint64_t i = 0; i < n * cols; i++) {
        const double gate = fmin(gu[2 * i], limit);
        const double up = fmax(fmin(gu[2 * i + 1], limit), -limit);
        m[i] = (up + 1) * gate * sigmoid(alpha * gate);
    }
}

void ref_clamped_bwd(uint64_t n, uint64_t cols, double limit, double alpha, const double *gu,
                     const double *dm, double *dgu) {
    for (uint64_t i = 0; i < n * cols; i++) {
        const double gate = fmin(gu[2 * i], limit), s = sigmoid(alpha * gate);
        const double up = fmax(fmin(gu[2 * i + 1], limit), -limit);
        const double slope = s + alpha * gate * s * (1 - s);
        dgu[2 * i] = gu[2 * i] <= limit ? dm[i] * (up + 1) * slope : 0;
        dgu[2 * i + 1] = fabs(gu[2 * i + 1]) <= limit ? dm[i] * gate * s : 0;
    }
}
