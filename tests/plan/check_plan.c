/* check_plan.c - plans of public models keep every invariant, and the checker finds broken ones. */
#include "tests/plan/planning.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define PACKING_LIMIT 0.02 /* over the largest live sum */
/* Here a matrix is dequantised while an MLP is being computed again: the scratch of one product is
 * as large as the tensors around it. */
#define PACKING_LIMIT_QLORA_MLP 0.07

static const uint32_t levels[] = {PL_RECOMPUTE_NONE,
                                  PL_RECOMPUTE_LIGHT,
                                  PL_RECOMPUTE_FULL,
                                  PL_RECOMPUTE_EVERY_N(2),
                                  PL_RECOMPUTE_MLP,
                                  PL_RECOMPUTE_ATTENTION,
                                  PL_RECOMPUTE_MIX(PL_RECOMPUTE_FULL, 5, PL_RECOMPUTE_MLP)};

/* The arena against the bound of its own peak phase: smaller phases may pack loosely inside it. */
static void assert_tight(const struct pl_plan *plan, double limit, const char *what) {
    struct pl_diag d = {0};
    uint64_t bound = 0;
    ck_assert_msg(pl_plan_check(plan, &d) == PL_ERR_OK, "%s: %s", what, d.message);
    for (int ph = 0; ph < PL_PHASE_COUNT; ph++)
        if (plan->phases[ph].live_bytes > bound) bound = plan->phases[ph].live_bytes;
    double over = (double)(plan->batch_bytes - bound);
    ck_assert_msg(over <= limit * (double)bound, "%s: %.2f %% over", what,
                  100 * over / (double)bound);
}

/* F1 of fold.h: pl_plan_check() looks at the places in the whole program. */
START_TEST(every_model_mode_and_level_is_packed_tightly_and_checked) {
    struct pl_model m;
    pl_test_model(pl_test_models[_i], &m);
    for (uint32_t mode = PL_MODE_FULL; mode <= PL_MODE_QLORA; mode++) {
        for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
            for (uint64_t batch = 1; batch <= 4; batch += 3) {
                struct pl_job_shape s = pl_test_shape(&m, mode, levels[l], batch, 2048);
                struct pl_planned p;
                pl_test_plan(&p, &s, &m);
                bool mlp = pl_recompute_of_layer(levels[l], m.layers - 1) == PL_RECOMPUTE_MLP;
                assert_tight(p.plan,
                             mlp && mode == PL_MODE_QLORA ? PACKING_LIMIT_QLORA_MLP : PACKING_LIMIT,
                             pl_test_models[_i]);
                pl_planned_finish(&p);
            }
        }
    }
}
END_TEST

static void vary(struct pl_job_shape *s, const struct pl_model *m, int i) {
    switch (i) {
    case 0:
        s->loss_chunk_tokens = 0;
        break;
    case 1:
        s->loss_chunk_tokens = 100;
        break;
    case 2:
        s->freeze_layers = 3;
        break;
    case 3:
        s->optimizer = PL_OPTIMIZER_SGD;
        break;
    case 4:
        s->dtype = s->gradient_dtype = PL_DTYPE_F32, s->master_weights = false;
        break;
    case 5:
        s->lora_dropout = 0.1;
        break;
    case 6:
        s->eval = s->load = s->save = false;
        break;
    case 7:
        s->max_seq_length = 1;
        break;
    case 8:
        s->gradient_dtype = PL_DTYPE_F32;
        break;
    case 9:
        s->adapter_dtype = PL_DTYPE_BF16;
        break;
    case 10:
        s->optimizer = PL_OPTIMIZER_ADAMW_8BIT;
        break;
    case 11:
        s->double_quant = false, s->compute_dtype = PL_DTYPE_F32;
        break;
    case 12:
        s->loss_chunk_tokens = 100;
        if (s->mode != PL_MODE_FULL) pl_test_adapt_head(s, m);
        break;
    default:
        s->freeze_layers = s->mode == PL_MODE_FULL ? 24 : 23;
        break; /* the layers of Qwen2.5-0.5B */
    }
}

START_TEST(every_knob_keeps_the_invariants) {
    struct pl_model m;
    struct pl_diag d = {0};
    pl_test_model("Qwen2.5-0.5B", &m);
    for (uint32_t mode = PL_MODE_FULL; mode <= PL_MODE_QLORA; mode++) {
        for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
            struct pl_job_shape s = pl_test_shape(&m, mode, levels[l], 2, 512);
            struct pl_planned p;
            vary(&s, &m, _i);
            pl_test_plan(&p, &s, &m);
            ck_assert_msg(pl_plan_check(p.plan, &d) == PL_ERR_OK, "%s", d.message);
            pl_planned_finish(&p);
        }
    }
}
END_TEST

START_TEST(the_job_arena_does_not_move_with_the_batch) {
    struct pl_model m;
    struct pl_planned a, b;
    pl_test_model("SmolLM2-135M", &m);
    struct pl_job_shape s = pl_test_shape(&m, PL_MODE_FULL, PL_RECOMPUTE_NONE, 8, 256);
    pl_test_plan(&a, &s, &m);
    s.batch_size = 3;
    pl_test_plan(&b, &s, &m);
    ck_assert_uint_eq(a.plan->job_bytes, b.plan->job_bytes);
    for (uint32_t i = 0; i < a.program->n_tensors; i++)
        if (a.program->tensors[i].scope == PL_SCOPE_JOB)
            ck_assert_uint_eq(a.plan->places[i].offset, b.plan->places[i].offset);
    pl_planned_finish(&a);
    pl_planned_finish(&b);
}
END_TEST

START_TEST(the_timeline_peaks_where_the_phase_says) {
    struct pl_model m;
    struct pl_planned p;
    pl_test_model("SmolLM2-135M", &m);
    struct pl_job_shape s = pl_test_shape(&m, PL_MODE_LORA, PL_RECOMPUTE_LIGHT, 2, 512);
    pl_test_plan(&p, &s, &m);
    const struct pl_phase_range *r = &p.program->phases[PL_PHASE_MICRO];
    uint64_t *live = calloc(r->n_ops, sizeof *live), most = 0, at_peak = 0;
    pl_plan_timeline(p.plan, PL_PHASE_MICRO, live);
    for (uint32_t i = 0; i < r->n_ops; i++)
        if (live[i] > most) most = live[i];
    for (int c = 0; c < PL_CATEGORY_COUNT; c++)
        at_peak += p.plan->phases[PL_PHASE_MICRO].live[c];
    ck_assert_uint_eq(live[p.plan->phases[PL_PHASE_MICRO].peak_op - r->first_op], at_peak);
    /* the peak is chosen by aligned bytes, so plain bytes may be a few paddings higher elsewhere */
    ck_assert_uint_le(most - at_peak, 256 * p.program->n_tensors);
    free(live);
    pl_planned_finish(&p);
}
END_TEST

static uint64_t most_alive(const struct pl_plan *plan) {
    uint64_t most = 0;
    for (int p = 0; p < PL_PHASE_COUNT; p++)
        most = plan->phases[p].live_bytes > most ? plan->phases[p].live_bytes : most;
    return plan->job_bytes + most;
}

/* Within what the whole needs it is the whole; below what is alive it is over, and says by bytes
 * that are more than the limit. */
START_TEST(a_plan_within_a_limit_is_whole_or_over) {
    struct pl_model m;
    pl_test_model("Qwen3-0.6B", &m);
    for (uint32_t mode = PL_MODE_FULL; mode <= PL_MODE_QLORA; mode++) {
        struct pl_planned p;
        struct pl_plan *within;
        struct pl_job_shape s = pl_test_shape(&m, mode, PL_RECOMPUTE_MLP, 2, 512);
        pl_test_plan(&p, &s, &m);
        const uint64_t alive = most_alive(p.plan), all = p.plan->arena_bytes;
        const uint64_t limits[] = {1, alive / 2, alive - 1, alive, (alive + all) / 2, all, 2 * all};
        for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
            ck_assert_int_eq(pl_plan_create_within(p.program, limits[i], &within, NULL), PL_ERR_OK);
            ck_assert_int_eq(within->over, limits[i] < alive);
            ck_assert_uint_gt(within->arena_bytes, within->over ? limits[i] : all - 1);
            ck_assert_uint_le(within->arena_bytes, limits[i] > all ? limits[i] : all);
            ck_assert_int_eq(pl_plan_again(within, 0, NULL), PL_ERR_OK);
            ck_assert(!within->over);
            ck_assert_mem_eq(within->phases, p.plan->phases, sizeof within->phases);
            ck_assert_mem_eq(within->ledger, p.plan->ledger, sizeof within->ledger);
            pl_plan_destroy(&within);
        }
        pl_planned_finish(&p);
    }
}
END_TEST

/* --- plans that are wrong on purpose --------------------------------------------------------- */

static uint32_t find_op(const struct pl_program *p, enum pl_op_kind kind, uint32_t skip) {
    for (uint32_t i = 0; i < p->n_ops; i++)
        if (p->ops[i].kind == kind && p->ops[i].phase == PL_PHASE_MICRO && skip-- == 0) return i;
    ck_abort_msg("no such op");
    return 0;
}

static struct pl_operand *operands_of(struct pl_program *p, uint32_t op) {
    return &p->operands[p->ops[op].in - p->operands];
}

static void two_live_tensors_at_one_place(struct pl_planned *p) {
    const struct pl_op *op = &p->program->ops[find_op(p->program, PL_OP_SWIGLU, 0)];
    p->plan->places[op->out[0].id].offset = p->plan->places[op->in[0].id].offset;
}

static void an_offset_that_is_not_aligned(struct pl_planned *p) {
    p->plan->places[p->program->ops[find_op(p->program, PL_OP_EMBED, 0)].out[0].id].offset += 4;
}

static void a_ledger_that_does_not_add_up(struct pl_planned *p) {
    p->plan->ledger[0]++;
}

static void a_read_of_overwritten_content(struct pl_planned *p) {
    operands_of(p->program, find_op(p->program, PL_OP_SWIGLU, 0))[0].version--;
}

static void an_undeclared_write_in_place(struct pl_planned *p) {
    struct pl_operand *o = operands_of(p->program, find_op(p->program, PL_OP_RMSNORM, 0));
    o[2] = o[0]; /* y = x: RMSNORM may not write over its input */
    o[2].version++;
}

static void a_product_of_other_columns(struct pl_planned *p) {
    struct pl_operand *o = operands_of(p->program, find_op(p->program, PL_OP_LINEAR, 0));
    o[PL_LINEAR_X].cols = 64; /* instead of 576 */
}

static void an_operand_of_another_type(struct pl_planned *p) {
    uint32_t op = find_op(p->program, PL_OP_ATTENTION, 0);
    p->program->tensors[p->program->ops[op].in[PL_ATTENTION_OFFSETS].id].dtype = PL_DTYPE_F32;
}

static void an_operand_that_is_not_there(struct pl_planned *p) {
    operands_of(p->program, find_op(p->program, PL_OP_RMSNORM, 0))[PL_RMSNORM_W].id = PL_NONE;
}

static void a_gate_without_its_half(struct pl_planned *p) {
    struct pl_operand *o = operands_of(p->program, find_op(p->program, PL_OP_SWIGLU, 0));
    o[PL_SWIGLU_N_IN + PL_SWIGLU_OUT_M].cols = 8;
}

static void a_sum_beside_its_place(struct pl_planned *p) {
    struct pl_operand *o = operands_of(p->program, find_op(p->program, PL_OP_LINEAR_DW, 0));
    o[PL_LINEAR_DW_DW].col = 8;
    o[PL_LINEAR_DW_DW].cols = o[PL_LINEAR_DW_N_IN + PL_LINEAR_DW_OUT_DW].cols = 64;
}

static void an_op_of_too_few_operands(struct pl_planned *p) {
    p->program->ops[find_op(p->program, PL_OP_ROPE, 0)].n_in--;
}

static void a_life_that_ends_too_early(struct pl_planned *p) {
    uint32_t id = p->program->ops[find_op(p->program, PL_OP_ATTENTION, 0)].out[0].id;
    p->plan->places[id].last_op = p->plan->places[id].first_op;
}

static void a_tensor_outside_the_arena(struct pl_planned *p) {
    p->plan->places[p->program->ops[find_op(p->program, PL_OP_EMBED, 0)].out[0].id].offset =
        p->plan->batch_bytes;
}

static void job_tensors_that_overlap(struct pl_planned *p) {
    p->plan->places[1].offset = 0;
}

static void a_window_beyond_the_columns(struct pl_planned *p) {
    operands_of(p->program, find_op(p->program, PL_OP_ATTENTION, 0))[2].col += 8;
}

/* Two tensors of the micro-batch that touch, the later one to live above or below; the later one is
 * then moved into the other by one step of the alignment, and no further. */
static void into_the_neighbour(struct pl_planned *p, bool above) {
    const struct pl_tensor *t = p->program->tensors;
    struct pl_place_row *place = p->plan->places;
    for (uint32_t i = 0; i < p->program->n_tensors; i++)
        for (uint32_t j = 0; j < p->program->n_tensors; j++) {
            bool both = t[i].scope == PL_SCOPE_STEP && t[j].scope == PL_SCOPE_STEP &&
                        t[i].phase == PL_PHASE_MICRO && t[j].phase == PL_PHASE_MICRO;
            bool later =
                place[i].first_op > place[j].first_op && place[i].first_op < place[j].last_op;
            uint32_t low = above ? j : i, high = above ? i : j;
            if (!both || !later || t[low].bytes % 256 || t[low].bytes < 512 ||
                place[low].offset + t[low].bytes != place[high].offset)
                continue;
            if (above)
                place[i].offset -= 256;
            else
                place[i].offset += 256;
            return;
        }
    ck_abort_msg("no tensors touch");
}

static void a_tensor_that_begins_too_low(struct pl_planned *p) {
    into_the_neighbour(p, true);
}

static void a_tensor_that_ends_too_high(struct pl_planned *p) {
    into_the_neighbour(p, false);
}

static const struct {
    void (*plant)(struct pl_planned *);
    const char *says;
} defects[] = {{two_live_tensors_at_one_place, "overlaps"},
               {a_tensor_that_begins_too_low, "overlaps below"},
               {a_tensor_that_ends_too_high, "overlaps above"},
               {an_offset_that_is_not_aligned, "is not aligned"},
               {a_ledger_that_does_not_add_up, "ledger"},
               {a_read_of_overwritten_content, "overwritten"},
               {an_undeclared_write_in_place, "not declared"},
               {a_life_that_ends_too_early, "life"},
               {a_product_of_other_columns, "W[O,K]"},
               {an_operand_of_another_type, "offsets[B+1]i32"},
               {an_operand_that_is_not_there, "has no w[C]"},
               {a_gate_without_its_half, "gu[N,2F]"},
               {a_sum_beside_its_place, "dW[O,K]!"},
               {an_op_of_too_few_operands, "has 3 inputs and 1 outputs"},
               {a_tensor_outside_the_arena, "leaves the batch arena"},
               {job_tensors_that_overlap, "overlap"},
               {a_window_beyond_the_columns, "window outside"}};
#define N_DEFECTS (sizeof defects / sizeof *defects)

START_TEST(the_checker_finds_a_planted_defect) {
    struct pl_model m;
    struct pl_planned p;
    struct pl_diag d = {0};
    pl_test_model("SmolLM2-135M", &m);
    struct pl_job_shape s = pl_test_shape(&m, PL_MODE_FULL, PL_RECOMPUTE_LIGHT, 2, 128);
    pl_test_plan(&p, &s, &m);
    defects[_i].plant(&p);
    ck_assert_int_eq(pl_plan_check(p.plan, &d), PL_ERR_PLAN_BROKEN);
    ck_assert_msg(strstr(d.message, defects[_i].says) != NULL, "%s", d.message);
    pl_planned_finish(&p);
}
END_TEST

/* --- ops that run as one ---------------------------------------------------------------------- */

/* First of the ops of a kind that run as one; *n of them. */
static uint32_t find_together(const struct pl_program *p, enum pl_op_kind kind, uint32_t *n) {
    uint32_t first = 0;
    while (p->ops[first].kind != kind)
        ck_assert_uint_lt(++first, p->n_ops);
    *n = pl_program_together(p, first, p->n_ops);
    return first;
}

static void plan_for_a_gpu(struct pl_planned *p, struct pl_model *m, uint32_t optimizer) {
    const struct pl_traits traits = pl_traits_cuda(90);
    pl_test_model("SmolLM2-135M", m);
    struct pl_job_shape s = pl_test_shape(m, PL_MODE_FULL, PL_RECOMPUTE_LIGHT, 2, 128);
    s.optimizer = optimizer;
    ck_assert_int_eq(pl_planned_init_shape(p, &s, m, &traits, NULL), PL_ERR_OK);
}

START_TEST(norms_and_updates_of_all_tensors_run_as_one_on_a_gpu) {
    struct pl_model m;
    struct pl_planned p;
    struct pl_diag d = {0};
    uint32_t n, all = 0;
    plan_for_a_gpu(&p, &m, (uint32_t)_i);
    ck_assert_msg(pl_plan_check(p.plan, &d) == PL_ERR_OK, "%s", d.message);
    for (uint32_t i = 0; i < p.program->n_tensors; i++)
        all += p.program->tensors[i].trainable;
    find_together(p.program, PL_OP_SQUARE_SUM, &n);
    ck_assert_uint_eq(n, all);
    uint32_t first = find_together(p.program, pl_optimizer_row((uint32_t)_i)->op, &n);
    const struct pl_phase_range *r = &p.program->phases[PL_PHASE_OPTIMIZER];
    ck_assert_uint_ge(n, all); /* with states in 8 bits one a part */
    ck_assert_uint_eq(first + n, r->first_op + r->n_ops);
    pl_planned_finish(&p);
}
END_TEST

/* Groups of so many gradients among the ops, whose outputs have one shape and whose scratch is the
 * same. */
static uint32_t count_joint_gradients(const struct pl_program *p, uint32_t wanted) {
    uint32_t groups = 0;
    for (uint32_t i = 0, n; i < p->n_ops; i += n) {
        const struct pl_op *first = &p->ops[i];
        n = pl_program_together(p, i, p->n_ops);
        if (first->kind != PL_OP_LINEAR_DW || n == 1) continue;
        groups += n == wanted;
        for (const struct pl_op *op = first; op < first + n; op++) {
            const struct pl_tensor *dw = &p->tensors[op->out[0].id];
            ck_assert_uint_eq(dw->dims[0], p->tensors[first->out[0].id].dims[0]);
            ck_assert_uint_eq(op->in[PL_LINEAR_DW_WS].id, first->in[PL_LINEAR_DW_WS].id);
        }
    }
    return groups;
}

/* k and v, gate and up; where q is no larger than k, it is one with them. A CPU has no use for
 * it. */
static const struct {
    const char *model;
    bool on_gpu;
    uint32_t pairs, triples; /* of a layer */
} joint_gradients[] = {
    {"Llama-3.1-8B", true, 2, 0}, {"Llama-2-7B", true, 1, 1}, {"Llama-3.1-8B", false, 0, 0}};
enum { N_JOINT_GRADIENTS = sizeof joint_gradients / sizeof *joint_gradients };

START_TEST(gradients_of_modules_of_one_shape_run_as_one_on_a_gpu) {
    const struct pl_traits gpu = pl_traits_cuda(90);
    struct pl_model m;
    struct pl_planned p;
    struct pl_diag d = {0};
    pl_test_model(joint_gradients[_i].model, &m);
    m.layers = 2;
    struct pl_job_shape s = pl_test_shape(&m, PL_MODE_LORA, PL_RECOMPUTE_NONE, 2, 128);
    if (joint_gradients[_i].on_gpu)
        ck_assert_int_eq(pl_planned_init_shape(&p, &s, &m, &gpu, NULL), PL_ERR_OK);
    else
        pl_test_plan(&p, &s, &m);
    ck_assert_msg(pl_plan_check(p.plan, &d) == PL_ERR_OK, "%s", d.message);
    ck_assert_uint_eq(count_joint_gradients(p.program, 2), m.layers * joint_gradients[_i].pairs);
    ck_assert_uint_eq(count_joint_gradients(p.program, 3), m.layers * joint_gradients[_i].triples);
    pl_planned_finish(&p);
}
END_TEST

static void two_partials_in_one_place(struct pl_planned *p) {
    uint32_t n, first = find_together(p->program, PL_OP_SQUARE_SUM, &n);
    operands_of(p->program, first + 1)[1].row0--; /* partial, as input and output */
    operands_of(p->program, first + 1)[3].row0--;
}

static void a_gradient_that_its_neighbour_writes(struct pl_planned *p) {
    uint32_t n, first = find_together(p->program, PL_OP_ADAMW, &n);
    operands_of(p->program, first + 1)[1] = operands_of(p->program, first)[0]; /* g = the other w */
    operands_of(p->program, first + 1)[1].version++;
}

static void scratch_that_ends_before_its_neighbours(struct pl_planned *p) {
    uint32_t n, first = find_together(p->program, PL_OP_SQUARE_SUM, &n);
    p->plan->places[p->program->ops[first].in[2].id].last_op = first;
}

static void scratch_that_begins_behind_its_neighbours(struct pl_planned *p) {
    uint32_t n, first = find_together(p->program, PL_OP_SQUARE_SUM, &n);
    p->plan->places[p->program->ops[first + n - 1].in[2].id].first_op = first + n - 1;
}

static const struct {
    void (*plant)(struct pl_planned *);
    const char *says;
} joint_defects[] = {{two_partials_in_one_place, "runs with it"},
                     {a_gradient_that_its_neighbour_writes, "runs with it"},
                     {scratch_that_ends_before_its_neighbours, "run as one"},
                     {scratch_that_begins_behind_its_neighbours, "run as one"}};
#define N_JOINT_DEFECTS (sizeof joint_defects / sizeof *joint_defects)

START_TEST(the_checker_finds_a_defect_between_ops_that_run_as_one) {
    struct pl_model m;
    struct pl_planned p;
    struct pl_diag d = {0};
    plan_for_a_gpu(&p, &m, PL_OPTIMIZER_ADAMW);
    joint_defects[_i].plant(&p);
    ck_assert_int_eq(pl_plan_check(p.plan, &d), PL_ERR_PLAN_BROKEN);
    ck_assert_msg(strstr(d.message, joint_defects[_i].says), "%s", d.message);
    pl_planned_finish(&p);
}
END_TEST

START_TEST(the_text_form_has_a_line_for_every_op) {
    struct pl_model m;
    struct pl_planned p;
    struct pl_text text = {0};
    pl_test_model("Qwen3-0.6B", &m);
    struct pl_job_shape s = pl_test_shape(&m, PL_MODE_LORA, PL_RECOMPUTE_FULL, 1, 64);
    pl_test_plan(&p, &s, &m);
    pl_plan_print(p.plan, &text);
    uint32_t lines = 0;
    for (const char *c = pl_text_str(&text); *c; c++)
        lines += *c == '\n';
    ck_assert_uint_eq(lines, p.program->n_ops);
    ck_assert(strstr(text.data, "layers.3.q_proj.lora_b"));
    ck_assert(strstr(text.data, "rec L27"));
    pl_text_finish(&text);
    pl_planned_finish(&p);
}
END_TEST

START_TEST(sizes_beyond_64_bits_are_refused) {
    struct pl_model m;
    struct pl_program *p;
    struct pl_diag d = {0};
    const struct pl_traits traits = pl_traits_cpu(1);
    pl_test_model("SmolLM2-135M", &m);
    struct pl_job_shape s = pl_test_shape(&m, PL_MODE_FULL, PL_RECOMPUTE_FULL, 65536, 16777216);
    ck_assert_int_eq(pl_program_create(&m, &s, &traits, &p, &d), PL_ERR_OVERFLOW);
    ck_assert_ptr_null(p);
}
END_TEST

int main(void) {
    uint32_t n_optimizers;
    pl_optimizer_table(&n_optimizers);
    Suite *s = suite_create("plan.plan");
    TCase *tc = tcase_create("plans");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, every_model_mode_and_level_is_packed_tightly_and_checked, 0,
                        pl_test_n_all_models);
    tcase_add_loop_test(tc, every_knob_keeps_the_invariants, 0, 14);
    tcase_add_test(tc, the_job_arena_does_not_move_with_the_batch);
    tcase_add_test(tc, a_plan_within_a_limit_is_whole_or_over);
    tcase_add_test(tc, the_timeline_peaks_where_the_phase_says);
    tcase_add_loop_test(tc, the_checker_finds_a_planted_defect, 0, (int)N_DEFECTS);
    tcase_add_test(tc, the_text_form_has_a_line_for_every_op);
    tcase_add_loop_test(tc, norms_and_updates_of_all_tensors_run_as_one_on_a_gpu, 0,
                        (int)n_optimizers);
    tcase_add_loop_test(tc, gradients_of_modules_of_one_shape_run_as_one_on_a_gpu, 0,
                        N_JOINT_GRADIENTS);
    tcase_add_loop_test(tc, the_checker_finds_a_defect_between_ops_that_run_as_one, 0,
                        N_JOINT_DEFECTS);
    tcase_add_test(tc, sizes_beyond_64_bits_are_refused);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
