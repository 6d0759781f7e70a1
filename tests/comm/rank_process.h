/* rank_process.h - tests whose ranks are real processes: this program, started by the launcher.
 *
 * A rank writes its findings to `ranks`, memory that it shares with the test.
 * Use: int main(int argc, char *argv[]) {
 *          int status = ranks_main(argc, argv, bodies, n_bodies);
 *          if (status >= 0) return status; ... the suite }
 *      ranks_run(&(struct ranks_run){.body = "agree", .n = 3, .limit = 2}); ranks->of[1].err */
#ifndef PL_TESTS_COMM_RANK_PROCESS_H
#define PL_TESTS_COMM_RANK_PROCESS_H

#include "runtime/comm/comm.h"
#include "runtime/comm/control.h"

#include <signal.h>
#include <stdatomic.h>

struct rank_outcome {
    int err;
    char message[1024];
    char told[256]; /* message while the ranks met; "" = none */
    double seconds; /* since the victim fell, if there is one */
    int pid;
    uint64_t rounds;
};

struct ranks_shared {
    struct rank_outcome of[PL_RANKS_MAX];
    uint32_t limit, seed; /* seconds; seed of random choices */
    int victim, signal;   /* victim -1 = none */
    _Atomic uint64_t fell_ns;
    atomic_uint gate; /* for bodies */
    atomic_uint port; /* address at which rank 0 listens */
};
extern struct ranks_shared *ranks;

struct ranks_body {
    const char *name;
    int (*run)(const struct pl_world *w); /* the exit status of the rank */
};
/* Returns the exit status of a rank; -1 = this process is the test. */
int ranks_main(int argc, char *argv[], const struct ranks_body *bodies, size_t n);

struct ranks_run {
    const char *body;
    uint32_t n, limit, seed;
    int signal; /* pid of the victim; 0 = there is none */
    int victim;
    bool mpi;
};
/* Returns the status of the launcher. ranks_init is called before, if a test writes to `ranks`
 * first. */
int ranks_run(const struct ranks_run *r);
void ranks_init(void);

/* ---- for bodies ---- */

uint64_t ranks_now_ns(void);
/* The victim falls in up to most_ms milliseconds, whatever it is doing. */
void ranks_fall_soon(const struct pl_world *w, uint32_t most_ms);
/* Records how the rank ended. Returns 0, or 1 if err is a failure. */
int ranks_note(const struct pl_world *w, pl_err err, const struct pl_diag *d);
/* Opens a comm without an engine, for agreements alone. */
pl_err ranks_open_control(struct pl_comm *c, const struct pl_world *w, struct pl_diag *d);
/* Returns 64 bits that are a function of (seed, a, b). */
uint64_t ranks_mix(uint64_t a, uint64_t b);

#endif
