/* check_child_ask.c - answers of a child that gives one, and of one that does not. */
#include "runtime/device/child_ask.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

struct answer {
    uint64_t was, is;
};

static void twice(const void *work, void *answer) {
    struct answer *a = answer;
    a->is = 2 * *(const uint64_t *)work;
}

static void killed(const void *work, void *answer) {
    twice(work, answer);
    raise(SIGKILL);
}

static void leaves(const void *work, void *answer) {
    twice(work, answer);
    _exit(3);
}

static int open_files(void) {
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    ck_assert_ptr_nonnull(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* Asks, and holds what is left to CA2. */
static enum pl_child_end ask(pl_child_fn *fn, struct answer *a, int *status) {
    const uint64_t work = 21;
    const int before = open_files();
    *a = (struct answer){.was = 7};
    const enum pl_child_end end = pl_child_ask(fn, &work, a, sizeof *a, status);
    ck_assert_int_eq(open_files(), before);
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
    ck_assert_int_eq(errno, ECHILD);
    return end;
}

START_TEST(an_answer_comes_whole) {
    struct answer a;
    int status;
    ck_assert_int_eq(ask(twice, &a, &status), PL_CHILD_ANSWERED);
    ck_assert_uint_eq(a.was, 7);
    ck_assert_uint_eq(a.is, 42);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(ask(twice, &a, NULL), PL_CHILD_ANSWERED);
}
END_TEST

/* CA1: nothing of an answer that was begun is taken. */
START_TEST(a_child_that_dies_has_answered_nothing) {
    struct answer a;
    int status;
    ck_assert_int_eq(ask(killed, &a, &status), PL_CHILD_DIED);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    ck_assert_uint_eq(a.is, 0);
    ck_assert_int_eq(ask(leaves, &a, &status), PL_CHILD_DIED);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    ck_assert_uint_eq(a.is, 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("child_ask");
    TCase *t = tcase_create("child_ask");
    tcase_add_test(t, an_answer_comes_whole);
    tcase_add_test(t, a_child_that_dies_has_answered_nothing);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
