/* check_toy_op.c - that an operation is its row, the row of who calls for it, and a kernel for each
 * back-end: the binary under test has one of its own, and no other source knows of it.
 * GOLDEN_CASES as in check_golden.c. */
#include "tests/support/child.h"
#include "tests/support/scratch.h"
#include "tests/support/tensorset.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static char dir[SCRATCH_PATH], source[SCRATCH_PATH], toy[SCRATCH_PATH + 16];

static const struct {
    const char *device, *level, *mode;
} runs[] = {{"cpu", "none", "full"},
            {"cpu", "light", "full"},
            {"cpu", "full", "lora"},
            {"cuda", "none", "full"},
            {"cuda", "full", "full"}};
enum { N_RUNS = sizeof runs / sizeof *runs };

static void replace(char *text, const char *old, const char *with, const char *path) {
    char *at = strstr(text, old);
    ck_assert_msg(at && !strstr(at + 1, old), "%s", old);
    file_write(path, textf("%.*s%s%s", (int)(at - text), text, with, at + strlen(old)));
    free(text);
}

/* The model of a case as one of the toy's family. */
static void setup(void) {
    ck_assert_ptr_nonnull(getenv("GOLDEN_CASES"));
    snprintf(source, sizeof source, "%s/llama-full", getenv("GOLDEN_CASES"));
    scratch_make(dir);
    snprintf(toy, sizeof toy, "%s/toy", dir);
    scratch_copy(in_dir(source, "model"), toy);
    char path[SCRATCH_PATH + 32];
    snprintf(path, sizeof path, "%s/config.json", toy);
    replace(file_read(path, NULL), "\"llama\"", "\"toy\"", path);
    replace(file_read(path, NULL), "\"silu\"", "\"toy_silu\"", path);
}

static void teardown(void) {
    scratch_remove(dir);
}

static void train(int run, const char *model, const char *out) {
    const char *const words[] = {"train",
                                 "run.yaml",
                                 textf("model=%s", model),
                                 textf("mode=%s", runs[run].mode),
                                 textf("device=%s", runs[run].device),
                                 textf("gradient_checkpointing=%s", runs[run].level),
                                 textf("output_dir=%s", out),
                                 NULL};
    struct outcome o = plimsoll_expect(0, source, words);
    outcome_finish(&o);
}

START_TEST(it_computes_what_its_kernels_do) {
    char a[SCRATCH_PATH + 8], b[SCRATCH_PATH + 8];
    snprintf(a, sizeof a, "%s/real", dir);
    snprintf(b, sizeof b, "%s/out", dir);
    train(_i, in_dir(source, "model"), a);
    train(_i, toy, b);
    weights_assert_same(a, b, strcmp(runs[_i].mode, "lora") == 0 ? "adapter_model" : "model");
}
END_TEST

START_TEST(its_program_and_profile_name_it) {
    struct outcome o = plimsoll_expect(
        0, source,
        (const char *[]){"inspect", "--program", "run.yaml", textf("model=%s", toy), NULL});
    ck_assert_ptr_nonnull(strstr(o.out, " toyglu "));
    ck_assert_ptr_nonnull(strstr(o.out, " toyglu_bwd "));
    ck_assert_ptr_null(strstr(o.out, "swiglu"));
    outcome_finish(&o);
    o = plimsoll_expect(0, source,
                        (const char *[]){"train", "run.yaml", textf("model=%s", toy), "--profile",
                                         textf("output_dir=%s/profiled", dir), NULL});
    ck_assert_msg(strstr(o.out, "toyglu_bwd") || strstr(o.err, "toyglu_bwd"), "%s%s", o.out, o.err);
    outcome_finish(&o);
}
END_TEST

int main(void) {
    Suite *s = suite_create("toy_op");
    TCase *tc = tcase_create("op");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, it_computes_what_its_kernels_do, 0, N_RUNS);
    tcase_add_test(tc, its_program_and_profile_name_it);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
