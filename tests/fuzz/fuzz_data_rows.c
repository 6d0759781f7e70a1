/* fuzz_data_rows.c - a data file, read by its own keys and in one format after the other. */
#include "estimator/config/job_text.h"
#include "runtime/data/data.h"
#include "runtime/data/formats.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>

#define FORMATS    (PL_FORMAT_PROMPT_COMPLETION + 1)
#define VOCABULARY 300
#define LENGTH     40

/* F3 of formats.h */
static void check_rows(struct pl_data *data) {
    struct pl_sample s = {0};
    struct pl_diag d = {0};
    for (uint64_t row = 0; row < pl_data_rows(data); row++) {
        FUZZ_CHECK(fuzz_outcome(pl_data_sample(data, row, &s, &d), &d));
        FUZZ_CHECK(s.n <= LENGTH);
        for (uint64_t i = 0; i < s.n; i++) {
            FUZZ_CHECK(s.ids[i] >= 0 && s.ids[i] < VOCABULARY);
            FUZZ_CHECK(s.labels[i] == PL_LABEL_MASKED ||
                       (s.labels[i] >= 0 && s.labels[i] < VOCABULARY));
        }
    }
    pl_sample_finish(&s);
}

static void read_as(const struct pl_job *job, const char *path, uint32_t format) {
    static const struct pl_model m = {.vocab = VOCABULARY, .eos = {257}, .n_eos = 1};
    char name[128];
    struct pl_dataset one = PL_DATASET_DEFAULT;
    struct pl_data *data = NULL;
    struct pl_text notes = {0};
    struct pl_diag d = {0};
    snprintf(name, sizeof name, "%s", path);
    one.path = name;
    one.format = format;
    const struct pl_dataset_list list = {&one, 1};
    /* B2 of format_rows.h: a row that is not read has a message. */
    if (fuzz_outcome(pl_data_open(job, &m, &list, &notes, &data, &d), &d)) check_rows(data);
    pl_data_close(&data);
    pl_text_finish(&notes);
}

static uint32_t sum_of(const uint8_t *data, size_t size) {
    uint32_t sum = 0;
    while (size > 0)
        sum += data[--size];
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *path = fuzz_file("rows", data, size);
    struct pl_job job;
    FUZZ_CHECK(pl_job_defaults(&job, NULL) == PL_ERR_OK);
    FUZZ_CHECK(pl_job_set(&job, "tokenizer", "byte", NULL) == PL_ERR_OK);
    job.max_seq_length = LENGTH;
    read_as(&job, path, PL_FORMAT_AUTO);
    /* All formats would cost seven openings an input: which one it is follows from the bytes, and
     * mutations of an input meet them all. */
    uint32_t f = sum_of(data, size) % FORMATS;
    if (f != PL_FORMAT_AUTO) read_as(&job, path, f);
    pl_job_finish(&job);
    return 0;
}
