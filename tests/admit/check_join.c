/* check_join.c - what a rank changes in its job, the settings that ranks cannot have, and how many
 * GPUs `auto` is.
 *
 * NVML is the fake of tests/device; of the CUDA back-end there is no more than that it is built. */
#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"
#include "estimator/config/validate.h"
#include "runtime/admit/agreed.h"
#include "runtime/admit/device_choice.h"
#include "runtime/admit/rank_count.h"
#include "runtime/kernels/back_ends.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct pl_device_ops pl_device_cuda = {.name = "cuda"};
const struct pl_back_end pl_back_end_cuda = {.ops = &pl_device_cuda};

/* Every test runs in a process of its own, so variables need no cleaning up. */
static void set(const char *name, const char *value) {
    ck_assert_int_eq(setenv(name, value, 1), 0);
}

static void fake_gpus(const char *n, const char *bytes) {
    ck_assert_msg(getenv("FAKE_NVML") != NULL, "FAKE_NVML names the library");
    set("PLIMSOLL_NVML", getenv("FAKE_NVML"));
    set("FAKE_NVML_GPUS", n);
    set("FAKE_NVML_TOTAL", bytes);
    unsetenv("CUDA_VISIBLE_DEVICES");
}

static void read_job(struct pl_job *job, const char *const settings[]) {
    ck_assert_int_eq(pl_job_defaults(job, NULL), PL_ERR_OK);
    for (int i = 0; settings[i]; i++)
        ck_assert_int_eq(pl_job_assign(job, settings[i], NULL, NULL), PL_ERR_OK);
}

#define READ(job, ...) read_job(job, (const char *const[]){__VA_ARGS__, NULL})

static const struct pl_world third_of_four = {
    .rank = 2, .size = 4, .local_rank = 1, .local_size = 2, .launcher = "torchrun"};

static struct pl_spec join(const struct pl_job *job, const struct pl_world *world) {
    struct pl_spec spec;
    pl_spec_init(&spec, job);
    ck_assert_int_eq(pl_ranks_join(&spec, world, NULL), PL_ERR_OK);
    return spec;
}

static pl_err refused(const struct pl_job *job, const struct pl_world *world, struct pl_diag *d) {
    struct pl_spec spec;
    pl_spec_init(&spec, job);
    return pl_ranks_join(&spec, world, d);
}

START_TEST(a_rank_takes_its_number_and_its_device) {
    struct pl_job job;
    READ(&job, "mode=full", "device=cuda");
    const struct pl_spec spec = join(&job, &third_of_four);
    ck_assert_uint_eq(spec.job.devices, 4);
    ck_assert_uint_eq(spec.job.device, PL_DEVICE_CUDA_AT + 1);
    ck_assert_uint_eq(pl_job_ranks(&spec.job), 4);
    ck_assert(pl_job_orders_ranks(&spec.job));
    ck_assert_uint_eq(job.devices, 1); /* S1 of spec.h */
    ck_assert_uint_eq(job.device, PL_DEVICE_CUDA);
    pl_job_finish(&job);
}
END_TEST

START_TEST(a_device_that_is_named_stays) {
    static const char *const devices[] = {"device=cpu", "device=cuda:3", "device=auto"};
    struct pl_job job;
    READ(&job, "mode=full", devices[_i]);
    ck_assert_uint_eq(join(&job, &third_of_four).job.device, job.device);
    pl_job_finish(&job);
}
END_TEST

/* --- the GPU of a rank ------------------------------------------------------------------------ */

START_TEST(auto_is_the_gpu_of_the_rank) {
    struct pl_job job;
    struct pl_gpu gpu;
    uint32_t device;
    fake_gpus("2", "80000000000");
    READ(&job, "mode=full");
    const struct pl_spec spec = join(&job, &third_of_four);
    ck_assert_int_eq(pl_device_decide(&spec.job, &third_of_four, &device, &gpu, NULL), PL_ERR_OK);
    ck_assert_uint_eq(device, PL_DEVICE_CUDA_AT + 1);
    ck_assert_str_eq(gpu.uuid, "GPU-fake-1");
    pl_job_finish(&job);
}
END_TEST

START_TEST(fewer_gpus_than_ranks_are_refused) {
    struct pl_job job;
    struct pl_gpu gpu;
    uint32_t device;
    struct pl_diag d = {0};
    struct pl_world first = third_of_four;
    first.local_rank = 0;
    fake_gpus("1", "80000000000");
    READ(&job, "mode=full");
    ck_assert_int_eq(pl_device_decide(&job, &first, &device, &gpu, &d), PL_ERR_NO_DEVICE);
    ck_assert_msg(strstr(d.message, "1 GPU for 2 ranks"), "%s", d.message);
    pl_job_finish(&job);
}
END_TEST

START_TEST(without_a_gpu_auto_is_the_cpu) {
    struct pl_job job;
    struct pl_gpu gpu;
    uint32_t device;
    fake_gpus("2", "80000000000");
    set("FAKE_NVML_FAIL", "1");
    READ(&job, "mode=full");
    ck_assert_int_eq(pl_device_decide(&job, &third_of_four, &device, &gpu, NULL), PL_ERR_OK);
    ck_assert_uint_eq(device, PL_DEVICE_CPU);
    pl_job_finish(&job);
}
END_TEST

START_TEST(alone_auto_is_the_first_gpu) {
    struct pl_job job;
    struct pl_gpu gpu;
    uint32_t device;
    fake_gpus("2", "80000000000");
    READ(&job, "mode=full");
    ck_assert_int_eq(pl_device_decide(&job, NULL, &device, &gpu, NULL), PL_ERR_OK);
    ck_assert_uint_eq(device, PL_DEVICE_CUDA);
    pl_job_finish(&job);
}
END_TEST

/* Ranks of a machine do not each have all of its memory. Other processes take and give some of it
 * between the two questions. */
START_TEST(ranks_on_the_cpu_share_its_memory) {
    const struct pl_gpu none = {0};
    uint64_t bytes[2];
    for (int i = 0; i < 2; i++) {
        struct pl_job job;
        struct pl_traits traits;
        struct pl_budget budget;
        struct pl_context context;
        struct pl_spec spec;
        READ(&job, "mode=full", "device=cpu");
        pl_spec_init(&spec, &job);
        pl_device_budget(&spec, i ? &third_of_four : NULL, &none, &traits, &budget, &context);
        bytes[i] = budget.total_bytes;
        ck_assert(i == 0 || strstr(budget.source, "share"));
        pl_job_finish(&job);
    }
    ck_assert_msg(bytes[1] > bytes[0] / 2 - bytes[0] / 10 &&
                      bytes[1] < bytes[0] / 2 + bytes[0] / 10,
                  "%llu of %llu bytes", (unsigned long long)bytes[1], (unsigned long long)bytes[0]);
}
END_TEST

/* --- how many --------------------------------------------------------------------------------- */

static const struct {
    const char *gpus, *bytes, *model;
    const char *settings[4]; /* NULL-terminated */
    uint32_t devices;
    const char *says; /* NULL: nothing */
} counts[] = {
    {"4", "80000000000", "Qwen2.5-0.5B", {"mode=full", NULL}, 1, "1 of the 4 GPUs: as few"},
    {"4", "24000000000", "Qwen2.5-7B", {"mode=full", "batch_size=1", NULL}, 4, "do not hold"},
    {"8", "80000000000", "Qwen2.5-7B", {"mode=full", "batch_size=auto", NULL}, 2, "2 of the 8 GP"},
    {"8", "80000000000", "Qwen2.5-7B", {"mode=full", "device=cuda", NULL}, 2, "2 of the 8 GPUs"},
    {"8", "80000000000", "Qwen2.5-7B", {"mode=full", "device=cuda:3", NULL}, 1, NULL},
    {"8", "80000000000", "Qwen2.5-7B", {"mode=full", "device=cpu", NULL}, 1, NULL},
    {"8", "24000000000", "Qwen2.5-7B", {"mode=full", "offload=optimizer", NULL}, 1, NULL},
    {"1", "24000000000", "Qwen2.5-7B", {"mode=full", NULL}, 1, NULL},
};

static uint32_t count(const char *gpus, int row, struct pl_text *notes) {
    struct pl_job job;
    struct pl_model model;
    char path[64];
    fake_gpus(gpus, counts[row].bytes);
    read_job(&job, counts[row].settings);
    ck_assert_int_eq(pl_job_assign(&job, "devices=auto", NULL, NULL), PL_ERR_OK);
    snprintf(path, sizeof path, "catalogue:Qwen/%s", counts[row].model);
    ck_assert_int_eq(pl_model_read(path, &model, NULL), PL_ERR_OK);
    uint32_t n;
    ck_assert_int_eq(pl_rank_count_decide(&job, &model, &n, notes, NULL), PL_ERR_OK);
    pl_job_finish(&job);
    return n;
}

/* N1 of rank_count.h, and N2 of rank_count.h for the rows that are told nothing. */
START_TEST(as_few_gpus_as_hold_the_job) {
    struct pl_text notes = {0};
    const uint32_t n = count(counts[_i].gpus, _i, &notes);
    ck_assert_msg(n == counts[_i].devices, "%u: %s", n, pl_text_str(&notes));
    if (counts[_i].says)
        ck_assert_msg(strstr(pl_text_str(&notes), counts[_i].says), "%s", pl_text_str(&notes));
    else
        ck_assert_uint_eq(notes.len, 0);
    pl_text_finish(&notes);
}
END_TEST

/* --- other settings --------------------------------------------------------------------------- */

START_TEST(alone_nothing_changes) {
    const struct pl_world alone = {.size = 1, .local_size = 1};
    struct pl_job job;
    READ(&job, "mode=full", "device=cuda");
    const struct pl_spec spec = join(&job, &alone);
    ck_assert_uint_eq(spec.job.devices, 1);
    ck_assert_uint_eq(spec.job.device, PL_DEVICE_CUDA);
    ck_assert(!pl_job_orders_ranks(&spec.job));
    pl_job_finish(&job);
}
END_TEST

START_TEST(another_number_of_ranks_is_refused) {
    struct pl_job job;
    struct pl_diag d = {0};
    READ(&job, "mode=full", "devices=2");
    ck_assert_int_eq(refused(&job, &third_of_four, &d), PL_ERR_COMM_INIT);
    ck_assert_msg(strstr(d.message, "`devices` is 2, and torchrun started 4 ranks"), "%s",
                  d.message);
    pl_job_finish(&job);
    READ(&job, "mode=full", "devices=4");
    ck_assert_int_eq(refused(&job, &third_of_four, NULL), PL_ERR_OK);
    pl_job_finish(&job);
    READ(&job, "mode=full", "devices=auto");
    ck_assert_uint_eq(join(&job, &third_of_four).job.devices, 4);
    pl_job_finish(&job);
}
END_TEST

/* `devices` may or may not give their number. */
START_TEST(ranks_of_a_launcher_cannot_have_it_either) {
    struct pl_job job;
    struct pl_diag d = {0};
    READ(&job, "mode=full", "offload=optimizer");
    ck_assert_int_eq(refused(&job, &third_of_four, &d), PL_ERR_CONFIG_CONFLICT);
    ck_assert_msg(strstr(d.message, "host memory"), "%s", d.message);
    pl_job_finish(&job);
}
END_TEST

START_TEST(what_ranks_cannot_have_is_refused) {
    static const struct {
        const char *settings[4];
        pl_err err;
    } rows[] = {
        {{"mode=full", "devices=2", "offload=optimizer"}, PL_ERR_CONFIG_CONFLICT},
        {{"mode=full", "devices=2", "full_ft_offload=true"}, PL_ERR_CONFIG_CONFLICT},
        {{"mode=lora", "devices=2", "embedding_device=host"}, PL_ERR_CONFIG_CONFLICT},
        {{"mode=full", "rank_order=true", "offload=weights"}, PL_ERR_CONFIG_CONFLICT},
        {{"mode=full", "devices=2", "gradient_checkpointing=offload"}, PL_ERR_OK},
        {{"mode=full", "devices=1", "offload=optimizer"}, PL_ERR_OK},
        {{"mode=full", "devices=2", "sharding=weights"}, PL_ERR_OK},
    };
    struct pl_job job;
    struct pl_diag d = {0};
    read_job(&job, rows[_i].settings);
    ck_assert_int_eq(pl_job_validate(&job, &d), rows[_i].err);
    if (rows[_i].err != PL_ERR_OK) ck_assert_msg(strstr(d.message, "host memory"), "%s", d.message);
    pl_job_finish(&job);
}
END_TEST

/* Micro-batches of a rank, of those of the step. */
START_TEST(a_step_is_shared) {
    struct pl_job job;
    READ(&job, "mode=full", "devices=4", "global_batch_size=20");
    ck_assert_uint_eq(pl_job_accumulation(&job, 2), 3); /* 8 + 8 + 4 */
    ck_assert_uint_eq(pl_job_accumulation(&job, 5), 1);
    pl_job_finish(&job);
}
END_TEST

int main(void) {
    Suite *s = suite_create("admit.join");
    TCase *tc = tcase_create("ranks");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, a_rank_takes_its_number_and_its_device);
    tcase_add_loop_test(tc, a_device_that_is_named_stays, 0, 3);
    tcase_add_test(tc, auto_is_the_gpu_of_the_rank);
    tcase_add_test(tc, fewer_gpus_than_ranks_are_refused);
    tcase_add_test(tc, without_a_gpu_auto_is_the_cpu);
    tcase_add_test(tc, alone_auto_is_the_first_gpu);
    tcase_add_test(tc, ranks_on_the_cpu_share_its_memory);
    tcase_add_loop_test(tc, as_few_gpus_as_hold_the_job, 0, sizeof counts / sizeof *counts);
    tcase_add_test(tc, alone_nothing_changes);
    tcase_add_test(tc, ranks_of_a_launcher_cannot_have_it_either);
    tcase_add_test(tc, another_number_of_ranks_is_refused);
    tcase_add_loop_test(tc, what_ranks_cannot_have_is_refused, 0, 7);
    tcase_add_test(tc, a_step_is_shared);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
