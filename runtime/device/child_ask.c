#include "runtime/device/child_ask.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

/* CA1 */
static bool read_answer(int from, void *answer, size_t bytes) {
    size_t have = 0;
    while (have < bytes) {
        const ssize_t n = read(from, (char *)answer + have, bytes - have);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        have += (size_t)n;
    }
    return true;
}

enum pl_child_end pl_child_ask(pl_child_fn *fn, const void *work, void *answer, size_t bytes,
                               int *status) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return PL_CHILD_NONE;
    const pid_t child = fork();
    const int why = errno;
    if (child == 0) {
        close(ends[0]);
        fn(work, answer);
        _exit(write(ends[1], answer, bytes) != (ssize_t)bytes);
    }
    close(ends[1]);
    const bool answered = child > 0 && read_answer(ends[0], answer, bytes);
    close(ends[0]);
    while (child > 0 && waitpid(child, status, 0) < 0 && errno == EINTR)
        continue;
    errno = why;
    if (child < 0) return PL_CHILD_NONE;
    return answered ? PL_CHILD_ANSWERED : PL_CHILD_DIED;
}
