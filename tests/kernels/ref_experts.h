/* ref_experts.h - routers and the clamped gated unit, as definitions in double.
 *
 * Matrices are dense and row-major: logits, p and their gradients [n, experts], weights and choices
 * [n, k], gu [n, 2 cols] with gate and up by turns. Magnitudes are nullable. */
#ifndef PL_TESTS_KERNELS_REF_EXPERTS_H
#define PL_TESTS_KERNELS_REF_EXPERTS_H

#include <stdbool.h>
#include <stdint.h>

struct ref_router {
    uint64_t n, experts, k;
    bool softmax_first, normalise;
    const double *logits;
};

/* p: softmax over all experts; choice: the k likeliest of each row, the lower of equals first. */
void ref_route(const struct ref_router *r, double *weight, double *choice, double *p);
/* Gradients of a functional with d/d weight given, and with d/dp[e] (nullable) of every row. */
void ref_route_bwd(const struct ref_router *r, const double *weight, const double *choice,
                   const double *dweight, const double *dp, double *dlogits, double *magnitude);

void ref_clamped(uint64_t n, uint64_t cols, double limit, double alpha, const double *gu,
                 double *m);
void ref_clamped_bwd(uint64_t n, uint64_t cols, double limit, double alpha, const double *gu,
                     const double *dm, double *dgu);

#endif
