/* tokenizer_document.h - a tokenizer.json as its two long lists, unread, and a tree of the
 * rest.
 *
 * In: the bytes of the file.  Out: struct pl_tokenizer_document.  Needs: json_scan.h, jansson.
 *   D1  memory is in proportion to the bytes: a vocabulary and merges have hundreds of thousands of
 *       values, which are never nodes; the rest is bounded in bytes and in nodes before it is read
 *   D2  every byte was checked (RFC 8259) before any of it is used
 * Use: pl_tokenizer_document_read(&doc, path, &d); pl_tokenizer_parse(t, &doc, &d);
 *      pl_tokenizer_document_finish(&doc); */
#ifndef PL_RUNTIME_DATA_TOKENIZER_TOKENIZER_DOCUMENT_H
#define PL_RUNTIME_DATA_TOKENIZER_TOKENIZER_DOCUMENT_H

#include "estimator/base/json_scan.h"

#include <jansson.h>

struct pl_tokenizer_list {
    size_t at, n;      /* bytes of the text, brackets included; n 0: it is no list, or not there */
    uint64_t elements; /* of an array */
};

struct pl_tokenizer_document {
    struct pl_text text;
    json_t *root; /* `vocab` and `merges` of `model` are empty in it */
    struct pl_tokenizer_list vocab, merges;
};

/* Splits doc->text, which the caller filled. TOKENIZER_SYNTAX, TOKENIZER_FILE: too large. */
pl_err pl_tokenizer_document_read(struct pl_tokenizer_document *doc, const char *path,
                                  struct pl_diag *d);
void pl_tokenizer_document_finish(struct pl_tokenizer_document *doc);
/* A scanner at the first byte of a list, whose text is sound. */
struct pl_scan pl_tokenizer_list_scan(const struct pl_tokenizer_document *doc,
                                      const struct pl_tokenizer_list *list);

/* A whole text as a tree, under the same limits as the rest of a document. */
pl_err pl_tokenizer_tree_read(const char *path, const struct pl_text *text, json_t **out,
                              struct pl_diag *d);

#endif
