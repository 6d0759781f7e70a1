/* job_values.h - what follows from several keys of a job, and failures that point at one. */
#ifndef PL_ESTIMATOR_CONFIG_JOB_VALUES_H
#define PL_ESTIMATOR_CONFIG_JOB_VALUES_H

#include "estimator/base/diag.h"
#include "estimator/config/job.h"

/* A failure that points at the line where `key` was set. */
pl_err pl_job_error(const struct pl_job *job, enum pl_key_id key, pl_err err, struct pl_diag *d,
                    const char *fmt, ...) PL_PRINTF(5, 6);

/* `inference`: whether an adapter is named, which is then applied without merging it. */
bool pl_job_names_adapter(const struct pl_job *job);
/* `--mode inference`, which is no mode of a job: to generate with the weights, and with adapters
 * where one is named. After all keys are set. */
void pl_job_set_inference(struct pl_job *job);

/* Values that follow from several keys. */
double pl_job_lora_scale(const struct pl_job *job);
double pl_job_learning_rate(const struct pl_job *job);
/* PL_OFFLOAD_*: `offload`, or all of it where full_ft_offload asks for that; none of
 * inference. */
uint32_t pl_job_offload(const struct pl_job *job);
/* Whether a tensor of the job lives in host memory. */
bool pl_job_offloads(const struct pl_job *job);
/* offload_update decided: on the host where states and gradients are both there. */
bool pl_job_updates_on_host(const struct pl_job *job);
/* `devices`; 1 while `auto` is not decided. */
uint32_t pl_job_ranks(const struct pl_job *job);
/* `rank_order` decided: gradients are added micro-batch by micro-batch, in their order. Several
 * ranks without it exchange gradients once a step. */
bool pl_job_orders_ranks(const struct pl_job *job);
/* Samples of a step that no key says: what most recipes of fine-tuning use. It is the same for
 * every model, budget and number of ranks, so that `batch_size: auto` decides the micro-batch
 * alone. */
#define PL_STEP_SAMPLES 16
/* A run of fewer updates learns little; steps that no key sizes are made smaller for so many. */
#define PL_FEW_UPDATES 10
/* Whether `batch_size: auto` is given without the samples of a step. */
bool pl_job_has_open_step(const struct pl_job *job);
/* The fewest samples of such a step: one for each rank and each of gradient_accumulation_steps. */
uint32_t pl_job_least_samples(const struct pl_job *job);
/* Samples of a step: global_batch_size; of an open step auto_samples, or PL_STEP_SAMPLES while they
 * are not decided; 0: as many as its micro-batches hold. */
uint32_t pl_job_step_samples(const struct pl_job *job);
/* Whether `batch_size: auto` may become less than the samples of a step. */
bool pl_job_may_cut_step(const struct pl_job *job);
/* The job whose steps hold so many samples in micro-batches of batch_size. Where they are several,
 * updates in the backward pass, which they could not have, are off. */
void pl_job_cut_step(struct pl_job *job, uint32_t batch_size, uint64_t samples);
/* Whether a step is one of ranks: of several, or of one that adds as several do. */
bool pl_job_is_of_ranks(const struct pl_job *job);
/* Micro-batches of a step that each rank computes, at most. */
uint32_t pl_job_accumulation(const struct pl_job *job, uint32_t batch_size);
/* Whether the rows are read in a circle, as they stand in the files: under `max_steps` and
 * `shuffle: false`, where no epoch is asked for and nothing is drawn. */
bool pl_job_reads_in_circle(const struct pl_job *job);
/* Whether there is something to evaluate on: held-out rows, or files of their own. */
bool pl_job_evaluates(const struct pl_job *job);
/* The first entry of this split, NULL when there is none. */
const struct pl_dataset *pl_job_find_split(const struct pl_dataset_list *list, uint32_t split);
/* Input paths are tried from the current directory, then from the YAML file's directory.
 * Returns a malloc'd path (the first that exists, else as given), NULL when out of memory. */
char *pl_job_input_path(const struct pl_job *job, const char *path);

#endif
