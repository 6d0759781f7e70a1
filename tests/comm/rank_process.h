/* rank_process.h - tests whose ranks are real processes: this program, started by the launcher.
 *
 * What a rank finds is written where the test reads it: `ranks`, memory that all share.
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
    char told[256]; /* while the ranks met; "": nothing */
    double seconds; /* since the victim fell, where there is one */
    int pid;
    uint64_t rounds;
};

struct ranks_shared {
    struct rank_outcome of[PL_RANKS_MAX];
    uint32_t limit, seed; /* seconds; of what is drawn at random */
    int victim, signal;   /* victim -1 = none */
    _Atomic uint64_t fell_ns;
    atomic_uint gate; /* for bodies */
    atomic_uint port; /* where rank 0 listens */
};
extern struct ranks_shared *ranks;

struct ranks_body {
    const char *name;
    int (*run)(const struct pl_world *w); /* the exit status of the rank */
};
/* The exit status of a rank; -1 = this process is the test. */
int ranks_main(int argc, char *argv[], const struct ranks_body *bodies, size_t n);

struct ranks_run {
    const char *body;
    uint32_t n, limit, seed;
    int signal; /* of the victim; 0 = there is none */
    int victim;
    bool mpi;
};
/* Returns the status of the launcher. ranks_init before, where a test writes to `ranks` first. */
int ranks_run(const struct ranks_run *r);
void ranks_init(void);

/* ---- for bodies ---- */

uint64_t ranks_now_ns(void);
/* The victim falls in up to most_ms milliseconds, whatever it does then. */
void ranks_fall_soon(const struct pl_world *w, uint32_t most_ms);
/* Writes down how it ended. Returns 0, or 1 where err is a failure. */
int ranks_note(const struct pl_world *w, pl_err err, const struct pl_diag *d);
/* A comm without an engine: agreements alone. */
pl_err ranks_open_control(struct pl_comm *c, const struct pl_world *w, struct pl_diag *d);
/* 64 bits that (seed, a, b) give. */
uint64_t ranks_mix(uint64_t a, uint64_t b);

#endif
