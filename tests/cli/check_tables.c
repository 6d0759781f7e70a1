/* check_tables.c - cards, models and devices through the binary; MODEL by name; verdicts against a
 * GPU of the table; values that are none. PLIMSOLL names the binary; runs in the repository root.
 */
#include "tests/support/child.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WORDS 12

#if defined(__SANITIZE_ADDRESS__)
#define INSTRUMENTED 1
#else
#define INSTRUMENTED 0
#endif

static json_t *ask(const char *const words[], int status) {
    struct outcome p = plimsoll_run(NULL, words);
    json_error_t error;
    json_t *root = json_loads(p.out, 0, &error); /* refuses anything besides one object */
    ck_assert_msg(root != NULL, "%s: %s%s", error.text, p.out, p.err);
    ck_assert_msg(p.status == status, "exit %d: %s%s", p.status, p.out, p.err);
    ck_assert_int_eq(json_integer_value(json_object_get(root, "schema")), 1);
    outcome_finish(&p);
    return root;
}

static double number(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    ck_assert_msg(json_is_number(v), "%s", key);
    return json_number_value(v);
}

static const char *text(const json_t *o, const char *key) {
    const char *s = json_string_value(json_object_get(o, key));
    ck_assert_msg(s != NULL, "%s", key);
    return s;
}

START_TEST(cards_are_at_least_forty_and_none_is_taken_at_its_nameplate) {
    json_t *root = ask((const char *[]){"cards", "--json", NULL}, 0), *c;
    size_t i;
    ck_assert_uint_ge(json_array_size(json_object_get(root, "cards")), 40);
    json_array_foreach(json_object_get(root, "cards"), i, c) {
        ck_assert_double_lt(number(c, "usable_bytes"), number(c, "nameplate_gb") * (1 << 30));
        ck_assert_double_gt(number(c, "context_bytes"), number(c, "context_doubt_bytes"));
        ck_assert_int_eq(json_is_true(json_object_get(c, "trains")),
                         atof(text(c, "compute_capability")) >= 7.5);
        ck_assert_str_ne(text(c, "source"), "");
    }
    json_decref(root);
}
END_TEST

START_TEST(the_tables_for_people_have_a_line_for_every_row) {
    static const struct {
        const char *command, *list;
        size_t extra; /* headings and notes */
    } tables[] = {{"cards", "cards", 2}, {"models", "models", 1}};
    for (size_t t = 0; t < 2; t++) {
        json_t *root = ask((const char *[]){tables[t].command, "--json", NULL}, 0), *row;
        struct outcome p = plimsoll_expect(0, NULL, (const char *[]){tables[t].command, NULL});
        size_t i, lines = 0;
        json_array_foreach(json_object_get(root, tables[t].list), i, row)
            ck_assert_msg(strstr(p.out, text(row, "name")), "%s", text(row, "name"));
        for (const char *s = p.out; *s; s++)
            lines += *s == '\n';
        ck_assert_uint_eq(lines,
                          json_array_size(json_object_get(root, tables[t].list)) + tables[t].extra);
        outcome_finish(&p);
        json_decref(root);
    }
}
END_TEST

START_TEST(models_are_the_catalogue_with_exact_counts) {
    json_t *root = ask((const char *[]){"models", "--json", NULL}, 0), *m;
    size_t i, seen = 0;
    ck_assert_uint_eq(json_array_size(json_object_get(root, "models")), 99);
    json_array_foreach(json_object_get(root, "models"), i, m) {
        ck_assert_uint_gt(json_array_size(json_object_get(m, "ids")), 0);
        if (strcmp(text(m, "name"), "Qwen2.5-7B") != 0) continue;
        ck_assert_double_eq(number(m, "param_count"), 7615616512.0);
        ck_assert_double_eq(number(m, "linear_param_count"), 6525288448.0);
        seen++;
    }
    ck_assert_uint_eq(seen, 1);
    json_decref(root);
}
END_TEST

START_TEST(devices_always_has_a_processor_and_says_why_there_is_no_gpu) {
    ck_assert_int_eq(setenv("PLIMSOLL_NVML", "/no/such/library.so", 1), 0);
    json_t *root = ask((const char *[]){"devices", "--json", NULL}, 0);
    const json_t *cpu = json_object_get(root, "cpu");
    ck_assert_double_ge(number(cpu, "cores"), 1);
    ck_assert_ptr_nonnull(text(cpu, "kernels"));
    ck_assert_double_ge(number(cpu, "total_bytes"), number(cpu, "available_bytes"));
    ck_assert_double_gt(number(cpu, "available_bytes"), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(root, "gpus")), 0);
    ck_assert_ptr_nonnull(strstr(text(root, "no_gpu_because"), "library.so"));
    json_decref(root);
    struct outcome p = plimsoll_expect(0, NULL, (const char *[]){"devices", NULL});
    ck_assert_ptr_nonnull(strstr(p.out, "cuda    none: "));
    outcome_finish(&p);
}
END_TEST

/* --- MODEL by name ---------------------------------------------------------------------------- */

START_TEST(a_name_an_id_and_a_directory_give_the_same_bytes) {
    static const char *const names[] = {"Qwen2.5-0.5B", "Qwen/Qwen2.5-0.5B-Instruct",
                                        "qwen/qwen2.5-0.5b", "tests/model/configs/Qwen2.5-0.5B"};
    char want[64] = "";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char total[64];
        json_t *root = ask((const char *[]){"estimate-vram", names[i], "--mode", "lora",
                                            "--batch-size", "2", "--gpu", "L4", "--json", NULL},
                           0);
        snprintf(total, sizeof total, "%.0f", number(json_object_get(root, "bytes"), "total"));
        if (i == 0) strcpy(want, total);
        ck_assert_str_eq(total, want);
        json_decref(root);
    }
}
END_TEST

START_TEST(a_seventy_billion_model_by_name_costs_little) {
    unsetenv("MALLOC_PERTURB_"); /* fills, and so touches, what is never used */
    struct outcome p = plimsoll_expect(3, NULL,
                                       (const char *[]){"estimate-vram", "Llama-3.1-70B", "--mode",
                                                        "lora", "--batch-size", "1", "--gpu",
                                                        "A100-80GB", "--json", NULL});
    if (!INSTRUMENTED) ck_assert_uint_lt(p.peak_bytes, 14u << 20); /* remedies included */
    outcome_finish(&p);
}
END_TEST

START_TEST(every_command_that_names_a_model_finds_it_by_name) {
    struct outcome p =
        plimsoll_expect(0, NULL,
                        (const char *[]){"inspect", "--program", "SmolLM2-135M", "--mode", "full",
                                         "--batch-size", "1", "--max-seq-length", "32", NULL});
    ck_assert_ptr_nonnull(strstr(p.out, "layers.29"));
    outcome_finish(&p);
    json_t *program =
        ask((const char *[]){"inspect", "SmolLM2-135M", "--batch-size", "1", "--json", NULL}, 0);
    ck_assert_uint_gt(json_array_size(json_object_get(program, "program")), 1000);
    ck_assert_ptr_nonnull(
        strstr(json_string_value(json_array_get(json_object_get(program, "notes"), 0)), "`mode`"));
    json_decref(program);

    char dir[SCRATCH_PATH];
    scratch_make(dir);
    file_write(in_dir(dir, "data.jsonl"), "{\"input_ids\": [1, 2, 3, 4]}\n");
    file_write(in_dir(dir, "known.yaml"),
               "model: HuggingFaceTB/SmolLM2-135M-Instruct\nmode: lora\nmax_seq_length: 16\n"
               "batch_size: 1\ndataset: data.jsonl\noutput_dir: out\ndevice: cpu\n");
    json_t *root =
        ask((const char *[]){"train", in_dir(dir, "known.yaml"), "--dry-run", "--json", NULL}, 0);
    ck_assert_double_eq(number(root, "param_count"), 134515008.0);
    json_decref(root);
    /* weights that are not here are missed before anything starts */
    for (int i = 0; i < 2; i++) {
        root = ask(
            (const char *[]){i ? "train" : "validate", in_dir(dir, "known.yaml"), "--json", NULL},
            5);
        ck_assert_str_eq(text(json_object_get(root, "error"), "code"), "MODEL_WEIGHTS");
        json_decref(root);
    }
    file_write(in_dir(dir, "unknown.yaml"),
               "model: SmolLM2-135N\nmode: lora\ndataset: data.jsonl\noutput_dir: out\n");
    root = ask((const char *[]){"validate", in_dir(dir, "unknown.yaml"), "--json", NULL}, 5);
    ck_assert_str_eq(text(json_object_get(root, "error"), "code"), "MODEL_FILE");
    ck_assert_ptr_nonnull(strstr(text(json_object_get(root, "error"), "hint"), "SmolLM2-135M"));
    json_decref(root);
    scratch_remove(dir);
}
END_TEST

/* --- verdicts --------------------------------------------------------------------------------- */

static const struct {
    const char *words[MAX_WORDS]; /* words after: estimate-vram --mode lora --json */
    int status;
    const char *verdict, *warning; /* in stderr */
} verdicts[] = {
    {{"SmolLM2-135M", "--gpu", "RTX 3060", "--batch-size", "1"}, 0, "fits", NULL},
    {{"Qwen2.5-7B", "--gpu", "T4", "--batch-size", "1"}, 3, "no", NULL},
    /* 15.31 GiB of arenas on 15.74 usable, of which 0.39 to 0.59 may go to the context */
    {{"Qwen2.5-7B", "--gpu", "RTX 4080", "--batch-size", "1", "--max-seq-length", "1536"},
     0,
     "tight",
     "warning: tight"},
    {{"SmolLM2-135M", "--batch-size", "1"}, 0, "unknown", NULL},
    {{"tests/model/configs/unsupported/gpt2", "--gpu", "H100"}, 3, "unknown", "MODEL_UNSUPPORTED"},
};

START_TEST(a_verdict_has_its_exit_status) {
    const char *words[MAX_WORDS + 5] = {"estimate-vram", "--mode", "lora", "--json"};
    memcpy(words + 4, verdicts[_i].words, sizeof verdicts[_i].words);
    ck_assert_int_eq(setenv("PLIMSOLL_NVML", "/no/such/library.so", 1), 0);
    json_t *root = ask(words, verdicts[_i].status);
    ck_assert_str_eq(text(root, "verdict"), verdicts[_i].verdict);
    const json_t *fits = json_object_get(root, "fits");
    if (strcmp(verdicts[_i].verdict, "unknown") == 0)
        ck_assert(json_is_null(fits));
    else
        ck_assert_int_eq(json_is_true(fits), verdicts[_i].status == 0);
    json_decref(root);
    struct outcome p = plimsoll_run(NULL, words);
    if (verdicts[_i].warning)
        ck_assert_msg(strstr(p.err, verdicts[_i].warning), "%s", p.err);
    else
        ck_assert_str_eq(p.err, "");
    outcome_finish(&p);
}
END_TEST

START_TEST(the_verdict_counts_usable_bytes_less_margin_and_context) {
    json_t *root = ask((const char *[]){"estimate-vram", "Qwen2.5-7B", "--mode", "lora", "--gpu",
                                        "RTX 4090", "--batch-size", "2", "--json", NULL},
                       0);
    const json_t *limits = json_object_get(root, "limits"), *bytes = json_object_get(root, "bytes");
    ck_assert_str_eq(text(limits, "source"), "RTX 4090");
    ck_assert_double_lt(number(limits, "budget_bytes"), 24e9 * 1.0737);
    ck_assert_double_eq(number(limits, "margin_bytes"), 64 << 20);
    ck_assert_double_gt(number(bytes, "context"), 0);
    ck_assert_double_lt(number(limits, "usable_bytes"),
                        number(limits, "budget_bytes") - number(bytes, "context"));
    ck_assert_double_ge(number(limits, "usable_bytes"), number(bytes, "arena"));
    ck_assert_double_eq(number(bytes, "total"), number(bytes, "arena") + number(bytes, "context"));
    json_decref(root);
}
END_TEST

static const struct {
    const char *words[MAX_WORDS]; /* words after: estimate-vram */
    const char *text;             /* in stderr */
} bad[] = {
    {{"SmolLM2-135M", "--vram-gb", "-5"}, "not `-5`"},
    {{"SmolLM2-135M", "--vram-gb", "0"}, "must be above 0"},
    {{"SmolLM2-135M", "--vram-gb", "0.0000000001"}, "must be above 0"},
    {{"SmolLM2-135M", "--vram-gb", "nan"}, "not `nan`"},
    {{"SmolLM2-135M", "--vram-gb", "inf"}, "not `inf`"},
    {{"SmolLM2-135M", "--vram-gb", "abc"}, "not `abc`"},
    {{"SmolLM2-135M", "--vram-gb", "1.2.3"}, "1.2.3"},
    {{"SmolLM2-135M", "--vram-gb", "99999999999999999999999"}, "vram_budget"},
    {{"SmolLM2-135M", "--vram", "0"}, "must be above 0"},
    {{"SmolLM2-135M", "--vram", "-16GiB"}, "-16GiB"},
    {{"SmolLM2-135M", "--vram", "16 parsecs"}, "16 parsecs"},
    {{"SmolLM2-135M", "--gpu", "RTX 4091"}, "did you mean RTX 4090"},
    {{"SmolLM2-135M", "--gpu", ""}, "no GPU of the table is called ``"},
    {{"SmolLM2-135M", "--gpu"}, "--gpu needs a value"},
    {{"SmolLM2-135M", "--batch-size", "0"}, "batch_size"},
    {{"SmolLM2-135M", "--batch-size", "-3"}, "batch_size"},
    {{"SmolLM2-135M", "--max-seq-length", "99999999999999999999"}, "max_seq_length"},
    {{"SmolLM2-135M", "--mode", "lorra"}, "lora"},
    {{"SmolLM2-135N"}, "did you mean SmolLM2-135M"},
    {{"Qwen/Qwen2.5-7B-Instuct"}, "did you mean Qwen2.5-7B-Instruct"},
    {{"somebody/Qwen2.5-7B"}, "did you mean Qwen2.5-7B"},
    {{"no-such-model"}, "no model is called `no-such-model`"},
};

START_TEST(a_value_that_is_none_is_refused_in_a_sentence) {
    const char *words[MAX_WORDS + 2] = {"estimate-vram"};
    memcpy(words + 1, bad[_i].words, sizeof bad[_i].words);
    struct outcome p = plimsoll_expect(2, NULL, words);
    ck_assert_msg(strstr(p.err, bad[_i].text), "%s", p.err);
    ck_assert_str_eq(p.out, "");
    outcome_finish(&p);
}
END_TEST

START_TEST(a_broken_hub_cache_is_said_and_does_not_stop_a_known_model) {
    char dir[SCRATCH_PATH];
    scratch_make(dir);
    const char *repo = textf("%s/models--Qwen--Qwen2.5-0.5B", dir);
    scratch_copy("configs/quickstart-model", repo); /* a repository without refs/main */
    ck_assert_int_eq(setenv("HF_HUB_CACHE", dir, 1), 0);
    json_t *root = ask((const char *[]){"estimate-vram", "Qwen/Qwen2.5-0.5B", "--json", NULL}, 0);
    const char *note = json_string_value(json_array_get(json_object_get(root, "notes"), 1));
    ck_assert_msg(note && strstr(note, "is broken"), "%s", note ? note : "no note");
    ck_assert_double_eq(number(root, "param_count"), 494032768.0);
    json_decref(root);
    scratch_remove(dir);
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

int main(void) {
    Suite *s = suite_create("cli.tables");
    TCase *tc = tcase_create("tables");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, cards_are_at_least_forty_and_none_is_taken_at_its_nameplate);
    tcase_add_test(tc, the_tables_for_people_have_a_line_for_every_row);
    tcase_add_test(tc, models_are_the_catalogue_with_exact_counts);
    tcase_add_test(tc, devices_always_has_a_processor_and_says_why_there_is_no_gpu);
    tcase_add_test(tc, a_name_an_id_and_a_directory_give_the_same_bytes);
    tcase_add_test(tc, a_seventy_billion_model_by_name_costs_little);
    tcase_add_test(tc, every_command_that_names_a_model_finds_it_by_name);
    tcase_add_loop_test(tc, a_verdict_has_its_exit_status, 0, COUNT(verdicts));
    tcase_add_test(tc, the_verdict_counts_usable_bytes_less_margin_and_context);
    tcase_add_loop_test(tc, a_value_that_is_none_is_refused_in_a_sentence, 0, COUNT(bad));
    tcase_add_test(tc, a_broken_hub_cache_is_said_and_does_not_stop_a_known_model);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
