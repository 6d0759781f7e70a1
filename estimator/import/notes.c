/* notes.c - reading keys of the document, and what is said of each. */
#include "estimator/import/dialect.h"

#include "estimator/base/alloc.h"
#include "estimator/config/job_text.h"
#include "estimator/config/key_table.h"
#include "estimator/config/key_types.h"
#include "estimator/config/scalar.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- values ---- */

const char *pl_node_text(const struct pl_node *node) {
    return node && node->kind == PL_NODE_SCALAR ? node->text : "";
}

bool pl_node_is_null(const struct pl_node *node) {
    return node->kind == PL_NODE_SCALAR && node->plain && pl_scalar_null(node->text);
}

bool pl_node_flag(const struct pl_node *node, bool *out) {
    static const char *const words[] = {"no", "yes", "off", "on", "false", "true"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcasecmp(pl_node_text(node), words[i]) != 0) continue;
        *out = i % 2;
        return true;
    }
    return false;
}

bool pl_node_bare_number(const struct pl_node *node, char out[PL_NUMBER_BYTES]) {
    const char *text = pl_node_text(node);
    const size_t n = strlen(text);
    if (n >= PL_NUMBER_BYTES || !strchr(text, '_') || strspn(text, "0123456789_.eE+-") != n)
        return false;
    for (; *text; text++)
        if (*text != '_') *out++ = *text;
    *out = 0;
    return true;
}

bool pl_node_number(const struct pl_node *node, double *out) {
    char bare[PL_NUMBER_BYTES];
    double v;
    const char *text = pl_node_bare_number(node, bare) ? bare : pl_node_text(node);
    if (!pl_scalar_float(text, &v) || !(v > -1e300 && v < 1e300)) return false;
    *out = v;
    return true;
}

bool pl_node_is_on(const struct pl_node *node) {
    bool flag;
    double v;
    if (node->kind != PL_NODE_SCALAR) return node->n > 0;
    if (pl_node_flag(node, &flag)) return flag;
    if (pl_node_number(node, &v)) return v != 0;
    return *node->text && !pl_scalar_null(node->text) && strcasecmp(node->text, "none") != 0;
}

/* ---- keys ---- */

const struct pl_node *pl_import_next(const struct pl_import *im, const struct pl_node *of,
                                     uint32_t *i) {
    *i = *i ? im->doc.nodes[*i].next : of->first;
    return *i ? &im->doc.nodes[*i] : NULL;
}

const struct pl_node *pl_import_pair(const struct pl_import *im, const struct pl_node *section,
                                     uint32_t *i, const struct pl_node **value) {
    if (section->kind != PL_NODE_MAPPING) return NULL;
    const struct pl_node *key = pl_import_next(im, section, i);
    *value = key ? pl_import_next(im, section, i) : NULL;
    return key;
}

/* Returns the number of the key `name[0, n)` of a mapping; if it is given twice the last one
 * counts, as in Python. 0: there is none. */
static uint32_t find_key(const struct pl_import *im, const struct pl_node *map, const char *name,
                         size_t n) {
    const struct pl_node *nodes = im->doc.nodes;
    uint32_t found = 0;
    if (map->kind != PL_NODE_MAPPING) return 0;
    for (uint32_t i = map->first; i; i = nodes[nodes[i].next].next)
        if (strncmp(nodes[i].text, name, n) == 0 && !nodes[i].text[n]) found = i;
    return found;
}

const struct pl_node *pl_import_in(const struct pl_import *im, const struct pl_node *section,
                                   const char *name) {
    const uint32_t key = find_key(im, section, name, strlen(name));
    const struct pl_node *value = key ? &im->doc.nodes[im->doc.nodes[key].next] : NULL;
    return value && !pl_node_is_null(value) ? value : NULL;
}

static uint32_t find_path(const struct pl_import *im, const char *path, size_t n) {
    const struct pl_node *at = im->doc.n ? im->doc.nodes : NULL;
    for (uint32_t key = 0; at; at = &im->doc.nodes[im->doc.nodes[key].next]) {
        const char *dot = memchr(path, '.', n);
        const size_t len = dot ? (size_t)(dot - path) : n;
        if (!(key = find_key(im, at, path, len)) || !dot) return key;
        n -= len + 1;
        path = dot + 1;
    }
    return 0;
}

/* Finds the first of the names that is there, is not null, and with `taken` is not taken either. */
static bool find_any(const struct pl_import *im, const char *paths, uint8_t *taken,
                     struct pl_taken *t) {
    const struct pl_node *nodes = im->doc.nodes;
    for (const char *next; paths; paths = next) {
        const char *bar = strchr(paths, '|');
        const uint32_t key = find_path(im, paths, bar ? (size_t)(bar - paths) : strlen(paths));
        next = bar ? bar + 1 : NULL;
        if (!key || (taken && (taken[key] & PL_TAKEN_BY_ROW))) continue;
        if (taken) taken[key] |= PL_TAKEN_BY_ROW;
        *t = (struct pl_taken){paths, &nodes[key], &nodes[nodes[key].next]};
        if (!pl_node_is_null(t->value)) return true;
    }
    return false;
}

bool pl_import_peek(const struct pl_import *im, const char *paths, struct pl_taken *t) {
    return find_any(im, paths, NULL, t);
}

bool pl_import_take(struct pl_import *im, const char *paths, struct pl_taken *t) {
    return find_any(im, paths, im->taken, t);
}

void pl_import_pass(struct pl_import *im, const char *path) {
    struct pl_taken t;
    pl_import_take(im, path, &t);
}

/* ---- notes ---- */

static size_t keep_text(struct pl_import *im, const char *fmt, va_list ap) {
    char text[1024];
    const size_t at = im->pool.len;
    vsnprintf(text, sizeof text, fmt, ap);
    pl_text_addn(&im->pool, text, strlen(text) + 1);
    return at;
}

static size_t keep(struct pl_import *im, const char *fmt, ...) PL_PRINTF(2, 3);
static size_t keep(struct pl_import *im, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const size_t at = keep_text(im, fmt, ap);
    va_end(ap);
    return at;
}

/* "optimizer.lr: 2e-5"; a section or a list is told by its name alone. */
static size_t keep_where(struct pl_import *im, const struct pl_taken *t) {
    char value[PL_EXCERPT_BYTES], name[PL_EXCERPT_BYTES];
    if (!t) return keep(im, "%s", "");
    char path[128];
    snprintf(path, sizeof path, "%.*s", (int)strcspn(t->path, "|"), t->path);
    pl_scalar_excerpt(path, name);
    if (t->value->kind != PL_NODE_SCALAR || !*t->value->text) return keep(im, "%s", name);
    return keep(im, "%s: %s", name, pl_scalar_excerpt(t->value->text, value));
}

static struct pl_import_note *add_note(struct pl_import *im, enum pl_import_fate fate,
                                       enum pl_key_id key, const struct pl_taken *t) {
    struct pl_import_note *notes = pl_grow(im->notes, im->n_notes, sizeof *notes);
    if (!notes) {
        im->err = pl_host_oom(im->d, "the notes of an import");
        return NULL;
    }
    im->notes = notes;
    struct pl_import_note *note = &notes[im->n_notes++];
    *note = (struct pl_import_note){.fate = fate, .key = key, .entry = PL_IMPORT_NO_ENTRY};
    note->line = t ? t->key->line : 0;
    note->where = keep_where(im, t);
    return note;
}

void pl_import_inert(struct pl_import *im, const struct pl_taken *t, const char *fmt, ...) {
    va_list ap;
    struct pl_import_note *note = add_note(im, PL_IMPORT_INERT, PL_KEY_COUNT, t);
    if (!note) return;
    va_start(ap, fmt);
    note->why = keep_text(im, fmt, ap);
    va_end(ap);
}

const char *pl_import_own(struct pl_import *im, const struct pl_text *text) {
    char **owned = pl_grow(im->owned, im->n_owned, sizeof *owned);
    char *value = owned && !text->failed ? pl_strdup(pl_text_str(text)) : NULL;
    if (owned) im->owned = owned;
    if (!value)
        im->err = pl_host_oom(im->d, "a value");
    else
        im->owned[im->n_owned++] = value;
    return value;
}

void pl_import_hold_template(struct pl_import *im, const struct pl_taken *t, const char *text,
                             const char *whose) {
    pl_import_miss(im, t, "%s: `plimsoll import FILE -o job.yaml` writes it to a file", whose);
    if (im->err != PL_ERR_OK) return;
    im->template = text;
    im->template_note = im->n_notes - 1;
}

void pl_import_place_template(struct pl_import *im, const char *name) {
    struct pl_import_note *note = &im->notes[im->template_note];
    uint32_t *of = &im->note_of[PL_KEY_chat_template];
    struct pl_diag d = {0};
    struct pl_text quoted = {0};
    pl_scalar_write(&quoted, name);
    const pl_err err =
        quoted.failed ? PL_ERR_HOST_OOM : pl_job_set(&im->job, "chat_template", quoted.data, &d);
    pl_text_finish(&quoted);
    if (err == PL_ERR_HOST_OOM) im->err = pl_host_oom(im->d, "the template");
    if (err != PL_ERR_OK) return;
    if (*of) {
        im->notes[*of - 1].fate = PL_IMPORT_INERT;
        im->notes[*of - 1].key = PL_KEY_COUNT;
        im->notes[*of - 1].why = keep(im, "line %llu decides", (unsigned long long)note->line);
    }
    note->fate = PL_IMPORT_MAPPED;
    note->key = PL_KEY_chat_template;
    note->why = keep(im, "its text is in that file");
    *of = 1 + im->template_note;
}

void pl_import_miss(struct pl_import *im, const struct pl_taken *t, const char *fmt, ...) {
    va_list ap;
    struct pl_import_note *note = add_note(im, PL_IMPORT_MISSED, PL_KEY_COUNT, t);
    if (!note) return;
    va_start(ap, fmt);
    note->why = keep_text(im, fmt, ap);
    va_end(ap);
}

void pl_import_note_entry(struct pl_import *im, enum pl_import_fate fate, const struct pl_taken *t,
                          const char *fmt, ...) {
    va_list ap;
    struct pl_import_note *note = add_note(im, fate, PL_KEY_COUNT, t);
    if (!note) return;
    note->entry = im->n_data ? im->n_data - 1 : PL_IMPORT_NO_ENTRY;
    va_start(ap, fmt);
    note->why = keep_text(im, fmt, ap);
    va_end(ap);
}

/* ---- values of the job ---- */

static bool assign(struct pl_import *im, enum pl_key_id key, const char *value, struct pl_diag *d) {
    uint32_t n;
    struct pl_text quoted = {0};
    const char *name = pl_key_table(&n)[key].key;
    if (pl_key_fields[key].type == PL_TYPE_STR || pl_key_fields[key].type == PL_TYPE_PATH)
        pl_scalar_write(&quoted, value);
    pl_err err = quoted.failed ? pl_host_oom(d, name)
                               : pl_job_set(&im->job, name, quoted.len ? quoted.data : value, d);
    pl_text_finish(&quoted);
    return err == PL_ERR_OK;
}

bool pl_import_has(const struct pl_import *im, enum pl_key_id key) {
    return im->job.given[key];
}

bool pl_import_said(const struct pl_import *im, enum pl_key_id key) {
    return im->note_of[key] && im->notes[im->note_of[key] - 1].fate == PL_IMPORT_MAPPED;
}

bool pl_import_set(struct pl_import *im, enum pl_key_id key, const char *value,
                   const struct pl_taken *t, const char *why) {
    struct pl_diag d = {0};
    if (!assign(im, key, value, &d)) {
        /* The message begins with the assignment, which the note shows anyway. */
        const char *why_not = strstr(d.message, "`: ");
        if (d.err == PL_ERR_HOST_OOM)
            im->err = pl_host_oom(im->d, "the job");
        else
            pl_import_miss(im, t, "%s", why_not ? why_not + 3 : d.message);
        return false;
    }
    const enum pl_import_fate fate = t ? PL_IMPORT_MAPPED : PL_IMPORT_DEFAULT;
    /* A key of ours has one note: a later value takes the place of an earlier one. */
    struct pl_import_note *note = im->note_of[key] ? &im->notes[im->note_of[key] - 1] : NULL;
    if (note && t && note->fate == PL_IMPORT_MAPPED && note->line != t->key->line) {
        note->fate = PL_IMPORT_INERT;
        note->key = PL_KEY_COUNT;
        note->why = keep(im, "line %llu decides", (unsigned long long)t->key->line);
        note = NULL;
    }
    if (!note) {
        note = add_note(im, fate, key, t);
        im->note_of[key] = im->n_notes;
    } else {
        note->fate = fate;
        note->line = t ? t->key->line : 0;
        note->where = keep_where(im, t);
    }
    if (note) note->why = keep(im, "%s", why ? why : "");
    return true;
}

void pl_import_withdraw(struct pl_import *im, enum pl_key_id key, enum pl_import_fate fate,
                        const char *why) {
    uint32_t n;
    if (im->job.given[key]) pl_job_set(&im->job, pl_key_table(&n)[key].key, "null", NULL);
    if (!im->note_of[key]) return;
    struct pl_import_note *note = &im->notes[im->note_of[key] - 1];
    im->note_of[key] = 0;
    note->key = PL_KEY_COUNT;
    if (note->fate != PL_IMPORT_MAPPED) return;
    note->fate = fate;
    note->why = keep(im, "%s", why);
}
