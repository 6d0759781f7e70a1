/* check_receipt.c - a receipt is the answer and adds up; two of them are compared line by line. */
#include "estimator/api/plimsoll.h"
#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"
#include "estimator/inquiry/answer.h"
#include "estimator/inquiry/receipt.h"
#include "estimator/inquiry/receipt_diff.h"
#include "tests/plan/planning.h"
#include "tests/support/ask.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

static struct pl_job job;
static struct pl_model model;
static struct pl_budget budget;
static struct pl_traits traits;

static void set(const char *key, const char *value) {
    ck_assert_int_eq(pl_job_set(&job, key, value, NULL), PL_ERR_OK);
}

static void setup(void) {
    ck_assert_int_eq(pl_job_defaults(&job, NULL), PL_ERR_OK);
    pl_test_model("SmolLM2-135M", &model);
    set("model", "SmolLM2-135M");
    set("mode", "full");
    set("max_seq_length", "256");
    set("batch_size", "2");
    traits = pl_traits_cuda(89);
    budget = (struct pl_budget){.known = true,
                                .total_bytes = 8192 * MIB,
                                .margin_bytes = 64 * MIB,
                                .context_bytes = 450 * MIB,
                                .doubt_bytes = 100 * MIB,
                                .source = "a card"};
}

static void teardown(void) {
    pl_job_finish(&job);
}

/* The receipt of the job as it stands, as its reader sees it. */
static json_t *receipt(json_t *measured) {
    struct pl_estimate e;
    struct pl_diag d = {0};
    struct pl_text text = {0}, notes = {0};
    json_t *out;
    pl_text_add(&notes, "one note\n");
    const struct pl_question q = *PL_ASK(&job, &model, &traits, &budget, 0);
    ck_assert_int_eq(pl_estimate_init(&e, &q, NULL, NULL), PL_ERR_OK);
    pl_receipt_write(&e, &notes, measured, &text);
    ck_assert(!text.failed);
    ck_assert_msg(pl_receipt_parse(pl_text_str(&text), text.len, "r.json", &out, &d) == PL_ERR_OK,
                  "%s", d.message);
    json_t *answer = pl_answer_json(&e, "one note\n");
    ck_assert(json_equal(answer, json_object_get(out, "planned")));
    json_decref(answer);
    pl_estimate_finish(&e);
    pl_text_finish(&text);
    pl_text_finish(&notes);
    return out;
}

static const char *digest(const json_t *r, const char *name) {
    return json_string_value(json_object_get(json_object_get(r, "digests"), name));
}

static struct pl_receipt_diff compare(const json_t *a, const json_t *b, const char *allow) {
    struct pl_growth_allowance by;
    struct pl_receipt_diff x;
    ck_assert(pl_growth_allowance_parse(allow, &by));
    ck_assert_int_eq(pl_receipt_compare(a, b, &by, &x, NULL), PL_ERR_OK);
    return x;
}

/* RC1: receipt() compares `planned` with the answer. */
START_TEST(a_receipt_says_what_was_asked_planned_and_measured) {
    json_t *r = receipt(json_pack("{s:i}", "steps", 3)), *asked = json_object_get(r, "asked");
    json_t *settings = json_object_get(asked, "settings"),
           *device = json_object_get(asked, "device");
    ck_assert_str_eq(json_string_value(json_object_get(settings, "batch_size")), "2");
    ck_assert_str_eq(json_string_value(json_object_get(settings, "optimizer")), "adamw");
    ck_assert_str_eq(json_string_value(json_object_get(device, "compute_capability")), "8.9");
    ck_assert_int_eq(json_integer_value(json_object_get(device, "budget_bytes")), 8192 * MIB);
    ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(r, "measured"), "steps")),
                     3);
    json_t *again = receipt(NULL);
    ck_assert(json_is_null(json_object_get(again, "measured")));
    ck_assert(json_equal(json_object_get(r, "digests"), json_object_get(again, "digests")));
    json_decref(r);
    json_decref(again);
}
END_TEST

/* The setting that is changed, and which of the three digests it changes. */
static const struct {
    const char *key, *value;
    bool question, program, plan;
} changes[] = {
    {"batch_size", "3", true, true, true},
    {"learning_rate", "0.5", true, false, false}, /* a number the program is run with */
    {"optimizer", "sgd", true, true, true},
    {"vram_margin", "1GiB", true, false, false},
};

/* RC2 */
START_TEST(a_digest_changes_with_what_it_is_of) {
    json_t *before = receipt(NULL);
    set(changes[_i].key, changes[_i].value);
    json_t *after = receipt(NULL);
    const struct {
        const char *name;
        bool changes;
    } rows[] = {{"question", changes[_i].question},
                {"program", changes[_i].program},
                {"plan", changes[_i].plan}};
    for (int i = 0; i < 3; i++)
        ck_assert_msg(!strcmp(digest(before, rows[i].name), digest(after, rows[i].name)) !=
                          rows[i].changes,
                      "%s of %s", rows[i].name, changes[_i].key);
    json_decref(before);
    json_decref(after);
}
END_TEST

/* RD1, RD2, RD3: The rows of each memory add up to the growth of its total, and the reason is
 * named. */
START_TEST(what_grew_is_told_line_by_line) {
    static const struct {
        const char *key, *value, *why;
    } rows[] = {{"batch_size", "5", "batch_size: 2 -> 5\n"},
                {"offload", "optimizer", "offload: none -> optimizer\n"},
                {"optimizer", "adamw_8bit", "optimizer: adamw -> adamw_8bit\n"}};
    json_t *before = receipt(NULL);
    set(rows[_i].key, rows[_i].value);
    json_t *after = receipt(NULL);
    struct pl_receipt_diff x = compare(before, after, "0");
    int64_t device = 0, host = 0;
    ck_assert_uint_gt(x.n_rows, 0);
    for (size_t i = 0; i < x.n_rows; i++) {
        const bool on_device = strcmp(x.rows[i].memory, "device") == 0;
        ck_assert_uint_ne(x.rows[i].before, x.rows[i].after);
        *(on_device ? &device : &host) += (int64_t)(x.rows[i].after - x.rows[i].before);
    }
    ck_assert_int_eq(device, (int64_t)(x.device.after - x.device.before));
    ck_assert_int_eq(host, (int64_t)(x.host.after - x.host.before));
    ck_assert_int_eq(host != 0, _i == 1);
    ck_assert_ptr_nonnull(strstr(pl_text_str(&x.why), rows[_i].why));
    ck_assert_int_eq(x.within, _i == 2); /* the offload grows on the host */
    struct pl_text text = {0};
    pl_receipt_diff_text(&x, &text);
    ck_assert_ptr_nonnull(strstr(pl_text_str(&text), rows[_i].why));
    ck_assert_int_eq(strstr(pl_text_str(&text), "are allowed") != NULL, _i != 2);
    json_t *o = pl_receipt_diff_json(&x);
    ck_assert_uint_eq(json_array_size(json_object_get(o, "entries")), x.n_rows);
    ck_assert_int_eq(json_is_true(json_object_get(o, "within")), x.within);
    json_decref(o);
    pl_text_finish(&text);
    pl_receipt_diff_finish(&x);
    json_decref(before);
    json_decref(after);
}
END_TEST

START_TEST(equal_receipts_have_no_rows_and_no_reason) {
    json_t *r = receipt(NULL);
    struct pl_receipt_diff x = compare(r, r, "0");
    ck_assert_uint_eq(x.n_rows, 0);
    ck_assert_uint_eq(x.why.len, 0);
    ck_assert(x.within);
    pl_receipt_diff_finish(&x);
    json_decref(r);
}
END_TEST

/* RD3: Nothing of the question differs: the digests tell what does. */
START_TEST(the_same_question_may_get_another_program_or_another_plan) {
    static const char
        *const changed[] = {"plan", "program"},
               *const says[] = {
                   "the same program, placed in another way\n",
                   "the same question, answered with another program: version " PLIMSOLL_VERSION
                   " -> " PLIMSOLL_VERSION "\n"};
    json_t *before = receipt(NULL), *after = receipt(NULL), *decided;
    for (int i = 0; i < 2; i++) {
        json_object_set_new(json_object_get(after, "digests"), changed[i], json_string("other"));
        struct pl_receipt_diff x = compare(before, after, "0");
        ck_assert_str_eq(pl_text_str(&x.why), says[i]);
        pl_receipt_diff_finish(&x);
    }
    decided = json_object_get(after, "decided");
    json_object_set_new(decided, "batch_size", json_string("1"));
    struct pl_receipt_diff x = compare(before, after, "0");
    ck_assert_str_eq(pl_text_str(&x.why), "batch_size, left open: 2 -> 1\n");
    pl_receipt_diff_finish(&x);
    json_decref(before);
    json_decref(after);
}
END_TEST

/* The limit holds at the last byte that is allowed, and fails one byte above. */
START_TEST(growth_is_held_to_the_byte) {
    json_t *before = receipt(NULL);
    const uint64_t was = (uint64_t)json_integer_value(
        json_object_get(json_object_get(json_object_get(before, "planned"), "bytes"), "total"));
    set("batch_size", "3");
    json_t *after = receipt(NULL);
    struct pl_receipt_diff x = compare(before, after, "0");
    const uint64_t grew = x.device.after - x.device.before;
    pl_receipt_diff_finish(&x);
    for (int more = 0; more < 2; more++) {
        char text[64];
        snprintf(text, sizeof text, "%llu", (unsigned long long)(grew - 1 + (uint64_t)more));
        x = compare(before, after, text);
        ck_assert_int_eq(x.within, more);
        pl_receipt_diff_finish(&x);
        snprintf(text, sizeof text, "%.9f%%", 100 * ((double)grew + (more ? 1 : -1)) / (double)was);
        x = compare(before, after, text);
        ck_assert_int_eq(x.within, more);
        pl_receipt_diff_finish(&x);
    }
    json_decref(before);
    json_decref(after);
}
END_TEST

START_TEST(an_allowance_is_bytes_or_percent) {
    static const struct {
        const char *text;
        bool ok;
        uint64_t bytes;
        double percent;
    } rows[] = {{"0", true, 0, 0},      {"64MiB", true, 64 * MIB, 0}, {"2%", true, 0, 2},
                {"0.5%", true, 0, 0.5}, {"-1", false, 0, 0},          {"-1%", false, 0, 0},
                {"%", false, 0, 0},     {"2 %", false, 0, 0},         {"nan%", false, 0, 0},
                {"inf%", false, 0, 0},  {"2%%", false, 0, 0},         {"", false, 0, 0},
                {"1e9%", false, 0, 0},  {"1x", false, 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pl_growth_allowance by;
        ck_assert_msg(pl_growth_allowance_parse(rows[i].text, &by) == rows[i].ok, "%s",
                      rows[i].text);
        if (!rows[i].ok) continue;
        ck_assert_uint_eq(by.bytes, rows[i].bytes);
        ck_assert_double_eq(by.percent, rows[i].percent);
    }
}
END_TEST

/* A file that was edited, truncated or is something else. */
static const struct {
    const char *object, *key, *with; /* "" is the root; with: JSON in place of the value */
    const char *says;
} damages[] = {
    {"", "receipt", "2", "another form"},
    {"", "receipt", "\"1\"", "`receipt` is missing"},
    {"", "measured", "3", "`measured` is missing"},
    {"", "digests", "{}", "`digests` are not whole"},
    {"", "decided", "[]", "`decided` is not whole"},
    {"asked", "settings", "{\"lora_r\": 16}", "is not whole"},
    {"asked", "model", "null", "is not whole"},
    {"planned", "bytes", "{}", "no bytes"},
    {"planned", "verdict", "3", "no verdict"},
    {"planned", "ledger", "[]", "not the bytes of the arenas"},
    {"planned", "ledger", "[{\"category\": \"weights\", \"bytes\": -1}]", "not the bytes"},
    {"planned", "ledger",
     "[{\"category\": \"weights\", \"bytes\": 9223372036854775807}, {\"category\": \"a\", "
     "\"bytes\": 9223372036854775807}]",
     "not the bytes"},
    {"planned", "host_ledger", "[]", "not the bytes of the host"},
};

/* RC3 */
START_TEST(what_is_no_receipt_or_does_not_add_up_is_refused) {
    json_t *r = receipt(NULL), *out;
    const char *in = damages[_i].object;
    struct pl_diag d = {0};
    json_object_set_new(in[0] ? json_object_get(r, in) : r, damages[_i].key,
                        json_loads(damages[_i].with, JSON_DECODE_ANY, NULL));
    char *text = json_dumps(r, 0);
    ck_assert_int_eq(pl_receipt_parse(text, strlen(text), "r.json", &out, &d), PL_ERR_DATA_FIELD);
    ck_assert_ptr_null(out);
    ck_assert_msg(strstr(d.message, damages[_i].says) != NULL, "%s", d.message);
    ck_assert_str_eq(d.file, "r.json");
    ck_assert_int_eq(pl_receipt_parse(text, strlen(text) / 2, "r.json", &out, &d),
                     PL_ERR_DATA_SYNTAX);
    free(text);
    json_decref(r);
}
END_TEST

int main(void) {
    Suite *s = suite_create("api.receipt");
    TCase *tc = tcase_create("receipt");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, a_receipt_says_what_was_asked_planned_and_measured);
    tcase_add_loop_test(tc, a_digest_changes_with_what_it_is_of, 0,
                        sizeof changes / sizeof *changes);
    tcase_add_loop_test(tc, what_grew_is_told_line_by_line, 0, 3);
    tcase_add_test(tc, equal_receipts_have_no_rows_and_no_reason);
    tcase_add_test(tc, the_same_question_may_get_another_program_or_another_plan);
    tcase_add_test(tc, growth_is_held_to_the_byte);
    tcase_add_test(tc, an_allowance_is_bytes_or_percent);
    tcase_add_loop_test(tc, what_is_no_receipt_or_does_not_add_up_is_refused, 0,
                        sizeof damages / sizeof *damages);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
