/* check_start.c - START, QUANT4 and NEST4 of every runner give the bits of the host. */
#include "tests/kernels/runners.h"

#include "runtime/kernels/quant.h"
#include "runtime/kernels/start.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct machine machine;

static void setup(void) {
    machine_open(&machine);
}
static void teardown(void) {
    machine_close(&machine);
}

/* ---- calls ---- */

enum { GUARD = 64 }; /* bytes after an output that must stay */

struct buffer {
    uint8_t *host;
    uint64_t bytes;
};

static struct buffer make_buffer(uint64_t bytes) {
    struct buffer b = {malloc(bytes + GUARD), bytes + GUARD};
    ck_assert_ptr_nonnull(b.host);
    memset(b.host, 0xA5, b.bytes);
    return b;
}

static struct pl_view view_of(void *p, uint64_t n, enum pl_dtype dtype) {
    return (struct pl_view){.p = p, .rows = n, .cols = 1, .ld = 1, .dtype = dtype};
}

static uint64_t bytes_of(const struct pl_view *v) {
    return v->rows * v->cols * pl_dtype_bytes(v->dtype);
}

/* Runs a call whose operands lie in host memory, outputs in buffers with a guard. */
static pl_err run(const struct runner *r, enum pl_op_kind kind, struct pl_call c) {
    void *host[3] = {c.in[0].p, c.out[0].p, c.out[1].p}, *copy[3];
    struct pl_view *view[3] = {&c.in[0], &c.out[0], &c.out[1]};
    machine_turn_to(r);
    for (int i = 0; i < 3; i++) {
        const uint64_t bytes = bytes_of(view[i]) + (i ? GUARD : 0);
        copy[i] = host[i] ? machine_put(r, host[i], bytes) : NULL;
        if (copy[i]) view[i]->p = copy[i];
    }
    const pl_err err = r->kernels[kind](r->dev, &c);
    for (int i = 0; i < 3; i++)
        if (copy[i]) machine_take(r, host[i], copy[i], bytes_of(view[i]) + (i ? GUARD : 0));
    return err;
}

static uint16_t to_bf16(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (uint16_t)((u + 0x7FFFu + (u >> 16 & 1u)) >> 16);
}

static float from_bf16(uint16_t h) {
    const uint32_t u = (uint32_t)h << 16;
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* n values of the rule as the type keeps them. */
static void expect_values(const struct pl_attr *attr, uint64_t seed, uint64_t n,
                          enum pl_dtype dtype, void *out) {
    const struct pl_start_rule rule = pl_start_rule_of(attr, seed);
    float *x = malloc((n + 1) * sizeof *x);
    ck_assert_ptr_nonnull(x);
    pl_start_values(&rule, attr->first_element, n, x);
    for (uint64_t i = 0; dtype == PL_DTYPE_BF16 && i < n; i++)
        ((uint16_t *)out)[i] = to_bf16(x[i]);
    if (dtype == PL_DTYPE_F32) memcpy(out, x, n * sizeof *x);
    free(x);
}

/* ---- START ---- */

static const struct pl_attr rules[] = {
    {.start = PL_START_NORMAL, .spread = 0.02, .site = 1, .stream = UINT64_C(7) << 32 | 3},
    {.start = PL_START_NORMAL, .spread = 0.02, .site = 1, .first_element = 16388},
    {.start = PL_START_NORMAL, .spread = 1, .first_element = (UINT64_C(1) << 34) - 8},
    {.start = PL_START_UNIFORM, .spread = 0.0220970869120796, .site = 2, .stream = 9},
    {.start = PL_START_UNIFORM, .spread = 1.0 / 3, .first_element = 44},
    {.start = PL_START_CONSTANT, .spread = 1},
    {.start = PL_START_CONSTANT, .spread = 0},
};
enum { RULES = sizeof rules / sizeof *rules };
static const uint64_t lengths[] = {0, 1, 3, 4, 63, 129, 1024, 16385, 40003};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static void assert_start(const struct runner *r, const struct pl_attr *attr, uint64_t n,
                         enum pl_dtype dtype) {
    const struct pl_batch batch = {.seed = UINT64_C(0x1234567890)};
    const uint64_t bytes = n * pl_dtype_bytes(dtype);
    struct buffer got = make_buffer(bytes), want = make_buffer(bytes);
    struct pl_call c = {.attr = attr, .batch = &batch};
    c.out[0] = view_of(got.host, n, dtype);
    expect_values(attr, batch.seed, n, dtype, want.host);
    ck_assert_int_eq(run(r, PL_OP_START, c), PL_ERR_OK);
    for (uint64_t i = 0; i < got.bytes; i++)
        if (got.host[i] != want.host[i])
            ck_abort_msg("%s: %llu values: byte %llu is %02x, not %02x", r->name,
                         (unsigned long long)n, (unsigned long long)i, got.host[i], want.host[i]);
    free(got.host), free(want.host);
}

/* S2 of start.h, M1 of normal.h: in vectors, with fused operations and by each runner. */
START_TEST(starting_values_are_those_of_the_host) {
    for (uint32_t r = 0; r < machine.n; r++)
        for (int i = 0; i < LENGTHS; i++)
            for (int bf16 = 0; bf16 < 2; bf16++)
                assert_start(&machine.runners[r], &rules[_i], lengths[i],
                             bf16 ? PL_DTYPE_BF16 : PL_DTYPE_F32);
}
END_TEST

/* S1 of start.h. A row of a fused matrix begins anywhere. */
START_TEST(starting_values_may_begin_at_any_element) {
    const struct pl_batch batch = {.seed = 5};
    enum { N = 1000 };
    for (uint32_t r = 0; r < machine.n; r++)
        for (uint64_t skew = 1; skew < 9; skew++) {
            struct buffer got = make_buffer(2 * (N + skew)), want = make_buffer(2 * (N + skew));
            machine_turn_to(&machine.runners[r]);
            uint8_t *p = machine_put(&machine.runners[r], got.host, got.bytes);
            struct pl_call c = {.attr = &rules[0], .batch = &batch};
            c.out[0] = view_of((p ? p : got.host) + 2 * skew, N, PL_DTYPE_BF16);
            ck_assert_int_eq(machine.runners[r].kernels[PL_OP_START](machine.runners[r].dev, &c),
                             PL_ERR_OK);
            if (p) machine_take(&machine.runners[r], got.host, p, got.bytes);
            expect_values(&rules[0], batch.seed, N, PL_DTYPE_BF16, want.host + 2 * skew);
            ck_assert_mem_eq(got.host, want.host, got.bytes);
            free(got.host), free(want.host);
        }
}
END_TEST

/* ---- QUANT4, NEST4 ---- */

enum source { FROM_F32, FROM_BF16, FROM_RULE, SOURCES };

/* Fills with values of about any size, a block of zeros, NaN and infinity, as files may hold
 * them. */
static void spread_values(float *x, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        if (i / 64 % 5 == 1) x[i] = 0;
        if (i / 64 % 5 == 2) x[i] *= 1e-30f;
        if (i / 64 % 5 == 3) x[i] *= 1e-20f * 1e-20f;
    }
    if (n > 700) x[650] = INFINITY, x[651] = NAN, x[20] = NAN;
}

static void assert_quant(const struct runner *r, enum source source, enum pl_quant quant,
                         uint64_t n) {
    const struct pl_batch batch = {.seed = 77};
    const uint64_t blocks = pl_quant_blocks(n), half = pl_quant_codes_bytes(n);
    struct pl_attr attr = rules[1];
    struct buffer codes = make_buffer(half), want_codes = make_buffer(half);
    struct buffer absmax = make_buffer(4 * blocks), want_absmax = make_buffer(4 * blocks);
    float *x = malloc((n + 1) * sizeof *x);
    uint16_t *h = malloc((n + 1) * sizeof *h);
    ck_assert(x && h);
    expect_values(&attr, batch.seed, n, PL_DTYPE_F32, x);
    if (source != FROM_RULE) spread_values(x, n);
    for (uint64_t i = 0; source == FROM_BF16 && i < n; i++)
        h[i] = to_bf16(x[i]), x[i] = from_bf16(h[i]);
    pl_quant_absmax(x, n, (float *)(void *)want_absmax.host);
    pl_quant_codes(quant, x, n, (float *)(void *)want_absmax.host, want_codes.host);
    attr.quant = quant;
    struct pl_call c = {.attr = &attr, .batch = &batch};
    c.in[0] = source == FROM_F32    ? view_of(x, n, PL_DTYPE_F32)
              : source == FROM_BF16 ? view_of(h, n, PL_DTYPE_BF16)
                                    : view_of(NULL, n, PL_DTYPE_F32);
    c.out[0] = view_of(codes.host, half, PL_DTYPE_U8);
    c.out[1] = view_of(absmax.host, blocks, PL_DTYPE_F32);
    ck_assert_int_eq(run(r, PL_OP_QUANT4, c), PL_ERR_OK);
    ck_assert_msg(!memcmp(absmax.host, want_absmax.host, absmax.bytes), "%s: absmax of %llu",
                  r->name, (unsigned long long)n);
    ck_assert_msg(!memcmp(codes.host, want_codes.host, codes.bytes), "%s: codes of %llu", r->name,
                  (unsigned long long)n);
    free(x), free(h);
    free(codes.host), free(want_codes.host), free(absmax.host), free(want_absmax.host);
}

START_TEST(codes_and_absmax_are_those_of_the_host) {
    for (uint32_t r = 0; r < machine.n; r++)
        for (int i = 0; i < LENGTHS; i++)
            for (int quant = 0; quant < PL_QUANT_COUNT && pl_quant_has_absmax(quant); quant++)
                assert_quant(&machine.runners[r], _i, quant, lengths[i]);
}
END_TEST

static void assert_nest(const struct runner *r, uint64_t blocks, float offset) {
    const uint64_t nests = blocks / PL_QUANT_NEST + (blocks % PL_QUANT_NEST != 0);
    const struct pl_attr attr = {.offset = offset};
    struct buffer absmax8 = make_buffer(blocks), want8 = make_buffer(blocks);
    struct buffer nested = make_buffer(4 * nests), want = make_buffer(4 * nests);
    float *absmax = malloc((blocks + 1) * sizeof *absmax);
    ck_assert_ptr_nonnull(absmax);
    expect_values(&rules[4], 3, blocks, PL_DTYPE_F32, absmax);
    for (uint64_t b = 0; b < blocks; b++)
        absmax[b] = b / PL_QUANT_NEST == 1 ? offset : fabsf(absmax[b]);
    pl_quant_nest(absmax, blocks, offset, want8.host, (float *)(void *)want.host);
    struct pl_call c = {.attr = &attr};
    c.in[0] = view_of(absmax, blocks, PL_DTYPE_F32);
    c.out[0] = view_of(absmax8.host, blocks, PL_DTYPE_U8);
    c.out[1] = view_of(nested.host, nests, PL_DTYPE_F32);
    ck_assert_int_eq(run(r, PL_OP_NEST4, c), PL_ERR_OK);
    ck_assert_msg(!memcmp(absmax8.host, want8.host, want8.bytes), "%s: codes of %llu absmax",
                  r->name, (unsigned long long)blocks);
    ck_assert_mem_eq(nested.host, want.host, want.bytes);
    free(absmax), free(absmax8.host), free(want8.host), free(nested.host), free(want.host);
}

START_TEST(absmax_in_8_bits_are_those_of_the_host) {
    for (uint32_t r = 0; r < machine.n; r++)
        for (int i = 0; i < LENGTHS; i++)
            assert_nest(&machine.runners[r], lengths[i], i % 2 ? 0.17f : 0.0f);
}
END_TEST

/* ---- refusals ---- */

static void assert_refused(enum pl_op_kind kind, const struct pl_call *c) {
    for (uint32_t r = 0; r < machine.n; r++)
        ck_assert_int_eq(run(&machine.runners[r], kind, *c), PL_ERR_PLAN_BROKEN);
}

START_TEST(unsound_operands_are_a_broken_plan) {
    static float x[4 * 64 + GUARD];
    static uint8_t codes[2 * 64 + GUARD];
    static float absmax[4 + GUARD], nested[1 + GUARD];
    const struct pl_batch batch = {0};
    struct pl_attr attr = {0};
    struct pl_call start = {.attr = &attr, .batch = &batch}, quant = start, nest = start;
    start.out[0] = view_of(x, 4 * 64, PL_DTYPE_F32);
    quant.in[0] = start.out[0];
    quant.out[0] = view_of(codes, 2 * 64, PL_DTYPE_U8);
    quant.out[1] = view_of(absmax, 4, PL_DTYPE_F32);
    nest.in[0] = quant.out[1];
    nest.out[0] = view_of(codes, 4, PL_DTYPE_U8);
    nest.out[1] = view_of(nested, 1, PL_DTYPE_F32);
    struct pl_call c = start;
    c.out[0].dtype = PL_DTYPE_I32;
    assert_refused(PL_OP_START, &c);
    c = start, c.out[0].rows = 8, c.out[0].cols = 8, c.out[0].ld = 9;
    assert_refused(PL_OP_START, &c);
    attr.first_element = 2;
    assert_refused(PL_OP_START, &start);
    attr.first_element = 0;
    c = quant, c.out[0].rows--;
    assert_refused(PL_OP_QUANT4, &c);
    c = quant, c.out[1].rows--;
    assert_refused(PL_OP_QUANT4, &c);
    c = quant, c.in[0].dtype = PL_DTYPE_U8;
    assert_refused(PL_OP_QUANT4, &c);
    attr.quant = PL_QUANT_MXFP4; /* which values are not made codes of */
    assert_refused(PL_OP_QUANT4, &quant);
    c = nest, c.out[0].rows--;
    assert_refused(PL_OP_NEST4, &c);
    c = nest, c.out[1].rows = 0;
    assert_refused(PL_OP_NEST4, &c);
}
END_TEST

int main(void) {
    Suite *s = suite_create("start");
    TCase *tc = tcase_create("kernels");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 240);
    tcase_add_loop_test(tc, starting_values_are_those_of_the_host, 0, RULES);
    tcase_add_test(tc, starting_values_may_begin_at_any_element);
    tcase_add_loop_test(tc, codes_and_absmax_are_those_of_the_host, 0, SOURCES);
    tcase_add_test(tc, absmax_in_8_bits_are_those_of_the_host);
    tcase_add_test(tc, unsound_operands_are_a_broken_plan);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
