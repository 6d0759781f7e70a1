/* check_preference_memory.c - device memory runs out at every place of a step of preferences: its
 * scores, those of the reference, its gradients, its update. Through the real binary.
 *
 * GOLDEN_CASES names the directory of the recorded preference runs. A step of them takes six rows
 * here, in micro-batches of four samples, and of two after a halving. */
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/saved.h"
#include "tests/support/scratch.h"
#include "tests/support/tensorset.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STRIDE = 29, MOST_OPS = 4000, STEPS = 3, WORDS_MOST = 16 };

/* The loss has means of what `batch_size` rows hold, so that a start with smaller micro-batches is
 * another run: the estimate of KTO, the supervised part of RPO. */
static const struct kind {
    const char *name, *more, *keeps;
    bool lora, has_means;
} kinds[] = {
    {"dpo-lora", "lora_dropout=0.3", "keep_first_pass=true", true, false},
    {"dpo-lora", "lora_dropout=0.3", "keep_first_pass=false", true, false},
    {"dpo-accumulate", "reference=initial", "keep_first_pass=true", false, false},
    {"dpo-rpo", "max_grad_norm=0.5", "keep_first_pass=false", false, true},
    {"kto-lora", "precompute_reference=true", "keep_first_pass=true", true, true},
    {"kto-lora", "lora_dropout=0.2", "keep_first_pass=false", true, true},
    {"kto-full", "desirable_weight=1.5", "keep_first_pass=true", false, true},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
    scratch_remove(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

static void make(const struct kind *k) {
    scratch_copy(textf("%s/%s", getenv("GOLDEN_CASES"), k->name), dir);
}

static int train(const struct kind *k, const char *out, const char *const more[]) {
    const char *words[WORDS_MOST] = {"train",
                                     "run.yaml",
                                     "--quiet",
                                     "threads=1",
                                     "batch_size=4",
                                     "global_batch_size=6",
                                     "gradient_accumulation_steps=null",
                                     k->more,
                                     k->keeps,
                                     textf("max_steps=%d", STEPS),
                                     textf("output_dir=%s", out)};
    for (int n = 11; *more; more++)
        words[n++] = *more;
    struct outcome o = plimsoll_run(dir, words);
    const int status = o.status;
    ck_assert_msg(status == 0 || strstr(o.err, "RUNTIME_DEVICE_OOM"), "exit %d: %s", status, o.err);
    outcome_finish(&o);
    return status;
}
#define TRY(k, out, ...) train(k, out, (const char *[]){__VA_ARGS__, NULL})
#define TRAIN(...)       ck_assert_int_eq(TRY(__VA_ARGS__), 0)

static const char *stem_of(const struct kind *k) {
    return k->lora ? "adapter_model" : "model";
}

static void expect_same_run(const struct kind *k, const char *a, const char *b) {
    joblog_assert_same_steps(in_dir(dir, a), in_dir(dir, b));
    weights_assert_same(in_dir(dir, a), in_dir(dir, b), stem_of(k));
}

/* Returns the step of the only recovery of a run; 0: there was none. */
static unsigned step_of_recovery(const char *out) {
    json_t *log = joblog_read(in_dir(dir, out));
    ck_assert_uint_le(joblog_count(log, "oom_recovery"), 1);
    const json_t *event = joblog_event(log, "oom_recovery", 0);
    const unsigned step = event ? (unsigned)joblog_number(event, "step") : 0;
    json_decref(log);
    return step;
}

/* Makes `halved` of a run whose memory runs out once, as the documents say what it equals. */
static void train_halved(const struct kind *k) {
    if (k->has_means)
        TRAIN(k, "halved", "debug_inject=device_oom@step=1");
    else
        TRAIN(k, "halved", "batch_size=2");
}

/* ---- every place of the first step ---- */

/* Strikes at operation n of a run. The update at the end of a step is not tried again: the run ends
 * there, and no place before it may end one. */
static enum place { BEFORE_UPDATE, UPDATE, LATER_STEP } strike(const struct kind *k, unsigned n) {
    scratch_remove(in_dir(dir, "hit"));
    if (TRY(k, "hit", textf("debug_inject=device_oom@op=%u", n)) != 0) return UPDATE;
    if (step_of_recovery("hit") != 1) return LATER_STEP;
    expect_same_run(k, "halved", "hit");
    return BEFORE_UPDATE;
}

START_TEST(a_shortage_anywhere_in_the_first_step_ends_at_the_same_bits) {
    const struct kind *k = &kinds[_i];
    unsigned struck[3] = {0};
    enum place before = BEFORE_UPDATE;
    make(k);
    train_halved(k);
    for (unsigned n = 1; before != LATER_STEP; n += STRIDE) {
        const enum place at = strike(k, n);
        ck_assert_msg(at >= before && n < MOST_OPS, "operation %u", n);
        struck[before = at]++;
    }
    ck_assert_msg(struck[BEFORE_UPDATE] > 4 * struck[UPDATE], "%u places and %u of the update",
                  struck[BEFORE_UPDATE], struck[UPDATE]);
}
END_TEST

/* ---- a later step ---- */

static void expect_near(const json_t *a, const json_t *b, const char *key) {
    const json_t *x = json_object_get(a, key), *y = json_object_get(b, key);
    if (!x && !y) return;
    const double p = json_number_value(x), q = json_number_value(y);
    ck_assert_msg(fabs(p - q) <= 1e-4 * (fabs(p) + 1e-2), "step %g: %s is %.9g, and was %.9g",
                  joblog_number(a, "step"), key, q, p);
}

/* The rows, their pairs and the means of both are those of the run that had memory, within the
 * rounding of sums in another order; step 1, which was not halved, is equal. */
static void expect_same_losses(const char *a, const char *b, uint64_t steps) {
    static const char *const figures[] = {
        "loss", "grad_norm", "rewards/chosen", "rewards/margins", "rewards/rejected", "kl"};
    json_t *x = joblog_read(in_dir(dir, a)), *y = joblog_read(in_dir(dir, b));
    for (uint64_t step = 1; step <= steps; step++) {
        const json_t *p = joblog_step(x, step), *q = joblog_step(y, step);
        ck_assert(step > 1 || joblog_number(p, "loss") == joblog_number(q, "loss"));
        ck_assert(joblog_number(p, "samples") == joblog_number(q, "samples"));
        ck_assert(joblog_number(p, "tokens") == joblog_number(q, "tokens"));
        for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
            expect_near(p, q, figures[i]);
    }
    json_decref(x);
    json_decref(y);
}

static double batch_size_of(const char *out, uint64_t step) {
    json_t *log = joblog_read(in_dir(dir, out));
    const double size = joblog_number(joblog_step(log, step), "batch_size");
    json_decref(log);
    return size;
}

/* The step before the shortage keeps its bits, and the others their losses. */
START_TEST(a_halved_step_keeps_its_pairs_and_its_loss) {
    const struct kind *k = &kinds[_i];
    make(k);
    TRAIN(k, "plain", NULL);
    TRAIN(k, "hit", "debug_inject=device_oom@step=2");
    ck_assert_uint_eq(step_of_recovery("hit"), 2);
    ck_assert(batch_size_of("hit", 1) == 4 && batch_size_of("hit", 2) == 2);
    expect_same_losses("plain", "hit", STEPS);
}
END_TEST

/* A checkpoint after the halving has enough to continue to the same bits. */
START_TEST(a_run_that_was_halved_resumes_to_the_bit) {
    const struct kind *k = &kinds[_i];
    const char *const fault = "debug_inject=device_oom@step=1";
    make(k);
    TRAIN(k, "whole", "save_steps=1", fault);
    scratch_copy(in_dir(dir, "whole"), in_dir(dir, "parts"));
    scratch_remove(textf("%s/parts/checkpoint-%d", dir, STEPS));
    TRAIN(k, "parts", "save_steps=1");
    ck_assert(batch_size_of("parts", STEPS) == 2);
    checkpoint_assert_same(textf("%s/whole/checkpoint-%d", dir, STEPS),
                           textf("%s/parts/checkpoint-%d", dir, STEPS));
}
END_TEST

int main(void) {
    Suite *s = suite_create("fault.preference_memory");
    TCase *tc = tcase_create("runs");
    tcase_set_timeout(tc, 240);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, a_shortage_anywhere_in_the_first_step_ends_at_the_same_bits, 0, KINDS);
    tcase_add_loop_test(tc, a_halved_step_keeps_its_pairs_and_its_loss, 0, KINDS);
    tcase_add_loop_test(tc, a_run_that_was_halved_resumes_to_the_bit, 0, KINDS);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
