/* paths.c - see paths.h. */
#include "runtime/data/paths.h"

#include "estimator/base/alloc.h"
#include "estimator/base/text.h"
#include "estimator/config/job_values.h"
#include "runtime/data/unpack.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pl_err no_memory(struct pl_diag *d) {
    return pl_host_oom(d, "the list of data files");
}

/* Takes `path`, which may be NULL for want of memory. */
static pl_err add(struct pl_dataset_list *out, const struct pl_dataset *entry, char *path,
                  struct pl_diag *d) {
    struct pl_dataset *items =
        path ? pl_realloc(out->items, ((size_t)out->n + 1) * sizeof *items) : NULL;
    if (!items) {
        free(path);
        return no_memory(d);
    }
    out->items = items;
    items[out->n] = *entry;
    items[out->n++].path = path;
    return PL_ERR_OK;
}

static bool is_data_file(const char *path) {
    static const char *const endings[] = {".jsonl", ".json", ".csv", ".tsv", ".ndjson"};
    size_t n = pl_unpacked_length(path);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t end = strlen(endings[i]);
        if (n > end && strncmp(path + n - end, endings[i], end) == 0) return true;
    }
    return false;
}

/* Adds the files that a pattern matches, sorted; all of them, or data files alone. */
static pl_err add_matches(struct pl_dataset_list *out, const struct pl_dataset *entry,
                          const char *pattern, bool all, struct pl_diag *d) {
    glob_t found;
    pl_err err = PL_ERR_OK;
    int code = glob(pattern, 0, NULL, &found);
    if (code == GLOB_NOMATCH) return PL_ERR_OK;
    if (code != 0) return no_memory(d);
    for (size_t i = 0; i < found.gl_pathc && err == PL_ERR_OK; i++) {
        struct stat st;
        const char *path = found.gl_pathv[i];
        bool file = stat(path, &st) != 0 || !S_ISDIR(st.st_mode);
        if (file && (all || is_data_file(path))) err = add(out, entry, pl_strdup(path), d);
    }
    globfree(&found);
    return err;
}

/* dir/NAME for every name in it: what is special to a pattern stands for itself. */
static pl_err add_directory(struct pl_dataset_list *out, const struct pl_dataset *entry,
                            const char *dir, struct pl_diag *d) {
    struct pl_text pattern = {0};
    for (const char *s = dir; *s; s++)
        pl_text_addf(&pattern, "%s%c", strchr("*?[\\", *s) ? "\\" : "", *s);
    pl_text_add(&pattern, pattern.len && dir[strlen(dir) - 1] == '/' ? "*" : "/*");
    pl_err err =
        pattern.failed ? no_memory(d) : add_matches(out, entry, pl_text_str(&pattern), false, d);
    pl_text_finish(&pattern);
    return err;
}

static pl_err add_pattern(struct pl_dataset_list *out, const struct pl_job *job,
                          const struct pl_dataset *entry, struct pl_diag *d) {
    const char *slash = job->path ? strrchr(job->path, '/') : NULL;
    struct pl_text beside = {0};
    uint32_t before = out->n;
    PL_TRY(add_matches(out, entry, entry->path, true, d));
    if (out->n > before || entry->path[0] == '/' || !slash) return PL_ERR_OK;
    pl_text_addf(&beside, "%.*s/%s", (int)(slash - job->path), job->path, entry->path);
    pl_err err =
        beside.failed ? no_memory(d) : add_matches(out, entry, pl_text_str(&beside), true, d);
    pl_text_finish(&beside);
    return err;
}

static pl_err nothing(const struct pl_job *job, const struct pl_dataset *entry, bool directory,
                      struct pl_diag *d) {
    pl_diag_at(d, PL_ERR_DATA_FILE, job->path, entry->line, entry->column,
               directory ? "no data file in the directory %s" : "no file matches %s", entry->path);
    if (directory)
        pl_diag_hint(d, "files of a directory are read when they end in .jsonl, .json or .csv, or "
                        "these and .gz or .zst; `path: DIR/*` reads every file");
    return PL_ERR_DATA_FILE;
}

static pl_err expand(struct pl_dataset_list *out, const struct pl_job *job,
                     const struct pl_dataset *entry, struct pl_diag *d) {
    struct stat st;
    uint32_t before = out->n;
    pl_err err = PL_ERR_OK;
    char *path = pl_job_input_path(job, entry->path);
    if (!path) return no_memory(d);
    bool there = stat(path, &st) == 0, directory = there && S_ISDIR(st.st_mode);
    const bool unknown = !there && errno != ENOENT && errno != ENOTDIR; /* opening it says more */
    if (!directory && (there || unknown || !strpbrk(entry->path, "*?[")))
        return add(out, entry, path, d);
    err = directory ? add_directory(out, entry, path, d) : add_pattern(out, job, entry, d);
    free(path);
    if (err == PL_ERR_OK && out->n == before) err = nothing(job, entry, directory, d);
    return err;
}

pl_err pl_paths_expand(const struct pl_job *job, const struct pl_dataset_list *list,
                       struct pl_dataset_list *out, struct pl_diag *d) {
    pl_err err = PL_ERR_OK;
    *out = (struct pl_dataset_list){0};
    for (uint32_t i = 0; i < list->n && err == PL_ERR_OK; i++)
        err = expand(out, job, &list->items[i], d);
    if (err != PL_ERR_OK) pl_paths_finish(out);
    return err;
}

void pl_paths_finish(struct pl_dataset_list *files) {
    for (uint32_t i = 0; i < files->n; i++)
        free(files->items[i].path);
    free(files->items);
    *files = (struct pl_dataset_list){0};
}
