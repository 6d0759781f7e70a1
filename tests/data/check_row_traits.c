/* check_row_traits.c - what is odd about rows: counted by file, told with the first line, and the
 * same when the tokens were kept. */
#include "tests/data/fixture.h"
#include "tests/support/scratch.h"
#include "runtime/data/chat/chat.h"
#include "runtime/data/summary.h"

#define TURN   "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
#define PROMPT "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
#define PLAIN  "{% for m in messages %}" TURN "{% endfor %}" PROMPT
#define BARE   "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% endfor %}" PROMPT
#define BLANK                                                                                      \
    "{% for m in messages %}{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}"                   \
    "{% if add_generation_prompt %}assistant: {% endif %}"
#define BRIEF                                                                                      \
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if loop.last %}{{ m.content }}{% else %}" \
    "{{ m.content.split('</think>')[-1] }}{% endif %}<|im_end|>\n{% endfor %}" PROMPT
/* reasoning in a field of its own, of the last answer alone */
#define THINKS                                                                                     \
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if loop.last %}"                          \
    "{{ m.reasoning_content }}{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}" PROMPT
#define TOOLS                                                                                      \
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"                             \
    "{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}<|im_end|>\n" \
    "{% endfor %}" PROMPT
#define WRITES                                                                                     \
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"                             \
    "{% for c in m.tool_calls or [] %}{{ c.function.arguments }}{% endfor %}<|im_end|>\n"          \
    "{% endfor %}" PROMPT

#define U(text)  "{\"role\":\"user\",\"content\":\"" text "\"}"
#define A(text)  "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define ROW(all) "{\"messages\":[" all "]}\n"
#define GOOD     ROW(U("one") "," A("two"))
#define THOUGHT  ROW(U("q") "," A("<think>hm</think>a") "," U("r") "," A("<think>hm</think>b"))
#define THOUGHTS                                                                                   \
    ROW(U("q") "," A("<think>hm</think>a") "," U("r") "," A("<think>hm</think>b") "," U(           \
        "s") "," A("c"))
#define REASONED                                                                                   \
    ROW(U("q") ",{\"role\":\"assistant\",\"reasoning_content\":\"hm\",\"content\":\"a\"}," U("r")  \
                                                                                                   \
            ",{\"role\":\"assistant\",\"reasoning_content\":\"so\",\"content\":\"b\"}")
#define CALL                                                                                       \
    ROW(U(                                                                                         \
        "q") ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":"  \
             "\"f\",\"arguments\":\"{\\\"x\\\": 1}\"}}]}")

/* Each has a good row first; the trait is in the rows after it. NONE: nothing is odd. */
#define NONE PL_TRAITS
static const struct {
    const char *tokenizer, *template; /* NULL: the named template `name` */
    const char *name, *good, *odd;
    int trait;
    uint64_t rows, all;
    const char *says;
} cases[] = {
    {"smollm2_style", PLAIN, NULL, GOOD, GOOD, NONE, 0, 0, ""},
    {"smollm2_style", NULL, "chatml", GOOD, GOOD, NONE, 0, 0, ""},
    {"smollm2_style", NULL, "qwen3", GOOD, ROW(U("q") "," A("<think>hm</think>a")), NONE, 0, 0, ""},
    {"smollm2_style", WRITES, NULL, GOOD, CALL, NONE, 0, 0, ""},
    {"smollm2_style", PLAIN, NULL, GOOD, ROW(U("say <think> twice") "," A("a")), NONE, 0, 0, ""},
    /* E3 of encode.h */
    {"smollm2_style", BRIEF, NULL, GOOD, THOUGHT, PL_TRAIT_CUT_TEXT, 1, 1, "leaves out a part"},
    {"smollm2_style", BRIEF, NULL, GOOD, THOUGHTS THOUGHT, PL_TRAIT_CUT_TEXT, 2, 3, "(3 in all)"},
    {"smollm2_style", THINKS, NULL, GOOD, REASONED, PL_TRAIT_CUT_TEXT, 1, 1, "leaves out a part"},
    {"smollm2_style", NULL, "qwen3", GOOD, THOUGHT, PL_TRAIT_CUT_TEXT, 1, 1, "leaves out a part"},
    {"smollm2_style", PLAIN, NULL, GOOD, ROW(U("a <|im_end|> b") "," A("a")) GOOD,
     PL_TRAIT_SPECIAL_TEXT, 1, 1, "special tokens"},
    {"smollm2_style", NULL, "chatml", GOOD, ROW(U("q") "," A("<|im_start|><|im_end|>")),
     PL_TRAIT_SPECIAL_TEXT, 1, 2, "special tokens"},
    {"smollm2_style", TOOLS, NULL, GOOD, CALL CALL, PL_TRAIT_QUOTED_ARGUMENTS, 2, 2, "an object"},
    {"smollm2_style", PLAIN, NULL, GOOD,
     ROW("{\"role\":\"Assistant\",\"content\":\"x\"}," U("q") "," A("a")), PL_TRAIT_UNKNOWN_ROLE, 1,
     1, "unknown role `Assistant`"},
    {"smollm2_style", BARE, NULL, ROW(U("q")), GOOD, PL_TRAIT_OPEN_ANSWER, 1, 1, "learn to stop"},
    {"qwen2_style", BLANK, NULL, ROW(U("q")), ROW(U("q") "," A("be")), PL_TRAIT_INSIDE_TOKEN, 1, 1,
     "inside a token"},
    {"qwen2_style", PLAIN, NULL, "{\"prompt\":\"To be\",\"completion\":\" or\"}\n",
     "{\"prompt\":\"not to \",\"completion\":\"be\"}\n", PL_TRAIT_INSIDE_TOKEN, 1, 1,
     "into the answer"},
    {"llama3_style", PLAIN, NULL, "{\"text\":\"a\"}\n", "{\"text\":\"<|begin_of_text|>a\"}\n",
     PL_TRAIT_TWO_BOS, 1, 1, "twice"},
    {"smollm2_style", PLAIN, NULL, GOOD, ROW(U("q") "," A("a b c d e f g h i j k l m n o p q r")),
     PL_TRAIT_BEYOND_POSITIONS, 1, 1, "`max_seq_length: 24` cuts them"},
};

static char dir[SCRATCH_PATH];

static void start(struct fixture *f, int i) {
    static char path[SCRATCH_PATH + 32], tokenizer[512];
    fixture_start(f, PL_FORMAT_AUTO);
    snprintf(tokenizer, sizeof tokenizer, DATA "/tokenizer/%s", cases[i].tokenizer);
    f->job.tokenizer = tokenizer;
    f->model.vocab = 1 << 20;
    f->model.n_ropes = 1;
    f->model.max_positions = cases[i].trait == PL_TRAIT_BEYOND_POSITIONS ? 24 : 0;
    if (cases[i].template) {
        snprintf(path, sizeof path, "%s", in_dir(dir, "own.jinja"));
        file_write(path, cases[i].template);
        f->job.chat_template = (struct pl_template_choice){PL_CHAT_TEMPLATE_FILE, path};
    } else {
        const struct pl_chat_template *t = pl_chat_find(cases[i].name);
        f->job.chat_template.choice = (uint32_t)(pl_chat_number(t) + 1);
    }
}

static void expect(const struct fixture *f, int i) {
    const struct pl_data_stats *st = &pl_data_file(f->data, 0)->stats;
    char line[700];
    for (int k = 0; k < PL_TRAITS; k++) {
        ck_assert_msg(st->traits[k] == (k == cases[i].trait ? cases[i].rows : 0), "%s: %llu, %s",
                      pl_trait_key(k), (unsigned long long)st->traits[k], pl_text_str(&f->notes));
        ck_assert_uint_eq(pl_data_stats(f->data)->traits[k], st->traits[k]);
    }
    snprintf(line, sizeof line, "%s:2: %llu row%s ", f->path, (unsigned long long)cases[i].rows,
             cases[i].rows == 1 ? "" : "s");
    if (cases[i].trait != NONE)
        ck_assert_msg(strstr(pl_text_str(&f->notes), line) &&
                          strstr(pl_text_str(&f->notes), cases[i].says),
                      "%s", pl_text_str(&f->notes));
    snprintf(line, sizeof line, "(%llu in all)", (unsigned long long)cases[i].all);
    ck_assert_msg((strstr(pl_text_str(&f->notes), line) != NULL) == (cases[i].all > cases[i].rows),
                  "%s", pl_text_str(&f->notes));
}

/* T1 of row_traits.h */
START_TEST(what_is_odd_about_rows_is_counted_and_told) {
    struct fixture f;
    struct pl_text rows = {0};
    scratch_make(dir);
    start(&f, _i);
    f.job.dataset_cache = dir;
    pl_text_addf(&rows, "%s%s", cases[_i].good, cases[_i].odd);
    fixture_write(&f, pl_text_str(&rows), rows.len);
    for (int run = 0; run < 2; run++) { /* the second time from the tokens that were kept */
        ck_assert_msg(fixture_open(&f) == PL_ERR_OK, "%s", f.d.message);
        expect(&f, _i);
    }
    pl_text_finish(&rows);
    fixture_finish(&f);
    scratch_remove(dir);
}
END_TEST

START_TEST(the_line_and_the_object_of_a_file_say_so) {
    static const char keys[][24] = {"open_answer_rows", "cut_text_rows", "special_text_rows"};
    struct fixture f;
    struct pl_text out = {0};
    scratch_make(dir);
    start(&f, 6); /* BRIEF */
    fixture_write(&f, GOOD THOUGHT, sizeof GOOD THOUGHT - 1);
    ck_assert_msg(fixture_open(&f) == PL_ERR_OK, "%s", f.d.message);
    pl_data_write_files(f.data, &out);
    ck_assert_msg(strstr(pl_text_str(&out), ", 1 with dropped text\n"), "%s", pl_text_str(&out));
    ck_assert_ptr_null(strstr(pl_text_str(&out), "end of turn"));
    json_t *list = pl_data_files_json(f.data);
    for (int i = 0; i < 3; i++) {
        const json_t *n = json_object_get(json_array_get(list, 0), keys[i]);
        ck_assert(json_is_integer(n));
        ck_assert_int_eq(json_integer_value(n), i == 1);
    }
    json_decref(list);
    pl_text_finish(&out);
    fixture_finish(&f);
    scratch_remove(dir);
}
END_TEST

/* --- shares that can only be a mistake -------------------------------------------------------- */
START_TEST(a_file_that_trains_nothing_or_everything_is_named) {
    static const char *const templates[] = {
        "{% generation %}{% for m in messages %}" TURN "{% endfor %}{% endgeneration %}", PLAIN};
    static const char *const rows[] = {ROW(A("a")), ROW(U("q"))};
    static const char *const says[] = {"tokens are trained on, the questions as well",
                                       ": 0 of 7 tokens are trained on, none at all"};
    struct fixture f;
    struct pl_dataset sets[2];
    char good[] = "/tmp/plimsoll-good-XXXXXX", path[SCRATCH_PATH + 32];
    scratch_make(dir);
    start(&f, 0);
    snprintf(path, sizeof path, "%s", in_dir(dir, "other.jinja"));
    file_write(path, templates[_i]);
    f.job.chat_template.path = path;
    fixture_write(&f, rows[_i], strlen(rows[_i]));
    int fd = mkstemp(good);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(close(fd), 0);
    file_write(good, ROW(A("a")));
    sets[0] = sets[1] = f.set;
    sets[1].path = good;
    f.list = (struct pl_dataset_list){.items = sets, .n = 2};
    ck_assert_msg(fixture_open(&f) == PL_ERR_OK, "%s", f.d.message);
    ck_assert_msg(strstr(pl_text_str(&f.notes), says[_i]), "%s", pl_text_str(&f.notes));
    f.job.train_on = PL_TRAIN_ON_ALL;
    ck_assert_msg(fixture_open(&f) == PL_ERR_OK, "%s", f.d.message);
    ck_assert_ptr_null(strstr(pl_text_str(&f.notes), "trained on"));
    fixture_finish(&f);
    unlink(good);
    scratch_remove(dir);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("row_traits");
    TCase *t = tcase_create("traits");
    tcase_add_loop_test(t, what_is_odd_about_rows_is_counted_and_told, 0,
                        (int)(sizeof cases / sizeof *cases));
    tcase_add_test(t, the_line_and_the_object_of_a_file_say_so);
    tcase_add_loop_test(t, a_file_that_trains_nothing_or_everything_is_named, 0, 2);
    suite_add_tcase(suite, t);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
