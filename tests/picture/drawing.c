#include "tests/picture/drawing.h"

#include <check.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double drawn_attribute(const char *s, const char *name) {
    char mark[32];
    snprintf(mark, sizeof mark, " %s=\"", name);
    const char *end = strchr(s, '>'), *at = strstr(s, mark);
    return at && at < end ? strtod(at + strlen(mark), NULL) : -1;
}

int drawn_count(const struct pl_text *svg, const char *what) {
    int n = 0;
    for (const char *s = pl_text_str(svg); (s = strstr(s, what)); s += strlen(what))
        n++;
    return n;
}

bool drawn_has_text(const struct pl_text *svg, const char *text) {
    char mark[256];
    snprintf(mark, sizeof mark, ">%s</text>", text);
    return strstr(pl_text_str(svg), mark) != NULL;
}

/* --- XML ------------------------------------------------------------------------------------- */

#define DEEPEST  16
#define NAME_MAX 16

/* name="value" ... up to `>` or `/>`; returns where the tag ends. */
static const char *check_attributes(const char *s) {
    while (*s == ' ') {
        const char *at = ++s;
        const size_t name = strcspn(s, "= >\"");
        if (name && s[name] == '=' && s[name + 1] == '"') s += name + 2;
        s += strcspn(s, "\"<");
        if (s == at || *s != '"') ck_abort_msg("no attribute: %.60s", at);
        s++;
    }
    return s;
}

static void check_entities(const char *s) {
    static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"};
    for (; (s = strchr(s, '&')); s++) {
        bool known = false;
        for (size_t i = 0; i < sizeof entities / sizeof *entities; i++)
            known |= strncmp(s, entities[i], strlen(entities[i])) == 0;
        ck_assert_msg(known, "%.20s", s);
    }
}

static void check_characters(const char *s) {
    while ((unsigned char)*s >= 0x20 || *s == '\n')
        s++;
    ck_assert_msg(*s == 0, "character %d", *s);
}

void drawn_check_well_formed(const struct pl_text *svg) {
    char open[DEEPEST][NAME_MAX];
    int depth = 0;
    const char *s = pl_text_str(svg);
    ck_assert(strncmp(s, "<svg ", 5) == 0 && !svg->failed);
    check_entities(s);
    check_characters(s);
    for (const char *at = s; (at = strchr(at, '<'));) {
        const bool closes = at[1] == '/';
        char name[NAME_MAX] = "";
        ck_assert_msg(depth > 0 || at == s, "more than one root");
        ck_assert_int_eq(sscanf(at + 1 + closes, "%15[a-z]", name), 1);
        at = check_attributes(at + 1 + closes + strlen(name));
        if (closes) {
            ck_assert_int_gt(depth, 0);
            ck_assert_str_eq(open[--depth], name);
        } else if (*at == '/') {
            at++;
        } else {
            ck_assert_int_lt(depth, DEEPEST);
            strcpy(open[depth++], name);
        }
        ck_assert_msg(*at == '>', "%.40s", at);
    }
    ck_assert_int_eq(depth, 0);
    ck_assert_msg(!strstr(s, "nan") && !strstr(s, "inf\"") && !strstr(s, "inf "), "%s", s);
}

/* --- layout ---------------------------------------------------------------------------------- */

/* Characters as shown: an entity is one. */
static int letters(const char *s) {
    int n = 0;
    for (; *s && *s != '<'; s++, n++) {
        if (*s == '&') s += strcspn(s, ";");
    }
    return n;
}

int drawn_texts(const struct pl_text *svg, struct drawn_box *boxes, int cap) {
    int n = 0;
    for (const char *s = pl_text_str(svg); (s = strstr(s, "<text x=")) && n < cap; s++) {
        const char *content = strchr(s, '>') + 1;
        double size = drawn_attribute(s, "font-size"), x = drawn_attribute(s, "x");
        double y = drawn_attribute(s, "y"), width = 0.62 * size * letters(content);
        const char *anchor = strstr(s, "text-anchor=\"") + 13;
        double left = *anchor == 's' ? x : *anchor == 'm' ? x - width / 2 : x - width;
        boxes[n++] =
            (struct drawn_box){left, left + width, y - 0.8 * size, y + 0.2 * size, content};
    }
    return n;
}

void drawn_check_layout(const struct pl_text *svg) {
    struct drawn_box b[192];
    int n = drawn_texts(svg, b, 192);
    const char *s = pl_text_str(svg);
    double width = drawn_attribute(s, "width"), height = drawn_attribute(s, "height");
    ck_assert_int_gt(n, 4);
    ck_assert_int_lt(n, 192);
    for (int i = 0; i < n; i++) {
        ck_assert_msg(b[i].left >= 0 && b[i].right <= width && b[i].top >= 0 &&
                          b[i].bottom <= height,
                      "outside: %.30s", b[i].at);
        for (int k = 0; k < i; k++) {
            bool apart = b[i].left >= b[k].right || b[k].left >= b[i].right ||
                         b[i].top >= b[k].bottom || b[k].top >= b[i].bottom;
            if (!apart) ck_abort_msg("overlap: %.30s and %.30s", b[i].at, b[k].at);
        }
    }
}
