/* check_errors.c - all that is wrong with a configuration is told at once, and nothing that is not;
 * keys without a meaning are dropped with a warning. */
#include "estimator/config/job.h"
#include "estimator/config/job_text.h"
#include "estimator/config/key_table.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define BASE "model: m\nmode: lora\n"
#define FULL "model: m\nmode: full\n"

struct told {
    pl_err err;
    uint64_t line;
    const char *word;
};

/* Each text with every failure that it has, in their order. */
static const struct {
    const char *yaml;
    struct told told[7]; /* ends with err 0 */
} rows[] = {
    {BASE "lora_rr: 8\nseed: x\nbatch_size: 0\n",
     {{PL_ERR_CONFIG_UNKNOWN_KEY, 3, "lora_r"},
      {PL_ERR_CONFIG_TYPE, 4, "seed"},
      {PL_ERR_CONFIG_RANGE, 5, "batch_size"}}},
    {"moddel: m\nmode: loar\n",
     {{PL_ERR_CONFIG_UNKNOWN_KEY, 1, "`model`"},
      {PL_ERR_CONFIG_RANGE, 2, "`lora`"},
      {PL_ERR_CONFIG_MISSING, 0, "`model` is not given"}}},
    /* a contradiction, and a key that is wrong alone */
    {BASE "seed: 1\nseed: 2\nwarmup_steps: 3\nwarmup_ratio: 0.1\nreport_to: [wandb, tensorbord]\n",
     {{PL_ERR_CONFIG_DUPLICATE_KEY, 4, "seed"},
      {PL_ERR_CONFIG_CONFLICT, 6, "warmup_steps"},
      {PL_ERR_CONFIG_RANGE, 7, "wandb"},
      {PL_ERR_CONFIG_RANGE, 7, "tensorboard"}}},
    /* consequences of a value that could not be read are not reported */
    {"model: m\nmode: loar\nlora_r: 8\n", {{PL_ERR_CONFIG_RANGE, 2, "`lora`"}}},
    {BASE "dtype: fp61\nmaster_weights: true\nbase_dtype: fp32\n",
     {{PL_ERR_CONFIG_RANGE, 3, "dtype"}}},
    {BASE "init: radnom\nmodel_config: c\n", {{PL_ERR_CONFIG_RANGE, 3, "random"}}},
    {BASE "lr_scheduler: cosin\nmin_lr_ratio: 0.1\n", {{PL_ERR_CONFIG_RANGE, 3, "cosine"}}},
    {BASE "batch_size: x\ngradient_accumulation_steps: 2\nglobal_batch_size: 8\n",
     {{PL_ERR_CONFIG_TYPE, 3, "batch_size"}}},
    /* every entry of a list, and every key of an entry */
    {BASE "datasets:\n- path: a\n  formt: text\n  weight: 0\n- format: text\n- [b]\n",
     {{PL_ERR_CONFIG_UNKNOWN_KEY, 5, "`format`"},
      {PL_ERR_CONFIG_RANGE, 6, "weight"},
      {PL_ERR_CONFIG_MISSING, 7, "no `path`"},
      {PL_ERR_CONFIG_TYPE, 8, "not a list"}}},
    {FULL "adapter_path: a\nmodel_config: c\nmin_lr_ratio: 0.5\n",
     {{PL_ERR_CONFIG_CONFLICT, 4, "init: pretrained"},
      {PL_ERR_CONFIG_CONFLICT, 3, "mode: full"},
      {PL_ERR_CONFIG_CONFLICT, 5, "cosine_with_min_lr"}}},
    {BASE "debug_inject: [\"a\", \"b\"]\nresume: \"true\"\n",
     {{PL_ERR_CONFIG_RANGE, 3, "`debug_inject: a`"},
      {PL_ERR_CONFIG_RANGE, 3, "`debug_inject: b`"},
      {PL_ERR_CONFIG_TYPE, 4, "starts over"}}},
    /* no YAML, no keys */
    {BASE "seed: x\nlora_r: [1\n", {{PL_ERR_CONFIG_SYNTAX, 4, "not valid YAML"}}},
    {BASE "seed: 1\n", {{0}}},
};

START_TEST(everything_that_is_wrong_is_told_at_once) {
    struct pl_job job;
    struct pl_diag_list all = {0};
    struct pl_diag d = {.all = &all};
    const char *yaml = rows[_i].yaml;
    uint32_t n = 0;
    pl_err err = pl_job_parse(&job, "run.yaml", yaml, strlen(yaml), NULL, 0, NULL, &d);
    for (const struct told *t = rows[_i].told; t->err; t++, n++) {
        char said[sizeof d.message + sizeof d.hint];
        const struct pl_diag *x = &all.items[n];
        ck_assert_msg(n < all.n, "%s: only %u failures", yaml, all.n);
        snprintf(said, sizeof said, "%s | %s", x->message, pl_diag_hint_text(x));
        ck_assert_msg(x->err == t->err && x->line == t->line && strstr(said, t->word),
                      "%s: %u: %llu: %s", yaml, n, (unsigned long long)x->line, said);
        ck_assert_ptr_null(x->all);
    }
    ck_assert_msg(all.n == n, "%s: another one: %s", yaml, all.items[n].message);
    ck_assert(!all.more);
    ck_assert_int_eq(err, n ? all.items[0].err : PL_ERR_OK);
    ck_assert_int_eq(d.err, err);
    if (n) ck_assert_str_eq(d.message, all.items[0].message);
    ck_assert_ptr_eq(d.all, &all);
    if (!n) pl_job_finish(&job);
    ck_assert_ptr_null(job.model); /* finished */
}
END_TEST

START_TEST(overrides_are_told_after_the_file) {
    static const char *const overrides[] = {"lora_r=0", "sed=1", "batch_size"};
    static const pl_err errs[] = {PL_ERR_CONFIG_TYPE, PL_ERR_CONFIG_RANGE,
                                  PL_ERR_CONFIG_UNKNOWN_KEY, PL_ERR_USAGE};
    static const char text[] = BASE "seed: x\n";
    struct pl_job job;
    struct pl_diag_list all = {0};
    struct pl_diag d = {.all = &all};
    ck_assert_int_eq(pl_job_parse(&job, "run.yaml", text, strlen(text), overrides, 3, NULL, &d),
                     PL_ERR_CONFIG_TYPE);
    ck_assert_uint_eq(all.n, 4);
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_int_eq(all.items[i].err, errs[i]);
}
END_TEST

/* 19, 20 and 21 of them. */
START_TEST(twenty_are_enough) {
    const uint32_t n = (uint32_t)_i;
    struct pl_text yaml = {0};
    struct pl_job job;
    struct pl_diag_list all = {0};
    struct pl_diag d = {.all = &all};
    pl_text_add(&yaml, BASE);
    for (uint32_t i = 0; i < n; i++)
        pl_text_addf(&yaml, "no_such_key_%u: 1\n", i);
    ck_assert_int_eq(pl_job_parse(&job, "run.yaml", yaml.data, yaml.len, NULL, 0, NULL, &d),
                     PL_ERR_CONFIG_UNKNOWN_KEY);
    ck_assert_uint_eq(all.n, n < PL_DIAGS_MOST ? n : PL_DIAGS_MOST);
    ck_assert_int_eq(all.more, n > PL_DIAGS_MOST);
    ck_assert_uint_eq(d.line, 3);
    pl_text_finish(&yaml);
}
END_TEST

START_TEST(without_a_list_the_first_one_is_told) {
    static const char text[] = BASE "seed: x\nlora_rr: 1\n";
    struct pl_job job;
    struct pl_diag d = {0};
    ck_assert_int_eq(pl_job_parse(&job, "run.yaml", text, strlen(text), NULL, 0, NULL, &d),
                     PL_ERR_CONFIG_TYPE);
    ck_assert_uint_eq(d.line, 3);
    ck_assert_int_eq(pl_job_parse(&job, "run.yaml", text, strlen(text), NULL, 0, NULL, NULL),
                     PL_ERR_CONFIG_TYPE);
}
END_TEST

START_TEST(a_job_to_train_lacks_its_data_with_everything_else) {
    struct pl_job job;
    struct pl_diag_list all = {0};
    struct pl_diag d = {.all = &all};
    static const char *const overrides[] = {"model=m", "mode=lora", "seed=x", "num_epochs=0"};
    ck_assert_int_eq(pl_job_read_to_train(&job, NULL, overrides, 4, NULL, &d), PL_ERR_CONFIG_TYPE);
    ck_assert_uint_eq(all.n, 3);
    ck_assert_ptr_nonnull(strstr(all.items[1].message, "`datasets` is not given"));
    ck_assert_ptr_nonnull(strstr(all.items[2].message, "no step to train"));
}
END_TEST

/* ---- keys without a meaning ---- */

#define CONSTANT    "with `lr_scheduler: constant`"
#define TEXTS       "datasets: [{path: a, format: text}, {path: b, format: tokens}]\n"
#define NO_PRODUCTS "but with `mode: qlora`, or for a job of `dtype: bf16` on the CPU"
#define TEXTS_ALONE "with data of `format: text` or `format: tokens` alone"

static const struct {
    const char *yaml, *key;
    unsigned line;
    const char *because;
} useless[] = {
    {FULL "lora_r: 16\n", "lora_r", 3, "with `mode: full`"},
    {FULL "lora_rank: 16\n", "lora_r", 3, "with `mode: full`"},
    {FULL "lora_alpha: 16\n", "lora_alpha", 3, "with `mode: full`"},
    {FULL "lora_dropout: 0\n", "lora_dropout", 3, "with `mode: full`"},
    {FULL "target_modules: q_proj\n", "lora_target_modules", 3, "with `mode: full`"},
    {FULL "seed: 1\nuse_rslora: true\n", "use_rslora", 4, "with `mode: full`"},
    {FULL "save_merged: true\n", "save_merged", 3, "with `mode: full`"},
    {FULL "adapter_dtype: bf16\n", "adapter_dtype", 3, "with `mode: full`"},
    {FULL "dtype: fp32\nbase_dtype: bf16\n", "base_dtype", 4, "with `mode: full`"},
    {BASE "quant_type: nf4\n", "quant_type", 3, "with `mode: lora`"},
    {BASE "full_ft_offload: true\n", "full_ft_offload", 3, "with `mode: lora`"},
    {BASE "optimizer_in_backward: true\n", "optimizer_in_backward", 3, "with `mode: lora`"},
    {FULL "offload: weights\noffload_update: host\noptimizer_in_backward: true\n",
     "optimizer_in_backward", 5, "with `offload_update: host`"},
    {BASE "layers_pattern: layers\n", "layers_pattern", 3, "without `layers_to_transform`"},
    {FULL "layers_pattern: layers\n", "layers_pattern", 3, "with `mode: full`"},
    {BASE "full_ft_ceiling_billions: 8\n", "full_ft_ceiling_billions", 3, "with `mode: lora`"},
    {BASE "optimizer: sgd\nadam_beta1: 0.8\n", "adam_beta1", 4, "with `optimizer: sgd`"},
    {BASE "optimizer: sgd\nadam_beta2: 0.8\n", "adam_beta2", 4, "with `optimizer: sgd`"},
    {BASE "optimizer: lion\nadam_epsilon: 1e-6\n", "adam_epsilon", 4, "with `optimizer: lion`"},
    {BASE "oom_recovery: false\noom_max_retries: 2\n", "oom_max_retries", 4,
     "with `oom_recovery: false`"},
    {BASE "lr_scheduler: constant\nwarmup_steps: 5\n", "warmup_steps", 4, CONSTANT},
    {BASE "lr_scheduler: constant\nwarmup_ratio: 0.1\n", "warmup_ratio", 4, CONSTANT},
    {BASE "max_steps: 5\nnum_epochs: 2\n", "num_epochs", 4, "with `max_steps`"},
    {BASE "sharding: weights\n", "sharding", 3, "with `devices: 1`"},
    {BASE "comm_timeout_seconds: 5\n", "comm_timeout_seconds", 3, "with `devices: 1`"},
    {BASE "dataset: a.jsonl\neval_steps: 5\n", "eval_steps", 4,
     "without evaluation data and `sample_prompts`"},
    {BASE "dtype: fp32\ncompute_dtype: bf16\n", "compute_dtype", 4, NO_PRODUCTS},
    {BASE "dtype: bf16\ncompute_dtype: fp16\n", "compute_dtype", 4, NO_PRODUCTS},
    {BASE "device: cuda\ndtype: bf16\ncompute_dtype: fp32\n", "compute_dtype", 5, NO_PRODUCTS},
    {BASE TEXTS "chat_template: chatml\n", "chat_template", 4, TEXTS_ALONE},
    {BASE TEXTS "chat_date: 2025-01-31\n", "chat_date", 4, TEXTS_ALONE},
    {BASE TEXTS "train_on: last\n", "train_on", 4, TEXTS_ALONE},
};

/* The same keys where they do something, or nothing that a person could have expected. */
static const char *const useful[] = {
    BASE "optimizer: lion\nadam_beta1: 0.8\nadam_beta2: 0.8\n",
    BASE "adam_epsilon: 1e-6\noom_max_retries: 2\n",
    BASE "lr_scheduler: constant\nwarmup_steps: 0\n",
    BASE "lr_scheduler: constant\nwarmup_ratio: 0\n",
    BASE "lr_scheduler: constant_with_warmup\nwarmup_steps: 5\n",
    BASE "max_steps: 0\nnum_epochs: 2\n",
    BASE "devices: 2\nsharding: weights\ncomm: mpi\ncomm_timeout_seconds: 5\n",
    BASE "devices: auto\nsharding: optimizer\n",
    BASE "sharding: none\ncomm: auto\n",
    BASE "dataset: a.jsonl\nval_set_size: 0.1\neval_steps: 5\n",
    BASE "dataset: a.jsonl\neval_datasets: [b.jsonl]\neval_steps: 5\n",
    BASE "datasets: [a.jsonl, {path: b.jsonl, split: eval}]\neval_steps: 5\n",
    BASE "eval_steps: 5\n",
    BASE "offload: optimizer\noffload_update: host\n",
    FULL "full_ft_offload: true\noffload_update: device\nfull_ft_ceiling_billions: 8\n",
    BASE "dtype: bf16\ncompute_dtype: fp32\n",
    BASE "compute_dtype: fp32\n",
    FULL "dtype: fp32\ncompute_dtype: fp32\n",
    BASE "dataset: a.jsonl\nchat_template: chatml\ntrain_on: last\n",
    BASE "datasets: [{path: a, format: text}, {path: b, format: messages}]\ntrain_on: all\n",
};

START_TEST(a_key_that_does_something_is_not_warned_about) {
    struct pl_job job;
    struct pl_text notes = {0};
    struct pl_diag d = {0};
    ck_assert_msg(pl_job_parse(&job, "run.yaml", useful[_i], strlen(useful[_i]), NULL, 0, &notes,
                               &d) == PL_ERR_OK,
                  "%s", d.message);
    ck_assert_str_eq(pl_text_str(&notes), "");
    pl_text_finish(&notes);
    pl_job_finish(&job);
}
END_TEST

/* K1 of meaning.h: The key counts as not given: the written, recorded and planned jobs do not have
 * it. */
START_TEST(a_key_without_a_meaning_is_dropped_with_a_warning) {
    struct pl_job job, plain;
    struct pl_text notes = {0}, with = {0}, without = {0};
    struct pl_diag d = {0};
    char warning[200], other[200];
    const char *yaml = useless[_i].yaml;
    ck_assert_msg(pl_job_parse(&job, "run.yaml", yaml, strlen(yaml), NULL, 0, &notes, &d) ==
                      PL_ERR_OK,
                  "%s", d.message);
    snprintf(warning, sizeof warning,
             "warning: run.yaml:%u: `%s` has no meaning %s: it is ignored\n", useless[_i].line,
             useless[_i].key, useless[_i].because);
    ck_assert_msg(strstr(pl_text_str(&notes), warning), "%s", pl_text_str(&notes));
    const enum pl_key_id key = pl_key_find(useless[_i].key);
    ck_assert(!job.given[key] && !job.place[key].line);
    /* the same text without its last line */
    snprintf(other, sizeof other, "%s", yaml);
    other[strlen(other) - 1] = 0;
    strrchr(other, '\n')[1] = 0;
    ck_assert_int_eq(pl_job_parse(&plain, "run.yaml", other, strlen(other), NULL, 0, NULL, &d),
                     PL_ERR_OK);
    pl_job_write(&job, &with);
    pl_job_write(&plain, &without);
    ck_assert_str_eq(pl_text_str(&with), pl_text_str(&without));
    pl_text_finish(&with);
    pl_text_finish(&without);
    pl_text_finish(&notes);
    pl_job_finish(&job);
    pl_job_finish(&plain);
}
END_TEST

START_TEST(an_override_makes_keys_of_the_file_useless) {
    static const char text[] = BASE "lora_r: 8\nlora_alpha: 16\n";
    static const char *const overrides[] = {"mode=full", "lora_dropout=0.1"};
    struct pl_job job;
    struct pl_text notes = {0};
    ck_assert_int_eq(pl_job_parse(&job, "run.yaml", text, strlen(text), overrides, 2, &notes, NULL),
                     PL_ERR_OK);
    ck_assert_str_eq(pl_text_str(&notes),
                     "warning: run.yaml:3: `lora_r` has no meaning with `mode: full`: it is "
                     "ignored\n"
                     "warning: run.yaml:4: `lora_alpha` has no meaning with `mode: full`: it is "
                     "ignored\n"
                     "warning: `lora_dropout` has no meaning with `mode: full`: it is ignored\n");
    pl_text_finish(&notes);
    pl_job_finish(&job);
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

int main(void) {
    Suite *s = suite_create("config.errors");
    TCase *tc = tcase_create("all");
    tcase_add_loop_test(tc, everything_that_is_wrong_is_told_at_once, 0, COUNT(rows));
    tcase_add_test(tc, overrides_are_told_after_the_file);
    tcase_add_loop_test(tc, twenty_are_enough, PL_DIAGS_MOST - 1, PL_DIAGS_MOST + 2);
    tcase_add_test(tc, without_a_list_the_first_one_is_told);
    tcase_add_test(tc, a_job_to_train_lacks_its_data_with_everything_else);
    tcase_add_loop_test(tc, a_key_without_a_meaning_is_dropped_with_a_warning, 0, COUNT(useless));
    tcase_add_loop_test(tc, a_key_that_does_something_is_not_warned_about, 0, COUNT(useful));
    tcase_add_test(tc, an_override_makes_keys_of_the_file_useless);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
