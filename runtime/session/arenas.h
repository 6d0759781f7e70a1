/* arenas.h - the memory of a session: the job arena and the batch arena, of device and host.
 *
 * In: an opened session.  Out: arenas that the executor is bound to.  Needs: device, exec. */
#ifndef PL_RUNTIME_SESSION_ARENAS_H
#define PL_RUNTIME_SESSION_ARENAS_H

#include "runtime/session/session.h"

/* Returns what the budget leaves; every run has one, if only the machine's available memory. On a
 * GPU that neighbours share, at most what is free. */
uint64_t pl_session_free_bytes(const struct pl_session *s);
/* Reserves the job arenas. RUNTIME_DEVICE_OOM, explained on s->messages, when the device's cannot
 * be had, RUNTIME_HOST_OOM when the host's cannot. */
pl_err pl_session_reserve_job(struct pl_session *s, struct pl_diag *d);
/* Reserves the batch arenas of the rung in use in place of those that there are, and binds its
 * executor. RUNTIME_DEVICE_OOM with s->facts: a smaller micro-batch may have room. */
pl_err pl_session_reserve_batch(struct pl_session *s, struct pl_diag *d);
void pl_session_release_batch(struct pl_session *s);
/* Registers the arenas with the engine between ranks (S5), on all ranks at the same time: once it
 * is agreed that each has its arenas, and before anything is exchanged. A refusal is no error.
 * COMM_PEER_LOST. */
pl_err pl_session_register_arenas(struct pl_session *s, struct pl_diag *d);
/* Gives every arena back. */
void pl_session_release_arenas(struct pl_session *s);

#endif
