/* surplus.c - tensors of a model's files that its program has no row for. */
#include "runtime/checkpoint/surplus.h"

#include "estimator/base/alloc.h"
#include "runtime/checkpoint/convert.h"
#include "runtime/checkpoint/plain_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD  "lm_head.weight"
#define PIECE UINT64_C(65536) /* bytes compared at a time */

static pl_err compare_bytes(const struct pl_window *a, const struct pl_window *b, bool *same,
                            struct pl_diag *d) {
    uint64_t bytes = a->entry->end - a->entry->begin;
    char *buffer = pl_malloc(2 * PIECE);
    if (!buffer) return pl_host_oom(d, "a buffer");
    *same = a->entry->dtype == b->entry->dtype && bytes == b->entry->end - b->entry->begin;
    pl_err err = PL_ERR_OK;
    for (uint64_t at = 0; at < bytes && *same && err == PL_ERR_OK; at += PIECE) {
        uint64_t n = bytes - at < PIECE ? bytes - at : PIECE;
        err = pl_st_read(a->file, a->entry, at, buffer, n, d);
        if (err == PL_ERR_OK) err = pl_st_read(b->file, b->entry, at, buffer + PIECE, n, d);
        *same = err != PL_ERR_OK || memcmp(buffer, buffer + PIECE, n) == 0;
    }
    free(buffer);
    return err;
}

/* ---- the base's weight in the files of an adapter ---- */

/* The names with an adapter on the module; and without one, where the vocabulary was resized or
 * embeddings were to be saved (save_embedding_layers). */
static const char *const base_copies[][2] = {
    {"base_model.model.model.embed_tokens.base_layer.weight",
     "base_model.model.model.embed_tokens.weight"},
    {"base_model.model.lm_head.base_layer.weight", "base_model.model.lm_head.weight"}};

bool pl_window_names_base_copy(const char *name) {
    for (size_t i = 0; i < 4; i++)
        if (strcmp(name, base_copies[i / 2][i % 2]) == 0) return true;
    return false;
}

pl_err pl_windows_add_base_copy(struct pl_windows *w, const struct pl_weight_files *f,
                                const struct pl_model *m, enum pl_slot slot, uint32_t tensor,
                                struct pl_diag *d) {
    struct pl_window copy = {.tensor = tensor,
                             .row = PL_NONE,
                             .master = PL_NONE,
                             .is_copy = true,
                             .rank = 2,
                             .dims = {m->vocab, m->hidden},
                             .count = m->vocab * m->hidden};
    for (size_t i = 0; i < 2; i++) {
        snprintf(copy.name, sizeof copy.name, "%s", base_copies[slot != PL_SLOT_EMBED][i]);
        if (pl_window_find(f, &copy)) return pl_windows_append(w, &copy, d);
    }
    return PL_ERR_OK;
}

pl_err pl_window_refuse_copy(const struct pl_window *copy, struct pl_diag *d) {
    pl_diag_at(d, PL_ERR_CHECKPOINT_MISMATCH, copy->file->path, 0, 0,
               "%s: `%s` is not the weight of this model", copy->file->path, copy->name);
    pl_diag_hint(d,
                 "an adapter fits the model it was trained on, and no other: PEFT would load this "
                 "weight in place of the base's; merge_and_unload() of PEFT makes a model of both");
    return PL_ERR_CHECKPOINT_MISMATCH;
}

static pl_err read_values(const struct pl_window *w, uint64_t at, uint64_t n, void *raw,
                          float *values, struct pl_diag *d) {
    const uint64_t size = pl_dtype_bytes(w->entry->dtype);
    PL_TRY(pl_st_read(w->file, w->entry, at * size, raw, n * size, d));
    pl_convert_to_f32(values, raw, w->entry->dtype, n);
    return PL_ERR_OK;
}

pl_err pl_windows_compare(const struct pl_window *a, const struct pl_window *b, bool *same,
                          struct pl_diag *d) {
    const bool a_is_narrow = pl_dtype_bytes(a->entry->dtype) < pl_dtype_bytes(b->entry->dtype);
    const enum pl_dtype type = a_is_narrow ? a->entry->dtype : b->entry->dtype;
    const uint64_t piece = PIECE / sizeof(float);
    float *values = pl_malloc(4 * PIECE);
    if (!values) return pl_host_oom(d, "a buffer");
    float *other = values + piece, *x = other + piece, *y = x + piece; /* x, y: in `type` */
    pl_err err = PL_ERR_OK;
    *same = true;
    for (uint64_t at = 0; at < a->count && *same; at += piece) {
        uint64_t n = a->count - at < piece ? a->count - at : piece;
        PL_TRY_GOTO(read_values(a, at, n, x, values, d), out);
        PL_TRY_GOTO(read_values(b, at, n, y, other, d), out);
        pl_convert_from_f32(x, values, type, n);
        pl_convert_from_f32(y, other, type, n);
        *same = memcmp(x, y, n * pl_dtype_bytes(type)) == 0;
    }
out:
    free(values);
    return err;
}

/* ---- a tied head in the files ---- */

pl_err pl_windows_check_tied_head(const struct pl_windows *w, const struct pl_weight_files *f,
                                  struct pl_diag *d) {
    const struct pl_window *embedding = NULL;
    struct pl_window head = {.name = HEAD};
    bool same = true;
    for (uint32_t i = 0; i < w->n && !embedding; i++)
        if (strcmp(w->items[i].name, "model.embed_tokens.weight") == 0) embedding = &w->items[i];
    if (!embedding || !embedding->entry || !pl_window_find(f, &head)) return PL_ERR_OK;
    PL_TRY(compare_bytes(embedding, &head, &same, d));
    if (same) return PL_ERR_OK;
    pl_diag_at(d, PL_ERR_MODEL_WEIGHTS, head.file->path, 0, 0,
               "%s: `" HEAD "` differs from the embedding, but config.json says "
               "tie_word_embeddings: true",
               head.file->path);
    pl_diag_hint(d, "write \"tie_word_embeddings\": false into config.json to train both, as "
                    "transformers does; or remove `" HEAD "` from the file to train one");
    return PL_ERR_MODEL_WEIGHTS;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Scales of 4-bit codes bear the name of their matrix and a suffix. */
static bool is_used(const char *const *names, uint32_t n, const char *name) {
    char prefix[PL_WINDOW_NAME];
    const char *key = prefix, *weight = strstr(name, ".weight.");
    size_t length = weight ? (size_t)(weight - name) + strlen(".weight") : strlen(name);
    if (length >= sizeof prefix) return false;
    memcpy(prefix, name, length);
    prefix[length] = 0;
    return bsearch(&key, names, n, sizeof *names, compare_names) != NULL;
}

#define NAMED 3 /* of them are named in a note; the rest is counted */

static void add_note(struct pl_text *notes, const char *const *surplus, uint64_t n,
                     const char *path) {
    pl_text_addf(notes, "%s: %llu tensor%s not of this model and not used: ", path,
                 (unsigned long long)n, n == 1 ? " is" : "s are");
    for (uint64_t i = 0; i < n && i < NAMED; i++)
        pl_text_addf(notes, "%s`%s`", i ? ", " : "", surplus[i]);
    pl_text_add(notes, n > NAMED ? ", ...\n" : "\n");
}

pl_err pl_windows_note_surplus(const struct pl_windows *w, const struct pl_weight_files *f,
                               struct pl_text *notes, struct pl_diag *d) {
    const char *named[NAMED], **names = pl_malloc(((size_t)w->n + 1) * sizeof *names);
    struct pl_window head = {.name = HEAD};
    uint64_t n = 0;
    (void)pl_window_find(f, &head);
    if (!names) return pl_host_oom(d, "the names of tensors");
    for (uint32_t i = 0; i < w->n; i++)
        names[i] = w->items[i].entry ? w->items[i].entry->name : w->items[i].name;
    qsort(names, w->n, sizeof *names, compare_names);
    for (uint32_t i = 0; i < f->n; i++)
        for (uint64_t k = 0; k < f->files[i].n; k++) {
            const char *name = f->files[i].entries[k].name;
            if (&f->files[i].entries[k] == head.entry || is_used(names, w->n, name)) continue;
            if (n < NAMED) named[n] = name;
            n++;
        }
    if (n) add_note(notes, named, n, f->path);
    free(names);
    return PL_ERR_OK;
}
