/* The batch belongs to the thread while `state` is WANTED, to the taker otherwise; the lock guards
 * the state and nothing else. */
#include "runtime/data/worker.h"
#include "estimator/base/alloc.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum state { IDLE, WANTED, DONE, QUIT };

struct pl_worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum state state;
    const struct pl_batch_source *from;
    uint64_t slots;
    /* the current load: its arguments and results */
    uint64_t position;
    struct pl_step_batch batch;
    pl_err err;
    struct pl_diag failure;
};

static void *work(void *arg) {
    struct pl_worker *w = arg;
    pthread_mutex_lock(&w->lock);
    while (w->state != QUIT) {
        if (w->state != WANTED) {
            pthread_cond_wait(&w->changed, &w->lock);
            continue;
        }
        pthread_mutex_unlock(&w->lock);
        w->failure = (struct pl_diag){0};
        w->err = pl_step_batch_load(&w->batch, w->from, w->position, w->slots, &w->failure);
        pthread_mutex_lock(&w->lock);
        if (w->state == WANTED) w->state = DONE;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* Signals are for the thread that trains: it is the one that a blocked write must wake. */
static int start_thread(struct pl_worker *w) {
    sigset_t all, before;
    sigfillset(&all);
    int e = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (e) return e;
    e = pthread_create(&w->thread, NULL, work, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return e;
}

/* 0, or the errno of what is not to be had; nothing is held then. */
static int start(struct pl_worker *w) {
    int lock = pthread_mutex_init(&w->lock, NULL);
    int changed = lock ? lock : pthread_cond_init(&w->changed, NULL);
    int e = changed ? changed : start_thread(w);
    if (e && !changed) pthread_cond_destroy(&w->changed);
    if (e && !lock) pthread_mutex_destroy(&w->lock);
    return e;
}

pl_err pl_worker_start(const struct pl_batch_source *from, uint64_t slots, struct pl_worker **out,
                       struct pl_diag *d) {
    struct pl_worker *w = pl_calloc(1, sizeof *w);
    int e = ENOMEM;
    if (w) {
        w->from = from;
        w->slots = slots;
        e = start(w);
    }
    *out = e ? NULL : w;
    if (!e) return PL_ERR_OK;
    free(w);
    pl_diag_set(d, PL_ERR_HOST_OOM, "the thread that loads data cannot be started: %s",
                strerror(e));
    pl_diag_hint(d, "set `prefetch: false`");
    return PL_ERR_HOST_OOM;
}

static void want(struct pl_worker *w, uint64_t position) {
    w->position = position;
    w->state = WANTED;
    pthread_cond_broadcast(&w->changed);
}

static void wait_until_done(struct pl_worker *w) {
    while (w->state == WANTED)
        pthread_cond_wait(&w->changed, &w->lock);
}

pl_err pl_worker_take(struct pl_worker *w, uint64_t position, struct pl_step_batch *batch,
                      struct pl_diag *d) {
    pthread_mutex_lock(&w->lock);
    wait_until_done(w);
    if (w->state == IDLE || w->position != position) {
        want(w, position);
        wait_until_done(w);
    }
    pl_err err = w->err;
    if (err == PL_ERR_OK) {
        struct pl_step_batch taken = w->batch;
        w->batch = *batch;
        *batch = taken;
        want(w, position + batch->rows);
    } else {
        batch->n = batch->rows = 0;
        if (d && d->err == PL_ERR_OK) *d = w->failure;
        w->state = IDLE;
    }
    pthread_mutex_unlock(&w->lock);
    return err;
}

void pl_worker_stop(struct pl_worker **worker) {
    struct pl_worker *w = *worker;
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->state = QUIT;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    pl_step_batch_finish(&w->batch);
    free(w);
    *worker = NULL;
}
