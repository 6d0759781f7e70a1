/* output_dir.h - the directory of a run: made, taken for this run alone, and not of another job;
 * private to the room. */
#ifndef PL_RUNTIME_ADMIT_OUTPUT_DIR_H
#define PL_RUNTIME_ADMIT_OUTPUT_DIR_H

#include "estimator/base/diag.h"

#include <stdbool.h>

struct json_t; /* jansson's */
struct pl_preflight;

/* Takes the directory for this run. makes: it is made, and locked until pl_output_dir_release: two
 * runs would remove each other's files. Else it is looked at. PL_ERR_IO: another run has it, or it
 * cannot be written. */
pl_err pl_output_dir_take(struct pl_preflight *pf, bool makes, struct pl_diag *d);
/* Judges what is there. PL_ERR_CONFIG_CONFLICT: it holds what is not this job's to replace, as far
 * as `record` knows. */
pl_err pl_output_dir_judge(struct pl_preflight *pf, const struct json_t *record, struct pl_diag *d);
/* Decides the number and the id of the run. */
pl_err pl_output_dir_identify(struct pl_preflight *pf, struct pl_diag *d);
/* Gives the lock back, and removes directories that were made for nothing. */
void pl_output_dir_release(struct pl_preflight *pf);

#endif
