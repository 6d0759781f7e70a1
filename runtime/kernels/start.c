/* start.c - starting values one after another, for the host. */
#include "runtime/kernels/start.h"

#include "runtime/kernels/normal.h"

void pl_rng_normal(const struct pl_rng *r, uint64_t index, float out[4]) {
    uint32_t x[4];
    pl_rng_block(r, index, x);
    pl_normal_pair(x[0], x[1], &out[0], &out[1]);
    pl_normal_pair(x[2], x[3], &out[2], &out[3]);
}

/* The four values of a random block. */
static void fill_block(const struct pl_start_rule *rule, uint64_t index,
                       float out[PL_START_BLOCK]) {
    const float deviation = (float)rule->spread;
    if (rule->kind == PL_START_NORMAL) {
        pl_rng_normal(&rule->rng, index, out);
        for (int k = 0; k < PL_START_BLOCK; k++)
            out[k] *= deviation;
    } else {
        uint32_t x[PL_START_BLOCK];
        pl_rng_block(&rule->rng, index, x);
        for (int k = 0; k < PL_START_BLOCK; k++)
            out[k] = pl_start_uniform(x[k], rule->spread);
    }
}

void pl_start_values(const struct pl_start_rule *rule, uint64_t first, uint64_t n, float *out) {
    for (uint64_t i = 0; rule->kind == PL_START_CONSTANT && i < n; i++)
        out[i] = (float)rule->spread;
    for (uint64_t i = 0; rule->kind != PL_START_CONSTANT && i < n; i += PL_START_BLOCK) {
        float block[PL_START_BLOCK];
        fill_block(rule, (first + i) / PL_START_BLOCK, block);
        for (uint64_t k = 0; k < PL_START_BLOCK && i + k < n; k++)
            out[i + k] = block[k];
    }
}
