/* check_answers.c - estimate-vram, inspect and configuration errors through the binary: the figures
 * agree with each other, the exit status with the verdict, the place with the file.
 * PLIMSOLL names the binary; runs in the repository root. */
#include "estimator/base/text.h"
#include "tests/support/child.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL     "configs/quickstart-model"
#define MAX_WORDS 12

/* Runs `estimate-vram MODEL --json device=cpu words`; the answer, to be released by the caller. */
static json_t *estimate(const char *const words[], int *status) {
    const char *argv[MAX_WORDS + 5] = {"estimate-vram", MODEL, "--json", "device=cpu"};
    for (int i = 0; words[i]; i++) {
        ck_assert_int_lt(i, MAX_WORDS);
        argv[4 + i] = words[i];
    }
    struct outcome p = plimsoll_run(NULL, argv);
    json_error_t error;
    json_t *root = json_loads(p.out, 0, &error);
    ck_assert_msg(root != NULL, "%s: %s%s", error.text, p.out, p.err);
    ck_assert_str_eq(p.err, "");
    *status = p.status;
    outcome_finish(&p);
    return root;
}

static json_int_t integer_at(const json_t *root, const char *object, const char *key) {
    const json_t *v = json_object_get(json_object_get(root, object), key);
    ck_assert_msg(json_is_integer(v), "%s.%s", object, key);
    return json_integer_value(v);
}

#define LEVEL "gradient_checkpointing=full" /* under `auto` a heavier level takes less */
static const char *const shapes[][MAX_WORDS] = {
    {"--mode", "full", "--dtype", "fp32", "--batch-size", "4", "mlp_chunk_tokens=0", LEVEL},
    {"--mode", "full", "--batch-size", "3", "--max-seq-length", "257", "mlp_chunk_tokens=0", LEVEL},
    {"--mode", "lora", "--batch-size", "2", "gradient_checkpointing=none", "loss_chunk_tokens=99"},
    {"--mode", "lora", "--batch-size", "5", "gradient_checkpointing=light", "lora_r=3",
     "loss_chunk_tokens=256"},
    {"--mode", "inference", "--batch-size", "3", "--max-seq-length", "77"},
    {"--mode=inference", "--dtype", "fp32", "--batch-size", "1", "lora_r=5"},
    {"--mode=full", "--batch_size=1", "--max-seq-length=64", "--vram=64MiB", "freeze_layers=2",
     LEVEL},
};
#define N_SHAPES (int)(sizeof shapes / sizeof *shapes)

START_TEST(the_ledger_adds_up_to_the_arena_byte_for_byte) {
    int status;
    json_t *root = estimate(shapes[_i], &status);
    json_int_t sum = 0;
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(root, "ledger"), i, row) sum +=
        json_integer_value(json_object_get(row, "bytes"));
    ck_assert_int_gt(sum, 0);
    ck_assert_int_eq(sum, integer_at(root, "bytes", "arena"));
    ck_assert_int_eq(sum + integer_at(root, "bytes", "context"),
                     integer_at(root, "bytes", "total"));
    ck_assert_int_eq(integer_at(root, "bytes", "job_arena") +
                         integer_at(root, "bytes", "batch_arena"),
                     integer_at(root, "bytes", "arena"));
    json_decref(root);
}
END_TEST

/* The line between yes and no is one byte wide. */
START_TEST(a_budget_of_the_total_fits_and_one_byte_less_does_not) {
    int status;
    json_t *root = estimate(shapes[_i], &status);
    json_int_t total = integer_at(root, "bytes", "total");
    json_decref(root);

    const char *words[MAX_WORDS];
    char budget[64];
    size_t n = 0;
    for (; shapes[_i][n]; n++)
        words[n] = shapes[_i][n];
    words[n] = budget;
    words[n + 1] = strstr(shapes[_i][1], "full") || strstr(shapes[_i][0], "full")
                       ? "optimizer_in_backward=false" /* under `auto` one byte less is enough */
                       : NULL;
    words[n + 2] = NULL;
    for (int short_by = 0; short_by < 2; short_by++) {
        snprintf(budget, sizeof budget, "vram_budget=%" JSON_INTEGER_FORMAT "B", total - short_by);
        root = estimate(words, &status);
        ck_assert_str_eq(json_string_value(json_object_get(root, "verdict")),
                         short_by ? "no" : "fits");
        ck_assert_int_eq(status, short_by ? 3 : 0);
        json_decref(root);
    }
}
END_TEST

/* Estimates a full fine-tune in 300 MiB; level and batch (nullable) are words of keys. */
static json_t *estimate_in_300_mib(const char *level, const char *batch, int *status) {
    const char *words[MAX_WORDS] = {"--mode", "full",   "--max-seq-length",  "256",
                                    "--vram", "300MiB", "mlp_chunk_tokens=0"};
    int n = 7;
    if (level) words[n++] = level;
    if (batch) words[n++] = batch;
    return estimate(words, status);
}

static json_int_t best_of(json_t *root) {
    const json_int_t best = json_integer_value(json_object_get(root, "recommended_batch_size"));
    json_decref(root);
    return best;
}

static int status_of_batch(const char *level, json_int_t batch) {
    int status;
    char word[32];
    snprintf(word, sizeof word, "batch_size=%" JSON_INTEGER_FORMAT, batch);
    json_decref(estimate_in_300_mib(level, word, &status));
    return status;
}

START_TEST(the_recommended_batch_fits_and_the_next_does_not) {
    int status;
    json_t *root = estimate_in_300_mib(LEVEL, NULL, &status);
    /* a step that no key sizes has 16 samples */
    const json_int_t batch_size = json_integer_value(json_object_get(root, "batch_size"));
    const json_int_t best = best_of(root);
    ck_assert_int_gt(best, 1);
    ck_assert_int_eq(batch_size, best < 16 ? best : 16);
    ck_assert_int_eq(status_of_batch(LEVEL, best), 0);
    ck_assert_int_eq(status_of_batch(LEVEL, best + 1), 3);
}
END_TEST

/* A level that is chosen for one sample holds fewer than the job could have. */
START_TEST(a_chosen_level_recommends_no_fewer_samples_than_full) {
    int status;
    const json_int_t full = best_of(estimate_in_300_mib(LEVEL, "batch_size=1", &status));
    ck_assert_int_eq(best_of(estimate_in_300_mib(NULL, "batch_size=1", &status)), full);
    ck_assert_int_lt(
        best_of(estimate_in_300_mib("gradient_checkpointing=auto", "batch_size=1", &status)), full);
    ck_assert_int_eq(status_of_batch(NULL, full), 0);
}
END_TEST

START_TEST(gb_is_ten_to_the_ninth_on_the_command_line) {
    int status;
    json_t *root = estimate((const char *[]){"--batch-size", "1", "--vram-gb", "2", NULL}, &status);
    ck_assert_int_eq(integer_at(root, "limits", "budget_bytes"), 2000000000);
    json_decref(root);
    root = estimate((const char *[]){"--batch-size", "1", "--vram", "2GiB", NULL}, &status);
    ck_assert_int_eq(integer_at(root, "limits", "budget_bytes"), 2147483648);
    json_decref(root);
}
END_TEST

/* A budget on the command line is a card's, whatever is in this machine; in a file it is of what
 * would run the job. */
static const struct {
    const char *words[4];
    bool in_file, gpu;
} targets[] = {
    {{"--vram-gb", "24"}, false, true},
    {{"vram_budget=24GB"}, false, true},
    {{"--vram-gb", "24", "--device", "cuda"}, false, true},
    {{"--vram-gb", "24", "--device", "cpu"}, false, false},
    {{NULL}, false, false},
    {{NULL}, true, false},
    {{"--vram", "8GiB"}, true, true},
};

/* Q2 of inquiry.h */
START_TEST(a_budget_beside_the_job_asks_about_a_gpu) {
    const char *argv[8] = {"estimate-vram", "SmolLM2-135M", "--mode=lora"};
    char dir[SCRATCH_PATH], file[SCRATCH_PATH + 16];
    scratch_make(dir);
    snprintf(file, sizeof file, "%s/run.yaml", dir);
    file_write(file, "model: SmolLM2-135M\nmode: lora\nvram_budget: 2GiB\n");
    if (targets[_i].in_file) argv[1] = file;
    for (int i = 0; i < 4; i++)
        argv[3 + i] = targets[_i].words[i];
    struct outcome p = plimsoll_expect(0, NULL, argv);
    const char *target = targets[_i].gpu ? "; planned for a GPU" : "; planned for the CPU";
    ck_assert_msg(strstr(p.out, target) != NULL, "%s", p.out);
    ck_assert_msg((strstr(p.out, "  context ") != NULL) == targets[_i].gpu, "%s", p.out);
    outcome_finish(&p);
    scratch_remove(dir);
}
END_TEST

/* Q3 of inquiry.h */
START_TEST(a_budget_replaces_the_size_of_a_gpu_and_not_its_context) {
    struct outcome p =
        plimsoll_expect(0, NULL,
                        (const char *[]){"estimate-vram", "SmolLM2-135M", "--mode=lora", "--gpu",
                                         "RTX 4090", "--vram", "8GiB", "--json", NULL});
    json_t *root = json_loads(p.out, 0, NULL);
    ck_assert_int_eq(integer_at(root, "limits", "budget_bytes"), INT64_C(8) << 30);
    ck_assert_int_gt(integer_at(root, "bytes", "context"), 0);
    json_decref(root);
    outcome_finish(&p);
}
END_TEST

START_TEST(the_summary_is_the_first_line_for_people) {
    struct outcome p =
        plimsoll_expect(0, NULL,
                        (const char *[]){"estimate-vram", MODEL, "--mode", "full", "--batch-size",
                                         "2", "--max-seq-length", "256", NULL});
    static const char start[] = "VRAM estimate (full, 4.8M params, batch=2, seq=256): total=";
    ck_assert_msg(strncmp(p.out, start, strlen(start)) == 0, "%s", p.out);
    ck_assert_ptr_null(strchr(p.out, '\033'));
    outcome_finish(&p);
}
END_TEST

static const struct {
    const char *command, *yaml;
    int status;
    const char *code;
    json_int_t line, column;
} broken[] = {
    {"train", "mode: full\nmodel: m\nlora_r: 0\n", 2, "CONFIG_RANGE", 3, 9},
    {"train", "mode: full\nmodel: m\nlora_rr: 8\n", 2, "CONFIG_UNKNOWN_KEY", 3, 1},
    {"validate", "mode: full\nmode: lora\nmodel: m\n", 2, "CONFIG_DUPLICATE_KEY", 2, 1},
    {"estimate-vram", "mode: full\nmodel: m\nbatch_size: many\n", 2, "CONFIG_TYPE", 3, 13},
    {"inspect", "mode: full\nmodel: m\nlora_r: [\n", 2, "CONFIG_SYNTAX", 4, 1},
};

START_TEST(a_configuration_error_points_at_its_place_on_both_streams) {
    char dir[SCRATCH_PATH];
    scratch_make(dir);
    const char *path = in_dir(dir, "run.yaml");
    file_write(path, broken[_i].yaml);
    struct outcome p = plimsoll_expect(broken[_i].status, NULL,
                                       (const char *[]){broken[_i].command, path, "--json", NULL});
    scratch_remove(dir);
    json_t *root = json_loads(p.out, 0, NULL);
    json_t *e = json_object_get(root, "error");
    ck_assert_msg(json_is_object(e), "%s", p.out);
    ck_assert_str_eq(json_string_value(json_object_get(e, "code")), broken[_i].code);
    ck_assert_str_eq(json_string_value(json_object_get(e, "file")), path);
    ck_assert_int_eq(json_integer_value(json_object_get(e, "line")), broken[_i].line);
    ck_assert_int_eq(json_integer_value(json_object_get(e, "column")), broken[_i].column);
    const char *place = textf("plimsoll: error[%s]: %s:%d:%d: ", broken[_i].code, path,
                              (int)broken[_i].line, (int)broken[_i].column);
    ck_assert_msg(strncmp(p.err, place, strlen(place)) == 0, "%s", p.err);
    ck_assert_ptr_nonnull(strstr(p.err, "\nhint: "));
    json_decref(root);
    outcome_finish(&p);
}
END_TEST

/* The model has more parameters than the size gate lets through by default. */
START_TEST(a_plan_without_a_budget_prints_a_command_that_answers) {
    struct outcome p = plimsoll_expect(
        0, NULL, (const char *[]){"plan", "Qwen2.5-7B", "--mode", "full", "--json", NULL});
    json_t *root = json_loads(p.out, 0, NULL);
    const char *command =
        json_string_value(json_object_get(json_object_get(root, "advice"), "command"));
    ck_assert_msg(command && strncmp(command, "plimsoll ", 9) == 0, "%s", p.out);
    const int status = system(textf("'%s' %s >/dev/null", getenv("PLIMSOLL"), command + 9));
    ck_assert_msg(status == 0, "%s: status %d", command, status);
    json_decref(root);
    outcome_finish(&p);
}
END_TEST

static unsigned count_of(const char *text, const char *what) {
    unsigned n = 0;
    for (; (text = strstr(text, what)); text += strlen(what))
        n++;
    return n;
}

START_TEST(every_error_of_a_configuration_is_shown_at_once) {
    static const char *const commands[] = {"train", "validate", "plan", "estimate-vram",
                                           "tokenize"};
    static const char *const codes[] = {"CONFIG_UNKNOWN_KEY", "CONFIG_TYPE", "CONFIG_CONFLICT"};
    char dir[SCRATCH_PATH];
    scratch_make(dir);
    file_write(in_dir(dir, "bad.yaml"),
               "model: m\nmode: lora\nlora_rr: 8\nseed: x\ndataset: d\nwarmup_steps: 1\n"
               "warmup_ratio: 0.5\n");
    struct outcome p =
        plimsoll_expect(2, dir, (const char *[]){commands[_i], "bad.yaml", "--json", NULL});
    ck_assert_uint_eq(count_of(p.err, "plimsoll: error["), 3);
    ck_assert_ptr_nonnull(strstr(p.err, "bad.yaml:3:1: `lora_rr` is not a key\n"
                                        "hint: did you mean `lora_r`?\n"
                                        "plimsoll: error[CONFIG_TYPE]: bad.yaml:4:7: "));
    json_t *answer = json_loads(p.out, 0, NULL), *all = json_object_get(answer, "errors");
    ck_assert_uint_eq(json_array_size(all), 3);
    for (size_t i = 0; i < 3; i++)
        ck_assert_str_eq(json_string_value(json_object_get(json_array_get(all, i), "code")),
                         codes[i]);
    ck_assert(json_equal(json_array_get(all, 0), json_object_get(answer, "error")));
    json_decref(answer);
    outcome_finish(&p);
    file_write(in_dir(dir, "bad.yaml"), "model: m\nmode: lora\nseed: x\ndataset: d\n");
    p = plimsoll_expect(2, dir, (const char *[]){commands[_i], "bad.yaml", "--json", NULL});
    ck_assert_ptr_null(strstr(p.out, "\"errors\""));
    outcome_finish(&p);
    scratch_remove(dir);
}
END_TEST

START_TEST(no_more_than_twenty_errors_are_shown) {
    char dir[SCRATCH_PATH];
    struct pl_text yaml = {0};
    scratch_make(dir);
    pl_text_add(&yaml, "model: m\nmode: lora\n");
    for (int i = 0; i < 30; i++)
        pl_text_addf(&yaml, "no_such_key_%d: 1\n", i);
    file_write(in_dir(dir, "bad.yaml"), pl_text_str(&yaml));
    struct outcome p = plimsoll_expect(2, dir, (const char *[]){"plan", "bad.yaml", NULL});
    ck_assert_uint_eq(count_of(p.err, "plimsoll: error["), 20);
    ck_assert_ptr_nonnull(strstr(p.err, "no more than 20 errors are shown\n"));
    outcome_finish(&p);
    pl_text_finish(&yaml);
    scratch_remove(dir);
}
END_TEST

/* A job of adapters answers what it would take to train all of it. */
START_TEST(a_plan_under_another_mode_warns_of_keys_without_a_meaning) {
    static const char *const commands[] = {"plan", "estimate-vram", "inspect"};
    char dir[SCRATCH_PATH];
    scratch_make(dir);
    file_write(in_dir(dir, "job.yaml"),
               "model: SmolLM2-135M\nmode: lora\nlora_r: 8\nlora_target_modules: [q_proj]\n"
               "max_seq_length: 64\nbatch_size: 1\ndevice: cpu\n");
    struct outcome p =
        plimsoll_expect(0, dir, (const char *[]){commands[_i], "job.yaml", "mode=full", NULL});
    ck_assert_msg(strstr(p.err, "plimsoll: warning: job.yaml:3: `lora_r` has no meaning with "
                                "`mode: full`: it is ignored\n") &&
                      strstr(p.err, "job.yaml:4: `lora_target_modules` has no meaning"),
                  "%s", p.err);
    outcome_finish(&p);
    p = plimsoll_expect(
        2, dir, (const char *[]){commands[_i], "job.yaml", "mode=full", "adapter_path=a", NULL});
    ck_assert_ptr_nonnull(strstr(p.err, "error[CONFIG_CONFLICT]"));
    outcome_finish(&p);
    scratch_remove(dir);
}
END_TEST

/* A remedy of another mode is offered for the same words. */
START_TEST(a_remedy_of_the_mode_can_be_typed_with_a_key_that_was_ignored) {
    const char *words[] = {"estimate-vram", "SmolLM2-135M", "mode=full", "layers_pattern=layers",
                           "--device=cuda", "--vram=1GiB",  NULL};
    struct outcome p = plimsoll_expect(3, NULL, words);
    ck_assert_msg(strstr(p.out, ": mode: lora\n") != NULL, "%s", p.out);
    outcome_finish(&p);
    words[2] = "mode=lora";
    p = plimsoll_expect(0, NULL, words);
    outcome_finish(&p);
}
END_TEST

static const char *const strange_models[] = {
    "unsupported/gpt2",
    "unsupported/gemma-2-2b",
    "unsupported/Mixtral-8x7B",
    "unsupported/falcon-7b",
    "bad/unknown_model_type.json",
    "bad/quantization_gptq.json",
    "bad/hidden_act_unknown.json",
};
static const struct {
    const char *command, *flags[3];
    bool yaml_only, asks;
} uses_of_a_model[] = {
    {"estimate-vram", {"--gpu", "H100"}, false, true},
    {"plan", {"--gpu", "H100"}, false, true},
    {"plan", {"--csv"}, false, true},
    {"inspect", {"--program"}, false, false},
    {"validate", {0}, true, false},
    {"train", {0}, true, false},
    {"train", {"--dry-run"}, true, false},
};
#define N_STRANGE (int)(sizeof strange_models / sizeof *strange_models)
#define N_USES    (int)(sizeof uses_of_a_model / sizeof *uses_of_a_model)

static void check_stranger(int use, const char *subject, bool json) {
    const char *argv[10] = {uses_of_a_model[use].command, subject, "--mode", "lora"};
    int n = 4;
    bool csv = false;
    for (int i = 0; uses_of_a_model[use].flags[i]; i++) {
        argv[n++] = uses_of_a_model[use].flags[i];
        csv |= strcmp(argv[n - 1], "--csv") == 0;
    }
    if (json && csv) return;
    if (json) argv[n++] = "--json";
    struct outcome p = plimsoll_run(NULL, argv);
    bool asks = uses_of_a_model[use].asks;
    ck_assert_msg(p.status == (asks ? 3 : 5), "%s %s: exit %d: %s", argv[0], subject, p.status,
                  p.err);
    const char start[] = "plimsoll: error[MODEL_UNSUPPORTED]: ";
    ck_assert_msg(strstr(p.err, start) != NULL, "%s %s: %s", argv[0], subject, p.err);
    json_t *root = json ? json_loads(p.out, 0, NULL) : NULL;
    if (json) {
        ck_assert_msg(json_is_object(json_object_get(root, "error")), "%s: %s", argv[0], p.out);
        const char *verdict = json_string_value(json_object_get(root, "verdict"));
        ck_assert_str_eq(verdict ? verdict : "none", asks ? "unknown" : "none");
    } else if (asks) {
        ck_assert_msg(strncmp(p.out, "verdict: unknown - ", 19) == 0, "%s", p.out);
    } else {
        ck_assert_str_eq(p.out, "");
    }
    json_decref(root);
    outcome_finish(&p);
}

/* Q4 of inquiry.h: the question whether a model fits whose architecture is not computed here has an
 * answer, `unknown`; what would use such a model has a bad file. Not even the word that names the
 * model matters. */
START_TEST(commands_agree_on_what_cannot_be_computed) {
    char dir[SCRATCH_PATH], yaml[512], cwd[256];
    const char *model = textf("tests/model/configs/%s", strange_models[_i]);
    scratch_make(dir);
    const char *run = in_dir(dir, "run.yaml");
    ck_assert_ptr_nonnull(getcwd(cwd, sizeof cwd));
    snprintf(yaml, sizeof yaml, "model: %s/%s\ninit: pretrained\ndataset: none.jsonl\n", cwd,
             model);
    file_write(run, yaml);
    for (int use = 0; use < N_USES; use++)
        for (int json = 0; json < 2; json++) {
            check_stranger(use, run, json);
            if (!uses_of_a_model[use].yaml_only) check_stranger(use, model, json);
        }
    scratch_remove(dir);
}
END_TEST

START_TEST(commands_with_a_flag_for_the_model_agree_with_them) {
    static const char *const commands[][8] = {
        {"generate", "--prompt-ids", "1", "--max-new-tokens", "1"},
        {"merge", "--adapter", "none", "--output", "/nonexistent/out"},
    };
    const char *argv[12] = {0};
    int n = 0;
    for (; commands[_i][n]; n++)
        argv[n] = commands[_i][n];
    argv[n++] = "--model";
    argv[n] = textf("tests/model/configs/%s", strange_models[0]);
    struct outcome p = plimsoll_expect(5, NULL, argv);
    ck_assert_msg(strstr(p.err, "plimsoll: error[MODEL_UNSUPPORTED]: "), "%s", p.err);
    outcome_finish(&p);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cli.answers");
    TCase *tc = tcase_create("answers");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, the_ledger_adds_up_to_the_arena_byte_for_byte, 0, N_SHAPES);
    tcase_add_loop_test(tc, a_budget_of_the_total_fits_and_one_byte_less_does_not, 0, N_SHAPES);
    tcase_add_test(tc, the_recommended_batch_fits_and_the_next_does_not);
    tcase_add_test(tc, a_chosen_level_recommends_no_fewer_samples_than_full);
    tcase_add_test(tc, gb_is_ten_to_the_ninth_on_the_command_line);
    tcase_add_loop_test(tc, a_budget_beside_the_job_asks_about_a_gpu, 0,
                        (int)(sizeof targets / sizeof *targets));
    tcase_add_test(tc, a_plan_without_a_budget_prints_a_command_that_answers);
    tcase_add_test(tc, a_budget_replaces_the_size_of_a_gpu_and_not_its_context);
    tcase_add_test(tc, the_summary_is_the_first_line_for_people);
    tcase_add_loop_test(tc, a_configuration_error_points_at_its_place_on_both_streams, 0,
                        (int)(sizeof broken / sizeof *broken));
    tcase_add_loop_test(tc, every_error_of_a_configuration_is_shown_at_once, 0, 5);
    tcase_add_test(tc, no_more_than_twenty_errors_are_shown);
    tcase_add_loop_test(tc, a_plan_under_another_mode_warns_of_keys_without_a_meaning, 0, 3);
    tcase_add_test(tc, a_remedy_of_the_mode_can_be_typed_with_a_key_that_was_ignored);
    tcase_add_loop_test(tc, commands_agree_on_what_cannot_be_computed, 0, N_STRANGE);
    tcase_add_loop_test(tc, commands_with_a_flag_for_the_model_agree_with_them, 0, 2);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
