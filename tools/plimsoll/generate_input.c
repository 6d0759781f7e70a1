#include "tools/plimsoll/generate_input.h"

#include "estimator/base/alloc.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define PIECE 4096

/* Reads some bytes; 0 at the end, -1 with errno set. */
static ssize_t read_piece(struct pl_text *out) {
    char buf[PIECE];
    ssize_t n;
    do
        n = read(STDIN_FILENO, buf, sizeof buf);
    while (n < 0 && errno == EINTR);
    if (n > 0) pl_text_addn(out, buf, (size_t)n);
    return n;
}

pl_err pl_input_read_all(struct pl_text *out, struct pl_diag *d) {
    ssize_t n;
    while ((n = read_piece(out)) > 0 && !out->failed)
        continue;
    if (n < 0) return pl_diag_set(d, pl_err_of_errno(PL_ERR_IO), "stdin: %s", strerror(errno));
    if (out->failed) return pl_host_oom(d, "the prompt");
    if (out->len && out->data[out->len - 1] == '\n') out->data[--out->len] = 0;
    return PL_ERR_OK;
}

/* poll() ends with a signal whatever its flags say, where read() may begin again. */
static enum pl_input_what wait_for(const volatile sig_atomic_t *stop) {
    struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};
    for (;;) {
        if (*stop) return PL_INPUT_SIGNAL;
        if (poll(&fd, 1, -1) >= 0) return PL_INPUT_LINE;
        if (errno != EINTR) return PL_INPUT_FAILED;
    }
}

/* Forgets what was given out, so that the bytes ahead do not grow with the conversation. */
static void compact(struct pl_input *in) {
    const size_t left = in->ahead.len - in->taken;
    if (!in->taken) return;
    memmove(in->ahead.data, in->ahead.data + in->taken, left);
    in->ahead.len = left;
    in->taken = 0;
}

/* True if *line was filled: with a whole line, or with what stands before the end. */
static bool take_line(struct pl_input *in, struct pl_text *line) {
    const char *from = pl_text_str(&in->ahead) + in->taken;
    const size_t left = in->ahead.len - in->taken;
    const char *end = left ? memchr(from, '\n', left) : NULL;
    if (!end && (!in->ended || !left)) return false;
    const size_t n = end ? (size_t)(end - from) : left;
    pl_text_addn(line, from, n);
    in->taken += n + (end != NULL);
    return true;
}

enum pl_input_what pl_input_line(struct pl_input *in, const volatile sig_atomic_t *stop,
                                 struct pl_text *line) {
    pl_text_finish(line);
    while (!take_line(in, line)) {
        if (in->ended) return PL_INPUT_END;
        compact(in);
        const enum pl_input_what what = wait_for(stop);
        if (what != PL_INPUT_LINE) return what;
        const ssize_t n = read_piece(&in->ahead);
        if (n < 0 || in->ahead.failed) return PL_INPUT_FAILED;
        in->ended = n == 0;
    }
    return line->failed ? PL_INPUT_FAILED : PL_INPUT_LINE;
}

void pl_input_finish(struct pl_input *in) {
    pl_text_finish(&in->ahead);
    *in = (struct pl_input){0};
}
