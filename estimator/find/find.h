/* find.h - from the names in a job to paths: model, tokenizer and adapter, for every command.
 *
 * In: a job, or none for what stands on a command line by itself.  Out: paths, malloc'd.
 * Needs: config, model; the file system and the environment are only read.
 *   F1  a path is looked for from the current directory, then from that of the job's file
 *   F2  the tokenizer is what `tokenizer` names, else the one in the directory of the model's
 *       config.json, or in its GGUF file
 * The name of a model is resolved by resolve.h.
 * Use: char *path; pl_find_tokenizer(&job, &path, &d); ... free(path); */
#ifndef PL_ESTIMATOR_FIND_FIND_H
#define PL_ESTIMATOR_FIND_FIND_H

#include "estimator/config/job.h"
#include "estimator/model/resolve.h"

/* Resolves `given`, a path or a name. job and notes may be NULL. */
pl_err pl_find_model(const struct pl_job *job, const char *given, struct pl_text *notes,
                     struct pl_model_ref *out, struct pl_diag *d);
/* Finds the config.json of the job: `model`, else `model_config`. USAGE: it names none. */
pl_err pl_find_config(const struct pl_job *job, struct pl_text *notes, struct pl_model_ref *out,
                      struct pl_diag *d);
/* Sets *out to a tokenizer.json, a directory with one, a GGUF file, or the word "byte".
 * TOKENIZER_FILE: none is named, and the model has none on this machine. */
pl_err pl_find_tokenizer(const struct pl_job *job, char **out, struct pl_diag *d);
/* Sets *out to the directory that adapter_path names; NULL if it names none. */
pl_err pl_find_adapter(const struct pl_job *job, char **out, struct pl_diag *d);

#endif
