#include "estimator/ops/finite.h"

#include <string.h>

/* An element whose bits under `mask` are `value` is not finite; no type sets all bits of a value
 * outside its mask, so that value > mask says that every number is. Complex numbers are looked at
 * by halves, types below a byte by bytes. */
static const struct kind {
    const char *name;
    enum pl_number_class class;
    uint32_t bytes, parts; /* of a part; parts of an element */
    uint64_t mask, value;
} kinds[] = {
#define FLOAT(name, bytes, mask, value)                                                            \
    { name, PL_NUMBERS_FLOATING, bytes, 1, mask, value }
#define WHOLE(name, bytes)                                                                         \
    { name, PL_NUMBERS_NOT_FLOATING, bytes, 1, 0, 1 }
    FLOAT("F64", 8, UINT64_C(0x7ff0000000000000), UINT64_C(0x7ff0000000000000)),
    FLOAT("F32", 4, 0x7f800000, 0x7f800000),
    FLOAT("BF16", 2, 0x7f80, 0x7f80),
    FLOAT("F16", 2, 0x7c00, 0x7c00),
    {"C64", PL_NUMBERS_FLOATING, 4, 2, 0x7f800000, 0x7f800000},
    FLOAT("F8_E5M2", 1, 0x7c, 0x7c),
    FLOAT("F8_E4M3", 1, 0x7f, 0x7f), /* has no infinity */
    FLOAT("F8_E8M0", 1, 0xff, 0xff),
    FLOAT("F8_E4M3FNUZ", 1, 0xff, 0x80), /* what would be -0 is NaN */
    FLOAT("F8_E5M2FNUZ", 1, 0xff, 0x80),
    FLOAT("F6_E2M3", 1, 0, 1), /* every one of the rest is finite */
    FLOAT("F6_E3M2", 1, 0, 1),
    FLOAT("F4", 1, 0, 1),
    WHOLE("I64", 8),
    WHOLE("U64", 8),
    WHOLE("I32", 4),
    WHOLE("U32", 4),
    WHOLE("I16", 2),
    WHOLE("U16", 2),
    WHOLE("I8", 1),
    WHOLE("U8", 1),
    WHOLE("BOOL", 1),
#undef FLOAT
#undef WHOLE
};

static const struct kind *find_kind(const char *name) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
    return NULL;
}

enum pl_number_class pl_number_class(const char *dtype_name, uint32_t *bytes) {
    const struct kind *k = find_kind(dtype_name);
    if (bytes) *bytes = k ? k->bytes * k->parts : 1;
    return k ? k->class : PL_NUMBERS_UNKNOWN;
}

/* Blocks of a fixed length are compared without a branch, which compilers turn into vectors; only
 * one that holds such an element is walked. Files are little-endian, as the machine is. */
#define BLOCK 1024
#define SCAN(type)                                                                                 \
    static uint64_t scan_##type(const void *p, uint64_t n, uint64_t mask64, uint64_t value64) {    \
        const unsigned char *bytes = p;                                                            \
        const type mask = (type)mask64, value = (type)value64;                                     \
        uint64_t at = 0;                                                                           \
        for (; n - at >= BLOCK; at += BLOCK) {                                                     \
            type x[BLOCK], any = 0;                                                                \
            memcpy(x, bytes + at * sizeof(type), sizeof x);                                        \
            for (int i = 0; i < BLOCK; i++)                                                        \
                any |= (type)((x[i] & mask) == value);                                             \
            if (any) break;                                                                        \
        }                                                                                          \
        for (type x; at < n; at++) {                                                               \
            memcpy(&x, bytes + at * sizeof x, sizeof x);                                           \
            if ((x & mask) == value) return at;                                                    \
        }                                                                                          \
        return n;                                                                                  \
    }
SCAN(uint8_t)
SCAN(uint16_t)
SCAN(uint32_t)
SCAN(uint64_t)

uint64_t pl_finite_scan(const char *dtype_name, const void *p, uint64_t n) {
    const struct kind *k = find_kind(dtype_name);
    if (!k || k->value > k->mask) return n;
    const uint64_t parts = n * k->parts;
    const uint64_t at = k->bytes == 8   ? scan_uint64_t(p, parts, k->mask, k->value)
                        : k->bytes == 4 ? scan_uint32_t(p, parts, k->mask, k->value)
                        : k->bytes == 2 ? scan_uint16_t(p, parts, k->mask, k->value)
                                        : scan_uint8_t(p, parts, k->mask, k->value);
    return at / k->parts;
}

const char *pl_finite_name(const char *dtype_name, const void *p) {
    const struct kind *k = find_kind(dtype_name);
    uint64_t bits = 0;
    memcpy(&bits, p, k->bytes);
    const uint64_t sign = UINT64_C(1) << (8 * k->bytes - 1);
    if ((bits & ~sign) != k->value) return "nan";
    return bits & sign ? "-inf" : "inf";
}
