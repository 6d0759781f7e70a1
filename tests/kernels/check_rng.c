/* check_rng.c - Philox against its published vectors; streams; normals. */
#include "runtime/kernels/normal.h"
#include "runtime/kernels/rng.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* Known answers of philox4x32-10 in the distribution of Random123 (kat_vectors). */
static const struct {
    uint32_t counter[4], key[2], want[4];
} vectors[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

/* N1 of rng.h. */
START_TEST(philox_gives_the_published_numbers) {
    uint32_t out[4];
    pl_philox(vectors[_i].counter, vectors[_i].key, out);
    ck_assert_mem_eq(out, vectors[_i].want, sizeof out);
}
END_TEST

START_TEST(every_coordinate_of_a_stream_matters) {
    const struct pl_rng streams[] = {
        pl_rng_init(1, 2, 3),
        pl_rng_init(2, 2, 3),
        pl_rng_init(1, 3, 3),
        pl_rng_init(1, 2, 4),
        pl_rng_init(1, 3, 2),
        pl_rng_init(UINT64_C(1) << 32, 2, 3),
        pl_rng_init(1, UINT64_C(2) << 32, 3),
        pl_rng_init(1, 2, UINT64_C(3) << 32),
        pl_rng_fork(pl_rng_init(1, 2, 3), 0),
        pl_rng_fork(pl_rng_init(1, 2, 3), 1),
    };
    enum { N = sizeof streams / sizeof *streams };
    uint32_t out[N][4];
    for (int i = 0; i < N; i++) {
        pl_rng_block(&streams[i], 5, out[i]);
        for (int j = 0; j < i; j++)
            ck_assert_msg(memcmp(out[i], out[j], sizeof out[i]) != 0, "%d and %d agree", i, j);
    }
}
END_TEST

/* N2 of rng.h. */
START_TEST(the_index_has_sixty_four_bits) {
    struct pl_rng r = pl_rng_init(1, 2, 3);
    uint32_t a[4], b[4];
    pl_rng_block(&r, 5, a);
    pl_rng_block(&r, 5 + (UINT64_C(1) << 32), b);
    ck_assert_mem_ne(a, b, sizeof a);
}
END_TEST

/* Moments of n standard normals: standard errors 1/sqrt(n), sqrt(2/n), sqrt(96/n). */
START_TEST(normals_have_the_moments_of_a_normal) {
    enum { BLOCKS = 100000 };
    const double n = 4.0 * BLOCKS;
    struct pl_rng r = pl_rng_init(7, 0, 0);
    double sum = 0, squares = 0, fourth = 0, neighbours = 0;
    for (uint64_t i = 0; i < BLOCKS; i++) {
        float x[4];
        pl_rng_normal(&r, i, x);
        neighbours += x[0] * x[1] + x[1] * x[2] + x[2] * x[3];
        for (int j = 0; j < 4; j++) {
            sum += x[j];
            squares += x[j] * x[j];
            fourth += x[j] * x[j] * x[j] * x[j];
        }
    }
    ck_assert_double_le(fabs(sum / n), 4 / sqrt(n));
    ck_assert_double_le(fabs(squares / n - 1), 4 * sqrt(2 / n));
    ck_assert_double_le(fabs(fourth / n - 3), 4 * sqrt(96 / n));
    ck_assert_double_le(fabs(neighbours / n), 4 / sqrt(n));
}
END_TEST

/* Computes the values of a block's words without rounding, except that u has the 24 bits of an
 * fp32. */
static void exact_pair(uint32_t first, uint32_t second, double out[2]) {
    const float scaled = (float)(first >> 1) + 0.5f;
    const double u = (double)scaled / 2147483648.0, pi = acos(-1);
    const int32_t low = (int32_t)(second << 2) >> 2; /* thirty bits, signed: an eighth of a turn */
    double angle = low / 1073741824.0 * pi / 2;
    if (second >> 30 & 1) angle = pi / 2 - angle;
    if (second >> 31) angle += pi;
    const double radius = sqrt(-2 * log(u));
    out[0] = radius * cos(angle), out[1] = radius * sin(angle);
}

/* M2 of normal.h; and its bound, M3 of normal.h. Rounding, by random words and by those at the ends
 * of every range. */
START_TEST(a_normal_is_what_its_words_give) {
    static const uint32_t edges[] = {0,          1,          2,          3,          0x3FFFFFFF,
                                     0x40000000, 0x5FFFFFFF, 0x60000000, 0x7FFFFFFF, 0x80000000,
                                     0x9FFFFFFF, 0xA0000000, 0xB504F333, 0xB504F334, 0xFFFFFEFF,
                                     0xFFFFFF7F, 0xFFFFFFFE, 0xFFFFFFFF};
    enum { EDGES = sizeof edges / sizeof *edges, N = 1 << 20 };
    const struct pl_rng r = pl_rng_init(1, 2, 3);
    double worst = 0, most = 0;
    for (uint32_t i = 0; i < N + EDGES * EDGES; i++) {
        uint32_t x[4];
        float got[2];
        double want[2];
        pl_rng_block(&r, i, x);
        if (i >= N) x[0] = edges[(i - N) / EDGES], x[1] = edges[(i - N) % EDGES];
        pl_normal_pair(x[0], x[1], &got[0], &got[1]);
        exact_pair(x[0], x[1], want);
        for (int k = 0; k < 2; k++) {
            worst = fmax(worst, fabs(got[k] - want[k]));
            most = fmax(most, fabs(got[k]));
        }
    }
    ck_assert_double_le(worst, 1e-6);
    ck_assert_double_le(most, 6.67);
    ck_assert_double_ge(most, 6.6);
}
END_TEST

static int ascending(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Kolmogorov's distance from the distribution of a normal: sqrt(n) D is above 1.95 in one
 * stream of a thousand (Smirnov, 1948). */
START_TEST(normals_have_the_distribution_of_a_normal) {
    enum { N = 1 << 21 };
    const struct pl_rng r = pl_rng_init(7, (uint64_t)_i, 0);
    float *x = malloc(N * sizeof *x);
    double distance = 0;
    ck_assert_ptr_nonnull(x);
    for (uint64_t i = 0; i < N; i += 4)
        pl_rng_normal(&r, i / 4, x + i);
    qsort(x, N, sizeof *x, ascending);
    for (int i = 0; i < N; i++) {
        const double p = erfc(-x[i] / sqrt(2)) / 2;
        distance = fmax(distance, fmax(fabs(p - (double)i / N), fabs(p - (i + 1.0) / N)));
    }
    free(x);
    ck_assert_double_le(sqrt(N) * distance, 1.95);
}
END_TEST

int main(void) {
    Suite *s = suite_create("rng");
    TCase *tc = tcase_create("philox");
    tcase_add_loop_test(tc, philox_gives_the_published_numbers, 0,
                        sizeof vectors / sizeof *vectors);
    tcase_add_test(tc, every_coordinate_of_a_stream_matters);
    tcase_add_test(tc, the_index_has_sixty_four_bits);
    tcase_add_test(tc, normals_have_the_moments_of_a_normal);
    tcase_add_test(tc, a_normal_is_what_its_words_give);
    tcase_add_loop_test(tc, normals_have_the_distribution_of_a_normal, 0, 3);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
