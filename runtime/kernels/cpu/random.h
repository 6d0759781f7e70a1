/* random.h - the blocks of runtime/kernels/rng.h, as many at a time as a vector has lanes.
 *
 * In: a stream and the index of a block. Out: the numbers of that block and of the next ones.
 *   V1  the bits of pl_rng_block(), block after block
 * A lane of 64 bits holds a word in its lower half and anything above: the product of lower halves,
 * which is what Philox needs, is one instruction.
 * Use: uint32_t x[4 * PL_RANDOM_BLOCKS]; pl_random_blocks(&keys, index, x); */
#ifndef PL_RUNTIME_KERNELS_CPU_RANDOM_H
#define PL_RUNTIME_KERNELS_CPU_RANDOM_H

#include "runtime/kernels/rng.h"

#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

/* Blocks at a time. */
#if defined(__AVX512F__)
#define PL_RANDOM_BLOCKS 8
#elif defined(__AVX2__)
#define PL_RANDOM_BLOCKS 4
#else
#define PL_RANDOM_BLOCKS 2
#endif

typedef uint64_t pl_words __attribute__((vector_size(PL_RANDOM_BLOCKS * sizeof(uint64_t))));

/* A compiler treats it as a product of 64 bits, which takes three of these. */
static inline pl_words pl_words_product(pl_words x, uint32_t factor) {
#if defined(__AVX512F__)
    return (pl_words)_mm512_mul_epu32((__m512i)x, _mm512_set1_epi64(factor));
#elif defined(__AVX2__)
    return (pl_words)_mm256_mul_epu32((__m256i)x, _mm256_set1_epi64x(factor));
#elif defined(__SSE2__)
    return (pl_words)_mm_mul_epu32((__m128i)x, _mm_set1_epi64x(factor));
#else
    return (x & UINT32_MAX) * factor;
#endif
}

/* A stream with the keys of all its rounds. */
struct pl_random {
    pl_words key[PL_PHILOX_ROUNDS][2];
    uint32_t high[2];
};

static inline void pl_random_init(struct pl_random *s, const struct pl_rng *r) {
    uint32_t k0 = r->key[0], k1 = r->key[1];
    memcpy(s->high, r->high, sizeof s->high);
    for (int i = 0; i < PL_PHILOX_ROUNDS; i++, k0 += PL_PHILOX_W0, k1 += PL_PHILOX_W1) {
        s->key[i][0] = (pl_words){0} + k0;
        s->key[i][1] = (pl_words){0} + k1;
    }
}

/* The words of the blocks whose indices the lanes of c[0] hold, one of each block to a lane. */
static inline void pl_random_rounds(const struct pl_random *s, pl_words c[4]) {
    c[1] = c[0] >> 32;
    c[2] = (pl_words){0} + s->high[0];
    c[3] = (pl_words){0} + s->high[1];
    for (int r = 0; r < PL_PHILOX_ROUNDS; r++) {
        const pl_words p0 = pl_words_product(c[0], PL_PHILOX_M0);
        const pl_words p1 = pl_words_product(c[2], PL_PHILOX_M1);
        c[0] = p1 >> 32 ^ c[1] ^ s->key[r][0];
        c[1] = p1;
        c[2] = p0 >> 32 ^ c[3] ^ s->key[r][1];
        c[3] = p0;
    }
}

/* Even lanes draw the first half of the blocks, odd ones the second: then the words of a block, put
 * together as pairs of lanes, are in order. */
#if PL_RANDOM_BLOCKS == 8
#define PL_RANDOM_ASCENDING                                                                        \
    { 0, 1, 2, 3, 4, 5, 6, 7 }
#define PL_RANDOM_ORDER                                                                            \
    { 0, 4, 1, 5, 2, 6, 3, 7 }
#define PL_RANDOM_EVEN 0, 8, 2, 10, 4, 12, 6, 14
#define PL_RANDOM_ODD  1, 9, 3, 11, 5, 13, 7, 15
#elif PL_RANDOM_BLOCKS == 4
#define PL_RANDOM_ASCENDING                                                                        \
    { 0, 1, 2, 3 }
#define PL_RANDOM_ORDER                                                                            \
    { 0, 2, 1, 3 }
#define PL_RANDOM_EVEN 0, 4, 2, 6
#define PL_RANDOM_ODD  1, 5, 3, 7
#else
#define PL_RANDOM_ASCENDING                                                                        \
    { 0, 1 }
#define PL_RANDOM_ORDER                                                                            \
    { 0, 1 }
#define PL_RANDOM_EVEN 0, 2
#define PL_RANDOM_ODD  1, 3
#endif

/* out: the 16 bytes of each of blocks [index, index + PL_RANDOM_BLOCKS). */
static inline void pl_random_blocks(const struct pl_random *s, uint64_t index, void *out) {
    pl_words c[4] = {(pl_words)PL_RANDOM_ORDER + index};
    pl_random_rounds(s, c);
    const pl_words low = (c[0] & UINT32_MAX) | c[1] << 32, high = (c[2] & UINT32_MAX) | c[3] << 32;
    const pl_words half[2] = {__builtin_shufflevector(low, high, PL_RANDOM_EVEN),
                              __builtin_shufflevector(low, high, PL_RANDOM_ODD)};
    memcpy(out, half, sizeof half);
}

/* Words 0 and 2 of each of blocks [index, index + PL_RANDOM_BLOCKS), and words 1 and 3. */
static inline void pl_random_pairs(const struct pl_random *s, uint64_t index, pl_words *first,
                                   pl_words *second) {
    pl_words c[4] = {(pl_words)PL_RANDOM_ASCENDING + index};
    pl_random_rounds(s, c);
    *first = (c[0] & UINT32_MAX) | c[2] << 32;
    *second = (c[1] & UINT32_MAX) | c[3] << 32;
}

#endif
