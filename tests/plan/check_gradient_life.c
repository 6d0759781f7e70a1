/* check_gradient_life.c - plans of gradients that die in the backward pass, over public models:
 * they are sound, never larger than plans that keep gradients, and hold what one layer needs. And
 * of gradients in bf16 that several micro-batches add to. */
#include "estimator/base/checked.h"
#include "tests/plan/planning.h"

#include <check.h>
#include <stdlib.h>

enum { LAYERS = 6 };

static struct pl_model model;

static struct pl_job_shape shape_of(uint32_t level, double max_grad_norm,
                                    enum pl_gradient_life gradients) {
    struct pl_job_shape s = pl_test_shape(&model, PL_MODE_FULL, level, 2, 512);
    s.max_grad_norm = max_grad_norm;
    s.gradients = gradients;
    return s;
}

static void plan(struct pl_planned *out, const struct pl_job_shape *s, const struct pl_traits *t) {
    struct pl_diag d = {0};
    ck_assert_msg(pl_planned_init_shape(out, s, &model, t, &d) == PL_ERR_OK, "%s", d.message);
    ck_assert_msg(pl_plan_check(out->plan, &d) == PL_ERR_OK, "%s", d.message);
}

/* The most that gradients of the step hold at a time, or those of the micro-batch. */
static uint64_t most_gradients_of(const struct pl_planned *p, enum pl_role role) {
    uint64_t most = 0;
    for (uint32_t op = 0; op < p->program->n_ops; op++) {
        uint64_t live = 0;
        for (uint32_t i = 0; i < p->program->n_tensors; i++) {
            const struct pl_tensor *t = &p->program->tensors[i];
            const struct pl_place_row *at = &p->plan->places[i];
            if (t->role == role && t->scope == PL_SCOPE_STEP && at->first_op <= op &&
                op <= at->last_op)
                live += t->bytes;
        }
        most = pl_u64_max(most, live);
    }
    return most;
}

static uint64_t most_gradients(const struct pl_planned *p) {
    return most_gradients_of(p, PL_ROLE_GRAD);
}

static uint64_t gradient_bytes(const struct pl_program *p, uint32_t layer) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct pl_tensor *t = &p->tensors[i];
        if (t->trainable && t->layer == layer)
            bytes += t->dims[0] * t->dims[1] * pl_dtype_bytes(p->shape.gradient_dtype);
    }
    return bytes;
}

START_TEST(gradients_hold_what_a_layer_or_the_vocabulary_needs) {
    static const uint32_t levels[] = {PL_RECOMPUTE_NONE, PL_RECOMPUTE_LIGHT, PL_RECOMPUTE_FULL};
    pl_test_model(pl_test_models[_i], &model);
    model.layers = LAYERS;
    for (int k = 0; k < 12; k++) {
        const struct pl_traits t = k % 2 ? pl_traits_cuda(80) : pl_traits_cpu(2);
        const struct pl_job_shape s = shape_of(levels[k / 4], k / 2 % 2, PL_GRADIENTS_OF_UPDATE);
        const struct pl_job_shape kept = shape_of(levels[k / 4], k / 2 % 2, PL_GRADIENTS_OF_JOB);
        struct pl_planned with, without;
        plan(&with, &s, &t);
        plan(&without, &kept, &t);
        const uint64_t table = model.vocab * model.hidden * 2;
        const uint64_t layer = gradient_bytes(with.program, 0);
        const uint64_t limit = model.tied ? table + layer : pl_u64_max(table, layer);
        ck_assert_uint_le(most_gradients(&with), limit);
        ck_assert_uint_le(with.plan->ledger[PL_CATEGORY_GRADIENTS], limit);
        ck_assert_uint_lt(with.plan->arena_bytes, without.plan->arena_bytes);
        pl_planned_finish(&with);
        pl_planned_finish(&without);
    }
}
END_TEST

/* A halving of the micro-batch leaves the job arena as it is, and keeps every gradient. */
START_TEST(micro_batches_that_add_up_keep_gradients_in_the_batch_arena) {
    pl_test_model(pl_test_models[_i], &model);
    model.layers = LAYERS;
    for (int k = 0; k < 4; k++) {
        const struct pl_traits t = k % 2 ? pl_traits_cuda(80) : pl_traits_cpu(2);
        const struct pl_job_shape one = shape_of(PL_RECOMPUTE_FULL, k / 2, PL_GRADIENTS_OF_UPDATE);
        struct pl_job_shape several = shape_of(PL_RECOMPUTE_FULL, k / 2, PL_GRADIENTS_OF_STEP);
        struct pl_planned a, b;
        several.batch_size = 1;
        plan(&a, &one, &t);
        plan(&b, &several, &t);
        ck_assert_uint_eq(a.plan->job_bytes, b.plan->job_bytes);
        ck_assert_uint_eq(most_gradients(&b), 2 * pl_model_param_count(&model));
        const struct pl_step_ops ops = pl_program_step_ops(b.program);
        for (uint32_t i = 0; i < b.program->n_tensors; i++) {
            if (!pl_tensor_is_held(b.program, &b.program->tensors[i])) continue;
            ck_assert_uint_eq(b.plan->places[i].first_op, ops.micro.first_op);
            ck_assert_uint_ge(b.plan->places[i].last_op, ops.commit.first_op);
        }
        pl_planned_finish(&a);
        pl_planned_finish(&b);
    }
}
END_TEST

/* Nothing adds to such a gradient but FOLD, which rounds what a whole one in fp32 leaves by the
 * numbers of its tensor. */
static void expect_folds(const struct pl_program *p) {
    const struct pl_phase_range *micro = &p->phases[PL_PHASE_MICRO];
    uint32_t folds = 0, trained = 0;
    for (uint32_t i = 0; i < p->n_tensors; i++)
        trained += p->tensors[i].trainable;
    for (uint32_t i = micro->first_op; i < micro->first_op + micro->n_ops; i++) {
        const struct pl_op *op = &p->ops[i];
        for (int k = 0; k < op->n_out; k++) {
            const struct pl_operand *out = &op->out[k];
            if (out->id == PL_NONE || p->tensors[out->id].role != PL_ROLE_GRAD) continue;
            ck_assert_msg(op->kind == PL_OP_FOLD, "%s adds to a gradient of the step",
                          pl_op_name(op->kind));
            const struct pl_tensor *g = &p->tensors[out->id];
            const struct pl_tensor *x = &p->tensors[op->in[PL_FOLD_PARTS].id];
            ck_assert_msg(x->role == PL_ROLE_MICRO_GRAD && x->dtype == PL_DTYPE_F32,
                          "%s in %s is added, no gradient of a micro-batch in fp32", x->name,
                          pl_dtype_name(x->dtype));
            ck_assert(g->dtype == PL_DTYPE_BF16 && x->of == g->of && op->attr.site == g->of);
            ck_assert(op->attr.accumulate == PL_ACC_FIRST_WRITES && op->attr.first_element == 0);
            folds++;
        }
    }
    ck_assert_msg(folds == trained, "%u of %u gradients are added", folds, trained);
}

/* The job arena stays what it is for one micro-batch (P4), and one tensor of the model in fp32 is
 * all that is added: the largest of an op, or the vocabulary, which where it is tied waits for the
 * embedding. A bias goes with its matrix. */
START_TEST(bf16_gradients_that_add_up_take_one_tensor_more) {
    static const uint32_t levels[] = {PL_RECOMPUTE_NONE, PL_RECOMPUTE_LIGHT, PL_RECOMPUTE_FULL};
    pl_test_model(pl_test_models[_i], &model);
    model.layers = LAYERS;
    for (int k = 0; k < 6; k++) {
        const struct pl_traits t = k % 2 ? pl_traits_cuda(80) : pl_traits_cpu(2);
        const struct pl_job_shape one = shape_of(levels[k / 2], 1, PL_GRADIENTS_OF_JOB);
        struct pl_job_shape several = one;
        struct pl_planned a, b;
        several.folds_gradients = true;
        plan(&a, &one, &t);
        plan(&b, &several, &t);
        expect_folds(b.program);
        ck_assert_uint_eq(a.plan->job_bytes, b.plan->job_bytes);
        const uint64_t table = 4 * model.vocab * model.hidden;
        const uint64_t ffn = (model.experts.n ? model.experts.n : 1) * model.layer[0].ffn;
        const uint64_t gu = 4 * (2 * ffn * model.hidden + 2 * ffn);
        const uint64_t limit = model.tied ? table + gu : pl_u64_max(table, gu);
        ck_assert_uint_le(most_gradients_of(&b, PL_ROLE_MICRO_GRAD), limit);
        pl_planned_finish(&a);
        pl_planned_finish(&b);
    }
}
END_TEST

/* Until the commit no trained tensor changes, and no state of one. */
START_TEST(ops_before_the_commit_change_no_weight) {
    pl_test_model("Qwen3-0.6B", &model);
    model.layers = LAYERS;
    for (int k = 0; k < 6; k++) {
        const struct pl_traits t = pl_traits_cuda(80);
        const struct pl_job_shape s =
            shape_of(PL_RECOMPUTE_FULL, k % 2, (enum pl_gradient_life)(k / 2));
        struct pl_planned p;
        plan(&p, &s, &t);
        const struct pl_step_ops ops = pl_program_step_ops(p.program);
        ck_assert_uint_eq(ops.norm.first_op, ops.micro.first_op + ops.micro.n_ops);
        ck_assert_uint_eq(ops.commit.first_op, ops.norm.first_op + ops.norm.n_ops);
        ck_assert_uint_gt(ops.commit.n_ops, 0);
        for (uint32_t i = ops.micro.first_op; i < ops.commit.first_op; i++)
            for (int j = 0; j < p.program->ops[i].n_out; j++) {
                const uint32_t id = p.program->ops[i].out[j].id;
                if (id == PL_NONE) continue;
                ck_assert(!p.program->tensors[id].trainable);
                ck_assert_int_ne(p.program->tensors[id].category, PL_CATEGORY_OPTIMIZER);
            }
        pl_planned_finish(&p);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("plan.gradient_life");
    TCase *tc = tcase_create("plans");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, gradients_hold_what_a_layer_or_the_vocabulary_needs, 0,
                        pl_test_n_all_models);
    tcase_add_loop_test(tc, micro_batches_that_add_up_keep_gradients_in_the_batch_arena, 0,
                        pl_test_n_all_models);
    tcase_add_loop_test(tc, bf16_gradients_that_add_up_take_one_tensor_more, 0,
                        pl_test_n_all_models);
    tcase_add_test(tc, ops_before_the_commit_change_no_weight);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
