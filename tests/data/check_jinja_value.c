/* check_jinja_value.c - the memory of a rendering, and lists, maps and order as Python has them. */
#include "runtime/data/jinja/chars.h"
#include "runtime/data/jinja/value.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

static struct pl_jinja_arena arena;
static uint64_t state;

static void make(void) {
    arena = (struct pl_jinja_arena){.limit_bytes = 1 << 22, .meter.limit = UINT64_MAX};
    state = 1;
}

static void unmake(void) {
    pl_jinja_arena_finish(&arena);
}

static size_t draw(size_t n) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)(state >> 33) % n;
}

static bool holds(const unsigned char *at, size_t n, unsigned char byte) {
    size_t i = 0;
    while (i < n && at[i] == byte)
        i++;
    return i == n;
}

/* A1 of value.h */
START_TEST(memory_is_zeroed_aligned_and_never_handed_out_twice) {
    enum { PIECES = 500 };
    unsigned char *at[PIECES];
    size_t bytes[PIECES];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < PIECES; i++) {
            bytes[i] = draw(10) ? draw(200) : draw(9000);
            at[i] = pl_jinja_alloc(&arena, bytes[i]);
            ck_assert_ptr_nonnull(at[i]);
            ck_assert_uint_eq((uintptr_t)at[i] % _Alignof(max_align_t), 0);
            ck_assert(holds(at[i], bytes[i], 0));
            if (bytes[i]) memset(at[i], i & 255, bytes[i]);
        }
        for (int i = 0; i < PIECES; i++)
            ck_assert(holds(at[i], bytes[i], (unsigned char)i));
        ck_assert_uint_le(arena.used_bytes, arena.limit_bytes);
        pl_jinja_arena_empty(&arena);
    }
}
END_TEST

/* A1 of value.h */
START_TEST(the_limit_is_told_apart_and_what_there_is_stays) {
    char *first = pl_jinja_alloc(&arena, 100);
    ck_assert_ptr_nonnull(first);
    memset(first, 'x', 100);
    ck_assert_ptr_null(pl_jinja_alloc(&arena, arena.limit_bytes + 1));
    ck_assert_int_eq(arena.shortage, PL_JINJA_OVER_LIMIT);
    arena.shortage = PL_JINJA_NO_MEMORY;
    ck_assert_ptr_null(pl_jinja_alloc_array(&arena, UINT64_MAX / 4, 8)); /* beyond 64 bits */
    ck_assert_int_eq(arena.shortage, PL_JINJA_OVER_LIMIT);
    arena.shortage = PL_JINJA_NO_MEMORY;
    ck_assert_ptr_null(pl_jinja_alloc_joined(&arena, "a", 1, "b", SIZE_MAX - 1));
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(first[i], 'x');
    uint64_t got = 0;
    while (pl_jinja_alloc(&arena, 1000))
        got += 1000;
    ck_assert_uint_gt(got, arena.limit_bytes / 2);
    ck_assert_uint_le(arena.used_bytes, arena.limit_bytes);
    ck_assert_ptr_nonnull((pl_jinja_arena_empty(&arena), pl_jinja_alloc(&arena, 1000)));
}
END_TEST

START_TEST(a_mark_gives_back_what_came_after_it) {
    char *kept = pl_jinja_alloc(&arena, 64);
    memset(kept, 'k', 64);
    const struct pl_jinja_mark mark = pl_jinja_arena_mark(&arena);
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 40; i++)
            ck_assert_ptr_nonnull(pl_jinja_alloc(&arena, 5000));
        ck_assert_uint_gt(arena.used_bytes, mark.used_bytes);
        pl_jinja_arena_release(&arena, &mark);
        ck_assert_uint_eq(arena.used_bytes, mark.used_bytes);
        ck_assert_ptr_eq(arena.at, mark.at);
    }
    for (int i = 0; i < 64; i++)
        ck_assert_int_eq(kept[i], 'k');
}
END_TEST

/* A2 of value.h. Two texts may begin with the same one: growing the newest in place must not change
 * the other. */
START_TEST(joined_texts_keep_their_bytes) {
    enum { TEXTS = 60 };
    char *at[TEXTS], want[TEXTS][400];
    size_t n[TEXTS];
    for (int i = 0; i < TEXTS; i++) {
        const int from = i ? (int)draw((size_t)i) : -1; /* often the newest, often another */
        const int base = i && draw(2) ? i - 1 : from;
        const size_t m = draw(20), before = base < 0 ? 0 : n[base];
        char more[20];
        for (size_t k = 0; k < m; k++)
            more[k] = (char)('a' + draw(26));
        if (before + m > sizeof want[i]) continue;
        at[i] = pl_jinja_alloc_joined(&arena, base < 0 ? NULL : at[base], before, more, m);
        ck_assert_ptr_nonnull(at[i]);
        if (before) memcpy(want[i], want[base], before);
        memcpy(want[i] + before, more, m);
        n[i] = before + m;
        for (int k = 0; k <= i; k++)
            ck_assert_mem_eq(at[k], want[k], n[k]);
    }
}
END_TEST

/* Growing piece by piece costs its length, not its square. */
START_TEST(a_text_that_grows_costs_its_length) {
    char *text = NULL;
    for (size_t n = 0; n < 100000; n++) {
        text = pl_jinja_alloc_joined(&arena, text, n, "ab" + n % 2, 1);
        if (!text) ck_abort_msg("no memory for %zu bytes", n + 1);
    }
    ck_assert_uint_le(arena.used_bytes, 1 << 20);
    for (size_t n = 0; n < 100000; n++)
        if (text[n] != "ab"[n % 2]) ck_abort_msg("byte %zu: %c", n, text[n]);
}
END_TEST

static struct pl_jinja_value random_value(int depth) {
    static const char *const words[] = {"", "a", "b", "ab", "\xC3\xA9", "\xE2\x82\xAC", "Z"};
    static const double floats[] = {0, -0.0, 0.5, 1, 9007199254740992.0, 0x1p63, -0x1p63, 1e300};
    static const int64_t ints[] = {0, 1, -1, 2, 9007199254740993, INT64_MAX, INT64_MIN};
    struct pl_jinja_list *l;
    switch (draw(depth > 0 ? 6 : 4)) {
    case 0:
        return pl_jinja_bool(draw(2));
    case 1:
        return pl_jinja_int(ints[draw(COUNT(ints))]);
    case 2:
        return pl_jinja_float(floats[draw(COUNT(floats))]);
    case 3:
        return pl_jinja_literal(words[draw(COUNT(words))]);
    default:
        l = pl_jinja_list_new(&arena, draw(3));
        for (size_t n = draw(4); n > 0; n--) {
            const struct pl_jinja_value item = random_value(depth - 1);
            ck_assert(pl_jinja_list_add(&arena, l, &item));
        }
        return pl_jinja_list(l, draw(2) ? PL_JINJA_PLAIN : PL_JINJA_TUPLE);
    }
}

/* Properties of any order: it is antisymmetric and transitive, and agrees with equality. */
START_TEST(order_and_equality_agree) {
    enum { VALUES = 90 };
    struct pl_jinja_value v[VALUES];
    int ordered = 0, equal = 0;
    for (int i = 0; i < VALUES; i++)
        v[i] = random_value(2);
    for (int i = 0; i < VALUES; i++) {
        ck_assert(pl_jinja_equal(&arena.meter, &v[i], &v[i]));
        for (int k = 0; k < VALUES; k++) {
            int there = 9, back = 9;
            const bool is = pl_jinja_order(&arena.meter, &v[i], &v[k], &there);
            ck_assert_int_eq(is, pl_jinja_order(&arena.meter, &v[k], &v[i], &back));
            ck_assert_int_eq(pl_jinja_equal(&arena.meter, &v[i], &v[k]),
                             pl_jinja_equal(&arena.meter, &v[k], &v[i]));
            if (!is) continue;
            ordered++;
            equal += there == 0;
            ck_assert_int_eq(there, -back);
            ck_assert_int_eq(there == 0, pl_jinja_equal(&arena.meter, &v[i], &v[k]));
            for (int j = 0; j < VALUES; j++) {
                int onward, whole;
                if (!pl_jinja_order(&arena.meter, &v[k], &v[j], &onward) || onward != there)
                    continue;
                if (!pl_jinja_order(&arena.meter, &v[i], &v[j], &whole)) continue;
                ck_assert_int_eq(whole, there);
            }
        }
    }
    ck_assert_int_gt(ordered, 500);
    ck_assert_int_gt(equal, VALUES);
}
END_TEST

static struct pl_jinja_value two(struct pl_jinja_value a, struct pl_jinja_value b) {
    struct pl_jinja_list *l = pl_jinja_list_new(&arena, 2);
    ck_assert(pl_jinja_list_add(&arena, l, &a) && pl_jinja_list_add(&arena, l, &b));
    return pl_jinja_list(l, PL_JINJA_TUPLE);
}

START_TEST(numbers_compare_by_their_exact_value) {
    const struct pl_jinja_value big = pl_jinja_int(9007199254740993), nan = pl_jinja_float(NAN);
    const struct pl_jinja_value near = pl_jinja_float(9007199254740992.0);
    const struct pl_jinja_value most = pl_jinja_int(INT64_MAX), beyond = pl_jinja_float(0x1p63);
    const struct pl_jinja_value yes = pl_jinja_bool(true), one = pl_jinja_float(1);
    const struct pl_jinja_value word = pl_jinja_literal("1");
    int order = 9;
    ck_assert(!pl_jinja_equal(&arena.meter, &big, &near) &&
              pl_jinja_order(&arena.meter, &big, &near, &order) && order == 1);
    ck_assert(!pl_jinja_equal(&arena.meter, &most, &beyond) &&
              pl_jinja_order(&arena.meter, &most, &beyond, &order) && order == -1);
    ck_assert(pl_jinja_equal(&arena.meter, &yes, &one) &&
              !pl_jinja_equal(&arena.meter, &one, &word));
    ck_assert(!pl_jinja_equal(&arena.meter, &nan, &nan) &&
              !pl_jinja_order(&arena.meter, &nan, &one, &order));
    ck_assert(!pl_jinja_order(&arena.meter, &one, &word, &order));
    const struct pl_jinja_value a = two(one, word), b = two(yes, pl_jinja_literal("2"));
    ck_assert(pl_jinja_order(&arena.meter, &a, &b, &order) && order == -1);
    const struct pl_jinja_value c = two(word, one);
    ck_assert(
        !pl_jinja_order(&arena.meter, &a, &c, &order)); /* (1, "1") < ("1", 1) is a TypeError */
}
END_TEST

/* Keys in the order they were first set, the last value of each, against plain arrays. */
START_TEST(a_map_is_a_dict) {
    struct pl_jinja_map *m = pl_jinja_map_new(&arena, draw(3));
    int64_t values[40];
    int n = 0, keys[40], place[40];
    memset(place, -1, sizeof place);
    for (int i = 0; i < 400; i++) {
        char text[12];
        const int key = (int)draw(COUNT(values));
        const bool is_number = key % 2;
        snprintf(text, sizeof text, "%d", key);
        char *own = pl_jinja_alloc_joined(&arena, NULL, 0, text, strlen(text));
        const struct pl_jinja_value k =
            is_number ? pl_jinja_int(key) : pl_jinja_string(own, strlen(text));
        const struct pl_jinja_value v = pl_jinja_int(i);
        ck_assert(pl_jinja_map_set(&arena, m, &k, &v));
        if (place[key] < 0) keys[place[key] = n++] = key;
        values[key] = i;
        ck_assert_int_eq(pl_jinja_map_get(&arena.meter, m, &k)->i, i);
        if (is_number)
            ck_assert_ptr_null(pl_jinja_map_find(m, text, strlen(text)));
        else
            ck_assert_int_eq(pl_jinja_map_find(m, text, strlen(text))->i, i);
    }
    ck_assert_uint_eq(m->n, (size_t)n);
    for (int i = 0; i < n; i++)
        ck_assert_int_eq(m->entries[i].value.i, values[keys[i]]);
    const struct pl_jinja_value one = pl_jinja_int(1), yes = pl_jinja_bool(true);
    ck_assert_ptr_eq(pl_jinja_map_get(&arena.meter, m, &one),
                     pl_jinja_map_get(&arena.meter, m, &yes)); /* True == 1 */
}
END_TEST

/* A3 of value.h */
START_TEST(nesting_ends_at_its_limit) {
    struct pl_jinja_value v = pl_jinja_none();
    int depth = 0;
    for (;; depth++) {
        struct pl_jinja_list *l = pl_jinja_list_new(&arena, 1);
        if (!pl_jinja_list_add(&arena, l, &v)) break;
        v = pl_jinja_list(l, PL_JINJA_PLAIN);
    }
    ck_assert_int_eq(depth, PL_JINJA_DEPTH + 1);
    ck_assert_int_eq(arena.shortage, PL_JINJA_TOO_DEEP);
    struct pl_jinja_map *m = pl_jinja_map_new(&arena, 0);
    const struct pl_jinja_value key = pl_jinja_literal("k");
    ck_assert(!pl_jinja_map_set(&arena, m, &key, &v));
    ck_assert_uint_eq(m->n, 0);
}
END_TEST

/* The plain search, forwards and backwards. */
START_TEST(parts_are_found_where_they_stand) {
    for (int round = 0; round < 20000; round++) {
        char s[40], part[12];
        const size_t n = draw(sizeof s + 1), m = draw(sizeof part + 1);
        ptrdiff_t first = -1, last = -1;
        for (size_t i = 0; i < n; i++)
            s[i] = (char)('a' + draw(2));
        for (size_t i = 0; i < m; i++)
            part[i] = (char)('a' + draw(2));
        if (m && n >= m && draw(2)) memcpy(part, s + draw(n - m + 1), m);
        for (size_t i = 0; i + m <= n; i++) {
            if (memcmp(s + i, part, m) != 0) continue;
            if (first < 0) first = (ptrdiff_t)i;
            last = (ptrdiff_t)i;
        }
        ck_assert_int_eq(pl_jinja_find(s, n, part, m), first);
        ck_assert_int_eq(pl_jinja_rfind(s, n, part, m), last);
    }
}
END_TEST

static const struct {
    const char *text, *set, *left, *right, *both; /* set NULL: white space */
} strips[] = {
    {"  a b  ", NULL, "a b  ", "  a b", "a b"},
    {"\xE3\x80\x80x\xC2\xA0\xE2\x80\xA8", NULL, "x\xC2\xA0\xE2\x80\xA8", "\xE3\x80\x80x", "x"},
    {"\x1Cx\x1F", NULL, "x\x1F", "\x1Cx", "x"},
    {"\xE2\x80\x8Bx", NULL, "\xE2\x80\x8Bx", "\xE2\x80\x8Bx", "\xE2\x80\x8Bx"}, /* no space */
    {" \t\n", NULL, "", "", ""},
    {"", NULL, "", "", ""},
    {"\xC3\xA9x\xC3\xA9", "\xC3\xA9", "x\xC3\xA9", "\xC3\xA9x", "x"},
    {"\xC3\xA9x\xC3\xA9", "\xC3\xA8", "\xC3\xA9x\xC3\xA9", "\xC3\xA9x\xC3\xA9",
     "\xC3\xA9x\xC3\xA9"},
    {"abcba", "ab", "cba", "abc", "c"},
    {"aaa", "a", "", "", ""},
};

START_TEST(ends_are_stripped_by_whole_characters) {
    for (int sides = 1; sides <= 3; sides++) {
        const char *want[] = {NULL, strips[_i].left, strips[_i].right, strips[_i].both};
        struct pl_jinja_value v = pl_jinja_literal(strips[_i].text), set = {0};
        if (strips[_i].set) set = pl_jinja_literal(strips[_i].set);
        pl_jinja_strip(&v, strips[_i].set ? &set : NULL, sides & 1, sides & 2);
        ck_assert_msg(pl_jinja_is(&v, want[sides]), "%d: %.*s", sides, (int)v.n, v.s);
    }
    const struct pl_jinja_value v = pl_jinja_literal(strips[_i].text);
    if (!strips[_i].set) ck_assert_int_eq(pl_jinja_is_blank(&v), !strips[_i].both[0]);
}
END_TEST

START_TEST(code_points_are_counted_and_found) {
    static const char text[] = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z";
    static const size_t begins[] = {0, 1, 3, 6, 10, 11, 11};
    const size_t n = sizeof text - 1;
    const struct pl_jinja_value v = pl_jinja_string(text, n);
    ck_assert_uint_eq(pl_jinja_count(&arena.meter, text, n), 5);
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        ck_assert_uint_eq(pl_jinja_byte_of(&arena.meter, text, n, i), begins[i]);
    for (size_t most = 0; most <= n + 2; most++) {
        size_t want = 0;
        for (size_t i = 0; i < 6; i++)
            if (begins[i] <= most) want = begins[i];
        ck_assert_int_eq(pl_jinja_whole(&v, most), (int)want);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("data.jinja_value");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, make, unmake);
    tcase_add_test(t, memory_is_zeroed_aligned_and_never_handed_out_twice);
    tcase_add_test(t, the_limit_is_told_apart_and_what_there_is_stays);
    tcase_add_test(t, a_mark_gives_back_what_came_after_it);
    tcase_add_test(t, joined_texts_keep_their_bytes);
    tcase_add_test(t, a_text_that_grows_costs_its_length);
    tcase_add_test(t, order_and_equality_agree);
    tcase_add_test(t, numbers_compare_by_their_exact_value);
    tcase_add_test(t, a_map_is_a_dict);
    tcase_add_test(t, nesting_ends_at_its_limit);
    tcase_add_test(t, parts_are_found_where_they_stand);
    tcase_add_loop_test(t, ends_are_stripped_by_whole_characters, 0, COUNT(strips));
    tcase_add_test(t, code_points_are_counted_and_found);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
