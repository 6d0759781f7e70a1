/* rows_tokens.c - rows that bring their tokens, and the columns that say which of them count.
 *
 * The columns are those of transformers and TRL. Nothing is padded here, so what `attention_mask`
 * hides is no part of the sample; a mask over tokens (`assistant_masks`, `completion_mask`,
 * `loss_mask`) leaves those labels that it has a 1 for; and what makes several samples of one row
 * is refused, since attention and positions would run across them. */
#include "runtime/data/format_rows.h"

#include <string.h>

#define HIDDEN (-1) /* in place of an id that the attention mask hides */

static const char hint_packed[] = "the row packs several samples: give each a row of its own, and "
                                  "set `packing: true`";

/* An integer as written; *v saturates far outside any vocabulary. False: a problem was recorded. */
static bool read_integer(struct pl_row_parser *p, const char *what, uint64_t index, int64_t *v) {
    const char *digits;
    char shown[PL_SHOWN];
    size_t n, i = 0;
    enum pl_scan_kind kind = pl_scan_peek(&p->scan);
    size_t start = p->scan.at;
    if (kind == PL_SCAN_NONE) return pl_scan_skip(&p->scan);
    if (kind != PL_SCAN_NUMBER)
        return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, start,
                            kind == PL_SCAN_ARRAY ? "one row per line: this looks like a batch"
                                                  : NULL,
                            "%s %llu is %s, expected an integer", what, (unsigned long long)index,
                            pl_scan_kind_name(kind));
    if (!pl_scan_number(&p->scan, &digits, &n)) return false;
    bool negative = digits[0] == '-';
    *v = 0;
    for (i = negative; i < n && digits[i] >= '0' && digits[i] <= '9'; i++)
        if (*v < INT64_MAX / 16) *v = *v * 10 + (digits[i] - '0');
    if (i < n)
        return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, start, NULL,
                            "%s %llu is %s, expected an integer without point or exponent", what,
                            (unsigned long long)index, pl_scan_show(digits, n, shown));
    if (negative) *v = -*v;
    return true;
}

static bool outside(struct pl_row_parser *p, size_t where, const char *what, uint64_t index,
                    int64_t v, const char *or_masked) {
    return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, where,
                        "the rows must come from this model's own tokenizer",
                        "%s %llu is %s%lld, expected an id from 0 to %llu%s", what,
                        (unsigned long long)index, v >= INT64_MAX / 16 ? "above " : "",
                        (long long)v, (unsigned long long)p->vocab - 1, or_masked);
}

bool pl_tokens_read_ids(struct pl_row_parser *p, int k) {
    int64_t v = 0;
    (void)k;
    if (!pl_scan_enter_array(&p->scan)) return false;
    for (p->out->n = 0; pl_scan_next_element(&p->scan); p->out->n++) {
        pl_scan_peek(&p->scan);
        size_t where = p->scan.at;
        if (!read_integer(p, "id", p->out->n, &v)) return false;
        if (v < 0 || (uint64_t)v >= p->vocab) return outside(p, where, "id", p->out->n, v, "");
        if (!pl_sample_reserve(p->out, p->out->n + 1)) return pl_row_no_memory(p);
        p->out->ids[p->out->n] = (int32_t)v;
    }
    return p->scan.err == PL_ERR_OK;
}

bool pl_tokens_read_labels(struct pl_row_parser *p, int k) {
    int64_t v = 0;
    if (pl_scan_peek(&p->scan) == PL_SCAN_NULL) {
        p->seen[k] = false;
        return pl_scan_skip(&p->scan);
    }
    if (!pl_scan_enter_array(&p->scan)) return false;
    for (p->n_labels = 0; pl_scan_next_element(&p->scan); p->n_labels++) {
        pl_scan_peek(&p->scan);
        size_t where = p->scan.at;
        if (!read_integer(p, "label", p->n_labels, &v)) return false;
        if (v != PL_LABEL_MASKED && (v < 0 || (uint64_t)v >= p->vocab))
            return outside(p, where, "label", p->n_labels, v, ", or -100");
        if (!pl_sample_reserve(p->out, p->n_labels + 1)) return pl_row_no_memory(p);
        p->out->labels[p->n_labels] = (int32_t)v;
    }
    return p->scan.err == PL_ERR_OK;
}

static bool wrong_count(struct pl_row_parser *p, int k, const char *what, uint64_t n) {
    return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, p->at[k], NULL, "%llu %s for %llu input_ids",
                        (unsigned long long)n, what, (unsigned long long)p->out->n);
}

/* Enters the array of key k; false: it says nothing, or a problem was recorded. */
static bool enter(struct pl_row_parser *p, int k) {
    if (!p->seen[k]) return false;
    pl_row_go_to(p, k);
    return pl_scan_peek(&p->scan) == PL_SCAN_ARRAY && pl_scan_enter_array(&p->scan);
}

/* --- masks ------------------------------------------------------------------------------------ */
static void hide(struct pl_sample *s, uint64_t i) {
    s->ids[i] = HIDDEN;
}
static void leave_out(struct pl_sample *s, uint64_t i) {
    s->labels[i] = PL_LABEL_MASKED;
}

static const struct {
    int key;
    const char *name, *values, *hint;
    void (*at_zero)(struct pl_sample *s, uint64_t i);
} masks[] = {
    {PL_TOKENS_ASSISTANT, "assistant_masks", "assistant_masks values", NULL, leave_out},
    {PL_TOKENS_COMPLETION, "completion_mask", "completion_mask values", NULL, leave_out},
    {PL_TOKENS_LOSS, "loss_mask", "loss_mask values", "tokens have no weights: 0 or 1", leave_out},
    {PL_TOKENS_ATTENTION, "attention_mask", "attention_mask values", hint_packed, hide},
};

static bool apply_mask(struct pl_row_parser *p, size_t m) {
    char shown[PL_SHOWN];
    uint64_t n = 0;
    if (!enter(p, masks[m].key)) return p->scan.err == PL_ERR_OK;
    for (; pl_scan_next_element(&p->scan); n++) {
        pl_scan_peek(&p->scan);
        size_t where = p->scan.at;
        int flag = pl_scan_flag(&p->scan);
        if (p->scan.err != PL_ERR_OK) return false;
        if (flag < 0)
            return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, where, masks[m].hint,
                                "%s %llu is %s, expected 0 or 1", masks[m].name,
                                (unsigned long long)n,
                                pl_scan_show(p->scan.text + where, p->scan.at - where, shown));
        if (!flag && n < p->out->n) masks[m].at_zero(p->out, n);
    }
    return n == p->out->n || wrong_count(p, masks[m].key, masks[m].values, n);
}

/* --- positions -------------------------------------------------------------------------------- */
/* Checks that positions are those of a single sample: 0, 1, 2, ... over all tokens, or over those
 * that are not hidden. */
static bool check_positions(struct pl_row_parser *p) {
    const struct pl_sample *s = p->out;
    int64_t v = 0, first = -1;
    uint64_t n = 0, kept = 0;
    if (!enter(p, PL_TOKENS_POSITIONS)) return p->scan.err == PL_ERR_OK;
    for (; pl_scan_next_element(&p->scan); n++) {
        pl_scan_peek(&p->scan);
        size_t where = p->scan.at;
        if (!read_integer(p, "position_ids", n, &v)) return false;
        if (n >= s->n || s->ids[n] == HIDDEN) continue;
        if (first < 0) first = v == (int64_t)n ? v : 0;
        if (v != first + (int64_t)kept && kept && v == 0)
            return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, where, hint_packed,
                                "position_ids begin anew at token %llu", (unsigned long long)n);
        if (v != first + (int64_t)kept)
            return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, where, "leave the column out",
                                "position_ids %llu is %lld, expected %lld", (unsigned long long)n,
                                (long long)v, (long long)(first + (int64_t)kept));
        kept++;
    }
    return n == s->n || wrong_count(p, PL_TOKENS_POSITIONS, "position_ids values", n);
}

static bool check_lengths(struct pl_row_parser *p) {
    uint64_t n = 0;
    if (!enter(p, PL_TOKENS_LENGTHS)) return p->scan.err == PL_ERR_OK;
    for (; pl_scan_next_element(&p->scan); n++)
        if (!pl_scan_skip(&p->scan)) return false;
    return n <= 1 || pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, p->at[PL_TOKENS_LENGTHS],
                                  hint_packed, "seq_lengths: the row packs several samples");
}

/* --- all of it -------------------------------------------------------------------------------- */
/* Padding stands before the sample or after it: what is left moves to the front. */
static bool drop_hidden(struct pl_row_parser *p) {
    struct pl_sample *s = p->out;
    uint64_t begin = 0, end = s->n;
    while (begin < end && s->ids[begin] == HIDDEN)
        begin++;
    while (end > begin && s->ids[end - 1] == HIDDEN)
        end--;
    for (uint64_t i = begin; i < end; i++)
        if (s->ids[i] == HIDDEN)
            return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, p->at[PL_TOKENS_ATTENTION],
                                "leave hidden tokens out of the row",
                                "attention_mask %llu hides a token between others",
                                (unsigned long long)i);
    s->n = end - begin;
    if (!begin || !s->n) return true;
    memmove(s->ids, s->ids + begin, (size_t)s->n * sizeof *s->ids);
    memmove(s->labels, s->labels + begin, (size_t)s->n * sizeof *s->labels);
    return true;
}

bool pl_tokens_complete(struct pl_row_parser *p) {
    struct pl_sample *s = p->out;
    if (!p->seen[PL_TOKENS_LABELS]) {
        if (s->n) memcpy(s->labels, s->ids, (size_t)s->n * sizeof *s->ids);
    } else if (p->n_labels != s->n) {
        return wrong_count(p, PL_TOKENS_LABELS, "labels", p->n_labels);
    }
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++)
        if (!apply_mask(p, m)) return false;
    return check_positions(p) && check_lengths(p) && drop_hidden(p);
}
