/* quant_layout.c - the 4-bit codes as a table. */
#include "estimator/ops/quant_layout.h"

static const struct {
    const char *name;
    uint64_t weights;
    enum pl_dtype scale;
} codes[PL_QUANT_COUNT] = {
#define X(t, name, weights, scale) [PL_QUANT_##t] = {name, weights, PL_DTYPE_##scale},
    PL_QUANT_MAP(X)
#undef X
};

const char *pl_quant_name(enum pl_quant t) {
    return codes[t].name;
}

enum pl_dtype pl_quant_scale_type(enum pl_quant t) {
    return codes[t].scale;
}

uint64_t pl_quant_scales(enum pl_quant t, uint64_t n) {
    return n / codes[t].weights + (n % codes[t].weights != 0);
}

uint64_t pl_quant_count_absmax(enum pl_quant t, uint64_t n, bool nested) {
    return nested ? pl_quant_nests(n) + 1 : pl_quant_scales(t, n);
}
