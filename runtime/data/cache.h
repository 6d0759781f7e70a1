/* cache.h - the tokens of one data file on disk, so that a file is tokenised once and not once a
 * run.
 *
 * In: samples in order.  Out: a file DIR/KEY.tokens, and its samples by row.  Needs: digest.
 *   H1  the key is a digest of everything the tokens depend on; the file repeats it
 *   H2  a file has its name only when it is whole and synced (written as KEY.part, renamed)
 *   H3  nothing is trusted: sizes, places, the length of every row and a digest over every byte are
 *       checked on opening, length and ids again on reading; a file that fails is ignored
 *   H4  samples are read with pread, not mapped: a file that is cut short under a run is an error
 *       of a read, not a SIGBUS
 *   H5  the digests find damage, not forgery: they have no key. Against forgery the cache is
 *       private: directories are made 0700 and files 0600, and a directory or a file that another
 *       user owns or may write to is not used. A forged file that passes for one of ours can still
 *       only give wrong tokens: H3 bounds every row by what the reader has room for
 * Layout, in the machine's byte order: struct pl_cache_header; words (uint32_t), row after row;
 * struct pl_cache_row of every row. A row of labels that are its ids or masked takes a word a
 * token, the id with its top bit set where it is masked; any other row takes ids, then labels. The
 * word of its weight stands before them where a row is weighted.
 * Use: pl_cache_create(&w, dir, &key, &why); pl_cache_add(&w, &sample); ... pl_cache_commit(&w);
 *      if (pl_cache_open(&c, dir, &key, vocab, max, &why)) pl_cache_read(&c, &row, &sample, &d); */
#ifndef PL_RUNTIME_DATA_CACHE_H
#define PL_RUNTIME_DATA_CACHE_H

#include "estimator/base/diag.h"
#include "estimator/base/digest.h"
#include "estimator/base/text.h"
#include "runtime/data/remarks.h"
#include "runtime/data/sample.h"

#include <stdbool.h>

struct pl_cache_key {
    uint64_t half[2];
};

struct pl_cache_row {
    uint64_t place; /* first word of the row, times 8; + 1: ids, then labels; + 2: it was cut; + 4:
                     * it is weighted */
    uint32_t tokens, targets; /* targets: after the shift by one */
    uint64_t digest;          /* digest of the sample */
};
static inline bool pl_cache_is_cut(const struct pl_cache_row *row) {
    return row->place & 2;
}

static inline bool pl_cache_is_weighted(const struct pl_cache_row *row) {
    return row->place & 4;
}

struct pl_cache_header {
    char magic[8];
    struct pl_cache_key key;
    uint64_t words, rows;
    struct pl_remarks remarks;
    uint64_t body_digest; /* digest of everything after the header */
    uint64_t head_digest; /* digest of the header before this member */
};

/* --- writing ---------------------------------------------------------------------------------- */
struct pl_cache_writer {
    char *part, *path, *dir; /* owned; part NULL = no file is being written */
    int fd;
    struct pl_cache_header header;
    struct pl_cache_row *rows; /* owned */
    uint64_t cap_rows;
    uint32_t *buf; /* owned */
    uint64_t held; /* number of words in buf */
    struct pl_digest body;
    int error; /* errno of the first failure, 0 = none */
};
/* False if another run is writing the file, or it cannot be written; *why (nullable) holds the
 * reason if there is one to tell. *w is then empty, and every call does nothing. */
bool pl_cache_create(struct pl_cache_writer *w, const char *dir, const struct pl_cache_key *key,
                     struct pl_text *why);
/* targets: supervised tokens of the sample after the shift by one; cut: the row had more tokens. */
void pl_cache_add(struct pl_cache_writer *w, const struct pl_sample *s, uint64_t targets, bool cut);
/* Gives the file its name (H2). False: no file was left, and *why holds the reason. *w is empty
 * afterwards. */
bool pl_cache_commit(struct pl_cache_writer *w, const struct pl_remarks *remarks,
                     struct pl_text *why);
void pl_cache_abandon(struct pl_cache_writer *w); /* removes the part that was written; safe on
                                                     {0} */

/* --- reading ---------------------------------------------------------------------------------- */
struct pl_cache {
    char *path; /* owned */
    int fd;
    uint64_t vocab, max_tokens; /* limits: ids are below vocab, rows within max_tokens */
    struct pl_cache_header header;
    struct pl_cache_row *rows; /* [header.rows], owned; may be freed and set to NULL */
};
/* False if there is no file, or if it fails a check (H3): *why (nullable) then holds the reason, or
 * nothing if it is merely absent. */
bool pl_cache_open(struct pl_cache *c, const char *dir, const struct pl_cache_key *key,
                   uint64_t vocab, uint64_t max_tokens, struct pl_text *why);
/* Reads one row of the file into *out, grown as needed, at most max_tokens. Several threads may
 * read. The caller compares its digest. */
pl_err pl_cache_read(const struct pl_cache *c, uint64_t place, uint32_t tokens,
                     struct pl_sample *out, struct pl_diag *d);
/* Records PL_ERR_DATA_FILE: a row differs from what the file said on opening. */
pl_err pl_cache_changed(const struct pl_cache *c, struct pl_diag *d);
void pl_cache_close(struct pl_cache *c); /* safe on {0} */

#endif
