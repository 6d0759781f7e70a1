/* check_change.c - every row of the table of changes, made on every kind of job. */
#include "estimator/config/job_text.h"
#include "estimator/search/change.h"
#include "tests/plan/planning.h"
#include "tests/support/ask.h"

#include <check.h>
#include <string.h>

/* Overrides of one job each, which together have every key of the table in force; of
 * Llama-3.1-8B unless one names the model. */
static const char *const jobs[][4] = {
    {"mode=full", "batch_size=8", "gradient_checkpointing=none", "loss_chunk_tokens=0"},
    {"mode=full", "batch_size=1", "full_ft_offload=true", "optimizer=lion"},
    {"mode=full", "batch_size=4", "optimizer_in_backward=true", "dtype=fp32"},
    {"mode=lora", "batch_size=8", "lora_modules_to_save=[lm_head]"},
    {"mode=lora", "batch_size=2", "offload=weights", "adapter_dtype=bf16"},
    {"mode=lora", "batch_size=2", "devices=2", "rank_order=false"},
    {"mode=lora", "batch_size=1", "dtype=fp32", "base_dtype=bf16"},
    {"mode=qlora", "batch_size=auto", "unpack_buffer=64MiB"},
    {"mode=qlora", "batch_size=1", "keep_unpacked=true"},
    {"mode=lora", "batch_size=1", "stage=dpo", "keep_first_pass=true"},
    {"mode=lora", "batch_size=1", "stage=dpo", "keep_first_pass=false"},
    {"mode=qlora", "batch_size=1", "model=gpt-oss-20b"},
};
#define N_JOBS (sizeof jobs / sizeof *jobs)

struct asked {
    struct pl_job job;
    struct pl_model m;
    struct pl_traits traits;
    struct pl_question q;
};

static void ask(struct asked *a, size_t i) {
    uint32_t n = 0;
    while (n < 4 && jobs[i][n])
        n++;
    ck_assert_int_eq(pl_job_parse(&a->job, "job", "{model: x}", 10, jobs[i], n, NULL, NULL),
                     PL_ERR_OK);
    a->traits = pl_traits_cpu(2);
    pl_test_model(strcmp(a->job.model, "x") == 0 ? "Llama-3.1-8B" : a->job.model, &a->m);
    a->q = pl_test_question(&a->job, &a->m, &a->traits, NULL, 0);
}

static unsigned all_jobs(const struct pl_change *c) {
    return c->settings | c->ways | c->remedies;
}

static void key_text(const struct pl_question *q, enum pl_key_id key, char out[160]) {
    struct pl_text text = PL_TEXT_IN(out, 160);
    pl_change_write_key(q, key, &text);
    ck_assert(!text.failed);
}

/* H1, and what is written is what changed. */
START_TEST(a_change_that_is_made_alters_its_key_and_is_none_of_the_job_it_made) {
    bool made[PL_CHANGE_COUNT] = {false};
    for (size_t i = 0; i < N_JOBS; i++) {
        struct asked a;
        ask(&a, i);
        for (int c = 0; c < PL_CHANGE_COUNT; c++) {
            const struct pl_change *row = &pl_changes[c];
            char from[160], to[160];
            struct pl_variant v, again;
            pl_variant_of(&v, &a.q);
            if (row->how == PL_HOW_EVERY_CHOICE ||
                pl_change_make(row, all_jobs(row), &v) != PL_ERR_OK)
                continue;
            key_text(&a.q, row->key, from);
            key_text(&v.q, row->key, to);
            made[c] |= strcmp(from, to) != 0;
            pl_variant_of(&again, &v.q);
            if (row->how == PL_HOW_SET)
                ck_assert_msg(pl_change_make(row, all_jobs(row), &again) != PL_ERR_OK, "%s", to);
        }
        pl_job_finish(&a.job);
    }
    for (int c = 0; c < PL_CHANGE_COUNT; c++)
        if (pl_changes[c].how != PL_HOW_EVERY_CHOICE)
            ck_assert_msg(made[c] || c == PL_CHANGE_STORAGE_FP16,
                          "row %d (%s) changes no job of this test", c, pl_changes[c].value);
}
END_TEST

/* A GPU before Ampere has no bf16: what `auto` is there takes its place. */
START_TEST(the_narrow_type_of_a_change_is_one_that_the_device_computes_in) {
    static const struct {
        uint32_t sm;
        const char *model;
        bool bf16, fp16;
    } rows[] = {{0, "Llama-3.1-8B", true, false},
                {75, "Llama-3.1-8B", false, true},
                {75, "Gemma-3-1B", false, false},
                {80, "Llama-3.1-8B", true, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct asked a;
        struct pl_variant v;
        ask(&a, 0);
        pl_test_model(rows[i].model, &a.m);
        a.job.dtype = PL_DTYPE_F32;
        if (rows[i].sm) a.q.traits = pl_traits_cuda(rows[i].sm);
        pl_variant_of(&v, &a.q);
        const struct pl_change *bf16 = &pl_changes[PL_CHANGE_STORAGE];
        ck_assert_int_eq(pl_change_make(bf16, all_jobs(bf16), &v) == PL_ERR_OK, rows[i].bf16);
        pl_variant_of(&v, &a.q);
        const struct pl_change *fp16 = &pl_changes[PL_CHANGE_STORAGE_FP16];
        ck_assert_int_eq(pl_change_make(fp16, all_jobs(fp16), &v) == PL_ERR_OK, rows[i].fp16);
        pl_job_finish(&a.job);
    }
}
END_TEST

START_TEST(a_change_is_none_of_the_jobs_that_its_row_leaves_out) {
    struct asked a;
    struct pl_variant v;
    ask(&a, 0);
    const struct pl_change *row = &pl_changes[PL_CHANGE_ADAPTER];
    pl_variant_of(&v, &a.q);
    ck_assert_int_eq(pl_change_make(row, row->settings, &v), PL_ERR_CONFIG_CONFLICT);
    a.job.inference = true;
    row = &pl_changes[PL_CHANGE_OFFLOAD_STATES];
    pl_variant_of(&v, &a.q);
    ck_assert_int_eq(pl_change_make(row, row->remedies, &v), PL_ERR_CONFIG_CONFLICT);
    row = &pl_changes[PL_CHANGE_LENGTH_HALF];
    ck_assert_int_eq(pl_change_make(row, row->remedies, &v), PL_ERR_OK);
    pl_job_finish(&a.job);
}
END_TEST

START_TEST(remedies_have_places_of_their_own_and_companions_have_none) {
    for (int i = 0; i < PL_CHANGE_COUNT; i++) {
        const struct pl_change *row = &pl_changes[i];
        ck_assert_ptr_nonnull(row->value);
        ck_assert_msg(all_jobs(row), "row %d is of no job", i);
        ck_assert_msg(!row->rank || row->remedies, "row %d", i);
        if (row->also) {
            ck_assert_int_eq(pl_changes[row->also].rank, 0);
            ck_assert(pl_changes[row->also].remedies);
        }
        for (int k = 0; k < i; k++)
            ck_assert_msg(!row->rank || pl_changes[k].rank != row->rank, "rows %d and %d", k, i);
    }
}
END_TEST

/* H2 */
START_TEST(an_answer_leaves_out_what_a_job_cannot_have_and_ends_at_any_other_error) {
    static const struct {
        pl_err err;
        bool has, ends_making, ends_planning;
    } rows[] = {{PL_ERR_OK, true, false, false},
                {PL_ERR_CONFIG_CONFLICT, false, false, false},
                {PL_ERR_CONFIG_RANGE, false, false, false},
                {PL_ERR_PLAN_BROKEN, false, false, true},
                {PL_ERR_HOST_OOM, false, true, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pl_diag why = {0}, made = {0}, planned = {0};
        bool has = !rows[i].has;
        pl_diag_set(&why, rows[i].err, "of row %zu", i);
        ck_assert_int_eq(pl_change_made(rows[i].err, "a change", &has, &made),
                         rows[i].ends_making ? rows[i].err : PL_ERR_OK);
        ck_assert_int_eq(has, rows[i].has);
        ck_assert_int_eq(strstr(made.message, "a change") != NULL, rows[i].ends_making);
        has = !rows[i].has;
        ck_assert_int_eq(pl_change_planned(rows[i].err, &why, &has, &planned),
                         rows[i].ends_planning ? rows[i].err : PL_ERR_OK);
        ck_assert_int_eq(has, rows[i].has);
        ck_assert_int_eq(strcmp(planned.message, why.message) == 0, rows[i].ends_planning);
    }
}
END_TEST

START_TEST(the_most_of_a_number_can_be_asked_and_one_more_cannot) {
    static const enum pl_key_id keys[] = {PL_KEY_batch_size, PL_KEY_max_seq_length, PL_KEY_lora_r};
    for (size_t i = 0; i < N_JOBS; i++) {
        struct asked a;
        ask(&a, i);
        if (i % 2) a.job.loss_chunk_tokens = 3; /* tokens are the limit, not the key's range */
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            const uint32_t most = pl_change_most(&a.q, keys[k]);
            struct pl_variant v;
            pl_variant_of(&v, &a.q);
            ck_assert_int_eq(pl_change_put(&v, keys[k], most, NULL), PL_ERR_OK);
            ck_assert_uint_eq(pl_change_get(&v.q, keys[k]), most);
            pl_variant_of(&v, &a.q);
            ck_assert_int_ne(pl_change_put(&v, keys[k], most + 1, NULL), PL_ERR_OK);
        }
        pl_job_finish(&a.job);
    }
}
END_TEST

int main(void) {
    TCase *tc = tcase_create("change");
    tcase_add_test(tc, a_change_that_is_made_alters_its_key_and_is_none_of_the_job_it_made);
    tcase_add_test(tc, the_narrow_type_of_a_change_is_one_that_the_device_computes_in);
    tcase_add_test(tc, a_change_is_none_of_the_jobs_that_its_row_leaves_out);
    tcase_add_test(tc, an_answer_leaves_out_what_a_job_cannot_have_and_ends_at_any_other_error);
    tcase_add_test(tc, the_most_of_a_number_can_be_asked_and_one_more_cannot);
    tcase_add_test(tc, remedies_have_places_of_their_own_and_companions_have_none);
    Suite *s = suite_create("search.change");
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
