/* shard.h - the rows of a program's tensors that each rank holds.
 *
 * In: a program, a tensor, ranks.  Out: the ranges of its parts (shard_rows.h). */
#ifndef PL_ESTIMATOR_PROGRAM_SHARD_H
#define PL_ESTIMATOR_PROGRAM_SHARD_H

#include "estimator/ops/shard_rows.h"
#include "estimator/program/program.h"

/* The rows of a part of a tensor that belong to a rank. */
struct pl_owned {
    struct pl_part part;
    uint64_t block;      /* rows of a block */
    struct pl_shard own; /* counted from the part's first row */
    uint64_t at;         /* first row in a tensor that holds only the rank's rows */
};
/* Lists the parts of a weight, an adapter, or codes and their scales, which is whole in this
 * program; returns their number. */
uint32_t pl_tensor_shards(const struct pl_program *p, uint32_t id, uint32_t ranks, uint32_t rank,
                          struct pl_owned out[PL_MAX_PARTS]);
/* True if ranks hold only their rows of a job tensor under `sharding: weights`: matrices and codes.
 * The other tensors are small. */
bool pl_tensor_is_cut(const struct pl_job_shape *s, const struct pl_tensor *t);

#endif
