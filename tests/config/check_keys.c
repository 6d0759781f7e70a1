/* check_keys.c - the table of keys: its rows are sound, and configs/REFERENCE.md is what it says.
 */
#include "estimator/config/job.h"
#include "estimator/config/job_text.h"
#include "estimator/config/key_reference.h"
#include "estimator/config/key_table.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const synonyms[][2] = {
#define X(synonym, key) {#synonym, #key},
    PL_CONFIG_SYNONYMS(X)
#undef X
};
#define N_SYNONYMS (int)(sizeof synonyms / sizeof *synonyms)

START_TEST(every_key_has_help_and_a_default_in_range) {
    uint32_t n;
    const struct pl_key_info *k = &pl_key_table(&n)[_i];
    struct pl_job job;
    struct pl_diag d = {0};
    ck_assert_uint_eq(n, PL_KEY_COUNT);
    ck_assert_msg(k->help[0] && k->lo <= k->hi, "%s", k->key);
    ck_assert_ptr_null(strpbrk(k->help, "|\n")); /* it becomes a cell of a Markdown table */
    ck_assert_int_eq(pl_job_defaults(&job, &d), PL_ERR_OK);
    ck_assert_msg(pl_job_set(&job, k->key, k->def, &d) == PL_ERR_OK, "%s: %s", k->key, d.message);
    ck_assert(job.given[_i] == (k->def[0] != 0));
    pl_job_finish(&job);
}
END_TEST

START_TEST(every_key_says_what_another_value_means_for_a_run_that_goes_on) {
    uint32_t n;
    const struct pl_key_info *k = &pl_key_table(&n)[_i];
    ck_assert_msg(pl_key_class((enum pl_key_id)_i) != PL_KEY_CLASS_NONE,
                  "`%s` has no row in key_classes.h", k->key);
}
END_TEST

/* J1 */
START_TEST(every_choice_and_both_limits_are_accepted) {
    uint32_t n;
    const struct pl_key_info *k = &pl_key_table(&n)[_i];
    char choices[256];
    struct pl_job job;
    struct pl_diag d = {0};
    ck_assert_int_eq(pl_job_defaults(&job, NULL), PL_ERR_OK);
    snprintf(choices, sizeof choices, "%s", k->choices);
    for (char *save, *c = strtok_r(choices, "|", &save); c; c = strtok_r(NULL, "|", &save)) {
        struct pl_text back = {0};
        const char *value = strcmp(c, "every_N") == 0          ? "every_2"
                            : strcmp(c, "full:K") == 0         ? "full:7"
                            : strcmp(c, "full:K+light") == 0   ? "full:7+light"
                            : strcmp(c, "offload:K+full") == 0 ? "offload:7+full"
                                                               : c;
        ck_assert_msg(pl_job_set(&job, k->key, value, &d) == PL_ERR_OK, "%s", d.message);
        pl_job_write_key(&job, (enum pl_key_id)_i, &back);
        ck_assert_ptr_nonnull(strstr(back.data, value));
        ck_assert(job.given[_i]);
        pl_text_finish(&back);
    }
    if (k->hi > k->lo) {
        char limit[40];
        int digits = strcmp(k->type, "F64") == 0 ? 9 : 0;
        snprintf(limit, sizeof limit, "%.*f", digits, k->lo);
        ck_assert_msg(pl_job_set(&job, k->key, limit, &d) == PL_ERR_OK, "%s", d.message);
        snprintf(limit, sizeof limit, "%.*f", digits, k->hi);
        ck_assert_msg(pl_job_set(&job, k->key, limit, &d) == PL_ERR_OK, "%s", d.message);
        snprintf(limit, sizeof limit, "%.*f", digits, k->hi + 1);
        ck_assert_int_eq(pl_job_set(&job, k->key, limit, &d), PL_ERR_CONFIG_RANGE);
    }
    pl_job_finish(&job);
}
END_TEST

START_TEST(a_synonym_is_neither_a_key_nor_given_twice) {
    uint32_t n;
    const struct pl_key_info *keys = pl_key_table(&n);
    for (uint32_t i = 0; i < n; i++)
        ck_assert_str_ne(synonyms[_i][0], keys[i].key);
    for (int i = 0; i < _i; i++)
        ck_assert_str_ne(synonyms[_i][0], synonyms[i][0]);
}
END_TEST

START_TEST(a_synonym_reaches_its_key) {
    struct pl_text text = {0}, notes = {0};
    struct pl_job job;
    struct pl_diag d = {0};
    pl_text_addf(&text, "%s: {a: b}\n", synonyms[_i][0]); /* wrong for every type */
    ck_assert_int_eq(pl_job_parse(&job, NULL, text.data, text.len, NULL, 0, &notes, &d),
                     PL_ERR_CONFIG_TYPE);
    pl_text_finish(&text);
    pl_text_addf(&text, "%s:\n", synonyms[_i][0]);
    pl_job_parse(&job, NULL, text.data, text.len, NULL, 0, &notes, NULL);
    pl_text_finish(&text);
    pl_text_addf(&text, "`%s` is read as `%s`\n", synonyms[_i][0], synonyms[_i][1]);
    ck_assert_str_eq(pl_text_str(&notes), text.data);
    pl_text_finish(&text);
    pl_text_finish(&notes);
}
END_TEST

static void write_file(const char *path, const struct pl_text *text) {
    FILE *f = fopen(path, "wb");
    ck_assert(f && fwrite(text->data, 1, text->len, f) == text->len && fclose(f) == 0);
}

START_TEST(the_reference_file_is_what_the_table_says) {
    static const char committed[] = PL_SOURCE_ROOT "/configs/REFERENCE.md";
    static const char generated[] = PL_BUILD_DIR "/REFERENCE.md";
    static char buf[1 << 16];
    struct pl_text text = {0};
    pl_key_reference(&text);
    ck_assert(!text.failed);
    FILE *f = fopen(committed, "rb");
    size_t n = f ? fread(buf, 1, sizeof buf, f) : 0;
    if (f) fclose(f);
    bool equal = n == text.len && memcmp(buf, text.data, n) == 0;
    if (!equal) write_file(generated, &text);
    ck_assert_msg(equal, "%s is out of date: copy %s over it", committed, generated);
    pl_text_finish(&text);
}
END_TEST

int main(void) {
    Suite *s = suite_create("config.keys");
    TCase *tc = tcase_create("keys");
    tcase_add_loop_test(tc, every_key_has_help_and_a_default_in_range, 0, PL_KEY_COUNT);
    tcase_add_loop_test(tc, every_key_says_what_another_value_means_for_a_run_that_goes_on, 0,
                        PL_KEY_COUNT);
    tcase_add_loop_test(tc, every_choice_and_both_limits_are_accepted, 0, PL_KEY_COUNT);
    tcase_add_loop_test(tc, a_synonym_is_neither_a_key_nor_given_twice, 0, N_SYNONYMS);
    tcase_add_loop_test(tc, a_synonym_reaches_its_key, 0, N_SYNONYMS);
    tcase_add_test(tc, the_reference_file_is_what_the_table_says);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
