/* check_slope.c - the gradient of a preference stage is that of the loss that it logs, with dropout
 * too: both passes of a step have the same masks, where there are two, and the reference has none.
 *
 * A step of SGD goes down the gradient g by the rate. Another run of the same step, which has the
 * same masks, begins where it ended, and its loss is lower by rate |g|^2. GOLDEN_DEVICE, when set,
 * names a device other than the CPU. */
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

#define PREFERENCE GOLDEN "/../preference/"

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

struct first_step {
    double loss, grad_norm;
};

/* Words are NULL-terminated. */
static struct first_step run(const char *name, const char *out, const char *const more[]) {
    const char *device = getenv("GOLDEN_DEVICE") ? getenv("GOLDEN_DEVICE") : "cpu";
    const char *words[24] = {
        "train",           "run.yaml",        textf("device=%s", device),
        "threads=1",       "preflight=off",   "max_steps=1",
        "optimizer=sgd",   "weight_decay=0",  "warmup_steps=0",
        "logging_steps=1", "max_grad_norm=0", textf("output_dir=%s/%s", dir, out)};
    int n = 12;
    for (; *more; more++)
        words[n++] = *more;
    struct outcome o = plimsoll_expect(0, textf("%s%s", PREFERENCE, name), words);
    outcome_finish(&o);
    json_t *log = joblog_read(in_dir(dir, out));
    const json_t *line = joblog_step(log, 1);
    ck_assert_ptr_nonnull(line);
    const struct first_step s = {joblog_number(line, "loss"), joblog_number(line, "grad_norm")};
    json_decref(log);
    return s;
}

/* Returns by how much the loss falls, a unit of the rate. reference: nullable. */
static double fall(const char *name, double rate, const char *dropout, const char *reference,
                   double *square) {
    const char *learning_rate = textf("learning_rate=%g", rate);
    const struct first_step before =
        run(name, "before", (const char *[]){learning_rate, dropout, reference, NULL});
    const struct first_step after =
        run(name, "after",
            (const char *[]){learning_rate, dropout, textf("adapter_path=%s/before", dir),
                             reference, NULL});
    *square = before.grad_norm * before.grad_norm;
    scratch_remove(in_dir(dir, "before"));
    scratch_remove(in_dir(dir, "after"));
    return (before.loss - after.loss) / rate;
}

/* A reference that is the start would move with it: only the base is the same in both runs. */
static const struct {
    const char *name, *dropout, *reference;
} cases[] = {
    {"dpo-lora", "lora_dropout=0", "reference=base"},
    {"dpo-lora", "lora_dropout=0.5", "keep_first_pass=false"},
    {"dpo-lora", "lora_dropout=0.5", "reference=base"},
    {"dpo-lora", "lora_dropout=0.5", "precompute_reference=true"},
    {"orpo-lora", "lora_dropout=0.5", "keep_first_pass=true"},
    {"orpo-lora", "lora_dropout=0.5", "keep_first_pass=false"},
    {"simpo-lora", "lora_dropout=0.5", NULL},
};
enum { CASES = sizeof cases / sizeof *cases };

/* Twice the fall at a rate less that at twice the rate has no error of the rate's first order. What
 * is left of it is of the second, and a loss of 1 that falls by some thousandths is known to 1e-7:
 * well below a percent. A mask of another pass is off by tens of percents. */
START_TEST(the_loss_falls_by_the_square_of_its_gradient) {
    const double rate = 5e-4;
    double square, ignored;
    const double once = fall(cases[_i].name, rate, cases[_i].dropout, cases[_i].reference, &square);
    const double twice =
        fall(cases[_i].name, 2 * rate, cases[_i].dropout, cases[_i].reference, &ignored);
    const double slope = 2 * once - twice;
    ck_assert_msg(fabs(slope - square) < 0.01 * square,
                  "the loss falls by %.6g, the square is %.6g", slope, square);
}
END_TEST

/* Without dropout the run begins at its reference, where all rewards are zero. */
START_TEST(the_start_as_reference_has_no_dropout) {
    const struct first_step without =
        run("dpo-lora", "without", (const char *[]){"reference=initial", "lora_dropout=0", NULL});
    const struct first_step with =
        run("dpo-lora", "with", (const char *[]){"reference=initial", "lora_dropout=0.5", NULL});
    ck_assert_msg(fabs(without.loss - log(2)) < 1e-9, "%.17g", without.loss);
    ck_assert_msg(fabs(with.loss - log(2)) > 1e-4, "%.17g", with.loss);
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.slope");
    TCase *tc = tcase_create("runs");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, the_loss_falls_by_the_square_of_its_gradient, 0, CASES);
    tcase_add_test(tc, the_start_as_reference_has_no_dropout);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
