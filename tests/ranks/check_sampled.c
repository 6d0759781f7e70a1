/* check_sampled.c - prompts that the model in training answers, on one rank and on several: nothing
 * of what is trained changes by them, nor by memory that runs out while they are answered. */
#include "tests/ranks/crew.h"
#include "tests/ranks/job_of_rank.h"
#include "tests/support/joblog.h"
#include "tests/support/saved.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORDS(...)                                                                                 \
    (const char *[]) {                                                                             \
        __VA_ARGS__, NULL                                                                          \
    }
#define SAMPLED "sample_prompts=[say it, say it not]"
enum { N_PROMPTS = 2, EVERY = 2, ROUNDS = 3, BATCH = 2, STEP = 4 };

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

static const struct kind {
    const char *mode, *more;
} kinds[] = {
    {"full", ""},
    {"full", "dtype: bf16\nmaster_weights: false\ngradient_checkpointing: full\n"},
    {"lora", "lora_r: 4\nlora_dropout: 0.2\n"},
    {"qlora", "lora_r: 4\npacking: true\n"},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void make(const struct kind *k) {
    const struct tiny t = {.mode = k->mode, .hidden = 64, .ffn = 64, .vocab = 300, .longest = 24};
    tiny_make(dir, &t,
              textf("tokenizer: byte\nbatch_size: %d\nglobal_batch_size: %d\nmax_steps: %d\n"
                    "save_steps: %d\neval_steps: %d\nlearning_rate: 0.01\nthreads: 1\n"
                    "preflight: off\nrank_order: true\nsample_max_new_tokens: 9\n%s",
                    BATCH, STEP, EVERY * ROUNDS, EVERY * ROUNDS, EVERY, k->more));
}

static void train(int status, const char *const words[]) {
    plimsoll_train_expect(status, dir, words);
}

static void expect_same_training(const char *a, const char *b) {
    joblog_assert_same_steps(in_dir(dir, a), in_dir(dir, b));
    checkpoint_assert_same(textf("%s/%s/checkpoint-%d", dir, a, EVERY * ROUNDS),
                           textf("%s/%s/checkpoint-%d", dir, b, EVERY * ROUNDS));
}

/* The log of b has `n` samples, which are the last ones of a. */
static void expect_last_samples(const char *a, const char *b, size_t n) {
    json_t *x = joblog_read(in_dir(dir, a)), *y = joblog_read(in_dir(dir, b));
    const size_t before = joblog_count(x, "sample") - n;
    ck_assert_uint_eq(joblog_count(y, "sample"), n);
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(
            json_equal(joblog_event(x, "sample", before + i), joblog_event(y, "sample", i)),
            "sample %u of %s", (unsigned)i, b);
    json_decref(x);
    json_decref(y);
}

/* ---- several ranks ---- */

static const struct {
    const char *devices, *sharding;
} cuts[] = {{"2", "none"}, {"2", "weights"}, {"3", "optimizer"}, {"2", "gradients"}};

/* A3 of samples.h, D5 of decode.h. */
START_TEST(ranks_that_sample_train_as_one_that_does_not) {
    make(&kinds[_i]);
    train(0, WORDS("output_dir=plain"));
    train(0, WORDS("output_dir=one", SAMPLED));
    expect_same_training("plain", "one");
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        const char *out = textf("by%d", (int)i);
        train(0, WORDS(textf("output_dir=%s", out), SAMPLED, textf("devices=%s", cuts[i].devices),
                       textf("sharding=%s", cuts[i].sharding)));
        expect_same_training("plain", textf("by%d", (int)i));
        expect_last_samples("one", textf("by%d", (int)i), N_PROMPTS * ROUNDS);
        ck_assert(joblog_summary(in_dir(dir, textf("by%d", (int)i)), "planned_peak_bytes") ==
                  joblog_summary(in_dir(dir, textf("by%d", (int)i)), "allocated_peak_bytes"));
    }
}
END_TEST

/* ---- memory ---- */

/* The operation of a run that is the third of the n-th run of the phase, which chooses token n. */
static unsigned op_of_token(unsigned ranks, unsigned rank, unsigned n) {
    struct job_of_rank p;
    job_of_rank_open(&p, dir, ranks, rank);
    const struct pl_step_ops ops = pl_program_step_ops(p.held.program);
    const unsigned batches = STEP / BATCH / ranks;
    const unsigned at = EVERY * (batches * ops.micro.n_ops + ops.norm.n_ops + ops.commit.n_ops) +
                        n * p.held.program->phases[PL_PHASE_GENERATE].n_ops + 3;
    job_of_rank_close(&p);
    return at;
}

static void expect_shortages(const char *out, size_t n, bool left_out) {
    json_t *log = joblog_read(in_dir(dir, out));
    ck_assert_uint_eq(joblog_count(log, "sample_oom"), n);
    for (size_t i = 0; i < n; i++) {
        const json_t *e = joblog_event(log, "sample_oom", i);
        ck_assert(joblog_number(e, "step") == EVERY && joblog_number(e, "prompt") == 1);
        ck_assert_str_eq(json_string_value(json_object_get(e, "cause")), "injected");
        ck_assert(json_is_true(json_object_get(e, "left_out")) == (left_out && i + 1 == n));
    }
    ck_assert_uint_eq(joblog_count(log, "oom_recovery"), 0);
    json_decref(log);
}

/* Trains on `ranks`, of which `odd` has no memory for token `n`, `times` in a row. */
static void train_short(unsigned ranks, unsigned odd, unsigned n, unsigned times, const char *out) {
    char fault[64];
    snprintf(fault, sizeof fault, "debug_inject=\"device_oom@op=%u,count=%u\"",
             op_of_token(ranks, odd, n), times);
    if (ranks == 1)
        train(0, WORDS(textf("output_dir=%s", out), fault));
    else
        crew_expect(0, dir, &(struct crew){ranks, odd, fault},
                    WORDS(textf("output_dir=%s", out), textf("devices=%u", ranks)));
}

static void expect_recovery(const struct kind *k, unsigned ranks, unsigned odd) {
    make(k);
    train(0, WORDS("output_dir=plain"));
    make(&(struct kind){k->mode, textf("%ssample_prompts: [say it, say it not]\n", k->more)});
    train(0, WORDS("output_dir=sampled"));
    for (unsigned n = 0; n < 4; n += 3) {
        train_short(ranks, odd, n, 1, textf("once%u", n));
        expect_shortages(textf("once%u", n), 1, false);
        expect_same_training("plain", textf("once%u", n));
        expect_last_samples("sampled", textf("once%u", n), N_PROMPTS * ROUNDS);
        train_short(ranks, odd, n, 2, textf("twice%u", n));
        expect_shortages(textf("twice%u", n), 2, true);
        expect_same_training("plain", textf("twice%u", n));
        expect_last_samples("sampled", textf("twice%u", n), N_PROMPTS * (ROUNDS - 1));
    }
}

START_TEST(a_shortage_in_the_samples_changes_nothing_that_is_trained) {
    expect_recovery(&kinds[_i], 1, 0);
}
END_TEST

START_TEST(a_shortage_of_one_rank_leaves_the_samples_of_all_out) {
    static const char *const more[] = {"sharding: weights\n", "sharding: none\n"};
    expect_recovery(&(struct kind){"full", more[_i / 2]}, 2, (unsigned)_i % 2);
}
END_TEST

/* A job that recovers from nothing ends, and what it has trained is saved. */
START_TEST(without_recovery_a_shortage_ends_the_run) {
    make(&(struct kind){"full", "sample_prompts: [say it]\noom_recovery: false\n"});
    struct outcome o = plimsoll_train(
        dir, WORDS("output_dir=out", textf("debug_inject=device_oom@op=%u", op_of_token(1, 0, 0))));
    ck_assert_int_eq(o.status, 4);
    ck_assert_msg(strstr(o.err, "RUNTIME_DEVICE_OOM") && !strstr(o.err, "tried once more"), "%s",
                  o.err);
    ck_assert(access(textf("%s/out/checkpoint-%d/trainer_state.json", dir, EVERY), F_OK) == 0);
    outcome_finish(&o);
}
END_TEST

static TCase *add_case(Suite *s, const char *name) {
    TCase *tc = tcase_create(name);
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    suite_add_tcase(s, tc);
    return tc;
}

int main(int argc, char **argv) {
    if (crew_is_rank(argc, argv)) return crew_rank(argc, argv);
    Suite *s = suite_create("ranks.sampled");
    TCase *tc = add_case(s, "alone");
    tcase_add_loop_test(tc, a_shortage_in_the_samples_changes_nothing_that_is_trained, 0, KINDS);
    tcase_add_test(tc, without_recovery_a_shortage_ends_the_run);
    if (crew_has_ranks()) {
        tc = add_case(s, "several");
        tcase_add_loop_test(tc, ranks_that_sample_train_as_one_that_does_not, 0, KINDS);
        tcase_add_loop_test(tc, a_shortage_of_one_rank_leaves_the_samples_of_all_out, 0, 4);
    }
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
