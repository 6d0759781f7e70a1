#include "estimator/config/key_reference.h"

#include "estimator/config/key_types.h"

/* The keys at which the reference starts a new section. */
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

static const struct pl_key_info *info_of(enum pl_key_id key) {
    uint32_t n;
    return &pl_key_table(&n)[key];
}

void pl_key_write_values(enum pl_key_id key, struct pl_text *out) {
    const struct pl_key_info *info = info_of(key);
    enum pl_key_type_id type = pl_key_fields[key].type;
    char choice[PL_CHOICE_BYTES];
    for (uint32_t i = 0; pl_key_choice(info->choices, i, choice); i++)
        pl_text_addf(out, "%s`%s`", i ? ", " : "", choice);
    if (type == PL_TYPE_U32 || type == PL_TYPE_U64 || type == PL_TYPE_F64 || type == PL_TYPE_AUTO)
        pl_key_write_limits(key, out);
}

static void write_row(enum pl_key_id key, struct pl_text *out) {
    const struct pl_key_info *info = info_of(key);
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
