/* walls.c - how far one setting can go before the job does not fit. */
#include "estimator/advice/advice.h"

#include "estimator/config/key_table.h"
#include "estimator/search/secant.h"

struct axis { /* one setting of a question */
    const struct pl_question *q;
    enum pl_key_id key;
    struct pl_trials *t;
};

/* Prices a value; it is one of the search where that is open for it. */
static pl_err try_value(const struct axis *x, uint32_t value, struct pl_secant *s,
                        struct pl_wall *w, struct pl_price *out, struct pl_diag *d) {
    struct pl_variant v;
    pl_variant_of(&v, x->q);
    pl_variant_smallest_level(&v);
    PL_TRY(pl_change_put(&v, x->key, value, d));
    PL_TRY(pl_price_of(&v.q, x->t, out, d));
    if (value <= s->low.n || value >= s->high.n) return PL_ERR_OK;
    pl_secant_tell(s, value, out->needed_bytes, pl_price_fits(out), 0);
    if (s->high.n == value) w->next_verdict = out->verdict;
    return PL_ERR_OK;
}

/* Both plans are the first two of the search as well. */
static pl_err price_doubling(const struct axis *x, struct pl_wall *w, struct pl_secant *s,
                             struct pl_diag *d) {
    struct pl_price now, twice;
    if (w->now > w->limit) return PL_ERR_OK;
    PL_TRY(try_value(x, w->now, s, w, &now, d));
    if (w->now > w->limit / 2) return PL_ERR_OK;
    PL_TRY(try_value(x, 2 * w->now, s, w, &twice, d));
    w->doubling_known = true;
    w->doubling_bytes = (int64_t)(twice.needed_bytes - now.needed_bytes);
    w->doubling_fits = pl_price_fits(&twice);
    return PL_ERR_OK;
}

pl_err pl_advice_wall(const struct pl_question *q, enum pl_key_id key, struct pl_trials *t,
                      struct pl_wall *out, struct pl_diag *d) {
    const struct axis x = {q, key, t};
    uint32_t n;
    const uint32_t below = (uint32_t)pl_key_table(&n)[key].lo - 1;
    *out =
        (struct pl_wall){.key = key, .now = pl_change_get(q, key), .limit = pl_change_most(q, key)};
    struct pl_secant s =
        pl_secant_between(below, out->limit + 1, pl_budget_most_needed(&q->budget));
    PL_TRY(price_doubling(&x, out, &s, d));
    if (!q->budget.known) return PL_ERR_OK;
    while (!pl_secant_done(&s)) {
        struct pl_price price;
        PL_TRY(try_value(&x, pl_secant_next(&s), &s, out, &price, d));
    }
    out->wall = s.low.bytes ? s.low.n : 0;
    out->wall_bytes = s.low.bytes;
    out->next_bytes = s.high.bytes;
    return PL_ERR_OK;
}
