/* control_state.h - the inside of the control channel: meet.c makes it, serve.c is its thread,
 * channel.c holds the calls of the other threads.
 *
 *   S1  links and parts belong to meet.c until the thread runs, then to the thread alone
 *   S2  all else that changes is changed under `lock`; `lost` is also read without it
 * Needs: control.h, wire.h, threads. */
#ifndef PL_RUNTIME_COMM_CONTROL_STATE_H
#define PL_RUNTIME_COMM_CONTROL_STATE_H

#include "runtime/comm/wire.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

/* The part of a rank that rank 0 holds for the next round. */
struct pl_part {
    bool there;
    uint32_t call, bytes;
    uint64_t number;
    unsigned char data[PL_AGREE_MOST];
};

struct pl_control {
    struct pl_world world;
    uint32_t timeout_ms, beat_ms;
    uint32_t n_links; /* rank 0: world.size, and [0] is unused; else 1, the link to rank 0 */
    struct pl_link links[PL_RANKS_MAX];
    struct pl_part parts[PL_RANKS_MAX];
    char hosts[PL_RANKS_MAX][PL_HOST_NAME];
    pthread_t thread;
    int wake; /* eventfd; -1 = no thread */

    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint64_t number;              /* number of the latest round */
    const struct pl_round *round; /* round that a caller waits for; NULL = none */
    bool posted;                  /* the thread has seen it */
    bool done;
    enum { PL_STAY, PL_LEAVE_ORDERLY, PL_LEAVE_EARLY } leave;
    bool told; /* the others were told of the loss; written by the thread alone */

    pthread_mutex_t hook_lock;  /* held while it is called */
    void (*on_loss)(void *arg); /* NULL = none, or it was called already */
    void *on_loss_arg;

    atomic_bool lost;
    struct pl_loss loss; /* written before `lost` is set, never again */
};

/* Makes the links and learns the hosts, before there is a thread (meet.c). */
pl_err pl_meet(struct pl_control *c, struct pl_meeting *m, struct pl_diag *d);
/* Serves the connections until the caller leaves, as the thread (serve.c). */
void *pl_serve(void *control);

/* Records the first loss only. Returns true if it is this one. Called with `lock` held. */
static inline bool pl_control_set_loss(struct pl_control *c, const struct pl_loss *loss) {
    if (atomic_load(&c->lost)) return false;
    c->loss = *loss;
    atomic_store(&c->lost, true);
    pthread_cond_broadcast(&c->moved);
    return true;
}
/* Ends the thread's wait for a message. */
static inline void pl_control_wake(struct pl_control *c) {
    const uint64_t one = 1;
    ssize_t written = c->wake >= 0 ? write(c->wake, &one, sizeof one) : 0;
    (void)written; /* a full counter wakes it just as well */
}

#endif
