/* order.c - the order of rows as a function of position: no list, no state to save.
 *
 * A shuffled epoch is a keyed permutation of [0, n): a Feistel network over b bits, the smallest
 * with 2^b >= n, walked along its cycle until the value falls below n again (Black and Rogaway,
 * "Ciphers with arbitrary finite domains", 2002). Each half-round xors one half with a function of
 * the other, so it is its own inverse whatever the function and however unequal the halves; a
 * permutation restricted to [0, n) by cycle walking stays one. Fewer than two steps are expected,
 * because 2^b < 2n. */
#include "runtime/data/data.h"

#define ROUNDS 8 /* half-rounds, in pairs; with four, orders of a few rows are visibly uneven */

/* Finaliser of splitmix64 (Steele, Lea and Flood 2014). */
static uint64_t mix(uint64_t x) {
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

static uint64_t permute(uint64_t x, unsigned bits, uint64_t key) {
    unsigned low_bits = bits - bits / 2;
    uint64_t low_mask = (UINT64_C(1) << low_bits) - 1;
    uint64_t high_mask = (UINT64_C(1) << bits / 2) - 1;
    uint64_t low = x & low_mask, high = x >> low_bits;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t round_key = mix(key + round);
        low ^= mix(high ^ round_key) & low_mask;
        high ^= mix(low ^ ~round_key) & high_mask;
    }
    return high << low_bits | low;
}

uint64_t pl_data_order(uint64_t position, uint64_t first, uint64_t n, bool shuffle, uint64_t seed) {
    unsigned bits = 1;
    if (n == 0) return first;
    uint64_t epoch = position / n, x = position % n;
    if (!shuffle || n == 1) return first + x;
    while (bits < 63 && (UINT64_C(1) << bits) < n)
        bits++;
    uint64_t key = mix(mix(seed) + epoch);
    do
        x = permute(x, bits, key);
    while (x >= n);
    return first + x;
}
