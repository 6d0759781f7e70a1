/* check_cuda_errors.c - what may be survived, what is our own mistake, and that nothing else is
 * ever tried again. Compiled against the stand-in for cuda_runtime.h: the codes are numbers, which
 * this test repeats from NVIDIA's documentation. */
#include "runtime/device/cuda/cuda.h"

#include <check.h>
#include <stdlib.h>

static const struct {
    int code;
    pl_err err;
} meanings[] = {
    {0, PL_ERR_OK},
    {2, PL_ERR_DEVICE_OOM},
    /* a launch or an argument of ours */
    {1, PL_ERR_PLAN_BROKEN},
    {9, PL_ERR_PLAN_BROKEN},
    {98, PL_ERR_PLAN_BROKEN},
    {701, PL_ERR_PLAN_BROKEN},
    /* another machine may have a device */
    {3, PL_ERR_NO_DEVICE},
    {35, PL_ERR_NO_DEVICE},
    {46, PL_ERR_NO_DEVICE},
    {100, PL_ERR_NO_DEVICE},
    {101, PL_ERR_NO_DEVICE},
    {209, PL_ERR_NO_DEVICE},
    {802, PL_ERR_NO_DEVICE},
    /* sticky: every later call fails with the same code */
    {214, PL_ERR_DEVICE_LOST},
    {700, PL_ERR_DEVICE_LOST},
    {702, PL_ERR_DEVICE_LOST},
    {710, PL_ERR_DEVICE_LOST},
    {714, PL_ERR_DEVICE_LOST},
    {715, PL_ERR_DEVICE_LOST},
    {716, PL_ERR_DEVICE_LOST},
    {717, PL_ERR_DEVICE_LOST},
    {718, PL_ERR_DEVICE_LOST},
    {719, PL_ERR_DEVICE_LOST},
    {999, PL_ERR_DEVICE_LOST},
};

START_TEST(an_error_means_what_the_driver_documents) {
    ck_assert_int_eq(pl_cuda_classify((cudaError_t)meanings[_i].code), meanings[_i].err);
}
END_TEST

/* A code of a driver younger than this program must not start a retry. */
START_TEST(one_error_alone_is_out_of_memory) {
    for (int code = 0; code < 2000; code++)
        ck_assert_int_eq(pl_cuda_classify((cudaError_t)code) == PL_ERR_DEVICE_OOM, code == 2);
}
END_TEST

START_TEST(one_error_alone_is_none) {
    for (int code = -1; code < 2000; code++)
        ck_assert_int_eq(pl_cuda_classify((cudaError_t)code) == PL_ERR_OK, code == 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("device.cuda_errors");
    TCase *tc = tcase_create("codes");
    tcase_add_loop_test(tc, an_error_means_what_the_driver_documents, 0,
                        (int)(sizeof meanings / sizeof *meanings));
    tcase_add_test(tc, one_error_alone_is_out_of_memory);
    tcase_add_test(tc, one_error_alone_is_none);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
