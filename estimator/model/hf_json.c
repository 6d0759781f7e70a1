/* hf_json.c - typed reads of config.json fields. */
#include "estimator/model/hf_json.h"

#include "estimator/base/json_tree.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_SHOWN 60 /* bytes of a value that a message quotes */

static const json_t *value_of(const struct pl_hf *h, const char *key) {
    return json_object_get(h->object, key);
}

bool pl_hf_absent(const struct pl_hf *h, const char *key) {
    return !value_of(h, key);
}

bool pl_hf_given(const struct pl_hf *h, const char *key) {
    const json_t *v = value_of(h, key);
    return v && !json_is_null(v);
}

/* The value as JSON text, cut at a character boundary. */
static void value_text(const json_t *v, char out[VALUE_SHOWN + 4]) {
    char *text = pl_json_dump(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    const char *s = text ? text : "?";
    size_t n = strlen(s);
    if (n <= VALUE_SHOWN) {
        memcpy(out, s, n + 1);
    } else {
        n = VALUE_SHOWN;
        while (n && ((unsigned char)s[n] & 0xC0) == 0x80)
            n--;
        memcpy(out, s, n);
        memcpy(out + n, "...", 4);
    }
    free(text);
}

struct span {
    const char *s;
    size_t n;
};

static bool is_one_of(char c, const char *set) {
    return c && strchr(set, c);
}

/* The value that ends, or goes on, at byte `at`. */
static struct span value_at(const char *json, uint64_t bytes, uint64_t at) {
    static const char letters[] =
        "+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    uint64_t begin = at < bytes ? at : bytes, end = begin;
    while (begin && is_one_of(json[begin - 1], letters))
        begin--;
    while (end < bytes && is_one_of(json[end], letters))
        end++;
    return (struct span){json + begin, (size_t)(end - begin)};
}

/* The key that a value follows; n 0: none does. */
static struct span key_before(const char *json, const char *value) {
    static const char space[] = " \t\r\n";
    const char *end = value, *begin;
    while (end > json && is_one_of(end[-1], space))
        end--;
    if (end == json || *--end != ':') return (struct span){0};
    while (end > json && is_one_of(end[-1], space))
        end--;
    if (end == json || *--end != '"') return (struct span){0};
    for (begin = end; begin > json && begin[-1] != '"';)
        begin--;
    return (struct span){begin, (size_t)(end - begin)};
}

/* NaN, Infinity, -Infinity and 1e999, but no broken word. */
static bool is_no_double(const struct span *v) {
    char text[VALUE_SHOWN + 1], *end;
    if (!v->n || v->n > VALUE_SHOWN) return false;
    memcpy(text, v->s, v->n);
    text[v->n] = 0;
    return !isfinite(strtod(text, &end)) && !*end;
}

static int shown(const struct span *s) {
    return s->n < VALUE_SHOWN ? (int)s->n : VALUE_SHOWN;
}

pl_err pl_hf_syntax(const char *file, const char *json, uint64_t bytes,
                    const struct pl_json_error *e, struct pl_diag *d) {
    if (e->no_memory) return pl_host_oom(d, file);
    const struct span value = value_at(json, bytes, e->at);
    const struct span key = key_before(json, value.s);
    if (!key.n || !is_no_double(&value))
        return pl_diag_at(d, PL_ERR_MODEL_SYNTAX, file, e->line, e->column, "%s", e->what);
    return pl_diag_at(d, PL_ERR_MODEL_FIELD, file, e->line, e->column,
                      "`%.*s` is %.*s: expected a finite number", shown(&key), key.s, shown(&value),
                      value.s);
}

pl_err pl_hf_refuse(const struct pl_hf *h, const char *key, pl_err err, const char *fmt, ...) {
    char value[VALUE_SHOWN + 4], expected[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(expected, sizeof expected, fmt, ap);
    va_end(ap);
    const json_t *v = value_of(h, key);
    if (!v)
        return pl_diag_at(h->d, err, h->file, 0, 0, "`%s%s` is missing: %s", h->prefix, key,
                          expected);
    value_text(v, value);
    return pl_diag_at(h->d, err, h->file, 0, 0, "`%s%s` is %s: %s", h->prefix, key, value,
                      expected);
}

pl_err pl_hf_uint(const struct pl_hf *h, const char *key, uint64_t low, uint64_t high,
                  uint64_t *out) {
    const json_t *v = value_of(h, key);
    json_int_t i = json_integer_value(v);
    if (!json_is_integer(v) || i < 0 || (uint64_t)i < low || (uint64_t)i > high)
        return pl_hf_refuse(h, key, PL_ERR_MODEL_FIELD, "expected an integer from %llu to %llu",
                            (unsigned long long)low, (unsigned long long)high);
    *out = (uint64_t)i;
    return PL_ERR_OK;
}

static bool real_in(const json_t *v, double low, double high, double *out) {
    double x = json_number_value(v);
    if (!json_is_number(v) || !isfinite(x) || x < low || x > high) return false;
    *out = x;
    return true;
}

pl_err pl_hf_real(const struct pl_hf *h, const char *key, double low, double high, double *out) {
    if (!real_in(value_of(h, key), low, high, out))
        return pl_hf_refuse(h, key, PL_ERR_MODEL_FIELD, "expected a number from %g to %g", low,
                            high);
    return PL_ERR_OK;
}

pl_err pl_hf_uint_or(const struct pl_hf *h, const char *key, uint64_t low, uint64_t high,
                     uint64_t *out) {
    return pl_hf_absent(h, key) ? PL_ERR_OK : pl_hf_uint(h, key, low, high, out);
}

pl_err pl_hf_real_or(const struct pl_hf *h, const char *key, double low, double high, double *out) {
    return pl_hf_absent(h, key) ? PL_ERR_OK : pl_hf_real(h, key, low, high, out);
}

pl_err pl_hf_bool_or(const struct pl_hf *h, const char *key, bool *out) {
    const json_t *v = value_of(h, key);
    if (!v) return PL_ERR_OK;
    if (!json_is_boolean(v))
        return pl_hf_refuse(h, key, PL_ERR_MODEL_FIELD, "expected true or false");
    *out = json_is_true(v);
    return PL_ERR_OK;
}

pl_err pl_hf_reals(const struct pl_hf *h, const char *key, uint64_t n, double low, double high,
                   double *out) {
    const json_t *v = value_of(h, key);
    if (!json_is_array(v) || json_array_size(v) != n)
        return pl_hf_refuse(h, key, PL_ERR_MODEL_FIELD, "expected a list of %llu numbers, got %llu",
                            (unsigned long long)n, (unsigned long long)json_array_size(v));
    for (size_t i = 0; i < n; i++) {
        if (!real_in(json_array_get(v, i), low, high, &out[i]))
            return pl_hf_refuse(h, key, PL_ERR_MODEL_FIELD, "entry %zu is no number from %g to %g",
                                i, low, high);
    }
    return PL_ERR_OK;
}
