/* digest.h - 64-bit digests of streams of bytes: XXH64 of the xxHash specification (Collet, version
 * 0.1.1), which runs at the speed of memory.
 *
 * They tell changed and damaged files, but do not withstand collisions made on purpose. Two seeds
 * give 128 bits.
 * Use: pl_digest_init(&h, seed); pl_digest_add(&h, p, n); v = pl_digest_value(&h); */
#ifndef PL_ESTIMATOR_BASE_DIGEST_H
#define PL_ESTIMATOR_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

struct pl_digest {
    uint64_t lane[4];
    uint64_t seed, bytes;
    unsigned char held[32]; /* the first bytes % 32 of them */
};

void pl_digest_init(struct pl_digest *h, uint64_t seed);
void pl_digest_add(struct pl_digest *h, const void *data, size_t n);
uint64_t pl_digest_value(const struct pl_digest *h); /* the digest of everything added so far */

#endif
