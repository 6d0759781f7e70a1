/* copy_stream.h - copies of host memory, and ops between ranks, that run while later ops compute.
 *
 * In: a plan.  Out: for every op, the last of those that it has to wait for.  Needs: executor.h.
 * Private to exec.
 *   A1  an op of the copy stream begins after every op before it, and ops of the stream run one
 *       after another, in the order of the program, which is the same for all ranks
 *   A2  an op that touches memory which an earlier op of the stream in its phase writes, or that
 *       writes where one reads, begins after it; which ops those are follows from the places of
 *       tensors, so memory that changes hands is waited for like the tensor itself
 *   A3  the ops after a range run after its ops of the copy stream, too, even if one failed
 *   A4  where a clock reads each op, or a watch its results, and on a device without a copy stream,
 *       they are ops like any other; so are those between ranks of a program of one rank, and ops
 *       that the device cannot begin on the stream, since other ranks wait for what they send
 * Use: pl_copy_stream_find(plan, turns); pl_copy_stream_open(&e, first);
 *      for each op: pl_copy_stream_await(&e, i, n); ...
 *                   pl_copy_stream_run(&e, i, kernel, call); ...
 *      pl_copy_stream_join(&e); */
#ifndef PL_RUNTIME_EXEC_COPY_STREAM_H
#define PL_RUNTIME_EXEC_COPY_STREAM_H

#include "runtime/exec/executor.h"

/* True if an op of the program may run on the copy stream. */
bool pl_copy_stream_is(const struct pl_program *p, const struct pl_op *op);
/* Numbers ops of the copy stream from 1 on. turns[i]: the number of an op of the stream; for
 * another op, the last one that must have ended before op i begins, 0 = none. [n_ops] HOST_OOM. */
pl_err pl_copy_stream_find(const struct pl_plan *plan, uint32_t *turns, struct pl_diag *d);

/* Called before a range of ops. */
void pl_copy_stream_open(struct pl_exec *e, uint32_t first);
/* Called before ops [first, first + n), which may run as one. */
pl_err pl_copy_stream_await(struct pl_exec *e, uint32_t first, uint32_t n);
/* Runs op i, on the copy stream if possible. */
pl_err pl_copy_stream_run(struct pl_exec *e, uint32_t i, pl_kernel_fn kernel,
                          const struct pl_call *call);
pl_err pl_copy_stream_join(struct pl_exec *e);

#endif
