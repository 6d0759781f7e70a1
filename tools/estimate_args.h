/* estimate_args.h - the job that the arguments of `estimate-vram` describe.
 *
 * In: struct pl_cli with at most one positional, MODEL or CONFIG.yaml, and key overrides.
 * Out: a job with every default filled, and the config.json it is about.  Needs: config.
 *   E1  CONFIG.yaml is what `train` would read: the same parser, overrides and checks
 *   E2  a MODEL, or flags alone, need no data set and no weights, only config.json; `mode` is lora
 *       unless asked otherwise, and a note says so
 * Use: pl_estimate_read_args(&cli, &job, &path, &notes, &d); pl_model_read(path, &model, &d);
 *      ... free(path); pl_job_finish(&job); */
#ifndef PL_TOOLS_ESTIMATE_ARGS_H
#define PL_TOOLS_ESTIMATE_ARGS_H

#include "tools/cli.h"

/* *config_json is malloc'd: the path of the model's config.json, which need not exist. On failure
 * *job is finished and *config_json is NULL. */
pl_err pl_estimate_read_args(const struct pl_cli *cli, struct pl_job *job, char **config_json,
                             struct pl_text *notes, struct pl_diag *d);
/* config.json of a job: `model`, else `model_config`; a directory means the file in it. */
pl_err pl_estimate_config_path(const struct pl_job *job, char **config_json, struct pl_diag *d);

#endif
