/* chars.c - characters as Python's str sees them, by utf8proc's tables. */
#include "runtime/data/jinja/chars.h"
#include "runtime/data/tokenizer/utf8.h"

#include <utf8proc.h>

/* --- classes ---------------------------------------------------------------------------------- */
/* Bidirectional class B, S or WS, or category Zs. */
bool pl_jinja_is_space(uint32_t c) {
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

static utf8proc_category_t category(uint32_t c) {
    return utf8proc_category((utf8proc_int32_t)c);
}

bool pl_jinja_is_printable(uint32_t c) {
    switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    case UTF8PROC_CATEGORY_ZS:
        return c == ' ';
    default:
        return true;
    }
}

size_t pl_jinja_space_at(const char *s, size_t n, bool at_end) {
    uint32_t c;
    if (!n) return 0;
    unsigned char byte = (unsigned char)s[at_end ? n - 1 : 0];
    if (byte < 0x80) return pl_jinja_is_space(byte);
    size_t at = at_end ? pl_utf8_before(s, n) : 0;
    size_t length = pl_utf8_next(s + at, &c);
    return pl_jinja_is_space(c) ? length : 0;
}

size_t pl_jinja_count(struct pl_jinja_meter *m, const char *s, size_t n) {
    size_t count = 0;
    pl_jinja_pay(m, n);
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)s[i] & 0xC0) != 0x80;
    return count;
}

size_t pl_jinja_byte_of(struct pl_jinja_meter *m, const char *s, size_t n, size_t index) {
    size_t at = 0;
    for (; index && at < n; index--)
        at += pl_utf8_length(s[at]);
    pl_jinja_pay(m, at < n ? at : n);
    return at;
}

int pl_jinja_whole(const struct pl_jinja_value *text, size_t most) {
    if (text->n <= most) return (int)text->n;
    return (int)pl_utf8_before(text->s, most + 1);
}

/* --- ends ------------------------------------------------------------------------------------- */
static bool in_set(struct pl_jinja_meter *m, const struct pl_jinja_value *set, const char *s,
                   size_t length) {
    if (!pl_jinja_pay(m, set->n)) return false;
    for (size_t i = 0; i < set->n; i += pl_utf8_length(set->s[i]))
        if (pl_utf8_length(set->s[i]) == length && memcmp(set->s + i, s, length) == 0) return true;
    return false;
}

/* Bytes to strip at one end of v, 0 = none. */
static size_t stripped(struct pl_jinja_meter *m, const struct pl_jinja_value *v,
                       const struct pl_jinja_value *set, bool at_end) {
    if (!v->n || !pl_jinja_pay(m, PL_JINJA_ITEM_UNITS)) return 0;
    if (!set) return pl_jinja_space_at(v->s, v->n, at_end);
    size_t at = at_end ? pl_utf8_before(v->s, v->n) : 0, length = pl_utf8_length(v->s[at]);
    return in_set(m, set, v->s + at, length) ? length : 0;
}

void pl_jinja_trim(struct pl_jinja_meter *m, struct pl_jinja_value *v,
                   const struct pl_jinja_value *set, bool left, bool right) {
    for (size_t n; left && (n = stripped(m, v, set, false)) != 0; v->n -= (uint32_t)n)
        v->s += n;
    for (size_t n; right && (n = stripped(m, v, set, true)) != 0;)
        v->n -= (uint32_t)n;
}

void pl_jinja_strip(struct pl_jinja_value *v, const struct pl_jinja_value *set, bool left,
                    bool right) {
    struct pl_jinja_meter meter = {.limit = UINT64_MAX};
    pl_jinja_trim(&meter, v, set, left, right);
}

bool pl_jinja_is_blank(const struct pl_jinja_value *v) {
    struct pl_jinja_value s = *v;
    pl_jinja_strip(&s, NULL, true, false);
    return s.n == 0;
}

/* --- parts ------------------------------------------------------------------------------------ */
ptrdiff_t pl_jinja_find(const char *s, size_t n, const char *part, size_t m) {
    if (!m) return 0;
    const char *at = n >= m ? memmem(s, n, part, m) : NULL;
    return at ? at - s : -1;
}

/* A text as it reads from its end. */
struct backwards {
    const char *s; /* [n] */
    size_t n;
};
static char back(const struct backwards *b, size_t i) {
    return b->s[b->n - 1 - i];
}

/* The beginning of the largest suffix of the part, by the order of bytes or by its reverse, and its
 * period (Crochemore and Perrin, Two-way string-matching, 1991). */
static size_t maximal_suffix(const struct backwards *part, bool reversed, size_t *period) {
    size_t begin = 0, other = 1, k = 0;
    *period = 1;
    while (other + k < part->n) {
        unsigned char a = (unsigned char)back(part, other + k);
        unsigned char b = (unsigned char)back(part, begin + k);
        if (a == b) {
            bool whole = k + 1 == *period;
            other += whole ? *period : 0;
            k = whole ? 0 : k + 1;
        } else if ((a < b) != reversed) {
            other += k + 1;
            k = 0;
            *period = other - begin;
        } else {
            begin = other++;
            k = 0;
            *period = 1;
        }
    }
    return begin;
}

/* The critical place of the part and its period there; *repeats: it is a period of the whole. */
static size_t critical(const struct backwards *part, size_t *period, bool *repeats) {
    size_t p, q, a = maximal_suffix(part, false, &p), b = maximal_suffix(part, true, &q);
    size_t cut = a > b ? a : b, i = 0;
    *period = a > b ? p : q;
    while (i < cut && i + *period < part->n && back(part, i) == back(part, i + *period))
        i++;
    *repeats = i == cut;
    size_t after = part->n - cut + 1;
    if (!*repeats) *period = cut > after ? cut : after;
    return cut;
}

/* Two-way string-matching of both texts as they read from their ends: linear, without memory. */
ptrdiff_t pl_jinja_rfind(const char *s, size_t n, const char *part, size_t m) {
    const struct backwards text = {s, n}, word = {part, m};
    size_t period, cut, known = 0; /* characters that are known to match after a shift */
    bool repeats;
    if (!m) return (ptrdiff_t)n;
    if (m > n) return -1;
    cut = critical(&word, &period, &repeats);
    for (size_t at = 0; at + m <= n;) {
        size_t i = cut > known ? cut : known, k = cut;
        while (i < m && back(&word, i) == back(&text, at + i))
            i++;
        if (i < m) {
            at += i - cut + 1;
            known = 0;
            continue;
        }
        while (k > known && back(&word, k - 1) == back(&text, at + k - 1))
            k--;
        if (k <= known) return (ptrdiff_t)(n - at - m);
        at += period;
        known = repeats ? m - period : 0;
    }
    return -1;
}

ptrdiff_t pl_jinja_search(struct pl_jinja_meter *meter, const char *s, size_t n, const char *part,
                          size_t m, bool from_end) {
    if (m > n) return -1;
    ptrdiff_t at = from_end ? pl_jinja_rfind(s, n, part, m) : pl_jinja_find(s, n, part, m);
    uint64_t visited = !m ? 0 : at < 0 ? n : from_end ? n - (size_t)at : (size_t)at + m;
    pl_jinja_pay(meter, PL_JINJA_SEARCH_UNITS * (visited + m) + PL_JINJA_ITEM_UNITS);
    return at;
}

/* --- cases ------------------------------------------------------------------------------------ */
static bool is_cased(uint32_t c) {
    utf8proc_category_t k = category(c);
    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT;
}

static bool is_case_ignorable(uint32_t c) {
    static const uint32_t marks[] = {0x27,   0x2E,   0x3A,   0xB7,   0x387,  0x55F,
                                     0x5F4,  0x2018, 0x2019, 0x2024, 0x2027, 0xFE13,
                                     0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};
    switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        break;
    }
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (marks[i] == c) return true;
    return false;
}

/* The capital sigma at v[at] ends a word: a cased letter before it, none after (Unicode 3.13). */
static bool is_final_sigma(const struct pl_jinja_value *v, size_t at) {
    uint32_t c = 0;
    bool before = false;
    for (size_t i = at; i;) {
        i = pl_utf8_before(v->s, i);
        pl_utf8_next(v->s + i, &c);
        before = is_cased(c);
        if (!is_case_ignorable(c)) break;
    }
    for (size_t i = at + 2; before && i < v->n;) {
        i += pl_utf8_next(v->s + i, &c);
        if (!is_case_ignorable(c)) return !is_cased(c);
    }
    return before;
}

/* Characters whose upper case is several: the parts of its folding, 1 or 0 = it is a single one. */
static size_t folding(uint32_t c, utf8proc_int32_t parts[4]) {
    int last = 0;
    utf8proc_category_t k = category(c);
    if (c < 0x80 || (k != UTF8PROC_CATEGORY_LL && k != UTF8PROC_CATEGORY_LT)) return 0;
    utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)c, parts, 4, UTF8PROC_CASEFOLD, &last);
    return n > 1 && n <= 4 ? (size_t)n : 0;
}

struct casing {
    char *to;
    const struct pl_jinja_value *v;
    uint32_t *unknown;
};

static void put_lower(struct casing *x, uint32_t c, size_t at) {
    if (c == 0x3A3) c = is_final_sigma(x->v, at) ? 0x3C2 : 0x3C3;
    if (c == 0x130) { /* I with a dot: i and the dot */
        *x->to++ = 'i';
        x->to += pl_utf8_put(0x307, x->to);
        return;
    }
    x->to += pl_utf8_put((uint32_t)utf8proc_tolower((utf8proc_int32_t)c), x->to);
}

static void put_upper(struct casing *x, uint32_t c) {
    utf8proc_int32_t parts[4];
    size_t n = folding(c, parts);
    for (size_t i = 0; i < n; i++)
        x->to += pl_utf8_put((uint32_t)utf8proc_toupper(parts[i]), x->to);
    if (!n) x->to += pl_utf8_put((uint32_t)utf8proc_toupper((utf8proc_int32_t)c), x->to);
}

static void put_title(struct casing *x, uint32_t c) {
    utf8proc_int32_t parts[4];
    if (folding(c, parts)) *x->unknown = c;
    x->to += pl_utf8_put((uint32_t)utf8proc_totitle((utf8proc_int32_t)c), x->to);
}

bool pl_jinja_recase(struct pl_jinja_arena *a, const struct pl_jinja_value *v,
                     enum pl_jinja_case how, struct pl_jinja_value *out, uint32_t *unknown) {
    /* the longest: two bytes become three characters of two bytes */
    char *text = pl_jinja_alloc(a, 3 * (uint64_t)v->n + 8);
    struct casing x = {text, v, unknown};
    bool first = true; /* of the text, or of a word of it */
    uint32_t c;
    *unknown = 0;
    if (!text || !pl_jinja_pay(&a->meter, PL_JINJA_CHARACTER_UNITS * (uint64_t)v->n)) {
        if (text) a->shortage = PL_JINJA_OVER_WORK;
        return false;
    }
    for (size_t i = 0, length; i < v->n; i += length) {
        length = pl_utf8_next(v->s + i, &c);
        bool title = first && (how == PL_JINJA_TITLE || how == PL_JINJA_CAPITALIZE);
        const bool swapped = how == PL_JINJA_SWAPCASE && category(c) != UTF8PROC_CATEGORY_LU;
        if (how == PL_JINJA_UPPER || swapped)
            put_upper(&x, c);
        else if (title)
            put_title(&x, c);
        else
            put_lower(&x, c, i);
        first = how == PL_JINJA_TITLE && !is_cased(c);
    }
    *out = pl_jinja_string(text, (size_t)(x.to - text));
    return *unknown == 0;
}

/* --- str.isalpha() and its kind --------------------------------------------------------------- */
/* 1, 0, or -1 where Python's table of digits would be needed. */
static int is_of_class(uint32_t c, enum pl_jinja_class class) {
    utf8proc_category_t k = category(c);
    bool letter = k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
    bool decimal = k == UTF8PROC_CATEGORY_ND;
    bool number = k == UTF8PROC_CATEGORY_NO || k == UTF8PROC_CATEGORY_NL;
    switch (class) {
    case PL_JINJA_ALPHA:
        return letter;
    case PL_JINJA_ALNUM:
        return letter || decimal ? 1 : number ? -1 : 0;
    case PL_JINJA_DIGIT:
        return decimal ? 1 : number ? -1 : 0;
    case PL_JINJA_DECIMAL:
        return decimal;
    case PL_JINJA_SPACE:
        return pl_jinja_is_space(c);
    case PL_JINJA_IS_LOWER:
        return k != UTF8PROC_CATEGORY_LU && k != UTF8PROC_CATEGORY_LT;
    case PL_JINJA_IS_UPPER:
        return k != UTF8PROC_CATEGORY_LL && k != UTF8PROC_CATEGORY_LT;
    default:
        return c < 0x80;
    }
}

bool pl_jinja_classify(struct pl_jinja_meter *m, const struct pl_jinja_value *v,
                       enum pl_jinja_class class, bool *out, uint32_t *unknown) {
    bool cases = class == PL_JINJA_IS_LOWER || class == PL_JINJA_IS_UPPER;
    bool found = !cases && (v->n || class == PL_JINJA_ASCII);
    uint32_t c;
    *out = false;
    for (size_t i = 0; i < v->n; i += pl_utf8_length(v->s[i])) {
        pl_utf8_next(v->s + i, &c);
        int is = is_of_class(c, class);
        *unknown = c;
        pl_jinja_pay(m, PL_JINJA_CHARACTER_UNITS);
        if (is < 0) return false;
        if (!is) return true;
        found |= cases && is_cased(c);
    }
    *out = found;
    return true;
}
