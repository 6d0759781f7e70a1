/* check_unpack_auto.c - `unpack_buffer: auto`: whole matrices wherever anything fits that way, else
 * the largest panels that fit, for as long as the smallest do. */
#include "tests/autobatch/open_keys.h"

#include <check.h>
#include <string.h>

static void prepare(void) {
    prepare_mode("qlora");
}

/* Returns the bytes of the arenas with so many tokens of the MLP at a time and so many bytes of
 * panels. */
static uint64_t needed(const char *mlp, const char *unpack) {
    struct pl_planned held = {0};
    set("mlp_chunk_tokens", mlp);
    set("unpack_buffer", unpack);
    const struct pl_question q = ask(0);
    ck_assert_int_eq(pl_question_measure(&q, &held, NULL), PL_ERR_OK);
    const uint64_t bytes = held.plan->arena_bytes;
    pl_planned_finish(&held);
    set("mlp_chunk_tokens", "auto");
    set("unpack_buffer", "auto");
    return bytes;
}

/* Returns the decision with so many bytes; the plan's need in *bytes. */
static struct pl_question decide(uint64_t usable, uint64_t *bytes, struct pl_text *notes) {
    struct pl_planned held = {0};
    struct pl_question q = ask(usable);
    ck_assert_int_eq(pl_decide_levels(&q, 1, NULL, notes, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_question_measure(&q, &held, NULL), PL_ERR_OK);
    *bytes = held.plan->arena_bytes;
    pl_planned_finish(&held);
    return q;
}

START_TEST(matrices_stay_whole_wherever_anything_fits_that_way) {
    uint64_t bytes;
    const uint64_t whole = needed("0", "0"), in_chunks = needed("128", "0");
    ck_assert_uint_lt(in_chunks, whole);
    struct pl_question q = decide(whole, &bytes, NULL);
    ck_assert(q.decided.unpack_buffer == PL_AUTO_BYTES && q.decided.mlp_chunk_tokens == PL_AUTO);
    ck_assert_uint_eq(bytes, whole);
    q = decide(in_chunks, &bytes, NULL);
    ck_assert(q.decided.unpack_buffer == PL_AUTO_BYTES && q.decided.mlp_chunk_tokens == 128);
    ck_assert_uint_le(bytes, in_chunks);
}
END_TEST

static const char *const panels[] = {"16MiB", "32MiB", "64MiB"};

/* Tries budgets in which these fit without chunks of the MLP, and the next larger ones do not. */
START_TEST(the_largest_panels_that_fit_are_taken) {
    struct pl_text notes = {0};
    uint64_t bytes;
    const uint64_t most = needed("0", panels[_i]);
    const struct pl_question q = decide(most, &bytes, &notes);
    ck_assert_uint_lt(most, needed("128", "0"));
    ck_assert_uint_eq(q.decided.unpack_buffer, PL_UNPACK_MIN << _i);
    ck_assert(q.decided.mlp_chunk_tokens == PL_AUTO);
    ck_assert_uint_eq(bytes, most);
    ck_assert_ptr_nonnull(strstr(pl_text_str(&notes), "unpack_buffer: auto is `"));
    ck_assert_ptr_nonnull(strstr(pl_text_str(&notes), panels[_i]));
    pl_text_finish(&notes);
}
END_TEST

START_TEST(chunks_come_with_panels_where_neither_is_enough) {
    uint64_t bytes;
    const uint64_t most = needed("128", "16MiB");
    ck_assert_uint_lt(most, needed("0", "16MiB"));
    struct pl_question q = decide(most, &bytes, NULL);
    ck_assert(q.decided.unpack_buffer == PL_UNPACK_MIN && q.decided.mlp_chunk_tokens == 128);
    ck_assert_uint_eq(bytes, most);
    q = decide(most - 1, &bytes, NULL);
    ck_assert(q.decided.unpack_buffer == PL_AUTO_BYTES);
}
END_TEST

/* No 4-bit base, a value of the job's own, tokens of which copies are little, no budget. */
START_TEST(others_are_left_alone) {
    static const struct {
        const char *key, *value;
    } others[] = {{"mode", "lora"}, {"unpack_buffer", "0"}, {"max_seq_length", "8192"}, {"", ""}};
    struct pl_question q = ask(_i < 3);
    ck_assert_int_eq(pl_autolevel_may_unpack(&q), _i < 3);
    if (_i < 3) set(others[_i].key, others[_i].value);
    ck_assert(!pl_autolevel_may_unpack(&q));
    q.decided.unpack_buffer = PL_UNPACK_MIN;
    if (_i == 2) ck_assert(pl_question_unpack(&q) == PL_AUTO_BYTES);
}
END_TEST

int main(void) {
    Suite *s = suite_create("autobatch.unpack_auto");
    TCase *tc = tcase_create("auto");
    tcase_add_checked_fixture(tc, prepare, finish);
    tcase_add_test(tc, matrices_stay_whole_wherever_anything_fits_that_way);
    tcase_add_loop_test(tc, the_largest_panels_that_fit_are_taken, 0, 3);
    tcase_add_test(tc, chunks_come_with_panels_where_neither_is_enough);
    tcase_add_loop_test(tc, others_are_left_alone, 0, 4);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
