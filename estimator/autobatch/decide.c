#include "estimator/autobatch/decide.h"

#include "estimator/base/checked.h"
#include "estimator/config/job_values.h"

#include <inttypes.h>

/* --- chunks of the MLP ----------------------------------------------------------------------- */

#define CHUNK_MAX 4096 /* products of more rows are no faster */

/* The smallest micro-batch that the job can have. */
static uint32_t least_samples(const struct pl_question *q) {
    return q->job->batch_size == PL_AUTO ? 1 : q->job->batch_size;
}

/* What is open of a question, as the least that it can be; a level that is open has two of them,
 * since the last layer, rebuilt at the peak, may need more than it would keep. */
struct least {
    struct pl_question q;
    uint32_t levels[2], n_levels;
};

static pl_err find_least(const struct pl_question *q, struct pl_trials *t, struct least *out,
                         struct pl_diag *d) {
    const bool open = pl_question_level(q) == PL_RECOMPUTE_AUTO;
    *out = (struct least){.q = *q, .n_levels = 1};
    out->q.batch_size = least_samples(q);
    PL_TRY(pl_autolevel_smallest(&out->q, t, d));
    out->q.unpack_bytes = q->unpack_bytes;
    out->levels[0] = pl_question_level(&out->q);
    if (!open || pl_ladder_rungs(&t->ladder) < 2) return PL_ERR_OK;
    out->levels[out->n_levels++] = pl_ladder_value(&t->ladder, pl_ladder_rungs(&t->ladder) - 2);
    return PL_ERR_OK;
}

/* *near: nothing fits, but for little more than there is, so that another choice might. */
static pl_err fits_cut(const struct least *least, uint32_t chunk, struct pl_trials *t, bool *out,
                       bool *near, struct pl_diag *d) {
    const uint64_t usable = pl_budget_usable(&least->q.budget), most = usable + usable / 16;
    struct pl_question trial = least->q;
    *out = *near = false;
    trial.mlp_chunk_tokens = chunk;
    for (uint32_t i = 0; i < least->n_levels && !*out; i++) {
        trial.recompute = least->levels[i];
        PL_TRY(pl_question_fits(&trial, usable, &t->held, out, d));
        *near |= t->held.plan->arena_bytes <= most;
    }
    return PL_ERR_OK;
}

/* Every choice of level and chunk of the loss. */
static pl_err finds_any(const struct pl_question *q, uint32_t chunk, struct pl_trials *t, bool *out,
                        struct pl_diag *d) {
    struct pl_question trial = *q;
    trial.mlp_chunk_tokens = chunk;
    *out = false;
    if (!pl_autolevel_is_open(q)) return PL_ERR_OK;
    PL_TRY(pl_autolevel_decide(&trial, least_samples(q), t, NULL, d));
    *out = !t->none;
    return PL_ERR_OK;
}

/* The largest chunk with which the smallest of all else that is open fits, or the smallest chunk if
 * anything fits with it; 0: nothing does. */
static pl_err find_chunk(const struct pl_question *q, struct pl_trials *t, uint32_t *out,
                         struct pl_diag *d) {
    const uint64_t tokens = (uint64_t)least_samples(q) * q->job->max_seq_length;
    struct least least;
    uint32_t chunk = PL_MLP_CHUNK_MIN;
    bool fits, near;
    *out = 0;
    if (chunk >= tokens) return PL_ERR_OK;
    PL_TRY(find_least(q, t, &least, d));
    PL_TRY(fits_cut(&least, chunk, t, &fits, &near, d));
    if (!fits && near) PL_TRY(finds_any(q, chunk, t, &fits, d));
    if (fits) *out = chunk;
    while (fits && chunk < CHUNK_MAX && 2 * chunk < tokens) {
        chunk *= 2;
        PL_TRY(fits_cut(&least, chunk, t, &fits, &near, d));
        if (fits) *out = chunk;
    }
    return PL_ERR_OK;
}

/* A search that found something knows that it fits. */
static pl_err is_enough(const struct pl_question *q, bool searched, struct pl_trials *t, bool *out,
                        struct pl_diag *d) {
    *out = searched && !t->none;
    return *out ? PL_ERR_OK : pl_question_fits(q, 0, &t->held, out, d);
}

/* Of a question that is not enough, whose plan is held: chunks change nothing of the job arena. */
static bool is_hopeless(const struct pl_question *q, const struct pl_trials *t) {
    return t->held.plan->job_bytes > pl_budget_usable(&q->budget);
}

/* Updates in the backward pass, as the least of a question has them. */
static void let_go(struct pl_question *q) {
    if (q->job->optimizer_in_backward == PL_TRI_AUTO && pl_question_may_let_go(q))
        q->in_backward = PL_TRI_TRUE;
}

/* notes: of a decision without chunks, which counts for nothing where there is one with them. */
static pl_err find_cut(struct pl_question *q, uint32_t limit, struct pl_trials *t,
                       struct pl_text *notes, bool *cut, bool *none, struct pl_diag *d) {
    const struct pl_question open = *q;
    struct pl_question least = *q;
    const bool searched = pl_autolevel_is_open(q);
    uint32_t chunk;
    bool enough;
    *cut = false;
    PL_TRY(pl_autolevel_decide(q, limit, t, notes, d));
    *none = t->none;
    if (!pl_autolevel_may_cut(q)) return PL_ERR_OK;
    PL_TRY(is_enough(q, searched, t, &enough, d));
    if (enough || is_hopeless(q, t)) return PL_ERR_OK;
    let_go(&least);
    PL_TRY(find_chunk(&least, t, &chunk, d));
    *cut = chunk != 0;
    if (!*cut) return PL_ERR_OK;
    *q = open;
    q->mlp_chunk_tokens = chunk;
    return PL_ERR_OK;
}

/* What does not make the job fit is not taken: updates in the backward pass would only stand in the
 * way of the micro-batches that a smaller step is made of. */
static pl_err decide_cut(struct pl_question *q, uint32_t limit, struct pl_trials *t,
                         struct pl_text *notes, bool *cut, struct pl_diag *d) {
    bool none;
    PL_TRY(find_cut(q, limit, t, notes, cut, &none, d));
    if (!*cut && none) q->in_backward = PL_TRI_FALSE;
    return PL_ERR_OK;
}

static pl_err decide_chunks(struct pl_question *q, uint32_t limit, struct pl_trials *t,
                            struct pl_text *notes, struct pl_diag *d) {
    struct pl_text whole = {0};
    bool cut;
    pl_err err = decide_cut(q, limit, t, notes ? &whole : NULL, &cut, d);
    if (err == PL_ERR_OK && cut) {
        err = pl_autolevel_decide(q, limit, t, notes, d);
        if (notes)
            pl_text_addf(notes,
                         "mlp_chunk_tokens: auto is `%u`: nothing fits with all tokens at once\n",
                         pl_question_mlp_chunk(q));
    } else if (notes) {
        pl_text_add(notes, pl_text_str(&whole));
    }
    pl_text_finish(&whole);
    return err;
}

/* --- panels of a 4-bit base ------------------------------------------------------------------ */

#define PANELS_MAX (UINT64_C(1) << 30) /* larger than nearly all matrices */

/* The largest panels with which `least`, in so many tokens of the MLP at a time, fits; 0: none. */
static pl_err grow_panels(struct least *least, uint32_t chunk, struct pl_trials *t, uint64_t *out,
                          struct pl_diag *d) {
    bool fits = true, near;
    *out = 0;
    for (uint64_t bytes = PL_UNPACK_MIN; fits && bytes <= PANELS_MAX; bytes *= 2) {
        least->q.unpack_bytes = bytes;
        PL_TRY(fits_cut(least, chunk, t, &fits, &near, d));
        if (fits) *out = bytes;
    }
    return PL_ERR_OK;
}

/* Of a question with which nothing fits; 0: nothing does with panels either. */
static pl_err find_panels(const struct pl_question *q, struct pl_trials *t, uint64_t *out,
                          struct pl_diag *d) {
    struct least least;
    uint64_t in_chunks;
    PL_TRY(find_least(q, t, &least, d));
    PL_TRY(grow_panels(&least, least.q.mlp_chunk_tokens, t, &in_chunks, d));
    *out = 0;
    if (in_chunks) PL_TRY(grow_panels(&least, q->mlp_chunk_tokens, t, out, d));
    if (!*out) *out = in_chunks;
    return PL_ERR_OK;
}

/* notes: of a decision with whole matrices, which counts for nothing where there is one in
 * panels. */
static pl_err decide_panels(struct pl_question *q, uint32_t limit, struct pl_trials *t,
                            struct pl_text *notes, uint64_t *bytes, struct pl_diag *d) {
    const struct pl_question open = *q;
    bool enough;
    *bytes = 0;
    PL_TRY(decide_chunks(q, limit, t, notes, d));
    if (!pl_autolevel_may_unpack(q)) return PL_ERR_OK;
    PL_TRY(is_enough(q, pl_autolevel_is_open(&open), t, &enough, d));
    if (enough || is_hopeless(q, t)) return PL_ERR_OK;
    PL_TRY(find_panels(&open, t, bytes, d));
    if (!*bytes) return PL_ERR_OK;
    *q = open;
    q->unpack_bytes = *bytes;
    return PL_ERR_OK;
}

static pl_err decide_levels(struct pl_question *q, uint32_t limit, struct pl_trials *t,
                            struct pl_text *notes, struct pl_diag *d) {
    struct pl_text whole = {0};
    uint64_t bytes;
    pl_err err = decide_panels(q, limit, t, notes ? &whole : NULL, &bytes, d);
    if (err == PL_ERR_OK && bytes) {
        err = decide_chunks(q, limit, t, notes, d);
        if (notes)
            pl_text_addf(notes,
                         "unpack_buffer: auto is `%" PRIu64
                         "MiB`: nothing fits with whole matrices\n",
                         bytes >> 20);
    } else if (notes) {
        pl_text_add(notes, pl_text_str(&whole));
    }
    pl_text_finish(&whole);
    return err;
}

pl_err pl_decide_levels(struct pl_question *q, uint32_t limit, struct pl_trials *trials,
                        struct pl_text *notes, struct pl_diag *d) {
    struct pl_trials own = {0};
    pl_err err = decide_levels(q, limit, trials ? trials : &own, notes, d);
    pl_trials_finish(&own);
    return err;
}

/* --- all of it ------------------------------------------------------------------------------- */

pl_err pl_decide(struct pl_question *q, uint32_t limit, struct pl_autobatch *search,
                 struct pl_text *notes, struct pl_diag *d) {
    const uint32_t useful = (uint32_t)pl_u64_min(limit, pl_autobatch_limit(q->job));
    *search = (struct pl_autobatch){0};
    struct pl_trials trials = {0};
    pl_err err = pl_decide_levels(q, useful, &trials, notes, d);
    const struct pl_found *found = &trials.found;
    if (err == PL_ERR_OK && found->next_bytes) {
        *search = (struct pl_autobatch){found->batch_size, found->bytes, found->next_bytes, {0}};
        err = pl_question_plan(q, &trials.held, &search->planned, d);
    } else if (err == PL_ERR_OK && q->budget.known) {
        err = pl_autobatch_solve(q, limit, &trials.held, search, d);
    }
    pl_trials_finish(&trials);
    PL_TRY(err);
    q->recommended = search->batch_size;
    q->batch_size = q->job->batch_size;
    if (q->batch_size == PL_AUTO)
        q->batch_size = (uint32_t)pl_u64_min(q->recommended ? q->recommended : 1, useful);
    return PL_ERR_OK;
}

pl_err pl_decide_again(struct pl_question *q, uint64_t limit, struct pl_trials *trials,
                       struct pl_diag *d) {
    struct pl_variant v;
    pl_variant_of(&v, q);
    pl_job_fix_batch(&v.job, q->batch_size, pl_question_accumulation(q) > 1);
    pl_question_open(&v.q, &v.job, q->model);
    PL_TRY(pl_decide_levels(&v.q, q->batch_size, trials, NULL, d));
    pl_question_take(q, &v.q);
    return pl_question_measure_within(q, limit, &trials->held, d);
}
