/* pmi.h - the side of PMI-1 that starts processes of MPICH: one socket for each of them.
 *
 * A line is a request, `cmd=NAME key=value ...`, and is answered by a line. The processes put their
 * addresses into a store, wait for each other, and read the addresses of the others.
 * Source: src/pmi/src/pmi_v1.c of MPICH 4 (libpmi), the client's side.
 *   Q1  a line is at most PL_PMI_LINE bytes, and the store PL_PMI_MOST
 * Needs: estimator/base. Use: pl_pmi_hear(&pmi, rank, fd) when fd is readable. */
#ifndef PL_RUNTIME_COMM_PMI_H
#define PL_RUNTIME_COMM_PMI_H

#include "runtime/comm/comm.h"

#define PL_PMI_LINE 4096
#define PL_PMI_MOST (1u << 20)

struct pl_pmi {
    uint32_t ranks;
    int fds[PL_RANKS_MAX]; /* -1 = none */
    uint32_t have[PL_RANKS_MAX];
    char lines[PL_RANKS_MAX][PL_PMI_LINE];
    bool waits[PL_RANKS_MAX];   /* in the barrier */
    bool aborted[PL_RANKS_MAX]; /* it asked to be ended, and may be waiting for it */
    char *store;                /* "key\0value\0..." */
    uint32_t store_bytes;
};

/* Reads the requests of a rank and answers them. False: it sent something other than PMI, or ended;
 * its fd is closed. */
bool pl_pmi_hear(struct pl_pmi *p, uint32_t rank);
void pl_pmi_finish(struct pl_pmi *p);

#endif
