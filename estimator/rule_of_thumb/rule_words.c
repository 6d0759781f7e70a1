/* rule_words.c - the tables that are words: mistakes, the checklist, published samples. */
#include "estimator/rule_of_thumb/rule_build.h"
#include "estimator/rule_of_thumb/rule_tables.h"

#define COLUMNS(t, ...)                                                                            \
    do {                                                                                           \
        static const char *const names_[] = {__VA_ARGS__};                                         \
        pl_rule_columns(t, names_, sizeof names_ / sizeof *names_);                                \
    } while (0)
#define N_OF(rows) (sizeof(rows) / sizeof *(rows))

static const struct pl_rule_mistake mistakes[] = {
    {"forgot_optimizer_states", "Forgot optimizer states", "OOM during first training step",
     "Use QLoRA or 8-bit optimizer", "mode: qlora"},
    {"batch_size_too_high", "Batch size too high", "OOM after a few steps",
     "Reduce batch size, use gradient accumulation", "batch_size: auto"},
    {"sequence_too_long", "Sequence too long", "OOM during forward pass",
     "Reduce max_seq_length or use gradient checkpointing", "max_seq_length: 1024"},
    {"no_gradient_checkpointing", "No gradient checkpointing", "OOM with even batch=1",
     "Enable gradient_checkpointing=True", "gradient_checkpointing: full"},
    {"fp16_on_small_gpu", "Loading FP16 on small GPU", "OOM during model.load",
     "Use 4-bit quantization from the start", "mode: qlora"},
};

const struct pl_rule_mistake *pl_rule_mistakes(size_t *n) {
    *n = N_OF(mistakes);
    return mistakes;
}

void pl_rule_fill_mistakes(const struct pl_rule_inputs *in, struct pl_rule_table *t) {
    (void)in;
    COLUMNS(t, "name", "mistake", "symptom", "fix", "setting");
    for (size_t i = 0; i < N_OF(mistakes); i++) {
        struct pl_rule_cell *c = pl_rule_row(t);
        pl_rule_words(c++, "%s", mistakes[i].name);
        pl_rule_words(c++, "%s", mistakes[i].mistake);
        pl_rule_words(c++, "%s", mistakes[i].symptom);
        pl_rule_words(c++, "%s", mistakes[i].fix);
        pl_rule_words(c, "%s", mistakes[i].setting);
    }
}

void pl_rule_fill_checklist(const struct pl_rule_inputs *in, struct pl_rule_table *t) {
    static const struct {
        const char *question, *settings;
    } rows[] = {
        {"Is model loaded at correct precision?", "dtype"},
        {"Is gradient checkpointing enabled?", "gradient_checkpointing"},
        {"What's the batch size and sequence length?", "batch_size, max_seq_length"},
        {"Is LoRA/QLoRA properly configured?", "mode, lora_r, lora_target_modules"},
        {"Any other models/tensors in GPU memory?", "vram_budget, vram_margin"},
    };
    (void)in;
    COLUMNS(t, "step", "question", "settings");
    for (size_t i = 0; i < N_OF(rows); i++) {
        struct pl_rule_cell *c = pl_rule_row(t);
        pl_rule_number(c++, (double)(i + 1), 0);
        pl_rule_words(c++, "%s", rows[i].question);
        pl_rule_words(c, "%s", rows[i].settings);
    }
}

/* What the program cannot plan yet is asked of the rule of thumb. */
void pl_rule_fill_samples(const struct pl_rule_inputs *in, struct pl_rule_table *t) {
    static const struct {
        const char *id, *total_gb, *says, *command;
    } rows[] = {
        {"qwen7b-lora-r256", "13.4", "fits 16",
         "Qwen2.5-7B --mode lora --lora-r 256 --batch-size 2 --max-seq-length 2048 --vram-gb 16"},
        {"qwen7b-lora-r64", "14.1", "fits 16 (tight)",
         "Qwen2.5-7B --mode lora --lora-r 64 --batch-size 4 --max-seq-length 2048 --vram-gb 16"},
        {"phi4mini-full", "12.8", "fits 16",
         "Phi-4-mini --mode full --batch-size 1 --max-seq-length 2048 --vram-gb 16"},
        {"smollm3-full", "11.2", "fits 16",
         "SmolLM3-3B --mode full --batch-size 2 --max-seq-length 2048 --vram-gb 16"},
        {"qwen7b-full", "n/a", "refused, RUNTIME_FULL_FT_MODEL_TOO_LARGE",
         "Qwen2.5-7B --mode full --vram-gb 16"},
        {"qwen14b-qlora", "8.5", "on 32 GB",
         "Qwen2.5-14B --mode qlora --lora-r 32 --batch-size 2 --max-seq-length 4096 --vram-gb 32"},
        {"qwen32b-qlora", "26", "just fits 32",
         "Qwen2.5-32B --mode qlora --lora-r 32 --batch-size 1 --max-seq-length 2048 --vram-gb 32"},
        {"qwen7b-full-32", "refused", "use --full-ft-offload",
         "Qwen2.5-7B --mode full --vram-gb 32"},
        {"qwen7b-offload", "1 + activations", "39 GB of host memory",
         "Qwen2.5-7B --mode full --full-ft-offload --vram-gb 32"},
    };
    (void)in;
    COLUMNS(t, "id", "document_total_gb", "document_says", "estimate_vram");
    for (size_t i = 0; i < N_OF(rows); i++) {
        struct pl_rule_cell *c = pl_rule_row(t);
        pl_rule_words(c++, "%s", rows[i].id);
        pl_rule_words(c++, "%s", rows[i].total_gb);
        pl_rule_words(c++, "%s", rows[i].says);
        pl_rule_words(c, "%s", rows[i].command);
    }
}
