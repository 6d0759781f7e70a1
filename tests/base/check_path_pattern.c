/* check_path_pattern.c - whole matches as Python 3.11's re.fullmatch() finds them. */
#include "estimator/base/path_pattern.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define Q "model.layers.11.self_attn.q_proj"
static const struct {
    const char *pattern, *text;
    bool matches;
} rows[] = {
    {"", "", true},
    {"", "a", false},
    {"a.c", "abc", true},
    {"a\\.c", "abc", false},
    {".*q_proj", Q, true},
    {"q_proj", Q, false},
    {".*\\.(q|v)_proj", Q, true},
    {".*\\.(k|v)_proj", Q, false},
    {"model\\.layers\\.[\\d]+\\.self_attn\\.(q|k)_proj", Q, true},
    {"model.layers.\\d.self_attn.(q|k)_proj", Q, false},
    {".*\\.(?:1|1[01])\\..*?_proj", Q, true},
    {".*\\.(?P<layer>[0-9]{2,})\\..*", Q, true},
    {".*\\.[0-9]{3,}\\..*", Q, false},
    {".*\\.[0-9]{,2}\\..*", Q, true},
    {"(\\w+\\.){4}\\w+", Q, true},
    {"(\\w+\\.){2,3}\\w+", Q, false},
    {"(\\w+\\.){0}q", "q", true},
    {"[^.]+(\\.[^.]+)*", Q, true},
    {"[^a-z]+", Q, false},
    {"[]a-]+", "a-]", true},
    {"[\\w.]+", Q, true},
    {"[^\\W\\d.]+", "q_proj", true},
    {"(?!.*mlp).*_proj", Q, true},
    {"(?!.*self_attn).*_proj", Q, false},
    {"(?=model).*_proj", Q, true},
    {".*(?<=q_)proj", Q, true},
    {".*(?<!q_)proj", Q, false},
    {"^model\\b.*\\bq_proj$", Q, true},
    {"mod\\b.*", Q, false},
    {"mod\\Bel.*", Q, true},
    {"\\Amodel.*proj\\Z", Q, true},
    {"a{x}", "a{x}", true},
    {"a{2", "a{2", true},
    {"(a|ab)(c|bcd)", "abcd", true},
    {"(a*)*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
    {"(|a)+", "aaa", true},
    {"(a?){3}", "aa", true},
    {"(aa|aaa)+", "a", false},
    {"(aa|aaa){2,3}", "aaaaaaaaa", true},
    {"(aa|aaa){2,3}", "aaaaaaaaaa", false},
    {"\\S+\\s?", "ab", true},
};

/* T2. T1: among the rows are patterns on which backtracking takes longer than a test may. */
START_TEST(python_answers_the_same) {
    bool matches;
    struct pl_path_pattern_wrong wrong = {0};
    ck_assert_msg(pl_path_pattern_match(rows[_i].pattern, rows[_i].text, &matches, &wrong),
                  "%s: %s", rows[_i].pattern, wrong.why);
    ck_assert_msg(matches == rows[_i].matches, "%s on %s", rows[_i].pattern, rows[_i].text);
}
END_TEST

static const struct {
    const char *pattern;
    size_t at;
    const char *why;
} unknown[] = {
    {"a(b", 1, "a group without its end"},
    {"ab)", 2, "a group that did not begin"},
    {"a[b", 1, "a class without its end"},
    {"a[z-b]", 2, "a range that goes down"},
    {"ab\\", 3, "ends in a backslash"},
    {"(a)\\1", 3, "an escape that is not known"},
    {"(?i)a", 0, "a kind of group that is not known"},
    {"(?>a)", 0, "a kind of group that is not known"},
    {"(?P<n", 0, "name has no end"},
    {"a*+", 2, "a possessive repeat"},
    {"a**", 2, "repeats a repeat"},
    {"a{1,2}{3}", 6, "repeats a repeat"},
    {"*a", 0, "repeats nothing"},
    {"a|+", 2, "repeats nothing"},
    {"a{3,2}", 1, "fewer times than the least"},
    {"a{99999999999}", 1, "more than 1,000 times"},
    {"((.{0,1}){1000}){1000}", 2, "repeats too deeply"},
};

/* T1: what repeats too deeply is refused. */
START_TEST(what_is_not_understood_is_refused_with_its_place) {
    const char *text = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    struct pl_path_pattern_wrong wrong = {0};
    bool matches = true;
    ck_assert_msg(!pl_path_pattern_match(unknown[_i].pattern, text, &matches, &wrong), "%s",
                  unknown[_i].pattern);
    ck_assert(!matches);
    ck_assert_msg(strstr(wrong.why, unknown[_i].why) != NULL, "%s: %s", unknown[_i].pattern,
                  wrong.why);
    ck_assert_uint_eq(wrong.at, unknown[_i].at);
    ck_assert(!pl_path_pattern_match(unknown[_i].pattern, text, &matches, NULL));
}
END_TEST

START_TEST(groups_are_as_deep_and_names_as_long_as_promised) {
    char pattern[512] = "", name[PL_PATH_PATTERN_TEXT + 2] = "";
    bool matches;
    struct pl_path_pattern_wrong wrong;
    for (int i = 0; i < 50; i++)
        strcat(pattern, "(");
    strcat(pattern, ".*");
    for (int i = 0; i < 50; i++)
        strcat(pattern, ")");
    memset(name, 'a', PL_PATH_PATTERN_TEXT);
    ck_assert(pl_path_pattern_match(pattern, name, &matches, &wrong) && matches);
    name[PL_PATH_PATTERN_TEXT] = 'a';
    ck_assert(!pl_path_pattern_match(".*", name, &matches, &wrong));
    memmove(pattern + 1, pattern, strlen(pattern) + 1);
    ck_assert(!pl_path_pattern_match(pattern, "a", &matches, &wrong));
    ck_assert_str_eq(wrong.why, "has too many groups in each other");
}
END_TEST

int main(void) {
    Suite *s = suite_create("pattern");
    TCase *t = tcase_create("all");
    tcase_add_loop_test(t, python_answers_the_same, 0, sizeof rows / sizeof *rows);
    tcase_add_loop_test(t, what_is_not_understood_is_refused_with_its_place, 0,
                        sizeof unknown / sizeof *unknown);
    tcase_add_test(t, groups_are_as_deep_and_names_as_long_as_promised);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
