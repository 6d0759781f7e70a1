/* gated_delta.cu - GATED_DELTA; the CPU's gated_delta.c says what it computes.
 *
 * A block has COLS columns of the state of a value head and walks over a sequence token by token. A
 * warp has four columns: eight lanes share one, each with every eighth row in registers, so that a
 * token needs shuffles but no barrier. Queries and keys of STAGE tokens are normalised at one time.
 */
#include "runtime/kernels/cuda/gated_delta.cuh"

namespace {

enum { WARPS = 8, THREADS = WARPS * PL_WARP, SHARERS = 8, COLS = 4 * WARPS, STAGE = 16 };

template <typename T> struct forward {
    delta<T> t;
    pl_mat<T> o;
    pl_mat<float> states, state; /* p NULL: none */
    const int32_t *pos;
    uint32_t slices;
};

/* Sums over the lanes that share a column, which are four apart. */
__device__ __forceinline__ float sum_of_column(float x) {
    for (unsigned o = 4; o < PL_WARP; o *= 2)
        x += __shfl_xor_sync(PL_ALL_LANES, x, o);
    return x;
}

/* Blocks of a multiprocessor, at least; 0: the compiler decides. With four rows it would spill
 * registers on Blackwell to have more than three. */
constexpr int least_blocks(int rows) {
    return rows == 4 ? 3 : 0;
}

/* R rows of a state a lane: keys of at most SHARERS * R columns. */
template <typename T, int R>
__global__ void __launch_bounds__(THREADS, least_blocks(R)) walk_states(const forward<T> f) {
    PL_SHARED(float, shared); /* q, k [STAGE,SHARERS*R] each, then alpha, beta [STAGE] */
    constexpr uint32_t ROWS = SHARERS * R;
    const delta<T> &t = f.t;
    float *q = shared, *k = q + STAGE * ROWS, *alpha = k + STAGE * ROWS, *beta = alpha + STAGE;
    const uint32_t slice = blockIdx.x % f.slices, head = blockIdx.x / f.slices % t.heads;
    const uint32_t seq = blockIdx.x / f.slices / t.heads, key_head = head / (t.heads / t.key_heads);
    const uint32_t lane = threadIdx.x % PL_WARP, warp = threadIdx.x / PL_WARP, first = lane / 4;
    const uint32_t col = slice * COLS + warp * 4 + lane % 4;
    const bool is_real = col < t.dim;
    const uint64_t start = t.offsets[seq], end = t.offsets[seq + 1];
    const bool goes_on = f.state.p && end > start && f.pos[start] > 0;
    float s[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
        const uint32_t i = first + SHARERS * r;
        s[r] = goes_on && is_real && i < t.key_dim ? f.state.get(seq, t.place(head, i, col)) : 0.0f;
    }
    for (uint64_t row0 = start; row0 < end; row0 += STAGE) {
        const uint32_t n = end - row0 < STAGE ? (uint32_t)(end - row0) : (uint32_t)STAGE;
        __syncthreads();
        for (uint32_t i = warp; i < n; i += WARPS) {
            t.load_key(row0 + i, key_head, t.query_scale, q + i * ROWS, ROWS);
            t.load_key(row0 + i, t.key_heads + key_head, 1.0f, k + i * ROWS, ROWS);
        }
        if (threadIdx.x < n) {
            const gates g = t.gates_of(row0 + threadIdx.x, head);
            alpha[threadIdx.x] = expf(g.log_decay), beta[threadIdx.x] = g.beta;
        }
        __syncthreads();
        if (f.states.p && (row0 - start) % PL_DELTA_CHUNK == 0 && is_real) {
            const uint64_t kept = PL_DELTA_ROW_OF(start, seq, (row0 - start) / PL_DELTA_CHUNK);
#pragma unroll
            for (int r = 0; r < R; r++)
                if (first + SHARERS * r < t.key_dim)
                    f.states.put(kept, t.place(head, first + SHARERS * r, col), s[r]);
        }
        for (uint32_t i = 0; i < n; i++) {
            const float *ki = k + i * ROWS + first, *qi = q + i * ROWS + first;
            float seen = 0.0f, o = 0.0f;
#pragma unroll
            for (int r = 0; r < R; r++)
                seen = fmaf(ki[SHARERS * r], s[r], seen);
            seen = sum_of_column(seen);
            const float v = is_real ? t.qkv.get(row0 + i, t.value_col(head) + col) : 0.0f;
            const float d = beta[i] * (v - alpha[i] * seen);
#pragma unroll
            for (int r = 0; r < R; r++) {
                s[r] = fmaf(ki[SHARERS * r], d, alpha[i] * s[r]);
                o = fmaf(qi[SHARERS * r], s[r], o);
            }
            o = sum_of_column(o);
            if (first == 0 && is_real) f.o.put(row0 + i, (uint64_t)head * t.dim + col, o);
        }
    }
    if (!f.state.p || end == start || !is_real) return;
#pragma unroll
    for (int r = 0; r < R; r++)
        if (first + SHARERS * r < t.key_dim)
            f.state.put(seq, t.place(head, first + SHARERS * r, col), s[r]);
}

/* ---- launching ---- */

template <typename T, int R>
void launch_rows(const struct pl_call *c, uint32_t slices, cudaStream_t stream) {
    forward<T> f;
    f.t = delta_of<T>(c);
    f.o = pl_mat_of<T>(c->out[PL_GATED_DELTA_OUT_O]);
    f.states = pl_mat_of<float>(c->out[PL_GATED_DELTA_OUT_STATES]);
    f.state = pl_mat_of<float>(c->out[PL_GATED_DELTA_OUT_STATE]);
    f.pos = (const int32_t *)c->in[PL_GATED_DELTA_POS].p;
    f.slices = slices;
    const uint64_t blocks = c->batch->n_seqs * c->attr->heads * slices;
    PL_LAUNCH((walk_states<T, R>), dim3((unsigned)blocks), dim3(THREADS),
              (2 * STAGE * SHARERS * R + 2 * STAGE) * sizeof(float), stream, f);
}

template <typename T>
void launch_walks(const struct pl_call *c, uint32_t slices, cudaStream_t stream) {
    const uint32_t rows = c->attr->key_dim;
    if (rows <= SHARERS * 4)
        launch_rows<T, 4>(c, slices, stream);
    else if (rows <= SHARERS * 16)
        launch_rows<T, 16>(c, slices, stream);
    else
        launch_rows<T, 32>(c, slices, stream);
}

static_assert(PL_DELTA_MAX_KEY <= SHARERS * 32, "a lane has at most 32 rows");

} // namespace

/* in: qkv[N,2*K*dk+V*dv] ba[N,2V] A_log[V] dt_bias[V] offsets[B+1]i32 ws pos?[N]i32
 * state?[B,V*dk*dv]f32!; out: o[N,V*dv] states?[..,V*dk*dv]f32 state?!. */
extern "C" pl_err pl_cuda_gated_delta(struct pl_device *dev, const struct pl_call *c) {
    static void (*const launch[PL_FORMS])(const struct pl_call *, uint32_t, cudaStream_t) =
        PL_TYPE_TABLE(launch_walks);
    const struct pl_view *qkv = &c->in[PL_GATED_DELTA_QKV], *o = &c->out[PL_GATED_DELTA_OUT_O];
    const struct pl_view *states = &c->out[PL_GATED_DELTA_OUT_STATES];
    const struct pl_view *state = &c->out[PL_GATED_DELTA_OUT_STATE];
    const struct pl_view *pos = &c->in[PL_GATED_DELTA_POS];
    if (!delta_fits(c, o) || !holds_states(c, states, pl_delta_rows(qkv->rows, c->batch->n_seqs)) ||
        !holds_states(c, state, c->batch->n_seqs) ||
        (state->p && (!pos->p || pos->rows != qkv->rows)))
        return PL_ERR_PLAN_BROKEN;
    const uint32_t slices = (uint32_t)pl_u64_div_up(c->attr->head_dim, COLS);
    const int form = qkv->dtype == o->dtype ? pl_form_of_type(o->dtype) : (int)PL_FORM_EITHER;
    if (c->batch->n_seqs) launch[form](c, slices, pl_cuda_of(dev)->stream);
    return pl_cuda_launched();
}

#define WALKS(T)                                                                                   \
    PL_CUDA_KERNEL(walk_states<T, 4>), PL_CUDA_KERNEL(walk_states<T, 16>),                         \
        PL_CUDA_KERNEL(walk_states<T, 32>)
#define WALKS_OF(T, unused) WALKS(pl_stored_##T),
PL_CUDA_PRELOAD(gated_delta) = {PL_FLOAT_LIST(WALKS_OF, ) WALKS(pl_either), NULL};
