/* job_values.h - values that follow from several keys of a job, and failures that point at a
 * key. */
#ifndef PL_ESTIMATOR_CONFIG_JOB_VALUES_H
#define PL_ESTIMATOR_CONFIG_JOB_VALUES_H

#include "estimator/base/diag.h"
#include "estimator/config/job.h"

/* Records a failure that points at the line where `key` was set; returns `err`. */
pl_err pl_job_error(const struct pl_job *job, enum pl_key_id key, pl_err err, struct pl_diag *d,
                    const char *fmt, ...) PL_PRINTF(5, 6);

/* True if the job names an adapter, which `inference` applies without merging it. */
bool pl_job_names_adapter(const struct pl_job *job);
/* Applies `--mode inference`, which is not a mode of a job: to generate with the weights, and with
 * adapters if one is named. Called after all keys are set. */
void pl_job_set_inference(struct pl_job *job);

/* Returns the factor of the adapters' product: lora_alpha over lora_r, or over its root. */
double pl_job_lora_scale(const struct pl_job *job);
double pl_job_learning_rate(const struct pl_job *job);
/* Returns PL_OFFLOAD_*: `offload`, or the highest where full_ft_offload asks for it; NONE for
 * inference. */
uint32_t pl_job_offload(const struct pl_job *job);
/* True if a tensor of the job lives in host memory. */
bool pl_job_offloads(const struct pl_job *job);
/* Decides offload_update: true if states and gradients are both in host memory. */
bool pl_job_updates_on_host(const struct pl_job *job);
/* Returns `devices`; 1 while `auto` is not decided. */
uint32_t pl_job_ranks(const struct pl_job *job);
/* Decides `rank_order`: true if gradients are added micro-batch by micro-batch, in their order.
 * Several ranks without it exchange gradients once a step. */
bool pl_job_orders_ranks(const struct pl_job *job);
/* Samples of a step if no key gives them: most recipes of fine-tuning use this. It is the same for
 * every model, budget and number of ranks, so that `batch_size: auto` decides the micro-batch
 * alone. */
#define PL_STEP_SAMPLES 16
/* Updates below which a run learns little: a step whose size no key gives is made smaller to reach
 * them. */
#define PL_FEW_UPDATES 10
/* True if `batch_size: auto` is given without the samples of a step ("open step"). */
bool pl_job_has_open_step(const struct pl_job *job);
/* Returns the fewest samples of an open step: one for each rank and each of
 * gradient_accumulation_steps. */
uint32_t pl_job_least_samples(const struct pl_job *job);
/* Returns the samples of a step: global_batch_size; for an open step auto_samples, or
 * PL_STEP_SAMPLES while they are not decided. 0: as many as its micro-batches hold. */
uint32_t pl_job_step_samples(const struct pl_job *job);
/* The micro-batch as the job gives it; 1 where it is open: the smallest that it can have. */
uint32_t pl_job_smallest_batch(const struct pl_job *job);
/* True if `batch_size: auto` may become less than the samples of a step. */
bool pl_job_may_cut_step(const struct pl_job *job);
/* Makes steps hold `samples` samples in micro-batches of batch_size. If these are several, updates
 * in the backward pass are switched off, as they need one. */
void pl_job_cut_step(struct pl_job *job, uint32_t batch_size, uint64_t samples);
/* True if a step belongs to several ranks, or to one that adds gradients as several do. */
bool pl_job_is_of_ranks(const struct pl_job *job);
/* Returns the largest number of micro-batches of a step that a rank computes. */
uint32_t pl_job_accumulation(const struct pl_job *job, uint32_t batch_size);
/* True if the rows are read in a circle, as they stand in the files: under `max_steps` and
 * `shuffle: false`, if no epoch is asked for and nothing is drawn. */
bool pl_job_reads_in_circle(const struct pl_job *job);
/* True if there is evaluation data: held-out rows, or files of their own. */
bool pl_job_evaluates(const struct pl_job *job);
/* True if the model in training answers prompts. */
bool pl_job_samples(const struct pl_job *job);
/* True if the job learns from preferences: a loss of several samples, whose log-probabilities are
 * computed before their gradients. */
bool pl_job_prefers(const struct pl_job *job);
/* True if rows have weights, as far as is known. */
bool pl_job_weighs_rows(const struct pl_job *job);
/* Returns the samples that a row of data makes. */
uint32_t pl_job_group(const struct pl_job *job);
/* True if the stage compares with a reference. */
bool pl_job_refers(const struct pl_job *job);
/* True if the reference is what the run starts with, and not the base without its adapter. */
bool pl_job_refers_to_start(const struct pl_job *job);
/* True if the reference is computed before the first step. */
bool pl_job_precomputes(const struct pl_job *job);
/* Returns the samples of one time that a micro-batch of `batch_size` samples becomes where it
 * learns from its first pass: whole pairs. */
uint32_t pl_job_whole_samples(const struct pl_job *job, uint32_t batch_size);
/* Returns the first entry of this split, NULL if there is none. */
const struct pl_dataset *pl_job_find_split(const struct pl_dataset_list *list, uint32_t split);
/* Returns a malloc'd path, or NULL for lack of memory. Input paths are tried from the current
 * directory, then from the YAML file's directory: the first that exists, else `path` as given. */
char *pl_job_input_path(const struct pl_job *job, const char *path);

#endif
