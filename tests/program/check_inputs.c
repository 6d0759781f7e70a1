/* check_inputs.c - the tables of a micro-batch: room for as many sequences as the data can bring.
 */
#include "estimator/plan/plan.h"
#include "tests/plan/planning.h"

#include <check.h>

/* The most rows with a target that fit into `length` tokens: each has two tokens at least. */
static const struct {
    bool packing;
    uint64_t batch, length, seqs;
} cases[] = {
    {false, 1, 2048, 1}, {false, 5, 7, 5}, {true, 1, 2048, 1024},
    {true, 5, 7, 15},    {true, 3, 2, 3},  {true, 2, 3, 2},
};

static uint64_t rows_of(const struct pl_program *p, enum pl_role role, enum pl_phase phase) {
    for (uint32_t i = 0; i < p->n_tensors; i++)
        if (p->tensors[i].role == role && p->tensors[i].phase == phase)
            return p->tensors[i].dims[0];
    return 0;
}

START_TEST(a_plan_has_room_for_every_sequence) {
    struct pl_model m;
    struct pl_planned planned;
    struct pl_diag d = {0};
    pl_test_model("SmolLM2-135M", &m);
    struct pl_job_shape s =
        pl_test_shape(&m, PL_MODE_LORA, PL_RECOMPUTE_FULL, cases[_i].batch, cases[_i].length);
    s.packing = cases[_i].packing;
    s.lora_dropout = 0.1;
    pl_test_plan(&planned, &s, &m);
    const struct pl_program *p = planned.program;
    ck_assert_uint_eq(p->seqs, cases[_i].seqs);
    ck_assert_uint_eq(rows_of(p, PL_ROLE_OFFSETS, PL_PHASE_MICRO), cases[_i].seqs + 1);
    ck_assert_uint_eq(rows_of(p, PL_ROLE_OFFSETS, PL_PHASE_EVAL), cases[_i].seqs + 1);
    ck_assert_uint_eq(rows_of(p, PL_ROLE_SAMPLES, PL_PHASE_MICRO), cases[_i].seqs);
    ck_assert_int_eq(pl_plan_check(planned.plan, &d), PL_ERR_OK);
    pl_planned_finish(&planned);
}
END_TEST

int main(void) {
    Suite *s = suite_create("program.inputs");
    TCase *t = tcase_create("inputs");
    tcase_add_loop_test(t, a_plan_has_room_for_every_sequence, 0,
                        (int)(sizeof cases / sizeof *cases));
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
