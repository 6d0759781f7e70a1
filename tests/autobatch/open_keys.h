/* open_keys.h - a job of four layers on a GPU, whose keys a test opens one by one. */
#ifndef PL_TESTS_AUTOBATCH_OPEN_KEYS_H
#define PL_TESTS_AUTOBATCH_OPEN_KEYS_H

#include "estimator/autobatch/decide.h"
#include "estimator/config/job_text.h"
#include "tests/plan/planning.h"

#include <check.h>

static struct pl_job job;
static struct pl_model model;

static void set(const char *key, const char *value) {
    ck_assert_int_eq(pl_job_set(&job, key, value, NULL), PL_ERR_OK);
}

static void prepare_mode(const char *mode) {
    ck_assert_int_eq(pl_job_defaults(&job, NULL), PL_ERR_OK);
    set("mode", mode);
    set("max_seq_length", "512");
    set("batch_size", "1");
    set("gradient_checkpointing", "full");
    set("loss_chunk_tokens", "128");
    pl_test_model("Llama-3.1-8B", &model);
    model.layers = 4;
}

static void finish(void) {
    pl_job_finish(&job);
}

/* Returns the question about the job with so many bytes of a GPU; 0: without a budget. */
static struct pl_question ask(uint64_t bytes) {
    const struct pl_traits traits = pl_traits_cuda(89);
    const struct pl_budget budget = {.total_bytes = bytes, .known = bytes > 0};
    return pl_question_of(&job, &model, &traits, &budget);
}

#endif
