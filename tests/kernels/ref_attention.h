/* ref_attention.h - causal attention of one batch, as definitions in double.
 *
 * q, o and their gradients are [N, heads*dim], k and v [N, kv_heads*dim], lse [N, heads], offsets
 * [n_seqs+1]; dense and row-major. Query i of a sequence sees keys j with i - window < j <= i
 * (window 0: all j <= i). Outputs are written for the rows of the sequences; magnitudes are
 * nullable. */
#ifndef PL_TESTS_KERNELS_REF_ATTENTION_H
#define PL_TESTS_KERNELS_REF_ATTENTION_H

#include <stdint.h>

struct ref_attention {
    uint64_t n_seqs, heads, kv_heads, dim, window;
    double scale;
    const double *offsets, *q, *k, *v;
    const double *sinks; /* [heads]: scores without a value; NULL: none */
};

void ref_attention(const struct ref_attention *a, double *o, double *o_magnitude, double *lse);

/* Gradients of a functional with d/do given, from o and lse of the forward pass. Outputs are zeroed
 * first. */
struct ref_attention_bwd {
    const double *o, *lse, *go;
    double *dq, *dk, *dv;
    double *dq_magnitude, *dk_magnitude, *dv_magnitude;
};
void ref_attention_bwd(const struct ref_attention *a, const struct ref_attention_bwd *g);
/* The gradient of the sinks, from o, lse and go; added to dsinks[heads]. */
void ref_sink_bwd(const struct ref_attention *a, const struct ref_attention_bwd *g, double *dsinks,
                  double *magnitude);

#endif
