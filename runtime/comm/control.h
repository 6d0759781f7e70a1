/* control.h - the control channel: a star of TCP connections to rank 0, a thread for it per rank.
 *
 * Every agreement is made of rounds: each rank gives a part, and rank 0 composes the whole that all
 * get. Ranks that make different calls, or give parts of other sizes, get an error.
 *   K1  a message is at most PL_ROUND_MOST bytes long; a longer one ends the connection
 *   K2  a peer that connects has HELLO_MS to send the token; until then nothing else is read
 *   K3  every rank sends a beat each second, or each quarter of the limit. Who was silent for the
 *       limit, or whose connection ended without a farewell, is lost; rank 0 tells the others
 *   K4  a rank that was itself stopped begins to count anew, so that a job may be suspended
 *   K5  the thread takes no signals, and only it touches the connections
 * Needs: estimator/base, threads.
 * Use: pl_control_open(&control, &world, &meeting, 10, &d);
 *      pl_control_round(control, PL_CALL_AGREE, mine, bytes, all, n * bytes, &d); */
#ifndef PL_RUNTIME_COMM_CONTROL_H
#define PL_RUNTIME_COMM_CONTROL_H

#include "runtime/comm/comm.h"

#define PL_ROUND_MOST (64u << 10) /* most bytes of the whole of a round */
#define PL_TOKEN_MOST 64

/* The address at which the ranks meet, and the token by which they know each other. */
struct pl_meeting {
    char address[PL_HOST_NAME];
    uint16_t port;
    char token[PL_TOKEN_MOST + 1];
    int listener;                   /* socket of rank 0, which listens already; -1 = none */
    const struct pl_teller *teller; /* nullable; told once which ranks are missing */
};

/* Makes rank 0 listen. address "": the loopback of this machine if all ranks are on it, else every
 * address of it. port 0: any free one. Fills in what was not given. COMM_INIT. */
pl_err pl_meeting_listen(struct pl_meeting *m, const struct pl_world *world, struct pl_diag *d);
void pl_meeting_finish(struct pl_meeting *m); /* closes a listener that is still open */
/* Called by the process that starts the ranks: tells rank 0, if it still waits for all of them,
 * that one has ended. False: it does not listen. */
bool pl_meeting_tell_end(const struct pl_meeting *m, uint32_t rank, uint32_t size);
/* Makes a token of 128 random bits, in hexadecimal. */
pl_err pl_token_make(char out[PL_TOKEN_MOST + 1], struct pl_diag *d);

struct pl_control;
/* Returns the time within which the others have to come, two and a half times the limit for
 * silence, so that all have ended within three. */
static inline uint32_t pl_meeting_ms(uint32_t timeout_ms) {
    return timeout_ms / 2 * 5;
}
/* The start of an engine may take so many limits for silence. */
#define PL_START_LIMITS 6
/* Waits for all ranks; after the limit for silence the teller hears which are missing. COMM_INIT
 * names the ranks that did not come. A world of one has no connections and no thread. */
pl_err pl_control_open(struct pl_control **out, const struct pl_world *world, struct pl_meeting *m,
                       uint32_t timeout_seconds, struct pl_diag *d);
/* NULL-safe; sets *c to NULL. orderly: all ranks are known to close too; else the others count this
 * one as lost. */
void pl_control_close(struct pl_control **c, bool orderly);

/* The calls that ranks make together; they get an error if these differ. */
enum pl_control_call {
    PL_CALL_AGREE,
    PL_CALL_BROADCAST,
    PL_CALL_BARRIER,
    PL_CALL_COMPARE,
    PL_CALL_CLOSE
};

/* Gathers parts of `bytes` <= PL_AGREE_MOST each (BROADCAST: rank 0 alone gives some, <=
 * PL_ROUND_MOST) into `all`: the parts of all ranks in order, or those of rank 0. limit_ms 0: no
 * limit while the others are heard of. COMM_PEER_LOST; COMM_MISMATCH: the ranks make different
 * calls. */
struct pl_round {
    enum pl_control_call call;
    const void *mine;
    uint32_t bytes;
    void *all;
    uint32_t all_bytes;
    uint32_t limit_ms;
};
pl_err pl_control_round(struct pl_control *c, const struct pl_round *r, struct pl_diag *d);

pl_err pl_control_check(struct pl_control *c, struct pl_diag *d); /* see pl_comm_check */
bool pl_control_is_lost(const struct pl_control *c);              /* pl_control_check as a flag,
                                                                     from any thread */
/* Called by an engine that has lost the rank: it is lost for all others too. why: the text after
 * "rank 1 on HOST ". */
void pl_control_lose(struct pl_control *c, uint32_t rank, const char *why);
/* Sets the function that the thread calls, once, when a rank is lost; after this returns no earlier
 * one is called any more. NULL = none. */
void pl_control_on_loss(struct pl_control *c, void (*call)(void *arg), void *arg);
void pl_control_fail(struct pl_control *c, pl_err cause, const char *why); /* see pl_comm_fail */
/* True if another rank has ended by `cause`; waits up to limit_ms for the end of one. */
bool pl_control_hears(struct pl_control *c, pl_err cause, uint32_t limit_ms);
const char *pl_control_host(const struct pl_control *c, uint32_t rank);

#endif
