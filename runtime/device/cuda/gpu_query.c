#include "runtime/device/cuda/gpu_query.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

/* The answer of the child, small enough for a pipe to take whole (POSIX: PIPE_BUF is 512 at least;
 * Linux: 4,096). */
struct answer {
    pl_err err;
    struct pl_gpu gpu;
};

static void answer_and_exit(const struct pl_device_ops *ops, uint32_t ordinal, int to) {
    struct answer a = {0};
    a.err = ops->describe(ordinal, &a.gpu, NULL);
    const ssize_t n = write(to, &a, sizeof a);
    _exit(n != (ssize_t)sizeof a);
}

/* A read that ends early is a child that died. */
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

/* False: there is no GPU of this ordinal, or nothing that could be asked. */
static bool ask_child(const struct pl_device_ops *ops, uint32_t ordinal, struct pl_gpu *out) {
    struct answer a;
    int ends[2];
    if (pipe(ends) != 0) return false;
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        answer_and_exit(ops, ordinal, ends[1]);
    }
    close(ends[1]);
    const bool answered = child > 0 && read_answer(ends[0], &a);
    close(ends[0]);
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
        continue;
    if (answered && a.err == PL_ERR_OK) *out = a.gpu;
    return answered && a.err == PL_ERR_OK;
}

pl_err pl_gpu_query(const struct pl_device_ops *ops, uint32_t ordinal, struct pl_gpu *out,
                    struct pl_diag *d) {
    struct pl_diag by_nvml = {0};
    pl_err err = pl_nvml_query(ordinal, out, &by_nvml);
    if (err == PL_ERR_OK) return err;
    if (ops->describe && !pl_nvml_is_there() && ask_child(ops, ordinal, out)) return PL_ERR_OK;
    return pl_diag_set(d, err, "%s", by_nvml.message);
}
