/* value.h - the values of a Jinja program, and the memory they live in.
 *
 * In: numbers, text, lists, maps.  Out: the same as one type.  Needs: base.
 * A value is what the corresponding Python object is to a template: lists keep apart tuples, ranges
 * and views of a dict, strings are UTF-8 and count code points, integers have 64 bits.
 *   A1  everything of one rendering lives in one arena with a limit; nothing is freed before the
 *       arena is emptied, so values may share parts freely
 *   A2  values do not change once they are visible to a program, namespaces aside
 *   A3  lists and maps are nested at most PL_JINJA_DEPTH deep: walking them by recursion is safe
 *   A4  whoever visits bytes or items pays for them, and the arena's calls pay for themselves: a
 *       function whose work depends on its arguments takes a meter, or an arena, which has one
 * Use: struct pl_jinja_arena a = {.limit_bytes = 1 << 20, .meter.limit = 1 << 26};
 *      struct pl_jinja_list *l = pl_jinja_list_new(&a, 2); ... pl_jinja_arena_finish(&a); */
#ifndef PL_RUNTIME_DATA_JINJA_VALUE_H
#define PL_RUNTIME_DATA_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* --- work ------------------------------------------------------------------------------------- */
/* Work in units of about one byte moved, half a nanosecond of a slow machine. */
enum {
    PL_JINJA_ITEM_UNITS = 16,      /* an element or entry is visited, a text or value is made */
    PL_JINJA_STEP_UNITS = 64,      /* a node is evaluated */
    PL_JINJA_SEARCH_UNITS = 8,     /* a byte of a text is searched */
    PL_JINJA_CHARACTER_UNITS = 16, /* a byte is looked up in the tables of characters */
    PL_JINJA_NUMBER_UNITS = 1024,  /* a number is written or read by the C library */
};

struct pl_jinja_meter {
    uint64_t spent, limit;
};

/* False: more was spent than there is, and it stays so. What is answered from then on means
 * nothing; the next step of the program fails. */
static inline bool pl_jinja_pay(struct pl_jinja_meter *m, uint64_t units) {
    m->spent = units > UINT64_MAX - m->spent ? UINT64_MAX : m->spent + units;
    return m->spent <= m->limit;
}

/* --- memory ----------------------------------------------------------------------------------- */
enum pl_jinja_shortage {
    PL_JINJA_NO_MEMORY,
    PL_JINJA_OVER_LIMIT,
    PL_JINJA_OVER_WORK,
    PL_JINJA_TOO_DEEP
};

struct pl_jinja_block;
struct pl_jinja_arena {
    struct pl_jinja_block *blocks; /* the newest first, owned */
    char *at, *end;                /* what is free in it */
    uint64_t used_bytes, limit_bytes;
    struct pl_jinja_meter meter;     /* of all work with its values */
    enum pl_jinja_shortage shortage; /* why the last call failed */
};
/* Zeroed and aligned for any type. NULL: over a limit, or no memory. */
void *pl_jinja_alloc(struct pl_jinja_arena *a, uint64_t bytes);
/* n elements of `size` bytes. */
void *pl_jinja_alloc_array(struct pl_jinja_arena *a, uint64_t n, uint64_t size);
/* The text s[0, n) followed by more[0, m). In place where s is the newest text of the arena, so
 * that a text that grows piece by piece costs its length. */
char *pl_jinja_alloc_joined(struct pl_jinja_arena *a, const char *s, size_t n, const char *more,
                            size_t m);
/* Gives back the memory that was allocated since the mark was taken. */
struct pl_jinja_mark {
    struct pl_jinja_block *blocks;
    char *at, *end;
    uint64_t used_bytes;
};
struct pl_jinja_mark pl_jinja_arena_mark(const struct pl_jinja_arena *a);
void pl_jinja_arena_release(struct pl_jinja_arena *a, const struct pl_jinja_mark *mark);
void pl_jinja_arena_empty(struct pl_jinja_arena *a);  /* keeps one block */
void pl_jinja_arena_finish(struct pl_jinja_arena *a); /* frees; leaves {0} */

/* --- values ----------------------------------------------------------------------------------- */
enum pl_jinja_kind {
    PL_JINJA_ABSENT, /* no value at all: an argument that was not given, a free slot */
    PL_JINJA_UNDEFINED,
    PL_JINJA_NONE,
    PL_JINJA_BOOL,
    PL_JINJA_INT,
    PL_JINJA_FLOAT,
    PL_JINJA_STRING,
    PL_JINJA_LIST,
    PL_JINJA_MAP,
    PL_JINJA_NAMESPACE,
    PL_JINJA_ITERATOR,
    PL_JINJA_LOOP,
    PL_JINJA_MACRO,
    PL_JINJA_FUNCTION, /* of the environment: range, raise_exception, ... */
    PL_JINJA_METHOD,   /* with the value it belongs to */
    PL_JINJA_KINDS
};

/* The kind of Python sequence that a list is. */
enum pl_jinja_sequence {
    PL_JINJA_PLAIN,
    PL_JINJA_TUPLE,
    PL_JINJA_RANGE,
    PL_JINJA_KEYS, /* views of a dict */
    PL_JINJA_VALUES,
    PL_JINJA_ITEMS,
    PL_JINJA_SEQUENCES
};

struct pl_jinja_list;
struct pl_jinja_map;
struct pl_jinja_iterator;
struct pl_jinja_loop;
struct pl_jinja_macro;
struct pl_jinja_bound;
struct pl_jinja_function;

struct pl_jinja_value {
    uint8_t kind;
    uint8_t sequence; /* of a list; of an undefined one 1 + the kind it is no member of */
    bool markup;      /* of a string: what `safe` made */
    uint32_t n;       /* bytes of a string, or of the name of an undefined one */
    union {
        bool b;
        int64_t i;
        double f;
        const char *s;
        struct pl_jinja_list *list;
        struct pl_jinja_map *map; /* of maps and namespaces */
        struct pl_jinja_iterator *iterator;
        struct pl_jinja_loop *loop;
        const struct pl_jinja_macro *macro;
        const struct pl_jinja_function *function;
        const struct pl_jinja_bound *method;
    };
};

#define PL_JINJA_DEPTH 600 /* lists in lists; more than json_scan lets through */

struct pl_jinja_list {
    struct pl_jinja_value *items; /* [n] */
    size_t n, cap;
    uint32_t depth; /* of the lists and maps in it */
};

struct pl_jinja_entry {
    struct pl_jinja_value key, value;
};

struct pl_jinja_map {
    struct pl_jinja_entry *entries; /* [n], in the order they were first set */
    uint64_t *slots; /* [n_slots], a power of two: half a hash, and 1 + the number of the entry */
    size_t n, cap, n_slots;
    uint32_t depth;
    uint32_t part; /* 1 + its place in the parts of a rendering; 0 = it is none of them */
};

static inline struct pl_jinja_value pl_jinja_none(void) {
    return (struct pl_jinja_value){.kind = PL_JINJA_NONE};
}
static inline struct pl_jinja_value pl_jinja_bool(bool b) {
    return (struct pl_jinja_value){.kind = PL_JINJA_BOOL, .b = b};
}
static inline struct pl_jinja_value pl_jinja_int(int64_t i) {
    return (struct pl_jinja_value){.kind = PL_JINJA_INT, .i = i};
}
static inline struct pl_jinja_value pl_jinja_float(double f) {
    return (struct pl_jinja_value){.kind = PL_JINJA_FLOAT, .f = f};
}
static inline struct pl_jinja_value pl_jinja_string(const char *s, size_t n) {
    return (struct pl_jinja_value){.kind = PL_JINJA_STRING, .n = (uint32_t)n, .s = s};
}
static inline struct pl_jinja_value pl_jinja_literal(const char *s) {
    return pl_jinja_string(s, strlen(s));
}
static inline struct pl_jinja_value pl_jinja_list(struct pl_jinja_list *l,
                                                  enum pl_jinja_sequence sequence) {
    return (struct pl_jinja_value){.kind = PL_JINJA_LIST, .sequence = (uint8_t)sequence, .list = l};
}
static inline struct pl_jinja_value pl_jinja_map(struct pl_jinja_map *m) {
    return (struct pl_jinja_value){.kind = PL_JINJA_MAP, .map = m};
}
/* s[0, n) is this word of the program. */
static inline bool pl_jinja_named(const char *s, size_t n, const char *word) {
    return n == strlen(word) && memcmp(s, word, n) == 0;
}
static inline bool pl_jinja_is(const struct pl_jinja_value *v, const char *text) {
    return v->kind == PL_JINJA_STRING && pl_jinja_named(v->s, v->n, text);
}

/* Python's name of the type ("dict"). */
const char *pl_jinja_type_name(const struct pl_jinja_value *v);
/* bool(v). */
bool pl_jinja_truth(const struct pl_jinja_value *v);
/* Integers and booleans, as a number; false: v is neither. */
bool pl_jinja_integer(const struct pl_jinja_value *v, int64_t *out);
/* The same with floats. */
bool pl_jinja_number(const struct pl_jinja_value *v, double *out);
bool pl_jinja_is_number(const struct pl_jinja_value *v);

/* a == b. */
bool pl_jinja_equal(struct pl_jinja_meter *m, const struct pl_jinja_value *a,
                    const struct pl_jinja_value *b);
/* -1, 0 or 1 into *order; false: the two have no order in Python. */
bool pl_jinja_order(struct pl_jinja_meter *m, const struct pl_jinja_value *a,
                    const struct pl_jinja_value *b, int *order);
/* May be the key of a dict. */
bool pl_jinja_hashable(struct pl_jinja_meter *m, const struct pl_jinja_value *v);

/* NULL and false: no memory, over a limit, or nested too deeply. */
struct pl_jinja_list *pl_jinja_list_new(struct pl_jinja_arena *a, size_t cap);
bool pl_jinja_list_add(struct pl_jinja_arena *a, struct pl_jinja_list *l,
                       const struct pl_jinja_value *v);
struct pl_jinja_map *pl_jinja_map_new(struct pl_jinja_arena *a, size_t cap);
bool pl_jinja_map_set(struct pl_jinja_arena *a, struct pl_jinja_map *m,
                      const struct pl_jinja_value *key, const struct pl_jinja_value *value);
/* NULL: no such key. */
struct pl_jinja_value *pl_jinja_map_get(struct pl_jinja_meter *meter, const struct pl_jinja_map *m,
                                        const struct pl_jinja_value *key);
/* The same by a text, from outside of programs. */
struct pl_jinja_value *pl_jinja_map_find(const struct pl_jinja_map *m, const char *key, size_t n);

#endif
