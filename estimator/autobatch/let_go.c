/* let_go.c - updates in the backward pass or after it, and the notes of a decision.
 *
 * A step that clips computes its gradients twice where they are let go: their norm has to be known
 * before the first update. No level of recomputation costs as much as a second backward pass, so
 * such a job keeps its gradients wherever it fits so. A step that does not clip computes nothing
 * twice, and the room of its gradients may be worth a lighter level: there the times decide. */
#include "estimator/autobatch/autolevel.h"
#include "estimator/config/job_text.h"
#include "estimator/config/key_table.h"
#include "estimator/config/job_values.h"
#include "estimator/program/cost.h"

/* Shares of a step's time. A step whose first update has begun cannot be tried again when memory
 * runs out, so a small gain is not worth it. */
#define MIN_GAIN 0.05 /* for which updates move into the backward pass */
#define MIN_LOSS 0.05 /* which a note is worth */

/* Finds the seconds of a step of one micro-batch. */
static pl_err step_seconds(const struct pl_question *q, struct pl_trials *t, double *out,
                           struct pl_diag *d) {
    const struct pl_speed speed = pl_speed_nominal(&q->traits);
    PL_TRY(pl_question_sketch(q, &t->held, d));
    const struct pl_program *p = t->held.program;
    *out = pl_program_micro_seconds(p, &speed) + pl_program_update_seconds(p, &speed);
    return PL_ERR_OK;
}

/* --- notes ----------------------------------------------------------------------------------- */

/* Begins the note that names the decision of a key. */
static void tell_value(const struct pl_question *q, enum pl_key_id key, struct pl_text *notes) {
    struct pl_job decided = *q->job; /* shallow */
    uint32_t n;
    pl_question_settle(q, &decided);
    pl_text_addf(notes, "%s: auto is `", pl_key_table(&n)[key].key);
    pl_job_write_key(&decided, key, notes);
    pl_text_add(notes, "`: ");
}

static void tell(const struct pl_question *q, enum pl_key_id key, const char *why,
                 struct pl_text *notes) {
    tell_value(q, key, notes);
    pl_text_addf(notes, "%s\n", why);
}

/* True if the job keeps its gradients and fits where its weights have no masters. */
static pl_err fits_without_masters(const struct pl_question *open, uint32_t limit,
                                   struct pl_trials *t, bool *out, struct pl_diag *d) {
    struct pl_variant v;
    *out = false;
    if (!t->held.program->shape.master_weights) return PL_ERR_OK;
    pl_variant_of(&v, open);
    v.job.master_weights = PL_TRI_FALSE;
    v.q.decided.optimizer_in_backward = PL_TRI_FALSE;
    PL_TRY(pl_autolevel_decide_sizes(&v.q, limit, t, d));
    return pl_question_fits(&v.q, pl_budget_usable(&v.q.budget), &t->held, out, d);
}

/* The note says what the decision costs, compared with the same step that keeps its gradients, and
 * which other setting would not. */
static pl_err tell_cost(const struct pl_question *open, const struct pl_question *q, uint32_t limit,
                        struct pl_text *notes, struct pl_diag *d) {
    struct pl_trials t = {0};
    struct pl_question kept = *q;
    double with = 0, without = 0;
    bool other = false;
    kept.decided.optimizer_in_backward = PL_TRI_FALSE;
    pl_err err = step_seconds(&kept, &t, &without, d);
    if (err == PL_ERR_OK) err = step_seconds(q, &t, &with, d);
    const bool slow = err == PL_ERR_OK && with > without * (1 + MIN_LOSS);
    if (slow) err = fits_without_masters(open, limit, &t, &other, d);
    pl_trials_finish(&t);
    PL_TRY(err);
    tell_value(q, PL_KEY_optimizer_in_backward, notes);
    pl_text_add(notes, "the job does not fit without it");
    if (slow) pl_text_addf(notes, ", which makes a step %.2f times as long", with / without);
    if (other) pl_text_add(notes, "; with `master_weights: false` it would fit");
    pl_text_add(notes, "\n");
    return PL_ERR_OK;
}

struct outcome { /* of a decision */
    bool none;   /* nothing fits */
    bool faster; /* the job fits with its gradients kept, and takes longer */
};

/* Adds notes that name the decisions of a question that was `open`. */
static pl_err tell_choices(const struct pl_question *open, const struct pl_question *q,
                           uint32_t limit, struct outcome how, struct pl_text *notes,
                           struct pl_diag *d) {
    const bool level = pl_question_level(open) == PL_RECOMPUTE_AUTO && !q->job->inference;
    const char *why = !q->budget.known ? "the smallest, since no budget is known"
                      : how.none       ? "the smallest, and not even that fits"
                                       : "the least time per token of what fits";
    if (level) tell(q, PL_KEY_gradient_checkpointing, why, notes);
    if (q->job->optimizer_in_backward != PL_TRI_AUTO ||
        q->decided.optimizer_in_backward != PL_TRI_TRUE || how.none)
        return PL_ERR_OK;
    if (!how.faster) return tell_cost(open, q, limit, notes, d);
    tell(q, PL_KEY_optimizer_in_backward,
         "the room of the gradients is worth more for what is not computed again", notes);
    return PL_ERR_OK;
}

/* --- the decision ---------------------------------------------------------------------------- */

/* Sets t->none where nothing else was to be decided, so that nothing was planned yet. */
static pl_err judge_given(const struct pl_question *q, struct pl_trials *t, struct pl_diag *d) {
    struct pl_question given = *q;
    bool fits;
    if (q->job->batch_size == PL_AUTO) given.batch_size = 1;
    PL_TRY(pl_question_fits(&given, pl_budget_usable(&q->budget), &t->held, &fits, d));
    t->none = !fits;
    return PL_ERR_OK;
}

/* Lets gradients go where the rest of the choices then make a step faster. with: as it is open. */
static pl_err prefer_faster(struct pl_question *q, struct pl_question *with, uint32_t limit,
                            struct pl_trials *t, bool *faster, struct pl_diag *d) {
    double kept, gone;
    PL_TRY(step_seconds(q, t, &kept, d));
    t->most_seconds = kept * (1 - MIN_GAIN) / (double)t->held.program->tokens;
    const pl_err err = pl_autolevel_decide_sizes(with, limit, t, d);
    t->most_seconds = 0;
    PL_TRY(err);
    const bool none = t->none;
    t->none = false;
    if (none) return PL_ERR_OK;
    PL_TRY(step_seconds(with, t, &gone, d));
    *faster = gone <= kept * (1 - MIN_GAIN);
    if (*faster) *q = *with;
    return PL_ERR_OK;
}

/* They change no bit, so nothing is worth giving up for being without them. Where only what is fast
 * enough is looked for, `none` does not say that nothing fits. */
static pl_err decide_letting_go(struct pl_question *q, uint32_t limit, struct pl_trials *t,
                                bool *faster, struct pl_diag *d) {
    struct pl_question with = *q;
    const bool others = pl_autolevel_is_open(q);
    /* Times have to decide where a level is open, and a step does not clip. With a batch that is
     * open the samples of a step might become others. */
    const bool compare = pl_question_level(q) == PL_RECOMPUTE_AUTO && q->job->max_grad_norm <= 0 &&
                         q->job->batch_size != PL_AUTO;
    const bool may = q->job->optimizer_in_backward == PL_TRI_AUTO && pl_question_may_let_go(q);
    with.decided.optimizer_in_backward = PL_TRI_TRUE;
    q->decided.optimizer_in_backward = PL_TRI_FALSE;
    PL_TRY(pl_autolevel_decide_sizes(q, limit, t, d));
    if (!may || !q->budget.known || t->most_seconds > 0) return PL_ERR_OK;
    if (!others) PL_TRY(judge_given(q, t, d));
    if (!t->none) return compare ? prefer_faster(q, &with, limit, t, faster, d) : PL_ERR_OK;
    PL_TRY(pl_autolevel_decide_sizes(&with, limit, t, d));
    if (!others) PL_TRY(judge_given(&with, t, d));
    *q = with;
    return PL_ERR_OK;
}

pl_err pl_autolevel_decide(struct pl_question *q, uint32_t limit, struct pl_trials *trials,
                           struct pl_text *notes, struct pl_diag *d) {
    struct pl_trials own = {0}, *t = trials ? trials : &own;
    const struct pl_question open = *q;
    bool faster = false;
    pl_err err = decide_letting_go(q, limit, t, &faster, d);
    const struct outcome how = {.none = t->none, .faster = faster};
    if (err == PL_ERR_OK && notes) err = tell_choices(&open, q, limit, how, notes, d);
    pl_trials_finish(&own);
    return err;
}
