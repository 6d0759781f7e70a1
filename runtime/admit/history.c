/* A file: {"schema":1,"entries":[{whom it belongs to, "build", figures}, ...]}, the newest
 * first. */
#include "runtime/admit/history.h"

#include "estimator/base/cache_dir.h"
#include "estimator/base/json_tree.h"
#include "estimator/base/text.h"
#include "runtime/checkpoint/durable.h"
#include "runtime/checkpoint/read_file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SCHEMA      1
#define MAX_ENTRIES 32
#define MAX_FILE    (1 << 20)

/* NULL: no document is to be had; *no_memory when that is why. */
static json_t *read_document(const char *path, bool *no_memory) {
    char *text = NULL;
    uint64_t bytes;
    struct pl_json_error e = {0};
    pl_err err = pl_file_read(path, MAX_FILE, &text, &bytes, NULL);
    json_t *root = err == PL_ERR_OK ? pl_json_load(text, (size_t)bytes, 0, &e) : NULL;
    *no_memory = err == PL_ERR_HOST_OOM || (!root && e.no_memory);
    free(text);
    return root;
}

/* A new array of entries, empty when there is nothing to be read. NULL: out of memory, so what the
 * file holds is unknown. *broken: there is a file, and it is none of these. */
static json_t *read_entries(const char *file, bool *broken) {
    struct pl_text path = {0};
    struct stat st;
    json_t *root = NULL, *entries = NULL;
    bool there = false, no_memory = false;
    if (pl_cache_dir(&path, false)) {
        pl_text_addf(&path, "/%s", file);
        there = !path.failed && stat(pl_text_str(&path), &st) == 0;
        if (there && S_ISREG(st.st_mode) && st.st_size <= MAX_FILE)
            root = read_document(pl_text_str(&path), &no_memory);
    }
    no_memory |= path.failed;
    if (json_integer_value(json_object_get(root, "schema")) == SCHEMA)
        entries = json_object_get(root, "entries");
    *broken = there && !no_memory && !json_is_array(entries);
    if (json_is_array(entries))
        json_incref(entries);
    else
        entries = no_memory ? NULL : json_array();
    json_decref(root);
    pl_text_finish(&path);
    return entries;
}

static bool is_text(const json_t *entry, const char *key, const char *value) {
    const char *text = json_string_value(json_object_get(entry, key));
    return text && strcmp(text, value) == 0;
}

static bool is_own(const json_t *entry, const struct pl_memory *m, const char *build) {
    bool own = is_text(entry, "build", build);
    for (size_t i = 0; own && i < PL_MEMORY_OWNERS && m->of[i].key; i++)
        own = is_text(entry, m->of[i].key, m->of[i].value);
    return own;
}

json_t *pl_memory_find(const struct pl_memory *m, bool *broken) {
    const struct pl_build_id build = pl_build_id();
    json_t *found = NULL;
    bool ignored;
    json_t *entries = read_entries(m->file, broken ? broken : &ignored);
    for (size_t i = 0; build.hex[0] && i < json_array_size(entries) && !found; i++) {
        json_t *entry = json_array_get(entries, i);
        if (is_own(entry, m, build.hex)) found = json_incref(entry);
    }
    json_decref(entries);
    return found;
}

static void write_entries(const char *file, json_t *entries) {
    struct pl_text path = {0};
    json_t *root = json_pack("{s:i, s:O}", "schema", SCHEMA, "entries", entries);
    char *text = root ? pl_json_dump(root, JSON_INDENT(1)) : NULL;
    if (text && pl_cache_dir(&path, true)) {
        pl_text_addf(&path, "/%s", file);
        if (!path.failed)
            (void)pl_file_write(pl_text_str(&path), text, strlen(text), NULL); /* X1, X2 */
    }
    free(text);
    json_decref(root);
    pl_text_finish(&path);
}

void pl_memory_put(const struct pl_memory *m, json_t *figures) {
    const struct pl_build_id build = pl_build_id();
    bool broken, whole;
    json_t *entries = build.hex[0] ? read_entries(m->file, &broken) : NULL;
    for (size_t i = json_array_size(entries); i-- > 0;)
        if (is_own(json_array_get(entries, i), m, build.hex) || i >= MAX_ENTRIES - 1)
            json_array_remove(entries, i);
    whole = figures && json_object_set_new(figures, "build", json_string(build.hex)) == 0;
    for (size_t i = 0; whole && i < PL_MEMORY_OWNERS && m->of[i].key; i++)
        whole = json_object_set_new(figures, m->of[i].key, json_string(m->of[i].value)) == 0;
    if (whole && entries && json_array_insert(entries, 0, figures) == 0)
        write_entries(m->file, entries);
    json_decref(figures);
    json_decref(entries);
}
