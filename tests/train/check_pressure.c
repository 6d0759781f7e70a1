/* check_pressure.c - memory or disk gives out in the middle of a run. Through the real binary.
 *
 * Whatever gives out: the run ends by itself, says which resource it was, and what is on disk is
 * whole; a run that recovers ends where one that started with the smaller micro-batch ends. */
#include "runtime/checkpoint/save_set.h"
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/saved.h"
#include "tests/support/scratch.h"
#include "tests/support/tensorset.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

#define TRAIN(...)      plimsoll_train(dir, (const char *[]){__VA_ARGS__, NULL})
#define TRAIN_WELL(...) plimsoll_train_expect(0, dir, (const char *[]){__VA_ARGS__, NULL})

static const char *path_of(const char *out) {
    return in_dir(dir, out);
}

static double summary_number(const char *out, const char *key) {
    return joblog_summary(in_dir(dir, out), key);
}

/* --- out of memory, and on with a smaller micro-batch ------------------------------------------
 */

static const struct {
    const char *mode, *more;
    const char *large, *small; /* how the step is cut before two halvings, and after */
    int steps_of_halving;      /* micro-batches of a step after both */
} halvings[] = {
    {"full", "", "batch_size=8", "batch_size=2 gradient_accumulation_steps=4", 4},
    {"full", "dtype: bf16\nmaster_weights: false\ngradient_dtype: fp32\n", "batch_size=8",
     "batch_size=2 gradient_accumulation_steps=4", 4},
    {"full", "dtype: bf16\nmaster_weights: false\ngradient_dtype: bf16\n", "batch_size=8",
     "batch_size=2 gradient_accumulation_steps=4", 4},
    {"lora", "lora_r: 4\nlora_dropout: 0.2\n", "batch_size=8",
     "batch_size=2 gradient_accumulation_steps=4", 4},
    /* 7 -> 4 -> 2: the last micro-batch of a step is smaller than the others */
    {"full", "global_batch_size: 7\n", "batch_size=7", "batch_size=2", 4},
};

/* Splits "a b" in place of a shell; at most two words. */
static void train_cut(const char *cut, const char *out, const char *more) {
    char copy[128];
    snprintf(copy, sizeof copy, "%s", cut);
    char *second = strchr(copy, ' ');
    if (second) *second++ = 0;
    if (second)
        TRAIN_WELL(copy, second, out, more);
    else
        TRAIN_WELL(copy, out, more);
}

static void make_halving(int i) {
    char yaml[256];
    snprintf(yaml, sizeof yaml, "%slearning_rate: 0.01\nmax_steps: 4\n", halvings[i].more);
    tiny_make(dir, &(struct tiny){.mode = halvings[i].mode}, yaml);
}

static void expect_same_run(int i, const char *a, const char *b) {
    char x[SCRATCH_PATH + 16], y[SCRATCH_PATH + 16];
    snprintf(x, sizeof x, "%s/%s", dir, a);
    snprintf(y, sizeof y, "%s/%s", dir, b);
    bool full = strcmp(halvings[i].mode, "full") == 0;
    weights_assert_same(x, y, full ? "model" : "adapter_model");
    joblog_assert_same_steps(x, y);
}

/* T1 of train.h: nothing of the attempt that failed is left. */
START_TEST(recovery_ends_where_the_smaller_micro_batch_ends) {
    make_halving(_i);
    train_cut(halvings[_i].small, "output_dir=small", "seed=3");
    TRAIN_WELL(halvings[_i].large, "output_dir=large", "seed=3",
               "debug_inject=device_oom@step=1,count=2");
    expect_same_run(_i, "small", "large");
    json_t *log = joblog_read(path_of("large"));
    ck_assert_uint_eq(joblog_count(log, "oom_recovery"), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *event = joblog_event(log, "oom_recovery", i);
        ck_assert(joblog_number(event, "step") == 1);
        ck_assert(joblog_number(event, "attempt") == (double)(i + 1));
        ck_assert(joblog_number(event, "requested_bytes") > 0);
        double old = joblog_number(event, "old_batch_size");
        ck_assert(joblog_number(event, "new_batch_size") == (double)(((int)old + 1) / 2));
    }
    ck_assert(joblog_number(joblog_event(log, "oom_recovery", 1), "gradient_accumulation_steps") ==
              halvings[_i].steps_of_halving);
    ck_assert(joblog_number(joblog_step(log, 1), "batch_size") == 2);
    json_decref(log);
    ck_assert(summary_number("large", "oom_recoveries") == 2);
    ck_assert(summary_number("large", "planned_peak_bytes") ==
              summary_number("large", "allocated_peak_bytes"));
    ck_assert(summary_number("large", "planned_peak_bytes") ==
              summary_number("small", "planned_peak_bytes"));
}
END_TEST

/* The head is most of the model: folding its gradient would take more memory than half of the
 * micro-batch gives back, and there is no more than the first micro-batch takes. */
START_TEST(a_smaller_micro_batch_never_takes_more) {
    char budget[48];
    tiny_make(dir, &(struct tiny){.hidden = 128, .vocab = 4000},
              "dtype: bf16\nmaster_weights: false\ngradient_dtype: bf16\nmax_steps: 2\n"
              "batch_size: 2\nglobal_batch_size: 2\n");
    TRAIN_WELL("output_dir=free");
    const double enough = summary_number("free", "planned_peak_bytes");
    TRAIN_WELL("output_dir=half", "batch_size=1", "max_steps=1");
    ck_assert_msg(summary_number("half", "planned_peak_bytes") > enough,
                  "the case does not test what it is for");
    snprintf(budget, sizeof budget, "vram_budget=%.0fB", enough);
    TRAIN_WELL("output_dir=tight", budget, "vram_margin=0", "debug_inject=device_oom@step=2");
    ck_assert(summary_number("tight", "oom_recoveries") == 1);
    ck_assert(summary_number("tight", "allocated_peak_bytes") <= enough);
}
END_TEST

/* A halving in a later step leaves the steps before it as they were. */
START_TEST(recovery_in_the_middle_redoes_that_step_alone) {
    make_halving(0);
    TRAIN_WELL("batch_size=8", "output_dir=plain");
    TRAIN_WELL("batch_size=8", "output_dir=hit", "debug_inject=device_oom@step=3");
    json_t *plain = joblog_read(path_of("plain")), *hit = joblog_read(path_of("hit"));
    for (uint64_t step = 1; step <= 4; step++) {
        const json_t *a = joblog_step(plain, step), *b = joblog_step(hit, step);
        ck_assert(a && b);
        ck_assert(joblog_number(b, "batch_size") == (step < 3 ? 8 : 4));
        ck_assert(joblog_number(a, "tokens") == joblog_number(b, "tokens"));
        if (step < 3) ck_assert(joblog_number(a, "loss") == joblog_number(b, "loss"));
    }
    json_decref(plain);
    json_decref(hit);
}
END_TEST

#define KEPT "optimizer_in_backward=false"

static double arena_bytes(const char *batch) {
    struct outcome o = plimsoll_expect(
        0, dir, (const char *[]){"estimate-vram", "run.yaml", "--json", batch, NULL});
    json_t *estimate = json_loads(o.out, 0, NULL);
    double bytes = joblog_number(json_object_get(estimate, "bytes"), "arena");
    json_decref(estimate);
    outcome_finish(&o);
    return bytes;
}

/* The same without any injection: a card that batch 2 fits and batch 4 does not, by one byte, where
 * gradients are kept in the job arena. */
START_TEST(a_card_too_small_halves_until_it_fits) {
    make_halving(0);
    double four = arena_bytes("batch_size=4");
    ck_assert(arena_bytes("batch_size=2") < four);
    char budget[64];
    snprintf(budget, sizeof budget, "vram_budget=%.0fB", four - 1);
    TRAIN_WELL(halvings[0].large, "output_dir=large", "preflight=off", budget, KEPT);
    train_cut(halvings[0].small, "output_dir=small", "seed=42");
    expect_same_run(0, "small", "large");
    ck_assert(summary_number("large", "oom_recoveries") == 2);
    snprintf(budget, sizeof budget, "vram_budget=%.0fB", four);
    TRAIN_WELL(halvings[0].large, "output_dir=fits", "preflight=off", budget, KEPT);
    ck_assert(summary_number("fits", "oom_recoveries") == 1);
}
END_TEST

/* Jobs that leave everything open which a budget decides; what halving them ends at is what they
 * are when they begin there. */
static const struct {
    const char *mode, *more;
} open_jobs[] = {
    {"full", ""},
    {"full", "optimizer: sgd\n"},
    {"full", "dtype: bf16\n"},
    {"full", "dtype: bf16\nmaster_weights: false\n"},
    {"full", "gradient_checkpointing: none\n"},
    {"lora", "lora_r: 4\n"},
    {"full", "optimizer_in_backward: true\n"},
    {"full", "preflight: warn\n"},
};
enum { N_OPEN = sizeof open_jobs / sizeof *open_jobs };

static void make_open(int i) {
    tiny_make(dir,
              &(struct tiny){.mode = open_jobs[i].mode, .longest = 64, .vocab = 997, .layers = 4},
              textf("%ssave_steps: 2\nlearning_rate: 0.01\nmax_steps: 4\n%s", open_jobs[i].more,
                    strstr(open_jobs[i].more, "preflight") ? "" : "preflight: off\n"));
}

/* The settings of the runs agree, apart from their directories. */
static void expect_same_settings(const char *a, const char *b) {
    static const char *const keys[] = {
        "batch_size",     "gradient_checkpointing", "loss_chunk_tokens", "optimizer_in_backward",
        "gradient_dtype", "mlp_chunk_tokens",       "master_weights"};
    char *x = file_read(textf("%s/config.resolved.yaml", path_of(a)), NULL);
    char *y = file_read(textf("%s/config.resolved.yaml", path_of(b)), NULL);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *in_x = strstr(x, textf("\n%s: ", keys[i]));
        const char *in_y = strstr(y, textf("\n%s: ", keys[i]));
        ck_assert_msg(!in_x == !in_y, "%s", keys[i]);
        if (in_x)
            ck_assert_msg(strcspn(in_x + 1, "\n") == strcspn(in_y + 1, "\n") &&
                              strncmp(in_x, in_y, 1 + strcspn(in_x + 1, "\n")) == 0,
                          "%.60s but %.60s", in_x + 1, in_y + 1);
    }
    free(x);
    free(y);
}

/* A card for two samples of the job in several micro-batches, by what estimate-vram says.
 * W1 of begin_anew.h: the run is that of the smaller micro-batch to the bit.
 * N1 of anew.h: the settings are those of a run that begins with the smaller micro-batch.
 * N2 of anew.h: it takes no more than the card has. */
START_TEST(an_open_job_halves_to_what_fits) {
    make_open(_i);
    const char *level = strstr(open_jobs[_i].more, "gradient_checkpointing")
                            ? "gradient_checkpointing=none"
                            : "gradient_checkpointing=full";
    struct outcome o =
        plimsoll_expect(0, dir,
                        (const char *[]){"estimate-vram", "run.yaml", "--json", "batch_size=2",
                                         "global_batch_size=8", KEPT, level, NULL});
    json_t *estimate = json_loads(o.out, 0, NULL);
    char budget[64];
    snprintf(budget, sizeof budget, "vram_budget=%.0fB",
             joblog_number(json_object_get(estimate, "bytes"), "arena"));
    json_decref(estimate);
    outcome_finish(&o);
    const char *kept = strstr(open_jobs[_i].more, "in_backward: true") ? KEPT : "seed=42";
    TRAIN_WELL("batch_size=2", "global_batch_size=8", "output_dir=small", budget, "vram_margin=0",
               kept);
    TRAIN_WELL("batch_size=8", "output_dir=large", budget, "vram_margin=0");
    TRAIN_WELL("batch_size=8", "output_dir=two", "max_steps=2", budget, "vram_margin=0");
    TRAIN_WELL("batch_size=8", "output_dir=two", budget, "vram_margin=0");
    const char *file = strcmp(open_jobs[_i].mode, "lora") == 0 ? "adapter_model" : "model";
    weights_assert_same(path_of("small"), path_of("large"), file);
    weights_assert_same(path_of("small"), path_of("two"), file);
    joblog_assert_same_steps(path_of("small"), path_of("large"));
    ck_assert(summary_number("large", "oom_recoveries") == 2);
    ck_assert(summary_number("large", "planned_peak_bytes") ==
              summary_number("small", "planned_peak_bytes"));
    expect_same_settings("small", "large");
    o = plimsoll_expect(0, dir, (const char *[]){"validate", "large/config.resolved.yaml", NULL});
    outcome_finish(&o);
}
END_TEST

/* In a later step only the micro-batch becomes smaller; the file says so. */
START_TEST(the_resolved_job_has_the_micro_batch_in_use) {
    static const char *const more[] = {KEPT, "optimizer_in_backward=true"};
    make_open(0);
    TRAIN_WELL("batch_size=8", "debug_inject=device_oom@step=3", more[_i]);
    char *text = file_read(in_dir(dir, "out/config.resolved.yaml"), NULL);
    ck_assert_msg(strstr(text, "\nbatch_size: 4\n") && strstr(text, "\nglobal_batch_size: 8\n"),
                  "%s", text);
    free(text);
    struct outcome o =
        plimsoll_expect(0, dir, (const char *[]){"validate", "out/config.resolved.yaml", NULL});
    outcome_finish(&o);
}
END_TEST

START_TEST(weights_without_room_are_out_of_memory_of_the_device) {
    make_halving(0);
    struct outcome o = TRAIN("batch_size=8", "debug_inject=device_oom@alloc=1");
    ck_assert_int_eq(o.status, 4);
    ck_assert_msg(strstr(o.err, "error[RUNTIME_DEVICE_OOM]: job arena: asked for"), "%s", o.err);
    ck_assert_msg(strstr(o.err, "hint: no batch size makes the job arena smaller"), "%s", o.err);
    ck_assert_msg(strstr(o.err, "[!]"), "no checklist: %s", o.err);
    outcome_finish(&o);
}
END_TEST

START_TEST(recovery_that_is_off_is_off) {
    make_halving(0);
    struct outcome o =
        TRAIN("batch_size=8", "oom_recovery=false", "debug_inject=device_oom@step=1");
    ck_assert_int_eq(o.status, 4);
    ck_assert_msg(strstr(o.err, "error[RUNTIME_GPU_OOM]"), "%s", o.err);
    outcome_finish(&o);
}
END_TEST

/* --- out of memory at every allocation there is ------------------------------------------------
 */

static void expect_no_temporary(const char *name, void *ctx) {
    (void)ctx;
    ck_assert_msg(!strstr(name, ".tmp"), "%s was left behind", name);
}

/* Every checkpoint in out/ is one of ref/, byte for byte, and there is nothing half made. */
static void expect_whole_checkpoint(const char *name, void *count) {
    expect_no_temporary(name, NULL);
    if (strncmp(name, "checkpoint-", 11) != 0) return;
    checkpoint_assert_same(textf("%s/out/%s", dir, name), textf("%s/ref/%s", dir, name));
    ++*(int *)count;
}

/* Returns how many checkpoints there are. A save that failed after its journal is finished first.
 */
static int expect_whole_output(void) {
    int count = 0;
    struct pl_diag d = {0};
    ck_assert_msg(pl_save_set_settle(path_of("out"), &d) == PL_ERR_OK, "%s", d.message);
    if (path_exists(path_of("out"))) dir_each(path_of("out"), expect_whole_checkpoint, &count);
    return count;
}

/* A checkpoint holds the micro-batch in use, so one after a recovery differs from that of `ref`. */
static void expect_clean_exhaustion(const struct outcome *o) {
    ck_assert_msg(o->status == 4, "exit %d: %s", o->status, o->err);
    /* no batch is smaller than weights: there recovery has nothing to exhaust */
    const char *job_arena = strstr(o->err, "error[RUNTIME_DEVICE_OOM]: job arena");
    ck_assert_msg(job_arena || strstr(o->err, "error[RUNTIME_GPU_OOM]"), "%s", o->err);
    ck_assert_msg(strstr(o->err, "bytes) free") || strstr(o->err, "free ("), "%s", o->err);
    ck_assert_msg(strstr(o->err, "asked for"), "%s", o->err);
    ck_assert_msg(strstr(o->err, "[!]"), "no checklist: %s", o->err);
}

#define MAX_ALLOCATIONS 32

static const char *const repeats[] = {"", ",forever"};

START_TEST(an_allocation_that_fails_ends_in_a_recovery_or_in_exit_4) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 4\nmax_steps: 2\nsave_steps: 1\n");
    int failed = 0;
    double recovered = 1;
    for (int at = 1; recovered > 0; at++) {
        ck_assert_int_lt(at, MAX_ALLOCATIONS);
        scratch_remove(path_of("out"));
        struct outcome o = TRAIN(textf("debug_inject=device_oom@alloc=%d%s", at, repeats[_i]));
        if (path_exists(path_of("out"))) dir_each(path_of("out"), expect_no_temporary, NULL);
        if (o.status == 0) {
            recovered = summary_number("out", "oom_recoveries");
        } else {
            expect_clean_exhaustion(&o);
            bool job_arena = strstr(o.err, "what failed: job arena") != NULL;
            ck_assert_msg(job_arena == (at == 1), "%s", o.err);
            ck_assert_msg(strstr(o.err, "(injected by debug_inject)"), "%s", o.err);
            ck_assert_msg(!strstr(o.err, "no batch size makes") == !job_arena, "%s", o.err);
            failed++;
        }
        outcome_finish(&o);
    }
    /* The job arena has nothing to halve; the batch arena has, unless memory stays away. */
    ck_assert_int_eq(failed, _i == 0 ? 1 : 2);
}
END_TEST

START_TEST(exhaustion_in_a_later_step_keeps_the_checkpoints_before_it) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 4\nmax_steps: 3\nsave_steps: 1\n");
    TRAIN_WELL("output_dir=ref");
    struct outcome o = TRAIN("debug_inject=device_oom@step=3,forever");
    expect_clean_exhaustion(&o);
    outcome_finish(&o);
    ck_assert_int_eq(expect_whole_output(), 2);
    TRAIN_WELL("output_dir=out"); /* goes on after step 2 */
    weights_assert_same(textf("%s/ref", dir), textf("%s/out", dir), "model");
}
END_TEST

/* --- the disk is full --------------------------------------------------------------------------
 */

#define MAX_WRITES 400

/* Step 1 is saved; then the disk fills at the N-th operation of the run that goes on, for every N
 * there is. */
START_TEST(a_full_disk_leaves_the_previous_checkpoint_whole) {
    tiny_make(dir, &(struct tiny){.rows = 8, .longest = 6},
              "batch_size: 2\nlr_scheduler: constant\nsave_steps: 1\n");
    TRAIN_WELL("output_dir=ref", "max_steps=1");
    scratch_copy(textf("%s/ref", dir), textf("%s/start", dir));
    TRAIN_WELL("output_dir=ref", "max_steps=2");
    int at = 0, status = 1;
    for (; status != 0; at++) {
        ck_assert_int_lt(at, MAX_WRITES);
        scratch_remove(path_of("out"));
        scratch_copy(textf("%s/start", dir), textf("%s/out", dir));
        struct outcome o =
            TRAIN("max_steps=2", textf("debug_inject=disk_full@write=%d%s", at + 1, repeats[_i]));
        status = o.status;
        if (status != 0)
            ck_assert_msg(status == 1 && strstr(o.err, "error[CHECKPOINT_WRITE]"), "exit %d: %s",
                          status, o.err);
        ck_assert_int_ge(expect_whole_output(), 1);
        ck_assert(path_exists(path_of("out/checkpoint-1/trainer_state.json")));
        outcome_finish(&o);
    }
    ck_assert_int_gt(at, 20); /* four files at least: open, write, sync, close, rename each */
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.pressure");
    TCase *tc = tcase_create("runs");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, recovery_ends_where_the_smaller_micro_batch_ends, 0,
                        (int)(sizeof halvings / sizeof *halvings));
    tcase_add_test(tc, recovery_in_the_middle_redoes_that_step_alone);
    tcase_add_test(tc, a_smaller_micro_batch_never_takes_more);
    tcase_add_test(tc, a_card_too_small_halves_until_it_fits);
    tcase_add_loop_test(tc, an_open_job_halves_to_what_fits, 0, N_OPEN);
    tcase_add_loop_test(tc, the_resolved_job_has_the_micro_batch_in_use, 0, 2);
    tcase_add_test(tc, weights_without_room_are_out_of_memory_of_the_device);
    tcase_add_test(tc, recovery_that_is_off_is_off);
    tcase_add_loop_test(tc, an_allocation_that_fails_ends_in_a_recovery_or_in_exit_4, 0, 2);
    tcase_add_test(tc, exhaustion_in_a_later_step_keeps_the_checkpoints_before_it);
    tcase_add_loop_test(tc, a_full_disk_leaves_the_previous_checkpoint_whole, 0, 2);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
