#include "tests/fuzz/mutate.h"

#include <string.h>

struct patient {
    uint8_t *data;
    size_t n, cap;
    const struct fuzz_corpus *others;
    uint64_t state;
};

uint64_t fuzz_random(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* 0 to n - 1; n = 0 gives 0. */
static size_t below(struct patient *p, size_t n) {
    return n ? (size_t)(fuzz_random(&p->state) % n) : 0;
}

/* A length that is more often short than long. */
static size_t short_length(struct patient *p, size_t most) {
    size_t bound = (size_t)1 << below(p, 12);
    return below(p, (bound < most ? bound : most) + 1);
}

/* Puts bytes[0, n) in the place of data[at, at + cut), as far as there is room. */
static void replace(struct patient *p, size_t at, size_t cut, const void *bytes, size_t n) {
    if (cut > p->n - at) cut = p->n - at;
    if (n > p->cap - (p->n - cut)) n = p->cap - (p->n - cut);
    memmove(p->data + at + n, p->data + at + cut, p->n - at - cut);
    memcpy(p->data + at, bytes, n);
    p->n += n - cut;
}

/* --- changes --------------------------------------------------------------------------------- */

static void flip_bit(struct patient *p) {
    if (p->n) p->data[below(p, p->n)] ^= (uint8_t)(1u << below(p, 8));
}

static void set_byte(struct patient *p) {
    static const uint8_t telling[] = {0,   0xFF, 0x80, 0x7F, '"', '\\', '\n', '{',  '}', '[', ']',
                                      ',', ':',  '-',  '0',  '.', 'e',  ' ',  '\t', '#', '&', '*'};
    if (p->n) p->data[below(p, p->n)] = telling[below(p, sizeof telling)];
}

static void truncate(struct patient *p) {
    p->n = below(p, p->n + 1);
}

static void cut_range(struct patient *p) {
    size_t at = below(p, p->n + 1);
    replace(p, at, short_length(p, p->n - at), "", 0);
}

static void double_range(struct patient *p) {
    uint8_t copy[4096];
    size_t at = below(p, p->n + 1), n = short_length(p, p->n - at);
    if (n > sizeof copy) n = sizeof copy;
    memcpy(copy, p->data + at, n);
    replace(p, at, 0, copy, n);
}

static void take_from_another(struct patient *p) {
    if (p->others->n == 0) return;
    const struct fuzz_input *o = &p->others->inputs[below(p, p->others->n)];
    size_t from = below(p, o->n + 1), n = short_length(p, o->n - from), at = below(p, p->n + 1);
    replace(p, at, below(p, 2) ? n : 0, o->data + from, n);
}

static void add_noise(struct patient *p) {
    uint8_t noise[16];
    size_t n = 1 + below(p, sizeof noise);
    for (size_t i = 0; i < n; i++)
        noise[i] = (uint8_t)fuzz_random(&p->state);
    replace(p, below(p, p->n + 1), 0, noise, n);
}

static void put_word(struct patient *p) {
    static const char *const words[] = {
        "null",     "true", "false", "{}", "[]",   "\"\"",    "[[[[[[[[",    "{\"a\":",
        "\\u0000",  "---",  "<<",    "&a", "*a",   "!!str",   "\\ud800",     "\xEF\xBB\xBF",
        "\xC0\x80", "NaN",  "1e999", "-0", "\r\n", "\"\\u\"", "\xED\xA0\x80"};
    const char *w = words[below(p, sizeof words / sizeof *words)];
    replace(p, below(p, p->n + 1), below(p, 2) ? strlen(w) : 0, w, strlen(w));
}

/* The digits around a random place, or the next ones. */
static void change_number(struct patient *p) {
    static const char *const numbers[] = {"0",
                                          "-1",
                                          "1",
                                          "2147483647",
                                          "2147483648",
                                          "4294967295",
                                          "4294967296",
                                          "9007199254740993",
                                          "9223372036854775807",
                                          "9223372036854775808",
                                          "18446744073709551615",
                                          "18446744073709551616",
                                          "1e308",
                                          "1e-400",
                                          "0.5",
                                          "00",
                                          "1000000",
                                          "65537"};
    const char *v = numbers[below(p, sizeof numbers / sizeof *numbers)];
    size_t at = below(p, p->n + 1), end;
    while (at < p->n && (p->data[at] < '0' || p->data[at] > '9'))
        at++;
    while (at > 0 && at < p->n && p->data[at - 1] >= '0' && p->data[at - 1] <= '9')
        at--;
    for (end = at; end < p->n && p->data[end] >= '0' && p->data[end] <= '9';)
        end++;
    if (end > at) replace(p, at, end - at, v, strlen(v));
}

/* Eight little-endian bytes, at the front more often than not: a length that lies. */
static void change_length_word(struct patient *p) {
    uint64_t v = 0;
    uint8_t bytes[8];
    size_t at = below(p, 4) ? 0 : below(p, p->n + 1);
    for (size_t i = 0; i < 8 && at + i < p->n; i++)
        v |= (uint64_t)p->data[at + i] << (8 * i);
    const uint64_t lies[] = {v + 1,
                             v - 1,
                             v + 8,
                             v * 2,
                             0,
                             1,
                             p->n,
                             p->n - 8,
                             UINT64_MAX,
                             UINT64_C(1) << 63,
                             UINT64_C(1) << 32,
                             100000000,
                             100000001};
    v = lies[below(p, sizeof lies / sizeof *lies)];
    for (size_t i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(v >> (8 * i));
    replace(p, at, 8, bytes, 8);
}

static void (*const changes[])(struct patient *p) = {
    flip_bit,          set_byte,  truncate, cut_range,     double_range,
    take_from_another, add_noise, put_word, change_number, change_length_word,
};

size_t fuzz_mutate(uint8_t *data, size_t n, size_t cap, const struct fuzz_corpus *others,
                   uint64_t seed) {
    struct patient p = {data, n, cap, others, seed};
    for (size_t left = 1 + below(&p, 4); left; left--)
        changes[below(&p, sizeof changes / sizeof *changes)](&p);
    return p.n;
}
