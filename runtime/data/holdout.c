#include "runtime/data/holdout.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"

#include <math.h>
#include <stdlib.h>

static int by_number(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static pl_err reserve(struct pl_holdout *h, uint64_t n, struct pl_diag *d) {
    uint64_t bytes;
    *h = (struct pl_holdout){0};
    if (!n) return PL_ERR_OK;
    if (pl_u64_mul(n, sizeof *h->rows, &bytes) && bytes <= SIZE_MAX)
        h->rows = pl_malloc((size_t)bytes);
    return h->rows ? PL_ERR_OK : pl_host_oom(d, "rows that are left out");
}

pl_err pl_holdout_untrained(struct pl_holdout *h, const struct pl_data *data, struct pl_diag *d) {
    uint64_t n = 0;
    for (uint64_t row = 0; row < pl_data_rows(data); row++)
        n += pl_data_tokens(data, row) == 0;
    PL_TRY(reserve(h, n, d));
    for (uint64_t row = 0; h->n < n; row++)
        if (pl_data_tokens(data, row) == 0) h->rows[h->n++] = row;
    return PL_ERR_OK;
}

pl_err pl_holdout_draw(struct pl_holdout *h, const struct pl_data *data,
                       const struct pl_holdout *out, uint64_t n, uint64_t seed, struct pl_diag *d) {
    static const struct pl_holdout none;
    const struct pl_holdout *o = out ? out : &none;
    const uint64_t all = pl_data_rows(data) - o->n;
    PL_TRY(reserve(h, n, d));
    for (uint32_t i = 0; n && i < pl_data_files(data); i++) {
        const struct pl_data_file *f = pl_data_file(data, i);
        const uint64_t first = f->first - pl_holdout_below(o, f->first);
        const uint64_t end = f->first + f->rows - pl_holdout_below(o, f->first + f->rows);
        /* Sums are rounded, so that the parts add up to n. Rows are below 2^48, which a double
         * counts one by one. */
        const uint64_t until = (uint64_t)llround((double)end * ((double)n / (double)all));
        for (uint64_t at = 0; h->n < until; at++) {
            const uint64_t kept = pl_data_order(at, first, end - first, true, ~seed - i);
            h->rows[h->n++] = pl_holdout_kept(o, kept);
        }
    }
    if (h->n) qsort(h->rows, (size_t)h->n, sizeof *h->rows, by_number);
    return PL_ERR_OK;
}

pl_err pl_holdout_join(struct pl_holdout *h, const struct pl_holdout *a, const struct pl_holdout *b,
                       struct pl_diag *d) {
    PL_TRY(reserve(h, a->n + b->n, d));
    for (uint64_t i = 0, j = 0; h->n < a->n + b->n;) {
        const bool first = j == b->n || (i < a->n && a->rows[i] < b->rows[j]);
        h->rows[h->n++] = first ? a->rows[i++] : b->rows[j++];
    }
    return PL_ERR_OK;
}

void pl_holdout_finish(struct pl_holdout *h) {
    free(h->rows);
    *h = (struct pl_holdout){0};
}

/* The number of held rows that satisfy rows[k] - (by_rank ? k : 0) <= limit, of which those come
 * first: rows[k] - k does not fall. */
static uint64_t count(const struct pl_holdout *h, uint64_t limit, bool by_rank) {
    uint64_t low = 0, high = h->n;
    while (low < high) {
        const uint64_t mid = low + (high - low) / 2;
        if (h->rows[mid] - (by_rank ? mid : 0) <= limit)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

uint64_t pl_holdout_kept(const struct pl_holdout *h, uint64_t i) {
    return i + count(h, i, true);
}

uint64_t pl_holdout_below(const struct pl_holdout *h, uint64_t row) {
    return row ? count(h, row - 1, false) : 0;
}
