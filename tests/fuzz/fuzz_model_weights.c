/* fuzz_model_weights.c - model.safetensors against the model it should belong to, weights that were
 * quantised elsewhere included. */
#include "estimator/config/job_text.h"
#include "estimator/search/planned.h"
#include "runtime/checkpoint/model_io.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/ask.h"

static const char config[] =
    "{\"model_type\":\"llama\",\"hidden_size\":8,\"intermediate_size\":8,\"vocab_size\":16,"
    "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"tie_word_embeddings\":true}";

static const char *const modes[] = {"lora", "qlora"};
#define N_MODES (sizeof modes / sizeof *modes)

static void plan_all(struct pl_planned planned[N_MODES]) {
    static struct pl_model m;
    const struct pl_traits traits = pl_traits_cpu(1);
    FUZZ_CHECK(pl_model_parse("config.json", config, sizeof config - 1, &m, NULL) == PL_ERR_OK);
    for (size_t i = 0; i < N_MODES; i++) {
        struct pl_job job;
        FUZZ_CHECK(pl_job_defaults(&job, NULL) == PL_ERR_OK);
        FUZZ_CHECK(pl_job_set(&job, "mode", modes[i], NULL) == PL_ERR_OK);
        job.max_seq_length = 16;
        job.double_quant = false;
        FUZZ_CHECK(pl_question_plan(PL_ASK(&job, &m, &traits, NULL, 1), NULL, &planned[i], NULL) ==
                   PL_ERR_OK);
        pl_job_finish(&job);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct pl_planned planned[N_MODES];
    if (!planned[0].program) plan_all(planned);
    fuzz_file("model.safetensors", data, size);
    for (size_t i = 0; i < N_MODES; i++) {
        struct pl_diag d = {0};
        (void)fuzz_outcome(pl_model_check_files(planned[i].program, fuzz_dir(), &d), &d);
    }
    return 0;
}
