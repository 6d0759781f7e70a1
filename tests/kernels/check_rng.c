/* check_rng.c - Philox against its published vectors; streams; normals. */
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

int main(void) {
    Suite *s = suite_create("rng");
    TCase *tc = tcase_create("philox");
    tcase_add_loop_test(tc, philox_gives_the_published_numbers, 0,
                        sizeof vectors / sizeof *vectors);
    tcase_add_test(tc, every_coordinate_of_a_stream_matters);
    tcase_add_test(tc, the_index_has_sixty_four_bits);
    tcase_add_test(tc, normals_have_the_moments_of_a_normal);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
