/* check_quickstart_data.c - what tools/quickstart-data writes is JSONL, complete and reproducible.
 * SOURCE_ROOT names the repository; the test writes below the current directory. */
#include "tests/cli/process.h"

#include <check.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_TEXT_BYTES 250

static char *path_join(const char *a, const char *b) {
    char *s = malloc(strlen(a) + strlen(b) + 2);
    ck_assert_ptr_nonnull(s);
    sprintf(s, "%s/%s", a, b);
    return s;
}

static char *read_file(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "%s", path);
    struct stat s;
    ck_assert_int_eq(fstat(fileno(f), &s), 0);
    *n = (size_t)s.st_size;
    char *text = malloc(*n + 1);
    ck_assert_ptr_nonnull(text);
    ck_assert_uint_eq(fread(text, 1, *n, f), *n);
    text[*n] = 0;
    fclose(f);
    return text;
}

/* Runs the copy of the script in `root`; the output as a malloc'd string. */
static char *assemble(const char *root, const char *out, size_t *n) {
    char *script = path_join(root, "tools/quickstart-data");
    struct process p = process_run((const char *[]){script, out, NULL}, NULL);
    ck_assert_msg(p.status == 0, "%s", p.err);
    ck_assert_str_eq(p.err, "");
    process_finish(&p);
    free(script);
    return read_file(out, n);
}

/* The next row's text, appended to `all` when given; false at the end. */
static bool next_row(char **rest, FILE *all) {
    if (!**rest) return false;
    char *end = strchr(*rest, '\n');
    ck_assert_msg(end != NULL, "the last line is cut: %s", *rest);
    json_error_t error;
    json_t *row = json_loadb(*rest, (size_t)(end - *rest), 0, &error);
    ck_assert_msg(row != NULL, "%s: %.*s", error.text, (int)(end - *rest), *rest);
    const char *text = json_string_value(json_object_get(row, "text"));
    ck_assert_ptr_nonnull(text);
    ck_assert_uint_gt(strlen(text), 0);
    ck_assert_uint_le(strlen(text), MAX_TEXT_BYTES);
    if (all) fputs(text, all);
    json_decref(row);
    *rest = end + 1;
    return true;
}

START_TEST(every_row_of_the_projects_own_text_is_json_and_short_enough) {
    size_t n, rows = 0;
    const char *root = getenv("SOURCE_ROOT");
    ck_assert_ptr_nonnull(root);
    char *text = assemble(root, "quickstart.jsonl", &n), *rest = text;
    while (next_row(&rest, NULL))
        rows++;
    ck_assert_uint_gt(rows, 200);
    free(text);
}
END_TEST

START_TEST(the_same_tree_gives_the_same_bytes) {
    size_t n1, n2;
    char *one = assemble(getenv("SOURCE_ROOT"), "first.jsonl", &n1);
    char *two = assemble(getenv("SOURCE_ROOT"), "second.jsonl", &n2);
    ck_assert_uint_eq(n1, n2);
    ck_assert_int_eq(memcmp(one, two, n1), 0);
    free(one);
    free(two);
}
END_TEST

/* A tree of one document with everything that needs care: quotes, backslashes, control characters,
 * a line of two-byte characters longer than a row, a blank line, no end of line at the end. */
static void write_hard_document(FILE *f) {
    fputs("a \"quoted\" word, a \\ and a \\n\tand a \001 and \x7f\n\n", f);
    for (int i = 0; i < 400; i++)
        fputs("\xc3\xa9", f);
    fputs("\nx", f);
    for (int i = 0; i < 200; i++)
        fputs("\xe2\x82\xac", f);
    fputs("\nlast", f);
}

START_TEST(rows_put_together_are_the_document_again) {
    static const char make_tree[] =
        "rm -rf tree && mkdir -p tree/tools tree/configs tree/estimator tree/oom_recovery "
        "tree/runtime tree/tests && : >tree/CONTRIBUTING.md && "
        "cp \"$SOURCE_ROOT/tools/quickstart-data\" tree/tools/";
    struct process p = process_run((const char *[]){"sh", "-c", make_tree, NULL}, NULL);
    ck_assert_msg(p.status == 0, "%s", p.err);
    process_finish(&p);
    FILE *f = fopen("tree/README.md", "w");
    ck_assert_ptr_nonnull(f);
    write_hard_document(f);
    ck_assert_int_eq(fclose(f), 0);

    size_t n, n_expected, n_got;
    char *expected = read_file("tree/README.md", &n_expected);
    char *jsonl = assemble("./tree", "hard.jsonl", &n), *rest = jsonl;
    FILE *all = fopen("hard.txt", "w");
    ck_assert_ptr_nonnull(all);
    while (next_row(&rest, all))
        continue;
    ck_assert_int_eq(fclose(all), 0);
    char *got = read_file("hard.txt", &n_got);
    ck_assert_uint_eq(n_got, n_expected + 1); /* the end of line that the document lacks */
    ck_assert_int_eq(memcmp(got, expected, n_expected), 0);
    free(expected);
    free(jsonl);
    free(got);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cli.quickstart_data");
    TCase *tc = tcase_create("jsonl");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, every_row_of_the_projects_own_text_is_json_and_short_enough);
    tcase_add_test(tc, the_same_tree_gives_the_same_bytes);
    tcase_add_test(tc, rows_put_together_are_the_document_again);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
