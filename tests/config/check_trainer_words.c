/* check_trainer_words.c - recipes of other trainers, and paths as people write them. */
#include "estimator/config/job.h"
#include "estimator/config/job_text.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BASE "model: m\nmode: lora\n"

static pl_err parse(struct pl_job *job, const char *line, const char *override,
                    struct pl_text *notes, struct pl_diag *d) {
    char yaml[512];
    snprintf(yaml, sizeof yaml, BASE "%s\n", line);
    *d = (struct pl_diag){0};
    return pl_job_parse(job, "run.yaml", yaml, strlen(yaml), &override, override != NULL, notes, d);
}

static const struct {
    const char *line, *hint;
} hints[] = {
    {"save_steps: 0.1", "`save_steps: 100`"},
    {"eval_steps: 0.25", "`eval_steps: 100`"},
    {"logging_steps: 0.05", "`logging_steps: 100`"},
    {"warmup_steps: 0.03", "`warmup_ratio`"},
    {"warmup_steps: 1.0", "digits only"},
    {"max_steps: -2", "range of every key"},
    {"num_train_epochs: -1", "`max_steps: N`"},
    {"save_steps: -1", "`save_steps: 0`"},
    {"logging_steps: 0", "`logging_steps: 1`"},
    {"save_total_limit: 0", "`save_total_limit: 1000000`"},
    {"max_grad_norm: -1", "`max_grad_norm: 0`"},
    {"min_lr: 1e-6", "`lr_scheduler: cosine_with_min_lr`"},
    {"lr_scheduler_kwargs: {min_lr: 1e-6}", "`min_lr_ratio: X`"},
    {"save_strategy: epoch", "`save_steps: N`"},
    {"eval_strategy: steps", "`eval_steps: N`"},
    {"evaluation_strategy: \"no\"", "`eval_steps: N`"},
    {"logging_strategy: steps", "`logging_steps: N`"},
    {"bf16: true", "`dtype: bf16`"},
    {"fp16: true", "`dtype: bf16`"},
    {"load_in_4bit: true", "`mode: qlora`"},
    {"load_in_8bit: true", "`mode: qlora`"},
    {"flash_attention: true", "remove the line"},
    {"optim: adamw_torch_fused", "`adamw`"},
    {"optim: paged_adamw_32bit", "`adamw`"},
    {"optim: adamw_bnb_8bit", "`adamw_8bit`"},
    {"report_to: wandb", "plimsoll.export"},
};

START_TEST(a_hint_is_the_line_to_write) {
    struct pl_job job;
    struct pl_diag d;
    ck_assert_int_ne(parse(&job, hints[_i].line, NULL, NULL, &d), PL_ERR_OK);
    ck_assert_msg(strstr(pl_diag_hint_text(&d), hints[_i].hint), "%s: %s", hints[_i].line,
                  pl_diag_hint_text(&d));
}
END_TEST

START_TEST(minus_one_steps_are_by_epochs) {
    struct pl_job job;
    struct pl_diag d;
    ck_assert_msg(parse(&job, "max_steps: -1", NULL, NULL, &d) == PL_ERR_OK, "%s", d.message);
    ck_assert_uint_eq(job.max_steps, 0);
    pl_job_finish(&job);
}
END_TEST

START_TEST(a_null_that_means_no_limit_elsewhere_is_told) {
    static const char *const lines[] = {"max_grad_norm: null", "save_total_limit: ~", "seed: null",
                                        "max_grad_norm:", "weight_decay: null"};
    struct pl_job job;
    struct pl_diag d;
    struct pl_text notes = {0};
    ck_assert_int_eq(parse(&job, lines[_i], NULL, &notes, &d), PL_ERR_OK);
    ck_assert_msg((strstr(pl_text_str(&notes), "is the default") != NULL) == (_i < 3), "%s: %s",
                  lines[_i], pl_text_str(&notes));
    pl_job_finish(&job);
    pl_text_finish(&notes);
}
END_TEST

static const struct {
    const char *line, *override, *path; /* NULL path: refused */
} paths[] = {
    {"output_dir: ~/x", NULL, "/home/me/x"},
    {"output_dir: \"~/x y\"", NULL, "/home/me/x y"},
    {"output_dir: ~/", NULL, "/home/me/"},
    {"", "output_dir=~/x", "/home/me/x"},
    {"", "output_dir=~", NULL},
    {"output_dir: ./~/x", NULL, "./~/x"},
    {"output_dir: a~/x", NULL, "a~/x"},
    {"output_dir: a$b", NULL, "a$b"},
    {"output_dir: ~other/x", NULL, NULL},
    {"output_dir: $HOME/x", NULL, NULL},
    {"output_dir: ${HOME}/x", NULL, NULL},
    {"output_dir: a/${RUN}/x", NULL, NULL},
};

/* HP1 of home_path.h, HP2 of home_path.h */
START_TEST(home_is_expanded_or_refused_by_name) {
    struct pl_job job;
    struct pl_diag d;
    ck_assert_int_eq(setenv("HOME", "/home/me", 1), 0);
    pl_err err = parse(&job, paths[_i].line, paths[_i].override, NULL, &d);
    if (paths[_i].override && strcmp(paths[_i].override, "output_dir=~") == 0) {
        ck_assert_int_eq(err, PL_ERR_OK); /* null of YAML: the default */
        ck_assert_str_eq(job.output_dir, "output");
        pl_job_finish(&job);
    } else if (paths[_i].path) {
        ck_assert_msg(err == PL_ERR_OK, "%s", d.message);
        ck_assert_str_eq(job.output_dir, paths[_i].path);
        pl_job_finish(&job);
    } else {
        ck_assert_int_eq(err, PL_ERR_CONFIG_RANGE);
        ck_assert_msg(strstr(d.message, "output_dir") && strstr(d.hint, "write the path"), "%s",
                      d.message);
    }
}
END_TEST

START_TEST(every_path_key_expands_home) {
    static const char lines[] = "model_config: ~/c\ninit: random\nadapter_path: ~/a\n"
                                "dataset_cache: ~/d\ntokenizer: ~/t\nresume: ~/r\n"
                                "chat_template: ~/x.jinja\n"
                                "datasets: [~/1.jsonl, {path: ~/2.jsonl}]\n"
                                "eval_datasets: ~/3.jsonl\n";
    struct pl_job job;
    struct pl_diag d;
    ck_assert_int_eq(setenv("HOME", "/h", 1), 0);
    ck_assert_msg(parse(&job, lines, "model=~/m", NULL, &d) == PL_ERR_OK, "%s", d.message);
    ck_assert_str_eq(job.model, "/h/m");
    ck_assert_str_eq(job.model_config, "/h/c");
    ck_assert_str_eq(job.adapter_path, "/h/a");
    ck_assert_str_eq(job.dataset_cache, "/h/d");
    ck_assert_str_eq(job.tokenizer, "/h/t");
    ck_assert_str_eq(job.resume, "/h/r");
    ck_assert_str_eq(job.chat_template.path, "/h/x.jinja");
    ck_assert_str_eq(job.datasets.items[0].path, "/h/1.jsonl");
    ck_assert_str_eq(job.datasets.items[1].path, "/h/2.jsonl");
    ck_assert_str_eq(job.eval_datasets.items[0].path, "/h/3.jsonl");
    pl_job_finish(&job);
}
END_TEST

START_TEST(without_a_home_the_path_is_refused) {
    struct pl_job job;
    struct pl_diag d;
    ck_assert_int_eq(unsetenv("HOME"), 0);
    ck_assert_int_eq(parse(&job, "output_dir: ~/x", NULL, NULL, &d), PL_ERR_CONFIG_RANGE);
    ck_assert_msg(strstr(d.message, "HOME"), "%s", d.message);
}
END_TEST

int main(void) {
    Suite *s = suite_create("config.trainer_words");
    TCase *t = tcase_create("words");
    tcase_add_loop_test(t, a_hint_is_the_line_to_write, 0, sizeof hints / sizeof *hints);
    tcase_add_test(t, minus_one_steps_are_by_epochs);
    tcase_add_loop_test(t, a_null_that_means_no_limit_elsewhere_is_told, 0, 5);
    tcase_add_loop_test(t, home_is_expanded_or_refused_by_name, 0, sizeof paths / sizeof *paths);
    tcase_add_test(t, every_path_key_expands_home);
    tcase_add_test(t, without_a_home_the_path_is_refused);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
