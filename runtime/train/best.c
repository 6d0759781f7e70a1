#include "runtime/train/best.h"

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/session/agree.h"
#include "runtime/session/load.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- the figure that is compared ---------------------------------------------------------------
 */

static const char *const metric_names[] = {[PL_METRIC_LOSS] = "loss",
                                           [PL_METRIC_ACCURACY] = "accuracy",
                                           [PL_METRIC_PERPLEXITY] = "perplexity"};

static double figure_of(const struct pl_evaluation *e, uint32_t metric) {
    const double figures[] = {[PL_METRIC_LOSS] = e->loss,
                              [PL_METRIC_ACCURACY] = e->accuracy,
                              [PL_METRIC_PERPLEXITY] = e->perplexity};
    return figures[metric];
}

static bool is_better(uint32_t metric, double a, double b) {
    if (!isfinite(a)) return false;
    return metric == PL_METRIC_ACCURACY ? a > b : a < b;
}

static double worst(uint32_t metric) {
    return metric == PL_METRIC_ACCURACY ? -INFINITY : INFINITY;
}

/* Counters hold a figure bit for bit. */
static double from_bits(uint64_t bits) {
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static uint64_t to_bits(double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

/* --- counting ----------------------------------------------------------------------------------
 */

void pl_run_restore_best(struct pl_run *r, const struct pl_run_state *then) {
    r->state.best_of = then->best_of;
    r->state.best_seen = then->best_seen;
    r->state.best_saved = then->best_saved;
    r->state.best_step = then->best_step;
    r->state.evaluations_in_vain = then->evaluations_in_vain;
}

static pl_err best_is_there(const struct pl_run *r, bool *out, struct pl_diag *d) {
    char *path = pl_checkpoint_path(r->s.job->output_dir, r->state.best_step);
    if (!path) return pl_host_oom(d, "a path");
    pl_err err = pl_run_record_exists(path, out, d);
    free(path);
    return err;
}

/* The best checkpoint of a run that resumes in another directory stays where it is. */
static pl_err drop_absent(struct pl_run *r, struct pl_diag *d) {
    char line[200];
    bool there = true;
    if (!r->state.best_step || !r->s.job->load_best_model_at_end || !pl_session_leads(&r->s))
        return PL_ERR_OK;
    PL_TRY(best_is_there(r, &there, d));
    if (there) return PL_ERR_OK;
    snprintf(line, sizeof line,
             "warning: checkpoint-%llu, the best one so far, is not in output_dir: the best model "
             "is looked for from here on",
             (unsigned long long)r->state.best_step);
    pl_progress_note(&r->progress, line);
    r->state.best_step = 0;
    r->state.best_saved = to_bits(worst(r->state.best_of - 1));
    return PL_ERR_OK;
}

pl_err pl_run_init_best(struct pl_run *r, const struct pl_run_state *then, struct pl_diag *d) {
    const uint32_t metric = r->s.job->metric_for_best_model;
    const uint64_t none = to_bits(worst(metric));
    if (!r->s.job->load_best_model_at_end && !r->s.job->early_stopping_patience) return PL_ERR_OK;
    if (then->best_of == metric + 1) {
        pl_run_restore_best(r, then);
        return drop_absent(r, d);
    }
    r->state.best_of = metric + 1;
    r->state.best_seen = r->state.best_saved = none;
    return PL_ERR_OK;
}

void pl_run_weigh(struct pl_run *r, const struct pl_evaluation *e) {
    struct pl_run_state *s = &r->state;
    if (!s->best_of) return;
    const double now = figure_of(e, s->best_of - 1), best = from_bits(s->best_seen);
    const bool better = is_better(s->best_of - 1, now, best);
    if (better && fabs(now - best) > r->s.job->early_stopping_threshold)
        s->evaluations_in_vain = 0;
    else
        s->evaluations_in_vain++;
    if (better) s->best_seen = to_bits(now);
}

void pl_run_weigh_saved(struct pl_run *r, const struct pl_evaluation *e) {
    struct pl_run_state *s = &r->state;
    if (!s->best_of) return;
    const double now = figure_of(e, s->best_of - 1);
    if (!is_better(s->best_of - 1, now, from_bits(s->best_saved))) return;
    s->best_saved = to_bits(now);
    s->best_step = s->step;
}

bool pl_run_has_stalled(const struct pl_run *r) {
    const uint32_t patience = r->s.job->early_stopping_patience;
    return patience && r->state.evaluations_in_vain >= patience;
}

uint64_t pl_run_best_step(const struct pl_run *r) {
    return r->s.job->load_best_model_at_end ? r->state.best_step : 0;
}

/* --- the end of the steps ----------------------------------------------------------------------
 */

static pl_err tell_stop(struct pl_run *r, struct pl_diag *d) {
    char line[200];
    const uint64_t vain = r->state.evaluations_in_vain;
    snprintf(line, sizeof line,
             "stopped early after step %llu: %llu evaluation%s in a row without a better %s",
             (unsigned long long)r->state.step, (unsigned long long)vain, vain == 1 ? "" : "s",
             metric_names[r->state.best_of - 1]);
    pl_progress_note(&r->progress, line);
    return pl_log_event(
        r->log, "early_stop",
        json_pack("{s:I, s:I}", "step", (json_int_t)r->state.step, "evaluations", (json_int_t)vain),
        d);
}

static pl_err tell_best(struct pl_run *r, const struct pl_best_model *best, struct pl_diag *d) {
    char line[200];
    if (best->is_saved)
        snprintf(line, sizeof line,
                 "the model of step %llu is saved: evaluation %s %.6g, the best one",
                 (unsigned long long)best->step, best->metric, best->value);
    else
        snprintf(line, sizeof line,
                 "warning: checkpoint-%llu, the best one, is gone: the model of step %llu is saved",
                 (unsigned long long)best->step, (unsigned long long)r->state.step);
    pl_progress_note(&r->progress, line);
    return pl_log_event(r->log, "best",
                        json_pack("{s:I, s:I, s:s, s:o, s:b}", "step", (json_int_t)r->state.step,
                                  "best_step", (json_int_t)best->step, "metric", best->metric,
                                  "value", pl_log_real(best->value), "saved", best->is_saved),
                        d);
}

/* If every rank has parts of the weights, each reads them; else those of rank 0 are the ones that
 * are saved. */
static bool reads(const struct pl_run *r) {
    return r->s.cut.whole || pl_session_leads(&r->s);
}

static pl_err load_best(struct pl_run *r, struct pl_diag *d) {
    const struct pl_tensor_io io = pl_session_io(&r->s, PL_PHASE_LOAD);
    char *path = pl_checkpoint_path(r->s.job->output_dir, r->state.best_step);
    if (!path) return pl_host_oom(d, "a path");
    pl_err err = pl_checkpoint_load(&io, path, d);
    free(path);
    return err;
}

/* Ranks agree on whether all that need the checkpoint see it. */
static pl_err find_best(struct pl_run *r, bool *out, struct pl_diag *d) {
    struct pl_diag absent = {0};
    bool there = true;
    if (reads(r)) PL_TRY(best_is_there(r, &there, d));
    const struct pl_outcome mine = {there ? PL_ERR_OK : PL_ERR_CHECKPOINT_FILE, 0};
    const pl_err err = pl_session_agree(&r->s, mine, &absent).err;
    *out = err == PL_ERR_OK;
    if (err == PL_ERR_OK || err == PL_ERR_CHECKPOINT_FILE) return PL_ERR_OK;
    if (d && d->err == PL_ERR_OK) *d = absent;
    return err;
}

pl_err pl_run_take_best(struct pl_run *r, struct pl_train_result *out, struct pl_diag *d) {
    struct pl_best_model *best = &out->best;
    out->stopped_early = pl_run_has_stalled(r) && r->state.step < r->s.pf->total_steps;
    if (out->stopped_early) PL_TRY(tell_stop(r, d));
    if (!pl_run_best_step(r) || !pl_session_has_memory(&r->s)) return PL_ERR_OK;
    best->step = r->state.best_step;
    best->value = from_bits(r->state.best_saved);
    best->metric = metric_names[r->state.best_of - 1];
    best->is_saved = best->step == r->state.step;
    if (!best->is_saved) {
        PL_TRY(find_best(r, &best->is_saved, d));
        if (best->is_saved && reads(r)) PL_TRY(load_best(r, d));
    }
    return tell_best(r, best, d);
}
