/* mpi_module.c - the table of mpi_module.h, over the MPI of the machine. */
#include "runtime/comm/mpi_module.h"
#include "runtime/comm/mpi_near.h"

#include <mpi.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* MPI says nothing of how long a test will find nothing. Ranks that share a core let each other run
 * at every test; after a while they also leave the core to its other users. */
enum { YIELD_NS = 5000000, NAP_NS = 50000 };

enum { TAG_BYTES, TAG_OFFER, TAG_READ };

static MPI_Comm ranks = MPI_COMM_NULL;
static struct pl_near near;

/* Sent by a move instead of its bytes if the receiver reads them; the receiver answers by an empty
 * message when it has. */
struct offer {
    uint64_t address, bytes;
};

static int meet_near(uint32_t rank, uint32_t size) {
    static struct pl_near_card mine;
    if (size > PL_RANKS_MAX) return 0;
    pl_near_card_init(&mine);
    int e = MPI_Allgather(&mine, sizeof mine, MPI_BYTE, near.cards, sizeof mine, MPI_BYTE, ranks);
    if (e != MPI_SUCCESS) return e;
    pl_near_try(&near, rank, size);
    return MPI_Alltoall(near.reads, 1, MPI_BYTE, near.read_by, 1, MPI_BYTE, ranks);
}

static int start(uint32_t *rank, uint32_t *size) {
    int e, level, r = 0, n = 0;
    /* UCX, below MPICH, ends a reader when it reads the memory of a process that was killed. */
    (void)setenv("UCX_TLS", "^cma", 0);
    if ((e = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level)) != MPI_SUCCESS) return e;
    /* Failures of several requests at once are reported at the world. */
    if ((e = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN)) != MPI_SUCCESS) return e;
    if ((e = MPI_Comm_dup(MPI_COMM_WORLD, &ranks)) != MPI_SUCCESS) return e;
    if ((e = MPI_Comm_rank(ranks, &r)) != MPI_SUCCESS) return e;
    if ((e = MPI_Comm_size(ranks, &n)) != MPI_SUCCESS) return e;
    *rank = (uint32_t)r;
    *size = (uint32_t)n;
    return meet_near(*rank, *size);
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

static int post(const struct pl_move *m, struct offer *offer, MPI_Request *request) {
    const bool offered = pl_near_moves(&near, m->peer, m->receive, m->bytes);
    void *p = offered ? offer : m->p;
    int bytes = offered ? (int)sizeof *offer : (int)m->bytes;
    /* Any tag is received: a rank that sends something unexpected is found, not waited for. */
    if (m->receive) return MPI_Irecv(p, bytes, MPI_BYTE, (int)m->peer, MPI_ANY_TAG, ranks, request);
    *offer = (struct offer){(uintptr_t)m->p, m->bytes};
    return MPI_Isend(p, bytes, MPI_BYTE, (int)m->peer, offered ? TAG_OFFER : TAG_BYTES, ranks,
                     request);
}

/* A message that is longer than its move is MPI_ERR_TRUNCATE; one that is shorter is no error of
 * MPI's. */
static bool is_expected(const struct pl_move *m, const MPI_Status *status,
                        const struct offer *offer) {
    int came = 0;
    const bool offered = pl_near_moves(&near, m->peer, true, m->bytes);
    return MPI_Get_count(status, MPI_BYTE, &came) == MPI_SUCCESS &&
           status->MPI_TAG == (offered ? TAG_OFFER : TAG_BYTES) &&
           (uint64_t)came == (offered ? sizeof *offer : m->bytes) &&
           (!offered || offer->bytes == m->bytes);
}

/* Returns the error of the first request that failed in a test. */
static int failure(int e, uint32_t n, const MPI_Status *statuses) {
    int class = e;
    for (uint32_t i = 0; e == MPI_ERR_IN_STATUS && i < n; i++)
        if (statuses[i].MPI_ERROR != MPI_SUCCESS && statuses[i].MPI_ERROR != MPI_ERR_PENDING)
            e = statuses[i].MPI_ERROR;
    (void)MPI_Error_class(e, &class);
    return class == MPI_ERR_TRUNCATE ? PL_MPI_OTHER_SIZE : e;
}

static int complete(MPI_Request *requests, uint32_t n, MPI_Status *statuses,
                    const atomic_bool *stop) {
    for (uint64_t since = now_ns();;) {
        int done = 0;
        int e = MPI_Testall((int)n, requests, &done, statuses);
        if (e != MPI_SUCCESS) return failure(e, n, statuses);
        if (done) return 0;
        if (atomic_load_explicit(stop, memory_order_relaxed)) return PL_MPI_STOPPED;
        rest(since);
    }
}

/* Reads what was offered, and says so; a sender waits for that. */
static int take_offer(const struct pl_move *m, const struct offer *offer, const atomic_bool *stop,
                      MPI_Request *request) {
    if (!m->receive) return MPI_Irecv(NULL, 0, MPI_BYTE, (int)m->peer, TAG_READ, ranks, request);
    if (!pl_near_read(&near, m->peer, m->p, offer->address, m->bytes, stop))
        return PL_MPI_UNREADABLE;
    return MPI_Isend(NULL, 0, MPI_BYTE, (int)m->peer, TAG_READ, ranks, request);
}

static int take_all(const struct pl_move *moves, uint32_t n, const struct offer *offers,
                    MPI_Request *requests, MPI_Status *statuses, const atomic_bool *stop) {
    uint32_t taken = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!pl_near_moves(&near, moves[i].peer, moves[i].receive, moves[i].bytes)) continue;
        int e = take_offer(&moves[i], &offers[i], stop, &requests[taken++]);
        if (e != MPI_SUCCESS) return e;
    }
    return complete(requests, taken, statuses, stop);
}

static int exchange(const struct pl_move *moves, uint32_t n, void *memory,
                    const atomic_bool *stop) {
    struct offer *offers = memory;
    MPI_Status *statuses = (MPI_Status *)(void *)(offers + n);
    MPI_Request *requests = (MPI_Request *)(void *)(statuses + n);
    int e = MPI_SUCCESS;
    /* Receives first: what arrives finds its place. */
    for (uint32_t i = 0; i < n && e == MPI_SUCCESS; i++)
        if (moves[i].receive) e = post(&moves[i], &offers[i], &requests[i]);
    for (uint32_t i = 0; i < n && e == MPI_SUCCESS; i++)
        if (!moves[i].receive) e = post(&moves[i], &offers[i], &requests[i]);
    if (e == MPI_SUCCESS) e = complete(requests, n, statuses, stop);
    for (uint32_t i = 0; i < n && e == MPI_SUCCESS; i++)
        if (moves[i].receive && !is_expected(&moves[i], &statuses[i], &offers[i]))
            e = PL_MPI_OTHER_SIZE;
    return e == MPI_SUCCESS ? take_all(moves, n, offers, requests, statuses, stop) : e;
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
    .move_bytes = sizeof(struct offer) + sizeof(MPI_Status) + sizeof(MPI_Request),
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
