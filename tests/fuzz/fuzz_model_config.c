/* fuzz_model_config.c - config.json, and the plan of what it describes where that is small. */
#include "estimator/config/job_text.h"
#include "estimator/search/planned.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/ask.h"

#define MOST_LAYERS 3

static void plan(const struct pl_model *m, const char *mode) {
    struct pl_job job;
    struct pl_planned planned;
    struct pl_diag d = {0};
    const struct pl_traits traits = pl_traits_cpu(1);
    FUZZ_CHECK(pl_job_defaults(&job, NULL) == PL_ERR_OK);
    FUZZ_CHECK(pl_job_set(&job, "mode", mode, NULL) == PL_ERR_OK);
    job.max_seq_length = 16;
    if (fuzz_outcome(pl_question_plan(PL_ASK(&job, m, &traits, NULL, 1), NULL, &planned, &d), &d)) {
        uint64_t weights = planned.plan->ledger[PL_CATEGORY_WEIGHTS];
        FUZZ_CHECK(fuzz_outcome(pl_plan_check(planned.plan, &d), &d));
        FUZZ_CHECK(weights / 2 >= pl_model_param_count(m)); /* bf16 */
        FUZZ_CHECK(planned.plan->arena_bytes >= weights);
        pl_planned_finish(&planned);
    }
    pl_job_finish(&job);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct pl_model m; /* 12 KiB */
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    struct pl_diag d = {0};
    if (!fuzz_outcome(pl_model_parse("config.json", (const char *)data, size, &m, &d), &d))
        return 0;
    uint32_t n = pl_model_rows(&m, rows);
    FUZZ_CHECK(n > 0 && n <= PL_MODEL_MAX_ROWS);
    FUZZ_CHECK(m.layers <= PL_MODEL_MAX_LAYERS && m.heads % m.kv_heads == 0);
    FUZZ_CHECK(pl_model_linear_params(&m) <= pl_model_param_count(&m));
    if (m.layers > MOST_LAYERS) return 0;
    plan(&m, "full");
    plan(&m, "lora");
    return 0;
}
