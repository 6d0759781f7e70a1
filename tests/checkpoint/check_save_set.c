/* check_save_set.c - the files of a finished save are the old ones or the new ones, wherever the
 * process that saves is killed, and whichever call fails. */
#include "estimator/config/job_text.h"
#include "runtime/checkpoint/adapter_config.h"
#include "runtime/checkpoint/durable.h"
#include "runtime/checkpoint/model_io.h"
#include "runtime/checkpoint/window_resolve.h"
#include "runtime/checkpoint/save_set.h"
#include "runtime/checkpoint/weight_files.h"
#include "runtime/checkpoint/window_load.h"
#include "runtime/checkpoint/windows.h"
#include "tests/checkpoint/rig.h"
#include "tests/support/scratch.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64];
static struct pl_diag diag;
static struct pl_job job;

static void setup(void) {
    diag = (struct pl_diag){0};
    OK(pl_job_defaults(&job, &diag));
    /* A kill takes nothing from the kernel, so a disk would only make this slow. */
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 1);
    dir_make(dir);
}
static void teardown(void) {
    pl_checkpoint_set_fault(NULL);
    pl_job_finish(&job);
    dir_remove(dir);
}

/* --- two saves, and which of them a directory holds ------------------------------------------- */

enum version { NONE, OLD, NEW };

static const struct kind {
    bool adapter;
    uint64_t old_shards, new_shards; /* bytes; 0: nothing was saved before */
} kinds[] = {
    {true, 1, 1},
    {true, 0, 1},
    {false, PL_SHARD_BYTES, PL_SHARD_BYTES},
    {false, PL_SHARD_BYTES, 8000},
    {false, 8000, PL_SHARD_BYTES},
    {false, 0, PL_SHARD_BYTES},
    {false, 0, 8000},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };
/* An adapter, a file that becomes shards, and a first save: for what is killed twice. */
static const struct kind *const some[] = {&kinds[0], &kinds[3], &kinds[5]};
enum { N_SOME = sizeof some / sizeof *some };

static struct rig_options options_of(const struct kind *k) {
    return (struct rig_options){.mode = k->adapter ? PL_MODE_LORA : PL_MODE_FULL,
                                .dtype = PL_DTYPE_F32,
                                .staging_bytes = 4096};
}

/* Everything that a save writes differs between the two. */
static pl_err save(const struct kind *k, enum version v, struct pl_diag *d) {
    const struct rig_options o = options_of(k);
    struct rig r;
    pl_err err;
    rig_open(&r, &o);
    rig_scramble(&r, v);
    job.lora_alpha = v == NEW ? 32 : 8;
    const char *config = v == NEW ? "{\"a\": 2}" : "{\"a\": 1}";
    const struct pl_companions companions = {.dirs = {in(dir, v == NEW ? "new" : "old")}};
    if (k->adapter)
        err = rig_save_adapter(&r.io, in(dir, "out"), &job, d);
    else
        err = rig_save_model(&r.io, in(dir, "out"), config, &companions,
                             v == NEW ? k->new_shards : k->old_shards, d);
    rig_close(&r);
    return err;
}

static void start(const struct kind *k) {
    dir_remove(in(dir, "out"));
    dir_remove(in(dir, "old"));
    dir_remove(in(dir, "new"));
    ck_assert_int_eq(mkdir(in(dir, "out"), 0777), 0);
    ck_assert_int_eq(mkdir(in(dir, "old"), 0777), 0);
    ck_assert_int_eq(mkdir(in(dir, "new"), 0777), 0);
    spill(in(dir, "old/tokenizer.json"), "old", 3);
    spill(in(dir, "new/tokenizer.json"), "new", 3);
    spill(in(dir, "out/train_log.jsonl"), "{}\n", 3); /* none of the set */
    if (k->old_shards) OK(save(k, OLD, &diag));
}

static enum version text_version(const char *name, const char *old, const char *new) {
    if (!exists(in(dir, name))) return NONE;
    char *text = slurp(in(dir, name));
    enum version v = strstr(text, new) ? NEW : OLD;
    ck_assert_msg(v == NEW || strstr(text, old), "%s: %s", name, text);
    free(text);
    return v;
}

static enum version weights_version(const struct kind *k) {
    const struct rig_options o = options_of(k);
    const enum pl_role role = k->adapter ? PL_ROLE_LORA_B : PL_ROLE_WEIGHT;
    struct pl_windows w = {0};
    struct pl_weight_files f = {0};
    struct rig read, made;
    enum version v = NONE;
    rig_open(&read, &o);
    rig_open(&made, &o);
    pl_err err = k->adapter ? pl_windows_add_adapter(&w, read.program, &diag)
                            : pl_windows_add_model(&w, read.program, &diag);
    ck_assert_int_eq(err, PL_ERR_OK);
    err = pl_weight_files_open(&f, in(dir, "out"), k->adapter ? PL_ADAPTER_STEM : "model",
                               PL_ERR_MODEL_WEIGHTS, &diag);
    if (err == PL_ERR_OK) {
        OK(pl_windows_resolve(&w, &f, PL_MATCH_COMPLETE, PL_ERR_MODEL_WEIGHTS, &diag));
        OK(pl_windows_load(&w, &read.io, false, &diag));
        for (v = NEW; v > NONE; v--) {
            rig_scramble(&made, v);
            if (rig_same(&read, &made, role)) break;
        }
        ck_assert_msg(v != NONE, "the weights are of no save");
    } else {
        ck_assert_msg(err == PL_ERR_MODEL_WEIGHTS, "%s", diag.message);
    }
    diag = (struct pl_diag){0};
    pl_weight_files_close(&f);
    pl_windows_finish(&w);
    rig_close(&read);
    rig_close(&made);
    return v;
}

/* Ends the test unless everything is of one save, down to its last file. */
static enum version version_of_out(const struct kind *k, const char *when) {
    enum version weights = weights_version(k), config, tokenizer;
    if (k->adapter) {
        config = text_version("out/adapter_config.json", "\"lora_alpha\": 8", "\"lora_alpha\": 32");
        tokenizer = config;
    } else {
        config = text_version("out/config.json", "1", "2");
        tokenizer = text_version("out/tokenizer.json", "old", "new");
    }
    ck_assert_msg(weights == config && config == tokenizer,
                  "%s: weights of save %d, configuration of %d, tokenizer of %d", when, weights,
                  config, tokenizer);
    ck_assert(exists(in(dir, "out/train_log.jsonl")));
    return weights;
}

/* --- kills ------------------------------------------------------------------------------------ */

enum deed { SAVE, SETTLE };

/* Saves in a child process that is killed before its at-th call; false: it ended before. */
static bool killed_at(const struct kind *k, enum deed deed, uint64_t at) {
    struct pl_io_fault fault = {.at = at, .count = 1, .before = rig_die};
    int status;
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (!child) {
        pl_checkpoint_set_fault(&fault);
        pl_err err = deed == SAVE ? save(k, NEW, &diag) : pl_save_set_settle(in(dir, "out"), &diag);
        _exit(err == PL_ERR_OK ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    if (WIFEXITED(status)) ck_assert_int_eq(WEXITSTATUS(status), 0);
    return WIFSIGNALED(status);
}

static const char *settled(const char *when) {
    OK(pl_save_set_settle(in(dir, "out"), &diag));
    ck_assert(!exists(in(dir, "out/" PL_SAVE_JOURNAL)));
    return when;
}

START_TEST(a_kill_at_any_call_leaves_the_old_files_or_the_new_ones) {
    const struct kind *k = &kinds[_i];
    const enum version before = k->old_shards ? OLD : NONE;
    int seen[3] = {0};
    bool killed = true;
    for (uint64_t at = 1; killed; at++) {
        start(k);
        killed = killed_at(k, SAVE, at);
        enum version v = version_of_out(k, settled(textf("call %d", (int)at)));
        ck_assert(v == NEW || (killed && v == before));
        ck_assert_msg(!seen[NEW] || v == NEW, "call %d goes back", (int)at);
        seen[v]++;
    }
    ck_assert(seen[before] > 5 && seen[NEW] > 5);
    OK(save(k, NEW, &diag));
}
END_TEST

/* A process that finishes a save may be killed as well, any number of times. S2: each of them
 * starts steps 3 and 4 anew. */
START_TEST(a_kill_of_who_finishes_the_save_changes_nothing) {
    const struct kind *k = some[_i];
    unsigned finished = 0;
    for (uint64_t at = 1;; at++) {
        start(k);
        if (!killed_at(k, SAVE, at)) break;
        if (!exists(in(dir, "out/" PL_SAVE_JOURNAL))) continue;
        for (uint64_t again = 1; killed_at(k, SETTLE, again); again++)
            finished++;
        ck_assert_int_eq(version_of_out(k, textf("call %d", (int)at)), NEW);
    }
    ck_assert_uint_gt(finished, 10);
}
END_TEST

/* The same save, started again, may be killed too. */
START_TEST(a_save_after_a_kill_is_a_save) {
    const struct kind *k = some[_i];
    for (uint64_t at = 1;; at++) {
        start(k);
        if (!killed_at(k, SAVE, at)) break;
        (void)killed_at(k, SAVE, 9);
        version_of_out(k, settled(textf("call %d, then 9", (int)at)));
        OK(save(k, NEW, &diag));
        ck_assert_int_eq(version_of_out(k, "saved"), NEW);
    }
}
END_TEST

/* --- failures --------------------------------------------------------------------------------- */

/* _i: every kind, the call failing once and for good. What the hint says is true. */
START_TEST(a_failure_of_any_call_leaves_the_old_files_or_the_new_ones) {
    const struct kind *k = &kinds[_i % N_KINDS];
    const enum version before = k->old_shards ? OLD : NONE;
    pl_err err = PL_ERR_CHECKPOINT_WRITE;
    for (uint64_t at = 1; err != PL_ERR_OK; at++) {
        struct pl_io_fault fault = {.at = at, .count = _i < N_KINDS ? 1 : UINT64_MAX};
        struct pl_diag d = {0};
        start(k);
        pl_checkpoint_set_fault(&fault);
        err = save(k, NEW, &d);
        pl_checkpoint_set_fault(NULL);
        ck_assert(err == PL_ERR_OK || err == PL_ERR_CHECKPOINT_WRITE);
        bool complete = strstr(pl_diag_hint_text(&d), "the new files are complete") != NULL;
        enum version v = version_of_out(k, settled(textf("call %d", (int)at)));
        ck_assert_msg(v == (complete || err == PL_ERR_OK ? NEW : before), "call %d: %d, `%s`",
                      (int)at, v, pl_diag_hint_text(&d));
    }
}
END_TEST

/* --- journals --------------------------------------------------------------------------------- */

/* Kills the save of new files when its journal has just got its name, or `more` calls later. */
static void leave_journal(const struct kind *k, uint64_t more) {
    for (uint64_t at = 1;; at++) {
        start(k);
        ck_assert(killed_at(k, SAVE, at));
        if (!exists(in(dir, "out/" PL_SAVE_JOURNAL))) continue;
        start(k);
        ck_assert(killed_at(k, SAVE, at + more));
        return;
    }
}

START_TEST(who_comes_too_late_to_finish_refuses) {
    struct pl_weight_files f;
    leave_journal(&kinds[2], 0);
    FAILS(pl_weight_files_open(&f, in(dir, "out"), "model", PL_ERR_MODEL_WEIGHTS, &diag),
          PL_ERR_CHECKPOINT_FILE, "is not finished: " PL_SAVE_JOURNAL " is there");
    OK(pl_save_set_settle(in(dir, "out"), &diag));
    OK(pl_weight_files_open(&f, in(dir, "out"), "model", PL_ERR_MODEL_WEIGHTS, &diag));
    pl_weight_files_close(&f);
}
END_TEST

START_TEST(a_lost_file_is_named_and_the_next_save_repairs_it) {
    leave_journal(&kinds[2], 3); /* after the rename of the weights */
    ck_assert(!exists(in(dir, "out/model.safetensors.tmp")));
    ck_assert_int_eq(unlink(in(dir, "out/config.json.tmp")), 0);
    FAILS(pl_save_set_settle(in(dir, "out"), &diag), PL_ERR_CHECKPOINT_FORMAT,
          "its config.json exists neither under its name nor");
    ck_assert(exists(in(dir, "out/" PL_SAVE_JOURNAL)));
    OK(save(&kinds[2], NEW, &diag));
    ck_assert_int_eq(version_of_out(&kinds[2], settled("saved again")), NEW);
}
END_TEST

START_TEST(without_the_new_files_the_old_ones_stay) {
    leave_journal(&kinds[2], 0);
    file_write(in(dir, "out/model.safetensors.tmp"), "cut short");
    ck_assert_int_eq(version_of_out(&kinds[2], settled("dropped")), OLD);
}
END_TEST

START_TEST(a_flipped_bit_is_not_given_a_name) {
    size_t n;
    leave_journal(&kinds[2], 0);
    char *bytes = file_read(in(dir, "out/model.safetensors.tmp"), &n);
    bytes[n - 1] ^= 1;
    spill(in(dir, "out/model.safetensors.tmp"), bytes, n);
    free(bytes);
    ck_assert_int_eq(version_of_out(&kinds[2], settled("dropped")), OLD);
}
END_TEST

static const char *const strangers[] = {
    "",
    "plimsoll save 1\n",
    "plimsoll save 1\nend 0000000000000000\n",
    "plimsoll save 2\nend cc1a5dd01bd1a3a6\n",
    "plimsoll save 1\ndrop config.json\nend 0000000000000001\n",
};

START_TEST(a_damaged_journal_is_refused_and_obeyed_in_nothing) {
    start(&kinds[2]);
    file_write(in(dir, "out/" PL_SAVE_JOURNAL), strangers[_i]);
    FAILS(pl_save_set_settle(in(dir, "out"), &diag), PL_ERR_CHECKPOINT_FORMAT, "is damaged");
    ck_assert(exists(in(dir, "out/config.json")));
    OK(save(&kinds[2], NEW, &diag));
    ck_assert_int_eq(version_of_out(&kinds[2], settled("saved again")), NEW);
}
END_TEST

static const char *const outside[] = {"drop ../old/tokenizer.json\n", "drop .\n", "drop \n",
                                      "file 3 0 ../old/tokenizer.json\n"};

START_TEST(a_journal_reaches_no_other_directory) {
    struct pl_digest h;
    const char *text = textf("plimsoll save 1\n%s", outside[_i]);
    start(&kinds[2]);
    pl_digest_init(&h, 0);
    pl_digest_add(&h, text, strlen(text));
    file_write(in(dir, "out/" PL_SAVE_JOURNAL),
               textf("%send %016llx\n", text, (unsigned long long)pl_digest_value(&h)));
    FAILS(pl_save_set_settle(in(dir, "out"), &diag), PL_ERR_CHECKPOINT_FORMAT, "is damaged");
    ck_assert(exists(in(dir, "old/tokenizer.json")));
}
END_TEST

START_TEST(a_directory_in_the_place_of_a_file_is_seen_before_anything_changes) {
    start(&kinds[2]);
    ck_assert_int_eq(unlink(in(dir, "out/tokenizer.json")), 0);
    ck_assert_int_eq(mkdir(in(dir, "out/tokenizer.json"), 0777), 0);
    FAILS(save(&kinds[2], NEW, &diag), PL_ERR_CHECKPOINT_WRITE, "tokenizer.json: Is a directory");
    ck_assert_int_eq(rmdir(in(dir, "out/tokenizer.json")), 0);
    spill(in(dir, "out/tokenizer.json"), "old", 3);
    ck_assert_int_eq(version_of_out(&kinds[2], settled("refused")), OLD);
}
END_TEST

int main(void) {
    Suite *s = suite_create("checkpoint.save_set");
    TCase *t = tcase_create("save_set");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, a_kill_at_any_call_leaves_the_old_files_or_the_new_ones, 0, N_KINDS);
    tcase_add_loop_test(t, a_kill_of_who_finishes_the_save_changes_nothing, 0, N_SOME);
    tcase_add_loop_test(t, a_save_after_a_kill_is_a_save, 0, N_SOME);
    tcase_add_loop_test(t, a_failure_of_any_call_leaves_the_old_files_or_the_new_ones, 0,
                        2 * N_KINDS);
    tcase_add_test(t, who_comes_too_late_to_finish_refuses);
    tcase_add_test(t, a_lost_file_is_named_and_the_next_save_repairs_it);
    tcase_add_test(t, without_the_new_files_the_old_ones_stay);
    tcase_add_test(t, a_flipped_bit_is_not_given_a_name);
    tcase_add_loop_test(t, a_damaged_journal_is_refused_and_obeyed_in_nothing, 0,
                        sizeof strangers / sizeof *strangers);
    tcase_add_loop_test(t, a_journal_reaches_no_other_directory, 0,
                        sizeof outside / sizeof *outside);
    tcase_add_test(t, a_directory_in_the_place_of_a_file_is_seen_before_anything_changes);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
