/* check_diag.c - one failure, all failures of an input, and what each code promises. */
#include "estimator/base/diag.h"

#include <check.h>
#include <ctype.h>
#include <errno.h>
#include <string.h>

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

START_TEST(the_first_report_wins_and_each_returns_its_own_code) {
    struct pl_diag d = {0};
    ck_assert_int_eq(pl_diag_at(&d, PL_ERR_DATA_SYNTAX, "a.jsonl", 3, 14, "row %d", 3),
                     PL_ERR_DATA_SYNTAX);
    pl_diag_hint(&d, "cut %s", "it");
    ck_assert_int_eq(pl_diag_set(&d, PL_ERR_IO, "later"), PL_ERR_IO);
    ck_assert_int_eq(pl_diag_at(&d, PL_ERR_DATA_FILE, "b", 1, 1, "later"), PL_ERR_DATA_FILE);
    ck_assert_int_eq(pl_host_oom(&d, "a list"), PL_ERR_HOST_OOM);
    ck_assert_int_eq(d.err, PL_ERR_DATA_SYNTAX);
    ck_assert_str_eq(d.message, "row 3");
    ck_assert_str_eq(d.file, "a.jsonl");
    ck_assert_uint_eq(d.line, 3);
    ck_assert_uint_eq(d.column, 14);
    ck_assert_str_eq(pl_diag_hint_text(&d), "cut it");
}
END_TEST

START_TEST(nobody_has_to_care) {
    ck_assert_int_eq(pl_diag_set(NULL, PL_ERR_IO, "x"), PL_ERR_IO);
    ck_assert_int_eq(pl_diag_at(NULL, PL_ERR_USAGE, "f", 1, 1, "x"), PL_ERR_USAGE);
    ck_assert_int_eq(pl_host_oom(NULL, "x"), PL_ERR_HOST_OOM);
    pl_diag_hint(NULL, "x");
    pl_diag_begin(NULL);
    ck_assert_int_eq(pl_diag_keep(NULL, PL_ERR_IO), PL_ERR_IO);
    ck_assert_int_eq(pl_diag_first(NULL, PL_ERR_IO), PL_ERR_IO);
    ck_assert_int_eq(pl_diag_first(NULL, PL_ERR_OK), PL_ERR_OK);
}
END_TEST

START_TEST(long_texts_are_cut_with_their_end_in_place) {
    char text[4096];
    struct pl_diag d = {0};
    memset(text, 'y', sizeof text - 1);
    text[sizeof text - 1] = 0;
    pl_diag_at(&d, PL_ERR_IO, text, 1, 1, "%s", text);
    pl_diag_hint(&d, "%s", text);
    ck_assert_uint_eq(strlen(d.message), sizeof d.message - 1);
    ck_assert_uint_eq(strlen(d.file), sizeof d.file - 1);
    ck_assert_uint_eq(strlen(d.hint), sizeof d.hint - 1);
    ck_assert_uint_eq(d.line, 1);
}
END_TEST

START_TEST(a_file_may_be_unknown) {
    struct pl_diag d = {0};
    pl_diag_at(&d, PL_ERR_IO, NULL, 0, 0, "x");
    ck_assert_str_eq(d.file, "");
    ck_assert_str_eq(pl_diag_hint_text(&d), pl_err_hint(PL_ERR_IO));
}
END_TEST

/* A reader of four lines, of which the given ones are wrong. */
static pl_err read_lines(const pl_err *lines, int n, struct pl_diag *d) {
    pl_err err = PL_ERR_OK;
    pl_diag_begin(d);
    for (int i = 0; i < n && err == PL_ERR_OK; i++)
        if (lines[i] != PL_ERR_OK)
            err = pl_diag_keep(d, pl_diag_at(d, lines[i], "in", (uint64_t)i + 1, 0, "line %d", i));
    return pl_diag_first(d, err);
}

START_TEST(a_list_gets_every_failure_and_the_first_one_is_told) {
    static const pl_err lines[] = {PL_ERR_OK, PL_ERR_CONFIG_TYPE, PL_ERR_OK, PL_ERR_CONFIG_RANGE};
    struct pl_diag_list all = {.n = 7, .more = true}; /* left by an earlier input */
    struct pl_diag d = {.all = &all};
    ck_assert_int_eq(read_lines(lines, COUNT(lines), &d), PL_ERR_CONFIG_TYPE);
    ck_assert_uint_eq(all.n, 2);
    ck_assert(!all.more && !all.open);
    ck_assert_int_eq(all.items[0].err, PL_ERR_CONFIG_TYPE);
    ck_assert_int_eq(all.items[1].err, PL_ERR_CONFIG_RANGE);
    ck_assert_uint_eq(all.items[1].line, 4);
    ck_assert_int_eq(d.err, PL_ERR_CONFIG_TYPE);
    ck_assert_uint_eq(d.line, 2);
    ck_assert_ptr_eq(d.all, &all);
}
END_TEST

START_TEST(without_failures_the_list_is_empty) {
    static const pl_err lines[] = {PL_ERR_OK, PL_ERR_OK};
    struct pl_diag_list all = {.n = 7};
    struct pl_diag d = {.all = &all};
    ck_assert_int_eq(read_lines(lines, COUNT(lines), &d), PL_ERR_OK);
    ck_assert_uint_eq(all.n, 0);
    ck_assert_int_eq(d.err, PL_ERR_OK);
}
END_TEST

/* The reader ends at the failure for which there is no room, and says that there were more. */
START_TEST(a_full_list_says_that_there_is_more) {
    pl_err lines[PL_DIAGS_MOST + 4];
    for (int i = 0; i < COUNT(lines); i++)
        lines[i] = PL_ERR_CONFIG_TYPE;
    for (int n = PL_DIAGS_MOST - 1; n <= COUNT(lines); n++) {
        struct pl_diag_list all = {0};
        struct pl_diag d = {.all = &all};
        ck_assert_int_eq(read_lines(lines, n, &d), PL_ERR_CONFIG_TYPE);
        ck_assert_uint_eq(all.n, n < PL_DIAGS_MOST ? (uint32_t)n : PL_DIAGS_MOST);
        ck_assert_int_eq(all.more, n > PL_DIAGS_MOST);
        ck_assert_uint_eq(d.line, 1);
        ck_assert_uint_eq(all.items[all.n - 1].line, all.n);
    }
}
END_TEST

/* Failures found before memory ran out are no longer the whole truth about the input. */
START_TEST(missing_memory_is_told_alone) {
    static const pl_err lines[] = {PL_ERR_CONFIG_TYPE, PL_ERR_HOST_OOM, PL_ERR_CONFIG_RANGE};
    struct pl_diag_list all = {0};
    struct pl_diag d = {.all = &all};
    ck_assert_int_eq(read_lines(lines, COUNT(lines), &d), PL_ERR_HOST_OOM);
    ck_assert_uint_eq(all.n, 0);
    ck_assert_int_eq(d.err, PL_ERR_HOST_OOM);
    ck_assert_str_eq(d.message, "line 1");
}
END_TEST

START_TEST(outside_of_a_reader_nothing_is_kept) {
    struct pl_diag_list all = {0};
    struct pl_diag d = {.all = &all};
    pl_diag_set(&d, PL_ERR_IO, "x");
    ck_assert_int_eq(pl_diag_keep(&d, PL_ERR_IO), PL_ERR_IO);
    ck_assert_uint_eq(all.n, 0);
    ck_assert_int_eq(d.err, PL_ERR_IO);
}
END_TEST

START_TEST(missing_memory_has_one_wording_and_one_errno) {
    struct pl_diag d = {0};
    pl_host_oom(&d, "the rows");
    ck_assert_str_eq(d.message, "no memory for the rows");
    errno = ENOMEM;
    ck_assert_int_eq(pl_err_of_errno(PL_ERR_IO), PL_ERR_HOST_OOM);
    errno = ENOSPC;
    ck_assert_int_eq(pl_err_of_errno(PL_ERR_IO), PL_ERR_IO);
}
END_TEST

/* Exit statuses are those of docs/reference.md; a code is a word of capitals that says its room. */
START_TEST(every_code_is_a_word_with_a_status_of_the_manual) {
    for (int e = 0; e < PL_ERR_COUNT; e++) {
        const char *code = pl_err_code((pl_err)e);
        const int status = pl_err_exit_status((pl_err)e);
        ck_assert_msg((status == 0) == (e == PL_ERR_OK), "%s", code);
        ck_assert_msg((status >= 0 && status <= 6) || status == 130, "%s: %d", code, status);
        for (const char *c = code; *c; c++)
            ck_assert_msg(isupper((unsigned char)*c) || *c == '_', "%s", code);
        ck_assert_msg((strncmp(code, "CONFIG_", 7) == 0) <= (status == 2), "%s: %d", code, status);
        ck_assert_msg(e == PL_ERR_OK || pl_err_hint((pl_err)e)[0], "%s has no hint", code);
        for (int other = 0; other < e; other++)
            ck_assert_str_ne(code, pl_err_code((pl_err)other));
    }
}
END_TEST

START_TEST(a_number_that_is_no_code_is_a_defect_of_ours) {
    ck_assert_str_eq(pl_err_code(PL_ERR_COUNT), "RUNTIME_PLAN_BROKEN");
    ck_assert_int_eq(pl_err_exit_status((pl_err)1000), 1);
    ck_assert_str_eq(pl_err_hint((pl_err)1000), pl_err_hint(PL_ERR_PLAN_BROKEN));
}
END_TEST

int main(void) {
    Suite *s = suite_create("base.diag");
    TCase *t = tcase_create("all");
    tcase_add_test(t, the_first_report_wins_and_each_returns_its_own_code);
    tcase_add_test(t, nobody_has_to_care);
    tcase_add_test(t, long_texts_are_cut_with_their_end_in_place);
    tcase_add_test(t, a_file_may_be_unknown);
    tcase_add_test(t, a_list_gets_every_failure_and_the_first_one_is_told);
    tcase_add_test(t, without_failures_the_list_is_empty);
    tcase_add_test(t, a_full_list_says_that_there_is_more);
    tcase_add_test(t, missing_memory_is_told_alone);
    tcase_add_test(t, outside_of_a_reader_nothing_is_kept);
    tcase_add_test(t, missing_memory_has_one_wording_and_one_errno);
    tcase_add_test(t, every_code_is_a_word_with_a_status_of_the_manual);
    tcase_add_test(t, a_number_that_is_no_code_is_a_defect_of_ours);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
