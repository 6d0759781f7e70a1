/* check_neighbour.c - whole runs on a GPU whose real allocator refuses, because another process
 * (neighbour.c) took the memory: before the arenas, after them, and before the verdict.
 *
 * PLIMSOLL names the binary, NEIGHBOUR the other program. A job here has about a GiB a sample, so
 * that what driver and kernels take by themselves decides nothing. */
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/scratch.h"
#include "tests/support/tensorset.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double mib = 1 << 20, gib = 1 << 30;
static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
    ck_assert_int_eq(setenv("XDG_CACHE_HOME", dir, 1), 0);
    tiny_make(dir, &(struct tiny){.longest = 512, .hidden = 512, .layers = 16, .ffn = 4096},
              "device: cuda\nlearning_rate: 1e-4\nmax_steps: 3\nseed: 3\n"
              "gradient_checkpointing: none\n");
}

static void tear_down(void) {
    scratch_remove(dir);
}

#define TRAIN(...)      plimsoll_train(dir, (const char *[]){__VA_ARGS__, NULL})
#define TRAIN_WELL(...) plimsoll_train_expect(0, dir, (const char *[]){__VA_ARGS__, NULL})

static double said(const char *out, const char *key) {
    return joblog_summary(in_dir(dir, out), key);
}

/* Returns the bytes that the process held besides its arenas. */
static double context_of(const char *out) {
    return said(out, "measured_peak_bytes") - said(out, "allocated_peak_bytes");
}

static void expect_word(struct child *c, const char *word) {
    char line[64] = "";
    ck_assert_msg(fgets(line, sizeof line, c->out) && strncmp(line, word, strlen(word)) == 0,
                  "the neighbour says \"%s\", not \"%s\"", line, word);
}

static struct child neighbour(double leave, double drop) {
    const char *program = getenv("NEIGHBOUR");
    ck_assert_msg(program != NULL, "NEIGHBOUR names no program");
    struct child c = child_start(
        (const char *[]){program, textf("%.0f", leave), textf("%.0f", drop), NULL}, NULL, true);
    expect_word(&c, "ready");
    return c;
}

static void end_neighbour(struct child *c, bool has_taken) {
    if (has_taken) expect_word(c, "taken");
    kill(c->pid, SIGKILL);
    struct outcome o = child_wait(c, 10);
    outcome_finish(&o);
}

/* True if the driver says how much a process holds: without that a neighbour's memory counts as
 * ours, and the run ends at the verdict that follows. */
static bool driver_counts_processes(void) {
    struct child other = neighbour(6 * gib, 64 * mib);
    TRAIN_WELL("batch_size=2", "gradient_accumulation_steps=4", "output_dir=counted",
               "preflight=off");
    end_neighbour(&other, true);
    if (context_of("counted") < 3 * gib) return true;
    fprintf(stderr, "not tested: this driver does not count memory by process\n");
    return false;
}

static const double arrival = 64 * 1048576.0; /* a context begins to stand */

START_TEST(a_neighbour_that_takes_the_rest_is_survived_by_halving) {
    if (!driver_counts_processes()) return;
    TRAIN_WELL("batch_size=2", "gradient_accumulation_steps=4", "output_dir=small");
    TRAIN_WELL("batch_size=4", "gradient_accumulation_steps=2", "output_dir=middle");
    double fits = said("small", "planned_peak_bytes"), fails = said("middle", "planned_peak_bytes");
    ck_assert_msg(fails - fits > 512 * mib, "%.0f and %.0f bytes are too close", fits, fails);
    struct child other = neighbour(context_of("small") + (fits + fails) / 2, arrival);
    TRAIN_WELL("batch_size=8", "gradient_accumulation_steps=1", "output_dir=large");
    end_neighbour(&other, true);
    ck_assert_msg(said("large", "oom_recoveries") == 2, "%g halvings",
                  said("large", "oom_recoveries"));
    ck_assert(said("large", "planned_peak_bytes") == said("large", "allocated_peak_bytes"));
    weights_assert_same(in_dir(dir, "small"), in_dir(dir, "large"), "model");
    joblog_assert_same_steps(in_dir(dir, "small"), in_dir(dir, "large"));
}
END_TEST

START_TEST(memory_that_a_neighbour_keeps_ends_in_exit_4) {
    if (!driver_counts_processes()) return;
    struct child other = neighbour(context_of("counted") + 256 * mib, arrival);
    struct outcome o = TRAIN("batch_size=8");
    end_neighbour(&other, true);
    ck_assert_msg(o.status == 4, "exit %d: %s", o.status, o.err);
    ck_assert_msg(strstr(o.err, "error[RUNTIME_GPU_OOM]"), "%s", o.err);
    outcome_finish(&o);
}
END_TEST

/* Evaluation and saving included: nothing asks the device for memory after the first step. */
START_TEST(a_neighbour_that_comes_later_disturbs_nothing) {
    TRAIN_WELL("batch_size=4", "gradient_accumulation_steps=2", "output_dir=alone",
               "val_set_size=4", "eval_steps=1", "save_steps=1");
    double planned = said("alone", "planned_peak_bytes");
    struct child other = neighbour(planned + context_of("alone") + 256 * mib, planned);
    TRAIN_WELL("batch_size=4", "gradient_accumulation_steps=2", "output_dir=beside",
               "val_set_size=4", "eval_steps=1", "save_steps=1");
    end_neighbour(&other, true);
    ck_assert(said("beside", "oom_recoveries") == 0);
    weights_assert_same(in_dir(dir, "alone"), in_dir(dir, "beside"), "model");
    joblog_assert_same_steps(in_dir(dir, "alone"), in_dir(dir, "beside"));
}
END_TEST

START_TEST(batch_size_auto_plans_around_a_neighbour) {
    TRAIN_WELL("batch_size=4", "gradient_accumulation_steps=2", "output_dir=alone");
    double room = said("alone", "planned_peak_bytes") + context_of("alone") + gib;
    struct child other = neighbour(room, 0);
    expect_word(&other, "taken");
    TRAIN_WELL("batch_size=auto", "global_batch_size=16", "output_dir=beside");
    end_neighbour(&other, false);
    ck_assert(said("beside", "oom_recoveries") == 0);
    ck_assert(said("beside", "planned_peak_bytes") == said("beside", "allocated_peak_bytes"));
    ck_assert(said("beside", "planned_peak_bytes") < room);
}
END_TEST

int main(void) {
    Suite *s = suite_create("gpu.neighbour");
    TCase *tc = tcase_create("runs");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, a_neighbour_that_takes_the_rest_is_survived_by_halving);
    tcase_add_test(tc, memory_that_a_neighbour_keeps_ends_in_exit_4);
    tcase_add_test(tc, a_neighbour_that_comes_later_disturbs_nothing);
    tcase_add_test(tc, batch_size_auto_plans_around_a_neighbour);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
