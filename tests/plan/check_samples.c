/* check_samples.c - the phase by which a model in training answers prompts: it takes the place of
 * what a micro-batch keeps, and changes nothing of the other phases. */
#include "estimator/base/checked.h"
#include "tests/plan/planning.h"

#include <check.h>
#include <string.h>

static const uint32_t modes[] = {PL_MODE_FULL, PL_MODE_LORA, PL_MODE_QLORA};
enum { N_MODES = 3 };

static struct pl_planned plan_of(const struct pl_model *m, struct pl_job_shape s, bool samples) {
    struct pl_planned p;
    struct pl_diag d = {0};
    s.samples = samples;
    pl_test_plan(&p, &s, m);
    ck_assert_msg(pl_plan_check(p.plan, &d) == PL_ERR_OK, "%s", d.message);
    return p;
}

static uint64_t cache_bytes(const struct pl_model *m, uint64_t context) {
    return 2 * m->layers * context * m->kv_heads * m->head_dim * 2;
}

/* Ops of the other phases, and where their tensors lie. */
static void compare_others(const struct pl_planned *with, const struct pl_planned *without) {
    const struct pl_phase_range *r = &with->program->phases[PL_PHASE_GENERATE];
    ck_assert_uint_gt(r->n_ops, 0);
    ck_assert_uint_eq(r->first_op, without->program->n_ops);
    ck_assert_uint_eq(r->first_op + r->n_ops, with->program->n_ops);
    ck_assert_uint_eq(with->plan->job_bytes, without->plan->job_bytes);
    for (int ph = 0; ph < PL_PHASE_COUNT; ph++) {
        if (ph == PL_PHASE_GENERATE) continue;
        ck_assert_uint_eq(with->plan->phases[ph].live_bytes, without->plan->phases[ph].live_bytes);
        ck_assert_uint_eq(with->program->phases[ph].n_ops, without->program->phases[ph].n_ops);
    }
}

START_TEST(the_batch_arena_is_that_of_the_larger_phase) {
    struct pl_model m;
    pl_test_model(pl_test_models[_i / N_MODES], &m);
    const struct pl_job_shape s =
        pl_test_shape(&m, modes[_i % N_MODES], PL_RECOMPUTE_NONE, 1, 1024);
    struct pl_planned with = plan_of(&m, s, true), without = plan_of(&m, s, false);
    const struct pl_phase_plan *ph = &with.plan->phases[PL_PHASE_GENERATE];
    compare_others(&with, &without);
    ck_assert_uint_ge(ph->live_bytes, cache_bytes(&m, 1024));
    ck_assert_uint_eq(with.plan->batch_bytes, pl_u64_max(without.plan->batch_bytes, ph->bytes));
    pl_planned_finish(&with);
    pl_planned_finish(&without);
}
END_TEST

/* One sequence is answered, whatever a micro-batch holds. */
START_TEST(the_phase_does_not_grow_with_the_micro_batch) {
    struct pl_model m;
    pl_test_model("Llama-3.1-8B", &m);
    struct pl_job_shape s = pl_test_shape(&m, PL_MODE_LORA, PL_RECOMPUTE_FULL, 1, 2048);
    struct pl_planned one = plan_of(&m, s, true);
    s.batch_size = 8;
    struct pl_planned eight = plan_of(&m, s, true);
    ck_assert_uint_eq(one.plan->phases[PL_PHASE_GENERATE].bytes,
                      eight.plan->phases[PL_PHASE_GENERATE].bytes);
    pl_planned_finish(&one);
    pl_planned_finish(&eight);
}
END_TEST

/* The cache is larger than all that a step keeps where inputs of layers wait in host memory. */
START_TEST(a_cache_that_is_larger_than_a_step_is_the_peak) {
    struct pl_model m;
    pl_test_model("Llama-2-7B", &m);
    struct pl_job_shape s = pl_test_shape(&m, PL_MODE_LORA, PL_RECOMPUTE_OFFLOAD, 1, 16384);
    s.mlp_chunk_tokens = 512;
    struct pl_planned with = plan_of(&m, s, true), without = plan_of(&m, s, false);
    ck_assert_int_eq(with.plan->peak_phase, PL_PHASE_GENERATE);
    ck_assert_uint_eq(with.plan->ledger[PL_CATEGORY_KV_CACHE], cache_bytes(&m, 16384));
    ck_assert_uint_gt(with.plan->arena_bytes, without.plan->arena_bytes);
    pl_planned_finish(&with);
    pl_planned_finish(&without);
}
END_TEST

/* A run of the phase finds what the one before has left. */
START_TEST(a_cache_that_ends_before_its_phase_breaks_the_plan) {
    struct pl_model m;
    struct pl_diag d = {0};
    uint32_t cache = 0;
    pl_test_model("SmolLM2-135M", &m);
    struct pl_planned p =
        plan_of(&m, pl_test_shape(&m, PL_MODE_LORA, PL_RECOMPUTE_FULL, 1, 256), true);
    while (p.program->tensors[cache].category != PL_CATEGORY_KV_CACHE)
        cache++;
    p.plan->places[cache].last_op--;
    ck_assert_int_eq(pl_plan_check(p.plan, &d), PL_ERR_PLAN_BROKEN);
    ck_assert_msg(strstr(d.message, "as long as its phase") != NULL, "%s", d.message);
    pl_planned_finish(&p);
}
END_TEST

int main(void) {
    Suite *s = suite_create("plan.samples");
    TCase *tc = tcase_create("samples");
    tcase_add_loop_test(tc, the_batch_arena_is_that_of_the_larger_phase, 0,
                        N_MODES * pl_test_n_models);
    tcase_add_test(tc, the_phase_does_not_grow_with_the_micro_batch);
    tcase_add_test(tc, a_cache_that_is_larger_than_a_step_is_the_peak);
    tcase_add_test(tc, a_cache_that_ends_before_its_phase_breaks_the_plan);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
