/* exec.h - the only interpreter: a plan bound to its arenas, run phase by phase.
 *
 * In: plan, device, arenas.  Out: kernels called at planned addresses.  Needs: estimator, device,
 * kernels.
 *   E1  binding asserts planned == bound: arena sizes equal the plan's to the byte, every operand
 *       lies inside its arena
 *   E2  running allocates nothing; views are made once, only row counts change with the batch
 *   E3  an op of the host runs on the CPU's kernels, after everything that was copied before it
 *   E4  under AddressSanitizer a tensor of a phase may be touched only while it lives: poison.h
 *   E5  a rank that failed still runs the ops between ranks, so that the others reach the point
 *       where outcomes are agreed on; the caller that begins a step anew clears `muted`
 *   E6  copies of host memory, and ops between ranks, run while later ops compute, where the device
 *       can do that: copy_stream.h
 * Use: pl_exec_init(&e, plan, dev, &d); pl_exec_bind(&e, &job, &batch, &d);
 *      pl_exec_describe(&e, &facts, &d); pl_exec_run_phase(&e, PL_PHASE_MICRO, &d); ...
 *      pl_exec_finish(&e); */
#ifndef PL_RUNTIME_EXEC_EXEC_H
#define PL_RUNTIME_EXEC_EXEC_H

#include "runtime/exec/executor.h"

/* Allocates everything the executor will ever need for this plan. */
pl_err pl_exec_init(struct pl_exec *e, const struct pl_plan *plan, struct pl_device *dev,
                    struct pl_diag *d);
/* Fills the views; arenas may be bound again after they moved. E1: RUNTIME_PLAN_BROKEN. */
pl_err pl_exec_bind(struct pl_exec *e, const struct pl_arena *job, const struct pl_arena *batch,
                    struct pl_diag *d);
/* Sets the micro-batch of the following runs, once the earlier ones are done. Needs a binding. */
pl_err pl_exec_describe(struct pl_exec *e, const struct pl_batch *b, struct pl_diag *d);
pl_err pl_exec_run_phase(struct pl_exec *e, enum pl_phase phase, struct pl_diag *d);
/* Runs ops [first, first+n) of the list. */
pl_err pl_exec_run(struct pl_exec *e, uint32_t first, uint32_t n, struct pl_diag *d);
/* Copies between a tensor, in any memory, and ordinary memory; src may be reused at once, dst is
 * complete. */
pl_err pl_exec_upload(struct pl_exec *e, uint32_t tensor, const void *src, uint64_t bytes);
pl_err pl_exec_download(struct pl_exec *e, uint32_t tensor, void *dst, uint64_t bytes);
/* pl_exec_address() of a STEP tensor that the caller itself fills or reads before the next run: the
 * exception to E4. */
void *pl_exec_lend(struct pl_exec *e, uint32_t tensor);
/* Drops recorded graphs and their memory: operands are about to move, and the arenas may be
 * released. */
void pl_exec_forget(struct pl_exec *e);
void pl_exec_finish(struct pl_exec *e); /* leaves {0} */

#endif
