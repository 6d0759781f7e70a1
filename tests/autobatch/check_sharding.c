/* check_sharding.c - `sharding: auto` is the least that fits. */
#include "estimator/autobatch/sharding.h"
#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"
#include "tests/plan/planning.h"
#include "tests/support/ask.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static void read_job(struct pl_job *job, const char *devices) {
    ck_assert_int_eq(pl_job_defaults(job, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_job_set(job, "mode", "full", NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_job_set(job, "max_seq_length", "128", NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_job_set(job, "batch_size", "1", NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_job_set(job, "devices", devices, NULL), PL_ERR_OK);
}

static uint64_t arena_under(struct pl_job *job, const struct pl_model *m, uint32_t sharding) {
    const struct pl_traits traits = pl_traits_cpu(1);
    struct pl_planned p;
    job->sharding = sharding;
    const struct pl_question last = pl_question_of_last(PL_ASK(job, m, &traits, NULL, 1));
    ck_assert_int_eq(pl_question_plan(&last, NULL, &p, NULL), PL_ERR_OK);
    const uint64_t bytes = p.plan->arena_bytes;
    pl_planned_finish(&p);
    job->sharding = PL_SHARDING_AUTO;
    return bytes;
}

/* Decides with a budget of `bytes`; *told is true if a note says so. */
static uint32_t decided(const struct pl_job *job, const struct pl_model *m, uint64_t bytes,
                        bool *told) {
    const struct pl_traits traits = pl_traits_cpu(1);
    const struct pl_budget b = {.known = bytes > 0, .total_bytes = bytes};
    struct pl_text notes = {0};
    uint32_t sharding;
    const struct pl_question last = pl_question_of_last(PL_ASK(job, m, &traits, &b, 1));
    ck_assert_int_eq(pl_sharding_decide(&last, &sharding, &notes, NULL), PL_ERR_OK);
    *told = notes.len > 0;
    pl_text_finish(&notes);
    return sharding;
}

START_TEST(weights_are_divided_only_where_less_does_not_fit) {
    struct pl_job job;
    struct pl_model m;
    bool told;
    read_job(&job, "4");
    pl_test_model("SmolLM2-135M", &m);
    const uint64_t gradients = arena_under(&job, &m, PL_SHARDING_GRADIENTS);
    ck_assert_uint_lt(arena_under(&job, &m, PL_SHARDING_WEIGHTS), gradients);
    ck_assert_uint_eq(decided(&job, &m, gradients, &told), PL_SHARDING_GRADIENTS);
    ck_assert(!told);
    ck_assert_uint_eq(decided(&job, &m, gradients - 1, &told), PL_SHARDING_WEIGHTS);
    ck_assert(told);
    pl_job_finish(&job);
}
END_TEST

/* Weights that do not fit in parts either are not divided for nothing; what is open besides may yet
 * make them fit. */
START_TEST(what_does_not_help_is_not_taken) {
    struct pl_job job;
    struct pl_model m;
    bool told;
    read_job(&job, "4");
    pl_test_model("SmolLM2-135M", &m);
    const uint64_t weights = arena_under(&job, &m, PL_SHARDING_WEIGHTS);
    ck_assert_uint_eq(decided(&job, &m, weights, &told), PL_SHARDING_WEIGHTS);
    ck_assert_uint_eq(decided(&job, &m, weights / 2, &told), PL_SHARDING_GRADIENTS);
    ck_assert(!told);
    job.gradient_checkpointing = PL_RECOMPUTE_FULL;
    const uint64_t least = arena_under(&job, &m, PL_SHARDING_WEIGHTS);
    job.gradient_checkpointing = PL_RECOMPUTE_AUTO;
    ck_assert_uint_eq(decided(&job, &m, least, &told), PL_SHARDING_WEIGHTS);
    pl_job_finish(&job);
}
END_TEST

/* Neither a fitting job nor another can divide more. */
START_TEST(one_exchange_divides_states_alone) {
    struct pl_job job;
    struct pl_model m;
    bool told;
    read_job(&job, "4");
    job.rank_order = PL_TRI_FALSE;
    pl_test_model("SmolLM2-135M", &m);
    const uint64_t states = arena_under(&job, &m, PL_SHARDING_OPTIMIZER);
    ck_assert_uint_eq(arena_under(&job, &m, PL_SHARDING_AUTO), states);
    ck_assert_uint_lt(states, arena_under(&job, &m, PL_SHARDING_NONE));
    for (uint64_t short_of = 0; short_of < 2; short_of++)
        ck_assert_uint_eq(decided(&job, &m, states - short_of, &told), PL_SHARDING_OPTIMIZER);
    ck_assert(!told);
    pl_job_finish(&job);
}
END_TEST

START_TEST(what_is_given_or_cannot_be_judged_stays) {
    struct pl_job job;
    struct pl_model m;
    bool told;
    pl_test_model("SmolLM2-135M", &m);
    read_job(&job, "4");
    ck_assert_uint_eq(decided(&job, &m, 0, &told), PL_SHARDING_AUTO); /* no budget */
    job.sharding = PL_SHARDING_NONE;
    ck_assert_uint_eq(decided(&job, &m, 1, &told), PL_SHARDING_NONE);
    pl_job_finish(&job);
    read_job(&job, "1");
    ck_assert_uint_eq(decided(&job, &m, 1, &told), PL_SHARDING_AUTO);
    pl_job_finish(&job);
}
END_TEST

int main(void) {
    Suite *s = suite_create("autobatch.sharding");
    TCase *tc = tcase_create("decisions");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, weights_are_divided_only_where_less_does_not_fit);
    tcase_add_test(tc, what_does_not_help_is_not_taken);
    tcase_add_test(tc, one_exchange_divides_states_alone);
    tcase_add_test(tc, what_is_given_or_cannot_be_judged_stays);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
