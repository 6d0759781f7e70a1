/* gated_delta.cuh - what GATED_DELTA and its gradient read on a GPU. */
#ifndef PL_RUNTIME_KERNELS_CUDA_GATED_DELTA_CUH
#define PL_RUNTIME_KERNELS_CUDA_GATED_DELTA_CUH

#include "runtime/kernels/cuda/common.cuh"

#include "estimator/base/checked.h"
#include "estimator/ops/scratch/scratch_bytes.h"
#include "estimator/ops/scratch/workspace_delta.h"

namespace {

struct gates {
    float beta, log_decay;
    float slope; /* d log_decay / d a */
};

template <typename T> struct delta {
    pl_mat<T> qkv;
    pl_mat<pl_either> ba, a_log, dt_bias; /* vectors as rows */
    const int32_t *offsets;
    uint64_t rows;
    uint32_t n_seqs, heads, key_heads, key_dim, dim;
    float query_scale;

    /* The column of an element of a head's state in a row of states. */
    __device__ __forceinline__ uint64_t place(uint32_t head, uint32_t i, uint32_t j) const {
        return ((uint64_t)head * key_dim + i) * dim + j;
    }
    __device__ __forceinline__ uint64_t value_col(uint32_t head) const {
        return 2 * (uint64_t)key_heads * key_dim + (uint64_t)head * dim;
    }
    /* A warp loads a head of keys or queries, divided by its norm, and zeros up to `room`; returns
     * the norm's reciprocal. */
    __device__ __forceinline__ float load_key(uint64_t row, uint32_t head, float scale, float *x,
                                              uint32_t room) const {
        const uint64_t col = (uint64_t)head * key_dim;
        float sum = 0.0f;
        for (uint32_t i = threadIdx.x % PL_WARP; i < key_dim; i += PL_WARP) {
            const float value = qkv.get(row, col + i);
            sum = fmaf(value, value, sum);
        }
        const float norm = 1.0f / sqrtf(pl_warp_reduce<pl_add>(sum) + PL_DELTA_EPS);
        for (uint32_t i = threadIdx.x % PL_WARP; i < room; i += PL_WARP)
            x[i] = i < key_dim ? qkv.get(row, col + i) * norm * scale : 0.0f;
        return norm;
    }
    __device__ __forceinline__ gates gates_of(uint64_t row, uint32_t head) const {
        const float rate = expf(a_log.get(0, head));
        const float x = ba.get(row, heads + head) + dt_bias.get(0, head);
        gates g;
        g.beta = 1.0f / (1.0f + expf(-ba.get(row, head)));
        g.log_decay = -rate * (x > 20.0f ? x : log1pf(expf(x)));
        g.slope = -rate / (1.0f + expf(-x));
        return g;
    }
};

template <typename T> delta<T> delta_of(const struct pl_call *c) {
    delta<T> t;
    t.qkv = pl_mat_of<T>(c->in[PL_GATED_DELTA_QKV]);
    t.ba = pl_mat_of<pl_either>(c->in[PL_GATED_DELTA_BA]);
    t.a_log = pl_mat_of<pl_either>(pl_as_row(&c->in[PL_GATED_DELTA_A_LOG]));
    t.dt_bias = pl_mat_of<pl_either>(pl_as_row(&c->in[PL_GATED_DELTA_DT_BIAS]));
    t.offsets = (const int32_t *)c->in[PL_GATED_DELTA_OFFSETS].p;
    t.rows = c->in[PL_GATED_DELTA_QKV].rows;
    t.n_seqs = (uint32_t)c->batch->n_seqs;
    t.heads = c->attr->heads, t.key_heads = c->attr->kv_heads;
    t.key_dim = c->attr->key_dim, t.dim = c->attr->head_dim;
    t.query_scale = 1.0f / sqrtf((float)t.key_dim);
    return t;
}

/* False for what no plan holds; o: the output, or its gradient. */
static inline bool delta_fits(const struct pl_call *c, const struct pl_view *o) {
    const struct pl_attr *a = c->attr;
    const struct pl_view *qkv = &c->in[PL_GATED_DELTA_QKV], *ba = &c->in[PL_GATED_DELTA_BA];
    const struct pl_view *a_log = &c->in[PL_GATED_DELTA_A_LOG];
    const struct pl_view *dt_bias = &c->in[PL_GATED_DELTA_DT_BIAS];
    uint64_t blocks;
    return a->heads && a->kv_heads && a->heads % a->kv_heads == 0 && a->key_dim && a->head_dim &&
           a->key_dim <= PL_DELTA_MAX_KEY &&
           qkv->cols == 2 * (uint64_t)a->kv_heads * a->key_dim + (uint64_t)a->heads * a->head_dim &&
           ba->rows == qkv->rows && ba->cols == 2 * (uint64_t)a->heads && a_log->rows == a->heads &&
           dt_bias->rows == a->heads && o->rows == qkv->rows &&
           o->cols == (uint64_t)a->heads * a->head_dim && pl_is_float(qkv) && pl_is_float(ba) &&
           pl_is_float(a_log) && pl_is_float(dt_bias) && pl_is_float(o) &&
           (c->batch->n_seqs >= 1 || !qkv->rows) &&
           c->in[PL_GATED_DELTA_OFFSETS].rows > c->batch->n_seqs &&
           pl_u64_mul(c->batch->n_seqs, (uint64_t)a->heads * a->head_dim, &blocks) &&
           blocks <= PL_GRID_MAX;
}

static inline bool holds_states(const struct pl_call *c, const struct pl_view *v, uint64_t rows) {
    const uint64_t cols = (uint64_t)c->attr->heads * c->attr->key_dim * c->attr->head_dim;
    return !v->p || (v->dtype == PL_DTYPE_F32 && v->cols == cols && v->rows >= rows);
}

} // namespace

#endif
