/* preflight_data.h - the stage of the data: found, read, split, walked; private to the room. */
#ifndef PL_RUNTIME_ADMIT_PREFLIGHT_DATA_H
#define PL_RUNTIME_ADMIT_PREFLIGHT_DATA_H

#include "estimator/base/diag.h"

struct pl_preflight;
struct pl_progress;

/* Opens the tokenizer where it is certain that the rows need one. */
pl_err pl_preflight_tokenizer(struct pl_preflight *pf, struct pl_diag *d);
/* Finds every file, then reads them. */
pl_err pl_preflight_data(struct pl_preflight *pf, struct pl_progress *progress, struct pl_diag *d);

#endif
