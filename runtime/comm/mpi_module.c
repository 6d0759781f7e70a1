/* mpi_module.c - the table of mpi_module.h, over the MPI of the machine. */
#include "runtime/comm/mpi_module.h"

#include <mpi.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* MPI says nothing of how long a test will find nothing. Ranks that share a core let each other run
 * at every test; after a while they also leave the core to its other users. */
enum { YIELD_NS = 5000000, NAP_NS = 50000 };

static MPI_Comm ranks = MPI_COMM_NULL;

static int start(uint32_t *rank, uint32_t *size) {
    int e, level, r = 0, n = 0;
    /* Of UCX, below MPICH: reading the memory of a process that was killed ends the reader too. */
    (void)setenv("UCX_TLS", "^cma", 0);
    if ((e = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level)) != MPI_SUCCESS) return e;
    /* Of the world: what fails on several requests at once is reported there. */
    if ((e = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN)) != MPI_SUCCESS) return e;
    if ((e = MPI_Comm_dup(MPI_COMM_WORLD, &ranks)) != MPI_SUCCESS) return e;
    if ((e = MPI_Comm_rank(ranks, &r)) != MPI_SUCCESS) return e;
    if ((e = MPI_Comm_size(ranks, &n)) != MPI_SUCCESS) return e;
    *rank = (uint32_t)r;
    *size = (uint32_t)n;
    return 0;
}

static int share(void *p, uint64_t bytes) {
    return MPI_Bcast(p, (int)bytes, MPI_BYTE, 0, ranks);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void rest(uint64_t since_ns) {
    const struct timespec nap = {.tv_nsec = NAP_NS};
    if (now_ns() - since_ns < YIELD_NS)
        sched_yield();
    else
        nanosleep(&nap, NULL);
}

static int post(const struct pl_move *m, MPI_Request *request) {
    if (m->receive)
        return MPI_Irecv(m->p, (int)m->bytes, MPI_BYTE, (int)m->peer, 0, ranks, request);
    return MPI_Isend(m->p, (int)m->bytes, MPI_BYTE, (int)m->peer, 0, ranks, request);
}

/* A message that is longer than its move is MPI_ERR_TRUNCATE; one that is shorter is no error of
 * MPI's. */
static int check_sizes(const struct pl_move *moves, uint32_t n, const MPI_Status *statuses) {
    for (uint32_t i = 0; i < n; i++) {
        int came = 0;
        if (!moves[i].receive) continue;
        if (MPI_Get_count(&statuses[i], MPI_BYTE, &came) != MPI_SUCCESS ||
            (uint64_t)came != moves[i].bytes)
            return PL_MPI_OTHER_SIZE;
    }
    return 0;
}

/* Of a test that failed: the first request that did. */
static int failure(int e, uint32_t n, const MPI_Status *statuses) {
    int class = e;
    for (uint32_t i = 0; e == MPI_ERR_IN_STATUS && i < n; i++)
        if (statuses[i].MPI_ERROR != MPI_SUCCESS && statuses[i].MPI_ERROR != MPI_ERR_PENDING)
            e = statuses[i].MPI_ERROR;
    (void)MPI_Error_class(e, &class);
    return class == MPI_ERR_TRUNCATE ? PL_MPI_OTHER_SIZE : e;
}

static int exchange(const struct pl_move *moves, uint32_t n, void *memory,
                    const atomic_bool *stop) {
    MPI_Status *statuses = memory;
    MPI_Request *requests = (MPI_Request *)(void *)(statuses + n);
    int e = MPI_SUCCESS, done = 0;
    /* Receives first: what arrives finds its place. */
    for (uint32_t i = 0; i < n && e == MPI_SUCCESS; i++)
        if (moves[i].receive) e = post(&moves[i], &requests[i]);
    for (uint32_t i = 0; i < n && e == MPI_SUCCESS; i++)
        if (!moves[i].receive) e = post(&moves[i], &requests[i]);
    for (uint64_t since = now_ns(); e == MPI_SUCCESS;) {
        e = MPI_Testall((int)n, requests, &done, statuses);
        if (e != MPI_SUCCESS) return failure(e, n, statuses);
        if (done) return check_sizes(moves, n, statuses);
        if (atomic_load_explicit(stop, memory_order_relaxed)) return PL_MPI_STOPPED;
        rest(since);
    }
    return e;
}

static int finish(void) {
    int e = MPI_Comm_free(&ranks);
    return e == MPI_SUCCESS ? MPI_Finalize() : e;
}

static void text(int error, char out[PL_MPI_ERROR_TEXT]) {
    char room[MPI_MAX_ERROR_STRING];
    int length = 0;
    if (MPI_Error_string(error, room, &length) != MPI_SUCCESS) length = 0;
    snprintf(out, PL_MPI_ERROR_TEXT, "%.*s", length, room);
}

const struct pl_mpi_module pl_mpi_module = {
    .version = PL_MPI_VERSION,
    .move_bytes = sizeof(MPI_Status) + sizeof(MPI_Request),
#ifdef MPICH_VERSION
    .speaks_pmi = true,
#endif
#ifdef PL_MPIEXEC
    .mpiexec = PL_MPIEXEC,
#endif
    .start = start,
    .share = share,
    .exchange = exchange,
    .finish = finish,
    .text = text,
};
