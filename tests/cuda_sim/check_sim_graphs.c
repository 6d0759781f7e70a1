/* check_sim_graphs.c - steps replayed as graphs on the emulated GPU: the bits of a run that
 * launches every kernel, what a step then asks of the driver, and every refusal of the graph API.
 */
#include "tests/cuda_sim/counters.h"
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/scratch.h"
#include "tests/support/tensorset.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <math.h>
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
}

static void tear_down(void) {
    scratch_remove(dir);
}

/* Few rows, so that shapes come again: with three, in the orders that shuffling gives. */
static void make(const char *mode, uint64_t rows, const char *more) {
    tiny_make(dir, &(struct tiny){.mode = mode, .rows = rows},
              textf("device: cuda\nlearning_rate: 0.01\nseed: 3\n%s", more));
}

#define TRAIN(...)      plimsoll_train(dir, (const char *[]){__VA_ARGS__, NULL})
#define TRAIN_WELL(...) plimsoll_train_expect(0, dir, (const char *[]){__VA_ARGS__, NULL})

static const char *path_of(const char *name, char buf[SCRATCH_PATH + 16]) {
    snprintf(buf, SCRATCH_PATH + 16, "%s/%s", dir, name);
    return buf;
}

static double summary_number(const char *out, const char *key) {
    return joblog_summary(in_dir(dir, out), key);
}

static void expect_same_run(const char *a, const char *b, const char *stem) {
    char x[SCRATCH_PATH + 16], y[SCRATCH_PATH + 16];
    weights_assert_same(path_of(a, x), path_of(b, y), stem);
    joblog_assert_same_steps(x, y);
}

/* --- the same bits ---------------------------------------------------------------------------- */

static const struct {
    const char *mode, *more;
    uint64_t rows;
} jobs[] = {
    {"full", "batch_size: 1\ngradient_accumulation_steps: 3\nmax_steps: 8\n", 3},
    {"full", "batch_size: 2\ngradient_accumulation_steps: 1\nmax_steps: 8\nmax_grad_norm: 0.1\n",
     2},
    {"full",
     "batch_size: 3\ngradient_accumulation_steps: 2\nmax_steps: 6\ndtype: bf16\n"
     "master_weights: false\n",
     4},
    {"full",
     "batch_size: 2\nmax_steps: 8\nweight_decay: 0.1\noptimizer: sgd\n"
     "lr_scheduler: cosine\nwarmup_steps: 3\n",
     2},
    {"full",
     "batch_size: 2\nmax_steps: 8\noptimizer: adamw_8bit\nweight_decay: 0.1\n"
     "gradient_checkpointing: full\n",
     2},
    {"lora",
     "batch_size: 1\ngradient_accumulation_steps: 3\nmax_steps: 8\nlora_dropout: 0.2\n"
     "dtype: bf16\nval_set_size: 1\neval_steps: 2\n",
     4},
    {"qlora", "batch_size: 2\nmax_steps: 8\nlora_dropout: 0.2\ndtype: bf16\n", 2},
    {"full", "batch_size: 2\nmax_steps: 8\npacking: true\n", 2},
    {"full", "batch_size: 2\nmax_steps: 6\noffload: weights\noffload_update: device\n", 2},
    {"full", "batch_size: 2\nmax_steps: 6\nfull_ft_offload: true\n", 2},
};
enum { JOBS = sizeof jobs / sizeof *jobs };

/* G1 of repeats.h. */
START_TEST(a_run_with_graphs_is_the_run_without) {
    make(jobs[_i].mode, jobs[_i].rows, jobs[_i].more);
    TRAIN_WELL("output_dir=with");
    set("PLIMSOLL_GRAPHS", "0");
    TRAIN_WELL("output_dir=without");
    ck_assert(summary_number("with", "graph_replays") > 0);
    ck_assert(summary_number("without", "graph_replays") == 0);
    expect_same_run("with", "without",
                    strcmp(jobs[_i].mode, "full") == 0 ? "model" : "adapter_model");
}
END_TEST

/* --- what a step asks of the driver ----------------------------------------------------------- */

static long counter(const char *report, const char *name) {
    char path[SCRATCH_PATH + 16];
    return plsim_counter(path_of(report, path), name);
}

/* Returns how much ten more steps add to a counter. */
static long added(const char *name) {
    return counter("many", name) - counter("few", name);
}

/* The micro-batch that opens the step, three more, the norm, the update. */
START_TEST(a_step_of_a_known_shape_is_a_launch_for_each_of_its_parts) {
    /* in a circle, so that the one row there is fills a step */
    make("full", 1, "batch_size: 1\ngradient_accumulation_steps: 4\nshuffle: false\n");
    set("PLSIM_REPORT", textf("%s/few", dir));
    TRAIN_WELL("output_dir=few.out", "max_steps=4");
    set("PLSIM_REPORT", textf("%s/many", dir));
    TRAIN_WELL("output_dir=many.out", "max_steps=14");
    ck_assert_int_eq(added("launches"), 0);
    ck_assert_int_eq(added("graph_launches"), 10 * (4 + 2));
    ck_assert_int_eq(added("captures") + added("graphs"), 0);
    ck_assert_int_eq(counter("many", "graphs"), 4);
    ck_assert_int_eq(added("mallocs") + added("host_mallocs"), 0);
    ck_assert_int_eq(added("syncs"), 10);
    ck_assert_int_eq(added("idle_syncs"), 0);
    ck_assert(summary_number("many.out", "graphs") == 4);
}
END_TEST

/* --- samples of many lengths ------------------------------------------------------------------ */

static const struct {
    const char *mode, *more;
} ragged[] = {
    {"full", "batch_size: 2\n"},
    {"full", "batch_size: 1\npacking: true\n"},
    {"lora", "batch_size: 2\nlora_dropout: 0.2\nval_set_size: 5\neval_steps: 20\n"},
};
enum { RAGGED = sizeof ragged / sizeof *ragged, RAGGED_STEPS = 40 };

static void make_ragged(int i) {
    tiny_make(dir, &(struct tiny){.mode = ragged[i].mode, .rows = 40, .longest = 64},
              textf("device: cuda\nlearning_rate: 0.001\nmax_steps: %d\n%s", RAGGED_STEPS,
                    ragged[i].more));
}

/* Rows of 5 to 64 tokens, so that exact sizes hardly come again: norm and update would be replayed
 * alone. */
START_TEST(micro_batches_of_many_sizes_share_graphs) {
    make_ragged(_i);
    TRAIN_WELL("output_dir=with");
    set("PLIMSOLL_GRAPHS", "0");
    TRAIN_WELL("output_dir=without");
    const double replays = summary_number("with", "graph_replays");
    ck_assert_msg(replays > 2 * RAGGED_STEPS + 8, "%.0f replays", replays);
    ck_assert(summary_number("with", "graphs") <= 40);
    ck_assert(summary_number("with", "measured_peak_bytes") <=
              summary_number("with", "predicted_process_bytes"));
    expect_same_run("with", "without",
                    strcmp(ragged[_i].mode, "full") == 0 ? "model" : "adapter_model");
}
END_TEST

/* A CPU computes the samples alone, in fp32 as well. */
START_TEST(padding_has_no_part_in_a_step) {
    make_ragged(_i);
    TRAIN_WELL("output_dir=gpu", "max_steps=12");
    TRAIN_WELL("output_dir=cpu", "max_steps=12", "device=cpu");
    json_t *gpu = joblog_read(in_dir(dir, "gpu")), *cpu = joblog_read(in_dir(dir, "cpu"));
    static const char *const keys[] = {"loss", "grad_norm"};
    for (uint64_t step = 1; step <= 12; step++)
        for (int k = 0; k < 2; k++) {
            const double a = joblog_number(joblog_step(gpu, step), keys[k]);
            const double b = joblog_number(joblog_step(cpu, step), keys[k]);
            ck_assert_msg(fabs(a - b) <= 1e-4 * fabs(b), "step %d: %s %.9g, %.9g on a CPU",
                          (int)step, keys[k], a, b);
        }
    json_decref(gpu);
    json_decref(cpu);
}
END_TEST

/* --- moving arenas ---------------------------------------------------------------------------- */

START_TEST(halving_forgets_what_was_recorded) {
    make("full", 4, "batch_size: 4\nmax_steps: 8\ndebug_inject: ['device_oom@step=5']\n");
    TRAIN_WELL("output_dir=with");
    set("PLIMSOLL_GRAPHS", "0");
    TRAIN_WELL("output_dir=without");
    ck_assert(summary_number("with", "oom_recoveries") == 1);
    ck_assert(summary_number("with", "graphs") >= 6);
    expect_same_run("with", "without", "model");
}
END_TEST

START_TEST(a_run_that_goes_on_records_anew) {
    make("full", 1, "batch_size: 1\nsave_steps: 5\nresume: auto\n");
    TRAIN_WELL("max_steps=10", "output_dir=straight");
    TRAIN_WELL("max_steps=5", "output_dir=parts", "lr_scheduler=constant");
    TRAIN_WELL("max_steps=10", "output_dir=parts", "lr_scheduler=constant");
    set("PLIMSOLL_GRAPHS", "0");
    TRAIN_WELL("max_steps=10", "output_dir=constant", "lr_scheduler=constant");
    ck_assert(summary_number("straight", "graph_replays") > 0);
    expect_same_run("parts", "constant", "model");
}
END_TEST

/* Steps on the longest samples, then other arenas at what may be other addresses. */
START_TEST(a_probe_before_the_run_leaves_no_graph_behind) {
    make("full", 1, "batch_size: 1\nmax_steps: 6\nprobe_steps: 4\n");
    TRAIN_WELL("output_dir=with");
    set("PLIMSOLL_GRAPHS", "0");
    TRAIN_WELL("output_dir=without");
    expect_same_run("with", "without", "model");
}
END_TEST

/* --- refusals --------------------------------------------------------------------------------- */

/* Out of memory is about one graph; anything else ends the making of graphs. */
static const struct {
    const char *fail;
    bool ends;
} refusals[] = {{"capture@1:801", true},
                {"capture@3:900", true},
                {"captured@1:901", true},
                {"captured@2:2", false},
                {"instantiate@1:801", true},
                {"instantiate@1:2", false},
                {"instantiate@2:2,forever", false},
                {"upload@1:801", true},
                {"upload@2:2", false},
                {"replay@1:801", true},
                {"replay@7:1", true}};
enum { REFUSALS = sizeof refusals / sizeof *refusals };

static const char two_micro_batches[] =
    "batch_size: 1\ngradient_accumulation_steps: 2\nmax_steps: 6\n";

static void expect_refused(const char *fail, bool ends) {
    set("PLSIM_FAIL", fail);
    struct outcome o = TRAIN("output_dir=refused");
    ck_assert_msg(o.status == 0, "exit %d: %s", o.status, o.err);
    ck_assert_msg((strstr(o.err, "no graphs: ") != NULL) == ends, "%s", o.err);
    ck_assert(summary_number("refused", "graph_replays") < summary_number("calm", "graph_replays"));
    outcome_finish(&o);
    expect_same_run("refused", "calm", "model");
}

START_TEST(a_refusal_of_the_driver_costs_graphs_and_no_bit) {
    make("full", 1, two_micro_batches);
    TRAIN_WELL("output_dir=calm");
    expect_refused(refusals[_i].fail, refusals[_i].ends);
}
END_TEST

/* Launches of the steps before the first that is written down. */
static long plain_launches(void) {
    for (int step = 1; step < 6; step++) {
        set("PLSIM_REPORT", textf("%s/step.report", dir));
        TRAIN_WELL(textf("output_dir=step%d", step), textf("max_steps=%d", step));
        if (counter("step.report", "captures") > 0) break;
        set("PLSIM_REPORT", textf("%s/plain.report", dir));
        TRAIN_WELL(textf("output_dir=plain%d", step), textf("max_steps=%d", step));
    }
    return counter("plain.report", "launches");
}

START_TEST(a_kernel_that_fails_while_recorded_is_launched) {
    make("full", 1, two_micro_batches);
    TRAIN_WELL("output_dir=calm");
    const char *fail = textf("launch@%ld:1", plain_launches() + 5);
    set("PLSIM_REPORT", textf("%s/refused.report", dir));
    expect_refused(fail, true);
    ck_assert_int_eq(counter("refused.report", "captures"), 1);
    ck_assert_int_eq(counter("refused.report", "graphs"), 0);
}
END_TEST

/* --- memory ----------------------------------------------------------------------------------- */

/* 256 times what was assumed: the first run finds out, the second knows. */
START_TEST(what_a_graph_takes_is_measured_and_remembered) {
    make("full", 1, two_micro_batches);
    set("PLSIM_GRAPH_NODE_BYTES", "1048576");
    TRAIN_WELL("output_dir=first");
    TRAIN_WELL("output_dir=second");
    ck_assert(summary_number("first", "graph_bytes") > 0);
    ck_assert(summary_number("second", "graph_replays") > summary_number("first", "graph_replays"));
    ck_assert(summary_number("second", "measured_peak_bytes") <=
              summary_number("second", "predicted_process_bytes"));
    expect_same_run("first", "second", "model");
}
END_TEST

START_TEST(a_budget_without_room_for_graphs_trains_without) {
    make("full", 1, two_micro_batches);
    TRAIN_WELL("output_dir=roomy");
    double need =
        summary_number("roomy", "planned_peak_bytes") + summary_number("roomy", "context_bytes");
    set("PLSIM_GRAPH_NODE_BYTES", "4096");
    TRAIN_WELL("output_dir=tight", textf("vram_budget=%.0fB", need));
    ck_assert(summary_number("tight", "graphs") == 0);
    expect_same_run("tight", "roomy", "model");
}
END_TEST

int main(void) {
    Suite *s = suite_create("cuda.graphs");
    TCase *tc = tcase_create("runs");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, a_run_with_graphs_is_the_run_without, 0, JOBS);
    tcase_add_test(tc, a_step_of_a_known_shape_is_a_launch_for_each_of_its_parts);
    tcase_add_test(tc, halving_forgets_what_was_recorded);
    tcase_add_test(tc, a_run_that_goes_on_records_anew);
    tcase_add_test(tc, a_probe_before_the_run_leaves_no_graph_behind);
    tcase_add_loop_test(tc, a_refusal_of_the_driver_costs_graphs_and_no_bit, 0, REFUSALS);
    tcase_add_test(tc, a_kernel_that_fails_while_recorded_is_launched);
    tcase_add_test(tc, what_a_graph_takes_is_measured_and_remembered);
    tcase_add_test(tc, a_budget_without_room_for_graphs_trains_without);
    suite_add_tcase(s, tc);
    tc = tcase_create("sizes");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, micro_batches_of_many_sizes_share_graphs, 0, RAGGED);
    tcase_add_loop_test(tc, padding_has_no_part_in_a_step, 0, RAGGED);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
