/* formats.h - the formats a data row can have, and the one parser that reads a row by them.
 *
 * In: the bytes of one row.  Out: its tokens and labels, or what is wrong at which byte.
 *   F1  a row is one JSON object; a key that its format does not read is inert, refused by name or
 *       told (row_keys.h)
 *   F2  keys of the format stand at most once; the required ones stand exactly once
 *   F3  every id is in the vocabulary; labels are ids or PL_LABEL_MASKED, one per id
 * A new format is a row in formats.c: its keys, the values they take, and what completes a row, in
 * one of the files rows_*.c. */
#ifndef PL_RUNTIME_DATA_FORMATS_H
#define PL_RUNTIME_DATA_FORMATS_H

#include "runtime/data/data.h"
#include "runtime/data/encode.h"
#include "estimator/base/json_scan.h"
#include "runtime/data/row_shape.h"

#define PL_FORMAT_MAX_KEYS 8
#define PL_ROW_MAX_KEYS    (PL_FORMAT_MAX_KEYS + PL_SHAPE_NAMES)

struct pl_row_parser {
    struct pl_scan scan;
    struct pl_encoder encoder;
    uint64_t vocab;
    const struct pl_row_shape *shape; /* borrowed, nullable: of the file the rows are in */
    bool detected;                    /* the format was found by looking at the first row */
    struct pl_text key, text;         /* scratch */
    struct pl_conversation conversation;
    struct pl_sample *out;
    bool seen[PL_ROW_MAX_KEYS];
    size_t at[PL_ROW_MAX_KEYS]; /* where the value of a key begins */
    uint64_t n_labels;          /* labels may stand before ids, and be more or fewer */
    struct pl_told_keys *told;  /* borrowed, nullable: gets the keys that nothing reads */
    uint64_t line;              /* of the row, for `told` */
    struct pl_diag no_chat;     /* why there is no template; reported by the row that needs one */
    struct pl_diag problem;     /* of the last row: scan.hint may point into it */
};

struct pl_format;

/* The format of a job's `format:`; NULL for auto. */
const struct pl_format *pl_format_find(uint32_t id);
const char *pl_format_name(const struct pl_format *f);
/* Whether its rows cannot be read without a tokenizer. */
bool pl_format_needs_tokenizer(const struct pl_format *f);
/* The format whose required keys the row has; NULL after recording a problem in p->scan. */
const struct pl_format *pl_format_detect(struct pl_row_parser *p, const char *text, size_t n,
                                         bool ends_file);

/* The format that reads `prompt_format`. */
const struct pl_format *pl_format_prompted(void);
/* Whether rows of this format (NULL: of some) have the columns that the entry names.
 * PL_ERR_CONFIG_CONFLICT at its line: they do not. */
pl_err pl_format_check_columns(const struct pl_format *f, const struct pl_job *job,
                               const struct pl_dataset *entry, struct pl_diag *d);

/* What rows of this format need besides the row: opens the tokenizer, chooses the chat template.
 * To be called before the first row of a file. Errors are those of encode.h. */
pl_err pl_row_parser_prepare(struct pl_row_parser *p, const struct pl_format *f,
                             const struct pl_job *job, const struct pl_model *m,
                             struct pl_text *notes, struct pl_diag *d);
/* Appends all that the tokens of a row depend on besides the row, once prepared: two parsers with
 * equal facts make the same samples. */
void pl_row_parser_add_facts(const struct pl_row_parser *p, const struct pl_format *f,
                             struct pl_text *out);
/* Rows are encoded by a tokenizer that takes its time. */
bool pl_row_parser_is_costly(const struct pl_row_parser *p, const struct pl_format *f);
/* Parses one row into *out (grown as needed). False: p->scan says why. */
bool pl_row_parse(struct pl_row_parser *p, const struct pl_format *f, const char *text, size_t n,
                  bool ends_file, struct pl_sample *out);
void pl_row_parser_finish(struct pl_row_parser *p);

#endif
