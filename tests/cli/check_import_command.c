/* check_import_command.c - `plimsoll import` through the binary: statuses, streams, the file that
 * is written, and the commands that name it. */
#include "tests/support/child.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[SCRATCH_PATH];

#define THEIRS                                                                                     \
    "base_model: Qwen/Qwen2.5-0.5B\nadapter: lora\nlora_r: 8\nmicro_batch_size: 2\n"               \
    "sequence_len: 256\nlearning_rate: 1e-4\nbf16: auto\n"

static void set_up(void) {
    scratch_make(dir);
    file_write(in_dir(dir, "their.yaml"), THEIRS);
    file_write(in_dir(dir, "rl.yaml"), THEIRS "rl: grpo\n");
}

static void tear_down(void) {
    scratch_remove(dir);
}

static struct outcome run(int status, const char *const *words) {
    return plimsoll_expect(status, dir, words);
}

START_TEST(the_job_goes_to_stdout_or_to_a_file) {
    struct outcome o = run(0, (const char *[]){"import", "their.yaml", NULL});
    ck_assert_ptr_nonnull(strstr(o.out, "\nmode: lora  # line 2"));
    ck_assert_str_eq(o.err, "");
    outcome_finish(&o);
    o = run(0, (const char *[]){"import", "their.yaml", "-o", "job.yaml", NULL});
    ck_assert_str_eq(o.out, "");
    outcome_finish(&o);
    o = run(0, (const char *[]){"estimate-vram", "job.yaml", NULL});
    ck_assert_ptr_nonnull(strstr(o.out, "batch=2, seq=256"));
    outcome_finish(&o);
}
END_TEST

START_TEST(a_file_that_is_there_is_kept) {
    file_write(in_dir(dir, "job.yaml"), "mine\n");
    struct outcome o = run(2, (const char *[]){"import", "their.yaml", "-o", "job.yaml", NULL});
    ck_assert_ptr_nonnull(strstr(o.err, "job.yaml is there already"));
    outcome_finish(&o);
    char *text = file_read(in_dir(dir, "job.yaml"), NULL);
    ck_assert_str_eq(text, "mine\n");
    free(text);
}
END_TEST

START_TEST(what_is_not_supported_is_listed_and_the_job_written) {
    struct outcome o = run(3, (const char *[]){"import", "rl.yaml", "--output", "job.yaml", NULL});
    ck_assert_ptr_nonnull(strstr(o.err, "line 8, `rl: grpo`: training on rewards"));
    outcome_finish(&o);
    ck_assert_int_eq(access(in_dir(dir, "job.yaml"), R_OK), 0);
    o = run(3, (const char *[]){"import", "rl.yaml", "--json", NULL});
    json_t *answer = json_loads(o.out, 0, NULL);
    const json_t *missed = json_object_get(answer, "not_supported");
    ck_assert_uint_eq(json_array_size(missed), 1);
    ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(missed, 0), "line")), 8);
    ck_assert_str_eq(json_string_value(json_object_get(answer, "framework")), "axolotl");
    ck_assert(json_array_size(json_object_get(answer, "mapped")) > 4);
    ck_assert(json_is_string(json_object_get(answer, "yaml")));
    json_decref(answer);
    outcome_finish(&o);
}
END_TEST

/* The text is that of the configuration, and the job names its file. */
START_TEST(a_template_in_the_file_is_put_beside_the_job) {
    file_write(in_dir(dir, "own.yaml"),
               THEIRS "chat_template: jinja\nchat_template_jinja: |\n  {% for m in messages %}\n"
                      "  {{ m.content }}{% endfor %}\n");
    struct outcome o = run(3, (const char *[]){"import", "own.yaml", NULL});
    ck_assert_ptr_nonnull(strstr(o.err, "-o job.yaml` writes it to a file"));
    outcome_finish(&o);
    o = run(0, (const char *[]){"import", "own.yaml", "-o", "the job.yaml", NULL});
    outcome_finish(&o);
    char *job = file_read(in_dir(dir, "the job.yaml"), NULL);
    char *text = file_read(in_dir(dir, "the job.jinja"), NULL);
    ck_assert_ptr_nonnull(strstr(job, "\nchat_template: \"the job.jinja\"  # line "));
    ck_assert_str_eq(text, "{% for m in messages %}\n{{ m.content }}{% endfor %}\n");
    free(job);
    free(text);
    o = run(2, (const char *[]){"import", "own.yaml", "-o", "the job.yml", NULL});
    ck_assert_ptr_nonnull(strstr(o.err, "the job.jinja is there already"));
    outcome_finish(&o);
    ck_assert_int_ne(access(in_dir(dir, "the job.yml"), F_OK), 0);
}
END_TEST

START_TEST(a_trainer_can_be_named) {
    file_write(in_dir(dir, "few.yaml"), "learning_rate: 1e-4\nmodel_name_or_path: m\n");
    struct outcome o = run(2, (const char *[]){"import", "few.yaml", NULL});
    ck_assert_ptr_nonnull(strstr(o.err, "CONFIG_FOREIGN"));
    outcome_finish(&o);
    o = run(0, (const char *[]){"import", "few.yaml", "--from", "trl", NULL});
    ck_assert_ptr_nonnull(strstr(o.out, "the default of TRL"));
    outcome_finish(&o);
}
END_TEST

static const char *const readers[] = {"train", "validate", "estimate-vram", "plan"};

START_TEST(a_command_that_reads_jobs_names_import) {
    struct outcome o = run(2, (const char *[]){readers[_i], "their.yaml", NULL});
    ck_assert_msg(strstr(o.err, "a configuration of axolotl"), "%s", o.err);
    ck_assert_msg(strstr(o.err, "`plimsoll import their.yaml -o job.yaml`"), "%s", o.err);
    outcome_finish(&o);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cli.import_command");
    TCase *tc = tcase_create("import");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, the_job_goes_to_stdout_or_to_a_file);
    tcase_add_test(tc, a_file_that_is_there_is_kept);
    tcase_add_test(tc, what_is_not_supported_is_listed_and_the_job_written);
    tcase_add_test(tc, a_template_in_the_file_is_put_beside_the_job);
    tcase_add_test(tc, a_trainer_can_be_named);
    tcase_add_loop_test(tc, a_command_that_reads_jobs_names_import, 0,
                        sizeof readers / sizeof *readers);
    suite_add_tcase(s, tc);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
