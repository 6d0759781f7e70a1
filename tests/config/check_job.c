/* check_job.c - what is accepted: values, defaults, synonyms, overrides, derived values. */
#include "estimator/config/debug_fault.h"
#include "estimator/config/job.h"
#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"
#include "estimator/config/key_table.h"
#include "estimator/config/validate.h"

#include <check.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BASE "model: m\nmode: lora\n"

static void parse_ok(struct pl_job *job, const char *yaml, const char *const *overrides,
                     uint32_t n_overrides, struct pl_text *notes) {
    struct pl_diag d = {0};
    pl_err err =
        pl_job_parse(job, "dir/run.yaml", yaml, strlen(yaml), overrides, n_overrides, notes, &d);
    ck_assert_msg(err == PL_ERR_OK, "%llu:%llu: %s", (unsigned long long)d.line,
                  (unsigned long long)d.column, d.message);
}

static const char *value_of(const struct pl_job *job, const char *key, struct pl_text *text) {
    uint32_t n, i = 0;
    const struct pl_key_info *keys = pl_key_table(&n);
    while (i < n && strcmp(keys[i].key, key) != 0)
        i++;
    ck_assert_msg(i < n, "%s", key);
    pl_text_finish(text);
    pl_job_write_key(job, (enum pl_key_id)i, text);
    return pl_text_str(text);
}

/* ---- values ---- */

static const struct {
    const char *line, *key, *value;
} values[] = {
    {"learning_rate: 2e-5", "learning_rate", "2e-05"},
    {"learning_rate: .5", "learning_rate", "0.5"},
    {"learning_rate: +1.", "learning_rate", "1"},
    {"learning_rate: 0x10", "learning_rate", "16"},
    {"learning_rate: 0.1", "learning_rate", "0.1"},
    {"learning_rate: 0.30000000000000004", "learning_rate", "0.30000000000000004"},
    {"max_grad_norm: 1000000", "max_grad_norm", "1e+06"},
    {"lora_alpha: 64", "lora_alpha", "64"},
    {"lora_alpha: ~", "lora_alpha", ""},
    {"lora_r: ~", "lora_r", "16"},
    {"lora_r: null", "lora_r", "16"},
    {"lora_r:", "lora_r", "16"},
    {"lora_r: 0o20", "lora_r", "16"},
    {"lora_r: +8 # a comment", "lora_r", "8"},
    {"\"lora_r\": 8", "lora_r", "8"},
    {"seed: 9000000000000000", "seed", "9000000000000000"},
    {"batch_size: auto", "batch_size", "auto"},
    {"batch_size: 4", "batch_size", "4"},
    {"loss_chunk_tokens: 0", "loss_chunk_tokens", "0"},
    {"vram_budget: 16GiB", "vram_budget", "17179869184"},
    {"vram_budget: 20GB", "vram_budget", "20000000000"},
    {"vram_budget: \"1.5 GiB\"", "vram_budget", "1610612736"},
    {"vram_budget: 4096B", "vram_budget", "4096B"},
    {"vram_budget: 1048576", "vram_budget", "1048576"},
    {"vram_budget: 0", "vram_budget", "0"},
    {"vram_budget: 9007199254740993", "vram_budget", "9007199254740993"},
    {"vram_budget: auto", "vram_budget", "auto"},
    {"shuffle: false", "shuffle", "false"},
    {"shuffle: False", "shuffle", "false"},
    {"master_weights: True", "master_weights", "true"},
    {"master_weights: \"false\"", "master_weights", "false"},
    {"device: null", "device", "\"null\""},
    {"device: \"null\"", "device", "\"null\""},
    {"device: ~", "device", "auto"},
    {"device: cuda", "device", "cuda"},
    {"device: cuda:0", "device", "cuda:0"},
    {"device: cuda:255", "device", "cuda:255"},
    {"gradient_checkpointing: true", "gradient_checkpointing", "full"},
    {"gradient_checkpointing: false", "gradient_checkpointing", "none"},
    {"gradient_checkpointing: light", "gradient_checkpointing", "light"},
    {"gradient_checkpointing: every_4", "gradient_checkpointing", "every_4"},
    {"gradient_checkpointing: every_4096", "gradient_checkpointing", "every_4096"},
    {"gradient_checkpointing: mlp", "gradient_checkpointing", "mlp"},
    {"gradient_checkpointing: attention", "gradient_checkpointing", "attention"},
    {"gradient_checkpointing: full:20", "gradient_checkpointing", "full:20"},
    {"gradient_checkpointing: full:20+none", "gradient_checkpointing", "full:20"},
    {"gradient_checkpointing: attention:7+light", "gradient_checkpointing", "attention:7+light"},
    {"gradient_checkpointing: none:4096+full", "gradient_checkpointing", "none:4096+full"},
    {"gradient_checkpointing: mlp:3+mlp", "gradient_checkpointing", "mlp"},
    {"run_name: 2024", "run_name", "\"2024\""},
    {"run_name: 'yes'", "run_name", "\"yes\""},
    {"run_name: \"null\"", "run_name", "\"null\""},
    {"run_name: a: b", "run_name", NULL},
    {"run_name: 'a: b'", "run_name", "\"a: b\""},
    {"run_name: a\\b", "run_name", "\"a\\\\b\""},
    {"run_name: \"\\N\\L\\e\\U0001F600\"", "run_name", "\"\\x85\\u2028\\x1B\xf0\x9f\x98\x80\""},
    {"run_name: \"\\uFEFF\"", "run_name", "\"\\uFEFF\""},
    {"lora_target_modules: q_proj", "lora_target_modules", "[q_proj]"},
    {"lora_target_modules: [q_proj, 'v_proj']", "lora_target_modules", "[q_proj, v_proj]"},
    {"lora_target_modules:\n- q_proj\n- v_proj", "lora_target_modules", "[q_proj, v_proj]"},
    {"lora_target_modules: 'q,v'", "lora_target_modules", "[\"q,v\"]"},
    {"datasets: a.jsonl", "datasets", "[{path: a.jsonl, format: auto}]"},
    {"datasets: [a, b]", "datasets", "[{path: a, format: auto}, {path: b, format: auto}]"},
    {"datasets:\n- path: a\n  format: tokens\n- b", "datasets",
     "[{path: a, format: tokens}, {path: b, format: auto}]"},
    {"datasets: [{format: text, path: a}]", "datasets", "[{path: a, format: text}]"},
    {"datasets: [{path: a, format: }]", "datasets", "[{path: a, format: auto}]"},
    {"datasets: [{path: a, weight: 2, split: train}]", "datasets",
     "[{path: a, format: auto, weight: 2}]"},
    {"datasets: [{path: a, max_samples: 0x10}]", "datasets",
     "[{path: a, format: auto, max_samples: 16}]"},
    {"datasets: [{path: a, split: 'train[1_000:]'}, {path: a, split: 'test[-10%:-05%]'}]",
     "datasets",
     "[{path: a, format: auto, split: \"train[1000:]\"}, {path: a, format: auto, split: "
     "\"eval[-10%:-5%]\"}]"},
    {"datasets:\n- path: a\n  split: train[:10%]", "datasets",
     "[{path: a, format: auto, split: \"train[:10%]\"}]"},
    {"datasets:\n- path: a\n  split: train[:]", "datasets", "[{path: a, format: auto}]"},
    {"datasets: [{path: a, weight: 0.1}, {path: b, split: eval}]", "datasets",
     "[{path: a, format: auto, weight: 0.1}, {path: b, format: auto, split: eval}]"},
    {"datasets: [{path: a, split: validation, weight: }]", "datasets",
     "[{path: a, format: auto, split: eval}]"},
    {"eval_datasets: [{path: a, split: train}]", "eval_datasets", "[{path: a, format: auto}]"},
    {"sample_packing: true", "packing", "true"},
    {"datasets: []", "datasets", ""},
    {"debug_inject: []", "debug_inject", ""},
    {"debug_inject: 'disk_full@write=1,forever'", "debug_inject",
     "[\"disk_full@write=1,forever\"]"},
    {"debug_inject:\n- device_oom@step=3,count=2", "debug_inject",
     "[\"device_oom@step=3,count=2\"]"},
};

START_TEST(a_value_means_what_yaml_1_2_says) {
    struct pl_job job;
    struct pl_text text = {0}, value = {0};
    pl_text_addf(&text, "%s%s\n", BASE, values[_i].line);
    struct pl_diag d = {0};
    pl_err err = pl_job_parse(&job, NULL, text.data, text.len, NULL, 0, NULL, &d);
    ck_assert_msg((err == PL_ERR_OK) == (values[_i].value != NULL), "%s: %s", values[_i].line,
                  d.message);
    if (values[_i].value)
        ck_assert_str_eq(value_of(&job, values[_i].key, &value), values[_i].value);
    pl_text_finish(&value);
    pl_text_finish(&text);
    pl_job_finish(&job);
}
END_TEST

START_TEST(places_point_at_values_and_dataset_paths) {
    struct pl_job job;
    parse_ok(&job, BASE "lora_r:   8\ndatasets:\n- path: a\n- b\n", NULL, 0, NULL);
    ck_assert_uint_eq(job.place[PL_KEY_lora_r].line, 3);
    ck_assert_uint_eq(job.place[PL_KEY_lora_r].column, 11);
    ck_assert_uint_eq(job.place[PL_KEY_seed].line, 0);
    ck_assert(job.given[PL_KEY_lora_r] && !job.given[PL_KEY_seed]);
    ck_assert_uint_eq(job.datasets.items[0].line, 5);
    ck_assert_uint_eq(job.datasets.items[0].column, 9);
    ck_assert_uint_eq(job.datasets.items[1].line, 6);
    ck_assert_uint_eq(job.datasets.items[1].column, 3);

    struct pl_diag d = {0};
    ck_assert_int_eq(pl_job_error(&job, PL_KEY_lora_r, PL_ERR_MODEL_FIELD, &d, "r %d", 8),
                     PL_ERR_MODEL_FIELD);
    ck_assert_str_eq(d.file, "dir/run.yaml");
    ck_assert_str_eq(d.message, "r 8");
    ck_assert_uint_eq(d.line, 3);
    pl_job_finish(&job);
}
END_TEST

START_TEST(a_byte_order_mark_carriage_returns_and_one_document_marker_are_fine) {
    struct pl_job job;
    parse_ok(&job, "\xef\xbb\xbf%YAML 1.2\r\n---\r\nmodel: m\r\nmode: lora\r\nlora_r: 8\r\n...\r\n",
             NULL, 0, NULL);
    ck_assert_uint_eq(job.lora_r, 8);
    ck_assert_uint_eq(job.place[PL_KEY_lora_r].line, 5);
    pl_job_finish(&job);
}
END_TEST

START_TEST(defaults_leave_mode_unset) {
    struct pl_job job;
    ck_assert_int_eq(pl_job_defaults(&job, NULL), PL_ERR_OK);
    ck_assert_uint_eq(job.mode, PL_UNSET_U32);
    ck_assert_uint_eq(job.dtype, PL_DTYPE_AUTO);
    ck_assert_uint_eq(job.lora_r, 16);
    ck_assert_uint_eq(job.batch_size, PL_AUTO);
    ck_assert(job.vram_budget == PL_AUTO_BYTES);
    ck_assert(isnan(job.learning_rate));
    ck_assert_uint_eq(job.gradient_checkpointing, PL_RECOMPUTE_FULL);
    ck_assert_uint_eq(job.lr_scheduler, PL_SCHEDULE_COSINE);
    ck_assert_uint_eq(job.lora_target_modules.n, 1);
    ck_assert_str_eq(job.lora_target_modules.items[0], "all-linear");
    ck_assert_str_eq(job.output_dir, "output");
    ck_assert_int_eq(pl_job_set(&job, "lora_r", "8", NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_job_validate(&job, NULL), PL_ERR_OK);
    pl_job_finish(&job);
    pl_job_finish(&job); /* twice is harmless */
    pl_job_finish(NULL);
}
END_TEST

/* ---- synonyms and overrides ---- */

START_TEST(a_synonym_sets_its_key_and_leaves_a_note) {
    static const struct {
        const char *synonym, *key, *value, *read;
    } cases[] = {
        {"lora_rank", "lora_r", "8", "8"},
        {"r", "lora_r", "8", "8"},
        {"micro_batch_size", "batch_size", "4", "4"},
        {"cutoff_len", "max_seq_length", "64", "64"},
        {"lr", "learning_rate", "0.5", "0.5"},
        {"epochs", "num_epochs", "3", "3"},
        {"gpu_memory_limit", "vram_budget", "1KB", "1000B"},
        {"optim", "optimizer", "sgd", "sgd"},
        {"target_modules", "lora_target_modules", "[o_proj]", "[o_proj]"},
    };
    struct pl_text yaml = {0}, notes = {0}, value = {0}, note = {0};
    struct pl_job job;
    pl_text_addf(&yaml, BASE "%s: %s\n", cases[_i].synonym, cases[_i].value);
    parse_ok(&job, yaml.data, NULL, 0, &notes);
    ck_assert_str_eq(value_of(&job, cases[_i].key, &value), cases[_i].read);
    pl_text_addf(&note, "dir/run.yaml:3: `%s` is read as `%s`\n", cases[_i].synonym, cases[_i].key);
    ck_assert_str_eq(pl_text_str(&notes), note.data);
    pl_text_finish(&yaml);
    pl_text_finish(&notes);
    pl_text_finish(&note);
    pl_text_finish(&value);
    pl_job_finish(&job);
}
END_TEST

START_TEST(a_later_override_wins_over_an_earlier_one_and_the_file) {
    static const char *const overrides[] = {
        "seed=1",      "max-seq-length=64", "seed= 2 ",         "lr=1e-3",
        "lora_r=null", "run_name=a: b # c", "output_dir='x y'", "device=null",
    };
    struct pl_text notes = {0};
    struct pl_job job;
    parse_ok(&job, BASE "seed: 7\nlora_r: 8\nlora_dropout: 0.5\n", overrides, 8, &notes);
    ck_assert_uint_eq(job.seed, 2);
    ck_assert_uint_eq(job.max_seq_length, 64);
    ck_assert_double_eq(job.learning_rate, 1e-3);
    ck_assert_uint_eq(job.lora_r, 16); /* back to the default, and no longer given */
    ck_assert(!job.given[PL_KEY_lora_r] && job.given[PL_KEY_seed]);
    ck_assert_uint_eq(job.place[PL_KEY_seed].line, 0);
    ck_assert_double_eq(job.lora_dropout, 0.5);
    ck_assert_str_eq(job.run_name, "a: b # c");
    ck_assert_str_eq(job.output_dir, "x y");
    ck_assert_uint_eq(job.device, PL_DEVICE_NULL);
    ck_assert_str_eq(pl_text_str(&notes), "`lr` is read as `learning_rate`\n");
    pl_text_finish(&notes);
    pl_job_finish(&job);
}
END_TEST

START_TEST(an_override_of_a_list_is_cut_at_its_separator) {
    static const struct {
        const char *override, *key, *value;
    } cases[] = {
        {"lora_target_modules=q_proj, v_proj", "lora_target_modules", "[q_proj, v_proj]"},
        {"lora_target_modules=[q_proj,v_proj]", "lora_target_modules", "[q_proj, v_proj]"},
        {"lora_target_modules='q,v'", "lora_target_modules", "[\"q,v\"]"},
        {"report_to=jsonl", "report_to", "[jsonl]"},
        {"debug_inject=device_oom@step=3,count=2", "debug_inject",
         "[\"device_oom@step=3,count=2\"]"},
        {"debug_inject=device_oom@step=3,count=2; disk_full@write=1,forever", "debug_inject",
         "[\"device_oom@step=3,count=2\", \"disk_full@write=1,forever\"]"},
        {"datasets=a,b.jsonl", "datasets", "[{path: \"a,b.jsonl\", format: auto}]"},
        {"datasets=[{path: a, format: text}, b]", "datasets",
         "[{path: a, format: text}, {path: b, format: auto}]"},
    };
    struct pl_text value = {0};
    struct pl_job job;
    parse_ok(&job, BASE, &cases[_i].override, 1, NULL);
    ck_assert_str_eq(value_of(&job, cases[_i].key, &value), cases[_i].value);
    if (job.datasets.n) ck_assert_uint_eq(job.datasets.items[0].line, 0);
    pl_text_finish(&value);
    pl_job_finish(&job);
}
END_TEST

START_TEST(a_job_needs_no_file) {
    static const char *const overrides[] = {"model=m", "mode=full"};
    struct pl_job job;
    struct pl_diag d = {0};
    ck_assert_int_eq(pl_job_read(&job, NULL, overrides, 2, NULL, &d), PL_ERR_OK);
    ck_assert_uint_eq(job.mode, PL_MODE_FULL);
    ck_assert_ptr_null(job.path);
    pl_job_finish(&job);
}
END_TEST

/* T1 of key_types.h */
START_TEST(a_refused_value_leaves_the_key_as_it_was) {
    struct pl_job job;
    parse_ok(&job, BASE, NULL, 0, NULL);
    ck_assert_int_eq(pl_job_set(&job, "report-to", "tensorboard", NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_job_set(&job, "report_to", "[a, [b]]", NULL), PL_ERR_CONFIG_TYPE);
    ck_assert_uint_eq(job.report_to.n, 1);
    ck_assert_str_eq(job.report_to.items[0], "tensorboard");
    ck_assert_int_eq(pl_job_set(&job, "datasets", "[a, {path: b, format: c}]", NULL),
                     PL_ERR_CONFIG_RANGE);
    ck_assert_uint_eq(job.datasets.n, 0);
    pl_job_finish(&job);
}
END_TEST

/* ---- files as people write them ---- */

#define TAIL                                                                                       \
    "datasets:\n- path: train.jsonl\n  format: tokens\nshuffle: false\nbatch_size: 2\n"            \
    "gradient_accumulation_steps: 1\nmax_seq_length: 32\nlearning_rate: 0.003\n"                   \
    "weight_decay: 0.01\nadam_beta1: 0.85\nadam_beta2: 0.99\nadam_epsilon: 1.0e-05\n"              \
    "max_grad_norm: 2.0\nmax_steps: 30\ngradient_checkpointing: none\nseed: 871\ndevice: cpu\n"    \
    "output_dir: out\nlogging_steps: 1\n"

static const char *const shapes[] = {
    "model: model\nmode: full\ndtype: fp32\n" TAIL "optimizer: adamw\nlr_scheduler: cosine\n"
    "warmup_steps: 3\n",
    "model: model\nmode: full\ndtype: fp32\n" TAIL "optimizer: sgd\nlr_scheduler: constant\n"
    "warmup_steps: 0\nfreeze_layers: 1\n",
    "model: model\nmode: full\ndtype: fp32\n" TAIL "optimizer: adamw\nlr_scheduler: linear\n"
    "warmup_steps: 2\n",
    "model: model\nmode: lora\ndtype: fp32\n" TAIL "optimizer: adamw\nlr_scheduler: constant\n"
    "warmup_steps: 0\nlora_r: 8\nlora_alpha: 16\nlora_target_modules:\n- q_proj\n- k_proj\n"
    "- v_proj\n- o_proj\n- gate_proj\n- up_proj\n- down_proj\nlora_dropout: 0.0\n"
    "use_rslora: false\nadapter_path: adapter\n",
    "model: model\nmode: lora\ndtype: fp32\n" TAIL "optimizer: adamw\nlr_scheduler: cosine\n"
    "lora_r: 6\nlora_alpha: 12\nlora_target_modules:\n- qkv_proj\n- o_proj\n- gate_up_proj\n"
    "- down_proj\nuse_rslora: true\nlora_dropout: 0.0\nadapter_path: adapter\n",
};

START_TEST(ordinary_training_files_are_read_whole) {
    struct pl_job job;
    parse_ok(&job, shapes[_i], NULL, 0, NULL);
    ck_assert_str_eq(job.model, "model");
    ck_assert_uint_eq(job.mode, strstr(shapes[_i], "mode: lora") ? PL_MODE_LORA : PL_MODE_FULL);
    ck_assert_uint_eq(job.dtype, PL_DTYPE_F32);
    ck_assert_uint_eq(job.datasets.n, 1);
    ck_assert_uint_eq(job.datasets.items[0].format, PL_FORMAT_TOKENS);
    ck_assert(!job.shuffle);
    ck_assert_uint_eq(job.batch_size, 2);
    /* an optimizer without it drops the key */
    ck_assert_double_eq(job.adam_epsilon, job.optimizer == PL_OPTIMIZER_SGD ? 1e-8 : 1e-5);
    ck_assert_uint_eq(job.gradient_checkpointing, PL_RECOMPUTE_NONE);
    ck_assert_uint_eq(job.seed, 871);
    ck_assert_int_eq(pl_job_require_training(&job, NULL), PL_ERR_OK);
    if (job.mode == PL_MODE_LORA) ck_assert_uint_ge(job.lora_target_modules.n, 4);
    pl_job_finish(&job);
}
END_TEST

START_TEST(every_configuration_that_is_shipped_can_be_read) {
    glob_t files;
    ck_assert_int_eq(glob(PL_SOURCE_ROOT "/configs/*.yaml", 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        struct pl_job job;
        struct pl_diag d = {0};
        pl_err err = pl_job_read(&job, files.gl_pathv[i], NULL, 0, NULL, &d);
        ck_assert_msg(err == PL_ERR_OK, "%s:%llu: %s", files.gl_pathv[i],
                      (unsigned long long)d.line, d.message);
        ck_assert_int_eq(pl_job_require_training(&job, &d), PL_ERR_OK);
        pl_job_finish(&job);
    }
    globfree(&files);
}
END_TEST

/* ---- writing ---- */

/* K2 of meaning.h */
START_TEST(a_full_job_is_written_without_lora_defaults) {
    static const char *const overrides[] = {"model=m", "mode=full"};
    struct pl_job job;
    struct pl_text yaml = {0};
    parse_ok(&job, "", overrides, 2, NULL);
    pl_job_write(&job, &yaml);
    ck_assert_ptr_null(strstr(yaml.data, "lora"));
    ck_assert_ptr_nonnull(strstr(yaml.data, "mode: full\n"));
    ck_assert_ptr_nonnull(strstr(yaml.data, "batch_size: auto\n"));
    pl_job_finish(&job);
    struct pl_text notes = {0};
    parse_ok(&job, pl_text_str(&yaml), NULL, 0, &notes);
    ck_assert_str_eq(pl_text_str(&notes), "");
    pl_text_finish(&notes);
    pl_text_finish(&yaml);
    pl_job_finish(&job);
}
END_TEST

/* ---- derived values ---- */

START_TEST(derived_values_follow_their_keys) {
    static const struct {
        const char *yaml;
        double scale, rate;
        uint32_t accumulation; /* at batch size 3 */
    } cases[] = {
        {"mode: lora", 2, 2e-4, 6},
        {"mode: lora\nlora_alpha: 8", 0.5, 2e-4, 6},
        {"mode: lora\nlora_alpha: 8\nuse_rslora: true", 2, 2e-4, 6},
        {"mode: lora\nuse_rslora: true", 8, 2e-4, 6},
        {"mode: full", 2, 2e-5, 6},
        {"mode: full\nlr: 1", 2, 1, 6},
        {"mode: full\ngradient_accumulation_steps: 5", 2, 2e-5, 6},
        {"mode: full\nbatch_size: 3\ngradient_accumulation_steps: 5", 2, 2e-5, 5},
        {"mode: full\nbatch_size: 3", 2, 2e-5, 1},
        {"mode: full\nglobal_batch_size: 8", 2, 2e-5, 3},
        {"mode: full\nglobal_batch_size: 9", 2, 2e-5, 3},
        {"mode: full\nglobal_batch_size: 2\nbatch_size: 3", 2, 2e-5, 1},
        {"mode: full\nglobal_batch_size: 6\nbatch_size: 2\ngradient_accumulation_steps: 3", 2, 2e-5,
         3},
    };
    static const char *const overrides[] = {"model=m"};
    struct pl_job job;
    parse_ok(&job, cases[_i].yaml, overrides, 1, NULL);
    ck_assert_double_eq(pl_job_lora_scale(&job), cases[_i].scale);
    ck_assert_double_eq(pl_job_learning_rate(&job), cases[_i].rate);
    ck_assert_uint_eq(pl_job_accumulation(&job, 3), cases[_i].accumulation);
    pl_job_finish(&job);
}
END_TEST

START_TEST(a_fault_is_read_or_refused) {
    static const struct {
        const char *text;
        bool ok;
        enum pl_fault_kind kind;
        uint64_t at, count;
    } cases[] = {
        {"device_oom@alloc=5", true, PL_FAULT_DEVICE_OOM_ALLOC, 5, 1},
        {"device_oom@step=3,count=2", true, PL_FAULT_DEVICE_OOM_STEP, 3, 2},
        {"device_oom@op=12", true, PL_FAULT_DEVICE_OOM_OP, 12, 1},
        {"pinned_oom@alloc=1", true, PL_FAULT_PINNED_OOM_ALLOC, 1, 1},
        {"disk_full@write=2,forever", true, PL_FAULT_DISK_FULL_WRITE, 2, UINT64_MAX},
        {"disk_full@write=18446744073709551615", true, PL_FAULT_DISK_FULL_WRITE, UINT64_MAX, 1},
        {"host_oom@alloc=7,forever", true, PL_FAULT_HOST_OOM_ALLOC, 7, UINT64_MAX},
        {"host_oom@step=7", false, 0, 0, 0},
        {"disk_full@write=18446744073709551616", false, 0, 0, 0},
        {"disk_full@write=0000000000000000000000000000000000001", false, 0, 0, 0},
        {"disk_full@write=+1", false, 0, 0, 0},
        {"disk_full@write=", false, 0, 0, 0},
        {"disk_full@step=1", false, 0, 0, 0},
        {"device_oom@step=1,forever,count=1", false, 0, 0, 0},
        {"device_oom@step=1,count=", false, 0, 0, 0},
    };
    struct pl_fault f = {.kind = 0};
    ck_assert(pl_fault_parse(cases[_i].text, &f) == cases[_i].ok);
    ck_assert_uint_eq(f.kind, cases[_i].kind);
    ck_assert(f.at == cases[_i].at && f.count == cases[_i].count);
}
END_TEST

START_TEST(input_paths_are_tried_from_here_then_beside_the_file) {
    char dir[] = "/tmp/check_job_XXXXXX", yaml[64], data[64];
    struct pl_job job;
    struct pl_diag d = {0};
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(yaml, sizeof yaml, "%s/run.yaml", dir);
    snprintf(data, sizeof data, "%s/data.jsonl", dir);
    FILE *f = fopen(yaml, "w");
    ck_assert(f && fputs(BASE "dataset: data.jsonl\n", f) >= 0 && fclose(f) == 0);
    ck_assert_int_eq(pl_job_read(&job, yaml, NULL, 0, NULL, &d), PL_ERR_OK);

    char *missing = pl_job_input_path(&job, job.dataset);
    ck_assert_str_eq(missing, "data.jsonl");
    f = fopen(data, "w");
    ck_assert(f && fclose(f) == 0);
    char *beside = pl_job_input_path(&job, job.dataset);
    ck_assert_str_eq(beside, data);
    ck_assert_int_eq(chdir(dir), 0);
    char *here = pl_job_input_path(&job, job.dataset);
    ck_assert_str_eq(here, "data.jsonl");
    char *absolute = pl_job_input_path(&job, "/no/such");
    ck_assert_str_eq(absolute, "/no/such");
    free(missing);
    free(beside);
    free(here);
    free(absolute);
    pl_job_finish(&job);
    unlink(data);
    unlink(yaml);
    rmdir(dir);
}
END_TEST

/* It is time of the processor, and the best of many, since the machine may be busy. */
START_TEST(reading_a_job_takes_milliseconds) {
    double best = INFINITY;
    for (int i = 0; i < 50; i++) {
        struct timespec a, b;
        struct pl_job job;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
        parse_ok(&job, shapes[3], NULL, 0, NULL);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
        pl_job_finish(&job);
        best = fmin(best,
                    (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) * 1e-6);
    }
    ck_assert_msg(best < 10, "%g ms", best);
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

int main(void) {
    Suite *s = suite_create("config.job");
    TCase *tc = tcase_create("job");
    tcase_add_loop_test(tc, a_value_means_what_yaml_1_2_says, 0, COUNT(values));
    tcase_add_test(tc, places_point_at_values_and_dataset_paths);
    tcase_add_test(tc, a_byte_order_mark_carriage_returns_and_one_document_marker_are_fine);
    tcase_add_test(tc, defaults_leave_mode_unset);
    tcase_add_loop_test(tc, a_synonym_sets_its_key_and_leaves_a_note, 0, 9);
    tcase_add_test(tc, a_later_override_wins_over_an_earlier_one_and_the_file);
    tcase_add_loop_test(tc, an_override_of_a_list_is_cut_at_its_separator, 0, 8);
    tcase_add_test(tc, a_job_needs_no_file);
    tcase_add_test(tc, a_refused_value_leaves_the_key_as_it_was);
    tcase_add_loop_test(tc, ordinary_training_files_are_read_whole, 0, COUNT(shapes));
    tcase_add_test(tc, every_configuration_that_is_shipped_can_be_read);
    tcase_add_test(tc, a_full_job_is_written_without_lora_defaults);
    tcase_add_loop_test(tc, derived_values_follow_their_keys, 0, 11);
    tcase_add_loop_test(tc, a_fault_is_read_or_refused, 0, 15);
    tcase_add_test(tc, input_paths_are_tried_from_here_then_beside_the_file);
    tcase_add_test(tc, reading_a_job_takes_milliseconds);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
