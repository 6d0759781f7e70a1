/* check_ladder.c - the rungs of a ladder that was made by hand: what each stands for. */
#include "estimator/autobatch/ladder.h"

#include <check.h>

static const struct pl_ladder three = {
    .levels = {PL_RECOMPUTE_NONE, PL_RECOMPUTE_LIGHT, PL_RECOMPUTE_FULL},
    .n_levels = 3,
    .first_layer = 2,
    .layers = 4};

/* On rungs between two whole levels the first k layers that have a backward pass are at the heavier
 * one. */
START_TEST(a_rung_is_a_level_or_a_mix_of_two_neighbours) {
    const uint32_t want[] = {PL_RECOMPUTE_NONE,
                             PL_RECOMPUTE_MIX(PL_RECOMPUTE_LIGHT, 3, PL_RECOMPUTE_NONE),
                             PL_RECOMPUTE_MIX(PL_RECOMPUTE_LIGHT, 4, PL_RECOMPUTE_NONE),
                             PL_RECOMPUTE_MIX(PL_RECOMPUTE_LIGHT, 5, PL_RECOMPUTE_NONE),
                             PL_RECOMPUTE_LIGHT,
                             PL_RECOMPUTE_MIX(PL_RECOMPUTE_FULL, 3, PL_RECOMPUTE_LIGHT),
                             PL_RECOMPUTE_MIX(PL_RECOMPUTE_FULL, 4, PL_RECOMPUTE_LIGHT),
                             PL_RECOMPUTE_MIX(PL_RECOMPUTE_FULL, 5, PL_RECOMPUTE_LIGHT),
                             PL_RECOMPUTE_FULL};
    ck_assert_uint_eq(pl_ladder_rungs(&three), sizeof want / sizeof *want);
    for (uint32_t r = 0; r < sizeof want / sizeof *want; r++)
        ck_assert_msg(pl_ladder_value(&three, r) == want[r], "rung %u", r);
}
END_TEST

/* A model with one layer has nothing between two levels. */
START_TEST(one_layer_has_no_mixes) {
    struct pl_ladder l = three;
    l.layers = 1;
    l.first_layer = 0;
    ck_assert_uint_eq(pl_ladder_rungs(&l), 3);
    for (uint32_t r = 0; r < 3; r++)
        ck_assert_uint_eq(pl_ladder_value(&l, r), l.levels[r]);
}
END_TEST

/* A level that was asked for is a ladder of one rung, also where no layer has a backward pass. */
START_TEST(a_level_alone_is_one_rung) {
    struct pl_ladder l = {.levels = {PL_RECOMPUTE_MLP}, .n_levels = 1, .first_layer = 30};
    for (l.layers = 0; l.layers < 3; l.layers++) {
        ck_assert_uint_eq(pl_ladder_rungs(&l), 1);
        ck_assert_uint_eq(pl_ladder_value(&l, 0), PL_RECOMPUTE_MLP);
    }
}
END_TEST

START_TEST(levels_are_compared_at_enough_tokens) {
    static const struct {
        uint32_t length, batch, mlp_chunk; /* 0: whole */
    } rows[] = {{1, PL_LADDER_TOKENS, 0},
                {2048, 2, 0},
                {PL_LADDER_TOKENS - 1, 2, 0},
                {PL_LADDER_TOKENS, 1, 0},
                {PL_LADDER_TOKENS + 1, 1, 0},
                {16777216, 1, 0},
                {28, 73, 2}, /* 2,049 tokens in 1,024 chunks, of which one may be larger */
                {28, 36, 1},
                {2048, 1, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct pl_job job = {.max_seq_length = rows[i].length,
                                   .mlp_chunk_tokens = rows[i].mlp_chunk};
        const struct pl_question q = {.job = &job};
        ck_assert_uint_eq(pl_ladder_batch(&q), rows[i].batch);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("autobatch.ladder");
    TCase *tc = tcase_create("ladder");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, a_rung_is_a_level_or_a_mix_of_two_neighbours);
    tcase_add_test(tc, one_layer_has_no_mixes);
    tcase_add_test(tc, a_level_alone_is_one_rung);
    tcase_add_test(tc, levels_are_compared_at_enough_tokens);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
