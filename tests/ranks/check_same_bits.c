/* check_same_bits.c - any number of ranks, any sharding: the losses, norms, weights and checkpoints
 * of one rank.
 *
 * GOLDEN_CASES names the directory of the golden cases, which stand for what there is to train;
 * those of preferences are in the directory "preference" next to it. PLIMSOLL_ALL_CUTS, when set,
 * adds every case of it, as it is and packed, on 2 and 4 ranks with every sharding. */
#include "tests/ranks/crew.h"
#include "tests/support/joblog.h"
#include "tests/support/saved.h"
#include "tests/support/tensorset.h"

#include <check.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#define PREFERENCE "../preference/"

static const struct kind {
    const char *name;    /* directory of the golden case */
    const char *samples; /* samples of a step */
    const char *more[4]; /* NULL-terminated */
    bool lora;
} kinds[] = {
    {"llama-full", "8", {NULL}, false},
    {"llama-tied-llama3", "8", {NULL}, false},
    {"gemma3-full", "8", {NULL}, false},
    {"llama-accumulate", "24", {NULL}, false},
    {"llama-full", "5", {NULL}, false}, /* 3 micro-batches, of which the last has one sample */
    {"llama-full", "8", {"dtype=bf16", NULL}, false},
    {"llama-full", "8", {"dtype=bf16", "master_weights=false", "gradient_dtype=bf16"}, false},
    {"llama-full", "8", {"dtype=fp16", "debug_inject=overflow@step=2", NULL}, false},
    {"lora-llama", "8", {"dtype=fp16", "debug_inject=overflow@step=3,count=2", NULL}, true},
    {"qwen2-full", "8", {"packing=true", "val_set_size=5", "eval_steps=3", NULL}, false},
    {"qwen2-full", "7", {"val_set_size=5", "eval_steps=3", NULL}, false}, /* 3 to evaluate */
    {"llama-freeze", "8", {NULL}, false},
    {"llama-full", "8", {"gradient_checkpointing=full", "mlp_chunk_tokens=5", NULL}, false},
    {"lora-llama", "8", {NULL}, true},
    {"lora-llama", "6", {"lora_dropout=0.3", "dtype=bf16", NULL}, true},
    {"lora-whole", "4", {NULL}, true},
    {"lora-adamw8bit", "8", {NULL}, true},
    {"qlora-llama", "8", {"gradient_checkpointing=full", "unpack_buffer=4KiB", NULL}, true},
    {"qlora-qwen2-bf16", "8", {"quantize_embedding=true", NULL}, true},
    {PREFERENCE "dpo-lora", "7", {"val_set_size=3", "eval_steps=2", NULL}, true},
    {PREFERENCE "dpo-accumulate", "6", {"batch_size=1", "dtype=bf16", NULL}, false},
    {PREFERENCE "orpo-lora", "6", {"val_set_size=3", "eval_steps=2", NULL}, true},
    {PREFERENCE "kto-full", "6", {"batch_size=2", "val_set_size=3", "eval_steps=2"}, false},
    {PREFERENCE "kto-lora", "9", {"precompute_reference=true", "lora_dropout=0.3"}, true},
    {"qwen3moe-qlora", "8", {"gradient_checkpointing=full", NULL}, true},
    {"qwen3moe-aux-loss", "8", {NULL}, false},
    {"qwen3moe-lora-experts", "8", {NULL}, true},
    {"qwen3moe-lora-experts-fused", "8", {NULL}, true},
    {"qwen3moe-lora-experts-fused", "6", {"optimizer=lion", "adapter_dtype=bf16", NULL}, true},
    {"gptoss-full", "8", {NULL}, false},
    {"gptoss-mxfp4", "8", {NULL}, true},
    {"qwen35-full", "8", {"packing=true", NULL}, false},
    {"qwen35-lora", "5", {NULL}, true},
    {"gemma4-shared-kv-ple", "8", {NULL}, false},
    {"gemma4-lora", "7", {"lora_dropout=0.3", NULL}, true},
    {"exaone4-full", "8", {"dtype=bf16", NULL}, false},
};
enum { KINDS = sizeof kinds / sizeof *kinds, CUTS = 5, EMULATED_CUTS = 2 };

static const char *const shardings[] = {"none", "optimizer", "gradients", "weights"};
enum { SHARDINGS = sizeof shardings / sizeof *shardings };

static void train(const struct kind *k, const char *ranks, const char *sharding, const char *out) {
    const char *words[24] = {"train",
                             "run.yaml",
                             textf("device=%s", crew_device()),
                             "threads=1",
                             "preflight=off",
                             "rank_order=true",
                             "gradient_accumulation_steps=null",
                             "logging_steps=1",
                             "save_steps=1000",
                             textf("global_batch_size=%s", k->samples),
                             textf("devices=%s", ranks),
                             textf("sharding=%s", sharding),
                             textf("output_dir=%s", out)};
    int n = 13;
    for (int i = 0; i < 4 && k->more[i]; i++)
        words[n++] = k->more[i];
    struct outcome o = plimsoll_expect(0, textf("%s/%s", getenv("GOLDEN_CASES"), k->name), words);
    outcome_finish(&o);
}

/* Tokens are counted, preferences are measured. */
static void expect_same_evaluation(const json_t *a, const json_t *b) {
    static const char *const figures[] = {"loss", "right_tokens", "rewards/margins", "kl"};
    const bool counts = json_object_get(a, "right_tokens") != NULL;
    ck_assert(counts || json_object_get(a, "rewards/margins"));
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        const json_t *x = json_object_get(a, figures[i]), *y = json_object_get(b, figures[i]);
        ck_assert_msg(x == y || json_equal(x, y), "the evaluation of step %g has another %s",
                      joblog_number(a, "step"), figures[i]);
    }
}

static void expect_same_evaluations(const char *a, const char *b) {
    json_t *x = joblog_read(a), *y = joblog_read(b);
    ck_assert_uint_eq(joblog_count(x, "eval"), joblog_count(y, "eval"));
    for (size_t i = 0; i < joblog_count(x, "eval"); i++)
        expect_same_evaluation(joblog_event(x, "eval", i), joblog_event(y, "eval", i));
    json_decref(x);
    json_decref(y);
}

struct runs {
    const char *a, *b;
    unsigned found;
};

static void expect_same_checkpoint(const char *name, void *ctx) {
    struct runs *r = ctx;
    if (strncmp(name, "checkpoint-", 11) != 0) return;
    checkpoint_assert_same(textf("%s/%s", r->a, name), textf("%s/%s", r->b, name));
    r->found++;
}

static void expect_same(const struct kind *k, const char *a, const char *b) {
    struct runs runs = {a, b, 0};
    dir_each(a, expect_same_checkpoint, &runs); /* checkpoint of the last step */
    ck_assert_uint_eq(runs.found, 1);
    joblog_assert_same_steps(a, b);
    expect_same_evaluations(a, b);
    weights_assert_same(a, b, k->lora ? "adapter_model" : "model");
    ck_assert(joblog_summary(b, "planned_peak_bytes") == joblog_summary(b, "allocated_peak_bytes"));
}

/* Every rank allocated what was planned for it, and sent something. */
static void expect_tally(const char *dir, size_t ranks) {
    json_t *log = joblog_read(dir);
    const json_t *list = json_object_get(joblog_event(log, "ranks", 0), "ranks");
    ck_assert_uint_eq(json_array_size(list), ranks);
    for (size_t i = 0; i < ranks; i++) {
        const json_t *t = json_array_get(list, i);
        ck_assert(joblog_number(t, "rank") == (double)i);
        ck_assert(joblog_number(t, "planned_bytes") == joblog_number(t, "allocated_bytes"));
        ck_assert(joblog_number(t, "sent_bytes") > 0);
        ck_assert(joblog_number(t, "wait_seconds") >= 0);
    }
    json_decref(log);
}

/* dir/one has what one rank makes of it. */
static void expect_cut(const struct kind *k, const char *dir, int ranks, const char *sharding) {
    char one[SCRATCH_PATH + 16], several[SCRATCH_PATH + 16];
    snprintf(one, sizeof one, "%s/one", dir);
    snprintf(several, sizeof several, "%s/several", dir);
    train(k, textf("%d", ranks), sharding, several);
    expect_same(k, one, several);
    expect_tally(several, (size_t)ranks);
    scratch_remove(several);
}

/* Each sharding, and each number of ranks; all pairs in turn. An emulated GPU, which is slow, has
 * two of the shardings for each kind, and all pairs over the kinds. */
START_TEST(ranks_end_where_one_rank_ends) {
    const bool emulated = strcmp(crew_device(), "cpu") != 0;
    const int cuts = emulated ? EMULATED_CUTS : CUTS, first = emulated ? _i / 3 : 0;
    char dir[SCRATCH_PATH];
    scratch_make(dir);
    train(&kinds[_i], "1", "none", textf("%s/one", dir));
    for (int cut = 0; cut < cuts; cut++)
        expect_cut(&kinds[_i], dir, 2 + (_i + cut) % 3, shardings[(first + cut + 3) % SHARDINGS]);
    scratch_remove(dir);
}
END_TEST

/* ---- the best model ---- */

static void train_to_the_best(const char *ranks, const char *sharding, const char *out) {
    const char *const words[] = {"train",
                                 "run.yaml",
                                 textf("device=%s", crew_device()),
                                 "threads=1",
                                 "preflight=off",
                                 "rank_order=true",
                                 "gradient_accumulation_steps=null",
                                 "global_batch_size=8",
                                 "max_steps=40",
                                 "learning_rate=0.02",
                                 "val_set_size=5",
                                 "eval_steps=2",
                                 "save_steps=4",
                                 "save_total_limit=1",
                                 "load_best_model_at_end=true",
                                 "early_stopping_patience=4",
                                 textf("devices=%s", ranks),
                                 textf("sharding=%s", sharding),
                                 textf("output_dir=%s", out),
                                 NULL};
    struct outcome o = plimsoll_expect(0, textf("%s/qwen2-full", getenv("GOLDEN_CASES")), words);
    outcome_finish(&o);
}

static double of_best(const char *out, const char *key) {
    json_t *log = joblog_read(out);
    const double v = joblog_number(joblog_event(log, "best", 0), key);
    json_decref(log);
    return v;
}

/* W1 of best.h. All ranks stop after the same step, and the model that they save is that of the
 * same one. */
START_TEST(ranks_agree_on_the_best_model) {
    char dir[SCRATCH_PATH], one[SCRATCH_PATH + 16], several[SCRATCH_PATH + 16];
    scratch_make(dir);
    snprintf(one, sizeof one, "%s/one", dir);
    snprintf(several, sizeof several, "%s/several", dir);
    train_to_the_best("1", "none", one);
    train_to_the_best(textf("%d", 2 + _i % 2), shardings[_i], several);
    ck_assert(of_best(one, "best_step") < of_best(one, "step"));
    ck_assert(of_best(one, "step") < 40);
    ck_assert(of_best(one, "step") == of_best(several, "step"));
    ck_assert(of_best(one, "best_step") == of_best(several, "best_step"));
    expect_same_evaluations(one, several);
    weights_assert_same(one, several, "model");
    scratch_remove(dir);
}
END_TEST

/* ---- all cuts of all cases ---- */

static glob_t cases;

/* Steps of more micro-batches than there are ranks. */
START_TEST(so_does_every_case_in_every_cut) {
    const char *const path = cases.gl_pathv[_i / 2];
    const bool packed = _i % 2;
    const struct kind k = {.name = strrchr(path, '/') + 1,
                           .samples = "16",
                           .more = {packed ? "packing=true" : NULL},
                           .lora = path_exists(textf("%s/adapter", path))};
    char dir[SCRATCH_PATH];
    scratch_make(dir);
    train(&k, "1", "none", textf("%s/one", dir));
    for (int ranks = 2; ranks <= 4; ranks += 2)
        for (int i = 0; i < SHARDINGS; i++) {
            fprintf(stderr, "%s%s: %d ranks, %s\n", k.name, packed ? ", packed" : "", ranks,
                    shardings[i]);
            expect_cut(&k, dir, ranks, shardings[i]);
        }
    scratch_remove(dir);
}
END_TEST

static void add_all_cuts(Suite *s) {
    TCase *tc = tcase_create("all cuts");
    char pattern[SCRATCH_PATH];
    snprintf(pattern, sizeof pattern, "%s/*", getenv("GOLDEN_CASES"));
    if (glob(pattern, 0, NULL, &cases) != 0) return;
    tcase_set_timeout(tc, 600);
    tcase_add_loop_test(tc, so_does_every_case_in_every_cut, 0, 2 * (int)cases.gl_pathc);
    suite_add_tcase(s, tc);
}

int main(void) {
    if (!crew_has_ranks()) return 77;
    Suite *s = suite_create("ranks.same_bits");
    TCase *tc = tcase_create("cases");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, ranks_end_where_one_rank_ends, 0, KINDS);
    suite_add_tcase(s, tc);
    tc = tcase_create("best");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, ranks_agree_on_the_best_model, 0, SHARDINGS);
    suite_add_tcase(s, tc);
    if (getenv("PLIMSOLL_ALL_CUTS")) add_all_cuts(s);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    globfree(&cases);
    return failed != 0;
}
