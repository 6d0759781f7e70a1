/* preflight.c - admission: everything that can refuse a job, from cheap to dear. */
#include "runtime/admit/preflight.h"

#include "estimator/base/alloc.h"
#include "estimator/config/debug_fault.h"
#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"
#include "estimator/config/validate.h"
#include "estimator/find/find.h"
#include "runtime/admit/adapter_job.h"
#include "runtime/admit/agreed.h"
#include "runtime/admit/device_choice.h"
#include "runtime/admit/disk.h"
#include "runtime/admit/generation_config.h"
#include "runtime/admit/output_dir.h"
#include "runtime/admit/preflight_data.h"
#include "runtime/admit/preflight_files.h"
#include "runtime/admit/preflight_size.h"
#include "runtime/admit/prompts.h"
#include "runtime/admit/rank_count.h"
#include "runtime/admit/record.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* A job of which nothing is decided. */
static void begin(struct pl_preflight *pf, const struct pl_job *job) {
    *pf = (struct pl_preflight){.job = &pf->spec.job,
                                .base_was_auto = job->base_dtype == PL_DTYPE_AUTO};
    pl_spec_init(&pf->spec, job);
}

pl_err pl_preflight_read_data(struct pl_preflight *pf, const struct pl_job *job,
                              struct pl_progress *progress, struct pl_diag *d) {
    begin(pf, job);
    PL_TRY(pl_job_require_training(job, d));
    PL_TRY(pl_preflight_find_model(pf, d));
    PL_TRY(pl_preflight_tokenizer(pf, d));
    return pl_preflight_data(pf, progress, d);
}

pl_err pl_preflight_count_ranks(const struct pl_job *job, uint32_t *devices, struct pl_text *notes,
                                struct pl_diag *d) {
    struct pl_preflight pf;
    *devices = pl_job_ranks(job);
    if (job->devices != PL_AUTO) return PL_ERR_OK;
    begin(&pf, job);
    pl_err err = pl_job_require_training(job, d);
    if (err == PL_ERR_OK) err = pl_preflight_find_model(&pf, d);
    if (err == PL_ERR_OK) err = pl_rank_count_decide(job, &pf.model, devices, notes, d);
    pl_preflight_finish(&pf);
    return err;
}

/* Refuses a merge that the end of the run would find impossible. */
static pl_err check_merging(const struct pl_preflight *pf, struct pl_diag *d) {
    if (!pf->job->save_merged || pl_codes_are_values(pf->model.codes)) return PL_ERR_OK;
    pl_err err = pl_job_error(pf->job, PL_KEY_save_merged, PL_ERR_CONFIG_CONFLICT, d,
                              "nothing can be merged into this model: its weights are 4-bit codes");
    pl_diag_hint(d, "merge the adapter into the unquantised model of the same name");
    return err;
}

/* The faults of a device are armed when it opens; memory of the host is asked for before that. */
static void arm_host_fault(struct pl_preflight *pf) {
    struct pl_fault f;
    for (uint32_t i = 0; i < pf->job->debug_inject.n; i++) {
        if (!pl_fault_parse(pf->job->debug_inject.items[i], &f)) continue;
        if (f.kind != PL_FAULT_HOST_OOM_ALLOC) continue;
        pl_alloc_fail(f.at, f.count);
        pf->host_fault = true;
    }
}

/* The record of the run, and what it is compared with. */
static pl_err record(struct pl_preflight *pf, const struct pl_admission *how, struct pl_diag *d) {
    pl_preflight_compare(pf);
    PL_TRY(pl_record_make(pf, &pf->files.record, d));
    PL_TRY(pl_record_check_resumed(pf, pf->files.record, &pf->notes, d));
    if (!how->judges_output) return PL_ERR_OK;
    PL_TRY(pl_output_dir_judge(pf, pf->files.record, d));
    return how->makes_output ? pl_output_dir_identify(pf, d) : PL_ERR_OK;
}

/* Which device, and what it has. */
static pl_err find_device(struct pl_preflight *pf, const struct pl_world *world,
                          struct pl_diag *d) {
    pl_err err = pl_device_decide(pf->job, world, &pf->spec.facts.device, &pf->gpu, d);
    pl_resolve(&pf->spec);
    PL_TRY(err);
    if (!pf->job->inference) PL_TRY(pl_job_check_comm(pf->job, d));
    pl_device_budget(&pf->spec, world, &pf->gpu, &pf->q.traits, &pf->q.budget, &pf->context);
    return PL_ERR_OK;
}

static pl_err admit(struct pl_preflight *pf, const struct pl_admission *how, struct pl_diag *d) {
    const struct pl_job *job = pf->job;
    PL_TRY(pl_job_require_training(job, d));
    if (job->devices == PL_AUTO) pf->spec.facts.devices = how->devices;
    pl_resolve(&pf->spec);
    if (how->world) PL_TRY(pl_ranks_join(&pf->spec, how->world, d));
    PL_TRY(pl_agreed_meet(pf, how->teller, d));
    PL_TRY(pl_preflight_find_model(pf, d));
    PL_TRY(check_merging(pf, d));
    PL_TRY(find_device(pf, how->world, d));
    PL_TRY(pl_agreed_budget(pf, &pf->q.budget, d));
    PL_TRY(pl_preflight_find_resume(pf, d));
    PL_TRY(pl_preflight_size(pf, d));
    if (pf->world.rank == 0) PL_TRY(pl_output_dir_take(pf, how->makes_output, d));
    PL_TRY(pl_preflight_files(pf, how, d));
    PL_TRY(pl_preflight_data(pf, how->progress, d));
    PL_TRY(pl_preflight_prompts(pf, d));
    PL_TRY(pl_preflight_settle(pf, d));
    PL_TRY(record(pf, how, d));
    return pl_disk_note(pf, d);
}

pl_err pl_preflight_init(struct pl_preflight *pf, const struct pl_job *job,
                         const struct pl_admission *how, struct pl_diag *d) {
    begin(pf, job);
    if (how->world) pf->world = *how->world;
    arm_host_fault(pf);
    pl_err err = admit(pf, how, d);
    if (err != PL_ERR_OK && pf->comm) pl_comm_refuse(pf->comm, err, d);
    return err;
}

static pl_err take_adapter(struct pl_preflight *pf, struct pl_diag *d) {
    char *path;
    PL_TRY(pl_find_adapter(pf->job, &path, d));
    pl_err err = path ? pl_adapter_job_read(&pf->files.adapter_names, &pf->model, path,
                                            &pf->spec.facts.adapter, d)
                      : PL_ERR_OK;
    free(path);
    return err;
}

pl_err pl_preflight_init_generate(struct pl_preflight *pf, const struct pl_job *job,
                                  struct pl_diag *d) {
    struct pl_job_facts *facts = &pf->spec.facts;
    begin(pf, job);
    arm_host_fault(pf);
    facts->generates = true;
    pl_resolve(&pf->spec);
    pf->global_batch = job->batch_size;
    PL_TRY(pl_preflight_find_model(pf, d));
    PL_TRY(pl_generation_config_take(pf->files.config_path, &pf->model, &pf->notes, d));
    facts->is_stored_wide = strcmp(pf->model.torch_dtype, "float32") == 0;
    PL_TRY(take_adapter(pf, d));
    pl_resolve(&pf->spec);
    PL_TRY(find_device(pf, NULL, d));
    pl_question_open(&pf->q, pf->job, &pf->model);
    PL_TRY(pl_preflight_plan(pf, d));
    return pl_preflight_weights(pf, true, d);
}

static void finish_data(struct pl_run_data *data) {
    if (data->eval != data->rows) pl_data_close(&data->eval);
    pl_data_close(&data->rows);
    pl_walk_finish(&data->walk);
    pl_holdout_finish(&data->held);
    pl_holdout_finish(&data->left_out);
}

static void finish_files(struct pl_run_files *files) {
    pl_job_finish(&files->adapter_names);
    free(files->model_dir);
    free(files->config_path);
    free(files->resume_path);
    json_decref(files->resume_job);
    json_decref(files->record);
}

void pl_preflight_finish(struct pl_preflight *pf) {
    pl_estimate_finish(&pf->estimate);
    pl_planned_finish(&pf->first);
    pl_autobatch_finish(&pf->search);
    pl_comm_close(&pf->comm);
    pl_cut_finish(&pf->cut);
    pl_text_finish(&pf->notes);
    pl_output_dir_release(pf);
    finish_data(&pf->data);
    pl_run_prompts_finish(&pf->prompts);
    finish_files(&pf->files);
    if (pf->host_fault) pl_alloc_fail(0, 0);
    *pf = (struct pl_preflight){0};
}
