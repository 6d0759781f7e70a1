/* cases_rows.c - EMBED, EMBED_BWD, GATHER_ADD, SCATTER_ROWS, BIAS_GRAD, ADD_SCALE, NARROW. */
#include "tests/kernels/cases.h"
#include "tests/kernels/ref_linear.h"

#include <math.h>
#include <string.h>

struct shape {
    uint64_t rows, cols, others; /* others: vocabulary, or rows gathered from */
};

static struct shape draw_shape(struct trial *t) {
    static const struct shape edges[] = {{0, 3, 4},     {1, 1, 1},     {1, 513, 2}, {200, 64, 3},
                                         {65, 129, 99}, {700, 7, 700}, {3, 1030, 5}};
    if (t->round < sizeof edges / sizeof *edges) return edges[t->round];
    struct shape s;
    s.rows = draw(t, 0, 300);
    s.cols = draw(t, 1, 200);
    s.others = s.rows + draw(t, 1, 100);
    return s;
}

/* ---- embedding ---- */

static void draw_ids(struct trial *t, uint64_t n, uint64_t vocab) {
    struct operand *ids = add_vector_in(t, 0, n, PL_DTYPE_I32);
    for (uint64_t i = 0; i < n; i++)
        set_value(ids, i, 0, (double)draw(t, 0, vocab - 1));
}

/* A power of two, by which nothing is rounded. */
static void draw_scale(struct trial *t) {
    t->attr.scale = draw(t, 0, 1) ? 8 : 0;
}
static double scale_of(const struct trial *t) {
    return t->attr.scale > 0 ? (double)t->attr.scale : 1;
}

static void build_embed(struct trial *t) {
    struct shape s = draw_shape(t);
    draw_scale(t);
    draw_ids(t, s.rows, s.others);
    add_in(t, 1, s.others, s.cols, draw_float(t));
    add_out(t, 0, s.rows, s.cols, draw_float(t));
}

static void reference_embed(struct trial *t) {
    struct operand *x = t->out[0];
    ref_embed(x->view.rows, x->view.cols, scale_of(t), t->in[0]->x, t->in[1]->x, x->want);
}

/* The tokens by id, as the data room sorts them. */
static void add_order(struct trial *t, uint32_t slot, uint64_t vocab) {
    const struct operand *ids = t->in[0];
    struct operand *order = add_vector_in(t, slot, ids->view.rows, PL_DTYPE_I32);
    for (uint64_t id = 0, n = 0; id < vocab; id++)
        for (uint64_t i = 0; i < ids->view.rows; i++)
            if ((uint64_t)ids->x[i] == id) set_value(order, n++, 0, (double)i);
}

static void build_embed_bwd(struct trial *t) {
    struct shape s = draw_shape(t);
    enum pl_dtype dtype = draw_float(t);
    draw_scale(t);
    t->attr.accumulate = PL_ACC_FIRST_WRITES;
    t->attr.padding_idx = (int64_t)draw(t, 0, s.others) - 1;
    t->batch.first = draw(t, 0, 1);
    draw_ids(t, s.rows, s.others);
    add_order(t, 1, s.others);
    add_in(t, 2, s.rows, s.cols, draw_float(t));
    if (t->batch.first)
        also_in(t, add_out(t, 0, s.others, s.cols, dtype), 3);
    else
        also_out(t, add_in(t, 3, s.others, s.cols, dtype), 0);
}

static void reference_embed_bwd(struct trial *t) {
    struct operand *dx = t->in[2], *dw = t->out[0];
    for (uint64_t i = 0; i < dw->view.rows * dw->view.cols; i++)
        dw->scale[i] = fabs(dw->want[i]);
    ref_embed_bwd(dx->view.rows, dx->view.cols, scale_of(t), t->in[0]->x, t->attr.padding_idx,
                  dx->x, dw->want, dw->scale);
}

/* ---- gather, scatter ---- */

/* n distinct rows of `of`, ascending, as the data room makes them. */
static void draw_rows(struct trial *t, uint32_t slot, uint64_t n, uint64_t of) {
    struct operand *rows = add_vector_in(t, slot, n, PL_DTYPE_I32);
    for (uint64_t i = 0, at = 0; i < n; i++, at++) {
        at += draw(t, 0, (of - at - (n - i)) / (n - i));
        set_value(rows, i, 0, (double)at);
    }
}

static void build_gather(struct trial *t) {
    struct shape s = draw_shape(t);
    uint64_t from = s.rows + s.others;
    add_in(t, 0, from, s.cols, draw_float(t));
    if (draw(t, 0, 2)) add_in(t, 1, from, s.cols, draw_float(t));
    draw_rows(t, 2, s.rows, from);
    add_out(t, 0, s.rows, s.cols, draw_float(t));
}

static void reference_gather(struct trial *t) {
    struct operand *xs = t->out[0];
    uint64_t cols = xs->view.cols;
    for (uint64_t i = 0; i < xs->view.rows * cols; i++) {
        uint64_t from = (uint64_t)t->in[2]->x[i / cols] * cols + i % cols;
        const double r = t->in[1] ? t->in[1]->x[from] : 0;
        xs->want[i] = t->in[0]->x[from] + r;
        xs->scale[i] = fabs(t->in[0]->x[from]) + fabs(r);
    }
}

static void build_scatter(struct trial *t) {
    struct shape s = draw_shape(t);
    add_in(t, 0, s.rows, s.cols, draw_float(t));
    draw_rows(t, 1, s.rows, s.rows + s.others);
    add_out(t, 0, s.rows + s.others, s.cols, draw_float(t));
}

static void reference_scatter(struct trial *t) {
    struct operand *dxs = t->in[0];
    uint64_t cols = dxs->view.cols;
    for (uint64_t i = 0; i < dxs->view.rows * cols; i++)
        t->out[0]->want[(uint64_t)t->in[1]->x[i / cols] * cols + i % cols] = dxs->x[i];
}

/* ---- bias ---- */

static void build_bias(struct trial *t) {
    struct shape s = draw_shape(t);
    t->attr.accumulate = (enum pl_accumulate)draw(t, 0, 2);
    t->batch.first = draw(t, 0, 1);
    bool adds = t->attr.accumulate == PL_ACC_ADD ||
                (t->attr.accumulate == PL_ACC_FIRST_WRITES && !t->batch.first);
    add_in(t, 0, s.rows, s.cols, draw_float(t));
    add_ws(t, 1, s.rows, s.cols);
    if (adds)
        also_out(t, add_vector_in(t, 2, s.cols, draw_float(t)), 0);
    else
        also_in(t, add_vector_out(t, 0, s.cols, draw_float(t)), 2);
}

static void reference_bias(struct trial *t) {
    struct operand *dy = t->in[0], *db = t->out[0];
    uint64_t cols = db->view.rows;
    for (uint64_t j = 0; j < cols; j++)
        db->scale[j] = fabs(db->want[j]);
    for (uint64_t i = 0; i < dy->view.rows * cols; i++) {
        db->want[i % cols] += dy->x[i];
        db->scale[i % cols] += fabs(dy->x[i]);
    }
}

/* ---- scaled sums ---- */

/* Without a sum, without a number of its own, and without both. */
static void build_add_scale(struct trial *t) {
    struct shape s = draw_shape(t);
    t->attr.alpha = draw(t, 0, 1) ? 0.75f : 1.0f;
    also_out(t, add_in(t, 0, s.rows, s.cols, draw_float(t)), 0);
    if (draw(t, 0, 2)) add_in(t, 1, s.rows, s.cols, draw_float(t));
    if (draw(t, 0, 2)) add_vector_in(t, 2, 1, draw_float(t));
}

static void reference_add_scale(struct trial *t) {
    struct operand *x = t->out[0];
    const double factor = (double)t->attr.alpha * (t->in[2] ? t->in[2]->x[0] : 1);
    for (uint64_t i = 0; i < x->view.rows * x->view.cols; i++) {
        const double r = t->in[1] ? t->in[1]->x[i] : 0;
        x->scale[i] = fabs(factor) * (fabs(x->want[i]) + fabs(r));
        x->want[i] = (x->want[i] + r) * factor;
    }
}

/* ---- matrices in another type ---- */

/* x is some of the columns of y; whole packs of it, all of them, or neither. */
static void build_narrow(struct trial *t) {
    struct shape s = draw_shape(t);
    const bool packs = draw(t, 0, 1), all = !draw(t, 0, 3);
    const uint64_t unit = packs ? 8 : 1, cols = s.cols * unit;
    const uint64_t from = all ? 0 : draw(t, 0, 3) * unit, after = all ? 0 : draw(t, 0, 3) * unit;
    t->attr.first_element = from;
    add_in(t, 0, s.rows, cols, draw(t, 0, 3) ? PL_DTYPE_F32 : draw_float(t));
    add_out(t, 0, s.rows, from + cols + after, draw(t, 0, 3) ? narrow_type(t) : draw_float(t));
}

static void reference_narrow(struct trial *t) {
    const struct operand *x = t->in[0];
    struct operand *y = t->out[0];
    const uint64_t from = t->attr.first_element, cols = x->view.cols, width = y->view.cols;
    for (uint64_t i = 0; i < y->view.rows * width; i++) {
        const uint64_t c = i % width;
        const bool inside = c >= from && c < from + cols;
        y->want[i] = inside ? x->x[i / width * cols + c - from] : 0;
    }
}

const struct kernel_case cases_rows[] = {
    {"add_scale", PL_OP_ADD_SCALE, 24, 3e-7, build_add_scale, reference_add_scale},
    {"embed", PL_OP_EMBED, 16, 0, build_embed, reference_embed},
    {"embed_bwd", PL_OP_EMBED_BWD, 16, 1e-6, build_embed_bwd, reference_embed_bwd},
    {"gather_add", PL_OP_GATHER_ADD, 16, 1e-7, build_gather, reference_gather},
    {"scatter_rows", PL_OP_SCATTER_ROWS, 16, 0, build_scatter, reference_scatter},
    {"narrow", PL_OP_NARROW, 32, 0, build_narrow, reference_narrow},
    {"bias_grad", PL_OP_BIAS_GRAD, 16, 1e-6, build_bias, reference_bias},
    {0},
};
