/* cache_read.c - tokens of a data file out of the cache. */
#include "estimator/base/alloc.h"
#include "runtime/data/cache.h"
#include "runtime/data/cache_file.h"

#include "estimator/base/checked.h"
#include "runtime/data/formats.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK (1u << 18)

/* Exactly n bytes at `at`; false at the end of the file and on failure. */
static bool read_at(int fd, void *to, uint64_t n, uint64_t at) {
    char *p = to;
    while (n > 0) {
        ssize_t got = pread(fd, p, (size_t)n, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        p += got;
        at += (uint64_t)got;
        n -= (uint64_t)got;
    }
    return true;
}

const char *pl_cache_distrust(const struct stat *st) {
    if (st->st_uid != geteuid()) return "it belongs to another user";
    return st->st_mode & (S_IWGRP | S_IWOTH) ? "other users may write to it" : NULL;
}

static const char *check_head(const struct pl_cache *c, const struct pl_cache_key *key,
                              uint64_t file_bytes) {
    static const char magic[8] = PL_CACHE_MAGIC;
    const struct pl_cache_header *h = &c->header;
    uint64_t words, rows, total;
    if (memcmp(h->magic, magic, sizeof magic) != 0) return "it is no file of tokens";
    if (h->head_digest != pl_cache_head_digest(h)) return "its header is damaged";
    if (memcmp(&h->key, key, sizeof *key) != 0) return "it belongs to other data";
    bool fits = pl_u64_mul(h->words, sizeof(uint32_t), &words) &&
                pl_u64_mul(h->rows, sizeof *c->rows, &rows) && pl_u64_add(words, rows, &total) &&
                pl_u64_add(total, sizeof *h, &total);
    if (!fits || total != file_bytes || rows > SIZE_MAX) return "its size is wrong";
    return NULL;
}

/* The digest over the body; reads the rows on the way. */
static const char *check_body(struct pl_cache *c) {
    const struct pl_cache_header *h = &c->header;
    struct pl_digest digest;
    uint64_t words = h->words * sizeof(uint32_t), rows = h->rows * sizeof *c->rows;
    char *buf = pl_malloc(CHUNK);
    bool read = buf != NULL;
    pl_digest_init(&digest, 0);
    for (uint64_t at = 0; read && at < words; at += CHUNK) {
        uint64_t n = pl_u64_min(CHUNK, words - at);
        read = read_at(c->fd, buf, n, sizeof *h + at);
        if (read) pl_digest_add(&digest, buf, (size_t)n);
    }
    free(buf);
    c->rows = read ? pl_malloc((size_t)rows + 1) : NULL;
    if (!c->rows || !read_at(c->fd, c->rows, rows, sizeof *h + words)) return "it cannot be read";
    pl_digest_add(&digest, c->rows, (size_t)rows);
    return pl_digest_value(&digest) == h->body_digest ? NULL : "its content is damaged";
}

/* Rows follow each other without a gap, and none is longer than a batch has room for. */
static const char *check_rows(const struct pl_cache *c) {
    uint64_t word = 0;
    for (uint64_t i = 0; i < c->header.rows; i++) {
        const struct pl_cache_row *r = &c->rows[i];
        if (r->place / 8 != word || r->targets > r->tokens || r->tokens > INT32_MAX)
            return "its rows contradict each other";
        if (r->tokens > c->max_tokens) return "a row of it is longer than max_seq_length";
        word += (uint64_t)r->tokens * (r->place % 2 + 1) + pl_cache_is_weighted(r);
        if (word > c->header.words) return "its rows contradict each other";
    }
    return word == c->header.words ? NULL : "its rows contradict each other";
}

static const char *check_file(struct pl_cache *c, const struct pl_cache_key *key) {
    struct stat st;
    if (fstat(c->fd, &st) != 0 || !S_ISREG(st.st_mode)) return "it is no regular file";
    const char *problem = pl_cache_distrust(&st);
    if (problem) return problem;
    if (!read_at(c->fd, &c->header, sizeof c->header, 0)) return "its size is wrong";
    problem = check_head(c, key, (uint64_t)st.st_size);
    if (!problem) problem = check_body(c);
    return problem ? problem : check_rows(c);
}

bool pl_cache_open(struct pl_cache *c, const char *dir, const struct pl_cache_key *key,
                   uint64_t vocab, uint64_t max_tokens, struct pl_text *why) {
    *c = (struct pl_cache){.fd = -1,
                           .vocab = vocab,
                           .max_tokens = max_tokens,
                           .path = pl_cache_path(dir, key, "tokens")};
    const char *problem = NULL;
    if (c->path) c->fd = open(c->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (c->fd >= 0) problem = check_file(c, key);
    if (c->fd >= 0 && !problem) return true;
    if (problem && why) pl_text_addf(why, "%s is not used: %s", c->path, problem);
    pl_cache_close(c);
    return false;
}

void pl_cache_close(struct pl_cache *c) {
    if (c->path && c->fd >= 0) close(c->fd);
    free(c->path);
    free(c->rows);
    *c = (struct pl_cache){.fd = -1};
}

static bool is_id(const struct pl_cache *c, int32_t id) {
    return id >= 0 && (uint64_t)id < c->vocab;
}

/* Words in out->ids become ids and labels; false when one of them is neither. */
static bool split_words(const struct pl_cache *c, struct pl_sample *out) {
    for (uint64_t i = 0; i < out->n; i++) {
        uint32_t word = (uint32_t)out->ids[i];
        out->ids[i] = (int32_t)(word & ~PL_CACHE_MASK);
        out->labels[i] = word & PL_CACHE_MASK ? PL_LABEL_MASKED : out->ids[i];
        if (!is_id(c, out->ids[i])) return false;
    }
    return true;
}

static bool check_words(const struct pl_cache *c, const struct pl_sample *s) {
    for (uint64_t i = 0; i < s->n; i++) {
        const int32_t label = s->labels[i];
        const bool is_part = label < PL_LABEL_MASKED && label >= PL_LABEL_PART(PL_PART_FLAGS);
        const bool good = label == PL_LABEL_MASKED || is_part || is_id(c, label);
        if (!good || !is_id(c, s->ids[i])) return false;
    }
    return true;
}

pl_err pl_cache_changed(const struct pl_cache *c, struct pl_diag *d) {
    pl_diag_at(d, PL_ERR_DATA_FILE, c->path, 0, 0, "the cached tokens changed under the run");
    pl_diag_hint(d, "delete the file: it is made again");
    return PL_ERR_DATA_FILE;
}

pl_err pl_cache_read(const struct pl_cache *c, uint64_t place, uint32_t tokens,
                     struct pl_sample *out, struct pl_diag *d) {
    const uint64_t bytes = (uint64_t)tokens * sizeof(uint32_t), wide = place % 2;
    const uint64_t begin = sizeof c->header + place / 8 * sizeof(uint32_t);
    out->n = 0;
    out->weighted = place & 4;
    const uint64_t at = begin + (out->weighted ? sizeof out->weight : 0);
    if (tokens > c->max_tokens) return pl_cache_changed(c, d);
    if (!pl_sample_reserve(out, tokens))
        return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for a row of %u tokens", tokens);
    bool good = !out->weighted || (read_at(c->fd, &out->weight, sizeof out->weight, begin) &&
                                   pl_sample_weight_is_valid((double)out->weight));
    good = good && read_at(c->fd, out->ids, bytes, at) &&
           (!wide || read_at(c->fd, out->labels, bytes, at + bytes));
    out->n = tokens;
    if (good) good = wide ? check_words(c, out) : split_words(c, out);
    if (good) return PL_ERR_OK;
    out->n = 0;
    return pl_cache_changed(c, d);
}
