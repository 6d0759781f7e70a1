/* given_file.h - a file of another kind where a configuration, or a model, is expected.
 *
 * In:  a path as it was typed, and the first bytes of the file.
 * Out: OK, or an error that says what the file is and which command takes it.
 * Use: PL_TRY(pl_given_as_job(path, bytes, n, d)); */
#ifndef PL_ESTIMATOR_BASE_GIVEN_FILE_H
#define PL_ESTIMATOR_BASE_GIVEN_FILE_H

#include "estimator/base/diag.h"

#include <stddef.h>

#define PL_GIVEN_BYTES 4096 /* bytes from the start of a file that suffice to decide */

/* PL_ERR_CONFIG_FILE where a configuration is expected, and the file is a directory, rows of
 * training data, weights, or a JSON file of a model or tokenizer. */
pl_err pl_given_as_job(const char *path, const char *bytes, size_t n, struct pl_diag *d);
/* PL_ERR_MODEL_FILE where a model is expected, and the file is rows of training data. */
pl_err pl_given_as_model(const char *path, const char *bytes, size_t n, struct pl_diag *d);

#endif
