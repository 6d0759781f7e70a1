/* fields.h - the columns of a Parquet file as a tree, and how each node is written as JSON.
 *
 * In: the schema of an open file.  Out: its nodes in the order of the file, each before its
 * children.  Needs: carquet.
 *   T1  nodes[0] is the row; the children of node i begin at i + 1, and nodes[c].end is the next
 *       one's place
 *   T2  an entry of a leaf is present at a node if its definition level is at least the node's
 *   T3  the shapes of lists are those of the format's rules for older writers, too
 * Use: pl_parquet_tree_make(&t, &c, schema, path, &d); ... pl_parquet_tree_finish(&t); */
#ifndef PL_RUNTIME_DATA_PARQUET_FIELDS_H
#define PL_RUNTIME_DATA_PARQUET_FIELDS_H

#include "runtime/data/parquet/carquet.h"

/* The values that a row of JSON can hold. */
enum pl_parquet_value {
    PL_PARQUET_OTHER, /* there is no one way to write it: binary, times, decimals */
    PL_PARQUET_BOOLEAN,
    PL_PARQUET_INT32,
    PL_PARQUET_UINT32,
    PL_PARQUET_INT64,
    PL_PARQUET_UINT64,
    PL_PARQUET_FLOAT,
    PL_PARQUET_DOUBLE,
    PL_PARQUET_TEXT,
};

enum pl_parquet_shape {
    PL_PARQUET_LEAF,
    PL_PARQUET_STRUCT,
    PL_PARQUET_LIST,   /* its one child is repeated, and its elements are the list's */
    PL_PARQUET_PAIRS,  /* the same for a map, whose elements are [key, value] */
    PL_PARQUET_HOLDER, /* a repeated group around the one element of a list */
};

struct pl_parquet_node {
    const char *name; /* borrowed from the reader */
    enum pl_parquet_shape shape;
    enum pl_parquet_value value; /* of a leaf */
    const char *type;            /* the name of a leaf's type */
    uint32_t bytes;              /* bytes of a leaf's value in memory */
    bool apart;                  /* the value is a struct pl_carquet_bytes */
    uint32_t end;                /* T1 */
    uint32_t leaf, leaves;       /* its leaves are [leaf, leaf + leaves) */
    int16_t definition, repetition;
    bool repeated;
    int32_t children;
};

struct pl_parquet_tree {
    struct pl_parquet_node *nodes; /* owned */
    uint32_t n, leaves;
};

/* PL_ERR_DATA_SYNTAX: the schema is none. On failure nothing is held. */
pl_err pl_parquet_tree_make(struct pl_parquet_tree *t, const struct pl_carquet *c,
                            const struct pl_carquet_schema *schema, const char *path,
                            struct pl_diag *d);
void pl_parquet_tree_finish(struct pl_parquet_tree *t); /* leaves {0} */

#endif
