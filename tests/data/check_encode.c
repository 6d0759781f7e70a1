/* check_encode.c - rows through the tokenizers and templates of published models.
 *
 * Ids are those of the tokenizers library for the texts of transformers' templates. With the
 * argument `external` they come from $PLIMSOLL_TOKENIZERS_DIR, with its larger tokenizers. */
#include "tests/data/fixture.h"
#include "tests/support/scratch.h"
#include "runtime/data/chat/chat.h"
#include "runtime/data/formats.h"
#include "runtime/data/prompt_text.h"
#include "runtime/data/tokenizer/tokenizer.h"

#include <jansson.h>

static char tokenizers[400] = DATA "/tokenizer", chats[400] = DATA "/chat";
static bool external;

/* `own`: the template is the one that the tokenizer brings, and found by `auto`. */
static const struct {
    const char *tokenizer, *template;
    bool own, large;
} pairs[] = {
    {"llama2_legacy", "zephyr", true, false},
    {"llama2_legacy", "llama2", false, false},
    {"llama3_style", "llama3", true, false},
    {"mistral_metaspace_first", "mistral", true, false},
    {"mistral_metaspace_first", "mistral_sysfirst", false, false},
    {"phi4mini_style", "phi4_mini", true, false},
    {"qwen2_style", "qwen25", true, false},
    {"qwen2_style", "qwen3", false, false},
    {"smollm2_style", "smollm2", true, false},
    {"minimind", "chatml", false, true},
};

static uint32_t template_id(const char *name) {
    uint32_t id = 0;
    while (strcmp(pl_chat_name(pl_chat_nth(id)), name) != 0)
        id++;
    return id + 1;
}

static json_t *next_row(FILE *f, char **line, size_t *cap) {
    ssize_t n = getline(line, cap, f);
    return n < 0 ? NULL : json_loadb(*line, (size_t)n, JSON_ALLOW_NUL, NULL);
}

/* The row of the conversation without an answer to come. */
static json_t *find_row(const char *path, int conversation) {
    char *line = NULL;
    size_t cap = 0;
    json_t *row, *found = NULL;
    FILE *f = fopen(path, "r");
    ck_assert_msg(f != NULL, "%s is missing", path);
    while (!found && (row = next_row(f, &line, &cap))) {
        bool wanted = json_integer_value(json_object_get(row, "conversation")) == conversation &&
                      !json_is_true(json_object_get(row, "add_generation_prompt"));
        if (wanted)
            found = row;
        else
            json_decref(row);
    }
    free(line);
    fclose(f);
    return found;
}

static int count_answers(const json_t *messages) {
    int n = 0;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *role = json_object_get(json_array_get(messages, i), "role");
        n += strcmp(json_string_value(role), "assistant") == 0;
    }
    return n;
}

/* There are as many runs of trained tokens as answers; each ends with the token that ends a
 * turn. */
static void check_runs(const struct pl_sample *s, int answers, int64_t end, const char *where) {
    int runs = 0;
    for (uint64_t i = 0; i < s->n; i++) {
        if (s->labels[i] == PL_LABEL_MASKED) continue;
        ck_assert_int_eq(s->labels[i], s->ids[i]);
        bool last = i + 1 == s->n || s->labels[i + 1] == PL_LABEL_MASKED;
        if (last) ck_assert_msg(s->ids[i] == end, "%s: a run ends with %d", where, s->ids[i]);
        runs += last;
    }
    ck_assert_msg(runs == answers, "%s: %d runs for %d answers", where, runs, answers);
}

static void check_conversation(struct fixture *f, const json_t *ids, const json_t *messages,
                               int64_t end, const char *where) {
    struct pl_sample s = {0};
    char *text = json_dumps(messages, 0);
    struct pl_text rows = {0};
    ck_assert_ptr_nonnull(text);
    /* a second row, so that one without an answer does not leave nothing to train on */
    pl_text_addf(&rows,
                 "{\"messages\":%s}\n{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},"
                 "{\"role\":\"assistant\",\"content\":\"a\"}]}\n",
                 text);
    fixture_write(f, pl_text_str(&rows), rows.len);
    pl_err err = fixture_open(f);
    if (err == PL_ERR_DATA_TEMPLATE && strcmp(where, "mistral") == 0) {
        /* its program writes the system text before the last question only */
        ck_assert_msg(strstr(f->d.message, "leaves out message 0") ||
                          strstr(f->d.message, "cannot be found in what the template renders"),
                      "%s", f->d.message);
    } else {
        ck_assert_msg(err == PL_ERR_OK, "%s: %s", where, f->d.message);
        ck_assert_int_eq(pl_data_sample(f->data, 0, &s, &f->d), PL_ERR_OK);
        ck_assert_msg(s.n == json_array_size(ids), "%s: %llu tokens for %zu", where,
                      (unsigned long long)s.n, json_array_size(ids));
        for (uint64_t i = 0; i < s.n; i++)
            ck_assert_msg(s.ids[i] == json_integer_value(json_array_get(ids, i)),
                          "%s: token %llu is %d", where, (unsigned long long)i, s.ids[i]);
        check_runs(&s, count_answers(messages), end, where);
    }
    unlink(f->path);
    free(text);
    pl_text_finish(&rows);
    pl_sample_finish(&s);
}

/* E1 and E2 of encode.h */
START_TEST(a_conversation_has_the_ids_of_its_model_and_trains_its_answers) {
    const char *template = pairs[_i].template;
    struct fixture f;
    struct pl_tokenizer *t = NULL;
    char path[600], dir[600], *line = NULL;
    size_t cap = 0, rows = 0;
    json_t *row;
    if (pairs[_i].large && !external) return;
    fixture_start(&f, PL_FORMAT_AUTO);
    snprintf(dir, sizeof dir, "%s/%s", tokenizers, pairs[_i].tokenizer);
    f.job.tokenizer = dir;
    f.job.chat_template.choice = pairs[_i].own ? PL_CHAT_TEMPLATE_AUTO : template_id(template);
    f.model.vocab = 1 << 20;
    ck_assert_int_eq(pl_tokenizer_open(dir, &t, &f.d), PL_ERR_OK);
    int64_t end = pl_tokenizer_id(t, pl_chat_turn_end(pl_chat_find(template)));
    ck_assert_int_ge(end, 0);
    snprintf(path, sizeof path, "%s/ids/%s__%s.jsonl", chats, pairs[_i].tokenizer, template);
    FILE *in = fopen(path, "r");
    ck_assert_msg(in != NULL, "%s is missing", path);
    snprintf(path, sizeof path, "%s/%s.jsonl", chats, template);
    while ((row = next_row(in, &line, &cap))) {
        int conversation = (int)json_integer_value(json_object_get(row, "conversation"));
        if (!json_is_true(json_object_get(row, "add_generation_prompt"))) {
            json_t *said = find_row(path, conversation);
            ck_assert_ptr_nonnull(said);
            check_conversation(&f, json_object_get(row, "ids"), json_object_get(said, "messages"),
                               end, template);
            json_decref(said);
            rows++;
        }
        json_decref(row);
    }
    ck_assert_uint_ge(rows, 12); /* llama2 and mistral refuse three of 15 */
    free(line);
    fclose(in);
    pl_tokenizer_close(&t);
    f.made = false;
    fixture_finish(&f);
}
END_TEST

/* --- plain text ------------------------------------------------------------------------------- */
static const struct {
    const char *tokenizer;
    bool bos;        /* the post-processor begins with it */
    const char *end; /* the last token, which stands once */
} ends[] = {
    {"llama3_style", true, "<|eot_id|>"},
    {"qwen2_style", false, "<|im_end|>"},
    {"metaspace_always", true, "</s>"}, /* from the post-processor */
};

/* E2 of encode.h */
START_TEST(a_text_begins_as_the_tokenizer_says_and_ends_once) {
    struct fixture f;
    struct pl_sample s = {0};
    struct pl_tokenizer *t = NULL;
    char dir[600];
    static const char row[] = "{\"text\":\"Hello world\"}";
    fixture_start(&f, PL_FORMAT_AUTO);
    snprintf(dir, sizeof dir, "%s/%s", tokenizers, ends[_i].tokenizer);
    f.job.tokenizer = dir;
    f.model.vocab = 1 << 20;
    ck_assert_int_eq(pl_tokenizer_open(dir, &t, &f.d), PL_ERR_OK);
    int64_t bos = pl_tokenizer_bos(t), end = pl_tokenizer_id(t, ends[_i].end);
    fixture_write(&f, row, strlen(row));
    ck_assert_int_eq(fixture_open(&f), PL_ERR_OK);
    ck_assert_int_eq(pl_data_sample(f.data, 0, &s, &f.d), PL_ERR_OK);
    ck_assert_uint_ge(s.n, 3);
    ck_assert(!ends[_i].bos || s.ids[0] == bos);
    ck_assert_int_eq(s.ids[s.n - 1], end);
    ck_assert_int_ne(s.ids[s.n - 2], end);
    ck_assert_mem_eq(s.ids, s.labels, s.n * sizeof *s.ids);
    pl_tokenizer_close(&t);
    pl_sample_finish(&s);
    fixture_finish(&f);
}
END_TEST

START_TEST(an_empty_text_is_no_sample) {
    struct fixture f;
    struct pl_sample s = {0};
    char dir[600];
    static const char rows[] = "{\"text\":\"\"}\n{\"text\":\"Hello world\"}";
    fixture_start(&f, PL_FORMAT_AUTO);
    snprintf(dir, sizeof dir, "%s/llama3_style", tokenizers);
    f.job.tokenizer = dir;
    f.model.vocab = 1 << 20;
    fixture_write(&f, rows, strlen(rows));
    ck_assert_int_eq(fixture_open(&f), PL_ERR_OK);
    ck_assert_uint_eq(pl_data_stats(f.data)->unsupervised_rows, 1);
    ck_assert_int_eq(pl_data_sample(f.data, 0, &s, &f.d), PL_ERR_OK);
    ck_assert_uint_eq(s.n, 0);
    pl_sample_finish(&s);
    fixture_finish(&f);
}
END_TEST

/* E1 of encode.h */
START_TEST(a_prompt_is_masked_up_to_the_token_that_begins_behind_it) {
    struct fixture f;
    struct pl_sample s = {0};
    char dir[600];
    static const char row[] = "{\"prompt\":\"To be, or not\",\"completion\":\" to be.\"}";
    fixture_start(&f, PL_FORMAT_AUTO);
    snprintf(dir, sizeof dir, "%s/llama3_style", tokenizers);
    f.job.tokenizer = dir;
    f.model.vocab = 1 << 20;
    fixture_write(&f, row, strlen(row));
    ck_assert_int_eq(fixture_open(&f), PL_ERR_OK);
    ck_assert_int_eq(pl_data_sample(f.data, 0, &s, &f.d), PL_ERR_OK);
    struct pl_tokenizer *t = NULL;
    struct pl_text trained = {0};
    ck_assert_int_eq(pl_tokenizer_open(dir, &t, &f.d), PL_ERR_OK);
    for (uint64_t i = 0; i < s.n; i++)
        if (s.labels[i] != PL_LABEL_MASKED)
            ck_assert_int_eq(pl_tokenizer_decode(t, &s.ids[i], 1, false, &trained, &f.d),
                             PL_ERR_OK);
    ck_assert_str_eq(pl_text_str(&trained), " to be.<|eot_id|>");
    pl_text_finish(&trained);
    pl_tokenizer_close(&t);
    pl_sample_finish(&s);
    fixture_finish(&f);
}
END_TEST

START_TEST(a_tokenizer_must_fit_the_vocabulary) {
    struct fixture f;
    char dir[600];
    static const char row[] = "{\"text\":\"Hello world\"}";
    fixture_start(&f, PL_FORMAT_AUTO);
    snprintf(dir, sizeof dir, "%s/llama3_style", tokenizers);
    f.job.tokenizer = dir;
    fixture_write(&f, row, strlen(row));
    f.model.vocab = 2013;
    ck_assert_int_eq(fixture_open(&f), PL_ERR_TOKENIZER_FILE);
    ck_assert_ptr_nonnull(strstr(f.d.message, "ids up to 2013, the model a vocabulary of 2013"));
    f.model.vocab = 2014;
    ck_assert_int_eq(fixture_open(&f), PL_ERR_OK);
    fixture_finish(&f);
}
END_TEST

START_TEST(an_unknown_template_lists_the_known_ones) {
    struct fixture f;
    char dir[600];
    static const char row[] = "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\"}]}";
    fixture_start(&f, PL_FORMAT_AUTO);
    snprintf(dir, sizeof dir, "%s/gpt2_style", tokenizers);
    f.job.tokenizer = dir;
    f.job.chat_template.choice = PL_CHAT_TEMPLATE_AUTO;
    f.model.vocab = 1 << 20;
    fixture_write(&f, row, strlen(row));
    ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_TEMPLATE);
    ck_assert_ptr_nonnull(strstr(f.d.message, "the tokenizer brings none"));
    ck_assert_ptr_nonnull(strstr(pl_diag_hint_text(&f.d), "chatml, llama2"));
    f.job.chat_template.choice = template_id("chatml");
    ck_assert_int_eq(fixture_open(&f), PL_ERR_OK);
    ck_assert_ptr_nonnull(strstr(pl_text_str(&f.notes), "`<|im_end|>` is no token"));
    fixture_finish(&f);
}
END_TEST

/* The tokenizer next to config.json is used if the job names none. */
START_TEST(the_model_s_own_tokenizer_is_the_default) {
    struct fixture f;
    char dir[SCRATCH_PATH];
    static const char row[] = "{\"text\":\"Hello world\"}";
    scratch_make(dir);
    fixture_start(&f, PL_FORMAT_AUTO);
    f.job.tokenizer = NULL;
    f.job.model = strdup(in_dir(dir, "model"));
    scratch_copy(in_dir(tokenizers, "gpt2_style"), f.job.model);
    file_write(in_dir(f.job.model, "config.json"), "{}");
    f.model.vocab = 1 << 20;
    fixture_write(&f, row, strlen(row));
    pl_err err = fixture_open(&f);
    ck_assert_msg(err == PL_ERR_OK, "%s", f.d.message);
    ck_assert_int_eq(unlink(in_dir(f.job.model, "tokenizer.json")), 0);
    ck_assert_int_eq(fixture_open(&f), PL_ERR_TOKENIZER_FILE);
    fixture_finish(&f);
    free(f.job.model);
    scratch_remove(dir);
}
END_TEST

static void facts_of(const char *tokenizer, uint32_t train_on, const char *template,
                     const char *date, uint32_t format, struct pl_text *out) {
    struct fixture f;
    struct pl_row_parser p = {.detected = false};
    char dir[600];
    fixture_start(&f, format);
    snprintf(dir, sizeof dir, "%s/%s", tokenizers, tokenizer);
    f.job.tokenizer = dir;
    f.job.train_on = train_on;
    f.job.chat_template.choice = template_id(template);
    f.job.chat_date = (char *)(uintptr_t)date;
    f.model.vocab = 1 << 20;
    ck_assert_int_eq(pl_row_parser_prepare(&p, pl_format_find(format, PL_STAGE_SFT), &f.job,
                                           &f.model, NULL, &f.d),
                     PL_ERR_OK);
    out->len = 0;
    pl_row_parser_add_facts(&p, pl_format_find(format, PL_STAGE_SFT), out);
    ck_assert(pl_row_parser_is_costly(&p, pl_format_find(format, PL_STAGE_SFT)));
    pl_row_parser_finish(&p);
}

START_TEST(whatever_changes_a_sample_changes_the_facts) {
    struct pl_text base = {0}, other = {0};
    const char *t = "llama3_style", *day = "2025-01-02";
    facts_of(t, PL_TRAIN_ON_ALL, "llama32", day, PL_FORMAT_MESSAGES, &base);
    facts_of(t, PL_TRAIN_ON_ALL, "llama32", day, PL_FORMAT_MESSAGES, &other);
    ck_assert_str_eq(pl_text_str(&base), pl_text_str(&other));
    facts_of("qwen2_style", PL_TRAIN_ON_ALL, "llama32", day, PL_FORMAT_MESSAGES, &other);
    ck_assert_str_ne(pl_text_str(&base), pl_text_str(&other));
    facts_of(t, PL_TRAIN_ON_LAST, "llama32", day, PL_FORMAT_MESSAGES, &other);
    ck_assert_str_ne(pl_text_str(&base), pl_text_str(&other));
    facts_of(t, PL_TRAIN_ON_ALL, "llama31", day, PL_FORMAT_MESSAGES, &other);
    ck_assert_str_ne(pl_text_str(&base), pl_text_str(&other));
    facts_of(t, PL_TRAIN_ON_ALL, "llama32", "2025-01-03", PL_FORMAT_MESSAGES, &other);
    ck_assert_str_ne(pl_text_str(&base), pl_text_str(&other));
    facts_of(t, PL_TRAIN_ON_ALL, "llama32", day, PL_FORMAT_TEXT, &other);
    ck_assert_str_ne(pl_text_str(&base), pl_text_str(&other));
    pl_text_finish(&base);
    pl_text_finish(&other);
}
END_TEST

/* The files count by what is in them, each of them. */
START_TEST(a_changed_tokenizer_changes_the_facts) {
    static const char *const changed[] = {"tokenizer.json", "tokenizer_config.json"};
    char dir[SCRATCH_PATH], held[sizeof tokenizers];
    struct pl_text base = {0}, other = {0};
    scratch_make(dir);
    scratch_copy(in_dir(tokenizers, "gpt2_style"), in_dir(dir, "model"));
    memcpy(held, tokenizers, sizeof held);
    snprintf(tokenizers, sizeof tokenizers, "%s", dir);
    facts_of("model", PL_TRAIN_ON_ALL, "chatml", NULL, PL_FORMAT_TEXT, &base);
    for (size_t i = 0; i < 2; i++) {
        FILE *f = fopen(in_dir(in_dir(dir, "model"), changed[i]), "a");
        ck_assert_ptr_nonnull(f);
        ck_assert_int_ge(fputs(" ", f), 0);
        ck_assert_int_eq(fclose(f), 0);
        facts_of("model", PL_TRAIN_ON_ALL, "chatml", NULL, PL_FORMAT_TEXT, &other);
        ck_assert_str_ne(pl_text_str(&base), pl_text_str(&other));
        base.len = 0;
        pl_text_add(&base, pl_text_str(&other));
    }
    memcpy(tokenizers, held, sizeof held);
    pl_text_finish(&base);
    pl_text_finish(&other);
    scratch_remove(dir);
}
END_TEST

/* X1 of prompt_text.h: an answer of bytes that ends within a character. */
START_TEST(only_whole_characters_are_written) {
    static const unsigned char answer[] = "a\xC3\xA9\xE2\x82\xAC\xF0";
    static const char *const shown[] = {"a",
                                        "a",
                                        "a\xC3\xA9",
                                        "a\xC3\xA9",
                                        "a\xC3\xA9",
                                        "a\xC3\xA9\xE2\x82\xAC",
                                        "a\xC3\xA9\xE2\x82\xAC"};
    struct pl_prompt_text t;
    struct pl_diag d = {0};
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    ck_assert_ptr_nonnull(out);
    ck_assert_int_eq(pl_prompt_text_open(&t, "byte", &d), PL_ERR_OK);
    pl_prompt_text_begin(&t);
    for (size_t i = 0; answer[i]; i++) {
        pl_prompt_text_put(&t, answer[i], out);
        ck_assert_int_eq(fflush(out), 0);
        ck_assert_str_eq(text, shown[i]);
    }
    pl_prompt_text_flush(&t, out);
    ck_assert_str_eq(text, "a\xC3\xA9\xE2\x82\xAC\xEF\xBF\xBD");
    pl_prompt_text_close(&t);
    fclose(out);
    free(text);
}
END_TEST

#define ROWS(a) ((int)(sizeof(a) / sizeof *(a)))

int main(int argc, char **argv) {
    const char *from = getenv("PLIMSOLL_TOKENIZERS_DIR");
    external = argc > 1 && strcmp(argv[1], "external") == 0;
    if (external && !from) {
        printf("skipped: needs PLIMSOLL_TOKENIZERS_DIR, a directory of recorded tokenizers\n");
        return 77;
    }
    if (external) {
        snprintf(tokenizers, sizeof tokenizers, "%s", from);
        snprintf(chats, sizeof chats, "%.390s/chat", from);
    }
    Suite *suite = suite_create("encode");
    TCase *t = tcase_create("encode");
    tcase_add_loop_test(t, a_conversation_has_the_ids_of_its_model_and_trains_its_answers, 0,
                        ROWS(pairs));
    tcase_add_loop_test(t, a_text_begins_as_the_tokenizer_says_and_ends_once, 0, ROWS(ends));
    tcase_add_test(t, an_empty_text_is_no_sample);
    tcase_add_test(t, a_prompt_is_masked_up_to_the_token_that_begins_behind_it);
    tcase_add_test(t, a_tokenizer_must_fit_the_vocabulary);
    tcase_add_test(t, an_unknown_template_lists_the_known_ones);
    tcase_add_test(t, the_model_s_own_tokenizer_is_the_default);
    tcase_add_test(t, whatever_changes_a_sample_changes_the_facts);
    tcase_add_test(t, a_changed_tokenizer_changes_the_facts);
    tcase_add_test(t, only_whole_characters_are_written);
    suite_add_tcase(suite, t);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
