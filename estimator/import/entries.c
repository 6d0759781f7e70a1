/* entries.c - entries of `datasets`. A data set of the hub becomes the path under which a command
 * fetches it. */
#include "estimator/import/dialect.h"

#include "estimator/base/alloc.h"
#include "estimator/base/json_tree.h"
#include "estimator/base/open_file.h"
#include "estimator/config/document.h"
#include "estimator/config/job_values.h"
#include "estimator/config/row_slice.h"
#include "estimator/config/scalar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HUB_FOLDER "data"

static bool ends_like_a_file(const char *name) {
    static const char *const ends[] = {".json", ".jsonl", ".ndjson",  ".csv",   ".tsv",  ".gz",
                                       ".zst",  ".txt",   ".parquet", ".arrow", ".yaml", ".yml"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t n = strlen(ends[i]);
        if (strlen(name) > n && strcmp(name + strlen(name) - n, ends[i]) == 0) return true;
    }
    return false;
}

/* True for OWNER/NAME and for the NAME of an old data set, unless a file is called so. */
static bool is_of_hub(const char *name) {
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./";
    const char *slash = strchr(name, '/');
    if (!*name || strchr("./~-", *name) || strspn(name, letters) != strlen(name)) return false;
    if (slash && (!slash[1] || strchr(slash + 1, '/'))) return false;
    return !ends_like_a_file(name) && pl_look_for(name) == PL_NOT_THERE;
}

bool pl_data_is_kind(const char *name) {
    static const char *const kinds[] = {"json", "csv", "text", "parquet", "arrow"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i], name) == 0) return true;
    return false;
}

void pl_data_begin(struct pl_import *im, const struct pl_taken *t, const char *name) {
    char shown[PL_EXCERPT_BYTES];
    struct pl_text path = {0};
    const bool hub = is_of_hub(name);
    pl_text_addf(&path, hub ? HUB_FOLDER "/%s" : "%s", *name ? name : "DATA");
    im->entry_at = im->data.len;
    pl_text_add(&im->data, im->n_data++ ? ", {path: " : "{path: ");
    pl_scalar_write(&im->data, pl_text_str(&path));
    im->data.failed |= path.failed;
    pl_text_finish(&path);
    if (hub)
        pl_import_note_entry(im, PL_IMPORT_MAPPED, t,
                             "`hf download --repo-type dataset %.200s --local-dir " HUB_FOLDER
                             "/%.200s` fetches it",
                             name, name);
    else if (*name)
        pl_import_note_entry(im, PL_IMPORT_MAPPED, t, "%s", pl_scalar_excerpt(name, shown));
    else
        pl_import_note_entry(im, PL_IMPORT_MISSED, t, "it names no data: write `path`");
}

/* Begins a word of the entry; false: it has that word, and the first one counts. */
static bool begin_word(struct pl_import *im, const char *key) {
    char label[64];
    snprintf(label, sizeof label, ", %s: ", key);
    if (im->data.failed || strstr(im->data.data + im->entry_at, label)) return false;
    pl_text_add(&im->data, label);
    return true;
}

void pl_data_word(struct pl_import *im, const char *key, const char *value) {
    if (*value && begin_word(im, key)) pl_scalar_write(&im->data, value);
}

void pl_data_words(struct pl_import *im, const char *key, const struct pl_node *value) {
    uint32_t i = 0;
    const char *separator = "";
    if (!value || value->kind == PL_NODE_MAPPING) return;
    if (value->kind == PL_NODE_SCALAR) {
        pl_data_word(im, key, value->text);
        return;
    }
    if (!value->n || !begin_word(im, key)) return;
    pl_text_add(&im->data, "[");
    for (const struct pl_node *item; (item = pl_import_next(im, value, &i)); separator = ", ") {
        pl_text_add(&im->data, separator);
        pl_scalar_write(&im->data, pl_node_text(item));
    }
    pl_text_add(&im->data, "]");
}

bool pl_data_prefers(struct pl_import *im) {
    const bool prefers = pl_job_prefers(&im->job);
    if (prefers) pl_data_word(im, "format", "preference");
    return prefers;
}

void pl_data_weight(struct pl_import *im, const struct pl_node *value) {
    double v;
    if (pl_node_number(value, &v) && v != 1 && begin_word(im, "weight"))
        pl_scalar_write_f64(&im->data, v);
}

void pl_data_end(struct pl_import *im) {
    pl_text_add(&im->data, "}");
}

void pl_data_samples(struct pl_import *im, uint64_t most) {
    if (most && begin_word(im, "max_samples"))
        pl_text_addf(&im->data, "%llu", (unsigned long long)most);
}

/* Adds the word `split` with the slice after the bracket of `part`, if it is one that a job has. */
static bool add_slice(struct pl_import *im, const char *role, const char *part) {
    struct pl_row_slice slice;
    struct pl_text word = {0};
    const char *hint, *bracket = strchr(part, '[');
    if (!bracket || pl_row_slice_parse(bracket, &slice, &hint)) return false;
    pl_text_add(&word, role);
    pl_row_slice_write(&slice, &word);
    pl_data_word(im, "split", pl_text_str(&word));
    im->data.failed |= word.failed;
    pl_text_finish(&word);
    return true;
}

void pl_data_split(struct pl_import *im, const struct pl_taken *t, const char *role,
                   const char *part) {
    char shown[PL_EXCERPT_BYTES];
    const bool sliced = add_slice(im, role ? role : "train", part);
    pl_scalar_excerpt(part, shown);
    const size_t named = strcspn(shown, "[");
    if (role && !sliced) pl_data_word(im, "split", role);
    if (sliced)
        pl_import_note_entry(im, PL_IMPORT_MAPPED, t, "the rows `%s`", shown);
    else if (strchr(part, '['))
        pl_import_note_entry(im, PL_IMPORT_MISSED, t,
                             "the rows `%s` alone: all rows of the file are read", shown);
    if (!role && named && !(named == strlen("train") && strncmp(part, "train", named) == 0))
        pl_import_note_entry(im, PL_IMPORT_INERT, t, "the split `%.*s`: name its file in `path`",
                             (int)named, shown);
}

static FILE *open_beside(struct pl_import *im, const char *path) {
    const char *slash = strrchr(im->path, '/'), *why;
    char *beside = NULL;
    FILE *f = pl_fopen_file(path, &why);
    if (f || path[0] == '/' || !slash) return f;
    if (pl_asprintf(&beside, "%.*s/%s", (int)(slash - im->path), im->path, path) < 0)
        im->err = pl_host_oom(im->d, path);
    else
        f = pl_fopen_file(beside, &why);
    free(beside);
    return f;
}

json_t *pl_import_json_beside(struct pl_import *im, const char *path) {
    char buf[8192];
    json_t *root = NULL;
    struct pl_json_error e = {0};
    struct pl_text text = {0};
    FILE *f = open_beside(im, path);
    if (!f) return NULL;
    for (size_t n; text.len <= PL_DOCUMENT_BYTES && (n = fread(buf, 1, sizeof buf, f));)
        pl_text_addn(&text, buf, n);
    if (!ferror(f) && !text.failed && text.len <= PL_DOCUMENT_BYTES)
        root = pl_json_load(pl_text_str(&text), text.len, 0, &e);
    if (text.failed || e.no_memory) im->err = pl_host_oom(im->d, path);
    fclose(f);
    pl_text_finish(&text);
    return root;
}
