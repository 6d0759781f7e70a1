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

static void compare(const char *text, size_t n, unsigned flags, size_t theirs) {
    json_error_t error;
    struct pl_json_error e = {0};
    json_t *a = json_loadb(text, n, theirs, &error), *b = pl_json_load(text, n, flags, &e);
    bool nul_key = !a && !b; /* both refuse: the sentences differ */
    ck_assert_msg(nul_key || (a && b && json_equal(a, b)), "%.*s: %s; %s", (int)n, text,
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
        compare(text, n, PL_JSON_NUL, JSON_ALLOW_NUL);
        compare(text, n, PL_JSON_ONCE, JSON_REJECT_DUPLICATES);
    }
}
END_TEST

static const struct {
    const char *text;
    uint64_t line, column;
    const char *what;
} refused[] = {
    {"", 1, 1, "ends"},
    {"3", 1, 1, "`{` or `[` expected"},
    {"[1]\n x", 2, 2, "after the JSON value"},
    {"{\"a\":1,\n\"a\":2}", 2, 5, "duplicate key `a`"},
    {"[9223372036854775808]", 1, 2, "too big integer"},
    {"[-9223372036854775809]", 1, 2, "too big negative integer"},
    {"[1e309]", 1, 2, "real number overflow"},
    {"[\"\\u0000\"]", 1, 2, "\\u0000 in a string"},
    {"{\"\\u0000\":1}", 1, 11, "\\u0000 in a key"},
    {"[NaN]", 1, 2, "NaN is not JSON"},
};

START_TEST(a_mistake_is_named_with_its_place) {
    struct pl_json_error e;
    struct pl_diag d = {0};
    ck_assert_ptr_null(pl_json_load(refused[_i].text, strlen(refused[_i].text), PL_JSON_ONCE, &e));
    ck_assert_int_eq(pl_json_refuse(&e, PL_ERR_MODEL_SYNTAX, "file", &d), PL_ERR_MODEL_SYNTAX);
    ck_assert_msg(strstr(d.message, refused[_i].what), "%s", d.message);
    ck_assert_uint_eq(d.line, refused[_i].line);
    ck_assert_uint_eq(d.column, refused[_i].column);
}
END_TEST

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
}
END_TEST

int main(void) {
    json_set_alloc_funcs(pl_malloc, free);
    Suite *s = suite_create("base.json");
    TCase *tc = tcase_create("json");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, what_is_read_is_what_jansson_reads);
    tcase_add_loop_test(tc, a_mistake_is_named_with_its_place, 0, sizeof refused / sizeof *refused);
    tcase_add_test(tc, nesting_has_a_limit);
    tcase_add_loop_test(tc, a_request_that_fails_is_told_and_loses_nothing, 0, 2);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
