#include "estimator/base/digest.h"

#include <endian.h>
#include <string.h>

#define STRIPE 32
#define P1     UINT64_C(0x9E3779B185EBCA87)
#define P2     UINT64_C(0xC2B2AE3D27D4EB4F)
#define P3     UINT64_C(0x165667B19E3779F9)
#define P4     UINT64_C(0x85EBCA77C2B2AE63)
#define P5     UINT64_C(0x27D4EB2F165667C5)

static uint64_t rotate(uint64_t x, int by) {
    return x << by | x >> (64 - by);
}

/* Words of the specification are little-endian. */
static uint64_t word64(const unsigned char *p) {
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return le64toh(x);
}

static uint32_t word32(const unsigned char *p) {
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return le32toh(x);
}

static uint64_t round64(uint64_t lane, uint64_t input) {
    return rotate(lane + input * P2, 31) * P1;
}

static void stripe(struct pl_digest *h, const unsigned char *p) {
    for (int i = 0; i < 4; i++)
        h->lane[i] = round64(h->lane[i], word64(p + 8 * i));
}

void pl_digest_init(struct pl_digest *h, uint64_t seed) {
    *h = (struct pl_digest){.lane = {seed + P1 + P2, seed + P2, seed, seed - P1}, .seed = seed};
}

void pl_digest_add(struct pl_digest *h, const void *data, size_t n) {
    const unsigned char *p = data;
    size_t held = (size_t)(h->bytes % STRIPE);
    h->bytes += n;
    if (held + n < STRIPE) {
        if (n) memcpy(h->held + held, p, n);
        return;
    }
    if (held) {
        memcpy(h->held + held, p, STRIPE - held);
        stripe(h, h->held);
        p += STRIPE - held;
        n -= STRIPE - held;
    }
    for (; n >= STRIPE; p += STRIPE, n -= STRIPE)
        stripe(h, p);
    memcpy(h->held, p, n);
}

static uint64_t tail(uint64_t x, const unsigned char *p, size_t n) {
    for (; n >= 8; p += 8, n -= 8)
        x = rotate(x ^ round64(0, word64(p)), 27) * P1 + P4;
    if (n >= 4) {
        x = rotate(x ^ word32(p) * P1, 23) * P2 + P3;
        p += 4;
        n -= 4;
    }
    for (; n > 0; p++, n--)
        x = rotate(x ^ *p * P5, 11) * P1;
    return x;
}

uint64_t pl_digest_value(const struct pl_digest *h) {
    uint64_t x = h->seed + P5;
    if (h->bytes >= STRIPE) {
        x = rotate(h->lane[0], 1) + rotate(h->lane[1], 7) + rotate(h->lane[2], 12) +
            rotate(h->lane[3], 18);
        for (int i = 0; i < 4; i++)
            x = (x ^ round64(0, h->lane[i])) * P1 + P4;
    }
    x = tail(x + h->bytes, h->held, (size_t)(h->bytes % STRIPE));
    x = (x ^ x >> 33) * P2;
    x = (x ^ x >> 29) * P3;
    return x ^ x >> 32;
}
