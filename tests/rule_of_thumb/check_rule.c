/* check_rule.c - the calculator against the output published with it, and against its listing. */
#include "estimator/rule_of_thumb/rule.h"

#include <check.h>
#include <stdint.h>

/* Inputs that differ from the defaults, then weights, gradients, optimizer, activations, total. */
struct row {
    double params_billions;
    const char *precision;
    bool inference, lora, no_checkpointing;
    double rank, batch, length, layers, hidden; /* 0 = default */
    double bill[5];
};

static struct pl_rule_bill bill_of(const struct row *r, enum pl_rule_edition e) {
    struct pl_rule_inputs in = pl_rule_defaults(r->params_billions, r->precision);
    in.inference = r->inference;
    in.lora = r->lora;
    in.gradient_checkpointing = !r->no_checkpointing;
    if (r->rank > 0) in.lora_rank = r->rank;
    if (r->batch > 0) in.batch_size = r->batch;
    if (r->length > 0) in.seq_length = r->length;
    if (r->layers > 0) in.num_layers = r->layers;
    if (r->hidden > 0) in.hidden_dim = r->hidden;
    return pl_rule_estimate(&in, e);
}

static void expect_bill(const struct row *r, enum pl_rule_edition e) {
    struct pl_rule_bill b = bill_of(r, e);
    ck_assert_double_eq(b.weights, r->bill[0]);
    ck_assert_double_eq(b.gradients, r->bill[1]);
    ck_assert_double_eq(b.optimizer, r->bill[2]);
    ck_assert_double_eq(b.activations, r->bill[3]);
    ck_assert_double_eq(b.overhead, 0.5);
    ck_assert_double_eq(b.total, r->bill[4]);
}

static const struct row shown[] = {
    {8, "fp16", .bill = {16.0, 16.0, 64.0, 2.15, 98.65}},
    {8, "nf4", .lora = true, .bill = {4.0, 0.0, 0.0, 0.86, 5.36}},
    {8, "nf4", .inference = true, .bill = {4.0, 0, 0, 0, 4.5}},
};

/* T3 */
START_TEST(the_shown_output_comes_out_part_by_part) {
    expect_bill(&shown[_i], PL_RULE_SHOWN);
}
END_TEST

/* The values that CPython 3.11 returned for the listing, number for number. */
static const struct row listed[] = {
    {8, "fp16", .bill = {16.0, 16.0, 64.0, 0.43, 96.93}},
    {8, "fp16", .no_checkpointing = true, .bill = {16.0, 16.0, 64.0, 1.07, 97.57}},
    {8, "nf4", .lora = true, .bill = {4.0, 0.02, 0.07, 0.43, 5.01}},
    {8, "nf4", .lora = true, .no_checkpointing = true, .bill = {4.0, 0.02, 0.07, 1.07, 5.66}},
    {8, "nf4", .inference = true, .bill = {4.0, 0, 0, 0, 4.5}},
    {0.135, "nf4", .inference = true, .bill = {0.0675, 0, 0, 0, 0.5675}},
    {0.135, "nf4", .bill = {0.07, 0.27, 1.08, 0.43, 2.35}},
    {13, "int8", .lora = true, .rank = 64, .batch = 4, .length = 1000, .layers = 40, .hidden = 5120,
     .bill = {13.0, 0.1, 0.42, 1.31, 15.34}},
    {70, "bf16", .no_checkpointing = true, .batch = 2, .length = 4096, .layers = 80, .hidden = 8192,
     .bill = {140.0, 140.0, 560.0, 21.47, 861.97}},
    {6.7, "fp32", .lora = true, .rank = 8, .batch = 3, .length = 777, .hidden = 4097,
     .bill = {26.8, 0.01, 0.03, 0.49, 27.83}},
};

/* T3 */
START_TEST(the_listing_is_followed_to_the_last_digit) {
    expect_bill(&listed[_i], PL_RULE_LISTED);
}
END_TEST

START_TEST(inference_has_three_keys_and_training_six) {
    for (int i = 0; i < 3; i++) {
        struct pl_rule_bill b = bill_of(&shown[i], PL_RULE_SHOWN);
        struct pl_report r = {0};
        pl_rule_bill_report(&b, &r);
        json_t *o = pl_report_end(&r);
        ck_assert_uint_eq(json_object_size(o), i == 2 ? 3 : 6);
        ck_assert_double_eq(json_real_value(json_object_get(o, "total")), shown[i].bill[4]);
        json_decref(o);
    }
}
END_TEST

/* T2: Python: round(0.125, 2) == 0.12, round(0.375, 2) == 0.38, round(2.675, 2) == 2.67. */
START_TEST(halves_round_as_python_rounds_them) {
    ck_assert_double_eq(pl_rule_round(0.125), 0.12);
    ck_assert_double_eq(pl_rule_round(0.375), 0.38);
    ck_assert_double_eq(pl_rule_round(2.675), 2.67);
    ck_assert_double_eq(pl_rule_round(1e300), 1e300);
}
END_TEST

START_TEST(adapters_of_q_and_v_at_rank_16_are_8_388_608_parameters) {
    ck_assert_double_eq(pl_rule_lora_params(16, 4096, 2, 32), 8388608);
}
END_TEST

static const struct {
    double vram_gb;
    uint32_t batch;
} tiers[] = {{0, 1},  {8, 1},  {12, 1},   {15.99, 1}, {16, 2}, {23.9, 2}, {24, 4},
             {31, 4}, {32, 6}, {47.9, 6}, {48, 8},    {80, 8}, {1e6, 8}};

START_TEST(a_card_has_the_batch_size_of_its_tier) {
    ck_assert_uint_eq(pl_rule_tier_batch(tiers[_i].vram_gb), tiers[_i].batch);
}
END_TEST

START_TEST(tight_is_what_does_not_fit_with_15_percent_on_top) {
    ck_assert_int_eq(pl_rule_fit(10, 16), PL_RULE_FITS);
    ck_assert_int_eq(pl_rule_fit(14, 16), PL_RULE_TIGHT);
    ck_assert_int_eq(pl_rule_fit(16, 16), PL_RULE_TIGHT);
    ck_assert_int_eq(pl_rule_fit(16.01, 16), PL_RULE_NO);
}
END_TEST

START_TEST(a_precision_is_found_by_its_name_alone) {
    ck_assert_ptr_null(pl_rule_precision_find("int5"));
    ck_assert_ptr_null(pl_rule_precision_find(""));
    ck_assert_double_eq(pl_rule_precision_find("int8")->bytes, 1);
}
END_TEST

#define N(rows) (int)(sizeof(rows) / sizeof *(rows))

int main(void) {
    Suite *s = suite_create("rule_of_thumb.rule");
    TCase *tc = tcase_create("rule");
    tcase_add_loop_test(tc, the_shown_output_comes_out_part_by_part, 0, N(shown));
    tcase_add_loop_test(tc, the_listing_is_followed_to_the_last_digit, 0, N(listed));
    tcase_add_test(tc, inference_has_three_keys_and_training_six);
    tcase_add_test(tc, halves_round_as_python_rounds_them);
    tcase_add_test(tc, adapters_of_q_and_v_at_rank_16_are_8_388_608_parameters);
    tcase_add_loop_test(tc, a_card_has_the_batch_size_of_its_tier, 0, N(tiers));
    tcase_add_test(tc, tight_is_what_does_not_fit_with_15_percent_on_top);
    tcase_add_test(tc, a_precision_is_found_by_its_name_alone);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
