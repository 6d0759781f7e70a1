/* json_scan.c - a strict JSON scanner over bytes in memory. */
#include "estimator/base/json_scan.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char hint_lines[] = "JSONL wants one complete JSON object per line";
static const char hint_truncated[] = "the file looks truncated: write or download it again";
static const char hint_utf16[] = "convert it: `iconv -f utf-16 -t utf-8`";
static const char hint_python[] = "this looks like a Python value: write rows with json.dumps";
static const char hint_latin1[] = "the file is not UTF-8; `iconv -f latin1 -t utf-8` may fix it";

bool pl_scan_fail(struct pl_scan *s, pl_err err, size_t where, const char *hint, const char *fmt,
                  ...) {
    if (s->err != PL_ERR_OK) return false;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s->what, sizeof s->what, fmt, ap);
    va_end(ap);
    s->err = err;
    s->where = where;
    s->hint = hint;
    return false;
}

const char *pl_scan_show(const char *text, size_t n, char buf[PL_SHOWN]) {
    size_t keep = n < PL_SHOWN - 4 ? n : PL_SHOWN - 4;
    while (keep < n && keep && ((unsigned char)text[keep] & 0xC0) == 0x80)
        keep--;
    for (size_t i = 0; i < keep; i++)
        buf[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7F ? '?' : text[i];
    memcpy(buf + keep, keep < n ? "..." : "", keep < n ? 4 : 1);
    return buf;
}

/* The byte at the cursor, -1 at the end. */
static int byte_at(const struct pl_scan *s, size_t at) {
    return at < s->n ? (unsigned char)s->text[at] : -1;
}

static int next_byte(struct pl_scan *s) {
    while (s->at < s->n && (s->text[s->at] == ' ' || s->text[s->at] == '\t' ||
                            s->text[s->at] == '\r' || s->text[s->at] == '\n'))
        s->at++;
    return byte_at(s, s->at);
}

static bool word_at(const struct pl_scan *s, const char *word) {
    size_t n = strlen(word);
    return s->n - s->at >= n && memcmp(s->text + s->at, word, n) == 0;
}

/* Spellings of other languages, and what to say about them. */
static const struct {
    const char *word, *what, *hint;
} foreign[] = {
    {"True", "`True` is not JSON", hint_python},
    {"False", "`False` is not JSON", hint_python},
    {"None", "`None` is not JSON", hint_python},
    {"'", "single quotes are not JSON", hint_python},
    {"nan", "nan is not JSON", "write null, or leave the key out"},
    {"inf", "inf is not JSON", "write null, or leave the key out"},
    {"//", "comments are not JSON", "remove the comment"},
    {"/*", "comments are not JSON", "remove the comment"},
    {"#", "comments are not JSON", "remove the comment"},
    {"\xEF\xBB\xBF", "a byte order mark inside the file", "files were joined: remove the mark"},
};

/* Explains why no `wanted` begins at the cursor. */
static bool fail_here(struct pl_scan *s, const char *wanted) {
    int c = byte_at(s, s->at);
    if (c < 0)
        return pl_scan_fail(
            s, PL_ERR_DATA_SYNTAX, s->at, s->ends_file ? hint_truncated : hint_lines,
            "%s ends where %s is expected", s->whole ? s->whole : "the row", wanted);
    if (c == 0)
        return pl_scan_fail(s, PL_ERR_DATA_SYNTAX, s->at,
                            "the program that wrote the file crashed, or it is not text",
                            "NUL byte in the file");
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        if (word_at(s, foreign[i].word))
            return pl_scan_fail(s, PL_ERR_DATA_SYNTAX, s->at, foreign[i].hint, "%s",
                                foreign[i].what);
    }
    if (c < 0x20 || c > 0x7E)
        return pl_scan_fail(s, PL_ERR_DATA_SYNTAX, s->at, NULL, "byte 0x%02X where %s is expected",
                            c, wanted);
    return pl_scan_fail(s, PL_ERR_DATA_SYNTAX, s->at, NULL, "`%c` where %s is expected", c, wanted);
}

/* The length of Python's word for a number that is not finite, 0 where none is at the cursor. */
static size_t not_finite(const struct pl_scan *s) {
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (word_at(s, words[i])) return strlen(words[i]);
    return 0;
}

enum pl_scan_kind pl_scan_peek(struct pl_scan *s) {
    if (s->err != PL_ERR_OK) return PL_SCAN_NONE;
    int c = next_byte(s);
    if ((c >= '0' && c <= '9') || c == '-' || not_finite(s)) return PL_SCAN_NUMBER;
    if (c == '{') return PL_SCAN_OBJECT;
    if (c == '[') return PL_SCAN_ARRAY;
    if (c == '"') return PL_SCAN_STRING;
    if (word_at(s, "true") || word_at(s, "false")) return PL_SCAN_BOOLEAN;
    return word_at(s, "null") ? PL_SCAN_NULL : PL_SCAN_NONE;
}

const char *pl_scan_kind_name(enum pl_scan_kind kind) {
    static const char *const names[] = {"nothing",  "an object", "an array", "a string",
                                        "a number", "a boolean", "null"};
    return names[kind];
}

/* Length of the UTF-8 sequence at `at` (Unicode 15, table 3-7); 0 after reporting a bad one. */
static size_t utf8_sequence(struct pl_scan *s, size_t at) {
    int c = byte_at(s, at), second = byte_at(s, at + 1);
    size_t want = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
    const char *what = NULL;
    if (c < 0xC0 || c > 0xF7 || (second & 0xC0) != 0x80 || second < 0) {
        pl_scan_fail(s, PL_ERR_DATA_SYNTAX, at, hint_latin1, "invalid UTF-8 byte 0x%02X", c);
        return 0;
    }
    if (c < 0xC2 || (c == 0xE0 && second < 0xA0) || (c == 0xF0 && second < 0x90))
        what = "overlong UTF-8";
    else if (c == 0xED && second >= 0xA0)
        what = "surrogate encoded in UTF-8";
    else if (c > 0xF4 || (c == 0xF4 && second >= 0x90))
        what = "code point above U+10FFFF";
    for (size_t i = 2; i < want && !what; i++) {
        int next = byte_at(s, at + i);
        if (next < 0 || (next & 0xC0) != 0x80) what = "UTF-8 sequence cut short";
    }
    if (!what) return want;
    pl_scan_fail(s, PL_ERR_DATA_SYNTAX, at, NULL, "%s at byte 0x%02X", what, c);
    return 0;
}

/* Four hex digits at the cursor, -1 when they are not there. */
static int hex4(const struct pl_scan *s, size_t at) {
    int v = 0;
    for (size_t i = 0; i < 4; i++) {
        int c = byte_at(s, at + i);
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return -1;
        v = v * 16 + digit;
    }
    return v;
}

static void add_code_point(struct pl_text *out, uint32_t c) {
    char u[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        u[i] = (char)(0x80 | (c & 0x3F));
    u[0] = (char)(lead[n] | c);
    pl_text_addn(out, u, n);
}

/* A surrogate without its other half, which Python writes and reads. A string that is passed over
 * may hold it. */
static bool lone_surrogate(struct pl_scan *s, size_t start, uint32_t c, struct pl_text *out) {
    if (out && !s->replaces)
        return pl_scan_fail(s, PL_ERR_DATA_SYNTAX, start, NULL,
                            c >= 0xDC00 ? "low surrogate \\u%04X alone"
                                        : "high surrogate \\u%04X without a low one",
                            (unsigned)c);
    if (out) pl_text_add(out, "\xEF\xBF\xBD");
    return true;
}

/* The cursor stands after `\u`. */
static bool unicode_escape(struct pl_scan *s, struct pl_text *out) {
    size_t start = s->at - 2;
    int high = hex4(s, s->at);
    if (high < 0)
        return pl_scan_fail(s, PL_ERR_DATA_SYNTAX, start, NULL, "\\u needs four hex digits");
    s->at += 4;
    uint32_t c = (uint32_t)high;
    if (c >= 0xDC00 && c < 0xE000) return lone_surrogate(s, start, c, out);
    if (c >= 0xD800 && c < 0xDC00) {
        int low = word_at(s, "\\u") ? hex4(s, s->at + 2) : -1;
        if (low < 0xDC00 || low > 0xDFFF) return lone_surrogate(s, start, c, out);
        s->at += 6;
        c = 0x10000 + ((c - 0xD800) << 10) + ((uint32_t)low - 0xDC00);
    }
    if (out) add_code_point(out, c);
    return true;
}

static bool unterminated(struct pl_scan *s) {
    if (s->whole && s->at < s->n)
        return pl_scan_fail(s, PL_ERR_DATA_SYNTAX, s->at, "write it as \\n, or close the string",
                            "a line ends inside a string");
    return pl_scan_fail(s, PL_ERR_DATA_SYNTAX, s->at, s->ends_file ? hint_truncated : hint_lines,
                        s->ends_file ? "unterminated string at the end of the file"
                                     : "unterminated string (a raw newline ends the line)");
}

/* The cursor stands after the backslash. */
static bool escape(struct pl_scan *s, struct pl_text *out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    int c = byte_at(s, s->at);
    if (c < 0) return unterminated(s);
    s->at++;
    if (c == 'u') return unicode_escape(s, out);
    const char *hit = c ? strchr(from, c) : NULL;
    char shown[PL_SHOWN];
    if (!hit)
        return pl_scan_fail(s, PL_ERR_DATA_SYNTAX, s->at - 2, NULL, "unknown escape \\%s",
                            pl_scan_show(s->text + s->at - 1, c < 0x80, shown));
    if (out) pl_text_addn(out, &to[hit - from], 1);
    return true;
}

static bool control_in_string(struct pl_scan *s, int c) {
    if (c == 0) return pl_scan_fail(s, PL_ERR_DATA_SYNTAX, s->at, NULL, "NUL byte in a string");
    if (c == '\n') return unterminated(s);
    return pl_scan_fail(s, PL_ERR_DATA_SYNTAX, s->at, "write it as an escape, such as \\t",
                        "control character U+%04X unescaped in a string", (unsigned)c);
}

bool pl_scan_string(struct pl_scan *s, struct pl_text *out) {
    if (s->err != PL_ERR_OK) return false;
    if (next_byte(s) != '"') return fail_here(s, "a string");
    size_t run = ++s->at; /* start of the bytes not yet copied */
    for (;;) {
        int c = byte_at(s, s->at);
        if (c < 0) return unterminated(s);
        if (c != '"' && c != '\\' && c >= 0x20) {
            size_t n = c < 0x80 ? 1 : utf8_sequence(s, s->at);
            if (!n) return false;
            s->at += n;
            continue;
        }
        if (c < 0x20) return control_in_string(s, c);
        if (out) pl_text_addn(out, s->text + run, s->at - run);
        s->at++;
        if (c == '"') return true;
        if (!escape(s, out)) return false;
        run = s->at;
    }
}

static size_t digits(struct pl_scan *s) {
    size_t start = s->at;
    while (s->at < s->n && s->text[s->at] >= '0' && s->text[s->at] <= '9')
        s->at++;
    return s->at - start;
}

bool pl_scan_number(struct pl_scan *s, const char **begin, size_t *n) {
    if (pl_scan_peek(s) != PL_SCAN_NUMBER) return s->err == PL_ERR_OK && fail_here(s, "a number");
    size_t start = s->at;
    *begin = s->text + start;
    *n = not_finite(s);
    s->at += *n;
    if (*n) return true;
    if (s->text[s->at] == '-') s->at++;
    size_t first = s->at;
    if (!digits(s)) return fail_here(s, "a digit");
    if (s->text[first] == '0' && s->at - first > 1)
        return pl_scan_fail(s, PL_ERR_DATA_SYNTAX, start, NULL, "number with a leading zero");
    if (byte_at(s, s->at) == '.') {
        s->at++;
        if (!digits(s)) return fail_here(s, "a digit");
    }
    if (byte_at(s, s->at) == 'e' || byte_at(s, s->at) == 'E') {
        s->at++;
        if (byte_at(s, s->at) == '+' || byte_at(s, s->at) == '-') s->at++;
        if (!digits(s)) return fail_here(s, "a digit");
    }
    *n = s->at - start;
    return true;
}

bool pl_scan_is_finite(const char *digits, size_t n) {
    return digits[n - 1] >= '0' && digits[n - 1] <= '9';
}

/* The key and colon of a member; the cursor stands before it. */
static bool member_key(struct pl_scan *s, struct pl_text *key) {
    int c = next_byte(s);
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_')
        return pl_scan_fail(s, PL_ERR_DATA_SYNTAX, s->at,
                            s->whole ? "write the key in quotes" : "write {\"text\": ...}",
                            "key without quotes");
    if (c != '"') return fail_here(s, "a key in quotes");
    if (!pl_scan_string(s, key)) return false;
    if (next_byte(s) != ':') return fail_here(s, "`:`");
    s->at++;
    return true;
}

/* Reads what follows a value. True after a comma or the closer, both passed; the closer sets
 * *done. */
static bool separator(struct pl_scan *s, char closer, bool *done) {
    int c = next_byte(s);
    *done = c == closer;
    if (c != closer && c != ',') return fail_here(s, closer == '}' ? "`,` or `}`" : "`,` or `]`");
    s->at++;
    if (c == ',' && next_byte(s) == closer)
        return pl_scan_fail(s, PL_ERR_DATA_SYNTAX, s->at, "remove the comma",
                            "trailing comma before `%c`", closer);
    return true;
}

static bool enter(struct pl_scan *s, char opener) {
    if (s->err != PL_ERR_OK) return false;
    if (next_byte(s) != opener) return fail_here(s, opener == '{' ? "`{`" : "`[`");
    s->at++;
    s->inside = false;
    return true;
}

/* Moves to the next member or element; false at the closer, which is passed. */
static bool next_item(struct pl_scan *s, char closer) {
    bool done = false;
    if (s->err != PL_ERR_OK) return false;
    if (s->inside) return separator(s, closer, &done) && !done;
    s->inside = true;
    if (next_byte(s) != closer) return true;
    s->at++;
    return false;
}

bool pl_scan_enter(struct pl_scan *s) {
    return enter(s, '{');
}
bool pl_scan_enter_array(struct pl_scan *s) {
    return enter(s, '[');
}

bool pl_scan_next_key(struct pl_scan *s, struct pl_text *key) {
    if (!next_item(s, '}')) return false;
    if (key->data) key->data[0] = 0;
    key->len = 0;
    return member_key(s, key);
}

bool pl_scan_next_element(struct pl_scan *s) {
    return next_item(s, ']');
}

static bool skip_scalar(struct pl_scan *s, enum pl_scan_kind kind) {
    static const char *const words[] = {"true", "false", "null"};
    const char *begin;
    size_t n;
    if (kind == PL_SCAN_STRING) return pl_scan_string(s, NULL);
    if (kind == PL_SCAN_NUMBER) return pl_scan_number(s, &begin, &n);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!word_at(s, words[i])) continue;
        s->at += strlen(words[i]);
        return true;
    }
    return fail_here(s, "a value");
}

/* Kinds of the open brackets, one bit each: 1 = object. */
struct nesting {
    uint64_t bits[PL_SCAN_DEPTH / 64];
    size_t depth;
};

static bool is_object(const struct nesting *n) {
    size_t i = n->depth - 1;
    return n->bits[i / 64] >> (i % 64) & 1;
}

/* Opens the bracket at the cursor; *empty when it closes at once. */
static bool open_bracket(struct pl_scan *s, struct nesting *n, bool object, bool *empty) {
    if (n->depth == PL_SCAN_DEPTH)
        return pl_scan_fail(s, PL_ERR_DATA_SYNTAX, s->at, NULL, "nested deeper than %d levels",
                            PL_SCAN_DEPTH);
    uint64_t bit = UINT64_C(1) << (n->depth % 64);
    if (object)
        n->bits[n->depth / 64] |= bit;
    else
        n->bits[n->depth / 64] &= ~bit;
    s->at++;
    *empty = next_byte(s) == (object ? '}' : ']');
    if (*empty) {
        s->at++;
        return true;
    }
    n->depth++;
    return !object || member_key(s, NULL);
}

bool pl_scan_skip(struct pl_scan *s) {
    struct nesting n = {.depth = 0};
    for (;;) {
        enum pl_scan_kind kind = pl_scan_peek(s);
        bool bracket = kind == PL_SCAN_OBJECT || kind == PL_SCAN_ARRAY;
        bool empty = false, closed = true;
        if (s->err != PL_ERR_OK) return false;
        if (bracket ? !open_bracket(s, &n, kind == PL_SCAN_OBJECT, &empty) : !skip_scalar(s, kind))
            return false;
        if (bracket && !empty) continue;
        while (closed && n.depth) {
            if (!separator(s, is_object(&n) ? '}' : ']', &closed)) return false;
            if (closed) n.depth--;
        }
        if (closed) return true;
        if (is_object(&n) && !member_key(s, NULL)) return false;
    }
}

/* The value of a number that is written in few digits; 0.5 stands for every other one. */
static double short_number(const char *digits, size_t n) {
    char number[32];
    if (n >= sizeof number) return 0.5;
    memcpy(number, digits, n);
    number[n] = 0;
    return strtod(number, NULL);
}

int pl_scan_flag(struct pl_scan *s) {
    enum pl_scan_kind kind = pl_scan_peek(s);
    size_t at = s->at;
    if (!pl_scan_skip(s)) return -1;
    if (kind == PL_SCAN_BOOLEAN) return s->text[at] == 't';
    if (kind != PL_SCAN_NUMBER) return -1;
    double v = short_number(s->text + at, s->at - at);
    return v == 0 ? 0 : v == 1 ? 1 : -1;
}

/* Contents that people's files hold instead of JSON, recognised by their first bytes. */
static const struct {
    const char *begin;
    size_t n;
    const char *what, *hint;
} others[] = {
#define BEGINS(s) s, sizeof(s) - 1
    {BEGINS("version https://git-lfs"), "a Git LFS pointer, not the file itself",
     "fetch the content with `git lfs pull`"},
    {BEGINS("\xFF\xFE"), "UTF-16 text, not UTF-8", hint_utf16},
    {BEGINS("\xFE\xFF"), "UTF-16 text, not UTF-8", hint_utf16},
    {BEGINS("{\0"), "UTF-16 text, not UTF-8", hint_utf16},
    {BEGINS("\0{"), "UTF-16 text, not UTF-8", hint_utf16},
    {BEGINS("<"), "HTML or XML, not JSON",
     "a failed download: `plimsoll fetch OWNER/NAME` downloads it again"},
    {BEGINS("\x1F\x8B"), "compressed by gzip, not JSON", "unpack it with `gzip -d`"},
    {BEGINS("PK\x03\x04"), "a zip archive, not JSON", "unpack it with `unzip`"},
#undef BEGINS
};

struct pl_scan pl_scan_file(const char *text, size_t n) {
    struct pl_scan s = {.text = text, .n = n, .ends_file = true, .whole = "the file"};
    if (word_at(&s, "\xEF\xBB\xBF")) s.at = 3;
    const size_t begin = s.at;
    if (next_byte(&s) < 0)
        pl_scan_fail(&s, PL_ERR_DATA_SYNTAX, begin, "write or download the file again",
                     "the file is empty");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (n - s.at >= others[i].n && memcmp(text + s.at, others[i].begin, others[i].n) == 0)
            pl_scan_fail(&s, PL_ERR_DATA_SYNTAX, s.at, others[i].hint, "%s", others[i].what);
    return s;
}

bool pl_scan_end(struct pl_scan *s) {
    if (s->err != PL_ERR_OK) return false;
    int c = next_byte(s);
    if (c < 0) return true;
    if (c == '{' || c == '[')
        return pl_scan_fail(s, PL_ERR_DATA_SYNTAX, s->at, s->whole ? NULL : hint_lines,
                            s->whole ? "a second value after the JSON value"
                                     : "a second value on the line; one object per line");
    if (c == 0) return fail_here(s, "the end of the row");
    char shown[PL_SHOWN];
    return pl_scan_fail(s, PL_ERR_DATA_SYNTAX, s->at, s->whole ? NULL : hint_lines,
                        "text after the JSON value: %s",
                        pl_scan_show(s->text + s->at, s->n - s->at, shown));
}
