/* fault_rig.h - a command in a child of the test, over and over, each time on a copy of one
 * directory, and what must hold of the files that it leaves.
 *
 * Below rig.dir: start/, which every run finds; work/, its copy for the run at hand; undisturbed/,
 * the result of a run without faults; stdin, stdout and stderr of the latest run.
 *
 *   1  a child never outlives rig_run, and one that hangs is ended by SIGALRM
 *   2  a weight file in work/ is that of start/ or that of undisturbed/; JSON is whole; no file of
 *      start/ is gone; what is being written has another name, with `.tmp` in it
 *
 * Use: rig_make(&r, rig_make_model, NULL); rig_restore(&r);
 *      int status = rig_run(&r, words, rig_path(&r, RIG_WORK), &faults);
 *      const char *wrong = rig_judge_files(&r, status == 0); */
#ifndef PL_TESTS_FAULT_FAULT_RIG_H
#define PL_TESTS_FAULT_FAULT_RIG_H

#include "tests/support/fault_shim.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <stdbool.h>
#include <stdint.h>

#define RIG_WORDS       16 /* words of a command, NULL included */
#define RIG_REPORTS     24 /* number of different failures */
#define RIG_WORK        "work"
#define RIG_START       "start"
#define RIG_UNDISTURBED "undisturbed"

/* A sanitizer has its own malloc, and has to be the first library. */
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define RIG_HAS_SHIM 1
#endif

struct rig {
    char dir[SCRATCH_PATH];
    uint64_t told[RIG_REPORTS]; /* hashes of the failures that were reported */
    unsigned n_told, broken;
};

/* Called in the child, before the first line of the program and after its last. */
struct rig_faults {
    void (*begin)(const struct rig *r, void *ctx);
    void (*end)(const struct rig *r, void *ctx);
    void *ctx;
};

/* input: the text of stdin; NULL: nothing. */
void rig_make(struct rig *r, void (*prepare)(const char *dir), const char *input);
const char *rig_path(const struct rig *r, const char *name);
void rig_restore(const struct rig *r); /* work/ becomes start/ */
/* Returns the exit status, or 128 + a signal. f: NULL = no call fails. */
int rig_run(const struct rig *r, const char *const words[], const char *cwd,
            const struct rig_faults *f);
/* Returns the fault in work/, NULL = none. done: it has everything that undisturbed/ has. */
const char *rig_judge_files(const struct rig *r, bool done);
/* Counts a failure, and prints it unless one like it was printed. */
void rig_report(struct rig *r, const char *where, int status, const char *what);

/* Runs one test in this process, for as long as it takes; returns the exit status. */
int rig_check(const char *suite, const TTest *test);

/* Functions for `prepare`: a model of one layer and its run.yaml of two steps; the same with its
 * finished run in out/; with the last checkpoint gone, so that step 2 runs again over the final
 * files; with an adapter of that model in adapter/. */
void rig_make_model(const char *dir);
void rig_make_trained(const char *dir);
void rig_make_interrupted(const char *dir);
void rig_make_adapter(const char *dir);

#endif
