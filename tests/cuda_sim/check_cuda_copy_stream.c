/* check_cuda_copy_stream.c - an op on the copy stream of a GPU begins after all that was queued
 * before it, and an op that awaits it comes after it, also where streams do all as late as they may
 * (PLSIM_STREAMS=late). */
#include "runtime/device/cuda/cuda.h"
#include "runtime/device/device.h"
#include "runtime/kernels/back_ends.h"

#include <check.h>
#include <string.h>

enum { N = 1000, ROUNDS = 100 };

static struct pl_device *dev;
static struct pl_arena arena;
static struct pl_diag diag;

static void open_device(void) {
    ck_assert_int_eq(pl_device_open(&pl_back_end_cuda, 1, PL_NO_BUDGET, &dev, &diag), PL_ERR_OK);
    ck_assert_int_eq(pl_staging_reserve(dev, &diag), PL_ERR_OK);
    ck_assert_int_eq(pl_arena_reserve(dev, 4 * N * sizeof(float), "x", &arena, &diag), PL_ERR_OK);
}

static void close_device(void) {
    pl_arena_release(dev, &arena);
    pl_device_close(&dev);
}

/* Place `to` of four becomes what `from` is. */
static void copy(int from, int to) {
    const struct pl_attr attr = {.accumulate = PL_ACC_WRITE, .all_ranks = true};
    const struct pl_batch batch = {0};
    struct pl_call c = {.attr = &attr, .batch = &batch};
    float *base = arena.base;
    c.in[PL_FOLD_PARTS] = (struct pl_view){base + from * N, N, 1, 1, PL_DTYPE_F32};
    c.out[PL_FOLD_OUT_G] = (struct pl_view){base + to * N, N, 1, 1, PL_DTYPE_F32};
    ck_assert_int_eq(dev->kernels[PL_OP_FOLD](dev, &c), PL_ERR_OK);
}

/* More rounds than the back-end has events. */
START_TEST(what_runs_on_the_copy_stream_has_its_place_in_the_order) {
    float sent[N], got[N];
    open_device();
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        for (int i = 0; i < N; i++)
            sent[i] = (float)(round * N) + (float)i;
        ck_assert_int_eq(dev->ops->upload(dev, arena.base, sent, sizeof sent), PL_ERR_OK);
        copy(0, 1);
        ck_assert_int_eq(dev->ops->copy_stream_begin(dev), PL_ERR_OK);
        copy(1, 2);
        ck_assert_int_eq(dev->ops->copy_stream_end(dev, round), PL_ERR_OK);
        ck_assert_int_eq(dev->ops->copy_stream_await(dev, round), PL_ERR_OK);
        copy(2, 3);
        float *base = arena.base;
        ck_assert_int_eq(dev->ops->download(dev, got, base + 3 * N, sizeof got), PL_ERR_OK);
        ck_assert_msg(memcmp(sent, got, sizeof got) == 0, "round %u: %g came, not %g", round,
                      (double)got[0], (double)sent[0]);
    }
    close_device();
}
END_TEST

/* Without this the test above would also hold for one stream. */
START_TEST(what_runs_on_the_copy_stream_is_not_waited_for_by_itself) {
    float sent[N], got[N];
    open_device();
    for (int i = 0; i < N; i++)
        sent[i] = (float)(i + 1);
    ck_assert_int_eq(dev->ops->upload(dev, arena.base, sent, sizeof sent), PL_ERR_OK);
    ck_assert_int_eq(dev->ops->copy_stream_begin(dev), PL_ERR_OK);
    copy(0, 1);
    ck_assert_int_eq(dev->ops->copy_stream_end(dev, 1), PL_ERR_OK);
    float *base = arena.base;
    ck_assert_int_eq(dev->ops->download(dev, got, base + N, sizeof got), PL_ERR_OK);
    ck_assert(got[0] == 0);
    ck_assert_int_eq(dev->ops->copy_stream_await(dev, 1), PL_ERR_OK);
    ck_assert_int_eq(dev->ops->download(dev, got, base + N, sizeof got), PL_ERR_OK);
    ck_assert(got[0] == 1);
    close_device();
}
END_TEST

/* Blocks of kernels of the copy stream go before those that wait on the other one. */
START_TEST(the_copy_stream_has_the_greatest_priority) {
    int least, greatest, priority;
    open_device();
    const struct pl_cuda *cuda = pl_cuda_of(dev);
    ck_assert_int_eq(cudaDeviceGetStreamPriorityRange(&least, &greatest), cudaSuccess);
    ck_assert_int_lt(greatest, least);
    ck_assert_int_eq(cudaStreamGetPriority(cuda->copy_stream.stream, &priority), cudaSuccess);
    ck_assert_int_eq(priority, greatest);
    ck_assert_int_eq(cudaStreamGetPriority(cuda->stream, &priority), cudaSuccess);
    ck_assert_int_eq(priority, least);
    close_device();
}
END_TEST

int main(void) {
    Suite *s = suite_create("cuda.copy_stream");
    TCase *tc = tcase_create("late");
    tcase_add_test(tc, what_runs_on_the_copy_stream_has_its_place_in_the_order);
    tcase_add_test(tc, what_runs_on_the_copy_stream_is_not_waited_for_by_itself);
    tcase_add_test(tc, the_copy_stream_has_the_greatest_priority);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    const int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
