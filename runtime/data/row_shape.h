/* row_shape.h - the shape of the rows of one data file: the names of its columns, and the prompt
 * that is made of them.
 *
 * In: an entry of `datasets`.  Out: names by column, names in braces.  Needs: job.
 *   P1  the formats of a prompt were checked: every brace is closed, {{ and }} are braces of the
 *       text, and the text between two is the name of a column
 *   P2  a column may be empty if `no_input_format` is given and does not name it
 * Use: struct pl_row_shape s; pl_row_shape_init(&s, job, entry, &d); ... pl_row_shape_finish(&s);
 */
#ifndef PL_RUNTIME_DATA_ROW_SHAPE_H
#define PL_RUNTIME_DATA_ROW_SHAPE_H

#include "estimator/base/diag.h"
#include "estimator/config/job.h"

#include <stdbool.h>
#include <stddef.h>

#define PL_SHAPE_NAMES 8

struct pl_span {
    const char *at; /* borrowed */
    size_t n;
};

struct pl_row_shape {
    struct pl_columns columns;            /* owned */
    struct pl_span names[PL_SHAPE_NAMES]; /* names in braces, each once */
    bool may_be_empty[PL_SHAPE_NAMES];    /* of each name (P2) */
    uint32_t n_names;
};

/* PL_ERR_CONFIG_RANGE, at the line of the entry: P1 does not hold. On failure *s is empty. */
pl_err pl_row_shape_init(struct pl_row_shape *s, const struct pl_job *job,
                         const struct pl_dataset *entry, struct pl_diag *d);
void pl_row_shape_finish(struct pl_row_shape *s); /* leaves {0} */
/* True if the entry names a column. */
bool pl_row_shape_is_named(const struct pl_row_shape *s);
/* The format that makes the prompt of rows, of the two that there are; PL_COLUMN_COUNT: none. */
enum pl_column pl_columns_prompt(const struct pl_columns *columns);

/* A piece of a prompt format: text, or the name of a column. pl_prompt_next reads the piece at *at;
 * false at the end, and if *problem (NULL otherwise) holds an error. */
struct pl_prompt_piece {
    struct pl_span span;
    bool name;
};
bool pl_prompt_next(const char **at, struct pl_prompt_piece *piece, const char **problem);

#endif
