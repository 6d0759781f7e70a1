/* check_sampler.c - which token follows from a row of logits: the filters against lists made by
 * hand, draws against their probabilities. */
#include "runtime/generate/sampler.h"

#include <check.h>
#include <math.h>
#include <string.h>

#define VOCAB 8
#define DRAWS 40000

/* Probabilities at temperature 1: 0.4 0.05 0.2 0.1 0.05 0.1 0.06 0.04. */
static const double probabilities[VOCAB] = {0.4, 0.05, 0.2, 0.1, 0.05, 0.1, 0.06, 0.04};

static void fill(float *logits) {
    for (int i = 0; i < VOCAB; i++)
        logits[i] = (float)log(probabilities[i]) + 3;
}

static const struct pl_sampling plain = {
    .temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = 5};

/* Counts how often each id is drawn. */
static void count(const struct pl_sampling *how, uint64_t n, uint64_t counts[VOCAB]) {
    struct pl_sampler s;
    float logits[VOCAB];
    memset(counts, 0, VOCAB * sizeof *counts);
    ck_assert_int_eq(pl_sampler_init(&s, how, VOCAB, NULL), PL_ERR_OK);
    for (uint64_t i = 0; i < n; i++) {
        const struct pl_sampler_position at = {.position = i};
        fill(logits);
        int32_t id = pl_sampler_choose(&s, logits, &at);
        ck_assert_int_ge(id, 0);
        ck_assert_int_lt(id, VOCAB);
        counts[id]++;
    }
    pl_sampler_finish(&s);
}

static const struct {
    struct pl_sampling how;
    const char *kept; /* ids as a mask of digits: 1 = may be drawn */
} filters[] = {
    {{1, 0, 1, 0, 1, 1}, "11111111"},
    {{1, 3, 1, 0, 1, 2}, "10110000"},   /* 3 and 5 are equal: the lower id is before */
    {{1, 0, 0.6, 0, 1, 3}, "10100000"}, /* 0.4 + 0.2 reach it */
    {{1, 0, 0.61, 0, 1, 3}, "10110000"},
    {{1, 0, 1, 0.24, 1, 4}, "10110100"}, /* at least 0.096 */
    {{1, 4, 0.7, 0, 1, 5}, "10100000"},  /* 0.7 of the sum of the four, 0.8: 0.56 */
    {{1, 1, 1, 0, 1, 6}, "10000000"},
    {{1, 0, 1e-9, 0, 1, 7}, "10000000"},
    {{1, 0, 1, 1, 1, 8}, "10000000"},
    {{2, 0, 0.5, 0.5, 1, 9}, "10100000"}, /* min_p looks at heated probabilities: 0.71 */
};
#define N_FILTERS (int)(sizeof filters / sizeof *filters)

/* S3 of sampler.h. Five standard deviations of a binomial count: one run in a million strays
 * further. */
START_TEST(draws_follow_the_probabilities_of_what_the_filters_keep) {
    const struct pl_sampling *how = &filters[_i].how;
    uint64_t counts[VOCAB];
    double sum = 0;
    count(how, DRAWS, counts);
    for (int i = 0; i < VOCAB; i++)
        if (filters[_i].kept[i] == '1') sum += pow(probabilities[i], 1 / how->temperature);
    for (int i = 0; i < VOCAB; i++) {
        double p =
            filters[_i].kept[i] == '1' ? pow(probabilities[i], 1 / how->temperature) / sum : 0;
        ck_assert_msg(fabs((double)counts[i] - p * DRAWS) <= 5 * sqrt(DRAWS * p * (1 - p)) + 1e-6,
                      "id %d was drawn %llu times of %d, its probability is %g", i,
                      (unsigned long long)counts[i], DRAWS, p);
    }
}
END_TEST

/* S2 of sampler.h. */
START_TEST(a_draw_depends_on_its_place_and_seed_alone) {
    struct pl_sampler s;
    float logits[VOCAB];
    int32_t first[64];
    int differ_by_sequence = 0, differ_by_seed = 0;
    struct pl_sampling how = plain;
    for (int pass = 0; pass < 4; pass++) {
        how.seed = pass == 3 ? 6 : 5;
        ck_assert_int_eq(pl_sampler_init(&s, &how, VOCAB, NULL), PL_ERR_OK);
        for (int k = 0; k < 64; k++) {
            int i = pass == 1 ? 63 - k : k; /* in another order */
            const struct pl_sampler_position at = {.sequence = pass == 2, .position = (uint64_t)i};
            fill(logits);
            int32_t id = pl_sampler_choose(&s, logits, &at);
            if (pass == 0) first[i] = id;
            if (pass == 1) ck_assert_int_eq(id, first[i]);
            differ_by_sequence += pass == 2 && id != first[i];
            differ_by_seed += pass == 3 && id != first[i];
        }
        pl_sampler_finish(&s);
    }
    ck_assert_int_gt(differ_by_sequence, 20);
    ck_assert_int_gt(differ_by_seed, 20);
}
END_TEST

/* S1 of sampler.h. */
START_TEST(greedy_takes_the_lowest_of_equal_ids) {
    struct pl_sampler s;
    float logits[] = {-1, 2, 0.5f, 2, -INFINITY, 1, 2, 0};
    const struct pl_sampling how = {.top_p = 1, .repetition_penalty = 1};
    ck_assert_int_eq(pl_sampler_init(&s, &how, VOCAB, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_sampler_choose(&s, logits, &(struct pl_sampler_position){0}), 1);
    pl_sampler_finish(&s);
}
END_TEST

/* Keskar et al.: positive logits are divided, negative ones multiplied, each once. */
START_TEST(what_occurred_is_punished_once) {
    struct pl_sampler s;
    float logits[] = {4, 3, -1, 2.5f, 0, 1, 2, -3};
    const int32_t ids[] = {0, 2, 0, 0, 7};
    const struct pl_sampling how = {.top_p = 1, .repetition_penalty = 2};
    ck_assert_int_eq(pl_sampler_init(&s, &how, VOCAB, NULL), PL_ERR_OK);
    ck_assert_int_eq(
        pl_sampler_choose(&s, logits, &(struct pl_sampler_position){.ids = ids, .n = 5}), 1);
    ck_assert_float_eq(logits[0], 2);
    ck_assert_float_eq(logits[2], -2);
    ck_assert_float_eq(logits[7], -6);
    ck_assert_float_eq(logits[3], 2.5f);
    pl_sampler_finish(&s);
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.sampler");
    TCase *tc = tcase_create("sampler");
    tcase_add_loop_test(tc, draws_follow_the_probabilities_of_what_the_filters_keep, 0, N_FILTERS);
    tcase_add_test(tc, a_draw_depends_on_its_place_and_seed_alone);
    tcase_add_test(tc, greedy_takes_the_lowest_of_equal_ids);
    tcase_add_test(tc, what_occurred_is_punished_once);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
