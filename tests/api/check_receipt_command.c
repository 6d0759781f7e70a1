/* check_receipt_command.c - receipts through the binary: of an estimate, of a run, compared.
 * PLIMSOLL names the binary. */
#include "tests/support/child.h"
#include "tests/support/scratch.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static char dir[SCRATCH_PATH];

static void setup(void) {
    scratch_make(dir);
}

static void teardown(void) {
    scratch_remove(dir);
}

static const char *in(const char *name) {
    return in_dir(dir, name);
}

static void estimate(const char *receipt, const char *lora_r) {
    struct outcome p =
        plimsoll_expect(0, NULL,
                        (const char *[]){"estimate-vram", "SmolLM2-135M", "--mode", "lora", "--gpu",
                                         "RTX 4090", "--batch-size", "2", "--lora-r", lora_r,
                                         "--receipt", in(receipt), "--json", NULL});
    json_t *printed = json_loads(p.out, 0, NULL), *r = json_load_file(in(receipt), 0, NULL);
    ck_assert_ptr_nonnull(printed);
    json_object_del(printed, "schema");
    json_t *planned = json_object_get(r, "planned");
    json_object_del(planned, "schema");
    ck_assert(json_equal(printed, planned));
    json_decref(printed);
    json_decref(r);
    outcome_finish(&p);
}

START_TEST(the_exit_status_says_whether_more_grew_than_is_allowed) {
    static const struct {
        const char *old, *new, *allow;
        int status;
    } rows[] = {{"a", "a", NULL, 0}, {"a", "b", NULL, 3},   {"b", "a", NULL, 0},
                {"a", "b", "0", 3},  {"a", "b", "1GiB", 0}, {"a", "b", "90%", 0},
                {"a", "b", "1%", 3}};
    estimate("a", "8");
    estimate("b", "64");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *argv[8] = {"plan", "--diff", in(rows[i].old), in(rows[i].new)};
        if (rows[i].allow) argv[4] = "--allow", argv[5] = rows[i].allow;
        struct outcome p = plimsoll_expect(rows[i].status, NULL, argv);
        ck_assert_int_eq(strstr(p.out, "lora_r: ") != NULL, rows[i].old != rows[i].new);
        outcome_finish(&p);
        argv[rows[i].allow ? 6 : 4] = "--json";
        p = plimsoll_expect(rows[i].status, NULL, argv);
        json_t *o = json_loads(p.out, 0, NULL);
        ck_assert_int_eq(json_is_true(json_object_get(o, "within")), rows[i].status == 0);
        ck_assert_int_eq(json_integer_value(json_object_get(o, "schema")), 1);
        json_decref(o);
        outcome_finish(&p);
    }
}
END_TEST

/* The receipt of train has the plan of the same question, and the figures of the books. */
START_TEST(a_run_leaves_a_receipt_with_what_it_measured) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 2\nmax_steps: 3\n");
    plimsoll_train_expect(0, dir, (const char *[]){"output_dir=out", NULL});
    json_t *r = json_load_file(in("out/receipt.json"), 0, NULL);
    json_t *planned = json_load_file(in("out/preflight.json"), 0, NULL);
    json_t *measured = json_object_get(r, "measured");
    ck_assert(json_equal(planned, json_object_get(r, "planned")));
    ck_assert_int_eq(json_integer_value(json_object_get(measured, "steps")), 3);
    ck_assert_int_eq(
        json_integer_value(json_object_get(measured, "allocated_bytes")),
        json_integer_value(json_object_get(json_object_get(planned, "bytes"), "arena")));
    ck_assert(json_equal(json_object_get(measured, "allocated_bytes"),
                         json_object_get(measured, "planned_bytes")));
    json_decref(planned);
    json_decref(r);
    const char *path = in("out/receipt.json");
    struct outcome p =
        plimsoll_expect(0, NULL, (const char *[]){"plan", "--diff", path, path, NULL});
    outcome_finish(&p);
}
END_TEST

static const struct {
    const char *argv[8];
    int status;
    const char *says;
} refused[] = {
    {{"plan", "--allow", "3"}, 2, "compare two receipts"},
    {{"plan", "--diff", "a"}, 2, "compare two receipts"},
    {{"plan", "--diff", "a", "b", "--allow", "much"}, 2, "wants bytes or percent"},
    {{"plan", "--diff", "a", "b", "lora_r=3"}, 2, "leave out `lora_r=3`"},
    {{"plan", "--diff", "a", "b", "--csv"}, 2, "leave out --csv"},
    {{"plan", "--diff", "/nonexistent/a", "b"}, 5, "DATA_FILE"},
    {{"plan", "--diff", "/dev/null", "b"}, 5, "DATA_FILE"},
    {{"estimate-vram", "--receipt", "a"}, 2, ""},
    {{"estimate-vram", "SmolLM2-135M", "--receipt", "/nonexistent/a"}, 1, "RUNTIME_IO"},
    {{"estimate-vram", "--table", "gpus", "--receipt", "a"}, 2, "--receipt is about a job"},
};

START_TEST(what_cannot_be_compared_or_written_is_refused) {
    struct outcome p = plimsoll_expect(refused[_i].status, NULL, refused[_i].argv);
    ck_assert_msg(strstr(p.err, refused[_i].says) != NULL, "%s", p.err);
    outcome_finish(&p);
}
END_TEST

int main(void) {
    Suite *s = suite_create("api.receipt_command");
    TCase *tc = tcase_create("receipts");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, the_exit_status_says_whether_more_grew_than_is_allowed);
    tcase_add_test(tc, a_run_leaves_a_receipt_with_what_it_measured);
    tcase_add_loop_test(tc, what_cannot_be_compared_or_written_is_refused, 0,
                        sizeof refused / sizeof *refused);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
