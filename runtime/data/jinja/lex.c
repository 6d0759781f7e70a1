/* lex.c - tokens of a Jinja program, as jinja2/lexer.py cuts them. */
#include "runtime/data/jinja/lex.h"
#include "runtime/data/jinja/chars.h"

#define BRACES_DEPTH 256

struct lexer {
    struct pl_jinja_arena *arena;
    const char *s; /* [n], line ends as line feeds, without the last one */
    size_t n, at;
    uint32_t line;
    size_t line_at;          /* where the line begins */
    size_t counted;          /* lines are counted up to here */
    char open[BRACES_DEPTH]; /* brackets that are open in the tag */
    size_t n_open;
    struct pl_jinja_tokens *out;
    const char *name;
    struct pl_diag *d;
};

/* Positions only grow, so lines are counted once. */
static void count_lines(struct lexer *x, size_t to) {
    for (; x->counted < to; x->counted++) {
        if (x->s[x->counted] != '\n') continue;
        x->line++;
        x->line_at = x->counted + 1;
    }
}

static pl_err refuse_program(struct lexer *x, size_t at, const char *what) {
    x->line = 1;
    x->line_at = x->counted = 0;
    count_lines(x, at);
    return pl_diag_at(x->d, PL_ERR_DATA_TEMPLATE, x->name, x->line, at - x->line_at + 1, "%s",
                      what);
}

static pl_err add(struct lexer *x, enum pl_jinja_token_kind kind, size_t begin, size_t end) {
    struct pl_jinja_tokens *t = x->out;
    if (t->n == t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 256;
        struct pl_jinja_token *items = pl_jinja_alloc_array(x->arena, cap, sizeof *items);
        if (!items) return refuse_program(x, begin, "the template is too large");
        if (t->n) memcpy(items, t->items, t->n * sizeof *items);
        t->items = items;
        t->cap = cap;
    }
    count_lines(x, begin);
    t->items[t->n++] = (struct pl_jinja_token){kind, x->s + begin, end - begin, x->line,
                                               (uint32_t)(begin - x->line_at) + 1};
    return PL_ERR_OK;
}

/* --- text between tags ------------------------------------------------------------------------ */
static bool word_at(const struct lexer *x, size_t at, const char *word) {
    size_t n = strlen(word);
    return x->n - at >= n && memcmp(x->s + at, word, n) == 0;
}

static size_t skip_space(const struct lexer *x, size_t at) {
    for (size_t n; (n = pl_jinja_space_at(x->s + at, x->n - at, false)) != 0;)
        at += n;
    return at;
}

static size_t strip_end(const struct lexer *x, size_t begin, size_t end) {
    for (size_t n; (n = pl_jinja_space_at(x->s + begin, end - begin, true)) != 0;)
        end -= n;
    return end;
}

/* The end of the text [begin, end) before a tag that opens at `end`: the sign - strips all white
 * space, lstrip_blocks that of the tag's own line. */
static size_t text_end(const struct lexer *x, size_t begin, size_t end, char sign, bool is_print) {
    if (sign == '-') return strip_end(x, begin, end);
    if (sign == '+' || is_print) return end;
    size_t line = end;
    while (line > begin && x->s[line - 1] != '\n')
        line--;
    bool starts_line = line > begin || begin == 0 || x->s[begin - 1] == '\n';
    return starts_line && strip_end(x, line, end) == line ? line : end;
}

/* Past the close of a comment, block or raw block at `at`, which is `close` with or without a
 * sign; 0 = it is not one. */
static size_t past_close(const struct lexer *x, size_t at, const char *close, bool plus,
                         bool line_feed) {
    if (word_at(x, at, close)) {
        at += 2;
        return at + (line_feed && at < x->n && x->s[at] == '\n');
    }
    if (at + 1 >= x->n || !word_at(x, at + 1, close)) return 0;
    if (x->s[at] == '-') return skip_space(x, at + 3);
    return x->s[at] == '+' && plus ? at + 3 : 0;
}

static bool is_sign(const struct lexer *x, size_t at) {
    return at < x->n && (x->s[at] == '-' || x->s[at] == '+');
}

static pl_err skip_comment(struct lexer *x, size_t at) {
    for (size_t i = at; i < x->n; i++) {
        x->at = past_close(x, i, "#}", true, true);
        if (x->at) return PL_ERR_OK;
    }
    return refuse_program(x, at, "a comment without its end");
}

/* Past `{% raw %}` that opens at `at`, 0 = it is another block. */
static size_t past_raw_begin(const struct lexer *x, size_t at) {
    at += 2;
    at = skip_space(x, at + is_sign(x, at));
    return word_at(x, at, "raw") ? past_close(x, skip_space(x, at + 3), "%}", false, false) : 0;
}

static pl_err take_raw(struct lexer *x, size_t begin) {
    for (size_t at = begin; at < x->n; at++) {
        if (!word_at(x, at, "{%")) continue;
        size_t in = at + 2;
        char sign = is_sign(x, in) ? x->s[in++] : 0;
        in = skip_space(x, in);
        if (!word_at(x, in, "endraw")) continue;
        x->at = past_close(x, skip_space(x, in + 6), "%}", true, true);
        if (!x->at) continue;
        size_t end = text_end(x, begin, at, sign, false);
        return end > begin ? add(x, PL_JINJA_TOKEN_TEXT, begin, end) : PL_ERR_OK;
    }
    return refuse_program(x, begin, "a raw block without its end");
}

/* --- inside tags ------------------------------------------------------------------------------ */
static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static char char_at(const struct lexer *x, size_t at) {
    return at < x->n ? x->s[at] : 0;
}

/* Digits that may have single underscores between them; `at` when there is none. */
static size_t past_digits(const struct lexer *x, size_t at) {
    if (!is_digit(char_at(x, at))) return at;
    while (is_digit(char_at(x, at)) || (char_at(x, at) == '_' && is_digit(char_at(x, at + 1))))
        at++;
    return at;
}

static pl_err take_number(struct lexer *x) {
    size_t begin = x->at, end = past_digits(x, begin), whole = end;
    bool after_dot = begin && x->s[begin - 1] == '.';
    char base = (char)(char_at(x, begin + 1) | 0x20);
    if (x->s[begin] == '0' && (base == 'x' || base == 'o' || base == 'b'))
        return refuse_program(x, begin, "numbers with a base are not supported");
    if (char_at(x, end) == '.' && past_digits(x, end + 1) > end + 1) end = past_digits(x, end + 1);
    if ((char_at(x, end) | 0x20) == 'e') {
        size_t digits = end + 1 + is_sign(x, end + 1);
        if (past_digits(x, digits) > digits) end = past_digits(x, digits);
    }
    if (end > whole && !after_dot) {
        x->at = end;
        return add(x, PL_JINJA_TOKEN_FLOAT, begin, end);
    }
    if (x->s[begin] == '0' && whole > begin + 1)
        return refuse_program(x, begin, "a number that begins with 0");
    x->at = whole;
    return add(x, PL_JINJA_TOKEN_INTEGER, begin, whole);
}

static pl_err take_string(struct lexer *x) {
    size_t begin = x->at + 1, end = begin;
    while (end < x->n && x->s[end] != x->s[x->at])
        end += x->s[end] == '\\' ? 2 : 1;
    if (end >= x->n) return refuse_program(x, x->at, "a string without its end");
    x->at = end + 1;
    return add(x, PL_JINJA_TOKEN_STRING, begin, end);
}

static pl_err take_name(struct lexer *x) {
    size_t begin = x->at;
    while (is_letter(char_at(x, x->at)) || is_digit(char_at(x, x->at)))
        x->at++;
    return add(x, PL_JINJA_TOKEN_NAME, begin, x->at);
}

/* Brackets must match before a tag may end. */
static pl_err balance(struct lexer *x) {
    static const char pairs[] = "(){}[]";
    char c = x->s[x->at];
    const char *p = strchr(pairs, c);
    if (!p || !c) return PL_ERR_OK;
    if ((p - pairs) % 2 == 0) {
        if (x->n_open == BRACES_DEPTH) return refuse_program(x, x->at, "nested too deeply");
        x->open[x->n_open++] = p[1];
        return PL_ERR_OK;
    }
    if (!x->n_open || x->open[x->n_open - 1] != c)
        return refuse_program(x, x->at, "a closing bracket without its opening one");
    x->n_open--;
    return PL_ERR_OK;
}

static pl_err take_operator(struct lexer *x) {
    static const char *const two[] = {"**", "//", "==", "!=", ">=", "<="};
    static const char one[] = "+-/*%~[](){}><=.:|,;";
    size_t begin = x->at;
    for (size_t i = 0; i < sizeof two / sizeof *two; i++) {
        if (!word_at(x, begin, two[i])) continue;
        x->at += 2;
        return add(x, PL_JINJA_TOKEN_OPERATOR, begin, x->at);
    }
    if (!x->s[begin] || !strchr(one, x->s[begin]))
        return refuse_program(x, begin, "a character that means nothing here");
    pl_err err = balance(x);
    x->at++;
    return err == PL_ERR_OK ? add(x, PL_JINJA_TOKEN_OPERATOR, begin, x->at) : err;
}

static pl_err take_token(struct lexer *x) {
    char c = x->s[x->at];
    if (is_digit(c)) return take_number(x);
    if (is_letter(c)) return take_name(x);
    if (c == '\'' || c == '"') return take_string(x);
    if ((unsigned char)c >= 0x80)
        return refuse_program(x, x->at, "names of other letters than A to Z are not supported");
    return take_operator(x);
}

static pl_err take_tag(struct lexer *x, bool is_print, size_t opened) {
    x->n_open = 0;
    for (;;) {
        x->at = skip_space(x, x->at);
        if (x->at >= x->n) return refuse_program(x, opened, "a tag without its end");
        size_t end = x->n_open  ? 0
                     : is_print ? past_close(x, x->at, "}}", false, false)
                                : past_close(x, x->at, "%}", true, true);
        if (end) {
            size_t begin = x->at;
            x->at = end;
            return add(x, is_print ? PL_JINJA_TOKEN_PRINT_END : PL_JINJA_TOKEN_BLOCK_END, begin,
                       end);
        }
        pl_err err = take_token(x);
        if (err != PL_ERR_OK) return err;
    }
}

/* --- the whole -------------------------------------------------------------------------------- */
/* The next tag from `at`, n = there is none. */
static size_t next_tag(const struct lexer *x, size_t at) {
    for (; at + 1 < x->n; at++) {
        const char *brace = memchr(x->s + at, '{', x->n - at - 1);
        if (!brace) return x->n;
        at = (size_t)(brace - x->s);
        if (x->s[at + 1] == '{' || x->s[at + 1] == '%' || x->s[at + 1] == '#') return at;
    }
    return x->n;
}

/* The text up to the next tag, and the tag. */
static pl_err take_part(struct lexer *x) {
    size_t begin = x->at, tag = next_tag(x, begin);
    pl_err err = PL_ERR_OK;
    if (tag == x->n) {
        x->at = tag;
        return tag > begin ? add(x, PL_JINJA_TOKEN_TEXT, begin, tag) : PL_ERR_OK;
    }
    char kind = x->s[tag + 1];
    char sign = is_sign(x, tag + 2) ? x->s[tag + 2] : 0;
    size_t end = text_end(x, begin, tag, sign, kind == '{');
    if (end > begin) err = add(x, PL_JINJA_TOKEN_TEXT, begin, end);
    if (err != PL_ERR_OK) return err;
    size_t raw = kind == '%' ? past_raw_begin(x, tag) : 0;
    if (raw) return take_raw(x, raw);
    x->at = tag + 2 + (sign != 0);
    if (kind == '#') return skip_comment(x, x->at);
    bool is_print = kind == '{';
    err = add(x, is_print ? PL_JINJA_TOKEN_PRINT_BEGIN : PL_JINJA_TOKEN_BLOCK_BEGIN, tag, x->at);
    return err == PL_ERR_OK ? take_tag(x, is_print, tag) : err;
}

/* CR LF and CR as LF; the last line feed is dropped. */
static char *normalise(struct pl_jinja_arena *a, const char *text, size_t *n) {
    char *s = pl_jinja_alloc(a, *n + 1);
    size_t to = 0;
    for (size_t i = 0; s && i < *n; i++) {
        if (text[i] == '\r' && i + 1 < *n && text[i + 1] == '\n') continue;
        s[to++] = text[i] == '\r' ? '\n' : text[i];
    }
    *n = to - (to && s[to - 1] == '\n');
    return s;
}

pl_err pl_jinja_lex(struct pl_jinja_arena *a, const char *text, size_t n, const char *name,
                    struct pl_jinja_tokens *out, struct pl_diag *d) {
    struct lexer x = {.arena = a, .n = n, .line = 1, .out = out, .name = name, .d = d};
    *out = (struct pl_jinja_tokens){0};
    x.s = normalise(a, text, &x.n);
    if (!x.s) return pl_host_oom(d, "the chat template");
    while (x.at < x.n) {
        pl_err err = take_part(&x);
        if (err != PL_ERR_OK) return err;
    }
    return add(&x, PL_JINJA_TOKEN_END, x.n, x.n);
}
