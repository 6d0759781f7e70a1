/* scratch.c - temporary directories and whole small files. */
#include "tests/support/scratch.h"

#include <check.h>
#include <dirent.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RING      8
#define RING_TEXT 1024

void scratch_make(char dir[SCRATCH_PATH]) {
    const char *base = getenv("TMPDIR");
    int n = snprintf(dir, SCRATCH_PATH, "%s/plimsoll-test-XXXXXX", base && *base ? base : "/tmp");
    ck_assert_int_lt(n, SCRATCH_PATH);
    ck_assert_msg(mkdtemp(dir) != NULL, "cannot make %s", dir);
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw) {
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

void scratch_remove(const char *dir) {
    if (path_exists(dir)) ck_assert_int_eq(nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static char *ring_next(void) {
    static char ring[RING][RING_TEXT];
    static unsigned at;
    return ring[at++ % RING];
}

const char *in_dir(const char *dir, const char *name) {
    char *text = ring_next();
    ck_assert_int_lt(snprintf(text, RING_TEXT, "%s/%s", dir, name), RING_TEXT);
    return text;
}

const char *textf(const char *fmt, ...) {
    char *text = ring_next();
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, RING_TEXT, fmt, args);
    va_end(args);
    ck_assert(n >= 0 && n < RING_TEXT);
    return text;
}

bool path_exists(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0;
}

char *file_read(const char *path, size_t *bytes) {
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "cannot open %s", path);
    ck_assert_int_eq(fseek(f, 0, SEEK_END), 0);
    long size = ftell(f);
    ck_assert_int_ge(size, 0);
    rewind(f);
    char *data = malloc((size_t)size + 1);
    ck_assert_ptr_nonnull(data);
    ck_assert_uint_eq(fread(data, 1, (size_t)size, f), (size_t)size);
    data[size] = 0;
    fclose(f);
    if (bytes) *bytes = (size_t)size;
    return data;
}

static void write_bytes(const char *path, const char *data, size_t bytes) {
    FILE *f = fopen(path, "wb");
    ck_assert_msg(f != NULL, "cannot make %s", path);
    ck_assert_uint_eq(fwrite(data, 1, bytes, f), bytes);
    ck_assert_int_eq(fclose(f), 0);
}

void file_write(const char *path, const char *text) {
    write_bytes(path, text, strlen(text));
}

bool file_same(const char *a, const char *b) {
    size_t n_a, n_b;
    char *x = file_read(a, &n_a), *y = file_read(b, &n_b);
    bool same = n_a == n_b && memcmp(x, y, n_a) == 0;
    free(x);
    free(y);
    return same;
}

size_t dir_each(const char *dir, void (*visit)(const char *name, void *ctx), void *ctx) {
    struct dirent **entries;
    size_t visited = 0;
    int n = scandir(dir, &entries, NULL, alphasort);
    ck_assert_msg(n >= 0, "cannot list %s", dir);
    for (int i = 0; i < n; i++) {
        if (strcmp(entries[i]->d_name, ".") != 0 && strcmp(entries[i]->d_name, "..") != 0) {
            visit(entries[i]->d_name, ctx);
            visited++;
        }
        free(entries[i]);
    }
    free(entries);
    return visited;
}

struct pair {
    const char *from, *to;
};

static void copy_entry(const char *name, void *ctx) {
    const struct pair *dirs = ctx;
    char from[RING_TEXT], to[RING_TEXT];
    ck_assert_int_lt(snprintf(from, sizeof from, "%s/%s", dirs->from, name), RING_TEXT);
    ck_assert_int_lt(snprintf(to, sizeof to, "%s/%s", dirs->to, name), RING_TEXT);
    struct stat st;
    ck_assert_int_eq(stat(from, &st), 0);
    if (S_ISDIR(st.st_mode)) {
        scratch_copy(from, to);
        return;
    }
    size_t bytes;
    char *data = file_read(from, &bytes);
    write_bytes(to, data, bytes);
    free(data);
}

void scratch_copy(const char *from, const char *to) {
    ck_assert_msg(mkdir(to, 0777) == 0, "cannot make %s", to);
    struct pair dirs = {from, to};
    dir_each(from, copy_entry, &dirs);
}
