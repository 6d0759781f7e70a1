#include "runtime/kernels/between.h"

#include "estimator/ops/shard_rows.h"
#include "runtime/comm/comm.h"

struct moves {
    struct pl_move list[2 * PL_RANKS_MAX];
    uint32_t n;
};

static void add(struct moves *m, uint32_t peer, bool receive, void *p, uint64_t bytes) {
    if (bytes) m->list[m->n++] = (struct pl_move){peer, receive, p, bytes};
}

/* Rows of a matrix in one piece. */
static char *row_of(const struct pl_view *v, uint64_t row, uint64_t *row_bytes) {
    *row_bytes = v->cols * pl_dtype_bytes(v->dtype);
    return (char *)v->p + row * *row_bytes;
}

static bool fits(const struct pl_device *dev, const struct pl_call *c, const struct pl_view *x) {
    return dev->comm && dev->comm->world.size == c->attr->ranks && c->attr->ranks <= PL_RANKS_MAX &&
           c->attr->block_rows && x->ld == x->cols;
}

static pl_err run(struct pl_device *dev, const struct moves *m, void *stream) {
    return m->n ? dev->comm->ops->exchange(dev->comm, m->list, m->n, stream) : PL_ERR_OK;
}

/* The rows of a rank that pass in this call. */
static struct pl_shard piece_of(const struct pl_call *c, const struct pl_view *g, uint32_t rank) {
    const struct pl_attr *a = c->attr;
    const struct pl_shard all = pl_shard_of(g->rows, a->block_rows, a->ranks, rank);
    return a->piece_rows ? pl_shard_piece(all, a->piece_row0, a->piece_rows) : all;
}

pl_err pl_ranks_spread(struct pl_device *dev, const struct pl_call *c, void *stream) {
    const struct pl_view *g = &c->in[PL_SPREAD_G], *parts = &c->out[PL_SPREAD_OUT_PARTS];
    const uint32_t ranks = c->attr->ranks;
    struct moves m = {.n = 0};
    uint64_t bytes;
    if (!fits(dev, c, g)) return PL_ERR_PLAN_BROKEN;
    const uint32_t rank = dev->comm->world.rank;
    const struct pl_shard mine = piece_of(c, g, rank);
    if ((parts->p ? parts->rows : 0) != mine.rows * (ranks - 1)) return PL_ERR_PLAN_BROKEN;
    for (uint32_t r = 0; r < ranks; r++) {
        const struct pl_shard theirs = piece_of(c, g, r);
        if (r == rank) continue;
        char *from = row_of(g, theirs.row0, &bytes);
        char *to = mine.rows ? row_of(parts, (r - (r > rank)) * mine.rows, &bytes) : NULL;
        add(&m, r, false, from, theirs.rows * bytes);
        add(&m, r, true, to, mine.rows * bytes);
    }
    return run(dev, &m, stream);
}

static struct pl_shard own_rows(const struct pl_device *dev, const struct pl_call *c,
                                const struct pl_view *x) {
    return pl_shard_of(x->rows, c->attr->block_rows, c->attr->ranks, dev->comm->world.rank);
}

/* Every rank's rows of x, but this one's, come from it; `mine` goes to all of them. */
static pl_err gather(struct pl_device *dev, const struct pl_call *c, const struct pl_view *x,
                     void *mine, void *stream) {
    const struct pl_attr *a = c->attr;
    const uint64_t rows = own_rows(dev, c, x).rows;
    struct moves m = {.n = 0};
    uint64_t bytes;
    for (uint32_t r = 0; r < a->ranks; r++) {
        const struct pl_shard theirs = pl_shard_of(x->rows, a->block_rows, a->ranks, r);
        char *to = row_of(x, theirs.row0, &bytes);
        if (r == dev->comm->world.rank) continue;
        add(&m, r, false, mine, rows * bytes);
        add(&m, r, true, to, theirs.rows * bytes);
    }
    return run(dev, &m, stream);
}

pl_err pl_ranks_share(struct pl_device *dev, const struct pl_call *c, void *stream) {
    const struct pl_view *x = &c->out[PL_SHARE_OUT_X];
    uint64_t bytes;
    if (!fits(dev, c, x)) return PL_ERR_PLAN_BROKEN;
    return gather(dev, c, x, row_of(x, own_rows(dev, c, x).row0, &bytes), stream);
}

pl_err pl_ranks_fetch(struct pl_device *dev, const struct pl_call *c, void *stream,
                      struct pl_own_copy *own) {
    const struct pl_view *part = &c->in[PL_FETCH_PART], *x = &c->out[PL_FETCH_OUT_X];
    uint64_t bytes;
    *own = (struct pl_own_copy){0};
    if (!fits(dev, c, x)) return PL_ERR_PLAN_BROKEN;
    const struct pl_shard mine = own_rows(dev, c, x);
    if ((part->p ? part->rows : 0) != mine.rows) return PL_ERR_PLAN_BROKEN;
    char *to = row_of(x, mine.row0, &bytes);
    *own = (struct pl_own_copy){to, part->p, mine.rows * bytes};
    return gather(dev, c, x, part->p, stream);
}
