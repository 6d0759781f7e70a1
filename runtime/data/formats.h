/* formats.h - the formats a data row can have, and the one parser that reads a row by them.
 *
 * In: the bytes of one row.  Out: its tokens and labels, or what is wrong at which byte.
 *   F1  a row is one JSON object; keys that its format does not know are checked and ignored
 *   F2  keys of the format stand at most once; the required one stands exactly once
 *   F3  every id is in the vocabulary; labels are ids or PL_LABEL_MASKED, one per id
 * A new format is a row in formats.c: its keys, how a value is read, what completes a row. */
#ifndef PL_RUNTIME_DATA_FORMATS_H
#define PL_RUNTIME_DATA_FORMATS_H

#include "runtime/data/data.h"
#include "runtime/data/json_scan.h"

#define PL_FORMAT_MAX_KEYS 2

struct pl_row_parser {
    struct pl_scan scan;
    uint64_t vocab;
    int64_t eos;              /* appended to text; -1 = none */
    bool detected;            /* the format was found by looking at the first row */
    struct pl_text key, text; /* scratch */
    struct pl_sample *out;
    bool seen[PL_FORMAT_MAX_KEYS];
    size_t at[PL_FORMAT_MAX_KEYS]; /* where the value of a key begins */
    uint64_t n_labels;             /* labels may stand before ids, and be more or fewer */
};

struct pl_format {
    const char *name;
    uint32_t id;                          /* PL_FORMAT_* of a job */
    const char *keys[PL_FORMAT_MAX_KEYS]; /* the first is required */
    bool needs_tokenizer;
    bool (*read[PL_FORMAT_MAX_KEYS])(struct pl_row_parser *p);
    bool (*complete)(struct pl_row_parser *p); /* after the last key */
};

/* The format of a job's `format:`; NULL for auto. */
const struct pl_format *pl_format_find(uint32_t id);
/* The format whose required key the row has; NULL after recording a problem in p->scan. */
const struct pl_format *pl_format_detect(struct pl_row_parser *p, const char *text, size_t n,
                                         bool ends_file);

/* Parses one row into *out (grown as needed). False: p->scan says why. */
bool pl_row_parse(struct pl_row_parser *p, const struct pl_format *f, const char *text, size_t n,
                  bool ends_file, struct pl_sample *out);
void pl_row_parser_finish(struct pl_row_parser *p);

/* Makes room for n ids and labels. */
bool pl_sample_reserve(struct pl_sample *s, uint64_t n);

#endif
