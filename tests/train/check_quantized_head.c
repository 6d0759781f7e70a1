/* check_quantized_head.c - a head, an embedding, or one matrix that is both, in 4 bits computes
 * what its values compute: of values that the code holds exactly, losses, gradients and tokens are
 * those of the unquantised run. */
#include "runtime/kernels/quant.h"
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/scratch.h"
#include "tests/support/tensorset.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Pieces of 256 rows: two whole ones, and one that ends inside a nest. */
#define HIDDEN 64
#define VOCAB  1200

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

#define TRAIN(...) plimsoll_train_expect(0, dir, (const char *[]){__VA_ARGS__, NULL})

/* Plain descent carries a difference of rounding on as it is; Adam blows it up in values whose
 * gradient is next to nothing. */
static void make(bool untied, const char *more) {
    tiny_make(dir,
              &(struct tiny){.mode = "qlora", .hidden = HIDDEN, .vocab = VOCAB, .untied = untied},
              textf("optimizer: sgd\nlearning_rate: 0.1\nmax_steps: 4\nlora_r: 4\n%s", more));
}

/* Every block has the largest code and so its own absmax; nested scales are exact where all are
 * the same. */
static float exact_value(uint64_t i, bool nested) {
    const float *table = pl_quant_table(PL_QUANT_NF4);
    const uint64_t block = i / PL_QUANT_BLOCK;
    const float absmax = nested ? 0.25f : 0.05f * (float)(1 + block % 7);
    const uint64_t mixed = (i + 1) * UINT64_C(0x9E3779B97F4A7C15);
    return table[i % PL_QUANT_BLOCK ? mixed >> 60 : PL_QUANT_LEVELS - 1] * absmax;
}

static void write_exact(const char *model, const char *name, bool nested) {
    struct weights w;
    weights_open(&w, model, "model");
    struct weight head = weights_find(&w, name);
    const uint64_t n = HIDDEN * VOCAB, at = head.file->data_offset + head.entry->begin;
    float *values = malloc(n * sizeof *values);
    ck_assert(values && head.entry->end - head.entry->begin == n * sizeof *values);
    for (uint64_t i = 0; i < n; i++)
        values[i] = exact_value(i, nested);
    int fd = open(head.file->path, O_WRONLY);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, values, n * sizeof *values, (off_t)at), n * sizeof *values);
    ck_assert_int_eq(close(fd), 0);
    weights_close(&w);
    free(values);
}

/* dir/base: a model with such an embedding, and with such a head of its own where it is untied.
 * dir/run.yaml: a job over it. */
static void make_base(bool untied, bool nested, const char *more) {
    tiny_make(dir, &(struct tiny){.hidden = HIDDEN, .vocab = VOCAB, .untied = untied},
              "batch_size: 4\nmax_steps: 1\n");
    TRAIN("output_dir=base");
    write_exact(in_dir(dir, "base"), "model.embed_tokens.weight", nested);
    if (untied) write_exact(in_dir(dir, "base"), "lm_head.weight", nested);
    make(untied,
         textf("batch_size: 4\ninit: pretrained\nmodel: base\nmodel_config:\ndouble_quant: %s\n%s",
               nested ? "true" : "false", more));
}

static void expect_close(const json_t *a, const json_t *b, const char *key) {
    const double x = joblog_number(a, key), y = joblog_number(b, key);
    ck_assert_msg(fabs(x - y) <= 2e-6 * fabs(x), "%s: %.9g and %.9g", key, x, y);
}

static const struct {
    bool untied, nested;
    const char *coded, *more; /* keys whose name is in `coded` are true in the second run */
    double saved;             /* bytes an element of the vocabulary's matrices, at least */
} runs[] = {
    {true, false, "quantize_head", "", 2.5},
    {true, true, "quantize_head", "", 2.5},
    {true, true, "quantize_head", "loss_chunk_tokens: 5\ngradient_checkpointing: none\n", 2.5},
    {true, false, "quantize_head", "val_set_size: 4\neval_steps: 2\noffload: weights\n", 0},
    {true, false, "quantize_embedding", "", 3.2},
    {true, true, "quantize_embedding", "gradient_checkpointing: none\n", 3.2},
    {true, true, "quantize_embedding", "val_set_size: 4\neval_steps: 2\noffload: weights\n", 0},
    {true, true, "quantize_embedding quantize_head", "", 5},
    {true, true, "quantize_embedding", "lora_target_modules: [q_proj, embed_tokens]\n", 3.2},
    {false, false, "quantize_embedding", "", 2.5},
    {false, true, "quantize_embedding", "loss_chunk_tokens: 5\n", 2.5},
};
enum { N_RUNS = sizeof runs / sizeof *runs };

static const char *flag_of(int run, const char *key) {
    return textf("%s=%s", key, strstr(runs[run].coded, key) ? "true" : "false");
}

START_TEST(values_that_the_code_holds_exactly_train_as_they_did) {
    make_base(runs[_i].untied, runs[_i].nested, runs[_i].more);
    TRAIN("output_dir=plain");
    TRAIN("output_dir=coded", flag_of(_i, "quantize_head"), flag_of(_i, "quantize_embedding"));
    json_t *plain = joblog_read(in_dir(dir, "plain")), *coded = joblog_read(in_dir(dir, "coded"));
    for (uint64_t step = 1; step <= 4; step++) {
        expect_close(joblog_step(plain, step), joblog_step(coded, step), "loss");
        expect_close(joblog_step(plain, step), joblog_step(coded, step), "grad_norm");
    }
    ck_assert_uint_eq(joblog_count(plain, "eval"), joblog_count(coded, "eval"));
    for (size_t i = 0; i < joblog_count(plain, "eval"); i++)
        expect_close(joblog_event(plain, "eval", i), joblog_event(coded, "eval", i), "loss");
    const double saved = joblog_summary(in_dir(dir, "plain"), "planned_peak_bytes") -
                         joblog_summary(in_dir(dir, "coded"), "planned_peak_bytes");
    ck_assert_msg(saved >= runs[_i].saved * HIDDEN * VOCAB, "%.0f", saved);
    json_decref(plain), json_decref(coded);
}
END_TEST

START_TEST(values_that_the_code_holds_exactly_say_the_same_tokens) {
    make_base(runs[_i].untied, runs[_i].nested, "");
    const char *const base = in_dir(dir, "base");
    json_t *ids[2];
    for (int q = 0; q < 2; q++) {
        struct outcome o = plimsoll_expect(
            0, dir,
            (const char *[]){"generate", "--model", base, "--prompt-ids", "6,17,599",
                             "--max-new-tokens", "12", "--greedy", "--json", "dtype=fp32",
                             runs[_i].nested ? "double_quant=true" : "double_quant=false",
                             q ? flag_of(_i, "quantize_head") : "quantize_head=false",
                             q ? flag_of(_i, "quantize_embedding") : "quantize_embedding=false",
                             NULL});
        json_t *answer = json_loads(o.out, 0, NULL);
        ids[q] = json_incref(json_object_get(answer, "ids"));
        json_decref(answer);
        outcome_finish(&o);
    }
    ck_assert_uint_eq(json_array_size(ids[0]), 12);
    ck_assert(json_equal(ids[0], ids[1]));
    json_decref(ids[0]), json_decref(ids[1]);
}
END_TEST

static void expect_conflict(const char *more, const char *message, const char *hint) {
    make(false, textf("batch_size: 2\n%s", more));
    struct outcome o = plimsoll_expect(2, dir, (const char *[]){"train", "run.yaml", NULL});
    ck_assert_msg(strstr(o.err, "error[CONFIG_CONFLICT]"), "%s", o.err);
    ck_assert_msg(strstr(o.err, message) && strstr(o.err, hint), "%s", o.err);
    outcome_finish(&o);
}

START_TEST(a_head_that_is_the_embedding_is_quantised_as_that) {
    expect_conflict("quantize_head: true\n", "is its embedding", "`quantize_embedding: true`");
}
END_TEST

START_TEST(an_embedding_that_is_trained_is_not_quantised) {
    expect_conflict("quantize_embedding: true\nlora_modules_to_save: [embed_tokens]\n",
                    "keeps it in 4 bits", "remove `quantize_embedding`");
}
END_TEST

START_TEST(an_embedding_in_host_memory_is_not_quantised) {
    expect_conflict("quantize_embedding: true\nembedding_device: host\n",
                    "with `embedding_device: host`", "remove one of them");
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.quantized_head");
    TCase *tc = tcase_create("runs");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, values_that_the_code_holds_exactly_train_as_they_did, 0, N_RUNS);
    tcase_add_loop_test(tc, values_that_the_code_holds_exactly_say_the_same_tokens, 0, N_RUNS);
    tcase_add_test(tc, a_head_that_is_the_embedding_is_quantised_as_that);
    tcase_add_test(tc, an_embedding_that_is_trained_is_not_quantised);
    tcase_add_test(tc, an_embedding_in_host_memory_is_not_quantised);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
