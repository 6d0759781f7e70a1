/* check_search.c - the largest micro-batch against every one there is, planned one by one. */
#include "estimator/autobatch/decide.h"
#include "estimator/config/job_text.h"
#include "tests/plan/planning.h"
#include "tests/support/ask.h"

#include <check.h>
#include <stdio.h>

#define LAYERS 2
#define MOST   48 /* batches that are counted out */

static struct pl_job job;
static struct pl_model model;
static struct pl_traits traits;
static uint64_t bytes[MOST + 2]; /* bytes of each batch */

static const struct {
    const char *mode, *level, *chunk, *key, *value;
    bool cuda;
} jobs[] = {
    {"full", "none", "0", "max_seq_length", "64", false},
    {"full", "full", "128", "max_seq_length", "200", true},
    {"lora", "light", "256", "max_seq_length", "96", true},
    {"lora", "every_2", "0", "lora_r", "64", false},
    {"qlora", "attention", "auto", "max_seq_length", "128", true},
    {"full", "offload", "128", "max_seq_length", "128", true},
    {"lora", "mlp", "1000", "packing", "true", false},
};
enum { N_JOBS = sizeof jobs / sizeof *jobs };

static void set(const char *key, const char *value) {
    ck_assert_int_eq(pl_job_set(&job, key, value, NULL), PL_ERR_OK);
}

static void take_job(int i) {
    ck_assert_int_eq(pl_job_defaults(&job, NULL), PL_ERR_OK);
    set("mode", jobs[i].mode);
    set("max_seq_length", "128");
    set("gradient_dtype", "fp32"); /* under auto it depends on the batch */
    set("gradient_checkpointing", jobs[i].level);
    set("loss_chunk_tokens", jobs[i].chunk);
    set(jobs[i].key, jobs[i].value);
    pl_test_model("SmolLM2-135M", &model);
    model.layers = LAYERS;
    traits = jobs[i].cuda ? pl_traits_cuda(90) : pl_traits_cpu(2);
}

static void count_out(void) {
    for (uint32_t b = 1; b <= MOST + 1; b++) {
        struct pl_planned p;
        ck_assert_int_eq(pl_question_plan(PL_ASK(&job, &model, &traits, NULL, b), NULL, &p, NULL),
                         PL_ERR_OK);
        bytes[b] = p.plan->arena_bytes;
        pl_planned_finish(&p);
    }
}

static void finish(void) {
    pl_job_finish(&job);
}

/* The answer has to be a batch that fits, of which the next does not: where bytes rise with the
 * batch there is one. */
static void expect_largest(uint64_t budget, uint32_t limit) {
    const struct pl_budget b = {.known = true, .total_bytes = budget};
    struct pl_autobatch found;
    ck_assert_int_eq(
        pl_autobatch_solve(PL_ASK(&job, &model, &traits, &b, 1), limit, NULL, &found, NULL),
        PL_ERR_OK);
    const uint32_t n = found.batch_size;
    ck_assert_uint_le(n, limit);
    if (n) {
        ck_assert_uint_le(bytes[n], budget);
        ck_assert_uint_eq(found.arena_bytes, bytes[n]);
    }
    if (n < limit) {
        ck_assert_msg(bytes[n + 1] > budget, "%u of %u, and %u fits", n, limit, n + 1);
        ck_assert_uint_eq(found.next_bytes, bytes[n + 1]);
    } else {
        ck_assert_uint_eq(found.next_bytes, 0);
    }
    pl_autobatch_finish(&found);
}

START_TEST(the_search_finds_what_counting_out_finds) {
    take_job(_i);
    count_out();
    for (uint32_t b = 1; b <= MOST; b++)
        for (int less = 0; less < 2; less++)
            expect_largest(bytes[b] - (uint64_t)less, MOST);
    expect_largest(0, MOST);
    expect_largest(UINT64_MAX, MOST);
    for (uint32_t limit = 1; limit < MOST; limit += 5)
        expect_largest(bytes[20], limit);
    finish();
}
END_TEST

/* A batch of one's own is where the search begins, and changes nothing of its end. */
START_TEST(where_the_search_begins_does_not_matter) {
    char text[16];
    take_job(_i);
    count_out();
    for (uint32_t own = 1; own <= MOST; own += 7) {
        snprintf(text, sizeof text, "%u", own);
        set("batch_size", text);
        for (uint32_t b = 1; b <= MOST; b += 6)
            expect_largest(bytes[b], MOST);
    }
    finish();
}
END_TEST

/* The decided batch: the job's own, else the largest that fits and a step can use, else 1. */
static const struct {
    const char *batch, *global;
    uint32_t fits; /* largest of the budget; 0: no budget */
    uint32_t limit, batch_size, recommended;
} decisions[] = {
    {"auto", NULL, 9, 48, 9, 9}, {"auto", NULL, 9, 4, 4, 4}, {"auto", NULL, 0, 48, 1, 0},
    {"auto", "6", 9, 48, 6, 9},  {"auto", "6", 4, 48, 4, 4}, {"5", NULL, 9, 48, 5, 9},
    {"12", NULL, 9, 48, 12, 9},  {"5", NULL, 0, 48, 5, 0},   {"7", "14", 9, 48, 7, 9},
};

START_TEST(the_batch_is_decided_by_job_budget_and_step) {
    take_job(0);
    set("gradient_dtype", "fp32"); /* else it follows from the number of micro-batches */
    set("optimizer_in_backward", "false");
    count_out();
    set("batch_size", decisions[_i].batch);
    if (decisions[_i].global) set("global_batch_size", decisions[_i].global);
    const struct pl_budget b = {.known = decisions[_i].fits != 0,
                                .total_bytes = bytes[decisions[_i].fits]};
    struct pl_question *q = PL_ASK(&job, &model, &traits, &b, 0);
    struct pl_autobatch found;
    ck_assert_int_eq(pl_decide(q, decisions[_i].limit, &found, NULL, NULL), PL_ERR_OK);
    ck_assert_uint_eq(q->batch_size, decisions[_i].batch_size);
    ck_assert_uint_eq(q->recommended, decisions[_i].recommended);
    pl_autobatch_finish(&found);
    finish();
}
END_TEST

START_TEST(where_nothing_fits_one_sample_is_planned) {
    take_job(0);
    set("optimizer_in_backward", "false");
    count_out();
    const struct pl_budget b = {.known = true, .total_bytes = bytes[1] - 1};
    struct pl_question *q = PL_ASK(&job, &model, &traits, &b, 0);
    struct pl_autobatch found;
    ck_assert_int_eq(pl_decide(q, PL_BATCH_LIMIT, &found, NULL, NULL), PL_ERR_OK);
    ck_assert_uint_eq(q->recommended, 0);
    ck_assert_uint_eq(q->batch_size, 1);
    pl_autobatch_finish(&found);
    finish();
}
END_TEST

int main(void) {
    Suite *s = suite_create("autobatch.search");
    TCase *tc = tcase_create("search");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, the_search_finds_what_counting_out_finds, 0, N_JOBS);
    tcase_add_loop_test(tc, where_the_search_begins_does_not_matter, 0, N_JOBS);
    tcase_add_loop_test(tc, the_batch_is_decided_by_job_budget_and_step, 0,
                        sizeof decisions / sizeof *decisions);
    tcase_add_test(tc, where_nothing_fits_one_sample_is_planned);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
