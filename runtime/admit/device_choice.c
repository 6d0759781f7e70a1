/* device_choice.c - see device_choice.h. */
#include "runtime/admit/device_choice.h"

#include "estimator/base/checked.h"
#include "estimator/card/cards.h"
#include "runtime/device/available.h"
#include "runtime/device/device.h"

static pl_err query_gpu(const struct pl_job *job, struct pl_gpu *gpu, struct pl_diag *d) {
    PL_TRY(pl_nvml_query(pl_device_ordinal(job->device), gpu, d));
    return pl_card_check_sm(gpu->name, gpu->sm, d);
}

static pl_err no_back_end(struct pl_diag *d) {
    pl_err err = pl_diag_set(d, PL_ERR_NO_DEVICE, "%s", pl_device_cuda.missing);
    pl_diag_hint(d, "build with the CUDA toolkit (meson setup -Dcuda=enabled), or train with "
                    "`device: cpu`");
    return err;
}

pl_err pl_device_decide(struct pl_job *job, struct pl_gpu *gpu, struct pl_diag *d) {
    *gpu = (struct pl_gpu){0};
    if (pl_device_is_cuda(job->device))
        return pl_device_cuda.missing ? no_back_end(d) : query_gpu(job, gpu, d);
    if (job->device != PL_DEVICE_AUTO) return PL_ERR_OK;
    if (!pl_device_cuda.missing && query_gpu(job, gpu, NULL) == PL_ERR_OK) {
        job->device = PL_DEVICE_CUDA;
        return PL_ERR_OK;
    }
    *gpu = (struct pl_gpu){0};
    job->device = PL_DEVICE_CPU;
    return PL_ERR_OK;
}

static void gpu_budget(struct pl_job *job, const struct pl_gpu *gpu, struct pl_budget *budget) {
    bool smaller = job->vram_budget <= gpu->free_bytes; /* PL_AUTO_BYTES is above everything */
    budget->source = smaller ? "vram_budget" : "free memory of the GPU";
    budget->total_bytes = smaller ? job->vram_budget : gpu->free_bytes;
    /* A budget below what is free makes a card whose last byte can be had. */
    if (job->vram_margin == PL_AUTO_BYTES)
        budget->margin_bytes =
            smaller && gpu->free_bytes - job->vram_budget >= PL_CARD_MARGIN ? 0 : PL_CARD_MARGIN;
}

/* Of the process beside its arenas: 5 MiB were measured, and larger data takes more. */
#define PROCESS_BYTES (UINT64_C(16) << 20)

/* Arenas are all that counts against a budget on the CPU, and they are exact. A budget above what
 * is there would promise what the system cannot give; only the null device is as large as asked. */
static void cpu_budget(struct pl_job *job, struct pl_budget *budget) {
    const struct pl_available there = pl_cpu_available();
    const bool asked = job->vram_budget <= there.bytes ||
                       (job->device == PL_DEVICE_NULL && job->vram_budget != PL_AUTO_BYTES);
    budget->source = asked ? "vram_budget" : there.source;
    if (!asked) job->vram_budget = there.bytes;
    budget->total_bytes = job->vram_budget;
    if (!asked && there.limit && job->vram_margin == PL_AUTO_BYTES)
        budget->margin_bytes = PROCESS_BYTES;
}

void pl_device_budget(struct pl_job *job, const struct pl_gpu *gpu, struct pl_traits *traits,
                      struct pl_budget *budget, struct pl_context *context) {
    bool on_gpu = pl_device_is_cuda(job->device);
    if (job->threads == 0) job->threads = pl_cpu_count();
    *traits = on_gpu ? pl_traits_cuda(gpu->sm) : pl_traits_cpu(job->threads);
    if (job->device == PL_DEVICE_NULL) traits->backend = PL_BACKEND_NULL;
    *context = (struct pl_context){.source = "none"};
    *budget = (struct pl_budget){.known = true};
    if (job->vram_margin != PL_AUTO_BYTES) budget->margin_bytes = job->vram_margin;
    if (on_gpu) {
        pl_context_predict(gpu, context);
        budget->context_bytes = context->bytes;
        budget->doubt_bytes = context->doubt_bytes;
        gpu_budget(job, gpu, budget);
        job->vram_budget = budget->total_bytes;
    } else {
        cpu_budget(job, budget);
    }
    job->vram_margin = budget->margin_bytes;
}
