/* check_dataset.c - what a run makes of its data: packed samples, mixed files, files to evaluate
 * on. Through the real binary. */
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/scratch.h"
#include "tests/support/tensorset.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <math.h>
#include <string.h>

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

#define TRAIN(status, ...) plimsoll_train_expect(status, dir, (const char *[]){__VA_ARGS__, NULL})

static double of_step(const char *out, uint64_t step, const char *key) {
    json_t *log = joblog_read(in_dir(dir, out));
    const json_t *line = joblog_step(log, step);
    ck_assert_ptr_nonnull(line);
    double v = joblog_number(line, key);
    json_decref(log);
    return v;
}

static double of_event(const char *out, const char *event, const char *key) {
    json_t *log = joblog_read(in_dir(dir, out));
    double v = joblog_number(joblog_event(log, event, 0), key);
    json_decref(log);
    return v;
}

static uint64_t steps_of(const char *out) {
    json_t *log = joblog_read(in_dir(dir, out));
    uint64_t n = joblog_count(log, "step");
    json_decref(log);
    return n;
}

/* Sums over other micro-batches round otherwise: a relative error of a few units of fp32. */
static void expect_close(double a, double b, const char *what) {
    ck_assert_msg(fabs(a - b) <= 1e-5 * fabs(a), "%s: %.9g and %.9g", what, a, b);
}

/* --- packing ---------------------------------------------------------------------------------- */

static const struct {
    const char *mode, *stem, *more;
} jobs[] = {
    {"full", "model", "optimizer: sgd\nlearning_rate: 1\nmax_grad_norm: 0\n"},
    {"lora", "adapter_model", "optimizer: sgd\nlearning_rate: 1\nlora_r: 4\nlora_dropout: 0.3\n"},
};
enum { N_JOBS = sizeof jobs / sizeof *jobs };

/* Rows of 5 to 16 tokens, rooms of 48: three to nine rows in each. */
#define ROOM "max_seq_length=48"

static void make_job(int i, const char *more) {
    char yaml[512];
    snprintf(yaml, sizeof yaml, "%sseed: 5\n%s", jobs[i].more, more);
    tiny_make(dir, &(struct tiny){.mode = jobs[i].mode, .rows = 40}, yaml);
}

static struct weight_gap gap_of(const char *a, const char *b, const char *stem) {
    struct weights left, right;
    weights_open(&left, in_dir(dir, a), stem);
    weights_open(&right, in_dir(dir, b), stem);
    struct weight_gap gap = weights_compare(&left, &right);
    weights_close(&left);
    weights_close(&right);
    return gap;
}

START_TEST(a_packed_step_is_the_step_of_the_same_rows) {
    make_job(_i, "max_steps: 1\n");
    TRAIN(0, "output_dir=packed", ROOM, "packing=true", "batch_size=3");
    double rows = of_step("packed", 1, "samples");
    ck_assert_msg(rows >= 9 && rows <= 28, "%g rows in three rooms of 48 tokens", rows);
    TRAIN(0, "output_dir=plain", ROOM, textf("batch_size=%.0f", rows));
    ck_assert(of_step("plain", 1, "samples") == rows);
    ck_assert(of_step("plain", 1, "tokens") == of_step("packed", 1, "tokens"));
    ck_assert(of_step("plain", 1, "computed_tokens") == of_step("packed", 1, "computed_tokens"));
    expect_close(of_step("plain", 1, "loss"), of_step("packed", 1, "loss"), "loss");
    expect_close(of_step("plain", 1, "grad_norm"), of_step("packed", 1, "grad_norm"), "grad_norm");
    /* plain gradient descent at rate 1: the weights differ as the gradients do */
    struct weight_gap gap = gap_of("plain", "packed", jobs[_i].stem);
    ck_assert_msg(gap.l2 <= 1e-5 * of_step("plain", 1, "grad_norm"), "weights differ by %g",
                  gap.l2);
}
END_TEST

START_TEST(two_packed_epochs_pass_over_every_row_twice) {
    make_job(_i, "num_epochs: 2\n");
    TRAIN(0, "output_dir=run", ROOM, "packing=true", "batch_size=2", "learning_rate=1e-3");
    uint64_t n = steps_of("run");
    double rows = 0;
    bool ends = false;
    for (uint64_t s = 1; s <= n; s++) { /* 39 of the 40 rows have a token to train on */
        rows += of_step("run", s, "samples");
        ck_assert(of_step("run", s, "epoch") == rows / 39);
        ck_assert(of_step("run", s, "computed_tokens") <= 96);
        ends |= rows == 39;
    }
    ck_assert_msg(ends && rows == 78, "%g rows of 78", rows);
}
END_TEST

START_TEST(a_packed_run_goes_on_bit_for_bit) {
    make_job(_i, "lr_scheduler: constant\nsave_steps: 3\n");
    TRAIN(0, "max_steps=8", "output_dir=straight", ROOM, "packing=true", "batch_size=2",
          "learning_rate=1e-2");
    TRAIN(0, "max_steps=3", "output_dir=halves", ROOM, "packing=true", "batch_size=2",
          "learning_rate=1e-2");
    TRAIN(0, "max_steps=8", "output_dir=halves", ROOM, "packing=true", "batch_size=2",
          "learning_rate=1e-2");
    char a[SCRATCH_PATH + 16], b[SCRATCH_PATH + 16];
    snprintf(a, sizeof a, "%s/straight", dir);
    snprintf(b, sizeof b, "%s/halves", dir);
    joblog_assert_same_steps(a, b);
    weights_assert_same(a, b, jobs[_i].stem);
}
END_TEST

START_TEST(a_packed_step_that_runs_out_of_memory_keeps_its_rows) {
    make_job(_i, "max_steps: 3\n");
    TRAIN(0, "output_dir=calm", ROOM, "packing=true", "batch_size=4", "learning_rate=1e-2");
    TRAIN(0, "output_dir=halved", ROOM, "packing=true", "batch_size=4", "learning_rate=1e-2",
          "debug_inject=device_oom@step=2");
    for (uint64_t s = 1; s <= 3; s++) {
        ck_assert(of_step("calm", s, "samples") == of_step("halved", s, "samples"));
        ck_assert(of_step("calm", s, "tokens") == of_step("halved", s, "tokens"));
        ck_assert(of_step("halved", s, "batch_size") == (s == 1 ? 4 : 2));
        expect_close(of_step("calm", s, "loss"), of_step("halved", s, "loss"), "loss");
    }
}
END_TEST

/* A model that turns the longer half of the rows by other frequencies. */
static void make_longrope_job(int i, const char *more) {
    make_job(i, more);
    file_write(in_dir(dir, "config.json"),
               "{\"model_type\": \"phi3\", \"hidden_size\": 32, \"intermediate_size\": 48, "
               "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
               "\"num_key_value_heads\": 2, \"vocab_size\": 61, \"initializer_range\": 0.1, "
               "\"max_position_embeddings\": 64, \"original_max_position_embeddings\": 10, "
               "\"rope_scaling\": {\"type\": \"longrope\", "
               "\"short_factor\": [1, 1, 1.1, 1.2], \"long_factor\": [2, 3, 4, 5]}}\n");
}

static double relative(double a, double b) {
    return fabs(a - b) / fabs(a);
}

/* A micro-batch of one row has no other row's length to choose by. */
START_TEST(each_packed_row_of_longrope_may_turn_by_its_own_length) {
    make_longrope_job(_i, "max_steps: 1\n");
    TRAIN(0, "output_dir=packed", ROOM, "packing=true", "batch_size=2", "rope_long_from=sample");
    TRAIN(0, "output_dir=by_longest", ROOM, "packing=true", "batch_size=2");
    double rows = of_step("packed", 1, "samples");
    ck_assert_msg(rows >= 6, "%g rows in two rooms of 48 tokens", rows);
    TRAIN(0, "output_dir=single", ROOM, "batch_size=1",
          textf("gradient_accumulation_steps=%.0f", rows));
    ck_assert(of_step("single", 1, "computed_tokens") == of_step("packed", 1, "computed_tokens"));
    expect_close(of_step("single", 1, "loss"), of_step("packed", 1, "loss"), "loss");
    expect_close(of_step("single", 1, "grad_norm"), of_step("packed", 1, "grad_norm"), "grad_norm");
    struct weight_gap gap = gap_of("single", "packed", jobs[_i].stem);
    ck_assert_msg(gap.l2 <= 1e-5 * of_step("single", 1, "grad_norm"), "weights differ by %g",
                  gap.l2);
    double other = relative(of_step("single", 1, "loss"), of_step("by_longest", 1, "loss"));
    ck_assert_msg(other > 1e-4, "rows that all follow the longest differ by %g alone", other);
}
END_TEST

START_TEST(evaluation_of_longrope_may_turn_by_its_own_length) {
    make_longrope_job(0, "max_steps: 1\nval_set_size: 11\n");
    TRAIN(0, "output_dir=packed", ROOM, "packing=true", "batch_size=2", "learning_rate=0",
          "rope_long_from=sample");
    TRAIN(0, "output_dir=single", ROOM, "batch_size=1", "learning_rate=0");
    expect_close(of_event("single", "eval", "loss"), of_event("packed", "eval", "loss"),
                 "evaluation");
}
END_TEST

/* At rate 0 the weights of both runs are those of the start. */
START_TEST(evaluation_does_not_depend_on_packing) {
    make_job(0, "max_steps: 1\nval_set_size: 11\n");
    TRAIN(0, "output_dir=packed", ROOM, "packing=true", "batch_size=2", "learning_rate=0");
    TRAIN(0, "output_dir=plain", ROOM, "batch_size=3", "learning_rate=0");
    expect_close(of_event("plain", "eval", "loss"), of_event("packed", "eval", "loss"),
                 "evaluation");
}
END_TEST

/* --- mixed files ------------------------------------------------------------------------------ */

/* Rows of 2, 3 and 5 tokens tell by their length which file they are from. */
static void make_mix(const char *weights[3], const char *more) {
    static const char *const names[] = {"two.jsonl", "three.jsonl", "five.jsonl"};
    static const char *const rows[] = {"[1,2]", "[3,4,5]", "[6,7,8,9,10]"};
    tiny_make(dir, &(struct tiny){.mode = "full"}, "");
    char text[4096] = "", yaml[2048];
    for (int f = 0; f < 3; f++) {
        text[0] = 0;
        for (int r = 0; r < 12; r++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "{\"input_ids\":%s}\n",
                     rows[f]);
        file_write(in_dir(dir, names[f]), text);
    }
    snprintf(yaml, sizeof yaml,
             "model_config: config.json\ninit: random\nmode: full\ndtype: fp32\ndevice: cpu\n"
             "max_seq_length: 16\nbatch_size: 4\nthreads: 2\nlearning_rate: 1e-2\n"
             "datasets:\n"
             "- {path: two.jsonl%s}\n- {path: three.jsonl%s}\n- {path: five.jsonl%s}\n%s",
             weights[0], weights[1], weights[2], more);
    file_write(in_dir(dir, "run.yaml"), yaml);
}

START_TEST(an_epoch_of_a_mix_has_the_tokens_of_its_weights) {
    make_mix((const char *[]){", weight: 2", ", weight: 0.5", ""}, "num_epochs: 1\n");
    TRAIN(0, "output_dir=run");
    uint64_t n = steps_of("run");
    double tokens = 0;
    for (uint64_t s = 1; s <= n; s++)
        tokens += of_step("run", s, "computed_tokens");
    /* 24 x 2 + 6 x 3 + 12 x 5 in 42 rows: 10 whole steps of 4, and one of two rows */
    ck_assert_uint_eq(n, 11);
    ck_assert_msg(tokens == 126, "%g tokens", tokens);
    ck_assert(of_step("run", n, "samples") == 2);
    ck_assert(of_step("run", n, "epoch") == 1);
}
END_TEST

START_TEST(every_file_is_trained_on_and_held_out) {
    static const char *const held[] = {"val_set_size=11", "val_set_size=0.3", "val_set_size=12",
                                       "val_set_size=0.7"};
    make_mix((const char *[]){"", "", ""}, "");
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) {
        struct outcome o = plimsoll_expect(
            0, dir, (const char *[]){"train", "run.yaml", "--dry-run", held[i], NULL});
        ck_assert_msg(!strstr(o.err, "no row of it"), "%s: %s", held[i], o.err);
        outcome_finish(&o);
    }
}
END_TEST

START_TEST(a_run_says_what_its_files_hold) {
    make_mix((const char *[]){"", "", ""}, "max_steps: 1\n");
    struct outcome o =
        plimsoll_expect(0, dir, (const char *[]){"train", "run.yaml", "output_dir=run", NULL});
    ck_assert_msg(strstr(o.err, "  data: three.jsonl: 12 rows, 36 tokens, 66.7 % trained on, "
                                "longest 3\n"),
                  "%s", o.err);
    json_t *log = joblog_read(in_dir(dir, "run"));
    const json_t *list = json_object_get(joblog_event(log, "preflight", 0), "data");
    ck_assert_uint_eq(json_array_size(list), 3);
    ck_assert(joblog_number(json_array_get(list, 2), "supervised_tokens") == 48);
    ck_assert(joblog_number(json_array_get(list, 0), "rows") == 12);
    json_decref(log);
    outcome_finish(&o);
}
END_TEST

START_TEST(a_file_that_is_held_out_as_a_whole_is_named) {
    make_mix((const char *[]){"", "", ""}, "");
    file_write(in_dir(dir, "two.jsonl"), "{\"input_ids\":[1,2]}\n");
    struct outcome o = plimsoll_expect(
        0, dir, (const char *[]){"train", "run.yaml", "--dry-run", "val_set_size=0.9", NULL});
    ck_assert_msg(strstr(o.err, "two.jsonl: no row of it"), "%s", o.err);
    ck_assert(!strstr(o.err, "three.jsonl: no row"));
    outcome_finish(&o);
}
END_TEST

START_TEST(a_mixed_run_goes_on_bit_for_bit) {
    make_mix((const char *[]){", weight: 3", ", weight: 0.5", ""}, "save_steps: 5\n");
    TRAIN(0, "max_steps=25", "lr_scheduler=constant", "output_dir=straight");
    TRAIN(0, "max_steps=10", "lr_scheduler=constant", "output_dir=halves");
    TRAIN(0, "max_steps=25", "lr_scheduler=constant", "output_dir=halves");
    char a[SCRATCH_PATH + 16], b[SCRATCH_PATH + 16];
    snprintf(a, sizeof a, "%s/straight", dir);
    snprintf(b, sizeof b, "%s/halves", dir);
    joblog_assert_same_steps(a, b);
    weights_assert_same(a, b, "model");
}
END_TEST

START_TEST(an_entry_of_the_split_eval_is_evaluated_and_not_trained) {
    make_mix((const char *[]){"", ", split: eval", ""}, "max_steps: 6\n");
    TRAIN(0, "output_dir=split", "learning_rate=0");
    make_mix((const char *[]){"", "", ""}, "max_steps: 6\neval_datasets: [three.jsonl]\n");
    TRAIN(0, "output_dir=apart", "learning_rate=0");
    json_t *split = joblog_read(in_dir(dir, "split")), *apart = joblog_read(in_dir(dir, "apart"));
    ck_assert(joblog_number(joblog_event(split, "eval", 0), "loss") ==
              joblog_number(joblog_event(apart, "eval", 0), "loss"));
    double tokens = 0; /* an epoch: 12 x 2 + 12 x 5 */
    for (uint64_t s = 1; s <= 6; s++)
        tokens += joblog_number(joblog_step(split, s), "computed_tokens");
    ck_assert(tokens == 84);
    json_decref(split);
    json_decref(apart);
}
END_TEST

/* --- the thread that loads ahead -------------------------------------------------------------- */

static const struct {
    const char *what, *args[4];
} ways[] = {
    {"plain", {"seed=1", "seed=1", "seed=1", "seed=1"}},
    {"packed, mixed with evaluation", {"packing=true", "val_set_size=6", "eval_steps=2", ROOM}},
    {"halved", {"debug_inject=device_oom@step=3", "batch_size=4", "val_set_size=3", "seed=2"}},
    {"probed", {"probe_steps=2", "lora_dropout=0.1", "seed=3", "packing=true"}},
};
enum { N_WAYS = sizeof ways / sizeof *ways };

START_TEST(loading_ahead_changes_no_bit) {
    const char *const *a = ways[_i].args;
    make_job(1, "max_steps: 7\nbatch_size: 2\n");
    TRAIN(0, "output_dir=ahead", a[0], a[1], a[2], a[3], "learning_rate=1e-2");
    TRAIN(0, "output_dir=inline", a[0], a[1], a[2], a[3], "learning_rate=1e-2", "prefetch=false");
    char ahead[SCRATCH_PATH + 16], in_line[SCRATCH_PATH + 16];
    snprintf(ahead, sizeof ahead, "%s/ahead", dir);
    snprintf(in_line, sizeof in_line, "%s/inline", dir);
    joblog_assert_same_steps(ahead, in_line);
    weights_assert_same(ahead, in_line, "adapter_model");
}
END_TEST

START_TEST(the_summary_says_how_long_steps_waited_for_data) {
    make_job(0, "max_steps: 5\nbatch_size: 2\n");
    TRAIN(0, "output_dir=ahead");
    TRAIN(0, "output_dir=inline", "prefetch=false");
    for (int i = 0; i < 2; i++) {
        const char *out = in_dir(dir, i ? "inline" : "ahead");
        double waited = joblog_summary(out, "data_wait_seconds");
        ck_assert_msg(waited > 0 && waited < joblog_summary(out, "wall_seconds"), "%g s", waited);
    }
}
END_TEST

/* --- chats ------------------------------------------------------------------------------------ */

static const char *const chats = "{\"messages\":[{\"role\":\"user\",\"content\":\"To be?\"},"
                                 "{\"role\":\"assistant\",\"content\":\"Or not to be.\"}]}\n"
                                 "{\"messages\":[{\"role\":\"user\",\"content\":\"Who is there?\"},"
                                 "{\"role\":\"assistant\",\"content\":\"Nay, answer me.\"}]}\n";

START_TEST(a_run_on_chats_records_their_template_and_day) {
    tiny_make(dir, &(struct tiny){.vocab = 300},
              "batch_size: 2\nmax_steps: 2\nlearning_rate: 1e-2\ntokenizer: byte\n");
    file_write(in_dir(dir, "chats.jsonl"), chats);
    TRAIN(0, "output_dir=first", "datasets=[{path: chats.jsonl}]", "max_seq_length=600",
          "chat_template=llama32");
    char *resolved = file_read(in_dir(dir, "first/config.resolved.yaml"), NULL);
    ck_assert_ptr_nonnull(strstr(resolved, "\nchat_template: llama32\n"));
    ck_assert_ptr_nonnull(strstr(resolved, "\nchat_date: "));
    ck_assert_ptr_nonnull(strstr(resolved, "\ntrain_on: responses\n"));
    free(resolved);
    /* 13 and 15 bytes of answers, and 10 of `<|eot_id|>` after each */
    ck_assert(of_step("first", 1, "tokens") == 13 + 15 + 2 * 10);
}
END_TEST

START_TEST(chats_of_a_run_that_goes_on_show_the_day_it_began) {
    tiny_make(dir, &(struct tiny){.vocab = 300},
              "batch_size: 2\nsave_steps: 1\ntokenizer: byte\nchat_template: llama32\n");
    file_write(in_dir(dir, "chats.jsonl"), chats);
    TRAIN(0, "max_steps=1", "datasets=[{path: chats.jsonl}]", "max_seq_length=600",
          "chat_date=2024-02-29");
    TRAIN(0, "max_steps=2", "datasets=[{path: chats.jsonl}]", "max_seq_length=600");
    TRAIN(0, "max_steps=3", "datasets=[{path: chats.jsonl}]", "max_seq_length=600");
    char *resolved = file_read(in_dir(dir, "out/config.resolved.yaml"), NULL);
    ck_assert_msg(strstr(resolved, "\nchat_date: 2024-02-29\n") != NULL, "%s", resolved);
    free(resolved);
}
END_TEST

START_TEST(a_run_by_its_model_s_own_template_records_no_day_that_it_does_not_show) {
    tiny_make(dir, &(struct tiny){.vocab = 3000},
              "batch_size: 2\nmax_steps: 1\nlearning_rate: 1e-2\n");
    file_write(in_dir(dir, "chats.jsonl"), chats);
    scratch_copy(TOKENIZERS "/smollm2_style", in_dir(dir, "tokenizer"));
    TRAIN(0, "output_dir=first", "datasets=[{path: chats.jsonl}]", "max_seq_length=600",
          "tokenizer=tokenizer", "train_on=all");
    char *resolved = file_read(in_dir(dir, "first/config.resolved.yaml"), NULL);
    ck_assert_ptr_nonnull(strstr(resolved, "\nchat_template: auto\n"));
    ck_assert_ptr_null(strstr(resolved, "\nchat_date:"));
    free(resolved);
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.dataset");
    TCase *t = tcase_create("packing");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_loop_test(t, a_packed_step_is_the_step_of_the_same_rows, 0, N_JOBS);
    tcase_add_loop_test(t, two_packed_epochs_pass_over_every_row_twice, 0, 1);
    tcase_add_loop_test(t, a_packed_run_goes_on_bit_for_bit, 0, N_JOBS);
    tcase_add_loop_test(t, a_packed_step_that_runs_out_of_memory_keeps_its_rows, 0, N_JOBS);
    tcase_add_test(t, evaluation_does_not_depend_on_packing);
    tcase_add_loop_test(t, each_packed_row_of_longrope_may_turn_by_its_own_length, 0, N_JOBS);
    tcase_add_test(t, evaluation_of_longrope_may_turn_by_its_own_length);
    suite_add_tcase(s, t);
    t = tcase_create("mix");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, an_epoch_of_a_mix_has_the_tokens_of_its_weights);
    tcase_add_test(t, every_file_is_trained_on_and_held_out);
    tcase_add_test(t, a_run_says_what_its_files_hold);
    tcase_add_test(t, a_file_that_is_held_out_as_a_whole_is_named);
    tcase_add_test(t, a_mixed_run_goes_on_bit_for_bit);
    tcase_add_test(t, an_entry_of_the_split_eval_is_evaluated_and_not_trained);
    suite_add_tcase(s, t);
    t = tcase_create("ahead");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_loop_test(t, loading_ahead_changes_no_bit, 0, N_WAYS);
    tcase_add_test(t, the_summary_says_how_long_steps_waited_for_data);
    suite_add_tcase(s, t);
    t = tcase_create("chats");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, a_run_on_chats_records_their_template_and_day);
    tcase_add_test(t, chats_of_a_run_that_goes_on_show_the_day_it_began);
    tcase_add_test(t, a_run_by_its_model_s_own_template_records_no_day_that_it_does_not_show);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
