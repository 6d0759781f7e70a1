/* rng.h - counter-based random numbers: Philox4x32-10.
 *
 * A number is a function of its key and index, never of call order, so results do not depend on
 * threads, chunking or the layout of a micro-batch. Philox: Salmon, Moraes, Dror and Shaw,
 * "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3.3.
 *   N1  equal (seed, a, b, forks, index) give equal numbers on every machine
 *   N2  one stream holds 2^64 blocks of four 32-bit numbers
 * Use: struct pl_rng r = pl_rng_fork(pl_rng_init(seed, step, sample), site);
 *      uint32_t x[4]; pl_rng_block(&r, column / 4, x); ... x[column % 4] */
#ifndef PL_RUNTIME_KERNELS_RNG_H
#define PL_RUNTIME_KERNELS_RNG_H

#include <stdint.h>

/* Device code of CUDA draws the same numbers. */
#ifdef __CUDACC__
#define PL_RNG_FN static inline __host__ __device__
#else
#define PL_RNG_FN static inline
#endif

#define PL_PHILOX_M0 0xD2511F53u
#define PL_PHILOX_M1 0xCD9E8D57u
#define PL_PHILOX_W0 0x9E3779B9u
#define PL_PHILOX_W1 0xBB67AE85u
#define PL_PHILOX_ROUNDS 10

struct pl_rng {
    uint32_t key[2], high[2]; /* high: upper half of the counter; the lower half is the index */
};

/* The bijection itself: 128-bit counter and 64-bit key to 128 bits. */
PL_RNG_FN void pl_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int r = 0; r < PL_PHILOX_ROUNDS; r++) {
        uint64_t p0 = (uint64_t)PL_PHILOX_M0 * c0, p1 = (uint64_t)PL_PHILOX_M1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += PL_PHILOX_W0;
        k1 += PL_PHILOX_W1;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* Block `index` of a stream: four numbers, uniform over 32 bits. */
PL_RNG_FN void pl_rng_block(const struct pl_rng *r, uint64_t index, uint32_t out[4]) {
    const uint32_t c[4] = {(uint32_t)index, (uint32_t)(index >> 32), r->high[0], r->high[1]};
    pl_philox(c, r->key, out);
}

/* A stream of its own for one more coordinate. */
PL_RNG_FN struct pl_rng pl_rng_fork(struct pl_rng r, uint64_t coordinate) {
    uint32_t x[4];
    pl_rng_block(&r, coordinate, x);
    r.key[0] = x[0], r.key[1] = x[1], r.high[0] = x[2], r.high[1] = x[3];
    return r;
}

/* The stream of (seed, a, b), such as (seed, step, sample) or (seed, slot, layer). */
PL_RNG_FN struct pl_rng pl_rng_init(uint64_t seed, uint64_t a, uint64_t b) {
    const struct pl_rng root = {{(uint32_t)seed, (uint32_t)(seed >> 32)},
                                {(uint32_t)b, (uint32_t)(b >> 32)}};
    return pl_rng_fork(root, a);
}

/* Block `index` as four independent standard normals: normal.h. */
#ifdef __cplusplus
extern "C"
#endif
void pl_rng_normal(const struct pl_rng *r, uint64_t index, float out[4]);

/* The stream that rounds state k of a tensor; `site` is that of its weights, below 2^29. */
PL_RNG_FN uint32_t pl_rng_state_site(uint32_t site, uint32_t k) {
    return site ^ (k + 1) << 29;
}

/* The stream that rounds the gradient of a tensor once micro-batch m of a step is added. */
PL_RNG_FN uint64_t pl_rng_sum_site(uint32_t site, uint32_t m) {
    return (uint64_t)m << 32 | pl_rng_state_site(site, 6);
}

#endif
