/* profile.h - the time of ops, by kind and by class; private to runtime/train.
 *
 * In: the executor's clock readings, the load of each step.  Out: seconds by class for pl_pace, a
 * table by kind for people.  Needs: exec, estimator/program/cost.h.
 *   F1  a step is the same to the bit whether it is timed or not
 *   F2  where ops end when their kernels return, every step is timed: two clock readings an op, of
 *       tens of nanoseconds. A device that works on its own is waited for after every op, which
 *       costs it time; there the second step of a run is timed, and every one only where the
 *       options ask for the table
 * Use: pl_profile_init(&f, n_ops, every); pl_profile_begin(&f, &exec, waits); ... run ops ...
 *      if (pl_profile_end(&f, &exec, &load, measured)) ...; pl_profile_finish(&f); */
#ifndef PL_RUNTIME_TRAIN_PROFILE_H
#define PL_RUNTIME_TRAIN_PROFILE_H

#include "estimator/base/text.h"
#include "estimator/program/cost.h"
#include "runtime/exec/exec.h"

#include <jansson.h>

struct pl_profile_row { /* totals of an op kind */
    uint64_t runs;
    double seconds, flops, bytes;
};

struct pl_profile {
    struct pl_op_time *times; /* [n_ops] of the current step */
    uint32_t n_ops;
    bool every;                  /* every step is timed */
    uint64_t steps, timed;       /* steps begun; steps ended with readings */
    struct pl_profile_row *rows; /* [PL_OP_COUNT] */
};

/* n_ops: the ops of the largest program that will run. HOST_OOM. */
pl_err pl_profile_init(struct pl_profile *f, uint32_t n_ops, bool every, struct pl_diag *d);
void pl_profile_finish(struct pl_profile *f); /* leaves {0} */
/* Called before the ops of a step. waits: the device works on its own (F2). */
void pl_profile_begin(struct pl_profile *f, struct pl_exec *e, bool waits);
/* Called after the ops. False: this step was not timed, and `of` is unchanged; else `of` gets the
 * seconds of each class. */
bool pl_profile_end(struct pl_profile *f, struct pl_exec *e, const struct pl_load *load,
                    double of[PL_COST_COUNT]);
/* Appends a table of the kinds that ran, those of most seconds first. */
void pl_profile_text(const struct pl_profile *f, struct pl_text *out);
/* Returns [{"op","calls","seconds","share","gflops","gbytes_per_second"}, ...]; NULL = no
 * memory. */
json_t *pl_profile_json(const struct pl_profile *f);

#endif
