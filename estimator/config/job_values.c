#include "estimator/config/job_values.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/base/open_file.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

pl_err pl_job_error(const struct pl_job *job, enum pl_key_id key, pl_err err, struct pl_diag *d,
                    const char *fmt, ...) {
    char message[sizeof d->message];
    struct pl_place place = job->place[key];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    bool by_override = job->given[key] && !place.line;
    return pl_diag_at(d, err, by_override ? NULL : job->path, place.line, place.column, "%s",
                      message);
}

bool pl_job_names_adapter(const struct pl_job *job) {
    return job->adapter_path || job->given[PL_KEY_lora_r] || job->given[PL_KEY_lora_target_modules];
}

void pl_job_set_inference(struct pl_job *job) {
    bool quantised = job->given[PL_KEY_quant_type] || job->given[PL_KEY_double_quant] ||
                     job->given[PL_KEY_quantize_head] || job->given[PL_KEY_quantize_embedding];
    job->inference = true;
    if (job->mode == PL_UNSET_U32)
        job->mode = quantised                   ? PL_MODE_QLORA
                    : pl_job_names_adapter(job) ? PL_MODE_LORA
                                                : PL_MODE_FULL;
    else if (pl_mode_adapts(job->mode))
        job->given[PL_KEY_lora_r] = true; /* the adapter that the job of a file trains */
}

double pl_job_lora_scale(const struct pl_job *job) {
    double r = job->lora_r;
    double alpha = isnan(job->lora_alpha) ? 2 * r : job->lora_alpha;
    return alpha / (job->use_rslora ? sqrt(r) : r); /* rsLoRA: arXiv 2312.03732 */
}

double pl_job_learning_rate(const struct pl_job *job) {
    if (!isnan(job->learning_rate)) return job->learning_rate;
    return pl_mode_adapts(job->mode) ? 2e-4 : 2e-5;
}

uint32_t pl_job_offload(const struct pl_job *job) {
    bool all = job->mode == PL_MODE_FULL && job->full_ft_offload;
    if (job->inference) return PL_OFFLOAD_NONE;
    return all ? PL_OFFLOAD_WEIGHTS : job->offload;
}

bool pl_job_offloads(const struct pl_job *job) {
    return pl_job_offload(job) != PL_OFFLOAD_NONE || job->embedding_device == PL_EMBEDDING_HOST;
}

/* A gradient that is let go in the backward pass waits for no other micro-batch. */
static bool is_of_one_micro_batch(const struct pl_job *job) {
    return job->mode == PL_MODE_FULL && job->optimizer_in_backward == PL_TRI_TRUE;
}

/* A gradient that dies in the backward pass never leaves the device, and its update is there. */
bool pl_job_updates_on_host(const struct pl_job *job) {
    uint32_t offload = pl_job_offload(job);
    if (job->offload_update == PL_UPDATE_AUTO)
        return offload >= PL_OFFLOAD_GRADIENTS && !is_of_one_micro_batch(job);
    return job->offload_update == PL_UPDATE_HOST && offload != PL_OFFLOAD_NONE;
}

uint32_t pl_job_ranks(const struct pl_job *job) {
    return job->devices == PL_AUTO ? 1 : job->devices;
}

bool pl_job_orders_ranks(const struct pl_job *job) {
    if (job->rank_order == PL_TRI_AUTO) return pl_job_ranks(job) > 1;
    return job->rank_order == PL_TRI_TRUE;
}

bool pl_job_has_open_step(const struct pl_job *job) {
    return job->batch_size == PL_AUTO && job->global_batch_size == PL_UNSET_U32 &&
           job->auto_samples != PL_UNSET_U32 && !job->inference;
}

uint32_t pl_job_least_samples(const struct pl_job *job) {
    const uint32_t k = job->gradient_accumulation_steps;
    const uint64_t least = (uint64_t)pl_job_ranks(job) * (k == PL_UNSET_U32 ? 1 : k);
    return (uint32_t)pl_u64_min(least, PL_UNSET_U32 - 1);
}

uint32_t pl_job_step_samples(const struct pl_job *job) {
    if (job->global_batch_size != PL_UNSET_U32) return job->global_batch_size;
    if (!pl_job_has_open_step(job) || is_of_one_micro_batch(job)) return 0;
    const uint32_t samples = job->auto_samples ? job->auto_samples : PL_STEP_SAMPLES;
    return (uint32_t)pl_u64_max(samples, pl_job_least_samples(job));
}

uint32_t pl_job_smallest_batch(const struct pl_job *job) {
    return job->batch_size == PL_AUTO ? 1 : job->batch_size;
}

bool pl_job_may_cut_step(const struct pl_job *job) {
    return job->batch_size == PL_AUTO && pl_job_step_samples(job) > 1;
}

void pl_job_cut_step(struct pl_job *job, uint32_t batch_size, uint64_t samples) {
    job->batch_size = batch_size;
    job->global_batch_size = (uint32_t)pl_u64_min(samples, PL_UNSET_U32 - 1);
    job->gradient_accumulation_steps = PL_UNSET_U32;
    if (pl_job_whole_samples(job, batch_size) != batch_size) job->keep_first_pass = PL_TRI_FALSE;
    const bool together = job->optimizer_in_backward == PL_TRI_TRUE;
    if (together && pl_job_accumulation(job, batch_size) > 1)
        job->optimizer_in_backward = PL_TRI_FALSE;
}

bool pl_job_is_of_ranks(const struct pl_job *job) {
    return pl_job_ranks(job) > 1 || pl_job_orders_ranks(job);
}

uint32_t pl_job_accumulation(const struct pl_job *job, uint32_t batch_size) {
    const uint32_t k = job->gradient_accumulation_steps, samples = pl_job_step_samples(job);
    bool follows = samples && batch_size && k == PL_UNSET_U32;
    if (pl_job_has_open_step(job)) /* a larger one than auto takes is asked about as a given one */
        follows = samples && batch_size && batch_size <= samples / pl_job_least_samples(job);
    if (!follows) return k == PL_UNSET_U32 ? 1 : k;
    return (uint32_t)pl_u64_div_up(samples, (uint64_t)batch_size * pl_job_ranks(job));
}

bool pl_job_reads_in_circle(const struct pl_job *job) {
    return job->max_steps && !job->shuffle;
}

const struct pl_dataset *pl_job_find_split(const struct pl_dataset_list *list, uint32_t split) {
    for (uint32_t i = 0; i < list->n; i++)
        if (list->items[i].split == split) return &list->items[i];
    return NULL;
}

bool pl_job_evaluates(const struct pl_job *job) {
    return job->val_set_size > 0 || job->eval_datasets.n > 0 ||
           pl_job_find_split(&job->datasets, PL_SPLIT_EVAL);
}

bool pl_job_samples(const struct pl_job *job) {
    return job->sample_prompts.n > 0 && !job->inference;
}

char *pl_job_input_path(const struct pl_job *job, const char *path) {
    const char *slash = job->path ? strrchr(job->path, '/') : NULL;
    if (path[0] != '/' && slash && pl_look_for(path) == PL_NOT_THERE) {
        char *beside = NULL;
        if (pl_asprintf(&beside, "%.*s/%s", (int)(slash - job->path), job->path, path) < 0)
            return NULL;
        if (pl_look_for(beside) != PL_NOT_THERE) return beside;
        free(beside);
    }
    return pl_strdup(path);
}

/* --- preferences ------------------------------------------------------------------------------ */

enum { GROUP_OF_ONE = 1, GROUP_OF_TWO };
enum { IS_ALONE, IS_REFERS };
static const struct {
    uint32_t group;
    bool refers;
} stages[] = {
#define X(id, name, members, reference) {GROUP_OF_##members, IS_##reference},
    PL_STAGES(X)
#undef X
};

bool pl_job_prefers(const struct pl_job *job) {
    return job->stage != PL_STAGE_SFT && !job->inference;
}

bool pl_job_weighs_rows(const struct pl_job *job) {
    return job->row_weights == PL_TRI_TRUE && !pl_job_prefers(job) && !job->inference;
}

uint32_t pl_job_group(const struct pl_job *job) {
    return stages[job->stage].group;
}

bool pl_job_refers(const struct pl_job *job) {
    return pl_job_prefers(job) && stages[job->stage].refers;
}

bool pl_job_refers_to_start(const struct pl_job *job) {
    if (!pl_job_refers(job)) return false;
    return job->reference == PL_REFERENCE_INITIAL || !pl_mode_adapts(job->mode);
}

bool pl_job_precomputes(const struct pl_job *job) {
    return pl_job_refers_to_start(job) ||
           (pl_job_refers(job) && job->precompute_reference == PL_TRI_TRUE);
}

/* A row of KTO learns from one of its samples; the other is scored before. */
uint32_t pl_job_whole_samples(const struct pl_job *job, uint32_t batch_size) {
    return job->stage == PL_STAGE_KTO ? batch_size : batch_size + batch_size % 2;
}
