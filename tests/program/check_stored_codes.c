/* check_stored_codes.c - a model whose files hold 4-bit codes is planned as what it is, or not. */
#include "estimator/config/job_text.h"
#include "estimator/program/program.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define CONFIG(more)                                                                               \
    "{\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":128,"                      \
    "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"vocab_size\":40,"                         \
    "\"quantization_config\":{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true" more "}}"

#define MXFP4(more)                                                                                \
    "{\"model_type\":\"gpt_oss\",\"hidden_size\":64,\"intermediate_size\":96,"                     \
    "\"num_local_experts\":4,\"num_experts_per_tok\":2,\"num_hidden_layers\":2,"                   \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":16,\"vocab_size\":40,"       \
    "\"sliding_window\":8,\"tie_word_embeddings\":false,"                                          \
    "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,"                                     \
    "\"original_max_position_embeddings\":16,\"truncate\":false}" more "}"
#define CODES ",\"quantization_config\":{\"quant_method\":\"mxfp4\"}"

static const struct {
    const char *config;
    const char *set[3][2]; /* keys of the job */
    pl_err err;
    const char *says, *hint;
} cases[] = {
    {CONFIG(",\"bnb_4bit_quant_type\":\"nf4\",\"bnb_4bit_use_double_quant\":true"),
     {{"mode", "qlora"}},
     PL_ERR_OK,
     "",
     ""},
    {CONFIG(""),
     {{"mode", "qlora"}, {"quant_type", "fp4"}, {"double_quant", "false"}},
     PL_ERR_OK,
     "",
     ""},
    {CONFIG(""),
     {{"mode", "qlora"}, {"quant_type", "nf4"}},
     PL_ERR_CONFIG_CONFLICT,
     "are fp4 codes without double quantisation",
     "set `quant_type: fp4` and `double_quant: false`"},
    {CONFIG(",\"bnb_4bit_quant_type\":\"nf4\""),
     {{"mode", "qlora"}},
     PL_ERR_CONFIG_CONFLICT,
     "are nf4 codes without double",
     "`double_quant: false`"},
    {MXFP4(CODES), {{"mode", "qlora"}}, PL_ERR_OK, "", ""},
    {MXFP4(CODES), {{"mode", "qlora"}, {"quant_type", "nf4"}}, PL_ERR_OK, "", ""},
    {MXFP4(CODES), {{"mode", "qlora"}, {"quant_type", "mxfp4"}}, PL_ERR_OK, "", ""},
    {MXFP4(CODES), {{"mode", "lora"}, {"quantize_head", "true"}}, PL_ERR_OK, "", ""},
    {MXFP4(CODES), {{"mode", "full"}}, PL_ERR_OK, "", ""},
    {MXFP4(CODES), {{"mode", "qlora"}, {"init", "random"}}, PL_ERR_OK, "", ""},
    {MXFP4(CODES),
     {{"mode", "qlora"}, {"quant_type", "mxfp4"}, {"init", "random"}},
     PL_ERR_CONFIG_CONFLICT,
     "values that are made at random",
     "init: pretrained"},
    {MXFP4(CODES),
     {{"mode", "qlora"}, {"quantize_head", "true"}},
     PL_ERR_CONFIG_CONFLICT,
     "the experts alone are held in 4 bits",
     "quant_type: nf4"},
    {MXFP4(CODES),
     {{"mode", "qlora"}, {"quantize_embedding", "true"}},
     PL_ERR_CONFIG_CONFLICT,
     "the experts alone are held in 4 bits",
     "quant_type: nf4"},
    {MXFP4(""),
     {{"mode", "qlora"}, {"quant_type", "mxfp4"}},
     PL_ERR_CONFIG_CONFLICT,
     "hold no such codes",
     "remove `quant_type`"},
    {CONFIG(""),
     {{"mode", "qlora"}, {"quant_type", "mxfp4"}},
     PL_ERR_CONFIG_CONFLICT,
     "are fp4 codes",
     "quant_type: fp4"},
    {CONFIG(""), {{"mode", "lora"}}, PL_ERR_MODEL_UNSUPPORTED, "4-bit codes already", "qlora"},
    {CONFIG(""), {{"mode", "full"}}, PL_ERR_MODEL_UNSUPPORTED, "4-bit codes already", "qlora"},
};

START_TEST(codes_in_the_files_want_qlora_with_the_same_codes) {
    static struct pl_model m;
    struct pl_diag d = {0};
    struct pl_job job;
    struct pl_job_shape shape;
    const struct pl_traits traits = pl_traits_cpu(1);
    ck_assert_int_eq(pl_job_defaults(&job, &d), PL_ERR_OK);
    for (int i = 0; i < 3 && cases[_i].set[i][0]; i++)
        ck_assert_int_eq(pl_job_set(&job, cases[_i].set[i][0], cases[_i].set[i][1], &d), PL_ERR_OK);
    pl_err err = pl_model_parse("config.json", cases[_i].config, strlen(cases[_i].config), &m, &d);
    ck_assert_msg(err == PL_ERR_OK, "%s", d.message);
    err = pl_job_shape_init(&job, &m, &traits, 1, &shape, &d);
    ck_assert_str_eq(pl_err_code(err), pl_err_code(cases[_i].err));
    ck_assert_msg(strstr(d.message, cases[_i].says), "%s", d.message);
    ck_assert_msg(strstr(d.hint, cases[_i].hint), "%s", d.hint);
    pl_job_finish(&job);
}
END_TEST

int main(void) {
    Suite *s = suite_create("program.stored_codes");
    TCase *t = tcase_create("stored_codes");
    tcase_add_loop_test(t, codes_in_the_files_want_qlora_with_the_same_codes, 0,
                        sizeof cases / sizeof *cases);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
