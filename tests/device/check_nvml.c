/* check_nvml.c - which GPU is asked, what it says, and what is said where there is none; the table
 * of GPUs. Through a fake library named by PLIMSOLL_NVML. */
#include "estimator/card/cards.h"
#include "runtime/device/cuda/gpu_query.h"

#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

/* Every test runs in a process of its own, so variables need no cleaning up. */
static void set(const char *name, const char *value) {
    ck_assert_int_eq(setenv(name, value, 1), 0);
}

static void fake(void) {
    const char *path = getenv("FAKE_NVML");
    ck_assert_msg(path != NULL, "FAKE_NVML names the library");
    set("PLIMSOLL_NVML", path);
    unsetenv("CUDA_VISIBLE_DEVICES");
}

START_TEST(a_gpu_is_described_as_the_driver_has_it) {
    struct pl_gpu gpu;
    fake();
    set("FAKE_NVML_TOTAL", "1000000000");
    set("FAKE_NVML_FREE", "900000000");
    set("FAKE_NVML_SM", "120");
    ck_assert_int_eq(pl_nvml_query(0, &gpu, NULL), PL_ERR_OK);
    ck_assert_str_eq(gpu.name, "NVIDIA H100 80GB HBM3");
    ck_assert_str_eq(gpu.uuid, "GPU-fake-0");
    ck_assert_str_eq(gpu.driver, "580.65.06");
    ck_assert_uint_eq(gpu.total_bytes, 1000000000);
    ck_assert_uint_eq(gpu.free_bytes, 900000000);
    ck_assert_uint_eq(gpu.sm, 120);
    ck_assert_uint_eq(gpu.process_bytes, 0);
    /* N1 of nvml.h: the library is gone. */
    ck_assert_ptr_null(dlopen(getenv("PLIMSOLL_NVML"), RTLD_NOW | RTLD_NOLOAD));
}
END_TEST

START_TEST(only_the_bytes_of_this_process_count) {
    struct pl_gpu gpu;
    fake();
    set("FAKE_NVML_PROCESS", "555");
    ck_assert_int_eq(pl_nvml_query(0, &gpu, NULL), PL_ERR_OK);
    ck_assert_uint_eq(gpu.process_bytes, 555);
}
END_TEST

/* A figure that the driver does not count by process is absent. */
START_TEST(an_unknown_figure_is_none) {
    struct pl_gpu gpu;
    fake();
    set("FAKE_NVML_PROCESS", "18446744073709551615");
    ck_assert_int_eq(pl_nvml_query(0, &gpu, NULL), PL_ERR_OK);
    ck_assert_uint_eq(gpu.process_bytes, 0);
}
END_TEST

static const struct {
    const char *visible;
    uint32_t ordinal;
    int index; /* -1 = none */
} choices[] = {
    {NULL, 0, 0},
    {NULL, 3, 3},
    {NULL, 4, -1},
    {"2,0", 0, 2},
    {"2,0", 1, 0},
    {"2,0", 2, -1},
    {"", 0, -1},
    {"-1", 0, -1},
    {"7", 0, -1},
    {"GPU-fake-3,GPU-fake-1", 1, 1},
    {"GPU-none", 0, -1},
    {"1,,2", 1, -1},
    {"99999999999999999999", 0, -1},
};

/* N2 of nvml.h. */
START_TEST(a_gpu_is_found_as_cuda_counts) {
    struct pl_gpu gpu;
    struct pl_diag d = {0};
    char uuid[32];
    fake();
    set("FAKE_NVML_GPUS", "4");
    if (choices[_i].visible) set("CUDA_VISIBLE_DEVICES", choices[_i].visible);
    pl_err err = pl_nvml_query(choices[_i].ordinal, &gpu, &d);
    ck_assert_int_eq(err, choices[_i].index < 0 ? PL_ERR_NO_DEVICE : PL_ERR_OK);
    if (err != PL_ERR_OK) {
        ck_assert_ptr_nonnull(strstr(d.message, "cuda:"));
        return;
    }
    snprintf(uuid, sizeof uuid, "GPU-fake-%d", choices[_i].index);
    ck_assert_str_eq(gpu.uuid, uuid);
    ck_assert_uint_eq(gpu.total_bytes, (80 << 10) * MIB - (uint64_t)choices[_i].index * MIB);
}
END_TEST

static const struct {
    const char *visible;
    uint32_t ordinal;
    const char *uuid; /* NULL = none */
} slices[] = {
    {"MIG-fake-1-1", 0, "MIG-fake-1-1"},
    {"MIG-fake-1-1,MIG-fake-0-1", 1, "MIG-fake-0-1"},
    {"MIG-fake-1-2", 0, NULL},
    {NULL, 0, "MIG-fake-0-0"},
    {"1", 0, "MIG-fake-1-0"},
    {"GPU-fake-1", 0, "MIG-fake-1-0"},
    {NULL, 2, NULL},
};

/* N2 of nvml.h. CUDA sees the slice that is named, and of a GPU that is cut into them the first. */
START_TEST(a_slice_is_described_and_not_its_gpu) {
    struct pl_gpu gpu;
    struct pl_diag d = {0};
    fake();
    set("FAKE_NVML_GPUS", "2");
    set("FAKE_NVML_MIG", "2");
    set("FAKE_NVML_TOTAL", "160000000000");
    if (slices[_i].visible) set("CUDA_VISIBLE_DEVICES", slices[_i].visible);
    pl_err err = pl_nvml_query(slices[_i].ordinal, &gpu, &d);
    ck_assert_int_eq(err, slices[_i].uuid ? PL_ERR_OK : PL_ERR_NO_DEVICE);
    if (!slices[_i].uuid) return;
    ck_assert_str_eq(gpu.uuid, slices[_i].uuid);
    ck_assert_uint_lt(gpu.total_bytes, 10000000001);
    ck_assert_uint_gt(gpu.total_bytes, 9990000000);
    ck_assert_uint_eq(gpu.sm, 90);
}
END_TEST

START_TEST(a_gpu_in_slices_that_has_none_says_so) {
    struct pl_gpu gpu;
    struct pl_diag d = {0};
    fake();
    set("FAKE_NVML_MIG", "0");
    ck_assert_int_eq(pl_nvml_query(0, &gpu, &d), PL_ERR_NO_DEVICE);
    ck_assert_msg(strstr(d.message, "has no slice") != NULL, "%s", d.message);
}
END_TEST

START_TEST(a_library_that_cannot_answer_is_no_device) {
    static const struct {
        const char *library, *word;
    } cases[] = {{"/nonexistent/libnvidia-ml.so.1", "no NVIDIA driver"},
                 {"libm.so.6", "too old"},
                 {NULL, "Driver Not Loaded"}};
    struct pl_gpu gpu;
    struct pl_diag d = {0};
    fake();
    if (cases[_i].library)
        set("PLIMSOLL_NVML", cases[_i].library);
    else
        set("FAKE_NVML_FAIL", "1");
    ck_assert_int_eq(pl_nvml_query(0, &gpu, &d), PL_ERR_NO_DEVICE);
    ck_assert_msg(strstr(d.message, cases[_i].word) != NULL, "%s", d.message);
    ck_assert_str_eq(gpu.name, "");
}
END_TEST

static int contexts; /* that this process has made */

static pl_err describe_one(uint32_t ordinal, struct pl_gpu *out, struct pl_diag *d) {
    contexts++;
    if (ordinal > 0) return pl_diag_set(d, PL_ERR_NO_DEVICE, "one alone");
    out->total_bytes = 5000 * MIB;
    return PL_ERR_OK;
}

/* Q1 of gpu_query.h, and the words are those of NVML where CUDA has no such GPU either. */
START_TEST(without_nvml_a_child_asks_cuda) {
    const struct pl_device_ops ops = {.describe = describe_one};
    struct pl_gpu gpu = {0};
    struct pl_diag d = {0};
    set("PLIMSOLL_NVML", "/nonexistent/libnvidia-ml.so.1");
    ck_assert_int_eq(pl_gpu_query(&ops, 0, &gpu, &d), PL_ERR_OK);
    ck_assert_uint_eq(gpu.total_bytes, 5000 * MIB);
    ck_assert_int_eq(pl_gpu_query(&ops, 1, &gpu, &d), PL_ERR_NO_DEVICE);
    ck_assert_msg(strstr(d.message, "no NVIDIA driver") != NULL, "%s", d.message);
    ck_assert_int_eq(contexts, 0);
}
END_TEST

static const struct {
    const char *name, *row;
    uint32_t sm, gb;
} names[] = {
    {"NVIDIA H100 80GB HBM3", "H100", 90, 80},
    {"NVIDIA H100 PCIe", "H100", 90, 80},
    {"NVIDIA H200", "H200", 90, 141},
    {"NVIDIA A100-SXM4-80GB", "A100 80GB", 80, 80},
    {"NVIDIA A100 80GB PCIe", "A100 80GB", 80, 80},
    {"NVIDIA A100-SXM4-40GB", "A100 40GB", 80, 40},
    {"NVIDIA A100-SXM4-40GB MIG 1g.5gb", "A100 1g.5gb", 80, 5},
    {"NVIDIA GeForce RTX 4070 Laptop GPU", "RTX 4070 Laptop", 89, 8},
    {"NVIDIA GeForce RTX 4070 Ti SUPER", "RTX 4070 Ti SUPER", 89, 16},
    {"NVIDIA GeForce RTX 5090", "RTX 5090", 120, 32},
    {"NVIDIA GeForce RTX 4090", "RTX 4090", 89, 24},
    {"NVIDIA GeForce RTX 3090", "RTX 3090", 86, 24},
    {"nvidia l40s", "L40S", 89, 48},
    {"NVIDIA L4", "L4", 89, 24},
    {"NVIDIA A10", "A10", 86, 24},
    {"Tesla T4", "T4", 75, 16},
    {"Tesla V100-SXM2-32GB", "V100 32GB", 70, 32},
    {"NVIDIA A1000", NULL, 0, 0},
    {"NVIDIA XL4", NULL, 0, 0},
    {"", NULL, 0, 0},
};

START_TEST(a_card_is_known_by_the_words_of_its_name) {
    const struct pl_card *card = pl_card_find(names[_i].name);
    if (!names[_i].row) {
        ck_assert_ptr_null(card);
        return;
    }
    ck_assert_ptr_nonnull(card);
    ck_assert_str_eq(card->name, names[_i].row);
    ck_assert_uint_eq(card->sm, names[_i].sm);
    ck_assert_uint_eq(card->nameplate_gb, names[_i].gb);
}
END_TEST

START_TEST(a_row_of_the_table_is_plausible) {
    size_t n;
    const struct pl_card *cards = pl_card_table(&n);
    ck_assert_uint_ge(n, 40);
    for (size_t i = 0; i < n; i++) {
        uint64_t nameplate = (uint64_t)cards[i].nameplate_gb << 30;
        ck_assert_msg(cards[i].visible_bytes < nameplate, "%s", cards[i].name);
        ck_assert_msg(cards[i].visible_bytes > nameplate / 100 * 85, "%s", cards[i].name);
        ck_assert_uint_ge(cards[i].context_bytes, 100 * MIB);
        ck_assert_uint_lt(cards[i].context_bytes, 1024 * MIB);
        ck_assert_ptr_eq(pl_card_find(cards[i].name), &cards[i]);
    }
}
END_TEST

#define N(a) (int)(sizeof(a) / sizeof *(a))

int main(void) {
    Suite *s = suite_create("device.nvml");
    TCase *tc = tcase_create("gpus");
    tcase_add_test(tc, a_gpu_is_described_as_the_driver_has_it);
    tcase_add_test(tc, only_the_bytes_of_this_process_count);
    tcase_add_test(tc, an_unknown_figure_is_none);
    tcase_add_loop_test(tc, a_gpu_is_found_as_cuda_counts, 0, N(choices));
    tcase_add_loop_test(tc, a_slice_is_described_and_not_its_gpu, 0, N(slices));
    tcase_add_test(tc, a_gpu_in_slices_that_has_none_says_so);
    tcase_add_loop_test(tc, a_library_that_cannot_answer_is_no_device, 0, 3);
    tcase_add_test(tc, without_nvml_a_child_asks_cuda);
    tcase_add_loop_test(tc, a_card_is_known_by_the_words_of_its_name, 0, N(names));
    tcase_add_test(tc, a_row_of_the_table_is_plausible);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
