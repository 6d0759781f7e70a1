/* check_host.c - plans with tensors in host memory: who lives where, that nothing of the device's
 * grows with the depth, and that the checker knows every memory. */
#include "tests/plan/planning.h"

#include <check.h>
#include <string.h>

static const uint32_t offloads[] = {PL_OFFLOAD_NONE, PL_OFFLOAD_OPTIMIZER, PL_OFFLOAD_GRADIENTS,
                                    PL_OFFLOAD_WEIGHTS};
static const uint32_t levels[] = {PL_RECOMPUTE_NONE,
                                  PL_RECOMPUTE_LIGHT,
                                  PL_RECOMPUTE_FULL,
                                  PL_RECOMPUTE_OFFLOAD,
                                  PL_RECOMPUTE_EVERY_N(2),
                                  PL_RECOMPUTE_MLP,
                                  PL_RECOMPUTE_MIX(PL_RECOMPUTE_ATTENTION, 3, PL_RECOMPUTE_LIGHT),
                                  PL_RECOMPUTE_MIX(PL_RECOMPUTE_OFFLOAD, 3, PL_RECOMPUTE_FULL),
                                  PL_RECOMPUTE_MIX(PL_RECOMPUTE_OFFLOAD, 5, PL_RECOMPUTE_NONE)};
#define COUNT(list) (sizeof(list) / sizeof *(list))

static struct pl_job_shape shape(const struct pl_model *m, uint32_t mode, uint32_t offload,
                                 bool host, uint32_t recompute) {
    struct pl_job_shape s = pl_test_shape(m, mode, recompute, 2, 64);
    s.offload = offload;
    s.update_on_host = host;
    return s;
}

static void assert_sound(const struct pl_plan *plan, const char *what) {
    struct pl_diag d = {0};
    ck_assert_msg(pl_plan_check(plan, &d) == PL_ERR_OK, "%s: %s", what, d.message);
}

static const char *const models[] = {"Qwen2.5-0.5B", "Qwen3-0.6B", "SmolLM2-135M", "SmolLM3-3B",
                                     "Phi-4-mini"};

START_TEST(every_way_to_offload_keeps_the_invariants) {
    struct pl_model m;
    pl_test_model(models[_i], &m);
    for (uint32_t mode = PL_MODE_FULL; mode <= PL_MODE_LORA; mode++)
        for (size_t o = 0; o < COUNT(offloads); o++)
            for (size_t l = 0; l < COUNT(levels); l++)
                for (int host = 0; host < 2; host++) {
                    struct pl_job_shape s = shape(&m, mode, offloads[o], host, levels[l]);
                    struct pl_planned p;
                    pl_test_plan(&p, &s, &m);
                    assert_sound(p.plan, models[_i]);
                    pl_planned_finish(&p);
                }
}
END_TEST

static uint64_t bytes_at(const struct pl_program *p, enum pl_category c, enum pl_tensor_place at) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct pl_tensor *t = &p->tensors[i];
        if (t->scope == PL_SCOPE_JOB && t->category == c && t->place == at) sum += t->bytes;
    }
    return sum;
}

/* The weights, gradients and states that each level of `offload` leaves on the device. */
START_TEST(offload_moves_what_it_names_and_no_more) {
    static const enum pl_category moved[] = {PL_CATEGORY_OPTIMIZER, PL_CATEGORY_GRADIENTS,
                                             PL_CATEGORY_WEIGHTS};
    struct pl_model m;
    struct pl_planned none, p;
    pl_test_model("Qwen2.5-0.5B", &m);
    struct pl_job_shape s = shape(&m, PL_MODE_FULL, PL_OFFLOAD_NONE, false, PL_RECOMPUTE_FULL);
    pl_test_plan(&none, &s, &m);
    s.offload = offloads[_i];
    pl_test_plan(&p, &s, &m);
    uint64_t host = 0;
    for (int c = 0; c < 3; c++) {
        bool moves = c < _i;
        uint64_t all = bytes_at(none.program, moved[c], PL_PLACE_DEVICE);
        uint64_t rope =
            moved[c] == PL_CATEGORY_WEIGHTS
                ? none.program->tensors[pl_program_find(none.program, PL_ROLE_ROPE, 0, 0)].bytes
                : 0;
        ck_assert_uint_eq(bytes_at(p.program, moved[c], PL_PLACE_DEVICE), moves ? rope : all);
        ck_assert_uint_eq(bytes_at(p.program, moved[c], PL_PLACE_PINNED), moves ? all - rope : 0);
        if (moves) host += all - rope;
    }
    ck_assert_uint_ge(p.plan->host[PL_PLACE_PINNED].job_bytes, host);
    ck_assert_uint_eq(p.plan->host[PL_PLACE_HOST].job_bytes, 0);
    if (_i) ck_assert_uint_lt(p.plan->job_bytes, none.plan->job_bytes);
    pl_planned_finish(&none);
    pl_planned_finish(&p);
}
END_TEST

static uint64_t device_bytes(struct pl_model m, uint64_t layers, uint32_t recompute, bool host) {
    struct pl_planned p;
    m.layers = layers;
    struct pl_job_shape s = shape(&m, PL_MODE_FULL, PL_OFFLOAD_WEIGHTS, host, recompute);
    s.load = s.save = false;
    pl_test_plan(&p, &s, &m);
    uint64_t bytes = p.plan->batch_bytes;
    /* the rows of norm partials are all that a layer adds to the device's job arena */
    ck_assert_uint_le(p.plan->job_bytes, 64 * 2 * 4 * m.head_dim + 1024 + 12 * layers * 8);
    pl_planned_finish(&p);
    return bytes;
}

/* With the kept activations in host memory too there is not a byte; else the one tensor that a
 * layer keeps. */
START_TEST(device_bytes_do_not_grow_with_the_depth) {
    struct pl_model m;
    pl_test_model(models[_i], &m);
    for (int host = 0; host < 2; host++) {
        uint64_t four = device_bytes(m, 4, PL_RECOMPUTE_OFFLOAD, host);
        ck_assert_uint_eq(four, device_bytes(m, 8, PL_RECOMPUTE_OFFLOAD, host));
        ck_assert_uint_eq(four, device_bytes(m, 24, PL_RECOMPUTE_OFFLOAD, host));
        ck_assert_uint_ge(four, device_bytes(m, 2, PL_RECOMPUTE_OFFLOAD, host));
        uint64_t kept = 2 * 64 * m.hidden * 2;
        uint64_t two = device_bytes(m, 2, PL_RECOMPUTE_FULL, host);
        ck_assert_uint_le(device_bytes(m, 24, PL_RECOMPUTE_FULL, host), two + 23 * kept);
    }
}
END_TEST

START_TEST(a_window_of_an_update_is_all_the_device_holds_of_states) {
    struct pl_model m;
    struct pl_planned p;
    pl_test_model("Qwen2.5-0.5B", &m);
    struct pl_job_shape s = shape(&m, PL_MODE_FULL, PL_OFFLOAD_WEIGHTS, false, PL_RECOMPUTE_FULL);
    pl_test_plan(&p, &s, &m);
    uint64_t embedding = m.vocab * m.hidden, window = UINT64_C(8) << 20;
    ck_assert_uint_gt(embedding, 4 * window);
    /* two windows of weight, gradient, two moments and master; or two whole gradients */
    uint64_t limit = 2 * window * (2 + 2 + 4 + 4 + 4);
    if (limit < 2 * 2 * embedding) limit = 2 * 2 * embedding;
    ck_assert_uint_le(p.plan->phases[PL_PHASE_OPTIMIZER].bytes, limit + (1 << 20));
    pl_planned_finish(&p);
}
END_TEST

START_TEST(the_host_ledger_adds_up) {
    struct pl_model m;
    struct pl_planned p;
    pl_test_model("Qwen3-0.6B", &m);
    struct pl_job_shape s = shape(&m, PL_MODE_FULL, offloads[_i], _i > 1, PL_RECOMPUTE_OFFLOAD);
    pl_test_plan(&p, &s, &m);
    uint64_t sum = p.program->traits.pinned_bytes;
    for (int place = PL_PLACE_PINNED; place < PL_PLACE_COUNT; place++) {
        const struct pl_host_plan *h = &p.plan->host[place];
        sum += h->padding_bytes;
        for (int c = 0; c < PL_CATEGORY_COUNT; c++)
            sum += h->ledger[c];
    }
    ck_assert_uint_eq(sum, pl_plan_host_total(p.plan));
    ck_assert_uint_gt(sum, 0);
    pl_planned_finish(&p);
}
END_TEST

START_TEST(host_job_arenas_do_not_move_with_the_batch) {
    struct pl_model m;
    struct pl_planned a, b;
    pl_test_model("SmolLM2-135M", &m);
    struct pl_job_shape s = shape(&m, PL_MODE_FULL, PL_OFFLOAD_WEIGHTS, true, PL_RECOMPUTE_OFFLOAD);
    s.batch_size = 8;
    pl_test_plan(&a, &s, &m);
    s.batch_size = 3;
    pl_test_plan(&b, &s, &m);
    for (int place = PL_PLACE_PINNED; place < PL_PLACE_COUNT; place++)
        ck_assert_uint_eq(a.plan->host[place].job_bytes, b.plan->host[place].job_bytes);
    for (uint32_t i = 0; i < b.program->n_tensors; i++)
        if (b.program->tensors[i].scope == PL_SCOPE_JOB)
            ck_assert_uint_eq(a.plan->places[i].offset, b.plan->places[i].offset);
    ck_assert_uint_lt(b.plan->host[PL_PLACE_PINNED].batch_bytes,
                      a.plan->host[PL_PLACE_PINNED].batch_bytes);
    pl_planned_finish(&a);
    pl_planned_finish(&b);
}
END_TEST

/* --- plans that are wrong on purpose --------------------------------------------------------- */

static const struct pl_op *find_copy(const struct pl_program *p, enum pl_op_kind kind,
                                     enum pl_category category) {
    for (uint32_t i = 0; i < p->n_ops; i++)
        if (p->ops[i].kind == kind && p->tensors[p->ops[i].in[0].id].category == category)
            return &p->ops[i];
    ck_abort_msg("no such copy");
    return NULL;
}

static void a_weight_that_never_left_the_host(struct pl_planned *p) {
    const struct pl_op *in = find_copy(p->program, PL_OP_COPY_IN, PL_CATEGORY_WEIGHTS);
    p->program->tensors[in->out[0].id].place = PL_PLACE_PINNED;
}

static void a_copy_from_memory_that_is_not_pinned(struct pl_planned *p) {
    const struct pl_op *in = find_copy(p->program, PL_OP_COPY_IN, PL_CATEGORY_ACTIVATIONS);
    p->program->tensors[in->in[0].id].place = PL_PLACE_HOST;
}

static void an_update_that_the_device_would_run(struct pl_planned *p) {
    for (uint32_t i = 0; i < p->program->n_ops; i++)
        if (p->program->ops[i].kind == PL_OP_ADAMW) p->program->ops[i].host = false;
}

static void host_tensors_that_overlap(struct pl_planned *p) {
    uint32_t a = find_copy(p->program, PL_OP_COPY_IN, PL_CATEGORY_WEIGHTS)->in[0].id;
    p->plan->places[a + 1].offset = p->plan->places[a].offset;
}

static void a_host_ledger_that_does_not_add_up(struct pl_planned *p) {
    p->plan->host[PL_PLACE_HOST].ledger[PL_CATEGORY_OPTIMIZER]--;
}

/* The copy of a layer's input and that of the next layer wait in host memory together. */
static void kept_inputs_at_one_place(struct pl_planned *p) {
    uint32_t first = PL_NONE;
    for (uint32_t i = 0; i < p->program->n_tensors; i++) {
        const struct pl_tensor *t = &p->program->tensors[i];
        if (t->role != PL_ROLE_COPY || t->place != PL_PLACE_PINNED ||
            t->category != PL_CATEGORY_ACTIVATIONS)
            continue;
        if (first == PL_NONE)
            first = i;
        else
            p->plan->places[i].offset = p->plan->places[first].offset;
    }
}

static void a_host_tensor_outside_its_arena(struct pl_planned *p) {
    const struct pl_op *out = find_copy(p->program, PL_OP_COPY_OUT, PL_CATEGORY_ACTIVATIONS);
    p->plan->places[out->out[0].id].offset = p->plan->host[PL_PLACE_PINNED].batch_bytes;
}

/* Without the copy back, the gradient in host memory is unchanged. */
static void a_gradient_that_was_not_copied_back(struct pl_planned *p) {
    const struct pl_op *out = find_copy(p->program, PL_OP_COPY_OUT, PL_CATEGORY_GRADIENTS);
    struct pl_operand *o = &p->program->operands[out->out - p->program->operands];
    o->version++;
}

static const struct {
    void (*plant)(struct pl_planned *);
    const char *says;
} defects[] = {{a_weight_that_never_left_the_host, "memory that the op does not reach"},
               {a_copy_from_memory_that_is_not_pinned, "memory that the op does not reach"},
               {an_update_that_the_device_would_run, "memory that the op does not reach"},
               {host_tensors_that_overlap, "overlap"},
               {a_host_ledger_that_does_not_add_up, "ledger of host memory"},
               {kept_inputs_at_one_place, "overlaps"},
               {a_host_tensor_outside_its_arena, "leaves the batch arena"},
               {a_gradient_that_was_not_copied_back, "writes are out of order"}};

START_TEST(the_checker_finds_a_planted_defect) {
    struct pl_model m;
    struct pl_planned p;
    struct pl_diag d = {0};
    pl_test_model("SmolLM2-135M", &m);
    struct pl_job_shape s = shape(&m, PL_MODE_FULL, PL_OFFLOAD_WEIGHTS, true, PL_RECOMPUTE_OFFLOAD);
    pl_test_plan(&p, &s, &m);
    defects[_i].plant(&p);
    ck_assert_int_eq(pl_plan_check(p.plan, &d), PL_ERR_PLAN_BROKEN);
    ck_assert_msg(strstr(d.message, defects[_i].says) != NULL, "%s", d.message);
    pl_planned_finish(&p);
}
END_TEST

int main(void) {
    Suite *s = suite_create("plan.host");
    TCase *tc = tcase_create("offload");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, every_way_to_offload_keeps_the_invariants, 0, (int)COUNT(models));
    tcase_add_loop_test(tc, offload_moves_what_it_names_and_no_more, 0, (int)COUNT(offloads));
    tcase_add_loop_test(tc, device_bytes_do_not_grow_with_the_depth, 0, (int)COUNT(models));
    tcase_add_test(tc, a_window_of_an_update_is_all_the_device_holds_of_states);
    tcase_add_loop_test(tc, the_host_ledger_adds_up, 1, (int)COUNT(offloads));
    tcase_add_test(tc, host_job_arenas_do_not_move_with_the_batch);
    tcase_add_loop_test(tc, the_checker_finds_a_planted_defect, 0, (int)COUNT(defects));
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
