/* check_documents.c - the examples and tables that users copy are true: configs/, README.md.
 * Runs in the repository root. */
#include "estimator/config/job.h"
#include "estimator/model/model.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const configs[] = {
    "configs/quickstart.yaml",
    "configs/lora-smollm2-135m.yaml",
    "configs/full-smollm2-135m.yaml",
};

START_TEST(every_configuration_reads_without_a_note) {
    struct pl_job job;
    struct pl_text notes = {0};
    struct pl_diag d = {0};
    pl_err err = pl_job_read(&job, configs[_i], NULL, 0, &notes, &d);
    ck_assert_msg(err == PL_ERR_OK, "%s:%llu: %s", configs[_i], (unsigned long long)d.line,
                  d.message);
    ck_assert_str_eq(pl_text_str(&notes), "");
    pl_text_finish(&notes);
    pl_job_finish(&job);
}
END_TEST

START_TEST(the_quickstart_model_is_a_small_tied_llama_over_bytes) {
    struct pl_model m;
    struct pl_diag d = {0};
    pl_err err = pl_model_read("configs/quickstart-model/config.json", &m, &d);
    ck_assert_msg(err == PL_ERR_OK, "%s", d.message);
    ck_assert_int_eq(m.family, PL_FAMILY_LLAMA);
    ck_assert(m.tied && m.n_eos == 1 && m.eos[0] == 256 && m.vocab > 256);
    /* V C + layers (2 Q C + 2 K C + 3 F C + 2 C) + C */
    ck_assert_uint_eq(pl_model_param_count(&m), 4803840);
}
END_TEST

START_TEST(the_readme_lists_every_error_code_with_its_exit_status) {
    char *readme = file_read("README.md", NULL), row[128];
    for (int e = PL_ERR_OK + 1; e < PL_ERR_COUNT; e++) {
        snprintf(row, sizeof row, "\n| `%s` | %d | ", pl_err_code((pl_err)e),
                 pl_err_exit_status((pl_err)e));
        ck_assert_msg(strstr(readme, row), "no row `%s`", row + 1);
    }
    free(readme);
}
END_TEST

START_TEST(the_yaml_of_the_readme_reads) {
    static const char fence[] = "\n```yaml\n";
    char *readme = file_read("README.md", NULL);
    char *yaml = strstr(readme, fence);
    ck_assert_ptr_nonnull(yaml);
    yaml += strlen(fence);
    char *end = strstr(yaml, "\n```\n");
    ck_assert_ptr_nonnull(end);

    struct pl_job job;
    struct pl_diag d = {0};
    pl_err err = pl_job_parse(&job, "README.md", yaml, (uint64_t)(end + 1 - yaml), NULL, 0, NULL,
                              &d);
    ck_assert_msg(err == PL_ERR_OK, "line %llu: %s", (unsigned long long)d.line, d.message);
    pl_job_finish(&job);
    free(readme);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cli.documents");
    TCase *tc = tcase_create("documents");
    tcase_add_loop_test(tc, every_configuration_reads_without_a_note, 0,
                        (int)(sizeof configs / sizeof *configs));
    tcase_add_test(tc, the_quickstart_model_is_a_small_tied_llama_over_bytes);
    tcase_add_test(tc, the_readme_lists_every_error_code_with_its_exit_status);
    tcase_add_test(tc, the_yaml_of_the_readme_reads);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
