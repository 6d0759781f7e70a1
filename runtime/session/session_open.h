/* session_open.h - the device of a session and its ladder of plans: opened, and all given back.
 *
 * In: an admitted job.  Out: struct pl_session without arenas.  Needs: device, exec. */
#ifndef PL_RUNTIME_SESSION_SESSION_OPEN_H
#define PL_RUNTIME_SESSION_SESSION_OPEN_H

#include "runtime/session/session.h"

/* Opens a session; close *s in every case. */
pl_err pl_session_open(struct pl_session *s, struct pl_preflight *pf, FILE *messages, bool colour,
                       struct pl_diag *d);
struct pl_beginning {
    uint32_t batch_size, least; /* the smallest that halving may come to */
    uint64_t have_bytes;        /* what the device has for arenas */
    bool is_fresh;              /* the job arena is as it was reserved: one of that size stays */
};
/* Decides again, before anything was trained, what the job leaves open, for a smaller micro-batch
 * at which the ladder begins then (anew.h). False in *taken, and nothing has changed: the plan of
 * the ladder is the one that is decided, or neither it nor a smaller one would have room. Else the
 * batch arena is released, and the job arena where it cannot stay; notes gets what was decided. */
pl_err pl_session_begin_anew(struct pl_session *s, const struct pl_beginning *b, bool *taken,
                             struct pl_text *notes, struct pl_diag *d);
void pl_session_close(struct pl_session *s); /* leaves {0} */

#endif
