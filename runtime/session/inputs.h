/* inputs.h - a micro-batch to the device. */
#ifndef PL_RUNTIME_SESSION_INPUTS_H
#define PL_RUNTIME_SESSION_INPUTS_H

#include "runtime/session/session.h"

/* bytes from src to a tensor of the rung in use; nothing for PL_NONE. */
pl_err pl_session_upload(struct pl_session *s, uint32_t tensor, const void *src, uint64_t bytes);
/* The host image of the micro-batch to the inputs of a phase. */
pl_err pl_session_upload_inputs(struct pl_session *s, enum pl_phase phase);

#endif
