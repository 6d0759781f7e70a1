/* bench_tokenizer.c - how fast a tokenizer opens and encodes, in processor time. JSON.
 *
 * Usage: bench_tokenizer TOKENIZER TEXT-FILE
 * The file, repeated up to a megabyte, and texts that are hard on pattern and merges: each is the
 * median of a few rounds, after one that fills the cache of words; `cold_mb_s` is that first one.
 */
#include "runtime/data/tokenizer/tokenizer.h"
#include "tests/bench/machine.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 1 << 20, ROUNDS = 7 };

static const struct {
    const char *name, *unit; /* repeated; NULL: the file */
} texts[] = {
    {"file", NULL},       {"letter", "a"},
    {"capital", "A"},     {"spaces", " "},
    {"newlines", "\n"},   {"digits", "7"},
    {"mark", "\xCC\x81"}, {"cjk", "\xE4\xB8\x80"},
    {"words", "a "},      {"marks", "\xCC\x81\xCC\xA7"},
    {"bars", "<|"},
};
enum { N_TEXTS = sizeof texts / sizeof *texts };

/* Processor time: other work of the machine does not count. */
static double cpu_seconds(void) {
    return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

static size_t fill(char *text, const char *unit, size_t n) {
    size_t at = 0;
    for (; at + n <= BYTES; at += n)
        memcpy(text + at, unit, n);
    return at;
}

static double encode(const struct pl_tokenizer *t, struct pl_tokenizer_scratch *s, const char *text,
                     size_t n, struct pl_token_list *list) {
    struct pl_diag d = {0};
    double start = cpu_seconds();
    pl_err err = pl_tokenizer_encode(t, s, text, n, false, list, &d);
    ck_assert_msg(err == PL_ERR_OK, "%s", d.message);
    return cpu_seconds() - start;
}

static void measure(const struct pl_tokenizer *t, const char *name, const char *text, size_t n,
                    const char *comma) {
    struct pl_tokenizer_scratch *s;
    struct pl_token_list list = {0};
    struct pl_diag d = {0};
    double rounds[ROUNDS];
    ck_assert_int_eq(pl_tokenizer_scratch_create(t, &s, &d), PL_ERR_OK);
    double cold = encode(t, s, text, n, &list);
    for (int i = 0; i < ROUNDS; i++)
        rounds[i] = encode(t, s, text, n, &list);
    printf("  {\"text\":\"%s\",\"bytes\":%zu,\"tokens\":%llu,\"mb_s\":%.2f,\"cold_mb_s\":%.2f}%s\n",
           name, n, (unsigned long long)list.n, 1e-6 * (double)n / median(rounds, ROUNDS),
           1e-6 * (double)n / cold, comma);
    pl_token_list_finish(&list);
    pl_tokenizer_scratch_destroy(&s);
}

static const char *tokenizer_path, *text_path;

START_TEST(open_and_encode) {
    struct pl_tokenizer *t = NULL;
    struct pl_diag d = {0};
    size_t n_file = 0;
    double start = cpu_seconds();
    pl_err err = pl_tokenizer_open(tokenizer_path, &t, &d);
    ck_assert_msg(err == PL_ERR_OK, "%s", d.message);
    printf("{\"open_ms\":%.1f,\"texts\":[\n", 1e3 * (cpu_seconds() - start));
    char *file = file_read(text_path, &n_file), *text = malloc(BYTES);
    ck_assert(text && n_file);
    for (int i = 0; i < N_TEXTS; i++) {
        const char *unit = texts[i].unit ? texts[i].unit : file;
        size_t unit_bytes = texts[i].unit ? strlen(unit) : n_file < BYTES ? n_file : BYTES;
        measure(t, texts[i].name, text, fill(text, unit, unit_bytes), i + 1 < N_TEXTS ? "," : "");
    }
    printf("]}\n");
    free(text);
    free(file);
    pl_tokenizer_close(&t);
}
END_TEST

int main(int argc, char *argv[]) {
    if (argc != 3) {
        fputs("usage: bench_tokenizer TOKENIZER TEXT-FILE\n", stderr);
        return 2;
    }
    tokenizer_path = argv[1];
    text_path = argv[2];
    Suite *s = suite_create("bench.tokenizer");
    TCase *tc = tcase_create("texts");
    tcase_add_test(tc, open_and_encode);
    suite_add_tcase(s, tc);
    return run_measurements(s, "bench_tokenizer") != 0;
}
