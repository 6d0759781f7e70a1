/* check_preference.c - rows of preferences: the tokens that TRL 1.16 makes of 480 rows of text
 * under five tokenizers (preference.jsonl), what a limit leaves, and rows that are refused by
 * name. */
#include "tests/data/fixture.h"

#include "estimator/base/json_tree.h"

#include <jansson.h>

#define CASES      DATA "/preference.jsonl"
#define TOKENIZERS DATA "/tokenizer"

static const char *const tokenizers[] = {"qwen2_style", "llama3_style", "llama2_legacy",
                                         "smollm2_style", "mistral_metaspace_first"};
static const struct {
    const char *trainer;
    uint32_t stage;
} trainers[] = {{"dpo", PL_STAGE_DPO}, {"orpo", PL_STAGE_ORPO}, {"kto", PL_STAGE_KTO}};
enum { N_TOKENIZERS = sizeof tokenizers / sizeof *tokenizers };
enum { N_TRAINERS = sizeof trainers / sizeof *trainers };

static void start(struct fixture *f, const char *tokenizer, uint32_t stage) {
    static char path[600];
    fixture_start(f, PL_FORMAT_PREFERENCE);
    snprintf(path, sizeof path, TOKENIZERS "/%s", tokenizer);
    if (strcmp(tokenizer, "byte") != 0) f->job.tokenizer = path;
    f->job.chat_template.choice = PL_CHAT_TEMPLATE_AUTO;
    f->job.stage = stage;
    f->job.beta = 0.1;
    f->model.vocab = 200000;
    f->model.n_eos = 0;
}

static bool is_of(const json_t *c, int tokenizer, int trainer) {
    return strcmp(json_string_value(json_object_get(c, "tokenizer")), tokenizers[tokenizer]) == 0 &&
           strcmp(json_string_value(json_object_get(c, "trainer")), trainers[trainer].trainer) == 0;
}

/* Tokens [*at, ...) of the sample are those of the list. */
static void expect_ids(const json_t *c, const struct pl_sample *s, const json_t *want, bool answer,
                       uint64_t *at) {
    for (size_t i = 0; i < json_array_size(want); i++, ++*at) {
        const json_int_t id = json_integer_value(json_array_get(want, i));
        char *row = json_dumps(json_object_get(c, "row"), 0);
        ck_assert_msg(*at < s->n && s->ids[*at] == id, "token %llu of %s is not %lld",
                      (unsigned long long)*at, row, (long long)id);
        ck_assert_msg((pl_sample_label(s, *at) != PL_LABEL_MASKED) == answer, "label %llu of %s",
                      (unsigned long long)*at, row);
        free(row);
    }
}

static void expect_part(const json_t *c, const struct pl_sample *s, const char *prompt,
                        const char *answer, uint64_t *at) {
    const json_t *own = json_object_get(c, prompt);
    ck_assert(pl_label_begins_part(s->labels[*at]));
    expect_ids(c, s, own ? own : json_object_get(c, "prompt_ids"), false, at);
    expect_ids(c, s, json_object_get(c, answer), true, at);
}

static void expect_case(const json_t *c, const struct pl_sample *s) {
    uint64_t at = 0;
    const json_t *label = json_object_get(c, "label");
    if (label) {
        const bool undesired = pl_label_part_flags(s->labels[0]) & PL_PART_UNDESIRED;
        ck_assert_int_eq(undesired, !json_is_true(label));
        expect_part(c, s, "prompt_ids", "completion_ids", &at);
    } else {
        expect_part(c, s, "prompt_ids", "chosen_ids", &at);
        expect_part(c, s, "rejected_prompt_ids", "rejected_ids", &at);
    }
    ck_assert_uint_eq(at, s->n);
}

/* The rows of a tokenizer and a trainer that TRL reads, in one file; or those it fails on. */
static json_t *cases_of(int tokenizer, int trainer, bool failing) {
    json_t *list = json_array(), *c;
    FILE *in = fopen(CASES, "r");
    ck_assert_ptr_nonnull(in);
    while ((c = json_loadf(in, JSON_DISABLE_EOF_CHECK, NULL)) != NULL) {
        if (is_of(c, tokenizer, trainer) && failing == (json_object_get(c, "error") != NULL))
            json_array_append(list, c);
        json_decref(c);
    }
    fclose(in);
    return list;
}

static void write_rows(struct fixture *f, const json_t *cases) {
    struct pl_text text = {0};
    for (size_t i = 0; i < json_array_size(cases); i++) {
        char *row = json_dumps(json_object_get(json_array_get(cases, i), "row"), 0);
        pl_text_addf(&text, "%s\n", row);
        free(row);
    }
    fixture_write(f, pl_text_str(&text), text.len);
    pl_text_finish(&text);
}

/* --- rows of LLaMA-Factory with `ranking: true` ----------------------------------------------- */

#define HUMAN            "{\"from\":\"human\",\"value\":\"q\"}"
#define GPT(text)        "{\"from\":\"gpt\",\"value\":\"" text "\"}"
#define USER(text)       "{\"role\":\"user\",\"content\":\"" text "\"}"
#define ASSISTANT(text)  "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define SYSTEM           "{\"role\":\"system\",\"content\":\"s\"}"
#define ANSWERS_AS_LISTS "\"chosen\":[" ASSISTANT("b") "],\"rejected\":[" ASSISTANT("c") "]"

static const struct {
    const char *row, *as; /* the same row as TRL reads it */
} ranked[] = {
    {"{\"conversations\":[" HUMAN "],\"chosen\":" GPT("b") ",\"rejected\":" GPT("c") "}",
     "{\"prompt\":[" USER("q") "]," ANSWERS_AS_LISTS "}"},
    {"{\"conversations\":[" HUMAN
     "," GPT("a") "," HUMAN "],\"system\":\"s\",\"chosen\":" GPT("b") ",\"rejected\":" GPT("c") "}",
     "{\"prompt\":[" SYSTEM "," USER("q") "," ASSISTANT("a") "," USER("q") "]," ANSWERS_AS_LISTS
                                                                           "}"},
    {"{\"instruction\":\"q\",\"chosen\":\"b\",\"rejected\":\"c\"}",
     "{\"prompt\":[" USER("q") "]," ANSWERS_AS_LISTS "}"},
    {"{\"instruction\":\"q\",\"input\":\"\",\"system\":\"\",\"history\":[],\"chosen\":\"b\","
     "\"rejected\":\"c\",\"prompt\":null}",
     "{\"prompt\":[" USER("q") "]," ANSWERS_AS_LISTS "}"},
    {"{\"chosen\":\"b\",\"system\":\"s\",\"instruction\":\"q\",\"input\":\"x\","
     "\"rejected\":\"c\"}",
     "{\"prompt\":[" SYSTEM "," USER("q\\nx") "]," ANSWERS_AS_LISTS "}"},
    {"{\"prompt\":[" USER("q") "],\"chosen\":" ASSISTANT("b") ",\"rejected\":" ASSISTANT("c") "}",
     "{\"prompt\":[" USER("q") "]," ANSWERS_AS_LISTS "}"},
};
enum { N_RANKED = sizeof ranked / sizeof *ranked };

START_TEST(a_ranked_row_is_the_row_of_its_messages) {
    struct fixture f;
    struct pl_sample s[2] = {{0}, {0}};
    char rows[1024];
    start(&f, "qwen2_style", _i / N_RANKED ? PL_STAGE_ORPO : PL_STAGE_DPO);
    const int n = snprintf(rows, sizeof rows, "%s\n%s\n", ranked[_i % N_RANKED].row,
                           ranked[_i % N_RANKED].as);
    fixture_write(&f, rows, (size_t)n);
    pl_err err = fixture_open(&f);
    ck_assert_msg(err == PL_ERR_OK, "%s", f.d.message);
    for (uint64_t i = 0; i < 2; i++)
        ck_assert_int_eq(pl_data_sample(f.data, i, &s[i], &f.d), PL_ERR_OK);
    ck_assert_uint_gt(s[0].n, 10);
    ck_assert_msg(pl_sample_digest(&s[0]) == pl_sample_digest(&s[1]), "%s", rows);
    pl_sample_finish(&s[0]);
    pl_sample_finish(&s[1]);
    fixture_finish(&f);
}
END_TEST

START_TEST(tokens_are_those_of_trl) {
    const int tokenizer = _i / N_TRAINERS, trainer = _i % N_TRAINERS;
    struct fixture f;
    struct pl_sample s = {0};
    json_t *cases = cases_of(tokenizer, trainer, false);
    ck_assert_uint_gt(json_array_size(cases), 20);
    start(&f, tokenizers[tokenizer], trainers[trainer].stage);
    write_rows(&f, cases);
    pl_err err = fixture_open(&f);
    ck_assert_msg(err == PL_ERR_OK, "%s", f.d.message);
    ck_assert_uint_eq(pl_data_rows(f.data), json_array_size(cases));
    for (uint64_t i = 0; i < pl_data_rows(f.data); i++) {
        ck_assert_int_eq(pl_data_sample(f.data, i, &s, &f.d), PL_ERR_OK);
        expect_case(json_array_get(cases, (size_t)i), &s);
    }
    pl_sample_finish(&s);
    fixture_finish(&f);
    json_decref(cases);
}
END_TEST

START_TEST(rows_on_which_trl_fails_are_refused) {
    int failing = 0;
    for (int i = 0; i < N_TOKENIZERS * N_TRAINERS; i++) {
        json_t *cases = cases_of(i / N_TRAINERS, i % N_TRAINERS, true);
        if (json_array_size(cases)) {
            struct fixture f;
            start(&f, tokenizers[i / N_TRAINERS], trainers[i % N_TRAINERS].stage);
            write_rows(&f, cases);
            ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_FIELD);
            fixture_finish(&f);
            failing += (int)json_array_size(cases);
        }
        json_decref(cases);
    }
    ck_assert_int_eq(failing, 2);
}
END_TEST

/* Rows of tokens under a limit of 6: a prompt of three, answers of five and of two. */
static const struct {
    uint32_t stage, truncation;
    const char *row, *shown; /* "|" begins a part, tokens of answers are capital */
} cuts[] = {
    {PL_STAGE_DPO, PL_TRUNCATION_KEEP_START,
     "{\"prompt_ids\":[1,2,3],\"chosen_ids\":[4,5,6,7,8],\"rejected_ids\":[9,10]}",
     "|abcDEF|abcIJ"},
    {PL_STAGE_DPO, PL_TRUNCATION_KEEP_END,
     "{\"prompt_ids\":[1,2,3],\"chosen_ids\":[4,5,6,7,8],\"rejected_ids\":[9,10]}",
     "|cDEFGH|abcIJ"},
    {PL_STAGE_DPO, PL_TRUNCATION_KEEP_END,
     "{\"prompt_ids\":[1],\"chosen_ids\":[4,5,6,7,8,9,10],\"rejected_ids\":[11]}", "|EFGHIJ|aK"},
    {PL_STAGE_ORPO, PL_TRUNCATION_KEEP_START,
     "{\"prompt_ids\":[1,2,3],\"chosen_ids\":[4,5,6,7,8],\"rejected_ids\":[9,10]}",
     "|abcDEF|abcIJ"},
    {PL_STAGE_KTO, PL_TRUNCATION_KEEP_START,
     "{\"prompt_ids\":[1,2,3],\"completion_ids\":[4,5,6,7],\"label\":0}", "|abcDEF"},
    {PL_STAGE_DPO, PL_TRUNCATION_KEEP_START,
     "{\"prompt_ids\":[1,2,3,4,5,6],\"chosen_ids\":[7],\"rejected_ids\":[8]}", NULL},
};

START_TEST(a_limit_leaves_what_trl_leaves) {
    struct fixture f;
    struct pl_sample s = {0};
    char shown[64] = "";
    start(&f, "byte", cuts[_i].stage);
    f.set.format = PL_FORMAT_TOKENS;
    f.job.max_seq_length = 6;
    f.job.truncation = cuts[_i].truncation;
    fixture_write(&f, cuts[_i].row, strlen(cuts[_i].row));
    pl_err err = fixture_open(&f);
    if (!cuts[_i].shown) {
        ck_assert_int_eq(err, PL_ERR_DATA_EMPTY); /* the only row was dropped */
        fixture_finish(&f);
        return;
    }
    ck_assert_msg(err == PL_ERR_OK, "%s", f.d.message);
    ck_assert(pl_data_is_cut(f.data, 0));
    ck_assert_int_eq(pl_data_sample(f.data, 0, &s, &f.d), PL_ERR_OK);
    for (uint64_t i = 0; i < s.n; i++) {
        const bool answer = pl_sample_label(&s, i) != PL_LABEL_MASKED;
        snprintf(shown + strlen(shown), sizeof shown - strlen(shown), "%s%c",
                 pl_label_begins_part(s.labels[i]) ? "|" : "", (answer ? 'A' : 'a') + s.ids[i] - 1);
    }
    ck_assert_str_eq(shown, cuts[_i].shown);
    pl_sample_finish(&s);
    fixture_finish(&f);
}
END_TEST

/* Messages need a template. */
START_TEST(an_answer_without_a_text_is_refused) {
    static const char row[] = "{\"prompt\":[" USER("q") "],\"chosen\":[" ASSISTANT(
        "") "],\"rejected\":[" ASSISTANT("c") "]}";
    struct fixture f;
    start(&f, "qwen2_style", PL_STAGE_DPO);
    fixture_write(&f, row, sizeof row - 1);
    ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_FIELD);
    ck_assert_msg(strstr(f.d.message, "`chosen` is empty"), "%s", f.d.message);
    fixture_finish(&f);
}
END_TEST

/* Blanks between words are no tokens of this tokenizer. */
START_TEST(an_answer_that_is_no_token_is_refused) {
    static const char *const rows[] = {
        "{\"prompt\":\"what is\",\"chosen\":\"   \",\"rejected\":\"the cat\"}",
        "{\"prompt\":\"what is\",\"chosen\":\"the cat\",\"rejected\":\"\\n\"}",
        "{\"prompt\":\"what is\",\"completion\":\" \",\"label\":true}"};
    static const char *const names[] = {"`chosen`", "`rejected`", "`completion`"};
    struct fixture f;
    start(&f, "whitespace_words", _i == 2 ? PL_STAGE_KTO : PL_STAGE_DPO);
    f.model.n_eos = 1;
    f.model.eos[0] = 7;
    fixture_write(&f, rows[_i], strlen(rows[_i]));
    ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_FIELD);
    ck_assert_msg(strstr(f.d.message, "no token") && strstr(f.d.message, names[_i]), "%s",
                  f.d.message);
    fixture_finish(&f);
}
END_TEST

static const struct {
    uint32_t stage;
    const char *row, *says;
} refused[] = {
    {PL_STAGE_DPO, "{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":null}", "`rejected` is null"},
    {PL_STAGE_DPO, "{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":\"b\"}", "the same answer"},
    {PL_STAGE_DPO, "{\"prompt\":\"a\",\"chosen\":\"\",\"rejected\":\"b\"}", "`chosen` is empty"},
    {PL_STAGE_DPO, "{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":\"\"}", "`rejected` is empty"},
    {PL_STAGE_DPO, "{\"prompt\":\"a\",\"chosen\":\"b\"}", "key `rejected` is missing"},
    {PL_STAGE_DPO, "{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":[{}]}", "different kinds"},
    {PL_STAGE_DPO, "{\"prompt\":[{}],\"chosen\":\"b\",\"rejected\":\"c\"}", "different kinds"},
    {PL_STAGE_DPO, "{\"chosen\":\"abc\",\"rejected\":\"abc\"}", "holds no answer"},
    {PL_STAGE_DPO, "{\"prompt\":\"p\",\"instruction\":\"a\",\"chosen\":\"b\",\"rejected\":\"c\"}",
     "`instruction` is not supported"},
    {PL_STAGE_DPO, "{\"prompt\":\"p\",\"system\":\"a\",\"chosen\":\"b\",\"rejected\":\"c\"}",
     "`system` is not supported"},
    {PL_STAGE_DPO, "{\"input\":\"a\",\"chosen\":\"b\",\"rejected\":\"c\"}",
     "`input` is not supported"},
    {PL_STAGE_DPO,
     "{\"conversations\":[" HUMAN "],\"instruction\":\"a\",\"chosen\":\"b\",\"rejected\":\"c\"}",
     "`instruction` is not supported"},
    {PL_STAGE_DPO,
     "{\"prompt\":\"p\",\"conversations\":[" HUMAN "],\"chosen\":\"b\",\"rejected\":\"c\"}",
     "`conversations` is not supported"},
    {PL_STAGE_DPO, "{\"chosen\":" GPT("b") ",\"rejected\":" GPT("c") "}",
     "is one message, and the row has no prompt"},
    {PL_STAGE_DPO, "{\"prompt\":\"a\",\"chosen\":7,\"rejected\":\"b\"}",
     "`chosen` is a number, expected a string, a message or a list of messages"},
    {PL_STAGE_KTO, "{\"instruction\":\"a\",\"completion\":\"b\",\"prompt\":\"c\",\"label\":1}",
     "`instruction` is not supported"},
    {PL_STAGE_KTO, "{\"prompt\":\"a\",\"completion\":\"b\",\"label\":2}", "neither true nor false"},
    {PL_STAGE_KTO, "{\"prompt\":\"a\",\"completion\":\"b\"}", "key `label` is missing"},
};

START_TEST(a_row_that_prefers_nothing_is_refused_by_name) {
    struct fixture f;
    start(&f, "byte", refused[_i].stage);
    fixture_write(&f, refused[_i].row, strlen(refused[_i].row));
    ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_FIELD);
    ck_assert_msg(strstr(f.d.message, refused[_i].says), "%s", f.d.message);
    fixture_finish(&f);
}
END_TEST

int main(void) {
    Suite *s = suite_create("data.preference");
    TCase *tc = tcase_create("rows");
    tcase_add_loop_test(tc, tokens_are_those_of_trl, 0, N_TOKENIZERS * N_TRAINERS);
    tcase_add_loop_test(tc, a_ranked_row_is_the_row_of_its_messages, 0, 2 * N_RANKED);
    tcase_add_test(tc, rows_on_which_trl_fails_are_refused);
    tcase_add_loop_test(tc, a_limit_leaves_what_trl_leaves, 0, sizeof cuts / sizeof *cuts);
    tcase_add_test(tc, an_answer_without_a_text_is_refused);
    tcase_add_loop_test(tc, an_answer_that_is_no_token_is_refused, 0, 3);
    tcase_add_loop_test(tc, a_row_that_prefers_nothing_is_refused_by_name, 0,
                        sizeof refused / sizeof *refused);
    suite_add_tcase(s, tc);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
