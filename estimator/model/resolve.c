/* resolve.c - directory or file, hub cache, catalogue: in this order. */
#include "estimator/model/resolve.h"

#include "estimator/base/alloc.h"
#include "estimator/base/open_file.h"
#include "estimator/base/given_file.h"
#include "estimator/base/stand_in.h"
#include "estimator/gguf/gguf_file.h"
#include "estimator/model/catalogue.h"
#include "estimator/model/hub_cache.h"
#include "estimator/model/model.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static pl_err out_of_memory(struct pl_diag *d) {
    return pl_host_oom(d, "a path");
}

/* The text's memory as a string of its own; NULL when an allocation failed. */
static char *take_path(struct pl_text *t) {
    char *s = t->failed ? NULL : t->data;
    if (!s) pl_text_finish(t);
    *t = (struct pl_text){0};
    return s;
}

static char *joined(const char *dir, const char *name) {
    struct pl_text t = {0};
    pl_text_addf(&t, "%s/%s", dir, name);
    return take_path(&t);
}

static bool exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

/* A path that cannot be looked at is neither absent nor a file. */
static pl_err look_at(const char *path, bool *there, bool *directory, struct pl_diag *d) {
    struct stat st;
    *there = stat(path, &st) == 0;
    *directory = *there && S_ISDIR(st.st_mode);
    if (*there || errno == ENOENT || errno == ENOTDIR) return PL_ERR_OK;
    return pl_diag_at(d, pl_err_of_errno(PL_ERR_MODEL_FILE), path, 0, 0, "cannot look at: %s",
                      strerror(errno));
}

static pl_err set_ref(struct pl_model_ref *out, enum pl_model_origin origin, char *config,
                      char *weights_dir, struct pl_diag *d) {
    *out = (struct pl_model_ref){origin, config, weights_dir};
    if (config && (weights_dir || origin == PL_ORIGIN_CATALOGUE)) return PL_ERR_OK;
    pl_model_ref_finish(out);
    return out_of_memory(d);
}

static bool ends_with(const char *s, const char *end) {
    const size_t n = strlen(s), m = strlen(end);
    return n > m && strcmp(s + n - m, end) == 0;
}

/* A GGUF file that is a model by itself: not a later part of a split one, and not the projector of
 * images that llama.cpp puts next to models. */
static bool names_gguf(const char *name) {
    if (!ends_with(name, ".gguf") || fnmatch("*mmproj*", name, 0) == 0) return false;
    return fnmatch("*-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9].gguf", name, 0) != 0 ||
           fnmatch("*-00001-of-*", name, 0) == 0;
}

/* Finds the one GGUF model of a directory that has no config.json; *out stays NULL where there is
 * none. MODEL_FILE: there are several. */
static pl_err find_gguf(const char *path, char **out, struct pl_diag *d) {
    struct pl_text list = {0};
    char *first = NULL;
    uint32_t n = 0;
    DIR *dir = opendir(path);
    if (!dir) return errno == ENOMEM ? pl_host_oom(d, path) : PL_ERR_OK;
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (!names_gguf(e->d_name)) continue;
        if (!n++) first = joined(path, e->d_name);
        if (n <= 4) pl_text_addf(&list, "%s%.80s", n > 1 ? ", " : "", e->d_name);
    }
    closedir(dir);
    pl_err err = n && (!first || list.failed) ? out_of_memory(d) : PL_ERR_OK;
    if (err == PL_ERR_OK && n > 1) {
        err = pl_diag_at(d, PL_ERR_MODEL_FILE, path, 0, 0,
                         "there is no config.json, but %u GGUF files: %s%s", n, pl_text_str(&list),
                         n > 4 ? ", ..." : "");
        pl_diag_hint(d, "name one of these files as the model");
    }
    if (err == PL_ERR_OK && first && pl_gguf_is(first)) {
        *out = first;
        first = NULL;
    }
    free(first);
    pl_text_finish(&list);
    return err;
}

/* A directory of weights without config.json. */
static pl_err refuse_directory(const char *path, struct pl_diag *d) {
    char *name, *weights = joined(path, "model.safetensors");
    const struct pl_stand_in *is = NULL;
    if (!weights) return out_of_memory(d);
    pl_err err = exists(weights) ? PL_ERR_OK : pl_stand_in_list(path, "model", &name, &is, d);
    free(weights);
    if (!is) return err; /* reading config.json says that there is none */
    pl_diag_at(d, PL_ERR_MODEL_FILE, path, 0, 0, "there is no config.json; there is %s: %s", name,
               is->what);
    pl_stand_in_hint(is, path, d);
    free(name);
    return PL_ERR_MODEL_FILE;
}

/* A file of weights, or of rows, where a directory, or config.json, is expected. */
static pl_err refuse_file(const char *path, struct pl_diag *d) {
    char bytes[PL_GIVEN_BYTES];
    if (pl_gguf_is(path)) return PL_ERR_OK;
    FILE *f = pl_fopen_file(path, NULL);
    if (!f) return PL_ERR_OK; /* reading it says why */
    const size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    PL_TRY(pl_given_as_model(path, bytes, n, d));
    if (ends_with(path, ".json")) return PL_ERR_OK;
    const struct pl_stand_in *is = pl_stand_in_find(bytes, n);
    if (ends_with(path, ".safetensors"))
        pl_diag_at(d, PL_ERR_MODEL_FILE, path, 0, 0, "a file of weights, not a model");
    else if (is)
        pl_diag_at(d, PL_ERR_MODEL_FILE, path, 0, 0, "%s", is->what);
    else
        return PL_ERR_OK;
    pl_diag_hint(d, "%s", is ? is->hint : "give the directory that it lies in, with config.json");
    return PL_ERR_MODEL_FILE;
}

static pl_err as_path(const char *path, bool directory, struct pl_model_ref *out,
                      struct pl_diag *d) {
    if (!directory) PL_TRY(refuse_file(path, d));
    char *config = directory ? joined(path, "config.json") : pl_strdup(path), *gguf = NULL;
    pl_err err = PL_ERR_OK;
    if (config && directory && !exists(config)) {
        err = find_gguf(path, &gguf, d);
        if (gguf) {
            free(config);
            return set_ref(out, PL_ORIGIN_PATH, gguf, pl_strdup(gguf), d);
        }
        if (err == PL_ERR_OK) err = refuse_directory(path, d);
    }
    if (err == PL_ERR_OK) return set_ref(out, PL_ORIGIN_PATH, config, pl_strdup(path), d);
    free(config);
    return err;
}

/* "name" or "owner/name" in the letters that the hub allows; anything else, and config.json, is a
 * path. */
static bool is_hub_id(const char *s) {
    const char *slash = strchr(s, '/'), *dot = strrchr(s, '.');
    if (dot && strcmp(dot, ".json") == 0) return false;
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./");
    if (s[n] || s[0] == '.' || s[0] == '/' || n == 0) return false;
    return !slash || (slash[1] && slash[1] != '.' && !strchr(slash + 1, '/'));
}

/* --- the hub cache ---------------------------------------------------------------------------- */

enum cached { CACHED_NO, CACHED_YES, CACHED_BROKEN };

struct snapshot {
    enum cached cached;
    char *repository;        /* owned; NULL: there is no cache */
    struct pl_text dir, why; /* BROKEN: `why` tells it */
    char *gguf;              /* owned: its model where it holds no config.json */
};

/* Finds the snapshot of refs/main. BROKEN: the repository is there, and neither config.json nor one
 * GGUF file is. An error is a lack of memory, which must not be taken for a cache without the
 * model, or a cache of several GGUF files. */
static pl_err find_snapshot(struct snapshot *s, struct pl_diag *d) {
    struct stat st;
    s->cached = CACHED_NO;
    if (stat(s->repository, &st) != 0 || !S_ISDIR(st.st_mode)) return PL_ERR_OK;
    s->cached = CACHED_BROKEN;
    PL_TRY(pl_hub_snapshot(s->repository, "main", &s->dir, &s->why, d));
    if (s->why.len) return PL_ERR_OK;
    char *config = joined(pl_text_str(&s->dir), "config.json");
    if (!config) return out_of_memory(d);
    const bool there = exists(config);
    if (!there) pl_text_addf(&s->why, "%s: %s", config, strerror(errno));
    free(config);
    if (!there) PL_TRY(find_gguf(pl_text_str(&s->dir), &s->gguf, d));
    if (there || s->gguf) s->cached = CACHED_YES;
    return s->why.failed ? out_of_memory(d) : PL_ERR_OK;
}

/* --- all three -------------------------------------------------------------------------------- */

bool pl_model_hub_id(const char *name, char id[PL_KNOWN_ID]) {
    struct pl_known_as as;
    if (pl_catalogue_find(name, &as)) name = as.id;
    if (!strchr(name, '/') || !is_hub_id(name) || strlen(name) >= PL_KNOWN_ID) return false;
    memcpy(id, name, strlen(name) + 1);
    return true;
}

void pl_model_add_fetching(const char *name, struct pl_text *out) {
    char id[PL_KNOWN_ID];
    if (pl_model_hub_id(name, id)) pl_text_addf(out, "`plimsoll fetch %s` fetches the model", id);
}

pl_err pl_model_not_here(const char *name, struct pl_diag *d) {
    struct pl_text fetch = {0};
    pl_model_add_fetching(name, &fetch);
    pl_diag_set(d, PL_ERR_MODEL_WEIGHTS, "the weights of `%s` are not on this machine", name);
    pl_diag_hint(d, "%s; `estimate-vram` and `train --dry-run` need no weights",
                 fetch.len ? pl_text_str(&fetch) : "give the directory of config.json and weights");
    pl_text_finish(&fetch);
    return PL_ERR_MODEL_WEIGHTS;
}

static pl_err refuse_model(const char *name, const char *repository, const char *why,
                           struct pl_diag *d) {
    struct pl_text near = {0}, fetch = {0};
    pl_model_add_fetching(name, &fetch);
    pl_catalogue_nearest(name, &near);
    if (*why)
        pl_diag_set(d, PL_ERR_MODEL_FILE, "the hub cache of `%s` is broken: %s", name, why);
    else
        pl_diag_set(d, PL_ERR_MODEL_FILE,
                    "no model is called `%s`: there is no such directory, no %s, and it is not in "
                    "the catalogue",
                    name, repository ? repository : "hub cache");
    if (*why)
        pl_diag_hint(d, "%s%sgive the directory of its config.json", pl_text_str(&fetch),
                     fetch.len ? " again; or " : "");
    else if (near.len)
        pl_diag_hint(d, "did you mean %s? `plimsoll models` lists what is built in%s%s",
                     pl_text_str(&near), fetch.len ? "; " : "", pl_text_str(&fetch));
    else if (fetch.len)
        pl_diag_hint(d, "%s; or give a directory with config.json", pl_text_str(&fetch));
    else
        pl_diag_hint(d, "give a directory with config.json; `plimsoll models` lists what is "
                        "built in");
    pl_text_finish(&fetch);
    pl_text_finish(&near);
    return PL_ERR_MODEL_FILE;
}

/* Finds the snapshot of the first id that is in the cache. s->repository is that of the last
 * one that was looked for. */
static pl_err find_cached(const char *const ids[2], struct snapshot *s, struct pl_diag *d) {
    for (size_t i = 0; i < 2 && ids[i] && s->cached == CACHED_NO; i++) {
        free(s->repository);
        PL_TRY(pl_hub_repository(PL_HUB_MODEL, ids[i], &s->repository, d));
        if (s->repository) PL_TRY(find_snapshot(s, d));
    }
    return PL_ERR_OK;
}

pl_err pl_model_resolve(const char *name, struct pl_model_ref *out, struct pl_text *notes,
                        struct pl_diag *d) {
    bool there, directory;
    struct pl_known_as as;
    *out = (struct pl_model_ref){0};
    const struct pl_known_model *k = pl_catalogue_find(name, &as);
    PL_TRY(look_at(name, &there, &directory, d));
    if (there || (!k && !is_hub_id(name))) return as_path(name, directory, out, d);

    struct snapshot s = {0};
    if (k && as.guessed && notes) pl_text_addf(notes, "`%s` is taken for %s\n", name, as.id);
    pl_err err = find_cached((const char *const[2]){name, k ? as.id : NULL}, &s, d);
    if (err != PL_ERR_OK) goto out;
    if (s.cached == CACHED_YES && s.gguf) {
        err = set_ref(out, PL_ORIGIN_HUB_CACHE, pl_strdup(s.gguf), pl_strdup(s.gguf), d);
    } else if (s.cached == CACHED_YES) {
        char *config = joined(pl_text_str(&s.dir), "config.json");
        err = set_ref(out, PL_ORIGIN_HUB_CACHE, config, pl_strdup(pl_text_str(&s.dir)), d);
    } else if (k) {
        if (s.cached == CACHED_BROKEN && notes)
            pl_text_addf(notes, "the hub cache of `%s` is broken (%s): taken from the catalogue\n",
                         name, pl_text_str(&s.why));
        struct pl_text path = {0};
        pl_text_addf(&path, PL_CATALOGUE_SCHEME "%s", k->name);
        err = set_ref(out, PL_ORIGIN_CATALOGUE, take_path(&path), NULL, d);
    } else {
        err = refuse_model(name, s.repository, pl_text_str(&s.why), d);
    }
out:
    pl_text_finish(&s.dir);
    pl_text_finish(&s.why);
    free(s.repository);
    free(s.gguf);
    return err;
}

void pl_model_ref_finish(struct pl_model_ref *ref) {
    free(ref->config);
    free(ref->weights_dir);
    *ref = (struct pl_model_ref){0};
}
