/* harness.c - builds trials, runs them on every runner, checks K1 to K5. */
#include "tests/kernels/harness.h"

#include "estimator/base/checked.h"
#include "estimator/card/cards.h"
#include "tests/kernels/emitted.h"

#include <check.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD_BYTES = 64, ALIGN_BYTES = 256 };

static void *allocate(uint64_t bytes) {
    void *p = calloc(1, bytes ? bytes : 1);
    ck_assert_ptr_nonnull(p);
    return p;
}

/* ---- random choices ---- */

static uint32_t draw_u32(struct trial *t) {
    uint32_t x[4];
    pl_rng_block(&t->rng, t->drawn++, x);
    return x[0];
}

uint64_t draw(struct trial *t, uint64_t low, uint64_t high) {
    return low + draw_u32(t) % (high - low + 1);
}

double draw_normal(struct trial *t) {
    float x[4];
    pl_rng_normal(&t->rng, t->drawn++, x);
    return x[0];
}

/* Every other round is of the kind that plans hold, for which kernels may have a faster way: one
 * storage for all operands, rows that start on multiples of 16 bytes. */
static bool is_plain(const struct trial *t) {
    return t->round % 2;
}

enum pl_dtype narrow_type(const struct trial *t) {
#define ONE(T) PL_DTYPE_##T,
    static const enum pl_dtype all[] = {PL_NARROW_MAP(ONE)};
#undef ONE
    return all[t->round / 4 % (sizeof all / sizeof *all)];
}

enum pl_dtype draw_float(struct trial *t) {
    if (is_plain(t)) return t->round / 2 % 2 ? narrow_type(t) : PL_DTYPE_F32;
    return draw(t, 0, 1) ? narrow_type(t) : PL_DTYPE_F32;
}

/* ---- elements of any type, written for plainness: the kernels have their own conversions ---- */

static uint16_t bf16_of(double value) {
    float f = (float)value;
    uint32_t u, low;
    memcpy(&u, &f, sizeof u);
    if (isnan(f)) return 0x7FC0;
    low = u & 0xFFFF;
    u >>= 16;
    if (low > 0x8000 || (low == 0x8000 && (u & 1))) u++;
    return (uint16_t)u;
}

static double of_bf16(uint16_t h) {
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Rounds to a multiple of the last place, by the rounding of the sum with a number that is so large
 * that its own last place is that. */
static uint16_t f16_of(double value) {
    int exponent;
    const double x = fabs(value);
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    if (isnan(value)) return 0x7E00;
    if (x >= 65520) return sign | 0x7C00;
    (void)frexp(x, &exponent);
    const double place = ldexp(1, exponent < -13 ? -24 : exponent - 11);
    const volatile double large = place * 0x1p52, sum = x + large;
    const double rounded = sum - large;
    if (rounded < 0x1p-14) return sign | (uint16_t)(rounded * 0x1p24);
    (void)frexp(rounded, &exponent);
    return sign | (uint16_t)((exponent + 14) << 10 | ((int)ldexp(rounded, 11 - exponent) - 1024));
}

static double of_f16(uint16_t h) {
    const int exponent = h >> 10 & 31, digits = h & 1023;
    const double x = exponent == 31 ? (digits ? NAN : INFINITY)
                     : exponent     ? ldexp(1024 + digits, exponent - 25)
                                    : ldexp(digits, -24);
    return h & 0x8000 ? -x : x;
}

static void *address(const struct operand *o, uint64_t row, uint64_t col) {
    return (char *)o->view.p + (row * o->view.ld + col) * pl_dtype_bytes(o->view.dtype);
}

static double stored(const struct operand *o, uint64_t row, uint64_t col) {
    const void *p = address(o, row, col);
    switch (o->view.dtype) {
    case PL_DTYPE_F32:
        return *(const float *)p;
    case PL_DTYPE_BF16:
        return of_bf16(*(const uint16_t *)p);
    case PL_DTYPE_F16:
        return of_f16(*(const uint16_t *)p);
    case PL_DTYPE_F64:
        return *(const double *)p;
    case PL_DTYPE_I32:
        return *(const int32_t *)p;
    case PL_DTYPE_U64:
        return (double)*(const uint64_t *)p;
    default:
        return *(const uint8_t *)p;
    }
}

static void store(const struct operand *o, uint64_t row, uint64_t col, double value) {
    void *p = address(o, row, col);
    switch (o->view.dtype) {
    case PL_DTYPE_F32:
        *(float *)p = (float)value;
        break;
    case PL_DTYPE_BF16:
        *(uint16_t *)p = bf16_of(value);
        break;
    case PL_DTYPE_F16:
        *(uint16_t *)p = f16_of(value);
        break;
    case PL_DTYPE_F64:
        *(double *)p = value;
        break;
    case PL_DTYPE_I32:
        *(int32_t *)p = (int32_t)value;
        break;
    case PL_DTYPE_U64:
        *(uint64_t *)p = (uint64_t)value;
        break;
    default:
        *(uint8_t *)p = (uint8_t)value;
        break;
    }
}

double as_stored(enum pl_dtype dtype, double value) {
    if (dtype == PL_DTYPE_F16) return of_f16(f16_of(value));
    return dtype == PL_DTYPE_BF16 ? of_bf16(bf16_of(value)) : (float)value;
}

static bool is_float(enum pl_dtype t) {
    return pl_dtype_is_float(t) || t == PL_DTYPE_F64;
}

/* ---- operands ---- */

static struct operand *add_operand(struct trial *t, uint64_t rows, uint64_t cols, uint64_t pad,
                                   enum pl_dtype dtype, bool output) {
    ck_assert_uint_lt(t->n_operands, MAX_OPERANDS);
    struct operand *o = &t->operands[t->n_operands++];
    uint64_t n = rows * cols;
    o->view = (struct pl_view){.rows = rows, .cols = cols, .ld = cols + pad, .dtype = dtype};
    o->bytes = rows * o->view.ld * pl_dtype_bytes(dtype) + 2 * ALIGN_BYTES + GUARD_BYTES;
    o->memory = allocate(o->bytes);
    memset(o->memory, 0xFF, o->bytes); /* NaN in every float type */
    o->skew = -(uintptr_t)o->memory % ALIGN_BYTES;
    const uint64_t off = is_plain(t) ? 0 : pad % 2 * 4 * pl_dtype_bytes(dtype);
    o->view.p = o->memory + o->skew + GUARD_BYTES - off;
    o->x = allocate(n * sizeof(double));
    o->want = allocate(n * sizeof(double));
    o->scale = allocate(n * sizeof(double));
    o->is_output = output;
    return o;
}

void set_value(struct operand *o, uint64_t row, uint64_t col, double value) {
    store(o, row, col, value);
    *value_at(o, o->x, row, col) = *value_at(o, o->want, row, col) = stored(o, row, col);
}

static void fill(struct trial *t, struct operand *o) {
    for (uint64_t i = 0; i < o->view.rows; i++)
        for (uint64_t j = 0; j < o->view.cols; j++)
            set_value(o, i, j, is_float(o->view.dtype) ? draw_normal(t) : 0);
}

static uint64_t draw_pad(struct trial *t, uint64_t cols) {
    if (is_plain(t)) return (8 - cols % 8) % 8 + 8 * draw(t, 0, 1);
    return draw(t, 0, 1) ? draw(t, 1, 20) : 0;
}

struct operand *add_in(struct trial *t, uint32_t slot, uint64_t rows, uint64_t cols,
                       enum pl_dtype dtype) {
    struct operand *o = add_operand(t, rows, cols, draw_pad(t, cols), dtype, false);
    fill(t, o);
    return t->in[slot] = o;
}

struct operand *add_vector_in(struct trial *t, uint32_t slot, uint64_t n, enum pl_dtype dtype) {
    struct operand *o = add_operand(t, n, 1, 0, dtype, false);
    fill(t, o);
    return t->in[slot] = o;
}

struct operand *add_out(struct trial *t, uint32_t slot, uint64_t rows, uint64_t cols,
                        enum pl_dtype dtype) {
    return t->out[slot] = add_operand(t, rows, cols, draw_pad(t, cols), dtype, true);
}

struct operand *add_vector_out(struct trial *t, uint32_t slot, uint64_t n, enum pl_dtype dtype) {
    return t->out[slot] = add_operand(t, n, 1, 0, dtype, true);
}

static struct operand *add_run(struct trial *t, uint64_t rows, uint64_t cols, enum pl_dtype dtype,
                               bool output) {
    struct operand *o = add_operand(t, rows, cols, 0, dtype, output);
    if (!is_plain(t)) o->view.p = (char *)o->view.p + draw(t, 0, 7) * pl_dtype_bytes(dtype);
    return o;
}

struct operand *add_run_in(struct trial *t, uint32_t slot, uint64_t rows, uint64_t cols,
                           enum pl_dtype dtype) {
    struct operand *o = add_run(t, rows, cols, dtype, false);
    fill(t, o);
    return t->in[slot] = o;
}

struct operand *add_run_out(struct trial *t, uint32_t slot, uint64_t rows, uint64_t cols,
                            enum pl_dtype dtype) {
    return t->out[slot] = add_run(t, rows, cols, dtype, true);
}

void also_out(struct trial *t, struct operand *o, uint32_t out_slot) {
    o->is_output = true;
    t->out[out_slot] = o;
}

void also_in(struct trial *t, struct operand *o, uint32_t in_slot) {
    t->in[in_slot] = o;
}

static bool is_product(enum pl_op_kind kind) {
    return pl_op_rows[kind].cost == PL_COST_PRODUCT;
}

static struct pl_product_matrix matrix_of(const struct operand *o) {
    return (struct pl_product_matrix){o->view.rows, o->view.cols, o->view.dtype};
}

static uint64_t ws_bytes(const struct trial *t, const struct runner *r) {
    const struct pl_traits *traits = &r->dev->traits;
    const enum pl_op_kind kind = t->test->kind;
    if (!is_product(kind))
        return pl_op_workspace_bytes(traits, kind, &t->attr, t->ws_rows, t->ws_cols);
    const struct pl_product_matrix m[] = {matrix_of(t->in[0]), matrix_of(t->in[1]),
                                          matrix_of(t->out[0])};
    return pl_product_workspace_bytes(traits, kind, &t->attr, m);
}

void add_product_ws(struct trial *t, uint32_t slot) {
    add_ws(t, slot, t->in[0]->view.rows, t->in[0]->view.cols);
}

void add_ws(struct trial *t, uint32_t slot, uint64_t rows, uint64_t cols) {
    uint64_t most = 0;
    t->ws_rows = rows;
    t->ws_cols = cols;
    for (uint32_t i = 0; i < t->machine->n; i++)
        most = pl_u64_max(most, ws_bytes(t, &t->machine->runners[i]));
    if (most == 0) return;
    t->in[slot] = add_operand(t, most, 1, 0, PL_DTYPE_U8, true);
    t->ws_in = (int)slot;
}

/* ---- what the builder could emit ---- */

static int type_of(const struct operand *o) {
    return o ? (int)o->view.dtype : EMITTED_ABSENT;
}

static bool is_among_outputs(const struct trial *t, const struct operand *o) {
    bool found = false;
    for (uint32_t i = 0; i < PL_OP_MAX_OUT; i++)
        found = found || t->out[i] == o;
    return found;
}

static bool is_laid_out(const struct operand *o) {
    const uint64_t first = (uint64_t)((unsigned char *)o->view.p - o->memory) - o->skew;
    return !is_float(o->view.dtype) || o->view.dtype == PL_DTYPE_F64 ||
           emitted_layout(o->view.dtype, first, o->view.cols, o->view.ld);
}

/* A head of an odd width could not be rotated. */
static bool is_emitted(const struct trial *t) {
    int in[PL_OP_MAX_IN], out[PL_OP_MAX_OUT];
    char text[EMITTED_TEXT];
    bool emitted = t->attr.head_dim % 2 == 0;
    for (uint32_t i = 0; i < PL_OP_MAX_IN; i++)
        in[i] = is_among_outputs(t, t->in[i]) ? EMITTED_ABSENT : type_of(t->in[i]);
    for (uint32_t i = 0; i < PL_OP_MAX_OUT; i++)
        out[i] = type_of(t->out[i]);
    for (uint32_t i = 0; i < t->n_operands; i++)
        emitted = emitted && is_laid_out(&t->operands[i]);
    emitted_signature(in, out, text);
    return emitted && emitted_storage(t->test->kind, text);
}

/* ---- running ---- */

typedef unsigned char *snapshot[MAX_OPERANDS];

static void take_snapshot(const struct trial *t, snapshot s) {
    for (uint32_t i = 0; i < t->n_operands; i++) {
        s[i] = allocate(t->operands[i].bytes);
        memcpy(s[i], t->operands[i].memory, t->operands[i].bytes);
    }
}

/* The workspace keeps what earlier calls left: NaN before the first, anything later. So a kernel of
 * attention that read more of a tile than T2 of attention.h allows would give NaN. */
static bool is_ws(const struct trial *t, uint32_t operand) {
    return t->ws_in >= 0 && t->in[t->ws_in] == &t->operands[operand];
}

static void restore(const struct trial *t, snapshot s) {
    for (uint32_t i = 0; i < t->n_operands; i++)
        if (!is_ws(t, i)) memcpy(t->operands[i].memory, s[i], t->operands[i].bytes);
}

static void discard(const struct trial *t, snapshot s) {
    for (uint32_t i = 0; i < t->n_operands; i++)
        free(s[i]);
}

static struct pl_view place(const struct trial *t, const struct operand *o,
                            unsigned char *const *mirrors) {
    struct pl_view v = o->view;
    unsigned char *mirror = mirrors[o - t->operands];
    if (mirror) v.p = mirror + ((unsigned char *)v.p - o->memory - o->skew);
    return v;
}

/* Operands travel to the runner's memory and back when it has its own. false: refused. */
static bool call(const struct trial *t, const struct runner *r) {
    unsigned char *mirrors[MAX_OPERANDS] = {0};
    machine_turn_to(r);
    const struct pl_batch batch = machine_describe(r, &t->batch);
    struct pl_call c = {.attr = &t->attr, .batch = &batch};
    for (uint32_t i = 0; i < t->n_operands; i++) {
        const struct operand *o = &t->operands[i];
        mirrors[i] = machine_put(r, o->memory + o->skew, o->bytes - o->skew);
    }
    for (uint32_t i = 0; i < PL_OP_MAX_IN; i++)
        if (t->in[i]) c.in[i] = place(t, t->in[i], mirrors);
    for (uint32_t i = 0; i < PL_OP_MAX_OUT; i++)
        if (t->out[i]) c.out[i] = place(t, t->out[i], mirrors);
    if (t->ws_in >= 0) c.in[t->ws_in].rows = ws_bytes(t, r);
    pl_kernel_fn kernel = r->kernels[t->test->kind];
    ck_assert_msg(kernel != NULL, "%s: no kernel", t->test->name);
    pl_err err = kernel(r->dev, &c);
    const bool must_run = is_emitted(t) && t->attr.head_dim <= pl_card_head_dim(r->dev->traits.sm);
    if (err != PL_ERR_OK && (err != PL_ERR_PLAN_BROKEN || must_run))
        ck_abort_msg("%s: round %u: %s", t->test->name, t->round, pl_err_code(err));
    for (uint32_t i = 0; i < t->n_operands; i++) {
        const struct operand *o = &t->operands[i];
        machine_take(r, o->memory + o->skew, mirrors[i], o->bytes - o->skew);
    }
    return err == PL_ERR_OK;
}

/* Half the distance between neighbours of |x|, at least that of the smallest normal number. */
static double half_unit(enum pl_dtype t, double x) {
    double magnitude = fmax(fabs(x), 1e-38);
    if (t == PL_DTYPE_BF16) return magnitude * 0x1p-8;
    if (t == PL_DTYPE_F16) return fmax(magnitude, 0x1p-14) * 0x1p-11;
    if (t == PL_DTYPE_F32) return magnitude * 0x1p-24;
    return t == PL_DTYPE_F64 ? magnitude * 0x1p-53 : 0;
}

static bool is_close(const struct trial *t, const struct operand *o, double got, double want,
                     double scale) {
    if (isnan(want) || isinf(want)) return isnan(want) ? isnan(got) : got == want;
    if (scale == 0) scale = fabs(want);
    return fabs(got - want) <= t->test->tolerance * scale + half_unit(o->view.dtype, want);
}

/* A ck_assert that holds still writes to a pipe: too slow for one per element. */
static void check_values(const struct trial *t, const char *where) {
    for (uint32_t s = 0; s < PL_OP_MAX_OUT; s++) {
        const struct operand *o = t->out[s];
        if (!o) continue;
        for (uint64_t i = 0; i < o->view.rows; i++)
            for (uint64_t j = 0; j < o->view.cols; j++) {
                double got = stored(o, i, j), want = *value_at(o, o->want, i, j);
                double scale = *value_at(o, o->scale, i, j);
                if (!is_close(t, o, got, want, scale))
                    ck_abort_msg("%s: round %u, %s: output %u [%" PRIu64 ",%" PRIu64
                                 "] of [%" PRIu64 ",%" PRIu64 "] %s is %.9g, not %.9g (scale %.3g)",
                                 t->test->name, t->round, where, s, i, j, o->view.rows,
                                 o->view.cols, pl_dtype_name(o->view.dtype), got, want, scale);
            }
    }
}

/* Bytes [from, to) of an operand must be what they were. */
static void check_untouched(const struct trial *t, const struct operand *o,
                            const unsigned char *old, uint64_t from, uint64_t to,
                            const char *where) {
    if (from < to && memcmp(o->memory + from, old + from, to - from) != 0)
        ck_abort_msg("%s: round %u, %s: operand %d changed outside its window", t->test->name,
                     t->round, where, (int)(o - t->operands));
}

/* K2: what lies before, between and after the rows of an output; all of an input. */
static void check_outside(const struct trial *t, snapshot before, const char *where) {
    for (uint32_t k = 0; k < t->n_operands; k++) {
        const struct operand *o = &t->operands[k];
        uint64_t size = pl_dtype_bytes(o->view.dtype), at = 0;
        uint64_t row = (uint64_t)((unsigned char *)o->view.p - o->memory);
        /* Rows without a gap are one: those of a workspace are its bytes, and millions. */
        const bool whole = o->view.ld == o->view.cols;
        const uint64_t rows = whole ? 1 : o->view.rows;
        const uint64_t row_bytes = (whole ? o->view.rows : 1) * o->view.cols * size;
        for (uint64_t i = 0; o->is_output && i < rows; i++, row += o->view.ld * size) {
            check_untouched(t, o, before[k], at, row, where);
            at = row + row_bytes;
        }
        check_untouched(t, o, before[k], at, o->bytes, where);
    }
}

static void take_outputs(const struct trial *t, snapshot s) {
    for (uint32_t i = 0; i < PL_OP_MAX_OUT; i++) {
        if (!t->out[i]) continue;
        uint64_t k = (uint64_t)(t->out[i] - t->operands);
        if (!s[k]) s[k] = allocate(t->out[i]->bytes);
        memcpy(s[k], t->out[i]->memory, t->out[i]->bytes);
    }
}

static void check_same_bits(const struct trial *t, snapshot expected, const char *where) {
    for (uint32_t s = 0; s < PL_OP_MAX_OUT; s++) {
        const struct operand *o = t->out[s];
        if (o)
            ck_assert_msg(memcmp(o->memory, expected[o - t->operands], o->bytes) == 0,
                          "%s: round %u, %s: output %u has other bits", t->test->name, t->round,
                          where, s);
    }
}

/* K5. */
static void check_refused(const struct trial *t, snapshot before, const char *where) {
    for (uint32_t i = 0; i < t->n_operands; i++)
        if (!is_ws(t, i))
            check_untouched(t, &t->operands[i], before[i], 0, t->operands[i].bytes, where);
}

/* The first runner of a family sets the bits for the others, which have more threads:
 * S2 of simd.h. */
static void run_on(const struct trial *t, const struct runner *r, snapshot before, snapshot first) {
    restore(t, before);
    if (!call(t, r)) {
        check_refused(t, before, r->name);
        return;
    }
    check_values(t, r->name);
    check_outside(t, before, r->name);
    if (r->is_first) {
        take_outputs(t, first);
        restore(t, before);
        ck_assert_msg(call(t, r), "%s: round %u, %s: refused what it had computed", t->test->name,
                      t->round, r->name);
    }
    check_same_bits(t, first, r->name);
}

static void finish_trial(struct trial *t) {
    for (uint32_t i = 0; i < t->n_operands; i++) {
        free(t->operands[i].memory);
        free(t->operands[i].x);
        free(t->operands[i].want);
        free(t->operands[i].scale);
    }
}

/* Returns false if the round is not in the list. */
static bool run_round(const struct kernel_case *test, uint32_t round, const struct machine *m,
                      enum trial_list list) {
    snapshot before, first = {0};
    struct trial t = {.test = test, .machine = m, .round = round, .ws_in = -1};
    t.library_products = m->runners[0].dev->traits.backend == PL_BACKEND_CUDA;
    t.rng = pl_rng_init(20240229, test->kind, round);
    t.attr.alpha = 1.0f;
    t.batch = (struct pl_batch){.first = true, .seed = 7, .step = 3, .loss_scale = 1.0f};
    test->build(&t);
    const bool runs = is_emitted(&t) == (list == TRIALS_EMITTED);
    if (runs) {
        test->reference(&t);
        take_snapshot(&t, before);
        for (uint32_t i = 0; i < m->n; i++)
            run_on(&t, &m->runners[i], before, first);
        discard(&t, first);
        discard(&t, before);
    }
    finish_trial(&t);
    return runs;
}

void run_case(const struct kernel_case *test, enum trial_list list) {
    struct machine m = {0};
    uint32_t ran = 0;
    machine_open(&m);
    for (uint32_t round = 0; round < test->rounds && ran < m.most_rounds; round++)
        ran += run_round(test, round, &m, list);
    machine_close(&m);
    ck_assert_msg(ran || list != TRIALS_EMITTED, "%s: no round is of the builder", test->name);
}

/* ---- references against their own derivative ---- */

void check_gradient(const char *what, double (*loss)(void *ctx), void *ctx, double *x, uint64_t n,
                    const double *gradient) {
    const double h = 1e-5; /* truncation h^2, cancellation 1e-16/h: both near 1e-10 */
    for (uint64_t i = 0; i < n; i++) {
        double kept = x[i];
        x[i] = kept + h;
        double above = loss(ctx);
        x[i] = kept - h;
        double below = loss(ctx);
        x[i] = kept;
        double slope = (above - below) / (2 * h);
        if (!(fabs(slope - gradient[i]) <= 1e-7 * (1 + fabs(slope))))
            ck_abort_msg("%s: d/dx[%" PRIu64 "] is %.9g, the function has %.9g", what, i,
                         gradient[i], slope);
    }
}
