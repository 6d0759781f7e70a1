/* estimate_args.h - reads the job that the arguments of `estimate-vram` describe.
 *
 * In: struct pl_cli with at most one positional, MODEL or CONFIG.yaml, and key overrides.
 * Out: a job with every default filled, and the path of its config.json.  Needs: config.
 *   E1  CONFIG.yaml is read as by `train`: the same parser, overrides and checks
 *   E2  a MODEL, or flags alone, need no data set and no weights, only config.json; `mode` is lora
 *       unless asked otherwise, and a note says so
 * Use: pl_estimate_read_args(&cli, &job, &path, &notes, &d); pl_model_read(path, &model, &d);
 *      ... free(path); pl_job_finish(&job); */
#ifndef PL_TOOLS_PLIMSOLL_ESTIMATE_ARGS_H
#define PL_TOOLS_PLIMSOLL_ESTIMATE_ARGS_H

#include "tools/plimsoll/cli.h"

/* *config_json is malloc'd, the argument of pl_model_read(): a path that need not exist, or a name
 * of the catalogue. A MODEL that reads like a name and is not found is PL_ERR_USAGE. On failure
 * *job is finished and *config_json is NULL. d must not be NULL. */
pl_err pl_estimate_read_args(const struct pl_cli *cli, struct pl_job *job, char **config_json,
                             struct pl_text *notes, struct pl_diag *d);

/* Reads the whole question: job, model, device and memory. The caller finishes *i in every case. In
 * cmd_estimate.c. */
struct pl_inquiry;
pl_err pl_estimate_read_inquiry(const struct pl_cli *cli, struct pl_inquiry *i, struct pl_diag *d);
/* pl_cli_fail for a question if a job fits (inquiry.h, Q4): an architecture that cannot be computed
 * here is the verdict `unknown`. */
int pl_estimate_fail(const struct pl_cli *cli, const struct pl_diag *d);

#endif
