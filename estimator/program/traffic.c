#include "estimator/program/traffic.h"

#include "estimator/program/cost.h"
#include "estimator/program/shard.h"

/* The matrix whose rows are divided: what is spread, and what comes of the other ops. */
static const struct pl_operand *whole_of(const struct pl_op *op) {
    switch (op->kind) {
    case PL_OP_SPREAD:
        return &op->in[PL_SPREAD_G];
    case PL_OP_SHARE:
        return &op->out[PL_SHARE_OUT_X];
    case PL_OP_FETCH:
        return &op->out[PL_FETCH_OUT_X];
    default:
        return NULL;
    }
}

static uint64_t rows_of_rank(const struct pl_op *op, uint64_t rows, uint32_t rank) {
    const struct pl_attr *a = &op->attr;
    const struct pl_shard all = pl_shard_of(rows, a->block_rows, a->ranks, rank);
    return a->piece_rows ? pl_shard_piece(all, a->piece_row0, a->piece_rows).rows : all.rows;
}

/* Counts in rows. A rank's own rows go to, or come from, each of the others; rows of the others
 * pass once. */
struct pl_op_traffic pl_op_traffic(const struct pl_program *p, const struct pl_op *op) {
    const struct pl_operand *whole = whole_of(op);
    const uint32_t ranks = op->attr.ranks;
    uint64_t all = 0, most = 0, least = UINT64_MAX;
    if (!whole || ranks < 2) return (struct pl_op_traffic){0};
    const struct pl_tensor *t = &p->tensors[whole->id];
    const uint64_t rows = whole->nrows ? whole->nrows : t->dims[0];
    for (uint32_t r = 0; r < ranks; r++) {
        const uint64_t own = rows_of_rank(op, rows, r);
        all += own;
        most = pl_u64_max(most, own);
        least = pl_u64_min(least, own);
    }
    const uint64_t mine = rows_of_rank(op, rows, p->shape.rank);
    const uint64_t row_bytes = t->dims[1] * pl_dtype_bytes(t->dtype);
    const uint64_t sent = op->kind == PL_OP_SPREAD ? all - mine : mine * (ranks - 1);
    return (struct pl_op_traffic){.sent_bytes = sent * row_bytes,
                                  .busiest_bytes =
                                      pl_u64_max(most * (ranks - 1), all - least) * row_bytes};
}

double pl_program_sent_bytes(const struct pl_program *p, double micro_batches) {
    double bytes = 0;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct pl_op *op = &p->ops[i];
        if (pl_op_cost(op) != PL_COST_RANKS) continue;
        bytes += (double)pl_op_traffic(p, op).sent_bytes * pl_op_runs(p, op, micro_batches) *
                 pl_op_copies(p, op);
    }
    return bytes;
}
