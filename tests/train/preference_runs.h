/* preference_runs.h - runs of the recorded cases of preferences, in a directory of the test's own.
 *
 * GOLDEN_DEVICE, when set, names a device other than the CPU. */
#ifndef PL_TESTS_TRAIN_PREFERENCE_RUNS_H
#define PL_TESTS_TRAIN_PREFERENCE_RUNS_H

#include "tests/support/child.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

/* Trains the case of a directory into dir/out, which ends with `status`; returns the messages,
 * malloc'd. Words are NULL-terminated. */
static char *train(int status, const char *path, const char *out, const char *const more[],
                   const char *const last[]) {
    const char *device = getenv("GOLDEN_DEVICE") ? getenv("GOLDEN_DEVICE") : "cpu";
    const char *words[24] = {"train",
                             "run.yaml",
                             "--quiet",
                             "threads=1",
                             "preflight=off",
                             textf("device=%s", device),
                             textf("output_dir=%s/%s", dir, out)};
    int n = 7;
    for (; *more; more++)
        words[n++] = *more;
    for (; *last; last++)
        words[n++] = *last;
    struct outcome o = plimsoll_expect(status, path, words);
    char *messages = strdup(o.err);
    ck_assert_ptr_nonnull(messages);
    outcome_finish(&o);
    return messages;
}

/* GOLDEN is the directory of the supervised cases. */
#define TRAIN(name, out, more, ...)                                                                \
    free(train(0, textf("%s/../preference/%s", GOLDEN, name), out, more,                           \
               (const char *[]){__VA_ARGS__, NULL}))

#endif
