/* recommend.c - plans the ways there are to run a job and puts them in order. */
#include "estimator/advice/recommend.h"

#include "estimator/advice/advice.h"
#include "estimator/advice/parts.h"
#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/card/cards.h"
#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"
#include "estimator/config/meaning.h"
#include "estimator/config/validate.h"
#include "estimator/gate/gate.h"
#include "estimator/program/cost.h"
#include "estimator/search/change.h"

#include <stdlib.h>

/* --- ways ------------------------------------------------------------------------------------ */

#define BIT(change) (UINT64_C(1) << PL_CHANGE_##change)
_Static_assert(PL_CHANGE_COUNT <= 64, "a bit for every change");

#define SMALL_ADAPTERS (BIT(ADAPTER) | BIT(STATES))
#define SMALL_TRAINING (BIT(GRADIENTS) | BIT(STATES))
#define SMALLEST_FULL  (SMALL_TRAINING | BIT(MASTER))
#define BF16_TRAINING  (BIT(GRADIENTS) | BIT(MOMENTS))

#define TO_THE_HOST                                                                                \
    (BIT(EMBEDDING_HOST) | BIT(LEVEL_OFFLOAD) | BIT(OFFLOAD_STATES) | BIT(OFFLOAD_WEIGHTS) |       \
     BIT(OFFLOAD_ALL))

/* Sets of rows of change_rows.h, in the order of how much they change. */
static const uint64_t ways[] = {
    0,
    BIT(IN_BACKWARD),
    BIT(GRADIENTS),
    BIT(MOMENTS),
    BIT(MOMENTS) | BIT(IN_BACKWARD),
    BF16_TRAINING,
    BIT(STATES),
    BIT(STATES) | BIT(IN_BACKWARD),
    SMALL_TRAINING,
    SMALL_ADAPTERS,
    BF16_TRAINING | BIT(MASTER),
    BIT(MOMENTS) | BIT(MASTER) | BIT(IN_BACKWARD),
    SMALLEST_FULL,
    BIT(STATES) | BIT(MASTER) | BIT(IN_BACKWARD),
    BIT(HEAD_4BIT) | SMALL_ADAPTERS,
    BIT(EMBEDDING_4BIT) | SMALL_ADAPTERS,
    BIT(EMBEDDING_4BIT) | BIT(HEAD_4BIT) | SMALL_ADAPTERS,
    BIT(TO_QLORA),
    BIT(TO_QLORA) | BIT(STATES),
    BIT(TO_QLORA) | SMALL_ADAPTERS,
    BIT(TO_QLORA) | BIT(HEAD_4BIT) | SMALL_ADAPTERS,
    BIT(TO_QLORA) | BIT(EMBEDDING_4BIT) | SMALL_ADAPTERS,
    BIT(TO_QLORA) | BIT(EMBEDDING_4BIT) | BIT(HEAD_4BIT) | SMALL_ADAPTERS,
    BIT(LOSS_CHUNK_SMALL) | SMALLEST_FULL,
    BIT(LOSS_CHUNK_SMALL) | SMALL_ADAPTERS,
    BIT(LOSS_CHUNK_SMALL) | BIT(TO_QLORA) | BIT(EMBEDDING_4BIT) | BIT(HEAD_4BIT) | SMALL_ADAPTERS,
    BIT(PACKING),
    BIT(PACKING) | BF16_TRAINING,
    BIT(PACKING) | BIT(STATES),
    BIT(PACKING) | SMALL_ADAPTERS,
    BIT(PACKING) | SMALLEST_FULL,
    BIT(PACKING) | BIT(TO_QLORA),
    BIT(PACKING) | BIT(TO_QLORA) | SMALL_ADAPTERS,
    BIT(EMBEDDING_HOST),
    BIT(LEVEL_OFFLOAD),
    BIT(LEVEL_OFFLOAD) | BIT(EMBEDDING_HOST),
    BIT(OFFLOAD_STATES),
    BIT(OFFLOAD_STATES) | BIT(LEVEL_OFFLOAD),
    BIT(OFFLOAD_STATES) | SMALL_TRAINING,
    BIT(OFFLOAD_WEIGHTS),
    BIT(OFFLOAD_WEIGHTS) | BIT(LEVEL_OFFLOAD),
    BIT(OFFLOAD_WEIGHTS) | BIT(LEVEL_OFFLOAD) | SMALL_ADAPTERS,
    BIT(OFFLOAD_ALL),
    BIT(OFFLOAD_ALL) | BIT(LEVEL_OFFLOAD),
    BIT(OFFLOAD_ALL) | SMALL_TRAINING,
    BIT(OFFLOAD_ALL) | BIT(LEVEL_OFFLOAD) | SMALLEST_FULL,
    BIT(LOSS_CHUNK_SMALL) | BIT(OFFLOAD_WEIGHTS) | BIT(LEVEL_OFFLOAD) | SMALL_ADAPTERS,
    BIT(LOSS_CHUNK_SMALL) | BIT(OFFLOAD_ALL) | BIT(LEVEL_OFFLOAD) | SMALLEST_FULL,
    BIT(OFFLOAD_STATES) | BIT(IN_BACKWARD),
    BIT(OFFLOAD_STATES) | BIT(IN_BACKWARD) | BIT(STATES) | BIT(MASTER),
    BIT(OFFLOAD_STATES) | BIT(IN_BACKWARD) | BIT(STATES) | BIT(MASTER) | BIT(MOMENTS),
    BIT(OFFLOAD_ALL) | BIT(IN_BACKWARD),
    BIT(OFFLOAD_ALL) | BIT(IN_BACKWARD) | BIT(STATES),
    BIT(OFFLOAD_ALL) | BIT(IN_BACKWARD) | BIT(STATES) | BIT(MASTER),
    BIT(OFFLOAD_ALL) | BIT(IN_BACKWARD) | BIT(STATES) | BIT(MASTER) | BIT(MOMENTS),
    BIT(PACKING) | BIT(OFFLOAD_STATES),
    BIT(PACKING) | BIT(OFFLOAD_WEIGHTS),
    BIT(PACKING) | BIT(OFFLOAD_ALL),
    BIT(TO_QLORA) | BIT(EMBEDDING_HOST),
    BIT(TO_QLORA) | BIT(LEVEL_OFFLOAD),
    BIT(TO_QLORA) | BIT(OFFLOAD_WEIGHTS),
    BIT(TO_QLORA) | BIT(OFFLOAD_WEIGHTS) | BIT(LEVEL_OFFLOAD) | SMALL_ADAPTERS,
};
#define N_WAYS (sizeof ways / sizeof *ways)
_Static_assert(N_WAYS <= PL_MAX_WAYS, "room for every way");

/* Stages in the order of preference: all on the device, there in 4 bits, some of it on the host,
 * in 4 bits too. */
enum { STAGES = 4 };
static uint32_t stage_of(uint64_t changes) {
    return (changes & TO_THE_HOST ? 2 : 0) + (changes & BIT(TO_QLORA) ? 1 : 0);
}

/* With all of it on the device, the level and the micro-batch open, and the step as it is asked. */
static void open_job(const struct pl_advice *a, struct pl_job *job) {
    *job = *a->q.job;
    job->offload = PL_OFFLOAD_NONE;
    job->full_ft_offload = false;
    job->embedding_device = PL_EMBEDDING_DEVICE;
    job->given[PL_KEY_offload] = job->given[PL_KEY_full_ft_offload] = false;
    job->given[PL_KEY_embedding_device] = false;
    job->gradient_checkpointing = PL_RECOMPUTE_AUTO;
    job->max_seq_length = a->length;
    job->given[PL_KEY_mode] = job->given[PL_KEY_max_seq_length] = true;
}

/* True if a step is one micro-batch, by the way or by the user. */
static bool updates_in_backward(const struct pl_advice *a, uint64_t mask) {
    return mask & BIT(IN_BACKWARD) || a->q.job->optimizer_in_backward == PL_TRI_TRUE;
}

/* Samples of the smallest micro-batch: all of a step where nothing may wait for the rest of it. */
static uint32_t first_batch(const struct pl_advice *a, uint64_t mask) {
    const uint32_t samples = updates_in_backward(a, mask) ? pl_advice_step_samples(a) : 0;
    return samples ? samples : 1;
}

static void set_step(uint32_t samples, uint32_t batch, struct pl_job *job) {
    job->batch_size = batch;
    job->given[PL_KEY_batch_size] = true;
    if (samples) pl_advice_set_step(samples, job);
}

static pl_err make(enum pl_change_id id, struct pl_variant *v) {
    if (!pl_job_key_applies(&v->job, pl_changes[id].key)) return PL_ERR_CONFIG_CONFLICT;
    return pl_change_make(&pl_changes[id], pl_changes[id].ways, v);
}

/* The mode first: other changes have a meaning in it. */
static pl_err make_way(const struct pl_advice *a, uint64_t mask, struct pl_job *job) {
    struct pl_variant v;
    pl_variant_of(&v, &a->q);
    open_job(a, &v.job);
    if (updates_in_backward(a, mask))
        set_step(pl_advice_step_samples(a), first_batch(a, mask), &v.job);
    if (mask & BIT(TO_QLORA)) PL_TRY(make(PL_CHANGE_TO_QLORA, &v));
    for (int c = 0; c < PL_CHANGE_COUNT; c++)
        if (c != PL_CHANGE_TO_QLORA && (mask >> c & 1)) PL_TRY(make((enum pl_change_id)c, &v));
    *job = v.job;
    return pl_job_validate(job, NULL);
}

/* --- the price of one ------------------------------------------------------------------------ */

static bool is_within_host(const struct pl_recommendation *r, const struct pl_way *w) {
    return !r->host_limit || w->price.host_bytes <= r->host_limit;
}

static bool fits(const struct pl_recommendation *r, const struct pl_way *w) {
    return pl_price_fits(&w->price) && is_within_host(r, w);
}

/* Decides *q as the smallest of what is open. limit: PL_BOUND_ALONE, whether it may fit; else what
 * is usable, whether it does. */
static pl_err fits_smallest(struct pl_question *q, uint64_t limit, struct pl_trials *t, bool *out,
                            struct pl_diag *d) {
    PL_TRY(pl_autolevel_smallest(q, t, d));
    return pl_question_fits(q, limit, &t->held, out, d);
}

/* Whole matrices first, whose plans are smaller. *least: what is open as the least of it, where
 * that does not fit either. */
static pl_err fits_least(const struct pl_question *q, uint64_t limit, struct pl_trials *t,
                         struct pl_question *least, bool *out, struct pl_diag *d) {
    *least = *q;
    least->decided.unpack_buffer = 0;
    *out = false;
    if (pl_autolevel_may_unpack(q)) PL_TRY(fits_smallest(least, limit, t, out, d));
    if (*out) return PL_ERR_OK;
    *least = *q;
    return fits_smallest(least, limit, t, out, d);
}

/* Decides what is open: as the least of it where not even that fits, else as the fastest that does,
 * so that nothing is looked for where there is nothing. limit: as for pl_decide_again(). *fits:
 * something does. */
static pl_err decide_way(struct pl_variant *v, uint64_t limit, struct pl_trials *t, bool *fits,
                         struct pl_diag *d) {
    const struct pl_question open = v->q;
    const uint64_t usable = pl_budget_usable(&open.budget);
    struct pl_question least;
    PL_TRY(fits_least(&open, PL_BOUND_ALONE, t, &least, fits, d));
    if (*fits) {
        PL_TRY(pl_decide_again(&v->q, limit, t, d));
        if (t->held.plan->arena_bytes <= usable) return PL_ERR_OK;
        PL_TRY(fits_least(&open, usable, t, &least, fits, d));
    }
    if (!*fits) v->q.decided = least.decided;
    return PL_ERR_OK;
}

/* Slots of a step; 0: whatever fits. */
static uint32_t step_slots(const struct pl_advice *a, const struct pl_way *w) {
    const uint32_t samples = pl_advice_step_samples(a);
    return w->changes & BIT(PACKING) ? (uint32_t)(samples / w->slot.samples) : samples;
}

/* The share of the update in the time of a token. */
static double update_share(const struct pl_advice *a, const struct pl_way *w) {
    return w->price.update_seconds / ((double)w->job.batch_size * a->length * w->steps);
}

static void set_batch(const struct pl_advice *a, uint32_t batch, struct pl_way *w) {
    set_step(step_slots(a, w), batch, &w->job);
    w->steps = pl_job_accumulation(&w->job, batch);
}

/* Decides `auto` before the way is planned: a way with updates in the backward pass sets the key.
 */
static void keep_gradients(struct pl_job *job) {
    if (job->optimizer_in_backward == PL_TRI_AUTO) job->optimizer_in_backward = PL_TRI_FALSE;
}

/* The question that a way is. */
static void question_of(const struct pl_advice *a, const struct pl_way *w, struct pl_variant *v) {
    pl_variant_open(v, &a->q, &w->job);
    keep_gradients(&v->job);
}

static pl_err measure_way(struct pl_advice *a, const struct pl_question *q, uint64_t limit,
                          struct pl_way *w, struct pl_diag *d) {
    PL_TRY(pl_price_measure(q, limit, &a->trials, &w->price, d));
    w->seconds = w->price.seconds_per_token + update_share(a, w);
    return PL_ERR_OK;
}

/* With this micro-batch; what is open is decided and written into the job. With a limit bytes are
 * no more than what the verdict takes, and a way that does not fit has nothing but that. */
static pl_err price_way(struct pl_advice *a, uint32_t batch, uint64_t limit, struct pl_way *w,
                        struct pl_diag *d) {
    struct pl_variant v;
    const uint32_t in_backward = w->job.optimizer_in_backward;
    bool any;
    set_batch(a, batch, w);
    question_of(a, w, &v);
    PL_TRY(decide_way(&v, limit, &a->trials, &any, d));
    w->price.verdict = PL_VERDICT_NO;
    if (limit && !any) return PL_ERR_OK;
    pl_price_raise_ceiling(a->trials.held.program, &w->job);
    v.job = w->job;
    keep_gradients(&v.job);
    PL_TRY(measure_way(a, &v.q, limit, w, d));
    pl_price_settle(&v.q, &w->job);
    w->job.optimizer_in_backward = in_backward;
    return PL_ERR_OK;
}

static uint32_t next_batch(uint32_t batch, uint32_t samples) {
    if (!samples) return 2 * batch;
    do
        batch++;
    while (batch < samples && samples % batch);
    return batch;
}

/* Seconds of a token, without the update, from which on a larger micro-batch of the same way is not
 * worth it; a little more, which roundings do not reach. 0: the first one is in any case. */
static double worth_it(const struct pl_advice *a, const struct pl_way *best, uint32_t batch) {
    struct pl_way at = *best;
    if (!best->job.batch_size) return 0;
    set_batch(a, batch, &at);
    return (best->seconds * (1 - PL_WAY_GAIN) - update_share(a, &at)) * (1 + 1e-9);
}

/* W4: a rank computes its share of a step. */
static uint32_t most_samples(const struct pl_advice *a, uint32_t samples) {
    const uint64_t share = samples / pl_job_ranks(a->q.job),
                   limit = pl_question_most_samples(&a->q);
    return (uint32_t)pl_u64_min(samples ? pl_u64_max(share, 1) : PL_BATCH_LIMIT, limit);
}

/* The range of micro-batches, from the first to the largest there may be. */
struct batches {
    uint32_t first, most, slots; /* slots of a step; 0: any */
};

static struct batches batches_of(const struct pl_advice *a, const struct pl_way *w) {
    const uint32_t slots = step_slots(a, w);
    return (struct batches){first_batch(a, w->changes), most_samples(a, slots), slots};
}

/* From the fewest samples on, as long as it fits and more samples are worth it. batch_size of *w
 * is 0 where none fits. */
static pl_err find_batch(struct pl_advice *a, const struct pl_recommendation *r, struct pl_way *w,
                         struct pl_diag *d) {
    const struct batches b = batches_of(a, w);
    const struct pl_way open = *w;
    const uint64_t limit = r->host_limit ? 0 : pl_budget_usable(&a->q.budget);
    *w = (struct pl_way){0};
    for (uint32_t batch = b.first; batch <= b.most; batch = next_batch(batch, b.slots)) {
        struct pl_way at = open;
        if (w->job.batch_size && batch < 2 * w->job.batch_size) continue;
        a->trials.most_seconds = worth_it(a, w, batch);
        pl_err err = price_way(a, batch, limit, &at, d);
        a->trials.most_seconds = 0;
        PL_TRY(err);
        if (!fits(r, &at)) break;
        w->saturated =
            w->job.batch_size && (a->trials.none || at.seconds > w->seconds * (1 - PL_WAY_GAIN));
        if (w->saturated) break;
        *w = at;
    }
    if (!w->job.batch_size) return PL_ERR_OK;
    struct pl_variant v;
    question_of(a, w, &v);
    return measure_way(a, &v.q, 0, w, d); /* a price with a limit may have no bytes */
}

/* --- what slots hold ------------------------------------------------------------------------- */

/* False: there is nothing to pack, or one packed slot holds more samples than a step. */
static bool load_slots(const struct pl_advice *a, struct pl_way *w) {
    const uint32_t samples = pl_advice_step_samples(a);
    const bool packs = w->changes & BIT(PACKING);
    if (!a->lengths) return !packs;
    w->slot = w->job.packing
                  ? pl_lengths_packed(a->lengths, a->length, samples ? samples : UINT32_MAX)
                  : pl_lengths_slot(a->lengths, a->length);
    if (!packs) return true;
    return w->slot.samples > 1 && (!samples || samples >= w->slot.samples);
}

/* Nothing is padded, so a micro-batch takes the time of the tokens that are in it. */
static pl_err time_data(struct pl_advice *a, struct pl_way *w, struct pl_diag *d) {
    struct pl_variant v;
    if (!w->slot.samples) return PL_ERR_OK;
    question_of(a, w, &v);
    PL_TRY(pl_question_sketch(&v.q, &a->trials.held, d));
    const struct pl_program *p = a->trials.held.program;
    const struct pl_speed speed = pl_speed_nominal(&p->traits);
    const double tokens = w->job.batch_size * w->slot.tokens;
    const struct pl_load load = {1, tokens, tokens, w->slot.length, pl_job_precomputes(&w->job)};
    w->seconds =
        (pl_program_load_seconds(p, &speed, &load) + w->price.update_seconds / w->steps) / tokens;
    return PL_ERR_OK;
}

/* --- all of them ----------------------------------------------------------------------------- */

/* Adds the way where it fits. One that needs more than there is without any activation does not. */
static pl_err try_way(struct pl_advice *a, struct pl_way *w, struct pl_recommendation *r,
                      struct pl_diag *d) {
    struct pl_variant v;
    bool infeasible;
    question_of(a, w, &v);
    PL_TRY(pl_autolevel_is_infeasible(&v.q, &a->trials, &infeasible, d));
    if (infeasible) return PL_ERR_OK;
    PL_TRY(find_batch(a, r, w, d));
    if (!w->job.batch_size) return PL_ERR_OK;
    PL_TRY(time_data(a, w, d));
    r->ways[r->n_ways++] = *w;
    return PL_ERR_OK;
}

/* Prices a way of which nothing fits, with its smallest micro-batch. */
static pl_err weigh_way(struct pl_advice *a, struct pl_way *w, struct pl_recommendation *r,
                        struct pl_diag *d) {
    const struct batches b = batches_of(a, w);
    if (b.first > b.most) return PL_ERR_OK;
    PL_TRY(price_way(a, b.first, 0, w, d));
    const uint64_t least = r->least.price.needed_bytes;
    if (is_within_host(r, w) && (!least || w->price.needed_bytes < least)) r->least = *w;
    return PL_ERR_OK;
}

typedef pl_err (*way_fn)(struct pl_advice *a, struct pl_way *w, struct pl_recommendation *r,
                         struct pl_diag *d);

static pl_err with_way(struct pl_advice *a, size_t i, way_fn handle, struct pl_recommendation *r,
                       struct pl_diag *d) {
    struct pl_way w = {.changes = ways[i], .stage = stage_of(ways[i])};
    struct pl_diag why = {0};
    bool has;
    PL_TRY(pl_change_made(make_way(a, ways[i], &w.job), "a way to run a job", &has, d));
    if (!has || !load_slots(a, &w)) return PL_ERR_OK;
    return pl_change_planned(handle(a, &w, r, &why), &why, &has, d);
}

/* Nothing is gained by less memory where everything is kept and more samples are not worth it, and
 * the way takes no time to save memory. */
static bool has_room(const struct pl_recommendation *r) {
    const struct pl_way *last = r->n_ways ? &r->ways[r->n_ways - 1] : NULL;
    return last && !(last->changes & BIT(IN_BACKWARD)) &&
           last->job.gradient_checkpointing == PL_RECOMPUTE_NONE && last->saturated;
}

/* The stage that has the answer, and the first way of a later one as an alternative. */
static pl_err try_all(struct pl_advice *a, struct pl_recommendation *r, struct pl_diag *d) {
    for (uint32_t stage = 0; stage < STAGES; stage++) {
        const uint32_t before = r->n_ways;
        for (size_t i = 0; i < N_WAYS; i++) {
            if (stage_of(ways[i]) != stage) continue;
            const bool packs = ways[i] & BIT(PACKING);
            if (r->n_ways > before && (before || (!packs && has_room(r)))) continue;
            PL_TRY(with_way(a, i, try_way, r, d));
        }
        if (before && r->n_ways > before) break;
    }
    return PL_ERR_OK;
}

/* The first stages first, as try_all() does. On a GPU without kernels another GPU runs the first
 * way. */
static pl_err weigh_all(struct pl_advice *a, struct pl_recommendation *r, struct pl_diag *d) {
    for (uint32_t stage = 0; stage < STAGES; stage++)
        for (size_t i = 0; i < N_WAYS; i++) {
            if (stage_of(ways[i]) != stage) continue;
            if (r->no_kernels && r->least.price.needed_bytes) return PL_ERR_OK;
            PL_TRY(with_way(a, i, weigh_way, r, d));
        }
    return PL_ERR_OK;
}

/* --- their order ----------------------------------------------------------------------------- */

static void swap(struct pl_way *a, struct pl_way *b) {
    const struct pl_way t = *a;
    *a = *b;
    *b = t;
}

/* Moves the least changed way of the first stage to the front, among those that are about as fast
 * as any of that stage. */
static void put_best_first(struct pl_recommendation *r) {
    double fastest = 0;
    for (uint32_t i = 0; i < r->n_ways && r->ways[i].stage == r->ways[0].stage; i++)
        if (fastest <= 0 || r->ways[i].seconds < fastest) fastest = r->ways[i].seconds;
    for (uint32_t i = 0; i < r->n_ways; i++) {
        if (r->ways[i].seconds * (1 - PL_WAY_GAIN) > fastest) continue;
        for (; i; i--)
            swap(&r->ways[i], &r->ways[i - 1]);
        return;
    }
}

static bool comes_before(const struct pl_way *a, const struct pl_way *b) {
    return a->stage != b->stage ? a->stage < b->stage : a->seconds < b->seconds;
}

/* The second alternative is of another stage where there is one: another card's worth of memory
 * rather than another rounding. */
static void order(struct pl_recommendation *r) {
    if (!r->n_ways) return;
    put_best_first(r);
    for (uint32_t i = 2; i < r->n_ways; i++)
        for (uint32_t k = i; k > 1 && comes_before(&r->ways[k], &r->ways[k - 1]); k--)
            swap(&r->ways[k], &r->ways[k - 1]);
    for (uint32_t i = 2; i < r->n_ways && r->ways[1].stage == r->ways[0].stage; i++) {
        if (r->ways[i].stage == r->ways[0].stage) continue;
        for (; i > 2; i--)
            swap(&r->ways[i], &r->ways[i - 1]);
        break;
    }
    for (uint32_t i = 0; i < r->n_ways; i++)
        r->ways[i].relative_time = r->ways[i].seconds / r->ways[0].seconds;
}

/* --- what would be needed -------------------------------------------------------------------- */

/* On another GPU `dtype: auto` is decided anew, and a limit of this one's memory says nothing. */
static struct pl_job job_elsewhere(const struct pl_job *asked, const struct pl_job *least) {
    struct pl_job job = *least; /* shallow */
    job.dtype = asked->dtype;
    job.given[PL_KEY_dtype] = asked->given[PL_KEY_dtype];
    job.vram_budget = PL_AUTO_BYTES;
    job.given[PL_KEY_vram_budget] = job.path && job.place[PL_KEY_vram_budget].line;
    return job;
}

static pl_err find_card(const struct pl_advice *a, struct pl_recommendation *r, struct pl_diag *d) {
    size_t n;
    uint64_t smallest = 0;
    struct pl_advice least = {0};
    const struct pl_card *cards = pl_card_table(&n);
    least.q = a->q;
    r->card_job = job_elsewhere(a->q.job, &r->least.job);
    pl_question_open(&least.q, &r->card_job, a->q.model);
    PL_TRY(pl_advice_cards(&least, d));
    for (uint32_t i = 0; i < least.n_cards; i++) {
        const struct pl_card_row *c = &least.cards[i];
        if (c->verdict != PL_VERDICT_FITS || !c->runs) continue;
        if (cards[i].kind == PL_CARD_MIG) continue;
        if (r->card && c->usable_bytes >= smallest) continue;
        r->card = c->name;
        smallest = c->usable_bytes;
    }
    return PL_ERR_OK;
}

/* Recommends for another job on this card. */
static pl_err recommend_other(const struct pl_advice *a, const struct pl_job *job,
                              uint64_t host_limit, struct pl_recommendation *out,
                              struct pl_diag *d) {
    struct pl_advice other = {
        .q = a->q, .length = a->length, .effective_batch = a->effective_batch};
    pl_question_open(&other.q, job, a->q.model);
    const pl_err err = pl_recommend(&other, host_limit, out, d);
    pl_trials_finish(&other.trials);
    return err;
}

/* With adapters, where all of the model was to be trained. */
static pl_err find_mode(const struct pl_advice *a, struct pl_recommendation *r, struct pl_diag *d) {
    struct pl_job job = *a->q.job; /* shallow */
    struct pl_recommendation found;
    if (job.mode != PL_MODE_FULL || r->no_kernels) return PL_ERR_OK;
    job.mode = PL_MODE_LORA;
    PL_TRY(pl_job_drop_useless(&job, NULL, d));
    PL_TRY(recommend_other(a, &job, r->host_limit, &found, d));
    if (found.n_ways) r->other = found.ways[0];
    pl_recommendation_finish(&found);
    return PL_ERR_OK;
}

/* With more host memory, where a limit was given. */
static pl_err find_host(const struct pl_advice *a, struct pl_recommendation *r, struct pl_diag *d) {
    struct pl_recommendation found;
    if (!r->host_limit || r->no_kernels) return PL_ERR_OK;
    PL_TRY(recommend_other(a, a->q.job, 0, &found, d));
    for (uint32_t i = 0; i < found.n_ways; i++) {
        const struct pl_way *w = &found.ways[i];
        if (!r->host.job.batch_size || w->price.host_bytes < r->host.price.host_bytes) r->host = *w;
    }
    pl_recommendation_finish(&found);
    return PL_ERR_OK;
}

static pl_err find_needed(struct pl_advice *a, struct pl_recommendation *r, struct pl_diag *d) {
    struct pl_wall w;
    struct pl_variant v;
    if (!r->least.price.needed_bytes) return PL_ERR_OK;
    pl_variant_open(&v, &a->q, &r->least.job);
    if (!r->no_kernels) PL_TRY(pl_advice_wall(&v.q, PL_KEY_max_seq_length, &a->trials, &w, d));
    if (!r->no_kernels) r->longest = w.wall;
    PL_TRY(find_mode(a, r, d));
    PL_TRY(find_host(a, r, d));
    return find_card(a, r, d);
}

pl_err pl_recommend(struct pl_advice *a, uint64_t host_limit, struct pl_recommendation *out,
                    struct pl_diag *d) {
    pl_err err = PL_ERR_OK;
    *out = (struct pl_recommendation){.host_limit = host_limit, .length = a->length};
    if (!a->q.budget.known) return PL_ERR_OK;
    out->no_kernels = !pl_question_has_kernels(&a->q);
    out->ways = pl_calloc(PL_MAX_WAYS, sizeof *out->ways);
    if (!out->ways) return pl_host_oom(d, "the ways to run a job");
    if (!out->no_kernels) PL_TRY_GOTO(try_all(a, out, d), out);
    if (!out->n_ways) PL_TRY_GOTO(weigh_all(a, out, d), out);
    order(out);
    if (!out->n_ways) err = find_needed(a, out, d);
out:
    if (err != PL_ERR_OK) pl_recommendation_finish(out);
    return err;
}

pl_err pl_recommend_row(const struct pl_fleet_row *row, uint32_t length,
                        struct pl_recommendation *out, struct pl_diag *d) {
    *out = (struct pl_recommendation){.length = length};
    out->ways = pl_calloc(1, sizeof *out->ways);
    if (!out->ways) return pl_host_oom(d, "the ways to run a job");
    out->ways[out->n_ways++] = (struct pl_way){
        .job = row->job, .price = row->price, .steps = row->steps, .relative_time = 1};
    out->ways[0].price.host_bytes = 0;
    return PL_ERR_OK;
}

void pl_recommendation_finish(struct pl_recommendation *r) {
    free(r->ways);
    *r = (struct pl_recommendation){0};
}
