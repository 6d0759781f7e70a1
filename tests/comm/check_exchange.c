/* check_exchange.c - tensors between processes, through MPI. */
#include "tests/comm/rank_process.h"

#include "runtime/comm/launch.h"
#include "runtime/comm/mpi_engine.h"
#include "tests/support/hang.h"

#include <check.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SKIPPED = 77, MOVES = 8, KILLED_STATUS = 128 + SIGKILL };

static pl_err open_comm(struct pl_comm **c, const struct pl_world *w, struct pl_diag *d) {
    const struct pl_comm_request request = {.timeout_seconds = ranks->limit};
    return pl_comm_open(c, w, &request, d);
}

/* ---- random patterns ---- */

/* Bytes of the i-th move from one rank to another in round k; both compute it. Every fourth is
 * nothing, every fourth large. */
static size_t size_of(uint64_t k, uint32_t from, uint32_t to, uint32_t i) {
    uint64_t x = ranks_mix(k * 100 + i, from * 64 + to + 1);
    if (x % 4 == 0) return 0;
    if (x % 4 == 1) return (size_t)(x / 4 % 3000000);
    return (size_t)(x / 4 % 5000);
}

static unsigned char byte_at(uint64_t k, uint32_t from, uint32_t to, uint32_t i, size_t at) {
    return (unsigned char)(ranks_mix(k * 100 + i, from * 64 + to + 1) + at * 31 + at / 256);
}

struct traffic {
    struct pl_move moves[2 * PL_RANKS_MAX * MOVES];
    uint32_t n;
    uint64_t sent;
};

/* All moves of this rank, in an order that chance gives, except that those with one peer in one
 * direction keep theirs. */
static void make_traffic(struct traffic *t, const struct pl_world *w, uint64_t k) {
    t->n = 0;
    t->sent = 0;
    uint32_t first = (uint32_t)(ranks_mix(k, w->rank) % w->size);
    for (uint32_t j = 0; j < w->size; j++)
        for (uint32_t i = 0; i < MOVES; i++)
            for (int receive = 0; receive < 2; receive++) {
                uint32_t peer = (first + j) % w->size;
                uint32_t from = receive ? peer : w->rank, to = receive ? w->rank : peer;
                struct pl_move *m = &t->moves[t->n];
                if (peer == w->rank) continue;
                m->peer = peer;
                m->receive = receive;
                m->bytes = size_of(k, from, to, i);
                m->p = malloc(m->bytes + 1);
                for (size_t at = 0; at <= m->bytes; at++)
                    ((unsigned char *)m->p)[at] = receive ? 0xEE : byte_at(k, from, to, i, at);
                t->sent += receive ? 0 : m->bytes;
                t->n++;
            }
}

static pl_err check_traffic(struct traffic *t, const struct pl_world *w, uint64_t k,
                            struct pl_diag *d) {
    uint32_t next[PL_RANKS_MAX] = {0};
    pl_err err = PL_ERR_OK;
    for (uint32_t j = 0; j < t->n; j++) {
        const struct pl_move *m = &t->moves[j];
        const unsigned char *p = m->p;
        bool right = !m->receive || p[m->bytes] == 0xEE;
        uint32_t i = m->receive ? next[m->peer]++ : 0;
        for (size_t at = 0; m->receive && right && at < m->bytes; at++)
            right = p[at] == byte_at(k, m->peer, w->rank, i, at);
        if (!right)
            err = pl_diag_set(d, PL_ERR_PLAN_BROKEN, "round %d: other bytes of rank %u, move %u",
                              (int)k, m->peer, i);
        free(m->p);
    }
    return err;
}

static int traffic_body(const struct pl_world *w) {
    static struct traffic t;
    struct pl_comm *c;
    struct pl_diag d = {0};
    uint64_t sent = 0;
    pl_err err = open_comm(&c, w, &d);
    for (uint64_t k = 0; k < 12 && err == PL_ERR_OK; k++) {
        make_traffic(&t, w, k);
        err = c->ops->exchange(c, t.moves, t.n, NULL);
        sent += t.sent;
        if (err == PL_ERR_OK) err = check_traffic(&t, w, k, &d);
        if (err == PL_ERR_OK && k % 4 == 0) err = pl_comm_barrier(c, &d);
        ranks->of[w->rank].rounds = k + 1;
    }
    if (err == PL_ERR_OK && (c->sent_bytes != sent || c->exchanges != 12))
        err = pl_diag_set(&d, PL_ERR_PLAN_BROKEN, "%llu bytes are counted, %llu were sent",
                          (unsigned long long)c->sent_bytes, (unsigned long long)sent);
    int status = ranks_note(w, err, &d);
    pl_comm_close(&c);
    return status;
}

static void check_all_well(uint32_t n) {
    for (uint32_t r = 0; r < n; r++)
        ck_assert_msg(ranks->of[r].err == PL_ERR_OK, "rank %u: %d %s", r, ranks->of[r].err,
                      ranks->of[r].message);
}

START_TEST(every_byte_arrives_in_order) {
    struct ranks_run r = {.body = "traffic", .n = (uint32_t)_i, .limit = 20, .mpi = true};
    r.seed = (uint32_t)_i;
    int status = ranks_run(&r);
    check_all_well(r.n);
    ck_assert_int_eq(status, 0);
}
END_TEST

/* ---- ranks that may not read each other ---- */

static bool read_of(pid_t pid) {
    static char from, to;
    const struct iovec remote = {&from, 1}, local = {&to, 1};
    return process_vm_readv(pid, &local, 1, &remote, 1, 0) == 1;
}

/* Makes process_vm_readv return EPERM in this process. */
static bool forbid_reading(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) ==
               0 &&
           !read_of(getpid());
}

/* Rank 1 reads nobody, and is read by all. */
static int blind_body(const struct pl_world *w) {
    if (w->rank == 1 && !forbid_reading()) return 4;
    return traffic_body(w);
}

/* W1 of mpi_near.h: a sender that did not know it would wait to be read. W2 of mpi_near.h: what is
 * forbidden is found out by trying. */
START_TEST(ranks_that_may_not_read_get_every_byte) {
    struct ranks_run r = {.body = "blind", .n = 3, .limit = 20, .mpi = true};
    int status = ranks_run(&r);
    check_all_well(r.n);
    ck_assert_int_eq(status, 0);
}
END_TEST

static bool siblings_read_each_other(void) {
    int status = 1;
    pid_t one = fork();
    if (one == 0) {
        pause();
        _exit(0);
    }
    pid_t other = fork();
    if (other == 0) _exit(read_of(one) ? 0 : 1);
    waitpid(other, &status, 0);
    kill(one, SIGKILL);
    waitpid(one, NULL, 0);
    return status == 0;
}

/* Rank 1 can read when it meets rank 0, and cannot any more in the exchange. */
static int blinded_body(const struct pl_world *w) {
    static unsigned char p[1 << 20];
    struct pl_comm *c;
    struct pl_diag d = {0};
    const struct pl_move move = {1 - w->rank, w->rank == 1, p, sizeof p};
    pl_err err = open_comm(&c, w, &d);
    if (w->rank == 1 && !forbid_reading()) return 4;
    if (err == PL_ERR_OK) err = c->ops->exchange(c, &move, 1, NULL);
    if (err != PL_ERR_OK && c) (void)pl_comm_check(c, &d);
    if (err == PL_ERR_OK) err = pl_comm_barrier(c, &d);
    int status = ranks_note(w, err, &d);
    pl_comm_close(&c);
    return status;
}

START_TEST(large_moves_are_read_from_the_other_rank) {
    struct ranks_run r = {.body = "blinded", .n = 2, .limit = 10, .mpi = true};
    if (!siblings_read_each_other()) return;
    ck_assert_int_ne(ranks_run(&r), 0);
    ck_assert_int_eq(ranks->of[0].err, PL_ERR_COMM_PEER_LOST);
    ck_assert_int_eq(ranks->of[1].err, PL_ERR_COMM_PEER_LOST);
    ck_assert_msg(strstr(ranks->of[1].message, "cannot read"), "%s", ranks->of[1].message);
}
END_TEST

/* ---- what is cut into pieces ---- */

static int large_body(const struct pl_world *w) {
    const uint64_t bytes = PL_MPI_MOVE_MOST + 4097;
    struct pl_comm *c;
    struct pl_diag d = {0};
    unsigned char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const uint64_t marks[] = {0, PL_MPI_MOVE_MOST - 1, PL_MPI_MOVE_MOST, bytes - 1};
    pl_err err = open_comm(&c, w, &d);
    for (int i = 0; i < 4; i++)
        if (w->rank == 1) p[marks[i]] = (unsigned char)(i + 1);
    const struct pl_move move = {.peer = 1 - w->rank, .receive = w->rank == 0, p, bytes};
    if (err == PL_ERR_OK) err = c->ops->exchange(c, &move, 1, NULL);
    for (int i = 0; i < 4 && err == PL_ERR_OK; i++)
        if (p[marks[i]] != i + 1) err = pl_diag_set(&d, PL_ERR_PLAN_BROKEN, "mark %d", i);
    int status = ranks_note(w, err, &d);
    pl_comm_close(&c);
    return status;
}

START_TEST(a_move_may_be_larger_than_mpi_counts) {
    struct ranks_run r = {.body = "large", .n = 2, .limit = 30, .mpi = true};
    if ((uint64_t)sysconf(_SC_AVPHYS_PAGES) * 4096 < UINT64_C(5) << 30) return;
    int status = ranks_run(&r);
    check_all_well(2);
    ck_assert_int_eq(status, 0);
}
END_TEST

/* ---- ranks that fall, and ranks that differ ---- */

static int fall_body(const struct pl_world *w) {
    enum { BYTES = 4 << 20 };
    struct pl_comm *c;
    struct pl_diag d = {0};
    unsigned char *p = calloc(2 * PL_RANKS_MAX, BYTES);
    struct pl_move moves[2 * PL_RANKS_MAX];
    uint32_t n = 0;
    pl_err err = open_comm(&c, w, &d);
    for (uint32_t r = 0; r < w->size; r++)
        for (int receive = 0; receive < 2; receive++)
            if (r != w->rank) {
                moves[n] = (struct pl_move){r, receive, p + (size_t)n * BYTES, BYTES};
                n++;
            }
    if (err == PL_ERR_OK) ranks_fall_soon(w, 300);
    while (err == PL_ERR_OK)
        err = c->ops->exchange(c, moves, n, NULL);
    if (c) (void)pl_comm_check(c, &d);
    int status = ranks_note(w, err, &d);
    pl_comm_close(&c);
    return status;
}

static void check_survivors(const struct ranks_run *r) {
    char name[32];
    snprintf(name, sizeof name, "rank %d on ", r->victim);
    for (uint32_t i = 0; i < r->n; i++) {
        const struct rank_outcome *o = &ranks->of[i];
        if ((int)i == r->victim) continue;
        ck_assert_msg(o->err == PL_ERR_COMM_PEER_LOST, "rank %u: %d %s", i, o->err, o->message);
        ck_assert_msg(strncmp(o->message, name, strlen(name)) == 0, "rank %u: %s", i, o->message);
        ck_assert_msg(o->seconds >= 0 && o->seconds < HANG_SECONDS, "rank %u: %f s", i, o->seconds);
    }
}

START_TEST(an_exchange_ends_when_a_rank_is_killed) {
    struct ranks_run r = {
        .body = "fall", .n = 2 + (uint32_t)_i % 3, .limit = NEVER_SECONDS, .mpi = true};
    r.seed = (uint32_t)_i;
    r.signal = SIGKILL;
    r.victim = _i / 3 % (int)r.n;
    ck_assert_int_eq(ranks_run(&r), KILLED_STATUS);
    check_survivors(&r);
}
END_TEST

START_TEST(an_exchange_ends_when_a_rank_is_stopped) {
    struct ranks_run r = {.body = "fall", .n = 3, .limit = 3, .mpi = true};
    r.seed = (uint32_t)_i;
    r.signal = SIGSTOP;
    r.victim = _i;
    ck_assert_int_eq(ranks_run(&r), KILLED_STATUS);
    check_survivors(&r);
}
END_TEST

/* Short moves, those that a rank reads, and one of each. */
static const uint64_t differing[][2] = {
    {1000, 999}, {1000, 1001}, {1 << 20, (1 << 20) - 1}, {1 << 20, 16}, {16, 1 << 20}};

/* Rank 0 sends another number of bytes than rank 1 expects. */
static int differ_body(const struct pl_world *w) {
    static unsigned char p[1 << 20];
    struct pl_comm *c;
    struct pl_diag d = {0};
    pl_err err = open_comm(&c, w, &d);
    const struct pl_move move = {1 - w->rank, w->rank == 1, p, differing[ranks->seed][w->rank]};
    if (err == PL_ERR_OK) err = c->ops->exchange(c, &move, 1, NULL);
    if (err != PL_ERR_OK && c) (void)pl_comm_check(c, &d);
    if (err == PL_ERR_OK && w->rank == 0) err = pl_comm_barrier(c, &d);
    int status = ranks_note(w, err, &d);
    pl_comm_close(&c);
    return status;
}

/* Y2 of mpi_module.h: the errors of the module are told apart. */
START_TEST(sizes_that_differ_are_refused) {
    struct ranks_run r = {.body = "differ", .n = 2, .limit = 5, .mpi = true};
    r.seed = (uint32_t)_i;
    ck_assert_int_ne(ranks_run(&r), 0);
    ck_assert_int_eq(ranks->of[1].err, PL_ERR_COMM_PEER_LOST);
    ck_assert_msg(strstr(ranks->of[1].message, "another number of bytes"), "%s",
                  ranks->of[1].message);
    ck_assert_int_eq(ranks->of[0].err, PL_ERR_COMM_PEER_LOST);
    ck_assert_msg(strstr(ranks->of[0].message, "rank 1 on "), "%s", ranks->of[0].message);
}
END_TEST

/* A rank that ends after MPI has started, and one that never starts it. */
static int silent_body(const struct pl_world *w) {
    struct pl_comm *c = NULL;
    struct pl_diag d = {0};
    struct pl_comm alone;
    if (w->rank == 1) { /* it is there, but calls no MPI */
        pl_err err = ranks_open_control(&alone, w, &d);
        usleep(200000);
        atomic_store(&ranks->fell_ns, ranks_now_ns());
        _exit(err == PL_ERR_OK ? 5 : 6);
    }
    pl_err err = open_comm(&c, w, &d);
    int status = ranks_note(w, err, &d);
    pl_comm_close(&c);
    return status;
}

START_TEST(the_start_of_mpi_has_a_limit) {
    struct ranks_run r = {.body = "silent", .n = 3, .limit = 20, .signal = SIGCONT, .mpi = true};
    r.victim = 1;
    ck_assert_int_eq(ranks_run(&r), 5);
    check_survivors(&r);
}
END_TEST

/* ---- mpiexec ---- */

/* Ranks, address and token come by MPI alone. */
START_TEST(ranks_of_mpiexec_find_each_other) {
    char self[512], command[1024];
    const char *mpiexec = getenv("MPIEXEC");
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (!mpiexec || !*mpiexec) return;
    ranks_init();
    ranks->limit = 10;
    ranks->victim = -1;
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    snprintf(command, sizeof command, "%s -n 3 %.*s --rank traffic", mpiexec, (int)n, self);
    int status = system(command);
    check_all_well(3);
    ck_assert_int_eq(status, 0);
}
END_TEST

static int miss(const struct pl_diag *d, const char *what) {
    fprintf(stderr, "no `%s`: %s; hint: %s\n", what, d->message, d->hint);
    return 1;
}

/* Returns the number of what is not said. */
static int what_srun_is_not_told(void) {
    const struct pl_world w = {.size = 2, .local_size = 2, .launcher = "srun", .by_srun = true};
    const struct pl_comm_request request = {.timeout_seconds = 10};
    const char *const type = pl_mpi_srun_type();
    char hint[64];
    struct pl_comm *c;
    struct pl_mpi *m;
    struct pl_diag no_address = {0}, no_ranks = {0};
    int misses = 0;
    snprintf(hint, sizeof hint, "start ranks on CPUs with `srun --mpi=%s`", type ? type : "?");
    if (pl_comm_open(&c, &w, &request, &no_address) != PL_ERR_COMM_INIT ||
        !strstr(no_address.message, "MASTER_ADDR is not set"))
        misses += miss(&no_address, "MASTER_ADDR is not set");
    if (!strstr(no_address.hint, hint)) misses += miss(&no_address, hint);
    if (!strstr(no_address.hint, PL_JOB_TOKEN)) misses += miss(&no_address, PL_JOB_TOKEN);
    if (pl_mpi_start(&m, &w, NULL, 1000 * HANG_SECONDS, &no_ranks) != PL_ERR_COMM_INIT ||
        !strstr(no_ranks.message, "0 of 1 by MPI"))
        misses += miss(&no_ranks, "0 of 1 by MPI");
    if (strcmp(no_ranks.hint, hint) != 0) misses += miss(&no_ranks, hint);
    return misses;
}

/* MPI starts alone where srun did not tell it of the others. The type to ask for depends on the MPI
 * of the build. A process of its own starts MPI and leaves at once: LeakSanitizer crashes in the
 * threads that MPI leaves. */
START_TEST(tasks_of_srun_that_mpi_does_not_know_are_told_of_its_type) {
    int status;
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) _exit(what_srun_is_not_told());
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}
END_TEST

static const struct ranks_body bodies[] = {{"traffic", traffic_body}, {"blind", blind_body},
                                           {"blinded", blinded_body}, {"large", large_body},
                                           {"fall", fall_body},       {"differ", differ_body},
                                           {"silent", silent_body}};

int main(int argc, char *argv[]) {
    const struct pl_mpi_module *module;
    struct pl_diag d = {0};
    int status = ranks_main(argc, argv, bodies, sizeof bodies / sizeof *bodies);
    if (status >= 0) return status;
    if (pl_mpi_find(&module, &d) != PL_ERR_OK) {
        fprintf(stderr,
                "skipped: needs a build with MPI (package libmpich-dev or libopenmpi-dev): %s\n",
                d.message);
        return SKIPPED;
    }
    Suite *s = suite_create("exchange");
    TCase *tc = tcase_create("exchange"), *mpi = tcase_create("start");
    tcase_set_timeout(tc, 90);
    tcase_set_timeout(mpi, 90);
    tcase_add_loop_test(tc, every_byte_arrives_in_order, 2, 5);
    tcase_add_test(tc, ranks_that_may_not_read_get_every_byte);
    tcase_add_test(tc, a_move_may_be_larger_than_mpi_counts);
    tcase_add_test(mpi, ranks_of_mpiexec_find_each_other);
    tcase_add_test(mpi, tasks_of_srun_that_mpi_does_not_know_are_told_of_its_type);
    /* The following needs processes that outlive each other, which mpiexec does not allow. */
    if (module->speaks_pmi) {
        tcase_add_loop_test(tc, an_exchange_ends_when_a_rank_is_killed, 0, 9);
        tcase_add_loop_test(tc, an_exchange_ends_when_a_rank_is_stopped, 0, 3);
        tcase_add_loop_test(tc, sizes_that_differ_are_refused, 0,
                            sizeof differing / sizeof *differing);
        tcase_add_test(tc, large_moves_are_read_from_the_other_rank);
        tcase_add_test(mpi, the_start_of_mpi_has_a_limit);
    }
    suite_add_tcase(s, tc);
    suite_add_tcase(s, mpi);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
