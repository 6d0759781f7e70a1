/* check_join.c - what a rank changes in its job, and the settings that ranks cannot have. */
#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"
#include "estimator/config/validate.h"
#include "runtime/admit/join.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static void read_job(struct pl_job *job, const char *const settings[]) {
    ck_assert_int_eq(pl_job_defaults(job, NULL), PL_ERR_OK);
    for (int i = 0; settings[i]; i++)
        ck_assert_int_eq(pl_job_assign(job, settings[i], NULL, NULL), PL_ERR_OK);
}

#define READ(job, ...) read_job(job, (const char *const[]){__VA_ARGS__, NULL})

static const struct pl_world third_of_four = {
    .rank = 2, .size = 4, .local_rank = 1, .local_size = 2, .launcher = "torchrun"};

START_TEST(a_rank_takes_its_number_and_its_device) {
    struct pl_job job;
    READ(&job, "mode=full", "device=cuda");
    ck_assert_int_eq(pl_ranks_join(&job, &third_of_four, NULL), PL_ERR_OK);
    ck_assert_uint_eq(job.devices, 4);
    ck_assert_uint_eq(job.rank, 2);
    ck_assert_uint_eq(job.device, PL_DEVICE_CUDA_AT + 1);
    ck_assert_uint_eq(pl_job_ranks(&job), 4);
    ck_assert(pl_job_orders_ranks(&job));
    pl_job_finish(&job);
}
END_TEST

START_TEST(a_device_that_is_named_stays) {
    static const char *const devices[] = {"device=cpu", "device=cuda:3", "device=auto"};
    struct pl_job job;
    READ(&job, "mode=full", devices[_i]);
    const uint32_t named = job.device;
    ck_assert_int_eq(pl_ranks_join(&job, &third_of_four, NULL), PL_ERR_OK);
    ck_assert_uint_eq(job.device, named);
    pl_job_finish(&job);
}
END_TEST

START_TEST(alone_nothing_changes) {
    const struct pl_world alone = {.size = 1, .local_size = 1};
    struct pl_job job;
    READ(&job, "mode=full", "device=cuda");
    ck_assert_int_eq(pl_ranks_join(&job, &alone, NULL), PL_ERR_OK);
    ck_assert_uint_eq(job.devices, 1);
    ck_assert_uint_eq(job.device, PL_DEVICE_CUDA);
    ck_assert(!pl_job_orders_ranks(&job));
    pl_job_finish(&job);
}
END_TEST

START_TEST(another_number_of_ranks_is_refused) {
    struct pl_job job;
    struct pl_diag d = {0};
    READ(&job, "mode=full", "devices=2");
    ck_assert_int_eq(pl_ranks_join(&job, &third_of_four, &d), PL_ERR_COMM_INIT);
    ck_assert_msg(strstr(d.message, "`devices` is 2, and torchrun started 4 ranks"), "%s",
                  d.message);
    pl_job_finish(&job);
    READ(&job, "mode=full", "devices=4");
    ck_assert_int_eq(pl_ranks_join(&job, &third_of_four, NULL), PL_ERR_OK);
    pl_job_finish(&job);
    READ(&job, "mode=full", "devices=auto");
    ck_assert_int_eq(pl_ranks_join(&job, &third_of_four, NULL), PL_ERR_OK);
    ck_assert_uint_eq(job.devices, 4);
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
    tcase_add_test(tc, alone_nothing_changes);
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
