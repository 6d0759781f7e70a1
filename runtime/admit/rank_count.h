/* rank_count.h - `devices: auto`: how many GPUs of this machine a job takes.
 *
 * In: a job as it was read, and its model.  Out: how many they are.
 * Needs: estimator, device_choice.h.
 *   N1  it is the fewest GPUs, counted from the first, that hold the job with the sharding that it
 *       has on so many; all that are there where no number of them does
 *   N2  it is 1 on the CPU, on a GPU that the job names, and for what several ranks cannot have
 * Use: err = pl_rank_count_decide(&job, &model, &devices, &notes, &d); */
#ifndef PL_RUNTIME_ADMIT_RANK_COUNT_H
#define PL_RUNTIME_ADMIT_RANK_COUNT_H

#include "estimator/config/job.h"
#include "estimator/model/model.h"

/* Decides how many they are. notes (nullable) gets a line where there are several GPUs. */
pl_err pl_rank_count_decide(const struct pl_job *job, const struct pl_model *m, uint32_t *devices,
                            struct pl_text *notes, struct pl_diag *d);

#endif
