/* check_row_slice.c - the rows that a slice takes. */
#include "estimator/config/row_slice.h"

#include <check.h>
#include <string.h>

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

/* The rows that datasets 5.2.0 takes: ReadInstruction.from_spec("train" + text).to_absolute(). */
static const struct {
    const char *text;
    uint64_t rows, from, to;
} slices[] = {
    {"[:]", 7, 0, 7},
    {"[0:]", 7, 0, 7},
    {"[:3]", 7, 0, 3},
    {"[:3]", 2, 0, 2},
    {"[3:]", 7, 3, 7},
    {"[2:4]", 7, 2, 4},
    {"[2:40]", 7, 2, 7},
    {"[-3:]", 7, 4, 7},
    {"[-3:]", 2, 0, 2},
    {"[:-3]", 7, 0, 4},
    {"[2:-2]", 7, 2, 5},
    {"[-3:5]", 7, 4, 5},
    {"[1_0:]", 12, 10, 12},
    {"[:10%]", 50, 0, 5},
    {"[:10%]", 54, 0, 5},
    {"[:10%]", 56, 0, 6},
    {"[:50%]", 5, 0, 2},
    {"[:50%]", 7, 0, 4},
    {"[10%:20%]", 95, 10, 19},
    {"[1%:2%]", 250, 2, 5},
    {"[1%:2%]", 150, 2, 3},
    {"[1%:2%]", 50, 0, 1},
    {"[:50%]", 12345, 0, 6172},
    {"[1%:2%]", 1000003, 10000, 20000},
    {"[-10%:]", 50, 45, 50},
    {"[:-10%]", 50, 0, 45},
    {"[-100%:]", 9, 0, 9},
    {"[33%:66%]", 7, 2, 5},
    {"[-66%:-33%]", 100, 34, 67},
    /* Here datasets takes all rows, and none (W1). */
    {"[-1%:]", 40, 40, 40},
    {"[:-1%]", 40, 0, 40},
    /* These bounds take rows of other numbers. */
    {"[7:]", 7, 7, 7},
    {"[5:-5]", 7, 5, 5},
    {"[:1%]", 40, 0, 0},
    {"[:100%]", UINT64_MAX, 0, INT64_MAX / 200},
};

START_TEST(a_slice_takes_the_rows_that_datasets_takes) {
    struct pl_row_slice s;
    const char *hint;
    const char *wrong = pl_row_slice_parse(slices[_i].text, &s, &hint);
    ck_assert_msg(!wrong, "%s: %s", slices[_i].text, wrong);
    const struct pl_row_range r = pl_row_slice_of(&s, slices[_i].rows);
    ck_assert_msg(r.from == slices[_i].from && r.to == slices[_i].to, "%s of %llu: [%llu, %llu)",
                  slices[_i].text, (unsigned long long)slices[_i].rows, (unsigned long long)r.from,
                  (unsigned long long)r.to);
}
END_TEST

START_TEST(the_first_rows_are_known_without_counting) {
    static const struct {
        const char *text;
        bool first;
        uint64_t most;
    } rows[] = {{"[:]", true, UINT64_MAX}, {"[0:]", true, UINT64_MAX}, {"[:9]", true, 9},
                {"[0:9]", true, 9},        {"[1:9]", false, 0},        {"[:-9]", false, 0},
                {"[-9:]", false, 0},       {"[:9%]", false, 0}};
    struct pl_row_slice s;
    const char *hint;
    uint64_t most;
    for (size_t i = 0; i < COUNT(rows); i++) {
        ck_assert_ptr_null(pl_row_slice_parse(rows[i].text, &s, &hint));
        ck_assert_msg(pl_row_slice_is_first(&s, &most) == rows[i].first, "%s", rows[i].text);
        if (rows[i].first) ck_assert_uint_eq(most, rows[i].most);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("config.row_slice");
    TCase *t = tcase_create("all");
    tcase_add_loop_test(t, a_slice_takes_the_rows_that_datasets_takes, 0, COUNT(slices));
    tcase_add_test(t, the_first_rows_are_known_without_counting);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
