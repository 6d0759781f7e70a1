/* check_targets.c - the modules that PEFT adapts, for the settings of targets.jsonl, which
 * make_targets.py writes. */
#include "estimator/base/text.h"
#include "estimator/model/targets.h"

#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS    12
#define MOST_ROWS 200

static const char config[] =
    "{\"model_type\":\"llama\",\"hidden_size\":8,\"intermediate_size\":8,\"vocab_size\":32,"
    "\"num_hidden_layers\":12,\"num_attention_heads\":2,\"num_key_value_heads\":1,"
    "\"tie_word_embeddings\":false}";
static const char *const parts[] = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                    "gate_proj", "up_proj", "down_proj"};
#define N_PARTS (sizeof parts / sizeof *parts)

static json_t *recorded[MOST_ROWS];
static int n_recorded;

static struct pl_model model(void) {
    struct pl_model m;
    ck_assert_int_eq(pl_model_parse("config.json", config, sizeof config - 1, &m, NULL), PL_ERR_OK);
    return m;
}

struct lists {
    const char *items[16];
    uint32_t n;
};

static struct pl_target_names take_names(const json_t *v, struct lists *l) {
    for (l->n = 0; json_is_string(v) ? l->n < 1 : l->n < json_array_size(v); l->n++)
        l->items[l->n] = json_string_value(json_is_string(v) ? v : json_array_get(v, l->n));
    return (struct pl_target_names){l->items, l->n};
}

static void take_layers(const json_t *v, struct pl_target_choice *c) {
    c->some_layers = v != NULL;
    for (size_t i = 0; i < json_array_size(v); i++)
        pl_target_choose_layer(c, (uint64_t)json_integer_value(json_array_get(v, i)));
    if (json_is_integer(v)) pl_target_choose_layer(c, (uint64_t)json_integer_value(v));
}

static bool adapts_head(const struct pl_model *m, const struct pl_targets *t) {
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    uint32_t n = pl_model_modules(m, rows), mask = 0;
    for (uint32_t r = 0; r < n; r++)
        if (rows[r].slot == PL_SLOT_HEAD) mask |= UINT32_C(1) << r;
    ck_assert_uint_eq(t->once & ~mask, 0);
    return t->once == mask;
}

static uint32_t parts_of_layer(const struct pl_model *m, const struct pl_targets *t, uint64_t l) {
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    uint32_t n = pl_model_rows(m, rows), mask = 0;
    for (uint32_t r = 0; r < n; r++)
        for (size_t p = 0; p < N_PARTS; p++)
            if ((pl_targets_of_layer(t, l) >> r & 1) && strcmp(rows[r].module, parts[p]) == 0)
                mask |= UINT32_C(1) << p;
    return mask;
}

/* V1 */
START_TEST(the_modules_are_those_of_peft) {
    const struct pl_model m = model();
    const json_t *row = recorded[_i];
    struct lists modules, excluded, lists;
    struct pl_target_choice c = {
        .modules = take_names(json_object_get(row, "target_modules"), &modules),
        .excluded = take_names(json_object_get(row, "exclude_modules"), &excluded),
        .lists = take_names(json_object_get(row, "layers_pattern"), &lists),
        .of_file = true};
    struct pl_targets targets;
    struct pl_diag d = {0};
    take_layers(json_object_get(row, "layers_to_transform"), &c);
    ck_assert_msg(pl_targets_find(&m, &c, &targets, NULL, &d) == PL_ERR_OK, "%d: %s", _i,
                  d.message);
    ck_assert_msg(adapts_head(&m, &targets) == json_is_true(json_object_get(row, "head")),
                  "row %d of targets.jsonl, the head", _i + 1);
    for (uint64_t l = 0; l < LAYERS; l++) {
        const json_t *want = json_array_get(json_object_get(row, "masks"), l);
        ck_assert_msg(parts_of_layer(&m, &targets, l) == json_integer_value(want),
                      "row %d of targets.jsonl, layer %d", _i + 1, (int)l);
    }
}
END_TEST

static const struct {
    const char *module, *excluded, *list;
    bool layers;
    enum pl_target_field field;
    pl_err err;
    const char *says;
} wrong[] = {
    {"q_porj", NULL, NULL, false, PL_TARGET_MODULES, PL_ERR_CONFIG_RANGE,
     "`lora_target_modules`: this model has no module `q_porj`; the nearest is `q_proj`"},
    {"mlp.q_proj", NULL, NULL, false, PL_TARGET_MODULES, PL_ERR_CONFIG_RANGE,
     "this model has no module `mlp.q_proj`"},
    {".*_porj", NULL, NULL, false, PL_TARGET_MODULES, PL_ERR_CONFIG_RANGE,
     "no module of this model matches `.*_porj`"},
    {".*(q_proj", NULL, NULL, false, PL_TARGET_MODULES, PL_ERR_CONFIG_RANGE,
     "the expression `.*(q_proj` has a group without its end, at character 3"},
    {".*norm|.*q_proj", NULL, NULL, false, PL_TARGET_MODULES, PL_ERR_CONFIG_RANGE,
     "matches `model.layers.0.input_layernorm`, and adapters on it are not supported"},
    {"all-linear", "gate", NULL, false, PL_TARGET_EXCLUDED, PL_ERR_CONFIG_RANGE,
     "`lora_exclude_modules`: this model has no module `gate`"},
    {"q_proj", "self_attn.q_proj", NULL, false, PL_TARGET_EXCLUDED, PL_ERR_CONFIG_CONFLICT,
     "`lora_exclude_modules` leaves no module to adapt"},
    {"all-linear", NULL, "h", true, PL_TARGET_LISTS, PL_ERR_CONFIG_CONFLICT,
     "`layers_pattern` matches no list of layers"},
    {"all-linear", NULL, "layers", false, PL_TARGET_LISTS, PL_ERR_CONFIG_CONFLICT,
     "has no effect without `layers_to_transform`"},
    {".*q_proj", NULL, NULL, true, PL_TARGET_LAYERS, PL_ERR_CONFIG_CONFLICT,
     "the targets are a regular expression"},
};

/* V2 */
START_TEST(settings_that_choose_nothing_are_refused_by_name) {
    const struct pl_model m = model();
    struct pl_target_choice c = {.modules = {&wrong[_i].module, 1},
                                 .excluded = {&wrong[_i].excluded, wrong[_i].excluded != NULL},
                                 .lists = {&wrong[_i].list, wrong[_i].list != NULL},
                                 .some_layers = wrong[_i].layers};
    struct pl_targets targets;
    struct pl_diag d = {0};
    enum pl_target_field field;
    pl_target_choose_layer(&c, 3);
    ck_assert_int_eq(pl_targets_find(&m, &c, &targets, &field, &d), wrong[_i].err);
    ck_assert_msg(strstr(d.message, wrong[_i].says) != NULL, "%s", d.message);
    ck_assert_int_eq(field, wrong[_i].field);
    ck_assert(d.hint[0] != 0);
}
END_TEST

static const struct {
    const char *whole[2];
    uint32_t n, slots; /* bits of enum pl_slot */
    bool of_file;
    const char *says; /* NULL: accepted */
} wholes[] = {
    {{"embed_tokens"}, 1, 1u << PL_SLOT_EMBED, false, NULL},
    {{"lm_head", "model.embed_tokens"}, 2, 1u << PL_SLOT_EMBED | 1u << PL_SLOT_HEAD, false, NULL},
    {{"head"}, 1, 0, false, "`lora_modules_to_save`: `head` cannot be trained whole"},
    {{"head"}, 1, 0, true, NULL}, /* PEFT wrote it down; it named nothing */
    {{"lm_head", "norm"}, 2, 0, false, "`norm` cannot be trained whole"},
    {{"norm"}, 1, 0, true, "`modules_to_save`: `norm` cannot be trained whole"},
    {{"q_proj"}, 1, 0, false, "`q_proj` cannot be trained whole"},
    {{".*head"}, 1, 0, false, "`.*head` cannot be trained whole"},
};

START_TEST(embedding_and_head_alone_are_trained_whole) {
    static const char *const modules[] = {"v_proj", "lm_head"};
    const struct pl_model m = model();
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    struct pl_target_choice c = {.modules = {modules, 2},
                                 .whole = {wholes[_i].whole, wholes[_i].n},
                                 .of_file = wholes[_i].of_file};
    struct pl_targets targets;
    struct pl_diag d = {0};
    enum pl_target_field field = PL_TARGET_MODULES;
    uint32_t slots = 0, n = pl_model_modules(&m, rows);
    pl_err err = pl_targets_find(&m, &c, &targets, &field, &d);
    ck_assert_int_eq(err, wholes[_i].says ? PL_ERR_CONFIG_RANGE : PL_ERR_OK);
    if (wholes[_i].says) {
        ck_assert_msg(strstr(d.message, wholes[_i].says) != NULL, "%s", d.message);
        ck_assert_int_eq(field, PL_TARGET_WHOLE);
        return;
    }
    for (uint32_t r = 0; r < n; r++)
        if (targets.whole >> r & 1) slots |= 1u << rows[r].slot;
    ck_assert_uint_eq(slots, wholes[_i].slots);
    ck_assert_uint_eq(targets.once & targets.whole, 0); /* no adapter on what is trained whole */
    ck_assert_uint_ne(targets.rows, 0);
    const bool head = wholes[_i].slots >> PL_SLOT_HEAD & 1;
    ck_assert_int_eq(targets.once != 0, !head);
}
END_TEST

/* Layer 1 has a dense MLP. */
static const char mixture[] =
    "{\"model_type\":\"qwen3_moe\",\"hidden_size\":32,\"intermediate_size\":24,"
    "\"moe_intermediate_size\":16,\"num_experts\":8,\"num_experts_per_tok\":2,"
    "\"num_hidden_layers\":3,\"mlp_only_layers\":[1],\"num_attention_heads\":4,"
    "\"num_key_value_heads\":2,\"head_dim\":8,\"vocab_size\":96}";

static const struct {
    const char *modules[4], *parameters[2];
    const char *adapted; /* the names in the files, in their order; NULL: refused */
    const char *says;
} mixtures[] = {
    {{"gate_proj", "down_proj"},
     {0},
     " mlp.gate_proj.weight mlp.down_proj.weight mlp.experts.*.gate_proj.weight"
     " mlp.experts.*.down_proj.weight",
     NULL},
    {{"gate_up_proj", "down_proj"},
     {0},
     " mlp.down_proj.weight mlp.experts.gate_up_proj mlp.experts.down_proj",
     NULL},
    {{"mlp.experts.down_proj"}, {0}, " mlp.experts.down_proj", NULL},
    {{"experts.down_proj", "q_proj"}, {0}, " self_attn.q_proj.weight mlp.experts.down_proj", NULL},
    {{"mlp.down_proj"}, {0}, " mlp.down_proj.weight", NULL},
    {{"q_proj"}, {"gate_up_proj"}, " self_attn.q_proj.weight mlp.experts.gate_up_proj", NULL},
    {{"gate_proj", "up_proj", "down_proj"},
     {"gate_up_proj", "down_proj"},
     " mlp.gate_proj.weight mlp.up_proj.weight mlp.down_proj.weight mlp.experts.gate_up_proj"
     " mlp.experts.down_proj",
     NULL},
    {{".*experts.*down_proj"}, {0}, " mlp.experts.*.down_proj.weight", NULL},
    {{"down_proj"}, {"gate_up_proj"}, NULL, "experts one by one, and others as a parameter"},
    {{"layers.0.mlp.experts.3.up_proj"}, {0}, NULL, "names some experts of a layer only"},
    {{".*experts.gate_up_proj"}, {0}, NULL, "no module of this model matches"},
    {{".*experts.0.up_proj"}, {0}, NULL, "names some experts of a layer only"},
    {{"q_proj"}, {"q_proj"}, NULL, "no parameter `q_proj` of a mixture of experts"},
};

static uint32_t count(const char *const *items, uint32_t most) {
    uint32_t n = 0;
    while (n < most && items[n])
        n++;
    return n;
}

START_TEST(experts_are_adapted_one_by_one_or_as_parameters) {
    struct pl_model m;
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    struct pl_targets targets;
    struct pl_diag d = {0};
    struct pl_text text = {0};
    struct pl_target_choice c = {
        .modules = {mixtures[_i].modules, count(mixtures[_i].modules, 4)},
        .parameters = {mixtures[_i].parameters, count(mixtures[_i].parameters, 2)}};
    ck_assert_int_eq(pl_model_parse("config.json", mixture, sizeof mixture - 1, &m, NULL),
                     PL_ERR_OK);
    const pl_err err = pl_targets_find(&m, &c, &targets, NULL, &d);
    ck_assert_msg((err == PL_ERR_OK) == (mixtures[_i].adapted != NULL), "%s", d.message);
    if (mixtures[_i].says) {
        ck_assert_msg(strstr(d.message, mixtures[_i].says) != NULL, "%s", d.message);
        ck_assert(d.hint[0] != 0);
        return;
    }
    const uint32_t n = pl_model_modules(&m, rows);
    for (uint32_t r = 0; r < n; r++)
        if (pl_row_set_has(targets.rows, r)) pl_text_addf(&text, " %s", rows[r].suffix);
    ck_assert_str_eq(pl_text_str(&text), mixtures[_i].adapted);
    pl_text_finish(&text);
}
END_TEST

static void read_rows(void) {
    char line[4096];
    FILE *f = fopen(TARGETS, "r");
    while (f && n_recorded < MOST_ROWS && fgets(line, sizeof line, f))
        if ((recorded[n_recorded] = json_loads(line, 0, NULL))) n_recorded++;
    if (f) fclose(f);
}

int main(void) {
    Suite *s = suite_create("targets");
    TCase *t = tcase_create("all");
    read_rows();
    if (n_recorded < 50) return EXIT_FAILURE;
    tcase_add_loop_test(t, the_modules_are_those_of_peft, 0, n_recorded);
    tcase_add_loop_test(t, settings_that_choose_nothing_are_refused_by_name, 0,
                        sizeof wrong / sizeof *wrong);
    tcase_add_loop_test(t, embedding_and_head_alone_are_trained_whole, 0,
                        sizeof wholes / sizeof *wholes);
    tcase_add_loop_test(t, experts_are_adapted_one_by_one_or_as_parameters, 0,
                        sizeof mixtures / sizeof *mixtures);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    for (int i = 0; i < n_recorded; i++)
        json_decref(recorded[i]);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
