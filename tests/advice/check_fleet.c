/* check_fleet.c - rows of devices against plans, programs and closed forms of their own. */
#include "estimator/advice/advice.h"
#include "estimator/advice/fleet.h"
#include "estimator/card/cards.h"
#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"
#include "estimator/program/shard.h"
#include "estimator/program/cost.h"
#include "tests/plan/planning.h"
#include "tests/support/ask.h"

#include <check.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

static struct pl_job job;
static struct pl_model model;
static struct pl_traits traits;
static struct pl_budget budget;
static struct pl_advice advice;
static struct pl_fleet fleet;

static void set(const char *key, const char *value) {
    ck_assert_int_eq(pl_job_set(&job, key, value, NULL), PL_ERR_OK);
}

static void prepare(void) {
    ck_assert_int_eq(pl_job_defaults(&job, NULL), PL_ERR_OK);
    set("mode", "full");
    set("model", "SmolLM2-135M");
    set("max_seq_length", "256");
    pl_test_model("SmolLM2-135M", &model);
    traits = pl_traits_cuda(90);
    budget = (struct pl_budget){.known = true, .total_bytes = 1900 * MIB, .source = "a GPU"};
}

static void finish(void) {
    pl_advice_finish(&advice);
    pl_job_finish(&job);
}

static const struct pl_link *link_of(const char *name) {
    const struct pl_link *link = NULL;
    ck_assert_int_eq(pl_link_require(name, NULL, &link, NULL), PL_ERR_OK);
    return link;
}

static void make(const char *link, uint32_t devices, uint32_t samples) {
    struct pl_question *q = PL_ASK(&job, &model, &traits, &budget, 1);
    const struct pl_fleet_request request = {.link = link_of(link), .devices = devices};
    struct pl_diag d = {0};
    pl_advice_finish(&advice);
    ck_assert_msg(pl_advice_begin(&advice, q, NULL, samples, &d) == PL_ERR_OK, "%s", d.message);
    ck_assert_msg(pl_advice_fleet(&advice, &request, &fleet, &d) == PL_ERR_OK, "%s", d.message);
}

static const struct pl_fleet_row *row_of(uint32_t devices, uint32_t sharding) {
    for (uint32_t i = 0; i < fleet.n_rows; i++)
        if (fleet.rows[i].devices == devices && fleet.rows[i].sharding == sharding)
            return &fleet.rows[i];
    ck_abort_msg("no row of %u devices", devices);
    return NULL;
}

/* --- bytes that are sent ---------------------------------------------------------------------- */

/* Returns the bytes of a rank's own rows of the trained matrices, `times` to each of the others;
 * the loss and the norm are small. */
static double whole_bytes(const struct pl_program *one) {
    double bytes = 0;
    for (uint32_t i = 0; i < one->n_tensors; i++)
        if (one->tensors[i].trainable)
            bytes += (double)(one->tensors[i].dims[0] * one->tensors[i].dims[1]);
    return bytes;
}

/* bf16 weights, fp32 gradients of the step: on average a rank sends (n-1)/n of the gradients of
 * every micro-batch and of what comes of them once; under `weights` two times the weights of every
 * micro-batch instead. Without rank_order gradients are sent once, too. */
static const struct {
    uint32_t sharding;
    bool order;
} senders[] = {{PL_SHARDING_NONE, true},
               {PL_SHARDING_GRADIENTS, true},
               {PL_SHARDING_WEIGHTS, true},
               {PL_SHARDING_NONE, false},
               {PL_SHARDING_OPTIMIZER, false}};

START_TEST(a_row_sends_what_the_closed_form_says) {
    const uint32_t n = 4, batches = 4, sharding = senders[_i].sharding;
    struct pl_job_shape s = pl_test_shape(&model, PL_MODE_FULL, PL_RECOMPUTE_FULL, 1, 64);
    struct pl_planned one = {0}, held = {0};
    double sent = 0;
    s.dtype = s.gradient_dtype = PL_DTYPE_F32;
    pl_test_plan(&one, &s, &model);
    s.rank_order = senders[_i].order;
    s.ranks = n;
    s.sharding = sharding;
    for (s.rank = 0; s.rank < n; s.rank++) {
        pl_test_plan(&held, &s, &model);
        sent += pl_program_sent_bytes(held.program, batches) / n;
        pl_planned_finish(&held);
        held = (struct pl_planned){0};
    }
    const double part = 4 * whole_bytes(one.program) * (n - 1) / n;
    const double passes = !s.rank_order                     ? 2
                          : sharding == PL_SHARDING_WEIGHTS ? 3 * batches
                                                            : batches + 1;
    ck_assert_msg(sent > 0.98 * passes * part && sent < 1.02 * passes * part,
                  "%.0f bytes instead of %.0f", sent, passes * part);
    pl_planned_finish(&one);
}
END_TEST

START_TEST(a_row_counts_the_bytes_of_its_program) {
    make("pcie4", 0, 16);
    uint32_t seen = 0;
    for (uint32_t i = 0; i < fleet.n_rows; i++) {
        const struct pl_fleet_row *r = &fleet.rows[i];
        if (r->price.verdict != PL_VERDICT_FITS) continue;
        struct pl_question q = pl_question_of(&r->job, &model, &traits, &budget);
        struct pl_planned whole;
        q = pl_question_of_last(&q);
        ck_assert_int_eq(pl_question_plan(&q, NULL, &whole, NULL), PL_ERR_OK);
        ck_assert_double_eq(r->time.sent_bytes, pl_program_sent_bytes(whole.program, r->steps));
        ck_assert_double_eq(r->time.sent_bytes > 0, r->devices > 1);
        struct pl_budget own = budget;
        pl_budget_predict_comm(&own, r->devices);
        ck_assert_uint_ge(r->price.needed_bytes,
                          whole.plan->arena_bytes + pl_nccl_bytes(r->devices));
        ck_assert_uint_le(whole.plan->arena_bytes, pl_budget_usable(&own));
        ck_assert_uint_ge(r->batch_size * r->steps * r->devices, 16);
        ck_assert_uint_eq(16 % r->batch_size, 0); /* F2 */
        pl_planned_finish(&whole);
        seen++;
    }
    ck_assert_uint_ge(seen, 2);
}
END_TEST

/* --- seconds ---------------------------------------------------------------------------------- */

/* ST3 of step_time.h */
START_TEST(a_faster_link_is_never_slower) {
    static const char *const links[] = {"100g", "pcie4", "pcie5", "nvlink3", "nvlink4", "nvlink5"};
    struct pl_planned held = {0};
    struct pl_job_shape s = pl_test_shape(&model, PL_MODE_FULL, PL_RECOMPUTE_FULL, 2, 256);
    s.ranks = 8;
    s.rank = 7;
    s.rank_order = true;
    s.sharding = _i ? PL_SHARDING_WEIGHTS : PL_SHARDING_GRADIENTS;
    pl_test_plan(&held, &s, &model);
    const struct pl_speed speed = pl_speed_nominal(&traits);
    double slowest = 0, fastest = 0;
    struct pl_step_time before = {.compute_seconds = 1e9, .overlapped_seconds = 1e9}, t;
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        ck_assert_int_eq(pl_plan_step_time(held.plan, &speed, link_of(links[i]), 2, &t, NULL),
                         PL_ERR_OK);
        ck_assert_msg(pl_step_in_order(&t) < pl_step_in_order(&before), "%s", links[i]);
        ck_assert_msg(t.overlapped_seconds <= before.overlapped_seconds, "%s", links[i]);
        ck_assert_msg(t.overlapped_seconds <= pl_step_in_order(&t), "%s", links[i]);
        const double least =
            t.compute_seconds > t.link_seconds ? t.compute_seconds : t.link_seconds;
        ck_assert_msg(t.overlapped_seconds >= least * (1 - 1e-9), "%s", links[i]);
        if (i == 0) slowest = t.overlapped_seconds / pl_step_in_order(&t);
        fastest = t.overlapped_seconds / pl_step_in_order(&t);
        before = t;
    }
    ck_assert(slowest < 1 && fastest < 1); /* something overlaps */
    pl_planned_finish(&held);
}
END_TEST

/* F3, F5, ST1 of step_time.h */
START_TEST(one_device_is_the_job_as_it_is) {
    struct pl_step_time t;
    struct pl_planned whole;
    budget.total_bytes *= 4;
    make("nvlink4", 1, 16);
    const struct pl_fleet_row *r = &fleet.rows[0];
    set("batch_size", "1");
    set("global_batch_size", "16");
    job.batch_size = r->batch_size;
    job.gradient_checkpointing = r->job.gradient_checkpointing;
    job.loss_chunk_tokens = r->job.loss_chunk_tokens;
    struct pl_question q = pl_question_of(&job, &model, &traits, &budget);
    ck_assert_int_eq(pl_question_plan(&q, NULL, &whole, NULL), PL_ERR_OK);
    const struct pl_speed speed = pl_speed_nominal(&traits);
    const struct pl_program *p = whole.program;
    const struct pl_load load = {r->steps, (double)p->tokens * r->steps,
                                 (double)p->tokens * r->steps, job.max_seq_length, false};
    ck_assert_int_eq(pl_plan_step_time(whole.plan, &speed, link_of("100g"), r->steps, &t, NULL),
                     PL_ERR_OK);
    ck_assert_double_eq(pl_step_in_order(&r->time),
                        pl_program_step_seconds(p, &speed, &load, NULL));
    ck_assert_double_eq(r->time.overlapped_seconds, pl_step_in_order(&r->time));
    ck_assert_double_eq(pl_step_in_order(&t), pl_step_in_order(&r->time));
    ck_assert_uint_eq(r->price.needed_bytes, whole.plan->arena_bytes);
    ck_assert_double_eq_tol(pl_fleet_efficiency(r), 1, 1e-6);
    pl_planned_finish(&whole);
}
END_TEST

/* --- what is recommended ---------------------------------------------------------------------- */

/* F1, F4 */
START_TEST(the_fewest_that_hold_it_are_recommended) {
    make("nvlink4", 0, 16);
    ck_assert_ptr_nonnull(fleet.best);
    ck_assert_uint_gt(fleet.best->devices, 1);
    for (uint32_t i = 0; i < fleet.n_rows; i++) {
        const struct pl_fleet_row *r = &fleet.rows[i];
        if (r->price.verdict != PL_VERDICT_FITS) continue;
        ck_assert_uint_ge(r->devices, fleet.best->devices);
        if (r->devices == fleet.best->devices) ck_assert(r->relative >= 1);
    }
    const struct pl_fleet_row *r = fleet.best;
    uint64_t most = 0;
    for (uint32_t rank = 0; rank < r->devices; rank++) {
        struct pl_planned held = {0};
        struct pl_variant v;
        struct pl_question q = pl_question_of(&r->job, &model, &traits, &budget);
        pl_variant_of(&v, &q);
        v.q.rank = rank;
        ck_assert_int_eq(pl_question_plan(&v.q, NULL, &held, NULL), PL_ERR_OK);
        if (held.plan->arena_bytes > most) most = held.plan->arena_bytes;
        pl_planned_finish(&held);
    }
    ck_assert_uint_eq(r->price.needed_bytes, most + pl_nccl_bytes(r->devices));
}
END_TEST

START_TEST(what_no_number_holds_is_said) {
    struct pl_text text = {0};
    budget.total_bytes = 8 * MIB;
    make("nvlink4", 0, 16);
    ck_assert_ptr_null(fleet.best);
    pl_fleet_text(&advice, &fleet, false, &text);
    const char *first = "up to 64 x GPU of 8.00 MiB do not hold it: with ";
    ck_assert_msg(strncmp(pl_text_str(&text), first, strlen(first)) == 0, "%s", pl_text_str(&text));
    ck_assert_ptr_nonnull(strstr(pl_text_str(&text), "sharding: weights"));
    json_t *o = pl_fleet_json(&advice, &fleet);
    ck_assert(json_is_null(json_object_get(o, "recommended")));
    ck_assert_uint_eq(json_array_size(json_object_get(o, "rows")), fleet.n_rows);
    json_decref(o);
    pl_text_finish(&text);
}
END_TEST

START_TEST(a_job_keeps_its_sharding) {
    set("sharding", "weights");
    make("nvlink4", 0, 16);
    for (uint32_t i = 0; i < fleet.n_rows; i++)
        ck_assert(fleet.rows[i].devices == 1 || fleet.rows[i].sharding == PL_SHARDING_WEIGHTS);
    ck_assert_uint_eq(row_of(64, PL_SHARDING_WEIGHTS)->steps, 1);
}
END_TEST

/* With one exchange a step only the optimizer's states are divided. */
START_TEST(one_exchange_divides_states_alone) {
    set("rank_order", "false");
    make("nvlink4", 0, 16);
    ck_assert_uint_eq(fleet.n_rows, 1 + 2 * 6);
    for (uint32_t i = 1; i < fleet.n_rows; i++)
        ck_assert_uint_eq(fleet.rows[i].sharding, i % 2 ? PL_SHARDING_NONE : PL_SHARDING_OPTIMIZER);
    for (int given = 0; given < 2; given++) {
        set("sharding", given ? "weights" : "optimizer");
        make("nvlink4", 4, 16);
        ck_assert_uint_eq(fleet.n_rows, !given);
    }
}
END_TEST

/* --- links ------------------------------------------------------------------------------------ */

START_TEST(cards_have_the_link_they_are_built_with) {
    static const struct {
        const char *card, *typed, *link;
    } cases[] = {{"H100", "H100 SXM", "nvlink4"},
                 {"H100", "H100 PCIe", "pcie5"},
                 {"H100 NVL", "H100 NVL", "pcie5"},
                 {"A100 80GB", "a100 80gb pcie", "pcie4"},
                 {"A100 40GB", NULL, "nvlink3"},
                 {"B200", "b200", "nvlink5"},
                 {"GH200", NULL, "nvlink4"},
                 {"RTX 4090", NULL, "pcie4"},
                 {"RTX 5090", NULL, "pcie5"},
                 {"H100 1g.10gb", NULL, "pcie4"},
                 {NULL, NULL, "pcie4"}};
    struct pl_diag d = {0};
    const struct pl_link *link;
    size_t n;
    const struct pl_card *all = pl_card_table(&n);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_str_eq(pl_link_of_card(cases[i].card, cases[i].typed)->name, cases[i].link);
    for (size_t i = 0; i < n; i++)
        ck_assert_ptr_nonnull(pl_link_of_card(all[i].name, NULL));
    ck_assert_int_eq(pl_link_require("NVLink", "A100 40GB", &link, &d), PL_ERR_OK);
    ck_assert_str_eq(link->name, "nvlink3");
    ck_assert_int_eq(pl_link_require("nvlink", "RTX 4090", &link, &d), PL_ERR_OK);
    ck_assert_str_eq(link->name, "nvlink4");
    ck_assert_int_eq(pl_link_require("carrier pigeon", NULL, &link, &d), PL_ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(d.message, "carrier pigeon"));
}
END_TEST

int main(void) {
    Suite *s = suite_create("advice.fleet");
    TCase *tc = tcase_create("fleet");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, prepare, finish);
    tcase_add_loop_test(tc, a_row_sends_what_the_closed_form_says, 0,
                        sizeof senders / sizeof *senders);
    tcase_add_test(tc, a_row_counts_the_bytes_of_its_program);
    tcase_add_loop_test(tc, a_faster_link_is_never_slower, 0, 2);
    tcase_add_test(tc, one_device_is_the_job_as_it_is);
    tcase_add_test(tc, the_fewest_that_hold_it_are_recommended);
    tcase_add_test(tc, what_no_number_holds_is_said);
    tcase_add_test(tc, a_job_keeps_its_sharding);
    tcase_add_test(tc, one_exchange_divides_states_alone);
    tcase_add_test(tc, cards_have_the_link_they_are_built_with);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
