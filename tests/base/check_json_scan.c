/* check_json_scan.c - the scanner against jansson, an independent parser, on damaged JSON. */
#include "estimator/base/json_scan.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const seeds[] = {
    "{\"text\":\"a \\u00e9\\ud83d\\ude00 \\n\\\\ "
    "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\",\"x\":[1,-2.5e+3,0]}",
    "[[],{},[{}],{\"a\":[true,false,null]},\"\",\"\\\"\",0.0,-0,1E9]",
    " { \"a\" : { \"b\" : [ 1 , { \"c\" : \"d\" } , [ ] ] } , \"e\" : \"\\u20AC\\/\" }\r\n",
    "[\"\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF\xC2\x80\xE0\xA0\x80\xF0\x90\x80\x80\","
    "\"\\u0000\"]",
};
/* Bytes that matter to the grammar, so that damage is often subtle. No NUL: jansson loses one that
 * ends a number. */
static const char alphabet[] = "{}[]\",:\\u019aeE+-. \t\n\rtfn\x1F\x7F\x80\xBF\xC2\xE0\xED\xF0\xF4";

static uint64_t state;

static size_t draw(size_t n) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)(state >> 33) % n;
}

static size_t damage(char *text, size_t n) {
    for (size_t k = 1 + draw(3); k > 0 && n > 1; k--) {
        size_t at = draw(n), kind = draw(4);
        if (kind == 0) { /* cut a byte out */
            memmove(text + at, text + at + 1, --n - at);
        } else if (kind == 1) { /* double it */
            memmove(text + at + 1, text + at, n - at);
            n++;
        } else {
            text[at] = alphabet[draw(sizeof alphabet - 1)];
        }
    }
    return n;
}

/* Some JSON is beyond jansson: numbers beyond a double, NUL in a key. Python writes a lone
 * surrogate. */
static bool jansson_accepts(const char *text, size_t n) {
    json_error_t e;
    json_t *v = json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &e);
    if (!v)
        return json_error_code(&e) == json_error_numeric_overflow ||
               strstr(e.text, "invalid Unicode '\\u");
    json_decref(v);
    return true;
}

static bool scan_accepts(const char *text, size_t n, struct pl_scan *s) {
    *s = (struct pl_scan){.text = text, .n = n};
    return pl_scan_skip(s) && pl_scan_end(s);
}

/* N2: pl_scan_skip() finds what a parser of all values finds. N4: a problem stays the first one. */
START_TEST(scanner_and_jansson_agree_on_damaged_rows) {
    int good = 0, bad = 0;
    state = (uint64_t)_i;
    for (int round = 0; round < 20000; round++) {
        char text[256];
        struct pl_scan s;
        size_t n = strlen(seeds[_i]);
        memcpy(text, seeds[_i], n);
        n = damage(text, n);
        char *exact = malloc(n); /* so that a read past the end is seen by the sanitizer */
        ck_assert_ptr_nonnull(exact);
        memcpy(exact, text, n);
        bool mine = scan_accepts(exact, n, &s), theirs = jansson_accepts(exact, n);
        /* jansson has no such key; the scanner must have read it as a string all the same */
        bool nul_key = !theirs && mine && memmem(exact, n, "\\u0000", 6);
        bool stopped = theirs && !mine && memmem(exact, n, "\\u", 2); /* jansson, before the end */
        ck_assert_msg(mine == theirs || nul_key || stopped, "%.*s: %s at %zu", (int)n, text, s.what,
                      s.where);
        ck_assert(s.where <= n);
        const struct pl_scan first = s;
        if (!mine) ck_assert(!pl_scan_skip(&s) && !pl_scan_enter(&s) && !pl_scan_end(&s));
        ck_assert_uint_eq(s.where, first.where);
        ck_assert_str_eq(s.what, first.what);
        good += mine;
        bad += !mine;
        free(exact);
    }
    ck_assert_msg(good > 100 && bad > 5000, "%d good, %d bad: the damage is one-sided", good, bad);
}
END_TEST

START_TEST(decoded_strings_are_jansson_s) {
    json_t *v = json_loads(seeds[_i], JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL), *item;
    struct pl_scan s = {.text = seeds[_i], .n = strlen(seeds[_i])};
    struct pl_text got = {0};
    size_t i = 0;
    ck_assert_ptr_nonnull(v);
    if (!json_is_array(v)) {
        struct pl_text key = {0};
        ck_assert(pl_scan_enter(&s));
        for (; pl_scan_next_key(&s, &key); i++) {
            item = json_object_get(v, pl_text_str(&key));
            ck_assert_ptr_nonnull(item);
            got.len = 0;
            if (!json_is_string(item)) {
                ck_assert(pl_scan_skip(&s));
                continue;
            }
            ck_assert(pl_scan_string(&s, &got));
            ck_assert_uint_eq(got.len, json_string_length(item));
            ck_assert_mem_eq(got.data, json_string_value(item), got.len);
        }
        ck_assert_uint_eq(i, json_object_size(v));
        pl_text_finish(&key);
    } else {
        ck_assert(pl_scan_enter_array(&s));
        for (; pl_scan_next_element(&s); i++) {
            item = json_array_get(v, i);
            got.len = 0;
            if (!json_is_string(item)) {
                ck_assert(pl_scan_skip(&s));
                continue;
            }
            ck_assert(pl_scan_string(&s, &got));
            ck_assert_uint_eq(got.len, json_string_length(item));
            ck_assert_mem_eq(got.data, json_string_value(item), got.len);
        }
        ck_assert_uint_eq(i, json_array_size(v));
    }
    ck_assert(pl_scan_end(&s));
    pl_text_finish(&got);
    json_decref(v);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("json_scan");
    TCase *t = tcase_create("against jansson");
    int n = (int)(sizeof seeds / sizeof *seeds);
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, scanner_and_jansson_agree_on_damaged_rows, 0, n);
    tcase_add_loop_test(t, decoded_strings_are_jansson_s, 0, n);
    suite_add_tcase(suite, t);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
