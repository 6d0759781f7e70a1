/* launch.c - starts the ranks of a job on this machine, and watches them. */
#include "runtime/comm/launch.h"
#include "estimator/base/alloc.h"
#include "runtime/comm/control_state.h"
#include "runtime/comm/mpi_engine.h"
#include "runtime/comm/pmi.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LOOK_MS = 50,      /* between two looks at the ranks */
    SLACK_MS = 2000,   /* beyond the limit of the ranks, for what is killed then */
    LONG_MS = 60000,   /* beyond the limit of their start, for all others */
    RUNS = -1,         /* a rank that has no exit status yet */
    NOT_STARTED = 127, /* exec failed */
};

struct rank {
    pid_t pid;
    int status;           /* RUNS, or what it ended with */
    bool stopped, killed; /* killed: by the launcher */
    bool untold;          /* it failed, and rank 0 was not told */
};

struct crew {
    const struct pl_launch *l;
    struct rank ranks[PL_RANKS_MAX]; /* one, mpiexec, where that starts them */
    uint32_t started, running;
    struct pl_pmi *pmi;  /* NULL = not needed */
    const char *mpiexec; /* NULL = not needed */
    char self[512];      /* the program, for mpiexec */
    struct pl_meeting meeting;
    int reserved;                 /* a socket that keeps the port from others */
    int first;                    /* the first status that was no success; 0 = none */
    int first_of_own;             /* the first besides that of COMM_PEER_LOST */
    bool erred;                   /* a rank ended by itself with such a status */
    uint64_t failed_ms, ended_ms; /* the first failure; the end of rank 0 by one; 0 = none */
    uint64_t last_ms;             /* the last end of any rank */
    struct pl_fallen fallen;
    int passed_on; /* the last signal that was */
};

/* ---- what a rank finds ---- */

/* A port that no other program is given while the socket lives; one that listens may share it. */
static pl_err reserve_port(struct crew *w, struct pl_diag *d) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int one = 1;
    w->reserved = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (w->reserved < 0 ||
        setsockopt(w->reserved, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        bind(w->reserved, (struct sockaddr *)&at, sizeof at) != 0 ||
        getsockname(w->reserved, (struct sockaddr *)&at, &bytes) != 0)
        return pl_diag_set(d, pl_err_of_errno(PL_ERR_COMM_INIT), "no port for rank 0: %s",
                           strerror(errno));
    w->meeting.port = ntohs(at.sin_port);
    return PL_ERR_OK;
}

/* Sets the variables that all ranks share. Called between fork and exec of a process with one
 * thread. */
static bool set_common(const struct crew *w) {
    char port[16];
    snprintf(port, sizeof port, "%u", w->meeting.port);
    return setenv("MASTER_ADDR", w->meeting.address, 1) == 0 &&
           setenv("MASTER_PORT", port, 1) == 0 && setenv(PL_LAUNCHED, "1", 1) == 0 &&
           setenv(PL_JOB_TOKEN, w->meeting.token, 1) == 0;
}

static bool set_own(const struct crew *w, uint32_t rank, int pmi_fd) {
    const struct {
        const char *name;
        uint32_t value;
    } all[] = {{"RANK", rank},
               {"WORLD_SIZE", w->l->ranks},
               {"LOCAL_RANK", rank},
               {"LOCAL_WORLD_SIZE", w->l->ranks},
               {"PMI_RANK", rank},
               {"PMI_SIZE", w->l->ranks},
               {"MPI_LOCALRANKID", rank},
               {"MPI_LOCALNRANKS", w->l->ranks},
               {"PMI_FD", (uint32_t)pmi_fd}};
    size_t n = sizeof all / sizeof *all - (pmi_fd < 0 ? 5 : 0);
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        char text[16];
        snprintf(text, sizeof text, "%u", all[i].value);
        ok = setenv(all[i].name, text, 1) == 0;
    }
    return ok;
}

static _Noreturn void become_rank(const struct crew *w, uint32_t rank, pid_t launcher, int fd) {
    /* The launcher may have ended before the kernel was asked to say so. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != launcher) _exit(NOT_STARTED);
    if (fd >= 0 && fcntl(fd, F_SETFD, 0) != 0) _exit(NOT_STARTED);
    if (!set_common(w) || !set_own(w, rank, fd)) _exit(NOT_STARTED);
    if (w->l->run) exit(w->l->run(w->l->arg));
    execv("/proc/self/exe", w->l->argv); /* the same program, whatever it was called by */
    fprintf(stderr, "/proc/self/exe: %s\n", strerror(errno));
    _exit(NOT_STARTED);
}

static pl_err start_rank(struct crew *w, uint32_t rank, struct pl_diag *d) {
    int pair[2] = {-1, -1};
    pid_t launcher = getpid();
    if (w->pmi && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return pl_diag_set(d, pl_err_of_errno(PL_ERR_COMM_INIT), "no socket for rank %u: %s", rank,
                           strerror(errno));
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) become_rank(w, rank, launcher, pair[1]);
    int why = errno;
    if (w->pmi) {
        close(pair[1]);
        w->pmi->fds[rank] = pair[0];
    }
    w->ranks[rank] = (struct rank){.pid = pid, .status = RUNS};
    if (pid < 0)
        return pl_diag_set(d, why == ENOMEM ? PL_ERR_HOST_OOM : PL_ERR_COMM_INIT,
                           "no process for rank %u: %s", rank, strerror(why));
    w->started++;
    w->running++;
    return PL_ERR_OK;
}

/* Open MPI ends the others when one has failed: they have time to say which that was, and it is the
 * first failure whose status mpiexec returns. */
static _Noreturn void become_mpiexec(const struct crew *w, pid_t launcher, char *const *args) {
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || getppid() != launcher) _exit(NOT_STARTED);
    bool ok = set_common(w);
    if (geteuid() == 0) /* who starts plimsoll as root means its ranks too */
        ok = ok && setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1) == 0 &&
             setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1) == 0;
    if (ok) execv(w->mpiexec, args);
    fprintf(stderr, "%s: %s\n", w->mpiexec, strerror(errno));
    _exit(NOT_STARTED);
}

/* mpiexec with its own arguments, and the command of a rank. */
static const char **mpiexec_args(const struct crew *w, const char *ranks, const char *patience) {
    const char *const own[] = {
        w->mpiexec, "-n", ranks, "--oversubscribe", "--mca", "odls_base_sigkill_timeout", patience};
    size_t n_own = sizeof own / sizeof *own, n = 0;
    while (w->l->argv[n])
        n++;
    const char **args = pl_calloc(n_own + n + 1, sizeof *args);
    if (!args) return NULL;
    memcpy(args, own, sizeof own);
    memcpy(args + n_own, w->l->argv, n * sizeof *args);
    args[n_own] = w->self;
    return args;
}

static pl_err start_mpiexec(struct crew *w, struct pl_diag *d) {
    char ranks[16], patience[16];
    pid_t launcher = getpid();
    snprintf(ranks, sizeof ranks, "%u", w->l->ranks);
    snprintf(patience, sizeof patience, "%u", w->l->timeout_seconds + SLACK_MS / 1000);
    const char **args = mpiexec_args(w, ranks, patience);
    if (!args) return pl_host_oom(d, "the start of the ranks");
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) become_mpiexec(w, launcher, (char *const *)(uintptr_t)args);
    free(args);
    if (pid < 0)
        return pl_diag_set(d, pl_err_of_errno(PL_ERR_COMM_INIT), "no process for mpiexec: %s",
                           strerror(errno));
    w->ranks[0] = (struct rank){.pid = pid, .status = RUNS};
    w->started = w->running = 1;
    return PL_ERR_OK;
}

/* ---- watching ---- */

static void kill_all(struct crew *w, int number) {
    for (uint32_t r = 0; r < w->started; r++)
        if (w->ranks[r].status == RUNS) (void)kill(w->ranks[r].pid, number);
}

static void note_end(struct crew *w, uint32_t rank, int status) {
    struct rank *r = &w->ranks[rank];
    r->status = status;
    w->running--;
    w->last_ms = pl_now_ms();
    if (status == 0) return;
    r->untold = rank > 0 && !w->mpiexec;
    if (!w->first) w->first = status;
    if (!w->first_of_own && status != pl_err_exit_status(PL_ERR_COMM_PEER_LOST))
        w->first_of_own = status;
    if (!w->failed_ms) w->failed_ms = pl_now_ms();
    if (rank == 0) w->ended_ms = pl_now_ms();
}

static void note_signal(struct crew *w, uint32_t rank, int status) {
    const int lost = pl_err_exit_status(PL_ERR_COMM_PEER_LOST);
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != lost)
        w->erred = true;
    if (!WIFSIGNALED(status) || w->ranks[rank].killed || w->fallen.signal) return;
    w->fallen = (struct pl_fallen){.rank = rank, .signal = WTERMSIG(status)};
}

static void reap(struct crew *w) {
    for (uint32_t r = 0; r < w->started; r++) {
        int status;
        if (w->ranks[r].status != RUNS) continue;
        if (waitpid(w->ranks[r].pid, &status, WNOHANG | WUNTRACED | WCONTINUED) <= 0) continue;
        note_signal(w, r, status);
        if (WIFSTOPPED(status) || WIFCONTINUED(status))
            w->ranks[r].stopped = WIFSTOPPED(status);
        else
            note_end(w, r, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
}

static bool is_over(uint64_t since_ms, uint64_t limit_ms) {
    return since_ms && pl_now_ms() - since_ms > limit_ms;
}

/* A job that is suspended as a whole has ended no rank. */
static bool only_stopped_remain(const struct crew *w) {
    for (uint32_t r = 0; r < w->started; r++)
        if (w->ranks[r].status == RUNS && !w->ranks[r].stopped) return false;
    return w->last_ms != 0;
}

/* N3. The ranks have limits of their own; this is for those that cannot keep them. */
static void kill_remains(struct crew *w) {
    uint64_t limit_ms = (uint64_t)w->l->timeout_seconds * 1000;
    bool all = is_over(w->ended_ms, limit_ms + SLACK_MS) ||
               is_over(w->failed_ms, limit_ms * PL_START_LIMITS + LONG_MS);
    /* Rank 0 is told no more, and has nothing more to say. */
    bool stopped = is_over(w->failed_ms, limit_ms + SLACK_MS) || is_over(w->ended_ms, SLACK_MS) ||
                   (only_stopped_remain(w) && is_over(w->last_ms, limit_ms + SLACK_MS));
    for (uint32_t r = 0; r < w->started; r++)
        if (w->ranks[r].status == RUNS &&
            (all || (stopped && w->ranks[r].stopped) || (w->pmi && w->pmi->aborted[r]))) {
            w->ranks[r].killed = true;
            if (w->ranks[r].stopped && !w->fallen.signal)
                w->fallen = (struct pl_fallen){.rank = r, .signal = SIGKILL, .was_stopped = true};
            (void)kill(w->ranks[r].pid, SIGKILL);
        }
}

/* Rank 0 may still wait for a rank that ended before it came. It is no meeting any more, or not yet
 * one, where nobody listens. */
static void tell_ends(struct crew *w) {
    for (uint32_t r = 1; r < w->started && w->ranks[0].status == RUNS; r++)
        if (w->ranks[r].untold)
            w->ranks[r].untold = !pl_meeting_tell_end(&w->meeting, r, w->l->ranks);
}

static void watch(struct crew *w) {
    while (w->running) {
        struct pollfd fds[PL_RANKS_MAX];
        for (uint32_t r = 0; r < w->started; r++)
            fds[r] = (struct pollfd){.fd = w->pmi ? w->pmi->fds[r] : -1, .events = POLLIN};
        (void)poll(fds, w->started, LOOK_MS);
        for (uint32_t r = 0; r < w->started; r++)
            if (fds[r].fd >= 0 && fds[r].revents) (void)pl_pmi_hear(w->pmi, r);
        const int number = w->l->signalled ? *w->l->signalled : 0;
        if (number != w->passed_on) kill_all(w, number); /* N2 */
        w->passed_on = number;
        reap(w);
        tell_ends(w);
        kill_remains(w);
    }
}

/* ---- the whole ---- */

static pl_err prepare(struct crew *w, struct pl_diag *d) {
    PL_TRY(reserve_port(w, d));
    PL_TRY(pl_token_make(w->meeting.token, d));
    if (!w->l->mpi) return PL_ERR_OK;
    const struct pl_mpi_module *module;
    PL_TRY(pl_mpi_find(&module, d));
    if (!module->speaks_pmi) {
        ssize_t n = readlink("/proc/self/exe", w->self, sizeof w->self - 1);
        w->mpiexec = module->mpiexec;
        if (w->mpiexec && w->l->argv && n > 0) return PL_ERR_OK;
        return pl_diag_set(d, PL_ERR_COMM_INIT, "this MPI starts its ranks by mpiexec alone");
    }
    w->pmi = pl_calloc(1, sizeof *w->pmi);
    if (!w->pmi) return pl_host_oom(d, "the start of the ranks");
    w->pmi->ranks = w->l->ranks;
    for (uint32_t r = 0; r < PL_RANKS_MAX; r++)
        w->pmi->fds[r] = -1;
    return PL_ERR_OK;
}

pl_err pl_launch(const struct pl_launch *l, int *status, struct pl_diag *d) {
    struct crew *w = pl_calloc(1, sizeof *w);
    *status = 1;
    if (!w) return pl_host_oom(d, "the start of the ranks");
    w->l = l;
    w->meeting = (struct pl_meeting){.address = "127.0.0.1", .listener = -1};
    w->reserved = -1;
    pl_err err = prepare(w, d);
    if (err == PL_ERR_OK && w->mpiexec) err = start_mpiexec(w, d);
    for (uint32_t r = 0; r < l->ranks && err == PL_ERR_OK && !w->mpiexec; r++)
        err = start_rank(w, r, d);
    if (err != PL_ERR_OK) kill_all(w, SIGKILL);
    watch(w);
    /* A rank that lost the one that fell ends with the status of COMM_PEER_LOST. */
    w->fallen.is_whole = w->fallen.signal && w->started && w->ranks[0].status == 0 && !w->erred;
    if (err == PL_ERR_OK)
        *status = w->fallen.is_whole ? 0 : w->first_of_own ? w->first_of_own : w->first;
    if (l->fallen) *l->fallen = w->fallen;
    if (w->reserved >= 0) close(w->reserved);
    if (w->pmi) pl_pmi_finish(w->pmi);
    free(w->pmi);
    free(w);
    return err;
}
