/* check_sent.c - what a run says that a rank sent, against what is foretold of its program. */
#include "estimator/config/job_values.h"
#include "estimator/program/cost.h"
#include "tests/ranks/crew.h"
#include "tests/ranks/job_of_rank.h"
#include "tests/support/joblog.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <stdlib.h>

static const struct run {
    unsigned ranks;
    const char *mode, *sharding;
    unsigned batch, step; /* samples */
    const char *order;    /* rank_order */
} runs[] = {
    {2, "full", "none", 2, 8, "true"},        {3, "full", "gradients", 2, 12, "true"},
    {4, "full", "weights", 1, 8, "true"},     {2, "lora", "weights", 2, 8, "true"},
    {4, "lora", "optimizer", 2, 8, "true"},   {3, "full", "weights", 4, 12, "true"},
    {4, "full", "gradients", 2, 12, "true"},  {2, "full", "none", 2, 8, "false"},
    {4, "full", "optimizer", 2, 12, "false"}, {3, "lora", "auto", 1, 8, "false"},
};

/* Returns the bytes of a step of this rank, planned as the run plans it. */
static double foretold(const char *dir, const struct run *run, uint32_t rank) {
    struct job_of_rank p;
    job_of_rank_open(&p, dir, run->ranks, rank);
    const double bytes =
        pl_program_sent_bytes(p.held.program, pl_job_accumulation(&p.job, run->batch));
    job_of_rank_close(&p);
    return bytes;
}

static void train(const char *dir, const struct run *run, unsigned steps) {
    const char *words[] = {"train",
                           "run.yaml",
                           textf("devices=%u", run->ranks),
                           textf("max_steps=%u", steps),
                           textf("output_dir=steps%u", steps),
                           NULL};
    struct outcome o = plimsoll_expect(0, dir, words);
    outcome_finish(&o);
}

static double counted(const char *dir, unsigned steps, uint32_t rank) {
    json_t *log = joblog_read(textf("%s/steps%u", dir, steps));
    const json_t *list = json_object_get(joblog_event(log, "ranks", 0), "ranks");
    const double bytes = joblog_number(json_array_get(list, rank), "sent_bytes");
    json_decref(log);
    return bytes;
}

/* Measures the bytes of a step for each rank. Two runs differ by their steps alone: the bytes of
 * loading and saving are sent by both. */
static void measure(const struct run *run, double sent[CREW_RANKS]) {
    char dir[SCRATCH_PATH];
    scratch_make(dir);
    tiny_make(dir, &(struct tiny){.mode = run->mode, .untied = true, .rows = 200},
              textf("threads: 1\nsharding: %s\nbatch_size: %u\nglobal_batch_size: %u\n"
                    "rank_order: %s\npreflight: off\ngradient_checkpointing: full\n%s",
                    run->sharding, run->batch, run->step, run->order,
                    run->mode[0] == 'l' ? "lora_r: 4\n" : ""));
    train(dir, run, 1);
    train(dir, run, 3);
    for (uint32_t rank = 0; rank < run->ranks; rank++) {
        sent[rank] = (counted(dir, 3, rank) - counted(dir, 1, rank)) / 2;
        const double said = foretold(dir, run, rank);
        ck_assert_msg(said > 0 && sent[rank] == said,
                      "rank %u: sent %.0f bytes a step, foretold %.0f", rank, sent[rank], said);
    }
    scratch_remove(dir);
}

START_TEST(a_step_sends_what_is_foretold) {
    double sent[CREW_RANKS];
    measure(&runs[_i], sent);
}
END_TEST

/* Ranks have 1 and 8 micro-batches; with rank_order the gradients of each are sent. */
START_TEST(one_exchange_does_not_grow_with_the_micro_batches) {
    double one[CREW_RANKS], eight[CREW_RANKS];
    const char *const order = _i ? "true" : "false";
    measure(&(struct run){2, "full", "optimizer", 8, 16, order}, one);
    measure(&(struct run){2, "full", "optimizer", 1, 16, order}, eight);
    for (int rank = 0; rank < 2; rank++)
        ck_assert_msg(_i ? eight[rank] > 4 * one[rank] : eight[rank] == one[rank],
                      "rank %d: %.0f bytes instead of %.0f", rank, eight[rank], one[rank]);
}
END_TEST

/* The saved parts of a rank never leave it: runs with and without checkpoints send as much. */
START_TEST(checkpoints_send_nothing) {
    static const char *const shardings[] = {"none", "optimizer", "gradients", "weights"};
    char dir[SCRATCH_PATH], sharding[24];
    snprintf(sharding, sizeof sharding, "sharding=%s", shardings[_i]);
    scratch_make(dir);
    tiny_make(dir, &(struct tiny){.mode = "full"}, "threads: 1\npreflight: off\nmax_steps: 3\n");
    for (int every = 0; every < 2; every++) {
        const char *words[] = {"train",
                               "run.yaml",
                               "devices=3",
                               "batch_size=1",
                               sharding,
                               textf("save_steps=%d", every),
                               textf("output_dir=steps%d", every),
                               NULL};
        struct outcome o = plimsoll_expect(0, dir, words);
        outcome_finish(&o);
    }
    ck_assert(path_exists(in_dir(dir, "steps1/checkpoint-3/optimizer.safetensors")));
    for (uint32_t rank = 0; rank < 3; rank++)
        ck_assert_msg(counted(dir, 0, rank) == counted(dir, 1, rank),
                      "rank %u: %.0f bytes, with checkpoints %.0f", rank, counted(dir, 0, rank),
                      counted(dir, 1, rank));
    scratch_remove(dir);
}
END_TEST

int main(void) {
    if (!crew_has_ranks()) return 77;
    Suite *s = suite_create("ranks.sent");
    TCase *tc = tcase_create("sent");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, a_step_sends_what_is_foretold, 0, sizeof runs / sizeof *runs);
    tcase_add_loop_test(tc, one_exchange_does_not_grow_with_the_micro_batches, 0, 2);
    tcase_add_loop_test(tc, checkpoints_send_nothing, 0, 4);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
