/* parts.h - the parts of the advice that are planned row by row, and how they are told. Private to
 * advice. */
#ifndef PL_ESTIMATOR_ADVICE_PARTS_H
#define PL_ESTIMATOR_ADVICE_PARTS_H

#include "estimator/advice/figures.h"

/* knobs.c, card_rows.c: fill their part. */
pl_err pl_advice_knobs(struct pl_advice *a, struct pl_diag *d);
pl_err pl_advice_tradeoffs(struct pl_advice *a, struct pl_diag *d);
pl_err pl_advice_cards(struct pl_advice *a, struct pl_diag *d);

/* The level as the key takes it. */
#define PL_LEVEL_TEXT 32
void pl_tradeoff_name(const struct pl_tradeoff *t, char out[PL_LEVEL_TEXT]);
/* All of its points are dominated; false when it has none. */
bool pl_tradeoff_dominated(const struct pl_tradeoff *t);
/* Samples of a step that micro-batches have to make up; 0 = whatever fits. */
uint32_t pl_advice_step_samples(const struct pl_advice *a);
/* Writes the samples of a step into a job, in its own words where they can say it. */
void pl_advice_set_step(uint32_t samples, struct pl_job *job);
/* The keys of a job that are given, one a line. */
void pl_advice_job_yaml(const struct pl_job *job, struct pl_text *out);
/* A job that is recommended: its command, and its keys to be written to a file. */
void pl_advice_job_text(const struct pl_advice *a, const struct pl_job *job, struct pl_text *out);
/* Tables: a line for each length that the data was measured at, and for each cell of the grid. */
void pl_length_choices_report(const struct pl_advice *a, struct pl_report *r);
void pl_fit_grid_report(const struct pl_fit_grid *g, struct pl_report *r);
/* The sub-command that a job is for: `train` where it has data. */
const char *pl_advice_verb(const struct pl_job *job);
/* True if a key is written alike for both jobs; *failed becomes true when out of memory. */
bool pl_advice_same_value(const struct pl_job *a, const struct pl_job *b, enum pl_key_id key,
                          bool *failed);
/* A command line for a POSIX shell. file (nullable): the job as it was read; keys that are the same
 * in it are left to the file. Without it only those that the advice sets are not. */
void pl_advice_job_command(const char *verb, const struct pl_job *job, const struct pl_job *file,
                           const char *card, struct pl_text *out);

#endif
