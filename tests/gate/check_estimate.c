/* check_estimate.c - the answer's fields agree with the plan and with each other. */
#include "estimator/base/units.h"
#include "estimator/config/job_text.h"
#include "estimator/gate/estimate.h"
#include "tests/plan/planning.h"
#include "tests/support/ask.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static struct pl_question q; /* the question of the estimate */

static void ask(struct pl_estimate *e, struct pl_job *job, struct pl_model *m, const char *mode,
                uint64_t budget) {
    const struct pl_traits traits = pl_traits_cpu(2);
    const struct pl_budget b = {
        .known = budget != 0, .total_bytes = budget, .margin_bytes = 1000, .source = "test"};
    ck_assert_int_eq(pl_job_defaults(job, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_job_set(job, "mode", mode, NULL), PL_ERR_OK);
    pl_test_model("Qwen2.5-0.5B", m);
    q = pl_test_question(job, m, &traits, &b, 2);
    q.recommended = 5;
    ck_assert_int_eq(pl_estimate_init(e, &q, NULL, NULL), PL_ERR_OK);
}

static uint64_t integer(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    ck_assert_msg(json_is_integer(v), "%s", key);
    return (uint64_t)json_integer_value(v);
}

START_TEST(the_json_ledger_sums_to_the_arena) {
    static const char *const modes[] = {"full", "lora"};
    struct pl_job job;
    struct pl_model m;
    struct pl_estimate e;
    ask(&e, &job, &m, modes[_i], UINT64_C(2) << 30);
    json_t *o = pl_estimate_json(&e, "one note\nanother\n"), *row;
    json_t *bytes = json_object_get(o, "bytes");
    uint64_t sum = 0;
    size_t i;
    json_array_foreach(json_object_get(o, "ledger"), i, row) sum += integer(row, "bytes");
    ck_assert_uint_eq(sum, e.planned.plan->arena_bytes);
    ck_assert_uint_eq(integer(bytes, "arena"), sum);
    ck_assert_uint_eq(integer(bytes, "job_arena") + integer(bytes, "batch_arena"), sum);
    ck_assert_double_eq(json_real_value(json_object_get(o, "total_gb")),
                        (double)integer(bytes, "total") / 1e9);
    ck_assert_uint_eq(json_array_size(json_object_get(o, "notes")), 2);
    ck_assert_uint_eq(integer(o, "schema"), 1);
    ck_assert_uint_eq(integer(o, "recommended_batch_size"), 5);
    uint64_t largest = 0;
    json_array_foreach(json_object_get(o, "phases"), i, row) if (integer(row, "bytes") > largest)
        largest = integer(row, "bytes");
    ck_assert_uint_eq(largest, sum);
    json_decref(o);
    pl_estimate_finish(&e);
    pl_job_finish(&job);
}
END_TEST

/* The export is a phase after those of the run, and not part of their peak. */
START_TEST(a_merged_export_is_a_phase_where_it_is_asked_for) {
    struct pl_job job;
    struct pl_model m;
    struct pl_estimate e;
    ask(&e, &job, &m, "lora", 0);
    ck_assert_uint_eq(e.merged_export_bytes, 0);
    pl_estimate_finish(&e);
    job.save_merged = true;
    ck_assert_int_eq(pl_estimate_init(&e, &q, NULL, NULL), PL_ERR_OK);
    json_t *o = pl_estimate_json(&e, NULL), *phases = json_object_get(o, "phases");
    const json_t *last = json_array_get(phases, json_array_size(phases) - 1);
    ck_assert_str_eq(json_string_value(json_object_get(last, "name")), "merged export");
    ck_assert_str_eq(json_string_value(json_object_get(last, "memory")), "host");
    ck_assert_uint_eq(integer(last, "bytes"), e.merged_export_bytes);
    /* a stretch as it is stored, its values in fp32, and the adapter's two factors for it */
    ck_assert_uint_ge(e.merged_export_bytes, UINT64_C(2) << 20);
    ck_assert_uint_lt(e.merged_export_bytes, UINT64_C(64) << 20);
    json_decref(o);
    pl_estimate_finish(&e);
    pl_job_finish(&job);
}
END_TEST

/* The job has a margin and a context, which no arena has. */
START_TEST(the_parts_in_gb_are_the_total) {
    static const char *const parts[] = {"model_weights_gb",   "lora_adapter_gb", "gradients_gb",
                                        "optimizer_state_gb", "activations_gb",  "logits_gb",
                                        "workspace_gb",       "kv_cache_gb",     "overhead_gb",
                                        "fragmentation_gb"};
    struct pl_job job;
    struct pl_model m;
    struct pl_estimate e;
    double sum = 0;
    ask(&e, &job, &m, _i ? "lora" : "full", UINT64_C(40) << 30);
    q.budget.margin_bytes = UINT64_C(64) << 20;
    q.budget.context_bytes = UINT64_C(500) << 20;
    pl_estimate_finish(&e);
    ck_assert_int_eq(pl_estimate_init(&e, &q, NULL, NULL), PL_ERR_OK);
    json_t *o = pl_estimate_json(&e, NULL);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        sum += json_real_value(json_object_get(o, parts[i]));
    ck_assert_double_eq_tol(sum, json_real_value(json_object_get(o, "total_gb")), 1e-9);
    json_decref(o);
    pl_estimate_finish(&e);
    pl_job_finish(&job);
}
END_TEST

/* The bytes that connect ranks are a line after the arenas, counted and doubted as the context
 * is. */
START_TEST(what_connects_ranks_is_counted) {
    struct pl_job job;
    struct pl_model m;
    struct pl_estimate e;
    struct pl_text text = {0};
    const uint64_t context = UINT64_C(500) << 20, comm = pl_nccl_bytes(3);
    ask(&e, &job, &m, "full", UINT64_C(40) << 30);
    pl_estimate_finish(&e);
    ck_assert_uint_eq(comm, 8 * (3 + 2) * UINT64_C(9633792));
    ck_assert_uint_eq(pl_nccl_bytes(1), 0);
    job.devices = 3;
    q.budget.context_bytes = context;
    q.budget.doubt_bytes = context / 2;
    const uint64_t usable = pl_budget_usable(&q.budget);
    pl_budget_predict_comm(&q.budget, 2); /* another count before */
    pl_budget_predict_comm(&q.budget, 3);
    ck_assert_uint_eq(pl_budget_usable(&q.budget), usable - comm - comm / 2);
    ck_assert_uint_eq(pl_budget_own_context(&q.budget), context);
    ck_assert_int_eq(pl_estimate_init(&e, &q, NULL, NULL), PL_ERR_OK);
    ck_assert_uint_eq(e.verdict.needed_bytes, e.planned.plan->arena_bytes + context + comm);
    json_t *o = pl_estimate_json(&e, NULL), *rank, *bytes = json_object_get(o, "bytes");
    size_t r;
    ck_assert_uint_eq(integer(bytes, "total"),
                      integer(bytes, "arena") + integer(bytes, "context") + integer(bytes, "comm"));
    ck_assert_uint_eq(integer(bytes, "comm"), comm);
    ck_assert_uint_eq(integer(bytes, "comm_doubt"), comm / 2);
    ck_assert_uint_eq(integer(bytes, "context_doubt"), context / 2);
    ck_assert_uint_eq(json_array_size(json_object_get(o, "ranks")), 3);
    json_array_foreach(json_object_get(o, "ranks"), r, rank) {
        ck_assert_uint_eq(integer(rank, "comm_bytes"), comm);
        ck_assert_uint_eq(integer(rank, "needed_bytes"),
                          integer(rank, "arena_bytes") + context + comm);
    }
    pl_estimate_text(&e, false, 80, &text);
    ck_assert_ptr_nonnull(strstr(pl_text_str(&text), "\n  comm             367.5 MiB"));
    ck_assert_ptr_nonnull(strstr(pl_text_str(&text), "context and comm are guesses"));
    pl_text_finish(&text);
    json_decref(o);
    pl_estimate_finish(&e);
    pl_job_finish(&job);
}
END_TEST

START_TEST(every_field_of_the_contract_is_there) {
    static const char *const keys[] = {"total_gb",
                                       "model_weights_gb",
                                       "lora_adapter_gb",
                                       "optimizer_state_gb",
                                       "activations_gb",
                                       "kv_cache_gb",
                                       "overhead_gb",
                                       "host_ram_gb",
                                       "param_count_billions",
                                       "mode",
                                       "batch_size",
                                       "gradient_accumulation",
                                       "max_seq_length",
                                       "lora_r",
                                       "notes",
                                       "recommended_batch_size",
                                       "gradients_gb",
                                       "logits_gb",
                                       "workspace_gb",
                                       "context_gb",
                                       "fragmentation_gb",
                                       "vram_gb",
                                       "verdict",
                                       "fits",
                                       "limits",
                                       "peak_phase",
                                       "phases",
                                       "ledger",
                                       "bytes",
                                       "param_count",
                                       "trainable_param_count",
                                       "remedies",
                                       "approximate"};
    struct pl_job job;
    struct pl_model m;
    struct pl_estimate e;
    ask(&e, &job, &m, "lora", 0);
    json_t *o = pl_estimate_json(&e, NULL);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        ck_assert_msg(json_object_get(o, keys[i]), "%s", keys[i]);
    ck_assert_str_eq(json_string_value(json_object_get(o, "verdict")), "unknown");
    ck_assert(json_is_null(json_object_get(o, "fits")));
    ck_assert_uint_eq(integer(o, "trainable_param_count"), 8798208); /* r 16, all linears */
    json_decref(o);
    pl_estimate_finish(&e);
    pl_job_finish(&job);
}
END_TEST

/* Another level may hold more samples than the one that was chosen. */
START_TEST(the_largest_batch_is_that_of_the_level_that_was_chosen) {
    struct pl_job job;
    struct pl_model m;
    struct pl_estimate e;
    ask(&e, &job, &m, "lora", 0);
    job.gradient_checkpointing = _i ? PL_RECOMPUTE_AUTO : PL_RECOMPUTE_LIGHT;
    q.decided.gradient_checkpointing = PL_RECOMPUTE_LIGHT;
    struct pl_text text = {0};
    pl_estimate_text(&e, false, 80, &text);
    ck_assert_msg(strstr(pl_text_str(&text),
                         _i ? "largest batch that fits: 5, with gradient_checkpointing: light\n"
                            : "largest batch that fits: 5\n"),
                  "%s", pl_text_str(&text));
    pl_text_finish(&text);
    pl_estimate_finish(&e);
    pl_job_finish(&job);
}
END_TEST

START_TEST(the_first_line_is_the_summary) {
    struct pl_job job;
    struct pl_model m;
    struct pl_estimate e;
    struct pl_text text = {0};
    ask(&e, &job, &m, "full", UINT64_C(1) << 30);
    pl_estimate_text(&e, false, 80, &text);
    char want[100];
    snprintf(want, sizeof want,
             "VRAM estimate (full, 0.5B params, batch=2, seq=2048): total=%.2fGB\n",
             (double)e.planned.plan->arena_bytes / 1e9);
    ck_assert_msg(strncmp(text.data, want, strlen(want)) == 0, "%.90s", text.data);
    ck_assert(strstr(text.data, "verdict: no"));
    ck_assert(strstr(text.data, "what would help"));
    ck_assert(!strstr(text.data, "\033"));
    pl_text_finish(&text);
    pl_estimate_text(&e, true, 80, &text);
    ck_assert(strstr(text.data, "\033[31mno"));
    pl_text_finish(&text);
    pl_estimate_finish(&e);
    pl_job_finish(&job);
}
END_TEST

/* 128 experts have 3 matrices of 768 x 2048 numbers: of 4 bits, with an 8-bit scale for 64 of them,
 * an fp32 one for 16,384, and an fp32 offset a matrix. */
START_TEST(experts_have_as_many_rows_for_any_routing) {
    struct pl_job job;
    struct pl_model m;
    struct pl_estimate e;
    struct pl_text text = {0};
    const struct pl_traits traits = pl_traits_cpu(2);
    ck_assert_int_eq(pl_job_defaults(&job, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_job_set(&job, "mode", "qlora", NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_job_set(&job, "max_seq_length", "512", NULL), PL_ERR_OK);
    if (_i) ck_assert_int_eq(pl_job_set(&job, "offload", "weights", NULL), PL_ERR_OK);
    pl_test_model("Qwen3-30B-A3B", &m);
    q = pl_test_question(&job, &m, &traits, NULL, 2);
    ck_assert_int_eq(pl_estimate_init(&e, &q, NULL, NULL), PL_ERR_OK);
    pl_estimate_text(&e, false, 80, &text);
    ck_assert_msg(strstr(text.data, "  experts: 8,192 rows a layer, 8 of 128 experts for each of "
                                    "1,024 tokens, however they are routed\n") != NULL,
                  "%s", text.data);
    const uint64_t n = 768 * 2048;
    const uint64_t bytes = UINT64_C(3) * 128 * (n / 2 + n / 64 + 4 * (n / 16384) + 4);
    char line[128], amount[PL_BYTES_TEXT];
    snprintf(line, sizeof line, "copies all of its experts, %s\n", pl_bytes_text(bytes, amount));
    ck_assert_int_eq(strstr(text.data, "copies all of its experts") != NULL, _i);
    if (_i) ck_assert_msg(strstr(text.data, line) != NULL, "%s%s", line, text.data);
    pl_text_finish(&text);
    pl_estimate_finish(&e);
    pl_job_finish(&job);
}
END_TEST

int main(void) {
    Suite *s = suite_create("gate.estimate");
    TCase *tc = tcase_create("estimate");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, the_json_ledger_sums_to_the_arena, 0, 2);
    tcase_add_test(tc, a_merged_export_is_a_phase_where_it_is_asked_for);
    tcase_add_loop_test(tc, the_parts_in_gb_are_the_total, 0, 2);
    tcase_add_test(tc, what_connects_ranks_is_counted);
    tcase_add_test(tc, every_field_of_the_contract_is_there);
    tcase_add_test(tc, the_first_line_is_the_summary);
    tcase_add_loop_test(tc, the_largest_batch_is_that_of_the_level_that_was_chosen, 0, 2);
    tcase_add_loop_test(tc, experts_have_as_many_rows_for_any_routing, 0, 2);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
