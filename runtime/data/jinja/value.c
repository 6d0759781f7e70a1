/* value.c - arena, lists, maps, and what Python says of truth, equality and order. */
#include "runtime/data/jinja/value.h"
#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "runtime/data/tokenizer/hash.h"

#include <math.h>
#include <stdlib.h>

/* --- memory ----------------------------------------------------------------------------------- */
#define BLOCK_BYTES 16384
#define ALIGNMENT   16

struct pl_jinja_block {
    struct pl_jinja_block *next;
    uint64_t bytes; /* of `data` */
    _Alignas(ALIGNMENT) char data[];
};

/* Blocks double, so that there are few of them. */
static bool add_block(struct pl_jinja_arena *a, uint64_t least) {
    uint64_t bytes = a->blocks ? 2 * a->blocks->bytes : BLOCK_BYTES, total;
    uint64_t left = a->limit_bytes > a->used_bytes ? a->limit_bytes - a->used_bytes : 0;
    bytes = pl_u64_min(bytes, left);
    bytes = pl_u64_max(bytes, least);
    a->shortage = bytes > left ? PL_JINJA_OVER_LIMIT : PL_JINJA_NO_MEMORY;
    if (bytes > left || !pl_u64_add(bytes, sizeof(struct pl_jinja_block), &total) ||
        total > SIZE_MAX)
        return false;
    struct pl_jinja_block *b = pl_malloc((size_t)total);
    if (!b) return false;
    b->next = a->blocks;
    b->bytes = bytes;
    a->blocks = b;
    a->used_bytes += bytes;
    a->at = b->data;
    a->end = b->data + bytes;
    return true;
}

/* Making something costs what zeroing or copying its bytes costs. */
static bool pay_for(struct pl_jinja_arena *a, uint64_t bytes) {
    if (pl_jinja_pay(&a->meter, pl_u64_min(bytes, a->limit_bytes) + PL_JINJA_ITEM_UNITS))
        return true;
    a->shortage = PL_JINJA_OVER_WORK;
    return false;
}

static char *take_bytes(struct pl_jinja_arena *a, uint64_t bytes) {
    uintptr_t misaligned = (uintptr_t)a->at % ALIGNMENT;
    uint64_t room = (uint64_t)(a->end - a->at), pad = misaligned ? ALIGNMENT - misaligned : 0;
    if (!pay_for(a, bytes)) return NULL;
    if (!a->blocks || pad > room || bytes > room - pad) {
        if (!add_block(a, bytes)) return NULL;
        pad = 0;
    }
    char *p = a->at + pad;
    a->at = p + bytes;
    return p;
}

void *pl_jinja_alloc(struct pl_jinja_arena *a, uint64_t bytes) {
    char *p = take_bytes(a, bytes);
    return p ? memset(p, 0, (size_t)bytes) : NULL;
}

void *pl_jinja_alloc_array(struct pl_jinja_arena *a, uint64_t n, uint64_t size) {
    uint64_t bytes;
    if (pl_u64_mul(n, size, &bytes)) return pl_jinja_alloc(a, bytes);
    a->shortage = PL_JINJA_OVER_LIMIT;
    return NULL;
}

char *pl_jinja_alloc_joined(struct pl_jinja_arena *a, const char *s, size_t n, const char *more,
                            size_t m) {
    uint64_t bytes = 0;
    if (n && s + n == a->at && m <= (size_t)(a->end - a->at)) {
        if (!pay_for(a, m)) return NULL;
        memmove(a->at, more, m);
        a->at += m;
        return a->at - m - n;
    }
    char *p = pl_u64_add(n, m, &bytes) && bytes <= UINT32_MAX ? take_bytes(a, bytes) : NULL;
    if (bytes > UINT32_MAX) a->shortage = PL_JINJA_OVER_LIMIT;
    if (!p) return NULL;
    if (n) memcpy(p, s, n);
    if (m) memcpy(p + n, more, m);
    return p;
}

struct pl_jinja_mark pl_jinja_arena_mark(const struct pl_jinja_arena *a) {
    return (struct pl_jinja_mark){a->blocks, a->at, a->end, a->used_bytes};
}

void pl_jinja_arena_release(struct pl_jinja_arena *a, const struct pl_jinja_mark *mark) {
    while (a->blocks != mark->blocks) {
        struct pl_jinja_block *b = a->blocks;
        a->blocks = b->next;
        free(b);
    }
    a->at = mark->at;
    a->end = mark->end;
    a->used_bytes = mark->used_bytes;
}

void pl_jinja_arena_empty(struct pl_jinja_arena *a) {
    if (!a->blocks) return;
    while (a->blocks->next) {
        struct pl_jinja_block *b = a->blocks;
        a->blocks = b->next;
        free(b);
    }
    a->used_bytes = a->blocks->bytes;
    a->at = a->blocks->data;
    a->end = a->at + a->blocks->bytes;
}

void pl_jinja_arena_finish(struct pl_jinja_arena *a) {
    pl_jinja_arena_empty(a);
    free(a->blocks);
    *a = (struct pl_jinja_arena){0};
}

/* --- kinds ------------------------------------------------------------------------------------ */
const char *pl_jinja_type_name(const struct pl_jinja_value *v) {
    static const char *const sequences[PL_JINJA_SEQUENCES] = {
        "list", "tuple", "range", "dict_keys", "dict_values", "dict_items"};
    static const char *const names[PL_JINJA_KINDS] = {
        "nothing", "Undefined", "NoneType",  "bool",        "int",   "float",    "str",   "list",
        "dict",    "Namespace", "generator", "LoopContext", "Macro", "function", "method"};
    return v->kind == PL_JINJA_LIST ? sequences[v->sequence] : names[v->kind];
}

bool pl_jinja_truth(const struct pl_jinja_value *v) {
    switch ((enum pl_jinja_kind)v->kind) {
    case PL_JINJA_ABSENT:
    case PL_JINJA_UNDEFINED:
    case PL_JINJA_NONE:
        return false;
    case PL_JINJA_BOOL:
        return v->b;
    case PL_JINJA_INT:
        return v->i != 0;
    case PL_JINJA_FLOAT:
        return v->f != 0;
    case PL_JINJA_STRING:
        return v->n != 0;
    case PL_JINJA_LIST:
        return v->list->n != 0;
    case PL_JINJA_MAP:
        return v->map->n != 0;
    default:
        return true;
    }
}

bool pl_jinja_integer(const struct pl_jinja_value *v, int64_t *out) {
    if (v->kind != PL_JINJA_INT && v->kind != PL_JINJA_BOOL) return false;
    *out = v->kind == PL_JINJA_INT ? v->i : v->b;
    return true;
}

bool pl_jinja_number(const struct pl_jinja_value *v, double *out) {
    int64_t i;
    if (v->kind == PL_JINJA_FLOAT)
        *out = v->f;
    else if (pl_jinja_integer(v, &i))
        *out = (double)i;
    else
        return false;
    return true;
}

bool pl_jinja_is_number(const struct pl_jinja_value *v) {
    return v->kind == PL_JINJA_BOOL || v->kind == PL_JINJA_INT || v->kind == PL_JINJA_FLOAT;
}

bool pl_jinja_hashable(struct pl_jinja_meter *m, const struct pl_jinja_value *v) {
    if (v->kind == PL_JINJA_MAP || !pl_jinja_pay(m, PL_JINJA_ITEM_UNITS)) return false;
    if (v->kind != PL_JINJA_LIST) return true;
    if (v->sequence != PL_JINJA_TUPLE) return v->sequence == PL_JINJA_RANGE;
    for (size_t i = 0; i < v->list->n; i++)
        if (!pl_jinja_hashable(m, &v->list->items[i])) return false;
    return true;
}

/* --- equality and order ----------------------------------------------------------------------- */
/* 2^63 as a double separates what an int64_t can hold. */
static int compare_numbers(const struct pl_jinja_value *a, const struct pl_jinja_value *b,
                           bool *ordered) {
    int64_t x, y;
    double f, g;
    *ordered = true;
    if (pl_jinja_integer(a, &x) && pl_jinja_integer(b, &y)) return (x > y) - (x < y);
    (void)pl_jinja_number(a, &f);
    (void)pl_jinja_number(b, &g);
    *ordered = !isnan(f) && !isnan(g);
    if (f != g) return (f > g) - (f < g);
    /* equal as doubles: an integer beyond 2^53 may still differ from the float next to it */
    const bool a_is_whole = pl_jinja_integer(a, &x), b_is_whole = pl_jinja_integer(b, &y);
    if (f >= 0x1p63) return b_is_whole - a_is_whole; /* which it was rounded up to */
    if (f < -0x1p63) return 0;
    if (!a_is_whole) x = (int64_t)f;
    if (!b_is_whole) y = (int64_t)g;
    return (x > y) - (x < y);
}

static bool equal_lists(struct pl_jinja_meter *m, const struct pl_jinja_list *a,
                        const struct pl_jinja_list *b) {
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++)
        if (!pl_jinja_equal(m, &a->items[i], &b->items[i])) return false;
    return true;
}

static bool equal_maps(struct pl_jinja_meter *m, const struct pl_jinja_map *a,
                       const struct pl_jinja_map *b) {
    if (a->n != b->n) return false;
    for (size_t i = 0; i < a->n; i++) {
        const struct pl_jinja_value *v = pl_jinja_map_get(m, b, &a->entries[i].key);
        if (!v || !pl_jinja_equal(m, &a->entries[i].value, v)) return false;
    }
    return true;
}

bool pl_jinja_equal(struct pl_jinja_meter *m, const struct pl_jinja_value *a,
                    const struct pl_jinja_value *b) {
    bool ordered;
    if (!pl_jinja_pay(m, PL_JINJA_ITEM_UNITS)) return false;
    if (pl_jinja_is_number(a) && pl_jinja_is_number(b))
        return compare_numbers(a, b, &ordered) == 0 && ordered;
    if (a->kind != b->kind) return false;
    switch ((enum pl_jinja_kind)a->kind) {
    case PL_JINJA_UNDEFINED:
    case PL_JINJA_NONE:
        return true;
    case PL_JINJA_STRING:
        return a->n == b->n && pl_jinja_pay(m, a->n) && memcmp(a->s, b->s, a->n) == 0;
    case PL_JINJA_LIST:
        return a->sequence == b->sequence && equal_lists(m, a->list, b->list);
    case PL_JINJA_MAP:
        return equal_maps(m, a->map, b->map);
    default:
        return a->map == b->map; /* the same object */
    }
}

static int compare_text(struct pl_jinja_meter *meter, const struct pl_jinja_value *a,
                        const struct pl_jinja_value *b) {
    uint32_t least = a->n < b->n ? a->n : b->n;
    pl_jinja_pay(meter, least);
    int order = memcmp(a->s, b->s, least); /* the order of UTF-8 is that of code points */
    return order ? (order > 0) - (order < 0) : (a->n > b->n) - (a->n < b->n);
}

static bool order_lists(struct pl_jinja_meter *m, const struct pl_jinja_list *a,
                        const struct pl_jinja_list *b, int *order) {
    for (size_t i = 0; i < a->n && i < b->n; i++)
        if (!pl_jinja_equal(m, &a->items[i], &b->items[i]))
            return pl_jinja_order(m, &a->items[i], &b->items[i], order);
    *order = (a->n > b->n) - (a->n < b->n);
    return true;
}

bool pl_jinja_order(struct pl_jinja_meter *m, const struct pl_jinja_value *a,
                    const struct pl_jinja_value *b, int *order) {
    bool ordered;
    if (!pl_jinja_pay(m, PL_JINJA_ITEM_UNITS)) return false;
    if (pl_jinja_is_number(a) && pl_jinja_is_number(b)) {
        *order = compare_numbers(a, b, &ordered);
        return ordered;
    }
    if (a->kind == PL_JINJA_STRING && b->kind == PL_JINJA_STRING) {
        *order = compare_text(m, a, b);
        return true;
    }
    return a->kind == PL_JINJA_LIST && b->kind == PL_JINJA_LIST && a->sequence == b->sequence &&
           a->sequence <= PL_JINJA_TUPLE && order_lists(m, a->list, b->list, order);
}

/* --- hashes ----------------------------------------------------------------------------------- */
/* Equal numbers have one hash, whatever their type. */
static uint64_t hash_number(const struct pl_jinja_value *v) {
    uint64_t bits;
    int64_t i;
    double f;
    if (pl_jinja_integer(v, &i)) return pl_hash_mix((uint64_t)i);
    (void)pl_jinja_number(v, &f);
    if (f >= -0x1p63 && f < 0x1p63 && f == floor(f)) return pl_hash_mix((uint64_t)(int64_t)f);
    memcpy(&bits, &f, sizeof bits);
    return pl_hash_mix(bits);
}

/* Values that are equal have the same hash. */
static uint64_t hash_value(struct pl_jinja_meter *m, const struct pl_jinja_value *v) {
    uint64_t h = v->sequence;
    if (!pl_jinja_pay(m, PL_JINJA_ITEM_UNITS)) return 0;
    if (pl_jinja_is_number(v)) return hash_number(v);
    switch ((enum pl_jinja_kind)v->kind) {
    case PL_JINJA_STRING:
        return pl_jinja_pay(m, v->n) ? pl_hash_bytes(v->s, v->n) : 0;
    case PL_JINJA_LIST:
        for (size_t i = 0; i < v->list->n; i++)
            h = pl_hash_mix(h ^ hash_value(m, &v->list->items[i]));
        return h;
    default:
        return v->kind; /* few of them are keys */
    }
}

/* --- lists and maps --------------------------------------------------------------------------- */
struct pl_jinja_list *pl_jinja_list_new(struct pl_jinja_arena *a, size_t cap) {
    struct pl_jinja_list *l = pl_jinja_alloc(a, sizeof *l);
    if (!l || !cap) return l;
    l->items = pl_jinja_alloc_array(a, cap, sizeof *l->items);
    l->cap = cap;
    return l->items ? l : NULL;
}

static bool deepen(struct pl_jinja_arena *a, uint32_t *depth, const struct pl_jinja_value *v) {
    uint32_t below = v->kind == PL_JINJA_LIST  ? v->list->depth + 1
                     : v->kind == PL_JINJA_MAP ? v->map->depth + 1
                                               : 0;
    if (below > *depth) *depth = below;
    if (below <= PL_JINJA_DEPTH) return true;
    a->shortage = PL_JINJA_TOO_DEEP;
    return false;
}

bool pl_jinja_list_add(struct pl_jinja_arena *a, struct pl_jinja_list *l,
                       const struct pl_jinja_value *v) {
    if (!pay_for(a, 0) || !deepen(a, &l->depth, v)) return false;
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 8;
        struct pl_jinja_value *items = pl_jinja_alloc_array(a, cap, sizeof *items);
        if (!items) return false;
        if (l->n) memcpy(items, l->items, l->n * sizeof *items);
        l->items = items;
        l->cap = cap;
    }
    l->items[l->n++] = *v;
    return true;
}

struct pl_jinja_map *pl_jinja_map_new(struct pl_jinja_arena *a, size_t cap) {
    struct pl_jinja_map *m = pl_jinja_alloc(a, sizeof *m);
    if (!m || !cap) return m;
    m->entries = pl_jinja_alloc_array(a, cap, sizeof *m->entries);
    m->cap = cap;
    return m->entries ? m : NULL;
}

#define FEW_ENTRIES 8 /* are looked through */

/* The slot of the key, or the free one where it would stand. */
static size_t slot_of(struct pl_jinja_meter *meter, const struct pl_jinja_map *m,
                      const struct pl_jinja_value *key, uint64_t hash) {
    size_t mask = m->n_slots - 1, at = (size_t)hash & mask;
    for (; m->slots[at]; at = (at + 1) & mask) {
        if (!pl_jinja_pay(meter, PL_JINJA_ITEM_UNITS)) break;
        const struct pl_jinja_entry *e = &m->entries[(uint32_t)m->slots[at] - 1];
        if (m->slots[at] >> 32 == hash >> 32 && pl_jinja_equal(meter, &e->key, key)) break;
    }
    return at;
}

struct pl_jinja_value *pl_jinja_map_get(struct pl_jinja_meter *meter, const struct pl_jinja_map *m,
                                        const struct pl_jinja_value *key) {
    for (size_t i = 0; !m->n_slots && i < m->n; i++)
        if (pl_jinja_equal(meter, &m->entries[i].key, key)) return &m->entries[i].value;
    if (!m->n_slots) return NULL;
    uint64_t slot = m->slots[slot_of(meter, m, key, hash_value(meter, key))];
    return slot ? &m->entries[(uint32_t)slot - 1].value : NULL;
}

struct pl_jinja_value *pl_jinja_map_find(const struct pl_jinja_map *m, const char *key, size_t n) {
    struct pl_jinja_meter meter = {.limit = UINT64_MAX};
    const struct pl_jinja_value text = pl_jinja_string(key, n);
    return pl_jinja_map_get(&meter, m, &text);
}

static void put_slot(struct pl_jinja_meter *meter, struct pl_jinja_map *m, size_t entry) {
    uint64_t hash = hash_value(meter, &m->entries[entry].key);
    size_t mask = m->n_slots - 1, at = (size_t)hash & mask;
    while (m->slots[at] && pl_jinja_pay(meter, PL_JINJA_ITEM_UNITS))
        at = (at + 1) & mask;
    m->slots[at] = hash >> 32 << 32 | (entry + 1);
}

/* Slots for the first entry beyond the few, and twice as many where half of them are taken. */
static bool make_slots(struct pl_jinja_arena *a, struct pl_jinja_map *m) {
    if (m->n < FEW_ENTRIES || 2 * m->n < m->n_slots) return true;
    size_t n = 4 * FEW_ENTRIES;
    while (n < 4 * m->n || n < 2 * m->cap)
        n *= 2;
    uint64_t *slots = pl_jinja_alloc_array(a, n, sizeof *slots);
    if (!slots) return false;
    m->slots = slots;
    m->n_slots = n;
    for (size_t i = 0; i < m->n; i++)
        put_slot(&a->meter, m, i);
    return true;
}

static bool add_entry(struct pl_jinja_arena *a, struct pl_jinja_map *m,
                      const struct pl_jinja_value *key, const struct pl_jinja_value *value) {
    if (m->n == m->cap) {
        size_t cap = m->cap ? 2 * m->cap : 8;
        struct pl_jinja_entry *entries = pl_jinja_alloc_array(a, cap, sizeof *entries);
        if (!entries) return false;
        if (m->n) memcpy(entries, m->entries, m->n * sizeof *entries);
        m->entries = entries;
        m->cap = cap;
    }
    if (!make_slots(a, m)) return false;
    m->entries[m->n] = (struct pl_jinja_entry){*key, *value};
    if (m->n_slots) put_slot(&a->meter, m, m->n);
    m->n++;
    return true;
}

bool pl_jinja_map_set(struct pl_jinja_arena *a, struct pl_jinja_map *m,
                      const struct pl_jinja_value *key, const struct pl_jinja_value *value) {
    struct pl_jinja_value *old = pl_jinja_map_get(&a->meter, m, key);
    if (!pay_for(a, 0)) return false;
    if (!deepen(a, &m->depth, key) || !deepen(a, &m->depth, value)) return false;
    if (!old) return add_entry(a, m, key, value);
    *old = *value;
    return true;
}
