/* fuzz_adapter_config.c - adapter_config.json of a directory that holds nothing else. */
#include "estimator/config/job_text.h"
#include "estimator/search/planned.h"
#include "runtime/checkpoint/adapter_io.h"
#include "runtime/checkpoint/tensor_io.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/ask.h"

static const char config[] =
    "{\"model_type\":\"llama\",\"hidden_size\":16,\"intermediate_size\":24,\"vocab_size\":32,"
    "\"num_hidden_layers\":1,\"num_attention_heads\":2}";

static const struct pl_program *program(void) {
    static struct pl_model m;
    static struct pl_job job;
    static struct pl_planned planned;
    const struct pl_traits traits = pl_traits_cpu(1);
    if (planned.program) return planned.program;
    FUZZ_CHECK(pl_model_parse("config.json", config, sizeof config - 1, &m, NULL) == PL_ERR_OK);
    FUZZ_CHECK(pl_job_defaults(&job, NULL) == PL_ERR_OK);
    FUZZ_CHECK(pl_job_set(&job, "mode", "lora", NULL) == PL_ERR_OK);
    job.max_seq_length = 16;
    FUZZ_CHECK(pl_question_plan(PL_ASK(&job, &m, &traits, NULL, 1), NULL, &planned, NULL) ==
               PL_ERR_OK);
    return planned.program;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_tensor_io io = {.program = program()};
    struct pl_diag d = {0};
    fuzz_file("adapter_config.json", data, size);
    FUZZ_CHECK(!fuzz_outcome(pl_adapter_load(&io, fuzz_dir(), &d), &d));
    return 0;
}
