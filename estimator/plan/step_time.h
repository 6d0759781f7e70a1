/* step_time.h - how long a step of one rank of several takes, by a link.
 *
 * In: a plan, a machine, a link.  Out: seconds of both.  Needs: plan, card/links.h.
 * Ops between ranks take their bytes over the link, the others what they take on the machine; both
 * are nominal (cost.h).
 *   ST1  in order: one op after another, as a run on CPUs does. With one rank that is
 *        pl_program_step_seconds()
 *   ST2  overlapped: ops between ranks have a stream of their own, and so have, on a GPU, copies to
 *        and from host memory: these begin after every op before them (runtime/exec/copy_stream.h).
 *        Ops of a stream keep their order; an op waits for what it reads, and for every earlier op
 *        that uses the bytes which it writes, also those of another tensor that lay there. Phases
 *        and micro-batches do not overlap each other
 *   ST3  neither is longer with a faster link; overlapped is never longer than in order
 * Use: pl_plan_step_time(plan, &speed, link, micro_batches, &t, &d); */
#ifndef PL_ESTIMATOR_PLAN_STEP_TIME_H
#define PL_ESTIMATOR_PLAN_STEP_TIME_H

#include "estimator/card/links.h"
#include "estimator/plan/plan.h"
#include "estimator/program/cost.h"

struct pl_step_time {
    double compute_seconds, link_seconds; /* in order: their sum */
    double copy_seconds; /* of compute_seconds, those of copies that have a stream of their own */
    double overlapped_seconds; /* 0: not known, of a brief program */
    double sent_bytes;         /* by this rank */
};
static inline double pl_step_in_order(const struct pl_step_time *t) {
    return t->compute_seconds + t->link_seconds;
}

/* In order alone, also of a brief program. */
void pl_program_step_time(const struct pl_program *p, const struct pl_speed *speed,
                          const struct pl_link *link, double micro_batches,
                          struct pl_step_time *out);
/* All of it; the program is whole. */
pl_err pl_plan_step_time(const struct pl_plan *plan, const struct pl_speed *speed,
                         const struct pl_link *link, double micro_batches, struct pl_step_time *out,
                         struct pl_diag *d);

#endif
