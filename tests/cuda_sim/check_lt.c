/* check_lt.c - which cuBLASLt is taken where there are several. LD_LIBRARY_PATH names a directory
 * with a version 13 that refuses to start, as the real one does on an older driver, and a version
 * 12 that works. */
#include "runtime/device/device.h"
#include "runtime/kernels/back_ends.h"
#include "tests/cuda_sim/sim.h"

#include <check.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static bool is_loaded(const char *name) {
    void *library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    if (library) dlclose(library);
    return library != NULL;
}

static pl_err open_gpu(const char *driver, const char *library, struct pl_diag *d) {
    struct pl_device *dev = NULL;
    ck_assert_int_eq(setenv("PLSIM_DRIVER", driver, 1), 0);
    ck_assert_int_eq(setenv("PLIMSOLL_CUBLASLT", library, 1), 0);
    plsim_restart();
    const pl_err err = pl_device_open(&pl_back_end_cuda, 1, PL_NO_BUDGET, &dev, d);
    if (err == PL_ERR_OK) pl_device_close(&dev);
    return err;
}

START_TEST(a_library_newer_than_the_driver_is_not_tried_first) {
    struct pl_diag d = {0};
    ck_assert_msg(open_gpu("12040", "", &d) == PL_ERR_OK, "%s", d.message);
    ck_assert(is_loaded("libcublasLt.so.12"));
    ck_assert(!is_loaded("libcublasLt.so.13"));
}
END_TEST

START_TEST(a_library_that_does_not_start_gives_way_to_the_next) {
    struct pl_diag d = {0};
    ck_assert_msg(open_gpu("13000", "", &d) == PL_ERR_OK, "%s", d.message);
    ck_assert(is_loaded("libcublasLt.so.12"));
    ck_assert(is_loaded("libcublasLt.so.13"));
}
END_TEST

/* One that was named is the only one: what else is there is not what the user wants. */
START_TEST(a_library_that_was_named_and_does_not_start_is_told) {
    struct pl_diag d = {0};
    ck_assert_int_eq(open_gpu("13000", "libcublasLt.so.13", &d), PL_ERR_NO_DEVICE);
    ck_assert_msg(strstr(d.message, "libcublasLt.so.13 does not start (status 1)"), "%s",
                  d.message);
    ck_assert_msg(strstr(d.hint, "PLIMSOLL_CUBLASLT"), "%s", d.hint);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cuda.lt");
    TCase *tc = tcase_create("libraries");
    tcase_add_test(tc, a_library_newer_than_the_driver_is_not_tried_first);
    tcase_add_test(tc, a_library_that_does_not_start_gives_way_to_the_next);
    tcase_add_test(tc, a_library_that_was_named_and_does_not_start_is_told);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
