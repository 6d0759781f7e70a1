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

/* qkv[rows, 2 K dk + H dim], ba[rows, 2 H]; at most 256 columns of a key. */
struct ref_delta {
    uint64_t n_seqs, heads, key_heads, key_dim, dim;
    const double *offsets, *qkv, *ba, *a_log, *dt_bias;
    const double *before; /* [n_seqs, H dk dim]: states that sequences begin with; NULL: zeros */
};
/* o[rows, H dim]; states (nullable): row offsets[s]/64 + s + c is that before chunk c; last
 * (nullable): those after sequences that are not empty */
void ref_gated_delta(const struct ref_delta *d, double *o, double *states, double *last);
struct ref_delta_bwd {
    double *dqkv, *dba, *da_log, *ddt_bias;
    double *da_log_magnitude, *ddt_bias_magnitude;
    double *key_magnitude; /* [rows, 2 K dk]: of the queries and keys in dqkv */
};
void ref_gated_delta_bwd(const struct ref_delta *d, const double *go,
                         const struct ref_delta_bwd *out);

#endif
