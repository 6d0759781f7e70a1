/* repeats.h - ranges of ops that run again in the same shape, replayed as one graph.
 *
 * The key is everything that a grid or a product depends on: the range, the counts of the
 * micro-batch if an op of the range has rows of it, and whether it is the first of its step.
 * Everything else that changes is read by kernels from device memory (struct pl_facts), so a graph
 * that was recorded for one micro-batch serves every other of its key. A key is run op by op the
 * first time, which is also when libraries make their choices, recorded the second time, and
 * replayed from then on.
 *   G1  replaying and running give the same bits
 *   G2  at most PL_GRAPHS_MOST exist, and PL_EXEC_RECORDINGS are made between two bindings; what
 *       fails ends the making of graphs, and never a run
 *   G3  only the least recently used gives way
 * In: a device with record_begin, whose graphs.limit_bytes grants memory. Private to exec. */
#ifndef PL_RUNTIME_EXEC_REPEATS_H
#define PL_RUNTIME_EXEC_REPEATS_H

#include "runtime/exec/executor.h"

/* Runs ops [first, first + n) through `run`, or replays them. */
typedef pl_err (*pl_exec_run_fn)(struct pl_exec *e, uint32_t first, uint32_t n, struct pl_diag *d);
pl_err pl_exec_replay(struct pl_exec *e, uint32_t first, uint32_t n, pl_exec_run_fn run,
                      struct pl_diag *d);
/* Drops the graphs, and their memory. */
void pl_exec_forget_graphs(struct pl_exec *e);

#endif
