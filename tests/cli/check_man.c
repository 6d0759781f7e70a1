/* check_man.c - the manual pages hold every row of the tables they come from. */
#include "estimator/config/key_table.h"
#include "tools/plimsoll/man.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static struct pl_text page_of(const char *name) {
    struct pl_text page = {0};
    ck_assert_msg(pl_man_page(name, &page), "%s", name);
    ck_assert(!page.failed);
    return page;
}

/* `word` in bold, with every hyphen as one that can be typed. */
static bool has_bold(const struct pl_text *page, const char *word) {
    struct pl_text want = {0};
    pl_text_add(&want, "\\fB");
    for (; *word; word++)
        pl_text_addf(&want, *word == '-' ? "\\-" : "%c", *word);
    pl_text_add(&want, "\\fR");
    bool found = strstr(page->data, want.data) != NULL;
    pl_text_finish(&want);
    return found;
}

/* M1. */
START_TEST(every_command_has_a_page_with_all_its_flags) {
    uint32_t n;
    const struct pl_flag_info *flags = pl_cli_flags();
    const struct pl_command *commands = pl_cli_commands(&n);
    char name[64], flag[PL_FLAG_TEXT];
    for (uint32_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "plimsoll-%s.1", commands[i].name);
        struct pl_text page = page_of(name);
        for (int f = 0; f < PL_FLAG_COUNT; f++) {
            bool takes = pl_flag_in((struct pl_flag_set){true, commands[i].flags}, f);
            bool shown = has_bold(&page, pl_cli_flag_text(flags[f].name, flag));
            ck_assert_msg(shown == takes, "%s in %s", flag, name);
        }
        ck_assert_msg(commands[i].keys ==
                          (strstr(page.data, "configuration key is a flag") != NULL),
                      "%s", name);
        pl_text_finish(&page);
    }
}
END_TEST

START_TEST(the_first_page_names_every_command_and_exit_status) {
    uint32_t n;
    size_t n_exits;
    struct pl_text page = page_of("plimsoll.1");
    const struct pl_command *commands = pl_cli_commands(&n);
    const struct pl_cli_exit *exits = pl_cli_exits(&n_exits);
    for (uint32_t i = 0; i < n; i++) {
        char first[32];
        snprintf(first, sizeof first, ".B %.*s", (int)strcspn(commands[i].name, "-"),
                 commands[i].name);
        ck_assert_msg(strstr(page.data, first), "%s", first);
    }
    for (size_t i = 0; i < n_exits; i++)
        ck_assert_msg(strstr(page.data, exits[i].meaning), "%s", exits[i].meaning);
    pl_text_finish(&page);
}
END_TEST

/* M1; M2: no backquote is left. */
START_TEST(the_page_of_the_configuration_has_every_key) {
    uint32_t n;
    const struct pl_key_info *keys = pl_key_table(&n);
    struct pl_text page = page_of("plimsoll.yaml.5");
    for (uint32_t i = 0; i < n; i++) {
        struct pl_text entry = {0};
        pl_text_addf(&entry, ".TP\n.B %s\n", keys[i].key);
        ck_assert_msg(strstr(page.data, entry.data), "%s", keys[i].key);
        pl_text_finish(&entry);
    }
    ck_assert_ptr_null(strchr(page.data, '`'));
    pl_text_finish(&page);
}
END_TEST

static const char *const unknown[] = {"",
                                      "plimsoll",
                                      "plimsoll.5",
                                      "plimsoll-.1",
                                      "plimsoll-train",
                                      "plimsoll-train.5",
                                      "plimsoll-trainer.1",
                                      "plimsoll-tra.1",
                                      "plimsoll.yaml.1",
                                      "../plimsoll.1"};

START_TEST(no_other_name_is_a_page) {
    struct pl_text page = {0};
    ck_assert(!pl_man_page(unknown[_i], &page));
    ck_assert_uint_eq(page.len, 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cli.man");
    TCase *tc = tcase_create("man");
    tcase_add_test(tc, every_command_has_a_page_with_all_its_flags);
    tcase_add_test(tc, the_first_page_names_every_command_and_exit_status);
    tcase_add_test(tc, the_page_of_the_configuration_has_every_key);
    tcase_add_loop_test(tc, no_other_name_is_a_page, 0, (int)(sizeof unknown / sizeof *unknown));
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
