/* datasets.c - the entries of `datasets` and `eval_datasets`. */
#include "estimator/base/alloc.h"
#include "estimator/config/key_types.h"
#include "estimator/config/scalar.h"

#include <stdlib.h>
#include <string.h>

static const char *const dataset_formats[] =
    {/* PL_FORMAT_* */
     "auto", "tokens", "text", "alpaca", "messages", "sharegpt", "prompt_completion"};
static const char *const dataset_splits[] = {"train", "eval", "validation",
                                             "test"}; /* PL_SPLIT_*; behind eval: its synonyms */

#define WEIGHT_MIN 0.001
#define WEIGHT_MAX 1000.0

static bool is_null(const struct pl_node *node) {
    return node->kind == PL_NODE_SCALAR && node->plain && pl_scalar_null(node->text);
}

/* The number of the word in `words`; an empty value leaves *out alone. */
static pl_err parse_word(const struct pl_key_input *in, const struct pl_node *node, const char *key,
                         const char *const *words, uint32_t n, uint32_t *out) {
    char buf[PL_EXCERPT_BYTES];
    struct pl_text list = {0};
    if (node->kind != PL_NODE_SCALAR)
        return pl_origin_fail(in->origin, node, PL_ERR_CONFIG_TYPE, in->d,
                              "`%s` of an entry of `%s` must be one word", key, in->written);
    if (is_null(node)) return PL_ERR_OK;
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(node->text, words[i]) == 0) {
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
    return parse_word(in, node, "format", dataset_formats,
                      sizeof dataset_formats / sizeof *dataset_formats, &out->format);
}

static pl_err parse_split(const struct pl_key_input *in, const struct pl_node *node,
                          struct pl_dataset *out) {
    pl_err err = parse_word(in, node, "split", dataset_splits,
                            sizeof dataset_splits / sizeof *dataset_splits, &out->split);
    if (err == PL_ERR_CONFIG_RANGE && strchr(node->text, '['))
        pl_diag_hint(in->d, "slices are not cut here: `val_set_size` holds out the last rows");
    if (out->split > PL_SPLIT_EVAL) out->split = PL_SPLIT_EVAL;
    return err;
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

static pl_err parse_path(const struct pl_key_input *in, const struct pl_node *node,
                         struct pl_dataset *out) {
    if (is_null(node)) return pl_key_wrong_type(in, node, "a list with a path each");
    PL_TRY(pl_key_copy_text(in, node, "a list with a path each", &out->path));
    out->line = node->line;
    out->column = node->column;
    return PL_ERR_OK;
}

/* Keys of an entry; the first is required. */
static const char *const dataset_keys[] = {"path", "format", "weight", "split"};
static pl_err (*const dataset_parsers[])(const struct pl_key_input *, const struct pl_node *,
                                         struct pl_dataset *) = {parse_path, parse_format,
                                                                 parse_weight, parse_split};
#define N_DATASET_KEYS (sizeof dataset_keys / sizeof *dataset_keys)

static pl_err unknown_dataset_key(const struct pl_key_input *in, const struct pl_node *key) {
    char buf[PL_EXCERPT_BYTES];
    pl_err err = pl_origin_fail(in->origin, key, PL_ERR_CONFIG_UNKNOWN_KEY, in->d,
                                "`%s` is not a key of an entry of `%s`",
                                pl_scalar_excerpt(key->text, buf), in->written);
    const char *near = pl_text_nearest(key->text, dataset_keys, N_DATASET_KEYS);
    if (near) pl_diag_hint(in->d, "did you mean `%s`?", near);
    return near ? err
                : pl_key_fail_hint(in, err, "an entry has `path`, `format`, `weight` and `split`");
}

static pl_err parse_dataset_mapping(const struct pl_key_input *in, const struct pl_node *node,
                                    struct pl_dataset *out) {
    const struct pl_node *nodes = in->doc->nodes, *seen[N_DATASET_KEYS] = {NULL};
    for (uint32_t i = node->first; i; i = nodes[nodes[i].next].next) {
        const struct pl_node *key = &nodes[i], *value = &nodes[key->next];
        uint32_t k = 0;
        while (k < N_DATASET_KEYS && strcmp(key->text, dataset_keys[k]) != 0)
            k++;
        if (k == N_DATASET_KEYS) return unknown_dataset_key(in, key);
        if (seen[k])
            return pl_origin_fail(in->origin, key, PL_ERR_CONFIG_DUPLICATE_KEY, in->d,
                                  "`%s` on line %llu was given on line %llu already", key->text,
                                  (unsigned long long)key->line, (unsigned long long)seen[k]->line);
        seen[k] = key;
        PL_TRY(dataset_parsers[k](in, value, out));
    }
    if (seen[0]) return PL_ERR_OK;
    pl_err err = pl_origin_fail(in->origin, node, PL_ERR_CONFIG_MISSING, in->d,
                                "an entry of `%s` has no `path`", in->written);
    return pl_key_fail_hint(in, err, "write `- path: FILE`");
}

void pl_datasets_clear(void *field) {
    struct pl_dataset_list *list = field;
    for (uint32_t i = 0; i < list->n; i++)
        free(list->items[i].path);
    free(list->items);
    *list = (struct pl_dataset_list){0};
}

static pl_err add_dataset(const struct pl_key_input *in, const struct pl_node *node,
                          struct pl_dataset_list *list) {
    struct pl_dataset *items = pl_realloc(list->items, (list->n + 1) * sizeof *items);
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
        PL_TRY_GOTO(add_dataset(in, i, field), out);
out:
    if (err != PL_ERR_OK) pl_datasets_clear(field);
    return err;
}

/* ---- print ---- */
/* What most entries leave at its default is not spelled out. */
static void print_mixing(const struct pl_dataset *ds, struct pl_text *out) {
    if (ds->weight != 1) {
        pl_text_add(out, ", weight: ");
        pl_scalar_write_f64(out, ds->weight);
    }
    if (ds->split != PL_SPLIT_TRAIN) pl_text_addf(out, ", split: %s", dataset_splits[ds->split]);
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
