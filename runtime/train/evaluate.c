/* evaluate.c - the evaluation phase over all held-out rows, and who is told. */
#include "runtime/train/evaluate.h"

#include "estimator/base/json_tree.h"
#include "estimator/config/job_values.h"
#include "runtime/data/batch.h"
#include "runtime/session/inputs.h"
#include "runtime/session/load.h"
#include "runtime/train/micro_batch.h"
#include "runtime/train/score.h"

#include <math.h>
#include <stdio.h>

/* --- measures of preferences ------------------------------------------------------------------ */

uint32_t pl_run_list_measures(const struct pl_measures *m,
                              struct pl_named_value out[PL_STEP_MORE]) {
    uint32_t n = 0;
    _Static_assert(PL_MEASURE_COUNT <= PL_STEP_MORE, "a step has room for all measures");
    for (int i = PL_MEASURE_LOSS + 1; i < PL_MEASURE_COUNT; i++)
        if (!isnan(m->of[i]))
            out[n++] = (struct pl_named_value){pl_measure_name((enum pl_measure)i), m->of[i]};
    return n;
}

pl_err pl_run_board_more(struct pl_run *r, const char *group, uint64_t step,
                         const struct pl_named_value *values, uint32_t n, struct pl_diag *d) {
    char tag[64];
    for (uint32_t i = 0; r->board && i < n; i++) {
        snprintf(tag, sizeof tag, "%s/%s", group, values[i].name);
        PL_TRY(pl_tensorboard_scalar(r->board, tag, step, values[i].value, d));
    }
    return PL_ERR_OK;
}

/* --- the rows -------------------------------------------------------------------------------- */

/* The state of an evaluation: the rows up to `row` are done, with so many targets. */
struct evaluated {
    uint64_t row, targets;
};

/* The micro-batches of a round, cut as one rank cuts them; this rank keeps the one that is its
 * turn, or none of the last round. *n: of all ranks. */
static pl_err load_round(struct pl_run *r, struct evaluated *at, uint32_t *n, struct pl_diag *d) {
    const struct pl_preflight *pf = r->s.pf;
    const uint64_t size = pl_run_slots(r);
    for (*n = 0; *n < pl_run_ranks(r) && at->row < pf->data.n_eval; ++*n) {
        PL_TRY(pl_step_batch_load(&r->batch, &pf->data.eval_source, at->row, size, d));
        if (*n == pf->world.rank) PL_TRY(pl_session_fill(&r->s, &r->batch, 0, size, d));
        at->row += r->batch.rows;
        at->targets += r->batch.targets;
    }
    return *n > pf->world.rank ? PL_ERR_OK : pl_session_fill(&r->s, &r->batch, size, size, d);
}

static struct pl_evaluation figures(uint64_t tokens, const double sums[2]) {
    struct pl_evaluation e = {.tokens = tokens, .loss = NAN, .accuracy = NAN, .perplexity = NAN};
    if (!tokens) return e;
    e.right = (uint64_t)sums[1];
    e.loss = sums[0] / (double)tokens;
    e.accuracy = sums[1] / (double)tokens;
    e.perplexity = exp(e.loss);
    return e;
}

static pl_err compute(struct pl_run *r, struct pl_evaluation *out, struct pl_diag *d) {
    struct evaluated at = {0};
    struct pl_exec *exec = &pl_run_rung(r)->exec;
    double sums[2];
    PL_TRY(pl_run_clear_loss(r));
    while (at.row < r->s.pf->data.n_eval) {
        uint32_t n;
        PL_TRY(load_round(r, &at, &n, d));
        PL_TRY(pl_run_describe(r, n, true, 0, d));
        PL_TRY(pl_session_follow_length(&r->s, d));
        PL_TRY(pl_session_upload_inputs(&r->s, PL_PHASE_EVAL));
        PL_TRY(pl_exec_run_phase(exec, PL_PHASE_EVAL, d));
    }
    PL_TRY(pl_exec_download(exec, pl_run_rung(r)->planned.program->loss, sums, sizeof sums));
    *out = figures(at.targets, sums);
    return PL_ERR_OK;
}

static pl_err tell_board(struct pl_run *r, const struct pl_evaluation *e, struct pl_diag *d) {
    const struct {
        const char *tag;
        double value;
    } rows[] = {
        {"eval/loss", e->loss}, {"eval/accuracy", e->accuracy}, {"eval/perplexity", e->perplexity}};
    for (size_t i = 0; r->board && i < sizeof rows / sizeof *rows; i++)
        PL_TRY(pl_tensorboard_scalar(r->board, rows[i].tag, r->state.step, rows[i].value, d));
    return PL_ERR_OK;
}

static pl_err tell(struct pl_run *r, const struct pl_evaluation *e, struct pl_diag *d) {
    char line[160];
    snprintf(line, sizeof line,
             "evaluation at step %llu: loss %.4f, accuracy %.2f %%, perplexity %.4g",
             (unsigned long long)r->state.step, e->loss, 100 * e->accuracy, e->perplexity);
    pl_progress_note(&r->progress, line);
    PL_TRY(tell_board(r, e, d));
    return pl_log_event(r->log, "eval",
                        json_pack("{s:I, s:o, s:o, s:o, s:I, s:I}", "step",
                                  (json_int_t)r->state.step, "loss", pl_log_real(e->loss),
                                  "accuracy", pl_log_real(e->accuracy), "perplexity",
                                  pl_log_real(e->perplexity), "tokens", (json_int_t)e->tokens,
                                  "right_tokens", (json_int_t)e->right),
                        d);
}

static pl_err tell_preferences(struct pl_run *r, const struct pl_measures *m, struct pl_diag *d) {
    struct pl_named_value more[PL_STEP_MORE];
    char line[160];
    const uint64_t step = r->state.step;
    const double loss = m->of[PL_MEASURE_LOSS];
    const uint32_t n = pl_run_list_measures(m, more);
    snprintf(line, sizeof line, "evaluation at step %llu: loss %.4f, accuracy %.3f, margin %.4f",
             (unsigned long long)step, loss, m->of[PL_MEASURE_ACCURACY], m->of[PL_MEASURE_MARGIN]);
    pl_progress_note(&r->progress, line);
    if (r->board) PL_TRY(pl_tensorboard_scalar(r->board, "eval/loss", step, loss, d));
    PL_TRY(pl_run_board_more(r, "eval", step, more, n, d));
    json_t *o = json_pack("{s:I, s:o}", "step", (json_int_t)step, "loss", pl_log_real(loss));
    for (uint32_t i = 0; i < n; i++)
        pl_json_set(&o, more[i].name, pl_log_real(more[i].value));
    return pl_log_event(r->log, "eval", o, d);
}

pl_err pl_run_evaluate(struct pl_run *r, struct pl_evaluation *out, struct pl_diag *d) {
    struct pl_measures m;
    if (!r->s.pf->data.n_eval) return PL_ERR_OK;
    if (!pl_job_prefers(r->s.job)) {
        PL_TRY(compute(r, out, d));
        return tell(r, out, d);
    }
    PL_TRY(pl_run_eval_preferences(r, &m, d));
    /* Answers are compared, not counted: there are no right tokens, and there is no perplexity. */
    *out = (struct pl_evaluation){
        .loss = m.of[PL_MEASURE_LOSS], .accuracy = m.of[PL_MEASURE_ACCURACY], .perplexity = NAN};
    return tell_preferences(r, &m, d);
}
