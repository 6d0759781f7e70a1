/* train.c - the loop: steps, evaluation, checkpoints, the end. */
#include "runtime/train/train.h"

#include "estimator/base/json_tree.h"
#include "estimator/base/units.h"
#include "estimator/config/job_values.h"
#include "estimator/program/cost.h"
#include "runtime/checkpoint/read_file.h"
#include "runtime/merge/merge.h"
#include "runtime/session/agree.h"
#include "runtime/session/explain.h"
#include "runtime/session/measure.h"
#include "runtime/train/best.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/go_back.h"
#include "runtime/train/outcome.h"
#include "runtime/train/probe.h"
#include "runtime/train/run_open.h"
#include "runtime/train/samples.h"
#include "runtime/train/step.h"
#include "runtime/train/weights_io.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool wants(const struct pl_job *job, const char *what) {
    for (uint32_t i = 0; i < job->report_to.n; i++)
        if (strcmp(job->report_to.items[i], what) == 0) return true;
    return false;
}

static pl_err open_reports(struct pl_run *r, struct pl_diag *d) {
    if (!pl_session_leads(&r->s)) return PL_ERR_OK;
    /* A probe is no run of its own: it adds to the log of the one that is there. */
    uint64_t keep_steps = r->opt->probe_only ? UINT64_MAX : r->s.pf->files.resume_state.step;
    char *path = pl_path_join(r->s.job->output_dir, "train_log.jsonl");
    char *runs = pl_path_join(r->s.job->output_dir, "runs");
    pl_err err =
        path ? pl_log_open(path, keep_steps, r->opt->json, &r->log, d) : pl_host_oom(d, "a path");
    if (err == PL_ERR_OK) pl_log_set_stop(r->log, r->opt->stop);
    if (err == PL_ERR_OK && wants(r->s.job, "tensorboard"))
        err = runs ? pl_tensorboard_open(runs, &r->board, d) : pl_host_oom(d, "a path");
    free(runs);
    free(path);
    return err;
}

static pl_err board_step(struct pl_run *r, const struct pl_step_report *s, struct pl_diag *d) {
    const struct {
        const char *tag;
        double value;
    } rows[] = {{"train/loss", s->loss},
                {"train/grad_norm", s->grad_norm},
                {"train/learning_rate", s->learning_rate},
                {"train/tokens_per_second", s->tokens_per_second},
                {"train/loss_scale", (double)s->loss_scale}};
    const size_t n = sizeof rows / sizeof *rows - !s->loss_scale; /* the last */
    for (size_t i = 0; r->board && i < n; i++)
        PL_TRY(pl_tensorboard_scalar(r->board, rows[i].tag, s->step, rows[i].value, d));
    return pl_run_board_more(r, "train", s->step, s->more, s->n_more, d);
}

static pl_err report_step(struct pl_run *r, const struct pl_step_result *s, double seconds,
                          struct pl_diag *d) {
    struct pl_step_report report = {
        .step = s->step,
        .total_steps = r->s.pf->total_steps,
        .epoch = (double)s->position / (double)r->s.pf->data.walk.epoch_rows,
        .loss = s->loss,
        .grad_norm = s->grad_norm,
        .learning_rate = s->learning_rate,
        .tokens = s->targets,
        .computed_tokens = s->tokens,
        .samples = s->samples,
        .tokens_per_second = seconds > 0 ? (double)s->tokens / seconds : 0,
        .batch_size = s->batch_size,
        .loss_scale = s->loss_scale,
        .skipped = s->skipped,
        .device_bytes = r->s.device->used_bytes,
        .budget_bytes = r->s.device->budget_bytes};
    if (pl_job_prefers(r->s.job)) report.n_more = pl_run_list_measures(&s->measures, report.more);
    bool last = s->step == r->s.pf->total_steps;
    if (s->step % r->s.job->logging_steps == 0 || last) {
        PL_TRY(pl_log_step(r->log, &report, d));
        PL_TRY(board_step(r, &report, d));
        pl_progress_step(&r->progress, &report);
    }
    return PL_ERR_OK;
}

static bool due(uint32_t every, uint64_t step) {
    return every && step % every == 0;
}

static void add_to_pace(struct pl_run *r, const struct pl_step_cost *cost, double seconds) {
    const struct pl_speed speed = pl_speed_nominal(&r->s.pf->q.traits);
    struct pl_pace_step step = {.seconds = seconds, .timed = cost->timed};
    pl_program_step_seconds(pl_run_rung(r)->planned.program, &speed, &cost->load, step.nominal);
    memcpy(step.measured, cost->seconds, sizeof step.measured);
    pl_pace_add(&r->pace, &step);
}

/* Skips at the start look for the scale; more of them are no updates that were asked for. */
static void tell_about_skips(struct pl_run *r) {
    char line[200];
    const uint64_t skipped = r->state.skipped_steps;
    if (10 * skipped <= r->state.step) return;
    snprintf(line, sizeof line,
             "%llu of %llu steps were skipped, since gradients overflowed fp16; the loss scale is "
             "%llu now, and `loss_scale` may start there",
             (unsigned long long)skipped, (unsigned long long)r->state.step,
             (unsigned long long)r->state.loss_scale);
    pl_progress_note(&r->progress, line);
}

/* Reports finished steps until no more than `keep` wait. A step took as long as there is between
 * its report and the one before. */
static pl_err collect_steps(struct pl_run *r, uint32_t keep, double *since,
                            struct pl_train_result *out, struct pl_diag *d) {
    while (r->n_pending > keep) {
        struct pl_step_result s;
        PL_TRY(pl_run_collect(r, &s, d));
        double now = pl_session_clock();
        PL_TRY(report_step(r, &s, now - *since, d));
        if (s.step == r->schedule.warmup) tell_about_skips(r);
        add_to_pace(r, &s.cost, now - *since);
        *since = now;
        out->last_loss = s.loss;
    }
    return PL_ERR_OK;
}

/* Told once: the run is correct without graphs, only slower. */
static void tell_about_graphs(struct pl_run *r) {
    char line[160];
    if (!r->s.device->graphs.off || r->graphs_off_told) return;
    r->graphs_off_told = true;
    snprintf(line, sizeof line, "no graphs: %s; kernels are launched one by one",
             r->s.device->graphs.off);
    pl_progress_note(&r->progress, line);
}

/* A run that ends here for lack of a better evaluation has a checkpoint of its end like any other
 * run, so that the same command finds it ended. */
static pl_err evaluate(struct pl_run *r, bool *save, struct pl_evaluation *out, struct pl_diag *d) {
    PL_TRY(pl_run_evaluate(r, out, d));
    pl_run_weigh(r, out);
    if (pl_run_has_stalled(r) && r->s.job->save_steps) *save = true;
    if (*save) pl_run_weigh_saved(r, out);
    return PL_ERR_OK;
}

/* Whatever looks at the weights waits for all steps; a signal does, since a checkpoint follows. */
static pl_err one_step(struct pl_run *r, double *since, struct pl_train_result *out,
                       struct pl_diag *d) {
    PL_TRY(pl_run_step(r, d));
    if (r->lost) return pl_run_go_back(r, d);
    tell_about_graphs(r);
    /* ranks end together: after the step in which they agreed on it */
    out->stopped_by = r->s.comm ? r->stop : r->opt->stop ? (int)*r->opt->stop : 0;
    const uint32_t save_steps = r->s.job->save_steps;
    bool last = r->state.step == r->s.pf->total_steps;
    bool eval = due(r->s.job->eval_steps, r->state.step) || last;
    bool save = due(save_steps, r->state.step) || (last && save_steps) || out->stopped_by;
    PL_TRY(collect_steps(r, eval || save ? 0 : pl_run_lag(r), since, out, d));
    if (eval) PL_TRY(evaluate(r, &save, &out->evaluation, d));
    if (eval) PL_TRY(pl_run_sample(r, d));
    if (save || last) PL_TRY(pl_run_renew_resolved(r, d));
    if (save) PL_TRY(pl_run_checkpoint(r, d));
    if (eval || save) *since = pl_session_clock();
    return PL_ERR_OK;
}

static pl_err steps(struct pl_run *r, struct pl_train_result *out, struct pl_diag *d) {
    double since = pl_session_clock();
    while (r->state.step < r->s.pf->total_steps && !pl_run_has_stalled(r)) {
        pl_err err = one_step(r, &since, out, d);
        if (err != PL_ERR_OK) pl_run_rescue(r, err, d);
        if (err != PL_ERR_OK) return err;
        if (out->stopped_by)
            return pl_diag_set(d, PL_ERR_INTERRUPTED, "stopped by signal %d after step %llu, saved",
                               out->stopped_by, (unsigned long long)r->state.step);
    }
    return PL_ERR_OK;
}

static pl_err summarise(struct pl_run *r, const struct pl_train_result *t, struct pl_diag *d) {
    const struct pl_graph_books *g = &r->s.device->graphs;
    const struct pl_evaluation *e = &t->evaluation;
    const struct pl_best_model *b = &t->best;
    json_t *o = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I}",
        "steps", (json_int_t)t->steps, "planned_host_bytes",
        (json_int_t)t->books.planned_host_bytes, "allocated_host_bytes",
        (json_int_t)t->books.allocated_host_bytes, "planned_peak_bytes",
        (json_int_t)t->books.planned_bytes, "allocated_peak_bytes",
        (json_int_t)t->books.allocated_bytes, "measured_peak_bytes",
        (json_int_t)t->books.measured_bytes, "predicted_process_bytes",
        (json_int_t)t->books.predicted_bytes, "context_bytes", (json_int_t)t->books.context_bytes,
        "tokens_per_second", pl_log_real(t->tokens_per_second), "wall_seconds",
        pl_log_real(t->wall_seconds), "data_wait_seconds", pl_log_real(t->data_wait_seconds),
        "predicted_step_seconds", pl_log_real(r->s.pf->forecast.step_seconds),
        "measured_step_seconds", pl_log_real(t->pace.seconds), "oom_recoveries",
        (json_int_t)t->oom_recoveries, "graphs", (json_int_t)g->made, "graph_replays",
        (json_int_t)g->replays, "graph_bytes", (json_int_t)g->peak_bytes);
    if (r->s.pf->data.n_eval) {
        pl_json_set(&o, "eval_loss", pl_log_real(e->loss));
        pl_json_set(&o, "eval_accuracy", pl_log_real(e->accuracy));
        pl_json_set(&o, "eval_perplexity", pl_log_real(e->perplexity));
    }
    if (b->step)
        pl_json_set(&o, "best",
                    json_pack("{s:I, s:s, s:o, s:b}", "step", (json_int_t)b->step, "metric",
                              b->metric, "value", pl_log_real(b->value), "saved", b->is_saved));
    if (t->stopped_early) pl_json_set(&o, "stopped_early", json_true());
    if (r->state.loss_scale)
        pl_json_set(&o, "skipped_steps", json_integer((json_int_t)r->state.skipped_steps));
    return pl_log_event(r->log, "summary", o, d);
}

static pl_err tell_profile(struct pl_run *r, struct pl_diag *d) {
    struct pl_text text = {0};
    if (!r->opt->profile) return PL_ERR_OK;
    pl_profile_text(&r->profile, &text);
    bool whole = !text.failed;
    if (whole) fputs(pl_text_str(&text), r->opt->messages);
    pl_text_finish(&text);
    if (!whole) return pl_host_oom(d, "the table of operations");
    return pl_log_event(r->log, "profile",
                        json_pack("{s:I, s:o}", "steps", (json_int_t)r->profile.timed, "ops",
                                  pl_profile_json(&r->profile)),
                        d);
}

static json_t *rank_json(uint32_t rank, const struct pl_rank_tally *t) {
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "rank", (json_int_t)rank,
                     "planned_bytes", (json_int_t)t->planned_bytes, "allocated_bytes",
                     (json_int_t)t->allocated_bytes, "sent_bytes", (json_int_t)t->sent_bytes,
                     "comm_bytes", (json_int_t)t->comm_bytes, "registered_bytes",
                     (json_int_t)t->registered_bytes, "wait_seconds", pl_log_real(t->wait_seconds));
}

/* Logs the memory of every rank, in the log of rank 0. */
static pl_err log_ranks(struct pl_run *r, const struct pl_train_result *t, struct pl_diag *d) {
    struct pl_rank_tally all[PL_RANKS_MAX];
    if (!r->s.comm) return PL_ERR_OK;
    PL_TRY(pl_session_tally(&r->s, &t->books, all, d));
    if (!r->log) return PL_ERR_OK;
    json_t *list = json_array();
    for (uint32_t i = 0; i < r->s.comm->world.size; i++)
        pl_json_append(&list, rank_json(i, &all[i]));
    return pl_log_event(r->log, "ranks", json_pack("{s:o}", "ranks", list), d);
}

/* Rank 0 has saved everything where the run is whole: a rank that is lost then costs only what it
 * would have told of itself. */
static pl_err log_all_ranks(struct pl_run *r, const struct pl_train_result *t, bool is_whole,
                            struct pl_diag *d) {
    struct pl_diag loss = {0};
    char line[sizeof loss.message + 64];
    pl_err err = log_ranks(r, t, &loss);
    if (err == PL_ERR_COMM_PEER_LOST && is_whole && pl_session_leads(&r->s)) {
        snprintf(line, sizeof line, "warning: %s; everything was saved before", loss.message);
        pl_progress_note(&r->progress, line);
        return PL_ERR_OK;
    }
    if (err != PL_ERR_OK && d && d->err == PL_ERR_OK) *d = loss;
    return err;
}

static pl_err run_all(struct pl_run *r, struct pl_train_result *out, struct pl_diag *d) {
    pl_progress_init(&r->progress, r->opt->messages, r->opt->quiet,
                     r->s.pf->files.resume_state.step);
    r->progress.notes_alone = r->opt->no_progress;
    r->progress.colour = r->opt->colour;
    PL_TRY(pl_run_reserve(r, d));
    PL_TRY(pl_run_load(r, d));
    const bool leads = pl_session_leads(&r->s);
    PL_TRY(pl_run_write_preflight(r, d));
    if (r->s.job->probe_steps || r->opt->probe_only) {
        PL_TRY(pl_run_probe(r, out, d));
        if (r->opt->probe_only) return PL_ERR_OK;
        PL_TRY(pl_run_load(r, d));
    }
    double before = pl_session_clock();
    pl_err err = steps(r, out, d);
    double seconds = pl_session_clock() - before;
    out->tokens_per_second = seconds > 0 ? (double)r->tokens_computed / seconds : 0;
    pl_progress_end(&r->progress);
    if (err != PL_ERR_OK && err != PL_ERR_INTERRUPTED) return err;
    /* First of all: nothing that follows is worth the weights. */
    if (err == PL_ERR_OK) PL_TRY(pl_run_take_best(r, out, d));
    if (err == PL_ERR_OK) PL_TRY(pl_run_save_final(r, d));
    PL_TRY(pl_run_check_books(r, out, d));
    PL_TRY(log_all_ranks(r, out, err == PL_ERR_OK, d));
    if (!leads) return err;
    if (pl_pace_median(&r->pace, &out->pace)) pl_speed_remember(r->s.pf, &out->pace);
    PL_TRY(tell_profile(r, d));
    PL_TRY(pl_run_write_pictures(r, out->books.measured_bytes, d));
    PL_TRY(pl_run_write_receipt(r, out, d));
    PL_TRY(summarise(r, out, d));
    return err;
}

/* The adapter that was just saved, into the base it was trained on: a plan of its own, in the
 * machine's memory, once the run has given its arenas back. */
static pl_err save_merged(const struct pl_preflight *pf, const struct pl_train_options *opt,
                          struct pl_diag *d) {
    struct pl_merge m = {0};
    char bytes[PL_BYTES_TEXT];
    bool on_cpu = pf->q.traits.backend == PL_BACKEND_CPU;
    char *path = pl_path_join(pf->job->output_dir, "merged");
    if (!path) return pl_host_oom(d, "a path");
    const struct pl_merge_request request = {.model = pf->files.model_dir,
                                             .adapter = pf->job->output_dir,
                                             .output = path,
                                             .replace = true,
                                             .dtype = PL_DTYPE_COUNT,
                                             .budget_bytes =
                                                 on_cpu ? pl_budget_usable(&pf->q.budget) : 0,
                                             .stop = opt->stop};
    pl_err err = pl_merge_init(&m, &request, d);
    if (err == PL_ERR_OK) err = pl_merge_run(&m, d);
    if (err == PL_ERR_OK && !opt->quiet)
        fprintf(opt->messages, "merged into %s: planned %s, allocated the same\n", path,
                pl_bytes_text(m.planned.plan->arena_bytes, bytes));
    pl_merge_finish(&m);
    free(path);
    return err;
}

/* An op that failed knows not which rank it waited for. */
static void name_lost_rank(struct pl_comm *comm, struct pl_diag *d) {
    struct pl_diag loss = {0};
    if (!d || pl_comm_check(comm, &loss) == PL_ERR_OK) return;
    memcpy(d->message, loss.message, sizeof d->message);
    d->cause = loss.cause;
}

/* Ranks that agreed to stop end as those that are done; the others are told why this one ends. */
static void tell_ranks(struct pl_run *r, const struct pl_preflight *pf, pl_err err,
                       struct pl_diag *d) {
    const bool agreed = err == PL_ERR_INTERRUPTED && r->stop;
    struct pl_comm *comm = r->s.comm ? r->s.comm : pf->comm; /* the session did not open */
    if (!comm || err == PL_ERR_OK || agreed) return;
    if (err == PL_ERR_COMM_PEER_LOST) name_lost_rank(comm, d);
    /* every rank finds these errors once they are connected, before the first step */
    if (err == PL_ERR_COMM_MISMATCH || err == PL_ERR_DOES_NOT_FIT)
        pl_comm_refuse(comm, err, d);
    else
        pl_comm_fail(comm, err, d ? d->message : "");
}

/* The log has the error as well: srun may drop what a process prints at its end where another task
 * was killed. A log that cannot be written must not replace the error that it would have told. */
static void log_failure(struct pl_run *r, pl_err err, const struct pl_diag *d) {
    if (!d || err == PL_ERR_OK || err == PL_ERR_INTERRUPTED) return;
    (void)pl_log_event(r->log, "error",
                       json_pack("{s:s, s:o, s:o}", "code", pl_err_code(err), "message",
                                 pl_json_string(d->message), "hint",
                                 pl_json_string(pl_diag_hint_text(d))),
                       NULL);
}

pl_err pl_train(struct pl_preflight *pf, const struct pl_train_options *opt,
                struct pl_train_result *out, struct pl_diag *d) {
    struct pl_run run;
    *out = (struct pl_train_result){0};
    pl_err err = pl_run_open(&run, pf, opt, d);
    if (err == PL_ERR_OK) err = open_reports(&run, d);
    if (err == PL_ERR_OK) err = run_all(&run, out, d);
    if (err == PL_ERR_GPU_OOM) pl_session_explain_oom(&run.s);
    tell_ranks(&run, pf, err, d);
    log_failure(&run, err, d);
    if (err != PL_ERR_OK && run.state.step > pf->files.resume_state.step)
        out->steps_run = run.state.step - pf->files.resume_state.step;
    pl_run_close(&run);
    if (err == PL_ERR_OK && pf->job->save_merged && !opt->probe_only && pf->world.rank == 0) {
        err = save_merged(pf, opt, d);
        if (err == PL_ERR_INTERRUPTED) out->stopped_by = (int)*opt->stop;
    }
    return err;
}
