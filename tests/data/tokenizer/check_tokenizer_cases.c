/* check_tokenizer_cases.c - texts and the ids that the tokenizers library gives them.
 *
 * TOKENIZER_CASES names a directory of tokenizers, each with its cases.jsonl; without it
 * PLIMSOLL_TOKENIZERS_DIR does, and without either there is nothing to do. */
#include "tests/data/tokenizer/bench.h"
#include "tests/support/scratch.h"

#include <dirent.h>
#include <jansson.h>
#include <unistd.h>

enum { MOST_TOKENIZERS = 64 };

static const char *root;
static char names[MOST_TOKENIZERS][256];
static int n_names;

static void assert_ids(const json_t *want, const struct bench *b, const char *shown) {
    ck_assert_msg(json_array_size(want) == b->list.n, "%s: %llu tokens instead of %zu", shown,
                  (unsigned long long)b->list.n, json_array_size(want));
    for (size_t i = 0; i < b->list.n; i++) {
        json_int_t id = json_integer_value(json_array_get(want, i));
        if (id != b->list.ids[i])
            ck_abort_msg("%s: token %zu is %d instead of %lld", shown, i, b->list.ids[i],
                         (long long)id);
    }
}

static void assert_starts(const struct bench *b, size_t n, const char *shown) {
    for (size_t i = 0; i < b->list.n; i++) {
        uint64_t before = i ? b->list.starts[i - 1] : 0;
        if (b->list.starts[i] < before || b->list.starts[i] > n)
            ck_abort_msg("%s: token %zu begins at %llu behind %llu, of %zu bytes", shown, i,
                         (unsigned long long)b->list.starts[i], (unsigned long long)before, n);
    }
}

static void run_case(struct bench *b, const json_t *c, const char *shown) {
    const json_t *text = json_object_get(c, "text"), *decoded = json_object_get(c, "decoded");
    const char *s = json_string_value(text);
    size_t n = json_string_length(text);
    bench_encode(b, s, n, true);
    assert_ids(json_object_get(c, "ids_with_special"), b, shown);
    assert_starts(b, n, shown);
    bench_encode(b, s, n, false);
    assert_ids(json_object_get(c, "ids_no_special"), b, shown);
    assert_starts(b, n, shown);
    bench_decode(b, b->list.ids, b->list.n, false);
    ck_assert_msg(b->text.len == json_string_length(decoded) &&
                      memcmp(pl_text_str(&b->text), json_string_value(decoded), b->text.len) == 0,
                  "%s decodes to %s", shown, pl_text_str(&b->text));
}

/* E3 of bpe.h, B1 of byte_chars.h, D1 of piece_decoder.h and D2 of piece_decoder.h */
START_TEST(ids_and_decoded_text_are_the_library_s) {
    struct bench b;
    char *line = NULL;
    size_t cap = 0, cases = 0;
    const char *dir = in_dir(root, names[_i]);
    FILE *f = fopen(in_dir(dir, "cases.jsonl"), "r");
    ck_assert_ptr_nonnull(f);
    bench_open(&b, dir);
    for (ssize_t n; (n = getline(&line, &cap, f)) > 0; cases++) {
        json_error_t e;
        json_t *c = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, &e);
        ck_assert_msg(c != NULL, "%s", e.text);
        run_case(&b, c, textf("%s, case %zu, %.200s", names[_i], cases + 1, line));
        json_decref(c);
    }
    ck_assert_uint_gt(cases, 100);
    bench_close(&b);
    free(line);
    fclose(f);
}
END_TEST

/* Outside of a test, where the helpers of tests may not fail. */
static void list_tokenizers(void) {
    struct dirent *entry;
    char cases[4096];
    DIR *dir = opendir(root);
    while (dir && n_names < MOST_TOKENIZERS && (entry = readdir(dir))) {
        snprintf(cases, sizeof cases, "%s/%s/cases.jsonl", root, entry->d_name);
        if (access(cases, R_OK) == 0)
            snprintf(names[n_names++], sizeof names[0], "%s", entry->d_name);
    }
    if (dir) closedir(dir);
}

int main(void) {
    root = getenv("TOKENIZER_CASES");
    if (!root) root = getenv("PLIMSOLL_TOKENIZERS_DIR");
    if (!root) {
        puts("skipped: needs PLIMSOLL_TOKENIZERS_DIR, a directory of recorded tokenizers");
        return 77;
    }
    list_tokenizers();
    if (!n_names) {
        printf("%s has no tokenizer with cases.jsonl\n", root);
        return 1;
    }
    Suite *suite = suite_create("tokenizer_cases");
    TCase *t = tcase_create("cases");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, ids_and_decoded_text_are_the_library_s, 0, n_names);
    suite_add_tcase(suite, t);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
