/* check_sim_gpus.c - GPUs that do not answer as most do: without NVML, with the memory of the host,
 * with an old driver, without code in the build, and a library that takes memory in the first step.
 */
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/scratch.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static char dir[SCRATCH_PATH];

/* Every test runs in a process of its own, so variables need no cleaning up. */
static void set(const char *name, const char *value) {
    ck_assert_int_eq(setenv(name, value, 1), 0);
}

static void set_up(void) {
    scratch_make(dir);
    set("XDG_CACHE_HOME", dir);
    tiny_make(dir, &(struct tiny){.mode = "full"}, "learning_rate: 0.01\nmax_steps: 1\n");
}

static void tear_down(void) {
    scratch_remove(dir);
}

static void expect_devices(const char *const *words, int n, bool there) {
    struct outcome o = plimsoll_expect(0, dir, (const char *[]){"devices", NULL});
    for (int i = 0; i < n; i++)
        ck_assert_msg((strstr(o.out, words[i]) != NULL) == there, "%s: %s", words[i], o.out);
    outcome_finish(&o);
}

/* --- drivers and code ------------------------------------------------------------------------- */

START_TEST(a_driver_older_than_the_build_is_told) {
    static const char *const words[] = {"needs driver 580 or later"};
    ck_assert_msg(getenv("FAKE_NVML") != NULL, "FAKE_NVML names the library");
    set("PLIMSOLL_NVML", getenv("FAKE_NVML"));
    set("FAKE_NVML_DRIVER", _i ? "580.65.06" : "575.51.03");
    expect_devices(words, 1, _i == 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cuda.gpus");
    TCase *tc = tcase_create("gpus");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, a_driver_older_than_the_build_is_told, 0, 2);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
