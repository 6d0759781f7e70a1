/* check_formats.c - rows of every format as tokens and masks.
 *
 * The byte tokenizer makes every token a byte of the text, so that texts and masks can be read.
 * With the argument `external` the files come from $PLIMSOLL_DATA_DIR/formats, whole. */
#include "estimator/config/key_table.h"
#include "runtime/data/chat/chat.h"
#include "tests/data/fixture.h"

#include <jansson.h>

static char dir[512] = DATA "/good";
static bool external;

/* CRC-32 of IEEE 802.3, bit by bit. */
static uint32_t crc32_of(const int32_t *bytes, size_t n) {
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= (uint32_t)bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xEDB88320) : 0);
    }
    return ~crc;
}

/* --- good files: every part of every row, to the byte, between what the format puts there ------
 */
static const struct {
    const char *role, *before, *after;
    bool trained;
} parts[] = {
    {"system", "<|im_start|>system\n", "<|im_end|>\n", false},
    {"user", "<|im_start|>user\n", "<|im_end|>\n", false},
    {"assistant", "<|im_start|>assistant\n", "<|im_end|>\n", true},
    {"prompt.system", "<|im_start|>system\n", "<|im_end|>\n", false},
    {"prompt.user", "<|im_start|>user\n", "<|im_end|>\n", false},
    {"prompt.assistant", "<|im_start|>assistant\n", "<|im_end|>\n", false},
    {"completion.assistant", "<|im_start|>assistant\n", "<|im_end|>\n", true},
    {"prompt", "", "", false},
    {"completion", "", "", true},
    {"instruction", "### Instruction:\n", "\n\n", false},
    {"input", "### Input:\n", "\n\n", false},
    {"output", "### Response:", "", true},
};

struct cursor {
    const struct pl_sample *s;
    uint64_t at;
    char where[128];
};

static void expect_bytes(struct cursor *c, const char *text) {
    for (const char *b = text; *b; b++, c->at++) {
        ck_assert_msg(c->at < c->s->n && c->s->ids[c->at] == (unsigned char)*b,
                      "%s: byte %llu is not of `%s`", c->where, (unsigned long long)c->at, text);
    }
}

static void expect_part(struct cursor *c, const json_t *part, bool trained) {
    uint64_t n = (uint64_t)json_integer_value(json_object_get(part, "bytes"));
    uint32_t crc = (uint32_t)strtoul(json_string_value(json_object_get(part, "crc32")), NULL, 16);
    ck_assert_msg(c->at + n <= c->s->n, "%s is short", c->where);
    ck_assert_msg(crc32_of(c->s->ids + c->at, n) == crc, "%s: %s differs", c->where,
                  json_string_value(json_object_get(part, "role")));
    for (uint64_t end = c->at + n; c->at < end; c->at++)
        ck_assert_msg((c->s->labels[c->at] != PL_LABEL_MASKED) == trained, "%s: byte %llu",
                      c->where, (unsigned long long)c->at);
}

static bool row_masks_itself(const char *file, uint64_t row, size_t part) {
    return strncmp(file, "messages", 8) == 0 && row == 11 && part == 1; /* loss_weight 0.0 */
}

static void expect_row(struct cursor *c, const char *file, uint64_t row, const json_t *list) {
    size_t n = json_array_size(list);
    bool alpaca = strncmp(file, "alpaca", 6) == 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *part = json_array_get(list, i);
        const char *role = json_string_value(json_object_get(part, "role"));
        size_t k = 0;
        while (strcmp(parts[k].role, role) != 0)
            ck_assert_msg(++k < sizeof parts / sizeof *parts, "%s: no %s", c->where, role);
        if (alpaca && strcmp(role, "system") == 0) {
            expect_part(c, part, false);
            expect_bytes(c, "\n\n");
            continue;
        }
        if (alpaca && i == 0)
            while (c->at < c->s->n && c->s->ids[c->at] != '#')
                c->at++;
        if (strcmp(role, "input") == 0 && json_integer_value(json_object_get(part, "bytes")) == 0)
            continue;
        expect_bytes(c, parts[k].before);
        expect_part(c, part, parts[k].trained && !row_masks_itself(file, row, i));
        expect_bytes(c, parts[k].after);
    }
    if (c->at < c->s->n) ck_assert_int_eq(c->s->ids[c->at++], 500); /* eos */
    ck_assert_msg(c->at == c->s->n, "%s: %llu tokens too many", c->where,
                  (unsigned long long)(c->s->n - c->at));
}

static const char *const files[] = {"alpaca.jsonl",      "messages.jsonl",
                                    "sharegpt.jsonl",    "prompt_completion.jsonl",
                                    "alpaca_array.json", "messages_array_min.json"};

START_TEST(nothing_of_a_row_is_lost_or_changed) {
    struct fixture f;
    struct pl_sample s = {0};
    char path[600], *line = NULL;
    size_t cap = 0;
    uint64_t rows = 0;
    fixture_start(&f, PL_FORMAT_AUTO);
    f.job.max_seq_length = 200000;
    snprintf(f.path, sizeof f.path, "%.400s/%s", dir, files[_i]);
    pl_err err = fixture_open(&f);
    ck_assert_msg(err == PL_ERR_OK, "%s:%llu: %s", f.path, (unsigned long long)f.d.line,
                  f.d.message);
    ck_assert_uint_eq(pl_data_rows(f.data), external ? 20 : 19);
    snprintf(path, sizeof path, "%s/expected.jsonl", dir);
    FILE *in = fopen(path, "r");
    ck_assert_ptr_nonnull(in);
    for (ssize_t n; (n = getline(&line, &cap, in)) >= 0;) {
        json_t *want = json_loadb(line, (size_t)n, 0, NULL);
        const char *file = json_string_value(json_object_get(want, "file"));
        struct cursor c = {.s = &s};
        file = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
        if (strcmp(file, files[_i]) == 0) {
            uint64_t row = (uint64_t)json_integer_value(json_object_get(want, "row"));
            snprintf(c.where, sizeof c.where, "%s row %llu", file, (unsigned long long)row);
            ck_assert_int_eq(pl_data_sample(f.data, row - 1, &s, &f.d), PL_ERR_OK);
            expect_row(&c, file, row, json_object_get(want, "parts"));
            rows++;
        }
        json_decref(want);
    }
    ck_assert_uint_eq(rows, pl_data_rows(f.data));
    free(line);
    fclose(in);
    pl_sample_finish(&s);
    fixture_finish(&f);
}
END_TEST

/* --- texts and masks -------------------------------------------------------------------------- */
#define PREAMBLE                                                                                   \
    "Below is an instruction that describes a task. Write a response that appropriately "          \
    "completes the request.\n\n"
#define PREAMBLE_INPUT                                                                             \
    "Below is an instruction that describes a task, paired with an input that provides further "   \
    "context. Write a response that appropriately completes the request.\n\n"

static const struct {
    const char *row, *text;
} texts[] = {
    {"{\"text\":\"ab\"}", "ab$"},
    {"{\"prompt\":\"half a pair\",\"text\":\"ab\"}", "ab$"},
    {"{\"prompt\":\"a \",\"completion\":\"b\"}", "a b$"},
    {"{\"completion\":\"b\",\"prompt\":\"a \"}", "a b$"},
    {"{\"instruction\":\"I\",\"output\":\"O\"}", PREAMBLE "### Instruction:\nI\n\n### Response:O$"},
    {"{\"output\":\"O\",\"instruction\":\"I\",\"input\":\"\",\"history\":[ ]}",
     PREAMBLE "### Instruction:\nI\n\n### Response:O$"},
    {"{\"input\":\"X\",\"instruction\":\"I\",\"output\":\"O\",\"system\":null}",
     PREAMBLE_INPUT "### Instruction:\nI\n\n### Input:\nX\n\n### Response:O$"},
    {"{\"instruction\":\"I\",\"input\":null,\"output\":\"O\",\"system\":\"S\"}",
     "S\n\n### Instruction:\nI\n\n### Response:O$"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":[{"
     "\"type\":\"text\",\"text\":\"a\"},{\"text\":\"b\",\"type\":\"text\"}],\"tool_calls\":null}],"
     "\"tools\":[]}",
     "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nab<|im_end|>\n"},
    {"{\"conversations\":[{\"value\":\"q\",\"from\":\"human\"},{\"from\":\"gpt\",\"value\":\"a\"}],"
     "\"system\":\"s\"}",
     "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"
     "a<|im_end|>\n"},
    {"{\"conversations\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\","
     "\"content\":\"a\"}],\"system\":\"\"}",
     "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n"},
    {"{\"completion\":[{\"role\":\"assistant\",\"content\":\"a\"}],\"prompt\":[{\"role\":\"user\","
     "\"content\":\"q\"}]}",
     "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n"},
};

/* B1 of format_rows.h: keys stand in any order. */
START_TEST(a_row_becomes_the_text_of_its_format) {
    struct fixture f;
    struct pl_sample s = {0};
    char buf[2048];
    fixture_rows(&f, PL_FORMAT_AUTO, texts[_i].row);
    ck_assert_int_eq(pl_data_sample(f.data, 0, &s, &f.d), PL_ERR_OK);
    ck_assert_str_eq(fixture_show(&s, false, buf), texts[_i].text);
    pl_sample_finish(&s);
    fixture_finish(&f);
}
END_TEST

#define TALK(more)                                                                                 \
    "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"q\"}" \
    ",{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"r\"},{\"role\":" \
    "\"assistant\",\"content\":\"b\"" more "}]}"
/* an answer with such keys, and one more */
#define MASKED(keys)                                                                               \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"    \
    "\"b\"," keys "},{\"role\":\"assistant\",\"content\":\"c\"}]}"
#define PAIR(more, less)                                                                           \
    "{\"prompt\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":"      \
    "\"a\"" more                                                                                   \
    "},{\"role\":\"user\",\"content\":\"r\"}],\"completion\":[{\"role\":\"assistant\","            \
    "\"content\":\"b\"" less "}]}"
#define ALL     PL_TRAIN_ON_ALL
#define ANSWERS PL_TRAIN_ON_RESPONSES
#define LAST    PL_TRAIN_ON_LAST

static const struct {
    const char *row;
    uint32_t train_on;
    const char *trained; /* dots stand for what is masked */
} masks[] = {
    {TALK(""), ANSWERS, ".a<|im_end|>.b<|im_end|>."},
    {TALK(""), LAST, ".b<|im_end|>."},
    {TALK(""), ALL,
     "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"
     "a<|im_end|>\n<|im_start|>user\nr<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"},
    {TALK(",\"weight\":0"), ANSWERS, ".a<|im_end|>."},
    {TALK(",\"train\":false"), ANSWERS, ".a<|im_end|>."},
    {TALK(",\"loss_weight\":0.0e5"), ANSWERS, ".a<|im_end|>."},
    {TALK(",\"weight\":1.0"), LAST, ".b<|im_end|>."},
    {TALK(",\"weight\":null"), ANSWERS, ".a<|im_end|>.b<|im_end|>."},
    {TALK(",\"weight\":0"), ALL,
     "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"
     "a<|im_end|>\n<|im_start|>user\nr<|im_end|>\n<|im_start|>assistant\n.\n"},
    /* a question that asks to be trained on */
    {TALK("},{\"role\":\"user\",\"content\":\"z\",\"train\":true"), LAST,
     ".b<|im_end|>.z<|im_end|>."},
    {PAIR("", ""), ANSWERS, ".b<|im_end|>."},
    {PAIR(",\"train\":true", ""), ANSWERS, ".a<|im_end|>.b<|im_end|>."},
    {PAIR("", "},{\"role\":\"assistant\",\"content\":\"c\""), LAST, ".c<|im_end|>."},
    {MASKED("\"training\":false"), ANSWERS, ".c<|im_end|>."},
    {MASKED("\"loss\":false"), ANSWERS, ".c<|im_end|>."},
    {MASKED("\"loss_scale\":0"), ANSWERS, ".c<|im_end|>."},
    {MASKED("\"trainable\":0"), ANSWERS, ".c<|im_end|>."},
    {MASKED("\"masked\":true"), ANSWERS, ".c<|im_end|>."},
    {MASKED("\"train\":0,\"weight\":0,\"masked\":true"), ANSWERS, ".c<|im_end|>."},
    {MASKED("\"training\":null"), ANSWERS, ".b<|im_end|>.c<|im_end|>."},
    {MASKED("\"masked\":false"), ANSWERS, ".b<|im_end|>.c<|im_end|>."},
    {"{\"messages\":[{\"role\":\"user\",\"content\":[\"a\",{\"text\":\"b\"}]},{\"role\":"
     "\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"c\"},\"d\"]}]}",
     ANSWERS, ".cd<|im_end|>."},
    {"{\"prompt\":\"a\",\"completion\":\"b\"}", ANSWERS, ".b$"},
    {"{\"prompt\":\"a\",\"completion\":\"b\"}", LAST, ".b$"},
    {"{\"prompt\":\"a\",\"completion\":\"b\"}", ALL, "ab$"},
    {"{\"instruction\":\"a\",\"output\":\"b\"}", ANSWERS, ".b$"},
    {"{\"text\":\"ab\"}", ANSWERS, "ab$"},
    {"{\"text\":\"ab\"}", LAST, "ab$"},
};

/* V2 of conversation.h */
START_TEST(a_mask_is_what_train_on_and_the_messages_say) {
    struct fixture f;
    struct pl_sample s = {0};
    char buf[2048];
    fixture_start(&f, PL_FORMAT_AUTO);
    f.job.train_on = masks[_i].train_on;
    fixture_write(&f, masks[_i].row, strlen(masks[_i].row));
    pl_err err = fixture_open(&f);
    ck_assert_msg(err == PL_ERR_OK, "%s", f.d.message);
    ck_assert_int_eq(pl_data_sample(f.data, 0, &s, &f.d), PL_ERR_OK);
    ck_assert_str_eq(fixture_show(&s, true, buf), masks[_i].trained);
    pl_sample_finish(&s);
    fixture_finish(&f);
}
END_TEST

/* --- refusals --------------------------------------------------------------------------------- */
#define ANSWER "{\"role\":\"assistant\",\"content\":\"a\"}"
static const struct {
    const char *row, *template; /* NULL: chatml */
    pl_err err;
    const char *says, *hint;
} refusals[] = {
    {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"weight\":0.5}]}", NULL,
     PL_ERR_DATA_FIELD, "message 0: `weight` is 0.5; only 0 and 1", "masks"},
    {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"train\":\"yes\"}]}", NULL,
     PL_ERR_DATA_FIELD, "`train` is \"yes\"; only 0 and 1", ""},
    {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"weight\":1,\"train\":false}]}",
     NULL, PL_ERR_DATA_FIELD, "message 0: `train` says the opposite of a key before it", ""},
    {"{\"messages\":[" ANSWER ",{\"role\":\"assistant\",\"content\":\"a\",\"loss\":true,"
     "\"masked\":1}]}",
     NULL, PL_ERR_DATA_FIELD, "message 1: `masked` says the opposite of a key before it", ""},
    {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"masked\":0.5}]}", NULL,
     PL_ERR_DATA_FIELD, "message 0: `masked` is 0.5; only 0 and 1", "masks the message"},
    {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"train_detail\":[{}]}]}", NULL,
     PL_ERR_DATA_FIELD, "`train_detail` is not supported", "as a whole"},
    {"{\"messages\":[{\"role\":\"Assistant\",\"content\":\"a\"}]}", NULL, PL_ERR_DATA_FIELD,
     "message 0: unknown role `Assistant`", "assistant"},
    {"{\"messages\":[{\"role\":\"assistant\",\"role\":\"user\",\"content\":\"a\"}]}", NULL,
     PL_ERR_DATA_FIELD, "key `role` comes after another", ""},
    {"{\"messages\":[{\"role\":\"tool\",\"content\":\"a\"}]}", NULL, PL_ERR_DATA_FIELD,
     "tool messages are not supported", "tools"},
    {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"reasoning_content\":\"hm\"}]}",
     NULL, PL_ERR_DATA_FIELD, "`reasoning_content` is not supported", "<think>"},
    {"{\"messages\":[" ANSWER "],\"tools\":[{\"type\":\"function\"}]}", NULL, PL_ERR_DATA_FIELD,
     "`tools` is not supported", "FILE.jinja"},
    {"{\"messages\":[\"hi\"]}", NULL, PL_ERR_DATA_FIELD, "message 0 is a string", ""},
    {"{\"messages\":[{\"role\":7,\"content\":\"a\"}]}", NULL, PL_ERR_DATA_FIELD,
     "`role` is a number", ""},
    {"{\"messages\":[{\"role\":\"user\",\"content\":{}}]}", NULL, PL_ERR_DATA_FIELD,
     "`content` is an object, expected a string or a list of text parts", ""},
    {"{\"messages\":[{\"role\":\"user\",\"content\":[1]}]}", NULL, PL_ERR_DATA_FIELD,
     "`content` is a number, expected text parts", ""},
    {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":\"x\"}]}"
     "]"
     "}",
     NULL, PL_ERR_DATA_FIELD, "a content part of type `image_url` is not text", ""},
    {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}", NULL,
     PL_ERR_DATA_FIELD, "part without `text`", ""},
    {"{\"instruction\":\"I\",\"output\":\"O\",\"history\":[[\"a\",\"b\"]]}", NULL,
     PL_ERR_DATA_FIELD, "`history` is not supported", "messages"},
    {"{\"instruction\":\"I\",\"response\":\"O\"}", NULL, PL_ERR_DATA_FIELD,
     "key `output` is missing; format alpaca needs it, the row has `instruction`, `response`",
     "field_output: response"},
    {"{\"prompt\":7,\"completion\":\"a\"}", NULL, PL_ERR_DATA_FIELD,
     "`prompt` is a number, expected a string or a list of messages", ""},
    {"{\"conversations\":[]}", NULL, PL_ERR_DATA_FIELD, "the row has no turns", ""},
    {"{\"messages\":[" ANSWER "]}", "llama2", PL_ERR_DATA_TEMPLATE,
     "template llama2 refuses message 0 (assistant)", "chat_template"},
    {"{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"q\"}"
     "," ANSWER "]}",
     "mistral", PL_ERR_DATA_TEMPLATE, "template mistral leaves out message 0 (system)",
     "mistral_sysfirst"},
    {"{\"messages\":[" ANSWER "]}", "auto", PL_ERR_DATA_TEMPLATE, "the tokenizer brings none",
     "qwen25, qwen25_base"},
    {"{\"prompt\":[{\"role\":\"user\",\"content\":\"q\"}],\"completion\":[" ANSWER "]}", "auto",
     PL_ERR_DATA_TEMPLATE, "the tokenizer brings none", "qwen25, qwen25_base"},
};

static uint32_t template_id(const char *name) {
    uint32_t id = PL_CHAT_TEMPLATE_AUTO;
    if (!name) return PL_CHAT_TEMPLATE_AUTO + 1;
    if (strcmp(name, "auto") == 0) return PL_CHAT_TEMPLATE_AUTO;
    while (strcmp(pl_chat_name(pl_chat_nth(id)), name) != 0)
        id++;
    return id + 1;
}

/* V1 of conversation.h */
START_TEST(a_row_that_cannot_be_trained_on_is_refused_by_name) {
    struct fixture f;
    fixture_start(&f, PL_FORMAT_AUTO);
    f.job.chat_template.choice = template_id(refusals[_i].template);
    fixture_write(&f, refusals[_i].row, strlen(refusals[_i].row));
    pl_err err = fixture_open(&f);
    ck_assert_msg(err == refusals[_i].err, "%s: %s", refusals[_i].row, f.d.message);
    ck_assert_msg(strstr(f.d.message, refusals[_i].says), "%s", f.d.message);
    ck_assert_msg(strstr(pl_diag_hint_text(&f.d), refusals[_i].hint), "%s",
                  pl_diag_hint_text(&f.d));
    fixture_finish(&f);
}
END_TEST

START_TEST(a_file_of_pairs_as_text_needs_no_template) {
    struct fixture f;
    static const char row[] = "{\"prompt\":\"a\",\"completion\":\"b\"}";
    fixture_start(&f, PL_FORMAT_AUTO);
    f.job.chat_template.choice = PL_CHAT_TEMPLATE_AUTO;
    fixture_write(&f, row, strlen(row));
    ck_assert_int_eq(fixture_open(&f), PL_ERR_OK);
    fixture_finish(&f);
}
END_TEST

START_TEST(a_template_with_a_date_shows_the_given_day_or_notes_today) {
    struct fixture f;
    struct pl_sample s = {0};
    char buf[2048], day[PL_DAY_TEXT];
    static const char row[] = "{\"messages\":[" ANSWER "]}";
    fixture_start(&f, PL_FORMAT_AUTO);
    f.job.chat_template.choice = template_id("llama32");
    fixture_write(&f, row, strlen(row));
    ck_assert_int_eq(fixture_open(&f), PL_ERR_OK);
    ck_assert_ptr_nonnull(strstr(pl_text_str(&f.notes), "template llama32 shows the date"));
    f.job.chat_date = (char *)(uintptr_t) "2025-01-02";
    ck_assert_int_eq(fixture_open(&f), PL_ERR_OK);
    ck_assert_str_eq(pl_text_str(&f.notes), "");
    ck_assert_str_eq(pl_data_chat_date(f.data, day), "2025-01-02");
    ck_assert_int_eq(pl_data_sample(f.data, 0, &s, &f.d), PL_ERR_OK);
    ck_assert_ptr_nonnull(strstr(fixture_show(&s, false, buf), "Today Date: 02 Jan 2025"));
    f.job.chat_date = (char *)(uintptr_t) "2025-02-30";
    ck_assert_int_eq(fixture_open(&f), PL_ERR_CONFIG_RANGE);
    pl_sample_finish(&s);
    fixture_finish(&f);
}
END_TEST

/* The key's choices and the table are written in two rooms that do not see each other. */
START_TEST(the_choices_of_chat_template_are_the_templates) {
    struct pl_text names = {0}, choices = {0};
    uint32_t n;
    for (const char *c = pl_key_table(&n)[PL_KEY_chat_template].choices; *c; c++)
        pl_text_addf(&choices, *c == '|' ? ", " : "%c", *c);
    pl_text_add(&names, "auto, ");
    pl_chat_list_names(&names);
    ck_assert_str_eq(pl_text_str(&choices), pl_text_str(&names));
    pl_text_finish(&names);
    pl_text_finish(&choices);
}
END_TEST

#define ROWS(a) ((int)(sizeof(a) / sizeof *(a)))

int main(int argc, char **argv) {
    const char *from = getenv("PLIMSOLL_DATA_DIR");
    external = argc > 1 && strcmp(argv[1], "external") == 0;
    if (external && !from) {
        printf("skipped: needs PLIMSOLL_DATA_DIR, a directory of recorded data\n");
        return 77;
    }
    if (external) snprintf(dir, sizeof dir, "%.480s/formats", from);
    Suite *suite = suite_create("formats");
    TCase *t = tcase_create("rows");
    tcase_add_loop_test(t, nothing_of_a_row_is_lost_or_changed, 0, ROWS(files));
    tcase_add_loop_test(t, a_row_becomes_the_text_of_its_format, 0, ROWS(texts));
    tcase_add_loop_test(t, a_mask_is_what_train_on_and_the_messages_say, 0, ROWS(masks));
    tcase_add_loop_test(t, a_row_that_cannot_be_trained_on_is_refused_by_name, 0, ROWS(refusals));
    tcase_add_test(t, a_file_of_pairs_as_text_needs_no_template);
    tcase_add_test(t, a_template_with_a_date_shows_the_given_day_or_notes_today);
    tcase_add_test(t, the_choices_of_chat_template_are_the_templates);
    suite_add_tcase(suite, t);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
