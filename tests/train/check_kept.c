/* check_kept.c - what a run has learned is on disk however it ends, and no other run writes there.
 */
#include "tests/support/child.h"
#include "tests/support/hang.h"
#include "tests/support/joblog.h"
#include "tests/support/saved.h"
#include "tests/support/scratch.h"
#include "tests/support/tensorset.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
    signal(SIGHUP, SIG_DFL); /* the runner of the tests may be one that nohup started */
}

static void tear_down(void) {
    scratch_remove(dir);
}

#define TRAIN(...)      plimsoll_train(dir, (const char *[]){__VA_ARGS__, NULL})
#define TRAIN_WELL(...) plimsoll_train_expect(0, dir, (const char *[]){__VA_ARGS__, NULL})

static void expect_failure(const struct outcome *o, int status, const char *what) {
    ck_assert_msg(o->status == status, "exit %d: %s", o->status, o->err);
    ck_assert_msg(strstr(o->err, what) != NULL, "no `%s` in: %s", what, o->err);
}

static struct child start(const char *const words[], int steps) {
    char line[4096];
    struct child c = plimsoll_start(dir, words, true);
    while (steps > 0) {
        ck_assert_msg(fgets(line, sizeof line, c.out), "the run ended early");
        if (strstr(line, "\"event\":\"step\"")) steps--;
    }
    return c;
}

/* Reports fill the pipe long before the last step: it cannot end by itself. */
static struct child start_long_run(void) {
    return start((const char *[]){"train", "run.yaml", "-q", "--json", "max_steps=120", NULL}, 3);
}

static struct outcome drain(struct child *c) {
    char line[4096];
    while (fgets(line, sizeof line, c->out))
        continue;
    return child_wait(c, 20);
}

static void expect_same_checkpoint(const char *a, const char *b) {
    checkpoint_assert_same(in_dir(dir, a), in_dir(dir, b));
}

/* --- a run that cannot go on -------------------------------------------------------------------
 */

static const struct {
    const char *yaml, *inject; /* settings of the run that fails */
    int status;
    const char *code;
} ends[] = {
    /* the decay multiplies weights by -10^5 a step, which fp32 does not stand for long */
    {"batch_size: 4\nlearning_rate: 1000\nweight_decay: 100\n", "", 1, "RUNTIME_NOT_FINITE"},
    {"batch_size: 1\n", "debug_inject: device_oom@step=4\n", 4, "RUNTIME_GPU_OOM"},
};

/* A checkpoint of a run that was told to end there is the same file for file. */
START_TEST(a_run_that_cannot_go_on_leaves_its_last_whole_step) {
    char yaml[256];
    int n =
        snprintf(yaml, sizeof yaml, "lr_scheduler: constant\n%s%s", ends[_i].yaml, ends[_i].inject);
    tiny_make(dir, &(struct tiny){0}, yaml);
    struct outcome o = TRAIN("max_steps=6");
    expect_failure(&o, ends[_i].status, ends[_i].code);
    const char *told = strstr(o.err, "; step ");
    ck_assert_msg(told && strstr(told, "is saved"), "%s", o.err);
    const int step = atoi(told + strlen("; step "));
    outcome_finish(&o);
    yaml[(size_t)n - strlen(ends[_i].inject)] = 0;
    tiny_make(dir, &(struct tiny){0}, yaml);
    TRAIN_WELL(textf("max_steps=%d", step), textf("save_steps=%d", step), "output_dir=straight");
    expect_same_checkpoint(textf("straight/checkpoint-%d", step), textf("out/checkpoint-%d", step));
    if (ends[_i].status == 1) return; /* the cause of the next step's failure is in the weights
                                         already */
    TRAIN_WELL("max_steps=4");
    ck_assert(joblog_summary(in_dir(dir, "out"), "steps") == 4 && step == 3);
}
END_TEST

/* save_total_limit is for a run that goes well. */
START_TEST(what_is_saved_in_need_replaces_nothing) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 1\nsave_steps: 2\nsave_total_limit: 1\n");
    struct outcome o = TRAIN("max_steps=6", "debug_inject=device_oom@step=4");
    expect_failure(&o, 4, "RUNTIME_GPU_OOM");
    outcome_finish(&o);
    ck_assert(path_exists(in_dir(dir, "out/checkpoint-2")));
    ck_assert(path_exists(in_dir(dir, "out/checkpoint-3")));
}
END_TEST

static struct outcome in_shell(const char *fmt) {
    const char *argv[] = {"sh", "-c", textf(fmt, getenv("PLIMSOLL")), NULL};
    struct outcome o = child_run(argv, dir, HANG_SECONDS);
    ck_assert(!o.timed_out);
    return o;
}

static void count_checkpoints(const char *name, void *count) {
    ck_assert_msg(!strstr(name, ".tmp"), "%s was left", name);
    *(int *)count += strncmp(name, "checkpoint-", 11) == 0;
}

static int checkpoints(void) {
    int n = 0;
    dir_each(in_dir(dir, "out"), count_checkpoints, &n);
    return n;
}

START_TEST(a_reader_that_goes_away_costs_no_step) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 2\nmax_steps: 100000\n");
    struct outcome o = in_shell("%s train run.yaml --json | head -n 3");
    outcome_finish(&o);
    ck_assert_int_eq(checkpoints(), 1);
}
END_TEST

START_TEST(a_file_above_the_limit_is_a_failed_write) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 2\nmax_steps: 2\nsave_steps: 1\n");
    struct outcome o = in_shell("ulimit -f 24; exec %s train run.yaml");
    expect_failure(&o, 1, "CHECKPOINT_WRITE");
    outcome_finish(&o);
    ck_assert_int_eq(checkpoints(), 0);
}
END_TEST

/* --- the end of a run --------------------------------------------------------------------------
 */

/* A picture cannot take the name of a directory that holds something. */
START_TEST(weights_are_saved_before_what_may_fail_behind_them) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 2\nmax_steps: 2\n");
    ck_assert_int_eq(mkdir(in_dir(dir, "out"), 0777), 0);
    ck_assert_int_eq(mkdir(in_dir(dir, "out/vram.svg"), 0777), 0);
    file_write(in_dir(dir, "out/vram.svg/in the way"), "");
    struct outcome o = TRAIN("output_dir=out");
    expect_failure(&o, 1, "vram.svg");
    outcome_finish(&o);
    TRAIN_WELL("output_dir=straight");
    weights_assert_same(textf("%s/straight", dir), textf("%s/out", dir), "model");
}
END_TEST

START_TEST(a_log_that_was_moved_away_costs_the_picture_alone) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 2\n");
    struct child c = start_long_run();
    ck_assert_int_eq(rename(in_dir(dir, "out/train_log.jsonl"), in_dir(dir, "log.1")), 0);
    struct outcome o = drain(&c);
    ck_assert_msg(o.status == 0, "exit %d: %s", o.status, o.err);
    outcome_finish(&o);
    ck_assert(path_exists(in_dir(dir, "out/model.safetensors")));
    ck_assert(path_exists(in_dir(dir, "out/vram.svg")));
    ck_assert(!path_exists(in_dir(dir, "out/loss.svg")));
}
END_TEST

/* The kernel and the shell both tell of a terminal that closes. */
START_TEST(a_terminal_that_closes_is_told_once) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 2\n");
    struct child c = start_long_run();
    kill(c.pid, SIGHUP);
    usleep(20000);
    kill(c.pid, SIGHUP);
    struct outcome o = drain(&c);
    expect_failure(&o, 128 + SIGHUP, "RUNTIME_INTERRUPTED");
    outcome_finish(&o);
    ck_assert_int_eq(checkpoints(), 1);
}
END_TEST

START_TEST(nohup_is_obeyed) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 2\n");
    signal(SIGHUP, SIG_IGN);
    struct child c = start_long_run();
    kill(c.pid, SIGHUP);
    struct outcome o = drain(&c);
    ck_assert_msg(o.status == 0, "exit %d: %s", o.status, o.err);
    outcome_finish(&o);
}
END_TEST

/* --- one directory, one run --------------------------------------------------------------------
 */

START_TEST(a_directory_is_made_with_those_above_it) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 2\nmax_steps: 1\n");
    file_write(in_dir(dir, "file"), "");
    TRAIN_WELL("output_dir=a/b//c/");
    ck_assert(path_exists(in_dir(dir, "a/b/c/model.safetensors")));
    TRAIN_WELL(textf("output_dir=%s/d/e", dir));
    ck_assert(path_exists(in_dir(dir, "d/e/model.safetensors")));
    struct outcome o = TRAIN("output_dir=file/b");
    ck_assert_msg(o.status != 0 && strstr(o.err, "Not a directory"), "%s", o.err);
    outcome_finish(&o);
}
END_TEST

START_TEST(a_directory_takes_one_run_at_a_time) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 2\nsave_steps: 1\n");
    struct child c = start_long_run();
    char *before = file_read(in_dir(dir, "out/train_log.jsonl"), NULL);
    struct outcome o = TRAIN("max_steps=2", "resume=never");
    expect_failure(&o, 1, "another run writes");
    outcome_finish(&o);
    char *after = file_read(in_dir(dir, "out/train_log.jsonl"), NULL);
    ck_assert_msg(strncmp(before, after, strlen(before)) == 0, "the log was written over");
    free(before);
    free(after);
    kill(c.pid, SIGKILL);
    o = drain(&c);
    outcome_finish(&o);
    TRAIN_WELL("max_steps=2", "resume=never"); /* the lock went with the process */
}
END_TEST

START_TEST(a_run_that_starts_over_is_the_one_that_goes_on) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 1\nsave_steps: 2\n");
    TRAIN_WELL("max_steps=8");
    struct outcome o = TRAIN("max_steps=8", "resume=never", "debug_inject=device_oom@step=4");
    expect_failure(&o, 4, "RUNTIME_GPU_OOM");
    outcome_finish(&o);
    o = TRAIN("max_steps=8");
    ck_assert_msg(strstr(o.err, "after step 3") != NULL, "%s", o.err);
    outcome_finish(&o);
}
END_TEST

START_TEST(a_probe_leaves_the_files_of_a_run_alone) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 2\nmax_steps: 3\n");
    TRAIN_WELL("output_dir=out");
    scratch_copy(in_dir(dir, "out"), textf("%s/before", dir));
    TRAIN_WELL("output_dir=out", "learning_rate=0.5", "--probe");
    ck_assert(file_same(in_dir(dir, "before/config.resolved.yaml"),
                        in_dir(dir, "out/config.resolved.yaml")));
    ck_assert(file_same(in_dir(dir, "before/preflight.json"), in_dir(dir, "out/preflight.json")));
    joblog_assert_same_steps(textf("%s/before", dir), textf("%s/out", dir));
}
END_TEST

/* --- going on ----------------------------------------------------------------------------------
 */

static const char *const batches[] = {
    "batch_size: 4\n",
    "batch_size: 2\ngradient_accumulation_steps: 3\n",
    "batch_size: auto\nvram_budget: 3MiB\n",
    "batch_size: 4\nglobal_batch_size: 8\n",
    "batch_size: 7\n",              /* 4 and 3 */
    "batch_size: 8\ndtype: bf16\n", /* gradients in bf16, as those of one micro-batch */
};

/* A step has as many samples after a recovery as before it, in the next run too. */
START_TEST(a_run_that_recovered_goes_on) {
    char yaml[256];
    snprintf(yaml, sizeof yaml, "lr_scheduler: constant\nsave_steps: 2\n%s", batches[_i]);
    tiny_make(dir, &(struct tiny){0}, yaml);
    TRAIN_WELL("max_steps=4", "debug_inject=device_oom@step=1", "output_dir=straight");
    TRAIN_WELL("max_steps=2", "debug_inject=device_oom@step=1");
    TRAIN_WELL("max_steps=4");
    expect_same_checkpoint("straight/checkpoint-4", "out/checkpoint-4");
    struct outcome o =
        plimsoll_expect(0, dir, (const char *[]){"validate", "out/config.resolved.yaml", NULL});
    outcome_finish(&o);
}
END_TEST

static void append(const char *path, const char *text) {
    FILE *f = fopen(path, "a");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    ck_assert_int_eq(fclose(f), 0);
}

START_TEST(going_on_over_other_data_is_refused_unless_forced) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 2\nsave_steps: 1\n");
    TRAIN_WELL("max_steps=1");
    TRAIN_WELL("max_steps=2");
    append(in_dir(dir, "train.jsonl"), "{\"input_ids\":[1,2,3,4]}\n");
    struct outcome o = TRAIN("max_steps=3");
    expect_failure(&o, 5, "was trained with other settings: data: 23 rows, ");
    outcome_finish(&o);
    o = TRAIN("max_steps=3", "resume=force");
    ck_assert_msg(o.status == 0 && strstr(o.err, "resume: force - "), "%s", o.err);
    outcome_finish(&o);
    TRAIN_WELL("max_steps=4");
}
END_TEST

START_TEST(going_on_over_another_base_is_told) {
    tiny_make(dir, &(struct tiny){.mode = "lora"}, "batch_size: 2\nsave_steps: 1\nlora_r: 2\n");
    TRAIN_WELL("max_steps=1");
    struct outcome o = TRAIN("max_steps=2");
    ck_assert_msg(o.status == 0 && !strstr(o.err, "was trained on"), "%s", o.err);
    outcome_finish(&o);
    ck_assert_int_eq(rename(in_dir(dir, "config.json"), in_dir(dir, "other.json")), 0);
    o = TRAIN("max_steps=3", "model_config=other.json");
    ck_assert_msg(o.status == 0 && strstr(o.err, "was trained on `config.json`"), "%s", o.err);
    outcome_finish(&o);
}
END_TEST

/* 5 TB of weights, which no disk of a test has room for. */
static const struct tiny vast = {.hidden = 2048, .layers = 200, .ffn = 1 << 20};

/* D1 of disk.h: the checkpoints that may lie there are counted. */
START_TEST(a_disk_that_is_too_small_is_told_before_the_first_step) {
    static const char told[] = "output_dir may come to need ";
    tiny_make(dir, &vast, "batch_size: 2\npreflight: warn\nmax_steps: 4\noutput_dir: a/b\n");
    struct outcome o = TRAIN("--dry-run", "save_steps=0");
    ck_assert_msg(strstr(o.err, told) && strstr(o.err, ", 0 checkpoints of "), "%s", o.err);
    outcome_finish(&o);
    o = TRAIN("--dry-run", "save_steps=1", "save_total_limit=2");
    ck_assert_msg(strstr(o.err, ", 3 checkpoints of "), "%s", o.err);
    outcome_finish(&o);
    ck_assert_int_eq(mkdir(in_dir(dir, "a"), 0777), 0);
    ck_assert_int_eq(mkdir(in_dir(dir, "a/b"), 0777), 0);
    ck_assert_int_eq(mkdir(in_dir(dir, "a/b/checkpoint-9"), 0777), 0);
    o = TRAIN("--dry-run", "save_steps=1", "save_total_limit=2", "resume=never");
    ck_assert_msg(strstr(o.err, ", 2 checkpoints of "), "%s", o.err);
    outcome_finish(&o);
    tiny_make(dir, &(struct tiny){0}, "batch_size: 2\n");
    o = TRAIN("--dry-run");
    ck_assert_msg(o.status == 0 && !strstr(o.err, told), "%s", o.err);
    outcome_finish(&o);
}
END_TEST

/* D1 of disk.h: the export is one more model. */
START_TEST(the_merged_export_counts_in_what_a_disk_has_room_for) {
    tiny_make(dir,
              &(struct tiny){
                  .mode = "lora", .hidden = vast.hidden, .layers = vast.layers, .ffn = vast.ffn},
              "batch_size: 2\npreflight: warn\nmax_steps: 4\nmodel: .\ninit: pretrained\n"
              "model_config: ~\nsave_steps: 0\nlora_r: 1\n");
    struct outcome o = TRAIN("--dry-run");
    ck_assert_msg(o.status == 0 && !strstr(o.err, " merged, "), "%s", o.err);
    outcome_finish(&o);
    o = TRAIN("--dry-run", "save_merged=true");
    ck_assert_msg(o.status == 0 && strstr(o.err, "output_dir may come to need ") &&
                      strstr(o.err, " merged, 0 checkpoints of "),
                  "%s", o.err);
    outcome_finish(&o);
}
END_TEST

START_TEST(a_damaged_checkpoint_names_the_way_out) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 2\nsave_steps: 1\n");
    TRAIN_WELL("max_steps=2");
    ck_assert_int_eq(truncate(in_dir(dir, "out/checkpoint-2/optimizer.safetensors"), 5000), 0);
    struct outcome o = TRAIN("max_steps=3");
    expect_failure(&o, 5, "move it away");
    outcome_finish(&o);
    scratch_remove(in_dir(dir, "out/checkpoint-2"));
    TRAIN_WELL("max_steps=3");
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.kept");
    TCase *in_need = tcase_create("in_need"), *tc = tcase_create("runs");
    tcase_set_timeout(in_need, 120);
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(in_need, set_up, tear_down);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(in_need, a_run_that_cannot_go_on_leaves_its_last_whole_step, 0,
                        (int)(sizeof ends / sizeof *ends));
    tcase_add_test(in_need, what_is_saved_in_need_replaces_nothing);
    tcase_add_test(tc, a_reader_that_goes_away_costs_no_step);
    tcase_add_test(tc, a_file_above_the_limit_is_a_failed_write);
    tcase_add_test(tc, weights_are_saved_before_what_may_fail_behind_them);
    tcase_add_test(tc, a_log_that_was_moved_away_costs_the_picture_alone);
    tcase_add_test(tc, a_terminal_that_closes_is_told_once);
    tcase_add_test(tc, nohup_is_obeyed);
    tcase_add_test(tc, a_directory_is_made_with_those_above_it);
    tcase_add_test(tc, a_directory_takes_one_run_at_a_time);
    tcase_add_test(tc, a_run_that_starts_over_is_the_one_that_goes_on);
    tcase_add_test(tc, a_probe_leaves_the_files_of_a_run_alone);
    tcase_add_loop_test(tc, a_run_that_recovered_goes_on, 0,
                        (int)(sizeof batches / sizeof *batches));
    tcase_add_test(tc, going_on_over_other_data_is_refused_unless_forced);
    tcase_add_test(tc, going_on_over_another_base_is_told);
    tcase_add_test(tc, a_damaged_checkpoint_names_the_way_out);
    tcase_add_test(tc, a_disk_that_is_too_small_is_told_before_the_first_step);
    tcase_add_test(tc, the_merged_export_counts_in_what_a_disk_has_room_for);
    suite_add_tcase(s, in_need);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
