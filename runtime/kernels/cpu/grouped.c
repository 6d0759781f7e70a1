/* grouped.c - GROUPED_LINEAR, GROUPED_LINEAR_DX, GROUPED_LINEAR_DW: a product for the rows of
 * every expert with the matrix of that expert.
 *   E1  the rows of an expert get the bits that a product of them alone would give */
#include "runtime/kernels/cpu/gemm.h"
#include "runtime/kernels/grouped_call.h"

struct grouped {
    struct pl_gemm all; /* a, c: the rows of all experts; b, bias: of the experts of the call */
    struct pl_experts experts;
    const int32_t *offsets; /* of the experts of the call, n + 1 of them */
};

static struct pl_view rows_of(const struct pl_view *v, uint64_t row0, uint64_t rows) {
    return pl_window(v, row0, rows, 0, v->cols);
}

/* The product of expert e of the call. With A transposed the rows are summed over. */
static struct pl_gemm of_expert(const struct grouped *g, uint64_t e) {
    const uint64_t row0 = (uint64_t)g->offsets[e], rows = (uint64_t)g->offsets[e + 1] - row0;
    const uint64_t own = g->experts.rows, n = g->all.c.cols;
    struct pl_gemm one = g->all;
    one.a = rows_of(&g->all.a, row0, rows);
    one.b = g->all.trans_a ? rows_of(&g->all.b, row0, rows) : rows_of(&g->all.b, e * own, own);
    one.c = g->all.trans_a ? rows_of(&g->all.c, e * own, own) : rows_of(&g->all.c, row0, rows);
    if (one.bias.p) {
        one.bias.p = pl_vector_at(&g->all.bias, e * n);
        one.bias.rows = n;
    }
    return one;
}

/* ---- one list of tasks for all experts ----
 *
 * An expert with few rows does not keep all threads busy, so parts of the products of all experts
 * are one list, and a product is cut the finer the more of the rows its expert has. A task finds
 * its expert by bisection and plans that product again, which takes no memory and little time. */

#define TASKS_A_THREAD 4

struct tasks {
    const struct grouped *g;
    uint32_t *first;     /* [experts + 1], in the scratch: number of the first task of each */
    char *parts;         /* scratch of the workers */
    uint64_t part_bytes; /* of each */
    uint32_t threads;
    uint64_t rows; /* of all experts of the call */
};

/* The threads that the product of expert e is cut for. */
static uint32_t share_of(const struct tasks *t, uint64_t e) {
    const uint64_t rows = (uint64_t)(t->g->offsets[e + 1] - t->g->offsets[e]);
    if (rows == 0) return 1;
    return (uint32_t)pl_u64_div_up(rows * t->threads * TASKS_A_THREAD, t->rows);
}

static struct pl_gemm with_scratch(const struct tasks *t, uint64_t e, uint32_t worker) {
    struct pl_gemm one = of_expert(t->g, e);
    one.ws.p = t->parts + worker * t->part_bytes;
    one.ws.rows = t->part_bytes;
    one.ws.cols = one.ws.ld = 1;
    return one;
}

static uint64_t expert_of(const struct tasks *t, uint32_t task) {
    uint64_t low = 0, high = t->g->experts.n; /* the expert lies in [low, high) */
    while (high - low > 1) {
        const uint64_t middle = (low + high) / 2;
        if (t->first[middle] <= task)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void run_task(void *arg, uint32_t task, uint32_t worker) {
    const struct tasks *t = arg;
    const uint64_t e = expert_of(t, task);
    const struct pl_gemm one = with_scratch(t, e, worker);
    PL_LEVEL_NAME(pl_cpu_gemm_part)(&one, share_of(t, e), task - t->first[e]);
}

/* The numbers of tasks; false: more than can be counted. */
static bool list_tasks(const struct tasks *t) {
    uint64_t n = 0;
    for (uint64_t e = 0; e < t->g->experts.n; e++) {
        const struct pl_gemm one = with_scratch(t, e, 0);
        t->first[e] = (uint32_t)n;
        n += PL_LEVEL_NAME(pl_cpu_gemm_parts)(&one, share_of(t, e));
    }
    t->first[t->g->experts.n] = (uint32_t)n;
    return n <= UINT32_MAX;
}

/* Returns the scratch of a worker, whatever the split: an expert has all rows at most. */
static uint64_t part_bytes(const struct pl_gemm *all, uint64_t own) {
    struct pl_gemm_shape s = pl_gemm_shape_of(all);
    if (all->trans_a) s.m = own;
    return pl_gemm_part_bytes(&s);
}

static pl_err run(struct pl_device *dev, const struct pl_call *c, const struct pl_view *offsets,
                  struct grouped *g) {
    struct pl_pool *pool = pl_cpu_of(dev)->pool;
    const uint64_t list = pl_grouped_list_bytes(g->experts.n);
    struct tasks t = {.g = g, .threads = pl_pool_threads(pool)};
    g->all.adds = pl_call_adds(c);
    g->all.alpha = c->attr->alpha;
    g->offsets = (const int32_t *)offsets->p + g->experts.first;
    t.part_bytes = part_bytes(&g->all, g->experts.rows);
    if (!pl_ends_are_ordered(g->offsets, g->experts.n, g->all.a.rows) ||
        !pl_ws_holds(&g->all.ws, list + t.threads * t.part_bytes))
        return PL_ERR_PLAN_BROKEN;
    t.first = g->all.ws.p;
    t.parts = (char *)g->all.ws.p + list;
    t.rows = (uint64_t)(g->offsets[g->experts.n] - g->offsets[0]);
    if (!list_tasks(&t)) return PL_ERR_PLAN_BROKEN;
    pl_pool_run(pool, t.first[g->experts.n], run_task, &t);
    return PL_ERR_OK;
}

/* in: x[P,K], W[E*O,K], offsets[E+1]i32, bias?[E*O], ws, y?[P,O]; out: y[P,O]. */
pl_err PL_CPU(grouped_linear)(struct pl_device *dev, const struct pl_call *c) {
    struct grouped g = {.all = {.trans_b = true,
                                .a = c->in[PL_GROUPED_LINEAR_X],
                                .b = c->in[PL_GROUPED_LINEAR_W],
                                .bias = c->in[PL_GROUPED_LINEAR_BIAS],
                                .ws = c->in[PL_GROUPED_LINEAR_WS],
                                .c = c->out[PL_GROUPED_LINEAR_OUT_Y]},
                        .experts = pl_experts_of(c, &c->in[PL_GROUPED_LINEAR_W])};
    if (!pl_grouped_linear_is_sound(c)) return PL_ERR_PLAN_BROKEN;
    return run(dev, c, &c->in[PL_GROUPED_LINEAR_OFFSETS], &g);
}

/* in: dy[P,O], W[E*O,K], offsets[E+1]i32, bias?[E*K], ws, dx?[P,K]; out: dx[P,K]. */
pl_err PL_CPU(grouped_linear_dx)(struct pl_device *dev, const struct pl_call *c) {
    struct grouped g = {.all = {.a = c->in[PL_GROUPED_LINEAR_DX_DY],
                                .b = c->in[PL_GROUPED_LINEAR_DX_W],
                                .bias = c->in[PL_GROUPED_LINEAR_DX_BIAS],
                                .ws = c->in[PL_GROUPED_LINEAR_DX_WS],
                                .c = c->out[PL_GROUPED_LINEAR_DX_OUT_DX]},
                        .experts = pl_experts_of(c, &c->in[PL_GROUPED_LINEAR_DX_W])};
    if (!pl_grouped_linear_dx_is_sound(c)) return PL_ERR_PLAN_BROKEN;
    return run(dev, c, &c->in[PL_GROUPED_LINEAR_DX_OFFSETS], &g);
}

/* A result of so many bytes is gone from the caches before it is read. */
#define STREAMED_BYTES (UINT64_C(64) << 20)

/* in: dy[P,O], x[P,K], offsets[E+1]i32, ws, dW[E*O,K]; out: dW[E*O,K]. */
pl_err PL_CPU(grouped_linear_dw)(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *dw = &c->out[PL_GROUPED_LINEAR_DW_OUT_DW];
    struct grouped g = {.all = {.trans_a = true,
                                .streams = dw->rows * dw->ld * sizeof(uint16_t) >= STREAMED_BYTES,
                                .a = c->in[PL_GROUPED_LINEAR_DW_DY],
                                .b = c->in[PL_GROUPED_LINEAR_DW_X],
                                .ws = c->in[PL_GROUPED_LINEAR_DW_WS],
                                .c = *dw},
                        .experts = pl_experts_of(c, dw)};
    if (!pl_grouped_linear_dw_is_sound(c)) return PL_ERR_PLAN_BROKEN;
    return run(dev, c, &c->in[PL_GROUPED_LINEAR_DW_OFFSETS], &g);
}
