/* check_parquet.c - Parquet files are read as the same rows in JSON Lines are, and damaged ones, or
 * a library that is not there, end in a message. */
#include "runtime/data/parquet/leaves.h"
#include "runtime/data/parquet/unpack_parquet.h"
#include "tests/data/fixture.h"
#include "tests/support/with_carquet.h"
#include "tests/support/scratch.h"

#include <fcntl.h>

#define AT DATA "/parquet/"

static const char *parquet(const char *name) {
    return textf(AT "%s.parquet", name);
}

static pl_err open_rows(struct fixture *f, const char *path, uint32_t format) {
    fixture_start(f, format);
    snprintf(f->path, sizeof f->path, "%s", path);
    return fixture_open(f);
}

/* --- content ---------------------------------------------------------------------------------- */
static bool any(const void *ctx, const char *name) {
    (void)ctx, (void)name;
    return true;
}

static bool none(const void *ctx, const char *name) {
    (void)ctx, (void)name;
    return false;
}

static bool text_alone(const void *ctx, const char *name) {
    (void)ctx;
    return strcmp(name, "text") == 0;
}

/* Returns the lines of the file's content; the test ends unless it is read. */
static char *content_of(const char *path, bool (*reads)(const void *ctx, const char *name)) {
    const struct pl_parquet_wish wish = {reads, none, NULL};
    struct pl_unpacked all = PL_UNPACKED_NONE;
    struct pl_content c;
    struct pl_diag d = {0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert(pl_is_parquet(fd));
    const pl_err err = pl_unpack_parquet(fd, path, &wish, &all, &c, &d);
    ck_assert_msg(err == PL_ERR_OK, "%s: %s", path, d.message);
    char *text = malloc(c.bytes + 1);
    ck_assert_ptr_nonnull(text);
    ck_assert_int_eq(pl_content_read(&c, text, c.bytes, 0), (ssize_t)c.bytes);
    text[c.bytes] = 0;
    pl_unpacked_finish(&all);
    close(fd);
    return text;
}

/* T3 of fields.h: `repeated` has the lists of older writers. */
static const char *const all_files[] = {"text",     "alpaca",     "sharegpt", "messages",
                                        "parts",    "pairs",      "tokens",   "types",
                                        "repeated", "preference", "no_rows"};

/* R1 of lines.h, J1 of row_json.h, T1 of fields.h and T2 of fields.h */
START_TEST(a_row_is_what_pyarrow_reads) {
    char *got = content_of(parquet(all_files[_i]), any);
    char *want = file_read(textf(AT "%s.jsonl", all_files[_i]), NULL);
    ck_assert_str_eq(got, want);
    free(got);
    free(want);
}
END_TEST

/* R2 of lines.h. Later rows say no more of a column that is not read than that it is there. */
START_TEST(the_first_row_alone_has_columns_that_are_not_read) {
    static const char unread[] = "\"n\":true,\"f\":true,\"d\":true,\"l\":true,\"s\":true,";
    char *got = content_of(parquet("types"), text_alone);
    char *first = strchr(got, '\n'), *second = strchr(first + 1, '\n');
    *first = *second = 0;
    ck_assert_msg(strstr(got, "\"n\":0,\"f\":0.0,") != NULL, "%s", got);
    ck_assert_msg(strstr(first + 1, "{\"text\":\"one\",") == first + 1, "%s", first + 1);
    ck_assert_msg(strstr(first + 1, unread) != NULL, "%s", first + 1);
    free(got);
}
END_TEST

/* One row group of more texts than are held at a time. */
START_TEST(a_row_group_may_be_larger_than_what_is_held) {
    enum { ROWS_OF_LONG = 2100, LETTERS = 34000 };
    char *got = content_of(parquet("long"), any), *at = got;
    ck_assert_uint_gt((uint64_t)LETTERS * PL_PARQUET_BATCH, PL_PARQUET_HELD_BYTES);
    for (int row = 0; row < ROWS_OF_LONG; row++) {
        const char letter[] = {(char)('a' + row % 26), 0};
        ck_assert_int_eq(strncmp(at, "{\"text\":\"", 9), 0);
        at += 9;
        ck_assert_msg(strspn(at, letter) == LETTERS, "row %d", row + 1);
        at += LETTERS;
        ck_assert_int_eq(strncmp(at, "\"}\n", 3), 0);
        at += 3;
    }
    ck_assert(!*at);
    free(got);
}
END_TEST

/* --- samples ---------------------------------------------------------------------------------- */
static const struct {
    const char *name;
    uint32_t format;
} samples[] = {
    {"text", PL_FORMAT_AUTO},     {"text", PL_FORMAT_TEXT},
    {"alpaca", PL_FORMAT_AUTO},   {"alpaca", PL_FORMAT_ALPACA},
    {"sharegpt", PL_FORMAT_AUTO}, {"sharegpt", PL_FORMAT_SHAREGPT},
    {"messages", PL_FORMAT_AUTO}, {"messages", PL_FORMAT_MESSAGES},
    {"parts", PL_FORMAT_AUTO},    {"pairs", PL_FORMAT_AUTO},
    {"tokens", PL_FORMAT_AUTO},   {"tokens", PL_FORMAT_TOKENS},
};

/* Rows are asked for from the last to the first. */
START_TEST(samples_are_those_of_the_lines) {
    struct fixture a, b;
    struct pl_sample x = {0}, y = {0};
    const char *name = samples[_i].name;
    pl_err err = open_rows(&a, parquet(name), samples[_i].format);
    ck_assert_msg(err == PL_ERR_OK, "%s: %s", name, a.d.message);
    err = open_rows(&b, textf(AT "%s.jsonl", name), samples[_i].format);
    ck_assert_msg(err == PL_ERR_OK, "%s: %s", name, b.d.message);
    ck_assert_uint_eq(pl_data_rows(a.data), pl_data_rows(b.data));
    for (uint64_t row = pl_data_rows(a.data); row-- > 0;) {
        ck_assert_int_eq(pl_data_sample(a.data, row, &x, &a.d), PL_ERR_OK);
        ck_assert_int_eq(pl_data_sample(b.data, row, &y, &b.d), PL_ERR_OK);
        ck_assert_uint_eq(x.n, y.n);
        ck_assert_int_eq(memcmp(x.ids, y.ids, x.n * sizeof *x.ids), 0);
        ck_assert_int_eq(memcmp(x.labels, y.labels, x.n * sizeof *x.labels), 0);
    }
    pl_sample_finish(&x);
    pl_sample_finish(&y);
    fixture_finish(&a);
    fixture_finish(&b);
}
END_TEST

START_TEST(columns_may_have_other_names) {
    struct fixture f;
    char buf[2048];
    struct pl_sample s = {0};
    fixture_start(&f, PL_FORMAT_AUTO);
    f.set.columns.name[PL_COLUMN_PROMPT_FORMAT] = (char *)(uintptr_t) "{u} {b}";
    f.set.columns.name[PL_COLUMN_OUTPUT] = (char *)(uintptr_t) "text";
    snprintf(f.path, sizeof f.path, "%s", parquet("types"));
    ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_FIELD);
    ck_assert_msg(strstr(f.d.message, "`b` is a boolean"), "%s", f.d.message);
    f.set.columns.name[PL_COLUMN_PROMPT_FORMAT] = (char *)(uintptr_t) "{u} {n} {f} ";
    const pl_err err = fixture_open(&f);
    ck_assert_msg(err == PL_ERR_OK, "%s", f.d.message);
    ck_assert_int_eq(pl_data_sample(f.data, 1, &s, &f.d), PL_ERR_OK);
    ck_assert_str_eq(fixture_show(&s, false, buf), "18446744073709551614 -1 0.25 one$");
    ck_assert_ptr_nonnull(strstr(pl_text_str(&f.notes), ":1: 7 rows with a key `price`"));
    pl_sample_finish(&s);
    fixture_finish(&f);
}
END_TEST

/* --- refusals --------------------------------------------------------------------------------- */
static const struct {
    const char *name, *says, *hint;
    pl_err err;
    uint64_t line;
} refusals[] = {
    {"bad_row", "key `text` is missing", "", PL_ERR_DATA_FIELD, 3},
    {"preference", "`chosen` is not supported", "stage: dpo", PL_ERR_DATA_FIELD, 1},
    {"no_rows", "the file is empty", "", PL_ERR_DATA_EMPTY, 0},
};

/* P1 of unpack_parquet.h */
START_TEST(a_refused_row_is_named_by_its_number) {
    struct fixture f;
    ck_assert_int_eq(open_rows(&f, parquet(refusals[_i].name), PL_FORMAT_AUTO), refusals[_i].err);
    ck_assert_msg(strstr(f.d.message, refusals[_i].says), "%s", f.d.message);
    ck_assert_msg(strstr(pl_diag_hint_text(&f.d), refusals[_i].hint), "%s",
                  pl_diag_hint_text(&f.d));
    ck_assert_uint_eq(f.d.line, refusals[_i].line);
    ck_assert_uint_eq(f.d.column, 0);
    fixture_finish(&f);
}
END_TEST

static const struct {
    const char *column, *type;
} strange[] = {{"day", "DATE"}, {"price", "DECIMAL"}, {"raw", "BYTE_ARRAY without a logical type"}};

/* R3 of lines.h */
START_TEST(a_column_that_is_read_and_has_no_text_is_refused_by_its_type) {
    struct fixture f;
    fixture_start(&f, PL_FORMAT_TEXT);
    f.set.columns.name[PL_COLUMN_TEXT] = (char *)(uintptr_t)strange[_i].column;
    snprintf(f.path, sizeof f.path, "%s", parquet("types"));
    ck_assert_int_eq(fixture_open(&f), PL_ERR_DATA_FIELD);
    ck_assert_msg(strstr(f.d.message, textf("column `%s` has values of type %s", strange[_i].column,
                                            strange[_i].type)),
                  "%s", f.d.message);
    fixture_finish(&f);
}
END_TEST

/* Writes the file with its bytes from `from` on changed, or cut where `to` is 0. */
static const char *damaged(const char *dir, const char *name, double from, size_t to) {
    size_t n;
    char *bytes = file_read(parquet(name), &n);
    const char *path = in_dir(dir, "damaged.parquet");
    const size_t at = (size_t)((double)n * from);
    for (size_t i = at; i < at + to && i < n; i++)
        bytes[i] = (char)~bytes[i];
    FILE *out = fopen(path, "w");
    ck_assert_ptr_nonnull(out);
    ck_assert_uint_eq(fwrite(bytes, 1, to ? n : at, out), to ? n : at);
    ck_assert_int_eq(fclose(out), 0);
    free(bytes);
    return path;
}

START_TEST(a_damaged_file_is_refused) {
    static const struct {
        double from;
        size_t to;
    } damages[] = {{0.5, 0}, {0.02, 40}, {0.45, 8}, {0.999, 4}};
    struct fixture f;
    char dir[SCRATCH_PATH];
    scratch_make(dir);
    ck_assert_int_eq(
        open_rows(&f, damaged(dir, "messages", damages[_i].from, damages[_i].to), PL_FORMAT_AUTO),
        PL_ERR_DATA_SYNTAX);
    ck_assert_msg(strstr(f.d.message, "the Parquet file"), "%s", f.d.message);
    if (_i == 1) ck_assert_msg(strstr(f.d.message, "column `messages`"), "%s", f.d.message);
    ck_assert_ptr_nonnull(strstr(f.d.file, "damaged.parquet"));
    ck_assert_uint_ge(f.d.line, 1);
    fixture_finish(&f);
    scratch_remove(dir);
}
END_TEST

/* --- the library ------------------------------------------------------------------------------ */
static const struct {
    const char *path, *says, *hint;
} libraries[] = {
    {"/no/such/library.so", "the library that decodes it is not there",
     "pip install 'carquet==0.7"},
    {CRASHING, "carquet ended with signal", "again"}, /* Q2 of carquet.h, P2 of unpack_parquet.h */
    {NEWER, "is version 0.8.0", "pip install 'carquet==0.7"}, /* Q1 of carquet.h */
};

START_TEST(a_library_that_is_not_there_or_crashes_ends_in_a_message) {
    struct fixture f;
    ck_assert_int_eq(setenv("PLIMSOLL_CARQUET", libraries[_i].path, 1), 0);
    ck_assert_int_eq(open_rows(&f, parquet("text"), PL_FORMAT_AUTO), PL_ERR_DATA_SYNTAX);
    ck_assert_msg(strstr(f.d.message, libraries[_i].says), "%s", f.d.message);
    ck_assert_msg(strstr(pl_diag_hint_text(&f.d), libraries[_i].hint), "%s",
                  pl_diag_hint_text(&f.d));
    fixture_finish(&f);
}
END_TEST

#define ROWS(a) ((int)(sizeof(a) / sizeof *(a)))

int main(void) {
    Suite *suite = suite_create("parquet");
    const bool there = carquet_is_there();
    TCase *t = tcase_create("library");
    tcase_add_loop_test(t, a_library_that_is_not_there_or_crashes_ends_in_a_message, 0,
                        ROWS(libraries));
    suite_add_tcase(suite, t);
    t = tcase_create("files");
    tcase_add_loop_test(t, a_row_is_what_pyarrow_reads, 0, ROWS(all_files));
    tcase_add_test(t, a_row_group_may_be_larger_than_what_is_held);
    tcase_add_test(t, the_first_row_alone_has_columns_that_are_not_read);
    tcase_add_loop_test(t, samples_are_those_of_the_lines, 0, ROWS(samples));
    tcase_add_test(t, columns_may_have_other_names);
    tcase_add_loop_test(t, a_refused_row_is_named_by_its_number, 0, ROWS(refusals));
    tcase_add_loop_test(t, a_column_that_is_read_and_has_no_text_is_refused_by_its_type, 0,
                        ROWS(strange));
    tcase_add_loop_test(t, a_damaged_file_is_refused, 0, 4);
    if (there) suite_add_tcase(suite, t);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed ? 1 : there ? 0 : 77;
}
