/* weight_files.c - one safetensors file, or shards with an index, or what is there instead; and
 * windows by name in them. */
#include "runtime/checkpoint/weight_files.h"

#include "estimator/base/alloc.h"
#include "estimator/base/open_file.h"
#include "estimator/base/stand_in.h"
#include "estimator/gguf/gguf_file.h"
#include "runtime/checkpoint/adapter_config.h"
#include "runtime/checkpoint/convert.h"
#include "runtime/checkpoint/gguf_weights.h"
#include "runtime/checkpoint/json_io.h"
#include "runtime/checkpoint/mxfp4_weights.h"
#include "runtime/checkpoint/plain_names.h"
#include "runtime/checkpoint/read_file.h"
#include "runtime/checkpoint/save_set.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DOWNLOAD "`plimsoll fetch OWNER/NAME` downloads all of it"

/* --- what is there in place of the files ------------------------------------------------------ */

pl_err pl_weight_files_absent(const char *dir, const char *stem, pl_err absent, struct pl_diag *d) {
    char *name;
    const struct pl_stand_in *is;
    PL_TRY(pl_stand_in_list(dir, stem, &name, &is, d));
    pl_diag_at(d, absent, dir, 0, 0,
               "%s has neither %s.safetensors nor %s.safetensors.index.json%s%s%s%s", dir, stem,
               stem, is ? "; it has " : "", is ? name : "", is ? ": " : "", is ? is->what : "");
    if (is) pl_stand_in_hint(is, dir, d);
    free(name);
    return absent;
}

/* The number of shards that the name of one ends with: model-00001-of-00003.safetensors. */
static unsigned shards_of(const char *name) {
    unsigned n = 0;
    const char *of = strstr(name, "-of-");
    return of && sscanf(of, "-of-%5u.safetensors", &n) == 1 ? n : 0;
}

/* A name in the directory that is a shard of another set, malloc'd; NULL: there is none. */
static char *find_other_set(const char *dir, const char *name) {
    const struct dirent *e;
    const unsigned n = shards_of(name);
    char *found = NULL;
    DIR *list = opendir(dir);
    while (list && n && !found && (e = readdir(list)))
        if (shards_of(e->d_name) && shards_of(e->d_name) != n) found = pl_strdup(e->d_name);
    if (list) closedir(list);
    return found;
}

/* `missing` of the shards that the index names, `first` among them, are not there. */
static pl_err report_missing_shards(const struct pl_weight_files *f, const char *dir,
                                    const char *first, uint64_t missing, pl_err absent,
                                    struct pl_diag *d) {
    const uint64_t n = json_object_size(f->shards);
    const char *slash = strrchr(f->path, '/');
    char *path = pl_path_join(dir, first), *other = find_other_set(dir, first), more[48];
    snprintf(more, sizeof more, missing > 1 ? "and %llu more are missing" : "is missing",
             (unsigned long long)missing - 1);
    pl_err err = path ? pl_diag_at(d, absent, path, 0, 0,
                                   "shard %s, named by %s, %s: %llu of %llu shards are there", path,
                                   slash ? slash + 1 : f->path, more,
                                   (unsigned long long)(n - missing), (unsigned long long)n)
                      : pl_host_oom(d, "a path");
    if (path && other)
        pl_diag_hint(d, "%s is of another revision of the model: " DOWNLOAD, other);
    else if (path)
        pl_diag_hint(
            d, "the same download again fetches what is missing: `plimsoll fetch OWNER/NAME`");
    free(other);
    free(path);
    return err;
}

/* --- one file or several ---------------------------------------------------------------------- */

PL_PRINTF(3, 4)
static pl_err index_error(const struct pl_weight_files *f, struct pl_diag *d, const char *fmt,
                          ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, f->path, 0, 0, "%s: %s", f->path, text);
}

static const struct pl_st_file *find_shard(const struct pl_weight_files *f, const char *name) {
    const json_t *at = name ? json_object_get(f->shards, name) : NULL;
    return at ? &f->files[json_integer_value(at)] : NULL;
}

static pl_err open_shard(struct pl_weight_files *f, const char *dir, const char *name,
                         struct pl_diag *d) {
    char *path = pl_path_join(dir, name);
    if (!path) return pl_host_oom(d, "a path");
    pl_err err = pl_st_open(&f->files[f->n], path, d);
    if (err == PL_ERR_OK) f->n++;
    free(path);
    return err;
}

static pl_err list_shards(struct pl_weight_files *f, struct pl_diag *d) {
    const char *tensor;
    json_t *value;
    f->shards = json_object();
    if (!f->shards) return pl_host_oom(d, "the list of shards");
    json_object_foreach(f->weight_map, tensor, value) {
        const char *shard = json_string_value(value);
        /* A shard is a file in the directory of the index; a path would leave the directory. */
        if (!shard || !*shard || strchr(shard, '/'))
            return index_error(f, d, "weight_map: the shard of `%s` is not a file name", tensor);
        if (json_object_get(f->shards, shard)) continue;
        const json_int_t at = (json_int_t)json_object_size(f->shards);
        if (json_object_set_new(f->shards, shard, json_integer(at)) != 0)
            return pl_host_oom(d, "the list of shards");
    }
    return PL_ERR_OK;
}

/* All that are not there are counted before the first one is opened. */
static pl_err check_shards(const struct pl_weight_files *f, const char *dir, pl_err absent,
                           struct pl_diag *d) {
    const char *shard, *first = NULL;
    uint64_t missing = 0;
    json_t *at;
    json_object_foreach(f->shards, shard, at) {
        char *path = pl_path_join(dir, shard);
        if (!path) return pl_host_oom(d, "a path");
        if (pl_look_for(path) == PL_NOT_THERE && !missing++) first = shard;
        free(path);
    }
    return missing ? report_missing_shards(f, dir, first, missing, absent, d) : PL_ERR_OK;
}

static pl_err open_shards(struct pl_weight_files *f, const char *dir, pl_err absent,
                          struct pl_diag *d) {
    const char *name;
    json_t *value;
    PL_TRY(list_shards(f, d));
    PL_TRY(check_shards(f, dir, absent, d));
    f->files = pl_calloc(json_object_size(f->shards) + 2, sizeof *f->files);
    if (!f->files) return pl_host_oom(d, "the list of shards");
    json_object_foreach(f->shards, name, value) PL_TRY(open_shard(f, dir, name, d));
    json_object_foreach(f->weight_map, name, value) {
        const char *shard = json_string_value(value);
        if (!pl_st_find(find_shard(f, shard), name))
            return index_error(f, d, "tensor `%s` is not in its shard %s", name, shard);
    }
    return PL_ERR_OK;
}

static pl_err read_index(struct pl_weight_files *f, struct pl_diag *d) {
    json_t *root;
    PL_TRY(pl_json_read(f->path, &root, d));
    json_t *map = json_object_get(root, "weight_map");
    if (json_is_object(map)) f->weight_map = json_incref(map);
    json_decref(root);
    return f->weight_map ? PL_ERR_OK : index_error(f, d, "there is no weight_map");
}

/* A file that cannot be looked at is not missing. */
static pl_err look_for(const char *path, bool *there, struct pl_diag *d) {
    enum pl_there found = pl_look_for(path);
    *there = found == PL_THERE;
    if (found != PL_THERE_UNKNOWN) return PL_ERR_OK;
    return pl_diag_at(d, pl_err_of_errno(PL_ERR_CHECKPOINT_FILE), path, 0, 0,
                      "cannot look for %s: %s", path, strerror(errno));
}

static pl_err open_files(struct pl_weight_files *f, const char *dir, const char *stem,
                         pl_err absent, struct pl_diag *d) {
    char single[64], index[96];
    bool there;
    snprintf(single, sizeof single, "%s.safetensors", stem);
    snprintf(index, sizeof index, "%s.safetensors.index.json", stem);
    f->path = pl_path_join(dir, single);
    if (!f->path) return pl_host_oom(d, "a path");
    PL_TRY(look_for(f->path, &there, d));
    if (there) {
        f->files = pl_calloc(2, sizeof *f->files);
        return f->files ? open_shard(f, dir, single, d) : pl_host_oom(d, "a file");
    }
    free(f->path);
    f->path = pl_path_join(dir, index);
    if (!f->path) return pl_host_oom(d, "a path");
    PL_TRY(look_for(f->path, &there, d));
    if (!there) return pl_weight_files_absent(dir, stem, absent, d);
    PL_TRY(read_index(f, d));
    return open_shards(f, dir, absent, d);
}

static pl_err open_gguf(struct pl_weight_files *f, const char *path, struct pl_diag *d) {
    f->path = pl_strdup(path);
    f->files = pl_calloc(1, sizeof *f->files);
    if (!f->path || !f->files) return pl_host_oom(d, "a file");
    PL_TRY(pl_gguf_weights_open(&f->files[0], path, d));
    f->n = 1;
    return PL_ERR_OK;
}

static pl_err open_directory(struct pl_weight_files *f, const char *dir, const char *stem,
                             pl_err absent, struct pl_diag *d) {
    PL_TRY(pl_save_set_check(dir, d));
    PL_TRY(open_files(f, dir, stem, absent, d));
    if (f->of_adapter || !f->n) return PL_ERR_OK;
    PL_TRY(pl_mxfp4_weights_take(f->files, f->n, &f->files[f->n], &f->has_mxfp4, d));
    f->n += f->has_mxfp4; /* there is room for one more */
    return PL_ERR_OK;
}

pl_err pl_weight_files_open(struct pl_weight_files *f, const char *dir, const char *stem,
                            pl_err absent, struct pl_diag *d) {
    *f = (struct pl_weight_files){.of_adapter = strcmp(stem, PL_ADAPTER_STEM) == 0};
    pl_err err = pl_gguf_is(dir) ? open_gguf(f, dir, d) : open_directory(f, dir, stem, absent, d);
    if (err == PL_ERR_OK) err = pl_plain_names_make(f, d);
    if (err != PL_ERR_OK) pl_weight_files_close(f);
    return err;
}

void pl_weight_files_close(struct pl_weight_files *f) {
    pl_plain_names_finish(f);
    for (uint32_t i = 0; i < f->n; i++)
        pl_st_close(&f->files[i]);
    json_decref(f->weight_map);
    json_decref(f->shards);
    free(f->files);
    free(f->path);
    *f = (struct pl_weight_files){0};
}

static bool find_named(const struct pl_weight_files *f, struct pl_window *w, const char *name) {
    w->file = f->weight_map ? find_shard(f, json_string_value(json_object_get(f->weight_map, name)))
                            : &f->files[0];
    w->entry = w->file ? pl_st_find(w->file, name) : NULL;
    if (w->entry || !f->has_mxfp4) return w->entry != NULL;
    w->file = &f->files[f->n - 1];
    w->entry = pl_st_find(w->file, name);
    return w->entry != NULL;
}

/* P1 of plain_names.h: the name itself comes first. */
bool pl_window_find(const struct pl_weight_files *f, struct pl_window *w) {
    return find_named(f, w, w->name) || pl_plain_names_find(f, w);
}
