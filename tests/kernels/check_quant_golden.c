/* check_quant_golden.c - 4-bit matrices and 8-bit moments against recorded vectors.
 *
 * QUANT_VECTORS names the directory of the vectors; PLIMSOLL_GOLDEN_DIR, when set, a directory with
 * more of them. vectors/README.md says what a file holds. Kernels run on every runner of the
 * machine (runners.h). */
#include "runtime/checkpoint/safetensors.h"
#include "runtime/kernels/quant.h"
#include "tests/kernels/runners.h"

#include <check.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 128 };

/* ---- tensors of a file ---- */

struct tensor {
    void *data; /* NULL = not in the file */
    uint64_t n, bytes;
    enum pl_dtype dtype;
};

static struct pl_st_file file;
static struct machine machine;

static struct tensor find_tensor(const char *format, ...) {
    char name[NAME];
    struct pl_diag d = {0};
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    const struct pl_st_entry *e = pl_st_find(&file, name);
    if (!e) return (struct tensor){0};
    struct tensor t = {.bytes = e->end - e->begin, .dtype = e->dtype};
    t.n = t.bytes / pl_dtype_bytes(t.dtype);
    t.data = malloc(t.bytes + 1);
    ck_assert_ptr_nonnull(t.data);
    if (pl_st_read(&file, e, 0, t.data, t.bytes, &d) != PL_ERR_OK) ck_abort_msg("%s", d.message);
    return t;
}

static struct tensor need(const char *format, const char *a, const char *b) {
    struct tensor t = find_tensor(format, a, b);
    if (!t.data) ck_abort_msg("a tensor %s of %s %s is missing", format, a, b);
    return t;
}

/* Returns the tensor as fp32. */
static float *widened(const struct tensor *t) {
    float *x = malloc((t->n + 1) * sizeof *x);
    ck_assert_ptr_nonnull(x);
    for (uint64_t i = 0; i < t->n; i++)
        if (t->dtype == PL_DTYPE_BF16) {
            const uint32_t u = (uint32_t)((const uint16_t *)t->data)[i] << 16;
            memcpy(&x[i], &u, sizeof u);
        } else {
            x[i] = ((const float *)t->data)[i];
        }
    return x;
}

static void same_bits(const void *got, const struct tensor *want, const char *what,
                      const char *weight, const char *type) {
    const uint64_t size = pl_dtype_bytes(want->dtype);
    for (uint64_t i = 0; i < want->n; i++)
        if (memcmp((const char *)got + i * size, (const char *)want->data + i * size, size) != 0)
            ck_abort_msg("%s of %s %s: element %" PRIu64 " differs", what, weight, type, i);
}

/* Clears the sign of zeros, F32 or BF16: kernels of bitsandbytes differ over the second zero of
 * fp4. */
static void unsign_zeros(void *x, uint64_t n, enum pl_dtype t) {
    for (uint64_t i = 0; i < n; i++)
        if (t == PL_DTYPE_BF16) {
            uint16_t *h = (uint16_t *)x + i;
            *h = *h == 0x8000 ? 0 : *h;
        } else {
            float *f = (float *)x + i;
            *f = *f == 0 ? 0.0f : *f;
        }
}

/* The file of a set; false where it is not there, which only the one set by the user may be. */
static bool open_vectors(int set, const char *name) {
    const char *own = getenv("QUANT_VECTORS"), *more = getenv("PLIMSOLL_GOLDEN_DIR");
    char path[4096];
    struct pl_diag d = {0};
    ck_assert_msg(own != NULL, "set QUANT_VECTORS to the directory of the vectors");
    if (set == 1 && !more) return false;
    if (set == 1)
        snprintf(path, sizeof path, "%s/%s/vectors.safetensors", more, name);
    else
        snprintf(path, sizeof path, "%s/%s.safetensors", own, name);
    const pl_err err = pl_st_open(&file, path, &d);
    if (err == PL_ERR_CHECKPOINT_FILE && set == 1) return false;
    if (err != PL_ERR_OK) ck_abort_msg("%s: %s", path, d.message);
    return true;
}

/* ---- calls ---- */

static struct pl_view vector(void *p, uint64_t n, enum pl_dtype t) {
    return (struct pl_view){.p = n ? p : NULL, .rows = n, .cols = 1, .ld = 1, .dtype = t};
}

/* Runs a call whose operands are host memory, on one runner. Inputs may be outputs too. */
static void run(const struct runner *r, enum pl_op_kind kind, const struct pl_call *host) {
    struct pl_call c = *host;
    void *copies[PL_OP_MAX_IN] = {0}, *fresh = NULL;
    machine_turn_to(r);
    const struct pl_batch batch = machine_describe(r, host->batch);
    c.batch = &batch;
    for (int i = 0; i < PL_OP_MAX_IN; i++) {
        const struct pl_view *v = &host->in[i];
        if (!v->p) continue;
        copies[i] = machine_put(r, v->p, v->rows * v->cols * pl_dtype_bytes(v->dtype));
        if (copies[i]) c.in[i].p = copies[i];
        for (int k = 0; k < PL_OP_MAX_OUT; k++)
            if (host->out[k].p == v->p) c.out[k].p = c.in[i].p;
    }
    const uint64_t bytes =
        host->out[0].rows * host->out[0].cols * pl_dtype_bytes(host->out[0].dtype);
    if (c.out[0].p == host->out[0].p) fresh = machine_put(r, host->out[0].p, bytes);
    if (fresh) c.out[0].p = fresh;
    ck_assert_int_eq(r->kernels[kind](r->dev, &c), PL_ERR_OK);
    if (fresh) machine_take(r, host->out[0].p, fresh, bytes);
    for (int i = 0; i < PL_OP_MAX_IN; i++) {
        const struct pl_view *v = &host->in[i];
        if (copies[i])
            machine_take(r, v->p, copies[i], v->rows * v->cols * pl_dtype_bytes(v->dtype));
    }
}

/* ---- 4 bits ---- */

static const struct {
    const char *name;
    enum pl_quant type;
} types[] = {{"nf4", PL_QUANT_NF4}, {"fp4", PL_QUANT_FP4}};

START_TEST(the_tables_are_those_recorded) {
    float map[PL_QUANT_MAP_SIZE];
    if (!open_vectors(_i, "nf4")) return;
    for (int t = 0; t < 2; t++) {
        struct tensor code = need("code.%s", types[t].name, "");
        ck_assert_uint_eq(code.n, PL_QUANT_LEVELS);
        same_bits(pl_quant_table(types[t].type), &code, "values", "", types[t].name);
        free(code.data);
    }
    struct tensor absmax = need("code.%s", "absmax", "");
    ck_assert_uint_eq(absmax.n, PL_QUANT_MAP_SIZE);
    pl_quant_map_values(true, map);
    same_bits(map, &absmax, "values", "", "signed map");
    free(absmax.data);
    pl_st_close(&file);
    if (!open_vectors(_i, "adam8bit")) return;
    for (int s = 0; s < 2; s++) {
        struct tensor want = need("map.%s", s ? "signed" : "unsigned", "");
        ck_assert_uint_eq(want.n, PL_QUANT_MAP_SIZE);
        pl_quant_map_values(s, map);
        same_bits(map, &want, "values", "map", s ? "signed" : "unsigned");
        free(want.data);
    }
    pl_st_close(&file);
}
END_TEST

/* A weight of the file under one type. */
struct sample {
    char weight[64];
    const char *type;
    enum pl_quant quant;
    float *x;
    uint64_t n;
    bool is_bf16;
};

typedef void (*sample_fn)(const struct sample *s);

/* Calls fn for every weight and type of the file; returns how many there were. */
static int for_each_sample(sample_fn fn) {
    static const char suffix[] = ".weight";
    int n = 0;
    for (uint64_t i = 0; i < file.n; i++) {
        struct sample s = {0};
        const char *name = file.entries[i].name, *dot = strstr(name, suffix);
        if (!dot || dot[sizeof suffix - 1]) continue;
        snprintf(s.weight, sizeof s.weight, "%.*s", (int)(dot - name), name);
        struct tensor weight = find_tensor("%s.weight", s.weight);
        s.x = widened(&weight);
        s.n = weight.n;
        s.is_bf16 = weight.dtype == PL_DTYPE_BF16;
        for (int t = 0; t < 2; t++) {
            struct tensor packed = find_tensor("%s.%s.packed", s.weight, types[t].name);
            s.type = types[t].name;
            s.quant = types[t].type;
            if (packed.data) fn(&s), n++;
            free(packed.data);
        }
        free(weight.data);
        free(s.x);
    }
    return n;
}

static void *room(uint64_t bytes) {
    void *p = calloc(1, bytes + 1);
    ck_assert_ptr_nonnull(p);
    return p;
}

static bool same_code(enum pl_quant t, unsigned a, unsigned b) {
    const bool both_zero = a % 8 == 0 && b % 8 == 0;
    return a == b || (t == PL_QUANT_FP4 && both_zero);
}

/* Q3 of quant.h. Checks in pieces, as a file is read: each starts at a multiple of a group. */
static void check_codes(const struct sample *s) {
    struct tensor packed = need("%s.%s.packed", s->weight, s->type);
    struct tensor want = need("%s.%s.absmax", s->weight, s->type);
    uint8_t *codes = room(packed.bytes);
    float *absmax = room(want.bytes);
    ck_assert_uint_eq(packed.n, pl_quant_codes_bytes(s->n));
    ck_assert_uint_eq(want.n, pl_quant_blocks(s->n));
    for (uint64_t i = 0; i < s->n; i += PL_QUANT_GROUP) {
        const uint64_t n = s->n - i < PL_QUANT_GROUP ? s->n - i : PL_QUANT_GROUP;
        pl_quant_absmax(s->x + i, n, absmax + i / PL_QUANT_BLOCK);
        pl_quant_codes(s->quant, s->x + i, n, absmax + i / PL_QUANT_BLOCK, codes + i / 2);
    }
    same_bits(absmax, &want, "absmax", s->weight, s->type);
    for (uint64_t i = 0; i < packed.n; i++) {
        const unsigned a = codes[i], b = ((const uint8_t *)packed.data)[i];
        if (!same_code(s->quant, a >> 4, b >> 4) || !same_code(s->quant, a & 15, b & 15))
            ck_abort_msg("%s %s: byte %" PRIu64 " is %02x, not %02x", s->weight, s->type, i, a, b);
    }
    free(codes);
    free(absmax);
    free(packed.data);
    free(want.data);
}

/* Q2 of quant.h: bitsandbytes has recorded them. */
START_TEST(weights_get_the_recorded_codes) {
    if (!open_vectors(_i, "nf4")) return;
    ck_assert_int_ge(for_each_sample(check_codes), 11);
    pl_st_close(&file);
}
END_TEST

/* The recorded offset may differ by the order of its sum. */
static void check_nested(const struct sample *s) {
    struct tensor absmax = need("%s.%s.absmax", s->weight, s->type);
    struct tensor offset = need("%s.%s.double.offset", s->weight, s->type);
    struct tensor absmax2 = need("%s.%s.double.absmax2", s->weight, s->type);
    struct tensor want = need("%s.%s.double.absmax_codes", s->weight, s->type);
    float *got2 = room(absmax2.bytes), *back = room(absmax.bytes);
    uint8_t *got = room(want.bytes);
    const float recorded = *(const float *)offset.data;
    const float own = (float)(pl_quant_sum(absmax.data, absmax.n) / (double)absmax.n);
    ck_assert_uint_eq(absmax2.n, pl_quant_nests(s->n));
    ck_assert_msg(fabsf(own - recorded) <= fabsf(recorded) * 0x1p-22f, "%s: offset %.9g, not %.9g",
                  s->weight, (double)own, (double)recorded);
    pl_quant_nest(absmax.data, absmax.n, recorded, got, got2);
    same_bits(got2, &absmax2, "absmax2", s->weight, s->type);
    if (absmax.n > 1) same_bits(got, &want, "absmax codes", s->weight, s->type);
    pl_quant_unnest(got, got2, recorded, absmax.n, back);
    for (uint64_t b = 0; b < absmax.n; b++) /* half the widest step of the map */
        ck_assert_float_le(fabsf(back[b] - ((const float *)absmax.data)[b]),
                           0.00704f * got2[b / PL_QUANT_NEST]);
    free(got), free(got2), free(back);
    free(absmax.data), free(offset.data), free(absmax2.data), free(want.data);
}

START_TEST(absmax_get_the_recorded_codes) {
    if (!open_vectors(_i, "nf4")) return;
    ck_assert_int_ge(for_each_sample(check_nested), 11);
    pl_st_close(&file);
}
END_TEST

/* The scales of a weight as the kernel takes them. */
struct scales {
    struct tensor absmax, absmax8; /* absmax8 absent = not nested */
    float *values;
    uint64_t n;
};

static struct scales scales_of(const struct sample *s, bool nested) {
    struct scales r = {.absmax = need("%s.%s.absmax", s->weight, s->type)};
    if (!nested) {
        r.values = widened(&r.absmax);
        r.n = r.absmax.n;
        return r;
    }
    struct tensor absmax2 = need("%s.%s.double.absmax2", s->weight, s->type);
    struct tensor offset = need("%s.%s.double.offset", s->weight, s->type);
    r.absmax8 = need("%s.%s.double.absmax_codes", s->weight, s->type);
    r.n = absmax2.n + 1;
    r.values = widened(&absmax2);
    r.values[absmax2.n] = *(const float *)offset.data;
    free(absmax2.data), free(offset.data);
    return r;
}

static int matrices; /* that were compared */

/* The kernel of every runner, and the host function, against what was recorded. */
static void check_matrix(const struct sample *s, bool nested, const char *dtype) {
    struct tensor want =
        find_tensor("%s.%s.%sdequant_%s", s->weight, s->type, nested ? "double." : "", dtype);
    if (!want.data) return;
    unsign_zeros(want.data, want.n, want.dtype);
    struct tensor packed = need("%s.%s.packed", s->weight, s->type);
    struct scales scales = scales_of(s, nested);
    const struct pl_attr attr = {.quant = s->quant};
    void *w = room(want.bytes);
    const struct pl_batch none = {0};
    struct pl_call c = {.attr = &attr, .batch = &none};
    c.in[0] = vector(packed.data, packed.n, PL_DTYPE_U8);
    c.in[1] = vector(scales.values, scales.n - nested, PL_DTYPE_F32);
    c.in[2] = vector(scales.absmax8.data, scales.absmax8.n, PL_DTYPE_U8);
    if (nested) c.in[3] = vector(scales.values + scales.n - 1, 1, PL_DTYPE_F32);
    c.out[0] = vector(w, want.n, want.dtype);
    for (uint32_t r = 0; r < machine.n; r++) {
        memset(w, 0xFF, want.bytes);
        run(&machine.runners[r], PL_OP_DEQUANT4, &c);
        unsign_zeros(w, want.n, want.dtype);
        same_bits(w, &want, "matrix", s->weight, machine.runners[r].name);
    }
    if (!nested && want.dtype == PL_DTYPE_F32) {
        pl_quant_values(s->quant, packed.data, s->n, scales.values, w);
        unsign_zeros(w, want.n, want.dtype);
        same_bits(w, &want, "matrix", s->weight, "host");
    }
    matrices++;
    free(w);
    free(want.data), free(packed.data);
    free(scales.absmax.data), free(scales.absmax8.data), free(scales.values);
}

static void check_matrices(const struct sample *s) {
    check_matrix(s, false, "fp32");
    check_matrix(s, false, "bf16");
    check_matrix(s, true, "fp32");
    check_matrix(s, true, "bf16");
}

/* Q4 of quant.h. */
START_TEST(matrices_come_back_bit_for_bit) {
    if (!open_vectors(_i, "nf4")) return;
    machine_open(&machine);
    matrices = 0;
    for_each_sample(check_matrices);
    ck_assert_int_ge(matrices, 17);
    machine_close(&machine);
    pl_st_close(&file);
}
END_TEST

/* ---- 8-bit moments ---- */

static const struct optimizer {
    const char *name;
    double rate, beta1, beta2, epsilon, decay;
} optimizers[] = {{"plain", 1e-3, 0.9, 0.999, 1e-8, 0}, {"decay", 5e-3, 0.9, 0.95, 1e-6, 0.1}};

/* A tensor on its way. */
struct state {
    const char *name;
    uint64_t n;
    float *p, *start;
    void *moments[2]; /* codes, or fp32 */
    float *absmax[2];
    bool has_codes;
};

static void close_to(const struct state *s, const struct optimizer *o, int step) {
    char format[64];
    snprintf(format, sizeof format, "%%s.%%s.param.%d", step);
    struct tensor p = need(format, o->name, s->name);
    const float *want = p.data;
    for (uint64_t i = 0; i < s->n; i++)
        if (!(fabsf(s->p[i] - want[i]) <= 2e-7f + 1e-4f * fabsf(want[i] - s->start[i])))
            ck_abort_msg("%s %s, step %d: p[%" PRIu64 "] is %.9g, not %.9g", o->name, s->name, step,
                         i, (double)s->p[i], (double)want[i]);
    free(p.data);
}

/* Moments of fp32 are sums of up to ten terms, each rounded. */
static void nearly_same(const float *got, const float *want, uint64_t n) {
    float most = 0;
    for (uint64_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(want[i]));
    for (uint64_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= 10 * 0x1p-24f * most))
            ck_abort_msg("moment %" PRIu64 " is %.9g, not %.9g", i, (double)got[i],
                         (double)want[i]);
}

static void moments_match(const struct state *s, const struct optimizer *o, int step) {
    for (int k = 0; k < 2; k++) {
        char format[64];
        snprintf(format, sizeof format, "%%s.%%s.state%d.%d", k + 1, step);
        struct tensor want = need(format, o->name, s->name);
        if (s->has_codes) same_bits(s->moments[k], &want, "codes", s->name, o->name);
        if (!s->has_codes) nearly_same(s->moments[k], want.data, s->n);
        free(want.data);
        if (!s->has_codes) continue;
        snprintf(format, sizeof format, "%%s.%%s.absmax%d.%d", k + 1, step);
        want = need(format, o->name, s->name);
        ck_assert_uint_eq(want.n, pl_state8_blocks(s->n));
        for (uint64_t b = 0; b < want.n; b++)
            ck_assert_float_le(fabsf(s->absmax[k][b] - ((const float *)want.data)[b]),
                               1e-5f * ((const float *)want.data)[b]);
        free(want.data);
    }
}

static void take_step(const struct runner *r, const struct optimizer *o, struct state *s,
                      float *gradient, int step) {
    double clip[2] = {0, 1};
    const struct pl_attr attr = {.decay = o->decay > 0};
    const struct pl_batch batch = {.step = (uint64_t)step,
                                   .learning_rate = o->rate,
                                   .beta1 = o->beta1,
                                   .beta2 = o->beta2,
                                   .epsilon = o->epsilon,
                                   .weight_decay = o->decay};
    struct pl_call c = {.attr = &attr, .batch = &batch};
    const enum pl_dtype dtype = s->has_codes ? PL_DTYPE_U8 : PL_DTYPE_F32;
    const uint64_t blocks = s->has_codes ? pl_state8_blocks(s->n) : 0;
    c.in[0] = c.out[0] = vector(s->p, s->n, PL_DTYPE_F32);
    c.in[1] = vector(gradient, s->n, PL_DTYPE_F32);
    c.in[4] = vector(clip, 2, PL_DTYPE_F64);
    for (int k = 0; k < 2; k++) {
        c.in[2 + k] = c.out[1 + k] = vector(s->moments[k], s->n, dtype);
        c.in[5 + k] = c.out[3 + k] = vector(s->absmax[k], blocks, PL_DTYPE_F32);
    }
    run(r, PL_OP_ADAMW_8BIT, &c);
}

/* Returns how many recorded steps were compared. */
static int follow(const struct runner *r, const struct optimizer *o, const char *name) {
    struct tensor start = need("%s.param.0", name, ""), grads = need("%s.grads", name, "");
    struct state s = {.name = name, .n = start.n, .start = start.data};
    int compared = 0;
    s.has_codes = s.n >= PL_STATE8_MIN;
    s.p = widened(&start);
    for (int k = 0; k < 2; k++) {
        s.moments[k] = room(s.n * (s.has_codes ? 1 : sizeof(float)));
        s.absmax[k] = room(pl_state8_blocks(s.n) * sizeof(float));
    }
    for (int step = 1; (uint64_t)step <= grads.n / s.n; step++) {
        struct tensor kept = find_tensor("%s.%s.param.%d", o->name, name, step);
        take_step(r, o, &s, (float *)grads.data + (uint64_t)(step - 1) * s.n, step);
        if (kept.data) {
            close_to(&s, o, step);
            moments_match(&s, o, step);
            compared++;
        }
        free(kept.data);
    }
    for (int k = 0; k < 2; k++)
        free(s.moments[k]), free(s.absmax[k]);
    free(s.p), free(start.data), free(grads.data);
    return compared;
}

START_TEST(moments_follow_the_recorded_steps) {
    static const char *const names[] = {"short_tail", "just_8bit", "just_fp32", "edges"};
    if (!open_vectors(_i, "adam8bit")) return;
    machine_open(&machine);
    for (uint32_t r = 0; r < machine.n; r++) {
        int compared = 0;
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            for (size_t o = 0; o < sizeof optimizers / sizeof *optimizers; o++) {
                struct tensor grads = find_tensor("%s.grads", names[k]);
                if (grads.data) compared += follow(&machine.runners[r], &optimizers[o], names[k]);
                free(grads.data);
            }
        ck_assert_int_ge(compared, 6);
    }
    machine_close(&machine);
    pl_st_close(&file);
}
END_TEST

int main(void) {
    Suite *s = suite_create("quant golden");
    TCase *tc = tcase_create("vectors");
    tcase_set_timeout(tc, 200);
    tcase_add_loop_test(tc, the_tables_are_those_recorded, 0, 2);
    tcase_add_loop_test(tc, weights_get_the_recorded_codes, 0, 2);
    tcase_add_loop_test(tc, absmax_get_the_recorded_codes, 0, 2);
    tcase_add_loop_test(tc, matrices_come_back_bit_for_bit, 0, 2);
    tcase_add_loop_test(tc, moments_follow_the_recorded_steps, 0, 2);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
