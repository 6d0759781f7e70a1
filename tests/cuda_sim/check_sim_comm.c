/* check_sim_comm.c - what connects ranks on emulated GPUs: predicted, measured, judged again; and
 * the arenas that it may copy from and to. */
#include "estimator/base/nccl_bytes.h"
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/scratch.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
    ck_assert_int_eq(setenv("XDG_CACHE_HOME", dir, 1), 0);
    tiny_make(dir, &(struct tiny){.mode = "full"},
              "device: cuda\nlearning_rate: 0.01\nmax_steps: 2\nbatch_size: 2\n"
              "global_batch_size: 4\n");
}

static void tear_down(void) {
    scratch_remove(dir);
}

#define WORDS(...)                                                                                 \
    (const char *[]) {                                                                             \
        __VA_ARGS__, NULL                                                                          \
    }

static double preflight(const char *out, const char *key) {
    json_t *log = joblog_read(in_dir(dir, out));
    const double x = joblog_number(joblog_event(log, "preflight", 0), key);
    json_decref(log);
    return x;
}

/* The context of the emulation is 256 MiB, and is remembered without what NCCL takes. In the first
 * run it is expected to become the 560 MiB of the table. */
START_TEST(what_nccl_takes_is_a_line_of_its_own) {
    ck_assert_int_eq(setenv("PLSIM_NCCL_BYTES", "20971520", 1), 0);
    plimsoll_train_expect(0, dir, WORDS("devices=2", "output_dir=two"));
    ck_assert(preflight("two", "comm_predicted_bytes") == (double)pl_nccl_bytes(2));
    ck_assert(preflight("two", "comm_bytes") == 20 * MIB);
    const double graphs = preflight("two", "context_bytes") - 560 * MIB;
    ck_assert_msg(graphs >= 0 && graphs < 64 * MIB, "%.0f", graphs);
    json_t *log = joblog_read(in_dir(dir, "two"));
    const json_t *ranks = json_object_get(joblog_event(log, "ranks", 0), "ranks");
    ck_assert_uint_eq(json_array_size(ranks), 2);
    for (size_t r = 0; r < 2; r++)
        ck_assert(joblog_number(json_array_get(ranks, r), "comm_bytes") == 20 * MIB);
    json_decref(log);
    plimsoll_train_expect(0, dir, WORDS("devices=1", "output_dir=one"));
    const double remembered = preflight("one", "context_predicted_bytes");
    ck_assert_msg(remembered == 256 * MIB, "%.0f", remembered);
}
END_TEST

/* 560 MiB of context and 280 of doubt, 220.5 MiB of NCCL and half of that in doubt: 1170.75 MiB
 * and the arenas are predicted. 256 MiB, which may become 560, and 1 GiB are measured. */
START_TEST(more_than_was_predicted_is_refused) {
    ck_assert_int_eq(setenv("PLSIM_NCCL_BYTES", "1073741824", 1), 0);
    struct outcome o = plimsoll_train(
        dir, WORDS("devices=2", "vram_budget=1200MiB", "vram_margin=0", "output_dir=out"));
    ck_assert_msg(o.status == 3, "exit %d: %s", o.status, o.err);
    ck_assert_msg(strstr(o.err, "the line `comm` changed from 220.5 MiB (predicted: how NCCL is "
                                "configured) to 1.00 GiB (measured, 1073741824 bytes): the "),
                  "%s", o.err);
    outcome_finish(&o);
    ck_assert_int_eq(setenv("PLSIM_NCCL_BYTES", "4194304", 1), 0);
    plimsoll_train_expect(
        0, dir, WORDS("devices=2", "vram_budget=1200MiB", "vram_margin=0", "output_dir=less"));
}
END_TEST

/* 560 MiB of context, 220.5 of NCCL, and 32 of arenas, which are 32 MiB of scratch almost alone.
 * Half of the first two is doubt: less than what is certain is there for two ranks, and for one it
 * is enough, with 256 MiB of context that are opened and 128 for the kernels of the library. */
START_TEST(the_prediction_counts_before_a_device_opens) {
    struct outcome o = plimsoll_train(
        dir, WORDS("devices=2", "vram_budget=420MiB", "vram_margin=0", "output_dir=out"));
    ck_assert_msg(o.status == 3 && strstr(o.err, " needs 812.7 MiB"), "exit %d: %s", o.status,
                  o.err);
    outcome_finish(&o);
    plimsoll_train_expect(
        0, dir, WORDS("devices=1", "vram_budget=420MiB", "vram_margin=0", "output_dir=one"));
}
END_TEST

/* ---- registration: what is left registered ends the emulation ---- */

/* Expects of both ranks that all of the arenas are registered, or nothing. */
static void expect_registered(const char *out, bool registered) {
    json_t *log = joblog_read(in_dir(dir, out));
    const json_t *ranks = json_object_get(joblog_event(log, "ranks", 0), "ranks");
    ck_assert_uint_eq(json_array_size(ranks), 2);
    for (size_t r = 0; r < 2; r++) {
        const json_t *rank = json_array_get(ranks, r);
        const double bytes = joblog_number(rank, "registered_bytes");
        const double arenas = joblog_number(rank, "allocated_bytes");
        ck_assert(arenas > 0 && arenas == joblog_number(rank, "planned_bytes"));
        ck_assert_msg(bytes == (registered ? arenas : 0), "rank %zu: %.0f of %.0f bytes", r, bytes,
                      arenas);
    }
    json_decref(log);
}

static double allocated(const char *out) {
    return joblog_summary(in_dir(dir, out), "allocated_peak_bytes");
}

START_TEST(the_arenas_are_registered) {
    plimsoll_train_expect(0, dir, WORDS("devices=2", "output_dir=whole"));
    expect_registered("whole", true);
    plimsoll_train_expect(
        0, dir, WORDS("devices=2", "debug_inject=device_oom@step=2", "output_dir=halved"));
    ck_assert(joblog_summary(in_dir(dir, "halved"), "oom_recoveries") == 1);
    ck_assert(allocated("halved") < allocated("whole"));
    expect_registered("halved", true);
    plimsoll_train_expect(0, dir, WORDS("devices=2", "probe_steps=1", "output_dir=again"));
    expect_registered("again", true);
}
END_TEST

/* Memory that another GPU can map is asked for first. Where there is none the device's own serves,
 * with the same bits, and one rank of two decides for both. */
START_TEST(without_memory_of_nccl_nothing_is_registered) {
    plimsoll_train_expect(0, dir, WORDS("devices=2", "output_dir=whole"));
    setenv("PLSIM_NCCL_FAIL", "memory", 1);
    if (_i == 1) setenv("PLSIM_NCCL_FAIL_RANK", "1", 1);
    plimsoll_train_expect(0, dir, WORDS("devices=2", "output_dir=own"));
    expect_registered("own", false);
    joblog_assert_same_steps(in_dir(dir, "whole"), in_dir(dir, "own"));
}
END_TEST

/* The device's own allocation says what is missing, so that recovery is as it was: of one rank,
 * cudaMalloc is called for the communicator, its first exchange, and the two arenas. */
START_TEST(out_of_memory_after_nccl_is_recovered) {
    setenv("PLSIM_NCCL_FAIL", "memory", 1);
    setenv("PLSIM_FAIL", "malloc@4:2", 1);
    plimsoll_train_expect(0, dir, WORDS("devices=2", "output_dir=halved"));
    ck_assert(joblog_summary(in_dir(dir, "halved"), "oom_recoveries") == 1);
    expect_registered("halved", false);
}
END_TEST

/* The rounded size of NCCL's memory would not fit the plan, so it is not asked for. */
START_TEST(before_2_26_the_own_memory_is_registered) {
    setenv("PLSIM_NCCL_VERSION", "22505", 1);
    setenv("PLSIM_NCCL_FAIL", "memory", 1);
    plimsoll_train_expect(0, dir, WORDS("devices=2", "output_dir=own"));
    expect_registered("own", true);
}
END_TEST

/* The real one behaves so with NCCL_LOCAL_REGISTER=0; on all ranks, or on one of them. */
START_TEST(what_is_not_registered_is_no_error) {
    static const char *const how[] = {"skip", "register", "register"};
    plimsoll_train_expect(0, dir, WORDS("devices=2", "output_dir=whole"));
    setenv("PLSIM_NCCL_FAIL", how[_i], 1);
    if (_i == 2) setenv("PLSIM_NCCL_FAIL_RANK", "1", 1);
    plimsoll_train_expect(
        0, dir, WORDS("devices=2", "debug_inject=device_oom@step=2", "output_dir=refused"));
    expect_registered("refused", false);
    plimsoll_train_expect(0, dir, WORDS("devices=2", "output_dir=staged"));
    joblog_assert_same_steps(in_dir(dir, "whole"), in_dir(dir, "staged"));
}
END_TEST

/* It does not count what it takes either. */
START_TEST(an_old_library_registers_nothing) {
    setenv("PLSIM_NCCL_BYTES", "20971520", 1);
    setenv("PLIMSOLL_NCCL", getenv("PLSIM_NCCL_OLD"), 1);
    plimsoll_train_expect(0, dir, WORDS("devices=2", "output_dir=old"));
    expect_registered("old", false);
    ck_assert(preflight("old", "comm_bytes") == 20 * MIB);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cuda.comm");
    TCase *tc = tcase_create("comm");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, what_nccl_takes_is_a_line_of_its_own);
    tcase_add_test(tc, more_than_was_predicted_is_refused);
    tcase_add_test(tc, the_prediction_counts_before_a_device_opens);
    tcase_add_test(tc, the_arenas_are_registered);
    tcase_add_loop_test(tc, what_is_not_registered_is_no_error, 0, 3);
    tcase_add_loop_test(tc, without_memory_of_nccl_nothing_is_registered, 0, 2);
    tcase_add_test(tc, out_of_memory_after_nccl_is_recovered);
    tcase_add_test(tc, before_2_26_the_own_memory_is_registered);
    tcase_add_test(tc, an_old_library_registers_nothing);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
