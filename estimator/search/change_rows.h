/* change_rows.h - the changes of a job that are planned to compare them, one row each.
 *
 * The settings that `plan` prices, the remedies of a job that does not fit and the ways that are
 * recommended are all rows of this table. They stand in the order in which settings are listed:
 * from what leaves the result alone to what changes the experiment. The includer defines those of
 * these macros that it wants; the others are empty, and none is left afterwards.
 *
 *   PL_CHANGE(ID, key, HOW, value, SETTING, WAY)
 *       HOW and value: what the key becomes (change.h). SETTING and WAY: the jobs for which `plan`
 *       prices it as a setting, and for which it may be part of a way; NEVER: none.
 *   PL_MAY(ID, may)                   the condition on model and job without which they refuse it
 *   PL_REMEDY(ID, rank, JOBS, helps)  the change is a remedy of these jobs. Remedies stand in the
 *       order of rank, by how little they change what is learnt: below 160 not at all, below 240
 *       only the rounding; rank 0: it only goes with another. helps: the condition without which it
 *       gives nothing up, and its plan is saved; NULL: none.
 *   PL_ALSO(ID, OTHER)                a remedy that goes with this one, in the same line */
#ifndef PL_CHANGE
#define PL_CHANGE(ID, key, HOW, value, SETTING, WAY)
#endif
#ifndef PL_MAY
#define PL_MAY(ID, may)
#endif
#ifndef PL_REMEDY
#define PL_REMEDY(ID, rank, JOBS, helps)
#endif
#ifndef PL_ALSO
#define PL_ALSO(ID, OTHER)
#endif

/* A row reads as a table. */
/* clang-format off */

PL_CHANGE(LEVEL_NONE, gradient_checkpointing, SET, "none", ANY, NEVER)
PL_CHANGE(LEVEL_LIGHT, gradient_checkpointing, SET, "light", ANY, NEVER)
PL_REMEDY(LEVEL_LIGHT, 10, ANY, rebuilds_more)
PL_CHANGE(LEVEL_ATTENTION, gradient_checkpointing, SET, "attention", ANY, NEVER)
PL_REMEDY(LEVEL_ATTENTION, 20, ANY, rebuilds_more)
PL_CHANGE(LEVEL_MLP, gradient_checkpointing, SET, "mlp", ANY, NEVER)
PL_REMEDY(LEVEL_MLP, 30, ANY, rebuilds_more)
PL_CHANGE(LEVEL_FULL, gradient_checkpointing, SET, "full", ANY, NEVER)
PL_REMEDY(LEVEL_FULL, 40, ANY, rebuilds_more)
PL_CHANGE(LEVEL_OFFLOAD, gradient_checkpointing, SET, "offload", ANY, ANY)
PL_REMEDY(LEVEL_OFFLOAD, 110, ANY, rebuilds_more)

PL_CHANGE(FIRST_PASS, keep_first_pass, SET, "true", ANY, NEVER)
PL_MAY(FIRST_PASS, prefers)
PL_CHANGE(TWO_PASSES, keep_first_pass, SET, "false", ANY, NEVER)
PL_MAY(TWO_PASSES, prefers)
PL_REMEDY(TWO_PASSES, 165, ANY, keeps_whole_pairs)

PL_CHANGE(OFFLOAD_NONE, offload, SET, "none", ANY, NEVER)
PL_CHANGE(OFFLOAD_STATES, offload, SET, "optimizer", ANY, FULL)
PL_REMEDY(OFFLOAD_STATES, 120, FULL | WHOLE, offloads_first)
PL_CHANGE(OFFLOAD_WEIGHTS, offload, SET, "weights", ADAPTERS, ADAPTERS)
PL_REMEDY(OFFLOAD_WEIGHTS, 151, ADAPTERS, offloads_more)
PL_CHANGE(WEIGHTS_IN_PARTS, sharding, SET, "weights", NEVER, NEVER)
PL_MAY(WEIGHTS_IN_PARTS, has_ranks)
PL_REMEDY(WEIGHTS_IN_PARTS, 130, ANY, NULL)
PL_ALSO(WEIGHTS_IN_PARTS, ORDER_RANKS)
PL_CHANGE(ORDER_RANKS, rank_order, SET, "true", NEVER, NEVER)
PL_REMEDY(ORDER_RANKS, 0, ANY, orders_parts)
PL_CHANGE(EMBEDDING_HOST, embedding_device, SET, "host", ADAPTERS, ADAPTERS)
PL_MAY(EMBEDDING_HOST, looks_up_alone)
PL_REMEDY(EMBEDDING_HOST, 140, ANY | GENERATES, offloads_more)
PL_CHANGE(OFFLOAD_ALL, full_ft_offload, SET, "true", FULL, FULL)
PL_REMEDY(OFFLOAD_ALL, 150, FULL, offloads_more)
PL_CHANGE(OFFLOAD_NOT_ALL, full_ft_offload, SET, "false", FULL, NEVER)

PL_CHANGE(IN_BACKWARD, optimizer_in_backward, SET, "true", FULL, FULL)
PL_REMEDY(IN_BACKWARD, 80, FULL, lets_gradients_go)
PL_CHANGE(AFTER_BACKWARD, optimizer_in_backward, SET, "false", FULL, NEVER)
PL_CHANGE(LOSS_CHUNK_AUTO, loss_chunk_tokens, SET, "auto", NEVER, NEVER)
PL_REMEDY(LOSS_CHUNK_AUTO, 50, ANY | GENERATES, cuts_logits)
PL_CHANGE(LOSS_CHUNK_SMALL, loss_chunk_tokens, SET, "128", ANY, ANY)
PL_REMEDY(LOSS_CHUNK_SMALL, 55, ANY | GENERATES, cuts_logits)
PL_CHANGE(LOSS_CHUNK_NONE, loss_chunk_tokens, SET, "0", ANY, NEVER)
PL_CHANGE(MLP_CHUNK, mlp_chunk_tokens, SET, "1024", ANY, NEVER)
PL_REMEDY(MLP_CHUNK, 60, ANY, cuts_mlp)
PL_CHANGE(MLP_CHUNK_NONE, mlp_chunk_tokens, SET, "0", ANY, NEVER)
PL_CHANGE(PANELS, unpack_buffer, SET, "16MiB", QLORA, NEVER)
PL_REMEDY(PANELS, 70, QLORA | GENERATES, cuts_copies)
PL_CHANGE(PANELS_NONE, unpack_buffer, SET, "0", QLORA, NEVER)
PL_CHANGE(COPIES_KEPT, keep_unpacked, SET, "true", QLORA, NEVER)
PL_CHANGE(COPIES_ONCE, keep_unpacked, SET, "false", QLORA, NEVER)
PL_REMEDY(COPIES_ONCE, 65, QLORA, keeps_copies)
PL_CHANGE(BATCH_HALF, batch_size, HALVE, "", ANY, NEVER)
PL_CHANGE(BATCH_DOUBLE, batch_size, DOUBLE, "", ANY, NEVER)
PL_CHANGE(MICRO_HALF, batch_size, HALVE_MICRO, "", NEVER, NEVER)
PL_MAY(MICRO_HALF, may_cut_step)
PL_REMEDY(MICRO_HALF, 90, ANY | GENERATES, NULL)
PL_CHANGE(MICRO_ONE, batch_size, ONE_MICRO, "", NEVER, NEVER)
PL_MAY(MICRO_ONE, may_cut_step)
PL_REMEDY(MICRO_ONE, 100, ANY | GENERATES, NULL)
PL_CHANGE(PACKING, packing, SET, "true", NEVER, ANY)

PL_CHANGE(GRADIENTS, gradient_dtype, SET, "bf16", FULL | WHOLE, FULL)
PL_REMEDY(GRADIENTS, 160, FULL | WHOLE, computes_in_bf16)
PL_CHANGE(GRADIENTS_FP32, gradient_dtype, SET, "fp32", FULL | WHOLE, NEVER)
PL_CHANGE(MASTER, master_weights, SET, "false", FULL | WHOLE, FULL)
PL_REMEDY(MASTER, 190, FULL | WHOLE, computes_in_bf16)
PL_CHANGE(MASTER_KEPT, master_weights, SET, "true", FULL, NEVER)
PL_CHANGE(MOMENTS, moment_dtype, SET, "bf16", FULL | WHOLE, FULL)
PL_REMEDY(MOMENTS, 210, FULL | WHOLE, has_wide_moments)
PL_CHANGE(ADAPTER, adapter_dtype, SET, "bf16", ADAPTERS, ADAPTERS)
PL_REMEDY(ADAPTER, 200, ADAPTERS, computes_in_bf16)
PL_CHANGE(ADAPTER_FP32, adapter_dtype, SET, "fp32", ADAPTERS, NEVER)
PL_CHANGE(BASE, base_dtype, SET, "bf16", ADAPTERS, NEVER)
PL_MAY(BASE, may_round_base)
PL_REMEDY(BASE, 170, ANY | GENERATES, rounds_base)
PL_CHANGE(BASE_FP32, base_dtype, SET, "fp32", ADAPTERS, NEVER)
PL_MAY(BASE_FP32, may_round_base)
PL_CHANGE(BASE_AUTO, base_dtype, SET, "auto", NEVER, NEVER)
PL_REMEDY(BASE_AUTO, 0, ANY | GENERATES, frees_base)
PL_CHANGE(STORAGE, dtype, SET, "bf16", ANY, NEVER)
PL_MAY(STORAGE, may_be_bf16)
PL_REMEDY(STORAGE, 180, ANY | GENERATES, NULL)
PL_ALSO(STORAGE, BASE_AUTO)
PL_CHANGE(STORAGE_FP16, dtype, SET, "fp16", ANY, NEVER)
PL_MAY(STORAGE_FP16, may_be_fp16)
PL_REMEDY(STORAGE_FP16, 185, ANY | GENERATES, NULL)
PL_ALSO(STORAGE_FP16, BASE_AUTO)
PL_CHANGE(STORAGE_FP32, dtype, SET, "fp32", ANY, NEVER)

PL_CHANGE(TO_LORA, mode, SET, "lora", ADAPTERS, NEVER)
PL_MAY(TO_LORA, trains_a_layer)
PL_REMEDY(TO_LORA, 280, FULL, NULL)
PL_CHANGE(TO_QLORA, mode, SET, "qlora", ADAPTERS, ADAPTERS)
PL_MAY(TO_QLORA, trains_a_layer)
PL_REMEDY(TO_QLORA, 290, ANY | GENERATES, NULL)
PL_CHANGE(ALL_NF4, quant_type, SET, "nf4", QLORA, NEVER)
PL_MAY(ALL_NF4, keeps_codes)
PL_REMEDY(ALL_NF4, 225, QLORA | GENERATES, NULL)
PL_CHANGE(EMBEDDING_4BIT, quantize_embedding, SET, "true", QLORA, QLORA)
PL_MAY(EMBEDDING_4BIT, makes_codes)
PL_REMEDY(EMBEDDING_4BIT, 230, QLORA | GENERATES, packs_embedding)
PL_ALSO(EMBEDDING_4BIT, HEAD_4BIT)
PL_CHANGE(HEAD_4BIT, quantize_head, SET, "true", QLORA, QLORA)
PL_MAY(HEAD_4BIT, has_own_head)
PL_REMEDY(HEAD_4BIT, 0, QLORA | GENERATES, adapts_alone)
PL_CHANGE(NO_MODULES, lora_modules_to_save, NO_MODULES, "", ADAPTERS, NEVER)
PL_REMEDY(NO_MODULES, 260, WHOLE, NULL)
PL_CHANGE(BOTH_MODULES, lora_modules_to_save, BOTH_MODULES, "", ADAPTERS, NEVER)
PL_CHANGE(RANK_HALF, lora_r, HALVE, "", ADAPTERS, NEVER)
PL_REMEDY(RANK_HALF, 250, ADAPTERS, keeps_some_rank)
PL_CHANGE(RANK_DOUBLE, lora_r, DOUBLE, "", ADAPTERS, NEVER)
PL_CHANGE(LENGTH_HALF, max_seq_length, HALVE, "", ANY, NEVER)
PL_REMEDY(LENGTH_HALF, 240, ANY | GENERATES, keeps_two_tokens)
PL_CHANGE(LENGTH_DOUBLE, max_seq_length, DOUBLE, "", ANY, NEVER)
PL_CHANGE(EVERY_OPTIMIZER, optimizer, EVERY_CHOICE, "", ANY, NEVER)
PL_CHANGE(STATES, optimizer, LIGHTER, "", NEVER, ANY)
PL_REMEDY(STATES, 220, ANY, NULL)
PL_CHANGE(FREEZE_HALF, freeze_layers, HALF_THE_LAYERS, "", FULL, NEVER)
PL_REMEDY(FREEZE_HALF, 270, FULL | GENERATES, NULL)

/* clang-format on */
#undef PL_CHANGE
#undef PL_MAY
#undef PL_REMEDY
#undef PL_ALSO
