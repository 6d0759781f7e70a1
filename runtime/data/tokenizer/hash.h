/* hash.h - hashes of byte strings and of pairs of ids, for tables of a power of two.
 *
 * Multiply and fold, eight bytes at a time: good enough for words, and a word costs a few cycles.
 */
#ifndef PL_RUNTIME_DATA_TOKENIZER_HASH_H
#define PL_RUNTIME_DATA_TOKENIZER_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Odd, of no structure: 2^64 over the golden ratio. */
#define PL_HASH_FACTOR UINT64_C(0x9E3779B97F4A7C15)

static inline uint64_t pl_hash_mix(uint64_t h) {
    h *= PL_HASH_FACTOR;
    return h ^ h >> 32;
}

static inline uint64_t pl_hash_bytes(const char *s, size_t n) {
    uint64_t h = n, word;
    for (; n >= 8; n -= 8, s += 8) {
        memcpy(&word, s, 8);
        h = pl_hash_mix(h ^ word);
    }
    word = 0;
    memcpy(&word, s, n);
    return pl_hash_mix(pl_hash_mix(h ^ word));
}

#endif
