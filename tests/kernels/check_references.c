/* check_references.c - reference gradients of products and embedding against central differences
 * of their forward functions. The loss is a random linear functional of the outputs, whose gradient
 * with respect to them is its weights. */
#include "tests/kernels/harness.h"
#include "tests/kernels/ref_linear.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { M = 4, N = 5, K = 3, V = 6 };

static double x[M * K], w[N * K], dy[M * N], ids[M], table[V * K], dx_embed[M * K];
static const double alpha = 0.75;
static const struct ref_shape shape = {M, N, K};

static void fill(double *v, uint64_t n, uint64_t stream) {
    struct pl_rng r = pl_rng_init(1, stream, 0);
    for (uint64_t i = 0; i < n; i++) {
        float normal[4];
        pl_rng_normal(&r, i, normal);
        v[i] = normal[0];
    }
}

static void setup(void) {
    fill(x, M * K, 1);
    fill(w, N * K, 2);
    fill(dy, M * N, 3);
    fill(table, V * K, 4);
    fill(dx_embed, M * K, 5);
    const double some[M] = {4, 1, 4, 0}; /* one id twice */
    memcpy(ids, some, sizeof ids);
}

static double dot(const double *a, const double *b, uint64_t n) {
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static double linear_loss(void *ctx) {
    double y[M * N] = {0};
    (void)ctx;
    ref_linear(shape, alpha, x, w, y, NULL);
    return dot(y, dy, M * N);
}

static double embed_loss(void *ctx) {
    double out[M * K];
    (void)ctx;
    ref_embed(M, K, 1, ids, table, out);
    return dot(out, dx_embed, M * K);
}

START_TEST(linear_dx_is_the_gradient_of_linear) {
    double dx[M * K] = {0};
    ref_linear_dx(shape, alpha, dy, w, dx, NULL);
    check_gradient("linear, x", linear_loss, NULL, x, M * K, dx);
}
END_TEST

START_TEST(linear_dw_is_the_gradient_of_linear) {
    double dw[N * K] = {0};
    ref_linear_dw(shape, alpha, dy, x, dw, NULL);
    check_gradient("linear, w", linear_loss, NULL, w, N * K, dw);
}
END_TEST

START_TEST(embed_bwd_is_the_gradient_of_embed) {
    double dtable[V * K] = {0};
    ref_embed_bwd(M, K, 1, ids, -1, dx_embed, dtable, NULL);
    check_gradient("embed, table", embed_loss, NULL, table, V * K, dtable);
}
END_TEST

int main(void) {
    Suite *s = suite_create("references");
    TCase *tc = tcase_create("gradients");
    tcase_add_checked_fixture(tc, setup, NULL);
    tcase_add_test(tc, linear_dx_is_the_gradient_of_linear);
    tcase_add_test(tc, linear_dw_is_the_gradient_of_linear);
    tcase_add_test(tc, embed_bwd_is_the_gradient_of_embed);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
