/* check_jinja.c - templates rendered as transformers renders them, and the limits of rendering.
 *
 * jinja/cases.jsonl has what jinja/make_cases.py wrote: the variables, and a template a line with
 * its text, or the error that Python raised. */
#include "runtime/data/jinja/jinja.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct pl_jinja_memory memory;
static const struct pl_jinja_inputs day = {.year = 2025, .month = 1, .day = 2};

static pl_err render(const char *text, size_t n, const char *variables, struct pl_text *out,
                     struct pl_jinja_spans *spans, struct pl_diag *d) {
    struct pl_jinja_inputs in = day;
    struct pl_jinja *program = NULL;
    struct pl_jinja_value v = {0};
    struct pl_scan scan = {.text = variables, .n = strlen(variables)};
    pl_jinja_begin(&memory);
    ck_assert_msg(pl_jinja_read_json(&memory, &scan, &v), "%s", scan.what);
    in.variables = v.map;
    pl_err err = pl_jinja_parse(text, n, "case", &program, d);
    if (err == PL_ERR_OK) err = pl_jinja_render(program, &memory, &in, out, spans, d);
    pl_jinja_close(&program);
    return err;
}

/* A template that Python renders may be refused, by saying so; never rendered differently. False:
 * what is wrong was printed. */
static bool check_case(const json_t *row, const char *variables, size_t line, size_t *refused) {
    const json_t *template = json_object_get(row, "template");
    const json_t *want = json_object_get(row, "rendered");
    const char *wanted = want ? json_string_value(want) : "an error";
    struct pl_text out = {0};
    struct pl_diag d = {0};
    pl_err err = render(json_string_value(template), json_string_length(template), variables, &out,
                        NULL, &d);
    bool same = err == PL_ERR_OK && want && json_string_length(want) == out.len &&
                memcmp(pl_text_str(&out), wanted, out.len) == 0;
    bool says_so = strstr(d.message, "not supported") != NULL;
    bool failed = err == PL_ERR_DATA_TEMPLATE && d.line > 0 && d.column > 0;
    bool good = err == PL_ERR_OK ? same : failed && (!want || says_so);
    if (!good)
        printf("line %zu: %s\n  want %s\n  got  %s %s\n", line, json_string_value(template), wanted,
               pl_text_str(&out), d.message);
    *refused += err != PL_ERR_OK && want;
    if (err != PL_ERR_OK && want && good) printf("line %zu: refused: %s\n", line, d.message);
    pl_text_finish(&out);
    return good;
}

START_TEST(templates_are_rendered_as_python_renders_them) {
    char *line = NULL, *variables = NULL;
    size_t cap = 0, n_line = 0, refused = 0, wrong = 0;
    FILE *f = fopen(DATA "/jinja/cases.jsonl", "r");
    ck_assert_ptr_nonnull(f);
    for (ssize_t n; (n = getline(&line, &cap, f)) >= 0;) {
        json_t *row = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, NULL);
        ck_assert_ptr_nonnull(row);
        if (n_line++ == 0)
            variables = json_dumps(json_object_get(row, "variables"), 0);
        else
            wrong += !check_case(row, variables, n_line, &refused);
        json_decref(row);
    }
    free(line);
    free(variables);
    fclose(f);
    ck_assert_uint_gt(n_line, 350);
    ck_assert_msg(wrong == 0, "%zu cases are wrong", wrong);
    ck_assert_msg(refused <= 16, "%zu cases are refused that Python renders", refused);
    printf("%zu cases, %zu of them refused\n", n_line - 1, refused);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("jinja");
    TCase *t = tcase_create("jinja");
    tcase_add_test(t, templates_are_rendered_as_python_renders_them);
    suite_add_tcase(suite, t);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    pl_jinja_memory_finish(&memory);
    return failed != 0;
}
