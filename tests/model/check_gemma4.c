/* check_gemma4.c - what a config.json of Gemma 4 says of each layer, and what is refused. */
#include "estimator/model/model.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static struct pl_model gemma4(const char *keys, pl_err want, struct pl_diag *d) {
    static const char none[] = ",\"hidden_size_per_layer_input\":0";
    char json[1024];
    static struct pl_model m;
    *d = (struct pl_diag){0};
    snprintf(json, sizeof json,
             "{\"model_type\":\"gemma4_text\",\"hidden_size\":64,\"intermediate_size\":48,"
             "\"num_hidden_layers\":7,\"sliding_window\":9,\"head_dim\":8,"
             "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"proportional\","
             "\"partial_rotary_factor\":0.25,\"rope_theta\":300}}%s%s}",
             strstr(keys, "per_layer_input") ? "" : none, keys);
    const pl_err err = pl_model_parse("x", json, strlen(json), &m, d);
    ck_assert_msg(err == want, "%s: %s", keys, d->message);
    return m;
}

/* Kinds of layers: s scaled, k values that are keys, q queries alone. */
static const struct {
    const char *keys, *kinds, *windows;
    uint32_t head_dim, kv_heads; /* of the layers that see all positions */
} gemma4_layers[] = {
    {"", "sssssss", "wwwwwff", 512, 4},
    {",\"global_head_dim\":16,\"num_global_key_value_heads\":2", "sssssss", "wwwwwff", 16, 4},
    {",\"attention_k_eq_v\":true,\"num_global_key_value_heads\":2", "ssssskk", "wwwwwff", 512, 2},
    {",\"attention_k_eq_v\":true,\"per_layer_config\":{\"5\":{\"head_dim\":16,"
     "\"num_key_value_heads\":1},\"6\":{\"head_dim\":16,\"num_key_value_heads\":1}}",
     "ssssskk", "wwwwwff", 16, 1},
    {",\"num_kv_shared_layers\":1,\"per_layer_config\":{}", "ssssssq", "wwwwwff", 8, 4},
    {",\"num_kv_shared_layers\":3,\"layer_types\":[\"full_attention\",\"sliding_attention\","
     "\"full_attention\",\"sliding_attention\",\"sliding_attention\",\"full_attention\","
     "\"sliding_attention\"],\"global_head_dim\":32",
     "ssssqqq", "fwfwwff", 32, 4},
};

START_TEST(gemma4_layers_are_of_three_kinds) {
    static const enum pl_layer_kind kinds[] = {
        ['s'] = PL_LAYER_SCALED, ['k'] = PL_LAYER_SCALED_KEYS, ['q'] = PL_LAYER_SCALED_QUERIES};
    struct pl_diag d;
    const struct pl_model m = gemma4(gemma4_layers[_i].keys, PL_ERR_OK, &d);
    for (int i = 0; i < 7; i++) {
        const bool local = gemma4_layers[_i].windows[i] == 'w';
        ck_assert_uint_eq(m.layer[i].window, local ? 9 : 0);
        ck_assert_uint_eq(m.layer[i].rope, local);
        ck_assert_int_eq(m.layer[i].kind, kinds[(int)gemma4_layers[_i].kinds[i]]);
        ck_assert_uint_eq(m.layer[i].head_dim, local ? 8 : gemma4_layers[_i].head_dim);
        ck_assert_uint_eq(m.layer[i].kv_heads, local ? 4 : gemma4_layers[_i].kv_heads);
    }
    ck_assert_int_eq(m.rope[0].type, PL_ROPE_PROPORTIONAL);
    ck_assert_uint_eq(m.rope[0].dim, gemma4_layers[_i].head_dim);
    ck_assert_uint_eq(m.rope[0].turned, gemma4_layers[_i].head_dim / 8);
    ck_assert_double_eq(m.rope[0].theta, 300);
    ck_assert_double_eq(m.rope[1].theta, 1e4);
    ck_assert_uint_eq(m.rope[1].dim, 8);
    ck_assert_double_eq(m.score_scale, 1);
    ck_assert_double_eq(m.embed_scale, 8);
    ck_assert(m.qk_norm && !m.unit_offset);
}
END_TEST

/* Both users of each type have the last layer before them of that type. */
START_TEST(shared_keys_are_of_the_last_own_layer_of_the_type) {
    struct pl_diag d;
    const struct pl_model m =
        gemma4(",\"num_kv_shared_layers\":3,\"use_double_wide_mlp\":true,\"layer_types\":["
               "\"full_attention\",\"sliding_attention\",\"full_attention\",\"sliding_attention\","
               "\"sliding_attention\",\"full_attention\",\"full_attention\"]",
               PL_ERR_OK, &d);
    static const uint16_t kv[] = {0, 0, 3, 4, 4, 3, 3}; /* 1 + the layer */
    for (int i = 0; i < 7; i++) {
        ck_assert_uint_eq(m.layer[i].kv_layer, kv[i]);
        ck_assert_uint_eq(m.layer[i].ffn, i < 4 ? 48 : 96);
        ck_assert_int_eq(pl_layer_lends_kv(&m.layer[i]), i == 2 || i == 3);
    }
}
END_TEST

static const struct {
    const char *keys, *says;
    pl_err err;
} gemma4_refusals[] = {
    {",\"enable_moe_block\":true", "enable_moe_block", PL_ERR_MODEL_UNSUPPORTED},
    {",\"use_bidirectional_attention\":\"all\"", "only decoders", PL_ERR_MODEL_UNSUPPORTED},
    {",\"num_kv_shared_layers\":7", "num_kv_shared_layers", PL_ERR_MODEL_FIELD},
    {",\"num_kv_shared_layers\":2", "layer 5 shares", PL_ERR_MODEL_FIELD},
    {",\"per_layer_config\":{\"7\":{}}", "number of a layer", PL_ERR_MODEL_FIELD},
    {",\"per_layer_config\":{\"1\":{\"intermediate_size\":8}}", "intermediate_size",
     PL_ERR_MODEL_UNSUPPORTED},
    {",\"global_head_dim\":1048576", "head size", PL_ERR_MODEL_FIELD},
    {",\"per_layer_config\":{\"1\":{\"num_key_value_heads\":3}}", "key/value heads",
     PL_ERR_MODEL_FIELD},
    {",\"final_logit_softcapping\":-1", "final_logit_softcapping", PL_ERR_MODEL_FIELD},
    {",\"hidden_size_per_layer_input\":8,\"vocab_size_per_layer_input\":100",
     "per-layer embeddings", PL_ERR_MODEL_FIELD},
    {",\"hidden_size_per_layer_input\":1048576", "hidden_size_per_layer_input", PL_ERR_MODEL_FIELD},
};

START_TEST(what_gemma4_does_not_compute_is_refused) {
    struct pl_diag d;
    (void)gemma4(gemma4_refusals[_i].keys, gemma4_refusals[_i].err, &d);
    ck_assert_msg(strstr(d.message, gemma4_refusals[_i].says), "%s", d.message);
}
END_TEST

int main(void) {
    Suite *s = suite_create("gemma4");
    TCase *t = tcase_create("config.json");
    tcase_add_loop_test(t, gemma4_layers_are_of_three_kinds, 0,
                        sizeof gemma4_layers / sizeof *gemma4_layers);
    tcase_add_test(t, shared_keys_are_of_the_last_own_layer_of_the_type);
    tcase_add_loop_test(t, what_gemma4_does_not_compute_is_refused, 0,
                        sizeof gemma4_refusals / sizeof *gemma4_refusals);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
