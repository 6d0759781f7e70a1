/* device_choice.h - which device a job runs on and what it may use there, before it is opened.
 *
 * In: a job, and which rank asks.  Out: the device, traits and budget.
 * Needs: estimator/card, comm, nvml.h, context.h.
 * Use: pl_device_decide(&spec.job, &world, &spec.facts.device, &gpu, &d); pl_resolve(&spec);
 *      pl_device_budget(&spec, &world, &gpu, &traits, &budget, &context); */
#ifndef PL_RUNTIME_ADMIT_DEVICE_CHOICE_H
#define PL_RUNTIME_ADMIT_DEVICE_CHOICE_H

#include "estimator/card/budget.h"
#include "estimator/card/traits.h"
#include "estimator/config/spec.h"
#include "runtime/admit/context.h"
#include "runtime/comm/comm.h"

/* Decides the device: *device is that of the job, with `auto` decided. Asks NVML about a GPU; *gpu
 * is {0} on the CPU. No CUDA call is made in this process (gpu_query.h). world: nullable, this
 * process is alone. Each of several ranks takes the GPU of its number on the machine, or all of
 * them take the CPU where no GPU answers. NO_DEVICE: the GPU that the job names cannot be used, or
 * the machine has fewer GPUs than ranks. */
pl_err pl_device_decide(const struct pl_job *job, const struct pl_world *world, uint32_t *device,
                        struct pl_gpu *gpu, struct pl_diag *d);
/* Counts the GPUs of this machine that kernels run on, from the first to the first that is none, up
 * to `most`; 0 where the build has no CUDA. */
uint32_t pl_device_count(uint32_t most);
/* Writes traits and budget of the device that was decided. The budget of a GPU is what is free on
 * it, or less where vram_budget asks for less; on the CPU it is what the process may still take,
 * divided by the ranks of the machine (world: nullable). threads, vram_budget and vram_margin
 * become facts of the specification. */
void pl_device_budget(struct pl_spec *spec, const struct pl_world *world, const struct pl_gpu *gpu,
                      struct pl_traits *traits, struct pl_budget *budget,
                      struct pl_context *context);

#endif
