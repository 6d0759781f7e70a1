/* conv_silu.cu - CONV_SILU and CONV_SILU_BWD; the CPU's conv_silu.c says what they compute.
 *
 * A thread has a channel of PL_PARTIAL_ROWS rows, and the last taps of it in registers. */
#include "runtime/kernels/cuda/common.cuh"

#include "estimator/base/checked.h"
#include "estimator/ops/scratch/scratch_bytes.h"
#include "estimator/ops/scratch/workspace_attention.h"

namespace {

enum { THREADS = 128, MOST = PL_CONV_MAX_TAPS };

template <typename T> struct conv {
    pl_mat<T> y, c, dy, cache; /* c is its gradient on the way back */
    pl_mat<pl_either> w;
    const int32_t *offsets, *pos;
    float *partial; /* [chunks of rows][taps][CH]; NULL = no dw */
    uint64_t rows, cols;
    uint32_t n_seqs, taps, col_blocks;
};

/* A channel, the sequence of the row at hand, and numbers at the end of arrays of MOST: w[MOST-1]
 * meets x[MOST-1], which is y of the row. */
template <typename T> struct channel {
    const conv<T> &t;
    uint64_t col, start, end;
    uint32_t seq;
    float w[MOST], x[MOST];

    __device__ __forceinline__ channel(const conv<T> &all, uint64_t column, uint64_t row)
        : t(all), col(column), seq(0) {
        uint32_t high = t.n_seqs;
        while (high - seq > 1) {
            const uint32_t mid = (seq + high) / 2;
            if ((uint64_t)t.offsets[mid] <= row)
                seq = mid;
            else
                high = mid;
        }
        start = t.offsets[seq], end = t.offsets[seq + 1];
#pragma unroll
        for (uint32_t i = 0; i < MOST; i++)
            w[i] = i < MOST - t.taps ? 0.0f : t.w.get(col, i - (MOST - t.taps));
        fill(row);
    }
    __device__ __forceinline__ float before(uint64_t row, uint64_t back) const {
        if (row >= start + back) return t.y.get(row - back, col);
        const uint64_t from_start = back - (row - start);
        if (!t.cache.p || (uint64_t)t.pos[start] < from_start) return 0.0f;
        const uint64_t position = (uint64_t)t.pos[start] - from_start;
        return t.cache.get((uint64_t)seq * (t.taps - 1) + position % (t.taps - 1), col);
    }
    /* Sets x to what is there before a row. */
    __device__ __forceinline__ void fill(uint64_t row) {
#pragma unroll
        for (uint32_t i = 1; i < MOST; i++)
            x[i] = MOST - i < t.taps ? before(row, MOST - i) : 0.0f;
    }
    /* Turns to the row after the last one; returns the convolution there. */
    __device__ __forceinline__ float next(uint64_t row) {
        if (row >= end && seq + 1 < t.n_seqs) {
            while (row >= end && seq + 1 < t.n_seqs)
                start = end, end = t.offsets[++seq + 1];
            fill(row);
        }
        float u = 0.0f;
#pragma unroll
        for (uint32_t i = 0; i + 1 < MOST; i++)
            x[i] = x[i + 1];
        x[MOST - 1] = t.y.get(row, col);
#pragma unroll
        for (uint32_t i = 0; i < MOST; i++)
            if (i + t.taps >= MOST) u = fmaf(w[i], x[i], u);
        return u;
    }
};

template <typename T>
__device__ __forceinline__ bool find(const conv<T> &t, uint64_t *row, uint64_t *col) {
    *row = blockIdx.x / t.col_blocks * (uint64_t)PL_PARTIAL_ROWS;
    *col = (uint64_t)(blockIdx.x % t.col_blocks) * THREADS + threadIdx.x;
    return *col < t.cols;
}

template <typename T> __global__ void __launch_bounds__(THREADS) convolve(const conv<T> t) {
    uint64_t row0, col;
    if (!find(t, &row0, &col)) return;
    const uint64_t row1 = t.rows - row0 < PL_PARTIAL_ROWS ? t.rows : row0 + PL_PARTIAL_ROWS;
    channel<T> ch(t, col, row0);
    for (uint64_t row = row0; row < row1; row++) {
        const float u = ch.next(row);
        t.c.put(row, col, u / (1.0f + expf(-u)));
    }
}

/* A block has THREADS channels of a sequence. */
template <typename T> __global__ void __launch_bounds__(THREADS) keep_rows(const conv<T> t) {
    const uint64_t seq = blockIdx.x / t.col_blocks, kept = t.taps - 1;
    const uint64_t col = (uint64_t)(blockIdx.x % t.col_blocks) * THREADS + threadIdx.x;
    const uint64_t start = t.offsets[seq], end = t.offsets[seq + 1];
    if (col >= t.cols) return;
    for (uint64_t row = end - start < kept ? start : end - kept; row < end; row++) {
        const uint64_t position = (uint64_t)t.pos[start] + row - start;
        t.cache.put(seq * kept + position % kept, col, t.y.get(row, col));
    }
}

/* The gradients of the last rows, each complete after the taps-1 rows that follow it, or at the end
 * of its sequence: dy[MOST-1] is that of the row at hand. */
template <typename T> struct pending {
    uint64_t row0, row1; /* rows that are stored */
    float dy[MOST];

    __device__ __forceinline__ void clear(void) {
#pragma unroll
        for (uint32_t i = 0; i < MOST; i++)
            dy[i] = 0.0f;
    }
    __device__ __forceinline__ void store(const channel<T> &ch, uint64_t row, uint32_t back,
                                          float x) {
        if (row >= ch.start + back && row - back >= row0 && row - back < row1)
            ch.t.dy.put(row - back, ch.col, x);
    }
    __device__ __forceinline__ void add(const channel<T> &ch, uint64_t row, float g) {
        const uint32_t taps = ch.t.taps;
#pragma unroll
        for (uint32_t i = 0; i < MOST; i++) {
            const uint32_t back = MOST - 1 - i;
            if (back < taps) {
                /* w[taps-1] meets the row itself, and w[0] the oldest one. */
                dy[i] = fmaf(ch.w[i], g, dy[i]);
                if (back == taps - 1 || row + 1 == ch.end) store(ch, row, back, dy[i]);
            }
        }
        if (row + 1 == ch.end) clear();
#pragma unroll
        for (uint32_t i = 0; i + 1 < MOST; i++)
            dy[i] = dy[i + 1];
        dy[MOST - 1] = 0.0f;
    }
};

template <typename T> __global__ void __launch_bounds__(THREADS) convolve_bwd(const conv<T> t) {
    uint64_t row0, col;
    if (!find(t, &row0, &col)) return;
    pending<T> p;
    p.row0 = row0;
    p.row1 = t.rows - row0 < PL_PARTIAL_ROWS ? t.rows : row0 + PL_PARTIAL_ROWS;
    p.clear();
    const uint64_t end = t.rows - p.row1 < t.taps - 1 ? t.rows : p.row1 + t.taps - 1;
    float dw[MOST] = {0};
    channel<T> ch(t, col, row0);
    for (uint64_t row = row0; row < end; row++) {
        const float u = ch.next(row), s = 1.0f / (1.0f + expf(-u)), us = u * s;
        const float g = t.c.get(row, col) * (s + us - us * s);
        p.add(ch, row, g);
        if (row >= p.row1) continue;
#pragma unroll
        for (uint32_t i = 0; i < MOST; i++)
            dw[i] = fmaf(g, ch.x[i], dw[i]);
    }
    if (!t.partial) return;
    float *partial = t.partial + row0 / PL_PARTIAL_ROWS * t.taps * t.cols;
#pragma unroll
    for (uint32_t i = 0; i < MOST; i++)
        if (i + t.taps >= MOST) partial[(i + t.taps - MOST) * t.cols + col] = dw[i];
}

/* A thread has a channel and a tap, and adds its sums of all chunks. */
__global__ void __launch_bounds__(THREADS)
    add_chunks(const float *__restrict__ partial, pl_mat<pl_either> dw, uint64_t chunks,
               uint32_t cols, uint32_t taps, bool adds) {
    const uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x, all = (uint64_t)cols * taps;
    if (i >= all) return;
    double sum = adds ? dw.get(i % cols, i / cols) : 0.0f;
    for (uint64_t c = 0; c < chunks; c++)
        sum += partial[c * all + i];
    dw.put(i % cols, i / cols, (float)sum);
}

/* ---- launching ---- */

struct conv_call {
    struct pl_view y, w, c, dy, cache;
    const struct pl_view *offsets, *pos;
    float *partial;
    uint32_t n_seqs, taps, col_blocks;
};

template <typename T> conv<T> conv_of(const struct conv_call &s) {
    conv<T> t;
    t.y = pl_mat_of<T>(s.y), t.c = pl_mat_of<T>(s.c), t.dy = pl_mat_of<T>(s.dy);
    t.cache = pl_mat_of<T>(s.cache);
    t.w = pl_mat_of<pl_either>(s.w);
    t.offsets = (const int32_t *)s.offsets->p;
    t.pos = s.pos ? (const int32_t *)s.pos->p : NULL;
    t.partial = s.partial;
    t.rows = s.y.rows, t.cols = s.y.cols;
    t.n_seqs = s.n_seqs, t.taps = s.taps, t.col_blocks = s.col_blocks;
    return t;
}

unsigned blocks_of(const struct conv_call &s) {
    return (unsigned)(pl_u64_div_up(s.y.rows, PL_PARTIAL_ROWS) * s.col_blocks);
}

template <typename T> void launch_forward(const struct conv_call &s, cudaStream_t stream) {
    const conv<T> t = conv_of<T>(s);
    PL_LAUNCH((convolve<T>), dim3(blocks_of(s)), dim3(THREADS), 0, stream, t);
    if (t.cache.p && t.taps > 1)
        PL_LAUNCH((keep_rows<T>), dim3(t.n_seqs * t.col_blocks), dim3(THREADS), 0, stream, t);
}

template <typename T> void launch_backward(const struct conv_call &s, cudaStream_t stream) {
    PL_LAUNCH((convolve_bwd<T>), dim3(blocks_of(s)), dim3(THREADS), 0, stream, conv_of<T>(s));
}

bool same_shape(const struct pl_view *a, const struct pl_view *b) {
    return a->rows == b->rows && a->cols == b->cols && pl_is_float(a) && pl_is_float(b);
}

bool fits(struct conv_call *s, const struct pl_call *c) {
    uint64_t blocks;
    s->n_seqs = (uint32_t)c->batch->n_seqs;
    s->taps = c->attr->taps;
    s->col_blocks = (uint32_t)pl_u64_div_up(s->y.cols, THREADS);
    return s->taps >= 1 && s->taps <= MOST && pl_is_float(&s->w) && s->w.cols == s->taps &&
           s->w.rows == s->y.cols && same_shape(&s->y, &s->c) &&
           (c->batch->n_seqs >= 1 || !s->y.rows) && s->offsets->rows > c->batch->n_seqs &&
           s->y.cols < PL_GRID_MAX / MOST &&
           pl_u64_mul(pl_u64_max(s->y.rows, s->n_seqs), s->col_blocks, &blocks) &&
           blocks <= PL_GRID_MAX;
}

int form_of(const struct conv_call &s) {
    const struct pl_view *const views[] = {&s.y, &s.c, &s.dy, &s.cache};
    int form = -1;
    for (int i = 0; i < 4; i++) {
        if (!views[i]->p) continue;
        const int own = pl_form_of_type(views[i]->dtype);
        if (form >= 0 && form != own) return PL_FORM_EITHER;
        form = own;
    }
    return form;
}

} // namespace

typedef void (*launch_fn)(const struct conv_call &, cudaStream_t);

/* in: y[N,CH] w[CH,taps] offsets[B+1]i32 pos?[N]i32 cache?[..,CH]!; out: c[N,CH] cache?!. */
extern "C" pl_err pl_cuda_conv_silu(struct pl_device *dev, const struct pl_call *c) {
    static const launch_fn launch[PL_FORMS] = PL_TYPE_TABLE(launch_forward);
    struct conv_call s = {};
    s.y = c->in[PL_CONV_SILU_Y], s.w = c->in[PL_CONV_SILU_W], s.c = c->out[PL_CONV_SILU_OUT_C];
    s.cache = c->out[PL_CONV_SILU_OUT_CACHE];
    s.offsets = &c->in[PL_CONV_SILU_OFFSETS], s.pos = &c->in[PL_CONV_SILU_POS];
    if (!fits(&s, c) ||
        (s.cache.p && (!s.pos->p || s.pos->rows != s.y.rows || s.cache.cols != s.y.cols ||
                       !pl_is_float(&s.cache) || s.cache.rows < (uint64_t)s.n_seqs * (s.taps - 1))))
        return PL_ERR_PLAN_BROKEN;
    if (s.y.rows && s.y.cols) launch[form_of(s)](s, pl_cuda_of(dev)->stream);
    return pl_cuda_launched();
}

/* in: y[N,CH] w[CH,taps] offsets[B+1]i32 dc[N,CH] ws? dw?[CH,taps]!; out: dy[N,CH]
 * dw?[CH,taps]!. */
extern "C" pl_err pl_cuda_conv_silu_bwd(struct pl_device *dev, const struct pl_call *c) {
    static const launch_fn launch[PL_FORMS] = PL_TYPE_TABLE(launch_backward);
    const struct pl_view *dw = &c->out[PL_CONV_SILU_BWD_OUT_DW];
    struct conv_call s = {};
    s.y = c->in[PL_CONV_SILU_BWD_Y], s.w = c->in[PL_CONV_SILU_BWD_W];
    s.c = c->in[PL_CONV_SILU_BWD_DC], s.dy = c->out[PL_CONV_SILU_BWD_OUT_DY];
    s.offsets = &c->in[PL_CONV_SILU_BWD_OFFSETS];
    s.partial = dw->p ? (float *)c->in[PL_CONV_SILU_BWD_WS].p : NULL;
    const uint64_t need =
        pl_op_workspace_bytes(&dev->traits, PL_OP_CONV_SILU_BWD, c->attr, s.y.rows, s.y.cols);
    if (!fits(&s, c) || !same_shape(&s.y, &s.dy) ||
        (dw->p && (!same_shape(dw, &s.w) || !pl_ws_holds(&c->in[PL_CONV_SILU_BWD_WS], need))))
        return PL_ERR_PLAN_BROKEN;
    const cudaStream_t stream = pl_cuda_of(dev)->stream;
    if (s.y.rows && s.y.cols) launch[form_of(s)](s, stream);
    if (dw->p && s.y.cols)
        PL_LAUNCH(add_chunks, dim3((unsigned)pl_u64_div_up(s.y.cols * s.taps, THREADS)),
                  dim3(THREADS), 0, stream, s.partial, pl_mat_of<pl_either>(*dw),
                  pl_u64_div_up(s.y.rows, PL_PARTIAL_ROWS), (uint32_t)s.y.cols, s.taps,
                  pl_call_adds(c));
    return pl_cuda_launched();
}

PL_CUDA_PRELOAD(conv_silu) = {PL_TYPE_KERNELS(convolve), PL_TYPE_KERNELS(keep_rows),
                              PL_TYPE_KERNELS(convolve_bwd), PL_CUDA_KERNEL(add_chunks), NULL};
