/* linear.cu - LINEAR, LINEAR_DX, LINEAR_DW: which operand of a product is which, narrow copies of
 * fp32 inputs where another operand is narrow, and sums of no terms, which no library does.
 *
 * Gradients that run as one are one call of the library where they have one shape and the operands
 * of each are as far from those of the one before: k and v, gate and up. */
#include "runtime/kernels/cuda/pairs.cuh"
#include "runtime/kernels/cuda/products.h"
#include "runtime/kernels/cuda/set_rows.h"
#include "runtime/kernels/cuda/table.h"

#include "estimator/ops/scratch/workspace_cuda.h"
#include "runtime/kernels/cuda/narrow.h"

/* ---- kernels ---- */

/* y[rows,cols] = x, rounded to the type of y */
template <typename S, typename D, int V>
static __global__ void __launch_bounds__(PL_ROWS_BLOCK)
    convert(pl_mat<S> x, pl_mat<D> y, uint64_t rows, uint64_t cols) {
    const uint64_t row = (uint64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    for (uint64_t c = (uint64_t)threadIdx.x * V; c < cols; c += (uint64_t)blockDim.x * V) {
        float f[V];
        pl_floats(pl_load<S, V>(x, row, c, cols), f);
        pl_store(y, row, c, cols, pl_packed(y, f));
    }
}

/* ---- launches ---- */

template <typename S, typename D, int V>
static void launch_convert(struct pl_rows_shape s, cudaStream_t stream, const struct pl_view *x,
                           const struct pl_view *y) {
    PL_LAUNCH((convert<S, D, V>), s.grid, s.block, 0, stream, pl_mat_of<S>(*x), pl_mat_of<D>(*y),
              x->rows, x->cols);
}

/* ---- a product of any storage ---- */

/* A copy of v as `dtype` at `to`, rows close together. v becomes the copy. */
static pl_err narrow(struct pl_device *dev, struct pl_view *v, enum pl_dtype dtype, void *to) {
    static void (*const launch[PL_PAIRS])(struct pl_rows_shape, cudaStream_t,
                                          const struct pl_view *, const struct pl_view *) =
        PL_PAIR_TABLE(launch_convert);
    struct pl_view copy = *v;
    copy.p = to;
    copy.ld = v->cols;
    copy.dtype = dtype;
    const int pair = pl_pair_of(v, NULL, &copy);
    if (v->rows && v->cols) /* a rank may have no token */
        launch[pair](pl_rows_shape_of(v->rows, v->cols, pair), pl_cuda_of(dev)->stream, v, &copy);
    *v = copy;
    return pl_cuda_launched();
}

extern "C" pl_err pl_cuda_narrow_inputs(struct pl_device *dev, struct pl_view *a, struct pl_view *b,
                                        const struct pl_product_matrix m[3], void *copies) {
    struct pl_view *const inputs[] = {a, b};
    for (uint32_t i = 0; i < 2; i++)
        if (pl_ws_cuda_narrows(m, i))
            PL_TRY(narrow(dev, inputs[i], pl_ws_cuda_product_type(m),
                          (char *)copies + pl_ws_cuda_narrowed(m, i)));
    return PL_ERR_OK;
}

static bool are_floats(const struct pl_product *g) {
    return pl_is_float(&g->a) && pl_is_float(&g->b) && pl_is_float(&g->c) &&
           (!g->bias.p || g->bias.dtype == g->c.dtype) && pl_rows_fit(g->a.rows) &&
           pl_rows_fit(g->b.rows);
}

/* The epilogue of cuBLASLt takes a bias of the output's type, which is what the builder emits. */
static pl_err multiply(struct pl_device *dev, const struct pl_call *c, enum pl_op_kind kind,
                       const struct pl_view *ws, struct pl_product *g) {
    const struct pl_product_matrix m[3] = {pl_cuda_matrix_of(&g->a), pl_cuda_matrix_of(&g->b),
                                           pl_cuda_matrix_of(&g->c)};
    const uint64_t k = g->trans_a ? g->a.rows : g->a.cols;
    g->adds = pl_call_adds(c);
    g->alpha = c->attr->alpha;
    if (!are_floats(g)) return PL_ERR_PLAN_BROKEN;
    if (g->c.rows == 0 || g->c.cols == 0) return PL_ERR_OK;
    if (k == 0) return pl_cuda_set_rows(dev, &g->c, &g->bias, g->adds);
    if (!pl_ws_holds(ws, pl_product_workspace_bytes(&dev->traits, kind, c->attr, m)))
        return PL_ERR_PLAN_BROKEN;
    g->ws = ws->p;
    g->ws_bytes = pl_ws_cuda_product(&dev->traits, c->attr, m[0].rows, m[0].cols);
    PL_TRY(pl_cuda_narrow_inputs(dev, &g->a, &g->b, m, (char *)g->ws + g->ws_bytes));
    struct pl_cuda *cuda = pl_cuda_of(dev);
    const pl_err err = pl_products_run(cuda, g);
    if (err != PL_ERR_OK) dev->failure = pl_products_failure(cuda->products);
    return err;
}

/* in: x[N,K], W[O,K], bias?[O], ws, y?[N,O]; out: y[N,O]. */
extern "C" pl_err pl_cuda_linear(struct pl_device *dev, const struct pl_call *c) {
    struct pl_product g = {};
    g.trans_b = true;
    g.a = c->in[PL_LINEAR_X];
    g.b = c->in[PL_LINEAR_W];
    g.bias = c->in[PL_LINEAR_BIAS];
    g.c = c->out[PL_LINEAR_OUT_Y];
    return multiply(dev, c, PL_OP_LINEAR, &c->in[PL_LINEAR_WS], &g);
}

/* in: dy[N,O], W[O,K], ws, dx?[N,K]; out: dx[N,K]. */
extern "C" pl_err pl_cuda_linear_dx(struct pl_device *dev, const struct pl_call *c) {
    struct pl_product g = {};
    g.a = c->in[PL_LINEAR_DX_DY];
    g.b = c->in[PL_LINEAR_DX_W];
    g.c = c->out[PL_LINEAR_DX_OUT_DX];
    return multiply(dev, c, PL_OP_LINEAR_DX, &c->in[PL_LINEAR_DX_WS], &g);
}

/* The gradients of the first call and so many further ones, which have its shape. */
static pl_err multiply_dw(struct pl_device *dev, const struct pl_call *c, uint32_t further,
                          const uint64_t apart[3]) {
    struct pl_product g = {};
    g.trans_a = true;
    g.a = c->in[PL_LINEAR_DW_DY];
    g.b = c->in[PL_LINEAR_DW_X];
    g.c = c->out[PL_LINEAR_DW_OUT_DW];
    g.further = further;
    for (int i = 0; i < 3 && further; i++)
        g.apart[i] = apart[i];
    return multiply(dev, c, PL_OP_LINEAR_DW, &c->in[PL_LINEAR_DW_WS], &g);
}

/* in: dy[N,O], x[N,K], ws, dW[O,K]; out: dW[O,K]. No rows give a zero gradient. */
extern "C" pl_err pl_cuda_linear_dw(struct pl_device *dev, const struct pl_call *c) {
    return multiply_dw(dev, c, 0, NULL);
}

/* ---- gradients that run as one ---- */

static bool have_one_shape(const struct pl_view *x, const struct pl_view *y) {
    return x->rows == y->rows && x->cols == y->cols && x->ld == y->ld && x->dtype == y->dtype;
}

/* Elements from one matrix to another, which lies at a higher address; UINT64_MAX: it does not. */
static uint64_t elements_between(const struct pl_view *x, const struct pl_view *y) {
    const uintptr_t from = (uintptr_t)x->p, to = (uintptr_t)y->p;
    const uint64_t size = pl_dtype_bytes(x->dtype);
    return to >= from && (to - from) % size == 0 ? (to - from) / size : UINT64_MAX;
}

/* Elements from the operands of one call to those of another; false: the second one is no product
 * of the first one's kind, or a copy of its input would have to be made. */
static bool lie_apart(const struct pl_call *from, const struct pl_call *to, uint64_t apart[3]) {
    const struct pl_view *const x[] = {&from->in[PL_LINEAR_DW_DY], &from->in[PL_LINEAR_DW_X],
                                       &from->out[PL_LINEAR_DW_OUT_DW]};
    const struct pl_view *const y[] = {&to->in[PL_LINEAR_DW_DY], &to->in[PL_LINEAR_DW_X],
                                       &to->out[PL_LINEAR_DW_OUT_DW]};
    bool good = from->attr->alpha == to->attr->alpha && pl_call_adds(from) == pl_call_adds(to) &&
                x[0]->rows > 0 && x[0]->dtype == x[1]->dtype;
    for (int i = 0; i < 3; i++) {
        apart[i] = elements_between(x[i], y[i]);
        good = good && have_one_shape(x[i], y[i]) && apart[i] != UINT64_MAX;
    }
    return good && apart[2] >= x[2]->rows * x[2]->ld;
}

/* How many calls after the first one are one product with it. */
static uint32_t count_further(const struct pl_call *calls, uint32_t n, uint64_t apart[3]) {
    uint32_t further = 0;
    uint64_t next[3];
    while (further + 1 < n && further < UINT16_MAX &&
           lie_apart(&calls[further], &calls[further + 1], further ? next : apart) &&
           (!further || memcmp(next, apart, sizeof next) == 0))
        further++;
    return further;
}

extern "C" pl_err pl_cuda_linear_dw_group(struct pl_device *dev, const struct pl_call *calls,
                                          uint32_t n) {
    for (uint32_t i = 0, further; i < n; i += 1 + further) {
        uint64_t apart[3];
        further = count_further(calls + i, n - i, apart);
        PL_TRY(multiply_dw(dev, calls + i, further, apart));
    }
    return PL_ERR_OK;
}

PL_CUDA_PRELOAD(linear) = {PL_PAIR_KERNELS(convert), NULL};
