/* check_shards.c - what each rank of several holds and sends: parts that make a whole, plans that
 * hold, bytes by the closed forms of ZeRO (Rajbhandari et al., arXiv 1910.02054, section 7). */
#include "estimator/program/shard.h"
#include "tests/plan/planning.h"

#include <check.h>
#include <stdlib.h>

/* --- rows ------------------------------------------------------------------------------------- */

enum { DRAWS = 20000, RANKS_MOST = 64 };

START_TEST(the_ranges_of_ranks_make_a_whole) {
    unsigned seed = 7;
    for (int i = 0; i < DRAWS; i++) {
        const uint64_t rows = 1 + (uint64_t)rand_r(&seed) % (i % 2 ? 200000 : 300);
        const uint64_t cols = 1 + (uint64_t)rand_r(&seed) % (i % 3 ? 9000 : 40);
        const uint32_t ranks = 1 + (uint32_t)rand_r(&seed) % RANKS_MOST;
        const uint64_t block = pl_shard_block(rows, cols), blocks = pl_u64_div_up(rows, block);
        const struct pl_shard last = pl_shard_of(rows, block, ranks, ranks - 1);
        const uint64_t most = pl_u64_div_up(last.rows, block);
        uint64_t next = 0;
        ck_assert_uint_le(blocks, PL_SHARD_BLOCKS);
        for (uint32_t r = 0; r < ranks; r++) {
            const struct pl_shard s = pl_shard_of(rows, block, ranks, r);
            const uint64_t own = pl_u64_div_up(s.rows, block);
            ck_assert_uint_eq(s.row0, next); /* H1 of shard_rows.h */
            ck_assert(own == most || own + 1 == most);
            /* H2 of shard_rows.h */
            ck_assert(s.rows == 0 || s.row0 * cols % PL_SHARD_ALIGN == 0);
            next += s.rows;
        }
        ck_assert_uint_eq(next, rows);
    }
}
END_TEST

START_TEST(pieces_of_a_range_make_the_range) {
    unsigned seed = 3;
    for (int i = 0; i < DRAWS; i++) {
        const struct pl_shard s = {(uint64_t)rand_r(&seed) % 50, (uint64_t)rand_r(&seed) % 50};
        const uint64_t step = 1 + (uint64_t)rand_r(&seed) % 20;
        uint64_t next = s.row0;
        for (uint64_t row = 0; row < 60; row += step) {
            const struct pl_shard piece = pl_shard_piece(s, row, step);
            if (piece.rows) ck_assert_uint_eq(piece.row0, next);
            next += piece.rows;
        }
        ck_assert_uint_eq(next, s.row0 + s.rows);
    }
}
END_TEST

/* --- programs --------------------------------------------------------------------------------- */

static const uint32_t counts[] = {1, 2, 3, 8, 64};
static const struct {
    const char *model;
    uint32_t mode;
} jobs[] = {{"SmolLM2-135M", PL_MODE_FULL},
            {"Qwen2.5-0.5B", PL_MODE_LORA},
            {"Llama-3.2-1B", PL_MODE_QLORA}};
enum { COUNTS = sizeof counts / sizeof *counts, JOBS = sizeof jobs / sizeof *jobs };

static const uint32_t shardings[] = {PL_SHARDING_NONE, PL_SHARDING_OPTIMIZER, PL_SHARDING_GRADIENTS,
                                     PL_SHARDING_WEIGHTS};

static struct pl_job_shape shape_of(const struct pl_model *m, int job, uint32_t ranks,
                                    uint32_t rank, uint32_t sharding) {
    struct pl_job_shape s = pl_test_shape(m, jobs[job].mode, PL_RECOMPUTE_FULL, 1, 64);
    s.ranks = ranks;
    s.rank = rank;
    s.sharding = ranks > 1 ? sharding : PL_SHARDING_NONE;
    s.rank_order = true;
    return s;
}

static uint64_t rows_of(const struct pl_program *p, const struct pl_operand *o) {
    return o->nrows ? o->nrows : p->tensors[o->id].dims[0];
}

static bool is_model(enum pl_role role) {
    return role == PL_ROLE_WEIGHT || role == PL_ROLE_LORA_A || role == PL_ROLE_LORA_B ||
           role == PL_ROLE_CODES || role == PL_ROLE_ABSMAX;
}

/* Tensors of the model come first, the same ones in the same order on every rank. */
static void expect_same_tensors(const struct pl_program *one, const struct pl_program *p) {
    for (uint32_t i = 0; i < one->n_tensors; i++) {
        const struct pl_tensor *a = &one->tensors[i], *b = &p->tensors[i];
        if (a->scope != PL_SCOPE_JOB || !is_model(a->role)) continue;
        ck_assert_uint_lt(i, p->n_tensors);
        ck_assert(a->role == b->role && a->slot == b->slot && a->layer == b->layer);
        ck_assert(a->of == b->of && a->row == b->row && a->trainable == b->trainable);
        ck_assert(a->dims[1] == b->dims[1] && a->dims[0] >= b->dims[0]);
    }
}

static uint64_t state_bytes(const struct pl_program *p) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->n_tensors; i++)
        if (p->tensors[i].role >= PL_ROLE_STATE && p->tensors[i].role <= PL_ROLE_MASTER)
            bytes += p->tensors[i].bytes;
    return bytes;
}

static uint64_t model_bytes(const struct pl_program *p) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->n_tensors; i++)
        if (p->tensors[i].scope == PL_SCOPE_JOB && is_model(p->tensors[i].role))
            bytes += p->tensors[i].bytes;
    return bytes;
}

/* The divided part of one rank's bytes, and the size of a block of each part of it. */
struct divided {
    double states, state_blocks; /* per element of trained tensors */
    double cut, cut_blocks;      /* bytes, under `weights` */
};

static double block_share(const struct pl_program *one, uint32_t id) {
    struct pl_owned parts[PL_MAX_PARTS];
    const uint32_t n = pl_tensor_shards(one, id, 1, 0, parts);
    uint64_t rows = 0;
    for (uint32_t i = 0; i < n; i++)
        rows += pl_u64_min(parts[i].block, parts[i].part.rows);
    return (double)rows / (double)one->tensors[id].dims[0];
}

static struct divided divide(const struct pl_program *one) {
    const struct pl_job_shape weights = {.sharding = PL_SHARDING_WEIGHTS,
                                         .double_quant = one->shape.double_quant};
    struct divided d = {0};
    for (uint32_t i = 0; i < one->n_tensors; i++) {
        const struct pl_tensor *t = &one->tensors[i];
        const double elements = (double)(t->dims[0] * t->dims[1]);
        if (t->trainable) {
            d.states += elements;
            d.state_blocks += elements * block_share(one, i);
        }
        if (!is_model(t->role) || !pl_tensor_is_cut(&weights, t)) continue;
        d.cut += (double)t->bytes;
        d.cut_blocks += (double)t->bytes * block_share(one, i);
    }
    return d;
}

/* _i: job and sharding. States, and under `weights` matrices and codes, are as much as on one rank
 * in all, and a rank has no more than its share and a block of each. */
START_TEST(ranks_hold_parts_of_one) {
    const int job = _i / 4;
    const uint32_t sharding = shardings[_i % 4];
    struct pl_model m;
    struct pl_diag d = {0};
    struct pl_planned one = {0}, held = {0};
    pl_test_model(jobs[job].model, &m);
    struct pl_job_shape s = shape_of(&m, job, 1, 0, sharding);
    pl_test_plan(&one, &s, &m);
    const struct divided all = divide(one.program);
    const double states = (double)state_bytes(one.program),
                 whole = (double)model_bytes(one.program);
    ck_assert(all.cut > 0.9 * whole); /* norms, scales of scales and adapters are not */
    for (int c = 0; c < COUNTS; c++) {
        const uint32_t n = counts[c];
        const double of_states = sharding >= PL_SHARDING_OPTIMIZER ? n : 1;
        const double of_cut = sharding == PL_SHARDING_WEIGHTS ? n : 1;
        double sum = 0, kept = 0;
        for (uint32_t r = 0; r<n; r += n> 8 ? 21 : 1) { /* for 64 ranks: 0, 21, 42, 63 */
            s = shape_of(&m, job, n, r, sharding);
            pl_test_plan(&held, &s, &m);
            ck_assert_msg(pl_plan_check(held.plan, &d) == PL_ERR_OK, "%s", d.message);
            expect_same_tensors(one.program, held.program);
            const double own = (double)state_bytes(held.program);
            const double model = (double)model_bytes(held.program);
            ck_assert(own <= states / of_states + states * all.state_blocks / all.states);
            ck_assert(model <= whole - all.cut + all.cut / of_cut + all.cut_blocks);
            sum += own;
            kept += model;
            pl_planned_finish(&held);
            held = (struct pl_planned){0};
        }
        if (n > 8) continue;
        ck_assert_double_eq(sum, states * n / of_states);
        ck_assert_double_eq(kept, (whole - all.cut) * n + all.cut * n / of_cut);
    }
    pl_planned_finish(&one);
}
END_TEST

/* --- one exchange a step ---------------------------------------------------------------------- */

static uint64_t role_bytes(const struct pl_program *p, enum pl_role role) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->n_tensors; i++)
        if (p->tensors[i].role == role) bytes += p->tensors[i].bytes;
    return bytes;
}

static bool is_between(const struct pl_op *op) {
    return op->kind == PL_OP_SPREAD || op->kind == PL_OP_SHARE || op->kind == PL_OP_FETCH;
}

static uint32_t exchanges_of(const struct pl_program *p, enum pl_phase phase) {
    const struct pl_phase_range *r = &p->phases[phase];
    uint32_t n = 0;
    for (uint32_t i = r->first_op; i < r->first_op + r->n_ops; i++)
        n += is_between(&p->ops[i]);
    return n;
}

/* Checks that every row of every gradient is added to once, on the rank that has it, before the
 * norm. */
static void expect_sums_before_norm(const struct pl_program *p) {
    const struct pl_step_ops ops = pl_program_step_ops(p);
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        struct pl_owned parts[PL_MAX_PARTS];
        uint64_t own = 0, added = 0;
        if (!p->tensors[i].trainable) continue;
        const uint32_t n = pl_tensor_shards(p, i, p->shape.ranks, p->shape.rank, parts);
        for (uint32_t k = 0; k < n; k++)
            own += parts[k].own.rows;
        for (uint32_t k = ops.norm.first_op; k < ops.norm.first_op + ops.norm.n_ops; k++) {
            const struct pl_op *op = &p->ops[k];
            if (op->kind != PL_OP_FOLD || p->tensors[op->out[0].id].role != PL_ROLE_GRAD ||
                p->tensors[op->out[0].id].of != i)
                continue;
            ck_assert(op->attr.accumulate == PL_ACC_ADD && op->attr.all_ranks);
            added += rows_of(p, &op->out[0]);
        }
        ck_assert_uint_eq(added, own);
    }
}

/* _i: job and sharding. Micro-batches send nothing and add up in the gradients of one device, which
 * are whole, and of `optimizer` only the states are in parts. */
START_TEST(one_exchange_leaves_micro_batches_alone) {
    const int job = _i / 2;
    const uint32_t sharding = shardings[_i % 2], n = 4;
    struct pl_model m;
    struct pl_diag d = {0};
    struct pl_planned one = {0}, held = {0};
    double states = 0;
    pl_test_model(jobs[job].model, &m);
    struct pl_job_shape s = shape_of(&m, job, 1, 0, sharding);
    s.rank_order = false;
    pl_test_plan(&one, &s, &m);
    for (uint32_t r = 0; r < n; r++) {
        s = shape_of(&m, job, n, r, sharding);
        s.rank_order = false;
        pl_test_plan(&held, &s, &m);
        ck_assert_msg(pl_plan_check(held.plan, &d) == PL_ERR_OK, "%s", d.message);
        expect_same_tensors(one.program, held.program);
        ck_assert_uint_eq(role_bytes(held.program, PL_ROLE_GRAD),
                          role_bytes(one.program, PL_ROLE_GRAD));
        ck_assert_uint_eq(role_bytes(held.program, PL_ROLE_MICRO_GRAD), 0);
        ck_assert_uint_eq(held.program->phases[PL_PHASE_MICRO].n_ops,
                          one.program->phases[PL_PHASE_MICRO].n_ops);
        ck_assert_uint_eq(exchanges_of(held.program, PL_PHASE_MICRO), 0);
        ck_assert_uint_gt(exchanges_of(held.program, PL_PHASE_OPTIMIZER), 0);
        expect_sums_before_norm(held.program);
        states += (double)state_bytes(held.program);
        pl_planned_finish(&held);
        held = (struct pl_planned){0};
    }
    const double copies = sharding == PL_SHARDING_OPTIMIZER ? 1 : n;
    ck_assert_double_eq(states, copies * (double)state_bytes(one.program));
    pl_planned_finish(&one);
}
END_TEST

/* --- bytes that are sent ---------------------------------------------------------------------- */

/* SPREAD: what the others own. SHARE, FETCH: its own to each of the others. */
static double sent_by(const struct pl_program *p, const struct pl_op *op) {
    const struct pl_attr *a = &op->attr;
    const bool spreads = op->kind == PL_OP_SPREAD;
    if (!spreads && op->kind != PL_OP_SHARE && op->kind != PL_OP_FETCH) return 0;
    const struct pl_operand *whole = spreads ? &op->in[0] : &op->out[0];
    const struct pl_tensor *t = &p->tensors[whole->id];
    const uint64_t rows = rows_of(p, whole);
    const uint64_t row_bytes = t->dims[1] * pl_dtype_bytes(t->dtype);
    uint64_t sent = 0;
    for (uint32_t r = 0; r < a->ranks; r++) {
        const uint32_t from = spreads ? r : p->shape.rank;
        struct pl_shard own = pl_shard_of(rows, a->block_rows, a->ranks, from);
        if (spreads && a->piece_rows) own = pl_shard_piece(own, a->piece_row0, a->piece_rows);
        if (r != p->shape.rank) sent += own.rows;
    }
    return (double)(sent * row_bytes);
}

static double sent_in_step(const struct pl_program *p) {
    double bytes = 0;
    const enum pl_phase phases[] = {PL_PHASE_MICRO, PL_PHASE_OPTIMIZER};
    for (int i = 0; i < 2; i++)
        for (uint32_t k = 0; k < p->phases[phases[i]].n_ops; k++)
            bytes += sent_by(p, &p->ops[p->phases[phases[i]].first_op + k]);
    return bytes;
}

static double trained_bytes(const struct pl_program *p) {
    double bytes = 0;
    for (uint32_t i = 0; i < p->n_tensors; i++)
        if (p->tensors[i].trainable)
            bytes += (double)(p->tensors[i].dims[0] * p->tensors[i].dims[1] * 4);
    return bytes;
}

/* In fp32, with one micro-batch a rank, gradients are sent once, and the results once. Under
 * `weights` matrices are sent twice instead, for the forward and for the backward pass. */
START_TEST(a_step_sends_what_a_ring_sends) {
    const uint32_t n = 4, sharding = shardings[_i];
    struct pl_model m;
    struct pl_planned one = {0}, held = {0};
    double sent = 0;
    pl_test_model(jobs[0].model, &m);
    struct pl_job_shape s = shape_of(&m, 0, 1, 0, sharding);
    s.dtype = s.gradient_dtype = PL_DTYPE_F32;
    pl_test_plan(&one, &s, &m);
    const double gradients = trained_bytes(one.program);
    for (uint32_t r = 0; r < n; r++) {
        s = shape_of(&m, 0, n, r, sharding);
        s.dtype = s.gradient_dtype = PL_DTYPE_F32;
        pl_test_plan(&held, &s, &m);
        sent += sent_in_step(held.program);
        pl_planned_finish(&held);
        held = (struct pl_planned){0};
    }
    const double passes = sent / n / (gradients * (n - 1) / n);
    if (sharding == PL_SHARDING_WEIGHTS)
        ck_assert_msg(passes > 2.97 && passes < 3.03, "%.4f", passes);
    else
        ck_assert_msg(passes > 1.98 && passes < 2.02, "%.4f", passes);
    pl_planned_finish(&one);
}
END_TEST

int main(void) {
    Suite *s = suite_create("program.shards");
    TCase *tc = tcase_create("shards");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, the_ranges_of_ranks_make_a_whole);
    tcase_add_test(tc, pieces_of_a_range_make_the_range);
    tcase_add_loop_test(tc, ranks_hold_parts_of_one, 0, JOBS * 4);
    tcase_add_loop_test(tc, one_exchange_leaves_micro_batches_alone, 0, JOBS * 2);
    tcase_add_loop_test(tc, a_step_sends_what_a_ring_sends, 0, 4);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
