/* keys.h - every YAML key, one row each. The parser, struct pl_job, range checks, `--key value`
 * flags, spelling hints, config.resolved.yaml and configs/REFERENCE.md all come from this table.
 *
 * X(key, TYPE, default, low, high, choices, help)
 *   default  the text that a user would write, parsed by the same parser; "" = unset
 *   low/high inclusive limits of numbers (ignored by other types)
 *   choices  of ENUM, in the order of the enum that names them in job.h; "" otherwise
 * Types: STR char *, PATH char * (`~/` is expanded), BOOL bool, U32 uint32_t, U64 uint64_t,
 *   F64 double, ENUM uint32_t, DTYPE uint32_t (enum pl_dtype; PL_DTYPE_AUTO for `auto`),
 *   AUTO uint32_t or PL_AUTO, which is written as the word in `choices`, or else `auto`,
 *   BYTES uint64_t or `auto` (PL_AUTO_BYTES),
 *   TEMPLATE struct pl_template_choice (a choice, or the path of a .jinja file),
 *   RECOMPUTE uint32_t (PL_RECOMPUTE_*), DEVICE uint32_t (PL_DEVICE_*),
 *   LIST struct pl_str_list (a scalar is a list of one),
 *   DATASETS struct pl_dataset_list. */
#ifndef PL_ESTIMATOR_CONFIG_KEYS_H
#define PL_ESTIMATOR_CONFIG_KEYS_H

#include "estimator/config/optimizers.h"
#include "estimator/config/stages.h"

#define PL_CONFIG_KEYS(X)                                                                          \
    X(model, PATH, "", 0, 0, "",                                                                   \
      "directory with config.json and safetensors, a GGUF file, or a Hugging Face id in the hub "  \
      "cache")                                                                                     \
    X(model_config, PATH, "", 0, 0, "",                                                            \
      "for `init: random`: config.json, its directory, or a name that `plimsoll models` lists")    \
    X(init, ENUM, "pretrained", 0, 0, "pretrained|random", "where the weights come from")          \
    X(mode, ENUM, "", 0, 0, "full|lora|qlora",                                                     \
      "train every weight, or LoRA adapters on a frozen base; qlora: the base in 4 bits")          \
    X(stage, ENUM, "sft", 0, 0, PL_STAGE_CHOICES,                                                  \
      "what is learned: sft, the answers of rows; dpo, orpo, simpo: to prefer the chosen answer "  \
      "of a pair to the rejected one; kto: to give desirable answers and avoid others")            \
    X(preference_loss, ENUM, "sigmoid", 0, 0, PL_DPO_LOSS_CHOICES,                                 \
      "loss of a pair under `stage: dpo`; sigmoid is DPO as it was published")                     \
    X(beta, F64, "0.1", 0, 1e6, "",                                                                \
      "preference stages: weight of the difference of log-probabilities; orpo: of the odds ratio") \
    X(label_smoothing, F64, "0", 0, 0.499999, "",                                                  \
      "share of pairs whose labels are taken to be wrong: robust, cdpo, exo_pair, and `stage: "    \
      "simpo`")                                                                                    \
    X(sft_weight, F64, "0", 0, 1e6, "",                                                            \
      "dpo and simpo: weight of the supervised loss of the chosen answers that is added")          \
    X(ld_alpha, F64, "", 0, 1, "",                                                                 \
      "dpo: weight of the tokens of an answer beyond the length of the shorter one; unset: 1")     \
    X(simpo_gamma, F64, "0.5", 0, 1e6, "", "simpo: margin that a chosen answer has to win by")     \
    X(desirable_weight, F64, "1", 0, 1e6, "", "kto: weight of rows with `label: true`")            \
    X(undesirable_weight, F64, "1", 0, 1e6, "", "kto: weight of rows with `label: false`")         \
    X(reference, ENUM, "", 0, 0, "base|initial",                                                   \
      "dpo and kto: what log-probabilities are compared with: the base model, which is the "       \
      "adapter switched off, or the weights that the run starts with; unset: base with "           \
      "adapters, else initial")                                                                    \
    X(precompute_reference, ENUM, "auto", 0, 0, "auto|true|false",                                 \
      "compute the log-probabilities of the reference once, before the first step; auto: where "   \
      "it is `initial`, of which no copy is held, or takes fewer passes over the rows so")         \
    X(keep_first_pass, ENUM, "auto", 0, 0, "auto|true|false",                                      \
      "preference stages: keep the activations of the forward pass that scores answers, so that "  \
      "no answer is computed forward twice; both answers of a pair are computed at one time; "     \
      "auto: where that fits")                                                                     \
    X(truncation, ENUM, "keep_start", 0, 0, "keep_start|keep_end",                                 \
      "dpo: what is kept of pairs longer than max_seq_length; keep_start drops a pair whose "      \
      "prompt fills it")                                                                           \
    X(dtype, DTYPE, "auto", 0, 0, "auto|bf16|fp16|fp32",                                           \
      "storage of weights and activations; of frozen weights see `base_dtype`; auto: bf16, but "   \
      "on GPUs before Ampere, which have none, fp16, or fp32 for models whose activations "        \
      "exceed it")                                                                                 \
    X(master_weights, ENUM, "auto", 0, 0, "auto|true|false",                                       \
      "fp32 master copy of bf16 weights; without it updates round stochastically")                 \
    X(gradient_dtype, DTYPE, "auto", 0, 0, "auto|bf16|fp32",                                       \
      "auto: fp32, or bf16 under `dtype: bf16` without accumulation; sums of micro-batches in "    \
      "bf16 are rounded stochastically")                                                           \
    X(moment_dtype, DTYPE, "fp32", 0, 0, "fp32|bf16",                                              \
      "storage of the moments of adamw and lion, and of those that adamw_8bit keeps as floats: "   \
      "of the embedding and the head; bf16 ones are rounded stochastically")                       \
    X(adapter_dtype, DTYPE, "fp32", 0, 0, "fp32|bf16", "storage of LoRA matrices")                 \
    X(base_dtype, DTYPE, "auto", 0, 0, "auto|bf16|fp16|fp32",                                      \
      "storage of frozen weights: the base of lora and qlora, all weights of `generate`; auto: "   \
      "bf16 where `dtype` is fp32, config.json says bfloat16 and the device is the CPU, which "    \
      "changes no bit; else the same as `dtype`")                                                  \
    X(quant_type, ENUM, "auto", 0, 0, "auto|nf4|fp4|mxfp4",                                        \
      "4-bit code of a qlora base; mxfp4: the codes of the experts as files hold them, and all "   \
      "other matrices in `base_dtype`; auto: the codes that the files hold, else nf4")             \
    X(double_quant, BOOL, "true", 0, 0, "", "hold the scales of a qlora base in 8 bits")           \
    X(quantize_head, BOOL, "false", 0, 0, "",                                                      \
      "hold the output head of a qlora base in 4 bits too, unless it is the embedding")            \
    X(quantize_embedding, BOOL, "false", 0, 0, "",                                                 \
      "hold the embedding of a qlora base in 4 bits too, and a head that is the embedding")        \
    X(compute_dtype, DTYPE, "auto", 0, 0, "auto|bf16|fp16|fp32",                                   \
      "type that is multiplied in: that to which a qlora base is dequantised; in another job of "  \
      "`dtype: bf16` on the CPU, `fp32` widens numbers where the processor could multiply them "   \
      "in "                                                                                        \
      "bf16; auto: the same as `dtype`")                                                           \
    X(lora_r, U32, "16", 1, 4096, "", "LoRA rank")                                                 \
    X(lora_alpha, F64, "", 0, 1e6, "", "LoRA scale is alpha/r; unset: 2 x lora_r")                 \
    X(lora_dropout, F64, "0", 0, 0.99, "", "dropout on the adapter's input")                       \
    X(lora_target_modules, LIST, "all-linear", 0, 0, "",                                           \
      "all-linear; a list of modules (q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, "        \
      "down_proj) or of ends of their paths (layers.3.mlp.up_proj); or one regular expression "    \
      "that matches whole paths, such as model.layers.0.self_attn.q_proj; embed_tokens and "       \
      "lm_head by name only")                                                                      \
    X(lora_target_parameters, LIST, "", 0, 0, "",                                                  \
      "parameters with all experts of a layer that get adapters, as PEFT names them: "             \
      "mlp.experts.gate_up_proj, mlp.experts.down_proj")                                           \
    X(lora_exclude_modules, LIST, "", 0, 0, "",                                                    \
      "modules that get no adapter although they are targets; written as `lora_target_modules`")   \
    X(layers_to_transform, LIST, "", 0, 0, "",                                                     \
      "numbers of the layers whose modules get adapters; unset: all")                              \
    X(layers_pattern, LIST, "", 0, 0, "",                                                          \
      "what the layers of `layers_to_transform` are called in paths; unset: any name")             \
    X(lora_modules_to_save, LIST, "", 0, 0, "",                                                    \
      "embed_tokens, lm_head or both: trained whole together with the adapter and saved with it")  \
    X(use_rslora, BOOL, "false", 0, 0, "", "scale by alpha/sqrt(r) instead of alpha/r")            \
    X(adapter_path, PATH, "", 0, 0, "", "PEFT directory to continue from")                         \
    X(freeze_layers, U32, "0", 0, 100000, "", "freeze the embedding and the first N layers")       \
    X(datasets, DATASETS, "", 0, 0, "",                                                            \
      "list of {path, format, weight, max_samples, split}; formats: auto, text, alpaca, "          \
      "messages, "                                                                                 \
      "sharegpt, prompt_completion, tokens, preference; weight: passes over the file in an "       \
      "epoch; "                                                                                    \
      "max_samples: the first so many rows of its files alone; split: "                            \
      "train, or eval for evaluation data, and a slice of its rows, as in train[:10%]; "           \
      "names of columns: field_text, field_instruction, "                                          \
      "field_input, field_output, field_system, field_prompt, field_completion, field_messages, "  \
      "field_chosen, field_rejected, field_label, field_weight, message_field_role, "              \
      "message_field_content, role_user, role_assistant, role_system; prompt_format: text with "   \
      "{columns} in braces, question_format: the same as a turn of the user, no_input_format: "    \
      "that of rows without a column which it does not name")                                      \
    X(dataset, PATH, "", 0, 0, "", "short for `datasets` with one path")                           \
    X(dataset_cache, PATH, "auto", 0, 0, "",                                                       \
      "where the tokens of data files are kept: auto (in the user's cache, of files that a "       \
      "tokenizer reads), off, or a directory")                                                     \
    X(tokenizer, PATH, "", 0, 0, "",                                                               \
      "tokenizer.json, its directory, or `byte`; unset: the model's; `format: tokens` needs none") \
    X(chat_template, TEMPLATE, "auto", 0, 0,                                                       \
      "auto|chatml|llama2|llama3|llama31|llama32|mistral|mistral_sysfirst|mistral_small3|qwen25|"  \
      "qwen25_base|qwen3|qwen3_nothink|phi4_mini|smollm2|smollm3|smollm3_nothink|zephyr|alpaca",   \
      "template by which conversations become text; auto: the model's own; FILE.jinja: the one "   \
      "in that file")                                                                              \
    X(chat_date, STR, "", 0, 0, "",                                                                \
      "day that templates with a date show, such as 2025-01-31; unset: today")                     \
    X(train_on, ENUM, "responses", 0, 0, "all|responses|last",                                     \
      "what is trained on: everything, the answers, the last answer of a row; `format: text` is "  \
      "always trained on as a whole")                                                              \
    X(row_weights, ENUM, "auto", 0, 0, "auto|true|false",                                          \
      "sft: the key `weight` of a row is a factor of the loss of its tokens; auto: where a row "   \
      "has one other than 1, which an estimate does not know: true plans for it; false: it is "    \
      "not read")                                                                                  \
    X(shuffle, BOOL, "true", 0, 0, "", "a new order every epoch, fixed by `seed`")                 \
    X(batch_size, AUTO, "auto", 1, 65536, "",                                                      \
      "samples per micro-batch; auto: the largest that fits and that a step can use, decided "     \
      "with gradient_checkpointing")                                                               \
    X(gradient_accumulation_steps, U32, "", 1, 65536, "",                                          \
      "micro-batches per step; unset: 1, or global_batch_size / batch_size; under `batch_size: "   \
      "auto` the fewest that a step is cut into")                                                  \
    X(global_batch_size, U32, "", 1, 1048576, "",                                                  \
      "samples per step, kept whatever batch_size is; unset under `batch_size: auto`: 16, halved " \
      "while num_epochs would make fewer than 10 steps")                                           \
    X(max_seq_length, U32, "2048", 2, 16777216, "", "longest sample in tokens")                    \
    X(packing, BOOL, "false", 0, 0, "",                                                            \
      "put as many whole samples as fit into the space of one of max_seq_length tokens; batch "    \
      "sizes then count these spaces")                                                             \
    X(rope_long_from, ENUM, "batch", 0, 0, "batch|sample",                                         \
      "for longrope models (Phi-3, Phi-4-mini): the length that decides whether a sample uses "    \
      "the long factors; batch: that of the longest sample of its micro-batch, as in "             \
      "transformers; sample: its own; models with dynamic positions accept only `batch`; other "   \
      "models are the same under both")                                                            \
    X(prefetch, BOOL, "true", 0, 0, "",                                                            \
      "a thread loads the samples of the next step while this one computes")                       \
    X(overlength, ENUM, "truncate", 0, 0, "truncate|drop|error",                                   \
      "what happens to samples longer than max_seq_length")                                        \
    X(optimizer, ENUM, "adamw", 0, 0, PL_OPTIMIZER_CHOICES, "update rule" PL_OPTIMIZER_NOTES)      \
    X(learning_rate, F64, "", 0, 1000, "", "peak rate; unset: 2e-5 for full, 2e-4 for adapters")   \
    X(min_lr_ratio, F64, "0", 0, 1, "", "lowest rate over peak, for cosine_with_min_lr")           \
    X(lr_scheduler, ENUM, "cosine", 0, 0,                                                          \
      "constant|constant_with_warmup|linear|cosine|cosine_with_min_lr", "schedule of the rate")    \
    X(warmup_steps, U32, "", 0, 1000000000, "", "steps from rate 0 to the peak")                   \
    X(warmup_ratio, F64, "", 0, 1, "",                                                             \
      "the same as a share of all steps; when both are unset 0.03, and less than all steps")       \
    X(weight_decay, F64, "0", 0, 100, "", "decoupled; never on norms and biases")                  \
    X(adam_beta1, F64, "0.9", 0, 0.999999, "", "decay of the first moment")                        \
    X(adam_beta2, F64, "0.999", 0, 0.9999999, "", "decay of the second moment")                    \
    X(adam_epsilon, F64, "1e-8", 0, 1, "", "added to the root of the second moment")               \
    X(max_grad_norm, F64, "1", 0, 1e9, "", "clip the global gradient norm; 0 is off")              \
    X(loss_scale, AUTO, "dynamic", 1, 2147483648.0, "dynamic",                                     \
      "`dtype: fp16`: the factor of the loss, and so of all gradients, in the first step, a "      \
      "power of two; dynamic: 65536. A step whose gradients overflow is skipped and halves it")    \
    X(loss_scale_window, U32, "2000", 1, 1000000000, "",                                           \
      "`dtype: fp16`: updates in a row after which the factor of the loss is doubled")             \
    X(optimizer_in_backward, ENUM, "auto", 0, 0, "auto|true|false",                                \
      "`mode: full` without accumulation: each gradient is applied and let go in the backward "    \
      "pass, which runs twice unless `max_grad_norm` is 0; auto: where the job does not fit "      \
      "without it, or takes longer, on one device and without `offload`")                          \
    X(num_epochs, F64, "1", 0, 1e6, "", "passes over the data")                                    \
    X(max_steps, U32, "0", 0, 1000000000, "",                                                      \
      "number of steps; when above 0, num_epochs is ignored")                                      \
    X(gradient_checkpointing, RECOMPUTE, "full", 0, 0,                                             \
      "none|light|mlp|attention|full|offload|every_N|full:K|full:K+light|offload:K+full|auto",     \
      "what the backward pass recomputes instead of keeping; light: norms and SwiGLU; mlp, "       \
      "attention: these and the products of that block; full: a whole layer; offload: as full, "   \
      "and the input of each layer waits in host memory; full:K: full for the first K layers, "    \
      "none for the others; full:K+light: light for the others, and so for any two levels of "     \
      "which the second is not offload; offload:K+full: only the inputs of the first K layers "    \
      "wait in host memory; auto: the fastest level that fits; where the key is not written, a "   \
      "job on a GPU, or with a `vram_budget`, has `auto`")                                         \
    X(loss_chunk_tokens, AUTO, "auto", 0, 16777216, "",                                            \
      "largest number of tokens per chunk of logits; 0: all at once; auto: about 64 MiB of "       \
      "logits, and at least 1024 tokens where the head is trained and has as many columns")        \
    X(mlp_chunk_tokens, AUTO, "auto", 0, 16777216, "",                                             \
      "largest number of tokens whose MLP is computed at one time in layers that recompute it; "   \
      "0: all of them; auto: all of them, or the largest power of two that fits where that does "  \
      "not")                                                                                       \
    X(unpack_buffer, BYTES, "auto", 0, 0, "",                                                      \
      "most memory for a copy of a 4-bit matrix, such as 16MiB; a larger matrix is unpacked in "   \
      "up to 256 panels, one after the other; 0: whole; auto: whole, or the largest power of two " \
      "from 16MiB on that fits where that does not")                                               \
    X(keep_unpacked, ENUM, "auto", 0, 0, "auto|true|false",                                        \
      "keep the copies of 4-bit matrices that the recomputation of a layer has unpacked for its "  \
      "gradient, instead of unpacking them again; no bit changes; auto: where that fits; where "   \
      "the key is not written, on a GPU or with a `vram_budget` alone")                            \
    X(offload, ENUM, "none", 0, 0, "none|optimizer|gradients|weights",                             \
      "what is held in host memory instead of on the device; each choice includes those before "   \
      "it")                                                                                        \
    X(offload_update, ENUM, "auto", 0, 0, "auto|device|host",                                      \
      "where offloaded optimizer states are updated; auto: on the host when the gradients are "    \
      "there too")                                                                                 \
    X(full_ft_offload, BOOL, "false", 0, 0, "",                                                    \
      "`mode: full` with weights, gradients and optimizer states in host memory")                  \
    X(embedding_device, ENUM, "device", 0, 0, "device|host",                                       \
      "where an input embedding that is not trained is held; host: the rows of a batch are "       \
      "looked up there")                                                                           \
    X(full_ft_ceiling_billions, F64, "6", 0, 1e6, "",                                              \
      "most parameters `mode: full` may train without full_ft_offload")                            \
    X(vram_budget, BYTES, "auto", 0, 0, "",                                                        \
      "memory that the job may use, such as 16GiB; auto: what the device has")                     \
    X(vram_margin, BYTES, "auto", 0, 0, "",                                                        \
      "part of the budget that is kept free; auto: 0, or without `vram_budget` 64MiB of a GPU "    \
      "and 16MiB of a limit of the process or its cgroup")                                         \
    X(preflight, ENUM, "enforce", 0, 0, "enforce|warn|off",                                        \
      "when the job does not fit; enforce: it is refused; warn: a warning; off: nothing")          \
    X(oom_recovery, BOOL, "true", 0, 0, "", "halve the micro-batch when memory runs out")          \
    X(oom_max_retries, U32, "3", 0, 30, "", "halvings before RUNTIME_GPU_OOM")                     \
    X(probe_steps, U32, "0", 0, 1000, "",                                                          \
      "steps on the longest samples before the run, to compare planned with measured memory; "     \
      "they are undone")                                                                           \
    X(val_set_size, F64, "0", 0, 1e9, "",                                                          \
      "rows held out for evaluation, drawn by `seed` from every file: below 1 a share, else a "    \
      "count")                                                                                     \
    X(eval_datasets, DATASETS, "", 0, 0, "", "evaluation data, as `datasets`")                     \
    X(eval_steps, U32, "0", 0, 1000000000, "", "evaluate every N steps; 0: at the end")            \
    X(sample_prompts, LIST, "", 0, 0, "",                                                          \
      "prompts that the model in training answers every `eval_steps` steps and at the end, into "  \
      "the log; as the chat template has a user say them where the rows are conversations")        \
    X(sample_max_new_tokens, U32, "128", 1, 1048576, "",                                           \
      "tokens of such an answer, at most; with its prompt at most max_seq_length")                 \
    X(sample_temperature, F64, "0", 0, 1000, "",                                                   \
      "tokens of samples are drawn, by `seed`, at this temperature; 0: the likeliest is taken")    \
    X(sample_top_p, F64, "1", 0, 1, "",                                                            \
      "draw from the likeliest tokens that together have this probability")                        \
    X(load_best_model_at_end, BOOL, "false", 0, 0, "",                                             \
      "at the end save the model of the best evaluation that has a checkpoint, which is kept "     \
      "whatever `save_total_limit` says; `save_steps` is a multiple of `eval_steps`")              \
    X(metric_for_best_model, ENUM, "loss", 0, 0, "loss|accuracy|perplexity",                       \
      "the figure of an evaluation by which `load_best_model_at_end` and "                         \
      "`early_stopping_patience` compare: the lowest loss or perplexity, the highest accuracy")    \
    X(early_stopping_patience, U32, "0", 0, 1000000000, "",                                        \
      "the run ends after so many evaluations in a row without a better "                          \
      "`metric_for_best_model`; 0: it does not")                                                   \
    X(early_stopping_threshold, F64, "0", 0, 1e9, "",                                              \
      "an evaluation is better for `early_stopping_patience` by more than this")                   \
    X(logging_steps, U32, "1", 1, 1000000000, "", "log every N steps")                             \
    X(save_steps, U32, "0", 0, 1000000000, "",                                                     \
      "checkpoint every N steps; 0: no checkpoint, only the finished model is saved")              \
    X(save_total_limit, U32, "3", 1, 1000000, "", "checkpoints kept")                              \
    X(save_merged, BOOL, "false", 0, 0, "",                                                        \
      "at the end also write the adapter merged into its base, to output_dir/merged")              \
    X(resume, PATH, "auto", 0, 0, "",                                                              \
      "auto, never, a checkpoint directory, or force: as auto, even where settings differ")        \
    X(output_dir, PATH, "output", 0, 0, "", "where everything is written")                         \
    X(overwrite_output_dir, BOOL, "false", 0, 0, "",                                               \
      "replace the files of another job, or of the base model, in output_dir")                     \
    X(run_name, STR, "", 0, 0, "", "a name for the logs")                                          \
    X(report_to, LIST, "jsonl", 0, 0, "", "jsonl, tensorboard, none")                              \
    X(seed, U64, "42", 0, 9e15, "", "seed of initialisation, order, dropout and rounding")         \
    X(deterministic, ENUM, "true", 0, 0, "true",                                                   \
      "the same plan gives the same bits; there is no faster mode without that")                   \
    X(device, DEVICE, "auto", 0, 0, "auto|cpu|null|cuda",                                          \
      "where to train; auto: a GPU that answers, else the CPU; cuda:N: one of several GPUs; "      \
      "null: "                                                                                     \
      "no arithmetic, for tests")                                                                  \
    X(devices, AUTO, "1", 1, 64, "",                                                               \
      "GPUs that train together, a process (rank) for each; on the CPU, processes; auto: as many " \
      "as are there and needed")                                                                   \
    X(sharding, ENUM, "auto", 0, 0, "auto|none|optimizer|gradients|weights",                       \
      "what each rank holds a part of instead of all; each choice includes those before it; "      \
      "auto: gradients, or weights where that does not fit; with rank_order: false, optimizer")    \
    X(comm, ENUM, "auto", 0, 0, "auto|nccl|mpi",                                                   \
      "what moves tensors between ranks; auto: nccl between GPUs, mpi between CPUs")               \
    X(comm_timeout_seconds, U32, "10", 1, 3600, "",                                                \
      "a rank that was not heard of for so long is lost, and the others end")                      \
    X(rank_order, ENUM, "auto", 0, 0, "auto|true|false",                                           \
      "make the gradient of every micro-batch on its own and add them in order: any number of "    \
      "ranks gives the same bits; false: each rank adds up its own, and they exchange gradients "  \
      "once a step, with bits that depend on their number; auto: true with more than one rank")    \
    X(threads, U32, "0", 0, 1024, "", "CPU threads; 0: the cores this process may use")            \
    X(debug_inject, LIST, "", 0, 0, "",                                                            \
      "fault injection, such as device_oom@step=3 or disk_full@write=2,count=2")

/* The names of other trainers for the same thing: X(synonym, key). A key and its synonym are never
 * both given. */
#define PL_CONFIG_SYNONYMS(X)                                                                      \
    X(base_model, model)                                                                           \
    X(model_name_or_path, model)                                                                   \
    X(adapter, mode)                                                                               \
    X(finetuning_type, mode)                                                                       \
    X(lora_rank, lora_r)                                                                           \
    X(r, lora_r)                                                                                   \
    X(target_modules, lora_target_modules)                                                         \
    X(target_parameters, lora_target_parameters)                                                   \
    X(exclude_modules, lora_exclude_modules)                                                       \
    X(peft_layers_to_transform, layers_to_transform)                                               \
    X(peft_layers_pattern, layers_pattern)                                                         \
    X(modules_to_save, lora_modules_to_save)                                                       \
    X(additional_target, lora_modules_to_save)                                                     \
    X(peft_use_rslora, use_rslora)                                                                 \
    X(adapter_name_or_path, adapter_path)                                                          \
    X(lora_model_dir, adapter_path)                                                                \
    X(micro_batch_size, batch_size)                                                                \
    X(per_device_train_batch_size, batch_size)                                                     \
    X(sequence_len, max_seq_length)                                                                \
    X(cutoff_len, max_seq_length)                                                                  \
    X(max_length, max_seq_length)                                                                  \
    X(dataset_prepared_path, dataset_cache)                                                        \
    X(sample_packing, packing)                                                                     \
    X(optim, optimizer)                                                                            \
    X(lr, learning_rate)                                                                           \
    X(lr_scheduler_type, lr_scheduler)                                                             \
    X(num_train_epochs, num_epochs)                                                                \
    X(epochs, num_epochs)                                                                          \
    X(resume_from_checkpoint, resume)                                                              \
    X(gpu_memory_limit, vram_budget)                                                               \
    X(num_gpus, devices)                                                                           \
    X(rl, stage)                                                                                   \
    X(rl_beta, beta)                                                                               \
    X(pref_beta, beta)                                                                             \
    X(orpo_alpha, beta)                                                                            \
    X(loss_type, preference_loss)                                                                  \
    X(pref_loss, preference_loss)                                                                  \
    X(dpo_label_smoothing, label_smoothing)                                                        \
    X(rpo_alpha, sft_weight)                                                                       \
    X(cpo_alpha, sft_weight)                                                                       \
    X(pref_ftx, sft_weight)                                                                        \
    X(kto_desirable_weight, desirable_weight)                                                      \
    X(kto_undesirable_weight, undesirable_weight)                                                  \
    X(kto_chosen_weight, desirable_weight)                                                         \
    X(kto_rejected_weight, undesirable_weight)                                                     \
    X(precompute_ref_log_probs, precompute_reference)                                              \
    X(truncation_mode, truncation)

#endif
