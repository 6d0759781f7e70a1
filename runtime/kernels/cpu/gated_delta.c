/* gated_delta.c - GATED_DELTA: linear attention whose state forgets, corrects and is read (Yang et
 * al., "Gated delta networks", arXiv 2412.06464), token by token.
 *
 * A walk passes over its columns of the state once a token: it changes them, reads o, and asks for
 * S^T k of the next token: 8 operations for an element of the state. Chunks of 64 tokens as
 * products of matrices would take 11.5 million operations with dk = D = 128, where this takes 8.4
 * million. */
#include "runtime/kernels/cpu/gated_delta.h"

#include "estimator/ops/scratch/scratch_bytes.h"

struct forward {
    struct pl_delta t;
    struct pl_view o, states, state;
    const int32_t *pos; /* where there is a state */
    uint64_t slices;    /* of a head */
    float *scratch;
};

/* A walk's columns, and the token at hand. */
struct walk {
    const struct pl_delta *t;
    uint64_t head, col, n;
    float *state, *q, *k,
        *next;                 /* [dk,PL_DELTA_COLS], [dk] each; next: the key of the next token */
    float seen[PL_DELTA_COLS]; /* S^T k of the token at hand, before its decay */
};

/* o = S^T q after the token, and seen = S^T next. */
static void pass(struct walk *w, float decay, const float *change, float *o) {
    pl_vec d[PL_DELTA_VECTORS], read[PL_DELTA_VECTORS], seen[PL_DELTA_VECTORS];
    for (int v = 0; v < PL_DELTA_VECTORS; v++) {
        d[v] = pl_vec_load(change + v * PL_LANES);
        read[v] = seen[v] = (pl_vec){0};
    }
    for (uint64_t i = 0; i < w->t->key_dim; i++) {
        float *row = w->state + i * PL_DELTA_COLS;
        for (int v = 0; v < PL_DELTA_VECTORS; v++) {
            const pl_vec x = pl_vec_load(row + v * PL_LANES) * decay + d[v] * w->k[i];
            *(pl_vec_unaligned *)(row + v * PL_LANES) = x;
            read[v] += x * w->q[i];
            seen[v] += x * w->next[i];
        }
    }
    memcpy(o, read, sizeof read);
    memcpy(w->seen, seen, sizeof seen);
}

static void see(struct walk *w) {
    memset(w->seen, 0, sizeof w->seen);
    for (uint64_t i = 0; i < w->t->key_dim; i++)
        for (uint64_t j = 0; j < PL_DELTA_COLS; j++)
            w->seen[j] += w->state[i * PL_DELTA_COLS + j] * w->next[i];
}

static void step(struct walk *w, const struct forward *f, uint64_t row, bool is_last) {
    const struct pl_delta *t = w->t;
    const uint64_t key_head = w->head / (t->heads / t->key_heads);
    const struct pl_delta_gates g = pl_delta_gates(t, row, w->head);
    float v[PL_DELTA_COLS], o[PL_DELTA_COLS];
    float *k = w->next;
    w->next = w->k;
    w->k = k;
    (void)pl_delta_query(t, row, key_head, w->q);
    if (is_last)
        memset(w->next, 0, t->key_dim * sizeof *w->next);
    else
        (void)pl_delta_key(t, row + 1, t->key_heads + key_head, w->next);
    pl_delta_load(&t->qkv, row, pl_delta_value_col(t, w->head) + w->col, w->n, v);
    for (uint64_t j = 0; j < PL_DELTA_COLS; j++)
        v[j] = g.beta * (v[j] - g.decay * w->seen[j]);
    pass(w, g.decay, v, o);
    pl_narrow(pl_at(&f->o, row, w->head * t->dim + w->col), f->o.dtype, o, w->n);
}

static void walk_sequence(struct walk *w, const struct forward *f, uint64_t seq) {
    const struct pl_delta *t = w->t;
    const uint64_t start = (uint64_t)t->offsets[seq], end = (uint64_t)t->offsets[seq + 1];
    if (start == end) return;
    if (f->state.p && f->pos[start] > 0)
        pl_delta_load_state(t, &f->state, seq, w->head, w->col, w->n, w->state);
    else
        memset(w->state, 0, t->key_dim * PL_DELTA_COLS * sizeof *w->state);
    (void)pl_delta_key(t, start, t->key_heads + w->head / (t->heads / t->key_heads), w->next);
    see(w);
    for (uint64_t row = start; row < end; row++) {
        const uint64_t at = row - start;
        if (f->states.p && at % PL_DELTA_CHUNK == 0)
            pl_delta_store_state(t, &f->states, PL_DELTA_ROW_OF(start, seq, at / PL_DELTA_CHUNK),
                                 w->head, w->col, w->n, w->state);
        step(w, f, row, row + 1 == end);
    }
    if (f->state.p) pl_delta_store_state(t, &f->state, seq, w->head, w->col, w->n, w->state);
}

static void run_walks(void *arg, uint64_t walk0, uint64_t walk1, uint32_t worker) {
    const struct forward *f = arg;
    const uint64_t dk = f->t.key_dim;
    float *own = f->scratch + worker * pl_delta_walk_floats(dk);
    for (uint64_t i = walk0; i < walk1; i++) {
        const uint64_t col = i % f->slices * PL_DELTA_COLS;
        struct walk w = {.t = &f->t,
                         .head = i / f->slices % f->t.heads,
                         .col = col,
                         .n = pl_u64_min(f->t.dim - col, PL_DELTA_COLS),
                         .state = own,
                         .q = own + dk * PL_DELTA_COLS,
                         .k = own + dk * (PL_DELTA_COLS + 1),
                         .next = own + dk * (PL_DELTA_COLS + 2)};
        walk_sequence(&w, f, i / f->slices / f->t.heads);
    }
}

static bool holds(const struct pl_delta *t, const struct pl_view *states, uint64_t rows) {
    return !states->p || (states->cols == t->heads * t->key_dim * t->dim && states->rows >= rows &&
                          states->dtype == PL_DTYPE_F32);
}

/* in: qkv[N,2*K*dk+V*dv] ba[N,2V] A_log[V] dt_bias[V] offsets[B+1]i32 ws pos?[N]i32
 * state?[B,V*dk*dv]f32!; out: o[N,V*dv] states?[..,V*dk*dv]f32 state?!. */
pl_err PL_CPU(gated_delta)(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *ws = &c->in[PL_GATED_DELTA_WS], *pos = &c->in[PL_GATED_DELTA_POS];
    struct forward f = {.o = c->out[PL_GATED_DELTA_OUT_O],
                        .states = c->out[PL_GATED_DELTA_OUT_STATES],
                        .state = c->out[PL_GATED_DELTA_OUT_STATE],
                        .pos = pos->p,
                        .scratch = ws->p};
    const struct pl_view *qkv = &c->in[PL_GATED_DELTA_QKV];
    if (!pl_delta_init(&f.t, c, f.o.rows) || f.o.cols != f.t.heads * f.t.dim ||
        !holds(&f.t, &f.states, pl_delta_rows(qkv->rows, f.t.n_seqs)) ||
        !holds(&f.t, &f.state, f.t.n_seqs) || (f.state.p && (!f.pos || pos->rows != qkv->rows)) ||
        !pl_ws_holds(ws, pl_op_workspace_bytes(&dev->traits, PL_OP_GATED_DELTA, c->attr, qkv->rows,
                                               qkv->cols)))
        return PL_ERR_PLAN_BROKEN;
    f.slices = pl_u64_div_up(f.t.dim, PL_DELTA_COLS);
    pl_cpu_rows(dev, f.t.n_seqs * f.t.heads * f.slices, 1, run_walks, &f);
    return PL_ERR_OK;
}
