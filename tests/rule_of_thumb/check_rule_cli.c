/* check_rule_cli.c - questions without a model through the binary, and the figures next to a plan.
 * PLIMSOLL names the binary. */
#include "estimator/rule_of_thumb/rule_tables.h"
#include "tests/support/child.h"
#include "tools/plimsoll/cli.h"

#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WORDS 20
#define MODEL     "Qwen2.5-7B"

/* `estimate-vram words... --json`, which exits with `status`; the answer is to be released. */
static json_t *ask(int status, const char *const words[]) {
    const char *argv[MAX_WORDS + 4] = {"estimate-vram", "--json"};
    for (int i = 0; words[i]; i++)
        argv[2 + i] = words[i];
    struct outcome p = plimsoll_run(NULL, argv);
    json_error_t error;
    json_t *root = json_loads(p.out, 0, &error); /* refuses anything after the object */
    ck_assert_msg(root != NULL, "%s: %s%s", error.text, p.out, p.err);
    ck_assert_msg(p.status == status, "exit %d: %s", p.status, p.err);
    ck_assert_int_eq(json_integer_value(json_object_get(root, "schema")), 1);
    outcome_finish(&p);
    return root;
}

static double real_at(const json_t *o, const char *key) {
    ck_assert_msg(json_is_real(json_object_get(o, key)), "%s", key);
    return json_real_value(json_object_get(o, key));
}

static const struct {
    const char *words[MAX_WORDS];
    double weights, gradients, optimizer, activations, total, listed;
} bills[] = {
    {{"--rule-of-thumb", "--params-billions", "8", "--weight-precision", "fp16"},
     16,
     16,
     64,
     2.15,
     98.65,
     96.93},
    {{"--rule-of-thumb", "--params-billions", "8", "--weight-precision", "nf4", "--lora"},
     4,
     0,
     0,
     0.86,
     5.36,
     5.01},
    {{"--rule-of-thumb", "--params-billions=8", "--weight-precision=nf4", "--lora",
      "--no-gradient-checkpointing", "--lora-rank", "64", "--batch-size", "2", "--seq-length",
      "1024", "--num-layers", "16", "--hidden-dim", "2048"},
     4,
     0,
     0,
     0.54,
     5.04,
     4.85},
    {{"--rule-of-thumb", "--params-billions", "8", "--weight-precision", "nf4", "--inference"},
     4,
     0,
     0,
     0,
     4.5,
     4.5},
};

START_TEST(the_calculator_answers_with_all_its_parts) {
    json_t *root = ask(0, bills[_i].words);
    ck_assert_double_eq(real_at(root, "weights"), bills[_i].weights);
    ck_assert_double_eq(real_at(root, "overhead"), 0.5);
    ck_assert_double_eq(real_at(root, "total"), bills[_i].total);
    ck_assert_double_eq(real_at(json_object_get(root, "listing"), "total"), bills[_i].listed);
    ck_assert(json_is_true(json_object_get(root, "approximate")));
    if (bills[_i].activations > 0) {
        ck_assert_double_eq(real_at(root, "gradients"), bills[_i].gradients);
        ck_assert_double_eq(real_at(root, "optimizer"), bills[_i].optimizer);
        ck_assert_double_eq(real_at(root, "activations"), bills[_i].activations);
    } else {
        ck_assert_ptr_null(json_object_get(root, "gradients"));
    }
    json_decref(root);
}
END_TEST

/* Under LoRA the editions count adapters of other layers: the answer says of which. */
START_TEST(the_calculator_says_whose_adapters_it_counts) {
    static const char want[] = "gradients and optimizer count the adapters of 1 layer, as that "
                               "output does; the listing counts all 16 layers";
    json_t *root = ask(0, bills[_i].words), *note;
    const bool lora = json_is_true(json_object_get(json_object_get(root, "inputs"), "lora"));
    size_t i, layers = 0;
    json_array_foreach(json_object_get(root, "notes"), i, note) {
        const char *text = json_string_value(note);
        layers += strstr(text, " layers") != NULL;
        if (_i == 2 && strstr(text, " layers")) ck_assert_str_eq(text, want);
    }
    ck_assert_uint_eq(layers, lora);
    json_decref(root);
    struct outcome p = plimsoll_run(
        NULL, (const char *[]){"estimate-vram", "--rule-of-thumb", "--params-billions", "8",
                               "--weight-precision", "nf4", "--lora", "--num-layers", "16", NULL});
    ck_assert_ptr_nonnull(strstr(p.out, want));
    outcome_finish(&p);
}
END_TEST

static const struct {
    const char *gb;
    int status;
    const char *verdict;
} cards[] = {{"24", 0, "fits"}, {"6", 0, "tight"}, {"5.3", 3, "no"}};

START_TEST(a_card_makes_the_calculator_a_verdict) {
    json_t *root =
        ask(cards[_i].status,
            (const char *[]){"--rule-of-thumb", "--params-billions", "8", "--weight-precision",
                             "nf4", "--lora", "--vram-gb", cards[_i].gb, NULL});
    ck_assert_str_eq(json_string_value(json_object_get(root, "verdict")), cards[_i].verdict);
    json_decref(root);
}
END_TEST

static const struct {
    const char *words[3];
    int batch;
} tiers[] = {{{"--vram-gb", "12"}, 1},   {{"--vram-gb", "16"}, 2}, {{"--vram-gb", "24"}, 4},
             {{"--vram-gb", "32"}, 6},   {{"--vram-gb", "48"}, 8}, {{"--vram", "20GB"}, 2},
             {{"--gpu", "RTX 4090"}, 4}, {{"--gpu", "H100"}, 8}};

START_TEST(a_card_alone_is_answered_by_its_tier) {
    json_t *root = ask(0, tiers[_i].words);
    ck_assert_int_eq(json_integer_value(json_object_get(root, "recommended_batch_size")),
                     tiers[_i].batch);
    ck_assert(json_is_true(json_object_get(root, "approximate")));
    ck_assert_uint_eq(json_array_size(json_object_get(root, "tiers")), 5);
    json_decref(root);
}
END_TEST

/* PLIMSOLL_NVML names a library that is not there: the machine of the test has no GPU then. */
START_TEST(without_a_gpu_the_tier_table_is_printed_and_said_why) {
    ck_assert_int_eq(setenv("PLIMSOLL_NVML", "/nonexistent/nvml.so", 1), 0);
    json_t *root = ask(0, (const char *[]){NULL});
    ck_assert(json_is_null(json_object_get(root, "recommended_batch_size")));
    ck_assert_ptr_nonnull(strstr(
        json_string_value(json_array_get(json_object_get(root, "notes"), 0)), "no local GPU: "));
    json_decref(root);
    struct outcome p = plimsoll_run(NULL, (const char *[]){"estimate-vram", NULL});
    ck_assert_int_eq(p.status, 0);
    ck_assert_ptr_nonnull(strstr(p.out, "vram_min_gb  batch_size\n"));
    ck_assert_ptr_nonnull(strstr(p.err, "note: no local GPU: "));
    outcome_finish(&p);
}
END_TEST

/* A2 of rule_args.h. */
START_TEST(a_model_is_planned_and_no_note_says_what_the_tier_was) {
    json_t *root = ask(0, (const char *[]){MODEL, "--vram-gb", "24", "--max-seq-length", "512",
                                           "gradient_checkpointing=full", NULL});
    ck_assert(json_is_false(json_object_get(root, "approximate")));
    ck_assert_int_gt(json_integer_value(json_object_get(root, "recommended_batch_size")), 4);
    const json_t *note;
    size_t i;
    json_array_foreach(json_object_get(root, "notes"), i, note)
        ck_assert_ptr_null(strstr(json_string_value(note), "for a card of"));
    /* bf16: two bytes of 7,615,616,512 weights; the rest of the formula is checked elsewhere */
    ck_assert_double_eq(real_at(json_object_get(root, "quick"), "weights"), 15.23);
    ck_assert(json_is_true(json_object_get(json_object_get(root, "quick"), "approximate")));
    json_decref(root);
}
END_TEST

START_TEST(the_checklist_is_answered_for_a_job) {
    static const char *const topics[] = {
        "precision: ", "gradient checkpointing: ", "batch size: ", "sequence length: ",
        "LoRA: ",      "others on the device: "};
    json_t *root = ask(
        3, (const char *[]){MODEL, "--vram-gb", "12", "--batch-size", "1", "--checklist", NULL});
    const json_t *lines = json_object_get(root, "checklist");
    ck_assert_uint_gt(json_array_size(lines), 5);
    for (size_t i = 0; i < 6; i++)
        ck_assert_ptr_nonnull(strstr(json_string_value(json_array_get(lines, i)), topics[i]));
    ck_assert_int_eq(strncmp(json_string_value(json_array_get(lines, 5)), "[!]", 3), 0);
    json_decref(root);
}
END_TEST

START_TEST(every_table_is_a_choice_of_the_flag_and_an_answer) {
    size_t n;
    const struct pl_rule_table_info *info = &pl_rule_table_list(&n)[_i];
    const char *rest = pl_cli_flags()[PL_FLAG_TABLE].value, *s = "";
    int len = 0;
    for (int i = 0; i <= _i; i++)
        ck_assert(pl_cli_next_choice(&rest, &s, &len));
    ck_assert(strlen(info->name) == (size_t)len && strncmp(s, info->name, (size_t)len) == 0);
    ck_assert(_i + 1 < (int)n || !*rest);
    json_t *root = ask(0, (const char *[]){"--table", info->name, NULL});
    ck_assert_str_eq(json_string_value(json_object_get(root, "table")), info->name);
    ck_assert_uint_gt(json_array_size(json_object_get(root, "rows")), 0);
    json_decref(root);
}
END_TEST

/* B1 of rule_tables.h */
START_TEST(a_table_takes_the_inputs_it_is_given) {
    json_t *root = ask(0, (const char *[]){"--table", "freezing", "--params-billions", "4",
                                           "--trained-layers", "8", "--vram-gb", "24", NULL});
    json_t *row = json_array_get(json_object_get(root, "rows"), 1);
    ck_assert_str_eq(json_string_value(json_object_get(row, "trained")), "last 8 of 32 layers");
    ck_assert_double_eq(real_at(row, "sum_gb"), 8 + 4.0 * 8 / 32 * 10);
    ck_assert_str_eq(json_string_value(json_object_get(row, "fits")), "fits");
    json_decref(root);
}
END_TEST

static const struct {
    const char *words[MAX_WORDS];
    const char *says;
} refused[] = {
    {{"--rule-of-thumb"}, "--rule-of-thumb needs --params-billions"},
    {{"--rule-of-thumb", "--params-billions", "nan"}, "not `nan`"},
    {{"--rule-of-thumb", "--params-billions", "-8"}, "not `-8`"},
    {{"--rule-of-thumb", "--params-billions", "0"}, "not `0`"},
    {{"--rule-of-thumb", "--params-billions", "1e99"}, "not `1e99`"},
    {{"--rule-of-thumb", "--params-billions", "8x"}, "not `8x`"},
    {{"--rule-of-thumb", "--params-billions", "8", "--num-layers", "1.5"}, "a whole number"},
    {{"--rule-of-thumb", "--params-billions", "8", "--batch-size", "0"}, "batch_size"},
    {{"--rule-of-thumb", "--params-billions", "8", "--batch-size", "auto"}, "needs a MODEL"},
    {{"--rule-of-thumb", "--params-billions", "8", "--weight-precision", "nf5"}, "fp32|fp16"},
    {{"--rule-of-thumb", "--params-billions", "8", "--learning-rate", "1"}, "no rule of thumb"},
    {{MODEL, "--rule-of-thumb", "--params-billions", "8"}, "can be planned to the byte"},
    {{MODEL, "--table", "grid"}, "--table takes no MODEL"},
    {{"--table", "grit"}, "--table is one of"},
    {{MODEL, "--num-layers", "3"}, "--num-layers belongs to --rule-of-thumb"},
    {{MODEL, "--effective-batch", "16"},
     "--effective-batch belongs to --rule-of-thumb and --table"},
    {{"--table", "grid", "--checklist"}, "--checklist is about a job"},
    {{"--gpu", "RTX 4091"}, "RTX 4091"},
    {{"--batch-size", "4"}, "no model"},
    {{MODEL, "--mode", "full", "--adapter-path", "a"}, "has no meaning with `mode: full`"},
};

/* A1 of rule_args.h, by a key that no formula uses. */
START_TEST(what_has_no_answer_exits_2_with_a_sentence) {
    json_t *root = ask(2, refused[_i].words);
    const char *message =
        json_string_value(json_object_get(json_object_get(root, "error"), "message"));
    ck_assert_msg(message && strstr(message, refused[_i].says), "%s", message);
    json_decref(root);
}
END_TEST

#define N(rows) (int)(sizeof(rows) / sizeof *(rows))

int main(void) {
    size_t n;
    (void)pl_rule_table_list(&n);
    Suite *s = suite_create("rule_of_thumb.rule_cli");
    TCase *tc = tcase_create("binary");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, the_calculator_answers_with_all_its_parts, 0, N(bills));
    tcase_add_loop_test(tc, the_calculator_says_whose_adapters_it_counts, 0, N(bills));
    tcase_add_loop_test(tc, a_card_makes_the_calculator_a_verdict, 0, N(cards));
    tcase_add_loop_test(tc, a_card_alone_is_answered_by_its_tier, 0, N(tiers));
    tcase_add_test(tc, without_a_gpu_the_tier_table_is_printed_and_said_why);
    tcase_add_test(tc, a_model_is_planned_and_no_note_says_what_the_tier_was);
    tcase_add_test(tc, the_checklist_is_answered_for_a_job);
    tcase_add_loop_test(tc, every_table_is_a_choice_of_the_flag_and_an_answer, 0, (int)n);
    tcase_add_test(tc, a_table_takes_the_inputs_it_is_given);
    tcase_add_loop_test(tc, what_has_no_answer_exits_2_with_a_sentence, 0, N(refused));
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
