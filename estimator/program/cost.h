/* cost.h - what the ops of a plan compute and move, and how long that takes on a nominal machine.
 *
 * In: a program, and how much of its capacity a step uses.  Out: FLOPs, bytes, seconds on a nominal
 * machine.  Needs: card.
 *   T1  the figures of the nominal machine are constants, so a choice made by them is the same
 *       everywhere and at every time; they are good for comparing plans, not for a clock
 *   T2  they become times only with ratios that were measured where the job runs (runtime), one for
 *       each class of ops: how a machine compares with the nominal one differs between the classes,
 *       and hardly within one
 * An op takes the longer of its arithmetic and its traffic (Williams et al., Roofline, CACM 2009),
 * plus the time of its start. Ops run one after another, copies to and from host memory included.
 * An op of the host takes what it takes on the nominal CPU. */
#ifndef PL_ESTIMATOR_PROGRAM_COST_H
#define PL_ESTIMATOR_PROGRAM_COST_H

#include "estimator/program/program.h"

const char *pl_cost_name(enum pl_cost c);
enum pl_cost pl_op_cost(const struct pl_op *op);

/* What a step, or any run of the phases of one, computes. */
struct pl_load {
    double micro_batches;
    double tokens, targets; /* of all of them */
    double length;          /* of the sequence that a token stands in, on average over the tokens */
};
/* One micro-batch at capacity, every token supervised. */
struct pl_load pl_load_full(const struct pl_program *p);

/* Of one run of an op in a micro-batch of mean size. Products count 2mnk, attention its causal
 * half; bytes are those of the operands without scratch, of a table only the rows that are used. */
struct pl_work {
    double flops, bytes;
};
double pl_op_flops(const struct pl_program *p, const struct pl_op *op, const struct pl_load *load);
struct pl_work pl_op_work(const struct pl_program *p, const struct pl_op *op,
                          const struct pl_load *load);

struct pl_speed {
    double flops_per_second, bytes_per_second;
    double link_bytes_per_second; /* between host memory and the device's, one way */
    double start_seconds;         /* of an op */
    bool updates_together;  /* norms and updates of many tensors are started as one */
    bool copies_inputs;     /* a product copies both matrices into another layout and then computes,
                             * which shows where one of its dimensions is small */
    double diagonal_keys;   /* keys that a query pays for besides those it sees, times two: where
                             * tiles of attention reach past the diagonal, and their start */
    double softmax_columns; /* what the exponential of a score costs, as columns of a head */
    const double *traffic;  /* [PL_OP_COUNT] times as slow as memory: bound by arithmetic that is no
                             * product; 0 = 1; NULL = all of them */
};
struct pl_speed pl_speed_nominal(const struct pl_traits *t);

/* Of one run of an op. */
double pl_op_seconds(const struct pl_program *p, const struct pl_op *op, const struct pl_speed *s,
                     const struct pl_load *load);
/* Of one micro-batch at capacity. */
double pl_program_micro_seconds(const struct pl_program *p, const struct pl_speed *s);
/* Of one with less in it. */
double pl_program_load_seconds(const struct pl_program *p, const struct pl_speed *s,
                               const struct pl_load *load);
/* Of what no level of recomputation leaves out. */
double pl_program_first_seconds(const struct pl_program *p, const struct pl_speed *s);
/* Of the optimizer's part of a step. */
double pl_program_update_seconds(const struct pl_program *p, const struct pl_speed *s);
/* Of all, over its capacity in tokens. */
double pl_program_seconds_per_token(const struct pl_program *p, const struct pl_speed *s);
/* Runs of an op in a step of so many micro-batches; 0 outside of MICRO and OPTIMIZER. */
double pl_op_runs(const struct pl_op *op, double micro_batches);
/* Of a step: its micro-batches and the update. of (nullable) gets the seconds of each class. */
double pl_program_step_seconds(const struct pl_program *p, const struct pl_speed *s,
                               const struct pl_load *load, double of[PL_COST_COUNT]);

#endif
