/* datasets.c - the entries of `datasets` and `eval_datasets`. */
#include "estimator/config/datasets.h"

#include "estimator/base/alloc.h"
#include "estimator/config/key_input.h"
#include "estimator/config/key_table.h"
#include "estimator/config/scalar.h"

#include <stdlib.h>
#include <string.h>

static const char *const dataset_formats[] =
    {/* PL_FORMAT_* */
     "auto", "tokens", "text", "alpaca", "messages", "sharegpt", "prompt_completion", "preference"};
static const char *const dataset_splits[] = {"train", "eval", "validation",
                                             "test"}; /* PL_SPLIT_*; after eval come its synonyms */

#define WEIGHT_MIN 0.001
#define WEIGHT_MAX 1000.0

static bool is_null(const struct pl_node *node) {
    return node->kind == PL_NODE_SCALAR && node->plain && pl_scalar_null(node->text);
}

/* The number of the word in `words`, which ends at the end of the value or at `end`; an empty value
 * leaves *out alone. */
static pl_err parse_word(const struct pl_key_input *in, const struct pl_node *node, const char *key,
                         const char *end, const char *const *words, uint32_t n, uint32_t *out) {
    char buf[PL_EXCERPT_BYTES];
    struct pl_text list = {0};
    if (node->kind != PL_NODE_SCALAR)
        return pl_origin_fail(in->origin, node, PL_ERR_CONFIG_TYPE, in->d,
                              "`%s` of an entry of `%s` must be one word", key, in->written);
    if (is_null(node)) return PL_ERR_OK;
    const size_t len = strcspn(node->text, end);
    for (uint32_t i = 0; i < n; i++) {
        if (strncmp(node->text, words[i], len) == 0 && !words[i][len]) {
            *out = i;
            pl_text_finish(&list);
            return PL_ERR_OK;
        }
        pl_text_addf(&list, "%s%s", i ? ", " : "", words[i]);
    }
    pl_err err = pl_origin_fail(in->origin, node, PL_ERR_CONFIG_RANGE, in->d,
                                "`%s: %s` is not among the choices: %s", key,
                                pl_scalar_excerpt(node->text, buf), pl_text_str(&list));
    pl_text_finish(&list);
    const char *near = pl_text_nearest(node->text, words, n);
    if (near) pl_diag_hint(in->d, "did you mean `%s`?", near);
    return err;
}

static pl_err parse_format(const struct pl_key_input *in, const struct pl_node *node,
                           struct pl_dataset *out) {
    return parse_word(in, node, "format", "", dataset_formats,
                      sizeof dataset_formats / sizeof *dataset_formats, &out->format);
}

/* The part of the rows after the word, where there is one. */
static pl_err parse_slice(const struct pl_key_input *in, const struct pl_node *node,
                          struct pl_row_slice *out) {
    char buf[PL_EXCERPT_BYTES];
    const char *bracket = strchr(node->text, '['), *hint;
    const char *wrong = bracket ? pl_row_slice_parse(bracket, out, &hint) : NULL;
    if (!wrong) return PL_ERR_OK;
    pl_err err = pl_origin_fail(in->origin, node, PL_ERR_CONFIG_RANGE, in->d, "`split: %s` %s",
                                pl_scalar_excerpt(node->text, buf), wrong);
    return hint ? pl_key_fail_hint(in, err, hint) : err;
}

static pl_err parse_split(const struct pl_key_input *in, const struct pl_node *node,
                          struct pl_dataset *out) {
    PL_TRY(parse_word(in, node, "split", "[", dataset_splits,
                      sizeof dataset_splits / sizeof *dataset_splits, &out->split));
    if (out->split > PL_SPLIT_EVAL) out->split = PL_SPLIT_EVAL;
    return parse_slice(in, node, &out->slice);
}

static pl_err parse_weight(const struct pl_key_input *in, const struct pl_node *node,
                           struct pl_dataset *out) {
    char buf[PL_EXCERPT_BYTES];
    double v;
    if (is_null(node)) return PL_ERR_OK;
    if (node->kind != PL_NODE_SCALAR || !node->plain || !pl_scalar_float(node->text, &v))
        return pl_origin_fail(in->origin, node, PL_ERR_CONFIG_TYPE, in->d,
                              "`weight` of an entry of `%s` must be a number", in->written);
    if (!(v >= WEIGHT_MIN && v <= WEIGHT_MAX))
        return pl_key_fail_hint(
            in,
            pl_origin_fail(in->origin, node, PL_ERR_CONFIG_RANGE, in->d,
                           "`weight` is %s, outside %g to %g", pl_scalar_excerpt(node->text, buf),
                           WEIGHT_MIN, WEIGHT_MAX),
            "2 passes over the file twice an epoch, 0.5 over half of it; to leave a "
            "file out, remove its entry");
    out->weight = v;
    return PL_ERR_OK;
}

static pl_err parse_max_samples(const struct pl_key_input *in, const struct pl_node *node,
                                struct pl_dataset *out) {
    uint64_t v;
    if (is_null(node)) return PL_ERR_OK;
    if (node->kind != PL_NODE_SCALAR || !node->plain || pl_scalar_int(node->text, &v) != PL_INT_OK)
        return pl_origin_fail(in->origin, node, PL_ERR_CONFIG_TYPE, in->d,
                              "`max_samples` of an entry of `%s` must be a whole number",
                              in->written);
    if (!v)
        return pl_key_fail_hint(in,
                                pl_origin_fail(in->origin, node, PL_ERR_CONFIG_RANGE, in->d,
                                               "`max_samples` is 0, and at least 1"),
                                "to leave a file out, remove its entry");
    out->max_samples = v;
    return PL_ERR_OK;
}

static pl_err parse_path(const struct pl_key_input *in, const struct pl_node *node,
                         struct pl_dataset *out) {
    if (is_null(node)) return pl_key_wrong_type(in, node, "a list with a path each");
    PL_TRY(pl_key_copy_path(in, node, "a list with a path each", &out->path));
    out->line = node->line;
    out->column = node->column;
    return PL_ERR_OK;
}

/* A name, or a list of names, which are kept as one text with commas. */
static pl_err parse_column(const struct pl_key_input *in, const struct pl_node *node,
                           const char *key, char **out) {
    static const char wanted[] = "the name of a column, or a list of words";
    struct pl_text words = {0};
    if (is_null(node)) return PL_ERR_OK;
    if (node->kind == PL_NODE_MAPPING)
        return pl_origin_fail(in->origin, node, PL_ERR_CONFIG_TYPE, in->d,
                              "`%s` must be %s, not a mapping", key, wanted);
    if (node->kind == PL_NODE_SCALAR) return pl_key_copy_text(in, node, wanted, out);
    for (uint32_t i = node->first; i; i = in->doc->nodes[i].next) {
        const struct pl_node *word = &in->doc->nodes[i];
        if (word->kind != PL_NODE_SCALAR || !*word->text) {
            pl_text_finish(&words);
            return pl_key_wrong_type(in, word, wanted);
        }
        pl_text_addf(&words, "%s%s", words.len ? "," : "", word->text);
    }
    if (words.len && !words.failed) *out = pl_strdup(pl_text_str(&words));
    bool failed = words.len && !*out;
    pl_text_finish(&words);
    return failed ? pl_key_out_of_memory(in) : PL_ERR_OK;
}

/* Keys of an entry, ours first; a section is a mapping of keys of its own, as axolotl
 * (message_property_mappings, roles) and LLaMA-Factory (columns, tags) write them. */
static const struct entry_key {
    const char *section, *key;
    pl_err (*parse)(const struct pl_key_input *, const struct pl_node *, struct pl_dataset *);
    enum pl_column column; /* the column, if `parse` is NULL */
} entry_keys[] = {
    {NULL, "path", parse_path, 0},
    {NULL, "format", parse_format, 0},
    {NULL, "weight", parse_weight, 0},
    {NULL, "max_samples", parse_max_samples, 0},
    {NULL, "split", parse_split, 0},
#define X(column, key) {NULL, #key, NULL, PL_COLUMN_##column},
    PL_COLUMNS(X)
#undef X
        {NULL, "field", NULL, PL_COLUMN_TEXT},
    {"message_property_mappings", "role", NULL, PL_COLUMN_ROLE},
    {"message_property_mappings", "content", NULL, PL_COLUMN_CONTENT},
    {"roles", "user", NULL, PL_COLUMN_USER_WORDS},
    {"roles", "assistant", NULL, PL_COLUMN_ASSISTANT_WORDS},
    {"roles", "system", NULL, PL_COLUMN_SYSTEM_WORDS},
    {"columns", "prompt", NULL, PL_COLUMN_INSTRUCTION},
    {"columns", "query", NULL, PL_COLUMN_INPUT},
    {"columns", "response", NULL, PL_COLUMN_OUTPUT},
    {"columns", "system", NULL, PL_COLUMN_SYSTEM},
    {"columns", "messages", NULL, PL_COLUMN_MESSAGES},
    {"tags", "role_tag", NULL, PL_COLUMN_ROLE},
    {"tags", "content_tag", NULL, PL_COLUMN_CONTENT},
    {"tags", "user_tag", NULL, PL_COLUMN_USER_WORDS},
    {"tags", "assistant_tag", NULL, PL_COLUMN_ASSISTANT_WORDS},
    {"tags", "system_tag", NULL, PL_COLUMN_SYSTEM_WORDS},
};
#define N_ENTRY_KEYS (sizeof entry_keys / sizeof *entry_keys)

static bool in_section(const struct entry_key *k, const char *section) {
    return section ? k->section && strcmp(k->section, section) == 0 : !k->section;
}

static bool is_section(const char *name) {
    for (size_t i = 0; i < N_ENTRY_KEYS; i++)
        if (in_section(&entry_keys[i], name)) return true;
    return false;
}

static pl_err unknown_dataset_key(const struct pl_key_input *in, const struct pl_node *key,
                                  const char *section) {
    char buf[PL_EXCERPT_BYTES];
    const char *names[2 * N_ENTRY_KEYS];
    uint32_t n = 0;
    pl_err err = pl_origin_fail(in->origin, key, PL_ERR_CONFIG_UNKNOWN_KEY, in->d,
                                "`%s` is not a key of %s%s an entry of `%s`",
                                pl_scalar_excerpt(key->text, buf), section ? section : "",
                                section ? " of" : "", in->written);
    for (size_t i = 0; i < N_ENTRY_KEYS; i++) {
        if (in_section(&entry_keys[i], section)) names[n++] = entry_keys[i].key;
        if (!section && entry_keys[i].section) names[n++] = entry_keys[i].section;
    }
    const char *near = pl_text_nearest(key->text, names, n);
    if (near) pl_diag_hint(in->d, "did you mean `%s`?", near);
    return near
               ? err
               : pl_key_fail_hint(
                     in, err,
                     "an entry has `path`, `format`, `weight`, `max_samples`, `split` and names of "
                     "columns such as `field_output`");
}

/* The place where each key of an entry was given: [0, N_ENTRY_KEYS) are the keys, then the
 * columns. */
struct places {
    const struct pl_node *key[N_ENTRY_KEYS], *column[PL_COLUMN_COUNT];
};

static pl_err given_twice(const struct pl_key_input *in, const struct pl_node *key,
                          const struct pl_node *before) {
    return pl_origin_fail(
        in->origin, key, PL_ERR_CONFIG_DUPLICATE_KEY, in->d,
        strcmp(key->text, before->text) == 0 ? "`%s` on line %llu was given on line %llu already"
                                             : "`%s` on line %llu: line %llu names the same column",
        key->text, (unsigned long long)key->line, (unsigned long long)before->line);
}

static pl_err parse_entry_key(const struct pl_key_input *in, const struct pl_node *key,
                              const struct pl_node *value, size_t k, struct places *seen,
                              struct pl_dataset *out) {
    const struct entry_key *e = &entry_keys[k];
    const struct pl_node **place = e->parse ? &seen->key[k] : &seen->column[e->column];
    if (*place) return given_twice(in, key, *place);
    *place = key;
    if (e->parse) return e->parse(in, value, out);
    return parse_column(in, value, e->key, &out->columns.name[e->column]);
}

static pl_err parse_section(const struct pl_key_input *in, const struct pl_node *node,
                            const char *section, struct places *seen, struct pl_dataset *out) {
    const struct pl_node *nodes = in->doc->nodes;
    for (uint32_t i = node->first; i; i = nodes[nodes[i].next].next) {
        const struct pl_node *key = &nodes[i], *value = &nodes[key->next];
        size_t k = 0;
        while (k < N_ENTRY_KEYS &&
               !(in_section(&entry_keys[k], section) && strcmp(key->text, entry_keys[k].key) == 0))
            k++;
        if (k < N_ENTRY_KEYS)
            PL_TRY(pl_diag_keep(in->d, parse_entry_key(in, key, value, k, seen, out)));
        else if (!section && value->kind == PL_NODE_MAPPING && is_section(key->text))
            PL_TRY(parse_section(in, value, key->text, seen, out));
        else
            PL_TRY(pl_diag_keep(in->d, unknown_dataset_key(in, key, section)));
    }
    return PL_ERR_OK;
}

static pl_err parse_dataset_mapping(const struct pl_key_input *in, const struct pl_node *node,
                                    struct pl_dataset *out) {
    struct places seen = {{NULL}, {NULL}};
    PL_TRY(parse_section(in, node, NULL, &seen, out));
    if (seen.key[0]) return PL_ERR_OK;
    pl_err err = pl_origin_fail(in->origin, node, PL_ERR_CONFIG_MISSING, in->d,
                                "an entry of `%s` has no `path`", in->written);
    return pl_key_fail_hint(in, err, "write `- path: FILE`");
}

const char *pl_column_key(enum pl_column column) {
    static const char *const keys[] = {
#define X(column, key) #key,
        PL_COLUMNS(X)
#undef X
    };
    return keys[column];
}

void pl_columns_finish(struct pl_columns *c) {
    for (int i = 0; i < PL_COLUMN_COUNT; i++)
        free(c->name[i]);
    *c = (struct pl_columns){{NULL}};
}

bool pl_columns_copy(struct pl_columns *out, const struct pl_columns *from) {
    *out = (struct pl_columns){{NULL}};
    for (int i = 0; i < PL_COLUMN_COUNT; i++) {
        if (!from->name[i] || (out->name[i] = pl_strdup(from->name[i]))) continue;
        pl_columns_finish(out);
        return false;
    }
    return true;
}

void pl_columns_write(const struct pl_columns *c, struct pl_text *out) {
    for (int i = 0; i < PL_COLUMN_COUNT; i++) {
        if (!c->name[i]) continue;
        pl_text_addf(out, ", %s: ", pl_column_key((enum pl_column)i));
        pl_scalar_write(out, c->name[i]);
    }
}

void pl_datasets_clear(void *field) {
    struct pl_dataset_list *list = field;
    for (uint32_t i = 0; i < list->n; i++) {
        free(list->items[i].path);
        pl_columns_finish(&list->items[i].columns);
    }
    free(list->items);
    *list = (struct pl_dataset_list){0};
}

static pl_err add_dataset(const struct pl_key_input *in, const struct pl_node *node,
                          struct pl_dataset_list *list) {
    struct pl_dataset *items = pl_grow(list->items, list->n, sizeof *items);
    if (!items) return pl_key_out_of_memory(in);
    list->items = items;
    struct pl_dataset *item = &items[list->n++]; /* counted first: freed with the list on failure */
    *item = PL_DATASET_DEFAULT;
    return node->kind == PL_NODE_MAPPING ? parse_dataset_mapping(in, node, item)
                                         : parse_path(in, node, item);
}

pl_err pl_datasets_parse(const struct pl_key_input *in, void *field) {
    pl_err err = PL_ERR_OK;
    if (in->node->kind == PL_NODE_MAPPING)
        return pl_key_fail_hint(in, pl_key_wrong_type(in, in->node, "a list of datasets"),
                                "start each entry with a dash: `- path: FILE`");
    for (const struct pl_node *i = pl_key_first_item(in); i; i = pl_key_next_item(in, i))
        PL_TRY_GOTO(pl_diag_keep(in->d, add_dataset(in, i, field)), out);
out:
    if (err != PL_ERR_OK) pl_datasets_clear(field);
    return err;
}

/* ---- print ---- */
/* Prints the word and the slice after it, in the quotes that a bracket needs. */
static void print_split(const struct pl_dataset *ds, struct pl_text *out) {
    struct pl_text slice = {0};
    pl_row_slice_write(&ds->slice, &slice);
    if (slice.len)
        pl_text_addf(out, ", split: \"%s%s\"", dataset_splits[ds->split], pl_text_str(&slice));
    else if (ds->split != PL_SPLIT_TRAIN)
        pl_text_addf(out, ", split: %s", dataset_splits[ds->split]);
    out->failed |= slice.failed;
    pl_text_finish(&slice);
}

/* Prints the settings that most entries leave at their defaults, unless they are defaults. */
static void print_mixing(const struct pl_dataset *ds, struct pl_text *out) {
    if (ds->weight != 1) {
        pl_text_add(out, ", weight: ");
        pl_scalar_write_f64(out, ds->weight);
    }
    if (ds->max_samples)
        pl_text_addf(out, ", max_samples: %llu", (unsigned long long)ds->max_samples);
    print_split(ds, out);
    pl_columns_write(&ds->columns, out);
}

void pl_datasets_print(const struct pl_key_info *info, const void *field, struct pl_text *out) {
    (void)info;
    const struct pl_dataset_list *list = field;
    pl_text_add(out, "[");
    for (uint32_t i = 0; i < list->n; i++) {
        pl_text_add(out, i ? ", {path: " : "{path: ");
        pl_scalar_write(out, list->items[i].path);
        pl_text_addf(out, ", format: %s", dataset_formats[list->items[i].format]);
        print_mixing(&list->items[i], out);
        pl_text_add(out, "}");
    }
    pl_text_add(out, "]");
}
