/* members.c - attributes and items: the look-ups of Jinja's sandbox, and methods of values. */
#include "runtime/data/jinja/loop.h"
#include "runtime/data/tokenizer/utf8.h"

#define LOOKING_FOR_NAME 256 /* units: a table of methods is looked through */

static void undefined_member(const struct pl_jinja_value *of, const char *name, size_t n,
                             struct pl_jinja_value *out) {
    *out = (struct pl_jinja_value){.kind = PL_JINJA_UNDEFINED,
                                   .sequence = (uint8_t)(of->kind + 1),
                                   .n = (uint32_t)n,
                                   .s = name};
}

/* list.append and its kind: the sandbox gives nothing for them, and calling that fails. */
static bool changes_its_value(const struct pl_jinja_value *v, const char *name, size_t n) {
    static const char *const of_list[] = {"append", "clear",  "pop",    "reverse", "insert",
                                          "sort",   "extend", "remove", NULL};
    static const char *const of_map[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    const char *const *all = v->kind == PL_JINJA_MAP                                     ? of_map
                             : v->kind == PL_JINJA_LIST && v->sequence == PL_JINJA_PLAIN ? of_list
                                                                                         : NULL;
    for (; all && *all; all++)
        if (pl_jinja_named(name, n, *all)) return true;
    return false;
}

bool pl_jinja_member(struct pl_jinja_run *r, const struct pl_jinja_value *v, const char *name,
                     size_t n, struct pl_jinja_value *out) {
    *out = (struct pl_jinja_value){0};
    if (!pl_jinja_spend(r, LOOKING_FOR_NAME)) return false;
    if (n > 1 && name[0] == '_' && name[1] == '_')
        return pl_jinja_fail(r, "names that begin with __ are not supported");
    if (v->kind == PL_JINJA_LOOP) return pl_jinja_loop_member(r, v->loop, name, n, out);
    if (v->kind == PL_JINJA_NAMESPACE) {
        const struct pl_jinja_value key = pl_jinja_string(name, n);
        const struct pl_jinja_value *found = pl_jinja_map_get(pl_jinja_meter(r), v->map, &key);
        if (found) *out = *found;
        return true;
    }
    if (v->kind > PL_JINJA_LOOP)
        return pl_jinja_fail(r, "attributes of a %s are not supported", pl_jinja_type_name(v));
    if (changes_its_value(v, name, n)) {
        undefined_member(v, name, n, out);
        return true;
    }
    const struct pl_jinja_function *f = pl_jinja_find_function(pl_jinja_methods(v), name, n);
    if (!f) return true;
    if (!f->call)
        return pl_jinja_fail(r, "`%s` of a %s is not supported", f->name, pl_jinja_type_name(v));
    struct pl_jinja_bound *b = pl_jinja_alloc(r->arena, sizeof *b);
    if (!b) return pl_jinja_fail_memory(r);
    *b = (struct pl_jinja_bound){*v, f};
    *out = (struct pl_jinja_value){.kind = PL_JINJA_METHOD, .method = b};
    return true;
}

/* v[key] where v has items: false in *found: it has no such one. */
static bool index_value(struct pl_jinja_run *r, const struct pl_jinja_value *v,
                        const struct pl_jinja_value *key, bool *found, struct pl_jinja_value *out) {
    size_t length = 0;
    int64_t i;
    *found = false;
    if (v->kind == PL_JINJA_MAP) {
        const struct pl_jinja_value *item = pl_jinja_map_get(pl_jinja_meter(r), v->map, key);
        *found = item != NULL;
        if (item) *out = *item;
        return pl_jinja_spend(r, 0);
    }
    bool sequence = v->kind == PL_JINJA_LIST && v->sequence <= PL_JINJA_RANGE;
    if ((!sequence && v->kind != PL_JINJA_STRING) || !pl_jinja_integer(key, &i)) return true;
    pl_jinja_length(pl_jinja_meter(r), v, &length);
    if (i < 0) i += (int64_t)length;
    *found = i >= 0 && i < (int64_t)length;
    if (!*found) return true;
    if (sequence) {
        *out = v->list->items[i];
        return true;
    }
    size_t at = pl_jinja_byte_of(pl_jinja_meter(r), v->s, v->n, (size_t)i);
    *out = pl_jinja_string(v->s + at, pl_utf8_length(v->s[at]));
    out->markup = v->markup;
    return pl_jinja_spend(r, 0);
}

bool pl_jinja_attr(struct pl_jinja_run *r, const struct pl_jinja_value *v, const char *name,
                   size_t n, struct pl_jinja_value *out) {
    const struct pl_jinja_value key = pl_jinja_string(name, n);
    bool found;
    if (v->kind == PL_JINJA_UNDEFINED) return pl_jinja_fail_undefined(r, v);
    if (!pl_jinja_member(r, v, name, n, out)) return false;
    if (out->kind != PL_JINJA_ABSENT) return true;
    if (!index_value(r, v, &key, &found, out)) return false;
    if (!found) undefined_member(v, name, n, out);
    return true;
}

bool pl_jinja_item(struct pl_jinja_run *r, const struct pl_jinja_value *v,
                   const struct pl_jinja_value *key, struct pl_jinja_value *out) {
    bool found;
    if (v->kind == PL_JINJA_UNDEFINED) return pl_jinja_fail_undefined(r, v);
    if (!index_value(r, v, key, &found, out) || found) return r->d->err == PL_ERR_OK;
    if (key->kind != PL_JINJA_STRING) {
        undefined_member(v, "[...]", 5, out);
        return true;
    }
    if (!pl_jinja_member(r, v, key->s, key->n, out)) return false;
    if (out->kind == PL_JINJA_ABSENT) undefined_member(v, key->s, key->n, out);
    return true;
}
