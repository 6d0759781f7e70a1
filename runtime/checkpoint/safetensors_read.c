/* safetensors_read.c - headers are hostile until every sum in them was checked. */
#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/base/json_tree.h"
#include "estimator/base/open_file.h"
#include "estimator/base/stand_in.h"
#include "runtime/checkpoint/json_io.h"
#include "runtime/checkpoint/safetensors.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Every element type of the format: X(name, bits, ours). */
#define ST_TYPE_MAP(X)                                                                             \
    X("F32", 32, PL_DTYPE_F32)                                                                     \
    X("BF16", 16, PL_DTYPE_BF16)                                                                   \
    X("F16", 16, PL_DTYPE_F16)                                                                     \
    X("F64", 64, PL_DTYPE_F64)                                                                     \
    X("I32", 32, PL_DTYPE_I32)                                                                     \
    X("U64", 64, PL_DTYPE_U64)                                                                     \
    X("U8", 8, PL_DTYPE_U8)                                                                        \
    X("BOOL", 8, PL_DTYPE_COUNT)                                                                   \
    X("I8", 8, PL_DTYPE_COUNT)                                                                     \
    X("I16", 16, PL_DTYPE_COUNT)                                                                   \
    X("U16", 16, PL_DTYPE_COUNT)                                                                   \
    X("U32", 32, PL_DTYPE_COUNT)                                                                   \
    X("I64", 64, PL_DTYPE_COUNT)                                                                   \
    X("C64", 64, PL_DTYPE_COUNT)                                                                   \
    X("F8_E4M3", 8, PL_DTYPE_COUNT)                                                                \
    X("F8_E5M2", 8, PL_DTYPE_COUNT)                                                                \
    X("F8_E8M0", 8, PL_DTYPE_COUNT)                                                                \
    X("F8_E4M3FNUZ", 8, PL_DTYPE_COUNT)                                                            \
    X("F8_E5M2FNUZ", 8, PL_DTYPE_COUNT)                                                            \
    X("F6_E2M3", 6, PL_DTYPE_COUNT)                                                                \
    X("F6_E3M2", 6, PL_DTYPE_COUNT)                                                                \
    X("F4", 4, PL_DTYPE_COUNT)

static const struct st_type {
    const char *name;
    uint64_t bits;
    enum pl_dtype dtype;
} st_types[] = {
#define X(name, bits, dtype) {name, bits, dtype},
    ST_TYPE_MAP(X)
#undef X
};

static const struct st_type *find_type(const char *name) {
    for (size_t i = 0; i < sizeof st_types / sizeof *st_types; i++)
        if (strcmp(st_types[i].name, name) == 0) return &st_types[i];
    return NULL;
}

PL_PRINTF(3, 4)
static pl_err format_error(const struct pl_st_file *f, struct pl_diag *d, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, f->path, 0, 0, "%s: %s", f->path, text);
}

static pl_err read_at(const struct pl_st_file *f, uint64_t offset, void *dst, uint64_t bytes,
                      struct pl_diag *d) {
    char *p = dst;
    while (bytes > 0) {
        ssize_t n = pread(f->fd, p, (size_t)pl_u64_min(bytes, 1u << 30), (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return pl_diag_at(d, pl_err_of_errno(PL_ERR_CHECKPOINT_FILE), f->path, 0, 0,
                              "cannot read %s: %s", f->path, strerror(errno));
        if (n == 0)
            return format_error(f, d, "the file ends at byte %llu", (unsigned long long)offset);
        p += n;
        offset += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return PL_ERR_OK;
}

#define CUT_SHORT "a download or a copy was cut short: get the file again"

/* Says what the file is instead where its first bytes tell; else that there is no such header. */
static pl_err not_a_header(const struct pl_st_file *f, uint64_t file_bytes, const char *why,
                           struct pl_diag *d) {
    char bytes[PL_STAND_IN_BYTES];
    const uint64_t n = pl_u64_min(file_bytes, sizeof bytes);
    PL_TRY(read_at(f, 0, bytes, n, d));
    const struct pl_stand_in *is = pl_stand_in_find(bytes, (size_t)n);
    pl_err err = format_error(f, d, "%s", is ? is->what : n ? why : "the file is empty");
    if (is || !n) pl_diag_hint(d, "%s", is ? is->hint : CUT_SHORT);
    return err;
}

pl_err pl_st_read(const struct pl_st_file *f, const struct pl_st_entry *e, uint64_t offset,
                  void *dst, uint64_t bytes, struct pl_diag *d) {
    if (f->format) return f->format->read(f, e, offset, dst, bytes, d);
    return read_at(f, f->data_offset + e->begin + offset, dst, bytes, d);
}

char *pl_st_shape_text(uint32_t rank, const uint64_t *dims, char buf[PL_ST_SHAPE_TEXT]) {
    int len = snprintf(buf, PL_ST_SHAPE_TEXT, "[");
    for (uint32_t i = 0; i < rank && i < PL_ST_DIMS; i++)
        len += snprintf(buf + len, (size_t)(PL_ST_SHAPE_TEXT - len), "%s%llu", i ? ", " : "",
                        (unsigned long long)dims[i]);
    snprintf(buf + len, (size_t)(PL_ST_SHAPE_TEXT - len), rank > PL_ST_DIMS ? ", ...]" : "]");
    return buf;
}

/* A non-negative integer; jansson has already refused what does not fit 63 bits. */
static bool json_size(const json_t *v, uint64_t *out) {
    if (!json_is_integer(v) || json_integer_value(v) < 0) return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

static pl_err parse_shape(const struct pl_st_file *f, const json_t *shape, struct pl_st_entry *e,
                          uint64_t *elements, struct pl_diag *d) {
    if (!json_is_array(shape)) return format_error(f, d, "tensor `%s` has no shape", e->name);
    if (json_array_size(shape) > UINT32_MAX)
        return format_error(f, d, "tensor `%s` has too many dimensions", e->name);
    bool empty = false, fits = true;
    *elements = 1;
    e->rank = (uint32_t)json_array_size(shape);
    for (uint32_t i = 0; i < e->rank; i++) {
        uint64_t dim;
        if (!json_size(json_array_get(shape, i), &dim))
            return format_error(f, d, "tensor `%s`: dimension %u is not a size", e->name, i);
        if (i < PL_ST_DIMS) e->dims[i] = dim;
        empty = empty || dim == 0;
        fits = fits && pl_u64_mul(*elements, dim, elements);
    }
    if (empty) *elements = 0;
    if (!empty && !fits)
        return format_error(f, d, "tensor `%s`: its shape overflows 64 bits", e->name);
    return PL_ERR_OK;
}

static pl_err parse_offsets(const struct pl_st_file *f, const json_t *offsets,
                            struct pl_st_entry *e, struct pl_diag *d) {
    if (json_array_size(offsets) != 2 || !json_size(json_array_get(offsets, 0), &e->begin) ||
        !json_size(json_array_get(offsets, 1), &e->end))
        return format_error(f, d, "tensor `%s`: data_offsets is not two sizes", e->name);
    if (e->begin > e->end || e->end > INT64_MAX - f->data_offset)
        return format_error(f, d, "tensor `%s` lies at bytes %llu to %llu", e->name,
                            (unsigned long long)e->begin, (unsigned long long)e->end);
    return PL_ERR_OK;
}

static pl_err check_extent(const struct pl_st_file *f, const struct pl_st_entry *e,
                           uint64_t elements, struct pl_diag *d) {
    const struct st_type *type = find_type(e->dtype_name);
    uint64_t bits, extent;
    if (!type) return PL_ERR_OK;
    if (pl_u64_mul(elements, type->bits, &bits) && pl_u64_mul(e->end - e->begin, 8, &extent) &&
        bits == extent)
        return PL_ERR_OK;
    char shape[PL_ST_SHAPE_TEXT];
    return format_error(f, d, "tensor `%s`: shape %s of %s does not fill its %llu bytes", e->name,
                        pl_st_shape_text(e->rank, e->dims, shape), e->dtype_name,
                        (unsigned long long)(e->end - e->begin));
}

static pl_err parse_entry(const struct pl_st_file *f, const char *name, const json_t *v,
                          struct pl_st_entry *e, struct pl_diag *d) {
    uint64_t elements = 0;
    const char *dtype = json_string_value(json_object_get(v, "dtype"));
    e->name = pl_strdup(name);
    if (!e->name) return pl_host_oom(d, "the header of a safetensors file");
    if (!json_is_object(v)) return format_error(f, d, "tensor `%s` is not an object", name);
    if (!dtype) return format_error(f, d, "tensor `%s` has no dtype", name);
    snprintf(e->dtype_name, sizeof e->dtype_name, "%s", dtype);
    const struct st_type *type = find_type(dtype);
    e->dtype = type ? type->dtype : PL_DTYPE_COUNT;
    PL_TRY(parse_shape(f, json_object_get(v, "shape"), e, &elements, d));
    PL_TRY(parse_offsets(f, json_object_get(v, "data_offsets"), e, d));
    return check_extent(f, e, elements, d);
}

static pl_err check_metadata(const struct pl_st_file *f, json_t *v, struct pl_diag *d) {
    const char *key;
    json_t *value;
    if (!json_is_object(v)) return format_error(f, d, "__metadata__ is not an object");
    json_object_foreach(v, key, value) {
        if (!json_is_string(value))
            return format_error(f, d, "__metadata__: `%s` is not a string", key);
    }
    return PL_ERR_OK;
}

static pl_err parse_entries(struct pl_st_file *f, json_t *root, struct pl_diag *d) {
    const char *name;
    json_t *value;
    f->entries = pl_calloc(json_object_size(root) + 1, sizeof *f->entries);
    if (!f->entries) return pl_host_oom(d, "the header of a safetensors file");
    json_object_foreach(root, name, value) {
        if (strcmp(name, "__metadata__") == 0)
            PL_TRY(check_metadata(f, value, d));
        else
            PL_TRY(parse_entry(f, name, value, &f->entries[f->n++], d));
    }
    return PL_ERR_OK;
}

/* Empty tensors come before the one that starts where they stand. */
static int by_place(const void *a, const void *b) {
    const struct pl_st_entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* The end of the last tensor is how long the file was to be. */
static pl_err check_length(const struct pl_st_file *f, struct pl_diag *d) {
    uint64_t end = 0;
    for (uint64_t i = 0; i < f->n; i++)
        if (f->entries[i].end > end) end = f->entries[i].end;
    if (end <= f->data_bytes) return PL_ERR_OK;
    pl_err err = format_error(f, d, "the file is truncated: it has %llu bytes of %llu",
                              (unsigned long long)(f->data_offset + f->data_bytes),
                              (unsigned long long)(f->data_offset + end));
    pl_diag_hint(d, CUT_SHORT);
    return err;
}

static int by_name(const void *a, const void *b) {
    const struct pl_st_entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* S2: tensors follow each other without hole or overlap up to the end. Leaves them by name. */
static pl_err check_places(struct pl_st_file *f, struct pl_diag *d) {
    uint64_t end = 0;
    qsort(f->entries, f->n, sizeof *f->entries, by_place);
    for (uint64_t i = 0; i < f->n; i++) {
        const struct pl_st_entry *e = &f->entries[i];
        if (e->begin < end)
            return format_error(f, d, "tensors `%s` and `%s` overlap", f->entries[i - 1].name,
                                e->name);
        if (e->begin > end)
            return format_error(f, d, "%llu bytes before tensor `%s` belong to no tensor",
                                (unsigned long long)(e->begin - end), e->name);
        end = e->end;
    }
    if (end != f->data_bytes)
        return format_error(f, d, "%llu bytes after %s%s%s belong to no tensor",
                            (unsigned long long)(f->data_bytes - end),
                            f->n ? "the last tensor `" : "the header",
                            f->n ? f->entries[f->n - 1].name : "", f->n ? "`" : "");
    qsort(f->entries, f->n, sizeof *f->entries, by_name);
    return PL_ERR_OK;
}

static pl_err parse_header(struct pl_st_file *f, const char *text, uint64_t bytes,
                           struct pl_diag *d) {
    struct pl_json_error e;
    if (!pl_json_is_small(text, bytes))
        return format_error(f, d, "the header has more than %u values", PL_JSON_MOST_VALUES);
    json_t *root = pl_json_load(text, (size_t)bytes, PL_JSON_ONCE, &e);
    if (!root && e.no_memory) return pl_host_oom(d, f->path);
    if (!root)
        return format_error(f, d, "the header is not valid JSON: %s at byte %llu", e.what,
                            (unsigned long long)e.at);
    pl_err err = parse_entries(f, root, d);
    json_decref(root);
    if (err == PL_ERR_OK) err = check_length(f, d);
    return err != PL_ERR_OK ? err : check_places(f, d);
}

static uint64_t load_le64(const unsigned char b[8]) {
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--)
        v = v << 8 | b[i];
    return v;
}

static pl_err read_header(struct pl_st_file *f, uint64_t file_bytes, struct pl_diag *d) {
    unsigned char word[8];
    char why[128];
    if (file_bytes < sizeof word) {
        snprintf(why, sizeof why, "%llu bytes are too short for a safetensors file",
                 (unsigned long long)file_bytes);
        return not_a_header(f, file_bytes, why, d);
    }
    PL_TRY(read_at(f, 0, word, sizeof word, d));
    uint64_t bytes = load_le64(word);
    if (bytes > PL_ST_MAX_HEADER || bytes > file_bytes - sizeof word || bytes == 0) {
        snprintf(why, sizeof why, "a header of %llu bytes %s %llu", (unsigned long long)bytes,
                 bytes > PL_ST_MAX_HEADER ? "is over the limit of" : "does not fit a file of",
                 bytes > PL_ST_MAX_HEADER ? (unsigned long long)PL_ST_MAX_HEADER
                                          : (unsigned long long)file_bytes);
        return not_a_header(f, file_bytes, why, d);
    }
    f->data_offset = sizeof word + bytes;
    f->data_bytes = file_bytes - f->data_offset;
    char *text = pl_malloc((size_t)bytes);
    if (!text) return pl_host_oom(d, "the header of a safetensors file");
    pl_err err = read_at(f, sizeof word, text, bytes, d);
    if (err == PL_ERR_OK && text[0] != '{')
        err = not_a_header(f, file_bytes, "the header does not start with {", d);
    else if (err == PL_ERR_OK)
        err = parse_header(f, text, bytes, d);
    free(text);
    return err;
}

static pl_err open_file(struct pl_st_file *f, uint64_t *file_bytes, struct pl_diag *d) {
    struct stat st;
    const char *why;
    f->fd = pl_open_file(f->path, &st, &why);
    if (f->fd < 0) {
        const int error = errno;
        pl_err err = pl_diag_at(d, pl_err_of_errno(PL_ERR_CHECKPOINT_FILE), f->path, 0, 0,
                                "cannot open %s: %s", f->path, why);
        return pl_open_hint(d, err, error);
    }
    *file_bytes = (uint64_t)st.st_size;
    return PL_ERR_OK;
}

pl_err pl_st_open(struct pl_st_file *f, const char *path, struct pl_diag *d) {
    uint64_t file_bytes = 0;
    *f = (struct pl_st_file){.fd = -1, .path = pl_strdup(path)};
    if (!f->path) return pl_host_oom(d, "a path");
    pl_err err = open_file(f, &file_bytes, d);
    if (err == PL_ERR_OK) err = read_header(f, file_bytes, d);
    if (err != PL_ERR_OK) pl_st_close(f);
    return err;
}

void pl_st_close(struct pl_st_file *f) {
    if (f->format) f->format->close(f->state);
    f->format = NULL;
    if (!f->path) return;
    for (uint64_t i = 0; i < f->n; i++)
        free(f->entries[i].name);
    if (f->fd >= 0) close(f->fd);
    free(f->entries);
    free(f->path);
    *f = (struct pl_st_file){.fd = -1};
}

const struct pl_st_entry *pl_st_find(const struct pl_st_file *f, const char *name) {
    uint64_t lo = 0, hi = f->n;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        int order = strcmp(name, f->entries[mid].name);
        if (order == 0) return &f->entries[mid];
        if (order < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}
