/* check_control.c - agreements between processes, and what becomes of them when one falls. */
#include "runtime/comm/launch.h"
#include "runtime/comm/wire.h"
#include "tests/comm/rank_process.h"
#include "tests/support/hang.h"

#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KILLED_STATUS = 128 + SIGKILL };

/* ---- agreements ---- */

static void fill(unsigned char *p, size_t n, uint64_t a, uint64_t b) {
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)(ranks_mix(a, b) >> (i % 8 * 8));
}

/* Round k: everyone gives as many bytes as chance says, and knows what the others gave. */
static pl_err agree_once(struct pl_comm *c, uint64_t k, struct pl_diag *d) {
    unsigned char mine[PL_AGREE_MOST], all[PL_RANKS_MAX * PL_AGREE_MOST], want[PL_AGREE_MOST];
    uint32_t bytes = (uint32_t)(ranks_mix(k, 1000) % (PL_AGREE_MOST + 1));
    fill(mine, bytes, k, c->world.rank);
    memset(all, 0xEE, sizeof all);
    PL_TRY(pl_comm_agree(c, mine, bytes, all, d));
    for (uint32_t r = 0; r < c->world.size; r++) {
        fill(want, bytes, k, r);
        if (memcmp(all + (size_t)r * bytes, want, bytes) != 0)
            return pl_diag_set(d, PL_ERR_PLAN_BROKEN, "round %d: other bytes of rank %u", (int)k,
                               r);
    }
    if (bytes && all[(size_t)c->world.size * bytes] != 0xEE)
        return pl_diag_set(d, PL_ERR_PLAN_BROKEN, "round %d: bytes beyond the last rank", (int)k);
    return PL_ERR_OK;
}

static pl_err broadcast_once(struct pl_comm *c, uint64_t k, struct pl_diag *d) {
    static const size_t sizes[] = {0, 1, 1000, PL_ROUND_MOST, PL_ROUND_MOST + 1, 300001};
    static unsigned char p[300002], want[sizeof p];
    size_t bytes = sizes[k % 6];
    pl_err err = PL_ERR_OK;
    fill(want, bytes + 1, k, 0);
    fill(p, bytes + 1, k, c->world.rank);
    p[bytes] = want[bytes] = 0xEE;
    err = pl_comm_broadcast(c, p, bytes, d);
    if (err == PL_ERR_OK && memcmp(p, want, bytes + 1) != 0)
        err = pl_diag_set(d, PL_ERR_PLAN_BROKEN, "broadcast of %zu bytes: others came", bytes);
    return err;
}

static int agree_body(const struct pl_world *w) {
    struct pl_comm c;
    struct pl_diag d = {0};
    pl_err err = ranks_open_control(&c, w, &d);
    for (uint64_t k = 0; k < 200 && err == PL_ERR_OK; k++) {
        err = agree_once(&c, k, &d);
        if (err == PL_ERR_OK && k % 10 == 0) err = broadcast_once(&c, k / 10, &d);
        if (err == PL_ERR_OK && k % 10 == 5) err = pl_comm_barrier(&c, &d);
        if (err == PL_ERR_OK && k % 10 == 6) err = pl_comm_compare(&c, "the plan", "abc", &d);
        if (err == PL_ERR_OK) err = pl_comm_check(&c, &d);
        ranks->of[w->rank].rounds = k + 1;
    }
    int status = ranks_note(w, err, &d);
    pl_control_close(&c.control, true);
    return status;
}

/* C3 of comm.h: the ranks have no device and no engine. Under ThreadSanitizer these tests also
 * hold S1 of control_state.h for the links and S2 of control_state.h for what the threads share. */
START_TEST(all_know_what_all_gave) {
    ck_assert_int_eq(ranks_run(&(struct ranks_run){.body = "agree", .n = (uint32_t)_i, .limit = 5}),
                     0);
    for (int r = 0; r < _i; r++)
        ck_assert_msg(ranks->of[r].err == PL_ERR_OK && ranks->of[r].rounds == 200, "rank %d: %s", r,
                      ranks->of[r].message);
}
END_TEST

/* ---- ranks that differ ---- */

static int compare_body(const struct pl_world *w) {
    struct pl_comm c;
    struct pl_diag d = {0};
    pl_err err = ranks_open_control(&c, w, &d);
    if (err == PL_ERR_OK) err = pl_comm_compare(&c, "the job", "same", &d);
    const char *digest = w->rank == 1 || w->rank == 3 ? "other" : "this";
    if (err == PL_ERR_OK) err = pl_comm_compare(&c, "the plan", digest, &d);
    int status = ranks_note(w, err, &d);
    pl_control_close(&c.control, false);
    return status;
}

START_TEST(who_differs_is_named) {
    ck_assert_int_ne(ranks_run(&(struct ranks_run){.body = "compare", .n = 4, .limit = 5}), 0);
    for (int r = 0; r < 4; r++) {
        ck_assert_int_eq(ranks->of[r].err, PL_ERR_COMM_MISMATCH);
        ck_assert_str_eq(ranks->of[r].message, "the plan of ranks 1, 3 is not that of rank 0");
    }
}
END_TEST

/* Rank 1 makes another call than the others. */
static int stray_body(const struct pl_world *w) {
    unsigned char room[2 * PL_RANKS_MAX] = {0}, sent = 7, two[2] = {0};
    struct pl_comm c;
    struct pl_diag d = {0};
    pl_err err = ranks_open_control(&c, w, &d);
    if (err == PL_ERR_OK && ranks->seed == 3) /* with equal bytes, namely none */
        err = w->rank == 1 ? pl_comm_broadcast(&c, two, 2, &d) : pl_comm_barrier(&c, &d);
    else if (err == PL_ERR_OK && w->rank == 1)
        err = ranks->seed == 0   ? pl_comm_barrier(&c, &d)
              : ranks->seed == 1 ? pl_comm_agree(&c, two, 2, room, &d)
                                 : pl_comm_broadcast(&c, two, 2, &d);
    else if (err == PL_ERR_OK)
        err = ranks->seed == 2 ? pl_comm_broadcast(&c, &sent, 1, &d)
                               : pl_comm_agree(&c, &sent, 1, room, &d);
    /* The next call comes at a point where only rank 1 could see the difference. */
    if (err == PL_ERR_OK) err = pl_comm_barrier(&c, &d);
    int status = ranks_note(w, err, &d);
    pl_control_close(&c.control, false);
    return status;
}

/* C1 of comm.h: another call, or one of other bytes, is an error of all who can see it. */
START_TEST(calls_that_differ_are_refused) {
    ck_assert_int_ne(
        ranks_run(&(struct ranks_run){.body = "stray", .n = 3, .limit = 5, .seed = (uint32_t)_i}),
        0);
    if (_i == 2) {
        ck_assert_int_eq(ranks->of[1].err, PL_ERR_COMM_MISMATCH);
        ck_assert_ptr_nonnull(strstr(ranks->of[1].message, "gives 1 bytes"));
    } else {
        for (int r = 0; r < 3; r++)
            ck_assert_msg(ranks->of[r].err == PL_ERR_COMM_MISMATCH, "rank %d: %s", r,
                          ranks->of[r].message);
        ck_assert_ptr_nonnull(strstr(ranks->of[0].message, "rank 1 on "));
        ck_assert_ptr_nonnull(strstr(ranks->of[2].message, "rank 1 on "));
    }
}
END_TEST

/* ---- ranks that fall ---- */

static int fall_body(const struct pl_world *w) {
    struct pl_comm c;
    struct pl_diag d = {0};
    pl_err err = ranks_open_control(&c, w, &d);
    if (err == PL_ERR_OK) ranks_fall_soon(w, 300);
    for (uint64_t k = 0; err == PL_ERR_OK; k++)
        err = agree_once(&c, k, &d);
    int status = ranks_note(w, err, &d);
    pl_control_close(&c.control, false);
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

/* K3 of control.h: the end of its connection is the loss of a rank. */
START_TEST(a_killed_rank_is_named_at_once) {
    struct ranks_run r = {.body = "fall", .n = 2 + (uint32_t)_i % 3, .limit = NEVER_SECONDS};
    r.seed = (uint32_t)_i;
    r.signal = SIGKILL;
    r.victim = _i / 3;
    if (r.victim >= (int)r.n) return;
    ck_assert_int_eq(ranks_run(&r), KILLED_STATUS);
    check_survivors(&r);
}
END_TEST

/* K3 of control.h: a rank that is silent is lost as well. C2 of comm.h: nobody waits longer than
 * the limit. */
START_TEST(a_stopped_rank_is_named_within_the_limit) {
    struct ranks_run r = {.body = "fall", .n = 3, .limit = 3, .seed = (uint32_t)_i};
    r.signal = SIGSTOP;
    r.victim = _i;
    ck_assert_int_eq(ranks_run(&r), KILLED_STATUS); /* by the launcher, at last */
    check_survivors(&r);
    ck_assert_ptr_nonnull(strstr(ranks->of[(_i + 1) % 3].message, "was not heard of for 3 s"));
}
END_TEST

/* Stops without falling: its last words, or that it had none. */
static int part_body(const struct pl_world *w) {
    unsigned char all[PL_RANKS_MAX];
    struct pl_comm c;
    struct pl_diag d = {0};
    pl_err err = ranks_open_control(&c, w, &d);
    if (err == PL_ERR_OK) err = pl_comm_barrier(&c, &d);
    if ((int)w->rank == ranks->victim) {
        atomic_store(&ranks->fell_ns, ranks_now_ns());
        if (ranks->seed == 0) pl_comm_fail(&c, PL_ERR_OK, "the disk is full");
        if (ranks->seed == 1) _exit(5);
        pl_control_close(&c.control, false);
        return 5;
    }
    if (err == PL_ERR_OK) err = pl_comm_agree(&c, "x", 1, all, &d);
    int status = ranks_note(w, err, &d);
    pl_control_close(&c.control, false);
    return status;
}

START_TEST(last_words_reach_the_others) {
    static const char *const words[] = {"ended: the disk is full", "ended without a word",
                                        "ended before the others"};
    struct ranks_run r = {.body = "part", .n = 3, .limit = NEVER_SECONDS, .seed = (uint32_t)_i / 3};
    r.signal = SIGCONT; /* there is a victim, which no signal ends */
    r.victim = _i % 3;
    ck_assert_int_eq(ranks_run(&r), 5);
    check_survivors(&r);
    for (int i = 0; i < 3; i++)
        ck_assert_msg(i == r.victim || strstr(ranks->of[i].message, words[_i / 3]), "rank %d: %s",
                      i, ranks->of[i].message);
}
END_TEST

/* ---- a whole job that is suspended ---- */

static int patient_body(const struct pl_world *w) {
    struct pl_comm c;
    struct pl_diag d = {0};
    pl_err err = ranks_open_control(&c, w, &d);
    atomic_fetch_add(&ranks->gate, 1);
    for (uint64_t k = 0; err == PL_ERR_OK && k < 1000; k++) {
        unsigned char go = atomic_load(&ranks->gate) >= 100, all[PL_RANKS_MAX];
        err = pl_comm_agree(&c, &go, 1, all, &d);
        if (err == PL_ERR_OK && all[0]) break;
        usleep(10000);
    }
    int status = ranks_note(w, err, &d);
    pl_control_close(&c.control, true);
    return status;
}

/* Stops and continues all ranks, in the order of their numbers. */
static void suspend_all(uint32_t n) {
    while (atomic_load(&ranks->gate) < n)
        usleep(1000);
    usleep(100000);
    for (uint32_t r = 0; r < n; r++)
        kill(ranks->of[r].pid, SIGSTOP);
    usleep(2500000);
    for (uint32_t r = 0; r < n; r++)
        kill(ranks->of[r].pid, SIGCONT);
    usleep(500000);
    atomic_store(&ranks->gate, 100);
}

/* K4 of control.h: each rank is silent for more than the limit, and is stopped itself meanwhile. */
START_TEST(a_suspended_job_resumes) {
    ranks_init();
    pid_t helper = fork();
    if (helper == 0) {
        suspend_all(3);
        _exit(0);
    }
    int status = ranks_run(&(struct ranks_run){.body = "patient", .n = 3, .limit = 1});
    waitpid(helper, NULL, 0);
    for (int r = 0; r < 3; r++)
        ck_assert_msg(ranks->of[r].err == PL_ERR_OK, "rank %d: %s", r, ranks->of[r].message);
    ck_assert_int_eq(status, 0);
}
END_TEST

/* ---- the start ---- */

/* The others come when the gate is open. */
static int late_body(const struct pl_world *w) {
    if (w->rank > 0)
        while (!atomic_load(&ranks->gate))
            usleep(1000);
    return agree_body(w);
}

static int connect_to_rank_0(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    while (!atomic_load(&ranks->port))
        usleep(1000);
    at.sin_port = htons((uint16_t)atomic_load(&ranks->port));
    for (int i = 0; i < 2000; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0) return fd;
        close(fd);
        usleep(1000);
    }
    _exit(9);
}

/* Bytes that a stranger sends, before ranks come. Returns whether rank 0 ended the connection. */
static bool is_turned_away(const void *p, size_t bytes) {
    unsigned char byte;
    int fd = connect_to_rank_0();
    if (bytes) (void)!write(fd, p, bytes);
    bool ended = recv(fd, &byte, 1, 0) <= 0;
    close(fd);
    return ended;
}

/* Exit status: which of them was listened to. */
static _Noreturn void visit_rank_0(void) {
    static unsigned char big[100000];
    unsigned char hello[sizeof(struct pl_head) + sizeof(struct pl_hello)];
    struct pl_hello h = {.rank = 1, .size = 3, .token = "0123456789abcdef"};
    struct pl_head head = {.magic = PL_MAGIC, .kind = PL_MESSAGE_HELLO, .bytes = sizeof h};
    memcpy(hello, &head, sizeof head);
    memcpy(hello + sizeof head, &h, sizeof h);
    if (!is_turned_away(hello, sizeof hello)) _exit(1);
    if (!is_turned_away("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 27)) _exit(2);
    if (!is_turned_away(big, sizeof big)) _exit(3);
    memcpy(big, &head, sizeof head);
    ((struct pl_head *)(void *)big)->bytes = sizeof big - sizeof head; /* there is more than room */
    if (!is_turned_away(big, sizeof big)) _exit(3);
    head.bytes = UINT32_MAX;
    if (!is_turned_away(&head, sizeof head)) _exit(4);
    head = (struct pl_head){.magic = PL_MAGIC, .kind = PL_MESSAGE_PART};
    if (!is_turned_away(&head, sizeof head)) _exit(5);
    if (!is_turned_away(NULL, 0)) _exit(6); /* says nothing */
    for (int i = 0; i < 100; i++)           /* more than are heard at one time, to the end */
        (void)connect_to_rank_0();
    atomic_store(&ranks->gate, 1);
    sleep(1);
    _exit(0);
}

/* C4 of comm.h: none of them gives the token. K1 of control.h: a message that is too long ends the
 * connection; K2 of control.h: so does silence. */
START_TEST(strangers_are_turned_away) {
    int visited;
    ranks_init();
    pid_t helper = fork();
    if (helper == 0) visit_rank_0();
    int status = ranks_run(&(struct ranks_run){.body = "late", .n = 3, .limit = 5});
    waitpid(helper, &visited, 0);
    ck_assert_int_eq(WEXITSTATUS(visited), 0);
    for (int r = 0; r < 3; r++)
        ck_assert_msg(ranks->of[r].err == PL_ERR_OK, "rank %d: %s", r, ranks->of[r].message);
    ck_assert_int_eq(status, 0);
}
END_TEST

/* Rank 2 does not come: it waits for the others to have ended, or ends itself. */
static int absent_body(const struct pl_world *w) {
    struct pl_comm c;
    struct pl_diag d = {0};
    if (w->rank == 2 && ranks->seed == 0) {
        while (atomic_load(&ranks->gate) < 3)
            usleep(1000);
        return 0;
    }
    pl_err err = ranks_open_control(&c, w, &d);
    int status = ranks_note(w, err, &d);
    pl_control_close(&c.control, false);
    atomic_fetch_add(&ranks->gate, 1);
    return status;
}

START_TEST(a_missing_rank_is_named) {
    ck_assert_int_ne(ranks_run(&(struct ranks_run){.body = "absent", .n = 4, .limit = 2}), 0);
    for (int r = 0; r < 4; r++) {
        if (r == 2) continue;
        ck_assert_int_eq(ranks->of[r].err, PL_ERR_COMM_INIT);
        ck_assert_str_eq(ranks->of[r].message, "1 of 4 ranks did not come within 5 s: 2");
        ck_assert_str_eq(ranks->of[r].told, r ? "" : "1 of 4 ranks are missing after 2 s: 2");
    }
}
END_TEST

/* If rank 0 is missing, no rank can tell the others who it is. */
static int headless_body(const struct pl_world *w) {
    struct pl_comm c;
    struct pl_diag d = {0};
    if (w->rank == 0) {
        while (atomic_load(&ranks->gate) < 2)
            usleep(1000);
        return 0;
    }
    pl_err err = ranks_open_control(&c, w, &d);
    int status = ranks_note(w, err, &d);
    pl_control_close(&c.control, false);
    atomic_fetch_add(&ranks->gate, 1);
    return status;
}

START_TEST(a_missing_rank_0_is_named_by_all) {
    ck_assert_int_ne(ranks_run(&(struct ranks_run){.body = "headless", .n = 3, .limit = 2}), 0);
    for (int r = 1; r < 3; r++) {
        char waits[64];
        snprintf(waits, sizeof waits, "rank %d waits for rank 0 at 127.0.0.1:", r);
        ck_assert_int_eq(ranks->of[r].err, PL_ERR_COMM_INIT);
        ck_assert_msg(strstr(ranks->of[r].message, "did not reach rank 0 at "), "%s",
                      ranks->of[r].message);
        ck_assert_msg(strstr(ranks->of[r].told, waits), "%s", ranks->of[r].told);
    }
}
END_TEST

/* Rank 2 ends, before or after rank 0 listens. */
static int early_body(const struct pl_world *w) {
    struct pl_comm c;
    struct pl_diag d = {0};
    if (w->rank == 2) _exit(9);
    if (w->rank == 0 && ranks->seed) usleep(300000);
    pl_err err = ranks_open_control(&c, w, &d);
    int status = ranks_note(w, err, &d);
    pl_control_close(&c.control, false);
    return status;
}

/* N4 of launch.h: the launcher tells rank 0. */
START_TEST(a_rank_that_ended_is_not_waited_for) {
    uint64_t before = ranks_now_ns();
    const struct ranks_run run = {
        .body = "early", .n = 4, .limit = NEVER_SECONDS, .seed = (uint32_t)_i};
    ck_assert_int_eq(ranks_run(&run), 9);
    for (int r = 0; r < 4; r++) {
        const char *message = ranks->of[r].message;
        if (r == 2) continue;
        ck_assert_int_eq(ranks->of[r].err, PL_ERR_COMM_INIT);
        ck_assert_msg(strncmp(message, "rank 2 on ", 10) == 0, "rank %d: %s", r, message);
        ck_assert_msg(strstr(message, "ended before all ranks were there"), "%s", message);
    }
    ck_assert_uint_lt(ranks_now_ns() - before, HANG_SECONDS * UINT64_C(1000000000));
}
END_TEST

/* A rank of another job, of another size, or a second one of the same number. */
static int wrong_body(const struct pl_world *w) {
    struct pl_world other = *w;
    struct pl_comm c;
    struct pl_diag d = {0};
    if (w->rank == 2 && ranks->seed == 0) setenv(PL_JOB_TOKEN, "another", 1);
    if (w->rank == 2 && ranks->seed == 1) other.size = 4;
    if (w->rank == 2 && ranks->seed == 2) other.rank = 1;
    pl_err err = ranks_open_control(&c, &other, &d);
    int status = ranks_note(w, err, &d);
    pl_control_close(&c.control, false);
    return status;
}

START_TEST(a_wrong_rank_is_not_let_in) {
    static const char *const words[] = {"the token may be another one", "came to a job of 3 ranks",
                                        "there are two of rank 1"};
    ck_assert_int_ne(
        ranks_run(&(struct ranks_run){.body = "wrong", .n = 3, .limit = 2, .seed = (uint32_t)_i}),
        0);
    ck_assert_int_eq(ranks->of[0].err, PL_ERR_COMM_INIT);
    /* who is not answered gives up when rank 0 does; the launcher tells of one that was refused */
    const char *said = ranks->of[0].message, *ended = "ended before all ranks were there";
    const bool waited = strcmp(said, "1 of 3 ranks did not come within 5 s: 2") == 0;
    ck_assert_msg(strstr(said, ended) || (_i == 0 && waited), "%s", said);
    const struct rank_outcome *second = &ranks->of[strstr(ranks->of[1].message, "two") ? 1 : 2];
    ck_assert_int_eq(second->err, PL_ERR_COMM_INIT);
    ck_assert_msg(strstr(second->message, words[_i]), "%s", second->message);
}
END_TEST

static const struct ranks_body bodies[] = {
    {"agree", agree_body}, {"compare", compare_body}, {"stray", stray_body},
    {"fall", fall_body},   {"part", part_body},       {"patient", patient_body},
    {"late", late_body},   {"absent", absent_body},   {"headless", headless_body},
    {"wrong", wrong_body}, {"early", early_body},
};

int main(int argc, char *argv[]) {
    int status = ranks_main(argc, argv, bodies, sizeof bodies / sizeof *bodies);
    if (status >= 0) return status;
    Suite *s = suite_create("control");
    TCase *agree = tcase_create("agree"), *fall = tcase_create("fall");
    TCase *start = tcase_create("start");
    tcase_set_timeout(agree, 60);
    tcase_set_timeout(fall, 60);
    tcase_set_timeout(start, 60);
    tcase_add_loop_test(agree, all_know_what_all_gave, 1, 5);
    tcase_add_test(agree, who_differs_is_named);
    tcase_add_loop_test(agree, calls_that_differ_are_refused, 0, 4);
    tcase_add_loop_test(fall, a_killed_rank_is_named_at_once, 0, 12);
    tcase_add_loop_test(fall, a_stopped_rank_is_named_within_the_limit, 0, 3);
    tcase_add_loop_test(fall, last_words_reach_the_others, 0, 9);
    tcase_add_test(fall, a_suspended_job_resumes);
    tcase_add_test(start, strangers_are_turned_away);
    tcase_add_test(start, a_missing_rank_is_named);
    tcase_add_test(start, a_missing_rank_0_is_named_by_all);
    tcase_add_loop_test(start, a_rank_that_ended_is_not_waited_for, 0, 2);
    tcase_add_loop_test(start, a_wrong_rank_is_not_let_in, 0, 3);
    suite_add_tcase(s, agree);
    suite_add_tcase(s, fall);
    suite_add_tcase(s, start);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
