/* check_experts.c - questions that people ask about a card, and what an expert's answer to them has
 * in common: not our figures, but what must be true of any good answer. PLIMSOLL names the
 * binary. */
#include "estimator/base/text.h"
#include "tests/support/child.h"
#include "tests/support/draws.h"
#include "tests/support/hang.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WORDS 12
#define GAIN      0.02 /* PL_WAY_GAIN: less of a step's time is not worth a change */

enum offload { NEEDS_NONE, NEEDS_HOST };

static const struct question {
    const char *words[MAX_WORDS];
    bool fits;            /* some way to train it is within reach */
    enum offload offload; /* `offload` of the recommended way */
    int step;             /* samples; 0: none was asked for */
    const char *has;      /* a line of the configuration; NULL: any */
    double host_gib;      /* bound of host memory; 0: none */
} questions[] = {
    /* an 8B chat model on a 4090: 16-bit LoRA just fits, no host memory, no 4 bits */
    {{"Llama-3.1-8B", "--mode", "lora", "--gpu", "RTX 4090"}, true, NEEDS_NONE, 0, "mode: lora", 0},
    /* 14B on 16 GB, and 8B on 12 GB: in 4 bits on the device alone */
    {{"Qwen2.5-14B", "--mode", "lora", "--gpu", "RTX 4080"}, true, NEEDS_NONE, 0, "mode: qlora", 0},
    {{"Llama-3.1-8B", "--mode", "lora", "--gpu", "RTX 3060"},
     true,
     NEEDS_NONE,
     0,
     "mode: qlora",
     0},
    /* all of a 7B on 24 GB: states and weights in the 128 GB of the host, and not without them */
    {{"Qwen2.5-7B", "--mode", "full", "--gpu", "RTX 4090", "--host-ram", "128GiB"},
     true,
     NEEDS_HOST,
     0,
     "full_ft_offload: true",
     128},
    /* and in 40 and 18 GB of it: gradients are used up where they are made */
    {{"Qwen2.5-7B", "--mode", "full", "--gpu", "RTX 4090", "--host-ram", "40GB"},
     true,
     NEEDS_HOST,
     0,
     "optimizer_in_backward: true",
     37.25},
    {{"Qwen2.5-7B", "--mode", "full", "--gpu", "RTX 4090", "--host-ram", "18GB"},
     true,
     NEEDS_HOST,
     0,
     "moment_dtype: bf16",
     16.76},
    {{"Qwen2.5-7B", "--mode", "full", "--gpu", "RTX 4090", "--host-ram", "8GiB"},
     false,
     NEEDS_NONE,
     0,
     NULL,
     8},
    /* a T4 computes in fp16; a V100 would hold it, and has no kernels */
    {{"Phi-4-mini", "--mode", "qlora", "--gpu", "T4"}, true, NEEDS_NONE, 0, "dtype: fp16", 0},
    {{"Phi-4-mini", "--mode", "qlora", "--gpu", "V100"}, false, NEEDS_NONE, 0, NULL, 0},
    /* 32B on a 3090; 70B on 48 GB, and on 24 GB with and without a host that holds the rest */
    {{"Qwen2.5-32B", "--mode", "qlora", "--gpu", "RTX 3090"},
     true,
     NEEDS_NONE,
     0,
     "mode: qlora",
     0},
    {{"Llama-3.1-70B", "--mode", "qlora", "--gpu", "L40S"}, true, NEEDS_NONE, 0, "mode: qlora", 0},
    {{"Llama-3.1-70B", "--mode", "qlora", "--gpu", "RTX 3090"}, true, NEEDS_HOST, 0, NULL, 0},
    {{"Llama-3.1-70B", "--mode", "qlora", "--gpu", "RTX 3090", "--host-ram", "16GiB"},
     false,
     NEEDS_NONE,
     0,
     NULL,
     16},
    /* all of a 1B on a laptop of 8 GB, with updates in the backward pass; of a 3B on a 4090 */
    {{"Llama-3.2-1B", "--mode", "full", "--gpu", "RTX 4060 Laptop"},
     true,
     NEEDS_NONE,
     0,
     "optimizer_in_backward: true",
     0},
    {{"SmolLM3-3B", "--mode", "full", "--gpu", "RTX 4090"}, true, NEEDS_NONE, 0, "mode: full", 0},
    /* 32k tokens on 80 GB: the length is kept */
    {{"Llama-3.1-8B", "--mode", "qlora", "--gpu", "H100", "--max-seq-length", "32768"},
     true,
     NEEDS_NONE,
     0,
     "max_seq_length: 32768",
     0},
    /* a small model on a large card: nothing is computed twice and nothing is rounded */
    {{"SmolLM2-135M", "--mode", "full", "--gpu", "H100"},
     true,
     NEEDS_NONE,
     0,
     "gradient_checkpointing: none",
     0},
    /* steps of a length that was asked for, in three ways of saying it */
    {{"Mistral-7B-v0.3", "--mode", "lora", "--gpu", "A10G", "--effective-batch", "64"},
     true,
     NEEDS_NONE,
     64,
     "mode: lora",
     0},
    {{"Llama-3.2-1B", "--mode", "lora", "--gpu", "RTX 4090", "--batch-size", "4",
      "--gradient-accumulation-steps", "4"},
     true,
     NEEDS_NONE,
     16,
     "mode: lora",
     0},
    {{"Llama-3.2-1B", "--mode", "lora", "--gpu", "RTX 4090", "--batch-size", "2"},
     true,
     NEEDS_NONE,
     2,
     "mode: lora",
     0},
    /* a slice of a card; and offload that was asked for where nothing needs it */
    {{"Qwen2.5-3B", "--mode", "lora", "--gpu", "A100 1g.10gb"},
     true,
     NEEDS_NONE,
     0,
     "mode: lora",
     0},
    {{"Llama-3.2-1B", "--mode", "lora", "--gpu", "RTX 4090", "--offload", "weights"},
     true,
     NEEDS_NONE,
     0,
     "mode: lora",
     0},
    /* all of an 8B on 80 GB, without host memory: states and gradients in fewer bits */
    {{"Llama-3.1-8B", "--mode", "full", "--gpu", "H100"}, true, NEEDS_NONE, 0, "mode: full", 0},
    /* all of a small model on a desktop card, and of larger ones that just fit */
    {{"Qwen3-0.6B", "--mode", "full", "--gpu", "RTX 3090"}, true, NEEDS_NONE, 0, "mode: full", 0},
    {{"SmolLM2-1.7B", "--mode", "full", "--gpu", "RTX 4080", "--effective-batch", "16"},
     true,
     NEEDS_NONE,
     16,
     "mode: full",
     0},
    /* and of a 4B, before anything moves to the host */
    {{"Qwen3-4B", "--mode", "full", "--gpu", "RTX 4090", "--host-ram", "32GiB"},
     true,
     NEEDS_NONE,
     0,
     "optimizer_in_backward: true",
     32},
    /* 12B on 16 GB, 24B on 24 GB, 72B on 141 GB: in 4 bits; 8B on 6 GB, with nothing to spare */
    {{"Gemma-3-12B", "--mode", "lora", "--gpu", "RTX 4080"}, true, NEEDS_NONE, 0, "mode: qlora", 0},
    {{"Mistral-Small-24B", "--mode", "qlora", "--gpu", "RTX 4090"},
     true,
     NEEDS_NONE,
     0,
     "mode: qlora",
     0},
    {{"Qwen2.5-72B", "--mode", "lora", "--gpu", "H200"}, true, NEEDS_NONE, 0, "mode: qlora", 0},
    {{"Llama-3.1-8B", "--mode", "qlora", "--gpu", "RTX 3050 6GB"},
     true,
     NEEDS_NONE,
     0,
     "mode: qlora",
     0},
    /* 16k tokens on 24 GB: the length is kept */
    {{"Llama-3.1-8B", "--mode", "qlora", "--gpu", "RTX 4090", "--max-seq-length", "16384"},
     true,
     NEEDS_NONE,
     0,
     "max_seq_length: 16384",
     0},
    /* a job that fits as it is keeps its mode and its step */
    {{"Llama-3.1-8B", "--mode", "lora", "--gpu", "A100 80GB", "--global-batch-size", "32"},
     true,
     NEEDS_NONE,
     32,
     "mode: lora",
     0},
    {{"Phi-4-mini", "--mode", "lora", "--gpu", "RTX 3060", "--effective-batch", "8"},
     true,
     NEEDS_NONE,
     8,
     "mode: lora",
     0},
};
#define N_QUESTIONS (int)(sizeof questions / sizeof *questions)
#define EVERY       DRAWS(1, 4) /* which of them are asked */

static json_t *json_of(struct outcome *p) {
    json_t *root = json_loads(p->out, 0, NULL);
    ck_assert_msg(json_is_object(root), "%s%s", p->out, p->err);
    outcome_finish(p);
    return root;
}

static json_t *ask(const char *const words[], const char *cwd) {
    const char *argv[MAX_WORDS + 3] = {"plan", "--json"};
    for (int i = 0; i < MAX_WORDS && words[i]; i++)
        argv[2 + i] = words[i];
    struct outcome p = plimsoll_run(cwd, argv);
    return json_of(&p);
}

static const json_t *at(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    ck_assert_msg(v != NULL, "%s", key);
    return v;
}

static const char *word_after(const struct question *q, const char *flag) {
    for (int i = 0; i + 1 < MAX_WORDS && q->words[i]; i++)
        if (strcmp(q->words[i], flag) == 0) return q->words[i + 1];
    return NULL;
}

static const char *mode_of(const json_t *way) {
    return strstr(json_string_value(at(way, "yaml")), "mode: ");
}

static bool same_mode(const json_t *a, const json_t *b) {
    return strncmp(mode_of(a), mode_of(b), strlen("mode: qlo")) == 0;
}

/* W2 of recommend.h, W3 of recommend.h: No way that fits, on the device as the recommended one is
 * and of its mode, is faster. */
static void check_order(const json_t *ways) {
    size_t i;
    json_t *w;
    const json_t *best = json_array_get(ways, 0);
    const bool host = json_integer_value(at(best, "host_bytes")) > 0;
    json_array_foreach(ways, i, w) {
        const bool other_host = json_integer_value(at(w, "host_bytes")) > 0;
        ck_assert_str_eq(json_string_value(at(w, "verdict")), "fits");
        ck_assert(!host || other_host);
        if (host == other_host && same_mode(w, best))
            ck_assert_double_gt(json_real_value(at(w, "relative_time")), 1 - GAIN);
    }
}

/* W1 of recommend.h: The printed command, the written file and the answer to it agree: the bytes
 * are the same, and they fit. */
static void check_retyped(const struct question *q, const json_t *best, const char *dir) {
    struct outcome p = plimsoll_run(dir, (const char *[]){"estimate-vram", "job.yaml", "--gpu",
                                                          word_after(q, "--gpu"), "--json", NULL});
    ck_assert_msg(p.status == 0, "%s", p.err);
    json_t *o = json_of(&p);
    ck_assert_str_eq(json_string_value(at(o, "verdict")), "fits");
    ck_assert_int_eq(json_integer_value(at(at(o, "limits"), "needed_bytes")),
                     json_integer_value(at(best, "needed_bytes")));
    json_decref(o);
}

/* No row of all levels, which know nothing of a recommendation, that makes the same step is
 * faster. */
static void check_levels(const struct question *q, const char *dir) {
    size_t i;
    json_t *row;
    double own = 0, fastest = 0;
    json_t *o = ask((const char *[MAX_WORDS]){"job.yaml", "--gpu", word_after(q, "--gpu")}, dir);
    json_array_foreach(at(o, "recompute"), i, row) {
        const json_t *point = at(row, "at_micro_batch");
        if (!json_is_object(point)) continue;
        const double time = json_real_value(at(point, "relative_time"));
        if (json_is_true(at(row, "chosen"))) own = time;
        if (fastest <= 0 || time < fastest) fastest = time;
    }
    ck_assert_double_gt(own, 0);
    ck_assert_double_lt(own * (1 - GAIN), fastest);
    json_decref(o);
}

/* The older member of the answer says the same. */
static void check_advice(const json_t *advice, const json_t *best) {
    ck_assert(json_equal(at(advice, "yaml"), at(best, "yaml")));
    ck_assert(json_equal(at(advice, "command"), at(best, "command")));
    ck_assert(json_equal(at(advice, "recommended_batch_size"), at(best, "batch_size")));
    ck_assert(json_equal(at(advice, "gradient_accumulation_steps"),
                         at(best, "gradient_accumulation_steps")));
    ck_assert(json_equal(at(at(advice, "price"), "needed_bytes"), at(best, "needed_bytes")));
}

static void check_job(const struct question *q, const json_t *ways) {
    const json_t *best = json_array_get(ways, 0);
    const char *yaml = json_string_value(at(best, "yaml"));
    const json_int_t host = json_integer_value(at(best, "host_bytes"));
    char dir[SCRATCH_PATH];
    if (q->has) ck_assert_msg(strstr(yaml, q->has) != NULL, "%s\n%s", q->has, yaml);
    ck_assert_msg((host > 0) == (q->offload == NEEDS_HOST), "%s", yaml);
    if (q->host_gib > 0) ck_assert_double_le((double)host, q->host_gib * 1073741824.0);
    if (q->step)
        ck_assert_int_eq(json_integer_value(at(best, "batch_size")) *
                             json_integer_value(at(best, "gradient_accumulation_steps")),
                         q->step);
    check_order(ways);
    scratch_make(dir);
    file_write(in_dir(dir, "job.yaml"), yaml);
    check_retyped(q, best, dir);
    if (q->offload == NEEDS_NONE) check_levels(q, dir);
    scratch_remove(dir);
}

/* Each of the commands that are named instead is typed, and answers. Only where host memory was
 * limited one of them takes it. */
static void check_commands(const struct question *q, const json_t *commands) {
    size_t i;
    json_t *c;
    ck_assert_uint_gt(json_array_size(commands), 0);
    json_array_foreach(commands, i, c) {
        char line[4096];
        const char *words = json_string_value(c) + strlen("plimsoll");
        ck_assert(strncmp(json_string_value(c), "plimsoll ", strlen("plimsoll ")) == 0);
        ck_assert_msg(q->host_gib > 0 || strstr(words, "offload") == NULL, "%s", words);
        ck_assert_int_lt(snprintf(line, sizeof line, "\"$PLIMSOLL\"%s", words), (int)sizeof line);
        struct outcome p = child_run((const char *[]){"sh", "-c", line, NULL}, NULL, HANG_SECONDS);
        ck_assert_msg(p.status == 0 && strncmp(p.out, "recommended", 11) == 0, "%s\n%s%s", line,
                      p.out, p.err);
        outcome_finish(&p);
    }
}

START_TEST(an_answer_is_one_that_an_expert_would_give) {
    const struct question *q = &questions[_i * EVERY];
    json_t *o = ask(q->words, NULL);
    const json_t *r = at(o, "recommended"), *ways = at(r, "ways");
    ck_assert_msg((json_array_size(ways) > 0) == q->fits, "%s", q->words[0]);
    if (q->fits) check_advice(at(o, "advice"), json_array_get(ways, 0));
    if (q->fits)
        check_job(q, ways);
    else
        check_commands(q, at(r, "commands"));
    json_decref(o);
}
END_TEST

/* --- the page -------------------------------------------------------------------------------- */

static int lines_to_the_gap(const char *text) {
    int n = 0;
    for (; *text && *text != '\n'; n++)
        text += strcspn(text, "\n") + (text[strcspn(text, "\n")] == '\n');
    return n;
}

#define SMALL "SmolLM2-135M", "--mode", "lora", "--vram", "4GiB"
#define DATA                                                                                       \
    "--samples", "1000", "--mean-tokens", "400", "--longest-tokens", "1200", "--effective-batch",  \
        "8"

START_TEST(a_plan_opens_with_ten_lines_and_the_job) {
    struct outcome p = plimsoll_expect(0, NULL, (const char *[]){"plan", SMALL, NULL});
    const int lines = lines_to_the_gap(p.out);
    ck_assert_msg(strncmp(p.out, "recommended", 11) == 0 && lines > 5 && lines <= 10, "%s", p.out);
    ck_assert_ptr_nonnull(strstr(p.out, "\nmodel: SmolLM2-135M\n"));
    ck_assert_ptr_nonnull(strstr(p.out, "\nvram_budget: "));
    ck_assert_ptr_null(strstr(p.out, "batch x length"));
    outcome_finish(&p);
}
END_TEST

START_TEST(tables_come_by_name_or_all_together) {
    static const char *const titles[] = {"batch x length", "\nlimits", "\nsettings",
                                         "\nrecompute",    "\ncards",  "\nassumes"};
    enum { N = sizeof titles / sizeof *titles };
    struct outcome all = plimsoll_expect(0, NULL, (const char *[]){"plan", SMALL, "--all", NULL});
    struct outcome two =
        plimsoll_expect(0, NULL, (const char *[]){"plan", SMALL, "--tables", "limits,cards", NULL});
    ck_assert(strncmp(all.out, "recommended", 11) == 0);
    for (int i = 0; i < N; i++) {
        ck_assert_msg(strstr(all.out, titles[i]) != NULL, "%s", titles[i]);
        ck_assert_int_eq(strstr(two.out, titles[i]) != NULL, i == 1 || i == 4);
    }
    ck_assert_ptr_null(strstr(two.out, "recommended"));
    outcome_finish(&all);
    outcome_finish(&two);
}
END_TEST

static const struct {
    const char *flag, *value, *said;
} bad[] = {
    {"--tables", "grid,limit", "`limit` is none of the tables of `plan`"},
    {"--tables", "", "wants names, such as"},
    {"--host-ram", "128", "--host-ram wants a size such as 128GiB, not `128`"},
    {"--host-ram", "much", "not `much`"},
};

/* The tables that the hint names are all there are: each is taken, and prints something. */
START_TEST(the_hint_names_every_table) {
    struct outcome p = plimsoll_expect(
        2, NULL, (const char *[]){"plan", SMALL, "--tables", "no-such-table", NULL});
    char *names = strstr(p.err, "they are: "), *rest = NULL;
    int n = 0;
    ck_assert_msg(names != NULL, "%s", p.err);
    names[strcspn(names, "\n")] = 0;
    names += strlen("they are: ");
    for (char *word = strtok_r(names, ", ", &rest); word; word = strtok_r(NULL, ", ", &rest), n++) {
        struct outcome one =
            plimsoll_expect(0, NULL, (const char *[]){"plan", SMALL, DATA, "--tables", word, NULL});
        ck_assert_msg(strlen(one.out) > 40, "%s: %s", word, one.out);
        ck_assert_msg(strstr(one.out, "\n") != NULL, "%s", word);
        outcome_finish(&one);
    }
    ck_assert_int_eq(n, 10);
    outcome_finish(&p);
}
END_TEST

START_TEST(a_table_or_a_size_that_is_none_is_a_usage_error) {
    struct outcome p = plimsoll_expect(
        2, NULL, (const char *[]){"plan", SMALL, bad[_i].flag, bad[_i].value, NULL});
    ck_assert_msg(strstr(p.err, bad[_i].said) != NULL, "%s", p.err);
    outcome_finish(&p);
}
END_TEST

/* W5 of recommend.h: Twice the samples of the recommended micro-batch are asked about: they would
 * not be faster by more than what is worth it, or do not fit. */
START_TEST(a_batch_ends_where_throughput_does) {
    json_t *o =
        ask((const char *[MAX_WORDS]){"SmolLM2-135M", "--mode", "lora", "--gpu", "H100"}, NULL);
    const json_t *best = json_array_get(at(at(o, "recommended"), "ways"), 0);
    ck_assert_int_ge(json_integer_value(at(best, "batch_size")), 2);
    ck_assert_int_lt(json_integer_value(at(best, "batch_size")),
                     json_integer_value(at(at(o, "advice"), "largest_batch_size")) / 2);
    json_decref(o);
}
END_TEST

/* --- packing ---------------------------------------------------------------------------------- */

static bool way_packs(const json_t *way) {
    return strstr(json_string_value(at(way, "yaml")), "packing: true") != NULL;
}

static void write_samples(const char *dir, int words) {
    struct pl_text lines = {0};
    for (int i = 0; i < 64; i++) {
        pl_text_add(&lines, "{\"text\": \"");
        for (int k = 0; k < words; k++)
            pl_text_add(&lines, "word ");
        pl_text_add(&lines, "\"}\n");
    }
    file_write(in_dir(dir, "data.jsonl"), pl_text_str(&lines));
    pl_text_finish(&lines);
}

/* Samples of 100 tokens in slots of the longest one, which is added to them. */
static const struct {
    const char *data, *word, *samples;
    bool offered;
} packings[] = {
    {"dataset: data.jsonl\ntokenizer: byte\n", "seed=1", NULL, true},
    {"dataset: data.jsonl\ntokenizer: byte\n", "seed=1", "64", true},
    {"dataset: data.jsonl\ntokenizer: byte\n", "seed=1", "21", true},
    {"dataset: data.jsonl\ntokenizer: byte\n", "seed=1", "2", false},        /* a slot holds more */
    {"dataset: data.jsonl\ntokenizer: byte\n", "packing=true", "64", false}, /* it is so */
    {"", "seed=1", "64", false},
};

START_TEST(packing_is_a_way_where_there_is_data_for_it) {
    char dir[SCRATCH_PATH];
    size_t i, packed = 0;
    json_t *w;
    scratch_make(dir);
    write_samples(dir, 20);
    FILE *f = fopen(in_dir(dir, "data.jsonl"), "a");
    ck_assert_ptr_nonnull(f);
    fprintf(f, "{\"text\": \"%01500d\"}\n", 1);
    fclose(f);
    file_write(in_dir(dir, "job.yaml"),
               textf("model: SmolLM2-360M\nmode: lora\n%s", packings[_i].data));
    const char *words[MAX_WORDS] = {"job.yaml", "--gpu", "RTX 3060", packings[_i].word};
    if (packings[_i].samples) words[4] = "--effective-batch";
    words[5] = packings[_i].samples;
    json_t *o = ask(words, dir);
    const json_t *ways = at(at(o, "recommended"), "ways");
    ck_assert_uint_gt(json_array_size(ways), 1);
    json_array_foreach(ways, i, w) {
        const double samples = json_real_value(at(w, "samples_per_step"));
        const bool packs = way_packs(w) && strcmp(packings[_i].word, "packing=true") != 0;
        packed += packs;
        if (packs && packings[_i].samples)
            ck_assert_double_le(samples, strtod(packings[_i].samples, NULL));
        if (packs) ck_assert_double_gt(samples, json_integer_value(at(w, "batch_size")));
        if (packings[_i].offered && !packs) /* a slot of one short sample is slower for a token */
            ck_assert_double_gt(json_real_value(at(w, "relative_time")), 1.02);
    }
    ck_assert_int_eq(packed > 0, packings[_i].offered);
    if (packed) ck_assert(way_packs(json_array_get(ways, 0)));
    json_decref(o);
    scratch_remove(dir);
}
END_TEST

int main(void) {
    Suite *s = suite_create("advice.experts");
    TCase *tc = tcase_create("questions");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, an_answer_is_one_that_an_expert_would_give, 0,
                        (N_QUESTIONS + EVERY - 1) / EVERY);
    tcase_add_test(tc, a_batch_ends_where_throughput_does);
    tcase_add_test(tc, a_plan_opens_with_ten_lines_and_the_job);
    tcase_add_test(tc, tables_come_by_name_or_all_together);
    tcase_add_test(tc, the_hint_names_every_table);
    tcase_add_loop_test(tc, a_table_or_a_size_that_is_none_is_a_usage_error, 0,
                        (int)(sizeof bad / sizeof *bad));
    suite_add_tcase(s, tc);
    tc = tcase_create("packing");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, packing_is_a_way_where_there_is_data_for_it, 0,
                        (int)(sizeof packings / sizeof *packings));
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
