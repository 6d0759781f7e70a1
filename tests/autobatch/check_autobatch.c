/* check_autobatch.c - the largest batch is the largest: the next one was planned and does not fit.
 */
#include "estimator/autobatch/autolevel.h"
#include "estimator/autobatch/decide.h"
#include "estimator/base/checked.h"
#include "estimator/config/job_text.h"
#include "tests/plan/planning.h"
#include "tests/support/ask.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static void read_job(struct pl_job *job, const char *mode) {
    ck_assert_int_eq(pl_job_defaults(job, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_job_set(job, "mode", mode, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_job_set(job, "max_seq_length", "256", NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_job_set(job, "gradient_checkpointing", "full", NULL), PL_ERR_OK);
    /* Under auto a step of one micro-batch takes less than one of two. */
    ck_assert_int_eq(pl_job_set(job, "gradient_dtype", "fp32", NULL), PL_ERR_OK);
}

static uint64_t arena_at(const struct pl_job *job, const struct pl_model *m, uint32_t batch) {
    const struct pl_traits traits = pl_traits_cpu(2);
    struct pl_planned p;
    ck_assert_int_eq(pl_question_plan(PL_ASK(job, m, &traits, NULL, batch), NULL, &p, NULL),
                     PL_ERR_OK);
    uint64_t bytes = p.plan->arena_bytes;
    pl_planned_finish(&p);
    return bytes;
}

START_TEST(one_byte_less_costs_a_sample) {
    static const char *const modes[] = {"full", "lora"};
    const struct pl_traits traits = pl_traits_cpu(2);
    struct pl_job job;
    struct pl_model m;
    struct pl_autobatch a;
    read_job(&job, modes[_i % 2]);
    pl_test_model("SmolLM2-135M", &m);
    uint32_t want = 1 + (uint32_t)_i * 3;
    struct pl_budget b = {.known = true, .total_bytes = arena_at(&job, &m, want)};
    ck_assert_int_eq(pl_autobatch_solve(PL_ASK(&job, &m, &traits, &b, 0), 1000, NULL, &a, NULL),
                     PL_ERR_OK);
    pl_autobatch_finish(&a);
    ck_assert_uint_eq(a.batch_size, want);
    ck_assert_uint_eq(a.arena_bytes, b.total_bytes);
    ck_assert_uint_gt(a.next_bytes, b.total_bytes);
    b.total_bytes--;
    ck_assert_int_eq(pl_autobatch_solve(PL_ASK(&job, &m, &traits, &b, 0), 1000, NULL, &a, NULL),
                     PL_ERR_OK);
    pl_autobatch_finish(&a);
    ck_assert_uint_eq(a.batch_size, want - 1);
    b.total_bytes += 1 + 4096;
    b.margin_bytes = 4096;
    ck_assert_int_eq(pl_autobatch_solve(PL_ASK(&job, &m, &traits, &b, 0), 1000, NULL, &a, NULL),
                     PL_ERR_OK);
    pl_autobatch_finish(&a);
    ck_assert_uint_eq(a.batch_size, want);
    pl_job_finish(&job);
}
END_TEST

START_TEST(the_limit_stops_the_search) {
    const struct pl_traits traits = pl_traits_cpu(2);
    struct pl_job job;
    struct pl_model m;
    struct pl_autobatch a;
    read_job(&job, "lora");
    pl_test_model("SmolLM2-135M", &m);
    const struct pl_budget b = {.known = true, .total_bytes = UINT64_C(1) << 50};
    for (uint32_t limit = 1; limit < 20; limit++) {
        ck_assert_int_eq(
            pl_autobatch_solve(PL_ASK(&job, &m, &traits, &b, 0), limit, NULL, &a, NULL), PL_ERR_OK);
        pl_autobatch_finish(&a);
        ck_assert_uint_eq(a.batch_size, limit);
        ck_assert_uint_eq(a.next_bytes, 0);
    }
    pl_job_finish(&job);
}
END_TEST

START_TEST(lengths_near_the_token_limit_do_not_overflow) {
    const struct pl_traits traits = pl_traits_cpu(1);
    struct pl_job job;
    struct pl_model m;
    struct pl_autobatch a;
    read_job(&job, "lora");
    pl_test_model("SmolLM2-135M", &m);
    job.max_seq_length = 16777216;
    const struct pl_budget b = {.known = true, .total_bytes = UINT64_MAX};
    ck_assert_int_eq(pl_autobatch_solve(PL_ASK(&job, &m, &traits, &b, 0), 65536, NULL, &a, NULL),
                     PL_ERR_OK);
    pl_autobatch_finish(&a);
    ck_assert_uint_eq(a.batch_size, INT32_MAX / 16777216);
    pl_job_finish(&job);
}
END_TEST

/* More chunks than a program may have are no error of the question, but the end of a search. */
START_TEST(a_search_asks_nothing_that_cannot_be_asked) {
    const struct pl_traits traits = pl_traits_cpu(1);
    const struct pl_budget b = {.known = true, .total_bytes = UINT64_C(1) << 60};
    struct pl_job job;
    struct pl_model m;
    struct pl_autobatch a;
    read_job(&job, "lora");
    pl_test_model("SmolLM2-135M", &m);
    m.layers = 1;
    job.loss_chunk_tokens = 1;
    ck_assert_int_eq(pl_autobatch_solve(PL_ASK(&job, &m, &traits, &b, 0), 65536, NULL, &a, NULL),
                     PL_ERR_OK);
    pl_autobatch_finish(&a);
    ck_assert_uint_eq(a.batch_size, PL_CHUNKS_MAX / 256);
    ck_assert_uint_eq(a.next_bytes, 0);
    pl_job_finish(&job);
}
END_TEST

START_TEST(a_chunk_that_was_decided_grows_with_the_tokens) {
    const struct pl_traits traits = pl_traits_cpu(1);
    const struct pl_budget b = {.known = true, .total_bytes = 1};
    struct pl_job job;
    struct pl_model m;
    struct pl_autobatch a;
    struct pl_planned p;
    struct pl_diag d = {0};
    read_job(&job, "lora");
    pl_test_model("SmolLM2-135M", &m);
    job.gradient_checkpointing = PL_RECOMPUTE_AUTO;
    job.max_seq_length = 16777216;
    struct pl_question *q = PL_ASK(&job, &m, &traits, &b, 0);
    ck_assert_msg(pl_decide(q, PL_BATCH_LIMIT, &a, NULL, &d) == PL_ERR_OK, "%s", d.message);
    ck_assert_uint_eq(q->recommended, 0);
    ck_assert_msg(pl_question_plan(q, &a.planned, &p, &d) == PL_ERR_OK, "%s", d.message);
    ck_assert_uint_eq(p.program->chunk_tokens, 16777216 / PL_CHUNKS_OF_AUTO);
    pl_planned_finish(&p);
    pl_job_finish(&job);
}
END_TEST

/* given: the job's batch_size, 0 = auto; fits: how many samples the budget holds. */
static const struct {
    uint32_t given, fits, limit, best, kept;
} searches[] = {
    {0, 5, 1000, 5, 5}, {0, 0, 1000, 0, 1}, {3, 5, 1000, 5, 3},   {1, 5, 1000, 5, 1},
    {7, 5, 1000, 5, 7}, {6, 5, 1000, 5, 6}, {64, 5, 1000, 5, 64}, {4, 0, 1000, 0, 4},
    {5, 5, 5, 5, 5},    {0, 9, 4, 4, 4},    {8, 9, 4, 4, 0},      {4, 3, 4, 3, 4},
};

START_TEST(the_plan_that_is_wanted_next_is_kept) {
    const struct pl_traits traits = pl_traits_cpu(2);
    struct pl_job job;
    struct pl_model m;
    struct pl_autobatch a;
    read_job(&job, "full");
    pl_test_model("SmolLM2-135M", &m);
    struct pl_budget b = {.known = true, .total_bytes = arena_at(&job, &m, 1) - 1};
    if (searches[_i].fits) b.total_bytes = arena_at(&job, &m, searches[_i].fits);
    if (searches[_i].given) job.batch_size = searches[_i].given;
    ck_assert_int_eq(
        pl_autobatch_solve(PL_ASK(&job, &m, &traits, &b, 0), searches[_i].limit, NULL, &a, NULL),
        PL_ERR_OK);
    ck_assert_uint_eq(a.batch_size, searches[_i].best);
    if (searches[_i].best < searches[_i].limit)
        ck_assert_uint_eq(a.next_bytes, arena_at(&job, &m, searches[_i].best + 1));
    else
        ck_assert_uint_eq(a.next_bytes, 0);
    if (searches[_i].kept)
        ck_assert_uint_eq(a.planned.program->shape.batch_size, searches[_i].kept);
    else
        ck_assert_ptr_null(a.planned.program);
    pl_autobatch_finish(&a);
    pl_job_finish(&job);
}
END_TEST

/* A plan that is made again has no such figure, wherever it lies in memory. */
#define MARK UINT64_C(0x5EA1)

/* A plan that is handed to a search is the search's answer, and not made again. */
START_TEST(a_plan_that_is_there_is_not_made_again) {
    const struct pl_traits traits = pl_traits_cpu(2);
    struct pl_job job;
    struct pl_model m;
    struct pl_planned made;
    struct pl_autobatch a;
    read_job(&job, "full");
    pl_test_model("SmolLM2-135M", &m);
    const struct pl_budget b = {.known = true, .total_bytes = arena_at(&job, &m, 5)};
    if (_i) job.batch_size = 5 * (uint32_t)_i;
    ck_assert_int_eq(pl_question_plan(PL_ASK(&job, &m, &traits, &b, _i ? 5 * (uint32_t)_i : 5),
                                      NULL, &made, NULL),
                     PL_ERR_OK);
    made.plan->fragmentation_bytes = MARK;
    ck_assert_int_eq(pl_autobatch_solve(PL_ASK(&job, &m, &traits, &b, 0), 7, &made, &a, NULL),
                     PL_ERR_OK);
    ck_assert_ptr_null(made.plan);
    ck_assert_uint_eq(a.batch_size, 5);
    ck_assert_uint_eq(a.planned.plan->fragmentation_bytes, MARK);
    pl_autobatch_finish(&a);
    pl_job_finish(&job);
}
END_TEST

START_TEST(the_plan_of_a_decision_is_handed_on) {
    const struct pl_traits traits = pl_traits_cpu(2);
    struct pl_job job;
    struct pl_model m;
    struct pl_planned p;
    struct pl_autobatch a;
    read_job(&job, "full");
    pl_test_model("SmolLM2-135M", &m);
    const struct pl_budget b = {.known = true, .total_bytes = arena_at(&job, &m, 5)};
    job.gradient_checkpointing = PL_RECOMPUTE_AUTO;
    if (_i) job.batch_size = 2;
    struct pl_question *q = PL_ASK(&job, &m, &traits, &b, 0);
    ck_assert_int_eq(pl_decide(q, PL_BATCH_LIMIT, &a, NULL, NULL), PL_ERR_OK);
    ck_assert_ptr_nonnull(a.planned.plan);
    a.planned.plan->fragmentation_bytes = MARK;
    ck_assert_int_eq(pl_question_plan(q, &a.planned, &p, NULL), PL_ERR_OK);
    ck_assert_uint_eq(p.plan->fragmentation_bytes, MARK);
    pl_planned_finish(&p);
    pl_autobatch_finish(&a);
    pl_job_finish(&job);
}
END_TEST

START_TEST(a_plan_is_taken_only_for_its_own_question) {
    struct pl_traits traits = pl_traits_cpu(2);
    struct pl_job job;
    struct pl_model m;
    read_job(&job, "lora");
    pl_test_model("SmolLM2-135M", &m);
    for (int change = 0; change < 4; change++) {
        struct pl_planned made, out;
        traits = pl_traits_cpu(2);
        job.lora_r = 16;
        ck_assert_int_eq(pl_question_plan(PL_ASK(&job, &m, &traits, NULL, 2), NULL, &made, NULL),
                         PL_ERR_OK);
        made.plan->fragmentation_bytes = MARK;
        if (change == 1) traits = pl_traits_cpu(7);
        if (change == 2) job.lora_r = 17;
        uint32_t batch = change == 3 ? 3 : 2;
        ck_assert_int_eq(
            pl_question_plan(PL_ASK(&job, &m, &traits, NULL, batch), &made, &out, NULL), PL_ERR_OK);
        ck_assert_ptr_null(made.plan);
        ck_assert_ptr_null(made.program);
        ck_assert_uint_eq(out.program->shape.batch_size, batch);
        ck_assert_uint_eq(out.program->shape.lora_r, job.lora_r);
        ck_assert_uint_eq(out.program->traits.threads, traits.threads);
        ck_assert_int_eq(out.plan->fragmentation_bytes == MARK, change == 0);
        pl_planned_finish(&out);
    }
    pl_job_finish(&job);
}
END_TEST

/* --- gradient_checkpointing: auto --------------------------------------------------------------
 */

START_TEST(a_level_that_was_asked_for_stays) {
    const struct pl_traits traits = pl_traits_cpu(2);
    const struct pl_budget b = {.known = true, .total_bytes = UINT64_C(1) << 40};
    struct pl_job job;
    struct pl_model m;
    struct pl_text notes = {0};
    read_job(&job, "lora");
    pl_test_model("SmolLM2-135M", &m);
    job.gradient_checkpointing = PL_RECOMPUTE_LIGHT;
    struct pl_question *q = PL_ASK(&job, &m, &traits, &b, 0);
    ck_assert_int_eq(pl_autolevel_decide(q, 4, NULL, &notes, NULL), PL_ERR_OK);
    ck_assert_uint_eq(pl_question_level(q), PL_RECOMPUTE_LIGHT);
    ck_assert_str_eq(pl_text_str(&notes), "");
    job.gradient_checkpointing = PL_RECOMPUTE_AUTO;
    pl_question_open(q, &job, &m);
    ck_assert_int_eq(pl_autolevel_decide(q, 4, NULL, &notes, NULL), PL_ERR_OK);
    ck_assert_uint_eq(pl_question_level(q), PL_RECOMPUTE_NONE);
    ck_assert_ptr_nonnull(strstr(pl_text_str(&notes), "auto is `none`"));
    pl_text_finish(&notes);
    pl_job_finish(&job);
}
END_TEST

/* --- optimizer_in_backward: auto -----------------------------------------------------------------
 */

static uint64_t arena_with(struct pl_job *job, const struct pl_model *m, const char *in_backward) {
    char own[8] = {0};
    struct pl_text was = PL_TEXT_FIXED(own);
    pl_job_write_key(job, PL_KEY_optimizer_in_backward, &was);
    ck_assert_int_eq(pl_job_set(job, "optimizer_in_backward", in_backward, NULL), PL_ERR_OK);
    const uint64_t bytes = arena_at(job, m, job->global_batch_size == 1 ? 1 : 2);
    ck_assert_int_eq(pl_job_set(job, "optimizer_in_backward", pl_text_str(&was), NULL), PL_ERR_OK);
    return bytes;
}

/* The decision for so many bytes, with the words that the note must have; NULL: there is none. */
static void expect_in_backward(struct pl_job *job, const struct pl_model *m, uint64_t bytes,
                               uint32_t want, const char *note) {
    const struct pl_traits traits = pl_traits_cpu(2);
    const struct pl_budget b = {.known = true, .total_bytes = bytes};
    struct pl_text notes = {0};
    struct pl_autobatch a;
    struct pl_question *q = PL_ASK(job, m, &traits, &b, 0);
    ck_assert_int_eq(pl_decide(q, PL_BATCH_LIMIT, &a, &notes, NULL), PL_ERR_OK);
    pl_autobatch_finish(&a);
    ck_assert_msg(pl_question_in_backward(q) == want,
                  "optimizer_in_backward is %u, not %u, with %llu bytes",
                  pl_question_in_backward(q), want, (unsigned long long)bytes);
    const char *told = strstr(pl_text_str(&notes), "optimizer_in_backward: auto is `true`");
    ck_assert_int_eq(told != NULL, note != NULL);
    if (note) ck_assert_msg(strstr(told, note) != NULL, "%s", told);
    struct pl_job settled = *job; /* shallow */
    pl_question_settle(q, &settled);
    ck_assert_uint_eq(settled.optimizer_in_backward, want);
    pl_text_finish(&notes);
}

/* Both sides of the byte that decides are tried. A job that cannot use it keeps its gradients
 * whatever the bytes. */
START_TEST(updates_move_into_the_backward_pass_where_nothing_fits_without) {
    static const struct {
        const char *mode, *words[2];
        bool may;
    } jobs[] = {
        {"full", {"batch_size=2"}, true},
        {"full", {"batch_size=2", "max_grad_norm=0"}, true},
        {"full", {"batch_size=2", "loss_chunk_tokens=128"}, true},
        {"full", {"batch_size=2", "gradient_checkpointing=auto"}, true},
        {"full", {"batch_size=2", "global_batch_size=2"}, true},
        {"full", {"batch_size=2", "gradient_accumulation_steps=2"}, false},
        {"full", {"batch_size=2", "global_batch_size=4"}, false},
        {"full", {"batch_size=auto", "global_batch_size=2"}, false},
        {"full", {"batch_size=auto", "global_batch_size=1"}, true},
        {"full", {"batch_size=2", "offload=optimizer"}, false},
        {"full", {"batch_size=2", "rank_order=true"}, false},
        {"full", {"batch_size=2", "devices=2"}, false},
        {"full", {"batch_size=2", "optimizer_in_backward=false"}, false},
        {"lora", {"batch_size=2"}, false},
    };
    struct pl_job job;
    struct pl_model m;
    read_job(&job, jobs[_i].mode);
    pl_test_model("SmolLM2-135M", &m);
    for (int w = 0; w < 2 && jobs[_i].words[w]; w++) {
        char word[64];
        snprintf(word, sizeof word, "%s", jobs[_i].words[w]);
        char *value = strchr(word, '=');
        *value++ = 0;
        ck_assert_int_eq(pl_job_set(&job, word, value, NULL), PL_ERR_OK);
    }
    job.loss_chunk_tokens = job.loss_chunk_tokens == PL_AUTO ? 64 : job.loss_chunk_tokens;
    const uint32_t level = job.gradient_checkpointing;
    if (level == PL_RECOMPUTE_AUTO) job.gradient_checkpointing = PL_RECOMPUTE_FULL;
    const uint64_t without = arena_with(&job, &m, "false");
    const uint64_t with = jobs[_i].may ? arena_with(&job, &m, "true") : without;
    job.gradient_checkpointing = level;
    if (jobs[_i].may) ck_assert_uint_lt(with, without);
    const uint32_t yes = jobs[_i].may ? PL_TRI_TRUE : PL_TRI_FALSE;
    const char *note = !jobs[_i].may           ? NULL
                       : job.max_grad_norm > 0 ? "the job does not fit without it, which makes a "
                                                 "step 1.6"
                                               : "the job does not fit without it\n";
    expect_in_backward(&job, &m, without, PL_TRI_FALSE, NULL);
    if (level != PL_RECOMPUTE_AUTO) expect_in_backward(&job, &m, without - 1, yes, note);
    expect_in_backward(&job, &m, with, yes, note);
    expect_in_backward(&job, &m, with / 2, PL_TRI_FALSE, NULL); /* which decides nothing */
    pl_job_finish(&job);
}
END_TEST

static void expect_note(struct pl_job *job, const struct pl_model *m, uint64_t bytes,
                        const char *with, const char *without) {
    const struct pl_traits traits = pl_traits_cpu(2);
    const struct pl_budget b = {.known = true, .total_bytes = bytes};
    struct pl_text notes = {0};
    struct pl_question *q = PL_ASK(job, m, &traits, &b, 0);
    ck_assert_int_eq(pl_autolevel_decide(q, 2, NULL, &notes, NULL), PL_ERR_OK);
    ck_assert_msg(strstr(pl_text_str(&notes), with) != NULL, "%s", pl_text_str(&notes));
    ck_assert_msg(!without || !strstr(pl_text_str(&notes), without), "%s", pl_text_str(&notes));
    pl_text_finish(&notes);
}

/* The note names weights without masters where gradients have room next to them. */
START_TEST(the_note_names_the_setting_that_costs_no_time) {
    static const char fits[] = "; with `master_weights: false` it would fit\n";
    struct pl_job job;
    struct pl_model m;
    read_job(&job, "full");
    pl_test_model("SmolLM2-135M", &m);
    job.batch_size = 2;
    job.loss_chunk_tokens = 64;
    const uint64_t with = arena_with(&job, &m, "true"), without = arena_with(&job, &m, "false");
    job.master_weights = PL_TRI_FALSE;
    const uint64_t rounded = arena_with(&job, &m, "false");
    job.master_weights = PL_TRI_AUTO;
    ck_assert_uint_lt(with, without);
    ck_assert_uint_lt(rounded, without);
    expect_note(&job, &m, rounded > with ? rounded : with, fits, NULL);
    job.master_weights = PL_TRI_TRUE;
    expect_note(&job, &m, without - 1, fits, NULL);
    job.master_weights = PL_TRI_FALSE;
    expect_note(&job, &m, rounded - 1, "times as long\n", "master_weights");
    pl_job_finish(&job);
}
END_TEST

/* A4, too: the room of the gradients buys a lighter level where a step does not clip. With the
 * bytes of `full` and gradients that are kept, it takes less time without keeping them. */
START_TEST(a_faster_step_lets_its_gradients_go) {
    static const struct {
        double max_grad_norm;
        uint32_t level, want;
    } cases[] = {{0, PL_RECOMPUTE_AUTO, PL_TRI_TRUE},
                 {1, PL_RECOMPUTE_AUTO, PL_TRI_FALSE},
                 {0, PL_RECOMPUTE_FULL, PL_TRI_FALSE}};
    struct pl_job job;
    struct pl_model m;
    read_job(&job, "full");
    pl_test_model("SmolLM2-135M", &m);
    job.batch_size = 2;
    job.loss_chunk_tokens = 64;
    const uint64_t bytes = arena_with(&job, &m, "false");
    job.gradient_checkpointing = cases[_i].level;
    job.max_grad_norm = cases[_i].max_grad_norm;
    const bool goes = cases[_i].want == PL_TRI_TRUE;
    expect_in_backward(&job, &m, bytes, cases[_i].want, goes ? "the room of the gradients" : NULL);
    expect_in_backward(&job, &m, UINT64_C(1) << 40, PL_TRI_FALSE, NULL);
    pl_job_finish(&job);
}
END_TEST

/* A4 of autolevel.h. A micro-batch that is open is the largest without them, as long as there is
 * one. */
START_TEST(a_batch_that_fits_keeps_its_gradients) {
    const struct pl_traits traits = pl_traits_cpu(2);
    struct pl_job job;
    struct pl_model m;
    struct pl_autobatch a;
    read_job(&job, "full");
    pl_test_model("SmolLM2-135M", &m);
    job.loss_chunk_tokens = 64;
    job.optimizer_in_backward = PL_TRI_FALSE;
    struct pl_budget b = {.known = true, .total_bytes = arena_at(&job, &m, 1)};
    job.optimizer_in_backward = PL_TRI_AUTO;
    for (int less = 0; less < 2; less++) {
        b.total_bytes -= (uint64_t)less;
        struct pl_question *q = PL_ASK(&job, &m, &traits, &b, 0);
        ck_assert_int_eq(pl_decide(q, PL_BATCH_LIMIT, &a, NULL, NULL), PL_ERR_OK);
        ck_assert_uint_eq(q->decided.optimizer_in_backward, less ? PL_TRI_TRUE : PL_TRI_FALSE);
        ck_assert_uint_ge(q->batch_size, less ? 2 : 1);
        ck_assert_uint_eq(q->batch_size, pl_u64_min(a.batch_size, pl_autobatch_limit(&job)));
        pl_autobatch_finish(&a);
    }
    pl_job_finish(&job);
}
END_TEST

int main(void) {
    Suite *s = suite_create("autobatch.autobatch");
    TCase *tc = tcase_create("autobatch");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, one_byte_less_costs_a_sample, 0, 12);
    tcase_add_test(tc, the_limit_stops_the_search);
    tcase_add_test(tc, lengths_near_the_token_limit_do_not_overflow);
    tcase_add_test(tc, a_search_asks_nothing_that_cannot_be_asked);
    tcase_add_test(tc, a_chunk_that_was_decided_grows_with_the_tokens);
    tcase_add_loop_test(tc, the_plan_that_is_wanted_next_is_kept, 0,
                        (int)(sizeof searches / sizeof *searches));
    tcase_add_loop_test(tc, a_plan_that_is_there_is_not_made_again, 0, 3);
    tcase_add_loop_test(tc, the_plan_of_a_decision_is_handed_on, 0, 2);
    tcase_add_test(tc, a_plan_is_taken_only_for_its_own_question);
    tcase_add_test(tc, a_level_that_was_asked_for_stays);
    tcase_add_loop_test(tc, updates_move_into_the_backward_pass_where_nothing_fits_without, 0, 14);
    tcase_add_test(tc, the_note_names_the_setting_that_costs_no_time);
    tcase_add_loop_test(tc, a_faster_step_lets_its_gradients_go, 0, 3);
    tcase_add_test(tc, a_batch_that_fits_keeps_its_gradients);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
