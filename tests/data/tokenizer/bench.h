/* bench.h - an open tokenizer with all it needs, for the tests of this directory. Failures end the
 * test.
 *
 * Use: struct bench b; bench_open(&b, dir); bench_encode(&b, text, n, false); ... bench_close(&b);
 */
#ifndef PL_TESTS_DATA_TOKENIZER_BENCH_H
#define PL_TESTS_DATA_TOKENIZER_BENCH_H

#include "runtime/data/tokenizer/tokenizer.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bench {
    struct pl_tokenizer *t;
    struct pl_tokenizer_scratch *s;
    struct pl_token_list list;
    struct pl_text text; /* result of bench_decode */
    struct pl_diag d;
};

static inline void bench_open(struct bench *b, const char *path) {
    *b = (struct bench){0};
    pl_err err = pl_tokenizer_open(path, &b->t, &b->d);
    ck_assert_msg(err == PL_ERR_OK, "%s: %s", path, b->d.message);
    ck_assert_int_eq(pl_tokenizer_scratch_create(b->t, &b->s, &b->d), PL_ERR_OK);
}

static inline void bench_close(struct bench *b) {
    pl_text_finish(&b->text);
    pl_token_list_finish(&b->list);
    pl_tokenizer_scratch_destroy(&b->s);
    pl_tokenizer_close(&b->t);
}

static inline void bench_encode(struct bench *b, const char *text, size_t n, bool special) {
    pl_err err = pl_tokenizer_encode(b->t, b->s, text, n, special, &b->list, &b->d);
    ck_assert_msg(err == PL_ERR_OK, "%s", b->d.message);
}

static inline void bench_decode(struct bench *b, const int32_t *ids, uint64_t n,
                                bool skip_special) {
    b->text.len = 0;
    pl_err err = pl_tokenizer_decode(b->t, ids, n, skip_special, &b->text, &b->d);
    ck_assert_msg(err == PL_ERR_OK, "%s", b->d.message);
}

#endif
