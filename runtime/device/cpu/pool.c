/* pool.c - the team of threads that runs every CPU kernel.
 *
 * A run publishes (generation, next task) in one 64-bit ticket. A worker takes task i by moving the
 * ticket from (g, i) to (g, i+1); success proves that run g still has work, hence that fn, ctx and
 * n_tasks, read before, belong to it. The caller waits for tasks to be done, not for workers to
 * notice: a worker that was scheduled away costs nothing once the others have finished. */
#include "runtime/device/cpu/pool.h"
#include "estimator/base/alloc.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A thread spins for a share of the time it has worked before, since threads end apart by a part of
 * their work. Sleeping and being woken takes about as long as the least. */
#define SPIN_SHARE     4
#define SPIN_LEAST     50000 /* nanoseconds */
#define SPIN_MOST      1000000
#define SPINS_PER_LOOK 64

#define TICKET_CLOSED UINT64_C(0xFFFFFFFF) /* a task number no run reaches */

struct worker {
    struct pl_pool *pool;
    uint32_t index;
    pthread_t thread;
};

struct pl_pool {
    uint32_t threads;
    struct worker *workers;    /* [threads]; 0 is the caller and has no thread */
    uint32_t started;          /* threads that exist, workers 1..started */
    _Atomic uint64_t ticket;   /* generation << 32 | next task */
    _Atomic uint32_t epoch;    /* generation again, as the word that workers sleep on */
    _Atomic uint32_t sleepers; /* workers about to sleep or asleep */
    _Atomic uint32_t done;     /* finished tasks of the run; the word the caller sleeps on */
    _Atomic bool caller_waits, stop;
    _Atomic(pl_task_fn) fn;
    _Atomic(void *) ctx;
    _Atomic uint32_t n_tasks;
};

static void futex_wait(_Atomic uint32_t *word, uint32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int count) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t now_nanoseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Spins until (*word == value) is `want_equal`; false when that takes too long for a thread that
 * has worked for so many nanoseconds. */
static bool spin(const _Atomic uint32_t *word, uint32_t value, bool want_equal, int64_t worked) {
    const int64_t share = worked / SPIN_SHARE, most = share < SPIN_MOST ? share : SPIN_MOST;
    const int64_t end = now_nanoseconds() + (most > SPIN_LEAST ? most : SPIN_LEAST);
    do {
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if ((atomic_load_explicit(word, memory_order_acquire) == value) == want_equal)
                return true;
            relax();
        }
    } while (now_nanoseconds() < end);
    return false;
}

/* Runs tasks of the current run until none is left. Returns the nanoseconds that they took. */
static int64_t work(struct pl_pool *pool, uint32_t worker) {
    const int64_t start = now_nanoseconds();
    uint64_t ticket = atomic_load(&pool->ticket);
    for (;;) {
        pl_task_fn fn = atomic_load(&pool->fn);
        void *ctx = atomic_load(&pool->ctx);
        uint32_t n = atomic_load(&pool->n_tasks), task = (uint32_t)ticket;
        if (task >= n) return now_nanoseconds() - start;
        if (!atomic_compare_exchange_weak(&pool->ticket, &ticket, ticket + 1)) continue;
        fn(ctx, task, worker);
        if (atomic_fetch_add(&pool->done, 1) + 1 == n && atomic_load(&pool->caller_waits))
            futex_wake(&pool->done, 1);
        ticket = atomic_load(&pool->ticket);
    }
}

static void *worker_main(void *arg) {
    struct worker *self = arg;
    struct pl_pool *pool = self->pool;
    int64_t worked = 0;
    for (uint32_t seen = 0;;) {
        while (atomic_load(&pool->epoch) == seen && !spin(&pool->epoch, seen, false, worked)) {
            atomic_fetch_add(&pool->sleepers, 1);
            futex_wait(&pool->epoch, seen);
            atomic_fetch_sub(&pool->sleepers, 1);
        }
        seen = atomic_load(&pool->epoch);
        if (atomic_load(&pool->stop)) return NULL;
        worked = work(pool, self->index);
    }
}

/* Starts generation +1; the ticket comes last but for the word that wakes. */
static void publish(struct pl_pool *pool) {
    uint32_t generation = atomic_load(&pool->epoch) + 1;
    atomic_store(&pool->ticket, (uint64_t)generation << 32);
    atomic_store(&pool->epoch, generation);
    if (atomic_load(&pool->sleepers)) futex_wake(&pool->epoch, INT_MAX);
}

void pl_pool_run(struct pl_pool *pool, uint32_t n_tasks, pl_task_fn fn, void *ctx) {
    if (n_tasks < 2 || pool->threads == 1) {
        for (uint32_t i = 0; i < n_tasks; i++)
            fn(ctx, i, 0);
        return;
    }
    /* A worker late in the last run may read the fields while they change. The closed ticket makes
     * its exchange fail, and gives no task itself. */
    atomic_fetch_or(&pool->ticket, TICKET_CLOSED);
    atomic_store(&pool->done, 0);
    atomic_store(&pool->fn, fn);
    atomic_store(&pool->ctx, ctx);
    atomic_store(&pool->n_tasks, n_tasks);
    publish(pool);
    const int64_t worked = work(pool, 0);
    if (spin(&pool->done, n_tasks, true, worked)) return;
    atomic_store(&pool->caller_waits, true);
    for (uint32_t v; (v = atomic_load(&pool->done)) != n_tasks;)
        futex_wait(&pool->done, v);
    atomic_store(&pool->caller_waits, false);
}

pl_err pl_pool_create(uint32_t threads, struct pl_pool **out, struct pl_diag *d) {
    pl_err err = PL_ERR_OK;
    *out = NULL;
    struct pl_pool *pool = pl_calloc(1, sizeof *pool);
    struct worker *workers = pl_calloc(threads ? threads : 1, sizeof *workers);
    if (!pool || !workers) {
        free(workers);
        free(pool);
        return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for %u threads", threads);
    }
    pool->threads = threads ? threads : 1;
    pool->workers = workers;
    for (uint32_t i = 1; i < pool->threads; i++) {
        workers[i] = (struct worker){.pool = pool, .index = i};
        int e = pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]);
        if (e) {
            err =
                pl_diag_set(d, PL_ERR_HOST_OOM, "thread %u of %u: %s", i + 1, threads, strerror(e));
            pl_diag_hint(d, "set `threads` lower");
            goto out;
        }
        pool->started = i;
    }
    *out = pool;
    pool = NULL;
out:
    pl_pool_destroy(&pool);
    return err;
}

void pl_pool_destroy(struct pl_pool **pool) {
    struct pl_pool *p = *pool;
    if (!p) return;
    atomic_store(&p->n_tasks, 0);
    atomic_store(&p->stop, true);
    publish(p);
    for (uint32_t i = 1; i <= p->started; i++)
        pthread_join(p->workers[i].thread, NULL);
    free(p->workers);
    free(p);
    *pool = NULL;
}

uint32_t pl_pool_threads(const struct pl_pool *pool) {
    return pool->threads;
}
