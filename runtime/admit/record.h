/* record.h - what a run is made of, as its checkpoints record it, and how two runs differ.
 *
 * In: a planned job.  Out: {"learning_rate": "0.0001", ..., "data": "24 rows, ...", ...}.
 * Needs: config (the class of every key), data, checkpoint.
 *   F1  settings are recorded as they were decided, so that config.resolved.yaml and the file it
 *       came from are one job
 *   F2  what a path names is compared by content: data files byte for byte, the tokenizer's files,
 *       config.json, and of the base weights every name, type and shape with the first 4 KiB of
 *       each tensor
 *   F3  a row that one of the two does not have is not compared: it is of another version
 * Use: pl_record_make(pf, &record, &d); pl_record_compare(then, record, &differences); */
#ifndef PL_RUNTIME_ADMIT_RECORD_H
#define PL_RUNTIME_ADMIT_RECORD_H

#include "estimator/base/text.h"
#include "runtime/admit/admission.h"

#include <jansson.h>

/* Makes the record, an object that the caller owns. Until pf->settled the rows that the data decide
 * are left out. PL_ERR_DATA_FILE: a data file cannot be read any more. */
pl_err pl_record_make(const struct pl_preflight *pf, json_t **out, struct pl_diag *d);
/* Writes the rows of keys again, as they are decided now. */
pl_err pl_record_renew(const struct pl_preflight *pf, json_t *record, struct pl_diag *d);
/* Reads what identifies the base weights, for the records that follow; nothing where there are
 * none. */
pl_err pl_record_identify_weights(struct pl_preflight *pf, struct pl_diag *d);
/* Compares `record` with that of the checkpoint which is resumed, where one is:
 * PL_ERR_CHECKPOINT_MISMATCH with the list of what differs in meaning, unless `resume: force`,
 * which makes it a line of `notes`, as what may differ is. What differs in form is refused in any
 * case. */
pl_err pl_record_check_resumed(const struct pl_preflight *pf, const json_t *record,
                               struct pl_text *notes, struct pl_diag *d);
/* Returns the value of one row; NULL: there is none. */
const char *pl_record_get(const json_t *record, const char *row);

/* "key: old -> new; ..." of the rows that differ. */
struct pl_record_differences {
    struct pl_text meaning, others;
    struct pl_text form; /* "`key`, ..." of those of `meaning` that are of the class FORM */
};
void pl_record_compare(const json_t *then, const json_t *now, struct pl_record_differences *out);
void pl_record_differences_finish(struct pl_record_differences *x);

#endif
