/* check_report.c - typed rows come out as JSON in their order and are found by their names. */
#include "estimator/base/alloc.h"
#include "estimator/base/json_tree.h"
#include "estimator/base/report_rows.h"

#include <check.h>
#include <stdlib.h>

static void expect_json(json_t *v, const char *want) {
    char *text = pl_json_dump(v, JSON_COMPACT);
    ck_assert_msg(text != NULL, "no memory for %s", want);
    ck_assert_str_eq(text, want);
    free(text);
    json_decref(v);
}

START_TEST(rows_stand_in_their_order_and_in_their_object) {
    struct pl_report r = {0};
    pl_report_count(&r, "total", 7);
    pl_report_open(&r, "bytes");
    pl_report_count(&r, "total", UINT64_C(1) << 40);
    pl_report_open(&r, NULL);
    pl_report_real(&r, "share", 0.5);
    pl_report_word(&r, "mode", "lora");
    pl_report_word(&r, "refusal", NULL);
    pl_report_truth(&r, "fits", true);
    pl_report_tree(&r, "notes", json_array());
    pl_report_open(&r, "bytes");
    pl_report_count(&r, "arena", 3);
    expect_json(pl_report_end(&r),
                "{\"total\":7,\"bytes\":{\"total\":1099511627776,\"arena\":3},\"share\":0.5,"
                "\"mode\":\"lora\",\"refusal\":null,\"fits\":true,\"notes\":[]}");
    ck_assert_uint_eq(r.n_rows, 0);
}
END_TEST

START_TEST(a_row_is_found_in_its_object_alone) {
    struct pl_report r = {0};
    pl_report_count(&r, "total", 7);
    pl_report_open(&r, "bytes");
    pl_report_count(&r, "total", 9);
    pl_report_count(&r, "arena", 3);
    ck_assert_uint_eq(pl_report_find(&r, NULL, "total")->is.count, 7);
    ck_assert_uint_eq(pl_report_find(&r, "bytes", "total")->is.count, 9);
    ck_assert_ptr_null(pl_report_find(&r, NULL, "arena"));
    pl_report_finish(&r);
}
END_TEST

START_TEST(what_is_not_known_is_null) {
    struct pl_report r = {0};
    pl_report_count(&r, "batch", 4);
    pl_report_known(&r, false);
    pl_report_real(&r, "vram", 4);
    pl_report_known(&r, true);
    expect_json(pl_report_end(&r), "{\"batch\":null,\"vram\":4.0}");
}
END_TEST

/* RP3: A tree that memory was missing for takes the answer with it, in an object as well. */
START_TEST(an_answer_without_one_of_its_trees_is_none) {
    for (int inside = 0; inside < 2; inside++) {
        struct pl_report r = {0};
        pl_report_count(&r, "total", 7);
        pl_report_open(&r, inside ? "rest" : NULL);
        pl_report_tree(&r, "rows", NULL);
        pl_report_count(&r, "after", 8);
        ck_assert_ptr_null(pl_report_end(&r));
    }
}
END_TEST

static void fill_table(struct pl_report *r) {
    pl_report_next(r);
    pl_report_word(r, "level", "none");
    pl_report_bytes(r, "needed_bytes", 2048);
    pl_report_figure(r, "seconds", 0.123456, -3);
    pl_report_format(r, "mark", "%s", "  <-");
    pl_report_for_people(r);
    pl_report_next(r);
    pl_report_word(r, "level", "full");
    pl_report_bytes(r, "needed_bytes", 0);
    pl_report_known(r, false);
    pl_report_share(r, "share", 0.25);
}

/* RP4 */
START_TEST(a_table_is_a_list_of_objects_in_json) {
    struct pl_report r = {0};
    fill_table(&r);
    expect_json(pl_report_end_list(&r),
                "[{\"level\":\"none\",\"needed_bytes\":2048,\"seconds\":0.123456},"
                "{\"level\":\"full\",\"needed_bytes\":null,\"share\":0.25}]");
    expect_json(pl_report_end_list(&r), "[]");
}
END_TEST

START_TEST(columns_are_aligned_and_a_row_that_a_line_lacks_takes_no_room) {
    static const struct pl_report_column columns[] = {{"level", "level", 2, -7},
                                                      {"needed_bytes", "needs", 0, 10},
                                                      {"seconds", "time", 2, 6},
                                                      {"share", "", 1, 0},
                                                      {"mark", "", 0, 0}};
    struct pl_report r = {0};
    struct pl_text text = {0};
    fill_table(&r);
    pl_report_columns(&r, columns, 5, "<", ">", &text);
    ck_assert_str_eq(pl_text_str(&text), "  <level       needs    time >\n"
                                         "  none     2.00 KiB   0.123  <-\n"
                                         "  full            - 25 %\n");
    pl_text_finish(&text);
    pl_report_finish(&r);
}
END_TEST

START_TEST(every_row_is_a_column_as_wide_as_its_cells) {
    struct pl_report r = {0};
    struct pl_text text = {0};
    for (int i = 0; i < 2; i++) {
        pl_report_next(&r);
        pl_report_word(&r, "a", i ? "longer" : "l");
        pl_report_figure(&r, "gb", i ? 1234.5 : 1, 1);
        pl_report_word(&r, "fits", i ? "no" : "fits");
    }
    pl_report_all_columns(&r, &text);
    ck_assert_str_eq(pl_text_str(&text), "  a           gb  fits\n"
                                         "  l          1.0  fits\n"
                                         "  longer  1234.5  no\n");
    pl_text_finish(&text);
    pl_report_finish(&r);
}
END_TEST

START_TEST(csv_has_the_named_rows_with_bytes_as_numbers) {
    static const char *const names[] = {"needed_bytes", "level"};
    struct pl_report r = {0};
    struct pl_text text = {0};
    fill_table(&r);
    pl_report_csv(&r, names, 2, &text);
    ck_assert_str_eq(pl_text_str(&text), "needed_bytes,level\r\n2048,none\r\n-,full\r\n");
    pl_text_finish(&text);
    pl_report_finish(&r);
}
END_TEST

/* RP3: Each request fails in turn: there is no answer then, and nothing leaks or is used. */
START_TEST(an_answer_for_which_memory_ran_out_is_none) {
    for (uint64_t at = 1;; at++) {
        struct pl_report r = {0};
        struct pl_text text = {0}, words = {0};
        pl_alloc_fail(at, 1);
        fill_table(&r);
        pl_text_add(&words, "words");
        pl_report_text(&r, "words", &words);
        const bool done = pl_alloc_requests() < at;
        pl_alloc_fail(0, 0);
        pl_report_columns(&r, &(struct pl_report_column){"level", "", 0, 0}, 1, "", "", &text);
        ck_assert_int_eq(text.failed, !done);
        json_t *list = pl_report_end_list(&r);
        ck_assert_int_eq(list != NULL, done);
        json_decref(list);
        pl_text_finish(&text);
        if (done) break;
        ck_assert_uint_lt(at, 100);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("report");
    TCase *t = tcase_create("report");
    tcase_add_test(t, rows_stand_in_their_order_and_in_their_object);
    tcase_add_test(t, a_row_is_found_in_its_object_alone);
    tcase_add_test(t, what_is_not_known_is_null);
    tcase_add_test(t, an_answer_without_one_of_its_trees_is_none);
    tcase_add_test(t, a_table_is_a_list_of_objects_in_json);
    tcase_add_test(t, columns_are_aligned_and_a_row_that_a_line_lacks_takes_no_room);
    tcase_add_test(t, every_row_is_a_column_as_wide_as_its_cells);
    tcase_add_test(t, csv_has_the_named_rows_with_bytes_as_numbers);
    tcase_add_test(t, an_answer_for_which_memory_ran_out_is_none);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
