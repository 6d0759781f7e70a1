/* check_open.c - errors of a GPU that cannot be opened, and the state after opening one. */
#include "runtime/device/device.h"
#include "runtime/kernels/back_ends.h"
#include "tests/cuda_sim/sim.h"

#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    int error;
    pl_err err;
} cases[] = {
    {35, PL_ERR_NO_DEVICE},  /* a driver older than the toolkit */
    {100, PL_ERR_NO_DEVICE}, /* no GPU */
    {804, PL_ERR_NO_DEVICE}, /* a compatibility package, which this GPU does not take */
    {999, PL_ERR_NO_DEVICE}, /* no /dev/nvidia-uvm */
    {2, PL_ERR_DEVICE_OOM},  /* others left no memory for a context */
};

START_TEST(a_gpu_that_was_not_had_is_not_lost) {
    struct pl_diag d = {0};
    struct pl_device *dev = NULL;
    char fail[32], number[32];
    snprintf(fail, sizeof fail, "open@1:%d", cases[_i].error);
    snprintf(number, sizeof number, "(CUDA error %d)", cases[_i].error);
    ck_assert_int_eq(setenv("PLSIM_FAIL", fail, 1), 0);
    plsim_restart();
    ck_assert_int_eq(pl_device_open(&pl_back_end_cuda, 1, PL_NO_BUDGET, &dev, &d), cases[_i].err);
    ck_assert_ptr_null(dev);
    ck_assert_int_eq(d.err, cases[_i].err);
    ck_assert_msg(strstr(d.message, number) != NULL, "%s", d.message);
}
END_TEST

static struct pl_device *open_gpu(void) {
    struct pl_diag d = {0};
    struct pl_device *dev = NULL;
    plsim_restart();
    ck_assert_msg(pl_device_open(&pl_back_end_cuda, 1, PL_NO_BUDGET, &dev, &d) == PL_ERR_OK, "%s",
                  d.message);
    return dev;
}

/* The runtime says that the driver is insufficient, and neither what it is nor what is needed. */
START_TEST(a_driver_older_than_the_toolkit_is_told_which_it_must_be) {
    struct pl_diag d = {0};
    struct pl_device *dev = NULL;
    ck_assert_int_eq(setenv("PLSIM_FAIL", "open@1:35", 1), 0);
    ck_assert_int_eq(setenv("PLSIM_DRIVER", "12010", 1), 0);
    plsim_restart();
    ck_assert_int_eq(pl_device_open(&pl_back_end_cuda, 1, PL_NO_BUDGET, &dev, &d),
                     PL_ERR_NO_DEVICE);
    ck_assert_msg(strstr(d.message, "needs driver 580 or later") != NULL, "%s", d.message);
    ck_assert_msg(strstr(d.message, "knows CUDA 12.1") != NULL, "%s", d.message);
}
END_TEST

/* The context outlives the device, and holds kernels of the library. */
START_TEST(the_library_stays_when_the_device_is_closed) {
    struct pl_device *dev = open_gpu();
    pl_device_close(&dev);
    void *library = dlopen(getenv("PLIMSOLL_CUBLASLT"), RTLD_NOW | RTLD_NOLOAD);
    ck_assert_ptr_nonnull(library);
    dlclose(library);
}
END_TEST

/* The emulated context is twice as large where modules are loaded eagerly. */
static const char *const inherited[] = {NULL, "EAGER", "LAZY", "DEFAULT"};
enum { CONTEXT_BYTES = 1000000 };

START_TEST(modules_are_loaded_lazily_whatever_the_environment_says) {
    const char *const given = inherited[_i];
    ck_assert_int_eq(
        given ? setenv("CUDA_MODULE_LOADING", given, 1) : unsetenv("CUDA_MODULE_LOADING"), 0);
    ck_assert_int_eq(setenv("PLSIM_CONTEXT_BYTES", "1000000", 1), 0);
    struct pl_device *dev = open_gpu();
    ck_assert_uint_eq(plsim_own_bytes() - plsim_counters.used_bytes, CONTEXT_BYTES);
    pl_device_close(&dev);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cuda.open");
    TCase *tc = tcase_create("errors");
    tcase_add_loop_test(tc, a_gpu_that_was_not_had_is_not_lost, 0,
                        (int)(sizeof cases / sizeof *cases));
    tcase_add_test(tc, a_driver_older_than_the_toolkit_is_told_which_it_must_be);
    suite_add_tcase(s, tc);
    tc = tcase_create("left behind");
    tcase_add_test(tc, the_library_stays_when_the_device_is_closed);
    tcase_add_loop_test(tc, modules_are_loaded_lazily_whatever_the_environment_says, 0,
                        (int)(sizeof inherited / sizeof *inherited));
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
