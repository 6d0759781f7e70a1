/* executor.h - the state of an executor: a plan, its arenas, and the views that ops are called
 * with.
 *
 * Out: struct pl_exec, which exec.h makes, binds and runs.  Needs: plan, device. */
#ifndef PL_RUNTIME_EXEC_EXECUTOR_H
#define PL_RUNTIME_EXEC_EXECUTOR_H

#include "estimator/plan/plan.h"
#include "runtime/device/device.h"

struct pl_exec_patch; /* a view whose row count follows the batch */
struct pl_poison;     /* private (poison.h) */
struct pl_watch;      /* watch.h */

struct pl_host_arenas { /* indexed by memory; the entry of the device stays {0} */
    struct pl_arena job[PL_PLACE_COUNT], batch[PL_PLACE_COUNT];
};

struct pl_op_time { /* The time of all runs of an op; ops that run as one count for the first. */
    double seconds;
    uint64_t runs;
};

/* A range of ops and everything that its grids and products depend on (repeats.h). */
struct pl_exec_shape {
    uint32_t first_op, n_ops;             /* n_ops 0 = a free entry */
    uint64_t n_tokens, n_seqs, n_targets; /* 0 of a range without a row of the micro-batch */
    bool opens_step;                      /* its micro-batch is the first of the step */
    bool refused;           /* it cannot be replayed, or its graph would be too large */
    uint64_t used;          /* pl_exec.clock at the last run */
    struct pl_graph *graph; /* NULL = none yet */
};
#define PL_EXEC_SHAPES     (2 * PL_GRAPHS_MOST)
#define PL_EXEC_RECORDINGS (2 * PL_GRAPHS_MOST)

struct pl_exec {
    const struct pl_plan *plan;        /* borrowed */
    struct pl_device *device;          /* borrowed */
    struct pl_device *host;            /* borrowed; runs the host's ops; the device unless set */
    struct pl_host_arenas host_arenas; /* set before binding; {0} if the plan has none */
    bool muted;   /* an op of this rank failed: only ops that other ranks wait for run */
    bool pending; /* the device may still be working on inputs of a host's op */
    struct pl_arena job, batch_arena;
    struct pl_batch batch; /* facts of the current micro-batch: pl_exec_describe() */
    struct pl_call *calls; /* [n_ops] */
    struct pl_exec_patch *patches;
    uint32_t n_patches;
    uint32_t *patches_before;           /* [n_ops + 1]: patches of the ops before this one */
    uint64_t view_tokens, view_targets; /* row counts that the views are limited to */
    uint64_t ops_run;
    struct pl_op_time *times; /* [n_ops], borrowed; times are added; NULL = no clock is read */
    struct pl_watch
        *watch; /* borrowed; finds values that are not finite; NULL = none is looked at */
    struct pl_exec_shape *shapes; /* [PL_EXEC_SHAPES] */
    uint64_t clock;               /* counts runs that might have been replayed */
    uint32_t recordings;          /* number since the binding */
    uint32_t *turns;              /* [n_ops]: copy_stream.h */
    bool overlaps;            /* some ops of the current range run on the copy stream; of these: */
    uint32_t begun, awaited;  /* the last one that began, and the last one that was waited for */
    struct pl_poison *poison; /* NULL without AddressSanitizer, and on devices other than the CPU */
};

/* Returns the arena of a tensor. */
const struct pl_arena *pl_exec_arena(const struct pl_exec *e, const struct pl_tensor *t);
/* Returns the address of a tensor in its memory. */
void *pl_exec_address(const struct pl_exec *e, uint32_t tensor);
/* True if the tensor lies in memory of the host, pinned or not. */
bool pl_exec_in_host_memory(const struct pl_exec *e, uint32_t tensor);
/* Waits until the device has done what was started before. */
pl_err pl_exec_wait(struct pl_exec *e);
/* Copies what is `offset` bytes into a tensor, in any memory, to ordinary memory. */
pl_err pl_exec_read(struct pl_exec *e, uint32_t tensor, uint64_t offset, void *dst, uint64_t bytes);

#endif
