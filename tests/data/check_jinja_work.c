/* check_jinja_work.c - whatever a template does is paid for.
 *
 * Each row repeats one builtin, operator or statement on long texts, large lists and values that
 * share parts. A row must end or be refused within a few times the processor time that the whole
 * budget lasts for a plain loop; what is not paid for would take hours. Every builtin that the
 * tables of the interpreter name has a row, and so has every kind of node. */
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <check.h>

#include "runtime/data/jinja/run.h"

enum kind { FILTER, TEST, GLOBAL, METHOD, NODE };

static const struct {
    enum kind kind;
    const char *name, *expression; /* or a whole statement, which begins with {% */
} rows[] = {
    {FILTER, "tojson", "e | tojson"},
    {FILTER, "tojson", "shared | tojson"},
    {FILTER, "tojson", "floats | tojson"},
    {FILTER, "tojson", "keys | tojson(sort_keys=true, indent=9)"},
    {FILTER, "trim", "blank | trim"},
    {FILTER, "trim", "s | trim(s)"},
    {FILTER, "length", "e | length"},
    {FILTER, "count", "e | count"},
    {FILTER, "string", "shared | string"},
    {FILTER, "string", "floats | string"},
    {FILTER, "default", "s | default(s)"},
    {FILTER, "d", "(s == other) | d(s)"},
    {FILTER, "items", "keys | items | list"},
    {FILTER, "join", "list | join"},
    {FILTER, "join", "list | join(s)"},
    {FILTER, "list", "s | list"},
    {FILTER, "map", "list | map('string') | list"},
    {FILTER, "map", "list | map(attribute='a.b.c') | list"},
    {FILTER, "map", "many | list"},
    {FILTER, "select", "list | select('eq', s) | list"},
    {FILTER, "reject", "list | reject('eq', 0) | list"},
    {FILTER, "selectattr", "maps | selectattr('a', 'in', s) | list"},
    {FILTER, "rejectattr", "maps | rejectattr('a', 'in', s) | list"},
    {FILTER, "safe", "(s | safe) == other"},
    {FILTER, "escape", "s | escape"},
    {FILTER, "e", "s | e"},
    {FILTER, "forceescape", "s | forceescape"},
    {FILTER, "format", "'%s' | format(s)"},
    {FILTER, "format", "s | format"},
    {FILTER, "lower", "e | lower"},
    {FILTER, "upper", "e | upper"},
    {FILTER, "title", "e | title"},
    {FILTER, "capitalize", "e | capitalize"},
    {FILTER, "dictsort", "keys | dictsort"},
    {FILTER, "dictsort", "long | dictsort"},
    {FILTER, "sort", "list | sort"},
    {FILTER, "sort", "texts | sort(case_sensitive=true)"},
    {FILTER, "unique", "list | unique | list"},
    {FILTER, "unique", "texts | unique(case_sensitive=true) | list"},
    {FILTER, "min", "texts | min(case_sensitive=true)"},
    {FILTER, "max", "texts | max(case_sensitive=true)"},
    {FILTER, "sum", "list | sum"},
    {FILTER, "sum", "[list, list] | sum(start=[])"},
    {FILTER, "first", "(s | list | first) == s"},
    {FILTER, "last", "(s | last) == (list | last)"},
    {FILTER, "reverse", "s | reverse"},
    {FILTER, "reverse", "list | reverse | list"},
    {FILTER, "replace", "s | replace('a', 'b')"},
    {FILTER, "replace", "s | replace(needle, 'b')"},
    {FILTER, "indent", "s | indent"},
    {FILTER, "indent", "('\\n' * 9999) | indent(9)"},
    {FILTER, "int", "blank | int"},
    {FILTER, "int", "digits | int(1)"},
    {FILTER, "float", "blank | float"},
    {FILTER, "float", "'1e-308' | float"},
    {FILTER, "abs", "-1.5 | abs"},
    {FILTER, "round", "1e300 | round(20)"},
    {FILTER, "attr", "(s | attr(s)) is defined"},
    {TEST, "defined", "list is defined"},
    {TEST, "string", "s is string"},
    {TEST, "none", "s is none"},
    {TEST, "mapping", "keys is mapping"},
    {TEST, "iterable", "list is iterable"},
    {TEST, "sequence", "list is sequence"},
    {TEST, "undefined", "list is undefined"},
    {TEST, "boolean", "list is boolean"},
    {TEST, "true", "list is true"},
    {TEST, "false", "list is false"},
    {TEST, "integer", "list is integer"},
    {TEST, "float", "list is float"},
    {TEST, "number", "list is number"},
    {TEST, "callable", "list is callable"},
    {TEST, "escaped", "s is escaped"},
    {TEST, "even", "1e300 is even"},
    {TEST, "odd", "1e300 is odd"},
    {TEST, "lower", "shared is lower"},
    {TEST, "lower", "e is lower"},
    {TEST, "upper", "e is upper"},
    {TEST, "filter", "'xmlattr' is filter"},
    {TEST, "filter", "s is filter"},
    {TEST, "test", "s is test"},
    {TEST, "==", "[s] | select('==', other) | list"},
    {TEST, "eq", "s is eq other"},
    {TEST, "equalto", "shared is equalto twin"},
    {TEST, "!=", "[s] | select('!=', other) | list"},
    {TEST, "ne", "shared is ne twin"},
    {TEST, "<", "[s] | select('<', other) | list"},
    {TEST, "lt", "s is lt other"},
    {TEST, "lessthan", "shared is lessthan twin"},
    {TEST, "<=", "[s] | select('<=', other) | list"},
    {TEST, "le", "s is le other"},
    {TEST, ">", "[s] | select('>', other) | list"},
    {TEST, "gt", "s is gt other"},
    {TEST, "greaterthan", "shared is greaterthan twin"},
    {TEST, ">=", "[s] | select('>=', other) | list"},
    {TEST, "ge", "shared is ge twin"},
    {TEST, "in", "needle is in s"},
    {TEST, "in", "twin is in [shared, shared]"},
    {TEST, "in", "1.5 is in list"},
    {TEST, "sameas", "true is sameas false"},
    {TEST, "divisibleby", "1e300 is divisibleby 3.5"},
    {GLOBAL, "namespace", "namespace(**keys)"},
    {GLOBAL, "raise_exception", "raise_exception(blank)"},
    {GLOBAL, "range", "range(99999)"},
    {GLOBAL, "strftime_now", "strftime_now('%B' * 60)"},
    {GLOBAL, "dict", "dict(keys)"},
    {GLOBAL, "dict", "dict(long, **long)"},
    {METHOD, "split", "s.split('a')"},
    {METHOD, "split", "s.split(needle)"},
    {METHOD, "split", "blank.split()"},
    {METHOD, "strip", "blank.strip()"},
    {METHOD, "strip", "s.strip(e)"},
    {METHOD, "lstrip", "s.lstrip('xyza')"},
    {METHOD, "rstrip", "s.rstrip('xyza')"},
    {METHOD, "startswith", "s.startswith(other)"},
    {METHOD, "startswith", "s.startswith((other, other))"},
    {METHOD, "endswith", "s.endswith('b' ~ s[1:])"},
    {METHOD, "endswith", "s.endswith(other)"},
    {METHOD, "replace", "s.replace(needle, '')"},
    {METHOD, "replace", "s.replace('', 'b')"},
    {METHOD, "lower", "e.lower()"},
    {METHOD, "upper", "e.upper()"},
    {METHOD, "title", "e.title()"},
    {METHOD, "capitalize", "e.capitalize()"},
    {METHOD, "swapcase", "e.swapcase()"},
    {METHOD, "join", "s.join(texts)"},
    {METHOD, "find", "s.find(needle)"},
    {METHOD, "find", "e.find('z', 99999)"},
    {METHOD, "rfind", "s.rfind(needle)"},
    {METHOD, "rfind", "s.rfind('b' ~ needle)"},
    {METHOD, "index", "(s ~ needle).index(needle)"},
    {METHOD, "index", "list.index(0) + (list + [1]).index(1)"},
    {METHOD, "index", "[shared].index(twin)"},
    {METHOD, "rindex", "(needle ~ s).rindex(needle)"},
    {METHOD, "count", "s.count(needle)"},
    {METHOD, "count", "s.count('aa')"},
    {METHOD, "count", "list.count(1)"},
    {METHOD, "count", "[shared, shared].count(twin)"},
    {METHOD, "rsplit", "s.rsplit('a')"},
    {METHOD, "rsplit", "s.rsplit(needle)"},
    {METHOD, "splitlines", "s.splitlines()"},
    {METHOD, "splitlines", "('\\n' * 9999).splitlines()"},
    {METHOD, "partition", "s.partition(needle)"},
    {METHOD, "rpartition", "s.rpartition(needle)"},
    {METHOD, "removeprefix", "s.removeprefix(other)"},
    {METHOD, "removesuffix", "s.removesuffix('b' ~ s[1:])"},
    {METHOD, "isalpha", "e.isalpha()"},
    {METHOD, "isalnum", "e.isalnum()"},
    {METHOD, "isdigit", "digits.isdigit()"},
    {METHOD, "isdecimal", "digits.isdecimal()"},
    {METHOD, "isspace", "blank.isspace()"},
    {METHOD, "islower", "e.islower()"},
    {METHOD, "isupper", "e.upper().isupper()"},
    {METHOD, "isascii", "s.isascii()"},
    {METHOD, "ljust", "e.ljust(99)"},
    {METHOD, "rjust", "s.rjust(999999)"},
    {METHOD, "items", "keys.items()"},
    {METHOD, "get", "long.get(s ~ '0')"},
    {METHOD, "get", "{tuple: 1}.get(tuple)"},
    {METHOD, "keys", "keys.keys()"},
    {METHOD, "values", "keys.values()"},
    {METHOD, "copy", "keys.copy() == list.copy()"},
    {NODE, "CONST", "'x'"},
    {NODE, "NAME", "nothing_of_that_name"},
    {NODE, "LIST", "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"},
    {NODE, "TUPLE", "(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)"},
    {NODE, "DICT", "{s ~ 1: 1, s ~ 2: 2}"},
    {NODE, "DICT", "{tuple: 1}"},
    {NODE, "ATTR", "namespace(a=1).a"},
    {NODE, "ATTR", "keys.k999"},
    {NODE, "ITEM", "long[s ~ 1]"},
    {NODE, "ITEM", "e[-1]"},
    {NODE, "ITEM", "keys['k' ~ i]"},
    {NODE, "SLICE", "e[1:]"},
    {NODE, "SLICE", "e[::-7]"},
    {NODE, "SLICE", "e[::3]"},
    {NODE, "SLICE", "list[::-1]"},
    {NODE, "CALL", "dict(a=1, b=2, c=3)"},
    {NODE, "KEYWORD", "dict(a=s, b=s)"},
    {NODE, "SPREAD", "dict(**long)"},
    {NODE, "SPREAD", "'%s' | format(*list)"},
    {NODE, "FILTER", "s | upper | lower"},
    {NODE, "TEST", "s is eq s"},
    {NODE, "UNKNOWN", "1 if true else (1 | no_such_filter)"},
    {NODE, "NOT", "not (not s)"},
    {NODE, "SIGN", "- - - i"},
    {NODE, "BINARY", "s + s"},
    {NODE, "BINARY", "list + list"},
    {NODE, "BINARY", "s * 2"},
    {NODE, "BINARY", "list * 2"},
    {NODE, "BINARY", "7 ** 22 + 7.5 ** 100 % 3 // 0.1"},
    {NODE, "BINARY", "'%r' % s"},
    {NODE, "CONCAT", "s ~ s ~ shared"},
    {NODE, "COMPARE", "s == other"},
    {NODE, "COMPARE", "shared == twin"},
    {NODE, "COMPARE", "shared < twin"},
    {NODE, "COMPARE", "keys == long or keys == keys.copy()"},
    {NODE, "COMPARE", "tuple in {tuple: 1}"},
    {NODE, "OPERAND", "s <= other <= s"},
    {NODE, "AND", "s == other and s == other"},
    {NODE, "OR", "s == other or s == other"},
    {NODE, "CHOICE", "1 if s == other else 2"},
    {NODE, "TEXT", "{% if true %}a long text that is written{% endif %}"},
    {NODE, "PRINT", "{{ s }}"},
    {NODE, "PRINT", "{{ floats }}"},
    {NODE, "IF", "{% if s == other %}{% elif s == other %}{% else %}{% endif %}"},
    {NODE, "FOR", "{% for a in s if a == s %}{% endfor %}"},
    {NODE, "FOR", "{% for a in list %}{{ loop.length + loop.revindex }}{% endfor %}"},
    {NODE, "SET", "{% set a, b = (s == other), list %}"},
    {NODE, "SET", "{% set ns.a = [ns.a, ns.a] %}"},
    {NODE, "SET_BLOCK", "{% set a %}{{ s }}{% endset %}"},
    {NODE, "MACRO", "{% macro m(a=s) %}{{ a[:1] }}{% endmacro %}{{ m() ~ m() }}"},
    {NODE, "MACRO", "{% macro m() %}{{ kwargs | length }}{% endmacro %}{{ m(**keys) }}"},
    {NODE, "MACRO", "{% macro m() %}{{ varargs | length }}{% endmacro %}{{ m(*list) }}"},
    {NODE, "MACRO",
     "{% macro m(n) %}{% if n %}{{ m(n - 1) ~ m(n - 1) }}{% endif %}{% endmacro %}"
     "{{ m(60) }}"},
    {NODE, "CALL_BLOCK",
     "{% macro m() %}{{ caller()[:1] }}{% endmacro %}{% call m() %}{{ s }}{% endcall %}"},
    {NODE, "FILTERED", "{% filter upper %}{{ e }}{% endfilter %}"},
    {NODE, "WITH", "{% with a = s ~ s %}{{ a[:1] }}{% endwith %}"},
    {NODE, "GENERATION", "{% generation %}{{ s[:9] }}{% endgeneration %}"},
    {NODE, "BREAK", "{% for a in s %}{% break %}{% endfor %}"},
    {NODE, "CONTINUE", "{% for a in s %}{% continue %}{% endfor %}"},
};
#define ROWS (sizeof rows / sizeof *rows)

/* `shared` and `twin` are equal and have 2^60 elements each, of which 61 exist; keys of `long` have
 * a long common beginning; `tuple` may be a key and has 2^60 elements, too. */
static const char prelude[] =
    "{% set s = 'a' * 200000 %}{% set other = 'a' * 199999 ~ 'b' %}"
    "{% set needle = 'a' * 99999 ~ 'b' %}{% set e = '\xC3\xA9' * 100000 %}"
    "{% set blank = ' ' * 200000 %}{% set digits = '1' * 200000 %}"
    "{% set list = [0] * 50000 %}{% set maps = [{'a': 'b'}] * 50000 %}"
    "{% set floats = [1.2345678901234567e-300] * 50000 %}"
    "{% set texts = [s ~ 1, s ~ 2, s ~ 3, s ~ 4] * 9 %}"
    "{% set long = {s ~ 1: 1, s ~ 2: 2, s ~ 3: 3, s ~ 4: 4} %}"
    "{% set ns = namespace(a=[1], b=[1], t=(1, 1), m=0) %}"
    "{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}"
    "{% set ns.t = (ns.t, ns.t) %}{% endfor %}"
    "{% for i in range(200) %}{% set ns.m = (ns.m or list) | map('string') %}{% endfor %}"
    "{% set many = ns.m %}{% set shared = ns.a %}{% set twin = ns.b %}{% set tuple = ns.t %}{% set "
    "ns.a = 1 %}";

static struct pl_jinja_memory memory;
static struct pl_text variables;

static double processor_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static pl_err render(const char *text, const char *values, size_t n, struct pl_diag *d) {
    struct pl_jinja_inputs in = {.year = 2025, .month = 1, .day = 2};
    struct pl_scan scan = {.text = values, .n = n};
    struct pl_jinja_spans spans = {0};
    struct pl_jinja *program = NULL;
    struct pl_jinja_value v = {0};
    struct pl_text out = {0};
    pl_jinja_begin(&memory);
    ck_assert_msg(pl_jinja_read_json(&memory, &scan, &v), "%s", scan.what);
    in.variables = v.map;
    ck_assert_msg(pl_jinja_parse(text, strlen(text), "case", &program, d) == PL_ERR_OK, "%s: %s",
                  text, d->message);
    pl_err err = pl_jinja_render(program, &memory, &in, &out, &spans, d);
    pl_jinja_spans_finish(&spans);
    pl_jinja_close(&program);
    pl_text_finish(&out);
    return err;
}

static void make(void) {
    pl_text_add(&variables, "{\"keys\":{");
    for (int i = 0; i < 2000; i++)
        pl_text_addf(&variables, "%s\"k%d\":%d", i ? "," : "", i, i);
    pl_text_add(&variables, "}}");
}

static void unmake(void) {
    pl_text_finish(&variables);
    pl_jinja_memory_finish(&memory);
}

/* The processor time of the whole budget, spent on nodes alone. */
static double budget_seconds(void) {
    static const char plain[] = "{% set all = range(99999) %}{% for a in all %}{% for b in all %}"
                                "{% if a == b %}{% endif %}{% endfor %}{% endfor %}";
    struct pl_diag d = {0};
    double begin = processor_seconds();
    ck_assert_int_eq(render(plain, "{}", 2, &d), PL_ERR_TEMPLATE_LIMIT);
    ck_assert_ptr_nonnull(strstr(d.message, "does not come to an end"));
    return processor_seconds() - begin;
}

/* A4 of value.h, C2 of chars.h and R2 of run.h */
START_TEST(whatever_a_template_repeats_is_paid_for) {
    double budget = budget_seconds(), longest = 0;
    size_t slowest = 0;
    for (size_t i = 0; i < ROWS; i++) {
        bool statement = rows[i].expression[0] == '{' &&
                         (rows[i].expression[1] == '%' || rows[i].expression[1] == '{');
        struct pl_text text = {0};
        struct pl_diag d = {0};
        pl_text_add(&text, prelude);
        pl_text_add(&text, "{% for h in range(99999) %}{% for i in range(99999) %}");
        pl_text_addf(&text, statement ? "%s" : "{%% set x = %s %%}", rows[i].expression);
        pl_text_add(&text, "{% endfor %}{% endfor %}");
        double begin = processor_seconds();
        pl_err err = render(pl_text_str(&text), pl_text_str(&variables), variables.len, &d);
        double seconds = processor_seconds() - begin;
        bool refused = err == PL_ERR_TEMPLATE_LIMIT || err == PL_ERR_DATA_TEMPLATE;
        ck_assert_msg(refused, "%s ends", rows[i].expression);
        ck_assert_msg(seconds < 8 * budget + 0.5, "%s: %.2f s, %.1f times the budget of nodes",
                      rows[i].expression, seconds, seconds / budget);
        if (getenv("PLIMSOLL_LIST"))
            printf("%6.2f s %s: %s\n", seconds, rows[i].expression, d.message);
        slowest = seconds > longest ? i : slowest;
        longest = seconds > longest ? seconds : longest;
        pl_text_finish(&text);
    }
    printf("nodes alone %.2f s; the slowest of %zu: %s, %.2f s\n", budget, ROWS,
           rows[slowest].expression, longest);
}
END_TEST

static bool has_row(enum kind kind, const char *name) {
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i].kind == kind && strcmp(rows[i].name, name) == 0) return true;
    return false;
}

START_TEST(every_builtin_and_node_has_a_row) {
    static const char *const nodes[] = {
#define X(name) #name,
        PL_JINJA_EXPRESSIONS(X) PL_JINJA_STATEMENTS(X)
#undef X
    };
    const struct pl_jinja_value text = pl_jinja_literal(""), map = {.kind = PL_JINJA_MAP};
    const struct {
        enum kind kind;
        const struct pl_jinja_function *table;
    } tables[] = {
        {FILTER, pl_jinja_filters()},
        {TEST, pl_jinja_tests()},
        {GLOBAL, pl_jinja_globals()},
        {METHOD, pl_jinja_methods(&text)},
        {METHOD, pl_jinja_methods(&map)},
        {METHOD, pl_jinja_methods(&(struct pl_jinja_value){.kind = PL_JINJA_LIST})},
    };
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const struct pl_jinja_function *f = tables[i].table; f->name; f++)
            ck_assert_msg(!f->call || has_row(tables[i].kind, f->name), "no row of `%s`", f->name);
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++)
        ck_assert_msg(has_row(NODE, nodes[i]), "no row of the node %s", nodes[i]);
}
END_TEST

/* --- honest work ------------------------------------------------------------------------------ */
/* The share of the limit that the last render spent. */
static double share(void) {
    return (double)memory.arena.meter.spent / (double)memory.arena.meter.limit;
}

START_TEST(templates_of_cases_stay_far_from_the_limit) {
    char *line = NULL, *values = NULL;
    size_t cap = 0;
    double most = 0;
    FILE *f = fopen(DATA "/jinja/cases.jsonl", "r");
    ck_assert_ptr_nonnull(f);
    for (ssize_t n; (n = getline(&line, &cap, f)) >= 0;) {
        json_t *row = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, NULL);
        const char *text = json_string_value(json_object_get(row, "template"));
        struct pl_diag d = {0};
        if (!values) values = json_dumps(json_object_get(row, "variables"), 0);
        if (text && json_object_get(row, "rendered") &&
            strlen(text) == json_string_length(json_object_get(row, "template"))) {
            struct pl_jinja *program = NULL;
            bool parsed = pl_jinja_parse(text, strlen(text), "case", &program, &d) == PL_ERR_OK;
            pl_jinja_close(&program);
            if (parsed) (void)render(text, values, strlen(values), &d);
            most = parsed && share() > most ? share() : most;
        }
        json_decref(row);
    }
    free(line);
    free(values);
    fclose(f);
    printf("cases: at most %.4f %% of the limit\n", 100 * most);
    ck_assert(most > 0 && most < 0.01);
}
END_TEST

static char *read_template(const char *dir, const char *name) {
    char path[4096], *text = calloc(1, 1 << 20);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "r");
    ck_assert(text && f);
    ck_assert_uint_gt(fread(text, 1, (1 << 20) - 1, f), 0);
    fclose(f);
    return text;
}

/* `turns` pairs of a question and an answer of so many bytes. */
static void make_conversation(struct pl_text *to, int turns, int bytes) {
    pl_text_add(to, "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"messages\":[");
    for (int i = 0; i < 2 * turns; i++) {
        pl_text_addf(to, "%s{\"role\":\"%s\",\"content\":\"", i ? "," : "",
                     i % 2 ? "assistant" : "user");
        for (int k = 0; k < bytes; k += 10)
            pl_text_add(to, i % 3 ? "some words" : "w\xC3\xB6rter  \xE2\x82\xAC");
        pl_text_add(to, "\"}");
    }
    pl_text_add(to, "]}");
}

/* A conversation of 2,000 messages, one of 5 MB, and a short one. */
static void check_templates(const char *dir) {
    static const int sizes[][2] = {{1, 20}, {1000, 200}, {10, 250000}};
    struct dirent *e;
    DIR *all = opendir(dir);
    ck_assert_ptr_nonnull(all);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct pl_text row = {0};
        double most = 0;
        make_conversation(&row, sizes[i][0], sizes[i][1]);
        for (rewinddir(all); (e = readdir(all)) != NULL;) {
            size_t n = strlen(e->d_name);
            struct pl_diag d = {0};
            if (n < 6 || strcmp(e->d_name + n - 6, ".jinja") != 0) continue;
            char *text = read_template(dir, e->d_name);
            pl_err err = render(text, pl_text_str(&row), row.len, &d);
            ck_assert_msg(err != PL_ERR_TEMPLATE_LIMIT, "%s: %s", e->d_name, d.message);
            most = share() > most ? share() : most;
            free(text);
        }
        printf("%s, %d messages of %d bytes: at most %.2f %% of the limit\n", dir, 2 * sizes[i][0],
               sizes[i][1], 100 * most);
        ck_assert(most < 0.25);
        pl_text_finish(&row);
    }
    closedir(all);
}

START_TEST(long_conversations_stay_far_from_the_limit) {
    const char *more = getenv("PLIMSOLL_TOKENIZERS_DIR");
    char dir[4096];
    check_templates(DATA "/chat");
    if (!more) return;
    snprintf(dir, sizeof dir, "%s/chat/templates", more);
    check_templates(dir);
}
END_TEST

int main(void) {
    Suite *s = suite_create("data.jinja_work");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 1200);
    tcase_add_checked_fixture(t, make, unmake);
    tcase_add_test(t, whatever_a_template_repeats_is_paid_for);
    tcase_add_test(t, every_builtin_and_node_has_a_row);
    tcase_add_test(t, templates_of_cases_stay_far_from_the_limit);
    tcase_add_test(t, long_conversations_stay_far_from_the_limit);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
