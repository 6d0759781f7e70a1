/* load.h - what goes into the job arena before the first step: tables, base, adapter.
 *
 * In: a session with its arenas.  Out: weights in them.  Needs: checkpoint, exec. */
#ifndef PL_RUNTIME_SESSION_LOAD_H
#define PL_RUNTIME_SESSION_LOAD_H

#include "runtime/checkpoint/tensor_io.h"
#include "runtime/session/session.h"

/* The tensors of the session for the readers and writers of files, with the staging of a phase. */
struct pl_tensor_io pl_session_io(struct pl_session *s, enum pl_phase phase);
pl_err pl_session_load(struct pl_session *s, struct pl_diag *d);
/* Reads the files of the base once more, after it computed what is not finite:
 * PL_ERR_CHECKPOINT_FORMAT names the first number of theirs that is not. */
pl_err pl_session_check_base(const struct pl_session *s, struct pl_diag *d);
/* Fills the table of long sequences with the frequencies of the micro-batch's longest (dynamic). */
pl_err pl_session_follow_length(struct pl_session *s, struct pl_diag *d);

#endif
