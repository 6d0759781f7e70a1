/* fuzz_import.c - a configuration of another trainer: the job that is written reads back as the
 * same job, unless the import says what it lacks. */
#include "estimator/config/job_text.h"
#include "estimator/import/import.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void read_back(const struct pl_import *im) {
    struct pl_text yaml = {0}, once = {0}, twice = {0};
    struct pl_job job;
    struct pl_diag d = {0};
    pl_import_write(im, &yaml);
    pl_err err = pl_job_parse(&job, "job.yaml", pl_text_str(&yaml), yaml.len, NULL, 0, NULL, &d);
    if (fuzz_outcome(err, &d)) {
        pl_job_write(&im->job, &once);
        pl_job_write(&job, &twice);
        FUZZ_CHECK(once.len == twice.len && memcmp(once.data, twice.data, once.len) == 0);
        pl_job_finish(&job);
    } else {
        FUZZ_CHECK(pl_import_count(im, PL_IMPORT_MISSED) > 0 || yaml.len > PL_DOCUMENT_BYTES);
        FUZZ_CHECK(err == PL_ERR_CONFIG_MISSING || err == PL_ERR_CONFIG_CONFLICT ||
                   yaml.len > PL_DOCUMENT_BYTES);
    }
    pl_text_finish(&yaml);
    pl_text_finish(&once);
    pl_text_finish(&twice);
}

static void answer(const struct pl_import *im) {
    struct pl_report r = {0};
    pl_import_report(im, &r);
    json_t *o = pl_report_end(&r);
    FUZZ_CHECK(o);
    json_decref(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_import im;
    struct pl_diag d = {0};
    const enum pl_recipe from = size ? (enum pl_recipe)(data[0] % PL_RECIPE_COUNT) : PL_RECIPE_NONE;
    const enum pl_recipe tried[] = {PL_RECIPE_NONE, from};
    for (int i = 0; i < 2; i++) {
        d = (struct pl_diag){0};
        pl_err err = pl_import_parse(&im, "their.yaml", (const char *)data, size, tried[i], &d);
        if (fuzz_outcome(err, &d)) {
            read_back(&im);
            answer(&im);
        }
        pl_import_finish(&im);
    }
    return 0;
}
