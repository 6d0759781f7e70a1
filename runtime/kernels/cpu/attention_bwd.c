/* attention_bwd.c - ATTENTION_BWD: scores are computed again from lse, then five products per tile.
 *
 * With p = exp(s - lse), delta = rowsum(do * o) and ds = p * (do v^T - delta):
 * dv = p^T do, dk = scale ds^T q, dq = scale ds k (Dao et al., "FlashAttention", 2022, section
 * B.4). dk and dv are sums over queries and heads of a group, dq over keys, so one order of tiles
 * cannot keep both in scratch. There are two ways, equal to the bit because both add the same tiles
 * in the same order:
 *   - together: a task owns a kv head of a sequence and adds dq to the fp32 output tile by tile;
 *   - apart: a task owns one block of keys or one block of queries and computes its tiles itself:
 *     seven products in place of five, but any number of workers is busy and dq has any dtype. */
#include "estimator/ops/scratch/scratch_bytes.h"
#include "runtime/kernels/cpu/attention.h"

#define LOG2_E 1.44269504088896340736f

struct scratch {
#define X(name, floats) float *name;
    PL_ATTENTION_BWD_PARTS(X, 0)
#undef X
};

struct attention {
    struct pl_view q, k, v, o, lse, go, offsets, dq, dk, dv;
    const struct pl_attr *attr;
    float *delta, *tiles; /* [N,H] times attr.scale; one set of tiles per worker */
    uint64_t floats_per_worker, n_seqs, longest;
    uint32_t ld; /* head size, padded */
    bool together;
    bool pairs; /* rows of heads are read as pairs where they are multiplied as they are */
};

struct task {
    const struct attention *a;
    struct scratch s;
    uint64_t row0, length; /* of the sequence */
    uint64_t q0, k0;       /* of the tile, within the sequence */
    uint32_t kv_head, head, n_queries, n_keys;
    uint32_t columns;         /* whole vectors of queries */
    struct pl_head_rows k, v; /* of the tile */
};

static struct scratch carve(float *base, uint64_t padded) {
    struct scratch s;
#define X(name, floats)                                                                            \
    s.name = base;                                                                                 \
    base += floats;
    PL_ATTENTION_BWD_PARTS(X, padded)
#undef X
    return s;
}

static float head_dot(const struct pl_view *x, const struct pl_view *y, uint64_t row, uint64_t col,
                      uint64_t dim) {
    float a[PL_SUM_BLOCK], b[PL_SUM_BLOCK];
    double sum = 0;
    for (uint64_t d = 0; d < dim; d += PL_SUM_BLOCK) {
        const uint64_t n = pl_u64_min(dim - d, PL_SUM_BLOCK);
        pl_widen(a, pl_at(x, row, col + d), x->dtype, n);
        pl_widen(b, pl_at(y, row, col + d), y->dtype, n);
        sum += pl_dot(a, b, n);
    }
    return (float)sum;
}

static void compute_delta(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    const struct attention *a = arg;
    const uint32_t heads = a->attr->heads, dim = a->attr->head_dim;
    (void)worker;
    for (uint64_t i = row0; i < row1; i++)
        for (uint32_t h = 0; h < heads; h++)
            a->delta[i * heads + h] =
                a->attr->scale * head_dot(&a->go, &a->o, i, (uint64_t)h * dim, dim);
}

static struct pl_head_rows head_rows(const struct task *t, const struct pl_view *view, uint64_t row,
                                     uint32_t head, uint32_t n) {
    const uint32_t dim = t->a->attr->head_dim;
    return (struct pl_head_rows){view, t->row0 + row, (uint64_t)head * dim, n, dim};
}

static void load_keys(struct task *t, uint64_t k0) {
    t->k0 = k0;
    t->n_keys = (uint32_t)pl_u64_min(t->length - k0, PL_ATTENTION_KEYS);
    t->k = head_rows(t, &t->a->k, k0, t->kv_head, t->n_keys);
    t->v = head_rows(t, &t->a->v, k0, t->kv_head, t->n_keys);
    PL_LEVEL_NAME(pl_tile_pack)(&t->k, t->a->ld, t->s.k);
    if (!t->a->pairs) PL_LEVEL_NAME(pl_tile_pack)(&t->v, t->a->ld, t->s.v);
}

static void load_queries(struct task *t, uint64_t q0) {
    const struct attention *a = t->a;
    const uint32_t n = (uint32_t)pl_u64_min(t->length - q0, PL_ATTENTION_QUERIES);
    t->q0 = q0;
    t->n_queries = n;
    t->columns = pl_tile_columns(n);
    const struct pl_head_rows q = head_rows(t, &a->q, q0, t->head, n);
    const struct pl_head_rows go = head_rows(t, &a->go, q0, t->head, n);
    PL_LEVEL_NAME(pl_tile_pack)(&q, a->ld, t->s.q);
    PL_LEVEL_NAME(pl_tile_pack)(&go, a->ld, t->s.go);
    PL_LEVEL_NAME(pl_tile_turn)(&q, t->columns, a->pairs, t->s.qt);
    PL_LEVEL_NAME(pl_tile_turn)(&go, t->columns, a->pairs, t->s.got);
    for (uint32_t i = 0; i < PL_ATTENTION_QUERIES; i++) {
        const uint64_t row = t->row0 + q0 + i;
        t->s.lse[i] = i < n ? LOG2_E * *(const float *)pl_at(&a->lse, row, t->head) : 0.0f;
        t->s.delta[i] = i < n ? a->delta[row * a->attr->heads + t->head] : 0.0f;
    }
}

/* p from scores and ds from do v^T, for the queries of a vector. */
static inline void gradient_of(float *restrict p, float *restrict ds, const float *restrict lse,
                               const float *restrict delta) {
    for (uint32_t i = 0; i < PL_LANES; i++) {
        p[i] = pl_exp2_nonpositive(p[i] - lse[i]);
        ds[i] = p[i] * (ds[i] - delta[i]);
    }
}

/* The whole tile, in place; both 0 where the mask is. */
static void softmax_gradient(const struct task *t) {
    const uint64_t window = t->a->attr->window;
    for (uint32_t j = 0; j < t->n_keys; j++) {
        float *p = t->s.p + j * PL_ATTENTION_QUERIES, *ds = t->s.ds + j * PL_ATTENTION_QUERIES;
        for (uint32_t i = pl_tile_seen_vector(t->q0, t->k0 + j); i < t->columns; i += PL_LANES)
            gradient_of(p + i, ds + i, t->s.lse + i, t->s.delta + i);
        const struct pl_seen seen = pl_tile_seen(t->q0, t->k0 + j, window);
        for (uint32_t i = 0; i < seen.first; i++)
            p[i] = ds[i] = 0.0f;
        for (uint32_t i = seen.end; i < t->columns; i++)
            p[i] = ds[i] = 0.0f;
    }
}

/* c = alpha rows b, b = columns of queries. packed: the rows in fp32, unless they are pairs, which
 * are read where they lie. */
static void multiply_keys(const struct task *t, const struct pl_head_rows *rows,
                          const float *packed, const float *b, float alpha, float *c) {
    const bool pairs = t->a->pairs;
    const struct pl_tile_product scores = {.m = t->n_keys,
                                           .n = t->columns,
                                           .k = t->a->attr->head_dim / (pairs ? 2 : 1),
                                           .a = pairs ? pl_at(rows->view, rows->row, rows->col)
                                                      : packed,
                                           .rs = pairs ? rows->view->ld / 2 : t->a->ld,
                                           .ks = 1,
                                           .b = b,
                                           .ldb = t->columns,
                                           .c = c,
                                           .ldc = PL_ATTENTION_QUERIES,
                                           .alpha = alpha,
                                           .pairs = pairs,
                                           .triangle = PL_TRIANGLE_KEYS_BY_QUERIES,
                                           .diag = (int64_t)t->k0 - (int64_t)t->q0};
    PL_LEVEL_NAME(pl_tile_multiply)(&scores);
}

/* p and ds of the tile at hand, [key][query]. Scores come out times log2(e), so that their
 * exponential is a power of two, and do v^T times attr.scale, so that ds does. */
static void compute_tile(const struct task *t) {
    const float scale = t->a->attr->scale;
    multiply_keys(t, &t->k, t->s.k, t->s.qt, scale * LOG2_E, t->s.p);
    multiply_keys(t, &t->v, t->s.v, t->s.got, scale, t->s.ds);
    softmax_gradient(t);
}

/* dk += ds^T q, dv += p^T do. */
static void add_key_gradients(const struct task *t, bool add) {
    struct pl_tile_product g = {.m = t->n_keys,
                                .n = t->a->ld,
                                .k = t->n_queries,
                                .a = t->s.ds,
                                .rs = PL_ATTENTION_QUERIES,
                                .ks = 1,
                                .b = t->s.q,
                                .ldb = t->a->ld,
                                .c = t->s.dk,
                                .ldc = t->a->ld,
                                .alpha = 1.0f,
                                .add = add,
                                .triangle = PL_TRIANGLE_SUM_QUERIES,
                                .diag = (int64_t)t->k0 - (int64_t)t->q0};
    PL_LEVEL_NAME(pl_tile_multiply)(&g);
    g.a = t->s.p;
    g.b = t->s.go;
    g.c = t->s.dv;
    PL_LEVEL_NAME(pl_tile_multiply)(&g);
}

/* dst[n_queries][dim] (=|+=) ds k. */
static void add_query_gradient(const struct task *t, float *dst, uint64_t ld) {
    const struct pl_tile_product g = {.m = t->n_queries,
                                      .n = t->a->ld,
                                      .k = t->n_keys,
                                      .a = t->s.ds,
                                      .rs = 1,
                                      .ks = PL_ATTENTION_QUERIES,
                                      .b = t->s.k,
                                      .ldb = t->a->ld,
                                      .c = t->s.dq,
                                      .ldc = t->a->ld,
                                      .alpha = 1.0f,
                                      .triangle = PL_TRIANGLE_SUM_KEYS,
                                      .diag = (int64_t)t->k0 - (int64_t)t->q0};
    const uint32_t dim = t->a->attr->head_dim;
    const bool add = t->k0 / PL_ATTENTION_KEYS > pl_first_key_block(t->q0, t->a->attr->window);
    PL_LEVEL_NAME(pl_tile_multiply)(&g);
    for (uint32_t i = 0; i < t->n_queries; i++) {
        const float *restrict src = t->s.dq + i * t->a->ld;
        float *restrict row = dst + i * ld;
        if (add)
            for (uint32_t d = 0; d < dim; d++)
                row[d] += src[d];
        else
            for (uint32_t d = 0; d < dim; d++)
                row[d] = src[d];
    }
}

static void store_head(const struct task *t, const struct pl_view *view, uint64_t row,
                       uint32_t head, uint32_t n, const float *src) {
    const uint32_t dim = t->a->attr->head_dim;
    for (uint32_t i = 0; i < n; i++)
        pl_narrow(pl_at(view, t->row0 + row + i, (uint64_t)head * dim), view->dtype,
                  src + i * t->a->ld, dim);
}

/* dk and dv of a block of keys: all heads of the group, all blocks of queries that see it. */
static void run_keys(struct task *t, uint64_t block) {
    const struct attention *a = t->a;
    const uint32_t group = a->attr->heads / a->attr->kv_heads;
    bool add = false;
    load_keys(t, block * PL_ATTENTION_KEYS);
    for (t->head = t->kv_head * group; t->head < (t->kv_head + 1) * group; t->head++) {
        uint64_t q0 = t->k0 / PL_ATTENTION_QUERIES * PL_ATTENTION_QUERIES;
        for (; q0 < t->length; q0 += PL_ATTENTION_QUERIES) {
            if (pl_first_key_block(q0, a->attr->window) > block) break;
            load_queries(t, q0);
            compute_tile(t);
            add_key_gradients(t, add);
            add = true;
            if (a->together)
                add_query_gradient(
                    t, pl_at(&a->dq, t->row0 + q0, (uint64_t)t->head * a->attr->head_dim),
                    a->dq.ld);
        }
    }
    store_head(t, &a->dk, t->k0, t->kv_head, t->n_keys, t->s.dk);
    store_head(t, &a->dv, t->k0, t->kv_head, t->n_keys, t->s.dv);
}

/* dq of a block of queries. */
static void run_queries(struct task *t, uint64_t q0) {
    const struct attention *a = t->a;
    load_queries(t, q0);
    const uint64_t end = pl_end_key_block(q0, t->n_queries);
    for (uint64_t b = pl_first_key_block(q0, a->attr->window); b < end; b++) {
        load_keys(t, b * PL_ATTENTION_KEYS);
        compute_tile(t);
        add_query_gradient(t, t->s.dq_sum, a->ld);
    }
    store_head(t, &a->dq, q0, t->head, t->n_queries, t->s.dq_sum);
}

static void run_together(struct task *t, uint64_t n) {
    const struct attention *a = t->a;
    t->kv_head = (uint32_t)(n % a->attr->kv_heads);
    t->row0 = pl_sequence(&a->offsets, n / a->attr->kv_heads, &t->length);
    for (uint64_t b = 0; b * PL_ATTENTION_KEYS < t->length; b++)
        run_keys(t, b);
}

static uint64_t key_tasks(const struct attention *a) {
    return pl_u64_div_up(a->longest, PL_ATTENTION_KEYS) * a->n_seqs * a->attr->kv_heads;
}

static uint64_t query_tasks(const struct attention *a) {
    return pl_u64_div_up(a->longest, PL_ATTENTION_QUERIES) * a->n_seqs * a->attr->heads;
}

/* Blocks of keys from the first, which most queries see; then blocks of queries from the last,
 * which see most keys: long tasks come before short ones. */
static void run_apart(struct task *t, uint64_t n) {
    const struct attention *a = t->a;
    const uint32_t heads = a->attr->heads, kv_heads = a->attr->kv_heads;
    if (n < key_tasks(a)) {
        const uint64_t block = n / kv_heads / a->n_seqs;
        t->kv_head = (uint32_t)(n % kv_heads);
        t->row0 = pl_sequence(&a->offsets, n / kv_heads % a->n_seqs, &t->length);
        if (block * PL_ATTENTION_KEYS < t->length) run_keys(t, block);
        return;
    }
    n -= key_tasks(a);
    const uint64_t blocks = pl_u64_div_up(a->longest, PL_ATTENTION_QUERIES);
    const uint64_t q0 = (blocks - 1 - n / heads / a->n_seqs) * PL_ATTENTION_QUERIES;
    t->head = (uint32_t)(n % heads);
    t->kv_head = t->head / (heads / kv_heads);
    t->row0 = pl_sequence(&a->offsets, n / heads % a->n_seqs, &t->length);
    if (q0 < t->length) run_queries(t, q0);
}

static void run_tasks(void *arg, uint64_t task0, uint64_t task1, uint32_t worker) {
    const struct attention *a = arg;
    for (uint64_t n = task0; n < task1; n++) {
        struct task t = {.a = a, .s = carve(a->tiles + worker * a->floats_per_worker, a->ld)};
        if (a->together)
            run_together(&t, n);
        else
            run_apart(&t, n);
    }
}

/* Five products by few tasks or seven by many. List scheduling of tasks of total work T, the
 * longest of work L, ends by T/n + L(n-1)/n on n workers (Graham, 1969), so few tasks win when 5(T
 * + L(n-1)) <= 7T. Work grows with the square of the length. */
static bool goes_together(const struct attention *a, uint32_t threads) {
    double total = 0, longest = (double)a->longest * (double)a->longest;
    if (a->dq.dtype != PL_DTYPE_F32) return false;
    for (uint64_t s = 0; s < a->n_seqs; s++) {
        uint64_t length;
        pl_sequence(&a->offsets, s, &length);
        total += (double)length * (double)length * a->attr->kv_heads;
    }
    return 5 * (total + longest * (threads - 1)) <= 7 * total;
}

/* in: q[N,H*D] k[N,G*D] v[N,G*D] o[N,H*D] lse[N,H]f32 do[N,H*D] offsets[B+1]i32 ws;
 * out: dq[N,H*D] dk[N,G*D] dv[N,G*D]. */
pl_err PL_CPU(attention_bwd)(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_attr *attr = c->attr;
    const uint64_t need =
        pl_op_workspace_bytes(&dev->traits, PL_OP_ATTENTION_BWD, attr,
                              c->in[PL_ATTENTION_BWD_Q].rows, c->in[PL_ATTENTION_BWD_Q].cols);
    if (!pl_ws_holds(&c->in[PL_ATTENTION_BWD_WS], need)) return PL_ERR_PLAN_BROKEN;
    const uint64_t delta_floats =
        pl_attention_delta_floats(c->in[PL_ATTENTION_BWD_Q].rows, attr->heads);
    struct attention a = {.q = c->in[PL_ATTENTION_BWD_Q],
                          .k = c->in[PL_ATTENTION_BWD_K],
                          .v = c->in[PL_ATTENTION_BWD_V],
                          .o = c->in[PL_ATTENTION_BWD_O],
                          .lse = c->in[PL_ATTENTION_BWD_LSE],
                          .go = c->in[PL_ATTENTION_BWD_DO],
                          .offsets = c->in[PL_ATTENTION_BWD_OFFSETS],
                          .dq = c->out[PL_ATTENTION_BWD_OUT_DQ],
                          .dk = c->out[PL_ATTENTION_BWD_OUT_DK],
                          .dv = c->out[PL_ATTENTION_BWD_OUT_DV],
                          .attr = attr,
                          .n_seqs = c->batch->n_seqs,
                          .delta = c->in[PL_ATTENTION_BWD_WS].p,
                          .tiles = (float *)c->in[PL_ATTENTION_BWD_WS].p + delta_floats,
                          .floats_per_worker =
                              (need / sizeof(float) - delta_floats) / dev->traits.threads,
                          .ld = (uint32_t)pl_attention_padded(attr->head_dim)};
    a.longest = pl_longest_sequence(&a.offsets, a.n_seqs);
    a.together = goes_together(&a, dev->traits.threads);
    a.pairs =
        pl_heads_are_paired(&a.q, attr->head_dim) && pl_heads_are_paired(&a.k, attr->head_dim) &&
        pl_heads_are_paired(&a.v, attr->head_dim) && pl_heads_are_paired(&a.go, attr->head_dim);
    pl_cpu_rows(dev, a.q.rows, pl_cpu_grain(a.q.cols), compute_delta, &a);
    const uint64_t tasks = a.together ? a.n_seqs * attr->kv_heads : key_tasks(&a) + query_tasks(&a);
    pl_cpu_rows(dev, tasks, 1, run_tasks, &a);
    return PL_ERR_OK;
}
