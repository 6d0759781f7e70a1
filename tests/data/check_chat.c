/* check_chat.c - rendered conversations, byte for byte those of the models' own Jinja programs.
 *
 * With the argument `external` the rows come from $PLIMSOLL_TOKENIZERS_DIR/chat, all of them. */
#include "runtime/data/chat/chat.h"
#include "runtime/data/chat/own.h"
#include "runtime/data/chat/render.h"
#include "runtime/data/chat/row_program.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MESSAGES_MAX 16
#define REFUSED      6 /* rows of llama2 and mistral that their programs refuse, of 30 */

static char dir[512] = DATA "/chat";
static bool external;

static const struct pl_chat_options fixed_day = {.date = {2025, 1, 2}};

static size_t messages_of(const json_t *row, struct pl_chat_message m[MESSAGES_MAX]) {
    const json_t *list = json_object_get(row, "messages");
    size_t n = json_array_size(list);
    ck_assert_uint_le(n, MESSAGES_MAX);
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(list, i), *text = json_object_get(item, "content");
        const char *role = json_string_value(json_object_get(item, "role"));
        m[i].content = json_string_value(text);
        m[i].n = json_string_length(text);
        m[i].role = PL_CHAT_ROLES;
        for (enum pl_chat_role k = 0; k < PL_CHAT_ROLES; k++)
            if (strcmp(role, pl_chat_role_name(k)) == 0) m[i].role = k;
        ck_assert_int_ne(m[i].role, PL_CHAT_ROLES);
    }
    return n;
}

/* Spans lie in the text, no two over one another. */
static void check_spans(const struct pl_chat_text *out, const char *where) {
    for (size_t i = 0; i < out->n_spans; i++) {
        const struct pl_chat_span *a = &out->spans[i];
        ck_assert_msg(a->begin <= a->end && a->end <= out->text.len, "%s: span %zu", where, i);
        for (size_t k = 0; k < i; k++) {
            const struct pl_chat_span *b = &out->spans[k];
            ck_assert_msg(b->end <= a->begin || a->end <= b->begin, "%s: spans %zu, %zu", where, k,
                          i);
        }
    }
}

/* H1 of chat.h */
static void check_row(const char *name, const json_t *row, struct pl_chat_text *out) {
    struct pl_chat_message m[MESSAGES_MAX];
    struct pl_chat_options o = fixed_day;
    struct pl_diag d = {0};
    char where[128];
    const struct pl_chat_template *t = pl_chat_find(name);
    const json_t *want = json_object_get(row, "rendered");
    ck_assert_msg(t != NULL, "%s is not known", name);
    o.generate = json_is_true(json_object_get(row, "add_generation_prompt"));
    snprintf(where, sizeof where, "%s, conversation %d%s", name,
             (int)json_integer_value(json_object_get(row, "conversation")),
             o.generate ? ", to be continued" : "");
    pl_err err = pl_chat_render(t, &o, m, messages_of(row, m), out, &d);
    if (json_is_null(want)) {
        ck_assert_msg(err == PL_ERR_DATA_TEMPLATE, "%s was rendered", where);
        ck_assert_msg(strstr(d.message, name) && strstr(d.message, "must alternate"), "%s",
                      d.message);
        return;
    }
    ck_assert_msg(err == PL_ERR_OK, "%s: %s", where, d.message);
    ck_assert_msg(out->text.len == json_string_length(want) &&
                      memcmp(pl_text_str(&out->text), json_string_value(want), out->text.len) == 0,
                  "%s\n  want %s\n  got  %s", where, json_string_value(want),
                  pl_text_str(&out->text));
    check_spans(out, where);
}

static pl_err render_by_program(const char *program, const json_t *row, struct pl_text *out,
                                struct pl_diag *d) {
    struct pl_chat_program p = {0};
    struct pl_jinja_memory memory = {0};
    struct pl_chat_message m[MESSAGES_MAX];
    const size_t n = messages_of(row, m);
    pl_err err;
    PL_TRY_GOTO(pl_chat_program_add(&p, NULL, program, strlen(program), "program", d), out);
    pl_jinja_begin(&memory);
    struct pl_jinja_list *list = pl_jinja_list_new(&memory.arena, n);
    ck_assert_ptr_nonnull(list);
    for (size_t i = 0; i < n; i++) {
        struct pl_jinja_value message, content = pl_jinja_literal(m[i].content);
        ck_assert_int_eq(
            pl_chat_make_message(&memory, pl_chat_role_name(m[i].role), &content, &message, d),
            PL_ERR_OK);
        ck_assert(pl_jinja_list_add(&memory.arena, list, &message));
    }
    const struct pl_chat_request request = {
        .messages = pl_jinja_list(list, PL_JINJA_PLAIN),
        .bos = json_string_value(json_object_get(row, "bos_token")),
        .eos = json_string_value(json_object_get(row, "eos_token")),
        .date = fixed_day.date,
        .generate = json_is_true(json_object_get(row, "add_generation_prompt"))};
    err = pl_chat_program_render(&p, &memory, &request, out, NULL, d);
out:
    pl_chat_program_finish(&p);
    pl_jinja_memory_finish(&memory);
    return err;
}

/* W1 of row_program.h. The program that goes with a saved model: its text for the row of a recorded
 * conversation. */
static void check_program(const char *name, const json_t *row, struct pl_chat_text *out) {
    struct pl_text program = {0};
    struct pl_diag d = {0};
    const json_t *want = json_object_get(row, "rendered");
    pl_chat_write_program(pl_chat_find(name), &program);
    ck_assert(!program.failed);
    pl_err err = render_by_program(pl_text_str(&program), row, &out->text, &d);
    ck_assert_msg(err == (json_is_null(want) ? PL_ERR_DATA_TEMPLATE : PL_ERR_OK),
                  "%s, conversation %d: %s\n%s", name,
                  (int)json_integer_value(json_object_get(row, "conversation")), d.message,
                  pl_text_str(&program));
    if (err == PL_ERR_OK)
        ck_assert_msg(out->text.len == json_string_length(want) &&
                          memcmp(out->text.data, json_string_value(want), out->text.len) == 0,
                      "%s\n  want %s\n  got  %s\n%s", name, json_string_value(want),
                      pl_text_str(&out->text), pl_text_str(&program));
    pl_text_finish(&program);
}

START_TEST(a_conversation_is_rendered_as_its_model_renders_it) {
    const char *name = pl_chat_name(&pl_chat_table[_i]);
    struct pl_chat_text out = {0};
    char path[600], *line = NULL;
    size_t cap = 0, rows = 0, refused = 0;
    snprintf(path, sizeof path, "%s/%s.jsonl", dir, name);
    FILE *f = fopen(path, "r");
    ck_assert_msg(f != NULL, "%s is missing", path);
    for (ssize_t n; (n = getline(&line, &cap, f)) >= 0; rows++) {
        json_t *row = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, NULL);
        ck_assert_ptr_nonnull(row);
        check_row(name, row, &out);
        check_program(name, row, &out);
        refused += json_is_null(json_object_get(row, "rendered"));
        json_decref(row);
    }
    free(line);
    fclose(f);
    ck_assert_uint_eq(rows, external ? 30 : 18);
    bool strict = strncmp(name, "llama2", 6) == 0 || strcmp(name, "mistral") == 0 ||
                  strcmp(name, "mistral_sysfirst") == 0;
    ck_assert_uint_eq(refused, strict ? (external ? REFUSED : REFUSED / 2) : 0);
    pl_chat_text_finish(&out);
}
END_TEST

/* --- spans ------------------------------------------------------------------------------------ */
static const struct pl_chat_message talk[] = {
    {PL_CHAT_SYSTEM, "be kind", 7}, {PL_CHAT_USER, "one", 3},       {PL_CHAT_ASSISTANT, "two", 3},
    {PL_CHAT_USER, "three", 5},     {PL_CHAT_ASSISTANT, "four", 4},
};

static const struct {
    const char *name, *first, *last; /* begin and end of the two answers of `talk` */
} answers[] = {
    {"chatml", "two<|im_end|>", "four<|im_end|>"},
    {"llama2", " two </s>", " four </s>"},
    {"llama3", "two<|eot_id|>", "four<|eot_id|>"},
    {"llama31", "two<|eot_id|>", "four<|eot_id|>"},
    {"llama32", "two<|eot_id|>", "four<|eot_id|>"},
    {"mistral", " two</s>", " four</s>"},
    {"mistral_sysfirst", " two</s>", " four</s>"},
    {"mistral_small3", "two</s>", "four</s>"},
    {"qwen25", "two<|im_end|>", "four<|im_end|>"},
    {"qwen25_base", "two<|im_end|>", "four<|im_end|>"},
    {"qwen3", "two<|im_end|>", "<think>\n\n</think>\n\nfour<|im_end|>"},
    {"qwen3_nothink", "two<|im_end|>", "four<|im_end|>"},
    {"phi4_mini", "two<|end|>", "four<|end|>"},
    {"smollm2", "two<|im_end|>", "four<|im_end|>"},
    {"smollm3", "two<|im_end|>", "four<|im_end|>"},
    {"smollm3_nothink", "two<|im_end|>", "four<|im_end|>"},
    {"zephyr", "two</s>", "four</s>"},
    {"alpaca", "two</s>", "four</s>"},
};

static void assert_span(const struct pl_chat_text *out, size_t i, const char *name,
                        const char *want) {
    const struct pl_chat_span *s = &out->spans[i];
    ck_assert_msg(s->end - s->begin == strlen(want) &&
                      memcmp(out->text.data + s->begin, want, strlen(want)) == 0,
                  "%s: message %zu is `%.*s`, not `%s`", name, i, (int)(s->end - s->begin),
                  out->text.data + s->begin, want);
}

/* H2 of chat.h */
START_TEST(a_span_is_an_answer_and_its_end_without_header_and_line_feed) {
    const struct pl_chat_template *t = pl_chat_find(answers[_i].name);
    struct pl_chat_text out = {0};
    struct pl_diag d = {0};
    ck_assert_int_eq(pl_chat_render(t, &fixed_day, talk, 5, &out, &d), PL_ERR_OK);
    ck_assert_uint_eq(out.n_spans, 5);
    assert_span(&out, 2, answers[_i].name, answers[_i].first);
    assert_span(&out, 4, answers[_i].name, answers[_i].last);
    pl_chat_text_finish(&out);
}
END_TEST

/* H2 of chat.h. Generation continues so: the text with an answer is the prompt for it and its span.
 */
START_TEST(a_span_continues_the_header_of_an_answer) {
    const struct pl_chat_template *t = &pl_chat_table[_i];
    struct pl_chat_options asked = fixed_day;
    struct pl_chat_text prompt = {0}, whole = {0};
    struct pl_diag d = {0};
    asked.generate = true;
    /* a question alone: `mistral` puts a system text elsewhere once the answer is there */
    ck_assert_int_eq(pl_chat_render(t, &asked, talk + 1, 1, &prompt, &d), PL_ERR_OK);
    ck_assert_int_eq(pl_chat_render(t, &fixed_day, talk + 1, 2, &whole, &d), PL_ERR_OK);
    ck_assert_uint_eq(whole.spans[1].begin, prompt.text.len);
    ck_assert_mem_eq(whole.text.data, prompt.text.data, prompt.text.len);
    pl_chat_text_finish(&prompt);
    pl_chat_text_finish(&whole);
}
END_TEST

START_TEST(reasoning_that_was_written_is_part_of_the_answer) {
    static const char said[] = "<think>\nhm\n</think>\n\nyes";
    const struct pl_chat_message m[] = {{PL_CHAT_USER, "q", 1},
                                        {PL_CHAT_ASSISTANT, said, sizeof said - 1}};
    static const char *const names[] = {"qwen3", "qwen3_nothink"};
    struct pl_chat_text out = {0};
    struct pl_diag d = {0};
    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_eq(pl_chat_render(pl_chat_find(names[i]), &fixed_day, m, 2, &out, &d),
                         PL_ERR_OK);
        assert_span(&out, 1, names[i], "<think>\nhm\n</think>\n\nyes<|im_end|>");
    }
    pl_chat_text_finish(&out);
}
END_TEST

/* Letters are messages: s a system text, u a question, a an answer. */
static const struct {
    const char *name, *order;
    size_t lost;
} losses[] = {
    {"mistral", "sua", 0},        /* the text belongs before the last message, an answer here */
    {"mistral_sysfirst", "s", 0}, /* no question to put it into */
    {"llama2", "s", 0},
    {"llama2", "usu", 1}, /* only questions have a place to be wrong at */
    {"smollm3", "uasu", 2},
    {"alpaca", "uasu", 2},
};

/* H3 of chat.h */
START_TEST(a_message_that_a_template_drops_is_marked) {
    struct pl_chat_message m[4];
    struct pl_chat_text out = {0};
    struct pl_diag d = {0};
    size_t n = strlen(losses[_i].order);
    for (size_t i = 0; i < n; i++)
        m[i] = talk[strcspn("sua", (char[]){losses[_i].order[i], 0})];
    ck_assert_int_eq(pl_chat_render(pl_chat_find(losses[_i].name), &fixed_day, m, n, &out, &d),
                     PL_ERR_OK);
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(out.spans[i].lost == (i == losses[_i].lost), "%s: message %zu",
                      losses[_i].name, i);
    pl_chat_text_finish(&out);
}
END_TEST

/* --- options ---------------------------------------------------------------------------------- */
START_TEST(marks_are_spelled_as_the_tokenizer_does) {
    struct pl_chat_options o = {.bos = "<b>", .eos = "<e>"};
    struct pl_chat_text out = {0};
    struct pl_diag d = {0};
    ck_assert_int_eq(pl_chat_render(pl_chat_find("mistral_sysfirst"), &o, talk, 3, &out, &d),
                     PL_ERR_OK);
    ck_assert_str_eq(pl_text_str(&out.text), "<b>[INST] be kind\n\none[/INST] two<e>");
    pl_chat_text_finish(&out);
}
END_TEST

START_TEST(a_text_shows_today_unless_told_another_day) {
    struct pl_chat_options today = {.generate = false};
    struct pl_chat_text a = {0}, b = {0};
    struct pl_diag d = {0};
    const struct pl_chat_template *t = pl_chat_find("mistral_small3");
    ck_assert(pl_chat_shows_date(t) && !pl_chat_shows_date(pl_chat_find("llama31")));
    ck_assert_int_eq(pl_chat_render(t, &today, talk + 1, 1, &a, &d), PL_ERR_OK);
    today.date = pl_chat_today();
    ck_assert_int_eq(pl_chat_render(t, &today, talk + 1, 1, &b, &d), PL_ERR_OK);
    ck_assert_str_eq(pl_text_str(&a.text), pl_text_str(&b.text));
    ck_assert_int_eq(pl_chat_render(t, &fixed_day, talk + 1, 1, &b, &d), PL_ERR_OK);
    ck_assert_ptr_nonnull(strstr(pl_text_str(&b.text), "The current date is 2025-01-02."));
    ck_assert_str_ne(pl_text_str(&a.text), pl_text_str(&b.text));
    pl_chat_text_finish(&a);
    pl_chat_text_finish(&b);
}
END_TEST

static const struct {
    const char *text;
    bool good;
} dates[] = {
    {"2025-01-02", true},  {"2024-02-29", true},   {"2000-02-29", true},  {"1900-02-29", false},
    {"2023-02-29", false}, {"2025-13-01", false},  {"2025-00-01", false}, {"2025-04-31", false},
    {"2025-4-30", false},  {"2025-04-30 ", false}, {"2025-04", false},    {"", false},
    {"today", false},      {"0000-01-01", false},
};

START_TEST(only_a_day_of_the_calendar_is_a_date) {
    struct pl_chat_date date;
    ck_assert_msg(pl_chat_date_parse(dates[_i].text, &date) == dates[_i].good, "%s",
                  dates[_i].text);
}
END_TEST

START_TEST(strip_is_that_of_python) {
    static const char said[] = "\x1C\xE3\x80\x80\xC2\xA0 \xE2\x80\x8B x \xE2\x80\x8B\xC2\x85\n\x0B";
    struct pl_chat_piece p = pl_chat_strip((struct pl_chat_piece){said, sizeof said - 1});
    ck_assert_uint_eq(p.n, strlen("\xE2\x80\x8B x \xE2\x80\x8B")); /* U+200B is no white space */
    ck_assert_mem_eq(p.s, "\xE2\x80\x8B x \xE2\x80\x8B", p.n);
    ck_assert_uint_eq(pl_chat_strip((struct pl_chat_piece){" \n", 2}).n, 0);
}
END_TEST

/* --- templates and their programs ------------------------------------------------------------
 */
static pl_err render_program(const struct pl_chat_program *p, const struct pl_chat_template *t,
                             const json_t *row, struct pl_jinja_memory *m, struct pl_text *out,
                             struct pl_diag *d) {
    char *text = json_dumps(json_object_get(row, "messages"), 0);
    struct pl_scan scan = {.text = text, .n = strlen(text)};
    struct pl_chat_request r = {.bos = t->bos,
                                .eos = t->eos,
                                .date = fixed_day.date,
                                .generate =
                                    json_is_true(json_object_get(row, "add_generation_prompt"))};
    pl_jinja_begin(m);
    ck_assert_msg(pl_jinja_read_json(m, &scan, &r.messages), "%s", scan.what);
    pl_err err = pl_chat_program_render(p, m, &r, out, NULL, d);
    free(text);
    return err;
}

/* Every row of the table whose program is here: both give the text that Python gave. */
START_TEST(a_row_of_the_table_and_its_program_render_the_same) {
    struct pl_jinja_memory m = {.arena = {0}};
    struct pl_text out = {0};
    char path[600], *line = NULL;
    size_t cap = 0, programs = 0, rows = 0;
    for (size_t i = 0; i < pl_chat_table_rows; i++) {
        const struct pl_chat_template *t = &pl_chat_table[i];
        struct pl_chat_program p = {.plain = NULL};
        struct pl_diag d = {0};
        snprintf(path, sizeof path, "%s/%s%s.jinja", dir, external ? "templates/" : "", t->name);
        if (access(path, R_OK) != 0) continue;
        ck_assert_msg(pl_chat_program_read(&p, path, NULL, &d) == PL_ERR_OK, "%s", d.message);
        programs++;
        snprintf(path, sizeof path, "%s/%s.jsonl", dir, t->name);
        FILE *f = fopen(path, "r");
        ck_assert_ptr_nonnull(f);
        for (ssize_t n; (n = getline(&line, &cap, f)) >= 0; rows++) {
            json_t *row = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, NULL);
            const json_t *want = json_object_get(row, "rendered");
            d = (struct pl_diag){0};
            pl_err err = render_program(&p, t, row, &m, &out, &d);
            ck_assert_msg(json_is_null(want)
                              ? err == PL_ERR_DATA_TEMPLATE
                              : err == PL_ERR_OK && out.len == json_string_length(want) &&
                                    memcmp(out.data, json_string_value(want), out.len) == 0,
                          "%s: want %s, got %s %s", t->name, json_string_value(want),
                          pl_text_str(&out), d.message);
            json_decref(row);
        }
        fclose(f);
        pl_chat_program_finish(&p);
    }
    free(line);
    ck_assert_uint_eq(programs, external ? 16 : 5);
    ck_assert_uint_ge(rows, 18 * programs);
    pl_text_finish(&out);
    pl_jinja_memory_finish(&m);
}
END_TEST

START_TEST(names_are_listed_and_found) {
    struct pl_text names = {0};
    pl_chat_list_names(&names);
    ck_assert_ptr_eq(strstr(pl_text_str(&names), "chatml, llama2, llama3, "), names.data);
    ck_assert_ptr_null(pl_chat_find("chatm"));
    ck_assert_ptr_eq(pl_chat_without_reasoning(pl_chat_find("qwen3")),
                     pl_chat_find("qwen3_nothink"));
    ck_assert_ptr_null(pl_chat_without_reasoning(pl_chat_find("chatml")));
    pl_text_finish(&names);
}
END_TEST

START_TEST(a_conversation_has_messages) {
    struct pl_chat_text out = {0};
    struct pl_diag d = {0};
    ck_assert_int_eq(pl_chat_render(pl_chat_find("chatml"), &fixed_day, NULL, 0, &out, &d),
                     PL_ERR_DATA_TEMPLATE);
    pl_chat_text_finish(&out);
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
    if (external) snprintf(dir, sizeof dir, "%s/chat", from);
    Suite *suite = suite_create("chat");
    TCase *t = tcase_create("chat");
    tcase_add_loop_test(t, a_conversation_is_rendered_as_its_model_renders_it, 0,
                        (int)pl_chat_table_rows);
    tcase_add_loop_test(t, a_span_is_an_answer_and_its_end_without_header_and_line_feed, 0,
                        ROWS(answers));
    tcase_add_loop_test(t, a_span_continues_the_header_of_an_answer, 0, (int)pl_chat_table_rows);
    tcase_add_test(t, reasoning_that_was_written_is_part_of_the_answer);
    tcase_add_loop_test(t, a_message_that_a_template_drops_is_marked, 0, ROWS(losses));
    tcase_add_test(t, marks_are_spelled_as_the_tokenizer_does);
    tcase_add_test(t, a_text_shows_today_unless_told_another_day);
    tcase_add_loop_test(t, only_a_day_of_the_calendar_is_a_date, 0, ROWS(dates));
    tcase_add_test(t, strip_is_that_of_python);
    tcase_add_test(t, a_row_of_the_table_and_its_program_render_the_same);
    tcase_add_test(t, names_are_listed_and_found);
    tcase_add_test(t, a_conversation_has_messages);
    suite_add_tcase(suite, t);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
