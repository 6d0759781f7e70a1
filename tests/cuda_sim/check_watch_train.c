/* check_watch_train.c - whole runs with every access of a kernel watched (plsim_watch.h): what the
 * trainer hands to kernels, and the tensors that share a place in the plan, are what the kernels
 * touch. A run that breaks a rule ends with a signal. */
#include "tests/support/child.h"
#include "tests/support/scratch.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <stdlib.h>

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
    ck_assert_int_eq(setenv("XDG_CACHE_HOME", dir, 1), 0);
}

static void tear_down(void) {
    scratch_remove(dir);
}

static const struct {
    const char *mode;
    bool untied;
    const char *more;
} jobs[] = {
    {"full", false, "gradient_accumulation_steps: 2\nmax_grad_norm: 1.0\nval_set_size: 2\n"},
    {"full", false,
     "dtype: bf16\nmaster_weights: false\noptimizer: adamw_8bit\n"
     "gradient_checkpointing: full\nfreeze_layers: 1\npacking: true\n"},
    {"full", false, "dtype: bf16\noptimizer: sgd\noffload: gradients\noffload_update: device\n"},
    {"full", false, "gradient_checkpointing: offload\noffload: weights\noffload_update: device\n"},
    {"lora", false, "dtype: bf16\nlora_dropout: 0.1\ngradient_checkpointing: light\n"},
    {"qlora", true, "dtype: bf16\nadapter_dtype: bf16\nquantize_head: true\n"},
    {"qlora", false, "dtype: bf16\nmoment_dtype: bf16\nquantize_embedding: true\n"},
};

START_TEST(a_run_keeps_the_rules) {
    tiny_make(
        dir, &(struct tiny){.mode = jobs[_i].mode, .rows = 8, .untied = jobs[_i].untied},
        textf("device: cuda\nlearning_rate: 0.01\nmax_steps: 2\nbatch_size: 2\n%s", jobs[_i].more));
    plimsoll_train_expect(0, dir, (const char *[]){"output_dir=out", NULL});
}
END_TEST

int main(void) {
    Suite *s = suite_create("cuda.watched.train");
    TCase *tc = tcase_create("runs");
    tcase_set_timeout(tc, 240);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, a_run_keeps_the_rules, 0, (int)(sizeof jobs / sizeof *jobs));
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
