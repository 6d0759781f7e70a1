/* cases_norm.c - RMSNORM, ADD_RMSNORM, RENORM, RMSNORM_BWD, QK_NORM, QK_NORM_BWD, ROPE. */
#include "tests/kernels/cases.h"
#include "tests/kernels/ref_norm.h"

#include <math.h>

#define EPS 1e-6

static struct ref_norm draw_plain(struct trial *t) {
    static const struct ref_norm edges[] = {
        {0, 1, 5, EPS},    {1, 1, 1, EPS},      {1, 1, 513, EPS},  {200, 1, 64, EPS},
        {65, 1, 130, EPS}, {64, 1, 7, EPS},     {3, 1, 1500, EPS}, {400, 1, 3, EPS},
        {2, 1, 700, EPS},  {260, 1, 8328, EPS}, {3, 1, 130, EPS},  {2, 1, 9001, EPS}};
    if (t->round < sizeof edges / sizeof *edges) return edges[t->round];
    return (struct ref_norm){draw(t, 0, 200), 1, draw(t, 1, 600), EPS};
}

static struct ref_norm draw_heads(struct trial *t) {
    static const struct ref_norm edges[] = {{0, 3, 16, EPS},   {1, 1, 24, EPS},   {1, 7, 64, EPS},
                                            {130, 9, 64, EPS}, {64, 1, 128, EPS}, {65, 3, 256, EPS},
                                            {5, 2, 600, EPS},  {70, 5, 1, EPS}};
    if (t->round < sizeof edges / sizeof *edges) return edges[t->round];
    static const uint64_t dims[] = {16, 24, 64, 96, 128, 256};
    return (struct ref_norm){draw(t, 0, 150), draw(t, 1, 5), dims[draw(t, 0, 5)], EPS};
}

static struct ref_norm start(struct trial *t, bool per_head) {
    struct ref_norm s = per_head ? draw_heads(t) : draw_plain(t);
    t->attr.head_dim = per_head ? (uint32_t)s.dim : 0;
    t->attr.eps = (float)EPS;
    t->attr.unit_offset = draw(t, 0, 1);
    s.eps = (double)t->attr.eps;
    return s;
}

static struct ref_norm shape_of(const struct trial *t, const struct operand *x) {
    const uint64_t dim = t->attr.head_dim ? t->attr.head_dim : x->view.cols;
    return (struct ref_norm){x->view.rows, x->view.cols / dim, dim, (double)t->attr.eps};
}

/* The weights that norms multiply by. Between calls only one of them is in use. */
static const double *weights_of(const struct trial *t, const struct operand *w) {
    static double offset[16384];
    for (uint64_t i = 0; !w && i < t->attr.head_dim; i++)
        offset[i] = 1;
    if (!w) return offset;
    if (!t->attr.unit_offset) return w->x;
    for (uint64_t i = 0; i < w->view.rows; i++)
        offset[i] = 1 + w->x[i];
    return offset;
}

/* ---- forward ---- */

static void build_norm(struct trial *t, bool per_head) {
    const struct ref_norm s = start(t, per_head);
    add_in(t, 0, s.rows, s.heads * s.dim, draw_float(t));
    if (!per_head || draw(t, 0, 2)) add_vector_in(t, 1, s.dim, draw_float(t));
    add_out(t, 0, s.rows, s.heads * s.dim, draw_float(t));
    add_out(t, 1, s.rows, s.heads, PL_DTYPE_F32);
}
static void build_rmsnorm(struct trial *t) {
    build_norm(t, false);
}
static void build_qk_norm(struct trial *t) {
    build_norm(t, true);
}

static void reference_norm(struct trial *t) {
    const struct ref_norm s = shape_of(t, t->in[0]);
    ref_norm_rstd(s, t->in[0]->x, t->out[1]->want);
    ref_norm_scale(s, t->in[0]->x, weights_of(t, t->in[1]), t->out[1]->want, t->out[0]->want);
}

/* The norm is of x as stored: where x is bf16, of the rounded sum. Numbers with few bits make the
 * sum exact in either type, so that the reference need not round. */
static void build_add_rmsnorm(struct trial *t) {
    const struct ref_norm s = start(t, false);
    struct operand *x = add_in(t, 0, s.rows, s.dim, draw_float(t));
    struct operand *r = add_in(t, 1, s.rows, s.dim, draw_float(t));
    add_vector_in(t, 2, s.dim, draw_float(t));
    also_out(t, x, 0);
    add_out(t, 1, s.rows, s.dim, draw_float(t));
    add_out(t, 2, s.rows, 1, PL_DTYPE_F32);
    for (uint64_t i = 0; i < s.rows * s.dim; i++) {
        set_value(x, i / s.dim, i % s.dim, ((double)draw(t, 0, 64) - 32) / 16);
        set_value(r, i / s.dim, i % s.dim, ((double)draw(t, 0, 64) - 32) / 16);
    }
}

static void reference_add_rmsnorm(struct trial *t) {
    struct operand *x = t->out[0];
    const struct ref_norm s = shape_of(t, x);
    for (uint64_t i = 0; i < s.rows * s.dim; i++)
        x->want[i] += t->in[1]->x[i];
    ref_norm_rstd(s, x->want, t->out[2]->want);
    ref_norm_scale(s, x->want, weights_of(t, t->in[2]), t->out[2]->want, t->out[1]->want);
}

static void build_renorm(struct trial *t) {
    const struct ref_norm s = start(t, false);
    add_in(t, 0, s.rows, s.dim, draw_float(t));
    add_vector_in(t, 1, s.dim, draw_float(t));
    add_in(t, 2, s.rows, 1, PL_DTYPE_F32);
    add_out(t, 0, s.rows, s.dim, draw_float(t));
}

static void reference_renorm(struct trial *t) {
    ref_norm_scale(shape_of(t, t->in[0]), t->in[0]->x, weights_of(t, t->in[1]), t->in[2]->x,
                   t->out[0]->want);
}

/* ---- backward ---- */

static void add_rstd(struct trial *t, struct ref_norm s) {
    struct operand *rstd = add_in(t, 3, s.rows, s.heads, PL_DTYPE_F32);
    ref_norm_rstd(s, t->in[1]->x, rstd->want);
    for (uint64_t i = 0; i < s.rows * s.heads; i++)
        set_value(rstd, i / s.heads, i % s.heads, rstd->want[i]);
}

static void add_dw(struct trial *t, struct ref_norm s, uint32_t in_slot) {
    t->attr.accumulate = (enum pl_accumulate)draw(t, 0, 2);
    t->batch.first = draw(t, 0, 1);
    const struct pl_call c = {.attr = &t->attr, .batch = &t->batch};
    if (pl_call_adds(&c))
        also_out(t, add_vector_in(t, in_slot, s.dim, draw_float(t)), 1);
    else
        also_in(t, add_vector_out(t, 1, s.dim, draw_float(t)), in_slot);
}

/* dx: a tensor of its own, written or added to; dy itself; or absent. dw: absent or not. */
static void build_rmsnorm_bwd(struct trial *t) {
    const struct ref_norm s = start(t, false);
    struct operand *dy = add_in(t, 0, s.rows, s.dim, draw_float(t));
    add_in(t, 1, s.rows, s.dim, draw_float(t));
    add_vector_in(t, 2, s.dim, draw_float(t));
    add_rstd(t, s);
    const uint64_t way = draw(t, 0, 3);
    if (way == 0) also_in(t, add_out(t, 0, s.rows, s.dim, draw_float(t)), 5);
    if (way == 1) also_out(t, add_in(t, 5, s.rows, s.dim, draw_float(t)), 0);
    if (way == 2) {
        also_in(t, dy, 5);
        also_out(t, dy, 0);
    }
    t->attr.add_dx = way == 1;
    if (way == 3 || draw(t, 0, 2)) {
        add_ws(t, 4, s.rows, s.dim);
        add_dw(t, s, 6);
    }
}

static void build_qk_norm_bwd(struct trial *t) {
    const struct ref_norm s = start(t, true);
    also_out(t, add_in(t, 0, s.rows, s.heads * s.dim, draw_float(t)), 0);
    add_in(t, 1, s.rows, s.heads * s.dim, draw_float(t));
    if (draw(t, 0, 3)) add_vector_in(t, 2, s.dim, draw_float(t));
    add_rstd(t, s);
    if (t->in[2] && draw(t, 0, 2)) {
        add_ws(t, 4, s.rows, s.heads * s.dim);
        add_dw(t, s, 5);
    }
}

static void reference_norm_bwd(struct trial *t) {
    const struct ref_norm s = shape_of(t, t->in[0]);
    struct operand *dx = t->out[0], *dw = t->out[1];
    const struct pl_call c = {.attr = &t->attr, .batch = &t->batch};
    for (uint64_t i = 0; dx && i < s.rows * s.heads * s.dim; i++) {
        if (!t->attr.add_dx) dx->want[i] = 0;
        dx->scale[i] = fabs(dx->want[i]);
    }
    for (uint64_t i = 0; dw && i < s.dim; i++) {
        if (!pl_call_adds(&c)) dw->want[i] = 0;
        dw->scale[i] = fabs(dw->want[i]);
    }
    ref_norm_bwd(s, t->in[0]->x, t->in[1]->x, weights_of(t, t->in[2]), t->in[3]->x,
                 dx ? dx->want : NULL, dx ? dx->scale : NULL, dw ? dw->want : NULL,
                 dw ? dw->scale : NULL);
}

/* ---- rope ---- */

/* Partial rotations, and a second table that only long sequences use. */
static void build_rope(struct trial *t) {
    static const uint32_t dims[] = {2, 16, 24, 64, 96, 128, 256};
    const uint64_t rows = t->round == 0 ? 0 : t->round == 1 ? 1 : draw(t, 0, 200);
    const uint64_t positions = draw(t, 1, 90), heads = draw(t, 1, 7);
    t->attr.head_dim = dims[draw(t, 0, 6)];
    t->attr.rot_dim =
        draw(t, 0, 1) ? t->attr.head_dim : 2 * (uint32_t)draw(t, 1, t->attr.head_dim / 2);
    t->attr.inverse = draw(t, 0, 1);
    t->attr.long_from = 40;
    t->batch.max_len = draw(t, 39, 42);
    also_out(t, add_in(t, 0, rows, heads * t->attr.head_dim, draw_float(t)), 0);
    struct operand *pos = add_vector_in(t, 1, rows, PL_DTYPE_I32);
    for (uint64_t i = 0; i < rows; i++)
        set_value(pos, i, 0, (double)draw(t, 0, positions - 1));
    add_in(t, 2, positions, t->attr.rot_dim, PL_DTYPE_F32);
    if (draw(t, 0, 1)) add_in(t, 3, positions, t->attr.rot_dim, PL_DTYPE_F32);
}

static void reference_rope(struct trial *t) {
    struct operand *x = t->out[0];
    const bool is_long = t->in[3] && t->batch.max_len > t->attr.long_from;
    const struct ref_rope s = {x->view.rows, x->view.cols / t->attr.head_dim, t->attr.head_dim,
                               t->attr.rot_dim / 2, t->attr.inverse ? -1 : 1};
    ref_rope(s, t->in[1]->x, t->in[is_long ? 3 : 2]->x, x->want, x->scale);
}

const struct kernel_case cases_norm[] = {
    {"rmsnorm", PL_OP_RMSNORM, 20, 1e-6, build_rmsnorm, reference_norm},
    {"add_rmsnorm", PL_OP_ADD_RMSNORM, 20, 1e-6, build_add_rmsnorm, reference_add_rmsnorm},
    {"renorm", PL_OP_RENORM, 20, 1e-6, build_renorm, reference_renorm},
    {"rmsnorm_bwd", PL_OP_RMSNORM_BWD, 40, 1e-6, build_rmsnorm_bwd, reference_norm_bwd},
    {"qk_norm", PL_OP_QK_NORM, 20, 1e-6, build_qk_norm, reference_norm},
    {"qk_norm_bwd", PL_OP_QK_NORM_BWD, 30, 1e-6, build_qk_norm_bwd, reference_norm_bwd},
    {"rope", PL_OP_ROPE, 30, 1e-6, build_rope, reference_rope},
    {0},
};
