/* check_given_file.c - files of other kinds where a configuration, or a model, is expected. */
#include "estimator/base/given_file.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static char dir[SCRATCH_PATH];

/* as_job, as_model: a part of the message; NULL: the reader of the file itself judges it. */
static const struct {
    const char *name, *content;
    const char *as_job, *as_model;
} rows[] = {
    {"run.yaml", "model: m\nmode: lora\n", NULL, NULL},
    {"run.txt", "model: m\n", NULL, NULL},
    {"run.json", "{\"model\": \"m\", \"mode\": \"lora\", \"datasets\": [\"text\"]}", NULL, NULL},
    {"empty.yaml", "", NULL, NULL},
    {"a.jsonl", "{\"a\": 1}\n", "rows of training data", "rows of training data"},
    {"A.JSONL", "", "rows of training data", "rows of training data"},
    {"a.csv", "text\nx\n", "rows of training data", "rows of training data"},
    {"a.tsv.gz", "\x1f\x8b", "rows of training data", "rows of training data"},
    {"a.json.zst", "\x28\xb5\x2f\xfd", "rows of training data", "rows of training data"},
    {"part-0", "PAR1", "rows of training data", "rows of training data"},
    {"part-1", "ARROW1\n", "rows of training data", "rows of training data"},
    {"a.json", " [{\"text\": \"x\"}]", "rows of training data", "rows of training data"},
    {"b.json", "\xEF\xBB\xBF{\"messages\": []}", "rows of training data", "rows of training data"},
    {"rows", "{\"prompt\": \"x\", \"completion\": \"y\"}\n", "rows of training data",
     "rows of training data"},
    {"config.json", "{\"architectures\": [], \"model_type\": \"llama\"}",
     "the configuration of a model", NULL},
    {"tokenizer.json", "{}", "a tokenizer's file", NULL},
    {"tok.json", "{\"version\": \"1.0\", \"added_tokens\": []}", "a tokenizer's file", NULL},
    {"tokenizer_config.json", "{}", "a tokenizer's file", NULL},
    {"model.safetensors", "", "a file of weights", NULL},
    {"model.Q4_0.gguf", "GGUF", "a file of weights", NULL},
};

static const char *in(const char *name) {
    static char path[SCRATCH_PATH + 32];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void expect(const char *path, pl_err err, pl_err code, const struct pl_diag *d,
                   const char *says) {
    ck_assert_msg(err == (says ? code : PL_ERR_OK), "%s: %s", path, d->message);
    if (!says) return;
    ck_assert_msg(strstr(d->message, says) != NULL, "%s: %s", path, d->message);
    ck_assert_msg(strchr(d->hint, '@') == NULL && *d->hint, "%s: %s", path, d->hint);
}

START_TEST(a_file_of_another_kind_is_told) {
    const char *path = in(rows[_i].name), *content = rows[_i].content;
    struct pl_diag d = {0}, e = {0};
    file_write(path, content);
    expect(path, pl_given_as_job(path, content, strlen(content), &d), PL_ERR_CONFIG_FILE, &d,
           rows[_i].as_job);
    expect(path, pl_given_as_model(path, content, strlen(content), &e), PL_ERR_MODEL_FILE, &e,
           rows[_i].as_model);
}
END_TEST

START_TEST(a_directory_is_told_and_a_name_of_nothing_is_not) {
    struct pl_diag d = {0};
    expect(dir, pl_given_as_job(dir, "", 0, &d), PL_ERR_CONFIG_FILE, &d, "a directory");
    ck_assert_msg(strstr(d.hint, dir) != NULL, "%s", d.hint);
    ck_assert_int_eq(pl_given_as_job(in("none.jsonl"), "", 0, &d), PL_ERR_OK);
}
END_TEST

static void make(void) {
    scratch_make(dir);
}

static void clean(void) {
    scratch_remove(dir);
}

int main(void) {
    Suite *s = suite_create("base.given_file");
    TCase *tc = tcase_create("all");
    tcase_add_checked_fixture(tc, make, clean);
    tcase_add_loop_test(tc, a_file_of_another_kind_is_told, 0, sizeof rows / sizeof *rows);
    tcase_add_test(tc, a_directory_is_told_and_a_name_of_nothing_is_not);
    suite_add_tcase(s, tc);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
