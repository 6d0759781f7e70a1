/* key_types.c - parse, print and free the values of each type of key. */
#include "estimator/config/key_types.h"

#include "estimator/base/alloc.h"
#include "estimator/base/units.h"
#include "estimator/config/datasets.h"
#include "estimator/config/key_table.h"
#include "estimator/config/scalar.h"
#include "estimator/config/trainer_words.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sizes stay clear of the two sentinels at the top of the range. */
#define BYTES_MAX (UINT64_C(1) << 63)

#define MAX_CHOICES 24

/* Values of other trainers that deserve more than a list of choices. */
static const struct {
    enum pl_key_id key;
    const char *word, *hint;
} word_hints[] = {{PL_KEY_dtype, "float16", "write `fp16`"},
                  {PL_KEY_dtype, "bfloat16", "write `bf16`"},
                  {PL_KEY_dtype, "float32", "write `fp32`"},
                  {PL_KEY_base_dtype, "bfloat16", "write `bf16`"},
                  {PL_KEY_base_dtype, "float32", "write `fp32`"},
                  {PL_KEY_metric_for_best_model, "eval_loss", "write `loss`"},
                  {PL_KEY_metric_for_best_model, "eval_accuracy", "write `accuracy`"},
                  {PL_KEY_metric_for_best_model, "eval_perplexity", "write `perplexity`"},
                  {PL_KEY_device, "gpu", "write `cuda`, or `cuda:N` for one of several"},
#define ROW(id, name, op, lighter, states, words, note) words
#define WORD(word, hint)                                {PL_KEY_optimizer, word, hint},
                  PL_OPTIMIZERS(ROW, PL_OPTIMIZER_SKIP, WORD)
#undef WORD
#undef ROW
};

static pl_err wrong_number(const struct pl_key_input *in, const char *wanted) {
    pl_err err = pl_key_wrong_type(in, in->node, wanted);
    if (in->node->kind == PL_NODE_SCALAR && !in->node->plain)
        return pl_key_fail_hint(in, err, "a number is written without quotes");
    return err;
}

/* ---- numbers ---- */

void pl_key_write_limits(enum pl_key_id id, struct pl_text *out) {
    uint32_t n;
    const struct pl_key_info *info = &pl_key_table(&n)[id];
    if (pl_key_fields[id].type != PL_TYPE_F64) {
        pl_text_addf(out, "%.0f to %.0f", info->lo, info->hi);
        return;
    }
    pl_scalar_write_f64(out, info->lo);
    pl_text_add(out, " to ");
    pl_scalar_write_f64(out, info->hi);
}

static pl_err out_of_range(const struct pl_key_input *in) {
    char buf[PL_EXCERPT_BYTES];
    struct pl_text limits = {0};
    pl_key_write_limits(in->id, &limits);
    pl_err err =
        pl_origin_fail(in->origin, in->node, PL_ERR_CONFIG_RANGE, in->d, "`%s` is %s, outside %s",
                       in->written, pl_scalar_excerpt(in->node->text, buf), pl_text_str(&limits));
    pl_text_finish(&limits);
    double v;
    const char *hint =
        pl_scalar_float(in->node->text, &v) ? pl_trainer_number_hint(in->id, v) : NULL;
    return hint ? pl_key_fail_hint(in, err, hint) : err;
}

static pl_err parse_whole(const struct pl_key_input *in, const char *wanted, uint64_t *out) {
    uint64_t v = 0;
    double as_float;
    bool plain = in->node->kind == PL_NODE_SCALAR && in->node->plain;
    enum pl_int r = plain ? pl_scalar_int(in->node->text, &v) : PL_INT_NONE;
    if (r == PL_INT_NONE) {
        pl_err err = wrong_number(in, wanted);
        const char *hint = "write it with digits only: no point, no exponent";
        if (!plain || !pl_scalar_float(in->node->text, &as_float)) return err;
        const char *known = pl_trainer_number_hint(in->id, as_float);
        return pl_key_fail_hint(in, err, known ? known : hint);
    }
    if (pl_scalar_float(in->node->text, &as_float) && pl_trainer_means_unset(in->id, as_float)) {
        *out = 0;
        return PL_ERR_OK;
    }
    if (r != PL_INT_OK || (double)v < in->info->lo || (double)v > in->info->hi)
        return out_of_range(in);
    *out = v;
    return PL_ERR_OK;
}

static pl_err parse_U32(const struct pl_key_input *in, void *field) {
    uint64_t v;
    PL_TRY(parse_whole(in, "a whole number", &v));
    *(uint32_t *)field = (uint32_t)v;
    return PL_ERR_OK;
}

static pl_err parse_U64(const struct pl_key_input *in, void *field) {
    return parse_whole(in, "a whole number", field);
}

static bool is_word(const struct pl_node *node, const char *word) {
    return node->kind == PL_NODE_SCALAR && strcmp(node->text, word) == 0;
}

static const char *auto_word(const struct pl_key_info *info) {
    return info->choices[0] ? info->choices : "auto";
}

static pl_err parse_AUTO(const struct pl_key_input *in, void *field) {
    char wanted[48];
    uint64_t v = PL_AUTO;
    double as_float;
    snprintf(wanted, sizeof wanted, "a whole number or %s", auto_word(in->info));
    if (in->id == PL_KEY_loss_scale && in->node->kind == PL_NODE_SCALAR && in->node->plain &&
        pl_scalar_float(in->node->text, &as_float) && as_float >= in->info->lo &&
        as_float <= in->info->hi && as_float == floor(as_float))
        v = (uint64_t)as_float; /* 65536.0, as other trainers have it */
    else if (!is_word(in->node, auto_word(in->info)))
        PL_TRY(parse_whole(in, wanted, &v));
    *(uint32_t *)field = (uint32_t)v;
    return PL_ERR_OK;
}

static pl_err parse_F64(const struct pl_key_input *in, void *field) {
    double v;
    if (in->node->kind != PL_NODE_SCALAR || !in->node->plain ||
        !pl_scalar_float(in->node->text, &v))
        return wrong_number(in, "a number");
    if (!(v >= in->info->lo && v <= in->info->hi)) return out_of_range(in);
    *(double *)field = v;
    return PL_ERR_OK;
}

/* 24 of GB, of GiB, or bytes: who writes so few means one of the first two. */
static pl_err needs_unit(const struct pl_key_input *in, uint64_t bytes) {
    pl_err err = pl_origin_fail(in->origin, in->node, PL_ERR_CONFIG_RANGE, in->d,
                                "`%s` is %llu bytes: a size below 1 MiB needs its unit",
                                in->written, (unsigned long long)bytes);
    pl_diag_hint(in->d, "%lluGB is 10^9 bytes each, %lluGiB 2^30; %lluB are bytes",
                 (unsigned long long)bytes, (unsigned long long)bytes, (unsigned long long)bytes);
    return err;
}

static pl_err parse_BYTES(const struct pl_key_input *in, void *field) {
    static const char wanted[] = "a size such as 16GiB, or auto";
    const struct pl_node *node = in->node;
    char buf[PL_EXCERPT_BYTES];
    uint64_t v = PL_AUTO_BYTES;
    double bare;
    if (is_word(node, "auto")) goto done;
    if (node->kind != PL_NODE_SCALAR) return pl_key_wrong_type(in, node, wanted);
    enum pl_int r = pl_scalar_int(node->text, &v); /* exact where a double would round */
    if (r == PL_INT_NONE && pl_scalar_float(node->text, &bare))
        return pl_key_fail_hint(in, pl_key_wrong_type(in, node, wanted),
                                "a fraction needs a unit: 1.5GiB");
    if (r == PL_INT_NONE && !pl_scalar_bytes(node->text, &v))
        return pl_key_wrong_type(in, node, wanted);
    if (r == PL_INT_NEGATIVE || r == PL_INT_TOO_LARGE || v > BYTES_MAX)
        return pl_origin_fail(in->origin, node, PL_ERR_CONFIG_RANGE, in->d,
                              "`%s` is %s, outside 0 to 2^63 bytes", in->written,
                              pl_scalar_excerpt(node->text, buf));
    if (r == PL_INT_OK && v && v < PL_BARE_BYTES_LEAST) return needs_unit(in, v);
done:
    *(uint64_t *)field = v;
    return PL_ERR_OK;
}

/* ---- words ---- */

static pl_err parse_BOOL(const struct pl_key_input *in, void *field) {
    if (in->node->kind == PL_NODE_SCALAR && in->node->plain &&
        pl_scalar_bool(in->node->text, field))
        return PL_ERR_OK;
    return pl_key_fail_hint(in, pl_key_wrong_type(in, in->node, "true or false"),
                            "write true or false, without quotes");
}

static bool suggest_word(const struct pl_key_input *in, const char *word) {
    char buf[MAX_CHOICES][PL_CHOICE_BYTES];
    const char *names[MAX_CHOICES];
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof word_hints / sizeof *word_hints; i++)
        if (word_hints[i].key == in->id && strcmp(word_hints[i].word, word) == 0) {
            pl_diag_hint(in->d, "%s", word_hints[i].hint);
            return true;
        }
    for (; n < MAX_CHOICES && pl_key_choice(in->info->choices, n, buf[n]); n++)
        names[n] = buf[n];
    const char *near = pl_text_nearest(word, names, n);
    if (near) pl_diag_hint(in->d, "did you mean `%s`?", near);
    return near != NULL;
}

static pl_err wrong_choice(const struct pl_key_input *in, const char *word) {
    char buf[PL_EXCERPT_BYTES], choice[PL_CHOICE_BYTES];
    struct pl_text list = {0};
    for (uint32_t i = 0; pl_key_choice(in->info->choices, i, choice); i++)
        pl_text_addf(&list, "%s%s", i ? ", " : "", choice);
    pl_err err = pl_origin_fail(in->origin, in->node, PL_ERR_CONFIG_RANGE, in->d,
                                "`%s: %s` is not among the choices: %s", in->written,
                                pl_scalar_excerpt(word, buf), pl_text_str(&list));
    if (!suggest_word(in, word)) pl_diag_hint(in->d, "choose one of: %s", pl_text_str(&list));
    pl_text_finish(&list);
    return err;
}

static pl_err parse_ENUM(const struct pl_key_input *in, void *field) {
    char choice[PL_CHOICE_BYTES];
    if (in->node->kind != PL_NODE_SCALAR) return pl_key_wrong_type(in, in->node, "one word");
    const char *word = in->node->text;
    bool flag; /* True and FALSE are the words true and false where these are among the choices */
    if (in->node->plain && pl_scalar_bool(word, &flag)) word = flag ? "true" : "false";
    for (uint32_t i = 0; pl_key_choice(in->info->choices, i, choice); i++) {
        if (strcmp(word, choice) != 0) continue;
        *(uint32_t *)field = i;
        return PL_ERR_OK;
    }
    return wrong_choice(in, word);
}

/* The choices are names of types, and `auto`. */
static pl_err parse_DTYPE(const struct pl_key_input *in, void *field) {
    uint32_t choice;
    PL_TRY(parse_ENUM(in, &choice));
    *(uint32_t *)field = pl_dtype_by_name(in->node->text); /* `auto` is the name of none */
    return PL_ERR_OK;
}

static bool is_template_file(const char *text) {
    static const char end[] = ".jinja";
    size_t n = strlen(text);
    return n >= sizeof end && strcmp(text + n - (sizeof end - 1), end) == 0;
}

static pl_err parse_TEMPLATE(const struct pl_key_input *in, void *field) {
    struct pl_template_choice *out = field;
    if (in->node->kind != PL_NODE_SCALAR || !is_template_file(in->node->text))
        return parse_ENUM(in, &out->choice);
    PL_TRY(pl_key_copy_path(in, in->node, "a template, or a path", &out->path));
    out->choice = PL_CHAT_TEMPLATE_FILE;
    return PL_ERR_OK;
}

static pl_err parse_RECOMPUTE(const struct pl_key_input *in, void *field) {
    uint32_t *out = field;
    bool flag;
    if (in->node->kind != PL_NODE_SCALAR) return pl_key_wrong_type(in, in->node, "one word");
    const char *word = in->node->text;
    if (in->node->plain && pl_scalar_bool(word, &flag)) {
        *out = flag ? PL_RECOMPUTE_FULL : PL_RECOMPUTE_NONE;
        return PL_ERR_OK;
    }
    const enum pl_recompute_word read = pl_recompute_parse(word, out);
    if (read == PL_RECOMPUTE_READ) return PL_ERR_OK;
    if (read == PL_RECOMPUTE_UNKNOWN) return wrong_choice(in, word);
    if (read == PL_RECOMPUTE_OUTSIDE)
        return pl_origin_fail(in->origin, in->node, PL_ERR_CONFIG_RANGE, in->d,
                              "`%s`: the N of every_N and the K of full:K are within 1 to %d",
                              in->written, PL_RECOMPUTE_LAYERS_MAX);
    return pl_origin_fail(in->origin, in->node, PL_ERR_CONFIG_RANGE, in->d,
                          "`%s`: of a mix only the first layers can be at `offload`, since their "
                          "inputs are wanted last: write offload:K+LEVEL",
                          in->written);
}

static pl_err parse_DEVICE(const struct pl_key_input *in, void *field) {
    static const char cuda[] = "cuda:";
    uint64_t n;
    if (in->node->kind != PL_NODE_SCALAR || strncmp(in->node->text, cuda, sizeof cuda - 1) != 0)
        return parse_ENUM(in, field); /* in the order of PL_DEVICE_* */
    const char *digits = in->node->text + sizeof cuda - 1;
    enum pl_int r = *digits >= '0' && *digits <= '9' ? pl_scalar_int(digits, &n) : PL_INT_NONE;
    if (r == PL_INT_NONE) return wrong_choice(in, in->node->text);
    if (r != PL_INT_OK || n > PL_DEVICE_CUDA_MAX)
        return pl_origin_fail(in->origin, in->node, PL_ERR_CONFIG_RANGE, in->d,
                              "`%s`: the N of cuda:N is outside 0 to %d", in->written,
                              PL_DEVICE_CUDA_MAX);
    *(uint32_t *)field = PL_DEVICE_CUDA_AT + (uint32_t)n;
    return PL_ERR_OK;
}

/* ---- text and lists ---- */

static pl_err parse_STR(const struct pl_key_input *in, void *field) {
    return pl_key_copy_text(in, in->node, "text", field);
}

static pl_err parse_PATH(const struct pl_key_input *in, void *field) {
    return pl_key_copy_path(in, in->node, "text", field);
}

/* An empty list is the same as no value where that is the default, and a mistake elsewhere. */
static pl_err check_not_empty(const struct pl_key_input *in) {
    if (in->node->kind != PL_NODE_SEQUENCE || in->node->n || !in->info->def[0]) return PL_ERR_OK;
    pl_err err = pl_origin_fail(in->origin, in->node, PL_ERR_CONFIG_RANGE, in->d,
                                "`%s` is an empty list", in->written);
    return pl_key_fail_hint(in, err, "leave the key out for its default");
}

static void clear_LIST(void *field) {
    struct pl_str_list *list = field;
    for (uint32_t i = 0; i < list->n; i++)
        free(list->items[i]);
    free(list->items);
    *list = (struct pl_str_list){0};
}

static pl_err add_text(const struct pl_key_input *in, const struct pl_node *node,
                       struct pl_str_list *list) {
    static const char wanted[] = "a list of texts";
    if (node != in->node && node->kind == PL_NODE_SCALAR && node->plain &&
        pl_scalar_null(node->text))
        return pl_key_wrong_type(in, node, wanted);
    char **items = pl_grow(list->items, list->n, sizeof *items);
    if (!items) return pl_key_out_of_memory(in);
    list->items = items;
    PL_TRY(pl_key_copy_text(in, node, wanted, &items[list->n]));
    list->n++;
    return PL_ERR_OK;
}

/* `--report-to jsonl,tensorboard`. Entries of debug_inject hold commas of their own, so that key is
 * cut at semicolons. */
static pl_err split_texts(const struct pl_key_input *in, struct pl_str_list *list) {
    char separator = in->id == PL_KEY_debug_inject ? ';' : ',';
    const char *s = in->node->text;
    for (bool more = true; more;) {
        const char *end = strchrnul(s, separator);
        size_t lead = strspn(s, " "), len = (size_t)(end - s);
        more = *end;
        while (len > lead && s[len - 1] == ' ')
            len--;
        char *text = pl_strndup(s + lead, len > lead ? len - lead : 0);
        if (!text) return pl_key_out_of_memory(in);
        pl_err err = add_text(in, &(struct pl_node){.text = text}, list);
        free(text);
        PL_TRY(err);
        s = end + 1;
    }
    return PL_ERR_OK;
}

static pl_err parse_LIST(const struct pl_key_input *in, void *field) {
    pl_err err = PL_ERR_OK;
    if (in->node->kind == PL_NODE_MAPPING)
        return pl_key_wrong_type(in, in->node, "a list of texts");
    PL_TRY(check_not_empty(in));
    if (in->split) {
        PL_TRY_GOTO(split_texts(in, field), out);
    } else {
        for (const struct pl_node *i = pl_key_first_item(in); i; i = pl_key_next_item(in, i))
            PL_TRY_GOTO(add_text(in, i, field), out);
    }
out:
    if (err != PL_ERR_OK) clear_LIST(field);
    return err;
}

/* ---- print, is_set, clear ---- */

#define print_PATH print_STR
static void print_STR(const struct pl_key_info *info, const void *field, struct pl_text *out) {
    (void)info;
    pl_scalar_write(out, *(char *const *)field);
}

static void print_BOOL(const struct pl_key_info *info, const void *field, struct pl_text *out) {
    (void)info;
    pl_text_add(out, *(const bool *)field ? "true" : "false");
}

static void print_U32(const struct pl_key_info *info, const void *field, struct pl_text *out) {
    (void)info;
    pl_text_addf(out, "%u", *(const uint32_t *)field);
}

static void print_U64(const struct pl_key_info *info, const void *field, struct pl_text *out) {
    (void)info;
    pl_text_addf(out, "%llu", (unsigned long long)*(const uint64_t *)field);
}

static void print_F64(const struct pl_key_info *info, const void *field, struct pl_text *out) {
    (void)info;
    pl_scalar_write_f64(out, *(const double *)field);
}

static void print_ENUM(const struct pl_key_info *info, const void *field, struct pl_text *out) {
    char choice[PL_CHOICE_BYTES];
    if (!pl_key_choice(info->choices, *(const uint32_t *)field, choice)) return;
    bool null = pl_scalar_null(choice); /* other readers would take the bare word for no value */
    pl_text_addf(out, null ? "\"%s\"" : "%s", choice);
}

static void print_DTYPE(const struct pl_key_info *info, const void *field, struct pl_text *out) {
    const enum pl_dtype t = *(const uint32_t *)field;
    (void)info;
    pl_text_add(out, t == PL_DTYPE_AUTO ? "auto" : pl_dtype_name(t));
}

static void print_TEMPLATE(const struct pl_key_info *info, const void *field, struct pl_text *out) {
    const struct pl_template_choice *t = field;
    if (t->choice == PL_CHAT_TEMPLATE_FILE)
        pl_scalar_write(out, t->path);
    else
        print_ENUM(info, &t->choice, out);
}

static void print_AUTO(const struct pl_key_info *info, const void *field, struct pl_text *out) {
    if (*(const uint32_t *)field == PL_AUTO)
        pl_text_add(out, auto_word(info));
    else
        print_U32(info, field, out);
}

static void print_BYTES(const struct pl_key_info *info, const void *field, struct pl_text *out) {
    const uint64_t v = *(const uint64_t *)field;
    if (v == PL_AUTO_BYTES)
        pl_text_add(out, "auto");
    else
        print_U64(info, field, out);
    if (v && v < PL_BARE_BYTES_LEAST) pl_text_add(out, "B");
}

static void print_RECOMPUTE(const struct pl_key_info *info, const void *field,
                            struct pl_text *out) {
    (void)info;
    pl_recompute_print(*(const uint32_t *)field, out);
}

static void print_DEVICE(const struct pl_key_info *info, const void *field, struct pl_text *out) {
    uint32_t v = *(const uint32_t *)field;
    if (v < PL_DEVICE_CUDA_AT)
        print_ENUM(info, field, out);
    else
        pl_text_addf(out, "cuda:%u", v - PL_DEVICE_CUDA_AT);
}

static void print_LIST(const struct pl_key_info *info, const void *field, struct pl_text *out) {
    (void)info;
    const struct pl_str_list *list = field;
    pl_text_add(out, "[");
    for (uint32_t i = 0; i < list->n; i++) {
        pl_text_add(out, i ? ", " : "");
        pl_scalar_write(out, list->items[i]);
    }
    pl_text_add(out, "]");
}

#define is_set_PATH is_set_STR
static bool is_set_STR(const void *field) {
    return *(char *const *)field != NULL;
}
static bool is_set_U32(const void *field) {
    return *(const uint32_t *)field != PL_UNSET_U32;
}
static bool is_set_U64(const void *field) {
    return *(const uint64_t *)field != PL_UNSET_U64;
}
static bool is_set_F64(const void *field) {
    return !isnan(*(const double *)field);
}
static bool is_set_LIST(const void *field) {
    return ((const struct pl_str_list *)field)->n > 0;
}
static bool is_set_DATASETS(const void *field) {
    return ((const struct pl_dataset_list *)field)->n > 0;
}
static bool is_set_BOOL(const void *field) {
    (void)field; /* always has a default */
    return true;
}

static bool is_set_TEMPLATE(const void *field) {
    return is_set_U32(&((const struct pl_template_choice *)field)->choice);
}

#define clear_PATH clear_STR
static void clear_STR(void *field) {
    free(*(char **)field);
    *(char **)field = NULL;
}
static void clear_BOOL(void *field) {
    *(bool *)field = false;
}
static void clear_U32(void *field) {
    *(uint32_t *)field = PL_UNSET_U32;
}
static void clear_U64(void *field) {
    *(uint64_t *)field = PL_UNSET_U64;
}
static void clear_F64(void *field) {
    *(double *)field = (double)NAN;
}

static void clear_TEMPLATE(void *field) {
    struct pl_template_choice *t = field;
    free(t->path);
    *t = (struct pl_template_choice){.choice = PL_UNSET_U32};
}

#define parse_DATASETS   pl_datasets_parse
#define print_DATASETS   pl_datasets_print
#define clear_DATASETS   pl_datasets_clear
#define is_set_ENUM      is_set_U32
#define is_set_DTYPE     is_set_U32
#define is_set_AUTO      is_set_U32
#define is_set_RECOMPUTE is_set_U32
#define is_set_DEVICE    is_set_U32
#define is_set_BYTES     is_set_U64
#define clear_ENUM       clear_U32
#define clear_DTYPE      clear_U32
#define clear_AUTO       clear_U32
#define clear_RECOMPUTE  clear_U32
#define clear_DEVICE     clear_U32
#define clear_BYTES      clear_U64

const struct pl_key_field pl_key_fields[PL_KEY_COUNT] = {
#define X(key, type, def, lo, hi, choices, help) {PL_TYPE_##type, offsetof(struct pl_job, key)},
    PL_CONFIG_KEYS(X)
#undef X
};

const struct pl_key_type pl_key_types[PL_TYPE_COUNT] = {
#define X(type, label)                                                                             \
    {label, sizeof(pl_type_##type), parse_##type, print_##type, is_set_##type, clear_##type},
    PL_KEY_TYPES(X)
#undef X
};

bool pl_key_is_null(const struct pl_key_info *info, const struct pl_node *node) {
    char choice[PL_CHOICE_BYTES];
    if (node->kind != PL_NODE_SCALAR || !node->plain || !pl_scalar_null(node->text)) return false;
    for (uint32_t i = 0; pl_key_choice(info->choices, i, choice); i++)
        if (strcmp(node->text, choice) == 0) return false;
    return true;
}
