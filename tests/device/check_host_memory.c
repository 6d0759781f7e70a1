/* check_host_memory.c - memory of the host that a plan places: counted apart, refused by name. */
#include "estimator/base/units.h"
#include "runtime/device/cpu/cpu.h"
#include "runtime/device/null/null.h"
#include "runtime/kernels/back_ends.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

static const struct pl_back_end *const backends[] = {&pl_back_end_cpu, &pl_back_end_null};
static const enum pl_tensor_place places[] = {PL_PLACE_PINNED, PL_PLACE_HOST};

static struct pl_device *open_device(int backend, uint64_t budget) {
    struct pl_device *dev;
    struct pl_diag d = {0};
    if (pl_device_open(backends[backend], 1, budget, &dev, &d) != PL_ERR_OK)
        ck_abort_msg("%s", d.message);
    return dev;
}

/* D4 of device.h: no budget of the device holds it, and the books of the device do not move. */
START_TEST(host_memory_is_in_books_of_its_own) {
    struct pl_device *dev = open_device(_i, 1000);
    struct pl_arena a[COUNT(places)], device;
    for (int k = 0; k < COUNT(places); k++) {
        ck_assert_int_eq(pl_host_reserve(dev, places[k], 5000 + (uint64_t)k, "x", &a[k], NULL),
                         PL_ERR_OK);
        ck_assert_ptr_nonnull(a[k].base);
        ck_assert_uint_eq(a[k].bytes, 5000 + (uint64_t)k);
        ck_assert_uint_eq((uintptr_t)a[k].base % dev->traits.align_bytes, 0);
    }
    ck_assert_uint_eq(dev->host_bytes[PL_PLACE_PINNED], 5000);
    ck_assert_uint_eq(dev->host_bytes[PL_PLACE_HOST], 5001);
    ck_assert_uint_eq(dev->host_bytes[PL_PLACE_DEVICE], 0);
    ck_assert_uint_eq(dev->host_allocations, 2);
    ck_assert_uint_eq(dev->pinned_allocations, 1);
    ck_assert_uint_eq(dev->used_bytes + dev->allocations + dev->peak_bytes, 0);
    ck_assert_int_eq(pl_arena_reserve(dev, 1000, "x", &device, NULL), PL_ERR_OK);
    for (int k = 0; k < COUNT(places); k++) {
        pl_host_release(dev, places[k], &a[k]);
        ck_assert_ptr_null(a[k].base);
        ck_assert_uint_eq(dev->host_bytes[places[k]], 0);
        pl_host_release(dev, places[k], &a[k]); /* {0} is nothing to release */
    }
    ck_assert_uint_eq(dev->used_bytes, 1000);
    ck_assert_uint_eq(dev->host_allocations, 2);
    pl_arena_release(dev, &device);
    pl_device_close(&dev);
}
END_TEST

START_TEST(nothing_is_asked_for_no_bytes) {
    struct pl_device *dev = open_device(_i, 1000);
    struct pl_arena a = {&a, 7};
    dev->inject_pinned = (struct pl_inject){.at = 1, .count = UINT64_MAX};
    ck_assert_int_eq(pl_host_reserve(dev, PL_PLACE_PINNED, 0, "x", &a, NULL), PL_ERR_OK);
    ck_assert_ptr_null(a.base);
    ck_assert_uint_eq(a.bytes + dev->host_allocations + dev->pinned_allocations, 0);
    pl_device_close(&dev);
}
END_TEST

START_TEST(pages_of_the_host_are_zeroed_and_ours) {
    struct pl_device *dev = open_device(0, 1000);
    struct pl_arena a;
    static const uint64_t sizes[] = {1, 4095, 4096, 4097, 2097151, 2097152, 5000000};
    for (int i = 0; i < COUNT(sizes); i++) {
        ck_assert_int_eq(pl_host_reserve(dev, places[i % 2], sizes[i], "x", &a, NULL), PL_ERR_OK);
        const unsigned char *bytes = a.base;
        unsigned any = 0;
        for (uint64_t k = 0; k < sizes[i]; k++)
            any |= bytes[k];
        ck_assert_uint_eq(any, 0);
        memset(a.base, 0x5A, sizes[i]); /* the next one of this size must not see it */
        pl_host_release(dev, places[i % 2], &a);
    }
    pl_device_close(&dev);
}
END_TEST

/* The N-th request for pinned memory fails; plain host memory is not counted among them. */
START_TEST(an_injected_failure_is_of_pinned_memory_alone) {
    struct pl_device *dev = open_device(_i, 1000);
    struct pl_arena a;
    struct pl_diag d = {0};
    dev->inject_pinned = (struct pl_inject){.at = 2, .count = 2};
    for (int k = 1; k <= 4; k++) {
        const bool fails = k == 2 || k == 3;
        d = (struct pl_diag){0};
        ck_assert_int_eq(pl_host_reserve(dev, PL_PLACE_HOST, 64, "x", &a, NULL), PL_ERR_OK);
        pl_host_release(dev, PL_PLACE_HOST, &a);
        ck_assert_int_eq(pl_host_reserve(dev, PL_PLACE_PINNED, 1 << 20, "optimizer states", &a, &d),
                         fails ? PL_ERR_HOST_OOM : PL_ERR_OK);
        ck_assert_uint_eq(dev->host_bytes[PL_PLACE_PINNED], fails ? 0 : 1 << 20);
        if (fails) {
            ck_assert_ptr_null(a.base);
            ck_assert_str_eq(d.message, "optimizer states: asked for 1.00 MiB (1048576 bytes) of "
                                        "pinned host memory, 0 B available (0 bytes)");
        }
        pl_host_release(dev, PL_PLACE_PINNED, &a);
    }
    ck_assert_uint_eq(dev->pinned_allocations, 4);
    ck_assert_uint_eq(dev->host_allocations, 8);
    pl_device_close(&dev);
}
END_TEST

START_TEST(more_than_the_machine_has_is_refused_with_both_numbers) {
    struct pl_device *dev = open_device(0, 1000);
    struct pl_arena a;
    struct pl_diag d = {0};
    const uint64_t most = UINT64_C(1) << 60;
    ck_assert_int_eq(pl_host_reserve(dev, PL_PLACE_HOST, most, "batch arena", &a, &d),
                     PL_ERR_HOST_OOM);
    ck_assert_ptr_null(a.base);
    ck_assert_msg(strstr(d.message, "batch arena: asked for 1048576.0 TiB "
                                    "(1152921504606846976 bytes) of host memory, ") == d.message,
                  "%s", d.message);
    ck_assert_msg(strstr(d.message, " available (") != NULL, "%s", d.message);
    ck_assert_uint_eq(dev->host_bytes[PL_PLACE_HOST], 0);
    ck_assert_uint_eq(dev->host_allocations, 1);
    pl_device_close(&dev);
}
END_TEST

/* The null device has addresses of its own, as many as a pointer can hold. */
START_TEST(the_null_device_ends_with_its_addresses) {
    struct pl_device *dev = open_device(1, 1000);
    struct pl_arena a, b;
    struct pl_diag d = {0};
    ck_assert_int_eq(pl_host_reserve(dev, PL_PLACE_HOST, UINT64_C(1) << 63, "a", &a, &d),
                     PL_ERR_OK);
    ck_assert_int_eq(pl_host_reserve(dev, PL_PLACE_HOST, UINT64_C(1) << 63, "b", &b, &d),
                     PL_ERR_HOST_OOM);
    ck_assert_str_eq(d.message, "b: the null device ran out of addresses");
    ck_assert_uint_eq(dev->host_bytes[PL_PLACE_HOST], UINT64_C(1) << 63);
    ck_assert_int_eq(pl_host_reserve(dev, PL_PLACE_HOST, 4096, "c", &b, NULL), PL_ERR_OK);
    ck_assert_uint_ge((uintptr_t)b.base, (uintptr_t)a.base + a.bytes);
    pl_host_release(dev, PL_PLACE_HOST, &b);
    pl_host_release(dev, PL_PLACE_HOST, &a);
    pl_device_close(&dev);
}
END_TEST

START_TEST(copies_of_these_devices_need_no_staging) {
    struct pl_device *dev = open_device(_i, 1000);
    dev->inject_pinned = (struct pl_inject){.at = 1, .count = UINT64_MAX};
    ck_assert_int_eq(pl_staging_reserve(dev, NULL), PL_ERR_OK);
    ck_assert_ptr_null(dev->staging);
    ck_assert_uint_eq(dev->pinned_allocations, 0);
    pl_device_close(&dev);
}
END_TEST

/* Large blocks begin at a huge page and give back what lies before and after. */
START_TEST(mapped_pages_are_aligned_and_returned) {
    static const uint64_t sizes[] = {1, 4096, 2097152, 2097153, 3 * 2097152 + 5};
    for (int i = 0; i < COUNT(sizes); i++) {
        char *p = pl_host_map(sizes[i]);
        unsigned char there[1];
        ck_assert_ptr_nonnull(p);
        ck_assert_uint_eq((uintptr_t)p % 2097152, 0);
        const uint64_t end = (sizes[i] + 4095) & ~UINT64_C(4095);
        p[0] = p[sizes[i] - 1] = 1;
        ck_assert_int_eq(mincore(p + end - 4096, 4096, there), 0);
        pl_host_unmap(p, sizes[i]);
        ck_assert_int_eq(mincore(p, 4096, there), -1);
        ck_assert_int_eq(errno, ENOMEM);
    }
    errno = 0;
    ck_assert_ptr_null(pl_host_map(UINT64_MAX));
    ck_assert_int_eq(errno, ENOMEM);
    ck_assert_ptr_null(pl_host_map(UINT64_C(1) << 62));
}
END_TEST

int main(void) {
    Suite *s = suite_create("device.host_memory");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, host_memory_is_in_books_of_its_own, 0, COUNT(backends));
    tcase_add_loop_test(t, nothing_is_asked_for_no_bytes, 0, COUNT(backends));
    tcase_add_test(t, pages_of_the_host_are_zeroed_and_ours);
    tcase_add_loop_test(t, an_injected_failure_is_of_pinned_memory_alone, 0, COUNT(backends));
    tcase_add_test(t, more_than_the_machine_has_is_refused_with_both_numbers);
    tcase_add_test(t, the_null_device_ends_with_its_addresses);
    tcase_add_loop_test(t, copies_of_these_devices_need_no_staging, 0, COUNT(backends));
    tcase_add_test(t, mapped_pages_are_aligned_and_returned);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
