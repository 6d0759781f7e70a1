/* loop.c - the elements of a loop one after another, and the members of `loop`. */
#include "runtime/data/jinja/loop.h"

/* The element after the current one, looked for once. */
static bool peek_next(struct pl_jinja_run *r, struct pl_jinja_loop *l) {
    bool done;
    if (l->after.kind != PL_JINJA_ABSENT || l->ended) return true;
    if (!pl_jinja_next(r, l->it, &l->after, &done)) return false;
    if (done) l->after = (struct pl_jinja_value){0};
    l->ended = done;
    return true;
}

/* All elements are taken in to count them. */
static bool count_all(struct pl_jinja_run *r, struct pl_jinja_loop *l) {
    const struct pl_jinja_value rest = {.kind = PL_JINJA_ITERATOR, .iterator = l->it};
    struct pl_jinja_list *items;
    if (l->has_length) return true;
    if (pl_jinja_length(pl_jinja_meter(r), &l->it->over, &l->length) && !l->it->source &&
        !l->it->node) {
        l->has_length = true;
        return true;
    }
    if (!pl_jinja_list_of(r, &rest, &items)) return false;
    l->length = items->n + (size_t)l->index0 + 1 + (l->after.kind != PL_JINJA_ABSENT);
    l->has_length = true;
    const struct pl_jinja_value list = pl_jinja_list(items, PL_JINJA_PLAIN);
    return pl_jinja_iterate(r, &list, &l->it);
}

enum loop_member {
    INDEX,
    INDEX0,
    REVINDEX,
    REVINDEX0,
    FIRST,
    LAST,
    LENGTH,
    DEPTH,
    DEPTH0,
    PREV,
    AFTER
};
static const struct {
    const char *name;
    enum loop_member member;
} loop_members[] = {
    {"index", INDEX},   {"index0", INDEX0}, {"revindex", REVINDEX}, {"revindex0", REVINDEX0},
    {"first", FIRST},   {"last", LAST},     {"length", LENGTH},     {"depth", DEPTH},
    {"depth0", DEPTH0}, {"previtem", PREV}, {"nextitem", AFTER},
};

static bool member_of_loop(struct pl_jinja_run *r, struct pl_jinja_loop *l, enum loop_member m,
                           struct pl_jinja_value *out) {
    if ((m == LAST || m == AFTER) && !peek_next(r, l)) return false;
    if ((m == REVINDEX || m == REVINDEX0 || m == LENGTH) && !count_all(r, l)) return false;
    int64_t length = (int64_t)l->length;
    switch (m) {
    case INDEX:
        *out = pl_jinja_int(l->index0 + 1);
        break;
    case INDEX0:
        *out = pl_jinja_int(l->index0);
        break;
    case REVINDEX:
        *out = pl_jinja_int(length - l->index0);
        break;
    case REVINDEX0:
        *out = pl_jinja_int(length - l->index0 - 1);
        break;
    case FIRST:
        *out = pl_jinja_bool(l->index0 == 0);
        break;
    case LAST:
        *out = pl_jinja_bool(l->after.kind == PL_JINJA_ABSENT);
        break;
    case LENGTH:
        *out = pl_jinja_int(length);
        break;
    case DEPTH:
        *out = pl_jinja_int(1);
        break; /* loops that call themselves are not supported */
    case DEPTH0:
        *out = pl_jinja_int(0);
        break;
    case PREV:
        *out = l->before;
        break;
    case AFTER:
        *out = l->after;
        break;
    }
    return true;
}

bool pl_jinja_loop_member(struct pl_jinja_run *r, struct pl_jinja_loop *loop, const char *name,
                          size_t n, struct pl_jinja_value *out) {
    for (size_t i = 0; i < sizeof loop_members / sizeof *loop_members; i++) {
        if (!pl_jinja_named(name, n, loop_members[i].name)) continue;
        if (!member_of_loop(r, loop, loop_members[i].member, out)) return false;
        if (out->kind != PL_JINJA_ABSENT) return true;
        *out = pl_jinja_literal(loop_members[i].name);
        out->kind = PL_JINJA_UNDEFINED;
        return true;
    }
    if (pl_jinja_named(name, n, "cycle") || pl_jinja_named(name, n, "changed"))
        return pl_jinja_fail(r, "loop.%.*s is not supported", (int)n, name);
    *out = (struct pl_jinja_value){0};
    return true;
}

bool pl_jinja_loop_advance(struct pl_jinja_run *r, struct pl_jinja_loop *l, bool *done) {
    if (!peek_next(r, l)) return false;
    *done = l->after.kind == PL_JINJA_ABSENT;
    if (*done) return true;
    l->before = l->current;
    l->current = l->after;
    l->after = (struct pl_jinja_value){0};
    l->index0++;
    return true;
}
