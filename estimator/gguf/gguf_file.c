#include "estimator/gguf/gguf_file.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/base/open_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define HEADER_FIRST (UINT64_C(1) << 20)   /* bytes that are read at first; then twice as many */
#define HEADER_MOST  (UINT64_C(256) << 20) /* vocabularies of a million tokens have 30 MiB */
#define PARTS_MOST   1000

static pl_err read_at(const struct pl_gguf_part *p, uint64_t offset, void *dst, uint64_t bytes,
                      struct pl_diag *d) {
    char *to = dst;
    while (bytes > 0) {
        const ssize_t n = pread(p->fd, to, (size_t)pl_u64_min(bytes, 1u << 30), (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return pl_diag_at(d, pl_err_of_errno(PL_ERR_MODEL_FILE), p->path, 0, 0,
                              "cannot read: %s", strerror(errno));
        if (n == 0)
            return pl_diag_at(d, PL_ERR_MODEL_FILE, p->path, 0, 0, "the file ends at byte %llu",
                              (unsigned long long)offset);
        to += n;
        offset += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return PL_ERR_OK;
}

bool pl_gguf_is(const char *path) {
    char magic[4];
    FILE *f = pl_fopen_file(path, NULL);
    const bool is = f && fread(magic, sizeof magic, 1, f) == 1 && memcmp(magic, "GGUF", 4) == 0;
    if (f) fclose(f);
    return is;
}

/* Reads more of the file until the header is whole. */
static pl_err read_header(struct pl_gguf_part *p, uint64_t file_bytes, uint32_t index,
                          struct pl_gguf_header *out, struct pl_diag *d) {
    bool cut = true;
    for (uint64_t room = HEADER_FIRST; cut; room *= 2) {
        const uint64_t n = pl_u64_min(room, file_bytes);
        if (room > HEADER_MOST)
            return pl_diag_at(d, PL_ERR_MODEL_SYNTAX, p->path, 0, 0,
                              "its header is longer than %llu MiB",
                              (unsigned long long)(HEADER_MOST >> 20));
        free(p->bytes);
        p->bytes = pl_malloc((size_t)n + 1);
        if (!p->bytes) return pl_host_oom(d, "the header of a GGUF file");
        PL_TRY(read_at(p, 0, p->bytes, n, d));
        PL_TRY(pl_gguf_parse(p->path, p->bytes, n, file_bytes, index, out, &cut, d));
    }
    return PL_ERR_OK;
}

/* Opens the file as the next part; its header goes to *out. */
static pl_err open_part(struct pl_gguf *g, const char *path, struct pl_gguf_header *out,
                        struct pl_diag *d) {
    struct pl_gguf_part *p = &g->parts[g->n_parts];
    struct stat st;
    const char *why;
    *p = (struct pl_gguf_part){.path = pl_strdup(path), .fd = -1};
    g->n_parts++;
    if (!p->path) return pl_host_oom(d, "a path");
    p->fd = pl_open_file(path, &st, &why);
    if (p->fd < 0) {
        const int error = errno;
        pl_err err =
            pl_diag_at(d, pl_err_of_errno(PL_ERR_MODEL_FILE), path, 0, 0, "cannot open: %s", why);
        return pl_open_hint(d, err, error);
    }
    return read_header(p, (uint64_t)st.st_size, g->n_parts - 1, out, d);
}

/* "…-00001-of-00003.gguf": the place of the number, or NULL where the name is not of that form. */
static char *part_number(char *path, uint64_t count) {
    char end[32];
    const size_t n = strlen(path);
    const int length =
        snprintf(end, sizeof end, "-00001-of-%05llu.gguf", (unsigned long long)count);
    if (length < 0 || n < (size_t)length || strcmp(path + n - (size_t)length, end) != 0)
        return NULL;
    return path + n - (size_t)length + 1;
}

static pl_err join(struct pl_gguf_header *all, struct pl_gguf_header *more, struct pl_diag *d) {
    const uint64_t n = all->n_entries + more->n_entries;
    struct pl_gguf_entry *grown = pl_realloc(all->entries, (n + 1) * sizeof *grown);
    if (!grown) return pl_host_oom(d, "the header of a GGUF file");
    memcpy(grown + all->n_entries, more->entries, more->n_entries * sizeof *grown);
    all->entries = grown;
    all->n_entries = n;
    return PL_ERR_OK;
}

/* G2 of parts that are all open. */
static pl_err order_entries(struct pl_gguf *g, struct pl_diag *d) {
    struct pl_gguf_header *h = &g->header;
    qsort(h->entries, h->n_entries, sizeof *h->entries, pl_gguf_by_name);
    for (uint64_t i = 1; i < h->n_entries; i++)
        if (pl_gguf_by_name(&h->entries[i - 1], &h->entries[i]) == 0)
            return pl_diag_at(d, PL_ERR_MODEL_SYNTAX, g->parts[h->entries[i].part].path, 0, 0,
                              "tensor `%.*s` is in two parts",
                              (int)pl_u64_min(h->entries[i].name.n, 100), h->entries[i].name.s);
    return PL_ERR_OK;
}

static pl_err open_others(struct pl_gguf *g, char *path, uint64_t count, struct pl_diag *d) {
    char *number = part_number(path, count);
    if (!number) {
        pl_diag_at(d, PL_ERR_MODEL_FILE, path, 0, 0,
                   "the first of %llu parts, and its name does not end in -00001-of-%05llu.gguf",
                   (unsigned long long)count, (unsigned long long)count);
        pl_diag_hint(d, "give the parts the names that llama.cpp gave them, or join them with "
                        "`llama-gguf-split --merge`");
        return PL_ERR_MODEL_FILE;
    }
    for (uint64_t i = 2; i <= count; i++) {
        struct pl_gguf_header more = {0};
        char digits[24];
        snprintf(digits, sizeof digits, "%05llu", (unsigned long long)i);
        memcpy(number, digits, 5);
        pl_err err = open_part(g, path, &more, d);
        if (err == PL_ERR_OK) err = join(&g->header, &more, d);
        pl_gguf_header_finish(&more);
        if (err != PL_ERR_OK) return err;
    }
    return order_entries(g, d);
}

/* A part that is not the first one has no metadata of the model. */
static pl_err check_first(const struct pl_gguf *g, const char *path, struct pl_diag *d) {
    uint64_t no = 0;
    if (!pl_gguf_uint(pl_gguf_find(g, "split.no"), &no) || no == 0) return PL_ERR_OK;
    pl_diag_at(d, PL_ERR_MODEL_FILE, path, 0, 0, "part %llu of a split GGUF file",
               (unsigned long long)(no + 1));
    pl_diag_hint(d, "give the first part, whose name has 00001");
    return PL_ERR_MODEL_FILE;
}

static pl_err open_all(struct pl_gguf *g, const char *path, struct pl_diag *d) {
    uint64_t count = 1;
    struct pl_gguf_part first = {.fd = -1};
    g->parts = pl_malloc(sizeof *g->parts);
    if (!g->parts) return pl_host_oom(d, "a file");
    *g->parts = first;
    PL_TRY(open_part(g, path, &g->header, d));
    PL_TRY(check_first(g, path, d));
    if (!pl_gguf_uint(pl_gguf_find(g, "split.count"), &count) || count < 2) return PL_ERR_OK;
    if (count > PARTS_MOST)
        return pl_diag_at(d, PL_ERR_MODEL_SYNTAX, path, 0, 0, "`split.count` is %llu",
                          (unsigned long long)count);
    struct pl_gguf_part *parts = pl_realloc(g->parts, count * sizeof *parts);
    char *name = pl_strdup(path);
    if (parts) g->parts = parts;
    pl_err err = parts && name ? open_others(g, name, count, d) : pl_host_oom(d, "a path");
    free(name);
    return err;
}

pl_err pl_gguf_open(struct pl_gguf *g, const char *path, struct pl_diag *d) {
    *g = (struct pl_gguf){0};
    pl_err err = open_all(g, path, d);
    if (err != PL_ERR_OK) pl_gguf_close(g);
    return err;
}

void pl_gguf_close(struct pl_gguf *g) {
    for (uint32_t i = 0; i < g->n_parts; i++) {
        if (g->parts[i].fd >= 0) close(g->parts[i].fd);
        free(g->parts[i].bytes);
        free(g->parts[i].path);
    }
    free(g->parts);
    pl_gguf_header_finish(&g->header);
    *g = (struct pl_gguf){0};
}

const struct pl_gguf_value *pl_gguf_find(const struct pl_gguf *g, const char *key) {
    const struct pl_gguf_string name = {key, strlen(key)};
    const struct pl_gguf_header *h = &g->header;
    const struct pl_gguf_key *k =
        h->n_keys ? bsearch(&name, h->keys, h->n_keys, sizeof *k, pl_gguf_by_name) : NULL;
    return k ? &k->value : NULL;
}

const struct pl_gguf_value *pl_gguf_find_own(const struct pl_gguf *g, const char *key) {
    struct pl_gguf_string own;
    char name[128];
    if (!pl_gguf_string(pl_gguf_find(g, "general.architecture"), &own) || own.n > 64) return NULL;
    const int n = snprintf(name, sizeof name, "%.*s.%s", (int)own.n, own.s, key);
    return n > 0 && n < (int)sizeof name ? pl_gguf_find(g, name) : NULL;
}

const struct pl_gguf_entry *pl_gguf_entry(const struct pl_gguf *g, const char *name) {
    const struct pl_gguf_string wanted = {name, strlen(name)};
    const struct pl_gguf_header *h = &g->header;
    return h->n_entries
               ? bsearch(&wanted, h->entries, h->n_entries, sizeof *h->entries, pl_gguf_by_name)
               : NULL;
}

pl_err pl_gguf_read(const struct pl_gguf *g, const struct pl_gguf_entry *e, uint64_t offset,
                    void *dst, uint64_t bytes, struct pl_diag *d) {
    return read_at(&g->parts[e->part], e->offset + offset, dst, bytes, d);
}
