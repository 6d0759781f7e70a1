/* check_question.c - one question asked in two ways has one answer, and more never needs less. */
#include "estimator/config/job_text.h"
#include "estimator/search/question.h"
#include "tests/plan/planning.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))
#define MODEL    "SmolLM2-135M"

static struct pl_model model;
static struct pl_job job;
static const char *const modes[] = {"full", "lora", "qlora"};

static void set(const char *key, const char *value) {
    struct pl_diag d = {0};
    if (pl_job_set(&job, key, value, &d) != PL_ERR_OK) ck_abort_msg("%s: %s", key, d.message);
}

static void make(void) {
    pl_test_model(MODEL, &model);
    ck_assert_int_eq(pl_job_defaults(&job, NULL), PL_ERR_OK);
    set("gradient_checkpointing", "auto");
}

static void unmake(void) {
    pl_job_finish(&job);
}

static struct pl_question ask(uint32_t sm) {
    const struct pl_traits traits = sm ? pl_traits_cuda(sm) : pl_traits_cpu(2);
    return pl_question_of(&job, &model, &traits, NULL);
}

static uint64_t bytes_of(const struct pl_question *q) {
    struct pl_planned p;
    struct pl_diag d = {0};
    if (pl_question_plan(q, NULL, &p, &d) != PL_ERR_OK) ck_abort_msg("%s", d.message);
    const uint64_t bytes = p.plan->arena_bytes;
    pl_planned_finish(&p);
    return bytes;
}

/* Q2 */
START_TEST(what_the_job_says_wins_over_what_was_decided) {
    struct pl_question q = ask(0);
    ck_assert_uint_eq(q.batch_size, 1); /* open */
    ck_assert_uint_eq(pl_question_level(&q), PL_RECOMPUTE_AUTO);
    q.decided.gradient_checkpointing = PL_RECOMPUTE_MLP;
    q.decided.mlp_chunk_tokens = 300;
    ck_assert_uint_eq(pl_question_level(&q), PL_RECOMPUTE_MLP);
    ck_assert_uint_eq(pl_question_mlp_chunk(&q), 300);
    set("gradient_checkpointing", "none");
    set("mlp_chunk_tokens", "7");
    ck_assert_uint_eq(pl_question_level(&q), PL_RECOMPUTE_NONE);
    ck_assert_uint_eq(pl_question_mlp_chunk(&q), 7);
    set("batch_size", "6");
    ck_assert_uint_eq(ask(0).batch_size, 6);
}
END_TEST

/* A decided chunk grows with the micro-batch, so that a program stays short. */
START_TEST(a_decided_chunk_makes_no_more_than_so_many) {
    struct pl_question q = ask(0);
    set("max_seq_length", "4099");
    for (uint32_t batch = 1; batch < 4000; batch = batch * 3 + 1) {
        q.batch_size = batch;
        q.decided.mlp_chunk_tokens = 64;
        const uint64_t tokens = (uint64_t)batch * 4099, chunk = pl_question_mlp_chunk(&q);
        ck_assert_uint_ge(chunk, 64);
        ck_assert_uint_le(tokens / chunk, PL_CHUNKS_OF_AUTO);
        q.decided.mlp_chunk_tokens = 0;
        ck_assert_uint_eq(pl_question_mlp_chunk(&q), 0);
    }
}
END_TEST

/* Writing the decisions into the job asks the same question. */
START_TEST(a_settled_job_has_the_same_plan) {
    static const uint32_t levels[] = {PL_RECOMPUTE_LIGHT, PL_RECOMPUTE_FULL, PL_RECOMPUTE_AUTO,
                                      PL_RECOMPUTE_MIX(PL_RECOMPUTE_FULL, 7, PL_RECOMPUTE_NONE)};
    static const uint32_t chunks[] = {PL_AUTO, 0, 96};
    set("mode", modes[_i]);
    set("max_seq_length", "128");
    for (int l = 0; l < COUNT(levels); l++) {
        for (int c = 0; c < COUNT(chunks); c++) {
            struct pl_question q = ask(80);
            struct pl_variant v;
            struct pl_job_shape before, after;
            q.batch_size = 3;
            q.decided.gradient_checkpointing = levels[l];
            q.decided.mlp_chunk_tokens = chunks[c];
            pl_variant_of(&v, &q);
            pl_question_settle(&q, &v.job);
            pl_question_open(&v.q, &v.job, &model);
            ck_assert_uint_eq(v.q.batch_size, 3);
            ck_assert_int_eq(pl_question_shape(&q, &before, NULL), PL_ERR_OK);
            ck_assert_int_eq(pl_question_shape(&v.q, &after, NULL), PL_ERR_OK);
            ck_assert_mem_eq(&before, &after, sizeof before);
            ck_assert_uint_eq(bytes_of(&q), bytes_of(&v.q));
        }
    }
    ck_assert_uint_eq(job.batch_size, PL_AUTO); /* Q1 */
}
END_TEST

/* Updates in the backward pass that were decided for a larger micro-batch wait for no others. */
START_TEST(a_decision_that_no_longer_holds_is_settled_as_none) {
    struct pl_job_shape before, after;
    struct pl_variant v;
    set("mode", "full");
    set("batch_size", "2");
    set("global_batch_size", "4");
    struct pl_question q = ask(80);
    q.decided.optimizer_in_backward = PL_TRI_TRUE;
    pl_variant_of(&v, &q);
    pl_question_settle(&q, &v.job);
    ck_assert_uint_eq(v.job.optimizer_in_backward, PL_TRI_FALSE);
    ck_assert_int_eq(pl_question_shape(&q, &before, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_question_shape(&v.q, &after, NULL), PL_ERR_OK);
    ck_assert_uint_eq(before.gradients, PL_GRADIENTS_OF_JOB);
    ck_assert_mem_eq(&before, &after, sizeof before);
}
END_TEST

static const char *const growing[][5] = {
    /* key, and values of which a later one needs more */
    {"batch_size", "1", "2", "3", "9"},
    {"max_seq_length", "64", "65", "200", "1024"},
    {"lora_r", "1", "8", "16", "300"},
    {"vram_margin", "1GiB", "1GiB", "1GiB", "1GiB"}, /* is no byte of a plan */
};

/* Changes of one question: more samples, longer ones or a larger adapter never need less. */
START_TEST(more_never_needs_less) {
    const int key = _i / 6, mode = _i % 3;
    const uint32_t sm = _i / 3 % 2 ? 90 : 0;
    uint64_t last = 0;
    if (mode == 0 && strcmp(growing[key][0], "lora_r") == 0) return;
    set("mode", modes[mode]);
    set("max_seq_length", "256");
    for (int i = 1; i < COUNT(growing[key]); i++) {
        set(growing[key][0], growing[key][i]);
        const struct pl_question q = ask(sm);
        const uint64_t bytes = bytes_of(&q);
        ck_assert_msg(bytes >= last, "%s %s: %s needs less", modes[mode], growing[key][0],
                      growing[key][i]);
        if (i > 1 && key == 3) ck_assert_uint_eq(bytes, last);
        if (i > 2 && key < 3) ck_assert_uint_gt(bytes, last);
        last = bytes;
    }
}
END_TEST

/* A plan that is held answers its own question, and becomes that of another one. */
START_TEST(a_held_plan_leads_to_the_bytes_of_a_new_one) {
    static const uint32_t batches[] = {4, 1, 4, 7, 2, 2};
    struct pl_planned held = {0}, brief = {0};
    set("mode", modes[_i]);
    set("max_seq_length", "192");
    set("loss_chunk_tokens", "8"); /* many chunks, of which a brief program has a few */
    for (int i = 0; i < COUNT(batches); i++) {
        struct pl_question q = ask(i % 3 ? 90 : 0);
        struct pl_planned next;
        q.batch_size = batches[i];
        const uint64_t want = bytes_of(&q);
        ck_assert_int_eq(pl_question_measure(&q, &brief, NULL), PL_ERR_OK);
        ck_assert_uint_eq(brief.plan->arena_bytes, want);
        ck_assert(pl_question_has_plan(&q, &brief, true));
        ck_assert(brief.program->shortened && !pl_question_has_plan(&q, &brief, false));
        ck_assert_int_eq(pl_question_plan(&q, &held, &next, NULL), PL_ERR_OK);
        ck_assert_ptr_null(held.program); /* taken */
        ck_assert_uint_eq(next.plan->arena_bytes, want);
        ck_assert(pl_question_has_plan(&q, &next, false));
        q.batch_size++;
        ck_assert(!pl_question_has_plan(&q, &next, false));
        ck_assert(!pl_question_has_plan(&q, &brief, true));
        ck_assert_int_eq(pl_plan_check(next.plan, NULL), PL_ERR_OK);
        held = next;
    }
    ck_assert(!pl_question_has_plan(&(struct pl_question){0}, &(struct pl_planned){0}, true));
    pl_planned_finish(&held);
    pl_planned_finish(&brief);
}
END_TEST

static const struct {
    const char *length, *chunk;
} limits[] = {{"16777216", "auto"}, {"2048", "1"}, {"1000", "3"},
              {"3", "3"},           {"2", "0"},    {"65536", "16"}};

/* The largest micro-batch that can be asked about can be asked about, and the next one is refused
 * by the limit that it breaks. */
START_TEST(the_most_samples_are_the_most) {
    struct pl_diag d = {0};
    struct pl_planned held = {0};
    set("mode", "lora");
    set("max_seq_length", limits[_i].length);
    set("loss_chunk_tokens", limits[_i].chunk);
    struct pl_question q = ask(90);
    const uint32_t most = pl_question_most_samples(&q);
    ck_assert_uint_le((uint64_t)most * job.max_seq_length, pl_question_most_tokens(&q));
    ck_assert_uint_gt((uint64_t)(most + 1) * job.max_seq_length, pl_question_most_tokens(&q));
    q.batch_size = most + 1;
    const pl_err err = pl_question_sketch(&q, &held, &d);
    ck_assert_int_eq(err, strcmp(limits[_i].chunk, "auto") && strcmp(limits[_i].chunk, "0")
                              ? PL_ERR_CONFIG_RANGE
                              : PL_ERR_OVERFLOW);
    ck_assert_ptr_null(held.program);
    if (err == PL_ERR_OVERFLOW) {
        ck_assert_msg(strstr(d.message, "more than 2^31") != NULL, "%s", d.message);
        ck_assert_str_eq(d.hint, "lower `batch_size` or `max_seq_length`");
    } else {
        ck_assert_msg(strstr(d.message, "into more than 65536 chunks") != NULL, "%s", d.message);
        ck_assert_str_eq(d.hint, "raise `loss_chunk_tokens`, or leave it at `auto`");
    }
    if (_i == 0) return; /* one sample of 16 million tokens: any other limit may speak */
    q.batch_size = 1;
    ck_assert_int_eq(pl_question_sketch(&q, &held, NULL), PL_ERR_OK);
    pl_planned_finish(&held);
}
END_TEST

START_TEST(an_inference_has_no_chunks_to_count) {
    set("mode", "lora");
    set("loss_chunk_tokens", "1");
    const uint64_t trained = ask(0).job->max_seq_length;
    struct pl_question q = ask(0);
    ck_assert_uint_eq(pl_question_most_tokens(&q), 65536);
    job.inference = true;
    ck_assert_uint_eq(pl_question_most_tokens(&q), INT32_MAX);
    ck_assert_uint_eq(pl_question_most_samples(&q), INT32_MAX / trained);
    job.max_seq_length = UINT32_MAX;
    ck_assert_uint_eq(pl_question_most_samples(&q), 1); /* which is then refused by its tokens */
}
END_TEST

int main(void) {
    Suite *s = suite_create("search.question");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, make, unmake);
    tcase_add_test(t, what_the_job_says_wins_over_what_was_decided);
    tcase_add_test(t, a_decided_chunk_makes_no_more_than_so_many);
    tcase_add_loop_test(t, a_settled_job_has_the_same_plan, 0, COUNT(modes));
    tcase_add_test(t, a_decision_that_no_longer_holds_is_settled_as_none);
    tcase_add_loop_test(t, more_never_needs_less, 0, 6 * COUNT(growing));
    tcase_add_loop_test(t, a_held_plan_leads_to_the_bytes_of_a_new_one, 0, COUNT(modes));
    tcase_add_loop_test(t, the_most_samples_are_the_most, 0, COUNT(limits));
    tcase_add_test(t, an_inference_has_no_chunks_to_count);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
