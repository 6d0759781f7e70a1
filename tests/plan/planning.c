/* planning.c - fixtures of the planner's tests. */
#include "tests/plan/planning.h"

#include <check.h>
#include <stdio.h>

const char *const pl_test_models[] = {
    "Llama-2-7B",     "Llama-2-13B",     "Llama-2-70B",  "Llama-3-8B",      "Llama-3.1-70B",
    "Llama-3.1-8B",   "Llama-3.2-1B",    "Llama-3.2-3B", "Mistral-7B-v0.3", "Mistral-Small-24B",
    "Phi-4-mini",     "Qwen2.5-0.5B",    "Qwen2.5-1.5B", "Qwen2.5-14B",     "Qwen2.5-32B",
    "Qwen2.5-3B",     "Qwen2.5-72B",     "Qwen2.5-7B",   "Qwen3-0.6B",      "Qwen3-1.7B",
    "Qwen3-14B",      "Qwen3-32B",       "Qwen3-4B",     "Qwen3-8B",        "SmolLM2-1.7B",
    "SmolLM2-135M",   "SmolLM2-360M",    "SmolLM3-3B",   "TinyLlama-1.1B",  "Ministral-3-3B",
    "Ministral-3-8B", "Ministral-3-14B", "Gemma-3-1B",   "Gemma-3-4B",      "Gemma-3-12B",
    "Gemma-3-27B",    "Qwen3-30B-A3B",   "gpt-oss-20b",  "Qwen3.5-9B",
};
const int pl_test_n_all_models = sizeof pl_test_models / sizeof *pl_test_models;
const int pl_test_n_models = sizeof pl_test_models / sizeof *pl_test_models - 1;

void pl_test_model(const char *name, struct pl_model *m) {
    char path[512];
    struct pl_diag d = {0};
    snprintf(path, sizeof path, "%s/%s/config.json", MODELS, name);
    ck_assert_msg(pl_model_read(path, m, &d) == PL_ERR_OK, "%s: %s", path, d.message);
}

struct pl_job_shape pl_test_shape(const struct pl_model *m, uint32_t mode, uint32_t recompute,
                                  uint64_t batch, uint64_t length) {
    static const char *const all[] = {"all-linear"};
    struct pl_job_shape s = {.mode = mode,
                             .batch_size = batch,
                             .max_seq_length = length,
                             .dtype = PL_DTYPE_BF16,
                             .adapter_dtype = PL_DTYPE_F32,
                             .gradient_dtype = PL_DTYPE_BF16,
                             .master_weights = mode == PL_MODE_FULL,
                             .optimizer = PL_OPTIMIZER_ADAMW,
                             .recompute = recompute,
                             .loss_chunk_tokens = PL_AUTO,
                             .double_quant = true,
                             .compute_dtype = PL_DTYPE_BF16,
                             .lora_r = 16,
                             .lora_scale = 2,
                             .max_grad_norm = 1,
                             .eval = true,
                             .load = true,
                             .save = true};
    if (pl_mode_adapts(mode))
        ck_assert_int_eq(pl_targets_find(m, &(struct pl_target_choice){.modules = {all, 1}},
                                         &s.lora_targets, NULL, NULL),
                         PL_ERR_OK);
    return s;
}

void pl_test_adapt_head(struct pl_job_shape *s, const struct pl_model *m) {
    static const char *const modules[] = {"all-linear", "lm_head"};
    ck_assert_int_eq(pl_targets_find(m, &(struct pl_target_choice){.modules = {modules, 2}},
                                     &s->lora_targets, NULL, NULL),
                     PL_ERR_OK);
}

struct pl_phase_tensors pl_test_tensors(const struct pl_plan *plan, enum pl_phase phase,
                                        enum pl_tensor_place place, uint32_t *ids) {
    struct pl_phase_tensors out = {plan->program, plan->places, phase, ids, 0};
    for (uint32_t i = 0; i < plan->program->n_tensors; i++) {
        const struct pl_tensor *t = &plan->program->tensors[i];
        if (t->scope == PL_SCOPE_STEP && t->phase == phase && t->place == place &&
            plan->places[i].first_op != UINT32_MAX)
            ids[out.n++] = i;
    }
    return out;
}

void pl_test_plan(struct pl_planned *out, const struct pl_job_shape *s, const struct pl_model *m) {
    const struct pl_traits traits = pl_traits_cpu(2);
    struct pl_diag d = {0};
    ck_assert_msg(pl_planned_init_shape(out, s, m, &traits, &d) == PL_ERR_OK, "%s", d.message);
}
