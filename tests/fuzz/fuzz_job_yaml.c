/* fuzz_job_yaml.c - a configuration, which must read back from what is written of it. */
#include "estimator/config/job.h"
#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void write_again(const struct pl_job *job) {
    struct pl_text once = {0}, twice = {0};
    struct pl_job again;
    struct pl_diag d = {0};
    pl_job_write(job, &once);
    pl_err err = pl_job_parse(&again, "again", pl_text_str(&once), once.len, NULL, 0, NULL, &d);
    FUZZ_CHECK(fuzz_outcome(err, &d));
    pl_job_write(&again, &twice);
    FUZZ_CHECK(once.len == twice.len && memcmp(once.data, twice.data, once.len) == 0);
    pl_job_finish(&again);
    pl_text_finish(&once);
    pl_text_finish(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_job job;
    struct pl_text notes = {0};
    struct pl_diag d = {0};
    pl_err err = pl_job_parse(&job, "job.yaml", (const char *)data, size, NULL, 0, &notes, &d);
    if (fuzz_outcome(err, &d)) {
        FUZZ_CHECK(job.max_seq_length > 0 && pl_job_accumulation(&job, 1) > 0);
        write_again(&job);
        pl_job_finish(&job);
    }
    pl_text_finish(&notes);
    return 0;
}
