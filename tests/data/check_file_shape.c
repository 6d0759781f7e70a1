/* check_file_shape.c - files of JSON that hold their rows in another shape: read, or said as what
 * they are with the command that makes rows of them, which is run. */
#include "tests/data/fixture.h"
#include "tests/support/scratch.h"

#include <zlib.h>

#define COUNT(a)            ((int)(sizeof(a) / sizeof *(a)))
#define MESSAGE(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"
#define CHAT                "[" MESSAGE("user", "q") "," MESSAGE("assistant", "z") "]"
#define CHATML              "user\nq<|im_end|>\n<|im_start|>assistant\nz<"

static char dir[SCRATCH_PATH];

static void make(void) {
    scratch_make(dir);
}
static void unmake(void) {
    scratch_remove(dir);
}

static void expect_sample(struct fixture *f, uint64_t rows, const char *shows) {
    struct pl_sample s = {0};
    char buf[2048];
    pl_err err = fixture_open(f);
    ck_assert_msg(err == PL_ERR_OK, "%s", f->d.message);
    ck_assert_uint_eq(pl_data_rows(f->data), rows);
    ck_assert_int_eq(pl_data_sample(f->data, rows - 1, &s, &f->d), PL_ERR_OK);
    ck_assert_msg(strstr(fixture_show(&s, false, buf), shows), "%s", buf);
    pl_sample_finish(&s);
}

static const struct {
    const char *text;
    uint64_t rows;
    const char *shows; /* a part of the last sample */
} readable[] = {
    {"{\n  \"conversations\": [\n    {\"from\": \"human\", \"value\": \"q\"},\n    {\"from\": "
     "\"gpt\", "
     "\"value\": \"z\"}\n  ]\n}\n",
     1, CHATML},
    {"{\n  \"text\": \"a\"\n}\n{\n  \"text\": \"z\"\n}\n", 2, "z$"},
    {"{\n\"text\": \"a\"}\r\n{\"text\": \"b\"}\r\n\r\n{\r\n \"text\": \"}{z\"}", 3, "}{z$"},
    {"\xEF\xBB\xBF{\n\"text\":\"z\"}", 1, "z$"},
    {"[\n{\"text\":\"a\"},\n{\"text\":\"z\"}]", 2, "z$"},
};

START_TEST(objects_of_several_lines_are_rows) {
    struct fixture f;
    fixture_start(&f, PL_FORMAT_AUTO);
    snprintf(f.path, sizeof f.path, "%s/a.json", dir);
    file_write(f.path, readable[_i].text);
    expect_sample(&f, readable[_i].rows, readable[_i].shows);
    fixture_finish(&f);
}
END_TEST

static const char one_object[] = "one JSON object, not a list of rows";
static const char string[] = "the row is JSON that was written as a string";

static const struct {
    const char *file, *text, *says;
    uint64_t rows; /* that the command makes */
    const char *shows;
} others[] = {
    {"a.json", "{\n \"prompt\": [\"a\", \"q\"],\n \"completion\": [\"b\", \"z\"]\n}\n", one_object,
     2, "qz$"},
    {"a.json", "{\"text\":[\"a\",\"z\"]}", one_object, 2, "z$"},
    {"a.json", "{\"id\":[1,2],\"text\":[\"a\",\"z\"]}", one_object, 2, "z$"},
    {"a.json", "{\"messages\":[" CHAT "," CHAT "]}", one_object, 2, CHATML},
    {"a.json", "{\"prompt\":{\"0\":\"a\",\"1\":\"q\"},\"completion\":{\"0\":\"b\",\"1\":\"z\"}}",
     one_object, 2, "qz$"},
    {"a.json", "{\"0\":{\"text\":\"a\"},\"1\":{\"text\":\"z\"}}", one_object, 2, "z$"},
    {"a.json", "{\n\"x-1\":{\"text\":\"a\"},\n\"x-2\":{\"text\":\"z\"}}", one_object, 2, "z$"},
    {"a.json", "{\n\"data\": [\n{\"text\":\"a\"},\n{\"text\":\"z\"}]}\n", one_object, 2, "z$"},
    {"a.jsonl", "{\"version\":\"1\",\"train\":[{\"text\":\"a\"},{\"text\":\"z\"}],\"test\":[]}",
     one_object, 2, "z$"},
    {"a.json", "{\"columns\":[\"id\",\"text\"],\"index\":[0,1],\"data\":[[1,\"a\"],[2,\"z\"]]}",
     one_object, 2, "z$"},
    {"a b.jsonl", "\"{\\\"text\\\":\\\"a\\\"}\"\n\"{\\\"text\\\":\\\"z\\\"}\"\n", string, 2, "z$"},
    {"a.json", "[\"{\\\"text\\\":\\\"z\\\"}\"]", string, 1, "z$"},
    {"a.jsonl", "\"a\"\n\"z\"\n", "the row is a string", 2, "z$"},
    {"a.json", "[\"a\",\"z\"]", "the row is a string", 2, "z$"},
    {"a.txt", "alpha\nzeta\n", "`a` where a value is expected", 2, "zeta$"},
    {"a.json", "[" CHAT "]", "the row is an array", 1, CHATML},
    {"a.json", CHAT, "the row is a message of a conversation", 1, CHATML},
    {"a.jsonl", CHAT "\n" CHAT "\n", "the row is a message of a conversation", 2, CHATML},
    {"a.jsonl", "[{\"text\":\"a\"}]\n[{\"text\":\"z\"}]\n", "text after the closing bracket", 2,
     "z$"},
    {"a.json.gz", "{\"text\":[\"a\",\"z\"]}", one_object, 2, "z$"},
    {"a.json", "{\n\"id\":1,\"row\":{\"text\":\"a\"}}\n{\n\"id\":2,\"row\":{\"text\":\"z\"}}\n",
     "not recognised", 2, "z$"},
};

static void write_file(const char *path, const char *text) {
    const size_t n = strlen(path);
    if (strcmp(path + n - 3, ".gz") != 0) {
        file_write(path, text);
        return;
    }
    gzFile f = gzopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(gzwrite(f, text, (unsigned)strlen(text)), (int)strlen(text));
    ck_assert_int_eq(gzclose(f), Z_OK);
}

/* W1 of row_command.h. The command of the hint writes rows.jsonl in the directory where it
 * runs. */
START_TEST(the_command_of_the_hint_makes_rows) {
    struct fixture f;
    fixture_start(&f, PL_FORMAT_AUTO);
    snprintf(f.path, sizeof f.path, "%s/%s", dir, others[_i].file);
    write_file(f.path, others[_i].text);
    pl_err err = fixture_open(&f);
    ck_assert_msg(err == PL_ERR_DATA_FIELD || err == PL_ERR_DATA_SYNTAX, "%s", f.d.message);
    ck_assert_msg(strstr(f.d.message, others[_i].says), "%s", f.d.message);
    const char *hint = pl_diag_hint_text(&f.d);
    const char *packed = strstr(hint, "gzip -dc"),
               *command = packed ? packed : strstr(hint, "python3 -c");
    ck_assert_msg(command != NULL, "%s", hint);
    if (system("python3 -c pass 2>/dev/null") == 0) {
        ck_assert_int_eq(system(textf("cd %s && %s", dir, command)), 0);
        snprintf(f.path, sizeof f.path, "%s/rows.jsonl", dir);
        expect_sample(&f, others[_i].rows, others[_i].shows);
    }
    fixture_finish(&f);
}
END_TEST

/* Columns of texts need nothing of conversations. */
START_TEST(columns_are_said_without_a_template) {
    struct fixture f;
    fixture_start(&f, PL_FORMAT_AUTO);
    f.job.chat_template.choice = PL_CHAT_TEMPLATE_AUTO;
    fixture_write(&f, others[0].text, strlen(others[0].text));
    ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_FIELD);
    ck_assert_str_eq(f.d.message, one_object);
    fixture_finish(&f);
}
END_TEST

static const struct {
    const char *text, *says, *hint;
} named[] = {
    {"{\"error\":\"Repository not found\"}", "the answer of a server", "download"},
    {"{\"message\":\"Not Found\",\"status\":\"404\"}", "the answer of a server", "download"},
    {"{\"detail\":\"Not authenticated\"}", "the answer of a server", "download"},
    {"{\"splits\":[\"train\"]}", "a description of a dataset", "load_from_disk"},
    {"{\n \"_data_files\":[{\"filename\":\"a.arrow\"}],\n \"_split\":null}",
     "a description of a dataset", "load_from_disk"},
    {"prompt,completion\na,b\n", "where a value is expected", "ends in .csv"},
    {"\"prompt\",\"completion\"\n\"a\",\"b\"\n", "the row is a string", "ends in .csv"},
    /* rows of known formats keep what is said of them */
    {"{\"messages\":" CHAT ",\"tools\":[{\"a\":1}]}", "`tools` is not supported",
     "named templates"},
    {"{\"labels\":[1,2]}", "the format is not recognised", "formats by their keys"},
    {"{\"text\":[\"a\"]}\n{\"text\":[\"b\"]}\n", "`text` is an array", "one object per row"},
    {"{\n\"text\": \"a\",\n\"text\": \"b\"}", "twice", "keep one"},
    {"{\n\"text\": \"a\"\n\"id\": 1}", "where `,` or `}` is expected", ""},
};

/* S1 of file_shape.h */
START_TEST(what_a_file_is_and_is_not_is_said) {
    struct fixture f;
    fixture_start(&f, PL_FORMAT_AUTO);
    fixture_write(&f, named[_i].text, strlen(named[_i].text));
    ck_assert_int_ne(fixture_open(&f), PL_ERR_OK);
    ck_assert_msg(strstr(f.d.message, named[_i].says), "%s", f.d.message);
    ck_assert_msg(strstr(pl_diag_hint_text(&f.d), named[_i].hint), "%s", pl_diag_hint_text(&f.d));
    fixture_finish(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("file shape");
    TCase *t = tcase_create("file shape");
    tcase_add_checked_fixture(t, make, unmake);
    tcase_add_loop_test(t, objects_of_several_lines_are_rows, 0, COUNT(readable));
    tcase_add_loop_test(t, the_command_of_the_hint_makes_rows, 0, COUNT(others));
    tcase_add_test(t, columns_are_said_without_a_template);
    tcase_add_loop_test(t, what_a_file_is_and_is_not_is_said, 0, COUNT(named));
    suite_add_tcase(suite, t);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
