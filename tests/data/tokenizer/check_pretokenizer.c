/* check_pretokenizer.c - cutting text into words, and finding added tokens before that. */
#include "runtime/data/tokenizer/added_tokens.h"
#include "runtime/data/tokenizer/pretokenizer.h"
#include "runtime/data/tokenizer/punctuation.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char got[512];

/* W2 of pretokenizer.h and S2 of span.h */
static pl_err take_word(void *ctx, const struct pl_span *word, struct pl_diag *d) {
    (void)d;
    uint64_t *last = ctx;
    ck_assert_uint_gt(word->n, 0);
    ck_assert_uint_ge(pl_span_origin(word, 0), *last);
    *last = pl_span_origin(word, 0);
    sprintf(got + strlen(got), "[%.*s]", (int)word->n, word->s);
    return PL_ERR_OK;
}

static void cut(struct pl_pretokenizer *p, const char *text, uint64_t base) {
    struct pl_pretokenizer_scratch s = {0};
    struct pl_pattern_scratch *ps;
    struct pl_span in = {.s = text, .n = strlen(text), .base = base};
    uint64_t last = 0;
    got[0] = 0;
    ck_assert_int_eq(pl_pattern_scratch_create(&ps, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_pretokenizer_run(p, &s, ps, &in, take_word, &last, NULL), PL_ERR_OK);
    pl_pattern_scratch_destroy(&ps);
    pl_pretokenizer_scratch_finish(&s);
    pl_pretokenizer_finish(p);
}

/* Words as the documentation of the library's SplitDelimiterBehavior shows them. */
static const struct {
    enum pl_split_behavior behavior;
    bool invert;
    const char *text, *want;
} splits[] = {
    {PL_SPLIT_REMOVED, false, "the-final--countdown", "[the][final][countdown]"},
    {PL_SPLIT_ISOLATED, false, "the-final--countdown", "[the][-][final][-][-][countdown]"},
    {PL_SPLIT_MERGED_WITH_PREVIOUS, false, "the-final--countdown", "[the-][final-][-][countdown]"},
    {PL_SPLIT_MERGED_WITH_NEXT, false, "the-final--countdown", "[the][-final][-][-countdown]"},
    {PL_SPLIT_CONTIGUOUS, false, "the-final--countdown", "[the][-][final][--][countdown]"},
    {PL_SPLIT_REMOVED, true, "the-final--countdown", "[-][-][-]"},
    {PL_SPLIT_MERGED_WITH_PREVIOUS, false, "-a-", "[-][a-]"},
    {PL_SPLIT_MERGED_WITH_NEXT, false, "-a-", "[-a][-]"},
    {PL_SPLIT_REMOVED, false, "---", ""},
    {PL_SPLIT_CONTIGUOUS, false, "--", "[--]"},
};

START_TEST(matches_are_joined_as_the_behaviour_says) {
    struct pl_pretokenizer p = {
        .steps = {{.behavior = splits[_i].behavior, .invert = splits[_i].invert}}, .n = 1};
    for (int regex = 0; regex < 2; regex++) {
        struct pl_pretokenizer copy = p;
        pl_err err = regex ? pl_pattern_compile(&copy.steps[0].pattern, "[-]", 3, NULL)
                           : pl_pattern_literal(&copy.steps[0].pattern, "-", 1, NULL);
        ck_assert_int_eq(err, PL_ERR_OK);
        cut(&copy, splits[_i].text, 0);
        ck_assert_str_eq(got, splits[_i].want);
    }
}
END_TEST

/* U1 of utf8.h */
START_TEST(digits_are_characters_of_category_n) {
    static const char text[] = "a12\xC2\xBD\xD9\xA3z\xE2\x85\xA7";
    struct pl_pretokenizer one = {.steps = {{.kind = PL_PRETOKENIZER_DIGITS}}, .n = 1};
    struct pl_pretokenizer runs = one;
    runs.steps[0].behavior = PL_SPLIT_CONTIGUOUS;
    cut(&one, text, 0);
    ck_assert_str_eq(got, "[a][1][2][\xC2\xBD][\xD9\xA3][z][\xE2\x85\xA7]");
    cut(&runs, text, 0);
    ck_assert_str_eq(got, "[a][12\xC2\xBD\xD9\xA3][z][\xE2\x85\xA7]");
}
END_TEST

START_TEST(white_space_is_left_out) {
    static const char text[] = "it's  a_b,\t\xC2\xA0+1\xE2\x80\xA8 ";
    struct pl_pretokenizer words = {.steps = {{.kind = PL_PRETOKENIZER_WORDS}}, .n = 1};
    struct pl_pretokenizer spaces = {
        .steps = {{.kind = PL_PRETOKENIZER_SPACES, .behavior = PL_SPLIT_REMOVED}}, .n = 1};
    cut(&words, text, 0);
    ck_assert_str_eq(got, "[it]['][s][a_b][,][+][1]");
    cut(&spaces, text, 0);
    ck_assert_str_eq(got, "[it's][a_b,][+1]");
}
END_TEST

/* N1 of punctuation.h. Count and FNV-1a of the code points, four bytes each, lowest first, that
 * Punctuation("isolated") of version 0.23.3 of the library cuts out of "a" + character + "b". */
START_TEST(punctuation_is_the_table_of_the_library) {
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    unsigned n = 0;
    for (uint32_t c = 0; c < 0x110000; c++) {
        if (!pl_is_punctuation(c)) continue;
        n++;
        for (unsigned shift = 0; shift < 32; shift += 8)
            hash = (hash ^ (c >> shift & 0xFF)) * UINT64_C(0x100000001B3);
    }
    ck_assert_uint_eq(n, 726);
    ck_assert_uint_eq(hash, UINT64_C(0x44CC3F6F89DBDB6F));
    ck_assert(!pl_is_punctuation(UINT32_MAX));
}
END_TEST

static const struct {
    enum pl_prepend prepend;
    bool split;
    uint64_t base;
    const char *text, *want;
} metaspaces[] = {
    {PL_PREPEND_ALWAYS, false, 9, "a b", "[_a_b]"},
    {PL_PREPEND_ALWAYS, true, 9, "a b  c", "[_a][_b][_][_c]"},
    {PL_PREPEND_ALWAYS, true, 0, " a", "[_a]"},
    {PL_PREPEND_ALWAYS, true, 0, "_a", "[_a]"},
    {PL_PREPEND_FIRST, false, 0, "a b", "[_a_b]"},
    {PL_PREPEND_FIRST, false, 1, "a b", "[a_b]"},
    {PL_PREPEND_NEVER, true, 0, "a b ", "[a][_b][_]"},
};

START_TEST(metaspace_marks_the_beginnings_of_words) {
    struct pl_pretokenizer p = {.steps = {{.kind = PL_PRETOKENIZER_METASPACE,
                                           .replacement = "_",
                                           .n_replacement = 1,
                                           .prepend = metaspaces[_i].prepend,
                                           .split = metaspaces[_i].split}},
                                .n = 1};
    cut(&p, metaspaces[_i].text, metaspaces[_i].base);
    ck_assert_str_eq(got, metaspaces[_i].want);
}
END_TEST

START_TEST(a_boundary_keeps_a_run_with_the_word_behind_it) {
    struct pl_pretokenizer p = {
        .steps = {{.kind = PL_PRETOKENIZER_BOUNDARY, .replacement = "_", .n_replacement = 1}},
        .n = 1};
    struct pl_pretokenizer copy = p;
    cut(&p, "__ab_c___d_", 0);
    ck_assert_str_eq(got, "[__ab][_c][___d][_]");
    cut(&copy, "ab", 0);
    ck_assert_str_eq(got, "[ab]");
}
END_TEST

/* W1 of pretokenizer.h */
START_TEST(each_step_cuts_what_the_step_before_gave) {
    struct pl_pretokenizer p = {.steps = {{.behavior = PL_SPLIT_MERGED_WITH_NEXT},
                                          {.kind = PL_PRETOKENIZER_BYTE_LEVEL},
                                          {.behavior = PL_SPLIT_ISOLATED}},
                                .n = 3};
    ck_assert_int_eq(pl_pattern_literal(&p.steps[0].pattern, "-", 1, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_pattern_compile(&p.steps[2].pattern, " ?x+", 4, NULL), PL_ERR_OK);
    cut(&p, "xx-x -y", 0);
    ck_assert_str_eq(got, "[ xx][ -][x][ ][ -y]");
}
END_TEST

/* --- added tokens ----------------------------------------------------------------------------- */

static const struct pl_added_token added[] = {
    {.s = "[[", .n = 2, .id = 1},
    {.s = "[[[", .n = 3, .id = 2},
    {.s = "word", .n = 4, .id = 3, .single_word = true},
    {.s = "<L>", .n = 3, .id = 4, .lstrip = true},
    {.s = "<R>", .n = 3, .id = 5, .rstrip = true},
    {.s = "  ", .n = 2, .id = 6},
    {.s = "[[[x", .n = 4, .id = 7, .single_word = true},
    {.s = "\xC3\xA9t\xC3\xA9", .n = 5, .id = 8, .single_word = true},
    {.s = "\t\t", .n = 2, .id = 9, .lstrip = true},
};

static const struct {
    const char *text, *want;
} found[] = {
    {"a[[b", "1:1-3 "},
    {"[[[[", "2:0-3 "},
    {"[[[[[[", "2:0-3 2:3-6 "},
    {"word", "3:0-4 "},
    {"a word.", "3:2-6 "},
    {"aword wordb word_ word-", "3:18-22 "},
    {"\xC3\xA9word word\xCC\x81 word\xE2\x80\x8D", ""},
    {"\xE2\x93\x90word", ""}, /* a circled letter is Alphabetic */
    {"x\xC3\xA9t\xC3\xA9 \xC3\xA9t\xC3\xA9", "8:7-12 "},
    {"a \t\xE3\x80\x80<L>", "4:1-9 "},
    {"a<R> \n b", "5:1-7 "},
    {"<R> <L>", "5:0-4 4:4-7 "}, /* the space is taken once */
    {"<R>  x", "5:0-5 6:3-5 "},  /* and a token inside of it still stands */
    {"<R>\t\tx", "5:0-5 9:5-5 "},
    {"a[[[xb", ""}, /* the longest does not stand: no shorter one is tried */
    {"", ""},
    {"<", ""},
};

/* A1 and A2 of added_tokens.h */
START_TEST(added_tokens_are_found_longest_first_with_their_flags) {
    struct pl_added_set set = {0};
    const struct pl_added_token *twin;
    struct pl_added_walk w = {0};
    for (size_t i = 0; i < sizeof added / sizeof *added; i++)
        ck_assert(pl_added_set_put(&set, &added[i]));
    ck_assert(pl_added_set_sort(&set, &twin));
    got[0] = 0;
    while (pl_added_next(&set, found[_i].text, strlen(found[_i].text), &w))
        sprintf(got + strlen(got), "%d:%zu-%zu ", w.token->id, w.begin, w.end);
    ck_assert_msg(strcmp(got, found[_i].want) == 0, "%s: %s", found[_i].text, got);
    pl_added_set_finish(&set);
}
END_TEST

START_TEST(two_tokens_of_one_text_are_refused) {
    struct pl_added_set set = {0};
    const struct pl_added_token *twin = NULL;
    ck_assert(pl_added_set_put(&set, &added[0]));
    ck_assert(pl_added_set_put(&set, &added[1]));
    ck_assert(pl_added_set_put(&set, &added[0]));
    ck_assert(!pl_added_set_sort(&set, &twin));
    ck_assert_mem_eq(twin->s, "[[", 2);
    pl_added_set_finish(&set);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("pretokenizer");
    TCase *t = tcase_create("cutting");
    tcase_add_loop_test(t, matches_are_joined_as_the_behaviour_says, 0,
                        (int)(sizeof splits / sizeof *splits));
    tcase_add_test(t, digits_are_characters_of_category_n);
    tcase_add_test(t, white_space_is_left_out);
    tcase_add_test(t, punctuation_is_the_table_of_the_library);
    tcase_add_loop_test(t, metaspace_marks_the_beginnings_of_words, 0,
                        (int)(sizeof metaspaces / sizeof *metaspaces));
    tcase_add_test(t, a_boundary_keeps_a_run_with_the_word_behind_it);
    tcase_add_test(t, each_step_cuts_what_the_step_before_gave);
    tcase_add_loop_test(t, added_tokens_are_found_longest_first_with_their_flags, 0,
                        (int)(sizeof found / sizeof *found));
    tcase_add_test(t, two_tokens_of_one_text_are_refused);
    suite_add_tcase(suite, t);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
