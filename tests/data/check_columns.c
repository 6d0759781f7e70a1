/* check_columns.c - rows of other shapes, read by the names that an entry gives their columns.
 *
 * The rows are hand-made, in the shape of data sets that many people use; docs/data.md has the same
 * table. */
#include "estimator/config/job_text.h"
#include "tests/data/fixture.h"

#define PLAIN                                                                                      \
    "Below is an instruction that describes a task. Write a response that appropriately "          \
    "completes the request.\n\n### Instruction:\nq\n\n### Response:"
#define PAIRED                                                                                     \
    "Below is an instruction that describes a task, paired with an input that provides further "   \
    "context. Write a response that appropriately completes the request.\n\n### Instruction:\nq"   \
    "\n\n### Input:\nc\n\n### Response:"
#define TALK                                                                                       \
    "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n<|im_start|>user\nr"       \
    "<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
#define BY_INPUT "prompt_format: \"{q}: {i}. \"\nno_input_format: \"{q}? \"\n"
#define TRAINED  ".a<|im_end|>.b<|im_end|>."

static const struct {
    const char *name, *yaml, *row, *text, *trained;
    bool shown; /* in docs/data.md */
} shapes[] = {
    {"gsm8k", "field_instruction: question\nfield_output: answer\n",
     "{\"question\":\"q\",\"answer\":\"a\"}", PLAIN "a$", ".a$", true},
    {"gsm8k, prompted", "prompt_format: \"Q: {question}\\nA: \"\nfield_output: answer\n",
     "{\"question\":\"q\",\"answer\":\"a\"}", "Q: q\nA: a$", ".a$", true},
    {"dolly-15k", "field_input: context\nfield_output: response\n",
     "{\"instruction\":\"q\",\"context\":\"c\",\"response\":\"a\",\"category\":\"open_qa\"}",
     PAIRED "a$", ".a$", true},
    {"OpenOrca", "field_instruction: question\nfield_output: response\n",
     "{\"id\":\"niv.1\",\"system_prompt\":\"s\",\"question\":\"q\",\"response\":\"a\"}",
     "s\n\n### Instruction:\nq\n\n### Response:a$", ".a$", true},
    {"orca-math", "field_instruction: question\nfield_output: answer\n",
     "{\"answer\":\"a\",\"question\":\"q\"}", PLAIN "a$", ".a$", true},
    {"Capybara", "field_messages: conversation\n",
     "{\"source\":\"x\",\"conversation\":[{\"input\":\"q\",\"output\":\"a\"},{\"output\":\"b\","
     "\"input\":\"r\"}]}",
     TALK, TRAINED, true},
    {"lmsys-chat-1m", "field_messages: conversation\n",
     "{\"conversation_id\":\"1\",\"model\":\"m\",\"conversation\":[{\"content\":\"q\",\"role\":"
     "\"user\"},{\"content\":\"a\",\"role\":\"assistant\"},{\"content\":\"r\",\"role\":\"user\"},"
     "{\"content\":\"b\",\"role\":\"assistant\"}],\"turn\":2,\"language\":\"English\","
     "\"openai_moderation\":[],\"redacted\":false}",
     TALK, TRAINED, true},
    {"ultrachat_200k", "",
     "{\"prompt\":\"q\",\"prompt_id\":\"1\",\"messages\":[{\"content\":\"q\",\"role\":\"user\"},"
     "{\"content\":\"a\",\"role\":\"assistant\"},{\"content\":\"r\",\"role\":\"user\"},"
     "{\"content\":\"b\",\"role\":\"assistant\"}]}",
     TALK, TRAINED, true},
    {"as axolotl spells it",
     "field_messages: dialog\nmessage_property_mappings: {role: speaker, content: said}\n"
     "roles: {user: [person, asker], assistant: [bot]}\n",
     "{\"dialog\":[{\"speaker\":\"asker\",\"said\":\"q\"},{\"speaker\":\"bot\",\"said\":\"a\"},"
     "{\"speaker\":\"person\",\"said\":\"r\"},{\"said\":\"b\",\"speaker\":\"assistant\"}]}",
     TALK, TRAINED, false},
    {"as LLaMA-Factory spells it",
     "columns: {messages: dialog, system: rules}\n"
     "tags: {role_tag: speaker, content_tag: said, user_tag: H, assistant_tag: A, system_tag: S}\n",
     "{\"rules\":\"\",\"dialog\":[{\"speaker\":\"H\",\"said\":\"q\"},{\"speaker\":\"A\",\"said\":"
     "\"a\"},{\"speaker\":\"H\",\"said\":\"r\"},{\"said\":\"b\",\"speaker\":\"A\"}]}",
     TALK, TRAINED, false},
    {"a system column of another name", "field_system: rules\n",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":"
     "\"a\"}],\"rules\":\"s\"}",
     "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"
     "a<|im_end|>\n",
     ".a<|im_end|>.", false},
    {"columns of LLaMA-Factory", "columns: {prompt: ask, query: more, response: say}\n",
     "{\"ask\":\"q\",\"more\":\"c\",\"say\":\"a\"}", PAIRED "a$", ".a$", false},
    {"a text of another name", "field_text: content\n", "{\"content\":\"ab\"}", "ab$", "ab$",
     false},
    {"the same as axolotl spells it", "field: content\n", "{\"content\":\"ab\"}", "ab$", "ab$",
     false},
    {"a pair of other names", "field_prompt: ask\nfield_completion: say\n",
     "{\"say\":\"a\",\"ask\":\"q\"}", "qa$", ".a$", false},
    /* P1 of row_shape.h */
    {"braces and numbers", "prompt_format: \"{{{x}}} {n}{x}\"\n",
     "{\"n\":7,\"x\":\"q\",\"output\":\"a\",\"context\":\"c\"}", "{q} 7qa$", ".a$", false},
    {"a row with an input", BY_INPUT, "{\"q\":\"q\",\"i\":\"c\",\"output\":\"a\"}", "q: c. a$",
     ".a$", false},
    /* P2 of row_shape.h */
    {"a row with an empty input", BY_INPUT, "{\"q\":\"q\",\"i\":\"\",\"output\":\"a\"}", "q? a$",
     ".a$", false},
    {"a row whose input is null", BY_INPUT, "{\"i\":null,\"q\":\"q\",\"output\":\"a\"}", "q? a$",
     ".a$", false},
    {"a row without an input", BY_INPUT, "{\"q\":\"q\",\"output\":\"a\"}", "q? a$", ".a$", false},
    {"a number is an input", BY_INPUT, "{\"q\":\"q\",\"i\":0,\"output\":\"a\"}", "q: 0. a$", ".a$",
     false},
    {"a question and its answer",
     "question_format: \"{ask}, {more}\"\nno_input_format: \"{ask}\"\nfield_output: say\n",
     "{\"say\":\"a\",\"more\":\"\",\"ask\":\"q\"}",
     "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n", ".a<|im_end|>.", false},
    {"a question after a system text", "question_format: \"{q}\\n{i}\"\nfield_system: rules\n",
     "{\"q\":\"q\",\"i\":\"c\",\"rules\":\"s\",\"output\":\"a\"}",
     "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nq\nc<|im_end|>\n<|im_start|>assistant\n"
     "a<|im_end|>\n",
     ".a<|im_end|>.", false},
    {"a column without a value", "prompt_format: \"{x}{y}:\"\n",
     "{\"x\":\"q\",\"y\":null,\"output\":\"a\"}", "q:a$", ".a$", false},
};

/* A job whose one data set is f->path, with the lines of an entry. */
static pl_err read_entry(struct fixture *f, const char *format, const char *lines) {
    struct pl_text yaml = {0};
    pl_text_addf(&yaml,
                 "mode: full\nmodel: x\ntokenizer: byte\nchat_template: chatml\n"
                 "max_seq_length: 8192\ndatasets:\n- path: %s\n  format: %s\n",
                 f->path, format);
    for (const char *line = lines; *line; line = strchr(line, '\n') + 1)
        pl_text_addf(&yaml, "  %.*s\n", (int)strcspn(line, "\n"), line);
    pl_err err =
        pl_job_parse(&f->job, "job.yaml", pl_text_str(&yaml), yaml.len, NULL, 0, NULL, &f->d);
    pl_text_finish(&yaml);
    return err;
}

static pl_err open_entry(struct fixture *f, const char *format, const char *lines,
                         const char *row) {
    fixture_start(f, PL_FORMAT_AUTO);
    fixture_write(f, row, strlen(row));
    pl_err err = read_entry(f, format, lines);
    if (err != PL_ERR_OK) return err;
    return pl_data_open(&f->job, &f->model, &f->job.datasets, &f->notes, &f->data, &f->d);
}

static void close_entry(struct fixture *f) {
    fixture_finish(f);
    pl_job_finish(&f->job);
}

START_TEST(a_row_of_another_shape_is_read_by_the_names_of_its_columns) {
    struct fixture f;
    struct pl_sample s = {0};
    char buf[2048];
    pl_err err = open_entry(&f, "auto", shapes[_i].yaml, shapes[_i].row);
    ck_assert_msg(err == PL_ERR_OK, "%s: %s", shapes[_i].name, f.d.message);
    ck_assert_int_eq(pl_data_sample(f.data, 0, &s, &f.d), PL_ERR_OK);
    ck_assert_str_eq(fixture_show(&s, false, buf), shapes[_i].text);
    ck_assert_str_eq(fixture_show(&s, true, buf), shapes[_i].trained);
    pl_sample_finish(&s);
    close_entry(&f);
}
END_TEST

static const struct {
    const char *format, *yaml, *row;
    pl_err err;
    const char *says, *hint;
} refusals[] = {
    {"text", "field_instruction: q\n", "{\"text\":\"a\"}", PL_ERR_CONFIG_CONFLICT,
     "`field_instruction` names a column that format text does not have", "field_text"},
    {"auto", "field_instruction: q\nfield_messages: m\n", "{\"q\":\"a\"}", PL_ERR_CONFIG_CONFLICT,
     "no format has the columns of both `field_instruction` and `field_messages`", ""},
    {"auto", "field_chosen: q\n", "{\"text\":\"a\"}", PL_ERR_CONFIG_CONFLICT,
     "no format of this `stage` has the column of `field_chosen`", ""},
    {"auto", "prompt_format: \"{q\"\n", "{\"q\":\"a\",\"output\":\"b\"}", PL_ERR_CONFIG_RANGE,
     "`prompt_format` has a brace that is not closed", "{{"},
    {"auto", "prompt_format: \"q}\"\n", "{\"q\":\"a\",\"output\":\"b\"}", PL_ERR_CONFIG_RANGE,
     "`prompt_format` has a brace that is not open", "{{"},
    {"auto", "prompt_format: \"{}\"\n", "{\"q\":\"a\",\"output\":\"b\"}", PL_ERR_CONFIG_RANGE,
     "`prompt_format` has a brace without a column", ""},
    {"alpaca", "prompt_format: \"{q}\"\n", "{\"q\":\"a\",\"output\":\"b\"}", PL_ERR_CONFIG_CONFLICT,
     "`prompt_format` and `format: alpaca`", "remove"},
    {"auto", "prompt_format: \"{q}\"\nfield_input: q\n", "{\"q\":\"a\",\"output\":\"b\"}",
     PL_ERR_CONFIG_CONFLICT, "`field_input` names a column that `prompt_format` does not have",
     "field_output"},
    {"auto", "question_format: \"{q\"\n", "{\"q\":\"a\",\"output\":\"b\"}", PL_ERR_CONFIG_RANGE,
     "`question_format` has a brace that is not closed", "{{"},
    {"auto", "prompt_format: \"{q}\"\nno_input_format: \"q}\"\n", "{\"q\":\"a\",\"output\":\"b\"}",
     PL_ERR_CONFIG_RANGE, "`no_input_format` has a brace that is not open", "{{"},
    {"auto", "no_input_format: \"{q}\"\n", "{\"q\":\"a\",\"output\":\"b\"}", PL_ERR_CONFIG_CONFLICT,
     "no format of this `stage` has the column of `no_input_format`", ""},
    {"auto", "prompt_format: \"{q}\"\nquestion_format: \"{q}\"\n", "{\"q\":\"a\",\"output\":\"b\"}",
     PL_ERR_CONFIG_CONFLICT, "`question_format` names a column that `prompt_format` does not have",
     ""},
    {"messages", "question_format: \"{q}\"\n", "{\"q\":\"a\",\"output\":\"b\"}",
     PL_ERR_CONFIG_CONFLICT, "`question_format` and `format: messages`", "remove"},
    {"auto", BY_INPUT, "{\"i\":\"a\",\"output\":\"b\"}", PL_ERR_DATA_FIELD, "key `q` is missing",
     ""},
    {"auto", "prompt_format: \"{q}\"\n", "{\"Q\":\"a\",\"output\":\"b\"}", PL_ERR_DATA_FIELD,
     "key `q` is missing", ""},
    {"auto", "prompt_format: \"{q}\"\n", "{\"q\":[1],\"output\":\"b\"}", PL_ERR_DATA_FIELD,
     "`q` is an array, expected a string or a number", ""},
    {"auto", "field_instruction: question\nfield_output: answr\n",
     "{\"question\":\"a\",\"answer\":\"b\"}", PL_ERR_DATA_FIELD,
     "key `answr` is missing; the nearest is `answer`", ""},
    {"auto", "field_messages: m\nmessage_field_role: who\n",
     "{\"m\":[{\"role\":\"user\",\"content\":\"q\"}]}", PL_ERR_DATA_FIELD, "message 0 has no `who`",
     ""},
};

/* P1 of row_shape.h */
START_TEST(a_column_that_is_not_there_is_refused_by_name) {
    struct fixture f;
    pl_err err = open_entry(&f, refusals[_i].format, refusals[_i].yaml, refusals[_i].row);
    ck_assert_msg(err == refusals[_i].err, "%s: error %d: %s", refusals[_i].yaml, (int)err,
                  f.d.message);
    ck_assert_msg(strstr(f.d.message, refusals[_i].says), "%s", f.d.message);
    ck_assert_msg(strstr(pl_diag_hint_text(&f.d), refusals[_i].hint), "%s",
                  pl_diag_hint_text(&f.d));
    if (err != PL_ERR_DATA_FIELD) ck_assert_uint_eq(f.d.line, 7);
    close_entry(&f);
}
END_TEST

/* Two files of other shapes in one run: each row is read again by the names of its own file. */
START_TEST(files_of_a_run_have_names_of_their_own) {
    struct fixture f, g;
    struct pl_sample s = {0};
    char buf[2048];
    fixture_start(&g, PL_FORMAT_AUTO);
    fixture_write(&g, "{\"body\":\"cd\"}", 13);
    ck_assert_int_eq(open_entry(&f, "auto", "field_text: body\n", "{\"body\":\"ab\"}"), PL_ERR_OK);
    pl_data_close(&f.data);
    struct pl_dataset two[] = {f.job.datasets.items[0], PL_DATASET_DEFAULT};
    two[1].path = g.path;
    two[1].columns.name[PL_COLUMN_PROMPT_FORMAT] = (char *)(uintptr_t) "<";
    two[1].columns.name[PL_COLUMN_OUTPUT] = (char *)(uintptr_t) "body";
    const struct pl_dataset_list list = {two, 2};
    ck_assert_int_eq(pl_data_open(&f.job, &f.model, &list, NULL, &f.data, &f.d), PL_ERR_OK);
    for (int turn = 0; turn < 2; turn++) {
        ck_assert_int_eq(pl_data_sample(f.data, 0, &s, &f.d), PL_ERR_OK);
        ck_assert_str_eq(fixture_show(&s, true, buf), "ab$");
        ck_assert_int_eq(pl_data_sample(f.data, 1, &s, &f.d), PL_ERR_OK);
        ck_assert_str_eq(fixture_show(&s, true, buf), ".cd$");
    }
    pl_sample_finish(&s);
    fixture_finish(&g);
    close_entry(&f);
}
END_TEST

/* The table of docs/data.md is this one. */
START_TEST(the_page_shows_the_lines_that_were_tested) {
    struct pl_text page = {0};
    char buf[4096];
    FILE *in = fopen(PAGE, "r");
    ck_assert_ptr_nonnull(in);
    for (size_t n; (n = fread(buf, 1, sizeof buf, in)) > 0;)
        pl_text_addn(&page, buf, n);
    fclose(in);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct pl_text line = {0};
        if (!shapes[i].shown) continue;
        pl_text_addf(&line, "| %s |", shapes[i].name);
        ck_assert_msg(strstr(pl_text_str(&page), pl_text_str(&line)), "%s", pl_text_str(&line));
        for (const char *y = shapes[i].yaml; *y; y = strchr(y, '\n') + 1) {
            line.len = 0;
            pl_text_addf(&line, "`%.*s`", (int)strcspn(y, "\n"), y);
            ck_assert_msg(strstr(pl_text_str(&page), pl_text_str(&line)), "%s", pl_text_str(&line));
        }
        pl_text_finish(&line);
    }
    pl_text_finish(&page);
}
END_TEST

#define ROWS(a) ((int)(sizeof(a) / sizeof *(a)))

int main(void) {
    Suite *suite = suite_create("columns");
    TCase *t = tcase_create("shapes");
    tcase_add_loop_test(t, a_row_of_another_shape_is_read_by_the_names_of_its_columns, 0,
                        ROWS(shapes));
    tcase_add_loop_test(t, a_column_that_is_not_there_is_refused_by_name, 0, ROWS(refusals));
    tcase_add_test(t, files_of_a_run_have_names_of_their_own);
    tcase_add_test(t, the_page_shows_the_lines_that_were_tested);
    suite_add_tcase(suite, t);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
