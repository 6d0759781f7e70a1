/* report.c - typed rows: written one by one, found by name, printed as JSON. */
#include "estimator/base/report.h"

#include "estimator/base/json_tree.h"

#include <assert.h>
#include <string.h>

static struct pl_row *next_row(struct pl_report *r, const char *name, enum pl_row_type type) {
    assert(r->n_rows < PL_REPORT_ROWS);
    struct pl_row *row = &r->rows[r->n_rows++];
    *row = (struct pl_row){.object = r->object, .name = name, .type = type};
    return row;
}

void pl_report_open(struct pl_report *r, const char *object) {
    r->object = object;
}

void pl_report_null(struct pl_report *r, const char *name) {
    next_row(r, name, PL_ROW_NULL);
}

void pl_report_count(struct pl_report *r, const char *name, uint64_t v) {
    next_row(r, name, PL_ROW_COUNT)->is.count = v;
}

void pl_report_real(struct pl_report *r, const char *name, double v) {
    next_row(r, name, PL_ROW_REAL)->is.real = v;
}

void pl_report_word(struct pl_report *r, const char *name, const char *v) {
    next_row(r, name, v ? PL_ROW_WORD : PL_ROW_NULL)->is.word = v;
}

void pl_report_truth(struct pl_report *r, const char *name, bool v) {
    next_row(r, name, PL_ROW_TRUTH)->is.truth = v;
}

void pl_report_tree(struct pl_report *r, const char *name, json_t *v) {
    next_row(r, name, PL_ROW_TREE)->is.tree = v;
}

void pl_report_known(struct pl_report *r, bool known) {
    if (!known) r->rows[r->n_rows - 1].type = PL_ROW_NULL;
}

static bool is_same(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

const struct pl_row *pl_report_find(const struct pl_report *r, const char *object,
                                    const char *name) {
    for (unsigned i = 0; i < r->n_rows; i++)
        if (is_same(r->rows[i].object, object) && strcmp(r->rows[i].name, name) == 0)
            return &r->rows[i];
    return NULL;
}

static json_t *row_json(const struct pl_row *row) {
    switch (row->type) {
    case PL_ROW_COUNT:
        return json_integer((json_int_t)row->is.count);
    case PL_ROW_REAL:
        return json_real(row->is.real);
    case PL_ROW_WORD:
        return json_string(row->is.word);
    case PL_ROW_TRUTH:
        return json_boolean(row->is.truth);
    case PL_ROW_TREE:
        return json_incref(row->is.tree);
    case PL_ROW_NULL:
        break;
    }
    return json_null();
}

json_t *pl_report_json(const struct pl_report *r) {
    json_t *answer = json_object();
    for (unsigned i = 0; i < r->n_rows; i++) {
        const struct pl_row *row = &r->rows[i];
        json_t *inner = row->object ? json_incref(json_object_get(answer, row->object)) : NULL;
        if (!row->object) {
            pl_json_set(&answer, row->name, row_json(row));
            continue;
        }
        if (!inner) inner = json_object();
        pl_json_set(&inner, row->name, row_json(row));
        pl_json_set(&answer, row->object, inner);
    }
    return answer;
}

void pl_report_finish(struct pl_report *r) {
    for (unsigned i = 0; i < r->n_rows; i++)
        if (r->rows[i].type == PL_ROW_TREE) json_decref(r->rows[i].is.tree);
    *r = (struct pl_report){0};
}

json_t *pl_report_end(struct pl_report *r) {
    json_t *answer = pl_report_json(r);
    pl_report_finish(r);
    return answer;
}
