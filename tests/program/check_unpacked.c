/* check_unpacked.c - programs that unpack a 4-bit base in panels: no copy is larger than it may be,
 * every element is unpacked as often as from whole matrices, every column of a product is written
 * as often, and what is alive at the peak falls. And programs that keep the copies of a
 * recomputation for the gradient of the same layer. */
#include "estimator/base/checked.h"
#include "estimator/plan/plan_digest.h"
#include "estimator/program/cost.h"
#include "tests/plan/planning.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct pl_model model;

/* Biases and a fused q, k and v; a head of its own; norms after blocks; experts. */
static const char *const models[] = {"Qwen2.5-0.5B", "Llama-3.1-8B", "Gemma-3-1B", "Qwen3-30B-A3B"};
static const uint32_t levels[] = {PL_RECOMPUTE_NONE, PL_RECOMPUTE_FULL, PL_RECOMPUTE_OFFLOAD};
enum { N_MODELS = sizeof models / sizeof *models, N_LEVELS = sizeof levels / sizeof *levels };
enum { KINDS = N_MODELS * N_LEVELS };

static struct pl_job_shape shape_of(int kind) {
    pl_test_model(models[kind / N_LEVELS], &model);
    model.layers = 2;
    struct pl_job_shape s = pl_test_shape(&model, PL_MODE_QLORA, levels[kind % N_LEVELS], 2, 64);
    s.quantize_head = kind % 2;
    s.offload = kind % 4 == 3 ? PL_OFFLOAD_WEIGHTS : PL_OFFLOAD_NONE;
    return s;
}

static void make_plan(struct pl_planned *out, const struct pl_job_shape *s) {
    const struct pl_traits traits = pl_traits_cuda(80);
    struct pl_diag d = {0};
    ck_assert_msg(pl_planned_init_shape(out, s, &model, &traits, &d) == PL_ERR_OK, "%s", d.message);
    ck_assert_msg(pl_plan_check(out->plan, &d) == PL_ERR_OK, "%s", d.message);
}

static uint64_t digest_of(const struct pl_planned *p) {
    struct pl_digest h;
    pl_digest_init(&h, 0);
    pl_digest_add_plan(&h, p->plan);
    return pl_digest_value(&h);
}

static bool is_copy(const struct pl_program *p, const struct pl_operand *o) {
    return o->id != PL_NONE && strcmp(p->tensors[o->id].name, "dequantised") == 0;
}

static uint64_t largest_copy(const struct pl_program *p) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < p->n_ops; i++)
        if (p->ops[i].kind == PL_OP_DEQUANT4)
            most = pl_u64_max(most, p->tensors[p->ops[i].out[0].id].bytes);
    return most;
}

/* The sums over all panels, of both directions. */
struct sums {
    double unpacked;       /* elements */
    double bytes;          /* that DEQUANT4 moves */
    double written, added; /* columns of outputs of products of copies */
    double flops;
    double routed; /* bytes of sorted rows that products of experts move */
};

static double cols_of(const struct pl_program *p, const struct pl_operand *o) {
    return (double)(o->cols ? o->cols : p->tensors[o->id].dims[1]);
}

static uint64_t rows_of(const struct pl_program *p, const struct pl_operand *o) {
    return o->nrows ? o->nrows : p->tensors[o->id].dims[0];
}

/* Rows of all matrices that an op unpacks; those of other modules may lie between them. */
static uint64_t rows_unpacked(const struct pl_program *p, const struct pl_op *op) {
    const uint64_t n = op->attr.matrices ? op->attr.matrices : 1;
    return n * (rows_of(p, &op->out[0]) - (n - 1) * op->attr.matrix_stride);
}

static bool is_product(const struct pl_op *op) {
    return op->kind == PL_OP_LINEAR || op->kind == PL_OP_LINEAR_DX ||
           op->kind == PL_OP_GROUPED_LINEAR || op->kind == PL_OP_GROUPED_LINEAR_DX;
}

/* Bytes that a product moves, but those of its matrix and of the ends of experts' rows. */
static double bytes_of_rows(const struct pl_program *p, const struct pl_op *op,
                            const struct pl_load *load) {
    const double w = (double)rows_of(p, &op->in[1]) * cols_of(p, &op->in[1]) * 2;
    return pl_op_work(p, op, load).bytes - w - 4.0 * (double)rows_of(p, &op->in[2]);
}

/* The columns of a product; of experts, those of each. */
static double columns_of(const struct pl_program *p, const struct pl_op *op) {
    const double cols = cols_of(p, &op->out[0]);
    if (!op->attr.expert_rows) return cols;
    return cols * (double)(rows_of(p, &op->in[1]) / op->attr.expert_rows);
}

static struct sums sums_of(const struct pl_program *p) {
    const struct pl_load full = pl_load_full(p);
    struct sums s = {0};
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct pl_op *op = &p->ops[i];
        if (op->kind == PL_OP_DEQUANT4) {
            s.unpacked += (double)rows_unpacked(p, op) * cols_of(p, &op->out[0]);
            s.bytes += pl_op_work(p, op, &full).bytes;
        } else if (is_product(op) && is_copy(p, &op->in[1])) {
            *(op->attr.accumulate == PL_ACC_ADD ? &s.added : &s.written) += columns_of(p, op);
            s.flops += op->flops;
            s.routed += op->attr.expert_rows ? bytes_of_rows(p, op, &full) : 0;
        }
    }
    return s;
}

static const uint64_t buffers[] = {UINT64_C(64) << 10, UINT64_C(1) << 20, UINT64_C(3000001)};

START_TEST(every_panel_is_a_sound_plan) {
    struct pl_job_shape s = shape_of(_i);
    struct pl_planned whole, cut;
    make_plan(&whole, &s);
    const struct sums want = sums_of(whole.program);
    const uint64_t most = largest_copy(whole.program);
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        s.unpack_bytes = buffers[i];
        make_plan(&cut, &s);
        const struct sums got = sums_of(cut.program);
        const uint64_t one = 2 * (uint64_t)model.layer[0].ffn * model.hidden; /* gate and up */
        const uint64_t least = pl_u64_max(model.ffn * 64, model.hidden * 64); /* columns */
        const uint64_t unit = 2 * (model.experts.n ? pl_u64_max(one, least) : least);
        ck_assert_uint_le(largest_copy(cut.program), pl_u64_max(buffers[i], unit));
        ck_assert_uint_lt(largest_copy(cut.program), most);
        ck_assert_double_eq(got.unpacked, want.unpacked);
        ck_assert_double_eq(got.written, want.written);
        ck_assert_double_eq(got.added, want.added);
        ck_assert_double_le(fabs(got.flops - want.flops), 1e-6 * want.flops);
        ck_assert_double_le(fabs(got.routed - want.routed), 1e-9 * want.routed);
        /* rows that begin inside a nest read the codes of the nest */
        ck_assert_double_ge(got.bytes, 0.999 * want.bytes);
        ck_assert_double_le(got.bytes, 1.1 * want.bytes);
        pl_planned_finish(&cut);
    }
    pl_planned_finish(&whole);
}
END_TEST

START_TEST(room_for_the_largest_copy_changes_nothing) {
    struct pl_job_shape s = shape_of(_i);
    struct pl_planned whole, same;
    make_plan(&whole, &s);
    s.unpack_bytes = largest_copy(whole.program);
    make_plan(&same, &s);
    ck_assert(digest_of(&whole) == digest_of(&same));
    pl_planned_finish(&same);
    s.unpack_bytes--;
    make_plan(&same, &s);
    ck_assert(digest_of(&whole) != digest_of(&same));
    pl_planned_finish(&same);
    pl_planned_finish(&whole);
}
END_TEST

/* Rows that are no whole blocks are unpacked whole. */
/* The modules of a copy; those of experts have rows between each other's. */
START_TEST(modules_of_a_copy_are_unpacked_as_one) {
    struct pl_job_shape s = shape_of(_i);
    struct pl_planned p;
    s.offload = PL_OFFLOAD_NONE;
    make_plan(&p, &s);
    const struct pl_op *ops = p.program->ops;
    for (uint32_t i = 0, n; i < p.program->n_ops; i += n) {
        n = pl_program_together(p.program, i, p.program->n_ops);
        if (ops[i].kind != PL_OP_DEQUANT4) continue;
        for (uint32_t k = i; k < i + n; k++)
            ck_assert_uint_eq(ops[k].out[0].id, ops[i].out[0].id);
        const bool more = i + n < p.program->n_ops && ops[i + n].kind == PL_OP_DEQUANT4;
        ck_assert(!more || ops[i].attr.matrices || ops[i + n].out[0].id != ops[i].out[0].id);
    }
    pl_planned_finish(&p);
}
END_TEST

START_TEST(rows_of_broken_blocks_stay_together) {
    struct pl_job_shape s = shape_of(0);
    struct pl_planned whole, same;
    model.hidden -= 2;
    for (uint64_t i = 0; i < model.layers; i++) {
        model.layer[i].ffn -= 2;
        model.layer[i].head_dim -= 2;
    }
    make_plan(&whole, &s);
    s.unpack_bytes = 4096;
    make_plan(&same, &s);
    ck_assert(digest_of(&whole) == digest_of(&same));
    pl_planned_finish(&whole);
    pl_planned_finish(&same);
}
END_TEST

/* gate and up, which write one tensor. */
START_TEST(a_matrix_has_no_more_panels_than_it_may) {
    struct pl_job_shape s = shape_of(N_LEVELS);
    struct pl_planned p;
    s.unpack_bytes = 1;
    make_plan(&p, &s);
    uint32_t *panels = calloc(p.program->n_tensors, sizeof *panels), most = 0;
    ck_assert_ptr_nonnull(panels);
    for (uint32_t i = 0; i < p.program->n_ops; i++) {
        const struct pl_op *op = &p.program->ops[i];
        if (op->kind != PL_OP_LINEAR || op->layer == PL_NONE || !is_copy(p.program, &op->in[1]))
            continue;
        if (++panels[op->out[0].id] > most) most = panels[op->out[0].id];
    }
    ck_assert_uint_gt(most, PL_PANELS_MAX);
    ck_assert_uint_le(most, 2 * PL_PANELS_MAX);
    free(panels);
    pl_planned_finish(&p);
}
END_TEST

START_TEST(the_copy_at_the_peak_falls) {
    struct pl_planned whole, cut;
    pl_test_model("Qwen2.5-14B", &model);
    struct pl_job_shape s = pl_test_shape(&model, PL_MODE_QLORA, PL_RECOMPUTE_OFFLOAD, 1, 512);
    s.loss_chunk_tokens = 128;
    s.quantize_head = true;
    make_plan(&whole, &s);
    s.unpack_bytes = UINT64_C(16) << 20;
    make_plan(&cut, &s);
    const uint64_t before = whole.plan->phases[PL_PHASE_MICRO].live_bytes;
    const uint64_t after = cut.plan->phases[PL_PHASE_MICRO].live_bytes;
    ck_assert_uint_ge(before - after, 2 * model.ffn * model.hidden - s.unpack_bytes);
    ck_assert_uint_lt(cut.plan->arena_bytes, whole.plan->arena_bytes);
    pl_planned_finish(&whole);
    pl_planned_finish(&cut);
}
END_TEST

/* True if an op before op `at` has unpacked the same codes in the recomputation of the layer. */
static bool was_recomputed(const struct pl_program *p, uint32_t at) {
    const struct pl_op *op = &p->ops[at];
    for (uint32_t i = 0; i < at; i++) {
        const struct pl_op *o = &p->ops[i];
        if (o->kind == PL_OP_DEQUANT4 && o->recompute && o->layer == op->layer &&
            o->in[PL_DEQUANT4_CODES].id == op->in[PL_DEQUANT4_CODES].id)
            return true;
    }
    return false;
}

struct unpacks {
    uint32_t all, again; /* again: codes that the recomputation of the same layer has unpacked */
};

static struct unpacks unpacks_of(const struct pl_program *p) {
    struct unpacks u = {0};
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct pl_op *op = &p->ops[i];
        if (op->kind != PL_OP_DEQUANT4 || op->phase != PL_PHASE_MICRO) continue;
        u.all++;
        u.again += op->backward && !op->recompute && !op->attr.matrices && was_recomputed(p, i);
    }
    return u;
}

/* The copies of experts, which come in pieces, are unpacked again all the same. */
START_TEST(copies_of_a_recomputation_are_kept_for_the_gradient) {
    struct pl_job_shape s = shape_of(_i);
    struct pl_planned once, kept;
    make_plan(&once, &s);
    s.keeps_unpacked = true;
    make_plan(&kept, &s);
    const struct unpacks before = unpacks_of(once.program), after = unpacks_of(kept.program);
    const struct sums a = sums_of(once.program), b = sums_of(kept.program);
    ck_assert_uint_eq(after.again, 0);
    ck_assert_uint_eq(after.all, before.all - before.again);
    ck_assert_int_eq(before.again > 0, s.recompute != PL_RECOMPUTE_NONE);
    ck_assert_double_eq(a.flops, b.flops);
    ck_assert_double_eq(a.written, b.written);
    ck_assert_double_eq(a.added, b.added);
    if (s.recompute == PL_RECOMPUTE_NONE) ck_assert(digest_of(&once) == digest_of(&kept));
    pl_planned_finish(&once);
    pl_planned_finish(&kept);
}
END_TEST

/* gate and up, which every chunk of the MLP unpacks for itself, and panels, which none keeps. */
START_TEST(chunks_keep_their_own_copies_and_panels_are_not_kept) {
    const uint32_t chunks = 4;
    struct pl_job_shape s = shape_of(N_LEVELS + 1);
    struct pl_planned once, kept;
    s.mlp_chunk_tokens = pl_u64_div_up(s.batch_size * s.max_seq_length, chunks);
    make_plan(&once, &s);
    s.keeps_unpacked = true;
    make_plan(&kept, &s);
    const struct unpacks before = unpacks_of(once.program), after = unpacks_of(kept.program);
    ck_assert_uint_eq(after.again, 0);
    ck_assert_uint_eq(before.all - after.all, before.again);
    ck_assert_uint_ge(before.again, 2 * chunks * (uint32_t)model.layers);
    pl_planned_finish(&once);
    pl_planned_finish(&kept);
    s.unpack_bytes = 1;
    make_plan(&kept, &s);
    s.keeps_unpacked = false;
    make_plan(&once, &s);
    ck_assert(digest_of(&once) == digest_of(&kept));
    pl_planned_finish(&once);
    pl_planned_finish(&kept);
}
END_TEST

int main(void) {
    Suite *s = suite_create("program.unpacked");
    TCase *tc = tcase_create("panels");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, every_panel_is_a_sound_plan, 0, KINDS);
    tcase_add_loop_test(tc, copies_of_a_recomputation_are_kept_for_the_gradient, 0, KINDS);
    tcase_add_test(tc, chunks_keep_their_own_copies_and_panels_are_not_kept);
    tcase_add_loop_test(tc, room_for_the_largest_copy_changes_nothing, 0, KINDS);
    tcase_add_loop_test(tc, modules_of_a_copy_are_unpacked_as_one, 0, KINDS);
    tcase_add_test(tc, rows_of_broken_blocks_stay_together);
    tcase_add_test(tc, a_matrix_has_no_more_panels_than_it_may);
    tcase_add_test(tc, the_copy_at_the_peak_falls);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
