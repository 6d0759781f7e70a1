/* crew.h - runs of several ranks through the real binary. Failures end the test.
 *
 * The launcher of crew_run executes the test's own program once a rank, which waits for plimsoll
 * and keeps its output and its exit status.
 *   1  a rank never outlives the test: it is killed with the process that started it
 * Use: if (crew_is_rank(argc, argv)) return crew_rank(argc, argv);
 *      if (!crew_has_ranks()) return 77; ... */
#ifndef PL_TESTS_RANKS_CREW_H
#define PL_TESTS_RANKS_CREW_H

#include "tests/support/child.h"
#include "tests/support/scratch.h"

#include <stdbool.h>
#include <sys/types.h>

#define CREW_RANKS 8
#define CREW_WORDS 20

/* Returns GOLDEN_DEVICE; "cpu" unless it is set. */
const char *crew_device(void);
/* False, with a line on stderr, if this build moves nothing between such devices. */
bool crew_has_ranks(void);

bool crew_is_rank(int argc, char *const *argv);
int crew_rank(int argc, char *const *argv);

struct crew {
    unsigned ranks;
    unsigned odd;         /* the rank that gets one more word; */
    const char *odd_word; /* NULL = none; NAME/: it runs in that directory; LD_PRELOAD=PATH: with
                             that library */
};
struct crew_end {
    int status; /* as of struct outcome */
    char *err;
};
struct crew_outcome {
    int status; /* status of the launcher */
    double seconds;
    struct crew_end ranks[CREW_RANKS];
};
/* Runs `plimsoll train run.yaml words...` in cwd, as ranks; at most CREW_WORDS, NULL-terminated. */
struct crew_outcome crew_run(const char *cwd, const struct crew *crew, const char *const words[]);
void crew_finish(struct crew_outcome *o);
/* crew_run, and the test ends unless every rank exits with `status`. */
void crew_expect(int status, const char *cwd, const struct crew *crew, const char *const words[]);

/* Returns the process of a rank of `plimsoll train --devices` that runs in cwd; 0 = there is none
 * now. */
pid_t crew_try_rank(const char *cwd, unsigned rank);
/* Waits for it; 0 = it did not come, or had ended already. */
pid_t crew_look_for_rank(const char *cwd, unsigned rank);
/* Waits for it, and ends the test if it does not come. */
pid_t crew_find_rank(const char *cwd, unsigned rank);
/* True if out/train_log.jsonl of cwd has `n` lines of steps. */
bool crew_has_steps(const char *cwd, const char *out, int n);
/* Waits for them, and ends the test if they do not come. */
void crew_wait_for_steps(const char *cwd, const char *out, int n);
/* Returns the step of the newest checkpoint of a run that was ended, as the next start finds it;
 * the test ends if there is none. */
int crew_last_checkpoint(const char *cwd, const char *out);
void crew_pause(double seconds);

#endif
