/* scalar.c - core-schema scalars: resolution, quoting, numbers without the locale. */
#include "estimator/config/scalar.h"

#include "estimator/base/units.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_one_of(const char *text, const char *const *words, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(text, words[i]) == 0) return true;
    return false;
}

bool pl_scalar_null(const char *text) {
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};
    return is_one_of(text, words, sizeof words / sizeof *words);
}

bool pl_scalar_bool(const char *text, bool *out) {
    static const char *const yes[] = {"true", "True", "TRUE"};
    static const char *const no[] = {"false", "False", "FALSE"};
    bool is_true = is_one_of(text, yes, sizeof yes / sizeof *yes);
    if (!is_true && !is_one_of(text, no, sizeof no / sizeof *no)) return false;
    *out = is_true;
    return true;
}

static int digit_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return 16;
}

enum pl_int pl_scalar_int(const char *text, uint64_t *out) {
    uint64_t base = 10, v = 0;
    bool negative = *text == '-', overflow = false;
    if (text[0] == '0' && (text[1] == 'o' || text[1] == 'x')) {
        base = text[1] == 'o' ? 8 : 16;
        text += 2;
    } else if (*text == '-' || *text == '+') {
        text++;
    }
    if (!*text) return PL_INT_NONE;
    for (; *text; text++) {
        uint64_t digit = (uint64_t)digit_value(*text);
        if (digit >= base) return PL_INT_NONE;
        if (v > (UINT64_MAX - digit) / base) overflow = true;
        v = v * base + digit;
    }
    if (negative && (v || overflow)) return PL_INT_NEGATIVE;
    if (overflow) return PL_INT_TOO_LARGE;
    *out = v;
    return PL_INT_OK;
}

/* The C locale for this thread alone: strtod and printf take their point from the locale, and the
 * estimator may be embedded in a program that set one with a comma. */
struct c_locale {
    locale_t c, previous;
};

static struct c_locale c_locale_enter(void) {
    struct c_locale l = {newlocale(LC_ALL_MASK, "C", (locale_t)0), (locale_t)0};
    if (l.c) l.previous = uselocale(l.c);
    return l;
}

static void c_locale_leave(struct c_locale l) {
    if (!l.c) return;
    uselocale(l.previous);
    freelocale(l.c);
}

static const char *skip_digits(const char *s) {
    while (isdigit((unsigned char)*s))
        s++;
    return s;
}

/* [-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )? */
static bool is_float_text(const char *s) {
    if (*s == '-' || *s == '+') s++;
    const char *whole = s;
    s = skip_digits(s);
    bool digits = s > whole;
    if (*s == '.') {
        const char *fraction = ++s;
        s = skip_digits(s);
        digits |= s > fraction;
    }
    if (!digits) return false;
    if (*s == 'e' || *s == 'E') {
        s++;
        if (*s == '-' || *s == '+') s++;
        if (!isdigit((unsigned char)*s)) return false;
        s = skip_digits(s);
    }
    return !*s;
}

static bool is_special_float(const char *text) {
    static const char *const words[] = {".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN"};
    if (*text == '-' || *text == '+') text++;
    return is_one_of(text, words, sizeof words / sizeof *words);
}

bool pl_scalar_float(const char *text, double *out) {
    uint64_t whole;
    if (is_special_float(text)) {
        *out = (double)NAN;
        return true;
    }
    if (is_float_text(text)) {
        struct c_locale l = c_locale_enter();
        *out = strtod(text, NULL);
        c_locale_leave(l);
        return true;
    }
    if (pl_scalar_int(text, &whole) != PL_INT_OK) return false; /* 0x.. and 0o.. */
    *out = (double)whole;
    return true;
}

bool pl_scalar_bytes(const char *text, uint64_t *out) {
    struct c_locale l = c_locale_enter();
    bool ok = pl_bytes_parse(text, out);
    c_locale_leave(l);
    return ok;
}

unsigned pl_utf8_next(const char *s, uint32_t *out) {
    static const struct {
        unsigned char mask, lead;
        uint32_t least;
    } forms[] = {{0x80, 0, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    unsigned char c = (unsigned char)*s;
    for (unsigned n = 0; n < sizeof forms / sizeof *forms; n++) {
        if ((c & forms[n].mask) != forms[n].lead) continue;
        uint32_t v = c & (unsigned char)~forms[n].mask;
        for (unsigned i = 1; i <= n; i++) {
            if (((unsigned char)s[i] & 0xc0) != 0x80) return 0;
            v = v << 6 | ((unsigned char)s[i] & 0x3f);
        }
        if (v < forms[n].least || v > 0x10ffff || (v >= 0xd800 && v <= 0xdfff)) return 0;
        *out = v;
        return n + 1;
    }
    return 0;
}

bool pl_utf8_valid(const char *text) {
    uint32_t c;
    for (unsigned n; *text; text += n)
        if (!(n = pl_utf8_next(text, &c))) return false;
    return true;
}

/* Stricter than YAML asks for, so that other readers, YAML 1.1 ones included, agree. */
static bool is_plain_safe(const char *text) {
    static const char *const words_1_1[] = {"y",  "Y",  "n",  "N",  "yes", "Yes", "YES", "no",
                                            "No", "NO", "on", "On", "ON",  "off", "Off", "OFF"};
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
    double number;
    bool flag;
    if (*text == '-' || text[strspn(text, safe)]) return false;
    return !pl_scalar_null(text) && !pl_scalar_bool(text, &flag) &&
           !pl_scalar_float(text, &number) &&
           !is_one_of(text, words_1_1, sizeof words_1_1 / sizeof *words_1_1);
}

/* Raw inside double quotes: what libyaml calls printable, less the characters it takes for line
 * breaks (U+0085, U+2028, U+2029) and the byte order mark. */
static bool is_raw_in_quotes(uint32_t c) {
    if (c == '"' || c == '\\' || c < 0x20 || (c >= 0x7f && c < 0xa0)) return false;
    return c != 0x2028 && c != 0x2029 && c != 0xfeff && c != 0xfffe && c != 0xffff;
}

void pl_scalar_write(struct pl_text *out, const char *text) {
    if (is_plain_safe(text)) {
        pl_text_add(out, text);
        return;
    }
    uint32_t c = 0;
    pl_text_add(out, "\"");
    for (unsigned n; *text && (n = pl_utf8_next(text, &c)); text += n) {
        if (is_raw_in_quotes(c))
            pl_text_addn(out, text, n);
        else if (c == '"' || c == '\\')
            pl_text_addf(out, "\\%c", (char)c);
        else if (c == '\n' || c == '\t')
            pl_text_add(out, c == '\n' ? "\\n" : "\\t");
        else
            pl_text_addf(out, c < 0x100 ? "\\x%02X" : "\\u%04X", c);
    }
    pl_text_add(out, "\"");
}

void pl_scalar_write_f64(struct pl_text *out, double v) {
    char buf[40];
    struct c_locale l = c_locale_enter();
    for (int digits = 1; digits <= 17; digits++) { /* 17 always suffice for a binary64 */
        snprintf(buf, sizeof buf, "%.*g", digits, v);
        if (strtod(buf, NULL) == v) break;
    }
    if (fabs(v) < 1e5 && v == floor(v)) snprintf(buf, sizeof buf, "%.0f", v); /* 100, not 1e+02 */
    c_locale_leave(l);
    pl_text_add(out, buf);
}

const char *pl_scalar_excerpt(const char *text, char buf[PL_EXCERPT_BYTES]) {
    static const char more[] = "...";
    size_t len = 0;
    uint32_t c;
    while (*text) {
        unsigned n = pl_utf8_next(text, &c);
        bool shown = n && c >= 0x20 && !(c >= 0x7f && c < 0xa0);
        if (len + (shown ? n : 1) + sizeof more > PL_EXCERPT_BYTES) {
            memcpy(buf + len, more, sizeof more);
            return buf;
        }
        if (shown)
            memcpy(buf + len, text, n);
        else
            buf[len] = '?';
        len += shown ? n : 1;
        text += n ? n : 1;
    }
    buf[len] = 0;
    return buf;
}
