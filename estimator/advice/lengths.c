/* lengths.c - sorted lengths and what can be read off them. */
#include "estimator/advice/lengths.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"

#include <stdlib.h>

pl_err pl_lengths_add(struct pl_lengths *l, uint32_t tokens, struct pl_diag *d) {
    if (l->rows == l->cap) {
        uint64_t cap = l->cap ? 2 * l->cap : 1024, bytes;
        uint32_t *of = NULL;
        if (pl_u64_mul(cap, sizeof *of, &bytes) && bytes <= SIZE_MAX)
            of = pl_realloc(l->of, (size_t)bytes);
        if (!of)
            return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for the lengths of %llu samples",
                               (unsigned long long)cap);
        l->of = of;
        l->cap = cap;
    }
    l->of[l->rows++] = tokens;
    l->tokens += tokens;
    if (tokens > l->longest) l->longest = tokens;
    return PL_ERR_OK;
}

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

void pl_lengths_sort(struct pl_lengths *l) {
    if (l->of) qsort(l->of, l->rows, sizeof *l->of, ascending);
}

pl_err pl_lengths_describe(struct pl_lengths *l, uint64_t rows, uint32_t mean, uint32_t longest,
                           struct pl_diag *d) {
    *l = (struct pl_lengths){.rows = rows, .longest = longest, .described = true};
    if (!rows || !mean || mean > longest)
        return pl_diag_set(d, PL_ERR_USAGE,
                           "%llu samples of %u tokens on average and %u at most do not exist",
                           (unsigned long long)rows, mean, longest);
    if (!pl_u64_mul(rows, mean, &l->tokens))
        return pl_diag_set(d, PL_ERR_OVERFLOW, "the tokens of the data set exceed 64 bits");
    return PL_ERR_OK;
}

void pl_lengths_finish(struct pl_lengths *l) {
    free(l->of);
    *l = (struct pl_lengths){0};
}

/* Index of the first length above `tokens`. */
static uint64_t first_over(const struct pl_lengths *l, uint32_t tokens) {
    uint64_t low = 0, high = l->rows;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        if (l->of[mid] > tokens)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

/* k samples above t hold at least k(t+1) tokens, and every other holds at least one. */
static uint64_t most_over(const struct pl_lengths *l, uint32_t tokens) {
    if (tokens >= l->longest) return 0;
    if (tokens == 0) return l->rows;
    return pl_u64_min(l->rows, (l->tokens - l->rows) / tokens);
}

uint64_t pl_lengths_over(const struct pl_lengths *l, uint32_t tokens) {
    if (l->described) return most_over(l, tokens);
    return l->rows - first_over(l, tokens);
}

uint64_t pl_lengths_lost(const struct pl_lengths *l, uint32_t tokens) {
    if (l->described) {
        uint64_t lost = l->tokens;
        pl_u64_mul(most_over(l, tokens), l->longest - pl_u64_min(tokens, l->longest), &lost);
        return pl_u64_min(lost, l->tokens);
    }
    uint64_t lost = 0;
    for (uint64_t i = first_over(l, tokens); i < l->rows; i++)
        lost += l->of[i] - tokens;
    return lost;
}

struct pl_slot_load pl_lengths_slot(const struct pl_lengths *l, uint32_t tokens) {
    double sum = 0, squares = 0;
    if (!l->of || !l->tokens) return (struct pl_slot_load){0};
    for (uint64_t i = 0; i < l->rows; i++) {
        const double n = (double)pl_u64_min(l->of[i], tokens);
        sum += n;
        squares += n * n;
    }
    return (struct pl_slot_load){1, sum / (double)l->rows, squares / sum};
}

/* Steps are filled until so many samples were seen; more slots than these are filled no better than
 * by a hundredth. */
#define PACKED_ROWS  16384
#define PACKED_SLOTS 64

/* The lengths in the order of the multiples of the golden ratio, which are spread evenly (Weyl,
 * Ueber die Gleichverteilung von Zahlen mod. Eins, 1916). A sample that trains has two tokens. */
static uint32_t mixed(const struct pl_lengths *l, uint64_t i, uint32_t tokens) {
    const uint64_t at = (i * UINT64_C(0x9e3779b97f4a7c15)) >> 32;
    const uint32_t n = l->of[at * pl_u64_min(l->rows, UINT32_MAX) >> 32];
    return (uint32_t)pl_u64_max(2, pl_u64_min(n, tokens));
}

/* Takes samples from *row on by first fit, up to the first that fits nowhere; their tokens. */
static uint64_t fill_step(const struct pl_lengths *l, uint32_t tokens, uint32_t slots,
                          uint64_t *row) {
    uint32_t room[PACKED_SLOTS], at;
    uint64_t sum = 0;
    for (at = 0; at < slots; at++)
        room[at] = tokens;
    for (;; ++*row) {
        const uint32_t n = mixed(l, *row, tokens);
        for (at = 0; at < slots && room[at] < n; at++)
            continue;
        if (at == slots) return sum;
        room[at] -= n;
        sum += n;
    }
}

struct pl_slot_load pl_lengths_packed(const struct pl_lengths *l, uint32_t tokens, uint32_t slots) {
    const struct pl_slot_load one = pl_lengths_slot(l, tokens);
    const uint32_t n = (uint32_t)pl_u64_min(slots, PACKED_SLOTS);
    uint64_t rows = 0, sum = 0, filled = 0;
    if (!one.samples || !n || tokens < 2) return (struct pl_slot_load){0};
    for (; rows < PACKED_ROWS; filled += n)
        sum += fill_step(l, tokens, n, &rows);
    return (struct pl_slot_load){(double)rows / (double)filled, (double)sum / (double)filled,
                                 one.length};
}

uint32_t pl_lengths_percentile(const struct pl_lengths *l, unsigned percent) {
    if (!l->of || !l->rows || percent > 100) return 0;
    uint64_t at = l->rows / 100 * percent + pl_u64_div_up(l->rows % 100 * percent, 100);
    return l->of[at ? at - 1 : 0];
}
