/* diag.h - where a failure is described: code, sentence, place, hint.
 *
 * The caller owns a `struct pl_diag` and may pass NULL when it does not care. Library code fills it
 * and returns the same code; only tools/ prints it. The first report wins: later ones on the way up
 * keep the original text. Reset with `= {0}` before use. A reader that can continue after a failure
 * of its input reports all of them, where the caller has given it a list (pl_diag_keep).
 * Use: return pl_diag_set(d, PL_ERR_CONFIG_RANGE, "lora_r is %u, the limit is %u", r, lim); */
#ifndef PL_ESTIMATOR_BASE_DIAG_H
#define PL_ESTIMATOR_BASE_DIAG_H

#include "estimator/base/errors.h"

#include <stdbool.h>
#include <stdint.h>

struct pl_diag_list;

struct pl_diag {
    pl_err err;
    pl_err cause; /* the failure of another rank that ended this one: under COMM_PEER_LOST, OK = not
                   * known; else `err`, and that rank reports it */
    char message[1024];
    char hint[512]; /* "" = the error's default hint */
    char file[512]; /* "" = no file is concerned */
    uint64_t line, column; /* 1-based; 0 = unknown */
    struct pl_diag_list *all; /* nullable, borrowed: gets every failure of one input */
};

/* The failures of one input, in the order in which they were found. */
#define PL_DIAGS_MOST 20
struct pl_diag_list {
    struct pl_diag items[PL_DIAGS_MOST];
    uint32_t n;
    bool more; /* there was another one, and reading ended there */
    bool open; /* between pl_diag_begin and pl_diag_first */
};

#if defined(__GNUC__)
#define PL_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#define PL_PRINTF(fmt, first)
#endif

/* Records the failure (unless one is recorded already) and returns `err`. */
pl_err pl_diag_set(struct pl_diag *d, pl_err err, const char *fmt, ...) PL_PRINTF(3, 4);
/* pl_diag_set with a place; file may be NULL, line and column 0. */
pl_err pl_diag_at(struct pl_diag *d, pl_err err, const char *file, uint64_t line, uint64_t column,
                  const char *fmt, ...) PL_PRINTF(6, 7);
/* Records PL_ERR_HOST_OOM in its one wording, "no memory for WHAT", and returns it. */
pl_err pl_host_oom(struct pl_diag *d, const char *what);
/* Returns PL_ERR_HOST_OOM if errno says that a failed call of libc or of the system lacked memory,
 * else `otherwise`. */
pl_err pl_err_of_errno(pl_err otherwise);
/* Replaces the hint of a recorded failure. */
void pl_diag_hint(struct pl_diag *d, const char *fmt, ...) PL_PRINTF(2, 3);
/* Starts collecting failures in d->all, if there is one, for a reader that can continue after a
 * failure. */
void pl_diag_begin(struct pl_diag *d);
/* Moves the failure into d->all and returns PL_ERR_OK. Returns `err` if no list is open, if it is
 * full, and if memory is short. */
pl_err pl_diag_keep(struct pl_diag *d, pl_err err);
/* Ends a reader whose result is `err`: puts the first failure that was kept into *d and returns it.
 * A lack of memory empties the list. */
pl_err pl_diag_first(struct pl_diag *d, pl_err err);
/* Returns the hint to show: the recorded one, else the default of the code. */
const char *pl_diag_hint_text(const struct pl_diag *d);

#endif
