/* regex_translate.c - from Oniguruma's Ruby syntax to PCRE2, what both mean alike. */
#include "runtime/data/tokenizer/regex_translate.h"
#include "runtime/data/tokenizer/utf8.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_NESTING 64

/* PCRE2's \s adds U+180E, and names of properties differ between its versions. */
#define SPACES                                                                                     \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"
#define NO_SPACES                                                                                  \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{"     \
    "1fff}"                                                                                        \
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"                 \
    "\\x{3001}-\\x{10ffff}"

static const char *const categories[] = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd",
    "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm",
    "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Co",
};

struct reader {
    const char *s;
    size_t n, at;
    struct pl_text *out;
    struct pl_diag *d;
    uint32_t depth;
    uint32_t folding;     /* depth of the enclosing (?i:, 0 = none */
    uint32_t fold_before; /* the letter just before, in (?i: */
    bool lookaround[MOST_NESTING + 1];
};

static pl_err refuse_regex(struct reader *r, size_t from, size_t n, const char *why) {
    if (n > r->n - from) n = r->n - from;
    if (n > 32) n = 32;
    while (n && from + n < r->n && ((unsigned char)r->s[from + n] & 0xC0) == 0x80)
        n--;
    return pl_diag_set(r->d, PL_ERR_TOKENIZER_UNSUPPORTED, "`%.*s` in a regular expression: %s",
                       (int)n, r->s + from, why);
}

static bool looking_at(const struct reader *r, const char *word) {
    size_t n = strlen(word);
    return r->n - r->at >= n && memcmp(r->s + r->at, word, n) == 0;
}

static char peek(const struct reader *r) {
    return r->at < r->n ? r->s[r->at] : 0;
}

/* Always by number: no character of the pattern can mean something else to PCRE2. */
static void put_character(struct reader *r, uint32_t c) {
    if (c < 0x80 && isalnum((int)c))
        pl_text_addf(r->out, "%c", (int)c);
    else
        pl_text_addf(r->out, "\\x{%x}", (unsigned)c);
}

/* The meaning of an escape or of a character outside escapes. */
struct item {
    enum { CHARACTER, SPACE, NO_SPACE, PROPERTY } kind;
    uint32_t c;       /* CHARACTER */
    char property[8]; /* PROPERTY: "\p{Lu}", "\d" */
};

static pl_err read_property(struct reader *r, struct item *item) {
    size_t start = r->at - 2;
    char kind = r->s[r->at - 1];
    const char *end = peek(r) == '{' ? memchr(r->s + r->at, '}', r->n - r->at) : NULL;
    if (!end) return refuse_regex(r, start, 8, "a property is written \\p{L}");
    const char *name = r->s + r->at + 1;
    size_t n = (size_t)(end - name);
    r->at += n + 2;
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++) {
        if (strlen(categories[i]) != n || memcmp(categories[i], name, n) != 0) continue;
        item->kind = PROPERTY;
        snprintf(item->property, sizeof item->property, "\\%c{%.2s}", kind, categories[i]);
        return PL_ERR_OK;
    }
    return refuse_regex(r, start, r->at - start, "only general categories are known");
}

/* Hexadecimal digits [from, to) of the pattern. */
static pl_err read_code(struct reader *r, size_t start, size_t from, size_t to, struct item *item) {
    uint32_t c = 0;
    for (size_t i = from; i < to; i++) {
        if (!isxdigit((unsigned char)r->s[i]))
            return refuse_regex(r, start, to - start, "no number");
        c = c << 4 | (uint32_t)(r->s[i] <= '9' ? r->s[i] - '0' : (r->s[i] | 0x20) - 'a' + 10);
    }
    if (to == from || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
        return refuse_regex(r, start, to - start, "no character has this number");
    item->c = c;
    return PL_ERR_OK;
}

static pl_err read_numbered(struct reader *r, char kind, struct item *item) {
    size_t start = r->at - 2;
    if (kind == 'u') {
        if (r->n - r->at < 4) return refuse_regex(r, start, 6, "four digits are missing");
        r->at += 4;
        return read_code(r, start, r->at - 4, r->at, item);
    }
    const char *end = peek(r) == '{' ? memchr(r->s + r->at, '}', r->n - r->at) : NULL;
    if (!end || end - (r->s + r->at) > 7) return refuse_regex(r, start, 10, "write \\x{...}");
    size_t from = r->at + 1;
    r->at = (size_t)(end - r->s) + 1;
    return read_code(r, start, from, r->at - 1, item);
}

/* Reads an escape after its backslash. */
static pl_err read_escape(struct reader *r, struct item *item) {
    static const char controls[] = "r\rn\nt\tf\fv\v";
    size_t start = r->at - 1;
    char e = peek(r);
    if (!e) return refuse_regex(r, start, 1, "nothing follows");
    r->at++;
    *item = (struct item){.kind = CHARACTER, .c = (unsigned char)e};
    for (size_t i = 0; controls[i]; i += 2) {
        if (controls[i] != e) continue;
        item->c = (unsigned char)controls[i + 1];
        return PL_ERR_OK;
    }
    switch (e) {
    case 's':
        item->kind = SPACE;
        return PL_ERR_OK;
    case 'S':
        item->kind = NO_SPACE;
        return PL_ERR_OK;
    case 'd':
    case 'D':
        item->kind = PROPERTY;
        snprintf(item->property, sizeof item->property, "\\%c{Nd}", e == 'd' ? 'p' : 'P');
        return PL_ERR_OK;
    case 'p':
    case 'P':
        return read_property(r, item);
    case 'x':
    case 'u':
        return read_numbered(r, e, item);
    default:
        if (ispunct((unsigned char)e) || e == ' ') return PL_ERR_OK;
        return refuse_regex(r, start, 2, "this escape is not known");
    }
}

/* One character or escape; the caller has looked at what has a meaning of its own here. */
static pl_err read_item(struct reader *r, struct item *item) {
    if (peek(r) == '\\') {
        r->at++;
        return read_escape(r, item);
    }
    *item = (struct item){.kind = CHARACTER};
    r->at += pl_utf8_next(r->s + r->at, &item->c);
    return PL_ERR_OK;
}

/* Oniguruma folds some pairs of letters with a single character; PCRE2 folds one with one. */
static pl_err check_folding(struct reader *r, const struct item *item) {
    static const char *const pairs[] = {"ss", "ff", "fi", "fl", "st"};
    if (item->kind != CHARACTER || item->c >= 0x80)
        return refuse_regex(r, r->at - 1, 1, "only ASCII is known in (?i:");
    char pair[3] = {(char)tolower((int)r->fold_before), (char)tolower((int)item->c), 0};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (strcmp(pair, pairs[i]) == 0)
            return refuse_regex(r, r->at - 1, 1,
                                "with the letter before it has a ligature in (?i:");
    r->fold_before = item->c;
    return PL_ERR_OK;
}

static void put_item(struct reader *r, const struct item *item, bool in_class) {
    switch (item->kind) {
    case CHARACTER:
        put_character(r, item->c);
        break;
    case SPACE:
        pl_text_add(r->out, in_class ? SPACES : "[" SPACES "]");
        break;
    case NO_SPACE:
        pl_text_add(r->out, in_class ? NO_SPACES : "[^" SPACES "]");
        break;
    case PROPERTY:
        pl_text_add(r->out, item->property);
        break;
    }
}

/* Reads, after `low` in a class, the rest of a range where there is one. */
static pl_err read_range(struct reader *r, const struct item *low) {
    struct item high;
    if (peek(r) != '-' || r->at + 1 >= r->n || r->s[r->at + 1] == ']') return PL_ERR_OK;
    size_t start = r->at++;
    if (peek(r) == '[') return refuse_regex(r, start, 2, "classes in classes are not known");
    PL_TRY(read_item(r, &high));
    if (low->kind != CHARACTER || high.kind != CHARACTER || high.c < low->c || r->folding)
        return refuse_regex(r, start, r->at - start, "this is no range of characters");
    pl_text_add(r->out, "-");
    put_character(r, high.c);
    return PL_ERR_OK;
}

static pl_err read_class(struct reader *r) {
    size_t start = r->at++;
    struct item item;
    pl_text_add(r->out, "[");
    if (peek(r) == '^') {
        if (r->folding) return refuse_regex(r, start, 2, "a negated class in (?i: is not known");
        pl_text_add(r->out, "^");
        r->at++;
    }
    if (peek(r) == ']') return refuse_regex(r, start, 3, "an empty class");
    while (peek(r) != ']') {
        if (r->at >= r->n)
            return pl_diag_set(r->d, PL_ERR_TOKENIZER_FIELD,
                               "a regular expression ends inside of [");
        if (peek(r) == '[') return refuse_regex(r, r->at, 2, "classes in classes are not known");
        if (looking_at(r, "&&")) return refuse_regex(r, r->at, 2, "intersections are not known");
        PL_TRY(read_item(r, &item));
        r->fold_before = 0;
        if (r->folding) PL_TRY(check_folding(r, &item));
        put_item(r, &item, true);
        PL_TRY(read_range(r, &item));
    }
    r->at++;
    r->fold_before = 0;
    pl_text_add(r->out, "]");
    return PL_ERR_OK;
}

static const struct group {
    const char *opening;
    bool lookaround, folds;
} groups[] = {
    {"(?i:", false, true},
    {"(?:", false, false},
    {"(?=", true, false},
    {"(?!", true, false},
};

static pl_err open_group(struct reader *r) {
    struct group plain = {"(", false, false};
    const struct group *g = NULL;
    for (size_t i = 0; i < sizeof groups / sizeof *groups && !g; i++)
        if (looking_at(r, groups[i].opening)) g = &groups[i];
    if (!g && (looking_at(r, "(?") || looking_at(r, "(*")))
        return refuse_regex(r, r->at, 4, "this kind of group is not known");
    if (!g) g = &plain;
    if (r->folding && g != &plain && g != &groups[1])
        return refuse_regex(r, r->at, 4, "only plain groups are known in (?i:");
    if (r->depth == MOST_NESTING) return refuse_regex(r, r->at, 4, "groups are nested too deep");
    r->lookaround[++r->depth] = g->lookaround;
    if (g->folds) r->folding = r->depth;
    r->fold_before = 0;
    r->at += strlen(g->opening);
    pl_text_add(r->out, g == &plain ? "(?:" : g->opening);
    return PL_ERR_OK;
}

static pl_err close_group(struct reader *r, bool *quantifiable) {
    if (!r->depth)
        return pl_diag_set(r->d, PL_ERR_TOKENIZER_FIELD,
                           "a regular expression closes a group that "
                           "was not opened");
    *quantifiable = !r->lookaround[r->depth];
    if (r->folding == r->depth) r->folding = 0;
    r->depth--;
    r->fold_before = 0;
    r->at++;
    pl_text_add(r->out, ")");
    return PL_ERR_OK;
}

/* {n} {n,} {n,m}: both engines alike; {,m} and what is no interval is not. */
static pl_err read_interval(struct reader *r) {
    size_t start = r->at++, digits = 0, commas = 0;
    unsigned long bounds[2] = {0, 0};
    for (; isdigit((unsigned char)peek(r)) || peek(r) == ','; r->at++) {
        if (peek(r) == ',' && (!digits || commas++)) break;
        if (peek(r) != ',')
            digits++, bounds[commas] = bounds[commas] * 10 + (unsigned)(peek(r) - '0');
        if (bounds[commas] > 1000) return refuse_regex(r, start, 8, "above a thousand repetitions");
    }
    bool open_end = r->s[r->at - 1] == ',';
    if (peek(r) != '}' || !digits || (commas && !open_end && bounds[1] < bounds[0]))
        return refuse_regex(r, start, 8, "write {n}, {n,} or {n,m}");
    r->at++;
    pl_text_addn(r->out, r->s + start, r->at - start);
    if (peek(r) == '?' || peek(r) == '+')
        return refuse_regex(r, start, r->at - start + 1, "Ruby reads this in a way of its own");
    return PL_ERR_OK;
}

static pl_err read_quantifier(struct reader *r, bool quantifiable) {
    char q = peek(r);
    if (!quantifiable) return refuse_regex(r, r->at, 1, "there is nothing to repeat before it");
    r->fold_before = 0;
    if (q == '{') return read_interval(r);
    pl_text_addn(r->out, &q, 1);
    r->at++;
    q = peek(r);
    if (q == '?' || q == '+') {
        pl_text_addn(r->out, &q, 1);
        r->at++;
    }
    return PL_ERR_OK;
}

static pl_err read_term(struct reader *r, bool *quantifiable) {
    struct item item;
    char c = peek(r);
    bool was = *quantifiable;
    *quantifiable = false;
    switch (c) {
    case '(':
        return open_group(r);
    case ')':
        return close_group(r, quantifiable);
    case '|':
        pl_text_add(r->out, "|");
        r->at++;
        r->fold_before = 0;
        return PL_ERR_OK;
    case '?':
    case '*':
    case '+':
    case '{':
        return read_quantifier(r, was);
    case '^':
    case '$':
        return refuse_regex(r, r->at, 1, "anchors are not known");
    case '[':
        *quantifiable = true;
        return read_class(r);
    case '.':
        *quantifiable = true;
        if (r->folding) return refuse_regex(r, r->at, 1, "only ASCII is known in (?i:");
        pl_text_add(r->out, ".");
        r->at++;
        return PL_ERR_OK;
    default:
        *quantifiable = true;
        PL_TRY(read_item(r, &item));
        if (r->folding) PL_TRY(check_folding(r, &item));
        put_item(r, &item, false);
        return PL_ERR_OK;
    }
}

pl_err pl_regex_translate(const char *regex, size_t n, struct pl_text *out, struct pl_diag *d) {
    struct reader r = {.s = regex, .n = n, .out = out, .d = d};
    bool quantifiable = false;
    while (r.at < n)
        PL_TRY(read_term(&r, &quantifiable));
    if (r.depth)
        return pl_diag_set(d, PL_ERR_TOKENIZER_FIELD, "a regular expression leaves a group open");
    if (out->failed) return pl_host_oom(d, "a regular expression");
    return PL_ERR_OK;
}
