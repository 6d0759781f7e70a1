/* hf_run.c - posix_spawn, a pipe for what is written, signals passed on. */
#include "tools/plimsoll/hf_run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_MS 100 /* between two looks at the flag of signals, and at the process */

struct running {
    pid_t pid;
    int out; /* what it writes */
    const volatile sig_atomic_t *stop;
    bool passed_on;
};

static pl_err cannot(const char *what, int code, struct pl_diag *d) {
    errno = code;
    return pl_diag_set(d, pl_err_of_errno(PL_ERR_IO), "%s: %s", what, strerror(code));
}

/* Sets what the process does otherwise than this one: its output goes into the pipe, signals end it
 * that are caught or ignored here, and its group is its own. */
static int describe(posix_spawn_file_actions_t *actions, posix_spawnattr_t *attributes, int out) {
    sigset_t defaults;
    int code = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (code == 0) code = posix_spawn_file_actions_adddup2(actions, out, STDOUT_FILENO);
    if (code == 0) code = posix_spawn_file_actions_adddup2(actions, out, STDERR_FILENO);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    sigaddset(&defaults, SIGXFSZ);
    if (code == 0) code = posix_spawnattr_setsigdefault(attributes, &defaults);
    if (code == 0) code = posix_spawnattr_setpgroup(attributes, 0);
    if (code == 0)
        code = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    return code;
}

/* Starts the first of the programs that is found; returns 0 or what errno would be. */
static int spawn(const char *words[], int out, pid_t *pid, const char **program) {
    static const char *const programs[] = {"hf", "huggingface-cli"};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    union { /* posix_spawn takes char *const[] and promises not to write through it */
        const char **in;
        char *const *argv;
    } vector = {.in = words};
    int code = posix_spawn_file_actions_init(&actions);
    if (code != 0) return code;
    if ((code = posix_spawnattr_init(&attributes)) == 0) {
        code = describe(&actions, &attributes, out);
        for (size_t i = 0; code == 0 && i < sizeof programs / sizeof *programs; i++) {
            *program = words[0] = programs[i];
            code = posix_spawnp(pid, words[0], &actions, &attributes, vector.argv, environ);
            if (code == 0) break;
            if (code == ENOENT && i == 0) code = 0;
        }
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return code;
}

static pl_err start(const char *words[], struct running *r, const char **program,
                    struct pl_diag *d) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return cannot("cannot make a pipe", errno, d);
    int code = spawn(words, ends[1], &r->pid, program);
    close(ends[1]);
    r->out = ends[0];
    if (code == 0) return PL_ERR_OK;
    close(ends[0]);
    if (code != ENOENT) return cannot("cannot run `hf`", code, d);
    pl_diag_set(d, PL_ERR_IO,
                "`hf`, the command of huggingface_hub, is not installed, and fetches the files");
    pl_diag_hint(d, "pip install -U huggingface_hub");
    return PL_ERR_IO;
}

/* Keeps the last PL_HF_TAIL bytes. */
static void keep(char *tail, size_t *kept, const char *bytes, size_t n) {
    if (n > PL_HF_TAIL) {
        bytes += n - PL_HF_TAIL;
        n = PL_HF_TAIL;
    }
    const size_t old = *kept + n > PL_HF_TAIL ? PL_HF_TAIL - n : *kept;
    memmove(tail, tail + *kept - old, old);
    memcpy(tail + old, bytes, n);
    *kept = old + n;
    tail[*kept] = 0;
}

/* Passes on what is there; false at the end of the output. */
static bool pass_output(const struct running *r, struct pl_hf_end *end, size_t *kept) {
    char bytes[2048];
    const ssize_t n = read(r->out, bytes, sizeof bytes);
    if (n < 0) return errno == EINTR || errno == EAGAIN;
    if (n == 0) return false;
    fwrite(bytes, 1, (size_t)n, stderr);
    fflush(stderr);
    for (ssize_t i = 0; i < n; i++)
        if (!bytes[i]) bytes[i] = ' '; /* the tail is read as a string */
    keep(end->tail, kept, bytes, (size_t)n);
    return true;
}

/* Follows the process until it has ended and everything it wrote is read. A process of its own
 * that goes on may hold the pipe open, and is not waited for. */
static int follow(struct running *r, struct pl_hf_end *end) {
    size_t kept = 0;
    bool open = true, ended = false;
    int status = 0;
    while (open || !ended) {
        struct pollfd at = {.fd = open ? r->out : -1, .events = POLLIN};
        const bool ready = poll(&at, 1, LOOK_MS) > 0;
        if (*r->stop && !r->passed_on) {
            r->passed_on = true;
            kill(-r->pid, *r->stop);
        }
        if (ready) open = pass_output(r, end, &kept);
        if (ended && !ready) break;
        if (!ended) ended = waitpid(r->pid, &status, WNOHANG) == r->pid;
    }
    return status;
}

pl_err pl_hf_run(const char *words[], const volatile sig_atomic_t *stop, struct pl_hf_end *end,
                 struct pl_diag *d) {
    struct running r = {.stop = stop};
    *end = (struct pl_hf_end){0};
    PL_TRY(start(words, &r, &end->program, d));
    const int status = follow(&r, end);
    close(r.out);
    if (WIFSIGNALED(status))
        end->signal = WTERMSIG(status);
    else
        end->status = WEXITSTATUS(status);
    return PL_ERR_OK;
}
