/* walls.c - how far one setting can go before the job does not fit: gallop, then bisect. */
#include "estimator/advice/setting.h"

#include "estimator/base/checked.h"

struct search {
    const struct pl_advice_question *q;
    uint32_t batch_size;
    struct pl_wall *out;
    struct pl_diag *d;
};

static pl_err price_at(struct search *s, uint32_t value, struct pl_price *out) {
    struct pl_setting setting = pl_setting_of(s->q, s->batch_size);
    PL_TRY(pl_setting_put(&setting, s->out->key, value, s->d));
    return pl_setting_price(s->q, &setting, out, s->d);
}

static pl_err try_value(struct search *s, uint32_t value, bool *fits) {
    struct pl_price p;
    PL_TRY(price_at(s, value, &p));
    *fits = p.verdict == PL_VERDICT_FITS;
    if (*fits) {
        s->out->wall = value;
        s->out->wall_bytes = p.needed_bytes;
    } else {
        s->out->next_bytes = p.needed_bytes;
    }
    return PL_ERR_OK;
}

/* Largest value of the key for which the micro-batch stays within 31 bits of tokens. */
static uint32_t limit_of(const struct search *s, uint32_t *smallest) {
    uint32_t n;
    const struct pl_key_info *k = &pl_key_table(&n)[s->out->key];
    uint64_t bound = INT32_MAX;
    if (s->out->key == PL_KEY_batch_size) bound = INT32_MAX / s->q->job->max_seq_length;
    if (s->out->key == PL_KEY_max_seq_length) bound = INT32_MAX / s->batch_size;
    *smallest = (uint32_t)k->lo;
    return (uint32_t)pl_u64_min(bound, (uint64_t)k->hi);
}

static pl_err price_doubling(struct search *s) {
    struct pl_price now, twice;
    struct pl_wall *w = s->out;
    if (w->now > w->limit / 2) return PL_ERR_OK;
    PL_TRY(price_at(s, w->now, &now));
    PL_TRY(price_at(s, 2 * w->now, &twice));
    w->doubling_known = true;
    w->doubling_bytes = (int64_t)(twice.needed_bytes - now.needed_bytes);
    w->doubling_fits = twice.verdict == PL_VERDICT_FITS;
    return PL_ERR_OK;
}

pl_err pl_advice_wall(const struct pl_advice_question *q, uint32_t batch_size, enum pl_key_id key,
                      struct pl_wall *out, struct pl_diag *d) {
    struct search s = {q, batch_size, out, d};
    struct pl_setting now = pl_setting_of(q, batch_size);
    uint32_t smallest;
    *out = (struct pl_wall){.key = key, .now = pl_setting_get(&now, key)};
    out->limit = limit_of(&s, &smallest);
    PL_TRY(price_doubling(&s));
    if (!q->budget->known) return PL_ERR_OK;
    uint32_t low = smallest - 1, high = out->now;
    bool fits;
    PL_TRY(try_value(&s, high, &fits));
    while (fits) { /* upwards from the job's own value */
        low = high;
        if (high == out->limit) return PL_ERR_OK;
        high = high > out->limit / 2 ? out->limit : high * 2;
        PL_TRY(try_value(&s, high, &fits));
    }
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        PL_TRY(try_value(&s, mid, &fits));
        if (fits)
            low = mid;
        else
            high = mid;
    }
    return PL_ERR_OK;
}
