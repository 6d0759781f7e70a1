/* check_shape.c - what a job asks of a model: done in the program, or refused at the line of the
 * key that asked. */
#include "estimator/config/job_text.h"
#include "estimator/program/program.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define CONFIG(more)                                                                               \
    "{\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":128,"                      \
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"vocab_size\":40" more "}"
#define UNTIED CONFIG(",\"tie_word_embeddings\":false")
#define TIED   CONFIG(",\"tie_word_embeddings\":true")
#define DYNAMIC                                                                                    \
    CONFIG(",\"max_position_embeddings\":16,\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}")
#define CODES                                                                                      \
    CONFIG(",\"quantization_config\":{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true}")

static const struct {
    const char *config, *yaml; /* `model: m` stands before it */
    pl_err err;
    uint64_t line, column;
    const char *says, *hint;
} cases[] = {
    {TIED, "mode: lora\nembedding_device: host\n", PL_ERR_CONFIG_CONFLICT, 3, 19,
     "output layer too", "remove `embedding_device`"},
    {UNTIED, "mode: full\nembedding_device: host\n", PL_ERR_CONFIG_CONFLICT, 3, 19, "is trained",
     "`freeze_layers`"},
    {UNTIED, "mode: full\nembedding_device: host\nfreeze_layers: 1\n", PL_ERR_OK, 0, 0, "", ""},
    {UNTIED, "mode: lora\nembedding_device: host\n", PL_ERR_OK, 0, 0, "", ""},
    {UNTIED, "mode: full\nfreeze_layers: 3\n", PL_ERR_CONFIG_RANGE, 3, 16, "at most 2", "lower"},
    {UNTIED, "mode: full\nfreeze_layers: 2\n", PL_ERR_OK, 0, 0, "", ""},
    {UNTIED, "mode: lora\nfreeze_layers: 2\n", PL_ERR_CONFIG_RANGE, 3, 16, "at most 1", "adapters"},
    {UNTIED, "mode: lora\nfreeze_layers: 1\n", PL_ERR_OK, 0, 0, "", ""},
    {UNTIED, "mode: lora\nlora_target_modules: [q_prj]\n", PL_ERR_CONFIG_RANGE, 3, 22, "`q_proj`",
     "its modules are: all-linear, embed_tokens, q_proj"},
    {DYNAMIC, "mode: full\nmax_seq_length: 17\nrope_long_from: sample\n", PL_ERR_CONFIG_CONFLICT, 4,
     17, "dynamic positions", "`max_seq_length: 16`"},
    {DYNAMIC, "mode: full\nmax_seq_length: 16\nrope_long_from: sample\n", PL_ERR_OK, 0, 0, "", ""},
    {DYNAMIC, "mode: full\nmax_seq_length: 17\nrope_long_from: batch\n", PL_ERR_OK, 0, 0, "", ""},
    {UNTIED, "mode: full\nrope_long_from: sample\n", PL_ERR_OK, 0, 0, "", ""},
    {UNTIED, "mode: lora\nlora_modules_to_save: [embed_tokens, lm_head]\n", PL_ERR_OK, 0, 0, "",
     ""},
    {TIED, "mode: qlora\nlora_modules_to_save: lm_head\n", PL_ERR_OK, 0, 0, "", ""},
    {UNTIED, "mode: lora\nmodules_to_save: [head]\n", PL_ERR_CONFIG_RANGE, 3, 18,
     "`head` cannot be trained whole", "`embed_tokens` and `lm_head` can"},
    {UNTIED, "mode: lora\nlora_modules_to_save: embed_tokens\nfreeze_layers: 1\n",
     PL_ERR_CONFIG_CONFLICT, 3, 23, "`freeze_layers` freezes it", "`layers_to_transform`"},
    {UNTIED, "mode: lora\nlora_modules_to_save: lm_head\nfreeze_layers: 1\n", PL_ERR_OK, 0, 0, "",
     ""},
    {UNTIED, "mode: lora\nembedding_device: host\nlora_modules_to_save: embed_tokens\n",
     PL_ERR_CONFIG_CONFLICT, 3, 19, "is trained", "`lora_modules_to_save`"},
    {UNTIED, "mode: lora\nembedding_device: host\nlora_modules_to_save: lm_head\n", PL_ERR_OK, 0, 0,
     "", ""},
    {UNTIED, "mode: lora\nlora_target_modules: embed_tokens\nlora_dropout: 0.1\n", PL_ERR_OK, 0, 0,
     "", ""},
    {UNTIED, "mode: lora\nlora_target_modules: embed_tokens\nfreeze_layers: 1\n",
     PL_ERR_CONFIG_CONFLICT, 4, 16, "an adapter on `embed_tokens`", "`layers_to_transform`"},
    {UNTIED, "mode: qlora\nquantize_head: true\nlora_modules_to_save: lm_head\n",
     PL_ERR_CONFIG_CONFLICT, 4, 23, "`quantize_head` keeps it in 4 bits", "remove"},
    {UNTIED, "mode: lora\nlora_target_modules: lm_head\nlora_modules_to_save: lm_head\n",
     PL_ERR_CONFIG_CONFLICT, 4, 23, "leaves no module to adapt", ""},
    {UNTIED, "mode: lora\nlayers_to_transform: [0, 2]\n", PL_ERR_CONFIG_RANGE, 3, 22,
     "this model has no layer 2", "its layers are 0 to 1"},
    {UNTIED, "mode: lora\nlayers_to_transform: [1]\n", PL_ERR_OK, 0, 0, "", ""},
    {UNTIED, "mode: lora\nlora_target_modules: [q_proj, lm_head]\nlora_dropout: 0.1\n",
     PL_ERR_CONFIG_CONFLICT, 4, 15, "an adapter on `lm_head` is not supported",
     "take `lm_head` out of"},
    {UNTIED, "mode: lora\nlora_target_modules: [q_proj, lm_head]\nlora_dropout: 0\n", PL_ERR_OK, 0,
     0, "", ""},
    {UNTIED, "mode: lora\nlayers_to_transform: [0]\nfreeze_layers: 1\n", PL_ERR_CONFIG_CONFLICT, 4,
     16, "`freeze_layers: 1` freezes every layer that has modules to adapt", "choose other layers"},
    {UNTIED, "mode: lora\nlayers_to_transform: [1]\nfreeze_layers: 1\n", PL_ERR_OK, 0, 0, "", ""},
    {UNTIED, "mode: qlora\nquantize_embedding: true\nlora_modules_to_save: embed_tokens\n",
     PL_ERR_CONFIG_CONFLICT, 4, 23, "`quantize_embedding` keeps it in 4 bits", "remove"},
    {UNTIED, "mode: lora\nlora_target_modules: [q_proj, embed_tokens, lm_head]\n", PL_ERR_OK, 0, 0,
     "", ""},
    {CODES, "mode: qlora\nquant_type: nf4\n", PL_ERR_CONFIG_CONFLICT, 3, 13, "are fp4 codes",
     "`quant_type: fp4`"},
};

START_TEST(what_the_model_does_not_allow_is_refused_at_the_line_of_its_key) {
    static struct pl_model m;
    char yaml[256];
    struct pl_diag d = {0};
    struct pl_job job;
    struct pl_job_shape shape;
    const struct pl_traits traits = pl_traits_cpu(1);
    snprintf(yaml, sizeof yaml, "model: m\n%s", cases[_i].yaml);
    pl_err err = pl_job_parse(&job, "run.yaml", yaml, strlen(yaml), NULL, 0, NULL, &d);
    ck_assert_msg(err == PL_ERR_OK, "%s", d.message);
    err = pl_model_parse("config.json", cases[_i].config, strlen(cases[_i].config), &m, &d);
    ck_assert_msg(err == PL_ERR_OK, "%s", d.message);
    err = pl_job_shape_init(&job, &m, &traits, 1, &shape, &d);
    ck_assert_str_eq(pl_err_code(err), pl_err_code(cases[_i].err));
    ck_assert_str_eq(d.file, err == PL_ERR_OK ? "" : "run.yaml");
    ck_assert_uint_eq(d.line, cases[_i].line);
    ck_assert_uint_eq(d.column, cases[_i].column);
    ck_assert_msg(strstr(d.message, cases[_i].says), "%s", d.message);
    ck_assert_msg(strstr(d.hint, cases[_i].hint), "%s", d.hint);
    pl_job_finish(&job);
}
END_TEST

/* A micro-batch's gradient is a tensor of its own where several add to one in bf16. `auto` is fp32
 * where anything is added, between ranks, too. */
START_TEST(gradients_in_bf16_are_folded_where_several_micro_batches_add_up) {
    static const struct {
        const char *yaml;
        bool folds;
        enum pl_dtype dtype; /* type of gradients */
    } rows[] = {
        {"gradient_dtype: bf16\ngradient_accumulation_steps: 2\n", true, PL_DTYPE_BF16},
        {"gradient_dtype: bf16\nglobal_batch_size: 2\n", true, PL_DTYPE_BF16},
        {"gradient_dtype: bf16\nrank_order: true\n", true, PL_DTYPE_BF16},
        {"gradient_dtype: bf16\ndevices: 2\nrank_order: false\n", false, PL_DTYPE_BF16},
        {"gradient_dtype: bf16\ndevices: 2\nrank_order: false\nglobal_batch_size: 3\n", true,
         PL_DTYPE_BF16},
        {"gradient_dtype: bf16\n", false, PL_DTYPE_BF16},
        {"gradient_dtype: bf16\nglobal_batch_size: 1\n", false, PL_DTYPE_BF16},
        {"gradient_dtype: fp32\ngradient_accumulation_steps: 2\n", false, PL_DTYPE_F32},
        {"gradient_accumulation_steps: 2\n", false, PL_DTYPE_F32},
        {"devices: 2\nrank_order: false\n", false, PL_DTYPE_F32},
        {"", false, PL_DTYPE_BF16},
        {"dtype: fp32\ngradient_accumulation_steps: 2\n", false, PL_DTYPE_F32},
    };
    static struct pl_model m;
    const struct pl_traits traits = pl_traits_cpu(1);
    ck_assert_int_eq(pl_model_parse("config.json", UNTIED, strlen(UNTIED), &m, NULL), PL_ERR_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char yaml[256];
        struct pl_diag d = {0};
        struct pl_job job;
        struct pl_job_shape shape;
        snprintf(yaml, sizeof yaml, "model: m\nmode: full\nbatch_size: 1\n%s", rows[i].yaml);
        pl_err err = pl_job_parse(&job, "run.yaml", yaml, strlen(yaml), NULL, 0, NULL, &d);
        ck_assert_msg(err == PL_ERR_OK, "%s", d.message);
        ck_assert_int_eq(pl_job_shape_init(&job, &m, &traits, 1, &shape, &d), PL_ERR_OK);
        ck_assert_msg(shape.folds_gradients == rows[i].folds, "%s", rows[i].yaml);
        ck_assert_msg(shape.gradient_dtype == rows[i].dtype, "%s", rows[i].yaml);
        pl_job_finish(&job);
    }
}
END_TEST

static struct pl_program *build_job(const char *config, const char *length, const char *key,
                                    const char *value) {
    static struct pl_model m;
    const struct pl_traits traits = pl_traits_cpu(1);
    struct pl_job job;
    struct pl_job_shape shape;
    struct pl_program *p;
    ck_assert_int_eq(pl_model_parse("config.json", config, strlen(config), &m, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_job_defaults(&job, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_job_set(&job, "mode", "full", NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_job_set(&job, "max_seq_length", length, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_job_set(&job, key, value, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_job_shape_init(&job, &m, &traits, 1, &shape, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_program_create(&m, &shape, &traits, &p, NULL), PL_ERR_OK);
    pl_job_finish(&job);
    return p;
}

static struct pl_program *build(const char *config, const char *length) {
    return build_job(config, length, "mode", "full");
}

/* max_position_embeddings limits no sequence, so it says nothing about what a window hides. */
START_TEST(a_window_hides_positions_of_every_longer_sequence) {
    static const char config[] =
        "{\"model_type\":\"mistral\",\"hidden_size\":64,\"intermediate_size\":128,"
        "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"num_key_value_heads\":4,"
        "\"vocab_size\":40,\"max_position_embeddings\":16,\"sliding_window\":16}";
    static const struct {
        const char *length;
        uint32_t window;
    } rows[] = {{"8", 0}, {"16", 0}, {"17", 16}, {"64", 16}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pl_program *p = build(config, rows[i].length);
        uint32_t op = 0;
        while (p->ops[op].kind != PL_OP_ATTENTION)
            op++;
        ck_assert_uint_eq(p->ops[op].attr.window, rows[i].window);
        pl_program_destroy(&p);
    }
}
END_TEST

START_TEST(a_window_may_be_of_some_layers) {
    static const char config[] =
        "{\"model_type\":\"qwen2\",\"hidden_size\":64,\"intermediate_size\":128,"
        "\"num_hidden_layers\":3,\"num_attention_heads\":4,\"num_key_value_heads\":4,"
        "\"vocab_size\":40,\"use_sliding_window\":true,\"sliding_window\":16,"
        "\"max_window_layers\":2}";
    struct pl_program *p = build(config, "17");
    int seen = 0;
    for (uint32_t op = 0; op < p->n_ops; op++) {
        if (p->ops[op].kind != PL_OP_ATTENTION && p->ops[op].kind != PL_OP_ATTENTION_BWD) continue;
        ck_assert_uint_eq(p->ops[op].attr.window, p->ops[op].layer == 2 ? 16 : 0);
        seen++;
    }
    ck_assert_int_ge(seen, 2 * 3);
    pl_program_destroy(&p);
}
END_TEST

START_TEST(a_second_table_of_positions_is_there_for_longer_sequences_alone) {
    static const struct {
        const char *settings, *length;
        bool far;
    } rows[] = {{"\"type\":\"dynamic\",\"factor\":2", "16", false},
                {"\"type\":\"dynamic\",\"factor\":2", "17", true},
                {"\"type\":\"yarn\",\"factor\":2", "64", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char config[512];
        snprintf(config, sizeof config,
                 "{\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":128,"
                 "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"vocab_size\":40,"
                 "\"max_position_embeddings\":16,\"rope_scaling\":{%s}}",
                 rows[i].settings);
        struct pl_program *p = build(config, rows[i].length);
        ck_assert_uint_ne(pl_program_find(p, PL_ROLE_ROPE, 0, 0), PL_NONE);
        ck_assert_int_eq(pl_program_find(p, PL_ROLE_ROPE, 0, 1) != PL_NONE, rows[i].far);
        pl_program_destroy(&p);
    }
}
END_TEST

#define LONGROPE                                                                                   \
    "{\"model_type\":\"phi3\",\"hidden_size\":64,\"intermediate_size\":128,"                       \
    "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"vocab_size\":40,"                         \
    "\"max_position_embeddings\":64,\"original_max_position_embeddings\":16,"                      \
    "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1,1,1,1,1,1,1],"                  \
    "\"long_factor\":[2,2,2,2,2,2,2,2]}}"

START_TEST(a_table_of_each_sequence_s_own_factors_has_two_halves) {
    static const struct {
        const char *length, *long_from;
        uint64_t rows;
        bool second;
    } cases_of[] = {
        {"17", "batch", 17, true}, {"17", "sample", 34, false}, {"16", "sample", 16, false}};
    for (size_t i = 0; i < sizeof cases_of / sizeof *cases_of; i++) {
        struct pl_program *p =
            build_job(LONGROPE, cases_of[i].length, "rope_long_from", cases_of[i].long_from);
        const struct pl_tensor *first = &p->tensors[pl_program_find(p, PL_ROLE_ROPE, 0, 0)];
        ck_assert_uint_eq(first->dims[0], cases_of[i].rows);
        ck_assert_uint_eq(first->bytes, cases_of[i].rows * 16 * sizeof(float));
        ck_assert_int_eq(pl_program_find(p, PL_ROLE_ROPE, 0, 1) != PL_NONE, cases_of[i].second);
        pl_program_destroy(&p);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("program.shape");
    TCase *t = tcase_create("shape");
    tcase_add_loop_test(t, what_the_model_does_not_allow_is_refused_at_the_line_of_its_key, 0,
                        sizeof cases / sizeof *cases);
    tcase_add_test(t, gradients_in_bf16_are_folded_where_several_micro_batches_add_up);
    tcase_add_test(t, a_window_may_be_of_some_layers);
    tcase_add_test(t, a_second_table_of_positions_is_there_for_longer_sequences_alone);
    tcase_add_test(t, a_table_of_each_sequence_s_own_factors_has_two_halves);
    tcase_add_test(t, a_window_hides_positions_of_every_longer_sequence);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
