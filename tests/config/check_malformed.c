/* check_malformed.c - what is refused: each row is a text, the code, the place and a word that the
 * message or its hint must hold. */
#include "estimator/config/job.h"
#include "estimator/config/job_text.h"
#include "estimator/config/validate.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BASE "model: m\nmode: lora\n" /* the keys that every job needs; rows continue at line 3 */
#define FULL "model: m\nmode: full\n"

struct row {
    const char *yaml;
    pl_err err;
    uint64_t line, column;
    const char *word;
};

static const struct row rows[] = {
    /* YAML itself */
    {BASE "lora_r: [1", PL_ERR_CONFIG_SYNTAX, 3, 9, "not valid YAML"},
    {BASE "  lora_r: 8\n", PL_ERR_CONFIG_SYNTAX, 3, 9, "not valid YAML"},
    {BASE "\tlora_r: 8\n", PL_ERR_CONFIG_SYNTAX, 3, 1, "tab"},
    {BASE "datasets:\n  \t- path: x\n", PL_ERR_CONFIG_SYNTAX, 4, 3, "tab"},
    {BASE "run_name: \"open\n", PL_ERR_CONFIG_SYNTAX, 3, 11, "not valid YAML"},
    {BASE "run_name: \xff\n", PL_ERR_CONFIG_SYNTAX, 3, 11, "UTF-8"},
    {BASE "run_name: \x01\n", PL_ERR_CONFIG_SYNTAX, 3, 11, "control"},
    {BASE "run_name: \xc3\xa9\xc3\xa9\xff\n", PL_ERR_CONFIG_SYNTAX, 3, 13, "UTF-8"},
    {BASE "run_name: \"a\\0b\"\n", PL_ERR_CONFIG_SYNTAX, 3, 11, "NUL"},
    {BASE "lora_r: &r 8\n", PL_ERR_CONFIG_SYNTAX, 3, 9, "anchors"},
    {BASE "datasets: &d [a]\n", PL_ERR_CONFIG_SYNTAX, 3, 11, "anchors"},
    {BASE "datasets:\n- &d {path: a}\n", PL_ERR_CONFIG_SYNTAX, 4, 3, "anchors"},
    {BASE "run_name: *name\n", PL_ERR_CONFIG_SYNTAX, 3, 11, "aliases"},
    {BASE "lora_r: !!int 8\n", PL_ERR_CONFIG_SYNTAX, 3, 9, "tags"},
    {BASE "datasets: !x [a]\n", PL_ERR_CONFIG_SYNTAX, 3, 11, "tags"},
    {BASE "datasets: [!!map {path: a}]\n", PL_ERR_CONFIG_SYNTAX, 3, 12, "tags"},
    {"%TAG ! tag:x,2000:\n---\n" BASE, PL_ERR_CONFIG_SYNTAX, 1, 1, "%TAG"},
    {BASE "<<: {lora_r: 8}\n", PL_ERR_CONFIG_SYNTAX, 3, 1, "merge"},
    {BASE "---\nlora_r: 8\n", PL_ERR_CONFIG_SYNTAX, 3, 1, "second document"},
    {BASE "? [a, b]\n: 1\n", PL_ERR_CONFIG_SYNTAX, 3, 3, "as a key"},
    {BASE "datasets: [[[[[[[[a]]]]]]]]\n", PL_ERR_CONFIG_SYNTAX, 3, 18, "too deeply"},
    {"- model\n", PL_ERR_CONFIG_SYNTAX, 1, 1, "key: value"},
    {"just words\n", PL_ERR_CONFIG_SYNTAX, 1, 1, "key: value"},
    /* keys */
    {BASE "lora_rr: 8\n", PL_ERR_CONFIG_UNKNOWN_KEY, 3, 1, "`lora_r`"},
    {BASE "lerning_rate: 1\n", PL_ERR_CONFIG_UNKNOWN_KEY, 3, 1, "`learning_rate`"},
    {BASE "lr_scheduler_typ: linear\n", PL_ERR_CONFIG_UNKNOWN_KEY, 3, 1, "`lr_scheduler`"},
    {BASE "batch-size: 8\n", PL_ERR_CONFIG_UNKNOWN_KEY, 3, 1, "`batch_size`"},
    {BASE "xyzzyplugh: 8\n", PL_ERR_CONFIG_UNKNOWN_KEY, 3, 1, "help keys"},
    {BASE "rr: 8\n", PL_ERR_CONFIG_UNKNOWN_KEY, 3, 1, "help keys"},
    {BASE ": 8\n", PL_ERR_CONFIG_SYNTAX, 3, 1, "not valid YAML"},
    {BASE "\"\": 8\n", PL_ERR_CONFIG_UNKNOWN_KEY, 3, 1, "``"},
    {BASE "seed: 1\nlora_r: 8\nseed: 2\n", PL_ERR_CONFIG_DUPLICATE_KEY, 5, 1, "line 3"},
    {BASE "seed: 1\nlora_r: 8\nseed: 2\n", PL_ERR_CONFIG_DUPLICATE_KEY, 5, 1, "line 5"},
    {BASE "lr: 1\nlearning_rate: 2\n", PL_ERR_CONFIG_DUPLICATE_KEY, 4, 1, "`lr` on line 3"},
    {BASE "epochs: 1\nnum_train_epochs: 2\n", PL_ERR_CONFIG_DUPLICATE_KEY, 4, 1, "line 3"},
    {BASE "seed:\nseed: 2\n", PL_ERR_CONFIG_DUPLICATE_KEY, 4, 1, "line 3"},
    /* types */
    {BASE "lora_r: sixteen\n", PL_ERR_CONFIG_TYPE, 3, 9, "`sixteen`"},
    {BASE "lora_r: 8.0\n", PL_ERR_CONFIG_TYPE, 3, 9, "digits only"},
    {BASE "max_steps: 1e3\n", PL_ERR_CONFIG_TYPE, 3, 12, "digits only"},
    {BASE "lora_r: \"8\"\n", PL_ERR_CONFIG_TYPE, 3, 9, "without quotes"},
    {BASE "lora_r: [8]\n", PL_ERR_CONFIG_TYPE, 3, 9, "not a list"},
    {BASE "lora_r: {a: 8}\n", PL_ERR_CONFIG_TYPE, 3, 9, "not a mapping"},
    {BASE "seed: 1_000\n", PL_ERR_CONFIG_TYPE, 3, 7, "whole number"},
    {BASE "learning_rate: fast\n", PL_ERR_CONFIG_TYPE, 3, 16, "a number"},
    {BASE "learning_rate: '2e-5'\n", PL_ERR_CONFIG_TYPE, 3, 16, "without quotes"},
    {BASE "learning_rate: 1,5\n", PL_ERR_CONFIG_TYPE, 3, 16, "`1,5`"},
    {BASE "learning_rate: 2e\n", PL_ERR_CONFIG_TYPE, 3, 16, "`2e`"},
    {BASE "shuffle: yes\n", PL_ERR_CONFIG_TYPE, 3, 10, "write true or false"},
    {BASE "shuffle: off\n", PL_ERR_CONFIG_TYPE, 3, 10, "write true or false"},
    {BASE "shuffle: \"true\"\n", PL_ERR_CONFIG_TYPE, 3, 10, "without quotes"},
    {BASE "shuffle: 1\n", PL_ERR_CONFIG_TYPE, 3, 10, "true or false"},
    {BASE "batch_size: large\n", PL_ERR_CONFIG_TYPE, 3, 13, "or auto"},
    {BASE "vram_budget: big\n", PL_ERR_CONFIG_TYPE, 3, 14, "16GiB"},
    {BASE "vram_budget: 16 gigs\n", PL_ERR_CONFIG_TYPE, 3, 14, "16GiB"},
    {BASE "vram_budget: 1.5\n", PL_ERR_CONFIG_TYPE, 3, 14, "unit"},
    {BASE "vram_budget: [1]\n", PL_ERR_CONFIG_TYPE, 3, 14, "not a list"},
    {BASE "output_dir: [a]\n", PL_ERR_CONFIG_TYPE, 3, 13, "not a list"},
    {BASE "resume: true\n", PL_ERR_CONFIG_TYPE, 3, 9, "starts over"},
    {BASE "resume: \"false\"\n", PL_ERR_CONFIG_TYPE, 3, 9, "starts over"},
    {BASE "run_name: true\n", PL_ERR_CONFIG_TYPE, 3, 11, "quotes"},
    {BASE "optimizer: {name: sgd}\n", PL_ERR_CONFIG_TYPE, 3, 12, "not a mapping"},
    {BASE "gradient_checkpointing: [none]\n", PL_ERR_CONFIG_TYPE, 3, 25, "one word"},
    {BASE "report_to: {a: b}\n", PL_ERR_CONFIG_TYPE, 3, 12, "not a mapping"},
    {BASE "report_to: [jsonl, ~]\n", PL_ERR_CONFIG_TYPE, 3, 20, "report_to"},
    {BASE "report_to:\n- [jsonl]\n", PL_ERR_CONFIG_TYPE, 4, 3, "not a list"},
    {BASE "datasets: {path: a}\n", PL_ERR_CONFIG_TYPE, 3, 11, "- path"},
    {BASE "datasets: [a, [b]]\n", PL_ERR_CONFIG_TYPE, 3, 15, "not a list"},
    {BASE "datasets:\n- path:\n", PL_ERR_CONFIG_TYPE, 4, 8, "path"},
    {BASE "datasets:\n- path: a\n  format: [text]\n", PL_ERR_CONFIG_TYPE, 5, 11, "format"},
    /* ranges and choices */
    {BASE "lora_r: 0\n", PL_ERR_CONFIG_RANGE, 3, 9, "1 to 4096"},
    {BASE "lora_r: 4097\n", PL_ERR_CONFIG_RANGE, 3, 9, "1 to 4096"},
    {BASE "lora_r: -8\n", PL_ERR_CONFIG_RANGE, 3, 9, "`lora_r` is -8"},
    {BASE "lora_rank: 0\n", PL_ERR_CONFIG_RANGE, 3, 12, "`lora_rank` is 0"},
    {BASE "seed: 99999999999999999999999\n", PL_ERR_CONFIG_RANGE, 3, 7, "0 to 9000000000000000"},
    {BASE "seed: 18446744073709551617\n", PL_ERR_CONFIG_RANGE, 3, 7, "`seed` is"}, /* 2^64 + 1 */
    {BASE "max_seq_length: 1\n", PL_ERR_CONFIG_RANGE, 3, 17, "2 to 16777216"},
    {BASE "batch_size: 0\n", PL_ERR_CONFIG_RANGE, 3, 13, "1 to 65536"},
    {BASE "adam_beta1: 1\n", PL_ERR_CONFIG_RANGE, 3, 13, "0.999999"},
    {BASE "learning_rate: -1e-5\n", PL_ERR_CONFIG_RANGE, 3, 16, "0 to 1000"},
    {BASE "learning_rate: .nan\n", PL_ERR_CONFIG_RANGE, 3, 16, ".nan"},
    {BASE "max_grad_norm: .inf\n", PL_ERR_CONFIG_RANGE, 3, 16, ".inf"},
    {BASE "weight_decay: 1e999\n", PL_ERR_CONFIG_RANGE, 3, 15, "0 to 100"},
    {BASE "vram_budget: -1\n", PL_ERR_CONFIG_RANGE, 3, 14, "2^63"},
    {BASE "vram_budget: 18446744073709551615\n", PL_ERR_CONFIG_RANGE, 3, 14, "2^63"},
    {BASE "vram_budget: 24\n", PL_ERR_CONFIG_RANGE, 3, 14, "24GiB"},
    {BASE "vram_budget: 1048575\n", PL_ERR_CONFIG_RANGE, 3, 14, "1048575GB"},
    {BASE "vram_margin: 0x40\n", PL_ERR_CONFIG_RANGE, 3, 14, "64GB"},
    {BASE "gradient_checkpointing: every_0\n", PL_ERR_CONFIG_RANGE, 3, 25, "1 to 4096"},
    {BASE "gradient_checkpointing: every_4097\n", PL_ERR_CONFIG_RANGE, 3, 25, "1 to 4096"},
    {BASE "gradient_checkpointing: every_x\n", PL_ERR_CONFIG_RANGE, 3, 25, "every_N"},
    {BASE "gradient_checkpointing: full:0\n", PL_ERR_CONFIG_RANGE, 3, 25, "1 to 4096"},
    {BASE "gradient_checkpointing: full:4097+light\n", PL_ERR_CONFIG_RANGE, 3, 25, "1 to 4096"},
    {BASE "gradient_checkpointing: full:\"20\"\n", PL_ERR_CONFIG_RANGE, 3, 25, "full:K+light"},
    {BASE "gradient_checkpointing: full:-1\n", PL_ERR_CONFIG_RANGE, 3, 25, "full:K+light"},
    {BASE "gradient_checkpointing: full:20+\n", PL_ERR_CONFIG_RANGE, 3, 25, "full:K+light"},
    {BASE "gradient_checkpointing: full:20+every_2\n", PL_ERR_CONFIG_RANGE, 3, 25, "full:K+light"},
    {BASE "gradient_checkpointing: offload:x\n", PL_ERR_CONFIG_RANGE, 3, 25, "offload:K+full"},
    {BASE "gradient_checkpointing: full:8+offload\n", PL_ERR_CONFIG_RANGE, 3, 25,
     "only the first layers can be at `offload`"},
    {BASE "gradient_checkpointing: :20\n", PL_ERR_CONFIG_RANGE, 3, 25, "full:K+light"},
    {BASE "gradient_checkpointing: ful\n", PL_ERR_CONFIG_RANGE, 3, 25, "`full`"},
    {"model: m\nmode: dora\n", PL_ERR_CONFIG_RANGE, 2, 7,
     "not among the choices: full, lora, qlora"},
    {"model: m\nmode: loar\n", PL_ERR_CONFIG_RANGE, 2, 7, "did you mean `lora`"},
    {BASE "dtype: float16\n", PL_ERR_CONFIG_RANGE, 3, 8, "write `fp16`"},
    {BASE "loss_scale: 1000\n", PL_ERR_CONFIG_RANGE, 3, 13, "512 and 1024"},
    {BASE "loss_scale: 0.5\n", PL_ERR_CONFIG_TYPE, 3, 13, "dynamic"},
    {BASE "optimizer: adam\n", PL_ERR_CONFIG_RANGE, 3, 12, "did you mean `adamw`"},
    {BASE "optimizer: lion9999\n", PL_ERR_CONFIG_RANGE, 3, 12,
     "choose one of: adamw, adamw_8bit, sgd"},
    {BASE "optimizer: paged_adamw_8bit\n", PL_ERR_CONFIG_RANGE, 3, 12, "planned, not paged"},
    {BASE "master_weights: yes\n", PL_ERR_CONFIG_RANGE, 3, 17, "auto, true, false"},
    {BASE "device: gpu\n", PL_ERR_CONFIG_RANGE, 3, 9, "cuda:N"},
    {BASE "device: 'cuda:'\n", PL_ERR_CONFIG_RANGE, 3, 9, "not among the choices"},
    {BASE "device: cuda:x\n", PL_ERR_CONFIG_RANGE, 3, 9, "not among the choices"},
    {BASE "device: cuda:-1\n", PL_ERR_CONFIG_RANGE, 3, 9, "not among the choices"},
    {BASE "device: cuda:256\n", PL_ERR_CONFIG_RANGE, 3, 9, "0 to 255"},
    {BASE "output_dir: \"\"\n", PL_ERR_CONFIG_RANGE, 3, 13, "empty"},
    {BASE "lora_target_modules: []\n", PL_ERR_CONFIG_RANGE, 3, 22, "empty list"},
    {BASE "report_to: [jsonl, '']\n", PL_ERR_CONFIG_RANGE, 3, 20, "empty text"},
    {BASE "report_to: wandb\n", PL_ERR_CONFIG_RANGE, 3, 12, "plimsoll.export"},
    {BASE "report_to: [json]\n", PL_ERR_CONFIG_RANGE, 3, 12, "`jsonl`"},
    {BASE "datasets: ['']\n", PL_ERR_CONFIG_RANGE, 3, 12, "empty"},
    {BASE "datasets:\n- path: a\n  format: txt\n", PL_ERR_CONFIG_RANGE, 5, 11, "`text`"},
    {BASE "datasets:\n- path: a\n  formt: text\n", PL_ERR_CONFIG_UNKNOWN_KEY, 5, 3, "`format`"},
    {BASE "datasets:\n- path: a\n  weights: 2\n", PL_ERR_CONFIG_UNKNOWN_KEY, 5, 3, "`weight`"},
    {BASE "datasets:\n- path: a\n  revision: 2\n", PL_ERR_CONFIG_UNKNOWN_KEY, 5, 3, "`path`"},
    {BASE "datasets:\n- path: a\n  weight: two\n", PL_ERR_CONFIG_TYPE, 5, 11, "a number"},
    {BASE "datasets:\n- path: a\n  weight: '2'\n", PL_ERR_CONFIG_TYPE, 5, 11, "a number"},
    {BASE "datasets:\n- path: a\n  weight: [2]\n", PL_ERR_CONFIG_TYPE, 5, 11, "a number"},
    {BASE "datasets:\n- path: a\n  weight: 0\n", PL_ERR_CONFIG_RANGE, 5, 11, "remove its entry"},
    {BASE "datasets:\n- path: a\n  weight: -1\n", PL_ERR_CONFIG_RANGE, 5, 11, "0.001 to 1000"},
    {BASE "datasets:\n- path: a\n  weight: .nan\n", PL_ERR_CONFIG_RANGE, 5, 11, "0.001 to 1000"},
    {BASE "datasets:\n- path: a\n  weight: 1e9\n", PL_ERR_CONFIG_RANGE, 5, 11, "0.001 to 1000"},
    {BASE "datasets:\n- path: a\n  split: trian\n", PL_ERR_CONFIG_RANGE, 5, 10, "`train`"},
    {BASE "datasets:\n- path: a\n  split: '[:9]'\n", PL_ERR_CONFIG_RANGE, 5, 10, "choices"},
    {BASE "datasets:\n- path: a\n  split: trian[:9]\n", PL_ERR_CONFIG_RANGE, 5, 10, "choices"},
    {BASE "datasets:\n- path: a\n  split: train[:9\n", PL_ERR_CONFIG_RANGE, 5, 10, "[FROM:TO]"},
    {BASE "datasets:\n- path: a\n  split: train[9]\n", PL_ERR_CONFIG_RANGE, 5, 10, "[FROM:TO]"},
    {BASE "datasets:\n- path: a\n  split: train[1.5:]\n", PL_ERR_CONFIG_RANGE, 5, 10, "no slice"},
    {BASE "datasets:\n- path: a\n  split: train[:+9]\n", PL_ERR_CONFIG_RANGE, 5, 10, "no slice"},
    {BASE "datasets:\n- path: a\n  split: train[:--9]\n", PL_ERR_CONFIG_RANGE, 5, 10, "no slice"},
    {BASE "datasets:\n- path: a\n  split: train[:99999999999999999999]\n", PL_ERR_CONFIG_RANGE, 5,
     10, "no slice"},
    {BASE "datasets:\n- path: a\n  split: train[:9]+test\n", PL_ERR_CONFIG_RANGE, 5, 10,
     "an entry for each part"},
    {BASE "datasets:\n- path: a\n  split: train[:9%](closest)\n", PL_ERR_CONFIG_RANGE, 5, 10,
     "closest row"},
    {BASE "datasets:\n- path: a\n  split: train[1:50%]\n", PL_ERR_CONFIG_RANGE, 5, 10,
     "a percentage and a number"},
    {BASE "datasets:\n- path: a\n  split: train[:101%]\n", PL_ERR_CONFIG_RANGE, 5, 10,
     "outside -100 to 100"},
    {BASE "datasets:\n- path: a\n  split: train[-101%:]\n", PL_ERR_CONFIG_RANGE, 5, 10,
     "outside -100 to 100"},
    {BASE "datasets:\n- path: a\n  split: train[9:5]\n", PL_ERR_CONFIG_RANGE, 5, 10,
     "takes no row"},
    {BASE "datasets:\n- path: a\n  split: train[-5%:-9%]\n", PL_ERR_CONFIG_RANGE, 5, 10,
     "takes no row"},
    {BASE "datasets:\n- path: a\n  split: train[-5:0]\n", PL_ERR_CONFIG_RANGE, 5, 10,
     "takes no row"},
    {BASE "datasets:\n- path: a\n  split: [train]\n", PL_ERR_CONFIG_TYPE, 5, 10, "one word"},
    {BASE "datasets:\n- path: a\n  path: b\n", PL_ERR_CONFIG_DUPLICATE_KEY, 5, 3, "line 4"},
    {BASE "datasets:\n- format: text\n", PL_ERR_CONFIG_MISSING, 4, 3, "no `path`"},
    {BASE "debug_inject: device_oom\n", PL_ERR_CONFIG_RANGE, 3, 15, "kind@unit=N"},
    {BASE "debug_inject: host_oom@step=1\n", PL_ERR_CONFIG_RANGE, 3, 15, "host_oom"},
    {BASE "debug_inject: device_oom@write=1\n", PL_ERR_CONFIG_RANGE, 3, 15, "kind@unit=N"},
    {BASE "debug_inject: device_oom@step=0\n", PL_ERR_CONFIG_RANGE, 3, 15, "step=0"},
    {BASE "debug_inject: device_oom@step=3,count=0\n", PL_ERR_CONFIG_RANGE, 3, 15, "count=0"},
    {BASE "debug_inject: device_oom@step=3,\n", PL_ERR_CONFIG_RANGE, 3, 15, "step=3,"},
    {BASE "debug_inject: [device_oom@step=3,count=2]\n", PL_ERR_CONFIG_RANGE, 3, 15, "quotes"},
    /* combinations */
    {"mode: lora\n", PL_ERR_CONFIG_MISSING, 0, 0, "`model`"},
    {"model: m\n", PL_ERR_CONFIG_MISSING, 0, 0, "`mode`"},
    {"model: m\nmode: ~\n", PL_ERR_CONFIG_MISSING, 0, 0, "`mode`"},
    {"", PL_ERR_CONFIG_MISSING, 0, 0, "`mode`"},
    {"# nothing\n", PL_ERR_CONFIG_MISSING, 0, 0, "`mode`"},
    {"mode: full\ninit: random\n", PL_ERR_CONFIG_MISSING, 0, 0, "`model_config`"},
    {"mode: full\nmodel_config: c\n", PL_ERR_CONFIG_MISSING, 0, 0, "init: random"},
    {FULL "model_config: c\n", PL_ERR_CONFIG_CONFLICT, 3, 15, "init: pretrained"},
    {FULL "adapter_path: a\n", PL_ERR_CONFIG_CONFLICT, 3, 15, "`adapter_path`"},
    {BASE "base_dtype: fp32\n", PL_ERR_CONFIG_CONFLICT, 3, 13, "with `dtype: bf16`"},
    {BASE "warmup_steps: 3\nwarmup_ratio: 0.1\n", PL_ERR_CONFIG_CONFLICT, 4, 15, "warmup_steps"},
    {BASE "min_lr_ratio: 0.1\n", PL_ERR_CONFIG_CONFLICT, 3, 15, "cosine_with_min_lr"},
    {BASE "dtype: fp32\nmaster_weights: true\n", PL_ERR_CONFIG_CONFLICT, 4, 17, "fp32"},
    {BASE "dtype: fp32\ngradient_dtype: bf16\n", PL_ERR_CONFIG_CONFLICT, 4, 17, "fp32"},
    {BASE "batch_size: 2\ngradient_accumulation_steps: 3\nglobal_batch_size: 8\n",
     PL_ERR_CONFIG_CONFLICT, 5, 20, "2 x 3 = 6"},
    {BASE "gradient_accumulation_steps: 3\nglobal_batch_size: 8\n", PL_ERR_CONFIG_CONFLICT, 3, 30,
     "batch_size: auto"},
    {FULL "optimizer_in_backward: true\ngradient_accumulation_steps: 2\n", PL_ERR_CONFIG_CONFLICT,
     3, 24, "more than one micro-batch"},
    {FULL "batch_size: 2\nglobal_batch_size: 5\noptimizer_in_backward: true\n",
     PL_ERR_CONFIG_CONFLICT, 5, 24, "more than one micro-batch"},
    {FULL "global_batch_size: 8\noptimizer_in_backward: true\n", PL_ERR_CONFIG_CONFLICT, 4, 24,
     "batch_size: auto"},
    {FULL "device: cpu\ncomm: nccl\n", PL_ERR_CONFIG_CONFLICT, 4, 7,
     "remove `comm`, or train on GPUs"},
    {FULL "comm: mpi\ndevice: cuda:1\n", PL_ERR_CONFIG_CONFLICT, 3, 7, "memory of the host"},
    {FULL "rank_order: true\noptimizer_in_backward: true\n", PL_ERR_CONFIG_CONFLICT, 4, 24,
     "several devices"},
    {FULL "devices: 2\nrank_order: false\noptimizer_in_backward: true\n", PL_ERR_CONFIG_CONFLICT, 5,
     24, "several devices"},
    {BASE "devices: 2\nrank_order: false\noffload: optimizer\n", PL_ERR_CONFIG_CONFLICT, 3, 10,
     "nothing in host memory"},
    {BASE "devices: 2\nrank_order: false\nsharding: gradients\n", PL_ERR_CONFIG_CONFLICT, 5, 11,
     "once a step"},
    {BASE "devices: 2\nrank_order: false\nsharding: weights\n", PL_ERR_CONFIG_CONFLICT, 5, 11,
     "sharding: optimizer"},
    {BASE "dataset: a\ndatasets: [b]\n", PL_ERR_CONFIG_CONFLICT, 3, 10, "datasets"},
    {BASE "datasets:\n- path: a\n  split: eval\neval_datasets: [b]\n", PL_ERR_CONFIG_CONFLICT, 4, 9,
     "one of the two places"},
    {BASE "datasets:\n- path: a\n  split: test\nval_set_size: 0.1\n", PL_ERR_CONFIG_CONFLICT, 4, 9,
     "held-out rows"},
    {BASE "datasets:\n- path: a\n  split: eval\n  weight: 2\n", PL_ERR_CONFIG_CONFLICT, 4, 9,
     "evaluated once"},
    {BASE "eval_datasets:\n- path: a\n  weight: 2\n", PL_ERR_CONFIG_CONFLICT, 4, 9,
     "evaluated once"},
    {BASE "eval_datasets: [b]\nval_set_size: 0.1\n", PL_ERR_CONFIG_CONFLICT, 4, 15,
     "eval_datasets"},
    {BASE "report_to: [none, jsonl]\n", PL_ERR_CONFIG_CONFLICT, 3, 12, "none"},
};

/* D1 of document.h */
START_TEST(a_malformed_text_is_refused_with_code_place_and_word) {
    const struct row *r = &rows[_i];
    struct pl_job job;
    struct pl_diag d = {0};
    char said[sizeof d.message + sizeof d.hint];
    pl_err err = pl_job_parse(&job, "run.yaml", r->yaml, strlen(r->yaml), NULL, 0, NULL, &d);
    snprintf(said, sizeof said, "%s | %s", d.message, pl_diag_hint_text(&d));
    ck_assert_msg(err == r->err && d.err == r->err, "%s -> %s: %s", r->yaml, pl_err_code(err),
                  said);
    ck_assert_msg(d.line == r->line && d.column == r->column, "%s -> %llu:%llu %s", r->yaml,
                  (unsigned long long)d.line, (unsigned long long)d.column, said);
    ck_assert_msg(strstr(said, r->word) != NULL, "%s -> %s", r->yaml, said);
    ck_assert_str_eq(d.file, "run.yaml");
    ck_assert_ptr_null(job.model); /* finished */
}
END_TEST

static const struct {
    const char *overrides[2];
    pl_err err;
    const char *word;
} override_rows[] = {
    {{"lora_r"}, PL_ERR_USAGE, "key=value"},
    {{"lora-rr=8"}, PL_ERR_CONFIG_UNKNOWN_KEY, "did you mean `lora_r`"},
    {{"=8"}, PL_ERR_CONFIG_UNKNOWN_KEY, "`=8`"},
    {{"a_key_that_is_longer_than_every_key_there_is_in_the_whole_of_the_table=8"},
     PL_ERR_CONFIG_UNKNOWN_KEY,
     "is not a key"},
    {{"lora_r=0"}, PL_ERR_CONFIG_RANGE, "`lora_r=0`: `lora_r` is 0, outside 1 to 4096"},
    {{"lora_r=8", "lora-rank=x"}, PL_ERR_CONFIG_TYPE, "`lora-rank=x`"},
    {{"lora_r=\"8\""}, PL_ERR_CONFIG_TYPE, "without quotes"},
    {{"mode=dora"}, PL_ERR_CONFIG_RANGE, "`mode=dora`"},
    {{"report_to=[jsonl"}, PL_ERR_CONFIG_SYNTAX, "`report_to=[jsonl`: not valid YAML"},
    {{"report_to=[&a jsonl]"}, PL_ERR_CONFIG_SYNTAX, "anchors"},
    {{"report_to=jsonl,,none"}, PL_ERR_CONFIG_RANGE, "empty text"},
    {{"report_to=jsonl,wandb"}, PL_ERR_CONFIG_RANGE, "wandb"},
    {{"datasets={path: a}"}, PL_ERR_CONFIG_TYPE, "- path"},
    {{"lora_r="}, PL_ERR_USAGE, "`lora_r=` has no value"},
    {{"lora_r=8", "lora_alpha=  "}, PL_ERR_USAGE, "`lora_alpha=null`"},
    {{"run_name=\xff"}, PL_ERR_CONFIG_SYNTAX, "UTF-8"},
    {{"mode=full", "adapter_path=a"}, PL_ERR_CONFIG_CONFLICT, "`adapter_path`"},
    {{"debug_inject=device_oom@step=3,disk_full@write=1"}, PL_ERR_CONFIG_RANGE, "count=K"},
};

START_TEST(a_bad_override_is_named_by_its_text) {
    struct pl_job job;
    struct pl_diag d = {0};
    char said[sizeof d.message + sizeof d.hint];
    uint32_t n = override_rows[_i].overrides[1] ? 2 : 1;
    pl_err err = pl_job_parse(&job, "run.yaml", BASE, strlen(BASE), override_rows[_i].overrides, n,
                              NULL, &d);
    snprintf(said, sizeof said, "%s | %s", d.message, pl_diag_hint_text(&d));
    ck_assert_msg(err == override_rows[_i].err, "%s: %s", pl_err_code(err), said);
    ck_assert_msg(strstr(said, override_rows[_i].word) != NULL, "%s", said);
    ck_assert_str_eq(d.file, "");
    ck_assert_uint_eq(d.line, 0);
}
END_TEST

/* D2 of document.h */
START_TEST(a_text_over_one_mebibyte_is_refused) {
    size_t limit = (size_t)1 << 20;
    char *text = malloc(limit + 1);
    struct pl_job job;
    struct pl_diag d = {0};
    ck_assert_ptr_nonnull(text);
    memset(text, '\n', limit + 1);
    memcpy(text, BASE, strlen(BASE));
    ck_assert_int_eq(pl_job_parse(&job, "big", text, limit, NULL, 0, NULL, &d), PL_ERR_OK);
    pl_job_finish(&job);
    ck_assert_int_eq(pl_job_parse(&job, "big", text, limit + 1, NULL, 0, NULL, &d),
                     PL_ERR_CONFIG_FILE);
    ck_assert_ptr_nonnull(strstr(d.message, "1 MiB"));
    free(text);
}
END_TEST

/* D2 of document.h */
START_TEST(a_thousand_brackets_are_refused_without_reading_them_all) {
    char text[1100] = "datasets: ";
    struct pl_job job;
    struct pl_diag d = {0};
    memset(text + 10, '[', 1000);
    ck_assert_int_eq(pl_job_parse(&job, NULL, text, 1010, NULL, 0, NULL, &d), PL_ERR_CONFIG_SYNTAX);
    ck_assert_ptr_nonnull(strstr(d.message, "too deeply"));
    ck_assert_uint_eq(d.column, 18);
}
END_TEST

START_TEST(long_and_wild_values_are_shown_short_and_printable) {
    static const char text[] =
        "mode: \"\\e[31m\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
        "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
        "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
        "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\"\n";
    struct pl_job job;
    struct pl_diag d = {0};
    ck_assert_int_eq(pl_job_parse(&job, NULL, text, strlen(text), NULL, 0, NULL, &d),
                     PL_ERR_CONFIG_RANGE);
    ck_assert_ptr_nonnull(strstr(d.message, "?[31m"));
    ck_assert_ptr_nonnull(strstr(d.message, "\xc3\xa9...` is not"));
    ck_assert_ptr_null(strchr(d.message, '\x1b'));
}
END_TEST

START_TEST(a_file_that_cannot_be_read_is_named) {
    static const char *const paths[] = {"no/such/file.yaml", "."};
    struct pl_job job;
    struct pl_diag d = {0};
    ck_assert_int_eq(pl_job_read(&job, paths[_i], NULL, 0, NULL, &d), PL_ERR_CONFIG_FILE);
    ck_assert_str_eq(d.file, paths[_i]);
    ck_assert_ptr_null(job.path);
}
END_TEST

START_TEST(training_needs_data_and_a_step) {
    static const struct {
        const char *yaml, *word;
        pl_err err;
    } cases[] = {
        {BASE, "`datasets`", PL_ERR_CONFIG_MISSING},
        {BASE "datasets: [{path: a, split: eval}]\n", "for evaluation", PL_ERR_CONFIG_MISSING},
        {BASE "dataset: a\nnum_epochs: 0\n", "no step", PL_ERR_CONFIG_RANGE},
        {BASE "dataset: a\nnum_epochs: 0\nmax_steps: 1\n", "", PL_ERR_OK},
        {BASE "datasets: [a]\n", "", PL_ERR_OK},
    };
    struct pl_job job;
    struct pl_diag d = {0};
    ck_assert_int_eq(
        pl_job_parse(&job, "run.yaml", cases[_i].yaml, strlen(cases[_i].yaml), NULL, 0, NULL, &d),
        PL_ERR_OK);
    ck_assert_int_eq(pl_job_require_training(&job, &d), cases[_i].err);
    ck_assert_ptr_nonnull(strstr(d.message, cases[_i].word));
    pl_job_finish(&job);
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

int main(void) {
    Suite *s = suite_create("config.malformed");
    TCase *tc = tcase_create("malformed");
    tcase_add_loop_test(tc, a_malformed_text_is_refused_with_code_place_and_word, 0, COUNT(rows));
    tcase_add_loop_test(tc, a_bad_override_is_named_by_its_text, 0, COUNT(override_rows));
    tcase_add_test(tc, a_text_over_one_mebibyte_is_refused);
    tcase_add_test(tc, a_thousand_brackets_are_refused_without_reading_them_all);
    tcase_add_test(tc, long_and_wild_values_are_shown_short_and_printable);
    tcase_add_loop_test(tc, a_file_that_cannot_be_read_is_named, 0, 2);
    tcase_add_loop_test(tc, training_needs_data_and_a_step, 0, 5);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
