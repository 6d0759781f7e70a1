#include "runtime/admit/device_choice.h"

#include "estimator/base/checked.h"
#include "estimator/card/cards.h"
#include "estimator/config/job_values.h"
#include "runtime/device/available.h"
#include "runtime/device/cuda/gpu_query.h"
#include "runtime/device/device.h"

static pl_err query_gpu(uint32_t ordinal, struct pl_gpu *gpu, struct pl_diag *d) {
    PL_TRY(pl_gpu_query(&pl_device_cuda, ordinal, gpu, d));
    return pl_card_check_sm(gpu->name, gpu->sm, d);
}

uint32_t pl_device_count(uint32_t most) {
    struct pl_gpu gpu;
    uint32_t n = 0;
    while (!pl_device_cuda.missing && n < most && query_gpu(n, &gpu, NULL) == PL_ERR_OK)
        n++;
    return n;
}

static pl_err take_gpu_of_rank(const struct pl_world *world, uint32_t *device, struct pl_gpu *gpu,
                               struct pl_diag *d) {
    const uint32_t there = pl_device_count(world->local_size);
    *device = PL_DEVICE_CUDA_AT + world->local_rank;
    if (there == world->local_size) return query_gpu(world->local_rank, gpu, d);
    pl_err err = pl_diag_set(d, PL_ERR_NO_DEVICE, "this machine has %u GPU%s for %u ranks", there,
                             there == 1 ? "" : "s", world->local_size);
    pl_diag_hint(d, "start no more ranks than GPUs; where each rank is shown one GPU alone, set "
                    "`device: cuda:0`, and to train on the CPU, `device: cpu`");
    return err;
}

static pl_err decide_auto(const struct pl_world *world, uint32_t *device, struct pl_gpu *gpu,
                          struct pl_diag *d) {
    const bool gpus = !pl_device_cuda.missing && query_gpu(0, gpu, NULL) == PL_ERR_OK;
    *device = gpus ? PL_DEVICE_CUDA : PL_DEVICE_CPU;
    if (gpus && world && world->size > 1) return take_gpu_of_rank(world, device, gpu, d);
    if (!gpus) *gpu = (struct pl_gpu){0};
    return PL_ERR_OK;
}

pl_err pl_device_decide(const struct pl_job *job, const struct pl_world *world, uint32_t *device,
                        struct pl_gpu *gpu, struct pl_diag *d) {
    *gpu = (struct pl_gpu){0};
    *device = job->device;
    if (job->device == PL_DEVICE_AUTO) return decide_auto(world, device, gpu, d);
    if (!pl_device_is_cuda(job->device)) return PL_ERR_OK;
    if (!pl_device_cuda.missing) return query_gpu(pl_device_ordinal(job->device), gpu, d);
    pl_diag_set(d, PL_ERR_NO_DEVICE, "%s", pl_device_cuda.missing);
    pl_diag_hint(d, "build with the CUDA toolkit (meson setup -Dcuda=enabled), or train with "
                    "`device: cpu`");
    return PL_ERR_NO_DEVICE;
}

static void gpu_budget(const struct pl_job *job, const struct pl_gpu *gpu,
                       struct pl_budget *budget) {
    bool smaller = job->vram_budget <= gpu->free_bytes; /* PL_AUTO_BYTES is above everything */
    budget->source = smaller ? "vram_budget" : "free memory of the GPU";
    budget->total_bytes = smaller ? job->vram_budget : gpu->free_bytes;
    /* A budget below what is free makes a card whose last byte can be had. */
    if (job->vram_margin == PL_AUTO_BYTES)
        budget->margin_bytes =
            smaller && gpu->free_bytes - job->vram_budget >= PL_CARD_MARGIN ? 0 : PL_CARD_MARGIN;
}

/* The memory of the process besides its arenas: 5 MiB were measured, and larger data takes more. */
#define PROCESS_BYTES (UINT64_C(16) << 20)

/* Arenas are all that counts against a budget on the CPU, and they are exact. A budget above what
 * is there would promise what the system cannot give; only the null device is as large as asked. */
static void cpu_budget(const struct pl_job *job, uint32_t ranks, struct pl_budget *budget) {
    struct pl_available there = pl_cpu_available();
    if (ranks > 1) there.source = "this rank's share of the available memory";
    there.bytes /= ranks;
    const bool asked = job->vram_budget <= there.bytes ||
                       (job->device == PL_DEVICE_NULL && job->vram_budget != PL_AUTO_BYTES);
    budget->source = asked ? "vram_budget" : there.source;
    budget->total_bytes = asked ? job->vram_budget : there.bytes;
    if (!asked && there.limit && job->vram_margin == PL_AUTO_BYTES)
        budget->margin_bytes = PROCESS_BYTES;
}

void pl_device_budget(struct pl_spec *spec, const struct pl_world *world, const struct pl_gpu *gpu,
                      struct pl_traits *traits, struct pl_budget *budget,
                      struct pl_context *context) {
    const struct pl_job *job = &spec->job;
    const bool on_gpu = pl_device_is_cuda(job->device);
    const uint32_t threads = job->threads ? job->threads : pl_cpu_count();
    *traits = on_gpu ? pl_traits_cuda(gpu->sm) : pl_traits_cpu(threads);
    if (job->device == PL_DEVICE_NULL) traits->backend = PL_BACKEND_NULL;
    *context = (struct pl_context){.source = "none"};
    *budget = (struct pl_budget){.known = true};
    if (job->vram_margin != PL_AUTO_BYTES) budget->margin_bytes = job->vram_margin;
    if (on_gpu) {
        pl_context_predict(gpu, context);
        budget->context_bytes = context->bytes;
        budget->doubt_bytes = context->doubt_bytes;
        if (!job->inference) pl_budget_predict_comm(budget, pl_job_ranks(job));
        gpu_budget(job, gpu, budget);
    } else {
        cpu_budget(job, world && world->size > 1 ? world->local_size : 1, budget);
    }
    spec->facts.threads = threads;
    spec->facts.vram_budget = budget->total_bytes;
    spec->facts.vram_margin = budget->margin_bytes;
    spec->facts.names_budget = on_gpu || spec->asked->vram_budget != PL_AUTO_BYTES;
    pl_resolve(spec);
}
