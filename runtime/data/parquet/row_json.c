#include "runtime/data/parquet/row_json.h"

#include "estimator/base/json_write.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct pl_parquet_node *node_of(const struct pl_parquet_writer *w, uint32_t i) {
    return &w->tree->nodes[i];
}

static const struct pl_parquet_leaf *first_leaf(const struct pl_parquet_writer *w, uint32_t i) {
    return &w->leaves->leaf[node_of(w, i)->leaf];
}

static bool is_present(const struct pl_parquet_writer *w, uint32_t i) {
    return first_leaf(w, i)->definition >= node_of(w, i)->definition;
}

/* Passes over the one entry that each leaf below a node has where the node is absent. */
static pl_err pass_over(struct pl_parquet_writer *w, uint32_t i, struct pl_diag *d) {
    const struct pl_parquet_node *node = node_of(w, i);
    for (uint32_t k = 0; k < node->leaves; k++)
        PL_TRY(pl_parquet_leaf_next(w->leaves, node->leaf + k, d));
    return PL_ERR_OK;
}

/* --- leaves ----------------------------------------------------------------------------------- */
/* The shortest digits that are this number again, with a point: JSON readers tell 1.0 from 1. JSON
 * has no number that is not finite. */
static void write_real(struct pl_text *out, double value) {
    char digits[32];
    if (!isfinite(value)) {
        pl_text_add(out, "null");
        return;
    }
    for (int n = 15; n <= 17; n++) {
        snprintf(digits, sizeof digits, "%.*g", n, value);
        if (strtod(digits, NULL) == value) break;
    }
    pl_text_add(out, digits);
    if (!strpbrk(digits, ".e")) pl_text_add(out, ".0");
}

static void write_integer(struct pl_text *out, bool negative, uint64_t value) {
    char digits[24];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    if (negative) digits[--at] = '-';
    pl_text_addn(out, digits + at, sizeof digits - at);
}

static void write_signed(struct pl_text *out, int64_t value) {
    write_integer(out, value < 0, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

/* The value at `from`, which need not be aligned. */
#define AS(type, from) (*(const type *)memcpy(&(type){0}, from, sizeof(type)))

static pl_err write_text(struct pl_parquet_writer *w, uint32_t leaf, const char *value,
                         struct pl_diag *d) {
    const struct pl_carquet_bytes text = AS(struct pl_carquet_bytes, value);
    if (text.n < 0 || (text.n && !text.data))
        return pl_parquet_damaged(w->leaves, leaf, "the length of a text is negative", d);
    pl_text_add(w->out, "\"");
    if (text.n) pl_json_write_escaped(w->out, text.data, (size_t)text.n);
    pl_text_add(w->out, "\"");
    return PL_ERR_OK;
}

static pl_err write_leaf(struct pl_parquet_writer *w, uint32_t leaf, struct pl_diag *d) {
    const struct pl_parquet_leaf *l = &w->leaves->leaf[leaf];
    switch (l->node->value) {
    case PL_PARQUET_BOOLEAN:
        pl_text_add(w->out, *l->value ? "true" : "false");
        break;
    case PL_PARQUET_INT32:
        write_signed(w->out, AS(int32_t, l->value));
        break;
    case PL_PARQUET_UINT32:
        write_integer(w->out, false, AS(uint32_t, l->value));
        break;
    case PL_PARQUET_INT64:
        write_signed(w->out, AS(int64_t, l->value));
        break;
    case PL_PARQUET_UINT64:
        write_integer(w->out, false, AS(uint64_t, l->value));
        break;
    case PL_PARQUET_FLOAT:
        write_real(w->out, AS(float, l->value));
        break;
    case PL_PARQUET_DOUBLE:
        write_real(w->out, AS(double, l->value));
        break;
    case PL_PARQUET_TEXT:
        PL_TRY(write_text(w, leaf, l->value, d));
        break;
    case PL_PARQUET_OTHER:
        pl_text_add(w->out, "true");
        break;
    }
    return pl_parquet_leaf_next(w->leaves, leaf, d);
}

/* --- nodes ------------------------------------------------------------------------------------ */
static pl_err write_value(struct pl_parquet_writer *w, uint32_t i, struct pl_diag *d);

/* A value for which JSON needs a place, absent or not. */
static pl_err write_place(struct pl_parquet_writer *w, uint32_t i, struct pl_diag *d) {
    if (is_present(w, i)) return write_value(w, i, d);
    pl_text_add(w->out, node_of(w, i)->repeated ? "[]" : "null");
    return pass_over(w, i, d);
}

static void write_name(struct pl_parquet_writer *w, uint32_t i, bool *any) {
    const char *name = node_of(w, i)->name;
    pl_text_add(w->out, *any ? ",\"" : "\"");
    pl_json_write_escaped(w->out, name, strlen(name));
    pl_text_add(w->out, "\":");
    *any = true;
}

pl_err pl_parquet_write_member(struct pl_parquet_writer *w, uint32_t i, bool *any,
                               struct pl_diag *d) {
    if (!is_present(w, i) && !node_of(w, i)->repeated) return pass_over(w, i, d);
    write_name(w, i, any);
    return write_place(w, i, d);
}

void pl_parquet_write_unread(struct pl_parquet_writer *w, uint32_t i, bool *any) {
    write_name(w, i, any);
    pl_text_add(w->out, "true");
}

static pl_err write_struct(struct pl_parquet_writer *w, uint32_t i, struct pl_diag *d) {
    bool any = false;
    pl_text_add(w->out, "{");
    for (uint32_t child = i + 1; child < node_of(w, i)->end; child = node_of(w, child)->end)
        PL_TRY(pl_parquet_write_member(w, child, &any, d));
    pl_text_add(w->out, "}");
    return PL_ERR_OK;
}

static pl_err write_pair(struct pl_parquet_writer *w, uint32_t i, struct pl_diag *d) {
    pl_text_add(w->out, "[");
    PL_TRY(write_place(w, i + 1, d));
    pl_text_add(w->out, ",");
    PL_TRY(write_place(w, node_of(w, i + 1)->end, d));
    pl_text_add(w->out, "]");
    return PL_ERR_OK;
}

static pl_err write_list(struct pl_parquet_writer *w, uint32_t i, bool pairs, struct pl_diag *d);

/* One instance of a node, which is present. */
static pl_err write_one(struct pl_parquet_writer *w, uint32_t i, struct pl_diag *d) {
    const struct pl_parquet_node *node = node_of(w, i);
    switch (node->shape) {
    case PL_PARQUET_LEAF:
        return write_leaf(w, node->leaf, d);
    case PL_PARQUET_LIST:
    case PL_PARQUET_PAIRS:
        return is_present(w, i + 1) ? write_list(w, i + 1, node->shape == PL_PARQUET_PAIRS, d)
                                    : write_place(w, i + 1, d);
    case PL_PARQUET_HOLDER:
        return write_place(w, i + 1, d);
    case PL_PARQUET_STRUCT:
        break;
    }
    return write_struct(w, i, d);
}

/* All instances of a repeated node, of which there is one. */
static pl_err write_list(struct pl_parquet_writer *w, uint32_t i, bool pairs, struct pl_diag *d) {
    const char *before = "[";
    do {
        pl_text_add(w->out, before);
        PL_TRY(pairs ? write_pair(w, i, d) : write_one(w, i, d));
        before = ",";
    } while (first_leaf(w, i)->repetition == node_of(w, i)->repetition);
    pl_text_add(w->out, "]");
    return PL_ERR_OK;
}

static pl_err write_value(struct pl_parquet_writer *w, uint32_t i, struct pl_diag *d) {
    return node_of(w, i)->repeated ? write_list(w, i, false, d) : write_one(w, i, d);
}
