#include "estimator/search/secant.h"

/* Guesses before every other try halves the range. */
#define PATIENCE 5

struct pl_secant pl_secant_between(uint32_t low, uint32_t high, uint64_t usable) {
    return (struct pl_secant){.low = {.n = low}, .high = {.n = high}, .usable = usable};
}

static uint32_t half(const struct pl_secant *s) {
    return s->low.n + (s->high.n - s->low.n) / 2;
}

/* First the next one; upwards while nothing failed, twice as far. */
static uint32_t blind(const struct pl_secant *s) {
    if (!s->tries) return s->low.n + 1;
    const uint32_t twice = s->low.n ? 2 * s->low.n : 1;
    return s->high.bytes || twice < s->low.n || twice > half(s) ? half(s) : twice;
}

/* Returns where a line meets the bytes that there are; below the range where none is known. */
static double guess(const struct pl_secant *s) {
    const double usable = (double)s->usable, low = (double)s->low.bytes;
    const double high = (double)s->high.bytes;
    if (s->low.bytes && s->high.bytes && high > low)
        return s->low.n + (usable - low) * (s->high.n - s->low.n) / (high - low);
    if (s->slope <= 0) return -1;
    if (s->low.bytes) return s->low.n + (usable - low) / s->slope;
    return s->high.bytes ? s->high.n - (high - usable) / s->slope : -1;
}

uint32_t pl_secant_next(const struct pl_secant *s) {
    const uint32_t least = s->low.n + 1, most = s->high.n - 1;
    const double at = guess(s);
    if (at < 0 || (s->tries > PATIENCE && s->tries % 2)) {
        const uint32_t n = at < 0 ? blind(s) : half(s);
        return n < least ? least : n > most ? most : n;
    }
    return at < least ? least : at > most ? most : (uint32_t)at;
}

void pl_secant_tell(struct pl_secant *s, uint32_t n, uint64_t bytes, bool fits, double slope) {
    const struct pl_end *known = s->low.bytes ? &s->low : s->high.bytes ? &s->high : NULL;
    s->tries++;
    if (known && known->n != n)
        s->slope = ((double)bytes - (double)known->bytes) / ((double)n - known->n);
    else if (!known)
        s->slope = slope;
    *(fits ? &s->low : &s->high) = (struct pl_end){n, bytes};
}
