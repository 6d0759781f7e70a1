/* exec.h - the only interpreter: a plan bound to its arenas, run phase by phase.
 *
 * In: plan, device, arenas.  Out: kernels called at planned addresses.  Needs: estimator, device,
 * kernels.
 *   E1  binding asserts planned == bound: arena sizes equal the plan's to the byte, every operand
 *       lies inside its arena
 *   E2  running allocates nothing; views are made once, only row counts change with the batch
 *   E3  an op of the host runs on the CPU's kernels, after everything that was copied before it
 *   E4  under AddressSanitizer a tensor of a phase may be touched only while it lives: poison.h
 * Use: pl_exec_init(&e, plan, dev, &d); pl_exec_bind(&e, &job, &batch, &d);
 *      pl_exec_describe(&e, &facts, &d); pl_exec_run_phase(&e, PL_PHASE_MICRO, &d); ...
 *      pl_exec_finish(&e); */
#ifndef PL_RUNTIME_EXEC_EXEC_H
#define PL_RUNTIME_EXEC_EXEC_H

#include "estimator/plan/plan.h"
#include "runtime/device/device.h"

struct pl_exec_patch; /* a view whose row count follows the batch */
struct pl_poison;     /* private: poison.h */

struct pl_host_arenas { /* by memory; the row of the device stays {0} */
    struct pl_arena job[PL_PLACE_COUNT], batch[PL_PLACE_COUNT];
};

struct pl_op_time { /* what the runs of an op took, together; of ops that run as one, the first */
    double seconds;
    uint64_t runs;
};

/* A range of ops and what its grids and products follow from: repeats.h. */
struct pl_exec_shape {
    uint32_t first_op, n_ops; /* n_ops 0 = an entry that is free */
    uint64_t n_tokens, n_seqs, n_targets;
    bool opens_step;        /* its micro-batch is the first of the step */
    bool refused;           /* it cannot be replayed, or its graph would be too large */
    uint64_t used;          /* pl_exec.clock at the last run */
    struct pl_graph *graph; /* NULL = none yet */
};
#define PL_EXEC_SHAPES     32
#define PL_EXEC_GRAPHS     8
#define PL_EXEC_RECORDINGS 32

struct pl_exec {
    const struct pl_plan *plan; /* borrowed */
    struct pl_device *device;   /* borrowed */
    struct pl_device *host;     /* borrowed; runs the host's ops; the device unless set */
    struct pl_host_arenas host_arenas; /* set before binding; {0} where the plan has none */
    bool pending;               /* the device may still be working on what a host's op needs */
    struct pl_arena job, batch_arena;
    struct pl_batch batch;      /* facts of the micro-batch at hand: pl_exec_describe() */
    struct pl_call *calls;      /* [n_ops] */
    struct pl_exec_patch *patches;
    uint32_t n_patches;
    uint64_t cut_tokens, cut_targets; /* row counts the views are cut to */
    uint64_t ops_run;
    struct pl_op_time *times; /* [n_ops], borrowed, added to; NULL: no clock is read */
    struct pl_exec_shape shapes[PL_EXEC_SHAPES];
    uint64_t clock;      /* runs that might have been replayed */
    uint32_t recordings; /* since the binding */
    struct pl_poison *poison; /* NULL without AddressSanitizer, and on other devices than the CPU */
};

/* Allocates everything the executor will ever need for this plan. */
pl_err pl_exec_init(struct pl_exec *e, const struct pl_plan *plan, struct pl_device *dev,
                    struct pl_diag *d);
/* Fills the views; arenas may be bound again after they moved. E1: RUNTIME_PLAN_BROKEN. */
pl_err pl_exec_bind(struct pl_exec *e, const struct pl_arena *job, const struct pl_arena *batch,
                    struct pl_diag *d);
/* The micro-batch that the following runs are for, after the earlier ones; bound already. */
pl_err pl_exec_describe(struct pl_exec *e, const struct pl_batch *b, struct pl_diag *d);
pl_err pl_exec_run_phase(struct pl_exec *e, enum pl_phase phase, struct pl_diag *d);
/* Ops [first, first+n) of the list. */
pl_err pl_exec_run(struct pl_exec *e, uint32_t first, uint32_t n, struct pl_diag *d);
/* Between a tensor and ordinary memory, wherever it lies; src may be reused, dst is complete. */
pl_err pl_exec_upload(struct pl_exec *e, uint32_t tensor, const void *src, uint64_t bytes);
pl_err pl_exec_download(struct pl_exec *e, uint32_t tensor, void *dst, uint64_t bytes);
/* Address of a tensor in its memory. */
void *pl_exec_address(const struct pl_exec *e, uint32_t tensor);
/* The same of a STEP tensor that the caller itself fills or reads before the next run, whatever ran
 * before: the exception to E4. */
void *pl_exec_lend(struct pl_exec *e, uint32_t tensor);
/* Drops what was written down for replaying, and its memory: operands are about to move, and the
 * arenas may be released. */
void pl_exec_forget(struct pl_exec *e);
void pl_exec_finish(struct pl_exec *e); /* leaves {0} */

#endif
