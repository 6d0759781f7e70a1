/* check_args.c - argv -> struct pl_cli, against a command table of the test's own. */
#include "tools/plimsoll/cli.h"

#include "estimator/card/links.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static int run_nothing(const struct pl_cli *cli) { return cli->n_args > 100; }

static const struct pl_command table[] = {
    {.name = "learn", .synopsis = "CONFIG.yaml", .run = run_nothing, .min_args = 1, .max_args = 1,
     .flags = PL_FLAG_BIT(VRAM) | PL_FLAG_BIT(VRAM_GB), .keys = true},
    {.name = "show", .synopsis = "[WORD WORD]", .run = run_nothing, .max_args = 2},
};

const struct pl_command *pl_cli_commands(uint32_t *n) {
    *n = sizeof table / sizeof *table;
    return table;
}

const struct pl_command *pl_cli_command_find(const char *name) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].name, name) == 0) return &table[i];
    return NULL;
}

#define MAX_WORDS 12
struct words { /* a command line cut at blanks */
    char text[256];
    char *argv[MAX_WORDS];
    int argc;
};

static void split(struct words *w, const char *line) {
    snprintf(w->text, sizeof w->text, "plimsoll %s", line);
    w->argc = 0;
    for (char *s = strtok(w->text, " "); s; s = strtok(NULL, " ")) {
        ck_assert_int_lt(w->argc, MAX_WORDS);
        w->argv[w->argc++] = s;
    }
}

static const struct {
    const char *line, *overrides; /* joined with blanks, in order */
} accepted[] = {
    {"learn a.yaml", ""},
    {"learn a.yaml --batch-size 4", "batch_size=4"},
    {"learn --batch-size=4 a.yaml", "batch_size=4"},
    {"learn --batch_size 4 a.yaml", "batch_size=4"},
    {"learn a.yaml batch_size=4 seed=7", "batch_size=4 seed=7"},
    {"learn a.yaml seed=7 --seed 8 seed=9", "seed=7 seed=8 seed=9"},
    {"learn a.yaml --micro-batch-size 2", "micro_batch_size=2"},
    {"learn a.yaml --run-name=a=b", "run_name=a=b"},
    {"learn a.yaml run_name=", "run_name="},
    {"learn a.yaml --learning-rate -1", "learning_rate=-1"},
    {"learn --use-rslora a.yaml", "use_rslora=true"},
    {"learn --use-rslora false a.yaml", "use_rslora=false"},
    {"learn --optimizer-in-backward a.yaml", "optimizer_in_backward=true"},
    {"learn --optimizer-in-backward auto a.yaml", "optimizer_in_backward=auto"},
    {"learn --master-weights False a.yaml", "master_weights=False"},
    {"learn --no-optimizer-in-backward a.yaml", "optimizer_in_backward=false"},
    {"learn --no-oom-recovery a.yaml", "oom_recovery=false"},
    {"learn --sample-packing a.yaml", "sample_packing=true"},
    {"learn --no-sample-packing a.yaml", "sample_packing=false"},
    {"learn a.yaml --vram 16GiB", "vram_budget=16GiB"},
    {"learn a.yaml --vram-gb 24", "vram_budget=24GB"},
    {"learn a.yaml --vram-gb=7.5", "vram_budget=7.5GB"},
    {"--json -q learn a.yaml nosuchkey=1", "nosuchkey=1"},
    {"learn runs/lr=1.yaml", ""},
    {"learn -- seed=7", ""},
};

/* C3 of cli.h. */
START_TEST(keys_become_assignments_in_the_order_typed) {
    struct words w;
    struct pl_cli cli;
    struct pl_diag d = {0};
    struct pl_text joined = {0};
    split(&w, accepted[_i].line);
    ck_assert_msg(pl_cli_parse(&cli, w.argc, w.argv, &d) == PL_ERR_OK, "%s: %s", accepted[_i].line,
                  d.message);
    for (uint32_t i = 0; i < cli.n_overrides; i++)
        pl_text_addf(&joined, "%s%s", i ? " " : "", cli.overrides[i]);
    ck_assert_str_eq(pl_text_str(&joined), accepted[_i].overrides);
    ck_assert_uint_eq(cli.n_args, 1);
    pl_text_finish(&joined);
    pl_cli_finish(&cli);
}
END_TEST

static const struct {
    const char *line, *message, *hint; /* fragments */
} refused[] = {
    {"", "no command was given", "plimsoll help"},
    {"lern a.yaml", "no command is called `lern`", "plimsoll learn"},
    {"qqqqqqqq", "no command is called `qqqqqqqq`", "run `plimsoll help`"},
    {"learn", "`learn` needs more: plimsoll learn CONFIG.yaml", "help learn"},
    {"learn a.yaml b.yaml", "takes no argument `b.yaml`", "help learn"},
    {"learn a.yaml --batch-sise 4", "knows no flag `--batch-sise`", "`--batch-size`"},
    {"learn a.yaml --lora-rnk=4", "knows no flag `--lora-rnk`", "`--lora-rank`"},
    {"learn a.yaml --no-batch-size", "knows no flag `--no-batch-size`", ""},
    {"learn a.yaml --batch-size", "--batch-size needs a value", ""},
    {"learn a.yaml --batch-size --json", "--batch-size needs a value", ""},
    {"learn a.yaml --vram-gb 24GiB", "--vram-gb wants a plain number of GB, not `24GiB`", ""},
    {"learn a.yaml --vram-gb=", "--vram-gb wants a plain number of GB", ""},
    {"learn a.yaml --vram", "--vram needs a value: SIZE", ""},
    {"show --batch-size 4", "`show` knows no flag `--batch-size`", "help show"},
    {"show --vram 4GiB", "`show` knows no flag `--vram`", ""},
    {"show one two three", "takes no argument `three`", ""},
    {"show --json=yes", "--json takes no value", ""},
    {"show --color purple", "--color is one of auto|always|never, not `purple`", ""},
    {"--vram 4GiB learn a.yaml", "no flag `--vram` before the command", ""},
    {"show -z", "knows no flag `-z`", "help show"},
};

START_TEST(a_bad_command_line_names_the_word_and_what_is_near) {
    struct words w;
    struct pl_cli cli;
    struct pl_diag d = {0};
    split(&w, refused[_i].line);
    ck_assert_msg(pl_cli_parse(&cli, w.argc, w.argv, &d) == PL_ERR_USAGE, "%s", refused[_i].line);
    ck_assert_msg(strstr(d.message, refused[_i].message), "%s: %s", refused[_i].line, d.message);
    ck_assert_msg(strstr(pl_diag_hint_text(&d), refused[_i].hint), "%s: %s", refused[_i].line,
                  pl_diag_hint_text(&d));
    pl_cli_finish(&cli);
}
END_TEST

START_TEST(global_flags_stand_before_and_after_the_command) {
    struct words w;
    struct pl_cli cli;
    struct pl_diag d = {0};
    split(&w, "-q --color never show one -V --no-progress");
    ck_assert_int_eq(pl_cli_parse(&cli, w.argc, w.argv, &d), PL_ERR_OK);
    ck_assert_str_eq(cli.flag[PL_FLAG_COLOR], "never");
    ck_assert(pl_cli_has(&cli, PL_FLAG_QUIET) && pl_cli_has(&cli, PL_FLAG_VERSION));
    ck_assert(pl_cli_has(&cli, PL_FLAG_NO_PROGRESS) && !pl_cli_has(&cli, PL_FLAG_JSON));
    ck_assert_str_eq(cli.command->name, "show");
    ck_assert_str_eq(cli.args[0], "one");
    pl_cli_finish(&cli);
}
END_TEST

START_TEST(json_is_known_even_when_the_error_comes_before_it) {
    struct words w;
    struct pl_cli cli;
    struct pl_diag d = {0};
    split(&w, "nonsense --json");
    ck_assert_int_eq(pl_cli_parse(&cli, w.argc, w.argv, &d), PL_ERR_USAGE);
    ck_assert(pl_cli_has(&cli, PL_FLAG_JSON));
    pl_cli_finish(&cli);
}
END_TEST

START_TEST(help_is_not_refused_for_missing_arguments) {
    struct words w;
    struct pl_cli cli;
    struct pl_diag d = {0};
    split(&w, "learn -h");
    ck_assert_int_eq(pl_cli_parse(&cli, w.argc, w.argv, &d), PL_ERR_OK);
    ck_assert(pl_cli_has(&cli, PL_FLAG_HELP));
    pl_cli_finish(&cli);
}
END_TEST

START_TEST(a_json_string_survives_bytes_that_are_not_utf8) {
    json_t *good = pl_cli_json_string("caf\xc3\xa9"), *bad = pl_cli_json_string("caf\xe9!");
    ck_assert_str_eq(json_string_value(good), "caf\xc3\xa9");
    ck_assert_str_eq(json_string_value(bad), "caf?!");
    json_decref(good);
    json_decref(bad);
}
END_TEST

/* The flag takes every link of the table, and the word for that of the GPU. */
START_TEST(links_are_those_of_the_table) {
    size_t n;
    char choices[256] = "nvlink";
    const struct pl_link *links = pl_link_table(&n);
    for (size_t i = 0; i < n; i++) {
        strcat(choices, "|");
        strcat(choices, links[i].name);
    }
    ck_assert_str_eq(pl_cli_flags()[PL_FLAG_LINK].value, choices);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cli.args");
    TCase *tc = tcase_create("parse");
    tcase_add_loop_test(tc, keys_become_assignments_in_the_order_typed, 0,
                        (int)(sizeof accepted / sizeof *accepted));
    tcase_add_loop_test(tc, a_bad_command_line_names_the_word_and_what_is_near, 0,
                        (int)(sizeof refused / sizeof *refused));
    tcase_add_test(tc, global_flags_stand_before_and_after_the_command);
    tcase_add_test(tc, json_is_known_even_when_the_error_comes_before_it);
    tcase_add_test(tc, help_is_not_refused_for_missing_arguments);
    tcase_add_test(tc, links_are_those_of_the_table);
    tcase_add_test(tc, a_json_string_survives_bytes_that_are_not_utf8);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
