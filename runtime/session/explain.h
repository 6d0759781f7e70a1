/* explain.h - why memory was not enough, for people. */
#ifndef PL_RUNTIME_SESSION_EXPLAIN_H
#define PL_RUNTIME_SESSION_EXPLAIN_H

#include "runtime/session/session.h"

/* Completes a RUNTIME_GPU_OOM, and a RUNTIME_DEVICE_OOM of the job arena: ledger, checklist,
 * remedies as notes on s->messages. */
void pl_session_explain_oom(struct pl_session *s);

#endif
