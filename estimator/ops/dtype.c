/* dtype.c - the element types as a table. */
#include "estimator/ops/dtype.h"

#include "estimator/ops/half.h"

#include <string.h>

static const struct {
    const char *name, *file_name;
    uint64_t bytes;
} dtypes[PL_DTYPE_COUNT] = {
#define X(t, name, bytes, file_name) [PL_DTYPE_##t] = {name, file_name, bytes},
    PL_DTYPE_MAP(X)
#undef X
};

uint64_t pl_dtype_bytes(enum pl_dtype t) {
    return dtypes[t].bytes;
}

const char *pl_dtype_name(enum pl_dtype t) {
    return dtypes[t].name;
}

const char *pl_dtype_file_name(enum pl_dtype t) {
    return dtypes[t].file_name;
}

enum pl_dtype pl_dtype_by_name(const char *name) {
    int t = 0;
    while (t < PL_DTYPE_COUNT && strcmp(dtypes[t].name, name) != 0)
        t++;
    return (enum pl_dtype)t;
}

float pl_dtype_round(enum pl_dtype t, float x) {
    uint32_t bits;
    if (t == PL_DTYPE_F16) return pl_half_widen(pl_half_narrow(x));
    if (t != PL_DTYPE_BF16) return x;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000;
    memcpy(&x, &bits, sizeof x);
    return x;
}
