/* check_preferences.c - preference stages on several ranks: memory that one of them lacks while it
 * scores, ranks that are killed, and what another number of ranks resumes.
 *
 * GOLDEN_CASES names the directory of the recorded preference runs. check_same_bits.c compares
 * every cut of them. */
#include "tests/ranks/crew.h"
#include "tests/ranks/job_of_rank.h"
#include "tests/support/hang.h"
#include "tests/support/joblog.h"
#include "tests/support/saved.h"
#include "tests/support/tensorset.h"

#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define WORDS(...)                                                                                 \
    (const char *[]) {                                                                             \
        __VA_ARGS__, NULL                                                                          \
    }

static char dir[SCRATCH_PATH];

/* The reference is the base without the adapter, the start, one that is computed before the first
 * step, or none; the estimate of KTO is one of each `batch_size` rows. */
static const struct kind {
    const char *name, *more;
    bool lora;
} kinds[] = {
    {"dpo-lora", "", true},
    {"dpo-accumulate", "keep_first_pass: false\n", false},
    {"kto-lora", "precompute_reference: true\nlora_dropout: 0.3\n", true},
    {"kto-full", "keep_first_pass: false\n", false},
    {"orpo-lora", "", true},
};
enum { KINDS = sizeof kinds / sizeof *kinds, STEP = 6 };

static void tear_down(void) {
    scratch_remove(dir);
}

static void set_up(void) {
    scratch_make(dir);
    scratch_remove(dir);
}

static bool is_replaced(const char *line) {
    static const char *const keys[] = {
        "batch_size:", "gradient_accumulation_steps:", "lora_dropout:"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strncmp(line, keys[i], strlen(keys[i])) == 0) return true;
    return false;
}

/* dir becomes the case, whose steps take six rows in micro-batches of two. */
static void make(const struct kind *k) {
    scratch_copy(textf("%s/%s", getenv("GOLDEN_CASES"), k->name), dir);
    char *text = file_read(in_dir(dir, "run.yaml"), NULL), *more = NULL;
    FILE *f = fopen(in_dir(dir, "run.yaml"), "w");
    ck_assert(text && f);
    for (char *line = strtok_r(text, "\n", &more); line; line = strtok_r(NULL, "\n", &more))
        if (!is_replaced(line)) fprintf(f, "%s\n", line);
    fprintf(f,
            "batch_size: 2\nglobal_batch_size: %d\nthreads: 1\npreflight: off\nrank_order: true\n"
            "%s",
            STEP, k->more);
    ck_assert_int_eq(fclose(f), 0);
    free(text);
}

static void train(int status, const char *const words[]) {
    plimsoll_train_expect(status, dir, words);
}

static const char *stem_of(const struct kind *k) {
    return k->lora ? "adapter_model" : "model";
}

/* ---- memory ---- */

/* The operation of a run that is the third of its n-th scoring phase. */
static unsigned op_of_pass(unsigned rank, unsigned n) {
    struct job_of_rank p;
    job_of_rank_open(&p, dir, 2, rank);
    const struct pl_phase_range *phases = p.held.program->phases;
    unsigned at = 3;
    for (unsigned i = 0; i < n; i++)
        at += phases[i % 2 && phases[PL_PHASE_REFERENCE].n_ops ? PL_PHASE_REFERENCE : PL_PHASE_EVAL]
                  .n_ops;
    job_of_rank_close(&p);
    return at;
}

/* C3 of score.h. One rank fails in the first micro-batch that it scores, or a later one: all halve,
 * and end as one rank does that halves in its first step. What is a mean or an estimate of
 * `batch_size` rows stays one of them. */
START_TEST(all_halve_when_one_lacks_memory_while_it_scores) {
    const struct kind *k = &kinds[_i / 4];
    const unsigned odd = (unsigned)_i % 2, pass = (unsigned)_i / 2 % 2 * 2;
    make(k);
    char fault[64];
    snprintf(fault, sizeof fault, "debug_inject=device_oom@op=%u", op_of_pass(odd, pass));
    train(0, WORDS("max_steps=3", "output_dir=one", "debug_inject=device_oom@op=3"));
    crew_expect(0, dir, &(struct crew){2, odd, fault},
                WORDS("max_steps=3", "output_dir=two", "devices=2", "sharding=optimizer"));
    ck_assert(joblog_summary(in_dir(dir, "one"), "oom_recoveries") == 1);
    ck_assert(joblog_summary(in_dir(dir, "two"), "oom_recoveries") == 1);
    joblog_assert_same_steps(in_dir(dir, "one"), in_dir(dir, "two"));
    weights_assert_same(in_dir(dir, "one"), in_dir(dir, "two"), stem_of(k));
}
END_TEST

/* ---- another number of ranks ---- */

static const struct {
    const char *devices, *sharding;
} cuts[] = {{"1", "none"}, {"3", "weights"}, {"4", "optimizer"}};

/* The reference of rows that the checkpoint has no value for is computed from what the run started
 * with, whatever number of ranks it had then. */
START_TEST(another_number_of_ranks_resumes) {
    make(&kinds[_i]);
    train(0, WORDS("max_steps=4", "save_steps=2", "output_dir=ref"));
    train(0, WORDS("max_steps=2", "save_steps=2", "output_dir=one"));
    train(0, WORDS("max_steps=2", "save_steps=2", "output_dir=two", "devices=2"));
    checkpoint_assert_same(in_dir(dir, "one/checkpoint-2"), in_dir(dir, "two/checkpoint-2"));
    for (int i = 0; i < 3; i++) {
        const char *out = textf("by%s", cuts[i].devices);
        scratch_copy(in_dir(dir, "two"), in_dir(dir, out));
        train(0,
              WORDS("max_steps=4", "save_steps=2", textf("output_dir=%s", out),
                    textf("devices=%s", cuts[i].devices), textf("sharding=%s", cuts[i].sharding)));
        checkpoint_assert_same(in_dir(dir, "ref/checkpoint-4"),
                               textf("%s/%s/checkpoint-4", dir, out));
    }
}
END_TEST

/* ---- ranks that are lost ---- */

/* Any time after the third step may be one at which ranks tell each other their scores. */
START_TEST(a_rank_that_is_killed_costs_the_steps_after_the_checkpoint) {
    const struct kind *k = &kinds[_i % 2 * 3];
    make(k);
    struct child c =
        plimsoll_start(dir,
                       WORDS("train", "run.yaml", "-q", "--no-progress", "devices=3",
                             "max_steps=20000", "save_steps=2", "output_dir=out",
                             "sharding=weights", textf("comm_timeout_seconds=%d", NEVER_SECONDS)),
                       false);
    const pid_t rank = crew_find_rank(dir, (unsigned)_i % 3);
    crew_wait_for_steps(dir, "out", 3);
    crew_pause(0.007 * _i);
    ck_assert_int_eq(kill(rank, SIGKILL), 0);
    struct outcome o = child_wait(&c, HANG_SECONDS);
    ck_assert_msg(!o.timed_out && o.status != 0, "exit %d: %s", o.status, o.err);
    ck_assert_msg(strstr(o.err, textf("rank %u on ", (unsigned)_i % 3)), "%s", o.err);
    outcome_finish(&o);
    const int last = crew_last_checkpoint(dir, "out");
    char steps[32];
    snprintf(steps, sizeof steps, "max_steps=%d", last + 2);
    train(0, WORDS("output_dir=ref", "save_steps=1000000", steps));
    train(0, WORDS("output_dir=out", "save_steps=1000000", "devices=2", steps));
    weights_assert_same(in_dir(dir, "ref"), in_dir(dir, "out"), stem_of(k));
}
END_TEST

int main(int argc, char **argv) {
    if (crew_is_rank(argc, argv)) return crew_rank(argc, argv);
    if (!crew_has_ranks()) return 77;
    Suite *s = suite_create("ranks.preferences");
    TCase *tc = tcase_create("runs");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, all_halve_when_one_lacks_memory_while_it_scores, 0, 4 * KINDS);
    tcase_add_loop_test(tc, another_number_of_ranks_resumes, 0, KINDS);
    tcase_add_loop_test(tc, a_rank_that_is_killed_costs_the_steps_after_the_checkpoint, 0, 4);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
