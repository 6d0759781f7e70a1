/* session_open.h - the device of a session and its ladder of plans: opened, and all given back.
 *
 * In: an admitted job.  Out: struct pl_session without arenas.  Needs: device, exec. */
#ifndef PL_RUNTIME_SESSION_SESSION_OPEN_H
#define PL_RUNTIME_SESSION_SESSION_OPEN_H

#include "runtime/session/session.h"

/* Close *s in every case. */
pl_err pl_session_open(struct pl_session *s, struct pl_preflight *pf, FILE *messages, bool colour,
                       struct pl_diag *d);
void pl_session_close(struct pl_session *s); /* leaves {0} */

#endif
