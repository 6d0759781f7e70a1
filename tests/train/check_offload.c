/* check_offload.c - a job with part of it in host memory is the same job: losses, norms, weights
 * and optimizer states are those of the run that offloads nothing, bit for bit, and what the plan
 * says of host memory is what the run takes. */
#include "estimator/program/optimizer_rows.h"
#include "tests/support/child.h"
#include "tests/support/joblog.h"
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

#define TRAIN(...) plimsoll_train_expect(0, dir, (const char *[]){__VA_ARGS__, NULL})

static const struct {
    const char *mode, *more;
} jobs[] = {
    {"full", "batch_size: 4\nweight_decay: 0.1\n"},
    {"full", "batch_size: 2\ngradient_accumulation_steps: 3\nmax_grad_norm: 0.5\n"},
    {"full", "batch_size: 2\ngradient_accumulation_steps: 3\nmax_grad_norm: 0\noptimizer: sgd\n"},
    {"full", "batch_size: 3\ndtype: bf16\nmaster_weights: true\n"},
    {"full", "batch_size: 2\ngradient_accumulation_steps: 2\ndtype: bf16\nmaster_weights: false\n"},
    {"full", "batch_size: 4\nfreeze_layers: 1\nval_set_size: 4\neval_steps: 2\n"},
    {"full", "batch_size: 4\ngradient_checkpointing: none\nloss_chunk_tokens: 5\n"},
    {"full", "batch_size: 2\ngradient_accumulation_steps: 2\ndtype: bf16\nmaster_weights: false\n"
             "optimizer: adamw_8bit\n"},
    {"lora", "batch_size: 3\nlora_r: 4\nlora_dropout: 0.2\n"},
    {"qlora", "batch_size: 2\ngradient_accumulation_steps: 3\nlora_r: 4\noptimizer: adamw_8bit\n"},
    {"lora", "batch_size: 2\ngradient_accumulation_steps: 3\nlora_r: 4\ndtype: bf16\n"
             "adapter_dtype: bf16\n"},
    {"lora", "batch_size: 2\ngradient_accumulation_steps: 2\nlora_r: 4\ndtype: bf16\n"
             "lora_modules_to_save: [embed_tokens, lm_head]\n"},
    {"lora", "batch_size: 2\ngradient_accumulation_steps: 2\nlora_r: 4\n"
             "lora_target_modules: [embed_tokens, lm_head, q_proj]\n"},
    {"full", "batch_size: 4\ndtype: bf16\nmoment_dtype: bf16\n"},
    {"full", "batch_size: 4\ndtype: bf16\nmoment_dtype: bf16\noptimizer: adamw_8bit\n"},
    {"qlora", "batch_size: 2\ngradient_accumulation_steps: 2\nlora_r: 4\npacking: true\n"
              "val_set_size: 4\neval_steps: 3\n"},
    {"full", "batch_size: 2\ngradient_accumulation_steps: 2\ndtype: bf16\ngradient_dtype: bf16\n"},
};
enum { N_JOBS = sizeof jobs / sizeof *jobs };

/* The offloaded tensors, and the place of their update. */
static const char *const ways[][3] = {
    {"offload=optimizer"},
    {"offload=optimizer", "offload_update=host"},
    {"offload=gradients"},
    {"offload=gradients", "offload_update=device"},
    {"offload=weights"},
    {"offload=weights", "offload_update=device"},
    {"gradient_checkpointing=offload"},
    {"offload=weights", "gradient_checkpointing=offload"},
    {"offload=weights", "gradient_checkpointing=attention:2+mlp"},
    {"gradient_checkpointing=offload:1+full"},
    {"gradient_checkpointing=offload:2+light"},
    {"offload=optimizer", "gradient_checkpointing=offload:2"},
    {"offload=weights", "gradient_checkpointing=offload:1+mlp"},
};
enum { N_WAYS = sizeof ways / sizeof *ways };

static void make(int job, const char *more) {
    tiny_make(dir, &(struct tiny){.mode = jobs[job].mode, .layers = 3},
              textf("%slearning_rate: 0.01\nlr_scheduler: constant\n%s", jobs[job].more, more));
}

static const char *stem(int job) {
    return strcmp(jobs[job].mode, "full") == 0 ? "model" : "adapter_model";
}

/* `out` is a directory name; at most three more words. */
static void train(const char *out, const char *steps, const char *const *way) {
    const char *words[8] = {out, steps};
    for (int i = 0; way && i < 3; i++)
        words[2 + i] = way[i];
    plimsoll_train_expect(0, dir, words);
}

static char *path_of(const char *name, char buf[SCRATCH_PATH + 64]) {
    snprintf(buf, SCRATCH_PATH + 64, "%s/%s", dir, name);
    return buf;
}

/* Files of the two checkpoints with this name. */
static void expect_same_file(const char *a, const char *b, const char *name) {
    ck_assert_msg(file_same(textf("%s/%s/%s", dir, a, name), textf("%s/%s/%s", dir, b, name)),
                  "%s differs between %s and %s", name, a, b);
}

static void expect_same_run(int job, const char *a, const char *b) {
    char x[SCRATCH_PATH + 64], y[SCRATCH_PATH + 64];
    weights_assert_same(path_of(a, x), path_of(b, y), stem(job));
    joblog_assert_same_steps(x, y);
    expect_same_file(textf("%s/checkpoint-6", a), textf("%s/checkpoint-6", b),
                     "optimizer.safetensors");
}

START_TEST(an_offloaded_run_is_the_run_itself_bit_for_bit) {
    make(_i, "save_steps: 6\n");
    train("output_dir=plain", "max_steps=6", NULL);
    for (int w = 0; w < N_WAYS; w++) {
        train(textf("output_dir=way%d", w), "max_steps=6", ways[w]);
        expect_same_run(_i, "plain", textf("way%d", w));
    }
}
END_TEST

START_TEST(an_offloaded_run_goes_on_from_the_checkpoint_of_a_plain_one_and_back) {
    make(_i, "save_steps: 3\n");
    train("output_dir=plain", "max_steps=6", NULL);
    train("output_dir=mixed", "max_steps=3", _i % 2 ? NULL : ways[4]);
    train("output_dir=mixed", "max_steps=6", _i % 2 ? ways[5] : NULL);
    expect_same_run(_i, "plain", "mixed");
}
END_TEST

/* tiny_make ties; only a head of its own leaves the embedding free to go. */
static void untie(void) {
    char *config = file_read(in_dir(dir, "config.json"), NULL), *tied;
    ck_assert_ptr_nonnull(tied = strstr(config, "\"tie_word_embeddings\": true"));
    memcpy(tied, "\"tie_word_embeddings\":false", strlen("\"tie_word_embeddings\": true"));
    file_write(in_dir(dir, "config.json"), config);
    free(config);
}

/* The jobs are those that train no embedding. */
START_TEST(an_embedding_looked_up_on_the_host_changes_no_bit) {
    static const int frozen[] = {5, 8, 9, 12};
    char x[SCRATCH_PATH + 64], y[SCRATCH_PATH + 64];
    int job = frozen[_i];
    make(job, "save_steps: 6\n");
    untie();
    train("output_dir=plain", "max_steps=6", NULL);
    train("output_dir=host", "max_steps=6", (const char *const[3]){"embedding_device=host"});
    train("output_dir=both", "max_steps=6",
          (const char *const[3]){"embedding_device=host", "gradient_checkpointing=offload",
                                 "offload=optimizer"});
    expect_same_run(job, "plain", "host");
    expect_same_run(job, "plain", "both");
    ck_assert(joblog_summary(path_of("host", x), "planned_peak_bytes") <
              joblog_summary(path_of("plain", y), "planned_peak_bytes"));
}
END_TEST

START_TEST(an_embedding_that_is_trained_or_tied_stays) {
    make(_i ? 8 : 0, "");
    if (!_i) untie();
    struct outcome o =
        plimsoll_train(dir, (const char *[]){"embedding_device=host", "max_steps=1", NULL});
    ck_assert_int_eq(o.status, 2);
    ck_assert_msg(strstr(o.err, "error[CONFIG_CONFLICT]"), "%s", o.err);
    ck_assert_msg(strstr(o.err, _i ? "output layer" : "is trained"), "%s", o.err);
    outcome_finish(&o);
}
END_TEST

START_TEST(full_ft_offload_is_all_of_it) {
    make(0, "save_steps: 6\n");
    train("output_dir=plain", "max_steps=6", NULL);
    TRAIN("output_dir=full", "max_steps=6", "full_ft_offload=true",
          "full_ft_ceiling_billions=0.000001");
    expect_same_run(0, "plain", "full");
    char x[SCRATCH_PATH + 64], y[SCRATCH_PATH + 64];
    ck_assert(joblog_summary(path_of("full", x), "planned_peak_bytes") <
              joblog_summary(path_of("plain", y), "planned_peak_bytes"));
}
END_TEST

/* An embedding of ten million elements: its update is cut into windows, whose random roundings and
 * blocks of 8-bit moments must be those of the whole. */
START_TEST(an_update_in_windows_is_the_update_of_the_whole) {
    char x[SCRATCH_PATH + 64], y[SCRATCH_PATH + 64], optimizer[64];
    snprintf(optimizer, sizeof optimizer, "optimizer=%s", pl_optimizer_row((uint32_t)_i)->name);
    tiny_make(dir, &(struct tiny){.layers = 1, .hidden = 256, .vocab = 40000, .rows = 4},
              "batch_size: 1\ndtype: bf16\nmaster_weights: false\nlearning_rate: 0.01\n"
              "lr_scheduler: constant\nmax_steps: 2\n");
    TRAIN("output_dir=plain", optimizer);
    TRAIN("output_dir=states", optimizer, "offload=optimizer");
    TRAIN("output_dir=all", optimizer, "offload=weights", "offload_update=device");
    weights_assert_same(path_of("plain", x), path_of("states", y), "model");
    weights_assert_same(x, path_of("all", y), "model");
    joblog_assert_same_steps(x, y);
}
END_TEST

static int n_optimizers(void) {
    uint32_t n;
    pl_optimizer_table(&n);
    return (int)n;
}

static double host_bytes_of(const char *json) {
    json_t *o = json_loads(json, 0, NULL);
    ck_assert_ptr_nonnull(o);
    double sum = 0, bytes = joblog_number(json_object_get(o, "bytes"), "host");
    const json_t *ledger = json_object_get(o, "host_ledger");
    for (size_t i = 0; i < json_array_size(ledger); i++)
        sum += joblog_number(json_array_get(ledger, i), "bytes");
    ck_assert(sum == bytes);
    ck_assert(joblog_number(o, "host_ram_gb") == bytes / 1e9);
    json_decref(o);
    return bytes;
}

START_TEST(host_memory_is_estimated_planned_and_allocated_to_the_byte) {
    make(1, "");
    char path[SCRATCH_PATH + 64];
    train("output_dir=out", "max_steps=3", ways[_i]);
    double planned = joblog_summary(path_of("out", path), "planned_host_bytes");
    ck_assert(planned > 0);
    ck_assert(planned == joblog_summary(path, "allocated_host_bytes"));
    const char *words[] = {"estimate-vram", "run.yaml", "--json", ways[_i][0], ways[_i][1], NULL};
    struct outcome o = plimsoll_expect(0, dir, words);
    ck_assert(host_bytes_of(o.out) == planned);
    outcome_finish(&o);
}
END_TEST

START_TEST(a_probe_leaves_no_trace_in_host_memory) {
    make(0, "save_steps: 6\n");
    train("output_dir=plain", "max_steps=6", ways[4]);
    TRAIN("output_dir=probed", "max_steps=6", "offload=weights", "probe_steps=2");
    expect_same_run(0, "plain", "probed");
}
END_TEST

/* --- memory that is not there ---------------------------------------------------------------- */

START_TEST(pinned_memory_that_is_refused_for_states_ends_the_run_and_is_named) {
    make(0, "max_steps: 2\n");
    const char *words[] = {"train", "run.yaml", "offload=optimizer",
                           "debug_inject=pinned_oom@alloc=1", NULL};
    struct outcome o = plimsoll_expect(1, dir, words);
    ck_assert_msg(strstr(o.err, "error[RUNTIME_HOST_OOM]"), "%s", o.err);
    ck_assert_msg(strstr(o.err, "job arena of the host"), "%s", o.err);
    ck_assert_msg(strstr(o.err, "pinned host memory"), "%s", o.err);
    outcome_finish(&o);
}
END_TEST

static const char *const kept_on_host[] = {"offload", "offload:2+full", "offload:1+light"};

/* The tensors that a layer keeps grow with the micro-batch, so halving it answers a refusal. */
START_TEST(pinned_memory_that_is_refused_for_a_batch_is_answered_by_halving) {
    make(0, "seed: 3\n");
    char x[SCRATCH_PATH + 64], y[SCRATCH_PATH + 64];
    TRAIN("output_dir=small", "max_steps=3", "batch_size=2", "gradient_accumulation_steps=2");
    TRAIN("output_dir=large", "max_steps=3", textf("gradient_checkpointing=%s", kept_on_host[_i]),
          "debug_inject=pinned_oom@alloc=1");
    ck_assert(joblog_summary(path_of("large", x), "oom_recoveries") == 1);
    ck_assert(joblog_summary(x, "planned_host_bytes") == joblog_summary(x, "allocated_host_bytes"));
    weights_assert_same(path_of("small", y), x, "model");
    joblog_assert_same_steps(y, x);
}
END_TEST

START_TEST(an_out_of_memory_in_a_step_discards_the_gradients_in_host_memory) {
    make(0, "seed: 3\n");
    char x[SCRATCH_PATH + 64], y[SCRATCH_PATH + 64];
    TRAIN("output_dir=small", "max_steps=4", "batch_size=2", "gradient_accumulation_steps=2");
    TRAIN("output_dir=large", "max_steps=4", "offload=weights", "debug_inject=device_oom@step=1");
    ck_assert(joblog_summary(path_of("large", x), "oom_recoveries") == 1);
    weights_assert_same(path_of("small", y), x, "model");
    joblog_assert_same_steps(y, x);
}
END_TEST

/* No machine has 70 billion parameters' states in memory that runs this test. */
START_TEST(more_host_memory_than_there_is_is_refused_before_anything_starts) {
    tiny_make(dir, &(struct tiny){0}, "max_steps: 2\nbatch_size: 1\n");
    struct outcome o = plimsoll_expect(
        1, dir,
        (const char *[]){"train", "run.yaml", "model_config=Qwen2.5-72B", "full_ft_offload=true",
                         "--dry-run", "preflight=enforce", "device=cpu", "vram_budget=1000GiB",
                         "loss_chunk_tokens=auto", NULL});
    ck_assert_msg(strstr(o.err, "error[RUNTIME_HOST_OOM]"), "%s", o.err);
    ck_assert_msg(strstr(o.err, "of host memory"), "%s", o.err);
    outcome_finish(&o);
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.offload");
    TCase *tc = tcase_create("runs");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, an_offloaded_run_is_the_run_itself_bit_for_bit, 0, N_JOBS);
    tcase_add_loop_test(tc, an_offloaded_run_goes_on_from_the_checkpoint_of_a_plain_one_and_back, 0,
                        N_JOBS);
    tcase_add_loop_test(tc, an_embedding_looked_up_on_the_host_changes_no_bit, 0, 4);
    tcase_add_loop_test(tc, an_embedding_that_is_trained_or_tied_stays, 0, 2);
    tcase_add_test(tc, full_ft_offload_is_all_of_it);
    tcase_add_loop_test(tc, an_update_in_windows_is_the_update_of_the_whole, 0, n_optimizers());
    tcase_add_loop_test(tc, host_memory_is_estimated_planned_and_allocated_to_the_byte, 0, N_WAYS);
    tcase_add_test(tc, a_probe_leaves_no_trace_in_host_memory);
    tcase_add_test(tc, pinned_memory_that_is_refused_for_states_ends_the_run_and_is_named);
    tcase_add_loop_test(tc, pinned_memory_that_is_refused_for_a_batch_is_answered_by_halving, 0,
                        (int)(sizeof kept_on_host / sizeof *kept_on_host));
    tcase_add_test(tc, an_out_of_memory_in_a_step_discards_the_gradients_in_host_memory);
    tcase_add_test(tc, more_host_memory_than_there_is_is_refused_before_anything_starts);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
