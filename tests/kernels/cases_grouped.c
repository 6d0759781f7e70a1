/* cases_grouped.c - GROUPED_LINEAR, GROUPED_LINEAR_DX, GROUPED_LINEAR_DW, GROUPED_BIAS_GRAD. */
#include "tests/kernels/cases.h"
#include "tests/kernels/ref_linear.h"

#include <math.h>

/* P rows among E experts; O and K of each; the call has `n` experts from `first` on. */
struct shape {
    uint64_t p, e, o, k, first, n;
};

/* No rows, one expert, experts without rows, few rows each, sizes around the tiles, more experts
 * than rows, no columns, a window of experts, one of none. */
static const struct shape shapes[] = {
    {0, 3, 5, 7, 0, 3},     {9, 1, 5, 7, 0, 1},       {40, 8, 16, 24, 0, 8},
    {70, 6, 33, 65, 0, 6},  {300, 5, 64, 96, 0, 5},   {300, 5, 64, 96, 1, 3},
    {7, 30, 24, 40, 0, 30}, {200, 4, 130, 16, 2, 2},  {260, 3, 72, 400, 0, 3},
    {64, 4, 1, 48, 0, 4},   {128, 2, 200, 136, 1, 1}, {20, 4, 8, 1, 0, 4},
    {64, 7, 96, 128, 0, 7}, {400, 2, 264, 72, 0, 2},  {150, 9, 128, 64, 3, 0},
    {90, 3, 40, 0, 0, 3},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static struct shape draw_shape(struct trial *t) {
    if (t->round < N_SHAPES) return shapes[t->round];
    struct shape s;
    s.p = draw(t, 0, 150);
    s.e = draw(t, 1, 12);
    s.o = draw(t, 1, 100);
    s.k = draw(t, 1, 150);
    s.first = draw(t, 0, s.e - 1);
    s.n = draw(t, 1, s.e - s.first);
    return s;
}

/* Ends of the experts: even, all rows of one expert, or cuts at random, of which some coincide. */
static void add_offsets(struct trial *t, uint32_t slot, const struct shape *s) {
    struct operand *o = add_vector_in(t, slot, s->e + 1, PL_DTYPE_I32);
    const uint64_t kind = draw(t, 0, 3), owner = draw(t, 0, s->e - 1);
    uint64_t end = 0;
    for (uint64_t e = 0; e < s->e; e++) {
        const uint64_t left = s->p - end;
        if (kind == 0) end = s->p * (e + 1) / s->e;
        if (kind == 1) end = e >= owner ? s->p : 0;
        if (kind >= 2) end += draw(t, 0, 1) ? draw(t, 0, left) / 2 : 0;
        set_value(o, e + 1, 0, (double)(e + 1 == s->e ? s->p : end));
    }
}

static void draw_attr(struct trial *t, const struct shape *s, uint64_t rows) {
    t->attr.first_expert = (uint32_t)s->first;
    t->attr.expert_rows = (uint32_t)rows;
    t->attr.alpha = (float)draw(t, 1, 8) / 4.0f;
    t->attr.accumulate = (enum pl_accumulate)draw(t, 0, 2);
    t->batch.first = draw(t, 0, 1);
}

static bool adds(const struct trial *t) {
    const struct pl_call c = {.attr = &t->attr, .batch = &t->batch};
    return pl_call_adds(&c);
}

/* Rows of other experts stay as they are, so y has values before even where it is written. */
static void add_result(struct trial *t, uint32_t in_slot, uint64_t rows, uint64_t cols,
                       enum pl_dtype dtype) {
    also_out(t, add_in(t, in_slot, rows, cols, dtype), 0);
    if (!adds(t)) t->in[in_slot] = NULL;
}

static void build(struct trial *t, const enum pl_dtype dtypes[4]) {
    const struct shape s = draw_shape(t);
    draw_attr(t, &s, s.o);
    switch (t->test->kind) {
    case PL_OP_GROUPED_LINEAR:
        add_in(t, 0, s.p, s.k, dtypes[0]);
        add_in(t, 1, s.n * s.o, s.k, dtypes[1]);
        if (draw(t, 0, 1)) add_vector_in(t, 3, s.n * s.o, dtypes[3]);
        add_result(t, 5, s.p, s.o, dtypes[2]);
        break;
    case PL_OP_GROUPED_LINEAR_DX:
        add_in(t, 0, s.p, s.o, dtypes[0]);
        add_in(t, 1, s.n * s.o, s.k, dtypes[1]);
        if (draw(t, 0, 1)) add_vector_in(t, 3, s.n * s.k, dtypes[3]);
        add_result(t, 5, s.p, s.k, dtypes[2]);
        break;
    default:
        add_in(t, 0, s.p, s.o, dtypes[0]);
        add_in(t, 1, s.p, s.k, dtypes[1]);
        add_result(t, 4, s.n * s.o, s.k, dtypes[2]);
        break;
    }
    add_offsets(t, 2, &s);
    add_product_ws(t, t->test->kind == PL_OP_GROUPED_LINEAR_DW ? 3 : 4);
}

static void build_fp32(struct trial *t) {
    build(t, (enum pl_dtype[4]){PL_DTYPE_F32, PL_DTYPE_F32, PL_DTYPE_F32, PL_DTYPE_F32});
}

/* Every other round: all of them narrow, which is the usual call. */
static void build_mixed(struct trial *t) {
    enum pl_dtype dtypes[4];
    for (int i = 0; i < 4; i++)
        dtypes[i] = t->round % 2 ? narrow_type(t) : draw_float(t);
    if (t->round % 2 == 0) dtypes[t->round / 2 % 3] = narrow_type(t);
    build(t, dtypes);
}

static void build_bias(struct trial *t) {
    const struct shape s = draw_shape(t);
    const enum pl_dtype dtype = draw_float(t);
    draw_attr(t, &s, s.o);
    add_in(t, 0, s.p, s.o, dtype);
    add_offsets(t, 1, &s);
    also_out(t, add_vector_in(t, 2, s.n * s.o, draw(t, 0, 1) ? PL_DTYPE_F32 : dtype), 0);
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

/* want, scale [rows,cols]: what an expert writes, or adds to. */
static void begin(const struct trial *t, const struct operand *c, uint64_t first, uint64_t n) {
    for (uint64_t i = first; i < first + n; i++) {
        if (!adds(t)) c->want[i] = 0;
        c->scale[i] = fabs(c->want[i]);
    }
}

static void add_bias(const struct trial *t, uint64_t expert, uint64_t row0, uint64_t rows) {
    const struct operand *c = t->out[0], *bias = t->in[3];
    const uint64_t cols = c->view.cols;
    for (uint64_t i = 0; bias && i < rows * cols; i++) {
        c->want[row0 * cols + i] += bias->x[expert * cols + i % cols];
        c->scale[row0 * cols + i] += fabs(bias->x[expert * cols + i % cols]);
    }
}

static void reference(struct trial *t) {
    const struct operand *a = t->in[0], *b = t->in[1], *c = t->out[0];
    const double *ends = t->in[2]->x + t->attr.first_expert;
    const uint64_t o = t->attr.expert_rows, k = b->view.cols, cols = c->view.cols;
    const bool dw = t->test->kind == PL_OP_GROUPED_LINEAR_DW;
    const uint64_t n = (dw ? c : b)->view.rows / o;
    if (t->library_products) round_inputs(t);
    for (uint64_t e = 0; e < n; e++) {
        const uint64_t row0 = (uint64_t)ends[e], rows = (uint64_t)ends[e + 1] - row0;
        const uint64_t at = (dw ? e * o : row0) * cols;
        const struct ref_shape s = {rows, o, k};
        begin(t, c, at, (dw ? o : rows) * cols);
        const double *x = a->x + row0 * a->view.cols, *w = b->x + (dw ? row0 : e * o) * k;
        if (t->test->kind == PL_OP_GROUPED_LINEAR)
            ref_linear(s, t->attr.alpha, x, w, c->want + at, c->scale + at);
        else if (dw)
            ref_linear_dw(s, t->attr.alpha, x, w, c->want + at, c->scale + at);
        else
            ref_linear_dx(s, t->attr.alpha, x, w, c->want + at, c->scale + at);
        if (!dw) add_bias(t, e, row0, rows);
    }
}

static void reference_bias(struct trial *t) {
    const struct operand *dy = t->in[0], *db = t->out[0];
    const double *ends = t->in[1]->x + t->attr.first_expert;
    const uint64_t cols = dy->view.cols;
    begin(t, db, 0, db->view.rows);
    for (uint64_t i = 0; i < db->view.rows; i++)
        for (uint64_t row = (uint64_t)ends[i / cols]; row < (uint64_t)ends[i / cols + 1]; row++) {
            db->want[i] += dy->x[row * cols + i % cols];
            db->scale[i] += fabs(dy->x[row * cols + i % cols]);
        }
}

/* The tolerance is that of products that are not grouped. */
#define TOLERANCE 1e-6

#define FP32(name, kind)                                                                           \
    { name, kind, N_SHAPES + 12, TOLERANCE, build_fp32, reference }
#define MIXED(name, kind)                                                                          \
    { name, kind, N_SHAPES * 2, TOLERANCE, build_mixed, reference }
const struct kernel_case cases_grouped[] = {
    FP32("grouped_linear, fp32", PL_OP_GROUPED_LINEAR),
    FP32("grouped_linear_dx, fp32", PL_OP_GROUPED_LINEAR_DX),
    FP32("grouped_linear_dw, fp32", PL_OP_GROUPED_LINEAR_DW),
    MIXED("grouped_linear, bf16", PL_OP_GROUPED_LINEAR),
    MIXED("grouped_linear_dx, bf16", PL_OP_GROUPED_LINEAR_DX),
    MIXED("grouped_linear_dw, bf16", PL_OP_GROUPED_LINEAR_DW),
    {"grouped_bias_grad", PL_OP_GROUPED_BIAS_GRAD, N_SHAPES * 2, TOLERANCE, build_bias,
     reference_bias},
    {0},
};
