/* maps.c - what rows of a table do with the value that they read. */
#include "estimator/import/dialect.h"

#include "estimator/base/alloc.h"
#include "estimator/config/scalar.h"

#include <stdio.h>
#include <string.h>

PL_MAP(pl_map_inert) {
    pl_import_inert(im, t, "%s", (const char *)row->arg);
}

PL_MAP(pl_map_template) {
    const char *text = pl_node_text(t->value), *end = strrchr(text, '.');
    if (end && strcmp(end, ".jinja") == 0)
        pl_import_set(im, PL_KEY_chat_template, text, t, NULL);
    else if (strstr(text, "{{") || strstr(text, "{%"))
        pl_import_hold_template(im, t, text, "a template in the configuration");
    else
        pl_import_miss(im, t, "%s: write it to a file FILE.jinja, and `chat_template: FILE.jinja`",
                       (const char *)row->arg);
}

PL_MAP(pl_map_off) {
    if (pl_node_is_on(t->value))
        pl_import_miss(im, t, "%s: not supported", (const char *)row->arg);
    else
        pl_import_inert(im, t, "off, as it is here");
}

PL_MAP(pl_map_only) {
    const char *arg = row->arg, *bar = strchr(arg, '|');
    const size_t n = (size_t)(bar - arg);
    const char *text = pl_node_text(t->value);
    if (strncmp(text, arg, n) == 0 && !text[n])
        pl_import_inert(im, t, "as it is here");
    else
        pl_import_miss(im, t, "%s: not supported", bar + 1);
}

PL_MAP(pl_map_same) {
    char number[PL_NUMBER_BYTES];
    if (t->value->kind != PL_NODE_SCALAR)
        pl_import_miss(im, t, "a list or a section where one value is read");
    else if (pl_node_bare_number(t->value, number))
        pl_import_set(im, row->key, number, t, NULL);
    else
        pl_import_set(im, row->key, t->value->text, t, NULL);
}

PL_MAP(pl_map_flag) {
    bool flag;
    if (pl_node_flag(t->value, &flag))
        pl_import_set(im, row->key, flag ? "true" : "false", t, NULL);
    else
        pl_import_miss(im, t, "neither true nor false");
}

PL_MAP(pl_map_word) {
    bool flag;
    const struct pl_word *w = row->arg;
    const char *text = pl_node_text(t->value);
    if (pl_node_flag(t->value, &flag)) text = flag ? "true" : "false";
    while (w->word && strcmp(w->word, text) != 0)
        w++;
    if (!w->word)
        pl_import_miss(im, t, "this value is not known here");
    else if (!w->to)
        pl_import_miss(im, t, "%s", w->why ? w->why : "not supported");
    else if (!*w->to)
        pl_import_inert(im, t, "%s", w->why ? w->why : "as it is here");
    else
        pl_import_set(im, row->key, w->to, t, w->why);
}

/* A list of texts as YAML; words with commas are such a list. */
static void write_list(const struct pl_import *im, const struct pl_node *value,
                       struct pl_text *out) {
    uint32_t i = 0;
    pl_text_add(out, "[");
    for (const struct pl_node *item; (item = pl_import_next(im, value, &i));) {
        pl_text_add(out, out->len > 1 ? ", " : "");
        pl_scalar_write(out, pl_node_text(item));
    }
    pl_text_add(out, "]");
}

static void split_list(const char *words, struct pl_text *out) {
    pl_text_add(out, "[");
    for (size_t n; *words; words += n) {
        words += strspn(words, ", ");
        n = strcspn(words, ", ");
        char *word = n ? pl_strndup(words, n) : NULL;
        out->failed |= n && !word;
        if (word) pl_text_add(out, out->len > 1 ? ", " : "");
        if (word) pl_scalar_write(out, word);
        free(word);
    }
    pl_text_add(out, "]");
}

/* A pattern may hold commas between brackets, so only plain words are cut. */
static bool is_words(const char *text) {
    return strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-., ") ==
               strlen(text) &&
           strchr(text, ',');
}

PL_MAP(pl_map_list) {
    struct pl_text list = {0};
    const char *text = pl_node_text(t->value);
    if (t->value->kind == PL_NODE_SEQUENCE && !t->value->n) {
        pl_import_inert(im, t, "empty");
        return;
    }
    if (t->value->kind == PL_NODE_SEQUENCE)
        write_list(im, t->value, &list);
    else if (is_words(text))
        split_list(text, &list);
    else
        pl_scalar_write(&list, text);
    if (list.failed)
        im->err = pl_host_oom(im->d, "a list");
    else if (t->value->kind == PL_NODE_MAPPING)
        pl_import_miss(im, t, "a section where a list is read");
    else
        pl_import_set(im, row->key, pl_text_str(&list), t, NULL);
    pl_text_finish(&list);
}

PL_MAP(pl_map_steps) {
    char text[32];
    double v;
    if (!pl_node_number(t->value, &v) || v > 1e9) {
        pl_import_miss(im, t, "no number of steps");
    } else if (v > 0 && v < 1) {
        pl_import_inert(im, t, "a share of all steps, whose number the data gives");
    } else {
        snprintf(text, sizeof text, "%.0f", v > 0 ? v : 0);
        pl_import_set(im, row->key, text, t, NULL);
    }
}
