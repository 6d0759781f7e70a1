/* preflight.c - admission: everything that can refuse a job, from cheap to dear. */
#include "runtime/admit/preflight.h"

#include "estimator/base/alloc.h"
#include "estimator/config/debug_fault.h"
#include "estimator/config/job_values.h"
#include "estimator/config/validate.h"
#include "estimator/find/find.h"
#include "runtime/admit/adapter_job.h"
#include "runtime/admit/agreed.h"
#include "runtime/admit/device_choice.h"
#include "runtime/admit/disk.h"
#include "runtime/admit/generation_config.h"
#include "runtime/admit/join.h"
#include "runtime/admit/output_dir.h"
#include "runtime/admit/preflight_data.h"
#include "runtime/admit/preflight_files.h"
#include "runtime/admit/preflight_size.h"
#include "runtime/admit/rank_count.h"
#include "runtime/admit/record.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

pl_err pl_preflight_read_data(struct pl_preflight *pf, struct pl_job *job,
                              struct pl_progress *progress, struct pl_diag *d) {
    *pf = (struct pl_preflight){.job = job};
    PL_TRY(pl_job_require_training(job, d));
    PL_TRY(pl_preflight_find_model(pf, d));
    PL_TRY(pl_preflight_tokenizer(pf, d));
    return pl_preflight_data(pf, progress, d);
}

pl_err pl_preflight_count_ranks(struct pl_job *job, struct pl_text *notes, struct pl_diag *d) {
    struct pl_preflight pf = {.job = job};
    if (job->devices != PL_AUTO) return PL_ERR_OK;
    pl_err err = pl_job_require_training(job, d);
    if (err == PL_ERR_OK) err = pl_preflight_find_model(&pf, d);
    if (err == PL_ERR_OK) err = pl_rank_count_decide(job, &pf.model, notes, d);
    pl_preflight_finish(&pf);
    return err;
}

/* What the end of the run would find impossible. */
static pl_err check_merging(const struct pl_preflight *pf, struct pl_diag *d) {
    if (!pf->job->save_merged || pf->model.codes == PL_CODES_NONE) return PL_ERR_OK;
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
    PL_TRY(pl_record_make(pf, &pf->record, d));
    PL_TRY(pl_record_check_resumed(pf, pf->record, &pf->notes, d));
    if (!how->judges_output) return PL_ERR_OK;
    PL_TRY(pl_output_dir_judge(pf, pf->record, d));
    return how->makes_output ? pl_output_dir_identify(pf, d) : PL_ERR_OK;
}

static pl_err admit(struct pl_preflight *pf, const struct pl_admission *how, struct pl_diag *d) {
    struct pl_job *job = pf->job;
    PL_TRY(pl_job_require_training(job, d));
    if (how->world) PL_TRY(pl_ranks_join(job, how->world, d));
    PL_TRY(pl_agreed_meet(pf, how->teller, d));
    PL_TRY(pl_preflight_find_model(pf, d));
    PL_TRY(check_merging(pf, d));
    PL_TRY(pl_device_decide(job, how->world, &pf->gpu, d));
    PL_TRY(pl_job_check_comm(job, d));
    pl_device_budget(job, how->world, &pf->gpu, &pf->q.traits, &pf->q.budget, &pf->context);
    PL_TRY(pl_agreed_budget(pf, d));
    PL_TRY(pl_preflight_find_resume(pf, d));
    PL_TRY(pl_preflight_size(pf, d));
    if (pf->world.rank == 0) PL_TRY(pl_output_dir_take(pf, how->makes_output, d));
    PL_TRY(pl_preflight_files(pf, how, d));
    PL_TRY(pl_preflight_data(pf, how->progress, d));
    PL_TRY(pl_preflight_settle(pf, d));
    PL_TRY(record(pf, how, d));
    return pl_disk_note(pf, d);
}

pl_err pl_preflight_init(struct pl_preflight *pf, struct pl_job *job,
                         const struct pl_admission *how, struct pl_diag *d) {
    *pf = (struct pl_preflight){.job = job, .base_was_auto = job->base_dtype == PL_BASE_AUTO};
    if (how->world) pf->world = *how->world;
    arm_host_fault(pf);
    pl_err err = admit(pf, how, d);
    if (err != PL_ERR_OK && pf->comm) pl_comm_refuse(pf->comm, err, d);
    return err;
}

static void take_stored_dtype(struct pl_preflight *pf) {
    if (pf->job->given[PL_KEY_dtype]) return;
    bool wide = strcmp(pf->model.torch_dtype, "float32") == 0;
    pf->job->dtype = wide ? PL_JOB_DTYPE_FP32 : PL_JOB_DTYPE_BF16;
}

static pl_err take_adapter(struct pl_preflight *pf, struct pl_diag *d) {
    char *path;
    PL_TRY(pl_find_adapter(pf->job, &path, d));
    pl_err err = path ? pl_adapter_job_fill(pf->job, &pf->model, path, d) : PL_ERR_OK;
    free(path);
    return err;
}

pl_err pl_preflight_init_generate(struct pl_preflight *pf, struct pl_job *job, struct pl_diag *d) {
    *pf = (struct pl_preflight){.job = job, .base_was_auto = job->base_dtype == PL_BASE_AUTO};
    arm_host_fault(pf);
    job->inference = true;
    job->oom_recovery = false; /* there is no smaller batch of the same prompts */
    pf->global_batch = job->batch_size;
    PL_TRY(pl_preflight_find_model(pf, d));
    PL_TRY(pl_generation_config_take(pf->config_path, &pf->model, &pf->notes, d));
    take_stored_dtype(pf);
    PL_TRY(take_adapter(pf, d));
    PL_TRY(pl_device_decide(job, NULL, &pf->gpu, d));
    pl_device_budget(job, NULL, &pf->gpu, &pf->q.traits, &pf->q.budget, &pf->context);
    pl_question_open(&pf->q, job, &pf->model);
    PL_TRY(pl_preflight_plan(pf, d));
    return pl_preflight_weights(pf, true, d);
}

void pl_preflight_finish(struct pl_preflight *pf) {
    pl_estimate_finish(&pf->estimate);
    pl_planned_finish(&pf->first);
    pl_autobatch_finish(&pf->search);
    pl_comm_close(&pf->comm);
    if (pf->eval_data != pf->data) pl_data_close(&pf->eval_data);
    pl_data_close(&pf->data);
    pl_walk_finish(&pf->walk);
    pl_holdout_finish(&pf->held);
    pl_holdout_finish(&pf->left_out);
    pl_cut_finish(&pf->cut);
    pl_text_finish(&pf->notes);
    free(pf->model_dir);
    free(pf->config_path);
    free(pf->resume_path);
    json_decref(pf->resume_job);
    json_decref(pf->record);
    pl_output_dir_release(pf);
    if (pf->host_fault) pl_alloc_fail(0, 0);
    *pf = (struct pl_preflight){0};
}
