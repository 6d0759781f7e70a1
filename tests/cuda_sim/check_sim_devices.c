/* check_sim_devices.c - `device: auto` and `devices: auto` on a machine with several emulated GPUs:
 * which of them ranks take, and how many ranks there are. */
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/scratch.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static char dir[SCRATCH_PATH];

/* Every test runs in a process of its own, so variables need no cleaning up. */
static void set(const char *name, const char *value) {
    ck_assert_int_eq(setenv(name, value, 1), 0);
}

static void set_up(void) {
    scratch_make(dir);
    set("XDG_CACHE_HOME", dir);
    tiny_make(dir, &(struct tiny){.mode = "full", .hidden = 64, .layers = 4},
              "device: auto\nbatch_size: 2\nglobal_batch_size: 12\nmax_steps: 2\nthreads: 1\n");
}

static void tear_down(void) {
    scratch_remove(dir);
}

#define RUN(...) plimsoll_run(dir, (const char *[]){"train", "run.yaml", __VA_ARGS__, NULL})

/* 1: the log tells of no other rank. */
static size_t ranks_of(const char *out) {
    json_t *log = joblog_read(in_dir(dir, out));
    const json_t *ranks = joblog_event(log, "ranks", 0);
    const size_t n = ranks ? json_array_size(json_object_get(ranks, "ranks")) : 1;
    json_decref(log);
    return n;
}

static void expect_ranks(size_t n, const char *devices, const char *budget, const char *says) {
    struct outcome o = RUN(devices, budget);
    ck_assert_msg(o.status == 0, "exit %d: %s", o.status, o.err);
    ck_assert_msg(strstr(o.err, says), "it does not say %s: %s", says, o.err);
    ck_assert_msg(ranks_of("out") == n, "%zu ranks, not %zu", ranks_of("out"), n);
    outcome_finish(&o);
}

START_TEST(each_rank_takes_a_gpu) {
    expect_ranks(2, "devices=2", "vram_budget=1GiB", "on the GPU");
}
END_TEST

START_TEST(one_is_enough_for_a_small_job) {
    expect_ranks(1, "devices=auto", "vram_budget=1GiB", "auto is 1 of the 4 GPUs");
}
END_TEST

START_TEST(more_ranks_than_gpus_are_refused) {
    set("PLSIM_DEVICES", "1");
    struct outcome o = RUN("devices=2");
    ck_assert_int_eq(o.status, 6);
    ck_assert_msg(strstr(o.err, "this machine has 1 GPU for 2 ranks"), "%s", o.err);
    outcome_finish(&o);
}
END_TEST

static bool is_admitted(unsigned devices, unsigned long budget) {
    struct outcome o =
        RUN("--dry-run", "--json", textf("devices=%u", devices), textf("vram_budget=%lu", budget));
    json_t *answer = json_loads(o.out, 0, NULL);
    const char *verdict = json_string_value(json_object_get(answer, "verdict"));
    const bool admitted = o.status == 0 && verdict && strcmp(verdict, "fits") == 0;
    json_decref(answer);
    outcome_finish(&o);
    return admitted;
}

static void expect_admitted(unsigned devices, unsigned long budget) {
    struct outcome o = RUN("--dry-run", "devices=auto", textf("vram_budget=%lu", budget));
    ck_assert_msg(o.status == 0, "exit %d: %s", o.status, o.err);
    ck_assert_msg(strstr(o.err, textf("auto is %u of the 4 GPUs: as few as hold the job", devices)),
                  "%s", o.err);
    outcome_finish(&o);
}

/* Just below the smallest budget that one GPU is enough with. The model is so large that its parts
 * save more than NCCL takes. */
START_TEST(auto_is_the_first_number_that_is_admitted) {
    unsigned long low = 1ul << 20, high = 1ul << 33;
    tiny_make(
        dir,
        &(struct tiny){.mode = "full", .hidden = 1024, .ffn = 4096, .layers = 8, .vocab = 60000},
        "device: auto\nbatch_size: 2\nglobal_batch_size: 12\nmax_steps: 2\nthreads: 1\n");
    ck_assert(is_admitted(1, high));
    while (high - low > 1ul << 12) {
        const unsigned long middle = low + (high - low) / 2;
        *(is_admitted(1, middle) ? &high : &low) = middle;
    }
    unsigned n = 2;
    while (n < 4 && !is_admitted(n, low))
        n++;
    ck_assert_msg(is_admitted(n, low), "4 GPUs do not hold it either");
    expect_admitted(n, low);
    expect_admitted(1, high);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cuda.devices");
    TCase *tc = tcase_create("devices");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, each_rank_takes_a_gpu);
    tcase_add_test(tc, one_is_enough_for_a_small_job);
    tcase_add_test(tc, more_ranks_than_gpus_are_refused);
    tcase_add_test(tc, auto_is_the_first_number_that_is_admitted);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
