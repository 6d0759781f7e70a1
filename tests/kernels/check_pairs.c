/* check_pairs.c - products of bf16 that one instruction makes of pairs: against double, with the
 * bits of a model of that instruction, and the same bits from any number of threads.
 *
 * Operands are windows of larger matrices, at odd places and with odd distances between rows, since
 * pairs are read where they lie if they can be. */
#include "estimator/base/checked.h"
#include "estimator/ops/scratch/scratch_bytes.h"
#include "estimator/ops/scratch/workspace_gemm.h"
#include "runtime/device/cpu/cpu.h"
#include "runtime/kernels/back_ends.h"
#include "tests/kernels/ref_linear.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_THREADS = 8, MOST_ELEMENTS = 1 << 21, SCRATCH = 64 << 20, ROUNDS = 60 };

static struct pl_device *devices[MOST_THREADS];
static struct pl_cpu_level levels[PL_CPU_MAX_LEVELS]; /* the first multiplies pairs */
static struct {
    uint16_t a[MOST_ELEMENTS], b[MOST_ELEMENTS];
    float c[2][MOST_ELEMENTS], wide_a[MOST_ELEMENTS];
    double x[MOST_ELEMENTS], w[MOST_ELEMENTS], want[MOST_ELEMENTS], magnitude[MOST_ELEMENTS];
} matter;
static _Alignas(256) uint8_t scratch[SCRATCH];
static uint32_t drawn;

static uint32_t draw(uint32_t from, uint32_t to) {
    drawn = drawn * 1664525u + 1013904223u;
    return from + (drawn >> 8) % (to - from + 1);
}

static void setup(void) {
    struct pl_diag d = {0};
    pl_cpu_levels(levels, PL_CPU_MAX_LEVELS);
    for (uint32_t i = 0; i < MOST_THREADS; i++)
        if (pl_device_open(&pl_back_end_cpu, i + 1, PL_NO_BUDGET, &devices[i], &d) != PL_ERR_OK)
            ck_abort_msg("%s", d.message);
}

static void teardown(void) {
    for (uint32_t i = 0; i < MOST_THREADS; i++)
        pl_device_close(&devices[i]);
}

static float widen(uint16_t h) {
    const uint32_t bits = (uint32_t)h << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint16_t narrow(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

/* The kernels that are tested: of a level of the machine that multiplies bf16, or PL_AMX_KERNELS,
 * whose AMX is emulated. */
static const pl_kernel_fn *tested;
static bool has_amx;
#if defined(PL_AMX_KERNELS)
extern const pl_kernel_fn PL_AMX_KERNELS[PL_OP_COUNT];
#endif

/* A window of a matrix of infinities, which would be seen in a result. */
static struct pl_view matrix(uint16_t *p, uint64_t rows, uint64_t cols) {
    const uint64_t ld = cols + draw(0, 3), offset = draw(0, 3);
    ck_assert_uint_le(offset + rows * ld + 2, MOST_ELEMENTS);
    for (uint64_t i = 0; i < offset + rows * ld + 2; i++)
        p[i] = 0x7F80; /* infinity */
    const struct pl_view v = {
        .p = p + offset, .rows = rows, .cols = cols, .ld = ld, .dtype = PL_DTYPE_BF16};
    for (uint64_t i = 0; i < rows; i++)
        for (uint64_t j = 0; j < cols; j++)
            p[offset + i * ld + j] = narrow((float)draw(0, 2000) / 1000.0f - 1.0f);
    return v;
}

static float element(const struct pl_view *v, uint64_t row, uint64_t col) {
    return widen(((const uint16_t *)v->p)[row * v->ld + col]);
}

static struct pl_view result(float *p, uint64_t rows, uint64_t cols) {
    ck_assert_uint_le(rows * cols, MOST_ELEMENTS);
    return (struct pl_view){.p = p, .rows = rows, .cols = cols, .ld = cols, .dtype = PL_DTYPE_F32};
}

struct product {
    enum pl_op_kind kind;
    struct ref_shape s;
    struct pl_attr attr;
    struct pl_view a, b;
};

static struct product draw_product(int round) {
    static const enum pl_op_kind kinds[] = {PL_OP_LINEAR, PL_OP_LINEAR_DX, PL_OP_LINEAR_DW};
    struct product p = {.kind = kinds[round % 3], .attr = {.alpha = (float)draw(1, 8) / 4.0f}};
    p.s = (struct ref_shape){draw(1, 150), draw(1, 400), draw(1, round % 2 ? 1300 : 130)};
    if (round < 3) p.s = (struct ref_shape){450, 800, 530};
    const bool dw = p.kind == PL_OP_LINEAR_DW, forward = p.kind == PL_OP_LINEAR;
    p.a = matrix(matter.a, p.s.m, forward ? p.s.k : p.s.n);
    p.b = matrix(matter.b, dw ? p.s.m : p.s.n, p.s.k);
    return p;
}

static uint64_t result_rows(const struct product *p) {
    return p->kind == PL_OP_LINEAR_DW ? p->s.n : p->s.m;
}

static uint64_t result_cols(const struct product *p) {
    return p->kind == PL_OP_LINEAR ? p->s.n : p->s.k;
}

/* c[rows,cols] by one of these kernels with this number of threads. */
static void multiply(const struct product *p, const pl_kernel_fn *kernels, uint32_t threads,
                     float *c) {
    static const struct pl_batch batch = {.first = true};
    struct pl_call call = {.attr = &p->attr, .batch = &batch};
    struct pl_device *dev = devices[threads - 1];
    call.in[0] = p->a;
    call.in[1] = p->b;
    call.out[0] = result(c, result_rows(p), result_cols(p));
    const struct pl_product_matrix m[] = {{p->a.rows, p->a.cols, p->a.dtype},
                                          {p->b.rows, p->b.cols, p->b.dtype},
                                          {call.out[0].rows, call.out[0].cols, PL_DTYPE_F32}};
    const uint64_t bytes = pl_product_workspace_bytes(&dev->traits, p->kind, &p->attr, m);
    ck_assert_uint_le(bytes, SCRATCH);
    call.in[p->kind == PL_OP_LINEAR ? PL_LINEAR_WS : PL_LINEAR_DX_WS] =
        (struct pl_view){.p = scratch, .rows = bytes, .cols = 1, .ld = 1, .dtype = PL_DTYPE_U8};
    memset(scratch, 0xFF, bytes);
    memset(c, 0xFF, result_rows(p) * result_cols(p) * sizeof *c);
    const pl_kernel_fn kernel = kernels[p->kind];
    ck_assert_int_eq(kernel(dev, &call), PL_ERR_OK);
}

static void take(const struct pl_view *v, double *to) {
    for (uint64_t i = 0; i < v->rows; i++)
        for (uint64_t j = 0; j < v->cols; j++)
            *to++ = element(v, i, j);
}

static void reference(const struct product *p) {
    const uint64_t n = result_rows(p) * result_cols(p);
    take(&p->a, matter.x);
    take(&p->b, matter.w);
    memset(matter.want, 0, n * sizeof *matter.want);
    memset(matter.magnitude, 0, n * sizeof *matter.magnitude);
    void (*const of[])(struct ref_shape, double, const double *, const double *, double *,
                       double *) = {[PL_OP_LINEAR] = ref_linear,
                                    [PL_OP_LINEAR_DX] = ref_linear_dx,
                                    [PL_OP_LINEAR_DW] = ref_linear_dw};
    of[p->kind](p->s, p->attr.alpha, matter.x, matter.w, matter.want, matter.magnitude);
}

/* Products are exact in fp32, so only sums err: by the error of one of n fp32 terms in blocks, as
 * in cases_linear.c. */
#define TOLERANCE 1e-6

START_TEST(products_of_pairs_are_those_of_double_with_the_same_bits_on_any_threads) {
    drawn = (uint32_t)_i;
    const struct product p = draw_product(_i);
    const uint64_t n = result_rows(&p) * result_cols(&p);
    reference(&p);
    multiply(&p, tested, 1, matter.c[0]);
    for (uint64_t i = 0; i < n; i++)
        ck_assert_msg(fabs(matter.c[0][i] - matter.want[i]) <= TOLERANCE * matter.magnitude[i],
                      "%s of %llu x %llu x %llu: element %llu is %.9g, not %.9g",
                      pl_op_name(p.kind), (unsigned long long)p.s.m, (unsigned long long)p.s.n,
                      (unsigned long long)p.s.k, (unsigned long long)i, (double)matter.c[0][i],
                      matter.want[i]);
    for (uint32_t threads = 2; threads <= MOST_THREADS; threads++) {
        multiply(&p, tested, threads, matter.c[1]);
        ck_assert_msg(memcmp(matter.c[0], matter.c[1], n * sizeof(float)) == 0,
                      "%s: other bits from %u threads", pl_op_name(p.kind), threads);
    }
}
END_TEST

/* x y^T of two rows as VDPBF16PS adds pairs: fused, the second of each pair first. */
static float by_pairs(const struct pl_view *x, uint64_t row, const struct pl_view *y,
                      uint64_t col) {
    float sum = 0;
    for (uint64_t k = 0; k < x->cols; k += 2) {
        if (k + 1 < x->cols) sum = fmaf(element(x, row, k + 1), element(y, col, k + 1), sum);
        sum = fmaf(element(x, row, k), element(y, col, k), sum);
    }
    return sum;
}

/* The same as TDPBF16PS adds 16 pairs: the first and the second of all pairs are sums of their own,
 * which are added to each other and then to the sum. Zeros complete the last pairs. */
static float by_tiles(const struct pl_view *x, uint64_t row, const struct pl_view *y,
                      uint64_t col) {
    enum { STEP = 32 };
    float sum = 0;
    for (uint64_t k = 0; k < x->cols; k += STEP) {
        float half[2] = {0};
        for (uint64_t i = k; i < k + STEP && i < x->cols; i++)
            half[i % 2] = fmaf(element(x, row, i), element(y, col, i), half[i % 2]);
        sum += half[0] + half[1];
    }
    return sum;
}

/* T1 of tile.h and A1 of gemm_amx.c. No longer than a block of k, unless AMX adds to sums that are
 * not those of C, and more rows than are multiplied where they lie. */
START_TEST(a_product_has_the_bits_that_pairs_in_order_give) {
    drawn = 1000 + (uint32_t)_i;
    struct product p = {.kind = PL_OP_LINEAR, .attr = {.alpha = 1.0f}};
    p.s = (struct ref_shape){draw(PL_GEMM_PANEL, 120), draw(1, 120), draw(1, 2 * PL_GEMM_DEPTH)};
    if (has_amx && p.s.n % PL_GEMM_LINE) p.s.k *= 4;
    p.a = matrix(matter.a, p.s.m, p.s.k);
    p.b = matrix(matter.b, p.s.n, p.s.k);
    multiply(&p, tested, 2, matter.c[0]);
    for (uint64_t i = 0; i < p.s.m; i++)
        for (uint64_t j = 0; j < p.s.n; j++) {
            const float want = has_amx ? by_tiles(&p.a, i, &p.b, j) : by_pairs(&p.a, i, &p.b, j);
            ck_assert_msg(matter.c[0][i * p.s.n + j] == want, "%llu x %llu x %llu: %a, not %a",
                          (unsigned long long)p.s.m, (unsigned long long)p.s.n,
                          (unsigned long long)p.s.k, (double)matter.c[0][i * p.s.n + j],
                          (double)want);
        }
}
END_TEST

static const pl_kernel_fn *fp32_level(void) {
    uint32_t i = 0;
    while (levels[i].in_bf16)
        i++;
    return pl_back_end_cpu.kernels->tables[levels[i].number];
}

/* A product with an fp32 operand is the same at the level that this one extends. */
START_TEST(other_products_keep_their_bits) {
    drawn = 2000 + (uint32_t)_i;
    struct product p = draw_product(3 + _i);
    const uint64_t n = result_rows(&p) * result_cols(&p);
    for (uint64_t i = 0; i < p.a.rows; i++)
        for (uint64_t j = 0; j < p.a.cols; j++)
            matter.wide_a[i * p.a.cols + j] = element(&p.a, i, j) * 1.001f;
    p.a = result(matter.wide_a, p.a.rows, p.a.cols);
    multiply(&p, tested, 2, matter.c[0]);
    multiply(&p, fp32_level(), 2, matter.c[1]);
    ck_assert_msg(memcmp(matter.c[0], matter.c[1], n * sizeof(float)) == 0,
                  "%s: other bits than at the level that this one extends", pl_op_name(p.kind));
}
END_TEST

static bool passes(const pl_kernel_fn *kernels, bool amx) {
    tested = kernels;
    has_amx = amx;
    Suite *s = suite_create(amx ? "pairs by AMX" : "pairs");
    TCase *tc = tcase_create("products");
    tcase_add_unchecked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, products_of_pairs_are_those_of_double_with_the_same_bits_on_any_threads,
                        0, ROUNDS);
    tcase_add_loop_test(tc, a_product_has_the_bits_that_pairs_in_order_give, 0, 12);
    tcase_add_loop_test(tc, other_products_keep_their_bits, 0, 6);
    tcase_set_timeout(tc, 0);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_set_fork_status(sr, CK_NOFORK);
    srunner_run_all(sr, CK_NORMAL);
    const int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0;
}

int main(void) {
    const uint32_t n = pl_cpu_levels(levels, PL_CPU_MAX_LEVELS);
    bool ok = true;
    if (n == 0 || !levels[0].in_bf16) {
        puts("skipped: needs a processor with AVX512-BF16");
        return 77;
    }
#if defined(PL_AMX_KERNELS)
    ok = passes(PL_AMX_KERNELS, true);
#else
    for (uint32_t i = 0; i < n && levels[i].in_bf16; i++)
        ok &= passes(pl_back_end_cpu.kernels->tables[levels[i].number],
                     strcmp(levels[i].name, "x86-64-v4+amx") == 0);
#endif
    return !ok;
}
