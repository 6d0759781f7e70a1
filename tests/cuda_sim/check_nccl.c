/* check_nccl.c - tensors between processes with emulated GPUs, through the emulated NCCL: the
 * engine's use of it, and that the emulation holds who uses it to the rules. */
#include "runtime/comm/engines.h"
#include "runtime/comm/launch.h"
#include "runtime/comm/nccl_table.h"
#include "runtime/device/device.h"
#include "tests/comm/rank_process.h"
#include "tests/support/hang.h"

#include <check.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 300001, KILLED_STATUS = 128 + SIGKILL, ABORTED_STATUS = 128 + SIGABRT };

static pl_err open_comm_on(int gpu, struct pl_comm **c, const struct pl_world *w,
                           struct pl_diag *d) {
    *c = NULL;
    if (cudaSetDevice(gpu) != cudaSuccess) return PL_ERR_DEVICE_LOST;
    const struct pl_comm_request request = {
        .kind = PL_COMM_NCCL, .gpu = true, .nccl = &pl_comm_nccl, .timeout_seconds = ranks->limit};
    return pl_comm_open(c, w, &request, d);
}

static pl_err open_comm(struct pl_comm **c, const struct pl_world *w, struct pl_diag *d) {
    return open_comm_on((int)w->local_rank, c, w, d);
}

/* A row of bytes for each peer and direction; what is sent tells who sends what to whom. */
struct rows {
    unsigned char *device, *host;
    struct pl_move moves[2 * PL_RANKS_MAX];
    uint32_t n;
    uint64_t sent;
};

static uint64_t size_of(uint64_t k, uint32_t from, uint32_t to) {
    uint64_t x = ranks_mix(k, from * 64 + to + 1);
    return x % 5 == 0 ? 0 : x / 5 % BYTES;
}

static unsigned char byte_at(uint64_t k, uint32_t from, uint32_t to, uint64_t at) {
    return (unsigned char)(ranks_mix(k, from * 64 + to + 9) + at * 29 + at / 256);
}

static void make_moves(struct rows *r, const struct pl_world *w, uint64_t k) {
    r->n = 0;
    r->sent = 0;
    for (uint32_t peer = 0; peer < w->size; peer++)
        for (uint32_t receive = 0; receive < 2; receive++) {
            uint64_t at = (2 * (uint64_t)peer + receive) * BYTES;
            uint32_t from = receive ? peer : w->rank, to = receive ? w->rank : peer;
            uint64_t bytes = size_of(k, from, to);
            if (peer == w->rank) continue;
            for (uint64_t i = 0; i < BYTES; i++)
                r->host[at + i] = receive || i >= bytes ? 0xEE : byte_at(k, from, to, i);
            r->moves[r->n++] = (struct pl_move){peer, receive, r->device + at, bytes};
            if (!receive) r->sent += bytes;
        }
}

static pl_err check_moves(const struct rows *r, const struct pl_world *w, uint64_t k,
                          struct pl_diag *d) {
    for (uint32_t j = 0; j < r->n; j++) {
        const struct pl_move *m = &r->moves[j];
        const unsigned char *p = r->host + ((unsigned char *)m->p - r->device);
        for (uint64_t i = 0; m->receive && i < BYTES; i++)
            if (p[i] != (i < m->bytes ? byte_at(k, m->peer, w->rank, i) : 0xEE))
                return pl_diag_set(d, PL_ERR_PLAN_BROKEN, "round %d, rank %u: byte %d", (int)k,
                                   m->peer, (int)i);
    }
    return PL_ERR_OK;
}

/* Copies, exchange and copies back queued on one stream; the host waits once. Every third exchange
 * is complete on return. */
static pl_err exchange_once(struct pl_comm *c, struct rows *r, uint64_t k, cudaStream_t stream,
                            struct pl_diag *d) {
    size_t bytes = (size_t)2 * c->world.size * BYTES;
    make_moves(r, &c->world, k);
    (void)cudaMemcpyAsync(r->device, r->host, bytes, cudaMemcpyHostToDevice, stream);
    if (k % 3 == 2) (void)cudaStreamSynchronize(stream);
    PL_TRY(c->ops->exchange(c, r->moves, r->n, k % 3 == 2 ? NULL : stream));
    (void)cudaMemcpyAsync(r->host, r->device, bytes, cudaMemcpyDeviceToHost, stream);
    (void)cudaStreamSynchronize(stream);
    PL_TRY(pl_comm_check(c, d));
    return check_moves(r, &c->world, k, d);
}

/* Takes and releases memory as a device does. */
static cudaError_t take(struct pl_comm *c, void **p, size_t bytes) {
    *p = c->ops->take_memory(c, bytes);
    return *p ? cudaPeekAtLastError() : cudaMalloc(p, bytes);
}

static void give(struct pl_comm *c, void *p) {
    if (!c || !c->ops->give_memory(c, p)) (void)cudaFree(p);
}

static pl_err make_rows(struct pl_comm *c, struct rows *r, cudaStream_t *stream) {
    size_t bytes = (size_t)2 * c->world.size * BYTES;
    r->host = NULL;
    if (take(c, (void **)&r->device, bytes) != cudaSuccess ||
        cudaHostAlloc((void **)&r->host, bytes, cudaHostAllocDefault) != cudaSuccess ||
        cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking) != cudaSuccess)
        return PL_ERR_DEVICE_OOM;
    return PL_ERR_OK;
}

static void free_rows(struct pl_comm *c, struct rows *r, cudaStream_t stream) {
    give(c, r->device);
    (void)cudaStreamDestroy(stream);
    (void)cudaFreeHost(r->host);
}

/* NULL also where there is no communicator. */
static void *register_rows(struct pl_comm *c, const struct rows *r) {
    const size_t bytes = (size_t)2 * (c ? c->world.size : 0) * BYTES;
    return r->device && c ? c->ops->register_memory(c, r->device, bytes) : NULL;
}

static void unregister_rows(struct pl_comm *c, void *registered) {
    if (registered) c->ops->unregister_memory(c, registered);
}

/* seed; GIVES_NONE: NCCL has no memory left, BEFORE_2_26: none that is used */
enum {
    UNREGISTERED,
    REGISTERED,
    BEFORE_2_26,
    REFUSED,
    SKIPPED,
    OLD_LIBRARY,
    GIVES_NONE,
    REGISTRATIONS
};

/* Memory of ncclMemAlloc would be rounded too far, so memory of cudaMalloc is registered. */
static void set_before_2_26(void) {
    setenv("PLSIM_NCCL_VERSION", "22505", 1);
}

static void set_registration(void) {
    const char *old = getenv("PLSIM_NCCL_OLD");
    if (ranks->seed == REFUSED) setenv("PLSIM_NCCL_FAIL", "register", 1);
    if (ranks->seed == SKIPPED) setenv("PLSIM_NCCL_FAIL", "skip", 1);
    if (ranks->seed == GIVES_NONE) setenv("PLSIM_NCCL_FAIL", "memory", 1);
    if (ranks->seed == BEFORE_2_26) set_before_2_26();
    if (ranks->seed == OLD_LIBRARY && old) setenv("PLIMSOLL_NCCL", old, 1);
}

static int traffic_body(const struct pl_world *w) {
    struct rows r = {0};
    struct pl_comm *c;
    struct pl_diag d = {0};
    cudaStream_t stream = NULL;
    void *registered = NULL;
    uint64_t sent = 0;
    set_registration();
    pl_err err = open_comm(&c, w, &d);
    if (err == PL_ERR_OK) err = make_rows(c, &r, &stream);
    if (err == PL_ERR_OK && ranks->seed != UNREGISTERED) registered = register_rows(c, &r);
    const bool registers = ranks->seed == REGISTERED || ranks->seed == BEFORE_2_26;
    if (err == PL_ERR_OK && (registered != NULL) != registers)
        err = pl_diag_set(&d, PL_ERR_PLAN_BROKEN, "the memory is%s registered",
                          registered ? "" : " not");
    for (uint64_t k = 0; k < 12 && err == PL_ERR_OK; k++) {
        err = exchange_once(c, &r, k, stream, &d);
        sent += r.sent;
        ranks->of[w->rank].rounds = k + 1;
    }
    if (err == PL_ERR_OK && (c->sent_bytes != sent || c->exchanges != 12))
        err = pl_diag_set(&d, PL_ERR_PLAN_BROKEN, "%llu bytes are counted, %llu were sent",
                          (unsigned long long)c->sent_bytes, (unsigned long long)sent);
    if (err == PL_ERR_OK && c->ops->device_bytes(c) != 4 << 20)
        err = pl_diag_set(&d, PL_ERR_PLAN_BROKEN, "%llu bytes of the device",
                          (unsigned long long)c->ops->device_bytes(c));
    int status = ranks_note(w, err, &d);
    /* Queued work is awaited before the memory is no longer registered. */
    if (err == PL_ERR_OK) (void)c->ops->exchange(c, r.moves, r.n, stream);
    unregister_rows(c, registered);
    if (err == PL_ERR_OK) (void)cudaMemsetAsync(r.device, 0, 1, stream);
    free_rows(c, &r, stream);
    pl_comm_close(&c);
    return status;
}

static void expect_traffic(int n, uint32_t registration) {
    struct ranks_run r = {.body = "traffic", .n = (uint32_t)n, .limit = 20, .seed = registration};
    int status = ranks_run(&r);
    for (int i = 0; i < n; i++)
        ck_assert_msg(ranks->of[i].err == PL_ERR_OK && ranks->of[i].rounds == 12, "rank %d: %s", i,
                      ranks->of[i].message);
    ck_assert_int_eq(status, 0);
}

START_TEST(every_byte_arrives_on_the_stream) {
    expect_traffic(_i, UNREGISTERED);
}
END_TEST

START_TEST(registered_or_not_every_byte_arrives) {
    expect_traffic(3, (uint32_t)_i);
}
END_TEST

/* ---- ranks that fall ---- */

static int fall_body(const struct pl_world *w) {
    struct rows r = {0};
    struct pl_comm *c;
    struct pl_diag d = {0};
    cudaStream_t stream = NULL;
    pl_err err = open_comm(&c, w, &d);
    if (err == PL_ERR_OK) err = make_rows(c, &r, &stream);
    setenv("PLSIM_NCCL_FAIL", "abort", 1);
    void *registered = register_rows(c, &r);
    if (err == PL_ERR_OK) ranks_fall_soon(w, 300);
    for (uint64_t k = 0; err == PL_ERR_OK; k++)
        err = exchange_once(c, &r, k, stream, &d);
    if (c) (void)pl_comm_check(c, &d);
    /* A session ends in this order, while the other thread may still abort. */
    unregister_rows(c, registered);
    free_rows(c, &r, stream);
    int status = ranks_note(w, err, &d);
    pl_comm_close(&c);
    return status;
}

START_TEST(an_exchange_ends_when_a_rank_falls) {
    struct ranks_run r = {
        .body = "fall", .n = 3, .limit = _i < 3 ? NEVER_SECONDS : 3, .seed = (uint32_t)_i};
    char name[32];
    r.signal = _i < 3 ? SIGKILL : SIGSTOP;
    r.victim = _i % 3;
    snprintf(name, sizeof name, "rank %d on ", r.victim);
    ck_assert_int_eq(ranks_run(&r), KILLED_STATUS);
    for (int i = 0; i < 3; i++) {
        const struct rank_outcome *o = &ranks->of[i];
        if (i == r.victim) continue;
        ck_assert_msg(o->err == PL_ERR_COMM_PEER_LOST, "rank %d: %d %s", i, o->err, o->message);
        ck_assert_msg(strncmp(o->message, name, strlen(name)) == 0, "rank %d: %s", i, o->message);
        ck_assert_msg(o->seconds < HANG_SECONDS, "rank %d: %f s", i, o->seconds);
    }
}
END_TEST

/* ---- what opening refuses ---- */

enum { SAME_GPU = 4, FALLS = 5 }; /* seed */

static int open_body(const struct pl_world *w) {
    struct pl_comm *c;
    struct pl_diag d = {0};
    if (ranks->seed == 0) setenv("PLSIM_NCCL_VERSION", "21602", 1);
    if (ranks->seed == 1) setenv("PLIMSOLL_NCCL", "/nonexistent/libnccl.so.2", 1);
    if (ranks->seed == 2 && w->rank == 1) setenv("PLSIM_NCCL_FAIL", "init", 1);
    if (ranks->seed == 3 && w->rank == 1) setenv("PLSIM_MEMORY_BYTES", "1000000", 1);
    if (ranks->seed == FALLS && w->rank == 1) setenv("PLSIM_NCCL_FAIL", "fall", 1);
    pl_err err = open_comm_on(ranks->seed == SAME_GPU ? 0 : (int)w->local_rank, &c, w, &d);
    int status = ranks_note(w, err, &d);
    pl_comm_close(&c);
    return status;
}

static const struct {
    const char *words; /* arguments of rank 1 */
    pl_err err;
} refusals[] = {
    {"NCCL 2.18 or later, and 2.16.2 was found", PL_ERR_COMM_INIT},
    {"/nonexistent/libnccl.so.2", PL_ERR_COMM_INIT},
    {"does not connect this rank, 1: unhandled system error", PL_ERR_COMM_INIT},
    {"does not connect this rank, 1: unhandled cuda error", PL_ERR_DEVICE_OOM},
};

START_TEST(what_does_not_start_is_told) {
    struct ranks_run r = {.body = "open", .n = 2, .limit = 10, .seed = (uint32_t)_i};
    ck_assert_int_ne(ranks_run(&r), 0);
    ck_assert_int_eq(ranks->of[1].err, refusals[_i].err);
    ck_assert_msg(strstr(ranks->of[1].message, refusals[_i].words), "%s", ranks->of[1].message);
    ck_assert_int_ne(ranks->of[0].err, PL_ERR_OK);
    if (_i >= 2)
        ck_assert_msg(strstr(ranks->of[0].message, "rank 1 on "), "%s", ranks->of[0].message);
}
END_TEST

/* Either of the two may be told by NCCL first; the other may learn of it from that one. */
START_TEST(two_ranks_on_one_gpu_are_refused) {
    struct ranks_run r = {.body = "open", .n = 2, .limit = 10, .seed = SAME_GPU};
    int told = 0;
    ck_assert_int_ne(ranks_run(&r), 0);
    for (int i = 0; i < 2; i++) {
        const struct rank_outcome *o = &ranks->of[i];
        const bool lost = o->err == PL_ERR_COMM_PEER_LOST;
        ck_assert_msg(lost || o->err == PL_ERR_COMM_INIT, "rank %d: %s", i, o->message);
        told += !lost && strstr(o->message, "invalid usage: Duplicate GPU detected");
    }
    ck_assert_int_ge(told, 1);
}
END_TEST

/* Rank 0 waits for it on the device, which only an abort ends. */
START_TEST(opening_ends_when_a_rank_falls) {
    struct ranks_run r = {.body = "open", .n = 2, .limit = NEVER_SECONDS, .seed = FALLS};
    const uint64_t before = ranks_now_ns();
    ck_assert_int_ne(ranks_run(&r), 0);
    const double seconds = 1e-9 * (double)(ranks_now_ns() - before);
    ck_assert_int_eq(ranks->of[0].err, PL_ERR_COMM_PEER_LOST);
    ck_assert_msg(strstr(ranks->of[0].message, "rank 1 on "), "%s", ranks->of[0].message);
    ck_assert_msg(seconds < HANG_SECONDS, "%f s", seconds);
}
END_TEST

/* ---- the rules ---- */

/* The message of the library on stderr when it ends the process, readable by the test. */
static char *last_words;
static void keep_last_words(int signal) {
    (void)signal;
    (void)!pread(STDERR_FILENO, last_words, sizeof ranks->of->message - 1, 0);
}

static void watch_last_words(const struct pl_world *w) {
    const int fd = memfd_create("last words", MFD_CLOEXEC);
    last_words = ranks->of[w->rank].message;
    if (fd < 0 || dup2(fd, STDERR_FILENO) < 0) return;
    (void)close(fd);
    (void)signal(SIGABRT, keep_last_words);
}

/* seed */
enum {
    SIZES,
    ORDER,
    HOST,
    OVERLAP,
    MIXED,
    KINDS,
    TWICE,
    UNKNOWN,
    OF_HOST,
    FREED,
    BY_CUDA,
    TO_NCCL,
    KEPT,
    RULES
};

static void break_registration(struct pl_comm *c, const struct rows *r) {
    const struct pl_nccl *nccl;
    void *const first = ranks->seed == UNKNOWN ? c : register_rows(c, r);
    if (ranks->seed == TWICE) (void)c->ops->register_memory(c, r->device + BYTES, 1);
    if (ranks->seed == UNKNOWN) c->ops->unregister_memory(c, first);
    if (ranks->seed == OF_HOST) (void)c->ops->register_memory(c, r->host, BYTES);
    if (ranks->seed == FREED) (void)c->ops->give_memory(c, r->device);
    if (ranks->seed == BY_CUDA) (void)cudaFree(r->device);
    if (ranks->seed == TO_NCCL && pl_nccl_load(&nccl, NULL) == PL_ERR_OK)
        (void)nccl->mem_free(r->host);
}

/* Uses of the library itself that the real one would not survive. */
static int break_body(const struct pl_world *w) {
    struct rows r = {0};
    struct pl_comm *c;
    struct pl_diag d = {0};
    cudaStream_t stream = NULL;
    watch_last_words(w);
    const bool one_differs = ranks->seed == KINDS && w->rank == 1;
    if (one_differs || ranks->seed == TWICE || ranks->seed == OF_HOST) set_before_2_26();
    pl_err err = open_comm(&c, w, &d);
    if (err == PL_ERR_OK) err = make_rows(c, &r, &stream);
    if (err != PL_ERR_OK) return 1;
    if (ranks->seed > KINDS) {
        break_registration(c, &r);
        pl_comm_close(&c);
        return 1;
    }
    const bool registers = ranks->seed == KINDS || (ranks->seed == MIXED && w->rank == 1);
    void *registered = registers ? register_rows(c, &r) : NULL;
    uint32_t peer = 1 - w->rank, rule = ranks->seed;
    bool receives = w->rank == 1;
    struct pl_move m = {peer, receives, r.device, rule == SIZES && receives ? 99 : 100};
    struct pl_move over[2] = {{peer, true, r.device, 100}, {peer, false, r.device + 50, 100}};
    struct pl_move two[2] = {{peer, receives, r.device, 1}, {peer, receives, r.device + 64, 100}};
    if (rule == HOST) m.p = r.host;
    if (rule == ORDER && !receives) /* two groups; rank 1 has one */
        (void)c->ops->exchange(c, two, 1, stream), (void)c->ops->exchange(c, two + 1, 1, stream);
    else if (rule == ORDER)
        (void)c->ops->exchange(c, two, 2, stream);
    else
        (void)c->ops->exchange(c, rule == OVERLAP ? over : &m, rule == OVERLAP ? 2 : 1, stream);
    (void)cudaStreamSynchronize(stream);
    unregister_rows(c, registered);
    free_rows(c, &r, stream);
    pl_comm_close(&c);
    return 1; /* the status of a rank that only lost the other */
}

START_TEST(a_broken_rule_ends_the_process) {
    static const char *const words[RULES] = {
        [SIZES] = "receives 99 bytes of the 100 that",
        [ORDER] = "meets group",
        [HOST] = "is not device memory",
        [OVERLAP] = "overlaps another of its group",
        [MIXED] = "receives in memory that is registered, of NCCL, from rank 0's that is not",
        [KINDS] = "receives in memory that is registered, from rank 0's that is registered, of",
        [TWICE] = "is registered already",
        [UNKNOWN] = "ncclCommDeregister: ",
        [OF_HOST] = "ncclCommRegister: ",
        [FREED] = "device memory is freed that is registered with NCCL",
        [BY_CUDA] = "is of ncclMemAlloc",
        [TO_NCCL] = "is not of ncclMemAlloc",
        [KEPT] = "ncclCommFinalize: memory is still registered"};
    struct ranks_run r = {.body = "break", .n = 2, .limit = 10, .seed = (uint32_t)_i};
    ck_assert_int_eq(ranks_run(&r), ABORTED_STATUS);
    ck_assert_msg(strstr(ranks->of[0].message, words[_i]) ||
                      strstr(ranks->of[1].message, words[_i]),
                  "neither \"%s\" nor \"%s\" says: %s", ranks->of[0].message, ranks->of[1].message,
                  words[_i]);
}
END_TEST

static const struct ranks_body bodies[] = {
    {"traffic", traffic_body}, {"fall", fall_body}, {"open", open_body}, {"break", break_body}};

int main(int argc, char *argv[]) {
    int status = ranks_main(argc, argv, bodies, sizeof bodies / sizeof *bodies);
    if (status >= 0) return status;
    Suite *s = suite_create("nccl");
    TCase *tc = tcase_create("nccl");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, every_byte_arrives_on_the_stream, 1, 5);
    tcase_add_loop_test(tc, registered_or_not_every_byte_arrives, REGISTERED, REGISTRATIONS);
    tcase_add_loop_test(tc, an_exchange_ends_when_a_rank_falls, 0, 6);
    tcase_add_loop_test(tc, what_does_not_start_is_told, 0, 4);
    tcase_add_test(tc, two_ranks_on_one_gpu_are_refused);
    tcase_add_test(tc, opening_ends_when_a_rank_falls);
    tcase_add_loop_test(tc, a_broken_rule_ends_the_process, 0, RULES);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
