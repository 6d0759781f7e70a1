/* check_in_backward.c - updates in the backward pass: the losses, norms, weights and states of the
 * run that keeps its gradients, bit for bit, and what the plan says of them is what the run takes.
 */
#include "estimator/program/optimizer_rows.h"
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/saved.h"
#include "tests/support/scratch.h"
#include "tests/support/tensorset.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

#define TRAIN(...)       plimsoll_train_expect(0, dir, (const char *[]){__VA_ARGS__, NULL})
#define TRAIN_FAILS(...) plimsoll_train(dir, (const char *[]){__VA_ARGS__, NULL})
#define IN_BACKWARD      "optimizer_in_backward=true"

static const char *const jobs[] = {
    "batch_size: 4\nweight_decay: 0.1\n",
    "batch_size: 3\nmax_grad_norm: 0.05\n",
    "batch_size: 4\nmax_grad_norm: 0\n",
    "batch_size: 3\ndtype: bf16\nmaster_weights: true\n",
    "batch_size: 3\ndtype: bf16\nmaster_weights: false\nmoment_dtype: bf16\n",
    "batch_size: 4\nfreeze_layers: 1\nval_set_size: 4\neval_steps: 2\n",
    "batch_size: 4\nloss_chunk_tokens: 5\n",
    "batch_size: 4\nloss_chunk_tokens: 5\nmax_grad_norm: 0\ngradient_dtype: fp32\ndtype: bf16\n",
    "batch_size: 2\npacking: true\n",
    "batch_size: 3\ndtype: bf16\nmaster_weights: false\nmoment_dtype: bf16\n"
    "optimizer: adamw_8bit\n",
    "batch_size: 3\ndtype: fp16\nmax_grad_norm: 0\n",
};
enum { N_JOBS = sizeof jobs / sizeof *jobs };

/* Levels of recomputation, and of host memory. Every job takes the first ones and one of the last
 * OFFLOADED. */
static const char *const ways[][2] = {
    {"gradient_checkpointing=full"},
    {"gradient_checkpointing=none"},
    {"gradient_checkpointing=light"},
    {"gradient_checkpointing=mlp"},
    {"gradient_checkpointing=attention:2+mlp"},
    {"gradient_checkpointing=offload"},
    {"gradient_checkpointing=none", "offload=optimizer"},
    {"gradient_checkpointing=full", "offload=gradients"},
    {"gradient_checkpointing=light", "full_ft_offload=true"},
    {"gradient_checkpointing=offload", "offload=weights"},
};
enum { N_WAYS = sizeof ways / sizeof *ways, OFFLOADED = 3 };

static void make(const char *job, bool untied, const char *more) {
    tiny_make(dir, &(struct tiny){.layers = 3, .untied = untied},
              textf("%slearning_rate: 0.01\nlr_scheduler: constant\n%s", job, more));
}

static void expect_same_run(const char *a, const char *b) {
    char x[SCRATCH_PATH + 64], y[SCRATCH_PATH + 64];
    snprintf(x, sizeof x, "%s/%s", dir, a);
    snprintf(y, sizeof y, "%s/%s", dir, b);
    weights_assert_same(x, y, "model");
    joblog_assert_same_steps(x, y);
    ck_assert_msg(file_same(textf("%s/checkpoint-4/optimizer.safetensors", x),
                            textf("%s/checkpoint-4/optimizer.safetensors", y)),
                  "states differ between %s and %s", a, b);
}

static double summary(const char *out, const char *key) {
    return joblog_summary(in_dir(dir, out), key);
}

START_TEST(updates_in_the_backward_pass_change_no_bit) {
    make(jobs[_i / 2], _i % 2, "save_steps: 4\nmax_steps: 4\n");
    TRAIN("output_dir=plain");
    for (int w = 0; w < N_WAYS; w++) {
        if (w >= N_WAYS - OFFLOADED && (w + _i) % OFFLOADED) continue;
        const char *words[] = {textf("output_dir=way%d", w), IN_BACKWARD, ways[w][0], ways[w][1],
                               NULL};
        plimsoll_train_expect(0, dir, words);
        expect_same_run("plain", textf("way%d", w));
        ck_assert(summary(textf("way%d", w), "planned_peak_bytes") ==
                  summary(textf("way%d", w), "allocated_peak_bytes"));
    }
    ck_assert(summary("way0", "planned_peak_bytes") < summary("plain", "planned_peak_bytes"));
}
END_TEST

/* Biases, norms of queries and keys, norms after blocks, frozen layers, tied heads and others: what
 * the families have, in the runs that are compared with PyTorch's. */
static const char *const families[] = {"gemma3-full",       "llama-freeze",    "llama-sgd",
                                       "llama-tied-llama3", "ministral3-full", "mistral-window",
                                       "qwen2-full",        "qwen2-windows",   "qwen3-full",
                                       "llama-dynamic",     "mistral-yarn"};
enum { N_FAMILIES = sizeof families / sizeof *families };

static void train_family(const char *family, const char *out, const char *const *more) {
    char where[SCRATCH_PATH + 64];
    snprintf(where, sizeof where, "output_dir=%s/%s", dir, out);
    const char *words[] = {"train",      "run.yaml", where,   "gradient_accumulation_steps=1",
                           "device=cpu", more[0],    more[1], more[2],
                           NULL};
    struct outcome o = plimsoll_expect(0, textf("%s/%s", GOLDEN, family), words);
    outcome_finish(&o);
}

START_TEST(of_every_family) {
    static const char *const rules[] = {"max_grad_norm=0.1", "max_grad_norm=0"};
    static const char *const levels[] = {"gradient_checkpointing=none",
                                         "gradient_checkpointing=full",
                                         "gradient_checkpointing=attention"};
    for (int rule = 0; rule < 2; rule++) {
        train_family(families[_i], textf("plain%d", rule), (const char *[3]){rules[rule]});
        for (int level = 0; level < 3; level++) {
            const char *more[3] = {rules[rule], levels[level], IN_BACKWARD};
            char out[32], plain[SCRATCH_PATH + 64];
            snprintf(out, sizeof out, "way%d%d", rule, level);
            train_family(families[_i], out, more);
            snprintf(plain, sizeof plain, "%s/plain%d", dir, rule);
            weights_assert_same(plain, in_dir(dir, out), "model");
            joblog_assert_same_steps(plain, in_dir(dir, out));
        }
    }
}
END_TEST

/* Kernels take small updates together, and what is repeated becomes a graph. */
START_TEST(updates_of_a_device_change_no_bit) {
    static const char *const rules[] = {"max_grad_norm=0.05", "max_grad_norm=0"};
    tiny_make(dir, &(struct tiny){.layers = 2, .untied = _i % 2},
              "batch_size: 2\nmax_steps: 4\nsave_steps: 4\nlearning_rate: 0.01\n"
              "dtype: bf16\nmaster_weights: false\noptimizer: adamw_8bit\n"
              "gradient_checkpointing: full\n");
    TRAIN("output_dir=plain", rules[_i / 2]);
    for (int w = 0; w < N_WAYS; w += N_WAYS - 1) {
        char out[32];
        snprintf(out, sizeof out, "output_dir=way%d", w);
        TRAIN(out, rules[_i / 2], IN_BACKWARD, ways[w][0], ways[w][1]);
        expect_same_run("plain", textf("way%d", w));
    }
}
END_TEST

START_TEST(with_every_optimizer) {
    const char *name = pl_optimizer_row((uint32_t)_i)->name;
    for (int untied = 0; untied < 2; untied++) {
        tiny_make(dir, &(struct tiny){.layers = 2, .hidden = 64, .ffn = 96, .untied = untied},
                  textf("batch_size: 3\nlearning_rate: 0.01\nmax_steps: 4\nsave_steps: 4\n"
                        "dtype: bf16\nmaster_weights: false\noptimizer: %s\n",
                        name));
        TRAIN("output_dir=plain");
        TRAIN("output_dir=twice", IN_BACKWARD);
        expect_same_run("plain", "twice");
        TRAIN("output_dir=plain0", "max_grad_norm=0");
        TRAIN("output_dir=once", IN_BACKWARD, "max_grad_norm=0");
        expect_same_run("plain0", "once");
        scratch_remove(dir);
        scratch_make(dir);
    }
}
END_TEST

/* An embedding of ten million elements: the update of its states, which come from host memory, is
 * cut into windows. */
START_TEST(with_updates_in_windows) {
    tiny_make(dir, &(struct tiny){.layers = 1, .hidden = 256, .vocab = 40000, .rows = 4},
              "batch_size: 1\ndtype: bf16\nmaster_weights: false\nlearning_rate: 0.01\n"
              "optimizer: adamw_8bit\nlr_scheduler: constant\nmax_steps: 2\nsave_steps: 4\n");
    TRAIN("output_dir=plain");
    TRAIN("output_dir=way", IN_BACKWARD, "offload=optimizer");
    weights_assert_same(in_dir(dir, "plain"), in_dir(dir, "way"), "model");
}
END_TEST

static int n_optimizers(void) {
    uint32_t n;
    pl_optimizer_table(&n);
    return (int)n;
}

START_TEST(a_run_resumes_from_a_checkpoint_of_the_other_kind) {
    make(jobs[_i], true, "save_steps: 2\n");
    TRAIN("output_dir=plain", "max_steps=4");
    TRAIN("output_dir=mixed", "max_steps=2", _i % 2 ? IN_BACKWARD : "seed=42");
    TRAIN("output_dir=mixed", "max_steps=4", _i % 2 ? "seed=42" : IN_BACKWARD);
    expect_same_run("plain", "mixed");
}
END_TEST

static bool resolved_has(const char *out, const char *line) {
    char *text = file_read(in_dir(dir, textf("%s/config.resolved.yaml", out)), NULL);
    const bool has = strstr(text, line) != NULL;
    free(text);
    return has;
}

static unsigned long long bytes_of(const char *out) {
    return (unsigned long long)summary(out, "planned_peak_bytes");
}

/* The budget decides, the record says what it decided, and a run may resume under another one. */
START_TEST(auto_turns_to_it_where_memory_is_short) {
    make(jobs[_i], true, "save_steps: 2\ngradient_checkpointing: full\n");
    TRAIN("output_dir=plain", "max_steps=4", "optimizer_in_backward=false");
    char enough[48], less[48];
    snprintf(enough, sizeof enough, "vram_budget=%lluB", bytes_of("plain"));
    snprintf(less, sizeof less, "vram_budget=%lluB", bytes_of("plain") - 1);
    TRAIN("output_dir=enough", "max_steps=4", enough);
    TRAIN("output_dir=less", "max_steps=2", less);
    expect_same_run("plain", "enough");
    ck_assert_uint_eq(bytes_of("enough"), bytes_of("plain"));
    ck_assert_uint_lt(bytes_of("less"), bytes_of("plain"));
    ck_assert(resolved_has("enough", "optimizer_in_backward: false"));
    ck_assert(resolved_has("less", "optimizer_in_backward: true"));
    struct outcome o = TRAIN_FAILS("output_dir=less", "max_steps=4", _i % 2 ? less : enough);
    ck_assert_msg(o.status == 0, "%s", o.err);
    ck_assert_int_eq(strstr(o.err, "auto is `true`: the job does not fit without it") != NULL,
                     _i % 2);
    ck_assert_int_eq(strstr(o.err, "optimizer_in_backward: true -> false") != NULL, !(_i % 2));
    outcome_finish(&o);
    expect_same_run("plain", "less");
}
END_TEST

/* --- memory that runs out -------------------------------------------------------------------- */

static const char *const norms[] = {"max_grad_norm=1", "max_grad_norm=0"};

static void make_short(void) {
    tiny_make(dir, &(struct tiny){.layers = 1},
              "batch_size: 4\nlearning_rate: 0.01\nlr_scheduler: constant\nmax_steps: 4\n");
}

/* The run that has its micro-batches halved from step `from` on, as a user would do it. */
static const char *halved_from(int from, const char *norm) {
    char out[64];
    snprintf(out, sizeof out, "output_dir=from%d", from);
    if (from > 1) TRAIN(out, norm, textf("max_steps=%d", from - 1), "save_steps=1");
    TRAIN(out, norm, "batch_size=2", "gradient_accumulation_steps=2");
    return textf("from%d", from);
}

static int first_small_step(const json_t *log) {
    for (int step = 1; step <= 4; step++)
        if (joblog_number(joblog_step(log, (uint64_t)step), "batch_size") == 2) return step;
    return 0;
}

/* Returns the observed end of a run that ran out of memory in one operation. */
static int resumed_from(const char *out, bool *went_back) {
    json_t *log = joblog_read(in_dir(dir, out));
    const json_t *event = joblog_event(log, "oom_recovery", 0);
    const int first = first_small_step(log), hit = event ? (int)joblog_number(event, "step") : 0;
    ck_assert_uint_eq(joblog_count(log, "step"), 4);
    ck_assert_int_eq(first != 0, event != NULL);
    *went_back = hit && first == (hit > 2 ? 3 : 1) && first != hit;
    if (event && !*went_back) ck_assert_int_eq(first, hit);
    json_decref(log);
    return first;
}

/* K1 of go_back.h, W2 of begin_anew.h: the run equals one that is resumed with the smaller
 * micro-batch. Memory for one operation is refused, for every eleventh operation of the run in
 * turn. Before the first update of a step only that step is done again; after it the run goes back
 * to its checkpoint. */
START_TEST(memory_that_is_refused_to_any_operation_ends_in_the_same_run) {
    char halved[5][SCRATCH_PATH + 64];
    int seen[5] = {0}, went_back = 0, op = 1;
    make_short();
    for (int from = 1; from <= 4; from++)
        snprintf(halved[from], sizeof halved[from], "%s/%s", dir, halved_from(from, norms[_i]));
    for (bool more = true; more; op += 11) {
        bool back;
        char hit[32];
        snprintf(hit, sizeof hit, "hit%d", op);
        TRAIN(textf("output_dir=%s", hit), norms[_i], IN_BACKWARD, "save_steps=2",
              textf("debug_inject=device_oom@op=%d", op));
        const int from = resumed_from(hit, &back);
        more = from != 0;
        if (!more) continue;
        weights_assert_same(halved[from], in_dir(dir, hit), "model");
        joblog_assert_same_steps(halved[from], in_dir(dir, hit));
        seen[from]++;
        went_back += back;
    }
    ck_assert_int_gt(op, 100);
    ck_assert_int_gt(went_back, 4);
    for (int from = 1; from <= 4; from++)
        ck_assert_msg(seen[from] > 0, "no operation of step %d", from);
}
END_TEST

static bool is_reached(const char *norm, int op) {
    struct outcome o =
        TRAIN_FAILS(norm, IN_BACKWARD, "max_steps=3", "oom_recovery=false",
                    textf("output_dir=count%d", op), textf("debug_inject=device_oom@op=%d", op));
    const bool reached = o.status != 0;
    outcome_finish(&o);
    return reached;
}

/* The last operation of step 3, which updates the embedding. */
static int last_op_of_step_3(const char *norm) {
    int reached = 1, beyond = 4096;
    while (beyond - reached > 1) {
        const int op = reached + (beyond - reached) / 2;
        *(is_reached(norm, op) ? &reached : &beyond) = op;
    }
    return reached;
}

START_TEST(a_half_updated_state_is_never_saved) {
    make_short();
    TRAIN("output_dir=plain", norms[_i], "save_steps=2");
    char fault[64];
    snprintf(fault, sizeof fault, "debug_inject=device_oom@op=%d", last_op_of_step_3(norms[_i]));
    struct outcome o = TRAIN_FAILS(norms[_i], IN_BACKWARD, "save_steps=2", "oom_recovery=false",
                                   "output_dir=hit", fault);
    ck_assert_int_eq(o.status, 4);
    ck_assert_msg(strstr(o.err, "error[RUNTIME_GPU_OOM]"), "%s", o.err);
    ck_assert_msg(strstr(o.err, "resumes after step 2"), "%s", o.err);
    outcome_finish(&o);
    ck_assert(!path_exists(in_dir(dir, "hit/checkpoint-3")));
    TRAIN(norms[_i], IN_BACKWARD, "save_steps=2", "output_dir=hit");
    expect_same_run("plain", "hit");
}
END_TEST

/* Two refusals, the second one while the lost step is done again. */
START_TEST(a_run_goes_back_as_often_as_it_may_halve) {
    make_short();
    TRAIN("output_dir=small", "batch_size=1", "gradient_accumulation_steps=4");
    TRAIN("output_dir=hit", IN_BACKWARD, "save_steps=2",
          textf("debug_inject=[\"device_oom@op=%d\", device_oom@step=1]",
                last_op_of_step_3("max_grad_norm=1") / 3));
    weights_assert_same(in_dir(dir, "small"), in_dir(dir, "hit"), "model");
    joblog_assert_same_steps(in_dir(dir, "small"), in_dir(dir, "hit"));
    ck_assert(summary("hit", "oom_recoveries") == 2);
    ck_assert(summary("hit", "planned_peak_bytes") == summary("hit", "allocated_peak_bytes"));
}
END_TEST

START_TEST(a_run_that_resumed_goes_back_to_where_it_began) {
    make_short();
    TRAIN("output_dir=plain", "max_steps=1", "save_steps=1");
    TRAIN("output_dir=plain", "batch_size=2", "gradient_accumulation_steps=2");
    TRAIN("output_dir=hit", "max_steps=1", "save_steps=1");
    TRAIN("output_dir=hit", IN_BACKWARD,
          textf("debug_inject=device_oom@op=%d", last_op_of_step_3("max_grad_norm=1")));
    weights_assert_same(in_dir(dir, "plain"), in_dir(dir, "hit"), "model");
    joblog_assert_same_steps(in_dir(dir, "plain"), in_dir(dir, "hit"));
}
END_TEST

/* Weights grow a hundred thousandfold a step, so that no order of sums keeps them finite. */
#define OVERFLOWS IN_BACKWARD, "learning_rate=1000", "weight_decay=100", "max_steps=8"

START_TEST(a_norm_that_is_no_number_stops_the_updates) {
    make_short();
    struct outcome o = TRAIN_FAILS(OVERFLOWS, "max_grad_norm=1", "save_steps=0");
    int step = 0;
    const char *said = strstr(o.err, "error[RUNTIME_NOT_FINITE]: step ");
    ck_assert_int_ne(o.status, 0);
    ck_assert_msg(said && sscanf(said, "error[RUNTIME_NOT_FINITE]: step %d", &step) == 1, "%s",
                  o.err);
    ck_assert_msg(strstr(o.err, "the weights were not touched"), "%s", o.err);
    ck_assert(path_exists(in_dir(dir, textf("out/checkpoint-%d", step - 1))));
    outcome_finish(&o);
}
END_TEST

/* Without clipping, gradients of the lower layers are not known when the head is updated. Whether a
 * finite loss has such a gradient depends on the last bits: most seeds have one here. */
START_TEST(without_clipping_a_half_updated_state_is_not_saved) {
    bool half = false;
    make_short();
    for (int seed = 0; seed < 16 && !half; seed++) {
        struct outcome o =
            TRAIN_FAILS(IN_BACKWARD, "max_grad_norm=0", "learning_rate=100", "max_steps=2",
                        "save_steps=0", textf("seed=%d", seed), textf("output_dir=s%d", seed));
        half = strstr(o.err, "some weights were updated before it was known");
        ck_assert_msg(!half || strstr(o.err, "error[RUNTIME_NOT_FINITE]: step 2"), "%s", o.err);
        ck_assert(!half || !path_exists(in_dir(dir, textf("s%d/checkpoint-1", seed))));
        outcome_finish(&o);
    }
    ck_assert(half);
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.in_backward");
    TCase *tc = tcase_create("bits");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, updates_in_the_backward_pass_change_no_bit, 0, 2 * N_JOBS);
    tcase_add_loop_test(tc, of_every_family, 0, N_FAMILIES);
    tcase_add_loop_test(tc, with_every_optimizer, 0, n_optimizers());
    tcase_add_test(tc, with_updates_in_windows);
    tcase_add_loop_test(tc, a_run_resumes_from_a_checkpoint_of_the_other_kind, 0, 3);
    suite_add_tcase(s, tc);
    tc = tcase_create("memory");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, memory_that_is_refused_to_any_operation_ends_in_the_same_run, 0, 2);
    tcase_add_loop_test(tc, a_half_updated_state_is_never_saved, 0, 2);
    tcase_add_test(tc, a_run_goes_back_as_often_as_it_may_halve);
    tcase_add_test(tc, a_run_that_resumed_goes_back_to_where_it_began);
    tcase_add_test(tc, a_norm_that_is_no_number_stops_the_updates);
    tcase_add_test(tc, without_clipping_a_half_updated_state_is_not_saved);
    suite_add_tcase(s, tc);
    /* These run on the emulated GPU, where a step takes a second. */
    tc = tcase_create("auto");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, auto_turns_to_it_where_memory_is_short, 0, 4);
    suite_add_tcase(s, tc);
    tc = tcase_create("few");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, updates_of_a_device_change_no_bit, 0, 4);
    tcase_add_test(tc, a_run_goes_back_as_often_as_it_may_halve);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
