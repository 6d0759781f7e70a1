/* dialects.c - a document through the tables of its trainer to a job. */
#include "estimator/import/import.h"

#include "estimator/base/alloc.h"
#include "estimator/config/job_text.h"
#include "estimator/config/key_table.h"
#include "estimator/config/meaning.h"
#include "estimator/config/scalar.h"
#include "estimator/config/trainer_words.h"
#include "estimator/config/validate.h"
#include "estimator/import/dialect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct pl_dialect *const dialects[PL_RECIPE_COUNT] = {
    [PL_RECIPE_AXOLOTL] = &pl_dialect_axolotl,
    [PL_RECIPE_LLAMA_FACTORY] = &pl_dialect_llama_factory,
    [PL_RECIPE_TORCHTUNE] = &pl_dialect_torchtune,
    [PL_RECIPE_TRL] = &pl_dialect_trl,
    [PL_RECIPE_UNSLOTH] = &pl_dialect_unsloth,
    [PL_RECIPE_PEFT] = &pl_dialect_peft,
    [PL_RECIPE_ACCELERATE] = &pl_dialect_accelerate,
};

/* ---- interpolation ---- */

#define EXPAND_DEPTH 8
#define EXPAND_STEPS 1000
#define EXPAND_BYTES 65536

/* Replaces ${section.key} by the value of that key; false: there is none, or it is no end. */
static bool expand(const struct pl_import *im, const char *text, int depth, uint32_t *steps,
                   struct pl_text *out) {
    struct pl_taken t;
    char name[128];
    for (const char *open; (open = strstr(text, "${")); text = strchr(open, '}') + 1) {
        const char *close = strchr(open, '}');
        const size_t n = close ? (size_t)(close - open) - 2 : sizeof name;
        if (n >= sizeof name || depth == EXPAND_DEPTH || ++*steps > EXPAND_STEPS) return false;
        memcpy(name, open + 2, n);
        name[n] = 0;
        pl_text_addn(out, text, (size_t)(open - text));
        if (!pl_import_peek(im, name, &t) || t.value->kind != PL_NODE_SCALAR) return false;
        im->taken[t.key - im->doc.nodes] |= PL_TAKEN_BY_VALUE;
        if (!expand(im, t.value->text, depth + 1, steps, out)) return false;
    }
    pl_text_add(out, text);
    return out->len < EXPAND_BYTES && !out->failed;
}

/* A value that cannot be expanded stays as it is, and the key that it is for refuses it. */
static void interpolate(struct pl_import *im) {
    uint32_t steps = 0;
    for (uint32_t i = 0; i < im->doc.n && im->err == PL_ERR_OK; i++) {
        struct pl_node *node = &im->doc.nodes[i];
        struct pl_text text = {0};
        if (node->kind != PL_NODE_SCALAR || !strstr(node->text, "${")) continue;
        if (expand(im, node->text, 0, &steps, &text)) {
            const char *value = pl_import_own(im, &text);
            if (value) node->text = value;
        } else if (text.failed) {
            im->err = pl_host_oom(im->d, "a value");
        }
        pl_text_finish(&text);
    }
}

/* ---- keys that are given twice ---- */

struct named {
    const char *name;
    uint32_t node;
};

static int by_name(const void *a, const void *b) {
    const struct named *x = a, *y = b;
    const int order = strcmp(x->name, y->name);
    return order ? order : (x->node > y->node) - (x->node < y->node);
}

/* The last of several keys counts, as in Python; the others are told and read no more. */
static void tell_repeated(struct pl_import *im, const struct pl_node *map, struct named *room) {
    const struct pl_node *nodes = im->doc.nodes;
    uint32_t n = 0;
    for (uint32_t i = map->first; i; i = nodes[nodes[i].next].next)
        room[n++] = (struct named){nodes[i].text, i};
    qsort(room, n, sizeof *room, by_name);
    for (uint32_t i = 0; i + 1 < n; i++) {
        const struct pl_node *key = &nodes[room[i].node], *next = &nodes[room[i + 1].node];
        if (strcmp(room[i].name, room[i + 1].name) != 0) continue;
        const struct pl_taken t = {key->text, key, &nodes[key->next]};
        im->taken[room[i].node] = PL_TAKEN_BY_ROW;
        pl_import_inert(im, &t, "given again on line %llu, which counts",
                        (unsigned long long)next->line);
    }
}

static void tell_all_repeated(struct pl_import *im) {
    struct named *room = pl_calloc(im->doc.n, sizeof *room);
    if (!room) im->err = pl_host_oom(im->d, "the configuration");
    for (uint32_t i = 0; room && i < im->doc.n; i++)
        if (im->doc.nodes[i].kind == PL_NODE_MAPPING && im->doc.nodes[i].n > 2)
            tell_repeated(im, &im->doc.nodes[i], room);
    free(room);
}

/* ---- tables ---- */

static void fill_presets(struct pl_import *im, const struct pl_import_row *row) {
    char value[64];
    for (; row->paths && im->err == PL_ERR_OK; row++) {
        if (!row->preset || pl_import_has(im, row->key)) continue;
        const char *bar = strchr(row->preset, '|');
        snprintf(value, sizeof value, "%.*s", (int)strcspn(row->preset, "|"), row->preset);
        pl_import_set(im, row->key, value, NULL, bar ? bar + 1 : NULL);
    }
}

static void read_tables(struct pl_import *im, const struct pl_dialect *dialect) {
    struct pl_taken t;
    for (size_t i = 0; dialect->tables[i]; i++)
        for (const struct pl_import_row *r = dialect->tables[i]; r->paths && im->err == PL_ERR_OK;
             r++)
            while (pl_import_take(im, r->paths, &t))
                r->map(im, r, &t);
    for (size_t i = 0; dialect->tables[i]; i++)
        fill_presets(im, dialect->tables[i]);
    for (size_t i = 0; dialect->rules[i] && im->err == PL_ERR_OK; i++)
        dialect->rules[i](im);
}

/* ---- what no row has read ---- */

static bool has_taken(const struct pl_import *im, const struct pl_node *map) {
    for (uint32_t i = map->first; i; i = im->doc.nodes[im->doc.nodes[i].next].next) {
        const struct pl_node *value = &im->doc.nodes[im->doc.nodes[i].next];
        if (im->taken[i] & PL_TAKEN_BY_ROW) return true;
        if (value->kind == PL_NODE_MAPPING && has_taken(im, value)) return true;
    }
    return false;
}

static void tell_key(struct pl_import *im, const struct pl_taken *t) {
    const struct pl_trainer_key *known = pl_trainer_key(t->key->text);
    if (pl_node_is_null(t->value)) return; /* an empty value is how recipes leave a key out */
    if (im->taken[t->key - im->doc.nodes] & PL_TAKEN_BY_VALUE)
        pl_import_inert(im, t, "other lines use it");
    else if (!known)
        pl_import_miss(im, t, "this key is not known here");
    else if (known->fate == PL_TRAINER_INERT)
        pl_import_inert(im, t, "%s", known->text);
    else if (known->fate == PL_TRAINER_WRITE)
        pl_import_miss(im, t, "write %s", known->text);
    else if (pl_node_is_on(t->value))
        pl_import_miss(im, t, "%s: not supported", known->text);
    else
        pl_import_inert(im, t, "off, as it is here");
}

/* `path` is where `map` lies, with its dot. */
static void tell_rest(struct pl_import *im, const struct pl_node *map, const char *path) {
    const struct pl_node *nodes = im->doc.nodes;
    for (uint32_t i = map->first; i && im->err == PL_ERR_OK; i = nodes[nodes[i].next].next) {
        struct pl_text name = {0};
        const struct pl_node *value = &nodes[nodes[i].next];
        if (im->taken[i] & PL_TAKEN_BY_ROW) continue;
        const bool inside = value->kind == PL_NODE_MAPPING && has_taken(im, value);
        pl_text_addf(&name, "%s%s%s", path, nodes[i].text, inside ? "." : "");
        const struct pl_taken t = {pl_text_str(&name), &nodes[i], value};
        if (name.failed)
            im->err = pl_host_oom(im->d, "the name of a key");
        else if (inside)
            tell_rest(im, value, t.path);
        else
            tell_key(im, &t);
        pl_text_finish(&name);
    }
}

/* ---- the job as a whole ---- */

static void set_data(struct pl_import *im) {
    struct pl_text list = {0};
    struct pl_diag d = {0};
    if (!im->n_data) return;
    pl_text_addf(&list, "[%s]", pl_text_str(&im->data));
    if (list.failed || im->data.failed)
        im->err = pl_host_oom(im->d, "the data of a job");
    else if (pl_job_set(&im->job, "datasets", list.data, &d) == PL_ERR_HOST_OOM)
        im->err = pl_host_oom(im->d, "the data of a job");
    else if (d.err != PL_ERR_OK)
        pl_import_miss(im, NULL, "`datasets`: %s", d.message);
    pl_text_finish(&list);
}

/* A key that means nothing with the others, or with the stage, is inert; a default of such a key
 * is not told. */
static void drop_useless(struct pl_import *im) {
    for (uint32_t i = 0; i < PL_KEY_COUNT; i++) {
        struct pl_text why = {0};
        const enum pl_key_id key = (enum pl_key_id)i;
        if (pl_job_key_is_useless(&im->job, key, &why) ||
            pl_job_key_is_of_other_stage(&im->job, key, &why))
            pl_import_withdraw(im, key, PL_IMPORT_INERT, pl_text_str(&why));
        im->pool.failed |= why.failed;
        pl_text_finish(&why);
    }
}

static void judge(struct pl_import *im) {
    struct pl_diag_list all = {0};
    struct pl_diag d = {.all = &all};
    pl_diag_begin(&d);
    pl_err err = pl_job_require_keys(&im->job, true, &d);
    if (err == PL_ERR_OK) err = pl_job_validate(&im->job, &d);
    if (pl_diag_first(&d, err) == PL_ERR_HOST_OOM) im->err = pl_host_oom(im->d, "the job");
    for (uint32_t i = 0; i < all.n; i++)
        pl_import_miss(im, NULL, "%s: %s", all.items[i].message, pl_diag_hint_text(&all.items[i]));
}

static void run(struct pl_import *im) {
    const struct pl_dialect *dialect = dialects[im->from];
    if (dialect->interpolates) interpolate(im);
    if (im->err == PL_ERR_OK) tell_all_repeated(im);
    if (im->err == PL_ERR_OK) read_tables(im, dialect);
    if (im->err == PL_ERR_OK) tell_rest(im, im->doc.nodes, "");
    if (im->err == PL_ERR_OK) set_data(im);
    if (im->err == PL_ERR_OK) pl_import_drop_refused(im);
    if (im->err == PL_ERR_OK) drop_useless(im);
    if (im->err == PL_ERR_OK) judge(im);
    if (im->err == PL_ERR_OK && im->pool.failed) im->err = pl_host_oom(im->d, "the notes");
}

static pl_err choose(struct pl_import *im, enum pl_recipe from, const struct pl_origin *origin) {
    if (!im->doc.n || im->doc.nodes[0].kind != PL_NODE_MAPPING)
        return pl_origin_fail(origin, im->doc.nodes, PL_ERR_CONFIG_SYNTAX, im->d,
                              "a configuration is lines of `key: value`");
    im->from = from ? from : pl_recipe_find(&im->doc);
    if (im->from != PL_RECIPE_NONE) return PL_ERR_OK;
    pl_origin_fail(origin, NULL, PL_ERR_CONFIG_FOREIGN, im->d,
                   "its keys are not those of a trainer that is known here");
    pl_diag_hint(im->d, "`--from NAME` says whose they are; a job of ours needs no import");
    return PL_ERR_CONFIG_FOREIGN;
}

pl_err pl_import_parse(struct pl_import *im, const char *path, const char *yaml, uint64_t bytes,
                       enum pl_recipe from, struct pl_diag *d) {
    const struct pl_origin origin = {.file = path};
    struct pl_diag own = {0};
    *im = (struct pl_import){.d = d ? d : &own};
    pl_err err = pl_document_parse(&im->doc, &origin, yaml, bytes, im->d);
    if (err == PL_ERR_OK) err = choose(im, from, &origin);
    if (err != PL_ERR_OK) goto out;
    im->path = pl_strdup(path);
    im->taken = pl_calloc(im->doc.n, sizeof *im->taken);
    pl_text_addn(&im->pool, "", 1);
    if (!im->path || !im->taken || im->pool.failed) err = pl_host_oom(im->d, "the configuration");
    if (err == PL_ERR_OK) err = pl_job_defaults(&im->job, im->d);
    if (err == PL_ERR_OK) run(im);
    if (err == PL_ERR_OK) err = im->err;
out:
    if (err != PL_ERR_OK) pl_import_finish(im);
    im->d = NULL;
    return err;
}

pl_err pl_import_read(struct pl_import *im, const char *path, enum pl_recipe from,
                      struct pl_diag *d) {
    struct pl_text yaml = {0};
    *im = (struct pl_import){0};
    pl_err err = pl_config_read_file(path, &yaml, d);
    if (err == PL_ERR_OK) err = pl_import_parse(im, path, pl_text_str(&yaml), yaml.len, from, d);
    pl_text_finish(&yaml);
    return err;
}

void pl_import_finish(struct pl_import *im) {
    for (uint32_t i = 0; i < im->n_owned; i++)
        free(im->owned[i]);
    free(im->owned);
    free(im->notes);
    free(im->taken);
    free(im->path);
    pl_job_finish(&im->job);
    pl_document_finish(&im->doc);
    pl_text_finish(&im->pool);
    pl_text_finish(&im->data);
    *im = (struct pl_import){0};
}
