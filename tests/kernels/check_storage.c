/* check_storage.c - a weight that bf16 can hold gives the same bits from bf16 and from fp32, with
 * fp32 rows. Therefore a frozen base may be stored in the type of its files (base_dtype). */
#include "estimator/program/program.h"
#include "runtime/kernels/rng.h"
#include "tests/kernels/runners.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define WS_BYTES (UINT64_C(64) << 20)
#define EPS      1e-5f

static struct machine machine;
static struct pl_rng rng;
static uint64_t drawn;

static void setup(void) {
    machine_open(&machine);
    rng = pl_rng_init(7, 1, 1);
    drawn = 0;
}

static void teardown(void) {
    machine_close(&machine);
}

/* Draws a number as in a bf16 checkpoint: an fp32 number whose lower half is zero. */
static float draw(bool is_bf16) {
    float x, block[4];
    uint32_t u;
    pl_rng_normal(&rng, drawn++, block);
    memcpy(&u, block, sizeof u);
    u = is_bf16 ? u & 0xFFFF0000u : u;
    memcpy(&x, &u, sizeof x);
    return x;
}

static struct pl_view of(void *p, uint64_t rows, uint64_t cols, enum pl_dtype t) {
    return (struct pl_view){.p = p, .rows = rows, .cols = cols, .ld = cols, .dtype = t};
}

static struct pl_view numbers(uint64_t rows, uint64_t cols, bool are_bf16) {
    float *x = malloc(rows * cols * sizeof *x);
    ck_assert_ptr_nonnull(x);
    for (uint64_t i = 0; i < rows * cols; i++)
        x[i] = draw(are_bf16);
    return of(x, rows, cols, PL_DTYPE_F32);
}

static struct pl_view in_bf16(const struct pl_view *w) {
    const uint64_t n = w->rows * w->cols;
    uint16_t *h = malloc(n * sizeof *h);
    ck_assert_ptr_nonnull(h);
    for (uint64_t i = 0; i < n; i++)
        memcpy(&h[i], (const char *)w->p + 4 * i + 2, sizeof *h); /* little-endian */
    return of(h, w->rows, w->cols, PL_DTYPE_BF16);
}

/* --- one call of every kernel that reads a weight --------------------------------------------- */

struct shape { /* x[n,k], W[o,k] */
    uint64_t n, o, k;
};

/* The call without its weights, and where these and the output stand. */
struct plan {
    struct pl_call c;
    struct pl_attr attr;
    uint32_t weight, bias; /* inputs; bias 0 = none */
    struct pl_view w, b;   /* in fp32 */
    uint64_t rows, cols;   /* shape of the output */
    int in_place;          /* input that the output lies over, -1 = none */
};

static void plan_linear(struct plan *p, const struct shape *s) {
    p->c.in[0] = numbers(s->n, s->k, false);
    p->w = numbers(s->o, s->k, true);
    p->b = numbers(s->o, 1, true);
    p->weight = 1, p->bias = 2;
    p->rows = s->n, p->cols = s->o;
    p->c.in[3] = of(calloc(1, WS_BYTES), WS_BYTES, 1, PL_DTYPE_U8);
}

static void plan_linear_dx(struct plan *p, const struct shape *s) {
    p->c.in[0] = numbers(s->n, s->o, false);
    p->w = numbers(s->o, s->k, true);
    p->weight = 1;
    p->rows = s->n, p->cols = s->k;
    p->c.in[2] = of(calloc(1, WS_BYTES), WS_BYTES, 1, PL_DTYPE_U8);
}

static void plan_embed(struct plan *p, const struct shape *s) {
    int32_t *ids = malloc(s->n * sizeof *ids);
    ck_assert_ptr_nonnull(ids);
    for (uint64_t i = 0; i < s->n; i++)
        ids[i] = (int32_t)(i * 7 % s->o);
    p->c.in[0] = of(ids, s->n, 1, PL_DTYPE_I32);
    p->w = numbers(s->o, s->k, true);
    p->weight = 1;
    p->rows = s->n, p->cols = s->k;
}

static void norm(struct plan *p, const struct shape *s, uint32_t weight) {
    p->w = numbers(s->k, 1, true);
    p->weight = weight;
    p->rows = s->n, p->cols = s->k;
    p->attr.eps = EPS;
    p->attr.head_dim = (uint32_t)s->k;
}

static void plan_rmsnorm(struct plan *p, const struct shape *s) {
    p->c.in[0] = numbers(s->n, s->k, false);
    norm(p, s, 1);
    p->c.out[1] = numbers(s->n, 1, false);
}

static void plan_add_rmsnorm(struct plan *p, const struct shape *s) {
    p->c.out[0] = p->c.in[0] = numbers(s->n, s->k, false);
    p->c.in[1] = numbers(s->n, s->k, false);
    norm(p, s, 2);
    p->c.out[2] = numbers(s->n, 1, false);
}

static void plan_renorm(struct plan *p, const struct shape *s) {
    p->c.in[0] = numbers(s->n, s->k, false);
    p->c.in[2] = numbers(s->n, 1, false);
    norm(p, s, 1);
}

static void plan_norm_bwd(struct plan *p, const struct shape *s) {
    p->c.in[0] = numbers(s->n, s->k, false);
    p->c.in[1] = numbers(s->n, s->k, false);
    p->c.in[3] = numbers(s->n, 1, false);
    norm(p, s, 2);
}

static const struct {
    enum pl_op_kind kind;
    void (*plan)(struct plan *p, const struct shape *s);
    uint32_t out;
} kernels[] = {
    {PL_OP_LINEAR, plan_linear, 0},        {PL_OP_LINEAR_DX, plan_linear_dx, 0},
    {PL_OP_EMBED, plan_embed, 0},          {PL_OP_RMSNORM, plan_rmsnorm, 0},
    {PL_OP_RENORM, plan_renorm, 0},        {PL_OP_ADD_RMSNORM, plan_add_rmsnorm, 1},
    {PL_OP_RMSNORM_BWD, plan_norm_bwd, 0}, {PL_OP_QK_NORM, plan_rmsnorm, 0},
    {PL_OP_QK_NORM_BWD, plan_norm_bwd, 0},
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

/* Few rows and many, the transpose of a few, whole vectors and not, several blocks and parts, rows
 * that lie whole pages apart. */
static const struct shape shapes[] = {
    {1, 96, 64},   {3, 50, 33},     {8, 300, 576}, {5, 7, 1},    {33, 96, 128},   {64, 200, 40},
    {65, 96, 700}, {130, 1600, 72}, {450, 40, 31}, {2, 3, 1500}, {301, 131, 1024}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* The output of the call with these weights. What is updated in place is put back. */
static float *result(const struct runner *r, int kernel, struct plan *p, struct pl_view w,
                     struct pl_view b) {
    const struct pl_batch batch = {.first = true, .n_tokens = p->rows};
    const uint64_t bytes = p->rows * p->cols * sizeof(float);
    struct pl_call c = p->c;
    float *out = malloc(bytes), *kept = malloc(bytes);
    ck_assert(out && kept);
    memset(out, 0xFF, bytes);
    c.attr = &p->attr, c.batch = &batch;
    c.in[p->weight] = w;
    if (p->bias) c.in[p->bias] = b;
    c.out[kernels[kernel].out] = of(out, p->rows, p->cols, PL_DTYPE_F32);
    if (kernels[kernel].kind == PL_OP_QK_NORM_BWD) { /* dy! */
        memcpy(out, c.in[0].p, bytes);
        c.in[0].p = out;
    }
    if (p->in_place >= 0) memcpy(kept, c.in[p->in_place].p, bytes);
    machine_turn_to(r);
    ck_assert_int_eq(r->kernels[kernels[kernel].kind](r->dev, &c), PL_ERR_OK);
    if (p->in_place >= 0) memcpy(c.in[p->in_place].p, kept, bytes);
    free(kept);
    return out;
}

static void finish(struct plan *p) {
    for (int i = 0; i < PL_OP_MAX_IN; i++) {
        for (int k = 0; k < PL_OP_MAX_OUT; k++)
            if (p->c.out[k].p == p->c.in[i].p) p->c.out[k].p = NULL;
        free(p->c.in[i].p);
    }
    for (int k = 0; k < PL_OP_MAX_OUT; k++)
        free(p->c.out[k].p);
    free(p->w.p);
    free(p->b.p);
}

static void compare(int kernel, const struct shape *s) {
    struct plan p = {.attr = {.alpha = 0.75f}, .in_place = -1};
    kernels[kernel].plan(&p, s);
    if (kernels[kernel].kind == PL_OP_ADD_RMSNORM) p.in_place = 0;
    struct pl_view w = in_bf16(&p.w), b = p.b.p ? in_bf16(&p.b) : (struct pl_view){0};
    for (uint32_t i = 0; i < machine.n; i++) {
        const struct runner *r = &machine.runners[i];
        float *narrow = result(r, kernel, &p, w, b), *wide = result(r, kernel, &p, p.w, p.b);
        for (uint64_t j = 0; j < p.rows * p.cols; j++)
            if (memcmp(&narrow[j], &wide[j], sizeof *wide) != 0)
                ck_abort_msg("%s, %s, n %llu o %llu k %llu, element %llu: %.9g from bf16, %.9g",
                             pl_op_name(kernels[kernel].kind), r->name, (unsigned long long)s->n,
                             (unsigned long long)s->o, (unsigned long long)s->k,
                             (unsigned long long)j, (double)narrow[j], (double)wide[j]);
        free(narrow);
        free(wide);
    }
    free(w.p);
    free(b.p);
    finish(&p);
}

/* P1 of gemm_pack.h, among others. */
START_TEST(a_weight_gives_the_same_bits_from_either_type) {
    for (int i = 0; i < SHAPES; i++)
        compare(_i, &shapes[i]);
}
END_TEST

int main(void) {
    Suite *s = suite_create("storage");
    TCase *tc = tcase_create("kernels");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, a_weight_gives_the_same_bits_from_either_type, 0, KERNELS);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
