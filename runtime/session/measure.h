/* measure.h - what a session took, against what was planned and predicted.
 *
 * In: an opened session.  Out: bytes, seconds.  Needs: device, nvml.h, admit/context.h. */
#ifndef PL_RUNTIME_SESSION_MEASURE_H
#define PL_RUNTIME_SESSION_MEASURE_H

#include "runtime/session/books.h"
#include "runtime/session/session.h"

double pl_session_clock(void); /* monotonic seconds */
/* Measures the context (S4); on the CPU it does nothing. */
pl_err pl_session_check_context(struct pl_session *s, struct pl_diag *d);
/* Compares the books (S1), and remembers the context of a GPU for the next prediction. */
pl_err pl_session_check_books(struct pl_session *s, struct pl_books *out, struct pl_diag *d);

#endif
