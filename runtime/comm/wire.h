/* wire.h - messages of the control channel on one connection, without waiting.
 *
 *   W1  a link holds at most one message that is coming in and PL_LINK_OUT bytes on their way out
 *   W2  nothing here blocks, and every length that was read is checked against the limit of the
 *       link
 * Needs: libc. Integers are those of the machine: another byte order has another magic. */
#ifndef PL_RUNTIME_COMM_WIRE_H
#define PL_RUNTIME_COMM_WIRE_H

#include "runtime/comm/control.h"

enum pl_message {
    PL_MESSAGE_HELLO = 1, /* struct pl_hello; a rank to rank 0, first */
    PL_MESSAGE_WELCOME,   /* the hosts of all ranks; rank 0, when all are there */
    PL_MESSAGE_REFUSE,    /* a text; rank 0, instead of WELCOME */
    PL_MESSAGE_BEAT,      /* nothing */
    PL_MESSAGE_PART,      /* the part of a rank in round `number` */
    PL_MESSAGE_WHOLE,     /* the whole of that round, for all */
    PL_MESSAGE_LOST,      /* struct pl_loss */
    PL_MESSAGE_LEAVE,     /* nothing; the last message */
    PL_MESSAGE_ENDED,     /* struct pl_hello of a rank that failed; its launcher to rank 0 */
};

#define PL_MAGIC 0x32434C50u /* "PLC2": changes with the messages */
struct pl_head {
    uint32_t magic, kind, bytes, call;
    uint64_t number;
};

struct pl_hello {
    char token[PL_TOKEN_MOST];
    uint32_t rank, size;
    char host[PL_HOST_NAME];
};

#define PL_WHY 400
struct pl_loss {
    uint32_t rank, err;
    uint32_t cause; /* the pl_err by which that rank ended; OK = not known */
    char why[PL_WHY];
};

#define PL_LINK_OUT (PL_ROUND_MOST + (8u << 10))
struct pl_link {
    int fd;    /* size of the largest message that is accepted */
    bool left; /* it sent LEAVE */
    uint64_t heard_ms;
    uint32_t in_most; /* largest message that is taken */
    uint32_t in_have, out_have;
    unsigned char *in, *out; /* sizeof(struct pl_head) + in_most; PL_LINK_OUT */
};

uint64_t pl_now_ms(void); /* monotonic */
/* The link owns fd, and closes it on failure. */
pl_err pl_link_init(struct pl_link *l, int fd, uint32_t in_most, struct pl_diag *d);
void pl_link_finish(struct pl_link *l); /* closes; leaves fd -1 */

/* False: no room, which a peer that reads never causes. */
bool pl_link_put(struct pl_link *l, const struct pl_head *head, const void *body);
/* Sends as much as the connection takes. False: it ended. */
bool pl_link_flush(struct pl_link *l);

enum pl_link_got { PL_LINK_NOTHING, PL_LINK_MESSAGE, PL_LINK_ENDED, PL_LINK_NONSENSE };
/* Returns the next message; *body points into the link until the next call of pl_link_take. */
enum pl_link_got pl_link_get(struct pl_link *l, struct pl_head *head, const void **body);
void pl_link_take(struct pl_link *l); /* removes the message that was read */

#endif
