/* check_import.c - configurations of other trainers as jobs: every sample with the values that are
 * expected of it (samples/NAME.want), and what holds of each whatever it says. */
#include "estimator/base/open_file.h"
#include "estimator/config/job_text.h"
#include "estimator/config/key_table.h"
#include "estimator/import/import.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAMPLES     PL_SOURCE_ROOT "/tests/import/samples/"
#define SAMPLES_MAX 100

static char *names[SAMPLES_MAX];
static int n_names;

static bool is_sample(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot && strcmp(name, "ds_config.json") != 0 &&
           (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0 || strcmp(dot, ".json") == 0);
}

static void list_samples(void) {
    DIR *dir = opendir(SAMPLES);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (is_sample(e->d_name) && n_names < SAMPLES_MAX) names[n_names++] = strdup(e->d_name);
    if (dir) closedir(dir);
}

static void read_sample(const char *name, struct pl_import *im) {
    char path[512];
    struct pl_diag d = {0};
    snprintf(path, sizeof path, SAMPLES "%s", name);
    pl_err err = pl_import_read(im, path, PL_RECIPE_NONE, &d);
    ck_assert_msg(err == PL_ERR_OK, "%s: %s", name, d.message);
}

static void parse(struct pl_import *im, const char *yaml, enum pl_recipe from) {
    struct pl_diag d = {0};
    pl_err err = pl_import_parse(im, "dir/their.yaml", yaml, strlen(yaml), from, &d);
    ck_assert_msg(err == PL_ERR_OK, "%s\n%s", d.message, yaml);
}

static const char *value_of(const struct pl_job *job, const char *key, struct pl_text *text) {
    pl_text_finish(text);
    const enum pl_key_id id = pl_key_find(key);
    ck_assert_msg(id != PL_KEY_COUNT, "%s", key);
    pl_job_write_key(job, id, text);
    return pl_text_str(text);
}

/* ---- what is expected of a sample ---- */

/* Lines "key: value" for all keys that are given, then "- text" for what is not supported. */
static void write_want(const struct pl_import *im, struct pl_text *out) {
    uint32_t n;
    const struct pl_key_info *keys = pl_key_table(&n);
    struct pl_text missed = {0};
    for (uint32_t i = 0; i < n; i++) {
        if (!im->job.given[i]) continue;
        pl_text_addf(out, "%s: ", keys[i].key);
        pl_job_write_key(&im->job, (enum pl_key_id)i, out);
        pl_text_add(out, "\n");
    }
    pl_import_write_missed(im, &missed);
    for (char *line = missed.data, *end; line && *line; line = end + 1) {
        end = strchr(line, '\n');
        pl_text_addf(out, "- %.*s\n", (int)(end - line), line);
    }
    pl_text_finish(&missed);
}

/* I2 */
START_TEST(a_sample_is_the_job_that_is_expected) {
    struct pl_import im;
    struct pl_text want = {0}, got = {0};
    char path[512], buf[4096];
    const char *record = getenv("IMPORT_WANT_OUT");
    read_sample(names[_i], &im);
    write_want(&im, &got);
    snprintf(path, sizeof path, "%s/%s.want", record ? record : SAMPLES, names[_i]);
    FILE *f = fopen(path, record ? "w" : "r");
    ck_assert_msg(f != NULL, "%s", path);
    if (record) {
        fputs(pl_text_str(&got), f);
    } else {
        for (size_t n; (n = fread(buf, 1, sizeof buf, f));)
            pl_text_addn(&want, buf, n);
        ck_assert_msg(strcmp(pl_text_str(&want), pl_text_str(&got)) == 0,
                      "%s: expected\n%s\nbut it is\n%s", names[_i], pl_text_str(&want),
                      pl_text_str(&got));
    }
    fclose(f);
    pl_text_finish(&want);
    pl_text_finish(&got);
    pl_import_finish(&im);
}
END_TEST

/* ---- what holds of every sample ---- */

/* I3: only a model and a mode may be missing, and then the import says so. */
static void check_reads_back(const struct pl_import *im, const char *name) {
    struct pl_text yaml = {0}, once = {0}, twice = {0};
    struct pl_job job;
    struct pl_diag d = {0};
    pl_import_write(im, &yaml);
    pl_err err = pl_job_parse(&job, "job.yaml", yaml.data, yaml.len, NULL, 0, NULL, &d);
    if (err == PL_ERR_CONFIG_MISSING) {
        ck_assert_msg(strstr(yaml.data, d.message), "%s: %s", name, d.message);
        pl_text_finish(&yaml);
        return;
    }
    ck_assert_msg(err == PL_ERR_OK, "%s:%llu: %s\n%s", name, (unsigned long long)d.line, d.message,
                  yaml.data);
    pl_job_write(&im->job, &once);
    pl_job_write(&job, &twice);
    ck_assert_msg(strcmp(once.data, twice.data) == 0, "%s:\n%s\n%s", name, once.data, twice.data);
    pl_job_finish(&job);
    pl_text_finish(&yaml);
    pl_text_finish(&once);
    pl_text_finish(&twice);
}

/* I1: the line of every key at the top that is not null, or one inside it, is told. */
static void check_tells_all(const struct pl_import *im, const char *name) {
    const struct pl_node *nodes = im->doc.nodes;
    for (uint32_t i = nodes[0].first; i; i = nodes[nodes[i].next].next) {
        const struct pl_node *value = &nodes[nodes[i].next];
        const uint32_t after = value->next;
        const uint64_t end = after ? nodes[after].line : UINT64_MAX;
        bool told =
            value->kind == PL_NODE_SCALAR && (!*value->text || !strcmp(value->text, "null"));
        for (uint32_t k = 0; k < im->n_notes; k++)
            told |= im->notes[k].line >= nodes[i].line &&
                    (im->notes[k].line < end || im->notes[k].line == nodes[i].line);
        ck_assert_msg(told, "%s: nothing is said of `%s`", name, nodes[i].text);
    }
}

START_TEST(a_sample_reads_back_and_is_told_whole) {
    struct pl_import im;
    read_sample(names[_i], &im);
    check_reads_back(&im, names[_i]);
    check_tells_all(&im, names[_i]);
    pl_import_finish(&im);
}
END_TEST

/* ---- single facts ---- */

#define AX      "base_model: m\nmicro_batch_size: 1\nlearning_rate: 1e-4\n"
#define TUNE    "model: {_component_: a.b.lora_x}\ncheckpointer: {checkpoint_dir: m}\n"
#define TRL     "model_name_or_path: m\ndataset_name: d.jsonl\n"
#define SLOTH   "model_name: m\nrandom_state: 1\ndataset_name: d.jsonl\n"
#define CLASSIC "model_name_or_path: m\nfinetuning_type: lora\n"
#define BEGINS                                                                                     \
    "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}{% set "     \
    "turns = messages[1:] %}{% else %}{% set system = "
#define TURNS   " %}{% set turns = messages %}{% endif %}"
#define CONTENT "{{ m['content'] }}"
#define ANSWERS "{% elif m['role'] == 'assistant' %}{% generation %}"
#define ENDS    "{% endgeneration %}{% endif %}{% endfor %}"
#define LLAMA   "model_name_or_path: m\nfinetuning_type: lora\ntemplate: llama3\n"
#define ALPACA                                                                                     \
    "Below is an instruction that describes a task. Write a response that appropriately "          \
    "completes the request."
#define ALPACA_IN                                                                                  \
    "Below is an instruction that describes a task, paired with an input that provides further "   \
    "context. Write a response that appropriately completes the request."
static const struct {
    const char *yaml, *key, *value;
} facts[] = {
    {AX "max_steps: -1\n", "max_steps", "0"},
    {AX "max_steps: 500_000\n", "max_steps", "500000"},
    {AX "bf16: yes\n", "dtype", "bf16"},
    {AX "bf16: false\nbfloat16: true\n", "dtype", "bf16"},
    {AX "bf16: false\nfloat16: true\nfp16: false\n", "dtype", "fp16"},
    {AX "adapter: qlora\nbnb_config_kwargs: {bnb_4bit_use_double_quant: false}\n", "double_quant",
     "false"},
    {AX "bf16: no\n", "dtype", "fp32"},
    {AX "gradient_checkpointing: on\n", "gradient_checkpointing", "full"},
    {AX "sequence_len: 1\nsequence_len: 64\n", "max_seq_length", "64"},
    {AX "sequence_len:\n", "max_seq_length", "512"},
    {AX "learning_rate: \"2e-5\"\n", "learning_rate", "2e-05"},
    {AX "lr_scheduler: cosine\ncosine_min_lr_ratio: 0.1\n", "min_lr_ratio", "0.1"},
    {AX "adapter: lora\nload_in_4bit: true\n", "mode", "qlora"},
    {AX "adapter: lora\nlora_target_modules: \"a.(q|v)_proj\"\n", "lora_target_modules",
     "[\"a.(q|v)_proj\"]"},
    {AX "warmup_steps: 7\nwarmup_ratio: 0.2\n", "warmup_steps", "7"},
    {AX "deepspeed: zero1.json\n", "sharding", "optimizer"},
    {AX "deepspeed: {zero_optimization: {stage: 2}}\n", "sharding", "gradients"},
    {LLAMA "stage: dpo\ndeepspeed: zero2.json\n", "devices", "auto"},
    {AX "fsdp: [full_shard, auto_wrap]\n", "sharding", "weights"},
    {AX "output_dir: \"{a}\"\n", "output_dir", "\"{a}\""},
    {AX "batch_size: 32\n", "global_batch_size", "32"},
    {TRL "warmup_steps: 0.1\n", "warmup_ratio", "0.1"},
    {TRL "report_to: [wandb, tensorboard]\n", "report_to", "[jsonl, tensorboard]"},
    {TRL "torch_dtype: bfloat16\n", "master_weights", "false"},
    {TRL "torch_dtype: float32\n", "master_weights", "true"},
    {TRL "save_strategy: no\n", "save_steps", "0"},
    {TRL "completion_only_loss: true\n", "train_on", "responses"},
    {LLAMA "lr_scheduler_type: cosine_with_min_lr\nlearning_rate: 1e-4\n"
           "lr_scheduler_kwargs: {min_lr: 1e-5}\n",
     "min_lr_ratio", "0.1"},
    {CLASSIC "template: qwen3_nothink\n", "chat_template", "chatml"},
    {CLASSIC "template: mistral\n", "chat_template", "mistral_sysfirst"},
    {LLAMA "disable_gradient_checkpointing: true\n", "gradient_checkpointing", "none"},
    {LLAMA "mask_history: true\n", "train_on", "last"},
    {TUNE "output_dir: ${a}/x\na: ${b.c}\nb: {c: /y}\n", "output_dir", "/y/x"},
    {TUNE "epochs: 1\nmax_steps_per_epoch: 9\n", "max_steps", "9"},
    {TUNE "optimizer: {_component_: torch.optim.SGD, lr: 1}\n", "optimizer", "sgd"},
    {TUNE "device: cpu\n", "device", "cpu"},
    {AX "datasets: [{path: d.jsonl, type: \"alpaca:chat\"}]\n", "datasets",
     "[{path: d.jsonl, format: auto, prompt_format: \"SYSTEM: " ALPACA_IN
     "\\nUSER: {instruction}\\n{input}\\nASSISTANT:\", no_input_format: \"SYSTEM: " ALPACA
     "\\nUSER: {instruction}\\nASSISTANT:\"}]"},
    {AX "datasets: [{path: d.jsonl, type: alpaca}]\n", "datasets",
     "[{path: d.jsonl, format: auto, prompt_format: \"" ALPACA_IN
     "\\n\\n### Instruction:\\n{instruction}\\n\\n### Input:\\n{input}\\n\\n### Response:\\n\", "
     "no_input_format: \"" ALPACA
     "\\n\\n### Instruction:\\n{instruction}\\n\\n### Response:\\n\"}]"},
    {AX "datasets: [{path: d.jsonl, type: alpaca_instruct.load_no_prompt}]\n", "datasets",
     "[{path: d.jsonl, format: auto, prompt_format: \"### Instruction:\\n{instruction}\\n\\n### "
     "Input:\\n{input}\\n\\n### Response:\\n\", no_input_format: \"### "
     "Instruction:\\n{instruction}\\n\\n### Response:\\n\"}]"},
    {AX "datasets: [{path: d.jsonl, type: {field_instruction: q, system_prompt: \"a {b}\", "
        "system_format: \"<{system}>\", format: \"{instruction} {input}!\", "
        "no_input_format: \"{instruction}!\"}}]\n",
     "datasets",
     "[{path: d.jsonl, format: auto, prompt_format: \"<a {{b}}>{q} {input}!\", no_input_format: "
     "\"<a {{b}}>{q}!\"}]"},
    {LLAMA "dataset: x\n", "datasets",
     "[{path: data/x.json, format: auto, field_output: output, question_format: "
     "\"{instruction}\\n{input}\", no_input_format: \"{instruction}\"}]"},
    {LLAMA "dataset: x\nstage: pt\n", "datasets", "[{path: data/x.json, format: text}]"},
    {TUNE "dataset: {_component_: torchtune.datasets.instruct_dataset, source: json, data_files: "
          "d.json, column_map: {input: q, output: a}}\n",
     "datasets", "[{path: d.json, format: auto, field_output: a, question_format: \"{q}\"}]"},
    {TUNE "dataset: {_component_: torchtune.datasets.samsum_dataset}\n"
          "tokenizer: {_component_: torchtune.models.gemma.gemma_tokenizer}\n",
     "datasets",
     "[{path: data/Samsung/samsum, format: auto, field_output: summary, prompt_format: "
     "\"{dialogue}\"}]"},
    {TUNE "dataset: {_component_: torchtune.datasets.alpaca_dataset, column_map: {instruction: q, "
          "output: a}}\n",
     "datasets",
     "[{path: data/tatsu-lab/alpaca, format: auto, field_output: a, question_format: \"" ALPACA
     "\\n\\n### Instruction:\\n{q}\\n\\n### Response:\\n\"}]"},
    {AX "datasets: [{path: parquet, data_files: [a.parquet, b.parquet], type: sharegpt}]\n",
     "datasets", "[{path: a.parquet, format: sharegpt}, {path: b.parquet, format: sharegpt}]"},
    {TUNE
     "dataset: {_component_: torchtune.datasets.chat_dataset, source: json, data_files: [a.json, "
     "b.json]}\n",
     "datasets", "[{path: a.json, format: messages}, {path: b.json, format: messages}]"},
    {AX "rl: ipo\n", "preference_loss", "ipo"},
    {AX "rl_beta: 0.2\nrl: orpo\norpo_alpha: 0.3\n", "beta", "0.2"},
    {AX "rl: simpo\n", "sft_weight", "1"},
    {AX "rl: kto\nkto_desirable_weight: 0\n", "desirable_weight", "1"},
    {AX "rl: dpo\ncpo_alpha: 1\n", "sft_weight", "0"},
    {AX "rl: dpo\nadapter: lora\nlora_dropout: 0.1\n", "lora_dropout", "0"},
    {TRL "loss_type: sigmoid\nuse_peft: true\nlora_dropout: 0.1\ndisable_dropout: false\n",
     "lora_dropout", "0.1"},
    {AX "rl: dpo\nsample_packing: true\n", "packing", "false"},
    {AX "adapter: lora\nlora_target_parameters: [mlp.experts.down_proj]\n",
     "lora_target_parameters", "[mlp.experts.down_proj]"},
    {LLAMA "stage: dpo\npref_loss: simpo\npref_ftx: 0.2\n", "sft_weight", "0.2"},
    {LLAMA "stage: dpo\npref_loss: hinge\ndpo_label_smoothing: 0.1\n", "label_smoothing", "0"},
    {LLAMA "stage: dpo\nref_model: m\n", "reference", "base"},
    {LLAMA "stage: dpo\nadapter_name_or_path: a\nref_model: m\nref_model_adapters: a\n",
     "reference", "initial"},
    {TRL "loss_type: sigmoid\nlabel_smoothing: 0.1\n", "preference_loss", "cdpo"},
    {TRL "loss_type: exo_pair\nlabel_smoothing: 0.001\n", "label_smoothing", "0.001"},
    {TRL "loss_type: sigmoid\nrpo_alpha: 1\n", "sft_weight", "1"},
    {TRL "loss_type: [sft, hinge]\nloss_weights: [0.5, 1]\n", "sft_weight", "0.5"},
    {TRL "loss_type: [sft, hinge]\n", "preference_loss", "hinge"},
    {TRL "loss_type: simpo\ncpo_alpha: 0\n", "sft_weight", "0"},
    {TRL "loss_type: nll\n", "stage", "sft"},
    {TRL "loss_type: kto\n", "shuffle", "false"},
    {TRL "beta: 0.2\nrun_name: my-KTO\n", "stage", "kto"},
    {TRL "beta: 0.2\noutput_dir: zephyr-orpo\n", "stage", "orpo"},
    {TRL "loss_type: ipo\nlearning_rate: 3e-7\n", "learning_rate", "3e-07"},
    {TRL "loss_type: ipo\ntruncation_mode: keep_end\n", "truncation", "keep_end"},
    {SLOTH "loss_type: sigmoid\n", "learning_rate", "5e-05"},
    {SLOTH "loss_type: sigmoid\nbatch_size: 3\n", "batch_size", "3"},
    {SLOTH "loss_type: sigmoid\n", "warmup_ratio", "0.1"},
    {SLOTH "", "learning_rate", "0.0002"},
    {TRL "dataset_train_split: train[:1000]\n", "datasets",
     "[{path: d.jsonl, format: auto, split: \"train[:1000]\"}]"},
    {TRL "dataset_train_split: train_sft[5%:10%]\n", "datasets",
     "[{path: d.jsonl, format: auto, split: \"train[5%:10%]\"}]"},
    {AX "datasets: [{path: d.jsonl, split: \"train[20:]\", type: sharegpt}]\n", "datasets",
     "[{path: d.jsonl, format: sharegpt, split: \"train[20:]\"}]"},
    {AX "test_datasets: [{path: d.jsonl, split: \"test[-10%:]\", type: sharegpt}]\n", "datasets",
     "[{path: d.jsonl, format: sharegpt, split: \"eval[-10%:]\"}]"},
    {LLAMA "stage: pt\ndataset: x\nmax_samples: 50\n", "datasets",
     "[{path: data/x.json, format: text, max_samples: 50}]"},
    {LLAMA "stage: pt\ndataset: x\neval_dataset: y\nmax_samples: 5\n", "datasets",
     "[{path: data/x.json, format: text, max_samples: 5}, {path: data/y.json, format: text, "
     "max_samples: 5, split: eval}]"},
    {TUNE "loss: {_component_: torchtune.rlhf.loss.SimPOLoss}\n", "beta", "2"},
    {TUNE "loss: {_component_: torchtune.rlhf.loss.RSOLoss, gamma: 0.3}\n", "beta", "0.3"},
};

START_TEST(a_line_is_the_value_that_it_means) {
    struct pl_import im;
    struct pl_text text = {0};
    parse(&im, facts[_i].yaml, PL_RECIPE_NONE);
    ck_assert_msg(strcmp(value_of(&im.job, facts[_i].key, &text), facts[_i].value) == 0,
                  "%s: %s is %s", facts[_i].yaml, facts[_i].key, pl_text_str(&text));
    pl_text_finish(&text);
    pl_import_finish(&im);
}
END_TEST

/* A program writes the text of a template that has no name here. */
static const struct {
    const char *yaml, *program;
} programs[] = {
    {CLASSIC "template: llama2\n", BEGINS
     "''" TURNS "{% for m in turns %}{% if m['role'] == 'user' %}{{ bos_token }}{{ '[INST] ' "
     "}}{% if loop.first and system %}{{ '<<SYS>>\\n' }}{{ system }}{{ "
     "'\\n<</SYS>>\\n\\n' }}{% endif %}" CONTENT "{{ ' [/INST]' }}" ANSWERS CONTENT
     "{{ eos_token }}" ENDS},
    {CLASSIC "template: qwen3\n", BEGINS
     "''" TURNS "{% if system %}{{ '<|im_start|>system\\n' }}{{ system }}{{ "
     "'<|im_end|>\\n' }}{% endif %}{% for m in turns %}{% if m['role'] == 'user' %}{{ "
     "'<|im_start|>user\\n' }}" CONTENT "{{ '<|im_end|>\\n<|im_start|>assistant\\n' }}" ANSWERS
     "{% if '<think>' not in m['content'] and '</think>' not in m['content'] %}{{ "
     "'<think>\\n\\n</think>\\n\\n' }}{% endif %}" CONTENT "{{ '<|im_end|>\\n' }}" ENDS},
    {CLASSIC "template: vicuna\n", BEGINS
     "'A chat between a curious user and an artificial intelligence assistant. The "
     "assistant gives helpful, detailed, and polite answers to the user\\'s questions.'" TURNS
     "{% if system %}{{ system }}{% endif %}{% for m in turns %}{% if m['role'] == 'user' "
     "%}{{ 'USER: ' }}" CONTENT "{{ ' ASSISTANT:' }}" ANSWERS CONTENT "{{ eos_token }}" ENDS},
};

START_TEST(a_template_without_a_name_here_is_a_program) {
    struct pl_import im;
    parse(&im, programs[_i].yaml, PL_RECIPE_NONE);
    ck_assert(im.template);
    ck_assert_str_eq(im.template, programs[_i].program);
    ck_assert_uint_eq(pl_import_count(&im, PL_IMPORT_MISSED), 1);
    pl_import_place_template(&im, "job.jinja");
    ck_assert_uint_eq(pl_import_count(&im, PL_IMPORT_MISSED), 0);
    check_reads_back(&im, programs[_i].yaml);
    pl_import_finish(&im);
}
END_TEST

static const struct {
    const char *yaml, *words;
} misses[] = {
    {CLASSIC "template: qwen3\nenable_thinking: false\n", "an empty one is not trained on"},
    {CLASSIC "template: glm4\n", "this template is not known"},
    {AX "rl: grpo\n", "GRPO"},
    {AX "rl: dpo\ndpo_use_weighting: true\n", "WPO"},
    {AX "rl: dpo\ndpo_loss_type: [sigmoid, hinge]\n", "several losses"},
    {AX "rl: dpo\ndpo_loss_type: [sigmoid, sft]\ndpo_loss_weights: [2, 1]\n", "other than 1"},
    {AX "rl: dpo\nrl_adapter_ref_model: true\n", "a second model"},
    {AX "rl: kto\ndatasets: [{path: d.jsonl, type: zephyr.nectar}]\n", "zephyr.nectar"},
    {AX "optimizer: muon\n", "Muon"},
    {AX "never_heard_of: 1\n", "not known here"},
    {AX "lora_r: 99999\nadapter: lora\n", "outside 1 to 4096"},
    {AX "sequence_len: [1]\n", "a list or a section"},
    {AX "sequence_len: 99999999999999999999\n", "outside"},
    {AX "neftune_noise_alpha: 5\n", "NEFTune"},
    {AX "output_dir: ${x}/y\n", "output_dir"},
    {TUNE "output_dir: ${a}\na: ${a}\n", "output_dir"},
    {TUNE "epochs: 2\nmax_steps_per_epoch: 9\n", "max_steps"},
    {LLAMA "stage: ppo\n", "PPO"},
    {LLAMA "stage: dpo\npref_loss: kto_pair\n", "KTO on pairs"},
    {LLAMA "stage: dpo\npref_bco_weight: 0.5\n", "BCO"},
    {LLAMA "stage: dpo\nref_model: other\n", "a reference other than"},
    {LLAMA "quantization_bit: 8\n", "in 8 bits"},
    {TRL "lr_scheduler_kwargs: {num_cycles: 2, a: 1}\n", "other than the lowest rate"},
    {TRL "model_revision: v2\n", "--revision"},
    {TRL "loss_type: aot\n", "the loss `aot`"},
    {TRL "loss_type: kto\nloss_weights: [1]\n", "a single loss"},
    {TRL "loss_type: apo_zero_unpaired\n", "apo_zero_unpaired"},
    {TRL "cpo_alpha: 1\n", "CPO"},
    {TRL "loss_type: sigmoid\nf_divergence_type: js_divergence\n", "another divergence"},
    {TRL "loss_type: sigmoid\nsync_ref_model: true\n", "TR-DPO"},
    {TRL "beta: 0.2\n", "trl kto"},
    {TRL "truncation_mode: keep_end\n", "cutting at the start"},
    {TRL "loss_type: dft\n", "DFT"},
    {TUNE "loss: {_component_: torchtune.rlhf.loss.PPOLoss}\n", "another loss"},
    {TRL "load_best_model_at_end: true\n", "best checkpoint"},
    {TRL "dataset_train_split: train[:10%]+train[20:]\n", "all rows of the file are read"},
    {TRL "dataset_train_split: train[:0]\n", "train[:0]"},
    {AX "datasets: [{path: d.jsonl, split: \"train[20:5]\"}]\n", "train[20:5]"},
    {AX "datasets: [{path: d.jsonl, shards: 10}]\n", "drawn at random"},
    {AX "datasets: [{path: d.jsonl, roles_to_train: [user, assistant]}]\n", "other roles"},
    {AX "datasets: [{path: d.jsonl, train_on_eos: all}]\n", "other ends"},
    {AX "datasets: [{path: d.jsonl, never_heard_of: 1}]\n", "never_heard_of: this key"},
    {AX "datasets: [{path: d.jsonl, type: completion}]\n", "cut into several samples"},
    {AX "datasets: [{path: d.jsonl, type: {format: \"{instruction}: \"}}]\n", "no_input_format"},
    {AX "datasets: [{path: d.jsonl, type: {field_system: s}}]\n", "a system text of the column"},
    {LLAMA "dataset: x\nstage: pt\npacking: true\n", "joined and cut"},
    {LLAMA "dataset: x\nstage: pt\n", "joined and cut"},
    {LLAMA "dataset: x\nmax_samples: some\n", "no number of rows"},
};

/* L1 of dialect.h */
START_TEST(what_is_not_done_is_named) {
    struct pl_import im;
    struct pl_text text = {0};
    parse(&im, misses[_i].yaml, PL_RECIPE_NONE);
    pl_import_write_missed(&im, &text);
    ck_assert_msg(strstr(pl_text_str(&text), misses[_i].words), "%s: %s", misses[_i].yaml,
                  pl_text_str(&text));
    pl_text_finish(&text);
    check_reads_back(&im, misses[_i].yaml);
    pl_import_finish(&im);
}
END_TEST

static const char *const inert[] = {
    AX "rl:\nneftune_noise_alpha: null\nuse_dora: false\nearly_stopping_patience: 0\n"
       "plugins: []\ndeepspeed:\nfsdp: []\nfsdp_config: {}\nspecial_tokens: {unk_token: "
       "\"<unk>\"}\nexperts_implementation: scattermoe\nquantize_moe_experts: true\n"
       "bf16: auto\nbfloat16: true\nmodel_quantization_config: Mxfp4Config\n"
       "model_quantization_config_kwargs: {dequantize: true}\n"
       "datasets: [{path: d.jsonl, ds_type: json, roles_to_train: [assistant], train_on_eos: "
       "turn, field_tools: tools, shards: null, type: sharegpt}]\n",
    SLOTH "training: {eval_steps: 0}\ninference: {top_p: 0.9}\n",
};

START_TEST(off_and_empty_lines_are_not_missed) {
    struct pl_import im;
    struct pl_text text = {0};
    parse(&im, inert[_i], PL_RECIPE_NONE);
    pl_import_write_missed(&im, &text);
    ck_assert_str_eq(pl_text_str(&text), "");
    pl_text_finish(&text);
    pl_import_finish(&im);
}
END_TEST

START_TEST(of_a_key_that_is_given_twice_the_last_counts) {
    struct pl_import im;
    struct pl_text text = {0};
    parse(&im, AX "lora_r: 99999\nadapter: lora\nlora_r: 8\nwarmup_ratio: x\nwarmup_ratio: 0.1\n",
          PL_RECIPE_NONE);
    pl_import_write(&im, &text);
    ck_assert_uint_eq(im.job.lora_r, 8);
    ck_assert_uint_eq(pl_import_count(&im, PL_IMPORT_MISSED), 0);
    ck_assert_msg(strstr(text.data, "line 4, `lora_r: 99999`: given again on line 6"), "%s",
                  text.data);
    pl_text_finish(&text);
    pl_import_finish(&im);
}
END_TEST

/* Text of the file stands in comments and values, and is never a line of its own. */
START_TEST(text_of_the_file_stays_where_it_is_put) {
    static const char yaml[] =
        AX "\"x\\nmode: full\\n\": \"a\\u2028mode: qlora\\u0085seed: 1\"\n"
           "run_name: \"b\\nseed: 2\"\noutput_dir: \"c: # d\"\n"
           "datasets: [{path: \"e}, {path: f\", type: \"alpaca\\nseed: 3\"}]\n";
    struct pl_import im;
    parse(&im, yaml, PL_RECIPE_NONE);
    ck_assert(!im.job.given[PL_KEY_seed]);
    ck_assert_uint_eq(im.job.datasets.n, 1);
    check_reads_back(&im, yaml);
    pl_import_finish(&im);
}
END_TEST

static const struct {
    const char *yaml;
    pl_err err;
} refused[] = {
    {"", PL_ERR_CONFIG_SYNTAX},
    {"# nothing\n", PL_ERR_CONFIG_SYNTAX},
    {"- a\n", PL_ERR_CONFIG_SYNTAX},
    {"just words\n", PL_ERR_CONFIG_SYNTAX},
    {"a: &x 1\nb: *x\n", PL_ERR_CONFIG_SYNTAX},
    {"a: {b: {c: {d: {e: {f: {g: {h: {i: 1}}}}}}}}\n", PL_ERR_CONFIG_SYNTAX},
    {"model: m\nmode: lora\n", PL_ERR_CONFIG_FOREIGN},
    {"a: 1\n", PL_ERR_CONFIG_FOREIGN},
    {"{\"text\": \"hello\"}", PL_ERR_CONFIG_FOREIGN},
};

START_TEST(what_is_no_configuration_is_refused) {
    struct pl_import im;
    struct pl_diag d = {0};
    const char *yaml = refused[_i].yaml;
    ck_assert_int_eq(pl_import_parse(&im, "x", yaml, strlen(yaml), PL_RECIPE_NONE, &d),
                     refused[_i].err);
    ck_assert(*d.message && !im.notes);
    pl_import_finish(&im);
}
END_TEST

/* A job of ours with keys of others gets their hints; a file of another trainer is named as one. */
static const struct {
    const char *yaml;
    pl_err err;
} jobs[] = {
    {"model: m\nmode: lora\nbf16: true\n", PL_ERR_CONFIG_UNKNOWN_KEY},
    {"base_model: m\nadapter: lora\nmicro_batch_size: 1\nsequence_len: 8\n", PL_ERR_OK},
    {AX "bf16: auto\n", PL_ERR_CONFIG_FOREIGN},
    {TUNE "dtype: bf16\n", PL_ERR_CONFIG_FOREIGN},
    {LLAMA "stage: sft\n", PL_ERR_CONFIG_FOREIGN},
    {TRL "use_peft: true\n", PL_ERR_CONFIG_FOREIGN},
    {"{\"peft_type\": \"LORA\", \"r\": 8}", PL_ERR_CONFIG_FOREIGN},
};

/* F1 of recipe.h */
START_TEST(a_foreign_file_is_named_where_a_job_is_read) {
    struct pl_job job;
    struct pl_diag d = {0};
    const char *yaml = jobs[_i].yaml;
    ck_assert_msg(pl_job_parse(&job, "their.yaml", yaml, strlen(yaml), NULL, 0, NULL, &d) ==
                      jobs[_i].err,
                  "%s: %s", yaml, d.message);
    if (jobs[_i].err == PL_ERR_CONFIG_FOREIGN)
        ck_assert_msg(strstr(d.hint, "plimsoll import their.yaml -o job.yaml"), "%s", d.hint);
    if (jobs[_i].err == PL_ERR_OK) pl_job_finish(&job);
}
END_TEST

int main(void) {
    Suite *s = suite_create("import");
    TCase *t = tcase_create("import");
    list_samples();
    tcase_add_loop_test(t, a_sample_is_the_job_that_is_expected, 0, n_names);
    tcase_add_loop_test(t, a_sample_reads_back_and_is_told_whole, 0, n_names);
    tcase_add_loop_test(t, a_line_is_the_value_that_it_means, 0, sizeof facts / sizeof *facts);
    tcase_add_loop_test(t, a_template_without_a_name_here_is_a_program, 0,
                        sizeof programs / sizeof *programs);
    tcase_add_loop_test(t, what_is_not_done_is_named, 0, sizeof misses / sizeof *misses);
    tcase_add_loop_test(t, off_and_empty_lines_are_not_missed, 0, sizeof inert / sizeof *inert);
    tcase_add_test(t, of_a_key_that_is_given_twice_the_last_counts);
    tcase_add_test(t, text_of_the_file_stays_where_it_is_put);
    tcase_add_loop_test(t, what_is_no_configuration_is_refused, 0,
                        sizeof refused / sizeof *refused);
    tcase_add_loop_test(t, a_foreign_file_is_named_where_a_job_is_read, 0,
                        sizeof jobs / sizeof *jobs);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    for (int i = 0; i < n_names; i++)
        free(names[i]);
    return failed != 0 || !n_names;
}
