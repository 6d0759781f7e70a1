/* check_jinja.c - templates rendered as transformers renders them, and the limits of rendering.
 *
 * jinja/cases.jsonl has what jinja/make_cases.py wrote: the variables, and a template a line with
 * its text, or the error that Python raised. */
#include "estimator/config/scalar.h"
#include "runtime/data/jinja/jinja.h"

#include <check.h>
#include <jansson.h>
#include <pthread.h>
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

/* J1 of jinja.h, L1 of lex.h and C1 of chars.h */
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
    ck_assert_uint_gt(n_line, 450);
    ck_assert_msg(wrong == 0, "%zu cases are wrong", wrong);
    ck_assert_msg(refused <= 16, "%zu cases are refused that Python renders", refused);
    printf("%zu cases, %zu of them refused\n", n_line - 1, refused);
}
END_TEST

#define BIG "{% set s = 'x' * 1000 * 1000 %}"

/* No program hangs, or takes more than its share of memory. */
static const struct {
    const char *template, *said;
} limits[] = {
    {"{% set s = 'x' * 90000 %}{% for a in s %}{% for b in s %}{% endfor %}{% endfor %}",
     "does not come to an end"},
    {"{% for a in range(90000) %}{% set b = 'y' in 'x' * 90000 %}{% endfor %}",
     "does not come to an end|MiB for its values"},
    {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested too deeply"},
    {"{% set ns = namespace(l=[]) %}{% for a in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}"
     "{{ ns.l }}",
     "nested too deeply"},
    {"{% set ns = namespace(x=range(3)) %}{% for i in range(9999) %}"
     "{% set ns.x = ns.x | map('string') %}{% endfor %}{{ ns.x | list }}",
     "nested too deeply"},
    {BIG "{% for a in range(99) %}{{ s }}{% endfor %}", "renders more than 8 MiB"},
    {BIG "{% for a in range(99) %}{% set t = s * 2 %}{% endfor %}", "24 MiB for its values"},
    {"{{ 'x' * 9223372036854775807 }}", "24 MiB for its values"},
    {"{{ [1] * 9223372036854775807 }}", "24 MiB for its values"},
    {"{{ 'abc'.replace('', 'x' * 1000000) * 99 }}", "24 MiB for its values"},
    {"{% for a in range(9, -9223372036854775807, -9223372036854775807) %}{{ a }}{% endfor %}"
     "{{ 'abc'[::-9223372036854775807] }}{{ 'abc'[9223372036854775807::] }}!",
     NULL},
};

/* J2 of jinja.h and R2 of run.h */
START_TEST(a_program_meets_its_limits_soon) {
    struct pl_text out = {0};
    struct pl_diag d = {0};
    struct timespec begin, end;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    pl_err err = render(limits[_i].template, strlen(limits[_i].template), "{}", &out, NULL, &d);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    bool said = false;
    char all[128];
    snprintf(all, sizeof all, "%s", limits[_i].said ? limits[_i].said : "");
    for (char *rest = all, *one; (one = strsep(&rest, "|")) != NULL;)
        said |= strstr(d.message, one) != NULL;
    ck_assert_msg(said && (err == PL_ERR_OK) == !limits[_i].said, "%s", d.message);
    ck_assert_uint_le(memory.arena.used_bytes, memory.arena.limit_bytes);
    ck_assert_int_lt(end.tv_sec - begin.tv_sec, 60); /* a second or two on an idle machine */
    pl_text_finish(&out);
}
END_TEST

START_TEST(filters_of_a_block_nest_only_so_deep) {
    struct pl_text text = {0}, out = {0};
    struct pl_diag d = {0};
    pl_text_add(&text, "{% filter upper");
    for (int i = 0; i < 10000; i++)
        pl_text_add(&text, " | upper");
    pl_text_add(&text, " %}x{% endfilter %}");
    ck_assert_int_eq(render(pl_text_str(&text), text.len, "{}", &out, NULL, &d),
                     PL_ERR_TEMPLATE_LIMIT);
    pl_text_finish(&text);
    pl_text_finish(&out);
}
END_TEST

/* T2 of tree.h */
START_TEST(brackets_and_blocks_nest_only_so_deep) {
    static const char *const open[] = {"(", "[", "{1:", "-", "not ", "x if y else ", "x(", "x["};
    struct pl_text text = {0}, out = {0};
    struct pl_diag d = {0};
    pl_text_add(&text, "{{ ");
    for (int i = 0; i < 20000; i++)
        pl_text_add(&text, open[_i]);
    pl_text_add(&text, " }}");
    ck_assert_int_eq(render(pl_text_str(&text), text.len, "{}", &out, NULL, &d),
                     PL_ERR_DATA_TEMPLATE);
    ck_assert_msg(strstr(d.message, "nested too deeply") != NULL, "%s", d.message);
    text.len = 0;
    for (int i = 0; i < 20000; i++)
        pl_text_add(&text, "{% if x %}");
    d = (struct pl_diag){0};
    ck_assert_int_eq(render(pl_text_str(&text), text.len, "{}", &out, NULL, &d),
                     PL_ERR_DATA_TEMPLATE);
    ck_assert_msg(strstr(d.message, "nested too deeply") != NULL, "%s", d.message);
    pl_text_finish(&text);
    pl_text_finish(&out);
}
END_TEST

/* A user reads the text of an exception of a program, so there always is one. */
static const struct {
    const char *template, *said;
} raised[] = {
    {"{{ raise_exception('no ' ~ 'tools') }}", "no tools"},
    {"{{ raise_exception('a' ~ '\xC3\xA9' * 600) }}", "a\xC3\xA9\xC3\xA9\xC3\xA9"},
    {"{{ {}['x' * 127 ~ '\xC3\xA9'].y }}", "'dict object' has no attribute 'xxx"},
    {"{{ [1] | map('x' * 63 ~ '\xC3\xA9') | list }}", "there is no filter `xxx"},
    {"{{ raise_exception('') }}", "without a text"},
    {"{{ raise_exception(nothing_of_that_name) }}", "without a text"},
    {"{{ raise_exception('\\x00a') }}", "without a text"},
    {"{{ raise_exception(' \\n') }}", "without a text"},
};

START_TEST(an_exception_says_something) {
    struct pl_text out = {0};
    struct pl_diag d = {0};
    ck_assert_int_eq(render(raised[_i].template, strlen(raised[_i].template), "{}", &out, NULL, &d),
                     PL_ERR_DATA_TEMPLATE);
    ck_assert_msg(strstr(d.message, raised[_i].said) != NULL, "'%s'", d.message);
    ck_assert_msg(pl_utf8_valid(d.message), "'%s' ends within a character", d.message);
    pl_text_finish(&out);
}
END_TEST

/* Features of Python that this lacks are refused by name, with their position. */
static const struct {
    const char *template, *said;
} unsupported[] = {
    {"{% for a in [1] recursive %}{{ a }}{% endfor %}", "recursive loops"},
    {"{{ 'a b'.rsplit(None, 1) }}", "rsplit at white space with a limit"},
    {"{{ 'abc'.find('b', 0, 2) }}", "find within a part"},
    {"{{ strftime_now('%s') }}", "strftime_now(): %s is not supported"},
    {"{{ strftime_now('%') }}", "is not supported"},
    {"{{ strftime_now('x' * 200) }}", "this format is not supported"},
    {"{{ 9223372036854775807 + 1 }}", "integers beyond 64 bits"},
    {"{{ 2 ** 64 }}", "not supported|too large"},
    {"{{ -(-9223372036854775807 - 1) }}", "integers beyond 64 bits"},
    {"{{ 4611686018427387904 * 2 }}", "integers beyond 64 bits"},
    {"{{ x.__class__ }}", "names that begin with __"},
    {"{{ [{'a': 1}] | sort(attribute='a,b') }}", "several attributes"},
    {"{{ lipsum() }}", "not supported"},
    {"{{ 1.5 | round(1, 'half') }}", "method"},
};

/* G2 of parse.h */
START_TEST(what_is_not_done_as_python_does_it_is_refused_by_name) {
    static const char variables[] = "{\"x\": {}}";
    struct pl_text out = {0};
    struct pl_diag d = {0};
    const char *template = unsupported[_i].template;
    ck_assert_int_eq(render(template, strlen(template), variables, &out, NULL, &d),
                     PL_ERR_DATA_TEMPLATE);
    char all[64];
    bool said = false;
    snprintf(all, sizeof all, "%s", unsupported[_i].said);
    for (char *rest = all, *one; (one = strsep(&rest, "|")) != NULL;)
        said |= strstr(d.message, one) != NULL;
    ck_assert_msg(said, "%s: %s", template, d.message);
    ck_assert_uint_eq(d.line, 1);
    ck_assert_uint_gt(d.column, 2);
    pl_text_finish(&out);
}
END_TEST

/* A list in a list, and so on, as a row may hold it in a string that nothing has looked at yet. */
START_TEST(values_nest_only_so_deep) {
    struct pl_text text = {0};
    struct pl_jinja_value v;
    for (int i = 0; i < 1000000; i++)
        pl_text_add(&text, _i ? "{\"a\":" : "[");
    struct pl_scan scan = {.text = pl_text_str(&text), .n = text.len};
    pl_jinja_begin(&memory);
    ck_assert(!pl_jinja_read_json(&memory, &scan, &v));
    ck_assert_msg(strstr(scan.what, "nested deeper than") != NULL, "%s", scan.what);
    pl_text_finish(&text);
}
END_TEST

/* A longer input raises the limits, and the text that is read is little more than the input. */
START_TEST(a_long_row_is_read_in_little_more_than_its_bytes) {
    static const char template[] = "{% for m in messages %}{{ m.content | trim }}\n{% endfor %}";
    struct pl_text row = {0}, out = {0};
    struct pl_diag d = {0};
    pl_text_add(&row, "{\"messages\":[");
    for (int i = 0; i < 40000; i++) {
        pl_text_add(&row, i ? ",{\"content\":\"" : "{\"content\":\"");
        for (int k = 0; k < 50; k++)
            pl_text_add(&row, "some words of a text");
        pl_text_add(&row, "\"}");
    }
    pl_text_add(&row, "]}");
    pl_err err = render(template, sizeof template - 1, pl_text_str(&row), &out, NULL, &d);
    ck_assert_msg(err == PL_ERR_OK, "%s", d.message);
    ck_assert_uint_eq(out.len, 40000 * 1001);
    ck_assert_msg(memory.arena.used_bytes < row.len, "%llu bytes for a row of %zu",
                  (unsigned long long)memory.arena.used_bytes, row.len);
    pl_text_finish(&row);
    pl_text_finish(&out);
}
END_TEST

START_TEST(generation_blocks_are_told_by_bytes) {
    static const char text[] = "\xC3\xA9{% for a in 'xy' %}{% generation %}\xC3\xA9{{ a }}"
                               "{% endgeneration %}-{% endfor %}";
    static const char captured[] = "{% set a %}{% generation %}x{% endgeneration %}{% endset %}";
    struct pl_jinja_spans spans = {0};
    struct pl_text out = {0};
    struct pl_diag d = {0};
    ck_assert_int_eq(render(text, sizeof text - 1, "{}", &out, &spans, &d), PL_ERR_OK);
    ck_assert_uint_eq(spans.n, 2);
    ck_assert(spans.items[0].begin == 2 && spans.items[0].end == 5);
    ck_assert(spans.items[1].begin == 6 && spans.items[1].end == 9);
    ck_assert_int_eq(render(captured, sizeof captured - 1, "{}", &out, &spans, &d),
                     PL_ERR_DATA_TEMPLATE);
    ck_assert_ptr_nonnull(strstr(d.message, "goes into a value is not supported"));
    pl_jinja_spans_finish(&spans);
    pl_text_finish(&out);
}
END_TEST

struct reader {
    const struct pl_jinja *program;
    int number;
    bool wrong;
};

/* Renders numbers that are the thread's own, many times. */
static void *render_often(void *ctx) {
    struct reader *r = ctx;
    struct pl_jinja_memory own = {.arena = {0}};
    for (int i = 0; i < 5000 && !r->wrong; i++) {
        char want[64], text[64];
        struct pl_jinja_inputs in = day;
        struct pl_jinja_value v = {0};
        struct pl_text out = {0};
        struct pl_diag d = {0};
        snprintf(text, sizeof text, "{\"n\": [%d, %d]}", r->number, i);
        snprintf(want, sizeof want, "<%d><%d>", r->number, i);
        struct pl_scan scan = {.text = text, .n = strlen(text)};
        pl_jinja_begin(&own);
        r->wrong |= !pl_jinja_read_json(&own, &scan, &v);
        in.variables = v.map;
        r->wrong |= pl_jinja_render(r->program, &own, &in, &out, NULL, &d) != PL_ERR_OK ||
                    strcmp(pl_text_str(&out), want) != 0;
        pl_text_finish(&out);
    }
    pl_jinja_memory_finish(&own);
    return NULL;
}

/* J3 of jinja.h */
START_TEST(threads_share_a_program) {
    enum { THREADS = 4 };
    static const char text[] =
        "{% macro m(x) %}<{{ x }}>{% endmacro %}{% for i in n %}{{ m(i) }}{% endfor %}";
    struct pl_jinja *program = NULL;
    struct reader readers[THREADS];
    pthread_t threads[THREADS];
    ck_assert_int_eq(pl_jinja_parse(text, sizeof text - 1, "case", &program, NULL), PL_ERR_OK);
    for (int i = 0; i < THREADS; i++) {
        readers[i] = (struct reader){.program = program, .number = 1000 * i};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, render_often, &readers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        ck_assert_msg(!readers[i].wrong, "thread %d", i);
    }
    pl_jinja_close(&program);
}
END_TEST

#define ROWS(a) ((int)(sizeof(a) / sizeof *(a)))

int main(void) {
    Suite *suite = suite_create("jinja");
    TCase *t = tcase_create("jinja");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, templates_are_rendered_as_python_renders_them);
    tcase_add_loop_test(t, a_program_meets_its_limits_soon, 0, ROWS(limits));
    tcase_add_test(t, filters_of_a_block_nest_only_so_deep);
    tcase_add_loop_test(t, brackets_and_blocks_nest_only_so_deep, 0, 8);
    tcase_add_loop_test(t, an_exception_says_something, 0, ROWS(raised));
    tcase_add_loop_test(t, what_is_not_done_as_python_does_it_is_refused_by_name, 0,
                        ROWS(unsupported));
    tcase_add_loop_test(t, values_nest_only_so_deep, 0, 2);
    tcase_add_test(t, a_long_row_is_read_in_little_more_than_its_bytes);
    tcase_add_test(t, generation_blocks_are_told_by_bytes);
    tcase_add_test(t, threads_share_a_program);
    suite_add_tcase(suite, t);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    pl_jinja_memory_finish(&memory);
    return failed != 0;
}
