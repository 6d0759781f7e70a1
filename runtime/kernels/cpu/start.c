/* start.c - START: starting values, made in the memory where they stay. */
#include "runtime/kernels/cpu/simd.h"

#include "runtime/kernels/cpu/values.h"
#include "runtime/kernels/quant_call.h"

#define TILE 1024 /* values on their way into another type */

struct start {
    struct values values;
    struct pl_view w; /* one run of elements */
    uint64_t first;
};

static void start_elements(void *arg, uint64_t begin, uint64_t end, uint32_t worker) {
    const struct start *s = arg;
    float tile[TILE];
    (void)worker;
    if (s->w.dtype == PL_DTYPE_F32) {
        values_fill(&s->values, s->first + begin, end - begin, pl_vector_at(&s->w, begin));
        return;
    }
    for (uint64_t i = begin; i < end; i += TILE) {
        const uint64_t n = pl_u64_min(end - i, TILE);
        values_fill(&s->values, s->first + i, n, tile);
        pl_narrow(pl_vector_at(&s->w, i), s->w.dtype, tile, n);
    }
}

/* out: w[..]. */
pl_err PL_CPU(start)(struct pl_device *dev, const struct pl_call *c) {
    struct start s = {.w = c->out[PL_START_OUT_W], .first = c->attr->first_element};
    if (!pl_start_is_sound(c)) return PL_ERR_PLAN_BROKEN;
    values_init(&s.values, c->attr, c->batch->seed);
    pl_cpu_rows(dev, pl_quant_elements(&s.w), pl_cpu_grain(1), start_elements, &s);
    return PL_ERR_OK;
}
