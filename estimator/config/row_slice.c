#include "estimator/config/row_slice.h"

#include "estimator/base/checked.h"

#include <inttypes.h>
#include <string.h>

#define MOST_ROWS (INT64_MAX / 200) /* a percentage of so many rows can be computed */

static const char malformed[] = "is no slice of rows";
static const char malformed_hint[] =
    "a slice is [FROM:TO], of whole numbers or of whole percentages, and either may be left out";

/* Reads a number with an underscore between digits where Python takes one; false: there is none, or
 * it is too large. */
static bool read_number(const char **text, int64_t *out) {
    const char *s = *text;
    const bool negative = *s == '-';
    int64_t v = 0;
    s += negative;
    if (*s < '0' || *s > '9') return false;
    while (*s >= '0' && *s <= '9') {
        v = 10 * v + (*s++ - '0');
        if (v > MOST_ROWS) return false;
        if (*s == '_' && s[1] >= '0' && s[1] <= '9') s++;
    }
    *out = negative ? -v : v;
    *text = s;
    return true;
}

/* Reads the bound before `end`; *percent becomes true where it is a percentage. */
static bool read_bound(const char **text, char end, struct pl_row_bound *out, bool *percent) {
    *out = (struct pl_row_bound){0};
    *percent = false;
    if (**text != end) {
        if (!read_number(text, &out->at)) return false;
        out->given = true;
        *percent = **text == '%';
        *text += *percent;
    }
    return *(*text)++ == end;
}

/* True by the bounds alone (W2). */
static bool takes_nothing(const struct pl_row_slice *s) {
    if (s->percent && (s->from.at == 100 || s->to.at == -100)) return true;
    if (!s->to.given) return false;
    return !s->to.at || ((s->to.at < 0) == (s->from.at < 0) && s->to.at <= s->from.at);
}

const char *pl_row_slice_parse(const char *text, struct pl_row_slice *out, const char **hint) {
    struct pl_row_slice s = {0};
    bool percent_from, percent_to;
    *hint = malformed_hint;
    if (*text++ != '[' || !read_bound(&text, ':', &s.from, &percent_from) ||
        !read_bound(&text, ']', &s.to, &percent_to))
        return malformed;
    if (*text) {
        *hint = *text == '+'   ? "write an entry for each part"
                : *text == '(' ? "a percentage is rounded to the closest row: write the slice alone"
                               : malformed_hint;
        return malformed;
    }
    s.percent = percent_from || percent_to;
    if ((s.from.given && percent_from != s.percent) || (s.to.given && percent_to != s.percent))
        return "has a percentage and a number of rows";
    *hint = "the first row is 0, TO is the first row after the part, and -10 is the tenth to last";
    if (s.percent && (s.from.at > 100 || s.from.at < -100 || s.to.at > 100 || s.to.at < -100))
        return "has a percentage outside -100 to 100";
    if (takes_nothing(&s)) return "takes no row";
    *out = s;
    return NULL;
}

static void write_bound(const struct pl_row_slice *s, const struct pl_row_bound *b,
                        struct pl_text *out) {
    if (b->given) pl_text_addf(out, "%" PRId64 "%s", b->at, s->percent ? "%" : "");
}

void pl_row_slice_write(const struct pl_row_slice *s, struct pl_text *out) {
    if (!s->from.given && !s->to.given) return;
    pl_text_add(out, "[");
    write_bound(s, &s->from, out);
    pl_text_add(out, ":");
    write_bound(s, &s->to, out);
    pl_text_add(out, "]");
}

/* round(percent * rows / 100) of Python: half a row goes to the even one. */
static uint64_t closest(uint64_t percent, uint64_t rows) {
    const uint64_t hundredths = percent * rows, below = hundredths / 100, rest = hundredths % 100;
    return below + (rest > 50 || (rest == 50 && below % 2));
}

static uint64_t bound_of(const struct pl_row_slice *s, const struct pl_row_bound *b,
                         uint64_t otherwise, uint64_t rows) {
    if (!b->given) return otherwise;
    const uint64_t size = (uint64_t)(b->at < 0 ? -b->at : b->at);
    const uint64_t at = pl_u64_min(s->percent ? closest(size, rows) : size, rows);
    return b->at < 0 ? rows - at : at;
}

struct pl_row_range pl_row_slice_of(const struct pl_row_slice *s, uint64_t rows) {
    const uint64_t n = pl_u64_min(rows, MOST_ROWS);
    const uint64_t from = bound_of(s, &s->from, 0, n);
    return (struct pl_row_range){from, pl_u64_max(from, bound_of(s, &s->to, n, n))};
}

bool pl_row_slice_is_first(const struct pl_row_slice *s, uint64_t *most) {
    *most = s->to.given ? (uint64_t)s->to.at : UINT64_MAX;
    return !s->percent && !s->from.at && s->to.at >= 0;
}
