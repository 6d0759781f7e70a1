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
    pl_err cause; /* what another rank ended by: of COMM_PEER_LOST, OK = not known; else `err`, and
                   * that rank says why */
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
/* The same with a place; file may be NULL, line and column 0. */
pl_err pl_diag_at(struct pl_diag *d, pl_err err, const char *file, uint64_t line, uint64_t column,
                  const char *fmt, ...) PL_PRINTF(6, 7);
/* PL_ERR_HOST_OOM, in the one wording that it has: "no memory for WHAT". */
pl_err pl_host_oom(struct pl_diag *d, const char *what);
/* What a failed call of libc or of the system is, by errno: PL_ERR_HOST_OOM or `otherwise`. */
pl_err pl_err_of_errno(pl_err otherwise);
/* Replaces the hint of a recorded failure. */
void pl_diag_hint(struct pl_diag *d, const char *fmt, ...) PL_PRINTF(2, 3);
/* For a reader that can continue after a failure: from here on failures are kept in d->all, where
 * there is one. */
void pl_diag_begin(struct pl_diag *d);
/* Moves the failure into d->all and returns PL_ERR_OK. Returns `err` where no list is open, where
 * it is full, and for a lack of memory. */
pl_err pl_diag_keep(struct pl_diag *d, pl_err err);
/* The end of a reader that ends with `err`: the first failure that was kept, in *d and as the
 * result; a lack of memory empties the list. */
pl_err pl_diag_first(struct pl_diag *d, pl_err err);
/* The hint to show: the recorded one, else the default of the code. */
const char *pl_diag_hint_text(const struct pl_diag *d);

#endif
