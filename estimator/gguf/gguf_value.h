/* gguf_value.h - one value of a GGUF file's metadata.
 *
 * In: a value that gguf_parse.h has checked.  Out: numbers and strings.  Needs: libc.
 * The bytes are the file's, little-endian and without alignment; they were all in the header when
 * the file was opened.
 * Use: uint64_t n; if (pl_gguf_uint(pl_gguf_find(g, "llama.block_count"), &n)) ... */
#ifndef PL_ESTIMATOR_GGUF_GGUF_VALUE_H
#define PL_ESTIMATOR_GGUF_GGUF_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The numbers are those of the format (ggml, docs/gguf.md, enum gguf_metadata_value_type). */
enum pl_gguf_kind {
    PL_GGUF_UINT8,
    PL_GGUF_INT8,
    PL_GGUF_UINT16,
    PL_GGUF_INT16,
    PL_GGUF_UINT32,
    PL_GGUF_INT32,
    PL_GGUF_FLOAT32,
    PL_GGUF_BOOL,
    PL_GGUF_STRING,
    PL_GGUF_ARRAY,
    PL_GGUF_UINT64,
    PL_GGUF_INT64,
    PL_GGUF_FLOAT64,
    PL_GGUF_KINDS
};

struct pl_gguf_value {
    enum pl_gguf_kind kind; /* of the items of a list; never PL_GGUF_ARRAY */
    bool list;
    uint64_t n;              /* items; 1 unless it is a list */
    const unsigned char *at; /* the first item */
    size_t bytes;            /* of all items */
};

/* Bytes of an item of this kind; 0: a string, or no kind. */
size_t pl_gguf_kind_bytes(uint32_t kind);
uint64_t pl_gguf_load(const unsigned char *at, size_t bytes); /* little-endian */

/* Each returns false, and leaves *out alone, for NULL, for another kind and for a number that does
 * not fit. `i` is the index of an item of a list, or 0. */
bool pl_gguf_uint_at(const struct pl_gguf_value *v, uint64_t i, uint64_t *out);
bool pl_gguf_real_at(const struct pl_gguf_value *v, uint64_t i, double *out);
bool pl_gguf_uint(const struct pl_gguf_value *v, uint64_t *out);
bool pl_gguf_real(const struct pl_gguf_value *v, double *out);
bool pl_gguf_bool(const struct pl_gguf_value *v, bool *out);

struct pl_gguf_string {
    const char *s; /* n bytes, any of them; no zero after them */
    size_t n;
};
bool pl_gguf_string(const struct pl_gguf_value *v, struct pl_gguf_string *out);
bool pl_gguf_string_is(const struct pl_gguf_value *v, const char *text);
/* The strings of a list, one after the other. */
struct pl_gguf_strings {
    const unsigned char *at;
    uint64_t left;
};
struct pl_gguf_strings pl_gguf_strings(const struct pl_gguf_value *v); /* none of another kind */
bool pl_gguf_next_string(struct pl_gguf_strings *list, struct pl_gguf_string *out);

#endif
