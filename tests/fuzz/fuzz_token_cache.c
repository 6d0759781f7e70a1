/* fuzz_token_cache.c - KEY.tokens: the input is the file, and once more with its key and digests
 * set right, so that the rest is read. */
#include "runtime/data/cache.h"
#include "runtime/data/cache_file.h"
#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

enum { VOCAB = 50, MAX_TOKENS = 8 };

static const struct pl_cache_key key = {{1, 2}};

static void check_row(const struct pl_cache *c, const struct pl_cache_row *row,
                      struct pl_sample *s) {
    struct pl_diag d = {0};
    FUZZ_CHECK(row->tokens <= MAX_TOKENS && row->targets <= row->tokens);
    if (!fuzz_outcome(pl_cache_read(c, row->place, row->tokens, s, &d), &d)) {
        FUZZ_CHECK(s->n == 0);
        return;
    }
    FUZZ_CHECK(s->n == row->tokens);
    for (uint64_t i = 0; i < s->n; i++) {
        FUZZ_CHECK(s->ids[i] >= 0 && s->ids[i] < VOCAB);
        FUZZ_CHECK(s->labels[i] == PL_LABEL_MASKED || (s->labels[i] >= 0 && s->labels[i] < VOCAB));
    }
}

static void open_and_read(void) {
    struct pl_cache c;
    struct pl_sample s = {0};
    struct pl_text why = {0};
    bool opened = pl_cache_open(&c, fuzz_dir(), &key, VOCAB, MAX_TOKENS, &why);
    FUZZ_CHECK(opened == (why.len == 0));
    for (uint64_t i = 0; opened && i < c.header.rows; i++)
        check_row(&c, &c.rows[i], &s);
    pl_cache_close(&c);
    pl_sample_finish(&s);
    pl_text_finish(&why);
}

static void set_right(struct pl_cache_header *h, const uint8_t *body, size_t n) {
    static const char magic[8] = PL_CACHE_MAGIC;
    struct pl_digest digest;
    memcpy(h->magic, magic, sizeof magic);
    h->key = key;
    pl_digest_init(&digest, 0);
    pl_digest_add(&digest, body, n);
    h->body_digest = pl_digest_value(&digest);
    h->head_digest = pl_cache_head_digest(h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char name[] = "00000000000000010000000000000002.tokens";
    struct pl_cache_header h;
    const char *path = fuzz_file(name, data, size);
    open_and_read();
    if (size < sizeof h) return 0;
    memcpy(&h, data, sizeof h);
    set_right(&h, data + sizeof h, size - sizeof h);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    FUZZ_CHECK(fd >= 0 && pwrite(fd, &h, sizeof h, 0) == (ssize_t)sizeof h && close(fd) == 0);
    open_and_read();
    return 0;
}
