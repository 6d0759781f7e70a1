/* check_hopper.c - attention by the matrix instructions of sm_90a: the bits of the kernels for
 * earlier GPUs, which cuda.conformance holds against a reference. */
#include "estimator/ops/half.h"
#include "estimator/ops/scratch/scratch_bytes.h"
#include "runtime/device/device.h"
#include "runtime/kernels/back_ends.h"
#include "tests/cuda_sim/sim.h"
#include "tests/kernels/runners.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HOPPER, AMPERE = 2 }; /* runners of machine_cuda.c */
enum { MOST_ROWS = 512, HEADS = 4, KV_HEADS = 2, MOST_DIM = 128, MOST_GAP = 24, MOST_SEQS = 4 };

static const struct shape {
    uint32_t dim, window, lengths[MOST_SEQS];
    bool sinks;
    uint32_t parts; /* of a group */
    enum pl_dtype out;
    uint32_t unused, gap; /* rows after the last sequence, and columns between rows: NaN */
} shapes[] = {
    {128, 0, {1, 130, 200, 64}, false, 0, PL_DTYPE_BF16, 70, 0},
    {128, 100, {300, 0, 129, 7}, true, 2, PL_DTYPE_F32, 1, 8},
    {64, 0, {65, 63, 1, 300}, true, 0, PL_DTYPE_BF16, 0, 24},
    {64, 1, {128, 2, 0, 200}, false, 2, PL_DTYPE_F32, 130, 0},
    {40, 33, {257, 64, 31, 3}, false, 0, PL_DTYPE_BF16, 9, 16},
    {112, 0, {190, 128, 0, 66}, false, 2, PL_DTYPE_BF16, 63, 0},
    {8, 0, {400, 1, 1, 1}, false, 0, PL_DTYPE_F32, 0, 0},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static struct machine machine;

static void open_all(void) {
    machine_open(&machine);
}

static void close_all(void) {
    machine_close(&machine);
}

enum { MOST = MOST_ROWS * HEADS * MOST_DIM };

struct result {
    unsigned char o[MOST * 4], dq[MOST * 2], dk[MOST * 2], dv[MOST * 2];
    float lse[MOST_ROWS * HEADS];
    uint64_t wgmmas[2]; /* of the forward pass, of the backward pass */
};

/* Numbers about 0, which both narrow types hold. */
static void draw(uint16_t *x, size_t n, enum pl_dtype dtype, unsigned *seed) {
    for (size_t i = 0; i < n; i++) {
        const int drawn = (int)((*seed = *seed * 1103515245u + 12345u) >> 16 & 0xFF) - 128;
        const float f = (float)drawn / 32;
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        x[i] = dtype == PL_DTYPE_F16 ? pl_half_narrow(f) : (uint16_t)(bits >> 16);
    }
}

/* The operands of a call, on the device. */
struct problem {
    const struct runner *r;
    struct pl_attr attr;
    struct pl_batch batch;
    uint64_t rows, cols, kv_cols;
    uint64_t used, gap; /* rows of sequences; columns between rows of inputs */
    enum pl_dtype dtype;
    struct pl_view q, k, v, go, offsets, sinks, o, lse;
};

static struct pl_view on(const struct problem *p, const void *host, uint64_t rows, uint64_t cols,
                         enum pl_dtype dtype) {
    const uint64_t bytes = rows * cols * pl_dtype_bytes(dtype);
    return (struct pl_view){machine_put(p->r, host, bytes), rows, cols, cols, dtype};
}

/* Rows of sequences are drawn; what no kernel may use is NaN. */
static struct pl_view drawn(const struct problem *p, uint64_t cols, unsigned seed) {
    static uint16_t x[MOST_ROWS * (HEADS * MOST_DIM + MOST_GAP)];
    const uint64_t ld = cols + p->gap;
    memset(x, 0xFF, p->rows * ld * sizeof *x);
    for (uint64_t row = 0; row < p->used; row++)
        draw(x + row * ld, cols, p->dtype, &seed);
    struct pl_view v = on(p, x, p->rows, ld, p->dtype);
    v.cols = cols;
    return v;
}

static void take(const struct problem *p, void *host, const struct pl_view *v) {
    machine_take(p->r, host, v->p, v->rows * v->ld * pl_dtype_bytes(v->dtype));
}

static struct problem set_up(const struct runner *r, const struct shape *s, enum pl_dtype dtype,
                             struct result *out) {
    static const float sinks[HEADS] = {-3, 0, 2, 40};
    int32_t offsets[MOST_SEQS + 1] = {0};
    struct problem p = {.r = r,
                        .dtype = dtype,
                        .cols = HEADS * s->dim,
                        .kv_cols = KV_HEADS * s->dim,
                        .gap = s->gap};
    for (int i = 0; i < MOST_SEQS; i++)
        offsets[i + 1] = offsets[i] + (int32_t)s->lengths[i];
    p.used = (uint64_t)offsets[MOST_SEQS];
    p.rows = p.used + s->unused;
    ck_assert_uint_le(p.rows, MOST_ROWS);
    p.attr = (struct pl_attr){.heads = HEADS,
                              .kv_heads = KV_HEADS,
                              .head_dim = s->dim,
                              .window = s->window,
                              .key_parts = s->parts,
                              .scale = 1 / sqrtf((float)s->dim)};
    machine_turn_to(r);
    const struct pl_batch batch = {.n_tokens = p.rows, .n_seqs = MOST_SEQS, .max_len = MOST_ROWS};
    p.batch = machine_describe(r, &batch);
    p.q = drawn(&p, p.cols, 1);
    p.k = drawn(&p, p.kv_cols, 2);
    p.v = drawn(&p, p.kv_cols, 3);
    p.go = drawn(&p, p.cols, 4);
    p.offsets = on(&p, offsets, MOST_SEQS + 1, 1, PL_DTYPE_I32);
    if (s->sinks) p.sinks = on(&p, sinks, HEADS, 1, PL_DTYPE_F32);
    memset(out, 0, sizeof *out);
    p.o = on(&p, out->o, p.rows, p.cols, s->out == PL_DTYPE_F32 ? s->out : dtype);
    p.lse = on(&p, out->lse, p.rows, HEADS, PL_DTYPE_F32);
    return p;
}

static uint64_t run(const struct problem *p, enum pl_op_kind kind, struct pl_call *c) {
    const uint64_t before = plsim_counters.wgmmas;
    c->attr = &p->attr;
    c->batch = &p->batch;
    ck_assert_int_eq(p->r->kernels[kind](p->r->dev, c), PL_ERR_OK);
    return plsim_counters.wgmmas - before;
}

static uint64_t run_backward(const struct problem *p, struct result *out) {
    const uint64_t ws =
        pl_op_workspace_bytes(&p->r->dev->traits, PL_OP_ATTENTION_BWD, &p->attr, p->rows, p->cols);
    struct pl_call c = {.in = {p->q, p->k, p->v, p->o, p->lse, p->go, p->offsets}};
    c.in[7] = (struct pl_view){calloc(1, ws), ws, 1, 1, PL_DTYPE_U8};
    c.out[0] = on(p, out->dq, p->rows, p->cols, p->dtype);
    c.out[1] = on(p, out->dk, p->rows, p->kv_cols, p->dtype);
    c.out[2] = on(p, out->dv, p->rows, p->kv_cols, p->dtype);
    void *const scratch = c.in[7].p;
    c.in[7] = on(p, scratch, ws, 1, PL_DTYPE_U8);
    free(scratch);
    const uint64_t wgmmas = run(p, PL_OP_ATTENTION_BWD, &c);
    take(p, out->dq, &c.out[0]);
    take(p, out->dk, &c.out[1]);
    take(p, out->dv, &c.out[2]);
    ck_assert_int_eq(cudaFree(c.in[7].p), cudaSuccess);
    return wgmmas;
}

static void attend(const struct runner *r, const struct shape *s, enum pl_dtype dtype,
                   struct result *out) {
    const struct problem p = set_up(r, s, dtype, out);
    struct pl_call c = {.in = {p.q, p.k, p.v, p.offsets}, .out = {p.o, p.lse}};
    c.in[PL_ATTENTION_SINKS] = p.sinks;
    out->wgmmas[0] = run(&p, PL_OP_ATTENTION, &c);
    out->wgmmas[1] = run_backward(&p, out);
    take(&p, out->o, &p.o);
    take(&p, out->lse, &p.lse);
    const struct pl_view *const in[] = {&p.q, &p.k, &p.v, &p.go, &p.offsets, &p.sinks};
    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        if (in[i]->p) ck_assert_int_eq(cudaFree(in[i]->p), cudaSuccess);
}

static void need_bits_of_ampere(const struct shape *s, enum pl_dtype dtype, struct result *hopper) {
    static struct result ampere;
    attend(&machine.runners[HOPPER], s, dtype, hopper);
    attend(&machine.runners[AMPERE], s, dtype, &ampere);
    for (int i = 0; i < 2; i++)
        ck_assert_uint_eq(ampere.wgmmas[i], 0);
    ck_assert(memcmp(hopper->lse, ampere.lse, sizeof ampere.lse) == 0);
    ck_assert(memcmp(hopper->o, ampere.o, sizeof ampere.o) == 0);
    ck_assert(memcmp(hopper->dq, ampere.dq, sizeof ampere.dq) == 0);
    ck_assert(memcmp(hopper->dk, ampere.dk, sizeof ampere.dk) == 0);
    ck_assert(memcmp(hopper->dv, ampere.dv, sizeof ampere.dv) == 0);
}

START_TEST(hopper_gives_the_bits_of_ampere) {
    static const enum pl_dtype dtypes[] = {PL_DTYPE_BF16, PL_DTYPE_F16};
    static struct result hopper;
    need_bits_of_ampere(&shapes[_i / 2], dtypes[_i % 2], &hopper);
    for (int i = 0; i < 2; i++)
        ck_assert_uint_gt(hopper.wgmmas[i], 0);
}
END_TEST

/* A driver before CUDA 12 makes no tensor maps. */
START_TEST(without_maps_other_kernels_run) {
    static struct result hopper;
    ck_assert_int_eq(setenv("PLSIM_DRIVER", "11080", 1), 0);
    need_bits_of_ampere(&shapes[0], PL_DTYPE_BF16, &hopper);
    for (int i = 0; i < 2; i++)
        ck_assert_uint_eq(hopper.wgmmas[i], 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("hopper");
    TCase *tc = tcase_create("bits");
    tcase_set_timeout(tc, 240);
    tcase_add_checked_fixture(tc, open_all, close_all);
    tcase_add_loop_test(tc, hopper_gives_the_bits_of_ampere, 0, 2 * SHAPES);
    tcase_add_test(tc, without_maps_other_kernels_run);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
