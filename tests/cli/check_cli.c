/* check_cli.c - the plimsoll binary as a user or a script sees it: exit status, streams, JSON.
 * PLIMSOLL names the binary. */
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/scratch.h"
#include "tests/support/tiny.h"
#include "tools/plimsoll/cli.h"

#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_WORDS 6
#define SECONDS   30

static const struct {
    const char *words[MAX_WORDS];
    int status;
    const char *err; /* fragment of stderr; stdout stays empty */
} failures[] = {
    {{NULL}, 2, "plimsoll: error[CONFIG_USAGE]: no command was given\nhint: run `plimsoll help`\n"},
    {{"verson"}, 2, "hint: did you mean `plimsoll version`?\n"},
    {{"version", "--jsno"}, 2, "hint: did you mean `--json`?\n"},
    {{"version", "extra"}, 2, "error[CONFIG_USAGE]"},
    {{"--color", "purple"}, 2, "--color is one of"},
    {{"help", "lora_q"}, 2, "hint: did you mean `plimsoll help lora_r`?\n"},
    {{"completion"}, 2, "error[CONFIG_USAGE]"},
    {{"completion", "tcsh"}, 2, "hint: bash, zsh or fish\n"},
    {{"--color=never", "a\033[2Jb"}, 2, "`a\\x1b[2Jb`"},
    {{"a\xC2\x9B"
      "2Jb"},
     2,
     "`a\\x9b2Jb`"}, /* the same in one character of C1 */
    {{"a\x9B"
      "2Jb"},
     2,
     "a\\x9b2Jb"}, /* and as a byte that is no UTF-8 */
    {{"a\xE2\x80\xAE"
      "cba"},
     2,
     "`a\\u202ecba`"}, /* right-to-left override */
    {{"a\xE2\x81\xA6"
      "b\xD8\x9C"},
     2,
     "`a\\u2066b\\u061c`"},
    {{"\xC3\xA4\xE2\x86\x92"}, 2, "`\xC3\xA4\xE2\x86\x92`"}, /* letters and arrows stay */
};

/* C4 of cli.h. */
START_TEST(a_failure_has_its_status_and_says_so_on_stderr_alone) {
    struct outcome p = plimsoll_run(NULL, failures[_i].words);
    ck_assert_int_eq(p.status, failures[_i].status);
    ck_assert_msg(strstr(p.err, failures[_i].err), "%s", p.err);
    ck_assert_str_eq(p.out, "");
    outcome_finish(&p);
}
END_TEST

/* C2 of cli.h. */
START_TEST(a_failure_under_json_is_also_one_object_on_stdout) {
    const char *words[MAX_WORDS + 1] = {"--json"};
    memcpy(words + 1, failures[_i].words, sizeof failures[_i].words);
    struct outcome p = plimsoll_run(NULL, words);
    json_error_t error;
    json_t *root = json_loads(p.out, 0, &error); /* refuses anything after the object */
    ck_assert_msg(root != NULL, "%s in %s", error.text, p.out);
    json_t *e = json_object_get(root, "error");
    ck_assert_int_eq(json_integer_value(json_object_get(root, "schema")), 1);
    ck_assert_str_eq(json_string_value(json_object_get(e, "code")), "CONFIG_USAGE");
    ck_assert(json_is_string(json_object_get(e, "message")));
    ck_assert(json_is_string(json_object_get(e, "hint")));
    ck_assert(json_is_null(json_object_get(e, "file")));
    ck_assert_int_eq(p.status, failures[_i].status);
    ck_assert_msg(strstr(p.err, failures[_i].err), "%s", p.err);
    json_decref(root);
    outcome_finish(&p);
}
END_TEST

static const struct {
    const char *words[MAX_WORDS];
    const char *out; /* fragment of stdout; stderr stays empty */
} answers[] = {
    {{"--help"}, "Commands:"},
    {{"-h"}, "Commands:"},
    {{"help"}, "Exit status:\n  0          done"},
    {{"help", "help"}, "Examples:\n  plimsoll help"},
    {{"help", "lora_r"}, "flag     --lora-r\n"},
    {{"help", "lora_rank"}, "lora_r: LoRA rank\n\n  type     whole number\n  values   1 to 4096\n"},
    {{"help", "keys"}, "max_seq_length"},
    {{"version"}, "plimsoll "},
    {{"-V"}, "plimsoll "},
    {{"version", "--json"}, "\"schema\":1"},
    {{"completion", "bash"}, "complete -o default -F _plimsoll plimsoll"},
    {{"completion", "zsh"}, "#compdef plimsoll"},
    {{"completion", "fish"}, "complete -c plimsoll"},
    {{"completion", "zsh"}, "'--adapter=[a PEFT adapter directory]:DIR:_files'"},
    {{"completion", "fish"}, "-l adapter -r -F -d"},
};

/* C2 of cli.h. */
START_TEST(an_answer_goes_to_stdout_alone_with_status_0) {
    struct outcome p = plimsoll_run(NULL, answers[_i].words);
    ck_assert_int_eq(p.status, 0);
    ck_assert_msg(strstr(p.out, answers[_i].out), "%s", p.out);
    ck_assert_str_eq(p.err, "");
    outcome_finish(&p);
}
END_TEST

START_TEST(every_command_explains_itself_with_examples_first) {
    uint32_t n;
    const struct pl_command *commands = pl_cli_commands(&n);
    for (uint32_t i = 0; i < n; i++) {
        struct outcome by_name =
            plimsoll_run(NULL, (const char *[]){"help", commands[i].name, NULL});
        struct outcome by_flag =
            plimsoll_run(NULL, (const char *[]){commands[i].name, "--help", NULL});
        const char *examples = strstr(by_name.out, "\nExamples:\n"),
                   *usage = strstr(by_name.out, "\nUsage: plimsoll ");
        ck_assert_int_eq(by_name.status, 0);
        ck_assert_msg(examples && usage && examples < usage, "%s", by_name.out);
        ck_assert_int_eq(by_flag.status, 0);
        /* The same text, but for `help --help`, which is about everything. */
        if (strcmp(commands[i].name, "help") != 0) ck_assert_str_eq(by_name.out, by_flag.out);
        outcome_finish(&by_name);
        outcome_finish(&by_flag);
    }
}
END_TEST

START_TEST(a_full_disk_under_stdout_is_a_failure) {
    if (access("/dev/full", W_OK) != 0) return; /* Linux has it; other systems cannot fake it */
    const char *const argv[] = {"sh", "-c", "exec \"$PLIMSOLL\" help >/dev/full", NULL};
    struct outcome p = child_run(argv, NULL, SECONDS);
    ck_assert_int_eq(p.status, 1);
    ck_assert_msg(strstr(p.err, "error[RUNTIME_IO]"), "%s", p.err);
    outcome_finish(&p);
}
END_TEST

START_TEST(what_stdout_does_not_take_is_said_once) {
    if (access("/dev/full", W_OK) != 0) return;
    const char *const argv[] = {"sh", "-c", "exec \"$PLIMSOLL\" cards --json >/dev/full", NULL};
    struct outcome p = child_run(argv, NULL, SECONDS);
    const char *first = strstr(p.err, "error[RUNTIME_IO]: cannot write to stdout");
    ck_assert_int_eq(p.status, 1);
    ck_assert_msg(first && !strstr(first + 1, "error["), "%s", p.err);
    outcome_finish(&p);
}
END_TEST

START_TEST(streams_that_were_closed_are_no_file_of_the_run) {
    char dir[SCRATCH_PATH];
    scratch_make(dir);
    tiny_make(dir, &(struct tiny){0}, "max_steps: 2\n");
    const char *const argv[] = {"sh", "-c", "exec \"$PLIMSOLL\" train run.yaml <&- 2>&-", NULL};
    struct outcome p = child_run(argv, dir, SECONDS);
    ck_assert_int_eq(p.status, 0);
    json_decref(joblog_read(in_dir(dir, "out"))); /* every line is an event */
    outcome_finish(&p);
    scratch_remove(dir);
}
END_TEST

/* Without a terminal, FORCE_COLOR alone would colour the report of a failure. */
START_TEST(a_run_keeps_to_the_flags_that_are_about_its_messages) {
    char dir[SCRATCH_PATH];
    scratch_make(dir);
    tiny_make(dir, &(struct tiny){0}, "max_steps: 2\n");
    struct outcome p =
        plimsoll_run(dir, (const char *[]){"train", "run.yaml", "--probe", "--no-progress", NULL});
    ck_assert_int_eq(p.status, 0);
    ck_assert_msg(strstr(p.err, "\nprobe: 2 steps") && !strstr(p.err, "step 1/"), "%s", p.err);
    outcome_finish(&p);
    setenv("FORCE_COLOR", "1", 1);
    p = plimsoll_run(dir, (const char *[]){"train", "run.yaml", "--color", "never",
                                           "--debug-inject", "device_oom@step=1,forever", NULL});
    unsetenv("FORCE_COLOR");
    ck_assert_int_eq(p.status, 4);
    ck_assert_msg(!strchr(p.err, '\033'), "%s", p.err);
    outcome_finish(&p);
    scratch_remove(dir);
}
END_TEST

START_TEST(colour_appears_only_where_it_was_asked_for) {
    struct outcome with = plimsoll_run(NULL, (const char *[]){"--color=always", "nonsense", NULL});
    struct outcome without = plimsoll_run(NULL, (const char *[]){"nonsense", NULL});
    ck_assert_ptr_nonnull(strchr(with.err, '\033'));
    ck_assert_ptr_null(strchr(without.err, '\033'));
    outcome_finish(&with);
    outcome_finish(&without);
}
END_TEST

/* Asks the script for the words that bash would offer after `line`; *status 77 if there is no
 * bash. */
static struct outcome complete_in_bash(const char *words, const char *current) {
    static const char script[] =
        "command -v bash >/dev/null || exit 77\n"
        "exec bash -c 'source <(\"$PLIMSOLL\" completion bash) || exit 1\n"
        "COMP_WORDS=(plimsoll $1 \"$2\"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _plimsoll\n"
        "printf \"%s\\n\" \"${COMPREPLY[@]}\"' bash \"$1\" \"$2\"\n";
    return child_run((const char *[]){"sh", "-c", script, "sh", words, current, NULL}, NULL,
                     SECONDS);
}

static const struct {
    const char *words, *current, *offered; /* offered: all lines */
} completions[] = {
    {"", "ver", "verify\nversion\n"},
    {"completion", "", "bash\nzsh\nfish\n"},
    {"version", "--js", "--json\n"},
    {"version --color", "a", "auto\nalways\n"},
    {"version --color =", "n", "never\n"},
    {"--color never", "comp", "completion\n"},
    {"version --mode", "", "full\nlora\nqlora\n"},
};

START_TEST(bash_offers_commands_flags_and_choices) {
    struct outcome p = complete_in_bash(completions[_i].words, completions[_i].current);
    if (p.status != 77) {
        ck_assert_str_eq(p.err, "");
        ck_assert_str_eq(p.out, completions[_i].offered);
    }
    outcome_finish(&p);
}
END_TEST

START_TEST(every_shell_that_is_here_can_parse_its_script) {
    static const struct {
        const char *shell, *no_execute;
    } shells[] = {{"bash", "-n"}, {"zsh", "-n"}, {"fish", "--no-execute"}};
    static const char script[] =
        "command -v \"$1\" >/dev/null || exit 77\n"
        "file=$(mktemp) && \"$PLIMSOLL\" completion \"$1\" >\"$file\" && \"$1\" \"$2\" \"$file\"\n"
        "status=$?; rm -f \"$file\"; exit $status\n";
    const char *const argv[] = {"sh", "-c", script, "sh", shells[_i].shell, shells[_i].no_execute,
                                NULL};
    struct outcome p = child_run(argv, NULL, SECONDS);
    ck_assert_msg(p.status == 0 || p.status == 77, "%s", p.err);
    outcome_finish(&p);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cli.cli");
    TCase *tc = tcase_create("binary");
    tcase_set_timeout(tc, 60);
    const int n_failures = (int)(sizeof failures / sizeof *failures);
    tcase_add_loop_test(tc, a_failure_has_its_status_and_says_so_on_stderr_alone, 0, n_failures);
    tcase_add_loop_test(tc, a_failure_under_json_is_also_one_object_on_stdout, 0, n_failures);
    tcase_add_loop_test(tc, an_answer_goes_to_stdout_alone_with_status_0, 0,
                        (int)(sizeof answers / sizeof *answers));
    tcase_add_test(tc, every_command_explains_itself_with_examples_first);
    tcase_add_test(tc, a_full_disk_under_stdout_is_a_failure);
    tcase_add_test(tc, what_stdout_does_not_take_is_said_once);
    tcase_add_test(tc, streams_that_were_closed_are_no_file_of_the_run);
    tcase_add_test(tc, a_run_keeps_to_the_flags_that_are_about_its_messages);
    tcase_add_test(tc, colour_appears_only_where_it_was_asked_for);
    tcase_add_loop_test(tc, bash_offers_commands_flags_and_choices, 0,
                        (int)(sizeof completions / sizeof *completions));
    tcase_add_loop_test(tc, every_shell_that_is_here_can_parse_its_script, 0, 3);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
