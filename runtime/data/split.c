/* split.c - cuts a data file into rows. */
#include "runtime/data/split.h"

#include "runtime/data/csv.h"
#include "runtime/data/file_kind.h"
#include "runtime/data/row_command.h"
#include "estimator/base/alloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK (1u << 18)

/* Makes room for a chunk after the bytes held: moves them to the front, or doubles the buffer. */
static pl_err make_room(struct pl_split *s, struct pl_diag *d) {
    if (s->begin) {
        memmove(s->buf, s->buf + s->begin, s->end - s->begin);
        s->offset += s->begin;
        s->end -= s->begin;
        s->begin = 0;
    }
    if (s->end > PL_ROW_MOST_BYTES)
        return pl_diag_at(d, PL_ERR_DATA_SYNTAX, s->path, s->line, 1,
                          "the row is above %zu MiB: a row ends with its line",
                          PL_ROW_MOST_BYTES >> 20);
    if (s->cap - s->end >= CHUNK) return PL_ERR_OK;
    size_t cap = s->cap ? 2 * s->cap : 2 * (size_t)CHUNK;
    char *buf = cap > s->cap ? pl_realloc(s->buf, cap) : NULL;
    if (!buf)
        return pl_diag_at(d, PL_ERR_HOST_OOM, s->path, s->line, 0,
                          "no memory for a row of %zu bytes", s->end);
    s->buf = buf;
    s->cap = cap;
    return PL_ERR_OK;
}

/* Reads more after buf[end]; at the end of the file sets eof. Offsets relative to begin stay. */
static pl_err fill(struct pl_split *s, struct pl_diag *d) {
    PL_TRY(make_room(s, d));
    const ssize_t got = pl_content_read(&s->content, s->buf + s->end, CHUNK, s->offset + s->end);
    if (got < 0)
        return pl_diag_at(d, pl_err_of_errno(PL_ERR_DATA_FILE), s->path, 0, 0, "cannot read: %s",
                          strerror(errno));
    s->eof = got == 0;
    s->end += (size_t)got;
    return PL_ERR_OK;
}

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Moves begin forward by n bytes, counting lines. */
static void advance(struct pl_split *s, size_t n) {
    const char *p = s->buf + s->begin, *stop = p + n, *nl;
    while ((nl = memchr(p, '\n', (size_t)(stop - p)))) {
        p = nl + 1;
        s->line++;
        s->line_start = s->offset + (uint64_t)(p - s->buf);
    }
    s->begin += n;
}

/* Passes over space; *c = the byte that follows, -1 at the end of the file. */
static pl_err skip_space(struct pl_split *s, int *c, struct pl_diag *d) {
    for (;;) {
        size_t n = 0, held = s->end - s->begin;
        while (n < held && is_space(s->buf[s->begin + n]))
            n++;
        advance(s, n);
        if (s->begin < s->end) {
            *c = (unsigned char)s->buf[s->begin];
            return PL_ERR_OK;
        }
        *c = -1;
        if (s->eof) return PL_ERR_OK;
        PL_TRY(fill(s, d));
    }
}

/* Returns the n bytes at begin as a row, and drops `skip` bytes after them. */
static void hand_out(struct pl_split *s, size_t n, size_t skip, struct pl_raw_row *row) {
    *row = (struct pl_raw_row){
        .text = s->buf + s->begin,
        .n = n,
        .offset = s->offset + s->begin,
        .line = s->line,
        .line_start = s->line_start,
        .ends_file = s->eof && s->begin + n + skip == s->end,
    };
    advance(s, n + skip);
}

/* skip_space has passed the blank lines; the row starts after the line's leading space. */
static pl_err next_line(struct pl_split *s, struct pl_raw_row *row, bool *more, struct pl_diag *d) {
    int c;
    size_t seen = 0; /* bytes at begin without a newline */
    PL_TRY(skip_space(s, &c, d));
    *more = c >= 0;
    if (!*more) return PL_ERR_OK;
    for (;;) {
        size_t held = s->end - s->begin;
        const char *from = s->buf + s->begin + seen, *nl = memchr(from, '\n', held - seen);
        if (nl) {
            hand_out(s, seen + (size_t)(nl - from), 1, row);
            row->ends_file = false;
            return PL_ERR_OK;
        }
        if (s->eof) {
            hand_out(s, held, 0, row);
            return PL_ERR_OK;
        }
        seen = held;
        PL_TRY(fill(s, d));
    }
}

/* Lines without anything are passed over: blanks belong to a field. */
static pl_err skip_empty_lines(struct pl_split *s, struct pl_diag *d) {
    for (;;) {
        size_t held = s->end - s->begin;
        const char *p = s->buf + s->begin;
        size_t n = held && p[0] == '\r' ? 1 : 0;
        if (held > n && p[n] == '\n')
            advance(s, n + 1);
        else if (held > n || s->eof)
            return PL_ERR_OK;
        else
            PL_TRY(fill(s, d));
    }
}

static pl_err next_record(struct pl_split *s, struct pl_raw_row *row, bool *more,
                          struct pl_diag *d) {
    bool quoted = false;
    PL_TRY(skip_empty_lines(s, d));
    for (size_t seen = 0;;) {
        size_t held = s->end - s->begin,
               n = pl_csv_record_end(s->buf + s->begin, held, seen, &quoted);
        if (n || s->eof) {
            *more = held > 0;
            hand_out(s, n ? n : held, 0, row);
            return PL_ERR_OK;
        }
        seen = held;
        PL_TRY(fill(s, d));
    }
}

struct element { /* the position of the cutter inside an element */
    size_t at;
    uint64_t depth, arrays; /* arrays: bit i: the level i above the innermost is an array */
    bool string, escaped, done;
};

/* Takes the byte at e->at. False: it is a raw newline in a string, where the element is broken and
 * must not swallow the rest of the file. */
static bool step(struct element *e, char c) {
    if (e->string) {
        if (c == '\n') return false;
        if (c == '"' && !e->escaped) e->string = false;
        e->escaped = c == '\\' && !e->escaped;
    } else if (c == '[' || c == '{') {
        e->depth++;
        e->arrays = e->arrays << 1 | (c == '[');
    } else if (c == ']' || c == '}') {
        e->depth--;
        e->arrays >>= 1;
    } else {
        e->string = c == '"';
    }
    e->at++;
    return true;
}

/* Moves over the bytes held until the element ends: at a comma or closing bracket of the array. */
static void cut_element(const struct pl_split *s, struct element *e) {
    const char *p = s->buf + s->begin;
    for (size_t held = s->end - s->begin; e->at < held && !e->done;) {
        const char c = p[e->at];
        e->done = !e->string && !e->depth && (c == ',' || c == ']' || c == '}');
        if (!e->done) e->done = !step(e, c);
    }
}

/* Moves over the bytes held until the object at begin ends, or its first line where asked. */
static void cut_object(const struct pl_split *s, struct element *e, bool line) {
    const char *p = s->buf + s->begin;
    for (size_t held = s->end - s->begin; e->at < held && !e->done;) {
        e->done = line && p[e->at] == '\n';
        if (!e->done) e->done = !step(e, p[e->at]) || !e->depth;
    }
}

/* True in *more if the object at begin has more lines than one. A line that is cut short, with the
 * object of the next line after it, is not such an object. */
static pl_err has_lines(struct pl_split *s, bool *more, struct pl_diag *d) {
    struct element e = {0};
    for (cut_object(s, &e, true); !e.done && !s->eof; cut_object(s, &e, true))
        PL_TRY(fill(s, d));
    *more = e.done && e.depth && !e.string;
    if (!*more) return PL_ERR_OK;
    size_t last = e.at - 1, next = e.at;
    while (is_space(s->buf[s->begin + last]))
        last--;
    for (;;) {
        while (s->begin + next < s->end && is_space(s->buf[s->begin + next]))
            next++;
        if (s->begin + next < s->end || s->eof) break;
        PL_TRY(fill(s, d));
    }
    const bool object = s->begin + next < s->end && s->buf[s->begin + next] == '{';
    *more = !object || e.arrays & 1 || s->buf[s->begin + last] == ':';
    return PL_ERR_OK;
}

static pl_err next_object(struct pl_split *s, struct pl_raw_row *row, bool *more,
                          struct pl_diag *d) {
    struct element e = {0};
    int c;
    PL_TRY(skip_space(s, &c, d));
    if (c != '{') return next_line(s, row, more, d);
    for (cut_object(s, &e, false); !e.done && !s->eof; cut_object(s, &e, false))
        PL_TRY(fill(s, d));
    *more = true;
    hand_out(s, e.at, 0, row);
    return PL_ERR_OK;
}

static pl_err array_error(const struct pl_split *s, const char *what, struct pl_diag *d) {
    pl_err err = pl_diag_at(d, PL_ERR_DATA_SYNTAX, s->path, s->line,
                            s->offset + s->begin - s->line_start + 1, "%s", what);
    pl_diag_hint(d, "the file begins with `[`, so it is read as one JSON array of rows");
    return err;
}

/* Something follows the array; another array may be one of many, one a line. */
static pl_err after_array(const struct pl_split *s, int c, struct pl_diag *d) {
    const struct pl_row_source lines = {s->path, PL_SOURCE_LINES};
    struct pl_text hint = {0};
    pl_err err = array_error(s, "text after the closing bracket of the array", d);
    if (c != '[') return err;
    pl_text_add(&hint, "an array on each line, as rows: ");
    pl_row_command(&lines, "for l in @ for r in l", "r", &hint);
    pl_file_hint(d, pl_text_str(&hint), s->path);
    pl_text_finish(&hint);
    return err;
}

/* Passes over the separators before an element; *more = false after the closing bracket. */
static pl_err before_element(struct pl_split *s, bool *more, struct pl_diag *d) {
    int c;
    PL_TRY(skip_space(s, &c, d));
    *more = c != ']';
    if (*more && !s->started) return PL_ERR_OK;
    if (c < 0) return array_error(s, "the array is not closed: the file looks truncated", d);
    if (c != ']' && c != ',') return array_error(s, "expected `,` or `]` after an element", d);
    advance(s, 1);
    PL_TRY(skip_space(s, &c, d));
    if (!*more && c >= 0) return after_array(s, c, d);
    if (*more && c == ']') return array_error(s, "trailing comma before `]`", d);
    return PL_ERR_OK;
}

static pl_err next_element(struct pl_split *s, struct pl_raw_row *row, bool *more,
                           struct pl_diag *d) {
    struct element e = {0};
    if (s->closed) {
        *more = false;
        return PL_ERR_OK;
    }
    PL_TRY(before_element(s, more, d));
    s->closed = !*more;
    s->started = true;
    if (!*more) return PL_ERR_OK;
    for (cut_element(s, &e); !e.done && !s->eof; cut_element(s, &e))
        PL_TRY(fill(s, d));
    hand_out(s, e.at, 0, row);
    return PL_ERR_OK;
}

pl_err pl_split_open(struct pl_split *s, const struct pl_content *content, const char *path,
                     bool csv, struct pl_diag *d) {
    int c = -1;
    *s = (struct pl_split){.content = *content, .path = path, .line = 1, .csv = csv};
    pl_err err = fill(s, d);
    if (err == PL_ERR_OK) err = pl_file_kind_check(path, s->buf, s->end, d);
    if (err == PL_ERR_OK && s->end >= 3 && memcmp(s->buf, "\xEF\xBB\xBF", 3) == 0) s->begin = 3;
    if (err == PL_ERR_OK && s->end == 0)
        err = pl_diag_at(d, PL_ERR_DATA_EMPTY, path, 0, 0, "the file is empty");
    if (err == PL_ERR_OK && !csv) err = skip_space(s, &c, d);
    if (err != PL_ERR_OK) {
        pl_split_finish(s);
        return err;
    }
    s->array = c == '[';
    if (s->array) advance(s, 1);
    if (c == '{') err = has_lines(s, &s->objects, d);
    if (err != PL_ERR_OK) pl_split_finish(s);
    return err;
}

void pl_split_finish(struct pl_split *s) {
    free(s->buf);
    *s = (struct pl_split){.path = NULL};
}

pl_err pl_split_next(struct pl_split *s, struct pl_raw_row *row, bool *more, struct pl_diag *d) {
    if (s->csv) return next_record(s, row, more, d);
    if (s->objects) return next_object(s, row, more, d);
    return s->array ? next_element(s, row, more, d) : next_line(s, row, more, d);
}
