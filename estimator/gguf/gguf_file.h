/* gguf_file.h - an open GGUF file, or the parts of a split one, as one list of tensors.
 *
 * In: the path of a file, the first one where llama.cpp has split it (NAME-00001-of-00003.gguf).
 * Out: metadata, tensors, and their bytes on request.  Needs: gguf_parse.h.
 * Only headers are read on opening; bytes of tensors only through pl_gguf_read.
 *   G2  all parts are there, and their tensors have names of their own
 * Use: pl_gguf_open(&g, path, &d); v = pl_gguf_find(&g, "general.architecture");
 *      e = pl_gguf_entry(&g, "token_embd.weight"); ... pl_gguf_close(&g); */
#ifndef PL_ESTIMATOR_GGUF_GGUF_FILE_H
#define PL_ESTIMATOR_GGUF_GGUF_FILE_H

#include "estimator/gguf/gguf_parse.h"

struct pl_gguf_part {
    char *path; /* owned */
    int fd;
    unsigned char *bytes; /* owned: the header, which keys and names point into */
};

struct pl_gguf {
    struct pl_gguf_part *parts; /* owned */
    uint32_t n_parts;
    struct pl_gguf_header header; /* keys of the first part, tensors of all */
};

/* True if the file of this name begins as GGUF does; false for what cannot be read as well, which
 * opening it explains. */
bool pl_gguf_is(const char *path);
/* MODEL_FILE: it cannot be read, or a part is missing; else as pl_gguf_parse. *g is then closed. */
pl_err pl_gguf_open(struct pl_gguf *g, const char *path, struct pl_diag *d);
void pl_gguf_close(struct pl_gguf *g); /* safe on {0} and twice */
const struct pl_gguf_value *pl_gguf_find(const struct pl_gguf *g, const char *key); /* or NULL */
/* The key `key` of the file's architecture: "llama.block_count" of `block_count`. */
const struct pl_gguf_value *pl_gguf_find_own(const struct pl_gguf *g, const char *key);
const struct pl_gguf_entry *pl_gguf_entry(const struct pl_gguf *g, const char *name); /* or NULL */
/* Reads bytes [offset, offset + bytes) of a tensor, which lie inside it. */
pl_err pl_gguf_read(const struct pl_gguf *g, const struct pl_gguf_entry *e, uint64_t offset,
                    void *dst, uint64_t bytes, struct pl_diag *d);

#endif
