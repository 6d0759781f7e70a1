#include "runtime/checkpoint/mxfp4_weights.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "runtime/checkpoint/convert.h"
#include "runtime/checkpoint/gguf_blocks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK       32 /* values that share a scale */
#define BLOCK_BYTES 16
#define TILE        32  /* rows of the file that are turned round at a time: an even number */
#define NO_NUMBER   255 /* as a scale */

#define BLOCKS "_blocks"
#define SCALES "_scales"

/* A tensor of a file. */
struct part {
    const struct pl_st_file *file;
    struct pl_st_entry entry; /* without its name */
};

struct source {
    struct part blocks, scales;
    uint64_t rows, cols; /* of an expert in the files: [out, in] */
};

struct codes {
    struct source *sources; /* owned */
    uint16_t *values;       /* owned; of the expert that was read last, bf16 [in, out] */
    unsigned char *raw;     /* owned; codes and then scales of TILE rows */
    unsigned char *turned;  /* owned; codes and then scales of an expert, [in, out] */
    const struct source *of;
    uint64_t expert;
};

/* --- finding ---------------------------------------------------------------------------------- */

struct taking {
    struct pl_st_file *files, *out;
    uint32_t n;
    struct codes *codes;
    struct pl_diag *d;
};

/* The length of NAME in NAME_blocks; 0: these are no codes. */
static size_t stem_of(const struct pl_st_entry *e) {
    const size_t n = strlen(e->name), end = strlen(BLOCKS);
    const bool is = n > end && strcmp(e->name + n - end, BLOCKS) == 0 && e->dtype == PL_DTYPE_U8 &&
                    e->rank == 4 && e->dims[3] == BLOCK_BYTES;
    return is ? n - end : 0;
}

/* Returns a tensor of any of the files, and its file; NULL where there is none. */
static const struct pl_st_entry *find_tensor(const struct taking *t, const char *name,
                                             const struct pl_st_file **file) {
    for (uint32_t i = 0; i < t->n; i++) {
        const struct pl_st_entry *e = pl_st_find(&t->files[i], name);
        *file = &t->files[i];
        if (e) return e;
    }
    return NULL;
}

static pl_err refuse_codes(const struct taking *t, const struct pl_st_file *f, const char *name,
                           const char *why) {
    return pl_diag_at(t->d, PL_ERR_CHECKPOINT_FORMAT, f->path, 0, 0, "%s: tensor `%s` %s", f->path,
                      name, why);
}

/* The list keeps the entry until all codes are found. */
static struct part part_of(const struct pl_st_file *file, const struct pl_st_entry *e) {
    struct part part = {file, *e};
    part.entry.name = NULL;
    return part;
}

/* Appends the values of codes; `name` is that of the codes, and becomes that of the values. */
static pl_err add_values(struct taking *t, const struct pl_st_file *file,
                         const struct pl_st_entry *blocks, char *name) {
    const size_t stem = stem_of(blocks);
    const struct pl_st_file *other = NULL;
    struct pl_st_entry *e = &t->out->entries[t->out->n];
    struct source *s = &t->codes->sources[t->out->n];
    memcpy(name + stem, SCALES, sizeof SCALES);
    const struct pl_st_entry *scales = find_tensor(t, name, &other);
    if (!scales) return refuse_codes(t, file, blocks->name, "has no scales next to it");
    if (scales->dtype != PL_DTYPE_U8 || scales->rank != 3 ||
        memcmp(scales->dims, blocks->dims, 3 * sizeof *scales->dims) != 0)
        return refuse_codes(t, other, name,
                            "has another type or shape than the codes that it scales");
    name[stem] = 0;
    if (find_tensor(t, name, &other)) return refuse_codes(t, other, name, "is there as codes, too");
    *s = (struct source){part_of(file, blocks), part_of(other, scales), blocks->dims[1], 0};
    *e = (struct pl_st_entry){.dtype = PL_DTYPE_BF16, .rank = 3, .source = t->out->n};
    if (!pl_u64_mul(blocks->dims[2], BLOCK, &s->cols) || !pl_u64_mul(s->rows, s->cols, &e->end) ||
        !pl_u64_mul(e->end, pl_dtype_bytes(e->dtype), &e->end) ||
        !pl_u64_mul(e->end, blocks->dims[0], &e->end) || e->end > INT64_MAX)
        return refuse_codes(t, file, blocks->name, "has values that overflow 64 bits");
    snprintf(e->dtype_name, sizeof e->dtype_name, "%s", pl_dtype_file_name(e->dtype));
    memcpy(e->dims, (const uint64_t[]){blocks->dims[0], s->cols, s->rows}, 3 * sizeof *e->dims);
    e->name = name;
    t->out->n++;
    return PL_ERR_OK;
}

static pl_err add_file(struct taking *t, const struct pl_st_file *file) {
    for (uint64_t k = 0; k < file->n; k++) {
        if (!stem_of(&file->entries[k])) continue;
        char *name = pl_strdup(file->entries[k].name);
        if (!name) return pl_host_oom(t->d, "the names of tensors");
        const pl_err err = add_values(t, file, &file->entries[k], name);
        if (err == PL_ERR_OK) continue;
        free(name);
        return err;
    }
    return PL_ERR_OK;
}

static int by_name(const void *a, const void *b) {
    const struct pl_st_entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static pl_err sort(struct taking *t) {
    struct pl_st_file *out = t->out;
    qsort(out->entries, out->n, sizeof *out->entries, by_name);
    for (uint64_t i = 1; i < out->n; i++)
        if (by_name(&out->entries[i - 1], &out->entries[i]) == 0)
            return refuse_codes(t, t->files, out->entries[i].name, "has codes in two files");
    return PL_ERR_OK;
}

/* True for the codes and the scales of values that were found. */
static bool is_taken(const struct pl_st_file *out, char *name) {
    const size_t n = strlen(name), end = sizeof BLOCKS - 1;
    _Static_assert(sizeof BLOCKS == sizeof SCALES, "one length");
    if (n <= end || (strcmp(name + n - end, BLOCKS) != 0 && strcmp(name + n - end, SCALES) != 0))
        return false;
    const char first = name[n - end];
    name[n - end] = 0;
    const bool taken = pl_st_find(out, name) != NULL;
    name[n - end] = first;
    return taken;
}

static void drop_taken(struct taking *t) {
    for (uint32_t i = 0; i < t->n; i++) {
        struct pl_st_file *f = &t->files[i];
        uint64_t kept = 0;
        for (uint64_t k = 0; k < f->n; k++) {
            if (is_taken(t->out, f->entries[k].name))
                free(f->entries[k].name);
            else
                f->entries[kept++] = f->entries[k];
        }
        f->n = kept;
    }
}

/* --- reading ---------------------------------------------------------------------------------- */

/* The values of a block; the decoder of GGUF takes codes in another order. */
static void decode(const unsigned char *codes, unsigned char scale, uint16_t out[BLOCK]) {
    unsigned char block[1 + BLOCK_BYTES] = {scale};
    float decoded[BLOCK], in_order[BLOCK];
    memcpy(block + 1, codes, BLOCK_BYTES);
    pl_gguf_decoder(PL_GGUF_MXFP4)(block, decoded);
    for (int i = 0; i < BLOCK_BYTES; i++) {
        in_order[2 * i] = decoded[i];
        in_order[2 * i + 1] = decoded[i + BLOCK_BYTES];
    }
    pl_convert_from_f32(out, in_order, PL_DTYPE_BF16, BLOCK);
}

/* Rows [first, first + n) of the files, which lie in `raw`, as columns of the values. */
static void turn(const struct codes *c, const struct source *s, uint64_t first, uint64_t n) {
    const uint64_t blocks = s->cols / BLOCK;
    const unsigned char *scales = c->raw + n * s->cols / 2;
    for (uint64_t b = 0; b < blocks; b++) {
        uint16_t tile[TILE][BLOCK];
        for (uint64_t r = 0; r < n; r++)
            decode(c->raw + (r * blocks + b) * BLOCK_BYTES, scales[r * blocks + b], tile[r]);
        for (uint64_t k = 0; k < BLOCK; k++)
            for (uint64_t r = 0; r < n; r++)
                c->values[(b * BLOCK + k) * s->rows + first + r] = tile[r][k];
    }
}

/* The same rows as columns of the codes, and of the scales. */
static void turn_codes(const struct codes *c, const struct source *s, uint64_t first, uint64_t n) {
    const uint64_t bytes = s->cols / 2, blocks = s->cols / BLOCK, row = s->rows / 2;
    const unsigned char *scales = c->raw + n * bytes;
    unsigned char *turned = c->turned + s->cols * row;
    for (uint64_t k = 0; k < bytes; k++) {
        unsigned char *even = c->turned + 2 * k * row + first / 2, *odd = even + row;
        for (uint64_t r = 0; r < n; r += 2) {
            const unsigned a = c->raw[r * bytes + k], b = c->raw[(r + 1) * bytes + k];
            even[r / 2] = (unsigned char)((a & 15) << 4 | (b & 15));
            odd[r / 2] = (unsigned char)((a & 240) | b >> 4);
        }
    }
    for (uint64_t b = 0; b < blocks; b++)
        for (uint64_t r = 0; r < n; r++)
            turned[b * s->rows + first + r] = scales[r * blocks + b];
}

/* The rows of an expert, some at a time: each lot lies in `raw` when it is turned. */
static pl_err
read_rows(struct codes *c, const struct pl_st_file *f, const struct pl_st_entry *e, uint64_t expert,
          void (*take)(const struct codes *c, const struct source *s, uint64_t first, uint64_t n),
          struct pl_diag *d) {
    const struct source *s = &c->sources[e->source];
    const uint64_t codes = s->cols / 2, scales = s->cols / BLOCK; /* bytes of a row */
    unsigned char *raw = pl_realloc(c->raw, pl_u64_min(s->rows, TILE) * (codes + scales));
    if (!raw) return pl_host_oom(d, "the experts of a layer");
    c->raw = raw;
    for (uint64_t row = 0, n; row < s->rows; row += n) {
        const uint64_t at = expert * s->rows + row;
        n = pl_u64_min(s->rows - row, TILE);
        PL_TRY(pl_st_read(s->blocks.file, &s->blocks.entry, at * codes, c->raw, n * codes, d));
        PL_TRY(pl_st_read(s->scales.file, &s->scales.entry, at * scales, c->raw + n * codes,
                          n * scales, d));
        if (scales && memchr(raw + n * codes, NO_NUMBER, n * scales))
            return pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, f->path, 0, 0,
                              "%s: tensor `%s`: a scale of its codes is %d, which is no number",
                              f->path, e->name, NO_NUMBER);
        take(c, s, row, n);
    }
    return PL_ERR_OK;
}

static pl_err read_expert(struct codes *c, const struct pl_st_file *f, const struct pl_st_entry *e,
                          uint64_t expert, struct pl_diag *d) {
    const struct source *s = &c->sources[e->source];
    if (c->of == s && c->expert == expert) return PL_ERR_OK;
    c->of = NULL;
    uint16_t *values = pl_realloc(c->values, s->rows * s->cols * sizeof *values);
    if (!values) return pl_host_oom(d, "the experts of a layer");
    c->values = values;
    PL_TRY(read_rows(c, f, e, expert, turn, d));
    c->of = s;
    c->expert = expert;
    return PL_ERR_OK;
}

static pl_err read_values(const struct pl_st_file *f, const struct pl_st_entry *e, uint64_t offset,
                          void *dst, uint64_t bytes, struct pl_diag *d) {
    struct codes *c = f->state;
    const struct source *s = &c->sources[e->source];
    const uint64_t each = s->rows * s->cols * sizeof *c->values;
    char *to = dst;
    while (bytes > 0) {
        const uint64_t at = offset % each, some = pl_u64_min(each - at, bytes);
        PL_TRY(read_expert(c, f, e, offset / each, d));
        memcpy(to, (const char *)c->values + at, some);
        to += some;
        offset += some;
        bytes -= some;
    }
    return PL_ERR_OK;
}

static void close_codes(void *state) {
    struct codes *c = state;
    if (!c) return;
    free(c->sources);
    free(c->values);
    free(c->raw);
    free(c->turned);
    free(c);
}

static const struct pl_st_format mxfp4 = {read_values, close_codes};

bool pl_mxfp4_has_codes(const struct pl_st_file *f, const struct pl_st_entry *e) {
    return f->format == &mxfp4 &&
           ((const struct codes *)f->state)->sources[e->source].rows % 2 == 0;
}

pl_err pl_mxfp4_read_codes(const struct pl_st_file *f, const struct pl_st_entry *e, uint64_t expert,
                           const uint8_t **codes, const uint8_t **scales, struct pl_diag *d) {
    struct codes *c = f->state;
    const struct source *s = &c->sources[e->source];
    const uint64_t n = s->rows * s->cols;
    unsigned char *turned = pl_realloc(c->turned, n / 2 + n / BLOCK);
    if (!turned) return pl_host_oom(d, "the experts of a layer");
    c->turned = turned;
    *codes = turned;
    *scales = turned + n / 2;
    return read_rows(c, f, e, expert, turn_codes, d);
}

static pl_err take_all(struct taking *t, uint64_t count) {
    if (!t->out->path || !t->codes) return pl_host_oom(t->d, "a file");
    t->out->entries = pl_calloc(count, sizeof *t->out->entries);
    t->codes->sources = pl_calloc(count, sizeof *t->codes->sources);
    if (!t->out->entries || !t->codes->sources) return pl_host_oom(t->d, "the names of tensors");
    for (uint32_t i = 0; i < t->n; i++)
        PL_TRY(add_file(t, &t->files[i]));
    PL_TRY(sort(t));
    drop_taken(t);
    return PL_ERR_OK;
}

pl_err pl_mxfp4_weights_take(struct pl_st_file *files, uint32_t n, struct pl_st_file *out,
                             bool *any, struct pl_diag *d) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint64_t k = 0; k < files[i].n; k++)
            count += stem_of(&files[i].entries[k]) > 0;
    *any = count > 0;
    if (!*any) return PL_ERR_OK;
    struct taking t = {files, out, n, pl_calloc(1, sizeof *t.codes), d};
    *out = (struct pl_st_file){
        .path = pl_strdup(files->path), .fd = -1, .format = &mxfp4, .state = t.codes};
    const pl_err err = take_all(&t, count);
    if (err != PL_ERR_OK) pl_st_close(out);
    return err;
}
