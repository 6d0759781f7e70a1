/* sort.c - values in the order of their keys. */
#include "runtime/data/jinja/run.h"

/* Stable merge sort of all[0, n) through other[0, n). */
static bool merge_sort(struct pl_jinja_run *r, struct pl_jinja_entry *all,
                       struct pl_jinja_entry *other, size_t n, bool reverse) {
    size_t half = n / 2, a = 0, b = half;
    bool second;
    if (n < 2) return true;
    if (!merge_sort(r, all, other, half, reverse) ||
        !merge_sort(r, all + half, other + half, n - half, reverse))
        return false;
    for (size_t i = 0; i < n; i++) {
        second = a == half;
        if (a < half && b < n &&
            !pl_jinja_compare(r, PL_JINJA_LT, &all[reverse ? a : b].key, &all[reverse ? b : a].key,
                              &second))
            return false;
        other[i] = second ? all[b++] : all[a++];
    }
    memcpy(all, other, n * sizeof *all);
    return pl_jinja_spend(r, PL_JINJA_ITEM_UNITS * (uint64_t)n);
}

bool pl_jinja_sort(struct pl_jinja_run *r, struct pl_jinja_entry *all, size_t n, bool reverse) {
    struct pl_jinja_entry *other = pl_jinja_alloc_array(r->arena, n, sizeof *other);
    if (!other) return pl_jinja_fail_memory(r);
    return merge_sort(r, all, other, n, reverse);
}
