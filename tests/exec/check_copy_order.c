/* check_copy_order.c - when a copy to or from host memory begins, and which op waits for it: what
 * a layer keeps comes back during the backward pass of the layer above, and leaves during products;
 * memory that changes hands is waited for. */
#include "runtime/exec/copy_stream.h"
#include "tests/plan/planning.h"

#include <check.h>
#include <stdlib.h>

enum { HOSTED = 5 }; /* layers of a mix whose inputs wait in host memory */
static const uint32_t levels[] = {
    PL_RECOMPUTE_OFFLOAD, PL_RECOMPUTE_MIX(PL_RECOMPUTE_OFFLOAD, HOSTED, PL_RECOMPUTE_FULL),
    PL_RECOMPUTE_MIX(PL_RECOMPUTE_OFFLOAD, HOSTED, PL_RECOMPUTE_MLP),
    PL_RECOMPUTE_MIX(PL_RECOMPUTE_OFFLOAD, HOSTED, PL_RECOMPUTE_NONE)};
static const char *const models[] = {"Qwen3-0.6B", "SmolLM2-135M", "Gemma-3-1B"};
#define COUNT(list) (sizeof(list) / sizeof *(list))
enum { N_MODES = 3, N_JOBS = N_MODES * COUNT(models) * COUNT(levels) };

static struct pl_model model;
static struct pl_planned planned;
static uint32_t *turns;

static void set_up_job(int job, uint32_t offload) {
    const struct pl_traits gpu = pl_traits_cuda(89);
    pl_test_model(models[job / N_MODES % (int)COUNT(models)], &model);
    struct pl_job_shape s = pl_test_shape(&model, PL_MODE_FULL + (uint32_t)(job % N_MODES),
                                          levels[job / N_MODES / (int)COUNT(models)], 1, 1024);
    s.offload = offload;
    ck_assert_int_eq(pl_planned_init_shape(&planned, &s, &model, &gpu, NULL), PL_ERR_OK);
    turns = malloc(planned.program->n_ops * sizeof *turns);
    ck_assert_ptr_nonnull(turns);
    ck_assert_int_eq(pl_copy_stream_find(planned.plan, turns, NULL), PL_ERR_OK);
}

static void tear_down_job(void) {
    free(turns);
    pl_planned_finish(&planned);
}

static const struct pl_op *op_at(uint32_t i) {
    return &planned.program->ops[i];
}

static bool is_copy(uint32_t i) {
    return pl_copy_stream_is(planned.program, op_at(i));
}

static bool is_of_kept(const struct pl_op *op, enum pl_op_kind kind) {
    return op->kind == kind && op->phase == PL_PHASE_MICRO &&
           planned.program->tensors[op->in[0].id].category == PL_CATEGORY_ACTIVATIONS;
}

static uint32_t end_of_micro(void) {
    const struct pl_phase_range *micro = &planned.program->phases[PL_PHASE_MICRO];
    return micro->first_op + micro->n_ops;
}

/* The first op that waits for copy `number`, which is op `at`. */
static uint32_t waiting_for(uint32_t at, uint32_t number) {
    uint32_t i = at + 1;
    while (i < end_of_micro() && (is_copy(i) || turns[i] < number))
        i++;
    return i;
}

static uint32_t products_between(uint32_t from, uint32_t to) {
    uint32_t n = 0;
    for (uint32_t i = from + 1; i < to; i++)
        n += pl_op_rows[op_at(i)->kind].cost == PL_COST_PRODUCT;
    return n;
}

/* The backward pass of the layer above `layer`, or of what is above all layers. */
static uint32_t backward_above(uint32_t layer) {
    const uint32_t above = layer + 1 < model.layers ? layer + 1 : PL_NONE;
    uint32_t i = planned.program->phases[PL_PHASE_MICRO].first_op;
    while (op_at(i)->layer != above || !op_at(i)->backward || is_of_kept(op_at(i), PL_OP_COPY_IN))
        i++;
    return i;
}

START_TEST(what_a_layer_keeps_comes_back_while_the_layer_above_is_at_work) {
    uint32_t number = 0, found = 0;
    set_up_job(_i, PL_OFFLOAD_NONE);
    for (uint32_t i = 0; i < end_of_micro(); i++) {
        const struct pl_op *op = op_at(i);
        number += is_copy(i);
        if (!is_of_kept(op, PL_OP_COPY_IN)) continue;
        const uint32_t first = waiting_for(i, number);
        ck_assert_uint_lt(first, end_of_micro());
        ck_assert_msg(i < backward_above(op->layer),
                      "op %u: the input of layer %u is asked for when the layer above has begun", i,
                      op->layer);
        ck_assert_msg(op_at(first)->layer == op->layer && op_at(first)->backward,
                      "op %u, of layer %u, waits for the input of layer %u", first,
                      op_at(first)->layer, op->layer);
        /* above all layers there is the last norm alone */
        ck_assert(op->layer + 1 == model.layers || products_between(i, first) > 0);
        found++;
    }
    const bool mixed = planned.program->shape.recompute >= PL_RECOMPUTE_MIXED;
    ck_assert_uint_eq(found, mixed ? HOSTED : model.layers);
    tear_down_job();
}
END_TEST

START_TEST(what_a_layer_keeps_leaves_during_products) {
    uint32_t number = 0, found = 0;
    set_up_job(_i, PL_OFFLOAD_NONE);
    for (uint32_t i = 0; i < end_of_micro(); i++) {
        number += is_copy(i);
        if (!is_of_kept(op_at(i), PL_OP_COPY_OUT)) continue;
        const uint32_t first = waiting_for(i, number);
        ck_assert_msg(products_between(i, first) > 0, "op %u waits for the copy of op %u at once",
                      first, i);
        found++;
    }
    ck_assert_uint_gt(found, 0);
    tear_down_job();
}
END_TEST

/* --- against an account of every byte -------------------------------------------------------- */

struct span {
    enum pl_scope scope;
    uint64_t begin, end;
};

static struct span span_of(uint32_t id) {
    const uint64_t begin = planned.plan->places[id].offset;
    const struct pl_tensor *t = &planned.program->tensors[id];
    return (struct span){t->scope, begin, begin + t->bytes};
}

static bool touches(const struct pl_op *op, const struct span *s, bool reads_too) {
    for (int k = 0; k < op->n_in + op->n_out; k++) {
        const bool in = k < op->n_in;
        const uint32_t id = in ? op->in[k].id : op->out[k - op->n_in].id;
        if (id == PL_NONE || planned.program->tensors[id].place != PL_PLACE_DEVICE) continue;
        const bool scratch = planned.program->tensors[id].category == PL_CATEGORY_WORKSPACE;
        const struct span o = span_of(id);
        if (o.scope == s->scope && o.begin < s->end && s->begin < o.end &&
            (!in || reads_too || scratch))
            return true;
    }
    return false;
}

/* Copies in flight before each op, as the executor leaves them: none touches what the op does. */
START_TEST(no_op_touches_memory_of_a_copy_that_it_did_not_wait_for) {
    set_up_job(_i, _i % 2 ? PL_OFFLOAD_WEIGHTS : PL_OFFLOAD_NONE);
    const struct pl_program *p = planned.program;
    uint32_t *copies = malloc(p->n_ops * sizeof *copies), number = 0, awaited = 0, in_flight = 0;
    ck_assert_ptr_nonnull(copies);
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct pl_op *op = op_at(i);
        if (i == p->phases[op->phase].first_op) awaited = number;
        if (!is_copy(i) && turns[i] > awaited) awaited = turns[i];
        ck_assert_uint_le(awaited, number);
        for (uint32_t c = awaited; c < number && !is_copy(i); c++) {
            const struct pl_op *copy = op_at(copies[c]);
            const bool fills = copy->kind == PL_OP_COPY_IN;
            const struct span s = span_of(fills ? copy->out[0].id : copy->in[0].id);
            in_flight++;
            ck_assert_msg(!op->host && !touches(op, &s, fills),
                          "op %u (%s) runs before the copy of op %u has ended", i,
                          pl_op_name(op->kind), copies[c]);
        }
        if (is_copy(i)) copies[number++] = i;
    }
    ck_assert_uint_gt(in_flight, 0);
    free(copies);
    tear_down_job();
}
END_TEST

int main(void) {
    Suite *s = suite_create("exec.copy_order");
    TCase *tc = tcase_create("all");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, what_a_layer_keeps_comes_back_while_the_layer_above_is_at_work, 0,
                        N_JOBS);
    tcase_add_loop_test(tc, what_a_layer_keeps_leaves_during_products, 0, N_JOBS);
    tcase_add_loop_test(tc, no_op_touches_memory_of_a_copy_that_it_did_not_wait_for, 0, N_JOBS);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
