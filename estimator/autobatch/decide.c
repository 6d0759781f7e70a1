#include "estimator/autobatch/decide.h"

#include "estimator/autobatch/keeping.h"
#include "estimator/base/checked.h"
#include "estimator/config/job_values.h"

#include <inttypes.h>
#include <string.h>

/* --- the least of a question ----------------------------------------------------------------- */

/* The question with the least that its open keys can be; a level that is open has two of them,
 * since the last layer, rebuilt at the peak, may need more than it would keep. */
struct least {
    struct pl_question q;
    uint32_t levels[2], n_levels;
};

static pl_err find_least(const struct pl_question *q, struct pl_trials *t, struct least *out,
                         struct pl_diag *d) {
    const bool open = pl_question_level(q) == PL_RECOMPUTE_AUTO;
    *out = (struct least){.q = *q, .n_levels = 1};
    out->q.batch_size = pl_job_smallest_batch(q->job);
    PL_TRY(pl_autolevel_smallest(&out->q, t, d));
    out->q.decided.unpack_buffer = q->decided.unpack_buffer;
    out->levels[0] = pl_question_level(&out->q);
    if (!open || pl_ladder_rungs(&t->ladder) < 2) return PL_ERR_OK;
    out->levels[out->n_levels++] = pl_ladder_value(&t->ladder, pl_ladder_rungs(&t->ladder) - 2);
    return PL_ERR_OK;
}

/* *near: nothing fits, but for little more than there is, so that another choice might. */
static pl_err least_fits(const struct least *least, struct pl_trials *t, bool *out, bool *near,
                         struct pl_diag *d) {
    const uint64_t usable = pl_budget_usable(&least->q.budget), most = usable + usable / 16;
    struct pl_question trial = least->q;
    *out = *near = false;
    for (uint32_t i = 0; i < least->n_levels && !*out; i++) {
        trial.decided.gradient_checkpointing = least->levels[i];
        PL_TRY(pl_question_fits(&trial, usable, &t->held, out, d));
        *near |= t->held.plan->arena_bytes <= most;
    }
    return PL_ERR_OK;
}

typedef void set_fn(struct pl_question *q, uint64_t value);

/* The largest power of two from `value` up to `most` with which it fits; *out stays where not even
 * the first does. */
static pl_err grow(struct least *least, set_fn *set, uint64_t value, uint64_t most,
                   struct pl_trials *t, uint64_t *out, struct pl_diag *d) {
    bool fits = true, near;
    for (; fits && value <= most; value *= 2) {
        set(&least->q, value);
        PL_TRY(least_fits(least, t, &fits, &near, d));
        if (fits) *out = value;
    }
    return PL_ERR_OK;
}

/* --- what is a last resort ------------------------------------------------------------------- */

/* A key that stays open wherever anything fits without it. */
struct resort {
    pl_err (*without)(struct pl_question *q, uint32_t limit, struct pl_trials *t,
                      struct pl_text *notes, struct pl_diag *d);
    bool (*may)(const struct pl_question *q);
    /* Finds a value with which a question fits that fits with none so far; 0: none of this key. */
    pl_err (*find)(const struct pl_question *q, struct pl_trials *t, uint64_t *out,
                   struct pl_diag *d);
    set_fn *set;
    void (*tell)(const struct pl_question *q, struct pl_text *notes);
    bool keeps_gradients; /* where nothing fits: updates in the backward pass would only stand in
                           * the way of the micro-batches that a smaller step is made of */
};

/* *value: of the key, where q, which was decided without it, is not enough; else 0. */
static pl_err find_value(const struct resort *r, const struct pl_question *open,
                         struct pl_question *q, struct pl_trials *t, uint64_t *value,
                         struct pl_diag *d) {
    const bool none = t->none;
    bool enough = true;
    *value = 0;
    if (r->may(q)) {
        enough = pl_autolevel_is_open(open) && !none; /* what a search has found fits */
        if (!enough) PL_TRY(pl_question_fits(q, 0, &t->held, &enough, d));
    }
    /* no value changes anything of the job arena */
    if (!enough && t->held.plan->job_bytes <= pl_budget_usable(&q->budget))
        PL_TRY(r->find(open, t, value, d));
    if (!*value && none && r->keeps_gradients) q->decided.optimizer_in_backward = PL_TRI_FALSE;
    return PL_ERR_OK;
}

/* Notes of a decision without the key count for nothing where there is one with it. */
static pl_err decide_by(const struct resort *r, struct pl_question *q, uint32_t limit,
                        struct pl_trials *t, struct pl_text *notes, struct pl_diag *d) {
    const struct pl_question open = *q;
    struct pl_text whole = {0};
    uint64_t value;
    pl_err err = r->without(q, limit, t, notes ? &whole : NULL, d);
    if (err == PL_ERR_OK) err = find_value(r, &open, q, t, &value, d);
    if (err == PL_ERR_OK && value) {
        *q = open;
        r->set(q, value);
        err = r->without(q, limit, t, notes, d);
        if (notes) r->tell(q, notes);
    } else if (notes) {
        pl_text_add(notes, pl_text_str(&whole));
    }
    pl_text_finish(&whole);
    return err;
}

/* --- chunks of the MLP ----------------------------------------------------------------------- */

#define CHUNK_MAX 4096 /* products of more rows are no faster */

static void set_chunk(struct pl_question *q, uint64_t tokens) {
    q->decided.mlp_chunk_tokens = (uint32_t)tokens;
}

static void tell_chunk(const struct pl_question *q, struct pl_text *notes) {
    pl_text_addf(notes, "mlp_chunk_tokens: auto is `%u`: nothing fits with all tokens at once\n",
                 pl_question_mlp_chunk(q));
}

/* Every choice of level. */
static pl_err finds_any(const struct pl_question *q, uint32_t chunk, struct pl_trials *t, bool *out,
                        struct pl_diag *d) {
    struct pl_question trial = *q;
    set_chunk(&trial, chunk);
    *out = false;
    if (!pl_autolevel_is_open(q)) return PL_ERR_OK;
    PL_TRY(pl_autolevel_decide(&trial, pl_job_smallest_batch(q->job), t, NULL, d));
    *out = !t->none;
    return PL_ERR_OK;
}

/* The largest chunk with which the smallest of all else that is open fits, updates in the backward
 * pass included, or the smallest chunk if anything fits with it. */
static pl_err find_chunk(const struct pl_question *q, struct pl_trials *t, uint64_t *out,
                         struct pl_diag *d) {
    const uint64_t tokens = (uint64_t)pl_job_smallest_batch(q->job) * q->job->max_seq_length;
    struct pl_question with = *q;
    struct least least;
    bool fits, near;
    if (PL_MLP_CHUNK_MIN >= tokens) return PL_ERR_OK;
    if (q->job->optimizer_in_backward == PL_TRI_AUTO && pl_question_may_let_go(q))
        with.decided.optimizer_in_backward = PL_TRI_TRUE;
    PL_TRY(find_least(&with, t, &least, d));
    set_chunk(&least.q, PL_MLP_CHUNK_MIN);
    PL_TRY(least_fits(&least, t, &fits, &near, d));
    if (!fits && near) PL_TRY(finds_any(&with, PL_MLP_CHUNK_MIN, t, &fits, d));
    if (!fits) return PL_ERR_OK;
    *out = PL_MLP_CHUNK_MIN;
    return grow(&least, set_chunk, 2 * PL_MLP_CHUNK_MIN, pl_u64_min(CHUNK_MAX, tokens - 1), t, out,
                d);
}

static pl_err decide_chunks(struct pl_question *q, uint32_t limit, struct pl_trials *t,
                            struct pl_text *notes, struct pl_diag *d) {
    static const struct resort chunks = {pl_autolevel_decide, pl_autolevel_may_cut, find_chunk,
                                         set_chunk,           tell_chunk,           true};
    return decide_by(&chunks, q, limit, t, notes, d);
}

/* --- panels of a 4-bit base ------------------------------------------------------------------ */

#define PANELS_MAX (UINT64_C(1) << 30) /* larger than nearly all matrices */

static void set_panels(struct pl_question *q, uint64_t bytes) {
    q->decided.unpack_buffer = bytes;
}

static void tell_panels(const struct pl_question *q, struct pl_text *notes) {
    pl_text_addf(notes,
                 "unpack_buffer: auto is `%" PRIu64 "MiB`: nothing fits with whole matrices\n",
                 q->decided.unpack_buffer >> 20);
}

/* Without chunks of the MLP if anything fits so. */
static pl_err find_panels(const struct pl_question *q, struct pl_trials *t, uint64_t *out,
                          struct pl_diag *d) {
    struct least least;
    uint64_t whole = 0;
    PL_TRY(find_least(q, t, &least, d));
    PL_TRY(grow(&least, set_panels, PL_UNPACK_MIN, PANELS_MAX, t, out, d));
    if (!*out) return PL_ERR_OK;
    least.q.decided.mlp_chunk_tokens = q->decided.mlp_chunk_tokens;
    PL_TRY(grow(&least, set_panels, PL_UNPACK_MIN, PANELS_MAX, t, &whole, d));
    if (whole) *out = whole;
    return PL_ERR_OK;
}

static pl_err decide_panels(struct pl_question *q, uint32_t limit, struct pl_trials *t,
                            struct pl_text *notes, struct pl_diag *d) {
    static const struct resort panels = {
        decide_chunks, pl_autolevel_may_unpack, find_panels, set_panels, tell_panels, false};
    return decide_by(&panels, q, limit, t, notes, d);
}

/* --- the first pass of preferences ------------------------------------------------------------ */

static pl_err decide_passes(struct pl_question *q, uint32_t limit, struct pl_trials *t,
                            struct pl_text *notes, struct pl_diag *d) {
    struct pl_question kept = *q;
    struct pl_text all[2] = {{0}}, why = {0};
    /* A level may be lighter, or has to be heavier, where the first pass is kept: then all is
     * decided for both. With an open batch the pass is kept where that costs no sample. */
    if (!pl_keeping_is_open(q) || !pl_autolevel_is_open(q) || !q->budget.known ||
        q->job->batch_size == PL_AUTO) {
        PL_TRY(decide_panels(q, limit, t, notes, d));
        return q->job->batch_size == PL_AUTO ? PL_ERR_OK : pl_decide_keeping(q, NULL, notes, d);
    }
    struct pl_trials own = {0};
    kept.decided.keep_first_pass = PL_TRI_TRUE;
    pl_err err = decide_panels(&kept, limit, &own, &all[1], d);
    pl_trials_finish(&own);
    if (err == PL_ERR_OK) err = decide_panels(q, limit, t, &all[0], d);
    if (err == PL_ERR_OK) err = pl_decide_keeping(q, &kept, &why, d);
    const bool other = memcmp(&q->decided, &kept.decided, sizeof kept.decided) == 0;
    if (err == PL_ERR_OK && notes) {
        pl_text_add(notes, pl_text_str(&all[other]));
        pl_text_add(notes, pl_text_str(&why));
    }
    pl_text_finish(&all[0]);
    pl_text_finish(&all[1]);
    pl_text_finish(&why);
    return err;
}

/* --- all of it ------------------------------------------------------------------------------- */

pl_err pl_decide_levels(struct pl_question *q, uint32_t limit, struct pl_trials *trials,
                        struct pl_text *notes, struct pl_diag *d) {
    struct pl_trials own = {0};
    q->decided.keep_unpacked = PL_TRI_AUTO;
    pl_err err = decide_passes(q, limit, trials ? trials : &own, notes, d);
    pl_trials_finish(&own);
    if (err != PL_ERR_OK || q->job->batch_size == PL_AUTO) return err;
    return pl_decide_copies(q, notes, d);
}

pl_err pl_decide_recommended(struct pl_question *q, uint32_t limit, struct pl_planned *held,
                             struct pl_diag *d) {
    struct pl_autobatch search;
    struct pl_variant v;
    if (!q->budget.known || q->job->given[PL_KEY_gradient_checkpointing] ||
        pl_question_level(q) == PL_RECOMPUTE_FULL)
        return PL_ERR_OK;
    pl_variant_of(&v, q);
    v.job.gradient_checkpointing = PL_RECOMPUTE_FULL;
    PL_TRY(pl_autobatch_find(&v.q, limit, held, &search, d));
    if (search.batch_size <= q->recommended) return PL_ERR_OK;
    q->recommended = search.batch_size;
    q->recommended_level = PL_RECOMPUTE_FULL;
    return PL_ERR_OK;
}

pl_err pl_decide(struct pl_question *q, uint32_t limit, struct pl_autobatch *search,
                 struct pl_text *notes, struct pl_diag *d) {
    const uint32_t useful = (uint32_t)pl_u64_min(limit, pl_autobatch_limit(q->job));
    *search = (struct pl_autobatch){0};
    struct pl_trials trials = {0};
    q->decided.keep_unpacked = PL_TRI_AUTO;
    pl_err err = decide_passes(q, useful, &trials, notes, d);
    const struct pl_found *found = &trials.found;
    if (err == PL_ERR_OK && found->next_bytes) {
        *search = (struct pl_autobatch){found->batch_size, found->bytes, found->next_bytes, {0}};
        err = pl_question_plan(q, &trials.held, &search->planned, d);
    } else if (err == PL_ERR_OK && q->budget.known) {
        err = pl_autobatch_solve(q, limit, &trials.held, search, d);
    }
    q->recommended = search->batch_size;
    q->batch_size = q->job->batch_size;
    if (err == PL_ERR_OK && q->batch_size != PL_AUTO)
        err = pl_decide_recommended(q, limit, &trials.held, d);
    pl_trials_finish(&trials);
    PL_TRY(err);
    if (q->batch_size == PL_AUTO) {
        q->batch_size = (uint32_t)pl_u64_min(q->recommended ? q->recommended : 1, useful);
        PL_TRY(pl_decide_keeping(q, NULL, notes, d));
    }
    return pl_decide_copies(q, notes, d);
}

pl_err pl_decide_again(struct pl_question *q, uint64_t limit, struct pl_trials *trials,
                       struct pl_diag *d) {
    struct pl_variant v;
    pl_variant_of(&v, q);
    pl_job_fix_batch(&v.job, q->batch_size, pl_question_accumulation(q) > 1);
    pl_question_open(&v.q, &v.job, q->model);
    PL_TRY(pl_decide_levels(&v.q, q->batch_size, trials, NULL, d));
    q->decided = v.q.decided;
    return pl_question_measure_within(q, limit, &trials->held, d);
}
