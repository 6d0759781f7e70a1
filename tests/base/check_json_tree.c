/* check_json_tree.c - the parser against jansson's, and with every request for memory failing. */
#include "estimator/base/alloc.h"
#include "estimator/base/json_tree.h"

#include <check.h>
#include <string.h>

static const char document[] =
    "{\"text\":\"a \\u00e9\\ud83d\\ude00 \\n\\\\ \xC3\xA9 and more than sixteen letters\",\n"
    " \"x\":[1,-2.5e+3,0,9223372036854775807,-9223372036854775808,1E9,0.1,-0.0,1e-400],\n"
    " \"deep\":[[],{},[{}],{\"a\":[true,false,null]},\"\",\"\\\"\"],\"twice\":1,\"twice\":[2]}";
/* No NUL: jansson loses one that ends a number. */
static const char alphabet[] = "{}[]\",:\\u019aeE+-. \t\n\rtfn\x1F\x7F\x80\xBF\xC2\xE0\xED\xF0\xF4";

static uint64_t state = 1;

static size_t draw(size_t n) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)(state >> 33) % n;
}

/* True for texts that Python reads and jansson does not: numbers beyond a double, halves of
 * surrogates. */
static bool beyond_jansson(const json_error_t *error, unsigned flags) {
    return json_error_code(error) == json_error_numeric_overflow ||
           (!(flags & PL_JSON_TEXT) && strstr(error->text, "invalid Unicode '\\u"));
}

static void compare(const char *text, size_t n, unsigned flags, size_t theirs) {
    json_error_t error;
    struct pl_json_error e = {0};
    json_t *a = json_loadb(text, n, theirs, &error), *b = pl_json_load(text, n, flags, &e);
    bool both_refuse = !a && !b, more = !a && b && beyond_jansson(&error, flags);
    ck_assert_msg(both_refuse || more || (a && b && json_equal(a, b)), "%.*s: %s; %s", (int)n, text,
                  a ? "read" : error.text, b ? "read" : e.what);
    if (!b) ck_assert(!e.no_memory && e.at <= n && e.line > 0 && e.column > 0 && e.what[0]);
    json_decref(a);
    json_decref(b);
}

START_TEST(what_is_read_is_what_jansson_reads) {
    char text[512];
    for (int round = 0; round < 40000; round++) {
        size_t n = strlen(document);
        memcpy(text, document, n);
        for (size_t k = draw(4); k > 0; k--)
            text[draw(n)] = alphabet[draw(sizeof alphabet - 1)];
        compare(text, n, 0, 0);
        compare(text, n, PL_JSON_TEXT, JSON_ALLOW_NUL);
        compare(text, n, PL_JSON_ONCE, JSON_REJECT_DUPLICATES);
    }
}
END_TEST

static const struct {
    const char *text;
    uint64_t line, column;
    const char *what, *hint;
} refused[] = {
    {"", 1, 1, "empty", "download"},
    {"\xEF\xBB\xBF \n", 1, 1, "empty", "download"},
    {"3", 1, 1, "`{` or `[` expected", NULL},
    {"[1]\n x", 2, 2, "after the JSON value", "correct it"},
    {"{}\n{}", 2, 1, "a second value", "correct it"},
    {"\xEF\xBB\xBF[1,\n x]", 2, 2, "`x` where a value", "correct it"},
    {"\xEF\xBB\xBF[x]", 1, 2, "`x` where a value", "correct it"},
    {"{\"a\": [1,", 1, 10, "ends where", "truncated"},
    {"{\"a\": \"b", 1, 9, "unterminated string at the end", "truncated"},
    {"{\"a\": \"b\n\"}", 1, 9, "ends inside a string", "\\n"},
    {"{\"a\": 1,}", 1, 9, "trailing comma", "remove the comma"},
    {"{\"a\": 1, // b\n}", 1, 10, "comments are not JSON", "remove the comment"},
    {"{a: 1}", 1, 2, "key without quotes", "in quotes"},
    {"{\"a\": True}", 1, 7, "`True` is not JSON", "Python"},
    {"\xFF\xFE{", 1, 1, "UTF-16", "iconv"},
    {"<!DOCTYPE html>", 1, 1, "HTML", "download"},
    {"version https://git-lfs.github.com/spec/v1\n", 1, 1, "Git LFS pointer", "git lfs pull"},
    {"\x1F\x8B\x08", 1, 1, "gzip", "gzip -d"},
    {"PK\x03\x04", 1, 1, "zip", "unzip"},
    {"{\"a\":1,\n\"a\":2}", 2, 5, "duplicate key `a`", NULL},
    {"[\"\\u0000\"]", 1, 2, "\\u0000 in a string", NULL},
    {"{\"\\u0000\":1}", 1, 11, "\\u0000 in a key", NULL},
    {"[nan]", 1, 2, "nan is not JSON", "null"},
    {"[-NaN]", 1, 3, "`N` where a digit", NULL},
    {"[NaNa]", 1, 5, "`a` where", NULL},
};

/* JN2 */
START_TEST(a_mistake_is_named_with_its_place) {
    struct pl_json_error e;
    struct pl_diag d = {0};
    ck_assert_ptr_null(pl_json_load(refused[_i].text, strlen(refused[_i].text), PL_JSON_ONCE, &e));
    ck_assert_int_eq(pl_json_refuse(&e, PL_ERR_MODEL_SYNTAX, "file", &d), PL_ERR_MODEL_SYNTAX);
    ck_assert_msg(strstr(d.message, refused[_i].what), "%s", d.message);
    ck_assert_uint_eq(d.line, refused[_i].line);
    ck_assert_uint_eq(d.column, refused[_i].column);
    ck_assert_msg(!refused[_i].hint || strstr(d.hint, refused[_i].hint), "%s", d.hint);
}
END_TEST

static const struct {
    const char *text, *is;
} read[] = {
    {"[9223372036854775807,-9223372036854775808]", "[9223372036854775807,-9223372036854775808]"},
    {"[9223372036854775808]", "[9.2233720368547758e18]"},
    {"[-9223372036854775809]", "[-9.2233720368547758e18]"},
    {"[1000000000000000019884624838656]", "[1e30]"},
    {"[1e309,-1e309]", "[{\"__float__\":\"Infinity\"},{\"__float__\":\"-Infinity\"}]"},
    {"{\"a\":NaN,\"b\": Infinity ,\"c\":-Infinity}",
     "{\"a\":{\"__float__\":\"NaN\"},\"b\":{\"__float__\":\"Infinity\"},"
     "\"c\":{\"__float__\":\"-Infinity\"}}"},
    {"\xEF\xBB\xBF{\"a\":1}", "{\"a\":1}"},
    {"{\"a\":1,\"a\":2}", "{\"a\":2}"},
    {"[\"\\ud83d\",\"x\\udc00y\",\"\\ud800\\ud83d\\ude00\"]",
     "[\"\xEF\xBF\xBD\",\"x\xEF\xBF\xBDy\",\"\xEF\xBF\xBD\xF0\x9F\x98\x80\"]"},
};

/* N3 of json_scan.h and JN4: numbers of any size are read, and stay told apart. */
START_TEST(what_python_writes_is_read) {
    json_t *is = json_loads(read[_i].is, 0, NULL);
    json_t *v = pl_json_load(read[_i].text, strlen(read[_i].text), 0, NULL);
    ck_assert_msg(is && v && json_equal(v, is), "%s", read[_i].text);
    json_decref(v);
    json_decref(is);
}
END_TEST

START_TEST(what_is_not_finite_is_told_apart) {
    static const char text[] = "[NaN,1e999,-Infinity,{\"__float__\":\"NaN\"},{},1e30,\"NaN\"]";
    static const char *const words[] = {"NaN", "Infinity", "-Infinity", "NaN", NULL, NULL, NULL};
    json_t *v = pl_json_load(text, strlen(text), 0, NULL);
    ck_assert_uint_eq(json_array_size(v), sizeof words / sizeof *words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        ck_assert_pstr_eq(pl_json_not_finite(json_array_get(v, i)), words[i]);
    json_decref(v);
}
END_TEST

/* A token must not become another one. */
START_TEST(half_a_character_is_refused_where_texts_matter) {
    static const char text[] = "[\"\\ud83d\"]";
    struct pl_json_error e;
    ck_assert_ptr_null(pl_json_load(text, strlen(text), PL_JSON_TEXT, &e));
    ck_assert_msg(strstr(e.what, "surrogate"), "%s", e.what);
}
END_TEST

/* N1 of json_scan.h and JN2: nesting beyond PL_SCAN_DEPTH is a mistake of the text. */
START_TEST(nesting_has_a_limit) {
    char text[2000];
    memset(text, '[', 1000);
    memset(text + 1000, ']', 1000);
    ck_assert_ptr_null(pl_json_load(text, 2000, 0, NULL));
    json_t *v = pl_json_load(text + 500, 1000, 0, NULL);
    ck_assert_ptr_nonnull(v);
    json_decref(v);
}
END_TEST

/* Parses, builds and prints; NULL where a request failed. */
static char *work(bool *no_memory) {
    struct pl_json_error e = {0};
    json_t *root = pl_json_load(document, strlen(document), 0, &e);
    *no_memory = e.no_memory;
    if (!root) return NULL;
    json_t *list = json_array(), *object = json_object();
    for (int i = 0; i < 40; i++)
        pl_json_append(&list, json_integer(i));
    pl_json_set(&object, "list", list);
    pl_json_merge(&object, root);
    char *text = pl_json_dump(object, JSON_SORT_KEYS);
    *no_memory = text == NULL;
    json_decref(object);
    json_decref(root);
    return text;
}

/* JN1. JN3: the functions that main() gave to jansson are there after all of it. */
START_TEST(a_request_that_fails_is_told_and_loses_nothing) {
    bool no_memory;
    char *whole = work(&no_memory);
    ck_assert_ptr_nonnull(whole);
    uint64_t failed = 0;
    for (bool done = false; !done; failed++) {
        pl_alloc_fail(failed + 1, _i ? UINT64_MAX : 1);
        char *text = work(&no_memory);
        done = pl_alloc_requests() <= failed;
        pl_alloc_fail(0, 0);
        if (done) ck_assert(text != NULL);
        ck_assert_msg(text ? strcmp(text, whole) == 0 : no_memory, "request %d: %s",
                      (int)failed + 1, text ? text : "NULL, and not for memory");
        free(text);
    }
    ck_assert_uint_gt(failed, 100);
    free(whole);
    json_malloc_t takes;
    json_free_t gives;
    json_get_alloc_funcs(&takes, &gives);
    ck_assert(takes == pl_malloc && gives == free);
}
END_TEST

int main(void) {
    json_set_alloc_funcs(pl_malloc, free);
    Suite *s = suite_create("base.json");
    TCase *tc = tcase_create("json");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, what_is_read_is_what_jansson_reads);
    tcase_add_loop_test(tc, a_mistake_is_named_with_its_place, 0, sizeof refused / sizeof *refused);
    tcase_add_loop_test(tc, what_python_writes_is_read, 0, sizeof read / sizeof *read);
    tcase_add_test(tc, what_is_not_finite_is_told_apart);
    tcase_add_test(tc, half_a_character_is_refused_where_texts_matter);
    tcase_add_test(tc, nesting_has_a_limit);
    tcase_add_loop_test(tc, a_request_that_fails_is_told_and_loses_nothing, 0, 2);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
