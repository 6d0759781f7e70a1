/* check_worker.c - samples loaded by a thread are those loaded without one. */
#include "runtime/data/worker.h"
#include "tests/data/fixture.h"

#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#define ROWS 97

struct rig {
    struct fixture f;
    struct pl_walk walk;
    struct pl_batch_source from;
    struct pl_worker *worker;
    struct pl_step_batch batch, plain;
};

/* Row r begins with id r; all rows are of 24 bytes. */
static void rig_open(struct rig *r, bool shuffle, uint64_t pack) {
    char text[ROWS * 24 + 1] = "";
    memset(r, 0, sizeof *r);
    for (int i = 0; i < ROWS; i++)
        snprintf(text + 24 * (size_t)i, 25, "{\"input_ids\":[%3d,7,8]}\n", i);
    fixture_start(&r->f, PL_FORMAT_TOKENS);
    r->f.job.max_seq_length = 16;
    fixture_write(&r->f, text, sizeof text - 1);
    ck_assert_msg(fixture_open(&r->f) == PL_ERR_OK, "%s", r->f.d.message);
    pl_walk_init(&r->walk, 0, ROWS, shuffle, 3);
    r->from = (struct pl_batch_source){.data = r->f.data, .walk = &r->walk, .pack_tokens = pack};
}

static void rig_start(struct rig *r, uint64_t slots, bool shuffle, uint64_t pack) {
    rig_open(r, shuffle, pack);
    ck_assert_int_eq(pl_worker_start(&r->from, slots, &r->worker, &r->f.d), PL_ERR_OK);
}

static void rig_finish(struct rig *r) {
    pl_worker_stop(&r->worker);
    ck_assert_ptr_null(r->worker);
    pl_step_batch_finish(&r->batch);
    pl_step_batch_finish(&r->plain);
    fixture_finish(&r->f);
}

static void expect_step(struct rig *r, uint64_t position, uint64_t slots) {
    ck_assert_int_eq(pl_worker_take(r->worker, position, &r->batch, &r->f.d), PL_ERR_OK);
    ck_assert_int_eq(pl_step_batch_load(&r->plain, &r->from, position, slots, &r->f.d), PL_ERR_OK);
    ck_assert_uint_eq(r->batch.n, r->plain.n);
    ck_assert_uint_eq(r->batch.slots, r->plain.slots);
    ck_assert_uint_eq(r->batch.tokens, r->plain.tokens);
    ck_assert_uint_eq(r->batch.targets, r->plain.targets);
    ck_assert_mem_eq(r->batch.slot, r->plain.slot, (size_t)r->batch.n * sizeof *r->batch.slot);
    for (uint64_t i = 0; i < r->batch.n; i++)
        ck_assert_int_eq(r->batch.samples[i].ids[0], r->plain.samples[i].ids[0]);
}

/* V1 of worker.h and B1 of batch.h */
START_TEST(a_worker_gives_the_steps_in_their_order) {
    struct rig r;
    rig_start(&r, 5, true, _i ? 16 : 0);
    for (uint64_t step = 0, position = 0; step < 200; step++) {
        expect_step(&r, position, 5);
        position += r.batch.n;
    }
    rig_finish(&r);
}
END_TEST

/* B1 of batch.h, W1 of walk.h and S2 of data.h */
START_TEST(any_position_may_be_asked_for) {
    static const uint64_t positions[] = {40, 45, 0, 0, 5, 1000000007, 3, UINT64_C(1) << 40};
    struct rig r;
    rig_start(&r, 5, true, 0);
    for (size_t i = 0; i < sizeof positions / sizeof *positions; i++)
        expect_step(&r, positions[i], 5);
    rig_finish(&r);
}
END_TEST

/* V2 of worker.h */
START_TEST(a_failure_is_told_to_the_step_that_needs_the_rows) {
    struct rig r;
    rig_start(&r, 5, false, 0);
    ck_assert_int_eq(truncate(r.f.path, 10 * 24), 0); /* rows 0 to 9 are left */
    for (uint64_t position = 0; position < 10; position += 5)
        ck_assert_int_eq(pl_worker_take(r.worker, position, &r.batch, &r.f.d), PL_ERR_OK);
    for (int again = 0; again < 2; again++) {
        r.f.d = (struct pl_diag){0};
        ck_assert_int_eq(pl_worker_take(r.worker, 10, &r.batch, &r.f.d), PL_ERR_DATA_FILE);
        ck_assert_int_eq(r.f.d.err, PL_ERR_DATA_FILE);
        ck_assert_str_eq(r.f.d.file, r.f.path);
        ck_assert_uint_eq(r.batch.n, 0);
    }
    r.f.d = (struct pl_diag){0};
    expect_step(&r, 5, 5);
    rig_finish(&r);
}
END_TEST

START_TEST(a_worker_stops_whatever_it_is_doing) {
    for (int i = 0; i < 200; i++) {
        struct rig r;
        rig_start(&r, 1 + (uint64_t)i % 7 * 40, true, 0);
        for (int taken = 0; taken < i % 3; taken++)
            ck_assert_int_eq(pl_worker_take(r.worker, (uint64_t)taken * 9, &r.batch, &r.f.d),
                             PL_ERR_OK);
        rig_finish(&r);
    }
}
END_TEST

/* Evaluation reads held-out rows of the same files while the thread is at work. */
START_TEST(others_may_read_the_data_meanwhile) {
    struct rig r;
    struct pl_sample s = {0};
    rig_start(&r, 50, true, 0);
    for (uint64_t position = 0; position < 2000; position += r.batch.n) {
        ck_assert_int_eq(pl_worker_take(r.worker, position, &r.batch, &r.f.d), PL_ERR_OK);
        for (uint64_t row = 0; row < ROWS; row++) {
            ck_assert_int_eq(pl_data_sample(r.f.data, row, &s, &r.f.d), PL_ERR_OK);
            ck_assert_int_eq(s.ids[0], (int32_t)row);
        }
        for (uint64_t i = 0; i < r.batch.n; i++)
            ck_assert_int_eq(r.batch.samples[i].ids[0],
                             (int32_t)pl_walk_row(&r.walk, position + i));
    }
    pl_sample_finish(&s);
    rig_finish(&r);
}
END_TEST

static volatile sig_atomic_t elsewhere;
static pthread_t taker;

static void on_signal(int number) {
    (void)number;
    if (!pthread_equal(pthread_self(), taker)) elsewhere = 1;
}

START_TEST(signals_go_to_the_thread_that_trains) {
    struct rig r;
    taker = pthread_self();
    rig_start(&r, 90, true, 0);
    signal(SIGUSR1, on_signal);
    for (uint64_t position = 0; position < 9000; position += 90) {
        ck_assert_int_eq(kill(getpid(), SIGUSR1), 0);
        ck_assert_int_eq(pl_worker_take(r.worker, position, &r.batch, &r.f.d), PL_ERR_OK);
    }
    ck_assert_int_eq(elsewhere, 0);
    /* with the taker deaf, a signal that the worker would take is taken by nobody */
    sigset_t one, pending;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    ck_assert_int_eq(pthread_sigmask(SIG_BLOCK, &one, NULL), 0);
    ck_assert_int_eq(kill(getpid(), SIGUSR1), 0);
    ck_assert_int_eq(pl_worker_take(r.worker, 1, &r.batch, &r.f.d), PL_ERR_OK);
    ck_assert_int_eq(sigpending(&pending), 0);
    ck_assert_int_eq(sigismember(&pending, SIGUSR1), 1);
    rig_finish(&r);
}
END_TEST

/* No address space is left for the stack of a first thread. A sanitizer's own maps need it too. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
START_TEST(a_thread_that_cannot_be_had_is_said) {
    struct rig r;
    rig_open(&r, true, 0);
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &(struct rlimit){1 << 20, RLIM_INFINITY}), 0);
    pl_err err = pl_worker_start(&r.from, 5, &r.worker, &r.f.d);
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}), 0);
    ck_assert_int_eq(err, PL_ERR_HOST_OOM);
    ck_assert_ptr_null(r.worker);
    ck_assert_ptr_nonnull(strstr(r.f.d.hint, "prefetch: false"));
    rig_finish(&r);
}
END_TEST
#endif

int main(void) {
    Suite *suite = suite_create("worker");
    TCase *t = tcase_create("worker");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, a_worker_gives_the_steps_in_their_order, 0, 2);
    tcase_add_test(t, any_position_may_be_asked_for);
    tcase_add_test(t, a_failure_is_told_to_the_step_that_needs_the_rows);
    tcase_add_test(t, a_worker_stops_whatever_it_is_doing);
    tcase_add_test(t, others_may_read_the_data_meanwhile);
    tcase_add_test(t, signals_go_to_the_thread_that_trains);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    tcase_add_test(t, a_thread_that_cannot_be_had_is_said);
#endif
    suite_add_tcase(suite, t);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
