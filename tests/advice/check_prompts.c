/* check_prompts.c - three questions people ask about a training run, answered by `plimsoll plan`.
 * PLIMSOLL names the binary. */
#include "tests/support/child.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <jansson.h>
#include <string.h>

#define MAX_WORDS 20

static json_t *plan(int status, const char *const words[]) {
    const char *argv[MAX_WORDS + 3] = {"plan", "--json"};
    for (int i = 0; words[i]; i++) {
        ck_assert_int_lt(i, MAX_WORDS);
        argv[2 + i] = words[i];
    }
    struct outcome p = plimsoll_expect(status, NULL, argv);
    json_t *root = json_loads(p.out, 0, NULL);
    ck_assert_msg(json_is_object(root), "%s%s", p.out, p.err);
    outcome_finish(&p);
    return root;
}

static const json_t *at(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    ck_assert_msg(v != NULL, "%s", key);
    return v;
}

static json_int_t integer(const json_t *o, const char *key) {
    ck_assert_msg(json_is_integer(at(o, key)), "%s", key);
    return json_integer_value(at(o, key));
}

static const char *string(const json_t *o, const char *key) {
    return json_string_value(at(o, key));
}

/* The row of a list whose `key` is this number. */
static const json_t *row(const json_t *list, const char *key, json_int_t value) {
    size_t i;
    json_t *r;
    json_array_foreach(list, i, r) if (integer(r, key) == value) return r;
    ck_abort_msg("no %s %d", key, (int)value);
}

#define DATA "--samples", "1000", "--mean-tokens", "400", "--longest-tokens", "1200"

/* Llama-3-8B on a T4 with 1,000 samples: which configurations, which length, which batch, how to
 * see 16 samples a step. In 16 bits nothing does: the answer is no, why, and where it would. */
START_TEST(prompt_1_on_the_t4_is_refused_with_a_card_that_would_do) {
    json_t *o = plan(3, (const char *[]){"Llama-3-8B", "--mode", "lora", "--gpu", "T4", DATA,
                                         "--effective-batch", "16", NULL});
    ck_assert_int_eq(integer(at(o, "advice"), "largest_batch_size"), 0);
    ck_assert_str_eq(string(o, "verdict"), "no");
    /* weights alone are above what the card has */
    ck_assert_int_gt(integer(at(o, "bytes"), "weights"), integer(at(o, "limits"), "usable_bytes"));
    size_t i;
    json_t *card;
    bool would_do = false;
    json_array_foreach(at(o, "cards"), i, card) {
        if (strcmp(string(card, "name"), "RTX 3090") == 0)
            would_do = strcmp(string(card, "verdict"), "fits") == 0;
        if (strcmp(string(card, "name"), "T4") == 0) ck_assert(json_is_true(at(card, "runs")));
    }
    ck_assert(would_do);
    json_decref(o);
    static const struct {
        const char *gpu, *says;
    } rows[] = {{"V100 16GB", "V100 16GB has compute capability 7.0; the kernels need 7.5 (Turing) "
                              "or later: no setting helps"},
                {"RTX A4000", "a smaller batch or length does not help"}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct outcome p =
            plimsoll_expect(3, NULL,
                            (const char *[]){"plan", "Llama-3-8B", "--mode", "lora", "--gpu",
                                             rows[k].gpu, DATA, "--all", NULL});
        ck_assert_ptr_nonnull(strstr(p.out, rows[k].says));
        ck_assert_ptr_null(strstr(p.out, "<- advised"));
        outcome_finish(&p);
    }
}
END_TEST

/* The bytes suffice in 4 bits; without kernels the answer is no all the same. */
START_TEST(a_card_without_kernels_is_refused_whatever_its_bytes) {
    json_t *o = plan(3, (const char *[]){"SmolLM2-135M", "--mode", "qlora", "--gpu", "V100", NULL});
    ck_assert_int_lt(integer(at(o, "bytes"), "arena"), integer(at(o, "limits"), "usable_bytes"));
    ck_assert_str_eq(string(o, "verdict"), "no");
    json_decref(o);
}
END_TEST

START_TEST(prompt_1_gets_length_batch_and_accumulation) {
    json_t *o = plan(0, (const char *[]){"Llama-3-8B", "--mode", "lora", "--gpu", "RTX 3090", DATA,
                                         "--effective-batch", "16", NULL});
    const json_t *advice = at(o, "advice"), *lengths = at(at(o, "data"), "lengths");
    /* 512 and 1024 can cut, 2048 cannot; 1200 is enough, and cheaper than 2048 */
    ck_assert_int_gt(integer(row(lengths, "max_seq_length", 512), "samples_cut"), 0);
    ck_assert_int_gt(integer(row(lengths, "max_seq_length", 1024), "samples_cut"), 0);
    ck_assert_int_eq(integer(row(lengths, "max_seq_length", 2048), "samples_cut"), 0);
    ck_assert_int_eq(integer(advice, "max_seq_length"), 1200);
    ck_assert_int_gt(integer(row(lengths, "max_seq_length", 1200), "largest_batch_size"),
                     integer(row(lengths, "max_seq_length", 2048), "largest_batch_size"));
    json_int_t batch = integer(advice, "recommended_batch_size");
    ck_assert_int_ge(batch, 1);
    ck_assert_int_le(batch, integer(advice, "largest_batch_size"));
    ck_assert_int_eq(batch * integer(advice, "gradient_accumulation_steps"), 16);
    ck_assert_str_eq(string(at(advice, "price"), "verdict"), "fits");
    ck_assert_ptr_nonnull(strstr(string(advice, "yaml"), "global_batch_size: 16\n"));
    ck_assert_ptr_nonnull(strstr(string(advice, "command"), "--gpu 'RTX 3090'"));
    json_decref(o);
}
END_TEST

/* Batch 1 of 2,048 tokens leaves memory unused: batch or length, how much, and what of it? */
START_TEST(prompt_2_prices_batch_against_length_and_keeps_the_step) {
    json_t *o =
        plan(0, (const char *[]){"Llama-3-8B", "--mode", "lora", "--gpu", "L40S", "--batch-size",
                                 "1", "--max-seq-length", "2048", "--effective-batch", "16", NULL});
    const json_t *walls = at(o, "walls");
    const json_t *batch = json_array_get(walls, 0), *length = json_array_get(walls, 1);
    ck_assert_str_eq(string(batch, "key"), "batch_size");
    ck_assert_str_eq(string(length, "key"), "max_seq_length");
    ck_assert_int_gt(integer(batch, "wall"), 4);
    ck_assert_int_gt(integer(length, "wall"), 2048);
    ck_assert_int_gt(integer(batch, "next_bytes"), integer(batch, "wall_bytes"));
    /* the same tokens: doubling either costs the same but for offsets and tables */
    ck_assert_int_gt(integer(batch, "doubling_bytes"), 0);
    const json_t *rows = at(o, "accumulation"), *four = row(rows, "batch_size", 4);
    ck_assert_int_eq(integer(four, "gradient_accumulation_steps"), 4);
    ck_assert_str_eq(string(four, "verdict"), "fits");
    /* speed: the work per token does not change with the batch, it grows with the length */
    size_t i;
    json_t *k;
    int seen = 0;
    json_array_foreach(at(o, "knobs"), i, k) {
        double work = json_real_value(at(k, "work_percent"));
        if (strcmp(string(k, "change"), "batch_size: 2") == 0) {
            ck_assert_double_lt(work, 0.01);
            seen++;
        }
        if (strcmp(string(k, "change"), "max_seq_length: 4096") == 0) {
            ck_assert_double_gt(work, 0.5);
            seen++;
        }
    }
    ck_assert_int_eq(seen, 2);
    json_decref(o);
}
END_TEST

static const json_t *level_row(const json_t *levels, const char *name) {
    size_t i;
    json_t *row;
    json_array_foreach(levels, i, row) if (strcmp(string(row, "gradient_checkpointing"), name) ==
                                           0) return row;
    ck_abort_msg("there is no row of `%s`", name);
}

/* Checkpointing or a smaller batch: what is traded for what. */
START_TEST(prompt_3_shows_what_recomputation_buys) {
    json_t *o = plan(0, (const char *[]){"Llama-3-8B", "--mode", "lora", "--gpu", "RTX A6000",
                                         "--batch-size", "1", "--max-seq-length", "1024", NULL});
    const json_t *levels = at(o, "recompute");
    const json_t *none = level_row(levels, "none"), *full = level_row(levels, "full");
    ck_assert_int_lt(integer(full, "needed_bytes"), integer(none, "needed_bytes"));
    ck_assert_int_gt(integer(full, "largest_batch_size"), integer(none, "largest_batch_size"));
    ck_assert_double_eq(json_real_value(at(none, "work_percent")), 0);
    ck_assert_double_gt(json_real_value(at(full, "work_percent")), 20);
    const json_t *fast = at(none, "at_largest_batch"), *slow = at(full, "at_largest_batch");
    ck_assert_double_eq(json_real_value(at(fast, "relative_time")), 1);
    ck_assert_double_gt(json_real_value(at(slow, "relative_time")), 1.1);
    ck_assert_int_gt(integer(slow, "batch_size"), integer(fast, "batch_size"));
    /* inputs that wait in host memory come back over the link */
    const json_t *offload = at(level_row(levels, "offload"), "at_largest_batch");
    ck_assert_double_gt(json_real_value(at(offload, "relative_time")),
                        json_real_value(at(slow, "relative_time")) + 0.02);
    json_decref(o);
    struct outcome p =
        plimsoll_expect(0, NULL,
                        (const char *[]){"plan", "Llama-3-8B", "--mode", "lora", "--gpu",
                                         "RTX A6000", "--effective-batch", "4", "--all", NULL});
    ck_assert_ptr_nonnull(strstr(p.out, "recompute or a smaller batch: the same gradient"));
    ck_assert_ptr_nonnull(strstr(p.out, "the loss is divided by the tokens of the whole step"));
    outcome_finish(&p);
}
END_TEST

/* An open level would fill each budget; what compares jobs is that of `full`, also where nothing
 * fits. */
START_TEST(jobs_are_compared_at_full_where_no_level_is_written) {
    static const char *const budgets[] = {"8GiB", "300MiB"};
    static const char *const members[] = {"cards", "grid", "walls", "remedies"};
    const char *words[] = {"SmolLM2-135M",
                           "--mode",
                           "lora",
                           "--vram",
                           budgets[_i],
                           "--batch-size",
                           "2",
                           "gradient_checkpointing=full",
                           NULL};
    const int status = _i ? 3 : 0;
    json_t *full = plan(status, words);
    words[7] = NULL;
    json_t *open = plan(status, words);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        ck_assert_msg(json_equal(at(open, members[i]), at(full, members[i])), "%s", members[i]);
    ck_assert_int_eq(json_array_size(at(open, "remedies")) > 0, _i);
    json_decref(full);
    json_decref(open);
}
END_TEST

START_TEST(the_lengths_of_a_file_are_counted) {
    char dir[SCRATCH_PATH];
    scratch_make(dir);
    char data[4096] = "";
    for (int i = 1; i <= 20; i++) { /* sample i has i tokens */
        strcat(data, "{\"input_ids\":[1");
        for (int t = 1; t < i; t++)
            strcat(data, ",1");
        strcat(data, "]}\n");
    }
    file_write(in_dir(dir, "data.jsonl"), data);
    json_t *o =
        plan(0, (const char *[]){"SmolLM2-135M", "--mode", "lora", "--vram", "8GiB", "--dataset",
                                 in_dir(dir, "data.jsonl"), "--max-seq-length", "15", NULL});
    const json_t *d = at(o, "data");
    ck_assert_int_eq(integer(d, "samples"), 20);
    ck_assert_int_eq(integer(d, "tokens"), 210);
    ck_assert_int_eq(integer(d, "longest"), 20);
    ck_assert_int_eq(integer(at(d, "percentiles"), "p90"), 18);
    const json_t *own = row(at(d, "lengths"), "max_seq_length", 15);
    ck_assert_int_eq(integer(own, "samples_cut"), 5);
    ck_assert_int_eq(integer(own, "tokens_lost"), 15);
    ck_assert_int_eq(integer(at(o, "advice"), "max_seq_length"), 20);
    ck_assert_ptr_nonnull(strstr(string(at(o, "advice"), "command"), "plimsoll train "));
    json_decref(o);
    scratch_remove(dir);
}
END_TEST

START_TEST(the_csv_is_the_grid_and_nothing_else) {
    struct outcome p = plimsoll_expect(
        0, NULL, (const char *[]){"plan", "SmolLM2-135M", "--mode", "lora", "--csv", NULL});
    int lines = 0;
    for (const char *s = p.out; (s = strchr(s, '\n')) != NULL; s++)
        lines++;
    ck_assert_int_eq(lines, 65);
    static const char start[] = "batch_size,max_seq_length,needed_bytes,verdict\r\n1,256,";
    ck_assert_msg(strncmp(p.out, start, strlen(start)) == 0, "%s", p.out);
    outcome_finish(&p);
}
END_TEST

static const struct {
    const char *words[6];
    const char *said;
} bad[] = {
    {{"--effective-batch", "0"}, "--effective-batch wants a whole number from 1"},
    {{"--effective-batch", "+4"}, "--effective-batch wants a whole number from 1"},
    {{"--effective-batch", "-4"}, "--effective-batch wants a whole number from 1"},
    {{"--effective-batch", "nan"}, "not `nan`"},
    {{"--samples", "99999999999999999999"}, "--samples wants a whole number from 1"},
    {{"--samples", "10"}, "describe data together"},
    {{"--samples", "10", "--mean-tokens", "9", "--longest-tokens=8"}, "do not exist"},
    {{"--csv", "--json"}, "--csv prints only the grid"},
    {{"--gpu", "RTX 40900"}, "no GPU of the table is called"},
};

START_TEST(a_bad_value_is_a_sentence_and_exit_2) {
    const char *argv[10] = {"plan", "SmolLM2-135M", "--mode", "lora"};
    for (int i = 0; i < 6 && bad[_i].words[i]; i++)
        argv[4 + i] = bad[_i].words[i];
    struct outcome p = plimsoll_expect(2, NULL, argv);
    ck_assert_msg(strstr(p.err, bad[_i].said) != NULL, "%s", p.err);
    outcome_finish(&p);
}
END_TEST

START_TEST(a_file_that_cannot_be_written_is_no_checkpoint) {
    struct outcome p =
        plimsoll_expect(1, NULL,
                        (const char *[]){"plan", "SmolLM2-135M", "--mode", "lora", "--batch-size",
                                         "1", "--snapshot", "/proc/none/step.pickle", NULL});
    ck_assert_msg(strstr(p.err, "error[RUNTIME_IO]: ") != NULL, "%s", p.err);
    outcome_finish(&p);
}
END_TEST

int main(void) {
    Suite *s = suite_create("advice.prompts");
    TCase *tc = tcase_create("prompts");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, prompt_1_on_the_t4_is_refused_with_a_card_that_would_do);
    tcase_add_test(tc, a_card_without_kernels_is_refused_whatever_its_bytes);
    tcase_add_test(tc, prompt_1_gets_length_batch_and_accumulation);
    tcase_add_test(tc, prompt_2_prices_batch_against_length_and_keeps_the_step);
    tcase_add_test(tc, prompt_3_shows_what_recomputation_buys);
    tcase_add_loop_test(tc, jobs_are_compared_at_full_where_no_level_is_written, 0, 2);
    tcase_add_test(tc, the_lengths_of_a_file_are_counted);
    tcase_add_test(tc, the_csv_is_the_grid_and_nothing_else);
    tcase_add_loop_test(tc, a_bad_value_is_a_sentence_and_exit_2, 0,
                        (int)(sizeof bad / sizeof *bad));
    tcase_add_test(tc, a_file_that_cannot_be_written_is_no_checkpoint);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
