/* cost.h - how plans of one job compare in time: a roofline over their ops.
 *
 * In: a program with planned FLOPs and bytes moved.  Out: seconds on a nominal machine.  Needs:
 * card.
 *   T1  the figures of the nominal machine are constants, so a choice made by them is the same
 *       everywhere and at every time; they are good for comparing plans, not for a clock
 *   T2  a clock comes of them only with a ratio that was measured where the job runs (runtime)
 * An op takes the longer of its arithmetic and its traffic (Williams et al., Roofline, CACM 2009),
 * and a start; ops follow each other, copies to and from host memory among them. An op of the host
 * takes what it takes on the nominal CPU. */
#ifndef PL_ESTIMATOR_PROGRAM_COST_H
#define PL_ESTIMATOR_PROGRAM_COST_H

#include "estimator/program/program.h"

struct pl_speed {
    double flops_per_second, bytes_per_second;
    double link_bytes_per_second; /* between host memory and the device's, one way */
    double start_seconds;         /* of an op */
};
struct pl_speed pl_speed_nominal(const struct pl_traits *t);

/* Of one micro-batch at capacity. */
double pl_program_micro_seconds(const struct pl_program *p, const struct pl_speed *s);
/* The same over its capacity in tokens. */
double pl_program_seconds_per_token(const struct pl_program *p, const struct pl_speed *s);
/* Of a step that computes `tokens` in micro-batches of whatever size, and its update. */
double pl_program_step_seconds(const struct pl_program *p, const struct pl_speed *s, double tokens);

#endif
