/* attention_cached.c - KV_APPEND: this run's keys and values into the cache; ATTENTION_CACHED:
 * queries over the cache.
 *
 * A piece of a prompt is cut into tiles of queries as in ATTENTION. A single token makes a tile of
 * the query heads that share a head of keys, so every key is read once for all of them. Both walk
 * the same blocks of keys with the same products, whose elements do not depend on their tile (T1 of
 * attention.h): the bits of a query are the same whatever was computed with it. */
#include "estimator/ops/scratch/scratch_bytes.h"
#include "runtime/kernels/cpu/attention.h"

/* Columns of a row copied at once, so that it fits the stack whatever the width. */
#define COLUMNS 512

/* The places of the sequences of a run. */
struct pieces {
    const int32_t *positions;
    struct pl_view offsets;
    uint64_t n_seqs, context;
};

struct piece {
    uint64_t row0, length, first; /* rows of the run; position of the first */
};

static struct piece piece_of(const struct pieces *p, uint64_t s) {
    struct piece x;
    x.row0 = pl_sequence(&p->offsets, s, &x.length);
    x.first = x.length ? (uint64_t)p->positions[x.row0] : 0;
    return x;
}

/* Every piece must lie inside the cache rows of its sequence. */
static bool are_inside(const struct pieces *p, uint64_t rows, uint64_t cache_rows) {
    if (p->offsets.rows <= p->n_seqs || p->n_seqs * p->context > cache_rows) return false;
    for (uint64_t s = 0; s < p->n_seqs; s++) {
        const struct piece x = piece_of(p, s);
        if (x.length > rows || x.row0 > rows - x.length) return false;
        if (x.length && (x.length > p->context || x.first > p->context - x.length)) return false;
    }
    return true;
}

/* ---- KV_APPEND ---- */

struct append {
    struct pieces pieces;
    struct pl_view from[2], to[2];
};

static void copy_row(const struct pl_view *from, uint64_t row, const struct pl_view *to,
                     uint64_t to_row) {
    float x[COLUMNS];
    if (from->dtype == to->dtype) {
        memcpy(pl_at(to, to_row, 0), pl_at(from, row, 0), to->cols * pl_float_bytes(to->dtype));
        return;
    }
    for (uint64_t c = 0; c < to->cols; c += COLUMNS) {
        const uint64_t n = pl_u64_min(COLUMNS, to->cols - c);
        pl_widen(x, pl_at(from, row, c), from->dtype, n);
        pl_narrow(pl_at(to, to_row, c), to->dtype, x, n);
    }
}

/* A task is a sequence: a run has a few rows of each or one long piece, and both are copied. */
static void append_sequences(void *arg, uint64_t s0, uint64_t s1, uint32_t worker) {
    const struct append *a = arg;
    (void)worker;
    for (uint64_t s = s0; s < s1; s++) {
        const struct piece x = piece_of(&a->pieces, s);
        const uint64_t cache = s * a->pieces.context + x.first;
        for (uint64_t i = 0; i < x.length; i++)
            for (int kv = 0; kv < 2; kv++)
                copy_row(&a->from[kv], x.row0 + i, &a->to[kv], cache + i);
    }
}

/* in: k[N,G*D] v[N,G*D] pos[N]i32 offsets[B+1]i32 kc[R,G*D]! vc[R,G*D]!; out: kc! vc!. */
pl_err PL_CPU(kv_append)(struct pl_device *dev, const struct pl_call *c) {
    const struct append a = {.pieces = {.positions = c->in[PL_KV_APPEND_POS].p,
                                        .offsets = c->in[PL_KV_APPEND_OFFSETS],
                                        .n_seqs = c->batch->n_seqs,
                                        .context = c->attr->context},
                             .from = {c->in[PL_KV_APPEND_K], c->in[PL_KV_APPEND_V]},
                             .to = {c->out[PL_KV_APPEND_OUT_KC], c->out[PL_KV_APPEND_OUT_VC]}};
    if (!are_inside(&a.pieces, pl_u64_min(a.from[0].rows, c->in[PL_KV_APPEND_POS].rows),
                    a.to[0].rows))
        return PL_ERR_PLAN_BROKEN;
    pl_cpu_rows(dev, a.pieces.n_seqs, 1, append_sequences, (void *)(uintptr_t)&a);
    return PL_ERR_OK;
}

/* ---- ATTENTION_CACHED ---- */

struct cached {
    struct pl_attention_walk walk; /* what all tasks have in common */
    struct pieces pieces;
    uint64_t floats_per_worker, blocks;
};

/* The heads of a row as rows of their own. */
static struct pl_view heads_of_row(const struct pl_view *v, uint64_t row, uint64_t head,
                                   uint64_t heads, uint64_t dim) {
    struct pl_view w = pl_window(v, row, heads, head * dim, dim);
    w.ld = dim;
    return w;
}

/* Heads [head, ...) of the group, up to a whole tile; the tasks of the other heads have no work. */
static void walk_token(struct pl_attention_walk *w, const struct piece *x, uint32_t group) {
    const uint32_t in_group = w->head % group, dim = w->attr->head_dim;
    if (in_group % PL_ATTENTION_QUERIES) return;
    w->n_queries = (uint32_t)pl_u64_min(group - in_group, PL_ATTENTION_QUERIES);
    w->q = heads_of_row(&w->q, x->row0, w->head, w->n_queries, dim);
    w->o = heads_of_row(&w->o, x->row0, w->head, w->n_queries, dim);
    w->q_row = w->q_col = 0;
    w->q0 = x->first;
    w->end = x->first + 1;
    w->level = true;
    PL_LEVEL_NAME(pl_attention_walk)(w);
}

static void walk_prompt(struct pl_attention_walk *w, const struct piece *x, uint64_t block) {
    const uint64_t first = block * PL_ATTENTION_QUERIES;
    if (first >= x->length) return;
    w->n_queries = (uint32_t)pl_u64_min(x->length - first, PL_ATTENTION_QUERIES);
    w->q_row = x->row0 + first;
    w->q_col = (uint64_t)w->head * w->attr->head_dim;
    w->q0 = x->first + first;
    w->end = w->q0 + w->n_queries;
    PL_LEVEL_NAME(pl_attention_walk)(w);
}

/* Tasks [task0, task1), numbered (query block from the last, sequence, head). */
static void run_tasks(void *arg, uint64_t task0, uint64_t task1, uint32_t worker) {
    const struct cached *a = arg;
    const struct pl_attr *attr = a->walk.attr;
    const uint32_t heads = attr->heads, group = heads / attr->kv_heads;
    for (uint64_t n = task0; n < task1; n++) {
        struct pl_attention_walk w = a->walk;
        const uint64_t s = n / heads % a->pieces.n_seqs;
        const uint64_t block = a->blocks - 1 - n / heads / a->pieces.n_seqs;
        const struct piece x = piece_of(&a->pieces, s);
        w.head = (uint32_t)(n % heads);
        w.kv_row = s * a->pieces.context;
        w.kv_col = (uint64_t)(w.head / group) * attr->head_dim;
        w.scratch += worker * a->floats_per_worker;
        if (x.length != 1)
            walk_prompt(&w, &x, block);
        else if (block == 0)
            walk_token(&w, &x, group);
    }
}

/* in: q[N,H*D] kc[R,G*D] vc[R,G*D] pos[N]i32 offsets[B+1]i32 ws sinks[H]?; out:
 * o[N,H*D]. */
pl_err PL_CPU(attention_cached)(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *ws = &c->in[PL_ATTENTION_CACHED_WS];
    const uint64_t need =
        pl_op_workspace_bytes(&dev->traits, PL_OP_ATTENTION_CACHED, c->attr,
                              c->in[PL_ATTENTION_CACHED_Q].rows, c->in[PL_ATTENTION_CACHED_Q].cols);
    struct cached a = {.walk = {.q = c->in[PL_ATTENTION_CACHED_Q],
                                .k = c->in[PL_ATTENTION_CACHED_KC],
                                .v = c->in[PL_ATTENTION_CACHED_VC],
                                .sinks = c->in[PL_ATTENTION_CACHED_SINKS],
                                .o = c->out[PL_ATTENTION_CACHED_OUT_O],
                                .attr = c->attr,
                                .scratch = ws->p,
                                .ld = (uint32_t)pl_attention_padded(c->attr->head_dim)},
                       .pieces = {.positions = c->in[PL_ATTENTION_CACHED_POS].p,
                                  .offsets = c->in[PL_ATTENTION_CACHED_OFFSETS],
                                  .n_seqs = c->batch->n_seqs,
                                  .context = c->attr->context}};
    if (!pl_ws_holds(ws, need) || (a.walk.sinks.p && a.walk.sinks.rows != c->attr->heads) ||
        !are_inside(
            &a.pieces,
            pl_u64_min(c->in[PL_ATTENTION_CACHED_Q].rows, c->in[PL_ATTENTION_CACHED_POS].rows),
            c->in[PL_ATTENTION_CACHED_KC].rows))
        return PL_ERR_PLAN_BROKEN;
    a.floats_per_worker = need / sizeof(float) / dev->traits.threads;
    a.blocks = pl_u64_div_up(pl_longest_sequence(&a.pieces.offsets, a.pieces.n_seqs),
                             PL_ATTENTION_QUERIES);
    pl_cpu_rows(dev, a.blocks * a.pieces.n_seqs * c->attr->heads, 1, run_tasks, &a);
    return PL_ERR_OK;
}
