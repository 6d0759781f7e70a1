/* nccl.c - the engine between GPUs.
 *
 * The communicator does not block: what NCCL does in the background is waited for here, with a look
 * at whether a rank was lost. `lock` is held around every call that names the communicator, since
 * another thread may abort it; after that there is none. `ending` is held as long as the abort
 * takes, so that memory is not released while NCCL still lets go of it. */
#include "runtime/comm/nccl_table.h"
#include "estimator/base/alloc.h"
#include "estimator/base/nccl_bytes.h"
#include "runtime/comm/control.h"
#include "runtime/comm/engines.h"

#include <cuda_runtime.h>

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    YIELDS = 1000,
    NAP_NS = 50000,
    NEWS_MS = 10, /* between two looks for which rank an error of NCCL comes from */
    WARM_BYTES = 256,
    TAKEN = 2, /* the arenas of a run */
};

struct engine {
    const struct pl_nccl *nccl;
    pthread_mutex_t lock, ending;
    ncclComm_t comm;     /* NULL: not there, or no more */
    cudaStream_t stream; /* for exchanges that are to be complete on return */
    uint64_t bytes;      /* decrease of the device's free bytes, if NCCL does not count its own */
    void *taken[TAKEN];  /* memory that NCCL gave; NULL: the slot is free */
};

static struct engine *of(struct pl_comm *c) {
    return (struct engine *)c->state;
}

static void rest(uint32_t *times) {
    const struct timespec nap = {.tv_nsec = NAP_NS};
    if ((*times)++ < YIELDS)
        sched_yield();
    else
        nanosleep(&nap, NULL);
}

/* ---- results ---- */

/* Returns the communicator's own error; ncclRemoteError if it was aborted. */
static ncclResult_t state_of(struct engine *e) {
    ncclResult_t r = ncclRemoteError;
    pthread_mutex_lock(&e->lock);
    if (e->comm && e->nccl->ncclCommGetAsyncError(e->comm, &r) != ncclSuccess)
        r = ncclInternalError;
    pthread_mutex_unlock(&e->lock);
    return r;
}

/* Waits while NCCL is at work. limit_ms 0: as long as all ranks are heard of. */
static ncclResult_t await_result(struct pl_comm *c, ncclResult_t r, uint32_t limit_ms) {
    uint32_t times = 0;
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    while (r == ncclInProgress) {
        if (pl_control_is_lost(c->control)) return ncclRemoteError;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (limit_ms && (uint64_t)(now.tv_sec - begin.tv_sec) * 1000 > limit_ms)
            return ncclRemoteError;
        rest(&times);
        r = state_of(of(c));
    }
    return r;
}

static void last_words(struct engine *e, ncclResult_t r, char out[256]) {
    pthread_mutex_lock(&e->lock);
    const char *text = e->comm ? e->nccl->ncclGetLastError(e->comm) : NULL;
    snprintf(out, 256, "%s%s%.180s", e->nccl->ncclGetErrorString(r), text && *text ? ": " : "",
             text ? text : "");
    pthread_mutex_unlock(&e->lock);
}

/* A rank that fell may be seen by NCCL before it is known which it was. */
static pl_err explain(struct pl_comm *c, ncclResult_t r) {
    const struct timespec nap = {.tv_nsec = NEWS_MS * 1000000};
    char text[256], why[300];
    uint32_t wait_ms = c->request.timeout_seconds * 1000;
    if (r == ncclSuccess) return PL_ERR_OK;
    bool remote = r == ncclRemoteError || r == ncclSystemError;
    for (uint32_t ms = 0; remote && ms < wait_ms && !pl_control_is_lost(c->control); ms += NEWS_MS)
        nanosleep(&nap, NULL);
    if (pl_control_is_lost(c->control)) return PL_ERR_COMM_PEER_LOST;
    last_words(of(c), r, text);
    snprintf(why, sizeof why, "got from NCCL: %s", text);
    pl_control_lose(c->control, c->world.rank, why);
    return PL_ERR_COMM_PEER_LOST;
}

/* ---- the end ---- */

/* The communicator is gone on return, even if another thread aborts it. */
static void engine_abort(struct pl_comm *c) {
    struct engine *e = of(c);
    pthread_mutex_lock(&e->ending);
    pthread_mutex_lock(&e->lock);
    ncclComm_t comm = e->comm;
    e->comm = NULL;
    pthread_mutex_unlock(&e->lock);
    if (comm) (void)e->nccl->ncclCommAbort(comm);
    pthread_mutex_unlock(&e->ending);
}

static void engine_close(struct pl_comm *c) {
    struct engine *e = of(c);
    ncclResult_t r = ncclRemoteError;
    if (e->comm) r = e->nccl->ncclCommFinalize(e->comm);
    if (e->comm) r = await_result(c, r, c->request.timeout_seconds * 1000);
    if (r == ncclSuccess) {
        (void)e->nccl->ncclCommDestroy(e->comm);
        e->comm = NULL;
    }
    engine_abort(c);
    if (e->stream) (void)cudaStreamDestroy(e->stream);
    pl_nccl_unload(&e->nccl);
    pthread_mutex_destroy(&e->ending);
    pthread_mutex_destroy(&e->lock);
    free(e);
    c->state = NULL;
}

/* ---- exchange ---- */

static ncclResult_t queue_one(struct engine *e, const struct pl_move *m, cudaStream_t stream) {
    const struct pl_nccl *nccl = e->nccl;
    if (m->bytes == 0) return ncclSuccess;
    return m->receive ? nccl->ncclRecv(m->p, m->bytes, ncclInt8, (int)m->peer, e->comm, stream)
                      : nccl->ncclSend(m->p, m->bytes, ncclInt8, (int)m->peer, e->comm, stream);
}

static ncclResult_t queue(struct engine *e, const struct pl_move *moves, uint32_t n,
                          cudaStream_t stream) {
    ncclResult_t r = ncclRemoteError, end;
    pthread_mutex_lock(&e->lock);
    if (e->comm) r = e->nccl->ncclGroupStart();
    if (e->comm && r == ncclSuccess) {
        for (uint32_t i = 0; i < n && (r == ncclSuccess || r == ncclInProgress); i++)
            r = queue_one(e, &moves[i], stream);
        end = e->nccl->ncclGroupEnd();
        if (r == ncclSuccess || r == ncclInProgress) r = end;
    }
    pthread_mutex_unlock(&e->lock);
    return r;
}

/* The device may wait for a rank that was lost: the abort ends that. */
static ncclResult_t wait_for_stream(struct pl_comm *c, cudaStream_t stream) {
    uint32_t times = 0;
    while (cudaStreamQuery(stream) == cudaErrorNotReady && !pl_control_is_lost(c->control))
        rest(&times);
    if (cudaStreamSynchronize(stream) != cudaSuccess) return ncclUnhandledCudaError;
    return await_result(c, state_of(of(c)), 0);
}

static pl_err check_moves(const struct pl_comm *c, const struct pl_move *moves, uint32_t n,
                          uint64_t *sent) {
    *sent = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (moves[i].peer >= c->world.size || moves[i].peer == c->world.rank)
            return PL_ERR_PLAN_BROKEN;
        if (!moves[i].receive) *sent += moves[i].bytes;
    }
    return PL_ERR_OK;
}

static pl_err engine_exchange(struct pl_comm *c, const struct pl_move *moves, uint32_t n,
                              void *stream) {
    struct engine *e = of(c);
    struct timespec before, after;
    uint64_t sent;
    clock_gettime(CLOCK_MONOTONIC, &before);
    PL_TRY(check_moves(c, moves, n, &sent));
    PL_TRY(pl_control_check(c->control, NULL));
    c->exchanges++;
    cudaStream_t on = stream ? (cudaStream_t)stream : e->stream;
    ncclResult_t r = await_result(c, queue(e, moves, n, on), 0);
    if (r == ncclSuccess && !stream) r = wait_for_stream(c, on);
    clock_gettime(CLOCK_MONOTONIC, &after);
    c->wait_seconds +=
        (double)(after.tv_sec - before.tv_sec) + 1e-9 * (double)(after.tv_nsec - before.tv_nsec);
    PL_TRY(explain(c, r));
    c->sent_bytes += sent;
    return PL_ERR_OK;
}

/* ---- memory that other GPUs reach ---- */

/* NCCL's memory is one that other processes can map (cuMemCreate with a handle that can be shared),
 * in units of the granularity of an allocation, 2 MiB; the device's own takes such units as well.
 * Every failure is answered by NULL, so that the device's own allocation says what is missing. */
static void *engine_take(struct pl_comm *c, uint64_t bytes) {
    struct engine *e = of(c);
    void **slot = e->taken, *p = NULL;
    while (slot < e->taken + TAKEN && *slot)
        slot++;
    if (c->world.size == 1 || !e->nccl->mem_alloc || slot == e->taken + TAKEN) return NULL;
    if (e->nccl->mem_alloc(&p, (size_t)bytes) == ncclSuccess) return *slot = p;
    (void)cudaGetLastError();
    return NULL;
}

/* Unlike cudaFree, ncclMemFree does not wait for the device. */
static bool engine_give(struct pl_comm *c, void *p) {
    struct engine *e = of(c);
    for (int i = 0; i < TAKEN; i++) {
        if (e->taken[i] != p) continue;
        (void)cudaDeviceSynchronize();
        (void)e->nccl->mem_free(p);
        (void)cudaGetLastError();
        e->taken[i] = NULL;
        return true;
    }
    return false;
}

static bool is_taken(const struct engine *e, const void *p) {
    bool is_there = false;
    for (int i = 0; i < TAKEN; i++)
        is_there = is_there || e->taken[i] == p;
    return is_there;
}

/* ---- registration ---- */

/* NCCL requires of this memory only that it is the device's: any address will do, since NCCL rounds
 * to pages itself (ncclRegister in its register.cc). A copy may still need a buffer in between.
 * NCCL decides so when it first sends from the memory, which is also when it takes the memory that
 * registration needs on the device: a table of addresses. In its User Guide, "General Buffer
 * Registration": between GPUs of one machine memory of ncclMemAlloc is used directly, and memory of
 * cudaMalloc only if NCCL_LEGACY_CUDA_REGISTER=1; "Buffer Registration and PXN": over a network
 * only without PXN. If NCCL gives memory, other memory is therefore not registered: one rank might
 * have the one kind and another the other (C5). */
static void *engine_register(struct pl_comm *c, void *p, uint64_t bytes) {
    struct engine *e = of(c);
    ncclResult_t r = ncclInvalidUsage;
    void *registered = NULL;
    pthread_mutex_lock(&e->lock);
    if (e->comm && e->nccl->register_memory && (!e->nccl->mem_alloc || is_taken(e, p)))
        r = e->nccl->register_memory(e->comm, p, (size_t)bytes, &registered);
    pthread_mutex_unlock(&e->lock);
    return await_result(c, r, 0) == ncclSuccess ? registered : NULL;
}

/* The peers of this memory may have mapped it, and NCCL then waits for their processes, with `lock`
 * held: where one is lost the communicator is aborted first, and lets go of everything. */
static void engine_unregister(struct pl_comm *c, void *registered) {
    struct engine *e = of(c);
    if (pl_control_is_lost(c->control))
        engine_abort(c);
    else
        (void)cudaDeviceSynchronize();
    pthread_mutex_lock(&e->lock);
    const bool is_there = e->comm != NULL;
    if (is_there) (void)e->nccl->deregister_memory(e->comm, registered);
    pthread_mutex_unlock(&e->lock);
    if (!is_there) engine_abort(c); /* waits for the thread that is at it */
}

/* ---- opening ---- */

/* Multicast buffers are of a size that is not known beforehand, and connections that are made later
 * take memory later. A user who has set them has a reason. */
static pl_err set_environment(struct pl_diag *d) {
    if (setenv("NCCL_NVLS_ENABLE", "0", 0) || setenv("NCCL_RUNTIME_CONNECT", "0", 0))
        return pl_host_oom(d, "the environment");
    return PL_ERR_OK;
}

/* All fail together where rank 0 has no id. */
static pl_err share_id(struct pl_comm *c, ncclUniqueId *id, struct pl_diag *d) {
    struct {
        int32_t result;
        ncclUniqueId id;
    } told = {0};
    const struct pl_nccl *nccl = of(c)->nccl;
    if (c->world.rank == 0) told.result = (int32_t)nccl->ncclGetUniqueId(&told.id);
    PL_TRY(pl_comm_broadcast(c, &told, sizeof told, d));
    *id = told.id;
    if (told.result == (int32_t)ncclSuccess) return PL_ERR_OK;
    return pl_diag_set(d, PL_ERR_COMM_INIT, "NCCL does not start on rank 0: %s",
                       nccl->ncclGetErrorString((ncclResult_t)told.result));
}

static pl_err say_why(struct pl_comm *c, ncclResult_t r, struct pl_diag *d) {
    char text[256];
    PL_TRY(pl_control_check(c->control, d));
    last_words(of(c), r, text);
    bool oom = cudaGetLastError() == cudaErrorMemoryAllocation;
    return pl_diag_set(d, oom ? PL_ERR_DEVICE_OOM : PL_ERR_COMM_INIT,
                       "NCCL does not connect this rank, %u: %s", c->world.rank, text);
}

static pl_err connect(struct pl_comm *c, struct pl_diag *d) {
    struct engine *e = of(c);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    PL_TRY(share_id(c, &id, d));
    config.blocking = 0;
    config.minCTAs = config.maxCTAs = PL_NCCL_CHANNELS; /* fixed, so that the bytes are */
    pthread_mutex_lock(&e->lock);
    ncclResult_t r = e->nccl->ncclCommInitRankConfig(&e->comm, (int)c->world.size, id,
                                                     (int)c->world.rank, &config);
    pthread_mutex_unlock(&e->lock);
    r = await_result(c, r, c->request.timeout_seconds * PL_START_LIMITS * 1000);
    return r == ncclSuccess ? PL_ERR_OK : say_why(c, r, d);
}

/* Two ranks are connected when they first exchange something. */
static pl_err meet_all(struct pl_comm *c, struct pl_diag *d) {
    struct pl_move moves[2 * PL_RANKS_MAX];
    struct engine *e = of(c);
    uint32_t n = 0;
    char *p = NULL;
    if (cudaMalloc((void **)&p, 2 * (size_t)c->world.size * WARM_BYTES) != cudaSuccess)
        return say_why(c, ncclUnhandledCudaError, d);
    for (uint32_t r = 0; r < c->world.size; r++)
        for (uint32_t receive = 0; receive < 2; receive++)
            if (r != c->world.rank)
                moves[n++] = (struct pl_move){
                    .peer = r, .receive = receive, p + (2 * r + receive) * WARM_BYTES, WARM_BYTES};
    ncclResult_t result = await_result(c, queue(e, moves, n, e->stream), 0);
    if (result == ncclSuccess) result = wait_for_stream(c, e->stream);
    pl_err err = result == ncclSuccess ? PL_ERR_OK : say_why(c, result, d);
    if (err != PL_ERR_OK) engine_abort(c); /* else cudaFree waits for what is queued */
    (void)cudaFree(p);
    return err;
}

static uint64_t free_bytes(void) {
    size_t left = 0, all = 0;
    return cudaMemGetInfo(&left, &all) == cudaSuccess ? left : 0;
}

static pl_err open_stream(struct engine *e, struct pl_diag *d) {
    if (cudaStreamCreateWithFlags(&e->stream, cudaStreamNonBlocking) == cudaSuccess)
        return PL_ERR_OK;
    e->stream = NULL;
    return pl_diag_set(d, PL_ERR_COMM_INIT, "no stream for NCCL: %s",
                       cudaGetErrorString(cudaGetLastError()));
}

/* The first exchange waits for all ranks, so it needs somebody to end it as later ones do. */
static void abort_on_loss(void *comm) {
    engine_abort(comm);
}

static pl_err engine_open(struct pl_comm *c, struct pl_diag *d) {
    struct engine *e = pl_calloc(1, sizeof *e);
    if (!e) return pl_host_oom(d, "NCCL");
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_init(&e->ending, NULL);
    c->state = e;
    pl_control_on_loss(c->control, abort_on_loss, c);
    uint64_t before = free_bytes();
    pl_err err = set_environment(d);
    if (err == PL_ERR_OK) err = pl_nccl_load(&e->nccl, d);
    if (err == PL_ERR_OK) err = open_stream(e, d);
    if (err == PL_ERR_OK) err = connect(c, d);
    if (err == PL_ERR_OK && c->world.size > 1) err = meet_all(c, d);
    uint64_t after = free_bytes();
    e->bytes = before > after ? before - after : 0;
    if (err == PL_ERR_OK) return PL_ERR_OK;
    pl_control_on_loss(c->control, NULL, NULL);
    engine_abort(c); /* the others are still at it */
    engine_close(c);
    return err;
}

static uint64_t engine_bytes(struct pl_comm *c) {
    struct engine *e = of(c);
    uint64_t counted = 0;
    pthread_mutex_lock(&e->lock);
    bool counts = e->nccl->mem_stats && e->comm &&
                  e->nccl->mem_stats(e->comm, PL_NCCL_STAT_TOTAL, &counted) == ncclSuccess;
    pthread_mutex_unlock(&e->lock);
    return counts ? counted : e->bytes;
}

const struct pl_comm_ops pl_comm_nccl = {.name = "nccl",
                                         .open = engine_open,
                                         .close = engine_close,
                                         .exchange = engine_exchange,
                                         .take_memory = engine_take,
                                         .give_memory = engine_give,
                                         .register_memory = engine_register,
                                         .unregister_memory = engine_unregister,
                                         .abort = engine_abort,
                                         .device_bytes = engine_bytes};
