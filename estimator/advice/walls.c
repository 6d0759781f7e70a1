/* walls.c - how far one setting can go before the job does not fit: gallop, then bisect. */
#include "estimator/advice/advice.h"

#include "estimator/base/checked.h"
#include "estimator/config/key_table.h"

static pl_err price_at(const struct pl_question *q, enum pl_key_id key, uint32_t value,
                       struct pl_price *out, struct pl_diag *d) {
    struct pl_variant v;
    pl_variant_of(&v, q);
    PL_TRY(pl_price_put(&v, key, value, d));
    return pl_price_of(&v.q, out, d);
}

static pl_err try_value(const struct pl_question *q, uint32_t value, struct pl_wall *w, bool *fits,
                        struct pl_diag *d) {
    struct pl_price p;
    PL_TRY(price_at(q, w->key, value, &p, d));
    *fits = p.verdict == PL_VERDICT_FITS;
    if (*fits) {
        w->wall = value;
        w->wall_bytes = p.needed_bytes;
    } else {
        w->next_bytes = p.needed_bytes;
    }
    return PL_ERR_OK;
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

static pl_err price_doubling(const struct pl_question *q, struct pl_wall *w, struct pl_diag *d) {
    struct pl_price now, twice;
    if (w->now > w->limit / 2) return PL_ERR_OK;
    PL_TRY(price_at(q, w->key, w->now, &now, d));
    PL_TRY(price_at(q, w->key, 2 * w->now, &twice, d));
    w->doubling_known = true;
    w->doubling_bytes = (int64_t)(twice.needed_bytes - now.needed_bytes);
    w->doubling_fits = twice.verdict == PL_VERDICT_FITS;
    return PL_ERR_OK;
}

pl_err pl_advice_wall(const struct pl_question *q, enum pl_key_id key, struct pl_wall *out,
                      struct pl_diag *d) {
    uint32_t smallest;
    *out = (struct pl_wall){.key = key, .now = pl_price_get(q, key)};
    out->limit = limit_of(q, key, &smallest);
    PL_TRY(price_doubling(q, out, d));
    if (!q->budget.known) return PL_ERR_OK;
    uint32_t low = smallest - 1, high = out->now;
    bool fits;
    PL_TRY(try_value(q, high, out, &fits, d));
    while (fits) { /* upwards from the job's own value */
        low = high;
        if (high == out->limit) return PL_ERR_OK;
        high = high > out->limit / 2 ? out->limit : high * 2;
        PL_TRY(try_value(q, high, out, &fits, d));
    }
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        PL_TRY(try_value(q, mid, out, &fits, d));
        if (fits)
            low = mid;
        else
            high = mid;
    }
    return PL_ERR_OK;
}
