/* check_pool.c - the team of threads: every task once, whatever the timing. */
#include "runtime/device/cpu/pool.h"
#include "tests/support/hang.h"

#include <check.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST = 5000 };

struct record {
    _Atomic uint32_t runs[MOST]; /* runs of each task */
    _Atomic uint32_t bad_workers;
    uint32_t threads;
    uint32_t round;
    uint32_t seen[MOST]; /* written by the task, read after the run */
};

static struct record record;

static struct pl_pool *open_pool(uint32_t threads) {
    struct pl_pool *pool;
    struct pl_diag d = {0};
    if (pl_pool_create(threads, &pool, &d) != PL_ERR_OK) ck_abort_msg("%s", d.message);
    return pool;
}

static void note(void *ctx, uint32_t task, uint32_t worker) {
    struct record *r = ctx;
    atomic_fetch_add(&r->runs[task], 1);
    if (worker >= r->threads) atomic_fetch_add(&r->bad_workers, 1);
    r->seen[task] = r->round;
}

static const uint32_t team[] = {1, 2, 3, 8};

START_TEST(every_task_runs_exactly_once) {
    static const uint32_t sizes[] = {0, 1, 2, 3, 7, 64, MOST};
    struct pl_pool *pool = open_pool(team[_i]);
    ck_assert_uint_eq(pl_pool_threads(pool), team[_i]);
    record.threads = team[_i];
    uint32_t expected[MOST] = {0};
    for (record.round = 1; record.round <= 70; record.round++) {
        uint32_t n = sizes[record.round % 7];
        pl_pool_run(pool, n, note, &record);
        for (uint32_t i = 0; i < n; i++)
            expected[i]++;
        for (uint32_t i = 0; i < n; i++)
            if (record.runs[i] != expected[i] || record.seen[i] != record.round)
                ck_abort_msg("round %u: task %u ran %u times, not %u", record.round, i,
                             record.runs[i], expected[i]);
    }
    ck_assert_uint_eq(record.bad_workers, 0);
    pl_pool_destroy(&pool);
    ck_assert_ptr_null(pool);
}
END_TEST

/* Runs of two tasks follow each other faster than workers notice them: a worker late for one run
 * must not take a task of the next with the old function. */
START_TEST(a_late_worker_takes_no_task_of_another_run) {
    struct pl_pool *pool = open_pool(4);
    uint32_t asked = 0;
    record.threads = 4;
    for (record.round = 1; record.round <= 20000; record.round++) {
        uint32_t n = 2 + record.round % 3;
        asked += n;
        pl_pool_run(pool, n, note, &record);
        for (uint32_t i = 0; i < n; i++)
            if (record.seen[i] != record.round)
                ck_abort_msg("round %u ended before task %u", record.round, i);
    }
    uint32_t total = 0;
    for (uint32_t i = 0; i < MOST; i++)
        total += record.runs[i];
    ck_assert_uint_eq(total, asked);
    pl_pool_destroy(&pool);
}
END_TEST

START_TEST(a_team_that_slept_wakes_up) {
    struct pl_pool *pool = open_pool(3);
    record.threads = 3;
    for (record.round = 1; record.round <= 5; record.round++) {
        usleep(2000); /* longer than the spin of 50 us */
        pl_pool_run(pool, 50, note, &record);
        for (uint32_t i = 0; i < 50; i++)
            ck_assert_uint_eq(record.seen[i], record.round);
    }
    pl_pool_destroy(&pool);
}
END_TEST

static void slow(void *ctx, uint32_t task, uint32_t worker) {
    usleep(task == 0 ? 3000 : 500);
    note(ctx, task, worker);
}

START_TEST(the_caller_sleeps_until_the_last_task_is_done) {
    struct pl_pool *pool = open_pool(4);
    record.threads = 4;
    for (record.round = 1; record.round <= 10; record.round++) {
        pl_pool_run(pool, 4, slow, &record);
        for (uint32_t i = 0; i < 4; i++)
            ck_assert_uint_eq(record.seen[i], record.round);
    }
    pl_pool_destroy(&pool);
}
END_TEST

struct meeting {
    _Atomic uint32_t arrived, met;
};

static void meet(void *ctx, uint32_t task, uint32_t worker) {
    struct meeting *m = ctx;
    (void)task, (void)worker;
    atomic_fetch_add(&m->arrived, 1);
    for (int i = 0; i < 1000 * HANG_SECONDS && atomic_load(&m->arrived) < 2; i++)
        usleep(1000);
    if (atomic_load(&m->arrived) == 2) atomic_fetch_add(&m->met, 1);
}

/* Two tasks that wait for each other both meet only when two threads run them. */
START_TEST(two_tasks_run_at_the_same_time) {
    struct meeting m = {0};
    struct pl_pool *pool = open_pool(2);
    pl_pool_run(pool, 2, meet, &m);
    ck_assert_uint_eq(m.met, 2);
    pl_pool_destroy(&pool);
}
END_TEST

START_TEST(an_unused_pool_closes) {
    struct pl_pool *pool = open_pool(8);
    pl_pool_destroy(&pool);
    ck_assert_ptr_null(pool);
    pl_pool_destroy(&pool);
}
END_TEST

int main(void) {
    Suite *s = suite_create("pool");
    TCase *tc = tcase_create("tasks");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, every_task_runs_exactly_once, 0, sizeof team / sizeof *team);
    tcase_add_test(tc, a_late_worker_takes_no_task_of_another_run);
    tcase_add_test(tc, a_team_that_slept_wakes_up);
    tcase_add_test(tc, the_caller_sleeps_until_the_last_task_is_done);
    tcase_add_test(tc, two_tasks_run_at_the_same_time);
    tcase_add_test(tc, an_unused_pool_closes);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
