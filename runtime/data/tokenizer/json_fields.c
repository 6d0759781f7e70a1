/* json_fields.c - typed reads of JSON objects. */
#include "runtime/data/tokenizer/json_fields.h"
#include "runtime/data/tokenizer/utf8.h"

#include <stdarg.h>
#include <string.h>

pl_err pl_fields_wrong(const struct pl_fields *f, const char *key, const char *what) {
    return pl_diag_set(f->d, PL_ERR_TOKENIZER_FIELD, "`%s.%.60s` %s", f->name, key, what);
}

pl_err pl_fields_unsupported(const struct pl_fields *f, const char *type) {
    if (!*type) return pl_diag_set(f->d, PL_ERR_TOKENIZER_FIELD, "`%s.type` is missing", f->name);
    return pl_diag_set(f->d, PL_ERR_TOKENIZER_UNSUPPORTED, "`%s` of type `%.60s` is not supported",
                       f->name, type);
}

pl_err pl_fields_open(struct pl_fields *f, const json_t *v, const char *name, const char **type,
                      struct pl_diag *d) {
    *f = (struct pl_fields){v, name, d};
    *type = "";
    if (!json_is_object(v))
        return pl_diag_set(d, PL_ERR_TOKENIZER_FIELD, "`%s` is no object", name);
    const json_t *t = pl_fields_get(f, "type");
    if (t && !json_is_string(t)) return pl_fields_wrong(f, "type", "is no string");
    if (t) *type = json_string_value(t);
    return PL_ERR_OK;
}

pl_err pl_fields_known(const struct pl_fields *f, ...) {
    void *i = json_object_iter((json_t *)(uintptr_t)f->object);
    for (; i; i = json_object_iter_next((json_t *)(uintptr_t)f->object, i)) {
        va_list names;
        va_start(names, f);
        bool known = false;
        for (const char *name; !known && (name = va_arg(names, const char *));)
            known = strcmp(name, json_object_iter_key(i)) == 0;
        va_end(names);
        if (!known)
            return pl_diag_set(f->d, PL_ERR_TOKENIZER_UNSUPPORTED,
                               "`%s` has the key `%.60s`, which is not known", f->name,
                               json_object_iter_key(i));
    }
    return PL_ERR_OK;
}

const json_t *pl_fields_get(const struct pl_fields *f, const char *key) {
    const json_t *v = json_object_get(f->object, key);
    return json_is_null(v) ? NULL : v;
}

pl_err pl_fields_bool(const struct pl_fields *f, const char *key, bool *out) {
    const json_t *v = pl_fields_get(f, key);
    if (!v) return PL_ERR_OK;
    if (!json_is_boolean(v)) return pl_fields_wrong(f, key, "is neither true nor false");
    *out = json_is_true(v);
    return PL_ERR_OK;
}

pl_err pl_fields_uint(const struct pl_fields *f, const char *key, uint64_t most, uint64_t *out) {
    const json_t *v = pl_fields_get(f, key);
    if (!v) return PL_ERR_OK;
    json_int_t i = json_integer_value(v);
    if (!json_is_integer(v) || i < 0 || (uint64_t)i > most)
        return pl_fields_wrong(f, key, "is no integer in range");
    *out = (uint64_t)i;
    return PL_ERR_OK;
}

pl_err pl_fields_string(const struct pl_fields *f, const char *key, const char **s, size_t *n) {
    const json_t *v = pl_fields_get(f, key);
    if (!json_is_string(v)) return pl_fields_wrong(f, key, v ? "is no string" : "is missing");
    *s = json_string_value(v);
    *n = json_string_length(v);
    return PL_ERR_OK;
}

pl_err pl_fields_character(const struct pl_fields *f, const char *key, char out[4], size_t *n) {
    const char *s;
    PL_TRY(pl_fields_string(f, key, &s, n));
    if (!*n || *n != pl_utf8_length(*s)) return pl_fields_wrong(f, key, "is not one character");
    memcpy(out, s, *n);
    return PL_ERR_OK;
}

pl_err pl_fields_array(const struct pl_fields *f, const char *key, const json_t **out) {
    *out = pl_fields_get(f, key);
    if (json_is_array(*out)) return PL_ERR_OK;
    return pl_fields_wrong(f, key, *out ? "is no list" : "is missing");
}
