/* fuzz_parquet.c - a Parquet file: what is read of any file is one object of JSON for each line. A
 * crash of the library that decodes it ends the process of that, and is a damaged file here. */
#include "estimator/base/json_scan.h"
#include "runtime/data/parquet/unpack_parquet.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/with_carquet.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define CONTENT_MOST (4u << 20) /* a disk that is full sooner than a bomb is unpacked */

/* Half of the columns are read. */
static bool reads(const void *ctx, const char *name) {
    (void)ctx;
    return *name % 2 == 0;
}

static bool none(const void *ctx, const char *name) {
    (void)ctx, (void)name;
    return false;
}

static void set_up(void) {
    static bool done;
    const struct rlimit limit = {CONTENT_MOST, CONTENT_MOST};
    if (done) return;
    if (!carquet_is_there()) exit(77);
    signal(SIGXFSZ, SIG_IGN);
    FUZZ_CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    FUZZ_CHECK(setenv("TMPDIR", fuzz_dir(), 1) == 0);
    done = true;
}

/* Bytes that are no UTF-8 are passed on: the reader of rows reports them. */
static void check_line(const char *line, size_t n) {
    struct pl_scan s = {.text = line, .n = n};
    FUZZ_CHECK(n && line[0] == '{' && line[n - 1] == '}');
    if (!pl_scan_skip(&s)) FUZZ_CHECK(s.err == PL_ERR_DATA_SYNTAX && strstr(s.what, "UTF-8"));
}

static void check_content(const struct pl_content *c) {
    char *text = malloc(c->bytes + 1);
    FUZZ_CHECK(c->bytes <= CONTENT_MOST && text != NULL);
    FUZZ_CHECK(pl_content_read(c, text, c->bytes, 0) == (ssize_t)c->bytes);
    for (size_t at = 0; at < c->bytes;) {
        const char *end = memchr(text + at, '\n', c->bytes - at);
        FUZZ_CHECK(end != NULL);
        check_line(text + at, (size_t)(end - (text + at)));
        at = (size_t)(end - text) + 1;
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct pl_parquet_wish wish = {reads, none, NULL};
    struct pl_unpacked all = PL_UNPACKED_NONE;
    struct pl_content c;
    struct pl_diag d = {0};
    if (size > FUZZ_MAX_BYTES) return 0;
    set_up();
    const int from = open(fuzz_file("rows", data, size), O_RDONLY | O_CLOEXEC);
    FUZZ_CHECK(from >= 0);
    if (fuzz_outcome(pl_unpack_parquet(from, "rows", &wish, &all, &c, &d), &d)) check_content(&c);
    pl_unpacked_finish(&all);
    close(from);
    return 0;
}
