/* cli_signals.c - what Ctrl-C, a terminal that goes away, and a scheduler's notice mean to a
 * command that takes its time. */
#include "tools/plimsoll/cli.h"

#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

/* A signal less than this after the first counts as the first one again: timeout(1), schedulers and
 * service managers signal the process and then its whole group. */
#define ONCE_NS UINT64_C(1000000000)

static volatile sig_atomic_t stop_signal;
static _Atomic uint64_t insisted_ns; /* when SIGINT or SIGTERM first came; 0 = not yet */

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec + 1; /* never 0 */
}

/* The first signal asks for an orderly end. SIGINT or SIGTERM once more is taken at its word. The
 * others are notices, which are repeated - SIGXCPU every second - and followed by a SIGTERM that is
 * none the less the first. */
static void on_signal(int number) {
    if (!stop_signal) stop_signal = number;
    if (number != SIGINT && number != SIGTERM) return;
    uint64_t now = now_ns(), first = 0;
    if (atomic_compare_exchange_strong(&insisted_ns, &first, now)) return;
    if (now > first && now - first >= ONCE_NS) _exit(128 + number);
}

volatile sig_atomic_t *pl_cli_catch_signals(void) {
    static const int notices[] = {SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};
    /* A write that waits for its reader goes on; the flag is looked at between steps. */
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    for (size_t i = 0; i < sizeof notices / sizeof *notices; i++) {
        struct sigaction now;
        const bool known = sigaction(notices[i], NULL, &now) == 0;
        if (known && now.sa_handler == SIG_IGN) continue; /* nohup */
        sigaction(notices[i], &action, NULL);
    }
    action.sa_handler = SIG_IGN;
    sigaction(SIGXFSZ, &action, NULL); /* a file above the limit is a write that fails: EFBIG */
    return &stop_signal;
}

void pl_cli_forget_signal(void) {
    stop_signal = 0;
    atomic_store(&insisted_ns, 0);
}

void pl_cli_outlive_readers(void) {
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, NULL);
}
