/* gated_delta_bwd.c - GATED_DELTA_BWD: chunks of tokens backwards, each from the state that was
 * kept before it.
 *
 * With d = beta * r, r = v - alpha * S^T k, and G the gradient of the state after a token:
 *   G += q do^T; dq = S do; dd = G^T k; dv = beta dd; dbeta = dd . r; e = -dv;
 *   dk = G d + alpha * S_before e; G += k e^T; d log alpha = alpha * (G : S_before); G *= alpha
 * A task has the value heads of a head of keys in a sequence: dq and dk are sums over them. */
#include "runtime/kernels/cpu/gated_delta.h"

#include "estimator/ops/scratch/scratch_bytes.h"

enum { COLS = PL_DELTA_COLS, CHUNK = PL_DELTA_CHUNK };

struct backward {
    struct pl_delta t;
    struct pl_view states, go, dqkv, dba;
    float *tokens;  /* [2][N,V]: terms of dA_log, and of ddt_bias */
    float *scratch; /* of worker 0 */
    uint64_t floats_per_worker;
};

struct parts {
#define PART(name, floats) float *name;
    PL_DELTA_BWD_PARTS(PART, 0, 0, 0)
#undef PART
};

static struct parts carve(float *at, const struct pl_delta *t) {
    struct parts p;
#define PART(name, floats)                                                                         \
    p.name = at;                                                                                   \
    at += pl_u64_round_up(floats, 16);
    PL_DELTA_BWD_PARTS(PART, t->key_dim, t->dim, t->heads / t->key_heads)
#undef PART
    return p;
}

/* A chunk of a sequence, and what its tokens have for all heads of values. */
struct chunk {
    const struct backward *b;
    struct parts s;
    uint64_t row0, n, kept, key_head;
    float q_norm[CHUNK], k_norm[CHUNK];
};

/* A value head of a chunk. */
struct head {
    uint64_t head;
    struct pl_delta_gates gates[CHUNK];
    float dbeta[CHUNK], dlog[CHUNK];
};

/* COLS columns of a head. */
struct slice {
    uint64_t col, n;
    float *ds; /* [dk,COLS] */
};

/* The states after every token of the chunk, and r. */
static void repeat(const struct chunk *c, const struct head *h, const struct slice *s) {
    const struct pl_delta *t = &c->b->t;
    const uint64_t dk = t->key_dim;
    pl_delta_load_state(t, &c->b->states, c->kept, h->head, s->col, s->n, c->s.history);
    for (uint64_t i = 0; i < c->n; i++) {
        const float *restrict before = c->s.history + i * dk * COLS, *k = c->s.k + i * dk;
        float *restrict after = c->s.history + (i + 1) * dk * COLS;
        float *r = c->s.rest + i * COLS, seen[COLS] = {0}, d[COLS];
        const float decay = h->gates[i].decay;
        for (uint64_t a = 0; a < dk; a++)
            for (uint64_t j = 0; j < COLS; j++)
                seen[j] += k[a] * before[a * COLS + j];
        pl_delta_load(&t->qkv, c->row0 + i, pl_delta_value_col(t, h->head) + s->col, s->n, r);
        for (uint64_t j = 0; j < COLS; j++) {
            r[j] -= decay * seen[j];
            d[j] = h->gates[i].beta * r[j];
        }
        for (uint64_t a = 0; a < dk; a++)
            for (uint64_t j = 0; j < COLS; j++)
                after[a * COLS + j] = decay * before[a * COLS + j] + k[a] * d[j];
    }
}

/* G += q do^T; dq += S do; returns G^T k in dd. */
static void read_back(const struct chunk *c, const struct slice *s, uint64_t i, const float *go,
                      float *restrict dd) {
    const uint64_t dk = c->b->t.key_dim;
    const float *restrict after = c->s.history + (i + 1) * dk * COLS;
    const float *q = c->s.q + i * dk, *k = c->s.k + i * dk;
    float *dq = c->s.gq + i * dk;
    memset(dd, 0, COLS * sizeof *dd);
    for (uint64_t a = 0; a < dk; a++) {
        float *restrict g = s->ds + a * COLS;
        float sum = 0.0f;
        for (uint64_t j = 0; j < COLS; j++) {
            g[j] += q[a] * go[j];
            dd[j] += k[a] * g[j];
            sum += after[a * COLS + j] * go[j];
        }
        dq[a] += sum;
    }
}

/* The step from the state before a token: dk, G of before, and d log alpha. */
static float correct_back(const struct chunk *c, const struct slice *s, uint64_t i, float decay,
                          const float *d, const float *dv) {
    const uint64_t dk = c->b->t.key_dim;
    const float *restrict before = c->s.history + i * dk * COLS;
    const float *k = c->s.k + i * dk;
    float *to = c->s.gk + i * dk, all = 0.0f;
    for (uint64_t a = 0; a < dk; a++) {
        float *restrict g = s->ds + a * COLS;
        float sum = 0.0f, dlog = 0.0f;
        for (uint64_t j = 0; j < COLS; j++) {
            const float x = decay * before[a * COLS + j], changed = g[j] - k[a] * dv[j];
            sum += g[j] * d[j] - x * dv[j];
            dlog += changed * x;
            g[j] = decay * changed;
        }
        to[a] += sum;
        all += dlog;
    }
    return all;
}

static void walk_back(const struct chunk *c, struct head *h, const struct slice *s) {
    const struct backward *b = c->b;
    float go[COLS], dd[COLS], d[COLS], dv[COLS];
    repeat(c, h, s);
    for (uint64_t i = c->n; i-- > 0;) {
        const float *r = c->s.rest + i * COLS, beta = h->gates[i].beta;
        pl_delta_load(&b->go, c->row0 + i, h->head * b->t.dim + s->col, s->n, go);
        read_back(c, s, i, go, dd);
        for (uint64_t j = 0; j < COLS; j++) {
            h->dbeta[i] += dd[j] * r[j];
            d[j] = beta * r[j];
            dv[j] = beta * dd[j];
        }
        h->dlog[i] += correct_back(c, s, i, h->gates[i].decay, d, dv);
        pl_narrow(pl_at(&b->dqkv, c->row0 + i, pl_delta_value_col(&b->t, h->head) + s->col),
                  b->dqkv.dtype, dv, s->n);
    }
}

static void put_number(const struct pl_view *v, uint64_t row, uint64_t col, float x) {
    pl_narrow(pl_at(v, row, col), v->dtype, &x, 1);
}

static void write_gates(const struct chunk *c, const struct head *h) {
    const struct backward *b = c->b;
    const uint64_t heads = b->t.heads;
    for (uint64_t i = 0; i < c->n; i++) {
        const struct pl_delta_gates *g = &h->gates[i];
        const uint64_t row = c->row0 + i;
        const float da = h->dlog[i] * g->slope;
        put_number(&b->dba, row, h->head, h->dbeta[i] * g->beta * (1.0f - g->beta));
        put_number(&b->dba, row, heads + h->head, da);
        if (!b->tokens) continue;
        b->tokens[row * heads + h->head] = h->dlog[i] * g->log_decay;
        b->tokens[(b->t.qkv.rows + row) * heads + h->head] = da;
    }
}

/* The gradient of x through x / sqrt(sum of squares + eps), of which `unit` is the result. */
static void write_key(const struct chunk *c, uint64_t i, uint64_t head, const float *unit, float *d,
                      float norm) {
    const struct pl_delta *t = &c->b->t;
    float dot = 0.0f;
    for (uint64_t a = 0; a < t->key_dim; a++)
        dot += unit[a] * d[a];
    for (uint64_t a = 0; a < t->key_dim; a++)
        d[a] = norm * (d[a] - unit[a] * dot);
    pl_narrow(pl_at(&c->b->dqkv, c->row0 + i, head * t->key_dim), c->b->dqkv.dtype, d, t->key_dim);
}

/* Queries are scaled after their norm: q = scale * unit. */
static void write_keys(const struct chunk *c) {
    const struct pl_delta *t = &c->b->t;
    const uint64_t dk = t->key_dim;
    const float root = sqrtf((float)dk);
    for (uint64_t i = 0; i < c->n; i++) {
        float *q = c->s.q + i * dk, *dq = c->s.gq + i * dk;
        for (uint64_t a = 0; a < dk; a++) {
            q[a] *= root;
            dq[a] /= root;
        }
        write_key(c, i, c->key_head, q, dq, c->q_norm[i]);
        write_key(c, i, t->key_heads + c->key_head, c->s.k + i * dk, c->s.gk + i * dk,
                  c->k_norm[i]);
    }
}

static void run_chunk(struct chunk *c) {
    const struct pl_delta *t = &c->b->t;
    const uint64_t dk = t->key_dim, group = t->heads / t->key_heads;
    const uint64_t width = pl_u64_round_up(t->dim, COLS);
    for (uint64_t i = 0; i < c->n; i++) {
        c->q_norm[i] = pl_delta_query(t, c->row0 + i, c->key_head, c->s.q + i * dk);
        c->k_norm[i] = pl_delta_key(t, c->row0 + i, t->key_heads + c->key_head, c->s.k + i * dk);
    }
    memset(c->s.gq, 0, c->n * dk * sizeof(float));
    memset(c->s.gk, 0, c->n * dk * sizeof(float));
    for (uint64_t in_group = 0; in_group < group; in_group++) {
        struct head h = {.head = c->key_head * group + in_group};
        for (uint64_t i = 0; i < c->n; i++)
            h.gates[i] = pl_delta_gates(t, c->row0 + i, h.head);
        for (uint64_t col = 0; col < t->dim; col += COLS) {
            const struct slice s = {col, pl_u64_min(COLS, t->dim - col),
                                    c->s.ds + dk * (in_group * width + col)};
            walk_back(c, &h, &s);
        }
        write_gates(c, &h);
    }
    write_keys(c);
}

/* Task: a head of keys in a sequence. */
static void run_tasks(void *arg, uint64_t task0, uint64_t task1, uint32_t worker) {
    const struct backward *b = arg;
    const struct pl_delta *t = &b->t;
    struct chunk c = {.b = b, .s = carve(b->scratch + worker * b->floats_per_worker, t)};
    for (uint64_t task = task0; task < task1; task++) {
        const uint64_t seq = task / t->key_heads, start = (uint64_t)t->offsets[seq];
        const uint64_t length = (uint64_t)t->offsets[seq + 1] - start;
        const uint64_t group = t->heads / t->key_heads;
        c.key_head = task % t->key_heads;
        memset(c.s.ds, 0, group * t->key_dim * pl_u64_round_up(t->dim, COLS) * sizeof(float));
        for (uint64_t i = pl_u64_div_up(length, CHUNK); i-- > 0;) {
            c.row0 = start + i * CHUNK;
            c.n = pl_u64_min(length - i * CHUNK, CHUNK);
            c.kept = PL_DELTA_ROW_OF(start, seq, i);
            run_chunk(&c);
        }
    }
}

/* out[h] (=|+=) the terms of all tokens, in order. */
static void sum_tokens(const struct backward *b, const struct pl_view *out, const float *terms,
                       bool adds) {
    for (uint64_t h = 0; out->p && h < b->t.heads; h++) {
        double sum = adds ? (double)pl_delta_number(out, h, 0) : 0.0;
        for (uint64_t row = 0; row < b->t.qkv.rows; row++)
            sum += (double)terms[row * b->t.heads + h];
        put_number(out, h, 0, (float)sum);
    }
}

static bool fits(const struct backward *b, const struct pl_view *da_log,
                 const struct pl_view *ddt_bias) {
    const struct pl_delta *t = &b->t;
    return b->go.cols == t->heads * t->dim && b->dqkv.rows == t->qkv.rows &&
           b->dqkv.cols == t->qkv.cols && b->dba.rows == t->qkv.rows &&
           b->dba.cols == 2 * t->heads && b->states.dtype == PL_DTYPE_F32 &&
           b->states.cols == t->heads * t->key_dim * t->dim &&
           b->states.rows >= pl_delta_rows(t->qkv.rows, t->n_seqs) &&
           (!da_log->p || da_log->rows == t->heads) && (!ddt_bias->p || ddt_bias->rows == t->heads);
}

/* in: qkv ba A_log[V] dt_bias[V] offsets[B+1]i32 states f32 do[N,V*dv] ws dA_log?[V]!
 * ddt_bias?[V]!; out: dqkv dba dA_log?! ddt_bias?!. */
pl_err PL_CPU(gated_delta_bwd)(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *ws = &c->in[PL_GATED_DELTA_BWD_WS];
    const struct pl_view *da_log = &c->out[PL_GATED_DELTA_BWD_OUT_DA_LOG];
    const struct pl_view *ddt_bias = &c->out[PL_GATED_DELTA_BWD_OUT_DDT_BIAS];
    struct backward b = {.states = c->in[PL_GATED_DELTA_BWD_STATES],
                         .go = c->in[PL_GATED_DELTA_BWD_DO],
                         .dqkv = c->out[PL_GATED_DELTA_BWD_OUT_DQKV],
                         .dba = c->out[PL_GATED_DELTA_BWD_OUT_DBA]};
    const struct pl_view *qkv = &c->in[PL_GATED_DELTA_BWD_QKV];
    const uint64_t need =
        pl_op_workspace_bytes(&dev->traits, PL_OP_GATED_DELTA_BWD, c->attr, qkv->rows, qkv->cols);
    if (!pl_delta_init(&b.t, c, b.go.rows) || !fits(&b, da_log, ddt_bias) || !pl_ws_holds(ws, need))
        return PL_ERR_PLAN_BROKEN;
    const uint64_t of_tokens = pl_delta_token_floats(qkv->rows, b.t.heads);
    if (da_log->p || ddt_bias->p) b.tokens = ws->p;
    b.scratch = (float *)ws->p + of_tokens;
    b.floats_per_worker = (need / sizeof(float) - of_tokens) / dev->traits.threads;
    pl_cpu_rows(dev, b.t.n_seqs * b.t.key_heads, 1, run_tasks, &b);
    const bool adds = pl_call_adds(c);
    sum_tokens(&b, da_log, b.tokens, adds);
    sum_tokens(&b, ddt_bias, b.tokens ? b.tokens + qkv->rows * b.t.heads : NULL, adds);
    return PL_ERR_OK;
}
