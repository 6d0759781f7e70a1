/* check_files.c - data files that are packed, CSV, many, or of a kind that is answered with the
 * command that converts them. */
#include "runtime/data/data_state.h"
#include "tests/data/fixture.h"
#include "tests/support/scratch.h"

#include <sys/stat.h>

#define FILES DATA "/files/"

static pl_err open_path(struct fixture *f, const char *path) {
    fixture_start(f, PL_FORMAT_AUTO);
    snprintf(f->path, sizeof f->path, "%s", path);
    return fixture_open(f);
}

/* The texts of all rows, one after the other. */
static const char *all_rows(struct fixture *f, char all[2048]) {
    struct pl_sample s = {0};
    char buf[2048];
    size_t n = 0;
    all[0] = 0;
    for (uint64_t row = 0; row < pl_data_rows(f->data); row++) {
        ck_assert_int_eq(pl_data_sample(f->data, row, &s, &f->d), PL_ERR_OK);
        n += (size_t)snprintf(all + n, 2048 - n, "%s", fixture_show(&s, false, buf));
    }
    pl_sample_finish(&s);
    return all;
}

static const struct {
    const char *path, *rows;
    uint32_t files;
} texts[] = {
    {FILES "two.jsonl.gz", "ab$cd$", 1},      {FILES "twice.jsonl.gz", "ab$cd$ab$cd$", 1},
#if PL_TEST_ZSTD
    {FILES "two.jsonl.zst", "ab$cd$", 1},     {FILES "twice.jsonl.zst", "ab$cd$ab$cd$", 1},
    {FILES "two.jsonl.*", "ab$cd$ab$cd$", 2},
#endif
    {FILES "dir", "two$one$three$", 3},       {FILES "dir/", "two$one$three$", 3},
    {FILES "dir/[ac].*", "two$three$", 2},    {FILES "dir/b.jso?l", "one$", 1},
};

START_TEST(packed_files_directories_and_patterns_are_read) {
    struct fixture f;
    char all[2048];
    pl_err err = open_path(&f, texts[_i].path);
    ck_assert_msg(err == PL_ERR_OK, "%s: %s", texts[_i].path, f.d.message);
    ck_assert_str_eq(all_rows(&f, all), texts[_i].rows);
    ck_assert_uint_eq(pl_data_files(f.data), texts[_i].files);
    fixture_finish(&f);
}
END_TEST

/* The first rows of an entry, over all of its files; blanks and what comes after are not read. */
static const struct {
    const char *path;
    uint64_t most;
    const char *rows;
} parts[] = {
    {FILES "dir", 1, "two$"},           {FILES "dir", 2, "two$one$"},
    {FILES "dir", 3, "two$one$three$"}, {FILES "dir", 1000, "two$one$three$"},
    {FILES "two.jsonl.gz", 1, "ab$"},   {FILES "twice.jsonl.gz", 3, "ab$cd$ab$"},
};

START_TEST(the_first_rows_of_an_entry_are_read) {
    struct fixture f;
    char all[2048];
    fixture_start(&f, PL_FORMAT_AUTO);
    snprintf(f.path, sizeof f.path, "%s", parts[_i].path);
    f.set.max_samples = parts[_i].most;
    ck_assert_msg(fixture_open(&f) == PL_ERR_OK, "%s", f.d.message);
    ck_assert_str_eq(all_rows(&f, all), parts[_i].rows);
    fixture_finish(&f);
}
END_TEST

/* A part of the rows of an entry, over all of its files, and the first ones of the part. */
static const struct {
    const char *path, *slice;
    uint64_t most;
    const char *rows;
} slices[] = {
    {FILES "dir", "[1:]", 0, "one$three$"},
    {FILES "dir", "[1:2]", 0, "one$"},
    {FILES "dir", "[2:]", 0, "three$"},
    {FILES "dir", "[-2:]", 0, "one$three$"},
    {FILES "dir", "[:-1]", 0, "two$one$"},
    {FILES "dir", "[:50%]", 0, "two$one$"},
    {FILES "dir", "[50%:]", 0, "three$"},
    {FILES "dir", "[:2]", 0, "two$one$"},
    {FILES "dir", "[:2]", 1, "two$"},
    {FILES "dir", "[1:]", 1, "one$"},
    {FILES "dir", "[:1]", 2, "two$"},
    {FILES "twice.jsonl.gz", "[1:3]", 0, "cd$ab$"},
    {FILES "twice.jsonl.gz", "[-25%:]", 0, "cd$"},
    {FILES "twice.jsonl.gz", "[25%:]", 2, "cd$ab$"},
    {FILES "rows.csv", "[1:]", 0, "<  q2>$<r>s$"},
    {FILES "rows.csv.gz", "[:33%]", 0, "<a \"q\", yes>line 1\nline 2\\$"},
};

static void take_slice(struct pl_dataset *set, const char *text) {
    const char *hint;
    ck_assert_ptr_null(pl_row_slice_parse(text, &set->slice, &hint));
}

/* A1 of shares.h */
START_TEST(a_slice_of_an_entry_is_read) {
    struct fixture f;
    char all[2048];
    fixture_start(&f, PL_FORMAT_AUTO);
    snprintf(f.path, sizeof f.path, "%s", slices[_i].path);
    if (strstr(f.path, "csv")) {
        f.set.columns.name[PL_COLUMN_PROMPT_FORMAT] = (char *)(uintptr_t) "<{question}>";
        f.set.columns.name[PL_COLUMN_OUTPUT] = (char *)(uintptr_t) "answer";
    }
    take_slice(&f.set, slices[_i].slice);
    f.set.max_samples = slices[_i].most;
    ck_assert_msg(fixture_open(&f) == PL_ERR_OK, "%s", f.d.message);
    ck_assert_str_eq(all_rows(&f, all), slices[_i].rows);
    fixture_finish(&f);
}
END_TEST

/* K1 of data_content.h */
START_TEST(counting_the_rows_of_a_packed_file_unpacks_it_once) {
    struct fixture f;
    uint64_t bytes = 0;
    for (int i = 0; i < 2; i++) {
        fixture_start(&f, PL_FORMAT_AUTO);
        snprintf(f.path, sizeof f.path, "%s", FILES "twice.jsonl.gz");
        if (i) take_slice(&f.set, "[50%:]");
        ck_assert_msg(fixture_open(&f) == PL_ERR_OK, "%s", f.d.message);
        if (i) ck_assert_uint_eq(f.data->unpacked.bytes, bytes);
        bytes = f.data->unpacked.bytes;
        fixture_finish(&f);
    }
    ck_assert_uint_gt(bytes, 0);
}
END_TEST

/* A damaged row outside of the slice is no reason to refuse the file. */
START_TEST(rows_outside_of_a_slice_are_not_parsed) {
    struct fixture f;
    char all[2048];
    static const char text[] =
        "{\"text\":\"a\"}\nno row\n{\"text\":\"b\"}\n{\"text\":\"c\"}\nno row\n";
    fixture_start(&f, PL_FORMAT_TEXT);
    fixture_write(&f, text, strlen(text));
    take_slice(&f.set, "[2:-1]");
    ck_assert_msg(fixture_open(&f) == PL_ERR_OK, "%s", f.d.message);
    ck_assert_str_eq(all_rows(&f, all), "b$c$");
    take_slice(&f.set, "[2:]");
    ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_SYNTAX);
    ck_assert_uint_eq(f.d.line, 5);
    take_slice(&f.set, "[1:]");
    ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_SYNTAX);
    ck_assert_uint_eq(f.d.line, 2);
    fixture_finish(&f);
}
END_TEST

START_TEST(a_slice_without_rows_points_at_its_entry) {
    struct fixture f;
    static const char text[] = "{\"text\":\"a\"}\n{\"text\":\"b\"}\n";
    static const char *const none[] = {"[2:]", "[:10%]", "[-10%:]", "[1:-1]"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        fixture_start(&f, PL_FORMAT_TEXT);
        fixture_write(&f, text, strlen(text));
        f.job.path = (char *)(uintptr_t) "job.yaml";
        f.set.line = 7;
        f.set.column = 11;
        take_slice(&f.set, none[i]);
        ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_EMPTY);
        ck_assert_str_eq(f.d.file, "job.yaml");
        ck_assert_uint_eq(f.d.line, 7);
        ck_assert_msg(strstr(f.d.message, "takes none of the 2 rows"), "%s", f.d.message);
        fixture_finish(&f);
    }
}
END_TEST

/* Each entry has rows of its own, and what is damaged after them is not seen. */
START_TEST(entries_do_not_share_their_rows) {
    struct fixture f;
    char all[2048];
    static const char text[] = "{\"text\":\"a\"}\n{\"text\":\"b\"}\nno row\n";
    fixture_start(&f, PL_FORMAT_TEXT);
    fixture_write(&f, text, strlen(text));
    struct pl_dataset two[2] = {f.set, f.set};
    two[0].max_samples = 1;
    two[1].max_samples = 2;
    f.list = (struct pl_dataset_list){two, 2};
    ck_assert_msg(fixture_open(&f) == PL_ERR_OK, "%s", f.d.message);
    ck_assert_str_eq(all_rows(&f, all), "a$a$b$");
    two[1].max_samples = 3;
    ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_SYNTAX);
    fixture_finish(&f);
}
END_TEST

/* The rows of a file are counted before any is left out. */
START_TEST(a_row_that_is_dropped_is_one_of_the_first) {
    struct fixture f;
    char all[2048];
    static const char text[] = "{\"text\":\"a\"}\n{\"text\":\"too long\"}\n{\"text\":\"b\"}\n";
    fixture_start(&f, PL_FORMAT_TEXT);
    fixture_write(&f, text, strlen(text));
    f.job.max_seq_length = 4;
    f.job.overlength = PL_OVERLENGTH_DROP;
    f.set.max_samples = 2;
    ck_assert_msg(fixture_open(&f) == PL_ERR_OK, "%s", f.d.message);
    ck_assert_str_eq(all_rows(&f, all), "a$");
    fixture_finish(&f);
}
END_TEST

static const char *const csv[] = {FILES "rows.csv", FILES "rows.csv.gz"};

START_TEST(rows_of_csv_are_rows) {
    struct fixture f;
    char all[2048];
    fixture_start(&f, PL_FORMAT_AUTO);
    f.set.columns.name[PL_COLUMN_PROMPT_FORMAT] = (char *)(uintptr_t) "<{question}>";
    f.set.columns.name[PL_COLUMN_OUTPUT] = (char *)(uintptr_t) "answer";
    snprintf(f.path, sizeof f.path, "%s", csv[_i]);
    pl_err err = fixture_open(&f);
    ck_assert_msg(err == PL_ERR_OK, "%s", f.d.message);
    ck_assert_str_eq(all_rows(&f, all), "<a \"q\", yes>line 1\nline 2\\$<  q2>$<r>s$");
    ck_assert_ptr_nonnull(strstr(pl_text_str(&f.notes), ":2: 3 rows with a key `note`"));
    fixture_finish(&f);
}
END_TEST

static const struct {
    const char *name, *content, *says, *hint;
    pl_err err;
    uint64_t line;
} refusals[] = {
    {"a.csv", "text,n\na,1\nb\n", "the row has 1 field, the header 2", "", PL_ERR_DATA_SYNTAX, 3},
    {"a.csv", "text\na\n\"b\nc\n", "a quote that is not closed", "", PL_ERR_DATA_SYNTAX, 3},
    {"a.csv", "text\n\"b\"c\n", "text after the closing quote", "\"\"", PL_ERR_DATA_SYNTAX, 2},
    {"a.csv", "text\nb\"c\"\n", "a quote inside a field without quotes", "\"\"", PL_ERR_DATA_SYNTAX,
     2},
    {"a.csv", "text,text\na,b\n", "the header has two columns `text`", "", PL_ERR_DATA_SYNTAX, 1},
    {"a.csv", "text\n", "no rows in the file", "", PL_ERR_DATA_EMPTY, 0},
    /* V3 of csv.h */
    {"a.csv", "text\n\"x\n\xE9\"\n", "invalid UTF-8 byte 0xE9", "", PL_ERR_DATA_SYNTAX, 2},
    {"a.csv", "answer\nx\n", "the format is not recognised", "", PL_ERR_DATA_FIELD, 2},
    {"a.parquet", "PAR1....PAR1", "Parquet file", "", PL_ERR_DATA_SYNTAX, 1},
    {"a.parquet", "PARE....PARE", "encrypted", "without encryption", PL_ERR_DATA_SYNTAX, 1},
    {"a.arrow", "ARROW1..", "Arrow", "a.arrow').to_json", PL_ERR_DATA_SYNTAX, 1},
    {"a.arrow", "\xFF\xFF\xFF\xFFx", "Arrow", "a.arrow').to_json", PL_ERR_DATA_SYNTAX, 1},
};

START_TEST(what_cannot_be_read_says_where_and_what_to_do) {
    struct fixture f;
    char path[600];
    char dir[SCRATCH_PATH];
    scratch_make(dir);
    snprintf(path, sizeof path, "%s/%s", dir, refusals[_i].name);
    FILE *out = fopen(path, "w");
    ck_assert_ptr_nonnull(out);
    ck_assert_int_ge(fputs(refusals[_i].content, out), 0);
    ck_assert_int_eq(fclose(out), 0);
    ck_assert_int_eq(open_path(&f, path), refusals[_i].err);
    ck_assert_msg(strstr(f.d.message, refusals[_i].says), "%s", f.d.message);
    ck_assert_msg(strstr(pl_diag_hint_text(&f.d), refusals[_i].hint), "%s",
                  pl_diag_hint_text(&f.d));
    ck_assert_uint_eq(f.d.line, refusals[_i].line);
    fixture_finish(&f);
    scratch_remove(dir);
}
END_TEST

static const struct {
    const char *path, *says, *hint;
    pl_err err;
} paths[] = {
    {FILES "damaged.jsonl.gz", "the compressed file is cut short", "", PL_ERR_DATA_SYNTAX},
#if PL_TEST_ZSTD
    {FILES "damaged.jsonl.zst", "the compressed file is cut short", "", PL_ERR_DATA_SYNTAX},
#endif
    {FILES "nothing*.jsonl", "no file matches", "", PL_ERR_DATA_FILE},
    {FILES "converted", "no data file in the directory", "jsonl", PL_ERR_DATA_FILE},
    {FILES "converted/*", "Arrow", "to_json", PL_ERR_DATA_SYNTAX},
    {"https://example.org/rows.jsonl", "an address, not a file: https://example.org/rows.jsonl",
     "curl -LO 'https://example.org/rows.jsonl'", PL_ERR_DATA_FILE},
    {"https://example.org/rows?split=*", "an address, not a file", "curl", PL_ERR_DATA_FILE},
    {"hf://datasets/owner/name", "an address, not a file", "download", PL_ERR_DATA_FILE},
    {"s3://bucket/rows.jsonl", "an address, not a file", "download", PL_ERR_DATA_FILE},
    {"file:///data/rows.jsonl", "an address, not a file", "without the scheme", PL_ERR_DATA_FILE},
    {"no-owner/no-name.v2", "no file or directory no-owner/no-name.v2",
     "load_dataset('no-owner/no-name.v2', split='train')", PL_ERR_DATA_FILE},
    {"no_such_dataset", "no file or directory", "load_dataset('no_such_dataset'", PL_ERR_DATA_FILE},
    {"no-owner/rows.jsonl", "cannot open no-owner/rows.jsonl", "check the path", PL_ERR_DATA_FILE},
    {"/no/such/data", "cannot open /no/such/data", "check the path", PL_ERR_DATA_FILE},
};

START_TEST(a_path_without_data_is_refused) {
    struct fixture f;
    ck_assert_int_eq(open_path(&f, paths[_i].path), paths[_i].err);
    ck_assert_msg(strstr(f.d.message, paths[_i].says), "%s", f.d.message);
    ck_assert_msg(strstr(pl_diag_hint_text(&f.d), paths[_i].hint), "%s", pl_diag_hint_text(&f.d));
    fixture_finish(&f);
}
END_TEST

/* Files of these names are made in a directory, which is then the path. */
static const struct {
    const char *names[3], *hint;
} directories[] = {
    {{"dataset_dict.json", "train/a.arrow"}, "load_from_disk('%s')['train']"},
    {{"dataset_info.json", "state.json", "a.arrow"}, "load_from_disk('%s').to_json"},
    {{"data/train-00000.parquet"}, "`path: DIR/*/*.parquet` reads them"},
    {{"data-0.arrow"}, "data_files='%s' + '/*.arrow'"},
    {{"data/a.jsonl"}, "`DIR/*/*` every one of its subdirectories"},
};

START_TEST(a_directory_without_data_files_says_what_it_has) {
    struct fixture f;
    char dir[SCRATCH_PATH], hint[600];
    scratch_make(dir);
    for (int i = 0; i < 3 && directories[_i].names[i]; i++) {
        const char *name = directories[_i].names[i], *slash = strchr(name, '/');
        if (slash)
            ck_assert_int_eq(mkdir(textf("%s/%.*s", dir, (int)(slash - name), name), 0700), 0);
        file_write(textf("%s/%s", dir, name), "{}");
    }
    ck_assert_int_eq(open_path(&f, dir), PL_ERR_DATA_FILE);
    ck_assert_msg(strstr(f.d.message, "no data file in the directory"), "%s", f.d.message);
    snprintf(hint, sizeof hint, directories[_i].hint, dir);
    ck_assert_msg(strstr(pl_diag_hint_text(&f.d), hint), "%s", pl_diag_hint_text(&f.d));
    fixture_finish(&f);
    scratch_remove(dir);
}
END_TEST

static const struct {
    const char *bytes;
    size_t n;
    const char *says, *hint;
} kinds[] = {
#define KIND(bytes, says, hint)                                                                    \
    { bytes, sizeof bytes - 1, says, hint }
    KIND("{\0\"\0t\0", "UTF-16 text", "-f utf-16le"),
    KIND("\0{\0\"\0t", "UTF-16 text", "-f utf-16be"),
    KIND("[\0\n\0{\0", "UTF-16 text", "-f utf-16le"),
    KIND("\x5D\0\0\x80\0\xFF", "compressed (lzma)", "xz -dk"),
    KIND("\x10\0\0\0\0\0\0\0{\"a\":{}}", "weights of a model", "`datasets` names data"),
    KIND("PK\3\4..........................archive/data.pkl", "weights of a model",
         "`datasets` names data"),
    KIND("\x80\x81\x82\x83....DUCK", "a DuckDB database", "duckdb"),
#undef KIND
};

START_TEST(a_file_is_known_by_its_first_bytes) {
    struct fixture f;
    fixture_start(&f, PL_FORMAT_AUTO);
    fixture_write(&f, kinds[_i].bytes, kinds[_i].n);
    ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_SYNTAX);
    ck_assert_msg(strstr(f.d.message, kinds[_i].says), "%s", f.d.message);
    ck_assert_msg(strstr(pl_diag_hint_text(&f.d), kinds[_i].hint), "%s", pl_diag_hint_text(&f.d));
    fixture_finish(&f);
}
END_TEST

/* U2 of unpack.h. Unpacked content is in a file without a name: nothing is left in TMPDIR. */
START_TEST(nothing_is_left_where_files_are_unpacked) {
    struct fixture f;
    char all[2048];
    char dir[SCRATCH_PATH];
    scratch_make(dir);
    ck_assert_int_eq(setenv("TMPDIR", dir, 1), 0);
    ck_assert_int_eq(open_path(&f, FILES "two.jsonl.gz"), PL_ERR_OK);
    ck_assert_int_eq(rmdir(dir), 0);
    ck_assert_str_eq(all_rows(&f, all), "ab$cd$");
    pl_data_close(&f.data);
    ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_FILE);
    ck_assert_msg(strstr(f.d.message, dir), "%s", f.d.message);
    fixture_finish(&f);
}
END_TEST

#define ROWS(a) ((int)(sizeof(a) / sizeof *(a)))

int main(void) {
    Suite *suite = suite_create("files");
    TCase *t = tcase_create("files");
    tcase_add_loop_test(t, the_first_rows_of_an_entry_are_read, 0, ROWS(parts));
    tcase_add_loop_test(t, a_slice_of_an_entry_is_read, 0, ROWS(slices));
    tcase_add_test(t, counting_the_rows_of_a_packed_file_unpacks_it_once);
    tcase_add_test(t, rows_outside_of_a_slice_are_not_parsed);
    tcase_add_test(t, a_slice_without_rows_points_at_its_entry);
    tcase_add_test(t, entries_do_not_share_their_rows);
    tcase_add_test(t, a_row_that_is_dropped_is_one_of_the_first);
    tcase_add_loop_test(t, packed_files_directories_and_patterns_are_read, 0, ROWS(texts));
    tcase_add_loop_test(t, rows_of_csv_are_rows, 0, ROWS(csv));
    tcase_add_loop_test(t, what_cannot_be_read_says_where_and_what_to_do, 0, ROWS(refusals));
    tcase_add_loop_test(t, a_path_without_data_is_refused, 0, ROWS(paths));
    tcase_add_loop_test(t, a_directory_without_data_files_says_what_it_has, 0, ROWS(directories));
    tcase_add_loop_test(t, a_file_is_known_by_its_first_bytes, 0, ROWS(kinds));
    tcase_add_test(t, nothing_is_left_where_files_are_unpacked);
    suite_add_tcase(suite, t);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
