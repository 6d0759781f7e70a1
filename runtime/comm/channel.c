/* channel.c - what the threads of a rank ask of the control channel. */
#include "runtime/comm/control_state.h"
#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { BEAT_MS = 1000 };

const char *pl_control_host(const struct pl_control *c, uint32_t rank) {
    return c->hosts[rank][0] ? c->hosts[rank] : "an unnamed host";
}

/* ---- opening and closing ---- */

static pl_err start_thread(struct pl_control *c, struct pl_diag *d) {
    sigset_t all, before;
    c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->wake < 0)
        return pl_diag_set(d, pl_err_of_errno(PL_ERR_COMM_INIT), "no eventfd: %s", strerror(errno));
    /* K5 of control.h: the thread is born with every signal blocked. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int e = pthread_create(&c->thread, NULL, pl_serve, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (e == 0) return PL_ERR_OK;
    close(c->wake);
    c->wake = -1;
    return pl_diag_set(d, e == EAGAIN ? PL_ERR_HOST_OOM : PL_ERR_COMM_INIT,
                       "no thread for the control channel: %s", strerror(e));
}

static void init_lock(struct pl_control *c) {
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&c->moved, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->hook_lock, NULL);
}

pl_err pl_control_open(struct pl_control **out, const struct pl_world *world, struct pl_meeting *m,
                       uint32_t timeout_seconds, struct pl_diag *d) {
    struct pl_control *c = pl_calloc(1, sizeof *c);
    pl_err err = PL_ERR_OK;
    *out = NULL;
    if (!c) return pl_host_oom(d, "the control channel");
    c->world = *world;
    c->wake = -1;
    c->timeout_ms = timeout_seconds * 1000;
    c->beat_ms = (uint32_t)pl_u64_min(BEAT_MS, c->timeout_ms / 4);
    c->n_links = world->rank == 0 ? world->size : 1;
    for (uint32_t i = 0; i < PL_RANKS_MAX; i++)
        c->links[i].fd = -1;
    init_lock(c);
    if (world->size > 1) {
        err = pl_meet(c, m, d);
        if (err == PL_ERR_OK) err = start_thread(c, d);
    }
    *out = c;
    if (err != PL_ERR_OK) pl_control_close(out, false);
    return err;
}

void pl_control_close(struct pl_control **control, bool orderly) {
    struct pl_control *c = *control;
    if (!c) return;
    if (c->wake >= 0) {
        pthread_mutex_lock(&c->lock);
        c->leave = orderly ? PL_LEAVE_ORDERLY : PL_LEAVE_EARLY;
        pthread_mutex_unlock(&c->lock);
        pl_control_wake(c);
        pthread_join(c->thread, NULL);
        close(c->wake);
    }
    for (uint32_t i = 0; i < c->n_links; i++)
        pl_link_finish(&c->links[i]);
    pthread_cond_destroy(&c->moved);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->hook_lock);
    free(c);
    *control = NULL;
}

/* ---- losses ---- */

static pl_err loss_error(const struct pl_control *c, struct pl_diag *d) {
    const struct pl_loss *loss = &c->loss;
    if (d && d->err == PL_ERR_OK && loss->rank != c->world.rank) d->cause = (pl_err)loss->cause;
    if (loss->rank == c->world.rank)
        return pl_diag_set(d, (pl_err)loss->err, "this rank, %u, %s", loss->rank, loss->why);
    return pl_diag_set(d, (pl_err)loss->err, "rank %u on %s %s", loss->rank,
                       pl_control_host(c, loss->rank), loss->why);
}

bool pl_control_is_lost(const struct pl_control *c) {
    return atomic_load(&c->lost);
}

pl_err pl_control_check(struct pl_control *c, struct pl_diag *d) {
    return atomic_load(&c->lost) ? loss_error(c, d) : PL_ERR_OK;
}

static void tell_loss(struct pl_control *c, const struct pl_loss *loss) {
    pthread_mutex_lock(&c->lock);
    (void)pl_control_set_loss(c, loss);
    pthread_mutex_unlock(&c->lock);
    pl_control_wake(c);
}

void pl_control_lose(struct pl_control *c, uint32_t rank, const char *why) {
    struct pl_loss loss = {.rank = rank, .err = PL_ERR_COMM_PEER_LOST};
    snprintf(loss.why, sizeof loss.why, "%s", why);
    tell_loss(c, &loss);
}

void pl_control_on_loss(struct pl_control *c, void (*call)(void *arg), void *arg) {
    pthread_mutex_lock(&c->hook_lock);
    c->on_loss = call;
    c->on_loss_arg = arg;
    pthread_mutex_unlock(&c->hook_lock);
    pl_control_wake(c); /* the loss may be older */
}

/* Returns the time in limit_ms, on the clock of `moved`. */
static struct timespec after_ms(uint32_t limit_ms) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += limit_ms / 1000;
    until.tv_nsec += (long)(limit_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) until.tv_nsec -= 1000000000, until.tv_sec++;
    return until;
}

bool pl_control_hears(struct pl_control *c, pl_err cause, uint32_t limit_ms) {
    const struct timespec until = after_ms(limit_ms);
    if (c->wake < 0) return false;
    pthread_mutex_lock(&c->lock);
    while (!atomic_load(&c->lost) && pthread_cond_timedwait(&c->moved, &c->lock, &until) == 0)
        continue;
    pthread_mutex_unlock(&c->lock);
    return atomic_load(&c->lost) && c->loss.rank != c->world.rank &&
           c->loss.cause == (uint32_t)cause;
}

void pl_control_fail(struct pl_control *c, pl_err cause, const char *why) {
    struct pl_loss loss = {
        .rank = c->world.rank, .err = PL_ERR_COMM_PEER_LOST, .cause = (uint32_t)cause};
    snprintf(loss.why, sizeof loss.why, "ended: %s%s%s", cause ? pl_err_code(cause) : "",
             cause ? ": " : "", why);
    tell_loss(c, &loss);
    if (c->wake < 0) return;
    const struct timespec until = after_ms(1000);
    pthread_mutex_lock(&c->lock);
    while (!c->told && pthread_cond_timedwait(&c->moved, &c->lock, &until) == 0)
        continue;
    pthread_mutex_unlock(&c->lock);
}

/* ---- rounds ---- */

/* False: the limit passed. With `lock` held. */
static bool wait_for_round(struct pl_control *c, uint32_t limit_ms) {
    const struct timespec until = after_ms(limit_ms);
    int e = 0;
    while (!c->done && !atomic_load(&c->lost) && e == 0)
        e = limit_ms ? pthread_cond_timedwait(&c->moved, &c->lock, &until)
                     : pthread_cond_wait(&c->moved, &c->lock);
    return e == 0;
}

pl_err pl_control_round(struct pl_control *c, const struct pl_round *r, struct pl_diag *d) {
    if (c->world.size == 1) {
        if (r->bytes && r->all != r->mine) memcpy(r->all, r->mine, r->bytes);
        return PL_ERR_OK;
    }
    pthread_mutex_lock(&c->lock);
    c->round = r;
    c->number++;
    c->posted = c->done = false;
    pthread_mutex_unlock(&c->lock);
    pl_control_wake(c);
    pthread_mutex_lock(&c->lock);
    bool in_time = wait_for_round(c, r->limit_ms);
    bool done = c->done;
    c->round = NULL; /* the thread no longer knows the caller's memory */
    pthread_mutex_unlock(&c->lock);
    if (done) return PL_ERR_OK;
    if (in_time) return loss_error(c, d);
    return pl_diag_set(d, PL_ERR_COMM_PEER_LOST, "not all ranks came to an end within %u s",
                       r->limit_ms / 1000);
}
