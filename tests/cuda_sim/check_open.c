/* check_open.c - what is said of a GPU that cannot be had. */
#include "runtime/device/device.h"
#include "tests/cuda_sim/sim.h"

#include <check.h>
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
    ck_assert_int_eq(pl_device_open(&pl_device_cuda, 1, PL_AUTO_BYTES, &dev, &d), cases[_i].err);
    ck_assert_ptr_null(dev);
    ck_assert_int_eq(d.err, cases[_i].err);
    ck_assert_msg(strstr(d.message, number) != NULL, "%s", d.message);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cuda.open");
    TCase *tc = tcase_create("errors");
    tcase_add_loop_test(tc, a_gpu_that_was_not_had_is_not_lost, 0,
                        (int)(sizeof cases / sizeof *cases));
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
