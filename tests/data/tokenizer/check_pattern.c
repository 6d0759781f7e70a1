/* check_pattern.c - what of a regular expression is known, what is refused, and what it matches. */
#include "runtime/data/tokenizer/pattern.h"
#include "runtime/data/tokenizer/regex_translate.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char llama3[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/* Matches of `regex` in text, each in brackets. */
static void matches(const char *regex, const char *text, size_t n, char *out) {
    struct pl_pattern *p;
    struct pl_pattern_scratch *s;
    struct pl_pattern_walk w = {0};
    struct pl_diag d = {0};
    pl_err err = pl_pattern_compile(&p, regex, strlen(regex), &d);
    ck_assert_msg(err == PL_ERR_OK, "%s: %s", regex, d.message);
    ck_assert_int_eq(pl_pattern_scratch_create(&s, &d), PL_ERR_OK);
    for (*out = 0;;) {
        ck_assert_int_eq(pl_pattern_next(p, s, text, n, &w, &d), PL_ERR_OK);
        if (!w.found) break;
        sprintf(out + strlen(out), "[%.*s]", (int)(w.end - w.begin), text + w.begin);
    }
    pl_pattern_scratch_destroy(&s);
    pl_pattern_destroy(&p);
}

static const struct {
    const char *regex, *text, *want;
} known[] = {
    {llama3, "I'll see 12345 it\n\n  go ", "[I]['ll][ see][ ][123][45][ it][\n\n][ ][ go][ ]"},
    {"\\s+", "a\xC2\x85 \xC2\xA0z\xE2\x80\x8Bq", "[\xC2\x85 \xC2\xA0]"},
    {"\\s", "\xE1\xA0\x8E", ""}, /* U+180E lost White_Space in Unicode 6.3; PCRE2 keeps it */
    {"\\S", "\xE1\xA0\x8E", "[\xE1\xA0\x8E]"},
    {"[\\s]", "\xE1\xA0\x8E \xE3\x80\x80", "[ ][\xE3\x80\x80]"},
    {"[^\\s]", "\xE1\xA0\x8E ", "[\xE1\xA0\x8E]"},
    {"[\\Sx]+", "a b", "[a][b]"},
    {"(?i:'s)", "'S'\xC5\xBF's", "['S]['\xC5\xBF]['s]"},
    {"'(?i:[sdmt]|ll|ve|re)", "'S'LL'x", "['S]['LL]"},
    {"\\v", "\v\f\n", "[\v]"}, /* to PCRE2 any vertical space */
    {"\\d+", "12\xD9\xA3", "[12\xD9\xA3]"},
    {"x*", "axxb", "[][xx][]"},
    {"(a|b)c", "acbc", "[ac][bc]"},
    {"(?:ab){2,3}", "ababababab", "[ababab][abab]"},
    {"a++b|a", "aab", "[aab]"},
    {"[a\\-c]+", "a-cb", "[a-c]"},
    {"[-a]+", "a-b", "[a-]"},
    {"[a-c.]+", "ab.d", "[ab.]"},
    {"[\\x{4e00}-\\x{9fff}\\u3040]+", "a\xE4\xB8\xAD\xE3\x81\x80z", "[\xE4\xB8\xAD\xE3\x81\x80]"},
    {".+", "ab\ncd", "[ab][cd]"},
    {"a(?=b)", "aab", "[a]"},
    {"\\P{L}", "a1", "[1]"},
    {"#x y", "#x y", "[#x y]"},
};

/* R1 and R2 of pattern.h, T1 of regex_translate.h */
START_TEST(matches_are_those_of_the_library_s_engine) {
    char got[256];
    matches(known[_i].regex, known[_i].text, strlen(known[_i].text), got);
    ck_assert_msg(strcmp(got, known[_i].want) == 0, "%s in %s: %s", known[_i].regex, known[_i].text,
                  got);
}
END_TEST

static const struct {
    const char *regex, *named;
    pl_err err;
} refused[] = {
    {"^a", "`^`", PL_ERR_TOKENIZER_UNSUPPORTED},
    {"a$", "`$`", PL_ERR_TOKENIZER_UNSUPPORTED},
    {"\\bx", "`\\b`", PL_ERR_TOKENIZER_UNSUPPORTED},
    {"\\w", "`\\w`", PL_ERR_TOKENIZER_UNSUPPORTED},
    {"\\h", "`\\h`", PL_ERR_TOKENIZER_UNSUPPORTED},
    {"(a)\\1", "`\\1`", PL_ERR_TOKENIZER_UNSUPPORTED},
    {"\\p{Han}", "`\\p{Han}`", PL_ERR_TOKENIZER_UNSUPPORTED},
    {"\\p{^L}", "`\\p{^L}`", PL_ERR_TOKENIZER_UNSUPPORTED},
    {"\\pL", "`\\pL`", PL_ERR_TOKENIZER_UNSUPPORTED},
    {"[a[bc]]", "`[b`", PL_ERR_TOKENIZER_UNSUPPORTED},
    {"[a&&b]", "`&&`", PL_ERR_TOKENIZER_UNSUPPORTED},
    {"[[:alpha:]]", "`[:`", PL_ERR_TOKENIZER_UNSUPPORTED},
    {"[\\p{L}-z]", "range", PL_ERR_TOKENIZER_UNSUPPORTED},
    {"(?<n>a)", "`(?<n`", PL_ERR_TOKENIZER_UNSUPPORTED},
    {"(?<=a)b", "`(?<=`", PL_ERR_TOKENIZER_UNSUPPORTED},
    {"(?i)a", "`(?i)`", PL_ERR_TOKENIZER_UNSUPPORTED},
    {"(*COMMIT)a", "`(*CO`", PL_ERR_TOKENIZER_UNSUPPORTED},
    {"(?i:ss)", "ligature", PL_ERR_TOKENIZER_UNSUPPORTED}, /* T3 of regex_translate.h */
    {"(?i:\xC3\xA9)", "ASCII", PL_ERR_TOKENIZER_UNSUPPORTED},
    {"(?i:\\p{Lu})", "ASCII", PL_ERR_TOKENIZER_UNSUPPORTED},
    {"a{2}+", "`{2}+`", PL_ERR_TOKENIZER_UNSUPPORTED},
    {"a{,3}", "`{,3}`", PL_ERR_TOKENIZER_UNSUPPORTED},
    {"a{2", "`{2`", PL_ERR_TOKENIZER_UNSUPPORTED},
    {"*a", "`*`", PL_ERR_TOKENIZER_UNSUPPORTED},
    {"a|+b", "`+`", PL_ERR_TOKENIZER_UNSUPPORTED},
    {"(?=a)*", "`*`", PL_ERR_TOKENIZER_UNSUPPORTED},
    {"(a", "open", PL_ERR_TOKENIZER_FIELD},
    {"a)", "closes", PL_ERR_TOKENIZER_FIELD},
    {"[a", "ends inside", PL_ERR_TOKENIZER_FIELD},
    {"a\\", "`\\`", PL_ERR_TOKENIZER_UNSUPPORTED},
    {"\\x{110000}", "no character", PL_ERR_TOKENIZER_UNSUPPORTED},
    {"\\x{d800}", "no character", PL_ERR_TOKENIZER_UNSUPPORTED},
    {"\\u12", "digits", PL_ERR_TOKENIZER_UNSUPPORTED},
};

/* R1 of pattern.h and T2 of regex_translate.h */
START_TEST(what_engines_read_differently_is_refused_by_name) {
    struct pl_pattern *p;
    struct pl_diag d = {0};
    pl_err err = pl_pattern_compile(&p, refused[_i].regex, strlen(refused[_i].regex), &d);
    ck_assert_ptr_null(p);
    ck_assert_msg(err == refused[_i].err && strstr(d.message, refused[_i].named), "%s: %s: %s",
                  refused[_i].regex, pl_err_code(err), d.message);
}
END_TEST

START_TEST(every_beginning_of_a_pattern_compiles_or_is_refused) {
    for (size_t n = 0; n <= sizeof llama3 - 1; n++) {
        struct pl_pattern *p;
        struct pl_diag d = {0};
        char *exact = malloc(n + 1);
        ck_assert_ptr_nonnull(exact);
        memcpy(exact, llama3, n);
        pl_err err = pl_pattern_compile(&p, exact, n, &d);
        ck_assert_int_eq(err == PL_ERR_OK, p != NULL);
        pl_pattern_destroy(&p);
        free(exact);
    }
}
END_TEST

/* One match of a megabyte, and a megabyte of matches. */
START_TEST(a_megabyte_of_anything_is_matched) {
    static const char *const units[] = {
        "a", "A", " ", "\n", "7", "!", "\xCC\x81", "\xE4\xB8\x80", "' ", "a\xCC\x81"};
    struct pl_pattern *p;
    struct pl_pattern_scratch *s;
    struct pl_pattern_walk w = {0};
    struct pl_diag d = {0};
    size_t unit = strlen(units[_i]), n = ((size_t)1 << 20) / unit * unit, seen = 0;
    char *text = malloc(n);
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < n; i++)
        text[i] = units[_i][i % unit];
    ck_assert_int_eq(pl_pattern_compile(&p, llama3, sizeof llama3 - 1, &d), PL_ERR_OK);
    ck_assert_int_eq(pl_pattern_scratch_create(&s, &d), PL_ERR_OK);
    for (;;) {
        pl_err err = pl_pattern_next(p, s, text, n, &w, &d);
        if (err != PL_ERR_OK) ck_abort_msg("%s", d.message);
        if (!w.found) break;
        seen += w.end - w.begin;
    }
    ck_assert_uint_eq(seen, n);
    pl_pattern_scratch_destroy(&s);
    pl_pattern_destroy(&p);
    free(text);
}
END_TEST

START_TEST(a_pattern_that_runs_away_is_stopped) {
    static const char regex[] = "(?:(?:a|aa)(?:a|aa))+[bc]";
    struct pl_pattern *p;
    struct pl_pattern_scratch *s;
    struct pl_pattern_walk w = {0};
    struct pl_diag d = {0};
    char text[400];
    memset(text, 'a', sizeof text);
    ck_assert_int_eq(pl_pattern_compile(&p, regex, sizeof regex - 1, &d), PL_ERR_OK);
    ck_assert_int_eq(pl_pattern_scratch_create(&s, &d), PL_ERR_OK);
    ck_assert_int_eq(pl_pattern_next(p, s, text, sizeof text, &w, &d), PL_ERR_TOKENIZER_INPUT);
    ck_assert(strstr(d.message, "gave up"));
    pl_pattern_scratch_destroy(&s);
    pl_pattern_destroy(&p);
}
END_TEST

/* Matches in all of a text, until it is done or refused. */
static pl_err match_all(const char *regex, const char *text, size_t n, struct pl_diag *d) {
    struct pl_pattern *p;
    struct pl_pattern_scratch *s;
    struct pl_pattern_walk w = {0};
    pl_err err;
    ck_assert_int_eq(pl_pattern_compile(&p, regex, strlen(regex), d), PL_ERR_OK);
    ck_assert_int_eq(pl_pattern_scratch_create(&s, d), PL_ERR_OK);
    pl_pattern_begin_text(s, n);
    do
        err = pl_pattern_next(p, s, text, n, &w, d);
    while (err == PL_ERR_OK && w.found);
    pl_pattern_scratch_destroy(&s);
    pl_pattern_destroy(&p);
    return err;
}

/* Patterns whose matches are short, and look at all of the text each. */
static const struct {
    const char *regex, *unit;
} greedy[] = {
    {"(?:a+)+b|a", "a"},     {"(?:a|aa)+b|a", "a"},          {"\\s+(?=x)|\\s", " "},
    {"\\s+(?=x)|\\s", "\n"}, {"(?:\\s*\\p{L}*)*x|\\s", " "}, {"[aA]+[bB]|a", "a"},
};

/* R4 of pattern.h */
START_TEST(short_matches_that_look_at_all_of_the_text_are_stopped) {
    static char text[1 << 20];
    struct pl_diag d = {0};
    memset(text, *greedy[_i].unit, sizeof text);
    ck_assert_int_eq(match_all(greedy[_i].regex, text, sizeof text, &d), PL_ERR_TOKENIZER_INPUT);
    ck_assert_msg(strstr(d.message, "gave up"), "%s", d.message);
}
END_TEST

/* R4 of pattern.h. Every word costs its square, all words of a text together count. */
START_TEST(all_words_of_a_text_share_what_it_may_cost) {
    static char text[64 * 2048];
    static const char regex[] = "\\s+(?=y)|\\s";
    struct pl_diag d = {0};
    memset(text, ' ', sizeof text);
    for (size_t i = 0; i < sizeof text; i += 2048)
        text[i] = 'x';
    ck_assert_int_eq(match_all(regex, text, (size_t)2048 * 2, &d), PL_ERR_OK);
    ck_assert_int_eq(match_all(regex, text, sizeof text, &d), PL_ERR_TOKENIZER_INPUT);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("pattern");
    TCase *t = tcase_create("patterns");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, matches_are_those_of_the_library_s_engine, 0,
                        (int)(sizeof known / sizeof *known));
    tcase_add_loop_test(t, what_engines_read_differently_is_refused_by_name, 0,
                        (int)(sizeof refused / sizeof *refused));
    tcase_add_test(t, every_beginning_of_a_pattern_compiles_or_is_refused);
    tcase_add_loop_test(t, a_megabyte_of_anything_is_matched, 0, 10);
    tcase_add_test(t, a_pattern_that_runs_away_is_stopped);
    tcase_add_loop_test(t, short_matches_that_look_at_all_of_the_text_are_stopped, 0,
                        (int)(sizeof greedy / sizeof *greedy));
    tcase_add_test(t, all_words_of_a_text_share_what_it_may_cost);
    suite_add_tcase(suite, t);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
