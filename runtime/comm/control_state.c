/* control_state.c - changes of the channel's state by its thread and by the others. */
#include "runtime/comm/control_state.h"

#include <unistd.h>

bool pl_control_set_loss(struct pl_control *c, const struct pl_loss *loss) {
    if (atomic_load(&c->lost)) return false;
    c->loss = *loss;
    atomic_store(&c->lost, true);
    pthread_cond_broadcast(&c->moved);
    return true;
}

void pl_control_wake(struct pl_control *c) {
    const uint64_t one = 1;
    ssize_t written = c->wake >= 0 ? write(c->wake, &one, sizeof one) : 0;
    (void)written; /* a full counter wakes it just as well */
}
