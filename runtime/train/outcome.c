#include "runtime/train/outcome.h"

#include "estimator/base/json_tree.h"
#include "estimator/base/open_file.h"
#include "estimator/base/units.h"
#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"
#include "estimator/inquiry/answer.h"
#include "estimator/inquiry/receipt.h"
#include "runtime/checkpoint/durable.h"
#include "runtime/data/summary.h"
#include "runtime/report/run_log.h"
#include "runtime/session/measure.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

pl_err pl_run_check_books(struct pl_run *r, struct pl_train_result *out, struct pl_diag *d) {
    out->steps = r->state.step;
    out->steps_run = r->state.step - r->s.pf->files.resume_state.step;
    out->oom_recoveries = r->oom.retries;
    out->wall_seconds = pl_session_clock() - r->started;
    out->data_wait_seconds = r->data_wait_seconds;
    return pl_session_check_books(&r->s, &out->books, d);
}

static char *in_output(const struct pl_run *r, const char *name) {
    struct pl_text t = {0};
    pl_text_addf(&t, "%s/%s", r->s.job->output_dir, name);
    if (!t.failed) return t.data;
    pl_text_finish(&t);
    return NULL;
}

static pl_err write_text(const struct pl_run *r, const char *name, const struct pl_text *text,
                         struct pl_diag *d) {
    char *path = in_output(r, name);
    pl_err err = !path || text->failed ? pl_host_oom(d, name)
                                       : pl_file_write(path, pl_text_str(text), text->len, d);
    free(path);
    return err;
}

/* Steals o; NULL: it could not be built. */
static pl_err write_json(const struct pl_run *r, const char *name, json_t *o, size_t flags,
                         struct pl_diag *d) {
    struct pl_text text = {0};
    char *dump = o ? pl_json_dump(o, flags | JSON_REAL_PRECISION(17)) : NULL;
    pl_text_add(&text, dump ? dump : "");
    pl_text_add(&text, "\n");
    pl_err err = dump ? write_text(r, name, &text, d) : pl_host_oom(d, name);
    free(dump);
    json_decref(o);
    pl_text_finish(&text);
    return err;
}

static pl_err write_estimate(struct pl_run *r, struct pl_diag *d) {
    const struct pl_text *notes = &r->s.pf->notes;
    json_t *o = notes->failed ? NULL : pl_answer_json(&r->s.pf->estimate, pl_text_str(notes));
    return write_json(r, "preflight.json", o, JSON_INDENT(2), d);
}

/* Writes the plan in use, which a halving changes. */
static pl_err write_timeline(const struct pl_run *r, const struct pl_plan *plan,
                             struct pl_diag *d) {
    return write_json(r, "timeline.json", pl_timeline_json(plan, r->s.pf->q.budget.total_bytes),
                      JSON_COMPACT, d);
}

/* Writes the job with the micro-batch in use. */
static pl_err write_resolved(struct pl_run *r, struct pl_diag *d) {
    struct pl_text resolved = {0};
    struct pl_job job = *r->s.job; /* shallow */
    if (r->oom.batch_size != job.batch_size)
        pl_job_cut_step(&job, r->oom.batch_size, r->s.pf->global_batch);
    pl_job_write(&job, &resolved);
    r->resolved_is_stale = false;
    pl_err err = write_text(r, "config.resolved.yaml", &resolved, d);
    pl_text_finish(&resolved);
    return err;
}

/* Returns the measurements of the run; without `t` there are none yet. */
static json_t *measured_json(const struct pl_run *r, const struct pl_train_result *t) {
    if (!t) return NULL;
    json_t *o = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "steps", (json_int_t)t->steps_run,
        "batch_size", (json_int_t)r->s.job->batch_size, "oom_recoveries",
        (json_int_t)t->oom_recoveries, "planned_bytes", (json_int_t)t->books.planned_bytes,
        "allocated_bytes", (json_int_t)t->books.allocated_bytes, "planned_host_bytes",
        (json_int_t)t->books.planned_host_bytes, "allocated_host_bytes",
        (json_int_t)t->books.allocated_host_bytes, "process_bytes",
        (json_int_t)t->books.measured_bytes, "context_bytes", (json_int_t)t->books.context_bytes,
        "step_seconds", pl_log_real(t->pace.seconds));
    if (t->books.comm_bytes)
        pl_json_set(&o, "comm_bytes", json_integer((json_int_t)t->books.comm_bytes));
    return o;
}

pl_err pl_run_write_receipt(struct pl_run *r, const struct pl_train_result *t, struct pl_diag *d) {
    struct pl_text text = {0};
    json_t *measured = measured_json(r, t);
    if (t && !measured) return pl_host_oom(d, "receipt.json");
    pl_receipt_write(&r->s.pf->estimate, &r->s.pf->notes, measured, &text);
    pl_err err = write_text(r, "receipt.json", &text, d);
    pl_text_finish(&text);
    return err;
}

/* Adds the transport that connects this rank to others, unless it is alone on a GPU. */
static void add_comm(const struct pl_run *r, json_t **o) {
    const struct pl_budget *b = &r->s.pf->q.budget;
    if (!b->comm_bytes) return;
    pl_json_set(o, "comm_bytes", json_integer((json_int_t)b->comm_bytes));
    pl_json_set(o, "comm_predicted_bytes",
                json_integer((json_int_t)pl_nccl_bytes(r->s.pf->world.size)));
}

static json_t *ranks_json(const uint64_t planned[], uint32_t ranks) {
    json_t *list = json_array();
    for (uint32_t rank = 0; rank < ranks; rank++)
        pl_json_append(&list, json_pack("{s:I, s:I}", "rank", (json_int_t)rank, "planned_bytes",
                                        (json_int_t)planned[rank]));
    return list;
}

/* The files are those of a run that trains: a probe leaves them alone. */
pl_err pl_run_write_preflight(struct pl_run *r, struct pl_diag *d) {
    const struct pl_plan *plan = r->s.pf->estimate.planned.plan;
    uint64_t planned[PL_RANKS_MAX];
    if (r->s.comm)
        PL_TRY(pl_comm_agree(r->s.comm, &plan->arena_bytes, sizeof plan->arena_bytes, planned, d));
    if (!pl_session_leads(&r->s)) return PL_ERR_OK;
    if (!r->opt->probe_only) {
        PL_TRY(write_resolved(r, d));
        PL_TRY(write_estimate(r, d));
        PL_TRY(write_timeline(r, plan, d));
        PL_TRY(pl_run_write_receipt(r, NULL, d));
    }
    json_t *o =
        json_pack("{s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:o, s:o, s:s, s:o}",
                  "verdict", pl_verdict_name(r->s.pf->estimate.verdict.kind), "ledger",
                  pl_estimate_ledger_json(plan), "planned_bytes", (json_int_t)plan->arena_bytes,
                  "budget_bytes", (json_int_t)r->s.pf->q.budget.total_bytes, "context_bytes",
                  (json_int_t)pl_budget_own_context(&r->s.pf->q.budget), "context_predicted_bytes",
                  (json_int_t)r->s.pf->context.bytes, "context_doubt_bytes",
                  (json_int_t)r->s.pf->context.doubt_bytes, "batch_size",
                  (json_int_t)r->s.job->batch_size, "gradient_accumulation_steps",
                  (json_int_t)pl_oom_accumulation(r->s.pf->global_batch, r->s.job->batch_size),
                  "nominal_step_seconds", r->s.pf->forecast.nominal_step_seconds,
                  "predicted_step_seconds", pl_log_real(r->s.pf->forecast.step_seconds),
                  "earlier_predictions_off", pl_log_real(r->s.pf->forecast.off), "run_id",
                  r->state.run_id, "data", pl_data_files_json(r->s.pf->data.rows));
    add_comm(r, &o);
    if (r->s.comm) pl_json_set(&o, "ranks", ranks_json(planned, r->s.comm->world.size));
    return pl_log_event(r->log, "preflight", o, d);
}

pl_err pl_run_renew_resolved(struct pl_run *r, struct pl_diag *d) {
    if (!r->resolved_is_stale || !r->log || r->opt->probe_only) return PL_ERR_OK;
    PL_TRY(write_resolved(r, d));
    PL_TRY(write_timeline(r, pl_run_rung(r)->planned.plan, d));
    return write_estimate(r, d);
}

static pl_err write_loss(struct pl_run *r, struct pl_diag *d) {
    struct pl_run_log h = {0};
    struct pl_text svg = {0};
    char *log = in_output(r, "train_log.jsonl");
    if (log && pl_look_for(log) == PL_NOT_THERE) { /* somebody rotated it away */
        free(log);
        return PL_ERR_OK;
    }
    pl_err err = log ? pl_run_log_read(log, &h, d) : pl_host_oom(d, "a path");
    if (err == PL_ERR_OK) {
        const char *title = r->s.job->run_name ? r->s.job->run_name : "training loss";
        pl_svg_loss_of_run(&h, title, &svg);
        err = write_text(r, "loss.svg", &svg, d);
    }
    pl_run_log_finish(&h);
    free(log);
    pl_text_finish(&svg);
    return err;
}

pl_err pl_run_write_pictures(struct pl_run *r, uint64_t measured_bytes, struct pl_diag *d) {
    struct pl_text svg = {0};
    PL_TRY(write_loss(r, d));
    pl_svg_vram(pl_run_rung(r)->planned.plan, r->s.pf->q.budget.total_bytes,
                r->s.device->peak_bytes, measured_bytes, "memory of a step", &svg);
    pl_err err = write_text(r, "vram.svg", &svg, d);
    pl_text_finish(&svg);
    return err;
}
