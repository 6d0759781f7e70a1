#include "runtime/data/tokenizer/tokenizer_config.h"

#include "runtime/data/tokenizer/tokenizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The keys in the order in which transformers adds their tokens. */
static const char *const named[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                    "pad_token", "cls_token", "mask_token"};

static pl_err no_memory(struct pl_diag *d) {
    return pl_host_oom(d, "the configuration of a tokenizer");
}

/* --- files ------------------------------------------------------------------------------------ */

static char *join(const char *directory, const char *name) {
    struct pl_text path = {0};
    pl_text_addf(&path, "%s%s%s", directory, *directory ? "/" : "", name);
    if (!path.failed) return path.data;
    pl_text_finish(&path);
    return NULL;
}

/* *out stays NULL when there is no such file. */
static pl_err read_object(const char *path, json_t **out, struct pl_diag *d) {
    struct pl_text text = {0};
    bool there;
    pl_err err = pl_tokenizer_read_file(path, &text, &there, d);
    if (err == PL_ERR_OK && there) err = pl_tokenizer_tree_read(path, &text, out, d);
    pl_text_finish(&text);
    if (err != PL_ERR_OK || !*out || json_is_object(*out)) return err;
    return pl_diag_at(d, PL_ERR_TOKENIZER_FIELD, path, 0, 0, "the file is no JSON object");
}

static pl_err read_companion(const char *directory, const char *name, json_t **out,
                             struct pl_diag *d) {
    char *path = join(directory, name);
    if (!path) return no_memory(d);
    pl_err err = read_object(path, out, d);
    free(path);
    return err;
}

/* C2 */
static pl_err read_older(struct pl_tokenizer_config *c, const char *directory, struct pl_diag *d) {
    json_t *map = NULL;
    pl_err err = read_companion(directory, "added_tokens.json", &c->added, d);
    if (err == PL_ERR_OK) err = read_companion(directory, "special_tokens_map.json", &map, d);
    if (err == PL_ERR_OK && map && json_object_update(c->merged, map) != 0) err = no_memory(d);
    json_decref(map);
    return err;
}

pl_err pl_tokenizer_config_read(struct pl_tokenizer_config *c, const char *directory,
                                struct pl_diag *d) {
    c->path = join(directory, "tokenizer_config.json");
    if (!c->path) return no_memory(d);
    PL_TRY(read_object(c->path, &c->merged, d));
    if (!c->merged) c->merged = json_object();
    if (!c->merged) return no_memory(d);
    return json_object_get(c->merged, "added_tokens_decoder") ? PL_ERR_OK
                                                              : read_older(c, directory, d);
}

void pl_tokenizer_config_finish(struct pl_tokenizer_config *c) {
    json_decref(c->merged);
    json_decref(c->added);
    free(c->path);
    *c = (struct pl_tokenizer_config){0};
}

/* --- tokens ----------------------------------------------------------------------------------- */

/* A string is a special token; an object has flags of its own. */
static pl_err read_token(const json_t *v, const char *key, bool special, struct pl_added_said *a,
                         struct pl_diag *d) {
    struct pl_fields f;
    const char *type;
    *a = (struct pl_added_said){.special = special, .normalized = !special};
    if (json_is_string(v)) {
        a->s = json_string_value(v);
        a->n = json_string_length(v);
        return PL_ERR_OK;
    }
    PL_TRY(pl_fields_open(&f, v, key, &type, d));
    PL_TRY(pl_added_read(&f, a));
    a->special |= special;
    return PL_ERR_OK;
}

static int by_id(const void *a, const void *b) {
    const struct pl_added_said *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static pl_err wrong_id(const char *key, const char *id, struct pl_diag *d) {
    return pl_diag_set(d, PL_ERR_TOKENIZER_FIELD, "`%s` has the id `%.40s`", key, id);
}

/* {"2014": {"content": ...}} */
static pl_err add_decoder(const json_t *decoder, struct pl_added_list *out, struct pl_diag *d) {
    static const char key[] = "added_tokens_decoder";
    const char *id;
    json_t *v;
    if (decoder && !json_is_object(decoder))
        return json_is_null(decoder)
                   ? PL_ERR_OK
                   : pl_diag_set(d, PL_ERR_TOKENIZER_FIELD, "`%s` is no object", key);
    json_object_foreach((json_t *)(uintptr_t)decoder, id, v) {
        struct pl_added_said a;
        char *end;
        errno = 0;
        unsigned long n = strtoul(id, &end, 10);
        if (end == id || *end || errno || n >= PL_VOCAB_MOST_IDS) return wrong_id(key, id, d);
        if (!json_is_object(v)) return wrong_id(key, id, d);
        PL_TRY(read_token(v, key, false, &a, d));
        a.id = (uint32_t)n;
        a.has_id = true;
        if (!pl_added_list_put(out, &a)) return no_memory(d);
    }
    if (out->n) qsort(out->all, out->n, sizeof *out->all, by_id);
    return PL_ERR_OK;
}

static bool names_special(const struct pl_tokenizer_config *c, const char *content) {
    const json_t *list = json_object_get(c->merged, "extra_special_tokens");
    const char *s;
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        const json_t *v = json_object_get(c->merged, named[i]);
        s = json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
        if (s && strcmp(s, content) == 0) return true;
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        s = json_string_value(json_array_get(list, i));
        if (s && strcmp(s, content) == 0) return true;
    }
    return false;
}

/* {"<token>": 2014}; an id that tokenizer.json gives to an added token is that token's. */
static pl_err add_older(const struct pl_tokenizer_config *c, const json_t *root,
                        struct pl_added_list *out, struct pl_diag *d) {
    static const char key[] = "added_tokens.json";
    const json_t *list = json_object_get(root, "added_tokens");
    json_t *taken = json_object();
    const char *content;
    json_t *v;
    pl_err err = taken ? PL_ERR_OK : no_memory(d);
    char id[24];
    for (size_t i = 0; err == PL_ERR_OK && i < json_array_size(list); i++) {
        v = json_object_get(json_array_get(list, i), "id");
        snprintf(id, sizeof id, "%lld", (long long)json_integer_value(v));
        if (json_object_set_new(taken, id, json_true()) != 0) err = no_memory(d);
    }
    json_object_foreach(c->added, content, v) {
        const json_int_t n = json_integer_value(v);
        snprintf(id, sizeof id, "%lld", (long long)n);
        if (err != PL_ERR_OK || json_object_get(taken, id)) continue;
        const bool special = names_special(c, content);
        const struct pl_added_said a = {.s = content,
                                        .n = strlen(content),
                                        .id = (uint32_t)n,
                                        .has_id = true,
                                        .normalized = !special,
                                        .special = special};
        if (!json_is_integer(v) || n < 0 || n >= PL_VOCAB_MOST_IDS)
            err = wrong_id(key, id, d);
        else if (a.n && a.n <= PL_ADDED_MOST_BYTES && !pl_added_list_put(out, &a))
            err = no_memory(d);
    }
    json_decref(taken);
    if (out->n) qsort(out->all, out->n, sizeof *out->all, by_id);
    return err;
}

static pl_err add_one(const json_t *v, const char *key, bool special, struct pl_added_list *out,
                      struct pl_diag *d) {
    struct pl_added_said a;
    PL_TRY(read_token(v, key, special || json_is_string(v), &a, d));
    a.unless_known = true;
    if (!a.n || pl_added_list_put(out, &a)) return PL_ERR_OK;
    return no_memory(d);
}

static bool is_named(const char *key) {
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (strcmp(key, named[i]) == 0) return true;
    return false;
}

static bool is_token(const json_t *v) {
    return json_is_string(v) ||
           (json_is_object(v) && json_is_string(json_object_get(v, "content")));
}

/* "image_token": a name of the model's own. */
static bool is_own_name(const char *key) {
    static const char end[] = "_token";
    const size_t n = strlen(key);
    return n > sizeof end - 1 && strcmp(key + n - (sizeof end - 1), end) == 0 && !is_named(key);
}

static pl_err add_named(const struct pl_tokenizer_config *c, struct pl_added_list *out,
                        struct pl_diag *d) {
    const char *key;
    json_t *v;
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        v = json_object_get(c->merged, named[i]);
        if (v && !json_is_null(v)) PL_TRY(add_one(v, named[i], true, out, d));
    }
    json_object_foreach(c->merged, key, v)
        if (is_own_name(key) && is_token(v)) PL_TRY(add_one(v, key, true, out, d));
    return PL_ERR_OK;
}

/* `additional_special_tokens` is the older name, and counts where the newer has nothing. */
static pl_err add_lists(const struct pl_tokenizer_config *c, struct pl_added_list *out,
                        struct pl_diag *d) {
    static const char older[] = "additional_special_tokens", newer[] = "extra_special_tokens";
    json_t *list = json_object_get(c->merged, newer);
    const char *key = newer, *name;
    json_t *v;
    if (!json_array_size(list) && !json_object_size(list)) {
        key = older;
        list = json_object_get(c->merged, older);
    }
    for (size_t i = 0; i < json_array_size(list); i++)
        PL_TRY(add_one(json_array_get(list, i), key, false, out, d));
    json_object_foreach(list, name, v)
        if (is_token(v)) PL_TRY(add_one(v, name, true, out, d));
    return PL_ERR_OK;
}

pl_err pl_tokenizer_config_tokens(const struct pl_tokenizer_config *c, const json_t *root,
                                  struct pl_added_list *out, struct pl_diag *d) {
    PL_TRY(add_decoder(json_object_get(c->merged, "added_tokens_decoder"), out, d));
    if (c->added) PL_TRY(add_older(c, root, out, d));
    PL_TRY(add_named(c, out, d));
    return add_lists(c, out, d);
}

int64_t pl_tokenizer_config_token(const struct pl_tokenizer_config *c, const struct pl_tokenizer *t,
                                  const char *key) {
    const json_t *v = json_object_get(c->merged, key);
    if (json_is_object(v)) v = json_object_get(v, "content");
    return json_is_string(v) ? pl_tokenizer_id(t, json_string_value(v)) : -1;
}

/* --- class ------------------------------------------------------------------------------------ */

/* Version 5 builds these of the vocabulary and the merges alone: no normalizer, and Metaspace. */
pl_err pl_tokenizer_config_note_class(const struct pl_tokenizer_config *c, struct pl_tokenizer *t,
                                      struct pl_diag *d) {
    static const char *const rebuilt[] = {"LlamaTokenizer", "LlamaTokenizerFast"};
    const char *class = json_string_value(json_object_get(c->merged, "tokenizer_class"));
    bool other = t->normalizer.n || t->bpe.byte_level;
    for (size_t i = 0; class && other && i < sizeof rebuilt / sizeof *rebuilt; i++)
        if (strcmp(class, rebuilt[i]) == 0)
            pl_text_addf(&t->notes,
                         "tokens are those that tokenizer.json says; AutoTokenizer of transformers "
                         "5 rebuilds the class %s without its normalizer and can give others\n",
                         class);
    return t->notes.failed ? no_memory(d) : PL_ERR_OK;
}
