/* cases_copy.c - COPY_IN, COPY_OUT. */
#include "tests/kernels/cases.h"

#include <math.h>

struct shape {
    uint64_t rows, cols;
};

/* In half of the rounds the copy is one that the first micro-batch of a step leaves out. */
static void build(struct trial *t) {
    static const struct shape edges[] = {{0, 3}, {1, 1}, {1, 513}, {200, 64}, {65, 129}, {700, 1}};
    struct shape s = {draw(t, 0, 300), draw(t, 1, 200)};
    enum pl_dtype dtype = draw_float(t);
    if (t->round < sizeof edges / sizeof *edges) s = edges[t->round];
    t->attr.not_first = draw(t, 0, 1);
    t->batch.first = draw(t, 0, 1);
    add_in(t, 0, s.rows, s.cols, dtype);
    add_out(t, 0, s.rows, s.cols, dtype);
}

/* Left out, the destination keeps what it held: NaN. */
static void reference(struct trial *t) {
    const struct operand *from = t->in[0], *to = t->out[0];
    bool left_out = t->attr.not_first && t->batch.first;
    for (uint64_t i = 0; i < to->view.rows * to->view.cols; i++)
        to->want[i] = left_out ? (double)NAN : from->x[i];
}

const struct kernel_case cases_copy[] = {
    {"copy_in", PL_OP_COPY_IN, 24, 0, build, reference},
    {"copy_out", PL_OP_COPY_OUT, 24, 0, build, reference},
    {0},
};
