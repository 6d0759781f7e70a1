/* check_toy_op.c - that an operation is its row, the row of who calls for it, and a kernel for each
 * back-end: the binary under test has one of its own, and no other source knows of it.
 * GOLDEN_CASES as in check_golden.c. */
#include "tests/support/child.h"
#include "tests/support/scratch.h"
#include "tests/support/toy_runs.h"

#include <check.h>
#include <string.h>

static const struct toy_run runs[] = {{"cpu", "none", "full"},
                                      {"cpu", "light", "full"},
                                      {"cpu", "full", "lora"},
                                      {"cuda", "none", "full"},
                                      {"cuda", "full", "full"}};
enum { N_RUNS = sizeof runs / sizeof *runs };

static void setup(void) {
    toy_begin((const char *const[]){"\"llama\"", "\"toy\"", "\"silu\"", "\"toy_silu\"", NULL});
}

START_TEST(it_computes_what_its_kernels_do) {
    toy_compare(&runs[_i]);
}
END_TEST

START_TEST(its_program_and_profile_name_it) {
    struct outcome o = plimsoll_expect(
        0, toy_case(),
        (const char *[]){"inspect", "--program", "run.yaml", textf("model=%s", toy_model()), NULL});
    ck_assert_ptr_nonnull(strstr(o.out, " toyglu "));
    ck_assert_ptr_nonnull(strstr(o.out, " toyglu_bwd "));
    ck_assert_ptr_null(strstr(o.out, "swiglu"));
    outcome_finish(&o);
    o = plimsoll_expect(0, toy_case(),
                        (const char *[]){"train", "run.yaml", textf("model=%s", toy_model()),
                                         "--profile", textf("output_dir=%s/profiled", toy_dir()),
                                         NULL});
    ck_assert_msg(strstr(o.out, "toyglu_bwd") || strstr(o.err, "toyglu_bwd"), "%s%s", o.out, o.err);
    outcome_finish(&o);
}
END_TEST

int main(void) {
    Suite *s = suite_create("toy_op");
    TCase *tc = tcase_create("op");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, setup, toy_end);
    tcase_add_loop_test(tc, it_computes_what_its_kernels_do, 0, N_RUNS);
    tcase_add_test(tc, its_program_and_profile_name_it);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
