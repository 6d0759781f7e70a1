/* check_scalar.c - what a scalar means under YAML 1.2, how it is written, and how it is shown. */
#include "estimator/config/scalar.h"

#include <check.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

static uint64_t state;

static uint64_t draw(void) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return state ^ state >> 29;
}

static const struct {
    const char *text;
    enum pl_int kind;
    uint64_t value;
} ints[] = {
    {"0", PL_INT_OK, 0},
    {"-0", PL_INT_OK, 0},
    {"+7", PL_INT_OK, 7},
    {"007", PL_INT_OK, 7},
    {"0x1F", PL_INT_OK, 31},
    {"0o17", PL_INT_OK, 15},
    {"18446744073709551615", PL_INT_OK, UINT64_MAX},
    {"0xFFFFFFFFFFFFFFFF", PL_INT_OK, UINT64_MAX},
    {"0o1777777777777777777777", PL_INT_OK, UINT64_MAX},
    {"18446744073709551616", PL_INT_TOO_LARGE, 0},
    {"0x10000000000000000", PL_INT_TOO_LARGE, 0},
    {"99999999999999999999999999", PL_INT_TOO_LARGE, 0},
    {"-1", PL_INT_NEGATIVE, 0},
    {"-99999999999999999999999999", PL_INT_NEGATIVE, 0},
    {"-18446744073709551616", PL_INT_NEGATIVE, 0}, /* 0 modulo 2^64 */
    {"", PL_INT_NONE, 0},
    {"-", PL_INT_NONE, 0},
    {"+", PL_INT_NONE, 0},
    {"0x", PL_INT_NONE, 0},
    {"0o", PL_INT_NONE, 0},
    {"0o8", PL_INT_NONE, 0},
    {"0xG", PL_INT_NONE, 0},
    {"0X1F", PL_INT_NONE, 0},
    {"-0x1F", PL_INT_NONE, 0},
    {"1_000", PL_INT_NONE, 0},
    {"1 ", PL_INT_NONE, 0},
    {" 1", PL_INT_NONE, 0},
    {"1.0", PL_INT_NONE, 0},
    {"1e3", PL_INT_NONE, 0},
    {"++1", PL_INT_NONE, 0},
    {"99999999999999999999999999x", PL_INT_NONE, 0},
};

START_TEST(an_integer_is_read_in_its_base_or_not_at_all) {
    uint64_t v = 99;
    ck_assert_msg(pl_scalar_int(ints[_i].text, &v) == ints[_i].kind, "%s", ints[_i].text);
    ck_assert_uint_eq(v, ints[_i].kind == PL_INT_OK ? ints[_i].value : 99);
}
END_TEST

static const struct {
    const char *text;
    bool is;
    double value; /* NAN: not finite */
} floats[] = {
    {"0.5", true, 0.5},   {".5", true, 0.5},    {"5.", true, 5},     {"-1e-3", true, -0.001},
    {"+2E+2", true, 200}, {"0x10", true, 16},   {"0o10", true, 8},   {"12", true, 12},
    {".inf", true, NAN},  {"-.INF", true, NAN}, {".NaN", true, NAN}, {"1e999", true, INFINITY},
    {"1e-999", true, 0},  {".", false, 0},      {"", false, 0},      {"e5", false, 0},
    {"1e", false, 0},     {"1e+", false, 0},    {"1.2.3", false, 0}, {"1,5", false, 0},
    {"inf", false, 0},    {"nan", false, 0},    {"0x1p4", false, 0}, {"1.5 ", false, 0},
    {"-", false, 0},      {"--1", false, 0},    {"1_0.5", false, 0}, {"infinity", false, 0},
    {"+.nan", true, NAN},
};

START_TEST(a_number_is_what_the_core_schema_says) {
    double v = 99;
    ck_assert_msg(pl_scalar_float(floats[_i].text, &v) == floats[_i].is, "%s", floats[_i].text);
    if (!floats[_i].is)
        ck_assert_double_eq(v, 99);
    else if (isfinite(floats[_i].value))
        ck_assert_double_eq(v, floats[_i].value);
    else
        ck_assert(!isfinite(v));
}
END_TEST

START_TEST(words_of_the_schema_and_no_others) {
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    static const char *const none[] = {"nULL", "nil", "none", "None", "0", " ", "~~"};
    static const char *const neither[] = {"yes", "no", "on", "off", "tRUE", "y", "1", "0", ""};
    bool flag = true;
    for (int i = 0; i < COUNT(nulls); i++)
        ck_assert_msg(pl_scalar_null(nulls[i]), "%s", nulls[i]);
    for (int i = 0; i < COUNT(none); i++)
        ck_assert_msg(!pl_scalar_null(none[i]), "%s", none[i]);
    for (int i = 0; i < COUNT(neither); i++)
        ck_assert_msg(!pl_scalar_bool(neither[i], &flag) && flag, "%s", neither[i]);
    ck_assert(pl_scalar_bool("FALSE", &flag) && !flag);
    ck_assert(pl_scalar_bool("True", &flag) && flag);
}
END_TEST

/* S3: 17 digits suffice, fewer are written where they do, and the text is a number of YAML. */
START_TEST(a_double_is_written_so_that_it_reads_back) {
    static const double known[] = {0,       -0.0, 1,      100,    99999, 100000,
                                   0.1,     2e-4, 1e-320, 5e-324, 1e308, -1.7976931348623157e308,
                                   1.0 / 3, 3e10, -42};
    state = 5;
    for (int round = 0; round < 20000; round++) {
        struct pl_text text = {0};
        double v, again = 0;
        const uint64_t bits = draw();
        memcpy(&v, &bits, sizeof v);
        if (round < COUNT(known)) v = known[round];
        if (!isfinite(v)) continue;
        pl_scalar_write_f64(&text, v);
        ck_assert_msg(pl_scalar_float(pl_text_str(&text), &again), "%s", pl_text_str(&text));
        ck_assert_msg(memcmp(&again, &v, sizeof v) == 0, "%s", pl_text_str(&text));
        ck_assert_uint_le(text.len, 24);
        pl_text_finish(&text);
    }
}
END_TEST

static const struct {
    double v;
    const char *text;
} written_numbers[] = {{100, "100"},   {0.1, "0.1"},       {2e-4, "0.0002"}, {1e-5, "1e-05"},
                       {1e5, "1e+05"}, {123456, "123456"}, {-0.5, "-0.5"},   {0, "0"}};

START_TEST(a_double_is_written_short) {
    struct pl_text text = {0};
    pl_scalar_write_f64(&text, written_numbers[_i].v);
    ck_assert_str_eq(pl_text_str(&text), written_numbers[_i].text);
    pl_text_finish(&text);
}
END_TEST

static const struct {
    const char *text, *written;
} strings[] = {
    {"qwen2.5-7b", "qwen2.5-7b"},
    {"a/b_c.d-e", "a/b_c.d-e"},
    {"", "\"\""},
    {"true", "\"true\""},
    {"Off", "\"Off\""},
    {"y", "\"y\""},
    {"null", "\"null\""},
    {"12", "\"12\""},
    {"1e3", "\"1e3\""},
    {"0x1F", "\"0x1F\""},
    {".inf", "\".inf\""},
    {"-a", "\"-a\""},
    {"a b", "\"a b\""},
    {"a: b", "\"a: b\""},
    {"a#b", "\"a#b\""},
    {"say \"hi\"", "\"say \\\"hi\\\"\""},
    {"a\\b", "\"a\\\\b\""},
    {"line\nline\ttab", "\"line\\nline\\ttab\""},
    {"\x7f", "\"\\x7F\""},
    {"\xC2\x85", "\"\\x85\""},
    {"\xC2\xA0", "\"\xC2\xA0\""},
    {"\xE2\x80\xA8", "\"\\u2028\""},
    {"\xEF\xBB\xBF", "\"\\uFEFF\""},
    {"\xEF\xBF\xBF", "\"\\uFFFF\""},
    {"gr\xC3\xBC\xC3\x9F", "\"gr\xC3\xBC\xC3\x9F\""},
    {"\xF0\x9F\x98\x80", "\"\xF0\x9F\x98\x80\""},
};

/* S2 */
START_TEST(a_string_is_quoted_where_a_reader_could_take_it_for_something_else) {
    struct pl_text text = {0};
    pl_scalar_write(&text, strings[_i].text);
    ck_assert_str_eq(pl_text_str(&text), strings[_i].written);
    pl_text_finish(&text);
}
END_TEST

static unsigned encode(uint32_t c, char out[5]) {
    const unsigned n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    out[n] = 0;
    for (unsigned i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)(lead[n] | c);
    return n;
}

START_TEST(every_scalar_value_decodes_to_itself) {
    for (uint32_t c = 1; c <= 0x10FFFF; c++) {
        char s[5];
        uint32_t got = 0;
        const unsigned n = encode(c, s);
        const bool surrogate = c >= 0xD800 && c <= 0xDFFF;
        const unsigned length = pl_utf8_next(s, &got);
        if (length != (surrogate ? 0 : n) || (!surrogate && got != c))
            ck_abort_msg("U+%04" PRIX32 ": %u, U+%04" PRIX32, c, length, got);
    }
}
END_TEST

static const char *const broken[] = {
    "\x80",
    "\xBF",
    "\xC0\x80",
    "\xC1\xBF",
    "\xC3",
    "\xC3(",
    "\xE0\x80\x80",
    "\xE0\x9F\xBF",
    "\xE2\x82",
    "\xED\xA0\x80",
    "\xED\xBF\xBF",
    "\xF0\x80\x80\x80",
    "\xF0\x8F\xBF\xBF",
    "\xF4\x90\x80\x80",
    "\xF5\x80\x80\x80",
    "\xF8\x88\x80\x80\x80",
    "\xFF",
    "\xFE",
    "\xF0\x9F\x98",
};

START_TEST(anything_else_is_no_utf8) {
    uint32_t c = 99;
    char text[16];
    ck_assert_uint_eq(pl_utf8_next(broken[_i], &c), 0);
    snprintf(text, sizeof text, "ok%s", broken[_i]);
    ck_assert(!pl_utf8_valid(text));
    ck_assert(pl_utf8_valid("ok"));
}
END_TEST

/* Never longer than its buffer, cut between characters, printable whatever it is made of. */
START_TEST(an_excerpt_is_short_and_printable) {
    state = 17;
    for (int round = 0; round < 20000; round++) {
        char text[160], room[PL_EXCERPT_BYTES + 8], *buf = room;
        memset(room, 'x', sizeof room);
        size_t n = draw() % (sizeof text - 1);
        for (size_t i = 0; i < n; i++) {
            text[i] = (char)(round % 2 ? 0x20 + draw() % 95 : 1 + draw() % 255);
            if (round % 3 == 0 && i + 3 < n) memcpy(text + i, "\xE2\x82\xAC", 3), i += 2;
        }
        text[n] = 0;
        ck_assert_ptr_eq(pl_scalar_excerpt(text, buf), buf);
        const size_t shown = strlen(buf);
        ck_assert_mem_eq(room + PL_EXCERPT_BYTES, "xxxxxxxx", 8);
        ck_assert_msg(pl_utf8_valid(buf), "%s", buf);
        for (const char *c = buf; *c; c++)
            if ((unsigned char)*c < 0x20 || *c == 0x7F) ck_abort_msg("%s", buf);
        if (n < PL_EXCERPT_BYTES - 4 && round % 2 && round % 3) ck_assert_str_eq(buf, text);
        if (n >= PL_EXCERPT_BYTES) ck_assert_str_eq(buf + shown - 3, "...");
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("config.scalar");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, an_integer_is_read_in_its_base_or_not_at_all, 0, COUNT(ints));
    tcase_add_loop_test(t, a_number_is_what_the_core_schema_says, 0, COUNT(floats));
    tcase_add_test(t, words_of_the_schema_and_no_others);
    tcase_add_test(t, a_double_is_written_so_that_it_reads_back);
    tcase_add_loop_test(t, a_double_is_written_short, 0, COUNT(written_numbers));
    tcase_add_loop_test(t, a_string_is_quoted_where_a_reader_could_take_it_for_something_else, 0,
                        COUNT(strings));
    tcase_add_test(t, every_scalar_value_decodes_to_itself);
    tcase_add_loop_test(t, anything_else_is_no_utf8, 0, COUNT(broken));
    tcase_add_test(t, an_excerpt_is_short_and_printable);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
