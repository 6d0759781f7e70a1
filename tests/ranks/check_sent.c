/* check_sent.c - what a run says that a rank sent, against what is foretold of its program. */
#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"
#include "estimator/find/find.h"
#include "estimator/plan/question.h"
#include "estimator/program/traffic.h"
#include "tests/ranks/crew.h"
#include "tests/support/joblog.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <stdlib.h>

static const struct {
    unsigned ranks;
    const char *mode, *sharding;
    unsigned batch, step; /* samples */
} runs[] = {
    {2, "full", "none", 2, 8},       {3, "full", "gradients", 2, 12}, {4, "full", "weights", 1, 8},
    {2, "lora", "weights", 2, 8},    {4, "lora", "optimizer", 2, 8},  {3, "full", "weights", 4, 12},
    {4, "full", "gradients", 2, 12},
};

/* Of a step of this rank, planned as the run plans it. */
static double foretold(const char *dir, unsigned run, uint32_t rank) {
    struct pl_job job;
    struct pl_model model;
    struct pl_model_ref ref;
    struct pl_text notes = {0};
    struct pl_planned planned;
    struct pl_diag d = {0};
    const struct pl_traits traits = pl_traits_cpu(1);
    pl_err err = pl_job_read(&job, textf("%s/run.yaml", dir), NULL, 0, &notes, &d);
    if (err == PL_ERR_OK) err = pl_find_config(&job, &notes, &ref, &d);
    if (err == PL_ERR_OK) err = pl_model_read(ref.config, &model, &d);
    ck_assert_msg(err == PL_ERR_OK, "%s", d.message);
    job.devices = runs[run].ranks;
    job.rank = rank;
    struct pl_question q = pl_question_of(&job, &model, &traits, NULL);
    ck_assert_int_eq(pl_question_plan(&q, NULL, &planned, &d), PL_ERR_OK);
    const double bytes =
        pl_program_sent_bytes(planned.program, pl_job_accumulation(&job, runs[run].batch));
    pl_planned_finish(&planned);
    pl_model_ref_finish(&ref);
    pl_text_finish(&notes);
    pl_job_finish(&job);
    return bytes;
}

static void train(const char *dir, unsigned run, unsigned steps) {
    const char *words[] = {"train",
                           "run.yaml",
                           textf("devices=%u", runs[run].ranks),
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

/* Two runs differ by their steps alone: what is loaded and saved is sent by both. */
START_TEST(a_step_sends_what_is_foretold) {
    char dir[SCRATCH_PATH];
    scratch_make(dir);
    tiny_make(dir, &(struct tiny){.mode = runs[_i].mode, .untied = true},
              textf("threads: 1\nsharding: %s\nbatch_size: %u\nglobal_batch_size: %u\n"
                    "preflight: off\ngradient_checkpointing: full\n%s",
                    runs[_i].sharding, runs[_i].batch, runs[_i].step,
                    runs[_i].mode[0] == 'l' ? "lora_r: 4\n" : ""));
    train(dir, (unsigned)_i, 1);
    train(dir, (unsigned)_i, 3);
    for (uint32_t rank = 0; rank < runs[_i].ranks; rank++) {
        const double sent = (counted(dir, 3, rank) - counted(dir, 1, rank)) / 2;
        const double said = foretold(dir, (unsigned)_i, rank);
        ck_assert_msg(said > 0 && sent == said, "rank %u: sent %.0f bytes a step, foretold %.0f",
                      rank, sent, said);
    }
    scratch_remove(dir);
}
END_TEST

int main(void) {
    if (!crew_has_ranks()) return 77;
    Suite *s = suite_create("ranks.sent");
    TCase *tc = tcase_create("sent");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, a_step_sends_what_is_foretold, 0, sizeof runs / sizeof *runs);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
