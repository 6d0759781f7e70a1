/* check_base_dtype.c - a bf16 checkpoint trained and continued in fp32: what its weights are held
 * in changes memory and not one bit. */
#include "estimator/config/job_text.h"
#include "runtime/checkpoint/convert.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/generate/generate.h"
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/scratch.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define VOCAB 61

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

#define TRAIN(status, ...) plimsoll_train_expect(status, dir, (const char *[]){__VA_ARGS__, NULL})

/* --- the checkpoint --------------------------------------------------------------------------- */

/* Biases, norms on queries and keys, heads of their own; steps of adapters on each. */
static const struct {
    const char *model, *mode, *more;
} jobs[] = {
    {"\"model_type\": \"llama\", \"tie_word_embeddings\": true", "lora", "loss_chunk_tokens: 5\n"},
    {"\"model_type\": \"llama\", \"tie_word_embeddings\": false", "lora",
     "lora_dropout: 0.2\ngradient_checkpointing: none\nloss_chunk_tokens: 0\n"},
    {"\"model_type\": \"qwen2\", \"tie_word_embeddings\": true", "lora",
     "val_set_size: 4\neval_steps: 2\ngradient_checkpointing: light\n"},
    {"\"model_type\": \"qwen2\", \"tie_word_embeddings\": false", "lora", "offload: weights\n"},
    {"\"model_type\": \"qwen3\", \"head_dim\": 12, \"tie_word_embeddings\": false", "lora",
     "embedding_device: host\n"},
    {"\"model_type\": \"llama\", \"tie_word_embeddings\": true", "qlora", ""},
    {"\"model_type\": \"qwen2\", \"tie_word_embeddings\": false", "qlora", "quantize_head: true\n"},
    {"\"model_type\": \"qwen2\", \"tie_word_embeddings\": true", "qlora", "loss_chunk_tokens: 5\n"},
};
enum { N_JOBS = sizeof jobs / sizeof *jobs };

/* Two steps of full training, so that biases and norms are not what they start as. */
static void make_base(int i) {
    tiny_make(dir, &(struct tiny){.mode = "full"},
              "dtype: bf16\nbatch_size: 4\nmax_steps: 2\nlearning_rate: 0.05\n");
    file_write(
        in_dir(dir, "config.json"),
        textf("{\"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 2,\n"
              " \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": %d,\n"
              " \"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-5,\n"
              " \"rope_theta\": 10000.0, \"initializer_range\": 0.1,\n"
              " \"torch_dtype\": \"bfloat16\", %s}\n",
              VOCAB, jobs[i].model));
    TRAIN(0, "output_dir=base");
}

static void make_job(int i) {
    tiny_make(dir, &(struct tiny){.mode = jobs[i].mode},
              textf("model: base\ninit: pretrained\nmodel_config: ~\nbatch_size: 3\n"
                    "max_steps: 4\nsave_steps: 4\nlora_r: 4\nlearning_rate: 0.01\n%s",
                    jobs[i].more));
}

/* --- training ----------------------------------------------------------------------------------
 */

static void expect_same(const char *name) {
    ck_assert_msg(
        file_same(in_dir(dir, textf("auto/%s", name)), in_dir(dir, textf("wide/%s", name))),
        "%s differs", name);
}

static void expect_resolved(const char *out, const char *line) {
    char *text = file_read(in_dir(dir, textf("%s/config.resolved.yaml", out)), NULL);
    ck_assert_msg(strstr(text, line) != NULL, "no `%s` in %s", line, text);
    free(text);
}

/* Adapters, moments, losses, and base and adapter in one. */
START_TEST(a_bf16_base_trains_the_same_bits_in_less_memory) {
    char narrow[SCRATCH_PATH + 8], wide[SCRATCH_PATH + 8];
    make_base(_i);
    make_job(_i);
    TRAIN(0, "output_dir=auto", "save_merged=true");
    TRAIN(0, "output_dir=wide", "save_merged=true", "base_dtype=fp32");
    expect_same("adapter_model.safetensors");
    expect_same("merged/model.safetensors");
    expect_same("checkpoint-4/optimizer.safetensors");
    expect_resolved("auto", "\nbase_dtype: bf16\n");
    expect_resolved("wide", "\nbase_dtype: fp32\n");
    snprintf(narrow, sizeof narrow, "%s/auto", dir);
    snprintf(wide, sizeof wide, "%s/wide", dir);
    joblog_assert_same_steps(narrow, wide);
    ck_assert_double_eq(joblog_summary(narrow, "planned_peak_bytes"),
                        joblog_summary(narrow, "allocated_peak_bytes"));
    ck_assert_double_lt(joblog_summary(narrow, "planned_peak_bytes"),
                        joblog_summary(wide, "planned_peak_bytes"));
}
END_TEST

/* The resolved file holds the decisions of auto, and repeats the run. */
START_TEST(the_resolved_file_repeats_the_run) {
    make_base(0);
    make_job(0);
    TRAIN(0, "output_dir=auto");
    struct outcome o = plimsoll_expect(
        0, dir, (const char *[]){"train", "auto/config.resolved.yaml", "output_dir=wide", NULL});
    outcome_finish(&o);
    expect_same("adapter_model.safetensors");
}
END_TEST

/* --- generating --------------------------------------------------------------------------------
 */

enum { PROMPT = 11, NEW = 20, CONTEXT = PROMPT + NEW };

struct logits {
    float rows[CONTEXT + 1][VOCAB];
    uint64_t planned;
};

static void keep(void *ctx, uint32_t sequence, uint64_t position, const float *row) {
    struct logits *l = ctx;
    (void)sequence;
    memcpy(l->rows[position], row, sizeof l->rows[0]);
}

static void set(struct pl_job *job, const char *key, const char *value) {
    struct pl_diag d = {0};
    ck_assert_msg(pl_job_set(job, key, value, &d) == PL_ERR_OK, "%s", d.message);
}

static void generate(const char *base_dtype, const char *adapter, struct logits *out) {
    struct pl_job job;
    struct pl_preflight pf;
    struct pl_generated g;
    struct pl_diag d = {0};
    int32_t ids[PROMPT];
    const struct pl_prompt prompt = {ids, PROMPT};
    const struct pl_generate_options opt = {.messages = stderr,
                                            .quiet = true,
                                            .max_new_tokens = NEW,
                                            .ignore_eos = true,
                                            .sampling = {.top_p = 1, .repetition_penalty = 1},
                                            .logits = keep,
                                            .ctx = out};
    for (int i = 0; i < PROMPT; i++)
        ids[i] = i * 5 % VOCAB;
    memset(out, 0, sizeof *out);
    ck_assert_int_eq(pl_job_defaults(&job, NULL), PL_ERR_OK);
    set(&job, "model", in_dir(dir, "base"));
    set(&job, "dtype", "fp32");
    set(&job, "base_dtype", base_dtype);
    set(&job, "device", "cpu");
    set(&job, "threads", "2");
    if (adapter) set(&job, "adapter_path", in_dir(dir, adapter));
    job.mode = adapter ? PL_MODE_LORA : PL_MODE_FULL;
    job.batch_size = 1;
    job.max_seq_length = CONTEXT;
    pl_err err = pl_preflight_init_generate(&pf, &job, &d);
    ck_assert_msg(err == PL_ERR_OK, "%s", d.message);
    err = pl_generate(&pf, &opt, &prompt, 1, &g, &d);
    ck_assert_msg(err == PL_ERR_OK, "%s", d.message);
    out->planned = g.planned_bytes;
    pl_generated_finish(&g);
    pl_preflight_finish(&pf);
    pl_job_finish(&job);
}

static void compare_logits(const char *adapter) {
    static struct logits narrow, wide;
    generate("auto", adapter, &narrow);
    generate("fp32", adapter, &wide);
    for (int i = 0; i <= CONTEXT; i++)
        for (int v = 0; v < VOCAB; v++)
            ck_assert_msg(memcmp(&narrow.rows[i][v], &wide.rows[i][v], sizeof(float)) == 0,
                          "logit %d behind %d tokens: %.9g, not %.9g", v, i,
                          (double)narrow.rows[i][v], (double)wide.rows[i][v]);
    ck_assert_uint_lt(narrow.planned, wide.planned);
}

/* A prompt at once, then one token after another. */
START_TEST(a_bf16_base_has_the_same_logits) {
    make_base(_i);
    make_job(_i);
    compare_logits(NULL);
    TRAIN(0, "output_dir=auto");
    if (strcmp(jobs[_i].mode, "lora") == 0) compare_logits("auto");
}
END_TEST

START_TEST(the_command_takes_the_key) {
    make_base(0);
    struct outcome a = plimsoll_expect(0, dir,
                                       (const char *[]){"generate", "--model", "base",
                                                        "--prompt-ids", "1,2,3", "--dtype", "fp32",
                                                        "--max-new-tokens", "8", "--greedy", NULL});
    struct outcome b = plimsoll_expect(
        0, dir,
        (const char *[]){"generate", "--model", "base", "--prompt-ids", "1,2,3", "--dtype", "fp32",
                         "--max-new-tokens", "8", "--greedy", "--base-dtype", "fp32", NULL});
    ck_assert_str_eq(a.out, b.out);
    outcome_finish(&a);
    outcome_finish(&b);
}
END_TEST

/* --- files that say otherwise ------------------------------------------------------------------
 */

/* Weights in fp32 under a config.json that says bfloat16: rounding them must be asked for. */
static void make_mislabelled_base(void) {
    make_base(0);
    TRAIN(0, "output_dir=base", "dtype=fp32", "max_steps=1", "overwrite_output_dir=true");
    char *config = file_read(in_dir(dir, "base/config.json"), NULL),
         *at = strstr(config, "float32");
    ck_assert_ptr_nonnull(at);
    file_write(in_dir(dir, "base/config.json"),
               textf("%.*sbfloat16%s", (int)(at - config), config, at + strlen("float32")));
    free(config);
    make_job(0);
}

static void expect_refusal(struct outcome o) {
    ck_assert_msg(strstr(o.err, "error[MODEL_WEIGHTS]") &&
                      strstr(o.err, "base/model.safetensors: tensor `model.") &&
                      strstr(o.err, "is stored as F32, but config.json says bfloat16") &&
                      strstr(o.err, "hint: set `base_dtype: fp32`"),
                  "%s", o.err);
    outcome_finish(&o);
}

START_TEST(auto_rounds_nothing_that_the_files_hold) {
    make_mislabelled_base();
    expect_refusal(plimsoll_expect(5, dir, (const char *[]){"train", "run.yaml", NULL}));
    ck_assert(!path_exists(in_dir(dir, "out/adapter_model.safetensors")));
    expect_refusal(plimsoll_expect(5, dir, (const char *[]){"validate", "run.yaml", NULL}));
    expect_refusal(plimsoll_expect(5, dir,
                                   (const char *[]){"generate", "--model", "base", "--prompt-ids",
                                                    "1,2", "--dtype", "fp32", NULL}));
    TRAIN(0, "base_dtype=fp32", "output_dir=wide");
    TRAIN(0, "base_dtype=bf16", "output_dir=rounded");
    TRAIN(0, "dtype=bf16", "output_dir=narrow");
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.base_dtype");
    TCase *tc = tcase_create("base_dtype");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, a_bf16_base_trains_the_same_bits_in_less_memory, 0, N_JOBS);
    tcase_add_test(tc, the_resolved_file_repeats_the_run);
    tcase_add_loop_test(tc, a_bf16_base_has_the_same_logits, 0, N_JOBS);
    tcase_add_test(tc, the_command_takes_the_key);
    tcase_add_test(tc, auto_rounds_nothing_that_the_files_hold);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
