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
    const char *word = pl_json_not_finite(v);
    char *text =
        word ? NULL : pl_json_dump(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    const char *s = word ? word : text ? text : "?";
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

pl_err pl_hf_refuse_setting(const struct pl_hf *h, const char *key, const char *why) {
    const json_t *value = json_object_get(h->object, key);
    if (!pl_hf_given(h, key) || json_is_false(value)) return PL_ERR_OK;
    return pl_hf_refuse(h, key, PL_ERR_MODEL_UNSUPPORTED, "%s", why);
}
