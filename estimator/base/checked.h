/* checked.h - 64-bit size arithmetic that says when it does not fit.
 *
 * Each function returns false, and leaves *out alone, on overflow. A running product or sum can be
 * chained with &&: pl_u64_mul(rows, cols, &n) && pl_u64_mul(n, 4, &n). */
#ifndef PL_ESTIMATOR_BASE_CHECKED_H
#define PL_ESTIMATOR_BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

static inline bool pl_u64_add(uint64_t a, uint64_t b, uint64_t *out) {
    if (b > UINT64_MAX - a) return false;
    *out = a + b;
    return true;
}

static inline bool pl_u64_mul(uint64_t a, uint64_t b, uint64_t *out) {
    if (a && b > UINT64_MAX / a) return false;
    *out = a * b;
    return true;
}

/* Rounds v up to a multiple of align (align > 0). */
bool pl_u64_align(uint64_t v, uint64_t align, uint64_t *out);

static inline uint64_t pl_u64_min(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t pl_u64_max(uint64_t a, uint64_t b) { return a > b ? a : b; }
static inline uint64_t pl_u64_div_up(uint64_t a, uint64_t b) { return a / b + (a % b != 0); }
/* The next multiple of `unit`, for counts that cannot come near 2^64; else pl_u64_align. */
static inline uint64_t pl_u64_round_up(uint64_t x, uint64_t unit) {
    return pl_u64_div_up(x, unit) * unit;
}

#endif
