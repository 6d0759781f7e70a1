#include "runtime/checkpoint/gguf_weights.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/model/families.h"
#include "runtime/checkpoint/gguf_blocks.h"
#include "runtime/checkpoint/gguf_names.h"

#include <stdio.h>
#include <string.h>

#define READ_BYTES 32768 /* of blocks, at a time */

/* How the values of a tensor follow from its blocks. */
struct source {
    const struct pl_gguf_entry *entry;
    pl_gguf_decode_fn *decode; /* NULL: its bytes are the values */
    uint64_t heads;            /* whose rows are interleaved; 0: rows keep their places */
    bool has_one;              /* 1 was added */
};

struct weights {
    struct pl_gguf file;
    struct source *sources; /* owned; sources[i] of entries[i] */
};

struct opening {
    struct pl_st_file *f;
    struct weights *w;
    char architecture[48];
    bool interleaves, adds_one;
    uint64_t heads, kv_heads;
    struct pl_diag *d;
};

static void read_facts(struct opening *o) {
    const struct pl_gguf *g = &o->w->file;
    struct pl_gguf_string name = {"", 0};
    (void)pl_gguf_string(pl_gguf_find(g, "general.architecture"), &name);
    snprintf(o->architecture, sizeof o->architecture, "%.*s", name.n < 48 ? (int)name.n : 47,
             name.s);
    const struct pl_family_row *row = pl_family_of_gguf(o->architecture);
    o->interleaves = row && row->gguf_interleaves;
    o->adds_one = strcmp(o->architecture, "gemma3") == 0;
    (void)pl_gguf_uint_at(pl_gguf_find_own(g, "attention.head_count"), 0, &o->heads);
    o->kv_heads = o->heads;
    (void)pl_gguf_uint_at(pl_gguf_find_own(g, "attention.head_count_kv"), 0, &o->kv_heads);
}

static const struct {
    uint32_t id;
    enum pl_dtype dtype;
} plain[] = {
    {PL_GGUF_F32, PL_DTYPE_F32}, {PL_GGUF_F16, PL_DTYPE_F16}, {PL_GGUF_BF16, PL_DTYPE_BF16}};

/* W1. A type that is not read is an entry like any other, of no type of ours. */
static void set_type(struct source *s, struct pl_st_entry *e) {
    const struct pl_gguf_entry *g = s->entry;
    e->dtype = PL_DTYPE_COUNT;
    snprintf(e->dtype_name, sizeof e->dtype_name, "%s", g->type ? g->type->name : "?");
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (plain[i].id == g->type_id && !s->has_one) e->dtype = plain[i].dtype;
    if (e->dtype != PL_DTYPE_COUNT) return;
    s->decode = pl_gguf_decoder(g->type_id);
    if (s->decode) e->dtype = PL_DTYPE_F32;
}

static pl_err set_extent(const struct opening *o, const struct source *s, struct pl_st_entry *e) {
    uint64_t bytes = e->dtype == PL_DTYPE_COUNT ? 1 : pl_dtype_bytes(e->dtype);
    e->rank = s->entry->rank;
    for (uint32_t i = 0; i < e->rank; i++) {
        e->dims[i] = s->entry->ne[e->rank - 1 - i];
        if (!pl_u64_mul(bytes, e->dims[i], &bytes) || bytes > INT64_MAX)
            return pl_diag_at(o->d, PL_ERR_CHECKPOINT_FORMAT, o->f->path, 0, 0,
                              "%s: tensor `%s`: its values overflow 64 bits", o->f->path, e->name);
    }
    e->end = bytes;
    return PL_ERR_OK;
}

/* A head has an even number of rows, or its rows were not interleaved. */
static uint64_t interleaved_heads(const struct opening *o, const struct pl_gguf_entry *e,
                                  enum pl_gguf_change change) {
    const uint64_t heads = change == PL_GGUF_QUERY_ROWS ? o->heads : o->kv_heads;
    const uint64_t rows = e->ne[e->rank - 1];
    if (!o->interleaves || change == PL_GGUF_AS_IS || !heads) return 0;
    return rows % (2 * heads) == 0 ? heads : 0;
}

static bool is_norm(const char *name) {
    static const char end[] = "norm.weight";
    const size_t n = strlen(name);
    return n >= sizeof end - 1 && strcmp(name + n - (sizeof end - 1), end) == 0;
}

static pl_err add_entry(struct opening *o, const struct pl_gguf_entry *g) {
    struct pl_st_entry *e = &o->f->entries[o->f->n];
    struct source s = {.entry = g};
    enum pl_gguf_change change;
    char name[128];
    if (!pl_gguf_name_of_file(o->architecture, &g->name, name, &change)) return PL_ERR_OK;
    *e = (struct pl_st_entry){.name = pl_strdup(name)};
    if (!e->name) return pl_host_oom(o->d, "the names of tensors");
    s.heads = interleaved_heads(o, g, change);
    s.has_one = o->adds_one && is_norm(name);
    set_type(&s, e);
    o->f->n++;
    PL_TRY(set_extent(o, &s, e));
    e->source = (uint64_t)(g - o->w->file.header.entries);
    o->w->sources[e->source] = s;
    return PL_ERR_OK;
}

static int by_name(const void *a, const void *b) {
    const struct pl_st_entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static pl_err open_all(struct opening *o, const char *path) {
    struct pl_gguf_header *h = &o->w->file.header;
    PL_TRY(pl_gguf_open(&o->w->file, path, o->d));
    o->f->entries = pl_calloc(h->n_entries + 1, sizeof *o->f->entries);
    o->w->sources = pl_calloc(h->n_entries + 1, sizeof *o->w->sources);
    if (!o->f->entries || !o->w->sources) return pl_host_oom(o->d, "the names of tensors");
    read_facts(o);
    for (uint64_t i = 0; i < h->n_entries; i++)
        PL_TRY(add_entry(o, &h->entries[i]));
    qsort(o->f->entries, o->f->n, sizeof *o->f->entries, by_name);
    for (uint64_t i = 1; i < o->f->n; i++)
        if (by_name(&o->f->entries[i - 1], &o->f->entries[i]) == 0)
            return pl_diag_at(o->d, PL_ERR_CHECKPOINT_FORMAT, path, 0, 0,
                              "%s: two tensors are `%s` of transformers", path,
                              o->f->entries[i].name);
    return PL_ERR_OK;
}

/* --- reading --- */

/* n values of the tensor as it is in the file, from element `first` on: block by block. W3: it
 * holds READ_BYTES of the file at a time, whatever is asked for. */
static pl_err decode(const struct pl_gguf *g, const struct source *s, uint64_t first, uint64_t n,
                     char *out, struct pl_diag *d) {
    const struct pl_gguf_type *type = s->entry->type;
    unsigned char blocks[READ_BYTES];
    float values[PL_GGUF_BLOCK_ELEMENTS];
    while (n > 0) {
        const uint64_t block = first / type->elements, skip = first % type->elements;
        const uint64_t most = READ_BYTES / type->bytes;
        const uint64_t some =
            pl_u64_min(pl_u64_div_up(skip + n, type->elements), most); /* blocks */
        PL_TRY(pl_gguf_read(g, s->entry, block * type->bytes, blocks, some * type->bytes, d));
        for (uint64_t i = 0; i < some; i++) {
            const uint64_t from = i ? 0 : skip;
            const uint64_t taken = pl_u64_min(type->elements - from, n);
            s->decode(blocks + i * type->bytes, values);
            for (uint64_t k = 0; s->has_one && k < type->elements; k++)
                values[k] -= 1;
            memcpy(out, values + from, taken * sizeof *values);
            out += taken * sizeof *values;
            first += taken;
            n -= taken;
        }
    }
    return PL_ERR_OK;
}

/* Reads values in the order of the file, in the type of the entry. */
static pl_err read_values(const struct weights *w, const struct source *s, uint64_t size,
                          uint64_t first, uint64_t n, void *dst, struct pl_diag *d) {
    if (!s->decode) return pl_gguf_read(&w->file, s->entry, first * size, dst, n * size, d);
    return decode(&w->file, s, first, n, dst, d);
}

/* Row i of half j of a head is row 2i+j there. */
static uint64_t source_row(uint64_t row, uint64_t head_rows) {
    const uint64_t in_head = row % head_rows, half = head_rows / 2;
    return row - in_head + in_head % half * 2 + in_head / half;
}

static pl_err read_entry(const struct pl_st_file *f, const struct pl_st_entry *e, uint64_t offset,
                         void *dst, uint64_t bytes, struct pl_diag *d) {
    const struct weights *w = f->state;
    const struct source *s = &w->sources[e->source];
    const uint64_t size = e->dtype == PL_DTYPE_COUNT ? 1 : pl_dtype_bytes(e->dtype);
    uint64_t first = offset / size, n = bytes / size;
    char *to = dst;
    if (e->dtype == PL_DTYPE_COUNT || offset % size || bytes % size)
        return pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, f->path, 0, 0,
                          "%s: tensor `%s` is stored as %s, which is not read", f->path, e->name,
                          e->dtype_name);
    if (!s->heads) return read_values(w, s, size, first, n, dst, d);
    const uint64_t rows = s->entry->ne[s->entry->rank - 1];
    const uint64_t cols = s->entry->rank == 1 ? 1 : s->entry->ne[0];
    while (n > 0) {
        const uint64_t row = first / cols, col = first % cols, some = pl_u64_min(cols - col, n);
        const uint64_t from = source_row(row, rows / s->heads) * cols + col;
        PL_TRY(read_values(w, s, size, from, some, to, d));
        to += some * size;
        first += some;
        n -= some;
    }
    return PL_ERR_OK;
}

static void close_weights(void *state) {
    struct weights *w = state;
    if (!w) return;
    pl_gguf_close(&w->file);
    free(w->sources);
    free(w);
}

static const struct pl_st_format gguf = {read_entry, close_weights};

pl_err pl_gguf_weights_open(struct pl_st_file *f, const char *path, struct pl_diag *d) {
    struct opening o = {.f = f, .w = pl_calloc(1, sizeof *o.w), .d = d};
    *f = (struct pl_st_file){.path = pl_strdup(path), .fd = -1, .format = &gguf, .state = o.w};
    pl_err err = f->path && o.w ? open_all(&o, path) : pl_host_oom(d, "a file");
    if (err != PL_ERR_OK) pl_st_close(f);
    return err;
}
