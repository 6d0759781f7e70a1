#include "runtime/data/paths.h"

#include "estimator/base/alloc.h"
#include "estimator/base/text.h"
#include "estimator/config/job_values.h"
#include "runtime/data/file_kind.h"
#include "runtime/data/unpack.h"

#include <ctype.h>
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
static pl_err add_file(struct pl_dataset_list *out, const struct pl_dataset *entry, char *path,
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
    static const char *const endings[] = {".jsonl", ".json", ".csv", ".tsv", ".ndjson", ".parquet"};
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
        if (file && (all || is_data_file(path))) err = add_file(out, entry, pl_strdup(path), d);
    }
    globfree(&found);
    return err;
}

/* A path in a pattern: what is special to a pattern stands for itself. */
static void add_literal(struct pl_text *pattern, const char *path) {
    for (; *path; path++)
        pl_text_addf(pattern, "%s%c", strchr("*?[\\", *path) ? "\\" : "", *path);
}

/* dir/NAME for every name in it. */
static pl_err add_directory(struct pl_dataset_list *out, const struct pl_dataset *entry,
                            const char *dir, struct pl_diag *d) {
    struct pl_text pattern = {0};
    add_literal(&pattern, dir);
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

/* --- names that no file has ------------------------------------------------------------------- */
static bool is_there(const char *dir, const char *names) {
    struct pl_text pattern = {0};
    glob_t found;
    add_literal(&pattern, dir);
    pl_text_addf(&pattern, "/%s", names);
    const bool there = !pattern.failed && glob(pl_text_str(&pattern), 0, NULL, &found) == 0;
    if (there) globfree(&found);
    pl_text_finish(&pattern);
    return there;
}

#define DATASETS "python3 -c \"import datasets; datasets."
#define TO_ROWS  ".to_json('rows.jsonl')\""

/* Directories without a data file, by what they have. The last row fits any. */
static const struct {
    const char *has, *hint;
} directories[] = {
    {"dataset_dict.json", "a dataset that `datasets` has saved; its rows of one split: " DATASETS
                          "load_from_disk('FILE')['train']" TO_ROWS},
    {"dataset_info.json",
     "a dataset that `datasets` has saved; its rows: " DATASETS "load_from_disk('FILE')" TO_ROWS},
    {"*/*.parquet", "its subdirectories have Parquet files: `path: DIR/*/*.parquet` reads them"},
    {"*.arrow", "it has Arrow files; their rows: " DATASETS
                "load_dataset('arrow', data_files='FILE' + '/*.arrow', split='train')" TO_ROWS},
    {"",
     "files of a directory are read when they end in .jsonl, .json, .csv or .parquet, or these and "
     ".gz or .zst, and none of its subdirectories; `path: DIR/*` reads every file, `DIR/*/*` every "
     "one "
     "of its subdirectories"},
};
#define N_SAVED 2 /* number of these; they have files that end as data files do */

static bool is_saved_dataset(const char *dir) {
    bool saved = false;
    for (size_t i = 0; i < N_SAVED; i++)
        saved = saved || is_there(dir, directories[i].has);
    return saved && (is_there(dir, "*.arrow") || is_there(dir, "*/*.arrow"));
}

static pl_err no_file(const struct pl_job *job, const struct pl_dataset *entry, const char *says,
                      struct pl_diag *d) {
    return pl_diag_at(d, PL_ERR_DATA_FILE, job->path, entry->line, entry->column, "%s %s", says,
                      entry->path);
}

static pl_err nothing_in(const struct pl_job *job, const struct pl_dataset *entry, const char *dir,
                         struct pl_diag *d) {
    size_t i = 0;
    while (*directories[i].has && !is_there(dir, directories[i].has))
        i++;
    pl_err err = no_file(job, entry, "no data file in the directory", d);
    pl_file_hint(d, directories[i].hint, dir);
    return err;
}

/* True if the name may be one of a dataset on a hub: OWNER/NAME or NAME, without an ending. */
static bool may_be_hub_name(const char *name) {
    const char *slash = strchr(name, '/');
    const size_t n = strlen(name);
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("._-/", name[i])) return false;
    return n && name[0] != '.' && name[0] != '/' && name[n - 1] != '/' &&
           (!slash || !strchr(slash + 1, '/')) && !is_data_file(name);
}

/* The first row that the address begins with decides. */
static const struct {
    const char *scheme, *hint;
} addresses[] = {
    {"http", "download it first: curl -LO 'FILE'"},
    {"file:", "write the path alone, without the scheme"},
    {"", "download it first, and name the file"},
};

/* Addresses, and names of datasets on a hub: nothing is fetched. False: it may be a file that is
 * not there, and opening it says so. */
static bool is_elsewhere(const struct pl_job *job, const struct pl_dataset *entry,
                         struct pl_diag *d) {
    const char *path = entry->path;
    if (strstr(path, "://")) {
        size_t i = 0;
        while (strncmp(path, addresses[i].scheme, strlen(addresses[i].scheme)) != 0)
            i++;
        no_file(job, entry, "an address, not a file:", d);
        pl_file_hint(d, addresses[i].hint, path);
        return true;
    }
    if (!may_be_hub_name(path)) return false;
    no_file(job, entry, "no file or directory", d);
    pl_file_hint(d,
                 "check the path; a dataset of the Hugging Face Hub is not fetched, and this "
                 "writes its rows: " DATASETS "load_dataset('FILE', split='train')" TO_ROWS,
                 path);
    return true;
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
    const bool pattern = !there && !unknown && strpbrk(entry->path, "*?[");
    if (directory) {
        if (!is_saved_dataset(path)) err = add_directory(out, entry, path, d);
        if (err == PL_ERR_OK && out->n == before) err = nothing_in(job, entry, path, d);
    } else if (!there && !unknown && is_elsewhere(job, entry, d)) {
        err = PL_ERR_DATA_FILE;
    } else if (pattern) {
        err = add_pattern(out, job, entry, d);
        if (err == PL_ERR_OK && out->n == before) err = no_file(job, entry, "no file matches", d);
    } else {
        return add_file(out, entry, path, d);
    }
    free(path);
    return err;
}

pl_err pl_paths_expand(const struct pl_job *job, const struct pl_dataset_list *list,
                       struct pl_dataset_list *out, struct pl_diag *d) {
    pl_err err = PL_ERR_OK;
    *out = (struct pl_dataset_list){0};
    for (uint32_t i = 0; i < list->n && err == PL_ERR_OK; i++) {
        struct pl_dataset entry = list->items[i];
        entry.number = i;
        err = expand(out, job, &entry, d);
    }
    if (err != PL_ERR_OK) pl_paths_finish(out);
    return err;
}

void pl_paths_finish(struct pl_dataset_list *files) {
    for (uint32_t i = 0; i < files->n; i++)
        free(files->items[i].path);
    free(files->items);
    *files = (struct pl_dataset_list){0};
}
