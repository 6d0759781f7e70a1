/* check_keeping.c - `keep_first_pass: auto`: kept where it fits and is faster, at no sample's
 * cost. */
#include "tests/autobatch/open_keys.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define GIB (UINT64_C(1) << 30)

static void prepare(void) {
    prepare_mode("lora");
    set("stage", "dpo");
}

static uint64_t needed(const struct pl_question *q, bool *keeps, uint64_t *samples) {
    struct pl_planned held = {0};
    ck_assert_int_eq(pl_question_measure(q, &held, NULL), PL_ERR_OK);
    const uint64_t bytes = held.plan->arena_bytes;
    if (keeps) *keeps = held.program->shape.keeps_first_pass;
    if (samples) *samples = held.program->shape.batch_size;
    pl_planned_finish(&held);
    return bytes;
}

static uint64_t needed_with(const char *keep) {
    set("keep_first_pass", keep);
    const struct pl_question q = ask(0);
    const uint64_t bytes = needed(&q, NULL, NULL);
    set("keep_first_pass", "auto");
    return bytes;
}

static struct pl_question decide(uint64_t usable, struct pl_text *notes) {
    struct pl_autobatch search;
    struct pl_question q = ask(usable);
    ck_assert_int_eq(pl_decide(&q, PL_BATCH_LIMIT, &search, notes, NULL), PL_ERR_OK);
    pl_autobatch_finish(&search);
    return q;
}

static bool keeps(uint64_t usable) {
    const struct pl_question q = decide(usable, NULL);
    return q.decided.keep_first_pass == PL_TRI_TRUE;
}

/* K2 of keeping.h */
START_TEST(one_pair_is_kept_where_both_answers_fit) {
    const uint64_t kept = needed_with("true"), twice = needed_with("false");
    ck_assert_uint_lt(twice, kept);
    ck_assert(keeps(kept) && !keeps(kept - 1) && !keeps(twice));
}
END_TEST

/* K2: without a budget. */
START_TEST(whole_pairs_are_kept_without_a_budget_and_others_are_not) {
    ck_assert(!keeps(0));
    set("batch_size", "2");
    ck_assert(keeps(0));
    set("stage", "kto");
    set("batch_size", "1");
    ck_assert(keeps(0));
    set("stage", "sft");
    ck_assert(!keeps(0));
}
END_TEST

/* The log-probabilities of the targets are added. */
START_TEST(whole_pairs_take_two_numbers_a_target_more) {
    set("batch_size", "4");
    const uint64_t kept = needed_with("true"), twice = needed_with("false");
    ck_assert_uint_le(kept, twice + 4 * 512 * 16);
}
END_TEST

/* A lighter level for one sample, or a pass that is kept for two: the faster one, which is never
 * slower than either. */
START_TEST(levels_are_weighed_against_the_pass_that_is_kept) {
    set("gradient_checkpointing", "auto");
    set("loss_chunk_tokens", "auto");
    set("keep_first_pass", "false");
    struct pl_question twice = decide(0, NULL);
    twice.decided.gradient_checkpointing = PL_RECOMPUTE_NONE;
    const uint64_t lightest = needed(&twice, NULL, NULL);
    set("keep_first_pass", "auto");
    struct pl_text notes = {0};
    const struct pl_question q = decide(lightest, &notes);
    ck_assert_int_eq(q.decided.keep_first_pass, PL_TRI_TRUE);
    ck_assert_uint_ne(q.decided.gradient_checkpointing, PL_RECOMPUTE_NONE);
    ck_assert_uint_le(needed(&q, NULL, NULL), lightest);
    ck_assert_ptr_nonnull(strstr(pl_text_str(&notes), "keep_first_pass: auto is `true`: it fits"));
    pl_text_finish(&notes);
}
END_TEST

/* K1 of keeping.h: the largest micro-batch is the one of two passes, and the pass is kept if that
 * has room. */
START_TEST(an_open_batch_loses_no_sample) {
    set("batch_size", "auto");
    set("gradient_checkpointing", "auto");
    for (uint64_t usable = 5 * GIB; usable < 8 * GIB; usable += GIB / 2) {
        uint64_t samples;
        set("keep_first_pass", "false");
        const struct pl_question twice = decide(usable, NULL);
        set("keep_first_pass", "auto");
        const struct pl_question q = decide(usable, NULL);
        ck_assert_uint_eq(q.batch_size, twice.batch_size);
        ck_assert(!twice.recommended || needed(&q, NULL, &samples) <= usable);
    }
}
END_TEST

START_TEST(a_micro_batch_has_whole_pairs) {
    for (int b = 1; b <= 4; b++) {
        bool kept;
        uint64_t samples;
        char text[4];
        snprintf(text, sizeof text, "%d", b);
        set("batch_size", text);
        set("keep_first_pass", "true");
        struct pl_question q = ask(0);
        (void)needed(&q, &kept, &samples);
        ck_assert(kept && samples == (uint64_t)(b + b % 2));
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("autobatch.keeping");
    TCase *tc = tcase_create("keeping");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, prepare, finish);
    tcase_add_test(tc, one_pair_is_kept_where_both_answers_fit);
    tcase_add_test(tc, whole_pairs_are_kept_without_a_budget_and_others_are_not);
    tcase_add_test(tc, whole_pairs_take_two_numbers_a_target_more);
    tcase_add_test(tc, levels_are_weighed_against_the_pass_that_is_kept);
    tcase_add_test(tc, an_open_batch_loses_no_sample);
    tcase_add_test(tc, a_micro_batch_has_whole_pairs);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
