/* start.h - starting values of tensors: a constant, or random numbers by their place.
 *
 * In: a rule, and which values. Out: fp32. Needs: nothing of a device; no state, safe from any
 * thread.
 *   S1  value i is a function of (rule, i): of no other value, and not of who computes it
 *   S2  same bits on every machine and by the kernels of START and QUANT4 (normal.h)
 * Use: struct pl_start_rule rule = pl_start_rule_of(&attr, seed);
 *      pl_start_values(&rule, first, n, out); */
#ifndef PL_RUNTIME_KERNELS_START_H
#define PL_RUNTIME_KERNELS_START_H

#include "estimator/ops/attr.h"
#include "runtime/kernels/rng.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Values that share a random block: a piece of a tensor begins with a whole one. */
#define PL_START_BLOCK 4

struct pl_start_rule {
    enum pl_start kind;
    double spread; /* standard deviation, half the width, or the constant */
    struct pl_rng rng;
};

static inline struct pl_start_rule pl_start_rule_of(const struct pl_attr *attr, uint64_t seed) {
    struct pl_start_rule rule;
    rule.kind = attr->start;
    rule.spread = attr->spread;
    rule.rng = pl_rng_init(seed, attr->site, attr->stream);
    return rule;
}

/* Uniform within +-spread. All but the last product is exact, so it may be fused at will. */
PL_RNG_FN float pl_start_uniform(uint32_t word, double spread) {
    return (float)(spread * ((word + 0.5) * (1.0 / 2147483648.0) - 1.0));
}

/* out[n]: values [first, first + n); first is a multiple of PL_START_BLOCK. */
void pl_start_values(const struct pl_start_rule *rule, uint64_t first, uint64_t n, float *out);

#ifdef __cplusplus
}
#endif

#endif
