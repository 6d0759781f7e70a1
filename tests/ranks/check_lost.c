/* check_lost.c - signals, ranks that are killed, and what is resumed on another number of ranks. */
#include "runtime/checkpoint/manifest.h"
#include "tests/ranks/crew.h"
#include "tests/support/hang.h"
#include "tests/support/joblog.h"
#include "tests/support/saved.h"
#include "tests/support/tensorset.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static char dir[SCRATCH_PATH];

/* A run leaves a signal ignored that it finds ignored: who starts these tests must not decide. */
static void set_up(void) {
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

#define WORDS(...)                                                                                 \
    (const char *[]) {                                                                             \
        __VA_ARGS__, NULL                                                                          \
    }

static void train(int status, const char *const words[]) {
    plimsoll_train_expect(status, dir, words);
}

static void make(const char *mode, const char *more) {
    tiny_make(dir, &(struct tiny){.mode = mode},
              textf("%slearning_rate: 0.01\nlr_scheduler: constant\nthreads: 1\npreflight: off\n"
                    "global_batch_size: 12\nbatch_size: 2\nrank_order: true\n"
                    "gradient_checkpointing: none\n",
                    more));
}

/* --- another number of ranks ------------------------------------------------------------------ */

static const struct {
    const char *mode, *more;
} kinds[] = {
    {"full", ""},
    {"full", "dtype: bf16\nmaster_weights: true\n"},
    {"full", "optimizer: adamw_8bit\n"},
    {"lora", "lora_r: 4\nlora_dropout: 0.2\n"},
    {"lora", "lora_r: 4\nlora_modules_to_save: [embed_tokens]\ndtype: bf16\n"},
    {"qlora", "lora_r: 4\n"},
};

static const struct {
    const char *devices, *sharding;
} cuts[] = {{"1", "none"}, {"2", "weights"}, {"3", "optimizer"}};

/* Saved by 4 ranks after step 2, resumed by fewer, and by 4 what one has saved. K2 of cut.h: each
 * rank reads the whole files, and keeps another part of them than the one that it saved. */
START_TEST(a_checkpoint_does_not_know_who_saved_it) {
    make(kinds[_i].mode, kinds[_i].more);
    train(0, WORDS("max_steps=4", "save_steps=2", "output_dir=ref"));
    train(0,
          WORDS("max_steps=2", "save_steps=2", "output_dir=four", "devices=4", "sharding=weights"));
    checkpoint_assert_same(in_dir(dir, "ref/checkpoint-2"), in_dir(dir, "four/checkpoint-2"));
    for (int i = 0; i < 3; i++) {
        const char *out = textf("by%s", cuts[i].devices);
        scratch_copy(in_dir(dir, "four"), in_dir(dir, out));
        train(0,
              WORDS("max_steps=4", "save_steps=2", textf("output_dir=%s", out),
                    textf("devices=%s", cuts[i].devices), textf("sharding=%s", cuts[i].sharding)));
        checkpoint_assert_same(in_dir(dir, "ref/checkpoint-4"),
                               textf("%s/%s/checkpoint-4", dir, out));
    }
    train(0, WORDS("max_steps=2", "save_steps=2", "output_dir=one"));
    train(0, WORDS("max_steps=4", "save_steps=2", "output_dir=one", "devices=4",
                   "sharding=gradients"));
    checkpoint_assert_same(in_dir(dir, "ref/checkpoint-4"), in_dir(dir, "one/checkpoint-4"));
}
END_TEST

static bool has_pieces(const char *checkpoint) {
    json_t *ours, *root = saved_state(in_dir(dir, checkpoint), &ours);
    const bool pieces = pl_manifest_has_pieces(json_object_get(ours, "files"));
    json_decref(root);
    return pieces;
}

/* Each rank writes its own bytes, unless one of them does not see the directory: then rank 0 writes
 * all. Either way it is the checkpoint of one rank, which writes what it always has. These are both
 * ways of K1 of cut.h. */
START_TEST(rank_0_writes_for_ranks_that_do_not_see_its_directory) {
    static const char *const shardings[] = {"sharding=none", "sharding=optimizer",
                                            "sharding=gradients", "sharding=weights"};
    const char *sharding = shardings[_i];
    make("full", "");
    scratch_copy(dir, textf("%s.other", dir));
    ck_assert_int_eq(rename(textf("%s.other", dir), in_dir(dir, "other")), 0);
    train(0, WORDS("max_steps=2", "save_steps=2", "output_dir=ref"));
    crew_expect(0, dir, &(struct crew){3, 0, NULL},
                WORDS("max_steps=2", "save_steps=2", "output_dir=near", "devices=3", sharding));
    crew_expect(0, dir, &(struct crew){3, 2, "other/"},
                WORDS("max_steps=2", "save_steps=2", "output_dir=far", "devices=3", sharding));
    checkpoint_assert_same(in_dir(dir, "ref/checkpoint-2"), in_dir(dir, "near/checkpoint-2"));
    checkpoint_assert_same(in_dir(dir, "ref/checkpoint-2"), in_dir(dir, "far/checkpoint-2"));
    ck_assert(!has_pieces("ref/checkpoint-2") && !has_pieces("far/checkpoint-2"));
    ck_assert(has_pieces("near/checkpoint-2"));
}
END_TEST

/* --- what every rank takes -------------------------------------------------------------------- */

static void expect_bill(const json_t *ranks, const char *out) {
    json_t *log = joblog_read(out);
    const json_t *took = json_object_get(joblog_event(log, "ranks", 0), "ranks");
    const json_t *before = json_object_get(joblog_event(log, "preflight", 0), "ranks");
    ck_assert_uint_eq(json_array_size(ranks), 3);
    ck_assert_uint_eq(json_array_size(took), 3);
    ck_assert_uint_eq(json_array_size(before), 3);
    for (size_t r = 0; r < 3; r++) {
        const double told = joblog_number(json_array_get(ranks, r), "arena_bytes");
        ck_assert(joblog_number(json_array_get(before, r), "rank") == (double)r);
        ck_assert(told == joblog_number(json_array_get(before, r), "planned_bytes"));
        ck_assert(told == joblog_number(json_array_get(took, r), "planned_bytes"));
        ck_assert(told == joblog_number(json_array_get(took, r), "allocated_bytes"));
    }
    json_decref(log);
}

/* The bytes of every rank: reported before, planned, allocated. */
START_TEST(the_bill_is_what_is_allocated) {
    static const char *const shardings[] = {"none", "optimizer", "gradients", "weights"};
    make("full", "");
    for (int i = 0; i < 4; i++) {
        const char *sharding = textf("sharding=%s", shardings[i]);
        struct outcome o = plimsoll_expect(
            0, dir, WORDS("estimate-vram", "run.yaml", "--json", "--devices", "3", sharding));
        json_t *estimate = json_loads(o.out, 0, NULL), *ranks = json_object_get(estimate, "ranks");
        train(0, WORDS("max_steps=2", "devices=3", sharding, textf("output_dir=%d", i)));
        expect_bill(ranks, textf("%s/%d", dir, i));
        json_decref(estimate);
        outcome_finish(&o);
    }
}
END_TEST

/* --- signals ---------------------------------------------------------------------------------- */

static const struct {
    int number, to; /* to: a rank; -1 = the launcher */
} signals[] = {{SIGINT, 0}, {SIGTERM, 2}, {SIGTERM, -1}, {SIGINT, -1}};

/* Only a rank that was stopped is found by the limit; who is killed or ends is missed at once. */
static struct child start(const char *sharding, const char *save, bool stops) {
    const char *limit = textf("comm_timeout_seconds=%d", stops ? 5 : NEVER_SECONDS);
    return plimsoll_start(dir,
                          WORDS("train", "run.yaml", "-q", "--no-progress", "devices=3",
                                "max_steps=1000000", sharding, save, limit),
                          false);
}

/* The files of a crew are those of one rank, and the run is resumed from them. */
static void expect_resumable(void) {
    const int last = crew_last_checkpoint(dir, "out");
    char step[32], next[32];
    snprintf(step, sizeof step, "max_steps=%d", last);
    snprintf(next, sizeof next, "max_steps=%d", last + 2);
    train(0, WORDS("output_dir=ref", "save_steps=1000000", step));
    checkpoint_assert_same(textf("%s/ref/checkpoint-%d", dir, last),
                           textf("%s/out/checkpoint-%d", dir, last));
    train(0, WORDS("output_dir=ref", "save_steps=1000000", next));
    train(0, WORDS("devices=2", "sharding=weights", "save_steps=1000000", next));
    weights_assert_same(in_dir(dir, "ref"), in_dir(dir, "out"), "model");
}

START_TEST(a_signal_to_one_stops_all_after_the_same_step) {
    make("full", "");
    struct child c =
        start(_i % 2 ? "sharding=weights" : "sharding=none", "save_steps=1000000", false);
    crew_wait_for_steps(dir, "out", 3);
    kill(signals[_i].to < 0 ? c.pid : crew_find_rank(dir, (unsigned)signals[_i].to),
         signals[_i].number);
    struct outcome o = child_wait(&c, HANG_SECONDS);
    ck_assert_msg(o.status == 128 + signals[_i].number, "exit %d: %s", o.status, o.err);
    ck_assert_msg(strstr(o.err, "RUNTIME_INTERRUPTED"), "%s", o.err);
    ck_assert_msg(!strstr(o.err, "COMM_PEER_LOST"), "%s", o.err);
    outcome_finish(&o);
    expect_resumable();
}
END_TEST

/* --- ranks that are lost ---------------------------------------------------------------------- */

static const struct {
    unsigned rank;
    int number;
    const char *sharding;
    double after; /* seconds after the third step */
} losses[] = {
    {1, SIGKILL, "sharding=none", 0.003},    {2, SIGKILL, "sharding=weights", 0.021},
    {0, SIGKILL, "sharding=weights", 0.047}, {0, SIGKILL, "sharding=optimizer", 0.11},
    {2, SIGKILL, "sharding=gradients", 0},   {1, SIGSTOP, "sharding=weights", 0.013},
};

START_TEST(a_lost_rank_ends_the_others_in_time) {
    make("full", "");
    struct child c = start(losses[_i].sharding, "save_steps=2", losses[_i].number == SIGSTOP);
    const pid_t rank = crew_find_rank(dir, losses[_i].rank);
    crew_wait_for_steps(dir, "out", 3);
    crew_pause(losses[_i].after);
    const double before = seconds_now();
    ck_assert_int_eq(kill(rank, losses[_i].number), 0);
    struct outcome o = child_wait(&c, HANG_SECONDS);
    const double took = seconds_now() - before;
    ck_assert_msg(!o.timed_out, "it took %.1f s", took);
    ck_assert_msg(o.status != 0, "exit 0: %s", o.err);
    ck_assert_msg(strstr(o.err, "error[COMM_PEER_LOST]"), "%s", o.err);
    ck_assert_msg(strstr(o.err, textf("rank %u on ", losses[_i].rank)), "%s", o.err);
    outcome_finish(&o);
    expect_resumable();
}
END_TEST

/* While it writes its part of the third checkpoint, whose temporary nobody reads. With `none` rank
 * 0 has all of the state, and saves it alone. */
START_TEST(a_rank_that_is_killed_in_a_save_ends_the_others) {
    const bool whole = _i % 2;
    char shim[SCRATCH_PATH + 128];
    snprintf(shim, sizeof shim, "LD_PRELOAD=%s", getenv("FAULT_SHIM"));
    make("full", "");
    setenv("FAULT_CALLS", _i < 2 ? "write" : "sync", 1);
    setenv("FAULT_PATH", "/checkpoint-3.tmp/", 1);
    setenv("FAULT_AT", "1", 1);
    setenv("FAULT_DO", "kill", 1);
    struct crew_outcome o = crew_run(dir, &(struct crew){3, 1, shim},
                                     WORDS("devices=3", "max_steps=9", "save_steps=1",
                                           textf("comm_timeout_seconds=%d", NEVER_SECONDS),
                                           whole ? "sharding=none" : "sharding=weights"));
    unsetenv("FAULT_AT");
    ck_assert_msg(o.seconds < HANG_SECONDS, "it took %.1f s", o.seconds);
    ck_assert_int_eq(o.ranks[1].status, 128 + SIGKILL);
    for (unsigned r = 0; r < 3; r += 2)
        ck_assert_msg(strstr(o.ranks[r].err, "error[COMM_PEER_LOST]") &&
                          strstr(o.ranks[r].err, "rank 1 on "),
                      "rank %u: %s", r, o.ranks[r].err);
    ck_assert(!path_exists(in_dir(dir, "out/checkpoint-3.tmp")));
    ck_assert(path_exists(in_dir(dir, "out/checkpoint-3")) == whole);
    ck_assert(!whole || !has_pieces("out/checkpoint-3"));
    ck_assert(has_pieces("out/checkpoint-2"));
    crew_finish(&o);
    expect_resumable();
}
END_TEST

int main(int argc, char **argv) {
    if (crew_is_rank(argc, argv)) return crew_rank(argc, argv);
    if (!crew_has_ranks()) return 77;
    Suite *s = suite_create("ranks.lost");
    TCase *tc = tcase_create("runs");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, a_checkpoint_does_not_know_who_saved_it, 0,
                        (int)(sizeof kinds / sizeof *kinds));
    tcase_add_loop_test(tc, rank_0_writes_for_ranks_that_do_not_see_its_directory, 0, 4);
    tcase_add_test(tc, the_bill_is_what_is_allocated);
    tcase_add_loop_test(tc, a_signal_to_one_stops_all_after_the_same_step, 0,
                        (int)(sizeof signals / sizeof *signals));
    tcase_add_loop_test(tc, a_lost_rank_ends_the_others_in_time, 0,
                        (int)(sizeof losses / sizeof *losses));
    tcase_add_loop_test(tc, a_rank_that_is_killed_in_a_save_ends_the_others, 0, 4);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
