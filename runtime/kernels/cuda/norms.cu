/* norms.cu - RMSNORM, ADD_RMSNORM, RENORM, RMSNORM_BWD; QK_NORM and QK_NORM_BWD, the same per head.
 *
 * A row of H heads of D columns is H norms of D columns with one w[D]; a plain norm has one head. A
 * team of threads owns a norm and keeps it in registers between the sum and the scaling, so memory
 * is read once; only columns past what the registers hold are read again. */
#include "runtime/kernels/cuda/strips.cuh"

#include "estimator/base/checked.h"
#include "estimator/ops/scratch/scratch_bytes.h"
#include "estimator/ops/scratch/workspace_cuda_rows.h"

namespace {

#define BLOCK 256 /* threads of a block of several teams */
#define TEAM  512 /* most threads of a team */
#define EACH  16  /* elements a thread keeps in registers; TEAM threads hold 8192 columns */

/* ---- which norm a team works on ---- */

struct norms {
    uint32_t n, heads, dim; /* n = rows * heads */
};

struct place {
    uint64_t row, col;
    uint32_t head;
    bool is_real; /* teams past the last norm only take part in the sums */
};

__device__ __forceinline__ struct place place_of(const struct norms &s, uint32_t i) {
    struct place at = {0, 0, 0, i < s.n};
    if (!at.is_real) return at;
    at.row = i / s.heads;
    at.head = i % s.heads;
    at.col = (uint64_t)at.head * s.dim;
    return at;
}

/* Columns of the team: packs at first, first + step, ...; those from `rest` on are not kept. */
template <int V> struct columns {
    static constexpr int KEEP = EACH / V;
    uint32_t first, step, rest;
    __device__ __forceinline__ columns()
        : first(threadIdx.x * V), step(blockDim.x * V), rest(first + KEEP * step) {}
};

template <typename T, int V>
__device__ __forceinline__ pl_pack<T, V> load_at(const pl_mat<T> &m, const struct place &at,
                                                 uint32_t c, uint32_t dim) {
    return pl_load<T, V>(m, at.row, at.col + c, at.col + dim);
}

/* ---- forward ---- */

template <typename T> struct forward {
    struct norms s;
    pl_mat<T> x, r, w, y; /* r absent = nothing is added to x first */
    float *rstd;
    uint64_t rstd_ld;
    float eps;
    bool keeps_rstd;  /* rstd is given, not computed */
    bool unit_offset; /* weights are 1 + w */
};

template <typename T, int V>
__device__ __forceinline__ void load_weights(const pl_mat<T> &m, uint32_t c, uint32_t dim,
                                             bool unit_offset, float (&w)[V]) {
    if (!m.p) {
#pragma unroll
        for (int i = 0; i < V; i++)
            w[i] = 1.0f;
        return;
    }
    pl_floats(pl_load<T, V>(m, 0, c, dim), w);
    if (!unit_offset) return;
#pragma unroll
    for (int i = 0; i < V; i++)
        w[i] += 1.0f;
}

/* x; with r added and stored back where there is one: the norm is of the sum as stored. */
template <typename T, int V>
__device__ __forceinline__ pl_pack<T, V> load_x(const forward<T> &t, const struct place &at,
                                                uint32_t c) {
    pl_pack<T, V> x = load_at<T, V>(t.x, at, c, t.s.dim);
    if (!t.r.p) return x;
    float f[V], r[V];
    pl_floats(x, f);
    pl_floats(load_at<T, V>(t.r, at, c, t.s.dim), r);
#pragma unroll
    for (int i = 0; i < V; i++)
        f[i] += r[i];
    x = pl_packed(t.x, f);
    pl_store(t.x, at.row, at.col + c, at.col + t.s.dim, x);
    return x;
}

template <typename T, int V> __device__ __forceinline__ float squares(const pl_pack<T, V> &p) {
    float f[V], sum = 0;
    pl_floats(p, f);
#pragma unroll
    for (int i = 0; i < V; i++)
        sum += f[i] * f[i];
    return sum;
}

template <typename T, int V>
__device__ __forceinline__ void scale(const forward<T> &t, const struct place &at, uint32_t c,
                                      const pl_pack<T, V> &x, float rstd) {
    float f[V], w[V];
    pl_floats(x, f);
    load_weights<T, V>(t.w, c, t.s.dim, t.unit_offset, w);
#pragma unroll
    for (int i = 0; i < V; i++)
        f[i] = f[i] * rstd * w[i];
    pl_store(t.y, at.row, at.col + c, at.col + t.s.dim, pl_packed(t.y, f));
}

template <typename T, int V>
__global__ void __launch_bounds__(TEAM) forward_norms(const forward<T> t) {
    PL_SHARED(float, shared);
    const columns<V> cols;
    const struct place at = place_of(t.s, blockIdx.x * blockDim.y + threadIdx.y);
    const uint32_t end = at.is_real ? t.s.dim : 0;
    pl_pack<T, V> x[columns<V>::KEEP];
    float sum = 0;
#pragma unroll
    for (int k = 0; k < columns<V>::KEEP; k++) {
        const uint32_t c = cols.first + k * cols.step;
        if (c < end) x[k] = load_x<T, V>(t, at, c);
    }
    if (!t.keeps_rstd) {
#pragma unroll
        for (int k = 0; k < columns<V>::KEEP; k++)
            if (cols.first + k * cols.step < end) sum += squares<T, V>(x[k]);
        for (uint32_t c = cols.rest; c < end; c += cols.step)
            sum += squares<T, V>(load_x<T, V>(t, at, c));
        sum = pl_team_reduce<pl_add>(sum, shared);
    }
    if (!at.is_real) return;
    float *kept = t.rstd + at.row * t.rstd_ld + at.head;
    const float rstd = t.keeps_rstd ? *kept : 1.0f / sqrtf(sum / (float)t.s.dim + t.eps);
    if (!t.keeps_rstd && threadIdx.x == 0) *kept = rstd;
#pragma unroll
    for (int k = 0; k < columns<V>::KEEP; k++) {
        const uint32_t c = cols.first + k * cols.step;
        if (c < end) scale<T, V>(t, at, c, x[k], rstd);
    }
    for (uint32_t c = cols.rest; c < end; c += cols.step)
        scale<T, V>(t, at, c, load_at<T, V>(t.x, at, c, end), rstd);
}

/* ---- backward ----
 * With xh = x*rstd and g = dy*w: dx = rstd*(g - xh*mean(g*xh)), dw = sum of dy*xh. A block walks
 * over a strip of norms and leaves the sum of its dw in `partial`; a second launch adds the strips
 * in order. */

template <typename T> struct backward {
    struct norms s;
    pl_mat<T> dy, x, w, dx; /* dx absent = only dw; it may be dy itself */
    const float *rstd;
    uint64_t rstd_ld;
    float *partial; /* [strips, D]; NULL = no dw */
    uint32_t strip; /* norms of a block */
    bool add_dx, unit_offset;
};

/* g * x summed over a pack. */
template <typename T, int V>
__device__ __forceinline__ float dot(const backward<T> &t, uint32_t c, const pl_pack<T, V> &dy,
                                     const pl_pack<T, V> &x) {
    float fy[V], fx[V], w[V], sum = 0;
    pl_floats(dy, fy);
    pl_floats(x, fx);
    load_weights<T, V>(t.w, c, t.s.dim, t.unit_offset, w);
#pragma unroll
    for (int i = 0; i < V; i++)
        sum += fy[i] * w[i] * fx[i];
    return sum;
}

/* mean = rstd * mean(g*x). */
template <typename T, int V>
__device__ __forceinline__ void write_dx(const backward<T> &t, const struct place &at, uint32_t c,
                                         const pl_pack<T, V> &dy, const pl_pack<T, V> &x,
                                         float rstd, float mean) {
    float fy[V], fx[V], w[V], d[V] = {0};
    pl_floats(dy, fy);
    pl_floats(x, fx);
    load_weights<T, V>(t.w, c, t.s.dim, t.unit_offset, w);
    if (t.add_dx) pl_floats(load_at<T, V>(t.dx, at, c, t.s.dim), d);
#pragma unroll
    for (int i = 0; i < V; i++)
        d[i] += rstd * (fy[i] * w[i] - fx[i] * rstd * mean);
    pl_store(t.dx, at.row, at.col + c, at.col + t.s.dim, pl_packed(t.dx, d));
}

template <typename T, int V>
__device__ __forceinline__ void add_dw(const pl_pack<T, V> &dy, const pl_pack<T, V> &x, float rstd,
                                       float (&dw)[V]) {
    float fy[V], fx[V];
    pl_floats(dy, fy);
    pl_floats(x, fx);
#pragma unroll
    for (int i = 0; i < V; i++)
        dw[i] += fy[i] * (fx[i] * rstd);
}

/* Columns past the registers: their dw lives in the block's row of `partial`, which one thread
 * alone reads and writes. Blocks with such columns have one team. */
template <typename T, int V>
__device__ __forceinline__ void walk_rest(const backward<T> &t, const struct place &at,
                                          const columns<V> &cols, float rstd, float mean,
                                          bool is_first) {
    for (uint32_t c = cols.rest; c < t.s.dim; c += cols.step) {
        const pl_pack<T, V> dy = load_at<T, V>(t.dy, at, c, t.s.dim);
        const pl_pack<T, V> x = load_at<T, V>(t.x, at, c, t.s.dim);
        if (t.partial) {
            float *row = t.partial + (uint64_t)blockIdx.x * t.s.dim, dw[V] = {0};
            add_dw<T, V>(dy, x, rstd, dw);
            for (int i = 0; i < V && c + i < t.s.dim; i++)
                row[c + i] = (is_first ? 0.0f : row[c + i]) + dw[i];
        }
        if (t.dx.p) write_dx<T, V>(t, at, c, dy, x, rstd, mean);
    }
}

/* The teams' sums of dw in the order of the teams, through sum[D], into the block's row. */
template <int V>
__device__ __forceinline__ void join_teams(const float (&dw)[columns<V>::KEEP][V],
                                           const columns<V> &cols, uint32_t dim, float *sum,
                                           float *row) {
    for (uint32_t team = 0; team < blockDim.y; team++) {
        float *out = team + 1 == blockDim.y ? row : sum;
        if (team == threadIdx.y) {
#pragma unroll
            for (int k = 0; k < columns<V>::KEEP; k++)
#pragma unroll
                for (int i = 0; i < V; i++) {
                    const uint32_t c = cols.first + k * cols.step + i;
                    if (c < dim) out[c] = (team ? sum[c] : 0.0f) + dw[k][i];
                }
        }
        __syncthreads();
    }
}

/* The part of a norm that a team keeps in registers. */
template <typename T, int V> struct gathered {
    float rstd;
    pl_pack<T, V> dy[columns<V>::KEEP], x[columns<V>::KEEP];
};

/* Norm i of a strip that ends before norm `stop`. */
template <typename T>
__device__ __forceinline__ struct place place_in_strip(const backward<T> &t, uint32_t i,
                                                       uint32_t stop) {
    return place_of(t.s, i < stop ? i : t.s.n);
}

template <typename T, int V>
__device__ __forceinline__ void gather(const backward<T> &t, const columns<V> &cols,
                                       const struct place &at, gathered<T, V> &of) {
    const uint32_t end = at.is_real ? t.s.dim : 0;
    of.rstd = at.is_real ? t.rstd[at.row * t.rstd_ld + at.head] : 0.0f;
#pragma unroll
    for (int k = 0; k < columns<V>::KEEP; k++) {
        const uint32_t c = cols.first + k * cols.step;
        if (c >= end) continue;
        of.dy[k] = load_at<T, V>(t.dy, at, c, t.s.dim);
        of.x[k] = load_at<T, V>(t.x, at, c, t.s.dim);
    }
}

/* The loads of a team's next norm are under way while it waits at the barriers of this one; fp32,
 * which is twice as wide, would spill registers. */
template <typename T, int V>
__global__ void __launch_bounds__(TEAM) backward_norms(const backward<T> t) {
    PL_SHARED(float, shared); /* a float per warp, then [D] where there are several teams */
    constexpr int KEEP = columns<V>::KEEP;
    constexpr bool READS_AHEAD = V > pl_lanes<float>::N;
    const columns<V> cols;
    const uint32_t begin = blockIdx.x * t.strip;
    const uint32_t stop = t.s.n - begin < t.strip ? t.s.n : begin + t.strip;
    float dw[KEEP][V] = {};
    gathered<T, V> of, next;
    if (READS_AHEAD) gather(t, cols, place_in_strip(t, begin + threadIdx.y, stop), next);
    for (uint32_t i = begin; i < stop; i += blockDim.y) {
        const struct place at = place_in_strip(t, i + threadIdx.y, stop);
        const uint32_t end = at.is_real ? t.s.dim : 0;
        float sum = 0;
        if (READS_AHEAD) {
            of = next;
            gather(t, cols, place_in_strip(t, i + blockDim.y + threadIdx.y, stop), next);
        } else {
            gather(t, cols, at, of);
        }
#pragma unroll
        for (int k = 0; k < KEEP; k++) {
            const uint32_t c = cols.first + k * cols.step;
            if (c < end) sum += dot<T, V>(t, c, of.dy[k], of.x[k]);
        }
        for (uint32_t c = cols.rest; c < end; c += cols.step)
            sum += dot<T, V>(t, c, load_at<T, V>(t.dy, at, c, end), load_at<T, V>(t.x, at, c, end));
        sum = pl_team_reduce<pl_add>(sum, shared);
        const float mean = sum * of.rstd / (float)t.s.dim;
#pragma unroll
        for (int k = 0; k < KEEP; k++) {
            const uint32_t c = cols.first + k * cols.step;
            if (c >= end) continue;
            if (t.partial) add_dw<T, V>(of.dy[k], of.x[k], of.rstd, dw[k]);
            if (t.dx.p) write_dx<T, V>(t, at, c, of.dy[k], of.x[k], of.rstd, mean);
        }
        if (at.is_real) walk_rest<T, V>(t, at, cols, of.rstd, mean, i == begin);
    }
    if (t.partial)
        join_teams<V>(dw, cols, t.s.dim, shared + blockDim.x * blockDim.y / PL_WARP,
                      t.partial + (uint64_t)blockIdx.x * t.s.dim);
}

/* ---- launching ---- */

struct shape {
    struct norms s;
    dim3 block;
    uint32_t warps;
};

/* False for what no plan holds. Heads must begin on whole packs. */
bool shape_of(const struct pl_view *x, uint64_t dim, int form, struct shape *out) {
    const unsigned lanes = pl_form_lanes(form);
    uint64_t n;
    if (dim == 0 || x->cols % dim || x->cols > PL_GRID_MAX ||
        !pl_u64_mul(x->rows, x->cols / dim, &n) || n > PL_GRID_MAX)
        return false;
    const unsigned team = pl_team_threads(pl_u64_div_up(dim, lanes), EACH / lanes, TEAM);
    out->s.n = (uint32_t)n;
    out->s.heads = (uint32_t)(x->cols / dim);
    out->s.dim = (uint32_t)dim;
    out->block = dim3(team, pl_teams_of_block(team, BLOCK), 1);
    out->warps = out->block.x * out->block.y / PL_WARP;
    return true;
}

int form_of(const struct pl_view *const *views, int n, uint64_t dim) {
    const int form = pl_form_of(views, n);
    return dim % pl_form_lanes(form) && views[0]->cols != dim ? PL_FORM_EITHER : form;
}

struct forward_call {
    struct pl_view x, r, w, y, rstd; /* w as a row */
    uint64_t dim;
    float eps;
    bool keeps_rstd, unit_offset;
};

template <typename T, int V>
void launch_forward(const struct forward_call *f, const struct shape *s, cudaStream_t stream) {
    const forward<T> t = {s->s,
                          pl_mat_of<T>(f->x),
                          pl_mat_of<T>(f->r),
                          pl_mat_of<T>(f->w),
                          pl_mat_of<T>(f->y),
                          (float *)f->rstd.p,
                          f->rstd.ld,
                          f->eps,
                          f->keeps_rstd,
                          f->unit_offset};
    const dim3 grid((unsigned)pl_u64_div_up(s->s.n, s->block.y), 1, 1);
    PL_LAUNCH((forward_norms<T, V>), grid, s->block, s->warps * sizeof(float), stream, t);
}

pl_err run_forward(struct pl_device *dev, const struct forward_call *f) {
    static void (*const launch[PL_FORMS])(const struct forward_call *, const struct shape *,
                                          cudaStream_t) = PL_FORM_TABLE(launch_forward);
    const struct pl_view *const views[] = {&f->x, &f->r, &f->w, &f->y};
    const int form = form_of(views, 4, f->dim);
    struct shape s;
    if (!shape_of(&f->x, f->dim, form, &s)) return PL_ERR_PLAN_BROKEN;
    if (s.s.n) launch[form](f, &s, pl_cuda_of(dev)->stream);
    return pl_cuda_launched();
}

struct backward_call {
    struct pl_view dy, x, w, rstd, dx, dw; /* w, dw as rows */
    float *partial;
    uint64_t dim;
    uint32_t strip, strips;
    bool add_dx, add_dw, unit_offset;
};

template <typename T, int V>
void launch_backward(const struct backward_call *b, const struct shape *s, cudaStream_t stream) {
    const backward<T> t = {s->s,
                           pl_mat_of<T>(b->dy),
                           pl_mat_of<T>(b->x),
                           pl_mat_of<T>(b->w),
                           pl_mat_of<T>(b->dx),
                           (const float *)b->rstd.p,
                           b->rstd.ld,
                           b->partial,
                           b->strip,
                           b->add_dx,
                           b->unit_offset};
    const uint32_t sums = b->partial && s->block.y > 1 ? s->s.dim : 0;
    PL_LAUNCH((backward_norms<T, V>), dim3(b->strips), s->block, (s->warps + sums) * sizeof(float),
              stream, t);
}

/* Without dw a block takes one norm a team; with it, few enough blocks for their partial sums. */
void cut_strips(struct backward_call *b, const struct shape *s) {
    const uint64_t teams = s->block.y, share = pl_u64_div_up(s->s.n, PL_CUDA_NORM_BLOCKS);
    b->strip = (uint32_t)(b->partial ? pl_u64_max(share, teams) : teams);
    b->strips = (uint32_t)pl_u64_div_up(s->s.n, b->strip);
}

pl_err run_backward(struct pl_device *dev, const struct pl_call *c, enum pl_op_kind kind,
                    struct backward_call *b) {
    static void (*const launch[PL_FORMS])(const struct backward_call *, const struct shape *,
                                          cudaStream_t) = PL_FORM_TABLE(launch_backward);
    b->dy = c->in[PL_RMSNORM_BWD_DY], b->x = c->in[PL_RMSNORM_BWD_X],
    b->rstd = c->in[PL_RMSNORM_BWD_RSTD];
    b->w = pl_as_row(&c->in[PL_RMSNORM_BWD_W]), b->dw = pl_as_row(&b->dw);
    b->add_dw = pl_call_adds(c);
    b->unit_offset = c->attr->unit_offset;
    if (b->dw.p) {
        const uint64_t need =
            pl_op_workspace_bytes(&dev->traits, kind, c->attr, b->dy.rows, b->dy.cols);
        if (!pl_ws_holds(&c->in[PL_RMSNORM_BWD_WS], need)) return PL_ERR_PLAN_BROKEN;
        b->partial = (float *)c->in[PL_RMSNORM_BWD_WS].p;
    }
    const struct pl_view *const views[] = {&b->dy, &b->x, &b->w, &b->dx};
    const int form = form_of(views, 4, b->dim);
    cudaStream_t stream = pl_cuda_of(dev)->stream;
    struct shape s;
    if (!shape_of(&b->dy, b->dim, form, &s)) return PL_ERR_PLAN_BROKEN;
    cut_strips(b, &s);
    if (s.s.n && (b->dx.p || b->dw.p)) launch[form](b, &s, stream);
    if (b->dw.p)
        pl_launch_sum_strips(stream, b->partial, b->strips, s.s.dim, pl_mat_of<pl_either>(b->dw),
                             b->add_dw);
    return pl_cuda_launched();
}

} // namespace

/* in: x[N,C] w[C]; out: y[N,C] rstd[N]f32. */
extern "C" pl_err pl_cuda_rmsnorm(struct pl_device *dev, const struct pl_call *c) {
    const struct forward_call f = {c->in[PL_RMSNORM_X],
                                   {},
                                   pl_as_row(&c->in[PL_RMSNORM_W]),
                                   c->out[PL_RMSNORM_OUT_Y],
                                   c->out[PL_RMSNORM_OUT_RSTD],
                                   c->in[PL_RMSNORM_X].cols,
                                   c->attr->eps,
                                   false,
                                   c->attr->unit_offset};
    return run_forward(dev, &f);
}

/* in: x[N,C]! r[N,C] w[C]; out: x[N,C]! y[N,C] rstd[N]f32. */
extern "C" pl_err pl_cuda_add_rmsnorm(struct pl_device *dev, const struct pl_call *c) {
    const struct forward_call f = {c->out[PL_ADD_RMSNORM_OUT_X],
                                   c->in[PL_ADD_RMSNORM_R],
                                   pl_as_row(&c->in[PL_ADD_RMSNORM_W]),
                                   c->out[PL_ADD_RMSNORM_OUT_Y],
                                   c->out[PL_ADD_RMSNORM_OUT_RSTD],
                                   c->in[PL_ADD_RMSNORM_X].cols,
                                   c->attr->eps,
                                   false,
                                   c->attr->unit_offset};
    return run_forward(dev, &f);
}

/* in: x[N,C] w[C] rstd[N]f32; out: y[N,C]. */
extern "C" pl_err pl_cuda_renorm(struct pl_device *dev, const struct pl_call *c) {
    const struct forward_call f = {c->in[PL_RENORM_X],
                                   {},
                                   pl_as_row(&c->in[PL_RENORM_W]),
                                   c->out[PL_RENORM_OUT_Y],
                                   c->in[PL_RENORM_RSTD],
                                   c->in[PL_RENORM_X].cols,
                                   0.0f,
                                   true,
                                   c->attr->unit_offset};
    return run_forward(dev, &f);
}

/* in: x[N,H*D] w?[D]; out: y[N,H*D] rstd[N,H]f32. */
extern "C" pl_err pl_cuda_qk_norm(struct pl_device *dev, const struct pl_call *c) {
    const struct forward_call f = {c->in[PL_QK_NORM_X],
                                   {},
                                   pl_as_row(&c->in[PL_QK_NORM_W]),
                                   c->out[PL_QK_NORM_OUT_Y],
                                   c->out[PL_QK_NORM_OUT_RSTD],
                                   c->attr->head_dim,
                                   c->attr->eps,
                                   false,
                                   c->attr->unit_offset};
    return run_forward(dev, &f);
}

/* in: dy[N,C] x[N,C] w[C] rstd[N]f32 ws? dx?[N,C]! dw?[C]!; out: dx?[N,C]! dw?[C]!. */
extern "C" pl_err pl_cuda_rmsnorm_bwd(struct pl_device *dev, const struct pl_call *c) {
    struct backward_call b = {};
    b.dx = c->out[PL_RMSNORM_BWD_OUT_DX], b.dw = c->out[PL_RMSNORM_BWD_OUT_DW],
    b.dim = c->in[PL_RMSNORM_BWD_DY].cols, b.add_dx = c->attr->add_dx;
    return run_backward(dev, c, PL_OP_RMSNORM_BWD, &b);
}

/* in: dy[N,H*D]! x[N,H*D] w?[D] rstd[N,H]f32 ws? dw?[D]!; out: dy[N,H*D]! dw?[D]!. */
extern "C" pl_err pl_cuda_qk_norm_bwd(struct pl_device *dev, const struct pl_call *c) {
    struct backward_call b = {};
    b.dx = c->out[PL_QK_NORM_BWD_OUT_DY], b.dw = c->out[PL_QK_NORM_BWD_OUT_DW],
    b.dim = c->attr->head_dim;
    return run_backward(dev, c, PL_OP_QK_NORM_BWD, &b);
}

PL_CUDA_PRELOAD(norms) = {PL_FORM_KERNELS(forward_norms), PL_FORM_KERNELS(backward_norms),
                          PL_CUDA_KERNEL(pl_sum_strips), NULL};
