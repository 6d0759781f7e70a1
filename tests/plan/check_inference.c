/* check_inference.c - the plan of inference: weights, KV cache and one phase, nothing of training.
 *
 * The cache holds a key and a value of every position: 2 x layers x sequences x context x K
 * elements (Pope et al., "Efficiently Scaling Transformer Inference", 2211.05102, section 2.1, with
 * K the columns of the grouped heads). */
#include "tests/plan/planning.h"

#include <check.h>

static struct pl_job_shape inference(const struct pl_model *m, uint32_t mode, uint64_t batch,
                                     uint64_t context) {
    struct pl_job_shape s = pl_test_shape(m, mode, PL_RECOMPUTE_FULL, batch, context);
    s.inference = true;
    s.eval = s.save = s.master_weights = false;
    return s;
}

static uint64_t largest_of(const struct pl_program *p, enum pl_category c) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->n_tensors; i++)
        if (p->tensors[i].category == c && p->tensors[i].bytes > bytes) bytes = p->tensors[i].bytes;
    return bytes;
}

START_TEST(the_cache_holds_two_vectors_of_every_layer_and_position) {
    struct pl_model m;
    struct pl_planned p;
    struct pl_diag d = {0};
    pl_test_model(pl_test_models[_i], &m);
    for (uint64_t batch = 1; batch <= 9; batch += 4) {
        struct pl_job_shape s = inference(&m, PL_MODE_FULL, batch, 3000);
        pl_test_plan(&p, &s, &m);
        const uint64_t *bytes = p.plan->ledger;
        ck_assert_uint_eq(bytes[PL_CATEGORY_KV_CACHE],
                          2 * m.layers * batch * 3000 * m.kv_heads * m.head_dim * 2);
        ck_assert_uint_eq(bytes[PL_CATEGORY_GRADIENTS] + bytes[PL_CATEGORY_OPTIMIZER] +
                              bytes[PL_CATEGORY_ADAPTER],
                          0);
        ck_assert_msg(pl_plan_check(p.plan, &d) == PL_ERR_OK, "%s", d.message);
        pl_planned_finish(&p);
    }
}
END_TEST

START_TEST(weights_are_those_of_training_and_adapters_are_not_merged) {
    struct pl_model m;
    struct pl_planned p, training;
    struct pl_diag d = {0};
    pl_test_model(pl_test_models[_i], &m);
    struct pl_job_shape s = inference(&m, PL_MODE_LORA, 2, 700);
    pl_test_plan(&p, &s, &m);
    s.inference = false;
    pl_test_plan(&training, &s, &m);
    ck_assert_uint_eq(p.plan->ledger[PL_CATEGORY_WEIGHTS],
                      training.plan->ledger[PL_CATEGORY_WEIGHTS]);
    ck_assert_uint_eq(p.plan->ledger[PL_CATEGORY_ADAPTER],
                      training.plan->ledger[PL_CATEGORY_ADAPTER]);
    ck_assert_uint_eq(p.plan->ledger[PL_CATEGORY_GRADIENTS], 0);
    ck_assert_msg(pl_plan_check(p.plan, &d) == PL_ERR_OK, "%s", d.message);
    pl_planned_finish(&p);
    pl_planned_finish(&training);
}
END_TEST

/* Activations follow the prompt tokens computed at once, not the context; logits are a row a
 * sequence. */
START_TEST(only_the_cache_grows_with_the_context) {
    struct pl_model m;
    struct pl_planned near, far;
    pl_test_model("Llama-3.1-8B", &m);
    struct pl_job_shape s = inference(&m, PL_MODE_FULL, 4, 4096), l = s;
    l.max_seq_length = 131072;
    pl_test_plan(&near, &s, &m);
    pl_test_plan(&far, &l, &m);
    ck_assert_uint_eq(near.plan->phases[PL_PHASE_GENERATE].bytes,
                      far.plan->phases[PL_PHASE_GENERATE].bytes);
    ck_assert_uint_eq(largest_of(far.program, PL_CATEGORY_LOGITS), 4 * m.vocab * 4);
    ck_assert_uint_eq(far.plan->job_by_category[PL_CATEGORY_KV_CACHE],
                      32 * near.plan->job_by_category[PL_CATEGORY_KV_CACHE]);
    pl_planned_finish(&near);
    pl_planned_finish(&far);
}
END_TEST

START_TEST(every_sequence_has_room_for_its_next_token) {
    struct pl_model m;
    struct pl_planned p;
    static const uint64_t rows[][3] = {
        {1, 7, 7}, {3, 20, 60}, {1, 100000, 512}, {2, 300, 512}, {900, 2, 900}};
    pl_test_model("SmolLM2-135M", &m);
    struct pl_job_shape s = inference(&m, PL_MODE_FULL, rows[_i][0], rows[_i][1]);
    pl_test_plan(&p, &s, &m);
    ck_assert_uint_eq(p.program->tokens, rows[_i][2]);
    pl_planned_finish(&p);
}
END_TEST

int main(void) {
    Suite *s = suite_create("plan.inference");
    TCase *tc = tcase_create("inference");
    tcase_add_loop_test(tc, the_cache_holds_two_vectors_of_every_layer_and_position, 0,
                        pl_test_n_models);
    tcase_add_loop_test(tc, weights_are_those_of_training_and_adapters_are_not_merged, 0,
                        pl_test_n_models);
    tcase_add_test(tc, only_the_cache_grows_with_the_context);
    tcase_add_loop_test(tc, every_sequence_has_room_for_its_next_token, 0, 5);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
