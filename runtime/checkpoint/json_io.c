#include "estimator/base/alloc.h"
#include "estimator/base/json_tree.h"
#include "runtime/checkpoint/durable.h"
#include "runtime/checkpoint/json_io.h"
#include "runtime/checkpoint/read_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Seventeen digits bring every double back; fewer would not. */
#define JSON_STYLE (JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(17))

bool pl_json_is_small(const char *text, uint64_t n) {
    uint64_t values = 1;
    for (uint64_t i = 0; i < n; i++)
        values += text[i] == ',' || text[i] == '[' || text[i] == '{';
    return values <= PL_JSON_MOST_VALUES;
}

pl_err pl_json_parse(const char *path, const char *text, uint64_t bytes, json_t **out,
                     struct pl_diag *d) {
    struct pl_json_error e;
    if (!pl_json_is_small(text, bytes))
        return pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, path, 0, 0, "%s: more than %u values", path,
                          PL_JSON_MOST_VALUES);
    *out = pl_json_load(text, (size_t)bytes, 0, &e);
    if (!*out) return pl_json_refuse(&e, PL_ERR_CHECKPOINT_FORMAT, path, d);
    if (json_is_object(*out)) return PL_ERR_OK;
    json_decref(*out);
    *out = NULL;
    return pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, path, 1, 1, "%s: not a JSON object", path);
}

pl_err pl_json_read(const char *path, json_t **out, struct pl_diag *d) {
    char *text = NULL;
    uint64_t bytes;
    PL_TRY(pl_file_read(path, PL_JSON_LIMIT, &text, &bytes, d));
    pl_err err = pl_json_parse(path, text, bytes, out, d);
    free(text);
    return err;
}

char *pl_json_text(const json_t *value) {
    char *text = NULL, *dump = pl_json_dump(value, JSON_STYLE);
    if (dump && pl_asprintf(&text, "%s\n", dump) < 0) text = NULL;
    free(dump);
    return text;
}

pl_err pl_json_put(struct pl_outbox *o, const char *name, const json_t *value, struct pl_diag *d) {
    char *text = value ? pl_json_text(value) : NULL;
    pl_err err = text ? pl_outbox_put(o, name, text, strlen(text), d) : pl_host_oom(d, name);
    free(text);
    return err;
}
