#include "runtime/data/csv.h"

#include "estimator/base/alloc.h"
#include "estimator/base/json_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char hint_quotes[] = "a field with a separator, a quote or a line feed stands in "
                                  "quotes, and a quote in it is written \"\"";
static const char hint_returns[] =
    "where lines end in it alone, `tr '\\r' '\\n' <'FILE' >rows.csv` "
    "writes line feeds";
static const char hint_nul[] =
    "the program that wrote the file crashed, or it is not text in UTF-8";

char pl_csv_separator(const char *path, size_t n) {
    const char *ending = n > 4 ? path + n - 4 : "";
    if (strncasecmp(ending, ".csv", 4) == 0) return ',';
    return strncasecmp(ending, ".tsv", 4) == 0 ? '\t' : 0;
}

/* A doubled quote closes and opens again, which comes to the same. */
size_t pl_csv_record_end(const char *text, size_t n, size_t seen, bool *quoted) {
    for (size_t i = seen; i < n; i++) {
        if (text[i] == '"') *quoted = !*quoted;
        if (text[i] == '\n' && !*quoted) return i + 1;
    }
    return 0;
}

static bool fail_record(struct pl_csv *csv, const char *what, const char *hint) {
    snprintf(csv->problem, sizeof csv->problem, "%s", what);
    csv->hint = hint;
    return false;
}

/* Refuses bytes that are invalid in a field without quotes, or in any field. */
static bool check_byte(struct pl_csv *csv, char c, bool quoted) {
    if (c == 0) return fail_record(csv, "NUL byte in the file", hint_nul);
    if (quoted) return true;
    if (c == '"') return fail_record(csv, "a quote inside a field without quotes", hint_quotes);
    return c != '\r' ||
           fail_record(csv, "a carriage return inside a field without quotes", hint_returns);
}

/* A record without its end of line. */
static size_t record_length(const char *text, size_t n) {
    if (n && text[n - 1] == '\n') n--;
    if (n && text[n - 1] == '\r') n--;
    return n;
}

static bool quoted_field(struct pl_csv *csv, const char *text, size_t n, size_t *at,
                         struct pl_text *out) {
    for (size_t i = *at + 1; i < n; i++) {
        bool doubled = text[i] == '"' && i + 1 < n && text[i + 1] == '"';
        i += doubled;
        if (text[i] != '"' || doubled) {
            if (!check_byte(csv, text[i], true)) return false;
            pl_json_write_escaped(out, text + i, 1);
            continue;
        }
        *at = i + 1;
        return *at == n || text[*at] == csv->separator ||
               fail_record(csv, "text after the closing quote of a field", hint_quotes);
    }
    return fail_record(csv, "a field begins with a quote that is not closed", hint_quotes);
}

/* Appends the field at *at as a JSON string, and moves past it. */
static bool add_field(struct pl_csv *csv, const char *text, size_t n, size_t *at,
                      struct pl_text *out) {
    pl_text_add(out, "\"");
    if (*at < n && text[*at] == '"') {
        if (!quoted_field(csv, text, n, at, out)) return false;
    } else {
        for (; *at < n && text[*at] != csv->separator; ++*at) {
            if (!check_byte(csv, text[*at], false)) return false;
            pl_json_write_escaped(out, text + *at, 1);
        }
    }
    pl_text_add(out, "\"");
    return true;
}

static int by_name(const void *a, const void *b) {
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    const int order = strcmp(x, y);
    return order ? order : (x > y) - (x < y);
}

/* The column whose name stands twice, by the first that repeats one; NULL = none. names[n] gets
 * sorted. */
static const char *repeated(const char **names, uint64_t n) {
    const char *first = NULL;
    qsort(names, (size_t)n, sizeof *names, by_name);
    for (uint64_t i = 1; i < n; i++)
        if (strcmp(names[i - 1], names[i]) == 0 && (!first || names[i] < first)) first = names[i];
    return first;
}

static bool check_names(struct pl_csv *csv) {
    const char **names = pl_malloc((size_t)csv->columns * sizeof *names);
    const char *key = pl_text_str(&csv->keys);
    csv->keys.failed |= !names;
    if (!names) return false;
    for (uint64_t i = 0; i < csv->columns; i++, key += strlen(key) + 1)
        names[i] = key;
    const char *twice = repeated(names, csv->columns);
    free(names);
    if (!twice) return true;
    const size_t n = strlen(twice) - 2;
    csv->hint = "give each column a name of its own";
    snprintf(csv->problem, sizeof csv->problem, "the header has two columns `%.*s`",
             (int)(n < 60 ? n : 60), twice + 1);
    return false;
}

/* Separators that a header of one column gives away. */
#define CONVERT(separator)                                                                         \
    "convert it: python3 -c \"import pandas; pandas.read_csv('FILE', sep='" separator              \
    "').to_json('rows.jsonl', orient='records', lines=True)\""
static const struct {
    char c;
    const char *what, *hint;
} separators[] = {
    {';', "the columns are separated by `;`, not by a comma", CONVERT(";")},
    {'\t', "the columns are separated by tabs, not by a comma", "a file of tabs ends in .tsv"},
    {'|', "the columns are separated by `|`, not by a comma", CONVERT("|")},
    {',', "the columns are separated by commas, not by tabs", "a file of commas ends in .csv"},
};

static bool check_separator(struct pl_csv *csv, const char *text, size_t n) {
    if (csv->columns != 1 || memchr(text, '"', n)) return true;
    for (size_t i = 0; i < sizeof separators / sizeof *separators; i++)
        if (memchr(text, separators[i].c, n))
            return fail_record(csv, separators[i].what, separators[i].hint);
    return true;
}

bool pl_csv_header(struct pl_csv *csv, const char *text, size_t n) {
    struct pl_text key = {0};
    bool ok = true;
    n = record_length(text, n);
    for (size_t at = 0, more = 1; ok && more; csv->columns++, at++) {
        key.len = 0;
        ok = add_field(csv, text, n, &at, &key);
        pl_text_addn(&csv->keys, pl_text_str(&key), key.len + 1);
        more = at < n;
    }
    csv->keys.failed |= key.failed;
    pl_text_finish(&key);
    if (csv->keys.failed) return false;
    return ok && check_separator(csv, text, n) && check_names(csv);
}

bool pl_csv_record(struct pl_csv *csv, const char *text, size_t n, struct pl_text *json) {
    const char *key = pl_text_str(&csv->keys);
    uint64_t fields = 0;
    json->len = 0;
    n = record_length(text, n);
    for (size_t at = 0, more = 1; more; fields++) {
        bool named = fields < csv->columns;
        pl_text_addf(json, "%c%s:", fields ? ',' : '{', named ? key : "");
        if (named) key += strlen(key) + 1;
        if (!add_field(csv, text, n, &at, json)) return false;
        more = at < n;
        at++;
    }
    pl_text_add(json, "}");
    if (fields == csv->columns) return true;
    csv->hint = hint_quotes;
    snprintf(csv->problem, sizeof csv->problem, "the row has %llu field%s, the header %llu",
             (unsigned long long)fields, fields == 1 ? "" : "s", (unsigned long long)csv->columns);
    return false;
}

void pl_csv_finish(struct pl_csv *csv) {
    pl_text_finish(&csv->keys);
    *csv = (struct pl_csv){.separator = 0};
}
