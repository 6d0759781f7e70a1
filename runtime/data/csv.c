/* csv.c - see csv.h. */
#include "runtime/data/csv.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

bool pl_csv_is_named(const char *path, size_t n) {
    return n > 4 && strncasecmp(path + n - 4, ".csv", 4) == 0;
}

/* A doubled quote closes and opens again, which comes to the same. */
size_t pl_csv_cut(const char *text, size_t n, size_t seen, bool *quoted) {
    for (size_t i = seen; i < n; i++) {
        if (text[i] == '"') *quoted = !*quoted;
        if (text[i] == '\n' && !*quoted) return i + 1;
    }
    return 0;
}

static bool fail(struct pl_csv *csv, const char *what) {
    snprintf(csv->problem, sizeof csv->problem, "%s", what);
    return false;
}

static void add_escaped(struct pl_text *out, unsigned char c) {
    const char byte = (char)c;
    if (c < 0x20)
        pl_text_addf(out, "\\u%04x", c);
    else if (c == '"' || c == '\\')
        pl_text_addf(out, "\\%c", c);
    else
        pl_text_addn(out, &byte, 1);
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
            add_escaped(out, (unsigned char)text[i]);
            continue;
        }
        *at = i + 1;
        return *at == n || text[*at] == ',' || fail(csv, "text after the closing quote of a field");
    }
    return fail(csv, "a field begins with a quote that is not closed");
}

/* Appends the field at *at as a JSON string, and moves behind it. */
static bool add_field(struct pl_csv *csv, const char *text, size_t n, size_t *at,
                      struct pl_text *out) {
    pl_text_add(out, "\"");
    if (*at < n && text[*at] == '"') {
        if (!quoted_field(csv, text, n, at, out)) return false;
    } else {
        for (; *at < n && text[*at] != ','; ++*at) {
            if (text[*at] == '"') return fail(csv, "a quote inside a field without quotes");
            add_escaped(out, (unsigned char)text[*at]);
        }
    }
    pl_text_add(out, "\"");
    return true;
}

static bool is_known(const struct pl_csv *csv, const char *key) {
    const char *known = pl_text_str(&csv->keys);
    for (uint64_t i = 0; i < csv->columns; i++, known += strlen(known) + 1)
        if (strcmp(known, key) == 0) return true;
    return false;
}

bool pl_csv_header(struct pl_csv *csv, const char *text, size_t n) {
    struct pl_text key = {0};
    bool ok = true;
    n = record_length(text, n);
    for (size_t at = 0, more = 1; ok && more; csv->columns++) {
        key.len = 0;
        ok = add_field(csv, text, n, &at, &key);
        if (ok && is_known(csv, pl_text_str(&key))) {
            snprintf(csv->problem, sizeof csv->problem, "the header has two columns `%.*s`",
                     (int)(key.len - 2 < 60 ? key.len - 2 : 60), key.data + 1);
            ok = false;
        }
        pl_text_addn(&csv->keys, pl_text_str(&key), key.len + 1);
        more = at < n;
        at++;
    }
    csv->keys.failed |= key.failed;
    pl_text_finish(&key);
    return ok;
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
    snprintf(csv->problem, sizeof csv->problem, "the row has %llu field%s, the header %llu",
             (unsigned long long)fields, fields == 1 ? "" : "s", (unsigned long long)csv->columns);
    return false;
}

void pl_csv_finish(struct pl_csv *csv) {
    pl_text_finish(&csv->keys);
    *csv = (struct pl_csv){.columns = 0};
}
