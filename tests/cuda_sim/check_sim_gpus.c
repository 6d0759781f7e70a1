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

static void expect_trained_on_gpu(const char *const more[]) {
    struct outcome o = plimsoll_train(dir, more);
    ck_assert_msg(o.status == 0, "exit %d: %s", o.status, o.err);
    ck_assert_msg(strstr(o.err, "planned for a GPU of compute capability 9.0"), "%s", o.err);
    outcome_finish(&o);
}

/* --- who tells of it -------------------------------------------------------------------------- */

START_TEST(without_nvml_cuda_tells_what_there_is) {
    static const char *const words[] = {"cuda:0  Plimsoll emulation", "cuda:1  Plimsoll emulation",
                                        "compute capability 9.0, driver CUDA 13.0"};
    set("PLIMSOLL_NVML", "/nonexistent/libnvidia-ml.so.1");
    set("PLSIM_DEVICES", "2");
    expect_devices(words, 3, true);
    struct outcome o = plimsoll_expect(0, dir, (const char *[]){"devices", "--json", NULL});
    ck_assert_msg(strstr(o.out, "\"GPU-e0010203-0405-0607-0809-0a0b0c0d0e01\""), "%s", o.out);
    outcome_finish(&o);
    expect_trained_on_gpu((const char *[]){"device=auto", NULL});
}
END_TEST

/* NVML alone knows why there is none. */
START_TEST(without_any_gpu_nvml_says_why) {
    static const char *const words[] = {"cuda    none: no NVIDIA driver"};
    set("PLIMSOLL_NVML", "/nonexistent/libnvidia-ml.so.1");
    set("PLSIM_FAIL", "open@1:100,forever");
    expect_devices(words, 1, true);
}
END_TEST

START_TEST(a_gpu_with_the_memory_of_the_host_has_what_the_host_has) {
    set("PLSIM_INTEGRATED", "1");
    struct outcome o = plimsoll_expect(0, dir, (const char *[]){"devices", "--json", NULL});
    json_error_t e;
    json_t *root = json_loads(o.out, 0, &e);
    ck_assert_msg(root != NULL, "%s", o.out);
    const json_t *cpu = json_object_get(root, "cpu");
    const json_t *gpu = json_array_get(json_object_get(root, "gpus"), 0);
    ck_assert_msg(gpu != NULL, "%s", o.out);
    const json_int_t total = json_integer_value(json_object_get(cpu, "total_bytes"));
    ck_assert_int_eq(json_integer_value(json_object_get(gpu, "total_bytes")), total);
    const json_int_t left = json_integer_value(json_object_get(gpu, "free_bytes"));
    ck_assert(left > 0 && left <= total);
    json_decref(root);
    outcome_finish(&o);
    expect_trained_on_gpu((const char *[]){"device=auto", NULL});
}
END_TEST

/* --- drivers and code ------------------------------------------------------------------------- */

START_TEST(a_driver_older_than_the_build_is_told) {
    static const char *const words[] = {"needs driver 580 or later"};
    ck_assert_msg(getenv("FAKE_NVML") != NULL, "FAKE_NVML names the library");
    set("PLIMSOLL_NVML", getenv("FAKE_NVML"));
    set("FAKE_NVML_DRIVER", _i ? "580.65.06" : "575.51.03");
    expect_devices(words, 1, _i == 0);
}
END_TEST

/* Code for 80 runs on 86, for 120 on 121. */
static const struct {
    const char *sm;
    bool compiles;
} capabilities[] = {{"80", false}, {"89", false}, {"103", false}, {"121", false}, {"110", true}};

START_TEST(a_gpu_that_the_build_has_no_code_for_is_told) {
    set("PLSIM_SM", capabilities[_i].sm);
    struct outcome o = plimsoll_train(dir, (const char *[]){"device=cuda", NULL});
    ck_assert_msg(o.status == 0, "exit %d: %s", o.status, o.err);
    ck_assert_msg(!strstr(o.err, "compiles the kernels") != capabilities[_i].compiles, "%s", o.err);
    outcome_finish(&o);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cuda.gpus");
    TCase *tc = tcase_create("gpus");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, without_nvml_cuda_tells_what_there_is);
    tcase_add_test(tc, without_any_gpu_nvml_says_why);
    tcase_add_test(tc, a_gpu_with_the_memory_of_the_host_has_what_the_host_has);
    tcase_add_loop_test(tc, a_driver_older_than_the_build_is_told, 0, 2);
    tcase_add_loop_test(tc, a_gpu_that_the_build_has_no_code_for_is_told, 0,
                        (int)(sizeof capabilities / sizeof *capabilities));
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
