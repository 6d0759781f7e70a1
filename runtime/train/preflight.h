/* preflight.h - the stages of admission; private to runtime/train.
 *
 * In: a job.  Out: struct pl_preflight, or the refusal of the first stage that has one.
 * Needs: estimator, checkpoint, data, report.
 *   A1  the stages run from cheap to dear: keys, model facts, size gate and plan, lock of
 *       output_dir, files (weights, adapter, checkpoint, tokenizer), data. A stage that refuses has
 *       touched nothing of those after it
 *   A2  a plan is made once: what it was judged by is what runs (pl_preflight_planned) */
#ifndef PL_RUNTIME_TRAIN_PREFLIGHT_H
#define PL_RUNTIME_TRAIN_PREFLIGHT_H

#include "runtime/train/train.h"

struct json_t; /* jansson's */

/* --- preflight_files.c --- */
/* The config.json to read, and the directory of the weights when there are weights to read. */
pl_err pl_preflight_find_model(struct pl_preflight *pf, struct pl_diag *d);
/* The checkpoint to resume from, its counters and its record. */
pl_err pl_preflight_find_resume(struct pl_preflight *pf, struct pl_diag *d);
/* Whether the weights are on this machine, and are those of the model: of files the headers alone
 * are read. MODEL_WEIGHTS: they are not here, or not exact under `base_dtype: auto`; not needed:
 * that they are not here is a warning. */
pl_err pl_preflight_weights(struct pl_preflight *pf, bool needed, struct pl_diag *d);
/* All of the stage; the tokenizer comes last. */
pl_err pl_preflight_files(struct pl_preflight *pf, const struct pl_admission *how,
                          struct pl_diag *d);
/* Notes on how data and base differ from those of the checkpoint. */
void pl_preflight_compare(struct pl_preflight *pf);

/* --- preflight_size.c --- */
/* The plan and the verdict where batch_size is given; under `auto` those of one sample. */
pl_err pl_preflight_size(struct pl_preflight *pf, struct pl_diag *d);
/* The plan of pf->q and its verdict, from pf->search.planned where that is the plan. */
pl_err pl_preflight_plan(struct pl_preflight *pf, struct pl_diag *d);
/* The plan that runs, or, before the data of a job with `batch_size: auto`, that of one sample. */
const struct pl_planned *pl_preflight_planned(const struct pl_preflight *pf);
/* What follows from the rows: the micro-batch of `auto`, steps. */
pl_err pl_preflight_settle(struct pl_preflight *pf, struct pl_diag *d);
/* Writes back what the plan decided, so that config.resolved.yaml repeats the run. */
void pl_preflight_write_decisions(struct pl_job *job, const struct pl_program *p);

/* --- preflight_data.c --- */
/* Opens the tokenizer where it is certain that the rows need one. */
pl_err pl_preflight_tokenizer(struct pl_preflight *pf, struct pl_diag *d);
/* Finds every file, then reads them. */
pl_err pl_preflight_data(struct pl_preflight *pf, struct pl_progress *progress, struct pl_diag *d);

/* --- output_dir.c --- */
/* makes: the directory is made, and locked until pl_output_dir_release: two runs would remove each
 * other's files. Else it is looked at. PL_ERR_IO: another run has it, or it cannot be written. */
pl_err pl_output_dir_take(struct pl_preflight *pf, bool makes, struct pl_diag *d);
/* PL_ERR_CONFIG_CONFLICT: it holds what is not this job's to replace, as far as `record` knows. */
pl_err pl_output_dir_judge(struct pl_preflight *pf, const struct json_t *record, struct pl_diag *d);
/* The number and the id of the run. */
pl_err pl_output_dir_identify(struct pl_preflight *pf, struct pl_diag *d);
/* Gives the lock back, and removes directories that were made for nothing. */
void pl_output_dir_release(struct pl_preflight *pf);

#endif
