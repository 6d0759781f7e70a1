/* walls.c - how far one setting can go before the job does not fit. */
#include "estimator/advice/advice.h"

#include "estimator/base/checked.h"
#include "estimator/config/key_table.h"
#include "estimator/search/secant.h"

struct axis { /* one setting of a question */
    const struct pl_question *q;
    enum pl_key_id key;
    struct pl_trials *t;
};

static pl_err price_at(const struct axis *x, uint32_t value, struct pl_price *out,
                       struct pl_diag *d) {
    struct pl_variant v;
    pl_variant_of(&v, x->q);
    PL_TRY(pl_change_put(&v, x->key, value, d));
    return pl_price_bytes(&v.q, x->t, out, d);
}

/* Largest value of the key for which the question can be asked. */
static uint32_t limit_of(const struct pl_question *q, enum pl_key_id key, uint32_t *smallest) {
    uint32_t n;
    const struct pl_key_info *k = &pl_key_table(&n)[key];
    const uint64_t most = pl_question_most_tokens(q);
    uint64_t bound = INT32_MAX;
    if (key == PL_KEY_batch_size) bound = most / q->job->max_seq_length;
    if (key == PL_KEY_max_seq_length) bound = most / q->batch_size;
    *smallest = (uint32_t)k->lo;
    return (uint32_t)pl_u64_min(bound, (uint64_t)k->hi);
}

static void tell(struct pl_secant *s, uint32_t value, const struct pl_price *p, struct pl_wall *w) {
    if (value <= s->low.n || value >= s->high.n) return;
    pl_secant_tell(s, value, p->needed_bytes, p->verdict == PL_VERDICT_FITS, 0);
    if (s->high.n == value) w->next_verdict = p->verdict;
}

/* Both plans are the first two of the search as well. */
static pl_err price_doubling(const struct axis *x, struct pl_wall *w, struct pl_secant *s,
                             struct pl_diag *d) {
    struct pl_price now, twice;
    if (w->now > w->limit) return PL_ERR_OK;
    PL_TRY(price_at(x, w->now, &now, d));
    tell(s, w->now, &now, w);
    if (w->now > w->limit / 2) return PL_ERR_OK;
    PL_TRY(price_at(x, 2 * w->now, &twice, d));
    tell(s, 2 * w->now, &twice, w);
    w->doubling_known = true;
    w->doubling_bytes = (int64_t)(twice.needed_bytes - now.needed_bytes);
    w->doubling_fits = twice.verdict == PL_VERDICT_FITS;
    return PL_ERR_OK;
}

pl_err pl_advice_wall(const struct pl_question *q, enum pl_key_id key, struct pl_trials *t,
                      struct pl_wall *out, struct pl_diag *d) {
    const struct axis x = {q, key, t};
    uint32_t smallest;
    *out = (struct pl_wall){.key = key, .now = pl_change_get(q, key)};
    out->limit = limit_of(q, key, &smallest);
    struct pl_secant s = pl_secant_between(smallest - 1, out->limit + 1,
                                           pl_budget_usable(&q->budget) + q->budget.context_bytes);
    PL_TRY(price_doubling(&x, out, &s, d));
    while (q->budget.known && !pl_secant_done(&s)) {
        const uint32_t value = pl_secant_next(&s);
        struct pl_price p;
        PL_TRY(price_at(&x, value, &p, d));
        tell(&s, value, &p, out);
    }
    if (!q->budget.known) return PL_ERR_OK;
    out->wall = s.low.bytes ? s.low.n : 0;
    out->wall_bytes = s.low.bytes;
    out->next_bytes = s.high.bytes;
    return PL_ERR_OK;
}
