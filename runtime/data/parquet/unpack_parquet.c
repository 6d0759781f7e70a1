#include "runtime/data/parquet/unpack_parquet.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* The answer of the process that decodes: small enough for a pipe to take whole. */
struct answer {
    struct pl_diag d;
    uint64_t bytes;
};
_Static_assert(sizeof(struct answer) <= PIPE_BUF, "an answer is written at once");

struct work {
    int from, to;
    const char *path;
    const struct pl_parquet_wish *wish;
};

bool pl_is_parquet(int fd) {
    char head[4];
    return pread(fd, head, sizeof head, 0) == sizeof head && memcmp(head, "PAR1", sizeof head) == 0;
}

static void decode(const struct work *w, struct answer *a) {
    FILE *file = fdopen(w->from, "rb");
    if (!file) {
        pl_diag_at(&a->d, pl_err_of_errno(PL_ERR_DATA_FILE), w->path, 0, 0, "cannot read: %s",
                   strerror(errno));
        return;
    }
    a->d.err = pl_parquet_write_lines(file, w->path, w->wish, w->to, &a->bytes, &a->d);
}

/* Signals that end a run are its parent's to answer, and a crash leaves no file. */
static _Noreturn void decode_and_exit(const struct work *w, pid_t parent, int answers) {
    struct answer a = {.bytes = 0};
    const struct rlimit none = {0, 0};
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(1);
    (void)setrlimit(RLIMIT_CORE, &none);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    decode(w, &a);
    const ssize_t n = write(answers, &a, sizeof a);
    _exit(n != (ssize_t)sizeof a);
}

/* An answer that is cut short is that of a process that died. */
static bool read_answer(int from, struct answer *a) {
    size_t have = 0;
    while (have < sizeof *a) {
        const ssize_t n = read(from, (char *)a + have, sizeof *a - have);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        have += (size_t)n;
    }
    return true;
}

static pl_err no_process(const struct work *w, struct pl_diag *d) {
    return pl_diag_at(d, pl_err_of_errno(PL_ERR_DATA_FILE), w->path, 0, 0,
                      "no process to decode the Parquet file: %s", strerror(errno));
}

/* The process ended without an answer. */
static pl_err died(const struct work *w, int status, struct pl_diag *d) {
    const int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (number == SIGKILL)
        return pl_diag_at(d, PL_ERR_HOST_OOM, w->path, 0, 0,
                          "the process that decodes the Parquet file was killed: no memory for a "
                          "row group, as it seems");
    pl_diag_at(d, PL_ERR_DATA_SYNTAX, w->path, 1, 0,
               "the Parquet file is damaged: carquet ended with %s %d",
               number ? "signal" : "status", number ? number : WEXITSTATUS(status));
    pl_diag_hint(d, "download or write the file again; pyarrow.parquet.read_table says what it "
                    "finds in it");
    return PL_ERR_DATA_SYNTAX;
}

static pl_err ask_process(const struct work *w, uint64_t *bytes, struct pl_diag *d) {
    struct answer a;
    int ends[2], status = 0;
    const pid_t parent = getpid();
    if (pipe2(ends, O_CLOEXEC) != 0) return no_process(w, d);
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        decode_and_exit(w, parent, ends[1]);
    }
    const pl_err none = child < 0 ? no_process(w, d) : PL_ERR_OK;
    close(ends[1]);
    const bool answered = child > 0 && read_answer(ends[0], &a);
    close(ends[0]);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    if (none != PL_ERR_OK) return none;
    if (!answered) return died(w, status, d);
    *bytes = a.bytes;
    if (a.d.err == PL_ERR_OK) return PL_ERR_OK;
    pl_diag_at(d, a.d.err, a.d.file[0] ? a.d.file : NULL, a.d.line, a.d.column, "%s", a.d.message);
    if (a.d.hint[0]) pl_diag_hint(d, "%s", a.d.hint);
    return a.d.err;
}

pl_err pl_unpack_parquet(int fd, const char *path, const struct pl_parquet_wish *wish,
                         struct pl_unpacked *all, struct pl_content *out, struct pl_diag *d) {
    uint64_t bytes = 0;
    PL_TRY(pl_unpacked_open(all, path, d));
    const struct work w = {fd, all->fd, path, wish};
    PL_TRY(ask_process(&w, &bytes, d));
    *out = (struct pl_content){all->fd, all->bytes, bytes};
    all->bytes += bytes;
    return PL_ERR_OK;
}
