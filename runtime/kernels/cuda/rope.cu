/* rope.cu - ROPE: rotary positions (Su et al., "RoFormer", 2021), in pairs from the two halves of a
 * head.
 *
 * Dimensions i and i + rot/2 turn by the angle of pair i; those from rot on stay. The inverse turns
 * by the negative angle, which is the transpose and so the gradient even where the table carries a
 * factor (longrope). Positions are known on the device only: one outside the table turns its row
 * into NaN, which the loss shows, rather than reading past the table. */
#include "runtime/kernels/cuda/common.cuh"

#include "estimator/base/checked.h"

namespace {

#define MOST 512 /* threads of a block */

struct angles {
    const float *table; /* [S,rot] as (cos, sin) pairs; NULL = absent */
    uint64_t ld;
    uint32_t positions;
};

template <typename T> struct rope {
    pl_mat<T> x; /* [N,H*D] */
    const int32_t *pos;
    struct angles near, far;      /* far: for batches with a sequence longer than long_from */
    const struct pl_facts *facts; /* where there is `far` */
    uint32_t heads, dim, pairs, long_from;
    float sign; /* of the sine */
};

/* A block turns a row: a thread takes V pairs of a head. */
template <typename T, int V> __global__ void __launch_bounds__(MOST) rope_rows(const rope<T> t) {
    const uint64_t row = blockIdx.x;
    const int32_t pos = t.pos[row];
    const struct angles by = t.far.table && t.facts->max_len > t.long_from ? t.far : t.near;
    const bool is_known = pos >= 0 && (uint32_t)pos < by.positions;
    const float *angle = by.table + (is_known ? (uint64_t)pos * by.ld : 0);
    const float unknown = is_known ? 0.0f : NAN;
    const uint32_t per_head = t.pairs / V, items = t.heads * per_head;
    for (uint32_t item = threadIdx.x; item < items; item += blockDim.x) {
        const uint32_t pair = item % per_head * V;
        const uint64_t low = (uint64_t)(item / per_head) * t.dim + pair, high = low + t.pairs;
        float a[V], b[V];
        pl_floats(pl_load<T, V>(t.x, row, low, low + V), a);
        pl_floats(pl_load<T, V>(t.x, row, high, high + V), b);
#pragma unroll
        for (int i = 0; i < V; i++) {
            const float cosine = angle[2 * (pair + i)] + unknown;
            const float sine = t.sign * angle[2 * (pair + i) + 1];
            const float turned = a[i] * cosine - b[i] * sine;
            b[i] = b[i] * cosine + a[i] * sine;
            a[i] = turned;
        }
        pl_store(t.x, row, low, low + V, pl_packed(t.x, a));
        pl_store(t.x, row, high, high + V, pl_packed(t.x, b));
    }
}

struct rope_call {
    struct pl_view x, near, far;
    const int32_t *pos;
    const struct pl_facts *facts;
    uint32_t heads, dim, pairs, long_from;
    float sign;
};

struct angles angles_of(const struct pl_view *table) {
    return {(const float *)table->p, table->ld, (uint32_t)table->rows};
}

template <typename T, int V> void launch(const struct rope_call *r, cudaStream_t stream) {
    const rope<T> t = {pl_mat_of<T>(r->x),
                       r->pos,
                       angles_of(&r->near),
                       angles_of(&r->far),
                       r->facts,
                       r->heads,
                       r->dim,
                       r->pairs,
                       r->long_from,
                       r->sign};
    const uint64_t items = (uint64_t)r->heads * r->pairs / V, warps = pl_u64_div_up(items, PL_WARP);
    const unsigned threads = (unsigned)pl_u64_min(warps * PL_WARP, MOST);
    PL_LAUNCH((rope_rows<T, V>), dim3((unsigned)r->x.rows), dim3(threads), 0, stream, t);
}

/* The packs of both halves of every head must be whole and aligned. */
int form_of(const struct rope_call *r) {
    const struct pl_view *const views[] = {&r->x};
    const int form = pl_form_of(views, 1);
    const uint32_t lanes = pl_form_lanes(form);
    return r->dim % lanes || r->pairs % lanes ? PL_FORM_EITHER : form;
}

} // namespace

/* in: x[N,H*D]! pos[N]i32 table[S,rot/2,2]f32 table2?; out: x[N,H*D]!. */
extern "C" pl_err pl_cuda_rope(struct pl_device *dev, const struct pl_call *c) {
    static void (*const by_form[PL_FORMS])(const struct rope_call *, cudaStream_t) =
        PL_FORM_TABLE(launch);
    const struct pl_attr *attr = c->attr;
    struct rope_call r = {c->out[PL_ROPE_OUT_X], c->in[PL_ROPE_TABLE],
                          c->in[PL_ROPE_TABLE2], (const int32_t *)c->in[PL_ROPE_POS].p,
                          c->batch->facts,       0,
                          attr->head_dim,        attr->rot_dim / 2,
                          attr->long_from,       attr->inverse ? -1.0f : 1.0f};
    if (r.dim == 0 || 2 * r.pairs > r.dim || r.x.cols > PL_GRID_MAX || r.x.rows > PL_GRID_MAX ||
        r.near.rows > INT32_MAX || r.far.rows > INT32_MAX || (r.far.p && !r.facts))
        return PL_ERR_PLAN_BROKEN;
    r.heads = (uint32_t)(r.x.cols / r.dim);
    if (r.x.rows && r.heads && r.pairs) by_form[form_of(&r)](&r, pl_cuda_of(dev)->stream);
    return pl_cuda_launched();
}

PL_CUDA_PRELOAD(rope) = {PL_FORM_KERNELS(rope_rows), NULL};
