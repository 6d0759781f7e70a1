/* report_rows.c - rows are written one by one, found by name, and printed as JSON. */
#include "estimator/base/report_rows.h"

#include "estimator/base/alloc.h"
#include "estimator/base/json_tree.h"

#include <stdarg.h>
#include <string.h>

/* --- writing --------------------------------------------------------------------------------- */

static void release(struct pl_row *row) {
    if (row->type == PL_ROW_TEXT) free(row->is.text);
    if (row->type == PL_ROW_TREE) json_decref(row->is.tree);
}

static struct pl_row *next_row(struct pl_report *r, const char *name, enum pl_row_type type) {
    struct pl_row *grown = r->failed ? NULL : pl_grow(r->rows, r->n_rows, sizeof *grown);
    struct pl_row *row = &r->lost;
    if (grown) {
        r->rows = grown;
        row = &grown[r->n_rows++];
    } else {
        r->failed = true;
        release(row);
    }
    *row = (struct pl_row){.object = r->object, .name = name, .type = type, .line = r->line};
    r->line = false;
    return row;
}

void pl_report_open(struct pl_report *r, const char *object) {
    r->object = object;
}

void pl_report_next(struct pl_report *r) {
    r->line = true;
}

void pl_report_count(struct pl_report *r, const char *name, uint64_t v) {
    pl_report_integer(r, name, (int64_t)v);
}

void pl_report_integer(struct pl_report *r, const char *name, int64_t v) {
    next_row(r, name, PL_ROW_COUNT)->is.count = v;
}

void pl_report_bytes(struct pl_report *r, const char *name, uint64_t v) {
    next_row(r, name, PL_ROW_BYTES)->is.count = (int64_t)v;
}

void pl_report_real(struct pl_report *r, const char *name, double v) {
    pl_report_figure(r, name, v, 2);
}

void pl_report_figure(struct pl_report *r, const char *name, double v, int decimals) {
    struct pl_row *row = next_row(r, name, PL_ROW_REAL);
    row->is.real = v;
    row->decimals = decimals;
}

void pl_report_share(struct pl_report *r, const char *name, double v) {
    next_row(r, name, PL_ROW_SHARE)->is.real = v;
}

void pl_report_word(struct pl_report *r, const char *name, const char *v) {
    next_row(r, name, v ? PL_ROW_WORD : PL_ROW_NULL)->is.word = v;
}

void pl_report_truth(struct pl_report *r, const char *name, bool v) {
    next_row(r, name, PL_ROW_TRUTH)->is.truth = v;
}

void pl_report_text(struct pl_report *r, const char *name, struct pl_text *v) {
    pl_text_add(v, ""); /* there is a string, of an empty text as well */
    r->failed |= v->failed;
    next_row(r, name, PL_ROW_TEXT)->is.text = v->data;
    *v = (struct pl_text){0};
}

void pl_report_format(struct pl_report *r, const char *name, const char *fmt, ...) {
    va_list ap;
    char *text;
    va_start(ap, fmt);
    r->failed |= pl_vasprintf(&text, fmt, ap) < 0;
    va_end(ap);
    next_row(r, name, PL_ROW_TEXT)->is.text = text;
}

void pl_report_tree(struct pl_report *r, const char *name, json_t *v) {
    r->failed |= !v;
    next_row(r, name, PL_ROW_TREE)->is.tree = v;
}

static struct pl_row *last_row(struct pl_report *r) {
    return r->failed ? &r->lost : &r->rows[r->n_rows - 1];
}

void pl_report_known(struct pl_report *r, bool known) {
    struct pl_row *row = last_row(r);
    if (known) return;
    release(row);
    row->type = PL_ROW_NULL;
}

void pl_report_for_people(struct pl_report *r) {
    last_row(r)->for_people = true;
}

void pl_report_finish(struct pl_report *r) {
    for (uint32_t i = 0; i < r->n_rows; i++)
        release(&r->rows[i]);
    release(&r->lost);
    free(r->rows);
    *r = (struct pl_report){0};
}

/* --- reading --------------------------------------------------------------------------------- */

const struct pl_row *pl_report_find(const struct pl_report *r, const char *object,
                                    const char *name) {
    for (uint32_t i = 0; i < r->n_rows; i++) {
        const char *in = r->rows[i].object;
        if (object && in ? strcmp(in, object) != 0 : in != object) continue;
        if (strcmp(r->rows[i].name, name) == 0) return &r->rows[i];
    }
    return NULL;
}

/* --- JSON ------------------------------------------------------------------------------------ */

static json_t *row_json(const struct pl_row *row) {
    switch (row->type) {
    case PL_ROW_COUNT:
    case PL_ROW_BYTES:
        return json_integer((json_int_t)row->is.count);
    case PL_ROW_REAL:
    case PL_ROW_SHARE:
        return json_real(row->is.real);
    case PL_ROW_WORD:
        return json_string(row->is.word);
    case PL_ROW_TRUTH:
        return json_boolean(row->is.truth);
    case PL_ROW_TEXT:
        return json_string(row->is.text);
    case PL_ROW_TREE:
        return json_incref(row->is.tree);
    case PL_ROW_NULL:
        break;
    }
    return json_null();
}

static void set_row(json_t **object, const struct pl_row *row) {
    json_t *inner;
    if (row->for_people) return;
    if (!row->object) {
        pl_json_set(object, row->name, row_json(row));
        return;
    }
    inner = json_incref(json_object_get(*object, row->object));
    if (!inner) inner = json_object();
    pl_json_set(&inner, row->name, row_json(row));
    pl_json_set(object, row->object, inner);
}

json_t *pl_report_json(const struct pl_report *r) {
    json_t *answer = r->failed ? NULL : json_object();
    for (uint32_t i = 0; i < r->n_rows && answer; i++)
        set_row(&answer, &r->rows[i]);
    return answer;
}

json_t *pl_report_end(struct pl_report *r) {
    json_t *answer = pl_report_json(r);
    pl_report_finish(r);
    return answer;
}

json_t *pl_report_end_list(struct pl_report *r) {
    json_t *list = r->failed ? NULL : json_array();
    for (uint32_t i = 0; i < r->n_rows && list;) {
        json_t *line = json_object();
        do
            set_row(&line, &r->rows[i++]);
        while (i < r->n_rows && !r->rows[i].line);
        pl_json_append(&list, line);
    }
    pl_report_finish(r);
    return list;
}
