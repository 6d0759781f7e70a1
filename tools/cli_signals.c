/* cli_signals.c - what Ctrl-C, and a terminal that goes away, mean to a command that takes its
 * time. */
#include "tools/cli.h"

#include <unistd.h>

static volatile sig_atomic_t stop_signal;

/* The first signal asks for an orderly end, the second is taken at its word; but a terminal that
 * closes is told of by the kernel and the shell both, and by systemd behind its SIGTERM. */
static void on_signal(int number) {
    if (stop_signal && number == SIGHUP) return;
    if (stop_signal) _exit(128 + number);
    stop_signal = number;
}

static bool is_ignored(int number) {
    struct sigaction now;
    return sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

volatile sig_atomic_t *pl_cli_catch_signals(void) {
    /* A write that waits for its reader goes on; the flag is looked at between steps. */
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (!is_ignored(SIGHUP)) sigaction(SIGHUP, &action, NULL); /* nohup */
    action.sa_handler = SIG_IGN;
    sigaction(SIGXFSZ, &action, NULL); /* a file above the limit is a write that fails: EFBIG */
    return &stop_signal;
}

void pl_cli_outlive_readers(void) {
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, NULL);
}
