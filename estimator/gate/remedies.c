/* remedies.c - what would make it fit, each change planned for real.
 *
 * Remedies stand in the order of their ranks (change_rows.h), by how little they change what is
 * learnt: the first group not at all, the middle only the rounding, the last the experiment
 * itself. */
#include "estimator/gate/remedies.h"

#include "estimator/autobatch/sharding.h"
#include "estimator/base/text.h"
#include "estimator/config/job_values.h"
#include "estimator/search/change.h"
#include "estimator/search/secant.h"

#include <string.h>

enum {
    N_REMEDIES = 0
#define PL_REMEDY(ID, rank, JOBS, helps) +((rank) != 0)
#include "estimator/search/change_rows.h"
};
_Static_assert(N_REMEDIES + 1 <= PL_MAX_REMEDIES, "room for every remedy and the combination");

/* The remedies by rank. */
struct remedies {
    enum pl_change_id ids[N_REMEDIES];
};

static struct remedies list_remedies(void) {
    struct remedies r;
    uint32_t n = 0;
    for (int i = 0; i < PL_CHANGE_COUNT; i++) {
        if (!pl_changes[i].rank) continue;
        uint32_t at = n++;
        for (; at && pl_changes[r.ids[at - 1]].rank > pl_changes[i].rank; at--)
            r.ids[at] = r.ids[at - 1];
        r.ids[at] = (enum pl_change_id)i;
    }
    return r;
}

/* The job that every remedy is compared with. */
struct start {
    const struct pl_question *q;
    uint64_t needed_bytes;
    bool no_kernels; /* G3 of gate.h */
    struct remedies table;
    struct pl_trials *trials;
};

/* --- making one ------------------------------------------------------------------------------ */

static bool keeps_the_step(const struct pl_change *c, const struct pl_job *job) {
    return c->key == PL_KEY_batch_size && !job->inference &&
           job->optimizer_in_backward == PL_TRI_FALSE;
}

/* Makes a change of v, and what goes with it, and describes them; no words: none applies. What a
 * remedy sets is not the user's own. */
static pl_err apply(const struct start *from, enum pl_change_id id, struct pl_variant *v,
                    char *words, size_t size, struct pl_diag *d) {
    struct pl_variant was;
    struct pl_text text = PL_TEXT_IN(words, size);
    const struct pl_change *c = &pl_changes[id];
    pl_variant_of(&was, &v->q);
    pl_text_add(&text, "");
    for (; c; c = c->also ? &pl_changes[c->also] : NULL) {
        struct pl_variant with;
        pl_variant_of(&with, &v->q);
        bool has;
        PL_TRY(pl_change_made(pl_change_make(c, c->remedies, &with), "a remedy", &has, d));
        if (!has || (c->helps && !c->helps(&was.q, &with.job))) continue;
        if (text.len) pl_text_add(&text, ", ");
        pl_change_write(c, &with.q, &text);
        if (keeps_the_step(c, &with.job))
            pl_text_add(&text, " (global_batch_size keeps the step the same)");
        memcpy(with.job.given, from->q->job->given, sizeof with.job.given);
        pl_variant_of(v, &with.q);
    }
    return PL_ERR_OK;
}

/* --- pricing one ----------------------------------------------------------------------------- */

/* `sharding: auto`, which was decided for the job without the change; was: as what. */
static pl_err decide_sharding(struct pl_variant *v, uint32_t was, struct pl_diag *d) {
    struct pl_question open = v->q;
    if (v->job.given[PL_KEY_sharding] || pl_job_ranks(&v->job) == 1) return PL_ERR_OK;
    if (v->job.sharding != was) return PL_ERR_OK;
    v->job.sharding = PL_SHARDING_AUTO;
    pl_question_open(&open, &v->job, v->q.model);
    open.batch_size = v->q.batch_size;
    return pl_sharding_decide(&open, &v->job.sharding, NULL, d);
}

/* Prices a change as a user who types it would see it: what the job leaves open is decided with it,
 * but for a level that no one wrote. */
static pl_err price(const struct start *from, const struct pl_question *q, struct pl_remedy *r,
                    struct pl_diag *d) {
    struct pl_variant v;
    pl_variant_of(&v, q);
    pl_variant_smallest_level(&v);
    PL_TRY(decide_sharding(&v, from->q->job->sharding, d));
    PL_TRY(pl_price_of(&v.q, from->trials, &r->price, d));
    r->saves_bytes = (int64_t)(from->needed_bytes - r->price.needed_bytes);
    return PL_ERR_OK;
}

/* Finds the fewest layers whose inputs in host memory are enough, with the others at `full`, for a
 * question for which those of all layers are, as *r says. Where `full` itself is, all stay there.
 */
static pl_err lessen_offload(const struct start *from, const struct pl_question *all, char *text,
                             struct pl_remedy *r, struct pl_diag *d) {
    const uint32_t layers = (uint32_t)all->model->layers;
    struct pl_secant full = pl_secant_between(0, layers, pl_budget_most_needed(&all->budget));
    struct pl_remedy trial = *r;
    struct pl_variant v;
    pl_variant_of(&v, all);
    v.job.gradient_checkpointing = PL_RECOMPUTE_FULL;
    PL_TRY(price(from, &v.q, &trial, d));
    if (pl_price_fits(&trial.price)) return PL_ERR_OK;
    full.low.bytes = r->price.needed_bytes;
    full.high.bytes = trial.price.needed_bytes;
    while (!pl_secant_done(&full)) {
        const uint32_t n = pl_secant_next(&full);
        v.job.gradient_checkpointing =
            PL_RECOMPUTE_MIX(PL_RECOMPUTE_OFFLOAD, layers - n, PL_RECOMPUTE_FULL);
        PL_TRY(price(from, &v.q, &trial, d));
        const bool fits = pl_price_fits(&trial.price);
        pl_secant_tell(&full, n, trial.price.needed_bytes, fits, 0);
        if (fits) *r = trial;
    }
    if (!full.low.n) return PL_ERR_OK;
    struct pl_text level = PL_TEXT_IN(text, PL_REMEDY_TEXT);
    pl_text_add(&level, "gradient_checkpointing: ");
    pl_recompute_print(
        PL_RECOMPUTE_MIX(PL_RECOMPUTE_OFFLOAD, layers - full.low.n, PL_RECOMPUTE_FULL), &level);
    return PL_ERR_OK;
}

/* --- each, and all together ------------------------------------------------------------------ */

/* Cheaper than `full` in time: worth a row where that is enough. */
static bool only_if_it_fits(enum pl_change_id id) {
    return id == PL_CHANGE_LEVEL_LIGHT || id == PL_CHANGE_LEVEL_ATTENTION ||
           id == PL_CHANGE_LEVEL_MLP;
}

/* The remedies alone, in their order; no words: it does not apply. */
static pl_err price_each(const struct start *from, struct pl_remedy alone[N_REMEDIES],
                         struct pl_diag *d) {
    for (uint32_t i = 0; i < N_REMEDIES; i++) {
        const enum pl_change_id id = from->table.ids[i];
        struct pl_remedy *r = &alone[i];
        struct pl_variant v;
        struct pl_diag why = {0};
        bool has;
        *r = (struct pl_remedy){0};
        pl_variant_of(&v, from->q);
        PL_TRY(apply(from, id, &v, r->change, sizeof r->change, d));
        if (!r->change[0]) continue;
        PL_TRY(pl_change_planned(price(from, &v.q, r, &why), &why, &has, d));
        if (!has)
            r->change[0] = 0;
        else if (id == PL_CHANGE_LEVEL_OFFLOAD && pl_price_fits(&r->price))
            PL_TRY(lessen_offload(from, &v.q, r->change, r, d));
    }
    return PL_ERR_OK;
}

/* True if a change of `by` leaves no meaning to an earlier one of `key`, of which a combination
 * then shows nothing. */
static bool replaces(enum pl_key_id by, enum pl_key_id key) {
    static const enum pl_key_id others[][2] = {
        {PL_KEY_batch_size, PL_KEY_optimizer_in_backward},
        {PL_KEY_mode, PL_KEY_optimizer_in_backward},
        {PL_KEY_full_ft_offload, PL_KEY_offload},
        {PL_KEY_dtype, PL_KEY_base_dtype},
        {PL_KEY_optimizer, PL_KEY_moment_dtype},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i][0] == by && others[i][1] == key) return true;
    return by == key;
}

struct combination {
    struct pl_variant v;
    bool any, taken[N_REMEDIES];
    char words[N_REMEDIES][PL_REMEDY_TEXT];
};

static void take_remedy(const struct start *from, uint32_t i, struct combination *c) {
    const enum pl_change_id *ids = from->table.ids;
    for (uint32_t k = 0; k < i; k++)
        c->taken[k] &= !replaces(pl_changes[ids[i]].key, pl_changes[ids[k]].key);
    c->any = c->taken[i] = true;
}

/* The words of all that is taken, with no more layers offloaded than have to be. *useful: the row
 * has room for them. */
static pl_err describe(const struct start *from, struct combination *c, struct pl_remedy *r,
                       bool *useful, struct pl_diag *d) {
    struct pl_text text = PL_TEXT_IN(r->change, sizeof r->change);
    for (uint32_t i = 0; i < N_REMEDIES; i++) {
        if (!c->taken[i]) continue;
        if (from->table.ids[i] == PL_CHANGE_LEVEL_OFFLOAD)
            PL_TRY(lessen_offload(from, &c->v.q, c->words[i], r, d));
        pl_text_addf(&text, "%s%s", text.len ? ", " : "", c->words[i]);
    }
    *useful = !text.failed;
    return PL_ERR_OK;
}

/* Adds one change after another until it fits; kept only if it does. */
static pl_err combine(const struct start *from, const struct pl_remedy alone[N_REMEDIES],
                      struct pl_remedy *r, bool *useful, struct pl_diag *d) {
    struct combination c = {.any = false};
    *useful = false;
    pl_variant_of(&c.v, from->q);
    for (uint32_t i = 0; i < N_REMEDIES; i++) {
        const enum pl_change_id id = from->table.ids[i];
        struct pl_remedy step = alone[i]; /* as long as nothing was added before it */
        struct pl_variant next;
        struct pl_diag why = {0};
        bool has;
        if (id == PL_CHANGE_MICRO_HALF || only_if_it_fits(id)) continue;
        pl_variant_of(&next, &c.v.q);
        PL_TRY(apply(from, id, &next, c.words[i], PL_REMEDY_TEXT, d));
        if (!c.words[i][0]) continue;
        const bool priced = !c.any && step.change[0];
        const pl_err err = priced ? PL_ERR_OK : price(from, &next.q, &step, &why);
        PL_TRY(pl_change_planned(err, &why, &has, d));
        if (!has) continue;
        const bool fits = pl_price_fits(&step.price);
        if (step.saves_bytes <= (c.any ? r->saves_bytes : 0) && !fits) continue;
        pl_variant_of(&c.v, &next.q);
        *r = step;
        take_remedy(from, i, &c);
        if (fits) return describe(from, &c, r, useful, d);
    }
    return PL_ERR_OK;
}

static void fitting_first(struct pl_remedy *r, uint32_t n) {
    for (uint32_t i = 1; i < n; i++) {
        struct pl_remedy v = r[i];
        uint32_t j = i;
        for (; j > 0 && pl_price_fits(&v.price) && !pl_price_fits(&r[j - 1].price); j--)
            r[j] = r[j - 1];
        r[j] = v;
    }
}

static pl_err fill_rows(const struct start *from, struct pl_remedy out[PL_MAX_REMEDIES],
                        uint32_t *n, struct pl_diag *d) {
    struct pl_remedy alone[N_REMEDIES];
    bool any_fits = false;
    *n = 0;
    PL_TRY(price_each(from, alone, d));
    for (uint32_t i = 0; i < N_REMEDIES; i++) {
        const bool fits = pl_price_fits(&alone[i].price);
        if (!alone[i].change[0] || (alone[i].saves_bytes <= 0 && !fits)) continue;
        if ((from->no_kernels || only_if_it_fits(from->table.ids[i])) && !fits) continue;
        any_fits |= fits;
        out[(*n)++] = alone[i];
    }
    if (!any_fits && from->q->budget.known) {
        bool useful;
        PL_TRY(combine(from, alone, &out[*n], &useful, d));
        if (useful) (*n)++;
    }
    fitting_first(out, *n);
    return PL_ERR_OK;
}

pl_err pl_gate_remedies(const struct pl_question *q, const struct pl_plan *plan,
                        struct pl_remedy out[PL_MAX_REMEDIES], uint32_t *n, struct pl_diag *d) {
    struct pl_trials trials = {0};
    const struct pl_verdict v = pl_gate_judge(plan, q);
    const struct start from = {q, v.needed_bytes, v.no_kernels, list_remedies(), &trials};
    pl_err err = fill_rows(&from, out, n, d);
    pl_trials_finish(&trials);
    return err;
}
