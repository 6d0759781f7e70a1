/* gguf_parse.h - the header of one GGUF file: metadata and the list of tensors, from memory.
 *
 * In: the first bytes of a file.  Out: struct pl_gguf_header, whose strings are those bytes.
 * Needs: base.
 *   P1  every length is checked against the bytes that are there before it is used; a header that
 *       goes on after them is CUT, not an error
 *   P2  no key and no tensor is there twice; tensors lie inside the file and do not overlap
 * Format: github.com/ggml-org/ggml, docs/gguf.md, versions 2 and 3, little-endian. */
#ifndef PL_ESTIMATOR_GGUF_GGUF_PARSE_H
#define PL_ESTIMATOR_GGUF_GGUF_PARSE_H

#include "estimator/base/diag.h"
#include "estimator/gguf/gguf_types.h"
#include "estimator/gguf/gguf_value.h"

#define PL_GGUF_DIMS 4

struct pl_gguf_key {
    struct pl_gguf_string name;
    struct pl_gguf_value value;
};

struct pl_gguf_entry {
    struct pl_gguf_string name;
    uint32_t type_id;
    const struct pl_gguf_type *type; /* NULL: none of gguf_types.h, and then bytes is 0 */
    uint32_t rank;
    uint64_t ne[PL_GGUF_DIMS]; /* elements, fastest first; 1 from `rank` on */
    uint64_t offset, bytes;    /* in its file */
    uint32_t part;             /* index of its file */
};

struct pl_gguf_header {
    struct pl_gguf_key *keys; /* owned, sorted by name */
    uint64_t n_keys;
    struct pl_gguf_entry *entries; /* owned, sorted by name */
    uint64_t n_entries;
};

/* Parses bytes[0, n) of a file of file_bytes. *cut: the header is longer than n bytes, and *out is
 * {0}. MODEL_SYNTAX, MODEL_UNSUPPORTED (version, byte order). */
pl_err pl_gguf_parse(const char *path, const unsigned char *bytes, uint64_t n, uint64_t file_bytes,
                     uint32_t part, struct pl_gguf_header *out, bool *cut, struct pl_diag *d);
void pl_gguf_header_finish(struct pl_gguf_header *h); /* safe on {0} */
/* Orders strings by their bytes, a beginning before what it begins. */
int pl_gguf_compare(const struct pl_gguf_string *a, const struct pl_gguf_string *b);
/* Is pl_gguf_compare for qsort() and bsearch() of names, or of rows that begin with one. */
int pl_gguf_by_name(const void *a, const void *b);

#endif
