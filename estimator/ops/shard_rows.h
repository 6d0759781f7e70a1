/* shard_rows.h - the rows of a matrix that each rank holds.
 *
 * A matrix is cut into at most PL_SHARD_BLOCKS blocks of whole rows, which do not depend on how
 * many ranks there are, and each rank has a run of blocks. Sums over a matrix are made block by
 * block and added in their order, so any number of ranks gives the same bits.
 *   H1  the ranges of ranks 0, 1, ... follow each other and cover all rows; one may be empty
 *   H2  every range begins at a multiple of PL_SHARD_ALIGN elements: whole blocks of 8-bit moments
 *       and of random numbers (optimizers.h), and aligned for vector loads */
#ifndef PL_ESTIMATOR_OPS_SHARD_ROWS_H
#define PL_ESTIMATOR_OPS_SHARD_ROWS_H

#include "estimator/base/checked.h"

#define PL_SHARD_BLOCKS 64
#define PL_SHARD_ALIGN  256

struct pl_shard {
    uint64_t row0, rows;
};

/* Returns the rows of a block of a matrix. */
static inline uint64_t pl_shard_block(uint64_t rows, uint64_t cols) {
    uint64_t least = PL_SHARD_ALIGN;
    while (least > 1 && cols % 2 == 0) { /* PL_SHARD_ALIGN is a power of two */
        least /= 2;
        cols /= 2;
    }
    return pl_u64_div_up(pl_u64_max(pl_u64_div_up(rows, PL_SHARD_BLOCKS), 1), least) * least;
}

/* Returns the number of blocks before those of `rank`. */
static inline uint64_t pl_shard_first_block(uint64_t rows, uint64_t block, uint32_t ranks,
                                            uint32_t rank) {
    return pl_u64_div_up(rows, block) * rank / ranks;
}

/* Returns rows [row0, row0+rows) of a range, limited to its end. */
static inline struct pl_shard pl_shard_piece(struct pl_shard s, uint64_t row0, uint64_t rows) {
    const uint64_t skipped = pl_u64_min(row0, s.rows);
    return (struct pl_shard){s.row0 + skipped, pl_u64_min(rows, s.rows - skipped)};
}

static inline struct pl_shard pl_shard_of(uint64_t rows, uint64_t block, uint32_t ranks,
                                          uint32_t rank) {
    const uint64_t from = pl_shard_first_block(rows, block, ranks, rank) * block;
    const uint64_t to = pl_shard_first_block(rows, block, ranks, rank + 1) * block;
    const uint64_t row0 = pl_u64_min(from, rows);
    return (struct pl_shard){row0, pl_u64_min(to, rows) - row0};
}

#endif
