/* check_device.c - arenas, budgets, counters and injected failures on both back-ends. */
#include "runtime/device/cpu/cpu.h"
#include "runtime/device/null/null.h"
#include "runtime/kernels/back_ends.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const struct pl_back_end *const backends[] = {&pl_back_end_cpu, &pl_back_end_null};
enum { N_BACKENDS = sizeof backends / sizeof *backends };

static struct pl_device *open_device(int backend, uint64_t budget) {
    struct pl_device *dev;
    struct pl_diag d = {0};
    if (pl_device_open(backends[backend], 2, budget, &dev, &d) != PL_ERR_OK)
        ck_abort_msg("%s", d.message);
    return dev;
}

START_TEST(an_arena_is_counted_and_given_back) {
    struct pl_device *dev = open_device(_i, 10000);
    struct pl_arena a, b;
    ck_assert_int_eq(pl_arena_reserve(dev, 6000, "a", &a, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_arena_reserve(dev, 4000, "b", &b, NULL), PL_ERR_OK);
    ck_assert_ptr_nonnull(a.base);
    ck_assert_ptr_ne(a.base, b.base);
    ck_assert_uint_eq(a.bytes, 6000);
    ck_assert_uint_eq(dev->used_bytes, 10000);
    pl_arena_release(dev, &a);
    ck_assert_ptr_null(a.base);
    ck_assert_uint_eq(dev->used_bytes, 4000);
    ck_assert_uint_eq(dev->peak_bytes, 10000);
    ck_assert_uint_eq(dev->allocations, 2);
    ck_assert_uint_eq(dev->failed_allocations, 0);
    pl_arena_release(dev, &b);
    pl_device_close(&dev);
    ck_assert_ptr_null(dev);
}
END_TEST

/* D1 of device.h. */
START_TEST(an_allocation_past_the_budget_changes_nothing) {
    struct pl_device *dev = open_device(_i, 10000);
    struct pl_arena a, b = {&a, 1};
    struct pl_diag d = {0};
    ck_assert_int_eq(pl_arena_reserve(dev, 6000, "job arena", &a, &d), PL_ERR_OK);
    ck_assert_int_eq(pl_arena_reserve(dev, 4001, "batch arena", &b, &d), PL_ERR_DEVICE_OOM);
    ck_assert_ptr_null(b.base);
    ck_assert_uint_eq(b.bytes, 0);
    ck_assert_uint_eq(dev->used_bytes, 6000);
    ck_assert_uint_eq(dev->peak_bytes, 6000);
    ck_assert_uint_eq(dev->allocations, 2);
    ck_assert_uint_eq(dev->failed_allocations, 1);
    ck_assert_ptr_nonnull(strstr(d.message, "batch arena"));
    ck_assert_ptr_nonnull(strstr(d.message, "4001 bytes"));
    ck_assert_ptr_nonnull(strstr(d.message, "4000 bytes"));
    pl_arena_release(dev, &a);
    pl_device_close(&dev);
}
END_TEST

START_TEST(zero_bytes_need_no_allocation) {
    struct pl_device *dev = open_device(_i, 0);
    struct pl_arena a = {&dev, 1};
    ck_assert_int_eq(pl_arena_reserve(dev, 0, "empty", &a, NULL), PL_ERR_OK);
    ck_assert_ptr_null(a.base);
    ck_assert_uint_eq(dev->allocations, 0);
    pl_arena_release(dev, &a);
    pl_device_close(&dev);
}
END_TEST

START_TEST(arenas_are_aligned_and_zeroed) {
    static const uint64_t sizes[] = {1, 300, 5000, (UINT64_C(4) << 20) + 1};
    struct pl_device *dev = open_device(_i, PL_NO_BUDGET);
    for (int i = 0; i < 4; i++) {
        struct pl_arena a;
        char first = 1, last = 1;
        ck_assert_int_eq(pl_arena_reserve(dev, sizes[i], "a", &a, NULL), PL_ERR_OK);
        ck_assert_uint_eq((uintptr_t)a.base % dev->traits.align_bytes, 0);
        ck_assert_int_eq(dev->ops->download(dev, &first, a.base, 1), PL_ERR_OK);
        ck_assert_int_eq(dev->ops->download(dev, &last, (char *)a.base + sizes[i] - 1, 1),
                         PL_ERR_OK);
        ck_assert_int_eq(first, 0);
        ck_assert_int_eq(last, 0);
        pl_arena_release(dev, &a);
    }
    pl_device_close(&dev);
}
END_TEST

/* D3 of device.h: allocations 3 and 4 fail, 1, 2 and 5 do not. D2 of device.h: failed calls
 * count. */
START_TEST(injection_fails_the_allocations_it_names) {
    static const pl_err want[] = {PL_ERR_OK, PL_ERR_OK, PL_ERR_DEVICE_OOM, PL_ERR_DEVICE_OOM,
                                  PL_ERR_OK};
    struct pl_device *dev = open_device(_i, PL_NO_BUDGET);
    dev->inject = (struct pl_inject){.at = 3, .count = 2};
    for (int i = 0; i < 5; i++) {
        struct pl_arena a;
        ck_assert_int_eq(pl_arena_reserve(dev, 256, "a", &a, NULL), want[i]);
        ck_assert_uint_eq(dev->used_bytes, want[i] == PL_ERR_OK ? 256 : 0);
        pl_arena_release(dev, &a);
    }
    ck_assert_uint_eq(dev->allocations, 5);
    ck_assert_uint_eq(dev->failed_allocations, 2);
    pl_device_close(&dev);
}
END_TEST

START_TEST(injection_for_ever_lasts) {
    struct pl_device *dev = open_device(_i, PL_NO_BUDGET);
    dev->inject = (struct pl_inject){.at = 1, .count = UINT64_MAX};
    for (int i = 0; i < 100; i++) {
        struct pl_arena a;
        struct pl_diag d = {0};
        ck_assert_int_eq(pl_arena_reserve(dev, 256, "a", &a, &d), PL_ERR_DEVICE_OOM);
        ck_assert_ptr_nonnull(strstr(d.message, "(0 bytes)"));
    }
    pl_device_close(&dev);
}
END_TEST

START_TEST(the_machine_is_a_limit_without_a_budget) {
    struct pl_device *dev = open_device(0, PL_NO_BUDGET);
    struct pl_arena a;
    uint64_t free_bytes = 0;
    ck_assert_int_eq(dev->ops->free_bytes(dev, &free_bytes, NULL), PL_ERR_OK);
    ck_assert_uint_gt(free_bytes, UINT64_C(1) << 20);
    ck_assert_uint_lt(free_bytes, UINT64_C(1) << 50);
    ck_assert_int_eq(pl_arena_reserve(dev, free_bytes * 4, "a", &a, NULL), PL_ERR_DEVICE_OOM);
    pl_device_close(&dev);
}
END_TEST

START_TEST(cpu_memory_holds_what_was_uploaded) {
    struct pl_device *dev = open_device(0, PL_NO_BUDGET);
    struct pl_arena a;
    char text[] = "load line", back[sizeof text] = {0};
    ck_assert_int_eq(pl_arena_reserve(dev, 64, "a", &a, NULL), PL_ERR_OK);
    ck_assert_int_eq(dev->ops->upload(dev, a.base, text, sizeof text), PL_ERR_OK);
    ck_assert_int_eq(dev->ops->download(dev, back, a.base, sizeof back), PL_ERR_OK);
    ck_assert_str_eq(back, text);
    pl_arena_release(dev, &a);
    pl_device_close(&dev);
}
END_TEST

START_TEST(the_cpu_device_runs_the_best_level) {
    struct pl_device *dev = open_device(0, PL_NO_BUDGET);
    struct pl_cpu_level levels[PL_CPU_MAX_LEVELS];
    ck_assert_uint_ge(pl_cpu_levels(levels, PL_CPU_MAX_LEVELS), 1);
    ck_assert_ptr_eq(dev->kernels, pl_back_end_cpu.kernels->tables[levels[0].number]);
    ck_assert_str_eq(pl_cpu_of(dev)->level, levels[0].name);
    ck_assert_uint_eq(pl_pool_threads(pl_cpu_of(dev)->pool), 2);
    ck_assert_int_eq(dev->traits.backend, PL_BACKEND_CPU);
    pl_device_close(&dev);
}
END_TEST

START_TEST(the_environment_names_a_level) {
    struct pl_cpu_level levels[PL_CPU_MAX_LEVELS], chosen;
    uint32_t n = pl_cpu_levels(levels, PL_CPU_MAX_LEVELS);
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_int_eq(setenv("PLIMSOLL_CPU_LEVEL", levels[i].name, 1), 0);
        struct pl_device *dev = open_device(0, PL_NO_BUDGET);
        ck_assert_ptr_eq(dev->kernels, pl_back_end_cpu.kernels->tables[levels[i].number]);
        pl_device_close(&dev);
    }
    ck_assert_int_eq(setenv("PLIMSOLL_CPU_LEVEL", "", 1), 0);
    ck_assert_int_eq(pl_cpu_level(true, &chosen, NULL), PL_ERR_OK);
    ck_assert_ptr_eq(pl_back_end_cpu.kernels->tables[chosen.number],
                     pl_back_end_cpu.kernels->tables[levels[0].number]);
}
END_TEST

START_TEST(a_level_that_does_not_run_here_is_refused_with_those_that_do) {
    struct pl_cpu_level levels[PL_CPU_MAX_LEVELS];
    struct pl_device *dev = NULL;
    struct pl_diag d = {0};
    ck_assert_uint_ge(pl_cpu_levels(levels, PL_CPU_MAX_LEVELS), 1);
    ck_assert_int_eq(setenv("PLIMSOLL_CPU_LEVEL", "x86-64-v9", 1), 0);
    ck_assert_int_eq(pl_device_open(&pl_back_end_cpu, 1, PL_NO_BUDGET, &dev, &d), PL_ERR_NO_DEVICE);
    ck_assert_ptr_null(dev);
    ck_assert_msg(strstr(d.message, "PLIMSOLL_CPU_LEVEL=x86-64-v9"), "%s", d.message);
    ck_assert_msg(strstr(pl_diag_hint_text(&d), levels[0].name), "%s", pl_diag_hint_text(&d));
}
END_TEST

START_TEST(every_level_has_every_kernel_but_staging) {
    struct pl_cpu_level levels[PL_CPU_MAX_LEVELS];
    uint32_t n = pl_cpu_levels(levels, PL_CPU_MAX_LEVELS);
    for (uint32_t i = 0; i < n; i++)
        for (int k = 0; k < PL_OP_COUNT; k++) {
            bool staging = k == PL_OP_STAGE_IN || k == PL_OP_STAGE_OUT;
            ck_assert_msg((pl_back_end_cpu.kernels->tables[levels[i].number][k] == NULL) == staging,
                          "%s: op %d", levels[i].name, k);
        }
}
END_TEST

START_TEST(the_null_device_only_counts) {
    struct pl_device *dev = open_device(1, PL_NO_BUDGET);
    struct pl_call c = {0};
    struct pl_arena a;
    uint64_t word = 5;
    ck_assert_int_eq(pl_arena_reserve(dev, UINT64_C(1) << 45, "a", &a, NULL), PL_ERR_OK);
    ck_assert_int_eq(dev->ops->upload(dev, a.base, &word, sizeof word), PL_ERR_OK);
    ck_assert_int_eq(dev->ops->download(dev, &word, a.base, sizeof word), PL_ERR_OK);
    ck_assert_uint_eq(word, 0);
    ck_assert_uint_eq(pl_null_of(dev)->uploads, 1);
    ck_assert_uint_eq(pl_null_of(dev)->upload_bytes, 8);
    ck_assert_uint_eq(pl_null_of(dev)->downloads, 1);
    for (int k = 0; k < PL_OP_COUNT; k++)
        ck_assert_int_eq(dev->kernels[k](dev, &c), PL_ERR_OK);
    ck_assert_int_eq(dev->traits.backend, PL_BACKEND_NULL);
    pl_arena_release(dev, &a);
    pl_device_close(&dev);
}
END_TEST

START_TEST(at_least_one_core_is_ours) {
    ck_assert_uint_ge(pl_cpu_count(), 1);
    ck_assert_uint_le(pl_cpu_count(), 65536);
}
END_TEST

int main(void) {
    Suite *s = suite_create("device");
    TCase *both = tcase_create("both back-ends"), *one = tcase_create("one back-end");
    tcase_set_timeout(both, 60);
    tcase_set_timeout(one, 60);
    tcase_add_loop_test(both, an_arena_is_counted_and_given_back, 0, N_BACKENDS);
    tcase_add_loop_test(both, an_allocation_past_the_budget_changes_nothing, 0, N_BACKENDS);
    tcase_add_loop_test(both, zero_bytes_need_no_allocation, 0, N_BACKENDS);
    tcase_add_loop_test(both, arenas_are_aligned_and_zeroed, 0, N_BACKENDS);
    tcase_add_loop_test(both, injection_fails_the_allocations_it_names, 0, N_BACKENDS);
    tcase_add_loop_test(both, injection_for_ever_lasts, 0, N_BACKENDS);
    tcase_add_test(one, the_machine_is_a_limit_without_a_budget);
    tcase_add_test(one, cpu_memory_holds_what_was_uploaded);
    tcase_add_test(one, the_cpu_device_runs_the_best_level);
    tcase_add_test(one, the_environment_names_a_level);
    tcase_add_test(one, a_level_that_does_not_run_here_is_refused_with_those_that_do);
    tcase_add_test(one, every_level_has_every_kernel_but_staging);
    tcase_add_test(one, the_null_device_only_counts);
    tcase_add_test(one, at_least_one_core_is_ours);
    suite_add_tcase(s, both);
    suite_add_tcase(s, one);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
