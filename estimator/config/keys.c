/* keys.c - the table of keys.h as data: lookup by name, spelling hints, the option reference. */
#include "estimator/config/key_types.h"

#include <string.h>

static const struct pl_key_info infos[PL_KEY_COUNT] = {
#define X(key, type, def, lo, hi, choices, help) {#key, #type, def, choices, help, lo, hi},
    PL_CONFIG_KEYS(X)
#undef X
};

const struct pl_key_field pl_key_fields[PL_KEY_COUNT] = {
#define X(key, type, def, lo, hi, choices, help) {PL_TYPE_##type, offsetof(struct pl_job, key)},
    PL_CONFIG_KEYS(X)
#undef X
};

static const enum pl_key_class classes[PL_KEY_COUNT] = {
#define X(key, class) [PL_KEY_##key] = PL_KEY_##class,
    PL_CONFIG_KEY_CLASSES(X)
#undef X
};

static const struct {
    const char *name;
    enum pl_key_id key;
} synonyms[] = {
#define X(synonym, key) {#synonym, PL_KEY_##key},
    PL_CONFIG_SYNONYMS(X)
#undef X
};
#define N_SYNONYMS (sizeof synonyms / sizeof *synonyms)

/* Where the reference starts a new section. */
static const struct {
    enum pl_key_id first;
    const char *title;
} sections[] = {
    {PL_KEY_model, "Model and mode"},
    {PL_KEY_adapter_dtype, "LoRA and frozen layers"},
    {PL_KEY_datasets, "Data"},
    {PL_KEY_batch_size, "Batch"},
    {PL_KEY_optimizer, "Optimizer and schedule"},
    {PL_KEY_gradient_checkpointing, "Memory"},
    {PL_KEY_val_set_size, "Evaluation"},
    {PL_KEY_logging_steps, "Logs, checkpoints, output"},
    {PL_KEY_seed, "Machine"},
};

const struct pl_key_info *pl_key_table(uint32_t *n) {
    *n = PL_KEY_COUNT;
    return infos;
}

enum pl_key_class pl_key_class(enum pl_key_id key) {
    return classes[key];
}

enum pl_key_id pl_key_find(const char *name) {
    for (uint32_t i = 0; i < PL_KEY_COUNT; i++)
        if (strcmp(name, infos[i].key) == 0) return (enum pl_key_id)i;
    for (size_t i = 0; i < N_SYNONYMS; i++)
        if (strcmp(name, synonyms[i].name) == 0) return synonyms[i].key;
    return PL_KEY_COUNT;
}

const char *pl_key_nearest(const char *name) {
    const char *names[PL_KEY_COUNT + N_SYNONYMS];
    size_t n = 0;
    for (uint32_t i = 0; i < PL_KEY_COUNT; i++)
        names[n++] = infos[i].key;
    for (size_t i = 0; i < N_SYNONYMS; i++)
        if (strlen(synonyms[i].name) > 2) /* `r` and `lr` are near to any short word */
            names[n++] = synonyms[i].name;
    const char *near = pl_text_nearest(name, names, n);
    return near ? infos[pl_key_find(near)].key : NULL;
}

void pl_key_write_values(enum pl_key_id key, struct pl_text *out) {
    const struct pl_key_info *info = &infos[key];
    enum pl_key_type_id type = pl_key_fields[key].type;
    char choice[PL_CHOICE_BYTES];
    for (uint32_t i = 0; pl_key_choice(info->choices, i, choice); i++)
        pl_text_addf(out, "%s`%s`", i ? ", " : "", choice);
    if (type == PL_TYPE_U32 || type == PL_TYPE_U64 || type == PL_TYPE_F64 || type == PL_TYPE_AUTO)
        pl_key_write_limits(key, out);
}

void pl_key_write_synonyms(enum pl_key_id key, struct pl_text *out) {
    const char *separator = "";
    for (size_t i = 0; i < N_SYNONYMS; i++) {
        if (synonyms[i].key != key) continue;
        pl_text_addf(out, "%s`%s`", separator, synonyms[i].name);
        separator = ", ";
    }
}

static void write_row(enum pl_key_id key, struct pl_text *out) {
    const struct pl_key_info *info = &infos[key];
    pl_text_addf(out, "| `%s` | %s | ", info->key, pl_key_type_label(key));
    if (info->def[0]) pl_text_addf(out, "`%s`", info->def);
    pl_text_add(out, " | ");
    pl_key_write_values(key, out);
    pl_text_addf(out, " | %s | ", info->help);
    pl_key_write_synonyms(key, out);
    pl_text_add(out, " |\n");
}

const char *pl_key_introduction(void) {
    return "A configuration is a YAML 1.2 file with one `key: value` per line. An empty value\n"
           "means the default; no default means unset. Sizes are written `16GiB`, `20GB` or\n"
           "in bytes. On the command line a key is `key=value` or `--key value`, with dashes\n"
           "or underscores; lists are separated by commas (`debug_inject` by semicolons).\n";
}

const char *pl_key_section(enum pl_key_id key) {
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (sections[i].first == key) return sections[i].title;
    return NULL;
}

const char *pl_key_type_label(enum pl_key_id key) {
    return pl_key_types[pl_key_fields[key].type].label;
}

void pl_key_reference(struct pl_text *out) {
    pl_text_add(out, "# Configuration reference\n\n"
                     "Generated from `estimator/config/keys.h`; a test keeps the two equal.\n\n");
    pl_text_add(out, pl_key_introduction());
    for (uint32_t i = 0; i < PL_KEY_COUNT; i++) {
        const char *title = pl_key_section((enum pl_key_id)i);
        if (title)
            pl_text_addf(out,
                         "\n## %s\n\n"
                         "| key | type | default | values | meaning | also read as |\n"
                         "|---|---|---|---|---|---|\n",
                         title);
        write_row((enum pl_key_id)i, out);
    }
}
