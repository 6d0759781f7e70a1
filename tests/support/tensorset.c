/* tensorset.c - sets of safetensors side by side. */
#include "tests/support/tensorset.h"

#include "estimator/ops/half.h"

#include "tests/support/scratch.h"

#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_file(struct weights *w, const char *path) {
    struct pl_diag d = {0};
    ck_assert_int_lt(w->n, WEIGHTS_FILES);
    pl_err err = pl_st_open(&w->files[w->n], path, &d);
    ck_assert_msg(err == PL_ERR_OK, "%s: %s", path, d.message);
    w->n++;
}

static bool has_file(const struct weights *w, const char *path) {
    for (int i = 0; i < w->n; i++)
        if (strcmp(w->files[i].path, path) == 0) return true;
    return false;
}

static void add_shards(struct weights *w, const char *dir, const char *index_path) {
    json_error_t error;
    json_t *index = json_load_file(index_path, 0, &error), *file;
    ck_assert_msg(index != NULL, "%s: %s", index_path, error.text);
    const char *tensor;
    json_object_foreach(json_object_get(index, "weight_map"), tensor, file) {
        const char *path = in_dir(dir, json_string_value(file));
        if (!has_file(w, path)) add_file(w, path);
    }
    json_decref(index);
}

void weights_open(struct weights *w, const char *given, const char *stem) {
    char dir[SCRATCH_PATH]; /* `given` may be a text of the ring */
    ck_assert_int_lt(snprintf(dir, sizeof dir, "%s", given), SCRATCH_PATH);
    *w = (struct weights){0};
    const char *single = textf("%s/%s.safetensors", dir, stem);
    if (path_exists(single))
        add_file(w, single);
    else
        add_shards(w, dir, textf("%s/%s.safetensors.index.json", dir, stem));
}

void weights_close(struct weights *w) {
    for (int i = 0; i < w->n; i++)
        pl_st_close(&w->files[i]);
    *w = (struct weights){0};
}

struct weight weights_find(const struct weights *w, const char *name) {
    for (int i = 0; i < w->n; i++) {
        const struct pl_st_entry *e = pl_st_find(&w->files[i], name);
        if (e) return (struct weight){&w->files[i], e};
    }
    return (struct weight){0};
}

static void *read_bytes(const struct weight *t) {
    struct pl_diag d = {0};
    uint64_t bytes = t->entry->end - t->entry->begin;
    void *data = malloc(bytes + 1);
    ck_assert_ptr_nonnull(data);
    pl_err err = pl_st_read(t->file, t->entry, 0, data, bytes, &d);
    ck_assert_msg(err == PL_ERR_OK, "%s: %s", t->entry->name, d.message);
    return data;
}

float *weight_values(const struct weight *t, uint64_t *n) {
    const bool is_f16 = t->entry->dtype == PL_DTYPE_F16;
    ck_assert_msg(pl_dtype_is_float(t->entry->dtype), "%s is %s", t->entry->name,
                  t->entry->dtype_name);
    *n = (t->entry->end - t->entry->begin) / pl_dtype_bytes(t->entry->dtype);
    void *data = read_bytes(t);
    if (t->entry->dtype == PL_DTYPE_F32) return data;
    const uint16_t *narrow = data;
    float *wide = malloc((*n + 1) * sizeof *wide);
    ck_assert_ptr_nonnull(wide);
    for (uint64_t i = 0; i < *n; i++) {
        uint32_t bits = (uint32_t)narrow[i] << 16;
        memcpy(&wide[i], &bits, sizeof bits);
        if (is_f16) wide[i] = pl_half_widen(narrow[i]);
    }
    free(data);
    return wide;
}

static bool same_shape(const struct pl_st_entry *a, const struct pl_st_entry *b) {
    return a->rank == b->rank && a->rank <= PL_ST_DIMS &&
           memcmp(a->dims, b->dims, a->rank * sizeof *a->dims) == 0;
}

bool weight_same_bits(const struct weight *a, const struct weight *b) {
    if (strcmp(a->entry->dtype_name, b->entry->dtype_name) != 0) return false;
    if (!same_shape(a->entry, b->entry)) return false;
    void *x = read_bytes(a), *y = read_bytes(b);
    bool same = memcmp(x, y, a->entry->end - a->entry->begin) == 0;
    free(x);
    free(y);
    return same;
}

/* Half of the last place of y as fp16, by which rounding may have moved it. */
static double half_place(double y) {
    int exponent;
    (void)frexp(y, &exponent);
    return ldexp(1, (exponent < -13 ? -13 : exponent) - 12);
}

struct weight_gap weight_compare(const struct weight *a, const struct weight *b) {
    ck_assert_msg(same_shape(a->entry, b->entry), "%s: shapes differ", a->entry->name);
    uint64_t n, m;
    float *x = weight_values(a, &n), *y = weight_values(b, &m);
    struct weight_gap gap = {0};
    for (uint64_t i = 0; i < n; i++) {
        double diff = fabs((double)x[i] - (double)y[i]);
        if (b->entry->dtype == PL_DTYPE_F16) diff -= fmin(diff, half_place(y[i]));
        gap.l2 += diff * diff;
        if (!(diff <= gap.largest)) gap.largest = isfinite(diff) ? diff : INFINITY;
    }
    gap.l2 = isfinite(gap.l2) ? sqrt(gap.l2) : INFINITY;
    free(x);
    free(y);
    return gap;
}

static uint64_t count(const struct weights *w) {
    uint64_t n = 0;
    for (int i = 0; i < w->n; i++)
        n += w->files[i].n;
    return n;
}

struct weight_gap weights_compare(const struct weights *a, const struct weights *b) {
    struct weight_gap all = {0};
    ck_assert_uint_eq(count(a), count(b));
    for (int f = 0; f < a->n; f++)
        for (uint64_t i = 0; i < a->files[f].n; i++) {
            struct weight x = {&a->files[f], &a->files[f].entries[i]};
            struct weight y = weights_find(b, x.entry->name);
            ck_assert_msg(y.entry != NULL, "%s is in one set only", x.entry->name);
            struct weight_gap gap = weight_compare(&x, &y);
            all.l2 = hypot(all.l2, gap.l2);
            all.largest = fmax(all.largest, gap.largest);
        }
    return all;
}

void weights_assert_same(const char *dir_a, const char *dir_b, const char *stem) {
    struct weights a, b;
    weights_open(&a, dir_a, stem);
    weights_open(&b, dir_b, stem);
    ck_assert_uint_gt(count(&a), 0);
    ck_assert_uint_eq(count(&a), count(&b));
    for (int f = 0; f < a.n; f++)
        for (uint64_t i = 0; i < a.files[f].n; i++) {
            struct weight x = {&a.files[f], &a.files[f].entries[i]};
            struct weight y = weights_find(&b, x.entry->name);
            ck_assert_msg(y.entry != NULL, "%s is in %s only", x.entry->name, dir_a);
            ck_assert_msg(weight_same_bits(&x, &y), "%s differs between %s and %s", x.entry->name,
                          dir_a, dir_b);
        }
    weights_close(&a);
    weights_close(&b);
}
