/* lex.h - the text of a Jinja program as tokens.
 *
 * In: UTF-8.  Out: text, tags and what stands in them.  Needs: value.
 *   L1  white space is controlled as Hugging Face's environment does: trim_blocks, lstrip_blocks,
 *       the marks - and +, and no last line feed
 *   L2  the last token is END, whatever stands before
 * Use: struct pl_jinja_tokens t;
 *      pl_jinja_lex(&arena, text, n, name, &t, &d); */
#ifndef PL_RUNTIME_DATA_JINJA_LEX_H
#define PL_RUNTIME_DATA_JINJA_LEX_H

#include "estimator/base/diag.h"
#include "runtime/data/jinja/value.h"

enum pl_jinja_token_kind {
    PL_JINJA_TOKEN_TEXT,
    PL_JINJA_TOKEN_PRINT_BEGIN, /* {{ */
    PL_JINJA_TOKEN_PRINT_END,
    PL_JINJA_TOKEN_BLOCK_BEGIN, /* {% */
    PL_JINJA_TOKEN_BLOCK_END,
    PL_JINJA_TOKEN_NAME,
    PL_JINJA_TOKEN_STRING, /* still with its escapes, without quotes */
    PL_JINJA_TOKEN_INTEGER,
    PL_JINJA_TOKEN_FLOAT,
    PL_JINJA_TOKEN_OPERATOR,
    PL_JINJA_TOKEN_END,
};

struct pl_jinja_token {
    enum pl_jinja_token_kind kind;
    const char *s; /* [n] */
    size_t n;
    uint32_t line, column;
};

struct pl_jinja_tokens {
    struct pl_jinja_token *items; /* [n], in the arena */
    size_t n, cap;
};

pl_err pl_jinja_lex(struct pl_jinja_arena *a, const char *text, size_t n, const char *name,
                    struct pl_jinja_tokens *out, struct pl_diag *d);

#endif
