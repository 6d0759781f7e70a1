/* check_quickstart_data.c - what tools/quickstart-data writes is JSONL, complete and reproducible.
 * SOURCE_ROOT names the repository. */
#include "tests/support/child.h"
#include "tests/support/hang.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TEXT_BYTES 250

static char dir[SCRATCH_PATH];

/* Runs the copy of the script in `root`, which writes dir/name; the file as a malloc'd string. */
static char *assemble(const char *root, const char *name, size_t *n) {
    const char *out = in_dir(dir, name);
    struct outcome o = child_run((const char *[]){in_dir(root, "tools/quickstart-data"), out, NULL},
                                 NULL, HANG_SECONDS);
    ck_assert_msg(o.status == 0, "%s", o.err);
    ck_assert_str_eq(o.err, "");
    outcome_finish(&o);
    return file_read(out, n);
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
        "mkdir -p tools configs docs estimator oom_recovery runtime tests && : >CONTRIBUTING.md && "
        "cp \"$SOURCE_ROOT/tools/quickstart-data\" tools/";
    struct outcome o = child_run((const char *[]){"sh", "-c", make_tree, NULL}, dir, HANG_SECONDS);
    ck_assert_msg(o.status == 0, "%s", o.err);
    outcome_finish(&o);
    FILE *f = fopen(in_dir(dir, "README.md"), "w");
    ck_assert_ptr_nonnull(f);
    write_hard_document(f);
    ck_assert_int_eq(fclose(f), 0);

    size_t n, n_expected, n_got;
    char *expected = file_read(in_dir(dir, "README.md"), &n_expected);
    char *jsonl = assemble(dir, "hard.jsonl", &n), *rest = jsonl;
    FILE *all = fopen(in_dir(dir, "hard.txt"), "w");
    ck_assert_ptr_nonnull(all);
    while (next_row(&rest, all))
        continue;
    ck_assert_int_eq(fclose(all), 0);
    char *got = file_read(in_dir(dir, "hard.txt"), &n_got);
    ck_assert_uint_eq(n_got, n_expected + 1); /* the end of line that the document lacks */
    ck_assert_int_eq(memcmp(got, expected, n_expected), 0);
    free(expected);
    free(jsonl);
    free(got);
}
END_TEST

static void make_directory(void) { scratch_make(dir); }
static void remove_directory(void) { scratch_remove(dir); }

int main(void) {
    Suite *s = suite_create("cli.quickstart_data");
    TCase *tc = tcase_create("jsonl");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, make_directory, remove_directory);
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
