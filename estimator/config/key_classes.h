/* key_classes.h - the effect of another value of each key on a run that is resumed, one row each.
 *
 * X(key, CLASS)
 *   MEANING     other numbers are learned: a checkpoint is not resumed under another value
 *   FORM        like MEANING, and a checkpoint holds it in another form: not resumed by force
 *               either
 *   MAY_CHANGE  the same is learned, or more of it: told, and resumed. What these keys name - data,
 *               model, tokenizer, samples of a step - is compared by its content
 *   THIS_START  says what this start may do; a checkpoint does not record it */
#ifndef PL_ESTIMATOR_CONFIG_KEY_CLASSES_H
#define PL_ESTIMATOR_CONFIG_KEY_CLASSES_H

#define PL_CONFIG_KEY_CLASSES(X)                                                                   \
    X(model, MAY_CHANGE)                                                                           \
    X(model_config, MAY_CHANGE)                                                                    \
    X(init, MEANING)                                                                               \
    X(mode, MEANING)                                                                               \
    X(stage, MEANING)                                                                              \
    X(preference_loss, MEANING)                                                                    \
    X(beta, MEANING)                                                                               \
    X(label_smoothing, MEANING)                                                                    \
    X(sft_weight, MEANING)                                                                         \
    X(ld_alpha, MEANING)                                                                           \
    X(simpo_gamma, MEANING)                                                                        \
    X(desirable_weight, MEANING)                                                                   \
    X(undesirable_weight, MEANING)                                                                 \
    X(reference, MEANING)                                                                          \
    X(precompute_reference, MEANING)                                                               \
    X(keep_first_pass, MAY_CHANGE)                                                                 \
    X(truncation, MEANING)                                                                         \
    X(dtype, MEANING)                                                                              \
    X(master_weights, MEANING)                                                                     \
    X(gradient_dtype, MEANING)                                                                     \
    X(moment_dtype, FORM)                                                                          \
    X(adapter_dtype, MEANING)                                                                      \
    X(base_dtype, MEANING)                                                                         \
    X(quant_type, MEANING)                                                                         \
    X(double_quant, MEANING)                                                                       \
    X(quantize_head, MEANING)                                                                      \
    X(quantize_embedding, MEANING)                                                                 \
    X(compute_dtype, MEANING)                                                                      \
    X(lora_r, FORM)                                                                                \
    X(lora_alpha, MEANING)                                                                         \
    X(lora_dropout, MEANING)                                                                       \
    X(lora_target_modules, MEANING)                                                                \
    X(lora_target_parameters, MEANING)                                                             \
    X(lora_exclude_modules, MEANING)                                                               \
    X(layers_to_transform, MEANING)                                                                \
    X(layers_pattern, MEANING)                                                                     \
    X(lora_modules_to_save, MEANING)                                                               \
    X(use_rslora, MEANING)                                                                         \
    X(adapter_path, MEANING)                                                                       \
    X(freeze_layers, MEANING)                                                                      \
    X(datasets, MAY_CHANGE)                                                                        \
    X(dataset, MAY_CHANGE)                                                                         \
    X(dataset_cache, THIS_START)                                                                   \
    X(tokenizer, MAY_CHANGE)                                                                       \
    X(chat_template, MEANING)                                                                      \
    X(chat_date, MEANING)                                                                          \
    X(train_on, MEANING)                                                                           \
    X(row_weights, MEANING)                                                                        \
    X(shuffle, MEANING)                                                                            \
    X(batch_size, MAY_CHANGE)                                                                      \
    X(gradient_accumulation_steps, MAY_CHANGE)                                                     \
    X(global_batch_size, MAY_CHANGE)                                                               \
    X(max_seq_length, MEANING)                                                                     \
    X(packing, MEANING)                                                                            \
    X(rope_long_from, MEANING)                                                                     \
    X(prefetch, MAY_CHANGE)                                                                        \
    X(overlength, MEANING)                                                                         \
    X(optimizer, FORM)                                                                             \
    X(learning_rate, MEANING)                                                                      \
    X(min_lr_ratio, MEANING)                                                                       \
    X(lr_scheduler, MEANING)                                                                       \
    X(warmup_steps, MEANING)                                                                       \
    X(warmup_ratio, MEANING)                                                                       \
    X(weight_decay, MEANING)                                                                       \
    X(adam_beta1, MEANING)                                                                         \
    X(adam_beta2, MEANING)                                                                         \
    X(adam_epsilon, MEANING)                                                                       \
    X(max_grad_norm, MEANING)                                                                      \
    X(loss_scale, MEANING)                                                                         \
    X(loss_scale_window, MEANING)                                                                  \
    X(optimizer_in_backward, MAY_CHANGE)                                                           \
    X(num_epochs, MAY_CHANGE)                                                                      \
    X(max_steps, MAY_CHANGE)                                                                       \
    X(gradient_checkpointing, MAY_CHANGE)                                                          \
    X(loss_chunk_tokens, MAY_CHANGE)                                                               \
    X(mlp_chunk_tokens, MAY_CHANGE)                                                                \
    X(unpack_buffer, MAY_CHANGE)                                                                   \
    X(keep_unpacked, MAY_CHANGE)                                                                   \
    X(offload, MAY_CHANGE)                                                                         \
    X(offload_update, MAY_CHANGE)                                                                  \
    X(full_ft_offload, MAY_CHANGE)                                                                 \
    X(embedding_device, MAY_CHANGE)                                                                \
    X(full_ft_ceiling_billions, THIS_START)                                                        \
    X(vram_budget, MAY_CHANGE)                                                                     \
    X(vram_margin, MAY_CHANGE)                                                                     \
    X(preflight, THIS_START)                                                                       \
    X(oom_recovery, MAY_CHANGE)                                                                    \
    X(oom_max_retries, MAY_CHANGE)                                                                 \
    X(probe_steps, THIS_START)                                                                     \
    X(val_set_size, MAY_CHANGE)                                                                    \
    X(eval_datasets, MAY_CHANGE)                                                                   \
    X(eval_steps, MAY_CHANGE)                                                                      \
    X(sample_prompts, MAY_CHANGE)                                                                  \
    X(sample_max_new_tokens, MAY_CHANGE)                                                           \
    X(sample_temperature, MAY_CHANGE)                                                              \
    X(sample_top_p, MAY_CHANGE)                                                                    \
    X(load_best_model_at_end, MAY_CHANGE)                                                          \
    X(metric_for_best_model, MAY_CHANGE)                                                           \
    X(early_stopping_patience, MAY_CHANGE)                                                         \
    X(early_stopping_threshold, MAY_CHANGE)                                                        \
    X(logging_steps, MAY_CHANGE)                                                                   \
    X(save_steps, MAY_CHANGE)                                                                      \
    X(save_total_limit, MAY_CHANGE)                                                                \
    X(save_merged, MAY_CHANGE)                                                                     \
    X(resume, THIS_START)                                                                          \
    X(output_dir, THIS_START)                                                                      \
    X(overwrite_output_dir, THIS_START)                                                            \
    X(run_name, MAY_CHANGE)                                                                        \
    X(report_to, MAY_CHANGE)                                                                       \
    X(seed, MEANING)                                                                               \
    X(deterministic, MAY_CHANGE)                                                                   \
    X(device, MAY_CHANGE)                                                                          \
    X(devices, MAY_CHANGE)                                                                         \
    X(sharding, MAY_CHANGE)                                                                        \
    X(comm, MAY_CHANGE)                                                                            \
    X(comm_timeout_seconds, THIS_START)                                                            \
    X(rank_order, MAY_CHANGE)                                                                      \
    X(threads, MAY_CHANGE)                                                                         \
    X(debug_inject, THIS_START)

enum pl_key_class {
    PL_KEY_CLASS_NONE, /* the row is missing, which a test refuses */
    PL_KEY_MEANING,
    PL_KEY_FORM,
    PL_KEY_MAY_CHANGE,
    PL_KEY_THIS_START,
};

#endif
