/* model_io.c - Hugging Face model directories. */
#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/base/json_tree.h"
#include "estimator/base/open_file.h"
#include "estimator/gguf/gguf_file.h"
#include "runtime/checkpoint/durable.h"
#include "runtime/checkpoint/finite_entry.h"
#include "runtime/checkpoint/json_io.h"
#include "runtime/checkpoint/model_io.h"
#include "runtime/checkpoint/plain_names.h"
#include "runtime/checkpoint/read_file.h"
#include "runtime/checkpoint/save_set.h"
#include "runtime/checkpoint/share.h"
#include "runtime/checkpoint/surplus.h"
#include "runtime/checkpoint/tensor_io.h"
#include "runtime/checkpoint/weight_files.h"
#include "runtime/checkpoint/window_load.h"
#include "runtime/checkpoint/window_resolve.h"
#include "runtime/checkpoint/window_write.h"
#include "runtime/checkpoint/windows.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL_STEM     "model"
#define CONFIG_FILE    "config.json"
#define SINGLE_FILE    "model.safetensors"
#define INDEX_FILE     "model.safetensors.index.json"
#define SHARD_NAME     64
#define NUMBERS_BUFFER (1u << 20)
#define MAX_SHARDS     99999 /* five digits in the name */

/* Opens the files and finds every weight in them. The only tensor bytes that are read are those of
 * a head of a tied embedding, after all weights were found (C3). */
static pl_err find_weights(struct pl_windows *w, struct pl_weight_files *f,
                           const struct pl_program *p, const char *dir, struct pl_diag *d) {
    PL_TRY(pl_windows_add_model(w, p, d));
    PL_TRY(pl_weight_files_open(f, dir, MODEL_STEM, PL_ERR_MODEL_FILE, d));
    PL_TRY(pl_windows_resolve(w, f, PL_MATCH_CONVERT, PL_ERR_MODEL_WEIGHTS, d));
    return p->model->tied ? pl_windows_check_tied_head(w, f, d) : PL_ERR_OK;
}

/* Codes are made of values of any type, and fp32 holds all of them. */
static pl_err check_rounding(const struct pl_windows *w, struct pl_diag *d) {
    for (uint32_t i = 0; i < w->n; i++) {
        const struct pl_window *x = &w->items[i];
        if (x->quantised || x->dtype == PL_DTYPE_F32 || x->dtype == x->entry->dtype) continue;
        pl_diag_at(d, PL_ERR_MODEL_WEIGHTS, x->file->path, 0, 0,
                   "%s: tensor `%s` is stored as %s, but config.json says bfloat16", x->file->path,
                   x->entry->name, x->entry->dtype_name);
        pl_diag_hint(d, "set `base_dtype: fp32` to keep it, or `base_dtype: bf16` to round it");
        return PL_ERR_MODEL_WEIGHTS;
    }
    return PL_ERR_OK;
}

static pl_err check_files(const struct pl_program *p, const char *dir, bool exact,
                          struct pl_diag *d) {
    struct pl_windows w = {0};
    struct pl_weight_files f = {0};
    pl_err err = find_weights(&w, &f, p, dir, d);
    if (err == PL_ERR_OK && exact) err = check_rounding(&w, d);
    pl_weight_files_close(&f);
    pl_windows_finish(&w);
    return err;
}

pl_err pl_model_has_weights(const char *dir, bool *out, struct pl_diag *d) {
    *out = pl_gguf_is(dir);
    if (*out) return PL_ERR_OK;
    PL_TRY(pl_dir_holds(dir, SINGLE_FILE, out, d));
    return *out ? PL_ERR_OK : pl_dir_holds(dir, INDEX_FILE, out, d);
}

pl_err pl_model_check_files(const struct pl_program *p, const char *dir, struct pl_diag *d) {
    return check_files(p, dir, false, d);
}

pl_err pl_model_check_exact(const struct pl_program *p, const char *dir, struct pl_diag *d) {
    return check_files(p, dir, true, d);
}

pl_err pl_model_note_surplus(const struct pl_program *p, const char *dir, struct pl_text *notes,
                             struct pl_diag *d) {
    struct pl_windows w = {0};
    struct pl_weight_files f = {0};
    pl_err err = pl_windows_add_model(&w, p, d);
    if (err == PL_ERR_OK) err = pl_weight_files_open(&f, dir, MODEL_STEM, PL_ERR_MODEL_FILE, d);
    for (uint32_t i = 0; err == PL_ERR_OK && i < w.n; i++)
        (void)pl_window_find(&f, &w.items[i]);
    if (err == PL_ERR_OK) pl_plain_names_note(&w, &f, notes);
    if (err == PL_ERR_OK) err = pl_windows_note_surplus(&w, &f, notes, d);
    pl_weight_files_close(&f);
    pl_windows_finish(&w);
    return err;
}

pl_err pl_model_check_numbers(const char *dir, struct pl_diag *d) {
    struct pl_weight_files f = {0};
    void *buf = pl_malloc(NUMBERS_BUFFER);
    pl_err err = buf ? pl_weight_files_open(&f, dir, MODEL_STEM, PL_ERR_MODEL_FILE, d)
                     : pl_host_oom(d, "a buffer");
    for (uint32_t i = 0; i < f.n && err == PL_ERR_OK; i++)
        for (uint64_t k = 0; k < f.files[i].n && err == PL_ERR_OK; k++)
            err = pl_finite_read(&f.files[i], &f.files[i].entries[k], buf, NUMBERS_BUFFER, d);
    pl_weight_files_close(&f);
    free(buf);
    return err;
}

pl_err pl_model_load(const struct pl_tensor_io *io, const char *dir, struct pl_diag *d) {
    struct pl_windows w = {0};
    struct pl_weight_files f = {0};
    pl_err err = find_weights(&w, &f, io->program, dir, d);
    if (err == PL_ERR_OK) err = pl_windows_load(&w, io, true, d);
    pl_weight_files_close(&f);
    pl_windows_finish(&w);
    return err;
}

/* first[k] is the window that shard k starts with; first[n_shards] = w->n. */
struct shards {
    uint32_t *first; /* owned */
    uint32_t n;
    uint64_t total_bytes, total_elements;
};

static pl_err cut_shards(const struct pl_windows *w, uint64_t shard_bytes, struct shards *s,
                         struct pl_diag *d) {
    uint64_t filled = 0;
    s->first = pl_calloc((size_t)w->n + 2, sizeof *s->first);
    if (!s->first) return pl_host_oom(d, "the list of shards");
    s->n = 1;
    for (uint32_t i = 0; i < w->n; i++) {
        uint64_t bytes = w->items[i].count * pl_dtype_bytes(w->items[i].dtype);
        if (filled > 0 && (bytes > shard_bytes || filled > shard_bytes - bytes)) {
            s->first[s->n++] = i;
            filled = 0;
        }
        filled += bytes;
        s->total_bytes += bytes;
        s->total_elements += w->items[i].count;
    }
    s->first[s->n] = w->n;
    if (s->n > MAX_SHARDS)
        return pl_diag_set(d, PL_ERR_OVERFLOW, "%u shards are more than names allow", s->n);
    return PL_ERR_OK;
}

static void shard_name(const struct shards *s, uint32_t k, char out[SHARD_NAME]) {
    if (s->n == 1)
        snprintf(out, SHARD_NAME, SINGLE_FILE);
    else
        snprintf(out, SHARD_NAME, "model-%05u-of-%05u.safetensors", k + 1, s->n);
}

static pl_err put_index(struct pl_outbox *o, const struct pl_windows *w, const struct shards *s,
                        struct pl_diag *d) {
    bool whole = true;
    json_t *map = json_object();
    for (uint32_t k = 0; k < s->n; k++) {
        char name[SHARD_NAME];
        shard_name(s, k, name);
        for (uint32_t i = s->first[k]; i < s->first[k + 1]; i++)
            whole = json_object_set_new(map, w->items[i].name, json_string(name)) == 0 && whole;
    }
    /* json_pack takes the reference to map, on failure too. */
    json_t *root = json_pack("{s:{s:I,s:I},s:o}", "metadata", "total_parameters",
                             (json_int_t)s->total_elements, "total_size",
                             (json_int_t)s->total_bytes, "weight_map", map);
    pl_err err = whole ? pl_json_put(o, INDEX_FILE, root, d) : pl_host_oom(d, INDEX_FILE);
    json_decref(root);
    return err;
}

static pl_err put_shards(struct pl_outbox *o, const struct pl_windows *w, const struct shards *s,
                         const struct pl_window_source *source, struct pl_diag *d) {
    for (uint32_t k = 0; k < s->n; k++) {
        char name[SHARD_NAME];
        shard_name(s, k, name);
        PL_TRY(pl_windows_save(w, s->first[k], s->first[k + 1], source, o, name, d));
    }
    return PL_ERR_OK;
}

static bool is_weight_file(const char *name) {
    unsigned k, n;
    int end = 0;
    if (strcmp(name, SINGLE_FILE) == 0 || strcmp(name, INDEX_FILE) == 0) return true;
    return sscanf(name, "model-%5u-of-%5u.safetensors%n", &k, &n, &end) == 2 && end > 0 &&
           name[end] == 0;
}

/* The NAME of NAME.tmp; false: it is none, or none of ours. */
static bool stem_of(const char *name, char out[SHARD_NAME]) {
    static const char suffix[] = ".tmp";
    size_t n = strlen(name);
    if (n < sizeof suffix || n - strlen(suffix) >= SHARD_NAME) return false;
    n -= strlen(suffix);
    memcpy(out, name, n);
    out[n] = 0;
    return strcmp(name + n, suffix) == 0;
}

bool pl_model_is_temporary(const char *name) {
    char stem[SHARD_NAME];
    if (!stem_of(name, stem)) return false;
    return pl_companions_has(stem) || is_weight_file(stem) || strcmp(stem, CONFIG_FILE) == 0 ||
           strcmp(stem, PL_SAVE_JOURNAL) == 0;
}

bool pl_model_is_leftover(const char *name, const void *outbox) {
    char stem[SHARD_NAME];
    const char *file = stem_of(name, stem) ? stem : name;
    return (is_weight_file(file) && !pl_outbox_has(outbox, file)) ||
           pl_companions_is_leftover(file, outbox);
}

static pl_err put_model(struct pl_outbox *o, const struct pl_windows *w,
                        const struct pl_window_source *source, const char *config_json,
                        const struct pl_companions *companions, uint64_t shard_bytes,
                        struct pl_diag *d) {
    struct shards s = {0};
    pl_err err = cut_shards(w, shard_bytes, &s, d);
    if (err == PL_ERR_OK) err = put_shards(o, w, &s, source, d);
    if (err == PL_ERR_OK && s.n > 1) err = put_index(o, w, &s, d);
    free(s.first);
    if (err != PL_ERR_OK) return err;
    PL_TRY(pl_outbox_put(o, CONFIG_FILE, config_json, strlen(config_json), d));
    return pl_companions_put(o, companions, source->buffer, source->buffer_bytes, d);
}

pl_err pl_model_write(const struct pl_windows *w, const struct pl_window_source *source,
                      const char *dir, const char *config_json,
                      const struct pl_companions *companions, uint64_t shard_bytes,
                      struct pl_diag *d) {
    struct pl_outbox o = {0};
    pl_err err;
    PL_TRY_GOTO(pl_save_set_begin(dir, d), out);
    PL_TRY_GOTO(pl_outbox_init(&o, dir, d), out);
    PL_TRY_GOTO(put_model(&o, w, source, config_json, companions, shard_bytes, d), out);
    err = pl_save_set_commit(&o, pl_model_is_leftover, &o, d);
out:
    pl_outbox_finish(&o);
    return err;
}

pl_err pl_model_put(const struct pl_tensor_io *io, struct pl_outbox *o, const char *config_json,
                    const struct pl_companions *companions, uint64_t shard_bytes,
                    struct pl_diag *d) {
    struct pl_windows w = {0};
    const struct pl_window_source source = pl_window_source_device(io);
    pl_err err = pl_windows_add_model(&w, io->program, d);
    if (err == PL_ERR_OK) err = put_model(o, &w, &source, config_json, companions, shard_bytes, d);
    pl_windows_finish(&w);
    return err;
}

pl_err pl_model_join(const struct pl_tensor_io *io, struct pl_outbox *o, uint64_t shard_bytes,
                     struct pl_diag *d) {
    struct pl_windows w = {0};
    struct shards s = {0};
    const struct pl_window_source source = pl_window_source_device(io);
    pl_err err = pl_windows_add_model(&w, io->program, d);
    if (err == PL_ERR_OK) err = cut_shards(&w, shard_bytes, &s, d);
    if (err == PL_ERR_OK) err = put_shards(o, &w, &s, &source, d);
    free(s.first);
    pl_windows_finish(&w);
    return err;
}

static const char *torch_name(enum pl_dtype dtype) {
    switch (dtype) {
    case PL_DTYPE_BF16:
        return "bfloat16";
    case PL_DTYPE_F16:
        return "float16";
    default:
        return "float32";
    }
}

char *pl_model_config_text(const char *config_json, enum pl_dtype dtype, bool unties) {
    json_t *root = pl_json_load(config_json, strlen(config_json), 0, NULL);
    const char *key = json_object_get(root, "dtype") ? "dtype" : "torch_dtype";
    if (json_is_object(root)) json_object_del(root, "quantization_config");
    if (unties) pl_json_set(&root, "tie_word_embeddings", json_false());
    pl_json_set(&root, key, json_string(torch_name(dtype)));
    char *text = root ? pl_json_dump(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(root);
    return text;
}
