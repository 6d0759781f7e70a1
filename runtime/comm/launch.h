/* launch.h - starts the ranks of a job on this machine, and watches them.
 *
 *   N1  a rank ends with the launcher, however that ends
 *   N2  SIGINT, SIGTERM and other signals of the launcher go to every rank
 *   N3  what remains some time after rank 0 ended, or stopped while another failed or all others
 *       ended, is killed
 *   N4  rank 0 is told of a rank that failed before the ranks met, and does not wait for it
 * Needs: estimator/base. POSIX, prctl(PR_SET_PDEATHSIG).
 * Use: pl_launch(&(struct pl_launch){.ranks = 4, .argv = argv, .timeout_seconds = 10}, &status, &d)
 */
#ifndef PL_RUNTIME_COMM_LAUNCH_H
#define PL_RUNTIME_COMM_LAUNCH_H

#include "runtime/comm/comm.h"

#include <signal.h>

#define PL_JOB_TOKEN                                                                               \
    "PLIMSOLL_JOB_TOKEN"                /* variable with the token by which ranks of a job know
                                             each other */
#define PL_LAUNCHED "PLIMSOLL_LAUNCHED" /* set in the ranks of pl_launch */

/* The rank that a signal ended, and the signal; 0 = none. */
struct pl_fallen {
    uint32_t rank;
    int signal;
    bool was_stopped; /* the launcher's own signal ended it */
    bool is_whole;    /* rank 0 ended with status 0: it had saved everything */
};

struct pl_launch {
    uint32_t ranks;
    uint32_t timeout_seconds; /* limit for silence, as in the ranks */
    bool mpi;                 /* the ranks use MPI */
    char *const *argv;        /* arguments of this program, with which each of them is started */
    int (*run)(void *arg);    /* called in place of another program; returns the exit status */
    void *arg;
    struct pl_fallen *fallen; /* nullable; receives the first rank that was ended by a signal,
                               * unless the launcher ended it after another failure */
    volatile sig_atomic_t *signalled; /* nullable; a signal that the launcher caught, or 0 */
};
/* Returns when all have ended. *status is 0 if rank 0 ended with 0, a signal ended another rank,
 * and none ended by an error of its own: a rank that fell then had nothing left to give. Else it is
 * that of the first rank that ended with a status other than that of COMM_PEER_LOST, or 128 + its
 * signal; if there is none, that of rank 0, or of the first that failed. COMM_INIT: no rank was
 * started, or not all. */
pl_err pl_launch(const struct pl_launch *l, int *status, struct pl_diag *d);

#endif
