/* preflight.h - admission: everything that can refuse a job.
 *
 * In: a job, which stays as it is.  Out: struct pl_preflight, or the refusal of the first stage
 * that has one.
 * Needs: estimator, checkpoint, data, report.
 *   A1  the stages run from cheap to dear: keys, model facts, size gate and plan, lock of
 *       output_dir, files (weights, adapter, checkpoint, tokenizer), data. A stage that refuses has
 *       touched nothing of those after it
 *   A2  a plan is made once: what it was judged by is what runs (pl_preflight_planned)
 *   A3  no device is opened, no device memory allocated, and of weights only the headers and what
 *       identifies them are read (record.h, F2)
 * Use: struct pl_preflight pf; pl_preflight_init(&pf, &job, &how, &d); ...
 *      pl_preflight_finish(&pf); */
#ifndef PL_RUNTIME_ADMIT_PREFLIGHT_H
#define PL_RUNTIME_ADMIT_PREFLIGHT_H

#include "runtime/admit/admission.h"

/* Decides every auto, plans, judges, reads the data. A refusal is the returned error
 * (RUNTIME_DOES_NOT_FIT, RUNTIME_FULL_FT_MODEL_TOO_LARGE, ...) with *pf still valid for printing;
 * finish it in every case. */
pl_err pl_preflight_init(struct pl_preflight *pf, const struct pl_job *job,
                         const struct pl_admission *how, struct pl_diag *d);
/* Counts the devices: *devices is how many a job that is to be trained on this machine has, `auto`
 * as rank_count.h decides it. */
pl_err pl_preflight_count_ranks(const struct pl_job *job, uint32_t *devices, struct pl_text *notes,
                                struct pl_diag *d);
/* Reads model facts and data, and makes the walk over them, for looking at the samples; no device
 * is asked. progress is nullable. */
pl_err pl_preflight_read_data(struct pl_preflight *pf, const struct pl_job *job,
                              struct pl_progress *progress, struct pl_diag *d);
/* Decides the rest of the job: dtype as the checkpoint's where none is given, the adapter's rank
 * and scale where there is an adapter. A refusal leaves *pf valid for printing; finish it always.
 */
pl_err pl_preflight_init_generate(struct pl_preflight *pf, const struct pl_job *job,
                                  struct pl_diag *d);
void pl_preflight_finish(struct pl_preflight *pf);

#endif
