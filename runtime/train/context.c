/* context.c - see context.h. The file:
 * {"schema":1,"entries":[{"device","driver","build","opened_bytes","final_bytes"}, ...]} */
#include "runtime/train/context.h"

#include "estimator/base/cache_dir.h"
#include "estimator/base/checked.h"
#include "estimator/base/text.h"
#include "estimator/card/cards.h"
#include "runtime/checkpoint/checkpoint.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SCHEMA      1
#define MAX_ENTRIES 32
#define MAX_FILE    (1 << 20)

/* --- the file -------------------------------------------------------------------------------- */

/* A new array of entries, empty when there is nothing to be read. NULL: out of memory. */
static json_t *read_entries(void) {
    struct pl_text path = {0};
    struct stat st;
    json_t *root = NULL, *entries = NULL;
    if (pl_cache_dir(&path, false)) {
        pl_text_add(&path, "/context.json");
        if (stat(pl_text_str(&path), &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= MAX_FILE)
            root = json_load_file(pl_text_str(&path), 0, NULL);
    }
    if (json_integer_value(json_object_get(root, "schema")) == SCHEMA)
        entries = json_object_get(root, "entries");
    entries = json_is_array(entries) ? json_incref(entries) : json_array();
    json_decref(root);
    pl_text_finish(&path);
    return entries;
}

static bool is_text(const json_t *entry, const char *key, const char *value) {
    const char *text = json_string_value(json_object_get(entry, key));
    return text && strcmp(text, value) == 0;
}

static bool is_own(const json_t *entry, const struct pl_gpu *gpu, const struct pl_build_id *build) {
    return is_text(entry, "device", gpu->name) && is_text(entry, "driver", gpu->driver) &&
           is_text(entry, "build", build->hex);
}

/* The figures of an entry; false when they cannot be true. */
static bool read_figures(const json_t *entry, const struct pl_gpu *gpu, struct pl_context *out) {
    json_int_t opened = json_integer_value(json_object_get(entry, "opened_bytes"));
    json_int_t final = json_integer_value(json_object_get(entry, "final_bytes"));
    if (opened <= 0 || final < opened || (uint64_t) final > gpu->total_bytes) return false;
    *out = (struct pl_context){.bytes = (uint64_t) final,
                               .growth_bytes = (uint64_t)(final - opened),
                               .source = "earlier runs"};
    return true;
}

static bool recall(const struct pl_gpu *gpu, struct pl_context *out) {
    const struct pl_build_id build = pl_build_id();
    bool found = false;
    if (!build.hex[0]) return false;
    json_t *entries = read_entries();
    for (size_t i = 0; i < json_array_size(entries) && !found; i++) {
        const json_t *entry = json_array_get(entries, i);
        found = is_own(entry, gpu, &build) && read_figures(entry, gpu, out);
    }
    json_decref(entries);
    return found;
}

void pl_context_predict(const struct pl_gpu *gpu, struct pl_context *out) {
    if (recall(gpu, out)) return;
    const struct pl_card *card = pl_card_find(gpu->name);
    *out = (struct pl_context){.bytes = card ? card->context_bytes : PL_CARD_CONTEXT_DEFAULT,
                               .doubt_bytes =
                                   card ? pl_card_context_doubt(card) : PL_CARD_CONTEXT_DEFAULT / 2,
                               .source = card ? "card table" : "default"};
}

static void write_entries(json_t *entries) {
    struct pl_text path = {0};
    json_t *root = json_pack("{s:i, s:O}", "schema", SCHEMA, "entries", entries);
    char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    if (text && pl_cache_dir(&path, true)) {
        pl_text_add(&path, "/context.json");
        if (!path.failed)
            (void)pl_file_write(pl_text_str(&path), text, strlen(text), NULL); /* X1 */
    }
    free(text);
    json_decref(root);
    pl_text_finish(&path);
}

/* The newest entry stands first. */
void pl_context_remember(const struct pl_gpu *gpu, uint64_t opened_bytes, uint64_t final_bytes) {
    const struct pl_build_id build = pl_build_id();
    if (!build.hex[0] || opened_bytes == 0 || final_bytes < opened_bytes) return;
    json_t *entries = read_entries();
    if (!entries) return;
    for (size_t i = json_array_size(entries); i-- > 0;)
        if (is_own(json_array_get(entries, i), gpu, &build) || i >= MAX_ENTRIES - 1)
            json_array_remove(entries, i);
    json_t *entry = json_pack("{s:s, s:s, s:s, s:I, s:I}", "device", gpu->name, "driver",
                              gpu->driver, "build", build.hex, "opened_bytes",
                              (json_int_t)opened_bytes, "final_bytes", (json_int_t)final_bytes);
    if (entry && json_array_insert_new(entries, 0, entry) == 0) write_entries(entries);
    json_decref(entries);
}
