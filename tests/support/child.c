/* child.c - posix_spawn, wait4 with a limit. */
#include "tests/support/child.h"
#include "tests/support/hang.h"

#include <check.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_WORDS  24
#define PIPE_BYTES 4096

extern char **environ;

double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static char *read_all(FILE *f) {
    ck_assert_int_eq(fseek(f, 0, SEEK_END), 0);
    long size = ftell(f);
    ck_assert_int_ge(size, 0);
    rewind(f);
    char *text = malloc((size_t)size + 1);
    ck_assert_ptr_nonnull(text);
    ck_assert_uint_eq(fread(text, 1, (size_t)size, f), (size_t)size);
    text[size] = 0;
    return text;
}

/* The writing end for the child; *reader is what the test reads. The pipe is kept to one page, so
 * that a child that reports every step cannot run far ahead of its reader. */
static int open_pipe(FILE **reader) {
    int fd[2];
    ck_assert_int_eq(pipe2(fd, O_CLOEXEC), 0);
    fcntl(fd[1], F_SETPIPE_SZ, PIPE_BYTES); /* a larger pipe only lets the child run ahead */
    *reader = fdopen(fd[0], "r");
    ck_assert_ptr_nonnull(*reader);
    return fd[1];
}

static FILE *unnamed_file(void) {
    FILE *f = tmpfile();
    ck_assert_ptr_nonnull(f);
    return f;
}

struct child child_start(const char *const argv[], const char *cwd, bool piped) {
    struct child c = {.piped = piped, .err = unnamed_file()};
    int out = -1;
    if (piped)
        out = open_pipe(&c.out);
    else
        out = fileno(c.out = unnamed_file());
    posix_spawn_file_actions_t actions;
    ck_assert_int_eq(posix_spawn_file_actions_init(&actions), 0);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out, 1);
    posix_spawn_file_actions_adddup2(&actions, fileno(c.err), 2);
    if (cwd) posix_spawn_file_actions_addchdir_np(&actions, cwd);
    union { /* posix_spawn takes char *const[] and promises not to write through it */
        const char *const *in;
        char *const *spawn;
    } words = {.in = argv};
    int rc = posix_spawnp(&c.pid, argv[0], &actions, NULL, words.spawn, environ);
    ck_assert_msg(rc == 0, "cannot start %s in %s", argv[0], cwd ? cwd : ".");
    posix_spawn_file_actions_destroy(&actions);
    if (piped) close(out);
    return c;
}

/* Polls: a child cannot be waited for with a limit in any portable way. */
static int wait_until(pid_t pid, double deadline, struct rusage *usage, bool *killed) {
    int status;
    const struct timespec pause = {.tv_nsec = 1000000};
    for (;;) {
        pid_t got = wait4(pid, &status, WNOHANG, usage);
        ck_assert_int_ge(got, 0);
        if (got == pid) return status;
        if (!*killed && seconds_now() > deadline) {
            kill(pid, SIGKILL);
            *killed = true;
        }
        nanosleep(&pause, NULL);
    }
}

struct outcome child_wait(struct child *c, double seconds) {
    struct outcome o = {0};
    struct rusage usage;
    int status = wait_until(c->pid, seconds_now() + seconds, &usage, &o.timed_out);
    o.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    o.peak_bytes = (uint64_t)usage.ru_maxrss * 1024;
    o.cpu_seconds = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                    1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    o.out = c->piped ? calloc(1, 1) : read_all(c->out);
    ck_assert_ptr_nonnull(o.out);
    o.err = read_all(c->err);
    fclose(c->out);
    fclose(c->err);
    *c = (struct child){0};
    return o;
}

struct outcome child_run(const char *const argv[], const char *cwd, double seconds) {
    double before = seconds_now();
    struct child c = child_start(argv, cwd, false);
    struct outcome o = child_wait(&c, seconds);
    o.seconds = seconds_now() - before;
    return o;
}

void outcome_finish(struct outcome *o) {
    free(o->out);
    free(o->err);
    *o = (struct outcome){0};
}

struct child plimsoll_start(const char *cwd, const char *const words[], bool piped) {
    static char binary[PATH_MAX]; /* absolute: the child starts in another directory */
    const char *argv[MAX_WORDS + 2] = {binary}, *given = getenv("PLIMSOLL");
    ck_assert_msg(given && realpath(given, binary), "set PLIMSOLL to the binary");
    for (int i = 0; words[i]; i++) {
        ck_assert_int_lt(i, MAX_WORDS);
        argv[i + 1] = words[i];
    }
    return child_start(argv, cwd, piped);
}

struct outcome plimsoll_run(const char *cwd, const char *const words[]) {
    double before = seconds_now();
    struct child c = plimsoll_start(cwd, words, false);
    struct outcome o = child_wait(&c, HANG_SECONDS);
    o.seconds = seconds_now() - before;
    ck_assert_msg(!o.timed_out, "plimsoll %s did not end; stderr: %s", words[0], o.err);
    return o;
}

struct outcome plimsoll_expect(int status, const char *cwd, const char *const words[]) {
    struct outcome o = plimsoll_run(cwd, words);
    ck_assert_msg(o.status == status, "plimsoll %s: exit %d, not %d: %s", words[0], o.status,
                  status, o.err);
    return o;
}

struct train_words {
    const char *words[12];
};

static struct train_words train_words(const char *const words[]) {
    struct train_words t = {{"train", "run.yaml"}};
    for (int i = 0; words[i]; i++)
        t.words[i + 2] = words[i];
    return t;
}

struct outcome plimsoll_train(const char *cwd, const char *const words[]) {
    return plimsoll_run(cwd, train_words(words).words);
}

void plimsoll_train_expect(int status, const char *cwd, const char *const words[]) {
    struct outcome o = plimsoll_expect(status, cwd, train_words(words).words);
    outcome_finish(&o);
}
