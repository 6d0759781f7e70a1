/* price.h - what a question costs, read off one plan of it, and the micro-batches that it may have.
 *
 * In: a question.  Out: its price: bytes, work, time and verdict.
 * Needs: autobatch, gate. No I/O.
 * Use: struct pl_variant v; pl_variant_of(&v, &q); v.job.lora_r /= 2;
 *      pl_price_of(&v.q, &trials, &price, &d); */
#ifndef PL_ESTIMATOR_GATE_PRICE_H
#define PL_ESTIMATOR_GATE_PRICE_H

#include "estimator/autobatch/decide.h"
#include "estimator/base/report_rows.h"
#include "estimator/gate/gate.h"

struct pl_price {
    uint64_t needed_bytes;    /* arenas + context */
    uint64_t host_bytes;      /* of host memory that its tensors take */
    double flops_per_token;   /* planned for a micro-batch, over its capacity in tokens */
    double seconds_per_token; /* the same, of the nominal machine (cost.h) */
    double update_seconds;    /* of the optimizer's part of a step, there too */
    enum pl_verdict_kind verdict;
};
static inline bool pl_price_fits(const struct pl_price *p) {
    return p->verdict == PL_VERDICT_FITS;
}

/* The price of a question, of which `held` is the plan. */
struct pl_price pl_price_held(const struct pl_question *q, const struct pl_planned *held);
/* The price of the question as it is decided, whose plan is held; limit: as for
 * pl_question_measure_within(), 0: none. */
pl_err pl_price_measure(const struct pl_question *q, uint64_t limit, struct pl_trials *t,
                        struct pl_price *out, struct pl_diag *d);
/* As it comes out where it is typed: what the job leaves open is decided again. */
pl_err pl_price_of(const struct pl_question *q, struct pl_trials *t, struct pl_price *out,
                   struct pl_diag *d);
/* The same, and *q gets what was decided. */
pl_err pl_price_decide(struct pl_question *q, struct pl_trials *t, struct pl_price *out,
                       struct pl_diag *d);
/* Writes what was decided of a question into its job, as keys that a command writes down. */
void pl_price_settle(const struct pl_question *q, struct pl_job *job);
/* The ceiling keeps a full fine-tune from being started by accident; where one is asked about, the
 * job says how many parameters it trains, unless it names a ceiling itself. */
void pl_price_raise_ceiling(const struct pl_program *p, struct pl_job *job);
/* The batch that `batch_size: auto` is, 0 = none fits. */
pl_err pl_price_auto_batch(const struct pl_question *q, struct pl_trials *t, uint32_t *out,
                           struct pl_diag *d);
/* The largest that fits with any of what is open, a level that no one wrote being `full`; 0 = none:
 * it and the next were planned. */
pl_err pl_price_largest_batch(const struct pl_question *q, struct pl_trials *t, uint32_t *out,
                              struct pl_diag *d);
/* The largest divisor of `samples` up to `largest`, so that every micro-batch is whole; where
 * samples is 0 the largest power of two. 0 when largest is. */
uint32_t pl_price_micro_batch(uint32_t largest, uint32_t samples);
/* Adds needed_bytes, flops_per_token and verdict. */
void pl_price_report(const struct pl_price *p, struct pl_report *r);

#endif
