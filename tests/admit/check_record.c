/* check_record.c - which differences of two runs count, which are told, and which are none. */
#include "estimator/config/key_table.h"
#include "runtime/admit/record.h"

#include <check.h>
#include <string.h>

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

static json_t *then, *now;

static void make(void) {
    then = json_object();
    now = json_object();
}

static void unmake(void) {
    json_decref(then);
    json_decref(now);
}

static void put_row(json_t *record, const char *row, const char *value) {
    ck_assert_int_eq(json_object_set_new(record, row, json_string(value)), 0);
}

static struct pl_record_differences compare(void) {
    struct pl_record_differences x;
    pl_record_compare(then, now, &x);
    ck_assert(!x.meaning.failed && !x.others.failed);
    return x;
}

static const struct {
    const char *row, *then, *now; /* NULL: the record has no such row */
    const char *meaning, *others;
} rows[] = {
    {"learning_rate", "0.0001", "0.0002", "learning_rate: 0.0001 -> 0.0002", ""},
    {"learning_rate", "0.0001", "0.0001", "", ""},
    {"lora_r", "16", "8", "lora_r: 16 -> 8", ""},
    {"lora_alpha", "", "32", "lora_alpha: (unset) -> 32", ""},
    {"lora_alpha", "32", "", "lora_alpha: 32 -> (unset)", ""},
    {"lora_r", NULL, "8", "", ""}, /* F3: of another version */
    {"lora_r", "16", NULL, "", ""},
    {"model", "a", "b", "", "model: a -> b"}, /* compared by its content instead */
    {"dataset", "a.jsonl", "b.jsonl", "", "dataset: a.jsonl -> b.jsonl"},
    {"data", "24 rows, 1", "24 rows, 2", "data: 24 rows, 1 -> 24 rows, 2", ""},
    {"tokenizer_files", "1", "2", "tokenizer_files: 1 -> 2", ""},
    {"config_json", "1", "2", "config_json: 1 -> 2", ""},
    {"base_weights", "1", "2", "base_weights: 1 -> 2", ""},
    {"kernels", "cpu v3", "cpu v4", "", "kernels: cpu v3 -> cpu v4"},
    {"base_dtype", "auto", "bf16", "", ""}, /* changes no bit of the base */
    {"base_dtype", "fp32", "auto", "", ""},
    {"base_dtype", "fp32", "bf16", "base_dtype: fp32 -> bf16", ""},
    {"dtype", "auto", "bf16", "dtype: auto -> bf16", ""}, /* only base_dtype differs */
    {"warmup_steps", "10", "20", "warmup_steps: 10 -> 20", ""},
    {"warmup_ratio", "0.1", "0.2", "", ""}, /* the same steps, as far as the records say */
    {"no_such_row", "1", "2", "", ""},
};

START_TEST(a_difference_is_told_where_it_counts) {
    if (rows[_i].then) put_row(then, rows[_i].row, rows[_i].then);
    if (rows[_i].now) put_row(now, rows[_i].row, rows[_i].now);
    struct pl_record_differences x = compare();
    ck_assert_str_eq(pl_text_str(&x.meaning), rows[_i].meaning);
    ck_assert_str_eq(pl_text_str(&x.others), rows[_i].others);
    pl_record_differences_finish(&x);
    ck_assert_ptr_null(x.meaning.data);
}
END_TEST

static const struct {
    const char *steps[2], *ratio[2]; /* then, now */
    const char *meaning;
} warmups[] = {
    {{"10", "10"}, {"", ""}, ""},
    {{"10", "10"}, {"", "0.1"}, ""},    /* the same steps, however they were asked for */
    {{"10", "20"}, {"0.1", "0.1"}, ""}, /* the same share of a longer run */
    {{"10", "20"}, {"", ""}, "warmup_steps: 10 -> 20"},
    {{"10", "20"}, {"0.1", "0.2"}, "warmup_steps: 10 -> 20; warmup_ratio: 0.1 -> 0.2"},
    {{"10", "20"}, {"0.1", ""}, "warmup_steps: 10 -> 20; warmup_ratio: 0.1 -> (unset)"},
    {{"10", "20"}, {"", "0.1"}, "warmup_steps: 10 -> 20; warmup_ratio: (unset) -> 0.1"},
};

START_TEST(a_warmup_may_be_asked_for_in_two_ways) {
    put_row(then, "warmup_steps", warmups[_i].steps[0]);
    put_row(now, "warmup_steps", warmups[_i].steps[1]);
    put_row(then, "warmup_ratio", warmups[_i].ratio[0]);
    put_row(now, "warmup_ratio", warmups[_i].ratio[1]);
    struct pl_record_differences x = compare();
    const char *said = pl_text_str(&x.meaning), *want = warmups[_i].meaning;
    ck_assert_uint_eq(strlen(said), strlen(want)); /* in the order of the table of keys */
    char all[160], *rest = all;
    ck_assert_uint_lt(strlen(want), sizeof all);
    strcpy(all, want);
    for (char *part; rest && *rest && (part = strsep(&rest, ";")) != NULL;) {
        while (*part == ' ')
            part++;
        ck_assert_msg(strstr(said, part) != NULL, "%s: %s", part, said);
    }
    pl_record_differences_finish(&x);
}
END_TEST

/* Every key, by its class: what changes what is learned must not pass for a remark. */
START_TEST(every_key_is_told_by_its_class) {
    uint32_t n, meaning = 0, others = 0;
    const struct pl_key_info *keys = pl_key_table(&n);
    for (uint32_t i = 0; i < n; i++) {
        json_object_clear(then);
        json_object_clear(now);
        put_row(then, keys[i].key, "one");
        put_row(now, keys[i].key, "two");
        struct pl_record_differences x = compare();
        const bool form = pl_key_class(i) == PL_KEY_FORM;
        const bool counts = form || pl_key_class(i) == PL_KEY_MEANING;
        const bool is_ratio = strcmp(keys[i].key, "warmup_ratio") == 0;
        ck_assert_msg((x.meaning.len > 0) == (counts && !is_ratio), "%s", keys[i].key);
        ck_assert_msg((x.others.len > 0) == !counts, "%s", keys[i].key);
        ck_assert_msg((x.form.len > 0) == form, "%s", keys[i].key);
        meaning += x.meaning.len > 0;
        others += x.others.len > 0;
        pl_record_differences_finish(&x);
    }
    ck_assert_uint_gt(meaning, 20);
    ck_assert_uint_gt(others, 20);
}
END_TEST

START_TEST(several_differences_stand_in_one_line) {
    static const char *const names[] = {"lora_r", "seed", "optimizer", "model", "output_dir"};
    for (int i = 0; i < COUNT(names); i++) {
        put_row(then, names[i], "a");
        put_row(now, names[i], "b");
    }
    struct pl_record_differences x = compare(), same;
    int parts = 1, others = 1;
    for (const char *c = pl_text_str(&x.meaning); *c; c++)
        parts += *c == ';';
    for (const char *c = pl_text_str(&x.others); *c; c++)
        others += *c == ';';
    ck_assert_int_eq(parts + others, COUNT(names));
    ck_assert_ptr_nonnull(strstr(pl_text_str(&x.meaning), "lora_r: a -> b"));
    pl_record_compare(then, then, &same);
    ck_assert_uint_eq(same.meaning.len + same.others.len, 0);
    pl_record_differences_finish(&same);
    pl_record_differences_finish(&x);
}
END_TEST

START_TEST(a_row_that_is_no_text_is_no_row) {
    ck_assert_int_eq(json_object_set_new(then, "lora_r", json_integer(16)), 0);
    put_row(now, "lora_r", "8");
    ck_assert_ptr_null(pl_record_get(then, "lora_r"));
    ck_assert_str_eq(pl_record_get(now, "lora_r"), "8");
    ck_assert_ptr_null(pl_record_get(now, "seed"));
    ck_assert_ptr_null(pl_record_get(NULL, "seed"));
    struct pl_record_differences x = compare();
    ck_assert_uint_eq(x.meaning.len, 0);
    pl_record_differences_finish(&x);
}
END_TEST

int main(void) {
    Suite *s = suite_create("admit.record");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, make, unmake);
    tcase_add_loop_test(t, a_difference_is_told_where_it_counts, 0, COUNT(rows));
    tcase_add_loop_test(t, a_warmup_may_be_asked_for_in_two_ways, 0, COUNT(warmups));
    tcase_add_test(t, every_key_is_told_by_its_class);
    tcase_add_test(t, several_differences_stand_in_one_line);
    tcase_add_test(t, a_row_that_is_no_text_is_no_row);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
