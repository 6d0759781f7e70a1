/* write.c - an import as YAML with comments, as a list, and as rows of an answer. */
#include "estimator/import/import.h"

#include "estimator/base/json_tree.h"
#include "estimator/config/datasets.h"
#include "estimator/config/job_text.h"
#include "estimator/config/key_table.h"
#include "estimator/config/scalar.h"

#include <string.h>

static const char *text_at(const struct pl_import *im, size_t at) {
    return im->pool.data + at;
}

/* Text of the file inside a comment: what YAML takes for the end of a line would end it. */
static void add_comment(struct pl_text *out, const char *text) {
    uint32_t c;
    for (unsigned n; *text; text += n ? n : 1) {
        n = pl_utf8_next(text, &c);
        const bool control = c < 0x20 || (c >= 0x7f && c < 0xa0);
        if (!n || control || c == 0x2028 || c == 0x2029 || c == 0xfeff || c == 0xfffe ||
            c == 0xffff)
            pl_text_add(out, "?");
        else
            pl_text_addn(out, text, n);
    }
}

uint32_t pl_import_count(const struct pl_import *im, enum pl_import_fate fate) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < im->n_notes; i++)
        n += im->notes[i].fate == fate;
    return n;
}

/* "line 12, `rl: grpo`: training on rewards" */
static void add_note(const struct pl_import *im, const struct pl_import_note *note,
                     struct pl_text *out) {
    const char *where = text_at(im, note->where), *why = text_at(im, note->why);
    if (note->line) pl_text_addf(out, "line %llu", (unsigned long long)note->line);
    if (*where) pl_text_add(out, note->line ? ", `" : "`");
    add_comment(out, where);
    if (*where) pl_text_add(out, "`");
    if (*why && (*where || note->line)) pl_text_add(out, ": ");
    add_comment(out, why);
}

static void add_list(const struct pl_import *im, enum pl_import_fate fate, const char *heading,
                     const char *mark, struct pl_text *out) {
    bool any = false;
    for (uint32_t i = 0; i < im->n_notes; i++) {
        const bool shown = fate != PL_IMPORT_MISSED && im->notes[i].entry != PL_IMPORT_NO_ENTRY;
        if (im->notes[i].fate != fate || shown)
            continue; /* shown with the entry that it is about */
        if (!any) pl_text_add(out, heading);
        any = true;
        pl_text_add(out, mark);
        add_note(im, &im->notes[i], out);
        pl_text_add(out, "\n");
    }
}

void pl_import_write_missed(const struct pl_import *im, struct pl_text *out) {
    add_list(im, PL_IMPORT_MISSED, "", "", out);
}

static const struct pl_import_note *note_of(const struct pl_import *im, enum pl_key_id key) {
    return im->note_of[key] ? &im->notes[im->note_of[key] - 1] : NULL;
}

/* True if the line of theirs is the line that is written, as most are. */
static bool is_same(const struct pl_import *im, const struct pl_import_note *note) {
    uint32_t n;
    struct pl_text line = {0};
    pl_text_addf(&line, "%s: ", pl_key_table(&n)[note->key].key);
    pl_job_write_key(&im->job, note->key, &line);
    const bool same = !line.failed && strcmp(pl_text_str(&line), text_at(im, note->where)) == 0;
    pl_text_finish(&line);
    return same && !*text_at(im, note->why);
}

/* "  # line 12, `lora_rank: 8`" or "  # the default of axolotl". */
static void add_origin(const struct pl_import *im, const struct pl_import_note *note,
                       struct pl_text *out) {
    if (!note) return;
    pl_text_add(out, "  # ");
    if (note->fate == PL_IMPORT_MAPPED && is_same(im, note)) {
        pl_text_addf(out, "line %llu", (unsigned long long)note->line);
        return;
    }
    if (note->fate == PL_IMPORT_MAPPED) {
        add_note(im, note, out);
        return;
    }
    pl_text_addf(out, "the default of %s", pl_recipe_title(im->from));
    if (*text_at(im, note->why)) pl_text_add(out, ": ");
    add_comment(out, text_at(im, note->why));
}

/* The notes of entries stand in the order of the entries. */
static void add_datasets(const struct pl_import *im, struct pl_text *out) {
    uint32_t k = 0;
    for (uint32_t i = 0; i < im->job.datasets.n; i++) {
        struct pl_dataset_list one = {&im->job.datasets.items[i], 1};
        struct pl_text text = {0};
        for (; k < im->n_notes; k++) {
            const uint32_t entry = im->notes[k].entry;
            if (entry != PL_IMPORT_NO_ENTRY && entry > i) break;
            if (entry != i || im->notes[k].fate == PL_IMPORT_MISSED) continue;
            pl_text_add(out, "  # ");
            add_note(im, &im->notes[k], out);
            pl_text_add(out, "\n");
        }
        pl_datasets_print(NULL, &one, &text);
        pl_text_add(out, "  - ");
        if (text.len > 2) pl_text_addn(out, text.data + 1, text.len - 2); /* without the brackets */
        pl_text_add(out, "\n");
        out->failed |= text.failed;
        pl_text_finish(&text);
    }
}

static void add_key(const struct pl_import *im, enum pl_key_id key, struct pl_text *out) {
    uint32_t n;
    pl_text_addf(out, "%s:", pl_key_table(&n)[key].key);
    if (key == PL_KEY_datasets) {
        pl_text_add(out, "\n");
        add_datasets(im, out);
        return;
    }
    pl_text_add(out, " ");
    pl_job_write_key(&im->job, key, out);
    add_origin(im, note_of(im, key), out);
    pl_text_add(out, "\n");
}

void pl_import_write(const struct pl_import *im, struct pl_text *out) {
    pl_text_add(out, "# Imported from ");
    add_comment(out, im->path);
    pl_text_addf(out, ", a configuration of %s.\n", pl_recipe_title(im->from));
    add_list(im, PL_IMPORT_MISSED, "# Not supported, or not as it is there:\n", "#   ", out);
    for (uint32_t i = 0; i < PL_KEY_COUNT; i++)
        if (im->job.given[i]) add_key(im, (enum pl_key_id)i, out);
    add_list(im, PL_IMPORT_INERT, "# Without effect on what is learned here:\n", "#   ", out);
}

/* ---- JSON ---- */

static json_t *safe_string(const char *text) {
    struct pl_text safe = {0};
    add_comment(&safe, text);
    json_t *s = safe.failed ? NULL : json_stringn(pl_text_str(&safe), safe.len);
    pl_text_finish(&safe);
    return s;
}

static json_t *note_json(const struct pl_import *im, const struct pl_import_note *note) {
    uint32_t n;
    json_t *o = json_object();
    if (note->key != PL_KEY_COUNT) {
        struct pl_text value = {0};
        pl_job_write_key(&im->job, note->key, &value);
        pl_json_set(&o, "key", json_string(pl_key_table(&n)[note->key].key));
        pl_json_set(&o, "value", value.failed ? NULL : json_string(pl_text_str(&value)));
        pl_text_finish(&value);
    }
    if (note->line) pl_json_set(&o, "line", json_integer((json_int_t)note->line));
    if (*text_at(im, note->where)) pl_json_set(&o, "from", safe_string(text_at(im, note->where)));
    if (*text_at(im, note->why)) pl_json_set(&o, "why", safe_string(text_at(im, note->why)));
    return o;
}

static json_t *list_json(const struct pl_import *im, enum pl_import_fate fate) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < im->n_notes; i++) {
        const struct pl_import_note *note = &im->notes[i];
        const bool dropped = note->fate == PL_IMPORT_DEFAULT && note->key == PL_KEY_COUNT;
        if (note->fate == fate && !dropped) pl_json_append(&list, note_json(im, note));
    }
    return list;
}

void pl_import_report(const struct pl_import *im, struct pl_report *r) {
    static const char *const names[PL_IMPORT_FATES] = {"mapped", "defaults", "inert",
                                                       "not_supported"};
    struct pl_text yaml = {0};
    pl_import_write(im, &yaml);
    pl_report_word(r, "framework", pl_recipe_name(im->from));
    for (int i = 0; i < PL_IMPORT_FATES; i++)
        pl_report_tree(r, names[i], list_json(im, (enum pl_import_fate)i));
    pl_report_text(r, "yaml", &yaml);
}
