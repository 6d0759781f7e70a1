/* options.h - how a run is observed and stopped: no option changes what is trained. */
#ifndef PL_RUNTIME_TRAIN_OPTIONS_H
#define PL_RUNTIME_TRAIN_OPTIONS_H

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>

struct pl_train_options {
    FILE *messages;   /* ledger, notes, progress; never NULL */
    FILE *json;       /* one event a line; NULL = off */
    bool quiet;       /* errors only */
    bool no_progress; /* notes, but no steps */
    bool colour;      /* about `messages` */
    bool probe_only;  /* only the probe runs: nothing is trained or saved */
    bool profile;     /* time every op of every step; a table on messages, an event in the log */
    volatile sig_atomic_t *stop; /* nullable; a non-zero signal number: finish the step, save,
                                    stop */
};

#endif
