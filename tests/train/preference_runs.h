/* preference_runs.h - runs of the recorded cases of preferences, in a directory of the test's own.
 *
 * GOLDEN_DEVICE, when set, names a device other than the CPU. */
#ifndef PL_TESTS_TRAIN_PREFERENCE_RUNS_H
#define PL_TESTS_TRAIN_PREFERENCE_RUNS_H

#include "tests/support/child.h"
#include "tests/support/scratch.h"

#include <stdlib.h>

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

/* Trains the case of a directory into dir/out. Words are NULL-terminated. */
static void train(const char *path, const char *out, const char *const more[],
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
    struct outcome o = plimsoll_expect(0, path, words);
    outcome_finish(&o);
}

/* GOLDEN is the directory of the supervised cases. */
#define TRAIN(name, out, more, ...)                                                                \
    train(textf("%s/../preference/%s", GOLDEN, name), out, more,                                   \
          (const char *[]){__VA_ARGS__, NULL})

#endif
