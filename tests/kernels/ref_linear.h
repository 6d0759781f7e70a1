/* ref_linear.h - products and their derivatives, as definitions in double.
 *
 * Shapes: x[m,k], w[n,k], y[m,n], all dense and row-major. */
#ifndef PL_TESTS_KERNELS_REF_LINEAR_H
#define PL_TESTS_KERNELS_REF_LINEAR_H

#include <stdint.h>

struct ref_shape {
    uint64_t m, n, k;
};

/* y += alpha x w^T; magnitude (nullable) += alpha |x| |w|^T. */
void ref_linear(struct ref_shape s, double alpha, const double *x, const double *w, double *y,
                double *magnitude);
/* dx += alpha dy w */
void ref_linear_dx(struct ref_shape s, double alpha, const double *dy, const double *w, double *dx,
                   double *magnitude);
/* dw += alpha dy^T x */
void ref_linear_dw(struct ref_shape s, double alpha, const double *dy, const double *x, double *dw,
                   double *magnitude);
/* x[i] = scale * w[ids[i]]; columns k. */
void ref_embed(uint64_t m, uint64_t k, double scale, const double *ids, const double *w, double *x);
/* dw[ids[i]] += scale * dx[i] where ids[i] is not padding_idx; -1 = every id */
void ref_embed_bwd(uint64_t m, uint64_t k, double scale, const double *ids, int64_t padding_idx,
                   const double *dx, double *dw, double *magnitude);

#endif
