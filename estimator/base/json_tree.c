/* json_tree.c - JSON text into jansson's values by the scanner. */
#include "estimator/base/json_tree.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    struct pl_scan scan;
    struct pl_text text; /* text of the string or number that is being read */
    unsigned flags, depth;
};

static json_t *read_value(struct reader *r);

static bool refuse_json(struct reader *r, size_t where, const char *what) {
    return pl_scan_fail(&r->scan, PL_ERR_DATA_SYNTAX, where, NULL, "%s", what);
}

/* A value that could not be made is a lack of memory, unless something is wrong with the text. */
static json_t *made(struct reader *r, json_t *v) {
    if (!v)
        pl_scan_fail(&r->scan, PL_ERR_HOST_OOM, r->scan.at, NULL, "no memory for a JSON document");
    return v;
}

static void clear(struct pl_text *t) {
    t->len = 0;
    if (t->data) t->data[0] = 0;
}

static json_t *read_string(struct reader *r) {
    size_t begin = r->scan.at;
    clear(&r->text);
    if (!pl_scan_string(&r->scan, &r->text)) return NULL;
    if (r->text.failed) return made(r, NULL);
    const char *s = pl_text_str(&r->text);
    if (!(r->flags & PL_JSON_TEXT) && memchr(s, 0, r->text.len)) {
        refuse_json(r, begin, "\\u0000 in a string");
        return NULL;
    }
    return made(r, json_stringn_nocheck(s, r->text.len));
}

/* digits: of a JSON integer, so never empty. False beyond 63 bits and a sign. */
static bool integer_of(const char *digits, size_t n, json_int_t *out) {
    bool negative = digits[0] == '-';
    uint64_t v = 0, most = (uint64_t)INT64_MAX + negative;
    for (size_t i = negative; i < n; i++) {
        uint64_t digit = (uint64_t)(digits[i] - '0');
        if (v > (most - digit) / 10) return false;
        v = v * 10 + digit;
    }
    *out = negative && v ? -(json_int_t)(v - 1) - 1 : (json_int_t)v;
    return true;
}

/* strtod reads the decimal point of the locale, which belongs to the host. */
static bool real_of(struct reader *r, const char *digits, size_t n, double *out) {
    const char *point = memchr(digits, '.', n);
    size_t before = point ? (size_t)(point - digits) : n;
    clear(&r->text);
    pl_text_addn(&r->text, digits, before);
    if (point) pl_text_add(&r->text, localeconv()->decimal_point);
    if (point) pl_text_addn(&r->text, point + 1, n - before - 1);
    *out = strtod(pl_text_str(&r->text), NULL);
    return !r->text.failed;
}

/* jansson has no reals that are not finite. */
static json_t *not_finite(struct reader *r, const char *word) {
    return made(r, json_pack("{s:s}", PL_JSON_FLOAT, word));
}

static json_t *read_number(struct reader *r) {
    const char *digits;
    size_t n;
    json_int_t integer;
    double real;
    if (!pl_scan_number(&r->scan, &digits, &n)) return NULL;
    if (!pl_scan_is_finite(digits, n))
        return not_finite(r, digits[0] == '-'   ? "-Infinity"
                             : digits[0] == 'I' ? "Infinity"
                                                : "NaN");
    if (!memchr(digits, '.', n) && !memchr(digits, 'e', n) && !memchr(digits, 'E', n) &&
        integer_of(digits, n, &integer))
        return made(r, json_integer(integer));
    if (!real_of(r, digits, n, &real)) return made(r, NULL);
    return isfinite(real) ? made(r, json_real(real))
                          : not_finite(r, real < 0 ? "-Infinity" : "Infinity");
}

const char *pl_json_not_finite(const json_t *v) {
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    const char *word = json_string_value(json_object_get(v, PL_JSON_FLOAT));
    for (size_t i = 0; word && i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i]) == 0) return words[i];
    return NULL;
}

static bool read_member(struct reader *r, json_t *object, const struct pl_text *key, size_t begin) {
    char shown[PL_SHOWN];
    const char *name = pl_text_str(key);
    if (key->failed) return made(r, NULL);
    if (memchr(name, 0, key->len)) return refuse_json(r, begin, "\\u0000 in a key");
    const json_t *first = json_object_get(object, name);
    json_t *v = first && r->flags & PL_JSON_ONCE ? NULL : read_value(r);
    const bool other = first && (!v || (r->flags & PL_JSON_ONE_VALUE && !json_equal(first, v)));
    if (other) {
        json_decref(v);
        return pl_scan_fail(&r->scan, PL_ERR_DATA_SYNTAX, begin, "keep one of the two",
                            "duplicate key `%s`", pl_scan_show(name, key->len, shown));
    }
    /* takes the value on failure too */
    return v && (json_object_set_new_nocheck(object, name, v) == 0 || made(r, NULL));
}

static bool read_members(struct reader *r, json_t *object) {
    struct pl_text key = {0}; /* a key of this object alone: the value of a member may be an
                                 object */
    bool good = pl_scan_enter(&r->scan);
    while (good && pl_scan_next_key(&r->scan, &key))
        good = read_member(r, object, &key, r->scan.at);
    pl_text_finish(&key);
    return r->scan.err == PL_ERR_OK;
}

static bool read_elements(struct reader *r, json_t *array) {
    bool good = pl_scan_enter_array(&r->scan);
    while (good && pl_scan_next_element(&r->scan)) {
        json_t *v = read_value(r);
        good = v && (json_array_append_new(array, v) == 0 || made(r, NULL));
    }
    return r->scan.err == PL_ERR_OK;
}

static json_t *read_container(struct reader *r, bool object) {
    if (r->depth == PL_SCAN_DEPTH) {
        pl_scan_fail(&r->scan, PL_ERR_DATA_SYNTAX, r->scan.at, NULL, "nested deeper than %d levels",
                     PL_SCAN_DEPTH);
        return NULL;
    }
    r->depth++;
    json_t *v = made(r, object ? json_object() : json_array());
    if (v && !(object ? read_members(r, v) : read_elements(r, v))) {
        json_decref(v);
        v = NULL;
    }
    r->depth--;
    return v;
}

static json_t *read_value(struct reader *r) {
    enum pl_scan_kind kind = pl_scan_peek(&r->scan);
    bool truth = r->scan.at < r->scan.n && r->scan.text[r->scan.at] == 't';
    switch (kind) {
    case PL_SCAN_OBJECT:
        return read_container(r, true);
    case PL_SCAN_ARRAY:
        return read_container(r, false);
    case PL_SCAN_STRING:
        return read_string(r);
    case PL_SCAN_NUMBER:
        return read_number(r);
    case PL_SCAN_BOOLEAN:
        return pl_scan_skip(&r->scan) ? json_boolean(truth) : NULL;
    case PL_SCAN_NULL:
        return pl_scan_skip(&r->scan) ? json_null() : NULL;
    case PL_SCAN_NONE:
        break;
    }
    pl_scan_skip(&r->scan); /* says what is there instead */
    return NULL;
}

static json_t *read_document(struct reader *r) {
    enum pl_scan_kind kind = pl_scan_peek(&r->scan);
    if (kind != PL_SCAN_OBJECT && kind != PL_SCAN_ARRAY && kind != PL_SCAN_NONE)
        refuse_json(r, r->scan.at, "`{` or `[` expected");
    json_t *v = r->scan.err == PL_ERR_OK ? read_value(r) : NULL;
    if (v && pl_scan_end(&r->scan)) return v;
    json_decref(v);
    return NULL;
}

void pl_json_place(const char *text, size_t n, struct pl_json_error *e) {
    size_t begin = n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    e->line = 1;
    for (size_t i = begin; i < e->at && i < n; i++) {
        if (text[i] != '\n') continue;
        e->line++;
        begin = i + 1;
    }
    e->column = e->at > begin ? e->at - begin + 1 : 1;
}

void pl_json_explain(const struct pl_scan *s, struct pl_json_error *e) {
    *e = (struct pl_json_error){
        .no_memory = s->err == PL_ERR_HOST_OOM, .at = s->where, .hint = s->hint};
    memcpy(e->what, s->what, sizeof e->what);
    pl_json_place(s->text, s->n, e);
}

json_t *pl_json_load(const char *text, size_t n, unsigned flags, struct pl_json_error *e) {
    struct reader r = {.scan = pl_scan_file(text, n), .flags = flags};
    r.scan.replaces = !(flags & PL_JSON_TEXT);
    json_t *root = read_document(&r);
    if (!root && e) pl_json_explain(&r.scan, e);
    pl_text_finish(&r.text);
    return root;
}

pl_err pl_json_refuse(const struct pl_json_error *e, pl_err syntax, const char *file,
                      struct pl_diag *d) {
    if (e->no_memory) return pl_host_oom(d, file);
    pl_diag_at(d, syntax, file, e->line, e->column, "%s", e->what);
    pl_diag_hint(d, "%s", e->hint ? e->hint : "the file is not valid JSON: correct it there");
    return syntax;
}

uint64_t pl_json_weight(const char *text, uint64_t n) {
    uint64_t weight = 0;
    for (uint64_t i = 0; i < n; i++)
        weight += text[i] == ','                     ? 1u
                  : text[i] == '[' || text[i] == '{' ? PL_JSON_BRACKET_WEIGHT
                                                     : 0u;
    return weight;
}

static int add_piece(const char *piece, size_t n, void *text) {
    pl_text_addn(text, piece, n);
    return 0; /* `failed` of the text is looked at in the end */
}

char *pl_json_dump(const json_t *v, size_t flags) {
    struct pl_text text = {0};
    if (v && json_dump_callback(v, add_piece, &text, flags) == 0 && !text.failed) return text.data;
    pl_text_finish(&text);
    return NULL;
}

/* --- builders --------------------------------------------------------------------------------- */

static void give_up(json_t **container) {
    json_decref(*container);
    *container = NULL;
}

json_t *pl_json_string(const char *s) {
    json_t *string = json_string(s);
    if (string) return string;
    struct pl_text t = {0};
    for (; *s; s++)
        pl_text_addn(&t, (unsigned char)*s < 0x80 ? s : "?", 1);
    string = t.failed ? NULL : json_string(pl_text_str(&t));
    pl_text_finish(&t);
    return string;
}

void pl_json_append(json_t **array, json_t *member) {
    if (json_array_append_new(*array, member) != 0) give_up(array);
}

void pl_json_set(json_t **object, const char *key, json_t *member) {
    if (json_object_set_new(*object, key, member) != 0) give_up(object);
}

void pl_json_merge(json_t **object, json_t *from) {
    if (!from || json_object_update(*object, from) != 0) give_up(object);
}
