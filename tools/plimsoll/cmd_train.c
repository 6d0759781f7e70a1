/* cmd_train.c - `plimsoll train`: read, pre-flight, train, say what happened. */
#include "tools/plimsoll/cli.h"

#include "estimator/base/checked.h"
#include "estimator/base/units.h"
#include "estimator/config/job_text.h"
#include "estimator/inquiry/answer.h"
#include "estimator/config/job_values.h"
#include "estimator/config/validate.h"
#include "runtime/admit/device_choice.h"
#include "runtime/comm/launch.h"
#include "runtime/data/summary.h"
#include "runtime/train/train.h"

#include <stdlib.h>

pl_err pl_cli_print_estimate(const struct pl_cli *cli, const struct pl_estimate *e, FILE *out,
                             struct pl_diag *d) {
    struct pl_text text = {0};
    pl_estimate_text(e, pl_cli_colour(cli, out), pl_cli_columns(out), &text);
    return pl_cli_put_text(&text, out, d);
}

/* Nothing where no earlier run of this kind was measured here. */
static void print_forecast(const struct pl_preflight *pf, FILE *out) {
    const struct pl_forecast *f = &pf->forecast;
    char params[PL_COUNT_TEXT];
    uint64_t left = pf->total_steps - pl_u64_min(pf->total_steps, pf->files.resume_state.step);
    double seconds = f->step_seconds * (double)left;
    if (f->ratio == 0) return;
    fprintf(out,
            "  predicted: %.3g s a step, %.3g %s for the steps of the run (by an earlier run here, "
            "of %s parameters",
            f->step_seconds, seconds < 120 ? seconds : seconds / 60, seconds < 120 ? "s" : "min",
            pl_count_text(f->params, params));
    if (f->judged == 1) fprintf(out, "; the last forecast was %.0f %% off", 100 * f->off);
    if (f->judged > 1)
        fprintf(out, "; the last %u were %.0f %% off, at most %.0f %%", f->judged, 100 * f->off,
                100 * f->most_off);
    fputs(")\n", out);
}

static void print_pace(const struct pl_forecast *f, const struct pl_train_result *r, FILE *out) {
    if (!r->pace.steps) return;
    if (f->ratio > 0) fprintf(out, "predicted %.3g s a step, ", f->step_seconds);
    fprintf(out, "measured %.3g s a step, median of %llu\n", r->pace.seconds,
            (unsigned long long)r->pace.steps);
}

static pl_err print_data(const struct pl_preflight *pf, FILE *out, struct pl_diag *d) {
    struct pl_text text = {0}, safe = {0};
    pl_data_write_files(pf->data.rows, &text);
    if (pf->data.eval && pf->data.eval != pf->data.rows) pl_data_write_files(pf->data.eval, &text);
    pl_cli_add_safe_lines(&safe, &text);
    pl_text_finish(&text);
    return pl_cli_put_text(&safe, out, d);
}

/* Packed steps hold as many rows as fit. */
static void print_short_step(const struct pl_preflight *pf, FILE *out) {
    const uint64_t rows = pf->data.walk.epoch_rows % pf->global_batch;
    if (pf->data.walk.circle || pf->data.source.pack_tokens || !rows) return;
    fprintf(out, " (%llu in the last of an epoch)", (unsigned long long)rows);
}

static pl_err print_batch(const struct pl_preflight *pf, FILE *out, struct pl_diag *d) {
    char next[PL_BYTES_TEXT];
    const struct pl_job *job = pf->job;
    PL_TRY(print_data(pf, out, d));
    fprintf(out, "  batch: %u x %u tokens", job->batch_size, job->max_seq_length);
    if (pf->batch_was_auto && pf->search.batch_size == job->batch_size && pf->search.next_bytes)
        fprintf(out, " (auto: the largest that fits; the next tried needs %s)",
                pl_bytes_text(pf->search.next_bytes, next));
    else if (pf->batch_was_auto)
        fprintf(out, " (auto%s)",
                pf->files.resume_path ? ": as in the checkpoint" : ": no larger one is needed");
    fprintf(out, ", %llu sample%s a step", (unsigned long long)pf->global_batch,
            pf->global_batch == 1 ? "" : "s");
    print_short_step(pf, out);
    fprintf(out, ", %llu step%s\n", (unsigned long long)pf->total_steps,
            pf->total_steps == 1 ? "" : "s");
    print_forecast(pf, out);
    if (!pf->files.resume_path) return PL_ERR_OK;
    fputs("  resuming from ", out);
    pl_cli_put_safe(out, pf->files.resume_path);
    fprintf(out, " after step %llu\n", (unsigned long long)pf->files.resume_state.step);
    return PL_ERR_OK;
}

static void print_evaluation(const struct pl_evaluation *e, FILE *out) {
    if (!e->tokens) return;
    fprintf(out, "evaluation: loss %.4f, accuracy %.2f %%, perplexity %.4g, of %llu tokens\n",
            e->loss, 100 * e->accuracy, e->perplexity, (unsigned long long)e->tokens);
}

static void print_end(const struct pl_train_result *r, FILE *out) {
    const struct pl_best_model *b = &r->best;
    if (r->stopped_early)
        fprintf(out, "stopped early after step %llu: evaluations did not become better\n",
                (unsigned long long)r->steps);
    if (b->is_saved)
        fprintf(out, "the saved model is that of step %llu: evaluation %s %.6g, the best one\n",
                (unsigned long long)b->step, b->metric, b->value);
    else if (b->step)
        fprintf(out, "the best model, of step %llu, is gone: the saved one is that of step %llu\n",
                (unsigned long long)b->step, (unsigned long long)r->steps);
}

static void print_summary(const struct pl_preflight *pf, const struct pl_train_result *r,
                          FILE *out) {
    const struct pl_job *job = pf->job;
    char planned[PL_BYTES_TEXT], allocated[PL_BYTES_TEXT], measured[PL_BYTES_TEXT];
    if (r->steps_run) {
        fprintf(out, "%llu steps in %.1f s, %.0f tokens/s, loss %.4f\n",
                (unsigned long long)r->steps_run, r->wall_seconds, r->tokens_per_second,
                r->last_loss);
    } else {
        fputs("nothing was left to train: ", out);
        pl_cli_put_safe(out, job->output_dir);
        fprintf(out,
                " holds step %llu, the last; `resume: never` or another output_dir starts over\n",
                (unsigned long long)r->steps);
    }
    print_evaluation(&r->evaluation, out);
    print_end(r, out);
    print_pace(&pf->forecast, r, out);
    bool on_gpu = pl_device_is_cuda(job->device);
    fprintf(out, "planned %s, allocated %s (%s), measured %s %s\n",
            pl_bytes_text(r->books.planned_bytes, planned),
            pl_bytes_text(r->books.allocated_bytes, allocated),
            r->books.planned_bytes == r->books.allocated_bytes ? "equal to the byte" : "DIFFERENT",
            pl_bytes_text(r->books.measured_bytes, measured),
            on_gpu ? "on the GPU in the whole process" : "resident in the whole process");
    if (on_gpu)
        fprintf(out,
                "predicted before CUDA was initialised: %s in the whole process, measured %s; of "
                "them context %s\n",
                pl_bytes_text(r->books.predicted_bytes, planned),
                pl_bytes_text(r->books.measured_bytes, measured),
                pl_bytes_text(r->books.context_bytes, allocated));
    if (r->oom_recoveries) fprintf(out, "%u recoveries from out of memory\n", r->oom_recoveries);
    fputs("saved in ", out);
    pl_cli_put_safe(out, job->output_dir);
    fputs("; pictures: loss.svg and vram.svg in it\n", out);
}

static int print_dry_run(const struct pl_cli *cli, const struct pl_preflight *pf) {
    struct pl_diag d = {0};
    if (pl_cli_has(cli, PL_FLAG_JSON)) {
        json_t *o =
            pf->notes.failed ? NULL : pl_answer_json(&pf->estimate, pl_text_str(&pf->notes));
        if (pl_cli_print_json(o, &d) != PL_ERR_OK) return pl_cli_fail(cli, &d);
        return 0;
    }
    if (pl_cli_print_estimate(cli, &pf->estimate, stdout, &d) != PL_ERR_OK)
        return pl_cli_fail(cli, &d);
    return print_batch(pf, stdout, &d) == PL_ERR_OK ? 0 : pl_cli_fail(cli, &d);
}

/* steps_run: of this run; a checkpoint that it resumed counts as well. */
static int fail_train(const struct pl_cli *cli, const struct pl_preflight *pf, uint64_t steps_run,
                      const struct pl_diag *d) {
    const bool trained = pf->files.resume_state.step + steps_run > 0;
    if (d->err == PL_ERR_COMM_PEER_LOST) return pl_cli_fail_for_peer(cli, d, trained);
    if (d->cause == d->err) return pl_cli_fail_in_short(cli, d, pf->world.rank);
    return pl_cli_fail(cli, d);
}

static int run_job(const struct pl_cli *cli, struct pl_preflight *pf) {
    struct pl_diag d = {0};
    struct pl_train_result result;
    const bool leads = pf->world.rank == 0, quiet = pl_cli_has(cli, PL_FLAG_QUIET) || !leads;
    const bool json = pl_cli_has(cli, PL_FLAG_JSON) && leads;
    const struct pl_train_options options = {.messages = stderr,
                                             .json = json ? stdout : NULL,
                                             .quiet = quiet,
                                             .no_progress = pl_cli_has(cli, PL_FLAG_NO_PROGRESS),
                                             .colour = pl_cli_colour(cli, stderr),
                                             .probe_only = pl_cli_has(cli, PL_FLAG_PROBE),
                                             .profile = pl_cli_has(cli, PL_FLAG_PROFILE),
                                             .stop = pl_cli_catch_signals()};
    pl_cli_outlive_readers();
    pl_err err = pl_train(pf, &options, &result, &d);
    if (err == PL_ERR_OK && !quiet && !options.probe_only) print_summary(pf, &result, stderr);
    if (err == PL_ERR_OK) return 0;
    int status = fail_train(cli, pf, result.steps_run, &d);
    return err == PL_ERR_INTERRUPTED ? 128 + result.stopped_by : status;
}

/* Shows how far the data are read, before the first step. */
static struct pl_progress reading_progress(const struct pl_cli *cli) {
    struct pl_progress progress;
    pl_progress_init(&progress, stderr, pl_cli_has(cli, PL_FLAG_QUIET), 0);
    progress.notes_alone = pl_cli_has(cli, PL_FLAG_NO_PROGRESS);
    return progress;
}

static void tell_note(void *cli, const char *line) {
    struct pl_text notes = {0};
    pl_text_addf(&notes, "%s\n", line);
    pl_cli_print_notes(cli, &notes);
    pl_text_finish(&notes);
}

static int preflight_and_run(const struct pl_cli *cli, const struct pl_world *world,
                             const struct pl_job *job, uint32_t devices, struct pl_text *notes) {
    struct pl_diag d = {0};
    struct pl_preflight pf;
    struct pl_progress progress = reading_progress(cli);
    struct pl_cli own = *cli;
    const struct pl_teller teller = {tell_note, &own};
    const bool leads = world->rank == 0, quiet = pl_cli_has(cli, PL_FLAG_QUIET) || !leads;
    bool dry = pl_cli_has(cli, PL_FLAG_DRY_RUN);
    const struct pl_admission how = {.makes_output = !dry && leads,
                                     .judges_output = !pl_cli_has(cli, PL_FLAG_PROBE) && leads,
                                     .needs_weights = !dry,
                                     .progress = leads ? &progress : NULL,
                                     .teller = &teller,
                                     .world = world,
                                     .devices = devices};
    int status = 0;
    pl_err err = pl_preflight_init(&pf, job, &how, &d);
    if (leads) pl_cli_print_notes(cli, notes);
    if (leads) pl_cli_print_notes(cli, &pf.notes);
    bool shown = err == PL_ERR_OK || pf.too_large;
    if (pf.estimate.planned.plan && shown && !quiet && !(dry && err == PL_ERR_OK)) {
        pl_err said = pl_cli_print_estimate(cli, &pf.estimate, stderr, &d);
        if (err == PL_ERR_OK) err = said;
        if (err == PL_ERR_OK) err = print_batch(&pf, stderr, &d);
    }
    if (err != PL_ERR_OK)
        status = fail_train(cli, &pf, 0, &d);
    else
        status = dry ? print_dry_run(cli, &pf) : run_job(cli, &pf);
    pl_preflight_finish(&pf);
    return status;
}

/* --- several ranks on this machine ------------------------------------------------------------ */

/* Also true of one process that a launcher started, such as a shell of `srun --pty`. */
static bool is_alone(const struct pl_world *world) {
    return world->size == 1;
}

/* Reports the rank that a signal ended, which could not do so itself. */
static void tell_fallen(const struct pl_fallen *f) {
    if (!f->signal) return;
    fprintf(stderr, "plimsoll: %srank %u was ", f->is_whole ? "warning: " : "", f->rank);
    if (f->was_stopped)
        fputs("stopped, and did not end with the others: it was killed", stderr);
    else
        fprintf(stderr, "ended by signal %d", f->signal);
    fputs(f->is_whole ? "; rank 0 had saved everything, and the run is complete\n" : "\n", stderr);
}

/* The same command, once a rank. Each decides `device: auto` for itself; here it says how they
 * reach each other, and whether there are enough devices. */
static int launch(const struct pl_cli *cli, const struct pl_job *job, uint32_t ranks) {
    struct pl_diag d = {0};
    struct pl_gpu gpu;
    struct pl_spec spec;
    const struct pl_world all = {.size = ranks, .local_size = ranks};
    struct pl_fallen fallen = {0};
    int status = 0;
    pl_spec_init(&spec, job);
    spec.facts.devices = ranks;
    pl_err err = pl_device_decide(job, &all, &spec.facts.device, &gpu, &d);
    pl_resolve(&spec);
    if (err == PL_ERR_OK) err = pl_job_check_comm(&spec.job, &d);
    const struct pl_launch l = {.ranks = ranks,
                                .timeout_seconds = job->comm_timeout_seconds,
                                .mpi = !pl_device_is_cuda(spec.job.device),
                                .argv = cli->argv,
                                .fallen = &fallen,
                                .signalled = pl_cli_catch_signals()};
    if (err == PL_ERR_OK) err = pl_launch(&l, &status, &d);
    tell_fallen(&fallen);
    return err == PL_ERR_OK ? status : pl_cli_fail(cli, &d);
}

/* A launcher of several ranks has decided how many there are: none are counted then. */
static pl_err count_ranks(const struct pl_cli *cli, const struct pl_world *world,
                          const struct pl_job *job, uint32_t *devices, struct pl_diag *d) {
    struct pl_text notes = {0};
    *devices = 0;
    if (!is_alone(world)) return PL_ERR_OK;
    pl_err err = pl_preflight_count_ranks(job, devices, &notes, d);
    pl_cli_print_notes(cli, &notes);
    pl_text_finish(&notes);
    return err;
}

/* A job has one answer as JSON, that of rank 0, which knows what any other ended by. */
int pl_cmd_train(const struct pl_cli *cli) {
    struct pl_job job = {0};
    struct pl_diag_list all = {0};
    struct pl_diag d = {.all = &all};
    struct pl_text notes = {0};
    struct pl_world world;
    uint32_t devices;
    int status;
    struct pl_cli own = *cli;
    pl_err err = pl_world_init(&world, &d);
    if (world.rank > 0) own.flag[PL_FLAG_JSON] = NULL;
    if (err == PL_ERR_OK)
        err =
            pl_job_read_to_train(&job, cli->args[0], cli->overrides, cli->n_overrides, &notes, &d);
    if (err == PL_ERR_OK) err = count_ranks(&own, &world, &job, &devices, &d);
    if (err != PL_ERR_OK && world.rank > 0) /* rank 0 reads the same */
        status = pl_cli_fail_in_short(&own, &d, world.rank);
    else if (err != PL_ERR_OK)
        status = pl_cli_fail(&own, &d);
    else if (devices > 1 && is_alone(&world) && !pl_cli_has(cli, PL_FLAG_DRY_RUN))
        status = launch(&own, &job, devices);
    else
        status = preflight_and_run(&own, &world, &job, devices, &notes);
    pl_text_finish(&notes);
    pl_job_finish(&job);
    return status;
}

int pl_cmd_validate(const struct pl_cli *cli) {
    struct pl_job job = {0};
    struct pl_diag_list all = {0};
    struct pl_diag d = {.all = &all};
    struct pl_text notes = {0};
    struct pl_preflight pf = {0};
    struct pl_progress progress = reading_progress(cli);
    struct pl_admission how = {.judges_output = true, .needs_weights = true, .progress = &progress};
    int status = 0;
    pl_err err =
        pl_job_read_to_train(&job, cli->args[0], cli->overrides, cli->n_overrides, &notes, &d);
    if (err == PL_ERR_OK) err = pl_preflight_count_ranks(&job, &how.devices, &notes, &d);
    if (err == PL_ERR_OK) err = pl_preflight_init(&pf, &job, &how, &d);
    pl_cli_print_notes(cli, &notes);
    pl_cli_print_notes(cli, &pf.notes);
    if (err != PL_ERR_OK) {
        status = pl_cli_fail(cli, &d);
    } else {
        const struct pl_data_stats *s = pl_data_stats(pf.data.rows);
        json_t *o =
            json_pack("{s:s, s:I, s:I, s:I, s:s}", "config", cli->args[0], "rows",
                      (json_int_t)s->rows, "tokens", (json_int_t)s->tokens, "longest",
                      (json_int_t)s->longest, "verdict", pl_verdict_name(pf.estimate.verdict.kind));
        if (!pl_cli_has(cli, PL_FLAG_JSON)) {
            pl_cli_put_safe(stdout, cli->args[0]);
            printf(" is well-formed: %llu rows, %llu tokens, longest %llu; verdict: %s\n",
                   (unsigned long long)s->rows, (unsigned long long)s->tokens,
                   (unsigned long long)s->longest, pl_verdict_name(pf.estimate.verdict.kind));
            json_decref(o);
        } else if (pl_cli_print_json(o, &d) != PL_ERR_OK) {
            status = pl_cli_fail(cli, &d);
        }
    }
    pl_preflight_finish(&pf);
    pl_text_finish(&notes);
    pl_job_finish(&job);
    return status;
}
