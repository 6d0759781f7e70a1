/* price.h - what a question costs, and changing it by numbers. Private to advice. */
#ifndef PL_ESTIMATOR_ADVICE_PRICE_H
#define PL_ESTIMATOR_ADVICE_PRICE_H

#include "estimator/autobatch/decide.h"
#include "estimator/base/report_rows.h"
#include "estimator/gate/gate.h"
#include "estimator/search/change.h"

struct pl_price {             /* of one setting */
    uint64_t needed_bytes;    /* arenas + context */
    double flops_per_token;   /* planned for a micro-batch, over its capacity in tokens */
    double seconds_per_token; /* the same, of the nominal machine (cost.h) */
    double update_seconds;    /* of the optimizer's part of a step, there too */
    enum pl_verdict_kind verdict;
};

/* A variant at another micro-batch. */
void pl_price_variant(struct pl_variant *v, const struct pl_question *q, uint32_t batch_size);
/* Of the question as it is decided. */
pl_err pl_price_decided(const struct pl_question *q, struct pl_trials *t, struct pl_price *out,
                        struct pl_diag *d);
/* As it comes out where it is typed: what the job leaves open is decided again. */
pl_err pl_price_of(const struct pl_question *q, struct pl_trials *t, struct pl_price *out,
                   struct pl_diag *d);
/* Writes what was decided of a question into its job, as keys that a command writes down. */
void pl_price_settle(const struct pl_question *q, struct pl_job *job);
/* The ceiling keeps a full fine-tune from being started by accident; where one is asked about, the
 * job says how many parameters it trains, unless it names a ceiling itself. */
void pl_price_raise_ceiling(const struct pl_program *p, struct pl_job *job);
/* Bytes and verdict alone. */
pl_err pl_price_bytes(const struct pl_question *q, struct pl_trials *t, struct pl_price *out,
                      struct pl_diag *d);
/* Planned bytes, work and time with the verdict of the gate. */
struct pl_price pl_price_of_program(const struct pl_program *p, const struct pl_verdict *v);
/* The batch that `batch_size: auto` is, 0 = none fits. */
pl_err pl_price_auto_batch(const struct pl_question *q, struct pl_trials *t, uint32_t *out,
                           struct pl_diag *d);
/* The largest that fits with any of what is open, 0 = none: it and the next were planned. */
pl_err pl_price_largest_batch(const struct pl_question *q, struct pl_trials *t, uint32_t *out,
                              struct pl_diag *d);
/* The largest divisor of `samples` up to `largest`, so that every micro-batch is whole; where
 * samples is 0 the largest power of two. 0 when largest is. */
uint32_t pl_price_micro_batch(uint32_t largest, uint32_t samples);
/* Adds needed_bytes, flops_per_token and verdict. */
void pl_price_report(const struct pl_price *p, struct pl_report *r);

#endif
