/* cost.h - FLOPs and bytes of the ops of a plan, and their time on a nominal machine.
 *
 * In: a program, and how much of its capacity a step uses.  Out: FLOPs, bytes, seconds on a nominal
 * machine.  Needs: card.
 * The figures of the nominal machine are constants, so a choice made by them is the same everywhere
 * and at every time; they are good for comparing plans, not for a clock. They become times only
 * with ratios that were measured where the job runs (runtime), one for each class of ops: how a
 * machine compares with the nominal one differs between the classes, and hardly within one.
 * An op takes the longer of its arithmetic and its traffic (Williams et al., Roofline, CACM 2009),
 * plus the time of its start. Ops run one after another, copies to and from host memory included.
 * The time of an op of the host is its time on the nominal CPU. */
#ifndef PL_ESTIMATOR_PROGRAM_COST_H
#define PL_ESTIMATOR_PROGRAM_COST_H

#include "estimator/program/program.h"

const char *pl_cost_name(enum pl_cost c);
enum pl_cost pl_op_cost(const struct pl_op *op);

/* The load of a step, or of any run of its phases. */
struct pl_load {
    double micro_batches;
    double tokens, targets; /* sums over the micro-batches */
    double length;          /* length of the sequence that a token stands in, on average over the
                               tokens */
    bool refers_before;     /* the reference of all steps was computed before the first one */
};
/* Returns the load of one micro-batch at capacity, every token supervised. */
struct pl_load pl_load_full(const struct pl_program *p);

/* The work of one run of an op in a micro-batch of mean size. Products count 2mnk, attention its
 * causal half; bytes are those of the operands without scratch, and of a table only the rows that
 * are used. */
struct pl_work {
    double flops, bytes;
};
double pl_op_flops(const struct pl_program *p, const struct pl_op *op, const struct pl_load *load);
struct pl_work pl_op_work(const struct pl_program *p, const struct pl_op *op,
                          const struct pl_load *load);

struct pl_speed {
    double flops_per_second, bytes_per_second;
    double link_bytes_per_second; /* between host memory and the device's, one way */
    double start_seconds;         /* start of an op */
    bool updates_together;        /* norms and updates of many tensors are started as one */
    bool copies_inputs;           /* a product copies both matrices into another layout before it
                             * computes, which matters if one of its dimensions is small */
    double diagonal_keys;   /* keys that a query pays for besides those it sees, times two: tiles of
                             * attention reach past the diagonal, and have a start */
    double softmax_columns; /* cost of the exponential of a score, in columns of a head */
    const double *traffic;  /* [PL_OP_COUNT] factors of slowness against memory, for ops that are
                             * bound by arithmetic other than products; 0 = 1; NULL = 1 for all */
};
struct pl_speed pl_speed_nominal(const struct pl_traits *t);

/* Returns the seconds of one run of an op. */
double pl_op_seconds(const struct pl_program *p, const struct pl_op *op, const struct pl_speed *s,
                     const struct pl_load *load);
/* Returns the seconds of one micro-batch at capacity, with those of the passes that score it. */
double pl_program_micro_seconds(const struct pl_program *p, const struct pl_speed *s);
/* The same of one micro-batch of this load. */
double pl_program_load_seconds(const struct pl_program *p, const struct pl_speed *s,
                               const struct pl_load *load);
/* Returns the seconds of the ops that every level of recomputation has. */
double pl_program_first_seconds(const struct pl_program *p, const struct pl_speed *s);
/* Returns the seconds of the optimizer's part of a step. */
double pl_program_update_seconds(const struct pl_program *p, const struct pl_speed *s);
/* Returns the seconds of a step over its capacity in tokens. */
double pl_program_seconds_per_token(const struct pl_program *p, const struct pl_speed *s);
/* Returns the runs of an op in a step of so many micro-batches; 0 outside of MICRO and OPTIMIZER,
 * and, where a step is scored first, REFERENCE and EVAL or SCORE; half of one for the partners of
 * answers that are scored alone. */
double pl_op_runs(const struct pl_program *p, const struct pl_op *op, double micro_batches);
/* Returns the seconds of a step: its micro-batches and the update. `of` (nullable) gets the seconds
 * of each class. */
double pl_program_step_seconds(const struct pl_program *p, const struct pl_speed *s,
                               const struct pl_load *load, double of[PL_COST_COUNT]);

/* The bytes that an op between ranks sends, as a run counts them. Every such op is a group of sends
 * and receives between each two ranks (runtime/kernels/between.c). The bytes follow from the rank's
 * own rows or from those of the others; all ranks take part until the one that moves the most is
 * done. */
struct pl_op_traffic {
    uint64_t sent_bytes;    /* by this rank; 0 for an op that is not between ranks */
    uint64_t busiest_bytes; /* the larger of the bytes that the busiest rank sends and receives */
};
struct pl_op_traffic pl_op_traffic(const struct pl_program *p, const struct pl_op *op);
/* Returns the bytes that this rank sends in a step of so many micro-batches; a brief program counts
 * the ops that it stands for. */
double pl_program_sent_bytes(const struct pl_program *p, double micro_batches);

#endif
