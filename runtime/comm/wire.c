/* wire.c - messages of the control channel on one connection, without waiting. */
#include "runtime/comm/wire.h"
#include "estimator/base/alloc.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

uint64_t pl_now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

pl_err pl_link_init(struct pl_link *l, int fd, uint32_t in_most, struct pl_diag *d) {
    *l = (struct pl_link){.fd = fd, .in_most = in_most};
    l->in = pl_malloc(sizeof(struct pl_head) + in_most);
    l->out = pl_malloc(PL_LINK_OUT);
    if (l->in && l->out) return PL_ERR_OK;
    pl_link_finish(l);
    return pl_host_oom(d, "a connection to another rank");
}

void pl_link_finish(struct pl_link *l) {
    if (l->fd >= 0) close(l->fd);
    l->fd = -1;
    free(l->in);
    free(l->out);
    l->in = l->out = NULL;
    l->in_have = l->out_have = 0;
}

bool pl_link_put(struct pl_link *l, const struct pl_head *head, const void *body) {
    uint32_t bytes = (uint32_t)sizeof *head + head->bytes;
    if (l->fd < 0) return true;
    /* W1: what does not fit next to the bytes on their way is not taken. */
    if (head->bytes > PL_LINK_OUT || bytes > PL_LINK_OUT - l->out_have) return false;
    memcpy(l->out + l->out_have, head, sizeof *head);
    if (head->bytes) memcpy(l->out + l->out_have + sizeof *head, body, head->bytes);
    l->out_have += bytes;
    return true;
}

static bool would_block(void) {
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

bool pl_link_flush(struct pl_link *l) {
    uint32_t sent = 0;
    while (l->fd >= 0 && sent < l->out_have) {
        ssize_t n = send(l->fd, l->out + sent, l->out_have - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && !would_block()) return false;
        if (n <= 0) break;
        sent += (uint32_t)n;
    }
    l->out_have -= sent;
    if (sent) memmove(l->out, l->out + sent, l->out_have);
    return true;
}

/* Up to `want` bytes in the link. */
static enum pl_link_got fill(struct pl_link *l, uint32_t want) {
    while (l->in_have < want) {
        ssize_t n = recv(l->fd, l->in + l->in_have, want - l->in_have, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return would_block() ? PL_LINK_NOTHING : PL_LINK_ENDED;
        if (n == 0) return PL_LINK_ENDED;
        l->in_have += (uint32_t)n;
    }
    return PL_LINK_MESSAGE;
}

enum pl_link_got pl_link_get(struct pl_link *l, struct pl_head *head, const void **body) {
    if (l->fd < 0) return PL_LINK_NOTHING;
    enum pl_link_got got = fill(l, sizeof *head);
    if (got != PL_LINK_MESSAGE) return got;
    memcpy(head, l->in, sizeof *head);
    /* W2: the length comes from the other side. */
    if (head->magic != PL_MAGIC || head->bytes > l->in_most) return PL_LINK_NONSENSE;
    *body = l->in + sizeof *head;
    return fill(l, (uint32_t)sizeof *head + head->bytes);
}

void pl_link_take(struct pl_link *l) {
    l->in_have = 0;
}
