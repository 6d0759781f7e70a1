/* check_loss_scale.c - fp16: the scale of the loss decides nothing but which steps are skipped, and
 * a skipped step survives whatever a run survives. The runs start from recorded cases
 * (tests/golden). */
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

/* Trains a case into dir/out; words: at most 8 overrides. Returns the exit status. */
static struct outcome train(const char *name, const char *out, const char *const words[]) {
    const char *all[16] = {"train", "run.yaml", "-q", "--output_dir", textf("%s/%s", dir, out)};
    int n = 5;
    for (int i = 0; words[i]; i++)
        all[n++] = words[i];
    return plimsoll_run(textf("%s/%s", GOLDEN, name), all);
}

static void train_well(const char *name, const char *out, const char *const words[]) {
    struct outcome o = train(name, out, words);
    ck_assert_msg(o.status == 0, "exit %d: %s", o.status, o.err);
    outcome_finish(&o);
}

#define TRAIN(name, out, ...) train_well(name, out, (const char *[]){__VA_ARGS__, NULL})

static void expect_same(const char *a, const char *b, const char *file) {
    ck_assert_msg(file_same(in_dir(in_dir(dir, a), file), in_dir(in_dir(dir, b), file)),
                  "%s of %s is not that of %s", file, b, a);
}

static double number_of(const char *out, uint64_t step, const char *key) {
    json_t *log = joblog_read(in_dir(dir, out));
    const json_t *line = joblog_step(log, step);
    ck_assert_ptr_nonnull(line);
    const json_t *v = json_object_get(line, key);
    const double x = json_is_boolean(v) ? json_is_true(v) : joblog_number(line, key);
    json_decref(log);
    return x;
}

#define ADAPTER "adapter_model.safetensors"

/* The greatest difference between two adapters of one layout, relative to the greatest number: both
 * are fp32 after a header of one length. */
static double adapters_differ(const char *a, const char *b) {
    size_t n, m;
    char *x = file_read(in_dir(in_dir(dir, a), ADAPTER), &n);
    char *y = file_read(in_dir(in_dir(dir, b), ADAPTER), &m);
    uint64_t header;
    double differ = 0, most = 0;
    ck_assert_uint_eq(n, m);
    memcpy(&header, x, sizeof header);
    for (size_t at = 8 + header; at < n; at += sizeof(float)) {
        float u, v;
        memcpy(&u, x + at, sizeof u);
        memcpy(&v, y + at, sizeof v);
        differ = fmax(differ, fabs((double)u - (double)v));
        most = fmax(most, fabs((double)u));
    }
    free(x);
    free(y);
    return differ / most;
}

/* Multiplying by a power of two rounds nothing but gradients below fp16's least normal number, of
 * which large scales leave a few in a million. A scale of 1 loses most of them. */
START_TEST(twice_the_scale_changes_the_last_bits_alone) {
    TRAIN("lora-fp16-plain", "a", "loss_scale=65536");
    TRAIN("lora-fp16-plain", "b", "loss_scale=131072");
    TRAIN("lora-fp16-plain", "c", "loss_scale=1");
    ck_assert_double_lt(adapters_differ("a", "b"), 1e-6);
    ck_assert_double_gt(adapters_differ("a", "c"), 1e-3);
    ck_assert_double_eq_tol(number_of("a", 1, "grad_norm"), number_of("b", 1, "grad_norm"),
                            1e-6 * number_of("a", 1, "grad_norm"));
}
END_TEST

START_TEST(a_skipped_step_halves_the_scale_and_moves_neither_weights_nor_rate) {
    TRAIN("lora-fp16-accumulate", "a", "max_steps=4", "debug_inject=overflow@step=3");
    TRAIN("lora-fp16-accumulate", "b", "max_steps=3", "debug_inject=overflow@step=3");
    TRAIN("lora-fp16-accumulate", "c", "max_steps=2");
    ck_assert_double_eq(number_of("a", 3, "skipped"), 1);
    ck_assert_double_eq(number_of("a", 2, "loss_scale"), number_of("a", 3, "loss_scale"));
    ck_assert_double_eq(number_of("a", 4, "loss_scale"), number_of("a", 3, "loss_scale") / 2);
    ck_assert_double_eq(number_of("a", 4, "learning_rate"), number_of("a", 3, "learning_rate"));
    expect_same("b", "c", ADAPTER);
    json_t *log = joblog_read(in_dir(dir, "a"));
    ck_assert_double_eq(joblog_number(joblog_event(log, "summary", 0), "skipped_steps"), 1);
    json_decref(log);
}
END_TEST

#define OVERFLOWS "loss_scale=dynamic", "max_steps=6", "debug_inject=overflow@step=2,count=2"

/* The update takes the masters in the backward pass, or those of the host: neither may have begun
 * before the norm is known. */
START_TEST(however_it_updates) {
    static const char *const ways[] = {"optimizer_in_backward=true", "offload=optimizer",
                                       "offload_update=host", "max_grad_norm=0"};
    TRAIN("full-fp16-overflow", "a", OVERFLOWS);
    const bool host = strcmp(ways[_i], "offload_update=host") == 0;
    const bool norm = strcmp(ways[_i], "max_grad_norm=0") == 0;
    TRAIN("full-fp16-overflow", "b", OVERFLOWS, ways[_i], host ? "offload=optimizer" : "seed=1",
          norm ? "optimizer_in_backward=true" : "seed=1");
    for (uint64_t step = 2; step <= 3; step++)
        ck_assert_double_eq(number_of("b", step, "skipped"), 1);
    if (!norm) expect_same("a", "b", "model.safetensors");
}
END_TEST

/* Before, at and after the skip. */
START_TEST(a_run_resumes_at_either_side_of_a_skip) {
    const char *const stop = textf("max_steps=%d", _i + 2);
    TRAIN("lora-fp16-accumulate", "a", "max_steps=7", "debug_inject=overflow@step=3",
          "lr_scheduler=constant", "loss_scale_window=2", "warmup_steps=2");
    TRAIN("lora-fp16-accumulate", "b", stop, "debug_inject=overflow@step=3",
          "lr_scheduler=constant", "loss_scale_window=2", "save_steps=1", "warmup_steps=2");
    TRAIN("lora-fp16-accumulate", "b", "max_steps=7", "debug_inject=overflow@step=3",
          "lr_scheduler=constant", "loss_scale_window=2", "save_steps=1", "warmup_steps=2",
          "resume=auto");
    expect_same("a", "b", ADAPTER);
    ck_assert_double_eq(number_of("a", 7, "loss_scale"), number_of("b", 7, "loss_scale"));
}
END_TEST

START_TEST(a_step_that_runs_out_of_memory_is_skipped_all_the_same) {
    TRAIN("lora-fp16-overflow", "a", "batch_size=2", "gradient_accumulation_steps=1",
          "debug_inject=device_oom@step=2;overflow@step=9");
    TRAIN("lora-fp16-overflow", "b", "batch_size=1", "gradient_accumulation_steps=2",
          "debug_inject=overflow@step=9");
    ck_assert_double_eq(number_of("a", 2, "skipped"), 1);
    expect_same("a", "b", ADAPTER);
}
END_TEST

START_TEST(gradients_that_overflow_without_a_scale_end_the_run) {
    struct outcome o =
        train("lora-fp16-plain", "a",
              (const char *[]){"max_steps=30", "debug_inject=overflow@step=1,forever",
                               "loss_scale=dynamic", NULL});
    ck_assert_int_ne(o.status, 0);
    ck_assert_msg(strstr(o.err, "step 17") && strstr(o.err, "loss scale of 1"), "%s", o.err);
    ck_assert_msg(strstr(o.err, "logits[0, 0] is inf, written by op"), "%s", o.err);
    outcome_finish(&o);
}
END_TEST

/* A weight of 65,519 is the largest that fp16 holds, rounded; 65,520 is none. */
START_TEST(a_weight_that_fp16_cannot_hold_refuses_the_file) {
    const float value = _i ? 65520.0f : 65519.0f;
    scratch_copy(GOLDEN "/full-fp16-sgd", in_dir(dir, "case"));
    char *path = strdup(in_dir(dir, "case/model/model.safetensors"));
    size_t bytes;
    char *file = file_read(path, &bytes);
    FILE *out = fopen(path, "wb");
    ck_assert(file && out);
    memcpy(file + bytes - sizeof value, &value, sizeof value);
    ck_assert_uint_eq(fwrite(file, 1, bytes, out), bytes);
    ck_assert_int_eq(fclose(out), 0);
    struct outcome o = plimsoll_run(in_dir(dir, "case"),
                                    (const char *[]){"train", "run.yaml", "-q", "--output_dir",
                                                     in_dir(dir, "out"), "max_steps=1", NULL});
    ck_assert_msg((strstr(o.err, "fp16 ends at 65504") != NULL) == (_i == 1), "%s", o.err);
    ck_assert_msg(_i == 0 || strstr(o.err, "model."), "%s", o.err);
    outcome_finish(&o);
    free(file);
    free(path);
}
END_TEST

/* Keys with which fp16 would lose what is learnt. */
START_TEST(what_fp16_would_lose_is_refused) {
    static const struct {
        const char *name, *word, *says;
    } rows[] = {{"full-fp16-sgd", "master_weights=false", "`master_weights: false`"},
                {"full-fp16-sgd", "gradient_dtype=bf16", "`gradient_dtype: bf16`"},
                {"lora-fp16-plain", "adapter_dtype=bf16", "`adapter_dtype: bf16`"}};
    struct outcome o =
        train(rows[_i].name, "a", (const char *[]){rows[_i].word, "max_steps=1", NULL});
    ck_assert_int_ne(o.status, 0);
    ck_assert_msg(strstr(o.err, rows[_i].says) && strstr(o.err, "fp16"), "%s", o.err);
    outcome_finish(&o);
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.loss_scale");
    TCase *tc = tcase_create("scale");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_set_timeout(tc, 90);
    tcase_add_test(tc, twice_the_scale_changes_the_last_bits_alone);
    tcase_add_test(tc, a_skipped_step_halves_the_scale_and_moves_neither_weights_nor_rate);
    tcase_add_loop_test(tc, however_it_updates, 0, 4);
    tcase_add_loop_test(tc, a_run_resumes_at_either_side_of_a_skip, 0, 3);
    tcase_add_test(tc, a_step_that_runs_out_of_memory_is_skipped_all_the_same);
    tcase_add_test(tc, gradients_that_overflow_without_a_scale_end_the_run);
    tcase_add_loop_test(tc, a_weight_that_fp16_cannot_hold_refuses_the_file, 0, 2);
    tcase_add_loop_test(tc, what_fp16_would_lose_is_refused, 0, 3);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
