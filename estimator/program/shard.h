/* shard.h - which rows of the tensors of a program are whose, where ranks hold parts of them.
 *
 * In: a program, a tensor, ranks.  Out: the ranges of its parts (shard_rows.h). */
#ifndef PL_ESTIMATOR_PROGRAM_SHARD_H
#define PL_ESTIMATOR_PROGRAM_SHARD_H

#include "estimator/ops/shard_rows.h"
#include "estimator/program/program.h"

/* The rows of a part of a tensor that are a rank's. */
struct pl_owned {
    struct pl_part part;
    uint64_t block;      /* rows */
    struct pl_shard own; /* counted from the part's first row */
    uint64_t at;         /* where they begin in a tensor that holds only what is the rank's */
};
/* Of a weight, an adapter, or codes and their scales, whole in this program: its parts. */
uint32_t pl_tensor_shards(const struct pl_program *p, uint32_t id, uint32_t ranks, uint32_t rank,
                          struct pl_owned out[PL_MAX_PARTS]);
/* Under `sharding: weights`, of tensors of the job: matrices and codes. The others are small. */
bool pl_tensor_is_cut(const struct pl_job_shape *s, const struct pl_tensor *t);

#endif
