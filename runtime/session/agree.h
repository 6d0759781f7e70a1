/* agree.h - a session as one of several ranks: joined, compared, and agreed on failures.
 *
 * Needs: comm.
 *   N1  ranks that were started differently are refused before the first tensor moves
 *   N2  what one rank cannot do no rank has done: outcomes are agreed on, on the host */
#ifndef PL_RUNTIME_SESSION_AGREE_H
#define PL_RUNTIME_SESSION_AGREE_H

#include "runtime/session/books.h"
#include "runtime/session/session.h"

/* Starts what moves tensors between the ranks that met in admission, if there are any, and compares
 * them. COMM_INIT, COMM_MISMATCH, COMM_PEER_LOST. */
pl_err pl_session_join(struct pl_session *s, struct pl_diag *d);

/* Compares, after the plans are made, what they send each other, and finds out whether all ranks
 * see one output_dir. If ranks hold parts of tensors, decides what files hold of them, and the
 * staging that all have. */
pl_err pl_session_cut(struct pl_session *s, struct pl_diag *d);

/* The memory that a rank took and the time that it waited, of a whole run. */
struct pl_rank_tally {
    uint64_t planned_bytes, allocated_bytes;
    uint64_t sent_bytes;       /* to other ranks */
    uint64_t comm_bytes;       /* of a GPU, which connect it to them */
    uint64_t registered_bytes; /* of its arenas, with what connects them */
    double wait_seconds;       /* of the host, for other ranks */
};
/* Writes all[rank] of every rank, on every rank. */
pl_err pl_session_tally(struct pl_session *s, const struct pl_books *books,
                        struct pl_rank_tally all[PL_RANKS_MAX], struct pl_diag *d);

/* The outcome of a rank; `stop` is the signal that asks it to end, 0 = none. */
struct pl_outcome {
    pl_err err;
    int stop;
};
/* The same for all ranks: the first rank's that ran out of memory, else the first failure, else
 * PL_ERR_OK; any stop. Another rank's failure is told in `d`, its lack of memory in s->facts.
 * Alone: as it is. COMM_PEER_LOST. */
struct pl_outcome pl_session_agree(struct pl_session *s, struct pl_outcome mine, struct pl_diag *d);
/* Gives every rank all n rows of `bytes` <= PL_AGREE_MOST each, of which rank of[i] alone knows row
 * i; all ranks have the same n and `of`. COMM_PEER_LOST. */
pl_err pl_session_share_rows(struct pl_session *s, void *rows, uint32_t bytes, const uint32_t *of,
                             uint64_t n, struct pl_diag *d);

/* Makes every rank take the token that rank 0 has chosen: logits may differ in their last bits
 * between processors. Alone: as it is. COMM_PEER_LOST. */
pl_err pl_session_follow_leader(struct pl_session *s, int32_t *id, struct pl_diag *d);

#endif
