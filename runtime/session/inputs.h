/* inputs.h - a micro-batch to the device. */
#ifndef PL_RUNTIME_SESSION_INPUTS_H
#define PL_RUNTIME_SESSION_INPUTS_H

#include "runtime/session/session.h"

/* Copies bytes from src to a tensor of the rung in use; nothing for PL_NONE. */
pl_err pl_session_upload(struct pl_session *s, uint32_t tensor, const void *src, uint64_t bytes);
/* Fills the micro-batch with slots [first, first + n) of the step, padded where its rung pads. */
pl_err pl_session_fill(struct pl_session *s, const struct pl_step_batch *b, uint64_t first,
                       uint64_t n, struct pl_diag *d);
/* Returns the counts of the micro-batch that ops run with, padding included; the rest is {0}. */
struct pl_batch pl_session_counts(const struct pl_session *s);
/* Copies the host image of the micro-batch to the inputs of a phase. */
pl_err pl_session_upload_inputs(struct pl_session *s, enum pl_phase phase);

#endif
