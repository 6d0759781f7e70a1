/* check_checklist.c - the out-of-memory checklist, and which tensors live at an op. */
#include "estimator/plan/live.h"
#include "oom_recovery/checklist.h"
#include "tests/oom/toy_plan.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static struct toy_plan toy;
static struct pl_text text;

static void setup(void) {
    toy_plan_init(&toy);
}

static void teardown(void) {
    pl_text_finish(&text);
}

/* The line of a topic, NUL-terminated, in a buffer of the next call. */
static const char *line_of(const char *topic) {
    static char line[256];
    char mark[64];
    snprintf(mark, sizeof mark, " %s: ", topic);
    const char *at = strstr(pl_text_str(&text), mark);
    if (!at) return "";
    while (at > text.data && at[-1] != '\n')
        at--;
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    return line;
}

#define FREE (30 * MIB)
#define HELD (150 * MIB)

static void ask(uint64_t budget) {
    struct pl_oom_facts f = {"batch arena", 42 * MIB, FREE, false};
    pl_text_finish(&text);
    pl_oom_checklist(&toy.plan, &f, budget, HELD, &text);
    ck_assert(!text.failed);
}

/* C2 */
START_TEST(what_failed_names_asked_and_free_bytes) {
    ask(PL_AUTO_BYTES);
    ck_assert_str_eq(line_of("what failed"),
                     "[i]  what failed: batch arena asked for 42.00 MiB with 30.00 MiB free");
}
END_TEST

static const struct {
    uint64_t batch;
    uint32_t recompute, mode, dtype;
    const char *topic, *line;
} answers[] = {
    {1, PL_RECOMPUTE_FULL, PL_MODE_LORA, PL_DTYPE_BF16, "precision", "[ok] "},
    {1, PL_RECOMPUTE_FULL, PL_MODE_LORA, PL_DTYPE_F32, "precision", "[!] "},
    {1, PL_RECOMPUTE_FULL, PL_MODE_LORA, PL_DTYPE_BF16, "gradient checkpointing", "[ok] "},
    {1, PL_RECOMPUTE_NONE, PL_MODE_LORA, PL_DTYPE_BF16, "gradient checkpointing", "[!] "},
    {1, PL_RECOMPUTE_LIGHT, PL_MODE_LORA, PL_DTYPE_BF16, "gradient checkpointing", "[!] "},
    {1, PL_RECOMPUTE_EVERY_N(2), PL_MODE_LORA, PL_DTYPE_BF16, "gradient checkpointing", "[!] "},
    {1, PL_RECOMPUTE_MIX(PL_RECOMPUTE_OFFLOAD, 9, PL_RECOMPUTE_FULL), PL_MODE_LORA, PL_DTYPE_BF16,
     "gradient checkpointing", "[ok] "},
    {1, PL_RECOMPUTE_MIX(PL_RECOMPUTE_OFFLOAD, 9, PL_RECOMPUTE_MLP), PL_MODE_LORA, PL_DTYPE_BF16,
     "gradient checkpointing", "[!] "},
    {1, PL_RECOMPUTE_FULL, PL_MODE_LORA, PL_DTYPE_BF16, "batch size", "[ok] "},
    {4, PL_RECOMPUTE_FULL, PL_MODE_LORA, PL_DTYPE_BF16, "batch size", "[!] "},
    {1, PL_RECOMPUTE_FULL, PL_MODE_LORA, PL_DTYPE_BF16, "sequence length", "[!] "},
    {4, PL_RECOMPUTE_FULL, PL_MODE_LORA, PL_DTYPE_BF16, "sequence length", "[i] "},
    {1, PL_RECOMPUTE_FULL, PL_MODE_LORA, PL_DTYPE_BF16, "LoRA", "[ok] "},
    {1, PL_RECOMPUTE_FULL, PL_MODE_FULL, PL_DTYPE_BF16, "LoRA", "[!] "},
};

/* C1 */
START_TEST(a_question_is_marked_when_there_is_something_to_change) {
    toy.program.shape.batch_size = answers[_i].batch;
    toy.program.shape.recompute = answers[_i].recompute;
    toy.program.shape.mode = answers[_i].mode;
    toy.program.shape.dtype = answers[_i].dtype;
    ask(PL_AUTO_BYTES);
    const char *line = line_of(answers[_i].topic);
    ck_assert_msg(strncmp(line, answers[_i].line, strlen(answers[_i].line)) == 0, "%s", line);
}
END_TEST

/* C3 */
START_TEST(inference_is_not_asked_about_training) {
    toy.program.shape.inference = true;
    toy.program.shape.mode = PL_MODE_FULL;
    toy.program.shape.batch_size = 4;
    ask(PL_AUTO_BYTES);
    ck_assert_str_eq(line_of("gradient checkpointing"), "");
    ck_assert_str_eq(line_of("LoRA"), "");
    ck_assert_str_eq(line_of("batch size"),
                     "[!]  batch size: 4; fewer sequences at a time take less");
}
END_TEST

START_TEST(a_base_in_bf16_is_told_from_its_activations) {
    toy.program.shape.dtype = PL_DTYPE_F32;
    toy.program.shape.base_dtype = PL_DTYPE_BF16;
    ask(PL_AUTO_BYTES);
    ck_assert_str_eq(
        line_of("precision"),
        "[!]  precision: weights are bf16, activations fp32; `dtype: bf16` takes half");
}
END_TEST

START_TEST(every_n_is_named_with_its_n) {
    toy.program.shape.recompute = PL_RECOMPUTE_EVERY_N(3);
    ask(PL_AUTO_BYTES);
    ck_assert_ptr_nonnull(strstr(line_of("gradient checkpointing"), "every_3;"));
}
END_TEST

static const struct {
    uint64_t budget;
    const char *line;
} neighbours[] = {
    {HELD + FREE, "[ok] others on the device: none within the budget of 180.0 MiB"},
    {HELD + FREE + 20 * MIB,
     "[!]  others on the device: 20.00 MiB of the budget of 200.0 MiB is used by other processes"},
    {100 * MIB, "[ok] others on the device: none within the budget of 100.0 MiB"},
    {PL_AUTO_BYTES,
     "[i]  others on the device: not known without a budget; this process held 150.0 MiB"},
};

START_TEST(what_the_budget_lacks_is_somebody_elses) {
    ask(neighbours[_i].budget);
    ck_assert_str_eq(line_of("others on the device"), neighbours[_i].line);
}
END_TEST

/* C2 */
START_TEST(the_largest_ledger_lines_come_first) {
    ask(PL_AUTO_BYTES);
    ck_assert_str_eq(line_of("largest lines"),
                     "[i]  largest lines: weights 100.0 MiB, optimizer 50.00 MiB, activations "
                     "28.00 MiB of 192.0 MiB");
}
END_TEST

/* C2 */
START_TEST(the_peak_names_phase_op_and_tensors) {
    ask(PL_AUTO_BYTES);
    ck_assert_str_eq(line_of("where the peak is"),
                     "[i]  where the peak is: step phase, op 4 linear of layer 0, 40.00 MiB alive: "
                     "layers.0.gu 16.00 MiB, logits 12.00 MiB, layers.0.x 8.00 MiB");
}
END_TEST

START_TEST(an_injected_failure_is_called_one) {
    struct pl_oom_facts f = {NULL, 1, 2, true};
    pl_oom_checklist(&toy.plan, &f, PL_AUTO_BYTES, 0, &text);
    ck_assert_ptr_nonnull(strstr(line_of("what failed"), "(injected by debug_inject)"));
}
END_TEST

START_TEST(the_largest_live_tensors_come_largest_first) {
    uint32_t ids[TOY_TENSORS];
    ck_assert_uint_eq(pl_plan_largest_live(&toy.plan, TOY_PEAK_OP, TOY_TENSORS, ids), 4);
    static const uint32_t want[] = {TOY_GU, TOY_LOGITS, TOY_X, TOY_M};
    for (int i = 0; i < 4; i++)
        ck_assert_uint_eq(ids[i], want[i]);
    ck_assert_uint_eq(pl_plan_largest_live(&toy.plan, TOY_PEAK_OP, 2, ids), 2);
    ck_assert_uint_eq(ids[1], TOY_LOGITS);
    toy.tensors[TOY_M].bytes = 16 * MIB; /* a tie stays in id order */
    ck_assert_uint_eq(pl_plan_largest_live(&toy.plan, TOY_PEAK_OP, 2, ids), 2);
    ck_assert_uint_eq(ids[0], TOY_GU);
    ck_assert_uint_eq(ids[1], TOY_M);
    ck_assert_uint_eq(pl_plan_largest_live(&toy.plan, 7, TOY_TENSORS, ids), 0);
}
END_TEST

START_TEST(a_tensor_lives_from_its_first_op_to_its_last) {
    for (uint32_t op = 0; op < TOY_OPS; op++)
        ck_assert_int_eq(pl_plan_is_live(&toy.plan, TOY_X, op), op >= 3 && op <= 5);
    ck_assert(!pl_plan_is_live(&toy.plan, TOY_WEIGHTS, TOY_PEAK_OP));
}
END_TEST

static const struct {
    bool known;
    uint64_t total, context;
    const char *line;
} rooms[] = {
    {false, 0, 0, "[i]  others on the device: none are in this plan; name a card"},
    {true, 4096 * MIB, 0, "[ok] others on the device: none are in this plan; "},
    {true, 1 * MIB, 0, "[!]  others on the device: none are in this plan; "},
    {true, 4096 * MIB, 4096 * MIB, "[!]  others on the device: none are in this plan; "},
};

START_TEST(a_job_that_has_not_run_is_told_what_is_left_for_others) {
    struct pl_budget budget = {.known = rooms[_i].known,
                               .total_bytes = rooms[_i].total,
                               .context_bytes = rooms[_i].context};
    pl_text_finish(&text);
    pl_job_checklist(&toy.plan, &budget, &text);
    ck_assert(!text.failed);
    const char *line = line_of("others on the device");
    ck_assert_msg(strncmp(line, rooms[_i].line, strlen(rooms[_i].line)) == 0, "%s", line);
    ck_assert_str_eq(line_of("what failed"), "");
    ck_assert_str_ne(line_of("precision"), "");
}
END_TEST

int main(void) {
    Suite *s = suite_create("oom.checklist");
    TCase *tc = tcase_create("checklist");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, what_failed_names_asked_and_free_bytes);
    tcase_add_loop_test(tc, a_question_is_marked_when_there_is_something_to_change, 0,
                        (int)(sizeof answers / sizeof *answers));
    tcase_add_test(tc, inference_is_not_asked_about_training);
    tcase_add_test(tc, every_n_is_named_with_its_n);
    tcase_add_test(tc, a_base_in_bf16_is_told_from_its_activations);
    tcase_add_loop_test(tc, what_the_budget_lacks_is_somebody_elses, 0,
                        (int)(sizeof neighbours / sizeof *neighbours));
    tcase_add_test(tc, the_largest_ledger_lines_come_first);
    tcase_add_test(tc, the_peak_names_phase_op_and_tensors);
    tcase_add_test(tc, an_injected_failure_is_called_one);
    tcase_add_test(tc, the_largest_live_tensors_come_largest_first);
    tcase_add_test(tc, a_tensor_lives_from_its_first_op_to_its_last);
    tcase_add_loop_test(tc, a_job_that_has_not_run_is_told_what_is_left_for_others, 0,
                        (int)(sizeof rooms / sizeof *rooms));
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
