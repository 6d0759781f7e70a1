/* check_estimate_args.c - which job and which config.json the arguments of estimate-vram mean. */
#include "estimator/config/job_text.h"
#include "tests/support/scratch.h"
#include "tools/plimsoll/estimate_args.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WORDS 4

static pl_err read_args(const char *arg, const char *const overrides[MAX_WORDS],
                        struct pl_job *job, char **config_json, struct pl_text *notes,
                        struct pl_diag *d) {
    struct pl_cli cli = {0};
    const char *args[1] = {arg}, *copies[MAX_WORDS];
    cli.args = args;
    cli.n_args = arg ? 1 : 0;
    cli.overrides = copies;
    for (; overrides[cli.n_overrides]; cli.n_overrides++)
        copies[cli.n_overrides] = overrides[cli.n_overrides];
    return pl_estimate_read_args(&cli, job, config_json, notes, d);
}

static char directory[SCRATCH_PATH];

/* E2. */
START_TEST(a_model_directory_means_its_config_json_and_lora) {
    struct pl_job job;
    struct pl_text notes = {0};
    struct pl_diag d = {0};
    char *path;
    pl_err err = read_args(directory, (const char *[MAX_WORDS]){"lora_r=8", "vram_budget=4GiB"},
                           &job, &path, &notes, &d);
    ck_assert_msg(err == PL_ERR_OK, "%s", d.message);
    ck_assert_str_eq(path, textf("%s/config.json", directory));
    ck_assert_uint_eq(job.mode, PL_MODE_LORA);
    ck_assert_uint_eq(job.lora_r, 8);
    ck_assert_uint_eq(job.vram_budget, 4ull << 30);
    ck_assert_ptr_nonnull(strstr(pl_text_str(&notes), "lora"));
    free(path);
    pl_text_finish(&notes);
    pl_job_finish(&job);
}
END_TEST

START_TEST(a_mode_that_was_given_leaves_no_note) {
    struct pl_job job;
    struct pl_text notes = {0};
    struct pl_diag d = {0};
    char *path;
    pl_err err = read_args("some/config.json", (const char *[MAX_WORDS]){"mode=full"}, &job, &path,
                           &notes, &d);
    ck_assert_msg(err == PL_ERR_OK, "%s", d.message);
    ck_assert_str_eq(path, "some/config.json");
    ck_assert_uint_eq(job.mode, PL_MODE_FULL);
    ck_assert_str_eq(pl_text_str(&notes), "");
    free(path);
    pl_job_finish(&job);
}
END_TEST

/* E1. */
START_TEST(a_yaml_file_is_read_as_train_reads_it_and_flags_win) {
    struct pl_job job;
    struct pl_text notes = {0};
    struct pl_diag d = {0};
    char *path;
    const char *yaml = in_dir(directory, "run.yaml");
    file_write(yaml, "model: ./m\nmode: full\ndataset: d.jsonl\nmax_seq_length: 128\n");
    pl_err err = read_args(yaml, (const char *[MAX_WORDS]){"max_seq_length=64"}, &job, &path,
                           &notes, &d);
    ck_assert_msg(err == PL_ERR_OK, "%s", d.message);
    ck_assert_str_eq(path, "./m");
    ck_assert_uint_eq(job.mode, PL_MODE_FULL);
    ck_assert_uint_eq(job.max_seq_length, 64);
    free(path);
    pl_text_finish(&notes);
    pl_job_finish(&job);
}
END_TEST

/* The flag says what the file leaves out; without it there is nothing to plan. */
START_TEST(a_yaml_file_without_a_mode_answers_about_inference) {
    struct pl_job job;
    struct pl_text notes = {0};
    struct pl_diag d = {0};
    char *path;
    const char *yaml = in_dir(directory, "run.yaml");
    file_write(yaml, "model: ./m\nquant_type: nf4\n");
    pl_err err =
        read_args(yaml, (const char *[MAX_WORDS]){"mode=inference"}, &job, &path, &notes, &d);
    ck_assert_msg(err == PL_ERR_OK, "%s", d.message);
    ck_assert(job.inference);
    ck_assert_uint_eq(job.mode, PL_MODE_QLORA);
    free(path);
    pl_job_finish(&job);
    err = read_args(yaml, (const char *[MAX_WORDS]){NULL}, &job, &path, &notes, &d);
    ck_assert_int_eq(err, PL_ERR_CONFIG_MISSING);
    pl_text_finish(&notes);
}
END_TEST

static const struct {
    const char *arg, *overrides[MAX_WORDS];
    pl_err err;
    const char *message; /* fragment */
} refused[] = {
    {NULL, {NULL}, PL_ERR_USAGE, "no model"},
    {NULL, {"mode=full"}, PL_ERR_USAGE, "no model"},
    {"m", {"lora_r=0"}, PL_ERR_CONFIG_RANGE, "lora_r"},
    {"m", {"no_such_key=1"}, PL_ERR_CONFIG_UNKNOWN_KEY, "no_such_key"},
    {"m", {"vram_budget=24GBGB"}, PL_ERR_CONFIG_TYPE, "vram_budget"},
    {"no/such/file.yaml", {NULL}, PL_ERR_CONFIG_FILE, ""},
};

START_TEST(what_cannot_be_read_is_refused_and_nothing_is_left) {
    struct pl_job job;
    struct pl_text notes = {0};
    struct pl_diag d = {0};
    char *path;
    pl_err err = read_args(refused[_i].arg, refused[_i].overrides, &job, &path, &notes, &d);
    ck_assert_int_eq(err, refused[_i].err);
    ck_assert_msg(strstr(d.message, refused[_i].message), "%s", d.message);
    ck_assert_ptr_null(path);
    pl_text_finish(&notes);
}
END_TEST

static void make_directory(void) {
    scratch_make(directory);
    file_write(in_dir(directory, "config.json"), "{}");
}

static void remove_directory(void) { scratch_remove(directory); }

int main(void) {
    Suite *s = suite_create("cli.estimate_args");
    TCase *tc = tcase_create("args");
    tcase_add_checked_fixture(tc, make_directory, remove_directory);
    tcase_add_test(tc, a_model_directory_means_its_config_json_and_lora);
    tcase_add_test(tc, a_mode_that_was_given_leaves_no_note);
    tcase_add_test(tc, a_yaml_file_is_read_as_train_reads_it_and_flags_win);
    tcase_add_test(tc, a_yaml_file_without_a_mode_answers_about_inference);
    tcase_add_loop_test(tc, what_cannot_be_read_is_refused_and_nothing_is_left, 0,
                        (int)(sizeof refused / sizeof *refused));
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
