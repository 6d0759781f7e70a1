/* fuzz_csv.c - records of CSV as JSON objects: what is taken is one object of its columns, and as a
 * data file it is the same rows every time. */
#include "estimator/base/json_scan.h"
#include "estimator/config/job_text.h"
#include "runtime/data/csv.h"
#include "runtime/data/data.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <string.h>

/* The bytes may be no UTF-8, which the scanner says; what it does not say is that the object is not
 * one. */
static void check_object(const struct pl_csv *csv, const struct pl_text *json) {
    struct pl_scan s = {.text = pl_text_str(json), .n = json->len};
    struct pl_text key = {0}, value = {0};
    uint64_t fields = 0;
    FUZZ_CHECK(pl_scan_enter(&s));
    for (; pl_scan_next_key(&s, &key) && pl_scan_string(&s, &value); fields++)
        value.len = 0;
    if (s.err != PL_ERR_OK)
        FUZZ_CHECK(strstr(s.what, "UTF-8") || strstr(s.what, "surrogate") ||
                   strstr(s.what, "code point"));
    else
        FUZZ_CHECK(pl_scan_end(&s) && fields == csv->columns);
    pl_text_finish(&key);
    pl_text_finish(&value);
}

static void read_records(const char *text, size_t n) {
    struct pl_csv csv = {.separator = n % 2 ? ',' : '\t'};
    struct pl_text json = {0};
    for (size_t at = 0, record = 0; at < n; record++) {
        bool quoted = false;
        size_t end = pl_csv_record_end(text + at, n - at, 0, &quoted);
        if (!end) end = n - at;
        bool ok = record ? pl_csv_record(&csv, text + at, end, &json)
                         : pl_csv_header(&csv, text + at, end);
        if (!ok)
            FUZZ_CHECK(csv.problem[0] && csv.hint && memchr(csv.problem, 0, sizeof csv.problem));
        if (!ok && !record) break;
        if (ok && record) check_object(&csv, &json);
        at += end;
    }
    pl_text_finish(&json);
    pl_csv_finish(&csv);
}

static void read_file(const char *path) {
    static const struct pl_model m = {.vocab = 300, .eos = {257}, .n_eos = 1};
    char name[128];
    struct pl_job job;
    struct pl_dataset one = PL_DATASET_DEFAULT;
    struct pl_data *data = NULL;
    struct pl_sample s = {0};
    struct pl_diag d = {0};
    snprintf(name, sizeof name, "%s", path);
    one.path = name;
    FUZZ_CHECK(pl_job_defaults(&job, NULL) == PL_ERR_OK);
    FUZZ_CHECK(pl_job_set(&job, "tokenizer", "byte", NULL) == PL_ERR_OK);
    if (fuzz_outcome(pl_data_open(&job, &m, &(struct pl_dataset_list){&one, 1}, NULL, &data, &d),
                     &d))
        for (uint64_t row = 0; row < pl_data_rows(data); row++)
            FUZZ_CHECK(fuzz_outcome(pl_data_sample(data, row, &s, &d), &d));
    pl_sample_finish(&s);
    pl_data_close(&data);
    pl_job_finish(&job);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    read_records((const char *)data, size);
    read_file(fuzz_file("rows.csv", data, size));
    return 0;
}
