/* cli_signals.c - what Ctrl-C means to a command that takes its time. */
#include "tools/cli.h"

#include <unistd.h>

static volatile sig_atomic_t stop_signal;

/* The first signal asks for an orderly end, the second is taken at its word. */
static void on_signal(int number) {
    if (stop_signal) _exit(128 + number);
    stop_signal = number;
}

volatile sig_atomic_t *pl_cli_catch_signals(void) {
    /* A write that waits for its reader goes on; the flag is looked at between steps. */
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return &stop_signal;
}
