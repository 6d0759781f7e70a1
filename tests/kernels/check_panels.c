/* check_panels.c - a matrix of codes in panels (estimator/program/emit/quantised.c): what is
 * unpacked, and what products make of it, have the bits that the whole matrix gives.
 *
 * Products: panels of rows of W, forward, and of columns, backward; an element of the result is
 * the same sum in either. The CPU's kernels promise that (gemm.c, G1), and what they choose by the
 * shape of a product rounds alike; but a bias is added first or last, so with one there are more
 * tokens than PL_GEMM_FEW_ROWS here. On a GPU the library chooses an algorithm by shape; that of
 * the emulation has only one. */
#include "estimator/base/checked.h"
#include "estimator/ops/quant_layout.h"
#include "estimator/program/program.h"
#include "runtime/kernels/quant.h"
#include "tests/kernels/runners.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* Three blocks a row: nests begin in the middle of rows, and panels in the middle of nests. */
enum { ROWS = 208, COLS = 3 * PL_QUANT_BLOCK, ELEMENTS = ROWS * COLS, TOKENS = 100 };
enum { BLOCKS = ELEMENTS / PL_QUANT_BLOCK, SCRATCH = 40 << 20 };

/* Floats or bf16. */
static struct matter {
    uint8_t codes[ELEMENTS / 2], absmax8[BLOCKS];
    float absmax[BLOCKS], offset;
    float x[TOKENS * COLS], dy[TOKENS * ROWS], bias[ROWS];
    float w[ELEMENTS], panel[ELEMENTS];
    float whole[TOKENS * (ROWS + COLS)], cut[TOKENS * (ROWS + COLS)];
} matter;
static _Alignas(256) uint8_t scratch[SCRATCH]; /* more than a product needs on any GPU */
static void *scratch_copy;                     /* in the runner's memory */

static struct machine machine;
static uint32_t drawn;

static uint32_t draw(void) {
    drawn = drawn * 1664525u + 1013904223u;
    return drawn >> 8;
}

static void setup(void) {
    machine_open(&machine);
}

static void teardown(void) {
    machine_close(&machine);
}

static void fill(float *to, uint64_t n, enum pl_dtype t) {
    for (uint64_t i = 0; i < n; i++) {
        const float f = (float)(draw() % 2001) / 1000.0f - 1.0f;
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        if (t == PL_DTYPE_BF16)
            ((uint16_t *)to)[i] = (uint16_t)(bits >> 16);
        else
            to[i] = f;
    }
}

static void fill_all(enum pl_dtype t) {
    memset(&matter, 0, sizeof matter);
    for (uint32_t i = 0; i < sizeof matter.codes; i++)
        matter.codes[i] = (uint8_t)draw();
    for (uint32_t i = 0; i < BLOCKS; i++)
        matter.absmax8[i] = (uint8_t)draw();
    fill(matter.absmax, BLOCKS, PL_DTYPE_F32);
    matter.offset = 0.5f;
    fill(matter.x, TOKENS * COLS, t);
    fill(matter.dy, TOKENS * ROWS, t);
    fill(matter.bias, ROWS, t);
}

static struct pl_view view(void *p, uint64_t rows, uint64_t cols, enum pl_dtype t) {
    return (struct pl_view){.p = p, .rows = rows, .cols = cols, .ld = cols, .dtype = t};
}

static struct pl_view columns(struct pl_view v, uint64_t col, uint64_t cols) {
    v.p = (char *)v.p + col * pl_dtype_bytes(v.dtype);
    v.cols = cols;
    return v;
}

static void run(const struct runner *r, enum pl_op_kind kind, struct pl_call *c,
                const struct pl_attr *attr) {
    static const struct pl_batch batch = {.first = true, .loss_scale = 1};
    c->attr = attr;
    c->batch = &batch;
    ck_assert_msg(r->kernels[kind](r->dev, c) == PL_ERR_OK, "%s: %s", r->name, pl_op_name(kind));
}

struct panel {
    uint64_t row0, rows, col0, cols;
};
static const struct panel whole = {0, ROWS, 0, COLS};

/* The codes from the nest on in which the panel's first row begins, as the builder gives them. */
static void unpack(const struct runner *r, struct matter *m, const struct panel *p, bool nested,
                   enum pl_dtype t, void *to) {
    const uint64_t begin = p->row0 * COLS, over = begin % PL_QUANT_GROUP, at = begin - over;
    const uint64_t n = over + p->rows * COLS;
    const struct pl_attr attr = {.quant = PL_QUANT_NF4,
                                 .first_element = over + p->col0,
                                 .columns = p->cols < COLS ? COLS : 0};
    struct pl_call c = {0};
    c.in[PL_DEQUANT4_CODES] = view(m->codes + at / 2, n / 2, 1, PL_DTYPE_U8);
    c.in[PL_DEQUANT4_ABSMAX] =
        view(m->absmax + at / (nested ? PL_QUANT_GROUP : PL_QUANT_BLOCK),
             nested ? pl_quant_nests(n) : pl_quant_blocks(n), 1, PL_DTYPE_F32);
    if (nested) {
        c.in[PL_DEQUANT4_ABSMAX8] =
            view(m->absmax8 + at / PL_QUANT_BLOCK, pl_quant_blocks(n), 1, PL_DTYPE_U8);
        c.in[PL_DEQUANT4_OFFSET] = view(&m->offset, 1, 1, PL_DTYPE_F32);
    }
    c.out[PL_DEQUANT4_OUT_W] = view(to, p->rows, p->cols, t);
    run(r, PL_OP_DEQUANT4, &c, &attr);
}

/* Expects of every panel the rows and columns that it has of the whole. */
static void expect_part(const struct runner *r, const struct panel *p, enum pl_dtype t) {
    const uint64_t size = pl_dtype_bytes(t);
    for (uint64_t row = 0; row < p->rows; row++) {
        const char *want = (const char *)matter.w + ((p->row0 + row) * COLS + p->col0) * size;
        const char *got = (const char *)matter.panel + row * p->cols * size;
        ck_assert_msg(memcmp(want, got, p->cols * size) == 0,
                      "%s: row %llu of rows %llu, columns %llu to %llu", r->name,
                      (unsigned long long)row, (unsigned long long)p->row0,
                      (unsigned long long)p->col0, (unsigned long long)(p->col0 + p->cols));
    }
}

static const struct panel panels[] = {
    {0, ROWS, 0, 64},       {0, ROWS, 64, 128},     {0, ROWS, 128, 64}, {0, 16, 0, COLS},
    {16, 80, 0, COLS},      {96, 112, 0, COLS},     {96, 112, 128, 64}, {176, 32, 0, 128},
    {ROWS - 1, 1, 0, COLS}, {ROWS - 1, 1, 128, 64},
};
enum { N_PANELS = sizeof panels / sizeof *panels };

/* _i: nested, type. */
START_TEST(a_panel_is_that_part_of_the_matrix) {
    const bool nested = _i % 2;
    const enum pl_dtype t = _i / 2 ? PL_DTYPE_BF16 : PL_DTYPE_F32;
    drawn = (uint32_t)_i;
    for (uint32_t r = 0; r < machine.n; r++) {
        const struct runner *on = &machine.runners[r];
        machine_turn_to(on);
        for (int i = 0; i < N_PANELS; i++) {
            fill_all(t);
            struct matter *copy = machine_put(on, &matter, sizeof matter);
            struct matter *m = copy ? copy : &matter;
            unpack(on, m, &whole, nested, t, m->w);
            unpack(on, m, &panels[i], nested, t, m->panel);
            machine_take(on, &matter, copy, sizeof matter);
            expect_part(on, &panels[i], t);
        }
    }
}
END_TEST

/* --- products -------------------------------------------------------------------------------- */

static struct pl_view scratch_view(void) {
    return view(scratch_copy ? scratch_copy : scratch, SCRATCH, 1, PL_DTYPE_U8);
}

/* y = x W^T + bias: columns of y. */
static void forward(const struct runner *r, struct matter *m, const struct panel *p,
                    uint64_t tokens, bool bias, enum pl_dtype t, void *y) {
    const struct pl_attr attr = {.alpha = 1};
    const uint64_t size = pl_dtype_bytes(t);
    struct pl_call c = {0};
    unpack(r, m, p, true, t, m->panel);
    c.in[PL_LINEAR_X] = view(m->x, tokens, COLS, t);
    c.in[PL_LINEAR_W] = view(m->panel, p->rows, COLS, t);
    if (bias) c.in[PL_LINEAR_BIAS] = view((char *)m->bias + p->row0 * size, p->rows, 1, t);
    c.in[PL_LINEAR_WS] = scratch_view();
    c.out[PL_LINEAR_OUT_Y] = columns(view(y, tokens, ROWS, t), p->row0, p->rows);
    run(r, PL_OP_LINEAR, &c, &attr);
}

/* dx (+)= dy W: columns of dx. */
static void backward(const struct runner *r, struct matter *m, const struct panel *p,
                     uint64_t tokens, bool add, enum pl_dtype t, void *dx) {
    const struct pl_attr attr = {.alpha = 1, .accumulate = add ? PL_ACC_ADD : PL_ACC_WRITE};
    struct pl_call c = {0};
    unpack(r, m, p, true, t, m->panel);
    c.in[PL_LINEAR_DX_DY] = view(m->dy, tokens, ROWS, t);
    c.in[PL_LINEAR_DX_W] = view(m->panel, ROWS, p->cols, t);
    c.in[PL_LINEAR_DX_WS] = scratch_view();
    c.out[PL_LINEAR_DX_OUT_DX] = columns(view(dx, tokens, COLS, t), p->col0, p->cols);
    if (add) c.in[PL_LINEAR_DX_DX] = c.out[PL_LINEAR_DX_OUT_DX];
    run(r, PL_OP_LINEAR_DX, &c, &attr);
}

/* Panels of `step` rows and of `step` columns; the backward product twice, the second time in
 * addition to the first. */
static void both(const struct runner *r, struct matter *m, uint64_t row_step, uint64_t col_step,
                 uint64_t tokens, bool bias, enum pl_dtype t, void *y) {
    void *dx = (char *)y + TOKENS * ROWS * pl_dtype_bytes(t);
    for (uint64_t row = 0; row < ROWS; row += row_step) {
        const struct panel p = {row, pl_u64_min(row_step, ROWS - row), 0, COLS};
        forward(r, m, &p, tokens, bias, t, y);
    }
    for (int add = 0; add < 2; add++)
        for (uint64_t col = 0; col < COLS; col += col_step) {
            const struct panel p = {0, ROWS, col, pl_u64_min(col_step, COLS - col)};
            backward(r, m, &p, tokens, add, t, dx);
        }
}

static const struct {
    uint64_t tokens;
    bool bias;
    enum pl_dtype dtype;
} products[] = {{TOKENS, true, PL_DTYPE_F32}, {TOKENS, true, PL_DTYPE_BF16},
                {33, false, PL_DTYPE_F32},    {33, true, PL_DTYPE_BF16},
                {5, false, PL_DTYPE_F32},     {5, false, PL_DTYPE_BF16}};
enum { N_PRODUCTS = sizeof products / sizeof *products };

START_TEST(panels_give_the_product_of_the_whole_matrix) {
    static const struct { uint64_t rows, cols; } steps[] = {{16, 64}, {96, 128}, {112, 128}};
    const uint64_t tokens = products[_i].tokens;
    const enum pl_dtype t = products[_i].dtype;
    drawn = (uint32_t)_i;
    for (uint32_t r = 0; r < machine.n; r++) {
        const struct runner *on = &machine.runners[r];
        machine_turn_to(on);
        scratch_copy = machine_put(on, scratch, SCRATCH);
        for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
            fill_all(t);
            struct matter *copy = machine_put(on, &matter, sizeof matter);
            struct matter *m = copy ? copy : &matter;
            both(on, m, ROWS, COLS, tokens, products[_i].bias, t, m->whole);
            both(on, m, steps[s].rows, steps[s].cols, tokens, products[_i].bias, t, m->cut);
            machine_take(on, &matter, copy, sizeof matter);
            ck_assert_msg(memcmp(matter.whole, matter.cut, sizeof matter.whole) == 0,
                          "%s: %llu tokens in panels of %llu rows and %llu columns", on->name,
                          (unsigned long long)tokens, (unsigned long long)steps[s].rows,
                          (unsigned long long)steps[s].cols);
            ck_assert(matter.whole[0] != 0);
        }
        machine_take(on, scratch, scratch_copy, SCRATCH);
    }
}
END_TEST

/* --- refusals -------------------------------------------------------------------------------- */

START_TEST(a_panel_that_no_blocks_make_is_a_broken_plan) {
    const struct {
        uint64_t first, columns, cols;
    } broken[] = {{32, 0, 64},        /* inside a block */
                  {0, COLS, 96},      /* half a block of columns */
                  {0, COLS - 32, 64}, /* rows that begin inside blocks */
                  {0, 64, 128},       /* more columns than there are */
                  {64, COLS, COLS},   /* past the end, all of a row */
                  {COLS, COLS, 64}};  /* past the end, some of it */
    for (uint32_t r = 0; r < machine.n; r++) {
        const struct runner *on = &machine.runners[r];
        const struct pl_attr attr = {.quant = PL_QUANT_NF4,
                                     .first_element = broken[_i].first,
                                     .columns = (uint32_t)broken[_i].columns};
        struct pl_call c = {.attr = &attr};
        c.in[PL_DEQUANT4_CODES] = view(matter.codes, sizeof matter.codes, 1, PL_DTYPE_U8);
        c.in[PL_DEQUANT4_ABSMAX] = view(matter.absmax, BLOCKS, 1, PL_DTYPE_F32);
        c.out[PL_DEQUANT4_OUT_W] = view(matter.w, ROWS, broken[_i].cols, PL_DTYPE_F32);
        machine_turn_to(on);
        ck_assert_int_eq(on->kernels[PL_OP_DEQUANT4](on->dev, &c), PL_ERR_PLAN_BROKEN);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("kernels.panels");
    TCase *tc = tcase_create("panels");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, a_panel_is_that_part_of_the_matrix, 0, 4);
    tcase_add_loop_test(tc, panels_give_the_product_of_the_whole_matrix, 0, N_PRODUCTS);
    tcase_add_loop_test(tc, a_panel_that_no_blocks_make_is_a_broken_plan, 0, 6);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
