/* check_adapter_io.c - PEFT adapter directories. */
#include "estimator/config/job_text.h"
#include "runtime/checkpoint/adapter_io.h"
#include "runtime/checkpoint/convert.h"
#include "runtime/checkpoint/init.h"
#include "runtime/checkpoint/model_io.h"
#include "runtime/checkpoint/safetensors.h"
#include "tests/checkpoint/rig.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME   "adapter_model.safetensors"
#define CONFIG_NAME "adapter_config.json"
#define PREFIX      "base_model.model.model.layers."
#define EMBEDDING   "base_model.model.model.embed_tokens.lora_embedding_"

static char dir[64];
static struct pl_diag diag;
static struct pl_job job;

static void setup(void) {
    diag = (struct pl_diag){0};
    OK(pl_job_defaults(&job, &diag));
    dir_make(dir);
}
static void teardown(void) {
    pl_job_finish(&job);
    dir_remove(dir);
}

static const struct rig_options kinds[] = {
    {.mode = PL_MODE_LORA, .dtype = PL_DTYPE_BF16, .adapter_dtype = PL_DTYPE_F32},
    {.mode = PL_MODE_LORA, .adapter_dtype = PL_DTYPE_BF16, .staging_bytes = 4096},
    {.mode = PL_MODE_LORA, .target = "v_proj", .lora_r = 300, .staging_bytes = 4096},
    {.mode = PL_MODE_LORA, .freeze_layers = 2},
    {.mode = PL_MODE_LORA, .dtype = PL_DTYPE_BF16, .master = true, .whole = {"lm_head"}},
    {.mode = PL_MODE_QLORA, .untied = true, .whole = {"model.embed_tokens", "lm_head"}},
    {.mode = PL_MODE_LORA, .target = "embed_tokens", .staging_bytes = 4096},
    {.mode = PL_MODE_LORA, .target = "embed_tokens", .lora_r = 600, .staging_bytes = 4096},
    {.mode = PL_MODE_LORA,
     .adapter_dtype = PL_DTYPE_BF16,
     .master = true,
     .target = "embed_tokens",
     .lora_r = 300},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

START_TEST(a_saved_adapter_loads_bit_for_bit) {
    struct rig a, b;
    rig_open(&a, &kinds[_i]);
    rig_open(&b, &kinds[_i]);
    rig_scramble(&a, 9);
    OK(rig_save_adapter(&a.io, dir, &job, &diag));
    /* alpha: job default 2 r, so the scale is 2 whatever r is */
    json_t *config = json_load_file(in(dir, CONFIG_NAME), 0, NULL);
    json_object_set_new(config, "lora_alpha",
                        json_integer(2 * (json_int_t)a.program->shape.lora_r));
    json_dump_file(config, in(dir, CONFIG_NAME), 0);
    json_decref(config);
    OK(pl_adapter_load(&b.io, dir, &diag));
    ck_assert(rig_same(&a, &b, PL_ROLE_LORA_A));
    ck_assert(rig_same(&a, &b, PL_ROLE_LORA_B));
    ck_assert(rig_same_whole(&a, &b));
    rig_close(&a);
    rig_close(&b);
}
END_TEST

/* The rest of the base stays what it was: a tied head becomes two tensors. */
START_TEST(a_module_trained_whole_is_saved_with_the_adapter_as_peft_does) {
    static const struct {
        struct rig_options options;
        const char *names[2], *config;
    } rows[] = {
        {{.mode = PL_MODE_LORA, .whole = {"lm_head"}},
         {"base_model.model.lm_head.weight"},
         "[\"lm_head\"]"},
        {{.mode = PL_MODE_LORA, .whole = {"embed_tokens"}},
         {"base_model.model.model.embed_tokens.weight"},
         "[\"embed_tokens\"]"},
        {{.mode = PL_MODE_LORA, .untied = true, .whole = {"lm_head", "model.embed_tokens"}},
         {"base_model.model.model.embed_tokens.weight", "base_model.model.lm_head.weight"},
         "[\"embed_tokens\", \"lm_head\"]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rig r;
        struct pl_st_file f;
        rig_open(&r, &rows[i].options);
        OK(rig_save_adapter(&r.io, dir, &job, &diag));
        OK(pl_st_open(&f, in(dir, FILE_NAME), &diag));
        ck_assert_uint_eq(f.n, 3 * 7 * 2 + 1 + (rows[i].names[1] != NULL));
        for (int k = 0; k < 2 && rows[i].names[k]; k++) {
            const struct pl_st_entry *e = pl_st_find(&f, rows[i].names[k]);
            ck_assert_msg(e != NULL, "%s", rows[i].names[k]);
            ck_assert(e->rank == 2 && e->dims[0] == 40 && e->dims[1] == 16);
        }
        json_t *config = json_load_file(in(dir, CONFIG_NAME), 0, NULL);
        json_t *want = json_loads(rows[i].config, 0, NULL);
        ck_assert(json_equal(json_object_get(config, "modules_to_save"), want));
        json_decref(want);
        json_decref(config);
        pl_st_close(&f);
        rig_close(&r);
    }
}
END_TEST

/* lora_embedding_A is [r,V] in files; rows of tokens are what a look-up wants. */
START_TEST(the_matrices_of_an_embedding_are_pefts) {
    struct rig r;
    struct pl_st_file f;
    float got[4 * 40];
    rig_open(&r, &(struct rig_options){.mode = PL_MODE_LORA,
                                       .target = "embed_tokens",
                                       .staging_bytes = _i ? 1 << 20 : 4096});
    rig_scramble(&r, 3);
    const float *a = r.memory[rig_find(&r, PL_ROLE_LORA_A, PL_SLOT_EMBED, PL_NONE)]; /* [40,4] */
    const void *b = r.memory[rig_find(&r, PL_ROLE_LORA_B, PL_SLOT_EMBED, PL_NONE)];  /* [16,4] */
    OK(rig_save_adapter(&r.io, dir, &job, &diag));
    OK(pl_st_open(&f, in(dir, FILE_NAME), &diag));
    ck_assert_uint_eq(f.n, 2);
    const struct pl_st_entry *e = pl_st_find(&f, EMBEDDING "A");
    ck_assert(e && e->rank == 2 && e->dims[0] == 4 && e->dims[1] == 40);
    OK(pl_st_read(&f, e, 0, got, sizeof got, &diag));
    for (int k = 0; k < 4; k++)
        for (int v = 0; v < 40; v++)
            ck_assert_mem_eq(&got[k * 40 + v], &a[v * 4 + k], sizeof *got);
    ck_assert_ptr_nonnull(e = pl_st_find(&f, EMBEDDING "B"));
    ck_assert(e->rank == 2 && e->dims[0] == 16 && e->dims[1] == 4);
    OK(pl_st_read(&f, e, 0, got, sizeof(float) * 16 * 4, &diag));
    ck_assert_mem_eq(got, b, sizeof(float) * 16 * 4);
    pl_st_close(&f);
    rig_close(&r);
}
END_TEST

/* PEFT: A zero, B normal. */
START_TEST(a_fresh_adapter_on_the_embedding_changes_nothing) {
    struct rig r;
    rig_open(&r,
             &(struct rig_options){.mode = PL_MODE_LORA, .target = "embed_tokens", .lora_r = 64});
    rig_scramble(&r, 3);
    OK(pl_adapter_init(&r.io, 42, &diag));
    const float *a = r.memory[rig_find(&r, PL_ROLE_LORA_A, PL_SLOT_EMBED, PL_NONE)];
    const float *b = r.memory[rig_find(&r, PL_ROLE_LORA_B, PL_SLOT_EMBED, PL_NONE)];
    double squares = 0;
    for (int i = 0; i < 40 * 64; i++)
        ck_assert(a[i] == 0.0f);
    for (int i = 0; i < 16 * 64; i++)
        squares += (double)b[i] * (double)b[i];
    /* Var x^2 of N(0,1) is 2 */
    ck_assert(fabs(squares / 1024 - 1) < 4 * sqrt(2.0 / 1024));
    rig_close(&r);
}
END_TEST

START_TEST(a_module_trained_whole_starts_as_the_base_has_it) {
    struct rig base, r;
    rig_open(&base, &(struct rig_options){.dtype = PL_DTYPE_F32});
    rig_open(&r, &(struct rig_options){.mode = PL_MODE_LORA,
                                       .dtype = PL_DTYPE_BF16,
                                       .master = true,
                                       .whole = {"embed_tokens", "lm_head"}});
    rig_scramble(&base, 4);
    OK(rig_save_model(&base.io, dir, base.config, NULL, PL_SHARD_BYTES, &diag));
    OK(pl_model_load(&r.io, dir, &diag));
    OK(pl_adapter_init(&r.io, 42, &diag));
    const void *want = base.memory[rig_find(&base, PL_ROLE_WEIGHT, PL_SLOT_EMBED, PL_NONE)];
    const enum pl_slot slots[] = {PL_SLOT_EMBED, PL_SLOT_HEAD};
    for (int i = 0; i < 2; i++) {
        uint16_t bf16[40 * 16];
        pl_convert_from_f32(bf16, want, PL_DTYPE_BF16, 40 * 16);
        ck_assert_mem_eq(r.memory[rig_find(&r, PL_ROLE_WEIGHT, slots[i], PL_NONE)], bf16,
                         sizeof bf16);
        ck_assert_mem_eq(r.memory[rig_find(&r, PL_ROLE_MASTER, slots[i], PL_NONE)], want,
                         sizeof(float) * 40 * 16);
    }
    OK(pl_model_init_random(&r.io, 7, &diag));
    ck_assert_mem_eq(r.memory[rig_find(&r, PL_ROLE_WEIGHT, PL_SLOT_EMBED, PL_NONE)],
                     r.memory[rig_find(&r, PL_ROLE_WEIGHT, PL_SLOT_HEAD, PL_NONE)],
                     sizeof(uint16_t) * 40 * 16);
    rig_close(&base);
    rig_close(&r);
}
END_TEST

START_TEST(names_and_shapes_are_pefts) {
    static const struct {
        const char *name;
        uint64_t rows, cols;
    } rows[] = {
        {PREFIX "0.self_attn.q_proj.lora_A.weight", 4, 16},
        {PREFIX "0.self_attn.q_proj.lora_B.weight", 16, 4},
        {PREFIX "2.self_attn.v_proj.lora_B.weight", 8, 4},
        {PREFIX "1.self_attn.o_proj.lora_A.weight", 4, 16},
        {PREFIX "1.mlp.up_proj.lora_B.weight", 24, 4},
        {PREFIX "1.mlp.down_proj.lora_A.weight", 4, 24},
    };
    struct rig r;
    struct pl_st_file f;
    rig_open(&r, &kinds[0]);
    OK(rig_save_adapter(&r.io, dir, &job, &diag));
    OK(pl_st_open(&f, in(dir, FILE_NAME), &diag));
    ck_assert_uint_eq(f.n, 3 * 7 * 2);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct pl_st_entry *e = pl_st_find(&f, rows[i].name);
        ck_assert_msg(e != NULL, "%s", rows[i].name);
        ck_assert_int_eq(e->dtype, PL_DTYPE_F32);
        ck_assert_uint_eq(e->dims[0], rows[i].rows);
        ck_assert_uint_eq(e->dims[1], rows[i].cols);
    }
    pl_st_close(&f);
    rig_close(&r);
}
END_TEST

START_TEST(the_stacked_a_is_split_in_row_order) {
    struct rig r;
    struct pl_st_file f;
    float got[64];
    rig_open(&r, &kinds[0]);
    float *a = r.memory[rig_find(&r, PL_ROLE_LORA_A, PL_SLOT_QKV, 1)]; /* [3*4, 16] */
    for (int i = 0; i < 192; i++)
        a[i] = (float)i;
    OK(rig_save_adapter(&r.io, dir, &job, &diag));
    OK(pl_st_open(&f, in(dir, FILE_NAME), &diag));
    static const char *const names[] = {"q_proj", "k_proj", "v_proj"};
    for (int part = 0; part < 3; part++) {
        char name[128];
        snprintf(name, sizeof name, PREFIX "1.self_attn.%s.lora_A.weight", names[part]);
        OK(pl_st_read(&f, pl_st_find(&f, name), 0, got, sizeof got, &diag));
        for (int i = 0; i < 64; i++)
            ck_assert(got[i] == (float)(64 * part + i));
    }
    pl_st_close(&f);
    rig_close(&r);
}
END_TEST

static const char expected_config[] = "{\n"
                                      "  \"alpha_pattern\": {},\n"
                                      "  \"auto_mapping\": null,\n"
                                      "  \"base_model_name_or_path\": \"some/model\",\n"
                                      "  \"bias\": \"none\",\n"
                                      "  \"fan_in_fan_out\": false,\n"
                                      "  \"inference_mode\": true,\n"
                                      "  \"init_lora_weights\": true,\n"
                                      "  \"layers_pattern\": null,\n"
                                      "  \"layers_to_transform\": null,\n"
                                      "  \"loftq_config\": {},\n"
                                      "  \"lora_alpha\": 8,\n"
                                      "  \"lora_bias\": false,\n"
                                      "  \"lora_dropout\": 0.0,\n"
                                      "  \"megatron_config\": null,\n"
                                      "  \"megatron_core\": \"megatron.core\",\n"
                                      "  \"modules_to_save\": null,\n"
                                      "  \"peft_type\": \"LORA\",\n"
                                      "  \"r\": 4,\n"
                                      "  \"rank_pattern\": {},\n"
                                      "  \"revision\": null,\n"
                                      "  \"target_modules\": [\n"
                                      "    \"v_proj\"\n"
                                      "  ],\n"
                                      "  \"task_type\": \"CAUSAL_LM\",\n"
                                      "  \"use_dora\": false,\n"
                                      "  \"use_rslora\": false\n"
                                      "}\n";

START_TEST(the_config_has_every_key_sorted) {
    struct rig r;
    rig_open(&r, &(struct rig_options){.mode = PL_MODE_LORA, .target = "v_proj"});
    OK(pl_job_set(&job, "model", "some/model", &diag));
    OK(rig_save_adapter(&r.io, dir, &job, &diag));
    char *text = slurp(in(dir, CONFIG_NAME));
    ck_assert_str_eq(text, expected_config);
    free(text);
    rig_close(&r);
}
END_TEST

START_TEST(frozen_layers_have_no_adapter_and_the_config_says_so) {
    struct rig r;
    struct pl_st_file f;
    rig_open(&r, &kinds[3]);
    OK(pl_job_set(&job, "use_rslora", "true", &diag));
    OK(pl_job_set(&job, "lora_alpha", "1.5", &diag));
    OK(rig_save_adapter(&r.io, dir, &job, &diag));
    OK(pl_st_open(&f, in(dir, FILE_NAME), &diag));
    ck_assert_uint_eq(f.n, 14);
    pl_st_close(&f);
    json_t *config = json_load_file(in(dir, CONFIG_NAME), 0, NULL);
    const json_t *layers = json_object_get(config, "layers_to_transform");
    ck_assert_uint_eq(json_array_size(layers), 1);
    ck_assert_int_eq(json_integer_value(json_array_get(layers, 0)), 2);
    ck_assert(json_is_true(json_object_get(config, "use_rslora")));
    ck_assert(json_real_value(json_object_get(config, "lora_alpha")) == 1.5);
    json_decref(config);
    rig_close(&r);
}
END_TEST

static bool add_default(struct st_edit *e, const void *arg) {
    (void)arg;
    char *tail = strstr(e->name, ".weight");
    strcpy(tail, ".default.weight");
    return true;
}

static const enum pl_dtype sixteen[] = {PL_DTYPE_BF16, PL_DTYPE_F16};

/* Overwrites the tensors of the file by the same values in another type. */
static void store_as(enum pl_dtype type) {
    struct pl_st_file f;
    struct pl_text header = {0}, data = {0};
    OK(pl_st_open(&f, in(dir, FILE_NAME), &diag));
    for (uint64_t i = 0; i < f.n; i++) {
        const struct pl_st_entry *e = &f.entries[i];
        uint64_t n = (e->end - e->begin) / 4;
        char shape[PL_ST_SHAPE_TEXT];
        float *values = malloc(n * 4);
        uint16_t *stored = malloc(n * 2);
        OK(pl_st_read(&f, e, 0, values, n * 4, &diag));
        pl_convert_from_f32(stored, values, type, n);
        pl_text_addf(&header, "%c\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                     i ? ',' : '{', e->name, pl_dtype_file_name(type),
                     pl_st_shape_text(e->rank, e->dims, shape), data.len, data.len + (size_t)n * 2);
        pl_text_addn(&data, (const char *)stored, n * 2);
        free(values);
        free(stored);
    }
    pl_st_close(&f);
    pl_text_add(&header, "}");
    st_spill(in(dir, FILE_NAME), header.data, data.data, data.len);
    pl_text_finish(&header);
    pl_text_finish(&data);
}

START_TEST(adapters_in_16_bits_are_read) {
    struct rig a, b;
    rig_open(&a, &kinds[0]);
    rig_open(&b, &kinds[0]);
    for (uint32_t i = 0; i < a.program->n_tensors; i++) {
        const struct pl_tensor *t = &a.program->tensors[i];
        float *w = a.memory[i];
        /* few enough bits for either type */
        for (uint64_t k = 0; t->category == PL_CATEGORY_ADAPTER && k < t->bytes / 4; k++)
            w[k] = ((float)(k * 7 % 61) - 30) / 64;
    }
    OK(rig_save_adapter(&a.io, dir, &job, &diag));
    store_as(sixteen[_i]);
    OK(pl_adapter_load(&b.io, dir, &diag));
    ck_assert(rig_same(&a, &b, PL_ROLE_LORA_A));
    ck_assert(rig_same(&a, &b, PL_ROLE_LORA_B));
    rig_close(&a);
    rig_close(&b);
}
END_TEST

START_TEST(names_with_default_are_read) {
    struct rig a, b;
    rig_open(&a, &kinds[0]);
    rig_open(&b, &kinds[0]);
    rig_scramble(&a, 31);
    OK(rig_save_adapter(&a.io, dir, &job, &diag));
    st_rewrite(in(dir, FILE_NAME), add_default, NULL);
    OK(pl_adapter_load(&b.io, dir, &diag));
    ck_assert(rig_same(&a, &b, PL_ROLE_LORA_A));
    ck_assert(rig_same(&a, &b, PL_ROLE_LORA_B));
    rig_close(&a);
    rig_close(&b);
}
END_TEST

static const struct {
    const char *key, *json, *says; /* says NULL: accepted */
} configs[] = {
    {"r", "8", "r is 8, lora_r of this run 4"},
    {"target_modules", "[\"q_proj\", \"v_proj\"]",
     "target_modules are q_proj, v_proj, lora_target_modules of this run q_proj, k_proj"},
    {"target_modules", "\".*proj\"", NULL},
    {"target_modules", "\".*[.](q|k)_proj\"", "target_modules are q_proj, k_proj, lora_target"},
    {"target_modules", "\".*(proj\"", "`.*(proj` has a group without its end, at character 3"},
    {"target_modules", "\".*\"", "matches `model.layers.0.input_layernorm`"},
    {"target_modules", "[]", "`target_modules` names no module"},
    {"target_modules", "{}", "target_modules is not a list of names"},
    {"exclude_modules", "[\"vision_tower\"]", NULL},
    {"exclude_modules", "\".*mlp.*\"", "target_modules are q_proj, k_proj, v_proj, o_proj, lora_"},
    {"layers_to_transform", "[0, 1, 2]", NULL},
    {"layers_to_transform", "[7]", "leaves no module to adapt"},
    {"layers_to_transform", "\"all\"", "layers_to_transform is not a list of layers"},
    {"target_modules", "\"all-linear\"", NULL},
    {"target_modules",
     "[\"down_proj\",\"gate_proj\",\"k_proj\",\"o_proj\",\"self_attn.q_proj\",\"up_proj\",\"v_"
     "proj\"]",
     NULL},
    {"target_modules",
     "[\"model.layers.0.mlp.down_proj\",\"1.mlp.down_proj\",\"layers.2.mlp.down_proj\","
     "\"gate_proj\",\"k_proj\",\"o_proj\",\"q_proj\",\"up_proj\",\"v_proj\",\"self_attn.v_proj\"]",
     NULL},
    {"target_modules",
     "[\"down_proj\",\"gate_proj\",\"k_proj\",\"o_proj\",\"q_proj\",\"up_proj\",\"v_proj\",\"lm_"
     "head\"]",
     "down_proj, lm_head, lora_target_modules of this run q_proj"},
    {"target_modules", "[\"embed_tokens\"]", "target_modules are embed_tokens, lora_target"},
    {"peft_type", "\"IA3\"", "peft_type is IA3"},
    {"init_lora_weights", "\"pissa\"", "init_lora_weights is pissa"},
    {"init_lora_weights", "\"gaussian\"", NULL},
    {"init_lora_weights", "false", NULL},
    {"trainable_token_indices", "[1, 2]", "trainable_token_indices"},
    {"use_qalora", "true", "use_qalora"},
    {"kasa_config", "{}", "kasa_config"},
    {"kasa_config", "null", NULL},
    {"some_key_of_tomorrow", "1", "some_key_of_tomorrow is set, and its meaning is not known"},
    {"some_key_of_tomorrow", "\"on\"", "some_key_of_tomorrow is set"},
    {"some_key_of_tomorrow", "[0]", "some_key_of_tomorrow is set"},
    {"some_key_of_tomorrow", "0", NULL},
    {"some_key_of_tomorrow", "null", NULL},
    {"some_key_of_tomorrow", "{}", NULL},
    {"peft_version", "\"0.21.2\"", NULL},
    {"qalora_group_size", "16", NULL},
    {"r", "0", "r is not a rank"},
    {"r", "\"4\"", "r is not a rank"},
    {"peft_type", "null", "peft_type is missing"},
    {"bias", "\"all\"", "bias is all"},
    {"use_dora", "true", "use_dora"},
    {"modules_to_save", "[\"lm_head\"]",
     "modules_to_save are lm_head, lora_modules_to_save of this run none"},
    {"modules_to_save", "[\"norm\"]", "`modules_to_save`: `norm` cannot be trained whole"},
    {"modules_to_save", "\"lm_head\"", "modules_to_save are lm_head"},
    {"modules_to_save", "[1]", "modules_to_save is not a list of names"},
    {"modules_to_save", "[\"score\"]", NULL},
    {"modules_to_save", "[]", NULL},
    {"ensure_weight_tying", "true", NULL},
    {"rank_pattern", "{\"q_proj\": 8}", "rank_pattern"},
    {"rank_pattern", "null", NULL},
    {"alpha_pattern", "{\"q_proj\": 8}", "alpha_pattern"},
    {"lora_alpha", "16", "lora_alpha 16 makes a scale of 4, this run's is 2"},
    {"use_rslora", "true", "lora_alpha 8 with use_rslora makes a scale of 4"},
    {"lora_alpha", "8.0", NULL},
};

/* A1 of adapter_config.h: a key that asks for more than this reader does is refused by its name. */
START_TEST(an_adapter_of_other_settings_is_refused_naming_both) {
    struct rig r;
    rig_open(&r, &kinds[0]);
    OK(rig_save_adapter(&r.io, dir, &job, &diag));
    json_t *config = json_load_file(in(dir, CONFIG_NAME), 0, NULL);
    json_object_set_new(config, configs[_i].key,
                        json_loads(configs[_i].json, JSON_DECODE_ANY, NULL));
    json_dump_file(config, in(dir, CONFIG_NAME), 0);
    json_decref(config);
    if (configs[_i].says)
        FAILS(pl_adapter_load(&r.io, dir, &diag), PL_ERR_CHECKPOINT_MISMATCH, configs[_i].says);
    else
        OK(pl_adapter_load(&r.io, dir, &diag));
    rig_close(&r);
}
END_TEST

/* A2 of adapter_config.h */
START_TEST(keys_that_are_absent_have_the_values_of_peft) {
    struct rig r;
    rig_open(&r, &kinds[0]); /* of rank 4 */
    OK(rig_save_adapter(&r.io, dir, &job, &diag));
    json_t *config = json_load_file(in(dir, CONFIG_NAME), 0, NULL);
    ck_assert_int_eq(json_object_del(config, "lora_alpha"), 0);
    ck_assert_int_eq(json_dump_file(config, in(dir, CONFIG_NAME), 0), 0);
    OK(pl_adapter_load(&r.io, dir, &diag)); /* whose scale of 2 is 8 / 4 */
    ck_assert_int_eq(json_object_del(config, "r"), 0);
    ck_assert_int_eq(json_dump_file(config, in(dir, CONFIG_NAME), 0), 0);
    FAILS(pl_adapter_load(&r.io, dir, &diag), PL_ERR_CHECKPOINT_MISMATCH, "r is 8, lora_r of");
    json_decref(config);
    rig_close(&r);
}
END_TEST

/* One tensor under two names, which this run would train apart. */
START_TEST(a_copy_that_peft_keeps_tied_is_refused) {
    struct rig r;
    rig_open(&r, &kinds[4]);
    OK(rig_save_adapter(&r.io, dir, &job, &diag));
    json_t *config = json_load_file(in(dir, CONFIG_NAME), 0, NULL);
    json_object_set_new(config, "ensure_weight_tying", json_true());
    json_dump_file(config, in(dir, CONFIG_NAME), 0);
    json_decref(config);
    FAILS(pl_adapter_load(&r.io, dir, &diag), PL_ERR_CHECKPOINT_MISMATCH,
          "ensure_weight_tying together with modules_to_save");
    rig_close(&r);
}
END_TEST

static bool edit_q(struct st_edit *e, const void *arg) {
    const char *what = arg;
    if (strcmp(e->name, PREFIX "1.self_attn.q_proj.lora_A.weight") != 0) return true;
    if (strcmp(what, "drop") == 0) return false;
    if (strcmp(what, "reshape") == 0) strcpy(e->shape, "[16, 4]");
    return true;
}

START_TEST(tensors_missing_reshaped_or_left_over_are_named) {
    struct rig r, narrow;
    rig_open(&r, &kinds[0]);
    OK(rig_save_adapter(&r.io, dir, &job, &diag));
    st_rewrite(in(dir, FILE_NAME), edit_q, "reshape");
    FAILS(pl_adapter_load(&r.io, dir, &diag), PL_ERR_CHECKPOINT_MISMATCH,
          "1.self_attn.q_proj.lora_A.weight` has shape [16, 4], the model wants [4, 16]");
    st_rewrite(in(dir, FILE_NAME), edit_q, "drop");
    FAILS(pl_adapter_load(&r.io, dir, &diag), PL_ERR_CHECKPOINT_MISMATCH,
          "1.self_attn.q_proj.lora_A.weight` is missing");
    rig_open(&narrow, &kinds[3]);
    OK(rig_save_adapter(&r.io, dir, &job, &diag));
    FAILS(pl_adapter_load(&narrow.io, dir, &diag), PL_ERR_CHECKPOINT_MISMATCH,
          "has no place in this run");
    rig_close(&narrow);
    rig_close(&r);
}
END_TEST

START_TEST(a_directory_without_adapter_is_a_file_error) {
    struct rig r;
    rig_open(&r, &kinds[0]);
    FAILS(pl_adapter_load(&r.io, dir, &diag), PL_ERR_CHECKPOINT_FILE, CONFIG_NAME);
    rig_close(&r);
}
END_TEST

START_TEST(a_fresh_adapter_changes_nothing_and_is_uniform) {
    struct rig r;
    rig_open(&r, &kinds[0]);
    rig_scramble(&r, 1);
    OK(pl_adapter_init(&r.io, 42, &diag));
    double sum = 0, squares = 0;
    uint64_t n = 0;
    for (uint32_t i = 0; i < r.program->n_tensors; i++) {
        const struct pl_tensor *t = &r.program->tensors[i];
        const float *w = r.memory[i];
        for (uint64_t k = 0; t->role == PL_ROLE_LORA_B && k < t->bytes / 4; k++)
            ck_assert(w[k] == 0.0f);
        for (uint64_t k = 0; t->role == PL_ROLE_LORA_A && k < t->bytes / 4; k++) {
            double u = w[k] * sqrt((double)t->dims[1]);
            ck_assert(fabs(u) <= 1);
            sum += u, squares += u * u, n++;
        }
    }
    /* U(-1, 1): E u = 0, Var u = E u^2 = 1/3, Var u^2 = 4/45 */
    ck_assert(fabs(sum / (double)n) < 4 * sqrt(1.0 / 3 / (double)n));
    ck_assert(fabs(squares / (double)n - 1.0 / 3) < 4 * sqrt(4.0 / 45 / (double)n));
    rig_close(&r);
}
END_TEST

START_TEST(a_module_starts_the_same_whatever_else_is_targeted) {
    struct rig all, one;
    rig_open(&all, &kinds[0]);
    rig_open(&one, &(struct rig_options){.mode = PL_MODE_LORA, .target = "v_proj"});
    OK(pl_adapter_init(&all.io, 42, &diag));
    OK(pl_adapter_init(&one.io, 42, &diag));
    const char *a = all.memory[rig_find(&all, PL_ROLE_LORA_A, PL_SLOT_QKV, 1)];
    const char *b = one.memory[rig_find(&one, PL_ROLE_LORA_A, PL_SLOT_QKV, 1)];
    ck_assert_mem_eq(a + (size_t)2 * 4 * 16 * 4, b, 4 * 16 * 4);
    ck_assert_mem_ne(a, b, 64);
    rig_close(&all);
    rig_close(&one);
}
END_TEST

int main(void) {
    Suite *s = suite_create("checkpoint.adapter_io");
    TCase *t = tcase_create("adapter_io");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, a_saved_adapter_loads_bit_for_bit, 0, N_KINDS);
    tcase_add_test(t, a_module_trained_whole_is_saved_with_the_adapter_as_peft_does);
    tcase_add_test(t, a_module_trained_whole_starts_as_the_base_has_it);
    tcase_add_loop_test(t, the_matrices_of_an_embedding_are_pefts, 0, 2);
    tcase_add_test(t, a_fresh_adapter_on_the_embedding_changes_nothing);
    tcase_add_test(t, keys_that_are_absent_have_the_values_of_peft);
    tcase_add_test(t, a_copy_that_peft_keeps_tied_is_refused);
    tcase_add_test(t, names_and_shapes_are_pefts);
    tcase_add_test(t, the_stacked_a_is_split_in_row_order);
    tcase_add_test(t, the_config_has_every_key_sorted);
    tcase_add_test(t, frozen_layers_have_no_adapter_and_the_config_says_so);
    tcase_add_loop_test(t, adapters_in_16_bits_are_read, 0, 2);
    tcase_add_test(t, names_with_default_are_read);
    tcase_add_loop_test(t, an_adapter_of_other_settings_is_refused_naming_both, 0,
                        sizeof configs / sizeof *configs);
    tcase_add_test(t, tensors_missing_reshaped_or_left_over_are_named);
    tcase_add_test(t, a_directory_without_adapter_is_a_file_error);
    tcase_add_test(t, a_fresh_adapter_changes_nothing_and_is_uniform);
    tcase_add_test(t, a_module_starts_the_same_whatever_else_is_targeted);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
