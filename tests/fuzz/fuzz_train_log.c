/* fuzz_train_log.c - train_log.jsonl as a run that resumes finds it: after the opening it holds the
 * steps up to that of the checkpoint, all of them and no other, and takes another line. */
#include "runtime/report/run_log.h"
#include "runtime/report/report.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <string.h>

static struct pl_run_log read_run_log(const char *path) {
    struct pl_run_log h;
    struct pl_diag d = {0};
    FUZZ_CHECK(pl_run_log_read(path, &h, &d) == PL_ERR_OK);
    return h;
}

/* NaN where no line has a loss. */
static double loss_at(const struct pl_run_log *h, uint64_t i) {
    const double *losses = pl_figures_column(&h->steps, "loss");
    return losses ? losses[i] : NAN;
}

/* Numbers, or not a number in both. */
static bool is_same(double a, double b) {
    return memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
}

/* A line that also says `steps` is dropped by that, and a step before it that it had written again
 * is there once more. */
static bool says_steps(const uint8_t *data, size_t size) {
    return memmem(data, size, "\"steps\"", 7) || memchr(data, '\\', size);
}

/* `after` has no step beyond `keep`; and is what `before` has up to it, where that is `all`. */
static void check_kept(const struct pl_run_log *before, const struct pl_run_log *after,
                       uint64_t keep, bool all) {
    uint64_t at = 0;
    for (uint64_t i = 0; i < after->steps.n; i++)
        FUZZ_CHECK(after->steps.step[i] <= (double)keep);
    for (uint64_t i = 0; all && i < before->steps.n; i++) {
        if (before->steps.step[i] > (double)keep) continue;
        FUZZ_CHECK(at < after->steps.n && is_same(after->steps.step[at], before->steps.step[i]) &&
                   is_same(loss_at(after, at), loss_at(before, i)));
        at++;
    }
    FUZZ_CHECK(!all || after->steps.n == at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_log *log = NULL;
    struct pl_diag d = {0};
    const uint64_t keep = 1 + size % 5;
    const char *path = fuzz_file("train_log.jsonl", data, size);
    struct pl_run_log before = read_run_log(path);
    FUZZ_CHECK(pl_log_open(path, keep, NULL, &log, &d) == PL_ERR_OK);
    struct pl_run_log kept = read_run_log(path);
    check_kept(&before, &kept, keep, !says_steps(data, size));
    const struct pl_step_report step = {.step = keep + 1, .loss = 2.5};
    FUZZ_CHECK(pl_log_step(log, &step, &d) == PL_ERR_OK);
    pl_log_close(&log);
    struct pl_run_log more = read_run_log(path);
    FUZZ_CHECK(more.steps.n == kept.steps.n + 1 && loss_at(&more, kept.steps.n) == 2.5);
    pl_run_log_finish(&before);
    pl_run_log_finish(&kept);
    pl_run_log_finish(&more);
    return 0;
}
