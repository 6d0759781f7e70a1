/* check_qwen3_5.c - that a config.json of Qwen3.5 says what each layer is. CONFIGS as in
 * check_model.c. */
#include "estimator/model/model.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

/* Two layers unless the keys say otherwise. */
static struct pl_model qwen3_5(const char *keys) {
    char json[1024];
    static struct pl_model m;
    struct pl_diag d = {0};
    snprintf(json, sizeof json,
             "{\"model_type\":\"qwen3_5_text\",\"hidden_size\":64,\"intermediate_size\":48,"
             "\"vocab_size\":100%s%s}",
             strstr(keys, "num_hidden_layers") ? "" : ",\"num_hidden_layers\":2", keys);
    ck_assert_msg(pl_model_parse("x", json, strlen(json), &m, &d) == PL_ERR_OK, "%s", d.message);
    return m;
}

START_TEST(layers_of_linear_attention_follow_list_or_interval) {
    struct pl_model m = qwen3_5(",\"num_hidden_layers\":5");
    for (int i = 0; i < 5; i++) {
        const bool full = i == 3;
        ck_assert_int_eq(m.layer[i].kind, full ? PL_LAYER_GATED_ATTENTION : PL_LAYER_GATED_DELTA);
        ck_assert_uint_eq(m.layer[i].kv_heads, full ? m.kv_heads : 0);
        ck_assert_uint_eq(m.layer[i].rope, full ? 0 : PL_NO_ROPE);
    }
    ck_assert(m.unit_offset && m.qk_norm);
    m = qwen3_5(",\"full_attention_interval\":2");
    ck_assert_int_eq(m.layer[0].kind, PL_LAYER_GATED_DELTA);
    ck_assert_int_eq(m.layer[1].kind, PL_LAYER_GATED_ATTENTION);
    m = qwen3_5(",\"full_attention_interval\":2,"
                "\"layer_types\":[\"full_attention\",\"linear_attention\"]");
    ck_assert_int_eq(m.layer[0].kind, PL_LAYER_GATED_ATTENTION);
    ck_assert_int_eq(m.layer[1].kind, PL_LAYER_GATED_DELTA);
}
END_TEST

START_TEST(the_facts_of_linear_attention_are_read) {
    struct pl_model m;
    ck_assert_int_eq(pl_model_read(CONFIGS "/Qwen3.5-27B/config.json", &m, NULL), PL_ERR_OK);
    ck_assert_uint_eq(m.rope[0].dim, 64);
    ck_assert_double_eq(m.rope[0].theta, 1e7);
    ck_assert_uint_eq(m.delta.value_heads, 48);
    ck_assert_uint_eq(pl_delta_channels(&m.delta), 10240);
}
END_TEST

int main(void) {
    Suite *s = suite_create("model.qwen3_5");
    TCase *tc = tcase_create("config");
    tcase_add_test(tc, layers_of_linear_attention_follow_list_or_interval);
    tcase_add_test(tc, the_facts_of_linear_attention_are_read);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
