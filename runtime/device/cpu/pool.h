/* pool.h - a fixed team of threads that runs numbered tasks.
 *
 * Workers wait politely: a short spin with a pause instruction (about 50 us), then a futex sleep,
 * so a busy neighbour costs its share and no more. Tasks are handed out in any order to any worker;
 * results must depend on the task number alone.
 * Use: pl_pool_run(pool, n_tasks, fn, ctx) - returns when every task has run. */
#ifndef PL_RUNTIME_DEVICE_CPU_POOL_H
#define PL_RUNTIME_DEVICE_CPU_POOL_H

#include "estimator/base/diag.h"

#include <stdint.h>

struct pl_pool;
typedef void (*pl_task_fn)(void *ctx, uint32_t task, uint32_t worker); /* worker < threads */

pl_err pl_pool_create(uint32_t threads, struct pl_pool **out, struct pl_diag *d);
void pl_pool_destroy(struct pl_pool **pool); /* NULL-safe */
uint32_t pl_pool_threads(const struct pl_pool *pool);
/* Not reentrant: tasks must not call it. n_tasks 0 returns at once; 1 runs on the caller. */
void pl_pool_run(struct pl_pool *pool, uint32_t n_tasks, pl_task_fn fn, void *ctx);

#endif
