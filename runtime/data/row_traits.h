/* row_traits.h - unusual traits of rows that are trained on nevertheless: counted by file, and
 * reported before the first step.
 *
 * In: how often a row has each trait.  Out: counts, notes.  Needs: text.
 *   T1  rows are counted once, however often they have a trait
 * A trait changes nothing: rows are encoded as transformers and TRL encode them.
 * A new trait is a row of the table, and a call that counts it.
 * Use: pl_row_traits_add(&r, PL_TRAIT_CUT_TEXT, 1); pl_file_traits_count(&t, &r, line);
 *      pl_file_traits_note(&t, path, &notes); */
#ifndef PL_RUNTIME_DATA_ROW_TRAITS_H
#define PL_RUNTIME_DATA_ROW_TRAITS_H

#include "estimator/base/json_scan.h"
#include "estimator/base/text.h"

#include <stdint.h>

/* X(name, its key in JSON, its text in the line of the file ("" = none), "warning: " or "", the
 * text after "7 rows " ("" = reported elsewhere), a hint) */
#define PL_TRAITS_TABLE(X)                                                                         \
    X(OPEN_ANSWER, "open_answer_rows", "ending without an end of turn",                            \
      "warning: ", "with an answer that does not end with a token that ends the turn",             \
      "a model that is trained on them does not learn to stop")                                    \
    X(CUT_TEXT, "cut_text_rows", "with dropped text", "",                                          \
      "with messages of which the template leaves out a part", "")                                 \
    X(INSIDE_TOKEN, "inside_token_rows", "", "",                                                   \
      "whose answer begins inside a token of the prompt, which is not trained on",                 \
      "write the white space between the two into the answer")                                     \
    X(SPECIAL_TEXT, "special_text_rows", "", "",                                                   \
      "whose messages have special tokens of the tokenizer in their text, and are read so", "")    \
    X(TWO_BOS, "two_bos_rows", "", "",                                                             \
      "that begin with the token that the tokenizer puts before a text, and have it twice",        \
      "remove it from the text")                                                                   \
    X(QUOTED_ARGUMENTS, "quoted_argument_rows", "", "",                                            \
      "with `arguments` of a tool call as JSON in a string, which the template writes in quotes",  \
      "write them as an object")                                                                   \
    X(UNKNOWN_ROLE, "unknown_role_rows", "", "", "with an unknown role",                           \
      "it is written as it stands and not trained on; `role_assistant: WORD` in the file's "       \
      "entry adds a word")                                                                         \
    X(BEYOND_POSITIONS, "beyond_positions_rows", "", "", "", "")

enum pl_trait {
#define X(name, key, brief, kind, says, advice) PL_TRAIT_##name,
    PL_TRAITS_TABLE(X)
#undef X
        PL_TRAITS
};

/* How often one row has each trait. */
struct pl_row_traits {
    uint64_t n[PL_TRAITS];
    char role[PL_SHOWN]; /* the first unknown role, as it is shown */
};
static inline void pl_row_traits_add(struct pl_row_traits *r, enum pl_trait trait, uint64_t n) {
    r->n[trait] += n;
}

/* The traits of the rows of one file. */
struct pl_file_traits {
    struct {
        uint64_t rows, line, all; /* line: of the first row; all: sum over the rows */
    } of[PL_TRAITS];
    char role[PL_SHOWN]; /* the first unknown role */
};
void pl_file_traits_count(struct pl_file_traits *t, const struct pl_row_traits *r, uint64_t line);
/* Writes a line for each trait that some row has. */
void pl_file_traits_note(const struct pl_file_traits *t, const char *path, struct pl_text *notes);
const char *pl_trait_key(enum pl_trait trait);   /* e.g. "open_answer_rows" */
const char *pl_trait_brief(enum pl_trait trait); /* "" = not in the line of a file */

#endif
