/* check_signals.c - whoever tells a run to stop, and however often: it leaves a checkpoint. */
#include "tests/support/child.h"
#include "tests/support/hang.h"
#include "tests/support/scratch.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char dir[SCRATCH_PATH];

/* A run leaves a signal ignored that it finds ignored, as nohup(1) and some services leave SIGHUP:
 * whoever started these tests must not decide what they see. */
static void set_up(void) {
    static const int numbers[] = {SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        signal(numbers[i], SIG_DFL);
    scratch_make(dir);
    tiny_make(dir, &(struct tiny){.longest = 6}, "batch_size: 2\nmax_steps: 1000000\n");
}

static void tear_down(void) {
    scratch_remove(dir);
}

static void pause_us(long us) {
    nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
}

/* The leader of a group of its own, whatever the shell of the tests is. */
static struct child start_group(const char *const argv[]) {
    struct child c = child_start(argv, dir, false);
    for (int i = 0; i < 1000 * HANG_SECONDS && getpgid(c.pid) != c.pid; i++)
        pause_us(1000);
    ck_assert_int_eq(getpgid(c.pid), c.pid);
    return c;
}

static void wait_for_steps(const char *out) {
    const char *log = textf("%s/%s/train_log.jsonl", dir, out);
    for (int i = 0; i < 1000 * HANG_SECONDS; i++) {
        char *text = path_exists(log) ? file_read(log, NULL) : NULL;
        bool there = text && strstr(text, "\"event\":\"step\"");
        free(text);
        if (there) return;
        pause_us(1000);
    }
    ck_abort_msg("no step was made");
}

static void count_checkpoint(const char *name, void *count) {
    ck_assert_msg(!strstr(name, ".tmp"), "%s was left", name);
    *(int *)count += strncmp(name, "checkpoint-", 11) == 0;
}

static int checkpoints(const char *out) {
    int n = 0;
    dir_each(in_dir(dir, out), count_checkpoint, &n);
    return n;
}

/* --- the process and its group ---------------------------------------------------------------- */

enum { ROUNDS = 48, MOST_REPEATS = 4 };

/* Signals as timeout(1) does, and more often: all of it within the second, after which a signal
 * means impatience. On a busy machine there are fewer. */
static void signal_group(pid_t pid, int number, unsigned *seed) {
    const double before = seconds_now();
    kill(pid, number);
    for (int i = rand_r(seed) % MOST_REPEATS; i >= 0 && seconds_now() - before < 0.5; i--) {
        if (rand_r(seed) % 2) pause_us(rand_r(seed) % 100000);
        ck_assert(kill(-pid, number) == 0 || errno == ESRCH);
    }
}

START_TEST(a_group_that_is_signalled_leaves_a_checkpoint_every_time) {
    const char *words[] = {"setsid", getenv("PLIMSOLL"), "train", "run.yaml",
                           "-q",     "--no-progress",    NULL};
    unsigned seed = 1;
    int lost = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct child c = start_group(words);
        wait_for_steps("out");
        pause_us(rand_r(&seed) % 50000);
        signal_group(c.pid, SIGTERM, &seed);
        struct outcome o = child_wait(&c, HANG_SECONDS);
        ck_assert_msg(o.status == 128 + SIGTERM, "exit %d: %s", o.status, o.err);
        outcome_finish(&o);
        lost += checkpoints("out") != 1;
        scratch_remove(in_dir(dir, "out"));
    }
    ck_assert_msg(lost == 0, "%d of %d left no checkpoint", lost, ROUNDS);
}
END_TEST

/* --- notices ---------------------------------------------------------------------------------- */

static const int notices[] = {SIGUSR1, SIGUSR2, SIGXCPU, SIGHUP};

START_TEST(a_notice_saves_and_ends) {
    const char *words[] = {"setsid", getenv("PLIMSOLL"), "train", "run.yaml", "-q", NULL};
    struct child c = start_group(words);
    wait_for_steps("out");
    kill(c.pid, notices[_i]);
    struct outcome o = child_wait(&c, HANG_SECONDS);
    ck_assert_msg(o.status == 128 + notices[_i], "exit %d: %s", o.status, o.err);
    ck_assert_msg(strstr(o.err, "RUNTIME_INTERRUPTED") != NULL, "%s", o.err);
    outcome_finish(&o);
    ck_assert_int_eq(checkpoints("out"), 1);
}
END_TEST

/* A run that hangs in a write is told again and again, and at the end of its time by SIGTERM. */
START_TEST(a_notice_that_is_repeated_is_no_impatience) {
    char line[4096];
    struct child c = plimsoll_start(
        dir, (const char *[]){"train", "run.yaml", "-q", "--json", "max_steps=400", NULL}, true);
    ck_assert_ptr_nonnull(fgets(line, sizeof line, c.out));
    for (int i = 0; i < 3; i++) {
        pause_us(600000);
        kill(c.pid, SIGXCPU);
    }
    kill(c.pid, SIGTERM);
    while (fgets(line, sizeof line, c.out))
        continue;
    struct outcome o = child_wait(&c, HANG_SECONDS);
    ck_assert_msg(o.status == 128 + SIGXCPU, "exit %d: %s", o.status, o.err);
    outcome_finish(&o);
    ck_assert_int_eq(checkpoints("out"), 1);
}
END_TEST

/* --- a pipe ----------------------------------------------------------------------------------- */

/* Both ends of the pipe get the signal; the shell of the left end outlives it to report its
 * status. */
START_TEST(an_interrupted_pipeline_is_an_interrupted_run) {
    char script[1024];
    snprintf(script, sizeof script,
             "(trap '' INT; %s train run.yaml -q --json; echo $? >status) | cat",
             getenv("PLIMSOLL"));
    const char *words[] = {"setsid", "sh", "-c", script, NULL};
    for (int round = 0; round < 8; round++) {
        struct child c = start_group(words);
        wait_for_steps("out");
        pause_us(10000);
        kill(-c.pid, SIGINT);
        for (int i = 0; i < 1000 * HANG_SECONDS && !path_exists(in_dir(dir, "status")); i++)
            pause_us(1000);
        pause_us(10000);
        struct outcome o = child_wait(&c, HANG_SECONDS);
        char *status = file_read(in_dir(dir, "status"), NULL);
        ck_assert_msg(atoi(status) == 128 + SIGINT, "exit %s: %s", status, o.err);
        free(status);
        outcome_finish(&o);
        ck_assert_int_eq(checkpoints("out"), 1);
        scratch_remove(in_dir(dir, "out"));
        unlink(in_dir(dir, "status"));
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.signals");
    TCase *tc = tcase_create("signals");
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, a_group_that_is_signalled_leaves_a_checkpoint_every_time);
    tcase_add_loop_test(tc, a_notice_saves_and_ends, 0, (int)(sizeof notices / sizeof *notices));
    tcase_add_test(tc, a_notice_that_is_repeated_is_no_impatience);
    tcase_add_test(tc, an_interrupted_pipeline_is_an_interrupted_run);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
