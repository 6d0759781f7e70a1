/* mutate.h - small damage to an input, the same for the same seed on every machine.
 *
 * In: an input, other inputs to take pieces from, a seed.  Out: the input with one to four changes:
 * bits, bytes, ranges cut, doubled, moved in from another input, numbers in digits or as length
 * words replaced by those that overflow, words of the formats put in.  Needs: libc.
 * Use: n = mutate(buf, n, cap, &corpus, seed); */
#ifndef PL_TESTS_FUZZ_MUTATE_H
#define PL_TESTS_FUZZ_MUTATE_H

#include <stddef.h>
#include <stdint.h>

struct fuzz_input {
    uint8_t *data;
    size_t n;
};

struct fuzz_corpus {
    struct fuzz_input *inputs;
    size_t n;
};

/* Changes data[0, n) in place, within data[0, cap); returns the new length. */
size_t fuzz_mutate(uint8_t *data, size_t n, size_t cap, const struct fuzz_corpus *others,
                   uint64_t seed);
/* SplitMix64 (Steele, Lea, Flood 2014): returns the next number of the sequence *state. */
uint64_t fuzz_random(uint64_t *state);

#endif
