/* fuzz_unpack.c - a compressed data file and a compressed tokenizer.json: the input is the file,
 * and once more what two gzip members hold, which come back whole, or, cut short, not at all. */
#include "runtime/data/tokenizer/tokenizer_parts.h"
#include "runtime/data/unpack.h"
#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

#define UNPACKED_MOST (1u << 20) /* a disk that is full sooner than a bomb is unpacked */
#define PACKED_MOST   (2 * FUZZ_MAX_BYTES)
/* Beyond these a tokenizer is refused (tokenizer_files.c); a block more may have been read. */
#define TIMES_MOST 100
#define FREE_BYTES ((size_t)1 << 20)

static void set_up(void) {
    const struct rlimit limit = {UNPACKED_MOST, UNPACKED_MOST};
    signal(SIGXFSZ, SIG_IGN);
    FUZZ_CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    FUZZ_CHECK(setenv("TMPDIR", fuzz_dir(), 1) == 0);
}

/* *n: bytes of the content; NULL: it was refused. What is not compressed comes as it is. */
static uint8_t *unpack(const uint8_t *data, size_t size, size_t *n) {
    struct pl_diag d = {0};
    struct pl_unpacked all = PL_UNPACKED_NONE;
    struct pl_content c;
    int from = open(fuzz_file("rows", data, size), O_RDONLY | O_CLOEXEC);
    FUZZ_CHECK(from >= 0);
    uint8_t *content = NULL;
    if (fuzz_outcome(pl_unpack(from, "rows", &all, &c, &d), &d)) {
        const uint64_t bytes = c.fd == from ? size : c.bytes;
        FUZZ_CHECK(bytes <= UNPACKED_MOST && c.begin == 0);
        *n = (size_t)bytes;
        content = malloc(*n + 1);
        FUZZ_CHECK(content && pl_content_read(&c, content, *n, 0) == (ssize_t)*n);
    }
    pl_unpacked_finish(&all);
    close(from);
    return content;
}

static void read_tokenizer(const uint8_t *data, size_t size, struct pl_text *out, bool *read) {
    struct pl_diag d = {0};
    bool there = false;
    const char *path = fuzz_file("tokenizer.json.gz", data, size);
    *read = fuzz_outcome(pl_tokenizer_read_file(path, out, &there, &d), &d);
    FUZZ_CHECK(there && (!*read || out->len <= FREE_BYTES + TIMES_MOST * (size + FREE_BYTES)));
}

static size_t pack_member(uint8_t *out, size_t room, const uint8_t *data, size_t n, int level) {
    z_stream z = {.next_out = out, .avail_out = (uInt)room, .avail_in = (uInt)n};
    uint8_t *copy = malloc(n + 1); /* zlib's pointer is not to const */
    FUZZ_CHECK(copy != NULL);
    if (n) memcpy(copy, data, n);
    z.next_in = copy;
    FUZZ_CHECK(deflateInit2(&z, level, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    FUZZ_CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
    deflateEnd(&z);
    free(copy);
    return z.total_out;
}

static void check_same(const uint8_t *data, size_t size, const uint8_t *packed, size_t n_packed) {
    struct pl_text text = {0};
    size_t n = 0;
    bool read;
    uint8_t *content = unpack(packed, n_packed, &n);
    FUZZ_CHECK(content && n == size && (!n || memcmp(content, data, n) == 0));
    free(content);
    read_tokenizer(packed, n_packed, &text, &read);
    FUZZ_CHECK(read && text.len == size && (!size || memcmp(text.data, data, size) == 0));
    pl_text_finish(&text);
}

/* Cut within its first member, or within its second. */
static void check_cut(const uint8_t *packed, size_t first, size_t all, size_t by) {
    size_t n = 0, second = all - first;
    uint8_t *content = unpack(packed, first + 1 + by % (second - 1), &n);
    FUZZ_CHECK(content == NULL);
    if (first > 3) FUZZ_CHECK((content = unpack(packed, 2 + by % (first - 2), &n)) == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t packed[PACKED_MOST + 4096];
    struct pl_text text = {0};
    size_t n = 0, sum = 0;
    bool read;
    if (size > FUZZ_MAX_BYTES) return 0;
    set_up();
    free(unpack(data, size, &n));
    read_tokenizer(data, size, &text, &read);
    pl_text_finish(&text);
    for (size_t i = 0; i < size; i++)
        sum = sum * 31 + data[i];
    const size_t half = size ? sum % (size + 1) : 0;
    const size_t first = pack_member(packed, sizeof packed / 2, data, half, (int)(sum % 10));
    const size_t all = first + pack_member(packed + first, sizeof packed - first, data + half,
                                           size - half, (int)(sum % 10));
    check_same(data, size, packed, all);
    check_cut(packed, first, all, sum);
    return 0;
}
