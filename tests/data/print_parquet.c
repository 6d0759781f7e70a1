/* print_parquet.c - print_parquet FILE...: the rows of Parquet files as lines of JSON. */
#include "runtime/data/parquet/unpack_parquet.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool any(const void *ctx, const char *name) {
    (void)ctx, (void)name;
    return true;
}

static bool none(const void *ctx, const char *name) {
    (void)ctx, (void)name;
    return false;
}

static bool print_content(const struct pl_content *c) {
    char buf[65536];
    uint64_t at = 0;
    ssize_t n;
    for (; (n = pl_content_read(c, buf, sizeof buf, at)) > 0; at += (uint64_t)n)
        if (fwrite(buf, 1, (size_t)n, stdout) != (size_t)n) return false;
    return n == 0;
}

static bool print_file(const char *path) {
    const struct pl_parquet_wish wish = {any, none, NULL};
    struct pl_unpacked all = PL_UNPACKED_NONE;
    struct pl_content c;
    struct pl_diag d = {0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const bool read = pl_unpack_parquet(fd, path, &wish, &all, &c, &d) == PL_ERR_OK;
    if (!read) fprintf(stderr, "%s:%llu: %s\n", d.file, (unsigned long long)d.line, d.message);
    const bool ok = read && print_content(&c);
    pl_unpacked_finish(&all);
    if (fd >= 0) close(fd);
    return ok;
}

int main(int argc, char **argv) {
    bool ok = true;
    for (int i = 1; i < argc; i++)
        ok = print_file(argv[i]) && ok;
    return fflush(stdout) != 0 || !ok;
}
