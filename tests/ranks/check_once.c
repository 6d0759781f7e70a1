/* check_once.c - ranks that add up their own micro-batches and exchange gradients once a step.
 *
 * Bits depend on the number of ranks here, so runs are compared with each other where that is
 * equal, and with one device within what the order of a sum changes. */
#include "tests/ranks/crew.h"
#include "tests/ranks/job_of_rank.h"
#include "tests/support/joblog.h"
#include "tests/support/saved.h"
#include "tests/support/tensorset.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The distance by which the losses and norms of a run may differ from those of one device,
 * relative.
 *   FP32  two orders of a sum of n numbers differ by about sqrt(n) 2^-24: 1e-6 for the tokens of
 *         these steps; eight updates add up
 *   BF16  a weight whose master differs in its last bit may be rounded to the next bf16, which is
 *         2^-8 away; a loss sees thousands of weights, of which few do
 *   SUMS  gradients are sums in bf16, each rounded by half a unit, 2^-9, and so is every update */
#define FP32 1e-5
#define BF16 1e-3
#define SUMS 4e-3

#define IN_BF16                                                                                    \
    { "dtype=bf16", "master_weights=false", "gradient_dtype=bf16" }

static const struct kind {
    const char *name;    /* name of the golden case */
    const char *samples; /* samples of a step */
    unsigned ranks;
    double tolerance;
    const char *more[4]; /* NULL: no more */
    bool lora;
} kinds[] = {
    {"llama-full", "8", 2, FP32, {NULL}, false},
    {"llama-full", "3", 4, FP32, {NULL}, false},  /* ranks 2 and 3 have no micro-batch */
    {"llama-full", "5", 4, SUMS, IN_BF16, false}, /* rank 3 has none */
    {"qwen2-full", "8", 2, FP32, {"packing=true", "val_set_size=5", "eval_steps=3", NULL}, false},
    {"lora-llama", "5", 4, FP32, {"lora_dropout=0.3", NULL}, true},
    {"qlora-llama", "8", 2, FP32, {"gradient_checkpointing=full", "unpack_buffer=4KiB"}, true},
    {"llama-tied-llama3", "8", 3, FP32, {NULL}, false},
    {"llama-accumulate", "24", 4, FP32, {NULL}, false},
    {"llama-full", "5", 2, FP32, {NULL}, false}, /* rank 1 has one micro-batch of three */
    {"llama-full", "5", 4, FP32, {NULL}, false},
    {"llama-full", "8", 2, BF16, {"dtype=bf16", NULL}, false},
    {"llama-full", "8", 2, SUMS, IN_BF16, false},
    {"qwen2-full", "7", 3, FP32, {"val_set_size=5", "eval_steps=3", NULL}, false},
    {"lora-llama", "8", 2, FP32, {NULL}, true},
    {"lora-whole", "4", 3, FP32, {NULL}, true},
    {"lora-adamw8bit", "8", 3, FP32, {NULL}, true},
    {"../preference/dpo-accumulate", "6", 2, FP32, {"val_set_size=3", "eval_steps=3"}, false},
    {"../preference/kto-lora", "6", 3, FP32, {"val_set_size=3", "eval_steps=3"}, true},
};
enum { FIRST_KINDS = 6, KINDS = sizeof kinds / sizeof *kinds };

static void train(const struct kind *k, unsigned ranks, const char *sharding, const char *out) {
    const char *words[24] = {"train",
                             "run.yaml",
                             textf("device=%s", crew_device()),
                             "threads=1",
                             "preflight=off",
                             "rank_order=false",
                             "gradient_accumulation_steps=null",
                             "logging_steps=1",
                             "max_steps=8",
                             textf("global_batch_size=%s", k->samples),
                             textf("devices=%u", ranks),
                             textf("sharding=%s", sharding),
                             textf("output_dir=%s", out)};
    int n = 13;
    for (int i = 0; i < 4 && k->more[i]; i++)
        words[n++] = k->more[i];
    struct outcome o = plimsoll_expect(0, textf("%s/%s", getenv("GOLDEN_CASES"), k->name), words);
    outcome_finish(&o);
}

static void expect_near(const json_t *a, const json_t *b, const char *key, double tolerance) {
    const double x = joblog_number(a, key), y = joblog_number(b, key);
    ck_assert_msg(fabs(x - y) <= tolerance * fabs(x), "%s of one device %.9g, of ranks %.9g", key,
                  x, y);
}

static void expect_near_events(const struct kind *k, const json_t *one, const json_t *several,
                               const char *event, const char *const keys[]) {
    ck_assert_uint_eq(joblog_count(one, event), joblog_count(several, event));
    for (size_t i = 0; i < joblog_count(one, event); i++)
        for (int key = 0; keys[key]; key++)
            expect_near(joblog_event(one, event, i), joblog_event(several, event, i), keys[key],
                        k->tolerance);
}

static void expect_same_numbers(const json_t *a, const json_t *b) {
    static const char *const keys[] = {"tokens", "samples", "computed_tokens"};
    for (size_t i = 0; i < joblog_count(a, "step"); i++)
        for (int k = 0; k < 3; k++)
            ck_assert(joblog_number(joblog_event(a, "step", i), keys[k]) ==
                      joblog_number(joblog_event(b, "step", i), keys[k]));
}

static void expect_near_run(const struct kind *k, const char *one, const char *several) {
    json_t *a = joblog_read(one), *b = joblog_read(several);
    ck_assert_uint_eq(joblog_count(a, "step"), 8);
    expect_near_events(k, a, b, "step", (const char *[]){"loss", "grad_norm", NULL});
    expect_near_events(k, a, b, "eval", (const char *[]){"loss", NULL});
    expect_same_numbers(a, b);
    json_decref(a);
    json_decref(b);
}

static void expect_same(const struct kind *k, const char *a, const char *b) {
    json_t *x = joblog_read(a), *y = joblog_read(b);
    joblog_assert_same_steps(a, b);
    weights_assert_same(a, b, k->lora ? "adapter_model" : "model");
    for (size_t i = 0; i < joblog_count(x, "eval"); i++)
        ck_assert(joblog_number(joblog_event(x, "eval", i), "loss") ==
                  joblog_number(joblog_event(y, "eval", i), "loss"));
    json_decref(x);
    json_decref(y);
}

static void expect_planned_bytes(const char *dir, unsigned ranks) {
    json_t *log = joblog_read(dir);
    const json_t *list = json_object_get(joblog_event(log, "ranks", 0), "ranks");
    ck_assert_uint_eq(json_array_size(list), ranks);
    for (size_t i = 0; i < ranks; i++) {
        const json_t *t = json_array_get(list, i);
        ck_assert(joblog_number(t, "planned_bytes") == joblog_number(t, "allocated_bytes"));
        ck_assert(joblog_number(t, "sent_bytes") > 0);
    }
    json_decref(log);
}

/* `sharding: none` twice, and `auto`, which is `optimizer`. */
START_TEST(ranks_end_alike_and_near_one_device) {
    static const char *const shardings[] = {"none", "none", "auto"};
    const struct kind *k = &kinds[_i];
    char dir[SCRATCH_PATH], one[SCRATCH_PATH + 16], runs[3][SCRATCH_PATH + 16];
    scratch_make(dir);
    snprintf(one, sizeof one, "%s/one", dir);
    train(k, 1, "none", one);
    for (int i = 0; i < 3; i++) {
        snprintf(runs[i], sizeof runs[i], "%s/%d", dir, i);
        train(k, k->ranks, shardings[i], runs[i]);
        expect_planned_bytes(runs[i], k->ranks);
        if (i > 0) expect_same(k, runs[0], runs[i]);
    }
    expect_near_run(k, one, runs[0]);
    scratch_remove(dir);
}
END_TEST

/* --- failures and resuming -------------------------------------------------------------------- */

enum { RANKS = 3, SAMPLES = 24, BATCH = 4 };

static void make(const char *dir, const char *more) {
    tiny_make(dir, &(struct tiny){.mode = "full"},
              textf("%slearning_rate: 0.01\nlr_scheduler: constant\nthreads: 1\npreflight: off\n"
                    "global_batch_size: %d\nrank_order: false\nlogging_steps: 1\n"
                    "gradient_checkpointing: none\n",
                    more, SAMPLES));
}

/* The first op of the exchange that is of a kind, counted from the first op of an attempt. */
static uint32_t op_of(const struct job_of_rank *p, enum pl_op_kind kind) {
    const struct pl_step_ops ops = pl_program_step_ops(p->held.program);
    const uint32_t rounds = SAMPLES / (BATCH * RANKS);
    uint32_t i = 0;
    while (i < ops.norm.n_ops && p->held.program->ops[ops.norm.first_op + i].kind != kind)
        i++;
    ck_assert_uint_lt(i, ops.norm.n_ops);
    return rounds * ops.micro.n_ops + i + 1;
}

static const char *fault_of(const char *dir, int number, unsigned rank) {
    static const enum pl_op_kind kinds_of_op[] = {PL_OP_ZERO, PL_OP_SPREAD, PL_OP_FOLD,
                                                  PL_OP_SQUARE_SUM, PL_OP_CLIP_SCALE};
    struct job_of_rank p;
    if (number < 0) return "debug_inject=device_oom@step=1";
    job_of_rank_open(&p, dir, RANKS, rank);
    const uint32_t op = op_of(&p, kinds_of_op[number]);
    job_of_rank_close(&p);
    return textf("debug_inject=device_oom@op=%u", op);
}

#define WORDS(...)                                                                                 \
    (const char *[]) {                                                                             \
        __VA_ARGS__, NULL                                                                          \
    }

/* The fault is in a micro-batch, or in any kind of op before the update: no rank has updated, and
 * all end as if they had begun with half the micro-batch. */
START_TEST(all_halve_when_one_is_out_of_memory) {
    char dir[SCRATCH_PATH];
    const unsigned odd = (unsigned)(_i + 1) % RANKS;
    char devices[16];
    snprintf(devices, sizeof devices, "devices=%d", RANKS);
    scratch_make(dir);
    make(dir, textf("batch_size: %d\nsharding: %s\n", BATCH, _i % 2 ? "none" : "optimizer"));
    char fault[64];
    snprintf(fault, sizeof fault, "%s", fault_of(dir, _i - 1, odd));
    crew_expect(
        0, dir, &(struct crew){RANKS, 0, NULL},
        WORDS("max_steps=3", "output_dir=small", textf("batch_size=%d", BATCH / 2), devices));
    crew_expect(0, dir, &(struct crew){RANKS, odd, fault},
                WORDS("max_steps=3", "output_dir=large", devices));
    ck_assert(joblog_summary(in_dir(dir, "large"), "oom_recoveries") == 1);
    joblog_assert_same_steps(in_dir(dir, "small"), in_dir(dir, "large"));
    weights_assert_same(in_dir(dir, "small"), in_dir(dir, "large"), "model");
    scratch_remove(dir);
}
END_TEST

/* States that were in parts: as many ranks end with the bits of a run that was not interrupted, and
 * another number resumes, too. */
START_TEST(a_resumed_run_ends_alike) {
    char dir[SCRATCH_PATH];
    scratch_make(dir);
    make(dir, _i ? "batch_size: 2\noptimizer: adamw_8bit\n" : "batch_size: 2\n");
    plimsoll_train_expect(0, dir, WORDS("devices=3", "max_steps=4", "output_dir=whole"));
    plimsoll_train_expect(0, dir,
                          WORDS("devices=3", "max_steps=2", "save_steps=2", "output_dir=out"));
    plimsoll_train_expect(0, dir, WORDS("devices=3", "max_steps=4", "output_dir=out"));
    joblog_assert_same_steps(in_dir(dir, "whole"), in_dir(dir, "out"));
    weights_assert_same(in_dir(dir, "whole"), in_dir(dir, "out"), "model");
    plimsoll_train_expect(0, dir, WORDS("devices=2", "max_steps=5", "output_dir=out"));
    ck_assert(joblog_summary(in_dir(dir, "out"), "planned_peak_bytes") ==
              joblog_summary(in_dir(dir, "out"), "allocated_peak_bytes"));
    scratch_remove(dir);
}
END_TEST

int main(int argc, char **argv) {
    if (crew_is_rank(argc, argv)) return crew_rank(argc, argv);
    if (!crew_has_ranks()) return 77;
    Suite *s = suite_create("ranks.once");
    TCase *tc = tcase_create("cases");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, ranks_end_alike_and_near_one_device, 0, FIRST_KINDS);
    suite_add_tcase(s, tc);
    tc = tcase_create("more cases");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, ranks_end_alike_and_near_one_device, FIRST_KINDS, KINDS);
    suite_add_tcase(s, tc);
    tc = tcase_create("tiny");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, all_halve_when_one_is_out_of_memory, 0, 6);
    tcase_add_loop_test(tc, a_resumed_run_ends_alike, 0, 2);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
