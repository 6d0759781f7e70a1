/* job_text.h - a job from text and to text.
 *
 * In: YAML text, `key=value` overrides.  Out: struct pl_job.  Needs: key_types, validate.
 * Use: struct pl_job job = {0};
 *      pl_job_read(&job, "run.yaml", overrides, n, NULL, &diag); ... pl_job_finish(&job); */
#ifndef PL_ESTIMATOR_CONFIG_JOB_TEXT_H
#define PL_ESTIMATOR_CONFIG_JOB_TEXT_H

#include "estimator/base/diag.h"
#include "estimator/base/text.h"
#include "estimator/config/job.h"

/* Reads `path` (NULL: no file), applies overrides ("key=value", in order; they win over the file),
 * fills defaults, validates. On failure *job is finished. With d->all every key that is wrong is
 * reported, and every contradiction between keys that are not; a text that is not YAML ends it.
 * `notes` (nullable) gets one line for every synonym that was used, and a warning for every key
 * that has no meaning in this job (pl_job_drop_useless). */
pl_err pl_job_read(struct pl_job *job, const char *path, const char *const *overrides,
                   uint32_t n_overrides, struct pl_text *notes, struct pl_diag *d);
/* pl_job_read for a job that is to be trained: pl_job_require_training is one of its rules. */
pl_err pl_job_read_to_train(struct pl_job *job, const char *path, const char *const *overrides,
                            uint32_t n_overrides, struct pl_text *notes, struct pl_diag *d);
/* pl_job_read for a job that generates (pl_job_set_inference): `mode` may stay unset. */
pl_err pl_job_read_to_generate(struct pl_job *job, const char *path, const char *const *overrides,
                               uint32_t n_overrides, struct pl_text *notes, struct pl_diag *d);
/* pl_job_read from memory; `name` is the file name in messages. */
pl_err pl_job_parse(struct pl_job *job, const char *name, const char *yaml, uint64_t yaml_bytes,
                    const char *const *overrides, uint32_t n_overrides, struct pl_text *notes,
                    struct pl_diag *d);
/* Appends the text of a configuration, PL_DOCUMENT_BYTES and a bit more at most; `-` is stdin. */
pl_err pl_config_read_file(const char *path, struct pl_text *out, struct pl_diag *d);
/* Fills every default without a file: the start of `estimate-vram MODEL --flags`. `mode` may stay
 * unset. */
pl_err pl_job_defaults(struct pl_job *job, struct pl_diag *d);
/* Sets one key from text; `value` is written as in YAML. */
pl_err pl_job_set(struct pl_job *job, const char *key, const char *value, struct pl_diag *d);
/* pl_job_set from one override, "key=value"; notes as in pl_job_read. */
pl_err pl_job_assign(struct pl_job *job, const char *assignment, struct pl_text *notes,
                     struct pl_diag *d);
/* Sets keys that have no meaning with the others back to their defaults, as if they had not been
 * given (lora_r under `mode: full`); notes (nullable) gets a warning for each. What is trained does
 * not depend on them; where it would, pl_job_validate refuses the key. pl_job_read has already
 * called it. */
pl_err pl_job_drop_useless(struct pl_job *job, struct pl_text *notes, struct pl_diag *d);
/* Appends YAML with every key that has a value, one a line, in table order
 * (config.resolved.yaml). */
void pl_job_write(const struct pl_job *job, struct pl_text *out);
/* Appends the value of one key as YAML text; "" if it is unset. */
void pl_job_write_key(const struct pl_job *job, enum pl_key_id key, struct pl_text *out);
void pl_job_finish(struct pl_job *job); /* NULL-safe; leaves {0} */

#endif
