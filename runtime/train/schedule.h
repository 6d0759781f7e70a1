/* schedule.h - the learning rate of a step, as Hugging Face's schedulers give it.
 * s = step - 1, W = warm-up steps, T = all steps. */
#ifndef PL_RUNTIME_TRAIN_SCHEDULE_H
#define PL_RUNTIME_TRAIN_SCHEDULE_H

#include <stdint.h>

struct pl_schedule {
    uint32_t kind; /* PL_SCHEDULE_* */
    double peak, min_ratio;
    uint64_t warmup, total;
};

double pl_schedule_rate(const struct pl_schedule *s, uint64_t step); /* step counts from 1 */

#endif
