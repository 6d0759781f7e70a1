/* preflight_files.h - the stage of the files: model facts, weights, adapter, checkpoint, tokenizer;
 * private to the room. */
#ifndef PL_RUNTIME_ADMIT_PREFLIGHT_FILES_H
#define PL_RUNTIME_ADMIT_PREFLIGHT_FILES_H

#include "estimator/base/diag.h"

struct pl_admission;
struct pl_preflight;
struct pl_program;

/* Finds the config.json to read, and the directory of the weights when there are weights to
 * read. */
pl_err pl_preflight_find_model(struct pl_preflight *pf, struct pl_diag *d);
/* Finds the checkpoint to resume from, its counters and its record. */
pl_err pl_preflight_find_resume(struct pl_preflight *pf, struct pl_diag *d);
/* Checks that the weights are on this machine and are those of the model: of files the headers
 * alone are read. MODEL_WEIGHTS: they are not here, or not exact under `base_dtype: auto`; not
 * needed: that they are not here is a warning. */
pl_err pl_preflight_weights(struct pl_preflight *pf, bool needed, struct pl_diag *d);
/* Does all of the stage; the tokenizer comes last. */
pl_err pl_preflight_files(struct pl_preflight *pf, const struct pl_admission *how,
                          struct pl_diag *d);
/* Returns the job as files know it, whatever part of it is this rank's. It is called after the
 * stage. */
const struct pl_program *pl_preflight_whole(const struct pl_preflight *pf);
/* Notes on how data and base differ from those of the checkpoint. */
void pl_preflight_compare(struct pl_preflight *pf);

#endif
