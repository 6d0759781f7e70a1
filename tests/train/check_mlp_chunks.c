/* check_mlp_chunks.c - runs whose MLPs are computed chunk by chunk.
 *
 * What is exact: the rows of a chunk go through the operations that they go through with all rows,
 * and each operation but a product computes a row from that row alone. So what recomputation,
 * offloading and updates in the backward pass change is no bit, as long as the chunk is the same.
 * What is not: a gradient of a weight is summed chunk by chunk, and a product of few rows may sum
 * in another order than one of many. Two runs with another chunk are as far apart as those with
 * another micro-batch; masks of dropout that were drawn for other tokens are much further. */
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/scratch.h"
#include "tests/support/tensorset.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

static const struct {
    const char *mode, *more;
} jobs[] = {
    {"full", "batch_size: 4\nweight_decay: 0.1\n"},
    {"full", "batch_size: 3\npacking: true\n"},
    {"full", "batch_size: 2\ngradient_accumulation_steps: 3\nfreeze_layers: 1\n"},
    {"lora", "batch_size: 4\nlora_r: 4\nlora_dropout: 0.3\n"},
    {"lora", "batch_size: 3\nlora_r: 4\nlora_dropout: 0.3\npacking: true\n"},
    {"lora", "batch_size: 4\nlora_r: 4\nlora_target_modules: [gate_proj, down_proj]\n"},
    {"lora", "batch_size: 4\nlora_r: 4\nlora_target_modules: [q_proj, v_proj]\n"},
    {"qlora", "batch_size: 4\nlora_r: 4\nlora_dropout: 0.1\nval_set_size: 4\neval_steps: 2\n"},
};
enum { N_JOBS = sizeof jobs / sizeof *jobs };

/* A run of a few steps in fp32 carries a difference of the last bits to about this. */
#define LOSS_BOUND   2e-6
#define UPDATE_BOUND 2e-4

static const char *stem(int job) {
    return strcmp(jobs[job].mode, "full") == 0 ? "model" : "adapter_model";
}

static void make(int job) {
    tiny_make(dir, &(struct tiny){.mode = jobs[job].mode, .layers = 3, .ffn = 256},
              textf("%slearning_rate: 0.003\nlr_scheduler: constant\nmax_steps: 4\n"
                    "optimizer: sgd\nlogging_steps: 1\nloss_chunk_tokens: 8\n",
                    jobs[job].more));
}

/* `out` is a directory name; at most four more words. */
static const char *train(const char *out, const char *const *more) {
    const char *words[8] = {textf("output_dir=%s", out)};
    for (int i = 0; i < 4 && more[i]; i++)
        words[1 + i] = more[i];
    plimsoll_train_expect(0, dir, words);
    const char *at = in_dir(dir, out);
    ck_assert(joblog_summary(at, "planned_peak_bytes") ==
              joblog_summary(at, "allocated_peak_bytes"));
    return out;
}
#define TRAIN(out, ...) train(out, (const char *[]){__VA_ARGS__, NULL, NULL, NULL, NULL})

static void expect_near_logs(const char *a, const char *b) {
    json_t *x = joblog_read(a), *y = joblog_read(b);
    for (uint64_t i = 1; i <= 4; i++) {
        const json_t *p = joblog_step(x, i), *q = joblog_step(y, i);
        const double loss = joblog_number(p, "loss"), norm = joblog_number(p, "grad_norm");
        ck_assert_double_le(fabs(loss - joblog_number(q, "loss")), LOSS_BOUND * loss);
        ck_assert_double_le(fabs(norm - joblog_number(q, "grad_norm")), UPDATE_BOUND * norm);
    }
    json_decref(x);
    json_decref(y);
}

static double distance(const char *a, const char *b, const char *stem_of) {
    struct weights x, y;
    weights_open(&x, a, stem_of);
    weights_open(&y, b, stem_of);
    const struct weight_gap gap = weights_compare(&x, &y);
    weights_close(&x);
    weights_close(&y);
    return gap.l2;
}

static const char *path_of(const char *name, char buf[SCRATCH_PATH + 64]) {
    snprintf(buf, SCRATCH_PATH + 64, "%s/%s", dir, name);
    return buf;
}

START_TEST(chunks_change_the_last_bits_alone) {
    static const char *const chunks[] = {"mlp_chunk_tokens=7", "mlp_chunk_tokens=16",
                                         "mlp_chunk_tokens=1"};
    char whole[SCRATCH_PATH + 64], cut[SCRATCH_PATH + 64], one[SCRATCH_PATH + 64];
    make(_i);
    TRAIN("whole", "mlp_chunk_tokens=0");
    TRAIN("one", "mlp_chunk_tokens=0", "max_steps=1");
    path_of("whole", whole);
    const double moved = distance(whole, path_of("one", one), stem(_i));
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        path_of(TRAIN(textf("cut%zu", i), chunks[i]), cut);
        expect_near_logs(whole, cut);
        ck_assert_double_le(distance(whole, cut, stem(_i)), UPDATE_BOUND * moved);
        ck_assert(joblog_summary(cut, "planned_peak_bytes") <
                  joblog_summary(whole, "planned_peak_bytes"));
    }
}
END_TEST

static const char *const ways[][2] = {
    {"gradient_checkpointing=mlp"},
    {"gradient_checkpointing=full:2+mlp"},
    {"gradient_checkpointing=offload"},
    {"offload=weights"},
    {"offload=optimizer", "gradient_checkpointing=mlp"},
};

START_TEST(what_is_rebuilt_or_offloaded_changes_no_bit) {
    char a[SCRATCH_PATH + 64], b[SCRATCH_PATH + 64];
    make(_i);
    path_of(TRAIN("plain", "mlp_chunk_tokens=7"), a);
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        path_of(TRAIN(textf("way%zu", w), "mlp_chunk_tokens=7", ways[w][0], ways[w][1]), b);
        weights_assert_same(a, b, stem(_i));
        joblog_assert_same_steps(a, b);
    }
}
END_TEST

/* A gradient is whole after the last chunk. */
START_TEST(updates_in_the_backward_pass_change_no_bit) {
    static const char *const norms[] = {"max_grad_norm=0.05", "max_grad_norm=0"};
    char a[SCRATCH_PATH + 64], b[SCRATCH_PATH + 64];
    make(0);
    path_of(TRAIN("plain", "mlp_chunk_tokens=7", norms[_i]), a);
    path_of(TRAIN("early", "mlp_chunk_tokens=7", norms[_i], "optimizer_in_backward=true"), b);
    weights_assert_same(a, b, "model");
    joblog_assert_same_steps(a, b);
}
END_TEST

/* Memory decides it: with less of it, chunks; a run that resumes with more keeps them. */
START_TEST(auto_cuts_where_nothing_else_fits_and_a_resumed_run_keeps_it) {
    const char *const wide[] = {"batch_size: 1", "gradient_checkpointing: full",
                                "loss_chunk_tokens: 16", "save_steps: 1"};
    tiny_make(dir, &(struct tiny){.longest = 500, .ffn = 256, .rows = 8},
              textf("%s\n%s\n%s\n%s\n", wide[0], wide[1], wide[2], wide[3]));
    TRAIN("whole", "max_steps=1");
    const double bytes = joblog_summary(in_dir(dir, "whole"), "planned_peak_bytes");
    const char *less = textf("vram_budget=%.0f", bytes * 0.8);
    TRAIN("cut", "max_steps=1", less, "vram_margin=0");
    char *text = file_read(in_dir(dir, "cut/config.resolved.yaml"), NULL);
    const char *chunk = strstr(text, "\nmlp_chunk_tokens: ");
    ck_assert_msg(chunk && atoi(chunk + 19) >= 128, "%s", text);
    const int kept = atoi(chunk + 19);
    free(text);
    TRAIN("cut", "max_steps=2");
    text = file_read(in_dir(dir, "cut/config.resolved.yaml"), NULL);
    ck_assert_msg(strstr(text, textf("\nmlp_chunk_tokens: %d\n", kept)) != NULL, "%s", text);
    free(text);
    text = file_read(in_dir(dir, "whole/config.resolved.yaml"), NULL);
    ck_assert_msg(strstr(text, "\nmlp_chunk_tokens: 0\n") != NULL, "%s", text);
    free(text);
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.mlp_chunks");
    TCase *tc = tcase_create("runs");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, chunks_change_the_last_bits_alone, 0, N_JOBS);
    tcase_add_loop_test(tc, what_is_rebuilt_or_offloaded_changes_no_bit, 0, N_JOBS);
    tcase_add_loop_test(tc, updates_in_the_backward_pass_change_no_bit, 0, 2);
    tcase_add_test(tc, auto_cuts_where_nothing_else_fits_and_a_resumed_run_keeps_it);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
