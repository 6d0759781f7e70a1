/* check_rule_tables.c - every table against the figures published for 8B, T4 and the defaults. */
#include "estimator/rule_of_thumb/rule_tables.h"

#include <check.h>
#include <math.h>
#include <string.h>

static struct pl_report table; /* of the latest fill */

static struct pl_rule_inputs inputs_of(const struct pl_rule_table_info *info) {
    struct pl_rule_inputs in = pl_rule_defaults(8, info->qlora ? "nf4" : "fp16");
    in.lora = info->qlora;
    if (info->card) in.vram_gb = 15;
    return in;
}

static void fill(const char *name) {
    const struct pl_rule_table_info *info = pl_rule_table_find(name);
    ck_assert_msg(info != NULL, "%s", name);
    struct pl_rule_inputs in = inputs_of(info);
    pl_report_finish(&table);
    info->fill(&in, &table);
}

static uint32_t lines(void) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < table.n_rows; i++)
        n += table.rows[i].line;
    return n;
}

static const struct pl_row *cell(uint32_t line, const char *column) {
    uint32_t at = 0;
    for (uint32_t i = 0; i < table.n_rows; i++) {
        at += table.rows[i].line;
        if (at == line + 1 && strcmp(table.rows[i].name, column) == 0) return &table.rows[i];
    }
    ck_abort_msg("line %u has no column %s", line, column);
    return NULL;
}

static double number(uint32_t line, const char *column) {
    const struct pl_row *c = cell(line, column);
    ck_assert_int_eq(c->type, PL_ROW_REAL);
    return c->is.real;
}

static const char *text_of(const struct pl_row *c) {
    return c->type == PL_ROW_WORD ? c->is.word : c->type == PL_ROW_TEXT ? c->is.text : "";
}

/* One published figure each: `within` is half a unit of the digits it was published with. */
static const struct {
    const char *table;
    uint32_t row;
    const char *column;
    double published, within;
} figures[] = {
    {"precision", 0, "weights_gb", 32, 0},
    {"precision", 1, "weights_gb", 16, 0},
    {"precision", 2, "weights_gb", 16, 0},
    {"precision", 3, "weights_gb", 8, 0},
    {"precision", 4, "weights_gb", 4, 0},
    {"precision", 5, "weights_gb", 4, 0},
    {"precision", 5, "bytes_per_param", 0.5, 0},
    {"gradients", 0, "gradients_gb", 16, 0},
    {"gradients", 1, "gradients_gb", 14, 0},
    {"gradients", 2, "params_millions", 8.4, 0.05},
    {"gradients", 2, "gradients_gb", 0.0168, 0.00005},
    {"optimizer", 0, "bytes_per_param", 4, 0},
    {"optimizer", 2, "full_gb", 64, 0},
    {"optimizer", 2, "lora_mb", 67, 0.5},
    {"lora", 0, "params", 8.4e6, 0.05e6},
    {"lora", 0, "gradients_mb", 16.8, 0.05},
    {"lora", 0, "optimizer_mb", 67, 0.5},
    {"lora", 0, "times_fewer", 1000, 50}, /* "1000x" for 953.7 */
    {"activations", 0, "activations_gb", 1.07, 0.005},
    {"activations", 2, "activations_gb", 4.3, 0.05},
    {"inference", 0, "fp16_gb", 2, 0},
    {"inference", 0, "int8_gb", 1, 0},
    {"inference", 0, "nf4_gb", 0.5, 0},
    {"inference", 1, "fp16_gb", 14, 0},
    {"inference", 2, "fp16_gb", 16, 0},
    {"inference", 1, "int8_gb", 7, 0},
    {"inference", 2, "int8_gb", 8, 0},
    {"inference", 2, "nf4_gb", 4, 0},
    {"inference", 3, "fp16_gb", 26, 0},
    {"inference", 3, "int8_gb", 13, 0},
    {"inference", 3, "nf4_gb", 7, 0.5},
    {"inference", 4, "fp16_gb", 140, 0},
    {"inference", 4, "int8_gb", 70, 0},
    {"inference", 4, "nf4_gb", 35, 0},
    {"accumulation", 1, "gradient_accumulation_steps", 8, 0},
    {"accumulation", 2, "batch_size", 4, 0},
    {"accumulation", 2, "gradient_accumulation_steps", 4, 0},
    {"accumulation", 2, "effective_batch", 16, 0},
    {"freezing", 0, "sum_gb", 96, 0},
    {"freezing", 1, "weights_gb", 16, 0},
    {"freezing", 1, "gradients_gb", 1.6, 0.1 + 1e-9}, /* "~10 %" of 16 for 3 of 32 */
    {"freezing", 1, "optimizer_gb", 6.4, 0.4 + 1e-9},
    {"freezing", 2, "sum_gb", 16, 0},
    {"freezing", 3, "weights_gb", 4, 0},
    {"tiers", 0, "batch_size", 1, 0},
    {"tiers", 1, "vram_min_gb", 16, 0},
    {"tiers", 1, "batch_size", 2, 0},
    {"tiers", 2, "vram_min_gb", 24, 0},
    {"tiers", 2, "batch_size", 4, 0},
    {"tiers", 3, "vram_min_gb", 32, 0},
    {"tiers", 3, "batch_size", 6, 0},
    {"tiers", 4, "vram_min_gb", 48, 0},
    {"tiers", 4, "batch_size", 8, 0},
};

START_TEST(a_computed_figure_is_the_published_one) {
    fill(figures[_i].table);
    const double ours = number(figures[_i].row, figures[_i].column);
    ck_assert_msg(fabs(ours - figures[_i].published) <= figures[_i].within, "%s %s: %.9g",
                  figures[_i].table, figures[_i].column, ours);
}
END_TEST

static const struct {
    const char *table;
    uint32_t row;
    const char *column, *text;
} words[] = {
    {"inference", 1, "document_fp16", "14-16"},
    {"inference", 1, "document_int8", "7-8"},
    {"inference", 1, "document_nf4", "4-5"},
    {"inference", 3, "document_nf4", "7"},
    {"inference", 4, "document_nf4", "35-40"},
    {"gpus", 0, "document_models", "Up to 8B (quantized)"},
    {"gpus", 1, "document_models", "Up to 13B (quantized)"},
    {"gpus", 2, "document_training", "QLoRA"},
    {"gpus", 3, "document_models", "Up to 13B (FP16) or 70B (quantized)"},
    {"gpus", 3, "document_training", "Full FT or QLoRA"},
    {"gpus", 4, "document_models", "Up to 70B (quantized)"},
    {"freezing", 0, "fits", "no"},
    {"freezing", 1, "fits", "no"},
    {"freezing", 2, "fits", "no"},
    {"freezing", 3, "fits", "fits"},
    {"mistakes", 0, "mistake", "Forgot optimizer states"},
    {"mistakes", 0, "symptom", "OOM during first training step"},
    {"mistakes", 1, "fix", "Reduce batch size, use gradient accumulation"},
    {"mistakes", 2, "symptom", "OOM during forward pass"},
    {"mistakes", 3, "setting", "gradient_checkpointing: full"},
    {"mistakes", 4, "fix", "Use 4-bit quantization from the start"},
    {"mistakes", 4, "setting", "mode: qlora"},
    {"checklist", 0, "question", "Is model loaded at correct precision?"},
    {"checklist", 1, "question", "Is gradient checkpointing enabled?"},
    {"checklist", 2, "question", "What's the batch size and sequence length?"},
    {"checklist", 3, "question", "Is LoRA/QLoRA properly configured?"},
    {"checklist", 4, "question", "Any other models/tensors in GPU memory?"},
    {"samples", 0, "document_total_gb", "13.4"},
    {"samples", 3, "document_total_gb", "11.2"},
    {"samples", 8, "document_says", "39 GB of host memory"},
};

/* B1 */
START_TEST(a_published_word_is_repeated) {
    fill(words[_i].table);
    ck_assert_str_eq(text_of(cell(words[_i].row, words[_i].column)), words[_i].text);
}
END_TEST

/* The formula without checkpointing is what the published batch x length figures lie around. */
START_TEST(published_qlora_figures_lie_within_16_percent_of_the_formula) {
    static const double published[] = {6, 7, 9, 9, 10, 13, 45, 50, 60};
    fill("qlora");
    ck_assert_uint_eq(lines(), 9);
    for (uint32_t r = 0; r < lines(); r++) {
        double ours = number(r, "without_checkpointing_gb");
        ck_assert_double_eq(number(r, "document_gb"), published[r]);
        ck_assert_msg(fabs(ours - published[r]) <= 0.16 * published[r], "row %u: %g", r, ours);
        ck_assert_double_lt(number(r, "total_gb"), ours);
    }
    ck_assert_double_eq(number(0, "total_gb"), 5.36);
}
END_TEST

/* Eleven cells of twelve agree without checkpointing; 1 x 4096 is 8.9 GB, which is no "maybe". */
START_TEST(the_grid_agrees_with_the_published_marks_but_for_one) {
    static const char *const batches[] = {"batch_1", "batch_4", "batch_8"};
    static const char *const ours[] = {"fits", "tight", "no"}, *const marks[] = {"yes", "maybe",
                                                                                 "no"};
    const struct pl_rule_table_info *info = pl_rule_table_find("grid");
    struct pl_rule_inputs in = inputs_of(info);
    in.gradient_checkpointing = false;
    info->fill(&in, &table);
    ck_assert_uint_eq(lines(), 4);
    int differ = 0;
    for (uint32_t r = 0; r < 4; r++)
        for (int b = 0; b < 3; b++) {
            char column[32];
            snprintf(column, sizeof column, "document_%s", batches[b]);
            const char *fit = text_of(cell(r, batches[b])), *mark = text_of(cell(r, column));
            int f = 0, m = 0;
            while (strncmp(fit, ours[f], strlen(ours[f])) != 0)
                f++;
            while (strcmp(mark, marks[m]) != 0)
                m++;
            differ += f != m;
        }
    ck_assert_int_eq(differ, 1);
    ck_assert_str_eq(text_of(cell(3, "batch_1")), "fits 8.8");
    ck_assert_str_eq(text_of(cell(3, "document_batch_1")), "maybe");
}
END_TEST

/* A model that a GPU is said to train with QLoRA fits by the formula too. */
START_TEST(gpus_hold_what_is_said_of_them) {
    static const char *const fits[][3] = {{"fits", "fits", "no"},
                                          {"fits", "fits", "no"},
                                          {"fits", "fits", "no"},
                                          {"fits", "fits", "tight"},
                                          {"fits", "fits", "fits"}};
    static const double vram[] = {15, 24, 24, 40, 80};
    fill("gpus");
    for (uint32_t r = 0; r < 5; r++) {
        ck_assert_double_eq(number(r, "vram_gb"), vram[r]);
        ck_assert_str_eq(text_of(cell(r, "qlora_8b")), fits[r][0]);
        ck_assert_str_eq(text_of(cell(r, "qlora_13b")), fits[r][1]);
        ck_assert_str_eq(text_of(cell(r, "qlora_70b")), fits[r][2]);
    }
}
END_TEST

START_TEST(accumulation_reaches_an_effective_batch_that_is_no_power_of_two) {
    const struct pl_rule_table_info *info = pl_rule_table_find("accumulation");
    struct pl_rule_inputs in = inputs_of(info);
    in.effective_batch = 12;
    info->fill(&in, &table);
    ck_assert_uint_eq(lines(), 4);
    ck_assert_double_eq(number(3, "batch_size"), 8);
    ck_assert_double_eq(number(3, "gradient_accumulation_steps"), 2);
}
END_TEST

/* B2 */
START_TEST(every_table_is_whole_as_text_and_as_json) {
    size_t n;
    const struct pl_rule_table_info *info = &pl_rule_table_list(&n)[_i];
    ck_assert_ptr_eq(pl_rule_table_find(info->name), info);
    fill(info->name);
    ck_assert_uint_gt(table.n_rows, 0);
    struct pl_text text = {0};
    const struct pl_rule_inputs in = inputs_of(info);
    pl_rule_table_text(info, &in, &text);
    ck_assert_ptr_nonnull(strstr(pl_text_str(&text), "(approximate)\n"));
    json_t *o = pl_rule_table_json(info, &in), *rows = json_object_get(o, "rows"), *row;
    ck_assert(json_is_true(json_object_get(o, "approximate")));
    ck_assert_uint_eq(json_array_size(rows), lines());
    size_t r;
    json_array_foreach(rows, r, row) {
        const char *column;
        json_t *value;
        ck_assert_uint_eq(json_object_size(row), json_array_size(json_object_get(o, "columns")));
        json_object_foreach(row, column, value) {
            const char *word = json_string_value(value);
            ck_assert_ptr_nonnull(strstr(pl_text_str(&text), column));
            ck_assert(json_is_real(value) || (word && word[0]));
            if (word) ck_assert_ptr_nonnull(strstr(pl_text_str(&text), word));
        }
    }
    json_decref(o);
    pl_text_finish(&text);
}
END_TEST

#define N(rows) (int)(sizeof(rows) / sizeof *(rows))

int main(void) {
    size_t n;
    (void)pl_rule_table_list(&n);
    Suite *s = suite_create("rule_of_thumb.rule_tables");
    TCase *tc = tcase_create("tables");
    tcase_add_loop_test(tc, a_computed_figure_is_the_published_one, 0, N(figures));
    tcase_add_loop_test(tc, a_published_word_is_repeated, 0, N(words));
    tcase_add_test(tc, published_qlora_figures_lie_within_16_percent_of_the_formula);
    tcase_add_test(tc, the_grid_agrees_with_the_published_marks_but_for_one);
    tcase_add_test(tc, gpus_hold_what_is_said_of_them);
    tcase_add_test(tc, accumulation_reaches_an_effective_batch_that_is_no_power_of_two);
    tcase_add_loop_test(tc, every_table_is_whole_as_text_and_as_json, 0, (int)n);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
