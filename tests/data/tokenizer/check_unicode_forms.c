/* check_unicode_forms.c - normalization forms against utf8proc's own, and where bytes came from. */
#include "runtime/data/tokenizer/unicode_forms.h"
#include "runtime/data/tokenizer/utf8.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static uint64_t state = 7;
static uint32_t draw(uint32_t n) {
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

static const struct {
    unsigned form;
    utf8proc_option_t options;
} forms[] = {
    {PL_FORM_COMPOSE, UTF8PROC_STABLE | UTF8PROC_COMPOSE},
    {0, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
    {PL_FORM_COMPOSE | PL_FORM_COMPAT, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
    {PL_FORM_COMPAT, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT},
};

static void same_as_utf8proc(const char *text, size_t n, int form) {
    struct pl_span in = {.s = text, .n = n, .base = 5};
    struct pl_span_buf out = {0};
    struct pl_form_scratch s = {0};
    utf8proc_uint8_t *want = NULL;
    utf8proc_ssize_t n_want = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n,
                                           &want, forms[form].options);
    ck_assert_int_ge(n_want, 0);
    ck_assert(pl_unicode_form(&out, &in, forms[form].form, &s));
    if (out.n != (size_t)n_want || (n_want && memcmp(out.s, want, out.n) != 0))
        ck_abort_msg("form %d of %.*s: %.*s instead of %s", form, (int)n, text, (int)out.n, out.s,
                     (const char *)want);
    /* S2 of span.h */
    for (size_t i = 0; i < out.n; i++)
        if (out.origin[i] < (i ? out.origin[i - 1] : 5) || out.origin[i] >= 5 + n)
            ck_abort_msg("byte %zu came from %llu", i, (unsigned long long)out.origin[i]);
    free(want);
    pl_span_buf_finish(&out);
    pl_form_scratch_finish(&s);
}

START_TEST(every_character_has_the_form_of_the_standard) {
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        char text[16] = "a";
        if (c >= 0xD800 && c <= 0xDFFF) continue;
        size_t n = 1 + pl_utf8_put(c, text + 1);
        n += pl_utf8_put(0x301, text + n);
        if (c > 0x33FF && c < 0xA000 && c % 64) continue; /* ideographs are all alike */
        if (c > 0x30000 && c % 512) continue;
        same_as_utf8proc(text, n, _i);
    }
}
END_TEST

/* F1 of unicode_forms.h. Characters that act on each other: letters, marks of several classes,
 * Hangul, halfwidth voiced marks. */
START_TEST(random_clusters_have_the_form_of_the_standard) {
    static const uint32_t from[] = {'a', 0xC5,   0x300,  0x315,  0x323,  0x345,  0x3099,
                                    ' ', 0x1100, 0x1161, 0x11A8, 0xAC00, 0xFF76, 0xFF9E,
                                    'z', 0x9C7,  0x9BE,  0x1E69, 0x314F, 0x3131, 0x0FB2};
    for (int round = 0; round < 20000; round++) {
        char text[64];
        size_t n = 0;
        for (uint32_t left = 1 + draw(12); left--;)
            n += pl_utf8_put(from[draw(sizeof from / sizeof *from)] + draw(3), text + n);
        same_as_utf8proc(text, n, _i);
    }
}
END_TEST

/* F2 of unicode_forms.h: swapping neighbours would take 10^11 steps. The text is one cluster, whose
 * bytes come from where it begins (F1). */
START_TEST(a_megabyte_of_marks_in_the_wrong_order_is_put_in_order) {
    size_t n = (size_t)1 << 20;
    char *text = malloc(n);
    struct pl_span in = {.s = text, .n = n};
    struct pl_span_buf out = {0};
    struct pl_form_scratch s = {0};
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < n; i += 2) /* U+0301 has class 230, U+0327 has 202 */
        memcpy(text + i, i < n / 2 ? "\xCC\x81" : "\xCC\xA7", 2);
    ck_assert(pl_unicode_form(&out, &in, 0, &s));
    ck_assert_uint_eq(out.n, n);
    ck_assert_mem_eq(out.s, "\xCC\xA7", 2);
    ck_assert_mem_eq(out.s + n - 2, "\xCC\x81", 2);
    ck_assert_uint_eq(out.origin[n - 1], 0);
    pl_span_buf_finish(&out);
    pl_form_scratch_finish(&s);
    free(text);
}
END_TEST

START_TEST(what_is_not_utf8_is_replaced_part_by_part) {
    static const struct {
        const char *bytes, *want;
        size_t good;
    } cases[] = {
        {"abc", "abc", 3},
        {"a\xE2\x82z", "a\xEF\xBF\xBDz", 1},
        {"\xF0\x9F\x98", "\xEF\xBF\xBD", 0},
        {"\xC0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD", 0},
        {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD", 0},
        {"\xE0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD", 0},
        {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD", 0},
        {"12345678\xFF", "12345678\xEF\xBF\xBD", 8},
        {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF", 4},
    };
    struct pl_text out = {0};
    size_t n = strlen(cases[_i].bytes);
    ck_assert_uint_eq(pl_utf8_valid_bytes(cases[_i].bytes, n), cases[_i].good);
    pl_utf8_repair(&out, cases[_i].bytes, n);
    ck_assert_str_eq(pl_text_str(&out), cases[_i].want);
    pl_text_finish(&out);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("unicode_forms");
    TCase *t = tcase_create("forms");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, every_character_has_the_form_of_the_standard, 0, 4);
    tcase_add_loop_test(t, random_clusters_have_the_form_of_the_standard, 0, 4);
    tcase_add_test(t, a_megabyte_of_marks_in_the_wrong_order_is_put_in_order);
    tcase_add_loop_test(t, what_is_not_utf8_is_replaced_part_by_part, 0, 9);
    suite_add_tcase(suite, t);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
