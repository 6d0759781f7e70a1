/* attention_fwd.c - ATTENTION: causal, variable length, blockwise with an online softmax.
 *
 * No [S,S] buffer exists: a task owns PL_ATTENTION_QUERIES queries of one head and walks their key
 * blocks, keeping a running maximum and sum per query (Milakov and Gimelshein, "Online normalizer
 * calculation for softmax", 2018; blocks as in Dao et al., "FlashAttention", 2022). Scores carry a
 * factor log2(e), so that the exponential is a power of two. */
#include "estimator/ops/scratch/scratch_bytes.h"
#include "runtime/kernels/cpu/attention.h"

#define LOG2_E       1.44269504088896340736f
#define LN_2         0.69314718055994530942f
#define NO_MAX       -1e30f /* below every score, yet finite: it may be subtracted from itself */
#define SOFTMAX_ROWS 4

struct scratch {
#define X(name, floats) float *name;
    PL_ATTENTION_FWD_PARTS(X, 0)
#undef X
};

struct task {
    const struct pl_attention_walk *w;
    struct scratch s;
    uint32_t columns; /* whole vectors of queries */
    bool pairs;       /* queries and keys are read as pairs */
};

static struct scratch carve(float *base, uint64_t padded) {
    struct scratch s;
#define X(name, floats)                                                                            \
    s.name = base;                                                                                 \
    base += floats;
    PL_ATTENTION_FWD_PARTS(X, padded)
#undef X
    return s;
}

/* The queries of a level tile see a key together or not at all. */
static struct pl_seen seen_by(const struct pl_attention_walk *w, uint64_t key) {
    const uint64_t window = w->attr->window;
    if (!w->level) return pl_tile_seen(w->q0, key, window);
    return (struct pl_seen){0, window && key + window <= w->q0 ? 0 : PL_ATTENTION_QUERIES};
}

/* The first query of the vectors that see any of the SOFTMAX_ROWS keys that row j belongs to. */
static uint32_t first_column(const struct task *t, uint64_t k0, uint32_t j) {
    return t->w->level ? 0 : pl_tile_seen_vector(t->w->q0, k0 + j / SOFTMAX_ROWS * SOFTMAX_ROWS);
}

/* Scores of keys that a query must not see become -infinity, in vectors that see others; so do
 * those of the rows up to the next multiple of SOFTMAX_ROWS, which are scratch of no key. */
static void mask(const struct task *t, uint64_t k0, uint32_t n_keys) {
    for (uint32_t j = 0; j % SOFTMAX_ROWS || j < n_keys; j++) {
        float *scores = t->s.scores + j * PL_ATTENTION_QUERIES;
        const struct pl_seen seen = seen_by(t->w, k0 + j);
        const uint32_t first = j < n_keys ? seen.first : t->columns;
        for (uint32_t i = first_column(t, k0, j); i < first; i++)
            scores[i] = -INFINITY;
        for (uint32_t i = seen.end; i < t->columns; i++)
            scores[i] = -INFINITY;
    }
}

/* max[i] = the largest of it and four scores, for the queries of a vector. */
static inline void take_max(const float *restrict r, float *restrict max) {
    for (uint32_t i = 0; i < PL_LANES; i++) {
        float a = r[i], b = r[i + PL_ATTENTION_QUERIES];
        float c = r[i + 2 * PL_ATTENTION_QUERIES], d = r[i + 3 * PL_ATTENTION_QUERIES];
        a = a > b ? a : b;
        c = c > d ? c : d;
        a = a > c ? a : c;
        max[i] = max[i] > a ? max[i] : a;
    }
}

/* Four scores become exp2(score - max), which sum[i] takes in. */
static inline void take_exp(float *restrict r, const float *restrict max, float *restrict sum) {
    for (uint32_t i = 0; i < PL_LANES; i++) {
        float a = pl_exp2_nonpositive(r[i] - max[i]);
        float b = pl_exp2_nonpositive(r[i + PL_ATTENTION_QUERIES] - max[i]);
        float c = pl_exp2_nonpositive(r[i + 2 * PL_ATTENTION_QUERIES] - max[i]);
        float d = pl_exp2_nonpositive(r[i + 3 * PL_ATTENTION_QUERIES] - max[i]);
        r[i] = a;
        r[i + PL_ATTENTION_QUERIES] = b;
        r[i + 2 * PL_ATTENTION_QUERIES] = c;
        r[i + 3 * PL_ATTENTION_QUERIES] = d;
        sum[i] += (a + b) + (c + d);
    }
}

/* Turns scores [n][Q] of the keys from k0 into exp2(score - new maximum) and updates maximum and
 * sum; keep = factor of what was summed before. Where a vector of queries sees none of SOFTMAX_ROWS
 * keys, its scores become zeros and it is passed over. */
static void online_softmax(const struct task *t, uint64_t k0, uint32_t n) {
    float *restrict max = t->s.max, *restrict sum = t->s.sum, *restrict keep = t->s.keep;
    for (uint32_t i = 0; i < t->columns; i++)
        keep[i] = max[i];
    for (uint32_t j = 0; j < n; j += SOFTMAX_ROWS)
        for (uint32_t i = first_column(t, k0, j); i < t->columns; i += PL_LANES)
            take_max(t->s.scores + j * PL_ATTENTION_QUERIES + i, max + i);
    for (uint32_t i = 0; i < t->columns; i++) {
        keep[i] = pl_exp2_nonpositive(keep[i] - max[i]);
        sum[i] *= keep[i];
    }
    for (uint32_t j = 0; j < n; j += SOFTMAX_ROWS) {
        const uint32_t first = first_column(t, k0, j);
        float *scores = t->s.scores + j * PL_ATTENTION_QUERIES;
        for (uint32_t i = first; i < t->columns; i += PL_LANES)
            take_exp(scores + i, max + i, sum + i);
        for (uint32_t r = 0; r < SOFTMAX_ROWS; r++)
            memset(scores + r * PL_ATTENTION_QUERIES, 0, first * sizeof *scores);
    }
}

static void scale_rows(float *x, uint32_t n, size_t ld, const float *restrict factor) {
    for (uint32_t i = 0; i < n; i++) {
        float *restrict row = x + i * ld;
        const float f = factor[i];
        for (size_t d = 0; d < ld; d++)
            row[d] *= f;
    }
}

static void add_key_block(const struct task *t, uint64_t k0, bool first) {
    const struct pl_attention_walk *w = t->w;
    const uint32_t dim = w->attr->head_dim, ld = w->ld;
    const uint64_t end = pl_u64_min(k0 + PL_ATTENTION_KEYS, w->end);
    const uint32_t n = (uint32_t)(end - k0);
    const int64_t diag = (int64_t)k0 - (int64_t)w->q0;
    const struct pl_head_rows k = {&w->k, w->kv_row + k0, w->kv_col, n, dim};
    const struct pl_head_rows v = {&w->v, w->kv_row + k0, w->kv_col, n, dim};
    /* Single elements are asked for, or pairs. */
    const bool is_copied = w->k.dtype != PL_DTYPE_F32 && !t->pairs;
    const uint32_t together = t->pairs ? 2 : 1;
    if (is_copied) PL_LEVEL_NAME(pl_tile_pack)(&k, ld, t->s.k);
    PL_LEVEL_NAME(pl_tile_pack)(&v, ld, t->s.v);
    const struct pl_tile_product scores = {.m = n,
                                           .n = t->columns,
                                           .k = dim / together,
                                           .a = is_copied ? t->s.k : pl_at(&w->k, k.row, k.col),
                                           .rs = is_copied ? ld : w->k.ld / together,
                                           .ks = 1,
                                           .b = t->s.qt,
                                           .ldb = t->columns,
                                           .alpha = w->attr->scale * LOG2_E,
                                           .c = t->s.scores,
                                           .ldc = PL_ATTENTION_QUERIES,
                                           .pairs = t->pairs,
                                           .triangle = w->level ? PL_TRIANGLE_NONE
                                                                : PL_TRIANGLE_KEYS_BY_QUERIES,
                                           .diag = diag};
    PL_LEVEL_NAME(pl_tile_multiply)(&scores);
    mask(t, k0, n);
    online_softmax(t, k0, n);
    if (!first) scale_rows(t->s.o, w->n_queries, ld, t->s.keep);
    const struct pl_tile_product out = {.m = w->n_queries,
                                        .n = ld,
                                        .k = n,
                                        .a = t->s.scores,
                                        .rs = 1,
                                        .ks = PL_ATTENTION_QUERIES,
                                        .b = t->s.v,
                                        .ldb = ld,
                                        .c = t->s.o,
                                        .ldc = ld,
                                        .alpha = 1.0f,
                                        .add = !first,
                                        .triangle =
                                            w->level ? PL_TRIANGLE_NONE : PL_TRIANGLE_SUM_KEYS,
                                        .diag = diag};
    PL_LEVEL_NAME(pl_tile_multiply)(&out);
}

static void finish(const struct task *t) {
    const struct pl_attention_walk *w = t->w;
    const uint32_t dim = w->attr->head_dim;
    float *keep = t->s.keep;
    for (uint32_t i = 0; i < w->n_queries; i++)
        keep[i] = 1.0f / t->s.sum[i];
    scale_rows(t->s.o, w->n_queries, w->ld, keep);
    for (uint32_t i = 0; i < w->n_queries; i++) {
        const uint64_t row = w->q_row + i;
        pl_narrow(pl_at(&w->o, row, w->q_col), w->o.dtype, t->s.o + i * w->ld, dim);
        if (!w->lse.p) continue;
        float *lse = pl_at(&w->lse, row, w->head);
        *lse = t->s.max[i] * LN_2 + logf(t->s.sum[i]);
    }
}

/* The maximum and sum of what the queries have seen before any key: nothing, or the sink of their
 * head, which is a score without a value. */
static void begin(const struct task *t) {
    const struct pl_attention_walk *w = t->w;
    float sink = NO_MAX;
    for (uint32_t i = 0; i < PL_ATTENTION_QUERIES; i++) {
        const uint64_t head = w->head + (w->level && i < w->n_queries ? i : 0);
        if (w->sinks.p) pl_widen(&sink, pl_vector_at(&w->sinks, head), w->sinks.dtype, 1);
        t->s.max[i] = w->sinks.p ? sink * LOG2_E : NO_MAX;
        t->s.sum[i] = w->sinks.p ? 1.0f : 0.0f;
    }
}

void PL_LEVEL_NAME(pl_attention_walk)(const struct pl_attention_walk *w) {
    const bool pairs = pl_heads_are_paired(&w->q, w->attr->head_dim) &&
                       pl_heads_are_paired(&w->k, w->attr->head_dim);
    const struct task t = {w, carve(w->scratch, w->ld), pl_tile_columns(w->n_queries), pairs};
    const struct pl_head_rows q = {&w->q, w->q_row, w->q_col, w->n_queries, w->attr->head_dim};
    PL_LEVEL_NAME(pl_tile_turn)(&q, t.columns, pairs, t.s.qt);
    begin(&t);
    const uint64_t first = pl_first_key_block(w->q0, w->attr->window);
    const uint64_t end = pl_u64_div_up(w->end, PL_ATTENTION_KEYS);
    for (uint64_t b = first; b < end; b++)
        add_key_block(&t, b * PL_ATTENTION_KEYS, b == first);
    finish(&t);
}

struct attention {
    struct pl_attention_walk walk; /* what all tasks have in common */
    struct pl_view offsets;
    uint64_t floats_per_worker, n_seqs;
};

/* Tasks [task0, task1), numbered (query block from the last, sequence, head): the longest rows of
 * keys come first, so that no worker starts one when the others are done. */
static void run_tasks(void *arg, uint64_t task0, uint64_t task1, uint32_t worker) {
    const struct attention *a = arg;
    const struct pl_attr *attr = a->walk.attr;
    const uint32_t heads = attr->heads;
    const uint64_t blocks =
        pl_u64_div_up(pl_longest_sequence(&a->offsets, a->n_seqs), PL_ATTENTION_QUERIES);
    for (uint64_t n = task0; n < task1; n++) {
        struct pl_attention_walk w = a->walk;
        uint64_t length;
        w.head = (uint32_t)(n % heads);
        w.q_col = (uint64_t)w.head * attr->head_dim;
        w.kv_col = (uint64_t)(w.head / (heads / attr->kv_heads)) * attr->head_dim;
        w.kv_row = pl_sequence(&a->offsets, n / heads % a->n_seqs, &length);
        w.q0 = (blocks - 1 - n / heads / a->n_seqs) * PL_ATTENTION_QUERIES;
        if (w.q0 >= length) continue;
        w.q_row = w.kv_row + w.q0;
        w.n_queries = (uint32_t)pl_u64_min(length - w.q0, PL_ATTENTION_QUERIES);
        w.end = w.q0 + w.n_queries;
        w.scratch += worker * a->floats_per_worker;
        PL_LEVEL_NAME(pl_attention_walk)(&w);
    }
}

/* in: q[N,H*D] k[N,G*D] v[N,G*D] offsets[B+1]i32 ws sinks[H]?; out: o[N,H*D] lse[N,H]f32. */
pl_err PL_CPU(attention)(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *ws = &c->in[PL_ATTENTION_WS];
    const uint64_t need =
        pl_op_workspace_bytes(&dev->traits, PL_OP_ATTENTION, c->attr, c->in[PL_ATTENTION_Q].rows,
                              c->in[PL_ATTENTION_Q].cols);
    struct attention a = {
        .walk = {.q = c->in[PL_ATTENTION_Q],
                 .k = c->in[PL_ATTENTION_K],
                 .v = c->in[PL_ATTENTION_V],
                 .sinks = c->in[PL_ATTENTION_SINKS],
                 .o = c->out[PL_ATTENTION_OUT_O],
                 .lse = c->out[PL_ATTENTION_OUT_LSE],
                 .attr = c->attr,
                 .scratch = ws->p,
                 .ld = (uint32_t)pl_attention_padded(c->attr->head_dim)},
        .offsets = c->in[PL_ATTENTION_OFFSETS],
        .n_seqs = c->batch->n_seqs,
    };
    if (!pl_ws_holds(ws, need) || (a.walk.sinks.p && a.walk.sinks.rows != c->attr->heads))
        return PL_ERR_PLAN_BROKEN;
    a.floats_per_worker = need / sizeof(float) / dev->traits.threads;
    const uint64_t longest = pl_longest_sequence(&a.offsets, a.n_seqs);
    pl_cpu_rows(dev, pl_u64_div_up(longest, PL_ATTENTION_QUERIES) * a.n_seqs * c->attr->heads, 1,
                run_tasks, &a);
    return PL_ERR_OK;
}
