/* check_copies.c - `keep_unpacked: auto`: copies of 4-bit matrices are kept where that fits a known
 * budget, at no sample's cost. */
#include "tests/autobatch/open_keys.h"

#include <check.h>
#include <string.h>

static void prepare(void) {
    prepare_mode("qlora");
}

static uint64_t needed(const char *keep) {
    struct pl_planned held = {0};
    set("keep_unpacked", keep);
    const struct pl_question q = ask(0);
    ck_assert_int_eq(pl_question_measure(&q, &held, NULL), PL_ERR_OK);
    const uint64_t bytes = held.plan->arena_bytes;
    ck_assert(held.program->shape.keeps_unpacked == (strcmp(keep, "true") == 0));
    pl_planned_finish(&held);
    set("keep_unpacked", "auto");
    return bytes;
}

/* Returns the decision with so many bytes. Checks that its plan has what it says. */
static struct pl_question decide(uint64_t usable, struct pl_text *notes) {
    struct pl_autobatch search;
    struct pl_planned planned;
    struct pl_question q = ask(usable);
    ck_assert_int_eq(pl_decide(&q, PL_BATCH_LIMIT, &search, notes, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_question_plan(&q, &search.planned, &planned, NULL), PL_ERR_OK);
    ck_assert(planned.program->shape.keeps_unpacked == (q.decided.keep_unpacked == PL_TRI_TRUE));
    pl_planned_finish(&planned);
    pl_autobatch_finish(&search);
    return q;
}

static bool keeps(uint64_t usable) {
    const struct pl_question q = decide(usable, NULL);
    return q.decided.keep_unpacked == PL_TRI_TRUE;
}

/* K3 of keeping.h */
START_TEST(copies_are_kept_where_they_fit) {
    const uint64_t kept = needed("true"), once = needed("false");
    struct pl_text notes = {0};
    ck_assert_uint_lt(once, kept);
    ck_assert(keeps(kept) && !keeps(kept - 1) && !keeps(once) && !keeps(once - 1));
    decide(kept, &notes);
    ck_assert_ptr_nonnull(
        strstr(pl_text_str(&notes), "keep_unpacked: auto is `true`: that fits\n"));
    pl_text_finish(&notes);
    decide(once, &notes);
    ck_assert_ptr_null(strstr(pl_text_str(&notes), "keep_unpacked"));
    pl_text_finish(&notes);
}
END_TEST

/* K1 of keeping.h */
START_TEST(they_cost_no_sample) {
    set("batch_size", "auto");
    for (uint64_t usable = UINT64_C(2) << 30; usable <= UINT64_C(6) << 30; usable += 200 << 20) {
        set("keep_unpacked", "false");
        const struct pl_question once = decide(usable, NULL);
        set("keep_unpacked", "auto");
        const struct pl_question kept = decide(usable, NULL);
        ck_assert_uint_eq(kept.batch_size, once.batch_size);
        ck_assert_uint_eq(kept.recommended, once.recommended);
    }
}
END_TEST

/* No budget, a value of the job's own, no 4-bit base, and levels that make no product again. */
START_TEST(others_are_left_alone) {
    static const struct {
        const char *key, *value;
    } others[] = {{"keep_unpacked", "false"},
                  {"mode", "lora"},
                  {"gradient_checkpointing", "none"},
                  {"gradient_checkpointing", "light"},
                  {"gradient_checkpointing", "light:2"}};
    const uint64_t plenty = UINT64_C(80) << 30;
    if (_i == 0) ck_assert(keeps(plenty) && !keeps(0));
    set(others[_i].key, others[_i].value);
    ck_assert(!keeps(plenty));
}
END_TEST

int main(void) {
    Suite *s = suite_create("autobatch.copies");
    TCase *tc = tcase_create("auto");
    tcase_add_checked_fixture(tc, prepare, finish);
    tcase_add_test(tc, copies_are_kept_where_they_fit);
    tcase_add_test(tc, they_cost_no_sample);
    tcase_add_loop_test(tc, others_are_left_alone, 0, 5);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
