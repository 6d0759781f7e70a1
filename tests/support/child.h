/* child.h - runs a program with a limit of time, and keeps its output and its resources.
 *
 * Test helper: a failure of the helper itself ends the test.
 *   1  a child never outlives child_wait: past the limit it is killed and `timed_out` is set
 *   2  both streams go to unnamed files, so that the child cannot block on them, except for a
 *      stdout that was asked for as a pipe
 * Use: struct outcome o = child_run((const char *[]){"ls", NULL}, "/tmp", 10); ...
 *      outcome_finish(&o); */
#ifndef PL_TESTS_SUPPORT_CHILD_H
#define PL_TESTS_SUPPORT_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

struct child {
    pid_t pid;
    FILE *out, *err;
    bool piped; /* `out` is the reading end of a pipe of one page */
};

struct outcome {
    int status; /* exit status, 128 + n after signal n */
    bool timed_out;
    uint64_t peak_bytes; /* largest resident set */
    double seconds;      /* for child_run: from the start to the end */
    double cpu_seconds;  /* CPU time of the program itself, and of the kernel for it */
    char *out, *err;     /* all of both streams; out is "" if it was a pipe */
};

/* argv[0] is looked up in PATH if it has no slash; argv ends with NULL; stdin is /dev/null. cwd:
 * NULL = that of the test. */
struct child child_start(const char *const argv[], const char *cwd, bool piped);
/* Waits, killing the child after `seconds`. Leaves *c as {0}. */
struct outcome child_wait(struct child *c, double seconds);
struct outcome child_run(const char *const argv[], const char *cwd, double seconds);
void outcome_finish(struct outcome *o);

/* Runs `plimsoll words...` in cwd; the environment variable PLIMSOLL names the binary. At most 24
 * words, NULL-terminated. A run that hangs ends the test (hang.h). */
struct outcome plimsoll_run(const char *cwd, const char *const words[]);
struct child plimsoll_start(const char *cwd, const char *const words[], bool piped);
/* plimsoll_run, and the test ends unless it exits with `status`. */
struct outcome plimsoll_expect(int status, const char *cwd, const char *const words[]);
/* The same two functions for `train run.yaml words...`; at most 9 words. */
struct outcome plimsoll_train(const char *cwd, const char *const words[]);
void plimsoll_train_expect(int status, const char *cwd, const char *const words[]);

double seconds_now(void); /* monotonic */

#endif
