/* cases_ranks.c - ZERO, FOLD, and SQUARE_SUM block by block. */
#include "tests/kernels/cases.h"

#include "estimator/base/checked.h"

#include <math.h>

struct shape {
    uint64_t rows, cols;
};

static struct shape draw_shape(struct trial *t) {
    static const struct shape edges[] = {{1, 1}, {1, 513}, {64, 256}, {700, 1}, {33, 1024}};
    if (t->round < sizeof edges / sizeof *edges) return edges[t->round];
    return (struct shape){draw(t, 1, 200), draw(t, 1, 130)};
}

static enum pl_dtype draw_sum(struct trial *t) {
    return t->round % 3 == 2 ? PL_DTYPE_F64 : draw_float(t);
}

static void build_zero(struct trial *t) {
    const struct shape s = draw_shape(t);
    add_run_out(t, PL_ZERO_OUT_X, s.rows, s.cols, draw_sum(t));
}

static void reference_zero(struct trial *t) {
    const struct operand *x = t->out[PL_ZERO_OUT_X];
    for (uint64_t i = 0; i < x->view.rows * x->view.cols; i++)
        x->want[i] = 0;
}

/* 1 to 5 ranks, of which the last round of a step may leave some without a part; of two or more,
 * the part of one may stand alone. */
static void build_fold_of(struct trial *t, enum pl_dtype of_parts, enum pl_dtype of_g) {
    const struct shape s = draw_shape(t);
    const uint64_t ranks = draw(t, 1, 5);
    t->attr.accumulate = (enum pl_accumulate)draw(t, PL_ACC_WRITE, PL_ACC_FIRST_WRITES);
    t->attr.all_ranks = draw(t, 0, 3) == 0;
    t->batch.first = draw(t, 0, 1);
    t->batch.contributors = (uint32_t)draw(t, 1, ranks + 1);
    const bool alone = ranks > 1 && draw(t, 0, 1);
    add_run_in(t, PL_FOLD_PARTS, (ranks - alone) * s.rows, s.cols, of_parts);
    also_out(t, add_run_in(t, PL_FOLD_G, s.rows, s.cols, of_g), PL_FOLD_OUT_G);
    if (!alone) return;
    add_run_in(t, PL_FOLD_OWN, s.rows, s.cols, of_parts);
    t->attr.rank = (uint32_t)draw(t, 0, ranks - 1);
}

static void build_fold(struct trial *t) {
    const enum pl_dtype dtype = draw_sum(t);
    build_fold_of(t, dtype, dtype);
}

/* A window of a tensor that begins at any element, in some micro-batch. */
static void build_rounded_fold(struct trial *t) {
    build_fold_of(t, PL_DTYPE_F32, PL_DTYPE_BF16);
    t->attr.site = (uint32_t)draw(t, 0, 5000);
    t->attr.first_element = t->round % 4 == 1 ? 64 * draw(t, 0, 1 << 20) : draw(t, 0, 1 << 20);
    t->batch.micro_batch = (uint32_t)draw(t, 0, 300);
}

static double sum_as_stored(enum pl_dtype dtype, double sum) {
    return dtype == PL_DTYPE_F64 ? sum : as_stored(dtype, sum);
}

static double part_of(const struct trial *t, uint64_t part, uint64_t i) {
    const struct operand *own = t->in[PL_FOLD_OWN];
    const uint64_t size = t->out[PL_FOLD_OUT_G]->view.rows * t->out[PL_FOLD_OUT_G]->view.cols;
    if (own && part == t->attr.rank) return own->x[i];
    return t->in[PL_FOLD_PARTS]->x[(part - (own && part > t->attr.rank)) * size + i];
}

static uint64_t parts_added(const struct trial *t) {
    const uint64_t rows = t->out[PL_FOLD_OUT_G]->view.rows;
    const uint64_t there = t->in[PL_FOLD_PARTS]->view.rows / rows + (t->in[PL_FOLD_OWN] != NULL);
    return t->attr.all_ranks ? there : pl_u64_min(there, t->batch.contributors);
}

static bool fold_writes(const struct trial *t) {
    return t->attr.accumulate == PL_ACC_WRITE ||
           (t->attr.accumulate == PL_ACC_FIRST_WRITES && t->batch.first);
}

/* One after another, each sum stored: the bits of as many micro-batches on one rank. */
static void reference_fold(struct trial *t) {
    const struct operand *g = t->out[PL_FOLD_OUT_G];
    const uint64_t size = g->view.rows * g->view.cols, n = parts_added(t);
    const bool writes = fold_writes(t);
    for (uint64_t i = 0; i < size; i++) {
        double sum = writes ? part_of(t, 0, i) : g->x[i];
        for (uint64_t part = writes; part < n; part++)
            sum = sum_as_stored(g->view.dtype, sum + part_of(t, part, i));
        g->want[i] = sum;
    }
}

/* The neighbour of x in bf16 that is the larger in magnitude, with the probability of where x lies
 * between the two in 2^16 steps; or the smaller one. */
static double rounded_by(double x, uint32_t random) {
    if (x == 0) return 0;
    const double unit = ldexp(1, ilogb(x) - 7), steps = fabs(x) / unit;
    const double below = floor(steps), part = (steps - below) * 0x1p16;
    return copysign((below + (floor(part) + random >= 0x1p16)) * unit, x);
}

/* Returns the number that element e draws of the stream of a micro-batch. */
static uint32_t number_of(const struct trial *t, uint64_t micro_batch, uint64_t e) {
    const struct pl_rng rng = pl_rng_init(t->batch.seed, t->batch.step,
                                          pl_rng_sum_site(t->attr.site, (uint32_t)micro_batch));
    uint32_t x[4];
    pl_rng_block(&rng, e / 8, x);
    return x[e % 8 / 2] >> e % 2 * 16 & 0xFFFF;
}

/* The sum in double, as fp32 has it, is rounded by the number of its element. */
static void reference_rounded_fold(struct trial *t) {
    const struct operand *g = t->out[PL_FOLD_OUT_G];
    const uint64_t size = g->view.rows * g->view.cols, n = parts_added(t);
    const bool writes = fold_writes(t);
    for (uint64_t i = 0; i < size; i++) {
        double sum = writes ? 0 : g->x[i];
        for (uint64_t part = 0; part < n; part++)
            sum = rounded_by(as_stored(PL_DTYPE_F32, sum + part_of(t, part, i)),
                             number_of(t, t->batch.micro_batch + part, t->attr.first_element + i));
        g->want[i] = sum;
    }
}

static void build_blocks(struct trial *t) {
    const struct shape s = draw_shape(t);
    t->attr.block_rows = (uint32_t)draw(t, 1, s.rows + 3);
    add_run_in(t, PL_SQUARE_SUM_G, s.rows, s.cols, draw_float(t));
    also_out(t,
             add_vector_in(t, PL_SQUARE_SUM_PARTIAL, pl_u64_div_up(s.rows, t->attr.block_rows),
                           PL_DTYPE_F64),
             PL_SQUARE_SUM_OUT_PARTIAL);
    add_ws(t, PL_SQUARE_SUM_WS, s.rows, s.cols);
}

/* The tolerance on a GPU is that of cases_optim.c: 12 half units of fp32. */
static void reference_blocks(struct trial *t) {
    const struct operand *g = t->in[PL_SQUARE_SUM_G], *sums = t->out[PL_SQUARE_SUM_OUT_PARTIAL];
    const bool cuda = t->machine->runners[0].dev->traits.backend == PL_BACKEND_CUDA;
    for (uint64_t block = 0; block < sums->view.rows; block++)
        sums->want[block] = 0;
    for (uint64_t i = 0; i < g->view.rows * g->view.cols; i++)
        sums->want[i / g->view.cols / t->attr.block_rows] += g->x[i] * g->x[i];
    for (uint64_t block = 0; block < sums->view.rows; block++)
        sums->scale[block] =
            sums->want[block] * (1 + (cuda ? 12 * 0x1p-24 / t->test->tolerance : 0));
}

const struct kernel_case cases_ranks[] = {
    {"zero", PL_OP_ZERO, 12, 0, build_zero, reference_zero},
    {"fold", PL_OP_FOLD, 36, 0, build_fold, reference_fold},
    {"fold, rounded", PL_OP_FOLD, 36, 0, build_rounded_fold, reference_rounded_fold},
    {"square_sum, blocks", PL_OP_SQUARE_SUM, 24, 1e-12, build_blocks, reference_blocks},
    {0},
};
