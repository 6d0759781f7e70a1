/* check_report.c - typed rows come out as JSON in their order and are found by their names. */
#include "estimator/base/json_tree.h"
#include "estimator/base/report.h"

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

/* A tree that memory was missing for takes the answer with it, in an object as well. */
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

int main(void) {
    Suite *s = suite_create("report");
    TCase *t = tcase_create("report");
    tcase_add_test(t, rows_stand_in_their_order_and_in_their_object);
    tcase_add_test(t, a_row_is_found_in_its_object_alone);
    tcase_add_test(t, what_is_not_known_is_null);
    tcase_add_test(t, an_answer_without_one_of_its_trees_is_none);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
