/* check_quant.c - quantising on the host, the search of 8-bit codes in every kernel, refusals.
 *
 * Kernels run on every runner of the machine (runners.h). QUANT_EVERY_FLOAT=1 searches the codes of
 * all fp32 numbers within 1 rather than of those that matter and a sample: over a minute. */
#include "runtime/kernels/quant.h"
#include "runtime/kernels/quant_call.h"
#include "runtime/kernels/rng.h"
#include "tests/kernels/runners.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct machine machine;

static void setup(void) {
    machine_open(&machine);
}

static void teardown(void) {
    machine_close(&machine);
}

static uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float of_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* ---- 8-bit codes ---- */

/* Returns the nearest code by definition: midpoints strictly below x; a negative x never gets the
 * code of 0. */
static int nearest(const float value[PL_QUANT_MAP_SIZE], bool is_signed, float x) {
    int below = 0;
    for (int step = 128; step; step /= 2)
        if (x > (value[below + step - 1] + value[below + step]) * 0.5f) below += step;
    return is_signed && bits_of(x) >> 31 && below == PL_QUANT_SIGNED_ZERO ? below - 1 : below;
}

static int searched(const struct pl_quant_map *m, bool is_signed, float x) {
    const int32_t lower = is_signed ? pl_quant_lower_signed(x) : pl_quant_lower_unsigned(x);
    if (lower < 0 || lower >= PL_QUANT_MAP_SIZE)
        ck_abort_msg("the code below %a is %d", (double)x, lower);
    const float middle = m->midpoint[lower];
    return is_signed ? pl_quant_choose_signed(x, lower, middle)
                     : pl_quant_choose_unsigned(x, lower, middle);
}

static void check_search(const struct pl_quant_map *m, bool is_signed, float x) {
    const int got = searched(m, is_signed, x), want = nearest(m->value, is_signed, x);
    if (got != want) ck_abort_msg("the code of %a is %d, not %d", (double)x, got, want);
}

START_TEST(the_search_finds_the_nearest_of_all_floats) {
    const uint32_t stride = getenv("QUANT_EVERY_FLOAT") ? 1 : 499;
    struct pl_quant_map m;
    pl_quant_map_init(&m, _i);
    for (uint32_t u = 0; u <= bits_of(1.0f); u += stride) {
        check_search(&m, _i, of_bits(u));
        if (_i) check_search(&m, _i, of_bits(u | 0x80000000u));
    }
}
END_TEST

/* Points where a code may change: midpoints, values, ends of decades, and their neighbours. */
enum { NEAR = 2, SPOTS = (2 * PL_QUANT_MAP_SIZE + 8) * (2 * NEAR + 1) };

static int spots(const struct pl_quant_map *m, float *x) {
    int n = 0;
    for (int i = 0; i < 2 * PL_QUANT_MAP_SIZE + 8; i++) {
        const int k = i % PL_QUANT_MAP_SIZE;
        float at = i < PL_QUANT_MAP_SIZE ? m->value[k] : m->midpoint[k];
        if (i >= 2 * PL_QUANT_MAP_SIZE) at = powf(10, -(float)k);
        for (int ulps = -NEAR; ulps <= NEAR; ulps++) {
            const float spot = of_bits(bits_of(at) + (uint32_t)ulps);
            if (fabsf(spot) <= 1) x[n++] = spot;
        }
    }
    return n;
}

START_TEST(the_search_finds_the_nearest_where_codes_change) {
    struct pl_quant_map m;
    float x[SPOTS];
    pl_quant_map_init(&m, _i);
    const int n = spots(&m, x);
    ck_assert_int_gt(n, 2 * PL_QUANT_MAP_SIZE * 2 * NEAR);
    for (int i = 0; i < n; i++)
        if (_i || x[i] >= 0) check_search(&m, _i, x[i]);
}
END_TEST

START_TEST(the_search_stays_in_the_map_for_any_bits) {
    struct pl_quant_map m;
    pl_quant_map_init(&m, _i);
    for (uint64_t u = 0; u <= UINT32_MAX; u += 65521) {
        const int code = searched(&m, _i, of_bits((uint32_t)u));
        if (code < 0 || code >= PL_QUANT_MAP_SIZE)
            ck_abort_msg("the code of %x is %d", (uint32_t)u, code);
    }
    ck_assert_int_lt(searched(&m, _i, INFINITY), PL_QUANT_MAP_SIZE);
    ck_assert_int_ge(searched(&m, _i, NAN), 0);
}
END_TEST

/* ---- the same in kernels ---- */

static struct pl_view vector(void *p, uint64_t n, enum pl_dtype t) {
    return (struct pl_view){.p = p, .rows = n, .cols = 1, .ld = 1, .dtype = t};
}

enum { N = 64 * PL_STATE8_BLOCK, BLOCKS = N / PL_STATE8_BLOCK };

/* Operands of an update of N elements. */
struct tensor {
    float w[N], g[N];
    uint16_t h[N]; /* weights in bf16 */
    uint8_t m[N], v[N];
    float m_absmax[BLOCKS], v_absmax[BLOCKS];
    double clip[2];
};
static struct tensor before, after;

static struct pl_call update_of(struct tensor *t, const struct pl_attr *attr,
                                const struct pl_batch *batch, bool bf16) {
    struct pl_call c = {.attr = attr, .batch = batch};
    c.in[0] = bf16 ? vector(t->h, N, PL_DTYPE_BF16) : vector(t->w, N, PL_DTYPE_F32);
    c.in[1] = vector(t->g, N, PL_DTYPE_F32);
    c.in[2] = vector(t->m, N, PL_DTYPE_U8), c.in[3] = vector(t->v, N, PL_DTYPE_U8);
    c.in[4] = vector(t->clip, 2, PL_DTYPE_F64);
    c.in[5] = vector(t->m_absmax, BLOCKS, PL_DTYPE_F32);
    c.in[6] = vector(t->v_absmax, BLOCKS, PL_DTYPE_F32);
    return c;
}

/* Runs an update of `after`, a copy of `before`, where the runner's kernels reach it. */
static pl_err update(const struct runner *r, const struct pl_attr *attr,
                     const struct pl_batch *batch, bool bf16) {
    memcpy(&after, &before, sizeof after);
    machine_turn_to(r);
    struct tensor *copy = machine_put(r, &after, sizeof after);
    const struct pl_batch described = machine_describe(r, batch);
    struct pl_call c = update_of(copy ? copy : &after, attr, &described, bf16);
    for (int i = 0; i < 5; i++)
        c.out[i] = c.in[i < 1 ? 0 : i < 3 ? i + 1 : i + 2];
    const pl_err err = r->kernels[PL_OP_ADAMW_8BIT](r->dev, &c);
    machine_take(r, &after, copy, sizeof after);
    return err;
}

/* Without memory of earlier steps m is g and v is g^2, and the first of each block is 1, so that
 * values are scaled by 1: the codes are those of the values themselves. */
START_TEST(kernels_find_the_nearest_where_codes_change) {
    static const struct pl_batch batch = {.step = 1, .learning_rate = 1e-3, .epsilon = 1e-8};
    static const struct pl_attr attr = {0};
    struct pl_quant_map maps[2];
    static float x[2 * SPOTS];
    for (int s = 0; s < 2; s++)
        pl_quant_map_init(&maps[s], s);
    int n = spots(&maps[1], x);
    for (int i = spots(&maps[0], x + n), k = n; i > 0; i--, k++)
        x[n++] = sqrtf(fabsf(x[k]));
    ck_assert_int_lt(n, N - BLOCKS);
    memset(&before, 0, sizeof before);
    before.clip[1] = 1;
    for (int i = 0, k = 0; i < N; i++)
        before.g[i] = i % PL_STATE8_BLOCK == 0 ? 1 : x[k++ % n];
    for (uint32_t r = 0; r < machine.n; r++) {
        ck_assert_int_eq(update(&machine.runners[r], &attr, &batch, false), PL_ERR_OK);
        for (int i = 0; i < N; i++) {
            const float g = before.g[i];
            const int m = nearest(maps[1].value, true, g);
            const int v = nearest(maps[0].value, false, g * g);
            if (after.m[i] != m || after.v[i] != v)
                ck_abort_msg("%s: codes of %a are %d and %d, not %d and %d",
                             machine.runners[r].name, (double)g, after.m[i], after.v[i], m, v);
        }
    }
}
END_TEST

static void random_tensor(void) {
    const struct pl_rng rng = pl_rng_init(3, 1, 4);
    memset(&before, 0, sizeof before);
    before.clip[1] = 1;
    for (int i = 0; i < N; i += 4) {
        float x[4];
        pl_rng_normal(&rng, (uint64_t)i, x);
        for (int k = 0; k < 4; k++) {
            before.g[i + k] = 1e-3f * x[k];
            before.h[i + k] = (uint16_t)(bits_of(x[(k + 1) % 4]) >> 16);
            before.w[i + k] = of_bits((uint32_t)before.h[i + k] << 16);
        }
    }
}

/* U1 of update.h. Element e: half e % 8 of block e / 8 of the stream (seed, step, site), as ADAMW
 * has it. */
START_TEST(bf16_weights_round_by_the_bits_of_their_element) {
    static const struct pl_batch batch = {.seed = 11,
                                          .step = 7,
                                          .learning_rate = 1e-3,
                                          .beta1 = 0.9,
                                          .beta2 = 0.999,
                                          .epsilon = 1e-8};
    static const struct pl_attr attr = {.site = 5};
    static float exact[N];
    const struct pl_rng rng = pl_rng_init(batch.seed, batch.step, attr.site);
    random_tensor();
    for (uint32_t r = 0; r < machine.n; r++) {
        ck_assert_int_eq(update(&machine.runners[r], &attr, &batch, false), PL_ERR_OK);
        memcpy(exact, after.w, sizeof exact);
        ck_assert_int_eq(update(&machine.runners[r], &attr, &batch, true), PL_ERR_OK);
        for (uint32_t e = 0; e < N; e++) {
            uint32_t x[4];
            pl_rng_block(&rng, e / 8, x);
            const uint32_t random = x[e % 8 / 2] >> (e % 2 * 16) & 0xFFFF;
            const uint32_t want = (bits_of(exact[e]) + random) >> 16;
            if (after.h[e] != want)
                ck_abort_msg("%s: w[%u] is %04x, not %04x", machine.runners[r].name, e, after.h[e],
                             want);
        }
    }
}
END_TEST

/* ---- refusals ---- */

static pl_err run_update(const struct runner *r, const struct pl_call *c) {
    machine_turn_to(r);
    return r->kernels[PL_OP_ADAMW_8BIT](r->dev, c);
}

/* C1 of quant_call.h. */
START_TEST(an_update_of_unsound_operands_is_a_broken_plan) {
    static const struct pl_batch batch = {.step = 1};
    static const struct pl_attr attr = {0};
    struct pl_call c = update_of(&before, &attr, &batch, false);
    struct pl_view *broken = &c.in[_i < 7 ? _i : 0];
    if (_i == 4) return; /* clip has no size of its own */
    if (_i == 7) {       /* rows that do not lie one after another */
        broken->rows = N / 4, broken->cols = 2, broken->ld = 4;
    } else if (_i == 8) { /* fp32 without an absmax is a moment, codes without are none */
        c.in[5].p = NULL;
    } else {
        broken->rows--;
    }
    for (uint32_t r = 0; r < machine.n; r++)
        ck_assert_int_eq(run_update(&machine.runners[r], &c), PL_ERR_PLAN_BROKEN);
}
END_TEST

/* C2 of quant_call.h. */
START_TEST(a_matrix_of_unsound_operands_is_a_broken_plan) {
    enum { ROWS = 5, COLS = 27, ELEMENTS = ROWS * COLS }; /* 3 blocks, half a byte over */
    static uint8_t codes[ELEMENTS / 2 + 1], absmax8[3];
    static float absmax, offset, w[2 * ELEMENTS];
    const struct pl_attr attr = {.quant = _i == 4 ? PL_QUANT_COUNT : PL_QUANT_NF4};
    struct pl_call c = {.attr = &attr};
    c.in[0] = vector(codes, sizeof codes, PL_DTYPE_U8);
    c.in[1] = vector(&absmax, 1, PL_DTYPE_F32);
    c.in[2] = vector(absmax8, sizeof absmax8, PL_DTYPE_U8);
    c.in[3] = vector(&offset, 1, PL_DTYPE_F32);
    c.out[0] = (struct pl_view){.p = w, .rows = ROWS, .cols = COLS, .ld = COLS};
    c.out[0].dtype = PL_DTYPE_F32;
    if (_i < 3) c.in[_i].rows--;
    if (_i == 3) c.out[0].ld++;
    if (_i == 5) c.in[2].p = NULL; /* then absmax has to hold one a block */
    if (_i == 6) c.in[3].p = NULL;
    for (uint32_t r = 0; r < machine.n; r++) {
        machine_turn_to(&machine.runners[r]);
        ck_assert_int_eq(machine.runners[r].kernels[PL_OP_DEQUANT4](machine.runners[r].dev, &c),
                         PL_ERR_PLAN_BROKEN);
    }
}
END_TEST

START_TEST(mxfp4_of_unsound_operands_is_a_broken_plan) {
    enum { MATRICES = 2, ROWS = 64, COLS = 6, ELEMENTS = ROWS * COLS };
    static uint8_t codes[MATRICES * ELEMENTS / 2], scales[MATRICES * ELEMENTS / 32];
    static float w[MATRICES * ELEMENTS + 1];
    struct pl_attr attr = {.quant = PL_QUANT_MXFP4,
                           .matrices = MATRICES,
                           .matrix_elements = ELEMENTS,
                           .matrix_stride = ROWS};
    struct pl_call c = {.attr = &attr};
    c.in[0] = vector(codes, sizeof codes, PL_DTYPE_U8);
    c.in[1] = vector(scales, sizeof scales, PL_DTYPE_U8);
    c.out[0] = (struct pl_view){.p = w, .rows = MATRICES * ROWS, .cols = COLS, .ld = COLS};
    c.out[0].dtype = PL_DTYPE_F32;
    if (_i == 1 || _i == 2) c.in[_i - 1].rows--;
    if (_i == 3) c.in[1] = vector(w, 2 * ELEMENTS / 32, PL_DTYPE_F32);
    if (_i == 4) c.in[2] = c.in[1];
    if (_i == 5) c.out[0].ld++;
    if (_i == 6) attr.first_element = 64;
    if (_i == 7) attr.columns = 64;
    if (_i == 8) attr.matrix_elements -= COLS, c.out[0].rows -= 2, attr.matrix_stride--;
    if (_i == 9) attr.matrices = 0, c.out[0].cols = c.out[0].ld = 5, c.out[0].rows = 2;
    ck_assert_int_eq(pl_dequant4_is_sound(&c), _i == 0);
    for (uint32_t r = 0; r < machine.n && _i; r++) {
        machine_turn_to(&machine.runners[r]);
        ck_assert_int_eq(machine.runners[r].kernels[PL_OP_DEQUANT4](machine.runners[r].dev, &c),
                         PL_ERR_PLAN_BROKEN);
    }
}
END_TEST

/* ---- a matrix in pieces ---- */

enum { ROWS = 3 * PL_QUANT_NEST + 40, COLS = PL_QUANT_BLOCK, PIECE = 2 * PL_QUANT_NEST };

static struct matrix {
    float whole[ROWS * COLS], pieces[ROWS * COLS], absmax[4], offset;
    uint8_t codes[ROWS * COLS / 2], absmax8[ROWS];
} matrix;

/* Rows [row, row + rows), a block each, into `w`. */
static void dequantise_rows(const struct runner *r, struct matrix *m, uint64_t row, uint64_t rows,
                            float *w) {
    const struct pl_attr attr = {.quant = PL_QUANT_NF4};
    struct pl_call c = {.attr = &attr};
    c.in[0] = vector(m->codes + row * COLS / 2, rows * COLS / 2, PL_DTYPE_U8);
    c.in[1] = vector(m->absmax + row / PL_QUANT_NEST, pl_quant_nests(rows * COLS), PL_DTYPE_F32);
    c.in[2] = vector(m->absmax8 + row, rows, PL_DTYPE_U8);
    c.in[3] = vector(&m->offset, 1, PL_DTYPE_F32);
    c.out[0] = vector(w + row * COLS, rows * COLS, PL_DTYPE_F32);
    ck_assert_int_eq(r->kernels[PL_OP_DEQUANT4](r->dev, &c), PL_ERR_OK);
}

START_TEST(a_matrix_is_the_same_in_pieces_that_begin_where_nests_do) {
    struct matrix start = {.absmax = {0.5f, 0.25f, 2, 1}, .offset = 3};
    for (uint32_t i = 0; i < sizeof start.codes; i++)
        start.codes[i] = (uint8_t)(i * 2654435761u >> 24);
    for (uint32_t i = 0; i < sizeof start.absmax8; i++)
        start.absmax8[i] = (uint8_t)(i * 40503u >> 8);
    for (uint32_t r = 0; r < machine.n; r++) {
        const struct runner *on = &machine.runners[r];
        matrix = start;
        machine_turn_to(on);
        struct matrix *copy = machine_put(on, &matrix, sizeof matrix), *m = copy ? copy : &matrix;
        dequantise_rows(on, m, 0, ROWS, m->whole);
        dequantise_rows(on, m, 0, PIECE, m->pieces);
        dequantise_rows(on, m, PIECE, ROWS - PIECE, m->pieces);
        machine_take(on, &matrix, copy, sizeof matrix);
        ck_assert_msg(memcmp(matrix.whole, matrix.pieces, sizeof matrix.whole) == 0, "%s",
                      on->name);
        ck_assert(matrix.whole[0] != 0 && matrix.whole[ROWS * COLS - 1] != 0);
    }
}
END_TEST

/* ---- 4-bit codes ---- */

static unsigned code_at(const uint8_t *codes, int i) {
    return i % 2 ? codes[i / 2] & 15u : codes[i / 2] >> 4;
}

/* Q1 of quant.h. */
START_TEST(a_weight_takes_the_nearest_value) {
    enum { COUNT = 7 * PL_QUANT_BLOCK + 13 };
    float x[COUNT], absmax[8];
    uint8_t codes[COUNT / 2 + 1];
    const struct pl_rng rng = pl_rng_init(1, 2, 3);
    for (int i = 0; i < COUNT; i++) {
        float four[4];
        pl_rng_normal(&rng, (uint64_t)i, four);
        x[i] = four[0] * 0.02f;
    }
    const float *table = pl_quant_table((enum pl_quant)_i);
    pl_quant_absmax(x, COUNT, absmax);
    pl_quant_codes((enum pl_quant)_i, x, COUNT, absmax, codes);
    for (int i = 0; i < COUNT; i++) {
        const double unit = (double)x[i] / (double)absmax[i / PL_QUANT_BLOCK];
        const double off = fabs(unit - (double)table[code_at(codes, i)]);
        for (int k = 0; k < PL_QUANT_LEVELS; k++)
            if (off > fabs(unit - (double)table[k]) + 2e-7)
                ck_abort_msg("%.9g took code %u, %d is nearer", unit, code_at(codes, i), k);
    }
}
END_TEST

/* Zeros, the smallest numbers there are, infinity, NaN: one block each. */
START_TEST(values_out_of_the_ordinary_have_codes_too) {
    enum { COUNT = 4 * PL_QUANT_BLOCK };
    float x[COUNT] = {0}, absmax[4];
    uint8_t codes[COUNT / 2];
    const unsigned zero = _i == PL_QUANT_NF4 ? 7 : 0;
    for (int i = 0; i < PL_QUANT_BLOCK; i++)
        x[PL_QUANT_BLOCK + i] = of_bits((uint32_t)i);
    x[2 * PL_QUANT_BLOCK + 5] = -INFINITY;
    x[3 * PL_QUANT_BLOCK + 5] = NAN;
    x[3 * PL_QUANT_BLOCK + 6] = 2;
    pl_quant_absmax(x, COUNT, absmax);
    ck_assert_float_eq(absmax[0], 0);
    ck_assert_float_eq(absmax[1], of_bits(PL_QUANT_BLOCK - 1));
    ck_assert_float_eq(absmax[2], INFINITY);
    ck_assert_float_eq(absmax[3], 2);
    pl_quant_codes((enum pl_quant)_i, x, COUNT, absmax, codes);
    for (int i = 0; i < 2 * PL_QUANT_BLOCK; i++)
        ck_assert_uint_eq(code_at(codes, i), zero);
    ck_assert_float_eq(pl_quant_table((enum pl_quant)_i)[code_at(codes, 3 * PL_QUANT_BLOCK + 6)],
                       1);
}
END_TEST

/* An odd count ends in the code of 0, and nothing comes after it. */
START_TEST(an_odd_count_ends_in_half_a_byte) {
    const float x[3] = {1, -1, 1}, absmax = 1;
    uint8_t codes[3] = {0xEE, 0xEE, 0xEE};
    const uint8_t want[2][3] = {{0xF0, 0xF7, 0xEE}, {0x3B, 0x30, 0xEE}};
    pl_quant_codes((enum pl_quant)_i, x, 3, &absmax, codes);
    ck_assert_mem_eq(codes, want[_i], 3);
}
END_TEST

START_TEST(equal_absmax_are_kept_by_the_offset) {
    const float absmax[3] = {0.75f, 0.75f, 0.75f};
    float absmax2, back[3];
    uint8_t codes[3];
    pl_quant_nest(absmax, 3, 0.75f, codes, &absmax2);
    ck_assert_float_eq(absmax2, 0);
    pl_quant_unnest(codes, &absmax2, 0.75f, 3, back);
    ck_assert_mem_eq(back, absmax, sizeof back);
}
END_TEST

int main(void) {
    Suite *s = suite_create("quant");
    TCase *host = tcase_create("host"), *kernels = tcase_create("kernels");
    tcase_set_timeout(host, 600);
    tcase_add_loop_test(host, the_search_finds_the_nearest_of_all_floats, 0, 2);
    tcase_add_loop_test(host, the_search_finds_the_nearest_where_codes_change, 0, 2);
    tcase_add_loop_test(host, the_search_stays_in_the_map_for_any_bits, 0, 2);
    tcase_add_loop_test(host, a_weight_takes_the_nearest_value, 0, PL_QUANT_MXFP4);
    tcase_add_loop_test(host, values_out_of_the_ordinary_have_codes_too, 0, PL_QUANT_MXFP4);
    tcase_add_loop_test(host, an_odd_count_ends_in_half_a_byte, 0, PL_QUANT_MXFP4);
    tcase_add_test(host, equal_absmax_are_kept_by_the_offset);
    tcase_add_checked_fixture(kernels, setup, teardown);
    tcase_set_timeout(kernels, 120);
    tcase_add_test(kernels, kernels_find_the_nearest_where_codes_change);
    tcase_add_test(kernels, bf16_weights_round_by_the_bits_of_their_element);
    tcase_add_loop_test(kernels, an_update_of_unsound_operands_is_a_broken_plan, 0, 9);
    tcase_add_test(kernels, a_matrix_is_the_same_in_pieces_that_begin_where_nests_do);
    tcase_add_loop_test(kernels, a_matrix_of_unsound_operands_is_a_broken_plan, 0, 7);
    tcase_add_loop_test(kernels, mxfp4_of_unsound_operands_is_a_broken_plan, 0, 10);
    suite_add_tcase(s, host);
    suite_add_tcase(s, kernels);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
