/* autolevel.c - the fastest rung that fits, by bisection over exact plans.
 *
 * The largest batch that fits rises with the rung. A range of rungs is left out when
 * even its lowest rung at the batch of its highest, which nothing in it can beat, is slower than
 * what was found already, and when both its ends have the same batch: then the lower end is the
 * fastest of it (branch and bound: Land and Doig, An automatic method of solving discrete
 * programming problems, 1960). Where the ends differ by one sample, one rung is looked for: the
 * lowest that takes it. A line through two plans points at that, since each rung gives up the bytes
 * of one layer. */
#include "estimator/autobatch/autolevel.h"

#include "estimator/autobatch/autobatch.h"
#include "estimator/base/checked.h"
#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"
#include "estimator/config/key_table.h"
#include "estimator/program/cost.h"
#include "estimator/search/secant.h"

#include <string.h>

struct choice {
    uint32_t rung, batch_size; /* batch_size 0: nothing fits yet */
    bool next;                 /* one more does not fit */
    double seconds;            /* of a token */
};

#define MOST_TIMED 32

struct timed {
    uint32_t rung, batch_size; /* batch_size 0: nothing yet */
    double seconds;
};

struct search {
    const struct pl_question *q;
    uint32_t limit;                 /* of the batch */
    struct timed timed[MOST_TIMED]; /* the latest */
    uint32_t n_timed;               /* ever */
    struct pl_speed speed;
    struct pl_ladder ladder;
    struct choice best;
    struct pl_trials *t;
    struct pl_diag *d;
};

struct end { /* of a range of rungs, with the largest batch that fits there; 0 = none */
    uint32_t rung, batch_size;
    uint64_t bytes; /* of that batch; 0: not planned */
};

void pl_trials_finish(struct pl_trials *t) {
    pl_planned_finish(&t->held);
    for (int i = 0; i < PL_TRIED_ENDS; i++)
        pl_planned_finish(&t->ends[i]);
    *t = (struct pl_trials){0};
}

static struct pl_question trial_of(const struct search *s, uint32_t rung, uint32_t batch_size) {
    struct pl_question trial = *s->q;
    trial.batch_size = batch_size;
    trial.decided.gradient_checkpointing = pl_ladder_value(&s->ladder, rung);
    return trial;
}

/* Returns the plan that a rung may resize: another batch of the same rung needs no more.
 * Whole levels and the rungs before them come again with every batch. */
static struct pl_planned *held_of(const struct search *s, uint32_t rung) {
    const uint32_t layers = s->ladder.layers ? s->ladder.layers : 1;
    const uint32_t level = (rung + 1) / layers, above = (rung + 1) % layers;
    if (above > 1) return &s->t->held;
    return &s->t->ends[above ? 2 * level : 2 * level - 1];
}

static double seconds_of(const struct search *s, const struct pl_planned *held) {
    return pl_program_seconds_per_token(held->program, &s->speed);
}

/* next: one sample more was planned and does not fit. */
static void offer(struct search *s, struct end at, bool next, double seconds) {
    const struct choice c = {at.rung, at.batch_size, next, seconds};
    const struct choice *b = &s->best;
    if (s->t->most_seconds > 0 && seconds > s->t->most_seconds) return;
    bool same = seconds >= b->seconds && seconds <= b->seconds;
    if (!b->batch_size || seconds < b->seconds || (same && c.rung < b->rung)) s->best = c;
}

static void remember(struct search *s, uint32_t rung, uint32_t batch_size, double seconds) {
    s->timed[s->n_timed++ % MOST_TIMED] = (struct timed){rung, batch_size, seconds};
}

/* Bytes of a plan with a limit, for a guess: its height where that is above the limit; else what is
 * alive at most, since the height is where packing stopped for being low enough. */
static uint64_t bytes_of(const struct pl_plan *plan, bool fits) {
    return fits ? plan->job_bytes + pl_plan_most_alive(plan->phases) : plan->arena_bytes;
}

/* Plans it. The seconds are those of what was tried last, as far as it fits. */
static pl_err try_end(struct search *s, struct end at, uint64_t usable, const struct pl_plan **plan,
                      double *seconds) {
    const struct pl_question trial = trial_of(s, at.rung, at.batch_size);
    struct pl_planned *held = held_of(s, at.rung);
    PL_TRY(pl_question_measure_within(&trial, usable, held, s->d));
    *plan = held->plan;
    if (held->plan->arena_bytes > usable) return PL_ERR_OK;
    *seconds = seconds_of(s, held);
    remember(s, at.rung, at.batch_size, *seconds);
    return PL_ERR_OK;
}

/* Raises at->batch_size, which need not fit, to the largest that does, up to `high`; only what was
 * planned is offered. */
static pl_err raise_batch(struct search *s, struct end *at, uint32_t high) {
    const bool own = s->q->job->batch_size != PL_AUTO; /* that one or none */
    const struct pl_plan *plan;
    double seconds = 0;
    if (at->batch_size >= high) return PL_ERR_OK;
    struct pl_secant range = pl_secant_between(own ? high - 1 : at->batch_size, high + 1,
                                               pl_budget_usable(&s->q->budget));
    while (!pl_secant_done(&range)) {
        const struct end next = {.rung = at->rung, .batch_size = pl_secant_next(&range)};
        PL_TRY(try_end(s, next, range.usable, &plan, &seconds));
        const bool fits = plan->arena_bytes <= range.usable;
        pl_secant_tell(&range, next.batch_size, bytes_of(plan, fits), fits,
                       pl_autobatch_slope(plan, next.batch_size));
    }
    if (!range.low.bytes) return PL_ERR_OK;
    at->batch_size = range.low.n;
    at->bytes = range.low.bytes;
    const bool fails_next = range.high.bytes && range.high.n == at->batch_size + 1;
    offer(s, *at, fails_next, seconds);
    return PL_ERR_OK;
}

static const struct timed *find_timed(const struct search *s, uint32_t rung, uint32_t batch_size) {
    for (uint32_t i = s->n_timed; i-- > 0 && i + MOST_TIMED >= s->n_timed;) {
        const struct timed *t = &s->timed[i % MOST_TIMED];
        if (t->rung == rung && t->batch_size == batch_size) return t;
    }
    return NULL;
}

/* The time alone, whether it fits or not: a program is cheaper than its plan. */
static pl_err time_of(struct search *s, uint32_t rung, uint32_t batch_size, double *seconds) {
    const struct pl_question trial = trial_of(s, rung, batch_size);
    struct pl_planned *held = held_of(s, rung);
    PL_TRY(pl_question_sketch(&trial, held, s->d));
    *seconds = seconds_of(s, held);
    remember(s, rung, batch_size, *seconds);
    return PL_ERR_OK;
}

/* Nothing from a rung on can be faster than what was found, or is worth finding, whatever batch up
 * to this one it has. */
static pl_err is_too_slow(struct search *s, uint32_t rung, uint32_t most, bool *out) {
    const double bound = s->best.batch_size ? s->best.seconds : s->t->most_seconds;
    const struct timed *known = find_timed(s, rung, most);
    double least = known ? known->seconds : 0;
    *out = false;
    if (!most || bound <= 0) return PL_ERR_OK;
    if (!known) PL_TRY(time_of(s, rung, most, &least));
    *out = least > bound;
    return PL_ERR_OK;
}

/* Finds the most samples of an end, which takes at least `sure`, as a lower rung does. */
static pl_err raise_end(struct search *s, struct end *at, uint32_t sure) {
    *at = (struct end){.rung = at->rung, .batch_size = sure};
    return raise_batch(s, at, s->limit);
}

/* A whole level rebuilds the last layer at the peak itself and may need more than the rung before
 * it. So ranges end before one, and the whole levels stand for themselves. */
struct ends {
    struct end whole[PL_RECOMPUTE_OFFLOAD], before[PL_RECOMPUTE_OFFLOAD];
};

static struct ends ends_of(const struct pl_ladder *l) {
    struct ends e = {0};
    for (uint32_t i = 1; i < l->n_levels; i++) {
        e.whole[i].rung = i * l->layers;
        e.before[i].rung = i * l->layers - 1;
    }
    return e;
}

/* True if the best is between two rungs, with the samples of the higher one: then the rungs below
 * it are faster. */
static bool best_is_between(const struct search *s, struct end low, struct end high) {
    const struct choice *b = &s->best;
    return b->batch_size == high.batch_size && b->rung > low.rung && b->rung <= high.rung;
}

/* The lowest rung above `low` that takes the samples of `high`, counted from there downwards. */
static pl_err search_rung(struct search *s, struct end low, struct end high) {
    struct pl_secant range =
        pl_secant_between(0, high.rung - low.rung, pl_budget_usable(&s->q->budget));
    const struct choice *b = &s->best;
    uint32_t below = range.high.n / 2;
    if (high.rung - low.rung < 2) return PL_ERR_OK;
    range.low.bytes = high.bytes;
    if (b->batch_size == high.batch_size && b->rung > low.rung + 1 && b->rung < high.rung)
        below = high.rung - b->rung + 1;
    for (; !pl_secant_done(&range); below = pl_secant_next(&range)) {
        const struct end at = {.rung = high.rung - below, .batch_size = high.batch_size};
        const struct pl_plan *plan;
        double seconds = 0;
        bool slow, fits;
        if (!best_is_between(s, low, high)) {
            PL_TRY(is_too_slow(s, high.rung - range.high.n + 1, high.batch_size, &slow));
            if (slow) return PL_ERR_OK;
        }
        PL_TRY(try_end(s, at, range.usable, &plan, &seconds));
        fits = plan->arena_bytes <= range.usable;
        if (fits) offer(s, at, false, seconds);
        pl_secant_tell(&range, below, bytes_of(plan, fits), fits, 0);
    }
    return PL_ERR_OK;
}

/* The rungs between two ends. */
static pl_err search_between(struct search *s, struct end low, struct end high) {
    bool slow;
    if (high.rung - low.rung < 2 || low.batch_size == high.batch_size) return PL_ERR_OK;
    if (high.batch_size - low.batch_size == 1) return search_rung(s, low, high);
    PL_TRY(is_too_slow(s, low.rung, high.batch_size, &slow));
    if (slow) return PL_ERR_OK;
    struct end mid = {.rung = low.rung + (high.rung - low.rung) / 2, .batch_size = low.batch_size};
    PL_TRY(raise_batch(s, &mid, high.batch_size));
    PL_TRY(search_between(s, low, mid));
    return search_between(s, mid, high);
}

/* The only batch that is looked for: the first level that takes it, from the fastest on, has the
 * fastest rung. */
static pl_err search_levels(struct search *s, struct ends *e) {
    PL_TRY(raise_end(s, &e->whole[0], 0));
    for (uint32_t i = 1; i < s->ladder.n_levels && !e->whole[i - 1].batch_size; i++) {
        bool slow;
        PL_TRY(is_too_slow(s, e->whole[i - 1].rung, s->limit, &slow));
        if (slow) return PL_ERR_OK;
        PL_TRY(raise_end(s, &e->before[i], 0));
        if (e->before[i].batch_size) return search_rung(s, e->whole[i - 1], e->before[i]);
        PL_TRY(raise_end(s, &e->whole[i], 0));
    }
    return PL_ERR_OK;
}

/* The largest of all batches, of the uppermost rungs, tells when the rest need not be looked at. */
static pl_err search_ranges(struct search *s, struct ends *e) {
    const uint32_t top = s->ladder.n_levels - 1;
    PL_TRY(raise_end(s, &e->whole[0], 0));
    if (!top) return PL_ERR_OK;
    PL_TRY(raise_end(s, &e->whole[top], e->whole[0].batch_size));
    PL_TRY(raise_end(s, &e->before[top], e->whole[0].batch_size));
    const uint32_t most = (uint32_t)pl_u64_max(e->whole[top].batch_size, e->before[top].batch_size);
    for (uint32_t i = 1; i <= top; i++) {
        const uint32_t sure = e->whole[i - 1].batch_size;
        bool slow;
        PL_TRY(is_too_slow(s, e->whole[i - 1].rung, most, &slow));
        if (slow) break;
        if (i < top) PL_TRY(raise_end(s, &e->whole[i], sure));
        if (i < top) PL_TRY(raise_end(s, &e->before[i], sure));
        PL_TRY(search_between(s, e->whole[i - 1], e->before[i]));
    }
    return PL_ERR_OK;
}

/* --- what trials know already ----------------------------------------------------------------- */

/* The question as far as rungs follow from it. */
static pl_err key_of(const struct pl_question *q, struct pl_trials_key *out, struct pl_diag *d) {
    struct pl_question plain = *q;
    plain.batch_size = pl_ladder_batch(q);
    memset(out, 0, sizeof *out);
    plain.decided.gradient_checkpointing = PL_RECOMPUTE_AUTO;
    out->model = q->model;
    out->backend = q->traits.backend;
    out->sm = q->traits.sm;
    out->threads = q->traits.threads;
    out->level = pl_question_level(q);
    return pl_question_shape(&plain, &out->shape, d);
}

/* The rungs of the question, which no budget, no batch size and no decision on chunks of the
 * MLP or on panels changes. */
static pl_err learn(struct search *s, struct pl_diag *d) {
    struct pl_trials *t = s->t;
    struct pl_trials_key key;
    struct pl_question whole = *s->q;
    whole.decided.mlp_chunk_tokens = PL_AUTO;
    whole.decided.unpack_buffer = PL_AUTO_BYTES;
    PL_TRY(key_of(&whole, &key, d));
    if (!t->ladder.n_levels || memcmp(&key, &t->key, sizeof key) != 0) {
        t->ladder.n_levels = 0;
        PL_TRY(pl_ladder_init(&t->ladder, &whole, &t->held, d));
        t->key = key;
    }
    s->ladder = t->ladder;
    return PL_ERR_OK;
}

/* --- the decision ---------------------------------------------------------------------------- */

/* True if the bytes that no level changes exceed the budget already. */
static bool is_infeasible(const struct pl_program *p, const struct pl_budget *budget) {
    uint64_t bytes = 0, all;
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct pl_tensor *t = &p->tensors[i];
        if (t->scope != PL_SCOPE_JOB || t->place != PL_PLACE_DEVICE) continue;
        if (!pl_u64_mul(t->bytes, 1 + (uint64_t)pl_tensor_left_out(p, t), &all)) return true;
        if (!pl_u64_add(bytes, all, &bytes)) return true;
    }
    return bytes > pl_budget_usable(budget);
}

/* Writes the result, with its bytes and those of one sample more where that one does not fit. */
static pl_err find_next(struct search *s, struct pl_found *out) {
    const struct pl_question at = trial_of(s, s->best.rung, s->best.batch_size);
    const struct pl_question next = trial_of(s, s->best.rung, s->best.batch_size + 1);
    *out = (struct pl_found){.batch_size = s->best.batch_size};
    if (!s->best.next) return PL_ERR_OK;
    struct pl_planned *held = held_of(s, s->best.rung);
    PL_TRY(pl_question_measure(&next, held, s->d));
    out->next_bytes = held->plan->arena_bytes;
    PL_TRY(pl_question_measure(&at, held, s->d));
    out->bytes = held->plan->arena_bytes;
    return PL_ERR_OK;
}

pl_err pl_autolevel_decide_sizes(struct pl_question *q, uint32_t limit, struct pl_trials *t,
                                 struct pl_diag *d) {
    const struct pl_job *job = q->job;
    t->found = (struct pl_found){0};
    t->none = false;
    if (pl_question_level(q) != PL_RECOMPUTE_AUTO) return PL_ERR_OK;
    if (job->inference || !q->budget.known) { /* has no backward pass; or nothing to choose by */
        q->decided.gradient_checkpointing = PL_RECOMPUTE_FULL;
        return PL_ERR_OK;
    }
    const struct pl_question open = *q;
    struct search s = {.q = &open,
                       .limit = job->batch_size != PL_AUTO ? job->batch_size : limit,
                       .speed = pl_speed_nominal(&q->traits),
                       .t = t,
                       .d = d};
    s.limit = (uint32_t)pl_u64_min(s.limit, pl_question_most_samples(q));
    PL_TRY(learn(&s, d));
    struct ends e = ends_of(&s.ladder);
    s.best = (struct choice){.rung = pl_ladder_rungs(&s.ladder) - 1};
    PL_TRY(job->batch_size != PL_AUTO ? search_levels(&s, &e) : search_ranges(&s, &e));
    t->none = !s.best.batch_size;
    q->decided.gradient_checkpointing = pl_ladder_value(&s.ladder, s.best.rung);
    if (job->batch_size != PL_AUTO) return PL_ERR_OK;
    q->batch_size = s.best.batch_size ? s.best.batch_size : 1;
    return find_next(&s, &t->found);
}

/* By the first program that the ladder is made with. */
pl_err pl_autolevel_is_infeasible(const struct pl_question *q, struct pl_trials *trials, bool *out,
                                  struct pl_diag *d) {
    struct pl_question first = *q;
    if (pl_question_level(q) == PL_RECOMPUTE_AUTO)
        first.decided.gradient_checkpointing = PL_RECOMPUTE_NONE;
    first.batch_size = pl_ladder_batch(q);
    PL_TRY(pl_question_sketch(&first, &trials->held, d));
    *out = is_infeasible(trials->held.program, &q->budget);
    return PL_ERR_OK;
}

pl_err pl_autolevel_ladder(const struct pl_question *q, struct pl_trials *trials,
                           struct pl_ladder *out, struct pl_diag *d) {
    struct search s = {.q = q, .speed = pl_speed_nominal(&q->traits), .t = trials, .d = d};
    PL_TRY(learn(&s, d));
    *out = s.ladder;
    return PL_ERR_OK;
}

bool pl_autolevel_is_open(const struct pl_question *q) {
    return pl_question_level(q) == PL_RECOMPUTE_AUTO;
}

bool pl_autolevel_may_cut(const struct pl_question *q) {
    return pl_question_mlp_chunk(q) == PL_AUTO && q->budget.known && !q->job->inference;
}

bool pl_autolevel_may_unpack(const struct pl_question *q) {
    const uint64_t samples = pl_job_smallest_batch(q->job);
    return pl_question_unpack(q) == PL_AUTO_BYTES && q->job->mode == PL_MODE_QLORA &&
           samples * q->job->max_seq_length <= PL_UNPACK_TOKENS && q->budget.known &&
           !q->job->inference;
}

pl_err pl_autolevel_smallest(struct pl_question *q, struct pl_trials *trials, struct pl_diag *d) {
    struct search s = {.q = q, .speed = pl_speed_nominal(&q->traits), .t = trials, .d = d};
    if (pl_question_level(q) == PL_RECOMPUTE_AUTO) {
        PL_TRY(learn(&s, d));
        q->decided.gradient_checkpointing =
            pl_ladder_value(&s.ladder, pl_ladder_rungs(&s.ladder) - 1);
    }
    if (pl_autolevel_may_cut(q)) q->decided.mlp_chunk_tokens = PL_MLP_CHUNK_MIN;
    if (pl_autolevel_may_unpack(q)) q->decided.unpack_buffer = PL_UNPACK_MIN;
    return PL_ERR_OK;
}
