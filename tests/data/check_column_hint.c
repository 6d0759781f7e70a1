/* check_column_hint.c - rows with columns of no format: what the hint says is done as it is
 * written, and then the file is read. */
#include "estimator/config/datasets.h"
#include "tests/data/fixture.h"
#include "tests/support/scratch.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static char dir[SCRATCH_PATH];

static void make(void) {
    scratch_make(dir);
}
static void unmake(void) {
    scratch_remove(dir);
}

static const struct {
    const char *file, *text, *shows; /* a part of the first sample */
} rows[] = {
    {"a.jsonl", "{\"question\":\"q\",\"answer\":\"z\"}", ":\nq\n\n### Response:z$"},
    {"a.jsonl", "{\"instruction\":\"q\",\"response\":\"z\",\"category\":\"c\"}",
     ":\nq\n\n### Response:z$"},
    {"a.jsonl", "{\"query\":\"q\",\"response\":\"z\"}", ":\nq\n\n### Response:z$"},
    {"a.jsonl", "{\"input\":\"q\",\"output\":\"z\"}", ":\nq\n\n### Response:z$"},
    {"a.jsonl", "{\"inputs\":\"q\",\"targets\":[\"x\"],\"target\":\"z\"}",
     ":\nq\n\n### Response:z$"},
    {"a.jsonl", "{\"prompt\":\"q\",\"response\":\"z\"}", "qz$"},
    {"a.jsonl", "{\"prompt\":\"q\",\"answer\":\"z\"}", "qz$"},
    {"a.jsonl", "{\"problem\":\"q\",\"solution\":\"z\"}", ":\nq\n\n### Response:z$"},
    {"a.jsonl", "{\"instruction\":\"q\",\"input\":\"i\",\"response\":\"z\"}",
     "### Input:\ni\n\n### Response:z$"},
    {"a.jsonl", "{\"instruction\":\"q\",\"context\":\"i\",\"response\":\"z\"}",
     "### Input:\ni\n\n### Response:z$"},
    {"a.jsonl", "{\"context\":\"i\",\"question\":\"q\",\"answer\":\"z\"}",
     "### Input:\ni\n\n### Response:z$"},
    {"a.jsonl", "{\"prompt\":\"q\",\"context\":\"i\",\"response\":\"z\"}",
     "### Input:\ni\n\n### Response:z$"},
    {"a.jsonl", "{\"system_prompt\":\"s\",\"question\":\"q\",\"response\":\"z\"}",
     "s\n\n### Instruction:\nq\n"},
    {"a.jsonl", "{\"system_message\":\"s\",\"question\":\"q\",\"response\":\"z\"}",
     "s\n\n### Instruction:\nq\n"},
    {"a.jsonl", "{\"article\":\"q\",\"highlights\":\"z\"}", ":\nq\n\n### Response:z$"},
    {"a.jsonl", "{\"dialogue\":\"q\",\"summary\":\"z\"}", ":\nq\n\n### Response:z$"},
    {"a.jsonl", "{\"user\":\"q\",\"assistant\":\"z\"}", ":\nq\n\n### Response:z$"},
    /* C2 of column_hint.h and M3 of row_members.h */
    {"a.jsonl", "{\"Question: \":\"q\",\"The_Answer\":\"y\",\"Answer\":\"z\"}",
     ":\nq\n\n### Response:z$"},
    {"a.csv", "Instruction,Response,Category\nq,z,c\n", ":\nq\n\n### Response:z$"},
    {"a b.csv", "Prompt,Completion\nq,z\n", "qz$"},
    {"a.jsonl", "{\"content\":\"q\",\"id\":1}", "q$"},
    {"a.csv", "Body\nq\n", "q$"},
    {"a.jsonl",
     "{\"conversation\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":"
     "\"z\"}]}",
     "user\nq<|im_end|>\n<|im_start|>assistant\nz<"},
    {"a.jsonl",
     "{\"conversation\":[{\"from\":\"human\",\"value\":\"q\"},{\"from\":\"gpt\",\"value\":\"z\"}]}",
     "user\nq<|im_end|>\n<|im_start|>assistant\nz<"},
    {"a.jsonl",
     "{\"Dialogue\":[{\"speaker\":\"user\",\"text\":\"q\"},{\"speaker\":\"assistant\","
     "\"text\":\"z\"}]}",
     "user\nq<|im_end|>\n<|im_start|>assistant\nz<"},
    /* V2 of conversation.h */
    {"a.jsonl", "{\"conversation\":[{\"input\":\"q\",\"output\":\"z\"}],\"source\":\"s\"}",
     "user\nq<|im_end|>\n<|im_start|>assistant\nz<"},
    {"a.json", "{\n \"question\": \"q\",\n \"answer\": \"z\"\n}", ":\nq\n\n### Response:z$"},
    {"a.json", "[{\"input_text\":\"q\",\"target_text\":\"z\"}]", ":\nq\n\n### Response:z$"},
    {"a.jsonl",
     "{\"dialog\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"z\"}"
     "]}",
     "user\nq<|im_end|>\n<|im_start|>assistant\nz<"},
};

/* Each "    KEY: NAME" of the hint, as YAML reads it. */
static void paste(struct pl_columns *c, const char *hint) {
    for (int i = 0; i < PL_COLUMN_COUNT; i++) {
        const char *line = strstr(hint, textf("\n    %s: ", pl_column_key((enum pl_column)i)));
        if (!line) continue;
        line = strchr(line, ':') + 2;
        const char quote = *line == '"';
        c->name[i] = strndup(line + quote, strcspn(line + quote, quote ? "\"" : "\n"));
        ck_assert_ptr_nonnull(c->name[i]);
    }
}

static void expect_sample(struct fixture *f, const char *shows, const char *hint) {
    struct pl_sample s = {0};
    char buf[2048];
    pl_err err = fixture_open(f);
    ck_assert_msg(err == PL_ERR_OK, "%s; after the hint: %s", f->d.message, hint);
    ck_assert_int_eq(pl_data_sample(f->data, 0, &s, &f->d), PL_ERR_OK);
    ck_assert_msg(strstr(fixture_show(&s, false, buf), shows), "%s; after the hint: %s", buf, hint);
    pl_sample_finish(&s);
}

/* C1 of column_hint.h */
START_TEST(the_lines_of_the_hint_read_the_file) {
    struct fixture f;
    char hint[512];
    fixture_start(&f, PL_FORMAT_AUTO);
    snprintf(f.path, sizeof f.path, "%s/%s", dir, rows[_i].file);
    file_write(f.path, rows[_i].text);
    ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_FIELD);
    snprintf(hint, sizeof hint, "%s", pl_diag_hint_text(&f.d));
    const bool quoted = strchr(rows[_i].file, ' ');
    ck_assert_msg(strstr(hint, textf(quoted ? "\n  - path: \"%s\"\n" : "\n  - path: %s\n", f.path)),
                  "%s", hint);
    paste(&f.set.columns, hint);
    expect_sample(&f, rows[_i].shows, hint);
    for (int i = 0; i < PL_COLUMN_COUNT; i++)
        free(f.set.columns.name[i]);
    fixture_finish(&f);
}
END_TEST

static const struct {
    const char *file, *text, *shows;
    uint32_t format;
} commands[] = {
    {"a.jsonl", "{\"dialog\":[\"q\",\"z\"]}", "user\nq<|im_end|>\n<|im_start|>assistant\nz<",
     PL_FORMAT_AUTO},
    {"a.json", "[{\"dialog\":[\"q\",\"z\"]}]", "user\nq<|im_end|>\n<|im_start|>assistant\nz<",
     PL_FORMAT_AUTO},
    {"a.jsonl",
     "{\"messages\":\"[{\\\"role\\\":\\\"user\\\",\\\"content\\\":\\\"q\\\"},{\\\"role\\\":"
     "\\\"assistant\\\",\\\"content\\\":\\\"z\\\"}]\"}",
     "user\nq<|im_end|>\n<|im_start|>assistant\nz<", PL_FORMAT_AUTO},
    {"a.csv", "messages\n\"[{'role':'user','content':'q'},{'role':'assistant','content':'z'}]\"\n",
     "user\nq<|im_end|>\n<|im_start|>assistant\nz<", PL_FORMAT_AUTO},
    {"a.tsv",
     "id\tmessages\n1\t\"[{'role':'user','content':'q'},{'role':'assistant','content':'z'}]\"\n",
     "user\nq<|im_end|>\n<|im_start|>assistant\nz<", PL_FORMAT_AUTO},
    {"a.jsonl", "{\"row_idx\":0,\"row\":{\"text\":\"qz\"},\"truncated_cells\":[]}", "qz$",
     PL_FORMAT_AUTO},
    {"a.jsonl",
     "{\"id\":1,\"data\":{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":"
     "\"assistant\",\"content\":\"z\"}]}}",
     "user\nq<|im_end|>\n<|im_start|>assistant\nz<", PL_FORMAT_AUTO},
};

/* W2 of row_command.h. The command of the hint writes rows.jsonl in the directory where it
 * runs. */
START_TEST(the_command_of_the_hint_writes_rows) {
    struct fixture f;
    char hint[512];
    if (system("python3 -c pass 2>/dev/null") != 0) return;
    fixture_start(&f, commands[_i].format);
    snprintf(f.path, sizeof f.path, "%s/%s", dir, commands[_i].file);
    file_write(f.path, commands[_i].text);
    ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_FIELD);
    snprintf(hint, sizeof hint, "%s", pl_diag_hint_text(&f.d));
    const char *command = strstr(hint, "python3 -c");
    ck_assert_msg(command != NULL, "%s", hint);
    ck_assert_int_eq(system(textf("cd %s && %s", dir, command)), 0);
    snprintf(f.path, sizeof f.path, "%s/rows.jsonl", dir);
    expect_sample(&f, commands[_i].shows, hint);
    fixture_finish(&f);
}
END_TEST

/* Rows of SQuAD and of its kin: after the command they have known columns. */
static const char *const lists_of_answers[] = {
    "{\"context\":\"i\",\"question\":\"q\",\"answers\":{\"text\":[\"z\"],\"answer_start\":[1]}}",
    "{\"context\":\"i\",\"question\":\"q\",\"answers\":[\"z\",\"y\"]}",
};

START_TEST(the_first_of_several_answers_is_read) {
    struct fixture f;
    char hint[512];
    if (system("python3 -c pass 2>/dev/null") != 0) return;
    fixture_start(&f, PL_FORMAT_AUTO);
    snprintf(f.path, sizeof f.path, "%s/a.jsonl", dir);
    file_write(f.path, lists_of_answers[_i]);
    for (int round = 0; round < 2; round++) {
        ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_FIELD);
        snprintf(hint, sizeof hint, "%s", pl_diag_hint_text(&f.d));
        const char *command = strstr(hint, "python3 -c");
        ck_assert_msg(round || command, "%s", hint);
        if (command) ck_assert_int_eq(system(textf("cd %s && %s", dir, command)), 0);
        snprintf(f.path, sizeof f.path, "%s/rows.jsonl", dir);
    }
    paste(&f.set.columns, hint);
    expect_sample(&f, "### Input:\ni\n\n### Response:z$", hint);
    for (int i = 0; i < PL_COLUMN_COUNT; i++)
        free(f.set.columns.name[i]);
    fixture_finish(&f);
}
END_TEST

static const struct {
    const char *text, *says;
} others[] = {
    {"{\"alpha\":\"a\",\"beta\":\"b\"}", "formats by their keys"},
    {"{\"question\":\"q\",\"chosen\":\"a\",\"rejected\":\"b\"}", "preference data"},
    {"{\"prompt\":\"q\",\"chosen\":\"a\",\"rejected\":\"b\"}", "preference data"},
    {"{\"question\":1,\"answer\":2}", "formats by their keys"},
};

/* C1 of column_hint.h */
START_TEST(rows_that_no_line_reads_get_no_lines) {
    struct fixture f;
    fixture_start(&f, PL_FORMAT_AUTO);
    snprintf(f.path, sizeof f.path, "%s/a.jsonl", dir);
    file_write(f.path, others[_i].text);
    ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_FIELD);
    ck_assert_msg(strstr(pl_diag_hint_text(&f.d), others[_i].says), "%s", pl_diag_hint_text(&f.d));
    fixture_finish(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("column hint");
    TCase *t = tcase_create("column hint");
    tcase_add_checked_fixture(t, make, unmake);
    tcase_add_loop_test(t, the_lines_of_the_hint_read_the_file, 0, COUNT(rows));
    tcase_add_loop_test(t, the_command_of_the_hint_writes_rows, 0, COUNT(commands));
    tcase_add_loop_test(t, the_first_of_several_answers_is_read, 0, COUNT(lists_of_answers));
    tcase_add_loop_test(t, rows_that_no_line_reads_get_no_lines, 0, COUNT(others));
    suite_add_tcase(suite, t);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
