/* check_injected.c - `debug_inject: host_oom@alloc=N` through the real binary: training and
 * generating stop with the one error of host memory, or end as without it. */
#include "tests/support/child.h"
#include "tests/support/scratch.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <string.h>

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
    tiny_make(dir, &(struct tiny){.rows = 4, .layers = 1}, "max_steps: 2\nbatch_size: 1\n");
}

static void tear_down(void) {
    scratch_remove(dir);
}

static void expect_shortage(const char *const words[]) {
    struct outcome o = plimsoll_expect(1, dir, words);
    ck_assert_msg(strstr(o.err, "error[RUNTIME_HOST_OOM]: "), "stderr: %s", o.err);
    outcome_finish(&o);
}

START_TEST(training_stops_at_the_request_that_was_named) {
    static const char *const faults[] = {
        "debug_inject=host_oom@alloc=1",
        "debug_inject=host_oom@alloc=1,forever",
        "debug_inject=host_oom@alloc=100",
        "debug_inject=host_oom@alloc=300,forever",
    };
    expect_shortage((const char *[]){"train", "run.yaml", faults[_i], NULL});
    plimsoll_train_expect(0, dir, (const char *[]){"--quiet", NULL});
}
END_TEST

START_TEST(a_request_that_is_never_made_changes_nothing) {
    plimsoll_train_expect(0, dir, (const char *[]){"--quiet", "output_dir=plain", NULL});
    plimsoll_train_expect(0, dir,
                          (const char *[]){"--quiet", "output_dir=armed",
                                           "debug_inject=host_oom@alloc=100000000,forever", NULL});
    ck_assert(
        file_same(in_dir(dir, "plain/model.safetensors"), in_dir(dir, "armed/model.safetensors")));
}
END_TEST

START_TEST(generating_stops_too) {
    plimsoll_train_expect(0, dir, (const char *[]){"--quiet", NULL});
    const char *words[] = {"generate",
                           "--model",
                           "out",
                           "--prompt-ids",
                           "1,2",
                           "--max-new-tokens",
                           "2",
                           "--debug-inject",
                           "host_oom@alloc=50",
                           NULL};
    expect_shortage(words);
    words[7] = NULL;
    struct outcome o = plimsoll_expect(0, dir, words);
    outcome_finish(&o);
}
END_TEST

int main(void) {
    Suite *s = suite_create("fault.injected");
    TCase *tc = tcase_create("host_oom@alloc");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, training_stops_at_the_request_that_was_named, 0, 4);
    tcase_add_test(tc, a_request_that_is_never_made_changes_nothing);
    tcase_add_test(tc, generating_stops_too);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
