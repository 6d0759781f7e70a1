/* check_tokenize_chat.c - `plimsoll tokenize --chat-template NAME`: lines in, texts out, in order.
 */
#include "tests/support/child.h"
#include "tests/support/hang.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* `plimsoll tokenize words` with stdin from a file. */
static struct outcome tokenize(const char *words, const char *file) {
    const char *command = textf("\"$PLIMSOLL\" tokenize %s <\"%s\"", words, file);
    return child_run((const char *const[]){"sh", "-c", command, NULL}, NULL, HANG_SECONDS);
}

static struct outcome tokenize_text(const char *words, const char *input) {
    char dir[SCRATCH_PATH];
    scratch_make(dir);
    const char *path = in_dir(dir, "input");
    file_write(path, input);
    struct outcome o = tokenize(words, path);
    scratch_remove(dir);
    return o;
}

/* The next line of *text, cut off; NULL at the end. */
static char *next_line(char **text) {
    char *line = strsep(text, "\n");
    return line && *line ? line : NULL;
}

static const char *const names[] = {"chatml", "llama2", "qwen3_nothink", "smollm3", "zephyr"};

START_TEST(every_line_has_its_answer_in_order) {
    const char *rows = textf("%s/tests/data/chat/%s.jsonl", getenv("SOURCE_ROOT"), names[_i]);
    struct outcome o =
        tokenize(textf("--chat-template %s --chat-date 2025-01-02 --json", names[_i]), rows);
    ck_assert_msg(o.status == 0, "%s", o.err);
    ck_assert_str_eq(o.err, "");
    char *want_text = file_read(rows, NULL), *want_at = want_text, *got_at = o.out;
    int n = 0;
    for (char *want; (want = next_line(&want_at)); n++) {
        char *got = next_line(&got_at);
        ck_assert_ptr_nonnull(got);
        json_t *w = json_loads(want, 0, NULL), *g = json_loads(got, 0, NULL);
        ck_assert(w && g);
        const json_t *text = json_object_get(w, "rendered"), *error = json_object_get(g, "error");
        if (json_is_null(text))
            ck_assert_str_eq(json_string_value(json_object_get(error, "code")), "DATA_TEMPLATE");
        else
            ck_assert_msg(json_equal(text, json_object_get(g, "rendered")), "%s", got);
        json_decref(w);
        json_decref(g);
    }
    ck_assert_int_eq(n, 18);
    ck_assert_ptr_null(next_line(&got_at));
    free(want_text);
    outcome_finish(&o);
}
END_TEST

#define QUESTION "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]"

static const struct {
    const char *words, *input;
    int status;
    const char *out, *err;
} cases[] = {
    {"--chat-template zephyr", QUESTION ",\"eos_token\":\"<e>\"}", 0, "<|user|>\nq<e>\n\n", ""},
    {"--chat-template mistral --json", QUESTION ",\"bos_token\":\"<b>\"}", 0,
     "{\"rendered\":\"<b>[INST] q[/INST]\"}\n", ""},
    {"--chat-template qwen3 --json",
     QUESTION ",\"add_generation_prompt\":true,\"enable_thinking\":false}", 0,
     "<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n\"}", ""},
    {"--chat-template mistral_small3 --json", QUESTION ",\"date\":\"2024-02-29\"}", 0,
     "The current date is 2024-02-29.", ""},
    {"--chat-template chatml --json", QUESTION ",\"tools\":null}", 0, "rendered", ""},
    {"--chat-template auto --tokenizer \"$SOURCE_ROOT\"/tests/data/tokenizer/llama3_style",
     QUESTION "}", 0, "<|begin_of_text|><|start_header_id|>user", ""},
    {"--chat-template chatlm", QUESTION "}", 2, "", "known templates: chatml, llama2"},
    {"--chat-template auto", QUESTION "}", 5, "", "auto needs --tokenizer"},
    {"--chat-template auto --tokenizer byte", QUESTION "}", 5, "", "brings no chat template"},
    {"--chat-template smollm3 --chat-date 2023-02-29", QUESTION "}", 2, "", "is not a day"},
    {"--chat-template chatml --json", QUESTION "}\n{\"messages\":[]}", 5, "\"line\":2", "stdin:2:"},
    {"--chat-template chatml", QUESTION ",\"tools\":[{}]}", 5, "", "`tools` is not supported"},
    {"--chat-template chatml", "{\"message\":1}", 5, "", "key `messages` is missing"},
    {"--chat-template chatml", QUESTION ",\"add_generation_prompt\":1}", 5, "",
     "a number where true or false"},
    {"--chat-template chatml", QUESTION ",\"date\":\"today\"}", 5, "", "`date` is not a day"},
    {"--chat-template llama2", "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\"}]}", 5, "",
     "stdin:1: template llama2 refuses message 0"},
};

START_TEST(options_and_failures_are_told) {
    struct outcome o = tokenize_text(cases[_i].words, cases[_i].input);
    ck_assert_msg(o.status == cases[_i].status, "%s: %d %s", cases[_i].words, o.status, o.err);
    ck_assert_msg(strstr(o.out, cases[_i].out) != NULL, "%s: %s", cases[_i].words, o.out);
    ck_assert_msg(strstr(o.err, cases[_i].err) != NULL, "%s: %s", cases[_i].words, o.err);
    outcome_finish(&o);
}
END_TEST

/* A program of one's own: what a line may have besides messages, and what is said of failures. */
#define PROGRAM                                                                                    \
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"              \
    "{% if tools %}{{ tools | length }} tools{% endif %}"                                          \
    "{% if documents %}{{ documents[0].title }}{% endif %}"                                        \
    "{% if mood is defined %}{{ mood }}{% endif %}"                                                \
    "{% if day %}{{ strftime_now('%d.%m.%Y') }}{% endif %}"                                        \
    "{% if add_generation_prompt %}[assistant]{% endif %}"                                         \
    "{% if stop %}{{ raise_exception('stopped: ' ~ stop) }}{% endif %}"

static const struct {
    const char *words, *input;
    int status;
    const char *out, *err;
} programs[] = {
    {"", QUESTION "}", 0, "[user]q\n", ""},
    {"", QUESTION ",\"add_generation_prompt\":true}", 0, "[user]q[assistant]\n", ""},
    {"", QUESTION ",\"add_generation_prompt\":false}", 0, "[user]q\n", ""},
    {"", QUESTION ",\"tools\":[{},{}],\"documents\":[{\"title\":\"T\"}]}", 0, "[user]q2 toolsT\n",
     ""},
    {"", QUESTION ",\"mood\":\"good\"}\n" QUESTION "}", 0, "[user]qgood\n[user]q\n", ""},
    {"", QUESTION ",\"day\":1,\"date\":\"2024-02-29\"}", 0, "[user]q29.02.2024\n", ""},
    {"--chat-date 2023-12-31", QUESTION ",\"day\":1}", 0, "[user]q31.12.2023\n", ""},
    {"--chat-date 2023-12-31", QUESTION ",\"day\":1,\"date\":\"2024-02-29\"}", 0,
     "[user]q29.02.2024\n", ""},
    {"--chat-date 2023-12-31", QUESTION ",\"day\":1,\"date\":null}", 0, "[user]q31.12.2023\n", ""},
    {"", QUESTION ",\"date\":\"2023-02-29\"}", 5, "", "`date` is not a day such as 2025-01-31"},
    {"", QUESTION ",\"date\":20250131}", 5, "", "`date` is not a day"},
    {"", QUESTION ",\"date\":\"2025-01-31 and more\"}", 5, "", "`date` is not a day"},
    {"", "{}", 5, "", "stdin:1: key `messages` is missing"},
    {"", "[]", 5, "", "stdin:1: key `messages` is missing"},
    {"", QUESTION, 5, "", "stdin:1:"},
    {"", QUESTION "} x", 5, "", "stdin:1:"},
    {"", QUESTION ",\"stop\":\"here\"}", 5, "", "stopped: here"},
    {"--json", QUESTION ",\"stop\":\"here\"}\n" QUESTION "}", 0, "{\"rendered\":\"[user]q\"}\n",
     ""}, /* a refusal is an answer, and the next line has its own */
    {"--tokenizer byte", QUESTION "}", 0, "[user]q\n", ""},
    {"--tokenizer \"$SOURCE_ROOT\"/tests/data/tokenizer/llama3_style", QUESTION "}", 0,
     "<|begin_of_text|>[user]q\n", ""},
};

START_TEST(a_program_gets_what_its_line_has) {
    char dir[SCRATCH_PATH];
    scratch_make(dir);
    file_write(in_dir(dir, "own.jinja"), PROGRAM);
    const char *words = textf("--chat-template \"%s/own.jinja\" %s", dir, programs[_i].words);
    struct outcome o = tokenize_text(words, programs[_i].input);
    ck_assert_msg(o.status == programs[_i].status, "%s: %d %s", programs[_i].input, o.status,
                  o.err);
    if (programs[_i].status == 0 && strncmp(programs[_i].words, "--json", 6) != 0)
        ck_assert_str_eq(o.out, programs[_i].out);
    else
        ck_assert_msg(strstr(o.out, programs[_i].out) != NULL, "%s", o.out);
    ck_assert_msg(strstr(o.err, programs[_i].err) != NULL, "%s: %s", programs[_i].input, o.err);
    outcome_finish(&o);
    scratch_remove(dir);
}
END_TEST

static const struct {
    const char *program, *err; /* NULL: there is no file */
} no_programs[] = {
    {NULL, "own.jinja"},
    {"{{ messages", "own.jinja:1:"},
    {"a\n{% if %}", "own.jinja:2:"},
    {"\xFF", "UTF-8"},
};

START_TEST(a_program_that_cannot_be_read_is_named) {
    char dir[SCRATCH_PATH];
    scratch_make(dir);
    if (no_programs[_i].program) file_write(in_dir(dir, "own.jinja"), no_programs[_i].program);
    struct outcome o = tokenize_text(textf("--chat-template \"%s/own.jinja\"", dir), QUESTION "}");
    ck_assert_int_eq(o.status, 5);
    ck_assert_str_eq(o.out, "");
    ck_assert_msg(strstr(o.err, no_programs[_i].err) != NULL, "%s", o.err);
    ck_assert_msg(strstr(o.err, "DATA_TEMPLATE") != NULL, "%s", o.err);
    outcome_finish(&o);
    scratch_remove(dir);
}
END_TEST

#define N(a) ((int)(sizeof(a) / sizeof *(a)))

int main(void) {
    Suite *suite = suite_create("tokenize_chat");
    TCase *t = tcase_create("lines");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, every_line_has_its_answer_in_order, 0, N(names));
    tcase_add_loop_test(t, options_and_failures_are_told, 0, N(cases));
    tcase_add_loop_test(t, a_program_gets_what_its_line_has, 0, N(programs));
    tcase_add_loop_test(t, a_program_that_cannot_be_read_is_named, 0, N(no_programs));
    suite_add_tcase(suite, t);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
