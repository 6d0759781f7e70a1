/* secant.h - the largest number whose plan fits, by few plans.
 *
 * In: what was planned: a number, its bytes, whether it fits.  Out: the number to plan next.
 * Bytes grow along straight lines that bend upwards where another part of the run becomes the
 * largest, so a line through two plans soon points at the answer. It only says where to look:
 *   S1  the search ends when n was found to fit and n + 1 not to, or when a bound was reached
 *   S2  whatever the bytes are, it takes a few plans more than twice those of a bisection at most
 * Use: struct pl_secant s = pl_secant_between(0, limit + 1, usable);
 *      while (!pl_secant_done(&s)) { n = pl_secant_next(&s); ...; pl_secant_tell(&s, n, ...); } */
#ifndef PL_ESTIMATOR_SEARCH_SECANT_H
#define PL_ESTIMATOR_SEARCH_SECANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_end { /* of the range; bytes 0: it was not planned */
    uint32_t n;
    uint64_t bytes;
};

struct pl_secant {
    struct pl_end low, high; /* low fits, or is below what may be asked; high does not */
    uint64_t usable;
    double slope; /* bytes of one more; 0: not known */
    uint32_t tries;
};

struct pl_secant pl_secant_between(uint32_t low, uint32_t high, uint64_t usable);
static inline bool pl_secant_done(const struct pl_secant *s) {
    return s->high.n - s->low.n <= 1;
}
uint32_t pl_secant_next(const struct pl_secant *s);
/* slope: a guess, used where nothing better is known; 0: none. */
void pl_secant_tell(struct pl_secant *s, uint32_t n, uint64_t bytes, bool fits, double slope);

#endif
