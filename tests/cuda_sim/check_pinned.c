/* check_pinned.c - pinned memory of the CUDA back-end outlives the copies that read it, also where
 * the stream runs them as late as it may (PLSIM_STREAMS=late). */
#include "runtime/device/device.h"
#include "runtime/kernels/back_ends.h"

#include <check.h>
#include <string.h>

enum { N = 4096 };

START_TEST(pinned_memory_is_released_behind_its_copies) {
    struct pl_diag d = {0};
    struct pl_device *dev = NULL;
    struct pl_arena pinned, arena;
    uint8_t sent[N], got[N] = {0};
    ck_assert_int_eq(pl_device_open(&pl_back_end_cuda, 1, PL_NO_BUDGET, &dev, &d), PL_ERR_OK);
    ck_assert_int_eq(pl_staging_reserve(dev, &d), PL_ERR_OK);
    ck_assert_int_eq(pl_host_reserve(dev, PL_PLACE_PINNED, N, "a tensor", &pinned, &d), PL_ERR_OK);
    ck_assert_int_eq(pl_arena_reserve(dev, N, "a tensor", &arena, &d), PL_ERR_OK);
    for (int i = 0; i < N; i++)
        sent[i] = (uint8_t)(i * 40503u >> 8);
    memcpy(pinned.base, sent, N);
    const struct pl_attr attr = {0};
    const struct pl_batch batch = {0};
    struct pl_call c = {.attr = &attr, .batch = &batch};
    c.in[0] = (struct pl_view){pinned.base, N, 1, 1, PL_DTYPE_U8};
    c.out[0] = (struct pl_view){arena.base, N, 1, 1, PL_DTYPE_U8};
    ck_assert_int_eq(dev->kernels[PL_OP_COPY_IN](dev, &c), PL_ERR_OK);
    pl_host_release(dev, PL_PLACE_PINNED, &pinned);
    ck_assert_int_eq(dev->ops->download(dev, got, arena.base, N), PL_ERR_OK);
    ck_assert_int_eq(memcmp(sent, got, N), 0);
    pl_arena_release(dev, &arena);
    pl_device_close(&dev);
}
END_TEST

int main(void) {
    Suite *s = suite_create("pinned memory");
    TCase *tc = tcase_create("late");
    tcase_add_test(tc, pinned_memory_is_released_behind_its_copies);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    const int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
