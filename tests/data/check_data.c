/* check_data.c - reading data files: verdicts of odd files, tokens of good ones, length rules. */
#include "tests/data/fixture.h"
#include "runtime/data/formats.h"
#include "estimator/base/json_scan.h"
#include "runtime/data/split.h"

#include <check.h>
#include <fcntl.h>
#include <sys/stat.h>

#define LINE     512
#define ROWS_MAX 128

static char tsv[ROWS_MAX][LINE];
static int n_tsv;

/* Lines after the heading; 0 when there is no such file. */
static int load_lines(const char *path, char out[ROWS_MAX][LINE]) {
    FILE *f = fopen(path, "r");
    char heading[LINE];
    int n = 0;
    if (f && fgets(heading, sizeof heading, f)) {
        while (n < ROWS_MAX && fgets(out[n], LINE, f))
            out[n][strcspn(out[n], "\n")] = 0, n++;
    }
    if (f) fclose(f);
    return n;
}

static uint32_t format_id(const char *name) {
    uint32_t id = PL_FORMAT_PROMPT_COMPLETION;
    while (id > PL_FORMAT_AUTO &&
           strcmp(name, pl_format_name(pl_format_find(id, PL_STAGE_SFT))) != 0)
        id--;
    return id;
}

/* "3", "2|3", "-" */
static bool line_is(const char *wanted, uint64_t line) {
    char *rest;
    if (strcmp(wanted, "-") == 0) return line == 0;
    for (; *wanted; wanted = *rest ? rest + 1 : rest)
        if (strtoull(wanted, &rest, 10) == line) return true;
    return false;
}

/* S1 of data.h */
START_TEST(every_odd_file_meets_its_verdict_and_line) {
    char row[LINE], *rest = row, found[600];
    struct fixture f;
    snprintf(row, sizeof row, "%s", tsv[_i]);
    const char *name = strsep(&rest, "\t"), *format = strsep(&rest, "\t");
    const char *verdict = strsep(&rest, "\t"), *line = strsep(&rest, "\t");
    fixture_start(&f, format_id(format));
    snprintf(f.path, sizeof f.path, "%s/bad/%s", DATA, name);
    pl_err err = fixture_open(&f);
    if (strcmp(verdict, "error") == 0) {
        ck_assert_msg(err != PL_ERR_OK, "%s was read", name);
        ck_assert_int_eq(pl_err_exit_status(err), 5);
        ck_assert_str_eq(f.d.file, f.path);
        ck_assert_msg(line_is(line, f.d.line), "%s: line %llu: %s", name,
                      (unsigned long long)f.d.line, f.d.message);
    } else if (strcmp(verdict, "accept-or-error") != 0) {
        ck_assert_msg(err == PL_ERR_OK, "%s:%llu: %s", name, (unsigned long long)f.d.line,
                      f.d.message);
        bool warn = strcmp(verdict, "warn") == 0;
        bool told = strcmp(verdict, "told") == 0;
        snprintf(found, sizeof found, "%s:%s: 1 row with%s", f.path, line, warn ? "out" : " a key");
        ck_assert_uint_eq(pl_data_stats(f.data)->unsupervised_rows, warn);
        if (warn || told)
            ck_assert_msg(strstr(pl_text_str(&f.notes), found) != NULL, "%s",
                          pl_text_str(&f.notes));
        else
            ck_assert_str_eq(pl_text_str(&f.notes), "");
    }
    fixture_finish(&f);
}
END_TEST

static const struct {
    const char *file;
    uint32_t format;
    pl_err err;
    uint64_t column;
    const char *says, *hint;
} messages[] = {
    {"truncated_json.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 24, "raw newline", "one complete"},
    {"truncated_last_line.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 0, "at the end of the file",
     "truncated"},
    {"single_quotes.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 2, "single quotes", "Python"},
    {"python_literals.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 18, "`True`", "Python"},
    {"unquoted_key.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 2, "key without quotes", ""},
    {"comment_line.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 1, "comments", ""},
    {"leading_zero.jsonl", PL_FORMAT_TOKENS, PL_ERR_DATA_SYNTAX, 15, "leading zero", ""},
    {"bad_escape.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 14, "escape \\x", ""},
    {"bad_unicode_escape.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 10, "four hex digits", ""},
    {"raw_tab_in_string.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 11, "U+0009", ""},
    {"deep_nesting.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 0, "nested deeper", ""},
    /* F1 of formats.h */
    {"array_row.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_FIELD, 1, "is an array", ""},
    {"null_row.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_FIELD, 1, "is null", ""},
    {"invalid_utf8.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 13, "byte 0xE9", "latin1"},
    {"invalid_utf8_truncated_seq.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 10, "cut short", ""},
    {"overlong_utf8.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 10, "overlong", ""},
    {"utf8_surrogate_bytes.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 10, "surrogate", ""},
    {"utf8_above_10ffff.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 10, "U+10FFFF", ""},
    {"lone_surrogate.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 10, "high surrogate", ""},
    {"lone_low_surrogate.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 10, "low surrogate", ""},
    {"utf16le.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 1, "UTF-16", "iconv"},
    {"nul_bytes.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 11, "NUL byte", ""},
    {"nul_tail.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 1, "NUL byte", "crashed"},
    {"empty.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_EMPTY, 0, "empty", ""},
    {"blank_lines_only.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_EMPTY, 0, "no rows", ""},
    {"empty_array.json", PL_FORMAT_TEXT, PL_ERR_DATA_EMPTY, 0, "no rows", ""},
    {"array_unclosed.json", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 1, "not closed", "JSON array"},
    {"array_trailing_garbage.json", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 1, "closing bracket", ""},
    {"array_of_strings.json", PL_FORMAT_TEXT, PL_ERR_DATA_FIELD, 2, "is a string", ""},
    {"object_of_columns.json", PL_FORMAT_TEXT, PL_ERR_DATA_FIELD, 1, "one JSON object, not a list",
     "its members are columns"},
    {"gzip_named.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 0, "damaged", "again"},
    {"parquet_named.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 0, "Parquet file", ""},
    {"html_error_page.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 1, "HTML", "download"},
    {"lfs_pointer.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 1, "Git LFS", "git lfs pull"},
    {"trailing_comma.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 13, "trailing comma", ""},
    {"two_objects_one_line.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 13, "second value", ""},
    {"trailing_garbage.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 14, "xyz", ""},
    {"unknown_columns.jsonl", PL_FORMAT_AUTO, PL_ERR_DATA_FIELD, 1, "`question`, `answer`",
     "field_output: answer"},
    {"mixed_formats.jsonl", PL_FORMAT_AUTO, PL_ERR_DATA_FIELD, 1,
     "format messages, the file began as format text", "split"},
    /* F2 of formats.h, and so is `duplicate_keys` below */
    {"missing_key_output.jsonl", PL_FORMAT_ALPACA, PL_ERR_DATA_FIELD, 1, "`output` is missing", ""},
    {"wrong_type_list.jsonl", PL_FORMAT_ALPACA, PL_ERR_DATA_FIELD, 0, "`instruction` is an array",
     ""},
    {"messages_not_list.jsonl", PL_FORMAT_MESSAGES, PL_ERR_DATA_FIELD, 13,
     "`messages` is a string, expected an array", ""},
    {"messages_empty.jsonl", PL_FORMAT_MESSAGES, PL_ERR_DATA_FIELD, 14, "no messages", ""},
    {"messages_missing_role.jsonl", PL_FORMAT_MESSAGES, PL_ERR_DATA_FIELD, 15,
     "message 0 has no `role`", ""},
    {"messages_missing_content.jsonl", PL_FORMAT_MESSAGES, PL_ERR_DATA_FIELD, 0,
     "message 1 has no `content`", ""},
    {"messages_null_content.jsonl", PL_FORMAT_MESSAGES, PL_ERR_DATA_FIELD, 0,
     "message 1: `content` is null", ""},
    {"messages_unknown_role.jsonl", PL_FORMAT_MESSAGES, PL_ERR_DATA_FIELD, 0,
     "unknown role `robot`", "system, user, assistant"},
    {"messages_image_part.jsonl", PL_FORMAT_MESSAGES, PL_ERR_DATA_FIELD, 0,
     "type `image_url` is not text", ""},
    {"messages_tool_calls.jsonl", PL_FORMAT_MESSAGES, PL_ERR_DATA_FIELD, 0,
     "`tool_calls` is not supported", "tools"},
    {"messages_no_assistant.jsonl", PL_FORMAT_MESSAGES, PL_ERR_DATA_EMPTY, 0, "nothing to train on",
     ""},
    {"sharegpt_missing_value.jsonl", PL_FORMAT_SHAREGPT, PL_ERR_DATA_FIELD, 0,
     "turn 0 has no `value`", ""},
    {"sharegpt_unknown_from.jsonl", PL_FORMAT_SHAREGPT, PL_ERR_DATA_FIELD, 0,
     "unknown speaker `martian`", "human, gpt"},
    {"prompt_only.jsonl", PL_FORMAT_PROMPT_COMPLETION, PL_ERR_DATA_FIELD, 1,
     "`completion` is missing", ""},
    {"prompt_mixed_types.jsonl", PL_FORMAT_PROMPT_COMPLETION, PL_ERR_DATA_FIELD, 0,
     "`prompt` is a string but `completion` a list of messages", ""},
    {"missing_key_text.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_FIELD, 1, "nearest is `txt`", ""},
    {"wrong_type_null.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_FIELD, 9, "`text` is null", ""},
    {"duplicate_keys.jsonl", PL_FORMAT_TEXT, PL_ERR_DATA_FIELD, 0, "`text` twice", ""},
    {"ids_huge.jsonl", PL_FORMAT_TOKENS, PL_ERR_DATA_FIELD, 17, "id 1 is above", "tokenizer"},
    {"ids_2_32.jsonl", PL_FORMAT_TOKENS, PL_ERR_DATA_FIELD, 0, "id 1 is 4294967297", ""},
    {"ids_float.jsonl", PL_FORMAT_TOKENS, PL_ERR_DATA_FIELD, 17, "2.5", ""},
    {"ids_exponent.jsonl", PL_FORMAT_TOKENS, PL_ERR_DATA_FIELD, 17, "1e2", ""},
    {"ids_negative.jsonl", PL_FORMAT_TOKENS, PL_ERR_DATA_FIELD, 0, "id 1 is -1", ""},
    {"ids_string.jsonl", PL_FORMAT_TOKENS, PL_ERR_DATA_FIELD, 15, "id 0 is a string", ""},
    {"ids_nested.jsonl", PL_FORMAT_TOKENS, PL_ERR_DATA_FIELD, 15, "id 0 is an array", "batch"},
    {"labels_length.jsonl", PL_FORMAT_TOKENS, PL_ERR_DATA_FIELD, 31, "2 labels for 3", ""},
    {"labels_bad_value.jsonl", PL_FORMAT_TOKENS, PL_ERR_DATA_FIELD, 37, "label 1 is -5", ""},
};

START_TEST(a_message_says_what_is_wrong_and_at_which_byte) {
    struct fixture f;
    fixture_start(&f, messages[_i].format);
    snprintf(f.path, sizeof f.path, "%s/bad/%s", DATA, messages[_i].file);
    ck_assert_int_eq(fixture_open(&f), messages[_i].err);
    ck_assert_msg(strstr(f.d.message, messages[_i].says) != NULL, "%s: %s", messages[_i].file,
                  f.d.message);
    ck_assert_msg(strstr(pl_diag_hint_text(&f.d), messages[_i].hint) != NULL, "%s: %s",
                  messages[_i].file, pl_diag_hint_text(&f.d));
    if (messages[_i].column)
        ck_assert_msg(f.d.column == messages[_i].column, "%s: column %llu", messages[_i].file,
                      (unsigned long long)f.d.column);
    fixture_finish(&f);
}
END_TEST

/* CRC-32 of IEEE 802.3, bit by bit. */
static uint32_t crc32_of(const int32_t *bytes, uint64_t n) {
    uint32_t crc = UINT32_MAX;
    for (uint64_t i = 0; i < n; i++) {
        crc ^= (uint32_t)bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xEDB88320) : 0);
    }
    return ~crc;
}

static void open_good(struct fixture *f, const char *name, uint32_t format) {
    fixture_start(f, format);
    f->job.max_seq_length = 50000;
    snprintf(f->path, sizeof f->path, "%s/good/%s", DATA, name);
    pl_err err = fixture_open(f);
    ck_assert_msg(err == PL_ERR_OK, "%llu: %s", (unsigned long long)f->d.line, f->d.message);
    ck_assert_uint_eq(pl_data_rows(f->data), 20);
}

START_TEST(text_rows_become_their_bytes_and_eos) {
    static char want[ROWS_MAX][LINE];
    struct fixture f;
    struct pl_sample s = {0};
    ck_assert_int_eq(load_lines(DATA "/good/text.tsv", want), 20);
    open_good(&f, "text.jsonl", PL_FORMAT_AUTO);
    for (uint64_t row = 20; row-- > 0;) { /* any order */
        unsigned long bytes, crc;
        ck_assert_int_eq(sscanf(want[row], "%lu %lx", &bytes, &crc), 2);
        ck_assert_int_eq(pl_data_sample(f.data, row, &s, &f.d), PL_ERR_OK);
        ck_assert_uint_eq(s.n, bytes + 1);
        ck_assert_uint_eq(crc32_of(s.ids, bytes), crc);
        ck_assert_int_eq(s.ids[bytes], 500);
        ck_assert_mem_eq(s.ids, s.labels, s.n * sizeof *s.ids);
    }
    pl_sample_finish(&s);
    fixture_finish(&f);
}
END_TEST

START_TEST(token_rows_keep_ids_and_labels) {
    static char want[ROWS_MAX][LINE];
    struct fixture f;
    struct pl_sample s = {0};
    unsigned long total = 0, all_targets = 0;
    ck_assert_int_eq(load_lines(DATA "/good/tokens.tsv", want), 20);
    open_good(&f, "tokens.jsonl", PL_FORMAT_AUTO);
    for (uint64_t row = 0; row < 20; row++) {
        unsigned long ids, sum_ids, targets, sum_labels, got_ids = 0, got_labels = 0, got = 0;
        ck_assert_int_eq(
            sscanf(want[row], "%lu %lu %lu %lu", &ids, &sum_ids, &targets, &sum_labels), 4);
        ck_assert_int_eq(pl_data_sample(f.data, row, &s, &f.d), PL_ERR_OK);
        ck_assert_uint_eq(s.n, ids);
        for (uint64_t i = 0; i < s.n; i++) {
            bool masked = s.labels[i] == PL_LABEL_MASKED;
            got_ids += (unsigned long)s.ids[i];
            got_labels += masked ? 0 : (unsigned long)s.labels[i];
            got += i > 0 && !masked;
        }
        ck_assert_uint_eq(got_ids, sum_ids);
        ck_assert_uint_eq(got_labels, sum_labels);
        ck_assert_uint_eq(got, targets);
        total += ids;
        all_targets += targets;
    }
    const struct pl_data_stats *st = pl_data_stats(f.data);
    ck_assert_uint_eq(st->rows, 20);
    ck_assert_uint_eq(st->tokens, total);
    ck_assert_uint_eq(st->supervised_tokens, all_targets);
    ck_assert_uint_eq(st->longest, 4096);
    ck_assert_uint_eq(st->unsupervised_rows, 1);
    pl_sample_finish(&s);
    fixture_finish(&f);
}
END_TEST

static const struct {
    const char *json, *text;
    size_t n;
} strings[] = {
    {"\"a\\u0000b\"", "a\0b", 3},
    {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t", 8},
    {"\"\\uD83d\\uDe00\\u00e9\\u20AC\"", "\xF0\x9F\x98\x80\xC3\xA9\xE2\x82\xAC", 9},
    {"\"\xF4\x8F\xBF\xBF\x7F\"", "\xF4\x8F\xBF\xBF\x7F", 5},
};

START_TEST(strings_are_decoded_to_the_byte) {
    char row[128];
    struct fixture f;
    struct pl_sample s = {0};
    snprintf(row, sizeof row, "{\"text\":%s}\n{\"text\":\"some target\"}", strings[_i].json);
    fixture_rows(&f, PL_FORMAT_TEXT, row);
    ck_assert_int_eq(pl_data_sample(f.data, 0, &s, &f.d), PL_ERR_OK);
    ck_assert_uint_eq(s.n, strings[_i].n + 1);
    for (size_t i = 0; i < strings[_i].n; i++)
        ck_assert_int_eq(s.ids[i], (unsigned char)strings[_i].text[i]);
    pl_sample_finish(&s);
    fixture_finish(&f);
}
END_TEST

START_TEST(an_array_gives_the_rows_of_the_lines) {
    static const char *const arrays[] = {
        "[{\"text\":\"a[,]\\\"{\"},{\"text\":\"bb\"}]",
        " [\n  {\n    \"text\": \"a[,]\\\"{\"\n  } ,\n\n {\"x\":[{},[[]]],\"text\":\"bb\"}\r\n "
        "]\r\n",
        "\xEF\xBB\xBF[{\"text\":\"a[,]\\\"{\"},{\"text\":\"bb\"}]\n",
    };
    struct fixture f;
    struct pl_sample s = {0};
    fixture_rows(&f, PL_FORMAT_AUTO, arrays[_i]);
    ck_assert_uint_eq(pl_data_rows(f.data), 2);
    ck_assert_int_eq(pl_data_sample(f.data, 0, &s, &f.d), PL_ERR_OK);
    ck_assert_uint_eq(s.n, 7);
    ck_assert_int_eq(s.ids[5], '{');
    ck_assert_int_eq(pl_data_sample(f.data, 1, &s, &f.d), PL_ERR_OK);
    ck_assert_uint_eq(s.n, 3);
    pl_sample_finish(&s);
    fixture_finish(&f);
}
END_TEST

static const struct {
    const char *text;
    uint32_t format;
    pl_err err;
    uint64_t line, column;
    const char *says;
} broken[] = {
    {"[{\"text\":\"a\"},\n {\"text\":\n  7}]", PL_FORMAT_TEXT, PL_ERR_DATA_FIELD, 3, 3, "a number"},
    {"[{\"text\":\"a\"},\n]", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 2, 1, "trailing comma"},
    {"[{\"text\":\"a\"}\n{\"text\":\"b\"}]", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 2, 1,
     "second value"},
    {"[{\"text\":\"a\"}}]", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 1, 14, "after an element"},
    {"[{\"text\":\"a\"},,{\"text\":\"b\"}]", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 1, 15, "ends"},
    {"[{\"text\":\"a\n\"},{\"text\":\"b\"}]", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 1, 12,
     "unterminated"},
    {"[{\"text\":\"a\n},{\"text\":\"b\"}]", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 1, 12,
     "raw newline"},
    {"[{\"text\":\"a\"},{\"text\":\"b", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 1, 25,
     "end of the file"},
    {"[", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 1, 2, "ends"},
    {"{\"input_ids\":[1,2],\"labels\":[1,2,3]}", PL_FORMAT_AUTO, PL_ERR_DATA_FIELD, 1, 29,
     "3 labels for 2"},
    {"{\"labels\":[1,2]}", PL_FORMAT_TOKENS, PL_ERR_DATA_FIELD, 1, 1, "`input_ids` is missing"},
    {"{\"input_ids\":[1,2,]}", PL_FORMAT_TOKENS, PL_ERR_DATA_SYNTAX, 1, 19, "trailing comma"},
    {"{\"input_ids\":[1 2]}", PL_FORMAT_TOKENS, PL_ERR_DATA_SYNTAX, 1, 17, "`2` where"},
    {"{\"input_ids\":{}}", PL_FORMAT_TOKENS, PL_ERR_DATA_FIELD, 1, 14, "is an object"},
    {"{\"input_ids\":[1,1000]}", PL_FORMAT_TOKENS, PL_ERR_DATA_FIELD, 1, 0, "from 0 to 999"},
    {"{\"input_ids\":[1,2],\"labels\":[1,1000]}", PL_FORMAT_TOKENS, PL_ERR_DATA_FIELD, 1, 0,
     "or -100"},
    {"{\"t\\u0065xt\":\"a\",\"text\":\"b\"}", PL_FORMAT_TEXT, PL_ERR_DATA_FIELD, 1, 0, "twice"},
    {"{\"text\":\"a\",\"x\":{\"y\":tru}}", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 1, 22, "a value"},
    {"{\"text\":\"a\",\"x\":[1,2}", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 1, 21, "`]`"},
    {"{\"text\":\"a\",\"x\":-}", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 1, 18, "a digit"},
    {"{\"text\":\"a\",\"x\":1.}", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 1, 19, "a digit"},
    {"{\"text\":\"a\",\"x\":1e+}", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 1, 20, "a digit"},
    {"{\"text\" \"a\"}", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 1, 9, "`:`"},
    {"{\"text\":\"a\"}\n\xEF\xBB\xBF{\"text\":\"b\"}", PL_FORMAT_TEXT, PL_ERR_DATA_SYNTAX, 2, 1,
     "byte order mark"},
    {"{\"input_ids\":[1,2]}\n{\"text\":\"b\"}", PL_FORMAT_AUTO, PL_ERR_DATA_FIELD, 2, 1,
     "began as format tokens"},
    {"{\"input_ids\":[1,2],\"labels\":[-100,-100]}", PL_FORMAT_AUTO, PL_ERR_DATA_EMPTY, 0, 0,
     "nothing to train on"},
};

START_TEST(a_broken_row_is_named_by_line_and_column) {
    struct fixture f;
    fixture_start(&f, broken[_i].format);
    fixture_write(&f, broken[_i].text, strlen(broken[_i].text));
    pl_err err = fixture_open(&f);
    ck_assert_msg(err == broken[_i].err, "%s: %s", broken[_i].text, f.d.message);
    ck_assert_msg(strstr(f.d.message, broken[_i].says) != NULL, "%s: %s", broken[_i].text,
                  f.d.message);
    ck_assert_msg(f.d.line == broken[_i].line, "%s: line %llu", broken[_i].text,
                  (unsigned long long)f.d.line);
    if (broken[_i].column)
        ck_assert_msg(f.d.column == broken[_i].column, "%s: column %llu: %s", broken[_i].text,
                      (unsigned long long)f.d.column, f.d.message);
    ck_assert_ptr_null(f.data);
    fixture_finish(&f);
}
END_TEST

START_TEST(nesting_is_accepted_up_to_its_limit) {
    char row[2 * PL_SCAN_DEPTH + 64];
    for (int extra = 0; extra < 2; extra++) {
        struct fixture f;
        int depth = PL_SCAN_DEPTH + extra;
        fixture_start(&f, PL_FORMAT_TEXT);
        size_t n = (size_t)snprintf(row, sizeof row, "{\"text\":\"ab\",\"x\":");
        memset(row + n, '[', (size_t)depth);
        memset(row + n + depth, ']', (size_t)depth);
        row[n + 2 * (size_t)depth] = '}';
        fixture_write(&f, row, n + 2 * (size_t)depth + 1);
        ck_assert_int_eq(fixture_open(&f), extra ? PL_ERR_DATA_SYNTAX : PL_ERR_OK);
        fixture_finish(&f);
    }
}
END_TEST

#define LONG 5000000

START_TEST(a_line_of_5_megabytes_is_one_row) {
    struct fixture f;
    struct pl_sample s = {0};
    char *row = malloc(LONG + 32);
    ck_assert_ptr_nonnull(row);
    size_t n = (size_t)sprintf(row, "{\"text\":\"");
    for (int i = 0; i < LONG; i++)
        row[n++] = (char)('0' + i % 10);
    n += (size_t)sprintf(row + n, "\"}\n");
    fixture_start(&f, PL_FORMAT_TEXT);
    f.job.max_seq_length = LONG + 1;
    fixture_write(&f, row, n);
    ck_assert_int_eq(fixture_open(&f), PL_ERR_OK);
    ck_assert_int_eq(pl_data_sample(f.data, 0, &s, &f.d), PL_ERR_OK);
    ck_assert_uint_eq(s.n, LONG + 1);
    ck_assert_uint_eq(crc32_of(s.ids, LONG), 0xb57923c4);
    pl_sample_finish(&s);
    fixture_finish(&f);
    fixture_write(&f, row, n - 3);
    ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_SYNTAX);
    ck_assert_msg(strstr(f.d.message, "unterminated string") != NULL, "%s", f.d.message);
    ck_assert_uint_eq(f.d.line, 1);
    ck_assert_uint_lt(strlen(f.d.message), 120);
    fixture_finish(&f);
    free(row);
}
END_TEST

/* 3 + eos, 7 + eos and 1 + eos tokens. */
static const char three_rows[] = "{\"text\":\"abc\"}\n{\"text\":\"abcdefg\"}\n{\"text\":\"x\"}\n";

START_TEST(longer_rows_are_cut_when_told_to) {
    struct fixture f;
    struct pl_sample s = {0};
    fixture_rows(&f, PL_FORMAT_TEXT, three_rows);
    f.job.max_seq_length = 5;
    ck_assert_int_eq(fixture_open(&f), PL_ERR_OK);
    const struct pl_data_stats *st = pl_data_stats(f.data);
    ck_assert_uint_eq(st->rows, 3);
    ck_assert_uint_eq(st->truncated_rows, 1);
    ck_assert_uint_eq(st->tokens, 4 + 5 + 2);
    ck_assert_uint_eq(st->supervised_tokens, 3 + 4 + 1);
    ck_assert_uint_eq(st->longest, 5);
    ck_assert_ptr_nonnull(strstr(pl_text_str(&f.notes), ":2: 1 row longer"));
    ck_assert_int_eq(pl_data_sample(f.data, 1, &s, &f.d), PL_ERR_OK);
    ck_assert_uint_eq(s.n, 5);
    ck_assert_int_eq(s.ids[4], 'e');
    pl_sample_finish(&s);
    fixture_finish(&f);
}
END_TEST

START_TEST(longer_rows_leave_the_list_when_dropped) {
    struct fixture f;
    struct pl_sample s = {0};
    fixture_rows(&f, PL_FORMAT_TEXT, three_rows);
    f.job.max_seq_length = 5;
    f.job.overlength = PL_OVERLENGTH_DROP;
    ck_assert_int_eq(fixture_open(&f), PL_ERR_OK);
    ck_assert_uint_eq(pl_data_rows(f.data), 2);
    ck_assert_uint_eq(pl_data_stats(f.data)->rows, 2);
    ck_assert_uint_eq(pl_data_stats(f.data)->dropped_rows, 1);
    ck_assert_int_eq(pl_data_sample(f.data, 1, &s, &f.d), PL_ERR_OK);
    ck_assert_int_eq(s.ids[0], 'x');
    ck_assert_int_ne(pl_data_sample(f.data, 2, &s, &f.d), PL_ERR_OK);
    f.job.max_seq_length = 1;
    ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_EMPTY);
    pl_sample_finish(&s);
    fixture_finish(&f);
}
END_TEST

START_TEST(longer_rows_stop_the_run_when_told_to) {
    struct fixture f;
    fixture_rows(&f, PL_FORMAT_TEXT, three_rows);
    f.job.overlength = PL_OVERLENGTH_ERROR;
    f.job.max_seq_length = 8;
    ck_assert_int_eq(fixture_open(&f), PL_ERR_OK);
    f.job.max_seq_length = 7;
    ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_FIELD);
    ck_assert_uint_eq(f.d.line, 2);
    ck_assert_ptr_nonnull(strstr(f.d.message, "8 tokens"));
    fixture_finish(&f);
}
END_TEST

START_TEST(a_model_without_eos_ends_rows_with_their_text) {
    struct fixture f;
    struct pl_sample s = {0};
    fixture_rows(&f, PL_FORMAT_TEXT, three_rows);
    f.model.n_eos = 0;
    ck_assert_int_eq(fixture_open(&f), PL_ERR_OK);
    ck_assert_uint_eq(pl_data_stats(f.data)->tokens, 3 + 7 + 1);
    ck_assert_uint_eq(pl_data_stats(f.data)->unsupervised_rows, 1);
    ck_assert_ptr_nonnull(strstr(pl_text_str(&f.notes), ":3: 1 row without"));
    ck_assert_int_eq(pl_data_sample(f.data, 2, &s, &f.d), PL_ERR_OK);
    ck_assert_uint_eq(s.n, 1);
    f.model.vocab = 100;
    ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_FIELD);
    ck_assert_ptr_nonnull(strstr(f.d.message, "token 100 is outside"));
    pl_sample_finish(&s);
    fixture_finish(&f);
}
END_TEST

START_TEST(text_needs_a_known_tokenizer_and_tokens_none) {
    struct fixture f;
    fixture_rows(&f, PL_FORMAT_AUTO, three_rows);
    f.job.tokenizer = NULL;
    ck_assert_int_eq(fixture_open(&f), PL_ERR_TOKENIZER_FILE);
    f.job.tokenizer = (char *)(uintptr_t) "sentencepiece";
    ck_assert_int_eq(fixture_open(&f), PL_ERR_TOKENIZER_FILE);
    ck_assert_ptr_nonnull(strstr(f.d.file, "sentencepiece"));
    fixture_finish(&f);
    fixture_rows(&f, PL_FORMAT_AUTO, "{\"input_ids\":[1,2]}");
    f.job.tokenizer = NULL;
    ck_assert_int_eq(fixture_open(&f), PL_ERR_OK);
    fixture_finish(&f);
}
END_TEST

START_TEST(several_files_are_one_list_of_rows) {
    struct fixture a, b;
    struct pl_sample s = {0};
    fixture_rows(&a, PL_FORMAT_TEXT, three_rows);
    fixture_rows(&b, PL_FORMAT_TOKENS, "{\"labels\":[-100,9],\"input_ids\":[7,8]}");
    struct pl_dataset sets[] = {a.set, b.set};
    a.list = (struct pl_dataset_list){sets, 2};
    ck_assert_int_eq(fixture_open(&a), PL_ERR_OK);
    ck_assert_uint_eq(pl_data_rows(a.data), 4);
    ck_assert_int_eq(pl_data_sample(a.data, 3, &s, &a.d), PL_ERR_OK);
    ck_assert_uint_eq(s.n, 2);
    ck_assert_int_eq(s.ids[0], 7);
    ck_assert_int_eq(s.labels[0], PL_LABEL_MASKED);
    ck_assert_int_eq(s.labels[1], 9);
    ck_assert_int_eq(pl_data_sample(a.data, 0, &s, &a.d), PL_ERR_OK);
    ck_assert_int_eq(s.ids[0], 'a');
    pl_sample_finish(&s);
    fixture_finish(&a);
    fixture_finish(&b);
}
END_TEST

START_TEST(a_file_that_cannot_be_read_points_at_the_configuration) {
    struct fixture f;
    fixture_start(&f, PL_FORMAT_TEXT);
    f.job.path = (char *)(uintptr_t) "run.yaml";
    f.set.line = 7;
    snprintf(f.path, sizeof f.path, "/nonexistent.jsonl");
    ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_FILE);
    ck_assert_str_eq(f.d.file, "run.yaml");
    ck_assert_uint_eq(f.d.line, 7);
    snprintf(f.path, sizeof f.path, "%s", DATA "/..");
    ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_FILE);
    ck_assert_ptr_nonnull(strstr(f.d.message, "no data file in the directory"));
    ck_assert_ptr_nonnull(strstr(f.d.hint, ".jsonl, .json, .csv or .parquet"));
    fixture_write(&f, "", 0);
    ck_assert_int_eq(unlink(f.path), 0);
    ck_assert_int_eq(mkfifo(f.path, 0600), 0);
    ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_FILE);
    fixture_finish(&f);
}
END_TEST

START_TEST(a_file_changed_under_way_is_noticed) {
    struct fixture f;
    struct pl_sample s = {0};
    fixture_rows(&f, PL_FORMAT_TEXT, three_rows);
    ck_assert_int_eq(pl_data_sample(f.data, 1, &s, &f.d), PL_ERR_OK);
    ck_assert_int_eq(truncate(f.path, 20), 0);
    /* the bytes of row 1 are still in the buffer of the reader */
    ck_assert_int_eq(pl_data_sample(f.data, 1, &s, &f.d), PL_ERR_DATA_FILE);
    ck_assert_int_eq(pl_data_sample(f.data, 0, &s, &f.d), PL_ERR_OK);
    int fd = open(f.path, O_WRONLY);
    ck_assert_int_eq(pwrite(fd, "[", 1, 0), 1);
    ck_assert_int_eq(close(fd), 0);
    f.d = (struct pl_diag){0};
    ck_assert_int_eq(pl_data_sample(f.data, 0, &s, &f.d), PL_ERR_DATA_FILE);
    ck_assert_ptr_nonnull(strstr(f.d.message, "changed"));
    ck_assert_uint_eq(s.n, 0);
    pl_sample_finish(&s);
    fixture_finish(&f);
}
END_TEST

START_TEST(quoted_input_is_short_and_printable) {
    char shown[PL_SHOWN];
    char text[200];
    ck_assert_str_eq(pl_scan_show("a\tb\x7F", 4, shown), "a?b?");
    memset(text, 'x', sizeof text);
    memcpy(text + 59, "\xE2\x82\xAC", 3);
    pl_scan_show(text, sizeof text, shown);
    ck_assert_uint_eq(strlen(shown), 59 + 3);
    ck_assert_str_eq(shown + 59, "...");
}
END_TEST

#define N(a) ((int)(sizeof(a) / sizeof *(a)))

/* A sparse file: nothing of it is on the disk. */
START_TEST(a_file_without_line_ends_is_not_taken_for_a_row) {
    struct fixture f;
    static const char *const starts[] = {"{\"text\": \"", "[{\"text\": [1, 2"};
    fixture_start(&f, PL_FORMAT_TEXT);
    fixture_write(&f, starts[_i], strlen(starts[_i]));
    ck_assert_int_eq(truncate(f.path, (off_t)PL_ROW_MOST_BYTES + (4 << 20)), 0);
    ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_SYNTAX);
    ck_assert_msg(strstr(f.d.message, "the row is above 256 MiB"), "%s", f.d.message);
    ck_assert_uint_eq(f.d.line, 1);
    fixture_finish(&f);
}
END_TEST

int main(void) {
    n_tsv = load_lines(DATA "/bad/expected.tsv", tsv);
    if (n_tsv != 90) return 1; /* a lost table would make loops of zero tests pass */
    Suite *suite = suite_create("data");
    TCase *t = tcase_create("files");
    tcase_set_timeout(t, 60); /* a file of 256 MiB is read, by sanitized programs as well */
    tcase_add_loop_test(t, every_odd_file_meets_its_verdict_and_line, 0, n_tsv);
    tcase_add_loop_test(t, a_message_says_what_is_wrong_and_at_which_byte, 0, N(messages));
    tcase_add_test(t, text_rows_become_their_bytes_and_eos);
    tcase_add_test(t, token_rows_keep_ids_and_labels);
    tcase_add_loop_test(t, strings_are_decoded_to_the_byte, 0, N(strings));
    tcase_add_loop_test(t, an_array_gives_the_rows_of_the_lines, 0, 3);
    tcase_add_loop_test(t, a_broken_row_is_named_by_line_and_column, 0, N(broken));
    tcase_add_test(t, nesting_is_accepted_up_to_its_limit);
    tcase_add_test(t, a_line_of_5_megabytes_is_one_row);
    tcase_add_test(t, longer_rows_are_cut_when_told_to);
    tcase_add_test(t, longer_rows_leave_the_list_when_dropped);
    tcase_add_test(t, longer_rows_stop_the_run_when_told_to);
    tcase_add_test(t, a_model_without_eos_ends_rows_with_their_text);
    tcase_add_test(t, text_needs_a_known_tokenizer_and_tokens_none);
    tcase_add_test(t, several_files_are_one_list_of_rows);
    tcase_add_test(t, a_file_that_cannot_be_read_points_at_the_configuration);
    tcase_add_test(t, a_file_changed_under_way_is_noticed);
    tcase_add_test(t, quoted_input_is_short_and_printable);
    tcase_add_loop_test(t, a_file_without_line_ends_is_not_taken_for_a_row, 0, 2);
    suite_add_tcase(suite, t);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
