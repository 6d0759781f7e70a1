/* check_csv.c - a table that is written as RFC 4180 says reads back as it was, field by field; and
 * the files that a path of the configuration stands for. */
#include "estimator/base/json_tree.h"
#include "estimator/config/job_text.h"
#include "runtime/data/csv.h"
#include "runtime/data/paths.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

static uint64_t state;

static size_t draw(size_t n) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)(state >> 33) % n;
}

enum { MOST_FIELD = 24, MOST_COLUMNS = 5 };

/* Everything that needs quotes comes up often. */
static void random_field(char out[MOST_FIELD + 1]) {
    static const char alphabet[] = "ab \t,\"\n\r\\{}\x01:";
    const size_t n = draw(MOST_FIELD);
    for (size_t i = 0; i < n; i++)
        out[i] = alphabet[draw(sizeof alphabet - 1)];
    out[n] = 0;
}

/* Quoted where it must be, and sometimes where it need not. */
static void write_field(struct pl_text *out, const char *field) {
    if (!strpbrk(field, ",\"\n\r") && draw(3)) {
        pl_text_add(out, field);
        return;
    }
    pl_text_add(out, "\"");
    for (const char *c = field; *c; c++)
        pl_text_addf(out, "%s%c", *c == '"' ? "\"" : "", *c);
    pl_text_add(out, "\"");
}

/* V2 of csv.h */
START_TEST(a_written_record_reads_back_field_by_field) {
    static const char *const names[] = {"text", "a \"b\"", "c,d", "", "\xC3\xA9"};
    state = (uint64_t)_i + 1;
    for (int round = 0; round < 1500; round++) {
        const size_t columns = 1 + draw(MOST_COLUMNS);
        char fields[MOST_COLUMNS][MOST_FIELD + 1];
        const char *end = draw(3) ? "\n" : draw(2) ? "\r\n" : "";
        struct pl_csv csv = {.separator = ','};
        struct pl_text head = {0}, record = {0}, json = {0};
        for (size_t k = 0; k < columns; k++) {
            random_field(fields[k]);
            if (k) pl_text_add(&head, ","), pl_text_add(&record, ",");
            write_field(&head, names[k]);
            write_field(&record, fields[k]);
        }
        pl_text_add(&head, "\n");
        pl_text_add(&record, end);
        ck_assert_msg(pl_csv_header(&csv, head.data, head.len), "%s: %s", head.data, csv.problem);
        ck_assert_uint_eq(csv.columns, columns);
        ck_assert_msg(pl_csv_record(&csv, pl_text_str(&record), record.len, &json), "%s: %s",
                      pl_text_str(&record), csv.problem);
        json_t *row = pl_json_load(json.data, json.len, 0, NULL);
        ck_assert_msg(row != NULL, "%s", json.data);
        ck_assert_uint_eq(json_object_size(row), columns);
        for (size_t k = 0; k < columns; k++)
            ck_assert_str_eq(json_string_value(json_object_get(row, names[k])), fields[k]);
        json_decref(row);
        pl_csv_finish(&csv);
        pl_text_finish(&head);
        pl_text_finish(&record);
        pl_text_finish(&json);
    }
}
END_TEST

/* The end of a record is found at the same byte however many bytes are looked at before. */
START_TEST(a_record_ends_at_the_same_byte_in_any_pieces) {
    static const char text[] = "1,\"a\nb\"\"\n\"\"\",x\r\n2,y\n";
    const size_t end = strlen("1,\"a\nb\"\"\n\"\"\",x\r\n");
    for (size_t first = 0; first <= end; first++) {
        for (size_t second = first; second <= sizeof text - 1; second++) {
            bool quoted = false;
            size_t n = pl_csv_record_end(text, first, 0, &quoted);
            ck_assert_uint_eq(n, first == end ? end : 0);
            if (!n) n = pl_csv_record_end(text, second, first, &quoted);
            ck_assert_uint_eq(n, second >= end ? end : 0);
        }
    }
}
END_TEST

static const struct {
    const char *header, *record, *problem; /* record NULL: of the header */
} wrong[] = {
    {"a,b\n", "1\n", "the row has 1 field, the header 2"},
    {"a,b\n", "1,2,3\n", "the row has 3 fields, the header 2"},
    {"a,b\n", "1,\"2\n", "a field begins with a quote that is not closed"},
    {"a,b\n", "1,\"2\"x\n", "text after the closing quote of a field"},
    {"a,b\n", "1,2\"3\n", "a quote inside a field without quotes"},
    {"a,b,a\n", NULL, "the header has two columns `a`"},
    {"a,\"b\n", NULL, "a field begins with a quote that is not closed"},
    {"a b\"\n", NULL, "a quote inside a field without quotes"},
    {"a;b\n", NULL, "the columns are separated by `;`, not by a comma"},
    {"a|b|c\n", NULL, "the columns are separated by `|`, not by a comma"},
    {"a\tb\n", NULL, "the columns are separated by tabs, not by a comma"},
    {"a,b\r1,2\r", NULL, "a carriage return inside a field without quotes"},
    {"a,b\n", "1,2\r3\n", "a carriage return inside a field without quotes"},
};

/* V1 of csv.h */
START_TEST(a_broken_record_says_what_is_wrong) {
    struct pl_csv csv = {.separator = ','};
    struct pl_text json = {0};
    const bool head = pl_csv_header(&csv, wrong[_i].header, strlen(wrong[_i].header));
    ck_assert_int_eq(head, wrong[_i].record != NULL);
    if (head) ck_assert(!pl_csv_record(&csv, wrong[_i].record, strlen(wrong[_i].record), &json));
    ck_assert_str_eq(csv.problem, wrong[_i].problem);
    pl_csv_finish(&csv);
    pl_text_finish(&json);
}
END_TEST

START_TEST(a_file_is_csv_by_its_ending) {
    ck_assert(pl_csv_separator("a.csv", 5) == ',' && pl_csv_separator("A.CSV", 5) == ',');
    ck_assert(pl_csv_separator("a.tsv", 5) == '\t' && !pl_csv_separator("a.ssv", 5));
    ck_assert(!pl_csv_separator(".csv", 4) && !pl_csv_separator("a.csv", 4));
    ck_assert(!pl_csv_separator("acsv", 4) && !pl_csv_separator("a.csv.gz", 8));
    ck_assert(pl_csv_separator("a.csv.gz", 5)); /* less what it is packed with */
}
END_TEST

/* Seconds of the processor for a header of n columns whose names begin alike. */
static double header_seconds(size_t n) {
    struct pl_csv csv = {.separator = ','};
    struct pl_text head = {0};
    for (size_t i = 0; i < n; i++)
        pl_text_addf(&head, "%sa_column_%zu", i ? "," : "", i);
    const clock_t begin = clock();
    ck_assert_msg(pl_csv_header(&csv, head.data, head.len), "%s", csv.problem);
    const clock_t end = clock();
    ck_assert_uint_eq(csv.columns, n);
    pl_csv_finish(&csv);
    pl_text_finish(&head);
    return (double)(end - begin) / CLOCKS_PER_SEC;
}

/* V4 of csv.h. Each name compared with each other makes 256 times the work of 16 times the columns.
 */
START_TEST(the_work_for_a_header_is_in_proportion_to_its_columns) {
    double few = header_seconds(4000);
    for (int i = 0; i < 4; i++)
        few = fmin(few, header_seconds(4000));
    const double many = header_seconds(64000);
    ck_assert_msg(many < 64 * fmax(few, 1e-3), "%g s for 4000 columns, %g s for 64000", few, many);
}
END_TEST

/* The name that stands twice is found wherever the two are. */
START_TEST(a_repeated_name_is_found_among_many) {
    static const size_t at[][2] = {{0, 999}, {0, 1}, {998, 999}, {17, 500}};
    struct pl_csv csv = {.separator = ','};
    struct pl_text head = {0};
    for (size_t i = 0; i < 1000; i++)
        pl_text_addf(&head, "%sc%zu", i ? "," : "", i == at[_i][1] ? at[_i][0] : i);
    pl_text_add(&head, ",c3");
    char says[64];
    snprintf(says, sizeof says, "the header has two columns `c%zu`", at[_i][0]);
    ck_assert(!pl_csv_header(&csv, head.data, head.len));
    ck_assert_str_eq(csv.problem, says);
    pl_csv_finish(&csv);
    pl_text_finish(&head);
}
END_TEST

/* --- paths ------------------------------------------------------------------------------------ */

static char dir[SCRATCH_PATH];

static void make(void) {
    scratch_make(dir);
    static const char *const dirs[] = {"d", "d/sub", "d[1]", "empty"};
    static const char *const files[] = {"d/b.jsonl",     "d/a.json",     "d/c.csv",
                                        "d/x.txt",       "d/y.jsonl.gz", "d/.hidden.jsonl",
                                        "d/sub/e.jsonl", "d[1]/f.jsonl", "d/[z].jsonl",
                                        "d/n.ndjson",    "d/q.parquet"};
    for (int i = 0; i < COUNT(dirs); i++)
        ck_assert_int_eq(mkdir(in_dir(dir, dirs[i]), 0700), 0);
    for (int i = 0; i < COUNT(files); i++)
        file_write(in_dir(dir, files[i]), "{}\n");
}

static void unmake(void) {
    scratch_remove(dir);
}

static const struct {
    const char *path, *files; /* relative to the directory, in their order; NULL: refused */
} expanded[] = {
    {"d/b.jsonl", "d/b.jsonl"},
    {"d", "d/[z].jsonl d/a.json d/b.jsonl d/c.csv d/n.ndjson d/q.parquet d/y.jsonl.gz"},
    {"d/", "d/[z].jsonl d/a.json d/b.jsonl d/c.csv d/n.ndjson d/q.parquet d/y.jsonl.gz"},
    {"d/*", "d/[z].jsonl d/a.json d/b.jsonl d/c.csv d/n.ndjson d/q.parquet d/x.txt d/y.jsonl.gz"},
    {"d/[ab].*", "d/a.json d/b.jsonl"},
    {"d/[z].jsonl", "d/[z].jsonl"}, /* F1: it exists under this very name */
    {"d[1]", "d[1]/f.jsonl"},
    {"d[1]/f.jsonl", "d[1]/f.jsonl"},
    {"d/?.csv", "d/c.csv"},
    {"d/*/*.jsonl", "d/sub/e.jsonl"},
    {"none.jsonl", "none.jsonl"}, /* opening it says why not */
    {"d/*.parquet", "d/q.parquet"},
    {"d/*.arrow", NULL},
    {"empty", NULL},
    {"d/sub/../sub", "d/sub/../sub/e.jsonl"},
};

/* F1 and F2 of paths.h */
START_TEST(a_path_stands_for_its_files) {
    struct pl_job job;
    struct pl_diag d = {0};
    struct pl_dataset_list files;
    ck_assert_int_eq(pl_job_defaults(&job, NULL), PL_ERR_OK);
    char path[SCRATCH_PATH + 32];
    snprintf(path, sizeof path, "%s/%s", dir, expanded[_i].path);
    struct pl_dataset entry = {.path = path, .line = 7, .column = 9, .weight = 2.5};
    const struct pl_dataset_list list = {.items = &entry, .n = 1};
    const pl_err err = pl_paths_expand(&job, &list, &files, &d);
    ck_assert_int_eq(err, expanded[_i].files ? PL_ERR_OK : PL_ERR_DATA_FILE);
    struct pl_text got = {0};
    for (uint32_t i = 0; i < files.n; i++) {
        ck_assert_int_eq(strncmp(files.items[i].path, dir, strlen(dir)), 0);
        pl_text_addf(&got, "%s%s", i ? " " : "", files.items[i].path + strlen(dir) + 1);
        ck_assert_double_eq(files.items[i].weight, 2.5);
        ck_assert_uint_eq(files.items[i].line, 7);
    }
    ck_assert_str_eq(pl_text_str(&got), expanded[_i].files ? expanded[_i].files : "");
    if (err != PL_ERR_OK) {
        ck_assert(d.line == 7 && d.column == 9);
        ck_assert_msg(strstr(d.message, path) != NULL, "%s", d.message);
        ck_assert_msg(!!strstr(d.message, "no data file in") == !!strstr(path, "empty"), "%s",
                      d.message);
    }
    pl_text_finish(&got);
    pl_paths_finish(&files);
    ck_assert_ptr_null(files.items);
    pl_job_finish(&job);
}
END_TEST

START_TEST(entries_follow_each_other_and_one_that_fails_ends_it) {
    struct pl_job job;
    struct pl_dataset_list files;
    struct pl_diag d = {0};
    char one[SCRATCH_PATH + 32], two[SCRATCH_PATH + 32];
    ck_assert_int_eq(pl_job_defaults(&job, NULL), PL_ERR_OK);
    snprintf(one, sizeof one, "%s/d/sub", dir);
    snprintf(two, sizeof two, "%s/d/?.csv", dir);
    struct pl_dataset entries[] = {{.path = two, .line = 1}, {.path = one, .line = 2}};
    const struct pl_dataset_list list = {.items = entries, .n = 2};
    ck_assert_int_eq(pl_paths_expand(&job, &list, &files, &d), PL_ERR_OK);
    ck_assert_uint_eq(files.n, 2);
    ck_assert_uint_eq(files.items[0].line, 1);
    ck_assert_ptr_nonnull(strstr(files.items[1].path, "e.jsonl"));
    pl_paths_finish(&files);
    snprintf(one, sizeof one, "%s/empty", dir);
    ck_assert_int_eq(pl_paths_expand(&job, &list, &files, &d), PL_ERR_DATA_FILE);
    ck_assert_uint_eq(d.line, 2);
    ck_assert(files.n == 0 && !files.items);
    pl_job_finish(&job);
}
END_TEST

int main(void) {
    Suite *s = suite_create("data.csv");
    TCase *t = tcase_create("records"), *p = tcase_create("paths");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, a_written_record_reads_back_field_by_field, 0, 3);
    tcase_add_test(t, a_record_ends_at_the_same_byte_in_any_pieces);
    tcase_add_loop_test(t, a_broken_record_says_what_is_wrong, 0, COUNT(wrong));
    tcase_add_test(t, a_file_is_csv_by_its_ending);
    tcase_add_test(t, the_work_for_a_header_is_in_proportion_to_its_columns);
    tcase_add_loop_test(t, a_repeated_name_is_found_among_many, 0, 4);
    tcase_add_checked_fixture(p, make, unmake);
    tcase_add_loop_test(p, a_path_stands_for_its_files, 0, COUNT(expanded));
    tcase_add_test(p, entries_follow_each_other_and_one_that_fails_ends_it);
    suite_add_tcase(s, t);
    suite_add_tcase(s, p);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
