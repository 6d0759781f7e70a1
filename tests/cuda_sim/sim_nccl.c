/* sim_nccl.c - NCCL of the emulation, as a shared library: the back-end's own loader finds it.
 *
 * Ranks are processes, each with its own emulated GPU; what they send lies in shared memory between
 * them. What the real library leaves to the caller's care ends the process here: operands outside
 * device memory when the stream reaches them, ranges that overlap in a group, a call while another
 * is in progress, and groups that are not the same on both sides. Two ranks number the groups
 * that they have with each other, and compare the numbers and the bytes of every message, and
 * whether the memory of both ends is registered, and of one kind. Registrations end it as well:
 * memory that is not the device's or is registered already, a handle that is none, one that is
 * given back while a group is queued, and memory that is still registered when the communicator is
 * finalised or when it is freed. So does memory of ncclMemAlloc that another function frees, and
 * other memory that ncclMemFree frees (sim_memory.c). An abort gives all registrations back.
 * Nothing moves before ncclGroupEnd. Then it moves when the stream reaches it
 * (PLSIM_STREAMS=late), or while the caller asks for the state of the communicator, which is how
 * a call that does not block goes on in the real one. Whoever waits ends when the communicator is
 * aborted, or after PLSIM_NCCL_SECONDS. Two ranks on one GPU are refused.
 * Environment: PLSIM_NCCL_VERSION (22809), PLSIM_NCCL_BYTES of the device for a communicator (4
 * MiB), PLSIM_NCCL_SECONDS (120). PLSIM_NCCL_FAIL=init: no communicator is made; memory:
 * ncclMemAlloc gives none; register: memory is refused; skip: it is left alone, as with
 * NCCL_LOCAL_REGISTER=0; abort: that takes a while; fall: the process is killed in its first group.
 * PLSIM_NCCL_FAIL_RANK: on this rank alone. Compiled with PLSIM_NCCL_OLD it has only what 2.18 has.
 * Symbols of the emulation come from the executable that loads this. */
#include "tests/cuda_sim/sim.h"

#include <nccl.h>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { RING = 65536, OPS = 4096, TOTAL = 3, RANKS = 64, BUFFERS = 8, SLOW_NS = 200000000 };
#define MAGIC 0xcafebeefu

/* The messages from one rank to another. */
struct ring {
    _Atomic uint64_t written, read;
    unsigned char bytes[RING];
};

struct shared {
    atomic_uint joined, left;
    atomic_int devices[RANKS]; /* devices of the ranks */
    struct ring rings[];       /* [from * ranks + to] */
};

struct message {
    uint64_t group, bytes;
    uint32_t registered, unused;
};

struct op {
    bool receive;
    int peer;
    char *p;
    size_t bytes, done;
    uint64_t number; /* number of its group among those with this peer */
    enum registered { STAGED, LEGACY, DIRECT } registered; /* DIRECT: of ncclMemAlloc */
    struct message head;
    size_t head_done;
};

struct group {
    struct ncclComm *comm;
    cudaStream_t stream;
    uint32_t n;
    struct op ops[OPS];
};

/* Memory that is registered. */
struct buffer {
    char *p; /* NULL: the place is empty */
    size_t bytes;
    struct plsim_allocation *of;
};

struct ncclComm {
    struct shared *shared;
    char name[NCCL_UNIQUE_ID_BYTES];
    int ranks, rank;
    uint64_t groups[RANKS]; /* by peer: those that had an operation with it */
    enum { JOINS, READY, MOVES, LEAVES } phase;
    struct group *moving; /* a list of MOVES */
    struct buffer buffers[BUFFERS];
    uint32_t queued; /* groups that the stream has not come to */
    struct timespec since;
    ncclResult_t error;
    char words[80]; /* text of the error */
    atomic_bool aborted, busy;
    void *device;
    uint64_t device_bytes;
    struct ncclComm *next; /* next of those that were aborted */
};
static _Atomic(struct ncclComm *) aborted;
static int own_rank; /* rank for calls that have no communicator */

static _Thread_local struct group *open_group;
static _Thread_local int depth;

static uint64_t setting(const char *name, uint64_t preset) {
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : preset;
}

/* True if this rank is told to fail so. */
static bool fails(const char *how, int rank) {
    const char *fail = getenv("PLSIM_NCCL_FAIL");
    return fail && strcmp(fail, how) == 0 &&
           setting("PLSIM_NCCL_FAIL_RANK", (uint64_t)rank) == (uint64_t)rank;
}

static struct ring *ring_of(const struct ncclComm *c, int from, int to) {
    return &c->shared->rings[from * c->ranks + to];
}

/* ---- bytes between two ranks ---- */

static size_t push(struct ring *r, const void *p, size_t bytes) {
    uint64_t at = atomic_load(&r->written), used = at - atomic_load(&r->read);
    size_t n = bytes < RING - used ? bytes : (size_t)(RING - used);
    for (size_t i = 0, part; i < n; i += part) {
        size_t offset = (size_t)((at + i) % RING);
        part = n - i < RING - offset ? n - i : RING - offset;
        memcpy(r->bytes + offset, (const char *)p + i, part);
    }
    atomic_store(&r->written, at + n);
    return n;
}

static size_t pull(struct ring *r, void *p, size_t bytes) {
    uint64_t at = atomic_load(&r->read), there = atomic_load(&r->written) - at;
    size_t n = bytes < there ? bytes : (size_t)there;
    for (size_t i = 0, part; i < n; i += part) {
        size_t offset = (size_t)((at + i) % RING);
        part = n - i < RING - offset ? n - i : RING - offset;
        memcpy((char *)p + i, r->bytes + offset, part);
    }
    atomic_store(&r->read, at + n);
    return n;
}

static void check_head(const struct group *g, const struct op *op) {
    if (op->head.group != op->number)
        plsim_die("rank %d: group %llu with rank %d meets group %llu of it", g->comm->rank,
                  (unsigned long long)op->number, op->peer, (unsigned long long)op->head.group);
    if (op->head.bytes != op->bytes)
        plsim_die("rank %d: receives %zu bytes of the %llu that rank %d sends", g->comm->rank,
                  op->bytes, (unsigned long long)op->head.bytes, op->peer);
    static const char *const kinds[] = {"not registered", "registered", "registered, of NCCL"};
    if (op->head.registered != op->registered)
        plsim_die("rank %d: receives in memory that is %s, from rank %d's that is %s",
                  g->comm->rank, kinds[op->registered], op->peer, kinds[op->head.registered]);
}

static bool move_op(const struct group *g, struct op *op) {
    struct ncclComm *c = g->comm;
    struct ring *r = op->receive ? ring_of(c, op->peer, c->rank) : ring_of(c, c->rank, op->peer);
    char *head = (char *)&op->head + op->head_done;
    size_t left = sizeof op->head - op->head_done;
    if (left) {
        op->head_done += op->receive ? pull(r, head, left) : push(r, head, left);
        if (op->head_done < sizeof op->head) return false;
        if (op->receive) check_head(g, op);
    }
    op->done += op->receive ? pull(r, op->p + op->done, op->bytes - op->done)
                            : push(r, op->p + op->done, op->bytes - op->done);
    return op->done == op->bytes;
}

/* Between two ranks messages follow each other; everything else is concurrent. */
static bool move_group(struct group *g) {
    bool waits[2][1024] = {{false}};
    bool all = true;
    for (uint32_t i = 0; i < g->n; i++) {
        struct op *op = &g->ops[i];
        bool is_done = op->head_done == sizeof op->head && op->done == op->bytes;
        if (is_done || waits[op->receive][op->peer]) continue;
        if (move_op(g, op)) continue;
        waits[op->receive][op->peer] = true;
        all = false;
    }
    for (uint32_t i = 0; i < g->n && all; i++)
        all = g->ops[i].head_done == sizeof g->ops[i].head && g->ops[i].done == g->ops[i].bytes;
    return all;
}

static bool is_late(const struct ncclComm *c) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)(now.tv_sec - c->since.tv_sec) > setting("PLSIM_NCCL_SECONDS", 120);
}

static void begin(struct ncclComm *c) {
    clock_gettime(CLOCK_MONOTONIC, &c->since);
}

static void check_ranges(const struct group *g) {
    for (uint32_t i = 0; i < g->n; i++)
        plsim_check_device_range(g->ops[i].receive ? "ncclRecv" : "ncclSend", g->ops[i].p,
                                 g->ops[i].bytes);
}

/* The stream has come to the group. */
static void run_group(void *data) {
    struct group *g = *(struct group **)data;
    struct ncclComm *c = g->comm;
    atomic_store(&c->busy, true);
    if (!atomic_load(&c->aborted)) check_ranges(g);
    begin(c);
    while (!atomic_load(&c->aborted) && c->error == ncclSuccess && !move_group(g)) {
        sched_yield();
        if (is_late(c)) c->error = ncclRemoteError;
    }
    c->queued--;
    atomic_store(&c->busy, false);
    free(g);
}

/* ---- groups ---- */

static void check_overlap(const struct group *g) {
    for (uint32_t i = 0; i < g->n; i++)
        for (uint32_t j = 0; j < g->n; j++) {
            const struct op *a = &g->ops[i], *b = &g->ops[j];
            if (i == j || !a->receive || a->p >= b->p + b->bytes || b->p >= a->p + a->bytes)
                continue;
            plsim_die("a range that is received overlaps another of its group");
        }
}

static void check_ready(const struct ncclComm *c, const char *call) {
    if (c->phase != READY) plsim_die("%s: another call is in progress", call);
}

/* The buffer that the whole range lies in; NULL = none. */
static struct buffer *holder_of(struct ncclComm *c, const char *p, size_t bytes) {
    for (struct buffer *b = c->buffers; b < c->buffers + BUFFERS; b++)
        if (b->p && p >= b->p && p + bytes <= b->p + b->bytes) return b;
    return NULL;
}

/* Two ranks have the same groups with each other; a third one need not take part in them. */
static void number_ops(struct group *g) {
    bool counted[RANKS] = {false};
    for (uint32_t i = 0; i < g->n; i++) {
        struct op *op = &g->ops[i];
        if (!counted[op->peer]) g->comm->groups[op->peer]++;
        counted[op->peer] = true;
        op->number = g->comm->groups[op->peer];
        const struct buffer *b = holder_of(g->comm, op->p, op->bytes);
        op->registered = !b ? STAGED : b->of->shared ? DIRECT : LEGACY;
        if (!op->receive)
            op->head = (struct message){
                .group = op->number, .bytes = op->bytes, .registered = op->registered};
    }
}

static ncclResult_t start_group(struct group *g) {
    struct ncclComm *c = g->comm;
    if (c->error != ncclSuccess) {
        free(g);
        return c->error;
    }
    check_overlap(g);
    number_ops(g);
    if (plsim_captures(g->stream)) plsim_die("NCCL in a graph: not in this emulation");
    if (plsim_settings()->late) {
        c->queued++;
        plsim_submit(g->stream, run_group, &g, sizeof g);
        return ncclSuccess;
    }
    check_ranges(g);
    c->moving = g;
    c->phase = MOVES;
    begin(c);
    return ncclInProgress;
}

ncclResult_t ncclGroupStart(void) {
    depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
    struct group *g = open_group;
    if (depth == 0) plsim_die("ncclGroupEnd without ncclGroupStart");
    if (g && fails("fall", g->comm->rank)) (void)raise(SIGKILL);
    if (--depth > 0 || !g) return ncclSuccess;
    open_group = NULL;
    return start_group(g);
}

static ncclResult_t add(bool receive, void *p, size_t count, ncclDataType_t type, int peer,
                        ncclComm_t c, cudaStream_t stream) {
    if (!c || peer < 0 || peer >= c->ranks || type != ncclInt8) return ncclInvalidArgument;
    check_ready(c, receive ? "ncclRecv" : "ncclSend");
    if (peer == c->rank) plsim_die("a rank that sends to itself: not in this emulation");
    if (!open_group) {
        open_group = calloc(1, sizeof *open_group);
        if (!open_group) plsim_die("no memory for a group");
        open_group->comm = c;
        open_group->stream = stream;
    }
    struct group *g = open_group;
    if (g->comm != c || g->stream != stream) plsim_die("a group on two streams");
    if (g->n == OPS) plsim_die("more than %d operations in a group", OPS);
    g->ops[g->n++] = (struct op){.receive = receive, .peer = peer, .p = p, .bytes = count};
    if (depth > 0) return ncclSuccess;
    open_group = NULL;
    return start_group(g);
}

ncclResult_t ncclSend(const void *p, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return add(false, (void *)(uintptr_t)p, count, type, peer, comm, stream);
}

ncclResult_t ncclRecv(void *p, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return add(true, p, count, type, peer, comm, stream);
}

/* ---- communicators ---- */

ncclResult_t ncclGetVersion(int *version) {
    *version = (int)setting("PLSIM_NCCL_VERSION", NCCL_VERSION_CODE);
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    uint64_t random;
    memset(id, 0, sizeof *id);
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random) return ncclSystemError;
    snprintf(id->internal, sizeof id->internal, "/plsim-nccl-%016llx", (unsigned long long)random);
    return ncclSuccess;
}

static size_t shared_bytes(int ranks) {
    return sizeof(struct shared) + (size_t)ranks * (size_t)ranks * sizeof(struct ring);
}

/* The first to come makes it; all zeros are the initial state. */
static struct shared *join(const char *name, int ranks) {
    int fd = shm_open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) return NULL;
    bool sized = ftruncate(fd, (off_t)shared_bytes(ranks)) == 0;
    void *p = sized ? mmap(NULL, shared_bytes(ranks), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                    : MAP_FAILED;
    close(fd);
    return p == MAP_FAILED ? NULL : p;
}

static void check_config(const ncclConfig_t *config) {
    if (config->magic != MAGIC || config->size != sizeof *config)
        plsim_die("ncclCommInitRankConfig: the configuration was not initialised");
    if (config->blocking != 0) plsim_die("ncclCommInitRankConfig: it would block");
    if (config->minCTAs != config->maxCTAs || config->minCTAs < 1)
        plsim_die("ncclCommInitRankConfig: how many CTAs it takes is not fixed");
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
    *comm = NULL;
    check_config(config);
    if (rank < 0 || rank >= ranks || ranks > RANKS) return ncclInvalidArgument;
    own_rank = rank;
    if (fails("init", rank)) return ncclSystemError;
    struct ncclComm *c = calloc(1, sizeof *c);
    if (!c) return ncclSystemError;
    memcpy(c->name, id.internal, sizeof c->name);
    c->ranks = ranks;
    c->rank = rank;
    c->device_bytes = setting("PLSIM_NCCL_BYTES", 4 << 20);
    c->shared = join(c->name, ranks);
    bool has_memory = cudaMalloc(&c->device, c->device_bytes) == cudaSuccess;
    if (!c->shared || !has_memory) {
        ncclResult_t r = has_memory ? ncclSystemError : ncclUnhandledCudaError;
        free(c);
        return r;
    }
    int device = 0;
    (void)cudaGetDevice(&device);
    atomic_store(&c->shared->devices[rank], device);
    atomic_fetch_add(&c->shared->joined, 1);
    begin(c);
    *comm = c;
    return ncclInProgress;
}

/* The processes of a test are on one machine. */
static void check_devices(struct ncclComm *c) {
    const int mine = atomic_load(&c->shared->devices[c->rank]);
    for (int other = 0; other < c->ranks; other++) {
        if (other == c->rank || atomic_load(&c->shared->devices[other]) != mine) continue;
        c->error = ncclInvalidUsage;
        snprintf(c->words, sizeof c->words,
                 "Duplicate GPU detected : rank %d and rank %d both on CUDA device %x000", c->rank,
                 other, mine);
        return;
    }
}

static void settle(struct ncclComm *c) {
    unsigned ranks = (unsigned)c->ranks;
    bool done = c->phase == READY;
    if (c->phase == JOINS) done = atomic_load(&c->shared->joined) == ranks;
    if (c->phase == JOINS && done && c->rank == 0) shm_unlink(c->name);
    if (c->phase == JOINS && done) check_devices(c);
    if (c->phase == LEAVES) done = atomic_load(&c->shared->left) == ranks;
    if (c->phase == MOVES) done = move_group(c->moving);
    if (!done && is_late(c)) c->error = ncclRemoteError;
    if (!done) return;
    if (c->phase == MOVES) free(c->moving);
    c->moving = NULL;
    c->phase = READY;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *error) {
    if (c->error == ncclSuccess) settle(c);
    *error = c->error != ncclSuccess ? c->error : c->phase == READY ? ncclSuccess : ncclInProgress;
    return ncclSuccess;
}

static void forget_buffer(struct buffer *b) {
    if (b->p) b->of->registered--;
    b->p = NULL;
}

ncclResult_t ncclCommFinalize(ncclComm_t c) {
    check_ready(c, "ncclCommFinalize");
    for (uint32_t i = 0; i < BUFFERS; i++)
        if (c->buffers[i].p) plsim_die("ncclCommFinalize: memory is still registered");
    atomic_fetch_add(&c->shared->left, 1);
    c->phase = LEAVES;
    begin(c);
    return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t c) {
    check_ready(c, "ncclCommDestroy");
    if (plsim_has_work()) plsim_drain_all();
    (void)cudaFree(c->device);
    munmap(c->shared, shared_bytes(c->ranks));
    free(c);
    return ncclSuccess;
}

/* The memory of c stays: another thread may be in run_group, and the emulated device has one
 * thread. */
ncclResult_t ncclCommAbort(ncclComm_t c) {
    atomic_store(&c->aborted, true);
    if (c->rank == 0) shm_unlink(c->name); /* some ranks may not have come */
    while (atomic_load(&c->busy))
        sched_yield();
    if (fails("abort", c->rank)) nanosleep(&(struct timespec){.tv_nsec = SLOW_NS}, NULL);
    for (uint32_t i = 0; i < BUFFERS; i++)
        forget_buffer(&c->buffers[i]);
    c->next = atomic_load(&aborted);
    while (!atomic_compare_exchange_weak(&aborted, &c->next, c))
        continue;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
    static const char *const names[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return result < ncclNumResults ? names[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t c) {
    return c->error == ncclSuccess ? "" : *c->words ? c->words : "of the emulation";
}

/* ---- what 2.18 lacks ---- */

#ifndef PLSIM_NCCL_OLD

/* Only these functions, ncclCommAbort and groups know of buffers, which one thread at a time uses:
 * the caller sees to it. */
ncclResult_t ncclCommRegister(const ncclComm_t c, void *p, size_t bytes, void **handle);
ncclResult_t ncclCommRegister(const ncclComm_t c, void *p, size_t bytes, void **handle) {
    struct buffer *b = c->buffers;
    *handle = NULL;
    check_ready(c, "ncclCommRegister");
    plsim_check_device_range("ncclCommRegister", p, bytes);
    if (fails("register", c->rank)) return ncclInvalidUsage;
    if (fails("skip", c->rank)) return ncclSuccess;
    for (uint32_t i = 0; i < BUFFERS; i++)
        if (c->buffers[i].p && c->buffers[i].p < (char *)p + bytes &&
            (char *)p < c->buffers[i].p + c->buffers[i].bytes)
            plsim_die("ncclCommRegister: %p is registered already", p);
    while (b < c->buffers + BUFFERS && b->p)
        b++;
    if (b == c->buffers + BUFFERS) plsim_die("more than %d registered buffers", BUFFERS);
    *b = (struct buffer){.p = p, .bytes = bytes, .of = plsim_holder(p)};
    b->of->registered++;
    *handle = b;
    return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void **p, size_t bytes);
ncclResult_t ncclMemAlloc(void **p, size_t bytes) {
    *p = fails("memory", own_rank) ? NULL : plsim_shared_take(bytes);
    if (*p) return ncclSuccess;
    *p = &depth; /* the real one leaves there what it had got so far */
    (void)plsim_fail(cudaErrorMemoryAllocation);
    return ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void *p);
ncclResult_t ncclMemFree(void *p) {
    plsim_shared_give(p);
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t c, void *handle);
ncclResult_t ncclCommDeregister(const ncclComm_t c, void *handle) {
    check_ready(c, "ncclCommDeregister");
    if (c->queued) plsim_die("ncclCommDeregister: a group is queued that may use the memory");
    for (struct buffer *b = c->buffers; b < c->buffers + BUFFERS; b++)
        if (b == handle && b->p) {
            forget_buffer(b);
            return ncclSuccess;
        }
    plsim_die("ncclCommDeregister: %p is not registered", handle);
}

/* A function of 2.29.7; the header of 2.28 does not have it. */
ncclResult_t ncclCommMemStats(ncclComm_t c, int stat, uint64_t *value);
ncclResult_t ncclCommMemStats(ncclComm_t c, int stat, uint64_t *value) {
    *value = c->device_bytes;
    return stat == TOTAL ? ncclSuccess : ncclInvalidArgument;
}

#endif
