/* check_seed_rows.c - the published sample estimates, asked of the binary: each row of
 * tests/golden/seed_rows comes out as it was recorded. PLIMSOLL names the binary, SOURCE_ROOT the
 * source tree. */
#include "estimator/rule_of_thumb/rule_tables.h"
#include "tests/support/child.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_FIELDS  6
#define N_ROWS    9
#define MAX_WORDS 24

enum { ID, PAGE_GB, PAGE_SAYS, EXIT_STATUS, OURS, WHY };

/* Cuts the line at its tabs. */
static void split_line(char *line, char *fields[N_FIELDS]) {
    for (int f = 0; f < N_FIELDS; f++) {
        ck_assert_msg(line != NULL, "field %d is missing", f);
        fields[f] = line;
        line = strchr(line, '\t');
        if (line) *line++ = 0;
    }
    ck_assert_ptr_null(line);
}

static void read_row(char *file, int row, char *fields[N_FIELDS]) {
    char *rest = NULL;
    for (char *line = strtok_r(file, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (line[0] != '#' && row-- == 0) {
            split_line(line, fields);
            return;
        }
    ck_abort_msg("the file ends early");
}

/* "estimate-vram", the words of the sample, --json. */
static struct outcome ask(char *arguments) {
    const char *words[MAX_WORDS + 6] = {"estimate-vram", "--json"};
    int n = 2;
    if (arguments[0] != '-') {
        words[n++] = "device=cpu";
        words[n++] = "threads=1";
        words[n++] = "gradient_checkpointing=full";
        words[n++] = "keep_unpacked=false";
    }
    char *rest = NULL;
    for (char *w = strtok_r(arguments, " ", &rest); w; w = strtok_r(NULL, " ", &rest)) {
        ck_assert_int_lt(n, MAX_WORDS + 5);
        words[n++] = w;
    }
    return plimsoll_run(NULL, words);
}

static void describe(const json_t *root, char *out, size_t size) {
    const json_t *error = json_object_get(root, "error"), *bytes = json_object_get(root, "bytes");
    const char *verdict = json_string_value(json_object_get(root, "verdict"));
    if (error)
        snprintf(out, size, "refused %s", json_string_value(json_object_get(error, "code")));
    else if (bytes)
        snprintf(out, size, "%s %lld", verdict,
                 (long long)json_integer_value(json_object_get(bytes, "total")));
    else
        snprintf(out, size, "%s %.2f", verdict, json_real_value(json_object_get(root, "total")));
}

static const char *text_of(const struct pl_row *c) {
    return c->type == PL_ROW_WORD ? c->is.word : c->type == PL_ROW_TEXT ? c->is.text : "";
}

START_TEST(a_published_row_is_answered_as_recorded) {
    struct pl_report samples = {0};
    char sample[4][256];
    struct pl_rule_inputs in = pl_rule_defaults(8, "fp16");
    char *fields[N_FIELDS], ours[128];
    char *file = file_read(textf("%s/tests/golden/seed_rows", getenv("SOURCE_ROOT")), NULL);
    pl_rule_table_find("samples")->fill(&in, &samples);
    ck_assert_uint_eq(samples.n_rows, 4 * N_ROWS);
    read_row(file, _i, fields);
    for (int i = 0; i < 4; i++)
        snprintf(sample[i], sizeof sample[i], "%s", text_of(&samples.rows[4 * _i + i]));
    ck_assert_str_eq(fields[ID], sample[0]);
    ck_assert_str_eq(fields[PAGE_GB], sample[1]);
    ck_assert_str_eq(fields[PAGE_SAYS], sample[2]);
    ck_assert_uint_gt(strlen(fields[WHY]), 10);

    struct outcome p = ask(sample[3]);
    json_t *root = json_loads(p.out, 0, NULL);
    ck_assert_msg(root != NULL, "%s%s", p.out, p.err);
    describe(root, ours, sizeof ours);
    ck_assert_str_eq(ours, fields[OURS]);
    ck_assert_int_eq(p.status, atoi(fields[EXIT_STATUS]));
    json_decref(root);
    outcome_finish(&p);
    pl_report_finish(&samples);
    free(file);
}
END_TEST

static const struct {
    const char *words[8];
    const char *refusal;
} refusals[] = {
    {{"Qwen2.5-7B", "--mode", "full", "--vram-gb", "16"}, "RUNTIME_FULL_FT_MODEL_TOO_LARGE"},
    {{"Qwen2.5-7B", "--mode", "full", "--vram-gb", "1000"}, "RUNTIME_FULL_FT_MODEL_TOO_LARGE"},
    {{"Qwen2.5-7B", "--mode", "lora", "--vram-gb", "12"}, "RUNTIME_DOES_NOT_FIT"},
    /* only layers 29 to 31 of 32 are trained, and the 16-bit weights alone are over 15 GB */
    {{"Llama-3-8B", "--mode", "full", "--vram-gb", "15", "freeze_layers=29",
      "full_ft_ceiling_billions=99"},
     "RUNTIME_DOES_NOT_FIT"},
};

START_TEST(a_refusal_is_named_by_its_code) {
    const char *words[12] = {"estimate-vram", "--json"};
    memcpy(words + 2, refusals[_i].words, sizeof refusals[_i].words);
    struct outcome p = plimsoll_expect(3, NULL, words);
    json_t *root = json_loads(p.out, 0, NULL);
    ck_assert_str_eq(json_string_value(json_object_get(root, "refusal")), refusals[_i].refusal);
    ck_assert_int_gt(json_integer_value(json_object_get(json_object_get(root, "bytes"), "weights")),
                     15000000000);
    json_decref(root);
    outcome_finish(&p);
}
END_TEST

int main(void) {
    Suite *s = suite_create("rule_of_thumb.seed_rows");
    TCase *tc = tcase_create("rows");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, a_published_row_is_answered_as_recorded, 0, N_ROWS);
    tcase_add_loop_test(tc, a_refusal_is_named_by_its_code, 0,
                        (int)(sizeof refusals / sizeof *refusals));
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
