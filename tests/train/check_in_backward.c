/* check_in_backward.c - updates in the backward pass: the losses, norms, weights and states of the
 * run that keeps its gradients, bit for bit, and what the plan says of them is what the run takes.
 */
#include "estimator/program/ops/optimizer_rows.h"
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

#define TRAIN(...)       plimsoll_train_expect(0, dir, (const char *[]){__VA_ARGS__, NULL})
#define TRAIN_FAILS(...) plimsoll_train(dir, (const char *[]){__VA_ARGS__, NULL})
#define IN_BACKWARD      "optimizer_in_backward=true"

static const char *const jobs[] = {
    "batch_size: 4\nweight_decay: 0.1\n",
    "batch_size: 3\nmax_grad_norm: 0.05\n",
    "batch_size: 4\nmax_grad_norm: 0\n",
    "batch_size: 3\ndtype: bf16\nmaster_weights: true\n",
    "batch_size: 3\ndtype: bf16\nmaster_weights: false\nmoment_dtype: bf16\n",
    "batch_size: 4\nfreeze_layers: 1\nval_set_size: 4\neval_steps: 2\n",
    "batch_size: 4\nloss_chunk_tokens: 5\n",
    "batch_size: 4\nloss_chunk_tokens: 5\nmax_grad_norm: 0\ngradient_dtype: fp32\ndtype: bf16\n",
    "batch_size: 2\npacking: true\n",
};
enum { N_JOBS = sizeof jobs / sizeof *jobs };

/* What is computed again, and what lies in host memory. */
static const char *const ways[][2] = {
    {"gradient_checkpointing=full"},
    {"gradient_checkpointing=none"},
    {"gradient_checkpointing=light"},
    {"gradient_checkpointing=mlp"},
    {"gradient_checkpointing=attention:2+mlp"},
    {"gradient_checkpointing=offload"},
    {"gradient_checkpointing=none", "offload=optimizer"},
};
enum { N_WAYS = sizeof ways / sizeof *ways };

static void make(const char *job, bool untied, const char *more) {
    tiny_make(dir, &(struct tiny){.layers = 3, .untied = untied},
              textf("%slearning_rate: 0.01\nlr_scheduler: constant\n%s", job, more));
}

static void expect_same_run(const char *a, const char *b) {
    char x[SCRATCH_PATH + 64], y[SCRATCH_PATH + 64];
    snprintf(x, sizeof x, "%s/%s", dir, a);
    snprintf(y, sizeof y, "%s/%s", dir, b);
    weights_assert_same(x, y, "model");
    joblog_assert_same_steps(x, y);
    ck_assert_msg(file_same(textf("%s/checkpoint-4/optimizer.safetensors", x),
                            textf("%s/checkpoint-4/optimizer.safetensors", y)),
                  "states differ between %s and %s", a, b);
}

static double summary(const char *out, const char *key) {
    return joblog_summary(in_dir(dir, out), key);
}

START_TEST(updates_in_the_backward_pass_change_no_bit) {
    make(jobs[_i / 2], _i % 2, "save_steps: 4\nmax_steps: 4\n");
    TRAIN("output_dir=plain");
    for (int w = 0; w < N_WAYS; w++) {
        const char *words[] = {textf("output_dir=way%d", w), IN_BACKWARD, ways[w][0], ways[w][1],
                               NULL};
        plimsoll_train_expect(0, dir, words);
        expect_same_run("plain", textf("way%d", w));
        ck_assert(summary(textf("way%d", w), "planned_peak_bytes") ==
                  summary(textf("way%d", w), "allocated_peak_bytes"));
    }
    ck_assert(summary("way0", "planned_peak_bytes") < summary("plain", "planned_peak_bytes"));
}
END_TEST

START_TEST(with_every_optimizer) {
    const char *name = pl_optimizer_row((uint32_t)_i)->name;
    for (int untied = 0; untied < 2; untied++) {
        tiny_make(dir, &(struct tiny){.layers = 2, .hidden = 64, .ffn = 96, .untied = untied},
                  textf("batch_size: 3\nlearning_rate: 0.01\nmax_steps: 4\nsave_steps: 4\n"
                        "dtype: bf16\nmaster_weights: false\noptimizer: %s\n",
                        name));
        TRAIN("output_dir=plain");
        TRAIN("output_dir=twice", IN_BACKWARD);
        expect_same_run("plain", "twice");
        TRAIN("output_dir=plain0", "max_grad_norm=0");
        TRAIN("output_dir=once", IN_BACKWARD, "max_grad_norm=0");
        expect_same_run("plain0", "once");
        scratch_remove(dir);
        scratch_make(dir);
    }
}
END_TEST

/* An embedding of ten million elements: the update of its states, which come from host memory, is
 * cut into windows. */
START_TEST(with_updates_in_windows) {
    tiny_make(dir, &(struct tiny){.layers = 1, .hidden = 256, .vocab = 40000, .rows = 4},
              "batch_size: 1\ndtype: bf16\nmaster_weights: false\nlearning_rate: 0.01\n"
              "optimizer: adamw_8bit\nlr_scheduler: constant\nmax_steps: 2\nsave_steps: 4\n");
    TRAIN("output_dir=plain");
    TRAIN("output_dir=way", IN_BACKWARD, "offload=optimizer");
    weights_assert_same(in_dir(dir, "plain"), in_dir(dir, "way"), "model");
}
END_TEST

static int n_optimizers(void) {
    uint32_t n;
    pl_optimizer_table(&n);
    return (int)n;
}

START_TEST(a_run_resumes_from_a_checkpoint_of_the_other_kind) {
    make(jobs[_i], true, "save_steps: 2\n");
    TRAIN("output_dir=plain", "max_steps=4");
    TRAIN("output_dir=mixed", "max_steps=2", _i % 2 ? IN_BACKWARD : "seed=42");
    TRAIN("output_dir=mixed", "max_steps=4", _i % 2 ? "seed=42" : IN_BACKWARD);
    expect_same_run("plain", "mixed");
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.in_backward");
    TCase *tc = tcase_create("bits");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, updates_in_the_backward_pass_change_no_bit, 0, 2 * N_JOBS);
    tcase_add_loop_test(tc, with_every_optimizer, 0, n_optimizers());
    tcase_add_test(tc, with_updates_in_windows);
    tcase_add_loop_test(tc, a_run_resumes_from_a_checkpoint_of_the_other_kind, 0, 3);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
