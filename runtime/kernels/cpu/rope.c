/* rope.c - ROPE: rotary positions (Su et al., "RoFormer", 2021), in pairs from the two halves of a
 * head.
 *
 * Dimensions i and i + rot/2 turn by the angle of pair i; those from rot on stay. The inverse turns
 * by the negative angle, which is the transpose and so the gradient even where the table carries a
 * factor (longrope). */
#include "runtime/kernels/cpu/simd.h"

#define MAX_PAIRS PL_ROPE_MAX_PAIRS

struct rope {
    struct pl_view x, table; /* [N,H*D], [S,rot] as (cos, sin) pairs */
    const int32_t *pos;
    uint64_t heads;
    uint32_t dim, pairs;
    float sign; /* of the sine */
};

static void rotate(float *low, float *high, const float *restrict cosine,
                   const float *restrict sine, uint32_t pairs) {
    for (uint32_t i = 0; i < pairs; i++) {
        const float a = low[i], b = high[i];
        low[i] = a * cosine[i] - b * sine[i];
        high[i] = b * cosine[i] + a * sine[i];
    }
}

static void rotate_head(const struct rope *t, void *head, const float *cosine, const float *sine) {
    float buf[2 * MAX_PAIRS];
    if (t->x.dtype == PL_DTYPE_F32) {
        rotate(head, (float *)head + t->pairs, cosine, sine, t->pairs);
        return;
    }
    pl_widen(buf, head, t->x.dtype, 2 * (uint64_t)t->pairs);
    rotate(buf, buf + t->pairs, cosine, sine, t->pairs);
    pl_narrow(head, t->x.dtype, buf, 2 * (uint64_t)t->pairs);
}

static void rotate_rows(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    const struct rope *t = arg;
    float cosine[MAX_PAIRS], sine[MAX_PAIRS];
    (void)worker;
    for (uint64_t i = row0; i < row1; i++) {
        const float *angle = pl_at(&t->table, (uint64_t)t->pos[i], 0);
        for (uint32_t k = 0; k < t->pairs; k++) {
            cosine[k] = angle[2 * k];
            sine[k] = t->sign * angle[2 * k + 1];
        }
        for (uint64_t h = 0; h < t->heads; h++)
            rotate_head(t, pl_at(&t->x, i, h * t->dim), cosine, sine);
    }
}

static bool are_in_table(const struct rope *t) {
    for (uint64_t i = 0; i < t->x.rows; i++)
        if (t->pos[i] < 0 || (uint64_t)t->pos[i] >= t->table.rows) return false;
    return true;
}

/* in: x[N,H*D]! pos[N]i32 table[S,rot/2,2]f32 table2?; out: x[N,H*D]!. */
pl_err PL_CPU(rope)(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_attr *attr = c->attr;
    const bool is_long = c->in[PL_ROPE_TABLE2].p && c->batch->max_len > attr->long_from;
    struct rope t = {.x = c->out[PL_ROPE_OUT_X],
                     .pos = c->in[PL_ROPE_POS].p,
                     .table = is_long ? c->in[PL_ROPE_TABLE2] : c->in[PL_ROPE_TABLE],
                     .dim = attr->head_dim,
                     .pairs = attr->rot_dim / 2,
                     .sign = attr->inverse ? -1.0f : 1.0f};
    t.heads = t.x.cols / t.dim;
    if (t.pairs > MAX_PAIRS || !are_in_table(&t)) return PL_ERR_PLAN_BROKEN;
    pl_cpu_rows(dev, t.x.rows, pl_cpu_grain(t.x.cols), rotate_rows, &t);
    return PL_ERR_OK;
}
