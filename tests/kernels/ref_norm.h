/* ref_norm.h - norms, rotary positions, gated units and the loss, as definitions in double.
 *
 * All arrays are dense and row-major. A backward function adds to what its outputs hold; magnitudes
 * (nullable) collect the absolute values of the terms, with which rounding errors scale. */
#ifndef PL_TESTS_KERNELS_REF_NORM_H
#define PL_TESTS_KERNELS_REF_NORM_H

#include <stdint.h>

/* rows of `heads` norms of `dim` columns, w[dim]; a plain norm has one head. */
struct ref_norm {
    uint64_t rows, heads, dim;
    double eps;
};
/* rstd[rows,heads] */
void ref_norm_rstd(struct ref_norm s, const double *x, double *rstd);
/* y = x * rstd * w */
void ref_norm_scale(struct ref_norm s, const double *x, const double *w, const double *rstd,
                    double *y);
/* dx nullable, dw nullable */
void ref_norm_bwd(struct ref_norm s, const double *dy, const double *x, const double *w,
                  const double *rstd, double *dx, double *dx_magnitude, double *dw,
                  double *dw_magnitude);

/* x[rows, heads*dim] turned in place by table[pos][pairs][cos, sin]; sign -1 turns back. */
struct ref_rope {
    uint64_t rows, heads, dim, pairs;
    double sign;
};
void ref_rope(struct ref_rope s, const double *pos, const double *table, double *x,
              double *magnitude);

/* An activation and its derivative, each with the magnitude of the terms that it is added up
 * from. */
struct ref_act {
    double (*value)(double x), (*slope)(double x);
    double (*value_size)(double x), (*slope_size)(double x);
};
extern const struct ref_act ref_silu, ref_gelu;
/* m[rows,ffn] = act(gu[:, :ffn]) * gu[:, ffn:] */
void ref_glu(const struct ref_act *act, uint64_t rows, uint64_t ffn, const double *gu, double *m,
             double *magnitude);
/* dgu[rows,2*ffn] from dm */
void ref_glu_bwd(const struct ref_act *act, uint64_t rows, uint64_t ffn, const double *gu,
                 const double *dm, double *dgu, double *magnitude);

/* Sum over rows of the log-sum-exp minus the target's logit. */
double ref_cross_entropy(uint64_t rows, uint64_t vocab, const double *logits,
                         const double *targets);
/* scale * (softmax - one-hot), overwriting; magnitude = scale * (softmax + one-hot). */
void ref_cross_entropy_bwd(uint64_t rows, uint64_t vocab, double scale, const double *logits,
                           const double *targets, double *gradient, double *magnitude);

#endif
