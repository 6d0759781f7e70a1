/* check_base.c - frozen weights in bf16 with activations in fp32: the jobs that have them, and the
 * changes in the program. */
#include "estimator/config/job_text.h"
#include "estimator/config/validate.h"
#include "tests/plan/planning.h"

#include <check.h>
#include <string.h>

static struct pl_model model; /* a bf16 checkpoint, tied */

static void setup(void) {
    pl_test_model("SmolLM2-135M", &model);
}

static const struct {
    const char *set[4][2];
    enum pl_backend backend;
    bool inference;
    const char *stored;
    bool is_bf16;
} jobs[] = {
    {{{"mode", "lora"}, {"dtype", "fp32"}}, PL_BACKEND_CPU, false, "bfloat16", true},
    {{{"mode", "qlora"}, {"dtype", "fp32"}}, PL_BACKEND_CPU, false, "bfloat16", true},
    {{{"mode", "lora"}, {"dtype", "fp32"}}, PL_BACKEND_NULL, false, "bfloat16", true},
    {{{"mode", "full"}, {"dtype", "fp32"}}, PL_BACKEND_CPU, true, "bfloat16", true},
    {{{"mode", "lora"}, {"dtype", "fp32"}}, PL_BACKEND_CUDA, false, "bfloat16", false},
    {{{"mode", "lora"}, {"dtype", "fp32"}}, PL_BACKEND_CPU, false, "float32", false},
    {{{"mode", "lora"}, {"dtype", "fp32"}}, PL_BACKEND_CPU, false, "float16", false},
    {{{"mode", "lora"}, {"dtype", "fp32"}}, PL_BACKEND_CPU, false, "", false},
    {{{"mode", "lora"}, {"dtype", "bf16"}}, PL_BACKEND_CPU, false, "bfloat16", false},
    {{{"mode", "full"}, {"dtype", "fp32"}}, PL_BACKEND_CPU, false, "bfloat16", false},
    {{{"mode", "full"}, {"dtype", "fp32"}, {"freeze_layers", "30"}},
     PL_BACKEND_CPU,
     false,
     "bfloat16",
     false},
    {{{"mode", "lora"}, {"dtype", "fp32"}, {"init", "random"}},
     PL_BACKEND_CPU,
     false,
     "bfloat16",
     false},
    {{{"mode", "lora"}, {"dtype", "fp32"}, {"base_dtype", "fp32"}},
     PL_BACKEND_CPU,
     false,
     "bfloat16",
     false},
    {{{"mode", "lora"}, {"dtype", "fp32"}, {"base_dtype", "bf16"}},
     PL_BACKEND_CPU,
     false,
     "float32",
     true},
    {{{"mode", "lora"}, {"dtype", "fp32"}, {"base_dtype", "bf16"}, {"init", "random"}},
     PL_BACKEND_CPU,
     false,
     "float32",
     true},
    {{{"mode", "lora"}, {"dtype", "bf16"}, {"base_dtype", "bf16"}},
     PL_BACKEND_CUDA,
     false,
     "float32",
     false},
};

static pl_err shape_of(int i, struct pl_job_shape *s, struct pl_diag *d) {
    struct pl_traits traits = pl_traits_cpu(2);
    struct pl_job job;
    ck_assert_int_eq(pl_job_defaults(&job, d), PL_ERR_OK);
    for (int k = 0; k < 4 && jobs[i].set[k][0]; k++)
        ck_assert_int_eq(pl_job_set(&job, jobs[i].set[k][0], jobs[i].set[k][1], d), PL_ERR_OK);
    ck_assert_int_eq(pl_job_validate(&job, d), PL_ERR_OK);
    job.inference = jobs[i].inference;
    traits.backend = jobs[i].backend;
    strcpy(model.torch_dtype, jobs[i].stored);
    pl_err err = pl_job_shape_init(&job, &model, &traits, 1, s, d);
    pl_job_finish(&job);
    return err;
}

START_TEST(auto_is_bf16_where_that_changes_no_bit) {
    struct pl_job_shape s;
    struct pl_diag d = {0};
    ck_assert_msg(shape_of(_i, &s, &d) == PL_ERR_OK, "%s", d.message);
    ck_assert_int_eq(s.base_dtype == PL_DTYPE_BF16, jobs[_i].is_bf16);
}
END_TEST

START_TEST(a_gpu_refuses_two_types_by_name) {
    const struct pl_traits cuda = pl_traits_cuda(90);
    struct pl_job_shape s;
    struct pl_job job;
    struct pl_diag d = {0};
    ck_assert_int_eq(pl_job_defaults(&job, &d), PL_ERR_OK);
    ck_assert_int_eq(pl_job_set(&job, "mode", "lora", &d), PL_ERR_OK);
    ck_assert_int_eq(pl_job_set(&job, "dtype", "fp32", &d), PL_ERR_OK);
    ck_assert_int_eq(pl_job_set(&job, "base_dtype", "bf16", &d), PL_ERR_OK);
    ck_assert_int_eq(pl_job_shape_init(&job, &model, &cuda, 1, &s, &d), PL_ERR_CONFIG_CONFLICT);
    ck_assert_msg(strstr(d.message, "`base_dtype: bf16`") && strstr(d.hint, "`dtype: bf16`"),
                  "%s: %s", d.message, d.hint);
    pl_job_finish(&job);
}
END_TEST

/* Everything else is what it was: scratch alone may differ, since a product may copy its weight. */
START_TEST(a_frozen_weight_takes_half_and_nothing_else_changes) {
    static const uint32_t modes[] = {PL_MODE_LORA, PL_MODE_QLORA, PL_MODE_FULL};
    struct pl_job_shape s = pl_test_shape(&model, modes[_i], PL_RECOMPUTE_FULL, 2, 64);
    struct pl_planned wide, narrow;
    uint64_t elements = 0;
    s.dtype = s.gradient_dtype = s.compute_dtype = PL_DTYPE_F32;
    s.master_weights = false;
    if (modes[_i] == PL_MODE_FULL) s.inference = true, s.eval = s.save = false;
    pl_test_plan(&wide, &s, &model);
    s.base_dtype = PL_DTYPE_BF16;
    pl_test_plan(&narrow, &s, &model);
    ck_assert_uint_eq(wide.program->n_tensors, narrow.program->n_tensors);
    for (uint32_t i = 0; i < wide.program->n_tensors; i++) {
        const struct pl_tensor *a = &wide.program->tensors[i], *b = &narrow.program->tensors[i];
        ck_assert_int_eq(a->category, b->category);
        if (a->category == PL_CATEGORY_WORKSPACE) continue;
        ck_assert_uint_eq(b->bytes, a->role == PL_ROLE_WEIGHT ? a->bytes / 2 : a->bytes);
        elements += a->role == PL_ROLE_WEIGHT ? a->bytes / 4 : 0;
    }
    ck_assert_uint_gt(elements, 28000000); /* the embedding at least */
    ck_assert_uint_eq(wide.plan->job_by_category[PL_CATEGORY_WEIGHTS] -
                          narrow.plan->job_by_category[PL_CATEGORY_WEIGHTS],
                      2 * elements);
    ck_assert_uint_lt(narrow.plan->arena_bytes, wide.plan->arena_bytes - 2 * elements + (1 << 21));
    pl_planned_finish(&wide);
    pl_planned_finish(&narrow);
}
END_TEST

int main(void) {
    Suite *s = suite_create("program.base");
    TCase *tc = tcase_create("base");
    tcase_add_checked_fixture(tc, setup, NULL);
    tcase_add_loop_test(tc, auto_is_bf16_where_that_changes_no_bit, 0, sizeof jobs / sizeof *jobs);
    tcase_add_test(tc, a_gpu_refuses_two_types_by_name);
    tcase_add_loop_test(tc, a_frozen_weight_takes_half_and_nothing_else_changes, 0, 3);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
