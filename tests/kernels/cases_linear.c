/* cases_linear.c - LINEAR, LINEAR_DX, LINEAR_DW. */
#include "tests/kernels/cases.h"
#include "tests/kernels/ref_linear.h"

#include <math.h>
#include <string.h>

/* Empty and single dimensions, sizes around the tiles, a long sum, few rows, several parts and
 * blocks, rows that lie whole pages apart, then at random. */
static const struct ref_shape shapes[] = {
    {0, 5, 7},       {5, 7, 0},      {1, 1, 1},       {1, 300, 40},     {300, 1, 40},
    {40, 300, 1},    {2, 2, 1500},   {257, 65, 33},   {33, 257, 65},    {3, 600, 5},
    {8, 96, 576},    {5, 1030, 64},  {64, 16, 400},   {130, 520, 9},    {16, 16, 385},
    {300, 160, 800}, {400, 300, 16}, {450, 1570, 24}, {330, 133, 1024}, {130, 1024, 135},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static struct ref_shape draw_shape(struct trial *t) {
    if (t->round < N_SHAPES) return shapes[t->round];
    struct ref_shape s;
    s.m = draw(t, 1, 90);
    s.n = draw(t, 1, 300);
    s.k = draw(t, 1, 600);
    return s;
}

/* The three ways of writing a gradient, and whether the step's first micro-batch is at hand. */
static void draw_accumulate(struct trial *t) {
    t->attr.accumulate = (enum pl_accumulate)draw(t, 0, 2);
    t->batch.first = draw(t, 0, 1);
}

static bool adds(const struct trial *t) {
    const struct pl_call c = {.attr = &t->attr, .batch = &t->batch};
    return pl_call_adds(&c);
}

/* The output c[rows,cols]: read by the call when it adds, NaN before when it does not. */
static void add_product_out(struct trial *t, uint32_t in_slot, uint64_t rows, uint64_t cols,
                            enum pl_dtype dtype) {
    if (adds(t))
        also_out(t, add_in(t, in_slot, rows, cols, dtype), 0);
    else
        also_in(t, add_out(t, 0, rows, cols, dtype), in_slot);
}

/* dtypes of the operands: bit i set makes operand i bf16. */
static void build(struct trial *t, enum pl_dtype dtypes[4]) {
    struct ref_shape s = draw_shape(t);
    if (t->library_products) dtypes[3] = dtypes[2];
    t->attr.alpha = (float)draw(t, 1, 8) / 4.0f;
    draw_accumulate(t);
    switch (t->test->kind) {
    case PL_OP_LINEAR:
        add_in(t, 0, s.m, s.k, dtypes[0]);
        add_in(t, 1, s.n, s.k, dtypes[1]);
        if (draw(t, 0, 1)) add_vector_in(t, 2, s.n, dtypes[3]);
        add_product_out(t, 4, s.m, s.n, dtypes[2]);
        add_product_ws(t, 3);
        break;
    case PL_OP_LINEAR_DX:
        add_in(t, 0, s.m, s.n, dtypes[0]);
        add_in(t, 1, s.n, s.k, dtypes[1]);
        add_product_out(t, 3, s.m, s.k, dtypes[2]);
        add_product_ws(t, 2);
        break;
    default:
        add_in(t, 0, s.m, s.n, dtypes[0]);
        add_in(t, 1, s.m, s.k, dtypes[1]);
        add_product_out(t, 3, s.n, s.k, dtypes[2]);
        add_product_ws(t, 2);
        break;
    }
}

static void build_fp32(struct trial *t) {
    build(t, (enum pl_dtype[4]){PL_DTYPE_F32, PL_DTYPE_F32, PL_DTYPE_F32, PL_DTYPE_F32});
}

static void build_mixed(struct trial *t) {
    enum pl_dtype dtypes[4];
    for (int i = 0; i < 4; i++)
        dtypes[i] = draw_float(t);
    if (t->round % 2 == 0) /* the usual one: all of them */
        for (int i = 0; i < 4; i++)
            dtypes[i] = narrow_type(t);
    else
        dtypes[t->round / 2 % 3] = narrow_type(t); /* at least one */
    build(t, dtypes);
}

/* The values that are multiplied. */
static void round_inputs(const struct trial *t) {
    const struct operand *const m[] = {t->in[0], t->in[1], t->out[0]};
    bool all_fp32 = true;
    for (int i = 0; i < 3; i++)
        all_fp32 &= m[i]->view.dtype == PL_DTYPE_F32;
    for (int i = 0; i < 2 && !all_fp32; i++)
        for (uint64_t j = 0; j < m[i]->view.rows * m[i]->view.cols; j++)
            m[i]->x[j] = as_stored(narrow_type(t), m[i]->x[j]);
}

/* want is 0, or what stood there when the call adds: add_in put it into want. */
static void reference(struct trial *t) {
    struct operand *a = t->in[0], *b = t->in[1], *c = t->out[0];
    uint64_t rows = c->view.rows, cols = c->view.cols;
    if (t->library_products) round_inputs(t);
    for (uint64_t i = 0; i < rows * cols; i++)
        c->scale[i] = fabs(c->want[i]);
    struct ref_shape s = {a->view.rows, a->view.cols, cols};
    switch (t->test->kind) {
    case PL_OP_LINEAR:
        s = (struct ref_shape){rows, cols, a->view.cols};
        ref_linear(s, t->attr.alpha, a->x, b->x, c->want, c->scale);
        for (uint64_t i = 0; t->in[2] && i < rows * cols; i++) {
            c->want[i] += t->in[2]->x[i % cols];
            c->scale[i] += fabs(t->in[2]->x[i % cols]);
        }
        break;
    case PL_OP_LINEAR_DX:
        ref_linear_dx(s, t->attr.alpha, a->x, b->x, c->want, c->scale);
        break;
    default:
        ref_linear_dw(s, t->attr.alpha, a->x, b->x, c->want, c->scale);
        break;
    }
}

/* An fp32 sum of n terms in blocks errs by far less than 16 units of the sum of magnitudes. */
#define TOLERANCE 1e-6

#define FP32(name, kind)                                                                           \
    { name, kind, N_SHAPES + 6, TOLERANCE, build_fp32, reference }
#define MIXED(name, kind)                                                                          \
    { name, kind, N_SHAPES * 2, TOLERANCE, build_mixed, reference }
const struct kernel_case cases_linear[] = {
    FP32("linear, fp32", PL_OP_LINEAR),
    FP32("linear_dx, fp32", PL_OP_LINEAR_DX),
    FP32("linear_dw, fp32", PL_OP_LINEAR_DW),
    MIXED("linear, bf16", PL_OP_LINEAR),
    MIXED("linear_dx, bf16", PL_OP_LINEAR_DX),
    MIXED("linear_dw, bf16", PL_OP_LINEAR_DW),
    {0},
};
