/* check_spec.c - the job that runs, from the job that was written and the facts about it. */
#include "estimator/config/spec.h"

#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"

#include <check.h>
#include <math.h>
#include <string.h>

static struct pl_job asked;
static struct pl_spec spec;

static void ask(const char *yaml) {
    struct pl_diag d = {0};
    ck_assert_msg(pl_job_parse(&asked, "run.yaml", yaml, strlen(yaml), NULL, 0, NULL, &d) ==
                      PL_ERR_OK,
                  "%s", d.message);
    pl_spec_init(&spec, &asked);
}

static void finish(void) {
    pl_job_finish(&asked);
}

static char *text_of(const struct pl_job *job, struct pl_text *text) {
    pl_text_finish(text);
    pl_job_write(job, text);
    ck_assert(!text->failed);
    return text->data;
}

static void same_text(const struct pl_job *a, const struct pl_job *b) {
    struct pl_text ta = {0}, tb = {0};
    ck_assert_str_eq(text_of(a, &ta), text_of(b, &tb));
    pl_text_finish(&ta);
    pl_text_finish(&tb);
}

#define OPEN "model: m\nmode: full\nbatch_size: auto\n"

static const struct pl_decided all_decided = {
    .are = true,
    .batch_size = 3,
    .choices = {PL_RECOMPUTE_LIGHT, PL_TRI_FALSE, 512, 1 << 20},
};

/* Every fact that there is. */
static void learn_everything(struct pl_job_facts *f) {
    f->are_ranks = true;
    f->devices = 2;
    f->local_rank = 1;
    f->device = PL_DEVICE_CUDA_AT + 1;
    f->threads = 5;
    f->vram_budget = 7 << 20;
    f->vram_margin = 1 << 20;
    f->names_budget = true;
    f->kept =
        (struct pl_kept){.is = true, .batch_size = 2, .samples = 12, .mlp_chunk_tokens = "256"};
    strcpy(f->chat_date, "2025-01-31");
    f->samples = 8;
    f->has_warmup = true;
    f->warmup_steps = 9;
    f->sharding = PL_SHARDING_WEIGHTS;
    f->decided = all_decided;
    f->built = (struct pl_built){.is = true, .has_masters = true, .loss_chunk_tokens = 32};
}

START_TEST(without_a_fact_it_is_the_job_that_was_written) {
    ask(OPEN);
    same_text(&spec.job, &asked);
    finish();
}
END_TEST

/* S1 */
START_TEST(a_fact_that_is_taken_back_leaves_nothing) {
    struct pl_text before = {0}, after = {0}, learnt = {0};
    ask(OPEN);
    const struct pl_job_facts none = spec.facts;
    text_of(&asked, &before);
    learn_everything(&spec.facts);
    pl_resolve(&spec);
    text_of(&spec.job, &learnt);
    ck_assert_str_ne(pl_text_str(&learnt), pl_text_str(&before));
    ck_assert_str_eq(text_of(&asked, &after), pl_text_str(&before));
    pl_resolve(&spec); /* twice is as once */
    ck_assert_str_eq(text_of(&spec.job, &after), pl_text_str(&learnt));
    spec.facts = none;
    pl_resolve(&spec);
    ck_assert_uint_eq(spec.job.auto_samples, 0);
    same_text(&spec.job, &asked);
    pl_text_finish(&before);
    pl_text_finish(&after);
    pl_text_finish(&learnt);
    finish();
}
END_TEST

START_TEST(a_copy_asks_about_other_facts) {
    ask(OPEN);
    spec.facts.decided = all_decided;
    pl_resolve(&spec);
    struct pl_spec other = spec;
    other.facts.devices = 4;
    strcpy(other.facts.chat_date, "2025-01-31");
    pl_resolve(&other);
    ck_assert_uint_eq(pl_job_ranks(&other.job), 4);
    ck_assert_ptr_eq(other.job.chat_date, other.facts.chat_date);
    ck_assert_uint_eq(pl_job_ranks(&spec.job), 1);
    ck_assert_ptr_null(spec.job.chat_date);
    finish();
}
END_TEST

START_TEST(ranks_have_a_device_each) {
    ask(OPEN "device: cuda\n");
    spec.facts.are_ranks = true;
    spec.facts.devices = 4;
    spec.facts.local_rank = 3;
    pl_resolve(&spec);
    ck_assert_uint_eq(spec.job.devices, 4);
    ck_assert_uint_eq(spec.job.device, PL_DEVICE_CUDA_AT + 3);
    finish();
}
END_TEST

/* Memory that is merely free is a number without a name, and so chooses nothing. */
START_TEST(a_budget_that_is_named_opens_a_level_that_is_not_written) {
    static const struct {
        const char *yaml;
        bool names_budget, generates;
        uint32_t level;
    } jobs[] = {
        {OPEN, true, false, PL_RECOMPUTE_AUTO},
        {OPEN, false, false, PL_RECOMPUTE_FULL},
        {OPEN, true, true, PL_RECOMPUTE_FULL},
        {OPEN "gradient_checkpointing: full\n", true, false, PL_RECOMPUTE_FULL},
        {OPEN "gradient_checkpointing: light\n", true, false, PL_RECOMPUTE_LIGHT},
        {OPEN "gradient_checkpointing: auto\n", false, false, PL_RECOMPUTE_AUTO},
    };
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        ask(jobs[i].yaml);
        spec.facts.vram_budget = 7 << 20;
        spec.facts.names_budget = jobs[i].names_budget;
        spec.facts.generates = jobs[i].generates;
        pl_resolve(&spec);
        ck_assert_msg(spec.job.gradient_checkpointing == jobs[i].level, "%zu", i);
        const uint32_t keeps = jobs[i].names_budget ? PL_TRI_AUTO : PL_TRI_FALSE;
        ck_assert_uint_eq(spec.job.keep_unpacked, keeps);
        finish();
    }
}
END_TEST

/* The samples of a step that no key sizes are those of the rows, and the micro-batch is part of
 * them. */
START_TEST(an_open_step_is_of_the_samples_that_the_rows_ask_for) {
    ask(OPEN);
    spec.facts.samples = 6;
    spec.facts.decided = all_decided;
    pl_resolve(&spec);
    ck_assert_uint_eq(spec.job.batch_size, 3);
    ck_assert_uint_eq(spec.job.global_batch_size, 6);
    ck_assert_uint_eq(pl_job_accumulation(&spec.job, 3), 2);
    spec.facts.decided.one_micro_batch = true;
    pl_resolve(&spec);
    ck_assert_uint_eq(pl_job_accumulation(&spec.job, 3), 1);
    finish();
}
END_TEST

/* The step stays, and what was decided for the larger micro-batch is open again. */
START_TEST(a_smaller_micro_batch_is_decided_anew) {
    ask(OPEN "optimizer_in_backward: true\n");
    spec.facts.sharding = PL_SHARDING_GRADIENTS;
    spec.facts.decided = all_decided;
    spec.facts.decided.choices.optimizer_in_backward = PL_TRI_TRUE;
    spec.facts.built = (struct pl_built){.is = true, .loss_chunk_tokens = 32};
    pl_resolve(&spec);
    for (uint32_t batch = 2; batch >= 1; batch--) {
        pl_spec_cut(&spec, batch, 4);
        ck_assert_uint_eq(spec.job.batch_size, batch);
        ck_assert_uint_eq(spec.job.global_batch_size, 4);
        ck_assert_uint_eq(spec.job.gradient_checkpointing, asked.gradient_checkpointing);
        ck_assert_uint_eq(spec.job.loss_chunk_tokens, PL_AUTO);
        ck_assert_uint_eq(spec.job.sharding, PL_SHARDING_AUTO);
        ck_assert_uint_eq(spec.job.optimizer_in_backward, PL_TRI_FALSE); /* of several of them */
    }
    ck_assert_uint_eq(asked.batch_size, PL_AUTO);
    finish();
}
END_TEST

START_TEST(a_run_that_goes_on_keeps_what_it_had) {
    ask(OPEN);
    spec.facts.kept = (struct pl_kept){.is = true,
                                       .batch_size = 5,
                                       .loss_chunk_tokens = 64,
                                       .samples = 15,
                                       .gradient_dtype = "fp32",
                                       .mlp_chunk_tokens = "256"};
    pl_resolve(&spec);
    ck_assert_uint_eq(spec.job.batch_size, 5);
    ck_assert_uint_eq(spec.job.global_batch_size, 15);
    ck_assert_uint_eq(spec.job.loss_chunk_tokens, 64);
    ck_assert_uint_eq(spec.job.mlp_chunk_tokens, 256);
    ck_assert_uint_eq(spec.job.gradient_dtype, PL_DTYPE_F32);
    ck_assert(!spec.job.given[PL_KEY_mlp_chunk_tokens]);
    finish();
    ask("model: m\nmode: full\nbatch_size: 2\nloss_chunk_tokens: 8\nmlp_chunk_tokens: 16\n");
    spec.facts.kept = (struct pl_kept){.is = true,
                                       .batch_size = 5,
                                       .loss_chunk_tokens = 64,
                                       .samples = 15,
                                       .mlp_chunk_tokens = "256"};
    pl_resolve(&spec); /* S2 */
    ck_assert_uint_eq(spec.job.batch_size, 2);
    ck_assert_uint_eq(spec.job.loss_chunk_tokens, 8);
    ck_assert_uint_eq(spec.job.mlp_chunk_tokens, 16);
    finish();
}
END_TEST

START_TEST(what_generates_has_the_settings_of_its_adapter) {
    struct pl_job names = {0};
    ask("model: m\nmode: lora\nlora_exclude_modules: [gate_proj]\n");
    ck_assert_int_eq(pl_job_defaults(&names, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_job_set(&names, "lora_target_modules", "[q_proj, o_proj]", NULL),
                     PL_ERR_OK);
    spec.facts.generates = spec.facts.is_stored_wide = true;
    spec.facts.adapter =
        (struct pl_adapter_facts){.are = true, .r = 4, .alpha = 3, .names = &names};
    pl_resolve(&spec);
    ck_assert(spec.job.inference && !spec.job.oom_recovery);
    ck_assert_uint_eq(spec.job.dtype, PL_DTYPE_F32);
    ck_assert_uint_eq(spec.job.mode, PL_MODE_LORA);
    ck_assert_uint_eq(spec.job.lora_r, 4);
    ck_assert_double_eq(pl_job_lora_scale(&spec.job), 0.75);
    ck_assert_uint_eq(spec.job.lora_target_modules.n, 2);
    ck_assert_uint_eq(spec.job.lora_exclude_modules.n, 1); /* the adapter names none */
    spec.facts.generates = false;
    pl_resolve(&spec);
    same_text(&spec.job, &asked);
    pl_job_finish(&names);
    finish();
}
END_TEST

int main(void) {
    Suite *s = suite_create("config.spec");
    TCase *tc = tcase_create("spec");
    tcase_add_test(tc, without_a_fact_it_is_the_job_that_was_written);
    tcase_add_test(tc, a_fact_that_is_taken_back_leaves_nothing);
    tcase_add_test(tc, a_copy_asks_about_other_facts);
    tcase_add_test(tc, ranks_have_a_device_each);
    tcase_add_test(tc, a_budget_that_is_named_opens_a_level_that_is_not_written);
    tcase_add_test(tc, an_open_step_is_of_the_samples_that_the_rows_ask_for);
    tcase_add_test(tc, a_smaller_micro_batch_is_decided_anew);
    tcase_add_test(tc, a_run_that_goes_on_keeps_what_it_had);
    tcase_add_test(tc, what_generates_has_the_settings_of_its_adapter);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
