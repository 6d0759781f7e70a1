/* safetensors.h - one safetensors file: its header, checked, and pieces of its bytes.
 *
 * In: a file.  Out: entries sorted by name; bytes on request.  Needs: base, jansson.
 *   S1  only the header is read on open; tensor bytes only through pl_st_read
 *   S2  an open file is well-formed: header of at most 100,000,000 bytes and 4,000,000 values, no
 *       name twice, no hole, no overlap, last tensor ends where the file ends, shape x element size
 *       = extent
 *   S3  an element type that is unknown is an entry like any other: whether it is needed is the
 *       caller's business (its extent cannot be checked against its shape)
 * Format: github.com/huggingface/safetensors, README, "Format".
 * Use: pl_st_open(&f, path, &d); e = pl_st_find(&f, name);
 *      pl_st_read(&f, e, 0, dst, e->end - e->begin, &d); ... pl_st_close(&f); */
#ifndef PL_RUNTIME_CHECKPOINT_SAFETENSORS_H
#define PL_RUNTIME_CHECKPOINT_SAFETENSORS_H

#include "estimator/base/diag.h"
#include "estimator/base/text.h"
#include "estimator/ops/dtype.h"

#include <stdint.h>

#define PL_ST_MAX_HEADER 100000000u
#define PL_ST_DIMS       4 /* dimensions kept; a tensor of higher rank fits no tensor of a model */
#define PL_ST_SHAPE_TEXT 128

struct pl_st_entry {
    char *name; /* owned */
    char dtype_name[16];
    enum pl_dtype dtype; /* PL_DTYPE_COUNT: none of ours */
    uint32_t rank;
    uint64_t dims[PL_ST_DIMS]; /* the first ones */
    uint64_t begin, end;       /* bytes from data_offset */
    uint64_t source;           /* with a format of its own: index of the tensor there */
};

struct pl_st_file;
/* A file of another format, whose tensors look like those of a safetensors file. */
struct pl_st_format {
    /* Reads as pl_st_read does, a whole number of elements. */
    pl_err (*read)(const struct pl_st_file *f, const struct pl_st_entry *e, uint64_t offset,
                   void *dst, uint64_t bytes, struct pl_diag *d);
    void (*close)(void *state); /* takes NULL */
};

struct pl_st_file {
    char *path; /* owned */
    int fd;
    uint64_t data_offset, data_bytes;
    struct pl_st_entry *entries; /* owned, sorted by name */
    uint64_t n;
    const struct pl_st_format *format; /* NULL: safetensors */
    void *state;                       /* of the format, owned */
};

/* PL_ERR_CHECKPOINT_FILE (cannot be read) or PL_ERR_CHECKPOINT_FORMAT, with the file in d->file and
 * the tensor in the message; *f is then closed. */
pl_err pl_st_open(struct pl_st_file *f, const char *path, struct pl_diag *d);
void pl_st_close(struct pl_st_file *f); /* safe on {0} and twice */
const struct pl_st_entry *pl_st_find(const struct pl_st_file *f, const char *name); /* or NULL */
/* Bytes [offset, offset+bytes) of an entry, which must lie inside it. */
pl_err pl_st_read(const struct pl_st_file *f, const struct pl_st_entry *e, uint64_t offset,
                  void *dst, uint64_t bytes, struct pl_diag *d);
/* "[128, 64]" */
char *pl_st_shape_text(uint32_t rank, const uint64_t *dims, char buf[PL_ST_SHAPE_TEXT]);

/* A tensor that a file to be written will hold, in the order its bytes follow. */
struct pl_st_item {
    const char *name; /* borrowed; printable ASCII without quote and backslash */
    enum pl_dtype dtype;
    uint32_t rank;
    const uint64_t *dims; /* borrowed */
};
/* Length word, JSON with metadata {"format":"pt"} and padding, so that tensors start on a multiple
 * of 8. */
pl_err pl_st_header(const struct pl_st_item *items, uint64_t n, struct pl_text *out,
                    struct pl_diag *d);

#endif
