/* worker.h - a thread that loads the next step's samples while this step computes.
 *
 * In: a source of samples, the position a step begins at.  Out: that step's samples.
 * Needs: batch.h, POSIX threads.
 *   V1  the samples equal those of pl_step_batch_load() for the position (B1): the thread changes
 *       only the time of loading
 *   V2  a failure is reported to the step that needs the samples, and to no other
 * The thread is one step ahead, never more; stopping waits for one load at most.
 * Use: pl_worker_start(&from, slots, &w, &d); pl_worker_take(w, position, &batch, &d); ...
 *      pl_worker_stop(&w); */
#ifndef PL_RUNTIME_DATA_WORKER_H
#define PL_RUNTIME_DATA_WORKER_H

#include "runtime/data/batch.h"

struct pl_worker;

/* `from` is borrowed until the worker is stopped. PL_ERR_HOST_OOM: no thread can be created. */
pl_err pl_worker_start(const struct pl_batch_source *from, uint64_t slots, struct pl_worker **out,
                       struct pl_diag *d);
/* Exchanges *batch for the samples at `position`, waiting for them, and starts the thread on the
 * next ones. Any position may be asked for; the one after the last is loaded already. On failure
 * *batch is empty. */
pl_err pl_worker_take(struct pl_worker *w, uint64_t position, struct pl_step_batch *batch,
                      struct pl_diag *d);
void pl_worker_stop(struct pl_worker **w); /* NULL-safe; sets *w to NULL */

#endif
