/* ref_delta.h - the operations of linear attention, as definitions in double.
 *
 * All arrays are dense and row-major; offsets[n_seqs+1] are the ends of sequences. A backward
 * function adds to what its outputs hold; magnitudes (nullable) collect the absolute values of the
 * terms, with which rounding errors scale. */
#ifndef PL_TESTS_KERNELS_REF_DELTA_H
#define PL_TESTS_KERNELS_REF_DELTA_H

#include <stdint.h>

/* Sequence s has rows before its own: before[s * (taps-1) + k] is the one k+1 positions before its
 * first, so many of them as `known` says; NULL: none. */
struct ref_conv {
    uint64_t n_seqs, channels, taps;
    const double *offsets, *y, *w; /* y[rows,channels], w[channels,taps] */
    const double *before, *known;
};
/* u[rows,channels] before silu */
void ref_conv(const struct ref_conv *c, double *u, double *magnitude);
/* from dc; dw nullable */
void ref_conv_silu_bwd(const struct ref_conv *c, const double *dc, double *dy, double *dy_magnitude,
                       double *dw, double *dw_magnitude);
double ref_sigmoid(double x);

/* norms of `dim` columns, w[dim]: y = o * rstd * w * silu(z), rstd[norms] */
struct ref_gated {
    uint64_t norms, dim;
    double eps;
};
void ref_gated_norm(struct ref_gated s, const double *o, const double *z, const double *w,
                    double *y, double *rstd);
struct ref_gated_bwd {
    const double *dy, *rstd;
    double *go, *gz, *dw; /* dw nullable */
    double *go_magnitude, *gz_magnitude, *dw_magnitude;
};
void ref_gated_norm_bwd(struct ref_gated s, const double *o, const double *z, const double *w,
                        const struct ref_gated_bwd *g);

#endif
