/* check_first_pass.c - a step of preferences that keeps its first forward pass has the gradient of
 * one that computes it twice: to the bit where micro-batches have the same samples, else to
 * rounding.
 *
 * GOLDEN_DEVICE, when set, names a device other than the CPU. */
#include "tests/support/joblog.h"
#include "tests/support/saved.h"
#include "tests/support/tensorset.h"
#include "tests/train/preference_runs.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3 };

#define TRAIN_STEPS(name, out, more, ...)                                                          \
    TRAIN(name, out, more, textf("max_steps=%d", STEPS), __VA_ARGS__)

static double of_step(const char *out, uint64_t step, const char *key) {
    json_t *log = joblog_read(in_dir(dir, out));
    const double value = joblog_number(joblog_step(log, step), key);
    json_decref(log);
    return value;
}

static void expect_planned(const char *out) {
    const char *path = in_dir(dir, out);
    ck_assert(joblog_summary(path, "planned_peak_bytes") ==
              joblog_summary(path, "allocated_peak_bytes"));
}

/* ---- the same samples at one time ---- */

/* Log-probabilities of the reference and of none, masks of dropout, the tail of an answer; logits
 * in one chunk, which are kept, and in several; levels that rebuild, all or some of it. */
static const struct even {
    const char *name, *stem, *more[4];
} evens[] = {
    {"dpo-lora", "adapter_model", {"lora_dropout=0.3", "loss_chunk_tokens=0"}},
    {"dpo-lora", "adapter_model", {"loss_chunk_tokens=5", "gradient_checkpointing=full"}},
    {"dpo-lora", "adapter_model", {"reference=initial", "gradient_checkpointing=light"}},
    {"dpo-length-desensitised", "model", {"batch_size=2", "gradient_checkpointing=mlp"}},
    {"dpo-rpo", "model", {"batch_size=4", "loss_chunk_tokens=7"}},
    {"dpo-rpo", "model", {"batch_size=2", "loss_chunk_tokens=0"}},
    {"orpo-lora",
     "adapter_model",
     {"batch_size=2", "lora_modules_to_save=[lm_head]", "adapter_path=null"}},
    {"simpo-lora",
     "adapter_model",
     {"batch_size=2", "lora_target_modules=[q_proj, lm_head]", "adapter_path=null"}},
};
enum { EVENS = sizeof evens / sizeof *evens };

START_TEST(whole_pairs_have_the_same_bits_and_bytes) {
    const struct even *e = &evens[_i];
    TRAIN_STEPS(e->name, "kept", e->more, "keep_first_pass=true");
    TRAIN_STEPS(e->name, "twice", e->more, "keep_first_pass=false");
    joblog_assert_same_steps(in_dir(dir, "kept"), in_dir(dir, "twice"));
    weights_assert_same(in_dir(dir, "kept"), in_dir(dir, "twice"), e->stem);
    expect_planned("kept");
    expect_planned("twice");
    /* what is kept is there while a step learns, whenever it was computed */
    const double kept = of_step("kept", 1, "device_bytes");
    const double twice = of_step("twice", 1, "device_bytes");
    ck_assert_msg(kept <= 1.02 * twice, "%.0f bytes, and %.0f with two passes", kept, twice);
}
END_TEST

/* ---- other samples ---- */

static const struct even odds[] = {
    {"dpo-lora", "adapter_model", {"batch_size=1", "gradient_accumulation_steps=2"}},
    {"dpo-accumulate", "model", {"batch_size=3"}},
    {"dpo-rpo", "model", {"batch_size=3"}},
    {"orpo-lora", "adapter_model", {"batch_size=1"}},
    {"kto-lora", "adapter_model", {"lora_dropout=0.3"}},
    {"kto-lora", "adapter_model", {"precompute_reference=true", "batch_size=2"}},
    {"kto-full", "model", {"loss_chunk_tokens=5"}},
};
enum { ODDS = sizeof odds / sizeof *odds };

static void expect_near(const char *key, uint64_t step, double limit) {
    const double p = of_step("kept", step, key), q = of_step("twice", step, key);
    ck_assert_msg(fabs(p - q) <= limit * (fabs(q) + 1e-2), "step %d: %s is %.9g, and %.9g",
                  (int)step, key, p, q);
}

/* C2 of score.h. A sum over other rows at one time is rounded in another place: by some parts of
 * 1e-7, which the updates of a step or two multiply. */
START_TEST(an_odd_number_of_pairs_has_the_same_gradient_to_rounding) {
    const struct even *o = &odds[_i];
    TRAIN_STEPS(o->name, "kept", o->more, "keep_first_pass=true");
    TRAIN_STEPS(o->name, "twice", o->more, "keep_first_pass=false");
    for (uint64_t step = 1; step <= STEPS; step++) {
        expect_near("loss", step, 1e-5);
        expect_near("grad_norm", step, 1e-4);
        ck_assert(of_step("kept", step, "tokens") == of_step("twice", step, "tokens"));
    }
    expect_planned("kept");
}
END_TEST

/* ---- less memory ---- */

/* A halving never makes a micro-batch larger than it asks for: one of a single pair computes its
 * answers apart. */
START_TEST(a_run_that_halves_to_one_pair_computes_it_in_two_passes) {
    static const char *const even[] = {"batch_size=2", "gradient_accumulation_steps=1", NULL};
    static const char *const one[] = {"batch_size=1", "gradient_accumulation_steps=2", NULL};
    TRAIN_STEPS("dpo-lora", "halved", even, "keep_first_pass=true",
                "debug_inject=device_oom@step=1");
    TRAIN_STEPS("dpo-lora", "one", one, "keep_first_pass=false");
    ck_assert(joblog_summary(in_dir(dir, "halved"), "oom_recoveries") == 1);
    joblog_assert_same_steps(in_dir(dir, "halved"), in_dir(dir, "one"));
    weights_assert_same(in_dir(dir, "halved"), in_dir(dir, "one"), "adapter_model");
}
END_TEST

/* Before the first update, and after it; the resumed run is the one that was not interrupted. */
START_TEST(such_a_run_resumes_to_the_bit) {
    static const char *const even[] = {"batch_size=2", "save_steps=1", NULL};
    const char *const fault = textf("debug_inject=device_oom@step=%d", _i + 1);
    TRAIN_STEPS("dpo-lora", "whole", even, "keep_first_pass=auto", fault);
    scratch_copy(in_dir(dir, "whole"), in_dir(dir, "parts"));
    scratch_remove(textf("%s/parts/checkpoint-%d", dir, STEPS));
    TRAIN_STEPS("dpo-lora", "parts", even, "keep_first_pass=auto");
    ck_assert(of_step("parts", STEPS, "batch_size") == 1);
    checkpoint_assert_same(textf("%s/whole/checkpoint-%d", dir, STEPS),
                           textf("%s/parts/checkpoint-%d", dir, STEPS));
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.first_pass");
    TCase *tc = tcase_create("runs");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, whole_pairs_have_the_same_bits_and_bytes, 0, EVENS);
    tcase_add_loop_test(tc, an_odd_number_of_pairs_has_the_same_gradient_to_rounding, 0, ODDS);
    tcase_add_test(tc, a_run_that_halves_to_one_pair_computes_it_in_two_passes);
    tcase_add_loop_test(tc, such_a_run_resumes_to_the_bit, 0, 2);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
