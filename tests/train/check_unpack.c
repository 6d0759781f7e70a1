/* check_unpack.c - runs that unpack a 4-bit base in panels, and runs that keep copies of it.
 *
 * An element of a product is the same sum whether its matrix is unpacked as a whole or in panels of
 * rows or columns, and so no bit of a run changes; nor does it by what recomputation, chunks of the
 * MLP or offloading add. On the CPU that is so of every micro-batch of more tokens than
 * PL_GEMM_FEW_ROWS and of every model without biases, and in the emulation of a GPU, whose library
 * has one algorithm. */
#include "tests/support/child.h"
#include "tests/support/joblog.h"
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

/* The head comes in 128 rows, of which the last are 44. */
static const char *const jobs[] = {
    "batch_size: 4\n",
    "batch_size: 4\ndtype: bf16\nquantize_head: true\nloss_chunk_tokens: 8\n",
    "batch_size: 4\ncompute_dtype: bf16\ndouble_quant: false\nquantize_embedding: true\n",
    "batch_size: 2\ngradient_accumulation_steps: 2\nlora_dropout: 0.2\nval_set_size: 4\n"
    "eval_steps: 2\n",
    "batch_size: 3\npacking: true\nlora_target_modules: [q_proj, down_proj]\n",
};
enum { N_JOBS = sizeof jobs / sizeof *jobs };

static void make(int job) {
    tiny_make(
        dir,
        &(struct tiny){.mode = "qlora", .hidden = 128, .ffn = 192, .vocab = 300, .untied = job % 2},
        textf("%slearning_rate: 0.003\nlr_scheduler: constant\nmax_steps: 3\nlora_r: 4\n"
              "logging_steps: 1\n",
              jobs[job]));
}

/* `out` is a directory name; at most four more words. */
static const char *train(const char *out, const char *const *more) {
    const char *words[8] = {textf("output_dir=%s", out)};
    for (int i = 0; i < 4 && more[i]; i++)
        words[1 + i] = more[i];
    plimsoll_train_expect(0, dir, words);
    const char *at = in_dir(dir, out);
    ck_assert(joblog_summary(at, "planned_peak_bytes") ==
              joblog_summary(at, "allocated_peak_bytes"));
    return out;
}
#define TRAIN(out, ...) train(out, (const char *[]){__VA_ARGS__, NULL, NULL, NULL, NULL})

static const char *path_of(const char *name, char buf[SCRATCH_PATH + 64]) {
    snprintf(buf, SCRATCH_PATH + 64, "%s/%s", dir, name);
    return buf;
}

static void expect_same(const char *a, const char *b) {
    weights_assert_same(a, b, "adapter_model");
    joblog_assert_same_steps(a, b);
}

START_TEST(panels_change_no_bit) {
    static const char *const sizes[] = {"unpack_buffer=1KiB", "unpack_buffer=24KiB",
                                        "unpack_buffer=40KiB"};
    char whole[SCRATCH_PATH + 64], cut[SCRATCH_PATH + 64];
    make(_i);
    path_of(TRAIN("whole", "unpack_buffer=0", "gradient_checkpointing=full"), whole);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        path_of(TRAIN(textf("cut%zu", i), sizes[i], "gradient_checkpointing=full"), cut);
        expect_same(whole, cut);
        const double less =
            joblog_summary(whole, "planned_peak_bytes") - joblog_summary(cut, "planned_peak_bytes");
        ck_assert(strstr(jobs[_i], "quantize") ? less > 0 : less >= 0);
    }
}
END_TEST

static const char *const ways[][2] = {
    {"gradient_checkpointing=none"},
    {"gradient_checkpointing=offload"},
    {"offload=weights", "gradient_checkpointing=attention"},
    {"mlp_chunk_tokens=7", "gradient_checkpointing=full"},
    {"keep_unpacked=true", "gradient_checkpointing=offload"},
};
enum { N_WAYS = sizeof ways / sizeof *ways };

/* Chunks of the MLP are compared with themselves. */
START_TEST(nor_do_they_with_what_else_saves_memory) {
    char whole[SCRATCH_PATH + 64], cut[SCRATCH_PATH + 64];
    make(_i / N_WAYS);
    path_of(TRAIN("whole", "unpack_buffer=0", ways[_i % N_WAYS][0], ways[_i % N_WAYS][1]), whole);
    path_of(TRAIN("cut", "unpack_buffer=8KiB", ways[_i % N_WAYS][0], ways[_i % N_WAYS][1]), cut);
    expect_same(whole, cut);
}
END_TEST

/* The copies of a layer, from its recomputation to its gradient. */
START_TEST(nor_do_copies_that_are_kept) {
    static const char *const levels[] = {"full", "mlp", "attention"};
    char once[SCRATCH_PATH + 64], kept[SCRATCH_PATH + 64];
    double more = 0;
    make(_i);
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        const char *level = textf("gradient_checkpointing=%s", levels[i]);
        path_of(TRAIN(textf("once%zu", i), level, "keep_unpacked=false"), once);
        path_of(TRAIN(textf("kept%zu", i), level, "keep_unpacked=true"), kept);
        expect_same(once, kept);
        more +=
            joblog_summary(kept, "planned_peak_bytes") - joblog_summary(once, "planned_peak_bytes");
    }
    ck_assert_double_gt(more, 0);
}
END_TEST

/* A library may choose its products by their shape. */
START_TEST(a_resumed_run_keeps_its_panels) {
    make(0);
    TRAIN("out", "unpack_buffer=8KiB", "max_steps=1", "save_steps=1");
    TRAIN("out", "max_steps=2", "save_steps=1");
    char *text = file_read(in_dir(dir, "out/config.resolved.yaml"), NULL);
    ck_assert_msg(strstr(text, "\nunpack_buffer: 8192B\n") != NULL, "%s", text);
    free(text);
    TRAIN("whole", "max_steps=1");
    text = file_read(in_dir(dir, "whole/config.resolved.yaml"), NULL);
    ck_assert_msg(strstr(text, "\nunpack_buffer: 0") != NULL, "%s", text);
    free(text);
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.unpack");
    TCase *tc = tcase_create("panels");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, panels_change_no_bit, 0, N_JOBS);
    tcase_add_loop_test(tc, nor_do_copies_that_are_kept, 0, N_JOBS);
    suite_add_tcase(s, tc);
    tc = tcase_create("ways");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, a_resumed_run_keeps_its_panels);
    tcase_add_loop_test(tc, nor_do_they_with_what_else_saves_memory, 0, N_JOBS * N_WAYS);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
