/* check_admission.c - which jobs start at all, and with which micro-batch. Through the real binary.
 *
 * The weight file of a job that must be refused is a pipe without a writer: whoever opens it for
 * reading hangs, and the test's limit tells. */
#include "tests/support/child.h"
#include "tests/support/hang.h"
#include "tests/support/joblog.h"
#include "tests/support/scratch.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Resident size of a process that allocated no arena. AddressSanitizer keeps what was freed. */
#ifdef __SANITIZE_ADDRESS__
#define MODEST_BYTES (UINT64_C(512) << 20)
#else
#define MODEST_BYTES (UINT64_C(64) << 20)
#endif

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

/* A model directory with this config.json and a weight file that nobody may open. */
static void make_model(const char *config) {
    ck_assert_int_eq(mkdir(in_dir(dir, "model"), 0777), 0);
    file_write(in_dir(dir, "model/config.json"), config);
    ck_assert_int_eq(mkfifo(in_dir(dir, "model/model.safetensors"), 0666), 0);
}

/* 7.6 billion parameters: shape of Qwen2.5-7B. */
static const char large_config[] =
    "{\"architectures\": [\"Qwen2ForCausalLM\"], \"model_type\": \"qwen2\", \"hidden_size\": "
    "3584,\n"
    " \"intermediate_size\": 18944, \"num_hidden_layers\": 28, \"num_attention_heads\": 28,\n"
    " \"num_key_value_heads\": 4, \"vocab_size\": 152064, \"max_position_embeddings\": 32768,\n"
    " \"rms_norm_eps\": 1e-6, \"rope_theta\": 1000000.0, \"tie_word_embeddings\": false,\n"
    " \"hidden_act\": \"silu\", \"torch_dtype\": \"bfloat16\"}\n";

static const struct {
    const char *more, *code;
} refusals[] = {
    /* full fine-tuning above the ceiling is refused on any card */
    {"mode: full\nvram_budget: 900GiB\n", "RUNTIME_FULL_FT_MODEL_TOO_LARGE"},
    {"mode: full\nvram_budget: 900GiB\npreflight: enforce\nfull_ft_ceiling_billions: 7.5\n",
     "RUNTIME_FULL_FT_MODEL_TOO_LARGE"},
    {"mode: full\nvram_budget: 40GiB\nfull_ft_ceiling_billions: 8\n", "RUNTIME_DOES_NOT_FIT"},
    {"mode: lora\nvram_budget: 12GiB\n", "RUNTIME_DOES_NOT_FIT"},
    {"mode: lora\nvram_budget: 12GiB\nbatch_size: auto\n", "RUNTIME_DOES_NOT_FIT"},
};

START_TEST(a_refused_job_touches_nothing) {
    tiny_make(dir, &(struct tiny){0}, "max_steps: 1\n"); /* its rows are read */
    make_model(large_config);
    bool chooses = strstr(refusals[_i].more, "batch_size") != NULL;
    file_write(in_dir(dir, "job.yaml"),
               textf("model: model\ndatasets:\n  - path: train.jsonl\n    format: tokens\n"
                     "max_seq_length: 512\nmax_steps: 1\noutput_dir: out\n%s%s",
                     chooses ? "" : "batch_size: 1\n", refusals[_i].more));
    struct outcome o =
        plimsoll_expect(3, dir, (const char *[]){"train", "job.yaml", "--json", NULL});
    ck_assert_msg(strstr(o.err, textf("error[%s]", refusals[_i].code)), "%s", o.err);
    ck_assert(!path_exists(in_dir(dir, "out")));
    ck_assert_uint_lt(o.peak_bytes, MODEST_BYTES);
    json_t *answer = json_loads(o.out, 0, NULL);
    const json_t *error = json_object_get(answer, "error");
    ck_assert_msg(error != NULL, "%s", o.out);
    ck_assert_str_eq(json_string_value(json_object_get(error, "code")), refusals[_i].code);
    json_decref(answer);
    outcome_finish(&o);
}
END_TEST

/* A job whose plan is above what this machine, or this process, may take. */
static const struct {
    const char *more, *limit, *bound;
} beyond[] = {
    {"vram_budget: 900TiB", "true", "memory"}, /* memory of the machine, or of the cgroup it runs
                                                  in */
#ifndef __SANITIZE_ADDRESS__
    {"vram_budget: 900TiB", "ulimit -v 500000", "RLIMIT_AS"},
    {"vram_budget: auto", "ulimit -v 500000", "RLIMIT_AS"},
    {"vram_budget: auto", "ulimit -d 400000", "RLIMIT_DATA"},
    {"vram_budget: auto", "ulimit -v 500000", "margin 16.00 MiB"},
    {"vram_margin: 1MiB", "ulimit -v 500000", "margin 1.00 MiB"},
#endif
};
static const char *const asked[] = {"train --dry-run", "validate", "train"};
#define N_ASKED (int)(sizeof asked / sizeof *asked)

START_TEST(what_is_there_bounds_every_answer_on_the_cpu) {
    tiny_make(
        dir, &(struct tiny){.hidden = 2048, .ffn = 1000000, .layers = 40},
        textf("max_steps: 1\nfull_ft_ceiling_billions: 100000\n%s\n", beyond[_i / N_ASKED].more));
    const char *command =
        textf("%s && exec \"$0\" %s run.yaml", beyond[_i / N_ASKED].limit, asked[_i % N_ASKED]);
    struct outcome o = child_run((const char *[]){"sh", "-c", command, getenv("PLIMSOLL"), NULL},
                                 dir, HANG_SECONDS);
    ck_assert_msg(o.status == 3, "%s: %d: %s", command, o.status, o.err);
    ck_assert_msg(strstr(o.err, "RUNTIME_DOES_NOT_FIT"), "%s", o.err);
    ck_assert_msg(strstr(o.err, beyond[_i / N_ASKED].bound), "%s", o.err);
    outcome_finish(&o);
}
END_TEST

/* Under `auto` a job that does not fit may fit with updates in the backward pass. */
#define KEPT "optimizer_in_backward: false\n"
#define FULL "gradient_checkpointing: full\n"

/* The refusal is about this byte, not about a margin somewhere. */
START_TEST(a_job_fits_a_card_of_its_exact_size_and_no_smaller) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 4\nmax_steps: 1\n" KEPT);
    struct outcome o =
        plimsoll_expect(0, dir, (const char *[]){"estimate-vram", "run.yaml", "--json", NULL});
    json_t *estimate = json_loads(o.out, 0, NULL);
    double bytes = joblog_number(json_object_get(estimate, "bytes"), "arena");
    json_decref(estimate);
    outcome_finish(&o);
    char budget[64];
    snprintf(budget, sizeof budget, "vram_budget=%.0fB", bytes - 1);
    o = plimsoll_expect(3, dir, (const char *[]){"train", "run.yaml", budget, NULL});
    ck_assert(!path_exists(in_dir(dir, "out")));
    outcome_finish(&o);
    snprintf(budget, sizeof budget, "vram_budget=%.0fB", bytes);
    o = plimsoll_expect(0, dir, (const char *[]){"train", "run.yaml", budget, NULL});
    outcome_finish(&o);
}
END_TEST

START_TEST(a_warning_is_printed_where_a_refusal_was_waived) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 4\nmax_steps: 1\nvram_budget: 590KiB\n" KEPT);
    struct outcome o = plimsoll_expect(3, dir, (const char *[]){"train", "run.yaml", NULL});
    outcome_finish(&o);
    o = plimsoll_expect(0, dir, (const char *[]){"train", "run.yaml", "preflight=warn", NULL});
    ck_assert_msg(strstr(o.err, "preflight: warn"), "%s", o.err);
    outcome_finish(&o);
}
END_TEST

/* Bytes of the arenas by a command that answers in JSON; level (nullable) gets what a note says
 * that the open level became, "" where no note does. */
static double arena_of(const char *command, const char *word, const char *budget, char level[32]) {
    static const char note[] = "gradient_checkpointing: auto is `";
    struct outcome o = plimsoll_expect(
        0, dir, (const char *[]){command, "run.yaml", "--json", word, budget, NULL});
    json_t *answer = json_loads(o.out, 0, NULL);
    const char *at = strstr(o.out, note);
    if (level)
        snprintf(level, 32, "%.*s", at ? (int)strcspn(at + sizeof note - 1, "`") : 0,
                 at ? at + sizeof note - 1 : "");
    const double bytes = joblog_number(json_object_get(answer, "bytes"), "arena");
    json_decref(answer);
    outcome_finish(&o);
    return bytes;
}

/* Trains, and returns the bytes that were planned; the run has to have had the level. */
static double trained_with(const char *out, const char *level, const char *word,
                           const char *budget) {
    plimsoll_train_expect(0, dir,
                          (const char *[]){textf("output_dir=%s", out), word, budget, NULL});
    char *resolved = file_read(in_dir(dir, textf("%s/config.resolved.yaml", out)), NULL);
    ck_assert_msg(strstr(resolved, textf("gradient_checkpointing: %s\n", level)), "%s", resolved);
    free(resolved);
    return joblog_summary(in_dir(dir, out), "planned_peak_bytes");
}

/* Estimate, plan and run have the same level, which a budget chooses that is named. */
START_TEST(a_level_that_is_not_written_follows_a_budget_that_is_named) {
    static const char full[] = "gradient_checkpointing=full",
                      none[] = "gradient_checkpointing=none",
                      open[] = "gradient_checkpointing=auto", plain[] = "seed=1";
    char level[32], budget[64];
    tiny_make(dir, &(struct tiny){.layers = 4}, "batch_size: 4\nmax_steps: 1\n" KEPT);
    const double least = arena_of("estimate-vram", full, NULL, NULL);
    const double most = arena_of("estimate-vram", none, NULL, NULL);
    ck_assert(least < most);
    ck_assert(arena_of("estimate-vram", plain, NULL, level) == least);
    ck_assert_str_eq(level, "");
    ck_assert(trained_with("free", "full", plain, NULL) == least);

    snprintf(budget, sizeof budget, "vram_budget=%.0fB", (least + most) / 2);
    const double bytes = arena_of("estimate-vram", plain, budget, level);
    ck_assert_msg(least < bytes && bytes < most, "%g of %g to %g", bytes, least, most);
    ck_assert(level[0] && strcmp(level, "full") != 0);
    ck_assert(arena_of("plan", plain, budget, NULL) == bytes);
    ck_assert(arena_of("estimate-vram", open, budget, NULL) == bytes);
    ck_assert(trained_with("named", level, plain, budget) == bytes);
    ck_assert(arena_of("estimate-vram", full, budget, NULL) == least);
    ck_assert(trained_with("written", "full", full, budget) == least);
}
END_TEST

static int verdict_of(const char *batch, const char *budget) {
    struct outcome o = plimsoll_run(
        dir, (const char *[]){"estimate-vram", "run.yaml", "--json", batch, budget, NULL});
    int status = o.status;
    outcome_finish(&o);
    return status;
}

static const struct {
    const char *mode, *budget, *more;
} cards[] = {
    {"full", "vram_budget=620KiB", KEPT FULL},
    {"full", "vram_budget=2500KB", KEPT "gradient_checkpointing: none\nloss_chunk_tokens: 64\n"},
    {"full", "vram_budget=1500KiB",
     KEPT FULL "dtype: bf16\nmax_grad_norm: 0\nmlp_chunk_tokens: 0\n"},
    {"lora", "vram_budget=700000B", FULL "lora_r: 4\nmlp_chunk_tokens: 0\n"},
};

START_TEST(auto_takes_the_largest_micro_batch_that_fits) {
    char yaml[256], word[64];
    snprintf(yaml, sizeof yaml, "batch_size: auto\nglobal_batch_size: 200\nmax_steps: 2\n%s",
             cards[_i].more);
    tiny_make(dir, &(struct tiny){.mode = cards[_i].mode, .rows = 200}, yaml);
    struct outcome o =
        plimsoll_expect(0, dir, (const char *[]){"train", "run.yaml", cards[_i].budget, NULL});
    outcome_finish(&o);
    json_t *log = joblog_read(in_dir(dir, "out"));
    double batch = joblog_number(joblog_event(log, "preflight", 0), "batch_size");
    ck_assert(batch >= 2 && batch < 200);
    ck_assert(joblog_number(joblog_event(log, "summary", 0), "oom_recoveries") == 0);
    json_decref(log);
    snprintf(word, sizeof word, "batch_size=%.0f", batch);
    ck_assert_int_eq(verdict_of(word, cards[_i].budget), 0);
    snprintf(word, sizeof word, "batch_size=%.0f", batch + 1);
    ck_assert_int_eq(verdict_of(word, cards[_i].budget), 3);
}
END_TEST

/* Whatever auto finds, a step sees the same samples. */
START_TEST(global_batch_size_keeps_the_samples_of_a_step) {
    tiny_make(dir, &(struct tiny){0},
              "batch_size: auto\nglobal_batch_size: 6\nmax_steps: 6\nlearning_rate: 0.01\n");
    static const char *const budgets[] = {"vram_budget=1GiB", "vram_budget=620KiB",
                                          "vram_budget=560KiB"};
    double batches[3], tokens[3][6];
    for (int i = 0; i < 3; i++) {
        struct outcome o = plimsoll_expect(
            0, dir,
            (const char *[]){"train", "run.yaml", budgets[i], textf("output_dir=out%d", i), NULL});
        outcome_finish(&o);
        json_t *log = joblog_read(textf("%s/out%d", dir, i));
        const json_t *begin = joblog_event(log, "preflight", 0);
        batches[i] = joblog_number(begin, "batch_size");
        double micro_batches = joblog_number(begin, "gradient_accumulation_steps");
        ck_assert(batches[i] * micro_batches >= 6 && batches[i] * (micro_batches - 1) < 6);
        /* One of the 24 rows trains nothing; the fourth step has the 5 that are left. */
        ck_assert(joblog_number(joblog_step(log, 6), "epoch") == (23.0 + 12.0) / 23.0);
        for (uint64_t step = 1; step <= 6; step++)
            tokens[i][step - 1] = joblog_number(joblog_step(log, step), "tokens");
        json_decref(log);
    }
    ck_assert(batches[0] == 6 && batches[1] < 6 && batches[2] < batches[1]);
    for (int step = 0; step < 6; step++)
        ck_assert(tokens[0][step] == tokens[1][step] && tokens[0][step] == tokens[2][step]);
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.admission");
    TCase *tc = tcase_create("jobs");
    tcase_set_timeout(tc, 90);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, a_refused_job_touches_nothing, 0,
                        (int)(sizeof refusals / sizeof *refusals));
    tcase_add_loop_test(tc, what_is_there_bounds_every_answer_on_the_cpu, 0,
                        N_ASKED * (int)(sizeof beyond / sizeof *beyond));
    tcase_add_test(tc, a_job_fits_a_card_of_its_exact_size_and_no_smaller);
    tcase_add_test(tc, a_warning_is_printed_where_a_refusal_was_waived);
    tcase_add_test(tc, a_level_that_is_not_written_follows_a_budget_that_is_named);
    tcase_add_loop_test(tc, auto_takes_the_largest_micro_batch_that_fits, 0,
                        (int)(sizeof cards / sizeof *cards));
    tcase_add_test(tc, global_batch_size_keeps_the_samples_of_a_step);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
