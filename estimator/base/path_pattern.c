/* Every part of a pattern is a function from the positions of the name where it may begin to
 * those where it may end. A position is a bit, so a set of them is one word; the pattern is read
 * anew each time a part is evaluated, and nothing is allocated. */
#include "estimator/base/path_pattern.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

#define MOST_STEPS  1000000
#define MOST_GROUPS 50 /* inside each other */
#define MOST_TIMES  1000
#define NO_LIMIT    UINT32_MAX

struct matcher {
    const char *pattern, *p; /* p: what is read next */
    const char *text;
    uint32_t n; /* bytes of text */
    uint32_t steps, depth;
    const char *why; /* set once: then everything ends */
    const char *why_at;
};

static uint64_t fail(struct matcher *m, const char *at, const char *why) {
    if (m->why) return 0;
    m->why = why;
    m->why_at = at;
    return 0;
}

static uint64_t alternatives(struct matcher *m, uint64_t from);

/* ---- one character ---- */

struct chars {
    bool has[256];
};

static void add_class(struct chars *c, char which) {
    bool opposite = isupper((unsigned char)which);
    for (int i = 0; i < 128; i++) {
        bool in = tolower(which) == 'd'   ? isdigit(i) != 0
                  : tolower(which) == 's' ? isspace(i) != 0
                                          : isalnum(i) || i == '_';
        if (in != opposite) c->has[i] = true;
    }
}

/* The character an escape stands for, or 0 where it stands for a class, which is then added. */
static unsigned char escaped(struct matcher *m, struct chars *c) {
    const char e = *m->p;
    if (e && strchr("dDsSwW", e)) {
        m->p++;
        add_class(c, e);
        return 0;
    }
    if (!e) return (unsigned char)fail(m, m->p, "ends in a backslash");
    if (isalnum((unsigned char)e))
        return (unsigned char)fail(m, m->p - 1, "has an escape that is not known");
    m->p++;
    return (unsigned char)e;
}

/* Reads one character of a class; 0 after \d and its like. */
static unsigned char class_char(struct matcher *m, struct chars *c) {
    if (*m->p != '\\') return (unsigned char)*m->p++;
    m->p++;
    return escaped(m, c);
}

static void class_range(struct matcher *m, struct chars *c, unsigned char low, const char *at) {
    m->p++; /* the hyphen */
    unsigned char high = class_char(m, c);
    if (!m->why && (!low || !high || high < low)) fail(m, at, "has a range that goes down");
    for (unsigned i = low; !m->why && i <= high; i++)
        c->has[i] = true;
}

/* Reads the class that follows a `[`. */
static void char_class(struct matcher *m, struct chars *c) {
    const char *open = m->p - 1;
    bool negated = *m->p == '^';
    if (negated) m->p++;
    const char *first = m->p;
    while (!m->why && (*m->p != ']' || m->p == first)) {
        const char *at = m->p;
        if (!*at) {
            fail(m, open, "has a class without its end");
            return;
        }
        unsigned char low = class_char(m, c);
        if (*m->p == '-' && m->p[1] && m->p[1] != ']')
            class_range(m, c, low, at);
        else if (low)
            c->has[low] = true;
    }
    if (!m->why) m->p++;
    for (int i = 0; negated && i < 256; i++)
        c->has[i] = !c->has[i];
}

static uint64_t step_over(const struct matcher *m, uint64_t from, const struct chars *c) {
    uint64_t to = 0;
    for (uint32_t i = 0; i < m->n; i++)
        if (from >> i & 1 && c->has[(unsigned char)m->text[i]]) to |= UINT64_C(2) << i;
    return to;
}

/* ---- positions ---- */

static bool is_word(const struct matcher *m, uint32_t at) {
    return at < m->n && (isalnum((unsigned char)m->text[at]) || m->text[at] == '_');
}

static uint64_t word_edges(const struct matcher *m) {
    uint64_t edges = 0;
    for (uint32_t i = 0; i <= m->n; i++)
        if ((i > 0 && is_word(m, i - 1)) != is_word(m, i)) edges |= UINT64_C(1) << i;
    return edges;
}

/* Returns the positions from which the rest of the group matches (lookahead), or up to which it
 * does (lookbehind). */
static uint64_t look(struct matcher *m, uint64_t from, bool behind, bool wanted) {
    const char *begin = m->p;
    uint64_t found = 0;
    for (uint32_t i = 0; i <= m->n && !m->why; i++) {
        m->p = begin;
        uint64_t ends = alternatives(m, UINT64_C(1) << i);
        found |= behind ? ends : ends ? UINT64_C(1) << i : 0;
    }
    return from & (wanted ? found : ~found);
}

/* ---- groups ---- */

/* Reads the group that follows `(?`. */
static uint64_t special_group(struct matcher *m, uint64_t from, const char *open) {
    static const struct {
        const char *begin;
        bool behind, wanted;
    } looks[] = {{"=", false, true}, {"!", false, false}, {"<=", true, true}, {"<!", true, false}};
    if (*m->p == ':') {
        m->p++;
        return alternatives(m, from);
    }
    if (m->p[0] == 'P' && m->p[1] == '<') {
        const char *end = strchr(m->p, '>');
        if (!end) return fail(m, open, "has a group whose name has no end");
        m->p = end + 1;
        return alternatives(m, from);
    }
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        size_t n = strlen(looks[i].begin);
        if (strncmp(m->p, looks[i].begin, n) != 0) continue;
        m->p += n;
        return look(m, from, looks[i].behind, looks[i].wanted);
    }
    return fail(m, open, "has a kind of group that is not known");
}

static uint64_t group(struct matcher *m, uint64_t from) {
    const char *open = m->p - 1;
    if (++m->depth > MOST_GROUPS) return fail(m, open, "has too many groups in each other");
    bool special = *m->p == '?';
    if (special) m->p++;
    uint64_t to = special ? special_group(m, from, open) : alternatives(m, from);
    m->depth--;
    if (m->why) return 0;
    if (*m->p != ')') return fail(m, open, "has a group without its end");
    m->p++;
    return to;
}

/* ---- atoms and their repeats ---- */

static uint64_t escape_atom(struct matcher *m, uint64_t from) {
    struct chars c = {{false}};
    switch (*m->p) {
    case 'b':
    case 'B':
        return from & (*m->p++ == 'b' ? word_edges(m) : ~word_edges(m));
    case 'A':
        m->p++;
        return from & 1;
    case 'Z':
        m->p++;
        return from & UINT64_C(1) << m->n;
    default: {
        unsigned char one = escaped(m, &c);
        if (one) c.has[one] = true;
        return m->why ? 0 : step_over(m, from, &c);
    }
    }
}

static uint64_t atom(struct matcher *m, uint64_t from) {
    struct chars c = {{false}};
    const char *at = m->p;
    if (++m->steps > MOST_STEPS) return fail(m, at, "repeats too deeply");
    switch (*m->p++) {
    case '(':
        return group(m, from);
    case '^':
        return from & 1;
    case '$':
        return from & UINT64_C(1) << m->n;
    case '\\':
        return escape_atom(m, from);
    case '[':
        char_class(m, &c);
        return m->why ? 0 : step_over(m, from, &c);
    case '*':
    case '+':
    case '?':
        return fail(m, at, "repeats nothing");
    case '.':
        memset(c.has, true, sizeof c.has);
        c.has['\n'] = false;
        return step_over(m, from, &c);
    default:
        c.has[(unsigned char)*at] = true;
        return step_over(m, from, &c);
    }
}

struct repeat {
    uint32_t least, most;
};

static uint32_t times(const char **p) {
    uint32_t n = 0;
    while (isdigit((unsigned char)**p)) {
        if (n <= MOST_TIMES) n = n * 10 + (uint32_t)(**p - '0');
        (*p)++;
    }
    return n;
}

/* {m}, {m,}, {,n}, {m,n}; other braces are characters, as in Python. */
static bool braces(struct matcher *m, struct repeat *r) {
    const char *p = m->p + 1;
    bool low = isdigit((unsigned char)*p), high = false;
    *r = (struct repeat){times(&p), NO_LIMIT};
    if (*p == ',') {
        p++;
        high = isdigit((unsigned char)*p);
        if (high) r->most = times(&p);
    } else {
        r->most = r->least;
    }
    if (*p != '}' || !(low || high || p[-1] == ',')) return false;
    m->p = p + 1;
    return true;
}

static bool read_repeat(struct matcher *m, struct repeat *r) {
    static const char marks[] = "*+?";
    static const struct repeat of_mark[] = {{0, NO_LIMIT}, {1, NO_LIMIT}, {0, 1}};
    const char *at = m->p, *mark = *at ? strchr(marks, *at) : NULL;
    if (mark) {
        *r = of_mark[mark - marks];
        m->p++;
    } else if (*at != '{' || !braces(m, r)) {
        return false;
    }
    if (r->least > MOST_TIMES || (r->most != NO_LIMIT && r->most > MOST_TIMES))
        fail(m, at, "repeats something more than 1,000 times");
    else if (r->most < r->least)
        fail(m, at, "repeats something fewer times than the least");
    if (*m->p == '?') m->p++; /* lazy: the same whole matches */
    struct repeat again;
    const char *next = m->p;
    if (*next == '+') fail(m, next, "has a possessive repeat, which is not known");
    if (*next == '*' || (*next == '{' && braces(m, &again))) fail(m, next, "repeats a repeat");
    return true;
}

static uint64_t repeated(struct matcher *m, uint64_t from, const char *begin,
                         const struct repeat *r) {
    const char *end = m->p;
    uint64_t now = from, all = r->least ? 0 : from;
    for (uint32_t i = 1; i <= r->most && now && !m->why; i++) {
        m->p = begin;
        now = atom(m, now);
        if (i < r->least) continue;
        if ((now & ~all) == 0) break;
        all |= now;
    }
    m->p = end;
    return m->why ? 0 : all;
}

static uint64_t sequence(struct matcher *m, uint64_t from) {
    while (!m->why && *m->p && *m->p != '|' && *m->p != ')') {
        const char *begin = m->p;
        struct repeat r;
        uint64_t once = atom(m, from);
        from = !m->why && read_repeat(m, &r) ? repeated(m, from, begin, &r) : once;
    }
    return m->why ? 0 : from;
}

static uint64_t alternatives(struct matcher *m, uint64_t from) {
    uint64_t to = sequence(m, from);
    while (!m->why && *m->p == '|') {
        m->p++;
        to |= sequence(m, from);
    }
    return to;
}

bool pl_path_pattern_match(const char *pattern, const char *text, bool *matches,
                           struct pl_path_pattern_wrong *wrong) {
    size_t n = strnlen(text, PL_PATH_PATTERN_TEXT + 1);
    struct matcher m = {.pattern = pattern, .p = pattern, .text = text, .n = (uint32_t)n};
    *matches = false;
    uint64_t ends = n > PL_PATH_PATTERN_TEXT ? fail(&m, pattern, "meets a name that is too long")
                                             : alternatives(&m, 1);
    if (!m.why && *m.p) fail(&m, m.p, "ends a group that did not begin");
    if (wrong && m.why)
        *wrong = (struct pl_path_pattern_wrong){(size_t)(m.why_at - pattern), m.why};
    *matches = !m.why && (ends >> n & 1);
    return !m.why;
}
