/* knobs.c - what each setting saves or costs, every row planned again. */
#include "estimator/advice/parts.h"

#include "estimator/autobatch/autobatch.h"
#include "estimator/autobatch/decide.h"
#include "estimator/config/job_values.h"
#include "estimator/config/key_table.h"
#include "estimator/config/validate.h"
#include "estimator/search/change.h"

#include <string.h>

_Static_assert(PL_CHANGE_COUNT + PL_OPTIMIZERS_MAX <= PL_MAX_KNOBS,
               "room for every row and choice");

static void describe(const struct pl_question *q, enum pl_key_id key, char *out, size_t size) {
    struct pl_text line = PL_TEXT_IN(out, size);
    pl_change_write_key(q, key, &line);
}

static double percent_more(double than, double v) {
    return than > 0 ? 100 * (v / than - 1) : 0;
}

/* Nothing is added where the row does not apply, or changes nothing: `auto` spelled out is the same
 * plan. */
static pl_err add_knob(struct pl_advice *a, const struct pl_change *row, struct pl_diag *d) {
    struct pl_knob *k = &a->knobs[a->n_knobs];
    struct pl_variant v;
    struct pl_diag why = {0};
    bool has;
    pl_variant_of(&v, &a->q);
    describe(&v.q, row->key, k->from, sizeof k->from);
    /* The rules between keys are asked about words alone: numbers and lists pass them, or the plan
     * refuses them. */
    pl_err made = pl_change_make(row, row->settings, &v);
    if (made == PL_ERR_OK && row->how == PL_HOW_SET) made = pl_job_validate(&v.job, NULL);
    PL_TRY(pl_change_made(made, "the price of a setting", &has, d));
    if (!has) return PL_ERR_OK;
    describe(&v.q, row->key, k->change, sizeof k->change);
    if (strcmp(k->from, k->change) == 0) return PL_ERR_OK;
    const pl_err priced = pl_price_of(&v.q, &a->trials, &k->price, &why);
    PL_TRY(pl_change_planned(priced, &why, &has, d));
    if (!has) return PL_ERR_OK;
    k->saves_bytes = (int64_t)(a->now.needed_bytes - k->price.needed_bytes);
    k->time_percent = percent_more(a->now.flops_per_token, k->price.flops_per_token);
    a->n_knobs += k->saves_bytes != 0 || k->price.flops_per_token != a->now.flops_per_token;
    return PL_ERR_OK;
}

static pl_err add_choices(struct pl_advice *a, const struct pl_change *row, struct pl_diag *d) {
    uint32_t n;
    const char *choices = pl_key_table(&n)[row->key].choices;
    char choice[PL_CHOICE_BYTES];
    for (uint32_t i = 0; pl_key_choice(choices, i, choice); i++) {
        struct pl_change one = *row;
        one.how = PL_HOW_SET;
        one.value = choice;
        PL_TRY(add_knob(a, &one, d));
    }
    return PL_ERR_OK;
}

pl_err pl_advice_knobs(struct pl_advice *a, struct pl_diag *d) {
    a->n_knobs = 0;
    for (int i = 0; i < PL_CHANGE_COUNT; i++)
        PL_TRY((pl_changes[i].how == PL_HOW_EVERY_CHOICE ? add_choices
                                                         : add_knob)(a, &pl_changes[i], d));
    return PL_ERR_OK;
}

/* --- recomputation against batch size -------------------------------------------------------- */

void pl_tradeoff_name(const struct pl_tradeoff *t, char out[PL_LEVEL_TEXT]) {
    struct pl_text text = PL_TEXT_IN(out, PL_LEVEL_TEXT);
    pl_text_add(&text, "");
    pl_recompute_print(t->recompute, &text);
}

uint32_t pl_advice_step_samples(const struct pl_advice *a) {
    const uint32_t batch = a->q.job->batch_size;
    if (a->effective_batch || batch == PL_AUTO) return a->effective_batch;
    uint64_t all = (uint64_t)batch * pl_job_accumulation(a->q.job, batch);
    return all <= UINT32_MAX ? (uint32_t)all : batch;
}

bool pl_tradeoff_dominated(const struct pl_tradeoff *t) {
    bool any = false, all = true;
    for (int e = 0; e < PL_FRONTIER_ENDS; e++) {
        if (!t->points[e].batch_size) continue;
        any = true;
        all &= t->points[e].dominated;
    }
    return any && all;
}

static bool dominates(const struct pl_price *a, const struct pl_price *b) {
    return a->needed_bytes <= b->needed_bytes && a->seconds_per_token <= b->seconds_per_token &&
           (a->needed_bytes < b->needed_bytes || a->seconds_per_token < b->seconds_per_token);
}

static struct pl_frontier_point *point_at(struct pl_advice *a, uint32_t i) {
    struct pl_frontier_point *p = &a->tradeoffs[i / PL_FRONTIER_ENDS].points[i % PL_FRONTIER_ENDS];
    return p->batch_size ? p : NULL;
}

static void compare_points(struct pl_advice *a) {
    uint32_t n = a->n_tradeoffs * PL_FRONTIER_ENDS;
    double fastest = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct pl_frontier_point *p = point_at(a, i);
        if (p && (fastest == 0 || p->price.seconds_per_token < fastest))
            fastest = p->price.seconds_per_token;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct pl_frontier_point *p = point_at(a, i);
        if (!p) continue;
        p->relative_time = fastest > 0 ? p->price.seconds_per_token / fastest : 1;
        for (uint32_t k = 0; k < n && !p->dominated; k++) {
            const struct pl_frontier_point *other = point_at(a, k);
            p->dominated = other && dominates(&other->price, &p->price);
        }
    }
}

static pl_err price_point(struct pl_question *q, struct pl_trials *t, uint32_t batch_size,
                          struct pl_frontier_point *p, struct pl_diag *d) {
    p->batch_size = q->batch_size = batch_size;
    return batch_size ? pl_price_of(q, t, &p->price, d) : PL_ERR_OK;
}

static pl_err price_level(struct pl_advice *a, struct pl_question *q, struct pl_tradeoff *t,
                          struct pl_diag *d) {
    PL_TRY(pl_price_of(q, &a->trials, &t->price, d));
    t->time_percent = percent_more(a->tradeoffs[0].price.flops_per_token, t->price.flops_per_token);
    PL_TRY(pl_price_largest_batch(q, &a->trials, &t->largest_batch, d));
    uint32_t micro = a->q.batch_size, samples = pl_advice_step_samples(a);
    if (a->q.budget.known) /* without samples to make up: the least a level can do with */
        micro = pl_price_micro_batch(t->largest_batch, samples ? samples : 1);
    PL_TRY(price_point(q, &a->trials, t->largest_batch, &t->points[PL_FRONTIER_LARGEST], d));
    return price_point(q, &a->trials, micro, &t->points[PL_FRONTIER_MICRO], d);
}

static struct pl_tradeoff *add_level(struct pl_advice *a, uint32_t level) {
    for (uint32_t i = 0; i < a->n_tradeoffs; i++)
        if (a->tradeoffs[i].recompute == level) return &a->tradeoffs[i];
    struct pl_tradeoff *t = &a->tradeoffs[a->n_tradeoffs++];
    *t = (struct pl_tradeoff){.recompute = level, .mixed = level >= PL_RECOMPUTE_PLAIN};
    return t;
}

/* The plain levels, half of the layers at each with the other half at the next one that is worth
 * it, the job's own level, and that of `auto`. */
static pl_err list_levels(struct pl_advice *a, struct pl_diag *d) {
    struct pl_ladder ladder;
    struct pl_variant open;
    pl_variant_of(&open, &a->q);
    open.job.gradient_checkpointing = open.q.decided.gradient_checkpointing = PL_RECOMPUTE_AUTO;
    a->n_tradeoffs = 0;
    for (uint32_t level = PL_RECOMPUTE_NONE; level < PL_RECOMPUTE_OFFLOAD; level++)
        add_level(a, level);
    PL_TRY(pl_autolevel_ladder(&open.q, &a->trials, &ladder, d));
    for (uint32_t i = 1; i < ladder.n_levels && ladder.layers > 1; i++)
        add_level(a, pl_ladder_value(&ladder, i * ladder.layers - ladder.layers / 2));
    uint32_t now = pl_question_level(&a->q);
    if (now != PL_RECOMPUTE_AUTO) add_level(a, now)->now = true;
    if (open.q.budget.known) { /* the level that `auto` would be, with the job's chunk */
        PL_TRY(pl_decide_levels(&open.q, pl_autobatch_limit(open.q.job), &a->trials, NULL, d));
        add_level(a, open.q.decided.gradient_checkpointing)->automatic = true;
    }
    add_level(a, PL_RECOMPUTE_OFFLOAD);
    return PL_ERR_OK;
}

static void drop_dominated_mixes(struct pl_advice *a) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->n_tradeoffs; i++) {
        const struct pl_tradeoff *t = &a->tradeoffs[i];
        if (t->mixed && !t->now && !t->automatic && pl_tradeoff_dominated(t)) continue;
        a->tradeoffs[n++] = *t;
    }
    a->n_tradeoffs = n;
}

pl_err pl_advice_tradeoffs(struct pl_advice *a, struct pl_diag *d) {
    PL_TRY(list_levels(a, d));
    for (uint32_t i = 0; i < a->n_tradeoffs; i++) {
        struct pl_variant v;
        pl_variant_of(&v, &a->q);
        v.job.gradient_checkpointing = a->tradeoffs[i].recompute;
        PL_TRY(price_level(a, &v.q, &a->tradeoffs[i], d));
    }
    compare_points(a);
    drop_dominated_mixes(a);
    return PL_ERR_OK;
}
