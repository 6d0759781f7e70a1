/* advice.c - puts the answer together: where the job stands, what is advised, what surrounds it. */
#include "estimator/advice/advice.h"

#include "estimator/advice/parts.h"
#include "estimator/base/checked.h"
#include "estimator/config/key_table.h"

/* --- lengths --------------------------------------------------------------------------------- */

static void add_choice(struct pl_advice *a, uint32_t length) {
    uint32_t n, at = a->n_choices;
    const struct pl_key_info *key = &pl_key_table(&n)[PL_KEY_max_seq_length];
    length = (uint32_t)pl_u64_min(length, (uint64_t)key->hi); /* a longer one no file may ask for */
    length = (uint32_t)pl_u64_min(length, pl_question_most_tokens(&a->q));
    if (length < (uint32_t)key->lo || at == PL_MAX_CHOICES) return;
    for (uint32_t i = 0; i < at; i++)
        if (a->choices[i].length == length) return;
    for (; at && a->choices[at - 1].length > length; at--)
        a->choices[at] = a->choices[at - 1];
    a->choices[at] = (struct pl_length_choice){.length = length};
    a->n_choices++;
}

/* Powers of two around the data, the data's own percentiles, and what the job says now. */
static void list_choices(struct pl_advice *a) {
    static const unsigned percents[] = {90, 95, 99};
    const struct pl_lengths *l = a->lengths;
    uint64_t power = 1;
    add_choice(a, a->q.job->max_seq_length);
    add_choice(a, l->longest);
    for (size_t i = 0; i < sizeof percents / sizeof *percents; i++)
        add_choice(a, pl_lengths_percentile(l, percents[i]));
    while (power < l->longest)
        power *= 2;
    for (int i = 0; i < 4 && power; i++, power /= 2)
        if (power <= INT32_MAX) add_choice(a, (uint32_t)power);
}

static pl_err price_choice(struct pl_advice *a, struct pl_length_choice *c, struct pl_diag *d) {
    struct pl_variant v;
    pl_variant_sized(&v, &a->q, 1, c->length);
    pl_variant_smallest_level(&v);
    c->over = pl_lengths_over(a->lengths, c->length);
    c->lost_tokens = pl_lengths_lost(a->lengths, c->length);
    PL_TRY(pl_price_of(&v.q, &a->trials, &c->price, d));
    return pl_price_largest_batch(&v.q, &a->trials, &c->largest_batch, d);
}

/* The shortest that cuts nothing; where none of those fits, the longest that does. Nothing is
 * padded, so length beyond the longest sample only costs capacity. */
static pl_err choose_length(struct pl_advice *a, struct pl_diag *d) {
    a->length = a->q.job->max_seq_length;
    if (!a->lengths || !a->lengths->rows) return PL_ERR_OK;
    list_choices(a);
    const struct pl_length_choice *best = NULL;
    for (uint32_t i = 0; i < a->n_choices; i++) {
        struct pl_length_choice *c = &a->choices[i];
        PL_TRY(price_choice(a, c, d));
        bool fits = !a->q.budget.known || c->largest_batch > 0;
        if (fits && (!best || best->over)) best = c;
    }
    if (best) a->length = best->length;
    return PL_ERR_OK;
}

/* --- accumulation ---------------------------------------------------------------------------- */

/* The question with the advised length, and the effective batch where one is asked for. */
static void advised(const struct pl_advice *a, uint32_t batch_size, struct pl_variant *v) {
    pl_variant_sized(v, &a->q, batch_size, a->length);
    if (!a->effective_batch) return;
    v->job.global_batch_size = a->effective_batch;
    v->job.gradient_accumulation_steps = PL_UNSET_U32;
}

/* Divisors of the effective batch, largest first; a row more than there is room for is left out at
 * the small end, but for a batch of one. */
static pl_err list_accumulations(struct pl_advice *a, struct pl_diag *d) {
    const uint64_t most = pl_question_most_tokens(&a->q);
    for (uint32_t b = a->effective_batch; b; b--) {
        struct pl_accumulation_row *r = &a->accumulations[a->n_accumulations];
        if (a->effective_batch % b || (uint64_t)b * a->length > most) continue;
        if (a->n_accumulations == PL_MAX_ACCUMULATION - 1 && b > 1) continue;
        struct pl_variant v;
        advised(a, b, &v);
        *r = (struct pl_accumulation_row){.batch_size = b, .steps = a->effective_batch / b};
        PL_TRY(pl_price_of(&v.q, &a->trials, &r->price, d));
        a->n_accumulations++;
    }
    return PL_ERR_OK;
}

static pl_err advise_batch(struct pl_advice *a, struct pl_diag *d) {
    struct pl_variant v;
    advised(a, 1, &v);
    PL_TRY(pl_price_largest_batch(&v.q, &a->trials, &a->largest_batch, d));
    uint32_t most = a->largest_batch; /* a lighter level is faster than one more sample */
    if (a->q.job->gradient_checkpointing == PL_RECOMPUTE_AUTO)
        PL_TRY(pl_price_auto_batch(&v.q, &a->trials, &most, d));
    a->recommended_batch = pl_price_micro_batch(most, a->effective_batch);
    if (a->effective_batch) PL_TRY(list_accumulations(a, d));
    v.q.batch_size = a->recommended_batch ? a->recommended_batch : a->q.batch_size;
    if ((uint64_t)v.q.batch_size * a->length > pl_question_most_tokens(&v.q)) v.q.batch_size = 1;
    if (a->effective_batch && a->recommended_batch)
        a->accumulation = a->effective_batch / a->recommended_batch;
    return pl_price_of(&v.q, &a->trials, &a->recommended, d);
}

static pl_err find_walls(struct pl_advice *a, struct pl_diag *d) {
    static const enum pl_key_id axes[PL_MAX_WALLS] = {PL_KEY_batch_size, PL_KEY_max_seq_length,
                                                      PL_KEY_lora_r};
    uint32_t n = pl_mode_adapts(a->q.job->mode) ? 3 : 2;
    for (a->n_walls = 0; a->n_walls < n; a->n_walls++)
        PL_TRY(pl_advice_wall(&a->q, axes[a->n_walls], &a->trials, &a->walls[a->n_walls], d));
    return PL_ERR_OK;
}

/* Without a budget there is no largest batch: `auto` is then looked at with one sample. */
static pl_err estimate_own(struct pl_advice *a, struct pl_diag *d) {
    PL_TRY(pl_price_auto_batch(&a->q, &a->trials, &a->q.recommended, d));
    a->q.batch_size = a->q.job->batch_size;
    if (a->q.batch_size == PL_AUTO)
        a->q.batch_size = a->q.recommended ? a->q.recommended : 1;
    else
        PL_TRY(pl_decide_recommended(&a->q, PL_BATCH_LIMIT, &a->trials.held, d));
    PL_TRY(pl_estimate_judge(&a->estimate, &a->q, NULL, d));
    return pl_price_measure(&a->q, 0, &a->trials, &a->now, d);
}

/* Samples of a step that the job fixes itself; 0: it leaves them open. What no global_batch_size
 * can say is cut to what it can: a step is never made longer. */
static uint32_t own_step(const struct pl_job *job) {
    uint32_t n;
    if (job->global_batch_size != PL_UNSET_U32) return job->global_batch_size;
    if (job->batch_size == PL_AUTO || job->gradient_accumulation_steps == PL_UNSET_U32) return 0;
    return (uint32_t)pl_u64_min((uint64_t)job->batch_size * job->gradient_accumulation_steps,
                                (uint64_t)pl_key_table(&n)[PL_KEY_global_batch_size].hi);
}

pl_err pl_advice_begin(struct pl_advice *a, const struct pl_question *q,
                       const struct pl_lengths *lengths, uint32_t effective_batch,
                       struct pl_diag *d) {
    pl_err err;
    *a =
        (struct pl_advice){.q = *q,
                           .lengths = lengths,
                           .effective_batch = effective_batch ? effective_batch : own_step(q->job)};
    PL_TRY_GOTO(estimate_own(a, d), out);
    PL_TRY_GOTO(choose_length(a, d), out);
    PL_TRY_GOTO(advise_batch(a, d), out);
out:
    if (err != PL_ERR_OK) pl_advice_finish(a);
    return err;
}

pl_err pl_advice_tables(struct pl_advice *a, struct pl_diag *d) {
    PL_TRY(pl_estimate_find_remedies(&a->estimate, d));
    PL_TRY(pl_advice_grid(&a->q, &a->trials, &a->grid, d));
    PL_TRY(find_walls(a, d));
    PL_TRY(pl_advice_knobs(a, d));
    PL_TRY(pl_advice_tradeoffs(a, d));
    return pl_advice_cards(a, d);
}

pl_err pl_advice_init(struct pl_advice *a, const struct pl_question *q,
                      const struct pl_lengths *lengths, uint32_t effective_batch,
                      struct pl_diag *d) {
    PL_TRY(pl_advice_begin(a, q, lengths, effective_batch, d));
    pl_err err = pl_advice_tables(a, d);
    if (err != PL_ERR_OK) pl_advice_finish(a);
    return err;
}

void pl_advice_finish(struct pl_advice *a) {
    pl_estimate_finish(&a->estimate);
    pl_trials_finish(&a->trials);
    *a = (struct pl_advice){0};
}
