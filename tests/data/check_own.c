/* check_own.c - rows rendered by a template of their own: what is trained on, what reaches the
 * program, and what is refused because the program leaves it out. */
#include "tests/data/fixture.h"
#include "tests/support/scratch.h"
#include "runtime/data/encode.h"
#include "runtime/data/tokenizer/tokenizer.h"

#include <sys/stat.h>

#define TURN   "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
#define EACH   "{% for m in messages %}"
#define END    "{% endfor %}"
#define PROMPT "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
#define PLAIN  EACH TURN END PROMPT
/* a mark of its own closes the conversation, as Phi-4-mini writes it */
#define CLOSED                                                                                     \
    EACH TURN END "{% if add_generation_prompt %}<|im_start|>assistant\n{% else %}{{ eos_token }}" \
                  "{% endif %}"
/* reasoning stands before the last answer alone, as Qwen3 writes it */
#define THINKS                                                                                     \
    EACH "<|im_start|>{{ m.role }}\n{% if loop.last and m.role == 'assistant' %}<think>\n"         \
         "{{ m.reasoning_content }}</think>\n{% endif %}{{ m.content }}<|im_end|>\n" END PROMPT
#define MARKED                                                                                     \
    EACH "{% if m.role == 'assistant' %}<|im_start|>assistant\n{% generation %}{{ m.content }}"    \
         "<|im_end|>\n{% endgeneration %}{% else %}" TURN "{% endif %}" END PROMPT
#define TOOLS                                                                                      \
    "{% if tools %}{{ tools | tojson }}\n{% endif %}" EACH                                         \
    "<|im_start|>{{ m.role }}\n{{ m.content or '' }}{% for c in m.tool_calls or [] %}"             \
    "{{ c.function.name }}({{ c.function.arguments | tojson }}){% endfor %}<|im_end|>\n" END       \
        PROMPT
/* the last answer begins with a place for reasoning, and so differs from its start */
#define CALLS                                                                                      \
    EACH "<|im_start|>{{ m.role }}\n{% if loop.last and m.role == 'assistant' %}<think>\n"         \
         "</think>{% endif %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}<tool_call>"    \
         "{{ c.function.name }}</tool_call>{% endfor %}<|im_end|>\n" END PROMPT
/* reasoning that stands in the content is left out */
#define BRIEF                                                                                      \
    EACH "<|im_start|>{{ m.role }}\n{{ m.content.split('</think>')[-1] }}<|im_end|>\n" END PROMPT
/* the same, except for the last answer */
#define BRIEFER                                                                                    \
    EACH "<|im_start|>{{ m.role }}\n{% if loop.last %}{{ m.content }}{% else %}"                   \
         "{{ m.content.split('</think>')[-1] }}{% endif %}<|im_end|>\n" END PROMPT
/* a turn is ended only where another one follows, as in Qwen1.5 */
#define OPEN                                                                                       \
    EACH                                                                                           \
        "<|im_start|>{{ m.role }}\n{{ m.content }}{% if not loop.last or add_generation_prompt %}" \
        "<|im_end|>\n{% endif %}" END PROMPT
/* by what follows */
#define ENDED_LATER                                                                                \
    EACH "{% if not loop.first %}<|im_end|>\n{% endif %}<|im_start|>{{ m.role }}\n{{ m.content "   \
         "}}" END "<|im_end|>\n" PROMPT
/* each turn but the last writes the header of the next */
#define HEADS_NEXT                                                                                 \
    "<|im_start|>one\n" EACH "{{ m.content }}{{ eos_token }}\n"                                    \
    "{% if not loop.last or add_generation_prompt %}<|im_start|>next\n{% endif %}" END
#define MARKED_AFTER_BLANK                                                                         \
    EACH "{% if m.role == 'assistant' %}A: {% generation %}{{ m.content }}<|im_end|>"              \
         "{% endgeneration %}{% else %}Q: {{ m.content }} {% endif %}" END
/* takes texts only, and prints whatever it is given */
#define ADDS EACH "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}" END PROMPT
#define ONE_PART                                                                                   \
    EACH "<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}"         \
         "{{ m.content[0].text }}{% endif %}<|im_end|>\n" END PROMPT
#define ALL_PARTS                                                                                  \
    EACH "<|im_start|>{{ m.role }}\n{% for p in m.content %}{% if p.type == 'text' %}"             \
         "{{ p.text }}|{% endif %}{% endfor %}<|im_end|>\n" END PROMPT

#define U(text)  "{\"role\":\"user\",\"content\":\"" text "\"}"
#define A(text)  "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define TALK     U("one") "," A("two") "," U("three") "," A("four")
#define ROW(all) "{\"messages\":[" all "]}"
#define CALL                                                                                       \
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"type\":\"function\","             \
    "\"function\":{\"name\":\"add\",\"arguments\":{\"x\":1}}}]}"
#define PARTS                                                                                      \
    "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"one\"},\" two\","          \
    "{\"type\":\"output_text\",\"text\":\" three\"}]}"
#define TOOL "{\"type\":\"function\",\"function\":{\"name\":\"add\"}}"

/* `trained`: the runs of trained text, each ended by `#`; or what is said of a refused row. */
static const struct {
    const char *template, *row;
    uint32_t train_on;
    const char *trained, *refused;
} rows[] = {
    {PLAIN, ROW(TALK), PL_TRAIN_ON_RESPONSES, "two<|im_end|>#four<|im_end|>#", NULL},
    {PLAIN, ROW(TALK), PL_TRAIN_ON_LAST, "four<|im_end|>#", NULL},
    {PLAIN, ROW(A("two") "," U("q")), PL_TRAIN_ON_RESPONSES, "two<|im_end|>#", NULL},
    {PLAIN, ROW(U("q") ",{\"role\":\"assistant\",\"content\":\"a\",\"train\":false}," A("b")),
     PL_TRAIN_ON_RESPONSES, "b<|im_end|>#", NULL},
    {PLAIN, ROW("{\"role\":\"user\",\"content\":\"q\",\"train\":true}," A("b")),
     PL_TRAIN_ON_RESPONSES, "q<|im_end|>#b<|im_end|>#", NULL},
    {CLOSED, ROW(TALK), PL_TRAIN_ON_RESPONSES, "two<|im_end|>#four<|im_end|>#", NULL},
    {THINKS, ROW(TALK), PL_TRAIN_ON_RESPONSES, "two<|im_end|>#<think>\n</think>\nfour<|im_end|>#",
     NULL},
    {MARKED, ROW(TALK), PL_TRAIN_ON_RESPONSES, "two<|im_end|>\n#four<|im_end|>\n#", NULL},
    {MARKED, ROW(TALK), PL_TRAIN_ON_LAST, "four<|im_end|>\n#", NULL},
    {TOOLS,
     "{\"messages\":[" U("q") "," CALL ",{\"role\":\"tool\",\"content\":\"2\"}],\"tools\":[" TOOL
                              "]}",
     PL_TRAIN_ON_RESPONSES, "add({\"x\": 1})<|im_end|>#", NULL},
    {CALLS, ROW(U("q") "," CALL ",{\"role\":\"tool\",\"content\":\"2\"}," A("two")),
     PL_TRAIN_ON_RESPONSES, "<tool_call>add</tool_call><|im_end|>#<think>\n</think>two<|im_end|>#",
     NULL},
    {BRIEFER, ROW(U("q") "," A("<think>hm</think>a") "," U("r") "," A("<think>so</think>b")),
     PL_TRAIN_ON_RESPONSES, "a<|im_end|>#<think>so</think>b<|im_end|>#", NULL},
    /* W2 of said.h */
    {BRIEF, ROW(U("q") "," A("<think>\\n</think>a")), PL_TRAIN_ON_RESPONSES, "a<|im_end|>#", NULL},
    {OPEN, ROW(TALK), PL_TRAIN_ON_RESPONSES, "two<|im_end|>#four#", NULL},
    {ENDED_LATER, ROW(TALK), PL_TRAIN_ON_RESPONSES, "two<|im_end|>#four<|im_end|>#", NULL},
    {HEADS_NEXT, ROW(TALK), PL_TRAIN_ON_RESPONSES, "two<|im_end|>#four<|im_end|>#", NULL},
    /* E1 of encode.h */
    {MARKED_AFTER_BLANK, ROW(U("q") "," A("be") "," U("q") "," A("to be")), PL_TRAIN_ON_RESPONSES,
     " be<|im_end|># to be<|im_end|>#", NULL},
    {PLAIN,
     ROW("{\"role\":\"user\",\"content\":\"q\",\"tool_calls\":null},{\"role\":\"system\","
         "\"content\":null},"
         "{\"role\":\"assistant\",\"content\":\"a\",\"name\":null}"),
     PL_TRAIN_ON_RESPONSES, "a<|im_end|>#", NULL},
    {EACH "<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}"
          "{{ c.function.name }}{% endfor %}<|im_end|>\n" END PROMPT,
     ROW(U("q") "," CALL), PL_TRAIN_ON_RESPONSES, "add<|im_end|>#", NULL},
    {PLAIN, ROW("{\"from\":\"human\",\"value\":\"q\"},{\"from\":\"gpt\",\"value\":\"b\"}"),
     PL_TRAIN_ON_RESPONSES, "b<|im_end|>#", NULL},
    {EACH "{% if m.role in ['user', 'assistant'] %}" TURN "{% endif %}" END PROMPT,
     ROW("{\"role\":\"human\",\"content\":\"q\"},{\"role\":\"gpt\",\"content\":\"b\"}"),
     PL_TRAIN_ON_RESPONSES, "b<|im_end|>#", NULL},
    {PLAIN, ROW(U("q") "," PARTS), PL_TRAIN_ON_RESPONSES, "one two three<|im_end|>#", NULL},
    {ADDS, ROW(U("q") "," PARTS), PL_TRAIN_ON_RESPONSES, "one two three<|im_end|>#", NULL},
    {ALL_PARTS, ROW("{\"role\":\"user\",\"content\":[\"q\"]}," PARTS), PL_TRAIN_ON_RESPONSES,
     "one| two| three|<|im_end|>#", NULL},
    {TOOLS,
     "{\"messages\":[" U("q") "," A("b") "],\"tools\":\"["
                                         "{\\\"name\\\":\\\"f\\\"}"
                                         "]\"}",
     PL_TRAIN_ON_RESPONSES, "b<|im_end|>#", NULL},
    {"{% if brief %}B{% endif %}" PLAIN,
     "{\"messages\":[" U("q") "," A("b") "],\"chat_template_kwargs\":{\"brief\":true}}",
     PL_TRAIN_ON_RESPONSES, "b<|im_end|>#", NULL},
    {PLAIN,
     "{\"conversations\":[{\"from\":\"human\",\"value\":\"q\"},{\"from\":\"gpt\",\"value\":\"b\"}]"
     "}",
     PL_TRAIN_ON_RESPONSES, "b<|im_end|>#", NULL},
    {PLAIN, "{\"prompt\":[" U("q") "," A("a") "," U("r") "],\"completion\":[" A("b") "]}",
     PL_TRAIN_ON_RESPONSES, "b<|im_end|>#", NULL},
    /* refused */
    {PLAIN, "{\"messages\":[" U("q") "," A("b") "],\"tools\":[" TOOL "]}", PL_TRAIN_ON_RESPONSES,
     NULL, "leaves out the tools"},
    {PLAIN, "{\"messages\":[" U("q") "," A("b") "],\"documents\":[{\"text\":\"d\"}]}",
     PL_TRAIN_ON_RESPONSES, NULL, "leaves out documents"},
    {PLAIN, "{\"messages\":[" U("q") "," A("b") "],\"chat_template_kwargs\":{\"brief\":true}}",
     PL_TRAIN_ON_RESPONSES, NULL, "does not know `brief`"},
    {PLAIN, ROW(U("q") ",{\"role\":\"assistant\",\"content\":\"b\",\"reasoning_content\":\"hm\"}"),
     PL_TRAIN_ON_RESPONSES, NULL, "leaves out reasoning_content"},
    {PLAIN, ROW(U("q") "," CALL), PL_TRAIN_ON_RESPONSES, NULL,
     "leaves out `tool_calls` of message 1"},
    {EACH "{% if m.role != 'system' %}" TURN "{% endif %}" END PROMPT,
     ROW("{\"role\":\"system\",\"content\":\"kind\"}," TALK), PL_TRAIN_ON_RESPONSES, NULL,
     "leaves out message 0"},
    /* W1 of said.h and E3 of encode.h */
    {BRIEF, ROW(U("q") "," A("<think>hm</think>a")), PL_TRAIN_ON_RESPONSES, NULL,
     "leaves out a part of message 1 (assistant)"},
    {BRIEF, ROW(U("x</think>y") "," A("a")), PL_TRAIN_ON_RESPONSES, NULL,
     "leaves out a part of message 0 (user)"},
    {ONE_PART, ROW(U("q") "," PARTS), PL_TRAIN_ON_RESPONSES, NULL,
     "leaves out a part of message 1 (assistant)"},
    {PLAIN, ROW(U("q") ",{\"role\":\"assistant\",\"content\":null}"), PL_TRAIN_ON_RESPONSES, NULL,
     "message 1: `content` is null"},
    {PLAIN, ROW(U("q") ",{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[ ]}"),
     PL_TRAIN_ON_RESPONSES, NULL, "message 1: `content` is null"},
    {PLAIN, ROW(U("q") ",{\"role\":\"assistant\",\"tool_calls\":null}"), PL_TRAIN_ON_RESPONSES,
     NULL, "message 1 has no `content`"},
    {TOOLS, ROW(U("q") ",{\"from\":\"gpt\",\"value\":\"b\",\"tool_calls\":[" TOOL "]}"),
     PL_TRAIN_ON_RESPONSES, NULL, "message 1: `from` and `value` with keys"},
    {PLAIN, ROW("{\"from\":\"Human\",\"value\":\"q\"}," A("b")), PL_TRAIN_ON_RESPONSES, NULL,
     "message 0: unknown role `Human`"},
    {EACH "{{ loop.length }}" TURN END PROMPT, ROW(TALK), PL_TRAIN_ON_RESPONSES, NULL,
     "message 1 (assistant) cannot be found"},
    {EACH "{% if m.role == 'assistant' %}{% generation %}a{% endgeneration %}"
          "{% generation %}{{ m.content }}{% endgeneration %}{% else %}" TURN "{% endif %}" END,
     ROW(TALK), PL_TRAIN_ON_RESPONSES, NULL, "marks 4 answers, the conversation has 2"},
    {"{{ raise_exception('only one question') }}", ROW(TALK), PL_TRAIN_ON_RESPONSES, NULL,
     "only one question"},
    {PLAIN, ROW(U("q") ",{\"role\":\"assistant\",\"content\":\"b\",\"n\":99999999999999999999}"),
     PL_TRAIN_ON_RESPONSES, NULL, "does not fit 64 bits"},
    {PLAIN, ROW("{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}," A("b")),
     PL_TRAIN_ON_RESPONSES, NULL, "is not text"},
};

static char dir[SCRATCH_PATH];

static void start(struct fixture *f, const char *template) {
    static char path[SCRATCH_PATH + 32];
    fixture_start(f, PL_FORMAT_AUTO);
    snprintf(path, sizeof path, "%s", in_dir(dir, "own.jinja"));
    file_write(path, template);
    f->job.tokenizer = (char *)(uintptr_t)(DATA "/tokenizer/smollm2_style");
    f->job.chat_template = (struct pl_template_choice){PL_CHAT_TEMPLATE_FILE, path};
    f->model.vocab = 1 << 20;
}

static void add_runs(const struct pl_sample *s, const struct pl_tokenizer *t, struct pl_text *out) {
    struct pl_diag d = {0};
    for (uint64_t i = 0; i < s->n; i++) {
        if (s->labels[i] == PL_LABEL_MASKED) continue;
        ck_assert_int_eq(pl_tokenizer_decode(t, &s->ids[i], 1, false, out, &d), PL_ERR_OK);
        if (i + 1 == s->n || s->labels[i + 1] == PL_LABEL_MASKED) pl_text_add(out, "#");
    }
}

/* V3 of conversation.h and P1 of own.h */
START_TEST(a_row_is_trained_on_where_its_template_writes_answers) {
    struct fixture f;
    struct pl_sample s = {0};
    struct pl_text runs = {0};
    scratch_make(dir);
    start(&f, rows[_i].template);
    f.job.train_on = rows[_i].train_on;
    fixture_write(&f, rows[_i].row, strlen(rows[_i].row));
    pl_err err = fixture_open(&f);
    if (rows[_i].refused) {
        ck_assert_int_ne(err, PL_ERR_OK);
        ck_assert_msg(strstr(f.d.message, rows[_i].refused) != NULL, "%s", f.d.message);
    } else {
        ck_assert_msg(err == PL_ERR_OK, "%s", f.d.message);
        ck_assert_int_eq(pl_data_sample(f.data, 0, &s, &f.d), PL_ERR_OK);
        add_runs(&s, pl_data_tokenizer(f.data), &runs);
        ck_assert_str_eq(pl_text_str(&runs), rows[_i].trained);
    }
    pl_text_finish(&runs);
    pl_sample_finish(&s);
    fixture_finish(&f);
    scratch_remove(dir);
}
END_TEST

/* G2 of parse.h */
START_TEST(a_template_that_is_no_program_is_refused_by_line_and_column) {
    struct fixture f;
    scratch_make(dir);
    start(&f, "ok\n{% include 'x' %}");
    fixture_write(&f, ROW(TALK), strlen(ROW(TALK)));
    ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_TEMPLATE);
    ck_assert_msg(strstr(f.d.message, "`include` is not supported") != NULL, "%s", f.d.message);
    ck_assert_uint_eq(f.d.line, 2);
    ck_assert_uint_eq(f.d.column, 4);
    fixture_finish(&f);
    scratch_remove(dir);
}
END_TEST

/* The work of a row with so many questions and answers by a program; 0 = it is refused. */
static uint64_t work_of(const char *template, const char *answer, int n) {
    struct pl_conversation c = {.whole = true};
    struct pl_chat_own o = {.budget = 0};
    struct pl_chat_text out = {0};
    struct pl_text row = {0};
    struct pl_diag d = {0};
    bool *wanted = calloc(2 * (size_t)n, sizeof *wanted), loose;
    ck_assert_ptr_nonnull(wanted);
    pl_text_add(&row, "[");
    for (int i = 0; i < n; i++) {
        pl_text_addf(&row, "%s" U("q%d") ",", i ? "," : "", i);
        pl_text_add(&row, answer);
        wanted[2 * i + 1] = true;
    }
    pl_text_add(&row, "]");
    struct pl_scan s = {.text = pl_text_str(&row), .n = row.len};
    ck_assert_int_eq(pl_chat_program_add(&o.program, NULL, template, strlen(template), "t", &d), 0);
    pl_conversation_start(&c);
    ck_assert_msg(pl_conversation_read(&c, &s, PL_SPELLING_OPENAI), "%s", s.what);
    ck_assert_msg(pl_chat_own_take(&o, &c, &d) == PL_ERR_OK, "%s", d.message);
    const pl_err err = pl_chat_own_render(&o, &c, wanted, &out, &loose, &d);
    if (err != PL_ERR_OK) ck_assert_msg(strstr(d.message, "too many messages"), "%s", d.message);
    const uint64_t work = err == PL_ERR_OK ? o.spent : 0;
    ck_assert_uint_le(o.spent, 2 * o.budget);
    free(wanted);
    pl_text_finish(&row);
    pl_chat_text_finish(&out);
    pl_chat_own_finish(&o);
    pl_conversation_finish(&c);
    return work;
}

/* A row of many answers costs as much as several of fewer. */
START_TEST(work_grows_with_the_answers_of_a_row) {
    static const char *const templates[] = {PLAIN, CLOSED, BRIEFER, CALLS, TOOLS};
    static const char *const answers[] = {A("two"), A("<think>hm</think>a"), A("a\\n\\n\\\"b"),
                                          CALL};
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        if (strcmp(answers[i], CALL) == 0 && _i < 3) continue; /* these do not write calls */
        const uint64_t few = work_of(templates[_i], answers[i], 512);
        const uint64_t many = work_of(templates[_i], answers[i], 2048);
        ck_assert_uint_gt(few, 0);
        ck_assert_msg(many && many <= 5 * few, "%zu: %llu and %llu", i, (unsigned long long)few,
                      (unsigned long long)many);
    }
}
END_TEST

/* R1 of own_row.h. One that does not loop over messages shows no turns: each is found alone, or the
 * row refused. */
START_TEST(a_program_without_turns_has_a_limit) {
    static const char odd[] =
        "{% for i in range(messages | length) %}<|im_start|>"
        "{{ messages[i].role }}\n{{ messages[i].content }}<|im_end|>\n" END PROMPT;
    ck_assert_uint_gt(work_of(odd, A("two"), 64), 0);
    ck_assert_uint_eq(work_of(odd, A("two"), 8000), 0);
}
END_TEST

/* P2 of own.h. chat_template.jinja and chat_templates/ win over tokenizer_config.json; rows with
 * tools are rendered by `tool_use`. */
START_TEST(named_templates_are_chosen_as_transformers_chooses) {
    static const char data[] =
        ROW(U("q") "," A("b")) "\n{\"messages\":[" U("q") "," A("b") "],\"tools\":[" TOOL "]}\n";
    struct fixture f;
    struct pl_text text = {0};
    scratch_make(dir);
    scratch_copy(DATA "/tokenizer/smollm2_style", in_dir(dir, "t"));
    file_write(in_dir(dir, "t/chat_template.jinja"), "plain " PLAIN);
    ck_assert_int_eq(mkdir(in_dir(dir, "t/chat_templates"), 0777), 0);
    file_write(in_dir(dir, "t/chat_templates/tool_use.jinja"), "tools " TOOLS);
    file_write(in_dir(dir, "t/chat_templates/rag.jinja"), "{% unknown %}");
    fixture_start(&f, PL_FORMAT_AUTO);
    f.job.tokenizer = strdup(in_dir(dir, "t"));
    f.job.chat_template.choice = PL_CHAT_TEMPLATE_AUTO;
    f.model.vocab = 1 << 20;
    fixture_write(&f, data, strlen(data));
    ck_assert_msg(fixture_open(&f) == PL_ERR_OK, "%s", f.d.message);
    for (uint64_t i = 0; i < 2; i++) {
        struct pl_sample s = {0};
        ck_assert_int_eq(pl_data_sample(f.data, i, &s, &f.d), PL_ERR_OK);
        text.len = 0;
        ck_assert_int_eq(
            pl_tokenizer_decode(pl_data_tokenizer(f.data), s.ids, s.n, false, &text, &f.d),
            PL_ERR_OK);
        ck_assert_msg(strncmp(pl_text_str(&text), i ? "tools [" : "plain <", 7) == 0, "%s",
                      pl_text_str(&text));
        pl_sample_finish(&s);
    }
    pl_text_finish(&text);
    free(f.job.tokenizer);
    fixture_finish(&f);
    scratch_remove(dir);
}
END_TEST

/* A C string would end there, and the rest of the program be left out in silence. */
START_TEST(a_template_with_a_zero_byte_is_refused) {
    static const char *const configs[] = {
        "{\"chat_template\":\"{{ messages }}\\u0000{{ more }}\"}",
        "{\"chat_template\":[{\"name\":\"default\\u0000x\",\"template\":\"a\"}]}", NULL};
    struct pl_tokenizer *t = NULL;
    struct pl_diag d = {0};
    scratch_make(dir);
    scratch_copy(DATA "/tokenizer/gpt2_style", in_dir(dir, "t"));
    if (configs[_i]) {
        file_write(in_dir(dir, "t/tokenizer_config.json"), configs[_i]);
    } else {
        FILE *f = fopen(in_dir(dir, "t/chat_template.jinja"), "w");
        ck_assert_ptr_nonnull(f);
        ck_assert_uint_eq(fwrite("a\0b", 1, 3, f), 3);
        ck_assert_int_eq(fclose(f), 0);
    }
    ck_assert_int_eq(pl_tokenizer_open(in_dir(dir, "t"), &t, &d), PL_ERR_TOKENIZER_FIELD);
    ck_assert_msg(strstr(d.message, "zero byte") && strstr(d.file, "/t/"), "%s", d.message);
    pl_tokenizer_close(&t);
    scratch_remove(dir);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("own");
    TCase *t = tcase_create("own");
    tcase_add_loop_test(t, a_row_is_trained_on_where_its_template_writes_answers, 0,
                        (int)(sizeof rows / sizeof *rows));
    tcase_add_test(t, a_template_that_is_no_program_is_refused_by_line_and_column);
    tcase_add_test(t, named_templates_are_chosen_as_transformers_chooses);
    tcase_add_loop_test(t, work_grows_with_the_answers_of_a_row, 0, 5);
    tcase_add_test(t, a_program_without_turns_has_a_limit);
    tcase_add_loop_test(t, a_template_with_a_zero_byte_is_refused, 0, 3);
    suite_add_tcase(suite, t);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
