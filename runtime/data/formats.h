/* formats.h - the formats a data row can have, and the one parser that reads a row by them.
 *
 * In: the bytes of one row.  Out: its tokens and labels, or the problem and its byte.
 *   F1  a row is one JSON object; a key that its format does not read is inert, refused by name or
 *       told (row_keys.h)
 *   F2  keys of the format stand at most once; the required ones stand exactly once
 *   F3  every id is in the vocabulary; labels are ids or PL_LABEL_MASKED, one per id
 * A new format is a row in formats.c: its keys, the kinds of their values, and the function that
 * completes a row, in one of the files rows_*.c. */
#ifndef PL_RUNTIME_DATA_FORMATS_H
#define PL_RUNTIME_DATA_FORMATS_H

#include "runtime/data/prompt_form.h"
#include "runtime/data/row_parser.h"

struct pl_format;

/* Returns the format of a job's `format:` under a stage; NULL for auto. */
const struct pl_format *pl_format_find(uint32_t id, uint32_t stage);
const char *pl_format_name(const struct pl_format *f);
uint32_t pl_format_id(const struct pl_format *f); /* PL_FORMAT_* as in a job */
/* True if its rows cannot be read without a tokenizer. */
bool pl_format_needs_tokenizer(const struct pl_format *f);
/* True if its rows are conversations. */
bool pl_format_needs_chat(const struct pl_format *f);
/* Returns the format whose required keys the row has; NULL after recording a problem in p->scan. */
const struct pl_format *pl_format_detect(struct pl_row_parser *p, const char *text, size_t n,
                                         bool ends_file);

/* Returns the format that reads `prompt_format` or `question_format`; NULL: there is neither. */
const struct pl_format *pl_format_written(const struct pl_columns *columns);
/* Checks that rows of this format (NULL: of some format) have the columns that the entry names.
 * PL_ERR_CONFIG_CONFLICT at its line: they do not. */
pl_err pl_format_check_columns(const struct pl_format *f, const struct pl_job *job,
                               const struct pl_dataset *entry, struct pl_diag *d);

/* True if rows of this format (NULL: of some format) make tokens of the column, by the names that
 * p->shape gives. */
bool pl_format_takes(struct pl_row_parser *p, const struct pl_format *f, const char *column);
/* The same, or its values decide if a row is refused. */
bool pl_format_reads(struct pl_row_parser *p, const struct pl_format *f, const char *column);

/* Prepares for rows of this format: opens the tokenizer, chooses the chat template. Called before
 * the first row of a file. Errors are those of encode.h. */
pl_err pl_row_parser_prepare(struct pl_row_parser *p, const struct pl_format *f,
                             const struct pl_job *job, const struct pl_model *m,
                             struct pl_text *notes, struct pl_diag *d);
/* Returns the form that prompts have in rows of this format (NULL: there is no row), once prepared:
 * in rows of preferences that of a conversation where there is a chat template. */
enum pl_prompt_form pl_row_parser_form(const struct pl_row_parser *p, const struct pl_format *f);
/* Appends everything that the tokens of a row depend on besides the row, once prepared: two parsers
 * with equal facts make the same samples. */
void pl_row_parser_add_facts(const struct pl_row_parser *p, const struct pl_format *f,
                             struct pl_text *out);
/* True if rows are encoded by a tokenizer that is slow. */
bool pl_row_parser_is_costly(const struct pl_row_parser *p, const struct pl_format *f);
/* Parses one row into *out (grown as needed). False: p->scan holds the reason. */
bool pl_row_parse(struct pl_row_parser *p, const struct pl_format *f, const char *text, size_t n,
                  bool ends_file, struct pl_sample *out);
void pl_row_parser_finish(struct pl_row_parser *p);

#endif
