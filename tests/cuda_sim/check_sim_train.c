/* check_sim_train.c - whole runs of the command on the emulated GPU: memory that gives out in every
 * way a GPU has, a context that is lost, what a step may not do, and the CPU's losses. */
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

/* Calls and bytes are counted, and so the level is written: on a GPU it would be open. */
static void make(const char *mode, const char *more) {
    tiny_make(dir, &(struct tiny){.mode = mode},
              textf("device: cuda\nlearning_rate: 0.01\nmax_steps: 3\n"
                    "gradient_checkpointing: full\n%s",
                    more));
}

#define TRAIN(...)      plimsoll_train(dir, (const char *[]){__VA_ARGS__, NULL})
#define TRAIN_WELL(...) plimsoll_train_expect(0, dir, (const char *[]){__VA_ARGS__, NULL})

static json_t *log_of(const char *out) {
    char path[SCRATCH_PATH + 16];
    snprintf(path, sizeof path, "%s/%s", dir, out);
    return joblog_read(path);
}

static double summary_number(const char *out, const char *key) {
    return joblog_summary(in_dir(dir, out), key);
}

static void expect_same_run(const char *a, const char *b) {
    char x[SCRATCH_PATH + 16], y[SCRATCH_PATH + 16];
    snprintf(x, sizeof x, "%s/%s", dir, a);
    snprintf(y, sizeof y, "%s/%s", dir, b);
    weights_assert_same(x, y, "model");
    joblog_assert_same_steps(x, y);
}

/* --- out of memory ---------------------------------------------------------------------------- */

/* The batch arena; a product, also when it is tried again, and a kernel of step 1, whose library or
 * driver wanted memory of its own; the kernel of the gradients' norm. The seed gives step 1 a
 * number of tokens that products round, so that their algorithms are those of another shape. */
static const char *const failures[] = {"malloc@2:2", "matmul@20:3,count=2", "launch@41:2",
                                       "launch@69:2"};

START_TEST(an_out_of_memory_of_the_gpu_is_survived_by_halving) {
    make("full", "seed: 1\n");
    TRAIN_WELL("batch_size=4", "gradient_accumulation_steps=2", "output_dir=small");
    set("PLSIM_FAIL", failures[_i]);
    TRAIN_WELL("batch_size=8", "gradient_accumulation_steps=1", "output_dir=large");
    ck_assert(summary_number("large", "oom_recoveries") == 1);
    ck_assert(summary_number("large", "planned_peak_bytes") ==
              summary_number("large", "allocated_peak_bytes"));
    expect_same_run("small", "large");
}
END_TEST

START_TEST(a_product_that_fails_with_a_reused_algorithm_is_tried_with_its_own) {
    make("full", "seed: 1\nbatch_size: 8\n");
    TRAIN_WELL("output_dir=well");
    set("PLSIM_FAIL", "matmul@20:13");
    TRAIN_WELL("output_dir=failed");
    ck_assert(summary_number("failed", "oom_recoveries") == 0);
    expect_same_run("well", "failed");
}
END_TEST

/* The GPU is asked, the job judged, the job arena taken; then somebody leaves room for two samples
 * at a time and no byte more. */
START_TEST(a_neighbour_between_verdict_and_reservation_is_survived_by_halving) {
    const double memory = 1 << 30, context = 1 << 20;
    make("full", "seed: 3\n");
    set("PLSIM_CONTEXT_BYTES", textf("%.0f", context));
    TRAIN_WELL("batch_size=2", "gradient_accumulation_steps=4", "output_dir=small");
    double left = summary_number("small", "planned_peak_bytes");
    set("PLSIM_MEMORY_BYTES", textf("%.0f", memory));
    set("PLSIM_NEIGHBOUR", textf("%.0f@2", memory - context - left));
    TRAIN_WELL("batch_size=8", "gradient_accumulation_steps=1", "output_dir=large");
    json_t *log = log_of("large");
    const json_t *preflight = joblog_event(log, "preflight", 0);
    ck_assert_str_eq(json_string_value(json_object_get(preflight, "verdict")), "fits");
    json_decref(log);
    ck_assert(summary_number("large", "oom_recoveries") == 2);
    expect_same_run("small", "large");
}
END_TEST

/* A lack that a smaller micro-batch does not cure makes none: memory that copies pass through, the
 * job arena, a kernel and a copy of loading. */
static const struct {
    const char *fail;
    int status;
    const char *code, *named, *hint;
    bool halves;
} shortages[] = {
    {"malloc@2:2,forever", 4, "RUNTIME_GPU_OOM", "batch arena", "max_seq_length", true},
    {"hostalloc@1:2", 1, "RUNTIME_HOST_OOM", "pinned host memory", "not the device", false},
    {"malloc@1:2", 4, "RUNTIME_DEVICE_OOM", "job arena", "no batch size makes", false},
    {"launch@1:2", 4, "RUNTIME_DEVICE_OOM", "embed", "nothing can be halved here", false},
    {"copy@1:2", 4, "RUNTIME_DEVICE_OOM", "rope table", "nothing can be halved here", false},
};

static void expect_shortage(const struct outcome *o, int i) {
    ck_assert_msg(o->status == shortages[i].status, "exit %d: %s", o->status, o->err);
    ck_assert_msg(strstr(o->err, textf("error[%s]", shortages[i].code)), "%s", o->err);
    ck_assert_msg(strstr(o->err, shortages[i].named), "%s", o->err);
    ck_assert_msg(strstr(strstr(o->err, "hint:"), shortages[i].hint), "%s", o->err);
    ck_assert_msg(!strstr(o->err, "micro-batch 8 -> 4") == !shortages[i].halves, "%s", o->err);
}

START_TEST(memory_that_stays_away_ends_the_run_and_is_named) {
    make("full", "");
    set("PLSIM_FAIL", shortages[_i].fail);
    struct outcome o = TRAIN("batch_size=8");
    expect_shortage(&o, _i);
    outcome_finish(&o);
}
END_TEST

/* The first kernel after those of a run that does not evaluate is one of the evaluation. */
START_TEST(an_out_of_memory_in_an_evaluation_does_not_shrink_the_batch_of_training) {
    make("full", "batch_size: 4\n");
    set("PLSIM_REPORT", textf("%s/plain", dir));
    TRAIN_WELL("output_dir=plain.out", "max_steps=1");
    set("PLSIM_FAIL", textf("launch@%ld:2", plsim_counter(textf("%s/plain", dir), "launches") + 1));
    struct outcome o = TRAIN("max_steps=1", "val_set_size=4");
    ck_assert_msg(o.status == 4, "exit %d: %s", o.status, o.err);
    ck_assert_msg(strstr(o.err, "error[RUNTIME_DEVICE_OOM]"), "%s", o.err);
    ck_assert_msg(strstr(o.err, "nothing can be halved here"), "%s", o.err);
    outcome_finish(&o);
    json_t *log = log_of("out");
    ck_assert_uint_eq(joblog_count(log, "step"), 1);
    ck_assert_uint_eq(joblog_count(log, "oom_recovery"), 0);
    json_decref(log);
}
END_TEST

/* --- a context that is lost ------------------------------------------------------------------- */

/* The last one is a product that fails twice with memory to spare. */
static const struct {
    const char *fail, *named;
} losses[] = {{"launch@150:700", ""},
              {"sync@4:719", ""},
              {"copy@40:700", ""},
              {"malloc@2:700", ""},
              {"matmul@20:13,count=2", "failed on device cuda: CUBLAS_STATUS_EXECUTION_FAILED"}};

START_TEST(a_lost_device_is_not_tried_again) {
    make("full", "");
    set("PLSIM_FAIL", losses[_i].fail);
    struct outcome o = TRAIN("batch_size=8");
    ck_assert_msg(o.status == 1, "exit %d: %s", o.status, o.err);
    ck_assert_msg(strstr(o.err, "error[RUNTIME_DEVICE_LOST]"), "%s", o.err);
    ck_assert_msg(strstr(o.err, losses[_i].named), "%s", o.err);
    outcome_finish(&o);
    json_t *log = log_of("out");
    ck_assert_uint_eq(joblog_count(log, "oom_recovery"), 0);
    json_decref(log);
}
END_TEST

/* --- what the context takes --------------------------------------------------------------------
 */

static double preflight_number(const char *out, const char *key) {
    json_t *log = log_of(out);
    double x = joblog_number(joblog_event(log, "preflight", 0), key);
    json_decref(log);
    return x;
}

/* Nothing is known of this GPU: the figure is that of the table, doubted in the text and in the
 * log, until the run has measured it. It stays when 256 MiB of it were opened, since kernels are
 * still to come. The second run knows that none do, and doubts nothing. */
START_TEST(a_first_context_is_predicted_with_a_doubt_and_then_measured) {
    static const char doubt[] =
        "give or take     280.0 MiB      293,601,280  the context is a guess";
    make("full", "");
    set("XDG_CACHE_HOME", dir);
    struct outcome first = TRAIN("output_dir=first"), second = TRAIN("output_dir=second");
    ck_assert_msg(first.status == 0 && second.status == 0, "%s%s", first.err, second.err);
    ck_assert_msg(strstr(first.err, doubt) != NULL, "%s", first.err);
    ck_assert_msg(strstr(second.err, "give or take") == NULL, "%s", second.err);
    ck_assert(preflight_number("first", "context_predicted_bytes") == 560 << 20);
    ck_assert(preflight_number("first", "context_doubt_bytes") == 280 << 20);
    const double graphs = preflight_number("first", "context_bytes") - (560 << 20);
    ck_assert(graphs >= 0 && graphs < 64 << 20); /* their limit comes from the same line */
    ck_assert(preflight_number("second", "context_predicted_bytes") == 256 << 20);
    ck_assert(preflight_number("second", "context_doubt_bytes") == 0);
    outcome_finish(&first);
    outcome_finish(&second);
}
END_TEST

/* The context is almost as large as the table says when it was opened, and the library's kernels
 * take 100 MiB more at the first product of the first run. */
static const struct {
    int room; /* MiB that arenas and the opened context leave of the card */
    bool fits;
} rooms[] = {{41, false}, {99, false}, {127, false}, {128, true}};

static double plan_first_run(void) {
    make("full", "batch_size: 4\n");
    set("PLSIM_CONTEXT_BYTES", textf("%d", 520 << 20));
    set("PLSIM_LIBRARY_BYTES", textf("%d", 100 << 20));
    TRAIN_WELL("output_dir=roomy");
    ck_assert(summary_number("roomy", "context_bytes") >= 620 << 20);
    set("XDG_CACHE_HOME", in_dir(dir, "forgotten"));
    return summary_number("roomy", "planned_peak_bytes");
}

START_TEST(a_first_run_on_a_full_card_trains_or_is_refused_before_its_first_step) {
    const double arenas = plan_first_run();
    set("PLSIM_MEMORY_BYTES", textf("%.0f", arenas + (double)((520 + rooms[_i].room) << 20)));
    struct outcome o = TRAIN("output_dir=full");
    ck_assert_msg(o.status == (rooms[_i].fits ? 0 : 3), "exit %d: %s", o.status, o.err);
    if (rooms[_i].fits) {
        ck_assert(summary_number("full", "oom_recoveries") == 0);
    } else {
        ck_assert_ptr_nonnull(strstr(o.err, "`context` changed from 560.0 MiB (predicted: default) "
                                            "to 648.0 MiB (measured and 128.0 MiB for kernels that "
                                            "are loaded later, 679477248 bytes)"));
        ck_assert(!path_exists(in_dir(dir, "full")));
    }
    outcome_finish(&o);
}
END_TEST

START_TEST(an_automatic_batch_leaves_a_first_run_the_room_for_kernels) {
    plan_first_run();
    set("PLSIM_MEMORY_BYTES", textf("%d", 940 << 20));
    TRAIN_WELL("output_dir=auto", "batch_size=auto");
    ck_assert(summary_number("auto", "oom_recoveries") == 0);
}
END_TEST

/* The arenas and the figure of the table fit, but not with what the figure may be off by. */
START_TEST(what_fits_without_the_doubt_of_a_first_context_is_tight) {
    make("full", "");
    set("XDG_CACHE_HOME", dir);
    set("PLSIM_MEMORY_BYTES", textf("%d", 800 << 20));
    struct outcome o = TRAIN("output_dir=tight", "--dry-run");
    ck_assert_msg(strstr(o.err, "tight") || strstr(o.out, "tight"), "%s%s", o.out, o.err);
    outcome_finish(&o);
}
END_TEST

/* --- the level of recomputation --------------------------------------------------------------- */

static bool resolved_has(const char *out, const char *line) {
    char *text = file_read(in_dir(dir, textf("%s/config.resolved.yaml", out)), NULL);
    const bool has = strstr(text, line) != NULL;
    free(text);
    return has;
}

/* A member of `bytes` of an answer; the answer has to hold `note`. */
static double answered(const char *command, const char *which, const char *note, const char *word) {
    struct outcome o =
        plimsoll_expect(0, dir, (const char *[]){command, "run.yaml", "--json", word, NULL});
    json_t *answer = json_loads(o.out, 0, NULL);
    ck_assert_msg(strstr(o.out, note), "%s", o.out);
    const double bytes = joblog_number(json_object_get(answer, "bytes"), which);
    json_decref(answer);
    outcome_finish(&o);
    return bytes;
}

/* A GPU is a budget that is named. An estimate of this machine's GPU names no card, so there the
 * budget has to be written. */
START_TEST(a_gpu_opens_a_level_that_is_not_written) {
    static const char note[] = "gradient_checkpointing: auto is `";
    tiny_make(dir, &(struct tiny){.layers = 4},
              "device: cuda\nbatch_size: 4\nmax_steps: 1\noptimizer_in_backward: false\n");
    TRAIN_WELL("output_dir=open");
    ck_assert(resolved_has("open", "gradient_checkpointing: none\n"));
    TRAIN_WELL("output_dir=written", "gradient_checkpointing=full");
    ck_assert(resolved_has("written", "gradient_checkpointing: full\n"));
    TRAIN_WELL("output_dir=cpu", "device=cpu");
    ck_assert(resolved_has("cpu", "gradient_checkpointing: full\n"));

    const double context = answered("estimate-vram", "context", "", NULL);
    const double most = summary_number("open", "planned_peak_bytes"),
                 least = summary_number("written", "planned_peak_bytes");
    const char *budget = textf("vram_budget=%.0fB", context + (least + most) / 2);
    TRAIN_WELL("output_dir=less", budget);
    const double bytes = summary_number("less", "planned_peak_bytes");
    ck_assert_msg(least < bytes && bytes < most, "%g of %g to %g", bytes, least, most);
    ck_assert(!resolved_has("less", "gradient_checkpointing: full\n"));
    ck_assert(answered("estimate-vram", "arena", note, budget) == bytes);
    ck_assert(answered("plan", "arena", note, budget) == bytes);
}
END_TEST

/* --- what a step may not do ------------------------------------------------------------------- */

/* Returns how much ten more steps add to a counter. */
static long added(const char *name) {
    char few[SCRATCH_PATH + 16], many[SCRATCH_PATH + 16];
    snprintf(few, sizeof few, "%s/few", dir);
    snprintf(many, sizeof many, "%s/many", dir);
    return plsim_counter(many, name) - plsim_counter(few, name);
}

/* The host waits for loss and norm of a step while the next one is queued already. */
START_TEST(a_step_allocates_nothing_and_never_lets_the_gpu_run_dry) {
    make("full", "batch_size: 2\ngradient_accumulation_steps: 4\n");
    set("PLSIM_REPORT", textf("%s/few", dir));
    TRAIN_WELL("output_dir=few.out", "max_steps=4");
    set("PLSIM_REPORT", textf("%s/many", dir));
    TRAIN_WELL("output_dir=many.out", "max_steps=14");
    ck_assert_int_eq(added("mallocs"), 0);
    ck_assert_int_eq(added("host_mallocs"), 0);
    ck_assert_int_eq(added("syncs"), 10);
    ck_assert_int_eq(added("idle_syncs"), 0);
    ck_assert_int_gt(added("launches"), 0);
}
END_TEST

/* --- the same numbers ------------------------------------------------------------------------- */

/* F1 of profile.h. The run waits after every operation, and predicts from the one step that was
 * timed. */
START_TEST(a_profile_and_a_prediction_change_no_bit) {
    make("full", "");
    TRAIN_WELL("max_steps=6", "output_dir=plain");
    ck_assert(path_exists(in_dir(dir, "plimsoll/speed.json")));
    TRAIN_WELL("max_steps=6", "output_dir=profiled", "--profile");
    ck_assert_double_gt(summary_number("profiled", "predicted_step_seconds"), 0);
    json_t *log = log_of("profiled");
    const json_t *profile = joblog_event(log, "profile", 0);
    ck_assert_int_eq(json_integer_value(json_object_get(profile, "steps")), 6);
    ck_assert_uint_gt(json_array_size(json_object_get(profile, "ops")), 10);
    json_decref(log);
    expect_same_run("plain", "profiled");
}
END_TEST

START_TEST(the_order_of_threads_changes_no_bit) {
    make(_i ? "lora" : "full", _i ? "dtype: bf16\nlora_dropout: 0.1\n" : "");
    set("PLSIM_SMS", "132");
    TRAIN_WELL("output_dir=forward");
    set("PLSIM_ORDER", "reverse");
    set("PLSIM_SMS", "3");
    TRAIN_WELL("output_dir=backward");
    char x[SCRATCH_PATH + 16], y[SCRATCH_PATH + 16];
    snprintf(x, sizeof x, "%s/forward", dir);
    snprintf(y, sizeof y, "%s/backward", dir);
    joblog_assert_same_steps(x, y);
    weights_assert_same(x, y, _i ? "adapter_model" : "model");
}
END_TEST

/* fp32: rounding of sums of a few hundred terms. bf16: every stored activation is rounded to eight
 * bits on both sides, at other places in fused kernels. */
static const struct {
    const char *mode, *more;
    double limit;
} numbers[] = {{"full", "", 1e-5},
               {"lora", "", 1e-5},
               {"full", "dtype: bf16\n", 0x1p-8},
               {"lora", "dtype: bf16\nlora_dropout: 0.1\n", 0x1p-8}};

START_TEST(losses_are_those_of_the_cpu) {
    make(numbers[_i].mode, numbers[_i].more);
    TRAIN_WELL("device=cpu", "output_dir=cpu");
    TRAIN_WELL("output_dir=cuda");
    json_t *cpu = log_of("cpu"), *cuda = log_of("cuda");
    for (uint64_t step = 1; step <= 3; step++) {
        double want = joblog_number(joblog_step(cpu, step), "loss");
        double got = joblog_number(joblog_step(cuda, step), "loss");
        ck_assert_msg(fabs(got - want) <= numbers[_i].limit * want, "step %d: %.9g, not %.9g",
                      (int)step, got, want);
    }
    json_decref(cpu);
    json_decref(cuda);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cuda.train");
    TCase *tc = tcase_create("runs");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, an_out_of_memory_of_the_gpu_is_survived_by_halving, 0,
                        (int)(sizeof failures / sizeof *failures));
    tcase_add_test(tc, a_product_that_fails_with_a_reused_algorithm_is_tried_with_its_own);
    tcase_add_test(tc, a_neighbour_between_verdict_and_reservation_is_survived_by_halving);
    tcase_add_loop_test(tc, memory_that_stays_away_ends_the_run_and_is_named, 0,
                        (int)(sizeof shortages / sizeof *shortages));
    tcase_add_test(tc, an_out_of_memory_in_an_evaluation_does_not_shrink_the_batch_of_training);
    tcase_add_loop_test(tc, a_lost_device_is_not_tried_again, 0,
                        (int)(sizeof losses / sizeof *losses));
    tcase_add_test(tc, a_first_context_is_predicted_with_a_doubt_and_then_measured);
    tcase_add_loop_test(tc, a_first_run_on_a_full_card_trains_or_is_refused_before_its_first_step,
                        0, sizeof rooms / sizeof *rooms);
    tcase_add_test(tc, an_automatic_batch_leaves_a_first_run_the_room_for_kernels);
    tcase_add_test(tc, what_fits_without_the_doubt_of_a_first_context_is_tight);
    tcase_add_test(tc, a_gpu_opens_a_level_that_is_not_written);
    tcase_add_test(tc, a_step_allocates_nothing_and_never_lets_the_gpu_run_dry);
    tcase_add_test(tc, a_profile_and_a_prediction_change_no_bit);
    tcase_add_loop_test(tc, the_order_of_threads_changes_no_bit, 0, 2);
    tcase_add_loop_test(tc, losses_are_those_of_the_cpu, 0, 4);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
