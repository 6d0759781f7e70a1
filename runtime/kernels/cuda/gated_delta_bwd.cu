/* gated_delta_bwd.cu - GATED_DELTA_BWD, chunk by chunk backwards, as products of matrices.
 *
 * Of a chunk of n tokens with the state S before it and G, the gradient of the state after it: with
 * c_t the sum of log alpha up to t, D_ts = exp(c_t - c_s), u_t = beta_t r_t,
 *   r_t = v_t - exp(c_t) S^T k_t - sum over s < t of D_ts (k_s . k_t) u_s
 *   o_t = exp(c_t) S^T q_t + sum over s <= t of D_ts (k_s . q_t) u_s
 *   after = exp(c_n) S + sum over s of D_ns k_s u_s^T
 * and with e_t = -beta_t du_t, P_ts = do_t . u_s, E_ts = e_t . u_s,
 *   du_s = D_ns G^T k_s + sum over t >= s of D_ts (k_s . q_t) do_t
 *          + sum over t > s of D_ts (k_s . k_t) e_t;  dv = -e;  dbeta_t = du_t . r_t
 *   dq_t = exp(c_t) S do_t + sum over s <= t of D_ts P_ts k_s
 *   dk_t = exp(c_t) S e_t + D_nt G u_t + sum over s < t of D_ts E_ts k_s
 *          + sum over r >= t of D_rt P_rt q_r + sum over r > t of D_rt E_rt k_r
 *   dS = exp(c_n) G + sum over t of exp(c_t) (q_t do_t^T + k_t e_t^T)
 * Every exponent is a difference that is not above 0. A block has a head of keys and every
 * PL_CUDA_DELTA_BLOCKSth sequence: dq and dk are sums over its heads of values. */
#include "runtime/kernels/cuda/gated_delta.cuh"

namespace {

enum { THREADS = 256, WARPS = THREADS / PL_WARP, CHUNK = PL_DELTA_CHUNK, SUM_THREADS = 128 };

struct parts {
#define PART(name, floats) float *name;
    PL_CUDA_DELTA_PARTS(PART, 0, 0, 0)
#undef PART
};

template <typename T> struct backward {
    delta<T> t;
    pl_mat<T> go, dqkv;
    pl_mat<pl_either> dba;
    pl_mat<float> states;
    float *tokens; /* [2][N,V]: terms of dA_log, and of ddt_bias; NULL: not wanted */
    float *scratch;
    uint64_t floats_per_block;
};

/* A chunk, and the value head at hand. */
template <typename T> struct chunk {
    const backward<T> &b;
    struct parts s;
    double *log_sum; /* [CHUNK], in shared memory: large sums whose differences may be small */
    float *beta, *q_norm, *k_norm, *dlog; /* the same */
    uint64_t row0, kept;
    uint32_t n, head;

    __device__ __forceinline__ float decay(uint32_t t, uint32_t s_) const {
        return expf((float)(log_sum[t] - log_sum[s_]));
    }
    /* The log of all decays after a token. */
    __device__ __forceinline__ float after(uint32_t t) const {
        return expf((float)(log_sum[n - 1] - log_sum[t]));
    }
    __device__ __forceinline__ float state(uint32_t i, uint32_t j) const {
        return b.states.get(kept, b.t.place(head, i, j));
    }
    __device__ __forceinline__ float go(uint32_t t, uint32_t j) const {
        return b.go.get(row0 + t, (uint64_t)head * b.t.dim + j);
    }
    __device__ __forceinline__ float *ds(void) const {
        return s.ds + (uint64_t)(head % (b.t.heads / b.t.key_heads)) * b.t.key_dim * b.t.dim;
    }
    __device__ __forceinline__ float u(uint32_t t, uint32_t j) const {
        return beta[t] * s.rest[t * b.t.dim + j];
    }
    __device__ __forceinline__ float e(uint32_t t, uint32_t j) const {
        return -beta[t] * s.du[t * b.t.dim + j];
    }
};

#define FOR_ALL(i, count) for (uint32_t i = threadIdx.x; i < (count); i += THREADS)

/* kk[t,s] = k_t . k_s and qk[t,s] = q_t . k_s, for s <= t. */
template <typename T> __device__ void multiply_keys(const chunk<T> &c) {
    const uint32_t dk = c.b.t.key_dim;
    FOR_ALL(at, c.n * CHUNK) {
        const uint32_t t = at / CHUNK, s = at % CHUNK;
        float kk = 0.0f, qk = 0.0f;
        if (s > t) continue;
        for (uint32_t i = 0; i < dk; i++) {
            const float k = c.s.k[s * dk + i];
            kk = fmaf(c.s.k[t * dk + i], k, kk);
            qk = fmaf(c.s.q[t * dk + i], k, qk);
        }
        c.s.kk[at] = kk, c.s.qk[at] = qk;
    }
}

/* A thread has columns: r from the first token to the last, then du from the last to the first. */
template <typename T> __device__ void solve(const chunk<T> &c) {
    const uint32_t dk = c.b.t.key_dim, dim = c.b.t.dim;
    const float *g = c.ds();
    FOR_ALL(j, dim) {
        for (uint32_t t = 0; t < c.n; t++) {
            float seen = 0.0f, r = c.b.t.qkv.get(c.row0 + t, c.b.t.value_col(c.head) + j);
            for (uint32_t i = 0; i < dk; i++)
                seen = fmaf(c.state(i, j), c.s.k[t * dk + i], seen);
            r -= expf((float)c.log_sum[t]) * seen;
            for (uint32_t s = 0; s < t; s++)
                r -= c.decay(t, s) * c.s.kk[t * CHUNK + s] * c.u(s, j);
            c.s.rest[t * dim + j] = r;
        }
        for (uint32_t s = c.n; s-- > 0;) {
            float du = 0.0f;
            for (uint32_t i = 0; i < dk; i++)
                du = fmaf(g[i * dim + j], c.s.k[s * dk + i], du);
            du *= c.after(s);
            for (uint32_t t = s; t < c.n; t++) {
                const float of_key = t > s ? c.s.kk[t * CHUNK + s] * c.e(t, j) : 0.0f;
                du += c.decay(t, s) * (c.s.qk[t * CHUNK + s] * c.go(t, j) + of_key);
            }
            c.s.du[s * dim + j] = du;
            c.b.dqkv.put(c.row0 + s, c.b.t.value_col(c.head) + j, c.beta[s] * du);
        }
    }
}

/* p[t,s] = D_ts P_ts, e[t,s] = D_ts E_ts for s < t and 0 for s = t. */
template <typename T> __device__ void multiply_changes(const chunk<T> &c) {
    FOR_ALL(at, c.n * CHUNK) {
        const uint32_t t = at / CHUNK, s = at % CHUNK;
        float p = 0.0f, e = 0.0f;
        if (s > t) continue;
        for (uint32_t j = 0; j < c.b.t.dim; j++) {
            const float u = c.u(s, j);
            p = fmaf(c.go(t, j), u, p);
            e = fmaf(c.e(t, j), u, e);
        }
        c.s.p[at] = c.decay(t, s) * p;
        c.s.e[at] = s < t ? c.decay(t, s) * e : 0.0f;
    }
}

/* dq and dk; first and last keep what the decays before and after a token are multiplied with. */
template <typename T> __device__ void add_keys(const chunk<T> &c) {
    const uint32_t dk = c.b.t.key_dim, dim = c.b.t.dim;
    const float *g = c.ds(), *q = c.s.q, *k = c.s.k;
    FOR_ALL(at, c.n * dk) {
        const uint32_t t = at / dk, i = at % dk;
        const float before = expf((float)c.log_sum[t]), after = c.after(t);
        float dq = 0.0f, key = 0.0f, last = 0.0f;
        for (uint32_t j = 0; j < dim; j++) {
            const float state = c.state(i, j);
            dq = fmaf(state, c.go(t, j), dq);
            key = fmaf(state, c.e(t, j), key);
            last = fmaf(g[i * dim + j], c.u(t, j), last);
        }
        dq *= before, key *= before, last *= after;
        c.s.first[at] = q[at] * dq + k[at] * key;
        c.s.last[at] = k[at] * last;
        key += last;
        for (uint32_t s = 0; s <= t; s++) {
            dq = fmaf(c.s.p[t * CHUNK + s], k[s * dk + i], dq);
            key = fmaf(c.s.e[t * CHUNK + s], k[s * dk + i], key);
        }
        for (uint32_t r = t; r < c.n; r++)
            key += c.s.p[r * CHUNK + t] * q[r * dk + i] + c.s.e[r * CHUNK + t] * k[r * dk + i];
        c.s.gq[at] += dq;
        c.s.gk[at] += key;
    }
}

/* The gradient of every log alpha: the sum of all terms that it decays. The first of every row of
 * first and last becomes the row's sum. shared: [WARPS]. */
template <typename T> __device__ void sum_logs(const chunk<T> &c, float *shared) {
    const uint32_t dk = c.b.t.key_dim, dim = c.b.t.dim;
    const float *g = c.ds();
    float whole = 0.0f;
    FOR_ALL(at, dk * dim) whole = fmaf(c.state(at / dim, at % dim), g[at], whole);
    whole = expf((float)c.log_sum[c.n - 1]) * pl_team_reduce<pl_add>(whole, shared);
    FOR_ALL(t, c.n) {
        float *first = c.s.first + t * dk, *last = c.s.last + t * dk;
        for (uint32_t i = 1; i < dk; i++)
            first[0] += first[i], last[0] += last[i];
    }
    __syncthreads();
    FOR_ALL(t, c.n) {
        float sum = whole;
        for (uint32_t s = 0; s < t; s++)
            sum += c.s.last[s * dk];
        for (uint32_t r = t; r < c.n; r++) {
            sum += c.s.first[r * dk];
            for (uint32_t s = 0; s < t; s++)
                sum += c.s.p[r * CHUNK + s] * c.s.qk[r * CHUNK + s] +
                       c.s.e[r * CHUNK + s] * c.s.kk[r * CHUNK + s];
        }
        c.dlog[t] = sum;
    }
    __syncthreads();
}

template <typename T> __device__ void write_gates(const chunk<T> &c) {
    const delta<T> &d = c.b.t;
    FOR_ALL(t, c.n) {
        const uint64_t row = c.row0 + t;
        const gates g = d.gates_of(row, c.head);
        const float dlog = c.dlog[t];
        float dbeta = 0.0f;
        for (uint32_t j = 0; j < d.dim; j++)
            dbeta = fmaf(c.s.du[t * d.dim + j], c.s.rest[t * d.dim + j], dbeta);
        c.b.dba.put(row, c.head, dbeta * g.beta * (1.0f - g.beta));
        c.b.dba.put(row, d.heads + c.head, dlog * g.slope);
        if (!c.b.tokens) continue;
        c.b.tokens[row * d.heads + c.head] = dlog * g.log_decay;
        c.b.tokens[(d.rows + row) * d.heads + c.head] = dlog * g.slope;
    }
}

template <typename T> __device__ void step_back(const chunk<T> &c) {
    const uint32_t dk = c.b.t.key_dim, dim = c.b.t.dim;
    float *g = c.ds();
    FOR_ALL(at, dk * dim) {
        const uint32_t i = at / dim, j = at % dim;
        float x = expf((float)c.log_sum[c.n - 1]) * g[at];
        for (uint32_t t = 0; t < c.n; t++)
            x += expf((float)c.log_sum[t]) *
                 (c.s.q[t * dk + i] * c.go(t, j) + c.s.k[t * dk + i] * c.e(t, j));
        g[at] = x;
    }
}

/* A warp writes a head of keys or queries: the gradient through x / sqrt(sum of squares + eps). */
template <typename T>
__device__ __forceinline__ void write_key(const chunk<T> &c, uint32_t t, uint32_t head,
                                          const float *x, const float *d, float scale, float norm) {
    const uint32_t dk = c.b.t.key_dim;
    float dot = 0.0f;
    for (uint32_t i = threadIdx.x % PL_WARP; i < dk; i += PL_WARP)
        dot = fmaf(x[i], d[i], dot);
    dot = pl_warp_reduce<pl_add>(dot); /* of x = scale * unit: scale * (unit . d) */
    for (uint32_t i = threadIdx.x % PL_WARP; i < dk; i += PL_WARP)
        c.b.dqkv.put(c.row0 + t, (uint64_t)head * dk + i,
                     norm * (scale * d[i] - x[i] / scale * dot));
}

template <typename T> __device__ void run_head(chunk<T> &c, float *shared) {
    const delta<T> &d = c.b.t;
    __syncthreads();
    if (threadIdx.x == 0) {
        double sum = 0;
        for (uint32_t t = 0; t < c.n; t++) {
            const gates g = d.gates_of(c.row0 + t, c.head);
            c.log_sum[t] = sum += g.log_decay;
            c.beta[t] = g.beta;
        }
    }
    __syncthreads();
    solve(c);
    __syncthreads();
    multiply_changes(c);
    __syncthreads();
    add_keys(c);
    __syncthreads();
    sum_logs(c, shared);
    write_gates(c);
    __syncthreads();
    step_back(c);
}

template <typename T> __device__ void run_chunk(chunk<T> &c, uint32_t key_head, float *shared) {
    const delta<T> &d = c.b.t;
    const uint32_t dk = d.key_dim, group = d.heads / d.key_heads, warp = threadIdx.x / PL_WARP;
    __syncthreads();
    for (uint32_t t = warp; t < c.n; t += WARPS) {
        const uint64_t row = c.row0 + t;
        const float q = d.load_key(row, key_head, d.query_scale, c.s.q + t * dk, dk);
        const float k = d.load_key(row, d.key_heads + key_head, 1.0f, c.s.k + t * dk, dk);
        if (threadIdx.x % PL_WARP == 0) c.q_norm[t] = q, c.k_norm[t] = k;
    }
    FOR_ALL(i, c.n * dk) c.s.gq[i] = c.s.gk[i] = 0.0f;
    __syncthreads();
    multiply_keys(c);
    for (uint32_t i = 0; i < group; i++) {
        c.head = key_head * group + i;
        run_head(c, shared);
    }
    __syncthreads();
    for (uint32_t t = warp; t < c.n; t += WARPS) {
        write_key(c, t, key_head, c.s.q + t * dk, c.s.gq + t * dk, d.query_scale, c.q_norm[t]);
        write_key(c, t, d.key_heads + key_head, c.s.k + t * dk, c.s.gk + t * dk, 1.0f, c.k_norm[t]);
    }
}

/* Two blocks are on a multiprocessor. Without that number the compiler aims at more blocks, or at
 * longer chains of loads, and spills registers for them. */
template <typename T> __global__ void __launch_bounds__(THREADS, 2) walk_back(const backward<T> b) {
    PL_SHARED(float, shared); /* the arrays of a chunk, then a float per warp */
    const uint32_t key_head = blockIdx.x % b.t.key_heads, group = b.t.heads / b.t.key_heads;
    float *at = b.scratch + blockIdx.x * b.floats_per_block;
    float *numbers = shared + 2 * CHUNK;
    chunk<T> c = {b,
                  {},
                  (double *)shared,
                  numbers,
                  numbers + CHUNK,
                  numbers + 2 * CHUNK,
                  numbers + 3 * CHUNK,
                  0,
                  0,
                  0,
                  0};
#define PART(name, floats)                                                                         \
    c.s.name = at;                                                                                 \
    at += PL_DELTA_ROOM(floats);
    PL_CUDA_DELTA_PARTS(PART, b.t.key_dim, b.t.dim, group)
#undef PART
    for (uint32_t seq = blockIdx.x / b.t.key_heads; seq < b.t.n_seqs; seq += PL_CUDA_DELTA_BLOCKS) {
        const uint64_t start = b.t.offsets[seq], length = b.t.offsets[seq + 1] - start;
        __syncthreads();
        FOR_ALL(i, group * b.t.key_dim * b.t.dim) c.s.ds[i] = 0.0f;
        for (uint64_t i = (length + CHUNK - 1) / CHUNK; i-- > 0;) {
            c.row0 = start + i * CHUNK;
            const uint64_t left = length - i * CHUNK;
            c.n = left < CHUNK ? (uint32_t)left : (uint32_t)CHUNK;
            c.kept = PL_DELTA_ROW_OF(start, seq, i);
            run_chunk(c, key_head, shared + 6 * CHUNK);
        }
    }
}

/* A block adds a head's terms of all tokens: each thread its share, then the shares in order. */
__global__ void __launch_bounds__(SUM_THREADS)
    sum_tokens(const float *__restrict__ terms, uint64_t rows, uint32_t heads,
               pl_mat<pl_either> out, bool adds) {
    PL_SHARED(double, sums); /* [SUM_THREADS] */
    const uint32_t head = blockIdx.x;
    double sum = 0;
    for (uint64_t row = threadIdx.x; row < rows; row += SUM_THREADS)
        sum += terms[row * heads + head];
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (uint32_t i = 1; i < SUM_THREADS; i++)
        sum += sums[i];
    out.put(0, head, (float)(sum + (adds ? out.get(0, head) : 0.0f)));
}

/* ---- launching ---- */

template <typename T>
void launch_back(const struct pl_call *c, uint64_t floats_per_block, cudaStream_t stream) {
    const bool keeps =
        c->out[PL_GATED_DELTA_BWD_OUT_DA_LOG].p || c->out[PL_GATED_DELTA_BWD_OUT_DDT_BIAS].p;
    float *ws = (float *)c->in[PL_GATED_DELTA_BWD_WS].p;
    backward<T> b;
    b.t = delta_of<T>(c);
    b.go = pl_mat_of<T>(c->in[PL_GATED_DELTA_BWD_DO]);
    b.dqkv = pl_mat_of<T>(c->out[PL_GATED_DELTA_BWD_OUT_DQKV]);
    b.dba = pl_mat_of<pl_either>(c->out[PL_GATED_DELTA_BWD_OUT_DBA]);
    b.states = pl_mat_of<float>(c->in[PL_GATED_DELTA_BWD_STATES]);
    b.tokens = keeps ? ws : NULL;
    b.scratch = ws + pl_delta_token_floats(b.t.rows, b.t.heads);
    b.floats_per_block = floats_per_block;
    PL_LAUNCH((walk_back<T>), dim3(b.t.key_heads * PL_CUDA_DELTA_BLOCKS), dim3(THREADS),
              (6 * CHUNK + WARPS) * sizeof(float), stream, b);
}

void launch_sum(const struct pl_call *c, const struct pl_view *out, const float *terms,
                cudaStream_t stream) {
    if (!out->p) return;
    PL_LAUNCH(sum_tokens, dim3(c->attr->heads), dim3(SUM_THREADS), SUM_THREADS * sizeof(double),
              stream, terms, c->in[PL_GATED_DELTA_BWD_QKV].rows, c->attr->heads,
              pl_mat_of<pl_either>(pl_as_row(out)), pl_call_adds(c));
}

bool vector_fits(const struct pl_view *v, uint32_t heads) {
    return !v->p || (pl_is_float(v) && v->rows == heads);
}

} // namespace

/* in: qkv ba A_log[V] dt_bias[V] offsets[B+1]i32 states f32 do[N,V*dv] ws dA_log?[V]!
 * ddt_bias?[V]!; out: dqkv dba dA_log?! ddt_bias?!. */
extern "C" pl_err pl_cuda_gated_delta_bwd(struct pl_device *dev, const struct pl_call *c) {
    static void (*const launch[PL_FORMS])(const struct pl_call *, uint64_t, cudaStream_t) =
        PL_TYPE_TABLE(launch_back);
    const struct pl_view *qkv = &c->in[PL_GATED_DELTA_BWD_QKV], *ws = &c->in[PL_GATED_DELTA_BWD_WS];
    const struct pl_view *go = &c->in[PL_GATED_DELTA_BWD_DO];
    const struct pl_view *states = &c->in[PL_GATED_DELTA_BWD_STATES];
    const struct pl_view *dqkv = &c->out[PL_GATED_DELTA_BWD_OUT_DQKV];
    const struct pl_view *dba = &c->out[PL_GATED_DELTA_BWD_OUT_DBA];
    const struct pl_view *da_log = &c->out[PL_GATED_DELTA_BWD_OUT_DA_LOG];
    const struct pl_view *ddt_bias = &c->out[PL_GATED_DELTA_BWD_OUT_DDT_BIAS];
    const uint64_t need =
        pl_op_workspace_bytes(&dev->traits, PL_OP_GATED_DELTA_BWD, c->attr, qkv->rows, qkv->cols);
    if (!delta_fits(c, go) ||
        !holds_states(c, states, pl_delta_rows(qkv->rows, c->batch->n_seqs)) || !states->p ||
        !pl_is_float(dqkv) || !pl_is_float(dba) || dqkv->rows != qkv->rows ||
        dqkv->cols != qkv->cols || dba->rows != qkv->rows ||
        dba->cols != c->in[PL_GATED_DELTA_BWD_BA].cols || !vector_fits(da_log, c->attr->heads) ||
        !vector_fits(ddt_bias, c->attr->heads) || !pl_ws_holds(ws, need))
        return PL_ERR_PLAN_BROKEN;
    const uint64_t of_tokens = pl_delta_token_floats(qkv->rows, c->attr->heads);
    const uint64_t blocks = (uint64_t)c->attr->kv_heads * PL_CUDA_DELTA_BLOCKS;
    const bool is_one = qkv->dtype == go->dtype && qkv->dtype == dqkv->dtype;
    const cudaStream_t stream = pl_cuda_of(dev)->stream;
    const float *tokens = (const float *)ws->p;
    launch[is_one ? pl_form_of_type(qkv->dtype) : (int)PL_FORM_EITHER](
        c, (need / sizeof(float) - of_tokens) / blocks, stream);
    launch_sum(c, da_log, tokens, stream);
    launch_sum(c, ddt_bias, tokens + qkv->rows * c->attr->heads, stream);
    return pl_cuda_launched();
}

PL_CUDA_PRELOAD(gated_delta_bwd) = {PL_TYPE_KERNELS(walk_back), PL_CUDA_KERNEL(sum_tokens), NULL};
