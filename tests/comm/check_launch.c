/* check_launch.c - the launcher: what it returns and passes on; nothing outlives it. */
#include "runtime/comm/launch.h"
#include "tests/support/hang.h"

#include <check.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct shared {
    atomic_int pids[PL_RANKS_MAX];
    atomic_uint ready;
} * shared;

static volatile sig_atomic_t told; /* the signal of the launcher, or of a rank */

static struct pl_fallen fallen; /* result of the latest launch */

static void on_signal(int number) {
    told = number;
}

static void catch (int number) {
    const struct sigaction action = {.sa_handler = on_signal};
    sigaction(number, &action, NULL);
}

static void setup(void) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(shared, MAP_FAILED);
}

static uint32_t own_rank(void) {
    struct pl_world w;
    if (pl_world_init(&w, NULL) != PL_ERR_OK || !w.launcher || strcmp(w.launcher, "plimsoll") != 0)
        _exit(90);
    shared->pids[w.rank] = getpid();
    return w.rank;
}

static int launch(int (*run)(void *), void *arg, uint32_t n, uint32_t limit) {
    int status;
    struct pl_diag d = {0};
    const struct pl_launch l = {.ranks = n,
                                .timeout_seconds = limit,
                                .run = run,
                                .arg = arg,
                                .fallen = &fallen,
                                .signalled = &told};
    ck_assert_msg(pl_launch(&l, &status, &d) == PL_ERR_OK, "%s", d.message);
    return status;
}

/* ---- what it returns ---- */

struct ends {
    int of[4],
        first; /* statuses; negative = a signal. first: the rank that ends before the others */
    int want;
};
static const struct ends ends[] = {
    {{0, 0, 0, 0}, 0, 0},           {{1, 3, 1, 1}, 1, 3},
    {{1, 1, 1, 4}, 0, 4}, /* the others only lost it */
    {{1, 1, 1, 1}, 2, 1},           {{5, 1, 6, 1}, 2, 6},
    {{5, 1, 6, 1}, 0, 5},           {{1, 1, -SIGKILL, 1}, 2, 128 + SIGKILL},
    {{0, 7, 0, 0}, 1, 7}, /* rank 0 did all of its work */
    {{130, 130, 130, 130}, 0, 130},
};

/* Waits until the launcher has seen that the rank ended. */
static void wait_for_end_of(int rank) {
    while (!atomic_load(&shared->pids[rank]) || kill(atomic_load(&shared->pids[rank]), 0) == 0)
        usleep(1000);
}

static int end(void *of) {
    const struct ends *e = of;
    uint32_t rank = own_rank();
    if ((int)rank != e->first) wait_for_end_of(e->first);
    if (e->of[rank] < 0) raise(-e->of[rank]);
    return e->of[rank];
}

START_TEST(the_status_is_that_of_the_cause) {
    struct ends e = ends[_i];
    ck_assert_int_eq(launch(end, &e, 4, NEVER_SECONDS), e.want);
    ck_assert_int_eq(fallen.signal, e.want == 128 + SIGKILL ? SIGKILL : 0);
    ck_assert_uint_eq(fallen.rank, fallen.signal ? 2 : 0);
}
END_TEST

static int see_environment(void *arg) {
    (void)arg;
    struct pl_world w;
    if (pl_world_init(&w, NULL) != PL_ERR_OK) return 1;
    bool right = w.size == 3 && w.local_size == 3 && w.local_rank == w.rank && w.port &&
                 strcmp(w.address, "127.0.0.1") == 0 && strlen(getenv(PL_JOB_TOKEN)) == 32;
    return right ? 0 : 2;
}

START_TEST(ranks_know_who_they_are) {
    ck_assert_int_eq(launch(see_environment, NULL, 3, 10), 0);
}
END_TEST

/* ---- signals ---- */

static int stop_second(void *arg) {
    (void)arg;
    if (own_rank() == 1) raise(SIGSTOP);
    return 0;
}

/* The others have done all of their work, and wait for none. */
START_TEST(a_stopped_rank_does_not_outlive_the_others) {
    const time_t before = time(NULL);
    ck_assert_int_eq(launch(stop_second, NULL, 3, 1), 0);
    ck_assert(time(NULL) - before < HANG_SECONDS);
    ck_assert_int_eq(fallen.signal, SIGKILL);
    ck_assert_uint_eq(fallen.rank, 1);
    ck_assert(fallen.was_stopped && fallen.is_whole);
}
END_TEST

/* Rank 1 waits until rank 0 has ended, and falls. */
static int fall_late(void *arg) {
    (void)arg;
    if (own_rank() != 1) return 0;
    wait_for_end_of(0);
    return raise(SIGKILL);
}

START_TEST(a_rank_that_falls_after_rank_0_has_ended_costs_nothing) {
    ck_assert_int_eq(launch(fall_late, NULL, 3, NEVER_SECONDS), 0);
    ck_assert_int_eq(fallen.signal, SIGKILL);
    ck_assert_uint_eq(fallen.rank, 1);
    ck_assert(!fallen.was_stopped && fallen.is_whole);
}
END_TEST

static int stop_and_fail(void *arg) {
    (void)arg;
    if (own_rank() == 1) {
        atomic_store(&shared->ready, 1);
        raise(SIGSTOP);
    }
    while (!atomic_load(&shared->ready))
        usleep(1000);
    usleep(100000); /* for the signal to arrive */
    return 6;
}

/* A failure of rank 0 makes nobody wait for it. */
START_TEST(a_stopped_rank_is_not_waited_for_after_a_failure) {
    const time_t before = time(NULL);
    ck_assert_int_eq(launch(stop_and_fail, NULL, 3, NEVER_SECONDS), 6);
    ck_assert_int_lt(time(NULL) - before, HANG_SECONDS);
    ck_assert(fallen.was_stopped && !fallen.is_whole);
}
END_TEST

static int wait_for_signal(void *arg) {
    (void)arg;
    catch (SIGTERM);
    catch (SIGUSR1);
    (void)own_rank();
    atomic_fetch_add(&shared->ready, 1);
    for (int i = 0; i < 100 * HANG_SECONDS && !told; i++)
        usleep(10000);
    return told ? 40 + (told == SIGUSR1) : 9;
}

/* N2: this holds for a signal that ends a run, and for another one. */
START_TEST(signals_reach_every_rank) {
    const int number = _i ? SIGUSR1 : SIGTERM;
    pid_t self = getpid(), helper = fork();
    if (helper == 0) {
        while (atomic_load(&shared->ready) < 3)
            usleep(1000);
        kill(self, number);
        _exit(0);
    }
    catch (number);
    ck_assert_int_eq(launch(wait_for_signal, NULL, 3, 10), 40 + _i);
    waitpid(helper, NULL, 0);
}
END_TEST

/* ---- remains of a launch ---- */

static int sleep_long(void *arg) {
    (void)arg;
    (void)own_rank();
    atomic_fetch_add(&shared->ready, 1);
    sleep(2 * HANG_SECONDS);
    return 0;
}

static bool all_gone(uint32_t n, int tenths) {
    for (int i = 0; i < tenths; i++) {
        uint32_t there = 0;
        while (waitpid(-1, NULL, WNOHANG) > 0) /* they are ours to bury */
            continue;
        for (uint32_t r = 0; r < n; r++)
            there += kill(shared->pids[r], 0) == 0 || errno != ESRCH;
        if (!there) return true;
        usleep(100000);
    }
    return false;
}

START_TEST(a_killed_launcher_takes_its_ranks_along) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t launcher = fork();
    if (launcher == 0) _exit(launch(sleep_long, NULL, 4, 10));
    while (atomic_load(&shared->ready) < 4)
        usleep(1000);
    kill(launcher, SIGKILL);
    bool gone = all_gone(4, 10 * HANG_SECONDS);
    for (int r = 0; r < 4 && !gone; r++)
        kill(shared->pids[r], SIGKILL);
    ck_assert(gone);
}
END_TEST

/* Rank 0 fails, and another does not notice; or another fails, and rank 0 is stopped. */
static int remain(void *arg) {
    uint32_t rank = own_rank();
    int stopped = *(const int *)arg;
    atomic_fetch_add(&shared->ready, 1);
    while (atomic_load(&shared->ready) < 3)
        usleep(1000);
    if (rank == 0 && stopped) raise(SIGSTOP);
    if (rank == 2 && !stopped) sleep(2 * HANG_SECONDS);
    return rank == (stopped ? 1 : 0) ? 3 : 1;
}

START_TEST(who_cannot_end_is_ended) {
    struct timespec before, after;
    int stopped = _i;
    clock_gettime(CLOCK_MONOTONIC, &before);
    ck_assert_int_eq(launch(remain, &stopped, 3, 1), 3);
    clock_gettime(CLOCK_MONOTONIC, &after);
    ck_assert_int_lt(after.tv_sec - before.tv_sec, HANG_SECONDS);
    ck_assert(all_gone(3, 1));
}
END_TEST

int main(void) {
    Suite *s = suite_create("launch");
    TCase *tc = tcase_create("launch");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, setup, NULL);
    tcase_add_loop_test(tc, the_status_is_that_of_the_cause, 0, sizeof ends / sizeof *ends);
    tcase_add_test(tc, ranks_know_who_they_are);
    tcase_add_loop_test(tc, signals_reach_every_rank, 0, 2);
    tcase_add_test(tc, a_stopped_rank_does_not_outlive_the_others);
    tcase_add_test(tc, a_rank_that_falls_after_rank_0_has_ended_costs_nothing);
    tcase_add_test(tc, a_stopped_rank_is_not_waited_for_after_a_failure);
    tcase_add_test(tc, a_killed_launcher_takes_its_ranks_along);
    tcase_add_loop_test(tc, who_cannot_end_is_ended, 0, 2);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
