/* fuzz_model_weights.c - model.safetensors against the models that it could belong to, weights that
 * were quantised elsewhere included, and all of its numbers. */
#include "estimator/config/job_text.h"
#include "estimator/search/planned.h"
#include "runtime/checkpoint/model_io.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/ask.h"

#include <string.h>

#define GPT_OSS(more)                                                                              \
    "{\"model_type\":\"gpt_oss\",\"hidden_size\":32,\"intermediate_size\":32,\"vocab_size\":16,"   \
    "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":8,"  \
    "\"num_local_experts\":2,\"num_experts_per_tok\":1,\"tie_word_embeddings\":true,"              \
    "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2.0}" more

static const char *const configs[] = {
    "{\"model_type\":\"llama\",\"hidden_size\":8,\"intermediate_size\":8,\"vocab_size\":16,"
    "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"tie_word_embeddings\":true}",
    GPT_OSS("}"), GPT_OSS(",\"quantization_config\":{\"quant_method\":\"mxfp4\"}}")};
static const char *const modes[] = {"lora", "qlora"};
#define N_CONFIGS (sizeof configs / sizeof *configs)
#define N_MODES   (sizeof modes / sizeof *modes)
#define N_PLANS   (N_CONFIGS * N_MODES)

static void plan(const struct pl_model *m, const char *mode, struct pl_planned *out) {
    const struct pl_traits traits = pl_traits_cpu(1);
    struct pl_job job;
    FUZZ_CHECK(pl_job_defaults(&job, NULL) == PL_ERR_OK);
    FUZZ_CHECK(pl_job_set(&job, "mode", mode, NULL) == PL_ERR_OK);
    job.max_seq_length = 16;
    job.double_quant = false;
    FUZZ_CHECK(pl_question_plan(PL_ASK(&job, m, &traits, NULL, 1), NULL, out, NULL) == PL_ERR_OK);
    pl_job_finish(&job);
}

static void plan_all(struct pl_planned planned[N_PLANS]) {
    static struct pl_model m[N_CONFIGS]; /* plans borrow them */
    for (size_t i = 0; i < N_PLANS; i++) {
        const char *config = configs[i / N_MODES];
        if (i % N_MODES == 0)
            FUZZ_CHECK(pl_model_parse("config.json", config, strlen(config), &m[i / N_MODES],
                                      NULL) == PL_ERR_OK);
        plan(&m[i / N_MODES], modes[i % N_MODES], &planned[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct pl_planned planned[N_PLANS];
    struct pl_diag numbers = {0};
    if (!planned[0].program) plan_all(planned);
    fuzz_file("model.safetensors", data, size);
    for (size_t i = 0; i < N_PLANS; i++) {
        struct pl_diag d = {0};
        (void)fuzz_outcome(pl_model_check_files(planned[i].program, fuzz_dir(), &d), &d);
    }
    (void)fuzz_outcome(pl_model_check_numbers(fuzz_dir(), &numbers), &numbers);
    return 0;
}
