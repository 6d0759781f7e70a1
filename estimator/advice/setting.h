/* setting.h - a job under change and its price. Private to advice.
 *
 * The copy is shallow: strings and lists stay the user's. Only keys without memory of their own are
 * set on it, and it is never finished. */
#ifndef PL_ESTIMATOR_ADVICE_SETTING_H
#define PL_ESTIMATOR_ADVICE_SETTING_H

#include "estimator/advice/advice.h"

struct pl_setting {
    struct pl_job job;
    uint32_t batch_size;
};

struct pl_setting pl_setting_of(const struct pl_advice_question *q, uint32_t batch_size);
/* Sets batch_size, max_seq_length or another U32 key from a number; an error:
 * outside its range, or more tokens than a micro-batch may have. */
pl_err pl_setting_put(struct pl_setting *s, enum pl_key_id key, uint32_t value, struct pl_diag *d);
uint32_t pl_setting_get(const struct pl_setting *s, enum pl_key_id key);
pl_err pl_setting_price(const struct pl_advice_question *q, const struct pl_setting *s,
                        struct pl_price *out, struct pl_diag *d);
/* Largest batch that fits with this setting, 0 = none; limit as in autobatch.h. */
pl_err pl_setting_largest_batch(const struct pl_advice_question *q, const struct pl_setting *s,
                                uint32_t *out, struct pl_diag *d);
/* Planned bytes, work and time with the verdict of the gate. */
struct pl_price pl_setting_price_of(const struct pl_program *p, const struct pl_verdict *v);
/* The largest divisor of `samples` up to `largest`, so that every micro-batch is whole; where
 * samples is 0 the largest power of two. 0 when largest is. */
uint32_t pl_setting_micro_batch(uint32_t largest, uint32_t samples);

/* knobs.c, card_rows.c: fill their part of the advice. */
pl_err pl_advice_knobs(struct pl_advice *a, struct pl_diag *d);
pl_err pl_advice_tradeoffs(struct pl_advice *a, struct pl_diag *d);
pl_err pl_advice_cards(struct pl_advice *a, struct pl_diag *d);

#endif
