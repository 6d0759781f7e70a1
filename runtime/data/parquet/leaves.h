/* leaves.h - the leaves of a row group as streams of entries: levels, and a value if it is present.
 *
 * In: an open file, its tree.  Out: the entry at the front of each leaf.  Needs: fields.
 * Memory holds a batch of each open leaf, and what the library keeps for it: pages of a row group
 * until PL_PARQUET_HELD_BYTES of them were read, however large the group is.
 *   E1  the end of a leaf is an entry of definition level -1 and repetition level 0
 *   E2  a level is never above that of its leaf's node
 * Use: pl_parquet_leaves_create(&l, &c, reader, &tree, &d); pl_parquet_leaf_open(&l, i, group, &d);
 *      PL_TRY(pl_parquet_leaf_next(&l, i, &d)); ... pl_parquet_leaves_destroy(&l); */
#ifndef PL_RUNTIME_DATA_PARQUET_LEAVES_H
#define PL_RUNTIME_DATA_PARQUET_LEAVES_H

#include "runtime/data/parquet/fields.h"

#define PL_PARQUET_BATCH      1024
#define PL_PARQUET_HELD_BYTES (UINT64_C(32) << 20)

struct pl_parquet_leaf {
    const struct pl_parquet_node *node;
    const char *name;                 /* of the column of the row that it belongs to */
    struct pl_carquet_column *column; /* NULL: closed */
    char *values;                     /* owned: the values that are present, one after the other */
    int16_t definitions[PL_PARQUET_BATCH], repetitions[PL_PARQUET_BATCH];
    int64_t n, at; /* entries of the batch, and the front one */
    int32_t group; /* the row group, of which `read` entries were in batches */
    int64_t read;
    uint64_t held_bytes; /* bytes of values since the column was opened */
    const char *value;   /* the value of the front entry if it is present, else of the next one */
    int16_t definition, repetition; /* of the front entry */
};

struct pl_parquet_leaves {
    const struct pl_carquet *c; /* borrowed, as the next one */
    struct pl_carquet_reader *reader;
    struct pl_parquet_leaf *leaf; /* owned */
    uint32_t n;
    const char *path; /* borrowed: of the file, for messages */
    uint64_t row;     /* that is being read, from 1 on */
};

pl_err pl_parquet_leaves_create(struct pl_parquet_leaves *l, const struct pl_carquet *c,
                                struct pl_carquet_reader *reader, const struct pl_parquet_tree *t,
                                const char *path, struct pl_diag *d);
/* Opens leaf i at its first entry in a row group. */
pl_err pl_parquet_leaf_open(struct pl_parquet_leaves *l, uint32_t i, int32_t group,
                            struct pl_diag *d);
/* Moves leaf i past its front entry. */
pl_err pl_parquet_leaf_next(struct pl_parquet_leaves *l, uint32_t i, struct pl_diag *d);
void pl_parquet_leaf_close(struct pl_parquet_leaves *l, uint32_t i);
void pl_parquet_leaves_destroy(struct pl_parquet_leaves *l);
/* Records that leaf i, or the file where i is their number, cannot be read at the current row. The
 * library's own words for it are used: a lack of memory may be a damaged length. */
pl_err pl_parquet_damaged(const struct pl_parquet_leaves *l, uint32_t i, const char *what,
                          struct pl_diag *d);

#endif
