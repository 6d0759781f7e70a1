/* check_compute_dtype.c - what a bf16 job multiplies in: which kernels its record names, what
 * `compute_dtype: fp32` changes, and that no number of threads changes a bit. */
#include "runtime/device/cpu/cpu.h"
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/scratch.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TRAIN(...) plimsoll_train_expect(0, dir, (const char *[]){__VA_ARGS__, NULL})
enum { STEPS = 4 };

static char dir[SCRATCH_PATH];
static struct pl_cpu_level best, fp32; /* of this machine; the same where it has no other */

static void set_up(void) {
    struct pl_diag d = {0};
    scratch_make(dir);
    ck_assert_msg(pl_cpu_level(true, &best, &d) == PL_ERR_OK, "%s", d.message);
    ck_assert_msg(pl_cpu_level(false, &fp32, &d) == PL_ERR_OK, "%s", d.message);
}

static void tear_down(void) {
    scratch_remove(dir);
}

static const char *const modes[] = {"full", "lora", "qlora"};
enum { MODES = sizeof modes / sizeof *modes };

static void make(const char *mode, const char *more) {
    tiny_make(dir, &(struct tiny){.mode = mode, .hidden = 64, .ffn = 96, .longest = 40},
              textf("dtype: bf16\nbatch_size: 4\nmax_steps: %d\nsave_steps: %d\n"
                    "learning_rate: 0.01\n%s",
                    STEPS, STEPS, more));
}

static void expect_kernels(const char *out, const char *level) {
    char *text =
        file_read(in_dir(dir, textf("%s/checkpoint-%d/trainer_state.json", out, STEPS)), NULL);
    const char *row = strstr(text, "\"kernels\"");
    ck_assert_ptr_nonnull(row);
    char named[64] = "";
    ck_assert_int_eq(sscanf(row, "\"kernels\": \"%63[^\"]\"", named), 1);
    ck_assert_str_eq(named, level);
    free(text);
}

static bool are_same(const char *one, const char *other, const char *mode) {
    const char *name =
        strcmp(mode, "full") == 0 ? "model.safetensors" : "adapter_model.safetensors";
    char a[SCRATCH_PATH + 64], b[SCRATCH_PATH + 64];
    snprintf(a, sizeof a, "%s/%s/%s", dir, one, name);
    snprintf(b, sizeof b, "%s/%s/%s", dir, other, name);
    return file_same(a, b);
}

START_TEST(the_record_names_the_kernels_of_the_products) {
    make("lora", "");
    TRAIN("output_dir=auto");
    TRAIN("output_dir=named", "compute_dtype=bf16");
    TRAIN("output_dir=widened", "compute_dtype=fp32");
    TRAIN("output_dir=fp32", "dtype=fp32");
    expect_kernels("auto", best.name);
    expect_kernels("named", best.name);
    expect_kernels("widened", fp32.name);
    expect_kernels("fp32", fp32.name);
    ck_assert(are_same("auto", "named", "lora"));
}
END_TEST

/* Losses of one job with either products: a step rounds weights to bf16, which has 8 bits. */
#define LOSS_TOLERANCE 0.01

static void expect_close(const char *one, const char *other) {
    char a[SCRATCH_PATH + 16], b[SCRATCH_PATH + 16];
    snprintf(a, sizeof a, "%s/%s", dir, one);
    snprintf(b, sizeof b, "%s/%s", dir, other);
    json_t *log = joblog_read(a), *too = joblog_read(b);
    for (uint64_t step = 1; step <= STEPS; step++) {
        const double x = joblog_number(joblog_step(log, step), "loss");
        const double y = joblog_number(joblog_step(too, step), "loss");
        ck_assert_msg(fabs(x - y) <= LOSS_TOLERANCE * y, "step %d: %.6f, not %.6f", (int)step, x,
                      y);
    }
    json_decref(log);
    json_decref(too);
}

/* It is another level, under either name, with the same bits. */
START_TEST(products_in_fp32_have_the_bits_of_the_level_below) {
    const char *mode = modes[_i];
    make(mode, "");
    TRAIN("output_dir=auto");
    TRAIN("output_dir=widened", "compute_dtype=fp32");
    ck_assert_int_eq(setenv("PLIMSOLL_CPU_LEVEL", fp32.name, 1), 0);
    TRAIN("output_dir=below", "compute_dtype=bf16");
    ck_assert_int_eq(unsetenv("PLIMSOLL_CPU_LEVEL"), 0);
    /* A qlora base is dequantised to the type too, and so few sums of it may all round alike. */
    if (strcmp(mode, "qlora") != 0) {
        ck_assert(are_same("widened", "below", mode));
        ck_assert_int_eq(!are_same("auto", "below", mode), best.number != fp32.number);
    }
    expect_kernels("below", fp32.name);
    expect_close("auto", "widened");
}
END_TEST

START_TEST(no_number_of_threads_changes_a_bit) {
    static const char *const threads[] = {"2", "3", "5", "8"};
    const char *mode = modes[_i];
    make(mode, "");
    TRAIN("output_dir=one", "threads=1");
    for (int i = 0; i < 4; i++) {
        TRAIN(textf("output_dir=t%s", threads[i]), textf("threads=%s", threads[i]));
        ck_assert_msg(are_same("one", textf("t%s", threads[i]), mode), "%s threads", threads[i]);
    }
}
END_TEST

/* Other kernels are noted, and refuse nothing. */
START_TEST(a_run_resumes_with_other_products) {
    make("full", "");
    TRAIN("output_dir=out");
    struct outcome o = plimsoll_run(
        dir, (const char *[]){"train", "run.yaml", "max_steps=6", "compute_dtype=fp32", NULL});
    ck_assert_msg(o.status == 0, "%d: %s", o.status, o.err);
    const char *note = textf("kernels: %s -> %s", best.name, fp32.name);
    ck_assert_msg((strstr(o.err, note) != NULL) == (best.number != fp32.number), "%s", o.err);
    ck_assert_msg(!strstr(o.err, "compute_dtype"), "%s", o.err);
    outcome_finish(&o);
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.compute_dtype");
    TCase *tc = tcase_create("runs");
    tcase_set_timeout(tc, 240);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, the_record_names_the_kernels_of_the_products);
    tcase_add_loop_test(tc, products_in_fp32_have_the_bits_of_the_level_below, 0, MODES);
    tcase_add_loop_test(tc, no_number_of_threads_changes_a_bit, 0, MODES);
    tcase_add_test(tc, a_run_resumes_with_other_products);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    const int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
