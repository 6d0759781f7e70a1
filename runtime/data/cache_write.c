/* cache_write.c - tokens of a data file into the cache. */
#include "estimator/base/alloc.h"
#include "runtime/data/cache.h"
#include "runtime/data/cache_file.h"

#include "estimator/base/checked.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUF_WORDS 65536

char *pl_cache_path(const char *dir, const struct pl_cache_key *key, const char *suffix) {
    char *path = NULL;
    int n = pl_asprintf(&path, "%s/%016llx%016llx.%s", dir, (unsigned long long)key->half[0],
                        (unsigned long long)key->half[1], suffix);
    return n < 0 ? NULL : path;
}

uint64_t pl_cache_head_digest(const struct pl_cache_header *h) {
    struct pl_digest digest;
    pl_digest_init(&digest, 0);
    pl_digest_add(&digest, h, offsetof(struct pl_cache_header, head_digest));
    return pl_digest_value(&digest);
}

static void fail_write(struct pl_cache_writer *w, int error) {
    if (!w->error) w->error = error ? error : EIO;
}

static void release(struct pl_cache_writer *w) {
    if (w->fd >= 0) close(w->fd);
    free(w->part);
    free(w->path);
    free(w->dir);
    free(w->rows);
    free(w->buf);
    *w = (struct pl_cache_writer){.fd = -1};
}

/* A name that was there before may be a link to a file of the user that is none of ours. */
static bool is_private(int fd, const struct stat *st) {
    if (st->st_uid == geteuid() && st->st_nlink == 1 && S_ISREG(st->st_mode))
        return fchmod(fd, 0600) == 0;
    errno = EPERM;
    return false;
}

/* The lock is of the inode: between open and flock another run may have finished this very file and
 * renamed it, and it must not be written over. */
static bool take_part(struct pl_cache_writer *w) {
    struct stat held, named;
    w->fd = open(w->part, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    if (w->fd < 0) return false;
    if (flock(w->fd, LOCK_EX | LOCK_NB) != 0) return false;
    if (fstat(w->fd, &held) != 0 || stat(w->part, &named) != 0) return false;
    if (held.st_ino != named.st_ino || held.st_dev != named.st_dev) {
        errno = EWOULDBLOCK;
        return false;
    }
    return is_private(w->fd, &held) && ftruncate(w->fd, 0) == 0 &&
           lseek(w->fd, (off_t)sizeof w->header, SEEK_SET) == (off_t)sizeof w->header;
}

bool pl_cache_create(struct pl_cache_writer *w, const char *dir, const struct pl_cache_key *key,
                     struct pl_text *why) {
    *w = (struct pl_cache_writer){.fd = -1, .header = {.magic = PL_CACHE_MAGIC, .key = *key}};
    pl_digest_init(&w->body, 0);
    errno = ENOMEM;
    w->dir = pl_strdup(dir);
    w->part = pl_cache_path(dir, key, "part");
    w->path = pl_cache_path(dir, key, "tokens");
    w->buf = pl_malloc(BUF_WORDS * sizeof *w->buf);
    if (w->dir && w->part && w->path && w->buf && take_part(w)) return true;
    if (why && errno == EWOULDBLOCK)
        pl_text_addf(why, "another run is writing %s", w->path);
    else if (why)
        pl_text_addf(why, "cannot write into %s: %s", dir, strerror(errno));
    release(w);
    return false;
}

static void write_bytes(struct pl_cache_writer *w, const void *data, uint64_t bytes) {
    const char *p = data;
    pl_digest_add(&w->body, data, (size_t)bytes);
    while (bytes > 0 && !w->error) {
        ssize_t n = write(w->fd, p, (size_t)bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            fail_write(w, errno);
            return;
        }
        p += n;
        bytes -= (uint64_t)n;
    }
}

static void flush(struct pl_cache_writer *w) {
    write_bytes(w, w->buf, w->held * sizeof *w->buf);
    w->held = 0;
}

static void put_word(struct pl_cache_writer *w, uint32_t word) {
    if (w->held == BUF_WORDS) flush(w);
    w->buf[w->held++] = word;
    w->header.words++;
}

static bool add_row(struct pl_cache_writer *w, struct pl_cache_row row) {
    if (w->header.rows == w->cap_rows) {
        uint64_t cap = w->cap_rows ? 2 * w->cap_rows : 1024, bytes;
        struct pl_cache_row *rows = NULL;
        if (pl_u64_mul(cap, sizeof *rows, &bytes) && bytes <= SIZE_MAX)
            rows = pl_realloc(w->rows, (size_t)bytes);
        if (!rows) return false;
        w->rows = rows;
        w->cap_rows = cap;
    }
    w->rows[w->header.rows++] = row;
    return true;
}

void pl_cache_add(struct pl_cache_writer *w, const struct pl_sample *s, uint64_t targets,
                  bool cut) {
    if (!w->part || w->error) return;
    bool narrow = true;
    for (uint64_t i = 0; i < s->n; i++)
        narrow = narrow && (s->labels[i] == s->ids[i] || s->labels[i] == PL_LABEL_MASKED);
    const uint64_t kind = 4 * (uint64_t)s->weighted + 2 * (uint64_t)cut + !narrow;
    const struct pl_cache_row row = {8 * w->header.words + kind, (uint32_t)s->n, (uint32_t)targets,
                                     pl_sample_digest(s)};
    if (!add_row(w, row)) {
        fail_write(w, ENOMEM);
        return;
    }
    uint32_t weight;
    memcpy(&weight, &s->weight, sizeof weight);
    if (s->weighted) put_word(w, weight);
    for (uint64_t i = 0; i < s->n; i++) {
        bool masked = narrow && s->labels[i] == PL_LABEL_MASKED;
        put_word(w, (uint32_t)s->ids[i] | (masked ? PL_CACHE_MASK : 0));
    }
    for (uint64_t i = 0; i < s->n && !narrow; i++)
        put_word(w, (uint32_t)s->labels[i]);
}

static void write_head(struct pl_cache_writer *w, const struct pl_remarks *remarks) {
    struct pl_cache_header *h = &w->header;
    h->remarks = *remarks;
    h->body_digest = pl_digest_value(&w->body);
    h->head_digest = pl_cache_head_digest(h);
    if (w->error) return;
    if (pwrite(w->fd, h, sizeof *h, 0) != (ssize_t)sizeof *h) fail_write(w, errno);
}

static void sync_and_name(struct pl_cache_writer *w) {
    if (!w->error && fsync(w->fd) != 0) fail_write(w, errno);
    if (!w->error && rename(w->part, w->path) != 0) fail_write(w, errno);
    if (w->error) return;
    /* A power cut may lose the name; it never leaves a name with other content. */
    int fd = open(w->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)fsync(fd);
    close(fd);
}

bool pl_cache_commit(struct pl_cache_writer *w, const struct pl_remarks *remarks,
                     struct pl_text *why) {
    if (!w->part) return false;
    flush(w);
    write_bytes(w, w->rows, w->header.rows * sizeof *w->rows);
    write_head(w, remarks);
    sync_and_name(w);
    if (w->error) {
        if (why) pl_text_addf(why, "cannot write %s: %s", w->path, strerror(w->error));
        pl_cache_abandon(w);
        return false;
    }
    release(w);
    return true;
}

void pl_cache_abandon(struct pl_cache_writer *w) {
    if (!w->part) return;
    unlink(w->part);
    release(w);
}
