/* autolevel.c - the fastest rung and chunk that fit, by bisection over exact plans.
 *
 * For one chunk the largest batch that fits rises with the rung. A range of rungs is left out when
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

#define CHUNK_MIN      128
#define CHUNK_MAX      PL_LADDER_TOKENS /* products of more rows are no faster */
#define CHUNK_MIN_GAIN 0.001            /* of a token's time, to be worth more logits */
/* Every chunk reads and writes the gradient of a trained head, and rounds it where it is narrow:
 * chunks of so many rows are worth their logits whatever the layers take. */
#define CHUNK_OF_TRAINED_HEAD 1024

struct choice {
    uint32_t rung, chunk, batch_size; /* batch_size 0: nothing fits yet */
    bool next;                        /* one more does not fit */
    double seconds;                   /* of a token */
};

#define MOST_TIMED 32
#define ROUNDINGS  1e-9 /* of sums of seconds in another order, as a share of them */

struct timed {
    uint32_t rung, chunk, batch_size; /* batch_size 0: nothing yet */
    double seconds;
};

struct heads {           /* seconds of a token's head with each chunk, but for a constant */
    uint32_t batch_size; /* 0: not known */
    double seconds[PL_MAX_CHUNKS];
};

struct search {
    const struct pl_question *q;
    uint32_t limit;                 /* of the batch */
    struct timed timed[MOST_TIMED]; /* the latest */
    uint32_t n_timed;               /* ever */
    struct heads heads;
    struct pl_speed speed;
    struct pl_ladder ladder;
    uint32_t chunk; /* at hand */
    struct choice best;
    struct pl_trials *t;
    struct pl_diag *d;
};

struct end { /* of a range of rungs, with the largest batch that fits there; 0 = none */
    uint32_t rung, batch_size;
    uint64_t bytes;  /* of that batch; 0: not planned */
    bool infeasible; /* the batch of the job does not fit, whatever the chunk */
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
    trial.decided.loss_chunk_tokens = s->chunk;
    return trial;
}

/* Returns the plan that a rung may resize: another batch or chunk of the same rung needs no more.
 * Whole levels and the rungs before them come again with every batch and every chunk. */
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
    const struct choice c = {at.rung, s->chunk, at.batch_size, next, seconds};
    const struct choice *b = &s->best;
    if (s->t->most_seconds > 0 && seconds > s->t->most_seconds) return;
    bool same = seconds >= b->seconds && seconds <= b->seconds;
    bool simpler = c.rung < b->rung || (c.rung == b->rung && c.chunk < b->chunk);
    if (!b->batch_size || seconds < b->seconds || (same && simpler)) s->best = c;
}

static void remember(struct search *s, uint32_t rung, uint32_t batch_size, double seconds) {
    s->timed[s->n_timed++ % MOST_TIMED] = (struct timed){rung, s->chunk, batch_size, seconds};
}

static bool fails_next(const struct pl_secant *range, uint32_t batch_size) {
    return range->high.bytes && range->high.n == batch_size + 1;
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

static pl_err try_batch(struct search *s, struct end at, struct pl_secant *range,
                        const struct pl_plan **plan, double *seconds) {
    PL_TRY(try_end(s, at, range->usable, plan, seconds));
    const bool fits = (*plan)->arena_bytes <= range->usable;
    pl_secant_tell(range, at.batch_size, bytes_of(*plan, fits), fits,
                   pl_autobatch_slope(*plan, at.batch_size));
    return PL_ERR_OK;
}

/* True if no chunk fits: the tensors that are alive at the peak, besides buffers of a chunk and
 * scratch, are so with any chunk, and they alone exceed the budget. */
static bool no_chunk_fits(const struct search *s, const struct pl_plan *plan) {
    const struct pl_program *p = plan->program;
    const uint64_t *live = plan->phases[plan->peak_phase].live;
    uint64_t of_chunks = live[PL_CATEGORY_LOGITS] + live[PL_CATEGORY_WORKSPACE];
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct pl_tensor *t = &p->tensors[i];
        if (t->rows == PL_ROWS_TARGETS && t->dims[0] == p->chunk_tokens) of_chunks += t->bytes;
    }
    uint64_t least = plan->job_bytes;
    for (int c = 0; c < PL_CATEGORY_COUNT; c++)
        least += live[c];
    return least > of_chunks && least - of_chunks > pl_budget_usable(&s->q->budget);
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
        PL_TRY(try_batch(s, next, &range, &plan, &seconds));
        at->infeasible = own && !range.low.bytes && no_chunk_fits(s, plan);
    }
    if (!range.low.bytes) return PL_ERR_OK;
    at->batch_size = range.low.n;
    at->bytes = range.low.bytes;
    offer(s, *at, fails_next(&range, at->batch_size), seconds);
    return PL_ERR_OK;
}

/* Layers that the head is to be built with: as many as leave it a gradient to make or none. */
static uint64_t layers_below_head(const struct pl_model *m, const struct pl_job_shape *shape) {
    uint64_t n = pl_u64_min(shape->freeze_layers, m->layers);
    while (pl_mode_adapts(shape->mode) && n < m->layers && !pl_shape_adapted_rows(shape, n))
        n++;
    return n < m->layers ? n + 1 : m->layers;
}

/* Finds the seconds of a token with each chunk, less what all chunks have in common: of a model
 * that is cut off as low as the head allows. */
static pl_err head_seconds(struct search *s, uint32_t batch, uint32_t n, const uint32_t *list,
                           double *out) {
    struct pl_question trial = trial_of(s, 0, batch);
    struct pl_model low = *s->q->model;
    struct pl_job_shape shape;
    PL_TRY(pl_question_shape(&trial, &shape, s->d));
    low.layers = layers_below_head(s->q->model, &shape);
    for (uint32_t i = 0; i < n; i++) {
        struct pl_program *p;
        trial.decided.loss_chunk_tokens = list[i];
        shape.loss_chunk_tokens = pl_question_chunk(&trial);
        PL_TRY(pl_program_create_brief(&low, &shape, &s->q->traits, &p, s->d));
        out[i] = pl_program_seconds_per_token(p, &s->speed);
        pl_program_destroy(&p);
    }
    return PL_ERR_OK;
}

static double head_of(const struct search *s, uint32_t chunk) {
    uint32_t i = 0;
    while (s->t->chunks[i] != chunk)
        i++;
    return s->heads.seconds[i];
}

static const struct timed *find_timed(const struct search *s, uint32_t rung, uint32_t batch_size) {
    for (uint32_t i = s->n_timed; i-- > 0 && i + MOST_TIMED >= s->n_timed;) {
        const struct timed *t = &s->timed[i % MOST_TIMED];
        if (t->rung == rung && t->batch_size == batch_size) return t;
    }
    return NULL;
}

/* Bounds the time of a rung whose time with another chunk is known: only the head's is another, and
 * that takes a fraction of the whole program to find out. *least: a little less than it is, for
 * roundings. */
static pl_err time_again(struct search *s, const struct timed *known, double *least) {
    if (s->heads.batch_size != known->batch_size) {
        s->heads.batch_size = known->batch_size;
        PL_TRY(head_seconds(s, known->batch_size, s->t->n_chunks, s->t->chunks, s->heads.seconds));
    }
    const double more = head_of(s, s->chunk) - head_of(s, known->chunk);
    *least = (known->seconds + more) * (1 - ROUNDINGS);
    return PL_ERR_OK;
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
    const bool exact = known && known->chunk == s->chunk;
    double least = exact ? known->seconds : 0;
    *out = false;
    if (!most || bound <= 0) return PL_ERR_OK;
    if (known && !exact) PL_TRY(time_again(s, known, &least));
    if (!exact && least <= bound) PL_TRY(time_of(s, rung, most, &least));
    *out = least > bound;
    return PL_ERR_OK;
}

/* Finds the most samples of an end, which takes at least `sure`, as a lower rung with the same
 * chunk does. The samples that it took with a larger chunk have not been offered with this one. */
static pl_err raise_end(struct search *s, struct end *at, uint32_t sure) {
    const uint32_t from = at->batch_size > sure ? at->batch_size : sure;
    struct pl_secant one = pl_secant_between(0, from + 1, pl_budget_usable(&s->q->budget));
    const struct pl_plan *plan;
    double seconds = 0;
    bool slow;
    if (at->infeasible) return PL_ERR_OK;
    at->batch_size = from;
    at->bytes = 0;
    PL_TRY(raise_batch(s, at, s->limit));
    if (at->batch_size > from || from == sure) return PL_ERR_OK;
    PL_TRY(is_too_slow(s, at->rung, from, &slow));
    if (slow) return PL_ERR_OK;
    PL_TRY(try_batch(s, *at, &one, &plan, &seconds));
    at->bytes = one.low.bytes;
    if (one.low.bytes) offer(s, *at, fails_next(&one, from), seconds);
    return PL_ERR_OK;
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

/* True if the best is between two rungs, with the samples of the higher one and the chunk at hand:
 * then the rungs below it are faster. */
static bool best_is_between(const struct search *s, struct end low, struct end high) {
    const struct choice *b = &s->best;
    return b->batch_size == high.batch_size && b->chunk == s->chunk && b->rung > low.rung &&
           b->rung <= high.rung;
}

/* The lowest rung above `low` that takes the samples of `high`, counted from there downwards. With
 * another chunk it is mostly the rung that was found before. */
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

/* A smaller chunk leaves room, so the batches of the chunk before are where this one begins. The
 * largest of all batches, of the uppermost rungs, tells when the rest need not be looked at. */
static pl_err search_chunk(struct search *s, uint32_t chunk, struct ends *e) {
    const uint32_t top = s->ladder.n_levels - 1;
    s->chunk = chunk;
    if (s->q->job->batch_size != PL_AUTO) return search_levels(s, e);
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

/* --- chunks ---------------------------------------------------------------------------------- */

static uint32_t insert_rule(uint32_t *list, uint32_t n, uint32_t rule) {
    uint32_t at = n;
    while (at && list[at - 1] >= rule)
        at--;
    if (at < n && list[at] == rule) return n;
    memmove(list + at + 1, list + at, (n - at) * sizeof *list);
    list[at] = rule;
    return n + 1;
}

static bool trains_head(const struct pl_program *p, const struct pl_model *m) {
    const uint32_t own = pl_program_find(p, PL_ROLE_WEIGHT, PL_SLOT_HEAD, PL_NONE);
    const uint32_t head = own == PL_NONE && m->tied
                              ? pl_program_find(p, PL_ROLE_WEIGHT, PL_SLOT_EMBED, PL_NONE)
                              : own;
    return head != PL_NONE && p->tensors[head].trainable;
}

/* Drops the chunks above the rule's, which list[at] is, that gain too little time. */
static pl_err drop_useless(struct search *s, uint32_t at, uint32_t *list, uint32_t *n) {
    double head[PL_MAX_CHUNKS], last;
    uint32_t kept = at + 1;
    s->chunk = list[at];
    const struct pl_question trial = trial_of(s, 0, pl_ladder_batch(s->q));
    PL_TRY(pl_question_sketch(&trial, &s->t->held, s->d));
    const struct pl_program *p = s->t->held.program;
    const double rule = pl_program_first_seconds(p, &s->speed) / (double)p->tokens;
    const uint32_t sure = trains_head(p, s->q->model) ? CHUNK_OF_TRAINED_HEAD : 0;
    PL_TRY(head_seconds(s, pl_ladder_batch(s->q), *n - at, list + at, head));
    last = rule;
    for (uint32_t i = at + 1; i < *n; i++) {
        const double seconds = rule + head[i - at] - head[0];
        const double gain = list[i] <= sure ? 0 : CHUNK_MIN_GAIN;
        if (seconds > last * (1 - gain)) continue;
        last = seconds;
        list[kept++] = list[i];
    }
    *n = kept;
    return PL_ERR_OK;
}

static uint32_t rule_of(const struct pl_question *q) {
    return (uint32_t)pl_program_auto_chunk(q->model, pl_question_dtype(q), CHUNK_MAX);
}

static pl_err list_chunks(const struct pl_question *q, struct pl_trials *t,
                          uint32_t out[PL_MAX_CHUNKS], uint32_t *n, struct pl_diag *d) {
    const uint32_t level = pl_question_level(q); /* costs every chunk the same */
    *n = 1;
    out[0] = pl_question_chunk(q);
    if (out[0] != PL_AUTO) return PL_ERR_OK;
    struct search s = {
        .q = q,
        .speed = pl_speed_nominal(&q->traits),
        .ladder = {.levels = {level == PL_RECOMPUTE_AUTO ? PL_RECOMPUTE_FULL : level},
                   .n_levels = 1},
        .t = t,
        .d = d};
    *n = 0;
    for (uint32_t c = CHUNK_MIN; c <= CHUNK_MAX; c *= 2)
        out[(*n)++] = c;
    *n = insert_rule(out, *n, rule_of(q));
    uint32_t at = 0;
    while (out[at] != rule_of(q))
        at++;
    return drop_useless(&s, at, out, n);
}

pl_err pl_autolevel_chunks(const struct pl_question *q, uint32_t out[PL_MAX_CHUNKS], uint32_t *n,
                           struct pl_diag *d) {
    struct pl_trials t = {0};
    pl_err err = list_chunks(q, &t, out, n, d);
    pl_trials_finish(&t);
    return err;
}

/* --- what trials know already ----------------------------------------------------------------- */

/* The question as far as rungs and chunks follow from it. */
static pl_err key_of(const struct pl_question *q, struct pl_trials_key *out, struct pl_diag *d) {
    struct pl_question plain = *q;
    plain.batch_size = pl_ladder_batch(q);
    memset(out, 0, sizeof *out);
    out->chunk = pl_question_chunk(&plain);
    plain.decided.gradient_checkpointing = PL_RECOMPUTE_AUTO;
    plain.decided.loss_chunk_tokens = PL_AUTO;
    out->model = q->model;
    out->backend = q->traits.backend;
    out->sm = q->traits.sm;
    out->threads = q->traits.threads;
    out->level = pl_question_level(q);
    return pl_question_shape(&plain, &out->shape, d);
}

/* Rungs and chunks of the question, which no budget, no batch size and no decision on chunks of the
 * MLP or on panels changes. */
static pl_err learn(struct search *s, struct pl_diag *d) {
    struct pl_trials *t = s->t;
    struct pl_trials_key key;
    struct pl_question whole = *s->q;
    whole.decided.mlp_chunk_tokens = PL_AUTO;
    whole.decided.unpack_buffer = PL_AUTO_BYTES;
    PL_TRY(key_of(&whole, &key, d));
    if (!t->n_chunks || memcmp(&key, &t->key, sizeof key) != 0) {
        t->n_chunks = 0;
        PL_TRY(pl_ladder_init(&t->ladder, &whole, &t->held, d));
        PL_TRY(list_chunks(&whole, t, t->chunks, &t->n_chunks, d));
        t->key = key;
    }
    s->ladder = t->ladder;
    return PL_ERR_OK;
}

/* --- the decision ---------------------------------------------------------------------------- */

/* Takes the choice over into the question. */
static void settle(const struct search *s, struct pl_question *q, bool level, bool chunk) {
    if (level) q->decided.gradient_checkpointing = pl_ladder_value(&s->ladder, s->best.rung);
    if (chunk) q->decided.loss_chunk_tokens = s->best.chunk;
}

/* True if the bytes that no level and no chunk changes exceed the budget already. */
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

static uint32_t smallest_chunk(const struct pl_question *q) {
    return (uint32_t)pl_u64_min(CHUNK_MIN, rule_of(q));
}

/* With one level there is nothing to look for where nothing can fit. */
static pl_err give_up(struct search *s, bool *out, struct pl_diag *d) {
    struct pl_question smallest = *s->q;
    *out = false;
    if (pl_question_level(s->q) == PL_RECOMPUTE_AUTO) return PL_ERR_OK;
    smallest.decided.loss_chunk_tokens = smallest_chunk(s->q);
    smallest.batch_size = pl_job_smallest_batch(s->q->job);
    PL_TRY(pl_question_sketch(&smallest, &s->t->held, d));
    *out = is_infeasible(s->t->held.program, &s->q->budget);
    s->best.chunk = smallest.decided.loss_chunk_tokens;
    return PL_ERR_OK;
}

/* With one level and one batch: chunk by chunk from the fastest on. */
static pl_err search_chunks(struct search *s) {
    const uint32_t n = s->t->n_chunks;
    double seconds[PL_MAX_CHUNKS];
    bool fits, tried[PL_MAX_CHUNKS] = {false};
    PL_TRY(head_seconds(s, s->limit, n, s->t->chunks, seconds));
    for (uint32_t left = n; left && !s->best.batch_size; left--) {
        uint32_t next = n;
        for (uint32_t i = 0; i < n; i++)
            if (!tried[i] && (next == n || seconds[i] < seconds[next])) next = i;
        tried[next] = true;
        s->chunk = s->t->chunks[next];
        const struct pl_question trial = trial_of(s, 0, s->limit);
        PL_TRY(pl_question_fits(&trial, 0, &s->t->held, &fits, s->d));
        if (fits)
            s->best = (struct choice){.chunk = s->chunk, .batch_size = s->limit};
        else if (no_chunk_fits(s, s->t->held.plan))
            return PL_ERR_OK;
    }
    return PL_ERR_OK;
}

static pl_err search_all(struct search *s, struct pl_diag *d) {
    bool infeasible;
    PL_TRY(give_up(s, &infeasible, d));
    if (infeasible) return PL_ERR_OK;
    PL_TRY(learn(s, d));
    s->best = (struct choice){.chunk = s->t->chunks[0]};
    if (s->ladder.n_levels == 1 && s->q->job->batch_size != PL_AUTO) return search_chunks(s);
    struct ends e = ends_of(&s->ladder);
    s->best = (struct choice){.rung = pl_ladder_rungs(&s->ladder) - 1, .chunk = s->t->chunks[0]};
    for (uint32_t i = s->t->n_chunks; i-- > 0;)
        PL_TRY(search_chunk(s, s->t->chunks[i], &e));
    return PL_ERR_OK;
}

/* Writes the result, with its bytes and those of one sample more where that one does not fit. */
static pl_err find_next(struct search *s, struct pl_found *out) {
    s->chunk = s->best.chunk;
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
    const bool level = pl_question_level(q) == PL_RECOMPUTE_AUTO;
    const bool chunk = pl_question_chunk(q) == PL_AUTO;
    if (!level && !chunk) return PL_ERR_OK;
    if (job->inference || !q->budget.known) { /* has no backward pass; or nothing to choose by */
        if (level) q->decided.gradient_checkpointing = PL_RECOMPUTE_FULL;
        return PL_ERR_OK;
    }
    const struct pl_question open = *q;
    struct search s = {.q = &open,
                       .limit = job->batch_size != PL_AUTO ? job->batch_size : limit,
                       .speed = pl_speed_nominal(&q->traits),
                       .t = t,
                       .d = d};
    s.limit = (uint32_t)pl_u64_min(s.limit, pl_question_most_samples(q));
    PL_TRY(search_all(&s, d));
    t->none = !s.best.batch_size;
    settle(&s, q, level, chunk);
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
    return pl_question_level(q) == PL_RECOMPUTE_AUTO || pl_question_chunk(q) == PL_AUTO;
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
    const bool chunk = pl_question_chunk(q) == PL_AUTO;
    if (pl_question_level(q) == PL_RECOMPUTE_AUTO) {
        PL_TRY(learn(&s, d));
        q->decided.gradient_checkpointing =
            pl_ladder_value(&s.ladder, pl_ladder_rungs(&s.ladder) - 1);
    }
    if (chunk) q->decided.loss_chunk_tokens = smallest_chunk(q);
    if (pl_autolevel_may_cut(q)) q->decided.mlp_chunk_tokens = PL_MLP_CHUNK_MIN;
    if (pl_autolevel_may_unpack(q)) q->decided.unpack_buffer = PL_UNPACK_MIN;
    return PL_ERR_OK;
}
