/* check_documents.c - the examples and tables that users copy are true: configs/, README.md, docs/.
 * Runs in the repository root. */
#include "estimator/autobatch/autobatch.h"
#include "estimator/config/job_text.h"
#include "estimator/config/key_table.h"
#include "estimator/inquiry/inquiry.h"
#include "estimator/model/model.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static glob_t configs; /* the YAML files of configs */

START_TEST(every_configuration_reads_without_a_note) {
    struct pl_job job;
    struct pl_text notes = {0};
    struct pl_diag d = {0};
    const char *path = configs.gl_pathv[_i];
    pl_err err = pl_job_read(&job, path, NULL, 0, &notes, &d);
    ck_assert_msg(err == PL_ERR_OK, "%s:%llu: %s", path, (unsigned long long)d.line, d.message);
    ck_assert_str_eq(pl_text_str(&notes), "");
    pl_text_finish(&notes);
    pl_job_finish(&job);
}
END_TEST

/* The GPU that a configuration is written for: "# Card: NAME" in a line of its own. */
static bool named_card(const char *path, char card[64]) {
    char *text = file_read(path, NULL), *line = strstr(text, "\n# Card: ");
    bool found = line && sscanf(line, " # Card: %63[^\n]", card) == 1;
    free(text);
    return found;
}

/* Planned as `estimate-vram FILE --gpu CARD`, or against the file's own vram_budget. */
START_TEST(every_configuration_fits_the_card_it_names) {
    struct pl_inquiry q = {0};
    struct pl_estimate e;
    struct pl_diag d = {0};
    char card[64];
    const char *path = configs.gl_pathv[_i];
    bool named = named_card(path, card);
    ck_assert_int_eq(pl_job_read(&q.job, path, NULL, 0, NULL, &d), PL_ERR_OK);
    ck_assert_msg(named != (q.job.vram_budget != PL_AUTO_BYTES), "%s: a card or a budget", path);
    ck_assert_msg(pl_inquiry_aim(&q, named ? card : NULL, &d) == PL_ERR_OK, "%s: %s", path,
                  d.message);
    ck_assert_msg(pl_inquiry_read_model(&q, &d) == PL_ERR_OK, "%s: %s", path, d.message);
    ck_assert_int_eq(pl_inquiry_decide(&q, &d), PL_ERR_OK);
    ck_assert_int_eq(pl_inquiry_answer(&q, &e, &d), PL_ERR_OK);
    ck_assert_msg(e.verdict.kind == PL_VERDICT_FITS, "%s on %s: %llu of %llu bytes", path, card,
                  (unsigned long long)e.verdict.needed_bytes,
                  (unsigned long long)e.q->budget.total_bytes);
    ck_assert_uint_le(q.q.batch_size, pl_autobatch_limit(&q.job));
    ck_assert_uint_eq(e.n_ranks, q.job.devices == 1 ? 0 : q.job.devices);
    for (uint32_t r = 0; r < e.n_ranks; r++)
        ck_assert_msg(e.ranks[r].needed_bytes <= e.q->budget.total_bytes, "%s: rank %u needs %llu",
                      path, r, (unsigned long long)e.ranks[r].needed_bytes);
    pl_estimate_finish(&e);
    pl_inquiry_finish(&q);
}
END_TEST

/* Nor than what of it is left for each rank. */
START_TEST(auto_is_no_larger_than_the_global_batch) {
    const uint32_t ranks = (uint32_t)_i, share[] = {0, 3, 2, 1, 1};
    struct pl_inquiry q = {0};
    struct pl_diag d = {0};
    ck_assert_int_eq(pl_job_defaults(&q.job, &d), PL_ERR_OK);
    ck_assert_int_eq(pl_job_set(&q.job, "model", "SmolLM2-135M", &d), PL_ERR_OK);
    ck_assert_int_eq(pl_job_set(&q.job, "mode", "lora", &d), PL_ERR_OK);
    ck_assert_int_eq(pl_job_set(&q.job, "vram_budget", "8GiB", &d), PL_ERR_OK);
    ck_assert_int_eq(pl_job_set(&q.job, "global_batch_size", "3", &d), PL_ERR_OK);
    ck_assert_int_eq(pl_job_set(&q.job, "devices", textf("%u", ranks), &d), PL_ERR_OK);
    ck_assert_int_eq(pl_inquiry_aim(&q, NULL, &d), PL_ERR_OK);
    ck_assert_int_eq(pl_inquiry_read_model(&q, &d), PL_ERR_OK);
    ck_assert_int_eq(pl_inquiry_decide(&q, &d), PL_ERR_OK);
    ck_assert_uint_eq(q.q.batch_size, share[ranks]);
    ck_assert_uint_gt(q.q.recommended, 3);
    pl_inquiry_finish(&q);
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

START_TEST(the_reference_lists_every_error_code_with_its_exit_status) {
    char *page = file_read("docs/reference.md", NULL), row[128];
    for (int e = PL_ERR_OK + 1; e < PL_ERR_COUNT; e++) {
        snprintf(row, sizeof row, "\n| `%s` | %d | ", pl_err_code((pl_err)e),
                 pl_err_exit_status((pl_err)e));
        ck_assert_msg(strstr(page, row), "no row `%s`", row + 1);
    }
    free(page);
}
END_TEST

/* A page must hold every choice of the keys whose choices it explains. */
static const struct {
    const char *key, *page;
} explained[] = {{"chat_template", "docs/data.md"},
                 {"train_on", "docs/data.md"},
                 {"overlength", "docs/data.md"},
                 {"offload", "docs/memory.md"},
                 {"gradient_checkpointing", "docs/memory.md"},
                 {"quant_type", "docs/memory.md"}};

START_TEST(every_choice_is_on_the_page_that_explains_it) {
    char choice[PL_CHOICE_BYTES];
    const enum pl_key_id id = pl_key_find(explained[_i].key);
    uint32_t n;
    const char *choices = pl_key_table(&n)[id].choices;
    char *page = file_read(explained[_i].page, NULL);
    ck_assert_uint_lt(id, n);
    for (uint32_t i = 0; pl_key_choice(choices, i, choice); i++) {
        if (strcmp(choice, "none") == 0 || strpbrk(choice, "NK")) continue; /* a pattern */
        const bool there = strstr(page, textf("`%s`", choice)) ||
                           strstr(page, textf("`%s: %s`", explained[_i].key, choice));
        ck_assert_msg(there, "%s: no `%s`", explained[_i].page, choice);
    }
    free(page);
}
END_TEST

static void read_job(const char *path, const char *head, const char *yaml, size_t n) {
    struct pl_job job;
    struct pl_diag d = {0};
    char *text = malloc(strlen(head) + n + 1);
    ck_assert_ptr_nonnull(text);
    sprintf(text, "%s%.*s", head, (int)n, yaml);
    pl_err err = pl_job_parse(&job, path, text, strlen(text), NULL, 0, NULL, &d);
    ck_assert_msg(err == PL_ERR_OK, "%s: %s in\n%s", path, d.message, text);
    pl_job_finish(&job);
    free(text);
}

/* Whole jobs begin with "# NAME.yaml"; others are pieces of one. docs/trained-on.md has a test. */
START_TEST(the_jobs_of_the_pages_read) {
    static const char fence[] = "\n```yaml\n", piece_of[] = "model: a\nmode: lora\n";
    glob_t pages;
    int jobs = 0, pieces = 0;
    ck_assert_int_eq(glob("README.md", 0, NULL, &pages), 0);
    ck_assert_int_eq(glob("docs/*.md", GLOB_APPEND, NULL, &pages), 0);
    for (size_t i = 0; i < pages.gl_pathc; i++) {
        const char *path = pages.gl_pathv[i];
        char *page = file_read(path, NULL);
        if (strcmp(path, "docs/trained-on.md") == 0) *page = 0;
        for (char *yaml = page; (yaml = strstr(yaml, fence));) {
            yaml += strlen(fence);
            const char *end = strstr(yaml, "\n```\n");
            ck_assert_ptr_nonnull(end);
            bool whole = *yaml == '#';
            read_job(path, whole ? "" : piece_of, yaml, (size_t)(end + 1 - yaml));
            *(whole ? &jobs : &pieces) += 1;
        }
        free(page);
    }
    ck_assert_int_ge(jobs, 2);
    ck_assert_int_ge(pieces, 3);
    globfree(&pages);
}
END_TEST

int main(void) {
    if (glob("configs/*.yaml", 0, NULL, &configs) != 0 || configs.gl_pathc < 10) {
        fprintf(stderr, "check_documents: run in the repository root\n");
        return 1;
    }
    Suite *s = suite_create("cli.documents");
    TCase *tc = tcase_create("documents");
    tcase_add_loop_test(tc, every_configuration_reads_without_a_note, 0, (int)configs.gl_pathc);
    tcase_add_loop_test(tc, every_configuration_fits_the_card_it_names, 0, (int)configs.gl_pathc);
    tcase_add_loop_test(tc, auto_is_no_larger_than_the_global_batch, 1, 5);
    tcase_add_test(tc, the_quickstart_model_is_a_small_tied_llama_over_bytes);
    tcase_add_test(tc, the_reference_lists_every_error_code_with_its_exit_status);
    tcase_add_loop_test(tc, every_choice_is_on_the_page_that_explains_it, 0,
                        (int)(sizeof explained / sizeof *explained));
    tcase_add_test(tc, the_jobs_of_the_pages_read);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    globfree(&configs);
    return failed != 0;
}
