/* facts.c - the facts of a micro-batch, derived from double once for every back-end. */
#include "runtime/kernels/facts.h"

#include <math.h>

_Static_assert(sizeof(struct pl_facts) == 8 * PL_FACTS_WORDS, "what the program plans");

void pl_facts_fill(const struct pl_batch *b, struct pl_facts *out) {
    const double t = (double)(b->step - b->skipped), rate = b->learning_rate;
    const double left1 = 1.0 - pow(b->beta1, t), left2 = 1.0 - pow(b->beta2, t);
    *out = (struct pl_facts){.step = b->step,
                             .max_len = (uint32_t)b->max_len, /* below 2^31, as all tokens */
                             .micro_batch = b->micro_batch,
                             .loss_scale = b->loss_scale,
                             .unscale = ldexpf(1.0f, -b->loss_exponent),
                             .rate = (float)rate,
                             .kept = (float)(1.0 - rate * b->weight_decay),
                             .adam_step = (float)(rate / left1),
                             .adam_root = (float)(1.0 / sqrt(left2)),
                             .adam8_step = (float)(rate * sqrt(left2) / left1),
                             .adam8_epsilon = (float)(sqrt(left2) * b->epsilon),
                             .contributors = b->contributors,
                             .aux_scale = b->aux_scale};
}
