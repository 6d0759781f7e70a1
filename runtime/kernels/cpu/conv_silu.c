/* conv_silu.c - CONV_SILU and CONV_SILU_BWD: a causal convolution of each channel by itself, and
 * silu of it.
 *
 * Rows are walked in chunks of PL_PARTIAL_ROWS and columns in strips of COLS. Sums over the rows of
 * a chunk are fp32, those of chunks double, both in order: threads do not matter. */
#include "estimator/ops/scratch/scratch_bytes.h"
#include "estimator/ops/scratch/workspace_attention.h"
#include "runtime/kernels/cpu/chunk.h"

/* TAPS_ROOM: whole vectors, which rows of w are widened in. */
enum { COLS = 64, MOST = PL_CONV_MAX_TAPS, TAPS_ROOM = 16 };

struct conv {
    struct pl_view y, w, c, cache; /* c is its gradient on the way back; cache absent: none */
    struct pl_view dy, dw;
    const int32_t *offsets, *pos;
    float *partial; /* [chunks of rows][taps][CH]; NULL = no dw */
    uint64_t n_seqs, taps;
    bool adds; /* to dw */
};

/* A strip of columns, and the sequence of the row at hand. */
struct strip {
    const struct conv *t;
    uint64_t col, n;
    uint64_t seq, start, end;
    float w[MOST][COLS]; /* by tap, so that a loop over columns is a vector */
};

static void set_strip(struct strip *s, uint64_t col) {
    const struct conv *t = s->t;
    float row[TAPS_ROOM];
    s->col = col;
    s->n = pl_u64_min(COLS, t->y.cols - col);
    s->seq = s->start = s->end = 0;
    for (uint64_t i = 0; i < s->n; i++) {
        pl_widen(row, pl_at(&t->w, col + i, 0), t->w.dtype, t->taps);
        for (uint64_t j = 0; j < t->taps; j++)
            s->w[j][i] = row[j];
    }
}

/* Rows only ascend between two calls of set_strip. */
static void turn_to(struct strip *s, uint64_t row) {
    const int32_t *offsets = s->t->offsets;
    while ((uint64_t)offsets[s->seq + 1] <= row)
        s->seq++;
    s->start = (uint64_t)offsets[s->seq];
    s->end = (uint64_t)offsets[s->seq + 1];
}

/* Returns the strip of y so many positions before a row; NULL: none, which is a zero. */
static const float *row_before(const struct strip *s, uint64_t row, uint64_t back, float *buf) {
    const struct conv *t = s->t;
    if (row >= s->start + back) return pl_chunk(&t->y, row - back, s->col, s->n, buf);
    const uint64_t from_start = back - (row - s->start);
    if (!t->cache.p || (uint64_t)t->pos[s->start] < from_start) return NULL;
    const uint64_t position = (uint64_t)t->pos[s->start] - from_start;
    const uint64_t kept = s->seq * (t->taps - 1) + position % (t->taps - 1);
    return pl_chunk(&t->cache, kept, s->col, s->n, buf);
}

/* u = the convolution at a row. */
static void convolve(const struct strip *s, uint64_t row, float *restrict u) {
    float buf[COLS];
    memset(u, 0, COLS * sizeof *u);
    for (uint64_t j = 0; j < s->t->taps; j++) {
        const float *x = row_before(s, row, s->t->taps - 1 - j, buf);
        for (uint64_t i = 0; x && i < s->n; i++)
            u[i] += s->w[j][i] * x[i];
    }
}

static void forward_rows(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    struct strip s = {.t = arg};
    float u[COLS], buf[COLS];
    (void)worker;
    for (uint64_t col = 0; col < s.t->y.cols; col += COLS) {
        set_strip(&s, col);
        for (uint64_t row = row0; row < row1; row++) {
            turn_to(&s, row);
            convolve(&s, row, u);
            float *c = pl_chunk_out(&s.t->c, row, col, buf);
            for (uint64_t i = 0; i < s.n; i++)
                c[i] = u[i] / (1.0f + pl_expf(-u[i]));
            pl_chunk_store(&s.t->c, row, col, s.n, c);
        }
    }
}

/* The last positions of a sequence into the cache, one that is there only once: no more rows than
 * the cache has of a sequence. */
static void keep_rows(void *arg, uint64_t seq0, uint64_t seq1, uint32_t worker) {
    const struct conv *t = arg;
    float buf[PL_CHUNK], out[PL_CHUNK];
    (void)worker;
    for (uint64_t s = seq0; s < seq1; s++) {
        const uint64_t start = (uint64_t)t->offsets[s], end = (uint64_t)t->offsets[s + 1];
        const uint64_t n = pl_u64_min(end - start, t->taps - 1);
        for (uint64_t row = end - n; row < end; row++) {
            const uint64_t position = (uint64_t)t->pos[start] + row - start;
            const uint64_t to = s * (t->taps - 1) + position % (t->taps - 1);
            for (uint64_t c = 0, k; c < t->y.cols; c += k) {
                k = pl_chunk_size(t->y.cols, c);
                float *x = pl_chunk_out(&t->cache, to, c, out);
                memmove(x, pl_chunk(&t->y, row, c, k, buf), k * sizeof *x);
                pl_chunk_store(&t->cache, to, c, k, x);
            }
        }
    }
}

static bool fits(const struct conv *t, uint64_t n_seqs, const struct pl_view *offsets) {
    return t->taps >= 1 && t->taps <= MOST && t->w.cols == t->taps && t->w.rows == t->y.cols &&
           offsets->rows > n_seqs && t->c.rows == t->y.rows && t->c.cols == t->y.cols &&
           pl_ends_are_ordered(t->offsets, n_seqs, t->y.rows) && t->offsets[0] == 0 &&
           (uint64_t)t->offsets[n_seqs] == t->y.rows;
}

static bool cache_fits(const struct conv *t, const struct pl_view *pos) {
    if (!t->cache.p) return true;
    if (!pos->p || pos->rows != t->y.rows || t->cache.cols != t->y.cols ||
        t->cache.rows < t->n_seqs * (t->taps - 1))
        return false;
    for (uint64_t i = 0; i < pos->rows; i++)
        if (t->pos[i] < 0) return false;
    return true;
}

/* in: y[N,CH] w[CH,taps] offsets[B+1]i32 pos?[N]i32 cache?[..,CH]!; out: c[N,CH] cache?!. */
pl_err PL_CPU(conv_silu)(struct pl_device *dev, const struct pl_call *c) {
    struct conv t = {.y = c->in[PL_CONV_SILU_Y],
                     .w = c->in[PL_CONV_SILU_W],
                     .c = c->out[PL_CONV_SILU_OUT_C],
                     .cache = c->out[PL_CONV_SILU_OUT_CACHE],
                     .offsets = c->in[PL_CONV_SILU_OFFSETS].p,
                     .pos = c->in[PL_CONV_SILU_POS].p,
                     .n_seqs = c->batch->n_seqs,
                     .taps = c->attr->taps};
    if (!fits(&t, t.n_seqs, &c->in[PL_CONV_SILU_OFFSETS]) ||
        !cache_fits(&t, &c->in[PL_CONV_SILU_POS]))
        return PL_ERR_PLAN_BROKEN;
    pl_cpu_rows(dev, t.y.rows, PL_PARTIAL_ROWS, forward_rows, &t);
    if (t.cache.p && t.taps > 1) pl_cpu_rows(dev, t.n_seqs, 1, keep_rows, &t);
    return PL_ERR_OK;
}

/* ---- backward ---- */

/* g = dc * d silu(u) / du at a row. */
static void slope_row(const struct strip *s, uint64_t row, float *restrict g) {
    float u[COLS], buf[COLS];
    convolve(s, row, u);
    const float *dc = pl_chunk(&s->t->c, row, s->col, s->n, buf);
    for (uint64_t i = 0; i < s->n; i++) {
        const float sigmoid = 1.0f / (1.0f + pl_expf(-u[i])), silu = u[i] * sigmoid;
        g[i] = dc[i] * (sigmoid + silu - silu * sigmoid);
    }
}

/* dy of a row; g[k] is that of the row k later. */
static void write_dy(const struct strip *s, uint64_t row, float (*g)[COLS]) {
    const uint64_t taps = s->t->taps;
    float buf[COLS];
    float *dy = pl_chunk_out(&s->t->dy, row, s->col, buf);
    memset(dy, 0, s->n * sizeof *dy);
    for (uint64_t k = 0; k < taps && row + k < s->end; k++)
        for (uint64_t i = 0; i < s->n; i++)
            dy[i] += s->w[taps - 1 - k][i] * g[k][i];
    pl_chunk_store(&s->t->dy, row, s->col, s->n, dy);
}

static void add_dw(const struct strip *s, uint64_t row, const float *restrict g, float *partial) {
    const struct conv *t = s->t;
    float buf[COLS];
    for (uint64_t j = 0; j < t->taps; j++) {
        const float *x = row_before(s, row, t->taps - 1 - j, buf);
        float *restrict dw = partial + j * t->y.cols + s->col;
        for (uint64_t i = 0; x && i < s->n; i++)
            dw[i] += g[i] * x[i];
    }
}

static void backward_rows(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    struct strip s = {.t = arg};
    const struct conv *t = s.t;
    float g[PL_PARTIAL_ROWS + MOST - 1][COLS];
    float *partial = NULL;
    const uint64_t end = pl_u64_min(row1 + t->taps - 1, t->y.rows);
    (void)worker;
    if (t->partial) {
        partial = t->partial + row0 / PL_PARTIAL_ROWS * t->taps * t->y.cols;
        memset(partial, 0, t->taps * t->y.cols * sizeof *partial);
    }
    for (uint64_t col = 0; col < t->y.cols; col += COLS) {
        set_strip(&s, col);
        for (uint64_t row = row0; row < end; row++) {
            turn_to(&s, row);
            slope_row(&s, row, g[row - row0]);
            if (partial && row < row1) add_dw(&s, row, g[row - row0], partial);
        }
        s.seq = 0;
        for (uint64_t row = row0; row < row1; row++) {
            turn_to(&s, row);
            write_dy(&s, row, &g[row - row0]);
        }
    }
}

static void sum_chunks(void *arg, uint64_t ch0, uint64_t ch1, uint32_t worker) {
    const struct conv *t = arg;
    (void)worker;
    for (uint64_t ch = ch0; ch < ch1; ch++) {
        float dw[TAPS_ROOM] = {0};
        if (t->adds) pl_load_row(&t->dw, ch, dw);
        for (uint64_t j = 0; j < t->taps; j++) {
            double sum = (double)dw[j];
            for (uint64_t k = 0; k < pl_u64_div_up(t->y.rows, PL_PARTIAL_ROWS); k++)
                sum += (double)t->partial[(k * t->taps + j) * t->y.cols + ch];
            dw[j] = (float)sum;
        }
        pl_store_row(&t->dw, ch, dw);
    }
}

/* in: y[N,CH] w[CH,taps] offsets[B+1]i32 dc[N,CH] ws? dw?[CH,taps]!; out: dy[N,CH]
 * dw?[CH,taps]!. */
pl_err PL_CPU(conv_silu_bwd)(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *ws = &c->in[PL_CONV_SILU_BWD_WS];
    struct conv t = {.y = c->in[PL_CONV_SILU_BWD_Y],
                     .w = c->in[PL_CONV_SILU_BWD_W],
                     .c = c->in[PL_CONV_SILU_BWD_DC],
                     .dy = c->out[PL_CONV_SILU_BWD_OUT_DY],
                     .dw = c->out[PL_CONV_SILU_BWD_OUT_DW],
                     .offsets = c->in[PL_CONV_SILU_BWD_OFFSETS].p,
                     .n_seqs = c->batch->n_seqs,
                     .taps = c->attr->taps};
    const uint64_t need =
        pl_op_workspace_bytes(&dev->traits, PL_OP_CONV_SILU_BWD, c->attr, t.y.rows, t.y.cols);
    if (!fits(&t, t.n_seqs, &c->in[PL_CONV_SILU_BWD_OFFSETS]) || t.dy.rows != t.y.rows ||
        t.dy.cols != t.y.cols || (t.dw.p && (t.dw.rows != t.y.cols || t.dw.cols != t.taps)) ||
        (t.dw.p && !pl_ws_holds(ws, need)))
        return PL_ERR_PLAN_BROKEN;
    if (t.dw.p) t.partial = ws->p;
    pl_cpu_rows(dev, t.y.rows, PL_PARTIAL_ROWS, backward_rows, &t);
    t.adds = pl_call_adds(c);
    if (t.dw.p) pl_cpu_rows(dev, t.y.cols, COLS, sum_chunks, &t);
    return PL_ERR_OK;
}
