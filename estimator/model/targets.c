/* PEFT's rules are those of check_target_module_exists() in peft/tuners/tuners_utils.py, 0.21. */
#include "estimator/model/targets.h"

#include "estimator/base/path_pattern.h"
#include "estimator/base/text.h"

#include <stdio.h>
#include <string.h>

static const char *const keys[][2] = {
    [PL_TARGET_MODULES] = {"lora_target_modules", "target_modules"},
    [PL_TARGET_PARAMETERS] = {"lora_target_parameters", "target_parameters"},
    [PL_TARGET_EXCLUDED] = {"lora_exclude_modules", "exclude_modules"},
    [PL_TARGET_LISTS] = {"layers_pattern", "layers_pattern"},
    [PL_TARGET_LAYERS] = {"layers_to_transform", "layers_to_transform"},
    [PL_TARGET_WHOLE] = {"lora_modules_to_save", "modules_to_save"},
};

#define PATH_TEXT 160 /* with `language_model.` in it */

struct finder {
    const struct pl_model *m;
    const struct pl_target_choice *c;
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    uint32_t n_rows;
    enum pl_target_field wrong;
    enum { SPELLED_PLAIN, SPELLED_IN_MODEL, SPELLED_BEFORE_MODEL } spelling; /* V4 */
    struct pl_diag *d;
};

static const char *key_of(const struct finder *f, enum pl_target_field field) {
    return keys[field][f->c->of_file];
}

static void expert_path(const struct pl_param_row *row, uint64_t layer, uint32_t expert,
                        char buf[128]) {
    pl_model_expert_name(row, layer, expert, buf);
    char *end = strrchr(buf, '.');
    if (end && (strcmp(end, ".weight") == 0 || strcmp(end, ".bias") == 0)) *end = 0;
}

void pl_target_path(const struct pl_param_row *row, uint64_t layer, char buf[128]) {
    expert_path(row, layer, 0, buf);
}

bool pl_target_is_pattern(const char *name) {
    return strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-") !=
           strlen(name);
}

/* ---- errors ---- */

/* "all-linear" and every module, for a hint and for the nearest of them. */
static uint32_t list_modules(const struct finder *f, const char *names[PL_MODEL_MAX_ROWS + 1],
                             struct pl_text *list) {
    uint32_t n = 1;
    names[0] = "all-linear";
    pl_text_add(list, names[0]);
    for (uint32_t i = 0; i < f->n_rows; i++) {
        const char *module = f->rows[i].module;
        uint32_t k = 0;
        while (module && k < n && strcmp(names[k], module) != 0)
            k++;
        if (!module || k < n) continue;
        names[n++] = module;
        pl_text_addf(list, ", %s", module);
    }
    return n;
}

static pl_err refuse_parameter(struct finder *f, const char *name) {
    struct pl_text list = {0};
    for (uint32_t i = 0; i < f->n_rows; i++)
        if (pl_row_is_parameter(&f->rows[i]))
            pl_text_addf(&list, "%s%s", list.len ? ", " : "", f->rows[i].suffix);
    f->wrong = PL_TARGET_PARAMETERS;
    pl_diag_set(f->d, PL_ERR_CONFIG_RANGE,
                "`%s`: this model has no parameter `%.60s` of a mixture of experts",
                key_of(f, PL_TARGET_PARAMETERS), name);
    pl_diag_hint(f->d, list.len ? "its parameters are: %s" : "it has no experts%s",
                 pl_text_str(&list));
    pl_text_finish(&list);
    return PL_ERR_CONFIG_RANGE;
}

static pl_err refuse_name(struct finder *f, enum pl_target_field field, const char *name) {
    const char *modules[PL_MODEL_MAX_ROWS + 1];
    struct pl_text list = {0};
    if (field == PL_TARGET_PARAMETERS) return refuse_parameter(f, name);
    uint32_t n = list_modules(f, modules, &list);
    const char *near = pl_text_nearest(name, modules, n);
    f->wrong = field;
    if (pl_target_is_pattern(name))
        pl_diag_set(f->d, PL_ERR_CONFIG_RANGE, "`%s`: no module of this model matches `%.60s`",
                    key_of(f, field), name);
    else if (near)
        pl_diag_set(f->d, PL_ERR_CONFIG_RANGE,
                    "`%s`: this model has no module `%.60s`; the nearest is `%s`", key_of(f, field),
                    name, near);
    else
        pl_diag_set(f->d, PL_ERR_CONFIG_RANGE, "`%s`: this model has no module `%.60s`",
                    key_of(f, field), name);
    pl_diag_hint(f->d, "its modules are: %s", pl_text_str(&list));
    pl_text_finish(&list);
    return PL_ERR_CONFIG_RANGE;
}

static pl_err refuse_expression(struct finder *f, enum pl_target_field field, const char *pattern,
                                const struct pl_path_pattern_wrong *why) {
    f->wrong = field;
    pl_diag_set(f->d, PL_ERR_CONFIG_RANGE, "`%s`: the expression `%.60s` %s, at character %zu",
                key_of(f, field), pattern, why->why, why->at + 1);
    pl_diag_hint(f->d, "regular expressions are read as Python's re.fullmatch() reads them, "
                       "without back references, flags, and atomic or possessive parts");
    return PL_ERR_CONFIG_RANGE;
}

static pl_err refuse_choice(struct finder *f, enum pl_target_field field, const char *what,
                            const char *hint) {
    f->wrong = field;
    pl_diag_set(f->d, PL_ERR_CONFIG_CONFLICT, "`%s` %s", key_of(f, field), what);
    pl_diag_hint(f->d, "%s", hint);
    return PL_ERR_CONFIG_CONFLICT;
}

/* ---- one name, one module ---- */

static pl_err expression_matches(struct finder *f, enum pl_target_field field, const char *pattern,
                                 const char *path, bool *out) {
    struct pl_path_pattern_wrong why;
    if (pl_path_pattern_match(pattern, path, out, &why)) return PL_ERR_OK;
    return refuse_expression(f, field, pattern, &why);
}

/* How an entry of a list names a module: by its whole path, or by the end of it after a dot. */
enum fit { FIT_NONE, FIT_END, FIT_WHOLE };

static enum fit fit_path(const char *name, const char *path) {
    size_t n = strlen(name), length = strlen(path);
    if (n > length || strcmp(path + length - n, name) != 0) return FIT_NONE;
    return n == length ? FIT_WHOLE : path[length - n - 1] == '.' ? FIT_END : FIT_NONE;
}

/* `lm_head`, which stands in no list of layers. */
static bool is_whole_path(const struct pl_param_row *row, const char *name) {
    size_t n = strlen(name);
    return !row->per_layer && strncmp(row->suffix, name, n) == 0 && row->suffix[n] == '.';
}

static bool is_pattern(const struct pl_target_names *names) {
    return names->n == 1 && pl_target_is_pattern(names->items[0]);
}

/* The path of a row as the adapter's own model has it. */
static void spell_path(const struct finder *f, uint32_t row, uint64_t layer, uint32_t expert,
                       char path[PATH_TEXT]) {
    static const char model[] = "model.", part[] = "language_model.";
    char plain[128];
    expert_path(&f->rows[row], layer, expert, plain);
    const bool inside =
        f->spelling == SPELLED_IN_MODEL && strncmp(plain, model, strlen(model)) == 0;
    snprintf(path, PATH_TEXT, "%s%s%s", inside ? model : "",
             inside || f->spelling == SPELLED_BEFORE_MODEL ? part : "",
             plain + (inside ? strlen(model) : 0));
}

/* Most names are of a module whatever its layer, which needs no path. */
static bool needs_path(const struct pl_target_names *names, uint32_t item) {
    return is_pattern(names) || strchr(names->items[item], '.');
}

/* The name without `language_model.`; false: it has none, or is too long for a path. */
static bool plain_name(const char *name, char out[PATH_TEXT]) {
    static const char part[] = "language_model.";
    const char *at = strstr(name, part);
    if (!at || strlen(name) >= PATH_TEXT) return false;
    snprintf(out, PATH_TEXT, "%.*s%s", (int)(at - name), name, at + strlen(part));
    return true;
}

/* True if a name of a kind can be that of a row: a list of parameters is of nothing else, and where
 * there is one, other names are of modules, as expressions always are. */
static bool may_name(const struct finder *f, enum pl_target_field field,
                     const struct pl_target_names *names, const struct pl_param_row *row) {
    const bool parameter = pl_row_is_parameter(row);
    if (field == PL_TARGET_PARAMETERS) return parameter;
    return !parameter || (!f->c->parameters.n && !is_pattern(names));
}

static pl_err path_matches(struct finder *f, enum pl_target_field field,
                           const struct pl_target_names *names, uint32_t item, uint32_t row,
                           uint64_t layer, uint32_t expert, enum fit *out) {
    const char *name = names->items[item], *module = f->rows[row].module;
    char path[PATH_TEXT], plain[PATH_TEXT];
    bool yes = false;
    spell_path(f, row, layer, expert, path);
    if (is_pattern(names)) {
        PL_TRY(expression_matches(f, field, name, path, &yes));
        *out = yes ? FIT_WHOLE : FIT_NONE;
        return PL_ERR_OK;
    }
    *out = module ? fit_path(name, path) : FIT_NONE;
    if (*out == FIT_NONE && module && f->c->of_file && plain_name(name, plain))
        *out = fit_path(plain, path);
    return PL_ERR_OK;
}

static pl_err refuse_some_experts(struct finder *f, enum pl_target_field field, const char *name) {
    f->wrong = field;
    pl_diag_set(f->d, PL_ERR_CONFIG_RANGE, "`%s`: `%.60s` names some experts of a layer only",
                key_of(f, field), name);
    pl_diag_hint(f->d, "name those of a whole layer: all of them have adapters, or none");
    return PL_ERR_CONFIG_RANGE;
}

static pl_err name_matches(struct finder *f, enum pl_target_field field,
                           const struct pl_target_names *names, uint32_t item, uint32_t row,
                           uint64_t layer, enum fit *out) {
    const char *name = names->items[item], *module = f->rows[row].module;
    *out = FIT_NONE;
    if (!may_name(f, field, names, &f->rows[row])) return PL_ERR_OK;
    if (!needs_path(names, item)) {
        const bool all = f->rows[row].linear && strcmp(name, "all-linear") == 0;
        const bool yes = module && (all || strcmp(name, module) == 0);
        *out = !yes ? FIT_NONE : is_whole_path(&f->rows[row], name) ? FIT_WHOLE : FIT_END;
        return PL_ERR_OK;
    }
    PL_TRY(path_matches(f, field, names, item, row, layer, 0, out));
    for (uint32_t e = 1; e < pl_model_row_tensors(&f->rows[row]); e++) {
        enum fit other;
        PL_TRY(path_matches(f, field, names, item, row, layer, e, &other));
        if ((other == FIT_NONE) != (*out == FIT_NONE)) return refuse_some_experts(f, field, name);
    }
    return PL_ERR_OK;
}

/* PEFT refuses what it cannot adapt; skipping it here would train something else. */
static pl_err check_adaptable(struct finder *f, uint32_t row, uint64_t layer) {
    char path[128];
    if (f->rows[row].module) return PL_ERR_OK;
    pl_target_path(&f->rows[row], layer, path);
    f->wrong = PL_TARGET_MODULES;
    pl_diag_set(f->d, PL_ERR_CONFIG_RANGE,
                "`%s`: the expression matches `%s`, and adapters on it are not supported",
                key_of(f, PL_TARGET_MODULES), path);
    pl_diag_hint(f->d, "narrow it, for example to .*_proj");
    return PL_ERR_CONFIG_RANGE;
}

/* `layers_to_transform` counts what was not named by its whole path. */
static bool is_in_layers(const struct finder *f, enum pl_target_field field, enum fit fit,
                         uint32_t row, uint64_t layer) {
    if (field != PL_TARGET_MODULES || fit == FIT_WHOLE) return true;
    return f->rows[row].per_layer ? pl_target_has_layer(f->c, layer) : !f->c->some_layers;
}

/* Marks in marks[layer] the rows that one name stands for; *found: there is one. */
static pl_err mark_name(struct finder *f, enum pl_target_field field,
                        const struct pl_target_names *names, uint32_t item, pl_row_set *marks,
                        bool *found) {
    const bool by_path = needs_path(names, item);
    *found = false;
    for (uint32_t r = 0; r < f->n_rows; r++) {
        enum fit fit = FIT_NONE;
        const char *end = strrchr(f->rows[r].suffix, '.');
        if (end && strcmp(end, ".bias") == 0) continue;
        for (uint64_t l = 0; l < (f->rows[r].per_layer ? f->m->layers : 1); l++) {
            if (l == 0 || by_path) PL_TRY(name_matches(f, field, names, item, r, l, &fit));
            if (fit == FIT_NONE) continue;
            if (field == PL_TARGET_MODULES) PL_TRY(check_adaptable(f, r, l));
            *found = true;
            if (is_in_layers(f, field, fit, r, l)) marks[l] |= pl_row_set_of(r);
        }
    }
    return PL_ERR_OK;
}

static pl_err mark_names(struct finder *f, enum pl_target_field field,
                         const struct pl_target_names *names, pl_row_set *marks) {
    bool any = field == PL_TARGET_EXCLUDED || names->n == 0, found;
    memset(marks, 0, f->m->layers * sizeof *marks);
    for (uint32_t i = 0; i < names->n; i++) {
        PL_TRY(mark_name(f, field, names, i, marks, &found));
        if (!found && !f->c->of_file) return refuse_name(f, field, names->items[i]);
        any = any || found;
    }
    return any ? PL_ERR_OK : refuse_name(f, field, names->items[0]);
}

/* ---- layers ---- */

/* `layers_pattern` says what comes before a layer's number; all lists of a decoder are one here. */
static pl_err list_matches(struct finder *f, bool *out) {
    char path[128], pattern[256];
    struct pl_param_row first = {.per_layer = true, .suffix = "self_attn.q_proj.weight"};
    *out = f->c->lists.n == 0;
    pl_target_path(&first, 0, path);
    for (uint32_t i = 0; i < f->c->lists.n && !*out; i++) {
        const char *item = f->c->lists.items[i];
        if (snprintf(pattern, sizeof pattern, "(?:^|.*\\.)%s\\.\\d+\\..*", item) >=
            (int)sizeof pattern)
            return refuse_name(f, PL_TARGET_LISTS, item);
        PL_TRY(expression_matches(f, PL_TARGET_LISTS, pattern, path, out));
    }
    return PL_ERR_OK;
}

static pl_err check_layers(struct finder *f) {
    bool found;
    if (f->c->lists.n && !f->c->some_layers)
        return refuse_choice(f, PL_TARGET_LISTS, "has no effect without `layers_to_transform`",
                             "remove it, or add the layers");
    if (f->c->some_layers && is_pattern(&f->c->modules))
        return refuse_choice(f, PL_TARGET_LAYERS,
                             "chooses layers for a list of modules, and "
                             "the targets are a regular expression",
                             "name the layers in the expression, as PEFT requires");
    PL_TRY(list_matches(f, &found));
    if (found) return PL_ERR_OK;
    return refuse_choice(f, PL_TARGET_LISTS, "matches no list of layers of this model",
                         "its layers are in `layers`");
}

/* ---- trained whole ---- */

static pl_err refuse_whole(struct finder *f, const char *name) {
    f->wrong = PL_TARGET_WHOLE;
    pl_diag_set(f->d, PL_ERR_CONFIG_RANGE, "`%s`: `%.60s` cannot be trained whole",
                key_of(f, PL_TARGET_WHOLE), name);
    pl_diag_hint(f->d, "`embed_tokens` and `lm_head` can");
    return PL_ERR_CONFIG_RANGE;
}

/* The rows that an entry names, in the first layer of those that layers have. */
static pl_row_set rows_named(const struct finder *f, const char *name) {
    pl_row_set set = 0;
    char path[128];
    for (uint32_t r = 0; r < f->n_rows; r++) {
        pl_target_path(&f->rows[r], 0, path);
        if (fit_path(name, path) != FIT_NONE) set |= pl_row_set_of(r);
    }
    return set;
}

/* V3. What an adapter on disk names in vain had no effect on it. */
static pl_err find_whole(struct finder *f, pl_row_set *out) {
    for (uint32_t i = 0; i < f->c->whole.n; i++) {
        const pl_row_set set = rows_named(f, f->c->whole.items[i]);
        bool can = set || f->c->of_file;
        for (uint32_t r = 0; r < f->n_rows; r++)
            if (pl_row_set_has(set, r)) can = can && !f->rows[r].per_layer && !f->rows[r].vector;
        if (!can) return refuse_whole(f, f->c->whole.items[i]);
        *out |= set;
    }
    return PL_ERR_OK;
}

/* ---- all of it ---- */

/* Rows with the matrices of experts, as parameters or one by one. */
static pl_row_set rows_of_experts(const struct finder *f, bool parameters) {
    pl_row_set set = 0;
    for (uint32_t r = 0; r < f->n_rows; r++)
        if (parameters ? pl_row_is_parameter(&f->rows[r]) : f->rows[r].split)
            set |= pl_row_set_of(r);
    return set;
}

static bool is_of_slot(const struct pl_param_row *a, const struct pl_param_row *b) {
    return a->slot == b->slot;
}

static bool is_of_name(const struct pl_param_row *a, const struct pl_param_row *b) {
    return a->module && b->module && strcmp(a->module, b->module) == 0;
}

/* The rows that are like one of a set. */
static pl_row_set rows_like(const struct finder *f, pl_row_set set,
                            bool (*is_like)(const struct pl_param_row *,
                                            const struct pl_param_row *)) {
    pl_row_set like = 0;
    for (uint32_t r = 0; r < f->n_rows; r++)
        for (uint32_t i = 0; i < f->n_rows; i++)
            if (pl_row_set_has(set, i) && is_like(&f->rows[i], &f->rows[r]))
                like |= pl_row_set_of(r);
    return like;
}

/* V5. `down_proj` alone is a module, and a parameter as well: it is the second where another
 * parameter was chosen, and parameters that were chosen leave no experts to adapt one by one. */
static pl_err choose_experts(struct finder *f, const pl_row_set *chosen, pl_row_set *marks) {
    const pl_row_set parameters = rows_of_experts(f, true), ones = rows_of_experts(f, false);
    for (uint64_t l = 0; l < f->m->layers && parameters; l++) {
        const pl_row_set named = marks[l] & parameters;
        const pl_row_set both = rows_like(f, marks[l] & ones, is_of_name);
        if (!(chosen[l] | (named & ~both))) marks[l] &= ~(named & both);
        marks[l] |= chosen[l];
        marks[l] &= ~(ones & rows_like(f, marks[l] & parameters, is_of_slot));
        if (!(marks[l] & parameters) || !(marks[l] & ones)) continue;
        return refuse_choice(f, PL_TARGET_MODULES,
                             "adapts experts one by one, and others as a parameter",
                             "name both `mlp.experts.gate_up_proj` and `mlp.experts.down_proj`, "
                             "or gate_proj, up_proj and down_proj");
    }
    return PL_ERR_OK;
}

static pl_err find_targets(struct finder *f, struct pl_targets *out) {
    pl_row_set excluded[PL_MODEL_MAX_LAYERS], chosen[PL_MODEL_MAX_LAYERS], *marks = out->absent;
    if (f->c->modules.n + f->c->parameters.n == 0) {
        f->wrong = PL_TARGET_MODULES;
        return pl_diag_set(f->d, PL_ERR_CONFIG_RANGE, "`%s` names no module",
                           key_of(f, PL_TARGET_MODULES));
    }
    PL_TRY(check_layers(f));
    PL_TRY(mark_names(f, PL_TARGET_MODULES, &f->c->modules, marks));
    PL_TRY(mark_names(f, PL_TARGET_PARAMETERS, &f->c->parameters, chosen));
    PL_TRY(mark_names(f, PL_TARGET_EXCLUDED, &f->c->excluded, excluded));
    PL_TRY(find_whole(f, &out->whole));
    pl_row_set once = 0;
    for (uint32_t r = 0; r < f->n_rows; r++)
        if (!f->rows[r].per_layer) once |= pl_row_set_of(r);
    for (uint64_t l = 0; l < f->m->layers; l++)
        marks[l] &= ~(excluded[l] | out->whole);
    PL_TRY(choose_experts(f, chosen, marks));
    for (uint64_t l = 0; l < f->m->layers; l++) {
        out->once |= marks[l] & once;
        out->rows |= marks[l] & ~once;
    }
    for (uint64_t l = 0; l < f->m->layers; l++)
        out->absent[l] = out->rows & ~marks[l];
    if (!out->rows && !out->once)
        return refuse_choice(f,
                             f->c->excluded.n ? PL_TARGET_EXCLUDED
                             : out->whole     ? PL_TARGET_WHOLE
                                              : PL_TARGET_LAYERS,
                             "leaves no module to adapt", "at least one must be left");
    return PL_ERR_OK;
}

/* V4. The plain paths come first: an expression may match others as well. */
static pl_err find_spelled(struct finder *f, struct pl_targets *out) {
    const pl_err first = find_targets(f, out);
    pl_err err = first;
    for (f->d = NULL; err != PL_ERR_OK && f->spelling < SPELLED_BEFORE_MODEL;) {
        memset(out, 0, sizeof *out);
        f->spelling++;
        err = find_targets(f, out);
    }
    return err == PL_ERR_OK ? err : first;
}

pl_err pl_targets_find(const struct pl_model *m, const struct pl_target_choice *c,
                       struct pl_targets *out, enum pl_target_field *wrong, struct pl_diag *d) {
    struct pl_diag first = {0}; /* failure of the plain spelling, which another spelling may
                                   replace */
    struct finder f = {.m = m, .c = c, .d = c->of_file ? &first : d};
    memset(out, 0, sizeof *out); /* padding too: shapes are compared byte by byte */
    f.n_rows = pl_model_modules(m, f.rows);
    pl_err err = c->of_file ? find_spelled(&f, out) : find_targets(&f, out);
    if (wrong) *wrong = f.wrong;
    if (!c->of_file || err == PL_ERR_OK) return err;
    pl_diag_set(d, err, "%s", first.message);
    pl_diag_hint(d, "%s", first.hint);
    return err;
}
