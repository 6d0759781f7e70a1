/* check_toy_layer.c - that a kind of layers is its slots and its forward pass: the binary under
 * test has one of its own, and no other source knows of it. GOLDEN_CASES as in check_golden.c. */
#include "tests/support/child.h"
#include "tests/support/scratch.h"
#include "tests/support/toy_runs.h"

#include <check.h>
#include <string.h>

static const struct toy_run runs[] = {
    {"cpu", "none", "full"},      {"cpu", "light", "full"}, {"cpu", "mlp", "full"},
    {"cpu", "attention", "full"}, {"cpu", "full", "full"},  {"cpu", "full", "lora"},
    {"cpu", "none", "qlora"},     {"cuda", "full", "full"},
};
enum { N_RUNS = sizeof runs / sizeof *runs };

static void setup(void) {
    toy_begin((const char *const[]){"\"llama\"", "\"toy\"", NULL});
}

START_TEST(its_gradient_follows_at_every_level) {
    toy_compare(&runs[_i]);
}
END_TEST

/* The first layer is of another kind. */
START_TEST(its_program_names_its_values) {
    struct outcome o = plimsoll_expect(
        0, toy_case(),
        (const char *[]){"inspect", "--program", "run.yaml", textf("model=%s", toy_model()), NULL});
    ck_assert_ptr_nonnull(strstr(o.out, "layers.1.toy_n1"));
    ck_assert_ptr_nonnull(strstr(o.out, "dtoy_n1"));
    ck_assert_ptr_nonnull(strstr(o.out, "layers.0.n1"));
    outcome_finish(&o);
}
END_TEST

int main(void) {
    Suite *s = suite_create("toy_layer");
    TCase *tc = tcase_create("layer");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, setup, toy_end);
    tcase_add_loop_test(tc, its_gradient_follows_at_every_level, 0, N_RUNS);
    tcase_add_test(tc, its_program_names_its_values);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
