/* check_model.c - config.json of real, odd and broken models against exact counts and verdicts. */
#include "estimator/model/targets.h"

#include <check.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE     1024
#define ROWS_MAX 128

static char csv[ROWS_MAX][LINE], tsv[ROWS_MAX][LINE];
static int n_csv, n_tsv;

/* Lines after the heading; 0 when there is no such file. */
static int load_lines(const char *path, char out[ROWS_MAX][LINE]) {
    FILE *f = fopen(path, "r");
    char heading[LINE];
    int n = 0;
    if (f && fgets(heading, sizeof heading, f)) {
        while (n < ROWS_MAX && fgets(out[n], LINE, f))
            out[n][strcspn(out[n], "\n")] = 0, n++;
    }
    if (f) fclose(f);
    return n;
}

static struct pl_model read_good(const char *relative) {
    static struct pl_model m;
    struct pl_diag d = {0};
    char path[512];
    snprintf(path, sizeof path, CONFIGS "/%s", relative);
    pl_err err = pl_model_read(path, &m, &d);
    ck_assert_msg(err == PL_ERR_OK, "%s: %s", relative, d.message);
    return m;
}

/* A small llama with `changes` laid over it; a key "-name" takes the key `name` away. */
static pl_err parse_changed(const char *changes, struct pl_model *m, struct pl_diag *d) {
    json_t *base = json_load_file(CONFIGS "/bad/ok_base.json", 0, NULL);
    json_t *over = json_loads(changes, 0, NULL);
    const char *key;
    json_t *value;
    ck_assert_ptr_nonnull(base);
    ck_assert_msg(over != NULL, "test changes are not JSON: %s", changes);
    json_object_foreach(over, key, value) {
        if (key[0] == '-')
            json_object_del(base, key + 1);
        else
            json_object_set(base, key, value);
    }
    char *text = json_dumps(base, 0);
    *d = (struct pl_diag){0};
    pl_err err = pl_model_parse("config.json", text, strlen(text), m, d);
    free(text);
    json_decref(over);
    json_decref(base);
    return err;
}

static struct pl_model changed(const char *changes) {
    static struct pl_model m;
    struct pl_diag d;
    pl_err err = parse_changed(changes, &m, &d);
    ck_assert_msg(err == PL_ERR_OK, "%s: %s", changes, d.message);
    return m;
}

static uint64_t tensors(const struct pl_model *m) {
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    uint64_t n = 0;
    for (uint32_t i = 0, n_rows = pl_model_rows(m, rows); i < n_rows; i++)
        for (uint64_t l = 0; l < (rows[i].per_layer ? m->layers : 1); l++)
            if (pl_model_row_in(m, &rows[i], l)) n += rows[i].split ? rows[i].experts : 1;
    return n;
}

/* The modules of a set, in all layers. */
static uint64_t modules_of(const struct pl_model *m, pl_row_set set) {
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    uint64_t n = 0;
    for (uint32_t i = 0, n_rows = pl_model_modules(m, rows); i < n_rows; i++)
        for (uint64_t l = 0; l < (rows[i].per_layer ? m->layers : 1) && pl_row_set_has(set, i); l++)
            n += pl_model_row_in(m, &rows[i], l);
    return n;
}

static pl_err targets_of(const struct pl_model *m, const char *const *names, uint32_t n,
                         struct pl_targets *out, struct pl_diag *d) {
    const struct pl_target_choice c = {.modules = {names, n}};
    return pl_targets_find(m, &c, out, NULL, d);
}

START_TEST(every_published_model_has_its_exact_counts) {
    char name[64];
    uint64_t params, tied, linear, lora, modules, unique;
    ck_assert_int_eq(sscanf(csv[_i],
                            "%63[^,],%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%" SCNu64
                            ",%" SCNu64,
                            name, &params, &tied, &linear, &lora, &modules, &unique),
                     7);
    char file[128];
    snprintf(file, sizeof file, "%s/config.json", name);
    struct pl_model m = read_good(file);
    const char *const all[] = {"all-linear"};
    struct pl_targets targets;
    ck_assert_int_eq(targets_of(&m, all, 1, &targets, NULL), PL_ERR_OK);
    const pl_row_set mask = targets.rows | targets.once;
    ck_assert_uint_eq(pl_model_param_count(&m), params);
    ck_assert_uint_eq(m.tied, tied);
    ck_assert_uint_eq(pl_model_linear_params(&m), linear);
    ck_assert_uint_eq(pl_model_lora_params(&m, mask, 16, 0), lora);
    ck_assert_uint_eq(modules_of(&m, mask), modules);
    ck_assert_uint_eq(tensors(&m), unique);
}
END_TEST

START_TEST(file_rows_cover_every_slot_without_gap_or_overlap) {
    char file[128];
    snprintf(file, sizeof file, "%.*s/config.json", (int)strcspn(csv[_i], ","), csv[_i]);
    struct pl_model m = read_good(file);
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    const uint32_t n = pl_model_rows(&m, rows);
    for (uint64_t l = 0; l < m.layers; l++) {
        uint64_t next[PL_SLOT_COUNT] = {0};
        for (uint32_t i = 0; i < n; i++) {
            if (!pl_model_row_in(&m, &rows[i], l)) continue;
            ck_assert_uint_eq(rows[i].row0, next[rows[i].slot]);
            next[rows[i].slot] += rows[i].rows;
        }
        for (int s = 0; s < PL_SLOT_COUNT; s++) {
            struct pl_slot_shape shape;
            pl_model_slot(&m, l, (enum pl_slot)s, &shape);
            const uint64_t of_each = shape.experts ? shape.rows / shape.experts : shape.rows;
            ck_assert_uint_eq(next[s], shape.present ? of_each : 0);
        }
    }
}
END_TEST

START_TEST(every_odd_file_meets_its_verdict) {
    char line[LINE], *rest = line;
    snprintf(line, sizeof line, "%s", tsv[_i]);
    const char *file = strsep(&rest, "\t"), *verdict = strsep(&rest, "\t");
    const char *params = strsep(&rest, "\t");
    char path[512];
    static struct pl_model m;
    struct pl_diag d = {0};
    snprintf(path, sizeof path, CONFIGS "/bad/%s", file);
    pl_err err = pl_model_read(path, &m, &d);
    if (strcmp(verdict, "error") == 0) {
        ck_assert_msg(err != PL_ERR_OK, "%s was read", file);
        ck_assert_int_eq(pl_err_exit_status(err), 5);
        ck_assert_int_eq(d.err, err);
        ck_assert_str_eq(d.file, path);
        ck_assert_str_ne(d.message, "");
    } else if (strcmp(verdict, "accept") == 0) {
        ck_assert_msg(err == PL_ERR_OK, "%s: %s", file, d.message);
        ck_assert_uint_eq(pl_model_param_count(&m), strtoull(params, NULL, 10));
    } else {
        ck_assert_str_eq(verdict, "accept-or-error");
        ck_assert_int_eq(err, d.err);
    }
}
END_TEST

static const struct {
    const char *file;
    pl_err err;
    uint64_t line;
    const char *says[3];
} refusals[] = {
    {"bad/missing_hidden_size.json", PL_ERR_MODEL_FIELD, 0, {"`hidden_size` is missing"}},
    {"bad/missing_model_type.json", PL_ERR_MODEL_FIELD, 0, {"`model_type` is missing"}},
    {"bad/negative_layers.json", PL_ERR_MODEL_FIELD, 0, {"`num_hidden_layers` is -2"}},
    {"bad/zero_heads.json", PL_ERR_MODEL_FIELD, 0, {"`num_attention_heads` is 0"}},
    {"bad/heads_not_dividing.json", PL_ERR_MODEL_FIELD, 0, {"256", "6", "head_dim"}},
    {"bad/kv_heads_not_dividing.json", PL_ERR_MODEL_FIELD, 0, {"8 heads", "3 key/value"}},
    {"bad/kv_heads_more_than_heads.json", PL_ERR_MODEL_FIELD, 0, {"is 16", "to 8"}},
    {"bad/odd_head_dim.json", PL_ERR_MODEL_FIELD, 0, {"`head_dim` 31"}},
    {"bad/string_for_number.json", PL_ERR_MODEL_FIELD, 0, {"`hidden_size` is \"256\""}},
    {"bad/fraction_for_int.json", PL_ERR_MODEL_FIELD, 0, {"`intermediate_size` is 688.5"}},
    {"bad/bool_for_int.json", PL_ERR_MODEL_FIELD, 0, {"`num_hidden_layers` is true"}},
    {"bad/string_for_bool.json", PL_ERR_MODEL_FIELD, 0, {"`tie_word_embeddings` is \"true\""}},
    {"bad/list_for_int.json", PL_ERR_MODEL_FIELD, 0, {"`intermediate_size` is ["}},
    {"bad/many_layers.json", PL_ERR_MODEL_FIELD, 0, {"`num_hidden_layers` is 2000000000"}},
    {"bad/huge_exponent.json", PL_ERR_MODEL_FIELD, 0, {"`vocab_size` is 1e18"}},
    {"bad/huge_number_text.json", PL_ERR_MODEL_FIELD, 0, {"`vocab_size` is ", "to 16777216"}},
    {"bad/nan.json", PL_ERR_MODEL_FIELD, 0, {"`rms_norm_eps` is NaN", "a number from"}},
    {"bad/infinity.json", PL_ERR_MODEL_FIELD, 0, {"`rms_norm_eps` is -Infinity", "a number from"}},
    {"bad/beyond_double.json", PL_ERR_MODEL_FIELD, 0, {"`rms_norm_eps` is Infinity", "a number"}},
    {"bad/rope_unknown.json", PL_ERR_MODEL_UNSUPPORTED, 0, {"`rope_scaling.rope_type`", "spiral"}},
    {"bad/rope_llama3_incomplete.json",
     PL_ERR_MODEL_FIELD,
     0,
     {"`rope_scaling.low_freq_factor` is missing"}},
    {"bad/rope_theta_negative.json", PL_ERR_MODEL_FIELD, 0, {"`rope_theta` is -"}},
    {"bad/eps_zero.json", PL_ERR_MODEL_FIELD, 0, {"`rms_norm_eps` is 0"}},
    {"bad/hidden_act_unknown.json", PL_ERR_MODEL_UNSUPPORTED, 0, {"`hidden_act`", "gelu_new"}},
    {"bad/quantization_gptq.json", PL_ERR_MODEL_UNSUPPORTED, 0, {"already quantised", "gptq"}},
    {"bad/nested_text_config.json", PL_ERR_MODEL_UNSUPPORTED, 0, {"llava", "text_config"}},
    {"bad/unknown_model_type.json", PL_ERR_MODEL_UNSUPPORTED, 0, {"llamma", "nearest is `llama`"}},
    {"bad/smollm3_no_rope_length.json", PL_ERR_MODEL_FIELD, 0, {"`no_rope_layers`", "2", "got 3"}},
    {"bad/phi3_factor_length.json", PL_ERR_MODEL_FIELD, 0, {"short_factor", "12", "got 5"}},
    {"bad/trailing_comma.json", PL_ERR_MODEL_SYNTAX, 24, {"trailing comma before `}`"}},
    {"bad/truncated.json", PL_ERR_MODEL_SYNTAX, 14, {"unterminated string"}},
    {"bad/duplicate_key.json", PL_ERR_MODEL_SYNTAX, 10, {"duplicate", "hidden_size"}},
    {"bad/array_top.json", PL_ERR_MODEL_SYNTAX, 1, {"object"}},
    {"bad/empty_file.json", PL_ERR_MODEL_SYNTAX, 1, {"empty"}},
    {"bad/lfs_pointer.json", PL_ERR_MODEL_SYNTAX, 1, {"Git LFS pointer"}},
    {"bad/invalid_utf8.json", PL_ERR_MODEL_SYNTAX, 3, {"invalid UTF-8 byte 0xE9"}},
    {"unsupported/gemma-2-2b/config.json", PL_ERR_MODEL_UNSUPPORTED, 0, {"gemma2"}},
    {"unsupported/Mixtral-8x7B/config.json", PL_ERR_MODEL_UNSUPPORTED, 0, {"mixtral", "experts"}},
    {"unsupported/gpt2/config.json", PL_ERR_MODEL_UNSUPPORTED, 0, {"gpt2"}},
    {"unsupported/falcon-7b/config.json", PL_ERR_MODEL_UNSUPPORTED, 0, {"falcon"}},
};

START_TEST(a_refusal_names_key_value_and_line) {
    char path[512];
    static struct pl_model m;
    struct pl_diag d = {0};
    snprintf(path, sizeof path, CONFIGS "/%s", refusals[_i].file);
    ck_assert_int_eq(pl_model_read(path, &m, &d), refusals[_i].err);
    ck_assert_msg(d.line == refusals[_i].line, "%s: line %llu: %s", path,
                  (unsigned long long)d.line, d.message);
    for (int k = 0; k < 3 && refusals[_i].says[k]; k++)
        ck_assert_msg(strstr(d.message, refusals[_i].says[k]) != NULL, "%s lacks %s", d.message,
                      refusals[_i].says[k]);
}
END_TEST

static const struct {
    const char *changes;
    pl_err err;
    const char *says;
} changed_refusals[] = {
    {"{\"vocab_size\":16777217}", PL_ERR_MODEL_FIELD, "from 1 to 16777216"},
    {"{\"attention_dropout\":1.5}", PL_ERR_MODEL_FIELD, "`attention_dropout` is 1.5"},
    {"{\"lm_head_bias\":true}", PL_ERR_MODEL_UNSUPPORTED, "`lm_head_bias`"},
    {"{\"model_type\":\"mistral\",\"attention_bias\":true}", PL_ERR_MODEL_UNSUPPORTED,
     "`attention_bias`"},
    {"{\"model_type\":\"qwen3\",\"mlp_bias\":true}", PL_ERR_MODEL_UNSUPPORTED, "`mlp_bias`"},
    {"{\"layer_types\":[\"full_attention\",\"sliding_attention\"]}", PL_ERR_MODEL_UNSUPPORTED,
     "layer 1"},
    {"{\"model_type\":\"qwen2\",\"layer_types\":[\"full_attention\",\"sliding_attention\"]}",
     PL_ERR_MODEL_UNSUPPORTED, "layer 1"},
    {"{\"model_type\":\"qwen3\",\"use_sliding_window\":true,\"layer_types\":[\"full_attention\","
     "\"chunked_attention\"]}",
     PL_ERR_MODEL_UNSUPPORTED, "no \"sliding_attention\" one"},
    {"{\"layer_types\":[\"full_attention\"]}", PL_ERR_MODEL_FIELD, "`layer_types`"},
    {"{\"partial_rotary_factor\":0.5}", PL_ERR_MODEL_UNSUPPORTED, "`partial_rotary_factor` is 0.5"},
    {"{\"rope_scaling\":{\"type\":\"yarn\"}}", PL_ERR_MODEL_FIELD, "factor` is missing"},
    {"{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":0.5}}", PL_ERR_MODEL_FIELD, "from 1 to"},
    {"{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"beta_fast\":\"32\"}}", PL_ERR_MODEL_FIELD,
     "beta_fast` is \"32\""},
    {"{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"truncate\":1}}", PL_ERR_MODEL_FIELD,
     "truncate` is 1"},
    {"{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4},\"rope_theta\":1}", PL_ERR_MODEL_FIELD,
     "more than 1"},
    {"{\"model_type\":\"phi3\",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4}}",
     PL_ERR_MODEL_FIELD, "short_factor"},
    {"{\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":2}}}",
     PL_ERR_MODEL_UNSUPPORTED, "`rope_parameters.full_attention`"},
    {"{\"rope_scaling\":{\"type\":\"dynamic\"}}", PL_ERR_MODEL_FIELD, "factor` is missing"},
    {"{\"head_dim\":2,\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}}", PL_ERR_MODEL_FIELD,
     "more than 2 dimensions"},
    {"{\"rope_scaling\":{\"factor\":4.0}}", PL_ERR_MODEL_FIELD, "no type"},
    {"{\"rope_scaling\":\"linear\"}", PL_ERR_MODEL_FIELD, "an object or null"},
    {"{\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.0},\"rope_parameters\":"
     "{\"rope_type\":\"default\"}}",
     PL_ERR_MODEL_FIELD, "says something else"},
    {"{\"model_type\":\"phi3\",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.0}}",
     PL_ERR_MODEL_UNSUPPORTED, "`phi3`"},
    {"{\"rope_scaling\":{\"type\":\"llama3\",\"factor\":2.0,\"low_freq_factor\":4,"
     "\"high_freq_factor\":4,\"original_max_position_embeddings\":256}}",
     PL_ERR_MODEL_FIELD, "high_freq_factor"},
    {"{\"eos_token_id\":[2,1000]}", PL_ERR_MODEL_FIELD, "entry 1"},
    {"{\"eos_token_id\":[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,"
     "27,28,29,30,31,32]}",
     PL_ERR_MODEL_FIELD, "at most 32"},
    {"{\"eos_token_id\":1000}", PL_ERR_MODEL_FIELD, "`eos_token_id` is 1000"},
    {"{\"torch_dtype\":\"a_dtype_with_a_long_name\"}", PL_ERR_MODEL_FIELD, "`torch_dtype`"},
    {"{\"hidden_size\":1048576,\"num_attention_heads\":1048576,\"head_dim\":2,"
     "\"num_key_value_heads\":1}",
     PL_ERR_MODEL_FIELD, "heads x head_dim"},
    {"{\"hidden_size\":1048577}", PL_ERR_MODEL_FIELD, "to 1048576"},
    {"{\"num_hidden_layers\":4097}", PL_ERR_MODEL_FIELD, "to 4096"},
    {"{\"quantization_config\":{\"bits\":4}}", PL_ERR_MODEL_UNSUPPORTED, "method not named"},
    {"{\"quantization_config\":{\"quant_method\":\"bitsandbytes\",\"load_in_8bit\":true}}",
     PL_ERR_MODEL_UNSUPPORTED, "already quantised (bitsandbytes)"},
    {"{\"quantization_config\":{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true,"
     "\"bnb_4bit_quant_storage\":\"bfloat16\"}}",
     PL_ERR_MODEL_UNSUPPORTED, "bnb_4bit_quant_storage must be uint8"},
    {"{\"model_type\":\"smollm3\",\"no_rope_layers\":[1,2]}", PL_ERR_MODEL_FIELD, "entry 1"},
    {"{\"model_type\":\"gemma3_text\",\"final_logit_softcapping\":30.0}", PL_ERR_MODEL_UNSUPPORTED,
     "capped logits"},
    {"{\"model_type\":\"gemma3_text\",\"use_bidirectional_attention\":true}",
     PL_ERR_MODEL_UNSUPPORTED, "only decoders"},
    {"{\"model_type\":\"gemma3_text\",\"hidden_activation\":\"gelu\"}", PL_ERR_MODEL_UNSUPPORTED,
     "gelu_pytorch_tanh"},
    {"{\"model_type\":\"gemma3_text\",\"rope_parameters\":{\"sliding_attention\":{\"rope_type\":"
     "\"linear\",\"factor\":2}}}",
     PL_ERR_MODEL_UNSUPPORTED, "`rope_parameters.sliding_attention.rope_type`"},
    {"{\"model_type\":\"gemma2\"}", PL_ERR_MODEL_UNSUPPORTED, "capped scores"},
    {"{\"model_type\":\"ministral3\"}", PL_ERR_MODEL_FIELD, "`rope_parameters`"},
    {"{\"model_type\":\"ministral3\",\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":2}}",
     PL_ERR_MODEL_FIELD, "llama_4_scaling_beta` is missing"},
    {"{\"model_type\":\"ministral3\",\"rope_parameters\":{\"rope_type\":\"llama3\","
     "\"llama_4_scaling_beta\":0.1}}",
     PL_ERR_MODEL_UNSUPPORTED, "rope type"},
    {"{\"model_type\":\"mistral\",\"sliding_window\":0}", PL_ERR_MODEL_FIELD, "`sliding_window`"},
    {"{\"model_type\":\"qwen3_5_text\",\"layer_types\":[\"full_attention\"]}", PL_ERR_MODEL_FIELD,
     "a list of 2"},
    {"{\"model_type\":\"qwen3_5_text\",\"layer_types\":[\"full_attention\",\"mamba\"]}",
     PL_ERR_MODEL_UNSUPPORTED, "layer 1 is no \"linear_attention\""},
    {"{\"model_type\":\"qwen3_5_text\",\"linear_num_key_heads\":3,\"linear_num_value_heads\":4}",
     PL_ERR_MODEL_FIELD, "a multiple of linear_num_key_heads, 3"},
    {"{\"model_type\":\"qwen3_5_text\",\"linear_key_head_dim\":257}", PL_ERR_MODEL_FIELD,
     "from 1 to 256"},
    {"{\"model_type\":\"qwen3_5_text\",\"linear_conv_kernel_dim\":9}", PL_ERR_MODEL_FIELD,
     "from 1 to 8"},
    {"{\"model_type\":\"qwen3_5_text\",\"linear_value_head_dim\":1048576}", PL_ERR_MODEL_FIELD,
     "more than 1048576 columns"},
};

/* M1 of model.h, M2 of model.h, F2 of families.h, H1 of hf_json.h */
START_TEST(what_would_change_the_arithmetic_is_refused) {
    static struct pl_model m;
    struct pl_diag d;
    pl_err err = parse_changed(changed_refusals[_i].changes, &m, &d);
    ck_assert_msg(err == changed_refusals[_i].err, "%s: %s %s", changed_refusals[_i].changes,
                  pl_err_code(err), d.message);
    ck_assert_msg(strstr(d.message, changed_refusals[_i].says) != NULL, "%s lacks %s", d.message,
                  changed_refusals[_i].says);
}
END_TEST

/* F1 of families.h */
START_TEST(absent_keys_take_the_defaults_of_the_family) {
    static const struct {
        const char *type;
        double theta, eps;
        uint64_t kv_heads, head_dim, positions, window;
        bool tied, qkv_bias, qk_norm;
        int64_t bos, eos, pad;
    } rows[] = {
        {"llama", 1e4, 1e-6, 64, 4, 2048, 0, false, false, false, 1, 2, -1},
        {"qwen2", 1e4, 1e-6, 32, 4, 32768, 0, false, true, false, -1, -1, -1},
        {"qwen3", 1e4, 1e-6, 32, 128, 32768, 0, false, false, true, -1, -1, -1},
        {"mistral", 1e4, 1e-6, 8, 4, 131072, 4096, false, false, false, 1, 2, -1},
        {"phi3", 1e4, 1e-5, 64, 4, 4096, 0, false, false, false, 1, 32000, 32000},
        {"smollm3", 2e6, 1e-6, 4, 4, 32768, 0, true, false, false, 128000, 128001, 128004},
        {"ministral3", 1e6, 1e-5, 8, 128, 262144, 0, false, false, false, 1, 2, 11},
        {"gemma3_text", 1e6, 1e-6, 4, 256, 131072, 4096, true, false, true, 2, 1, 0},
        {"qwen3_moe", 1e4, 1e-6, 4, 4, 32768, 0, false, false, true, -1, -1, -1},
        {"gpt_oss", 1.5e5, 1e-5, 8, 64, 131072, 0, false, true, false, -1, 200002, 199999},
        {"qwen3_5_text", 1e4, 1e-6, 4, 256, 32768, 0, false, false, true, -1, -1, -1},
        {"gemma4_text", 1e6, 1e-6, 4, 256, 131072, 0, true, false, true, 2, 1, 0},
        {"exaone4", 1e4, 1e-5, 32, 4, 2048, 4096, false, false, true, 0, 2, -1},
    };
    /* Positions of some have no default: a file without them is not this model. */
    static const char positions[] =
        ",\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":16,"
        "\"original_max_position_embeddings\":16384,\"llama_4_scaling_beta\":0.1}";
    static const char of_kinds[] =
        ",\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"proportional\"}}";
    const bool is_gemma4 = strcmp(rows[_i].type, "gemma4_text") == 0;
    const bool is_gpt_oss = strcmp(rows[_i].type, "gpt_oss") == 0;
    const bool is_yarn = is_gpt_oss || strcmp(rows[_i].type, "ministral3") == 0;
    char json[512];
    static struct pl_model m;
    struct pl_diag d = {0};
    snprintf(json, sizeof json,
             "{\"model_type\":\"%s\",\"hidden_size\":256,\"intermediate_size\":64,"
             "\"num_hidden_layers\":2,\"num_attention_heads\":64,\"vocab_size\":201088%s}",
             rows[_i].type,
             is_yarn     ? positions
             : is_gemma4 ? of_kinds
                         : "");
    ck_assert_msg(pl_model_parse("x", json, strlen(json), &m, &d) == PL_ERR_OK, "%s", d.message);
    ck_assert_str_eq(pl_family_name(m.family), rows[_i].type);
    ck_assert_double_eq(m.rope[0].theta, rows[_i].theta);
    ck_assert_double_eq(m.rms_eps, rows[_i].eps);
    ck_assert_uint_eq(m.kv_heads, rows[_i].kv_heads);
    ck_assert_uint_eq(m.head_dim, rows[_i].head_dim);
    const bool turns_part = strcmp(rows[_i].type, "qwen3_5_text") == 0;
    ck_assert_uint_eq(m.rope[0].dim, is_gemma4 ? 512 : rows[_i].head_dim / (turns_part ? 4 : 1));
    ck_assert_uint_eq(m.max_positions, rows[_i].positions);
    ck_assert_uint_eq(m.layer[m.layers - 1].window, rows[_i].window);
    ck_assert_int_eq(m.tied, rows[_i].tied);
    ck_assert_int_eq(m.qkv_bias, rows[_i].qkv_bias);
    ck_assert_int_eq(m.o_bias, is_gpt_oss);
    ck_assert(!m.mlp_bias);
    ck_assert_int_eq(m.qk_norm, rows[_i].qk_norm);
    ck_assert_int_eq(m.bos, rows[_i].bos);
    ck_assert_int_eq(m.n_eos ? m.eos[0] : -1, rows[_i].eos);
    ck_assert_int_eq(m.pad, rows[_i].pad);
    ck_assert_int_eq(m.rope[0].type, is_yarn     ? PL_ROPE_YARN
                                     : is_gemma4 ? PL_ROPE_PROPORTIONAL
                                                 : PL_ROPE_DEFAULT);
    ck_assert_double_eq(m.initializer_range, 0.02);
    ck_assert_str_eq(m.torch_dtype, "");
}
END_TEST

/* Dropout acts in training alone: every other command answers as without it. */
START_TEST(dropout_is_read_and_refused_in_training_alone) {
    static const char *const keys[] = {"attention_dropout", "embd_pdrop", "resid_pdrop",
                                       "hidden_dropout", "attn_pdrop"};
    char json[64];
    struct pl_diag d = {0};
    snprintf(json, sizeof json, "{\"%s\":0.1}", keys[_i]);
    struct pl_model m = changed(json);
    ck_assert_int_eq(pl_model_check_trains(&m, "config.json", &d), PL_ERR_MODEL_UNSUPPORTED);
    ck_assert_msg(strstr(d.message, keys[_i]) && strstr(d.message, "0.1"), "%s", d.message);
    ck_assert_msg(strstr(d.hint, "0.0") && strstr(d.hint, keys[_i]), "%s", d.hint);
    snprintf(json, sizeof json, "{\"%s\":0.0}", keys[_i]);
    m = changed(json);
    ck_assert_int_eq(pl_model_check_trains(&m, "config.json", &d), PL_ERR_OK);
}
END_TEST

static const struct {
    const char *type, *why;
} architectures[] = {
    {"gemma2", "capped"},
    {"gemma3n_text", "shared keys"},
    {"qwen2_moe", "experts"},
    {"deepseek_v3", "latent"},
    {"mixtral", "experts"},
    {"gpt2", "LayerNorm"},
    {"gpt_neox", "parallel"},
    {"falcon", "parallel"},
    {"bloom", "ALiBi"},
    {"opt", "learned positions"},
    {"mpt", "ALiBi"},
    {"phi", "parallel"},
    {"cohere2", "parallel"},
    {"olmo2", "norms"},
    {"granite", "multipliers"},
    {"stablelm", "partial"},
    {"internlm2", "names of its own"},
    {"baichuan", "names"},
    {"chatglm", "rotation"},
    {"jamba", "state-space"},
    {"mamba2", "state-space"},
    {"rwkv5", "recurrent"},
    {"t5", "only decoders"},
    {"bert", "only decoders"},
    {"llama4", "chunked"},
    {"qwen2_vl", "images"},
    {"qwen3_5_moe_text", "linear attention with a mixture"},
    {"qwen3_next", "linear"},
    {"lfm2", "convolutions"},
    {"starcoder2", "LayerNorm"},
};

START_TEST(an_architecture_that_is_not_computed_has_its_reason) {
    static struct pl_model m;
    char json[128];
    struct pl_diag d = {0};
    snprintf(json, sizeof json, "{\"model_type\":\"%s\",\"hidden_size\":64}",
             architectures[_i].type);
    ck_assert_int_eq(pl_model_parse("x", json, strlen(json), &m, &d), PL_ERR_MODEL_UNSUPPORTED);
    ck_assert_msg(strstr(d.message, architectures[_i].type) &&
                      strstr(d.message, architectures[_i].why),
                  "%s", d.message);
}
END_TEST

START_TEST(a_default_token_beyond_the_vocabulary_is_none) {
    struct pl_model m = changed("{\"model_type\":\"phi3\",\"-eos_token_id\":0}");
    ck_assert_uint_eq(m.n_eos, 0);
    ck_assert_int_eq(m.pad, -1);
    ck_assert_int_eq(m.bos, 1);
}
END_TEST

/* H2 of hf_json.h */
START_TEST(tokens_may_be_numbers_lists_or_null) {
    ck_assert_uint_eq(changed("{}").eos[0], 2);
    struct pl_model m = changed("{\"eos_token_id\":[7,8,9]}");
    ck_assert_uint_eq(m.n_eos, 3);
    ck_assert_int_eq(m.eos[2], 9);
    ck_assert_uint_eq(changed("{\"eos_token_id\":null}").n_eos, 0);
    ck_assert_int_eq(changed("{\"bos_token_id\":null}").bos, -1);
    ck_assert_int_eq(changed("{\"pad_token_id\":-1}").pad, -1);
    ck_assert_int_eq(changed("{\"pad_token_id\":0}").pad, 0);
}
END_TEST

START_TEST(a_window_is_kept_however_wide) {
    static const struct {
        const char *changes;
        uint64_t window;
    } rows[] = {
        {"{\"model_type\":\"mistral\",\"sliding_window\":128}", 128},
        {"{\"model_type\":\"mistral\",\"sliding_window\":512}", 512},
        {"{\"model_type\":\"mistral\",\"sliding_window\":null,\"max_position_embeddings\":32768}",
         0},
        {"{\"model_type\":\"phi3\",\"sliding_window\":511}", 511},
        {"{\"model_type\":\"qwen2\",\"use_sliding_window\":false,\"sliding_window\":128}", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ck_assert_uint_eq(changed(rows[i].changes).layer[0].window, rows[i].window);
    ck_assert_uint_eq(read_good("Phi-4-mini/config.json").layer[31].window, 262144);
}
END_TEST

/* Configurations whose layer_types are those of Qwen2Config, Qwen3Config and SmolLM3Config of
 * transformers 5.23. */
static const struct {
    const char *changes;
    uint64_t window;
    const char *layers; /* w: it has the window */
} windows[] = {
    {"{\"model_type\":\"qwen2\",\"use_sliding_window\":true,\"max_window_layers\":2}", 4096,
     "..ww"},
    {"{\"model_type\":\"qwen3\",\"use_sliding_window\":true,\"sliding_window\":9,"
     "\"max_window_layers\":0}",
     9, "wwww"},
    {"{\"model_type\":\"qwen2\",\"use_sliding_window\":true,\"sliding_window\":9}", 9, "...."},
    {"{\"model_type\":\"qwen2\",\"use_sliding_window\":true,\"sliding_window\":null,"
     "\"max_window_layers\":null}",
     0, "...."},
    {"{\"model_type\":\"qwen2\",\"use_sliding_window\":true,\"sliding_window\":9,"
     "\"max_window_layers\":2,\"layer_types\":[\"sliding_attention\",\"full_attention\","
     "\"sliding_attention\",\"full_attention\"]}",
     9, "w.w."},
    {"{\"model_type\":\"smollm3\",\"use_sliding_window\":true,\"sliding_window\":8}", 8, "...w"},
    {"{\"model_type\":\"smollm3\",\"use_sliding_window\":true}", 0, "...."},
    {"{\"model_type\":\"smollm3\",\"sliding_window\":8}", 0, "...."},
    {"{\"model_type\":\"mistral\",\"sliding_window\":8}", 8, "wwww"},
};

START_TEST(a_window_is_of_the_layers_that_have_it) {
    char changes[512];
    snprintf(changes, sizeof changes, "%.*s,\"num_hidden_layers\":4}",
             (int)strlen(windows[_i].changes) - 1, windows[_i].changes);
    struct pl_model m = changed(changes);
    for (int i = 0; i < 4; i++)
        ck_assert_msg(m.layer[i].window == (windows[_i].layers[i] == 'w' ? windows[_i].window : 0),
                      "%s: layer %d", windows[_i].changes, i);
}
END_TEST

START_TEST(rope_settings_are_read_in_both_spellings) {
    struct pl_model m = changed("{\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.5}}");
    ck_assert_int_eq(m.rope[0].type, PL_ROPE_LINEAR);
    ck_assert_double_eq(m.rope[0].factor, 2.5);
    ck_assert_double_eq(m.rope[0].attention_factor, 1);
    m = changed("{\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":3,\"rope_theta\":5e5}}");
    ck_assert_int_eq(m.rope[0].type, PL_ROPE_LINEAR);
    ck_assert_double_eq(m.rope[0].theta, 5e5);
    m = changed("{\"rope_parameters\":{\"rope_type\":\"default\"},\"rope_theta\":77}");
    ck_assert_double_eq(m.rope[0].theta, 77);
    m = changed("{\"model_type\":\"phi3\",\"rope_parameters\":{\"partial_rotary_factor\":0.5}}");
    ck_assert_uint_eq(m.rope[0].dim, 16);
    m = read_good("Llama-3.2-1B/config.json");
    ck_assert_int_eq(m.rope[0].type, PL_ROPE_LLAMA3);
    ck_assert_double_eq(m.rope[0].factor, 32);
    ck_assert_double_eq(m.rope[0].low_freq_factor, 1);
    ck_assert_double_eq(m.rope[0].high_freq_factor, 4);
    ck_assert_uint_eq(m.rope[0].original_max_positions, 8192);
}
END_TEST

START_TEST(longrope_scales_cos_and_sin_by_the_stretch) {
    struct pl_model m = read_good("Phi-4-mini/config.json");
    ck_assert_int_eq(m.rope[0].type, PL_ROPE_LONGROPE);
    ck_assert_uint_eq(m.rope[0].dim, 96);
    ck_assert_double_eq(m.rope[0].factor, 32);
    ck_assert_uint_eq(m.rope[0].original_max_positions, 4096);
    /* sqrt(1 + ln 32 / ln 4096) = sqrt(1 + 5/12) */
    ck_assert_double_eq_tol(m.rope[0].attention_factor, sqrt(17.0 / 12.0), 1e-15);
    ck_assert_double_eq(m.rope[0].long_factor[1], 1.118320672);
    ck_assert_double_eq(m.rope[0].short_factor[0], 1);
    m = changed("{\"model_type\":\"phi3\",\"hidden_size\":32,\"original_max_position_embeddings\":"
                "256,\"rope_scaling\":{\"type\":\"su\",\"short_factor\":[1,2],\"long_factor\":"
                "[3,4],\"attention_factor\":1.25}}");
    ck_assert_double_eq(m.rope[0].attention_factor, 1.25);
    ck_assert_double_eq(m.rope[0].long_factor[1], 4);
}
END_TEST

START_TEST(layers_without_positions_follow_list_or_interval) {
    struct pl_model m = changed("{\"model_type\":\"smollm3\",\"no_rope_layers\":[0,1]}");
    ck_assert(m.layer[0].rope == PL_NO_ROPE && m.layer[1].rope == 0);
    m = changed("{\"model_type\":\"smollm3\",\"num_hidden_layers\":5}");
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(m.layer[i].rope == PL_NO_ROPE, i == 3);
    m = changed(
        "{\"model_type\":\"smollm3\",\"no_rope_layer_interval\":2,\"no_rope_layers\":null}");
    ck_assert(m.layer[0].rope == 0 && m.layer[1].rope == PL_NO_ROPE);
    m = read_good("SmolLM3-3B/config.json");
    for (uint64_t i = 0; i < m.layers; i++)
        ck_assert_int_eq(m.layer[i].rope == PL_NO_ROPE, i % 4 == 3);
}
END_TEST

/* Configurations whose layers are those of Gemma3TextConfig of transformers 5.23, in the keys of
 * 4.57 and of 5. */
static const struct {
    const char *keys, *layers; /* w: a window, and the second rope */
    double theta, local_theta, factor;
} gemma_layers[] = {
    {"", "wwwwwf", 1e6, 1e4, 1},
    {",\"sliding_window_pattern\":2,\"rope_theta\":500,\"rope_local_base_freq\":50", "wfwfwf", 500,
     50, 1},
    {",\"_sliding_window_pattern\":2,\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8}",
     "wwwwwf", 1e6, 1e4, 8},
    {",\"layer_types\":[\"full_attention\",\"sliding_attention\",\"sliding_attention\","
     "\"sliding_attention\",\"sliding_attention\",\"full_attention\"],\"rope_parameters\":{"
     "\"full_attention\":{\"rope_type\":\"linear\",\"factor\":4,\"rope_theta\":400},"
     "\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":60}}",
     "fwwwwf", 400, 60, 4},
};

START_TEST(gemma_layers_have_windows_and_ropes_of_their_own) {
    char json[1024];
    static struct pl_model m;
    struct pl_diag d = {0};
    snprintf(json, sizeof json,
             "{\"model_type\":\"gemma3_text\",\"hidden_size\":64,\"intermediate_size\":64,"
             "\"num_hidden_layers\":6,\"sliding_window\":9,\"query_pre_attn_scalar\":100%s}",
             gemma_layers[_i].keys);
    ck_assert_msg(pl_model_parse("x", json, strlen(json), &m, &d) == PL_ERR_OK, "%s", d.message);
    for (int i = 0; i < 6; i++) {
        const bool local = gemma_layers[_i].layers[i] == 'w';
        ck_assert_uint_eq(m.layer[i].window, local ? 9 : 0);
        ck_assert_uint_eq(m.layer[i].rope, local);
        ck_assert_int_eq(m.layer[i].kind, PL_LAYER_FOUR_NORM);
    }
    ck_assert_uint_eq(m.n_ropes, 2);
    ck_assert_double_eq(m.rope[0].theta, gemma_layers[_i].theta);
    ck_assert_double_eq(m.rope[0].factor, gemma_layers[_i].factor);
    ck_assert_double_eq(m.rope[1].theta, gemma_layers[_i].local_theta);
    ck_assert_int_eq(m.rope[1].type, PL_ROPE_DEFAULT);
    ck_assert_double_eq(m.score_scale, 0.1);
    ck_assert_double_eq(m.embed_scale, 8);
    ck_assert(m.activation == PL_ACTIVATION_GELU_TANH && m.unit_offset && m.heads == 8 &&
              m.vocab == 262208);
}
END_TEST

START_TEST(a_wrapper_reads_as_its_language_model) {
    static struct pl_model m;
    struct pl_diag d = {0};
    char *text;
    uint64_t bytes;
    ck_assert_msg(pl_model_read(CONFIGS "/Gemma-3-27B/config.json", &m, &d) == PL_ERR_OK, "%s",
                  d.message);
    ck_assert_str_eq(pl_family_name(m.family), "gemma3_text");
    ck_assert_uint_eq(m.hidden, 5376);
    ck_assert_uint_eq(m.n_eos, 2); /* from the top level, as its dtype */
    ck_assert_str_eq(m.torch_dtype, "bfloat16");
    ck_assert_int_eq(pl_model_read_text(CONFIGS "/Gemma-3-27B/config.json", &text, &bytes, &d),
                     PL_ERR_OK);
    ck_assert_ptr_nonnull(strstr(text, "\"Gemma3ForCausalLM\""));
    ck_assert_ptr_null(strstr(text, "vision_config"));
    ck_assert_uint_eq(bytes, strlen(text));
    free(text);
}
END_TEST

/* A key that is not in the config of the language model is looked for next to it. */
START_TEST(a_wrapper_says_whether_the_head_is_tied) {
    struct pl_model m = read_good("Qwen3.5-27B/config.json");
    ck_assert_str_eq(pl_family_name(m.family), "qwen3_5_text");
    ck_assert(!m.tied);
    m = read_good("Qwen3.5-4B/config.json");
    ck_assert(m.tied);
}
END_TEST

START_TEST(dtype_is_read_in_both_spellings) {
    ck_assert_str_eq(changed("{}").torch_dtype, "bfloat16");
    ck_assert_str_eq(changed("{\"-torch_dtype\":0,\"dtype\":\"float32\"}").torch_dtype, "float32");
}
END_TEST

START_TEST(lora_targets_are_modules_of_the_model) {
    struct pl_model m = read_good("Qwen2.5-0.5B/config.json");
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    uint32_t n = pl_model_rows(&m, rows);
    const char *const two[] = {"down_proj", "q_proj"};
    struct pl_targets targets;
    ck_assert_int_eq(targets_of(&m, two, 2, &targets, NULL), PL_ERR_OK);
    const pl_row_set mask = targets.rows;
    for (uint32_t i = 0; i < n; i++) {
        bool wanted = rows[i].module && (strcmp(rows[i].module, "q_proj") == 0 ||
                                         strcmp(rows[i].module, "down_proj") == 0);
        ck_assert_int_eq(mask >> i & 1, wanted);
    }
    /* r (896+896) + r (4864+896) per layer; layers 0 and 1 left out */
    ck_assert_uint_eq(pl_model_lora_params(&m, mask, 8, 2), 22 * 8 * (1792 + 5760));
    ck_assert_uint_eq(pl_model_lora_params(&m, mask, 8, 23), 8 * (1792 + 5760));
    ck_assert_uint_eq(pl_model_lora_params(&m, mask, 8, 24), 0);
}
END_TEST

START_TEST(a_wrong_lora_target_is_refused_with_the_allowed_ones) {
    static const struct {
        const char *file, *name, *says, *hint;
    } rows[] = {
        {"Qwen2.5-0.5B/config.json", "q_porj", "nearest is `q_proj`", "gate_proj"},
        {"Qwen2.5-0.5B/config.json", "lm_haed", "nearest is `lm_head`", "lm_head"},
        {"Qwen2.5-0.5B/config.json", "embed_token", "nearest is `embed_tokens`", "embed_tokens"},
        {"Phi-4-mini/config.json", "gate_proj", "`gate_proj`", "gate_up_proj"},
        {"Phi-4-mini/config.json", "something_else", "`something_else`", "qkv_proj"},
    };
    struct pl_model m = read_good(rows[_i].file);
    struct pl_diag d = {0};
    struct pl_targets targets;
    ck_assert_int_eq(targets_of(&m, &rows[_i].name, 1, &targets, &d), PL_ERR_CONFIG_RANGE);
    ck_assert_msg(strstr(d.message, rows[_i].says) != NULL, "%s", d.message);
    ck_assert_msg(strstr(d.hint, rows[_i].hint) != NULL, "%s", d.hint);
    ck_assert_int_eq(targets_of(&m, NULL, 0, &targets, NULL), PL_ERR_CONFIG_RANGE);
}
END_TEST

START_TEST(row_names_are_those_of_the_files) {
    struct pl_model m = read_good("Qwen2.5-0.5B/config.json");
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    char name[128];
    ck_assert_uint_gt(pl_model_rows(&m, rows), 2);
    pl_model_row_name(&rows[0], 5, name);
    ck_assert_str_eq(name, "model.embed_tokens.weight");
    pl_model_row_name(&rows[2], 5, name);
    ck_assert_str_eq(name, "model.layers.5.self_attn.q_proj.bias");
    ck_assert(rows[2].vector && rows[2].cols == 1 && rows[2].rows == 896);
}
END_TEST

START_TEST(a_missing_file_and_a_directory_are_named) {
    static struct pl_model m;
    struct pl_diag d = {0};
    ck_assert_int_eq(pl_model_read("/nonexistent/config.json", &m, &d), PL_ERR_MODEL_FILE);
    ck_assert_str_eq(d.file, "/nonexistent/config.json");
    d = (struct pl_diag){0};
    ck_assert_int_eq(pl_model_read(CONFIGS, &m, &d), PL_ERR_MODEL_FILE);
}
END_TEST

#define N(a) ((int)(sizeof(a) / sizeof *(a)))

int main(void) {
    n_csv = load_lines(CONFIGS "/params.csv", csv);
    n_tsv = load_lines(CONFIGS "/bad/expected.tsv", tsv);
    if (n_csv != 57 || n_tsv != 60) return 1; /* a lost table would make loops of zero tests pass */
    Suite *s = suite_create("model");
    TCase *t = tcase_create("config.json");
    tcase_add_loop_test(t, every_published_model_has_its_exact_counts, 0, n_csv);
    tcase_add_loop_test(t, file_rows_cover_every_slot_without_gap_or_overlap, 0, n_csv);
    tcase_add_loop_test(t, every_odd_file_meets_its_verdict, 0, n_tsv);
    tcase_add_loop_test(t, a_refusal_names_key_value_and_line, 0, N(refusals));
    tcase_add_loop_test(t, what_would_change_the_arithmetic_is_refused, 0, N(changed_refusals));
    tcase_add_loop_test(t, absent_keys_take_the_defaults_of_the_family, 0, PL_FAMILY_COUNT);
    tcase_add_test(t, a_default_token_beyond_the_vocabulary_is_none);
    tcase_add_loop_test(t, dropout_is_read_and_refused_in_training_alone, 0, 5);
    tcase_add_loop_test(t, an_architecture_that_is_not_computed_has_its_reason, 0,
                        sizeof architectures / sizeof *architectures);
    tcase_add_test(t, tokens_may_be_numbers_lists_or_null);
    tcase_add_test(t, a_window_is_kept_however_wide);
    tcase_add_loop_test(t, a_window_is_of_the_layers_that_have_it, 0,
                        sizeof windows / sizeof *windows);
    tcase_add_test(t, rope_settings_are_read_in_both_spellings);
    tcase_add_test(t, longrope_scales_cos_and_sin_by_the_stretch);
    tcase_add_test(t, layers_without_positions_follow_list_or_interval);
    tcase_add_loop_test(t, gemma_layers_have_windows_and_ropes_of_their_own, 0,
                        sizeof gemma_layers / sizeof *gemma_layers);
    tcase_add_test(t, a_wrapper_reads_as_its_language_model);
    tcase_add_test(t, a_wrapper_says_whether_the_head_is_tied);
    tcase_add_test(t, dtype_is_read_in_both_spellings);
    tcase_add_test(t, lora_targets_are_modules_of_the_model);
    tcase_add_loop_test(t, a_wrong_lora_target_is_refused_with_the_allowed_ones, 0, 5);
    tcase_add_test(t, row_names_are_those_of_the_files);
    tcase_add_test(t, a_missing_file_and_a_directory_are_named);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
