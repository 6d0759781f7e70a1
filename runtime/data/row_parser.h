/* row_parser.h - the state of reading a row; shared by formats. */
#ifndef PL_RUNTIME_DATA_ROW_PARSER_H
#define PL_RUNTIME_DATA_ROW_PARSER_H

#include "estimator/base/json_scan.h"
#include "runtime/data/encode.h"
#include "runtime/data/row_shape.h"

#define PL_FORMAT_MAX_KEYS 9
#define PL_ROW_MAX_KEYS    (PL_FORMAT_MAX_KEYS + PL_SHAPE_NAMES)

/* The rules of a job for rows of preferences. */
struct pl_preference_rule {
    uint32_t stage, truncation; /* PL_STAGE_*, PL_TRUNCATION_* */
    uint64_t max_tokens;        /* of a sample */
};

struct pl_row_parser {
    struct pl_scan scan;
    struct pl_encoder encoder;
    uint64_t vocab;
    const struct pl_row_shape *shape; /* borrowed, nullable; shape of the rows' file */
    bool detected;                    /* the format was detected from the first row */
    bool ignores_weights;             /* `row_weights: false` */
    struct pl_text key, text;         /* scratch */
    struct pl_conversation conversation;
    struct pl_preference_rule rule;
    struct pl_sample part[3]; /* scratch of rows of preferences: prompt and answers */
    struct pl_text texts[3];
    struct pl_sample *out;
    bool seen[PL_ROW_MAX_KEYS];
    size_t at[PL_ROW_MAX_KEYS]; /* begin of the value of each key */
    uint64_t n_labels;          /* labels may come before ids, and be more or fewer */
    struct pl_told_keys *told;  /* borrowed, nullable; receives the keys that nothing reads */
    uint64_t line;              /* line of the row, for `told` */
    bool strange;               /* the row has the shape of another kind of file */
    struct pl_diag no_chat;     /* why there is no template; reported by the row that needs one */
    struct pl_diag problem;     /* problem of the last row: scan.hint may point into it */
};

#endif
