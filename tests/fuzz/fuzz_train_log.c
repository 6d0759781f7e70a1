/* fuzz_train_log.c - train_log.jsonl as a run that resumes finds it: after the opening it holds the
 * steps up to that of the checkpoint, all of them and no other, and takes another line. */
#include "runtime/report/report.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

struct losses {
    double *steps, *losses;
    uint64_t n;
};

static struct losses read_losses(const char *path) {
    struct losses l = {0};
    struct pl_diag d = {0};
    FUZZ_CHECK(pl_log_read_losses(path, &l.steps, &l.losses, &l.n, &d) == PL_ERR_OK);
    return l;
}

static void finish(struct losses *l) {
    free(l->steps);
    free(l->losses);
}

/* Numbers, or not a number in both. */
static bool is_same(double a, double b) {
    return memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
}

/* A line that also says `steps` is dropped by that, which the pairs do not show. */
static bool says_steps(const uint8_t *data, size_t size) {
    return memmem(data, size, "\"steps\"", 7) || memchr(data, '\\', size);
}

/* `after` is what `before` has up to step `keep`, in its order: all of it, or else a part. */
static void check_kept(const struct losses *before, const struct losses *after, uint64_t keep,
                       bool all) {
    uint64_t at = 0;
    for (uint64_t i = 0; i < before->n; i++) {
        if (before->steps[i] > (double)keep) continue;
        bool same = at < after->n && is_same(after->steps[at], before->steps[i]) &&
                    is_same(after->losses[at], before->losses[i]);
        FUZZ_CHECK(same || !all);
        at += same;
    }
    FUZZ_CHECK(after->n == at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pl_log *log = NULL;
    struct pl_diag d = {0};
    double *recoveries = NULL;
    uint64_t n = 0, keep = 1 + size % 5;
    const char *path = fuzz_file("train_log.jsonl", data, size);
    struct losses before = read_losses(path);
    FUZZ_CHECK(pl_log_read_recoveries(path, &recoveries, &n, &d) == PL_ERR_OK);
    FUZZ_CHECK(pl_log_open(path, keep, NULL, &log, &d) == PL_ERR_OK);
    struct losses kept = read_losses(path);
    check_kept(&before, &kept, keep, !says_steps(data, size));
    const struct pl_step_report step = {.step = keep + 1, .loss = 2.5};
    FUZZ_CHECK(pl_log_step(log, &step, &d) == PL_ERR_OK);
    pl_log_close(&log);
    struct losses more = read_losses(path);
    FUZZ_CHECK(more.n == kept.n + 1 && more.losses[kept.n] == 2.5);
    free(recoveries);
    finish(&before);
    finish(&kept);
    finish(&more);
    return 0;
}
