/* device_choice.h - which device a job runs on and what it may use there, before it is opened.
 *
 * In: a job.  Out: traits and budget.  Needs: estimator/card, nvml.h, context.h.
 * Use: pl_device_decide(&job, &gpu, &d);
 *      pl_device_budget(&job, &gpu, &traits, &budget, &context); */
#ifndef PL_RUNTIME_ADMIT_DEVICE_CHOICE_H
#define PL_RUNTIME_ADMIT_DEVICE_CHOICE_H

#include "estimator/card/budget.h"
#include "estimator/card/traits.h"
#include "estimator/config/job.h"
#include "runtime/admit/context.h"

/* Decides `device: auto` in *job and asks NVML about a GPU; *gpu stays {0} on the CPU. No CUDA call
 * is made. NO_DEVICE: the GPU the job names cannot be used. */
pl_err pl_device_decide(struct pl_job *job, struct pl_gpu *gpu, struct pl_diag *d);
/* Traits and budget of the device that was decided. The budget of a GPU is what is free on it, or
 * less where vram_budget asks for less; on the CPU it is what the process may still take.
 * job->vram_budget and vram_margin are decided in place. */
void pl_device_budget(struct pl_job *job, const struct pl_gpu *gpu, struct pl_traits *traits,
                      struct pl_budget *budget, struct pl_context *context);

#endif
