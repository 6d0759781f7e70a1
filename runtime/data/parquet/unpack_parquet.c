#include "runtime/data/parquet/unpack_parquet.h"

#include "runtime/device/child_ask.h"

#include <errno.h>
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
    pid_t parent;
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
static void decode_alone(const void *work, void *answer) {
    const struct work *w = work;
    const struct rlimit none = {0, 0};
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != w->parent) _exit(1);
    (void)setrlimit(RLIMIT_CORE, &none);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    decode(w, answer);
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
    struct answer a = {.bytes = 0};
    int status = 0;
    switch (pl_child_ask(decode_alone, w, &a, sizeof a, &status)) {
    case PL_CHILD_NONE:
        return pl_diag_at(d, pl_err_of_errno(PL_ERR_DATA_FILE), w->path, 0, 0,
                          "no process to decode the Parquet file: %s", strerror(errno));
    case PL_CHILD_DIED:
        return died(w, status, d);
    case PL_CHILD_ANSWERED:
        break;
    }
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
    const struct work w = {getpid(), fd, all->fd, path, wish};
    PL_TRY(ask_process(&w, &bytes, d));
    *out = (struct pl_content){all->fd, all->bytes, bytes};
    all->bytes += bytes;
    return PL_ERR_OK;
}
